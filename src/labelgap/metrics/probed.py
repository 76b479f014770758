"""Metrics of the true labels from a random probe: cells drawn with known chances, and looked up.

With y the written labels, t the true ones and π the chance of a cell to be drawn, a sum of true labels is estimated

    Σ t  ≈  Σ over all cells y  +  Σ over the probe (t − y) / π,

without bias whatever labels are missing or wrong, and why. P@k is such a sum; F1 and the share of true labels that
are written are ratios of two. Recall@k and nDCG@k need the number of true labels of each row, which a probe of cells
does not tell: estimate them by :func:`labelgap.metrics.corrected_metrics`, with the share that the probe found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelgap.metrics.base import check_positive_integer
from labelgap.metrics.batch import Batch, find_hits
from labelgap.metrics.cell_metrics import F1
from labelgap.metrics.corrected import STANDARD_ERRORS_95
from labelgap.observations import Labels, as_labels
from labelgap.observations.arguments import LabelsLike

MIN_DIFFERENT = 1e-3  # chance that the true value of a cell differs from the written one: p may be wrong
WRONG = 0.01  # the same, of written labels
REST = 0.2  # share of a probe that is drawn beyond the ranked labels
WRITTEN_SHARE = "share written"


class Estimate(NamedTuple):
    """A value with a 95 % interval."""

    value: float
    low: float
    high: float


class ProbeCells(NamedTuple):
    """Cells drawn for review, and the chance of each to be drawn."""

    rows: NDArray[np.int64]
    labels: NDArray[np.int64]
    chances: NDArray[np.float64]


class WrittenSums(NamedTuple):
    """Sums over all rows of the written labels: rows, labels, hits among the k best by k, predicted ones and hits."""

    n_rows: int
    n_written: float
    hits_at: dict[int, float]
    n_predicted: float
    n_hits: float


def draw_cells(
    Y: LabelsLike, indices: NDArray, probabilities: NDArray, size: int, random_state: int | None = None
) -> ProbeCells:
    """Draw cells of test rows for review: where a look tells most, but any cell may be drawn.

    Four fifths are drawn among the k best labels of each row, in proportion to √p / rank, where p is the probability
    that the written value is not the true one; cells of the first ranks count most in P@k. The others are drawn with
    equal chances. Each cell is drawn independently, ``size`` of them on average.

    Parameters
    ----------
    Y : array-like or sparse matrix of shape (n, L)
        The written labels.
    indices, probabilities : ndarray of shape (n, k)
        The best labels of each row and the probability that they are true, as ``rank`` of an estimator returns them.
    size : int
        The mean number of cells.
    random_state : int, optional
        Seed.

    Examples
    --------
    >>> best, p = np.array([[0, 1]] * 50), np.array([[0.9, 0.2]] * 50)
    >>> cells = draw_cells(np.zeros((50, 10)), best, p, size=30, random_state=0)
    >>> 15 <= len(cells.rows) <= 45, bool((cells.labels > 1).any())
    (True, True)
    """
    check_positive_integer("size", size)
    rng, (n, k), labels = np.random.default_rng(random_state), indices.shape, as_labels(Y)
    n_labels = labels.shape[1]
    n_rest = n * (n_labels - k)
    different = np.maximum(np.where(find_hits(indices, labels.positives), WRONG, probabilities), MIN_DIFFERENT)
    chances = choose_chances(np.sqrt(different) / np.arange(1, k + 1), size * (1 - REST) if n_rest else size)
    i, place = np.nonzero(rng.random((n, k)) < chances)
    if not n_rest:
        return ProbeCells(i, indices[i, place].astype(np.int64), chances[i, place])
    chance = min(size * REST / n_rest, 1.0)
    number = rng.choice(n_rest, rng.binomial(n_rest, chance), replace=False)
    rows, others = np.divmod(number, n_labels - k)
    further = _skip_labels(np.sort(indices[rows], axis=1), others)
    return ProbeCells(
        np.concatenate([i, rows]),
        np.concatenate([indices[i, place], further]).astype(np.int64),
        np.concatenate([chances[i, place], np.full(len(rows), chance)]),
    )


def _skip_labels(taken: NDArray, others: NDArray) -> NDArray[np.int64]:
    """Return the labels with the numbers ``others`` among those that are not ``taken``, which is sorted in each row.

    >>> _skip_labels(np.array([[0, 2]]), np.array([0])), _skip_labels(np.array([[0, 2]]), np.array([1]))
    (array([1]), array([3]))
    """
    before = taken - np.arange(taken.shape[1])  # labels that are not taken before each taken one
    return others + (before <= others[:, None]).sum(axis=1)


def choose_chances(weights: NDArray, size: float) -> NDArray[np.float64]:
    """Return chances in proportion to weights above 0, at most 1, that sum to ``size`` or to the number of weights.

    >>> choose_chances(np.array([4.0, 4.0, 2.0]), 1.25).tolist()
    [0.5, 0.5, 0.25]
    """
    low, high = 0.0, 1 / weights.min(initial=1.0)
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if np.minimum(middle * weights, 1.0).sum() < size else (low, middle)
    return np.minimum(high * weights, 1.0)


def probed_metrics(
    Y: LabelsLike, scores: ArrayLike, probe: ProbeCells, true: ArrayLike, ks: Sequence[int] = (1, 3, 5)
) -> dict[str, Estimate]:
    """Estimate P@k and the micro-averaged F1 of the true labels, and the share of these that are written.

    Nothing is assumed about which labels are missing or wrong.

    Parameters
    ----------
    Y : array-like or sparse matrix of shape (n, L)
        The written labels.
    scores : array-like of shape (n, L)
        Decision values; those above 0 are predicted.
    probe : ProbeCells
        Cells that were drawn with known chances, such as by :func:`draw_cells`.
    true : array-like of bool
        Whether the label of each of these cells is true.
    ks : sequence of int
        Numbers of best labels.

    Examples
    --------
    Half of the rows lost their label; all cells are reviewed:

    >>> rows, labels = np.divmod(np.arange(8), 2)
    >>> probe = ProbeCells(rows, labels, np.ones(8))
    >>> probed_metrics([[1, 0], [0, 0]] * 2, [[1.0, -1.0]] * 4, probe, labels == 0, ks=[1])["P@1"].value
    1.0
    """
    scores = np.asarray(scores, np.float64)
    batch = Batch(Y, scores)
    check_complete(batch.labels)
    ranking = batch.ranking(max(ks))
    hits, predicted, positives, _ = F1("micro")._statistics(batch).sum(axis=1).tolist()
    hits_at = {k: float(ranking.first(k).hits.sum()) for k in ks}
    sums = WrittenSums(len(scores), positives, hits_at, predicted, hits)
    written = batch.labels.positives[probe.rows].toarray()[np.arange(len(probe.rows)), probe.labels]
    same = ranking.indices[probe.rows] == probe.labels[:, None]
    places = np.where(same.any(axis=1), same.argmax(axis=1), max(ks))
    return add_probe(sums, probe, np.asarray(true, bool), written, places, scores[probe.rows, probe.labels] > 0)


def check_complete(labels: Labels) -> None:
    """Raise ValueError if labels have unknown cells."""
    if not labels.complete:
        raise ValueError("Y has unknown cells, which a probe does not take; pass 0 for labels that are not written.")


def add_probe(
    sums: WrittenSums,
    probe: ProbeCells,
    true: NDArray[np.bool_],
    written: NDArray[np.bool_],
    places: NDArray[np.int64],
    predicted: NDArray[np.bool_],
) -> dict[str, Estimate]:
    """Return the estimates from the sums of the written labels and, for each cell of the probe, what is known of it.

    ``places`` is how many labels of the row rank before the cell. The variance of an estimate is, to first order, the
    sum over the probe of (1 − π) (g (t − y) / π)², where g is its change with the cell; one more cell that differs is
    added, since a probe without a difference would otherwise be certain: an average one for P@k, that of the largest
    effect for figures of all cells, of which a few from beyond the ranked labels count much.
    """
    weights, changes = 1 / probe.chances, true.astype(np.float64) - written

    def correct(written_sum: float, coefficients: NDArray) -> float:
        return written_sum + float((coefficients * changes * weights).sum())

    def bound(value: float, coefficients: NDArray, one_more: Callable[[NDArray], float]) -> Estimate:
        steps = (1 - probe.chances) * (coefficients * weights) ** 2
        reviewed = bool((coefficients != 0).any())  # else nothing is known
        variance = float((steps * changes**2).sum() + (one_more(steps[coefficients != 0]) if reviewed else 0.0))
        half_width = STANDARD_ERRORS_95 * np.sqrt(variance) if reviewed and np.isfinite(value) else 1.0
        low, value, high = np.clip([value - half_width, value, value + half_width], 0.0, 1.0).tolist()
        return Estimate(value, *((low, high) if reviewed else (0.0, 1.0)))

    result = {}
    for k, hits in sums.hits_at.items():
        coefficients = (places < k) / (k * max(sums.n_rows, 1))
        result[f"P@{k}"] = bound(correct(hits / (k * max(sums.n_rows, 1)), coefficients), coefficients, np.mean)
    ones = np.ones(len(true))
    n_true, n_hits = max(correct(sums.n_written, ones), 0.0), max(correct(sums.n_hits, ones * predicted), 0.0)
    size = max(sums.n_predicted + n_true, 1.0)
    result["micro F1"] = bound(2 * n_hits / size, (2 * predicted - 2 * n_hits / size) / size, np.max)
    n_kept = correct(sums.n_written, ones * written)
    share = n_kept / max(n_true, 1.0)
    result[WRITTEN_SHARE] = bound(share, (written - share) / max(n_true, 1.0), np.max)
    return result
