"""The compiled loops over a block of labels, one column each: every cell has a target, NaN where it is unknown."""

from __future__ import annotations

import numpy as np

from labelgap.kernels.elementwise import cell_curvature, cell_gradient, cell_value
from labelgap.kernels.loops import compiled


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
