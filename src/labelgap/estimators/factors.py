"""Factors of rows: W in two parts, that of the features and that of the constant, and rows embedded by it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelgap.kernels import Backend
from labelgap.objectives import make_features


def split_factors(W: NDArray, constant: bool) -> tuple[NDArray, NDArray]:
    """Return the rows of W that belong to features, and the one of the constant feature, 0 without one.

    >>> split_factors(np.array([[1.0], [2.0], [3.0]]), True)
    (array([[1.],
           [2.]]), array([3.]))
    """
    return (W[:-1], W[-1]) if constant else (W, np.zeros(W.shape[1], W.dtype))


def join_factors(features: NDArray, intercept: NDArray, constant: bool) -> NDArray:
    """Return the W that :func:`split_factors` was given."""
    return np.vstack([features, intercept]) if constant else features


def embed_rows(X: Any, features: NDArray, intercept: NDArray, kernels: Backend, dtype: Any) -> NDArray:
    """Return the factors [X, 1] W of rows, n×k."""
    dtype = np.dtype(dtype).type
    B = make_features(X, kernels, dtype).times(features.astype(dtype, copy=False))
    B += intercept
    return B
