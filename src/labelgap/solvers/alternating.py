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
class Alternation:
    """The factors so far, F after each alternation, and how it ended."""

    W: Array
    H: Array
    history: list[float] = field(default_factory=list)
    status: Status = Status.MAX_ITER

    @property
    def n_iter(self) -> int:
        """The number of alternations made."""
        return len(self.history)


def alternate(
    problem: Bilinear,
    state: Alternation,
    left: Solver,
    right: Solver,
    *,
    max_iter: int,
    tol: float,
    stop: Callable[[Alternation], bool] | None = None,
) -> Alternation:
    """Minimise F over W, then over H, until F falls by less than ``tol`` of itself.

    ``state`` is updated in place after each whole alternation, so that an interrupted run keeps the last good pair.
    An alternation that raises F beyond rounding is undone and ends the run as stalled; one that makes it infinite or
    NaN is an error. ``stop(state)`` is asked after each; True ends the run. A state that was kept on the way goes on
    as if it had not been stopped.
    """
    while state.n_iter < max_iter and not _has_settled(state.history, tol):
        W = left.minimize(problem.given_right(state.H), state.W).x
        objective = problem.given_left(W)
        H = right.minimize(objective, state.H).x
        # Anew, since a solver's own account may have lost its digits on the way from a far larger value.
        value, previous = objective.value(H), state.history[-1] if state.history else math.inf
        W, H, gain = problem.balance(W, H)
        value -= gain
        if not math.isfinite(value):
            raise FloatingPointError(f"the objective became {value}")
        if value > previous + ROUNDING * abs(previous):
            state.status = Status.STALLED
            return state
        state.W, state.H = W, H
        state.history.append(value)
        if stop is not None and stop(state):
            state.status = Status.STOPPED
            return state
    if _has_settled(state.history, tol):
        state.status = Status.CONVERGED
    return state


def _has_settled(history: list[float], tol: float) -> bool:
    """Tell whether the last alternation lowered F by no more than a share of it.

    >>> _has_settled([2.0, 1.0], 0.1), _has_settled([2.0, 1.9], 0.1), _has_settled([2.0], 0.1)
    (False, True, False)
    """
    return len(history) > 1 and history[-2] - history[-1] <= tol * abs(history[-2])
