"""A machine for each label: scikit-learn's own one on the known rows, chosen by errors that are counted by hand."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, KFold, PredefinedSplit, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

import labelgap
from labelgap import EMImputer, Labels, LabelwiseSVM
from labelgap.estimators.binary_relevance import DEFAULT_CS, _draw_folds
from labelgap.estimators.label_models import minimize_squared_hinge
from labelgap.metrics import precision_at_k

NO_LABELS = {
    "check_estimators_dtypes": "its targets are 1 and 2, and 2 is no label",
    "check_fit2d_1feature": "its targets are 1 and 2, and 2 is no label",
}


@parametrize_with_checks(
    [LabelwiseSVM(), LabelwiseSVM("cv", Cs=[0.1, 1.0], random_state=0)], expected_failed_checks=lambda _: NO_LABELS
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# --- the machines ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_each_label_is_learned_from_its_known_rows(wrap, planted):
    data = planted()
    model = LabelwiseSVM(0.3, tol=1e-8).fit(wrap(data.X), data.gaps)
    scores = model.decision_function(data.X)
    for j in range(5):
        known = data.observed[:, j]
        alone = LinearSVC(C=0.3, dual=False, tol=1e-8).fit(data.X[known], data.Y[known, j])
        np.testing.assert_allclose(scores[:, j], alone.decision_function(data.X), atol=1e-5)
    np.testing.assert_array_equal(model.predict(data.X), scores > 0)
    assert model.chosen_C_.tolist() == [0.3] * 5
    assert model.cv_errors_ is None


def slope(w, C, X, y):
    """The gradient of ½ ‖w‖² + C Σ max(0, 1 − y (x, 1)·w)², in units of its two parts."""
    Z = np.column_stack([X, np.ones(len(X))])
    pull = 2 * C * Z.T @ (y * np.maximum(0, 1 - y * (Z @ w)))
    return np.linalg.norm(w - pull) / (np.linalg.norm(w) + np.linalg.norm(pull))


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array], ids=["Newton", "liblinear"])
def test_the_machines_minimise_what_the_docstring_says(wrap, planted):
    data = planted()
    model = LabelwiseSVM(2.0, tol=1e-9).fit(wrap(data.X), data.gaps)
    for j in range(5):
        known, w = data.observed[:, j], np.append(model.coef_[j], model.intercept_[j])
        assert slope(w, 2.0, data.X[known], 2 * data.Y[known, j] - 1) < 1e-6


@pytest.mark.parametrize("C", [1e-8, 1e-2, 1.0, 1e3, 1e8])
@pytest.mark.parametrize("kind", ["noisy", "separable", "few rows", "uneven"])
def test_newton_comes_to_the_minimum_of_any_problem(kind, C):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((8 if kind == "few rows" else 100, 10))
    y = np.where(X @ rng.standard_normal(10) + (2 * rng.standard_normal(len(X)) if kind == "noisy" else 0) > 0, 1, -1)
    if kind == "uneven":
        X *= np.logspace(-3, 2, 10)
    V = np.column_stack([X, np.ones(len(X))]) * y[:, None]
    w, converged, _ = minimize_squared_hinge(V, C, np.zeros(11), 200)
    assert converged
    assert slope(w, C, X, y) < 1e-5
    warm, converged, _ = minimize_squared_hinge(V, C, minimize_squared_hinge(V, C / 10, np.zeros(11), 200).w, 200)
    assert converged
    np.testing.assert_allclose(V @ warm, V @ w, rtol=1e-4, atol=1e-4)


def test_equal_features_and_a_large_C():
    """Then the matrix of a step is singular to rounding."""
    rng = np.random.default_rng(0)
    X = 1e3 * rng.standard_normal((60, 3))
    y = np.where(X[:, 0] + 1e3 * rng.standard_normal(60) > 0, 1, -1)
    twice = np.column_stack([X, X, np.ones(60)]) * y[:, None]
    w, converged, _ = minimize_squared_hinge(twice, 1e8, np.zeros(7), 500)
    once, *_ = minimize_squared_hinge(np.column_stack([X, np.ones(60)]) * y[:, None], 1e8, np.zeros(4), 500)
    assert converged
    np.testing.assert_allclose(twice @ w, np.column_stack([X, np.ones(60)]) * y[:, None] @ once, atol=1e-5)


def test_every_way_of_writing_gaps_gives_the_same_machines(planted):
    X, Y, observed = planted()
    junk = np.where(observed, Y, 1 - Y)
    rows, columns = np.nonzero(observed)
    stored = sp.coo_array((Y[rows, columns], (rows, columns)), shape=Y.shape)
    models = [
        LabelwiseSVM().fit(X, np.where(observed, 2.0 * Y - 1, np.nan)),
        LabelwiseSVM().fit(X, junk, observed=observed),
        LabelwiseSVM().fit(X, Labels(junk, observed=observed)),
        LabelwiseSVM(absent="unknown").fit(X, stored),
    ]
    for other in models[1:]:
        np.testing.assert_array_equal(other.coef_, models[0].coef_)
    assert set(np.unique(models[0].predict(X))) == {-1.0, 1.0}
    assert isinstance(models[3].predict(X), sp.csr_array)
    assert models[1].predict(X).dtype == Y.dtype


@pytest.mark.parametrize("C", [1.0, "cv"])
def test_a_label_with_one_class_is_predicted_to_have_it(C, planted):
    data = planted()
    Y = data.gaps
    Y[:, 0] = np.where(data.observed[:, 0], 0, np.nan)
    Y[:, 1] = np.where(data.observed[:, 1], 1, np.nan)
    Y[:, 2] = np.nan
    model = LabelwiseSVM(C, Cs=[0.1, 1], random_state=0).fit(data.X, Y)
    scores = model.decision_function(data.X)
    np.testing.assert_array_equal(scores[:, :3], [[-1, 1, 0]] * 40)
    np.testing.assert_array_equal(model.predict(data.X)[:, :3], [[0, 1, 0]] * 40)
    np.testing.assert_array_equal(np.isnan(model.chosen_C_), [True, True, True, False, False])


def test_forms_of_rows(planted):
    data = planted()
    X = np.where(np.abs(data.X) < 0.4, 0, data.X)
    wide = sp.csr_array(X)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    expected = LabelwiseSVM(tol=1e-6).fit(X, data.gaps).decision_function(X)
    for given in (wide, sp.csc_array(X), np.asfortranarray(X), X.tolist()):
        found = LabelwiseSVM(tol=1e-6).fit(given, data.gaps).decision_function(given)
        np.testing.assert_allclose(found, expected, atol=1e-4)
    assert wide.indices.dtype == np.int64
    single = LabelwiseSVM(dtype="float32").fit(X, data.gaps)
    assert single.coef_.dtype == single.decision_function(X).dtype == np.float32


def test_rankings_and_scores(planted):
    data = planted()
    model = LabelwiseSVM().fit(data.X, data.gaps)
    dense = model.decision_function(data.X)
    indices, scores = model.predict_topk(data.X, 3)
    np.testing.assert_array_equal(indices, np.argsort(-dense, axis=1, kind="stable")[:, :3])
    np.testing.assert_array_equal(scores, np.take_along_axis(dense, indices, axis=1))
    assert model.score(data.X, data.gaps) == pytest.approx(precision_at_k(data.gaps, dense, 1))


# --- choosing C -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_folds", [2, 5])
def test_folds_share_out_each_class_evenly(n_folds):
    y = np.arange(31) % 3 == 0
    folds = _draw_folds(y, n_folds, np.random.RandomState(0))
    assert set(folds) == set(range(n_folds))
    for part in (y, ~y, np.ones(31, bool)):
        sizes = np.bincount(folds[part], minlength=n_folds)
        assert sizes.max() - sizes.min() <= 1
    other = _draw_folds(y, n_folds, np.random.RandomState(1))
    assert not np.array_equal(folds, other)


def test_errors_are_those_of_held_out_cells(planted):
    """Scikit-learn counts the same errors on the same folds, and the best C is refitted on all known rows."""
    data = planted(n=80)
    Cs = [10.0, 1e-3, 0.1]
    model = LabelwiseSVM("cv", Cs=Cs, n_folds=4, tol=1e-6, random_state=3).fit(data.X, data.gaps)
    seeds = np.random.RandomState(3).randint(np.iinfo(np.int32).max, size=5)
    for j in range(5):
        known = data.observed[:, j]
        X, y = data.X[known], data.Y[known, j]
        folds = _draw_folds(y == 1, 4, np.random.RandomState(seeds[j]))
        sizes = np.bincount(folds)
        for C, error in zip(Cs, model.cv_errors_[j], strict=True):
            machine = LinearSVC(C=C, dual=False, tol=1e-6)
            right = cross_val_score(machine, X, y, cv=PredefinedSplit(folds))
            assert error == pytest.approx(1 - right @ sizes / sizes.sum())
        best = next(C for C, error in zip(Cs, model.cv_errors_[j], strict=True) if error == model.cv_errors_[j].min())
        assert model.chosen_C_[j] == best
        again = LabelwiseSVM(best, tol=1e-6).fit(X, y[:, None])
        np.testing.assert_allclose(model.coef_[j], again.coef_[0], atol=1e-10)


def test_the_scale_of_the_features_decides_what_is_chosen():
    """Where tiny features say everything, a small C cannot see them past the intercept."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3)) * 1e-3
    y = (X[:, :1] > 0.5e-3).astype(int)
    tiny = LabelwiseSVM("cv", random_state=0).fit(X, y)
    large = LabelwiseSVM("cv", random_state=0).fit(X * 1e6, y)
    assert tiny.cv_errors_.shape == (1, len(DEFAULT_CS))
    assert tiny.chosen_C_[0] > 1 > large.chosen_C_[0]
    assert tiny.cv_errors_.min() < 0.1
    assert (tiny.predict(X) == y).mean() > 0.9


@pytest.mark.parametrize("n_known", [2, 3, 4])
def test_labels_with_very_few_known_cells(n_known):
    X = np.arange(12.0).reshape(6, 2)
    Y = np.full((6, 1), np.nan)
    Y[:n_known, 0] = np.arange(n_known) % 2
    model = LabelwiseSVM("cv", Cs=[0.1, 1], random_state=0).fit(X, Y)
    assert np.isfinite(model.cv_errors_).all()
    assert np.isfinite(model.decision_function(X)).all()


def test_threads_change_nothing(planted):
    data = planted(n=80)
    one, two = (LabelwiseSVM("cv", Cs=[0.01, 1], random_state=0, n_jobs=n).fit(data.X, data.gaps) for n in (1, 2))
    np.testing.assert_array_equal(one.coef_, two.coef_)
    np.testing.assert_array_equal(one.cv_errors_, two.cv_errors_)


# --- in a pipeline, in a search, in a file --------------------------------------------------------------------------


def test_after_an_imputer(planted):
    data = planted(n=80)
    X = np.where(np.random.default_rng(0).random(data.X.shape) < 0.3, np.nan, data.X)
    model = make_pipeline(EMImputer(), LabelwiseSVM("cv", Cs=[0.1, 1], random_state=0)).fit(X, data.gaps)
    by_hand = LabelwiseSVM("cv", Cs=[0.1, 1], random_state=0).fit(EMImputer().fit_transform(X), data.gaps)
    np.testing.assert_array_equal(model.predict(X), by_hand.predict(EMImputer().fit_transform(X)))
    assert (model.predict(X) == data.Y)[~data.observed].mean() > 0.7
    search = GridSearchCV(
        make_pipeline(SimpleImputer(), LabelwiseSVM()), {"labelwisesvm__C": [1e-3, 1.0]}, cv=KFold(3)
    )
    assert search.fit(X, data.gaps).best_score_ > 0.5


def test_gaps_in_rows_are_refused():
    with pytest.raises(ValueError, match="Input X contains NaN"):
        LabelwiseSVM().fit([[np.nan], [1.0]], [[0], [1]])


@pytest.mark.parametrize("C", [0.5, "cv"])
def test_save_and_load(C, planted, tmp_path):
    data = planted()
    model = LabelwiseSVM(C, Cs=[0.1, 1.0], random_state=0).fit(data.X, data.gaps)
    model.save(tmp_path / "model")
    again = labelgap.load(tmp_path / "model")
    np.testing.assert_array_equal(again.decision_function(data.X), model.decision_function(data.X))
    np.testing.assert_array_equal(again.chosen_C_, model.chosen_C_)
    assert again.get_params()["C"] == C
    assert clone(again).fit(data.X, data.gaps).status_ == "converged"


# --- what it says ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"C": 0}, r"C=.*0.* is out of range; pass numbers above 0"),
        ({"C": -1.0}, r"C holds -1.0"),
        ({"C": "magic"}, r"C='magic' is not known; choose from \['cv'\]"),
        ({"Cs": []}, r"Cs=\[\] is out of range"),
        ({"Cs": [1, np.inf]}, r"Cs holds inf"),
        ({"Cs": 3}, r"Cs=3 is out of range"),
        ({"n_folds": 1}, r"n_folds=1 is out of range"),
        ({"tol": -1}, r"tol=-1 is out of range"),
        ({"max_iter": 0}, r"max_iter=0 is out of range"),
        ({"absent": "no"}, r"absent='no' is not known"),
        ({"dtype": int}, r"dtype=<class 'int'> is not supported"),
    ],
    ids=str,
)
def test_parameters_out_of_range(changes, message):
    model = LabelwiseSVM(**changes)
    with pytest.raises(ValueError, match=message):
        model.fit([[0.0], [1.0]], [[0], [1]])
    with pytest.raises(NotFittedError):
        model.predict([[0.0]])


def test_too_few_iterations_warn_once(planted):
    data = planted()
    model = LabelwiseSVM(1e6, max_iter=1)
    with pytest.warns(ConvergenceWarning, match=r"max_iter=1 iterations for some labels.*scale the features") as told:
        model.fit(data.X, data.gaps)
    assert len(told) == 1
    assert told[0].filename == __file__
    assert model.status_ == "max_iter"


def test_verbose_prints_a_line_for_each_label(planted, capsys):
    data = planted()
    LabelwiseSVM(verbose=2).fit(data.X, data.gaps)
    assert len(capsys.readouterr().out.splitlines()) == 5
