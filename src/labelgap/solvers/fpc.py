"""Fixed point continuation for f(Z, b) + μ P(Z): f smooth, P with a proximal operator, μ falling to its last value.

A step goes along −∇f and then applies the proximal operator of the penalty to Z (Ma, Goldfarb and Chen 2011; 003,
Algorithms 1 and 2). :class:`FixedPoint` takes such steps; :class:`Accelerated` adds momentum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from labelgap.solvers.base import Array, Status

PATIENCE = 5  # accelerated steps that are judged together
NEXT_TO_NOTHING = 1e-3  # of the tolerance


class Point(NamedTuple):
    """A matrix with a penalty and a vector without one; the vector may be empty."""

    Z: Array
    b: Array


class Slope(NamedTuple):
    """f and its gradient in Z and in b, which is the solver's to overwrite."""

    value: float
    Z: Array
    b: Array


class Steps(NamedTuple):
    """The step sizes of Z and of b."""

    Z: float
    b: float


class Smooth(Protocol):
    """f(Z, b), and the steps that its curvature allows."""

    def at(self, mu: float) -> Smooth:
        """What is smooth at this μ: f itself, or f with what of the penalty is smooth in b."""

    @property
    def steps(self) -> Steps:
        """Steps for which a fixed point iteration converges."""

    @property
    def short_steps(self) -> Steps:
        """Steps in whose norm f has a curvature of at most 1."""

    def value(self, point: Point) -> float:
        """f."""

    def model(self, point: Point) -> Slope:
        """f and its gradient."""


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
        """By how much P(x) may be off; 0 for an exact operator."""


class Penalty(Protocol):
    """P(Z)."""

    def value(self, Z: Array) -> float:
        """P."""

    def prox(self, point: Array, threshold: float) -> Proximal:
        """The proximal operator."""


@dataclass
class Stage:
    """A solution for one μ.

    The point, P at it and its rank, the objective after each step that was kept, the number of steps tried, and how
    the run ended.
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

    def keep(self, point: Point, shrunk: Proximal, value: float) -> None:
        """Go to a point."""
        self.point, self.penalty, self.rank = point, shrunk.value, shrunk.rank
        self.history.append(value)


class Method(Protocol):
    """A way to minimise f + μ P."""

    def minimize(self, smooth: Smooth, penalty: Penalty, stage: Stage) -> Stage:
        """Go on from the point of a stage whose history is empty, and return it."""


def descending(first: float, last: float, decay: float) -> list[float]:
    """Return μ's that fall from decay · first by factors of ``decay`` to ``last``, which is always there.

    >>> descending(1.0, 0.1, 0.5)
    [0.5, 0.25, 0.125, 0.1]
    """
    mus, mu = [], decay * first
    while mu > last:
        mus.append(mu)
        mu *= decay
    return [*mus, last]


def follow(smooth: Smooth, penalty: Penalty, mus: Sequence[float], start: Point, method: Method) -> Iterator[Stage]:
    """Minimise for one μ after the other, each from the solution of the one before, and yield each stage."""
    point, value = start, penalty.value(start.Z)
    for mu in mus:
        stage = method.minimize(smooth, penalty, Stage(mu, point, value))
        point, value = stage.point, stage.penalty
        yield stage


def _step(penalty: Penalty, point: Point, slope: Slope, steps: Steps, mu: float) -> tuple[Point, Proximal]:
    number, forward = point.Z.dtype.type, slope.Z
    forward *= number(-steps.Z)
    forward += point.Z
    shrunk = penalty.prox(forward, steps.Z * mu)
    return Point(shrunk.x, point.b - number(steps.b) * slope.b), shrunk


@dataclass
class FixedPoint:
    """Plain steps, until one changes the objective by at most ``tol`` of it.

    With the exact operator of P no step raises the objective. An operator that is not yet exact, as in a splitting,
    must have brought its own error below the same bound.
    """

    tol: float = 1e-5
    max_iter: int = 1000

    def minimize(self, smooth: Smooth, penalty: Penalty, stage: Stage) -> Stage:
        """Return the stage at its last step."""
        mu, smooth = stage.mu, smooth.at(stage.mu)
        slope = smooth.model(stage.point)
        previous = slope.value + mu * stage.penalty
        for stage.n_iter in range(1, self.max_iter + 1):
            point, shrunk = _step(penalty, stage.point, slope, smooth.steps, mu)
            slope = smooth.model(point)
            stage.keep(point, shrunk, slope.value + mu * shrunk.value)
            if abs(previous - stage.value) + mu * shrunk.error <= self.tol * abs(previous):
                stage.status = Status.CONVERGED
                break
            previous = stage.value
        return stage


@dataclass
class Accelerated:
    """Steps with momentum (Beck and Teboulle 2009), dropped where it would lead up (O'Donoghue and Candès 2015).

    The objective never rises: a step that would raise it is not kept, and the next one is plain, from the last point.
    Stops when several steps together lower the objective by at most ``tol`` of it, since a single one may do so where
    momentum turns; or when one without momentum lowers it by next to nothing.
    """

    tol: float = 1e-5
    max_iter: int = 1000

    def minimize(self, smooth: Smooth, penalty: Penalty, stage: Stage) -> Stage:
        """Return the stage at its last step."""
        mu, smooth = stage.mu, smooth.at(stage.mu)
        ahead, weight = stage.point, 1.0
        values = [smooth.value(ahead) + mu * stage.penalty]
        for stage.n_iter in range(1, self.max_iter + 1):
            plain = ahead is stage.point
            point, shrunk = _step(penalty, ahead, smooth.model(ahead), smooth.short_steps, mu)
            value = smooth.value(point) + mu * shrunk.value
            if value <= values[-1]:
                ahead, weight = _beyond(stage.point, point, weight)
                stage.keep(point, shrunk, value)
            else:
                ahead, weight = stage.point, 1.0
            values.append(min(value, values[-1]))
            if self._settled(values, plain):
                stage.status = Status.CONVERGED
                break
        if not stage.history:
            stage.history.append(values[-1])
        return stage

    def _settled(self, values: list[float], plain: bool) -> bool:
        small = self.tol * abs(values[-1])
        if plain and values[-2] - values[-1] <= NEXT_TO_NOTHING * small:
            return True
        return len(values) > PATIENCE and values[-1 - PATIENCE] - values[-1] <= small


def _beyond(last: Point, here: Point, weight: float) -> tuple[Point, float]:
    """Return the point that momentum carries to, beyond here as seen from the last one, and the next weight."""
    grown = (1 + (1 + 4 * weight**2) ** 0.5) / 2
    number = here.Z.dtype.type((weight - 1) / grown)
    if not number:
        return here, grown
    Z = here.Z - last.Z
    Z *= number
    Z += here.Z
    return Point(Z, here.b + number * (here.b - last.b)), grown
