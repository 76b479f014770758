"""Random matrices that squeeze sparse label vectors into few numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from labelgap.observations import Labels


def _gaussian(k: int, n: int, rng: np.random.RandomState) -> NDArray[np.float64]:
    return rng.standard_normal((k, n)) / np.sqrt(k)


def _signs(k: int, n: int, rng: np.random.RandomState) -> NDArray[np.float64]:
    return rng.choice([-1.0, 1.0], (k, n)) / np.sqrt(k)


def _hadamard(k: int, n: int, rng: np.random.RandomState) -> NDArray[np.float64]:
    """Rows and columns drawn from the smallest Hadamard matrix that has enough of them."""
    order = 1 << (n - 1).bit_length()
    rows, columns = rng.permutation(order)[:k], rng.permutation(order)[:n]
    return scipy.linalg.hadamard(order)[np.ix_(rows, columns)] / np.sqrt(k)


def _orthogonal(k: int, n: int, rng: np.random.RandomState) -> NDArray[np.float64]:
    """Orthogonal rows in random directions: with k = n nothing is lost."""
    return scipy.linalg.qr(rng.standard_normal((n, k)), mode="economic")[0].T * np.sqrt(n / k)


PROJECTIONS: dict[str, Callable[[int, int, np.random.RandomState], NDArray[np.float64]]] = {
    "orthogonal": _orthogonal,
    "gaussian": _gaussian,
    "sign": _signs,
    "hadamard": _hadamard,
}


def project_seen(kind: str, labels: Labels, k: int, rng: np.random.RandomState) -> NDArray[np.float64]:
    """Return A (k×L), random where a label has a positive and 0 in the columns of the others.

    Of labels that never occur nothing can be learned, and they would only be mistaken for others; codes beyond the
    number of labels that do occur are left out. A column has length 1, on average or exactly.

    >>> labels = Labels(np.array([[1, 0, 1], [1, 0, 0]]))
    >>> A = project_seen("orthogonal", labels, 3, np.random.RandomState(0))
    >>> A.shape, (A.T @ A).round(6) + 0
    ((2, 3), array([[1., 0., 0.],
           [0., 0., 0.],
           [0., 0., 1.]]))
    """
    seen = np.unique(labels.positives.indices)
    A = np.zeros((max(1, min(k, len(seen))), labels.shape[1]))
    if len(seen):
        A[:, seen] = PROJECTIONS[kind](len(A), len(seen), rng)
    return A
