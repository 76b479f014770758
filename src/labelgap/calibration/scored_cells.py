"""Scored cells of a label matrix: all positives, the best absent labels, and a sample of the others."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
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

    rows: NDArray[np.int64]
    labels: NDArray[np.int64]
    scores: NDArray[np.float64]
    positive: NDArray[np.bool_]
    weights: NDArray[np.float64]
    sampled: NDArray[np.bool_]

    def select(self, index: NDArray) -> ScoredCells:
        """Return the cells of a mask or an index array."""
        return ScoredCells(*(field[index] for field in self))


def choose_cells(
    scores: NDArray, rows: NDArray, labels: Labels, candidates: int, n_sampled: int, rng: np.random.RandomState
) -> ScoredCells:
    """Return the positives, the best absent labels and sampled other absent labels of a block of rows."""
    # Each part needs several arrays of its size.
    parts = list(row_blocks(len(scores), scores.shape[1], MAX_CELLS)) or [slice(0)]
    return concatenate_cells(
        [_choose_cells(scores[part], rows[part], labels[part], candidates, n_sampled, rng) for part in parts]
    )


def _choose_cells(
    scores: NDArray, rows: NDArray, labels: Labels, candidates: int, n_sampled: int, rng: np.random.RandomState
) -> ScoredCells:
    positive = labels.positives.toarray()
    known = np.ones_like(positive) if labels.known is None else labels.known.toarray()
    absent_scores = np.where(known & ~positive, scores, -np.inf)
    k = min(candidates, scores.shape[1])
    best = np.zeros_like(positive)
    np.put_along_axis(best, np.argpartition(-absent_scores, k - 1, axis=1)[:, :k], True, axis=1)
    best &= np.isfinite(absent_scores)
    sampled_cells, represented = _sample_cells(known & ~positive & ~best, n_sampled, rng)
    parts = []
    for (i, j), weights in ((np.nonzero(positive), None), (np.nonzero(best), None), (sampled_cells, represented)):
        sampled = np.full(len(i), weights is not None)
        weights = np.ones(len(i)) if weights is None else weights
        parts.append(ScoredCells(rows[i], j.astype(np.int64), scores[i, j], positive[i, j], weights, sampled))
    return concatenate_cells(parts)


def _sample_cells(
    others: NDArray[np.bool_], n_sampled: int, rng: np.random.RandomState
) -> tuple[tuple[NDArray, NDArray], NDArray[np.float64]]:
    """Draw marked cells of each row with replacement; return them and the number of cells that each represents."""
    counts = others.sum(axis=1)
    rows = np.repeat(np.flatnonzero(counts), n_sampled)
    ranks = (rng.random_sample(len(rows)) * counts[rows]).astype(np.int64)
    starts = np.cumsum(counts) - counts
    columns = np.nonzero(others)[1][starts[rows] + ranks] if len(rows) else np.empty(0, np.int64)
    return (rows, columns), counts[rows] / max(n_sampled, 1)


def concatenate_cells(parts: list[ScoredCells]) -> ScoredCells:
    """Return the cells of all parts."""
    return ScoredCells(*map(np.concatenate, zip(*parts, strict=True)))
