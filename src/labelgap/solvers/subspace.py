"""The leading singular directions of a matrix that is known by its products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from labelgap.kernels import namespace, qr, svd
from labelgap.solvers.base import Array


def orthonormal(block: Array) -> Array:
    """Return orthonormal columns whose span has that of the block in it."""
    return qr(block)[0]


def leading_right_vectors(
    times: Callable[[Array], Array],
    t_times: Callable[[Array], Array],
    n_columns: int,
    k: int,
    *,
    random_state: np.random.RandomState,
    dtype: Any = np.float64,
    bring: Callable[[Array, Any], Array] = np.ascontiguousarray,
    oversampling: int = 10,
    n_iter: int = 2,
) -> tuple[Array, Array]:
    """Return about the k largest singular values of A and their right vectors (n_columns×k), by subspace iteration.

    ``times(V)`` is A V and ``t_times(U)`` is Aᵀ U; ``bring(array, dtype)`` takes the random start to where these
    compute, and the vectors to the order in which they want them. Halko, Martinsson and Tropp (2011), algorithms 4.4
    and 5.1.

    >>> A = np.diag([3.0, 2.0, 1.0])
    >>> values, V = leading_right_vectors(A.dot, A.T.dot, 3, 2, random_state=np.random.RandomState(0))
    >>> values.round(6)
    array([3., 2.])
    """
    width = min(n_columns, k + oversampling)
    V = bring(random_state.standard_normal((n_columns, width)), dtype)
    for _ in range(n_iter):
        V = orthonormal(t_times(orthonormal(times(V))))
    image = t_times(orthonormal(times(V))).T
    xp = namespace(image)
    if not bool(xp.all(xp.isfinite(image))):
        raise FloatingPointError("their products became infinite")
    _, values, Vt = svd(image)
    return values[:k], bring(Vt[:k, :].T, dtype)
