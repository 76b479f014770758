"""Metrics of the k best known cells of each row: precision, recall, nDCG, and the propensity-scored ones.

The propensity-scored metrics give more weight to labels whose positives are often missing. They come from Jain,
Prabhu and Varma, "Extreme multi-label loss functions for recommendation, tagging, ranking & other missing label
applications", KDD 2016. Their sums are divided by the best value that any ranking could reach, as in the Extreme
Classification Repository.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelgap.metrics.base import Metric, Ratio, check_option, check_positive_integer
from labelgap.metrics.batch import Batch
from labelgap.observations.arguments import LabelsLike, ScoresLike

Empty = Literal["skip", "zero"]


def standard_metrics(
    ks: Iterable[int] = (1, 3, 5), propensities: ArrayLike | None = None, empty: Empty = "skip"
) -> dict[str, Metric]:
    """Return the metrics that tables of extreme classification report.

    Parameters
    ----------
    ks : iterable of int, default=(1, 3, 5)
        The values of k.
    propensities : array-like of shape (L,), optional
        The propensity of each label, see :func:`labelgap.observations.label_propensities`. If given, PSP@k and
        PSnDCG@k are returned too.
    empty : {"skip", "zero"}, default="skip"
        Whether P@k and nDCG@k leave out rows without known positives or count them as 0.

    Returns
    -------
    dict of Metric
        P@k and nDCG@k for each k, and with ``propensities`` PSP@k and PSnDCG@k.

    Examples
    --------
    >>> list(standard_metrics())
    ['P@1', 'P@3', 'P@5', 'nDCG@1', 'nDCG@3', 'nDCG@5']
    """
    ks = tuple(ks)
    metrics: dict[str, Metric] = {f"P@{k}": PrecisionAtK(k, empty) for k in ks}
    metrics |= {f"nDCG@{k}": NDCGAtK(k, empty) for k in ks}
    if propensities is not None:
        metrics |= {f"PSP@{k}": PSPrecisionAtK(k, propensities) for k in ks}
        metrics |= {f"PSnDCG@{k}": PSNDCGAtK(k, propensities) for k in ks}
    return metrics


class MeanAtK(Ratio):
    """The mean over rows of a value that depends on the k best known cells; subclasses define the value."""

    def __init__(self, k: int = 1, empty: Empty = "skip") -> None:
        self.k = check_positive_integer("k", k)
        self.empty = check_option("empty", empty, ("skip", "zero"))

    @property
    def depth(self) -> int:
        return self.k

    @abstractmethod
    def _row_values(self, hits: NDArray[np.bool_], n_positives: NDArray[np.integer]) -> NDArray[np.float64]:
        """Return the value of each row, 0 for rows without positives."""

    def _statistics(self, batch: Batch) -> NDArray[np.float64]:
        values = self._row_values(batch.ranking(self.k).hits, batch.n_positives)
        count = len(values) if self.empty == "zero" else np.count_nonzero(batch.n_positives)
        return np.array([values.sum(), count], np.float64)


class PrecisionAtK(MeanAtK):
    """P@k = (positives among the k best known cells) / k, mean over rows.

    The divisor is k also for a row with fewer than k known cells.

    Parameters
    ----------
    k : int, default=1
        Number of top labels of each row.
    empty : {"skip", "zero"}, default="skip"
        Whether rows without known positives are left out or count as 0 (the convention of the Extreme Classification
        Repository).

    Examples
    --------
    >>> PrecisionAtK(2).update([[1, 0, 1], [0, 1, 0]], [[0.9, 0.8, 0.1], [0.2, 0.9, 0.5]]).compute()
    0.5
    """

    def _row_values(self, hits: NDArray[np.bool_], n_positives: NDArray[np.integer]) -> NDArray[np.float64]:
        return hits.sum(axis=1) / self.k


class RecallAtK(MeanAtK):
    """Recall@k = (positives among the k best known cells) / (known positives of the row), mean over rows.

    Parameters
    ----------
    k, empty
        As in :class:`PrecisionAtK`.

    Examples
    --------
    >>> RecallAtK(2).update([[1, 0, 1], [0, 1, 0]], [[0.9, 0.8, 0.1], [0.2, 0.9, 0.5]]).compute()
    0.75
    """

    def _row_values(self, hits: NDArray[np.bool_], n_positives: NDArray[np.integer]) -> NDArray[np.float64]:
        return hits.sum(axis=1) / np.maximum(n_positives, 1)


class NDCGAtK(MeanAtK):
    """nDCG@k = DCG@k / best DCG@k, mean over rows, with DCG@k = Σ over ranks r ≤ k of hit_r / log2(1 + r).

    The best DCG@k has hits at the ranks 1 to min(k, known positives of the row).

    Parameters
    ----------
    k, empty
        As in :class:`PrecisionAtK`.

    Examples
    --------
    >>> round(NDCGAtK(3).update([[0, 1, 0]], [[0.9, 0.8, 0.1]]).compute(), 4)
    0.6309
    """

    def _row_values(self, hits: NDArray[np.bool_], n_positives: NDArray[np.integer]) -> NDArray[np.float64]:
        return hits @ rank_discounts(hits.shape[1]) / ideal_dcg(self.k, n_positives)


class PropensityScoredAtK(Ratio):
    """The gains of the k best known cells over the best possible gains, each summed over the rows."""

    def __init__(self, k: int, propensities: ArrayLike) -> None:
        self.k = check_positive_integer("k", k)
        self.propensities = _check_propensities(propensities)

    @property
    def depth(self) -> int:
        return self.k

    def _rank_gains(self, k: int) -> NDArray[np.float64]:
        """Return the factor of a hit at each of the ranks 1 to k."""
        return np.ones(k)

    def _row_scales(self, n_positives: NDArray[np.integer]) -> NDArray[np.float64]:
        """Return the divisor of the gains of each row."""
        return np.ones(len(n_positives))

    def _statistics(self, batch: Batch) -> NDArray[np.float64]:
        if len(self.propensities) != batch.n_labels:
            raise ValueError(
                f"propensities has {len(self.propensities)} values and Y_true has {batch.n_labels} labels; "
                "pass one propensity for each label."
            )
        weights, ranking = 1 / self.propensities, batch.ranking(self.k)
        rank_gains = self._rank_gains(ranking.hits.shape[1])
        gains = np.where(ranking.hits, weights[ranking.indices], 0.0) @ rank_gains
        scales = self._row_scales(batch.n_positives)
        return np.array([(gains / scales).sum(), (_compute_best_gains(batch, weights, rank_gains) / scales).sum()])


class PSPrecisionAtK(PropensityScoredAtK):
    """PSP@k = Σ_i Σ over hits l among the k best of row i of 1 / p_l, divided by its best possible value.

    The best ranking puts the known positives with the lowest p_l first. Rows without known positives add nothing to
    either sum.

    Parameters
    ----------
    k : int
        Number of top labels of each row.
    propensities : array-like of shape (L,)
        p_l in (0, 1] of each label (not 1 / p_l), estimated on the training labels by
        :func:`labelgap.observations.label_propensities`.

    Examples
    --------
    The hit on label 0 gains 1 / 0.5 = 2; a hit on label 1 would have gained 1 / 0.25 = 4.

    >>> PSPrecisionAtK(1, [0.5, 0.25]).update([[1, 1]], [[0.9, 0.1]]).compute()
    0.5
    """


class PSNDCGAtK(PropensityScoredAtK):
    """PSnDCG@k = Σ_i PSDCG_i / I_i, divided by its best possible value.

    PSDCG_i = Σ over hits l at ranks r ≤ k of row i of 1 / (p_l log2(1 + r)), and I_i = Σ over
    r ≤ min(k, known positives of row i) of 1 / log2(1 + r), in both sums. The repository's evaluation programs use
    this I_i; the constant of the paper, Σ over r ≤ k, would cancel out. Rows without known positives add nothing.

    Parameters
    ----------
    k, propensities
        As in :class:`PSPrecisionAtK`.

    Examples
    --------
    The only positive has rank 2: it gains 1 / log2(3) of what it would gain at rank 1.

    >>> round(PSNDCGAtK(2, [0.5, 0.25]).update([[0, 1]], [[0.9, 0.1]]).compute(), 4)
    0.6309
    """

    def _rank_gains(self, k: int) -> NDArray[np.float64]:
        return rank_discounts(k)

    def _row_scales(self, n_positives: NDArray[np.integer]) -> NDArray[np.float64]:
        return ideal_dcg(self.k, n_positives)


def precision_at_k(Y_true: LabelsLike, scores: ScoresLike, k: int = 1, empty: Empty = "skip") -> float:
    """Return :class:`PrecisionAtK` of one batch.

    >>> precision_at_k([[1, 0], [0, 1]], [[0.9, 0.1], [0.8, 0.2]])
    0.5
    """
    return PrecisionAtK(k, empty).update(Y_true, scores).compute()


def recall_at_k(Y_true: LabelsLike, scores: ScoresLike, k: int = 1, empty: Empty = "skip") -> float:
    """Return :class:`RecallAtK` of one batch.

    >>> recall_at_k([[1, 1], [0, 1]], [[0.9, 0.1], [0.1, 0.2]])
    0.75
    """
    return RecallAtK(k, empty).update(Y_true, scores).compute()


def ndcg_at_k(Y_true: LabelsLike, scores: ScoresLike, k: int = 1, empty: Empty = "skip") -> float:
    """Return :class:`NDCGAtK` of one batch.

    >>> ndcg_at_k([[1, 1, 0]], [[0.9, 0.8, 0.1]], k=3)
    1.0
    """
    return NDCGAtK(k, empty).update(Y_true, scores).compute()


def psp_at_k(Y_true: LabelsLike, scores: ScoresLike, propensities: ArrayLike, k: int = 1) -> float:
    """Return :class:`PSPrecisionAtK` of one batch.

    >>> psp_at_k([[1, 1]], [[0.1, 0.9]], [0.5, 0.25])
    1.0
    """
    return PSPrecisionAtK(k, propensities).update(Y_true, scores).compute()


def psndcg_at_k(Y_true: LabelsLike, scores: ScoresLike, propensities: ArrayLike, k: int = 1) -> float:
    """Return :class:`PSNDCGAtK` of one batch.

    >>> psndcg_at_k([[1, 1]], [[0.1, 0.9]], [0.5, 0.25], k=2)
    1.0
    """
    return PSNDCGAtK(k, propensities).update(Y_true, scores).compute()


def rank_discounts(k: int) -> NDArray[np.float64]:
    """Return 1 / log2(1 + rank) for the ranks 1 to k.

    >>> rank_discounts(3).round(4).tolist()
    [1.0, 0.6309, 0.5]
    """
    return 1 / np.log2(np.arange(2, k + 2))


def ideal_dcg(k: int, n_positives: NDArray[np.integer]) -> NDArray[np.float64]:
    """Return the best possible DCG@k of rows, given their numbers of positives; 1 for rows without positives.

    >>> ideal_dcg(2, np.array([0, 1, 5])).round(4).tolist()
    [1.0, 1.0, 1.6309]
    """
    depth = min(k, int(n_positives.max(initial=0)))
    best = np.concatenate([[1.0], np.cumsum(rank_discounts(depth))])
    return best[np.minimum(n_positives, depth)]


def _compute_best_gains(batch: Batch, weights: NDArray, rank_gains: NDArray) -> NDArray[np.float64]:
    """Return for each row the gain of the ranking that puts its positives first, in falling order of weight."""
    positives, n = batch.labels.positives, len(batch.labels)
    rows = np.repeat(np.arange(n), batch.n_positives)
    sorted_weights = weights[positives.indices]
    sorted_weights = sorted_weights[np.lexsort((-sorted_weights, rows))]
    ranks = np.arange(len(rows)) - positives.indptr[rows]
    gains = sorted_weights * np.append(rank_gains, 0.0)[np.minimum(ranks, len(rank_gains))]
    return np.bincount(rows, gains, minlength=n).astype(np.float64)


def _check_propensities(propensities: ArrayLike) -> NDArray[np.float64]:
    p = np.array(propensities, np.float64)
    if p.ndim != 1:
        raise ValueError(f"propensities has shape {p.shape}; pass one propensity for each label, shape (L,).")
    wrong = ~((p > 0) & (p <= 1))
    if wrong.any():
        label = int(np.argmax(wrong))
        raise ValueError(
            f"propensities holds {p[label]} for label {label}; a propensity is above 0 and at most 1 "
            "(pass p, not the weight 1 / p)."
        )
    return p
