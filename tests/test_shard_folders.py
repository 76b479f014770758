"""Folders of row shards: the same results as one file, without the features in memory."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

from labelgap import LEML, load
from labelgap.cli import app
from labelgap.datasets import make_sparse_multilabel, read, read_records, write, write_records
from labelgap.estimators.tagger import add_counts, count_documents, count_words
from labelgap.kernels import get_backend
from labelgap.kernels.mapped import MappedMatrix
from labelgap.runtime import limit_memory


@pytest.fixture
def table():
    return make_sparse_multilabel(60, 30, 8, 6, 2, random_state=0)


@pytest.fixture
def folder(table, tmp_path):
    write(tmp_path / "data", *table, "shards", n_shards=4)
    return tmp_path / "data"


def run(*words):
    return CliRunner().invoke(app, list(map(str, words)))


def is_mapped(array):
    while isinstance(array, np.ndarray):
        array = array.base
    return array is not None


def test_a_folder_is_mapped_and_has_the_rows_of_the_table(table, folder):
    X, Y, *_ = read(folder)
    assert is_mapped(X.data)
    assert is_mapped(X[10:20].indices)
    assert (table[0].astype(np.float32) != X).nnz == 0
    assert (table[1] != Y).nnz == 0
    assert json.loads((folder / "shards.json").read_text())["rows"] == [0, 15, 30, 45, 60]


def test_a_pickle_names_the_files(folder):
    X = read(folder).X
    part = X[10:20]
    copy = pickle.loads(pickle.dumps(part))
    assert is_mapped(copy.data)
    assert (copy != part).nnz == 0
    assert len(pickle.dumps(X)) < 1000


@pytest.mark.parametrize("form", ["numbers", "mask"])
def test_selected_rows_are_mapped_within_a_memory_limit(form, table, folder):
    X, rows = read(folder).X, np.arange(59, -1, -3)
    key = rows if form == "numbers" else np.isin(np.arange(60), rows)
    assert not is_mapped(X[key].data)
    with limit_memory(1000):
        part = X[key]
        assert is_mapped(part.data)
        assert is_mapped(part.indices)
        assert X[rows[:0]].shape == (0, 30)
    np.testing.assert_array_equal(part.toarray(), X.toarray()[key])


def test_the_transpose_is_mapped_and_exact(folder):
    X = read(folder).X
    transposed = get_backend().prepare(X, X.dtype).T
    assert is_mapped(transposed.data)
    np.testing.assert_array_equal(transposed.matrix().toarray(), X.toarray().T)
    assert transposed.matrix().has_sorted_indices


def test_a_fit_equals_that_of_the_matrix_in_memory(table, folder):
    X, Y, *_ = read(folder)
    ours, plain = (LEML(3, random_state=0).fit(*data) for data in ((X, Y), (sp.csr_array(X), table[1])))
    assert isinstance(X, MappedMatrix)
    np.testing.assert_allclose(ours.objective_, plain.objective_, rtol=1e-6)
    np.testing.assert_array_equal(ours.predict_topk(X, 3)[0], plain.predict_topk(table[0], 3)[0])


@pytest.mark.parametrize("ending", ["txt", "svm", "npz"])
def test_a_folder_of_files_is_a_dataset(ending, table, tmp_path):
    X, Y = table
    (tmp_path / "parts").mkdir()
    for number, rows in enumerate((slice(0, 40), slice(40, 60))):
        write(tmp_path / "parts" / f"{number}.{ending}", X[rows], Y[rows])
    joined = read(tmp_path / "parts")
    assert (X.astype(np.float32) != joined.X).nnz == 0
    assert (joined.Y != Y).nnz == 0
    assert sorted(path.name for path in (tmp_path / "parts").iterdir()) == [f"0.{ending}", f"1.{ending}"]


def test_the_commands_take_a_folder(table, tmp_path):
    write(tmp_path / "data.npz", *table)
    assert run("convert", tmp_path / "data.npz", tmp_path / "shards", "--shards", 3).exit_code == 0
    words = ("--method", "LEML", "--n-components", 3, "--seed", 0, "--no-calibrate", "--json")
    shown = {}
    for name in ("data.npz", "shards"):
        model = tmp_path / f"{name}.model"
        fitted = run("fit", tmp_path / name, "--output", model, *words)
        assert fitted.exit_code == 0, fitted.output
        commands = (("evaluate",), ("predict", "--top", 2), ("audit", "--folds", 2, "--top", 3))
        results = [run(command, tmp_path / name, "--model", model, "--json", *rest) for command, *rest in commands]
        assert [result.exit_code for result in results] == [0, 0, 0], [result.output for result in results]
        shown[name] = [result.stdout for result in results]
    assert shown["data.npz"][:2] == shown["shards"][:2]


def test_a_folder_of_tables_is_a_table(tmp_path):
    (tmp_path / "posts").mkdir()
    for number in range(2):
        lines = ["text,tags", *["cake oven,baking", "steak grill,meat"] * 6]
        (tmp_path / "posts" / f"{number}.csv").write_text("\n".join(lines))
    fitted = run("fit", tmp_path / "posts", "--output", tmp_path / "model", "--json")
    assert fitted.exit_code == 0, fitted.output
    assert json.loads(fitted.stdout)["rows"] == 24


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_a_table_is_split_into_a_folder_of_tables(ending, tmp_path):
    rows = [(i, f"cake {i}, oven", "baking" if i % 3 else "") for i in range(7)]
    write_records(tmp_path / f"posts.{ending}", ["id", "text", "tags"], rows)
    shown = run("convert", tmp_path / f"posts.{ending}", tmp_path / "posts", "--shards", 3, "--json")
    assert json.loads(shown.stdout) == {"rows": 7, "columns": 3, "shards": 3}
    assert len(list((tmp_path / "posts").iterdir())) == 3
    assert read_records(tmp_path / "posts") == read_records(tmp_path / f"posts.{ending}")


@pytest.mark.parametrize("method", [(), ("--method", "LEML", "--n-components", 2)])
def test_texts_that_do_not_fit_into_memory_are_read_by_file(method, tmp_path, monkeypatch):
    """The model is that of one table, and nobody holds all texts."""
    (tmp_path / "posts").mkdir()
    lines = ["cake oven flour,baking", "steak grill,meat", "bread oven,baking", "bacon pan,meat;pork"] * 10
    for number in range(4):
        part = ["text,tags", *lines[10 * number : 10 * number + 10], *(["rare,odd"] if number == 2 else [])]
        (tmp_path / "posts" / f"{number}.csv").write_text("\n".join(part))
    words = ("--seed", 0, "--json", *method)
    assert run("fit", tmp_path / "posts", "--output", tmp_path / "plain", *words).exit_code == 0
    monkeypatch.setattr("labelgap.inputs.TEXT_MEMORY", 1 << 20)
    monkeypatch.setattr(
        "labelgap.inputs.read_rows", lambda path, **_: read_records(path) if path.is_file() else 1 / 0
    )
    fitted = run("fit", tmp_path / "posts", "--output", tmp_path / "model", "--memory", "16M", *words)
    assert fitted.exit_code == 0, fitted.output
    ours, plain = load(tmp_path / "model"), load(tmp_path / "plain")
    assert ours.vocabulary_.tolist() == plain.vocabulary_.tolist()
    np.testing.assert_allclose(ours.idf_, plain.idf_, rtol=1e-12)
    texts = ["bread and cake", "a grill"]
    np.testing.assert_allclose(ours.decision_function(texts), plain.decision_function(texts), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "options", [{}, {"max_features": 3}, {"words": "hashing", "buckets": 16}, {"ngrams": (1, 2)}]
)
def test_counts_of_blocks_add_up_to_those_of_all_texts(options):
    texts = ["salt pepper salt", "salt and oil", "...", "oil, oil and pepper", "basil"] * 3
    settings = {"kind": options.get("words", "tfidf"), "ngrams": options.get("ngrams", (1, 1)), "buckets": 16}
    parts = [count_documents(part, **settings) for part in (texts[:2], texts[2:3], texts[3:])]
    whole = count_words(texts, **settings, max_features=options.get("max_features"), min_count=2)[0]
    ours = add_counts(parts, settings["ngrams"], options.get("max_features"), 2)
    np.testing.assert_array_equal(ours.idf, whole.idf)
    assert ours.vocabulary is None or ours.vocabulary.tolist() == whole.vocabulary.tolist()


def break_width(folder, X, Y):
    write(folder / "0.npz", X, Y)
    write(folder / "1.npz", X[:, :20], Y)


def break_rows(folder, X, Y):
    write(folder / "0.npz", X, Y)
    write(folder / "1.npz", X[:0], Y[:0])


def break_table(folder, X, Y):
    (folder / "0.csv").write_text("text,tags\na,b\n")
    (folder / "1.csv").write_text("body,tags\na,b\n")


def remove_file(folder, X, Y):
    folder.rmdir()
    write(folder, X, Y, "shards")
    (folder / "X.indices.npy").unlink()


def leave_empty(folder, X, Y):
    pass


WRONG = {
    break_width: "1.npz has 20 features and 0.npz has 30",
    break_rows: "1.npz has no rows",
    break_table: "has the columns",
    remove_file: "has no file X.indices.npy",
    leave_empty: "is an empty folder",
}


@pytest.mark.parametrize("spoil", WRONG, ids=lambda spoil: spoil.__name__)
def test_a_wrong_folder_is_one_clear_error(spoil, table, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    spoil(folder, *table)
    before = sorted(tmp_path.rglob("*"))
    result = run("fit", folder, "--output", tmp_path / "model")
    assert result.exit_code == 1
    assert WRONG[spoil] in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_a_conversion_that_fails_leaves_nothing(table, tmp_path):
    parts = tmp_path / "parts"
    parts.mkdir()
    break_width(parts, *table)
    assert run("convert", parts, tmp_path / "shards", "--shards", 2).exit_code == 1
    assert [path.name for path in tmp_path.iterdir()] == ["parts"]
    write(tmp_path / "exists", *table, "shards")
    assert "exists" in run("convert", parts / "0.npz", tmp_path / "exists", "--shards", 2).stderr
