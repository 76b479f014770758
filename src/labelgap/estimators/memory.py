"""What rows that are gone said about labels, kept so that further rows can be learned after them."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelgap.objectives.anchor import Anchor
from labelgap.objectives.base import Sum, limited, merge
from labelgap.objectives.cells import AllCellsSquared, Cells
from labelgap.solvers import NewtonCG
from labelgap.solvers.base import Kronecker, Objective

CAREFULLY = NewtonCG(tol=1e-3, max_iter=10)


def blank_label(cells: Cells | None, B: NDArray, before: Anchor) -> Anchor:
    """Return what rows with factors B, and those before, say of a label that none of them has."""
    if cells is None:
        return before
    data, at = cells.T.given(B), before.at
    # Factors of 0 are where squares with the target 0 are least.
    if at.any() or not (isinstance(cells, AllCellsSquared) and cells.levels[0] == 0):
        at = CAREFULLY.minimize(Sum([data, before]), at).x
    form = merge(before.hessian, curvature(data, at))
    return Anchor(at, form.M, np.full((1, 1), mean(form.weights)), before.ridge)


def curvature(data: Objective, H: NDArray) -> Kronecker:
    """Return the curvature around H, a matrix that all labels share and a weight for each.

    A label of which no cell counts has the weight 0: what is remembered is evidence, not a preconditioner.
    """
    if isinstance(data, Sum):
        parts = [curvature(term, H) for term in data.terms]
        whole = reduce(merge, parts)
        # A term that takes back what another counts leaves every label something, but not by the product of margins.
        return whole if all(np.min(part.weights) >= 0 for part in parts) else limited(whole)
    form = getattr(data, "hessian", None) or data.model(H).kronecker
    assert form is not None  # sums over cells have one
    return form


def mean(values: Any) -> float:
    """Return the mean of a number or an array, as a number."""
    return float(np.mean(values))
