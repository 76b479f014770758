"""WSABIE: the WARP loss and its sampling against plain twins, planted rankings, the bar, votes, early stopping."""

from __future__ import annotations

import os
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.preprocessing import normalize

import labelgap
from labelgap import WSABIE, LabelKNN, Labels, hide_cells
from labelgap.baselines import wsabie
from labelgap.baselines.forest import SparseRows
from labelgap.baselines.wsabie import AdaGradFactors, to_label_cells
from labelgap.metrics import precision_at_k
from labelgap_papers.paper_methods import METHODS, WSABIE_ALPHAS, WSABIE_LEARNING_RATES, Task

# --- the plain twin of the compiled loops ---------------------------------------------------------------------------

WORD = 2**64


def to_rows(X):
    csr = sp.csr_array(X)
    return SparseRows(csr.indptr, csr.indices, csr.data, csr.shape[1])


def plain_draw(state, n):
    """splitmix64 on Python's integers."""
    state[0] = (state[0] + 0x9E3779B97F4A7C15) % WORD
    z = state[0]
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % WORD
    z ^= z >> 31
    return (z >> 32) * n >> 32


def plain_violator(state, b, H, wanted, yes, known):
    """Draw among the known negatives, and the bar where it is one, until one is not a unit below the wanted label."""
    bar = len(H) - 1
    pool = [*known, bar] if wanted != bar else list(known)
    negatives = len(pool) - len(yes)
    for trial in range(1, negatives + 1):
        while (label := pool[plain_draw(state, len(pool))]) in yes:
            pass
        excess = 1 - b @ H[wanted] + b @ H[label]
        if excess > 0:
            return label, negatives // trial, excess
    return None


def plain_move(vectors, squares, row, gradient, step, alpha):
    if not gradient.any():
        return
    squares[row] += (gradient**2).mean()
    length = step / np.sqrt(squares[row])
    vectors[row] = (vectors[row] - length * gradient) / (1 + length * alpha)


def plain_epoch(order, X, Y, W, H, of_W, of_H, state, step, alpha):
    """An epoch in the words of the docstring; Y is dense with NaN."""
    total, bar = 0.0, len(H) - 1
    for i in order:
        b, gradient = X[i] @ W, np.zeros(W.shape[1])
        yes, known = np.flatnonzero(Y[i] == 1), np.flatnonzero(~np.isnan(Y[i]))
        for wanted in [*yes, bar]:
            found = plain_violator(state, b, H, wanted, yes, known)
            if found is not None:
                label, rank, excess = found
                weight = sum(1 / r for r in range(1, rank + 1))
                total += weight * excess
                gradient += weight * (H[label] - H[wanted])
                plain_move(H, of_H, wanted, -weight * b, step, alpha)
                plain_move(H, of_H, label, weight * b, step, alpha)
        for f in np.flatnonzero(X[i]):
            if gradient.any():
                plain_move(W, of_W, f, X[i, f] * gradient, step, alpha)
    return total


def problem(n=12, d=5, L=6, k=3, gaps=False, seed=0):
    """Random rows, labels and factors: a row without features, one without positives, one with nothing but these."""
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((n, d)) < 0.6, rng.standard_normal((n, d)), 0)
    Y = (rng.random((n, L)) < 0.4).astype(float)
    X[1], Y[2], Y[3] = 0, 0, 1
    if gaps:
        Y[rng.random((n, L)) < 0.4] = np.nan
        Y[4] = np.nan
    labels = Labels(Y)
    factors = [AdaGradFactors(rng.standard_normal((size, k)), np.full(size, 0.1)) for size in (d, L + 1)]
    return SimpleNamespace(X=X, Y=Y, rows=to_rows(X), cells=to_label_cells(labels), W=factors[0], H=factors[1])


@pytest.mark.parametrize("gaps", [False, True], ids=["complete", "gaps"])
@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_epochs_are_those_of_the_plain_twin(gaps, alpha):
    p = problem(gaps=gaps)
    plain = [array.copy() for array in (p.W.vectors, p.H.vectors, p.W.squares, p.H.squares)]
    sampler, state = wsabie.make_sampler(7, 7, np.float64), [7]
    for step in (0.5, 0.1):
        order = np.random.default_rng(1).permutation(len(p.X))
        loss = wsabie.run_epoch(order, p.rows, p.cells, p.W, p.H, sampler, step, alpha)
        assert loss == pytest.approx(plain_epoch(order, p.X, p.Y, *plain, state, step, alpha), rel=1e-9)
    for found, expected in zip((p.W.vectors, p.H.vectors, p.W.squares, p.H.squares), plain, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-8)
    assert int(sampler.state[0]) == state[0]


def test_a_step_goes_against_the_gradient():
    """With one positive, and steps of one length for all, a step is −η ∂ of Φ(rank) · max(0, 1 − s_j + s_v)."""
    rng = np.random.default_rng(3)
    X, Y = rng.standard_normal((1, 4)), np.array([[0, 1, np.nan]])  # negatives of label 1: label 0 and the bar
    W, H, far = rng.standard_normal((4, 3)) / 5, rng.standard_normal((4, 3)) / 5, 1e16
    features, labels = AdaGradFactors(W.copy(), np.full(4, far)), AdaGradFactors(H.copy(), np.full(4, far))
    sampler = wsabie.make_sampler(0, 4, np.float64)
    rows, cells = to_rows(X), to_label_cells(Labels(Y))
    wsabie.run_epoch(np.array([0]), rows, cells, features, labels, sampler, 1e-6 * np.sqrt(far), 0.0)
    state, b = [0], X[0] @ W
    first, second = (plain_violator(state, b, H, wanted, [1], [0, 1]) for wanted in (1, 3))
    phi = [0, 1, 1.5]

    def loss(theta):
        of_W, of_H = np.split(theta.reshape(-1, 3), [4])
        s = X[0] @ of_W @ of_H.T
        return sum(phi[rank] * (1 - s[j] + s[v]) for j, (v, rank, _) in ((1, first), (3, second)))

    at = np.vstack([W, H]).ravel()
    gradient = np.array([loss(at + e) - loss(at - e) for e in 1e-5 * np.eye(24)]) / 2e-5
    moved = np.vstack([features.vectors - W, labels.vectors - H]).ravel()
    np.testing.assert_allclose(moved, -1e-6 * gradient, atol=1e-9)
    assert {first[0], second[0]} <= {0, 3}
    assert np.abs(moved.reshape(-1, 3)[4 + 2]).max() == 0  # the unknown label stays


def test_negatives_are_drawn_evenly_among_the_known_ones():
    """With scores that all violate, the first draw counts: label 1 is unknown, label 3 a positive, 5 the bar."""
    H, b = np.zeros((6, 2)), np.ones(2)
    positives, known = np.array([3]), np.array([0, 2, 3, 4])
    sampler, counts = wsabie.make_sampler(5, 6, np.float64), np.zeros(6)
    for _ in range(4000):
        label, rank, excess = wsabie.find_violator(sampler, 0, b, H, 3, positives, known, False)
        counts[label] += 1
        assert (rank, excess) == (4, 1.0)
    assert counts[[1, 3]].sum() == 0
    np.testing.assert_allclose(counts[[0, 2, 4, 5]], 1000, atol=120)  # four standard deviations


def test_the_rank_is_the_number_of_negatives_by_that_of_draws():
    """One of 99 negatives violates: Φ is of ⌊99 / t⌋ when the t-th draw finds it, and none is found after 99."""
    H, b, none = np.zeros((100, 1)), np.ones(1), np.array([], np.int64)
    H[0], H[42] = 5, 4.5
    sampler, state = wsabie.make_sampler(11, 100, np.float64), [11]
    ranks = []
    for _ in range(200):
        label, rank, excess = wsabie.find_violator(sampler, 0, b, H, 0, np.array([0]), none, True)
        expected = plain_violator(state, b, H, 0, [0], range(99))
        assert (label, rank) == ((-1, 0) if expected is None else expected[:2])
        ranks.append(rank)
        assert label in (-1, 42)
        assert excess == (0.5 if label == 42 else 0)
    assert len(set(ranks)) > 10
    np.testing.assert_allclose(sampler.weights[:5], [0, 1, 3 / 2, 11 / 6, 25 / 12])


# --- the estimator --------------------------------------------------------------------------------------------------


def ranked(n=400, d=20, L=60, k=4, seed=0):
    """Each row has the three labels that are best by a planted low-rank score."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    scores = X @ rng.standard_normal((d, k)) @ rng.standard_normal((k, L))
    Y = np.zeros((n, L), int)
    np.put_along_axis(Y, np.argsort(-scores, axis=1)[:, :3], 1, axis=1)
    return X, Y


def test_a_planted_ranking_is_learned():
    X, Y = ranked()
    model = WSABIE(8, learning_rate=0.1, max_iter=60, random_state=0).fit(X[:300], Y[:300])
    found = model.decision_function(X[300:])
    assert precision_at_k(Y[300:], found, 1) > 0.85
    assert precision_at_k(Y[300:], found, 3) > 0.75
    predicted = model.predict(X[300:])
    assert (predicted == Y[300:]).mean() > 0.95  # which no label at all would have
    assert 2 < predicted.sum(axis=1).mean() < 5
    assert model.objective_[-1] < 0.3 * model.objective_[0]


def test_gaps_are_no_negatives():
    """Half of the cells are unknown: who takes them for a no predicts too few labels."""
    X, Y = ranked(n=600)
    gaps = hide_cells(Y[:500], 0.5, random_state=0)
    make = {"learning_rate": 0.1, "max_iter": 60, "random_state": 0}
    masked = WSABIE(8, **make).fit(X[:500], gaps)
    filled = WSABIE(8, **make).fit(X[:500], gaps.positives)
    assert precision_at_k(Y[500:], masked.decision_function(X[500:]), 3) > 0.7
    many, few = (model.predict(X[500:]).sum(axis=1).mean() for model in (masked, filled))
    assert 2 < many < 4
    assert few < 0.7 * many


def test_the_bar_is_part_of_the_label_factors():
    """A label without a known cell has the score of the bar, 0, and is no yes; threads and blocks agree on it."""
    X, Y = ranked(n=50, L=5)
    Y = Y.astype(float)
    Y[:, 2] = np.nan
    model = WSABIE(3, random_state=0).fit(X, Y)
    assert model.threshold_ == 0
    assert not model.label_factors_[2].any()
    assert not model.predict(X)[:, 2].any()


def test_one_label_is_a_classifier():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3))
    Y = (X[:, :1] > 0).astype(int)
    model = WSABIE(1, learning_rate=0.3, max_iter=100, random_state=0).fit(X[:100], Y[:100])
    assert (model.predict(X[100:]) == Y[100:]).mean() > 0.9


def test_decay_makes_factors_smaller():
    X, Y = ranked(n=100)
    norms = [np.linalg.norm(WSABIE(4, alpha=a, random_state=0).fit(X, Y).label_factors_) for a in (0.0, 1.0, 30.0)]
    assert norms == sorted(norms, reverse=True)
    assert norms[-1] < 0.5 * norms[0]


def test_neighbours_in_the_space_vote(tmp_path):
    X, Y = ranked()
    model = WSABIE(8, predict_by="neighbors", n_neighbors=7, learning_rate=0.1, random_state=0).fit(X[:300], Y[:300])
    factors = X @ model.feature_factors_ + model.intercept_factors_
    voter = LabelKNN(7).fit(factors[:300], Y[:300])
    expected = voter.decision_function(factors[300:])
    np.testing.assert_allclose(model.decision_function(X[300:]), expected, atol=1e-5)
    model.save(tmp_path / "model")
    again = labelgap.load(tmp_path / "model")
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
    np.testing.assert_array_equal(again.predict_topk(X, 3)[0], model.predict_topk(X, 3)[0])
    gaps = hide_cells(Y, 0.3, random_state=0)
    np.testing.assert_array_equal(again.known_scores(X, gaps).data, model.known_scores(X, gaps).data)
    again = again.set_params(predict_by="inner").fit(X, Y)
    assert again.neighbors_ is None


def test_rows_held_out_choose_the_epoch():
    X, Y = ranked(n=200)
    flipped = Y[np.random.default_rng(0).permutation(200)]  # nothing to learn: the first epochs are as good as any
    model = WSABIE(8, validation_share=0.3, patience=2, max_iter=50, learning_rate=0.3, random_state=0)
    model.fit(X, flipped)
    scores = model.validation_scores_
    assert model.status_ == "stopped"
    assert len(scores) == len(model.objective_) == model.n_iter_ + 2 < 50
    assert model.n_iter_ == int(np.argmax(scores)) + 1
    held = np.random.RandomState(0).permutation(200)[:60]
    assert model.score(X[held], flipped[held]) == scores[model.n_iter_ - 1]
    whole = WSABIE(8, max_iter=3, random_state=0).fit(X, Y)
    assert (whole.validation_scores_, whole.n_iter_, whole.status_) == ([], 3, "max_iter")


def test_rows_held_out_may_have_no_positive():
    model = WSABIE(2, validation_share=0.5, random_state=0).fit(np.eye(6), np.zeros((6, 2), int))
    assert set(model.validation_scores_) == {0.0}
    assert model.n_iter_ == 1
    assert not model.predict(np.eye(6)).all()


def test_it_stops_when_nothing_violates():
    model = WSABIE(2, learning_rate=0.5, max_iter=500, tol=1e-3, random_state=0)
    model.fit(np.eye(3), np.eye(3))
    assert model.status_ == "converged"
    assert model.objective_[-1] <= 1e-3 * model.objective_[0]
    np.testing.assert_array_equal(model.predict(np.eye(3)), np.eye(3))


def test_the_tables_choose_steps_and_decay_by_validation(monkeypatch):
    seen = []
    fit = WSABIE.fit
    monkeypatch.setattr(WSABIE, "fit", lambda self, X, Y: seen.append((self.get_params(), len(Y))) or fit(self, X, Y))
    X, Y = ranked(n=100, L=6)
    model, chosen, _ = METHODS["WSABIE"].fit(Task(X, Labels(Y), 400, "squared", seed=3, criteria=("P@1",)))
    *tried, (last, size) = seen
    assert {(params["learning_rate"], params["alpha"]) for params, _ in tried[len(WSABIE_LEARNING_RATES) :]} == {
        (chosen["learning_rate"], alpha) for alpha in WSABIE_ALPHAS
    }
    assert {size for _, size in tried} == {80}
    assert size == 100
    assert all(last[name] == value for name, value in chosen.items())
    assert model.label_factors_.shape == (6, 300)  # what a table asks for beyond is not worth its time


@pytest.mark.parametrize("n_jobs", [2, 3])
def test_a_seed_decides_whatever_the_threads(n_jobs):
    X, Y = ranked(n=150)
    one, other = (WSABIE(8, random_state=3, n_jobs=n).fit(X, Y) for n in (1, n_jobs))
    np.testing.assert_array_equal(one.label_factors_, other.label_factors_)
    np.testing.assert_array_equal(one.feature_factors_, other.feature_factors_)
    another = WSABIE(8, random_state=4).fit(X, Y)
    assert not np.array_equal(another.label_factors_, one.label_factors_)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"alpha": -1.0}, "alpha=-1.0 is out of range"),
        ({"learning_rate": np.inf}, "learning_rate=inf is out of range"),
        ({"n_components": 0}, "n_components=0 is out of range"),
        ({"patience": 0}, "patience=0 is out of range"),
        ({"predict_by": "magic"}, r"predict_by='magic' is not known; choose from \['inner', 'neighbors'\]"),
        ({"validation_share": 1.0}, "validation_share=1.0 is out of range; pass the share of the rows"),
    ],
    ids=str,
)
def test_parameters_out_of_range(parameters, message):
    with pytest.raises(ValueError, match=message):
        WSABIE(**parameters).fit(np.eye(2), np.eye(2))


def test_numbers_that_are_too_large():
    model = WSABIE(2, random_state=0)
    with pytest.raises(ValueError, match=r"too large for dtype='float32'.*scale the features"):
        model.fit(np.full((4, 4), 3e38), np.eye(4))
    assert not hasattr(model, "label_factors_")


@pytest.mark.parametrize(
    "change", [{"label_factors_": np.ones((3, 7))}, {"neighbors_": {"header": {}, "values": {}}}]
)
def test_a_file_that_does_not_hold_together(change, tmp_path):
    model = WSABIE(2, random_state=0).fit(np.eye(4), np.eye(4))
    vars(model).update(change)
    model.save(tmp_path / "model")
    with pytest.raises(ValueError, match="is inconsistent"):
        labelgap.load(tmp_path / "model")


@pytest.mark.skipif("LABELGAP_DATA" not in os.environ, reason="LABELGAP_DATA names no folder of data sets")
def test_published_precision_on_bibtex():
    """The Extreme Classification Repository has 54.78 / 32.39 / 23.98; steps and decay are those of validation."""
    data = labelgap.load_dataset("bibtex")
    model = WSABIE(150, learning_rate=0.03, alpha=0.03, random_state=0).fit(normalize(data.X_train), data.Y_train)
    best = model.predict_topk(normalize(data.X_test), 5)
    found = [100 * precision_at_k(data.Y_test, best, k) for k in (1, 3, 5)]
    assert (np.array(found) > [54.78, 32.39, 23.98]).all()
