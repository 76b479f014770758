"""Newton's method with conjugate gradients and backtracking; on a quadratic it is conjugate gradients."""

from __future__ import annotations

from dataclasses import dataclass

from labelgap.solvers.base import Array, Model, Objective, Solution, Status, inner
from labelgap.solvers.cg import Blocks, conjugate_gradient
from labelgap.solvers.kronecker import preconditioner
from labelgap.solvers.linesearch import SHRINK, backtrack, enough

ROUNDING = 1e-12


@dataclass
class NewtonCG:
    """Newton steps, each by conjugate gradients to a relative residual ``cg_tol``, then backtracking.

    Stops when ‖∇f‖ ≤ tol · ‖∇f(start)‖. Where the objective is separable, every row has its own step lengths in the
    inner iteration, unless ``joint`` asks for the published form. The Hessian's Kronecker form, exact or near, is the
    preconditioner.
    """

    tol: float = 5e-2
    max_iter: int = 20
    cg_tol: float = 1e-1
    cg_iter: int = 50
    joint: bool = False
    precondition: bool = True

    def minimize(self, objective: Objective, start: Array) -> Solution:
        """Return the minimiser found from ``start``."""
        blocks: Blocks = "rows" if objective.separable and not self.joint else "joint"
        x, model = start, objective.model(start)
        norm = inner(model.gradient, model.gradient) ** 0.5
        goal, taken = self.tol * norm, 0
        for iteration in range(self.max_iter):
            if norm <= goal or norm == 0:
                return Solution(x, model.value, Status.CONVERGED, iteration, taken)
            # The last step need not be solved further than the stop asks for.
            tol = max(min(self.cg_tol, 0.5 * goal / norm), 1e-12)
            found = conjugate_gradient(
                model.hessp,
                -model.gradient,
                tol=tol,
                max_iter=self.cg_iter,
                blocks=blocks,
                precondition=preconditioner(model.kronecker, x.dtype) if self.precondition else None,
            )
            taken += found.n_products
            slope = inner(model.gradient, found.x)
            if slope >= 0:
                return Solution(x, model.value, Status.STALLED, iteration, taken)
            following = _descend(objective, x, model, found.x, slope)
            if following is None:
                return Solution(x, model.value, Status.STALLED, iteration, taken)
            x, model = following
            norm = inner(model.gradient, model.gradient) ** 0.5
        status = Status.CONVERGED if norm <= goal else Status.MAX_ITER
        return Solution(x, model.value, status, self.max_iter, taken)


def _descend(
    objective: Objective, x: Array, model: Model, direction: Array, slope: float
) -> tuple[Array, Model] | None:
    """Go the whole step where that descends enough, else part of it; None where no part does.

    The model at the end of the whole step is nearly always wanted, and holds the value that decides.
    """
    whole = x + direction
    trial, slack = objective.model(whole), ROUNDING * abs(model.value)
    if enough(trial.value, model.value, slope, 1.0, slack):
        return whole, trial
    step, _ = backtrack(objective.along(x, direction), model.value, slope, step=SHRINK, slack=slack)
    if step == 0:
        return None
    x = x + x.dtype.type(step) * direction
    return x, objective.model(x)
