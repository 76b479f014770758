"""The nuclear norm."""

from __future__ import annotations

from typing import Any, NamedTuple

from labelgap.regularizers.singular import Decomposer, nuclear_norm
from labelgap.regularizers.tracking import Tracker

Array = Any


class Shrunk(NamedTuple):
    """What a proximal operator returns: the minimiser x, the penalty at x, its rank, and how far it is from exact.

    ``error`` bounds by how much the penalty at x is off, in units of the penalty; 0 for an exact operator.
    """

    x: Array
    value: float
    rank: int
    error: float = 0.0


class NuclearNorm:
    """‖Z‖_* = Σ σ_k(Z).

    >>> import numpy as np
    >>> norm = NuclearNorm()
    >>> norm.prox(np.diag([3.0, 1.0]), 2.0).x
    array([[1., 0.],
           [0., 0.]])
    """

    def __init__(self) -> None:
        self._tracker = Tracker()

    def value(self, Z: Array) -> float:
        """Return the sum of the singular values."""
        return nuclear_norm(Z)

    def prox(self, point: Array, threshold: float) -> Shrunk:
        """Return argmin over Z of ½ ‖Z − point‖² + threshold · ‖Z‖_* = U (σ − threshold)₊ Vᵀ, for point = U σ Vᵀ."""
        found = Decomposer(point, self._tracker).triplets(threshold)
        values = found.values - point.dtype.type(threshold)
        return Shrunk(found._replace(values=values).product, float(values.sum(dtype=float)), len(values))
