"""Rounds of one step in W and a solved H: the alternation for features whose products are the main cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from labelgap.kernels import Backend, eigh, matmul, namespace
from labelgap.solvers.base import (
    Array,
    BilinearProblem,
    Fit,
    Kronecker,
    LinearMap,
    Model,
    Objective,
    Solution,
    Solver,
    inner,
    solve_in_turn,
)
from labelgap.solvers.linear_systems import precondition_columns
from labelgap.solvers.newton import VALUE_ROUNDING, backtrack

MAX_ROUNDS = 4
MAX_RIGHT_PRODUCTS = 6  # of the one Newton step in H, which W changes again
MIN_DECREASE = 1e-5  # of F, relative, by a round: after less an alternation ends
MAX_OFF_DIAGONAL = 1e-3  # of a curvature that counts as diagonal, relative to its trace
MIN_DETERMINANT = 1e-6  # of a plane, relative: directions that are more alike count as one


class ImageObjective(Objective, Protocol):
    """An objective whose value may cost a pass that a quadratic step does not need."""

    def expand(self, B: Array) -> Model:
        """Return the model, perhaps with NaN for its value."""


class ComposedProblem(BilinearProblem, Protocol):
    """A problem in W that depends on the image A W and a penalty, and whose factors can be mixed."""

    @property
    def backend(self) -> Backend:
        """The backend of the arrays."""

    @property
    def left(self) -> LinearMap:
        """The features A of the rows."""

    def objective_in_image(self, H: Array) -> ImageObjective:
        """Return F(·, H) without the penalty of W, an objective in B = A W."""

    def left_penalty(self) -> Objective:
        """Return the penalty of W."""

    def objective_in_right(self, W: Array, B: Array | None = None) -> Objective:
        """Return F(W, ·), an objective in H; B is A W, if it is known."""

    def find_balance(self, W: Array, H: Array) -> tuple[Array, Array, float] | None:
        """Return k×k matrices T and U, W T (H U)ᵀ = W Hᵀ with the least penalty, and the decrease of F, if any."""


class _Position(NamedTuple):
    """W, its image A W, and the last step of both, if there was one."""

    W: Array
    B: Array
    S: Array | None = None
    XS: Array | None = None

    def mix(self, T: Array) -> _Position:
        """Return the point of W T."""
        xp = namespace(T)
        return _Position(*(None if part is None else matmul(part, xp.astype(T, part.dtype)) for part in self))


@dataclass
class Rounds:
    """An alternation of up to ``max_rounds`` rounds. A round steps in W, which takes one product with A and one with
    Aᵀ, and solves for H.

    The step is the minimum of F(·, H) in the plane of the preconditioned gradient and the last step, each column with
    its own two lengths: conjugate gradients whose quadratic changes with H. Columns are independent where H has
    orthogonal columns, which balancing ensures. A few rounds reach what exact half steps reach, since W never waits
    for an exact solution to an H that changes.

    Parameters
    ----------
    solver : Solver
        The solver of H, and of every objective in one factor alone.
    max_rounds : int
        Rounds of one alternation; it ends earlier after a round that hardly lowers F.
    """

    solver: Solver
    max_rounds: int = MAX_ROUNDS

    def minimize(self, objective: Objective, start: Array) -> Solution:
        """Return the minimiser in one factor."""
        return self.solver.minimize(objective, start)

    def limit_products(self, steps: int, products: int) -> Solver:
        """Return the solver of one factor with limited products."""
        return self.solver.limit_products(steps, products)

    def alternate_once(self, problem: ComposedProblem, fit: Fit, right: Solver) -> tuple[Array, Array, float]:
        """Return W and H after some rounds, or two half steps if the features have eigenvectors, balanced; and F."""
        if problem.left.spectrum() is not None:
            return solve_in_turn(self.solver, problem, fit, right)
        point, H = _Position(fit.W, problem.left.times(fit.W)), fit.H
        right = right.limit_products(1, MAX_RIGHT_PRODUCTS)
        value = fit.history[-1] if fit.history else math.inf
        for number in range(self.max_rounds):
            before = value
            point, H = _step(problem, point, H)
            objective = problem.objective_in_right(point.W, point.B)
            solution = right.minimize(objective, H)
            H, value = solution.x, solution.value
            last = number == self.max_rounds - 1 or before - value <= MIN_DECREASE * abs(value)
            if last:
                value = float(objective.value(H))  # the solver's running value loses precision
            balance = problem.find_balance(point.W, H)
            if balance is not None:
                T, U, gain = balance
                point, H, value = point.mix(T), matmul(H, namespace(H).astype(U, H.dtype)), value - gain
            if last:
                break
        return point.W, H, value


def _step(problem: ComposedProblem, point: _Position, H: Array) -> tuple[_Position, Array]:
    """Return the point after a step in the plane, and H in the same basis."""
    data, penalty = problem.objective_in_image(H), problem.left_penalty()
    model = data.expand(point.B)
    rotation = _find_rotation(model.kronecker)
    if rotation is not None:
        point, H = point.mix(rotation), matmul(H, namespace(H).astype(rotation, H.dtype))
        data = problem.objective_in_image(H)
        model = data.expand(point.B)
    ridge = penalty.model(point.W)
    gradient = problem.left.coarse.t_times(model.gradient)
    gradient += ridge.gradient
    m, alpha = _get_curvature(model, ridge)
    Z = -precondition_columns(problem.left, m, alpha, gradient.dtype)(gradient)
    XZ = problem.left.coarse.times(Z)
    exact = _is_exact(model.kronecker, ridge.kronecker)
    if exact:
        S, XS = _minimize_in_plane(gradient, (Z, XZ), (point.S, point.XS), _ColumnForm(m, alpha))
    else:
        S, XS = _minimize_in_plane(gradient, (Z, XZ), (point.S, point.XS), _HessianForm(model, ridge))
        length = _search_line(data, penalty, point, (gradient, S, XS))
        S, XS = length * S, length * XS
    W, B = point.W + S, point.B + XS
    if exact:  # the next round needs few digits of this step
        S, XS = problem.backend.coarse(S), problem.backend.coarse(XS)
    return _Position(W, B, S, XS), H


def _get_curvature(model: Model, ridge: Model) -> tuple[Array, float]:
    """Return the curvature of each column, (1, k) and float64, and the ridge."""
    form = model.kronecker
    assert form is not None
    assert ridge.kronecker is not None
    xp = namespace(form.M)
    diagonal = xp.astype(xp.linalg.diagonal(form.M), xp.float64)[None, :]
    return diagonal * _mean(form.weights) + _mean(form.ridge), float(_mean(ridge.kronecker.ridge))


def _is_exact(data: Kronecker | None, penalty: Kronecker | None) -> bool:
    """Return whether the columns are independent quadratics with one weight and one ridge."""
    forms = [form for form in (data, penalty) if form is not None and form.exact]
    return len(forms) == 2 and not any(_is_array(v) for form in forms for v in (form.weights, form.ridge))


def _is_array(values: Array) -> bool:
    return bool(getattr(values, "shape", ()))


def _mean(values: Array) -> Array:
    return namespace(values).mean(values) if _is_array(values) else values


def _find_rotation(form: Kronecker | None) -> Array | None:
    """Return the eigenvectors of M, or None if M is diagonal already."""
    assert form is not None
    xp = namespace(form.M)
    M = xp.astype(form.M, xp.float64)
    diagonal = xp.linalg.diagonal(M)
    if not math.isfinite(float(xp.sum(diagonal))):
        raise FloatingPointError("the squares of the factors became infinite")
    off = xp.sum(M * M) - xp.sum(diagonal * diagonal)
    if bool(off <= MAX_OFF_DIAGONAL**2 * xp.sum(diagonal) ** 2):
        return None
    return eigh(M)[1]


class _ColumnForm(NamedTuple):
    """The quadratic form of each column of (P, A P): m_c ‖A p_c‖² + ridge ‖p_c‖²."""

    m: Array
    ridge: float

    def dot(self, P: Array, Q: Array) -> Array:
        """Return ⟨p_c, q_c⟩ of each column, (1, k), float64."""
        xp = namespace(P)
        return xp.sum(P * Q, axis=0, keepdims=True, dtype=xp.float64)

    def image(self, P: Array, XP: Array) -> tuple[Array, Array]:
        """Return what the form multiplies with another direction and its image."""
        return P, XP

    def curve(self, P: Array, XP: Array, image: tuple[Array, Array]) -> Array:
        """Return the form of two directions, from the image of one."""
        return self.ridge * self.dot(P, image[0]) + self.m * self.dot(XP, image[1])


class _HessianForm(NamedTuple):
    """The Hessian of all columns together, (1, 1)."""

    data: Model
    ridge: Model

    def dot(self, P: Array, Q: Array) -> Array:
        """Return ⟨P, Q⟩, (1, 1), float64."""
        return namespace(P).reshape(inner(P, Q), (1, 1))

    def image(self, P: Array, XP: Array) -> tuple[Array, Array]:
        """Return the Hessian products."""
        return self.ridge.hessp(P), self.data.hessp(XP)

    def curve(self, P: Array, XP: Array, image: tuple[Array, Array]) -> Array:
        """Return the form of two directions, from the image of one."""
        return self.dot(P, image[0]) + self.dot(XP, image[1])


def _minimize_in_plane(
    gradient: Array,
    new: tuple[Array, Array],
    old: tuple[Array | None, Array | None],
    form: _ColumnForm | _HessianForm,
) -> tuple[Array, Array]:
    """Return the step a∘Z + b∘S and its image, with the a and b that minimise the quadratic model."""
    (Z, XZ), (S, XS) = new, old
    image = form.image(Z, XZ)
    gz, zz = form.dot(gradient, Z), form.curve(Z, XZ, image)
    a = _divide(-gz, zz)
    if S is None or XS is None:
        return _scale(Z, a), _scale(XZ, a)
    gs, zs, ss = form.dot(gradient, S), form.curve(S, XS, image), form.curve(S, XS, form.image(S, XS))
    determinant = zz * ss - zs * zs
    xp = namespace(a)
    flat = determinant <= MIN_DETERMINANT * zz * ss
    a = xp.where(flat, a, _divide(gs * zs - gz * ss, determinant))
    b = xp.where(flat, 0.0 * a, _divide(gz * zs - gs * zz, determinant))
    step, image = _scale(Z, a), _scale(XZ, a)
    step += _scale(S, b)
    image += _scale(XS, b)
    return step, image


def _divide(numerator: Array, denominator: Array) -> Array:
    xp = namespace(numerator)
    positive = denominator > 0
    return xp.where(positive, numerator / xp.where(positive, denominator, 1.0), 0.0)


def _scale(P: Array, lengths: Array) -> Array:
    return P * namespace(lengths).astype(lengths, P.dtype)


def _search_line(
    data: Objective, penalty: Objective, point: _Position, direction: tuple[Array, Array, Array]
) -> float:
    """Return the length of a step, halved from 1 until F falls enough; 0 if it does not fall."""
    gradient, S, XS = direction
    slope = float(inner(gradient, S))
    if not slope < 0:
        return 0.0
    line, parabola = data.along(point.B, XS), penalty.along(point.W, S)

    def along(t: float) -> Array:
        return line(t) + parabola(t)

    value = float(along(0.0))
    return backtrack(along, value, slope, slack=VALUE_ROUNDING * abs(value))[0]
