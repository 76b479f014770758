"""Nearest rows: exact search for dense and sparse rows, approximate search for many dense rows.

An index consists of the rows, a plain array, and of a search structure that the first search builds. To save an index
it is therefore enough to save its rows.
"""

from labelgap.neighbors.indexes import (
    METRICS,
    ApproximateNeighbors,
    ExactNeighbors,
    Neighbors,
    compute_squared_norms,
    make_neighbors,
    scale_to_unit_length,
)

__all__ = [
    "METRICS",
    "ApproximateNeighbors",
    "ExactNeighbors",
    "Neighbors",
    "compute_squared_norms",
    "make_neighbors",
    "scale_to_unit_length",
]
