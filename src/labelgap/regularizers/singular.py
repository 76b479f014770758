"""The singular values of a dense matrix above a threshold, with their vectors."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from labelgap.kernels import matmul, matmul_t
from labelgap.regularizers.tracking import Operator, Tracker

Array = Any

# Eigenvalues of AᵀA are good to ε σ₁², so a singular value σ found from them is good to ε σ₁² / σ. Below this share
# of σ₁ that is more than 1e-7 of σ, and the matrix itself is decomposed instead.
GRAM_SHARE = 3e-5
SMALL = 128  # the order from which finding some eigenvectors is faster than finding all


class Triplets(NamedTuple):
    """A ≈ U diag(values) Vᵀ, largest first: left n×k, values k, right m×k."""

    left: Array
    values: Array
    right: Array

    @property
    def product(self) -> Array:
        """U diag(values) Vᵀ."""
        return matmul(self.left * self.values, self.right.T)


def nuclear_norm(A: Array) -> float:
    """Return the sum of the singular values.

    >>> nuclear_norm(np.diag([3.0, -4.0]))
    7.0
    """
    return float(scipy.linalg.svdvals(A, check_finite=False).sum()) if A.size else 0.0


def beside(A: Array, column: Array) -> Array:
    """Return [A, w]."""
    return np.concatenate([A, column[:, None]], axis=1, dtype=A.dtype)


def leading_triplets(A: Array, threshold: float) -> Triplets:
    """Return the singular triplets of A with values above a threshold, largest first.

    >>> leading_triplets(np.diag([3.0, 1.0, 2.0]), 1.5).values
    array([3., 2.])
    """
    return Decomposer(A).triplets(threshold)


def largest_triplet(A: Array) -> Triplets:
    """Return the largest singular value of A and its vectors.

    >>> largest_triplet(np.diag([3.0, 1.0, 2.0])).values
    array([3.])
    """
    if A.shape[0] < A.shape[1]:
        right, values, left = largest_triplet(A.T)
        return Triplets(left, values, right)
    last = A.shape[1] - 1
    _, right = scipy.linalg.eigh(A.T @ A, driver="evr", subset_by_index=(last, last), check_finite=False)
    image = A @ right
    values = np.linalg.norm(image, axis=0)
    return Triplets(image / np.where(values > 0, values, 1), values, right)


class Decomposer:
    """Singular triplets of A, or of A with one more column.

    They are followed from the last matrix where a tracker can, else found through the eigenvectors of the smaller
    Gram matrix, or, where the threshold is too small for its rounding, from the matrix itself.
    """

    def __init__(self, A: Array, tracker: Tracker | None = None) -> None:
        self.A, self.tall, self.tracker = A, A.shape[0] > A.shape[1], tracker

    def triplets(self, threshold: float, column: Array | None = None) -> Triplets:
        """Return the triplets of A, or of [A, column], with values above the threshold, largest first."""
        column = None if column is None else column.astype(self.A.dtype, copy=False)
        if self.tracker is None:
            return self._exact(threshold, column)
        found = self.tracker.find(_operator(self.A, column), threshold, self.A.dtype)
        if found is not None:
            return Triplets(*found)
        exact = self._exact(threshold, column)
        self.tracker.learn(exact.right)
        return exact

    def _exact(self, threshold: float, column: Array | None) -> Triplets:
        square = self._square + (0.0 if column is None else float(column @ column))
        share = GRAM_SHARE * np.sqrt(np.finfo(self.A.dtype).eps / np.finfo(float).eps)
        if threshold**2 <= share**2 * square:
            return _from_matrix(self.A if column is None else beside(self.A, column), threshold)
        return (self._by_columns if self.tall else self._by_rows)(threshold, column)

    @cached_property
    def _square(self) -> float:
        """‖A‖², no less than σ₁²."""
        return float(np.trace(self._gram))

    @cached_property
    def _gram(self) -> Array:
        """AᵀA of a tall matrix, AAᵀ of a wide one."""
        return self.A.T @ self.A if self.tall else self.A @ self.A.T

    def _by_columns(self, threshold: float, column: Array | None) -> Triplets:
        A, gram, times = self.A, self._gram, matmul
        if column is None:
            values, right = _leading_eigenvectors(gram, threshold)
            return Triplets(times(A, right) / values, values, right)
        edge = column @ A
        values, right = _leading_eigenvectors(np.block([[gram, edge[:, None]], [edge, column @ column]]), threshold)
        left = times(A, right[:-1])
        left += np.outer(column, right[-1])
        left /= values
        return Triplets(left, values, right)

    def _by_rows(self, threshold: float, column: Array | None) -> Triplets:
        A, gram, times = self.A, self._gram, matmul_t
        if column is None:
            values, left = _leading_eigenvectors(gram, threshold)
            return Triplets(left, values, times(A, left) / values)
        values, left = _leading_eigenvectors(gram + np.outer(column, column), threshold)
        right = np.concatenate([times(A, left), (column @ left)[None]])
        right /= values
        return Triplets(left, values, right)


def _operator(A: Array, column: Array | None) -> Operator:
    times, t_times = matmul, matmul_t
    if column is None:
        return Operator(A.shape, lambda V: times(A, V), lambda U: t_times(A, U))
    return Operator(
        (A.shape[0], A.shape[1] + 1),
        lambda V: times(A, V[:-1]) + np.outer(column, V[-1]),
        lambda U: np.concatenate([t_times(A, U), (column @ U)[None]]),
    )


def _leading_eigenvectors(gram: Array, threshold: float) -> tuple[Array, Array]:
    """Return the roots of the eigenvalues above threshold², largest first, and their eigenvectors."""
    if len(gram) < SMALL:
        squares, vectors = scipy.linalg.eigh(gram, driver="evd", check_finite=False)
        squares, vectors = squares[::-1], vectors[:, ::-1]
        count = int((squares > threshold**2).sum())
        return np.sqrt(squares[:count]), vectors[:, :count]
    limits = (threshold**2, np.inf)
    squares, vectors = scipy.linalg.eigh(gram, driver="evr", subset_by_value=limits, check_finite=False)
    return np.sqrt(squares[::-1]), vectors[:, ::-1]


def _from_matrix(A: Array, threshold: float) -> Triplets:
    if A.shape[0] < A.shape[1]:
        right, values, left = _from_matrix(A.T, threshold)
        return Triplets(left, values, right)
    Q, R = scipy.linalg.qr(A, mode="economic", check_finite=False)
    left, values, right = scipy.linalg.svd(R, full_matrices=False, check_finite=False)
    kept = values > threshold
    return Triplets(matmul(Q, left[:, kept]), values[kept], right[kept].T)
