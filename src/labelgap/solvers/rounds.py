"""Rounds of one step in W and a solved H: the alternation for features whose products are the main cost."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from labelgap.kernels import Backend, column_grams, combine, copy, eigh, matmul, mix, namespace
from labelgap.kernels.base import LostArrays
from labelgap.solvers.base import (
    Array,
    BilinearProblem,
    Fit,
    LinearMap,
    Model,
    Objective,
    Solution,
    Solver,
    Status,
    solve_in_turn,
)
from labelgap.solvers.linear_systems import precondition_columns

MAX_ROUNDS = 3
MAX_RIGHT_PRODUCTS = 6  # of the one Newton step in H, which W changes again
MIN_DECREASE = 1e-5  # of F, relative, by a round: after less an alternation ends
MAX_OFF_DIAGONAL = 1e-3  # of a curvature that counts as diagonal, relative to its trace
MIN_DETERMINANT = 1e-6  # of a plane, relative: directions that are more alike count as one
FIRST_LENGTH, MIN_LENGTH, MAX_LENGTH = 1.4, 1.3, 6.0  # of a step, in units of its length for a fixed H
MIN_INEXACT_LENGTH = 0.1
MAX_RETREATS, MIN_SHARE = 5, 0.1  # of a step, and of F's decrease that its slope promises
VALUE_ROUNDING = 8  # of F, in units of the precision of the factors


class ImageObjective(Objective, Protocol):
    """An objective whose value may cost a pass that a quadratic step does not need."""

    def expand(self, B: Array) -> Model:
        """Return the model, perhaps with NaN for its value."""


class RidgeObjective(Objective, Protocol):
    """½ Σ_i α_i ‖w_i‖²."""

    @property
    def alpha(self) -> Array:
        """A number, or a column with one for each row."""


class ComposedProblem(BilinearProblem, Protocol):
    """A problem in W that depends on the image A W and a penalty, and whose factors can be mixed."""

    @property
    def backend(self) -> Backend:
        """The backend of the arrays."""

    @property
    def left(self) -> LinearMap:
        """The features A of the rows."""

    def zero_image(self, W: Array) -> Array:
        """Return A W for a W of 0."""

    def objective_in_image(self, H: Array) -> ImageObjective:
        """Return F(·, H) without the penalty of W, an objective in B = A W."""

    def left_penalty(self) -> RidgeObjective:
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
        """Return the point of W T; overwrites this one."""
        return _Position(*(None if part is None else mix(part, T) for part in self))

    def move(self, length: float) -> _Position:
        """Return the point at W + length · S; overwrites this one."""
        assert self.S is not None
        return self._replace(W=combine(self.W, 1.0, self.S, length), B=combine(self.B, 1.0, self.XS, length))


class _Line(NamedTuple):
    """F along a step S, with H solved: F(0), −⟨∇F, S⟩, and whether S minimises F exactly for a fixed H."""

    value: float
    slope: float
    exact: bool

    def find_minimum(self, length: float, decrease: float) -> float:
        """Return the length of the least F on the parabola that falls by ``decrease`` at a length.

        >>> _Line(1.0, 2.0, True).find_minimum(1.0, 1.0), _Line(1.0, 2.0, True).find_minimum(1.0, 1.5)
        (1.0, 2.0)
        """
        curvature = 2 * (length * self.slope - decrease)
        return length**2 * self.slope / curvature if curvature > 0 else MAX_LENGTH


@dataclass
class Rounds:
    """An alternation of up to ``max_rounds`` rounds. A round steps in W, which takes one product with A and one with
    Aᵀ, and solves for H.

    The step is the minimum of F(·, H) in the plane of the preconditioned gradient and the last step, each column with
    its own two lengths: conjugate gradients whose quadratic changes with H. Columns are independent where H has
    orthogonal columns, which balancing ensures, and where the curvature of all rows is alike; else approximately. A
    few rounds reach what exact half steps reach, since W never waits for an exact solution to an H that changes.

    With H solved after each step, F bends less along a step S than for a fixed H. If a step of length t lowers F by
    D, then F falls by about t g − t² c/2 with g = −⟨∇F, S⟩ and c = 2 (t g − D) / t², and the next step has the length
    g/c, which is 1 for a fixed H. A step that hardly lowers F or raises it is shortened.

    Parameters
    ----------
    solver : Solver
        The solver of H, and of every objective in one factor alone.
    max_rounds : int
        Rounds of one alternation; it ends earlier after a round that hardly lowers F.
    """

    solver: Solver
    max_rounds: int = MAX_ROUNDS
    _point: _Position | None = field(default=None, init=False, repr=False, compare=False)
    _length: float = field(default=FIRST_LENGTH, init=False, repr=False, compare=False)

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
        if self._point is None and fit.step is not None:  # the fit of another process goes on
            (S, self._length), fit.step = fit.step, None
            self._point = _Position(fit.W, None, S)  # without images, which would take memory
        if not problem.backend.loses_arrays:
            return self._alternate(problem, fit, right)
        last = self._point, self._length
        try:
            return self._alternate(problem, fit, right)
        except LostArrays:  # the same alternation can run again
            self._point, self._length = last
            raise

    def _alternate(self, problem: ComposedProblem, fit: Fit, right: Solver) -> tuple[Array, Array, float]:
        point, H = self._continue_from(problem, fit), fit.H
        right = right.limit_products(1, MAX_RIGHT_PRODUCTS)
        value = fit.history[-1] if fit.history else float(problem.objective_in_right(point.W, point.B).value(H))
        for number in range(self.max_rounds):
            before = value
            point, H, line = _find_step(problem, point, H, value)
            point, objective, solution = self._take_step(problem, point, H, line, right)
            H, value = solution.x, solution.value
            last = number == self.max_rounds - 1 or before - value <= MIN_DECREASE * abs(value)
            if last:
                value = float(objective.value(H))  # the solver's running value loses precision
            del objective
            balance = problem.find_balance(point.W, H)
            if balance is not None:
                T, U, gain = balance
                point, H, value = point.mix(T), matmul(H, namespace(H).astype(U, H.dtype)), value - gain
            if last:
                break
        # Without images, a cluster does not compute a step from all steps before it.
        self._point = point._replace(B=None, XS=None) if problem.backend.loses_arrays else point
        fit.step = None if point.S is None else (point.S, self._length)
        return point.W, H, value

    def _continue_from(self, problem: ComposedProblem, fit: Fit) -> _Position:
        """Return the last point with a copy of W, which a fit keeps; or a new point."""
        W = fit.W
        point, self._point, fit.step, left = self._point, None, None, problem.left
        if point is not None and point.W is W:
            S = point.S
            if problem.backend.loses_arrays:
                S = None if S is None else copy(S)  # which the same alternation may need again
                return _Position(copy(W), left.times(W), S, None if S is None else left.times(S))
            S, XS = point.S, point.XS
            if XS is None and S is not None:
                XS = left.times(S)
            del point  # and its image, which rounding has moved away from A W
            return _Position(copy(W), left.times(W), S, XS)
        B = problem.left.times(W) if bool(namespace(W).any(W != 0)) else problem.zero_image(W)
        return _Position(copy(W), B)

    def _take_step(
        self, problem: ComposedProblem, point: _Position, H: Array, line: _Line, right: Solver
    ) -> tuple[_Position, Objective, Solution]:
        """Return the point after its step, F(W, ·) there, and its solution.

        A step that hardly lowers F or raises it is shortened.
        """
        slack = VALUE_ROUNDING * float(namespace(H).finfo(H.dtype).eps) * abs(line.value)
        length = self._length
        point = point.move(length)
        for retreat in range(MAX_RETREATS + 1):
            objective = problem.objective_in_right(point.W, point.B)
            solution = Solution(H, line.value, Status.STALLED, 0, 0)  # the steps of W and H are rounding errors
            if length > 0:
                solution = right.minimize(objective, H)
            decrease = line.value - solution.value
            best = line.find_minimum(length, decrease)
            if decrease >= MIN_SHARE * min(length, 1.0) * line.slope - slack or length == 0:
                break
            shorter = min(max(best, length / 8), length / 2) if retreat < MAX_RETREATS - 1 else 0.0
            point, length = point.move(shorter - length), shorter
        self._length = min(max(best, MIN_LENGTH if line.exact else MIN_INEXACT_LENGTH), MAX_LENGTH)
        point = point._replace(S=problem.backend.compact(point.S), XS=problem.backend.compact(point.XS))
        return point, objective, solution


def _find_step(problem: ComposedProblem, point: _Position, H: Array, value: float) -> tuple[_Position, Array, _Line]:
    """Return the point with its step in the plane, H in the same basis, and F along the step.

    Overwrites the point.
    """
    model = problem.objective_in_image(H).expand(point.B)
    form, gradient = model.kronecker, model.gradient
    assert form is not None
    M, Q = _diagonalize(form.M)
    if Q is not None:
        point, H, gradient = point.mix(Q), matmul(H, namespace(H).astype(Q, H.dtype)), mix(gradient, Q)
    alpha = problem.left_penalty().alpha
    m, ridge = M * _mean(form.weights) + _mean(form.ridge), float(_mean(alpha))
    gradient = combine(problem.left.coarse.t_times(gradient), 1.0, point.W, 1.0, alpha)
    del model
    Z = precondition_columns(problem.left, m, ridge, gradient.dtype)(gradient)
    (S, XS), slope = _minimize_in_plane(
        gradient, (Z, problem.left.times(Z)), (point.S, point.XS), _ColumnForm(m, ridge)
    )
    return point._replace(S=S, XS=XS), H, _Line(value, slope, form.exact)


def _is_array(values: Array) -> bool:
    return bool(getattr(values, "shape", ()))


def _mean(values: Array) -> Array:
    return namespace(values).mean(values) if _is_array(values) else values


def _diagonalize(M: Array) -> tuple[Array, Array | None]:
    """Return the eigenvalues of M, (1, k) and float64, and its eigenvectors, or None if M is diagonal already."""
    xp = namespace(M)
    M = xp.astype(M, xp.float64)
    diagonal = xp.linalg.diagonal(M)
    if not math.isfinite(float(xp.sum(diagonal))):
        raise FloatingPointError("the squares of the factors became infinite")
    off = xp.sum(M * M) - xp.sum(diagonal * diagonal)
    if bool(off <= MAX_OFF_DIAGONAL**2 * xp.sum(diagonal) ** 2):
        return diagonal[None, :], None
    values, Q = eigh(M)
    return values[None, :], Q


Curves = list[list[Array]]


class _ColumnForm(NamedTuple):
    """The quadratic form of each column of (P, A P): m_c ‖A p_c‖² + ridge ‖p_c‖²."""

    m: Array
    ridge: float

    def expand(self, gradient: Array, directions: list[Array], images: list[Array]) -> tuple[list[Array], Curves]:
        """Return ⟨g_c, p_c⟩ and the form of all pairs of directions, (1, k) and float64."""
        dots, squares = column_grams(gradient, *directions), column_grams(*images)
        pairs = range(len(images))
        curves = [[self.ridge * dots[a + 1][b + 1] + self.m * squares[a][b] for b in pairs] for a in pairs]
        return [dots[0][a + 1] for a in pairs], curves


def _minimize_in_plane(
    gradient: Array, new: tuple[Array, Array], old: tuple[Array | None, Array | None], form: _ColumnForm
) -> tuple[tuple[Array, Array], float]:
    """Return the step S' = a∘Z + b∘S, its image, and −⟨∇F, S'⟩, with the a and b that minimise the quadratic model.

    Overwrites Z and its image.
    """
    (Z, XZ), (S, XS) = new, old
    if S is None or XS is None:
        (gz,), ((zz,),) = form.expand(gradient, [Z], [XZ])
        a = _divide(-gz, zz)
        return (_scale(Z, a), _scale(XZ, a)), -float(namespace(gz).sum(a * gz))
    (gz, gs), ((zz, zs), (_, ss)) = form.expand(gradient, [Z, S], [XZ, XS])
    determinant = zz * ss - zs * zs
    xp = namespace(gz)
    flat = determinant <= MIN_DETERMINANT * zz * ss
    a = xp.where(flat, _divide(-gz, zz), _divide(gs * zs - gz * ss, determinant))
    b = xp.where(flat, 0.0 * a, _divide(gz * zs - gs * zz, determinant))
    return (combine(Z, a, S, b), combine(XZ, a, XS, b)), -float(xp.sum(a * gz + b * gs))


def _divide(numerator: Array, denominator: Array) -> Array:
    xp = namespace(numerator)
    positive = denominator > 0
    return xp.where(positive, numerator / xp.where(positive, denominator, 1.0), 0.0)


def _scale(P: Array, lengths: Array) -> Array:
    P *= namespace(lengths).astype(lengths, P.dtype)
    return P
