"""The compiled loop that finds the places of cells in the rankings of their rows."""

from __future__ import annotations

from labelgap.kernels.loops import compiled


@compiled
def places(indptr, indices, scores, out, first, start, stop):
    """The place of each stored cell among the scores of its row, 1 for the best; ties go to the lower column.

    ``scores`` are a block of rows, of which row r has the cells of row first + r.
    """
    for r in range(start, stop):
        row = scores[r]
        for p in range(indptr[first + r], indptr[first + r + 1]):
            column = indices[p]
            s, above = row[column], 1
            for j in range(column):
                above += row[j] >= s
            for j in range(column + 1, row.shape[0]):
                above += row[j] > s
            out[p] = above
