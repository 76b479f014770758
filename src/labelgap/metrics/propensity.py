"""Propensity-scored metrics: a hit on a label that is often forgotten weighs more.

Jain, Prabhu and Varma, "Extreme multi-label loss functions for recommendation, tagging, ranking & other missing label
applications", KDD 2016. The sums are divided by the best that any ranking could reach, as the Extreme Classification
Repository does.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelgap.metrics.at_k import ideal_dcg, rank_discounts
from labelgap.metrics.base import Ratio, positive_integer
from labelgap.metrics.batch import Batch


class PropensityScoredAtK(Ratio):
    """Gains of the k best known cells over the best gains possible, each summed over the rows.

    Parameters
    ----------
    k : int
        How many labels of each row are looked at.
    propensities : array-like of shape (L,)
        p_l in (0, 1] of each label, estimated on the training labels by
        :func:`labelgap.observations.label_propensities`; not 1 / p_l.
    """

    def __init__(self, k: int, propensities: ArrayLike) -> None:
        self.k = positive_integer("k", k)
        self.propensities = _check_propensities(propensities)

    @property
    def depth(self) -> int:
        return self.k

    @abstractmethod
    def _place_values(self, k: int) -> NDArray[np.float64]:
        """Return what a hit at the ranks 1 to k is worth."""

    @abstractmethod
    def _row_scales(self, n_positives: NDArray[np.integer]) -> NDArray[np.float64]:
        """Return by what the gains of each row are divided."""

    def _statistics(self, batch: Batch) -> NDArray[np.float64]:
        if len(self.propensities) != batch.n_labels:
            raise ValueError(
                f"propensities has {len(self.propensities)} values and Y_true has {batch.n_labels} labels; "
                "pass one propensity for each label."
            )
        weights, ranking = 1 / self.propensities, batch.ranking(self.k)
        places = self._place_values(ranking.hits.shape[1])
        gains = np.where(ranking.hits, weights[ranking.indices], 0.0) @ places
        scales = self._row_scales(batch.n_positives)
        return np.array([(gains / scales).sum(), (_best_gains(batch, weights, places) / scales).sum()])


def _best_gains(batch: Batch, weights: NDArray, places: NDArray) -> NDArray[np.float64]:
    """Return for each row the gain of the ranking that puts its positives first, the heaviest ahead."""
    positives, n = batch.labels.positives, len(batch.labels)
    rows = np.repeat(np.arange(n), batch.n_positives)
    heavy = weights[positives.indices]
    heavy = heavy[np.lexsort((-heavy, rows))]
    place = np.arange(len(rows)) - positives.indptr[rows]
    gains = heavy * np.append(places, 0.0)[np.minimum(place, len(places))]
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


class PSPrecisionAtK(PropensityScoredAtK):
    """PSP@k = Σ_i Σ over hits l among the k best of row i of 1 / p_l, divided by its best possible value.

    The best ranking puts the known positives with the lowest p_l first. Rows without known positives add nothing to
    either sum.

    Parameters
    ----------
    k : int
        How many labels of each row are looked at.
    propensities : array-like of shape (L,)
        p_l in (0, 1], see :func:`labelgap.observations.label_propensities`.

    Examples
    --------
    The hit on label 0 gains 1 / 0.5 = 2; a hit on label 1 would have gained 1 / 0.25 = 4.

    >>> PSPrecisionAtK(1, [0.5, 0.25]).update([[1, 1]], [[0.9, 0.1]]).compute()
    0.5
    """

    def _place_values(self, k: int) -> NDArray[np.float64]:
        return np.ones(k)

    def _row_scales(self, n_positives: NDArray[np.integer]) -> NDArray[np.float64]:
        return np.ones(len(n_positives))


class PSNDCGAtK(PropensityScoredAtK):
    """PSnDCG@k = Σ_i PSDCG_i / I_i, divided by its best possible value.

    PSDCG_i = Σ over hits l at ranks r ≤ k of row i of 1 / (p_l log2(1 + r)), and I_i = Σ over
    r ≤ min(k, known positives of row i) of 1 / log2(1 + r), in both sums. That is how the evaluation programs of the
    repository reckon; the paper's constant Σ over r ≤ k would cancel out. Rows without known positives add nothing.

    Parameters
    ----------
    k : int
        How many labels of each row are looked at.
    propensities : array-like of shape (L,)
        p_l in (0, 1], see :func:`labelgap.observations.label_propensities`.

    Examples
    --------
    The only positive comes second: 1 / log2(3) of what the first place would have gained.

    >>> round(PSNDCGAtK(2, [0.5, 0.25]).update([[0, 1]], [[0.9, 0.1]]).compute(), 4)
    0.6309
    """

    def _place_values(self, k: int) -> NDArray[np.float64]:
        return rank_discounts(k)

    def _row_scales(self, n_positives: NDArray[np.integer]) -> NDArray[np.float64]:
        return ideal_dcg(self.k, n_positives)


def psp_at_k(Y_true: Any, scores: Any, propensities: ArrayLike, k: int = 1) -> float:
    """Return :class:`PSPrecisionAtK` of one batch.

    >>> psp_at_k([[1, 1]], [[0.1, 0.9]], [0.5, 0.25])
    1.0
    """
    return PSPrecisionAtK(k, propensities).update(Y_true, scores).compute()


def psndcg_at_k(Y_true: Any, scores: Any, propensities: ArrayLike, k: int = 1) -> float:
    """Return :class:`PSNDCGAtK` of one batch.

    >>> psndcg_at_k([[1, 1]], [[0.1, 0.9]], [0.5, 0.25], k=2)
    1.0
    """
    return PSNDCGAtK(k, propensities).update(Y_true, scores).compute()
