"""Nearest rows: exact ones for dense and sparse rows, approximate ones for many dense rows.

An index is what it was fitted on, a plain array, and what makes the search fast, which is built on the first search.
Saving the rows is therefore enough to have the index again.
"""

from labelgap.neighbors.approximate import ApproximateNeighbors
from labelgap.neighbors.base import METRICS, Neighbors
from labelgap.neighbors.exact import ExactNeighbors
from labelgap.neighbors.vectors import squared_norms, unit_rows

__all__ = [
    "METRICS",
    "ApproximateNeighbors",
    "ExactNeighbors",
    "Neighbors",
    "make_neighbors",
    "squared_norms",
    "unit_rows",
]


def make_neighbors(algorithm: str = "exact", metric: str = "cosine") -> Neighbors:
    """Return an index to fit.

    >>> make_neighbors("exact", "dot").fit([[1.0], [2.0]]).search([[3.0]], k=1)
    (array([[1]]), array([[6.]]))
    """
    kinds = {"exact": ExactNeighbors, "approximate": ApproximateNeighbors}
    if algorithm not in kinds:
        raise ValueError(f"algorithm={algorithm!r} is not known; choose from {list(kinds)}.")
    return kinds[algorithm](metric)
