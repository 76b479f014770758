"""What a solver asks of an objective and what it gives back, and alternation between two factors."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, Protocol

from labelgap.kernels import namespace

Array = Any
Scalar = Any  # a float, or a 0-d float64 array that is still on the device


class Spectrum(Protocol):
    """AᵀA = V diag(values) Vᵀ, thin: V spans the row space of A."""

    @property
    def values(self) -> Array:
        """The eigenvalues, of shape (r, 1), or a number where all of them are the same."""

    @property
    def complete(self) -> bool:
        """Whether V spans everything."""

    def rotate(self, R: Array) -> Array:
        """Vᵀ R."""

    def restore(self, Z: Array) -> Array:
        """V Z."""


class LinearMap(Protocol):
    """A matrix A that is known by its products."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""

    @property
    def is_identity(self) -> bool:
        """Whether A = I."""

    def times(self, W: Array) -> Array:
        """A W."""

    def t_times(self, B: Array) -> Array:
        """Aᵀ B."""

    def spectrum(self) -> Spectrum | None:
        """The eigenvectors of AᵀA, or None where they would cost more than they save."""

    def column_squares(self) -> Array:
        """The squared norm of each column of A, shape (d, 1)."""


@dataclass
class Kronecker:
    """A Hessian of the form W ↦ Aᵀ diag(weights) A W M + ridge · W, W d×k and M k×k; exact, or near the true one.

    ``weights`` and ``ridge`` are numbers, or arrays of shape (rows, 1) where A is the identity. A term without data
    has only the ridge.
    """

    ridge: Array | float = 0.0
    features: LinearMap | None = None
    M: Array = None
    weights: Array = 1.0
    exact: bool = True


class Model(NamedTuple):
    """The second-order model of an objective at one point: f, ∇f, v ↦ ∇²f v, and the Hessian's Kronecker form."""

    value: Scalar
    gradient: Array
    hessp: Callable[[Array], Array]
    kronecker: Kronecker | None = None


class Objective(Protocol):
    """A smooth function of one matrix."""

    @property
    def separable(self) -> bool:
        """Whether the Hessian has a block for each row and nothing between them."""

    def value(self, W: Array) -> Scalar:
        """f(W)."""

    def model(self, W: Array) -> Model:
        """f, ∇f and the Hessian product at W."""

    def along(self, W: Array, S: Array) -> Callable[[float], Scalar]:
        """t ↦ f(W + t S), as cheap for each further t as the objective allows."""


class Status(Enum):
    """How a solve ended."""

    CONVERGED = "converged"
    MAX_ITER = "max_iter"
    STALLED = "stalled"
    STOPPED = "stopped"


@dataclass
class Solution:
    """Where a solve ended and what it took."""

    x: Array
    value: float
    status: Status
    n_iter: int
    n_products: int


class Solver(Protocol):
    """Minimises an objective from a start."""

    def minimize(self, objective: Objective, start: Array) -> Solution:
        """Return the minimiser found."""

    def with_few_products(self, steps: int, products: int) -> Solver:
        """Return the same solver with at most so many steps, and so many products in each."""


def inner(a: Array, b: Array) -> Scalar:
    """⟨a, b⟩, summed in float64 so that long float32 arrays keep their digits.

    It stays on the device of the arrays; ``float`` reads it where a decision needs it.

    >>> import numpy as np
    >>> float(inner(np.ones((2, 3)), np.full((2, 3), 2.0)))
    12.0
    """
    xp = namespace(a)
    return xp.sum(a * b, dtype=xp.float64)


def norm(a: Array) -> float:
    """‖a‖, read from the device.

    >>> import numpy as np
    >>> norm(np.array([[3.0, 4.0]]))
    5.0
    """
    return float(inner(a, a)) ** 0.5


ROUNDING = 1e-5  # of float32 factors, in an objective that is summed in float64


class Bilinear(Protocol):
    """A function of two factors, given as a function of either while the other is held."""

    def given_right(self, H: Array) -> Objective:
        """F(·, H)."""

    def given_left(self, W: Array) -> Objective:
        """F(W, ·)."""

    def balance(self, W: Array, H: Array) -> tuple[Array, Array, float]:
        """Return factors with the same product and the least penalty, and how much F falls by it."""


@dataclass
class Fit:
    """The factors of a fit, F after each alternation, and how it ended.

    ``interrupt`` is the Ctrl-C that ended it, to be raised again once the factors are stored.
    """

    W: Array
    H: Array
    history: list[float] = field(default_factory=list)
    status: Status = Status.MAX_ITER
    interrupt: KeyboardInterrupt | None = None

    @property
    def n_iter(self) -> int:
        """The number of alternations made."""
        return len(self.history)


def alternate(
    problem: Bilinear,
    fit: Fit,
    left: Solver,
    right: Solver,
    *,
    max_iter: int,
    tol: float,
    stop: Callable[[Fit], bool] | None = None,
) -> Fit:
    """Minimise F over W, then over H, until F falls by less than ``tol`` of itself.

    ``fit`` is updated in place after each whole alternation, so that an interrupted run keeps the last good pair.
    An alternation that raises F beyond rounding is undone and ends the run as stalled; one that makes it infinite or
    NaN is an error. ``stop(fit)`` is asked after each; True ends the run. A fit that was kept on the way goes on as
    if it had not been stopped.
    """
    while fit.n_iter < max_iter and not _has_settled(fit.history, tol):
        W = left.minimize(problem.given_right(fit.H), fit.W).x
        objective = problem.given_left(W)
        H = right.minimize(objective, fit.H).x
        # Evaluated again: the solver's own running value loses precision on the way from a far larger one.
        value, previous = objective.value(H), fit.history[-1] if fit.history else math.inf
        W, H, gain = problem.balance(W, H)
        value = float(value) - gain
        if not math.isfinite(value):
            raise FloatingPointError(f"the objective became {value}")
        if value > previous + ROUNDING * abs(previous):
            fit.status = Status.STALLED
            return fit
        fit.W, fit.H = W, H
        fit.history.append(value)
        if stop is not None and stop(fit):
            fit.status = Status.STOPPED
            return fit
    if _has_settled(fit.history, tol):
        fit.status = Status.CONVERGED
    return fit


def _has_settled(history: list[float], tol: float) -> bool:
    """Tell whether the last alternation lowered F by no more than a share of it.

    >>> _has_settled([2.0, 1.0], 0.1), _has_settled([2.0, 1.9], 0.1), _has_settled([2.0], 0.1)
    (False, True, False)
    """
    return len(history) > 1 and history[-2] - history[-1] <= tol * abs(history[-2])
