"""Scored cells of a label matrix: all positives, the best absent labels, and a sample of the others."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.observations import Labels
from labelgap.runtime import row_blocks

MAX_CELLS = 1 << 18


class ScoredCells(NamedTuple):
    """Some cells of a label matrix with out-of-fold scores.

    Attributes
    ----------
    rows, labels : ndarray of int
        Row and column of each cell.
    scores : ndarray of float
        Decision values of a model that was fitted without the row.
    positive : ndarray of bool
        Whether the label is written.
    weights : ndarray of float
        1 for positives and for the best absent labels; for a sampled cell, the number of cells that it represents.
    sampled : ndarray of bool
        Whether the cell was sampled; it may occur more than once.
    """

    rows: NDArray[np.int32]
    labels: NDArray[np.int32]
    scores: NDArray[np.floating]
    positive: NDArray[np.bool_]
    weights: NDArray[np.float32]
    sampled: NDArray[np.bool_]

    def select(self, index: NDArray) -> ScoredCells:
        """Return the cells of a mask or an index array."""
        return ScoredCells(*(field[index] for field in self))


def choose_cells(
    scores: NDArray, rows: NDArray, labels: Labels, candidates: int, n_sampled: int, rng: np.random.RandomState
) -> ScoredCells:
    """Return the positives, the best absent labels and sampled other absent labels of a block of rows.

    ``rows`` are the numbers of the rows. Scores keep their precision.
    """
    chosen = (candidates, n_sampled, rng)
    return concatenate_cells(
        [_choose_cells(scores[part], rows[part], labels[part], *chosen) for part in _split_rows(labels)]
    )


def _split_rows(labels: Labels) -> list[slice]:
    """Return parts of rows; what is computed from their cells needs several arrays of their size."""
    return list(row_blocks(*labels.shape, MAX_CELLS)) or [slice(0)]


def _choose_cells(
    scores: NDArray, rows: NDArray, labels: Labels, candidates: int, n_sampled: int, rng: np.random.RandomState
) -> ScoredCells:
    positive, absent = labels.positives.toarray(), _find_absent(labels)
    absent_scores = np.where(absent, scores, -np.inf)
    k = min(candidates, scores.shape[1])
    best = np.zeros_like(positive)
    np.put_along_axis(best, np.argpartition(-absent_scores, k - 1, axis=1)[:, :k], True, axis=1)
    best &= np.isfinite(absent_scores)
    sampled_cells, represented = _sample_cells(absent & ~best, n_sampled, rng)
    parts = []
    for (i, j), weights in ((np.nonzero(positive), None), (np.nonzero(best), None), (sampled_cells, represented)):
        sampled = np.full(len(i), weights is not None)
        weights = np.ones(len(i)) if weights is None else weights
        numbers = rows[i].astype(np.int32), j.astype(np.int32)  # an audit has millions of cells
        parts.append(ScoredCells(*numbers, scores[i, j], positive[i, j], weights.astype(np.float32), sampled))
    return concatenate_cells(parts)


def _sample_cells(
    others: NDArray[np.bool_], n_sampled: int, rng: np.random.RandomState
) -> tuple[tuple[NDArray, NDArray], NDArray[np.float64]]:
    """Draw marked cells of each row with replacement; return them and the number of cells that each represents."""
    counts = others.sum(axis=1)
    rows, ranks = _draw_ranks(counts, n_sampled, rng)
    starts = np.cumsum(counts) - counts
    columns = np.nonzero(others)[1][starts[rows] + ranks] if len(rows) else np.empty(0, np.int64)
    return (rows, columns), counts[rows] / max(n_sampled, 1)


def _find_absent(labels: Labels) -> NDArray[np.bool_]:
    """Return where a label is known and not positive, dense."""
    absent = ~labels.positives.toarray()
    return absent if labels.known is None else absent & labels.known.toarray()


def _draw_ranks(counts: NDArray, n_sampled: int, rng: np.random.RandomState) -> tuple[NDArray, NDArray[np.int64]]:
    """Draw numbers below the counts of rows that are not 0, ``n_sampled`` of each; return rows and numbers."""
    rows = np.repeat(np.flatnonzero(counts), n_sampled)
    return rows, (rng.random_sample(len(rows)) * counts[rows]).astype(np.int64)


class CellChooser:
    """:func:`choose_cells` for scores that come in blocks of labels, without the scores of all cells.

    It holds the best absent labels of each row so far, and the cells that may be chosen whatever the others are: the
    positives, and of each draw the absent labels that it means if none, one, … or all of the best come before.
    """

    def __init__(
        self, labels: Labels, candidates: int, n_sampled: int, rng: np.random.RandomState, dtype: Any
    ) -> None:
        self.labels, self.candidates, self.n_sampled, self.rng = labels, candidates, n_sampled, rng
        n, n_labels = labels.shape
        draws = deepcopy(rng)
        parts = [self._reserve(labels[part], draws) for part in _split_rows(labels)]
        self._reserved = sp.csc_array(sp.vstack(parts), dtype=dtype)
        self._by_label = labels.T
        self._best = np.full((n, min(candidates, n_labels)), -np.inf, dtype)
        self._best_labels = np.zeros(self._best.shape, np.int32)

    def _reserve(self, labels: Labels, draws: np.random.RandomState) -> sp.csr_array:
        """Return the cells of some rows whose scores are needed whatever they are."""
        reserved, absent = labels.positives.toarray(), _find_absent(labels)
        k = min(self.candidates, labels.shape[1])
        counts, columns = absent.sum(axis=1), np.nonzero(absent)[1]
        rows, ranks = _draw_ranks(counts - np.minimum(counts, k), self.n_sampled, draws)
        first = (np.cumsum(counts) - counts)[rows] + ranks
        reserved[rows[:, None], columns[first[:, None] + np.arange(k + 1)]] = True
        return sp.csr_array(reserved)

    def add(self, block: NDArray, scores: NDArray) -> None:
        """Take the scores of a block of labels, shape (n, block)."""
        ends, k = self._reserved.indptr, self._best.shape[1]
        for column, label in enumerate(block.tolist()):
            cells = slice(ends[label], ends[label + 1])
            self._reserved.data[cells] = scores[self._reserved.indices[cells], column]
        absent = _find_absent(self._by_label[block]).T
        for part in row_blocks(len(scores), k + len(block), MAX_CELLS):
            values = np.hstack([self._best[part], np.where(absent[part], scores[part], -np.inf)])
            names = np.hstack([self._best_labels[part], np.broadcast_to(block, (len(values), len(block)))])
            best = np.argpartition(-values, k - 1, axis=1)[:, :k]
            self._best[part] = np.take_along_axis(values, best, axis=1)
            self._best_labels[part] = np.take_along_axis(names, best, axis=1)

    def choose(self, rows: NDArray) -> ScoredCells:
        """Return the cells, after all labels; ``rows`` are the numbers of the rows."""
        reserved, parts = sp.csr_array(self._reserved), []
        del self._reserved
        for part in _split_rows(self.labels):
            own = reserved[part]
            scores = np.full(own.shape, -np.inf, own.dtype)
            scores[np.repeat(np.arange(len(scores)), np.diff(own.indptr)), own.indices] = own.data
            i, j = np.nonzero(np.isfinite(self._best[part]))
            scores[i, self._best_labels[part][i, j]] = self._best[part][i, j]
            parts.append(
                _choose_cells(scores, rows[part], self.labels[part], self.candidates, self.n_sampled, self.rng)
            )
        return concatenate_cells(parts)


def concatenate_cells(parts: list[ScoredCells]) -> ScoredCells:
    """Return the cells of all parts, and empty the list, so that each field is there twice for a moment only."""
    fields = [list(field) for field in zip(*parts, strict=True)]
    parts.clear()
    cells = []
    while fields:
        cells.append(np.concatenate(fields.pop(0)))
    return ScoredCells(*cells)
