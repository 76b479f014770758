"""BinaryRelevance: every label at its own minimum, whatever the path that leads there."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import LinearSVC

import reference_kernels as reference
from labelgap import BinaryRelevance, Labels, LabelwiseSVM
from labelgap.estimators.label_models import FoldRidge
from labelgap.kernels import cpu, get_backend
from labelgap.kernels.elementwise import CompiledLoss
from labelgap.kernels.loops import add_column_values, write_column_model
from labelgap.losses import LOSSES, Loss, SquaredHinge
from labelgap.objectives import embeddings, held_out_ridge
from labelgap.objectives.features import Features, WithoutConstant
from labelgap.objectives.held_out_ridge import HeldOutRidge, leave_each_out
from labelgap.objectives.labelwise import (
    LabelwiseObjectives,
    add_rows,
    find_constants,
    find_new_rows,
    minimize_label,
    scale_and_shift,
    write_row_scores,
)
from labelgap.solvers.column_newton import ColumnNewton

ALPHA = 0.7
FORMS = {"dense": np.asarray, "sparse": sp.csr_array}
exact = {"alpha": ALPHA, "dtype": "float64", "tol": 1e-10}


def gradients(model, X, Y):
    """∇F in (w, b) of each label without its l1 part, cell by cell; L×(d + 1)."""
    loss = LOSSES[model.loss]()
    W = np.column_stack([weights(model), model.intercept_ + loss.threshold])
    rows = np.column_stack([X, np.ones(len(X))])
    targets = np.where(Y == 1, loss.positive, loss.negative)
    slopes = np.where(np.isnan(Y), 0, loss.functions(np).gradient(targets, rows @ W.T))
    gradient = slopes.T @ rows + model.alpha * W
    return gradient if model.fit_intercept else gradient[:, :-1]


def weights(model):
    return model.coef_.toarray() if sp.issparse(model.coef_) else model.coef_


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("gaps", [False, True], ids=["complete", "gaps"])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("constant", [True, False], ids=["constant", "no constant"])
def test_the_gradient_of_every_label_is_0(loss, gaps, form, constant, planted):
    data = planted(n=80, d=12, L=9)
    Y = data.gaps if gaps else data.Y.astype(float)
    model = BinaryRelevance(loss=loss, fit_intercept=constant, **exact).fit(form(data.X), Y)
    assert model.status_ == "converged"
    assert np.abs(gradients(model, data.X, Y)).max() < 1e-6
    if not constant:
        np.testing.assert_array_equal(model.intercept_, -LOSSES[loss]().threshold)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("alpha", [0.0, 0.3], ids=["l1 alone", "l1 and l2"])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_l1_leaves_a_weight_at_0_where_its_gradient_is_small(loss, alpha, form, planted):
    """At the minimum ∂F/∂w is −l1 sign(w) where w ≠ 0, and at most l1 in size where w = 0; b has no l1."""
    data, l1 = planted(n=80, d=12, L=9), 4.0
    model = BinaryRelevance(**exact | {"alpha": alpha}, l1=l1, loss=loss).fit(form(data.X), data.gaps)
    slope, W = gradients(model, data.X, data.gaps), weights(model)
    assert 0.2 < (W == 0).mean() < 0.9
    np.testing.assert_allclose(slope[:, -1], 0, atol=1e-5)
    np.testing.assert_allclose(slope[:, :-1][W != 0], -l1 * np.sign(W[W != 0]), atol=1e-5)
    assert np.abs(slope[:, :-1][W == 0]).max() <= l1 + 1e-5


def machines(data, make):
    return [make().fit(data.X, y) for y in data.Y.T]


def test_the_same_as_liblinear(planted):
    data = planted(n=80, d=12)
    ours = BinaryRelevance(**exact).fit(data.X, data.Y)
    theirs = machines(data, lambda: LinearSVC(C=1 / ALPHA, dual=False, tol=1e-10, max_iter=10_000))
    np.testing.assert_allclose(ours.coef_, np.vstack([one.coef_ for one in theirs]), atol=1e-6)
    np.testing.assert_allclose(ours.intercept_, np.hstack([one.intercept_ for one in theirs]), atol=1e-6)
    svm = LabelwiseSVM(1 / ALPHA).fit(data.X, data.Y)
    np.testing.assert_allclose(ours.decision_function(data.X), svm.decision_function(data.X), atol=1e-6)


def test_the_same_as_logistic_regression(planted):
    data = planted(n=80, d=12)
    ours = BinaryRelevance(loss="logistic", **exact).fit(data.X, data.Y)
    theirs = machines(data, lambda: LogisticRegression(C=1 / ALPHA, solver="liblinear", tol=1e-10, max_iter=10_000))
    np.testing.assert_allclose(ours.coef_, np.vstack([one.coef_ for one in theirs]), atol=1e-6)
    np.testing.assert_allclose(ours.intercept_, np.hstack([one.intercept_ for one in theirs]), atol=1e-6)


def test_the_same_as_ridge_regression(planted):
    data = planted(n=80, d=12)
    ours = BinaryRelevance(loss="squared", fit_intercept=False, **exact).fit(data.X, data.Y)
    theirs = Ridge(ALPHA, fit_intercept=False).fit(data.X, data.Y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-8)
    np.testing.assert_array_equal(ours.predict(data.X), theirs.predict(data.X) > 0.5)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("constant", [True, False], ids=["constant", "no constant"])
def test_ridge_by_conjugate_gradients_is_the_factorised_one(form, constant, planted, monkeypatch):
    data = planted(n=80, d=12, L=9)
    exact_model = BinaryRelevance(loss="squared", fit_intercept=constant, **exact).fit(form(data.X), data.Y)
    monkeypatch.setattr("labelgap.objectives.embeddings.MAX_FACTOR_ORDER", 0)
    model = BinaryRelevance(loss="squared", fit_intercept=constant, **exact).fit(form(data.X), data.Y)
    assert np.abs(gradients(model, data.X, data.Y.astype(float))).max() < 1e-6
    np.testing.assert_allclose(model.coef_, exact_model.coef_, atol=1e-6)
    np.testing.assert_allclose(model.intercept_, exact_model.intercept_, atol=1e-6)


@pytest.mark.parametrize("ridge", [0.0, 0.7])
def test_a_system_without_its_constant_is_the_schur_complement(ridge, planted):
    X, R = planted(n=20, d=5).X, np.random.default_rng(0).standard_normal((6, 2))
    full = np.column_stack([X, np.ones(20)])
    G = full.T @ full + ridge * np.eye(6)
    reduced = WithoutConstant(Features(X, cpu, float, constant=True), ridge)
    schur = G[:-1, :-1] - np.outer(G[-1, :-1], G[-1, :-1]) / G[-1, -1]
    product = reduced.t_times(reduced.times(np.eye(5)))
    np.testing.assert_allclose(product + ridge * np.eye(5), schur, atol=1e-10)
    np.testing.assert_allclose(reduced.column_squares().ravel(), np.diag(product), atol=1e-10)
    W = np.linalg.solve(schur, reduced.reduce(R))
    np.testing.assert_allclose(reduced.restore(W, R[-1:]), np.linalg.solve(G, R), atol=1e-8)


def test_one_label_by_hand():
    """x = ±1 for yes and no: w = ⅔ and b = 0 solve w = 2 (1 − w) for α = 2 · 1, as the slope −2 · 2 (1 − w) + 2 w."""
    model = BinaryRelevance(2.0, dtype="float64", tol=1e-12).fit([[1.0], [-1.0]], [[1], [0]])
    np.testing.assert_allclose(model.coef_, [[2 / 3]])
    np.testing.assert_allclose(model.intercept_, [0], atol=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("constant", [True, False])
def test_one_observed_class_is_predicted(loss, form, constant, planted):
    data = planted(L=3)
    Y = data.gaps
    Y[:, 0], Y[:, 1] = np.where(data.observed[:, 0], 1, np.nan), np.where(data.observed[:, 1], 0, np.nan)
    model = BinaryRelevance(loss=loss, fit_intercept=constant).fit(form(data.X), Y)
    assert (model.predict(100 * data.X)[:, :2] == [1, 0]).all()
    assert not weights(model)[:2].any()


def test_the_constant_of_one_class_by_hand():
    """Squared hinge: 2 n (1 − b) = α b; with n = 3 and α = 2 it is ¾, for either class."""
    model = BinaryRelevance(2.0, dtype="float64").fit(np.eye(3), [[1, 0]] * 3)
    np.testing.assert_allclose(model.intercept_, [0.75, -0.75])


def test_a_label_of_which_nothing_is_known_has_no_score(planted):
    data = planted()
    Y = data.gaps
    Y[:, 2] = np.nan
    model = BinaryRelevance().fit(data.X, Y)
    assert not model.coef_[2].any()
    assert model.intercept_[2] == 0


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_threshold_cuts_small_weights(form, planted):
    data = planted(d=12)
    whole = BinaryRelevance(**exact).fit(form(data.X), data.Y)
    cut = BinaryRelevance(threshold=0.3, **exact).fit(form(data.X), data.Y)
    assert sp.issparse(cut.coef_)
    assert 0 < cut.coef_.nnz < whole.coef_.size
    np.testing.assert_array_equal(cut.coef_.toarray(), np.where(np.abs(whole.coef_) < 0.3, 0, whole.coef_))
    np.testing.assert_array_equal(cut.intercept_, whole.intercept_)


@pytest.mark.parametrize("options", [{}, {"threshold": 0.05}, {"l1": 2.0}], ids=str)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_decisions_rankings_and_known_scores_agree(options, form, planted):
    data = planted(n=60, d=12, L=20)
    model = BinaryRelevance(dtype="float64", **options).fit(form(data.X), data.gaps)
    expected = data.X @ weights(model).T + model.intercept_
    X = form(data.X)
    np.testing.assert_allclose(model.decision_function(X), expected, atol=1e-12)
    indices, scores = model.predict_topk(X, 7)
    np.testing.assert_allclose(scores, -np.sort(-expected, axis=1)[:, :7], atol=1e-12)
    np.testing.assert_allclose(np.take_along_axis(expected, indices, axis=1), scores, atol=1e-12)
    known = model.known_scores(X, data.gaps)
    np.testing.assert_allclose(known.data, expected[data.observed], atol=1e-12)
    other = sp.csr_array(data.X) if form is np.asarray else data.X
    np.testing.assert_allclose(model.decision_function(other), expected, atol=1e-12)
    np.testing.assert_array_equal(model.predict_topk(other, 7)[0], indices)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_threads_change_nothing(loss, form, planted, monkeypatch):
    monkeypatch.setattr("labelgap.estimators.label_models.MAX_LABELS_PER_BLOCK", 8)
    data = planted(n=150, d=30, L=40, k=5)
    one, two = (BinaryRelevance(loss=loss, n_jobs=n).fit(form(data.X), data.gaps) for n in (1, 2))
    np.testing.assert_array_equal(one.coef_, two.coef_)
    np.testing.assert_array_equal(one.intercept_, two.intercept_)


@pytest.mark.parametrize("loss", LOSSES)
def test_labels_do_not_depend_on_each_other(loss, planted):
    data = planted(n=80, d=12, L=30)
    whole = BinaryRelevance(loss=loss, **exact).fit(data.X, data.gaps)
    for j in (0, 17):
        alone = BinaryRelevance(loss=loss, **exact).fit(data.X, data.gaps[:, [j]])
        np.testing.assert_allclose(alone.coef_[0], whole.coef_[j], atol=1e-7)


@pytest.mark.parametrize("constant", [True, False])
def test_few_dense_features_come_to_the_same_minimum_by_hessians(constant, planted, monkeypatch):
    """However loose ``tol`` is, they come to where conjugate gradients come with a tight one."""
    data = planted(n=120, d=12, L=9)
    by_hessians = BinaryRelevance(0.01, fit_intercept=constant, tol=1.0, dtype="float64").fit(data.X, data.gaps)
    monkeypatch.setattr("labelgap.estimators.label_models.MAX_HESSIAN_FEATURES", 11)
    by_products = BinaryRelevance(0.01, fit_intercept=constant, tol=1e-10, dtype="float64").fit(data.X, data.gaps)
    np.testing.assert_allclose(by_hessians.coef_, by_products.coef_, atol=1e-5)
    np.testing.assert_allclose(by_hessians.intercept_, by_products.intercept_, atol=1e-5)
    loose = BinaryRelevance(0.01, fit_intercept=constant, tol=1.0, dtype="float64").fit(data.X, data.gaps)
    assert np.abs(loose.coef_ - by_products.coef_).max() > 0.01


def test_few_known_rows_are_enough(planted):
    """Rows of which no label of a block is known are left out, and change nothing."""
    data = planted(n=200, d=6)
    few = data.gaps
    few[40:] = np.nan
    long = BinaryRelevance(**exact).fit(data.X, few)
    short = BinaryRelevance(**exact).fit(data.X[:40], few[:40])
    np.testing.assert_allclose(long.coef_, short.coef_, atol=1e-8)


class Smooth(Loss):
    """ℓ(a, b) = log cosh(a − b), a loss that the library does not have."""

    name = "smooth"
    max_curvature = 1.0

    def functions(self, xp=np):
        exp, log1p = xp.exp, xp.log1p

        def value(a, b):
            return abs(a - b) + log1p(exp(-2 * abs(a - b))) - 0.6931471805599453

        def gradient(a, b):
            return (1 - 2 / (1 + exp(2 * (b - a)))) * 1.0

        def curvature(a, b):
            small = exp(-2 * abs(b - a))
            return 4 * small / ((1 + small) * (1 + small))

        return value, gradient, curvature


def test_a_loss_of_ones_own(planted):
    data = planted()
    model = BinaryRelevance(loss=Smooth(), **exact).fit(data.X, data.gaps)
    scores = data.X @ model.coef_.T + model.intercept_
    slopes = np.where(data.observed, np.tanh(scores - np.where(data.Y == 1, 1, -1)), 0)
    np.testing.assert_allclose(slopes.T @ data.X + ALPHA * model.coef_, 0, atol=1e-6)


def test_too_few_steps_warn(planted):
    data = planted()
    with pytest.warns(ConvergenceWarning, match=r"max_iter=1 steps for some labels.*raise max_iter, tol or alpha"):
        model = BinaryRelevance(1e-4, max_iter=1, tol=1e-9, dtype="float64").fit(data.X, data.gaps)
    assert (model.n_iter_, model.status_) == (1, "max_iter")


@pytest.mark.parametrize(
    ("name", "value"),
    [("alpha", -1.0), ("l1", np.nan), ("threshold", "small"), ("tol", -1e-3), ("max_iter", 0), ("verbose", -1)],
)
def test_numbers_that_mean_nothing(name, value, planted):
    data = planted()
    with pytest.raises(ValueError, match=rf"{name}={value!r} is out of range; pass"):
        BinaryRelevance(**{name: value}).fit(data.X, data.Y)


def test_a_loss_that_is_not_known(planted):
    data = planted()
    with pytest.raises(ValueError, match="loss='hinge' is not known; choose from"):
        BinaryRelevance(loss="hinge").fit(data.X, data.Y)


# --- the parts: kernels beside plain twins -------------------------------------------------------------------------


def cells(loss, rng, shape=(7, 4)):
    """Targets with gaps, scores, and ℓ, ℓ', ℓ'' of each cell, 0 where it is unknown."""
    targets = np.where(rng.random(shape) < 0.5, loss.positive, loss.negative)
    scores, known = 2 * rng.standard_normal(shape), rng.random(shape) < 0.7
    parts = [np.where(known, function(targets, scores), 0) for function in loss.functions(np)]
    return np.where(known, targets, np.nan), scores, parts


@pytest.mark.parametrize("name", LOSSES)
def test_loops_over_cells_are_sums_and_products(name):
    loss = LOSSES[name]()
    targets, scores, (values, slopes, curvature) = cells(loss, np.random.default_rng(0))
    found, first, second = np.ones(4), np.empty((7, 4)), np.empty((7, 4))
    weights = np.linspace(0, 2, 7)
    positive_weights = np.linspace(0.5, 3, 4)
    units = weights[:, None] * np.where(targets > loss.negative, positive_weights, 1.0)
    weighting = (weights, loss.negative, positive_weights)
    add_column_values(CompiledLoss(loss), targets, scores, *weighting, found)
    write_column_model(CompiledLoss(loss), targets, scores, *weighting, first, second)
    np.testing.assert_allclose(found, 1 + (units * values).sum(axis=0))
    np.testing.assert_allclose(first, units * slopes, atol=1e-15)
    np.testing.assert_allclose(second, units * curvature, atol=1e-15)


def test_loops_over_rows_are_products():
    rng = np.random.default_rng(0)
    X = sp.random_array((9, 6), density=0.4, rng=rng, format="csr")
    rows, w, factors = np.array([7, 0, 3]), rng.standard_normal(6), np.array([1.0, 0.0, -2.0])
    scores, out = np.empty(3), np.ones(6)
    write_row_scores(X.indptr, X.indices, X.data, rows, w, scores)
    add_rows(X.indptr, X.indices, X.data, rows, factors, out)
    np.testing.assert_allclose(scores, (X.toarray() @ w)[rows])
    np.testing.assert_allclose(out, 1 + factors @ X.toarray()[rows])


def test_new_rows_are_the_active_ones_that_are_not_listed():
    rng, loss = np.random.RandomState(0), LOSSES["squared_hinge"]()
    X = sp.random_array((40, 6), density=0.5, format="csr", random_state=0)
    targets = rng.choice([-1.0, 1.0, np.nan], 40)
    scores, listed, gradient = rng.standard_normal(40), np.array([5, 1, 9]), np.ones(6)
    cells = CompiledLoss(loss), loss.margin, targets, scores
    new, gaps = find_new_rows(*cells, X.indptr, X.indices, X.data, listed, gradient)
    active = np.flatnonzero(targets * scores < 1)
    np.testing.assert_array_equal(new, np.setdiff1d(active, listed))
    np.testing.assert_allclose(gaps, 1 - targets[new] * scores[new])
    slopes = loss.functions(np).gradient(targets[active], scores[active])
    np.testing.assert_allclose(gradient, 1 + slopes @ X.toarray()[active])


@pytest.mark.parametrize("name", ["logistic", "squared_hinge"])
def test_one_label_on_some_rows_comes_to_its_minimum(name, planted):
    data, loss, rows = planted(), LOSSES[name](), np.arange(3, 30)
    X, targets = sp.csr_array(data.X), np.where(data.Y[:, 0] == 1, loss.positive, loss.negative)
    w, eps = np.ones(6), np.finfo(float).eps
    options = (CompiledLoss(loss), X.indptr, X.indices, X.data, rows, targets[rows], ALPHA)
    assert 0 < minimize_label(*options, w, 1e-9, 0.0, 50, eps) < 50
    slopes = loss.functions(np).gradient(targets[rows], data.X[rows] @ w)
    np.testing.assert_allclose(slopes @ data.X[rows] + ALPHA * w, 0, atol=1e-7)
    again = w.copy()
    assert minimize_label(*options, again, 1e-6, 0.0, 50, eps) == 0
    np.testing.assert_array_equal(again, w)


@pytest.mark.parametrize("shifted", [True, False])
def test_scale_and_shift_are_where_neither_slope_is_left(shifted):
    """Few steps of Newton's method: the slopes need not be 0, but must be small beside those of the start."""
    rng = np.random.default_rng(0)
    loss, scores, square = SquaredHinge(), rng.standard_normal(300), 2.0
    targets = np.where(scores + 0.5 * rng.standard_normal(300) > 0.5, 1.0, -1.0)
    targets[:20] = np.nan
    t, c = scale_and_shift(CompiledLoss(loss), targets, scores, ALPHA, square, shifted)

    def slopes(t, c):
        cell = loss.functions(np).gradient(targets[20:], t * scores[20:] + c)
        return np.array([cell @ scores[20:] + ALPHA * square * t, cell.sum() + ALPHA * c])[: 1 + shifted]

    assert np.abs(slopes(t, c)).max() < 1e-2 * np.abs(slopes(1.0, 0.0)).max()
    assert (c != 0) == shifted


@pytest.mark.parametrize("name", LOSSES)
def test_the_best_constant_is_where_its_slope_is_0(name):
    loss, positive, negative = LOSSES[name](), np.array([5, 1, 0, 90, 0]), np.array([5, 1000, 7, 1, 0])
    b = find_constants(loss, ALPHA, positive, negative)
    gradient = loss.functions(np).gradient
    slope = positive * gradient(loss.positive, b) + negative * gradient(loss.negative, b) + ALPHA * b
    np.testing.assert_allclose(slope, 0, atol=1e-8)
    assert b[-1] == 0


@pytest.mark.parametrize("k", [1, 3, 8])
def test_the_best_in_rows_and_their_ties(k):
    scores = np.random.default_rng(0).integers(0, 4, (30, 8)).astype(np.float32)
    for found, expected in zip(cpu.best_in_rows(scores, k), reference.best_in_rows(scores, k), strict=True):
        np.testing.assert_array_equal(found, expected)


# --- the rows that count -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [1e-3, 1.0, 100.0])
def test_rows_that_join_in_small_numbers_lead_to_the_same_minimum(alpha, monkeypatch):
    """Many rows, few positives or few negatives, and hardly any row may join at once."""
    monkeypatch.setattr("labelgap.objectives.labelwise.MAX_NEW_ROWS", 2)
    rng = np.random.default_rng(0)
    X = sp.random_array((500, 20), density=0.3, rng=rng, format="csr")
    scores = X @ rng.standard_normal((20, 4))
    Y = (scores > np.quantile(scores, [0.98, 0.9, 0.5, 0.03], axis=0).diagonal()).astype(float)
    model = BinaryRelevance(alpha, tol=1e-9, dtype="float64").fit(X, Y)
    assert model.status_ == "converged"
    assert np.abs(gradients(model, X.toarray(), Y)).max() < 1e-5 * max(1, alpha)
    dense = BinaryRelevance(alpha, tol=1e-9, dtype="float64").fit(X.toarray(), Y)
    np.testing.assert_allclose(model.coef_, dense.coef_, atol=1e-5)


def test_too_few_steps_for_the_rows_that_count_warn(planted):
    data = planted()
    with pytest.warns(ConvergenceWarning, match="max_iter=1 steps"):
        BinaryRelevance(1e-4, max_iter=1, tol=1e-9, dtype="float64").fit(sp.csr_array(data.X), data.gaps)


def test_a_column_that_is_done_stays_where_it_is(planted):
    """One label starts at its minimum, the others do not: it takes no step, and they end where they must."""
    data = planted()
    problem = LabelwiseObjectives(
        Features(data.X, cpu, float), SquaredHinge(), np.where(data.Y == 1, 1.0, -1.0), ALPHA
    )
    goals = np.full(5, 1e-8)
    ends = ColumnNewton().minimize(problem, np.zeros((6, 5)), goals)
    start = np.zeros((6, 5))
    start[:, 2] = ends.x[:, 2]
    again = ColumnNewton().minimize(problem, start, goals)
    assert again.n_iter[2] == 0
    assert (again.n_iter[[0, 1, 3, 4]] > 0).all()
    np.testing.assert_array_equal(again.x[:, 2], ends.x[:, 2])
    np.testing.assert_allclose(again.x, ends.x, atol=1e-8)


# --- targets by frequency, priors, weights of rows, updates ---------------------------------------------------------


@pytest.mark.parametrize("gaps", [False, True], ids=["complete", "gaps"])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_ridge_with_targets_by_frequency_and_a_prior(gaps, form, planted):
    """∇F = 0 with targets ((f + 1) / m)^−power and the penalty (α/2) ‖w − m_j‖²."""
    data = planted(n=80, d=12, L=9)
    Y = data.gaps if gaps else data.Y.astype(float)
    prior = np.random.default_rng(0).standard_normal((9, 12))
    model = BinaryRelevance(loss="squared", frequency_power=0.4, **exact).fit(form(data.X), Y, prior=form(prior))
    counts = (Y == 1).sum(0)
    targets = ((counts + 1) / (counts @ (counts + 1) / counts.sum())) ** -0.4 * (Y == 1)
    rows = np.column_stack([data.X, np.ones(80)])
    W = np.column_stack([model.coef_, model.intercept_ + 0.5])
    residuals = np.where(np.isnan(Y), 0, rows @ W.T - targets)
    gradient = residuals.T @ rows + ALPHA * (W - np.column_stack([prior, np.zeros(9)]))
    assert np.abs(gradient).max() < 1e-6


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize(("n", "d"), [(60, 8), (60, 90)], ids=["rows", "features"])
def test_folds_are_fits_without_their_rows(n, d, weighted, form, planted):
    """Where there are more rows, and where there are more features; in any order of the rows."""
    data = planted(n=n, d=d, L=5)
    prior = np.random.default_rng(0).standard_normal((5, d))
    model = BinaryRelevance(loss="squared", frequency_power=0.3, **exact)
    held_out = np.arange(0, n, 4)[::-1]
    train = np.setdiff1d(np.arange(n), held_out)
    X, weights = form(data.X), np.random.default_rng(1).uniform(0.2, 3, n) if weighted else None
    own = None if weights is None else weights[train]
    scores = model._prepare_folds(X, data.Y, prior=prior, sample_weight=weights)(train, held_out).dense()
    refit = model.fit(X[train], data.Y[train], prior=prior, sample_weight=own)
    np.testing.assert_allclose(scores, refit.decision_function(X[held_out]), atol=1e-7)


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize(("n", "d"), [(40, 8), (40, 60)], ids=["rows", "features"])
def test_scores_without_each_row_are_those_of_as_many_fits(n, d, weighted, planted):
    """From the fit on all rows and from parts of the search; with a prior, whose share needs no correction."""
    data, rows = planted(n=n, d=d, L=5), np.arange(0, n, 5)
    X, prior = sp.csr_array(data.X), np.random.default_rng(0).standard_normal((5, d))
    weights = np.random.default_rng(1).uniform(0.2, 3, n) if weighted else None
    model = BinaryRelevance(loss="squared", **exact).fit(X, data.Y, prior=prior, sample_weight=weights)
    expected = []
    for row in rows:
        train = np.delete(np.arange(n), row)
        own = None if weights is None else weights[train]
        refit = BinaryRelevance(loss="squared", **exact).fit(X[train], data.Y[train], prior=prior, sample_weight=own)
        expected.append(refit.decision_function(X[[row]])[0])
    ridge = FoldRidge(X, Labels(data.Y), model._settings(), get_backend(), prior, weights)
    fitted = model.decision_function(X[rows]) + 0.5
    scores = leave_each_out(fitted, data.Y[rows], ridge.find_leverages(rows)) - 0.5
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    np.testing.assert_allclose(ridge.score_each(rows).combine(0.0, 1.0) - 0.5, expected, atol=1e-6)


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("alpha", [0.05, 2.0])
@pytest.mark.parametrize(("n", "d"), [(60, 20), (60, 90)], ids=["rows", "features"])
def test_leverages_without_a_factor(n, d, alpha, constant, planted, monkeypatch):
    """Estimates from regressions on noise are near the diagonal of X (XᵀX + αI)⁻¹ Xᵀ for any size of a block."""
    data = planted(n=n, d=d, L=2)
    A = np.column_stack([data.X, np.ones(n)]) if constant else data.X
    h = np.diagonal(A @ np.linalg.solve(A.T @ A + alpha * np.eye(A.shape[1]), A.T))
    monkeypatch.setattr(embeddings, "MAX_FACTOR_ORDER", 0)
    monkeypatch.setattr(held_out_ridge, "N_PROBES", 10_000)
    monkeypatch.setattr(held_out_ridge, "PROBE_TOL", 1e-5)
    for cells in (1 << 24, 1 << 18):
        monkeypatch.setattr(held_out_ridge, "MAX_PROBE_CELLS", cells)
        targets = sp.csr_array((n, 1))
        ridge = HeldOutRidge(sp.csr_array(data.X), targets, alpha, get_backend(), np.float32, constant=constant)
        errors = ridge.find_leverages(np.arange(n)) - h
        assert np.abs(errors / (2 * h * (1 - h) / 100)).max() < 4.5


def test_a_row_of_weight_zero_is_scored_when_held_out(planted):
    data = planted(n=60, d=90, L=5)
    weights, held_out = np.repeat([0.0, 2.0], 30), np.arange(0, 60, 4)
    train = np.setdiff1d(np.arange(60), held_out)
    model = BinaryRelevance(loss="squared", **exact)
    scores = model._prepare_folds(data.X, data.Y, sample_weight=weights)(train, held_out).dense()
    refit = model.fit(data.X[train], data.Y[train], sample_weight=weights[train])
    np.testing.assert_allclose(scores, refit.decision_function(data.X[held_out]), atol=1e-4)


def test_folds_of_large_systems_are_those_of_small_ones(planted, monkeypatch):
    """Conjugate gradients and the shared factorisation give the same parts, for every penalty."""
    data = planted(n=60, d=8, L=5)
    prior = np.random.default_rng(0).standard_normal((5, 8))
    settings, labels = BinaryRelevance(loss="squared", **exact)._settings(), Labels(data.Y)
    held_out, results = np.arange(0, 60, 4), []
    for order in (6000, 0):
        monkeypatch.setattr(embeddings, "MAX_FACTOR_ORDER", order)
        ridge = FoldRidge(data.X, labels, settings, get_backend(), prior)
        assert ridge.is_exact == (order > 0)
        results.append([ridge.with_alpha(alpha).score(held_out) for alpha in (0.5, 4.0)])
    for small, large in zip(*results, strict=True):
        for power, weight in ((0.0, 0.0), (0.4, 0.8)):
            np.testing.assert_allclose(small.combine(power, weight), large.combine(power, weight), atol=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("gaps", [False, True], ids=["complete", "gaps"])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_weight_repeats_a_row(loss, gaps, form, planted):
    data = planted(n=60, d=8, L=5)
    Y = data.gaps if gaps else data.Y.astype(float)
    counts = np.random.default_rng(0).integers(0, 3, 60)
    repeated = np.repeat(np.arange(60), counts)
    weighted = BinaryRelevance(loss=loss, **exact).fit(form(data.X), Y, sample_weight=counts)
    plain = BinaryRelevance(loss=loss, **exact).fit(form(data.X[repeated]), Y[repeated])
    np.testing.assert_allclose(weighted.coef_, plain.coef_, atol=2e-5)
    np.testing.assert_allclose(weighted.intercept_, plain.intercept_, atol=2e-5)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("constant", [True, False], ids=["constant", "no constant"])
def test_an_update_is_a_fit_where_features_are_uncorrelated(form, constant):
    """The diagonal of XᵀX says everything about earlier rows with one feature each."""
    rng = np.random.default_rng(0)
    X, Y = np.eye(4)[rng.integers(0, 4, 50)] * rng.uniform(1, 2, (50, 1)), rng.random((50, 3)) < 0.4
    further, more = rng.standard_normal((20, 4)), rng.random((20, 5)) < 0.4  # with two new labels
    options = {"loss": "squared", "fit_intercept": constant} | exact
    model = BinaryRelevance(**options).fit(form(X), Y.astype(int)).partial_fit(form(further), more.astype(int))
    whole = BinaryRelevance(**options).fit(
        form(np.vstack([X, further])), np.vstack([np.hstack([Y, np.zeros((50, 2), bool)]), more]).astype(int)
    )
    if not constant:  # which is correlated with every feature
        np.testing.assert_allclose(model.coef_, whole.coef_, atol=1e-8)
    assert model.n_labels_ == 5
    past = BinaryRelevance(**options).fit(form(X), Y.astype(int))
    past.partial_fit(form(further), more.astype(int), past=(form(X), Y.astype(int)))
    np.testing.assert_allclose(past.coef_, whole.coef_, atol=1e-10)


def test_updates_say_what_they_cannot_do(planted):
    data = planted(n=40, d=6, L=4)
    assert not hasattr(BinaryRelevance(), "partial_fit")
    assert not hasattr(BinaryRelevance(loss="squared", l1=0.1), "partial_fit")
    gaps = BinaryRelevance(loss="squared").fit(data.X, data.gaps)
    with pytest.raises(ValueError, match="fitted to labels without unknown cells"):
        gaps.partial_fit(data.X, data.Y)
    gaps.partial_fit(data.X, data.gaps, past=(data.X, data.gaps))
    ridge = BinaryRelevance(loss="squared").fit(data.X, data.Y)
    before = ridge.coef_.copy()
    with pytest.raises(ValueError, match="unknown cells"):
        ridge.partial_fit(data.X, data.gaps)
    np.testing.assert_array_equal(ridge.coef_, before)
    with pytest.raises(ValueError, match="prior has shape"):
        ridge.fit(data.X, data.Y, prior=np.ones((2, 6)))
    with pytest.raises(ValueError, match=r"frequency_power=0\.5 needs loss='squared'"):
        BinaryRelevance(frequency_power=0.5).fit(data.X, data.Y)
    with pytest.raises(ValueError, match="weights of all rows are zero"):
        ridge.fit(data.X, data.Y, sample_weight=np.zeros(40))


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic", "squared"])
def test_a_block_of_labels_without_a_gap_beside_one_with_gaps(loss):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5))
    Y = (X[:, :3] > 0).astype(float)
    Y[:, 2] = np.nan  # no label that is learned has a gap
    sparse, dense = (
        BinaryRelevance(loss=loss, tol=1e-8, dtype="float64").fit(rows, Y).decision_function(X)
        for rows in (sp.csr_array(X), X)
    )
    np.testing.assert_allclose(sparse, dense, atol=1e-4)
    whole = BinaryRelevance(loss=loss, tol=1e-8, dtype="float64").fit(sp.csr_array(X), Y[:, :2]).decision_function(X)
    np.testing.assert_allclose(sparse[:, :2], whole, atol=1e-4)
