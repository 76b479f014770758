"""npz files, and reading and writing by ending."""

import io
import pickle

import numpy as np
import pytest
import scipy.sparse as sp

import labelgap.datasets
from labelgap.datasets import read, read_npz, write, write_npz
from labelgap.datasets.file_io import write_compressed

X = np.array([[0.5, 0, 2], [0, -1, 0]], np.float32)
Y = np.array([[1, 0], [1, 1]], np.float32)


@pytest.mark.parametrize("sparse", [False, True])
def test_npz_round_trip(tmp_path, sparse):
    path = tmp_path / "a.npz"
    write_npz(path, sp.csr_array(X) if sparse else X, sp.csr_array(Y), ["a", "b", "\xe4"], ["t", "u"])
    table = read_npz(path)
    assert sp.issparse(table.X) == sparse
    np.testing.assert_array_equal(table.X.toarray() if sparse else table.X, X)
    np.testing.assert_array_equal(table.Y.toarray(), Y)
    assert table.X.dtype == np.float32
    assert (table.feature_names, table.label_names) == (["a", "b", "\xe4"], ["t", "u"])


def test_npz_keeps_gaps_and_needs_no_names(tmp_path):
    gaps = np.array([[1, np.nan], [0, 1]], np.float32)
    write_npz(tmp_path / "a.npz", X, gaps)
    table = read_npz(tmp_path / "a.npz")
    np.testing.assert_array_equal(table.Y, gaps)
    assert table.feature_names is None
    assert table.label_names is None


def test_npz_refuses_pickles_damage_and_foreign_files(tmp_path):
    path = tmp_path / "a.npz"
    write_npz(path, X, Y)
    content = path.read_bytes()
    buffer = io.BytesIO()
    np.savez(buffer, X=X, Z=Y)
    foreign = buffer.getvalue()
    objects = io.BytesIO()
    np.savez(objects, X=np.array([{}], object), Y=Y)
    for damaged in (content[: len(content) // 2], b"", b"text", pickle.dumps(1), foreign, objects.getvalue()):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"a\.npz(: found| is not a readable)"):
            read_npz(path)


def test_npz_refuses_indices_outside_the_matrix(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(
        path, X_data=np.ones(1), X_indices=np.array([7]), X_indptr=np.array([0, 1]), X_shape=np.array([1, 3]), Y=[[1]]
    )
    with pytest.raises(ValueError, match=r"a\.npz"):
        read_npz(path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((X, Y[:1]), "X has 2 rows and Y has 1"),
        ((X, Y, ["a"]), "feature_names has 1"),
        ((X, Y, None, ["a"]), "label_names has 1"),
        ((X.astype(object), Y), "Python objects"),
    ],
)
def test_npz_what_cannot_be_written(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        write_npz(tmp_path / "a.npz", *arguments)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "name", ["a.txt", "A.TXT.XZ", "a.xmc.gz", "a.svm", "a.svm.txt.gz", "a.libsvm", "a.arff.gz", "a.npz"]
)
def test_formats_by_ending(tmp_path, name):
    write(tmp_path / name, sp.csr_array(X), sp.csr_array(Y))
    table = read(str(tmp_path / name))
    np.testing.assert_array_equal(table.X.toarray(), X)
    np.testing.assert_array_equal(table.Y.toarray(), Y)


def test_format_by_name_and_options(tmp_path):
    write(tmp_path / "data", X, Y, format="svmlight", zero_based=True)
    assert (tmp_path / "data").read_text().startswith("0 0:0.5 2:2.0\n")
    assert read(tmp_path / "data", format="svmlight", n_features=9).X.shape == (2, 9)


def test_unknown_formats(tmp_path):
    with pytest.raises(ValueError, match=r"data\.csv: the format of this ending is not known"):
        read(tmp_path / "data.csv")
    with pytest.raises(ValueError, match="format='csv' is not known"):
        write(tmp_path / "data", X, Y, format="csv")


def test_missing_file_is_not_found(tmp_path):
    for name in ("a.txt", "a.txt.gz", "a.svm.xz", "a.npz"):
        with pytest.raises(FileNotFoundError):
            read(tmp_path / name)


@pytest.mark.parametrize("name", ["a", "a.gz", "a.xz"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, name):
    def fail_half_way():
        with write_compressed(tmp_path / name) as stream:
            stream.write(b"half")
            raise RuntimeError("stop")

    (tmp_path / name).write_bytes(b"old")
    with pytest.raises(RuntimeError, match="stop"):
        fail_half_way()
    assert [p.name for p in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_bytes() == b"old"


def test_exported_names_exist():
    assert labelgap.datasets.__all__ == sorted(labelgap.datasets.__all__)
    assert all(hasattr(labelgap.datasets, name) for name in labelgap.datasets.__all__)
