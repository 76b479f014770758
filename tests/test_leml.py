"""LEML's mathematics: the same minimum by every solver, the closed form, the nuclear norm, planted truth."""

import weakref

import numpy as np
import pytest
import scipy.sparse as sp

from labelgap import LEML, Labels, hide_cells
from labelgap.datasets import make_low_rank, make_sparse_multilabel
from labelgap.kernels import cpu
from labelgap.losses import LOSSES
from labelgap.metrics import hamming_loss, instance_auc, precision_at_k
from labelgap.objectives import Features, Problem, bind_label_cells, solve, start
from labelgap.objectives.problem import Options
from labelgap.solvers import TRON, Direct, NewtonCG, reduced_rank_regression, rounds

EXACT = {
    "cg": NewtonCG(tol=1e-9, cg_tol=1e-9, cg_iter=2000),
    "cg, published form": NewtonCG(tol=1e-9, cg_tol=1e-9, cg_iter=2000, joint=True, precondition=False),
    "tron": TRON(tol=1e-9, cg_iter=2000, max_iter=500),
    "tron, published form": TRON(tol=1e-9, cg_iter=2000, max_iter=500, precondition=False),
}


def regression(n=60, d=12, L=9, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    Y = (X @ rng.standard_normal((d, L)) + rng.standard_normal((n, L)) > 0.8).astype(float)
    return X, Y


def problem(X, labels, loss, alpha, constant=True):
    cells = bind_label_cells(labels, LOSSES[loss](), cpu, np.float64)
    return Problem.of(cells, Features(X, cpu, np.float64, constant=constant), alpha=alpha)


@pytest.mark.parametrize("by_eigenvectors", [True, False])
def test_all_solvers_end_at_the_same_objective(by_eigenvectors, monkeypatch):
    if not by_eigenvectors:
        monkeypatch.setattr("labelgap.objectives.features.MAX_EIGEN_ORDER", 0)
    X, Y = regression()
    H = np.random.default_rng(1).standard_normal((9, 4))
    objective = problem(sp.csr_array(X), Labels(Y), "squared", 0.5).objective_in_left(H)
    start = np.zeros((13, 4))
    values = {name: solver.minimize(objective, start).value for name, solver in EXACT.items()}
    values["direct"] = Direct(tol=1e-10, max_iter=2000).minimize(objective, start).value
    best = min(values.values())
    assert values == pytest.approx(dict.fromkeys(values, best), rel=1e-6)
    assert values["direct"] <= best * (1 + 1e-9)


@pytest.mark.parametrize("rank", [1000, 3], ids=["diagonal", "sketch"])
@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("loss", ["squared", "logistic", "squared_hinge"])
def test_rounds_descend_to_a_minimum_as_low_as_that_of_half_steps(loss, gaps, rank, monkeypatch):
    X, Y = regression(n=80, seed=5)
    labels = hide_cells(Y, 0.6, random_state=0) if gaps else Labels(Y)
    runs = {}
    for name, order in (("half steps", 1000), ("rounds", 0)):
        monkeypatch.setattr("labelgap.objectives.features.MAX_EIGEN_ORDER", order)
        monkeypatch.setattr("labelgap.objectives.features.MIN_SKETCH_RANK", rank)
        monkeypatch.setattr("labelgap.objectives.features.MAX_SKETCH_RANK", rank)
        both = problem(sp.csr_array(X), labels, loss, 0.5)
        fit = start(both, 4, init="svd", random_state=np.random.RandomState(0), dtype=np.float64)
        runs[name] = solve(both, fit, Options(both.make_solver("auto"), 300, 1e-9))
        assert float(both.value(fit.W, fit.H)) == pytest.approx(fit.history[-1], rel=1e-9)
    rounds = runs["rounds"]
    assert np.all(np.diff(rounds.history) <= 1e-9 * rounds.history[0])
    assert rounds.history[-1] <= runs["half steps"].history[-1] * 1.03  # F has several minima
    gradient = both.objective_in_left(rounds.H).model(rounds.W).gradient
    assert np.abs(gradient).max() <= 0.02


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("gaps", [False, True])
def test_steps_that_are_too_long_are_shortened(loss, gaps, monkeypatch):
    monkeypatch.setattr("labelgap.objectives.features.MAX_EIGEN_ORDER", 0)
    X, Y = regression(n=80, seed=5)
    both = problem(sp.csr_array(X), hide_cells(Y, 0.6, random_state=0) if gaps else Labels(Y), loss, 0.5)
    histories = {}
    for length in (1.4, 300.0):
        solver = both.make_solver("auto")
        solver._length = length
        fit = start(both, 4, init="svd", random_state=np.random.RandomState(0), dtype=np.float64)
        before = float(both.value(fit.W, fit.H))
        histories[length] = [before, *solve(both, fit, Options(solver, 40, 1e-7)).history]
        assert np.all(np.diff(histories[length]) <= 1e-9 * before)
    assert histories[300.0][-1] == pytest.approx(histories[1.4][-1], rel=0.05)  # F has several minima


def test_rounds_take_a_fraction_of_the_products(monkeypatch):
    """Few rounds reach what half steps of a dozen products reach."""
    monkeypatch.setattr("labelgap.objectives.features.MAX_EIGEN_ORDER", 0)
    X, Y = make_sparse_multilabel(600, 200, 50, 20, 3, random_state=0)
    products, plain = [], Features.t_times
    monkeypatch.setattr(Features, "t_times", lambda self, *B: products.append(1) or plain(self, *B))
    counts = {}
    for solver in ("direct", "auto"):
        both = problem(X, Labels(Y), "squared", 0.1)
        fit = start(both, 10, init="svd", random_state=np.random.RandomState(0), dtype=np.float64)
        products.clear()
        goal = counts["direct"][1] if counts else -np.inf
        stop = [lambda done, goal=goal: done.objective <= goal]
        solve(both, fit, Options(both.make_solver(solver), 3 if solver == "direct" else 30, -1.0, callbacks=stop))
        counts[solver] = len(products), fit.history[-1]
    assert counts["auto"][1] <= counts["direct"][1]
    assert counts["auto"][0] < 0.5 * counts["direct"][0]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("side", ["left", "right"])
def test_newton_methods_agree_on_every_subproblem(loss, gaps, side):
    X, Y = regression(seed=2)
    labels = hide_cells(Y, 0.5, random_state=0) if gaps else Labels(Y)
    rng = np.random.default_rng(3)
    W, H = 0.3 * rng.standard_normal((13, 4)), rng.standard_normal((9, 4))
    both = problem(X, labels, loss, 0.5)
    objective, start = (both.objective_in_left(H), W) if side == "left" else (both.objective_in_right(W), H)
    found = {name: solver.minimize(objective, start) for name, solver in EXACT.items()}
    best = min(solution.value for solution in found.values())
    for name, solution in found.items():
        assert solution.value == pytest.approx(best, rel=1e-8), name
        scale = np.abs(objective.model(start).gradient).max()
        assert np.abs(objective.model(solution.x).gradient).max() < 1e-6 * scale, name


@pytest.mark.parametrize("k", [1, 3, 9])
def test_closed_form_is_the_best_of_its_rank(k):
    X, Y = regression()
    W, H = reduced_rank_regression(X, Y, k)
    residual = np.linalg.norm(Y - X @ W @ H.T) ** 2
    fitted = X @ np.linalg.lstsq(X, Y, rcond=None)[0]
    lost = (np.linalg.svd(fitted, compute_uv=False)[k:] ** 2).sum()
    assert residual == pytest.approx(np.linalg.norm(Y - fitted) ** 2 + lost, rel=1e-10)
    np.testing.assert_allclose(H.T @ H, np.eye(k), atol=1e-10)


@pytest.mark.parametrize("deficient", [False, True])
def test_closed_form_is_cplst(deficient):
    """Claim 2: H = the leading eigenvectors of Yᵀ X X⁺ Y, W = X⁺ Y H."""
    X, Y = regression()
    if deficient:
        X[:, -1] = X[:, 0] - X[:, 1]
    H = np.linalg.eigh(Y.T @ X @ np.linalg.pinv(X) @ Y)[1][:, ::-1][:, :4]
    expected = np.linalg.pinv(X) @ Y @ H @ H.T
    W, H = reduced_rank_regression(X, sp.csr_array(Y), 4)
    np.testing.assert_allclose(W @ H.T, expected, atol=1e-9)


@pytest.mark.parametrize("init", ["svd", "random"])
@pytest.mark.parametrize("k", [2, 5])
def test_alternation_without_penalty_reaches_the_closed_form(init, k):
    X, Y = regression()
    model = LEML(
        k, alpha=0.0, init=init, fit_intercept=False, dtype="float64", max_iter=3000, tol=1e-13, random_state=0
    ).fit(X, Y)
    W, H = reduced_rank_regression(X, Y, k)
    assert model.objective_[-1] == pytest.approx(0.5 * np.linalg.norm(Y - X @ W @ H.T) ** 2, rel=1e-6)
    np.testing.assert_allclose(model.decision_function(X) + 0.5, X @ W @ H.T, atol=1e-3)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("gaps", [False, True])
def test_full_rank_alternation_reaches_the_nuclear_norm_optimum(loss, gaps):
    """At min f(Z) + α ‖Z‖_tr: ‖∇f‖₂ ≤ α and ⟨−∇f, Z⟩ = α ‖Z‖_tr."""
    X, Y = regression(n=40, d=6, L=5, seed=5)
    labels = hide_cells(Y, 0.6, random_state=0) if gaps else Labels(Y)
    alpha = 4.0
    both = problem(X, labels, loss, alpha, constant=False)
    solver = NewtonCG(tol=1e-8, cg_tol=1e-8, cg_iter=500)
    rng = np.random.default_rng(0)
    W, H = np.zeros((6, 5)), rng.standard_normal((5, 5))
    for _ in range(150):
        W = solver.minimize(both.objective_in_left(H), W).x
        H = solver.minimize(both.objective_in_right(W), H).x
        W, H, _ = both.balance(W, H)
    Z = W @ H.T
    dense = labels.toarray()
    cell = LOSSES[loss]()
    targets = np.where(dense == 1, cell.positive, cell.negative)
    slope = np.where(np.isnan(dense), 0, cell.functions(np).gradient(targets, X @ Z))
    G = X.T @ slope
    nuclear = np.linalg.svd(Z, compute_uv=False).sum()
    assert nuclear > 0.1
    assert np.linalg.norm(G, 2) <= alpha * (1 + 1e-3)
    assert -(G * Z).sum() == pytest.approx(alpha * nuclear, rel=1e-4)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("gaps", [False, True])
def test_the_objective_never_rises(loss, gaps):
    X, Y = regression(seed=6)
    labels = hide_cells(Y, 0.6, random_state=0) if gaps else Labels(Y)
    model = LEML(4, loss=loss, alpha=0.3, dtype="float64", tol=1e-6, max_iter=200, random_state=0).fit(X, labels)
    assert len(model.objective_) > 2
    assert np.all(np.diff(model.objective_) <= 1e-9 * model.objective_[0])
    both = problem(X, labels, loss, 0.3)
    W = np.vstack([model.feature_factors_, model.intercept_factors_])
    assert model.objective_[-1] == pytest.approx(both.value(W, model.label_factors_), rel=1e-9)


def test_planted_truth_is_recovered_from_a_quarter_of_the_cells():
    truth = make_low_rank(2400, 30, 40, 3, labels_per_row=8, random_state=0)
    labels = hide_cells(truth.Y, 0.25, random_state=0)
    model = LEML(3, alpha=0.1, loss="logistic", max_iter=60, random_state=0).fit(truth.X, labels)
    scores = model.decision_function(truth.X)
    hidden = truth.Y.toarray().astype(float)
    hidden[labels.known.toarray().astype(bool)] = np.nan
    assert instance_auc(hidden, scores) > 0.965


def test_learning_from_gaps_beats_taking_them_for_negatives():
    truth = make_low_rank(2000, 40, 30, 4, labels_per_row=6, noise=0.2, random_state=1)
    labels = hide_cells(truth.Y[:1500], 0.2, random_state=0)
    aware = LEML(4, alpha=1.0, random_state=0).fit(truth.X[:1500], labels)
    blind = LEML(4, alpha=1.0, random_state=0).fit(truth.X[:1500], labels.positives)
    found = {name: m.decision_function(truth.X[1500:]) for name, m in (("aware", aware), ("blind", blind))}
    precision = {name: precision_at_k(truth.Y[1500:], scores, 3) for name, scores in found.items()}
    error = {name: hamming_loss(truth.Y[1500:], scores) for name, scores in found.items()}
    assert precision["aware"] > precision["blind"] + 0.01
    assert error["aware"] < 0.8 * error["blind"]


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_all_cells_are_never_held_at_once(loss, monkeypatch):
    """Every n×L product is of a block: none is larger than the block size."""
    X, Y = regression(n=400, L=30, d=5, seed=7)
    monkeypatch.setattr(cpu, "MAX_BLOCK_BYTES", 30 * 8 * 20)
    whole = LEML(3, loss=loss, dtype="float64", random_state=0, device="cpu").fit(X, Y)
    sizes = []
    plain = cpu._sum_over_block
    monkeypatch.setattr(cpu, "_sum_over_block", lambda *a: (sizes.append(a[-2].size), plain(*a))[1])
    again = LEML(3, loss=loss, dtype="float64", random_state=0, device="cpu").fit(X, Y)
    assert len(sizes) > 20
    assert max(sizes) <= max(30, 400) * 20
    np.testing.assert_allclose(again.label_factors_, whole.label_factors_)


def test_float32_does_not_stall_where_nearly_all_of_a_label_is_explained():
    for seed in range(12):
        X = np.random.default_rng(seed).standard_normal((800, 2))
        assert LEML(1, random_state=0).fit(X, (X[:, :1] > -1.64).astype(float)).status_ == "converged"


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_features_whose_products_overflow_are_named(loss):
    rng = np.random.default_rng(0)
    X, Y = (1e36 * rng.standard_normal((300, 100))).astype(np.float32), rng.random((300, 30)) < 0.2
    with pytest.raises(ValueError, match=r"too large or too small for dtype='float32' .*; scale the features"):
        LEML(4, loss=loss).fit(X, Y.astype(float))


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_a_weight_of_two_counts_as_two_rows(loss, gaps):
    X, Y = regression(seed=3)
    if gaps:
        Y[np.random.default_rng(0).random(Y.shape) < 0.3] = np.nan
    weights = 1 + np.arange(len(X)) % 2
    repeated = np.repeat(np.arange(len(X)), weights)
    model = LEML(9, loss=loss, alpha=0.5, tol=1e-9, max_iter=300, dtype="float64", random_state=0)
    weighted = model.fit(X, Y, sample_weight=weights).decision_function(X)
    np.testing.assert_allclose(weighted, model.fit(X[repeated], Y[repeated]).decision_function(X), atol=2e-3)
    with pytest.raises(ValueError, match="sample_weight"):
        model.fit(X, Y, sample_weight=weights[1:])


def test_a_score_counts_rows_by_their_weights():
    X, Y = regression()
    model = LEML(3, random_state=0).fit(X, Y)
    weights = 1 + np.arange(len(X)) % 3
    repeated = np.repeat(np.arange(len(X)), weights)
    assert model.score(X, Y, sample_weight=weights) == pytest.approx(model.score(X[repeated], Y[repeated]))
    assert model.score(X, Y) == pytest.approx(precision_at_k(Y, model.decision_function(X), 1))


def test_an_alternation_does_not_hold_the_image_of_the_last_one(monkeypatch):
    monkeypatch.setattr("labelgap.objectives.features.MAX_EIGEN_ORDER", 0)
    X, Y = make_sparse_multilabel(80, 30, 10, 6, 2, random_state=0)
    find_step, images = rounds._find_step, []

    def watch(problem, point, H, value):
        alive = [image() for image in images if image() is not None]
        assert all(image is point.B for image in alive)
        images.append(weakref.ref(point.B))
        return find_step(problem, point, H, value)

    monkeypatch.setattr(rounds, "_find_step", watch)
    LEML(3, max_iter=3, tol=0.0, random_state=0, device="cpu").fit(X, Y)
    assert len(images) >= 3
