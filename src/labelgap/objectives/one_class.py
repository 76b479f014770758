"""Positives with any loss, everything else as a weak negative (002, eqs. 3, 6 and 7).

    Σ over positives of ℓ⁺(a⁺, s_ij) + Σ over all other cells of p_i q_j ℓ⁻(ā, s_ij)

is Σ over all cells of p_i q_j ℓ⁻(ā, s_ij), which Gram matrices give without touching them when ℓ⁻ is squared, plus a
sum over the positives alone of ℓ⁺(a⁺, s_ij) − p_i q_j ℓ⁻(ā, s_ij). A positive's target is always the same, so what is
stored with it is its weight p_i q_j.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_random_state

from labelgap.kernels import Backend
from labelgap.kernels.base import Cell
from labelgap.losses import CellFunctions, Loss
from labelgap.objectives.cells import AllCells, AllCellsSquared, Cells, CellsSum, KnownCells, Weights


class Corrected:
    """ℓ⁺(a⁺, b) − w ℓ⁻(ā, b), a function of the weight w and the score b; not convex by itself."""

    def __init__(self, positive: Loss, rest: Loss, negative_target: float) -> None:
        self.positive, self.rest, self.negative_target = positive, rest, float(negative_target)

    def functions(self, xp: Any = np) -> CellFunctions:
        """Return value, gradient and curvature in b."""
        target, other = float(self.positive.positive), self.negative_target
        pairs = zip(self.positive.functions(xp), self.rest.functions(xp))
        return CellFunctions(*(_corrected(plus, minus, target, other) for plus, minus in pairs))


def _corrected(plus: Any, minus: Any, target: float, other: float) -> Any:
    def corrected(w, b):
        return plus(target, b) - w * minus(other, b)

    return corrected


class Weighted:
    """w ℓ(a, b) for one target a, a function of the weight w and the score b."""

    def __init__(self, loss: Loss, target: float) -> None:
        self.loss, self.target = loss, float(target)

    def functions(self, xp: Any = np) -> CellFunctions:
        """Return value, gradient and curvature in b."""
        return CellFunctions(*(_weighted(function, self.target) for function in self.loss.functions(xp)))


def _weighted(function: Any, target: float) -> Any:
    def weighted(w, b):
        return w * function(target, b)

    return weighted


@dataclass(frozen=True)
class OneClass:
    """What the cells that are not positive count for.

    Attributes
    ----------
    loss : Loss
        ℓ⁺, on the positives.
    rest : Loss
        ℓ⁻, on all other cells.
    negative_target : float
        ā.
    weights : Weights
        p_i q_j.
    importance : Weights
        c_i d_j, by which both the positives and the rest count more or less.
    """

    loss: Loss
    rest: Loss
    negative_target: float
    weights: Weights
    importance: Weights = field(default_factory=Weights)

    def cells(self, positives: sp.csr_array, kernels: Backend, dtype: Any) -> Cells:
        """Bind every cell of a matrix with these positives, in the form that costs least."""
        even = self.importance.uniform
        if even and self.weights.uniform and self.loss.quadratic and self.rest.quadratic:
            levels = (self.negative_target, self.loss.positive)
            return AllCellsSquared(kernels, self.rest, kernels.prepare(positives, dtype), levels)

        def stored(cell: Cell, values: sp.csr_array) -> Cells:
            return KnownCells(kernels, cell, kernels.prepare(values, dtype))

        taken_out = weights_at(positives, self._rest_weights, dtype)
        everywhere = self._every_cell(positives.shape, kernels, dtype)
        if even:
            corrected = Corrected(self.loss, self.rest, self.negative_target)
            return CellsSum([everywhere, stored(corrected, taken_out)])
        own = weights_at(positives, self.importance, dtype)
        positive, rest = Weighted(self.loss, self.loss.positive), Weighted(self.rest, self.negative_target)
        return CellsSum([everywhere, stored(positive, own), stored(rest, -taken_out)])

    def sampled_cells(
        self, positives: sp.csr_array, ratio: float, random_state: Any, kernels: Backend, dtype: Any
    ) -> Cells:
        """Bind the positives and ``ratio`` times as many other cells, drawn at random."""
        drawn = weights_at(sample_others(positives, ratio, random_state), self._rest_weights, dtype)
        own = weights_at(positives, self.importance, dtype)
        return CellsSum(
            [
                KnownCells(kernels, Weighted(loss, target), kernels.prepare(values, dtype))
                for loss, target, values in (
                    (self.loss, self.loss.positive, own),
                    (self.rest, self.negative_target, drawn),
                )
            ]
        )

    @property
    def _rest_weights(self) -> Weights:
        p, q = (c * w for c, w in zip(self.importance, self.weights))
        return Weights.of(p, q)

    def _every_cell(self, shape: tuple[int, int], kernels: Backend, dtype: Any) -> Cells:
        form = AllCellsSquared if self.rest.quadratic else AllCells
        none = kernels.prepare(sp.csr_array(shape, dtype=dtype), dtype)
        levels = (self.negative_target, self.negative_target)
        return form(kernels, self.rest, none, levels, self._rest_weights.on(kernels, dtype))


def weights_at(cells: sp.csr_array, weights: Weights, dtype: Any) -> sp.csr_array:
    """Return p_i q_j at the stored cells.

    >>> weights_at(sp.csr_array([[0, 1], [1, 1]]), Weights(np.array([[1.0], [2.0]]), 0.5), float).data
    array([0.5, 1. , 1. ])
    """
    p, q = weights.vectors(cells.shape)
    data = np.repeat(p, np.diff(cells.indptr)) * q[cells.indices]
    return sp.csr_array((data.astype(dtype), cells.indices, cells.indptr), shape=cells.shape)


def sample_others(positives: sp.csr_array, ratio: float, random_state: Any) -> sp.csr_array:
    """Return ``ratio`` times as many cells as there are positives, at random among the others, without repetition.

    >>> positives = sp.csr_array(np.eye(4))
    >>> others = sample_others(positives, 2.0, 0)
    >>> others.nnz, int(positives.multiply(others).sum())
    (8, 0)
    """
    n, L = positives.shape
    taken = np.repeat(np.arange(n, dtype=np.int64), np.diff(positives.indptr)) * L + positives.indices
    wanted = min(round(ratio * positives.nnz), n * L - positives.nnz)
    rng, keys = check_random_state(random_state), np.empty(0, np.int64)
    if 2 * (wanted + positives.nnz) > n * L:  # few cells are left over: drawing again and again would not end
        keys = rng.choice(np.setdiff1d(np.arange(n * L), taken), wanted, replace=False)
    while len(keys) < wanted:
        more = rng.randint(0, n * L, size=2 * (wanted - len(keys)) + 16, dtype=np.int64)
        # A draw that comes twice, or hits a positive, is drawn again; the order of drawing must not matter.
        fresh = np.setdiff1d(more, np.concatenate([taken, keys]))
        keys = np.concatenate([keys, rng.permutation(fresh)[: wanted - len(keys)]])
    return sp.csr_array((np.ones(wanted), (keys // L, keys % L)), shape=(n, L))
