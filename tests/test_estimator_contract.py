"""What every estimator promises: scikit-learn's own checks, and one suite that all of them run through.

A new estimator is one line in ``MAKERS``. What not every estimator promises is a trait on that line, and a test of it
names the trait.
"""

from __future__ import annotations

import re
import sys
import warnings
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from labelgap import (
    CPLST,
    CSSP,
    LEML,
    LPSR,
    MC1,
    MC1CV,
    PLST,
    SLEEC,
    WSABIE,
    AutoLabeler,
    BayesianCS,
    BinaryRelevance,
    CompressedSensing,
    FastXML,
    LabelKNN,
    Labels,
    LabelwiseSVM,
    LocalLEML,
    MCb,
    MCbCV,
    NaiveBayes,
    OneClassMF,
    OneClassMFCV,
    Tagger,
    hide_cells,
)
from labelgap.estimators.scores import BlockScores
from labelgap.losses import LOSSES
from labelgap.metrics import precision_at_k

# Parameters that every estimator takes make the fits of this file repeatable.
COMMON = {"alpha": 0.1, "tol": 1e-2, "random_state": 0, "dtype": "float64"}


class Maker(NamedTuple):
    """Makes an estimator, and says what sets it apart.

    Attributes
    ----------
    of : type
        The class.
    fixed : dict
        Its parameters here.
    gaps : bool
        An unknown cell does not count; otherwise it is unlabelled like every cell that is not a positive.
    complete : bool
        It refuses labels with gaps.
    steady : bool
        Rounding changes a fit by rounding. A curvature that jumps makes the path of a solver, though not where it
        leads, depend on the last bit of a sum.
    by_angle : bool
        Only the direction of a row counts, and one feature has no more of it than a sign.
    transductive : bool
        Labels and features are columns of one matrix, which a single one of each says nothing about.
    nothing : float
        The decision about a label of which nothing is known, less the threshold of a loss.
    """

    of: type
    fixed: dict
    gaps: bool = True
    complete: bool = False
    steady: bool = True
    by_angle: bool = False
    transductive: bool = False
    nothing: float = 0.0

    def __call__(self, **parameters):
        """Make one; what its class has no parameter for is not for it."""
        own = self.of().get_params()
        given = COMMON | self.fixed | parameters
        return self.of(**{name: value for name, value in given.items() if name in own})

    @property
    def traits(self):
        """What sets it apart, by name."""
        return {name: value for name, value in self._asdict().items() if name != "fixed"}

    def labels(self, data):
        """The labels of data with gaps, or where these are refused, without."""
        return data.Y.astype(float) if self.complete else data.gaps


# Most of what is unlabelled in this file is a no.
ONE_CLASS = {"weight_unlabelled": 0.9, "max_iter": 50}
COMPLETION = {"mu": 1e-3, "tol": 1e-5}
MAKERS = {
    "LEML": Maker(LEML, {}),
    "LEML logistic": Maker(LEML, {"loss": "logistic"}),
    "LEML squared hinge": Maker(LEML, {"loss": "squared_hinge"}, steady=False),
    "LEML rbf": Maker(LEML, {"kernel": "rbf"}),
    "OneClassMF": Maker(OneClassMF, ONE_CLASS, gaps=False),
    "OneClassMF squared": Maker(OneClassMF, ONE_CLASS | {"loss": "squared"}, gaps=False),
    "OneClassMF squared hinge": Maker(OneClassMF, ONE_CLASS | {"loss": "squared_hinge"}, gaps=False, steady=False),
    "OneClassMF subsampled": Maker(OneClassMF, ONE_CLASS | {"negatives": "subsampled"}, gaps=False),
    "LabelKNN": Maker(LabelKNN, {"n_neighbors": 3}, by_angle=True, nothing=-0.5),
    "LabelKNN euclidean": Maker(LabelKNN, {"n_neighbors": 3, "metric": "euclidean"}, nothing=-0.5),
    "SLEEC": Maker(SLEEC, {"n_components": 5, "n_learners": 2, "n_neighbors": 3}, by_angle=True, nothing=-0.5),
    "LocalLEML": Maker(LocalLEML, {"n_learners": 2}),
    "BinaryRelevance": Maker(BinaryRelevance, {"tol": 1e-9}),
    "BinaryRelevance logistic": Maker(BinaryRelevance, {"loss": "logistic", "tol": 1e-6}),
    "BinaryRelevance squared": Maker(BinaryRelevance, {"loss": "squared", "tol": 1e-6}, nothing=-0.5),
    "BinaryRelevance sparse": Maker(BinaryRelevance, {"l1": 0.1, "threshold": 0.01, "tol": 1e-6}),
    "LabelwiseSVM": Maker(LabelwiseSVM, {"C": 10.0, "tol": 1e-9}),
    "MC1": Maker(MC1, COMPLETION, transductive=True),
    "MCb": Maker(MCb, COMPLETION, transductive=True),
    "MC1 factored": Maker(MC1, COMPLETION | {"solver": "factored"}, transductive=True),
    "PLST": Maker(PLST, {}, complete=True),
    "CPLST": Maker(CPLST, {}, complete=True),
    "CSSP": Maker(CSSP, {}, complete=True),
    "CompressedSensing": Maker(CompressedSensing, {}, complete=True),
    "BayesianCS": Maker(BayesianCS, {"noise": 0.01}, nothing=-0.5),
    "FastXML": Maker(FastXML, {"n_estimators": 10, "max_leaf": 2}, nothing=-0.5),
    "WSABIE": Maker(WSABIE, {"learning_rate": 0.15, "max_iter": 1000}),
    "WSABIE neighbors": Maker(WSABIE, {"predict_by": "neighbors", "n_neighbors": 1, "max_iter": 300}, by_angle=True),
    "NaiveBayes": Maker(NaiveBayes, {"model": "bernoulli"}, by_angle=True),
    "AutoLabeler": Maker(AutoLabeler, {"budget": 60.0}, steady=False),
    "LPSR": Maker(LPSR, {"n_clusters": 1, "tol": 1e-9}),
    "LPSR nearest": Maker(LPSR, {"n_candidates": 5, "n_nearest": 2, "tol": 1e-9}),
}


def estimators(**traits):
    """Parametrize a test by the estimators that have all of these traits."""
    chosen = {name: maker for name, maker in MAKERS.items() if traits.items() <= maker.traits.items()}
    return pytest.mark.parametrize("make", chosen.values(), ids=chosen)


every_estimator = estimators()


def histories(model):
    """The objective from step to step, of each part of the model; neighbours have none."""
    objective = getattr(model, "objective_", [])
    return objective if objective and isinstance(objective[0], list) else [objective]


def end(model):
    """The objective at the end, of all parts together."""
    return sum(history[-1] for history in histories(model) if history)


TUNED = {"mu": (1e-3, 1e-2), "alpha": (0.1, 3.0), "n_neighbors": (3, 7), "C": (10.0, 0.1), "budget": (60.0, 30.0)}


def tuned(model):
    """A parameter to choose, its value here, and another one."""
    return next((name, *values) for name, values in TUNED.items() if hasattr(model, name))


def assert_near(model, other, X):
    """Two fits of the same data came to the same place, as far as their tolerance lets them."""
    assert end(model) == pytest.approx(end(other), rel=2e-2)
    assert ((model.decision_function(X) > 0) == (other.decision_function(X) > 0)).mean() > 0.97


# --- scikit-learn's checks -----------------------------------------------------------------------------------------

CHECKED = [
    LEML(),
    LEML(dtype="float64"),
    LEML(loss="logistic", dtype="float64"),
    LEML(loss="squared_hinge", dtype="float64"),
    LEML(solver="cg", dtype="float64"),
    LEML(init="random", dtype="float64"),
    LEML(fit_intercept=False, dtype="float64"),
    LEML(kernel="rbf", dtype="float64"),
    AutoLabeler(dtype="float64", random_state=0),
    LabelKNN(),
    LabelKNN(metric="euclidean", dtype="float64"),
    LocalLEML(n_learners=2, dtype="float64"),
    BinaryRelevance(),
    BinaryRelevance(dtype="float64"),
    BinaryRelevance(loss="logistic", dtype="float64"),
    BinaryRelevance(loss="squared", dtype="float64"),
    BinaryRelevance(l1=0.1, threshold=0.1, fit_intercept=False, dtype="float64"),
    LabelwiseSVM(),
    LabelwiseSVM(C="cv", Cs=[0.1, 1.0], n_folds=2),
    MC1CV(mu=1e-2, label_weights=[1.0], n_folds=2),
    MCbCV(mu=1e-2, label_weights=[0.1, 1.0], n_folds=2),
    OneClassMFCV(weights=[0.5], alphas=[0.1, 1.0], max_iter=3, n_splits=1, dtype="float64", random_state=0),
    MC1(mu=1e-2),
    MCb(mu=1e-2, solver="fpc"),
    MCb(mu=1e-2, solver="factored"),
    SLEEC(n_components=5, n_learners=2),
    SLEEC(n_components=5, n_learners=1, embedding="als", dtype="float64"),
    SLEEC(n_components=5, n_learners=1, regressor="admm", l1=0.1, threshold=0.1, dtype="float64"),
    PLST(),
    CPLST(dtype="float64"),
    CSSP(dtype="float64"),
    CompressedSensing(dtype="float64"),
    CompressedSensing(recovery="cosamp", dtype="float64"),
    CompressedSensing(recovery="lasso", dtype="float64"),
    BayesianCS(dtype="float64"),
    FastXML(n_estimators=3, max_leaf=1),
    FastXML(n_estimators=3, max_leaf=1, dtype="float64"),
    WSABIE(max_iter=3),
    WSABIE(max_iter=3, dtype="float64"),
    WSABIE(max_iter=3, predict_by="neighbors", dtype="float64"),
    NaiveBayes(dtype="float64"),
    NaiveBayes(model="bernoulli", dtype="float64"),
    LPSR(n_clusters=2, n_candidates=1, dtype="float64"),
    LPSR(LEML(dtype="float64"), n_clusters=2, n_candidates=1, n_nearest=2, dtype="float64"),
    OneClassMF(),
    OneClassMF(dtype="float64"),
    OneClassMF(loss="squared", dtype="float64"),
    OneClassMF(loss="squared_hinge", dtype="float64"),
    OneClassMF(negatives="subsampled", dtype="float64"),
]
NO_LABELS = {
    "check_estimators_dtypes": "its targets are 1 and 2, and 2 is no label",
    "check_fit2d_1feature": "its targets are 1 and 2, and 2 is no label",
    "check_sample_weights_pandas_series": "its targets are 1 and 2, and 2 is no label",
    "check_sample_weights_not_an_array": "its targets are 1 and 2, and 2 is no label",
    "check_sample_weights_shape": "its targets are 0 to 2, and 2 is no label",
    "check_sample_weights_not_overwritten": "its targets are 0 to 2, and 2 is no label",
    "check_sample_weight_equivalence_on_dense_data": "its targets are 0 to 2, and 2 is no label",
    "check_sample_weight_equivalence_on_sparse_data": "its targets are 0 to 2, and 2 is no label",
    "check_transformer_data_not_an_array": "its targets are one column without a second dimension",
    "check_transformer_general": "its targets are one column without a second dimension",
    "check_transformer_n_iter": "its targets are one column without a second dimension",
}
SINGLE_PRECISION = {
    "check_methods_sample_order_invariance": "it wants 1e-7, the rounding of float32, from sums in another order",
}

NOTHING_TO_HOLD_OUT = {
    "check_fit2d_1sample": "it wants an error that speaks of samples; ours names the cells or positives to hold out",
}


def expected_failures(estimator):
    searching = NOTHING_TO_HOLD_OUT if isinstance(estimator, MC1CV | MCbCV | OneClassMFCV) else {}
    return NO_LABELS | searching | (SINGLE_PRECISION if estimator.dtype == "float32" else {})


@parametrize_with_checks(CHECKED, expected_failed_checks=expected_failures)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@every_estimator
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32"])
def test_rows_of_any_type_with_labels(make, dtype):
    """What check_estimators_dtypes asks, with 0 and 1 for targets."""
    X = (3 * np.random.RandomState(0).uniform(size=(20, 5))).astype(dtype)
    model = make(n_components=1).fit(X, np.array([[0], [1]] * 10))
    assert model.predict(X).shape == model.decision_function(X).shape == (20, 1)


@estimators(by_angle=False, transductive=False)
def test_one_feature_with_labels(make):
    """What check_fit2d_1feature asks, with 0 and 1 for targets."""
    X = 3 * np.random.RandomState(0).uniform(size=(10, 1))
    Y = (X > 1.5).astype(int)
    assert (make(n_components=1).fit(X, Y).predict(X) == Y).mean() > 0.8


# --- decisions, predictions, rankings ------------------------------------------------------------------------------

CONTAINERS = {
    "int": lambda Y: Y.astype(np.int32),
    "float": lambda Y: Y.astype(np.float32),
    "bool": lambda Y: Y.astype(bool),
    "signed int": lambda Y: (2 * Y - 1).astype(np.int8),
    "signed float": lambda Y: 2.0 * Y - 1,
    "csr": lambda Y: sp.csr_array(Y.astype(np.float32)),
    "csc matrix": lambda Y: sp.csc_matrix(Y.astype(np.int16)),
}


@every_estimator
@pytest.mark.parametrize("name", CONTAINERS)
def test_predictions_come_in_the_container_of_the_labels(make, name, planted):
    X, Y, _ = planted()
    given = CONTAINERS[name](Y)
    model = make().fit(X, given)
    found, yes = model.predict(X), model.decision_function(X) > 0
    expected = CONTAINERS[name](yes)
    assert found.dtype == expected.dtype == given.dtype
    assert found.shape == Y.shape
    if sp.issparse(given):
        assert isinstance(found, sp.csr_array)
        assert found.nnz == yes.sum()
        found, expected = found.toarray(), expected.toarray()
    np.testing.assert_array_equal(found, expected)
    assert (yes == (Y == 1)).mean() > 0.8


@every_estimator
def test_predictions_of_labels_with_gaps(make, planted):
    data = planted()
    model = make().fit(data.X, make.labels(data))
    predicted = model.predict(data.X)
    assert predicted.dtype == float
    np.testing.assert_array_equal(predicted, model.decision_function(data.X) > 0)


@every_estimator
def test_predict_and_decide_agree_in_small_blocks(make, planted, monkeypatch):
    X, Y, _ = planted()
    model = make().fit(X, Y)
    whole = model.decision_function(X)
    monkeypatch.setattr("labelgap.estimators.scores.MAX_SCORES_PER_BLOCK", 3 * Y.shape[1])
    np.testing.assert_allclose(model.decision_function(X), whole, atol=1e-10)
    np.testing.assert_array_equal(model.predict(X), model.decision_function(X) > 0)


@every_estimator
def test_topk_is_the_dense_ranking(make, planted):
    X, Y, _ = planted()
    model = make().fit(X, Y)
    dense = model.decision_function(X)
    for k in (1, 3, 5):
        indices, scores = model.predict_topk(X, k)
        order = np.argsort(-dense, axis=1, kind="stable")[:, :k]
        np.testing.assert_array_equal(indices, order)
        np.testing.assert_allclose(scores, np.take_along_axis(dense, order, axis=1), atol=1e-12)


def test_ties_go_to_the_lower_index():
    """Small whole numbers make the products exact, so that equal scores are equal."""
    rng = np.random.default_rng(0)
    X = rng.integers(-2, 3, (50, 4)).astype(float)
    model = LEML(2, dtype="float64", random_state=0).fit(X, rng.integers(0, 2, (50, 30)))
    model.feature_factors_ = rng.integers(-1, 2, (4, 2)).astype(float)
    model.intercept_factors_ = np.ones(2)
    model.label_factors_ = rng.integers(-1, 2, (30, 2)).astype(float)
    dense = model.decision_function(X)
    assert all(len(np.unique(row)) < 30 for row in dense)
    order = np.argsort(-dense, axis=1, kind="stable")
    for k in (1, 2, 7, 30):
        indices, scores = model.predict_topk(X, k)
        np.testing.assert_array_equal(indices, order[:, :k])
        np.testing.assert_array_equal(scores, np.take_along_axis(dense, order[:, :k], axis=1))


@every_estimator
def test_k_out_of_range(make, planted):
    X, Y, _ = planted()
    model = make().fit(X, Y)
    for k in (0, -1, 6, 2.5, "all"):
        with pytest.raises(ValueError, match=rf"k={k!r} is out of range; there are 5 labels.*from 1 to 5"):
            model.predict_topk(X, k)


def precision_at_1(Y, scores):
    """The share of rows whose best known label is a yes, among the rows that have a known yes."""
    hits = []
    for y, s in zip(Y, scores):
        known = np.flatnonzero(~np.isnan(y))
        if (y[known] == 1).any():
            hits.append(y[known[np.argmax(s[known])]] == 1)
    return np.mean(hits)


@every_estimator
def test_score_is_precision_at_1_over_known_cells(make, planted):
    data = planted(n=80)
    test = planted(n=80, seed=1)
    model = make().fit(data.X, make.labels(data))
    dense = model.decision_function(test.X)
    assert model.score(test.X, test.gaps) == pytest.approx(precision_at_1(test.gaps, dense))
    assert model.score(test.X, test.gaps) == pytest.approx(precision_at_k(test.gaps, dense, 1))
    assert model.score(test.X, test.Y, test.observed) == model.score(test.X, test.gaps)
    assert model.score(test.X, Labels(test.Y, observed=test.observed)) == model.score(test.X, test.gaps)
    assert model.score(test.X, test.Y) == pytest.approx(precision_at_1(test.Y.astype(float), dense))


@every_estimator
def test_known_scores_are_the_decisions_of_known_cells(make, planted):
    data = planted()
    model = make().fit(data.X, make.labels(data))
    dense = model.decision_function(data.X)
    sparse = model.known_scores(data.X, data.gaps)
    rows, columns = np.nonzero(data.observed)
    assert sparse.nnz == data.observed.sum()
    np.testing.assert_array_equal(sparse.indices, columns)
    np.testing.assert_allclose(sparse.data, dense[rows, columns], atol=1e-10)
    np.testing.assert_allclose(model.known_scores(data.X, data.Y).toarray(), dense, atol=1e-10)


# --- the same labels in every form ---------------------------------------------------------------------------------


def stored(Y, known):
    rows, columns = np.nonzero(known)
    return sp.coo_array((Y[rows, columns], (rows, columns)), shape=Y.shape)


@estimators(complete=False)
def test_every_way_of_writing_gaps_gives_the_same_model(make, planted):
    X, Y, observed = planted()
    junk = np.where(observed, Y, 1 - Y)
    models = [
        make().fit(X, np.where(observed, Y, np.nan)),
        make().fit(X, junk, observed=observed),
        make().fit(X, sp.csr_array(junk), observed=sp.csc_array(observed)),
        make().fit(X, Labels(junk, observed=observed)),
        make().fit(X, Labels(junk), observed=observed),
    ]
    if "absent" in make().get_params():
        models += [make(absent="unknown").fit(X, stored(labels, observed)) for labels in (Y, 2 * Y - 1)]
    for other in models[1:]:
        assert histories(other) == histories(models[0])
        if hasattr(other, "label_factors_"):
            np.testing.assert_array_equal(other.label_factors_, models[0].label_factors_)
        np.testing.assert_array_equal(other.decision_function(X), models[0].decision_function(X))


@every_estimator
def test_what_it_says_of_gaps_is_so(make):
    about = make.of.about
    assert about.missing_labels == (make.gaps and not make.complete)
    assert about.positives_only == (not make.gaps)


@estimators(complete=True)
def test_gaps_are_refused(make, planted):
    data = planted()
    hidden = (~data.observed).sum()
    with pytest.raises(ValueError, match=rf"{hidden} unknown cells, and {make.of.__name__} must know"):
        make().fit(data.X, data.gaps)


@estimators(gaps=False)
def test_gaps_are_unlabelled_like_negatives(make, planted):
    data = planted()
    gaps, negatives = (make().fit(data.X, Y) for Y in (data.gaps, np.nan_to_num(data.gaps)))
    np.testing.assert_array_equal(gaps.decision_function(data.X), negatives.decision_function(data.X))


@estimators(gaps=True, complete=False)
def test_gaps_are_not_negatives(make, planted):
    data = planted(n=80, share=0.4)
    gaps = make().fit(data.X, data.gaps).predict(data.X)
    negatives = make().fit(data.X, np.nan_to_num(data.gaps)).predict(data.X)
    hidden = ~data.observed
    assert (gaps == data.Y)[hidden].mean() > (negatives == data.Y)[hidden].mean()


# --- repeatable, in parallel, in either precision -------------------------------------------------------------------


@every_estimator
def test_a_seed_makes_it_repeatable(make, planted):
    data = planted()
    a, b = (make().fit(data.X, make.labels(data)) for _ in range(2))
    np.testing.assert_array_equal(a.decision_function(data.X), b.decision_function(data.X))
    again = a.fit(data.X, make.labels(data))
    np.testing.assert_array_equal(again.decision_function(data.X), b.decision_function(data.X))


def test_another_seed_makes_another_start(planted):
    X, Y, _ = planted()
    first, second = (LEML(2, init="random", random_state=seed).fit(X, Y).label_factors_ for seed in (0, 1))
    assert not np.array_equal(first, second)


@every_estimator
def test_threads_do_not_change_the_model(make, planted):
    data = planted(n=150, d=30, L=40, k=5)
    one, two = (make(n_jobs=n, tol=0.1).fit(data.X, make.labels(data)) for n in (1, 2))
    assert_near(one, two, data.X)
    scores = one.decision_function(data.X)
    np.testing.assert_allclose(one.set_params(n_jobs=2).decision_function(data.X), scores, atol=1e-10)


@estimators(steady=True)
def test_threads_change_a_fit_by_rounding_only(make, planted):
    data = planted(n=150, d=30, L=40, k=5)
    one, two = (make(n_jobs=n, tol=0.1).fit(data.X, make.labels(data)) for n in (1, 2))
    np.testing.assert_allclose(two.decision_function(data.X), one.decision_function(data.X), atol=1e-6)
    np.testing.assert_allclose(*(np.concatenate(histories(model)) for model in (two, one)), rtol=1e-8)


@every_estimator
def test_float32_is_near_float64(make, planted):
    data = planted(n=80)
    models = {dtype: make(dtype=dtype, n_components=2, tol=1e-4, max_iter=200) for dtype in ("float32", "float64")}
    scores = {
        dtype: model.fit(data.X, make.labels(data)).decision_function(data.X) for dtype, model in models.items()
    }
    assert {dtype: array.dtype for dtype, array in scores.items()} == {name: np.dtype(name) for name in models}
    assert end(models["float32"]) == pytest.approx(end(models["float64"]), rel=1e-3)
    assert (((scores["float32"] > 0) == (scores["float64"] > 0)).mean()) > 0.97


# --- kinds of rows --------------------------------------------------------------------------------------------------


def with_wide_indices(X):
    csr = sp.csr_array(X)
    csr.indices, csr.indptr = csr.indices.astype(np.int64), csr.indptr.astype(np.int64)
    return csr


def backwards(X):
    """CSR whose columns come last first."""
    csr = sp.csr_array(X)
    order = np.concatenate([np.arange(a, b)[::-1] for a, b in zip(csr.indptr, csr.indptr[1:])])
    return sp.csr_array((csr.data[order], csr.indices[order], csr.indptr), shape=csr.shape)


FORMS = [
    sp.csr_array,
    sp.csc_array,
    sp.coo_matrix,
    with_wide_indices,
    backwards,
    np.asfortranarray,
    np.ndarray.tolist,
]


def assert_untouched(given, before):
    """A matrix has the same parts of the same types as its copy had."""
    if not sp.issparse(given):
        np.testing.assert_array_equal(given, before)
        return
    for part in ("data", "indices", "indptr") if given.format in ("csr", "csc") else ("data", "row", "col"):
        assert getattr(given, part).dtype == getattr(before, part).dtype
        np.testing.assert_array_equal(getattr(given, part), getattr(before, part))


@every_estimator
def test_rows_of_any_form(make, planted):
    data = planted()
    X = np.where(np.abs(data.X) < 0.4, 0, data.X)
    model = make().fit(X, make.labels(data))
    expected = model.decision_function(X)
    for form in FORMS:
        given = form(X)
        before = given.copy()
        np.testing.assert_allclose(model.decision_function(given), expected, atol=1e-10, err_msg=form.__name__)
        assert_near(make().fit(given, make.labels(data)), model, X)
        assert_untouched(given, before)


@estimators(steady=True)
@pytest.mark.parametrize("form", [sp.csr_array, with_wide_indices, backwards, np.asfortranarray])
def test_the_form_of_rows_changes_a_fit_by_rounding_only(make, form, planted):
    data = planted()
    X = np.where(np.abs(data.X) < 0.4, 0, data.X)
    scores = make().fit(X, make.labels(data)).decision_function(X)
    np.testing.assert_allclose(make().fit(form(X), make.labels(data)).decision_function(X), scores, atol=1e-6)


@every_estimator
@pytest.mark.parametrize("gaps", [False, True], ids=["complete", "gaps"])
def test_more_features_than_rows(make, gaps, planted):
    data = planted(n=15, d=60)
    Y = make.labels(data) if gaps else data.Y
    dense, sparse = make().fit(data.X, Y), make().fit(sp.csr_array(data.X), Y)
    assert_near(dense, sparse, data.X)
    assert dense.n_features_in_ == 60
    assert dense.predict(data.X)[Y == 1].mean() > 0.95


@estimators(gaps=True, complete=False)
def test_more_features_than_rows_fit_every_known_cell(make, planted):
    data = planted(n=15, d=60)
    found = make().fit(data.X, data.gaps).predict(data.X)
    assert (found == data.Y)[data.observed].mean() > 0.95


# --- the device -----------------------------------------------------------------------------------------------------

SEARCHES = {
    "MC1CV": Maker(MC1CV, {"mu": 1e-2, "label_weights": [1.0], "n_folds": 2}),
    "MCbCV": Maker(MCbCV, {"mu": 1e-2, "label_weights": [1.0], "n_folds": 2}),
    "OneClassMFCV": Maker(OneClassMFCV, {"weights": [0.5], "alphas": [0.1], "max_iter": 2, "n_splits": 1}),
}
ON_A_DEVICE = (LEML, OneClassMF, OneClassMFCV, LocalLEML, SLEEC, BinaryRelevance, MC1, MCb)


def fit_and_catch(model, X, Y):
    """Fit, and return the warnings of parameters that will be removed."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, Y)
    return [one for one in caught if one.category is FutureWarning]


@pytest.mark.parametrize("make", (MAKERS | SEARCHES).values(), ids=MAKERS | SEARCHES)
def test_a_device_without_effect_is_deprecated(make, planted):
    X, Y, _ = planted()
    assert make().device == "auto"
    assert fit_and_catch(make(), X, Y) == []
    told = fit_and_catch(make(device="cpu"), X, Y)
    assert len(told) == (make.of not in ON_A_DEVICE)
    for one in told:
        text = f"device='cpu' has no effect in {make.of.__name__}: .* will be removed; leave it out."
        assert re.fullmatch(text, str(one.message))
        assert one.filename == __file__
    with pytest.raises(ValueError, match="device='abacus' is not available"):
        make(device="abacus").fit(X, Y)


def test_the_device_of_a_tagger_is_that_of_its_estimator():
    texts, Y = ["salt and pepper", "salt", "pepper"], [[1, 1], [1, 0], [0, 1]]
    assert fit_and_catch(Tagger(LEML(1, device="cpu"), min_count=1), texts, Y) == []
    told = fit_and_catch(Tagger(LEML(1), min_count=1, device="cpu"), texts, Y)
    assert [str(one.message).split(":")[0] for one in told] == ["device='cpu' has no effect in Tagger"]


# --- gaps and small shapes ------------------------------------------------------------------------------------------


def with_nothing(data):
    Y = data.gaps
    Y[2], Y[3] = 0, np.nan  # a row without labels, a row without an observed cell
    Y[:, 0] = np.where(np.isnan(Y[:, 0]), np.nan, 0)  # no positives
    Y[:, 1] = np.nan  # nothing observed
    return Y


@every_estimator
def test_labels_and_rows_with_nothing_in_them(make, planted):
    data = planted()
    Y = np.nan_to_num(with_nothing(data)) if make.complete else with_nothing(data)
    model = make().fit(data.X, Y)
    assert np.isfinite(model.decision_function(data.X)).all()
    assert not model.predict(data.X)[:, 0].any()
    assert 0 <= model.score(data.X, Y) <= 1


@estimators(gaps=True, complete=False)
def test_nothing_known_about_a_label_is_no_score(make, planted):
    data = planted()
    model = make().fit(data.X, with_nothing(data))
    scores = model.decision_function(data.X) + getattr(model, "threshold_", 0.0)
    np.testing.assert_allclose(scores[:, 1], make.nothing, atol=1e-6)


@every_estimator
@pytest.mark.parametrize("shape", [(40, 1), (1, 5), (1, 1), (2, 5)])
@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_one_label_or_one_row(make, shape, wrap, planted):
    n, L = shape
    X, Y, _ = planted(n=n, L=L, k=1, seed=3)
    model = make(alpha=1e-3).fit(X, wrap(Y))
    found = model.predict(X)
    found = found.toarray() if sp.issparse(found) else found
    assert (found == Y).mean() > 0.9
    assert model.predict_topk(X, L)[0].shape == shape


# --- scikit-learn's tools -------------------------------------------------------------------------------------------


@every_estimator
def test_parameters_come_and_go(make, planted):
    data = planted()
    model = make().fit(data.X, make.labels(data))
    twin = clone(model)
    assert twin.get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        twin.predict(data.X)
    name, value, other = tuned(model)
    assert getattr(twin.set_params(**{name: other}), name) == other
    assert getattr(model, name) == value
    np.testing.assert_array_equal(
        clone(model).fit(data.X, make.labels(data)).decision_function(data.X), model.decision_function(data.X)
    )
    with pytest.raises(ValueError, match="magic"):
        model.set_params(magic=1)


@every_estimator
def test_in_a_pipeline(make, planted):
    data = planted()
    pipeline = make_pipeline(Normalizer(), make()).fit(data.X, make.labels(data))
    rows = Normalizer().fit_transform(data.X)
    alone = make().fit(rows, make.labels(data))
    np.testing.assert_array_equal(pipeline.predict(data.X), alone.predict(rows))
    assert pipeline.score(data.X, make.labels(data)) == alone.score(rows, make.labels(data))


@every_estimator
def test_in_a_grid_search_with_gaps(make, planted):
    data = planted(n=60)
    name, *values = tuned(make())
    search = GridSearchCV(make(), {name: values}, cv=KFold(2)).fit(data.X, make.labels(data))
    for i, value in enumerate(values):
        for fold, (train, test) in enumerate(KFold(2).split(data.X)):
            model = make(**{name: value}).fit(data.X[train], make.labels(data)[train])
            score = model.score(data.X[test], make.labels(data)[test])
            assert search.cv_results_[f"split{fold}_test_score"][i] == pytest.approx(score)
    assert getattr(search.best_estimator_, name) == search.best_params_[name]


@every_estimator
def test_feature_names(make, planted):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    X, Y, _ = planted()
    frame = pandas.DataFrame(X, columns=list("abcdef"))
    model = make().fit(frame, pandas.DataFrame(Y))
    assert model.feature_names_in_.tolist() == list("abcdef")
    np.testing.assert_array_equal(model.predict(frame), make().fit(X, Y).predict(X))
    assert model.score(frame, Y) == precision_at_k(Y, model.decision_function(frame))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[list("fedcba")])


# --- LEML: the objective --------------------------------------------------------------------------------------------


def brute_force(model, X, Y):
    """F of a fitted LEML, cell by cell."""
    loss = LOSSES[model.loss]()
    scores = X @ model.feature_factors_ @ model.label_factors_.T + model.intercept_factors_ @ model.label_factors_.T
    targets = np.where(Y == 1, loss.positive, loss.negative)
    cells = loss.functions(np).value(targets, scores)
    W = np.vstack([model.feature_factors_, model.intercept_factors_])
    alpha_labels = model.alpha if model.alpha_labels is None else model.alpha_labels
    return (
        cells[~np.isnan(Y)].sum()
        + model.alpha / 2 * (W**2).sum()
        + alpha_labels / 2 * (model.label_factors_**2).sum()
    )


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("gaps", [False, True], ids=["complete", "gaps"])
@pytest.mark.parametrize("options", [{}, {"fit_intercept": False}, {"alpha_labels": 0.7}], ids=str)
def test_the_objective_is_the_one_of_the_docstring(loss, gaps, options, planted):
    data = planted()
    Y = data.gaps if gaps else data.Y.astype(float)
    model = LEML(2, alpha=0.3, loss=loss, dtype="float64", random_state=0, max_iter=200, **options).fit(data.X, Y)
    assert model.objective_[-1] == pytest.approx(brute_force(model, data.X, Y), rel=1e-10)
    assert model.n_iter_ == len(model.objective_)
    assert (np.diff(model.objective_) <= 1e-9 * np.abs(model.objective_[0])).all()


# --- scikit-learn's callbacks and links -----------------------------------------------------------------------------


class TaskLog:
    """A callback of scikit-learn that lists the tasks that ended, and the score of a fitted estimator."""

    def setup(self, estimator, context):
        self.ended, self.scores = [], []

    def teardown(self, estimator, context):
        self.ended.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context, *, X=None, y=None, fitted_estimator=None):
        self.ended.append(context.task_name)
        if fitted_estimator is not None:
            self.scores.append(fitted_estimator.score(X, y))


NEEDS_CALLBACKS = pytest.mark.skipif(
    not hasattr(LEML, "set_callbacks"), reason="scikit-learn before 1.9: no callbacks"
)


@NEEDS_CALLBACKS
@every_estimator
def test_scikit_learn_callbacks_follow_a_fit(make, planted):
    data, log = planted(), TaskLog()
    Y = make.labels(data)
    model = make().set_callbacks(log).fit(data.X, Y)
    assert log.ended[-2:] == ["fit", "teardown"]
    assert log.scores == [model.score(data.X, Y)]
    assert log.ended.count("step") >= getattr(model, "n_iter_", 0) * (make.of is LEML)


@NEEDS_CALLBACKS
def test_scikit_learn_callbacks_reach_the_last_step_of_a_pipeline_and_end_with_an_error(planted):
    from sklearn.callback import ProgressBar

    data, log = planted(), TaskLog()
    make_pipeline(StandardScaler(), LEML(2)).set_callbacks(ProgressBar(), log).fit(data.X, data.Y)
    assert log.ended[-2:] == ["fit", "teardown"]
    with pytest.raises(ValueError, match="rows"):
        LEML(2).set_callbacks(log).fit(data.X, data.Y[:3])
    assert "fit" not in log.ended
    assert log.ended[-1] == "teardown"


def test_the_html_representation_links_to_the_documentation(monkeypatch):
    monkeypatch.setenv("LABELGAP_DOCS", "https://example.org/docs/")
    assert "https://example.org/docs/methods/LEML.html" in LEML()._repr_html_()


# --- LEML: callbacks, interrupts, warm starts ----------------------------------------------------------------------


def test_callbacks_see_every_alternation(planted):
    data = planted()
    seen = []
    model = LEML(2, random_state=0, tol=1e-4, callbacks=[seen.append]).fit(data.X, data.gaps)
    assert [told.number for told in seen] == list(range(1, model.n_iter_ + 1))
    assert [told.objective for told in seen] == model.objective_
    assert all(told.feature_factors.shape == (7, 2) and told.label_factors.shape == (5, 2) for told in seen)
    np.testing.assert_array_equal(seen[-1].label_factors, model.label_factors_)
    assert model.status_ == "converged"


def test_a_callback_may_stop_the_fit(planted):
    data = planted()
    others = []
    model = LEML(2, tol=0, callbacks=[lambda told: told.number == 2, others.append]).fit(data.X, data.gaps)
    assert (model.n_iter_, model.status_, len(others)) == (2, "stopped", 2)


def test_an_interrupt_leaves_a_model_and_goes_on(planted):
    data = planted()

    def interrupt(told):
        if told.number == 2:
            raise KeyboardInterrupt

    model = LEML(2, random_state=0, tol=0, n_jobs=1, callbacks=[interrupt])
    with pytest.raises(KeyboardInterrupt):
        model.fit(data.X, data.gaps)
    assert (model.n_iter_, model.status_) == (2, "stopped")
    whole = LEML(2, random_state=0, tol=0, n_jobs=1, callbacks=[lambda told: told.number == 2])
    np.testing.assert_array_equal(model.predict(data.X), whole.fit(data.X, data.gaps).predict(data.X))


def test_an_error_in_a_callback_leaves_the_model_as_it_was(planted):
    data, wider = planted(), planted(d=9)

    def fail(told):
        raise RuntimeError("no")

    model = LEML(2, random_state=0, callbacks=[fail])
    with pytest.raises(RuntimeError, match="no"):
        model.fit(data.X, data.gaps)
    with pytest.raises(NotFittedError):
        model.predict(data.X)
    model.set_params(callbacks=None).fit(data.X, data.gaps)
    before = model.decision_function(data.X)
    with pytest.raises(RuntimeError, match="no"):
        model.set_params(callbacks=[fail]).fit(wider.X, wider.Y)
    np.testing.assert_array_equal(model.decision_function(data.X), before)


@pytest.mark.parametrize("setting", [{}, {"loss": "logistic"}, {"kernel": "rbf"}, {"fit_intercept": False}], ids=str)
def test_a_warm_start_goes_on(setting, planted):
    data = planted()
    model = LEML(2, alpha=0.1, dtype="float64", random_state=0, max_iter=2, tol=1e-9, warm_start=True, **setting)
    ends = []
    for _ in range(4):
        with pytest.warns(ConvergenceWarning):
            model.fit(data.X, data.gaps)
        ends.append((model.objective_[0], model.objective_[-1]))
    for (_, last), (first, _) in pairwise(ends):
        assert first <= last * (1 + 1e-10)
    once = clone(model).set_params(max_iter=8)
    with pytest.warns(ConvergenceWarning):
        once.fit(data.X, data.gaps)
    assert once.objective_[-1] == pytest.approx(model.objective_[-1], rel=1e-8)


def test_without_warm_start_a_fit_begins_anew(planted):
    data = planted()
    model = LEML(2, random_state=0, n_jobs=1).fit(data.X, data.gaps)
    history = model.objective_
    assert model.fit(data.X, data.gaps).objective_ == history


@pytest.mark.parametrize("change", [{"d": 7}, {"L": 4}], ids=str)
def test_a_warm_start_needs_the_same_shapes(change, planted):
    data, other = planted(), planted(**change)
    model = LEML(2, warm_start=True).fit(data.X, data.Y)
    before = model.decision_function(data.X)
    with pytest.raises(ValueError, match=r"warm_start=True, but .* shapes .* clone the estimator for a new start"):
        model.fit(other.X, other.Y)
    np.testing.assert_array_equal(model.decision_function(data.X), before)
    with pytest.raises(ValueError, match=r"warm_start=True, but"):
        model.set_params(n_components=1).fit(data.X, data.Y)


# --- LEML: what it says ---------------------------------------------------------------------------------------------


def test_verbose_2_prints_a_line_for_each_alternation(planted, capsys):
    data = planted()
    model = LEML(2, verbose=2).fit(data.X, data.gaps)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"LEML {i + 1}/30: F = {value:.6g}" for i, value in enumerate(model.objective_)]


def test_verbose_1_shows_a_bar_and_0_nothing(planted, capsys, monkeypatch):
    data = planted()
    LEML(2).fit(data.X, data.gaps)
    assert capsys.readouterr() == ("", "")
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "100"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("rich._console", None)  # rich keeps the console that an earlier test made without a terminal
    LEML(2, verbose=1).fit(data.X, data.gaps)
    shown = capsys.readouterr().out
    assert "LEML" in shown
    assert "F = " in shown


def test_too_few_alternations_warn(planted):
    data = planted()
    model = LEML(2, max_iter=2, tol=1e-9)
    with pytest.warns(ConvergenceWarning, match=r"max_iter=2 .*tol=1e-09 .*; raise max_iter or tol") as caught:
        model.fit(data.X, data.gaps)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert model.status_ == "max_iter"
    assert model.predict(data.X).shape == data.Y.shape


# --- LEML: kernels --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [None, 0.2])
@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_three_ways_to_a_kernel(gamma, wrap, planted):
    data, test = planted(), planted(n=11, seed=1)
    X, Z = wrap(data.X), wrap(test.X)
    make = partial(LEML, 2, alpha=0.1, dtype="float64", random_state=0, n_jobs=1)
    named = make(kernel="rbf", gamma=gamma).fit(X, data.gaps)
    called = make(kernel=partial(rbf_kernel, gamma=gamma)).fit(X, data.gaps)
    computed = make(kernel="precomputed").fit(rbf_kernel(X, gamma=gamma), data.gaps)
    expected = named.decision_function(Z)
    np.testing.assert_array_equal(called.decision_function(Z), expected)
    np.testing.assert_array_equal(computed.decision_function(rbf_kernel(Z, X, gamma=gamma)), expected)
    assert named.feature_factors_.shape == (40, 2)
    # By hand: k(z, x) = exp(−γ ‖z − x‖²).
    distances = ((test.X[:, None] - data.X[None]) ** 2).sum(2)
    K = np.exp(-(gamma or 1 / data.X.shape[1]) * distances)
    factors = K @ named.feature_factors_ + named.intercept_factors_
    np.testing.assert_allclose(factors @ named.label_factors_.T - 0.5, expected, atol=1e-8)


def test_a_linear_kernel_is_the_matrix_of_inner_products(planted):
    data = planted()
    K = data.X @ data.X.T
    make = partial(LEML, 2, alpha=0.1, dtype="float64", random_state=0, n_jobs=1)
    features = make(kernel="linear").fit(K, data.gaps)
    computed = make(kernel="precomputed").fit(K, data.gaps)
    np.testing.assert_array_equal(computed.decision_function(K[:3]), features.decision_function(K[:3]))
    assert computed.feature_factors_.shape == (40, 2)


def test_splitters_cut_a_precomputed_kernel_both_ways(planted):
    data = planted(n=60)
    make = partial(LEML, 2, alpha=0.1, dtype="float64", random_state=0, n_jobs=1)
    named = cross_val_score(make(kernel="rbf", gamma=0.2), data.X, data.gaps, cv=3)
    computed = cross_val_score(make(kernel="precomputed"), rbf_kernel(data.X, gamma=0.2), data.gaps, cv=3)
    np.testing.assert_array_equal(named, computed)


def test_a_refit_with_another_kernel_forgets_the_training_rows(planted):
    data = planted()
    model = LEML(2, kernel="rbf", random_state=0, n_jobs=1).fit(data.X, data.gaps)
    again = model.set_params(kernel="linear").fit(data.X, data.gaps)
    fresh = LEML(2, random_state=0, n_jobs=1).fit(data.X, data.gaps)
    assert vars(again).keys() == vars(fresh).keys()
    np.testing.assert_array_equal(again.decision_function(data.X), fresh.decision_function(data.X))


class ByBlocks(LEML):
    """An estimator whose scores are known by their blocks alone."""

    def _scores(self, X):
        return BlockScores(super()._scores(X).blocks, self._kernels())


def test_blocks_alone_are_enough(planted, monkeypatch):
    X, Y, _ = planted()
    monkeypatch.setattr("labelgap.estimators.scores.MAX_SCORES_PER_BLOCK", 3 * Y.shape[1])
    plain, direct = (cls(2, dtype="float64", random_state=0).fit(X, Y) for cls in (ByBlocks, LEML))
    for found, expected in zip(plain.predict_topk(X, 3), direct.predict_topk(X, 3), strict=True):
        np.testing.assert_allclose(found, expected)
    gaps = hide_cells(Y, 0.4, random_state=0)
    found, expected = plain.known_scores(X, gaps), direct.known_scores(X, gaps)
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_allclose(found.data, expected.data)
    assert plain.score(X, gaps) == direct.score(X, gaps)
