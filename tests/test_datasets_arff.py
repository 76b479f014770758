"""Mulan ARFF: hand-written files with every kind of attribute, errors, round trips."""

import numpy as np
import pytest
import scipy.sparse as sp

from labelgap.datasets import read_arff, read_label_names, write_arff
from labelgap.datasets.file_io import write_compressed

HEADER = "@relation r\n@attribute a numeric\n@attribute b {0,1}\n@attribute s {0,1}\n@attribute t {0,1}\n@data\n"


@pytest.fixture
def arff(tmp_path):
    def write(content, name="data.arff"):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def test_dense_file_with_awkward_declarations(arff):
    path = arff(
        "% comment\n@RELATION 'my data'\n\n@Attribute 'it\\'s a \"name\"' REAL\n@attribute \"two words\" integer\n"
        "@attribute plain\tnumeric\n@attribute colour {red, 'dark, blue', \"it's\"}\n@attribute flag {TRUE,FALSE}\n"
        "@attribute level{3,1}\n@attribute tag {1,0}\n@DATA\n% comment\n"
        "1.5, 2, -3e2, 'dark, blue', TRUE, 3, 1\r\n?,0,0,\"it's\",FALSE,1,0\n"
    )
    X, Y, features, labels = read_arff(path, 1)
    assert features == ['it\'s a "name"', "two words", "plain", "colour", "flag", "level"]
    assert labels == ["tag"]
    np.testing.assert_array_equal(X, [[1.5, 2, -300, 1, 1, 3], [np.nan, 0, 0, 2, 0, 1]])
    assert isinstance(X, np.ndarray)
    assert X.dtype == Y.dtype == np.float32
    assert Y.toarray().tolist() == [[1], [0]]


def test_sparse_file(arff):
    X, Y, _, _ = read_arff(arff(HEADER + "{0 2.5,3 1}\n{}\n{2 1, 1 1}\n{1 0}\n"), ["s", "t"])
    assert sp.issparse(X)
    assert X.toarray().tolist() == [[2.5, 0], [0, 0], [0, 1], [0, 0]]
    assert Y.toarray().tolist() == [[0, 1], [0, 0], [1, 0], [0, 0]]
    assert X.nnz == 2
    assert X.has_canonical_format


def test_sparse_row_with_quoted_values(arff):
    header = "@relation r\n@attribute c {none,'a, b'}\n@attribute t {0,1}\n@data\n"
    X, Y, _, _ = read_arff(arff(header + "{0 'a, b',1 1}\n{1 1}\n"), 1)
    assert X.toarray().tolist() == [[1], [0]]
    assert Y.toarray().tolist() == [[1], [1]]


def test_labels_by_xml_list_and_number_agree_in_the_order_of_declaration(arff):
    path = arff(HEADER + "1,0,1,0\n")
    xml = arff(
        '<labels xmlns="http://mulan.sourceforge.net/labels"><label name="t"/><label name="s"/></labels>', "l.xml"
    )
    for labels in (xml, str(xml), ["t", "s"], 2):
        _, Y, features, names = read_arff(path, labels)
        assert (features, names) == (["a", "b"], ["s", "t"])
        assert Y.toarray().tolist() == [[1, 0]]
    assert read_label_names(xml) == ["t", "s"]


def test_labels_need_not_be_last(arff):
    X, Y, features, labels = read_arff(arff(HEADER + "7,1,0,1\n"), ["b"])
    assert (features, labels) == (["a", "s", "t"], ["b"])
    assert X.tolist() == [[7, 0, 1]]
    assert Y.toarray().tolist() == [[1]]


@pytest.mark.parametrize(
    ("declared", "listed"),
    [("'it\\'s'", "it's"), ("'it\\'s'", "it\\'s"), ("m\\'usica", "m\\'usica")],
    ids=["unescaped", "escapes kept in the XML", "escape without quotes"],
)
def test_label_names_with_escapes(arff, declared, listed):
    path = arff(f"@relation r\n@attribute a numeric\n@attribute {declared} {{0,1}}\n@data\n1,1\n")
    arff(f'<labels><label name="{listed}"/></labels>', "data.xml")
    assert read_arff(path).Y.toarray().tolist() == [[1]]


def test_unknown_labels_are_nan(arff):
    dense = read_arff(arff(HEADER + "1,0,?,0\n2,1,1,?\n"), 2)
    sparse = read_arff(arff(HEADER + "{0 1,2 ?}\n{0 2,1 1,2 1,3 ?}\n"), 2)
    for table in (dense, sparse):
        np.testing.assert_array_equal(table.Y, [[np.nan, 0], [1, np.nan]])
        assert table.Y.dtype == np.float32
    np.testing.assert_array_equal(sparse.X.toarray(), dense.X)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("@relation r\n@attribute a numeric\n", "line 3: found 'the end of the file', expected @data"),
        ("@relation r\nnonsense\n", "line 2: found 'nonsense', expected @relation"),
        ("@relation r\n@attribute 'a numeric\n", "line 2: .* expected '@attribute name type'"),
        ("@relation r\n@attribute lonely\n", "line 2: .* expected '@attribute name type'"),
        ("@relation r\n@attribute a string\n", "line 2: found 'string', expected numeric or"),
        ("@relation r\n@attribute a {x,'y}\n", "line 2: .* closed quotes"),
        (HEADER + "1,0,1\n", "line 7: found '3 values', expected 4"),
        (HEADER + "1,0,0,1\n\n1,0,0,1,1\n", "line 9: found '5 values', expected 4"),
        (HEADER + "x,0,0,1\n", "line 7: found 'x', expected a finite number for attribute 'a'"),
        (HEADER + "nan,0,0,1\n", "line 7: found 'nan', expected a finite number"),
        (HEADER + "1e39,0,0,1\n", "line 7: found '1e39', expected a finite number"),
        (HEADER + "1,2,0,1\n", r"line 7: found '2', expected one of \['0', '1'\] for attribute 'b'"),
        (HEADER + "1,'0,0,1\n", "line 7: .* closed quotes"),
        (HEADER + "1,0,0,1\n{0 1}\n", "line 8: found '{0 1}', expected dense rows only"),
        (HEADER + "{0 1}\n1,0,0,1\n", "line 8: .* expected sparse rows"),
        (HEADER + "{0 1,4 1}\n", "line 7: found '4', expected an index from 0 to 3"),
        (HEADER + "{-1 1}\n", "line 7: found '-1 1', expected 'index value'"),
        (HEADER + "{0}\n", "line 7: found '0', expected 'index value'"),
        (HEADER + "{0 1,}\n", "line 7: found '', expected 'index value'"),
        (HEADER + "{0 1,0 2}\n", "line 7: .* at most once"),
        (HEADER + "{0 1}\n{0 1,2 1", "line 8: .* cut off"),
        (HEADER + "{0 1}\n{0 ?}\n", r"line 8: found '\?', expected a number: features of sparse rows"),
        (HEADER.replace("s {0,1}", "s {1,0}") + "{0 1}\n", "line 7: .*'s', whose first value is '1'"),
        (HEADER.replace("s {0,1}", "s {a,b,c}") + "1,0,a,1\n1,0,c,1\n", "line 8: found '2', expected 0, 1 or .* 's'"),
    ],
)
def test_malformed_files(arff, content, message):
    with pytest.raises(ValueError, match=message):
        read_arff(arff(content), 2)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["u"], "0 attributes are named 'u'"),
        (0, "labels=0"),
        (4, "labels=4, but .* has 4 attributes"),
        (None, "no data.xml in the same folder"),
    ],
)
def test_labels_that_do_not_fit(arff, labels, message):
    with pytest.raises(ValueError, match=message):
        read_arff(arff(HEADER), labels)


def test_label_that_names_two_attributes(arff):
    with pytest.raises(ValueError, match="2 attributes are named 's'"):
        read_arff(arff(HEADER.replace("@attribute a ", "@attribute s ")), ["s"])


@pytest.mark.parametrize("content", ["not xml", "<labels/>", "<labels><label/></labels>"])
def test_malformed_xml(arff, content):
    with pytest.raises(ValueError, match=r"l\.xml(: found| is not XML)"):
        read_label_names(arff(content, "l.xml"))


def test_latin_1_is_read(arff):
    path = arff("@relation r\n@attribute tama\xf1o numeric\n@attribute t {0,1}\n@data\n1,1\n".encode("latin-1"))
    with pytest.warns(UserWarning, match="byte 0xF1 in line 2"):
        assert read_arff(path, 1).feature_names == ["tama\xf1o"]


@pytest.mark.parametrize("name", ["set-train.arff.gz", "set_test.arff", "set-Train.arff.xz"])
@pytest.mark.parametrize("xml", ["set.xml", "set.xml.gz"])
def test_both_parts_of_a_set_share_the_xml(tmp_path, name, xml):
    write_arff(tmp_path / name, np.eye(2), np.eye(2), label_names=["t", "u"])
    own = next(tmp_path.glob("*.xml"))
    with pytest.raises(ValueError, match=rf"no {own.name} or set\.xml in the same folder.* Put the XML file"):
        read_arff(own.rename(tmp_path / "other").with_name(name))
    with write_compressed(tmp_path / xml) as stream:
        stream.write((tmp_path / "other").read_bytes())
    assert read_arff(tmp_path / name).label_names == ["t", "u"]


@pytest.mark.parametrize("ending", ["", ".gz", ".xz"])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("gaps", [False, True])
def test_round_trip(tmp_path, ending, sparse, gaps):
    rng = np.random.RandomState(0)
    X = np.where(rng.rand(20, 4) < 0.5, rng.randn(20, 4), 0).astype(np.float32)
    Y = (rng.rand(20, 3) < 0.5).astype(np.float32)
    if gaps:
        Y[rng.rand(20, 3) < 0.2] = np.nan
    features, labels = ["plain", "two words", "it's", 'say "\\" & <go>'], ["a,b", "\xe4", "t'\""]
    path = tmp_path / f"set.arff{ending}"
    write_arff(path, sp.csr_array(X) if sparse else X, Y if gaps else sp.csr_array(Y), features, labels, "a set")
    assert {p.name for p in tmp_path.iterdir()} == {f"set.arff{ending}", "set.xml"}
    table = read_arff(path)
    assert sp.issparse(table.X) == sparse
    assert isinstance(table.Y, np.ndarray) == gaps
    np.testing.assert_array_equal(table.X.toarray() if sparse else table.X, X)
    np.testing.assert_array_equal(table.Y if gaps else table.Y.toarray(), Y)
    assert (table.feature_names, table.label_names) == (features, labels)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"feature_names": ["a"]}, "feature_names has 1 names, but there are 2"),
        ({"label_names": ["x0", "y"]}, "'x0' is the name of two attributes"),
        ({"label_names": ["y", "y"]}, "'y' is the name of two attributes"),
        ({"label_names": ["y\n", "z"]}, "line break"),
        ({"Y": np.array([[2, 0]])}, "Y contains 2"),
        ({"X": np.array([[np.inf, 0]])}, "X contains an infinite"),
        ({"X": sp.csr_array([[np.nan, 0]])}, "X contains an infinite"),
    ],
)
def test_what_cannot_be_written_leaves_nothing(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        write_arff(tmp_path / "a.arff", **{"X": np.eye(1, 2), "Y": np.eye(1, 2), **arguments})
    assert not list(tmp_path.iterdir())
