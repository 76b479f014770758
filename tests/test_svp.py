"""Embeddings of label vectors: which pairs they keep, and singular value projection against its plain, dense form."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.preprocessing import normalize

from labelgap.kernels import cpu
from labelgap.objectives import start
from labelgap.objectives.embeddings import Neighborhood, find_label_neighbors
from labelgap.runtime import threads
from labelgap.solvers import NewtonCG, Status, alternate
from labelgap.solvers.spectral import svp


@pytest.fixture(autouse=True)
def one_blas_thread():
    """The threads of BLAS wait in busy loops: on cores that others use, small decompositions take seconds."""
    with threads(None):
        yield


def label_vectors(n=200, L=80, mean=3.0, seed=0):
    """Label vectors of length one, few labels frequent and most rare; some rows have none."""
    rng = np.random.default_rng(seed)
    rates = 1 / np.arange(1, L + 1)
    Y = rng.random((n, L)) < np.minimum(0.5, mean * rates / rates.sum())
    return sp.csr_array(normalize(Y.astype(float)))


def neighbors(vectors, count, seed=0):
    return find_label_neighbors(vectors, count, cpu, np.random.RandomState(seed))


def pattern(targets):
    """Where cells are stored, zeros as well."""
    found = np.zeros(targets.shape, bool)
    found[np.repeat(np.arange(targets.shape[0]), np.diff(targets.indptr)), targets.indices] = True
    return found


def symmetric_mask(n, share, rng):
    upper = np.triu(rng.random((n, n)) < share)
    return upper | upper.T


def stored(G, mask):
    rows, columns = np.nonzero(mask)
    return sp.csr_array((G[rows, columns], (rows, columns)), shape=G.shape)


def embed(targets, k, dtype="float64", seed=0, **options):
    return svp(Neighborhood(targets, cpu, dtype), k, random_state=np.random.RandomState(seed), **options)


def objective(targets, Z):
    """½ ‖P_Ω(G − Z Zᵀ)‖²."""
    return 0.5 * ((targets.toarray() - Z.astype(float) @ Z.T)[pattern(targets)] ** 2).sum()


def dense_svp(targets, k, steps):
    """Yield M after each step: the projection of M + P_Ω(G − M), by all of its eigenvectors."""
    G, mask = targets.toarray(), pattern(targets)
    M = np.zeros_like(G)
    for _ in range(steps):
        values, vectors = np.linalg.eigh(M + np.where(mask, G - M, 0))
        M = (vectors[:, -k:] * np.maximum(values[-k:], 0)) @ vectors[:, -k:].T
        yield M


# --- singular value projection --------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("momentum", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("seed", range(3))
def test_no_step_raises_the_objective(depth, momentum, dtype, seed):
    targets = neighbors(label_vectors(seed=seed), 20, seed)
    found = embed(targets, 8, dtype, seed, max_iter=60, tol=0, depth=depth, momentum=momentum)
    history = np.array(found.history)
    assert found.n_iter == len(history) - 1 > 20
    assert history[0] == pytest.approx(0.5 * (targets.data**2).sum(), rel=1e-6)
    assert history[-1] == pytest.approx(objective(targets, found.Z), rel=1e-5)
    assert (np.diff(history) <= 1e-6 * history[:-1]).all()
    assert history[-1] < 0.1 * history[0]
    assert found.Z.dtype == np.dtype(dtype)


@pytest.mark.parametrize(("n", "k", "depth"), [(30, 16, 1), (30, 5, 5), (12, 30, 1), (1, 1, 1)])
def test_in_the_whole_space_each_step_is_the_dense_one(n, k, depth):
    targets = neighbors(label_vectors(n), 6)
    for steps, M in enumerate(dense_svp(targets, k, 5), start=1):
        found = embed(targets, k, max_iter=steps, tol=0, depth=depth, momentum=False)
        if found.n_iter == steps:  # else it had converged before
            np.testing.assert_allclose(found.Z @ found.Z.T, M, atol=1e-10)
        assert found.Z.shape == (n, min(k, n))


@pytest.mark.parametrize("seed", range(3))
def test_momentum_gets_there_in_half_the_steps(seed):
    targets = neighbors(label_vectors(400, seed=seed), 20, seed)
    plain = embed(targets, 20, seed=seed, max_iter=60, tol=0, momentum=False)
    fast = embed(targets, 20, seed=seed, max_iter=30, tol=0)
    assert fast.history[-1] < plain.history[-1]


@pytest.mark.parametrize("seed", range(3))
def test_a_narrow_span_ends_where_the_dense_form_does(seed):
    targets = neighbors(label_vectors(seed=seed), 60, seed)
    found = embed(targets, 5, seed=seed, max_iter=300, tol=1e-4, momentum=False)
    assert found.status is Status.CONVERGED
    *_, M = dense_svp(targets, 5, found.n_iter)
    expected = 0.5 * ((targets.toarray() - M)[pattern(targets)] ** 2).sum()
    assert found.history[-1] == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_first_projection_is_nearly_the_best_one(dtype):
    """It starts from directions that know nothing of G, and a step that falls by little would end the run."""
    targets = neighbors(label_vectors(700, 300), 40)
    values = np.linalg.eigvalsh(targets.toarray())
    best = 0.5 * ((targets.data**2).sum() - (values[-20:] ** 2).sum())  # ½ ‖G − its projection‖², all cells
    found = embed(targets, 20, dtype, max_iter=1)
    reached = 0.5 * ((targets.toarray() - found.Z.astype(float) @ found.Z.T) ** 2).sum()
    assert best <= reached * (1 + 1e-6)
    assert reached < 1.05 * best


def test_float32_follows_float64():
    targets = neighbors(label_vectors(600, 200), 30)
    single, double = (np.array(embed(targets, 15, dtype, max_iter=8, tol=0).history) for dtype in "fd")
    np.testing.assert_allclose(single, double, rtol=1e-3)


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_a_planted_matrix_comes_back_from_some_of_its_cells(share):
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((80, 3))
    G = Z @ Z.T
    found = embed(stored(G, symmetric_mask(80, share, rng)), 3, max_iter=500, tol=1e-4)
    assert found.status is Status.CONVERGED
    assert found.history[-1] < 1e-8 * found.history[0]
    np.testing.assert_allclose(found.Z @ found.Z.T, G, atol=1e-3 * np.abs(G).max())


def test_negative_directions_are_left_out():
    """The nearest PSD matrix to diag(2, 1, −3) is diag(2, 1, 0), and ½ 3² is left."""
    found = embed(stored(np.diag([2.0, 1.0, -3.0]), np.ones((3, 3), bool)), 3)
    np.testing.assert_allclose(found.Z @ found.Z.T, np.diag([2.0, 1.0, 0.0]), atol=1e-12)
    assert found.history == pytest.approx([7.0, 4.5, 4.5])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("n", "k"), [(50, 4), (50, 60), (1, 1)])
def test_targets_of_zeros(n, k, dtype):
    targets = stored(np.zeros((n, n)), symmetric_mask(n, 0.2, np.random.default_rng(0)) | np.eye(n, dtype=bool))
    found = embed(targets, k, dtype)
    assert found.status is Status.CONVERGED
    assert found.history == [0.0, 0.0]
    assert not found.Z.any()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("k", [4, 20, 100])
def test_more_dimensions_than_the_targets_have(k, dtype):
    """Three different label vectors: the targets have rank 3 and an embedding without error."""
    vectors = sp.csr_array(np.eye(3)[np.arange(90) % 3])
    targets = stored((vectors @ vectors.T).toarray(), np.ones((90, 90), bool))
    found = embed(targets, k, dtype)
    assert np.isfinite(found.Z).all()
    np.testing.assert_allclose(found.Z @ found.Z.T, targets.toarray(), atol=5e-6)


def test_the_stop():
    targets = neighbors(label_vectors(), 20)
    long = embed(targets, 8, max_iter=40, tol=0)
    assert (long.status, long.n_iter) == (Status.MAX_ITER, 40)
    falls = -np.diff(long.history) / np.array(long.history[:-1])
    first = int(np.flatnonzero(falls <= 0.05)[0])
    short = embed(targets, 8, max_iter=40, tol=0.05)
    assert (short.status, short.n_iter) == (Status.CONVERGED, first + 1)
    assert short.history == long.history[: first + 2]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_threads_change_nothing(dtype):
    vectors = label_vectors(600, 100)
    runs = []
    for n in (1, 2, 3):
        with threads(n):
            targets = neighbors(vectors, 40)
            runs.append((targets, embed(targets, 24, dtype, max_iter=5)))
    for targets, found in runs[1:]:
        np.testing.assert_array_equal(targets.indices, runs[0][0].indices)
        np.testing.assert_array_equal(targets.data, runs[0][0].data)
        np.testing.assert_array_equal(found.Z, runs[0][1].Z)
        assert found.history == runs[0][1].history


# --- which pairs ----------------------------------------------------------------------------------------------------


def assert_neighbors(vectors, count, targets):
    """Each row has its nearest ones, up to ties, and zeros where too few are positive; nothing else is stored."""
    n, G, mask = vectors.shape[0], (vectors @ vectors.T).toarray(), pattern(targets)
    assert targets.has_sorted_indices
    assert len(targets.data) == mask.sum()  # no cell twice
    np.testing.assert_array_equal(mask, mask.T)
    assert mask.diagonal().all()
    np.testing.assert_allclose(targets.toarray(), np.where(mask, G, 0), atol=1e-15)
    np.testing.assert_array_equal(targets.toarray(), targets.toarray().T)
    for products, kept in zip(G, mask):
        positive = np.sort(products[products > 0])[::-1]
        wanted = min(count, len(positive))
        if wanted:
            assert kept[products > positive[wanted - 1]].all()
            assert kept[products >= positive[wanted - 1]].sum() >= wanted
        if len(positive) < min(count, n):
            assert kept[products == 0].any()
    assert mask.sum() <= n * (2 * min(count, n) + 1)


@pytest.mark.parametrize("count", [1, 2, 10, 59, 60, 500])
@pytest.mark.parametrize("norm", [True, False], ids=["unit", "counts"])
@pytest.mark.parametrize("seed", range(2))
def test_label_neighbors_against_brute_force(count, norm, seed):
    vectors = label_vectors(60, 30, 2.0, seed)
    if not norm:
        vectors = (vectors > 0).astype(float)
    assert (np.diff(vectors.indptr) == 0).any()
    assert_neighbors(vectors, count, neighbors(vectors, count, seed))


def test_every_pair_where_every_row_is_a_neighbor():
    vectors = label_vectors(20)
    for count in (20, 99):
        targets = neighbors(vectors, count)
        assert pattern(targets).all()
        assert (targets.data == 0).any()
        np.testing.assert_allclose(targets.toarray(), (vectors @ vectors.T).toarray(), atol=1e-15)


def test_rows_without_labels_keep_their_distance_to_some_rows():
    vectors = sp.csr_array((40, 7))
    targets = neighbors(vectors, 5)
    assert not targets.data.any()
    counts = np.diff(targets.indptr)
    assert counts.min() >= 2
    assert 40 < targets.nnz <= 40 * 11
    assert_neighbors(vectors, 5, targets)


def test_far_rows_are_drawn_from_all():
    """One of two groups of rows without a common label: each row is given some of the other group."""
    vectors = sp.csr_array(np.repeat(np.eye(2), [10, 190], axis=0))
    mask = pattern(neighbors(vectors, 60))
    assert mask[:10, :10].all()
    assert (mask[:10, 10:].sum(axis=1) >= 30).all()
    assert 0.2 < mask[:10, 10:].mean() < 0.5


def test_ties_are_broken_by_chance():
    vectors = sp.csr_array(np.ones((50, 1)))
    masks = [pattern(neighbors(vectors, 5, seed)) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(masks[0], masks[1])
    assert (masks[0] != masks[2]).any()
    off = masks[0] & ~np.eye(50, dtype=bool)
    assert off.sum(axis=1).min() >= 4  # itself may be one of the five


def test_the_given_vectors_stay_as_they_are():
    vectors = label_vectors(30)
    before = vectors.copy()
    neighbors(vectors, 4)
    for part in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(vectors, part), getattr(before, part))


# --- the objectives -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "tol"), [("float32", 1e-5), ("float64", 1e-12)])
def test_the_residual_against_a_dense_one(dtype, tol):
    targets = neighbors(label_vectors(70), 9)
    assert (targets.data == 0).any()  # stored zeros count
    rng = np.random.default_rng(0)
    Z, V = rng.standard_normal((70, 4)).astype(dtype), rng.standard_normal((70, 3)).astype(dtype)
    problem = Neighborhood(targets, cpu, dtype)
    R = problem.residual(Z)
    product = problem.product(R)(V)
    rest = np.where(pattern(targets), targets.toarray() - Z.astype(float) @ Z.T, 0)
    np.testing.assert_allclose(R, rest[pattern(targets)], atol=100 * tol)
    np.testing.assert_allclose(product, rest @ V, atol=100 * tol)
    assert R.dtype == product.dtype == np.dtype(dtype)


def test_the_asymmetric_objective():
    targets, alpha = neighbors(label_vectors(60), 9), 0.3
    problem = Neighborhood(targets, cpu, "float64").make_asymmetric_problem(alpha)

    def brute_force(Z, W):
        rest = (targets.toarray() - Z @ W.T)[pattern(targets)]
        return 0.5 * (rest**2).sum() + alpha / 2 * ((Z**2).sum() + (W**2).sum())

    rng = np.random.default_rng(0)
    Z, W = rng.standard_normal((2, 60, 4))
    assert problem.value(Z, W) == pytest.approx(brute_force(Z, W), rel=1e-12)
    state = start(problem, 4, init="svd", random_state=np.random.RandomState(0), dtype="float64")
    alternate(problem, state, NewtonCG(), NewtonCG(), max_iter=300, tol=1e-6)
    assert state.status is Status.CONVERGED
    assert (np.diff(state.history) <= 1e-10).all()
    assert state.history[-1] == pytest.approx(brute_force(state.W, state.H), rel=1e-10)
    assert state.history[-1] < 0.5 * brute_force(0 * Z, 0 * W)
    # A minimum: the gradient in Z of ½‖P_Ω(G − Z Wᵀ)‖² + (α/2)‖Z‖² is 0, as far as the stop asks for.
    rest = np.where(pattern(targets), targets.toarray() - state.W @ state.H.T, 0)
    assert np.abs(alpha * state.W - rest @ state.H).max() < 0.02
