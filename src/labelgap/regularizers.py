"""The nuclear norm: its value and its proximal operator, also beside a constant column (MC-1)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import array_api_compat
import numpy as np
import scipy.linalg

from labelgap.kernels import inner, matmul, matmul_t, namespace, read

Array = Any

# Eigenvalues of AᵀA have an error of ε σ₁², so a singular value σ computed from them has one of ε σ₁² / σ. Below this
# share of σ₁ that is more than 1e-7 of σ, and the matrix itself is decomposed instead.
MIN_GRAM_SHARE = 3e-5
MIN_SUBSET_ORDER = 128  # of a matrix, from which computing some eigenvectors is faster than computing all
MIN_TRACKED_ORDER = 800  # of a matrix; for smaller ones the eigenvectors of a Gram matrix cost less
MAX_BLOCK_SHARE = 0.125  # of the smaller side of the matrix, for the width of a block
EXTRA_VECTORS = 8  # below the threshold that are tracked too, since the next ones to rise above it are among them
N_PROBES = 2
MAX_BLOCKS = 5
MAX_RESIDUAL = 1e-8  # relative to the threshold
MAX_PAUSE = 64  # matrices


# --- penalties ------------------------------------------------------------------------------------------------------


class Shrunk(NamedTuple):
    """The result of a proximal operator: the minimiser x, the penalty at x, and the rank of x.

    ``error`` bounds the error of the penalty at x; 0 for an exact operator.
    """

    x: Array
    value: float
    rank: int
    error: float = 0.0


class NuclearNorm:
    """The nuclear norm ‖Z‖_* = Σ σ_k(Z).

    >>> norm = NuclearNorm()
    >>> norm.prox(np.diag([3.0, 1.0]), 2.0).x
    array([[1., 0.],
           [0., 0.]])
    """

    def __init__(self) -> None:
        self._tracker = Tracker()

    def value(self, Z: Array) -> float:
        """Return the sum of the singular values."""
        return nuclear_norm(Z)

    def prox(self, point: Array, threshold: float) -> Shrunk:
        """Return argmin over Z of ½ ‖Z − point‖² + threshold · ‖Z‖_* = U (σ − threshold)₊ Vᵀ, for point = U σ Vᵀ."""
        triplets = Decomposer(point, self._tracker).triplets(threshold)
        values = triplets.values - float(threshold)
        return Shrunk(triplets._replace(values=values).product, _add_up(values), len(values))


class PublishedMC1Prox:
    """MC-1's published proximal step (003, Algorithm 2): w = 1, then the last column is set to 1.

    MC-1 penalises ‖[A, 1]‖_*. This operator and :class:`DualStep` shrink the singular values of
    [V, w] = [A − τ∇f(A), w] and return all columns of the result but the last, a; they differ in w.

    The published step is the gradient and shrinkage step of another problem, in which a = 1 is not a constraint but a
    penalty ‖a − 1‖² / 2τ, since a − τ (a − 1) / τ = 1. So the loop converges to the minimum of that problem.

    >>> PublishedMC1Prox().prox(np.zeros((4, 1)), 1.0).x.ravel()
    array([0., 0., 0., 0.])
    """

    def __init__(self) -> None:
        self._tracker = Tracker()

    def value(self, A: Array) -> float:
        """Return ‖[A, 1]‖_*."""
        return nuclear_norm(append_column(A, make_constant(A, 1.0)))

    def prox(self, point: Array, threshold: float) -> Shrunk:
        """Return A of the shrunk matrix [A, a], with the penalty ‖[A, 1]‖_*."""
        return self._shrink(point, make_constant(point, 1.0), threshold)[0]

    def _shrink(self, point: Array, column: Array, threshold: float) -> tuple[Shrunk, Array]:
        """Shrink [V, w]; return the result, and 1 minus its last column."""
        U, values, V = Decomposer(point, self._tracker).triplets(threshold, column)
        shrunk = Triplets(U, values - float(threshold), V)
        matrix, value = shrunk.product, nuclear_norm(_reduce_with_ones(shrunk))
        return Shrunk(copy_contiguous(matrix[:, :-1]), value, len(values)), 1 - matrix[:, -1]


class DualStep(PublishedMC1Prox):
    """A proximal step that converges to the minimum of MC-1: w is a dual variable of a = 1.

    w changes by 1 − a in each step. Such steps are the three-operator splitting of Davis and Yin (2017), for the
    nuclear norm, the constraint and a smooth f; their variable is z = [A, 2 − w]. The price g = (w − 1) / κ persists
    from one threshold κ to the next and converges to the last column of a subgradient of the nuclear norm.
    """

    def __init__(self) -> None:
        super().__init__()
        self.price: Array = None

    def prox(self, point: Array, threshold: float) -> Shrunk:
        """Return A of the shrunk matrix [A, a], with ‖[A, 1]‖_* and the bound ‖g‖ ‖a − 1‖ of its error."""
        n = len(point)
        if self.price is None:
            self.price = namespace(point).astype(make_constant(point, n**-0.5), namespace(point).float64)  # at A = 0
        shrunk, gap = self._shrink(point, 1 + threshold * self.price, threshold)
        self.price = self.price + namespace(gap).astype(gap, self.price.dtype) / threshold
        return shrunk._replace(error=(float(inner(self.price, self.price)) * float(inner(gap, gap))) ** 0.5)


def _reduce_with_ones(shrunk: Triplets) -> Array:
    """Return a small matrix with the singular values of [A, 1], for [A, a] = U S Vᵀ.

    It is [A, 1] in the basis of U and the part of 1 outside of U.
    """
    U, values, V = shrunk
    xp = namespace(U)
    inside = xp.sum(U, axis=0)
    rest = 1 - U @ inside
    top = xp.concat([(V[:-1, :] * values).T, inside[:, None]], axis=1)
    bottom = xp.zeros((1, top.shape[1]), dtype=top.dtype, device=array_api_compat.device(top))
    bottom[0, -1] = float(inner(rest, rest)) ** 0.5
    return xp.concat([top, bottom])


# --- singular triplets ----------------------------------------------------------------------------------------------


class Triplets(NamedTuple):
    """Singular triplets, A ≈ U diag(values) Vᵀ, largest first: left n×k, values k, right m×k."""

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
    if 0 in A.shape:
        return 0.0
    if not isinstance(A, np.ndarray):
        return _add_up(namespace(A).linalg.svdvals(A))
    return float(scipy.linalg.svdvals(A, check_finite=False).sum())


def append_column(A: Array, column: Array) -> Array:
    """Return [A, w]."""
    xp = namespace(A)
    return xp.concat([A, xp.astype(column, A.dtype)[:, None]], axis=1)


def make_constant(like: Array, value: float) -> Array:
    """Return a column of one number, a vector of the length, the type and the device of ``like``.

    >>> make_constant(np.zeros((2, 3)), 1.0)
    array([1., 1.])
    """
    xp = namespace(like)
    return xp.full((like.shape[0],), value, dtype=like.dtype, device=array_api_compat.device(like))


def copy_contiguous(A: Array) -> Array:
    """Return A with adjacent rows."""
    return np.ascontiguousarray(A) if isinstance(A, np.ndarray) else A.contiguous()


def _add_up(values: Array) -> float:
    return float(namespace(values).sum(values, dtype=namespace(values).float64))


def find_leading_triplets(A: Array, threshold: float) -> Triplets:
    """Return the singular triplets of A with values above a threshold, largest first.

    >>> find_leading_triplets(np.diag([3.0, 1.0, 2.0]), 1.5).values
    array([3., 2.])
    """
    return Decomposer(A).triplets(threshold)


def find_largest_triplet(A: Array) -> Triplets:
    """Return the largest singular value of A and its vectors.

    >>> find_largest_triplet(np.diag([3.0, 1.0, 2.0])).values
    array([3.])
    """
    if A.shape[0] < A.shape[1]:
        right, values, left = find_largest_triplet(A.T)
        return Triplets(left, values, right)
    last, gram, xp = A.shape[1] - 1, A.T @ A, namespace(A)
    if isinstance(A, np.ndarray):
        _, right = scipy.linalg.eigh(gram, driver="evr", subset_by_index=(last, last), check_finite=False)
    else:
        right = xp.linalg.eigh(gram)[1][:, last:]
    image = A @ right
    values = xp.linalg.vector_norm(image, axis=0)
    return Triplets(image / xp.where(values > 0, values, xp.ones_like(values)), values, right)


class Decomposer:
    """Singular triplets of A, or of A with one more column.

    A tracker computes them from those of the last matrix, if it can; otherwise they come from the eigenvectors of the
    smaller Gram matrix, or from the matrix itself if the threshold is too small for the rounding of the Gram matrix.
    """

    def __init__(self, A: Array, tracker: Tracker | None = None) -> None:
        self.A, self.tall, self.tracker = A, A.shape[0] > A.shape[1], tracker

    def triplets(self, threshold: float, column: Array | None = None) -> Triplets:
        """Return the triplets of A, or of [A, column], with values above the threshold, largest first."""
        column = None if column is None else namespace(column).astype(column, self.A.dtype)
        if self.tracker is None:
            return self._decompose(threshold, column)
        tracked = self.tracker.find(_make_operator(self.A, column), threshold, self.A.dtype)
        if tracked is not None:
            return Triplets(*tracked)
        exact = self._decompose(threshold, column)
        self.tracker.basis = exact.right
        return exact

    def _decompose(self, threshold: float, column: Array | None) -> Triplets:
        square = self._square + (0.0 if column is None else float(column @ column))
        share = MIN_GRAM_SHARE * (float(namespace(self.A).finfo(self.A.dtype).eps) / np.finfo(float).eps) ** 0.5
        if threshold**2 <= share**2 * square:
            return _decompose_matrix(self.A if column is None else append_column(self.A, column), threshold)
        return (self._decompose_tall if self.tall else self._decompose_wide)(threshold, column)

    @cached_property
    def _square(self) -> float:
        """‖A‖², an upper bound of σ₁²."""
        return float(namespace(self._gram).linalg.trace(self._gram))

    @cached_property
    def _gram(self) -> Array:
        """AᵀA of a tall matrix, AAᵀ of a wide one."""
        return self.A.T @ self.A if self.tall else self.A @ self.A.T

    def _decompose_tall(self, threshold: float, column: Array | None) -> Triplets:
        A, gram = self.A, self._gram
        if column is None:
            values, right = _find_leading_eigenvectors(gram, threshold)
            return Triplets(matmul(A, right) / values, values, right)
        edge, xp = column @ A, namespace(A)
        top = xp.concat([gram, edge[:, None]], axis=1)
        bottom = xp.concat([edge, xp.reshape(column @ column, (1,))])
        values, right = _find_leading_eigenvectors(xp.concat([top, bottom[None, :]]), threshold)
        left = matmul(A, right[:-1, :])
        left += column[:, None] * right[-1:, :]
        left /= values
        return Triplets(left, values, right)

    def _decompose_wide(self, threshold: float, column: Array | None) -> Triplets:
        A, gram = self.A, self._gram
        if column is None:
            values, left = _find_leading_eigenvectors(gram, threshold)
            return Triplets(left, values, matmul_t(A, left) / values)
        values, left = _find_leading_eigenvectors(gram + column[:, None] * column[None, :], threshold)
        right = namespace(A).concat([matmul_t(A, left), (column @ left)[None, :]])
        right /= values
        return Triplets(left, values, right)


def _make_operator(A: Array, column: Array | None) -> MatrixOperator:
    if column is None:
        return MatrixOperator(A.shape, lambda V: matmul(A, V), lambda U: matmul_t(A, U))
    return MatrixOperator(
        (A.shape[0], A.shape[1] + 1),
        lambda V: matmul(A, V[:-1, :]) + column[:, None] * V[-1:, :],
        lambda U: namespace(A).concat([matmul_t(A, U), (column @ U)[None, :]]),
    )


def _find_leading_eigenvectors(gram: Array, threshold: float) -> tuple[Array, Array]:
    """Return the square roots of the eigenvalues above threshold², largest first, and their eigenvectors."""
    if not isinstance(gram, np.ndarray):
        xp = namespace(gram)
        squares, vectors = xp.linalg.eigh(gram)
        count = int((read(squares) > threshold**2).sum())
        first = len(gram) - count
        return xp.sqrt(xp.flip(squares[first:])), xp.flip(vectors[:, first:], axis=1)
    if len(gram) < MIN_SUBSET_ORDER:
        squares, vectors = scipy.linalg.eigh(gram, driver="evd", check_finite=False)
        squares, vectors = squares[::-1], vectors[:, ::-1]
        count = int((squares > threshold**2).sum())
        return np.sqrt(squares[:count]), vectors[:, :count]
    limits = (threshold**2, np.inf)
    squares, vectors = scipy.linalg.eigh(gram, driver="evr", subset_by_value=limits, check_finite=False)
    return np.sqrt(squares[::-1]), vectors[:, ::-1]


def _decompose_matrix(A: Array, threshold: float) -> Triplets:
    if A.shape[0] < A.shape[1]:
        right, values, left = _decompose_matrix(A.T, threshold)
        return Triplets(left, values, right)
    Q, R = _qr(A)
    left, values, right = _svd(R)
    count = int((read(values) > threshold).sum())
    return Triplets(matmul(Q, left[:, :count]), values[:count], right[:count, :].T)


def _qr(A: Array) -> tuple[Array, Array]:
    if not isinstance(A, np.ndarray):
        return namespace(A).linalg.qr(A)
    return scipy.linalg.qr(A, mode="economic", check_finite=False)


def _svd(A: Array) -> tuple[Array, Array, Array]:
    """Return the thin decomposition; on a GPU that of a long matrix is slow, and that of its triangle is not."""
    if isinstance(A, np.ndarray):
        return scipy.linalg.svd(A, full_matrices=False, check_finite=False)
    if A.shape[0] <= A.shape[1]:
        return namespace(A).linalg.svd(A, full_matrices=False)
    Q, R = _qr(A)
    U, values, Vt = namespace(A).linalg.svd(R, full_matrices=False)
    return Q @ U, values, Vt


# --- tracking from matrix to matrix ---------------------------------------------------------------------------------


class MatrixOperator(NamedTuple):
    """A matrix with its shape and its products A V and AᵀU."""

    shape: tuple[int, int]
    times: Callable[[Array], Array]
    t_times: Callable[[Array], Array]


class Tracker:
    """Block Lanczos iteration for similar matrices in sequence, from the right singular vectors of the last one.

    The first block consists of the last vectors, including some below the threshold, and a few random ones; each
    further block of the residuals AᵀU − V diag(values) of the current triplets. The triplets are accepted when all
    above the threshold have small residuals and power iteration from random vectors shows no further singular value
    above it. If that takes too long, or the rank is not low, :meth:`find` returns None and pauses for some matrices.
    """

    def __init__(self) -> None:
        self.basis: Array = None
        self.pause, self.waiting = 1, 0
        self.random = np.random.RandomState(0)

    def find(self, A: MatrixOperator, threshold: float, dtype: Any) -> tuple[Array, Array, Array] | None:
        """Return U, values and V above the threshold, or None."""
        if not self._is_worthwhile(A.shape):
            return None
        triplets = self._iterate(A, threshold, dtype)
        self.pause = 1 if triplets is not None else min(2 * self.pause, MAX_PAUSE)
        self.waiting = 0 if triplets is not None else self.pause
        return triplets

    def _is_worthwhile(self, shape: tuple[int, int]) -> bool:
        if self.waiting:
            self.waiting -= 1
            return False
        if self.basis is None or len(self.basis) != shape[1] or min(shape) < MIN_TRACKED_ORDER:
            return False
        return self.basis.shape[1] + EXTRA_VECTORS + N_PROBES <= MAX_BLOCK_SHARE * min(shape)

    def _iterate(self, A: MatrixOperator, threshold: float, dtype: Any) -> tuple[Array, Array, Array] | None:
        width = self.basis.shape[1]
        n_random = max(N_PROBES, EXTRA_VECTORS + N_PROBES - width)
        xp, device = namespace(self.basis), array_api_compat.device(self.basis)
        random = xp.asarray(self.random.standard_normal((A.shape[1], n_random)), dtype=dtype, device=device)
        basis = _orthonormalize(xp.concat([xp.astype(self.basis, dtype), random], axis=1))
        images = A.times(basis)
        for _ in range(MAX_BLOCKS):
            U, values, Wt = _svd(images)
            count = int((read(values) > threshold).sum())
            if count + N_PROBES > width + n_random:
                return None  # the block is too narrow
            tracked = slice(0, count + EXTRA_VECTORS)
            V, U = basis @ Wt[tracked, :].T, U[:, tracked]
            residuals = A.t_times(U) - V * values[tracked]
            max_residual = max(MAX_RESIDUAL * threshold, 10 * float(xp.finfo(dtype).eps) * float(values[0]))
            if read(xp.linalg.vector_norm(residuals[:, :count], axis=0)).max(initial=0) <= max_residual:
                if not _is_complete(A, V, threshold, random):
                    return None
                self.basis = V
                return U[:, :count], values[:count], V[:, :count]
            block = residuals
            for _ in range(2):  # the second time removes what rounding left of the basis in small residuals
                block = _orthonormalize(block - basis @ (basis.T @ block))
            basis = xp.concat([basis, block], axis=1)
            images = xp.concat([images, A.times(block)], axis=1)
        return None


def _is_complete(A: MatrixOperator, V: Array, threshold: float, probes: Array) -> bool:
    """Return whether power iteration finds no singular value above the threshold in A (I − V Vᵀ)."""
    norm = 0.0
    for _ in range(2):
        probes = _orthonormalize(probes - V @ (V.T @ probes))
        image = A.times(probes - V @ (V.T @ probes))  # again, in case only rounding was left
        norm = float(_svd(image)[1][0])
        probes = A.t_times(image)
    return norm <= threshold


def _orthonormalize(block: Array) -> Array:
    return _qr(block)[0]
