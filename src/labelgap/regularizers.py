"""The nuclear norm: its value and its proximal operator, also beside a constant column (MC-1)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from labelgap.kernels import matmul, matmul_t

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
        values = triplets.values - point.dtype.type(threshold)
        return Shrunk(triplets._replace(values=values).product, float(values.sum(dtype=float)), len(values))


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
        return nuclear_norm(append_column(A, np.ones(len(A))))

    def prox(self, point: Array, threshold: float) -> Shrunk:
        """Return A of the shrunk matrix [A, a], with the penalty ‖[A, 1]‖_*."""
        return self._shrink(point, np.ones(len(point)), threshold)[0]

    def _shrink(self, point: Array, column: Array, threshold: float) -> tuple[Shrunk, Array]:
        """Shrink [V, w]; return the result, and 1 minus its last column."""
        U, values, V = Decomposer(point, self._tracker).triplets(threshold, column)
        shrunk = Triplets(U, values - point.dtype.type(threshold), V)
        matrix, value = shrunk.product, nuclear_norm(_reduce_with_ones(shrunk))
        return Shrunk(np.ascontiguousarray(matrix[:, :-1]), value, len(values)), 1 - matrix[:, -1]


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
            self.price = np.full(n, n**-0.5)  # the price at A = 0
        shrunk, gap = self._shrink(point, 1 + threshold * self.price, threshold)
        self.price = self.price + gap.astype(float) / threshold
        return shrunk._replace(error=float(np.linalg.norm(self.price) * np.linalg.norm(gap)))


def _reduce_with_ones(shrunk: Triplets) -> Array:
    """Return a small matrix with the singular values of [A, 1], for [A, a] = U S Vᵀ.

    It is [A, 1] in the basis of U and the part of 1 outside of U.
    """
    U, values, V = shrunk
    inside = U.sum(0)
    outside = np.linalg.norm(1 - U @ inside)
    top = np.concatenate([(V[:-1] * values).T, inside[:, None]], axis=1)
    bottom = np.zeros((1, top.shape[1]), top.dtype)
    bottom[0, -1] = outside
    return np.concatenate([top, bottom])


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
    return float(scipy.linalg.svdvals(A, check_finite=False).sum()) if A.size else 0.0


def append_column(A: Array, column: Array) -> Array:
    """Return [A, w]."""
    return np.concatenate([A, column[:, None]], axis=1, dtype=A.dtype)


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
    last = A.shape[1] - 1
    _, right = scipy.linalg.eigh(A.T @ A, driver="evr", subset_by_index=(last, last), check_finite=False)
    image = A @ right
    values = np.linalg.norm(image, axis=0)
    return Triplets(image / np.where(values > 0, values, 1), values, right)


class Decomposer:
    """Singular triplets of A, or of A with one more column.

    A tracker computes them from those of the last matrix, if it can; otherwise they come from the eigenvectors of the
    smaller Gram matrix, or from the matrix itself if the threshold is too small for the rounding of the Gram matrix.
    """

    def __init__(self, A: Array, tracker: Tracker | None = None) -> None:
        self.A, self.tall, self.tracker = A, A.shape[0] > A.shape[1], tracker

    def triplets(self, threshold: float, column: Array | None = None) -> Triplets:
        """Return the triplets of A, or of [A, column], with values above the threshold, largest first."""
        column = None if column is None else column.astype(self.A.dtype, copy=False)
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
        share = MIN_GRAM_SHARE * np.sqrt(np.finfo(self.A.dtype).eps / np.finfo(float).eps)
        if threshold**2 <= share**2 * square:
            return _decompose_matrix(self.A if column is None else append_column(self.A, column), threshold)
        return (self._decompose_tall if self.tall else self._decompose_wide)(threshold, column)

    @cached_property
    def _square(self) -> float:
        """‖A‖², an upper bound of σ₁²."""
        return float(np.trace(self._gram))

    @cached_property
    def _gram(self) -> Array:
        """AᵀA of a tall matrix, AAᵀ of a wide one."""
        return self.A.T @ self.A if self.tall else self.A @ self.A.T

    def _decompose_tall(self, threshold: float, column: Array | None) -> Triplets:
        A, gram = self.A, self._gram
        if column is None:
            values, right = _find_leading_eigenvectors(gram, threshold)
            return Triplets(matmul(A, right) / values, values, right)
        edge = column @ A
        values, right = _find_leading_eigenvectors(
            np.block([[gram, edge[:, None]], [edge, column @ column]]), threshold
        )
        left = matmul(A, right[:-1])
        left += np.outer(column, right[-1])
        left /= values
        return Triplets(left, values, right)

    def _decompose_wide(self, threshold: float, column: Array | None) -> Triplets:
        A, gram = self.A, self._gram
        if column is None:
            values, left = _find_leading_eigenvectors(gram, threshold)
            return Triplets(left, values, matmul_t(A, left) / values)
        values, left = _find_leading_eigenvectors(gram + np.outer(column, column), threshold)
        right = np.concatenate([matmul_t(A, left), (column @ left)[None]])
        right /= values
        return Triplets(left, values, right)


def _make_operator(A: Array, column: Array | None) -> MatrixOperator:
    if column is None:
        return MatrixOperator(A.shape, lambda V: matmul(A, V), lambda U: matmul_t(A, U))
    return MatrixOperator(
        (A.shape[0], A.shape[1] + 1),
        lambda V: matmul(A, V[:-1]) + np.outer(column, V[-1]),
        lambda U: np.concatenate([matmul_t(A, U), (column @ U)[None]]),
    )


def _find_leading_eigenvectors(gram: Array, threshold: float) -> tuple[Array, Array]:
    """Return the square roots of the eigenvalues above threshold², largest first, and their eigenvectors."""
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
    Q, R = scipy.linalg.qr(A, mode="economic", check_finite=False)
    left, values, right = scipy.linalg.svd(R, full_matrices=False, check_finite=False)
    above = values > threshold
    return Triplets(matmul(Q, left[:, above]), values[above], right[above].T)


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
        random = self.random.standard_normal((A.shape[1], n_random)).astype(dtype)
        basis = _orthonormalize(np.concatenate([self.basis, random], axis=1, dtype=dtype))
        images = A.times(basis)
        for _ in range(MAX_BLOCKS):
            U, values, Wt = scipy.linalg.svd(images, full_matrices=False, check_finite=False)
            count = int((values > threshold).sum())
            if count + N_PROBES > width + n_random:
                return None  # the block is too narrow
            tracked = slice(0, count + EXTRA_VECTORS)
            V, U = basis @ Wt[tracked].T, U[:, tracked]
            residuals = A.t_times(U) - V * values[tracked]
            max_residual = max(MAX_RESIDUAL * threshold, 10 * np.finfo(dtype).eps * values[0])
            if np.linalg.norm(residuals[:, :count], axis=0).max(initial=0) <= max_residual:
                if not _is_complete(A, V, threshold, random):
                    return None
                self.basis = V
                return U[:, :count], values[:count], V[:, :count]
            block = residuals
            for _ in range(2):  # the second time removes what rounding left of the basis in small residuals
                block = _orthonormalize(block - basis @ (basis.T @ block))
            basis = np.concatenate([basis, block], axis=1)
            images = np.concatenate([images, A.times(block)], axis=1)
        return None


def _is_complete(A: MatrixOperator, V: Array, threshold: float, probes: Array) -> bool:
    """Return whether power iteration finds no singular value above the threshold in A (I − V Vᵀ)."""
    norm = 0.0
    for _ in range(2):
        probes = _orthonormalize(probes - V @ (V.T @ probes))
        image = A.times(probes - V @ (V.T @ probes))  # again, in case only rounding was left
        norm = float(scipy.linalg.svdvals(image, check_finite=False)[0])
        probes = A.t_times(image)
    return norm <= threshold


def _orthonormalize(block: Array) -> Array:
    return scipy.linalg.qr(block, mode="economic", check_finite=False)[0]
