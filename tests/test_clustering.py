"""K-means against a plain Lloyd, sharing out against proposals one by one, and rows that are hard to part."""

from __future__ import annotations

from itertools import pairwise
from math import ceil

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from labelgap.clustering import Clustering, cluster, draw_distinct_rows, kmeans
from labelgap.clustering.kmeans import RowDistances, RowMatrix, SeedProposals, assign_rows
from labelgap.runtime import threads, workers

WRAP = [np.asarray, sp.csr_array]
PRECISION = [np.float32, np.float64]


def blobs(n=400, d=6, k=8, seed=0, spread=0.3):
    """Rows around k points; about half of the values are 0 where rows are to be sparse."""
    rng = np.random.default_rng(seed)
    points = 3 * rng.standard_normal((k, d)) * (rng.random((k, d)) < 0.7)
    rows = points[rng.integers(0, k, n)] + spread * rng.standard_normal((n, d))
    return rows * (rng.random((n, d)) < 0.9)


def squared_distances(X, C):
    return ((np.asarray(X, float)[:, None] - np.asarray(C, float)) ** 2).sum(axis=2)


def objective(X, found, labels):
    return squared_distances(X, found.centers)[np.arange(len(X)), labels].sum()


def plain_lloyd(X, seeds, rounds):
    """The textbook, for seeds that leave no cluster empty."""
    C = seeds.copy()
    for _ in range(rounds):
        labels = squared_distances(X, C).argmin(axis=1)
        C = np.array([X[labels == c].mean(axis=0) for c in range(len(C))])
    return C, squared_distances(X, C).argmin(axis=1)


def run(X, n_clusters, seed=0, **options):
    return cluster(X, n_clusters, rng=np.random.default_rng(seed), **options)


# --- Lloyd's algorithm ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", WRAP)
@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("rounds", [0, 1, 2, 5])
def test_rounds_equal_those_of_a_plain_lloyd(wrap, dtype, rounds):
    X = blobs().astype(dtype)
    seeds = X[:8]
    expected, labels = plain_lloyd(X.astype(float), seeds.astype(float), rounds)
    found, ours = run(wrap(X), 8, seeds=seeds, balance=None, max_iter=rounds, tol=0)
    assert found.centers.dtype == dtype
    np.testing.assert_allclose(found.centers, expected, atol=1e-5 if dtype == np.float32 else 1e-12)
    np.testing.assert_array_equal(ours, labels)
    np.testing.assert_array_equal(found.assign(wrap(X)), labels)


@pytest.mark.parametrize("wrap", WRAP)
def test_no_round_raises_the_objective(wrap):
    X = blobs(spread=1.5)
    values = [objective(X, *run(wrap(X), 8, balance=None, max_iter=rounds, tol=0)) for rounds in range(12)]
    assert all(after <= before * (1 + 1e-12) for before, after in pairwise(values))
    assert values[-1] < 0.8 * values[0]


def test_it_stops_where_nothing_changes_and_sooner_with_a_tolerance(monkeypatch):
    X, calls = blobs(spread=1.5), []
    compute_means = RowMatrix.compute_means
    monkeypatch.setattr(RowMatrix, "compute_means", lambda self, *args: calls.append(1) or compute_means(self, *args))
    rounds = []
    for tol in (0.0, 1e-3, 0.5):
        calls.clear()
        run(X, 8, seeds=X[:8], balance=None, max_iter=500, tol=tol)
        rounds.append(len(calls))
    assert 500 > rounds[0] > rounds[1] > rounds[2] == 2
    fixed, _ = run(X, 8, seeds=X[:8], balance=None, max_iter=rounds[0], tol=0)
    np.testing.assert_allclose(plain_lloyd(X, fixed.centers, 1)[0], fixed.centers, atol=1e-12)


@pytest.mark.parametrize("wrap", WRAP)
@pytest.mark.parametrize("n_clusters", [8, 30])
def test_sums_of_squares_are_those_of_scikit_learn(wrap, n_clusters):
    X = wrap(blobs(n=800))
    with threadpool_limits(1):
        theirs = np.mean([KMeans(n_clusters, n_init=1, random_state=seed).fit(X).inertia_ for seed in range(10)])
    dense = X if isinstance(X, np.ndarray) else X.toarray()
    ours = np.mean([objective(dense, *run(X, n_clusters, seed, balance=None)) for seed in range(10)])
    assert ours < 1.05 * theirs


@pytest.mark.parametrize("wrap", WRAP)
def test_planted_blobs_are_found(wrap):
    X = np.repeat(100.0 * np.eye(4), 10, axis=0) + np.random.default_rng(0).standard_normal((40, 4))
    found, labels = run(wrap(X), 4)
    order = labels[::10]
    assert sorted(order) == [0, 1, 2, 3]
    np.testing.assert_array_equal(labels, np.repeat(order, 10))
    np.testing.assert_allclose(found.centers[order], X.reshape(4, 10, 4).mean(axis=1), rtol=1e-12)


# --- the nearest centre ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", WRAP)
@pytest.mark.parametrize("dtype", PRECISION)
def test_assign_by_brute_force(wrap, dtype):
    X, C = blobs().astype(dtype), blobs(n=9, seed=1).astype(dtype)
    np.testing.assert_array_equal(Clustering(C).assign(wrap(X)), squared_distances(X, C).argmin(axis=1))


def test_ties_go_to_the_lower_index():
    C = np.array([[2.0, 0.0], [0.0, 2.0], [0.0, 0.0]])
    X = np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    for wrap in WRAP:
        np.testing.assert_array_equal(Clustering(C).assign(wrap(X)), [0, 0, 1, 2])


@pytest.mark.parametrize("wrap", WRAP)
@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("n_centers", [3, 7, 30])
def test_ties_of_whole_numbers(wrap, dtype, n_centers):
    """Means of the centres are no whole numbers, and must not decide."""
    rng = np.random.default_rng(0)
    X, C = (rng.integers(-9, 10, (n, 2)).astype(dtype) for n in (500, n_centers))
    distances = squared_distances(X, C)
    assert (np.sort(distances, axis=1)[:, 0] == np.sort(distances, axis=1)[:, 1]).any()
    np.testing.assert_array_equal(Clustering(C).assign(wrap(X)), distances.argmin(axis=1))


@pytest.mark.parametrize("wrap", WRAP)
def test_single_precision_far_from_the_origin(wrap):
    """Squares near 10⁶ leave float32 no digits for distances near 1."""
    X = (1000 + blobs(n=600, spread=0.5)).astype(np.float32)
    found, labels = run(wrap(X), 8, balance=None)
    distances = squared_distances(X, found.centers)
    np.testing.assert_allclose(distances[np.arange(len(X)), labels], distances.min(axis=1), atol=1e-2)
    assert objective(X, found, labels) < 1.01 * objective(X, *run(X.astype(float), 8, balance=None))


@pytest.mark.parametrize("wrap", WRAP)
def test_small_blocks_change_nothing(monkeypatch, wrap):
    X = wrap(blobs())
    whole, labels = run(X, 8, balance=1.2)
    monkeypatch.setattr(workers, "MAX_CELLS_PER_BLOCK", 70)
    for name, size in (("MAX_CELLS_PER_BLOCK", 1), ("MAX_CELLS_PER_RANGE", 30), ("MIN_STORED_PER_PART", 100)):
        monkeypatch.setattr(kmeans, name, size)
    parts, found = run(X, 8, balance=1.2)
    np.testing.assert_allclose(parts.centers, whole.centers, atol=1e-12)
    np.testing.assert_array_equal(found, labels)


def test_containers_of_one_matrix():
    X = np.round(2 * blobs())
    _, labels = run(X, 8)
    wide, parts = sp.csr_array(X), sp.csr_array(X)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    halves = sp.csr_array(
        (np.repeat(parts.data / 2, 2), np.repeat(parts.indices, 2), 2 * parts.indptr), shape=parts.shape
    )
    for same in (X.astype(int), wide, halves, sp.csc_matrix(X), np.asfortranarray(X)):
        found, ours = run(same, 8)
        assert found.centers.dtype == np.float64
        np.testing.assert_array_equal(ours, labels)
        np.testing.assert_array_equal(found.assign(same), found.assign(X))
    assert halves.nnz == 2 * parts.nnz


# --- limits ---------------------------------------------------------------------------------------------------------


def one_by_one(distances, most):
    """Gale and Shapley's proposals: a free row asks its nearest centre that has not refused it yet."""
    n, k = distances.shape
    asked, kept, free = [0] * n, [[] for _ in range(k)], list(range(n))[::-1]
    order = np.argsort(distances, axis=1, kind="stable")
    while free:
        i = free.pop()
        c = order[i, asked[i]]
        asked[i] += 1
        kept[c] = sorted([*kept[c], i], key=lambda j: (distances[j, c], j))
        if len(kept[c]) > most:
            free.append(kept[c].pop())
    return np.array([next(c for c in range(k) if i in kept[c]) for i in range(n)])


@pytest.mark.parametrize("wrap", WRAP)
@pytest.mark.parametrize("balance", [1.0, 1.3, 2.0])
@pytest.mark.parametrize("seed", range(4))
def test_sharing_out_equals_proposals_one_by_one(wrap, balance, seed):
    """Whole numbers, so that distances are exact and many are equal."""
    rng = np.random.default_rng(seed)
    X, C = (rng.integers(-3, 4, (n, 2)).astype(float) for n in (90, 7))
    assignment = assign_rows(RowMatrix(wrap(X)), C, balance)
    expected = one_by_one(squared_distances(X, C), ceil(balance * 90 / 7))
    np.testing.assert_array_equal(assignment.labels, expected)


def test_a_full_centre_by_hand():
    """Room for two each: 0 keeps 0 and 1; 10 would rather have 9 than 2, so that 2 ends at 20."""
    X = np.array([[0.0], [1.0], [2.0], [9.0], [10.0]])
    assert assign_rows(RowMatrix(X), np.array([[0.0], [10.0], [20.0]]), 1.0).labels.tolist() == [0, 0, 2, 1, 1]
    assert assign_rows(RowMatrix(X), np.array([[0.0], [10.0], [20.0]]), None).labels.tolist() == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("wrap", WRAP)
@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("balance", [1.0, 1.1, 2.0])
def test_no_row_and_centre_prefer_each_other(wrap, dtype, balance):
    X = blobs(n=500, k=3).astype(dtype)
    found, labels = run(wrap(X), 12, balance=balance)
    counts, most = np.bincount(labels, minlength=12), ceil(balance * 500 / 12)
    assert len(found.centers) == 12
    assert counts.min() > 0
    assert counts.max() <= most
    distances = squared_distances(X, found.centers)
    own = distances[np.arange(500), labels]
    worst = np.array([own[labels == c].max() if counts[c] == most else np.inf for c in range(12)])
    slack = 1e-4 if dtype == np.float32 else 1e-10
    assert not ((distances < own[:, None] - slack) & (distances < worst - slack)).any()


def test_limits_are_met_where_nearest_centres_break_them():
    X = blobs(n=500, k=3)
    nearest = np.bincount(run(X, 3, balance=None)[1])
    assert nearest.max() > ceil(1.05 * 500 / 3)
    found, labels = run(X, 3, balance=1.05)
    assert np.bincount(labels).max() <= ceil(1.05 * 500 / 3)
    assert (found.assign(X) != labels).any()


def test_a_limit_that_nobody_reaches_changes_nothing():
    X = blobs()
    free, limited = run(X, 8, balance=None), run(X, 8, balance=8.0)
    np.testing.assert_array_equal(free[0].centers, limited[0].centers)
    np.testing.assert_array_equal(free[1], limited[1])


# --- the number of threads, and seeds -------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", WRAP)
@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("balance", [None, 1.1])
def test_any_number_of_threads_gives_the_same_bits(wrap, dtype, balance):
    X = wrap(blobs(n=3000, d=40, k=20).astype(dtype))
    results = []
    for n_jobs in (1, 2, 3):
        with threads(n_jobs):
            results.append(run(X, 25, balance=balance))
    for found, labels in results[1:]:
        np.testing.assert_array_equal(found.centers, results[0][0].centers)
        np.testing.assert_array_equal(labels, results[0][1])


@pytest.mark.parametrize("make", [np.random.RandomState, np.random.default_rng])
def test_seeds_decide(make):
    X = blobs(spread=2.0)
    first, again, other = (cluster(X, 8, rng=make(seed))[0].centers for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)


def test_rows_drawn_ahead_have_the_chances_of_their_turn():
    X = np.array([[0.0], [1.0], [2.0], [5.0]])
    then, now = np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.0, 2.0, 1.0, 0.5])
    proposals = SeedProposals(then, 40_000, RowDistances(RowMatrix(X)), np.random.default_rng(0))
    np.testing.assert_allclose(np.bincount(proposals.rows) / 40_000, then / 10, atol=0.01)
    valid = proposals.take_valid(now, 40_000)
    chances = np.bincount(proposals.rows[valid], minlength=4) / len(valid)
    np.testing.assert_allclose(chances, now / 3.5, atol=0.015)
    np.testing.assert_allclose(proposals.squares[:9], squared_distances(X, X)[proposals.rows[:9]], atol=1e-12)
    assert not proposals.take_valid(now, 1).size


def test_seeds_are_far_from_each_other():
    """Forty rows at 0 and four alone: without a regard to distances these would hardly ever be drawn."""
    X = np.concatenate([0.01 * np.random.default_rng(0).standard_normal((40, 2)), [[9, 0], [0, 9], [-9, 0], [0, -9]]])
    for seed in range(10):
        _, labels = run(X, 5, seed, balance=None, max_iter=0)
        assert sorted(np.bincount(labels)) == [1, 1, 1, 1, 40]


# --- rows that are hard to part -------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", WRAP)
def test_fewer_different_rows_than_clusters(wrap):
    different = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 3.0]])
    which = np.arange(30) % 3
    found, labels = run(wrap(different[which]), 5)
    assert len(found.centers) == 3
    np.testing.assert_allclose(found.centers[labels], different[which], atol=1e-12)


@pytest.mark.parametrize("wrap", WRAP)
@pytest.mark.parametrize("dtype", PRECISION)
def test_rows_of_zeros_are_one_cluster(wrap, dtype):
    found, labels = run(wrap(np.zeros((20, 3), dtype)), 4)
    np.testing.assert_array_equal(found.centers, np.zeros((1, 3)))
    np.testing.assert_array_equal(labels, 0)


def test_rows_that_differ_by_less_than_rounding():
    X = np.repeat(blobs(n=3), 4, axis=0) * (1 + 1e-15 * np.arange(12)[:, None])
    found, labels = run(X, 12, balance=None)
    assert 3 <= len(found.centers) <= 12
    np.testing.assert_allclose(found.centers[labels], X, rtol=1e-6)
    assert np.bincount(labels).min() > 0
    tiny, labels = run(1e-170 * np.arange(30.0)[:, None], 3)
    assert len(tiny.centers) == len(np.unique(labels))


def test_a_limit_parts_equal_rows():
    X = np.array([[0.0]] * 90 + [[1.0]] * 10)
    _, labels = run(X, 5, balance=1.2)
    assert sorted(np.bincount(labels)) == [40, 60]
    assert len(set(labels[90:])) == 1


@pytest.mark.parametrize("wrap", WRAP)
@pytest.mark.parametrize("balance", [None, 1.0, 2.0])
def test_every_row_a_cluster(wrap, balance):
    X = blobs(n=40)
    found, labels = run(wrap(X), 40, balance=balance)
    assert sorted(labels) == list(range(40))
    np.testing.assert_allclose(found.centers[labels], X, atol=1e-12)


@pytest.mark.parametrize("wrap", WRAP)
@pytest.mark.parametrize("dtype", PRECISION)
def test_one_cluster_is_the_mean(wrap, dtype):
    X = blobs().astype(dtype)
    found, labels = run(wrap(X), 1)
    assert found.centers.dtype == dtype
    np.testing.assert_allclose(found.centers, X.mean(axis=0, keepdims=True, dtype=float), atol=1e-6)
    np.testing.assert_array_equal(labels, np.zeros(400))


@pytest.mark.parametrize("wrap", WRAP)
@pytest.mark.parametrize("max_iter", [0, 1, 50])
def test_an_empty_cluster_goes_to_the_farthest_rows(wrap, max_iter):
    """No row is nearest to the last two seeds."""
    X = np.array([[0.0], [1.0], [2.0], [50.0], [51.0]])
    seeds = np.array([[0.0], [900.0], [900.0]])
    _, labels = run(wrap(X), 3, seeds=seeds, balance=None, max_iter=max_iter)
    assert np.bincount(labels, minlength=3).min() > 0
    assert labels[2] != labels[3]
    np.testing.assert_array_equal(seeds, [[0.0], [900.0], [900.0]])


def test_different_rows():
    X = np.array([[1.0, 0.0], [1.0, -0.0], [2.0, 3.0], [2.0, 3.0], [0.0, 0.0]])
    stored_zero = sp.csr_array(([1.0, 0.0, 1.0, 2.0], [0, 1, 0, 1], [0, 2, 3, 4]), shape=(3, 2))
    assert draw_distinct_rows(stored_zero, 10, np.random.default_rng(0)).shape[0] == 2
    for rows in (X, sp.csr_array(X)):
        for most, expected in ((1, 1), (2, 2), (3, 3), (9, 3)):
            found = draw_distinct_rows(rows, most, np.random.default_rng(0))
            dense = found if isinstance(found, np.ndarray) else found.toarray()
            assert len(dense) == len({tuple(row + 0.0) for row in dense}) == expected


# --- bad input ------------------------------------------------------------------------------------------------------

BAD = [
    ({"n_clusters": 41}, r"n_clusters=41 is out of range; there are 40 rows, so pass an integer from 1 to 40"),
    ({"n_clusters": 0}, r"n_clusters=0 is out of range"),
    ({"n_clusters": 2.5}, r"n_clusters=2\.5 is out of range"),
    ({"n_clusters": 3, "balance": 0.9}, r"balance=0\.9 is out of range; .* or None for no limit"),
    ({"n_clusters": 3, "balance": np.nan}, r"balance=nan is out of range"),
    ({"n_clusters": 3, "seeds": np.zeros((2, 6))}, r"seeds has shape \(2, 6\); pass an array of shape \(3, 6\)"),
]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_bad_parameters(options, message):
    with pytest.raises(ValueError, match=message):
        run(blobs(n=40), **options)


@pytest.mark.parametrize("wrap", WRAP)
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e200])
def test_values_without_squares(wrap, value):
    X = blobs(n=40)
    X[3, 2] = value
    with np.errstate(over="ignore"), pytest.raises(ValueError, match="X holds NaN, infinity or values whose squares"):
        run(wrap(X), 3)


def test_features_that_do_not_belong_to_the_centres():
    with pytest.raises(ValueError, match="X has 6 features and the centres have 2"):
        Clustering(np.zeros((3, 2))).assign(blobs())
