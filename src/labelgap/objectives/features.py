"""What stands left of a factor: sparse or dense features, nothing (the identity), with or without a constant."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from labelgap.kernels import Backend, matmul, matmul_t, namespace
from labelgap.solvers.base import Array, LinearMap

# The order up to which an eigendecomposition pays for itself: 6 s at 5,000 on two cores, and eight times as long at
# twice that, where a dozen column-wise CG products in each alternation cost less.
EIGEN_LIMIT = 6_000
GRAM_BLOCK = 256


@dataclass(frozen=True)
class Spectrum:
    """AᵀA = V diag(values) Vᵀ, thin: V spans the row space of A, and everything where it is ``complete``.

    ``values`` has shape (r, 1). That of the identity is a number, and has no vectors.
    """

    values: Array
    vectors: Array | None = None
    complete: bool = True

    def rotate(self, R: Array) -> Array:
        """Vᵀ R."""
        return R if self.vectors is None else matmul_t(self.vectors, R)

    def restore(self, Z: Array) -> Array:
        """V Z."""
        return Z if self.vectors is None else matmul(self.vectors, Z)


class Identity:
    """A = I: a factor without features, such as that of the labels."""

    is_identity = True

    def __init__(self, n: int) -> None:
        self.shape = (n, n)

    def __eq__(self, other: object) -> bool:
        return other is self or (isinstance(other, Identity) and other.shape == self.shape)

    def __hash__(self) -> int:
        return hash(self.shape)

    def times(self, W: Array) -> Array:
        return W

    def t_times(self, B: Array) -> Array:
        return B

    def spectrum(self) -> Spectrum:
        return Spectrum(1.0)

    def column_squares(self) -> float:
        return 1.0


class Features:
    """A sparse or dense feature matrix X (n×d) bound to its kernels, with a constant feature 1 if asked for.

    Parameters
    ----------
    X : sparse matrix or array
        The features.
    backend : Backend
        Where they are.
    dtype : type
        Their precision.
    constant : bool
        Append a column of ones, without a copy of X.

    Examples
    --------
    >>> from labelgap.kernels import get_backend
    >>> X = Features(np.array([[2.0], [3.0]]), get_backend(), float, constant=True)
    >>> X.times(np.array([[10.0], [1.0]])).ravel(), X.t_times(np.ones((2, 1))).ravel()
    (array([21., 31.]), array([5., 2.]))
    """

    is_identity = False

    def __init__(self, X: Any, backend: Backend, dtype: Any, *, constant: bool = False) -> None:
        sparse = sp.issparse(X)
        self.kernels, self.dtype, self.constant, self.sparse = backend, dtype, bool(constant), sparse
        self.matrix: Any = (backend.prepare if sparse else backend.rows)(X, dtype)
        self._times: Any = backend.spmm if sparse else backend.matmul
        self._t_times: Any = backend.spmm_t if sparse else backend.matmul_t
        self.shape = (X.shape[0], X.shape[1] + self.constant)

    def times(self, W: Array) -> Array:
        """A W."""
        if not self.constant:
            return self._times(self.matrix, W)
        product = self._times(self.matrix, W[:-1, :])
        product += W[-1:, :]
        return product

    def t_times(self, B: Array) -> Array:
        """Aᵀ B."""
        product = self._t_times(self.matrix, B)
        if not self.constant:
            return product
        xp = namespace(B)
        sums = xp.astype(xp.sum(B, axis=0, keepdims=True, dtype=xp.float64), B.dtype)
        return namespace(product).concat([product, sums])

    def column_squares(self) -> Array:
        """The squared norm of each column, float64, (d, 1)."""
        return self._squares

    @cached_property
    def _squares(self) -> Array:
        if self.sparse:
            squares = self.kernels.column_squares(self.matrix)
        else:
            xp = namespace(self.matrix)
            squares = xp.sum(self.matrix * self.matrix, axis=0, dtype=xp.float64)[:, None]
        if not self.constant:
            return squares
        return namespace(squares).concat([squares, 0 * squares[:1, :] + float(self.shape[0])])

    def gram(self) -> Array:
        """AᵀA, dense and float64."""
        xp = namespace(self.matrix) if not self.sparse else None
        inner = self.kernels.gram(self.matrix if xp is None else xp.astype(self.matrix, xp.float64))
        if not self.constant:
            return inner
        ones = self.kernels.rows(np.ones((self.shape[0], 1)), self.dtype)
        xp = namespace(inner)
        sums = xp.astype(self._t_times(self.matrix, ones), xp.float64)
        count = 0 * sums[:1, :] + float(self.shape[0])
        return xp.concat([xp.concat([inner, sums], axis=1), xp.concat([sums.T, count], axis=1)])

    def outer_gram(self) -> Array:
        """AAᵀ, dense and float64."""
        if self.sparse:
            outer = self.kernels.gram(self.kernels.transpose(self.matrix))
        else:
            whole = self.kernels.array(self.kernels.to_numpy(self.matrix), np.float64)
            outer = matmul(whole, whole.T)
        return outer + 1.0 if self.constant else outer

    @cached_property
    def kept_gram(self) -> Array:
        """AᵀA, made once: for features that are few."""
        return self.gram()

    def weighted_gram(self, rows: Array | float) -> Array:
        """Aᵀ diag(rows) A, dense and float64, some columns after the other where each row has its own weight."""
        if np.ndim(rows) == 0:
            return rows * self.kept_gram
        d = self.shape[1]
        units, parts = np.eye(d), []
        for start in range(0, d, GRAM_BLOCK):
            block = self.kernels.array(units[:, start : start + GRAM_BLOCK], np.float64)
            parts.append(self.t_times(rows * self.times(block)))
        return namespace(parts[0]).concat(parts, axis=1)

    def spectrum(self) -> Spectrum | None:
        """The eigenvectors of AᵀA, found once; None where they would cost more than they save."""
        return self._spectrum if min(self.shape) <= EIGEN_LIMIT else None

    @cached_property
    def _spectrum(self) -> Spectrum:
        """Through the smaller of AᵀA and AAᵀ, in float64: small eigenvalues matter next to a ridge."""
        n, d = self.shape
        values, vectors = self.kernels.eigh(self.gram() if d <= n else self.outer_gram())
        xp = namespace(values)
        values = xp.where(values > 0, values, 0.0)
        if d > n:
            # A direction is Aᵀu / √value: below this its rounding error would outweigh it.
            least = float(max(n * np.finfo(float).eps, (100 * np.finfo(self.dtype).eps) ** 2))
            dropped = n - int(xp.count_nonzero(values > least * values[-1]))
            values = values[dropped:]
            vectors = self.t_times(self.kernels.rows(vectors[:, dropped:], self.dtype)) / xp.sqrt(values)
        return Spectrum(values[:, None], self.kernels.array(vectors, self.dtype), values.shape[0] == d)


class Undecomposed:
    """The same matrix for a few products, for which its eigenvectors would cost more than they save."""

    is_identity = False

    def __init__(self, features: LinearMap) -> None:
        self.features, self.shape = features, features.shape
        self.times, self.t_times, self.column_squares = features.times, features.t_times, features.column_squares

    def spectrum(self) -> None:
        return None


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
