"""Newton's method with conjugate gradients and backtracking; on a quadratic it is conjugate gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from labelgap.solvers.base import Array, Model, Objective, Scalar, Solution, Status, inner, norm
from labelgap.solvers.cg import Blocks, conjugate_gradient
from labelgap.solvers.kronecker import preconditioner

ROUNDING = 1e-12
DECREASE, SHRINK = 1e-4, 0.5


def enough(trial: float, value: float, slope: float, step: float, slack: float = 0.0) -> bool:
    """Tell whether f(step) ≤ f(0) + 10⁻⁴ · step · slope + slack."""
    return trial <= value + DECREASE * step * slope + slack


def backtrack(
    value_along: Callable[[float], Scalar],
    value: float,
    slope: float,
    *,
    step: float = 1.0,
    max_halvings: int = 30,
    slack: float = 0.0,
) -> tuple[float, float]:
    """Return the first of ``step``, and its halves, with f(step) ≤ f(0) + 10⁻⁴ · step · slope + slack, and its value.

    ``slope`` is the directional derivative at 0 and must be negative; ``slack`` is the rounding error of f. A step of
    0 means that none was found.

    >>> backtrack(lambda t: (1 - 4 * t) ** 2, value=1.0, slope=-8.0)
    (0.25, 0.0)
    """
    for _ in range(max_halvings):
        trial = float(value_along(step))
        if enough(trial, value, slope, step, slack):
            return step, trial
        step *= SHRINK
    return 0.0, value


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
        slope_norm = norm(model.gradient)
        goal, taken = self.tol * slope_norm, 0
        for iteration in range(self.max_iter):
            if slope_norm <= goal or slope_norm == 0:
                return Solution(x, float(model.value), Status.CONVERGED, iteration, taken)
            # The last step need not be solved further than the stop asks for.
            tol = max(min(self.cg_tol, 0.5 * goal / slope_norm), 1e-12)
            found = conjugate_gradient(
                model.hessp,
                -model.gradient,
                tol=tol,
                max_iter=self.cg_iter,
                blocks=blocks,
                precondition=preconditioner(model.kronecker, x.dtype) if self.precondition else None,
            )
            taken += found.n_products
            slope = float(inner(model.gradient, found.x))
            following = _descend(objective, x, model, found.x, slope) if slope < 0 else None
            if following is None:
                return Solution(x, float(model.value), Status.STALLED, iteration, taken)
            x, model = following
            slope_norm = norm(model.gradient)
        status = Status.CONVERGED if slope_norm <= goal else Status.MAX_ITER
        return Solution(x, float(model.value), status, self.max_iter, taken)

    def with_few_products(self, steps: int, products: int) -> NewtonCG:
        """Return a solver that takes at most so many steps of so many products."""
        return NewtonCG(self.tol, steps, self.cg_tol, products, self.joint, self.precondition)


def _descend(
    objective: Objective, x: Array, model: Model, direction: Array, slope: float
) -> tuple[Array, Model] | None:
    """Go the whole step where that descends enough, else part of it; None where no part does.

    The model at the end of the whole step is nearly always wanted, and holds the value that decides.
    """
    whole, value = x + direction, float(model.value)
    trial, slack = objective.model(whole), ROUNDING * abs(value)
    if enough(float(trial.value), value, slope, 1.0, slack):
        return whole, trial
    step, _ = backtrack(objective.along(x, direction), value, slope, step=SHRINK, slack=slack)
    if step == 0:
        return None
    x = x + step * direction
    return x, objective.model(x)
