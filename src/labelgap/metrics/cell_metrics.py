"""Metrics of all known cells: Hamming loss, F1, AUC of each row; errors of completed labels and features."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelgap.metrics.base import Metric, Ratio, check_option
from labelgap.metrics.batch import MAX_CELLS_PER_RANKING_BLOCK, Batch, KnownScores, RaggedRows
from labelgap.observations import Labels, as_labels
from labelgap.observations.arguments import LabelsLike, MatrixLike, ScoresLike
from labelgap.runtime import map_ranges, row_bounds

Average = Literal["micro", "macro"]


class HammingLoss(Ratio):
    """The share of known cells whose prediction is wrong.

    Parameters
    ----------
    threshold : float, default=0.0
        Scores above it (not equal to it) are predicted positives; 0 is right for ``decision_function``.

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
        bounds = row_bounds(known.values.size, 1, MAX_CELLS_PER_RANKING_BLOCK)
        predicted = sum(map_ranges(lambda a, b: np.count_nonzero(known.values[a:b] > self.threshold), bounds))
        hits = np.count_nonzero(known.positive_scores > self.threshold)
        wrong = (predicted - hits) + (known.positive_scores.size - hits)
        return np.array([wrong, known.values.size], np.float64)


class F1(Metric):
    """F1 = 2 TP / (2 TP + FP + FN) over known cells.

    Parameters
    ----------
    average : {"micro", "macro"}, default="micro"
        "micro" is the F1 of all cells together, "macro" the mean of the labels' F1. A label without known and
        predicted positives has an F1 of 0, as with ``zero_division=0`` in scikit-learn; a label without known cells
        is left out.
    threshold : float, default=0.0
        Scores above it (not equal to it) are predicted positives.

    Examples
    --------
    >>> Y, scores = [[1, 0], [1, 0]], [[0.5, 0.5], [0.5, -0.5]]
    >>> F1("micro").update(Y, scores).compute()
    0.8
    >>> F1("macro").update(Y, scores).compute()
    0.5
    """

    def __init__(self, average: Average = "micro", threshold: float = 0.0) -> None:
        self.average = check_option("average", average, ("micro", "macro"))
        self.threshold = _check_threshold(threshold)

    def _statistics(self, batch: Batch) -> NDArray[np.float64]:
        scores, L = batch.known_scores(), batch.n_labels
        positives, known = batch.labels.positives, batch.labels.known
        counts = (
            np.bincount(positives.indices[scores.positive_scores > self.threshold], minlength=L),
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
        hits, predicted, positive, _ = total
        return float(np.mean(2 * hits / np.maximum(predicted + positive, 1)))


def _count_above(scores: KnownScores, threshold: float) -> NDArray[np.integer]:
    """Return for each label the number of known cells with a score above the threshold."""
    L, known, rows = scores.labels.shape[1], scores.labels.known, scores.rows
    if known is not None:
        return np.bincount(known.indices[scores.values > threshold], minlength=L)
    parts = map_ranges(lambda a, b: np.count_nonzero(rows.block(a, b, 0.0) > threshold, axis=0), rows.bounds())
    return sum(parts, np.zeros(L, np.int64))


class InstanceAUC(Ratio):
    """The area under the ROC curve of each row's known cells, mean over rows.

    AUC_i is the share of (positive, negative) pairs of row i in which the positive has the higher score; a tie
    counts ½. Rows without a known positive or without a known negative are left out.

    Examples
    --------
    >>> InstanceAUC().update([[1, 0, 0, np.nan]], [[0.5, 0.5, 0.1, 0.9]]).compute()
    0.75
    """

    def _statistics(self, batch: Batch) -> NDArray[np.float64]:
        known, n_positives = batch.known_scores(), batch.n_positives.astype(np.int64)
        pairs = n_positives * (known.rows.lengths - n_positives)
        # The pairs of two positives, each positive with itself included, contribute n_positives² / 2.
        n_ordered = _count_cells_below_positives(known, n_positives) - n_positives**2 / 2
        defined = pairs > 0
        return np.array([(n_ordered[defined] / pairs[defined]).sum(), np.count_nonzero(defined)], np.float64)


def _count_cells_below_positives(known: KnownScores, n_positives: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return for each row Σ over its positives of (known cells below it + ½ of the cells equal to it)."""
    bounds, scores = known.labels.positives.indptr, known.positive_scores
    sums = np.zeros(len(n_positives))

    def work(start: int, stop: int) -> None:
        rows = np.repeat(np.arange(stop - start), n_positives[start:stop])
        below = _compute_mid_ranks(known.rows, start, stop, rows, scores[bounds[start] : bounds[stop]])
        sums[start:stop] = np.bincount(rows, below, minlength=stop - start)

    map_ranges(work, known.rows.bounds())
    return sums


def _compute_mid_ranks(
    ragged: RaggedRows, start: int, stop: int, rows: NDArray, scores: NDArray
) -> NDArray[np.float64]:
    """Return for each score (cells of its row below it + cells of its row not above it) / 2."""
    ordered = np.sort(ragged.block(start, stop, np.inf), axis=1)
    first = rows * ragged.width
    last = first + ragged.lengths[start:stop][rows]
    left = _bisect(ordered.ravel(), first, last, scores, np.less)
    right = _bisect(ordered.ravel(), left, last, scores, np.less_equal)
    return (left + right) / 2 - first


def _bisect(ordered: NDArray, low: NDArray, high: NDArray, scores: NDArray, before: np.ufunc) -> NDArray[np.int64]:
    """Return for each score the first index of ``ordered[low:high]`` whose cell is not ``before`` it."""
    low, high = low.copy(), high.copy()
    while (active := low < high).any():
        middle = (low + high) // 2
        step = active & before(ordered[np.minimum(middle, ordered.size - 1)], scores)
        low = np.where(step, middle + 1, low)
        high = np.where(active & ~step, middle, high)
    return low


def hamming_loss(Y_true: LabelsLike, scores: ScoresLike, threshold: float = 0.0) -> float:
    """Return :class:`HammingLoss` of one batch.

    >>> hamming_loss([[1, 0]], [[0.5, 0.5]])
    0.5
    """
    return HammingLoss(threshold).update(Y_true, scores).compute()


def f1_score(Y_true: LabelsLike, scores: ScoresLike, average: Average = "micro", threshold: float = 0.0) -> float:
    """Return :class:`F1` of one batch.

    >>> f1_score([[1, 1]], [[0.5, 0.5]])
    1.0
    """
    return F1(average, threshold).update(Y_true, scores).compute()


def instance_auc(Y_true: LabelsLike, scores: ScoresLike) -> float:
    """Return :class:`InstanceAUC` of one batch.

    >>> instance_auc([[1, 0, 0]], [[0.5, 0.9, 0.1]])
    0.5
    """
    return InstanceAUC().update(Y_true, scores).compute()


def label_error(Y_true: LabelsLike, predicted: MatrixLike, hidden: MatrixLike | None = None) -> float:
    """Return the percentage of hidden labels whose prediction is wrong.

    This is the transductive label error of Goldberg et al. (2010). It is NaN if Y_true knows no hidden label.

    Parameters
    ----------
    Y_true : array-like, sparse matrix or Labels of shape (n, L)
        The true labels, in any form that ``fit`` takes.
    predicted : array-like or sparse matrix of shape (n, L)
        Predicted labels, or decision values, of which those above 0 are predicted positives.
    hidden : array-like or sparse matrix of bool, shape (n, L), optional
        True where the label was hidden from ``fit``; by default all known cells of Y_true count.

    Examples
    --------
    >>> label_error([[1, 0], [0, 1]], [[1, 1], [0, 1]], hidden=[[False, True], [True, False]])
    50.0
    """
    labels = as_labels(Y_true)
    return 100 * hamming_loss(labels if hidden is None else Labels(labels, observed=hidden), predicted)


def imputation_error(X_true: ArrayLike, X_filled: ArrayLike, hidden: MatrixLike, *, squared: bool = False) -> float:
    """Return √(Σ (x − x̂)² / Σ x²) over hidden cells: 0 for perfect imputation, 1 for zeros.

    This is the relative feature imputation error in the tables of Goldberg et al. (2010); the text of the paper gives
    the formula without the root (``squared=True``). It is NaN if every hidden x is 0 or no cell is hidden.

    Parameters
    ----------
    X_true, X_filled : array-like of shape (n, d)
        x and x̂; only hidden cells are used.
    hidden : array-like of bool, shape (n, d)
        True where the feature was hidden from ``fit``.
    squared : bool, default=False
        Return the ratio without the root.

    Examples
    --------
    >>> imputation_error([[3.0, 4.0]], [[0.0, 4.0]], [[True, True]])
    0.6
    """
    arrays = {"X_true": np.asarray(X_true, float), "X_filled": np.asarray(X_filled, float)}
    mask = np.asarray(hidden)
    if mask.dtype != bool:
        raise ValueError(f"hidden holds {mask.dtype} values; pass booleans, True where the feature was hidden.")
    for name, array in arrays.items():
        if array.shape != mask.shape:
            raise ValueError(f"{name} has shape {array.shape} and hidden has {mask.shape}; they must be equal.")
        if not np.isfinite(array[mask]).all():
            raise ValueError(f"{name} has a hidden cell that is not finite; pass a number for each hidden cell.")
    true, filled = (array[mask] for array in arrays.values())
    norm = float(np.square(true).sum())
    ratio = float(np.square(true - filled).sum()) / norm if norm > 0 else float("nan")
    return ratio if squared else float(np.sqrt(ratio))


def _check_threshold(threshold: Any) -> float:
    if not isinstance(threshold, int | float | np.number) or np.isnan(threshold):
        raise ValueError(f"threshold={threshold!r} is not a number; cells with a score above it are predicted.")
    return float(threshold)
