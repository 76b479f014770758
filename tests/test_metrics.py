"""Metrics against arithmetic on paper, plain-Python twins, and scikit-learn where it reckons the same."""

from __future__ import annotations

from math import isnan, log2

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn.metrics

import labelgap.metrics as metrics_room
from labelgap.metrics import (
    F1,
    Batch,
    CorrectedF1,
    CorrectedPrecisionAtK,
    CorrectedRecallAtK,
    HammingLoss,
    InstanceAUC,
    NDCGAtK,
    PrecisionAtK,
    ProbeCells,
    PSNDCGAtK,
    PSPrecisionAtK,
    RecallAtK,
    corrected_metrics,
    draw_cells,
    evaluate,
    f1_score,
    hamming_loss,
    instance_auc,
    ndcg_at_k,
    precision_at_k,
    probed_metrics,
    psndcg_at_k,
    psp_at_k,
    recall_at_k,
    standard_metrics,
)
from labelgap.metrics import batch as batch_module
from labelgap.metrics.corrected import deconvolve
from labelgap.metrics.probed import foresee_cells, measure_variance
from labelgap.observations import Labels, label_propensities

NAN = np.nan
L = 12
PROPENSITIES = np.linspace(0.15, 1.0, L)
KS = (1, 2, 3, 5, 12, 20)


def all_metrics():
    """Every metric that there is, in every setting that changes its path."""
    for k in KS:
        for empty in ("skip", "zero"):
            yield PrecisionAtK(k, empty)
            yield RecallAtK(k, empty)
            yield NDCGAtK(k, empty)
        yield PSPrecisionAtK(k, PROPENSITIES)
        yield PSNDCGAtK(k, PROPENSITIES)
    for threshold in (0.0, 1.0, -0.5):
        yield HammingLoss(threshold)
        yield F1("micro", threshold)
        yield F1("macro", threshold)
    yield InstanceAUC()


def ranking_metrics():
    return [metric for metric in all_metrics() if metric.depth]


def random_batch(seed, n=60, missing=0.3, density=0.25, tied=True):
    """Labels with gaps, empty rows, full rows, wholly unknown rows and labels; integer scores tie often."""
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, L)) < density).astype(float)
    Y[0], Y[1] = 0, 1
    if missing:
        Y[rng.random((n, L)) < missing] = NAN
        Y[2], Y[:, 3] = NAN, NAN
    scores = rng.integers(-2, 3, (n, L)).astype(float) if tied else rng.standard_normal((n, L))
    return Y, scores


# --- plain-Python twins: one row at a time, straight from the definitions -----------------------------------------


def known_cells(y, s):
    return [(label, y[label] == 1, s[label]) for label in range(len(y)) if not isnan(y[label])]


def ranked(y, s):
    """Known cells of a row, best first, lower label first among equals."""
    return sorted(known_cells(y, s), key=lambda cell: (-cell[2], cell[0]))


def twin_row_at_k(metric, y, s):
    cells = ranked(y, s)
    n_positive = sum(positive for _, positive, _ in cells)
    if n_positive == 0:
        return None
    hits = [rank for rank, (_, positive, _) in enumerate(cells, start=1) if positive and rank <= metric.k]
    if isinstance(metric, PrecisionAtK):
        return len(hits) / metric.k
    if isinstance(metric, RecallAtK):
        return len(hits) / n_positive
    return sum(1 / log2(1 + r) for r in hits) / sum(1 / log2(1 + r) for r in range(1, min(metric.k, n_positive) + 1))


def twin_at_k(metric, Y, S):
    rows = [twin_row_at_k(metric, y, s) for y, s in zip(Y, S)]
    if metric.empty == "zero":
        return sum(row or 0.0 for row in rows) / len(rows)
    counted = [row for row in rows if row is not None]
    return sum(counted) / len(counted)


def twin_propensity(metric, Y, S):
    gained = best = 0.0
    for y, s in zip(Y, S):
        cells = ranked(y, s)
        weights = sorted((1 / metric.propensities[label] for label, positive, _ in cells if positive), reverse=True)
        if not weights:
            continue
        if isinstance(metric, PSPrecisionAtK):
            worth, scale = (lambda rank: 1.0), 1.0
        else:
            worth = lambda rank: 1 / log2(1 + rank)  # noqa: E731
            scale = sum(worth(rank) for rank in range(1, min(metric.k, len(weights)) + 1))
        for rank, (label, positive, _) in enumerate(cells[: metric.k], start=1):
            gained += positive * worth(rank) / metric.propensities[label] / scale
        best += sum(w * worth(rank) for rank, w in enumerate(weights[: metric.k], start=1)) / scale
    return gained / best


def twin_hamming(metric, Y, S):
    cells = [cell for y, s in zip(Y, S) for cell in known_cells(y, s)]
    return sum((score > metric.threshold) != positive for _, positive, score in cells) / len(cells)


def twin_f1(metric, Y, S):
    cells = [cell for y, s in zip(Y, S) for cell in known_cells(y, s)]
    groups = [cells] if metric.average == "micro" else [[c for c in cells if c[0] == j] for j in range(Y.shape[1])]
    values = []
    for group in groups:
        if not group:
            continue
        both = sum(positive and score > metric.threshold for _, positive, score in group)
        either = sum(positive for _, positive, _ in group) + sum(score > metric.threshold for _, _, score in group)
        values.append(2 * both / either if either else 0.0)
    return sum(values) / len(values)


def twin_auc(metric, Y, S):
    rows = []
    for y, s in zip(Y, S):
        cells = known_cells(y, s)
        pairs = [(p[2], q[2]) for p in cells if p[1] for q in cells if not q[1]]
        if pairs:
            rows.append(sum((p > q) + 0.5 * (p == q) for p, q in pairs) / len(pairs))
    return sum(rows) / len(rows)


def twin(metric, Y, S):
    if isinstance(metric, PSPrecisionAtK | PSNDCGAtK):
        return twin_propensity(metric, Y, S)
    if isinstance(metric, HammingLoss):
        return twin_hamming(metric, Y, S)
    if isinstance(metric, F1):
        return twin_f1(metric, Y, S)
    return twin_auc(metric, Y, S) if isinstance(metric, InstanceAUC) else twin_at_k(metric, Y, S)


@pytest.mark.parametrize("missing", [0.0, 0.3, 0.8])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("metric", list(all_metrics()), ids=repr)
def test_every_metric_equals_its_plain_python_twin(metric, tied, missing):
    for seed in range(3):
        Y, S = random_batch(seed, missing=missing, tied=tied)
        assert metric.fresh().update(Y, S).compute() == pytest.approx(twin(metric, Y, S), rel=1e-12)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_many_small_blocks_equal_one_block(monkeypatch, missing):
    Y, S = random_batch(7, missing=missing)
    whole = [metric.fresh().update(Y, S).compute() for metric in all_metrics()]
    monkeypatch.setattr(batch_module, "MAX_CELLS_PER_RANKING_BLOCK", 2 * L + 1)
    parts = [metric.fresh().update(Y, S).compute() for metric in all_metrics()]
    assert parts == pytest.approx(whole, rel=1e-12)


# --- worked by hand -----------------------------------------------------------------------------------------------

# Row 0 ranks the labels 2, 0, 3, 1 and row 1 ranks 1, 3, 0, 2.
HAND_Y = np.array([[1, 0, 0, 1], [0, 1, 0, 0]])
HAND_S = np.array([[0.5, -0.9, 0.8, -0.1], [-0.4, 0.9, -0.5, 0.3]])


@pytest.mark.parametrize(
    ("k", "expected"), [(1, (0 / 1 + 1 / 1) / 2), (2, (1 / 2 + 1 / 2) / 2), (3, (2 / 3 + 1 / 3) / 2)]
)
def test_precision_by_hand(k, expected):
    assert precision_at_k(HAND_Y, HAND_S, k) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("k", "expected"), [(1, (0 / 2 + 1 / 1) / 2), (2, (1 / 2 + 1 / 1) / 2), (3, (2 / 2 + 1 / 1) / 2)]
)
def test_recall_by_hand(k, expected):
    assert recall_at_k(HAND_Y, HAND_S, k) == pytest.approx(expected)


def test_ndcg_by_hand():
    # Discounts: rank 1: 1, rank 2: 1/log2(3), rank 3: 1/log2(4) = 1/2. Row 1 is perfect at every k.
    second = 1 / log2(3)
    assert ndcg_at_k(HAND_Y, HAND_S, 1) == pytest.approx((0 + 1) / 2)
    assert ndcg_at_k(HAND_Y, HAND_S, 2) == pytest.approx((second / (1 + second) + 1) / 2)
    assert ndcg_at_k(HAND_Y, HAND_S, 3) == pytest.approx(((second + 1 / 2) / (1 + second) + 1) / 2)


def test_ndcg_discounts_by_rank_and_not_by_label_index():
    assert ndcg_at_k([[0, 0, 1]], [[0.1, 0.2, 0.9]], 3) == 1.0
    assert ndcg_at_k([[1, 0, 0]], [[0.1, 0.2, 0.9]], 3) == pytest.approx(1 / log2(4))


def test_psp_by_hand():
    # Weights 1/p are 2, 4, 1, 10. Row 0 gains 2 (label 0, rank 2) and 10 (label 3, rank 3); row 1 gains 4 (rank 1).
    # The best for row 0 is label 3, then 0.
    p = [0.5, 0.25, 1.0, 0.1]
    assert psp_at_k(HAND_Y, HAND_S, p, 1) == pytest.approx((0 + 4) / (10 + 4))
    assert psp_at_k(HAND_Y, HAND_S, p, 2) == pytest.approx((2 + 4) / (12 + 4))
    assert psp_at_k(HAND_Y, HAND_S, p, 3) == pytest.approx((12 + 4) / (12 + 4))


def test_psndcg_by_hand():
    # As above; each row is divided by the DCG of its positives in first place: 1 + 1/log2(3) for row 0, 1 for row 1.
    p, second = [0.5, 0.25, 1.0, 0.1], 1 / log2(3)
    assert psndcg_at_k(HAND_Y, HAND_S, p, 1) == pytest.approx((0 + 4) / (10 + 4))
    gained, best = 2 * second / (1 + second) + 4, (10 + 2 * second) / (1 + second) + 4
    assert psndcg_at_k(HAND_Y, HAND_S, p, 2) == pytest.approx(gained / best)
    gained = (2 * second + 10 / 2) / (1 + second) + 4
    assert psndcg_at_k(HAND_Y, HAND_S, p, 3) == pytest.approx(gained / best)


def test_hamming_by_hand():
    # Above 0: labels 0 and 2 in row 0 (wrong at 2 and 3), labels 1 and 3 in row 1 (wrong at 3).
    assert hamming_loss(HAND_Y, HAND_S) == 3 / 8
    # Above 0.4: 0 and 2 again, and only 1 in row 1.
    assert hamming_loss(HAND_Y, HAND_S, threshold=0.4) == 2 / 8
    # A score at the threshold is not predicted.
    assert hamming_loss([[0, 1]], [[0.0, 0.5]]) == 0.0


def test_auc_by_hand():
    # Row 0: positives 0.5 and −0.1, negatives −0.9 and 0.8: 1 + 1 of 4 pairs. Row 1: 3 of 3.
    assert instance_auc(HAND_Y, HAND_S) == (2 / 4 + 3 / 3) / 2
    # A tie counts half: 0.5 against (0.5, 0.5, 0.1) is (½ + ½ + 1) / 3.
    assert instance_auc([[1, 0, 0, 0]], [[0.5, 0.5, 0.5, 0.1]]) == pytest.approx(2 / 3)


def test_f1_by_hand():
    # TP, predicted, positive by label: (1, 1, 1), (1, 1, 1), (0, 1, 0), (0, 1, 1).
    assert f1_score(HAND_Y, HAND_S, "micro") == pytest.approx(2 * 2 / (4 + 3))
    assert f1_score(HAND_Y, HAND_S, "macro") == pytest.approx((1 + 1 + 0 + 0) / 4)


def test_macro_f1_counts_an_idle_label_as_0_and_leaves_out_an_unknown_one():
    # Label 0 is perfect, label 1 has neither positives nor predictions, label 2 has no known cell.
    assert f1_score([[1, 0, NAN], [1, 0, NAN]], [[1, -1, 1], [1, -1, 1]], "macro") == (1 + 0) / 2


def test_unknown_cells_are_skipped_and_give_up_their_place():
    Y, S = [[NAN, 0, 1, NAN]], [[0.9, 0.5, 0.7, 0.8]]
    assert precision_at_k(Y, S, 1) == 1.0
    assert ndcg_at_k(Y, S, 2) == 1.0
    assert hamming_loss(Y, S) == 1 / 2
    assert instance_auc(Y, S) == 1.0


def test_fewer_known_cells_than_k_are_still_divided_by_k():
    assert precision_at_k([[1, NAN, NAN, NAN]], [[0.1, 0.2, 0.3, 0.4]], 4) == 1 / 4
    assert precision_at_k([[1, 1]], [[0.1, 0.2]], 5) == 2 / 5
    assert ndcg_at_k([[1, 1]], [[0.1, 0.2]], 5) == 1.0


def test_ties_go_to_the_lower_label():
    level = np.zeros((1, 6))
    for k in range(1, 6):
        assert Batch(np.ones((1, 6)), level).ranking(k).indices.tolist() == [list(range(k))]
    assert precision_at_k([[0, 0, 1, 1]], [[5, 1, 1, 1]], 2) == 0.0
    assert precision_at_k([[0, 1, 0, 0]], [[5, 1, 1, 1]], 2) == 0.5
    assert Batch([[NAN, 1, NAN, 1, 1]], np.zeros((1, 5))).ranking(2).indices.tolist() == [[1, 3]]


def test_infinite_scores_rank_ahead_of_nothing_at_all():
    Y = [[NAN, 1, NAN, 0], [1, 0, 1, 0]]
    S = [[0.0, -np.inf, 0.0, -np.inf], [np.inf, np.inf, -np.inf, 0.0]]
    assert Batch(Y, S).ranking(3).indices.tolist() == [[1, 3, -1], [0, 1, 3]]
    # Row 0: a tie, ½. Row 1: ∞ against ∞ ½ and against 0 1, −∞ against both 0.
    assert instance_auc(Y, S) == (0.5 + 1.5 / 4) / 2
    # Row 0 knows two cells only, both ∞: a tie again, however long row 1 is.
    assert instance_auc([[1, 0, NAN, NAN], [1, 0, 0, 0]], [[np.inf] * 4, [1, 0, 0, 0]]) == (0.5 + 1) / 2


# --- rows that do not count ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [precision_at_k, recall_at_k, ndcg_at_k])
def test_rows_without_known_positives_under_both_conventions(function):
    Y, S = [[1, 0], [0, 0], [NAN, NAN], [0, NAN]], [[0.9, 0.1]] * 4
    assert function(Y, S) == 1.0
    assert function(Y, S, empty="zero") == 1 / 4


def test_labels_without_any_positive_have_no_hits():
    batch = Batch(np.zeros((2, 3)), np.ones((2, 3)))
    assert not batch.ranking(3).hits.any()
    assert precision_at_k(np.zeros((2, 3)), np.ones((2, 3)), empty="zero") == 0.0


def test_propensity_scored_metrics_do_not_see_rows_without_positives():
    p = [0.5, 0.25]
    for function in (psp_at_k, psndcg_at_k):
        alone = function([[1, 1]], [[0.9, 0.1]], p)
        assert function([[1, 1], [0, 0], [NAN, NAN]], [[0.9, 0.1]] * 3, p) == alone == 2 / 4


def test_auc_leaves_out_rows_with_one_side_only():
    Y = [[1, 0], [1, 1], [0, 0], [1, NAN], [NAN, NAN]]
    assert instance_auc(Y, [[0.1, 0.9]] * 5) == 0.0


@pytest.mark.parametrize(
    "metric", [PrecisionAtK(1), NDCGAtK(2), RecallAtK(1), PSPrecisionAtK(1, [0.5, 0.5]), InstanceAUC()], ids=repr
)
def test_nan_when_no_row_counts(metric):
    assert isnan(metric.update([[0, 0], [NAN, NAN]], [[0.9, 0.1]] * 2).compute())


@pytest.mark.parametrize("metric", [HammingLoss(), F1("micro"), F1("macro")], ids=repr)
def test_nan_when_no_cell_is_known(metric):
    assert isnan(metric.update([[NAN, NAN]], [[0.9, 0.1]]).compute())


@pytest.mark.parametrize("metric", list(all_metrics()), ids=repr)
def test_a_batch_without_rows_adds_nothing(metric):
    Y, S = random_batch(0)
    assert metric.fresh().update(Y, S).update(Y[:0], S[:0]).compute() == metric.fresh().update(Y, S).compute()


# --- scikit-learn -------------------------------------------------------------------------------------------------


def test_ndcg_equals_scikit_learn_without_ties():
    Y, S = random_batch(1, missing=0, tied=False)
    rows = Y.sum(axis=1) > 0
    for k in (1, 3, 5, 12):
        expected = sklearn.metrics.ndcg_score(Y[rows], S[rows], k=k)
        assert ndcg_at_k(Y, S, k) == pytest.approx(expected)


def test_auc_equals_scikit_learn_on_the_known_cells_of_each_row():
    Y, S = random_batch(2)
    rows = []
    for y, s in zip(Y, S):
        known = ~np.isnan(y)
        if len(set(y[known])) == 2:
            rows.append(sklearn.metrics.roc_auc_score(y[known], s[known]))
    assert len(rows) > 30
    assert instance_auc(Y, S) == pytest.approx(np.mean(rows))


def test_hamming_and_f1_equal_scikit_learn():
    Y, S = random_batch(3, missing=0)
    Y[:, 5], S[:, 5] = 0, -1
    truth, predicted = Y.astype(int), (S > 0).astype(int)
    assert hamming_loss(Y, S) == pytest.approx(sklearn.metrics.hamming_loss(truth, predicted))
    for average in ("micro", "macro"):
        expected = sklearn.metrics.f1_score(truth, predicted, average=average, zero_division=0)
        assert f1_score(Y, S, average) == pytest.approx(expected)


# --- batches, merging, sharing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", list(all_metrics()), ids=repr)
def test_parts_and_merges_equal_all_at_once(metric):
    Y, S = random_batch(4)
    whole = metric.fresh().update(Y, S).compute()
    cuts = [slice(0, 3), slice(3, 4), slice(4, 41), slice(41, None)]
    streamed, merged = metric.fresh(), metric.fresh()
    for cut in cuts:
        assert streamed.update(Y[cut], S[cut]) is streamed
        part = metric.fresh().update(Y[cut], S[cut])
        alone = part.compute()
        assert merged.merge(part) is merged
        assert part.compute() == pytest.approx(alone, nan_ok=True)
    assert streamed.compute() == pytest.approx(whole, rel=1e-12)
    assert merged.compute() == pytest.approx(whole, rel=1e-12)
    assert merged.merge(metric.fresh()).compute() == pytest.approx(whole, rel=1e-12)


def test_compute_may_be_called_between_updates():
    metric = PrecisionAtK(1).update([[1, 0]], [[0.9, 0.1]])
    assert metric.compute() == 1.0
    assert metric.update([[0, 1]], [[0.9, 0.1]]).compute() == 0.5


def test_evaluate_equals_each_metric_alone_and_changes_none():
    Y, S = random_batch(5)
    named = {repr(metric): metric for metric in all_metrics()}
    batches = [(Y[:25], S[:25]), (Y[25:], S[25:])]
    together = evaluate(named, iter(batches))
    assert together == evaluate(named, batches)
    for name, metric in named.items():
        assert together[name] == pytest.approx(metric.fresh().update(Y, S).compute(), rel=1e-12)
        assert metric._total is None


def test_evaluate_ranks_each_batch_once(monkeypatch):
    depths = []
    best = batch_module.RaggedRows.top
    monkeypatch.setattr(batch_module.RaggedRows, "top", lambda rows, k: depths.append(k) or best(rows, k))
    Y, S = random_batch(6)
    evaluate(standard_metrics((1, 3, 5), PROPENSITIES), [(Y, S), (Y, S)])
    assert depths == [5, 5]


def test_a_batch_ranks_again_only_when_asked_for_more():
    Y, S = random_batch(6)
    batch = Batch(Y, S)
    three = batch.ranking(3)
    assert np.shares_memory(batch.ranking(2).indices, three.indices)
    np.testing.assert_array_equal(batch.ranking(2).indices, three.indices[:, :2])
    np.testing.assert_array_equal(batch.ranking(5).indices[:, :3], three.indices)


def test_standard_metrics_names_and_settings():
    assert list(standard_metrics((1, 3))) == ["P@1", "P@3", "nDCG@1", "nDCG@3"]
    named = standard_metrics(iter([1, 5]), PROPENSITIES, empty="zero")
    assert list(named) == ["P@1", "P@5", "nDCG@1", "nDCG@5", "PSP@1", "PSP@5", "PSnDCG@1", "PSnDCG@5"]
    assert named["P@5"].k == 5
    assert named["nDCG@1"].empty == "zero"
    assert isinstance(named["PSP@5"], PSPrecisionAtK)
    assert isinstance(named["PSnDCG@5"], PSNDCGAtK)


def test_a_perfect_ranking_scores_1_with_estimated_propensities():
    Y, _ = random_batch(8, missing=0)
    p = label_propensities(Y)
    perfect = Y / p
    for k in (1, 3, 5):
        assert psp_at_k(Y, perfect, p, k) == pytest.approx(1)
        assert psndcg_at_k(Y, perfect, p, k) == pytest.approx(1)
        assert psp_at_k(Y, -perfect, p, k) < 0.6


def test_every_exported_name_exists():
    assert sorted(metrics_room.__all__) == sorted(set(metrics_room.__all__))
    assert all(hasattr(metrics_room, name) for name in metrics_room.__all__)


# --- forms of the input -------------------------------------------------------------------------------------------


def topk_pair(S, k):
    order = np.argsort(-S, axis=1, kind="stable")[:, :k]
    return order.astype(np.int32), np.take_along_axis(S, order, axis=1)


@pytest.mark.parametrize("metric", ranking_metrics(), ids=repr)
def test_pairs_equal_dense_scores(metric):
    Y, S = random_batch(9, missing=0)
    pair = topk_pair(S, metric.k)
    assert metric.fresh().update(Y, pair).compute() == metric.fresh().update(Y, S).compute()
    assert metric.fresh().update(sp.csr_array(Y), pair).compute() == metric.fresh().update(Y, S).compute()


def test_a_padded_pair_has_misses_in_the_open_places():
    # Row 0 predicts labels 2 and 0, row 1 nothing; the padding must not be read as the last label.
    Y = [[1, 0, 0], [0, 0, 1]]
    pair = (np.array([[2, 0, -1], [-1, -1, -1]]), np.array([[0.9, 0.1, NAN], [NAN, NAN, NAN]]))
    assert precision_at_k(Y, pair, 3) == (1 / 3 + 0) / 2
    assert recall_at_k(Y, pair, 2) == (1 / 1 + 0) / 2
    assert ndcg_at_k(Y, pair, 3) == pytest.approx((1 / log2(3) + 0) / 2)
    assert psp_at_k(Y, pair, [0.5, 1.0, 0.25], 2) == pytest.approx((2 + 0) / (2 + 4))


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("metric", list(all_metrics()), ids=repr)
def test_sparse_scores_of_the_known_cells_equal_dense_ones(metric, missing):
    Y, S = random_batch(10, missing=missing)
    rows, columns = np.nonzero(~np.isnan(Y))
    shuffled = np.random.default_rng(0).permutation(len(rows))
    rows, columns = rows[shuffled], columns[shuffled]
    scores = sp.coo_array((S[rows, columns], (rows, columns)), shape=Y.shape)
    assert (scores.data == 0).any()
    expected = metric.fresh().update(Y, S).compute()
    assert metric.fresh().update(Y, scores).compute() == expected
    assert metric.fresh().update(Y, sp.csr_matrix(scores)).compute() == expected


def test_unsorted_sparse_scores_are_read_right_and_left_alone():
    scores = sp.csr_array((np.array([0.9, 0.1]), np.array([2, 0]), np.array([0, 2])), shape=(1, 3))
    assert precision_at_k([[0, NAN, 1]], scores) == 1.0
    assert scores.indices.tolist() == [2, 0]


@pytest.mark.parametrize("metric", list(all_metrics()), ids=repr)
def test_labels_in_any_container_mean_the_same(metric):
    Y, S = random_batch(11)
    expected = metric.fresh().update(Y, S).compute()
    junk = np.where(np.isnan(Y), 1, Y)
    assert metric.fresh().update(Labels(junk, observed=~np.isnan(Y)), S).compute() == expected
    assert metric.fresh().update(np.where(Y == 0, -1, Y), S).compute() == expected
    hidden = np.where(np.isnan(Y), NAN, S)
    assert metric.fresh().update(Y, hidden).compute() == expected


def test_labels_whose_known_cells_are_all_cells_take_pairs():
    stored = sp.csr_array((np.array([1, 0]), np.array([0, 1]), np.array([0, 2])), shape=(1, 2))
    labels = Labels(stored, absent="unknown")
    assert precision_at_k(labels, ([[1]], [[0.5]])) == 0.0
    assert precision_at_k(labels, [[0.9, 0.5]]) == 1.0


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8, np.uint8, bool])
def test_scores_of_any_number_type(dtype):
    S = np.array([[0, 1, 0], [1, 0, 1]]).astype(dtype)
    assert Batch([[1, 0, 1], [0, 1, 0]], S).ranking(2).indices.tolist() == [[1, 0], [0, 2]]


def test_scores_in_column_order_and_lists():
    Y, S = random_batch(12)
    assert ndcg_at_k(Y, np.asfortranarray(S), 3) == ndcg_at_k(Y, S, 3) == ndcg_at_k(Y.tolist(), S.tolist(), 3)


# --- errors -------------------------------------------------------------------------------------------------------

Y2 = [[1, 0, 0], [0, 1, 0]]
S2 = [[0.3, 0.2, 0.1], [0.1, 0.2, 0.3]]


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([[0.1, 0.2, 0.3]], r"scores has shape \(1, 3\) and Y_true has \(2, 3\)"),
        ([0.1, 0.2], r"scores has shape \(2,\)"),
        (sp.csr_array((2, 4)), r"scores has shape \(2, 4\)"),
        ([[0.1, NAN, 0.3], [0.1, 0.2, 0.3]], "scores is NaN at 1 known cells"),
        ([["a", "b", "c"], ["a", "b", "c"]], "scores holds <U1 values"),
        (sp.csr_array(np.eye(2, 3)), "stores 2 cells that are not the 6 known cells"),
        (([[0], [1]], [[0.1], [0.2]], None), "tuple of 3 parts"),
        (([0, 1], [0.1, 0.2]), r"indices of shape \(2,\)"),
        (([[0], [1]], [[0.1, 0.2], [0.1, 0.2]]), r"indices of shape \(2, 1\) and scores of shape \(2, 2\)"),
        (([[0]], [[0.1]]), r"here \(2, k\)"),
        (([[0.0], [1.0]], [[0.1], [0.2]]), "must hold label numbers"),
        (([[0], [3]], [[0.1], [0.2]]), r"scores\[0\] holds 3; label numbers run from 0 to 2"),
        (([[0], [-2]], [[0.1], [0.2]]), r"scores\[0\] holds -2"),
        (([[0, 1], [2, 2]], [[0.2, 0.1], [0.2, 0.1]]), "names a label twice in row 1"),
        (([[0, 1], [2, 1]], [[0.2, 0.1], [0.1, 0.2]]), "rises within row 1"),
        (([[0], [1]], [[NAN], [0.2]]), r"scores\[1\] holds NaN"),
        (([[0], [1]], [["a"], ["b"]]), r"scores\[1\] holds <U1 values"),
    ],
)
def test_wrong_scores_get_a_clear_error(scores, message):
    with pytest.raises(ValueError, match=message):
        precision_at_k(Y2, scores)


def test_sparse_scores_of_other_cells_are_an_error():
    scores = sp.csr_array(np.array([[0.5, 0.0, 0.4]]))
    with pytest.raises(ValueError, match="stores 2 cells that are not the 2 known cells"):
        precision_at_k([[1, 0, NAN]], scores)


def test_a_pair_needs_every_cell_known():
    with pytest.raises(ValueError, match="Y_true has unknown cells"):
        precision_at_k([[1, NAN]], ([[0]], [[0.5]]))


def test_a_pair_must_be_deep_enough():
    pair = ([[0, 1], [1, 2]], [[0.3, 0.2], [0.3, 0.2]])
    with pytest.raises(ValueError, match="best 2 labels of each row and a metric needs 3; call predict_topk"):
        precision_at_k(Y2, pair, 3)
    full = ([[0, 1, 2], [1, 2, 0]], [[0.3, 0.2, 0.1], [0.3, 0.2, 0.1]])
    assert precision_at_k(Y2, full, 5) == 1 / 5


@pytest.mark.parametrize("function", [hamming_loss, instance_auc, f1_score])
def test_metrics_of_all_cells_refuse_a_pair(function):
    with pytest.raises(ValueError, match="needs a score for every known cell"):
        function(Y2, ([[0], [1]], [[0.3], [0.3]]))


@pytest.mark.parametrize("k", [0, -1, 1.5, True, "3", None])
def test_k_must_be_a_positive_integer(k):
    with pytest.raises(ValueError, match="is not a number of labels; pass an integer of 1 or more"):
        precision_at_k(Y2, S2, k)
    with pytest.raises(ValueError, match="is not a number of labels"):
        PSPrecisionAtK(k, [0.5] * 3)


def test_wrong_settings_are_errors():
    with pytest.raises(ValueError, match="empty='nan' is not understood; use 'skip' or 'zero'"):
        NDCGAtK(1, "nan")
    with pytest.raises(ValueError, match="average='samples' is not understood"):
        F1("samples")
    for metric in (HammingLoss, lambda threshold: F1("micro", threshold)):
        for threshold in ("high", NAN, None):
            with pytest.raises(ValueError, match="is not a number; cells with a score above it"):
                metric(threshold)


@pytest.mark.parametrize(
    ("propensities", "message"),
    [
        ([0.5, 0.0, 0.5], "holds 0.0 for label 1"),
        ([0.5, 0.5, 2.0], r"holds 2.0 for label 2; .* \(pass p, not the weight 1 / p\)"),
        ([NAN, 0.5, 0.5], "holds nan for label 0"),
        ([[0.5, 0.5, 0.5]], r"has shape \(1, 3\)"),
        ([0.5, 0.5], "has 2 values and Y_true has 3 labels"),
    ],
)
def test_wrong_propensities_are_errors(propensities, message):
    with pytest.raises(ValueError, match=message):
        psp_at_k(Y2, S2, propensities)


@pytest.mark.parametrize("metric", [PrecisionAtK(3), F1()], ids=repr)
def test_compute_before_update_is_an_error(metric):
    with pytest.raises(ValueError, match="has seen no rows; call update"):
        metric.compute()
    with pytest.raises(ValueError, match="has seen no rows"):
        evaluate({"metric": metric}, [])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (PrecisionAtK(1), PrecisionAtK(2)),
        (PrecisionAtK(1), PrecisionAtK(1, "zero")),
        (PrecisionAtK(1), RecallAtK(1)),
        (F1("micro"), F1("macro")),
        (HammingLoss(0), HammingLoss(1)),
        (PSPrecisionAtK(1, [0.5, 0.5]), PSPrecisionAtK(1, [0.5, 0.6])),
    ],
    ids=repr,
)
def test_merging_unlike_metrics_is_an_error(one, other):
    with pytest.raises(ValueError, match="cannot be merged into"):
        one.merge(other)


@pytest.mark.parametrize("metric", [PrecisionAtK(1), F1()], ids=repr)
def test_the_number_of_labels_may_not_change(metric):
    seen = metric.fresh().update(Y2, S2)
    before = seen.compute()
    with pytest.raises(ValueError, match="has seen 3 labels and now gets 2"):
        seen.update([[1, 0]], [[0.2, 0.1]])
    with pytest.raises(ValueError, match="has seen 3 labels and now gets 2"):
        seen.merge(metric.fresh().update([[1, 0]], [[0.2, 0.1]]))
    assert seen.compute() == before


def test_reprs_name_the_settings():
    assert repr(PrecisionAtK(5, "zero")) == "PrecisionAtK(k=5, empty='zero')"
    assert repr(PSNDCGAtK(3, [0.5, 0.5])) == "PSNDCGAtK(k=3, propensities=<2 values>)"


# --- true labels from test labels with gaps ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def thinned():
    """True labels of 1,200 rows, scores, and a function that keeps each positive with a probability."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(1200, 15)) + rng.normal(size=15)
    truth = (rng.random(scores.shape) < 1 / (1 + np.exp(2.5 - 2 * scores))).astype(int)
    return truth, scores, lambda keep, seed: truth * (np.random.default_rng(seed).random(truth.shape) < keep)


def true_values(truth, scores):
    plain = {"P": precision_at_k, "nDCG": ndcg_at_k, "recall": recall_at_k}
    values = {f"{name}@{k}": metric(truth, scores, k, "zero") for name, metric in plain.items() for k in (1, 3, 5)}
    return values | {"micro F1": f1_score(truth, scores)}


def test_corrected_metrics_of_complete_labels_are_the_plain_ones(thinned):
    truth, scores, _ = thinned
    for name, value in true_values(truth, scores).items():
        metric = corrected_metrics()[name]
        for rows in (slice(0, 500), slice(500, 1200)):
            metric.update(truth[rows], scores[rows])
        assert metric.compute() == pytest.approx(value)
    exact = precision_at_k(truth, scores, 3, "zero")
    assert CorrectedPrecisionAtK(3).update(truth, scores).interval() == pytest.approx((exact, exact))


@pytest.mark.parametrize("keep", [0.3, 0.8, np.linspace(0.4, 0.9, 15)], ids=["0.3", "0.8", "by label"])
def test_corrected_metrics_find_the_values_of_the_true_labels(keep, thinned):
    truth, scores, thin = thinned
    values, errors, held = true_values(truth, scores), {}, []
    for seed in range(25):
        written = thin(keep, seed)
        for name, metric in corrected_metrics(written=keep).items():
            errors.setdefault(name, []).append(metric.update(written, scores).compute() - values[name])
            low, high = metric.interval()
            held.append(low <= values[name] <= high)
    for name, found in errors.items():
        bias, noise = np.mean(found), np.std(found) / 5
        assert abs(bias) < 3 * noise + (0.0 if name[0] == "P" else 0.012), name
    assert np.mean(held) > 0.9


def test_the_interval_of_precision_is_as_wide_as_the_mask_forces(thinned):
    _, scores, thin = thinned
    metrics = [CorrectedPrecisionAtK(3, 0.5).update(thin(0.5, seed), scores) for seed in range(60)]
    spread = np.std([metric.compute() for metric in metrics])
    widths = [np.diff(metric.interval())[0] for metric in metrics]
    assert np.mean(widths) == pytest.approx(2 * 1.96 * spread, rel=0.25)


def test_an_uncertain_share_widens_the_interval(thinned):
    _, scores, thin = thinned
    written = thin(0.5, 0)
    for name, exact in corrected_metrics(written=0.5).items():
        wide = corrected_metrics(written=0.5, written_range=(0.45, 0.6))[name].update(written, scores)
        ends = [corrected_metrics(written=c)[name].update(written, scores).interval() for c in (0.45, 0.6)]
        exact.update(written, scores)
        assert wide.compute() == exact.compute()
        assert wide.interval() == pytest.approx((min(low for low, _ in ends), max(high for _, high in ends)))


def test_a_probe_finds_the_values_of_the_true_labels_whatever_is_missing(thinned):
    """The best labels are forgotten most, and some written labels are wrong."""
    truth, scores, _ = thinned
    rng = np.random.default_rng(0)
    written = np.where(truth, rng.random(truth.shape) < 1 / (1 + np.exp(scores)), rng.random(truth.shape) < 0.02)
    values = {name: value for name, value in true_values(truth, scores).items() if name[0] in "Pm"}
    values["share written"] = (written & (truth > 0)).sum() / truth.sum()
    ranked = np.take_along_axis(truth, np.argsort(-scores, axis=1), axis=1)
    values |= {f"micro recall@{k}": ranked[:, :k].sum() / truth.sum() for k in (1, 3, 5)}
    for k in (3, 5):
        gains = 1 / np.log2(np.arange(2, k + 2))
        values[f"least nDCG@{k}"] = (ranked[:, :k] @ gains).mean() / gains.sum()
        assert values[f"least nDCG@{k}"] <= true_values(truth, scores)[f"nDCG@{k}"]
    indices = np.argsort(-scores, axis=1)[:, :8]
    probabilities = 1 / (1 + np.exp(1 - np.take_along_axis(scores, indices, axis=1)))
    found, held = {name: [] for name in values}, {name: [] for name in values}
    for seed in range(60):
        cells = draw_cells(written, indices, probabilities, 600, seed)
        estimates = probed_metrics(written, scores, cells, truth[cells.rows, cells.labels])
        assert estimates.keys() == values.keys()
        for name, (value, low, high, _) in estimates.items():
            found[name].append(value)
            held[name].append(low <= values[name] <= high)
    for name, value in values.items():
        assert np.mean(found[name]) == pytest.approx(value, abs=4 * np.std(found[name]) / np.sqrt(60)), name
        assert np.mean(held[name]) >= 0.9, name


@pytest.mark.parametrize("name", ["P@1", "least nDCG@3"])
def test_a_small_probe_says_how_many_cells_give_an_interval_of_five_points(thinned, name):
    truth, scores, thin = thinned
    written = thin(0.5, 0)
    indices = np.argsort(-scores, axis=1)[:, :8]
    probabilities = 1 / (1 + np.exp(1 - np.take_along_axis(scores, indices, axis=1)))

    def estimate(size, seed):
        cells = draw_cells(written, indices, probabilities, size, seed)
        return probed_metrics(written, scores, cells, truth[cells.rows, cells.labels])[name]

    small = [estimate(60, seed) for seed in range(20)]
    assert np.mean([(found.high - found.low) / 2 for found in small]) > 0.1
    size = int(np.median([found.cells for found in small]))
    large = [estimate(size, seed) for seed in range(20)]
    assert np.mean([(found.high - found.low) / 2 for found in large]) == pytest.approx(0.05, abs=0.012)
    assert np.mean([found.cells for found in large]) == pytest.approx(size, rel=0.35)


def test_the_stated_variance_of_a_probe_is_that_of_its_draws():
    """Cells are drawn with chances that double; the variance at twice the chances is known beforehand."""
    rng = np.random.default_rng(0)
    differs, g, chances = rng.random(2000) < 0.3, rng.random(2000), 0.05 + 0.4 * rng.random(2000)
    draws = rng.random((400, 2000)) < 2 * chances
    sums = (draws * (g * differs / (2 * chances))).sum(axis=1)
    probes = rng.random((100, 2000)) < chances
    foreseen = [measure_variance(g[p], differs[p] * 1.0, chances[p], lambda steps: 0.0, 2.0) for p in probes]
    assert np.mean(foreseen) == pytest.approx(sums.var(), rel=0.2)


def test_a_probe_of_no_ranked_cell_says_that_it_cannot_know():
    cells = ProbeCells(np.array([0]), np.array([1]), np.array([0.5]))
    found = probed_metrics([[1, 0]], [[1.0, 0.0]], cells, [False], ks=[1])
    assert found["P@1"][1:] == (0.0, 1.0, None)
    assert foresee_cells([[1, 0]], np.array([[0]]), np.array([[0.5]]), cells) is None
    wide = probed_metrics([[1, 0]], [[1.0, 0.0]], cells, [False], ks=[1, 5])  # of two labels
    assert wide["P@5"].value == 0.2
    with pytest.raises(ValueError, match="Y has unknown cells"):
        probed_metrics([[1, NAN]], [[1.0, 0.0]], cells, [False])


def test_deconvolution_finds_the_numbers_of_labels():
    rng = np.random.default_rng(0)
    sizes = rng.choice([1, 4], 200_000, p=[0.7, 0.3])
    histogram = np.bincount(rng.binomial(sizes - 1, 0.5), minlength=8).astype(float)
    weights = deconvolve(histogram, 0.5)
    assert weights.sum() == pytest.approx(200_000)
    assert (weights / np.arange(1, len(weights) + 1)).sum() == pytest.approx((1 / sizes).sum(), rel=0.02)


def test_labels_that_contradict_the_share_are_refused(thinned):
    truth, scores, thin = thinned
    with pytest.raises(ValueError, match="the given share of written labels is too small"):
        CorrectedPrecisionAtK(1, 0.2).update(thin(0.9, 0), scores).compute()
    for written in (0.0, 1.5, [0.5, np.nan], [[0.5]]):
        with pytest.raises(ValueError, match="is not a share"):
            CorrectedF1(written)
    with pytest.raises(ValueError, match="written has 2 shares and Y_true 15 labels"):
        CorrectedRecallAtK(1, [0.5, 0.5]).update(truth, scores)
    with pytest.raises(ValueError, match=r"written_range=\(0.6, 0.5\) falls"):
        CorrectedF1(0.5, (0.6, 0.5))
