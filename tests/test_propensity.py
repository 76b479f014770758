"""propensity=: positives weigh 2/p − 1 in one-class, LEML and one-vs-all, checked against dense sums."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from labelgap import LEML, BinaryRelevance, OneClassMF, OneClassMFCV, Tagger, label_propensities, load
from labelgap.losses import get_loss
from labelgap.objectives.problem import SideData
from labelgap.observations import Labels

N, D, L, K = 30, 6, 5, 3
P = np.array([0.2, 0.4, 0.6, 0.9, 1.0])


@pytest.fixture(scope="module")
def data():
    rng = np.random.RandomState(0)
    X = rng.normal(size=(N, D))
    Y = ((X @ rng.normal(size=(D, L)) + rng.normal(size=(N, L))) > 0.7).astype(float)
    return X, Y


def dense_loss(loss, target, scores):
    return loss.functions().value(np.full_like(scores, target), scores)


def value_and_gradients(problem, W, H):
    """The value of a problem, and its gradients in W and H."""
    left = problem.objective_in_left(H)
    right = problem.objective_in_right(W)
    return float(problem.value(W, H)), left.model(W).gradient, right.model(H).gradient


def check_problem(problem, expected, W, H):
    """Value against a dense sum, gradients against its finite differences."""
    value, in_W, in_H = value_and_gradients(problem, W, H)
    assert value == pytest.approx(expected(W, H), rel=1e-10)
    step = 1e-6
    for A, gradient, at in ((W, in_W, lambda A: expected(A, H)), (H, in_H, lambda A: expected(W, A))):
        numeric = np.zeros_like(A)
        for place in np.ndindex(A.shape):
            shift = np.zeros_like(A)
            shift[place] = step
            numeric[place] = (at(A + shift) - at(A - shift)) / (2 * step)
        np.testing.assert_allclose(gradient, numeric, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("loss", ["squared", "logistic", "squared_hinge"])
@pytest.mark.parametrize("gaps", [False, True])
def test_leml_minimises_the_weighted_loss(loss, gaps, data):
    X, Y = data
    rng = np.random.RandomState(1)
    known = rng.random_sample(Y.shape) < 0.6 if gaps else np.ones(Y.shape, bool)
    model = LEML(K, loss=loss, propensity=P, alpha=0.3, dtype="float64", fit_intercept=False)
    labels = Labels(np.where(known, Y, np.nan)) if gaps else Labels(Y)
    problem = model._problem(model._bind(X, labels))
    function = get_loss(loss)

    def expected(W, H):
        scores = X @ W @ H.T
        cells = np.where(
            Y > 0,
            (2 / P - 1) * dense_loss(function, function.positive, scores),
            dense_loss(function, function.negative, scores),
        )
        return cells[known].sum() + 0.15 * ((W**2).sum() + (H**2).sum())

    check_problem(problem, expected, rng.normal(size=(D, K)), rng.normal(size=(L, K)))


@pytest.mark.parametrize("power", [0.0, 0.25])
def test_one_class_weighs_positives_and_frequent_labels(power, data):
    X, Y = data
    rng = np.random.RandomState(2)
    model = OneClassMF(
        K, propensity=P, frequency_power=power, weight_unlabelled=0.2, alpha=0.3, dtype="float64", fit_intercept=False
    )
    problem = model._problem(model._bind(X, Labels(Y), SideData()))
    function, counts = get_loss("logistic"), Y.sum(0)
    scale = ((counts + 1) / (counts @ (counts + 1) / counts.sum())) ** power

    def expected(W, H):
        scores = X @ W @ H.T
        positive = (2 / P - 1) * dense_loss(function, 1.0, scores)
        cells = np.where(Y > 0, positive, 0.2 * scale * 0.5 * (-1 - scores) ** 2)
        return cells.sum() + 0.15 * ((W**2).sum() + (scale[:, None] ** 2 * H**2).sum())

    check_problem(problem, expected, rng.normal(size=(D, K)), rng.normal(size=(L, K)))


@pytest.mark.parametrize("loss", ["squared", "logistic", "squared_hinge"])
@pytest.mark.parametrize("sparse", [False, True])
def test_one_vs_all_is_at_the_minimum_of_the_weighted_loss(loss, sparse, data):
    X, Y = data
    model = BinaryRelevance(0.5, loss=loss, propensity=P, tol=1e-8, dtype="float64")
    model.fit(sp.csr_array(X) if sparse else X, Y)
    function = get_loss(loss)
    b = model.intercept_ + function.threshold

    def objective(w, constant, j):
        scores = X @ w + constant
        weights = np.where(Y[:, j] > 0, 2 / P[j] - 1, 1.0)
        targets = np.where(Y[:, j] > 0, function.positive, function.negative)
        losses = np.array([dense_loss(function, a, np.array([s]))[0] for a, s in zip(targets, scores, strict=True)])
        return weights @ losses + 0.25 * (w @ w + constant**2)

    step = 1e-5
    for j in range(L):
        w = np.asarray(model.coef_[j])
        slopes = [
            (objective(w + step * e, b[j], j) - objective(w - step * e, b[j], j)) / (2 * step) for e in np.eye(D)
        ]
        slopes.append((objective(w, b[j] + step, j) - objective(w, b[j] - step, j)) / (2 * step))
        np.testing.assert_allclose(slopes, 0, atol=2e-4)


@pytest.mark.parametrize(
    "model",
    [
        BinaryRelevance(propensity="counts"),
        LEML(2, propensity="counts"),
        OneClassMF(2, propensity="counts"),
        OneClassMFCV(2, propensity="counts", weights=[0.1], alphas=[1.0], n_splits=1),
    ],
    ids=lambda model: type(model).__name__,
)
def test_counts_are_the_propensities_of_the_training_labels(model, data, tmp_path):
    X, Y = data
    counted = model.fit(X, Y).decision_function(X)
    model.set_params(propensity=label_propensities(Y))
    given = model.fit(X, Y).decision_function(X)
    if not isinstance(model, OneClassMFCV):  # its splits count their own positives
        np.testing.assert_allclose(counted, given, atol=1e-4)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").decision_function(X), given)
    plain = model.set_params(propensity=None).fit(X, Y).decision_function(X)
    assert given.mean() > plain.mean() + 1e-3


@pytest.mark.parametrize("model", [LEML(2, propensity=P), OneClassMF(2, propensity=P)], ids=["LEML", "OneClassMF"])
def test_an_update_is_refused(model, data):
    X, Y = data
    with pytest.raises(ValueError, match="partial_fit excludes propensity"):
        model.fit(X, Y).partial_fit(X, Y)
    assert not hasattr(BinaryRelevance(loss="squared", propensity=P), "partial_fit")


def test_wrong_propensities(data):
    for wrong, message in (("magic", "not known"), ([0.5], "shape"), ([0.0, 1, 1, 1, 1], "above 0")):
        for model in (BinaryRelevance(propensity=wrong), LEML(2, propensity=wrong), OneClassMF(2, propensity=wrong)):
            with pytest.raises(ValueError, match=message):
                model.fit(*data)


def test_through_a_tagger():
    texts = [f"{'salt' if i % 2 else 'sugar'} word{i % 7}" for i in range(60)]
    tags = [["meat"] if i % 2 else ["baking"] for i in range(60)]
    for model in (BinaryRelevance(propensity="counts"), OneClassMF(2, propensity="counts")):
        assert Tagger(model).fit(texts, tags).predict_tags(["salt", "sugar"], 1) == [["meat"], ["baking"]]
