"""XMC and svmlight text: hand-written files, exact numbers, every error, round trips, and agreement with sklearn."""

import gzip
import lzma
import re
import struct

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_svmlight_file

from labelgap.datasets import read_svmlight, read_xmc, write_svmlight, write_xmc
from labelgap.runtime import threads


@pytest.fixture
def text(tmp_path):
    def write(content, name="data.txt"):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def same(a, b):
    return a.shape == b.shape and a.nnz == b.nnz and (a != b).nnz == 0


def random_pair(n, d, L, seed=0):
    rng = np.random.RandomState(seed)
    X = sp.csr_array(np.where(rng.rand(n, d) < 0.3, rng.randn(n, d), 0).astype(np.float32))
    Y = sp.csr_array((rng.rand(n, L) < 0.3).astype(np.float32))
    return X, Y


def test_hand_written_file(text):
    X, Y = read_xmc(text("4 3 3\n0,2 0:1.5 2:-2\n 1:1\n1\n \n"))
    assert X.toarray().tolist() == [[1.5, 0, -2], [0, 1, 0], [0, 0, 0], [0, 0, 0]]
    assert Y.toarray().tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0], [0, 0, 0]]
    assert X.dtype == Y.dtype == np.float32
    assert X.indices.dtype == X.indptr.dtype == np.int32
    assert X.has_canonical_format
    assert Y.has_canonical_format


@pytest.mark.parametrize(
    "content",
    [
        "2 2 2\r\n0 0:1\r\n 1:2\r\n",
        "2 2 2\n0 0:1\n 1:2",
        "2 2 2\n0  0:1 \n\t1:2\t\n",
        "2 2 2\n0 0:1\n 1:2\n\n\n",
        "2 2 2\r\n0 0:1\r\n 1:2\r\n\r\n",
        "2 2 2\n0 0:1\n1:2\n",
    ],
    ids=["crlf", "no final newline", "blanks and tabs", "empty lines at the end", "crlf, empty line", "no blank"],
)
def test_same_rows_written_differently(text, content):
    X, Y = read_xmc(text(content))
    assert X.toarray().tolist() == [[1, 0], [0, 2]]
    assert Y.toarray().tolist() == [[1, 0], [0, 0]]


def test_rows_that_are_empty_lines_count(text):
    X, Y = read_xmc(text("3 2 2\n\n0 0:1\n\n"))
    assert X.toarray().tolist() == [[0, 0], [1, 0], [0, 0]]
    assert Y.toarray().tolist() == [[0, 0], [1, 0], [0, 0]]


def test_file_with_a_header_only(text):
    X, Y = read_xmc(text("0 5 7\n"))
    assert (X.shape, Y.shape) == ((0, 5), (0, 7))


def test_unsorted_indices_are_sorted_with_their_values(text):
    X, Y = read_xmc(text("2 9 9\n8,1,4 7:7 2:2 5:5\n0 0:1 1:1\n"))
    assert X[[0]].indices.tolist() == [2, 5, 7]
    assert X[[0]].data.tolist() == [2, 5, 7]
    assert Y[[0]].indices.tolist() == [1, 4, 8]


TRICKY = [
    *(
        "1e-5",
        "1E+3",
        ".5",
        "5.",
        "0.1",
        "+1",
        "-0",
        "0",
        "0e999",
        "1e-400",
        "7.038531e-26",
        "1e22",
        "1e23",
        "8.5e-22",
    ),
    *("3.4028e38", "3.4028235e38", "3.40282356e38", "1.17549435e-38", "1e-45", "1e-46"),  # the ends of float32
    *("2.2250738585072011e-308", "4.9e-324"),  # the ends of float64
    *("16777217", "16777219", "9007199254740993", "9007199254740992.5", "123456789012345678e-30"),  # ties
    *("0.30000000000000004", "0.12345678901234567", "12345678901234567890123"),
    *("000000000000000000000000001.5", "0.000000000000000000000000000000123"),
    "0." + 57 * "0" + "1e50",
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tricky_numbers_are_exact(text, dtype):
    numbers = TRICKY + ["-" + number.lstrip("+-") for number in TRICKY]
    rows = "".join(f"0 0:{number}\n" for number in numbers)
    X, _ = read_xmc(text(f"{len(numbers)} 1 1\n{rows}"), dtype=dtype)
    expected = np.array([float(number) for number in numbers]).astype(dtype)
    assert X.dtype == dtype
    np.testing.assert_array_equal(X.data, expected)
    np.testing.assert_array_equal(np.signbit(X.data), np.signbit(expected))


def test_random_numbers_are_exact(text):
    rng = np.random.RandomState(0)
    bits = rng.randint(0, 2**63, size=20000, dtype=np.int64)
    doubles = [v for v in (struct.unpack("d", struct.pack("q", int(b)))[0] for b in bits) if np.isfinite(v)]
    numbers = [repr(v) for v in doubles] + [repr(float(v)) for v in rng.rand(5000)]
    numbers += [f"{rng.randint(10**9)}{rng.randint(10**9)}{'.' * (k % 2)}{rng.randint(10**9)}" for k in range(3000)]
    numbers += [f"{m}.5" for m in rng.randint(2**52, 2**53, size=500, dtype=np.int64)]  # ties between doubles
    X, _ = read_xmc(text(f"{len(numbers)} 1 1\n" + "".join(f" 0:{n}\n" for n in numbers)), dtype=np.float64)
    np.testing.assert_array_equal(X.data, [float(n) for n in numbers])


@pytest.mark.parametrize(
    ("content", "line", "found"),
    [
        ("", 1, "''"),
        ("2 3\n", 1, "2 3"),
        ("a b c\n", 1, "a b c"),
        ("1 2 -3\n0 0:1\n", 1, "1 2 -3"),
        ("0,1 0:1 1:2\n", 1, "0,1 0:1 1:2"),
        ("3 2 2\n0 0:1\n1 1:1\n", 3, "found 2 rows, expected 3"),
        ("1 2 2\n0 0:1\n1 1:1\n", 3, "found 2 rows, expected 1"),
        ("2 2 2\n0 0:1\n2 1:1\n", 3, "'2'"),
        ("2 2 2\n0 0:1\n1 2:1\n", 3, "'2:1'"),
        ("2 2 2\n0 0:1\n1 99999999999999999999999:1\n", 3, "999"),
        ("2 2 2\n0 0:1\n1 -1:1\n", 3, "'-1:1'"),
        ("2 2 2\n0 0:1\n-1 1:1\n", 3, "'-1'"),
        ("2 2 2\n0 0:1\n1 1\n", 3, "'1'"),
        ("2 2 2\n0 0:1\n1 1 :1\n", 3, "'1'"),
        ("2 2 2\n0 0:1\n1 1:x\n", 3, "'x'"),
        ("2 2 2\n0 0:1\n1 1:\n", 3, "end of the line"),
        ("2 2 2\n0 0:1\n1 1:1e\n", 3, "'1e'"),
        ("2 2 2\n0 0:1\n1 1:1.2.3\n", 3, "'1.2.3'"),
        ("2 2 2\n0 0:1\n1 1:-\n", 3, "'-'"),
        ("2 2 2\n0 0:1\n1 1:1_0\n", 3, "'1_0'"),
        ("2 2 2\n0 0:1\n1 1:nan\n", 3, "'nan'"),
        ("2 2 2\n0 0:1\n1 1:inf\n", 3, "'inf'"),
        ("2 2 2\n0 0:1\n1 1:1e39\n", 3, "'1e39'"),
        ("2 2 2\n0 0:1\n1 1:1e999\n", 3, "'1e999'"),
        ("2 2 2\n0 0:1\n1 1:1 1:2\n", 3, "1:1 1:2"),
        ("2 2 2\n0 0:1\n1 1:1 0:3 1:2\n", 3, "1:1 0:3 1:2"),
        ("2 2 2\n0 0:1\n1,1 1:1\n", 3, "1,1"),
        ("2 2 2\n0 0:1\n1, 1:1\n", 3, "expected labels"),
        ("2 2 2\n0 0:1\n1;0 1:1\n", 3, "'1;0'"),
        ("2 2 2\n0 0:1\n0,1:1 1:1\n", 3, "0,1:1"),
        ("2 2 2\n0 0:1\n0 1:1 # note\n", 3, "'#'"),
    ],
)
def test_malformed_files_name_the_line_and_what_was_found(text, content, line, found):
    path = text(content)
    with pytest.raises(ValueError, match="expected") as error:
        read_xmc(path)
    assert f"{path}, line {line}:" in str(error.value)
    assert found in str(error.value)


def test_overflow_of_float32_is_no_overflow_of_float64(text):
    assert read_xmc(text("1 1 1\n0 0:1e39\n"), dtype=np.float64)[0].data.tolist() == [1e39]


@pytest.mark.parametrize(("ending", "opener"), [(".gz", gzip.open), (".xz", lzma.open)])
def test_truncated_and_damaged_compression(text, ending, opener, tmp_path):
    X, Y = random_pair(200, 20, 5)
    path = tmp_path / f"whole.txt{ending}"
    write_xmc(path, X, Y)
    with opener(path, "rt") as stream:
        assert stream.readline() == "200 20 5\n"
    content = path.read_bytes()
    for damaged in (content[: len(content) // 2], b"plain text"):
        with pytest.raises(ValueError, match="cut off or damaged"):
            read_xmc(text(damaged, f"damaged.txt{ending}"))


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_many_ranges_read_like_one(tmp_path, n_jobs):
    X, Y = random_pair(3000, 40, 12)
    path = tmp_path / "large.txt"
    write_xmc(path, X, Y)
    assert path.stat().st_size > 1 << 18  # cut into several ranges
    with threads(n_jobs):
        X_read, Y_read = read_xmc(path)
    assert same(X_read, X)
    assert same(Y_read, Y)
    lines = path.read_text().splitlines()
    lines[2000] = "0 0:oops"
    lines[2900] = "0 0:later"
    path.write_text("\n".join(lines))
    with threads(n_jobs), pytest.raises(ValueError, match=r"line 2001: found 'oops'"):
        read_xmc(path)


@pytest.mark.parametrize("ending", ["", ".gz", ".xz"])
@pytest.mark.parametrize("zero_based", [True, False])
def test_round_trips(tmp_path, ending, zero_based):
    X, Y = random_pair(30, 11, 6)
    X = sp.csr_array(X.toarray() * (np.arange(30) != 3)[:, None])
    Y = sp.csr_array(Y.toarray() * (np.arange(30) != 3)[:, None])  # a row with nothing at all
    write_xmc(tmp_path / f"a.txt{ending}", X, Y)
    write_svmlight(tmp_path / f"a.svm{ending}", X, Y, zero_based=zero_based)
    again = read_svmlight(tmp_path / f"a.svm{ending}", n_features=11, n_labels=6, zero_based=zero_based)
    for X_read, Y_read in (read_xmc(tmp_path / f"a.txt{ending}"), again):
        assert same(X_read, X)
        assert same(Y_read, Y)


def test_float64_round_trip_is_exact(tmp_path):
    X = np.random.RandomState(0).randn(50, 4) * 10.0 ** np.arange(-200, 200, 100)
    write_xmc(tmp_path / "a.txt", X, np.ones((50, 1)))
    np.testing.assert_array_equal(read_xmc(tmp_path / "a.txt", dtype=np.float64)[0].toarray(), X)


@pytest.mark.parametrize(
    ("X", "Y", "message"),
    [
        (np.ones((2, 2)), np.ones((3, 2)), "X has 2 rows and Y has 3"),
        (np.ones((2, 2)), np.array([[1, np.nan], [0, 0]]), "Y contains nan"),
        (np.ones((2, 2)), np.array([[1, 2], [0, 0]]), "Y contains 2"),
        (np.array([[np.inf]]), np.ones((1, 1)), "X contains NaN or an infinite"),
        (np.ones(2), np.ones((2, 1)), "X has shape"),
    ],
)
def test_what_cannot_be_written_leaves_the_old_file(tmp_path, X, Y, message):
    path = tmp_path / "a.txt"
    path.write_text("before")
    with pytest.raises(ValueError, match=message):
        write_xmc(path, X, Y)
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]
    assert path.read_text() == "before"


def test_svmlight_agrees_with_sklearn(tmp_path):
    X, Y = random_pair(200, 30, 8, seed=1)
    path = tmp_path / "a.svm"
    write_svmlight(path, X, Y)
    commented = "# a comment\n\n" + path.read_text().replace("\n", " # note: 1:2, 3\n", 5)
    path.write_text(commented)
    theirs, sets = load_svmlight_file(str(path), multilabel=True, dtype=np.float32)
    ours, labels = read_svmlight(path)
    assert same(ours, sp.csr_array(theirs))
    assert [tuple(labels[[i]].indices) for i in range(200)] == [tuple(int(v) for v in s) for s in sets]


def test_base_of_svmlight_features(text):
    from_one, from_zero = text("0 1:1 3:1\n", "one.svm"), text("0 0:1 2:1\n", "zero.svm")
    assert read_svmlight(from_one)[0].toarray().tolist() == [[1, 0, 1]]
    assert read_svmlight(from_one, zero_based=True)[0].toarray().tolist() == [[0, 1, 0, 1]]
    assert read_svmlight(from_zero)[0].toarray().tolist() == [[1, 0, 1]]
    assert read_svmlight(from_one, n_features=5, n_labels=4)[0].shape == (1, 5)
    assert read_svmlight(from_one, n_features=5, n_labels=4)[1].shape == (1, 4)


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("# c\n0 1:1\n0 0:1\n", {"zero_based": False}, r"line 3: .*0 0:1.* from 1 to any"),
        ("0 1:1\n\n# c\n0 4:1\n", {"n_features": 3}, r"line 4: .* from 1 to 3"),
        ("0 0:1\n0 3:1\n", {"n_features": 3, "zero_based": True}, r"line 2: .* from 0 to 2"),
        ("0 1:1\n5 1:1\n", {"n_labels": 5}, r"line 2: found '5', expected a label from 0 to 4"),
        ("0 1:1\n#\n0 2:1 2:1\n", {}, "line 3: .* at most once"),
        ("0 1:1\n0 1:1 qid:3\n", {}, "line 2: found 'qid:3'"),
        ("0 1:1\n", {"zero_based": "yes"}, "zero_based='yes'"),
    ],
)
def test_svmlight_errors(text, content, options, message):
    with pytest.raises(ValueError, match=message):
        read_svmlight(text(content), **options)


def test_empty_svmlight_file(text):
    X, Y = read_svmlight(text("# nothing\n"))
    assert (X.shape, Y.shape) == ((0, 0), (0, 0))


def slow_reader(content):
    """Read XMC rows the plain way, or return None where a line is not a row."""
    n, d, L = 4, 12, 6
    lines = content.split(b"\n")[1:]
    if lines[-1] == b"":
        lines.pop()
    while len(lines) > n and lines[-1] in (b"", b"\r"):
        lines.pop()
    X, Y = np.zeros((n, d), np.float32), np.zeros((n, L), np.float32)
    if len(lines) != n:
        return None
    number = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
    for i, line in enumerate(lines):
        field, *cells = re.split(rb"[ \t\r]+", line)
        if re.match(rb"\d+:", field):
            field, cells = b"", [field, *cells]
        labels = field.split(b",") if field else []
        pairs = [cell.split(b":") for cell in cells if cell]
        shaped = all(label.isdigit() for label in labels) and all(
            len(pair) == 2 and pair[0].isdigit() and number.fullmatch(pair[1]) for pair in pairs
        )
        columns = [int(label) for label in labels] if shaped else []
        features = {int(f): float(v) for f, v in pairs} if shaped else {}
        fits = all(j < L for j in columns) and all(f < d and abs(v) < 3e38 for f, v in features.items())
        if not (shaped and fits) or len(set(columns)) < len(labels) or len(features) < len(pairs):
            return None
        Y[i, columns] = 1
        X[i, list(features)] = list(features.values())
    return X, Y


def test_mutated_files_are_read_like_the_slow_reader_or_refused(text):
    rng = np.random.RandomState(0)
    base = b"4 12 6\n0,5 0:1.5 11:-2e1\n 3:.25 2:7\n1,2,3 4:1\n4\n"
    accepted = 0
    for _ in range(1500):
        content = bytearray(base)
        for _ in range(rng.randint(1, 4)):
            position, byte = rng.randint(7, len(content)), b"0123456789 ,:.-+eE\n\r\t#x"[rng.randint(23)]
            kind = rng.randint(3)
            content[position : position + (kind != 1)] = b"" if kind == 2 else bytes([byte])
        expected = slow_reader(bytes(content))
        path = text(bytes(content))
        if expected is None:
            with pytest.raises(ValueError, match=r"line \d"):
                read_xmc(path)
        else:
            accepted += 1
            for found, dense in zip(read_xmc(path), expected):
                np.testing.assert_array_equal(found.toarray(), dense)
    assert 100 < accepted < 1400
