"""What data that are gone said about a factor, kept as a quadratic around it."""

from __future__ import annotations

import numpy as np

from labelgap.kernels import of
from labelgap.objectives.base import Quadratic
from labelgap.objectives.features import Identity
from labelgap.solvers.base import Array, Kronecker, Model, inner


class Anchor(Quadratic):
    """½ Σ_j (h_j − a_j)ᵀ (w_j M + α_j) (h_j − a_j), for the minimisers a_j of sums with about these Hessians.

    It is such a sum, but for a constant, where the sum is of squares: ridge regression learns on from its last
    solution and the Gram matrix of the rows.

    Parameters
    ----------
    at : array of shape (L, k)
        The minimisers a_j.
    M : array of shape (k, k)
        The curvature that all rows of ``at`` share.
    weights : array of shape (L, 1)
        w_j, by which it counts in each.
    ridge : float or array of shape (L, 1)
        α_j.

    Examples
    --------
    >>> anchor = Anchor(np.zeros((1, 2)), np.eye(2), np.ones((1, 1)), 1.0)
    >>> anchor.value(np.ones((1, 2)))
    2.0
    """

    separable = True

    def __init__(self, at: Array, M: Array, weights: Array, ridge: float | Array) -> None:
        self.at, self.ridge = at, ridge
        even = bool((weights == weights.flat[0]).all())
        # One weight for all is a part of M, which leaves a Kronecker form that adds up exactly.
        self.M = np.asarray(weights.flat[0] * M if even else M, at.dtype)
        self.weights = 1.0 if even else weights

    def value(self, H: Array) -> float:
        away = H - self.at
        return 0.5 * inner(away, self._image(away))

    def model(self, H: Array) -> Model:
        away = H - self.at
        image = self._image(away)
        return Model(0.5 * inner(away, image), image, self._image, self.hessian)

    @property
    def hessian(self) -> Kronecker:
        """The same at every H."""
        return Kronecker(self.ridge, Identity(len(self.at)), self.M, self.weights)

    def _image(self, S: Array) -> Array:
        weights, ridge = (np.asarray(part, S.dtype) for part in (self.weights, self.ridge))
        return weights * of(S).matmul(S, self.M) + ridge * S
