"""Trust-region Newton with truncated conjugate gradients (Lin, Weng and Keerthi 2008), LIBLINEAR's constants."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from labelgap.kernels import namespace
from labelgap.solvers.base import Array, Model, Objective, Solution, Status, inner, norm
from labelgap.solvers.kronecker import preconditioner

ACCEPT, POOR, GOOD = 1e-4, 0.25, 0.75  # η₀, η₁, η₂
SHRINK_MOST, SHRINK, GROW = 0.25, 0.5, 4.0  # σ₁, σ₂, σ₃
ROUNDING = 1e-12
MOST_REJECTED = 10


@dataclass
class TRON:
    """Stops when ‖∇f‖ ≤ tol · ‖∇f(start)‖.

    The model change of a step s with residual r = −∇f − ∇²f s is q(s) = ½ (⟨∇f, s⟩ − ⟨s, r⟩), negative for descent.
    Lengths are measured in the norm of the preconditioner P, ‖s‖² = ⟨s, P s⟩: the Hessian's Kronecker form, where the
    objective offers one.
    """

    tol: float = 1e-2
    max_iter: int = 100
    cg_tol: float = 1e-1  # ξ
    cg_iter: int = 100
    precondition: bool = True

    def minimize(self, objective: Objective, start: Array) -> Solution:
        """Return the minimiser found from ``start``."""
        x, model = start, objective.model(start)
        length, value = norm(model.gradient), float(model.value)
        goal, radius, taken, rejected = self.tol * length, math.inf, 0, 0
        for iteration in range(self.max_iter):
            if length <= goal or length == 0:
                return Solution(x, value, Status.CONVERGED, iteration, taken)
            step = self._step(model, length, radius)
            taken += step.n_products
            actual, slack = float(objective.value(x + step.s)) - value, ROUNDING * abs(value)
            radius = min(radius, step.length) if iteration == 0 else radius
            radius = _next_radius(radius, step.length, actual, step.predicted, step.slope)
            if actual <= ACCEPT * step.predicted + slack and step.predicted < 0:
                x, rejected = x + step.s, 0
                model = objective.model(x)
                length, value = norm(model.gradient), float(model.value)
            else:
                rejected += 1
            if abs(step.predicted) <= slack:  # no step can be told from rounding any more
                return Solution(x, value, Status.CONVERGED, iteration + 1, taken)
            if rejected > MOST_REJECTED:
                return Solution(x, value, Status.STALLED, iteration + 1, taken)
        status = Status.CONVERGED if length <= goal else Status.MAX_ITER
        return Solution(x, value, status, self.max_iter, taken)

    def with_few_products(self, steps: int, products: int) -> TRON:
        """Return a solver that takes at most ``products`` steps."""
        return TRON(self.tol, products, self.cg_tol, self.cg_iter, self.precondition)

    def _step(self, model: Model, length: float, radius: float) -> _Step:
        """Minimise the model within the radius by truncated conjugate gradients; the first radius is ‖P⁻¹∇f‖_P.

        ⟨s, P s⟩, ⟨s, P d⟩ and ⟨d, P d⟩ follow from recurrences, so P itself is never applied.
        """
        xp = namespace(model.gradient)
        apply = (preconditioner(model.kronecker, model.gradient.dtype) if self.precondition else None) or xp.positive
        s, residual = xp.zeros_like(model.gradient), -model.gradient
        z = apply(residual)
        rz = float(inner(residual, z))
        if not rz > 0:  # rounding made the preconditioner useless here
            apply, z = xp.positive, residual
            rz = float(inner(residual, z))
        direction = xp.positive(z)
        radius = rz**0.5 if radius == math.inf else radius
        ss, sd, dd, products = 0.0, 0.0, rz, 0
        while norm(residual) > self.cg_tol * length and products < self.cg_iter:
            image = model.hessp(direction)
            products += 1
            curvature = float(inner(direction, image))
            reach = _to_boundary(ss, sd, dd, radius)
            alpha = min(rz / curvature, reach) if curvature > 0 else reach
            s += alpha * direction
            residual -= alpha * image
            ss += 2 * alpha * sd + alpha**2 * dd
            if alpha == reach:
                break
            z = apply(residual)
            previous, rz = rz, max(float(inner(residual, z)), 0.0)
            if rz == 0:
                break
            beta = rz / previous
            direction *= beta
            direction += z
            sd, dd = beta * (sd + alpha * dd), rz + beta**2 * dd
        slope = float(inner(model.gradient, s))
        return _Step(s, max(ss, 0.0) ** 0.5, slope, 0.5 * (slope - float(inner(s, residual))), products)


class _Step(NamedTuple):
    """A trial step, its length, ⟨∇f, s⟩, the change that the model predicts, and the products it took."""

    s: Array
    length: float
    slope: float
    predicted: float
    n_products: int


def _to_boundary(ss: float, sd: float, dd: float, radius: float) -> float:
    """Return the τ ≥ 0 with ‖s + τ d‖ = radius."""
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
