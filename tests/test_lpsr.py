"""Naive Bayes against scikit-learn and by hand; LPSR's partitions, candidates and what lies outside of them."""

from __future__ import annotations

import os

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.naive_bayes import BernoulliNB, MultinomialNB
from sklearn.preprocessing import normalize

import labelgap
from labelgap import LEML, LPSR, PLST, BinaryRelevance, LabelKNN, Labels, NaiveBayes
from labelgap.baselines.lpsr import rank_cells
from labelgap.clustering import Clustering
from labelgap.metrics import precision_at_k
from labelgap_papers.paper_methods import LPSR_CLUSTERS, LPSR_NEAREST, METHODS, Task

# --- naive Bayes ----------------------------------------------------------------------------------------------------

TWINS = {"multinomial": MultinomialNB, "bernoulli": BernoulliNB}


def counts(n=60, d=12, L=4, seed=0):
    """Words of rows, and labels that make some of them more frequent."""
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, L)) < 0.4).astype(int)
    X = rng.poisson(0.3 + Y @ rng.random((L, d)))
    return X.astype(float), Y


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("alpha", [0.1, 1.0])
@pytest.mark.parametrize("model", TWINS)
def test_naive_bayes_is_that_of_scikit_learn_label_by_label(model, alpha, wrap):
    X, Y = counts()
    found = NaiveBayes(alpha, model=model, dtype="float64").fit(wrap(X), Y).decision_function(wrap(X))
    for j in range(Y.shape[1]):
        logs = TWINS[model](alpha=alpha).fit(X, Y[:, j]).predict_log_proba(X)
        np.testing.assert_allclose(found[:, j], logs[:, 1] - logs[:, 0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("model", TWINS)
def test_naive_bayes_leaves_unknown_cells_out(model):
    X, Y = counts()
    known = np.random.default_rng(1).random(Y.shape) < 0.6
    found = NaiveBayes(model=model, dtype="float64").fit(X, Y, observed=known).decision_function(X)
    for j in range(Y.shape[1]):
        rows = known[:, j]
        logs = TWINS[model]().fit(X[rows], Y[rows, j]).predict_log_proba(X)
        np.testing.assert_allclose(found[:, j], logs[:, 1] - logs[:, 0], rtol=1e-9, atol=1e-9)


def test_naive_bayes_by_hand():
    """Rows (2, 1) yes, (0, 3) no, (1, 1) unknown: θ₁ = (3/5, 2/5), θ₀ = (1/5, 4/5), and both classes have a row."""
    X, Y = np.array([[2.0, 1.0], [0.0, 3.0], [1.0, 1.0]]), np.array([[1], [0], [np.nan]])
    model = NaiveBayes(dtype="float64").fit(X, Y)
    np.testing.assert_allclose(model.coef_, [[np.log(3), np.log(1 / 2)]])
    np.testing.assert_allclose(model.decision_function([[1.0, 2.0]]), [[np.log(3 / 4)]])


def test_naive_bayes_of_labels_of_one_class():
    Y = np.array([[1, 0, np.nan], [1, 0, np.nan], [1, np.nan, np.nan]])
    found = NaiveBayes(dtype="float64").fit(np.eye(3), Y).decision_function(np.eye(3))
    np.testing.assert_allclose(found, np.tile([np.log(4), -np.log(3), 0], (3, 1)))


def test_naive_bayes_refuses_what_it_cannot_count():
    with pytest.raises(ValueError, match=r"X: it has -1, and the multinomial model .* pass model='bernoulli'"):
        NaiveBayes().fit([[1.0], [-1.0]], [[1], [0]])
    for value in (0.0, -1.0):
        with pytest.raises(ValueError, match=f"alpha={value} is out of range"):
            NaiveBayes(value).fit([[1.0]], [[1]])


# --- places ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_places_are_those_of_a_stable_sort(dtype):
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 4, (9, 7)).astype(dtype)
    cells = sp.csr_array(rng.random((12, 7)) < 0.4)
    found = np.zeros(cells.nnz, np.int64)
    rank_cells(cells, scores, found, 2)
    order = np.argsort(-scores, axis=1, kind="stable")
    expected = [
        1 + order[i - 2].tolist().index(j) if 2 <= i < 11 else 0 for i, j in zip(*cells.nonzero(), strict=True)
    ]
    np.testing.assert_array_equal(found, expected)


# --- LPSR -----------------------------------------------------------------------------------------------------------


def grouped(n=240, L=12, seed=0):
    """Four groups of rows, far from each other; each has three labels of its own, told apart by another feature."""
    rng = np.random.default_rng(seed)
    group, which = rng.integers(0, 4, n), rng.integers(0, 3, n)
    X = np.hstack([4 * np.eye(4)[group], np.eye(3)[which]]) + 0.1 * rng.standard_normal((n, 7))
    Y = np.zeros((n, L), int)
    Y[np.arange(n), 3 * group + which] = 1
    return X, Y, group


def brute_candidates(model, base, X, Y, nearest, decay, width):
    """The labels of most worth to each partition, in the words of the docstring; Y is dense with NaN."""
    rates = np.array([np.nanmean(column) if (~np.isnan(column)).any() else 0 for column in Y.T])
    scores = base.decision_function(X)
    found = []
    for c in range(len(model.centers_)):
        worth = np.zeros(Y.shape[1])
        for i in np.flatnonzero(nearest == c):
            known = np.flatnonzero(~np.isnan(Y[i]))
            ranking = known[np.argsort(-scores[i, known], kind="stable")].tolist()
            yes = np.flatnonzero(Y[i] == 1)
            for j in yes:
                worth[j] += 1 / len(yes) / (1 + ranking.index(j)) ** decay
        best = sorted(range(Y.shape[1]), key=lambda j: (-worth[j], -rates[j], j))[:width]
        found.append(sorted(best))
    return found


@pytest.mark.parametrize("decay", [0.0, 1.0, 2.5])
@pytest.mark.parametrize("gaps", [False, True], ids=["complete", "gaps"])
def test_candidates_are_those_of_brute_force(decay, gaps):
    X, Y = counts(n=50, L=9, seed=2)
    Y = np.where(np.random.default_rng(3).random(Y.shape) < 0.3, np.nan, Y) if gaps else Y.astype(float)
    model = LPSR("naive_bayes", n_clusters=3, n_candidates=4, decay=decay, random_state=0, dtype="float64").fit(X, Y)
    base = NaiveBayes(dtype="float64").fit(X, Y)
    _, nearest = labelgap.clustering.cluster(X, 3, rng=np.random.RandomState(0))
    expected = brute_candidates(model, base, X, Y, nearest, decay, 4)
    np.testing.assert_array_equal(model.candidates_, expected)


@pytest.mark.parametrize("n_nearest", [1, 2])
@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_only_candidates_are_asked_about(n_nearest, wrap):
    X, Y, _ = grouped()
    model = LPSR(n_clusters=4, n_candidates=2, n_nearest=n_nearest, random_state=0, dtype="float64").fit(wrap(X), Y)
    base = BinaryRelevance(dtype="float64").fit(wrap(X), Y).decision_function(wrap(X))
    found = model.decision_function(wrap(X))
    distances = ((X[:, None] - model.centers_[None]) ** 2).sum(axis=2)
    near = np.argsort(distances, axis=1, kind="stable")[:, :n_nearest]
    inside = np.zeros(Y.shape, bool)
    for i, partitions in enumerate(near):
        inside[i, model.candidates_[partitions].ravel()] = True
    np.testing.assert_allclose(found[inside], np.maximum(base[inside], model.floor_), atol=1e-10)
    assert model.floor_ <= base.min()
    np.testing.assert_array_equal(near[:, 0], Clustering(model.centers_).assign(X))
    # What was not asked comes below, by falling rate.
    rates = Y.mean(axis=0)
    places = np.argsort(np.argsort(-rates, kind="stable"), kind="stable")
    np.testing.assert_allclose(found[~inside], np.tile(model.floor_ - 1 - places, (len(Y), 1))[~inside])
    assert (found[inside].reshape(len(Y), -1).min(axis=1) > np.where(inside, -np.inf, found).max(axis=1)).all()


def test_more_labels_than_candidates_can_be_ranked():
    X, Y, _ = grouped()
    model = LPSR(n_clusters=4, n_candidates=3, random_state=0).fit(X, Y)
    dense = model.decision_function(X)
    order = np.argsort(-dense, axis=1, kind="stable")
    for k in (1, 3, 4, 12):
        indices, scores = model.predict_topk(X, k)
        np.testing.assert_array_equal(indices, order[:, :k])
        np.testing.assert_array_equal(scores, np.take_along_axis(dense, order[:, :k], axis=1))


def test_partitions_find_their_labels():
    """Each group needs three of the twelve labels; with these alone the ranking is as good as with all."""
    X, Y, group = grouped()
    model = LPSR(n_clusters=4, n_candidates=3, random_state=0).fit(X[:160], Y[:160])
    home = Clustering(model.centers_).assign(X)
    for c in range(4):
        (of_group,) = set(group[home == c])
        assert model.candidates_[c].tolist() == [3 * of_group, 3 * of_group + 1, 3 * of_group + 2]
    assert precision_at_k(Y[160:], model.decision_function(X[160:]), 1) > 0.95
    predicted = model.predict(X[160:])
    assert (predicted == Y[160:]).mean() > 0.97


def test_one_partition_of_all_labels_is_the_base():
    X, Y, _ = grouped(n=60)
    for estimator in (LEML(3, random_state=0), LabelKNN(3), BinaryRelevance(0.1)):
        model = LPSR(estimator, n_clusters=1, random_state=0).fit(X, Y)
        base = estimator.fit(X, Y).decision_function(X)
        np.testing.assert_allclose(model.decision_function(X), base, atol=1e-5)
        assert model.predict_topk(X, 2)[0].shape == (60, 2)


@pytest.mark.parametrize("estimator", ["naive_bayes", "one_vs_all", LEML(2, random_state=0), LabelKNN(3)], ids=str)
def test_what_is_saved_comes_back(estimator, tmp_path):
    X, Y = counts()
    model = LPSR(estimator, n_clusters=3, n_candidates=2, random_state=0).fit(X, Y)
    model.save(tmp_path / "model")
    again = labelgap.load(tmp_path / "model")
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert str(again.estimator) == str(model.estimator)
    refitted = again.fit(X, Y)
    np.testing.assert_array_equal(refitted.decision_function(X), model.decision_function(X))


@pytest.mark.parametrize(
    "change",
    [
        {"candidates_": np.array([[0, 4], [0, 1], [0, 1]])},
        {"candidates_": np.array([[1, 0], [0, 1], [0, 1]])},
        {"centers_": np.ones((2, 12))},
        {"below_": np.ones(3)},
        {"base_": {"header": {"estimator": "LEML", "parameters": {}}, "values": {}}},
    ],
    ids=["label", "order", "centers", "below", "base"],
)
def test_a_file_that_does_not_hold_together(change, tmp_path):
    X, Y = counts()
    model = LPSR("naive_bayes", n_clusters=3, n_candidates=2, random_state=0).fit(X, Y)
    vars(model).update(change)
    model.save(tmp_path / "model")
    with pytest.raises(ValueError, match="is inconsistent"):
        labelgap.load(tmp_path / "model")


def test_a_seed_decides_whatever_the_threads():
    X, Y = counts(n=200, L=9)
    make = {"n_clusters": 5, "n_candidates": 3, "random_state": 2}
    base = LEML(2)
    one, two = (LPSR(base, n_jobs=n, **make).fit(X, Y) for n in (1, 2))
    np.testing.assert_array_equal(one.candidates_, two.candidates_)
    np.testing.assert_array_equal(one.decision_function(X), two.decision_function(X))
    assert base.random_state is None


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"estimator": "magic"}, r"estimator='magic' is not known; choose from \['one_vs_all', 'naive_bayes'\], or"),
        ({"n_clusters": 9}, "n_clusters=9 is above the number of rows, 4"),
        ({"n_candidates": 0}, "n_candidates=0 is out of range"),
        ({"n_nearest": 0}, "n_nearest=0 is out of range"),
        ({"decay": -1.0}, "decay=-1.0 is out of range"),
    ],
    ids=str,
)
def test_parameters_out_of_range(parameters, message):
    with pytest.raises(ValueError, match=message):
        LPSR(**parameters).fit(np.eye(4), np.eye(4))


def test_the_tables_give_it_the_penalty_of_one_vs_all():
    X, Y, _ = grouped(n=60)
    assert METHODS["LPSR"].params_of == "1-vs-All"
    model, chosen, _ = METHODS["LPSR"].fit(Task(X, Labels(Y), 5, "squared", seed=0, tuned_params={"alpha": 0.25}))
    assert chosen == {"alpha": 0.25, "n_clusters": LPSR_CLUSTERS, "n_candidates": 100, "n_nearest": LPSR_NEAREST}
    base = BinaryRelevance(0.25).fit(X, Y)
    np.testing.assert_allclose(model.decision_function(X), base.decision_function(X), atol=1e-6)


def test_a_base_that_takes_no_gaps_says_so():
    Y = np.array([[1, 0], [0, np.nan], [1, 1]])
    with pytest.raises(ValueError, match="PLST must know every one"):
        LPSR(PLST(1)).fit(np.eye(3), Y)
    assert Labels(Y).n_known == 5


@pytest.mark.skipif("LABELGAP_DATA" not in os.environ, reason="LABELGAP_DATA names no folder of data sets")
def test_published_precision_on_bibtex():
    """At most a point below the Extreme Classification Repository, which has 62.11 / 36.65 / 26.53."""
    data = labelgap.load_dataset("bibtex")
    model = LPSR(n_clusters=LPSR_CLUSTERS, n_nearest=LPSR_NEAREST, random_state=0).fit(
        normalize(data.X_train), data.Y_train
    )
    best = model.predict_topk(normalize(data.X_test), 5)
    found = [100 * precision_at_k(data.Y_test, best, k) for k in (1, 3, 5)]
    assert (np.array(found) > np.array([62.11, 36.65, 26.53]) - 1).all()
