"""MC1 and MCb: what they complete, how they place new rows, the path, the factored form, files and bad input."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import labelgap
from labelgap import MC1, Labels, MCb, hide_cells
from labelgap.estimators.completion import RowSpace, solve_path
from labelgap.losses import LOSSES, get_loss
from labelgap.objectives.factored import BiasedObjective, FactoredCompletion, RowPartsSolver, SignedLoss
from labelgap.objectives.label_feature_matrix import Completion
from labelgap.regularizers import nuclear_norm
from labelgap.runtime import threads
from labelgap.solvers import NewtonCG
from labelgap.solvers.fpc import Point


@pytest.fixture(autouse=True)
def one_thread():
    """As within an estimator: on small matrices the threads of BLAS would only wait for each other."""
    with threads(1):
        yield


BOTH = pytest.mark.parametrize("cls", [MC1, MCb])
CONVEX = ("fpc", "exact", "accelerated")


class Data:
    """Rows of low rank and the labels of linear functions of them; each cell is known with some probability."""

    def __init__(self, n=40, d=8, t=4, rank=2, share=0.6, noise=0.0, seed=0):
        rng = np.random.default_rng(seed)
        self.whole = rng.standard_normal((n, rank)) @ rng.standard_normal((rank, d))
        self.Y = (self.whole @ rng.standard_normal((d, t)) + rng.standard_normal(t) > 0).astype(float)
        seen = self.whole + noise * rng.standard_normal((n, d))
        self.X = np.where(rng.random((n, d)) < share, seen, np.nan)
        self.gaps = np.where(rng.random((n, t)) < share, self.Y, np.nan)


def objective(model, X, Y):
    """The objective of a fitted model, cell by cell."""
    loss = get_loss(model.loss)
    known_Y, known_X = ~np.isnan(Y), ~np.isnan(X)
    scores = model.row_factors_ @ model.label_factors_[:, :-1].T + model.label_factors_[:, -1]
    cells = loss.functions(np).value(np.where(Y == 1, loss.positive, loss.negative), scores)[known_Y]
    errors = (model.features_ - X)[known_X]
    norm = (model.row_factors_**2).sum() / 2 + sum(
        (part**2).sum() / 2
        for part in (model.label_factors_[:, :-1], model.feature_factors_, model.constant_factors_)
    )
    return model.mu * norm + model.label_weight * cells.mean() + (errors**2).mean() / 2


# --- what is completed ----------------------------------------------------------------------------------------------


@BOTH
def test_without_noise_features_are_recovered(cls):
    """Observation 1 of the paper: enough cells, no noise, and little weight on the labels."""
    data = Data(n=60, d=20, t=2, rank=2, share=0.7)
    hidden, errors = np.isnan(data.X), []
    for mu in (1e-5, 1e-6):
        model = cls(mu=mu, label_weight=1e-3, tol=1e-6, max_iter=20_000).fit(data.X, data.gaps)
        errors.append(np.square(model.features_ - data.whole)[hidden].sum() / np.square(data.whole)[hidden].sum())
    assert errors[1] < 1e-7
    assert errors[1] < 0.05 * errors[0]  # it falls with μ²: what is left is the shrinkage


@BOTH
def test_known_features_are_kept_and_others_are_those_of_z(cls):
    data = Data()
    completed, model = cls(mu=1e-3).fit_transform(data.X, data.gaps), cls(mu=1e-3).fit(data.X, data.gaps)
    np.testing.assert_array_equal(completed, np.where(np.isnan(data.X), model.features_, data.X))


@BOTH
def test_hidden_labels_are_found(cls):
    data = Data(n=200, d=12, t=6, share=0.7)
    model = cls(mu=1e-3).fit(data.X, data.gaps)
    hidden = np.isnan(data.gaps)
    assert (model.labels_ == data.Y)[hidden].mean() > 0.85
    majority = np.nanmean(data.gaps, axis=0) > 0.5
    assert (model.labels_ == data.Y)[hidden].mean() > (majority == data.Y)[hidden].mean() + 0.1


@BOTH
@pytest.mark.parametrize("solver", [*CONVEX, "factored"])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_attributes_are_those_of_the_minimum(cls, solver, loss):
    data = Data(noise=0.1)
    options = {"mu": 1e-2, "label_weight": 0.5, "loss": loss, "random_state": 0, "tol": 1e-8, "max_iter": 20_000}
    model = cls(solver=solver, **options).fit(data.X, data.gaps)
    published = cls is MC1 and solver == "fpc"
    assert model.objective_[-1] == pytest.approx(objective(model, data.X, data.gaps), rel=1e-5)
    best = cls(**options).fit(data.X, data.gaps).objective_[-1]
    assert model.objective_[-1] == pytest.approx(best, rel=1e-2 if published else 1e-5)
    assert model.status_ == "converged"
    assert model.decision_.shape == (40, 4)
    np.testing.assert_array_equal(model.labels_, model.decision_ > 0)
    Z = np.column_stack([model.decision_ + get_loss(loss).threshold - model.bias_, model.features_])
    Z = np.column_stack([Z, np.ones(40)]) if cls is MC1 else Z
    norm = ((model.row_factors_**2).sum() + nuclear_norm(Z)) / 2
    assert norm == pytest.approx(nuclear_norm(Z), rel=1e-4)
    assert model.rank_ == np.linalg.matrix_rank(
        Z, tol=(1e-4 if solver == "factored" else 1e-9) * np.linalg.norm(Z, 2)
    )
    assert model.bias_.any() == (cls is MCb)


@BOTH
@pytest.mark.parametrize("write", [np.asarray, lambda Y: 2 * Y - 1, sp.csr_array, lambda Y: Y.astype(bool)])
def test_labels_come_in_the_container_of_y(cls, write):
    data = Data()
    given = write(data.Y)
    labels = cls(mu=1e-3).fit(data.X, given).labels_
    assert type(labels) is type(given)
    assert labels.dtype == given.dtype
    found = labels.toarray() if sp.issparse(labels) else labels
    assert (found == (given.toarray() if sp.issparse(given) else given)).mean() > 0.95


@BOTH
def test_a_label_of_one_class_is_predicted_to_have_it(cls):
    data = Data()
    Y = data.gaps.copy()
    Y[:, 0] = np.where(np.isnan(Y[:, 0]), np.nan, 1)
    Y[:, 1], Y[5, 1] = np.nan, 0
    for loss in LOSSES:
        model = cls(mu=1e-3, loss=loss).fit(data.X, Y)
        new = np.random.default_rng(0).standard_normal((30, 8))
        for labels in (model.labels_, model.predict(data.X), model.predict(new)):
            assert (labels[:, 0] == 1).all()
            assert (labels[:, 1] == 0).all()


@BOTH
def test_a_heavier_label_loss_fits_labels_better(cls):
    data = Data(noise=0.3, share=0.8)
    wrong = []
    for weight in (0.01, 100.0):
        labels = cls(mu=3e-2, label_weight=weight).fit(data.X, data.gaps).labels_
        wrong.append((labels != data.gaps)[~np.isnan(data.gaps)].mean())
    assert wrong[1] < wrong[0]


# --- rows and columns with little in them ---------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("solver", [*CONVEX, "factored"])
def test_nothing_known_of_a_row_or_a_column(cls, solver):
    data = Data()
    X, Y = data.X.copy(), data.gaps.copy()
    X[3], Y[3] = np.nan, np.nan
    X[4], Y[5] = np.nan, np.nan
    X[:, 2], Y[:, 1] = np.nan, np.nan
    model = cls(mu=1e-3, solver=solver, max_iter=5000, random_state=0).fit(X, Y)
    assert np.isfinite(model.decision_).all()
    np.testing.assert_allclose(model.features_[:, 2], 0, atol=1e-6)
    np.testing.assert_allclose(model.decision_[:, 1], 0, atol=1e-6)
    constant = np.linalg.norm(model.features_ - model.features_[3], axis=1) < 1e-6
    assert constant[3]
    if cls is MCb:
        np.testing.assert_allclose(model.features_[3], 0, atol=1e-8)
        np.testing.assert_allclose(model.decision_[3], model.bias_, atol=1e-8)


@BOTH
def test_no_feature_is_known(cls):
    data = Data()
    model = cls(mu=1e-2).fit(np.full_like(data.X, np.nan), data.gaps)
    np.testing.assert_allclose(model.features_, 0, atol=1e-9)
    known = ~np.isnan(data.gaps)
    assert (model.labels_ == data.Y)[known].mean() > 0.7
    assert np.isfinite(model.decision_function(data.X)).all()


@BOTH
def test_everything_is_known_and_columns_are_constant(cls):
    data = Data()
    X = data.whole.copy()
    X[:, 0], X[:, 1] = 0.0, 5.0
    model = cls(mu=1e-4).fit(X, data.Y)
    np.testing.assert_allclose(model.features_, X, atol=0.3)
    assert (model.labels_ == data.Y).mean() > 0.97
    np.testing.assert_array_equal(model.transform(X), X)


@BOTH
@pytest.mark.parametrize("shape", [(1, 5, 3), (5, 1, 1), (1, 1, 1), (3, 40, 2)])
def test_small_shapes(cls, shape):
    n, d, t = shape
    data = Data(n, d, t, rank=1, share=1.0)
    model = cls(mu=1e-4).fit(data.X, data.gaps)
    np.testing.assert_array_equal(model.labels_, data.Y)
    assert model.predict(data.X).shape == (n, t)


@BOTH
def test_a_mu_that_leaves_nothing(cls):
    data = Data()
    model = cls(mu=100.0).fit(data.X, data.gaps)
    assert len(model.path_) == 1
    np.testing.assert_allclose(model.features_, 0, atol=1e-3)
    assert model.rank_ == (cls is MC1)
    assert model.decision_function(data.X).shape == (40, 4)
    if cls is MCb:
        np.testing.assert_allclose(model.decision_function(data.X), np.tile(model.bias_, (40, 1)))


# --- the path -------------------------------------------------------------------------------------------------------


@BOTH
def test_the_path_falls_from_the_largest_singular_value(cls):
    data = Data()
    model = cls(mu=0.02, decay=0.5).fit(data.X, data.gaps)
    filled = np.nan_to_num(np.column_stack([2 * data.gaps - 1, data.X]))
    mu, mus = np.linalg.norm(filled, 2) / 2, []
    while mu > 0.02:
        mus.append(mu)
        mu /= 2
    np.testing.assert_allclose([one["mu"] for one in model.path_], [*mus, 0.02])
    assert model.n_iter_ == sum(one["n_iter"] for one in model.path_)
    assert model.path_[-1]["objective"] == model.objective_[-1]
    assert set(model.path_[0]) == {"mu", "objective", "rank", "n_iter", "status"}
    ranks = [one["rank"] for one in model.path_]
    assert ranks == sorted(ranks)
    assert ranks[-1] == model.rank_


@BOTH
@pytest.mark.parametrize("solver", CONVEX)
def test_solutions_along_the_path(cls, solver):
    """They are those of fits with these μ's."""
    data = Data(noise=0.1)
    problem = cls()._problem(data.X, Labels(data.gaps))
    constant = cls is MC1
    decisions = {
        stage.mu: problem.decision(stage.point)
        for stage in solve_path(problem, [1.0, 0.1, 0.01], constant=constant, solver=solver, tol=1e-8, max_iter=9999)
    }
    for mu, decision in decisions.items():
        model = cls(mu=mu, solver=solver, tol=1e-8, max_iter=9999).fit(data.X, data.gaps)
        np.testing.assert_allclose(model.decision_, decision, atol=0.02)


def test_features_alone_can_be_completed():
    data = Data(n=60, d=20, share=0.7)
    problem = Completion.of(data.X, None, get_loss("squared"))
    stage = list(solve_path(problem, constant=False, mu=1e-7, tol=1e-9, max_iter=9999))[-1]
    hidden = np.isnan(data.X)
    assert np.abs(stage.point.Z - data.whole)[hidden].max() < 1e-2


# --- rows that come later -------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("solver", ["accelerated", "factored"])
def test_a_row_without_labels_gets_its_transductive_answer(cls, solver):
    """Its own problem at the optimum is that of a new row: nothing but its features is known."""
    data = Data(n=50, d=10, noise=0.1)
    data.gaps[:20] = np.nan
    model = cls(mu=3e-3, tol=1e-10, max_iter=30_000, solver=solver, random_state=0).fit(data.X, data.gaps)
    np.testing.assert_allclose(model.decision_function(data.X)[:20], model.decision_[:20], atol=5e-3)
    hidden = np.isnan(data.X[:20])
    np.testing.assert_allclose(model.transform(data.X[:20])[hidden], model.features_[:20][hidden], atol=5e-3)


@BOTH
def test_a_training_row_gets_nearly_its_transductive_answer(cls):
    """Its labels are not told again, and its features say the same."""
    data = Data(n=150, d=20, share=1.0)
    data.gaps = hide_cells(data.Y, 0.5, random_state=0).toarray()
    model = cls(mu=2e-3, label_weight=0.1).fit(data.X, data.gaps)
    assert (model.predict(data.X) == model.labels_).mean() > 0.98
    assert np.corrcoef(model.decision_function(data.X).ravel(), model.decision_.ravel())[0, 1] > 0.999


@BOTH
def test_new_rows_of_the_same_space(cls):
    data, new = Data(n=150, d=20, share=0.8), Data(n=60, d=20, share=0.6, seed=7)
    basis = np.linalg.svd(data.whole)[2][:2]
    rows = np.random.default_rng(1).standard_normal((60, 2)) * data.whole.std() @ basis * np.sqrt(20 / 2)
    hidden = np.isnan(new.X)
    completed = cls(mu=1e-4).fit(data.X, data.gaps).transform(np.where(hidden, np.nan, rows))
    np.testing.assert_array_equal(completed[~hidden], rows[~hidden])
    error = np.square(completed - rows)[hidden].sum() / np.square(rows)[hidden].sum()
    assert error < 0.1


@pytest.mark.parametrize("constant", [None, np.array([0.5, -1.0, 0.2])], ids=["MC-b", "MC-1"])
def test_the_problem_of_a_new_row_by_brute_force(constant):
    rng = np.random.default_rng(0)
    H, x, known = rng.standard_normal((6, 3)), rng.standard_normal(6), np.array([1, 1, 0, 1, 0, 1], bool)

    def total(w):
        return 0.3 * w @ w / 2 + np.square(H @ w - x)[known].sum() / 2

    constraints = [] if constant is None else [{"type": "eq", "fun": lambda w: w @ constant - 1}]
    expected = minimize(total, np.zeros(3), constraints=constraints, tol=1e-12).x
    row = np.where(known, x, np.nan)[None]
    np.testing.assert_allclose(RowSpace(H, 0.3, constant).embed(row, "zero")[0], expected, atol=1e-5)
    listed = sp.csr_array((x[known], np.flatnonzero(known), [0, known.sum()]), shape=(1, 6))
    np.testing.assert_allclose(RowSpace(H, 0.3, constant).embed(listed, "unknown")[0], expected, atol=1e-5)


@BOTH
def test_rankings_of_new_rows(cls):
    data = Data()
    model = cls(mu=1e-3).fit(data.X, data.gaps)
    decision = model.decision_function(data.X)
    indices, scores = model.predict_topk(data.X, 2)
    order = np.argsort(-decision, axis=1, kind="stable")[:, :2]
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_allclose(scores, np.take_along_axis(decision, order, axis=1), atol=1e-12)


# --- sparse features ------------------------------------------------------------------------------------------------


def listed(X):
    """The known cells as stored ones, zeros among them."""
    rows, columns = np.nonzero(~np.isnan(X))
    return sp.csr_array((X[rows, columns], (rows, columns)), shape=X.shape)


@BOTH
@pytest.mark.parametrize("solver", ["accelerated", "factored"])
def test_sparse_features_mean_the_same(cls, solver):
    data = Data()
    data.X[0, np.flatnonzero(~np.isnan(data.X[0]))[0]] = 0.0
    make = partial(cls, mu=1e-3, solver=solver, random_state=0)
    model, other = make().fit(data.X, data.gaps), make(absent_features="unknown").fit(listed(data.X), data.gaps)
    np.testing.assert_allclose(other.decision_, model.decision_, atol=1e-8)
    np.testing.assert_allclose(other.transform(listed(data.X)), model.transform(data.X), atol=1e-8)
    np.testing.assert_allclose(other.predict(listed(data.X)), model.predict(data.X))
    zeros = np.where(np.isnan(data.X), 0, data.X)
    dense, sparse = (make().fit(form(zeros), data.gaps) for form in (np.asarray, sp.csc_array))
    np.testing.assert_allclose(sparse.decision_, dense.decision_, atol=1e-8)
    np.testing.assert_allclose(
        sparse.decision_function(sp.csr_array(zeros)), dense.decision_function(zeros), atol=1e-8
    )


@BOTH
def test_nan_in_sparse_features_is_unknown(cls):
    data = Data(share=0.9)
    zeros = data.X.copy()
    zeros[:, ::2] = np.where(np.isnan(zeros[:, ::2]), 0, zeros[:, ::2])
    model, sparse = cls(mu=1e-3).fit(zeros, data.gaps), cls(mu=1e-3).fit(sp.csr_array(zeros), data.gaps)
    np.testing.assert_allclose(sparse.decision_, model.decision_, atol=1e-8)
    np.testing.assert_allclose(sparse.transform(sp.csr_array(zeros)), model.transform(zeros), atol=1e-8)


# --- over factors ---------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("mu", [0.05, 1e-3])
def test_factors_come_to_the_convex_optimum(cls, mu):
    data = Data(n=60, noise=0.2)
    best = cls(mu=mu, tol=1e-9, max_iter=20_000).fit(data.X, data.gaps)
    model = cls(mu=mu, solver="factored", tol=1e-7, max_iter=2000, random_state=1).fit(data.X, data.gaps)
    assert model.objective_[-1] == pytest.approx(best.objective_[-1], rel=1e-4)
    assert (np.diff(model.objective_) <= 1e-9 * model.objective_[0]).all()
    assert ((model.decision_ > 0) == (best.decision_ > 0)).mean() > 0.97
    np.testing.assert_allclose(model.features_, best.features_, atol=0.1)


@BOTH
def test_fewer_components_than_the_rank(cls):
    data = Data(n=60, noise=0.2)
    wide, narrow = (
        cls(mu=1e-3, solver="factored", n_components=k, random_state=0).fit(data.X, data.gaps) for k in (None, 1)
    )
    assert narrow.rank_ == 1 + (cls is MC1)
    assert narrow.objective_[-1] > wide.objective_[-1]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("constant", [False, True], ids=["MC-b", "MC-1"])
def test_the_factored_objective_cell_by_cell(loss, constant):
    """From either side, and its steps descend to where the gradient is small."""
    data, rng = Data(n=15, d=5, t=3), np.random.default_rng(0)
    problem = Completion.of(data.X, Labels(data.gaps), get_loss(loss), label_weight=0.7, bias=not constant)
    F = FactoredCompletion(problem, 0.02, constant=constant, kernels=labelgap.estimators.base.get_backend())
    W, H = rng.standard_normal((15, 2)), rng.standard_normal((8, 3))
    if not constant:
        H[3:, -1] = 0
    b = H[:, -1] if constant else H[:3, -1]
    cells = problem.center() if constant else problem
    price = np.sqrt(15) * np.sqrt(1 + b @ b) if constant else 0.0
    W, H, _ = F.balance(W, H)
    penalty = ((W**2).sum() + (H[:, :-1] ** 2).sum()) / 2 + price
    expected = cells.value(Point(W @ H[:, :-1].T, b)) + 0.02 * penalty
    assert F.objective_in_right(W).value(H) / F.scale == pytest.approx(expected)
    assert F.objective_in_left(H).value(W) / F.scale == pytest.approx(expected)
    tight = NewtonCG(tol=1e-8, cg_tol=1e-3, max_iter=100)
    found = RowPartsSolver(tight).minimize(F.objective_in_right(W), H)
    assert found.value == pytest.approx(F.objective_in_right(W).value(found.x))
    for part in F.objective_in_right(W).parts:
        assert np.abs(part.objective.model(part.select(found.x)).gradient).max() < 1e-5
    assert found.value < F.objective_in_right(W).value(H)


def test_the_bias_is_a_column_of_ones():
    class Plain:
        separable = True

        def value(self, B):
            return float((B**3).sum())

    assert BiasedObjective(Plain()).value(np.full((2, 1), 2.0)) == 2 * (8 + 1)
    signed = SignedLoss(get_loss("squared")).functions()
    assert signed.value(2.0, 0.25) == 2 * 0.5 * 0.75**2
    assert signed.value(-3.0, 0.25) == 3 * 0.5 * 0.25**2


def test_large_data_are_factored_by_themselves(monkeypatch):
    data = Data()
    monkeypatch.setattr("labelgap.estimators.completion.mc.MAX_DENSE_CELLS", 100)
    model = MC1(mu=1e-2, random_state=0).fit(data.X, data.gaps)
    assert len(model.path_) == 1
    monkeypatch.undo()
    assert len(MC1(mu=1e-2).fit(data.X, data.gaps).path_) > 1


# --- files, precision, reports --------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("solver", ["accelerated", "factored"])
def test_a_saved_model_is_the_same(cls, solver, tmp_path):
    data = Data()
    model = cls(mu=1e-2, solver=solver, random_state=0).fit(data.X, data.gaps)
    model.save(tmp_path / "model")
    again = labelgap.load(tmp_path / "model")
    assert again.get_params() == model.get_params()
    for name in ("decision_", "features_", "labels_", "bias_"):
        np.testing.assert_array_equal(getattr(again, name), getattr(model, name))
    np.testing.assert_array_equal(again.decision_function(data.X), model.decision_function(data.X))
    np.testing.assert_array_equal(again.transform(data.X), model.transform(data.X))
    assert again.path_ == model.path_
    model.feature_factors_ = model.feature_factors_[1:]
    model.save(tmp_path / "broken")
    with pytest.raises(ValueError, match="is inconsistent"):
        labelgap.load(tmp_path / "broken")


@BOTH
@pytest.mark.parametrize("solver", [*CONVEX, "factored"])
def test_single_precision(cls, solver):
    data = Data(noise=0.1)
    models = [
        cls(mu=1e-2, solver=solver, dtype=dtype, random_state=0).fit(data.X, data.gaps)
        for dtype in ("float32", "float64")
    ]
    assert models[0].decision_.dtype == models[0].features_.dtype == np.float32
    assert models[0].objective_[-1] == pytest.approx(models[1].objective_[-1], rel=1e-3)
    np.testing.assert_allclose(models[0].decision_, models[1].decision_, atol=0.1)


def test_too_few_steps_warn():
    data = Data()
    with pytest.warns(ConvergenceWarning, match=r"MC1 stopped after max_iter=2 .* raise max_iter or tol") as caught:
        model = MC1(mu=1e-4, max_iter=2).fit(data.X, data.gaps)
    assert caught[0].filename == __file__
    assert model.status_ == "max_iter"


def test_verbose_tells_of_each_mu(capsys):
    data = Data()
    model = MCb(mu=0.1, verbose=2).fit(data.X, data.gaps)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(model.path_)
    assert lines[-1] == f"MCb {len(lines)}: μ = 0.1, F = {model.objective_[-1]:.6g}, rank {model.rank_}"


# --- bad input ------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"mu": 0}, "mu=0 is out of range; pass a number above 0"),
        ({"mu": -1.0}, "mu=-1.0 is out of range; pass a finite number"),
        ({"mu": np.nan}, "mu=nan is out of range"),
        ({"decay": 1.0}, "decay=1.0 is out of range; pass a number between 0 and 1"),
        ({"decay": 0}, "decay=0 is out of range"),
        ({"label_weight": -1}, "label_weight=-1 is out of range"),
        ({"solver": "magic"}, "solver='magic' is not known"),
        ({"loss": "magic"}, "loss='magic' is not known"),
        ({"absent_features": "negative"}, "absent_features='negative' is not known"),
        ({"n_components": 0}, "n_components=0 is out of range"),
        ({"max_iter": 0}, "max_iter=0 is out of range"),
        ({"tol": -1}, "tol=-1 is out of range"),
        ({"dtype": "int32"}, "dtype='int32' is not supported"),
    ],
    ids=str,
)
def test_parameters_that_mean_nothing(cls, parameters, message):
    data = Data()
    model = cls(**parameters)
    with pytest.raises(ValueError, match=message):
        model.fit(data.X, data.gaps)
    assert not hasattr(model, "row_factors_")


@BOTH
def test_data_that_mean_nothing(cls):
    data = Data()
    model = cls(mu=0.1)
    infinite = np.where(np.isnan(data.X), np.inf, data.X)
    for X, Y, message in [
        (infinite, data.gaps, "infinity"),
        (data.X, data.gaps[:10], "X has 40 rows and Y has 10"),
        (data.X, np.full_like(data.gaps, np.nan), "No cell of Y is known"),
        (data.X, data.gaps * 2, "Y holds 2.0"),
        (data.X, np.where(np.isnan(data.gaps), -1, data.gaps), "Y mixes 0 and −1"),
        (data.X, None, "requires y to be passed"),
        (data.X, data.gaps[:, :0], "Y has no labels"),
        (data.X[:, 0], data.gaps, "2D array"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.fit(X, Y)
        with pytest.raises(NotFittedError):
            model.transform(data.X)
    model.fit(data.X, data.gaps)
    with pytest.raises(ValueError, match="8 features"):
        model.transform(data.X[:, 1:])


def test_warnings_of_overflow_do_not_reach_the_user():
    data = Data()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = MCb(mu=0.1).fit(1e3 * data.X, data.gaps)
    assert np.isfinite(model.decision_).all()
