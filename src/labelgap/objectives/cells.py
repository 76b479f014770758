"""Sums of a loss over label cells, Σ w_ij ℓ(Y_ij, b_i·h_j), as objectives in B for a fixed H.

Three forms share one interface: the stored cells; all cells in row blocks; all cells with squared loss, which Gram
matrices reduce to the cost of the positives. A sum of them is a fourth. Each has a transpose, so that the same code
solves for the labels' factor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from labelgap.kernels import Backend, column_totals, combine, exact_gram, namespace
from labelgap.kernels.base import CellLoss
from labelgap.losses import Loss
from labelgap.objectives.base import Quadratic, Sum
from labelgap.objectives.features import Identity
from labelgap.solvers.base import (
    Array,
    CellHessians,
    Kronecker,
    LinearMap,
    Model,
    Objective,
    RowHessians,
    Scalar,
    inner,
)

MAX_OFF_DIAGONAL = 16  # of a matrix that counts as diagonal, in units of rounding


class CellObjective(Objective, Protocol):
    """A sum over cells as a function of one factor."""

    def curvature(self, B: Array) -> Kronecker:
        """Return the curvature at B: a matrix that all rows share, and weights; 0 for rows without cells."""


class BoundCells(Protocol):
    """Label cells with their targets, bound to a backend; the transpose has a row for each label."""

    @property
    def quadratic(self) -> bool:
        """Whether all cells have squared loss with one weight, so that the Hessian is a Kronecker product."""

    @property
    def has_squares(self) -> bool:
        """Whether all cells have squared loss, perhaps besides other terms."""

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows and of columns."""

    @property
    def T(self) -> BoundCells:
        """The transposed cells."""

    def objective_in_left(self, H: Array) -> CellObjective:
        """Return Σ w_ij ℓ(Y_ij, b_i·h_j) as an objective in B."""

    def multiply_targets(self, H: Array) -> Array:
        """Return T H; T has the weighted targets of the cells and 0 elsewhere, or −∂ℓ/∂s at s = 0."""

    def zeros(self, k: int, dtype: Any) -> Array:
        """Return factors of 0 for the rows."""


class Weights(NamedTuple):
    """Weights of cells, w_ij = p_i q_j, for p an n×1 array or 1, and q an L×1 array or a number.

    >>> Weights.of(2.0, 3.0)
    Weights(rows=1.0, columns=6.0)
    """

    rows: Array | float = 1.0
    columns: Array | float = 1.0

    @classmethod
    def of(cls, rows: Array | float, columns: Array | float) -> Weights:
        """Return weights with p = 1 if ``rows`` is a number, which then multiplies the columns."""
        return cls(rows, columns) if np.ndim(rows) else cls(1.0, rows * columns)

    @property
    def T(self) -> Weights:
        """The weights of the transposed cells."""
        return Weights.of(self.columns, self.rows)

    @property
    def uniform(self) -> bool:
        """Whether every cell has the weight 1."""
        return np.ndim(self.rows) == np.ndim(self.columns) == 0 and self.rows == self.columns == 1

    def select_rows(self, rows: Array) -> Weights:
        """Return the weights of some rows."""
        return self if np.ndim(self.rows) == 0 else Weights(self.rows[rows], self.columns)  # type: ignore[index]

    def expand(self, shape: tuple[int, int]) -> tuple[Array, Array]:
        """Return p and q as float64 NumPy vectors."""
        return tuple(np.broadcast_to(np.ravel(w), n).astype(float) for w, n in zip(self, shape))  # type: ignore

    def move_to(self, kernels: Backend, dtype: Any) -> Weights:
        """Return the weights with their arrays on the device of a backend."""
        p, q = self
        return Weights(kernels.rows(p, dtype) if np.ndim(p) else p, kernels.array(q, dtype) if np.ndim(q) else q)


@dataclass(frozen=True)
class KnownCells:
    """The stored cells, O(|Ω| k). The stored values are the targets of the loss."""

    kernels: Backend
    loss: CellLoss
    targets: Any
    quadratic = False
    has_squares = False

    @property
    def shape(self) -> tuple[int, int]:
        return self.targets.shape

    @cached_property
    def T(self) -> KnownCells:
        return KnownCells(self.kernels, self.loss, self.kernels.transpose(self.targets))

    def objective_in_left(self, H: Array) -> CellObjective:
        return _KnownCellsObjective(self, H)

    def multiply_targets(self, H: Array) -> Array:
        return self.kernels.spmm(self.targets, H)

    def zeros(self, k: int, dtype: Any) -> Array:
        return self.kernels.zeros(self.targets, k, dtype)


@dataclass(frozen=True)
class _KnownCellsObjective:
    """LEML's Algorithm 1: gradient D H, D_ij = ℓ'(Y_ij, b_i·h_j) on Ω; product U H, U_ij = ℓ''_ij (s_i·h_j)."""

    cells: KnownCells
    H: Array
    separable = True

    def value(self, B: Array) -> Scalar:
        return self.cells.kernels.cells_value(self.cells.loss, self.cells.targets, B, self.H)

    def along(self, B: Array, S: Array) -> Callable[[float], Scalar]:
        """Return t ↦ f(B + t S), O(|Ω|) for each t once the scores and their changes are known (002, Supp-1.4)."""
        kernels, loss, targets = self.cells.kernels, self.cells.loss, self.cells.targets
        scores, changes = kernels.sddmm(targets, B, self.H), kernels.sddmm(targets, S, self.H)
        return lambda step: kernels.cells_sum(loss, targets, scores, changes, step)

    def model(self, B: Array) -> Model:
        kernels, targets = self.cells.kernels, self.cells.targets
        value, gradient, row_curvature, curvature = kernels.cells_model(self.cells.loss, targets, B, self.H)
        form = self._multiply_margins(row_curvature, kernels.column_sums(targets, curvature))
        constant = getattr(self.cells.loss, "quadratic", False)
        rows = RowHessians(cells=(CellHessians(kernels, targets, curvature, self.H),), constant=constant)
        return Model(value, gradient, lambda S: kernels.cells_hessp(targets, curvature, S, self.H), form, rows)

    def curvature(self, B: Array) -> Kronecker:
        form = self.model(B).kronecker
        assert form is not None
        return form

    def _multiply_margins(self, rows: Array, columns: Array) -> Kronecker:
        """Return the form in which a cell's curvature is its row's mean times its label's share."""
        xp = namespace(columns)
        mean = xp.mean(columns)
        shares = columns / xp.where(mean == 0, 1.0, mean)  # the mean may be negative: a corrected loss subtracts
        M = self.cells.kernels.matmul_t(self.H, xp.astype(shares, self.H.dtype) * self.H)
        return Kronecker(0.0, Identity(self.cells.shape[0]), M, rows, exact=False)


class AllCells:
    """All cells, in row blocks: O(nLk) time, without an n×L array."""

    quadratic = False
    has_squares = False

    def __init__(
        self,
        kernels: Backend,
        loss: Loss,
        positives: Any,
        levels: tuple[float, float] | None = None,
        weights: Weights = Weights(),  # noqa: B008 - a tuple of two numbers
        vectors: tuple[Array, Array] | None = None,
    ) -> None:
        self.kernels, self.loss, self.positives, self.weights = kernels, loss, positives, weights
        self.levels = levels or (loss.negative, loss.positive)
        self.shape, self._vectors = positives.shape, vectors

    @cached_property
    def T(self) -> AllCells:
        positives = self.kernels.transpose(self.positives)
        other = None if self.has_squares else self.vectors[::-1]
        return type(self)(self.kernels, self.loss, positives, self.levels, self.weights.T, other)

    @cached_property
    def vectors(self) -> tuple[Array, Array]:
        """The n numbers p and the L numbers q, float64. The transpose, which cannot shard them, gets them too."""
        if self._vectors is not None:
            return self._vectors
        p, q = self.weights
        n, L = self.shape
        rows = self.kernels.rows(np.full((n, 1), p), float) if np.ndim(p) == 0 else p
        columns = self.kernels.array(np.full((L, 1), q), float) if np.ndim(q) == 0 else q
        return _flatten(rows), _flatten(columns)

    def objective_in_left(self, H: Array) -> CellObjective:
        return _AllCellsObjective(self, H)

    def multiply_targets(self, H: Array) -> Array:
        """Return (w∘T) H = p∘((a⁺ − a⁻) P (q∘H) + a⁻ 1 (qᵀH)), for the pattern P of the positives."""
        (low, high), (p, q) = self.levels, self.weights
        H = H if np.ndim(q) == 0 and q == 1 else q * H
        product = self.kernels.spmm(self.positives, H)
        product *= high - low
        if low:
            product += low * namespace(H).sum(H, axis=0, keepdims=True)
        return product if np.ndim(p) == 0 else p * product

    def zeros(self, k: int, dtype: Any) -> Array:
        return self.kernels.zeros(self.positives, k, dtype)


def _flatten(column: Array) -> Array:
    xp = namespace(column)
    return xp.astype(column[:, 0], xp.float64)


@dataclass(frozen=True)
class _AllCellsObjective:
    cells: AllCells
    H: Array
    separable = True

    def value(self, B: Array) -> Scalar:
        cells = self.cells
        return cells.kernels.all_value(cells.loss, cells.positives, cells.levels, cells.vectors, B, self.H)

    def along(self, B: Array, S: Array) -> Callable[[float], Scalar]:
        return lambda step: self.value(B + step * S)

    def model(self, B: Array) -> Model:
        kernels, H = self.cells.kernels, self.H
        cells = self.cells
        fixed: tuple[Any, Any, Any, Any] = (cells.loss, cells.positives, cells.levels, cells.vectors)
        value, gradient, row_curvature, _ = kernels.all_model(*fixed, B, H)
        form = Kronecker(0.0, Identity(self.cells.shape[0]), kernels.gram(H), row_curvature, exact=False)
        return Model(value, gradient, lambda S: kernels.all_hessp(*fixed, B, S, H), form)

    def curvature(self, B: Array) -> Kronecker:
        form = self.model(B).kronecker
        assert form is not None
        return form


class AllCellsSquared(AllCells):
    """All cells with squared loss: O(nnz(Y) k + (n + L) k²), LEML's Algorithm 2 and 002, eqs. 8 to 13."""

    has_squares = True

    @property
    def quadratic(self) -> bool:  # type: ignore[override]
        return np.ndim(self.weights.rows) == np.ndim(self.weights.columns) == 0

    def objective_in_left(self, H: Array) -> CellObjective:
        return _AllSquaresObjective(self, H)

    @cached_property
    def squares(self) -> Scalar:
        """Σ w_ij Y_ij²."""
        (low, high), (p, q), (n, L) = self.levels, self.weights, self.shape
        if np.ndim(p) == np.ndim(q) == 0:
            return p * q * (float(self.positives.nnz) * (high**2 - low**2) + float(n) * L * low**2)
        weight = self._sum_over_positives(p, q) if self.positives.nnz and high != low else 0.0
        return weight * (high**2 - low**2) + _sum_weights(p, n) * _sum_weights(q, L) * low**2

    def _sum_over_positives(self, p: Array | float, q: Array | float) -> Scalar:
        """Return Σ over positives of p_i q_j, at least one of them an array."""
        if np.ndim(q) == 0:
            return q * _sum_weights(self.kernels.spmm_t(self.positives, _to_float64(p)), 0)
        row_sums = self.kernels.spmm(self.positives, _to_float64(q))
        return p * _sum_weights(row_sums, 0) if np.ndim(p) == 0 else inner(_to_float64(p), row_sums)

    def outer_gram(self, features: Any) -> Array:
        """Return Xᵀ diag(p) X, float64, computed once: the M̄ of 002, Supp-1.2."""
        if features not in self._outer_grams:
            self._outer_grams[features] = features.weighted_gram(self.weights.rows)
        return self._outer_grams[features]

    @cached_property
    def _outer_grams(self) -> dict[Any, Array]:
        return {}


def _to_float64(array: Array) -> Array:
    xp = namespace(array)
    return xp.astype(array, xp.float64)


def _sum_rows(B: Array, weights: Array | float) -> Array:
    """Return Σ_i w_i b_i, float64, (1, k)."""
    if np.ndim(weights) == 0:
        return weights * column_totals(B)
    xp = namespace(B)
    return xp.sum(weights * B, axis=0, keepdims=True, dtype=xp.float64)


def _get_diagonal(M: Array) -> Array | None:
    """Return the diagonal of a positive semidefinite M, (1, k), or None if there is more than rounding beside it."""
    xp = namespace(M)
    diagonal = xp.linalg.diagonal(M)
    bounds = MAX_OFF_DIAGONAL * xp.finfo(M.dtype).eps * xp.sqrt(diagonal[:, None] * diagonal[None, :])
    unit = xp.eye(M.shape[0], dtype=M.dtype, device=getattr(M, "device", None))
    return diagonal[None, :] if bool(xp.all(xp.abs(M - M * unit) <= bounds)) else None


def _sum_weights(weights: Array | float, count: int) -> Scalar:
    """Return the sum of an array of weights, or ``count`` times a number."""
    if np.ndim(weights) == 0:
        return weights * float(count)
    xp = namespace(weights)
    return xp.sum(weights, dtype=xp.float64)


class _AllSquaresObjective(Quadratic):
    """½ Σ w_ij (Y_ij − b_i·h_j)² = ½ Σ w_ij Y_ij² − ⟨B, R⟩ + ½ ⟨Bᵀ(p∘B), M⟩, R = (w∘Y) H, M = Hᵀ(q∘H).

    The Gram matrices of the value are float64.
    """

    separable = True

    def __init__(self, cells: AllCellsSquared, H: Array) -> None:
        self.cells, self.H, self.p = cells, H, cells.weights.rows
        self.exact_M = exact_gram(H, cells.weights.columns)  # float64, for values
        self.M = namespace(self.exact_M).astype(self.exact_M, H.dtype)

    @cached_property
    def R(self) -> Array:
        """R, computed when it is first used."""
        return self.cells.multiply_targets(self.H)

    def curvature(self, B: Array) -> Kronecker:
        """Return the Hessian, which is the same at every B."""
        return Kronecker(0.0, Identity(self.cells.shape[0]), self.M, self.p)

    def value(self, B: Array) -> Scalar:
        exact = exact_gram(B, self.p)
        return 0.5 * self.cells.squares - self._multiply_targets(B) + 0.5 * inner(exact, self.exact_M)

    @property
    def _has_constant_rows(self) -> bool:
        """Whether all targets are ā ≠ 0, so that R is p times one row."""
        return not self.cells.positives.nnz and self.cells.levels[0] != 0

    def _multiply_targets(self, B: Array) -> Scalar:
        """Return ⟨B, R⟩. If all targets are ā, that is ā ⟨Bᵀp, Hᵀq⟩, whose sums over rows are float64 here.

        Rounding of R would be larger than F if nearly all of many cells fit their target.
        """
        if not self._has_constant_rows:
            return inner(B, self.R)
        return self.cells.levels[0] * inner(_sum_rows(B, self.p), _sum_rows(self.H, self.cells.weights.columns))

    def model(self, B: Array) -> Model:
        gradient = combine(self._multiply(B), 1.0, self.R, -1.0)
        return Model(self.value(B), gradient, self._multiply, self.curvature(B), RowHessians(0.0, self.M, self.p))

    def expand(self, B: Array) -> Model:
        """Return the model without its value, which would take a pass of its own, and with few arrays of B's size."""
        diagonal = _get_diagonal(self.M)
        if self._has_constant_rows and np.ndim(self.p) == 0:
            product = self._multiply(B) if diagonal is None else B * (self.p * diagonal)
            row = self.cells.levels[0] * self.p * _sum_rows(self.H, self.cells.weights.columns)
            gradient = combine(product, 1.0, namespace(row).astype(row, self.H.dtype), -1.0)
        elif diagonal is None:
            gradient = combine(self.cells.multiply_targets(self.H), -1.0, self._multiply(B), 1.0)
        else:
            gradient = combine(self.cells.multiply_targets(self.H), -1.0, B, diagonal, self.p)
        return Model(np.nan, gradient, self._multiply, self.curvature(B))

    def _multiply(self, S: Array) -> Array:
        image = self.cells.kernels.matmul(S, self.M)
        return image if np.ndim(self.p) == 0 else self.p * image

    def precompute(self, features: LinearMap) -> Objective:
        """Return the objective in W, B = X W, with a precomputed d×d matrix Xᵀ diag(p) X."""
        return _PrecomputedSquares(self, features)


class _PrecomputedSquares(Quadratic):
    """½ Σ w_ij Y_ij² − ⟨W, XᵀR⟩ + ½ ⟨W, M̄ W M⟩: 002's variant for d² + dk < nk, with its missing factor M."""

    separable = False

    def __init__(self, outer_objective: _AllSquaresObjective, features: LinearMap) -> None:
        self.outer, self.features = outer_objective, features
        self.exact_gram = outer_objective.cells.outer_gram(features)
        self.R = features.t_times(outer_objective.R)
        self.gram = namespace(self.R).astype(self.exact_gram, self.R.dtype)

    def value(self, W: Array) -> Scalar:
        exact = _to_float64(W)
        image = self._multiply(self.exact_gram, exact, self.outer.exact_M)
        return 0.5 * self.outer.cells.squares + inner(exact, 0.5 * image - self.R)

    def model(self, W: Array) -> Model:
        p, M = self.outer.p, self.outer.M
        exact = np.ndim(p) == 0
        form = Kronecker(0.0, self.features, M, p if exact else float(namespace(p).mean(p)), exact)
        gradient = self._multiply(self.gram, W, M) - self.R
        return Model(self.value(W), gradient, lambda S: self._multiply(self.gram, S, M), form)

    def _multiply(self, gram: Array, W: Array, M: Array) -> Array:
        matmul = self.outer.cells.kernels.matmul
        return matmul(matmul(gram, W), M)


class CellsSum:
    """A sum of several sums over the cells of one matrix."""

    quadratic = False

    def __init__(self, parts: Sequence[BoundCells]) -> None:
        self.parts = list(parts)
        self.shape, self.zeros = self.parts[0].shape, self.parts[0].zeros
        self.has_squares = any(part.has_squares for part in self.parts)

    @cached_property
    def T(self) -> CellsSum:
        return CellsSum([part.T for part in self.parts])

    def objective_in_left(self, H: Array) -> CellObjective:
        return Sum([part.objective_in_left(H) for part in self.parts])

    def multiply_targets(self, H: Array) -> Array:
        """Return −∂F/∂B at B = 0, the direction of the first step of B."""
        return -self.objective_in_left(H).model(self.zeros(H.shape[1], H.dtype)).gradient
