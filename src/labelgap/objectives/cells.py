"""Sums of a loss over label cells, Σ ℓ(Y_ij, b_i·h_j), as objectives in B while H is held.

Three forms share one interface: over the known cells; over all cells in row blocks; over all cells with squared loss,
where Gram matrices make the cost that of the positives alone. :func:`label_cells` picks one. Each has a transpose, so
that the labels' factor is found by the same code from the other side.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Protocol

import numpy as np

from labelgap.kernels import Backend
from labelgap.losses import Loss
from labelgap.objectives.features import Identity
from labelgap.observations import Labels
from labelgap.solvers.base import Array, Kronecker, Model, Objective, inner


class Cells(Protocol):
    """Label cells with their targets, seen from the rows or from the labels."""

    shape: tuple[int, int]

    @property
    def T(self) -> Cells:
        """The same cells seen from the other side."""

    def given(self, H: Array) -> Objective:
        """Σ ℓ(Y_ij, b_i·h_j) as an objective in B."""

    def targets_times(self, H: Array) -> Array:
        """T H, where T holds the targets of the cells that count and 0 elsewhere."""


class KnownCells:
    """The cells of Ω, one by one: O(|Ω| k)."""

    def __init__(self, kernels: Backend, loss: Loss, targets: Any) -> None:
        self.kernels, self.loss, self.targets = kernels, loss, targets
        self.shape = targets.shape

    @cached_property
    def T(self) -> KnownCells:
        return KnownCells(self.kernels, self.loss, self.kernels.transpose(self.targets))

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
        return self.cells.kernels.cells_value(self.cells.loss, self.cells.targets, B, self.H)

    def model(self, B: Array) -> Model:
        kernels, targets = self.cells.kernels, self.cells.targets
        value, gradient, weights, curvature = kernels.cells_model(self.cells.loss, targets, B, self.H)
        near = _near(kernels, weights, self.H)
        return Model(value, gradient, lambda S: kernels.cells_hessp(targets, curvature, S, self.H), near)


class AllCells:
    """Every cell, in row blocks: O(nLk) time, and never an n×L array."""

    def __init__(self, kernels: Backend, loss: Loss, positives: Any) -> None:
        self.kernels, self.loss, self.positives = kernels, loss, positives
        self.levels = (loss.negative, loss.positive)
        self.shape = positives.shape

    @cached_property
    def T(self) -> AllCells:
        return type(self)(self.kernels, self.loss, self.kernels.transpose(self.positives))

    def given(self, H: Array) -> Objective:
        return _AllGiven(self, H)

    def targets_times(self, H: Array) -> Array:
        """(a⁺ − a⁻) P H + a⁻ 1 (1ᵀH), for the pattern P of the positives."""
        low, high = self.levels
        product = self.kernels.spmm(self.positives, H)
        product *= H.dtype.type(high - low)
        return product + H.dtype.type(low) * H.sum(0, keepdims=True) if low else product


class _AllGiven:
    separable = True

    def __init__(self, cells: AllCells, H: Array) -> None:
        self.cells, self.H = cells, H

    def _arguments(self) -> tuple[Loss, Any, tuple[float, float]]:
        return self.cells.loss, self.cells.positives, self.cells.levels

    def value(self, B: Array) -> float:
        return self.cells.kernels.all_value(*self._arguments(), B, self.H)

    def model(self, B: Array) -> Model:
        kernels = self.cells.kernels
        value, gradient, weights, _ = kernels.all_model(*self._arguments(), B, self.H)
        near = _near(kernels, weights, self.H)
        return Model(value, gradient, lambda S: kernels.all_hessp(*self._arguments(), B, S, self.H), near)


def _near(kernels: Backend, weights: Array, H: Array) -> Kronecker:
    """As if every cell of row i had the mean curvature of that row, unknown cells counting 0."""
    return Kronecker(0.0, Identity(len(weights)), kernels.gram(H), weights, exact=False)


class AllCellsSquared(AllCells):
    """Every cell with squared loss: O(nnz(Y) k + (n + L) k²), LEML's Algorithm 2."""

    def given(self, H: Array) -> Objective:
        return _AllSquaredGiven(self, H)

    def squares(self) -> float:
        """Σ Y_ij²."""
        low, high = self.levels
        n, L = self.shape
        return self.positives.nnz * (high**2 - low**2) + n * L * low**2


class _AllSquaredGiven:
    """½ ‖Y − B Hᵀ‖² = ½ ‖Y‖² − ⟨B, YH⟩ + ½ ⟨BᵀB, HᵀH⟩; the Gram matrices of the value are float64."""

    separable = True

    def __init__(self, cells: AllCellsSquared, H: Array) -> None:
        self.cells, self.H = cells, H
        self.R = cells.targets_times(H)
        self.M = cells.kernels.gram(H)

    @cached_property
    def _exact_M(self) -> Array:
        return self.cells.kernels.gram(self.H.astype(np.float64))

    def value(self, B: Array) -> float:
        exact = self.cells.kernels.gram(B.astype(np.float64))
        return 0.5 * self.cells.squares() - inner(B, self.R) + 0.5 * inner(exact, self._exact_M)

    def model(self, B: Array) -> Model:
        exact = Kronecker(0.0, Identity(len(B)), self.M)
        return Model(self.value(B), B @ self.M - self.R, lambda S: S @ self.M, exact)


def label_cells(labels: Labels, loss: Loss, kernels: Backend, dtype: Any) -> Cells:
    """Bind labels and loss to the form that costs least."""
    if labels.known is not None:
        return KnownCells(kernels, loss, kernels.prepare(labels.encode(loss.negative, loss.positive, dtype), dtype))
    form = AllCellsSquared if loss.quadratic else AllCells
    return form(kernels, loss, kernels.prepare(labels.positives, dtype))
