"""The matrices that multiply factors: sparse or dense features, with or without a constant, and the identity."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from labelgap.kernels import (
    Backend,
    column_grams,
    column_totals,
    combine,
    eigh,
    exact_gram,
    matmul,
    matmul_t,
    namespace,
)
from labelgap.kernels.row_shards import RowShards
from labelgap.runtime import get_memory_limit
from labelgap.solvers.base import Array, GramSketch, LinearMap

# The order up to which an eigendecomposition pays for itself. It takes 12 s at 5,000 on two cores, where a fit by
# sketches and products takes 3 s.
MAX_EIGEN_ORDER = 1_000
MIN_SKETCH_RANK, MAX_SKETCH_RANK = 16, 500
MIN_SKETCH_SCALE, CONSTANT_SCALE = 0.1, 10.0  # relative to the mean squared norm of a column
MIN_SKETCH_VALUE = 1e-7  # of a Gram matrix, relative: rounding of float32 columns
GRAM_BLOCK_COLUMNS = 256
SKETCH_MEMORY = 4  # a sketch takes at most 1/4 of the memory


@dataclass(frozen=True)
class Spectrum:
    """AᵀA = V diag(values) Vᵀ, thin: V spans the row space of A, or the whole space if it is ``complete``.

    ``values`` has shape (r, 1). For the identity it is a number, without vectors.
    """

    values: Array
    vectors: Array | None = None
    complete: bool = True

    def rotate(self, R: Array) -> Array:
        """Return Vᵀ R."""
        return R if self.vectors is None else matmul_t(self.vectors, R)

    def restore(self, Z: Array) -> Array:
        """Return V Z."""
        return Z if self.vectors is None else matmul(self.vectors, Z)


@dataclass(frozen=True)
class Sketch:
    """AᵀA ≈ D⁻¹ (U diag(values) Uᵀ + tail (I − UUᵀ)) D⁻¹: a Nyström approximation of the scaled matrix D AᵀA D.

    D² = diag(weights), with 1/D² about the diagonal of AᵀA, but for the constant; ``directions`` are D U. The sketch
    finds the few directions that columns of unequal norms do not explain (Frangella, Tropp and Udell 2021, who do not
    scale). A ridge ρ is ρ · D⁻¹ D² D⁻¹, where D² is replaced by ``squares`` (uᵀD²u of each direction) and
    ``tail_square`` (its mean over the others).
    """

    weights: Array
    directions: Array
    values: Array
    squares: Array
    tail: Array
    tail_square: Array

    @classmethod
    def of(cls, features: Features, rank: int) -> Sketch:
        """Sketch AᵀA by its product with ``rank`` random columns."""
        norms = features.column_squares()
        xp, ordinary = namespace(norms), norms[: norms.shape[0] - features.constant, :]
        mean = float(xp.mean(ordinary)) + float(np.finfo(np.float64).tiny)
        if features.constant:
            # Scaled by its norm, a shift from all other columns to the constant would take tiny steps.
            norms = xp.concat([ordinary, 0 * ordinary[:1, :] + CONSTANT_SCALE * mean])
        squares = 1 / (norms + MIN_SKETCH_SCALE * mean)
        image = features.kernels.normal(np.random.RandomState(0), (features.shape[1], rank), features.dtype)
        scale = xp.astype(xp.sqrt(squares), image.dtype)
        image *= scale
        half = features.coarse.times(image)
        whitening = _whiten(exact_gram(half))
        image = features.coarse.t_times(half)
        del half
        image *= scale
        rotation = _whiten(whitening.T @ exact_gram(image) @ whitening)
        # The columns of the rotation have the length 1/√value.
        values = 1 / xp.sum(rotation * rotation, axis=0)
        directions = matmul(image, xp.astype(whitening @ rotation, image.dtype))
        directions *= scale
        shares = column_grams(directions)[0][0].T
        rest = (xp.sum(squares) - xp.sum(shares)) / max(1, features.shape[1] - directions.shape[1])
        return cls(xp.astype(squares, image.dtype), directions, values[:, None], shares, values[0], rest)

    def invert(self, m: Array, ridge: float) -> Callable[[Array], Array]:
        """Return R ↦ about (m_c AᵀA + ridge)⁻¹ r_c for each column c; m has shape (1, k)."""
        xp, dtype = namespace(self.values), self.directions.dtype
        tail = 1 / (m * self.tail + ridge * self.tail_square)
        change = xp.astype(1 / (m * self.values + ridge * self.squares) - tail, dtype)

        def solve(R: Array) -> Array:
            solved = matmul(self.directions, change * matmul_t(self.directions, R))
            return combine(solved, 1.0, R, tail, self.weights)

        return solve


def _whiten(gram: Array) -> Array:
    """Return C with CᵀGC = I for a positive semidefinite G, without its directions at rounding level."""
    xp = namespace(gram)
    if not np.isfinite(float(xp.linalg.trace(gram))):
        raise FloatingPointError("the squares of their products became infinite")
    values, V = eigh(gram)
    dropped = values.shape[0] - int(xp.count_nonzero(values > MIN_SKETCH_VALUE * values[-1]))
    return V[:, dropped:] / xp.sqrt(values[dropped:])


class Identity:
    """The identity, for a factor without features, such as that of the labels."""

    is_identity = True

    def __init__(self, n: int) -> None:
        self.shape = (n, n)

    def __eq__(self, other: object) -> bool:
        return other is self or (isinstance(other, Identity) and other.shape == self.shape)

    def __hash__(self) -> int:
        return hash(self.shape)

    @property
    def coarse(self) -> Identity:
        return self

    def times(self, W: Array) -> Array:
        return W

    def t_times(self, B: Array) -> Array:
        return B

    def spectrum(self) -> Spectrum:
        return Spectrum(1.0)

    def sketch(self) -> None:
        return None

    def column_squares(self) -> float:
        return 1.0


class Features:
    """A sparse or dense feature matrix X (n×d) bound to a backend, optionally with a constant feature 1.

    Parameters
    ----------
    X : sparse matrix or array
        The features.
    backend : Backend
        The backend of their device.
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
        sparse = X.sparse if isinstance(X, RowShards) else sp.issparse(X)
        self.kernels, self.dtype, self.constant, self.sparse = backend, dtype, bool(constant), sparse
        self.matrix: Any = (backend.prepare if sparse else backend.rows)(X, dtype)
        self._times: Any = backend.spmm if sparse else backend.matmul
        self._t_times: Any = backend.spmm_t if sparse else backend.matmul_t
        self.shape = (X.shape[0], X.shape[1] + self.constant)

    def times(self, W: Array, convert: Callable[[Array], Array] = lambda W: W) -> Array:
        """Return A W, with ``convert(W)`` for its sparse or dense part."""
        if not self.constant:
            return self._times(self.matrix, convert(W))
        return combine(self._times(self.matrix, convert(W[:-1, :])), 1.0, W[-1:, :], 1.0)

    def t_times(self, B: Array, convert: Callable[[Array], Array] = lambda B: B) -> Array:
        """Return Aᵀ B, with ``convert(B)`` for its sparse or dense part."""
        product = self._t_times(self.matrix, convert(B))
        if not self.constant:
            return product
        xp = namespace(B)
        return namespace(product).concat([product, xp.astype(column_totals(B), product.dtype)])

    @property
    def coarse(self) -> LinearMap:
        """The same matrix, whose products may round their arguments."""
        return CoarseProducts(self) if self.sparse else self

    def column_squares(self) -> Array:
        """Return the squared norm of each column, float64, (d, 1)."""
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
        """Return AᵀA, dense and float64."""
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
        """Return AAᵀ, dense and float64."""
        if self.sparse:
            outer = self.kernels.gram(self.kernels.transpose(self.matrix))
        else:
            dense = self.kernels.array(self.kernels.to_numpy(self.matrix), np.float64)
            outer = matmul(dense, dense.T)
        return outer + 1.0 if self.constant else outer

    @cached_property
    def cached_gram(self) -> Array:
        """AᵀA, computed once; for few features."""
        return self.gram()

    def weighted_gram(self, rows: Array | float) -> Array:
        """Return Aᵀ diag(rows) A, dense and float64; in blocks of columns if each row has its own weight."""
        if np.ndim(rows) == 0:
            return rows * self.cached_gram
        d = self.shape[1]
        units, parts = np.eye(d), []
        for start in range(0, d, GRAM_BLOCK_COLUMNS):
            block = self.kernels.array(units[:, start : start + GRAM_BLOCK_COLUMNS], np.float64)
            parts.append(self.t_times(rows * self.times(block)))
        return namespace(parts[0]).concat(parts, axis=1)

    def spectrum(self) -> Spectrum | None:
        """Return the eigenvectors of AᵀA, computed once; None if they would cost more than they save."""
        return self._spectrum if min(self.shape) <= MAX_EIGEN_ORDER else None

    def sketch(self) -> Sketch | None:
        """Return a sketch of AᵀA, computed once, with shorter products than A; None if A or memory is small."""
        return self._sketch

    @cached_property
    def _sketch(self) -> Sketch | None:
        n, d = self.shape
        mean_column = (self.matrix.nnz if self.sparse else n * d) // d
        rank = min(MAX_SKETCH_RANK, max(MIN_SKETCH_RANK, mean_column))
        # Sketch.of holds two arrays of n×rank numbers and three of d×rank at a time.
        bytes_per_rank = np.dtype(self.dtype).itemsize * (2 * n + 3 * d)
        rank = min(rank, get_memory_limit() // SKETCH_MEMORY // bytes_per_rank)
        if rank < MIN_SKETCH_RANK:
            return None
        return Sketch.of(self, rank) if rank <= min(n, d) // 4 else None

    @cached_property
    def _spectrum(self) -> Spectrum:
        """The eigenvectors by the smaller of AᵀA and AAᵀ, in float64: small eigenvalues matter next to a ridge."""
        n, d = self.shape
        values, vectors = self.kernels.eigh(self.gram() if d <= n else self.outer_gram())
        xp = namespace(values)
        values = xp.where(values > 0, values, 0.0)
        if d > n:
            # A direction is Aᵀu / √value, whose rounding error would dominate below this value.
            min_value = float(max(n * np.finfo(float).eps, (100 * np.finfo(self.dtype).eps) ** 2))
            dropped = n - int(xp.count_nonzero(values > min_value * values[-1]))
            values = values[dropped:]
            vectors = self.t_times(self.kernels.rows(vectors[:, dropped:], self.dtype)) / xp.sqrt(values)
        return Spectrum(values[:, None], self.kernels.array(vectors, self.dtype), values.shape[0] == d)


class WithoutConstant:
    """The features X left after a ridge regression on [X, 1] is solved for its constant b.

    With s = Xᵀ1, b = (1ᵀy − sᵀw) / (n + ρ), and w solves (XᵀX − s sᵀ / (n + ρ) + ρI) w = Xᵀy − s 1ᵀy / (n + ρ).
    The matrix is AᵀA + ρI of A = X − t 1 sᵀ, t = (1 − √(ρ / (n + ρ))) / n. Without its largest eigenvalue, which is
    about n, conjugate gradients on text take about half the steps.

    Parameters
    ----------
    features : Features
        [X, 1].
    ridge : float
        ρ ≥ 0, for w and b.

    Examples
    --------
    >>> from labelgap.kernels import get_backend
    >>> X = Features(np.array([[2.0], [4.0]]), get_backend(), float, constant=True)
    >>> WithoutConstant(X, 0.0).times(np.ones((1, 1))).ravel()
    array([-1.,  1.])
    """

    is_identity = False

    def __init__(self, features: Any, ridge: float) -> None:
        n, d = features.shape
        self.shape = (n, d - 1)
        self._times, self._t_times, self._matrix = features._times, features._t_times, features.matrix
        ones = features.kernels.rows(np.ones((n, 1)), features.dtype)
        self._sums = features.t_times(ones)[:-1, :]
        self._total = n + ridge
        self._shift = (1 - (ridge / self._total) ** 0.5) / n
        squares = features.column_squares()[:-1, :]
        xp = namespace(squares)
        sums = xp.astype(self._sums, xp.float64)
        self._squares = xp.maximum(squares - sums * sums / self._total, 0 * squares)

    @property
    def coarse(self) -> WithoutConstant:
        """The same matrix."""
        return self

    def times(self, W: Array) -> Array:
        """Return A W."""
        product = self._times(self._matrix, W)
        product -= self._shift * matmul_t(self._sums, W)
        return product

    def t_times(self, B: Array) -> Array:
        """Return Aᵀ B."""
        xp = namespace(B)
        product = self._t_times(self._matrix, B)
        product -= self._shift * self._sums * xp.astype(column_totals(B), B.dtype)
        return product

    def column_squares(self) -> Array:
        """Return the squared norm of each column, float64, (d, 1)."""
        return self._squares

    def spectrum(self) -> None:
        return None

    def sketch(self) -> None:
        return None

    def reduce(self, right: Array) -> Array:
        """Return the right side of w from [X, 1]ᵀ y."""
        return right[:-1, :] - self._sums * (right[-1:, :] / self._total)

    def restore(self, W: Array, totals: Array) -> Array:
        """Return w with its constant below; ``totals`` are 1ᵀy."""
        constants = (totals - matmul_t(self._sums, W)) / self._total
        return namespace(W).concat([W, constants])


class CoarseProducts:
    """Sparse features whose products round their arguments, if the backend is faster with fewer digits.

    Conjugate gradients need few digits: the gradient at the next point is exact again.
    """

    is_identity = False

    def __init__(self, features: Features) -> None:
        self.features, self.shape, self.coarse = features, features.shape, self
        self.column_squares, self.spectrum, self.sketch = features.column_squares, features.spectrum, features.sketch

    def times(self, W: Array) -> Array:
        return self.features.times(W, self.features.kernels.coarse)

    def t_times(self, B: Array) -> Array:
        return self.features.t_times(B, self.features.kernels.coarse)


class ProductsOnly:
    """A matrix without its eigenvectors, which would cost more than a few products, and perhaps with its sketch."""

    is_identity = False

    def __init__(self, features: LinearMap, *, sketch: bool = False) -> None:
        self.features, self.shape, self.coarse, self._has_sketch = features, features.shape, features.coarse, sketch
        self.times, self.t_times, self.column_squares = features.times, features.t_times, features.column_squares

    def spectrum(self) -> None:
        return None

    def sketch(self) -> GramSketch | None:
        return self.features.sketch() if self._has_sketch else None


@contextmanager
def explain_overflow(dtype: Any) -> Iterator[None]:
    """Turn overflows and singular matrices in the block into a ValueError about the scale of the features."""
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # overflows show in the results
            yield
    except (FloatingPointError, np.linalg.LinAlgError) as error:
        raise ValueError(
            f"The numbers in X are too large or too small for dtype={np.dtype(dtype).name!r} ({error}); scale the "
            "features (sklearn.preprocessing has Normalizer and StandardScaler) or pass dtype='float64'."
        ) from error
