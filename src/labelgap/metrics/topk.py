"""The k best cells of each row, in row blocks; equal scores go to the lower position."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from labelgap.runtime import in_ranges

# Cells that one block holds: 8 MiB of float64, so that a block and its few copies stay near the cache.
BLOCK_CELLS = 2**20


def row_bounds(n: int, width: int) -> list[int]:
    """Cut n rows of ``width`` cells into blocks of about :data:`BLOCK_CELLS` cells.

    >>> row_bounds(5, BLOCK_CELLS // 2)
    [0, 2, 4, 5]
    """
    step = max(1, BLOCK_CELLS // max(1, width))
    return [*range(0, n, step), n]


class RaggedRows:
    """Rows of scores of unequal length, one after the other, as CSR keeps them.

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
        """Where blocks of rows begin and end."""
        return row_bounds(len(self), self.width)

    def block(self, start: int, stop: int, fill: float) -> NDArray:
        """Return rows ``start`` to ``stop`` as a rectangle, short rows filled up on the right."""
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
            # The filling stands to the right of all true cells, so it loses even a tie at −inf.
            best = best_positions(self.block(start, stop, -np.inf), positions.shape[1])
            positions[start:stop] = np.where(best < self.lengths[start:stop, None], best, -1)

        in_ranges(work, self.bounds())
        return positions


def best_positions(block: NDArray, k: int) -> NDArray[np.int64]:
    """Return the columns of the k largest values of each row, best first, ties to the lower column.

    >>> best_positions(np.array([[0.0, 2.0, 1.0, 2.0], [3.0, 3.0, 3.0, 3.0]]), 2)
    array([[1, 3],
           [0, 1]])
    """
    n, width = block.shape
    chosen = _unordered_best(block, k) if k < width else np.tile(np.arange(width), (n, 1))
    order = np.argsort(-np.take_along_axis(block, chosen, axis=1), axis=1, kind="stable")
    return np.take_along_axis(chosen, order, axis=1)


def _unordered_best(block: NDArray, k: int) -> NDArray[np.int64]:
    """Return the columns of the k largest values of each row in ascending order of column."""
    start = block.shape[1] - k
    chosen = np.argpartition(block, start, axis=1)[:, start:]
    least = np.take_along_axis(block, chosen, axis=1).min(axis=1, keepdims=True, initial=np.inf)
    # A partition takes any of the cells that tie for the last place; only such rows need a second look.
    tied = np.count_nonzero(block >= least, axis=1) > k
    if tied.any():
        chosen[tied] = _lowest_of_ties(block[tied], least[tied], k)
    chosen.sort(axis=1)
    return chosen


def _lowest_of_ties(block: NDArray, least: NDArray, k: int) -> NDArray[np.int64]:
    above, level = block > least, block == least
    room = k - above.sum(axis=1, keepdims=True)
    kept = above | (level & (np.cumsum(level, axis=1) <= room))
    return np.nonzero(kept)[1].reshape(-1, k)
