"""Sums of a loss over label cells, Σ w_ij ℓ(Y_ij, b_i·h_j), as objectives in B while H is held.

Three forms share one interface: over the stored cells; over all cells in row blocks; over all cells with squared
loss, where Gram matrices make the cost that of the positives alone. Sums of them are a fourth. Each has a transpose,
so that the labels' factor is found by the same code from the other side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from labelgap.kernels import Backend, namespace
from labelgap.kernels.base import Cell
from labelgap.losses import Loss
from labelgap.objectives.base import Quadratic, Sum
from labelgap.objectives.features import Identity
from labelgap.observations import Labels
from labelgap.solvers.base import Array, Kronecker, LinearMap, Model, Objective, Scalar, inner


class CellObjective(Objective, Protocol):
    """Σ over cells as a function of one factor."""

    def curvature(self, B: Array) -> Kronecker:
        """The curvature around B: a matrix that all rows share, and a weight for each; 0 where no cell counts."""


class Cells(Protocol):
    """Label cells with their targets, seen from the rows or from the labels."""

    @property
    def quadratic(self) -> bool:
        """Whether every cell counts, with one weight and squared loss: the Hessian is a Kronecker product."""

    @property
    def has_squares(self) -> bool:
        """Whether every cell counts with squared loss, perhaps with other terms beside it."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and labels, or labels and rows."""

    @property
    def T(self) -> Cells:
        """The same cells seen from the other side."""

    def given(self, H: Array) -> CellObjective:
        """Σ w_ij ℓ(Y_ij, b_i·h_j) as an objective in B."""

    def targets_times(self, H: Array) -> Array:
        """T H, where T holds the targets of the cells that count and 0 elsewhere, or −∂ℓ/∂s at s = 0."""

    def zeros(self, k: int, dtype: Any) -> Array:
        """Factors of 0 for the rows."""


class Weights(NamedTuple):
    """w_ij = p_i q_j, for p an n×1 array or 1, and q an L×1 array or a number.

    >>> Weights.of(2.0, 3.0)
    Weights(rows=1.0, columns=6.0)
    """

    rows: Array | float = 1.0
    columns: Array | float = 1.0

    @classmethod
    def of(cls, rows: Array | float, columns: Array | float) -> Weights:
        """Return weights in which a number for all rows has gone over to the columns."""
        return cls(rows, columns) if np.ndim(rows) else cls(1.0, rows * columns)

    @property
    def T(self) -> Weights:
        """The weights of the transposed cells."""
        return Weights.of(self.columns, self.rows)

    @property
    def uniform(self) -> bool:
        """Whether every cell has the weight 1."""
        return np.ndim(self.rows) == np.ndim(self.columns) == 0 and self.rows == self.columns == 1

    def of_rows(self, rows: Array) -> Weights:
        """Return the weights of some of the rows."""
        return self if np.ndim(self.rows) == 0 else Weights(self.rows[rows], self.columns)  # type: ignore[index]

    def vectors(self, shape: tuple[int, int]) -> tuple[Array, Array]:
        """Return p and q as float64 vectors of NumPy."""
        return tuple(np.broadcast_to(np.ravel(w), n).astype(float) for w, n in zip(self, shape))  # type: ignore

    def on(self, kernels: Backend, dtype: Any) -> Weights:
        """Return the weights with their arrays where a backend has those of the data."""
        p, q = self
        return Weights(kernels.rows(p, dtype) if np.ndim(p) else p, kernels.array(q, dtype) if np.ndim(q) else q)


@dataclass(frozen=True)
class KnownCells:
    """The stored cells, one by one: O(|Ω| k). What is stored is what the loss takes for its target."""

    kernels: Backend
    cell: Cell
    targets: Any
    quadratic = False
    has_squares = False

    @property
    def shape(self) -> tuple[int, int]:
        return self.targets.shape

    @cached_property
    def T(self) -> KnownCells:
        return KnownCells(self.kernels, self.cell, self.kernels.transpose(self.targets))

    def given(self, H: Array) -> CellObjective:
        return _KnownGiven(self, H)

    def targets_times(self, H: Array) -> Array:
        return self.kernels.spmm(self.targets, H)

    def zeros(self, k: int, dtype: Any) -> Array:
        return self.kernels.zeros(self.targets, k, dtype)


@dataclass(frozen=True)
class _KnownGiven:
    """LEML's Algorithm 1: D_ij = ℓ'(Y_ij, b_i·h_j) and U_ij = ℓ''_ij (s_i·h_j) on Ω, gradient D H, product U H."""

    cells: KnownCells
    H: Array
    separable = True

    def value(self, B: Array) -> Scalar:
        return self.cells.kernels.cells_value(self.cells.cell, self.cells.targets, B, self.H)

    def along(self, B: Array, S: Array) -> Callable[[float], Scalar]:
        """O(|Ω|) for each step once the scores and their changes are known: 002, Supp-1.4, less its factor k."""
        kernels, cell, targets = self.cells.kernels, self.cells.cell, self.cells.targets
        scores, changes = kernels.sddmm(targets, B, self.H), kernels.sddmm(targets, S, self.H)
        return lambda step: kernels.cells_sum(cell, targets, scores, changes, step)

    def model(self, B: Array) -> Model:
        kernels, targets = self.cells.kernels, self.cells.targets
        value, gradient, rows, curvature = kernels.cells_model(self.cells.cell, targets, B, self.H)
        form = self._product_of_margins(rows, kernels.column_sums(targets, curvature))
        return Model(value, gradient, lambda S: kernels.cells_hessp(targets, curvature, S, self.H), form)

    def curvature(self, B: Array) -> Kronecker:
        form = self.model(B).kronecker
        assert form is not None
        return form

    def _product_of_margins(self, rows: Array, columns: Array) -> Kronecker:
        """As if the curvature of a cell were the product of its row's mean and its label's share."""
        xp = namespace(columns)
        mean = xp.mean(columns)
        shares = columns / xp.where(mean == 0, 1.0, mean)  # the mean may be below 0: cells may take back
        M = self.cells.kernels.matmul_t(self.H, xp.astype(shares, self.H.dtype) * self.H)
        return Kronecker(0.0, Identity(self.cells.shape[0]), M, rows, exact=False)


class AllCells:
    """Every cell, in row blocks: O(nLk) time, and never an n×L array."""

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
        """p, of n numbers, and q, of L, float64. A transpose is given them: it cannot tell which side has shards."""
        if self._vectors is not None:
            return self._vectors
        p, q = self.weights
        n, L = self.shape
        rows = self.kernels.rows(np.full((n, 1), p), float) if np.ndim(p) == 0 else p
        columns = self.kernels.array(np.full((L, 1), q), float) if np.ndim(q) == 0 else q
        return _flat(rows), _flat(columns)

    def given(self, H: Array) -> CellObjective:
        return _AllGiven(self, H)

    def targets_times(self, H: Array) -> Array:
        """w∘T H = p∘((a⁺ − a⁻) P (q∘H) + a⁻ 1 (qᵀH)), for the pattern P of the positives."""
        (low, high), (p, q) = self.levels, self.weights
        H = H if np.ndim(q) == 0 and q == 1 else q * H
        product = self.kernels.spmm(self.positives, H)
        product *= high - low
        if low:
            product += low * namespace(H).sum(H, axis=0, keepdims=True)
        return product if np.ndim(p) == 0 else p * product

    def zeros(self, k: int, dtype: Any) -> Array:
        return self.kernels.zeros(self.positives, k, dtype)


def _flat(column: Array) -> Array:
    xp = namespace(column)
    return xp.astype(column[:, 0], xp.float64)


@dataclass(frozen=True)
class _AllGiven:
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
        fixed: tuple[Any, Any, Any, Any] = (
            self.cells.loss,
            self.cells.positives,
            self.cells.levels,
            self.cells.vectors,
        )
        value, gradient, rows, _ = kernels.all_model(*fixed, B, H)
        form = Kronecker(0.0, Identity(self.cells.shape[0]), kernels.gram(H), rows, exact=False)
        return Model(value, gradient, lambda S: kernels.all_hessp(*fixed, B, S, H), form)

    def curvature(self, B: Array) -> Kronecker:
        form = self.model(B).kronecker
        assert form is not None
        return form


class AllCellsSquared(AllCells):
    """Every cell with squared loss: O(nnz(Y) k + (n + L) k²), LEML's Algorithm 2 and 002, eqs. 8 to 13."""

    has_squares = True

    @property
    def quadratic(self) -> bool:  # type: ignore[override]
        return np.ndim(self.weights.rows) == np.ndim(self.weights.columns) == 0

    def given(self, H: Array) -> CellObjective:
        return _AllSquaredGiven(self, H)

    @cached_property
    def squares(self) -> Scalar:
        """Σ w_ij Y_ij²."""
        (low, high), (p, q), (n, L) = self.levels, self.weights, self.shape
        if np.ndim(p) == np.ndim(q) == 0:
            return p * q * (float(self.positives.nnz) * (high**2 - low**2) + float(n) * L * low**2)
        of_positives = self._weight_of_positives(p, q) if self.positives.nnz and high != low else 0.0
        return of_positives * (high**2 - low**2) + _total(p, n) * _total(q, L) * low**2

    def _weight_of_positives(self, p: Array | float, q: Array | float) -> Scalar:
        """Σ over positives of p_i q_j, one of them an array."""
        if np.ndim(q) == 0:
            return q * _total(self.kernels.spmm_t(self.positives, _exactly(p)), 0)
        counted = self.kernels.spmm(self.positives, _exactly(q))
        return p * _total(counted, 0) if np.ndim(p) == 0 else inner(_exactly(p), counted)

    def outer_gram(self, features: Any) -> Array:
        """Xᵀ diag(p) X, float64 and kept: the M̄ of 002, Supp-1.2."""
        if features not in self._outer_grams:
            self._outer_grams[features] = features.weighted_gram(self.weights.rows)
        return self._outer_grams[features]

    @cached_property
    def _outer_grams(self) -> dict[Any, Array]:
        return {}


def _exactly(array: Array) -> Array:
    xp = namespace(array)
    return xp.astype(array, xp.float64)


def _total(weights: Array | float, count: int) -> Scalar:
    """Return the sum of weights, which may be one number for so many cells."""
    if np.ndim(weights) == 0:
        return weights * float(count)
    xp = namespace(weights)
    return xp.sum(weights, dtype=xp.float64)


class _AllSquaredGiven(Quadratic):
    """½ Σ w_ij (Y_ij − b_i·h_j)² = ½ Σ w_ij Y_ij² − ⟨B, R⟩ + ½ ⟨Bᵀ(p∘B), M⟩, R = (w∘Y) H, M = Hᵀ(q∘H).

    The Gram matrices of the value are float64.
    """

    separable = True

    def __init__(self, cells: AllCellsSquared, H: Array) -> None:
        self.cells, self.H, self.p = cells, H, cells.weights.rows
        self.M, self.R = self._gram(H, cells.weights.columns), cells.targets_times(H)

    def curvature(self, B: Array) -> Kronecker:
        """The Hessian, which is the same at every B."""
        return Kronecker(0.0, Identity(self.cells.shape[0]), self.M, self.p)

    def _gram(self, B: Array, weights: Array | float) -> Array:
        product = self.cells.kernels.matmul_t(B, weights * B if np.ndim(weights) else B)
        return product if np.ndim(weights) else product * weights

    @cached_property
    def exact_M(self) -> Array:
        """M in float64."""
        return self._gram(_exactly(self.H), self.cells.weights.columns)

    def value(self, B: Array) -> Scalar:
        exact = self._gram(_exactly(B), self.p)
        return 0.5 * self.cells.squares - inner(B, self.R) + 0.5 * inner(exact, self.exact_M)

    def model(self, B: Array) -> Model:
        gradient = self._image(B)
        gradient -= self.R
        return Model(self.value(B), gradient, self._image, self.curvature(B))

    def _image(self, S: Array) -> Array:
        image = self.cells.kernels.matmul(S, self.M)
        return image if np.ndim(self.p) == 0 else self.p * image

    def composed(self, features: LinearMap) -> Objective:
        """The same in W, B = X W, with the d×d matrix Xᵀ diag(p) X made beforehand."""
        return _Precomputed(self, features)


class _Precomputed(Quadratic):
    """½ Σ w_ij Y_ij² − ⟨W, XᵀR⟩ + ½ ⟨W, M̄ W M⟩: 002's variant for d² + dk < nk, with its missing factor M."""

    separable = False

    def __init__(self, outer_objective: _AllSquaredGiven, features: LinearMap) -> None:
        self.outer, self.features = outer_objective, features
        self.exact_gram = outer_objective.cells.outer_gram(features)
        self.R = features.t_times(outer_objective.R)
        self.gram = namespace(self.R).astype(self.exact_gram, self.R.dtype)

    def value(self, W: Array) -> Scalar:
        exact = _exactly(W)
        image = self._image(self.exact_gram, exact, self.outer.exact_M)
        return 0.5 * self.outer.cells.squares + inner(exact, 0.5 * image - self.R)

    def model(self, W: Array) -> Model:
        p, M = self.outer.p, self.outer.M
        exact = np.ndim(p) == 0
        form = Kronecker(0.0, self.features, M, p if exact else float(namespace(p).mean(p)), exact)
        gradient = self._image(self.gram, W, M) - self.R
        return Model(self.value(W), gradient, lambda S: self._image(self.gram, S, M), form)

    def _image(self, gram: Array, W: Array, M: Array) -> Array:
        times = self.outer.cells.kernels.matmul
        return times(times(gram, W), M)


class CellsSum:
    """Several sums over cells of one matrix, added up."""

    quadratic = False

    def __init__(self, parts: Sequence[Cells]) -> None:
        self.parts = list(parts)
        self.shape, self.zeros = self.parts[0].shape, self.parts[0].zeros
        self.has_squares = any(part.has_squares for part in self.parts)

    @cached_property
    def T(self) -> CellsSum:
        return CellsSum([part.T for part in self.parts])

    def given(self, H: Array) -> CellObjective:
        return Sum([part.given(H) for part in self.parts])

    def targets_times(self, H: Array) -> Array:
        """−∂F/∂B at B = 0: what the first step of B follows."""
        return -self.given(H).model(self.zeros(H.shape[1], H.dtype)).gradient


def label_cells(labels: Labels, loss: Loss, kernels: Backend, dtype: Any) -> Cells:
    """Bind labels and loss to the form that costs least."""
    if labels.known is not None:
        return KnownCells(kernels, loss, kernels.prepare(labels.encode(loss.negative, loss.positive, dtype), dtype))
    form = AllCellsSquared if loss.quadratic else AllCells
    return form(kernels, loss, kernels.prepare(labels.positives, dtype))
