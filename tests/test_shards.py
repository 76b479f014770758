"""Rows in shards: the Kronecker form, the products and the iterates of the whole, and no more memory."""

from __future__ import annotations

import operator
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from labelgap import LEML, OneClassMF, hide_cells
from labelgap.datasets import make_low_rank
from labelgap.kernels import BACKENDS, cpu, namespace, qr
from labelgap.kernels.shards import ShardedArray, ShardedBackend
from labelgap.losses import LOSSES
from labelgap.objectives import Problem, SideData, bind, bind_label_cells, solve, start
from labelgap.objectives.cells import Weights
from labelgap.objectives.positive_unlabelled import PositiveUnlabelled
from labelgap.objectives.problem import Options, Penalties, make_graph_terms
from labelgap.observations import as_labels
from labelgap.runtime import threads
from labelgap.solvers import Direct, NewtonCG

N, D, L, K = 203, 12, 10, 3
DATA = make_low_rank(N, D, L, rank=K, random_state=0)
GAPS = hide_cells(DATA.Y, 0.4, random_state=0)
FOUR = ShardedBackend(cpu, 4)


def graph(size, seed):
    S = sp.random_array((size, size), density=0.05, random_state=seed)
    return sp.csr_array(S + S.T)


SIDE = {
    "plain": SideData(),
    "row graph": SideData(row_graph=graph(N, 0)),
    "label graph and features": SideData(
        label_graph=graph(L, 1), label_features=np.random.default_rng(0).random((L, 5))
    ),
    "row weights": SideData(row_weights=np.linspace(0.5, 2, N)),
}


def squared(data):
    return bind_label_cells(data.labels, LOSSES["squared"](), data.backend, data.dtype)


def logistic(data):
    return bind_label_cells(data.labels, LOSSES["logistic"](), data.backend, data.dtype)


def one_class(data):
    weights = Weights.of(np.linspace(0.1, 0.3, N)[:, None], np.linspace(0.5, 1, L)[:, None])
    form = PositiveUnlabelled(LOSSES["logistic"](), LOSSES["squared"](), -1.0, weights)
    return replace(form, importance=data.importance).bind(data.labels.positives, data.backend, data.dtype)


CASES = {
    "squared": (squared, DATA.Y),
    "logistic with gaps": (logistic, GAPS),
    "logistic, all cells": (logistic, DATA.Y),
    "one-class": (one_class, DATA.Y),
}


def problem_of(backend, case, side, features):
    cells, Y = CASES[case]
    data = bind(features, as_labels(Y), backend, float, constant=True, side=SIDE[side])
    terms = make_graph_terms(data.row_graph, 0.5), make_graph_terms(data.label_graph, 0.5)
    return Problem(backend, cells(data), data.left, data.right, Penalties(0.3, 0.7), *terms)


def aligned(W, H, like):
    """Columns with the signs of others: W Hᵀ does not know them."""
    signs = np.sign((H * like).sum(0))
    return W * signs, H * signs


@pytest.fixture
def solutions(monkeypatch):
    """Every half step that is solved: the products it took."""
    taken = []
    for solver in (Direct, NewtonCG):

        def minimize(self, *arguments, plain=solver.minimize):
            found = plain(self, *arguments)
            taken.append((type(self).__name__, found.n_iter, found.n_products))
            return found

        monkeypatch.setattr(solver, "minimize", minimize)
    return taken


@pytest.mark.parametrize("form", ["dense", "sparse", "sparse, in rounds", "no features"])
@pytest.mark.parametrize("side", SIDE)
@pytest.mark.parametrize("case", CASES)
def test_four_shards_take_the_path_of_the_whole(case, side, form, solutions, monkeypatch):
    if form == "sparse, in rounds":
        monkeypatch.setattr("labelgap.objectives.features.MAX_EIGEN_ORDER", 5)  # that of label features
        monkeypatch.setattr("labelgap.objectives.features.MIN_SKETCH_RANK", 2)
        monkeypatch.setattr("labelgap.objectives.features.MAX_SKETCH_RANK", 3)
    X = None if form == "no features" else DATA.X if form == "dense" else sp.csr_array(DATA.X)
    runs = []
    for backend in (cpu, FOUR):
        problem, iterates = problem_of(backend, case, side, X), []
        fit = start(problem, K, init="svd", random_state=np.random.RandomState(0), dtype="float64")
        exact = problem.objective_in_left(fit.H).model(fit.W).kronecker.exact
        keep = iterates.append
        options = Options(
            problem.make_solver("auto"),
            6,
            0.0,
            callbacks=[lambda told, keep=keep: keep((told[2], told[3])) and False],
        )
        solutions.clear()
        solve(problem, fit, options)
        host = backend.to_numpy
        runs.append((exact, list(solutions), fit.history, [(host(W), host(H)) for W, H in iterates]))
    whole, shards = runs
    assert shards[0] == whole[0] == (case == "squared" and side != "row graph")
    assert shards[1] == whole[1]
    np.testing.assert_allclose(shards[2], whole[2], rtol=1e-10)
    for (W, H), (V, G) in zip(shards[3], whole[3], strict=True):
        W, H = aligned(W, H, G)
        np.testing.assert_allclose(W, V, atol=1e-6 * np.abs(V).max())
        np.testing.assert_allclose(H, G, atol=1e-6 * np.abs(G).max())


@pytest.mark.parametrize("form", ["features", "no features"])
@pytest.mark.parametrize("case", CASES)
def test_memory_is_no_higher(case, form):
    data = make_low_rank(6_000, 40, 60, rank=4, random_state=0)
    known = hide_cells(data.Y, 0.3, random_state=0) if "gaps" in case else as_labels(data.Y)
    X = sp.csr_array(data.X) if form == "features" else None
    peaks = []
    for backend in (cpu, FOUR, cpu, FOUR):
        tracemalloc.start()
        bound = bind(X, known, backend, float, constant=True)
        if case == "one-class":
            form_ = PositiveUnlabelled(LOSSES["logistic"](), LOSSES["squared"](), -1.0, Weights.of(1.0, 0.1))
            cells = form_.bind(known.positives, backend, float)
        else:
            cells = CASES[case][0](bound)
        problem = Problem(backend, cells, bound.left, bound.right, Penalties(0.3, 0.3))
        fit = start(problem, 16, init="svd", random_state=np.random.RandomState(0), dtype="float64")
        with threads(1):  # how many temporary arrays threads have at once depends on the load of the machine
            solve(problem, fit, Options(problem.make_solver("auto"), 2, 0.0))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[3] <= 1.02 * peaks[2], f"{peaks[3] / peaks[2]:.3f}"


@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize("cls", [LEML, OneClassMF])
def test_estimators_on_shards(cls, past, monkeypatch):
    monkeypatch.setitem(BACKENDS, "shards", lambda: FOUR)
    models = []
    for device in ("cpu", "shards"):
        model = cls(K, dtype="float64", random_state=0, max_iter=50, device=device).fit(DATA.X[:150], DATA.Y[:150])
        before = (DATA.X[:150], DATA.Y[:150]) if past else None
        models.append(model.partial_fit(DATA.X[150:], DATA.Y[150:], past=before))
    np.testing.assert_allclose(models[1].decision_function(DATA.X), models[0].decision_function(DATA.X), atol=1e-7)


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_fewer_rows_than_shards(rows):
    X, labels = DATA.X[:rows], as_labels(DATA.Y[:rows])
    values = []
    for backend in (cpu, ShardedBackend(cpu, 4)):
        data = bind(X, labels, backend, float, constant=True)
        problem = Problem(backend, squared(data), data.left, data.right, Penalties(0.3, 0.3))
        fit = start(problem, 1, init="svd", random_state=np.random.RandomState(0), dtype="float64")
        values.append(solve(problem, fit, Options(problem.make_solver("auto"), 3, 0.0)).history)
    np.testing.assert_allclose(*values)


# --- the array and the backend, against the whole -------------------------------------------------------------------


def cut(array):
    return FOUR.rows(array, array.dtype)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "truediv", "gt", "le", "eq"])
def test_operators(name):
    rng = np.random.default_rng(0)
    A, B, row, column = (rng.uniform(1, 2, shape) for shape in ((9, 3), (9, 3), (1, 3), (9, 1)))
    apply = getattr(operator, name)
    for other, shards in ((B, cut(B)), (row, row), (column, cut(column)), (2.0, 2.0)):
        np.testing.assert_array_equal(FOUR.to_numpy(apply(cut(A), shards)), apply(A, other))
    for other in (row, 2.0):
        np.testing.assert_array_equal(FOUR.to_numpy(apply(other, cut(A))), apply(other, A))
    if name in ("add", "sub", "mul"):
        C, changed = cut(A), getattr(operator, f"i{name}")(A.copy(), B)
        np.testing.assert_array_equal(FOUR.to_numpy(getattr(operator, f"i{name}")(C, cut(B))), changed)


def test_functions_of_the_namespace():
    A = np.random.default_rng(0).standard_normal((9, 3))
    S, xp = cut(A), namespace(cut(A))
    assert S.shape == (9, 3)
    assert float(xp.sum(S)) == pytest.approx(A.sum())
    np.testing.assert_allclose(xp.sum(S, axis=0, keepdims=True), A.sum(0, keepdims=True))
    np.testing.assert_allclose(FOUR.to_numpy(xp.sum(S, axis=1, keepdims=True)), A.sum(1, keepdims=True))
    assert float(xp.mean(S)) == pytest.approx(A.mean())
    assert float(xp.max(S)) == A.max()
    assert float(xp.min(S)) == A.min()
    assert not bool(xp.all(S > 0))
    assert bool(xp.any(S > 0))
    np.testing.assert_array_equal(FOUR.to_numpy(xp.where(S > 0, S, 0.0)), np.where(A > 0, A, 0))
    np.testing.assert_array_equal(FOUR.to_numpy(xp.concat([S, S[:, :1]], axis=1)), np.hstack([A, A[:, :1]]))
    Q, R = qr(S)
    np.testing.assert_allclose(FOUR.to_numpy(Q @ R), A, atol=1e-12)
    np.testing.assert_allclose(Q.T @ Q, np.eye(3), atol=1e-12)
    with pytest.raises(IndexError, match="all rows"):
        S[0]


@pytest.mark.parametrize("transposed", [False, True])
def test_kernels_on_shards(transposed):
    rng = np.random.default_rng(0)
    A = sp.random_array((23, 7), density=0.4, random_state=0, format="csr")
    B, H = rng.standard_normal((23, 3)), rng.standard_normal((7, 3))
    p, q = rng.uniform(1, 2, 23), rng.uniform(1, 2, 7)
    whole, shards = cpu.prepare(A, float), FOUR.prepare(A, float)
    left, right = (B, H), (cut(B), H)
    weights = (p, q), (cut(p[:, None])[:, 0], q)
    if transposed:
        whole, shards = cpu.transpose(whole), FOUR.transpose(shards)
        left, right, weights = left[::-1], right[::-1], tuple(pair[::-1] for pair in weights)

    def same(ours, theirs):
        np.testing.assert_allclose(FOUR.to_numpy(theirs), ours, atol=1e-12)

    same(cpu.spmm(whole, left[1]), FOUR.spmm(shards, right[1]))
    same(cpu.spmm_t(whole, left[0]), FOUR.spmm_t(shards, right[0]))
    same(cpu.gram(whole), FOUR.gram(shards))
    cell = LOSSES["logistic"]()
    assert FOUR.cells_value(cell, shards, *right) == pytest.approx(cpu.cells_value(cell, whole, *left))
    ours, theirs = cpu.cells_model(cell, whole, *left), FOUR.cells_model(cell, shards, *right)
    assert theirs.value == pytest.approx(ours.value)
    same(ours.gradient, theirs.gradient)
    same(ours.row_curvature, theirs.row_curvature)
    same(cpu.column_sums(whole, ours.cell_curvature), FOUR.column_sums(shards, theirs.cell_curvature))
    hessp = (
        cpu.cells_hessp(whole, ours.cell_curvature, *left),
        FOUR.cells_hessp(shards, theirs.cell_curvature, *right),
    )
    same(*hessp)
    curvatures = ours.cell_curvature, theirs.cell_curvature
    same(cpu.cells_diagonal(whole, curvatures[0], left[1]), FOUR.cells_diagonal(shards, curvatures[1], right[1]))
    scores = cpu.sddmm(whole, *left), FOUR.sddmm(shards, *right)
    line = (
        cpu.cells_sum(cell, whole, scores[0], scores[0], 0.5),
        FOUR.cells_sum(cell, shards, scores[1], scores[1], 0.5),
    )
    assert line[0] == pytest.approx(line[1])
    fixed = (cell, whole, (-1.0, 1.0), weights[0]), (cell, shards, (-1.0, 1.0), weights[1])
    assert FOUR.all_value(*fixed[1], *right) == pytest.approx(cpu.all_value(*fixed[0], *left))
    ours, theirs = cpu.all_model(*fixed[0], *left), FOUR.all_model(*fixed[1], *right)
    same(ours.gradient, theirs.gradient)
    same(ours.row_curvature, theirs.row_curvature)
    same(cpu.all_hessp(*fixed[0], left[0], *left), FOUR.all_hessp(*fixed[1], right[0], *right))


def test_rankings_on_shards():
    rng = np.random.default_rng(0)
    B, H = rng.standard_normal((9, 3)), rng.standard_normal((6, 3))
    seen = sp.random_array((9, 6), density=0.3, random_state=0, format="csr")
    for ours, theirs in zip(
        cpu.topk(B, H, 2, cpu.prepare(seen, float)), FOUR.topk(cut(B), H, 2, FOUR.prepare(seen, float)), strict=True
    ):
        np.testing.assert_array_equal(theirs, ours)
    assert isinstance(cut(B), ShardedArray)
