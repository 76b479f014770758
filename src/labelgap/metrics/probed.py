"""Metrics of the true labels from a random probe: cells drawn with known chances, and looked up.

With y the written labels, t the true ones and π the chance of a cell to be drawn, a sum of true labels is estimated

    Σ t  ≈  Σ over all cells y  +  Σ over the probe (t − y) / π,

without bias whatever labels are missing or wrong, and why. P@k is such a sum; F1, recall over all true labels (micro
recall@k) and the share of true labels that are written are ratios of two. The mean recall@k and nDCG@k of rows need
the number of true labels of each row, which single cells do not tell: a sum of functions that are not linear in it
would take probes of whole rows. Of nDCG@k a probe bounds the value from below, since no ideal DCG exceeds that of k
true labels. :func:`labelgap.metrics.corrected_metrics` estimates both from the share that the probe found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelgap.metrics.at_k import rank_discounts
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
AIMED_HALF_WIDTH = 0.05
BISECTIONS = 40


class Estimate(NamedTuple):
    """A value with a 95 % interval, and about how many cells would give it an interval of ± 0.05.

    ``cells`` is None if no cell of the probe says anything about the value.
    """

    value: float
    low: float
    high: float
    cells: int | None


class ProbeCells(NamedTuple):
    """Cells drawn for review, and the chance of each to be drawn."""

    rows: NDArray[np.int64]
    labels: NDArray[np.int64]
    chances: NDArray[np.float64]


class WrittenSums(NamedTuple):
    """Sums over all rows of the written labels: rows, labels, hits at each rank, predicted labels and their hits."""

    n_rows: int
    n_written: float
    hits_at_rank: NDArray[np.float64]
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
    different = expect_different(labels, indices, probabilities)
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


def expect_different(labels: Labels, indices: NDArray, probabilities: NDArray) -> NDArray[np.float64]:
    """Return the probability that the written value of each of the k best labels is not the true one."""
    return np.maximum(np.where(find_hits(indices, labels.positives), WRONG, probabilities), MIN_DIFFERENT)


def foresee_cells(Y: LabelsLike, indices: NDArray, probabilities: NDArray, probe: ProbeCells) -> int | None:
    """Return about how many cells give P@1 an interval of ± 0.05, before any cell of a probe is reviewed.

    The parameters are those of :func:`draw_cells` and the cells that it drew. The variance is that of values that
    differ from the written ones as often as the probabilities say.

    >>> best, p = np.array([[0]] * 400), np.full((400, 1), 0.5)
    >>> cells = draw_cells(np.zeros((400, 1)), best, p, size=100, random_state=0)
    >>> bool(150 < foresee_cells(np.zeros((400, 1)), best, p, cells) < 300)
    True
    """
    first = indices[probe.rows, 0] == probe.labels
    different = expect_different(as_labels(Y), indices[:, :1], probabilities[:, :1])[probe.rows, 0]
    return count_cells(first / len(indices), np.sqrt(different), probe.chances, np.mean)


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
    """Estimate figures of the true labels, assuming nothing about which labels are missing or wrong.

    These are P@k, the micro-averaged F1, "micro recall@k", the share of all true labels that are among the k best of
    their rows, "share written", the share of them that are written, and "least nDCG@k": the nDCG@k if every row had k
    true labels or more, Σ over hits of 1 / log2(1 + rank) divided by that of k hits. It is at most nDCG@k, and close
    to it if most rows have k true labels. A row without a true label counts as 0.

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
    at_rank = ranking.hits.sum(axis=0).astype(np.float64)
    at_rank = np.pad(at_rank, (0, max(ks) - len(at_rank)))  # there may be fewer labels
    sums = WrittenSums(len(scores), positives, at_rank, predicted, hits)
    written = batch.labels.positives[probe.rows].toarray()[np.arange(len(probe.rows)), probe.labels]
    same = ranking.indices[probe.rows] == probe.labels[:, None]
    places = np.where(same.any(axis=1), same.argmax(axis=1), max(ks))
    return add_probe(sums, ks, probe, np.asarray(true, bool), written, places, scores[probe.rows, probe.labels] > 0)


def check_complete(labels: Labels) -> None:
    """Raise ValueError if labels have unknown cells."""
    if not labels.complete:
        raise ValueError("Y has unknown cells, which a probe does not take; pass 0 for labels that are not written.")


def add_probe(
    sums: WrittenSums,
    ks: Sequence[int],
    probe: ProbeCells,
    true: NDArray[np.bool_],
    written: NDArray[np.bool_],
    places: NDArray[np.int64],
    predicted: NDArray[np.bool_],
) -> dict[str, Estimate]:
    """Return the estimates from the sums of the written labels and, for each cell of the probe, what is known of it.

    ``places`` is how many labels of the row rank before the cell. Each estimate is a sum over cells of g t, or to
    first order changes by g with the value of a cell: see :func:`measure_variance`. One more cell that differs counts
    in its variance: an average one for sums of the first ranks, that of the largest effect for ratios of sums over
    all cells, of which a few from beyond the ranked labels count much.
    """
    weights, changes = 1 / probe.chances, true.astype(np.float64) - written
    ones, n_rows = np.ones(len(true)), max(sums.n_rows, 1)

    def correct(written_sum: float, coefficients: NDArray) -> float:
        return written_sum + float((coefficients * changes * weights).sum())

    def add_ratio(written_sum: float, coefficients: NDArray, size: float) -> tuple[float, NDArray]:
        """Return (Σ coefficients t) / size for the number of true labels in ``size``, and its changes g."""
        value = max(correct(written_sum, coefficients), 0.0) / size
        return value, (coefficients - value) / size

    n_true = max(correct(sums.n_written, ones), 0.0)
    discounts = rank_discounts(len(sums.hits_at_rank))
    gains = {f"P@{k}": np.ones(k) / k for k in ks}
    gains |= {f"least nDCG@{k}": discounts[:k] / discounts[:k].sum() for k in ks if k > 1}
    result = {}
    for name, by_rank in gains.items():
        coefficients = np.append(by_rank, 0.0)[np.minimum(places, len(by_rank))] / n_rows
        value = correct(float(sums.hits_at_rank[: len(by_rank)] @ by_rank) / n_rows, coefficients)
        result[name] = bound_estimate(value, coefficients, changes, probe.chances, np.mean)
    ratios = {
        f"micro recall@{k}": add_ratio(sums.hits_at_rank[:k].sum(), ones * (places < k), max(n_true, 1.0)) for k in ks
    }
    ratios["micro F1"] = add_ratio(2 * sums.n_hits, 2.0 * predicted, max(sums.n_predicted + n_true, 1.0))
    ratios[WRITTEN_SHARE] = add_ratio(sums.n_written, ones * written, max(n_true, 1.0))
    for name, (value, coefficients) in ratios.items():
        result[name] = bound_estimate(value, coefficients, changes, probe.chances, np.max)
    return result


OneMore = Callable[[NDArray], float]


def bound_estimate(
    value: float, coefficients: NDArray, changes: NDArray, chances: NDArray, one_more: OneMore
) -> Estimate:
    """Return an estimate with its interval, and the number of cells for one of ± 0.05.

    If no cell of the probe bears on the estimate, nothing is known about it.
    """
    if not coefficients.any() or not np.isfinite(value):
        return Estimate(float(np.clip(value, 0.0, 1.0)), 0.0, 1.0, None)
    half_width = STANDARD_ERRORS_95 * measure_variance(coefficients, changes, chances, one_more) ** 0.5
    low, value, high = np.clip([value - half_width, value, value + half_width], 0.0, 1.0).tolist()
    return Estimate(value, low, high, count_cells(coefficients, changes, chances, one_more))


def count_cells(coefficients: NDArray, changes: NDArray, chances: NDArray, one_more: OneMore) -> int | None:
    """Return the mean number of cells at whose chances the variance gives an interval of ± 0.05.

    None if no cell of the probe bears on the estimate.
    """
    if not coefficients.any():
        return None
    aimed = (AIMED_HALF_WIDTH / STANDARD_ERRORS_95) ** 2
    low, high = 1e-3, 1 / float(chances.min())  # at the last scale every cell would be drawn
    for _ in range(BISECTIONS):
        middle = (low * high) ** 0.5
        is_enough = measure_variance(coefficients, changes, chances, one_more, middle) <= aimed
        low, high = (low, middle) if is_enough else (middle, high)
    return round(float((np.minimum(high * chances, 1.0) / chances).sum()))


def measure_variance(
    coefficients: NDArray, changes: NDArray, chances: NDArray, one_more: OneMore, scale: float = 1.0
) -> float:
    """Return the variance of Σ g (t − y) / π over probes with the chances π' = min(scale · π, 1) instead of π.

    It is the sum over all cells of (1 / π' − 1) (g (t − y))², which the probe estimates with the weights 1 / π, and
    one more cell that differs, (1 − π') (g / π')², since a probe without a difference would otherwise be certain.

    >>> half = np.full(4, 0.5)
    >>> measure_variance(half, np.array([1.0, 0, 0, 0]), half, np.mean)
    1.0
    """
    scaled = np.minimum(scale * chances, 1.0)
    steps = (1 - scaled) * (coefficients / scaled) ** 2
    at_scale = (1 / scaled - 1) / chances * (coefficients * changes) ** 2
    return float(at_scale.sum() + one_more(steps[coefficients != 0]))
