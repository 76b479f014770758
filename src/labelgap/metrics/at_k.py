"""Precision, recall and nDCG of the k best known cells of each row."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from labelgap.metrics.base import Ratio, one_of, positive_integer
from labelgap.metrics.batch import Batch

Empty = Literal["skip", "zero"]


def rank_discounts(k: int) -> NDArray[np.float64]:
    """Return 1 / log2(1 + rank) for the ranks 1 to k.

    >>> rank_discounts(3).round(4).tolist()
    [1.0, 0.6309, 0.5]
    """
    return 1 / np.log2(np.arange(2, k + 2))


def ideal_dcg(k: int, n_positives: NDArray[np.integer]) -> NDArray[np.float64]:
    """Return the best DCG@k of rows with so many positives; 1 for rows with none, which nothing can reach.

    >>> ideal_dcg(2, np.array([0, 1, 5])).round(4).tolist()
    [1.0, 1.0, 1.6309]
    """
    depth = min(k, int(n_positives.max(initial=0)))
    best = np.concatenate([[1.0], np.cumsum(rank_discounts(depth))])
    return best[np.minimum(n_positives, depth)]


class MeanAtK(Ratio):
    """The mean over rows of a number made of the k best known cells.

    Parameters
    ----------
    k : int
        How many labels of each row are looked at.
    empty : {"skip", "zero"}
        What a row without known positives is: left out, or counted as 0 (the convention of the Extreme
        Classification Repository).
    """

    def __init__(self, k: int = 1, empty: Empty = "skip") -> None:
        self.k = positive_integer("k", k)
        self.empty = one_of("empty", empty, ("skip", "zero"))

    @property
    def depth(self) -> int:
        return self.k

    @abstractmethod
    def _of_rows(self, hits: NDArray[np.bool_], n_positives: NDArray[np.integer]) -> NDArray[np.float64]:
        """Return one number for each row, 0 where there are no positives."""

    def _statistics(self, batch: Batch) -> NDArray[np.float64]:
        of_rows = self._of_rows(batch.ranking(self.k).hits, batch.n_positives)
        count = len(of_rows) if self.empty == "zero" else np.count_nonzero(batch.n_positives)
        return np.array([of_rows.sum(), count], np.float64)


class PrecisionAtK(MeanAtK):
    """P@k = (positives among the k best known cells) / k, mean over rows.

    A row with fewer than k known cells is divided by k too: the places left open are misses.

    Parameters
    ----------
    k : int
        How many labels of each row are looked at.
    empty : {"skip", "zero"}
        Rows without known positives: left out, or counted as 0.

    Examples
    --------
    >>> PrecisionAtK(2).update([[1, 0, 1], [0, 1, 0]], [[0.9, 0.8, 0.1], [0.2, 0.9, 0.5]]).compute()
    0.5
    """

    def _of_rows(self, hits: NDArray[np.bool_], n_positives: NDArray[np.integer]) -> NDArray[np.float64]:
        return hits.sum(axis=1) / self.k


class RecallAtK(MeanAtK):
    """Recall@k = (positives among the k best known cells) / (known positives of the row), mean over rows.

    Parameters
    ----------
    k : int
        How many labels of each row are looked at.
    empty : {"skip", "zero"}
        Rows without known positives: left out, or counted as 0.

    Examples
    --------
    >>> RecallAtK(2).update([[1, 0, 1], [0, 1, 0]], [[0.9, 0.8, 0.1], [0.2, 0.9, 0.5]]).compute()
    0.75
    """

    def _of_rows(self, hits: NDArray[np.bool_], n_positives: NDArray[np.integer]) -> NDArray[np.float64]:
        return hits.sum(axis=1) / np.maximum(n_positives, 1)


class NDCGAtK(MeanAtK):
    """nDCG@k = DCG@k / best DCG@k, mean over rows, with DCG@k = Σ over ranks r ≤ k of hit_r / log2(1 + r).

    The best DCG@k has hits at the ranks 1 to min(k, known positives of the row).

    Parameters
    ----------
    k : int
        How many labels of each row are looked at.
    empty : {"skip", "zero"}
        Rows without known positives: left out, or counted as 0.

    Examples
    --------
    >>> round(NDCGAtK(3).update([[0, 1, 0]], [[0.9, 0.8, 0.1]]).compute(), 4)
    0.6309
    """

    def _of_rows(self, hits: NDArray[np.bool_], n_positives: NDArray[np.integer]) -> NDArray[np.float64]:
        return hits @ rank_discounts(hits.shape[1]) / ideal_dcg(self.k, n_positives)


def precision_at_k(Y_true: Any, scores: Any, k: int = 1, empty: Empty = "skip") -> float:
    """Return :class:`PrecisionAtK` of one batch.

    >>> precision_at_k([[1, 0], [0, 1]], [[0.9, 0.1], [0.8, 0.2]])
    0.5
    """
    return PrecisionAtK(k, empty).update(Y_true, scores).compute()


def recall_at_k(Y_true: Any, scores: Any, k: int = 1, empty: Empty = "skip") -> float:
    """Return :class:`RecallAtK` of one batch.

    >>> recall_at_k([[1, 1], [0, 1]], [[0.9, 0.1], [0.1, 0.2]])
    0.75
    """
    return RecallAtK(k, empty).update(Y_true, scores).compute()


def ndcg_at_k(Y_true: Any, scores: Any, k: int = 1, empty: Empty = "skip") -> float:
    """Return :class:`NDCGAtK` of one batch.

    >>> ndcg_at_k([[1, 1, 0]], [[0.9, 0.8, 0.1]], k=3)
    1.0
    """
    return NDCGAtK(k, empty).update(Y_true, scores).compute()
