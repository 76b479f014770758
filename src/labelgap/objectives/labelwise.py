"""A block of labels, each with a linear model of its own: the losses of its known cells and a ridge."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelgap.kernels.elementwise import CompiledCell, cell_curvature, cell_gradient, cell_value
from labelgap.kernels.loops import compiled
from labelgap.losses import CellFunctions, Loss
from labelgap.observations import Labels
from labelgap.solvers.base import Array, LinearMap
from labelgap.solvers.columns import ColumnModel

LEAST_RIDGE = 1e-6  # without any, a logistic loss on one class has no minimum
CONSTANT_STEPS = 50


@compiled
def column_values(cell, targets, scores, values):
    """Adds Σ_i ℓ(targets_ij, scores_ij) over known cells to each column's value, in float64."""
    for i in range(targets.shape[0]):
        for j in range(targets.shape[1]):
            a = np.float64(targets[i, j])
            if not np.isnan(a):
                values[j] += cell_value(cell, a, np.float64(scores[i, j]))


@compiled
def column_model(cell, targets, scores, slopes, curvature):
    """Writes ℓ' and ℓ'' of each cell, 0 where it is unknown."""
    one = scores.dtype.type(1)
    for i in range(targets.shape[0]):
        for j in range(targets.shape[1]):
            a, b = np.float64(targets[i, j]), np.float64(scores[i, j])
            if np.isnan(a):
                slopes[i, j], curvature[i, j] = 0, 0
            else:
                slopes[i, j] = one * cell_gradient(cell, a, b)
                curvature[i, j] = one * cell_curvature(cell, a, b)


class Labelwise:
    """F_j(w) = Σ over known (i, j) of ℓ(a_ij, x_i·w) + (α/2) ‖w‖² for the labels j of a block.

    ``targets`` (n×m) holds a_ij, NaN where a cell is unknown.
    """

    def __init__(self, features: LinearMap, loss: Loss, targets: Array, alpha: float) -> None:
        self.features, self.loss, self.targets, self.alpha = features, loss, targets, alpha
        self._cell = CompiledCell(loss)

    def scores(self, W: Array) -> Array:
        """X W."""
        return self.features.times(W)

    def values(self, W: Array, scores: Array) -> Array:
        """F of each label."""
        values = 0.5 * self.alpha * (W * W).sum(0, dtype=float)
        column_values(self._cell, self.targets, scores, values)
        return values

    def model(self, W: Array, scores: Array) -> ColumnModel:
        """∇F, products with ∇²F, and its diagonal as if a label's rows all had their mean curvature."""
        slopes, curvature, ridge = np.empty_like(scores), np.empty_like(scores), W.dtype.type(self.alpha)
        column_model(self._cell, self.targets, scores, slopes, curvature)
        diagonal = self.features.column_squares() * curvature.mean(0, dtype=float) + self.alpha

        def hessp(V: Array) -> Array:
            return self.features.t_times(curvature * self.features.times(V)) + ridge * V

        return ColumnModel(self.features.t_times(slopes) + ridge * W, hessp, diagonal.astype(W.dtype))

    def part(self, columns: Array) -> Labelwise:
        """The labels of these columns alone."""
        return Labelwise(self.features, self.loss, np.ascontiguousarray(self.targets[:, columns]), self.alpha)

    def goals(self, tol: float) -> NDArray[np.float64]:
        """Return how long a gradient may be at the end: ``tol`` of that at w = 0, times the share of the rarer class.

        A label with few positives has a long gradient at 0, from its many negatives, that a constant takes away; what
        its positives ask for is that much shorter (Lin, Weng and Keerthi 2008).
        """
        zero = np.zeros((self.features.shape[1], self.targets.shape[1]), self.targets.dtype)
        downhill = self.model(zero, np.zeros_like(self.targets)).gradient
        known = np.count_nonzero(~np.isnan(self.targets), axis=0)
        positive = np.count_nonzero(self.targets == self.loss.positive, axis=0)
        rarer = np.maximum(np.minimum(positive, known - positive), 1) / np.maximum(known, 1)
        return tol * rarer * np.sqrt((downhill * downhill).sum(0, dtype=float))


def target_block(by_label: Labels, block: NDArray, loss: Loss, dtype: Any) -> NDArray:
    """Return the targets of some labels, n×m, NaN where a cell is unknown; ``by_label`` has a row for each label.

    >>> from labelgap.losses import Squared
    >>> target_block(Labels([[1, 0], [np.nan, 1]]).T, np.array([1, 0]), Squared(), float)
    array([[ 0.,  1.],
           [ 1., nan]])
    """
    part = by_label[block]
    positive = part.positives.toarray().T
    targets = np.where(positive, loss.positive, loss.negative).astype(dtype)
    if part.known is not None:
        targets[~part.known.toarray().T] = np.nan
    return np.ascontiguousarray(targets)


def best_constants(loss: Loss, alpha: float, positive: NDArray, negative: NDArray) -> NDArray[np.float64]:
    """Return the b of each label that minimises Σ over its known cells of ℓ(a, b) + (α/2) b²; 0 where it has none.

    >>> from labelgap.losses import SquaredHinge
    >>> best_constants(SquaredHinge(), 2.0, np.array([1, 0, 0]), np.array([0, 3, 0])).round(6)
    array([ 0.5 , -0.75,  0.  ])
    """
    cell, ridge = CellFunctions(*loss.functions()), max(alpha, LEAST_RIDGE)
    b = np.zeros(len(positive))
    for _ in range(CONSTANT_STEPS):
        slope, bend = ridge * b, np.full(len(b), ridge)
        for count, target in ((positive, loss.positive), (negative, loss.negative)):
            slope = slope + count * cell.gradient(target, b)
            bend = bend + count * cell.curvature(target, b)
        b = b - slope / bend
    return b
