"""Batches of labels and scores: validated once, ranked once, shared by all metrics."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.observations import Labels, as_labels
from labelgap.observations.arguments import LabelsLike, ScoresLike
from labelgap.runtime import map_ranges, row_bounds

MAX_CELLS_PER_RANKING_BLOCK = 1 << 20  # 8 MiB of float64: a block and its few copies fit in the cache


class Ranking(NamedTuple):
    """The best known cells of each row.

    Attributes
    ----------
    indices : ndarray of shape (n, k)
        The labels, best first; −1 where a row has fewer than k known cells.
    hits : ndarray of bool, shape (n, k)
        True where the label is positive.
    """

    indices: NDArray[np.int64]
    hits: NDArray[np.bool_]

    def first(self, k: int) -> Ranking:
        """Return the first k columns."""
        return Ranking(self.indices[:, :k], self.hits[:, :k])


class Batch:
    """The labels and the scores of some rows.

    Parameters
    ----------
    Y_true : array-like, sparse matrix or Labels of shape (n, L)
        The labels, in any form that :func:`labelgap.observations.as_labels` takes.
    scores : array-like or sparse matrix of shape (n, L), or a tuple (indices, scores)
        One of three forms:

        - dense, as ``decision_function`` returns them; values at unknown cells are ignored;
        - sparse, with a stored score for each known cell (zeros too) and for no other cell;
        - a tuple ``(indices, scores)`` of two (n, k) arrays, best first, as ``predict_topk`` returns it; an index of
          −1 means "no prediction". This form needs labels without unknown cells and metrics of the k best labels.

    Examples
    --------
    >>> batch = Batch([[1, 0, np.nan]], [[0.2, 0.5, 0.9]])
    >>> batch.ranking(2)
    Ranking(indices=array([[1, 0]]), hits=array([[False,  True]]))
    """

    def __init__(self, Y_true: LabelsLike, scores: ScoresLike) -> None:
        self.labels = as_labels(Y_true)
        self._pair: NDArray[np.int64] | None = None
        self._known: KnownScores | None = None
        if isinstance(scores, tuple):
            self._pair = _read_pair(scores, self.labels)
        else:
            self._known = KnownScores(self.labels, _read_cells(scores, self.labels))
        self._ranking: Ranking | None = None

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return self.labels.shape[1]

    @cached_property
    def n_positives(self) -> NDArray[np.integer]:
        """Number of known positives of each row."""
        return np.diff(self.labels.positives.indptr)

    def ranking(self, k: int) -> Ranking:
        """Return the k best known cells of each row; an earlier ranking of at least k cells is reused."""
        k = min(k, self.n_labels)
        if self._ranking is None or self._ranking.indices.shape[1] < k:
            indices = self._best(k)
            self._ranking = Ranking(indices, find_hits(indices, self.labels.positives))
        return self._ranking.first(k)

    def known_scores(self) -> KnownScores:
        """Return the scores of all known cells; raise ValueError if the batch has only the best labels."""
        if self._known is None:
            raise ValueError(
                "scores is a tuple (indices, scores) with the best labels only, and this metric needs a score for "
                "every known cell; pass the dense result of decision_function, or sparse scores of the known cells."
            )
        return self._known

    def _best(self, k: int) -> NDArray[np.int64]:
        if self._pair is None:
            return self.known_scores().best_labels(k)
        if self._pair.shape[1] < k:
            raise ValueError(
                f"scores holds the best {self._pair.shape[1]} labels of each row and a metric needs {k}; "
                f"call predict_topk with k={k} or more."
            )
        return self._pair


class KnownScores:
    """The scores of the known cells, row by row.

    >>> known = KnownScores(as_labels([[1, np.nan, 0]]), np.array([0.3, 0.4]))
    >>> known.best_labels(2)
    array([[2, 0]])
    >>> known.positive_scores
    array([0.3])
    """

    def __init__(self, labels: Labels, values: NDArray) -> None:
        n, L = labels.shape
        self.labels = labels
        self.values = values
        known = labels.known
        self.rows = RaggedRows(values, np.arange(n + 1) * L if known is None else known.indptr)

    @cached_property
    def positive_scores(self) -> NDArray:
        """The scores of the known positives, in the order of ``labels.positives``."""
        positions = _flat_indices(self.labels.positives)
        if self.labels.known is None:
            return self.values[positions]
        return self.values[np.searchsorted(_flat_indices(self.labels.known), positions)]

    def best_labels(self, k: int) -> NDArray[np.int64]:
        """Return the labels of the k best cells of each row, shape (n, k); −1 where fewer are known."""
        best = np.full((len(self.rows), k), -1, np.int64)
        positions = self.rows.top(k)
        known = self.labels.known
        if known is not None and known.nnz:
            cells = np.where(positions < 0, 0, positions + known.indptr[:-1, None])
            positions = np.where(positions < 0, -1, known.indices[cells])
        best[:, : positions.shape[1]] = positions
        return best


def _flat_indices(pattern: sp.csr_array) -> NDArray[np.int64]:
    """Return the indices of the stored cells in the flattened n×L matrix."""
    rows = np.repeat(np.arange(pattern.shape[0], dtype=np.int64), np.diff(pattern.indptr))
    return rows * pattern.shape[1] + pattern.indices


def find_hits(indices: NDArray[np.int64], positives: sp.csr_array) -> NDArray[np.bool_]:
    """Return whether the labels of each row, shape (n, k), are positive; an index of −1 is not."""
    n, L = positives.shape
    positive_cells = np.append(_flat_indices(positives), -1)
    cells = np.arange(n, dtype=np.int64)[:, None] * L + indices
    return (indices >= 0) & (positive_cells[np.searchsorted(positive_cells[:-1], cells)] == cells)


def _check_shape(shape: tuple[int, ...], labels: Labels) -> None:
    if tuple(shape) != tuple(labels.shape):
        raise ValueError(
            f"scores has shape {tuple(shape)} and Y_true has {tuple(labels.shape)}; pass one score for each cell, "
            "or a tuple (indices, scores) as predict_topk returns it."
        )


def _as_float(values: NDArray, name: str) -> NDArray:
    if values.dtype.kind not in "biuf":
        raise ValueError(f"{name} holds {values.dtype} values; pass real numbers, higher for likelier labels.")
    return values if values.dtype in (np.float32, np.float64) else values.astype(np.float64)


def _read_cells(scores: Any, labels: Labels) -> NDArray:
    """Return the scores of the known cells, row by row."""
    values = _read_sparse(scores, labels) if sp.issparse(scores) else _read_dense(scores, labels)
    # The minimum is NaN if any value is; unlike isnan it allocates no array.
    if values.size and np.isnan(values.min()):
        raise ValueError(
            f"scores is NaN at {np.count_nonzero(np.isnan(values))} known cells; a ranking needs a number for each "
            "known cell (only unknown cells may be NaN)."
        )
    return values


def _read_dense(scores: Any, labels: Labels) -> NDArray:
    dense = np.asarray(scores)
    _check_shape(dense.shape, labels)
    dense = _as_float(dense, "scores")
    if labels.known is None:
        return dense.ravel()
    rows = np.repeat(np.arange(len(labels)), np.diff(labels.known.indptr))
    return dense[rows, labels.known.indices]


def _read_sparse(scores: Any, labels: Labels) -> NDArray:
    _check_shape(scores.shape, labels)
    csr = sp.csr_array(scores)
    if not csr.has_canonical_format:
        csr = csr.copy()
        csr.sum_duplicates()
    known = labels.known
    matches = csr.nnz == labels.n_known
    if matches and known is not None:
        matches = np.array_equal(csr.indptr, known.indptr) and np.array_equal(csr.indices, known.indices)
    if not matches:
        raise ValueError(
            f"scores is sparse and stores {csr.nnz} cells that are not the {labels.n_known} known cells of Y_true; "
            "store a score for each known cell (zeros too) and for no other. "
            "For the best few labels of each row pass a tuple (indices, scores)."
        )
    return _as_float(csr.data, "scores")


def _read_pair(pair: tuple[Any, ...], labels: Labels) -> NDArray[np.int64]:
    if len(pair) != 2:
        raise ValueError(f"scores is a tuple of {len(pair)} parts; a tuple must be (indices, scores).")
    if labels.n_known < labels.shape[0] * labels.shape[1]:
        raise ValueError(
            "scores is a tuple (indices, scores) and Y_true has unknown cells, so the best labels may be unknown; "
            "pass dense scores, or sparse ones that store the known cells."
        )
    indices, values = np.asarray(pair[0]), np.asarray(pair[1])
    if indices.ndim != 2 or indices.shape != values.shape or len(indices) != len(labels):
        raise ValueError(
            f"scores is a tuple with indices of shape {indices.shape} and scores of shape {values.shape}; "
            f"both must have shape (n, k), here ({len(labels)}, k)."
        )
    _check_indices(indices, labels.shape[1])
    _check_order(indices, _as_float(values, "scores[1]"))
    return indices.astype(np.int64)


def _check_indices(indices: NDArray, n_labels: int) -> None:
    if indices.dtype.kind not in "iu":
        raise ValueError(f"scores[0] holds {indices.dtype} values; it must hold label numbers (integers).")
    wrong = (indices < -1) | (indices >= n_labels)
    if wrong.any():
        raise ValueError(
            f"scores[0] holds {indices[wrong][0]}; label numbers run from 0 to {n_labels - 1}, and −1 means none."
        )
    ordered = np.sort(indices, axis=1)
    twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    if twice.any():
        row = int(np.argmax(twice.any(axis=1)))
        raise ValueError(f"scores[0] names a label twice in row {row}; a label has one place in a ranking.")


def _check_order(indices: NDArray, values: NDArray) -> None:
    predicted = indices >= 0
    if np.isnan(values[predicted]).any():
        raise ValueError("scores[1] holds NaN; a ranking needs a number for each predicted label.")
    rising = (values[:, 1:] > values[:, :-1]) & predicted[:, 1:] & predicted[:, :-1]
    if rising.any():
        row = int(np.argmax(rising.any(axis=1)))
        raise ValueError(f"scores[1] rises within row {row}; the labels of a row must come best first.")


class RaggedRows:
    """Rows of scores of unequal length, stored one after the other as in the CSR format.

    Parameters
    ----------
    values : ndarray of shape (m,)
        The scores, row by row.
    indptr : ndarray of shape (n + 1,)
        Row i is ``values[indptr[i]:indptr[i + 1]]``.

    Examples
    --------
    >>> rows = RaggedRows(np.array([0.5, 0.9, 0.1]), np.array([0, 2, 3]))
    >>> rows.block(0, 2, -np.inf)
    array([[ 0.5,  0.9],
           [ 0.1, -inf]])
    >>> rows.top(1)
    array([[1],
           [0]])
    """

    def __init__(self, values: NDArray, indptr: NDArray[np.integer]) -> None:
        self.values = values
        self.indptr = indptr
        self.lengths = np.diff(indptr)
        self.width = int(self.lengths.max(initial=0))

    def __len__(self) -> int:
        return len(self.lengths)

    def bounds(self) -> list[int]:
        """Return the bounds of the row blocks."""
        return row_bounds(len(self), self.width, MAX_CELLS_PER_RANKING_BLOCK)

    def block(self, start: int, stop: int, fill: float) -> NDArray:
        """Return rows ``start`` to ``stop`` as a rectangular array; short rows are padded on the right."""
        lengths = self.lengths[start:stop]
        values = self.values[self.indptr[start] : self.indptr[stop]]
        if (lengths == self.width).all():
            return values.reshape(stop - start, self.width)
        block = np.full((stop - start, self.width), fill, self.values.dtype)
        block[np.arange(self.width) < lengths[:, None]] = values
        return block

    def top(self, k: int) -> NDArray[np.int64]:
        """Return the positions within each row of its k best cells, best first; −1 where a row is shorter."""
        positions = np.full((len(self), min(k, self.width)), -1, np.int64)

        def work(start: int, stop: int) -> None:
            # The padding is to the right of all scores, so it loses also a tie at −inf.
            best = best_positions(self.block(start, stop, -np.inf), positions.shape[1])
            positions[start:stop] = np.where(best < self.lengths[start:stop, None], best, -1)

        map_ranges(work, self.bounds())
        return positions


def best_positions(block: NDArray, k: int) -> NDArray[np.int64]:
    """Return the columns of the k largest values of each row, best first; ties go to the lower column.

    >>> best_positions(np.array([[0.0, 2.0, 1.0, 2.0], [3.0, 3.0, 3.0, 3.0]]), 2)
    array([[1, 3],
           [0, 1]])
    """
    n, width = block.shape
    chosen = _find_largest(block, k) if k < width else np.tile(np.arange(width), (n, 1))
    order = np.argsort(-np.take_along_axis(block, chosen, axis=1), axis=1, kind="stable")
    return np.take_along_axis(chosen, order, axis=1)


def _find_largest(block: NDArray, k: int) -> NDArray[np.int64]:
    """Return the columns of the k largest values of each row in ascending order of column."""
    start = block.shape[1] - k
    chosen = np.argpartition(block, start, axis=1)[:, start:]
    least = np.take_along_axis(block, chosen, axis=1).min(axis=1, keepdims=True, initial=np.inf)
    # argpartition takes any of the cells that tie for rank k; only rows with such ties are ranked again.
    tied = np.count_nonzero(block >= least, axis=1) > k
    if tied.any():
        chosen[tied] = _break_ties(block[tied], least[tied], k)
    chosen.sort(axis=1)
    return chosen


def _break_ties(block: NDArray, least: NDArray, k: int) -> NDArray[np.int64]:
    """Return the columns above the k-th largest value, and the lowest columns equal to it, k in each row."""
    above, equal = block > least, block == least
    n_missing = k - above.sum(axis=1, keepdims=True)
    selected = above | (equal & (np.cumsum(equal, axis=1) <= n_missing))
    return np.nonzero(selected)[1].reshape(-1, k)
