"""PLST, CPLST, CSSP and compressed sensing: against dense algebra, plain twins and optimality conditions."""

from __future__ import annotations

import os

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
from sklearn.linear_model import Ridge
from sklearn.preprocessing import normalize

from labelgap import CPLST, CSSP, PLST, BayesianCS, CompressedSensing, Labels, load, load_dataset
from labelgap.baselines import label_reductions, sparse_recovery
from labelgap.baselines.compressed_sensing import PROJECTIONS, draw_projection
from labelgap.baselines.label_reductions import draw_labels_by_leverage, solve_combinations
from labelgap.kernels import get_backend
from labelgap.metrics import precision_at_k
from labelgap.persistence import ModelFileError
from labelgap.solvers import reduced_rank_regression
from labelgap_papers.paper_methods import METHODS, Task

LINEAR = [PLST, CPLST, CSSP]
ALL = [*LINEAR, CompressedSensing, BayesianCS]
EXACT = {"dtype": "float64", "random_state": 0}


def sparse_labels(n=60, L=12, seed=0, mean=2.0):
    """Labels that hang together: each of four topics has labels of its own."""
    rng = np.random.default_rng(seed)
    topics = rng.random((n, 4)) < 0.4
    chances = rng.random((4, L)) ** 3 * mean
    return (rng.random((n, L)) < np.clip(topics @ chances, 0, 0.95)).astype(int)


def linear_data(n=60, d=9, L=12, seed=0):
    Y = sparse_labels(n, L, seed)
    rng = np.random.default_rng(seed + 1)
    return Y @ rng.standard_normal((L, d)) + 0.3 * rng.standard_normal((n, d)), Y


def with_constant(X, fit_intercept):
    return np.column_stack([X, np.ones(len(X))]) if fit_intercept else X


def ridge(A, T, alpha):
    return np.linalg.solve(A.T @ A + alpha * np.eye(A.shape[1]), A.T @ T)


def scores(model, X):
    return model.decision_function(X) + 0.5


# --- the labels as a matrix, and its leading directions ------------------------------------------------------------


@pytest.mark.parametrize("centred", [False, True])
def test_products_with_the_labels(centred):
    Y = sparse_labels()
    dense = Y - Y.mean(0) * centred
    matrix = label_reductions.LabelMatrix(Labels(Y), get_backend(), np.float64, centred=centred)
    rng = np.random.default_rng(0)
    P, B = rng.standard_normal((12, 3)), rng.standard_normal((60, 3))
    np.testing.assert_allclose(matrix.times(P), dense @ P, atol=1e-12)
    np.testing.assert_allclose(matrix.t_times(B), dense.T @ B, atol=1e-12)


@pytest.mark.parametrize("limit", [0, 100], ids=["subspace", "exact"])
def test_leading_eigenvectors(limit, monkeypatch):
    monkeypatch.setattr(label_reductions, "MAX_DENSE_LABELS", limit)
    monkeypatch.setattr(label_reductions, "COLUMNS_PER_BLOCK", 7)
    rng = np.random.RandomState(0)
    Q = scipy.linalg.qr(rng.standard_normal((40, 40)))[0]
    G = (Q * 2.0 ** -np.arange(40)) @ Q.T
    V = label_reductions.compute_leading_eigenvectors(G.dot, 40, 4, rng, np.float64)
    np.testing.assert_allclose(V.T @ V, np.eye(4), atol=1e-10)
    np.testing.assert_allclose(np.abs(V.T @ Q), np.eye(4, 40), atol=1e-6)


# --- PLST and CPLST ------------------------------------------------------------------------------------------------


def plst_by_hand(X, Y, k, alpha, fit_intercept, conditional):
    A, mean = with_constant(X, fit_intercept), Y.mean(0)
    centred = Y - mean
    hat = A @ np.linalg.solve(A.T @ A + alpha * np.eye(A.shape[1]), A.T) if conditional else np.eye(len(Y))
    V = np.linalg.eigh(centred.T @ hat @ centred)[1][:, ::-1][:, :k]
    return A @ ridge(A, centred @ V, alpha) @ V.T + mean


@pytest.mark.parametrize("cls", [PLST, CPLST])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("shape", [(60, 9), (20, 40)], ids=["tall", "wide"])
@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_principal_directions_by_dense_algebra(cls, fit_intercept, shape, wrap):
    X, Y = linear_data(*shape)
    model = cls(3, alpha=0.7, fit_intercept=fit_intercept, **EXACT).fit(wrap(X), wrap(Y))
    expected = plst_by_hand(X, Y, 3, 0.7, fit_intercept, cls is CPLST)
    np.testing.assert_allclose(scores(model, X), expected, atol=1e-8)
    assert model.label_factors_.shape == (12, 4)


@pytest.mark.parametrize("cls", [PLST, CPLST])
def test_all_directions_are_a_ridge_regression_of_each_label(cls):
    X, Y = linear_data()
    A = with_constant(X, True)
    expected = Ridge(0.7, fit_intercept=False).fit(A, Y - Y.mean(0)).predict(A) + Y.mean(0)
    np.testing.assert_allclose(scores(cls(12, alpha=0.7, **EXACT).fit(X, Y), X), expected, atol=1e-9)


@pytest.mark.parametrize("cls", LINEAR)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_objective_is_the_one_of_the_docstring(cls, dtype):
    X, Y = linear_data()
    model = cls(3, alpha=0.7, dtype=dtype, random_state=0).fit(X, Y)
    W = np.vstack([model.feature_factors_, model.intercept_factors_])
    expected = ((Y - scores(model, X)) ** 2).sum() / 2 + 0.7 / 2 * (W**2).sum()
    assert model.objective_ == [pytest.approx(expected, rel=1e-5 if dtype == "float32" else 1e-12)]


@pytest.mark.parametrize("alpha", [1e-3, 0.7, 20.0])
@pytest.mark.parametrize("k", [1, 2, 5, 8])
def test_no_orthogonal_code_beats_the_conditional_one(alpha, k):
    X, Y = linear_data()
    best = CPLST(k, alpha=alpha, **EXACT).fit(X, Y).objective_[0]
    assert best <= PLST(k, alpha=alpha, **EXACT).fit(X, Y).objective_[0] + 1e-9
    A, centred, rng = with_constant(X, True), Y - Y.mean(0), np.random.default_rng(0)
    for _ in range(20):
        V = scipy.linalg.qr(rng.standard_normal((12, k)), mode="economic")[0]
        W = ridge(A, centred @ V, alpha)
        assert best <= ((centred - A @ W @ V.T) ** 2).sum() / 2 + alpha / 2 * (W**2).sum() + 1e-9


@pytest.mark.parametrize("k", [1, 3, 6])
def test_the_training_error_of_plst_is_never_below_that_of_cplst(k):
    for seed in range(5):
        X, Y = linear_data(seed=seed)
        errors = [
            ((Y - scores(cls(k, alpha=1e-9, dtype="float64").fit(X, Y), X)) ** 2).sum() for cls in (PLST, CPLST)
        ]
        assert errors[0] >= errors[1] - 1e-6


def test_cplst_is_reduced_rank_regression():
    """LEML's claim 2, and the same with a ridge: α is rows √α I with targets 0."""
    X, Y = linear_data()
    A, centred = with_constant(X, True), Y - Y.mean(0)
    for alpha, rows in ((1e-9, 0), (0.7, A.shape[1])):
        stacked = np.vstack([A, np.sqrt(alpha) * np.eye(A.shape[1])[:rows]])
        W, H = reduced_rank_regression(stacked, np.vstack([centred, np.zeros((rows, 12))]), 3)
        model = CPLST(3, alpha=alpha, **EXACT).fit(X, Y)
        np.testing.assert_allclose(scores(model, X), A @ W @ H.T + Y.mean(0), atol=1e-6)


# --- CSSP ----------------------------------------------------------------------------------------------------------


def test_column_subset_selection_by_dense_algebra():
    X, Y = linear_data()
    model = CSSP(4, alpha=0.7, **EXACT).fit(X, Y)
    chosen = model.selected_labels_
    assert len(set(chosen)) == 4
    A = with_constant(X, True)
    expected = A @ ridge(A, Y[:, chosen], 0.7) @ np.linalg.pinv(Y[:, chosen]) @ Y
    np.testing.assert_allclose(scores(model, X), expected, atol=1e-9)


def test_every_label_selected_is_a_ridge_regression_of_each():
    X, Y = linear_data()
    A = with_constant(X, True)
    found = scores(CSSP(12, alpha=0.7, **EXACT).fit(X, Y), X)
    np.testing.assert_allclose(found, A @ ridge(A, Y, 0.7), atol=1e-8)


def test_equal_labels_share_what_stands_for_them():
    Y = np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1], [0, 0, 0]])
    found = solve_combinations(sp.csr_array(Y[:, :2].astype(float)), sp.csr_array(Y))
    np.testing.assert_allclose(found, [[0.5, 0.5, 0], [0.5, 0.5, 0]], atol=1e-12)


def test_labels_are_drawn_by_leverage():
    labels = Labels(np.ones((1, 4), int))
    leverage = np.array([0.5, 0.3, 0.2, 0.0])
    drawn = [draw_labels_by_leverage(leverage, labels, 2, np.random.RandomState(seed)) for seed in range(1000)]
    first, second = np.bincount([a for a, _ in drawn], minlength=4), np.array(drawn)
    np.testing.assert_allclose(first / 1000, leverage, atol=0.05)
    # After label 0, the chances of 1 and 2 are 3 to 2.
    after = second[second[:, 0] == 0, 1]
    assert np.mean(after == 1) == pytest.approx(0.6, abs=0.06)


def test_labels_without_a_positive_are_not_drawn():
    X, Y = linear_data()
    Y[:, [2, 5, 7]] = 0
    model = CSSP(12, alpha=0.1, **EXACT).fit(X, Y)
    assert sorted(model.selected_labels_) == [0, 1, 3, 4, 6, 8, 9, 10, 11]
    np.testing.assert_allclose(scores(model, X)[:, [2, 5, 7]], 0, atol=1e-12)


# --- random projections and sparse recovery ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PROJECTIONS)
def test_projections_keep_lengths_on_average(kind):
    A = PROJECTIONS[kind](60, 100, np.random.RandomState(0))
    assert A.shape == (60, 100)
    assert (A**2).sum(0).mean() == pytest.approx(1, abs=0.1)
    inner = A.T @ A - np.diag((A**2).sum(0))
    assert np.abs(inner).mean() < 0.15
    if kind in ("sign", "hadamard"):
        np.testing.assert_allclose(np.abs(A), 60**-0.5)
    if kind == "orthogonal":
        np.testing.assert_allclose(A @ A.T, np.eye(60) * 100 / 60, atol=1e-12)


@pytest.mark.parametrize("kind", PROJECTIONS)
def test_labels_that_never_occur_have_no_column(kind):
    Y = sparse_labels()
    Y[:, [0, 3]] = 0
    A = draw_projection(kind, Labels(Y), 12, np.random.RandomState(0))
    assert A.shape == (10, 12)
    assert (np.abs(A).sum(0) > 0).tolist() == [False, True, True, False] + [True] * 8
    assert not draw_projection(kind, Labels(0 * Y), 12, np.random.RandomState(0)).any()


def recovered(loop, A, Z, *settings):
    found = np.full((len(Z), A.shape[1]), np.nan)
    loop(A.T @ A, Z @ A, *settings, found, 0, len(Z))
    return found


def fit_on(A, z, support):
    y = np.zeros(A.shape[1])
    y[support] = np.linalg.lstsq(A[:, support], z, rcond=None)[0]
    return y


def plain_omp(A, z, s):
    lengths, support = np.linalg.norm(A, axis=0), []
    y = np.zeros(A.shape[1])
    while len(support) < s:
        near = np.abs((z - A @ y) @ A) / np.where(lengths > 0, lengths, np.inf)
        near[support] = -1
        support.append(int(near.argmax()))
        y = fit_on(A, z, support)
    return y


def plain_cosamp(A, z, s, rounds):
    lengths = np.linalg.norm(A, axis=0)
    y, best = np.zeros(A.shape[1]), np.inf
    for _ in range(rounds):
        near = np.abs((z - A @ y) @ A) / lengths
        near[y != 0] = -1
        support = np.union1d(np.flatnonzero(y), np.argsort(-near)[: 2 * s])
        pruned = np.argsort(-np.abs(fit_on(A, z, support)) * lengths)[:s]
        candidate = fit_on(A, z, pruned)
        error = ((z - A @ candidate) ** 2).sum()
        if error >= best * (1 - 1e-9):
            break
        y, best = candidate, error
    return y


def noisy_codes(noise=0.1, k=20, L=40, s=3, n=25, seed=0):
    rng = np.random.RandomState(seed)
    A = PROJECTIONS["gaussian"](k, L, rng) * rng.uniform(0.5, 2, L)
    Y = np.zeros((n, L))
    for row in Y:
        row[rng.choice(L, s, replace=False)] = 1
    return A, Y @ A.T + noise * rng.standard_normal((n, k)), Y


def test_orthogonal_matching_pursuit_is_the_plain_one():
    A, Z, _ = noisy_codes()
    A[:, 7] = 0
    for s in (1, 4, 15):
        np.testing.assert_allclose(
            recovered(sparse_recovery.omp, A, Z, s), [plain_omp(A, z, s) for z in Z], atol=1e-8
        )


def test_cosamp_is_the_plain_one():
    A, Z, _ = noisy_codes()
    for s in (1, 3, 6):
        plain = [plain_cosamp(A, z, s, 20) for z in Z]
        np.testing.assert_allclose(recovered(sparse_recovery.cosamp, A, Z, s, 20, 20), plain, atol=1e-8)


@pytest.mark.parametrize("l1", [0.0, 0.05, 0.5])
def test_the_lasso_meets_its_optimality_conditions(l1):
    A, Z, _ = noisy_codes(k=30, L=25)
    found = recovered(sparse_recovery.lasso, A, Z, l1, 10_000, 1e-12)
    pull = (Z - found @ A.T) @ A
    on = found != 0
    np.testing.assert_allclose(pull[on], l1 * np.sign(found[on]), atol=1e-8)
    assert (np.abs(pull[~on]) <= l1 + 1e-8).all()
    assert on.any() == (l1 < np.abs(Z @ A).max())


@pytest.mark.parametrize(
    ("loop", "settings", "tolerance"),
    [
        (sparse_recovery.omp, (2,), 1e-8),
        (sparse_recovery.cosamp, (2, 30, 20), 1e-8),
        (sparse_recovery.lasso, (1e-4, 10_000, 1e-12), 1e-2),
    ],
    ids=["omp", "cosamp", "lasso"],
)
def test_sparse_labels_come_back_from_clean_codes(loop, settings, tolerance):
    A, Z, Y = noisy_codes(noise=0, k=30, s=2)
    np.testing.assert_allclose(recovered(loop, A, Z, *settings), Y, atol=tolerance)
    np.testing.assert_array_equal(recovered(loop, A, 0 * Z, *settings), 0)


def test_pursuits_leave_out_columns_that_say_nothing_new():
    A = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    for loop, settings in ((sparse_recovery.omp, (3,)), (sparse_recovery.cosamp, (2, 2, 10))):
        np.testing.assert_allclose(recovered(loop, A, np.array([[3.0, 2.0]]), *settings), [[3, 0, 2]])


@pytest.mark.parametrize("projection", PROJECTIONS)
def test_compressed_sensing_is_regression_and_recovery(projection):
    X, Y = linear_data()
    model = CompressedSensing(8, alpha=0.7, n_nonzero=3, projection=projection, **EXACT).fit(X, Y)
    A, features = model.projection_, with_constant(X, True)
    W = ridge(features, Y @ A.T, 0.7)
    expected = [plain_omp(A, z, 3) for z in features @ W]
    np.testing.assert_allclose(scores(model, X), expected, atol=1e-8)
    residual = ((Y @ A.T - features @ W) ** 2).sum() / 2 + 0.7 / 2 * (W**2).sum()
    assert model.objective_ == [pytest.approx(residual, rel=1e-10)]


def test_with_as_many_codes_as_labels_nothing_is_lost():
    X, Y = linear_data()
    A = with_constant(X, True)
    for recovery in ({"recovery": "omp", "n_nonzero": 12}, {"recovery": "lasso", "l1": 0.0, "tol": 1e-12}):
        model = CompressedSensing(12, alpha=0.7, **recovery, **EXACT).fit(X, Y)
        np.testing.assert_allclose(scores(model, X), A @ ridge(A, Y, 0.7), atol=1e-8)


def test_how_many_labels_are_recovered():
    X, Y = linear_data()
    often = int(np.ceil(4 * Y.sum() / len(Y)))
    assert CompressedSensing(12, random_state=0).fit(X, Y).n_nonzero_ == min(12, often)
    model = CompressedSensing(6, n_nonzero=2, random_state=0).fit(X, Y)
    assert model.n_nonzero_ == 2
    assert ((scores(model, X) != 0).sum(1) <= 2).all()
    assert CompressedSensing(3, n_nonzero=5).fit(X, Y).n_nonzero_ == 3


# --- all of them ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", ALL)
def test_threads_change_nothing(cls):
    X, Y = linear_data(n=400, d=30, L=50)
    one, two = (cls(20, random_state=0, n_jobs=n).fit(X, Y) for n in (1, 2))
    np.testing.assert_array_equal(one.decision_function(X), two.decision_function(X))


@pytest.mark.parametrize("cls", ALL)
def test_files_that_do_not_hold_together(cls, tmp_path):
    X, Y = linear_data()
    model = cls(3, random_state=0).fit(X, Y)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").decision_function(X), model.decision_function(X))
    for name in ("label_factors_", "projection_", "feature_factors_", "selected_labels_", "prior_"):
        if hasattr(model, name):
            broken = cls(3, random_state=0).fit(X, Y)
            setattr(broken, name, getattr(broken, name)[:-1])
            broken.save(tmp_path / "broken")
            with pytest.raises(ModelFileError, match="is inconsistent"):
                load(tmp_path / "broken")


@pytest.mark.parametrize("cls", ALL)
def test_more_codes_than_labels(cls):
    X, Y = linear_data()
    with pytest.raises(ValueError, match=r"n_components=13 is above the number of labels, 12.*at most 12"):
        cls(13).fit(X, Y)


@pytest.mark.parametrize("cls", ALL)
def test_labels_that_never_occur(cls):
    X, Y = linear_data()
    model = cls(random_state=0).fit(X, 0 * Y)
    assert not model.predict(X).any()
    assert np.isfinite(model.decision_function(X)).all()


@pytest.mark.parametrize("cls", ALL)
def test_numbers_that_overflow(cls):
    X, Y = linear_data()
    with pytest.raises(ValueError, match=r"too large or too small for dtype='float32' .*; scale the features"):
        cls(3, random_state=0).fit(1e25 * X, Y)


@pytest.mark.parametrize(
    ("cls", "wrong", "message"),
    [
        (PLST, {"alpha": -1.0}, "alpha=-1.0 is out of range"),
        (CPLST, {"n_components": 0}, "n_components=0 is out of range"),
        (CompressedSensing, {"projection": "magic"}, "projection='magic' is not known"),
        (CompressedSensing, {"recovery": "magic"}, "recovery='magic' is not known"),
        (CompressedSensing, {"n_nonzero": 0}, "n_nonzero=0 is out of range"),
        (CompressedSensing, {"l1": -0.1}, "l1=-0.1 is out of range"),
        (BayesianCS, {"noise": 0.0}, "noise=0.0 is out of range"),
        (BayesianCS, {"n_updates": 0}, "n_updates=0 is out of range"),
    ],
)
def test_parameters_that_mean_nothing(cls, wrong, message):
    X, Y = linear_data()
    with pytest.raises(ValueError, match=message):
        cls(**wrong).fit(X, Y)


@pytest.mark.parametrize(
    ("name", "cls", "chosen"),
    [
        ("PLST", PLST, {"alpha"}),
        ("CPLST", CPLST, {"alpha"}),
        ("ML-CSSP", CSSP, {"alpha"}),
        ("CS", CompressedSensing, {"alpha", "n_nonzero"}),
        ("BCS", BayesianCS, {"alpha"}),
    ],
)
def test_how_tables_fit_them(name, cls, chosen):
    X, Y = linear_data()
    fitted = METHODS[name].fit(Task(X, Labels(Y), 6, "squared", 3, criteria=("P@1", "P@3")))
    assert fitted.params.keys() == chosen
    again = cls(6, random_state=3, **fitted.params).fit(X, Y)
    np.testing.assert_array_equal(fitted.estimator.decision_function(X), again.decision_function(X))


# --- published figures ---------------------------------------------------------------------------------------------


@pytest.mark.skipif("LABELGAP_DATA" not in os.environ, reason="needs real data: LABELGAP_DATA does not name a folder")
@pytest.mark.parametrize(
    ("model", "least"),
    [
        (CPLST(150, alpha=1.0), [62.38, 37.84, 27.62]),
        (CompressedSensing(127, alpha=1.0, random_state=0), [58.87, 33.53, 23.72]),
        (CSSP(127, alpha=1.0, random_state=0), [44.98, 30.43, 23.53]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_bibtex_with_every_label_known(model, least):
    """The rows of the repository's table."""
    data = load_dataset("bibtex")
    best = model.fit(normalize(data.X_train), data.Y_train).predict_topk(normalize(data.X_test), 5)
    found = [100 * precision_at_k(data.Y_test, best, k) for k in (1, 3, 5)]
    assert np.all(np.array(found) >= least), found
