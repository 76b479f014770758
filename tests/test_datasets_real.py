"""The seven data sets of LABELGAP_DATA have the sizes that were counted independently of these readers."""

import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from labelgap.datasets import list_datasets, load_dataset, read_arff, read_svmlight

pytestmark = pytest.mark.skipif(
    "LABELGAP_DATA" not in os.environ, reason="needs the data sets: set LABELGAP_DATA to their folder"
)

# name: n train, n test, d, L, X nnz train, test (None: dense), Y nnz train, test
COUNTED = {
    "eurlex": (15539, 3809, 5000, 3993, 3684773, 903035, 82530, 20211),
    "mediamill": (30993, 12914, 120, 101, None, None, 135217, 56901),
    "bibtex": (4880, 2515, 1836, 159, 334250, 173496, 11616, 6146),
    "delicious": (12920, 3185, 500, 983, 239549, 55065, 246088, 60229),
    "enron": (1123, 579, 1001, 53, 94535, 48555, 3803, 1947),
    "emotions": (391, 202, 72, 6, None, None, 709, 399),
    "yeast": (1500, 917, 103, 14, None, None, 6342, 3899),
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("LABELGAP_CACHE", str(folder))
        yield folder


def equal(a, b):
    return (a != b).nnz == 0 if sp.issparse(a) else np.array_equal(a, b)


@pytest.mark.parametrize("name", COUNTED)
def test_counts_and_second_load(cache, name):
    n_train, n_test, d, L, x_train, x_test, y_train, y_test = COUNTED[name]
    data = load_dataset(name)
    assert data.X_train.shape == (n_train, d)
    assert data.X_test.shape == (n_test, d)
    assert (data.n_features, data.n_labels) == (d, L)
    for X, nnz in ((data.X_train, x_train), (data.X_test, x_test)):
        assert X.dtype == np.float32
        assert sp.issparse(X) == (nnz is not None)
        assert nnz is None or (X.nnz == nnz and X.has_canonical_format)
    assert (data.Y_train.nnz, data.Y_test.nnz) == (y_train, y_test)
    assert set(data.Y_train.data) == {1.0}
    for names, size in ((data.feature_names, d), (data.label_names, L)):
        assert names is None or len(names) == size
    again = load_dataset(name)
    assert len(list((cache / "parsed").glob(f"{name}-*.npz"))) == 1
    assert all(equal(getattr(again, k), getattr(data, k)) for k in ("X_train", "Y_train", "X_test", "Y_test"))
    assert (again.feature_names, again.label_names) == (data.feature_names, data.label_names)
    info = next(info for info in list_datasets() if info.name == name)
    assert (info.n_train, info.n_test, info.n_features, info.n_labels) == (n_train, n_test, d, L)
    assert info.where == "folder"


def test_names_of_labels(cache):
    assert load_dataset("eurlex").label_names is None
    assert load_dataset("mediamill").label_names[::100] == ["Class1", "Class101"]
    assert "TAG_m\\'usica" in load_dataset("delicious").label_names
    # Enron's XML lists its labels in another order than the columns stand in.
    assert load_dataset("enron").label_names[0] != "A.A1"


def test_rows_without_labels(cache):
    for name, train, test in (("eurlex", 28, 6), ("mediamill", 1189, 541), ("delicious", 10, 4)):
        data = load_dataset(name)
        assert [int((np.diff(Y.indptr) == 0).sum()) for Y in (data.Y_train, data.Y_test)] == [train, test]


def test_yeast_in_two_formats():
    folder = Path(os.environ["LABELGAP_DATA"]) / "yeast"
    for half in ("train", "test"):
        X, Y = read_svmlight(folder / f"yeast_{half}.svm.txt.gz", n_features=103, n_labels=14)
        table = read_arff(folder / f"yeast-{half}.arff.gz", folder / "yeast.xml.gz")
        np.testing.assert_array_equal(X.toarray(), table.X)
        assert equal(Y, table.Y)
