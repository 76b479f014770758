"""Data files that nobody should write are read, or refused with one line and exit code 1."""

from __future__ import annotations

import gzip
import time

import numpy as np
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

from labelgap import BinaryRelevance, Labels, audit, load
from labelgap.cli import app
from labelgap.datasets import file_io, make_low_rank, read, read_arff, read_documents
from labelgap.datasets.arff import _split_items, _split_values
from labelgap.metrics import precision_at_k


def run(*words):
    return CliRunner().invoke(app, list(map(str, words)))


def test_deep_json_and_half_surrogate_pairs_are_named_by_their_line(tmp_path):
    path = tmp_path / "posts.jsonl"
    good = '{"text": "a", "tags": ["x"]}\n'
    path.write_text(good + '{"text": "a", "tags": ' + "[" * 100_000 + "]" * 100_000 + "}\n")
    with pytest.raises(ValueError, match="line 2 is not JSON"):
        read_documents(path, ["text"], tags="tags")
    path.write_text(good + '{"text": "a", "tags": ["\\ud800"]}\n')
    with pytest.raises(ValueError, match="line 2 is not JSON"):
        read_documents(path, ["text"], tags="tags")
    path.write_text(good + '{"text": "a", "tags": ["\\ud83d\\ude00"]}\n')
    assert "😀" in read_documents(path, ["text"], tags="tags").label_names


def test_a_compressed_bomb_is_refused_before_it_takes_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(file_io, "MIN_BOMB_BYTES", 1000)
    path = tmp_path / "posts.csv.gz"
    path.write_bytes(gzip.compress(b"text,tags\n" + b"a" * 10_000_000))
    shown = run("fit", path, "--text", "text", "--tags", "tags", "--output", tmp_path / "model")
    assert shown.exit_code == 1
    assert "compressed more than 100 times" in shown.output
    assert len(shown.output.splitlines()) == 1


@pytest.mark.parametrize(
    "error", [MemoryError("Unable to allocate 22.4 GiB"), RecursionError(), OverflowError("big")]
)
def test_what_is_too_large_is_one_line(tmp_path, monkeypatch, error):
    path = tmp_path / "rows.svm"
    path.write_text("1 1:1\n2 1:2\n")

    def fail(*_, **__):
        raise error

    monkeypatch.setattr("labelgap.commands.training.load_data", fail)
    shown = run("fit", path, "--output", tmp_path / "model")
    assert shown.exit_code == 1
    assert "too large for this computer" in shown.output
    assert len(shown.output.splitlines()) == 1


# --- ARFF -----------------------------------------------------------------------------------------------------------

ARFF = "@relation x\n@attribute a numeric\n@attribute b {0,1}\n@data\n"


@pytest.mark.parametrize(
    "row", ["1," + " " * 50_000 + "'", "x" + " a" * 50_000 + "'", "'" + "\\'" * 50_000, "{0 " + " " * 50_000 + "'}"]
)
def test_a_quote_that_does_not_end_is_refused_in_linear_time(tmp_path, row):
    path = tmp_path / "rows.arff"
    path.write_text(ARFF + row + "\n")
    start = time.process_time()
    with pytest.raises(ValueError, match="line 5"):
        read_arff(path, labels=1)
    assert time.process_time() - start < 2  # 400 blanks took 0.3 s, twice as many eight times as long


def test_values_between_quotes_and_commas():
    assert _split_values(" a b , 'c, d' ,e,, \"f 'g\"") == ["a b", "c, d", "e", "", "f 'g"]
    assert _split_items(" 3 'x, y', 4  b c ,5 z") == [["3", "x, y"], ["4", "b c"], ["5", "z"]]


def test_entities_of_xml_do_not_grow(tmp_path):
    (tmp_path / "rows.arff").write_text(ARFF + "1,0\n")
    names = "".join(f"<!ENTITY e{i} '{f'&e{i - 1};' * 10 if i else 'b'}'>" for i in range(12))
    xml = f"<!DOCTYPE x [{names}]><labels><label name='&e11;'/></labels>"
    (tmp_path / "rows.xml").write_text(xml)
    with pytest.raises(ValueError, match=r"rows\.xml"):
        read(tmp_path / "rows.arff")
    (tmp_path / "secret").write_text("b")
    (tmp_path / "rows.xml").write_text(
        f"<!DOCTYPE x [<!ENTITY e SYSTEM 'file://{tmp_path}/secret'>]><labels><label name='b'/>&e;</labels>"
    )
    with pytest.raises(ValueError, match=r"rows\.xml"):
        read(tmp_path / "rows.arff")


# --- sizes ----------------------------------------------------------------------------------------------------------


def test_many_columns_take_linear_time(tmp_path):
    n = 100_000
    path = tmp_path / "wide.csv"
    path.write_text("text," + ",".join(f"c{i}" for i in range(n)) + "\n" + ("a" + ",1" * n + "\n") * 2)
    start = time.process_time()
    documents = read_documents(path, "text", labels=[f"C{i}" for i in range(n)])
    assert documents.label_names[-1] == f"c{n - 1}"
    with pytest.raises(ValueError, match="has no column 'tags'") as refused:
        read_documents(path, "text", tags="tags")
    assert len(str(refused.value)) < 1000
    assert time.process_time() - start < 10  # a minute and a half


def test_wide_indices_mean_the_same_from_fit_to_audit(tmp_path):
    data = make_low_rank(60, 20, 8, rank=3, random_state=0)
    X, Y = sp.csr_array(np.where(np.abs(data.X) > 0.5, data.X, 0)), sp.csr_array(np.asarray(Labels(data.Y).toarray()))
    found = []
    for dtype in (np.int32, np.int64):
        for matrix in (X, Y):
            matrix.indices, matrix.indptr = matrix.indices.astype(dtype), matrix.indptr.astype(dtype)
        path = tmp_path / f"{np.dtype(dtype)}"
        BinaryRelevance(loss="squared").fit(X, Y).save(path)
        top = load(path, mmap=True).predict_topk(X, 3)
        suggestions = audit(X, Y, BinaryRelevance(loss="squared"), n_folds=2, random_state=0).missing
        found.append([top, precision_at_k(Y, load(path).decision_function(X), 3), *suggestions])
    for narrow, wide in zip(*found, strict=True):
        np.testing.assert_array_equal(np.asarray(narrow), np.asarray(wide))
