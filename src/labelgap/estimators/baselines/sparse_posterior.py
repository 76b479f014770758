"""The posterior of sparse label vectors that are seen through a projection, by variational Bayes.

The model of a row is z ~ N(A y, s² I), y_j ~ N(0, 1/a_j), a_j ~ Gamma(SHAPE, RATE), with A (k×L) and the noise s²
given; q is a Gaussian of y times a Gamma of each a_j. What is kept of the Gammas is v_j = 1 / E[a_j]; a label with
v_j = 0 is known to be 0 and stays it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelgap.runtime import in_ranges

# Of the Gamma prior of a precision, and small: any size of a label's number is about as likely as any other.
SHAPE, RATE = 1e-3, 1e-3
NUMBERS_PER_BLOCK = 1 << 17  # that stay in the cache from one operation to the next


class Posterior(NamedTuple):
    """E[y] and the new v of each row, n×L, and its free energy but for ‖z − A E[y]‖² / 2s² and a constant, n."""

    mean: NDArray[np.float64]
    variance: NDArray[np.float64]
    energy: NDArray[np.float64]


def update(A: NDArray, codes: NDArray, variance: NDArray, noise: float) -> Posterior:
    """Update q(y), then q(a), of rows with codes z (n×k) and v (n×L).

    With S = A V Aᵀ + s² I the Gaussian has mean V Aᵀ S⁻¹ z and covariance C = V − V Aᵀ S⁻¹ A V, so that no L×L matrix
    is made; the Gamma has shape SHAPE + ½ and rate b_j = RATE + ½ E[y_j²]. The free energy has the terms
    tr(A C Aᵀ) / 2s², (SHAPE + ½) Σ ln b_j and −½ ln det C, the last two over labels that are not known.

    >>> found = update(np.eye(1), np.array([[1.0]]), np.array([[1.0]]), 1.0)
    >>> found.mean, found.variance.round(3)  # E[y²] is ½² + ½
    (array([[0.5]]), array([[0.75]]))
    """
    (n, k), L = codes.shape, A.shape[1]
    S = ((A * variance[:, None, :]).reshape(-1, L) @ A.T).reshape(n, k, k)
    S[:, np.arange(k), np.arange(k)] += noise
    inverse, free = np.linalg.inv(S), variance > 0
    through = (inverse.reshape(-1, k) @ A).reshape(n, k, L)
    mean = variance * (codes[:, None, :] @ through)[:, 0]
    rates = RATE + 0.5 * (mean**2 + variance - variance**2 * (A * through).sum(1))
    spread = k - noise * np.trace(inverse, axis1=1, axis2=2)
    entropy = _log_sum(variance, free) - np.linalg.slogdet(S / noise)[1]
    energy = 0.5 * (spread - entropy) + (SHAPE + 0.5) * _log_sum(rates, free)
    return Posterior(mean, np.where(free, rates / (SHAPE + 0.5), 0), energy)


def _log_sum(values: NDArray, where: NDArray) -> NDArray:
    return np.log(np.where(where, values, 1)).sum(1)


def infer(A: NDArray, codes: NDArray, variance: NDArray, noise: float, n_updates: int = 1) -> Posterior:
    """Update the posterior of each row ``n_updates`` times, from a v for all rows or one for each."""
    before = np.broadcast_to(variance, (len(codes), A.shape[1]))

    def work(first: int, last: int) -> Posterior:
        found = update(A, codes[first:last], before[first:last], noise)
        for _ in range(n_updates - 1):
            found = update(A, codes[first:last], found.variance, noise)
        return found

    bounds = [*range(0, len(codes), max(1, NUMBERS_PER_BLOCK // A.size)), len(codes)]
    return Posterior(*(np.concatenate(each) for each in zip(*in_ranges(work, bounds), strict=True)))
