"""The exact minimum of a quadratic objective whose Hessian is a Kronecker product plus a ridge."""

from __future__ import annotations

import math
from dataclasses import dataclass

from labelgap.solvers.base import Array, Model, Objective, Solution, Status, inner
from labelgap.solvers.kronecker import Rotated


@dataclass
class Direct:
    """One Newton step W − K⁻¹∇f(W), with K solved column by column after a rotation.

    By eigenvectors where the features offer them; otherwise by conjugate gradients in which every column has its own
    step lengths, to a relative residual ``tol`` or for ``max_iter`` products: more are
    wasted while the other factor still moves.
    """

    tol: float = 1e-1
    max_iter: int = 12

    def minimize(self, objective: Objective, start: Array) -> Solution:
        """Return the minimiser; ``start`` is where the step begins."""
        model = objective.model(start)
        if model.kronecker is None or not model.kronecker.exact:
            raise ValueError(
                "solver='direct' solves squared loss on every cell with one weight and one penalty; use solver='cg' "
                "or 'tron' (or 'auto') for other losses, for missing labels and with graphs."
            )
        rotated = Rotated(model.kronecker, start.dtype)
        if rotated.spectrum is not None:
            return _along(model, start, rotated.solve(-model.gradient))
        found = rotated.solve_columns(-model.gradient, self.tol, self.max_iter)
        value = model.value + 0.5 * inner(model.gradient, found.x) - 0.5 * inner(found.x, found.residual)
        status = Status.CONVERGED if found.converged else Status.MAX_ITER
        return Solution(start + found.x, value, status, 1, found.n_products)


def _along(model: Model, start: Array, step: Array) -> Solution:
    """Go along a step to the minimum of the quadratic: all of it but for rounding, which then cannot raise f."""
    slope, curvature = inner(model.gradient, step), inner(step, model.hessp(step))
    length = -slope / curvature if curvature > 0 else 0.0
    if not 0 < length < math.inf:
        return Solution(start, model.value, Status.CONVERGED if slope == 0 else Status.STALLED, 1, 1)
    return Solution(
        start + start.dtype.type(length) * step, model.value + 0.5 * length * slope, Status.CONVERGED, 1, 1
    )
