"""Linear machines with the squared hinge loss on few dense features, to rounding, by Newton's method."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

# Of the objective, as a bound of the decrease that a step promises: the squared hinge is quadratic between kinks, so
# Newton's method ends after few steps, and what is left then is rounding.
PROMISE = 1e-10
DESCENT = 1e-4
LEAST_STEP = 1e-10
FLOOR = 1e-15


class Fitted(NamedTuple):
    """The minimiser, whether the steps came to their end, and how many there were."""

    w: NDArray
    converged: bool
    n_iter: int


def minimize(V: NDArray, C: float, start: NDArray, max_iter: int) -> Fitted:
    """Minimise ½ ‖w‖² + C Σ_i max(0, 1 − v_i·w)² over w (Keerthi and DeCoste 2005), v_i the rows of V.

    A step solves the quadratic problem of the rows that lack margin, and goes part of the way where that would lead
    up. For two classes v = ±(x, 1).

    >>> V = np.array([[1.0, 1.0], [1.0, -1.0]])  # x = 1 is a yes, x = −1 a no
    >>> minimize(V, 0.5, np.zeros(2), 10)  # w = (⅔, 0) solves w₁ = 2 (1 − w₁)
    Fitted(w=array([0.66666667, 0.        ]), converged=True, n_iter=1)
    """
    w, ridge = start, 0.5 / C
    margins = V @ w
    for n_iter in range(max_iter):
        short = margins < 1
        A, lack = V[short], 1 - margins[short]
        gradient = ridge * w - A.T @ lack
        step = _solve(A, ridge, -gradient)
        value, slope = 0.5 * ridge * (w @ w) + 0.5 * (lack @ lack), gradient @ step
        if -slope <= PROMISE * value:
            return Fitted(w, True, n_iter)
        length = _length(ridge, w, step, margins, V @ step, value, slope)
        if length is None:
            return Fitted(w, True, n_iter)  # rounding hides any further progress
        w = w + length * step
        margins = V @ w
    return Fitted(w, False, max_iter)


def _solve(A: NDArray, ridge: float, right: NDArray) -> NDArray:
    """Solve (AᵀA + ridge I) x = right, scaled to a diagonal of 1, since features differ in size."""
    H = A.T @ A
    H[np.diag_indices_from(H)] += ridge
    scale = 1 / np.sqrt(np.diagonal(H))
    H *= np.outer(scale, scale)
    _, x, info = scipy.linalg.lapack.dposv(H, scale * right)
    if info:  # to rounding H is singular; any matrix near it gives a direction that leads down
        values, vectors = scipy.linalg.eigh(H)
        x = vectors @ ((vectors.T @ (scale * right)) / np.maximum(values, FLOOR * values[-1]))
    return scale * x


def _length(
    ridge: float, w: NDArray, step: NDArray, margins: NDArray, moved: NDArray, value: float, slope: float
) -> float | None:
    """Halve a step until it leads down; None where it does not."""
    length = 1.0
    while length > LEAST_STEP:
        there, lack = w + length * step, np.maximum(0, 1 - margins - length * moved)
        if 0.5 * ridge * (there @ there) + 0.5 * (lack @ lack) <= value + DESCENT * length * slope:
            return length
        length /= 2
    return None
