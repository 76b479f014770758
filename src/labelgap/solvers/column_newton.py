"""Newton's method for many small problems, one for each column of a matrix, that share their products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from labelgap.kernels import copy, namespace, read
from labelgap.solvers.base import Array
from labelgap.solvers.linear_systems import conjugate_gradient

MIN_DECREASE_SHARE = 1e-4
MIN_STEP = 1e-8


class ColumnModel(NamedTuple):
    """The second-order model of each column at one point: ∇f, v ↦ ∇²f v, and about the diagonal of ∇²f, all d×m."""

    gradient: Array
    hessp: Callable[[Array], Array]
    diagonal: Array


class ColumnObjectives(Protocol):
    """f_j(w_j), j = 1 … m: smooth functions of the columns of W (d×m), through scores that are linear in W."""

    def scores(self, W: Array) -> Array:
        """Return the scores, with a column for each column of W."""

    def values(self, W: Array, scores: Array) -> Array:
        """Return f_j, a NumPy array of float64."""

    def model(self, W: Array, scores: Array) -> ColumnModel:
        """Return the second-order models."""

    def select(self, columns: Array) -> ColumnObjectives:
        """Return the problems of some columns."""


class ColumnSolution(NamedTuple):
    """The minimiser of each column, its number of Newton steps, and whether it converged."""

    x: Array
    n_iter: Array
    converged: Array


class _ActiveColumns(NamedTuple):
    """The columns that have not converged: their positions, problems and points."""

    positions: Array
    problem: ColumnObjectives
    x: Array
    scores: Array
    values: Array

    def take(self, columns: Array) -> _ActiveColumns:
        return _ActiveColumns(
            self.positions[columns],
            self.problem.select(columns),
            self.x[:, columns],
            self.scores[:, columns],
            self.values[columns],
        )


@dataclass
class ColumnNewton:
    """Solver of f_j(w) + Σ_k l1_k |w_k| for every column j.

    Newton steps by conjugate gradients with a step length for each column, then backtracking. A weight stays 0 while
    its derivative is at most its l1; other weights keep their sign within a step and stop at 0 when they reach it
    (the orthant-wise method of Andrew and Gao 2007, with Newton's directions). A column converges when its steepest
    descent is at most its entry of ``goals``, or when further progress is below rounding; then it costs nothing.

    Weights and scores stay on their device; each product reads a flag from it, each step a few numbers per column.
    """

    max_iter: int = 100
    cg_tol: float = 0.1
    cg_iter: int = 200

    def minimize(
        self, problem: ColumnObjectives, start: Array, goals: Array, l1: Array | float = 0.0
    ) -> ColumnSolution:
        """Return the minimisers, d×m, from a start; ``l1`` is 0, or a number for each row, d×1."""
        m = start.shape[1]
        solution = ColumnSolution(copy(start), np.full(m, self.max_iter), np.zeros(m, bool))
        scores = problem.scores(start)
        state = _ActiveColumns(
            np.arange(m), problem, start, scores, problem.values(start, scores) + _penalty(start, l1)
        )
        for iteration in range(self.max_iter + 1):
            model = state.problem.model(state.x, state.scores)
            downhill = _steepest_descent(model.gradient, state.x, l1)
            active = _norms(downhill) > goals[state.positions]
            if not active.all():
                _finish(solution, state.take(np.flatnonzero(~active)), iteration)
                state = state.take(np.flatnonzero(active))
                if len(state.positions) == 0:
                    return solution
                model = state.problem.model(state.x, state.scores)
                downhill = downhill[:, np.flatnonzero(active)]
            if iteration == self.max_iter:
                break
            state, stuck = _descend(state, downhill, self._direction(model, state.x, downhill, l1), l1)
            if len(stuck.positions):
                _finish(solution, stuck, iteration)
            if len(state.positions) == 0:
                return solution
        solution.x[:, state.positions] = state.x
        return solution

    def _direction(self, model: ColumnModel, x: Array, downhill: Array, l1: Array | float) -> Array:
        """Return a Newton direction in the free weights that does not oppose their steepest descent."""
        xp = namespace(x)
        free: Array = xp.astype((x != 0) | (downhill != 0), x.dtype) if np.ndim(l1) else 1.0
        inverse = free / xp.clip(model.diagonal, float(xp.finfo(x.dtype).smallest_normal))
        direction = conjugate_gradient(
            lambda v: free * model.hessp(v),
            downhill,
            tol=self.cg_tol,
            max_iter=self.cg_iter,
            blocks="columns",
            precondition=lambda r: r * inverse,
        ).x
        if np.ndim(l1):
            direction[(x == 0) & (direction * downhill < 0)] = 0
        return direction


def _descend(
    state: _ActiveColumns, downhill: Array, direction: Array, l1: Array | float
) -> tuple[_ActiveColumns, _ActiveColumns]:
    """Backtrack along the directions; return the columns that moved, and those that cannot."""
    x, scores, values, xp = copy(state.x), copy(state.scores), state.values.copy(), namespace(state.x)
    stuck: list[Array] = []
    pending, length = np.arange(len(state.positions)), 1.0
    signs: Array = xp.where(state.x != 0, xp.sign(state.x), xp.sign(downhill)) if np.ndim(l1) else None
    while len(pending) and length >= MIN_STEP:
        part = state.problem if len(pending) == len(state.positions) else state.problem.select(pending)
        trial = state.x[:, pending] + length * direction[:, pending]
        if signs is not None:
            trial[trial * signs[:, pending] <= 0] = 0
        trial_scores = part.scores(trial)
        value = part.values(trial, trial_scores) + _penalty(trial, l1)
        predicted = _sum_columns(downhill[:, pending] * (trial - state.x[:, pending]))
        good = value <= state.values[pending] - MIN_DECREASE_SHARE * predicted
        hidden = predicted <= float(xp.finfo(x.dtype).eps) * np.abs(state.values[pending])
        stuck.append(pending[hidden])
        good &= ~hidden
        done, columns = pending[good], np.flatnonzero(good)
        x[:, done], scores[:, done], values[done] = trial[:, columns], trial_scores[:, columns], value[columns]
        pending, length = pending[~good & ~hidden], length / 2
    stopped = np.concatenate([*stuck, pending])
    moved = _ActiveColumns(state.positions, state.problem, x, scores, values)
    if len(stopped) == 0:
        return moved, moved.take(stopped)
    return moved.take(np.setdiff1d(np.arange(len(state.positions)), stopped)), moved.take(stopped)


def _finish(solution: ColumnSolution, state: _ActiveColumns, iteration: int) -> None:
    solution.x[:, state.positions] = state.x
    solution.n_iter[state.positions] = iteration
    solution.converged[state.positions] = True


def _steepest_descent(gradient: Array, x: Array, l1: Array | float) -> Array:
    """Return the steepest descent of f + l1 |w|, whose length is its slope.

    >>> gradient, x = np.array([[3.0], [-3.0], [-0.5], [0.5]]), np.array([[0.0], [1.0], [0.0], [-1.0]])
    >>> _steepest_descent(gradient, x, np.ones((4, 1))).ravel()
    array([-2. ,  2. ,  0. ,  0.5])
    """
    if not np.ndim(l1):
        return -gradient
    xp = namespace(x)
    at_zero = -xp.sign(gradient) * xp.clip(xp.abs(gradient) - l1, 0)
    return xp.where(x == 0, at_zero, -gradient - l1 * xp.sign(x))


def _penalty(x: Array, l1: Array | float) -> Array:
    return _sum_columns(l1 * namespace(x).abs(x)) if np.ndim(l1) else 0.0


def _norms(columns: Array) -> Array:
    return np.sqrt(_sum_columns(columns * columns))


def _sum_columns(values: Array) -> Array:
    """Return the sum of each column, on the host."""
    xp = namespace(values)
    return read(xp.sum(values, axis=0, dtype=xp.float64))
