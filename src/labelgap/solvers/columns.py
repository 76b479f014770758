"""Newton's method for many small problems at once, one a column, that share their products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from labelgap.solvers.base import Array
from labelgap.solvers.cg import conjugate_gradient

DESCENT = 1e-4
LEAST_STEP = 1e-8


class ColumnModel(NamedTuple):
    """The second-order model of each column at one point: ∇f, v ↦ ∇²f v, and a diagonal near that of ∇²f, all d×m."""

    gradient: Array
    hessp: Callable[[Array], Array]
    diagonal: Array


class Columns(Protocol):
    """f_j(w_j), j = 1 … m: smooth functions of the columns of W (d×m), through scores that are linear in W."""

    def scores(self, W: Array) -> Array:
        """What the functions see of W, a column for each of its own."""

    def values(self, W: Array, scores: Array) -> Array:
        """f_j, float64."""

    def model(self, W: Array, scores: Array) -> ColumnModel:
        """The second-order models."""

    def part(self, columns: Array) -> Columns:
        """The problems of these columns alone."""


class ColumnSolution(NamedTuple):
    """Where each column ended, the Newton steps it took, and whether that was its minimum."""

    x: Array
    n_iter: Array
    converged: Array


class _State(NamedTuple):
    """The columns that still move: their places, problems and points."""

    at: Array
    problem: Columns
    x: Array
    scores: Array
    values: Array

    def take(self, columns: Array) -> _State:
        return _State(
            self.at[columns],
            self.problem.part(columns),
            self.x[:, columns],
            self.scores[:, columns],
            self.values[columns],
        )


@dataclass
class ColumnNewton:
    """Minimises f_j(w) + Σ_k l1_k |w_k| for every column j.

    Newton steps by conjugate gradients with a step length for each column, then backtracking. A weight that is 0 and
    that its derivative does not move by more than its l1 is left there; the others have the sign with which they
    leave 0, and stop there when they come back (the orthant-wise method of Andrew and Gao 2007, with Newton's
    directions). A column ends when its steepest descent is no longer than its ``goals`` entry, or when rounding hides
    any further progress, which counts as its minimum; then it costs nothing any more.
    """

    max_iter: int = 100
    cg_tol: float = 0.1
    cg_iter: int = 200

    def minimize(self, problem: Columns, start: Array, goals: Array, l1: Array | float = 0.0) -> ColumnSolution:
        """Return the minimisers from a start, d×m; ``l1`` is a number, or one for each row, d×1."""
        m = start.shape[1]
        found = ColumnSolution(start.copy(), np.full(m, self.max_iter), np.zeros(m, bool))
        scores = problem.scores(start)
        state = _State(np.arange(m), problem, start, scores, problem.values(start, scores) + _size(start, l1))
        for iteration in range(self.max_iter + 1):
            model = state.problem.model(state.x, state.scores)
            downhill = _steepest(model.gradient, state.x, l1)
            live = _norms(downhill) > goals[state.at]
            if not live.all():
                _finish(found, state.take(np.flatnonzero(~live)), iteration)
                state = state.take(np.flatnonzero(live))
                if len(state.at) == 0:
                    return found
                model, downhill = state.problem.model(state.x, state.scores), downhill[:, live]
            if iteration == self.max_iter:
                break
            state, stuck = _descend(state, downhill, self._direction(model, state.x, downhill, l1), l1)
            if len(stuck.at):
                _finish(found, stuck, iteration)
            if len(state.at) == 0:
                return found
        found.x[:, state.at] = state.x
        return found

    def _direction(self, model: ColumnModel, x: Array, downhill: Array, l1: Array | float) -> Array:
        """Return a Newton direction among the weights that are free to move, towards where each of them goes."""
        if not np.any(l1):
            free: Array = x.dtype.type(1)
        else:
            free = ((x != 0) | (downhill != 0)).astype(x.dtype)
        inverse = free / np.maximum(model.diagonal, np.finfo(x.dtype).tiny)
        direction = conjugate_gradient(
            lambda v: free * model.hessp(v),
            downhill,
            tol=self.cg_tol,
            max_iter=self.cg_iter,
            blocks="columns",
            precondition=lambda r: r * inverse,
        ).x
        if np.any(l1):
            direction[(x == 0) & (direction * downhill < 0)] = 0
        return direction


def _descend(state: _State, downhill: Array, direction: Array, l1: Array | float) -> tuple[_State, _State]:
    """Go along the directions, halved until they lead down; return the columns that moved and those that cannot."""
    x, scores, values = state.x.copy(), state.scores.copy(), state.values.copy()
    stuck: list[Array] = []
    pending, length = np.arange(len(state.at)), 1.0
    signs: Array = np.where(state.x != 0, np.sign(state.x), np.sign(downhill)) if np.any(l1) else None
    while len(pending) and length >= LEAST_STEP:
        part = state.problem if len(pending) == len(state.at) else state.problem.part(pending)
        trial = state.x[:, pending] + x.dtype.type(length) * direction[:, pending]
        if signs is not None:
            trial[trial * signs[:, pending] <= 0] = 0
        there = part.scores(trial)
        value = part.values(trial, there) + _size(trial, l1)
        promised = (downhill[:, pending] * (trial - state.x[:, pending])).sum(0, dtype=float)
        good = value <= state.values[pending] - DESCENT * promised
        hidden = promised <= np.finfo(x.dtype).eps * np.abs(state.values[pending])
        stuck.append(pending[hidden])
        good &= ~hidden
        done = pending[good]
        x[:, done], scores[:, done], values[done] = trial[:, good], there[:, good], value[good]
        pending, length = pending[~good & ~hidden], length / 2
    stopped = np.concatenate([*stuck, pending])
    moved = _State(state.at, state.problem, x, scores, values)
    if len(stopped) == 0:
        return moved, moved.take(stopped)
    return moved.take(np.setdiff1d(np.arange(len(state.at)), stopped)), moved.take(stopped)


def _finish(found: ColumnSolution, state: _State, iteration: int) -> None:
    found.x[:, state.at] = state.x
    found.n_iter[state.at] = iteration
    found.converged[state.at] = True


def _steepest(gradient: Array, x: Array, l1: Array | float) -> Array:
    """Return the direction in which f + l1 |w| falls fastest, as long as its slope.

    >>> _steepest(np.array([[3.0], [-3.0], [-0.5], [0.5]]), np.array([[0.0], [1.0], [0.0], [-1.0]]), 1.0).ravel()
    array([-2. ,  2. ,  0. ,  0.5])
    """
    if not np.any(l1):
        return -gradient
    at_zero = -np.sign(gradient) * np.maximum(np.abs(gradient) - l1, 0)
    return np.where(x == 0, at_zero, -gradient - l1 * np.sign(x)).astype(x.dtype)


def _size(x: Array, l1: Array | float) -> Array:
    return (l1 * np.abs(x)).sum(0, dtype=float) if np.any(l1) else 0.0


def _norms(columns: Array) -> Array:
    return np.sqrt((columns * columns).sum(0, dtype=float))
