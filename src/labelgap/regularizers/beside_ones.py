"""Singular value shrinkage beside a constant column: how MC-1 was published, and how a multiplier mends it.

MC-1 penalises ‖[A, 1]‖_*. Both operators here shrink the singular values of [V, w] = [A − τ∇f(A), w] and keep all but
the last column a of the result, so that a step differs only in w.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from labelgap.regularizers.nuclear import Shrunk
from labelgap.regularizers.singular import Decomposer, Triplets, beside, nuclear_norm
from labelgap.regularizers.tracking import Tracker

Array = Any


class Unpriced:
    """w = 1: the published loop, which shrinks [V, 1] and then sets the last column to 1 (003, Algorithm 2).

    It is the gradient and shrinkage step of another problem, in which a = 1 is not a constraint but a penalty
    ‖a − 1‖² / 2τ, since a − τ (a − 1) / τ = 1. So the loop converges, to the minimum of that one.

    >>> Unpriced().prox(np.zeros((4, 1)), 1.0).x.ravel()
    array([0., 0., 0., 0.])
    """

    def __init__(self) -> None:
        self._tracker = Tracker()

    def value(self, A: Array) -> float:
        """Return ‖[A, 1]‖_*."""
        return nuclear_norm(beside(A, np.ones(len(A))))

    def prox(self, point: Array, threshold: float) -> Shrunk:
        """Return A of the shrunk matrix [A, a], and ‖[A, 1]‖_*."""
        return self._shrink(point, np.ones(len(point)), threshold)[0]

    def _shrink(self, point: Array, column: Array, threshold: float) -> tuple[Shrunk, Array]:
        """Shrink [V, w] and return the result, and 1 less its last column."""
        U, values, V = Decomposer(point, self._tracker).triplets(threshold, column)
        shrunk = Triplets(U, values - point.dtype.type(threshold), V)
        whole = shrunk.product
        value = nuclear_norm(_with_ones(shrunk))
        return Shrunk(np.ascontiguousarray(whole[:, :-1]), value, len(values)), 1 - whole[:, -1]


class DualStep(Unpriced):
    """w moves by 1 − a in each step: a multiplier of the constraint a = 1.

    Steps with it are the three-operator splitting of Davis and Yin (2017), for the nuclear norm, the constraint and a
    smooth f, in fewer words: their variable is z = [A, 2 − w]. So they converge to the minimum of MC-1. What is kept
    from one threshold κ to the next is the price g = (w − 1) / κ, which ends as the last column of a subgradient of
    the nuclear norm.
    """

    def __init__(self) -> None:
        super().__init__()
        self.price: Array = None

    def prox(self, point: Array, threshold: float) -> Shrunk:
        """Return A of the shrunk matrix [A, a], and ‖[A, 1]‖_* with the bound ‖g‖ ‖a − 1‖ of its error."""
        n = len(point)
        if self.price is None:
            self.price = np.full(n, n**-0.5)  # that of A = 0
        shrunk, lack = self._shrink(point, 1 + threshold * self.price, threshold)
        self.price = self.price + lack.astype(float) / threshold
        return shrunk._replace(error=float(np.linalg.norm(self.price) * np.linalg.norm(lack)))


def _with_ones(shrunk: Triplets) -> Array:
    """Return a small matrix with the singular values of [A, 1], for [A, a] = U S Vᵀ.

    It is [A, 1] in the basis of U and of what U leaves of 1.
    """
    U, values, V = shrunk
    inside = U.sum(0)
    outside = np.linalg.norm(1 - U @ inside)
    top = np.concatenate([(V[:-1] * values).T, inside[:, None]], axis=1)
    bottom = np.zeros((1, top.shape[1]), top.dtype)
    bottom[0, -1] = outside
    return np.concatenate([top, bottom])
