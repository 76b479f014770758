"""Alternating minimisation over the two factors of a bilinear problem."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from labelgap.solvers.base import Array, Objective, Solver, Status


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
    ``stop(state)`` is asked after each; True ends the run.
    """
    for value in _alternations(problem, state, left, right, max_iter):
        previous = state.history[-1] if state.history else None
        state.history.append(value)
        if stop is not None and stop(state):
            state.status = Status.STOPPED
            break
        if previous is not None and previous - value <= tol * abs(previous):
            state.status = Status.CONVERGED
            break
    return state


def _alternations(
    problem: Bilinear, state: Alternation, left: Solver, right: Solver, max_iter: int
) -> Iterator[float]:
    for _ in range(max_iter):
        W = left.minimize(problem.given_right(state.H), state.W).x
        found = right.minimize(problem.given_left(W), state.H)
        W, H, gain = problem.balance(W, found.x)
        state.W, state.H = W, H
        yield found.value - gain
