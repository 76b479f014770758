"""What stands left of a factor: sparse or dense features, nothing (the identity), with or without a constant."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from labelgap.kernels import Backend, matmul, matmul_t, namespace
from labelgap.solvers.base import Array, LinearMap, Spectrum

# The order up to which an eigendecomposition pays for itself: 6 s at 5,000 on two cores, and eight times as long at
# twice that, where a dozen column-wise CG products in each alternation cost less.
EIGEN_LIMIT = 6_000
GRAM_BLOCK = 256


@dataclass(frozen=True)
class Eigenvectors:
    """AᵀA = V diag(values) Vᵀ, ``values`` of shape (r, 1)."""

    values: Array
    vectors: Array
    complete: bool

    def rotate(self, R: Array) -> Array:
        """Vᵀ R."""
        return matmul_t(self.vectors, R)

    def restore(self, Z: Array) -> Array:
        """V Z."""
        return matmul(self.vectors, Z)


class Ones:
    """The spectrum of the identity."""

    values = 1.0
    complete = True

    def rotate(self, R: Array) -> Array:
        """R."""
        return R

    def restore(self, Z: Array) -> Array:
        """Z."""
        return Z


@dataclass(frozen=True)
class Identity:
    """A = I: a factor without features, such as that of the labels."""

    n: int
    is_identity = True

    @property
    def shape(self) -> tuple[int, int]:
        """(n, n)."""
        return self.n, self.n

    def times(self, W: Array) -> Array:
        return W

    def t_times(self, B: Array) -> Array:
        return B

    def spectrum(self) -> Spectrum:
        return Ones()

    def column_squares(self) -> float:
        return 1.0


class Matrix(ABC):
    """A feature matrix A (n×d); finds the eigenvectors of AᵀA through the smaller of AᵀA and AAᵀ, once."""

    is_identity = False
    kernels: Backend
    shape: tuple[int, int]
    dtype: Any

    @abstractmethod
    def times(self, W: Array) -> Array:
        """A W."""

    @abstractmethod
    def t_times(self, B: Array) -> Array:
        """Aᵀ B."""

    @abstractmethod
    def column_squares(self) -> Array:
        """The squared norm of each column, float64, d×1."""

    @abstractmethod
    def gram(self) -> Array:
        """AᵀA, dense and float64."""

    @abstractmethod
    def outer_gram(self) -> Array:
        """AAᵀ, dense and float64."""

    @cached_property
    def kept_gram(self) -> Array:
        """AᵀA, made once: for features that are few."""
        return self.gram()

    def weighted_gram(self, rows: Array | float) -> Array:
        """Aᵀ diag(rows) A, dense and float64, some columns after the other where each row has its own weight."""
        if np.ndim(rows) == 0:
            return rows * self.kept_gram
        d = self.shape[1]
        units = np.eye(d)
        parts = []
        for start in range(0, d, GRAM_BLOCK):
            block = self.kernels.array(units[:, start : start + GRAM_BLOCK], np.float64)
            parts.append(self.t_times(rows * self.times(block)))
        return namespace(parts[0]).concat(parts, axis=1)

    def spectrum(self) -> Eigenvectors | None:
        return self._eigenvectors if min(self.shape) <= EIGEN_LIMIT else None

    @cached_property
    def _eigenvectors(self) -> Eigenvectors:
        """Small eigenvalues matter next to a ridge, so the Gram matrix and its eigenvectors are found in float64."""
        n, d = self.shape
        values, vectors = self.kernels.eigh(self.gram() if d <= n else self.outer_gram())
        xp = namespace(values)
        values = xp.where(values > 0, values, 0.0)
        if d > n:
            # A direction is Aᵀu / √value: below this its rounding error would outweigh it.
            least = max(n * np.finfo(float).eps, (100 * np.finfo(self.dtype).eps) ** 2)
            dropped = n - int(xp.count_nonzero(values > least * values[-1]))
            values = values[dropped:]
            kept = self.kernels.rows(vectors[:, dropped:], self.dtype)
            vectors = self.t_times(kept) / xp.sqrt(values)
        return Eigenvectors(values[:, None], self.kernels.array(vectors, self.dtype), values.shape[0] == d)


class SparseFeatures(Matrix):
    """A sparse n×d matrix, kept with its transpose."""

    def __init__(self, matrix: Any, backend: Backend, dtype: Any) -> None:
        self.kernels, self.matrix, self.dtype = backend, backend.prepare(matrix, dtype), dtype
        self.shape = self.matrix.shape

    def times(self, W: Array) -> Array:
        return self.kernels.spmm(self.matrix, W)

    def t_times(self, B: Array) -> Array:
        return self.kernels.spmm_t(self.matrix, B)

    def column_squares(self) -> Array:
        return self._squares

    @cached_property
    def _squares(self) -> Array:
        return self.kernels.column_squares(self.matrix)

    def gram(self) -> Array:
        return self.kernels.gram(self.matrix)

    def outer_gram(self) -> Array:
        return self.kernels.gram(self.kernels.transpose(self.matrix))


class DenseFeatures(Matrix):
    """A dense n×d matrix."""

    def __init__(self, matrix: Any, backend: Backend, dtype: Any) -> None:
        self.kernels, self.matrix, self.dtype = backend, backend.rows(matrix, dtype), dtype
        self.shape = self.matrix.shape

    def times(self, W: Array) -> Array:
        return self.kernels.matmul(self.matrix, W)

    def t_times(self, B: Array) -> Array:
        return self.kernels.matmul_t(self.matrix, B)

    def column_squares(self) -> Array:
        return self._squares

    @cached_property
    def _squares(self) -> Array:
        xp = namespace(self.matrix)
        return xp.sum(self.matrix * self.matrix, axis=0, dtype=xp.float64)[:, None]

    def gram(self) -> Array:
        xp = namespace(self.matrix)
        return self.kernels.gram(xp.astype(self.matrix, xp.float64))

    def outer_gram(self) -> Array:
        whole = self.kernels.array(self.kernels.to_numpy(self.matrix), np.float64)
        return matmul(whole, whole.T)


class WithConstant(Matrix):
    """[A, 1]: a feature that is always 1, without a copy of A."""

    def __init__(self, features: SparseFeatures | DenseFeatures) -> None:
        self.features, self.dtype, self.kernels = features, features.dtype, features.kernels
        self.shape = (features.shape[0], features.shape[1] + 1)

    def times(self, W: Array) -> Array:
        product = self.features.times(W[:-1, :])
        product += W[-1:, :]
        return product

    def t_times(self, B: Array) -> Array:
        xp = namespace(B)
        constant = xp.astype(xp.sum(B, axis=0, keepdims=True, dtype=xp.float64), B.dtype)
        return namespace(constant).concat([self.features.t_times(B), constant])

    def column_squares(self) -> Array:
        squares = self.features.column_squares()
        return namespace(squares).concat([squares, 0 * squares[:1, :] + float(self.shape[0])])

    def gram(self) -> Array:
        inner = self.features.gram()
        xp = namespace(inner)
        ones = self.kernels.rows(np.ones((self.shape[0], 1)), self.dtype)
        sums = xp.astype(self.features.t_times(ones), xp.float64)
        count = 0 * sums[:1, :] + float(self.shape[0])
        return xp.concat([xp.concat([inner, sums], axis=1), xp.concat([sums.T, count], axis=1)])

    def outer_gram(self) -> Array:
        return self.features.outer_gram() + 1.0


class Undecomposed:
    """The same matrix for a few products, for which its eigenvectors would cost more than they save."""

    is_identity = False

    def __init__(self, features: LinearMap) -> None:
        self.features, self.shape = features, features.shape
        self.times, self.t_times, self.column_squares = features.times, features.t_times, features.column_squares

    def spectrum(self) -> None:
        return None


def make_features(X: Any, backend: Backend, dtype: Any, *, constant: bool = False) -> Matrix:
    """Bind a feature matrix to its kernels, with a constant feature if asked for."""
    features = (SparseFeatures if sp.issparse(X) else DenseFeatures)(X, backend, dtype)
    return WithConstant(features) if constant else features


@contextmanager
def numbers_in_range(dtype: Any) -> Iterator[None]:
    """Say what to do about features whose products overflow, or vanish."""
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows shows in what it makes
            yield
    except (FloatingPointError, np.linalg.LinAlgError) as error:
        raise ValueError(
            f"The numbers in X are too large or too small for dtype={np.dtype(dtype).name!r} ({error}); scale the "
            "features (sklearn.preprocessing has Normalizer and StandardScaler) or pass dtype='float64'."
        ) from error
