"""The interfaces of objectives and solvers, and alternation between two factors."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, NamedTuple, Protocol

from labelgap.kernels import Backend, inner

Array = Any
Scalar = Any  # a float, or a 0-d float64 array on the device


class GramSpectrum(Protocol):
    """AᵀA = V diag(values) Vᵀ, thin: V spans the row space of A."""

    @property
    def values(self) -> Array:
        """The eigenvalues, of shape (r, 1), or a number if all are equal."""

    @property
    def complete(self) -> bool:
        """Whether V spans the whole space."""

    def rotate(self, R: Array) -> Array:
        """Return Vᵀ R."""

    def restore(self, Z: Array) -> Array:
        """Return V Z."""


class GramSketch(Protocol):
    """An approximation of AᵀA by few directions, for preconditioners."""

    def invert(self, m: Array, ridge: float) -> Callable[[Array], Array]:
        """Return R ↦ about (m_c AᵀA + ridge)⁻¹ r_c for each column c; m has shape (1, k)."""


class LinearMap(Protocol):
    """A matrix A with its products."""

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows and of columns."""

    @property
    def is_identity(self) -> bool:
        """Whether A = I."""

    def times(self, W: Array) -> Array:
        """Return A W."""

    def t_times(self, B: Array) -> Array:
        """Return Aᵀ B."""

    @property
    def coarse(self) -> LinearMap:
        """The same matrix for steps of conjugate gradients: its products may round their arguments."""

    def spectrum(self) -> GramSpectrum | None:
        """Return the eigenvectors of AᵀA, or None if they would cost more than they save."""

    def sketch(self) -> GramSketch | None:
        """Return an approximation of AᵀA, or None if it would cost more than it saves."""

    def column_squares(self) -> Array:
        """Return the squared norm of each column of A, shape (d, 1)."""


@dataclass
class Kronecker:
    """A Hessian of the form W ↦ Aᵀ diag(weights) A W M + ridge · W, W d×k and M k×k; exact or approximate.

    ``weights`` and ``ridge`` are numbers; if A is the identity, they may be arrays of shape (rows, 1). A term without
    data has only the ridge.
    """

    ridge: Array | float = 0.0
    features: LinearMap | None = None
    M: Array = None
    weights: Array = 1.0
    exact: bool = True


class CellHessians(NamedTuple):
    """Σ over the stored cells j of row i of c_ij h_j h_jᵀ, a k×k matrix for each row; c has the curvatures."""

    kernels: Backend
    cells: Any
    curvature: Array
    H: Array


@dataclass(frozen=True)
class RowHessians:
    """Exact Hessians of independent rows: weights_i M + ridge_i I + the sums of ``cells``.

    ``weights`` and ``ridge`` are numbers or arrays of shape (rows, 1). ``constant`` says that they are the same at
    every point, as those of a quadratic.

    >>> (RowHessians(ridge=1.0) + RowHessians(ridge=2.0, constant=False)).ridge
    3.0
    """

    ridge: Array | float = 0.0
    M: Array = None
    weights: Array | float = 1.0
    cells: tuple[CellHessians, ...] = ()
    constant: bool = True

    def __add__(self, other: RowHessians | None) -> RowHessians | None:
        """Return the sum; None if the other one is not known, or if both have their own M."""
        if other is None or (self.M is not None and other.M is not None):
            return None
        M, weights = (self.M, self.weights) if other.M is None else (other.M, other.weights)
        constant = self.constant and other.constant
        return RowHessians(self.ridge + other.ridge, M, weights, self.cells + other.cells, constant)


class Model(NamedTuple):
    """The second-order model of an objective at one point: f, ∇f, v ↦ ∇²f v, and forms of the Hessian.

    ``kronecker`` is a form that may be approximate; ``rows`` is exact, for objectives whose rows are independent.
    """

    value: Scalar
    gradient: Array
    hessp: Callable[[Array], Array]
    kronecker: Kronecker | None = None
    rows: RowHessians | None = None


class Objective(Protocol):
    """A smooth function f of one matrix."""

    @property
    def separable(self) -> bool:
        """Whether the Hessian is block-diagonal, with a block for each row."""

    def value(self, W: Array) -> Scalar:
        """Return f(W)."""

    def model(self, W: Array) -> Model:
        """Return f, ∇f and the Hessian product at W."""

    def along(self, W: Array, S: Array) -> Callable[[float], Scalar]:
        """Return t ↦ f(W + t S), which makes further values of t as cheap as the objective allows."""


class Status(Enum):
    """Why a solver stopped."""

    CONVERGED = "converged"
    MAX_ITER = "max_iter"
    STALLED = "stalled"
    STOPPED = "stopped"


@dataclass
class Solution:
    """The result of a solver and its cost."""

    x: Array
    value: float
    status: Status
    n_iter: int
    n_products: int


class Solver(Protocol):
    """A method that minimises an objective from a start."""

    def minimize(self, objective: Objective, start: Array) -> Solution:
        """Return the minimiser."""

    def limit_products(self, steps: int, products: int) -> Solver:
        """Return the same solver with at most ``steps`` steps of at most ``products`` Hessian products."""


def norm(a: Array) -> float:
    """Return ‖a‖ as a float.

    >>> import numpy as np
    >>> norm(np.array([[3.0, 4.0]]))
    5.0
    """
    return float(inner(a, a)) ** 0.5


MAX_RISE = 1e-4  # of F, relative, that rounding of float32 factors can cause where F is small beside its terms


class BilinearProblem(Protocol):
    """A function F of two factors, as an objective in either of them."""

    def objective_in_left(self, H: Array) -> Objective:
        """Return F(·, H), an objective in W."""

    def objective_in_right(self, W: Array) -> Objective:
        """Return F(W, ·), an objective in H."""

    def balance(self, W: Array, H: Array) -> tuple[Array, Array, float]:
        """Return factors with the same product and the least penalty, and the decrease of F."""


@dataclass
class Fit:
    """The factors of a fit, F after each alternation, and its status.

    ``step`` is the last step of W and its length, for a solver that goes on from it. ``interrupt`` is the
    KeyboardInterrupt that ended the fit; callers raise it again after storing the factors.
    """

    W: Array
    H: Array
    history: list[float] = field(default_factory=list)
    step: tuple[Array, float] | None = None
    status: Status = Status.MAX_ITER
    interrupt: KeyboardInterrupt | None = None

    @property
    def n_iter(self) -> int:
        """The number of alternations."""
        return len(self.history)


def alternate(
    problem: BilinearProblem,
    fit: Fit,
    left: Solver,
    right: Solver,
    *,
    max_iter: int,
    tol: float,
    stop: Callable[[Fit], bool] | None = None,
) -> Fit:
    """Minimise F over W, then over H, until an alternation lowers F by at most ``tol`` of itself.

    ``fit`` is updated in place after each complete alternation, so that an interrupted run keeps the last good pair.
    An alternation that raises F beyond rounding is undone and ends the run as stalled; one that makes F infinite or
    NaN raises FloatingPointError. ``stop(fit)`` is called after each alternation; True ends the run. A run that
    starts from the ``fit`` of a stopped one continues it. A ``left`` with a method ``alternate_once``, such as
    :class:`~labelgap.solvers.rounds.Rounds`, does both halves of an alternation.
    """
    alternate_once = getattr(left, "alternate_once", None) or partial(solve_in_turn, left)
    while fit.n_iter < max_iter and not _has_converged(fit.history, tol):
        W, H, value = alternate_once(problem, fit, right)
        previous = fit.history[-1] if fit.history else math.inf
        if not math.isfinite(value):
            raise FloatingPointError(f"the objective became {value}")
        if value > previous + MAX_RISE * abs(previous):
            fit.status = Status.STALLED
            return fit
        fit.W, fit.H = W, H
        fit.history.append(value)
        if stop is not None and stop(fit):
            fit.status = Status.STOPPED
            return fit
    if _has_converged(fit.history, tol):
        fit.status = Status.CONVERGED
    return fit


def solve_in_turn(left: Solver, problem: BilinearProblem, fit: Fit, right: Solver) -> tuple[Array, Array, float]:
    """Return W and H after a half step each, balanced, and F."""
    W = left.minimize(problem.objective_in_left(fit.H), fit.W).x
    objective = problem.objective_in_right(W)
    H = right.minimize(objective, fit.H).x
    value = objective.value(H)  # the solver's running value loses precision
    W, H, gain = problem.balance(W, H)
    return W, H, float(value) - gain


def _has_converged(history: list[float], tol: float) -> bool:
    """Return whether the last alternation lowered F by at most ``tol`` of it.

    >>> _has_converged([2.0, 1.0], 0.1), _has_converged([2.0, 1.9], 0.1), _has_converged([2.0], 0.1)
    (False, True, False)
    """
    return len(history) > 1 and history[-2] - history[-1] <= tol * abs(history[-2])
