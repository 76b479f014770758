"""One batch of labels and scores: checked once, ranked once, shared by all metrics.

Scores come in three forms:

- dense, shape (n, L): what ``decision_function`` returns; unknown cells are skipped, whatever stands there;
- sparse, shape (n, L), storing a score for each known cell and for no other (stored zeros count);
- a tuple ``(indices, scores)`` of two (n, k) arrays, best first, as ``predict_topk`` returns them; an index of −1
  means "no prediction". Only for labels with every cell known, and only for metrics of the k best.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.metrics.topk import RaggedRows
from labelgap.observations import Labels, as_labels


class Ranking(NamedTuple):
    """The best known cells of each row.

    Attributes
    ----------
    indices : ndarray of shape (n, k)
        Labels, best first; −1 where there is none.
    hits : ndarray of bool, shape (n, k)
        Which of them are positive.
    """

    indices: NDArray[np.int64]
    hits: NDArray[np.bool_]

    def first(self, k: int) -> Ranking:
        """Return the k best of them."""
        return Ranking(self.indices[:, :k], self.hits[:, :k])


class Batch:
    """Labels of some rows and the scores given to them.

    Parameters
    ----------
    Y_true : array-like, sparse matrix or Labels of shape (n, L)
        Anything that :func:`labelgap.observations.as_labels` takes.
    scores : array-like or sparse matrix of shape (n, L), or a tuple (indices, scores)
        See the head of this module.

    Examples
    --------
    >>> batch = Batch([[1, 0, np.nan]], [[0.2, 0.5, 0.9]])
    >>> batch.ranking(2)
    Ranking(indices=array([[1, 0]]), hits=array([[False,  True]]))
    """

    def __init__(self, Y_true: Any, scores: Any) -> None:
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
        """The number of labels."""
        return self.labels.shape[1]

    @cached_property
    def n_positives(self) -> NDArray[np.integer]:
        """The number of known positives of each row."""
        return np.diff(self.labels.positives.indptr)

    def ranking(self, k: int) -> Ranking:
        """Return the k best known cells of each row; a ranking made before is used again if it is deep enough."""
        k = min(k, self.n_labels)
        if self._ranking is None or self._ranking.indices.shape[1] < k:
            indices = self._best(k)
            self._ranking = Ranking(indices, _hits(indices, self.labels.positives))
        return self._ranking.first(k)

    def known_scores(self) -> KnownScores:
        """Return the scores of all known cells, which a metric of the whole row needs."""
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
                f"scores holds the best {self._pair.shape[1]} labels of each row and a metric asks for {k}; "
                f"call predict_topk with k={k} or more."
            )
        return self._pair


class KnownScores:
    """The scores of the known cells, row by row.

    >>> known = KnownScores(as_labels([[1, np.nan, 0]]), np.array([0.3, 0.4]))
    >>> known.best_labels(2)
    array([[2, 0]])
    >>> known.of_positives
    array([0.3])
    """

    def __init__(self, labels: Labels, values: NDArray) -> None:
        n, L = labels.shape
        self.labels = labels
        self.values = values
        known = labels.known
        self.rows = RaggedRows(values, np.arange(n + 1) * L if known is None else known.indptr)

    @cached_property
    def of_positives(self) -> NDArray:
        """The scores of the known positives, in the order of ``labels.positives``."""
        keys = _keys(self.labels.positives)
        if self.labels.known is None:
            return self.values[keys]
        return self.values[np.searchsorted(_keys(self.labels.known), keys)]

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


def _keys(pattern: sp.csr_array) -> NDArray[np.int64]:
    """Number the cells of an n×L matrix row by row; return the numbers of the stored ones."""
    rows = np.repeat(np.arange(pattern.shape[0], dtype=np.int64), np.diff(pattern.indptr))
    return rows * pattern.shape[1] + pattern.indices


def _hits(indices: NDArray[np.int64], positives: sp.csr_array) -> NDArray[np.bool_]:
    n, L = positives.shape
    true = np.append(_keys(positives), -1)
    keys = np.arange(n, dtype=np.int64)[:, None] * L + indices
    return (indices >= 0) & (true[np.searchsorted(true[:-1], keys)] == keys)


def _check_shape(found: tuple[int, ...], labels: Labels) -> None:
    if tuple(found) != tuple(labels.shape):
        raise ValueError(
            f"scores has shape {tuple(found)} and Y_true has {tuple(labels.shape)}; pass one score for each cell, "
            "or a tuple (indices, scores) as predict_topk returns it."
        )


def _as_float(values: NDArray, name: str) -> NDArray:
    if values.dtype.kind not in "biuf":
        raise ValueError(f"{name} holds {values.dtype} values; pass real numbers, higher for likelier labels.")
    return values if values.dtype in (np.float32, np.float64) else values.astype(np.float64)


def _read_cells(scores: Any, labels: Labels) -> NDArray:
    """Return the scores of the known cells, row by row."""
    values = _read_sparse(scores, labels) if sp.issparse(scores) else _read_dense(scores, labels)
    # The minimum is NaN if any value is, and unlike isnan it needs no array of its own.
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
    same = csr.nnz == labels.n_known
    if same and known is not None:
        same = np.array_equal(csr.indptr, known.indptr) and np.array_equal(csr.indices, known.indices)
    if not same:
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
            "scores is a tuple (indices, scores) and Y_true has unknown cells: the best labels of all are not the "
            "best of the known ones; pass dense scores, or sparse ones that store the known cells."
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
    given = indices >= 0
    if np.isnan(values[given]).any():
        raise ValueError("scores[1] holds NaN; a ranking needs a number for each predicted label.")
    rising = (values[:, 1:] > values[:, :-1]) & given[:, 1:] & given[:, :-1]
    if rising.any():
        row = int(np.argmax(rising.any(axis=1)))
        raise ValueError(f"scores[1] rises within row {row}; the labels of a row must come best first.")
