"""Trust-region Newton with truncated conjugate gradients (Lin, Weng and Keerthi 2008), LIBLINEAR's constants."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from labelgap.solvers.base import Array, Model, Objective, Solution, Status, inner

ACCEPT, POOR, GOOD = 1e-4, 0.25, 0.75  # η₀, η₁, η₂
SHRINK_MOST, SHRINK, GROW = 0.25, 0.5, 4.0  # σ₁, σ₂, σ₃
ROUNDING = 1e-12


@dataclass
class TRON:
    """Stops when ‖∇f‖ ≤ tol · ‖∇f(start)‖.

    The model change of a step s with residual r = −∇f − ∇²f s is q(s) = ½ (⟨∇f, s⟩ − ⟨s, r⟩), negative for descent.
    """

    tol: float = 1e-2
    max_iter: int = 100
    cg_tol: float = 1e-1  # ξ
    cg_iter: int = 100

    def minimize(self, objective: Objective, start: Array) -> Solution:
        """Return the minimiser found from ``start``."""
        x, model = start, objective.model(start)
        norm = inner(model.gradient, model.gradient) ** 0.5
        goal, radius, taken = self.tol * norm, norm, 0
        first, rejected = True, 0
        for iteration in range(self.max_iter):
            if norm <= goal or norm == 0:
                return Solution(x, model.value, Status.CONVERGED, iteration, taken)
            step, residual, products = self._truncated_cg(model, norm, radius)
            taken += products
            slope = inner(model.gradient, step)
            predicted = 0.5 * (slope - inner(step, residual))
            length = inner(step, step) ** 0.5
            value = objective.value(x + step)
            actual = value - model.value
            radius = min(radius, length) if first else radius
            first = False
            radius = _next_radius(radius, length, actual, predicted, slope)
            slack = ROUNDING * abs(model.value)
            if actual <= ACCEPT * predicted + slack and predicted < 0:
                x, rejected = x + step, 0
                model = objective.model(x)
                norm = inner(model.gradient, model.gradient) ** 0.5
            else:
                rejected += 1
            if rejected > 10 or abs(predicted) <= slack:
                status = Status.CONVERGED if norm <= goal else Status.STALLED
                return Solution(x, model.value, status, iteration + 1, taken)
        status = Status.CONVERGED if norm <= goal else Status.MAX_ITER
        return Solution(x, model.value, status, self.max_iter, taken)

    def _truncated_cg(self, model: Model, norm: float, radius: float) -> tuple[Array, Array, int]:
        """Minimise the model within the radius; return the step, the residual and the number of products."""
        step = np.zeros_like(model.gradient)
        residual = -model.gradient
        direction = residual.copy()
        rr, stop = norm**2, (self.cg_tol * norm) ** 2
        products = 0
        while rr > stop and products < self.cg_iter:
            image = model.hessp(direction)
            products += 1
            curvature = inner(direction, image)
            alpha = rr / curvature if curvature > 0 else np.inf
            reach = _to_boundary(step, direction, radius)
            if alpha >= reach:
                alpha = reach
            step += step.dtype.type(alpha) * direction
            residual = residual - step.dtype.type(alpha) * image
            if alpha == reach:
                break
            previous, rr = rr, inner(residual, residual)
            direction *= step.dtype.type(rr / previous)
            direction += residual
        return step, residual, products


def _to_boundary(step: Array, direction: Array, radius: float) -> float:
    """Return the τ ≥ 0 with ‖step + τ direction‖ = radius."""
    ss, sd, dd = inner(step, step), inner(step, direction), inner(direction, direction)
    room = max(radius**2 - ss, 0.0)
    root = (sd * sd + dd * room) ** 0.5
    return room / (sd + root) if sd >= 0 else (root - sd) / dd


def _next_radius(radius: float, length: float, actual: float, predicted: float, slope: float) -> float:
    bend = actual - slope
    scale = max(SHRINK_MOST, -0.5 * slope / bend) if bend > 0 else GROW
    if actual > ACCEPT * predicted:
        return min(max(scale, SHRINK_MOST) * length, SHRINK * radius)
    if actual > POOR * predicted:
        return max(SHRINK_MOST * radius, min(scale * length, SHRINK * radius))
    if actual > GOOD * predicted:
        return max(SHRINK_MOST * radius, min(scale * length, GROW * radius))
    return max(radius, min(scale * length, GROW * radius))
