"""Fixed point continuation for f(Z, b) + μ P(Z): f smooth, P with a proximal operator, μ falling to its last value.

A step goes along −∇f and then applies the proximal operator of the penalty to Z (Ma, Goldfarb and Chen 2011; 003,
Algorithms 1 and 2). :class:`FixedPoint` takes such steps, :func:`follow_batch` in several problems at once, and
:class:`Accelerated` adds momentum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from labelgap.solvers.base import Array, Status

STEPS_PER_CHECK = 5  # accelerated steps whose total decrease is compared with the tolerance
MIN_PLAIN_DECREASE = 1e-3  # of the tolerance


class Point(NamedTuple):
    """A penalised matrix Z and an unpenalised vector b, which may be empty."""

    Z: Array
    b: Array


class Slope(NamedTuple):
    """f and its gradient in Z and in b; the solver may overwrite the gradient."""

    value: float
    Z: Array
    b: Array


class Steps(NamedTuple):
    """The step sizes of Z and of b."""

    Z: float
    b: float


class Smooth(Protocol):
    """A smooth f(Z, b) with the step sizes that its curvature allows."""

    def at(self, mu: float) -> Smooth:
        """Return the smooth part for this μ: f itself, or f with the part of the penalty that is smooth in b."""

    @property
    def steps(self) -> Steps:
        """Step sizes for which a fixed point iteration converges."""

    @property
    def short_steps(self) -> Steps:
        """Step sizes in whose norm f has a curvature of at most 1."""

    def value(self, point: Point) -> float:
        """Return f."""

    def model(self, point: Point) -> Slope:
        """Return f and its gradient."""


class Proximal(Protocol):
    """The minimiser x of ½ ‖x − point‖² + threshold · P(x)."""

    @property
    def x(self) -> Array:
        """x."""

    @property
    def value(self) -> float:
        """P(x)."""

    @property
    def rank(self) -> int:
        """The rank of x."""

    @property
    def error(self) -> float:
        """A bound of the error of P(x); 0 for an exact operator."""


class Penalty(Protocol):
    """A penalty P(Z) with a proximal operator."""

    def value(self, Z: Array) -> float:
        """Return P."""

    def prox(self, point: Array, threshold: float) -> Proximal:
        """Return the result of the proximal operator."""


@dataclass
class Stage:
    """A solution for one μ.

    The point, P and the rank there, the objective after each accepted step, the status and the number of steps.
    """

    mu: float
    point: Point
    penalty: float
    rank: int = 0
    history: list[float] = field(default_factory=list)
    status: Status = Status.MAX_ITER
    n_iter: int = 0

    @property
    def value(self) -> float:
        """f + μ P at the point."""
        return self.history[-1]

    def accept(self, point: Point, shrunk: Proximal, value: float) -> None:
        """Move to a point."""
        self.point, self.penalty, self.rank = point, shrunk.value, shrunk.rank
        self.history.append(value)


class ProximalMethod(Protocol):
    """A method that minimises f + μ P."""

    def minimize(self, smooth: Smooth, penalty: Penalty, stage: Stage) -> Stage:
        """Continue from the point of a stage with an empty history, and return the stage."""


def make_penalty_path(first: float, last: float, decay: float) -> list[float]:
    """Return the values of μ from decay · first by factors of ``decay`` down to ``last``, which is always included.

    >>> make_penalty_path(1.0, 0.1, 0.5)
    [0.5, 0.25, 0.125, 0.1]
    """
    mus, mu = [], decay * first
    while mu > last:
        mus.append(mu)
        mu *= decay
    return [*mus, last]


def follow_path(
    smooth: Smooth, penalty: Penalty, mus: Sequence[float], start: Point, method: ProximalMethod
) -> Iterator[Stage]:
    """Minimise for each μ in turn, from the solution for the previous one, and yield each stage."""
    point, value = start, penalty.value(start.Z)
    for mu in mus:
        stage = method.minimize(smooth, penalty, Stage(mu, point, value))
        point, value = stage.point, stage.penalty
        yield stage


def _step(penalty: Penalty, point: Point, slope: Slope, steps: Steps, mu: float) -> tuple[Point, Proximal]:
    """Take a gradient step and apply the proximal operator."""
    forward = slope.Z
    forward *= float(-steps.Z)
    forward += point.Z
    shrunk = penalty.prox(forward, steps.Z * mu)
    return Point(shrunk.x, point.b - float(steps.b) * slope.b), shrunk


class ProblemBatch(Protocol):
    """Problems f_i(Z, b) + μ_i P(Z) that take each fixed point step together.

    ``values``, ``penalties``, ``ranks`` and ``errors`` hold f, P, the rank of Z and the error of P at the current
    point of each problem.
    """

    values: Any
    penalties: Any
    ranks: Any
    errors: Any

    def step(self, mus: Sequence[float]) -> None:
        """Take one step in each problem, with the problem's own μ."""

    def point(self, position: int) -> Point:
        """Return the current point of a problem."""

    def select(self, positions: Sequence[int]) -> ProblemBatch:
        """Return a batch of these problems alone, at their current points."""


@dataclass
class _Path:
    """The progress of one problem of a batch: the position of its μ, its objective, and the values at this μ."""

    number: int
    objective: float
    place: int = 0
    history: list[float] = field(default_factory=list)


def follow_batch(batch: ProblemBatch, mus: Sequence[float], tol: float, max_iter: int) -> Iterator[tuple[int, Stage]]:
    """Yield (number of the problem, solution) for every problem and every μ, in the order in which they are reached.

    Every problem goes through all μ's, each from the solution for the one before. It leaves a μ when a step changes
    its objective by at most ``tol`` of it, or after ``max_iter`` steps. Problems do not influence each other.
    """
    starts = zip(batch.values, batch.penalties, strict=True)
    paths = [_Path(number, float(value + mus[0] * penalty)) for number, (value, penalty) in enumerate(starts)]
    while paths:
        batch.step([mus[path.place] for path in paths])
        for i, path in enumerate(paths):
            mu, value, penalty = mus[path.place], float(batch.values[i]), float(batch.penalties[i])
            previous, path.objective = path.objective, value + mu * penalty
            path.history.append(path.objective)
            converged = abs(previous - path.objective) + mu * batch.errors[i] <= tol * abs(previous)
            if not converged and len(path.history) < max_iter:
                continue
            status, n_iter = Status.CONVERGED if converged else Status.MAX_ITER, len(path.history)
            yield path.number, Stage(mu, batch.point(i), penalty, int(batch.ranks[i]), path.history, status, n_iter)
            path.place, path.history = path.place + 1, []
            if path.place < len(mus):
                path.objective = value + mus[path.place] * penalty
        active = [i for i, path in enumerate(paths) if path.place < len(mus)]
        if active and len(active) < len(paths):
            batch = batch.select(active)
        paths = [paths[i] for i in active]


class _SingleProblem:
    """A batch of one problem, of any f and P."""

    def __init__(self, smooth: Smooth, penalty: Penalty, start: Point, start_penalty: float) -> None:
        self.smooth, self.penalty, self._point, self._slope = smooth, penalty, start, smooth.model(start)
        self.values, self.penalties, self.ranks, self.errors = [self._slope.value], [start_penalty], [0], [0.0]

    def step(self, mus: Sequence[float]) -> None:
        self._point, shrunk = _step(self.penalty, self._point, self._slope, self.smooth.steps, mus[0])
        self._slope = self.smooth.model(self._point)
        self.values, self.penalties = [self._slope.value], [shrunk.value]
        self.ranks, self.errors = [shrunk.rank], [shrunk.error]

    def point(self, position: int) -> Point:
        return self._point

    def select(self, positions: Sequence[int]) -> _SingleProblem:
        return self


@dataclass
class FixedPoint:
    """Fixed point iteration, until a step changes the objective by at most ``tol`` of it.

    With the exact operator of P no step raises the objective. The error of an inexact operator, as in a splitting,
    must be below the same bound.
    """

    tol: float = 1e-5
    max_iter: int = 1000

    def minimize(self, smooth: Smooth, penalty: Penalty, stage: Stage) -> Stage:
        """Return the stage after its last step."""
        batch = _SingleProblem(smooth.at(stage.mu), penalty, stage.point, stage.penalty)
        ((_, solution),) = follow_batch(batch, [stage.mu], self.tol, self.max_iter)
        return solution


@dataclass
class Accelerated:
    """Steps with momentum (Beck and Teboulle 2009), restarted when the objective rises (O'Donoghue and Candès 2015).

    The objective never rises: a step that raises it is rejected, and the next step has no momentum. Stops when
    several steps together lower the objective by at most ``tol`` of it, since a single step may do so where momentum
    turns; or when a step without momentum lowers it by far less.
    """

    tol: float = 1e-5
    max_iter: int = 1000

    def minimize(self, smooth: Smooth, penalty: Penalty, stage: Stage) -> Stage:
        """Return the stage after its last step."""
        mu, smooth = stage.mu, smooth.at(stage.mu)
        ahead, weight = stage.point, 1.0
        values = [smooth.value(ahead) + mu * stage.penalty]
        for stage.n_iter in range(1, self.max_iter + 1):
            plain = ahead is stage.point
            point, shrunk = _step(penalty, ahead, smooth.model(ahead), smooth.short_steps, mu)
            value = smooth.value(point) + mu * shrunk.value
            if value <= values[-1]:
                ahead, weight = _extrapolate(stage.point, point, weight)
                stage.accept(point, shrunk, value)
            else:
                ahead, weight = stage.point, 1.0
            values.append(min(value, values[-1]))
            if self._has_converged(values, plain):
                stage.status = Status.CONVERGED
                break
        if not stage.history:
            stage.history.append(values[-1])
        return stage

    def _has_converged(self, values: list[float], plain: bool) -> bool:
        small = self.tol * abs(values[-1])
        if plain and values[-2] - values[-1] <= MIN_PLAIN_DECREASE * small:
            return True
        return len(values) > STEPS_PER_CHECK and values[-1 - STEPS_PER_CHECK] - values[-1] <= small


def _extrapolate(last: Point, current: Point, weight: float) -> tuple[Point, float]:
    """Return the point beyond the current one, as seen from the last one, and the next momentum weight."""
    next_weight = (1 + (1 + 4 * weight**2) ** 0.5) / 2
    factor = float((weight - 1) / next_weight)
    if not factor:
        return current, next_weight
    Z = current.Z - last.Z
    Z *= factor
    Z += current.Z
    return Point(Z, current.b + factor * (current.b - last.b)), next_weight
