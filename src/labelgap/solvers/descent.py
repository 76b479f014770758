"""Gradient descent with backtracking along lines that are cheap to evaluate."""

from __future__ import annotations

from dataclasses import dataclass

from labelgap.solvers.base import Array, Model, Objective, Solution, Status, inner
from labelgap.solvers.newton import backtrack

ROUNDING = 1e-12


@dataclass
class GradientDescent:
    """Steps along −∇f, halved until f falls enough (002, Algorithm 6); stops when ‖∇f‖ ≤ tol · ‖∇f(start)‖.

    A line is evaluated through :meth:`Objective.along`, so that a further trial costs a pass over the positives. The
    first trial of a step is the curvature that the last step saw, ⟨s, s⟩ / ⟨s, y⟩ for a change y of the gradient
    (Barzilai and Borwein 1988); that of the very first is the minimum of the second-order model.
    """

    tol: float = 1e-2
    max_iter: int = 200

    def minimize(self, objective: Objective, start: Array) -> Solution:
        """Return the minimiser found from ``start``."""
        x, model = start, objective.model(start)
        square, trial = _square(model), None
        goal = self.tol * square**0.5
        for iteration in range(self.max_iter):
            if square**0.5 <= goal or square == 0:
                return Solution(x, float(model.value), Status.CONVERGED, iteration, iteration)
            first = trial or _newton_length(model, square)
            line, value = objective.along(x, -model.gradient), float(model.value)
            step, _ = backtrack(line, value, -square, step=first, slack=ROUNDING * abs(value))
            if step == 0:
                return Solution(x, float(model.value), Status.STALLED, iteration, iteration)
            change = -step * model.gradient
            x, previous = x + change, model
            model = objective.model(x)
            square = _square(model)
            bend = float(inner(change, model.gradient - previous.gradient))
            trial = float(inner(change, change)) / bend if bend > 0 else None
        status = Status.CONVERGED if square**0.5 <= goal else Status.MAX_ITER
        return Solution(x, float(model.value), status, self.max_iter, self.max_iter)

    def with_few_products(self, steps: int, products: int) -> GradientDescent:
        """Return a solver that takes at most ``products`` steps, each of one product."""
        return GradientDescent(self.tol, products)


def _square(model: Model) -> float:
    return float(inner(model.gradient, model.gradient))


def _newton_length(model: Model, square: float) -> float:
    curvature = float(inner(model.gradient, model.hessp(model.gradient)))
    return square / curvature if curvature > 0 else 1.0
