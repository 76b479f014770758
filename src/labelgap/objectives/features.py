"""What stands left of a factor: sparse or dense features, nothing (the identity), with or without a constant."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from labelgap.kernels import Backend, of
from labelgap.runtime import wide_blas
from labelgap.solvers.base import Array, LinearMap, Spectrum

# The order up to which an eigendecomposition pays for itself: 6 s at 5,000 on two cores, and eight times as long at
# twice that, where a dozen column-wise CG products in each alternation cost less.
EIGEN_LIMIT = 6_000
GRAM_BLOCK = 256


class Eigenvectors:
    """AᵀA = V diag(values) Vᵀ."""

    def __init__(self, values: Array, vectors: Array) -> None:
        self.values, self.vectors = values, vectors

    def rotate(self, R: Array) -> Array:
        """Vᵀ R."""
        return of(R).matmul_t(self.vectors, R)

    def restore(self, Z: Array) -> Array:
        """V Z."""
        return of(Z).matmul(self.vectors, Z)


class Ones:
    """The spectrum of the identity."""

    def __init__(self, n: int) -> None:
        self.values = np.ones(n)

    def rotate(self, R: Array) -> Array:
        """R."""
        return R

    def restore(self, Z: Array) -> Array:
        """Z."""
        return Z


class Identity:
    """A = I: a factor without features, such as that of the labels."""

    def __init__(self, n: int) -> None:
        self.shape = (n, n)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and other.shape == self.shape

    def __hash__(self) -> int:
        return hash(self.shape)

    def times(self, W: Array) -> Array:
        return W

    def t_times(self, B: Array) -> Array:
        return B

    def spectrum(self) -> Spectrum:
        return Ones(self.shape[0])

    def column_squares(self) -> Array:
        return np.ones((self.shape[0], 1))


class _WithSpectrum:
    """Finds the eigenvectors of AᵀA through the smaller of AᵀA and AAᵀ, once."""

    shape: tuple[int, int]
    dtype: Any
    decomposed: bool = True

    def gram(self) -> Array:
        """AᵀA, dense and float64."""
        raise NotImplementedError

    def outer_gram(self) -> Array:
        """AAᵀ, dense and float64."""
        raise NotImplementedError

    def t_times(self, B: Array) -> Array:
        raise NotImplementedError

    def times(self, W: Array) -> Array:
        raise NotImplementedError

    def weighted_gram(self, rows: Array | float) -> Array:
        """Aᵀ diag(rows) A, dense and float64, some columns after the other where each row has its own weight."""
        if np.ndim(rows) == 0:
            return rows * self.gram()
        d = self.shape[1]
        columns = np.eye(d)
        parts = [columns[:, start : start + GRAM_BLOCK] for start in range(0, d, GRAM_BLOCK)]
        return np.hstack([self.t_times(rows * self.times(np.ascontiguousarray(part))) for part in parts])

    def spectrum(self) -> Spectrum | None:
        return self._eigenvectors if self.decomposed and min(self.shape) <= EIGEN_LIMIT else None

    @cached_property
    def _eigenvectors(self) -> Eigenvectors:
        """Small eigenvalues matter next to a ridge, so the Gram matrix and its eigenvectors are found in float64."""
        n, d = self.shape
        small = self.gram() if d <= n else self.outer_gram()
        with wide_blas():
            values, vectors = scipy.linalg.eigh(small, driver="evd", overwrite_a=True)
        values = np.maximum(values, 0)
        if d > n:
            # A direction is Aᵀu / √value: below this its rounding error would outweigh it.
            kept = values > max(n * np.finfo(float).eps, (100 * np.finfo(self.dtype).eps) ** 2) * values[-1]
            values = values[kept]
            vectors = self.t_times(vectors[:, kept].astype(self.dtype)) / np.sqrt(values)
        return Eigenvectors(values, np.ascontiguousarray(vectors, self.dtype))


class SparseFeatures(_WithSpectrum):
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


class DenseFeatures(_WithSpectrum):
    """A dense n×d matrix."""

    def __init__(self, matrix: Any, backend: Backend, dtype: Any) -> None:
        self.kernels, self.matrix, self.dtype = backend, backend.array(matrix, dtype), dtype
        self.shape = self.matrix.shape

    def times(self, W: Array) -> Array:
        return self.kernels.matmul(self.matrix, W)

    def t_times(self, B: Array) -> Array:
        return self.kernels.matmul_t(self.matrix, B)

    def column_squares(self) -> Array:
        return self._squares

    @cached_property
    def _squares(self) -> Array:
        return (self.matrix**2).sum(0, dtype=float)[:, None]

    def gram(self) -> Array:
        return self.kernels.gram(self.matrix.astype(float))

    def outer_gram(self) -> Array:
        return self.kernels.gram(self.matrix.T.astype(float))


class WithConstant(_WithSpectrum):
    """[A, 1]: a feature that is always 1, without a copy of A."""

    def __init__(self, features: SparseFeatures | DenseFeatures) -> None:
        self.features, self.dtype = features, features.dtype
        self.shape = (features.shape[0], features.shape[1] + 1)

    def times(self, W: Array) -> Array:
        product = self.features.times(W[:-1])
        product += W[-1]
        return product

    def t_times(self, B: Array) -> Array:
        return np.concatenate([self.features.t_times(B), B.sum(0, keepdims=True, dtype=float).astype(B.dtype)])

    def column_squares(self) -> Array:
        squares = self.features.column_squares()
        return np.concatenate([squares, np.full((1, 1), self.shape[0], squares.dtype)])

    def gram(self) -> Array:
        inner = self.features.gram()
        sums = self.features.t_times(np.ones((self.shape[0], 1), self.dtype)).astype(float)
        return np.block([[inner, sums], [sums.T, np.full((1, 1), self.shape[0], inner.dtype)]])

    def outer_gram(self) -> Array:
        return self.features.outer_gram() + 1


def make_features(X: Any, backend: Backend, dtype: Any, *, constant: bool = False) -> LinearMap:
    """Bind a feature matrix to its kernels, with a constant feature if asked for."""
    features = (SparseFeatures if sp.issparse(X) else DenseFeatures)(X, backend, dtype)
    return WithConstant(features) if constant else features
