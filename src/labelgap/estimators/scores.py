"""Decision values of rows: in blocks, the k best of each row, or at known cells."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.calibration.scored_cells import CellChooser, ScoredCells, choose_cells, concatenate_cells
from labelgap.kernels import Backend
from labelgap.observations import Labels
from labelgap.portable import SMALL_MARGIN
from labelgap.runtime import row_blocks

MAX_SCORES_PER_BLOCK = 1 << 24


class Scores(ABC):
    """The decision values of n rows: above 0 where the label is predicted.

    A subclass yields them in blocks of rows. It overrides :meth:`topk` and :meth:`known` if it can rank labels or
    score single cells faster.
    """

    def __init__(self, kernels: Backend) -> None:
        self.kernels = kernels

    @abstractmethod
    def blocks(self) -> Iterator[NDArray]:
        """Yield the decision values of consecutive blocks of rows, as (rows, L) arrays."""

    def dense(self) -> NDArray:
        """Return all decision values, an (n, L) array."""
        return np.concatenate(list(self.blocks()))

    def positives(self) -> sp.csr_array:
        """Return the predicted labels as a sparse matrix of True."""
        return sp.csr_array(sp.vstack([sp.csr_array(block > 0) for block in self.blocks()]))

    def topk(self, k: int) -> tuple[NDArray, NDArray]:
        """Return the indices and values of the k best labels of each row, best first, two (n, k) arrays."""
        return self._rank_blocks((self.kernels.array(block, block.dtype) for block in self.blocks()), k)

    def _rank_blocks(self, blocks: Iterable[Any], k: int) -> tuple[NDArray, NDArray]:
        """Return the result of :meth:`topk` from blocks on the device of the kernels."""
        best = [map(self.kernels.to_numpy, self.kernels.best_in_rows(block, k)) for block in blocks]
        indices, values = (np.concatenate(parts) for parts in zip(*best, strict=True))
        return indices, values

    def known(self, labels: Labels) -> sp.csr_array:
        """Return the decision values at the known cells of ``labels``, as a sparse matrix with these cells."""
        pattern, parts, start = known_pattern(labels), [], 0
        for block in self.blocks():
            cells = pattern[start : start + len(block)]
            rows = np.repeat(np.arange(len(block)), np.diff(cells.indptr))
            parts.append(block[rows, cells.indices])
            start += len(block)
        return with_pattern(np.concatenate(parts), pattern)

    def choose_cells(
        self, rows: NDArray, labels: Labels, candidates: int, n_sampled: int, rng: np.random.RandomState
    ) -> ScoredCells:
        """Return scored cells of each row, whose number is in ``rows``: see :func:`choose_cells`."""
        parts, start = [], 0
        for block in self.blocks():
            part = slice(start, start + len(block))
            block = block.astype(np.result_type(block.dtype, np.float32), copy=False)
            parts.append(choose_cells(block, rows[part], labels[part], candidates, n_sampled, rng))
            start = part.stop
        return concatenate_cells(parts)


# A function of training rows and held-out rows, as indices, that returns the scores of the held-out rows by a model
# that was fitted on the training rows. `_prepare_folds` of an estimator returns it if its folds can share work.
FoldScorer = Callable[[NDArray, NDArray], Scores]


class BlockScores(Scores):
    """Decision values from a function that yields their blocks."""

    def __init__(self, make: Callable[[], Iterator[NDArray]], kernels: Backend) -> None:
        super().__init__(kernels)
        self._make = make

    def blocks(self) -> Iterator[NDArray]:
        return self._make()


class LabelScores(Scores):
    """Decision values from a function that yields blocks of labels and the scores of all rows for them."""

    def __init__(
        self,
        make: Callable[[], Iterator[tuple[NDArray, NDArray]]],
        shape: tuple[int, int],
        dtype: Any,
        kernels: Backend,
    ) -> None:
        super().__init__(kernels)
        self._make, self._shape, self._dtype = make, shape, dtype

    def blocks(self) -> Iterator[NDArray]:
        values = np.empty(self._shape, self._dtype)
        for block, scores in self._make():
            values[:, block] = scores
        yield values

    def choose_cells(
        self, rows: NDArray, labels: Labels, candidates: int, n_sampled: int, rng: np.random.RandomState
    ) -> ScoredCells:
        chooser = CellChooser(labels, candidates, n_sampled, rng, self._dtype)
        for block, scores in self._make():
            chooser.add(block, scores)
        return chooser.choose(rows)


class ThresholdedScores(Scores):
    """The scores of a model less a threshold for each label; the order of labels stays that of the scores.

    In the rows that ``always_best`` marks, the best label is at least slightly above its threshold.
    """

    def __init__(self, scores: Scores, thresholds: NDArray, always_best: NDArray[np.bool_]) -> None:
        super().__init__(scores.kernels)
        self.scores, self.thresholds, self.always_best = scores, thresholds, always_best

    def blocks(self) -> Iterator[NDArray]:
        start = 0
        for block in self.scores.blocks():
            yield self.decide_rows(block, start)
            start += len(block)

    def decide_rows(self, block: NDArray, start: int = 0) -> NDArray:
        """Return decision values from the scores of all labels of some rows, of which ``start`` is the first."""
        values = block - self.thresholds.astype(block.dtype)
        rows = np.flatnonzero(self.always_best[start : start + len(block)])
        best = rows, block[rows].argmax(axis=1)
        values[best] = np.maximum(values[best], SMALL_MARGIN)
        return values

    def topk(self, k: int) -> tuple[NDArray, NDArray]:
        indices, values = self.scores.topk(k)
        return indices, self.decide(values, indices)

    def decide(self, scores: NDArray, indices: NDArray) -> NDArray:
        """Return decision values from the scores of the best labels of each row."""
        values = scores - self.thresholds.astype(scores.dtype)[indices]
        values[self.always_best, 0] = np.maximum(values[self.always_best, 0], SMALL_MARGIN)
        return values

    def known(self, labels: Labels) -> sp.csr_array:
        scores = self.scores.known(labels)
        values = scores.data - self.thresholds.astype(scores.dtype)[scores.indices]
        if self.always_best.any() and scores.nnz:
            best = np.where(self.always_best, self.scores.topk(1)[0][:, 0], -1)
            is_best = scores.indices == np.repeat(best, np.diff(scores.indptr))
            values[is_best] = np.maximum(values[is_best], SMALL_MARGIN)
        return with_pattern(values, scores)


class FactorScores(Scores):
    """s = B Hᵀ − threshold, for the factors B (n×k) of rows and H (L×k) of labels, on the device of the kernels."""

    def __init__(self, B: Any, H: NDArray, threshold: float, kernels: Backend) -> None:
        super().__init__(kernels)
        self.B, self.H, self.threshold = kernels.array(B, B.dtype), kernels.array(H, H.dtype), threshold

    def blocks(self) -> Iterator[NDArray]:
        for rows in split_rows(self.B, self.H.shape[0]):
            yield self._shift(self.kernels.matmul(rows, self.H.T))

    def topk(self, k: int) -> tuple[NDArray, NDArray]:
        indices, values = self.kernels.topk(self.B, self.H, k)
        return self.kernels.to_numpy(indices), self._shift(values)

    def known(self, labels: Labels) -> sp.csr_array:
        pattern = known_pattern(labels)
        cells = self.kernels.prepare(pattern, self.B.dtype)
        return with_pattern(self._shift(self.kernels.sddmm(cells, self.B, self.H)), pattern)

    def _shift(self, values: Any) -> NDArray:
        """Return scores less the threshold, on the host."""
        values = self.kernels.to_numpy(values)
        values -= values.dtype.type(self.threshold)
        return values


def split_rows(X: Any, n_labels: int, *, arrays: int = 1) -> Iterator[Any]:
    """Yield blocks of rows of X whose scores of all labels fit in memory.

    ``arrays`` is the number of score arrays that the computation of a block needs at once.
    """
    for rows in row_blocks(X.shape[0], arrays * n_labels, MAX_SCORES_PER_BLOCK):
        yield X[rows]


def known_pattern(labels: Labels) -> sp.csr_array:
    """Return the known cells as a sparse matrix of True; all cells if none is missing."""
    return labels.known if labels.known is not None else sp.csr_array(np.ones(labels.shape, bool))


def with_pattern(values: Any, pattern: sp.csr_array) -> sp.csr_array:
    """Return a sparse matrix with these values in the stored cells of ``pattern``."""
    return sp.csr_array((values, pattern.indices, pattern.indptr), shape=pattern.shape)


class LinearScores(Scores):
    """s = X coefᵀ + intercept, with coefficients that are dense, on the device of the kernels, or sparse."""

    def __init__(self, X: Any, coef: NDArray | sp.csr_array, intercept: NDArray, kernels: Backend) -> None:
        super().__init__(kernels)
        self.X, self.coef, self.intercept = X, coef, intercept

    def blocks(self) -> Iterator[NDArray]:
        return map(self.kernels.to_numpy, self._device_blocks())

    def _device_blocks(self) -> Iterator[Any]:
        times, intercept = self._product(), self.kernels.array(self.intercept, self.intercept.dtype)
        for rows in split_rows(self.X, len(self.intercept)):
            yield times(rows) + intercept

    def _product(self) -> Any:
        """Return a function that multiplies rows of X with the coefficients."""
        kernels, coef, dtype = self.kernels, self.coef, self.intercept.dtype
        if sp.issparse(self.X) and sp.issparse(coef):
            return lambda rows: (rows @ coef.T).toarray()
        if sp.issparse(coef):
            prepared = kernels.prepare(coef, dtype)
            return lambda rows: kernels.spmm(prepared, rows.T).T
        columns = kernels.array(coef.T, dtype)  # does not copy coefficients stored by feature
        if sp.issparse(self.X):
            return lambda rows: kernels.spmm(kernels.prepare(rows, dtype), columns)
        return lambda rows: kernels.matmul(kernels.array(rows, dtype), columns)

    def topk(self, k: int) -> tuple[NDArray, NDArray]:
        kernels, dtype = self.kernels, self.intercept.dtype
        if sp.issparse(self.X) and sp.issparse(self.coef):
            rows, labels = _with_column(self.X, np.ones(self.X.shape[0])), _with_column(self.coef, self.intercept)
            return kernels.product_topk(kernels.prepare(rows, dtype), kernels.prepare(labels, dtype), k)
        return self._rank_blocks(self._device_blocks(), k)

    def known(self, labels: Labels) -> sp.csr_array:
        if sp.issparse(self.X) or sp.issparse(self.coef):
            return super().known(labels)
        pattern, kernels = known_pattern(labels), self.kernels
        rows, coef = (kernels.array(part, self.X.dtype) for part in (self.X, self.coef))
        values = kernels.to_numpy(kernels.sddmm(kernels.prepare(pattern, self.X.dtype), rows, coef))
        return with_pattern(values + self.intercept[pattern.indices], pattern)


def store_by_feature(coef: Any) -> Any:
    """Return dense coefficients stored by feature, in which the product with a sparse row is fast.

    >>> store_by_feature(np.ones((3, 2))).T.flags.c_contiguous
    True
    """
    return coef if sp.issparse(coef) else np.asfortranarray(coef)


def check_coefficients(coef: Any, intercept: Any, n_labels: int, n_features: int) -> None:
    """Raise ValueError if coefficients read from a file do not have the shapes of the model.

    >>> check_coefficients(np.ones((2, 3)), np.ones(2), 2, 4)
    Traceback (most recent call last):
        ...
    ValueError: coefficients of shapes ((2, 3), (2,)) for 2 labels
    """
    shapes = (coef.shape, intercept.shape)
    if shapes != ((n_labels, n_features), (n_labels,)):
        raise ValueError(f"coefficients of shapes {shapes} for {n_labels} labels")


def _with_column(A: Any, column: NDArray) -> sp.csr_array:
    return sp.csr_array(sp.hstack([A, sp.csr_array(column[:, None])], format="csr"))
