"""Bad input gets one clear error that names the argument and what to do, and leaves the estimator as it was."""

from __future__ import annotations

import re

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

from labelgap import LEML, SLEEC, LabelKNN, Labels, LocalLEML, OneClassMF
from labelgap.losses import LOSSES
from labelgap.runtime import n_threads, threads

NAN = np.nan
N, D, L = 12, 4, 3
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, D))
Y = (RNG.random((N, L)) < 0.5).astype(int)
KNOWN = RNG.random((N, L)) < 0.7


def changed(array, value, at=(2, 1)):
    copy = np.array(array, dtype=object if isinstance(value, str) else float)
    copy[at] = value
    return copy


# Each case: parameters of the estimator, arguments of fit, words of the message in their order.
PARAMETERS = [
    ({"n_components": 0}, r"n_components=0 is out of range; pass an integer of at least 1"),
    ({"n_components": -3}, r"n_components=-3 is out of range"),
    ({"n_components": 2.0}, r"n_components=2\.0 is out of range; pass an integer"),
    ({"n_components": True}, r"n_components=True is out of range; pass an integer"),
    ({"n_components": "two"}, r"n_components='two' is out of range; pass an integer"),
    ({"n_components": 4}, r"n_components=4 is above min\(features, labels\) = min\(4, 3\) = 3.* Pass at most 3"),
    ({"alpha": -1.0}, r"alpha=-1\.0 is out of range; pass a finite number of at least 0"),
    ({"alpha": NAN}, r"alpha=nan is out of range; pass a finite number"),
    ({"alpha": np.inf}, r"alpha=inf is out of range; pass a finite number"),
    ({"alpha": "small"}, r"alpha='small' is out of range; pass a finite number"),
    ({"alpha": None}, r"alpha=None is out of range; pass a finite number"),
    ({"alpha_labels": -0.5}, r"alpha_labels=-0\.5 is out of range; pass a finite number"),
    ({"tol": -1e-3}, r"tol=-0\.001 is out of range"),
    ({"max_iter": 0}, r"max_iter=0 is out of range; pass an integer of at least 1"),
    ({"max_iter": 2.5}, r"max_iter=2\.5 is out of range; pass an integer"),
    ({"loss": "hinge"}, r"loss='hinge' is not known; choose from " + re.escape(str(sorted(LOSSES)))),
    ({"solver": "magic"}, r"solver='magic' is not known; choose from \['auto', 'direct', 'cg', 'tron'\]"),
    ({"init": "zeros"}, r"init='zeros' is not known; choose from \['svd', 'random'\]"),
    ({"kernel": "poly"}, r"kernel='poly' is not known; choose from \['linear', 'rbf', 'precomputed'\]"),
    ({"kernel": "rbf", "gamma": -1.0}, r"gamma=-1\.0 is out of range; pass a finite number"),
    ({"kernel": "precomputed"}, r"kernel='precomputed' needs the n×n kernel matrix .* X has shape \(12, 4\)"),
    ({"kernel": lambda a, b: a}, r"kernel=.* returned shape \(12, 4\) for 12 rows and 12 training rows; return"),
    ({"device": "abacus"}, r"device='abacus' is not available; use 'auto'"),
    ({"absent": "maybe"}, r"absent='maybe' is not known; choose from \['negative', 'unknown'\]"),
    ({"dtype": "float16"}, r"dtype='float16' is not supported; use 'float32' or 'float64'"),
    ({"dtype": "quick"}, r"dtype='quick' is not supported; use 'float32' or 'float64'"),
    ({"dtype": int}, r"dtype=<class 'int'> is not supported; use 'float32' or 'float64'"),
    ({"dtype": None}, r"dtype=None is not supported; use 'float32' or 'float64'"),
    ({"n_jobs": 0}, r"n_jobs=0 has no meaning; pass a positive integer, or -1 for all cores"),
    ({"n_jobs": 1.5}, r"n_jobs=1\.5 has no meaning; pass a positive integer"),
    ({"solver": "direct", "loss": "logistic"}, r"solver='direct' solves squared loss .* use solver='cg' or 'tron'"),
]

DATA = [
    ((changed(X, NAN), Y), r"Input X contains NaN"),
    ((changed(X, np.inf), Y), r"Input X contains infinity or a value too large"),
    ((changed(X, 1e300), Y), r"Input X contains infinity or a value too large for dtype\('float32'\)"),
    ((sp.csr_array(changed(X, NAN)), Y), r"Input X contains NaN"),
    ((X[0], Y), r"Expected 2D array, got 1D array instead.*Reshape your data"),
    ((X[:, :0], Y), r"Found array with 0 feature\(s\)"),
    ((X[:0], Y[:0]), r"Found array with 0 sample\(s\)"),
    ((changed(X, "word"), Y), r"could not convert string to float: 'word'"),
    ((X + 1j, Y), r"Complex data not supported"),
    ((X[:-1], Y), r"X has 11 rows and Y has 12; pass one row of labels for each row of X"),
    ((X, Y[:-1]), r"X has 12 rows and Y has 11; pass one row of labels"),
    ((X, sp.csr_array(Y)[:-1]), r"X has 12 rows and Y has 11; pass one row of labels"),
    ((X, Labels(Y)[:-1]), r"X has 12 rows and Y has 11; pass one row of labels"),
    ((X, None), r"requires y to be passed, but the target y is None: Y holds the labels"),
    ((X, Y[:, 0]), r"Y must have two dimensions.*pass y\.reshape\(-1, 1\)"),
    ((X, Y[:, :0]), r"Y has no labels: its shape is \(n, 0\)\. Pass at least one column"),
    ((X, changed(Y, 2)), r"Y holds 2\.0 at row 2, label 1; labels must be 0/1, bool or −1/\+1"),
    ((X, changed(Y, 0.5)), r"Y holds 0\.5 at row 2, label 1"),
    ((X, changed(Y, np.inf)), r"Y holds inf at row 2, label 1"),
    ((X, sp.csr_array(changed(Y, -2))), r"Y holds -2\.0 at row 2, label 1"),
    ((X, changed(Y, "yes")), r"Y holds object values that are not numbers.*MultiLabelBinarizer"),
    ((X, [["a", "b", "c"]] * N), r"Y holds .* values that are not numbers.*MultiLabelBinarizer"),
    ((X, [["a"], ["b", "c"]] * 6), r"Y is not a matrix: its rows differ in length.*MultiLabelBinarizer"),
    ((X, np.where(KNOWN, Y, -1) * [1, 1, 0]), r"Y mixes 0 and −1.*write negatives one way"),
    ((X, np.full((N, L), NAN)), r"No cell of Y is known.*nothing to learn from.*observed"),
    ((X, Y, np.zeros((N, L), bool)), r"No cell of Y is known.*Check that observed is True where labels are known"),
    ((X, Y, KNOWN[:-1]), r"observed has shape \(11, 3\) and Y has \(12, 3\); pass one flag for each cell"),
    ((X, Y, KNOWN[:, 0]), r"observed has shape \(12,\) and Y has \(12, 3\)"),
    ((X, Y, KNOWN.astype(str)), r"observed holds .* pass booleans"),
    ((X, np.where(KNOWN, Y, NAN), np.ones((N, L))), r"observed says that row .* is known, but Y is NaN there; clear"),
]

MORE = [
    ({"solver": "direct"}, (X, Y, KNOWN), r"solver='direct' solves squared loss on every cell.*missing"),
    ({"absent": "unknown"}, (X, sp.csr_array((N, L))), r"No cell of Y is known.*absent='unknown'"),
    ({"n_components": 13, "kernel": "rbf"}, (X, Y), r"n_components=13 is above .*min\(12, 3\) = 3"),
]

LOCAL_PARAMETERS = [
    ({"n_clusters": 0}, r"n_clusters=0 is out of range; pass an integer of at least 1"),
    ({"n_clusters": 2.0}, r"n_clusters=2\.0 is out of range; pass an integer"),
    ({"n_clusters": 13}, r"n_clusters=13 is above the number of rows, 12; pass at most 12, or None"),
    ({"n_learners": 0}, r"n_learners=0 is out of range; pass an integer of at least 1"),
    ({"n_learners": None}, r"n_learners=None is out of range; pass an integer"),
    ({"verbose": -1}, r"verbose=-1 is out of range"),
    ({"absent": "maybe"}, r"absent='maybe' is not known; choose from \['negative', 'unknown'\]"),
    ({"dtype": "float16"}, r"dtype='float16' is not supported; use 'float32' or 'float64'"),
    ({"device": "abacus"}, r"device='abacus' is not available; use 'auto'"),
    ({"n_jobs": 0}, r"n_jobs=0 has no meaning; pass a positive integer, or -1 for all cores"),
]
VOTING_PARAMETERS = [
    ({"n_neighbors": 0}, r"n_neighbors=0 is out of range; pass an integer of at least 1"),
    ({"n_neighbors": "all"}, r"n_neighbors='all' is out of range; pass an integer"),
    ({"metric": "dot"}, r"metric='dot' is not known; choose from \['cosine', 'euclidean'\]"),
    ({"weights": "rank"}, r"weights='rank' is not known; choose from \['similarity', 'uniform'\]"),
    ({"algorithm": "magic"}, r"algorithm='magic' is not known; choose from \['exact', 'approximate'\]"),
]
SLEEC_PARAMETERS = [
    ({"n_components": 0}, r"n_components=0 is out of range; pass an integer of at least 1"),
    ({"n_neighbors_embed": 0}, r"n_neighbors_embed=0 is out of range"),
    ({"max_iter": 0}, r"max_iter=0 is out of range"),
    ({"regressor_max_iter": 0}, r"regressor_max_iter=0 is out of range"),
    ({"alpha": -1.0}, r"alpha=-1\.0 is out of range; pass a finite number of at least 0"),
    ({"l1": -1.0, "regressor": "admm"}, r"l1=-1\.0 is out of range"),
    ({"l1": 0.5}, r"l1=0\.5 has no effect with regressor='ridge'; pass regressor='admm' or l1=0"),
    ({"epsilon": NAN, "regressor": "svr"}, r"epsilon=nan is out of range"),
    ({"rho": 0, "regressor": "admm"}, r"rho=0 is out of range; pass a number above 0"),
    ({"rho": -1.0, "regressor": "admm"}, r"rho=-1\.0 is out of range"),
    ({"threshold": 1.5}, r"threshold=1\.5 is out of range; pass a share from 0 to 1"),
    ({"tol": -1e-3}, r"tol=-0\.001 is out of range"),
    ({"embedding": "svd"}, r"embedding='svd' is not known; choose from \['svp', 'als'\]"),
    ({"regressor": "lasso"}, r"regressor='lasso' is not known; choose from \['ridge', 'admm', 'svr'\]"),
    ({"label_norm": "l1"}, r"label_norm='l1' is not known; choose from \['l2', None\]"),
]
LOCAL_LEML_PARAMETERS = [
    ({"n_components": 0}, r"n_components=0 is out of range; pass an integer of at least 1"),
    ({"alpha": -1.0}, r"alpha=-1\.0 is out of range"),
    ({"loss": "hinge"}, r"loss='hinge' is not known"),
    ({"solver": "magic"}, r"solver='magic' is not known"),
    ({"init": "zeros"}, r"init='zeros' is not known"),
    ({"max_iter": 0}, r"max_iter=0 is out of range"),
    ({"solver": "direct", "loss": "logistic"}, r"solver='direct' solves squared loss"),
]
CLASSES = [LEML, OneClassMF, SLEEC, LabelKNN, LocalLEML]
OF_CLASS = [
    (LEML, PARAMETERS),
    *((cls, LOCAL_PARAMETERS) for cls in (SLEEC, LabelKNN, LocalLEML)),
    *((cls, VOTING_PARAMETERS) for cls in (SLEEC, LabelKNN)),
    (SLEEC, SLEEC_PARAMETERS),
    (LocalLEML, LOCAL_LEML_PARAMETERS),
]

CASES = [
    *((cls, {**parameters}, (X, Y), message) for cls, cases in OF_CLASS for parameters, message in cases),
    *((cls, {}, arguments, message) for cls in CLASSES for arguments, message in DATA),
    *((LEML, *case) for case in MORE),
    *((cls, *MORE[1]) for cls in (SLEEC, LabelKNN, LocalLEML)),
]
every_case = pytest.mark.parametrize(
    ("cls", "parameters", "arguments", "message"),
    CASES,
    ids=[f"{case[0].__name__}: {case[3][:40]}" for case in CASES],
)
every_class = pytest.mark.parametrize("cls", CLASSES)


def state(model):
    return {name: np.copy(v) if isinstance(v, np.ndarray) else v for name, v in vars(model).items()}


def assert_same_state(model, before):
    after = vars(model)
    assert after.keys() == before.keys()
    for name, value in before.items():
        if after[name] is not value:
            np.testing.assert_array_equal(after[name], value)


@every_case
def test_one_clear_error_and_nothing_changed(cls, parameters, arguments, message):
    model = cls(2, random_state=0).set_params(**parameters)
    before = state(model)
    with pytest.raises(ValueError, match=f"(?s){message}") as caught:
        model.fit(*arguments)
    assert len(caught.value.args) == 1
    assert_same_state(model, before)
    with pytest.raises(NotFittedError):
        model.predict(X)


@every_case
def test_a_fitted_estimator_survives_a_bad_fit(cls, parameters, arguments, message):
    model = cls(2, random_state=0).fit(X[:, :3], Y)
    good, scores = model.get_params(), model.decision_function(X[:, :3])
    before = state(model)
    with pytest.raises(ValueError, match=f"(?s){message}"):
        model.set_params(**parameters).fit(*arguments)
    model.set_params(**good)
    assert_same_state(model, before)
    np.testing.assert_array_equal(model.decision_function(X[:, :3]), scores)


METHODS = ["predict", "decision_function", "predict_topk", "score", "known_scores"]


def call(model, method, rows):
    extra = {"predict_topk": (1,), "score": (Y,), "known_scores": (Y,)}.get(method, ())
    return getattr(model, method)(rows, *extra)


@every_class
@pytest.mark.parametrize("method", METHODS)
def test_nothing_works_before_fit(cls, method):
    with pytest.raises(NotFittedError, match=rf"{cls.__name__} instance is not fitted yet\. Call 'fit'"):
        call(cls(), method, X)


BAD_ROWS = [
    (X[:, :3], r"X has 3 features, but {name} is expecting 4 features"),
    (sp.csr_array(X[:, :3]), r"X has 3 features, but {name} is expecting 4 features"),
    (np.hstack([X, X]), r"X has 8 features, but {name} is expecting 4 features"),
    (X[0], r"Expected 2D array, got 1D array instead"),
    (changed(X, NAN), r"Input X contains NaN"),
    (changed(X, np.inf), r"Input X contains infinity"),
]


@every_class
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("rows", "message"), BAD_ROWS, ids=[message for _, message in BAD_ROWS])
def test_rows_that_the_model_does_not_know(cls, method, rows, message):
    model = cls(2, random_state=0).fit(X, Y)
    with pytest.raises(ValueError, match=message.format(name=cls.__name__)):
        call(model, method, rows)


@every_class
@pytest.mark.parametrize("method", ["score", "known_scores"])
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (Y[:-1], r"X has 12 rows and Y has 11; pass one row of labels for each row of X"),
        (np.vstack([Y, Y]), r"X has 12 rows and Y has 24"),
        (Y[:, :2], r"Y has 2 labels and {name} was fitted with 3; pass a column for each label of fit"),
        (np.hstack([Y, Y]), r"Y has 6 labels and {name} was fitted with 3"),
        (changed(np.hstack([Y, Y]), NAN), r"Y has 6 labels and {name} was fitted with 3"),
        (changed(np.vstack([Y, Y]), NAN), r"X has 12 rows and Y has 24"),
        (Y[:, 0], r"Y must have two dimensions"),
    ],
)
def test_labels_that_the_model_does_not_know(cls, method, labels, message):
    model = cls(2, random_state=0).fit(X, Y)
    with pytest.raises(ValueError, match=message.format(name=cls.__name__)):
        getattr(model, method)(X, labels)


def test_a_precomputed_kernel_of_other_training_rows():
    model = LEML(2, kernel="precomputed").fit(X @ X.T, Y)
    with pytest.raises(ValueError, match="X has 4 features, but LEML is expecting 12"):
        model.predict(X)


@pytest.mark.parametrize("n_jobs", [0, 1.5, "all"])
def test_threads_of_no_meaning(n_jobs):
    message = rf"n_jobs={n_jobs!r} has no meaning; pass a positive integer, or -1 for all cores"
    with pytest.raises(ValueError, match=message):
        n_threads(n_jobs)
    before = n_threads()
    with pytest.raises(ValueError, match=message), threads(n_jobs):
        pass
    assert n_threads() == before
