"""Decision values of rows, in the forms that estimators ask for: blocks, the best k, known cells."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import gen_batches

from labelgap.kernels import Backend
from labelgap.observations import Labels

CELLS_PER_BLOCK = 1 << 24


class Scores(ABC):
    """The decision values of n rows: above 0 where the answer is yes.

    A subclass gives them block by block; it overrides :meth:`topk` and :meth:`known` where it can rank, or score
    single cells, without making whole blocks.
    """

    def __init__(self, kernels: Backend) -> None:
        self.kernels = kernels

    @abstractmethod
    def blocks(self) -> Iterator[NDArray]:
        """Yield the decision values of some rows after the other, as (rows, L) arrays."""

    def dense(self) -> NDArray:
        """Return all decision values, an (n, L) array."""
        return np.concatenate(list(self.blocks()))

    def positives(self) -> sp.csr_array:
        """Return where the answer is yes, as a sparse matrix of True."""
        return sp.csr_array(sp.vstack([sp.csr_array(block > 0) for block in self.blocks()]))

    def topk(self, k: int) -> tuple[NDArray, NDArray]:
        """Return the indices and values of the k best labels of each row, best first, two (n, k) arrays."""
        best = [self.kernels.best_in_rows(block, k) for block in self.blocks()]
        indices, values = (np.concatenate(parts) for parts in zip(*best, strict=True))
        return indices, values

    def known(self, labels: Labels) -> sp.csr_array:
        """Return the decision values at the known cells of ``labels``, as a sparse matrix with that pattern."""
        pattern, parts, start = known_pattern(labels), [], 0
        for block in self.blocks():
            cells = pattern[start : start + len(block)]
            rows = np.repeat(np.arange(len(block)), np.diff(cells.indptr))
            parts.append(block[rows, cells.indices])
            start += len(block)
        return with_pattern(np.concatenate(parts), pattern)


class BlockScores(Scores):
    """Decision values known by their blocks alone: ``make()`` yields them."""

    def __init__(self, make: Callable[[], Iterator[NDArray]], kernels: Backend) -> None:
        super().__init__(kernels)
        self._make = make

    def blocks(self) -> Iterator[NDArray]:
        return self._make()


class FactorScores(Scores):
    """s = B Hᵀ − threshold, for the factors B (n×k) of rows and H (L×k) of labels."""

    def __init__(self, B: NDArray, H: NDArray, threshold: float, kernels: Backend) -> None:
        super().__init__(kernels)
        self.B, self.H, self.threshold = B, H, threshold

    def blocks(self) -> Iterator[NDArray]:
        for rows in row_blocks(self.B, len(self.H)):
            values = self.kernels.matmul(rows, self.H.T)
            values -= values.dtype.type(self.threshold)
            yield values

    def topk(self, k: int) -> tuple[NDArray, NDArray]:
        indices, values = self.kernels.topk(self.B, self.H, k)
        return indices, values - values.dtype.type(self.threshold)

    def known(self, labels: Labels) -> sp.csr_array:
        pattern = known_pattern(labels)
        values = self.kernels.sddmm(self.kernels.prepare(pattern, self.B.dtype), self.B, self.H)
        values -= values.dtype.type(self.threshold)
        return with_pattern(values, pattern)


def row_blocks(X: Any, n_labels: int, *, arrays: int = 1) -> Iterator[Any]:
    """Yield some rows of X after the other, so that their scores of every label fit in memory.

    ``arrays`` is the number of arrays of that size that the scores of a block take to make.
    """
    for rows in gen_batches(X.shape[0], max(1, CELLS_PER_BLOCK // arrays // n_labels)):
        yield X[rows]


def known_pattern(labels: Labels) -> sp.csr_array:
    """Return the known cells as a pattern, all of them where nothing is missing."""
    return labels.known if labels.known is not None else sp.csr_array(np.ones(labels.shape, bool))


def with_pattern(values: Any, pattern: sp.csr_array) -> sp.csr_array:
    """Return a sparse matrix with these values at the stored cells of a pattern."""
    return sp.csr_array((values, pattern.indices, pattern.indptr), shape=pattern.shape)
