"""The one-class objective against a dense brute force over every cell, for every row of the paper's table 1."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from labelgap.kernels import cpu
from labelgap.losses import LOSSES, Logistic, Squared
from labelgap.objectives import Features, Problem
from labelgap.objectives.base import Graph, GraphPenalty, compute_laplacian
from labelgap.objectives.cells import AllCellsSquared, KnownCells, Weights
from labelgap.objectives.features import Identity
from labelgap.objectives.positive_unlabelled import CorrectedLoss, PositiveUnlabelled, sample_unlabelled
from labelgap.solvers.base import inner

N, D, L, DL, K = 19, 7, 13, 5, 3
FORMULATIONS = {
    "SQ-SQ": PositiveUnlabelled(Squared(), Squared(), 0.0, Weights()),
    "SQ-wSQ": PositiveUnlabelled(Squared(), Squared(), -1.0, Weights.of(1.0, 0.3)),
    **{
        f"{name}-wSQ": PositiveUnlabelled(cls(), Squared(), -1.0, Weights.of(1.0, 0.3))
        for name, cls in LOSSES.items()
    },
    "LR-wLR": PositiveUnlabelled(Logistic(), Logistic(), -1.0, Weights.of(1.0, 0.3)),
    "LR-wSQ, target 0.5": PositiveUnlabelled(Logistic(), Squared(), 0.5, Weights.of(1.0, 2.0)),
    "LR-wSQ, importance": PositiveUnlabelled(
        Logistic(), Squared(), -1.0, Weights.of(1.0, 0.3), Weights(np.linspace(0.2, 2, N)[:, None])
    ),
}
every_formulation = pytest.mark.parametrize("name", FORMULATIONS)
every_side = pytest.mark.parametrize("side", ["left", "right"])


def data(seed=0):
    rng = np.random.default_rng(seed)
    Y = (rng.random((N, L)) < 0.25).astype(float)
    Y[3], Y[:, 2] = 0, 0
    graphs = [np.triu(rng.random((size, size)) * (rng.random((size, size)) < 0.3), 1) for size in (N, L)]
    for graph in graphs:
        graph += graph.T
        graph[5], graph[:, 5] = 0, 0  # a node without neighbours
    return Y, rng.standard_normal((N, D)), rng.standard_normal((L, DL)), *graphs


def formulation(name, uneven):
    one = FORMULATIONS[name]
    if not uneven:
        return one
    rng = np.random.default_rng(7)
    weights = Weights(rng.uniform(0, 1, (N, 1)), rng.uniform(0, 1, (L, 1)))
    return replace(one, weights=weights)


class Everything:
    """One problem with features and graphs on both sides, and its value by brute force."""

    def __init__(self, name, uneven=True, features=True, graphs=True, precompute=False):
        self.one = formulation(name, uneven)
        self.Y, X, Z, S, G = data()
        self.S, self.G = (S, G) if graphs else (0 * S, 0 * G)
        self.A = np.hstack([X, np.ones((N, 1))]) if features else np.eye(N)
        self.Z = Z if features else np.eye(L)
        left = Features(sp.csr_array(X), cpu, float, constant=True) if features else Identity(N)
        right = Features(Z, cpu, float) if features else Identity(L)
        rng = np.random.default_rng(1)
        self.alphas = rng.uniform(0.1, 1, (self.A.shape[1], 1)), rng.uniform(0.1, 1, (self.Z.shape[1], 1))
        terms = [GraphPenalty(Graph.of(graph, cpu, float), 0.7) for graph in (S, G)] if graphs else []
        self.problem = Problem.of(
            self.one.bind(sp.csr_array(self.Y), cpu, float),
            left,
            right,
            alpha=self.alphas[0],
            alpha_labels=self.alphas[1],
            left_terms=terms[:1],
            right_terms=terms[1:],
            precompute=precompute,
        )
        self.W, self.H = rng.standard_normal((self.A.shape[1], K)), rng.standard_normal((self.Z.shape[1], K))

    def brute_force(self, W, H):
        B, C = self.A @ W, self.Z @ H
        scores, (p, q) = B @ C.T, self.one.weights
        plus = self.one.loss.functions().value(self.one.loss.positive, scores)
        minus = p * np.transpose(q) * self.one.unlabelled_loss.functions().value(self.one.negative_target, scores)
        total = (self.one.importance.rows * np.where(self.Y == 1, plus, minus)).sum()
        total += 0.5 * sum((alpha * M**2).sum() for alpha, M in zip(self.alphas, (W, H)))
        for graph, M in ((self.S, B), (self.G, C)):
            differences = ((M[:, None] - M[None]) ** 2).sum(2)
            total += 0.25 * 0.7 * (graph * differences).sum()
        return total

    def side(self, name):
        if name == "left":
            return self.problem.objective_in_left(self.H), self.W, lambda W: self.brute_force(W, self.H)
        return self.problem.objective_in_right(self.W), self.H, lambda H: self.brute_force(self.W, H)


SETTINGS = {
    "features and graphs": {},
    "features": {"graphs": False},
    "graphs": {"features": False},
    "neither": {"features": False, "graphs": False},
    "one weight": {"uneven": False},
    "precomputed": {"precompute": True},
    "precomputed, one weight": {"precompute": True, "uneven": False},
}


@every_formulation
@every_side
@pytest.mark.parametrize("setting", SETTINGS)
def test_value_gradient_and_hessian_product_are_those_of_the_brute_force(name, side, setting):
    whole = Everything(name, **SETTINGS[setting])
    objective, point, value = whole.side(side)
    model = objective.model(point)
    assert objective.value(point) == pytest.approx(value(point), rel=1e-11)
    assert model.value == pytest.approx(value(point), rel=1e-11)
    rng, h = np.random.default_rng(2), 1e-6
    for _ in range(3):
        S = rng.standard_normal(point.shape)
        slope = (value(point + h * S) - value(point - h * S)) / (2 * h)
        assert inner(model.gradient, S) == pytest.approx(slope, rel=1e-5, abs=1e-6 * abs(model.value))
        gradients = [objective.model(point + step * h * S).gradient for step in (-1, 1)]
        change = (gradients[1] - gradients[0]) / (2 * h)
        np.testing.assert_allclose(model.hessp(S), change, rtol=1e-5, atol=1e-5 * np.abs(change).max())


@every_formulation
@every_side
@pytest.mark.parametrize("setting", ["features and graphs", "precomputed"])
def test_a_line_through_the_objective(name, side, setting):
    objective, point, value = Everything(name, **SETTINGS[setting]).side(side)
    S = np.random.default_rng(3).standard_normal(point.shape)
    line = objective.along(point, S)
    for step in (0.0, 1.0, 0.25, -0.5):
        assert line(step) == pytest.approx(value(point + step * S), rel=1e-10)


@every_side
def test_uneven_weights_on_squared_cells_with_positives(side):
    """The Gram form weighs positives like all other cells."""
    Y, *_ = data()
    p, q = (np.random.default_rng(5).uniform(0, 1, (size, 1)) for size in (N, L))
    cells = AllCellsSquared(cpu, Squared(), cpu.prepare(sp.csr_array(Y), float), (-0.5, 2.0), Weights(p, q))
    cells = cells if side == "left" else cells.T
    targets, weights = np.where(Y == 1, 2.0, -0.5), p * q.T
    targets, weights = (targets, weights) if side == "left" else (targets.T, weights.T)
    rng = np.random.default_rng(6)
    B, H = rng.standard_normal((len(targets), K)), rng.standard_normal((targets.shape[1], K))
    model = cells.objective_in_left(H).model(B)
    assert model.value == pytest.approx(0.5 * (weights * (targets - B @ H.T) ** 2).sum())
    np.testing.assert_allclose(model.gradient, (weights * (B @ H.T - targets)) @ H, atol=1e-12)
    np.testing.assert_allclose(cells.multiply_targets(H), (weights * targets) @ H, atol=1e-12)


@every_formulation
def test_the_start_follows_the_slope_at_zero(name):
    whole = Everything(name)
    cells, H = whole.problem.cells, np.random.default_rng(8).standard_normal((L, K))
    slope = cells.objective_in_left(H).model(np.zeros((N, K))).gradient
    np.testing.assert_allclose(cells.multiply_targets(H), -slope, atol=1e-12)


def test_the_whole_is_convex_where_the_correction_is_not():
    whole = Everything("LR-wSQ, target 0.5", uneven=False, graphs=False)
    cell = CorrectedLoss(Logistic(), Squared(), 0.5)
    assert cell.functions().curvature(2.0, 0.0) < 0
    objective, point, _ = whole.side("left")
    hessp, rng = objective.model(point).hessp, np.random.default_rng(9)
    for _ in range(20):
        S = rng.standard_normal(point.shape)
        assert inner(S, hessp(S)) > 0


@pytest.mark.parametrize("ratio", [0.25, 1.0, 2.0, 100.0])
def test_drawn_cells_are_others_and_few(ratio):
    Y, *_ = data()
    drawn = sample_unlabelled(sp.csr_array(Y), ratio, 3)
    expected = min(round(ratio * Y.sum()), N * L - int(Y.sum()))
    assert drawn.nnz == expected
    assert drawn.toarray().max() == 1
    assert (drawn.toarray() * Y).sum() == 0
    np.testing.assert_array_equal(drawn.toarray(), sample_unlabelled(sp.csr_array(Y), ratio, 3).toarray())


@pytest.mark.parametrize("loss", list(LOSSES))
def test_sampled_cells_sum_the_positives_and_the_drawn(loss):
    Y, *_ = data()
    loss = LOSSES[loss]()
    one = PositiveUnlabelled(loss, loss, loss.negative, Weights.of(1.0, 0.5))
    cells = one.bind_sample(sp.csr_array(Y), 2.0, 3, cpu, float)
    drawn = sample_unlabelled(sp.csr_array(Y), 2.0, 3).toarray()
    rng = np.random.default_rng(4)
    B, H = rng.standard_normal((N, K)), rng.standard_normal((L, K))
    value = loss.functions().value
    expected = (Y * value(loss.positive, B @ H.T)).sum() + 0.5 * (drawn * value(loss.negative, B @ H.T)).sum()
    assert cells.objective_in_left(H).value(B) == pytest.approx(expected)
    assert cells.T.objective_in_left(B).value(H) == pytest.approx(expected)


def test_a_graph_penalty_is_the_sum_over_its_edges():
    S = sp.csr_array([[1.0, 3.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 9.0]])  # directed, self-loops, an isolated node
    np.testing.assert_allclose(compute_laplacian(S).toarray(), [[2, -2, 0], [-2, 2, 0], [0, 0, 0]])
    B = np.array([[1.0, 0.0], [0.0, 2.0], [50.0, 50.0]])
    assert GraphPenalty(Graph.of(S, cpu, float), 3.0).value(B) == pytest.approx(1.5 * 2 * 5)


def test_the_near_form_is_exact_where_the_positives_have_the_same_curvature_as_the_rest():
    """Squared loss on both sides with weight ½: rows and labels with equally many positives share one block."""
    Y = sp.csr_array(np.kron(np.eye(4), np.ones((1, 1))))
    one = PositiveUnlabelled(Squared(), Squared(), -1.0, Weights.of(1.0, 0.5))
    H = np.ones((4, 2)) @ np.diag([1.0, 2.0])  # every label alike, so that the margins say all
    model = one.bind(Y, cpu, float).objective_in_left(H).model(np.zeros((4, 2)))
    S = np.random.default_rng(0).standard_normal((4, 2))
    form = model.kronecker.weights * (S @ model.kronecker.M)
    np.testing.assert_allclose(form, model.hessp(S), atol=1e-12)
    assert isinstance(one.bind(Y, cpu, float).parts[1], KnownCells)


@pytest.mark.parametrize("gamma", [0.01, 1.0, 100.0])
def test_balancing_with_graphs_never_raises_the_objective(gamma):
    Y, X, _, S, G = data()
    problem = Problem.of(
        FORMULATIONS["logistic-wSQ"].bind(sp.csr_array(Y), cpu, float),
        Features(X, cpu, float),
        alpha=0.5,
        alpha_labels=2.0,
        left_terms=[GraphPenalty(Graph.of(S, cpu, float), gamma)],
        right_terms=[GraphPenalty(Graph.of(G, cpu, float), gamma)],
    )
    rng = np.random.default_rng(11)
    W, H = rng.standard_normal((D, K)), rng.standard_normal((L, K))
    new_W, new_H, gain = problem.balance(W, H)
    assert gain >= 0
    assert problem.value(new_W, new_H) == pytest.approx(problem.value(W, H) - gain, rel=1e-10)
    np.testing.assert_allclose(new_W @ new_H.T, W @ H.T, atol=1e-10)
