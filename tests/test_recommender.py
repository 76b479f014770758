"""A factor model as a recommender: rankings, neighbours and newcomers against brute force."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from labelgap import Labels, OneClassMF, load
from labelgap.losses import LOSSES

N, D, L, K = 30, 4, 12, 3
RNG = np.random.default_rng(0)
Y = (RNG.random((N, L)) < 0.3).astype(int)
Y[2], Y[:, 3] = 0, 0  # an empty user, a label without positives
Y[7], Y[7, 5] = 1, 0  # a user with one label left
X = RNG.standard_normal((N, D))
P, Q = RNG.uniform(0.1, 0.5, N), RNG.uniform(0.2, 1.0, L)
NEW = (RNG.random((6, L)) < 0.3).astype(int)
NEW[1] = 0


def make(**options):
    return OneClassMF(**{"n_components": K, "alpha": 0.3, "dtype": "float64", "random_state": 0, **options})


@pytest.fixture(scope="module")
def model():
    return make(tol=1e-2).fit(None, Y)


def ranking(scores, hidden, k):
    """The k best of each row, best first, ties to the lower index, what is hidden last."""
    scores = np.where(hidden, -np.inf, scores)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(scores, order, axis=1)


def assert_ranking(found, scores, hidden, k):
    order, best = ranking(scores, hidden, k)
    np.testing.assert_array_equal(found[0], order)
    np.testing.assert_allclose(found[1], best, atol=1e-10)


# --- recommendations ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exclude_seen", [True, False])
@pytest.mark.parametrize("k", [1, 4, L])
def test_recommendations_are_the_dense_ranking(model, exclude_seen, k):
    users = [5, 2, 7, 5, 29]
    scores = (model.row_factors_ @ model.label_factors_.T)[users]
    hidden = (Y[users] == 1) & exclude_seen
    assert_ranking(model.recommend(users, k, exclude_seen=exclude_seen), scores, hidden, k)


def test_where_fewer_than_k_are_left_the_last_have_no_score(model):
    labels, scores = model.recommend([7], k=3)
    assert labels[0, 0] == 5
    assert np.isfinite(scores[0, 0])
    assert np.isneginf(scores[0, 1:]).all()


def test_scores_are_decision_values():
    """Squared loss on 0/1 targets has its threshold at ½."""
    squared = make(tol=1e-2, **SETTINGS["squares of weight one"]).fit(None, Y)
    assert squared.threshold_ == 0.5
    labels, scores = squared.recommend(np.arange(N), k=4, exclude_seen=False)
    expected = np.take_along_axis(squared.decision_function(None), labels, axis=1)
    np.testing.assert_allclose(scores, expected, atol=1e-12)


def test_one_user_or_none(model):
    np.testing.assert_array_equal(model.recommend(5, 3)[0], model.recommend([5], 3)[0])
    labels, scores = model.recommend(np.empty(0, int), 3)
    assert labels.shape == scores.shape == (0, 3)


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array, np.ndarray.tolist, Labels, lambda Y: 2 * Y - 1])
@pytest.mark.parametrize("exclude_seen", [True, False])
def test_newcomers_are_folded_in(model, wrap, exclude_seen):
    scores = model.fold_in_rows(NEW) @ model.label_factors_.T
    found = model.recommend(wrap(NEW), 4, exclude_seen=exclude_seen)
    assert_ranking(found, scores, (NEW == 1) & exclude_seen, 4)


def test_kept_rows_of_a_model_with_features():
    with_rows, without = (make(tol=1e-2, keep_rows=keep).fit(X, Y) for keep in (True, False))
    B = X @ with_rows.feature_factors_ + with_rows.intercept_factors_
    np.testing.assert_allclose(with_rows.row_factors_, B, atol=1e-12)
    np.testing.assert_array_equal(with_rows.seen_.toarray(), Y == 1)
    assert_ranking(
        with_rows.recommend([0, 7, 9], 5), (B @ with_rows.label_factors_.T)[[0, 7, 9]], Y[[0, 7, 9]] == 1, 5
    )
    assert not hasattr(without, "row_factors_")
    with pytest.raises(ValueError, match=r"does not store its training rows; fit it with keep_rows=True, or pass"):
        without.recommend([0])
    with pytest.raises(ValueError, match="does not store its training rows"):
        without.fold_in_labels(Y.T)
    np.testing.assert_array_equal(without.recommend(NEW, 4)[0], with_rows.recommend(NEW, 4)[0])


# --- similar labels -------------------------------------------------------------------------------------------------


def test_similar_labels_are_the_nearest_by_the_cosine(model):
    centred = model.label_factors_ - model.label_factors_.mean(0)
    unit = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    cosines = unit @ unit.T
    for k in (1, 3, L - 1):
        assert_ranking(model.similar_labels(np.arange(L), k), cosines, np.eye(L, dtype=bool), k)
    labels, scores = model.similar_items([4, 0, 4], 2)
    np.testing.assert_array_equal(labels, ranking(cosines, np.eye(L, dtype=bool), 2)[0][[4, 0, 4]])
    assert np.abs(scores).max() <= 1 + 1e-12


def test_labels_that_go_together_are_similar():
    groups = np.kron(np.eye(3), np.ones((10, 4)))
    seen = groups * (np.random.default_rng(0).random(groups.shape) < 0.7)
    found = make(alpha=0.1, tol=1e-2).fit(None, seen).similar_labels(np.arange(12), 3)[0]
    np.testing.assert_array_equal(np.sort(found // 4, axis=1), np.repeat(np.arange(3), 4)[:, None].repeat(3, 1))


# --- newcomers ------------------------------------------------------------------------------------------------------


def slope(model, b, H, positives, weights, alpha):
    """The gradient of a newcomer's objective, cell by cell."""
    scores = b @ H.T
    of_positives = LOSSES[model.loss]().functions().gradient(1.0, scores)
    of_others = weights * LOSSES[model.loss_unlabelled]().functions().gradient(model.negative_target, scores)
    return np.where(positives == 1, of_positives, of_others) @ H + alpha * b


SETTINGS = {
    "logistic": {},
    "squared": {"loss": "squared"},
    "squared hinge": {"loss": "squared_hinge"},
    "LR-wLR": {"loss_unlabelled": "logistic"},
    "squares of weight one": {"loss": "squared", "weight_unlabelled": 1.0, "negative_target": 0.0},
    "p and q": {"weight_unlabelled": (P, Q), "alpha": RNG.uniform(0.1, 1, N), "alpha_labels": RNG.uniform(0.1, 1, L)},
    "subsampled": {"negatives": "subsampled", "negative_ratio": 0.5},
}
every_setting = pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)


def share_drawn(model):
    return 0.5 * Y.sum() / (N * L - Y.sum()) if model.negatives == "subsampled" else 1.0


@every_setting
def test_new_rows_minimise_their_objective(setting):
    model = make(tol=1e-2, max_iter=100, **setting).fit(None, Y)
    given = model.weight_unlabelled
    weights = share_drawn(model) * (P.mean() * Q if isinstance(given, tuple) else np.full(L, given))
    parts = model, model.label_factors_, NEW, weights, np.mean(model.alpha)
    b = model.fold_in_rows(NEW)
    assert b.shape == (6, K)
    start = slope(parts[0], np.zeros_like(b), *parts[1:])
    assert np.linalg.norm(slope(parts[0], b, *parts[1:])) <= 1e-4 * np.linalg.norm(start)


@every_setting
def test_new_labels_minimise_their_objective(setting):
    model = make(tol=1e-2, max_iter=100, **setting).fit(None, Y)
    given = model.weight_unlabelled
    weights = share_drawn(model) * (Q.mean() * P if isinstance(given, tuple) else np.full(N, given))
    alpha = np.mean(model.alpha if model.alpha_labels is None else model.alpha_labels)
    new = (np.random.default_rng(1).random((5, N)) < 0.2).astype(int)
    c = model.fold_in_labels(new)
    assert c.shape == (5, K)
    start = slope(model, np.zeros_like(c), model.row_factors_, new, weights, alpha)
    assert np.linalg.norm(slope(model, c, model.row_factors_, new, weights, alpha)) <= 1e-4 * np.linalg.norm(start)


@pytest.mark.parametrize("setting", ["logistic", "squared hinge", "squares of weight one"])
def test_a_training_row_or_label_folded_in_again_has_its_own_factors(setting):
    model = make(tol=1e-13, max_iter=2000, alpha_labels=0.1, **SETTINGS[setting]).fit(None, Y)
    np.testing.assert_allclose(model.fold_in_rows(Y), model.row_factors_, atol=1e-3)
    np.testing.assert_allclose(model.fold_in_labels(Y.T), model.label_factors_, atol=1e-3)
    np.testing.assert_array_equal(model.recommend(Y[:7], 4)[0], model.recommend(np.arange(7), 4)[0])


def test_folding_in_does_not_depend_on_the_company(model):
    together = model.fold_in_rows(NEW)
    alone = np.vstack([model.fold_in_rows(NEW[[i]]) for i in range(len(NEW))])
    np.testing.assert_allclose(together, alone, atol=1e-3)
    assert model.fold_in_rows(sp.csr_array((0, L))).shape == (0, K)


def test_factors_of_newcomers_are_of_the_model_s_type():
    assert make(dtype="float32", tol=1e-2).fit(None, Y).fold_in_rows(NEW).dtype == np.float32


# --- files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "side"),
    [
        ({}, {"X": None}),
        ({"weight_unlabelled": (P, Q), "alpha": np.full(N, 0.3)}, {"X": None}),
        (
            {"weight_unlabelled": [np.float32(0.5), Q.tolist()], "alpha_labels": np.full(D, 0.2)},
            {"label_features": X[:L]},
        ),
        ({"keep_rows": True}, {"X": X, "row_graph": np.ones((N, N)), "label_features": X[:L]}),
        ({"negatives": "subsampled"}, {"X": None}),
    ],
    ids=["plain", "arrays", "a mixed pair", "features and graph", "subsampled"],
)
def test_a_loaded_model_recommends_the_same(options, side, tmp_path):
    model = make(tol=1e-2, **options).fit(side.get("X"), Y, **{k: v for k, v in side.items() if k != "X"})
    given = model.get_params()
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert type(again) is OneClassMF
    for users in (np.arange(N), NEW):
        for found, expected in zip(again.recommend(users, 5), model.recommend(users, 5)):
            np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(again.fold_in_labels(Y.T), model.fold_in_labels(Y.T))
    np.testing.assert_array_equal(again.similar_labels([0], 3)[1], model.similar_labels([0], 3)[1])
    assert all(model.get_params()[name] is value for name, value in given.items())
    assert again.set_params(warm_start=True)._previous().H.shape == model._previous().H.shape


# --- bad input ------------------------------------------------------------------------------------------------------

BAD_IDS = [
    ([N], rf"holds {N}, which was not in fit; pass numbers from 0 to"),
    ([0, -1], r"holds -1, which was not in fit"),
    ([1.5], r"holds values of type float64 .*; pass a list of integers"),
    (["ann"], r"holds values of type <U3 .*; pass a list of integers"),
    ([True], r"holds values of type bool"),
]


@pytest.mark.parametrize(("ids", "message"), BAD_IDS)
def test_numbers_that_fit_never_saw(model, ids, message):
    with pytest.raises(ValueError, match="users " + message):
        model.recommend(ids)
    with pytest.raises(ValueError, match="labels " + message):
        model.similar_labels(ids)


@pytest.mark.parametrize("k", [0, -1, L + 1, 2.5, "all"])
def test_k_out_of_range(model, k):
    with pytest.raises(ValueError, match=rf"k={k!r} is out of range; pass an integer from 1 to {L}"):
        model.recommend([0], k)
    with pytest.raises(ValueError, match=rf"k={k!r} is out of range; pass an integer from 1 to {L - 1}"):
        model.similar_labels([0], k)


def test_newcomers_of_another_width(model):
    with pytest.raises(ValueError, match=rf"users has 4 columns; pass one for each of the {L} in fit"):
        model.recommend(NEW[:, :4])
    with pytest.raises(ValueError, match=rf"positives has 4 columns; pass one for each of the {L} in fit"):
        model.fold_in_rows(NEW[:, :4])
    with pytest.raises(ValueError, match=rf"positives has {L} columns; pass one for each of the {N} in fit"):
        model.fold_in_labels(NEW)
    with pytest.raises(ValueError, match=r"labels must be 0/1"):
        model.recommend(5 * NEW)


def test_nothing_works_before_fit():
    for method, argument in (
        ("recommend", [0]),
        ("similar_labels", [0]),
        ("fold_in_rows", NEW),
        ("fold_in_labels", NEW),
    ):
        with pytest.raises(NotFittedError):
            getattr(OneClassMF(), method)(argument)


def test_a_label_folded_in_again_sees_the_weights_of_rows():
    rng = np.random.default_rng(3)
    Y = (rng.random((25, 8)) < 0.4).astype(float)
    model = OneClassMF(2, alpha=0.5, dtype="float64", random_state=0, tol=1e-12, max_iter=500)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(None, Y, row_weights=rng.uniform(0.2, 3, 25))
    np.testing.assert_allclose(model.fold_in_labels(Y.T), model.label_factors_, atol=2e-2)


def test_nobody_gets_no_recommendation():
    model = OneClassMF(2, random_state=0).fit(None, np.eye(5))
    assert [part.shape for part in model.recommend([], k=2)] == [(0, 2), (0, 2)]
