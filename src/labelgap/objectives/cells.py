"""Sums of a loss over label cells, Σ w_ij ℓ(Y_ij, b_i·h_j), as objectives in B while H is held.

Three forms share one interface: over the stored cells; over all cells in row blocks; over all cells with squared
loss, where Gram matrices make the cost that of the positives alone. Sums of them are a fourth. Each has a transpose,
so that the labels' factor is found by the same code from the other side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from labelgap.kernels import Backend
from labelgap.kernels.base import Cell
from labelgap.losses import Loss
from labelgap.objectives.base import Quadratic, Sum
from labelgap.objectives.features import Identity
from labelgap.observations import Labels
from labelgap.solvers.base import Array, Kronecker, LinearMap, Model, Objective, inner


class Cells(Protocol):
    """Label cells with their targets, seen from the rows or from the labels."""

    shape: tuple[int, int]

    @property
    def T(self) -> Cells:
        """The same cells seen from the other side."""

    def given(self, H: Array) -> Objective:
        """Σ w_ij ℓ(Y_ij, b_i·h_j) as an objective in B."""

    def targets_times(self, H: Array) -> Array:
        """T H, where T holds the targets of the cells that count and 0 elsewhere, or −∂ℓ/∂s at s = 0."""


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
        """Return p and q as float64 vectors."""
        return tuple(np.broadcast_to(np.ravel(w), n).astype(float) for w, n in zip(self, shape))  # type: ignore


class KnownCells:
    """The stored cells, one by one: O(|Ω| k). What is stored is what the loss takes for its target."""

    def __init__(self, kernels: Backend, cell: Cell, targets: Any) -> None:
        self.kernels, self.cell, self.targets = kernels, cell, targets
        self.shape = targets.shape

    @cached_property
    def T(self) -> KnownCells:
        return KnownCells(self.kernels, self.cell, self.kernels.transpose(self.targets))

    def given(self, H: Array) -> Objective:
        return _KnownGiven(self, H)

    def targets_times(self, H: Array) -> Array:
        return self.kernels.spmm(self.targets, H)


class _KnownGiven:
    """LEML's Algorithm 1: D_ij = ℓ'(Y_ij, b_i·h_j) and U_ij = ℓ''_ij (s_i·h_j) on Ω, gradient D H, product U H."""

    separable = True

    def __init__(self, cells: KnownCells, H: Array) -> None:
        self.cells, self.H = cells, H

    def value(self, B: Array) -> float:
        return self.cells.kernels.cells_value(self.cells.cell, self.cells.targets, B, self.H)

    def along(self, B: Array, S: Array) -> Callable[[float], float]:
        """O(|Ω|) for each step once the scores and their changes are known: 002, Supp-1.4, less its factor k."""
        kernels, cell, targets = self.cells.kernels, self.cells.cell, self.cells.targets
        scores, changes = kernels.sddmm(targets, B, self.H), kernels.sddmm(targets, S, self.H)
        return lambda step: kernels.cells_sum(cell, targets, scores, changes, step)

    def model(self, B: Array) -> Model:
        kernels, targets = self.cells.kernels, self.cells.targets
        value, gradient, rows, curvature = kernels.cells_model(self.cells.cell, targets, B, self.H)
        near = self._near(rows, kernels.column_sums(targets, curvature))
        return Model(value, gradient, lambda S: kernels.cells_hessp(targets, curvature, S, self.H), near)

    def _near(self, rows: Array, columns: Array) -> Kronecker:
        """As if the curvature of a cell were the product of its row's mean and its label's share."""
        mean = columns.mean()
        shares = columns / mean if mean else columns
        M = self.cells.kernels.matmul_t(self.H, shares.astype(self.H.dtype) * self.H)
        return Kronecker(0.0, Identity(len(rows)), M, rows, exact=False)


class AllCells:
    """Every cell, in row blocks: O(nLk) time, and never an n×L array."""

    def __init__(
        self,
        kernels: Backend,
        loss: Loss,
        positives: Any,
        levels: tuple[float, float] | None = None,
        weights: Weights = Weights(),  # noqa: B008 - a tuple of two numbers
    ) -> None:
        self.kernels, self.loss, self.positives, self.weights = kernels, loss, positives, weights
        self.levels = levels or (loss.negative, loss.positive)
        self.shape = positives.shape

    @cached_property
    def T(self) -> AllCells:
        positives = self.kernels.transpose(self.positives)
        return type(self)(self.kernels, self.loss, positives, self.levels, self.weights.T)

    def given(self, H: Array) -> Objective:
        return _AllGiven(self, H)

    def targets_times(self, H: Array) -> Array:
        """w∘T H = p∘((a⁺ − a⁻) P (q∘H) + a⁻ 1 (qᵀH)), for the pattern P of the positives."""
        (low, high), (p, q) = self.levels, self.weights
        H = H if np.ndim(q) == 0 and q == 1 else q * H
        product = self.kernels.spmm(self.positives, H)
        product *= H.dtype.type(high - low)
        if low:
            product += H.dtype.type(low) * H.sum(0, keepdims=True)
        return product if np.ndim(p) == 0 else p * product


class _AllGiven:
    separable = True

    def __init__(self, cells: AllCells, H: Array) -> None:
        self.cells, self.H = cells, H
        weights = cells.weights.vectors(cells.shape)
        self._arguments: tuple[Any, Any, Any, Any] = (cells.loss, cells.positives, cells.levels, weights)

    def value(self, B: Array) -> float:
        return self.cells.kernels.all_value(*self._arguments, B, self.H)

    def along(self, B: Array, S: Array) -> Callable[[float], float]:
        return lambda step: self.value(B + B.dtype.type(step) * S)

    def model(self, B: Array) -> Model:
        kernels = self.cells.kernels
        value, gradient, rows, _ = kernels.all_model(*self._arguments, B, self.H)
        near = Kronecker(0.0, Identity(len(rows)), kernels.gram(self.H), rows, exact=False)
        return Model(value, gradient, lambda S: kernels.all_hessp(*self._arguments, B, S, self.H), near)


class AllCellsSquared(AllCells):
    """Every cell with squared loss: O(nnz(Y) k + (n + L) k²), LEML's Algorithm 2 and 002, eqs. 8 to 13."""

    def given(self, H: Array) -> Objective:
        return _AllSquaredGiven(self, H)

    @cached_property
    def squares(self) -> float:
        """Σ w_ij Y_ij²."""
        (low, high), (p, q) = self.levels, self.weights.vectors(self.shape)
        of_positives = float(p @ self.kernels.spmm(self.positives, q[:, None])[:, 0]) if self.positives.nnz else 0.0
        return float(of_positives * (high**2 - low**2) + p.sum() * q.sum() * low**2)

    def outer_gram(self, features: Any) -> Array:
        """Xᵀ diag(p) X, float64 and kept: the M̄ of 002, Supp-1.2."""
        if features not in self._outer_grams:
            self._outer_grams[features] = features.weighted_gram(self.weights.rows)
        return self._outer_grams[features]

    @cached_property
    def _outer_grams(self) -> dict[Any, Array]:
        return {}


class _AllSquaredGiven(Quadratic):
    """½ Σ w_ij (Y_ij − b_i·h_j)² = ½ Σ w_ij Y_ij² − ⟨B, R⟩ + ½ ⟨Bᵀ(p∘B), M⟩, R = (w∘Y) H, M = Hᵀ(q∘H).

    The Gram matrices of the value are float64.
    """

    separable = True

    def __init__(self, cells: AllCellsSquared, H: Array) -> None:
        self.cells, self.H, self.p = cells, H, cells.weights.rows
        self.M = self._gram(H, cells.weights.columns)

    @cached_property
    def R(self) -> Array:
        """(w∘Y) H."""
        return self.cells.targets_times(self.H)

    @property
    def hessian(self) -> Kronecker:
        """The same at every B."""
        return Kronecker(0.0, Identity(self.cells.shape[0]), self.M, self.p)

    def _gram(self, B: Array, weights: Array | float) -> Array:
        kernels = self.cells.kernels
        return kernels.matmul_t(B, weights * B) if np.ndim(weights) else kernels.gram(B) * weights

    @cached_property
    def exact_M(self) -> Array:
        """M in float64."""
        return self._gram(self.H.astype(float), self.cells.weights.columns)

    def _weighted(self, B: Array) -> Array:
        return B if np.ndim(self.p) == 0 else self.p * B

    def value(self, B: Array) -> float:
        exact = self._gram(B.astype(float), self.p)
        return 0.5 * self.cells.squares - inner(B, self.R) + 0.5 * inner(exact, self.exact_M)

    def model(self, B: Array) -> Model:
        times = self.cells.kernels.matmul
        gradient = self._weighted(times(B, self.M)) - self.R
        return Model(self.value(B), gradient, lambda S: self._weighted(times(S, self.M)), self.hessian)

    def through(self, features: LinearMap) -> Objective:
        """The same in W, B = X W, with the d×d matrix Xᵀ diag(p) X made beforehand."""
        return _Precomputed(self, features)


class _Precomputed(Quadratic):
    """½ Σ w_ij Y_ij² − ⟨W, XᵀR⟩ + ½ ⟨W, M̄ W M⟩: 002's variant for d² + dk < nk, with its missing factor M."""

    separable = False

    def __init__(self, inner_objective: _AllSquaredGiven, features: LinearMap) -> None:
        self.inner, self.features = inner_objective, features
        self.outer = inner_objective.cells.outer_gram(features)
        self.R = features.t_times(inner_objective.R)
        self._outer = self.outer.astype(self.R.dtype)

    def value(self, W: Array) -> float:
        exact = W.astype(float)
        image = self._image(self.outer, exact, self.inner.exact_M)
        return 0.5 * self.inner.cells.squares + inner(exact, 0.5 * image - self.R)

    def model(self, W: Array) -> Model:
        p, M = self.inner.p, self.inner.M
        form = Kronecker(0.0, self.features, M, float(np.mean(p)), exact=np.ndim(p) == 0)
        gradient = self._image(self._outer, W, M) - self.R
        return Model(self.value(W), gradient, lambda S: self._image(self._outer, S, M), form)

    def _image(self, outer: Array, W: Array, M: Array) -> Array:
        times = self.inner.cells.kernels.matmul
        return times(times(outer, W), M)


class CellsSum:
    """Several sums over cells of one matrix, added up."""

    def __init__(self, parts: Sequence[Cells]) -> None:
        self.parts = list(parts)
        self.shape = self.parts[0].shape

    @cached_property
    def T(self) -> CellsSum:
        return CellsSum([part.T for part in self.parts])

    def given(self, H: Array) -> Objective:
        return Sum([part.given(H) for part in self.parts])

    def targets_times(self, H: Array) -> Array:
        """−∂F/∂B at B = 0: what the first step of B follows."""
        return -self.given(H).model(np.zeros((self.shape[0], H.shape[1]), H.dtype)).gradient


def label_cells(labels: Labels, loss: Loss, kernels: Backend, dtype: Any) -> Cells:
    """Bind labels and loss to the form that costs least."""
    if labels.known is not None:
        return KnownCells(kernels, loss, kernels.prepare(labels.encode(loss.negative, loss.positive, dtype), dtype))
    form = AllCellsSquared if loss.quadratic else AllCells
    return form(kernels, loss, kernels.prepare(labels.positives, dtype))
