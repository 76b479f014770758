"""Alternating minimisation over the two factors of a bilinear problem."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from labelgap.solvers.base import Array, Objective, Solver, Status

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
