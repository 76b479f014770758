"""Forgotten labels and unknown cells: every formula against a plain one, every claim on planted data."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import gamma, poisson
from sklearn.base import BaseEstimator, clone
from sklearn.cluster import KMeans
from sklearn.dummy import DummyClassifier
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import cross_val_predict
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils import check_random_state

from labelgap import LEML, BinaryRelevance, LabelKNN, Labels, Tagger, explain, hide_cells, hide_positives
from labelgap.calibration import Calibration, scored_cells
from labelgap.calibration import curves as curves_of_labels
from labelgap.calibration.curves import fit_steps
from labelgap.calibration.logits import fit_logits
from labelgap.calibration.scored_cells import ScoredCells, choose_cells
from labelgap.calibration.written import bound_odds, count_before, estimate_written, group_labels
from labelgap.checkpoints import checkpointing
from labelgap.datasets import make_low_rank
from labelgap.estimators import label_models
from labelgap.estimators.scores import LabelScores
from labelgap.gaps import (
    LabelCooccurrence,
    Suggestions,
    audit,
    calibration_error,
    complete,
    draw_best,
    draw_probe,
    estimate_from_probe,
    estimate_missing,
    learn,
    recalibrate,
    reliability,
)
from labelgap.gaps.auditing import estimate_right_among_low, estimate_wrong_rates
from labelgap.gaps.filling import HeldOutCells, choose_thresholds, score_held_out
from labelgap.gaps.out_of_fold import (
    check_labels,
    compute_scores,
    draw_folds,
    find_units,
    prepare_folds,
    score_out_of_fold,
)
from labelgap.kernels import get_backend
from labelgap.objectives import embeddings
from labelgap.observations import encode_tags


class Knows(BaseEstimator):
    """Has a score for each row that tells how it was fitted: X holds the number of the row."""

    absent = "negative"

    def __init__(self, n_labels=8):
        self.n_labels = n_labels

    def fit(self, X, Y):
        self.seen_ = set(X[:, 0].astype(int).tolist())
        assert len(self.seen_) == len(Y)
        return self

    def decision_function(self, X):
        rows = X[:, 0].astype(int)
        assert not self.seen_ & set(rows.tolist())
        return np.sin(rows[:, None] * 7.0 + np.arange(self.n_labels))


@pytest.fixture
def sparse_labels():
    rng = np.random.default_rng(0)
    return Labels((rng.random((30, 8)) < 0.3).astype(int))


# --- cells ---------------------------------------------------------------------------------------------------------


def scored(labels, **options):
    X = np.arange(len(labels), dtype=float)[:, None]
    options = {"n_folds": 4, "candidates": 2, "n_sampled": 3} | options
    return score_out_of_fold(Knows(labels.shape[1]), X, labels, rng=np.random.RandomState(0), **options)


def test_no_row_is_scored_by_a_model_that_saw_it(sparse_labels):
    cells = scored(sparse_labels)
    np.testing.assert_allclose(cells.scores, np.sin(cells.rows * 7.0 + cells.labels))
    assert set(cells.rows.tolist()) == set(range(30))


def test_every_positive_is_there_and_the_best_others(sparse_labels):
    cells = scored(sparse_labels)
    Y = sparse_labels.toarray()
    yes = cells.select(cells.positive)
    assert sorted(zip(yes.rows, yes.labels)) == sorted(zip(*np.nonzero(Y)))
    for row in range(30):
        scores = np.where(Y[row] == 0, np.sin(row * 7.0 + np.arange(8)), -np.inf)
        best = set(np.argsort(-scores)[: min(2, int((Y[row] == 0).sum()))].tolist())
        mine = cells.select((cells.rows == row) & ~cells.positive)
        assert best <= set(mine.labels.tolist())


def test_weights_stand_for_all_absent_cells(sparse_labels):
    cells = scored(sparse_labels)
    absent = ~cells.positive
    totals = np.bincount(cells.rows[absent], cells.weights[absent], 30)
    np.testing.assert_allclose(totals, (sparse_labels.toarray() == 0).sum(axis=1))


def test_unknown_cells_are_left_out(sparse_labels):
    gaps = hide_cells(sparse_labels, 0.6, random_state=0)
    cells, known = scored(gaps), gaps.known.toarray()
    assert known[cells.rows, cells.labels].all()
    absent = ~cells.positive
    totals = np.bincount(cells.rows[absent], cells.weights[absent], 30)
    np.testing.assert_allclose(totals, (gaps.toarray() == 0).sum(axis=1))


def test_small_blocks_change_nothing_that_is_certain(sparse_labels, monkeypatch):
    whole = scored(sparse_labels, n_sampled=0)
    monkeypatch.setattr("labelgap.runtime.workers.MAX_CELLS_PER_BLOCK", 24)
    for mine, other in zip(whole, scored(sparse_labels, n_sampled=0)):
        np.testing.assert_array_equal(mine, other)


# --- companions ----------------------------------------------------------------------------------------------------


def test_companions_are_ridge_regressions_on_the_other_labels(sparse_labels):
    Y, alpha = sparse_labels.toarray(), 0.7
    found = LabelCooccurrence(sparse_labels, alpha)
    for j in range(8):
        others = np.delete(np.arange(8), j)
        A = Y[:, others]
        expected = np.linalg.solve(A.T @ A + alpha * np.eye(7), A.T @ Y[:, j])
        np.testing.assert_allclose([found.get_weight(other, j) for other in others], expected, atol=1e-10)
        assert found.get_weight(j, j) == 0


def test_a_label_says_nothing_about_itself(sparse_labels):
    Y = sparse_labels.toarray()
    found = LabelCooccurrence(sparse_labels)
    without = Y.copy()
    without[3, 2] = 1 - without[3, 2]
    here = Y[3] @ found.weights[:, 2]
    assert here == pytest.approx(without[3] @ found.weights[:, 2])


def test_only_the_most_frequent_labels_take_part(sparse_labels, monkeypatch):
    monkeypatch.setattr("labelgap.gaps.explanations.MAX_LABELS", 3)
    found = LabelCooccurrence(sparse_labels)
    counts = sparse_labels.toarray().sum(axis=0)
    assert set(found.frequent) == set(np.argsort(-counts, kind="stable")[:3])
    rare = int(np.argmin(counts))
    assert found.get_weight(rare, int(found.frequent[0])) == 0


# --- calibration ---------------------------------------------------------------------------------------------------


def curves(m=20_000, L=5, seed=0):
    """Cells of labels whose curves differ, and their true probabilities."""
    rng = np.random.default_rng(seed)
    labels, scores = rng.integers(0, L, m), rng.normal(size=m)
    truth = 1 / (1 + np.exp(-(1.0 + 0.3 * labels) * scores + 2 - 0.5 * labels))
    return scores, labels, truth, rng.random(m) < truth


def test_probabilities_are_the_true_ones():
    inputs, labels, _, yes = curves()
    curve = Calibration(5).fit(inputs, labels, yes)
    fresh, fresh_labels, truth, fresh_yes = curves(seed=1)
    found = curve.predict(fresh, fresh_labels)
    assert np.abs(found - truth).mean() < 0.02
    assert calibration_error(found, fresh_yes) < 0.015
    for j in range(5):
        mine = fresh_labels == j
        assert abs(found[mine].mean() - truth[mine].mean()) < 0.02


def test_weights_are_counts():
    inputs, labels, _, yes = curves(m=300)
    counts = np.random.default_rng(0).integers(1, 4, 300)
    weighted = Calibration(5).fit(inputs, labels, yes, counts.astype(float))
    repeated = Calibration(5).fit(*(np.repeat(part, counts, axis=0) for part in (inputs, labels, yes)))
    np.testing.assert_allclose(weighted.predict(inputs, labels), repeated.predict(inputs, labels), atol=2e-3)


@pytest.mark.parametrize("decimals", [1, 9])
def test_steps_are_those_of_an_isotonic_regression_of_all_cells(decimals):
    rng = np.random.default_rng(0)
    logits, weights = rng.normal(size=2000).round(decimals), rng.integers(1, 5, 2000).astype(np.float32)
    yes = rng.random(2000) < 1 / (1 + np.exp(2 - logits))
    regression = IsotonicRegression(y_min=0, y_max=1).fit(logits, yes, sample_weight=weights)
    ends, shares = fit_steps(logits, yes, weights)
    np.testing.assert_allclose(np.interp(logits, ends, shares), regression.predict(logits), atol=1e-12)


def test_lines_of_labels_are_a_logistic_regression_with_their_features(monkeypatch):
    """With a common line, and for each label its own, scaled; also if cells are taken in many blocks."""
    monkeypatch.setattr(curves_of_labels, "CELLS_AT_ONCE", 700)
    z, labels, _, yes = curves(m=3000, L=4)
    weights = np.random.default_rng(1).integers(1, 4, 3000).astype(np.float32)
    own = 0.3 * np.eye(4)[labels]
    design = np.column_stack([z, own * z[:, None], own])
    logistic = LogisticRegression(max_iter=200, tol=1e-5).fit(design, yes, sample_weight=weights)
    coef = logistic.coef_[0]
    slopes, offsets = Calibration(4, own=0.3)._fit_lines(z, labels, yes, weights)
    np.testing.assert_allclose(slopes, coef[0] + 0.3 * coef[1:5], rtol=2e-3)
    np.testing.assert_allclose(offsets, logistic.intercept_[0] + 0.3 * coef[5:], rtol=2e-3)


def test_a_label_with_few_cells_has_the_curve_of_all():
    inputs, labels, _, yes = curves(L=1)
    labels = np.append(labels, 1)
    inputs, yes = np.append(inputs, 0.3), np.append(yes, True)
    curve = Calibration(2).fit(inputs, labels, yes)
    common, own = curve.predict(np.array([0.5, 0.5]), np.array([0, 1]))
    assert own == pytest.approx(common, abs=0.05)


@pytest.mark.parametrize("answer", [False, True])
def test_one_class_is_its_rate(answer):
    curve = Calibration(1).fit(np.ones(3), np.zeros(3, int), np.full(3, answer))
    assert curve.predict(np.zeros(2), np.zeros(2, int)).tolist() == [3.5 / 4 if answer else 0.5 / 4] * 2


def test_more_score_is_more_probability():
    inputs, labels, _, yes = curves(m=500, L=1)
    curve = Calibration(1).fit(inputs, labels, yes)
    line = np.linspace(-3, 3, 200)
    assert (np.diff(curve.predict(line, np.zeros(200, int))) > 0).all()


def test_bins_by_hand():
    bins = reliability(np.array([0.0, 0.5, 1.0, 0.99]), np.array([0, 1, 1, 0]), n_bins=2)
    assert bins == [(0.0, 0.0, 0.25), (pytest.approx(0.83), pytest.approx(2 / 3), 0.75)]
    assert calibration_error(np.array([0.0, 0.5, 1.0, 0.99]), np.array([0, 1, 1, 0]), 2) == pytest.approx(0.1225)


# --- audit ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def planted_gaps():
    """Labels of low rank that are almost certain given the row, of which three in ten are forgotten."""
    data = make_low_rank(3000, 25, 15, rank=5, random_state=0)
    written = hide_positives(data.Y, 0.7, random_state=1)
    model = LEML(5, alpha=1.0, random_state=0, n_jobs=1)
    return data, written, audit(data.X, written, model, n_folds=3, random_state=0)


def test_forgotten_labels_come_first(planted_gaps):
    data, written, found = planted_gaps
    truth = data.Y.toarray()
    hits = truth[found.missing.rows, found.missing.labels]
    assert hits[:500].mean() > 0.95
    absent = written.toarray()[found.missing.rows, found.missing.labels] == 0
    assert absent.all()
    assert roc_auc_score(hits, found.missing.probabilities) > 0.9
    assert (np.diff(found.missing.probabilities) <= 0).all()


def test_how_many_are_missing(planted_gaps):
    data, written, found = planted_gaps
    assert found.share_missing == pytest.approx(1 - written.nnz / data.Y.nnz, abs=0.05)
    assert found.n_missing.sum() == pytest.approx(data.Y.nnz - written.nnz, rel=0.25)
    assert found.n_missing.shape == found.written.shape == (15,)
    low, high = found.written_interval.T
    assert ((low <= found.written) & (found.written <= high)).all()
    share = np.asarray(written.sum(axis=0)).ravel() / np.asarray(data.Y.sum(axis=0)).ravel()
    assert ((low <= share) & (share <= high)).mean() >= 0.8


@pytest.mark.parametrize("k", [500, 2000])
def test_the_expected_precision_is_near_the_precision(planted_gaps, k):
    data, _, found = planted_gaps
    first = found.missing.first(k)
    assert first.expected_precision() == pytest.approx(data.Y.toarray()[first.rows, first.labels].mean(), abs=0.1)


def test_of_a_row_and_of_a_label(planted_gaps):
    _, _, found = planted_gaps
    mine = found.missing.of_row(5)
    assert len(mine) == (found.missing.rows == 5).sum() > 0
    assert (found.missing.of_label(3).labels == 3).all()


def test_records_name_labels(planted_gaps):
    _, _, found = planted_gaps
    names = [f"tag {j}" for j in range(15)]
    records = list(found.records(names, top=2))
    assert [kind for _, _, kind, _ in records] == ["missing"] * 2 + ["doubtful"] * 2
    assert records[0][1] == f"tag {found.missing.labels[0]}"
    assert all(isinstance(row, int) and isinstance(p, float) for row, _, _, p in records)


def test_wrong_labels_come_first():
    data = make_low_rank(2000, 25, 15, rank=5, random_state=0)
    rng, truth = np.random.default_rng(0), data.Y.toarray()
    wrong = (rng.random(truth.shape) < 0.01) & (truth == 0)
    found = audit(data.X, truth + wrong, LEML(5, alpha=1.0, random_state=0, n_jobs=1), n_folds=3, random_state=0)
    first = found.doubtful.first(int(wrong.sum()))
    assert wrong[first.rows, first.labels].mean() > 0.6
    assert (truth + wrong)[first.rows, first.labels].all()


@pytest.mark.parametrize("ceiling", [1.0, 0.7])
def test_logistic_coefficients_minimise_the_loss(ceiling):
    rng = np.random.default_rng(0)
    design, weights, offset = rng.normal(size=(300, 3)), rng.integers(1, 4, 300).astype(float), rng.normal(size=300)
    yes, prior = rng.random(300) < ceiling / (1 + np.exp(-design[:, 0] - offset)), np.array([0.0, 1.0, 0.5])

    def loss(theta):
        p = ceiling / (1 + np.exp(-design @ theta - offset))
        return -weights @ np.log(np.where(yes, p, 1 - p)) + 2.0 / 2 * ((theta - prior) ** 2).sum()

    theta, hessian = fit_logits(design, yes, weights, prior, 2.0, offset, ceiling)
    gradient = [(loss(theta + step) - loss(theta - step)) / 2e-5 for step in 1e-5 * np.eye(3)]
    np.testing.assert_allclose(gradient, 0, atol=1e-3)
    assert (np.linalg.eigvalsh(hessian) > 2.0).all()


@pytest.mark.parametrize("wrong", [0.03, 0.1])
def test_right_labels_with_low_scores_are_told_from_wrong_ones(wrong):
    """Wrong labels are spread evenly; how often features hide a right label differs between labels."""
    errors = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        hidden = np.minimum(rng.gamma(0.5, 0.08, 80), 0.9)
        parts = []
        for j in range(80):
            size = int(rng.integers(30, 300))
            n_wrong, n_right = rng.binomial(size, [wrong, hidden[j]])
            scores = np.concatenate([rng.random(1000 + n_wrong + n_right), 1 + rng.random(size)])
            written = np.arange(len(scores)) >= 1000
            parts.append((np.full(len(scores), j), scores, written, [n_wrong, n_right]))
        labels, scores, written = (np.concatenate([part[i] for part in parts]) for i in range(3))
        n_wrong, n_right = np.sum([part[3] for part in parts], axis=0)
        errors.append(estimate_right_among_low(cells_of(scores, written, labels), 80) - n_right / (n_wrong + n_right))
    assert abs(np.mean(errors)) < 0.1
    assert np.abs(errors).mean() < 0.15
    assert estimate_right_among_low(cells_of(scores[labels < 5], written[labels < 5], labels[labels < 5]), 5) == 0


def test_unknown_cells_are_not_suggested():
    data = make_low_rank(400, 10, 8, rank=3, random_state=0)
    gaps = hide_cells(data.Y, 0.7, random_state=0)
    found = audit(data.X, gaps, LEML(3, random_state=0), n_folds=2, random_state=0)
    assert gaps.known.toarray()[found.missing.rows, found.missing.labels].all()


def test_a_seed_makes_an_audit_repeatable():
    data = make_low_rank(300, 10, 8, rank=3, random_state=0)
    first, second = (
        audit(data.X, data.Y, LEML(3, random_state=0, n_jobs=1), n_folds=2, random_state=7) for _ in range(2)
    )
    for mine, other in zip(first.missing, second.missing):
        np.testing.assert_array_equal(mine, other)


def cells_with_wrong_labels(rates, n_absent, seed):
    """Return cells of labels whose right cells have higher scores than all absent ones, and which are wrong."""
    rng = np.random.default_rng(seed)
    n_wrong = rng.binomial(n_absent, rates)
    kinds = np.concatenate([np.repeat([0, 1, 2], [n_absent, k, n_absent // 10]) for k in n_wrong])
    labels = np.repeat(np.arange(len(rates)), n_absent + n_wrong + n_absent // 10)
    return cells_of(rng.random(len(kinds)) + (kinds == 2), kinds > 0, labels), kinds == 1


def test_a_rate_of_wrong_labels_is_the_posterior_mean():
    cells, _ = cells_with_wrong_labels(np.array([0.02, 0.1, 0.3]), 400, seed=0)
    of_group = np.array([0.1, 0.1, 0.2])
    low = np.array([np.quantile(cells.scores[(cells.labels == j) & ~cells.positive], 0.1) for j in range(3)])
    counts = np.bincount(cells.labels[cells.positive & (cells.scores < low[cells.labels])], minlength=3)
    eta = np.linspace(1e-6, 2.0, 200_001)
    for mine, k, r in zip(estimate_wrong_rates(cells, of_group), counts, of_group, strict=True):
        posterior = gamma.pdf(eta, 30.0, scale=r / 30.0) * poisson.pmf(k, 40.0 * eta)
        assert mine == pytest.approx(posterior @ eta / posterior.sum(), rel=0.02)


def test_labels_with_enough_cells_have_rates_of_their_own():
    rates = np.tile([0.02, 0.05, 0.1], 10)
    cells, _ = cells_with_wrong_labels(rates, 50_000, seed=0)
    np.testing.assert_allclose(estimate_wrong_rates(cells, np.full(30, rates.mean())), rates, rtol=0.4)
    few, _ = cells_with_wrong_labels(rates, 50, seed=0)
    np.testing.assert_allclose(estimate_wrong_rates(few, np.full(30, 0.05)), 0.05, rtol=0.15)


def test_wrong_labels_of_often_wrong_labels_come_first():
    """Scores alone do not tell a label that is wrong in every eighth absent row from one that hardly ever is."""
    rng = np.random.default_rng(0)
    truth = rng.random((8000, 12)) < 0.12
    wrong = ~truth & (rng.random(truth.shape) < np.tile([0.0, 0.01, 0.12], 4))
    scores = 1 / (1 + np.exp(-rng.normal(1.5 * truth - 2.0, 1.0)))
    found = audit(truth | wrong, probabilities=scores, random_state=0)
    doubted = found.doubtful
    hits, p = wrong[doubted.rows, doubted.labels], scores[doubted.rows, doubted.labels]
    order = -np.arange(len(hits))
    assert average_precision_score(hits, order) > average_precision_score(hits, 1 - p) + 0.03
    rows, row_scores = found.rank_rows()
    bad, largest = wrong.any(axis=1)[rows], np.where(truth | wrong, 1 - scores, 0).max(axis=1)[rows]
    assert average_precision_score(bad, row_scores) > average_precision_score(bad, largest) + 0.01


def cells_of(scores, written, labels=None, weights=None):
    """Cells with these scores, one in each row."""
    m = len(scores)
    labels = np.zeros(m, int) if labels is None else labels
    weights = np.ones(m) if weights is None else weights
    return ScoredCells(np.arange(m), labels, scores, written, weights, np.zeros(m, bool))


def test_cells_are_counted_by_label_from_the_best_or_from_the_worst():
    rng = np.random.default_rng(0)
    scores, labels, written = rng.random(60), rng.integers(0, 3, 60), rng.random(60) < 0.4
    weights = np.where(written, 1.0, rng.integers(1, 4, 60))
    cells = cells_of(scores, written, labels, weights)
    for reference, descending in ((written, True), (~written, False)):
        places = count_before(cells, np.array([0, 1, 0]), reference, descending=descending)
        group = np.array([0, 1, 0])[labels]
        assert sorted(places.cells.tolist()) == np.flatnonzero(~reference).tolist()
        for i, before in zip(places.cells, places.before, strict=True):
            ahead = (scores > scores[i]) if descending else (scores < scores[i])
            assert before == pytest.approx(weights[ahead & reference & (group == group[i])].sum() + 0.5)
        np.testing.assert_allclose(places.totals, np.bincount(group[reference], weights[reference], 2))
        np.testing.assert_array_equal(places.ends, np.cumsum(np.bincount(group[places.cells])))
        assert (np.diff(group[places.cells]) >= 0).all()


def draw_table(seed, gap, share_missing, shaped=False, n=3000, n_labels=6):
    """Normal scores of positives and negatives, ``gap`` apart, and which positives are written."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(n_labels), n)
    true = rng.random(n * n_labels) < np.linspace(0.05, 0.4, n_labels)[labels]
    keep = np.full(n_labels, 1 - share_missing)
    if shaped:
        keep = np.clip(keep + np.linspace(-0.2, 0.05, n_labels), 0.1, 1.0)
    written = true & (rng.random(n * n_labels) < keep[labels])
    return cells_of(rng.normal(size=n * n_labels) + gap * true, written, labels), written.sum() / true.sum()


@pytest.mark.parametrize("gap", [1.0, 2.0, 4.0])
@pytest.mark.parametrize("missing", [0.0, 0.06, 0.3, 0.7])
def test_the_interval_of_the_written_share_holds_the_truth(gap, missing):
    held, errors = [], []
    for seed in range(10):
        cells, truth = draw_table(seed, gap, missing, shaped=seed % 2 > 0 and missing > 0)
        share = estimate_written(cells, 6)
        held.append(share.low - 1e-9 <= truth <= share.high + 1e-9)
        errors.append(abs(share.overall - truth))
        assert 0 < share.low <= share.overall <= share.high <= 1
        assert share.identified == (share.high < 1)
    assert np.mean(held) >= 0.9
    if gap == 4:
        assert np.mean(errors) < 0.05
        assert missing != 0.3 or share.identified


def test_weak_features_bound_the_share_from_one_side_only():
    share = estimate_written(draw_table(0, 1.0, 0.06)[0], 6)
    assert (share.high, share.identified) == (1.0, False)
    assert share.low < 0.8


def test_a_single_rate_of_missing_cells_is_found_with_its_error():
    rng = np.random.default_rng(0)
    places = [np.append(rng.random(rng.poisson(300)), np.ones(9000)) for _ in range(100)]
    found = [bound_odds(u, np.ones(len(u)), 1000.0) for u in places]
    estimates = np.array([odds.estimate for odds in found])
    assert abs(estimates.mean() - 0.3) < 0.03
    assert np.mean([odds.low <= 0.3 <= odds.high for odds in found]) > 0.9
    assert 0.5 < np.mean([odds.error for odds in found]) / estimates.std() < 2
    assert bound_odds(np.empty(0), np.empty(0), 10.0) == bound_odds(np.ones(3), np.ones(3), 0.0)
    assert bound_odds(np.empty(0), np.empty(0), 10.0) == (0, 0, 0, 0)


def test_labels_of_similar_frequency_are_grouped():
    group = group_labels(np.array([3000, 10, 20, 1000, 900, 30, 0, 800, 700]))
    assert group[0] != group[3]
    assert min(group[0], group[3]) > group[4] >= group[7] >= group[8] >= group[5] == group[1] == group[6] == 0
    assert group_labels(np.zeros(3, int)).tolist() == [0, 0, 0]


def test_the_interval_is_around_the_share_and_within_0_and_1(planted_gaps):
    _, _, found = planted_gaps
    low, high = found.share_missing_interval
    assert 0 < low < found.share_missing < high < 1
    assert "of the true labels are missing" in repr(found)
    assert len(repr(found)) < 150
    assert len(repr(found.missing)) < 80


def test_probabilities_of_both_lists_are_those_of_planted_errors():
    """Omissions and additions, draws pooled, bins of over 200 cells: hardly ever fewer than stated."""
    lists = {"missing": [], "doubtful": []}
    for seed in range(4):
        data = make_low_rank(2000, 25, 15, rank=5, noise=0.3, random_state=seed)
        rng, truth = np.random.default_rng(seed), data.Y.toarray() > 0
        written = (truth & (rng.random(truth.shape) < 0.75)) | (~truth & (rng.random(truth.shape) < 0.02))
        model = LEML(5, alpha=1.0, random_state=0, n_jobs=1)
        found = audit(data.X, written.astype(int), model, n_folds=3, random_state=0)
        for kind, errors in (("missing", truth & ~written), ("doubtful", written & ~truth)):
            listed = getattr(found, kind)
            lists[kind].append((listed.probabilities, errors[listed.rows, listed.labels]))
    for parts in lists.values():
        p, hits = map(np.concatenate, zip(*parts))
        assert p.max() < 1
        for low in np.arange(0.0, 1.0, 0.2):
            mine = (p >= low) & (p < low + 0.2)
            if mine.sum() > 200:
                assert -0.1 < hits[mine].mean() - p[mine].mean() < 0.2


def test_the_first_suggestions_come_before_the_audit_is_done():
    data = make_low_rank(300, 10, 8, rank=3, random_state=0)
    parts: list = []
    whole = audit(data.X, data.Y, LEML(3, random_state=0), n_folds=3, random_state=0, callback=parts.append)
    rows = [set(part.doubtful.rows.tolist()) for part in parts]
    assert len(parts) == 2
    assert rows[0] < rows[1] < set(whole.doubtful.rows.tolist())
    assert parts[0].n_written.sum() < parts[1].n_written.sum() < whole.n_written.sum()


def test_rows_are_ranked_by_their_strongest_doubts(planted_gaps):
    data, written, found = planted_gaps
    rows, scores = found.rank_rows()
    wrong = (data.Y.toarray() != written.toarray()).any(axis=1)
    assert sorted(rows.tolist()) == list(range(3000))
    assert roc_auc_score(wrong[rows], scores) > 0.9
    doubts = np.minimum(found.doubtful.of_row(7).probabilities / (1 - found.right_among_low), 1)
    mine = np.concatenate([found.missing.of_row(7).probabilities, doubts])
    weights = np.exp(mine / 0.1)
    assert scores[rows == 7][0] == pytest.approx(mine @ weights / weights.sum())


def test_a_data_frame_of_suggestions_has_names_and_ids():
    pd = pytest.importorskip("pandas")
    data = make_low_rank(600, 15, 8, rank=3, random_state=0)
    Y = pd.DataFrame(hide_positives(data.Y, 0.7, random_state=0).toarray(), columns=list("abcdefgh"))
    found = audit(data.X, Y, LEML(3, random_state=0), n_folds=2, random_state=0)
    frame = found.to_frame(0.1, ids=[f"post {i}" for i in range(600)])
    assert list(frame.columns) == ["id", "row", "label", "kind", "probability"]
    assert frame["probability"].is_monotonic_decreasing
    assert frame["probability"].min() >= 0.1
    assert set(frame["label"]) <= set("abcdefgh")
    assert (frame["id"] == [f"post {row}" for row in frame["row"]]).all()
    assert len(found.to_frame()) == len(found.missing) + len(found.doubtful)


# --- probabilities of the user, groups, equal rows ------------------------------------------------------------------


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_probabilities_of_the_user_are_audited(form):
    data = make_low_rank(800, 20, 10, rank=4, random_state=0)
    written = hide_positives(data.Y, 0.7, random_state=0)
    P = cross_val_predict(
        OneVsRestClassifier(LogisticRegression()), data.X, written.toarray(), cv=5, method="predict_proba"
    )
    found = audit(written, probabilities=form(np.round(P, 3)))
    hits = data.Y.toarray()[found.missing.rows[:200], found.missing.labels[:200]]
    assert hits.mean() > 0.9
    low, high = found.share_missing_interval
    assert low <= 0.3 <= high


def test_texts_and_lists_of_tags():
    rng = np.random.default_rng(0)
    words = {
        "baking": ["oven", "flour", "cake"],
        "meat": ["bacon", "steak", "grill"],
        "soup": ["broth", "stock", "bowl"],
    }
    truth = [list(rng.choice(list(words), rng.integers(1, 3), replace=False)) for _ in range(200)]
    texts = [
        " ".join([*(word for tag in row for word in rng.permutation(words[tag])), f"n{i}"])
        for i, row in enumerate(truth)
    ]
    written = [[str(tag) for tag in row if rng.random() < 0.7] or None for row in truth]
    found = audit(texts, written, n_folds=2, random_state=0)
    assert found.label_names == sorted(words)
    first = list(found.records(top=20))
    assert all(tag in truth[i] and tag not in (written[i] or []) for i, tag, kind, _ in first if kind == "missing")
    assert set(found.to_frame()["label"]) <= set(words)
    names = ["soup", "meat", "baking"]
    same = audit(texts, encode_tags(written, names).Y, Tagger(label_names=names), n_folds=2, random_state=0)
    chosen = audit(texts, written, Tagger(label_names=names), n_folds=2, random_state=0)
    assert same.label_names == chosen.label_names == names
    assert list(same.records()) == list(chosen.records())
    P = 0.1 + 0.8 * encode_tags(truth).Y.toarray()
    assert next(tag in truth[i] for i, tag, _, _ in audit(written, probabilities=P).records())


def test_wrong_probabilities_are_refused():
    Y = np.eye(4)
    with pytest.raises(ValueError, match=r"probabilities has shape \(4, 3\) and Y \(4, 4\)"):
        audit(Y, probabilities=np.ones((4, 3)))
    with pytest.raises(ValueError, match="probabilities holds NaN"):
        audit(Y, probabilities=np.full((4, 4), np.nan))
    with pytest.raises(ValueError, match=r"Pass audit\(X, Y, estimator\), or audit\(Y, probabilities=P\)"):
        audit(np.eye(4), Y)
    with pytest.raises(ValueError, match="groups has 3 values and Y 4 rows"):
        audit(np.eye(4), Y, LEML(1), groups=[1, 2, 3])


@pytest.mark.parametrize(
    "form", [np.asarray, sp.csr_array, lambda X: [str(row) for row in X]], ids=["dense", "sparse", "texts"]
)
def test_equal_rows_and_groups_stay_in_one_fold(form):
    X = np.repeat(np.eye(10), 3, axis=0)
    units = find_units(form(X), None, 30)
    np.testing.assert_array_equal(units, np.repeat(np.arange(10), 3))
    joined = find_units(form(X), np.arange(30) // 5, 30)
    assert all(len(set(joined[rows])) == 1 for rows in (units == unit for unit in range(10)))
    assert all(len(set(joined[start : start + 5])) == 1 for start in range(0, 30, 5))
    fold = draw_folds(units, 4, np.random.RandomState(0))
    assert sorted(np.bincount(fold).tolist()) == [6, 6, 9, 9]
    assert all(len(set(fold[units == unit])) == 1 for unit in range(10))


def nearly_all_yes(*negative):
    Y = np.ones((60, 1))
    Y[list(negative)] = 0
    return Y


def two_known(first, second):
    Y = np.full((60, 2), np.nan)
    Y[3, 1], Y[5, 0] = first, second
    return Y


@pytest.mark.parametrize(
    "Y",
    [
        nearly_all_yes(),
        nearly_all_yes(7),
        nearly_all_yes(7, 8, 30),
        1 - nearly_all_yes(7),
        two_known(1, 1),
        two_known(1, 0),
        np.ones((2, 2)),
        np.eye(2),
        np.array([[1], [0]]),
    ],
    ids=["yes", "one no", "three noes", "one yes", "two yes", "one each", "two rows", "two rows, mixed", "two cells"],
)
def test_no_label_is_called_wrong_without_evidence(Y):
    X = np.random.default_rng(0).normal(size=(60, 4))[: len(Y)]
    found = audit(X, Y, LEML(1, random_state=0), random_state=0)
    assert len(found.doubtful) == int(np.nansum(Y))
    assert found.doubtful.probabilities.max() < 0.05
    assert ((found.missing.probabilities >= 0) & (found.missing.probabilities <= 1)).all()
    assert np.isfinite(found.n_missing).all()
    assert 0 <= found.share_missing < 1


def test_positives_alone_say_nothing_about_wrong_labels():
    data = make_low_rank(200, 10, 6, rank=3, random_state=0)
    found = audit(data.X, data.Y.tocsr(), LEML(4, absent="unknown", random_state=0), random_state=0)
    assert (len(found.missing), len(found.doubtful)) == (0, data.Y.nnz)
    assert found.doubtful.probabilities.max() == 0


def test_a_label_that_every_row_has_is_not_in_doubt():
    data = make_low_rank(400, 10, 6, rank=3, random_state=0)
    Y = np.column_stack([data.Y.toarray(), np.ones(400)])
    X = np.column_stack([data.X, np.ones(400)])
    found = audit(X, Y, LEML(4, alpha=0.1, random_state=0, n_jobs=1), n_folds=2, random_state=0)
    assert len(found.doubtful.of_label(6)) == 400
    assert found.doubtful.of_label(6).probabilities.max() < 0.01
    assert len(found.missing.of_label(6)) == 0


# --- in pipelines, and gone on with --------------------------------------------------------------------------------


@pytest.fixture
def stored_cells():
    """Rows, and labels as a sparse matrix whose stored zeros are the only noes."""
    data = make_low_rank(120, 6, 5, rank=2, random_state=0)
    known = np.random.default_rng(0).random(data.Y.shape) < 0.6
    rows, columns = np.nonzero(known)
    return data.X, sp.csr_array((data.Y.toarray()[known].astype(float), (rows, columns)), shape=known.shape)


def in_pipeline(model):
    return make_pipeline(FunctionTransformer(), model)


@pytest.mark.parametrize("wrap", [in_pipeline, lambda model: in_pipeline(in_pipeline(model))], ids=["one", "nested"])
def test_a_pipeline_reads_labels_as_its_last_step_does(wrap, stored_cells):
    X, S = stored_cells
    model = LEML(2, absent="unknown", dtype="float64", random_state=0, n_jobs=1)
    plain, piped = (audit(X, S, one, n_folds=2, random_state=0) for one in (model, wrap(model)))
    assert len(piped.missing) == (S.data == 0).sum()
    for mine, other in zip((*piped.missing, *piped.doubtful), (*plain.missing, *plain.doubtful)):
        np.testing.assert_array_equal(mine, other)
    plain, piped = (complete(X, S, one, random_state=0) for one in (model, wrap(model)))
    assert ((piped.probabilities > 0) & (piped.probabilities < 1)).sum() == S.shape[0] * S.shape[1] - S.nnz
    np.testing.assert_allclose(piped.probabilities, plain.probabilities, rtol=1e-6)
    np.testing.assert_allclose(piped.thresholds, plain.thresholds)


def test_a_tagger_reads_labels_itself(stored_cells):
    _, S = stored_cells
    assert check_labels(S, None, Tagger(LEML(), absent="unknown")).n_known == S.nnz
    assert check_labels(S, None, in_pipeline(Tagger(LEML(absent="unknown")))).complete


class Numbers(BaseEstimator):
    """Scores a cell by its number, and a little by what it was fitted to; X holds the numbers of the rows."""

    absent = "negative"

    def __init__(self, n_labels, before_fit):
        self.n_labels = n_labels
        self.before_fit = before_fit

    def fit(self, X, Y):
        self.before_fit()
        self.shift_ = Y.positives.indices.sum() % 97 / 100
        return self

    def decision_function(self, X):
        return X[:, :1] * self.n_labels + np.arange(self.n_labels) + self.shift_


def stop_at(fit):
    """Return a function that is Ctrl-C at its so many-th call."""
    calls = iter(range(1, 100))

    def step():
        if next(calls) == fit:
            raise KeyboardInterrupt

    return step


def gone_on_with(work, folder, fit):
    """Return what work gives in one go, and stopped at a fit and gone on with in a process with other draws."""
    check_random_state(None).seed(1)
    whole = work(stop_at(None))
    check_random_state(None).seed(1)
    with pytest.raises(KeyboardInterrupt), checkpointing(folder, {}):
        work(stop_at(fit))
    check_random_state(None).seed(2)
    with checkpointing(folder, {}):
        return whole, work(stop_at(None))


@pytest.mark.parametrize("fit", [1, 3])
def test_an_audit_without_a_seed_goes_on_with_its_folds(fit, tmp_path):
    X, Y = np.arange(40.0)[:, None], np.random.default_rng(0).integers(0, 2, (40, 6))

    def work(step):
        return audit(X, Y, Numbers(6, step), n_folds=4, candidates=6)

    whole, resumed = gone_on_with(work, tmp_path / "kept", fit)
    judged = [*zip(*resumed.missing[:2]), *zip(*resumed.doubtful[:2])]
    assert sorted(judged) == [(i, j) for i in range(40) for j in range(6)]
    for mine, other in zip((*resumed.missing, *resumed.doubtful), (*whole.missing, *whole.doubtful)):
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("fit", [1, 3])
def test_a_completion_without_a_seed_goes_on_with_its_folds(fit, tmp_path):
    X, Y = np.arange(20.0)[:, None], Labels(np.random.default_rng(0).integers(0, 2, (20, 6)))

    def work(step):
        return score_held_out(X, Y, Numbers(6, step), 4, None)

    whole, resumed = gone_on_with(work, tmp_path / "kept", fit)
    assert sorted(np.floor(resumed.scores).tolist()) == list(range(120))
    for mine, other in zip(resumed, whole):
        np.testing.assert_array_equal(mine, other)

    filled = gone_on_with(lambda step: complete(X, Y, Numbers(6, step), n_folds=4), tmp_path / "kept", fit)
    assert filled[1].calibration_error == filled[0].calibration_error
    np.testing.assert_array_equal(filled[1].thresholds, filled[0].thresholds)


@pytest.mark.parametrize("run", [audit, complete])
def test_with_a_seed_nothing_is_left_of_an_error_in_the_first_fold(run, tmp_path):
    X, Y = np.arange(20.0)[:, None], np.random.default_rng(0).integers(0, 2, (20, 6))
    with pytest.raises(KeyboardInterrupt), checkpointing(tmp_path / "kept", {}):
        run(X, Y, Numbers(6, stop_at(1)), random_state=0)
    assert not (tmp_path / "kept").exists()


def test_a_generator_that_cannot_be_set_back_seeds_one_that_can(sparse_labels):
    X, rng = np.arange(30.0)[:, None], np.random.RandomState(np.random.PCG64(0))
    first, second = (score_held_out(X, sparse_labels, Numbers(8, stop_at(None)), 2, rng) for _ in range(2))
    assert sorted(np.floor(first.scores).tolist()) == list(range(240))
    assert (first.scores != second.scores).any(), "other folds, since the generator has moved on"


def test_bad_input():
    X, model = np.eye(4), LEML(1)
    with pytest.raises(ValueError, match="no positive label; an audit needs some"):
        audit(X, np.zeros((4, 2)), model)
    for X_few, Y in ((X[:1], np.ones((1, 2))), (X, np.where(np.eye(4)[:, :1] > 0, [[1.0, 0.0]], np.nan))):
        with pytest.raises(ValueError, match="known labels in one row only; an audit needs at least two such rows"):
            audit(X_few, Y, model)
    with pytest.raises(ValueError, match=r"n_folds=1 is out of range; pass .* at least 2"):
        audit(X, np.eye(4), model, n_folds=1)
    with pytest.raises(ValueError, match="candidates=0 is out of range"):
        audit(X, np.eye(4), model, candidates=0)
    with pytest.raises(ValueError, match=r"Y has shape \(4, 0\)"):
        audit(X, np.zeros((4, 0)), model)
    with pytest.raises(ValueError, match="n_folds=1 is out of range"):
        complete(X, np.eye(4), model, n_folds=1)


# --- verdicts ------------------------------------------------------------------------------------------------------


def overconfident(seed, n=4000):
    """Suggestions that say too much, and whether they are right."""
    rng = np.random.default_rng(seed)
    true = np.sort(rng.beta(0.5, 1.5, n))[::-1]
    stated = 1 / (1 + np.exp(-(1.0 + 1.5 * np.log(true / (1 - true)))))
    return Suggestions(np.arange(n), np.zeros(n, int), stated), true, rng.random(n) < true


def test_an_audit_learns_which_labels_are_suggested_rightly(planted_gaps):
    """Labels whose suggestions were right come earlier, reviewed cells leave, and the share agrees with verdicts."""
    data, _, found = planted_gaps
    truth = data.Y.toarray() > 0
    first = found.missing.first(600)
    right = truth[first.rows, first.labels] & (first.labels != 3)  # a reviewer who never wants label 3
    learned = learn(found, first.rows, first.labels, right)
    cells = set(zip(learned.missing.rows, learned.missing.labels))
    assert len(learned.missing) == len(found.missing) - 600
    assert cells.isdisjoint(zip(first.rows, first.labels))
    assert (np.diff(learned.missing.probabilities) <= 0).all()
    before, after = (np.log(p / (1 - p)) for p in (_of_cells(found, cells), _of_cells(learned, cells)))
    labels = np.array([label for _, label in sorted(cells)])
    change = np.array([(after - before)[labels == j].mean() for j in range(15)])
    assert change[3] < np.delete(change, 3).min() - 0.5
    low, high = learned.share_missing_interval
    assert found.share_missing_interval[0] <= low <= learned.share_missing <= high <= found.share_missing_interval[1]
    assert len(learned.places) == len(learned.missing)


def _of_cells(found, cells):
    listed = dict(zip(zip(found.missing.rows, found.missing.labels), found.missing.probabilities))
    return np.clip([listed[cell] for cell in sorted(cells)], 1e-6, 1 - 1e-6)


def test_an_audit_learns_nothing_from_no_verdict(planted_gaps):
    _, _, found = planted_gaps
    learned = learn(found, [], [], [])
    np.testing.assert_array_equal(learned.missing.rows, found.missing.rows)
    np.testing.assert_allclose(learned.missing.probabilities, found.missing.probabilities, atol=2e-6)
    elsewhere = learn(found, found.doubtful.rows[:1], found.doubtful.labels[:1], [True])
    assert len(elsewhere.missing) == len(found.missing)
    assert len(elsewhere.doubtful) == len(found.doubtful) - 1
    with pytest.raises(ValueError, match=r"error_rate=0.5 is out of range"):
        learn(found, [0], [0], [True], error_rate=0.5)


def test_verdicts_on_the_first_suggestions_recalibrate_the_others():
    suggestions, true, right = overconfident(0)
    stated, reviewed = suggestions.probabilities, np.arange(400)
    learned = recalibrate(stated, reviewed, right[:400])
    assert np.abs(learned - true)[400:1500].mean() < 0.6 * np.abs(stated - true)[400:1500].mean()
    assert (np.diff(learned) <= 0).all()
    np.testing.assert_array_equal(recalibrate(stated, np.empty(0, int), np.empty(0, bool)), stated)
    fewer, more = (recalibrate(stated, np.append(reviewed, 500), np.append(right[:400], yes)) for yes in (0, 1))
    assert fewer[600] < more[600]


@pytest.mark.parametrize("error_rate", [0.0, 0.05])
def test_a_random_probe_says_how_many_are_right(error_rate):
    held, widths = [], []
    for seed in range(60):
        suggestions, _, right = overconfident(seed)
        probe = draw_probe(suggestions, 200, seed)
        rng = np.random.default_rng(1000 + seed)
        verdicts = right[probe.positions] ^ (rng.random(len(probe.positions)) < error_rate)
        found = estimate_from_probe(suggestions.probabilities, probe, verdicts, error_rate)
        held.append(found.low <= right.sum() <= found.high)
        widths.append((found.high - found.low) / right.sum())
        assert abs(len(probe.positions) - 200) < 60
    assert np.mean(held) >= 0.9
    assert np.mean(widths) < 0.5
    with pytest.raises(ValueError, match=r"error_rate=0.5 is out of range"):
        estimate_from_probe(suggestions.probabilities, probe, verdicts, 0.5)


def test_verdicts_on_the_best_cells_tell_how_many_are_missing(planted_gaps):
    data, written, found = planted_gaps
    missing = data.Y.toarray() > written.toarray()
    held = []
    for seed in range(40):
        drawn = draw_best(found, 200, seed)
        right = missing[found.missing.rows[drawn], found.missing.labels[drawn]]
        right = right ^ (np.random.default_rng(seed).random(200) < 0.05)
        number, low, high = estimate_missing(found, drawn, right, 0.05)
        held.append(low <= missing.sum() <= high)
        assert number == pytest.approx(missing.sum(), rel=0.3)
    assert np.mean(held) > 0.9
    assert estimate_missing(found, np.empty(0, int), np.empty(0, bool)).low == 0


# --- complete ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def filled():
    data = make_low_rank(1500, 20, 12, rank=4, random_state=0)
    gaps = hide_cells(data.Y, 0.5, random_state=0)
    return data, gaps, complete(data.X, gaps, LEML(4, random_state=0, n_jobs=1), random_state=0)


def test_known_cells_stay(filled):
    data, gaps, found = filled
    known = gaps.known.toarray()
    np.testing.assert_array_equal(found.probabilities[known], data.Y.toarray()[known])
    hidden = found.probabilities[~known]
    assert ((hidden > 0) & (hidden < 1)).all()


def test_probabilities_of_hidden_cells_are_calibrated(filled):
    data, gaps, found = filled
    hidden = ~gaps.known.toarray()
    truth = data.Y.toarray()[hidden]
    assert calibration_error(found.probabilities[hidden], truth) < 0.02
    assert found.calibration_error < 0.02
    assert roc_auc_score(truth, found.probabilities[hidden]) > 0.97
    assert sum(share for _, _, share in found.reliability) == pytest.approx(1)


def f1(yes, predicted):
    return 2 * (yes & predicted).sum() / max(yes.sum() + predicted.sum(), 1)


def test_thresholds_are_the_best_of_the_grid():
    rng = np.random.default_rng(0)
    labels, probabilities = rng.integers(0, 3, 3000), rng.random(3000)
    yes = rng.random(3000) < probabilities ** (labels + 1)
    held = HeldOutCells(labels, probabilities, yes, np.zeros(3000, int))
    found = choose_thresholds(probabilities, held, 3, prior=0.0)
    grid = np.linspace(0.02, 0.98, 49)
    for j in range(3):
        mine = labels == j
        scores = [f1(yes[mine], probabilities[mine] > t) for t in grid]
        assert f1(yes[mine], probabilities[mine] > found[j]) == pytest.approx(max(scores))


def test_a_label_without_positives_has_the_threshold_of_all():
    rng = np.random.default_rng(0)
    probabilities = rng.random(2000)
    yes = rng.random(2000) < probabilities
    labels = np.zeros(2000, int)
    held = HeldOutCells(labels, probabilities, yes, labels)
    alone = choose_thresholds(probabilities, held, 1, prior=0.0)
    both = choose_thresholds(probabilities, held, 2)
    assert both[1] == pytest.approx(alone[0], abs=0.05)


# --- explain -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array])
def test_a_linear_model_is_explained_by_its_coefficients(wrap):
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(60, 6)), rng.integers(0, 2, (60, 3))
    model = BinaryRelevance(dtype="float64").fit(X, Y)
    x = np.where(rng.random((1, 6)) < 0.7, X[:1], 0)
    found = explain(model, wrap(x), 2, top=6)
    assert found.decision == pytest.approx(model.decision_function(x)[0, 2])
    expected = {f"feature {j}": x[0, j] * model.coef_[2, j] for j in np.flatnonzero(x[0])}
    assert {name: pytest.approx(weight) for name, weight in found.features} == expected
    weights = [abs(weight) for _, weight in found.features]
    assert weights == sorted(weights, reverse=True)


def test_any_model_is_explained_by_what_it_loses():
    data = make_low_rank(200, 8, 5, rank=2, random_state=0)
    model = LabelKNN(5).fit(data.X, data.Y)
    x = data.X[:1].copy()
    found = explain(model, x, 1, top=1)
    j = int(found.features[0].name.split()[1])
    without = x.copy()
    without[0, j] = 0
    change = model.decision_function(x)[0, 1] - model.decision_function(without)[0, 1]
    assert found.features[0].weight == pytest.approx(change, abs=1e-6)


def test_words_and_known_labels_argue():
    texts = ["salty bacon", "bacon", "sweet cake", "cake and bacon"] * 5
    Y = np.array([[1, 0, 1], [1, 0, 1], [0, 1, 0], [1, 1, 1]] * 5)
    model = Tagger(BinaryRelevance(0.1, tol=1e-4), label_names=["meat", "dessert", "fried"]).fit(texts, Y)
    found = explain(model, "bacon with cake", "meat", Y=Y, known=["fried", "dessert"])
    assert found.features[0].name == "bacon"
    assert found.features[0].weight > 0
    assert found.labels[0].name == "fried"
    assert dict(found.labels)["fried"] > dict(found.labels)["dessert"]
    assert explain(model, "nothing known", 0).features == []


def test_what_cannot_be_explained():
    model = LEML(1).fit(np.eye(3), np.eye(3, 2))
    with pytest.raises(ValueError, match="label=2 is out of range; pass a number from 0 to 1"):
        explain(model, np.eye(3)[:1], 2)
    with pytest.raises(ValueError, match="label='cake' is none of the 2 labels"):
        explain(model, np.eye(3)[:1], "cake")
    with pytest.raises(ValueError, match="row has 3 rows; pass one"):
        explain(model, np.eye(3), 0)


@pytest.mark.parametrize("n_labels", [51, 52, 53])
def test_no_cell_is_suggested_twice(n_labels):
    """Cells drawn from the rest may come twice, and stand for one each where as many are left as are drawn."""
    rng = np.random.default_rng(0)
    Y = np.zeros((150, n_labels))
    np.put_along_axis(Y, rng.random((150, n_labels)).argsort(axis=1)[:, :2], 1, axis=1)
    found = audit(rng.standard_normal((150, 5)), Y, BinaryRelevance(loss="squared"), random_state=0).missing
    assert len(set(zip(found.rows, found.labels))) == len(found)
    assert np.bincount(found.rows).max() == 30


def test_equal_scores_are_no_error():
    curve = Calibration(2).fit(np.full(400, -0.5), np.arange(400) % 2, np.arange(400) % 4 == 0)
    assert curve.predict(np.array([-0.5]), np.array([0]))[0] == pytest.approx(0.25, abs=0.25)


# --- classifiers of scikit-learn ------------------------------------------------------------------------------------

CLASSIFIERS = [
    OneVsRestClassifier(LogisticRegression()),  # decision values
    MultiOutputClassifier(LogisticRegression()),  # probabilities, a list with those of each label
    make_pipeline(StandardScaler(), KNeighborsClassifier(15)),
]


@pytest.mark.parametrize("estimator", CLASSIFIERS, ids=["one-vs-rest", "several outputs", "pipeline"])
def test_classifiers_of_scikit_learn_audit_labels_without_unknown_cells(estimator):
    data = make_low_rank(400, 20, 10, rank=4, random_state=0)
    written = hide_positives(data.Y, 0.7, random_state=0)
    found = audit(data.X, written, estimator, n_folds=3, random_state=0)
    absent = written.toarray() == 0
    hits = data.Y.toarray()[found.missing.rows[:50], found.missing.labels[:50]]
    assert absent[found.missing.rows, found.missing.labels].all()
    assert hits.mean() > 2 * data.Y.toarray()[absent].mean()


def test_a_label_that_all_rows_of_a_fold_lack():
    model = MultiOutputClassifier(DummyClassifier()).fit(np.zeros((4, 1)), np.array([[0, 1], [0, 1], [0, 0], [0, 1]]))
    np.testing.assert_allclose(compute_scores(model, np.zeros((2, 1))), [[0.0, 0.75], [0.0, 0.75]])


def test_classifiers_of_scikit_learn_are_told_to_take_no_gaps():
    data = make_low_rank(60, 5, 4, rank=2, random_state=0)
    gaps = hide_cells(data.Y, 0.5, random_state=0)
    for work in (audit, complete):
        with pytest.raises(ValueError, match="Y has unknown cells, and OneVsRestClassifier does not take them; pass"):
            work(data.X, gaps, CLASSIFIERS[0])
    with pytest.raises(ValueError, match="KMeans has neither decision_function nor predict_proba; pass"):
        compute_scores(KMeans(), data.X)


# --- folds that share work -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("gaps", [False, True], ids=["complete", "gaps"])
@pytest.mark.parametrize(("candidates", "n_sampled"), [(3, 4), (30, 2), (60, 1), (1, 0)])
def test_cells_from_blocks_of_labels_are_those_from_whole_rows(candidates, n_sampled, gaps, monkeypatch):
    """Also if rows have fewer absent labels than candidates, and none to sample."""
    monkeypatch.setattr(scored_cells, "MAX_CELLS", 200)
    rng = np.random.default_rng(0)
    written, known = rng.random((25, 40)) < rng.random((25, 1)), rng.random((25, 40)) < 0.7
    labels, rows = Labels(written.astype(int), known if gaps else None), rng.permutation(90)[:25]
    scores = rng.standard_normal((25, 40)).astype(np.float32)
    expected = choose_cells(scores, rows, labels, candidates, n_sampled, np.random.RandomState(1))
    blocks = np.split(rng.permutation(40), [5, 6, 30])
    by_block = LabelScores(
        lambda: ((block, scores[:, block]) for block in blocks), labels.shape, np.float32, get_backend()
    )
    np.testing.assert_array_equal(by_block.dense(), scores)
    cells = by_block.choose_cells(rows, labels, candidates, n_sampled, np.random.RandomState(1))
    for mine, other in zip(cells, expected, strict=True):
        assert mine.dtype == other.dtype
        np.testing.assert_array_equal(mine, other)


def test_cells_from_blocks_of_labels_need_a_part_of_the_memory_of_all_scores():
    n, n_labels = 2000, 4000
    labels = Labels(sp.random_array((n, n_labels), density=1e-3, rng=np.random.default_rng(0), format="csr") > 0)

    def make():
        for block in np.split(np.arange(n_labels), n_labels // 100):
            yield block, np.random.default_rng(block[0]).random((n, len(block)), np.float32)

    tracemalloc.start()
    scores = LabelScores(make, labels.shape, np.float32, get_backend())
    cells = scores.choose_cells(np.arange(n), labels, 10, 5, np.random.RandomState(0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (~cells.positive & ~cells.sampled).sum() == 10 * n
    assert peak < 0.6 * 4 * n * n_labels


def test_an_audit_of_given_probabilities_needs_the_memory_of_its_cells():
    """At most 24 numbers for each suggested cell beside the suggestions; there are nearly as many other cells."""
    rng, n, n_labels = np.random.default_rng(0), 20_000, 60
    P = rng.random((n, n_labels), np.float32)
    Y = sp.csr_array(rng.random((n, n_labels), np.float32) < P**6)
    audit(Y[:100], probabilities=P[:100], random_state=0)  # imports
    tracemalloc.start()
    result = audit(Y, probabilities=P, candidates=40, random_state=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    suggestions = sum(part.nbytes for part in (*result.missing, *result.doubtful, result.places))
    assert peak < suggestions + 8 * 24 * len(result.missing)


@pytest.mark.parametrize("gaps", [False, True], ids=["complete", "gaps"])
@pytest.mark.parametrize(
    "parameters",
    [
        {"loss": "squared", "frequency_power": 0.3},
        {"loss": "squared", "threshold": 0.05},
        {"loss": "squared_hinge"},
        {"loss": "logistic", "fit_intercept": False},
        {"propensity": "counts"},
    ],
    ids=str,
)
def test_folds_in_blocks_of_labels_score_as_models_of_their_own_rows(parameters, gaps, monkeypatch):
    monkeypatch.setattr(embeddings, "MAX_FACTOR_ORDER", 0)
    monkeypatch.setattr(label_models, "MAX_LABELS_PER_BLOCK", 8)
    rng = np.random.default_rng(0)
    X, Y = sp.csr_array(rng.standard_normal((60, 12))), (rng.random((60, 30)) < 0.4).astype(int)
    Y[:, 4], Y[1:, 5] = 1, 0  # one class in all rows, and in all but one
    labels = Labels(Y, rng.random(Y.shape) < 0.8) if gaps else Labels(Y)
    train, held_out = np.arange(0, 60, 2), np.arange(1, 60, 2)
    model = BinaryRelevance(0.5, dtype="float64", tol=1e-8, **parameters)
    scores = prepare_folds(model, X, labels)(train, held_out)
    assert isinstance(scores, LabelScores)
    alone = compute_scores(clone(model).fit(X[train], labels[train]), X[held_out])
    np.testing.assert_allclose(scores.dense(), alone, atol=1e-9)


FOLD_MODELS = {
    "ridge": BinaryRelevance(0.5, loss="squared", dtype="float64"),
    "ridge without a constant": BinaryRelevance(0.5, loss="squared", fit_intercept=False, dtype="float64"),
}


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("shape", [(40, 30, 4), (40, 5, 4), (20, 30, 3), (20, 30, 20)], ids=str)
@pytest.mark.parametrize("model", FOLD_MODELS.values(), ids=FOLD_MODELS)
def test_folds_that_share_work_score_as_models_of_their_own_rows(model, shape, form):
    n, d, n_folds = shape
    rng = np.random.default_rng(0)
    X, Y = form(rng.standard_normal((n, d))), (rng.random((n, 6)) < 0.4).astype(int)
    Y[:, 4], Y[1:, 5] = 1, 0  # one class in all rows, and in all but one
    labels, fold = Labels(Y), np.arange(n) % n_folds
    score = prepare_folds(model, X, labels)
    for number in range(n_folds):
        train, held_out = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        alone = compute_scores(clone(model).fit(X[train], labels[train]), X[held_out])
        np.testing.assert_allclose(score(train, held_out).dense(), alone, atol=1e-8)


def test_the_folds_of_a_tagger_share_their_words():
    texts = [f"{a} {b} cake" for a in ("apple", "lemon", "plum") for b in ("sweet", "sour", "dark", "thin")]
    labels = Labels(np.array([["apple" in text, "sour" in text] for text in texts]).astype(int))
    train, held_out = np.arange(2, 12), np.arange(2)
    words = Tagger(min_count=1).fit(texts, labels)
    X = words.transform(texts)
    for inner, expected in (
        (None, BinaryRelevance(loss="squared")),
        (BinaryRelevance(n_jobs=1), BinaryRelevance()),
        (BinaryRelevance(2.0), BinaryRelevance(2.0)),
        (LabelKNN(3), LabelKNN(3)),
    ):
        score = prepare_folds(Tagger(inner, min_count=1), texts, labels)
        alone = clone(expected).fit(X[train], labels[train]).decision_function(X[held_out])
        np.testing.assert_allclose(score(train, held_out).dense(), alone, atol=1e-5)
