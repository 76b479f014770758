"""Tables of documents: every format, every way to write labels, and what is wrong with a file."""

from __future__ import annotations

import gzip
import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from labelgap.datasets import read_documents, read_records, write_records
from labelgap.datasets.tag_columns import detect_form, join_tags, split_tags
from labelgap.observations import encode_tags

COLUMNS = ["id", "title", "body", "tags"]
ROWS = [
    ["1", "Chewy, please", 'He said "crisp".\nTwo lines', "baking cookies"],
    ["2", "Ünïcode\ttab", "", "bacon"],
    ["3", "", "no tags here", ""],
]
ENDINGS = [".csv", ".tsv", ".jsonl", ".parquet", ".csv.gz", ".jsonl.xz"]


@pytest.fixture(params=ENDINGS)
def table(request, tmp_path):
    if "parquet" in request.param:
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    path = tmp_path / f"posts{request.param}"
    write_records(path, COLUMNS, ROWS)
    return path


def test_what_is_written_is_read(table):
    assert read_records(table) == [dict(zip(COLUMNS, row)) for row in ROWS]


def test_documents_of_every_format(table):
    found = read_documents(table, ["title", "body"], tags="tags")
    assert found.texts == ['Chewy, please\nHe said "crisp".\nTwo lines', "Ünïcode\ttab\n", "\nno tags here"]
    assert found.label_names == ["bacon", "baking", "cookies"]
    assert found.Y.toarray().tolist() == [[0, 1, 1], [1, 0, 0], [0, 0, 0]]
    assert [row["id"] for row in found.rows] == ["1", "2", "3"]


def test_no_rows_are_a_table_too(tmp_path):
    for ending in (".csv", ".jsonl"):
        write_records(tmp_path / f"a{ending}", ["x"], [])
        assert read_records(tmp_path / f"a{ending}") == []
        with pytest.raises(ValueError, match="contains no rows"):
            read_documents(tmp_path / f"a{ending}", "x")


def test_a_zip_with_one_file(tmp_path):
    with zipfile.ZipFile(tmp_path / "posts.csv.zip", "w") as archive:
        archive.writestr("inside.csv", "text\nhello\n")
    assert read_records(tmp_path / "posts.csv.zip") == [{"text": "hello"}]
    with zipfile.ZipFile(tmp_path / "posts.csv.zip", "a") as archive:
        archive.writestr("more.csv", "text\n")
    with pytest.raises(ValueError, match="contains 2 files; unpack it"):
        read_records(tmp_path / "posts.csv.zip")
    with pytest.raises(ValueError, match=r"cannot write \.zip files"):
        write_records(tmp_path / "new.csv.zip", ["a"], [])


def test_tags_as_lists(tmp_path):
    (tmp_path / "a.jsonl").write_text(
        '{"t": "x", "tags": ["red wine", "b"]}\n\n{"t": "y"}\n{"t": null, "tags": []}\n'
    )
    found = read_documents(tmp_path / "a.jsonl", "t", tags="tags")
    assert found.texts == ["x", "y", ""]
    assert (found.label_names, found.Y.toarray().tolist()) == (["b", "red wine"], [[1, 1], [0, 0], [0, 0]])


@pytest.mark.parametrize(
    ("values", "separator", "expected"),
    [
        (["a b", "c"], None, [["a", "b"], ["c"]]),
        (["a b, c", "d"], None, [["a b", "c"], ["d"]]),
        (["a b; c,d"], None, [["a b; c", "d"]]),
        (["a|b|a"], None, [["a", "b"]]),
        (["a, b"], "|", [["a, b"]]),
        (["  a  b "], None, [["a", "b"]]),
        ([None, "", "a"], None, [[], [], ["a"]]),
    ],
)
def test_separators(values, separator, expected):
    assert split_tags(values, separator) == expected


def test_rare_tags_and_given_names(table):
    assert read_documents(table, "title", tags="tags", least=2).label_names == []
    found = read_documents(table, "title", tags="tags", label_names=["cookies", "never", "bacon"])
    assert found.label_names == ["cookies", "never", "bacon"]
    assert found.Y.toarray().tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 0]]


def test_the_matrix_of_tags_is_canonical():
    Y = encode_tags([["b", "a"], []], ["a", "b"]).Y
    assert Y.has_canonical_format
    assert Y.toarray().tolist() == [[1, 1], [0, 0]]


def test_a_column_for_each_label(tmp_path):
    (tmp_path / "a.csv").write_text("t,spam,old\nx,1,\ny,no,TRUE\nz,?,0\n")
    Y = read_documents(tmp_path / "a.csv", "t", labels=["spam", "old"]).Y
    np.testing.assert_array_equal(Y, [[1, np.nan], [0, 1], [np.nan, 0]])
    (tmp_path / "b.jsonl").write_text('{"t": "x", "spam": true}\n{"t": "y", "spam": 0}\n')
    complete = read_documents(tmp_path / "b.jsonl", "t", labels=["spam"]).Y
    assert sp.issparse(complete)
    assert complete.toarray().ravel().tolist() == [1, 0]


def test_texts_alone(table):
    found = read_documents(table, "title")
    assert found.Y is None
    assert found.label_names is None


# --- what is wrong -------------------------------------------------------------------------------------------------

BAD = [
    ("a.csv", "", "is empty; its first line must name the columns"),
    ("a.csv", "t,u\n1\n", "line 2: found 1 fields, expected 2"),
    ("a.csv", "t\n1,2\n", "line 2: found 2 fields, expected 1"),
    ("a.csv", 't\n"x\n', "check the quotes"),
    ("a.csv", "t,t\n1,2\n", "names the column 't' twice"),
    ("a.jsonl", '{"t": 1}\n{"t": \n', "line 2 is not JSON"),
    ("a.jsonl", "[1]\n", "line 1 is list, not an object"),
    ("a.csv", "u\n1\n", "has no column 't'; it has 'u'"),
    ("a.txt", "t\n", "is not a table by its ending; use .csv"),
]


@pytest.mark.parametrize(("name", "content", "message"), BAD)
def test_what_is_wrong_is_said(name, content, message, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        read_documents(tmp_path / name, "t")


def test_a_value_that_is_no_label(tmp_path):
    (tmp_path / "a.csv").write_text("t,spam\nx,1\ny,maybe\n")
    with pytest.raises(
        ValueError, match=r"row 1 \(counted from 0\): cannot read 'maybe' in the label column 'spam'; write 1, 0"
    ):
        read_documents(tmp_path / "a.csv", "t", labels=["spam"])


def test_two_ways_at_once(table):
    with pytest.raises(ValueError, match="use only one"):
        read_documents(table, "title", tags="tags", labels=["id"])


def test_a_broken_parquet(tmp_path):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    (tmp_path / "a.parquet").write_bytes(b"PAR1 nothing")
    with pytest.raises(ValueError, match="cannot be read as Parquet"):
        read_records(tmp_path / "a.parquet")


def test_a_failed_write_leaves_nothing(tmp_path):
    def rows():
        yield ["1"]
        raise RuntimeError("no")

    for name in ("a.csv", "a.jsonl"):
        with pytest.raises(RuntimeError, match="no"):
            write_records(tmp_path / name, ["x"], rows())
    assert list(tmp_path.iterdir()) == []


def mutated(content, rng):
    at = int(rng.integers(len(content)))
    return [content[:at], content[:at] + rng.bytes(5) + content[at:], content[:at] + content[at + 7 :]][
        int(rng.integers(3))
    ]


@pytest.mark.filterwarnings("ignore:.*is not UTF-8:UserWarning")
@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".csv.gz"])
def test_mutated_files_are_read_or_fail_with_our_error(ending, tmp_path):
    path, rng = tmp_path / f"a{ending}", np.random.default_rng(0)
    write_records(path, COLUMNS, ROWS * 5)
    whole, messages = path.read_bytes(), []
    for _ in range(350):
        path.write_bytes(mutated(whole, rng))
        try:
            found = read_documents(path, ["title", "body"], tags="tags")
        except ValueError as error:
            messages.append(str(error))
        else:
            assert len(found.texts) == len(found.rows) == found.Y.shape[0]
    assert len(messages) > 30
    assert all(str(path) in message for message in messages)


def test_the_stack_exchange_set():
    folder = os.environ.get("LABELGAP_DATA")
    if not folder:
        pytest.skip("LABELGAP_DATA is not set: no real documents")
    path = Path(folder) / "stackexchange-text" / "cooking.csv.zip"
    found = read_documents(path, ["title", "content"], tags="tags")
    assert (found.Y.shape, len(found.texts)) == ((15404, 736), 15404)
    assert found.Y.sum() / 15404 == pytest.approx(2.307, abs=5e-4)
    assert len(read_documents(path, "title", tags="tags", least=5).label_names) == 622


def test_a_byte_order_mark_and_latin_letters(tmp_path):
    (tmp_path / "bom.csv").write_bytes("\ufefftext\nhé\n".encode())
    (tmp_path / "latin.csv").write_bytes("text\nhé\n".encode("latin-1"))
    with pytest.warns(UserWarning, match=r"latin\.csv is not UTF-8 \(byte 0xE9 in line 2\).*Windows-1252"):
        latin = read_records(tmp_path / "latin.csv")
    assert read_records(tmp_path / "bom.csv") == latin == [{"text": "hé"}]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig"])
def test_encodings_are_detected(tmp_path, encoding):
    (tmp_path / "wide.csv").write_bytes("id;text\n1;hello, Zoë\n".encode(encoding))
    assert read_records(tmp_path / "wide.csv") == [{"id": "1", "text": "hello, Zoë"}]


def test_an_encoding_can_be_named(tmp_path):
    (tmp_path / "a.csv").write_bytes("text\nžluť\n".encode("cp1250"))
    assert read_records(tmp_path / "a.csv", encoding="cp1250") == [{"text": "žluť"}]
    with pytest.raises(ValueError, match=r"is not utf-8 \(byte 0x9E in line 2\); name its encoding"):
        read_records(tmp_path / "a.csv", encoding="utf-8")


@pytest.mark.parametrize("ending", ["csv", "tsv"])
@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_delimiters_are_detected(tmp_path, ending, mark):
    rows = [["1", 'a "b", c; d|e\tf\n', "x"], ["2", "plain", ""], ["3", "one, two", "y z"]]
    write_records(tmp_path / f"a.{ending}", ["id", "text, or so", "tags"], rows, delimiter=mark)
    found = read_records(tmp_path / f"a.{ending}")
    assert [list(row.values()) for row in found] == rows
    assert read_records(tmp_path / f"a.{ending}", delimiter=mark) == found


def test_one_column_has_no_delimiter(tmp_path):
    (tmp_path / "a.csv").write_text("text\n" + 'a; b | c\n"x, y"\n' * 3)
    assert read_records(tmp_path / "a.csv")[:2] == [{"text": "a; b | c"}, {"text": "x, y"}]
    (tmp_path / "b.csv").write_text("text;tags\na;b\nx;y;z\n")
    with pytest.raises(ValueError, match=r"line 3: found 3 fields, expected 2 separated by ';'.*--delimiter"):
        read_records(tmp_path / "b.csv")


def test_columns_in_any_case(tmp_path):
    (tmp_path / "a.csv").write_text("Title, TAGS \nx,a b\n")
    found = read_documents(tmp_path / "a.csv", "title", tags="tags")
    assert (found.texts, found.label_names) == (["x"], ["a", "b"])
    (tmp_path / "b.csv").write_text("Title,TITLE\nx,y\n")
    with pytest.raises(ValueError, match="did you mean 'Title' or 'TITLE'"):
        read_documents(tmp_path / "b.csv", "title")


LISTS = [["a b", "c"], ["c"], [], ["d's", 'e"f']]


def test_every_form_of_tags_is_detected_and_written_back():
    for form, lists in (
        ("json", LISTS),
        ("python", LISTS),
        ("<>", [["a-b", "c"], ["c"]]),
        (";", [["a b", "c"], ["d"]]),
    ):
        cells = [join_tags(tags, form) for tags in lists]
        assert detect_form([*cells, "", None]) == form
        assert split_tags([*cells, "", None]) == [*lists, [], []]
        assert split_tags(cells, form) == lists


@pytest.mark.parametrize(
    ("cell", "tags"),
    [
        ("('a', 'b')", ["a", "b"]),
        ("{'a'}", ["a"]),
        ("set()", []),
        ("['a'\n 'b']", ["a", "b"]),
        ("[3, 12]", ["3", "12"]),
        ("[\"it's\", 'x']", ["it's", "x"]),
        ("<a> <b>", ["a", "b"]),
        (r"['a\'b']", ["a'b"]),
    ],
)
def test_notations_of_tags(cell, tags):
    assert split_tags([cell]) == [tags]


def test_a_row_in_another_form_is_an_error(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"t": "x", "tags": "[\'a\', \'b\']"}\n' * 20 + '{"t": "x", "tags": "a, b"}\n')
    with pytest.raises(
        ValueError, match=r"a\.jsonl, column 'tags', row 20 \(counted from 0\): the tags 'a, b' are not written like"
    ):
        read_documents(tmp_path / "a.jsonl", "t", tags="tags")
    found = read_documents(tmp_path / "a.jsonl", "t", tags="tags", separator=",")
    assert len(found.texts) == 21


def test_the_separator_of_most_cells():
    assert detect_form(["a; b", "c; d", "x, y; z"]) == ";"
    assert detect_form(["red wine", "a,b"]) == ","


def test_json_lists_in_a_table(tmp_path):
    cells = ['["baking, sweet", "日本"]', "[]", "", '["日本"]']
    write_records(tmp_path / "a.csv", ["text", "tags"], [["x", cell] for cell in cells])
    for separator in (None, ","):
        found = read_documents(tmp_path / "a.csv", "text", tags="tags", separator=separator)
        assert found.label_names == ["baking, sweet", "日本"]
        assert found.Y.toarray().tolist() == [[1, 1], [0, 0], [0, 0], [0, 1]]


@pytest.mark.parametrize("cell", ["[a]", "[1.5]", "a", '["a"', '{"a": 1}', '"a"'])
def test_one_cell_that_is_no_json_list_makes_all_of_them_text(cell):
    assert split_tags(['["b","c"]', cell], ",") == [['["b"', '"c"]'], [cell]]


def test_equal_tables_are_equal_files(tmp_path):
    for name in ("a.csv.gz", "b.csv.gz"):
        write_records(tmp_path / name, COLUMNS, ROWS)
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.csv.gz").read_bytes()).startswith(b"id,title")


def test_json_lines_keep_letters(tmp_path):
    write_records(tmp_path / "a.jsonl", ["x"], [["ü"]])
    assert (tmp_path / "a.jsonl").read_text(encoding="utf-8") == json.dumps({"x": "ü"}, ensure_ascii=False) + "\n"


def test_brackets_without_end_are_a_tag_like_others():
    deep = "[" * 100_000
    assert split_tags([deep, '["a"]']) == [[deep], ['["a"]']]
