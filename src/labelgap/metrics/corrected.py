"""Metrics of the true labels, estimated from test labels of which some are missing.

The written labels of a test set are true labels that are kept at random: label l with probability c_l, in every row
and whatever the scores; no wrong label is written. Then a written hit stands for 1 / c_l true hits, and the sums of
a metric are estimated without bias. Rows without a true label count as 0, since missing labels hide which rows these
are.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelgap.metrics.at_k import ideal_dcg, rank_discounts
from labelgap.metrics.base import Metric, check_positive_integer
from labelgap.metrics.batch import Batch
from labelgap.metrics.cell_metrics import F1

STANDARD_ERRORS_95 = 1.96  # half the width of a 95 % interval
MAX_POSITIVES = 500  # of a row; more count as so many
EM_STEPS = 200
RELATIVE_STEP = 1e-3  # of finite differences
Bounds = tuple[float, float]


def corrected_metrics(
    ks: Iterable[int] = (1, 3, 5), written: float | ArrayLike = 1.0, written_range: Bounds | None = None
) -> dict[str, CorrectedAtK | CorrectedF1]:
    """Return P@k, nDCG@k and recall@k for each k, and the micro-averaged F1, of the true labels.

    >>> list(corrected_metrics([1, 3], 0.8))
    ['P@1', 'P@3', 'nDCG@1', 'nDCG@3', 'recall@1', 'recall@3', 'micro F1']
    """
    kinds: dict[str, Any] = {"P": CorrectedPrecisionAtK, "nDCG": CorrectedNDCGAtK, "recall": CorrectedRecallAtK}
    ks = tuple(ks)
    metrics: dict[str, CorrectedAtK | CorrectedF1] = {
        f"{name}@{k}": kind(k, written, written_range) for name, kind in kinds.items() for k in ks
    }
    return metrics | {"micro F1": CorrectedF1(written, written_range)}


class CorrectedAtK(Metric):
    """The mean over rows of Σ over true labels among the k best of gain(rank) / scale(true labels of the row).

    Subclasses define gain and scale. In a row with m true labels, a written hit has t other written labels beside
    it, and t is binomial of (m − 1, c). The share of hits in rows with m true labels, w_m, maximises the likelihood
    of all t; then the mean is Σ_m w_m / scale(m).

    Parameters
    ----------
    k : int
        Number of top labels of each row.
    written : float or array-like of shape (L,)
        The share c of true labels that are written, of all labels or of each label. With a share for each label,
        the other labels of a row are counted with the mean share, an approximation for recall and nDCG.
    written_range : tuple of two floats, optional
        Bounds of the mean share, if ``written`` is an estimate. :meth:`interval` covers all shares between them.
    """

    def __init__(self, k: int = 1, written: float | ArrayLike = 1.0, written_range: Bounds | None = None) -> None:
        self.k = check_positive_integer("k", k)
        self.written = check_written(written)
        self.written_range = check_range(written_range)

    @property
    def depth(self) -> int:
        return self.k

    @abstractmethod
    def _scales(self, n_positives: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return scale(m) for numbers m of true labels."""

    def _gains(self, k: int) -> NDArray[np.float64]:
        """Return gain(rank) for the ranks 1 to k."""
        return np.ones(k)

    def _statistics(self, batch: Batch) -> NDArray[np.float64]:
        """Return rows, written labels, Σ 1/c of them, Σ gain²/c² and Σ gain²/c of hits; sums of gains by t."""
        ranking, shares = batch.ranking(self.k), expand_written(self.written, batch.n_labels)
        gains, positives = self._gains(ranking.hits.shape[1]), batch.labels.positives.indices
        hits = np.where(ranking.hits, 1 / shares[ranking.indices], 0.0)
        size = min(batch.n_labels, MAX_POSITIVES)
        others = np.clip(batch.n_positives - 1, 0, size - 1)
        sums = [len(hits), len(positives), (1 / shares[positives]).sum()]
        squares = [(hits**2 @ gains**2).sum(), (hits @ gains**2).sum()]
        by_row = hits @ gains
        return np.concatenate(
            [sums, squares, np.bincount(others, by_row, size), np.bincount(others, by_row**2, size)]
        )

    def _value(self, total: NDArray[np.float64]) -> float:
        return clip_estimate(self, self._estimate(total, 1.0), self._error(total, 1.0))

    def interval(self) -> Bounds:
        """Return a 95 % interval of the value that these rows would have with all their true labels.

        For recall and nDCG it includes the chance of drawing these rows, and is wider than it need be.
        """
        self.compute()
        total = np.asarray(self._total)
        factors = find_factors(self.written_range, total[1] / max(total[2], 1.0))
        return join_bounds([(self._estimate(total, factor), self._error(total, factor)) for factor in factors])

    def _estimate(self, total: NDArray, factor: float) -> float:
        """Return the estimate if all shares are multiplied by ``factor``."""
        n, n_written, n_true = total[:3]
        histogram = total[5 : 5 + (len(total) - 5) // 2]
        return self._mean_gain(histogram, factor * n_written / max(n_true, 1.0)) / (factor * n) if n else float("nan")

    def _mean_gain(self, histogram: NDArray, share: float) -> float:
        weights = deconvolve(histogram, share)
        return float((weights / self._scales(np.arange(1, len(weights) + 1))).sum())

    def _error(self, total: NDArray, factor: float) -> float:
        """Return the standard error, to first order in the sums of gains by t; each row adds to one of them."""
        n, n_written, n_true = total[:3]
        histogram, squares = total[5:].reshape(2, -1)
        share = min(factor * n_written / max(n_true, 1.0), 1.0)
        variance, middle = 0.0, self._mean_gain(histogram, share)
        for t in np.flatnonzero(squares):
            changed = histogram.copy()
            changed[t] *= 1 + RELATIVE_STEP
            slope = (self._mean_gain(changed, share) - middle) / (RELATIVE_STEP * histogram[t])
            variance += slope**2 * squares[t]
        return float(np.sqrt(variance)) / (factor * max(n, 1.0))


class CorrectedPrecisionAtK(CorrectedAtK):
    """P@k of the true labels: Σ over written hits l of 1 / c_l, divided by k times the number of rows.

    Its interval includes only the chance of which true labels are written: the variance is Σ over written hits of
    (1 − c_l) / c_l².

    Parameters
    ----------
    k, written, written_range
        As in :class:`CorrectedAtK`.

    Examples
    --------
    Of four rows two have a written hit; half of the true labels are written.

    >>> metric = CorrectedPrecisionAtK(1, written=0.5)
    >>> metric.update([[1, 0], [1, 0], [0, 0], [0, 1]], [[0.9, 0.1]] * 4).compute()
    1.0
    """

    def _scales(self, n_positives: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.full(len(n_positives), float(self.k))

    def _mean_gain(self, histogram: NDArray, share: float) -> float:
        return float(histogram.sum()) / self.k

    def _error(self, total: NDArray, factor: float) -> float:
        variance = total[3] / factor**2 - total[4] / factor
        return float(np.sqrt(max(variance, 0.0))) / (self.k * max(total[0], 1.0))


class CorrectedRecallAtK(CorrectedAtK):
    """Recall@k of the true labels: the share of a row's true labels that are among its k best, mean over rows.

    Parameters
    ----------
    k, written, written_range
        As in :class:`CorrectedAtK`.

    Examples
    --------
    >>> CorrectedRecallAtK(1).update([[1, 1], [0, 1]], [[0.9, 0.1], [0.1, 0.2]]).compute()
    0.75
    """

    def _scales(self, n_positives: NDArray[np.int64]) -> NDArray[np.float64]:
        return n_positives.astype(np.float64)


class CorrectedNDCGAtK(CorrectedAtK):
    """nDCG@k of the true labels; the ideal DCG of a row is that of its estimated number of true labels.

    Parameters
    ----------
    k, written, written_range
        As in :class:`CorrectedAtK`.

    Examples
    --------
    >>> CorrectedNDCGAtK(3).update([[1, 1, 0]], [[0.9, 0.8, 0.1]]).compute()
    1.0
    """

    def _gains(self, k: int) -> NDArray[np.float64]:
        return rank_discounts(k)

    def _scales(self, n_positives: NDArray[np.int64]) -> NDArray[np.float64]:
        return ideal_dcg(self.k, n_positives)


class CorrectedF1(Metric):
    """Micro-averaged F1 of the true labels: 2 TP / (predicted + P), with TP and P sums of 1 / c_l.

    The macro average has no such estimate: the F1 of a label with few written positives is not linear in them.

    Parameters
    ----------
    written, written_range
        As in :class:`CorrectedAtK`.
    threshold : float, default=0.0
        Scores above it are predicted.

    Examples
    --------
    Two of four predicted labels are written, which stand for four true ones.

    >>> CorrectedF1(0.5).update([[1, 0], [1, 0]], [[0.5, 0.5], [0.5, 0.5]]).compute()
    1.0
    """

    def __init__(
        self,
        written: float | ArrayLike = 1.0,
        written_range: Bounds | None = None,
        threshold: float = 0.0,
    ) -> None:
        self.written = check_written(written)
        self.written_range = check_range(written_range)
        self.threshold = F1(threshold=threshold).threshold

    def _statistics(self, batch: Batch) -> NDArray[np.float64]:
        """Return Σ 1/c and Σ 1/c² of hits, then of all written labels, the predicted and the written labels."""
        shares = expand_written(self.written, batch.n_labels)
        hits, predicted, positives, _ = F1(threshold=self.threshold)._statistics(batch)
        powers = (1 / shares, 1 / shares**2)
        return np.array(
            [*(counts @ power for counts in (hits, positives) for power in powers), predicted.sum(), positives.sum()]
        )

    def _value(self, total: NDArray[np.float64]) -> float:
        return clip_estimate(self, *self._estimate(total, 1.0))

    def interval(self) -> Bounds:
        """Return a 95 % interval of the value that these rows would have with all their true labels."""
        self.compute()
        total = np.asarray(self._total)
        factors = find_factors(self.written_range, total[5] / max(total[2], 1.0))
        return join_bounds([self._estimate(total, factor) for factor in factors])

    def _estimate(self, total: NDArray, factor: float) -> tuple[float, float]:
        """Return the estimate and its standard error, to first order in TP and P."""
        hits, positives = total[0] / factor, total[2] / factor
        of_hits, of_all = (total[i + 1] / factor**2 - total[i] / factor for i in (0, 2))
        size = total[4] + positives
        if size == 0:
            return float("nan"), 0.0
        by_hits, by_all = 2 / size, -2 * hits / size**2
        variance = (by_hits + by_all) ** 2 * of_hits + by_all**2 * (of_all - of_hits)
        return 2 * hits / size, float(np.sqrt(max(variance, 0.0)))


def deconvolve(histogram: NDArray, share: float) -> NDArray[np.float64]:
    """Return weights w of numbers m = 1, 2, … such that t, binomial of (m − 1, share), has this histogram.

    They maximise the likelihood Σ_t histogram(t) log Σ_m w_m P(t | m); each EM step keeps Σ w = Σ histogram.

    >>> deconvolve(np.array([3.0, 0.0, 1.0]), 1.0).tolist()
    [3.0, 0.0, 1.0]
    """
    last = int(np.flatnonzero(histogram)[-1]) + 1 if histogram.any() else 1
    if share >= 1:
        return histogram[:last].astype(np.float64)
    from scipy.stats import binom  # late: `import labelgap` stays fast

    size = int(np.ceil(last / share + 3 * np.sqrt(last) / share))
    chances = binom.pmf(np.arange(last)[:, None], np.arange(size)[None, :], share)
    weights = np.full(size, histogram.sum() / size)
    for _ in range(EM_STEPS):
        weights = weights * ((histogram[:last] / np.maximum(chances @ weights, 1e-300)) @ chances)
    return weights


def clip_estimate(metric: Any, value: float, error: float) -> float:
    """Return the estimate, at most 1; raise ValueError if it is significantly above 1."""
    if value - STANDARD_ERRORS_95 * max(error, 1e-12) > 1 + 1e-9:
        raise ValueError(
            f"{metric!r} is {value:.3f} with a standard error of {error:.3f}, and no true value exceeds 1: the given "
            "share of written labels is too small, or some written labels are wrong."
        )
    return float(min(value, 1.0))


def join_bounds(estimates: list[tuple[float, float]]) -> Bounds:
    """Return the smallest interval with the 95 % intervals of estimates and their standard errors, within 0 and 1.

    >>> join_bounds([(0.5, 0.0), (0.98, 0.1)])
    (0.5, 1.0)
    """
    low = min(value - STANDARD_ERRORS_95 * error for value, error in estimates)
    high = max(value + STANDARD_ERRORS_95 * error for value, error in estimates)
    return float(np.clip(low, 0.0, 1.0)), float(np.clip(high, 0.0, 1.0))


def find_factors(written_range: Bounds | None, mean: float) -> list[float]:
    """Return the factors that take the mean share to the bounds of its range; 1 without a range."""
    return [1.0] if written_range is None or mean == 0 else [bound / mean for bound in written_range]


def check_written(written: float | ArrayLike) -> float | NDArray[np.float64]:
    """Return the shares; raise ValueError if one is not above 0 and at most 1.

    >>> check_written(0.5)
    0.5
    """
    shares = np.asarray(written, np.float64)
    if shares.ndim > 1 or not ((shares > 0) & (shares <= 1)).all():
        raise ValueError(
            f"written={written!r} is not a share; pass a number above 0 and at most 1, or one for each label."
        )
    return float(shares) if shares.ndim == 0 else shares


def check_range(written_range: Bounds | None) -> Bounds | None:
    """Return the bounds of the share; raise ValueError if they are not rising shares.

    >>> check_range((0.5, 0.9))
    (0.5, 0.9)
    """
    if written_range is None:
        return None
    low, high = (float(check_written(bound)) for bound in written_range)
    if low > high:
        raise ValueError(f"written_range={written_range!r} falls; pass (low, high).")
    return low, high


def expand_written(written: float | NDArray[np.float64], n_labels: int) -> NDArray[np.float64]:
    """Return the share of each label; raise ValueError if there is another number of shares.

    >>> expand_written(0.5, 2)
    array([0.5, 0.5])
    """
    if np.ndim(written) and len(written) != n_labels:  # type: ignore[arg-type]
        raise ValueError(f"written has {len(written)} shares and Y_true {n_labels} labels; pass one for each label.")  # type: ignore[arg-type]
    return np.broadcast_to(np.asarray(written, np.float64), (n_labels,))
