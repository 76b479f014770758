"""A walk over a grid: along one axis after the other, each step from where the last one led."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

Point = tuple[int, ...]


@dataclass
class Walk:
    """Looks for the largest score near the axes of a grid, without visiting all of it.

    From the best point so far it goes up and down each axis in turn until ``patience`` steps in a row are no better,
    and ends when no axis leads on. ``score(point, neighbour)`` is asked once for each point; ``neighbour`` is the
    point beside it that was visited just before, so that a fit can start from there (None for the first).

    >>> walk = Walk([5, 5], lambda point, near: -((point[0] - 4) ** 2) - (point[1] - 1) ** 2)
    >>> walk.run((2, 2)), len(walk.scores)
    ((4, 1), 7)
    """

    sizes: Sequence[int]
    score: Callable[[Point, Point | None], float]
    patience: int = 1
    scores: dict[Point, float] = field(default_factory=dict)

    def run(self, start: Point) -> Point:
        """Return the best point found."""
        self._visit(start, None)
        best: Point | None = None
        while best != self.best:
            best = self.best
            for axis in range(len(self.sizes)):
                for direction in (-1, 1):
                    self._along(axis, direction)
        return self.best

    @property
    def best(self) -> Point:
        """The best point so far, the first of equals."""
        return max(self.scores, key=self.scores.__getitem__)

    def _visit(self, point: Point, near: Point | None) -> float:
        if point not in self.scores:
            self.scores[point] = self.score(point, near)
        return self.scores[point]

    def _along(self, axis: int, direction: int) -> None:
        point, top, worse = self.best, self.scores[self.best], 0
        while worse < self.patience and 0 <= point[axis] + direction < self.sizes[axis]:
            near, point = point, _moved(point, axis, direction)
            value = self._visit(point, near)
            worse = 0 if value > top else worse + 1
            top = max(top, value)


def _moved(point: Point, axis: int, by: int) -> Point:
    moved: list[Any] = list(point)
    moved[axis] += by
    return tuple(moved)
