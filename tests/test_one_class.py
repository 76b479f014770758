"""One-class factorization: LEML inside it, one minimum for all solvers, what weights, features and graphs do."""

from __future__ import annotations

import warnings
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from labelgap import LEML, Labels, OneClassMF, hide_positives
from labelgap.datasets import make_low_rank
from labelgap.estimators import one_class
from labelgap.kernels import cpu
from labelgap.losses import LOSSES, Squared
from labelgap.metrics import instance_auc, precision_at_k
from labelgap.objectives import Features, Problem
from labelgap.objectives.cells import Weights
from labelgap.objectives.positive_unlabelled import PositiveUnlabelled, sample_unlabelled
from labelgap.solvers import TRON, Direct, GradientDescent, NewtonCG
from test_one_class_objective import Everything, every_side

N, D, L, K = 24, 5, 9, 3


def clicks(seed=0, n=N, L=L, density=0.25):
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, L)) < density).astype(int)
    Y[2], Y[:, 3] = 0, 0  # an empty user, a label without positives
    return Y


def rows(seed=1, n=N, d=D):
    return np.random.default_rng(seed).standard_normal((n, d))


def similarity(size, seed=2, density=0.2):
    """A symmetric graph whose node 4 has no neighbours."""
    rng = np.random.default_rng(seed)
    S = np.triu(rng.random((size, size)) * (rng.random((size, size)) < density), 1)
    S[4], S[:, 4] = 0, 0
    return S + S.T


def make(**options):
    return OneClassMF(
        **{"n_components": K, "alpha": 0.3, "dtype": "float64", "random_state": 0, "n_jobs": 1, **options}
    )


def fitted(model, Y, X=None, S=None, G=None, Z=None):
    return model.fit(X, Y, row_graph=S, label_graph=G, label_features=Z)


# --- LEML is a special case ----------------------------------------------------------------------------------------

SQ_SQ = {"loss": "squared", "weight_unlabelled": 1.0, "negative_target": 0.0}


@pytest.mark.parametrize("solver", ["auto", "direct", "cg", "tron"])
@pytest.mark.parametrize("precompute", [False, True])
@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_squares_of_weight_one_are_leml(solver, precompute, wrap):
    X, Y = wrap(rows(n=60, d=8)), clicks(n=60, L=12)
    shared = {"alpha": 0.7, "alpha_labels": 0.2, "solver": solver, "max_iter": 8, "tol": 0.0, "random_state": 0}
    theirs = LEML(K, dtype="float64", **shared)
    ours = OneClassMF(K, dtype="float64", precompute=precompute, **SQ_SQ, **shared)
    for model in (theirs, ours):
        model.fit(X, Y)
    np.testing.assert_allclose(ours.objective_, theirs.objective_, rtol=1e-8)
    for name in ("feature_factors_", "intercept_factors_", "label_factors_"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), atol=1e-8)
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-8)


# --- one minimum ---------------------------------------------------------------------------------------------------

EXACT = {
    "cg": NewtonCG(tol=1e-9, cg_tol=1e-9, cg_iter=2000, max_iter=100),
    "tron": TRON(tol=1e-9, cg_iter=2000, max_iter=500),
    "gd": GradientDescent(tol=1e-6, max_iter=20_000),
}


@every_side
@pytest.mark.parametrize("name", ["logistic-wSQ", "SQ-wSQ", "LR-wLR", "squared_hinge-wSQ"])
def test_every_solver_ends_at_the_same_objective(name, side):
    """With features, graphs, uneven weights and penalties, with the d×d matrix made beforehand and without."""
    found = {}
    for precompute in (False, True):
        objective, start, value = Everything(name, precompute=precompute).side(side)
        scale = np.abs(objective.model(start).gradient).max()
        for solver, exact in EXACT.items():
            x = exact.minimize(objective, start).x
            found[solver, precompute] = value(x)
            assert np.abs(objective.model(x).gradient).max() < 1e-5 * scale, solver
    best = min(found.values())
    assert found == pytest.approx(dict.fromkeys(found, best), rel=1e-6)
    assert best < 0.9 * value(start)


@every_side
@pytest.mark.parametrize("precompute", [False, True])
def test_squares_of_weight_one_have_a_direct_solution(side, precompute):
    one = PositiveUnlabelled(Squared(), Squared(), 0.0, Weights())
    left, right = Features(rows(), cpu, float, constant=True), Features(rows(3, L, 4), cpu, float)
    cells = one.bind(sp.csr_array(clicks()), cpu, float)
    problem = Problem.of(cells, left, right, alpha=0.5, alpha_labels=0.1, precompute=precompute)
    rng = np.random.default_rng(4)
    W, H = rng.standard_normal((D + 1, K)), rng.standard_normal((4, K))
    objective, start = (problem.objective_in_left(H), W) if side == "left" else (problem.objective_in_right(W), H)
    direct = Direct().minimize(objective, start)
    assert direct.value == pytest.approx(EXACT["cg"].minimize(objective, start).value, rel=1e-9)
    assert direct.value == pytest.approx(objective.value(direct.x), rel=1e-9)
    assert np.abs(objective.model(direct.x).gradient).max() < 1e-10


# --- the formula ---------------------------------------------------------------------------------------------------


class Dense:
    """F of the docstring and its gradient, cell by cell on dense arrays."""

    def __init__(self, model, Y, X=None, S=None, G=None, Z=None):
        self.model, self.Y = model, Y
        n, L = Y.shape
        self.A = np.eye(n) if X is None else np.hstack([X, np.ones((n, 1))]) if model.fit_intercept else X
        self.Z = np.eye(L) if Z is None else Z
        self.laplacians = [None if graph is None else np.diag(graph.sum(1)) - graph for graph in (S, G)]
        given = model.weight_unlabelled
        p, q = given if isinstance(given, tuple) else (given, 1.0)
        self.weights = np.broadcast_to(p, n)[:, None] * np.broadcast_to(q, L)
        if model.negatives == "subsampled":
            drawn = sample_unlabelled(sp.csr_array(Y), model.negative_ratio, model.random_state)
            self.weights = self.weights * drawn.toarray()
        label_gamma = model.graph_alpha if model.label_graph_alpha is None else model.label_graph_alpha
        self.gammas = model.graph_alpha, label_gamma

    def factors(self):
        m = self.model
        W = (
            np.vstack([m.feature_factors_, m.intercept_factors_])[: self.A.shape[1]]
            if m.n_features_in_
            else m.row_factors_
        )
        return W, getattr(m, "label_feature_factors_", m.label_factors_)

    def penalties(self):
        alpha = np.ravel(self.model.alpha)
        alpha_labels = alpha.mean() if self.model.alpha_labels is None else np.ravel(self.model.alpha_labels)
        if 1 < len(alpha) < self.A.shape[1]:
            alpha = np.append(alpha, alpha.mean())
        return alpha[:, None], np.reshape(alpha_labels, (-1, 1))

    def cells(self, which, scores):
        plus, minus = LOSSES[self.model.loss](), LOSSES[self.model.loss_unlabelled]()
        of_positives = getattr(plus.functions(), which)(1.0, scores)
        of_others = self.weights * getattr(minus.functions(), which)(self.model.negative_target, scores)
        return np.where(self.Y == 1, of_positives, of_others)

    def value(self):
        W, H = self.factors()
        B, C = self.A @ W, self.Z @ H
        total = self.cells("value", B @ C.T).sum()
        total += 0.5 * sum((alpha * M**2).sum() for alpha, M in zip(self.penalties(), (W, H)))
        for gamma, laplacian, M in zip(self.gammas, self.laplacians, (B, C)):
            total += 0 if laplacian is None else 0.5 * gamma * np.trace(M.T @ laplacian @ M)
        return total

    def gradients(self):
        W, H = self.factors()
        B, C = self.A @ W, self.Z @ H
        slopes = self.cells("gradient", B @ C.T)
        inner = [slopes @ C, slopes.T @ B]
        for i, (gamma, laplacian, M) in enumerate(zip(self.gammas, self.laplacians, (B, C))):
            inner[i] += 0 if laplacian is None else gamma * laplacian @ M
        alphas = self.penalties()
        return self.A.T @ inner[0] + alphas[0] * W, self.Z.T @ inner[1] + alphas[1] * H


RNG = np.random.default_rng(8)
P, Q = RNG.uniform(0.05, 0.5, N), RNG.uniform(0.5, 1.5, L)
P[[5, 6]], Q[7] = 0, 0  # rows and a label whose unlabelled cells say nothing
FORMULAS = {
    "one weight": ({}, {}),
    "squared": ({"loss": "squared"}, {}),
    "squared hinge": ({"loss": "squared_hinge"}, {}),
    "LR-wLR": ({"loss_unlabelled": "logistic", "weight_unlabelled": (P, Q)}, {}),
    "p and q": ({"weight_unlabelled": (P, Q)}, {}),
    "p alone": ({"weight_unlabelled": (P, 0.5)}, {}),
    "q alone": ({"weight_unlabelled": (0.2, Q)}, {}),
    "a penalty for each row and label": (
        {"alpha": RNG.uniform(0.1, 1, N), "alpha_labels": RNG.uniform(0.1, 1, L), "weight_unlabelled": (P, Q)},
        {},
    ),
    "labels follow the mean penalty": ({"alpha": RNG.uniform(0.1, 1, N)}, {}),
    "features": ({"weight_unlabelled": (P, Q), "precompute": False}, {"X": rows()}),
    "features, precomputed": ({"weight_unlabelled": (P, Q), "precompute": True}, {"X": rows()}),
    "no intercept": ({"fit_intercept": False}, {"X": rows()}),
    "a penalty for each feature": (
        {"alpha": RNG.uniform(0.1, 1, D), "alpha_labels": RNG.uniform(0.1, 1, 4)},
        {"X": rows(), "Z": rows(3, L, 4)},
    ),
    "subsampled": ({"negatives": "subsampled", "negative_ratio": 1.5}, {"X": rows()}),
    "graphs": ({"weight_unlabelled": (P, Q), "graph_alpha": 0.6}, {"S": similarity(N), "G": similarity(L)}),
    "everything": (
        {"weight_unlabelled": (P, Q), "graph_alpha": 0.6, "label_graph_alpha": 0.2},
        {"X": rows(), "Z": rows(3, L, 4), "S": similarity(N), "G": similarity(L)},
    ),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_a_long_fit_is_stationary_in_the_formula(name):
    options, side = FORMULAS[name]
    Y = clicks()
    model = fitted(make(max_iter=3000, tol=1e-13, **options), Y, **side)
    dense = Dense(model, Y, **side)
    assert model.objective_[-1] == pytest.approx(dense.value(), rel=1e-10)
    assert model.n_iter_ == len(model.objective_)
    assert (np.diff(model.objective_) <= 1e-10 * model.objective_[0]).all()
    assert min(np.abs(factor).max() for factor in dense.factors()) > 0.1
    for gradient in dense.gradients():
        assert np.abs(gradient).max() < 1e-4


def test_a_row_of_weight_0_does_not_look_at_its_unlabelled_cells():
    """Its factors are those of a loss on its positives alone, found by setting their gradient to 0."""
    Y, p = clicks(), np.full(N, 0.2)
    p[5] = 0
    model = fitted(make(loss="squared", weight_unlabelled=(p, 1.0), max_iter=500, tol=1e-13), Y)
    H = model.label_factors_[Y[5] == 1]
    alone = np.linalg.solve(H.T @ H + model.alpha * np.eye(K), H.sum(0))
    np.testing.assert_allclose(model.row_factors_[5], alone, atol=1e-4)


# --- solvers, precision, threads, seeds ----------------------------------------------------------------------------

WITH_SIDES = {"X": rows(), "S": similarity(N), "G": similarity(L)}
KINDS = {
    "logistic": {},
    "squared": {"loss": "squared"},
    "squared hinge": {"loss": "squared_hinge"},
    "LR-wLR": {"loss_unlabelled": "logistic"},
    "subsampled": {"negatives": "subsampled"},
}
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
every_side_given = pytest.mark.parametrize(
    "side", [{}, {"X": rows()}, WITH_SIDES], ids=["plain", "features", "features and graphs"]
)


@pytest.mark.parametrize("kind", ["logistic", "squared hinge"])
def test_every_solver_brings_the_objective_down_to_the_same_place(kind):
    ends = {}
    for solver in ("cg", "tron", "gd"):
        for precompute in (False, True):
            model = make(solver=solver, precompute=precompute, max_iter=400, tol=1e-9, **KINDS[kind])
            fitted(model, clicks(), X=rows())
            assert (np.diff(model.objective_) <= 1e-9 * model.objective_[0]).all()
            ends[solver, precompute] = model.objective_[-1]
    assert ends == pytest.approx(dict.fromkeys(ends, min(ends.values())), rel=1e-6)


@every_kind
@every_side_given
def test_float32_is_near_float64(kind, side):
    Y = clicks()
    models = [
        fitted(make(dtype=dtype, max_iter=300, tol=1e-6, **kind), Y, **side) for dtype in ("float32", "float64")
    ]
    assert models[0].label_factors_.dtype == np.float32
    scores = [model.decision_function(side.get("X")) for model in models]
    assert scores[0].dtype == np.float32
    assert models[0].objective_[-1] == pytest.approx(models[1].objective_[-1], rel=1e-4)
    np.testing.assert_allclose(*scores, atol=0.02)


def test_threads_and_seeds_repeat_a_fit():
    Y, S = clicks(n=300, L=60, density=0.1), similarity(300, density=0.05)
    models = [fitted(make(n_jobs=n, tol=1e-2, max_iter=50), Y, S=S) for n in (1, 1, 2)]
    np.testing.assert_array_equal(models[0].row_factors_, models[1].row_factors_)
    np.testing.assert_allclose(models[2].row_factors_, models[0].row_factors_, atol=1e-8)
    np.testing.assert_allclose(models[2].objective_, models[0].objective_, rtol=1e-10)


def test_the_seed_draws_the_start_and_the_negatives():
    Y = clicks()
    for options in ({"init": "random"}, {"negatives": "subsampled"}):
        starts = [fitted(make(random_state=seed, tol=0.1, **options), Y).row_factors_ for seed in (0, 0, 1)]
        np.testing.assert_array_equal(starts[0], starts[1])
        assert np.abs(starts[0] - starts[2]).max() > 1e-3


# --- warm starts, callbacks, interrupts ----------------------------------------------------------------------------


@every_side_given
def test_a_warm_start_goes_on(side):
    Y = clicks()
    model, ends = make(max_iter=2, tol=1e-12, warm_start=True), []
    for _ in range(4):
        with pytest.warns(ConvergenceWarning):
            fitted(model, Y, **side)
        ends.append((model.objective_[0], model.objective_[-1]))
    for (_, last), (first, _) in pairwise(ends):
        assert first <= last * (1 + 1e-10)
    once = clone(model).set_params(max_iter=8)
    with pytest.warns(ConvergenceWarning):
        fitted(once, Y, **side)
    assert once.objective_[-1] == pytest.approx(model.objective_[-1], rel=1e-8)
    if "S" not in side:
        with pytest.raises(ValueError, match=r"warm_start=True, but .* clone the estimator for a new start"):
            fitted(model, clicks(n=N, L=L + 1), **side)


def test_a_warm_start_keeps_the_factors_of_label_features():
    Y, Z = clicks(), rows(3, L, 4)
    model = make(max_iter=300, tol=1e-9, warm_start=True)
    fitted(model, Y, Z=Z)
    end = model.objective_[-1]
    assert model.label_feature_factors_.shape == (4, K)
    np.testing.assert_allclose(model.label_factors_, Z @ model.label_feature_factors_, atol=1e-12)
    fitted(model, Y, Z=Z)
    assert model.n_iter_ <= 2
    assert model.objective_[-1] == pytest.approx(end, rel=1e-6)


def test_callbacks_see_every_alternation_and_may_stop():
    seen = []
    model = make(tol=0, callbacks=[seen.append, lambda told: told.number == 3])
    fitted(model, clicks(), X=rows())
    assert (model.n_iter_, model.status_) == (3, "stopped")
    assert [told.objective for told in seen] == model.objective_
    assert seen[-1].feature_factors.shape == (D + 1, K)
    np.testing.assert_array_equal(seen[-1].label_factors, model.label_factors_)


@every_side_given
def test_an_interrupt_keeps_the_last_whole_alternation(side):
    def interrupt(told):
        if told.number == 2:
            raise KeyboardInterrupt

    Y, model = clicks(), make(tol=0, callbacks=[interrupt])
    with pytest.raises(KeyboardInterrupt):
        fitted(model, Y, **side)
    assert (model.n_iter_, model.status_) == (2, "stopped")
    whole = fitted(make(tol=0, callbacks=[lambda told: told.number == 2]), Y, **side)
    X = side.get("X")
    np.testing.assert_array_equal(model.decision_function(X), whole.decision_function(X))


def test_an_error_in_a_callback_leaves_the_model_as_it_was():
    def fail(told):
        raise RuntimeError("no")

    model = make(callbacks=[fail])
    with pytest.raises(RuntimeError, match="no"):
        fitted(model, clicks())
    with pytest.raises(NotFittedError):
        model.predict(None)
    fitted(model.set_params(callbacks=None), clicks(), X=rows())
    before = model.decision_function(rows())
    with pytest.raises(RuntimeError, match="no"):
        fitted(model.set_params(callbacks=[fail]), clicks())
    np.testing.assert_array_equal(model.decision_function(rows()), before)


def test_too_few_alternations_warn_where_fit_was_called():
    model = make(max_iter=2, tol=1e-12)
    with pytest.warns(ConvergenceWarning, match=r"OneClassMF stopped after max_iter=2 .*; raise max_iter") as caught:
        model.fit(None, clicks())
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert model.status_ == "max_iter"
    assert np.isfinite(model.decision_function(None)).all()


def test_verbose_prints_a_line_for_each_alternation(capsys):
    model = fitted(make(verbose=2, tol=1e-2), clicks())
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"OneClassMF {i + 1}/15: F = {value:.6g}" for i, value in enumerate(model.objective_)]


# --- planted truth -------------------------------------------------------------------------------------------------


def auc_of_hidden(scores, Y, kept):
    """How well the positives that training did not show are ranked among all cells that it did not show."""
    return instance_auc(np.where(kept == 1, np.nan, Y), scores)


@pytest.fixture(scope="module")
def forgotten():
    """Planted labels of which two fifths were written down."""
    truth = make_low_rank(600, 20, 30, 3, labels_per_row=6, noise=0.3, random_state=0)
    return truth, hide_positives(truth.Y[:400], 0.4, random_state=0)


def test_hidden_positives_are_ranked_better_than_by_taking_gaps_for_a_no(forgotten):
    truth, kept = forgotten
    X, Y, test = truth.X[:400], truth.Y[:400].toarray(), truth.X[400:]

    def measured(model):
        model.fit(X, kept)
        hidden = auc_of_hidden(model.decision_function(X), Y, kept.toarray())
        return hidden, precision_at_k(truth.Y[400:], model.decision_function(test), 3)

    blind = np.max([measured(LEML(3, alpha=alpha, random_state=0)) for alpha in (0.1, 1.0, 10.0)], axis=0)
    ours = measured(OneClassMF(3, weight_unlabelled=0.03, random_state=0))
    assert ours[0] > blind[0] + 0.04
    assert ours[1] > blind[1] + 0.06


@pytest.mark.parametrize("kind", ["LR-wLR", "subsampled"])
def test_other_negatives_rank_sensibly(kind, forgotten):
    truth, kept = forgotten
    options = {"LR-wLR": {"weight_unlabelled": 0.1}, "subsampled": {"weight_unlabelled": 1.0}}[kind]
    model = OneClassMF(4, alpha=0.3, random_state=0, **KINDS[kind], **options).fit(truth.X[:400], kept)
    found = precision_at_k(truth.Y[400:], model.decision_function(truth.X[400:]), 3)
    counts = np.tile(np.asarray(kept.sum(0), float), (200, 1))
    popular = precision_at_k(truth.Y[400:], counts, 3)
    assert found > popular + 0.2


def test_label_features_help_a_label_without_positives():
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((300, 8)), rng.standard_normal((40, 6))
    scores = X @ rng.standard_normal((8, 3)) @ rng.standard_normal((3, 6)) @ Z.T
    Y = (scores > np.quantile(scores, 0.8)).astype(int)
    shown = Y.copy()
    shown[:, :5] = 0
    found = {}
    for name, given in (("with", Z), ("without", None)):
        model = OneClassMF(4, alpha=0.3, weight_unlabelled=0.03, random_state=0).fit(X, shown, label_features=given)
        found[name] = instance_auc(Y[:, :5].T, model.decision_function(X)[:, :5].T)
    assert found["with"] > 0.95
    assert found["without"] < 0.65


def test_a_row_graph_helps_rows_with_few_positives():
    rng = np.random.default_rng(0)
    B, H = rng.standard_normal((200, 3)), rng.standard_normal((40, 3))
    scores = B @ H.T
    Y = (scores > np.quantile(scores, 0.8)).astype(int)
    chance = np.where(np.arange(200) < 60, 0.1, 0.6)[:, None]
    kept = Y * (rng.random(Y.shape) < chance)
    distances = ((B[:, None] - B[None]) ** 2).sum(2) + np.diag(np.full(200, np.inf))
    S = np.zeros((200, 200))
    np.put_along_axis(S, np.argsort(distances, axis=1)[:, :6], 1.0, axis=1)
    S = np.maximum(S, S.T)
    few, found = np.arange(60), {}
    for name, graph in (("with", S), ("without", None)):
        model = OneClassMF(4, alpha=0.3, random_state=0).fit(None, kept, row_graph=graph)
        found[name] = auc_of_hidden(model.decision_function(few), Y[:60], kept[:60])
    assert found["with"] > found["without"] + 0.08


# --- edges ---------------------------------------------------------------------------------------------------------


def test_isolated_nodes_empty_users_and_labels_without_positives():
    Y, S, G = clicks(), similarity(N), similarity(L)
    assert (S[4].sum(), G[4].sum(), Y[2].sum(), Y[:, 3].sum()) == (0, 0, 0, 0)
    for side in ({}, {"X": rows()}, {"S": S}, {"S": S, "G": G}, {"X": rows(), "S": S, "G": G, "Z": rows(3, L, 4)}):
        model = fitted(make(weight_unlabelled=0.3, tol=1e-2), Y, **side)
        scores = model.decision_function(side.get("X"))
        assert np.isfinite(scores).all()
        if "Z" not in side:
            assert scores[:, 3].mean() < scores[:, Y.sum(0) > 3].mean() - 0.1


def test_a_graph_without_edges_or_weight_changes_nothing():
    Y, S = clicks(), similarity(N)
    plain = fitted(make(tol=1e-3), Y)
    for graph, gamma in ((np.zeros((N, N)), 1.0), (S, 0.0)):
        same = fitted(make(tol=1e-3, graph_alpha=gamma), Y, S=graph)
        assert same.objective_[-1] == pytest.approx(plain.objective_[-1], rel=1e-3)


@pytest.mark.parametrize("Y", [np.zeros((N, L), int), np.ones((N, L), int)], ids=["none", "all"])
@every_kind
def test_no_positives_and_nothing_else(Y, kind):
    for X in (None, rows()):
        model = fitted(make(n_components=1, **kind), Y, X=X)
        assert np.isfinite(model.decision_function(X)).all()
        if kind.get("negatives") != "subsampled":
            assert (model.predict(X) == Y).all()


def test_a_ratio_that_asks_for_all_cells_draws_none():
    Y = clicks(n=150, L=150, density=0.4)
    drawn = fitted(make(negatives="subsampled", negative_ratio=2.0, tol=1e-2), Y)
    np.testing.assert_array_equal(drawn.row_factors_, fitted(make(tol=1e-2), Y).row_factors_)
    assert drawn.unlabelled_share_ == 1
    few = fitted(make(negatives="subsampled", negative_ratio=0.5, tol=1e-2), Y)
    assert few.unlabelled_share_ == pytest.approx(0.5 * Y.sum() / (Y == 0).sum())


def test_unknown_cells_and_negatives_are_unlabelled():
    Y = clicks()
    observed = np.random.default_rng(0).random(Y.shape) < 0.7
    plain = fitted(make(tol=1e-3), Y * observed)
    for given, mask in ((np.where(observed, Y, np.nan), None), (Y, observed), (sp.csr_array(2 * Y - 1), observed)):
        model = make(tol=1e-3).fit(None, given, mask)
        np.testing.assert_array_equal(model.row_factors_, plain.row_factors_)
    np.testing.assert_array_equal(plain.predict(None), plain.decision_function(None) > 0)


def test_a_directed_graph_is_made_symmetric_and_said_so():
    Y, S, G = clicks(), similarity(N), similarity(L)
    for name, whole in (("row_graph", S), ("label_graph", G)):
        directed = sp.csr_array(2 * np.triu(whole))
        model = make(tol=1e-3)
        with pytest.warns(UserWarning, match=rf"{name} is directed; .* the mean of its two weights") as caught:
            model.fit(None, Y, **{name: directed})
        assert len(caught) == 1
        assert caught[0].filename == __file__
        same = make(tol=1e-3).fit(None, Y, **{name: whole})
        np.testing.assert_allclose(model.row_factors_, same.row_factors_, atol=1e-10)


def test_rounding_does_not_make_a_graph_directed():
    S = similarity(N)
    uneven = S * (1 + 1e-12 * np.triu(np.ones((N, N))))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model, same = (make(tol=0.1).fit(None, clicks(), row_graph=graph) for graph in (uneven, S))
    assert not [warning for warning in caught if "directed" in str(warning.message)]
    np.testing.assert_allclose(model.row_factors_, same.row_factors_, atol=1e-8)


X, Y, S = rows(), clicks(), similarity(N)
BAD = [
    ({}, {"row_graph": S[:-1]}, r"row_graph has shape \(23, 24\); pass a square .* each of the 24 nodes"),
    ({}, {"row_graph": similarity(L)}, r"row_graph has shape \(9, 9\); pass a square .* each of the 24 nodes"),
    ({}, {"row_graph": -S}, r"row_graph holds a negative weight, -.*; pass similarities of at least 0"),
    ({}, {"row_graph": S * np.nan}, r"row_graph holds NaN or infinity; pass finite similarities"),
    ({}, {"row_graph": sp.csr_array(np.where(S > 0, np.inf, 0))}, r"row_graph holds NaN or infinity"),
    ({}, {"label_graph": S}, r"label_graph has shape \(24, 24\); pass a square .* each of the 9 nodes"),
    ({}, {"label_graph": -similarity(L)}, r"label_graph holds a negative weight"),
    ({}, {"label_features": X}, r"label_features has 24 rows and Y has 9 labels; pass a row for each label"),
    ({}, {"label_features": np.full((L, 3), np.nan)}, r"Input label_features contains NaN"),
    (
        {"n_components": 3},
        {"label_features": rows(3, L, 2)},
        r"n_components=3 is above .*label features\) .* at most 2",
    ),
    ({"weight_unlabelled": -0.1}, {}, r"weight_unlabelled=-0\.1 is out of range; pass a finite number of at least 0"),
    ({"weight_unlabelled": np.inf}, {}, r"weight_unlabelled=inf is out of range"),
    ({"weight_unlabelled": None}, {}, r"weight_unlabelled=None is out of range"),
    ({"weight_unlabelled": "much"}, {}, r"weight_unlabelled='much' is out of range"),
    ({"weight_unlabelled": (-P, Q)}, {}, r"weight_unlabelled\[0\] holds -0\..*; pass finite numbers of at least 0"),
    ({"weight_unlabelled": (P, Q * np.nan)}, {}, r"weight_unlabelled\[1\] holds nan; pass finite numbers"),
    (
        {"weight_unlabelled": (P[1:], Q)},
        {},
        r"weight_unlabelled\[0\] has an array of shape \(23,\); .* an array of 24",
    ),
    ({"weight_unlabelled": (P, Q[1:])}, {}, r"weight_unlabelled\[1\] has an array of shape \(8,\); .* an array of 9"),
    ({"weight_unlabelled": (0.1, -1.0)}, {}, r"weight_unlabelled\[1\]=-1\.0 is out of range"),
    ({"weight_unlabelled": P}, {}, r"weight_unlabelled has 24 parts; pass a number, or the pair of arrays p and q"),
    ({"alpha": [1.0, 2.0]}, {}, r"alpha has an array of shape \(2,\); pass a number, or an array of 24"),
    ({"alpha": -np.ones(N)}, {}, r"alpha holds -1\.0; pass finite numbers of at least 0"),
    ({"alpha": -1.0}, {}, r"alpha=-1\.0 is out of range; pass a finite number"),
    (
        {"alpha_labels": np.ones(N)},
        {},
        r"alpha_labels has an array of shape \(24,\); pass a number, or an array of 9",
    ),
    ({"graph_alpha": -1.0}, {}, r"graph_alpha=-1\.0 is out of range"),
    ({"label_graph_alpha": np.nan}, {}, r"label_graph_alpha=nan is out of range"),
    ({"negatives": "few"}, {}, r"negatives='few' is not known; choose from \['all', 'subsampled'\]"),
    ({"negative_ratio": -1.0}, {}, r"negative_ratio=-1\.0 is out of range"),
    ({"negative_target": np.nan}, {}, r"negative_target=nan is out of range; pass a finite number"),
    ({"negative_target": -np.inf}, {}, r"negative_target=-inf is out of range; pass a finite number"),
    ({"loss_unlabelled": "hinge"}, {}, r"loss_unlabelled='hinge' is not known; choose from \['squared', 'log"),
    ({"precompute": "maybe"}, {}, r"precompute='maybe' is not known"),
    ({"solver": "direct"}, {}, r"solver='direct' solves squared loss .* use solver='cg'"),
    ({"n_components": 10}, {}, r"n_components=10 is above min\(rows, labels\) = min\(24, 9\) = 9"),
]


@pytest.mark.parametrize(("options", "side", "message"), BAD, ids=[case[2][:40] for case in BAD])
def test_bad_input_gets_one_clear_error(options, side, message):
    model = make(tol=0.1).fit(None, Y)
    before, scores = set(vars(model)), model.decision_function(None)
    with pytest.raises(ValueError, match=message):
        model.set_params(**options).fit(None, Y, **side)
    assert set(vars(model)) == before
    np.testing.assert_array_equal(model.decision_function(None), scores)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (None, r"Y is None; pass the positives"),
        (Y[:, :0], r"Y has shape \(24, 0\); pass at least one row and one label"),
        (Y[:0], r"Y has shape \(0, 9\); pass at least one row and one label"),
        (5 * Y, r"Y holds 5 .*labels must be 0/1"),
    ],
)
def test_bad_labels_without_features(labels, message):
    with pytest.raises(ValueError, match=message):
        make().fit(None, labels)


def test_penalties_with_features_are_for_each_feature():
    with pytest.raises(ValueError, match=rf"alpha has an array of shape \({N},\); pass a number, or an array of {D}"):
        make(alpha=np.ones(N)).fit(X, Y)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([N], rf"X holds {N}, which was not in fit; pass numbers from 0 to {N - 1}"),
        ([-1], r"X holds -1, which was not in fit"),
        ([0.5], r"X holds values of type float64 .*; pass a list of integers"),
        (X, r"X holds values of type float64 and shape \(24, 5\); pass a list of integers"),
    ],
)
def test_rows_that_fit_never_saw(ids, message):
    model = make(tol=0.1).fit(None, Y)
    for method in (model.predict, model.decision_function, model.predict_topk):
        with pytest.raises(ValueError, match=message):
            method(ids)


def test_rows_without_features_are_known_by_number():
    model = make(tol=1e-2).fit(None, Y)
    whole = model.decision_function(None)
    np.testing.assert_allclose(whole, model.row_factors_ @ model.label_factors_.T, atol=1e-12)
    np.testing.assert_allclose(model.decision_function([7, 0, 7]), whole[[7, 0, 7]], atol=1e-12)
    np.testing.assert_array_equal(model.predict_topk([3], 2)[0][0], np.argsort(-whole[3])[:2])
    assert model.score(None, Y) == pytest.approx(precision_at_k(Y, whole, 1))
    assert model.n_features_in_ == 0
    assert model.feature_factors_.shape == (0, K)


def test_a_refit_without_features_forgets_them():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    model = make(tol=0.1, keep_rows=True).fit(
        pandas.DataFrame(X, columns=list("abcde")), Y, label_features=rows(3, L, 4)
    )
    model.set_params(keep_rows=False).fit(None, Y)
    fresh = make(tol=0.1).fit(None, Y)
    assert vars(model).keys() == vars(fresh).keys()
    np.testing.assert_array_equal(model.row_factors_, fresh.row_factors_)
    assert not hasattr(model.fit(X, Y), "row_factors_")


@pytest.mark.parametrize("negatives", ["all", "subsampled"])
def test_a_row_of_weight_two_counts_as_two_rows(negatives):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((30, 4)), (rng.random((30, 6)) < 0.3).astype(float)
    twice = np.r_[np.arange(30), np.arange(5)]
    common = {"n_components": 2, "dtype": "float64", "random_state": 0, "tol": 1e-10, "max_iter": 60}
    weight = np.where(np.arange(30) < 5, 2.0, 1.0)
    if negatives == "subsampled":  # so many that all cells are drawn
        common |= {"negatives": negatives, "negative_ratio": 50.0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = OneClassMF(**common).fit(X, Y, row_weights=weight)
        other = OneClassMF(**common).fit(X[twice], Y[twice])
    assert model.objective_[-1] == pytest.approx(other.objective_[-1], rel=1e-7)
    np.testing.assert_allclose(model.decision_function(X), other.decision_function(X), atol=1e-3)


def test_a_graph_is_not_solved_directly():
    graph = np.ones((6, 6)) - np.eye(6)
    with pytest.raises(ValueError, match="solver='direct'"):
        OneClassMF(
            2, loss="squared", weight_unlabelled=1.0, negative_target=0.0, solver="direct", random_state=0
        ).fit(None, np.eye(6), row_graph=graph)


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_a_target_that_draws_unlabelled_cells_up_is_refused(loss):
    with pytest.raises(ValueError, match="negative_target=0"):
        OneClassMF(loss_unlabelled=loss, negative_target=0.0).fit(None, np.eye(3))


@pytest.mark.parametrize(
    "graph", [object(), [[1], [1, 2]], "graph", np.ones((3, 3), complex)], ids=["object", "ragged", "text", "complex"]
)
def test_a_graph_that_is_no_matrix(graph):
    with pytest.raises(ValueError, match="row_graph is not a similarity matrix"):
        OneClassMF(2).fit(None, np.eye(3), row_graph=graph)


def test_row_weights_must_be_weights():
    with pytest.raises(ValueError, match="row_weights has an array of shape"):
        OneClassMF().fit(None, np.eye(3), row_weights=2.0)
    with pytest.raises(ValueError, match="row_weights"):
        OneClassMF().fit(None, np.eye(3), row_weights=[1.0, -1.0, 1.0])


def test_wide_sparse_rows_reach_the_same_minimum_without_eigenvectors(monkeypatch):
    rng = np.random.RandomState(0)
    X = sp.random_array((120, 90), density=0.04, format="csr", random_state=0)
    Y = sp.csr_array((X[:, :12].toarray() > 0) | (rng.uniform(size=(120, 12)) < 0.05))
    model = OneClassMF(4, alpha=0.5, dtype="float64", max_iter=60, tol=1e-6, random_state=0)
    products = model.fit(X, Y).objective_[-1]
    assert one_class.has_slow_eigenvectors(model._bind(X, Labels(Y)).left)
    monkeypatch.setattr(one_class, "has_slow_eigenvectors", lambda features: False)
    assert products == pytest.approx(model.fit(X, Y).objective_[-1], rel=1e-4)
