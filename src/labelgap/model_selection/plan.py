"""The order in which candidates are tried: all points of a grid, the promising ones first, or a walk over it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, product
from typing import Any

import numpy as np

from labelgap.model_selection.spaces import Axes, numbers

Point = tuple[int, ...]  # the number of a grid, then an index into each of its axes
COARSE = 4  # a first look at an axis has about so many steps


def stride(axis: Sequence[Any]) -> int:
    """Return the step of a first look: the largest power of two that makes about four steps of an axis.

    >>> [stride(range(n)) for n in (1, 5, 10, 19, 40)]
    [1, 1, 2, 4, 8]
    """
    step = 1
    while 2 * step * COARSE < len(axis):
        step *= 2
    return step


class Plan:
    """Candidates as points of one or more grids.

    Parameters
    ----------
    grids : sequence of dict
        Values of each parameter; the first parameter is the one that a path goes along.
    own : mapping
        The parameters that the estimator has. Where the grid holds them, they come first.

    Examples
    --------
    The score is best at a = 7. Steps from a = 4 get shorter; the ends of the coarse grid come last:

    >>> plan = Plan([{"a": list(range(10))}], {"a": 4})
    >>> tried = []
    >>> for point in plan.best_first(lambda: min(tried, key=lambda p: abs(p[1] - 7))):
    ...     tried.append(point)
    >>> [plan.params(point)["a"] for point in tried]
    [4, 2, 6, 8, 5, 7, 0]
    """

    def __init__(self, grids: Sequence[Axes], own: Mapping[str, Any] | None = None) -> None:
        self.grids, self.own = list(grids), own or {}

    def __len__(self) -> int:
        return sum(1 for _ in self.in_order())

    def params(self, point: Point) -> dict[str, Any]:
        """Return the parameters of a point."""
        axes = self.grids[point[0]]
        return {name: values[i] for (name, values), i in zip(axes.items(), point[1:], strict=True)}

    def in_order(self, *, backwards: bool = False) -> Iterator[Point]:
        """Yield every point, path after path, each from its first value on or from its last."""
        for number, axes in enumerate(self.grids):
            first, *others = [range(len(values)) for values in axes.values()] or [range(1)]
            for rest in product(*others):
                path = reversed(first) if backwards else first
                yield from ((number, i, *rest) if axes else (number,) for i in path)

    def best_first(self, best: Callable[[], Point], *, every: bool = False) -> Iterator[Point]:
        """Yield points in the order of what they promise.

        After the start come neighbours of the best so far, at first far ones, until the nearest hold nothing better;
        then what is left of a coarse look along the whole paths, and the neighbours again if that found a better one.
        ``best`` says which of the points that were yielded is the best one. Only with ``every`` do all others follow.
        """
        seen: set[Point] = set()
        starts = ((number, *self._start(axes)) for number, axes in enumerate(self.grids))
        for point in chain(starts, self._promising(best), self.in_order() if every else ()):
            if point not in seen:
                seen.add(point)
                yield point

    def _promising(self, best: Callable[[], Point]) -> Iterator[Point]:
        yield from self._around_best(best)
        before = best()
        yield from self._coarse_look()
        if best() != before:
            yield from self._around_best(best)

    def _coarse_look(self) -> Iterator[Point]:
        """Yield every so many points of the path of each grid, from the start outwards."""
        for number, axes in enumerate(self.grids):
            middle, *others = self._start(axes) or (0,)
            path = next(iter(axes.values()), [None])
            places = range(middle % stride(path), len(path), stride(path))
            for place in sorted(places, key=lambda i: (abs(i - middle), i)):
                yield (number, place, *others) if axes else (number,)

    def _around_best(self, best: Callable[[], Point]) -> Iterator[Point]:
        """Yield the neighbours of the best on each axis, at first far ones, until the nearest hold nothing better."""
        largest = max((stride(values) for axes in self.grids for values in axes.values()), default=1)
        while True:
            before = best()
            for axis in range(1, len(before)):
                yield from self._neighbours(best(), axis, largest)
            if best() == before:
                if largest == 1:
                    return
                largest //= 2

    def _neighbours(self, point: Point, axis: int, largest: int) -> Iterator[Point]:
        """Yield the points beside one on an axis; on one that has no order all of its points."""
        if axis >= len(point):  # the best has gone over to a grid with fewer axes
            return
        values = list(self.grids[point[0]].values())[axis - 1]
        step = min(largest, stride(values))
        places = (point[axis] - step, point[axis] + step) if numbers(values) else range(len(values))
        for place in places:
            if 0 <= place < len(values):
                yield (*point[:axis], place, *point[axis + 1 :])

    def _start(self, axes: Axes) -> Point:
        """Return the index of the estimator's own value on each axis, or the middle."""
        return tuple(self._place(name, values) for name, values in axes.items())

    def _place(self, name: str, values: Sequence[Any]) -> int:
        own = [i for i, value in enumerate(values) if name in self.own and np.array_equal(value, self.own[name])]
        return own[0] if own else (len(values) - 1) // 2


def distance(a: Point, b: Point) -> float:
    """Return how many steps lie between two points; those of two grids are infinitely far apart.

    >>> distance((0, 1, 5), (0, 2, 3)), distance((0, 1), (1, 1))
    (3, inf)
    """
    return sum(abs(i - j) for i, j in zip(a, b, strict=True)) if a[0] == b[0] else float("inf")


@dataclass
class Walk:
    """A walk over a grid: looks for the largest score on a grid without visiting all of it.

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
