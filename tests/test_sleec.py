"""Votes of neighbours and local parts: LabelKNN, SLEEC and LocalLEML against hand-worked values and brute force."""

from __future__ import annotations

import copy
import pickle
import time
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from labelgap import LEML, SLEEC, LabelKNN, LocalLEML
from labelgap.estimators.local import ROWS_PER_CLUSTER, choose_n_clusters
from labelgap.runtime import n_threads, run_parallel, threads

NAN = np.nan


def tails(groups=150, rows=6, d=100, noise=0.2, seed=0):
    """Rows in tight groups, each with its own pair of labels: (X, Y) to learn from and (X, Y) to test."""
    rng = np.random.default_rng(seed)
    centers = rng.standard_normal((groups, d)) / np.sqrt(d)
    group = np.repeat(np.arange(groups), rows)
    X = centers[group] + noise / np.sqrt(d) * rng.standard_normal((len(group), d))
    Y = np.zeros((len(group), 2 * groups), int)
    Y[np.arange(len(group)), 2 * group] = Y[np.arange(len(group)), 2 * group + 1] = 1
    test = np.arange(len(group)) % rows < 2
    return X[~test], Y[~test], X[test], Y[test]


def blobs(n=240, d=12, L=30, seed=0, sparse=False):
    """Rows around eight centres, whose labels they mostly have."""
    rng = np.random.default_rng(seed)
    group = rng.integers(8, size=n)
    X = 2 * rng.standard_normal((8, d))[group] + rng.standard_normal((n, d))
    Y = (rng.random((8, L)) < 0.15)[group] ^ (rng.random((n, L)) < 0.02)
    X = np.where(np.abs(X) < 0.7, 0, X)
    return (sp.csr_array(X) if sparse else X), Y.astype(int)


def arrays(model):
    """Every array of a fitted ensemble, by its place."""
    found = {f"centers {i}": centers for i, centers in enumerate(model.centers_)}
    for i, parts in enumerate(model.parts_):
        for j, part in enumerate(parts):
            found |= {f"{i} {j} {name}": value for name, value in part.items()}
    return {name: value.toarray() if sp.issparse(value) else value for name, value in found.items()}


def assert_same_model(model, other):
    ours, theirs = arrays(model), arrays(other)
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        np.testing.assert_array_equal(value, theirs[name], err_msg=name)


# --- votes by hand --------------------------------------------------------------------------------------------------

ROWS = np.array([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8], [0.0, 2.0], [-3.0, 0.0]])
LABELS = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]])


def shares(query, labels=LABELS, rows=ROWS, **parameters):
    """The scores of one row, with the ½ that decisions are less."""
    return LabelKNN(dtype="float64", **parameters).fit(rows, labels).decision_function([query])[0] + 0.5


def test_votes_by_cosine():
    """The cosines of (2, 0) are 1, 0.8, 0.6, 0, −1; a vote weighs its share of those that are asked."""
    np.testing.assert_allclose(shares([2, 0], n_neighbors=1), [1, 0, 0])
    np.testing.assert_allclose(shares([2, 0], n_neighbors=2), [1, 0.8 / 1.8, 0])
    np.testing.assert_allclose(shares([2, 0], n_neighbors=3), [1.8 / 2.4, 1.4 / 2.4, 0])
    # The fourth is not similar and the fifth opposite: they have no weight.
    np.testing.assert_allclose(shares([2, 0], n_neighbors=5), [1.8 / 2.4, 1.4 / 2.4, 0])


def test_votes_that_count_alike():
    np.testing.assert_allclose(shares([2, 0], n_neighbors=3, weights="uniform"), [2 / 3, 2 / 3, 0])
    np.testing.assert_allclose(shares([2, 0], n_neighbors=5, weights="uniform"), [2 / 5, 2 / 5, 2 / 5])


def test_votes_by_distance():
    """From (1, 0) to the rows: 0, √0.4, √0.8, √5, 4."""
    near = 1 / (1 + np.sqrt([0, 0.4, 0.8]))
    expected = np.array([near[0] + near[1], near[1] + near[2], 0]) / near.sum()
    np.testing.assert_allclose(shares([1, 0], n_neighbors=3, metric="euclidean"), expected)
    np.testing.assert_allclose(
        shares([1, 0], n_neighbors=4, metric="euclidean", weights="uniform"), [2 / 4, 2 / 4, 1 / 4]
    )
    # (0, 1.9) is nearest to (0, 2), then to (0.6, 0.8), though by angle (0.6, 0.8) and (0.8, 0.6) come alike.
    near = 1 / (1 + np.array([0.1, np.hypot(0.6, 1.1)]))
    np.testing.assert_allclose(
        shares([0, 1.9], n_neighbors=2, metric="euclidean"), [0, near[1] / near.sum(), near[0] / near.sum()]
    )


def test_neighbors_none_of_which_is_similar_vote_alike():
    """The cosines of (−1, −1) with the first three rows are −0.71, −0.99, −0.99; two are asked."""
    found = shares([-1, -0.9], rows=ROWS[:3], labels=LABELS[:3], n_neighbors=2)
    np.testing.assert_allclose(found, [1 / 2, 1 / 2, 0])


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("weights", ["similarity", "uniform"])
def test_a_row_without_direction_has_the_rates_of_the_labels(wrap, weights):
    model = LabelKNN(2, dtype="float64", weights=weights).fit(wrap(ROWS), LABELS)
    queries = wrap(np.array([[0.0, 0.0], [2.0, 0.0]]))
    found = model.decision_function(queries) + 0.5
    np.testing.assert_allclose(found[0], [2 / 5, 2 / 5, 2 / 5])
    assert found[1, 0] == 1
    indices, scores = model.predict_topk(queries, 2)
    np.testing.assert_array_equal(indices[0], [0, 1])
    np.testing.assert_allclose(scores[0] + 0.5, [2 / 5, 2 / 5])
    gaps = LabelKNN(2, dtype="float64", weights=weights).fit(wrap(ROWS), np.where(LABELS[:, :1] == 1, 1, NAN))
    np.testing.assert_allclose(gaps.decision_function(queries) + 0.5, 1)


def test_a_learner_without_votes_leaves_them_to_the_others():
    """(0, 0, 1) is orthogonal to the cluster that the first learner sends it to, and not to that of the second."""
    X = np.array([[1.0, 0, 0], [0, 1, 0], [0, 5, 5]])
    model = LabelKNN(1, dtype="float64").fit(X, [[1, 0], [1, 0], [0, 1]])
    near, far = {"rows": np.array([0, 1]), "embedded": X[:2]}, {"rows": np.array([2]), "embedded": X[2:]}
    model.centers_ = [np.array([[0.5, 0.5, 0], [0, 5, 5]]), X.mean(axis=0)[None]]
    model.parts_ = [[near, far], [{"rows": np.arange(3), "embedded": X}]]
    np.testing.assert_allclose(model.decision_function([[0, 0, 1]]) + 0.5, [[0, 1]])
    np.testing.assert_allclose(model.decision_function([[0, 0.2, 0]]) + 0.5, [[1, 0]])


def test_an_unknown_cell_votes_with_the_rate_of_its_label():
    """Label 1 is known of rows 0, 2 and 4, and one of them has it."""
    labels = np.where([[0, 0, 0], [0, 1, 0], [0, 0, 0], [0, 1, 0], [0, 0, 0]], NAN, LABELS)
    found = shares([2, 0], labels, n_neighbors=3)
    np.testing.assert_allclose(found, [1.8 / 2.4, (0.8 * (1 / 3) + 0.6) / 2.4, 0])
    np.testing.assert_allclose(shares([2, 0], labels, n_neighbors=3, weights="uniform")[1], (1 / 3 + 1) / 3)


def test_learners_are_averaged():
    """Two learners set by hand, with one cluster and with two: the mean of 1.8/2.4, 1.4/2.4, 0 and 1, 0, 0."""
    model = LabelKNN(3, dtype="float64").fit(ROWS, LABELS)
    first, second = np.array([0, 4]), np.array([1, 2, 3])
    model.centers_ = [ROWS.mean(axis=0)[None], np.array([[0.9, -0.5], [0.5, 1.2]])]
    model.parts_ = [
        [{"rows": np.arange(5), "embedded": ROWS}],
        [{"rows": first, "embedded": ROWS[first]}, {"rows": second, "embedded": ROWS[second]}],
    ]
    found = model.decision_function([[2.0, 0.0]])[0] + 0.5
    np.testing.assert_allclose(found, [(1.8 / 2.4 + 1) / 2, 1.4 / 2.4 / 2, 0])


def test_half_of_the_votes_is_no():
    model = LabelKNN(2, weights="uniform").fit(ROWS, LABELS)
    assert model.predict([[2.0, 0.0]]).tolist() == [[1, 0, 0]]


# --- against brute force --------------------------------------------------------------------------------------------


def brute_force(model, embed, X, Y, queries):
    """Shares of votes, row by row and learner by learner; Y may have gaps."""
    dense = [A.toarray() if sp.issparse(A) else np.asarray(A, float) for A in (X, queries)]
    rates = np.nan_to_num(np.nanmean(Y, axis=0))
    votes = np.where(np.isnan(Y), rates, Y)
    scores = np.zeros((len(dense[1]), Y.shape[1]))
    for centers, parts in zip(model.centers_, model.parts_):
        for i, query in enumerate(dense[1]):
            part = parts[np.argmin(((query - centers) ** 2).sum(axis=1))]
            z, Z = embed(part, query), embed(part, dense[0][part["rows"]])
            if model.metric == "cosine":
                weights = (Z @ z) / (np.linalg.norm(Z, axis=1) * np.linalg.norm(z))
            else:
                weights = -np.linalg.norm(Z - z, axis=1)
            chosen = np.argsort(-weights, kind="stable")[: model.n_neighbors]
            weights = np.maximum(weights, 0) if model.metric == "cosine" else 1 / (1 - weights)
            weights = weights[chosen] if model.weights == "similarity" else np.ones(len(chosen))
            scores[i] += weights / weights.sum() @ votes[part["rows"][chosen]] / len(model.parts_)
    return scores


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("weights", ["similarity", "uniform"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("share", [1.0, 0.5], ids=["complete", "gaps"])
@pytest.mark.parametrize("ensemble", [{}, {"n_clusters": 3, "n_learners": 2}], ids=["one", "many"])
def test_label_knn_is_the_plain_knn(metric, weights, sparse, share, ensemble):
    X, Y = blobs(120, sparse=sparse)
    Y = np.where(np.random.default_rng(1).random(Y.shape) < share, Y, NAN)
    model = LabelKNN(7, metric=metric, weights=weights, dtype="float64", random_state=0, **ensemble).fit(
        X[:100], Y[:100]
    )
    expected = brute_force(model, lambda part, rows: rows, X[:100], Y[:100], X[100:])
    np.testing.assert_allclose(model.decision_function(X[100:]) + 0.5, expected, atol=1e-12)


@pytest.mark.parametrize("setting", [{}, {"metric": "euclidean"}, {"threshold": 0.2}, {"label_norm": None}], ids=str)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_sleec_is_the_plain_knn_of_its_embeddings(setting, sparse):
    X, Y = blobs(160, sparse=sparse)
    options = {"n_clusters": 2, "n_learners": 2, "n_neighbors": 5, "dtype": "float64", "random_state": 0}
    model = SLEEC(4, **options, **setting).fit(X[:120], Y[:120])

    def embed(part, rows):
        V = part["regressors"]
        return rows @ (V.toarray() if sp.issparse(V) else V)

    expected = brute_force(model, embed, X[:120], Y[:120].astype(float), X[120:])
    np.testing.assert_allclose(model.decision_function(X[120:]) + 0.5, expected, atol=1e-10)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_the_regressors_are_ridge_on_the_embeddings(sparse):
    """With every vector a neighbour and as many dimensions as labels Z Zᵀ is Y Yᵀ, and V Vᵀ = R Y Yᵀ Rᵀ with

    R = (XᵀX + αI)⁻¹ Xᵀ of the rows of the cluster.
    """
    X, Y = blobs(120, L=6, sparse=sparse)
    options = {"n_neighbors_embed": 120, "label_norm": None, "tol": 1e-9, "dtype": "float64"}
    model = SLEEC(6, n_clusters=2, n_learners=1, alpha=0.5, random_state=0, **options).fit(X, Y)
    for part in model.parts_[0]:
        rows, labels = (X.toarray() if sparse else X)[part["rows"]], Y[part["rows"]]
        R = np.linalg.solve(rows.T @ rows + 0.5 * np.eye(X.shape[1]), rows.T)
        V = part["regressors"]
        np.testing.assert_allclose(V @ V.T, R @ labels @ labels.T @ R.T, atol=1e-6)
        np.testing.assert_allclose(part["embedded"], rows @ V, atol=1e-10)


@pytest.mark.parametrize("make", [LabelKNN, SLEEC, LocalLEML])
@pytest.mark.parametrize("weights", ["similarity", "uniform"])
def test_topk_is_the_ranking_of_the_decisions(make, weights):
    """With few voters many labels tie, and rows of many labels are added up in another way than rows of few."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((90, 5)), (rng.random((90, 12)) < rng.random(12)).astype(int)
    options = {} if make is LocalLEML else {"weights": weights, "n_neighbors": 12}
    model = make(n_learners=3, n_clusters=2, random_state=0, **options).fit(X, Y)
    queries = np.vstack([rng.standard_normal((60, 5)), np.zeros((2, 5))])
    dense = model.decision_function(queries)
    for k in (1, 5, 12):
        indices, scores = model.predict_topk(queries, k)
        order = np.argsort(-dense, axis=1, kind="stable")[:, :k]
        np.testing.assert_array_equal(indices, order)
        np.testing.assert_array_equal(scores, np.take_along_axis(dense, order, axis=1))


# --- learners and clusters ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [LabelKNN, SLEEC, LocalLEML])
def test_each_learner_shares_out_all_rows(make):
    X, Y = blobs()
    model = make(n_learners=3, n_clusters=4, random_state=0).fit(X, Y)
    assert [len(parts) for parts in model.parts_] == [len(centers) for centers in model.centers_] == [4, 4, 4]
    assert len(model.objective_) == 12
    for parts in model.parts_:
        rows = np.concatenate([part["rows"] for part in parts])
        np.testing.assert_array_equal(np.sort(rows), np.arange(len(X)))
    assert any(not np.array_equal(model.centers_[0], centers) for centers in model.centers_[1:])


def test_rows_ask_their_own_cluster_alone():
    """With every training row a neighbour, the votes are those of the rows of the nearest centre's cluster."""
    X, Y = blobs()
    model = LabelKNN(999, n_clusters=4, weights="uniform", dtype="float64", random_state=0).fit(X, Y)
    queries = blobs(seed=1)[0]
    nearest = np.argmin(((queries[:, None] - model.centers_[0]) ** 2).sum(axis=2), axis=1)
    means = np.stack([Y[part["rows"]].mean(axis=0) for part in model.parts_[0]])
    assert len(set(nearest)) == 4
    np.testing.assert_allclose(model.decision_function(queries) + 0.5, means[nearest], atol=1e-12)


@pytest.mark.parametrize("make", [LabelKNN, SLEEC, LocalLEML])
def test_the_first_learners_are_the_smaller_ensemble(make):
    X, Y = blobs()
    large, small = (make(n_learners=n, n_clusters=3, random_state=0).fit(X, Y) for n in (3, 2))
    prefix = copy.copy(large)
    prefix.parts_, prefix.centers_ = large.parts_[:2], large.centers_[:2]
    assert_same_model(prefix, small)
    np.testing.assert_array_equal(prefix.decision_function(X), small.decision_function(X))


def test_the_number_of_clusters_follows_the_rows():
    sizes = (1, 5_999, 11_999, 12_000, 17_999, 60_000)
    assert [choose_n_clusters(None, n, ROWS_PER_CLUSTER) for n in sizes] == [1, 1, 1, 2, 2, 10]
    n = 2 * ROWS_PER_CLUSTER
    X = np.random.default_rng(0).standard_normal((n, 2))
    model = LabelKNN(1, n_clusters=None, random_state=0).fit(X, X > 0)
    assert [len(part["rows"]) > 0 for part in model.parts_[0]] == [True, True]


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("ensemble", [(1, 1), (2, 3)], ids=str)
@pytest.mark.parametrize(
    ("make", "setting"),
    [
        (SLEEC, {}),
        (SLEEC, {"embedding": "als"}),
        (SLEEC, {"regressor": "admm", "l1": 0.1, "threshold": 0.1}),
        (SLEEC, {"regressor": "svr", "l1": 0.01, "alpha": 0.5}),
        (LabelKNN, {}),
        (LocalLEML, {}),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else str(value),
)
def test_threads_change_nothing(make, setting, ensemble, sparse):
    X, Y = blobs(200, 30, 60, sparse=sparse)
    sizes = dict(zip(("n_learners", "n_clusters"), ensemble, strict=True))
    if make is not LabelKNN:
        sizes |= {"n_components": 8, "tol": 0.1}
    models = [make(n_jobs=n, random_state=0, **sizes, **setting).fit(X, Y) for n in (1, 2, 3)]
    for other in models[1:]:
        assert_same_model(models[0], other)
        np.testing.assert_array_equal(other.decision_function(X), models[0].decision_function(X))
        for found, expected in zip(other.predict_topk(X, 4), models[0].predict_topk(X, 4), strict=True):
            np.testing.assert_array_equal(found, expected)


def test_tasks_share_the_threads():
    with threads(5):
        assert list(run_parallel([n_threads] * 2)) == [2, 2]
        assert list(run_parallel([n_threads] * 9)) == [1] * 9
        assert list(run_parallel([n_threads])) == [5]
        assert list(run_parallel([])) == []
        assert n_threads() == 5
    with threads(1):
        assert list(run_parallel([n_threads] * 3)) == [1, 1, 1]


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_the_error_of_a_task_comes_out_and_those_that_wait_are_not_begun(n_jobs):
    done = []

    def fail():
        raise RuntimeError("no")

    def work():
        time.sleep(0.002)
        done.append(1)

    with threads(n_jobs), pytest.raises(RuntimeError, match="no"):
        list(run_parallel([fail, *[work] * 300]))
    assert len(done) < (1 if n_jobs == 1 else 300)


def test_verbose_tells_of_each_part(capsys):
    X, Y = blobs(60)
    model = SLEEC(3, n_learners=2, n_clusters=2, verbose=2, random_state=0).fit(X, Y)
    sizes = [len(part["rows"]) for parts in model.parts_ for part in parts]
    expected = [f"SLEEC {i}/4: cluster of {size} rows" for i, size in enumerate(sizes, start=1)]
    assert capsys.readouterr().out.splitlines() == expected


# --- indexes --------------------------------------------------------------------------------------------------------


def test_indexes_follow_the_parameters_and_the_parts():
    X, Y = blobs()
    model, fresh = (LabelKNN(5, random_state=0).fit(X, Y) for _ in range(2))
    first = model.decision_function(X)
    np.testing.assert_array_equal(
        model.set_params(metric="euclidean").decision_function(X),
        fresh.set_params(metric="euclidean").decision_function(X),
    )
    np.testing.assert_array_equal(model.set_params(metric="cosine").decision_function(X), first)
    other = LabelKNN(5, random_state=0).fit(X[::-1].copy(), Y[::-1])
    model.parts_, model.positives_ = other.parts_, other.positives_
    np.testing.assert_array_equal(model.decision_function(X), other.decision_function(X))


@pytest.mark.parametrize("twin", [copy.copy, copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_votes_alike(twin):
    X, Y = blobs()
    model = SLEEC(5, n_learners=2, n_clusters=2, random_state=0).fit(X, Y)
    unused = len(pickle.dumps(model))
    expected = model.decision_function(X)
    np.testing.assert_array_equal(twin(model).decision_function(X), expected)
    assert len(pickle.dumps(model)) == unused  # indexes stay behind


@pytest.mark.parametrize("make", [LabelKNN, SLEEC])
def test_approximate_search_finds_nearly_the_same(make):
    pytest.importorskip("faiss", reason="faiss is not installed")
    X, Y = blobs(1_000)
    options = {"n_learners": 1, "n_clusters": 2, "random_state": 0}
    if make is SLEEC:
        options["n_components"] = 10
    exact, near = (make(algorithm=name, **options).fit(X[:800], Y[:800]) for name in ("exact", "approximate"))
    a, b = (model.decision_function(X[800:]) for model in (exact, near))
    assert (np.abs(a - b) < 1e-4).mean() > 0.99
    assert (exact.predict_topk(X[800:], 3)[0] == near.predict_topk(X[800:], 3)[0]).mean() > 0.98


# --- SLEEC's choices ------------------------------------------------------------------------------------------------


def test_tail_labels():
    """150 groups in 8 dimensions: there is room for as many directions, though not for a matrix of that rank."""
    X, Y, X_test, Y_test = tails()
    sleec = SLEEC(8, n_learners=1, n_neighbors=4, alpha=0.01, random_state=0).fit(X, Y).score(X_test, Y_test)
    leml = max(LEML(8, alpha=alpha, random_state=0).fit(X, Y).score(X_test, Y_test) for alpha in (0.01, 1.0))
    assert sleec > 0.85
    assert sleec > leml + 0.25


@pytest.mark.parametrize(
    "setting",
    [
        {"embedding": "als"},
        {"regressor": "admm", "l1": 0.05},
        {"regressor": "admm"},
        {"regressor": "svr"},
        {"regressor": "svr", "l1": 0.01},
        {"label_norm": None},
        {"metric": "euclidean"},
        {"weights": "uniform"},
        {"threshold": 0.05},
        {"n_learners": 3, "n_clusters": 4},
        {"dtype": "float64"},
    ],
    ids=str,
)
def test_every_choice_learns(setting):
    X, Y, X_test, Y_test = tails(60, 6, 40)
    options = {"n_components": 10, "n_learners": 1, "n_neighbors": 4, "alpha": 0.01, "random_state": 0}
    usual = SLEEC(**options).fit(X, Y).score(X_test, Y_test)
    assert usual > 0.85
    assert SLEEC(**options | setting).fit(X, Y).score(X_test, Y_test) > usual - 0.1


def test_admm_without_l1_is_ridge():
    X, Y = blobs()
    options = {"n_components": 5, "n_learners": 1, "dtype": "float64", "random_state": 0, "device": "cpu"}
    admm, ridge = (SLEEC(regressor=name, **options).fit(X, Y) for name in ("admm", "ridge"))
    assert_same_model(admm, ridge)


def test_l1_makes_zeros():
    X, Y = blobs()
    share = {}
    for l1 in (0.0, 0.1, 1.0, 1e6):
        model = SLEEC(6, n_learners=1, regressor="admm", l1=l1, random_state=0).fit(X, Y)
        share[l1] = (model.parts_[0][0]["embedded"] == 0).mean()
    assert share[0.0] == 0 < share[0.1] < share[1.0] < share[1e6] == 1


def test_a_threshold_cuts_small_weights():
    X, Y, X_test, Y_test = tails(60, 6, 40)
    options = {"n_components": 10, "n_learners": 1, "n_neighbors": 4, "alpha": 0.01, "random_state": 0}
    whole = SLEEC(**options).fit(X, Y)
    V = whole.parts_[0][0]["regressors"]
    assert isinstance(V, np.ndarray)
    for share in (0.05, 0.3, 1.0):
        cut = SLEEC(threshold=share, **options).fit(X, Y)
        part = cut.parts_[0][0]
        assert sp.issparse(part["regressors"])
        kept = np.abs(V) >= share * np.abs(V).max()
        np.testing.assert_array_equal(part["regressors"].toarray(), np.where(kept, V, 0))
        assert part["regressors"].nnz == kept.sum() < V.size
        np.testing.assert_allclose(part["embedded"], X @ part["regressors"].toarray(), atol=1e-5)
    near = SLEEC(threshold=0.05, **options).fit(X, Y)
    assert abs(near.score(X_test, Y_test) - whole.score(X_test, Y_test)) < 0.05


def test_the_objective_is_that_of_the_embedding():
    """At first ½ ‖P_Ω(Y Yᵀ)‖², and it falls; every label vector a neighbour makes that ½ ‖Y Yᵀ‖²."""
    X, Y = blobs(90)
    Y[:, 0] |= Y.sum(axis=1) == 0
    for norm in ("l2", None):
        model = SLEEC(6, n_learners=1, n_neighbors_embed=90, label_norm=norm, random_state=0).fit(X, Y)
        vectors = Y / np.linalg.norm(Y, axis=1, keepdims=True) if norm else Y
        (history,) = model.objective_
        assert history[0] == pytest.approx(0.5 * ((vectors @ vectors.T) ** 2).sum(), rel=1e-5)
        assert (np.diff(history) < 0).all()
        assert model.n_iter_ == len(history) - 1


@pytest.mark.parametrize(
    ("make", "setting", "advice"),
    [
        (SLEEC, {"max_iter": 1, "tol": 1e-6}, "raise max_iter or tol"),
        (SLEEC, {"embedding": "als", "max_iter": 1}, "raise max_iter or tol"),
        (SLEEC, {"regressor": "admm", "l1": 0.1, "regressor_max_iter": 1}, "raise alpha or regressor_max_iter"),
        (LocalLEML, {"max_iter": 1, "tol": 1e-6}, "raise max_iter or tol"),
    ],
)
def test_what_ended_a_fit_too_early(make, setting, advice):
    X, Y = blobs()
    filters = warnings.filters.copy()
    model = make(n_components=5, n_learners=2, random_state=0, **setting)
    with pytest.warns(ConvergenceWarning, match=rf"{make.__name__} stopped some parts .*; {advice}\.") as caught:
        model.fit(X, Y)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert warnings.filters == filters
    assert model.status_ == "max_iter"
    model.set_params(**{name: 500 for name in setting if name.endswith("max_iter")})
    model.set_params(**{"tol": 0.1} if "tol" in setting else {}).fit(X, Y)
    assert model.status_ == "converged"


# --- LocalLEML ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gaps", [False, True], ids=["complete", "gaps"])
@pytest.mark.parametrize("setting", [{}, {"alpha_labels": 0.5, "fit_intercept": False}], ids=str)
def test_one_part_is_leml(gaps, setting):
    X, Y = blobs(L=10)
    Y[:, 3] = 0
    Y = np.where(np.random.default_rng(0).random(Y.shape) < 0.6, Y, NAN) if gaps else Y
    options = {"n_components": 3, "alpha": 1.0, "tol": 1e-9, "max_iter": 500, "dtype": "float64", **setting}
    local = LocalLEML(n_clusters=1, n_learners=1, random_state=0, **options).fit(X, Y)
    whole = LEML(random_state=0, **options).fit(X, Y)
    assert local.objective_[0][-1] == pytest.approx(whole.objective_[-1], rel=1e-6)
    np.testing.assert_allclose(local.decision_function(X), whole.decision_function(X), atol=1e-3)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_local_leml_by_its_factors(loss):
    """The mean over learners of (X W + intercept) Hᵀ of a row's cluster; labels that it lacks have the loss's no."""
    X, Y = blobs()
    model = LocalLEML(3, n_clusters=4, n_learners=2, loss=loss, dtype="float64", random_state=0).fit(X, Y)
    expected = np.zeros(Y.shape)
    for centers, parts in zip(model.centers_, model.parts_):
        nearest = np.argmin(((X[:, None] - centers) ** 2).sum(axis=2), axis=1)
        for x, row, c in zip(X, expected, nearest):
            part = parts[c]
            scores = np.full(Y.shape[1], 0.0 if loss == "squared" else -1.0)
            scores[part["labels"]] = (x @ part["features"] + part["intercept"]) @ part["factors"].T
            row += scores / 2
            assert Y[part["rows"]].any(axis=0)[part["labels"]].all()
    np.testing.assert_allclose(model.decision_function(X) + model.threshold_, expected, atol=1e-10)
    assert model.score(X, Y) > 0.9


# --- odd data -------------------------------------------------------------------------------------------------------

ODD = [
    pytest.param(make, setting, id=f"{make.__name__} {setting}")
    for make, setting in [
        (LabelKNN, {}),
        (LabelKNN, {"metric": "euclidean"}),
        (SLEEC, {}),
        (SLEEC, {"embedding": "als"}),
        (SLEEC, {"regressor": "admm", "l1": 0.1}),
        (SLEEC, {"regressor": "svr"}),
        (SLEEC, {"threshold": 0.5}),
        (SLEEC, {"alpha": 0.0}),
        (LocalLEML, {}),
        (LocalLEML, {"loss": "logistic"}),
    ]
]
odd = pytest.mark.parametrize(("make", "setting"), ODD)
forms = pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array], ids=["dense", "sparse"])


def fit(make, setting, X, Y, **options):
    ensemble = {"n_clusters": 2, "n_learners": 2, "random_state": 0} | options
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = make(**ensemble, **setting).fit(X, Y)
        scores = model.decision_function(X)
        model.predict_topk(X, 1)
    assert np.isfinite(scores).all()
    assert scores.shape == (X.shape[0], model.n_labels_)
    return model, scores


@odd
def test_fewer_rows_than_neighbors_and_dimensions(make, setting):
    X, Y = blobs(6)
    model, _ = fit(make, setting, X, Y)
    assert sum(len(part["rows"]) for part in model.parts_[0]) == 6


@odd
@forms
def test_a_cluster_without_a_label_or_a_known_cell(make, setting, wrap):
    """Two far groups: all that is known is in the first, and nothing positive in the second."""
    X, Y = blobs(60)
    far = np.arange(60) >= 40
    X[far] += 1_000
    model, scores = fit(make, setting, wrap(X), np.where(far[:, None], 0, Y))
    groups = {tuple(np.unique(far[part["rows"]])) for part in model.parts_[0]}
    assert groups == {(False,), (True,)}
    assert (scores[far] < 0).all()
    gaps = np.where(far[:, None], NAN, Y)
    model, scores = fit(make, setting, wrap(X), gaps)
    if make is not LocalLEML:
        np.testing.assert_allclose(scores[far] + 0.5, np.tile(Y[~far].mean(axis=0), (20, 1)), atol=1e-6)
    assert model.score(wrap(X), gaps) > 0.8


@odd
def test_duplicated_rows_make_fewer_clusters(make, setting):
    X, Y = np.repeat([[1.0, 0.0], [0.0, 1.0]], 15, axis=0), np.repeat([[1, 0, 1], [0, 1, 0]], 15, axis=0)
    model, scores = fit(make, setting, sp.csr_array(X), Y, n_clusters=5)
    assert [len(parts) for parts in model.parts_] == [2, 2]
    np.testing.assert_array_equal(scores > 0, Y == 1)


@odd
@forms
def test_features_that_are_all_zero_give_the_label_means(make, setting, wrap):
    Y = blobs(40)[1]
    model, scores = fit(make, setting, wrap(np.zeros((40, 5))), Y)
    assert [len(parts) for parts in model.parts_] == [1, 1]
    if setting.get("metric") == "euclidean":  # rows at the same place: as many of them as are asked, the first ones
        np.testing.assert_allclose(scores[0] + 0.5, Y[:10].mean(axis=0), atol=1e-6)
    elif make is not LocalLEML:
        np.testing.assert_allclose(scores + 0.5, np.tile(Y.mean(axis=0), (40, 1)), atol=1e-6)
    assert (scores == scores[0]).all()


def test_local_leml_without_features_learns_the_means_by_its_constant():
    Y = blobs(200)[1]
    scores = fit(LocalLEML, {"alpha": 1e-3, "dtype": "float64"}, np.zeros((200, 5)), Y)[1]
    np.testing.assert_allclose(scores[0] + 0.5, Y.mean(axis=0), atol=1e-3)


@odd
@forms
@pytest.mark.parametrize("y", [[[1, 0, 1]], [[0, 0, 0]], [[1]], [[0]]], ids=str)
def test_one_row(make, setting, wrap, y):
    model, scores = fit(make, setting, wrap(np.array([[1.0, 2.0]])), np.array(y), n_clusters=None)
    assert [len(parts) for parts in model.parts_] == [1, 1]
    if make is not LocalLEML:
        np.testing.assert_allclose(scores + 0.5, y, atol=1e-6)


@odd
def test_one_label_and_labels_without_positives(make, setting):
    X, Y = blobs(60)
    single = (X[:, :1] > 0).astype(int)
    _, scores = fit(make, setting, X, single)
    assert ((scores > 0) == single).mean() > 0.7
    Y[:, :5] = 0
    _, scores = fit(make, setting, X, Y)
    assert (scores[:, :5] < 0).all()
    _, scores = fit(make, setting, X, np.zeros_like(Y))
    assert (scores < 0).all()


@odd
def test_rows_far_from_every_cluster_and_rows_of_zeros(make, setting):
    X, Y = blobs(60)
    model, _ = fit(make, setting, X, Y)
    assert np.isfinite(model.decision_function(np.array([[1e6] * X.shape[1], [0.0] * X.shape[1]]))).all()
