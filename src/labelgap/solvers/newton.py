"""Solvers for any smooth objective: Newton with conjugate gradients, its trust-region form, and gradient descent."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from labelgap.kernels import copy, namespace
from labelgap.solvers.base import Array, Model, Objective, RowHessians, Scalar, Solution, Status, inner, norm
from labelgap.solvers.linear_systems import Blocks, CGResult, conjugate_gradient, make_preconditioner, solve_rows

VALUE_ROUNDING = 1e-12  # relative
MIN_DECREASE, BACKTRACK_FACTOR = 1e-4, 0.5


def is_sufficient_decrease(trial: float, value: float, slope: float, step: float, slack: float = 0.0) -> bool:
    """Return whether f(step) ≤ f(0) + 10⁻⁴ · step · slope + slack."""
    return trial <= value + MIN_DECREASE * step * slope + slack


def backtrack(
    value_along: Callable[[float], Scalar],
    value: float,
    slope: float,
    *,
    step: float = 1.0,
    max_halvings: int = 30,
    slack: float = 0.0,
) -> tuple[float, float]:
    """Halve ``step`` until f(step) ≤ f(0) + 10⁻⁴ · step · slope + slack; return the step and f(step).

    ``slope`` is the directional derivative at 0 and must be negative; ``slack`` is the rounding error of f. A step of
    0 means that no step was short enough.

    >>> backtrack(lambda t: (1 - 4 * t) ** 2, value=1.0, slope=-8.0)
    (0.25, 0.0)
    """
    for _ in range(max_halvings):
        trial = float(value_along(step))
        if is_sufficient_decrease(trial, value, slope, step, slack):
            return step, trial
        step *= BACKTRACK_FACTOR
    return 0.0, value


@dataclass
class NewtonCG:
    """Newton's method: conjugate gradients to a relative residual ``cg_tol``, then backtracking.

    Stops when ‖∇f‖ ≤ tol · ‖∇f(start)‖. On a quadratic it is conjugate gradients. If the objective is separable,
    every row has its own step lengths in conjugate gradients, unless ``joint`` selects the published form. The
    Hessian's Kronecker form, exact or approximate, is the preconditioner.
    """

    tol: float = 5e-2
    max_iter: int = 20
    cg_tol: float = 1e-1
    cg_iter: int = 50
    joint: bool = False
    precondition: bool = True

    def minimize(self, objective: Objective, start: Array) -> Solution:
        """Return the minimiser, from ``start``."""
        blocks: Blocks = "rows" if objective.separable and not self.joint else "joint"
        x, model = start, objective.model(start)
        slope_norm = norm(model.gradient)
        goal, n_products = self.tol * slope_norm, 0
        for iteration in range(self.max_iter):
            if slope_norm <= goal or slope_norm == 0:
                return Solution(x, float(model.value), Status.CONVERGED, iteration, n_products)
            direction = self._find_direction(model, blocks, goal / slope_norm)
            n_products += direction.n_products
            slope = float(inner(model.gradient, direction.x))
            if direction.converged and slope < 0 and self._get_row_systems(model, blocks) is not None:
                value = model.value + 0.5 * (slope - inner(direction.x, direction.residual))
                return Solution(x + direction.x, float(value), Status.CONVERGED, iteration + 1, n_products)
            descended = _descend(objective, x, model, direction.x, slope) if slope < 0 else None
            if descended is None:
                return Solution(x, float(model.value), Status.STALLED, iteration, n_products)
            x, model = descended
            slope_norm = norm(model.gradient)
        status = Status.CONVERGED if slope_norm <= goal else Status.MAX_ITER
        return Solution(x, float(model.value), status, self.max_iter, n_products)

    def _find_direction(self, model: Model, blocks: Blocks, goal: float) -> CGResult:
        """Return the Newton step; ``goal`` is the gradient at which to stop, relative to the one here."""
        form, systems = model.kronecker, self._get_row_systems(model, blocks)
        if systems is not None and form is not None:
            return solve_rows(systems, form.M, -model.gradient, max(goal, 1e-12), self.cg_iter)
        return conjugate_gradient(
            model.hessp,
            -model.gradient,
            # The last step needs no more accuracy than the stopping rule.
            tol=max(min(self.cg_tol, 0.5 * goal), 1e-12),
            max_iter=self.cg_iter,
            blocks=blocks,
            precondition=make_preconditioner(form, model.gradient.dtype) if self.precondition else None,
        )

    def _get_row_systems(self, model: Model, blocks: Blocks) -> RowHessians | None:
        """Return the Hessians of rows that are independent quadratics over cells: one step is then all it takes."""
        rows = model.rows if blocks == "rows" and self.precondition else None
        return rows if rows is not None and rows.constant and rows.cells else None

    def limit_products(self, steps: int, products: int) -> NewtonCG:
        """Return a solver with at most ``steps`` steps of at most ``products`` products."""
        return NewtonCG(self.tol, steps, self.cg_tol, products, self.joint, self.precondition)


def _descend(
    objective: Objective, x: Array, model: Model, direction: Array, slope: float
) -> tuple[Array, Model] | None:
    """Return the point of a sufficient decrease and the model there; None if there is no such point.

    The full step comes first, with its model: nearly always it is accepted and the model is needed next.
    """
    end, value = x + direction, float(model.value)
    trial, slack = objective.model(end), VALUE_ROUNDING * abs(value)
    if is_sufficient_decrease(float(trial.value), value, slope, 1.0, slack):
        return end, trial
    step, _ = backtrack(objective.along(x, direction), value, slope, step=BACKTRACK_FACTOR, slack=slack)
    if step == 0:
        return None
    x = x + step * direction
    return x, objective.model(x)


# --- trust region ---------------------------------------------------------------------------------------------------

MIN_ACCEPTED_RATIO, POOR_RATIO, GOOD_RATIO = 1e-4, 0.25, 0.75  # η₀, η₁, η₂
MAX_SHRINK, SHRINK, GROW = 0.25, 0.5, 4.0  # σ₁, σ₂, σ₃
MAX_REJECTED_STEPS = 10


@dataclass
class TRON:
    """Trust-region Newton with truncated conjugate gradients (Lin, Weng and Keerthi 2008), LIBLINEAR's constants.

    Stops when ‖∇f‖ ≤ tol · ‖∇f(start)‖.

    The model change of a step s with residual r = −∇f − ∇²f s is q(s) = ½ (⟨∇f, s⟩ − ⟨s, r⟩), negative for descent.
    Lengths are measured in the norm of the preconditioner P, ‖s‖² = ⟨s, P s⟩: the Hessian's Kronecker form, if the
    objective has one.
    """

    tol: float = 1e-2
    max_iter: int = 100
    cg_tol: float = 1e-1  # ξ
    cg_iter: int = 100
    precondition: bool = True

    def minimize(self, objective: Objective, start: Array) -> Solution:
        """Return the minimiser, from ``start``."""
        x, model = start, objective.model(start)
        length, value = norm(model.gradient), float(model.value)
        goal, radius, n_products, rejected = self.tol * length, math.inf, 0, 0
        for iteration in range(self.max_iter):
            if length <= goal or length == 0:
                return Solution(x, value, Status.CONVERGED, iteration, n_products)
            step = self._find_step(model, length, radius)
            n_products += step.n_products
            actual, slack = float(objective.value(x + step.s)) - value, VALUE_ROUNDING * abs(value)
            radius = min(radius, step.length) if iteration == 0 else radius
            radius = _update_radius(radius, step.length, actual, step.predicted, step.slope)
            if actual <= MIN_ACCEPTED_RATIO * step.predicted + slack and step.predicted < 0:
                x, rejected = x + step.s, 0
                model = objective.model(x)
                length, value = norm(model.gradient), float(model.value)
            else:
                rejected += 1
            if abs(step.predicted) <= slack:  # further steps are at rounding level
                return Solution(x, value, Status.CONVERGED, iteration + 1, n_products)
            if rejected > MAX_REJECTED_STEPS:
                return Solution(x, value, Status.STALLED, iteration + 1, n_products)
        status = Status.CONVERGED if length <= goal else Status.MAX_ITER
        return Solution(x, value, status, self.max_iter, n_products)

    def limit_products(self, steps: int, products: int) -> TRON:
        """Return a solver with at most ``products`` steps."""
        return TRON(self.tol, products, self.cg_tol, self.cg_iter, self.precondition)

    def _find_step(self, model: Model, length: float, radius: float) -> _TrustRegionStep:
        """Minimise the model within the radius by truncated conjugate gradients; the first radius is ‖P⁻¹∇f‖_P.

        Recurrences give ⟨s, P s⟩, ⟨s, P d⟩ and ⟨d, P d⟩, so that P itself is never applied.
        """
        xp = namespace(model.gradient)
        preconditioner = make_preconditioner(model.kronecker, model.gradient.dtype) if self.precondition else None
        apply = preconditioner or copy
        s, residual = xp.zeros_like(model.gradient), -model.gradient
        z = apply(residual)
        rz = float(inner(residual, z))
        if not rz > 0:  # rounding has made the preconditioner indefinite
            apply, z = copy, residual
            rz = float(inner(residual, z))
        direction = copy(z)
        radius = rz**0.5 if radius == math.inf else radius
        ss, sd, dd, products = 0.0, 0.0, rz, 0
        while norm(residual) > self.cg_tol * length and products < self.cg_iter:
            image = model.hessp(direction)
            products += 1
            curvature = float(inner(direction, image))
            reach = _distance_to_boundary(ss, sd, dd, radius)
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
        return _TrustRegionStep(s, max(ss, 0.0) ** 0.5, slope, 0.5 * (slope - float(inner(s, residual))), products)


class _TrustRegionStep(NamedTuple):
    """A trial step, its length, ⟨∇f, s⟩, the change of the model, and the number of products."""

    s: Array
    length: float
    slope: float
    predicted: float
    n_products: int


def _distance_to_boundary(ss: float, sd: float, dd: float, radius: float) -> float:
    """Return the τ ≥ 0 with ‖s + τ d‖ = radius."""
    room = max(radius**2 - ss, 0.0)
    root = (sd * sd + dd * room) ** 0.5
    return room / (sd + root) if sd >= 0 else (root - sd) / dd


def _update_radius(radius: float, length: float, actual: float, predicted: float, slope: float) -> float:
    curvature = actual - slope
    scale = max(MAX_SHRINK, -0.5 * slope / curvature) if curvature > 0 else GROW
    if actual > MIN_ACCEPTED_RATIO * predicted:
        return min(max(scale, MAX_SHRINK) * length, SHRINK * radius)
    if actual > POOR_RATIO * predicted:
        return max(MAX_SHRINK * radius, min(scale * length, SHRINK * radius))
    if actual > GOOD_RATIO * predicted:
        return max(MAX_SHRINK * radius, min(scale * length, GROW * radius))
    return max(radius, min(scale * length, GROW * radius))


# --- gradient descent -----------------------------------------------------------------------------------------------


@dataclass
class GradientDescent:
    """Gradient descent with backtracking (002, Algorithm 6); stops when ‖∇f‖ ≤ tol · ‖∇f(start)‖.

    :meth:`Objective.along` evaluates the line, so that a further trial costs one pass over the positives. The first
    trial of a step is ⟨s, s⟩ / ⟨s, y⟩ for the last step s and its change y of the gradient (Barzilai and Borwein
    1988); the very first is the minimum of the second-order model.
    """

    tol: float = 1e-2
    max_iter: int = 200

    def minimize(self, objective: Objective, start: Array) -> Solution:
        """Return the minimiser, from ``start``."""
        x, model = start, objective.model(start)
        square, trial = float(inner(model.gradient, model.gradient)), None
        goal = self.tol * square**0.5
        for iteration in range(self.max_iter):
            if square**0.5 <= goal or square == 0:
                return Solution(x, float(model.value), Status.CONVERGED, iteration, iteration)
            first = trial or _compute_newton_step(model, square)
            line, value = objective.along(x, -model.gradient), float(model.value)
            step, _ = backtrack(line, value, -square, step=first, slack=VALUE_ROUNDING * abs(value))
            if step == 0:
                return Solution(x, float(model.value), Status.STALLED, iteration, iteration)
            change = -step * model.gradient
            x, previous = x + change, model
            model = objective.model(x)
            square = float(inner(model.gradient, model.gradient))
            curvature = float(inner(change, model.gradient - previous.gradient))
            trial = float(inner(change, change)) / curvature if curvature > 0 else None
        status = Status.CONVERGED if square**0.5 <= goal else Status.MAX_ITER
        return Solution(x, float(model.value), status, self.max_iter, self.max_iter)

    def limit_products(self, steps: int, products: int) -> GradientDescent:
        """Return a solver with at most ``products`` steps of one product each."""
        return GradientDescent(self.tol, products)


def _compute_newton_step(model: Model, square: float) -> float:
    curvature = float(inner(model.gradient, model.hessp(model.gradient)))
    return square / curvature if curvature > 0 else 1.0
