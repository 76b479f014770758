"""Metrics of all known cells: Hamming loss, F1, and the area under each row's ROC curve."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from labelgap.metrics.base import Metric, Ratio, one_of
from labelgap.metrics.batch import Batch, KnownScores
from labelgap.metrics.topk import RaggedRows, row_bounds
from labelgap.runtime import in_ranges

Average = Literal["micro", "macro"]


def _check_threshold(threshold: Any) -> float:
    if not isinstance(threshold, int | float | np.number) or np.isnan(threshold):
        raise ValueError(f"threshold={threshold!r} is not a number; cells with a score above it are predicted.")
    return float(threshold)


class HammingLoss(Ratio):
    """The share of known cells that are predicted wrongly.

    Parameters
    ----------
    threshold : float
        A score above it (not at it) is a predicted positive; 0 suits ``decision_function``.

    Examples
    --------
    >>> HammingLoss().update([[1, 0, np.nan, 0]], [[0.3, -0.1, 0.2, 0.5]]).compute() == 1 / 3
    True
    """

    greater_is_better = False

    def __init__(self, threshold: float = 0.0) -> None:
        self.threshold = _check_threshold(threshold)

    def _statistics(self, batch: Batch) -> NDArray[np.float64]:
        known = batch.known_scores()
        bounds = row_bounds(known.values.size, 1)
        predicted = sum(in_ranges(lambda a, b: np.count_nonzero(known.values[a:b] > self.threshold), bounds))
        found = np.count_nonzero(known.of_positives > self.threshold)
        wrong = (predicted - found) + (known.of_positives.size - found)
        return np.array([wrong, known.values.size], np.float64)


class F1(Metric):
    """F1 = 2 TP / (2 TP + FP + FN) over known cells.

    Parameters
    ----------
    average : {"micro", "macro"}
        Over all cells together, or the mean over labels. In the mean a label with neither a known positive nor a
        predicted one counts 0, as with ``zero_division=0`` in scikit-learn; a label without any known cell is left
        out.
    threshold : float
        A score above it (not at it) is a predicted positive.

    Examples
    --------
    >>> Y, scores = [[1, 0], [1, 0]], [[0.5, 0.5], [0.5, -0.5]]
    >>> F1("micro").update(Y, scores).compute()
    0.8
    >>> F1("macro").update(Y, scores).compute()
    0.5
    """

    def __init__(self, average: Average = "micro", threshold: float = 0.0) -> None:
        self.average = one_of("average", average, ("micro", "macro"))
        self.threshold = _check_threshold(threshold)

    def _statistics(self, batch: Batch) -> NDArray[np.float64]:
        scores, L = batch.known_scores(), batch.n_labels
        positives, known = batch.labels.positives, batch.labels.known
        found = positives.indices[scores.of_positives > self.threshold]
        counts = (
            np.bincount(found, minlength=L),
            _count_above(scores, self.threshold),
            np.bincount(positives.indices, minlength=L),
            np.full(L, len(batch.labels)) if known is None else np.bincount(known.indices, minlength=L),
        )
        return np.array(counts, np.float64)

    def _value(self, total: NDArray[np.float64]) -> float:
        total = total[:, total[3] > 0]
        if total.size == 0:
            return float("nan")
        if self.average == "micro":
            total = total.sum(axis=1, keepdims=True)
        found, predicted, positive, _ = total
        return float(np.mean(2 * found / np.maximum(predicted + positive, 1)))


def _count_above(scores: KnownScores, threshold: float) -> NDArray[np.integer]:
    """Return how many known cells of each label score above the threshold."""
    L, known, rows = scores.labels.shape[1], scores.labels.known, scores.rows
    if known is not None:
        return np.bincount(known.indices[scores.values > threshold], minlength=L)
    parts = in_ranges(lambda a, b: np.count_nonzero(rows.block(a, b, 0.0) > threshold, axis=0), rows.bounds())
    return sum(parts, np.zeros(L, np.int64))


class InstanceAUC(Ratio):
    """The area under the ROC curve of each row's known cells, mean over rows.

    AUC_i is the share of (positive, negative) pairs of row i that the scores put in order; a tie counts ½. Rows
    without a known positive or without a known negative are left out.

    Examples
    --------
    >>> InstanceAUC().update([[1, 0, 0, np.nan]], [[0.5, 0.5, 0.1, 0.9]]).compute()
    0.75
    """

    def _statistics(self, batch: Batch) -> NDArray[np.float64]:
        known, n_positives = batch.known_scores(), batch.n_positives.astype(np.int64)
        pairs = n_positives * (known.rows.lengths - n_positives)
        # Among themselves a row's positives, each of them with itself included, come to n_positives² / 2.
        in_order = _cells_below_positives(known, n_positives) - n_positives**2 / 2
        counted = pairs > 0
        return np.array([(in_order[counted] / pairs[counted]).sum(), np.count_nonzero(counted)], np.float64)


def _cells_below_positives(known: KnownScores, n_positives: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return for each row Σ over its positives of (known cells below it + ½ of those level with it)."""
    ends, of_positives = known.labels.positives.indptr, known.of_positives
    sums = np.zeros(len(n_positives))

    def work(start: int, stop: int) -> None:
        rows = np.repeat(np.arange(stop - start), n_positives[start:stop])
        below = _mid_ranks(known.rows, start, stop, rows, of_positives[ends[start] : ends[stop]])
        sums[start:stop] = np.bincount(rows, below, minlength=stop - start)

    in_ranges(work, known.rows.bounds())
    return sums


def _mid_ranks(ragged: RaggedRows, start: int, stop: int, rows: NDArray, scores: NDArray) -> NDArray[np.float64]:
    """Return for each score (cells of its row below it + cells not above it) / 2."""
    ordered = np.sort(ragged.block(start, stop, np.inf), axis=1)
    first = rows * ragged.width
    last = first + ragged.lengths[start:stop][rows]
    left = _bisect(ordered.ravel(), first, last, scores, np.less)
    right = _bisect(ordered.ravel(), left, last, scores, np.less_equal)
    return (left + right) / 2 - first


def _bisect(ordered: NDArray, low: NDArray, high: NDArray, scores: NDArray, before: np.ufunc) -> NDArray[np.int64]:
    """Return for each score the first place in ``ordered[low:high]`` whose cell is not ``before`` it, all at once."""
    low, high = low.copy(), high.copy()
    while (active := low < high).any():
        middle = (low + high) // 2
        step = active & before(ordered[np.minimum(middle, ordered.size - 1)], scores)
        low = np.where(step, middle + 1, low)
        high = np.where(active & ~step, middle, high)
    return low


def hamming_loss(Y_true: Any, scores: Any, threshold: float = 0.0) -> float:
    """Return :class:`HammingLoss` of one batch.

    >>> hamming_loss([[1, 0]], [[0.5, 0.5]])
    0.5
    """
    return HammingLoss(threshold).update(Y_true, scores).compute()


def f1_score(Y_true: Any, scores: Any, average: Average = "micro", threshold: float = 0.0) -> float:
    """Return :class:`F1` of one batch.

    >>> f1_score([[1, 1]], [[0.5, 0.5]])
    1.0
    """
    return F1(average, threshold).update(Y_true, scores).compute()


def instance_auc(Y_true: Any, scores: Any) -> float:
    """Return :class:`InstanceAUC` of one batch.

    >>> instance_auc([[1, 0, 0]], [[0.5, 0.9, 0.1]])
    0.5
    """
    return InstanceAUC().update(Y_true, scores).compute()
