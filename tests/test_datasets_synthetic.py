"""Synthetic data: the planted truth is there, and the large generator stays within its non-zeros."""

import time
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from labelgap.datasets import make_low_rank, make_sparse_multilabel


@pytest.mark.parametrize("density", [None, 0.3])
def test_low_rank_truth(density):
    data = make_low_rank(200, 20, 30, rank=3, labels_per_row=2.5, density=density, random_state=0)
    assert data.Y.nnz == 500
    np.testing.assert_array_equal(data.Y.toarray(), data.scores() > data.threshold)
    assert np.linalg.matrix_rank(data.scores()) == 3
    assert sp.issparse(data.X) == (density is not None)
    assert data.X.dtype == data.Y.dtype == np.float32
    if density is not None:
        assert abs(data.X.nnz / (200 * 20) - density) < 0.03


def test_noise_changes_labels_but_not_their_number():
    clean = make_low_rank(300, 10, 20, rank=2, random_state=1)
    noisy = make_low_rank(300, 10, 20, rank=2, noise=0.5, random_state=1)
    np.testing.assert_array_equal(clean.W, noisy.W)
    differing = (clean.Y != noisy.Y).nnz
    assert noisy.Y.nnz == clean.Y.nnz == 900
    assert 0 < differing < 900


def test_same_seed_same_data():
    for make in (
        lambda: make_low_rank(20, 5, 6, rank=2, random_state=3).Y,
        lambda: make_sparse_multilabel(20, 50, 30, 5, 2, random_state=3)[1],
    ):
        assert (make() != make()).nnz == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_samples": 0}, "n_samples=0"),
        ({"rank": 0}, "rank=0"),
        ({"labels_per_row": 0}, "labels_per_row=0"),
        ({"labels_per_row": 6}, "labels_per_row=6"),
        ({"density": 0}, "density=0"),
        ({"density": 1.5}, "density=1.5"),
    ],
)
def test_low_rank_errors(changes, message):
    with pytest.raises(ValueError, match=message):
        make_low_rank(**{"n_samples": 10, "n_features": 4, "n_labels": 6, "rank": 2, **changes})


@pytest.mark.parametrize("changes", [{"features_per_row": 41}, {"labels_per_row": 31}, {"labels_per_row": 0}])
def test_sparse_errors(changes):
    sizes = {"n_samples": 10, "n_features": 40, "n_labels": 30, "features_per_row": 5, "labels_per_row": 2}
    with pytest.raises(ValueError, match=next(iter(changes))):
        make_sparse_multilabel(**{**sizes, **changes})


def test_sparse_rows_are_canonical_unit_rows():
    X, Y = make_sparse_multilabel(500, 300, 100, 20, 4, random_state=0)
    for matrix in (X, Y):
        fresh = sp.csr_array((matrix.data, matrix.indices, matrix.indptr), shape=matrix.shape)
        assert fresh.has_canonical_format
    np.testing.assert_allclose(X.multiply(X).sum(axis=1), 1, rtol=1e-5)
    assert set(Y.data) == {1.0}
    assert 15 < X.nnz / 500 <= 20
    assert 2.5 < Y.nnz / 500 <= 4


def test_labels_follow_from_features():
    """The labels of the most similar training row are right far more often than the most frequent label."""
    X, Y = make_sparse_multilabel(3000, 1000, 400, 30, 3, random_state=0)
    nearest = np.asarray((X[2000:] @ X[:2000].T).todense()).argmax(axis=1)
    first = np.argmax(Y[:2000][nearest].toarray() * np.bincount(Y.indices, minlength=400), axis=1)
    truth = Y[2000:].toarray()
    popular = np.bincount(Y[:2000].indices, minlength=400).argmax()
    assert truth[np.arange(1000), first].mean() > 0.4
    assert truth[:, popular].mean() < 0.1


def test_large_set_in_seconds_and_in_memory_of_its_non_zeros():
    tracemalloc.start()
    start = time.perf_counter()
    X, Y = make_sparse_multilabel(20_000, 50_000, 200_000, 100, 5, random_state=0)
    seconds, (_, peak) = time.perf_counter() - start, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (X.shape, Y.shape) == ((20_000, 50_000), (20_000, 200_000))
    assert seconds < 5
    assert peak < 60 * 20_000 * 105  # bytes for each draw; one dense row block would be far more
