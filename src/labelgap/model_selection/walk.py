"""Walks over a grid, each step from where the last one led."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

Point = tuple[int, ...]


@dataclass
class Walk:
    """Looks for the largest score on a grid without visiting all of it.

    ``score(point, neighbour)`` is asked once for each point; ``neighbour`` is a point beside it that was visited
    before, so that a fit can start from there (None for the first).

    >>> walk = Walk([5, 5], lambda point, near: -((point[0] - 4) ** 2) - (point[1] - 1) ** 2)
    >>> walk.climb((2, 2)), len(walk.scores)
    ((4, 1), 7)
    """

    sizes: Sequence[int]
    score: Callable[[Point, Point | None], float]
    scores: dict[Point, float] = field(default_factory=dict)

    def climb(self, start: Point, near: Point | None = None, axes: Sequence[int] | None = None) -> Point:
        """Go up and down each axis in turn while the score rises; return where no axis leads on."""
        self._visit(start, near)
        place, before = start, None
        while place != before:
            before = place
            for axis in range(len(self.sizes)) if axes is None else axes:
                for direction in (-1, 1):
                    place = self._along(place, axis, direction)
        return place

    def follow_ridge(self, start: Point, patience: int = 2) -> Point:
        """Go up and down the first axis and climb along the others at every step; return the best point visited.

        Where the best value of one parameter depends on that of another, no axis by itself leads along the ridge.
        Each direction ends after ``patience`` steps in a row that were no better.

        >>> ridge = Walk([9, 9], lambda p, near: p[0] - 3 * (p[0] - p[1]) ** 2)
        >>> ridge.climb((1, 1)), Walk(ridge.sizes, ridge.score).follow_ridge((1, 1))
        ((1, 1), (8, 8))
        """
        others = range(1, len(self.sizes))
        first = self.climb(start, axes=others)
        for direction in (-1, 1):
            place, top, worse = first, self.scores[first], 0
            while worse < patience and self._inside(place, 0, direction):
                place = self.climb(_moved(place, 0, direction), place, others)
                worse = 0 if self.scores[place] > top else worse + 1
                top = max(top, self.scores[place])
        return max(self.scores, key=self.scores.__getitem__)

    def _visit(self, point: Point, near: Point | None) -> float:
        if point not in self.scores:
            self.scores[point] = self.score(point, near)
        return self.scores[point]

    def _inside(self, point: Point, axis: int, direction: int) -> bool:
        return 0 <= point[axis] + direction < self.sizes[axis]

    def _along(self, point: Point, axis: int, direction: int) -> Point:
        """Go on while the score rises; return the last point that it rose to."""
        while self._inside(point, axis, direction):
            further = _moved(point, axis, direction)
            if self._visit(further, point) <= self.scores[point]:
                break
            point = further
        return point


def _moved(point: Point, axis: int, by: int) -> Point:
    moved: list[Any] = list(point)
    moved[axis] += by
    return tuple(moved)
