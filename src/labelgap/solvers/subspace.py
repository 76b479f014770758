"""The leading singular directions of a matrix that is known by its products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg

from labelgap.solvers.base import Array


def orthonormal(block: Array) -> Array:
    """Return orthonormal columns whose span has that of the block in it."""
    return scipy.linalg.qr(block, mode="economic", check_finite=False)[0]


def leading_right_vectors(
    times: Callable[[Array], Array],
    t_times: Callable[[Array], Array],
    n_columns: int,
    k: int,
    *,
    random_state: np.random.RandomState,
    dtype: Any = np.float64,
    oversampling: int = 10,
    n_iter: int = 2,
) -> tuple[Array, Array]:
    """Return about the k largest singular values of A and their right vectors (n_columns×k), by subspace iteration.

    ``times(V)`` is A V and ``t_times(U)`` is Aᵀ U. Halko, Martinsson and Tropp (2011), algorithms 4.4 and 5.1.

    >>> A = np.diag([3.0, 2.0, 1.0])
    >>> values, V = leading_right_vectors(A.dot, A.T.dot, 3, 2, random_state=np.random.RandomState(0))
    >>> values.round(6)
    array([3., 2.])
    """
    width = min(n_columns, k + oversampling)
    V = random_state.standard_normal((n_columns, width)).astype(dtype)
    for _ in range(n_iter):
        V = orthonormal(t_times(orthonormal(times(V))))
    image = t_times(orthonormal(times(V))).T
    if not np.isfinite(image).all():
        raise FloatingPointError("their products became infinite")
    _, values, Vt = scipy.linalg.svd(image, full_matrices=False, check_finite=False)
    return values[:k], np.ascontiguousarray(Vt[:k].T)
