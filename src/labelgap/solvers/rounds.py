"""Rounds of one step in W and a solved H: the alternation for features whose products are the main cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from labelgap.kernels import Backend, column_grams, combine, copy, eigh, matmul, mix, namespace
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

MAX_ROUNDS = 3
MAX_RIGHT_PRODUCTS = 6  # of the one Newton step in H, which W changes again
MIN_DECREASE = 1e-5  # of F, relative, by a round: after less an alternation ends
MAX_OFF_DIAGONAL = 1e-3  # of a curvature that counts as diagonal, relative to its trace
MIN_DETERMINANT = 1e-6  # of a plane, relative: directions that are more alike count as one


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
        point, H = _Position(copy(fit.W), problem.left.times(fit.W)), fit.H
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
    """Return the point after a step in the plane, and H in the same basis; overwrites the point."""
    data, penalty = problem.objective_in_image(H), problem.left_penalty()
    model = data.expand(point.B)
    rotation = _find_rotation(model.kronecker)
    if rotation is not None:
        point, H = point.mix(rotation), matmul(H, namespace(H).astype(rotation, H.dtype))
        data = problem.objective_in_image(H)
        model = data.expand(point.B)
    gradient = combine(problem.left.coarse.t_times(model.gradient), 1.0, point.W, 1.0, penalty.alpha)
    m, ridge = _get_curvature(model), float(_mean(penalty.alpha))
    form: _ColumnForm | _HessianForm = _HessianForm(model, penalty.alpha)
    exact = _is_exact(model.kronecker, penalty.alpha)
    if exact:  # nothing else needs the arrays of the rows
        form = _ColumnForm(m, ridge)
        del data, model
    Z = precondition_columns(problem.left, m, ridge, gradient.dtype)(gradient)
    S, XS = _minimize_in_plane(gradient, (Z, problem.left.coarse.times(Z)), (point.S, point.XS), form)
    if not exact:
        length = _search_line(data, penalty, point, (gradient, S, XS))
        S *= length
        XS *= length
    W, B = combine(point.W, 1.0, S, 1.0), combine(point.B, 1.0, XS, 1.0)
    if exact:  # the next round needs few digits of this step
        S, XS = problem.backend.coarse(S), problem.backend.coarse(XS)
    return _Position(W, B, S, XS), H


def _get_curvature(model: Model) -> Array:
    """Return the curvature of each column, (1, k) and float64."""
    form = model.kronecker
    assert form is not None
    xp = namespace(form.M)
    diagonal = xp.astype(xp.linalg.diagonal(form.M), xp.float64)[None, :]
    return diagonal * _mean(form.weights) + _mean(form.ridge)


def _is_exact(form: Kronecker | None, alpha: Array) -> bool:
    """Return whether the columns are independent quadratics with one weight and one ridge."""
    return form is not None and form.exact and not any(map(_is_array, (form.weights, form.ridge, alpha)))


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


class _HessianForm(NamedTuple):
    """The Hessian of all columns together, (1, 1)."""

    data: Model
    alpha: Array

    def expand(self, gradient: Array, directions: list[Array], images: list[Array]) -> tuple[list[Array], Curves]:
        """Return ⟨G, P⟩ and the form of all pairs of directions, (1, 1) and float64."""
        curves: Curves = []
        for P, XP in zip(directions, images, strict=True):
            products = self.alpha * P, self.data.hessp(XP)
            pairs = zip(directions, images, strict=True)
            curves.append([_to_square(inner(Q, products[0]) + inner(XQ, products[1])) for Q, XQ in pairs])
        return [_to_square(inner(gradient, P)) for P in directions], curves


def _to_square(number: Array) -> Array:
    return namespace(number).reshape(number, (1, 1))


def _minimize_in_plane(
    gradient: Array,
    new: tuple[Array, Array],
    old: tuple[Array | None, Array | None],
    form: _ColumnForm | _HessianForm,
) -> tuple[Array, Array]:
    """Return the step a∘Z + b∘S and its image, the minimum of the quadratic model; overwrites the new ones."""
    (Z, XZ), (S, XS) = new, old
    if S is None or XS is None:
        (gz,), ((zz,),) = form.expand(gradient, [Z], [XZ])
        a = _divide(-gz, zz)
        return _scale(Z, a), _scale(XZ, a)
    (gz, gs), ((zz, zs), (_, ss)) = form.expand(gradient, [Z, S], [XZ, XS])
    determinant = zz * ss - zs * zs
    xp = namespace(gz)
    flat = determinant <= MIN_DETERMINANT * zz * ss
    a = xp.where(flat, _divide(-gz, zz), _divide(gs * zs - gz * ss, determinant))
    b = xp.where(flat, 0.0 * a, _divide(gz * zs - gs * zz, determinant))
    return combine(Z, a, S, b), combine(XZ, a, XS, b)


def _divide(numerator: Array, denominator: Array) -> Array:
    xp = namespace(numerator)
    positive = denominator > 0
    return xp.where(positive, numerator / xp.where(positive, denominator, 1.0), 0.0)


def _scale(P: Array, lengths: Array) -> Array:
    P *= namespace(lengths).astype(lengths, P.dtype)
    return P


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
