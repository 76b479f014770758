"""Candidates of a search: the search space of each method, grids, and the order in which candidates are tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, product
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from labelgap.estimators import Tagger

Axes = dict[str, list[Any]]
Point = tuple[int, ...]  # the index of a grid, then an index into each of its axes
TAGGER_PREFIX = "estimator__"  # of the parameters of the estimator within a Tagger
N_COARSE_STEPS = 4  # approximate number of steps of the first, coarse steps along an axis


def list_powers(base: float, first: int, last: int) -> list[float]:
    """Return the powers of a base from one exponent to another, both included: (2, 1, −1) gives 2, 1 and ½."""
    step = 1 if last >= first else -1
    return [float(base) ** power for power in range(first, last + step, step)]


# The parameters of each method and their values. The first parameter is the path parameter: its values run from the
# strongest penalty to the weakest, so that fits become slower. The number of components, trees or learners is not
# searched: larger numbers are better and slower, a trade-off that the user has to make.
SPACES: dict[str, Axes] = {
    "BayesianCS": {"alpha": list_powers(4, 3, -6)},
    "BinaryRelevance": {"alpha": list_powers(4, 4, -9)},
    "CompressedSensing": {"alpha": list_powers(4, 3, -6)},
    "CPLST": {"alpha": list_powers(4, 3, -6)},
    "CSSP": {"alpha": list_powers(4, 3, -6)},
    "FastXML": {"alpha": list_powers(2, 2, -5), "max_leaf": [40, 20, 10, 5]},
    "LabelKNN": {"n_neighbors": [80, 40, 20, 10, 5], "weights": ["similarity", "uniform"]},
    "LabelwiseSVM": {"C": list_powers(4, -5, 5)},
    "LEML": {"alpha": list_powers(2, 10, -8)},
    "LocalLEML": {"alpha": list_powers(2, 8, -8)},
    "LPSR": {"alpha": list_powers(4, 2, -9), "n_candidates": [200, 100, 50]},
    "MC1": {"mu": list_powers(10, 0, -6), "label_weight": list_powers(10, 0, -3)},
    "MCb": {"mu": list_powers(10, 0, -6), "label_weight": list_powers(10, 0, -3)},
    "NaiveBayes": {"alpha": list_powers(10, 1, -4), "model": ["multinomial", "bernoulli"]},
    "OneClassMF": {"alpha": list_powers(2, 6, -6), "weight_unlabelled": list_powers(2, 0, -9)},
    "PLST": {"alpha": list_powers(4, 3, -6)},
    "SLEEC": {"alpha": list_powers(10, 1, -4), "n_neighbors": [80, 40, 20, 10, 5]},
    "WSABIE": {"alpha": [0.1, 0.03, 0.01, 0.003, 0.0], "learning_rate": [0.3, 0.1, 0.05, 0.03]},
}

REASONS_WITHOUT_SPACE: dict[str, str] = {
    "AutoLabeler": "it chooses its members itself; call fit without tune",
    "MC1CV": "it chooses mu and label_weight itself; tune MC1, or call fit without tune",
    "MCbCV": "it chooses mu and label_weight itself; tune MCb, or call fit without tune",
    "OneClassMFCV": "it chooses its parameters itself; tune OneClassMF, or call fit without tune",
    "Tagger": "the space is that of its estimator",
}


class PathParameter(NamedTuple):
    """The penalty along which candidates are ordered from strong to weak."""

    name: str
    descending: bool  # whether the values fall from strong to weak


def get_space(estimator: Any) -> Axes:
    """Return the default search space of an estimator, or of the learner within a pipeline or a Tagger.

    >>> from labelgap import LEML, Tagger
    >>> list(get_space(LEML())), list(get_space(Tagger(LEML())))
    (['alpha'], ['estimator__alpha'])
    """
    prefix, learner = find_learner(estimator)
    names = [cls.__name__ for cls in type(learner).__mro__]
    for name in names:
        if name in SPACES:
            return {f"{prefix}{parameter}": list(values) for parameter, values in SPACES[name].items()}
        if name in REASONS_WITHOUT_SPACE:
            raise ValueError(f"grid is None, and {name} has no search space: {REASONS_WITHOUT_SPACE[name]}.")
    raise ValueError(f"grid is None, and {names[0]} has no search space of its own; pass grid={{parameter: values}}.")


def find_learner(estimator: Any) -> tuple[str, Any]:
    """Return the prefix of the parameters of the estimator within pipelines and Taggers, and this estimator."""
    prefix, learner = "", estimator
    while True:
        if hasattr(learner, "steps"):
            prefix, learner = f"{prefix}{learner.steps[-1][0]}__", learner[-1]
        elif isinstance(learner, Tagger) and learner.estimator is not None:
            prefix, learner = f"{prefix}{TAGGER_PREFIX}", learner.estimator
        else:
            return prefix, learner


def get_path_parameter(estimator: Any) -> PathParameter | None:
    """Return the path parameter of an estimator, or None if it has no search space.

    >>> from labelgap import LabelwiseSVM, LEML
    >>> tuple(get_path_parameter(LEML())), tuple(get_path_parameter(LabelwiseSVM()))
    (('alpha', True), ('C', False))
    """
    try:
        name, values = next(iter(get_space(estimator).items()))
    except ValueError:
        return None
    return PathParameter(name, values[0] > values[-1])


def add_own_values(axes: Axes, params: Mapping[str, Any]) -> Axes:
    """Return axes that also contain an estimator's own values, each in its place among the numbers.

    >>> add_own_values({"alpha": [4.0, 1.0]}, {"alpha": 2.0})
    {'alpha': [4.0, 2.0, 1.0]}
    """
    extended = {name: list(values) for name, values in axes.items()}
    for name, values in extended.items():
        own = params.get(name)
        if are_numbers([*values, own]) and own not in values:
            extended[name] = sorted([*values, own], reverse=values[0] > values[-1])
    return extended


def order_axes(axes: Mapping[str, Sequence[Any]], path: PathParameter | None) -> Axes:
    """Return axes with the path parameter first, from strong to weak if its values are numbers.

    >>> order_axes({"loss": ["squared"], "alpha": [1, 4, 2]}, PathParameter("alpha", True))
    {'alpha': [4, 2, 1], 'loss': ['squared']}
    """
    ordered = {name: list(values) for name, values in axes.items()}
    if path is None or path.name not in ordered or not are_numbers(ordered[path.name]):
        return ordered
    return {path.name: sorted(ordered.pop(path.name), reverse=path.descending), **ordered}


def are_numbers(values: Sequence[Any]) -> bool:
    """Return whether all values are real numbers, which have an order."""
    return all(isinstance(value, Real) and not isinstance(value, bool) for value in values)


def check_candidates(name: str, values: Any, default: Sequence[float], *, positive: bool = False) -> list[float]:
    """Return the distinct candidates for a parameter in rising order, or the default if ``values`` is None.

    Raise ValueError if there are none, or if one of them is not finite, negative, or with ``positive`` 0.

    >>> check_candidates("alphas", [1, 0.5, 1], [])
    [0.5, 1.0]
    """
    if values is None:
        return list(default)
    try:
        array = np.unique(np.asarray(values, float))
    except (TypeError, ValueError):
        array = np.empty(0)
    in_range = (array > 0 if positive else array >= 0) & (array < np.inf)
    if array.size == 0 or not in_range.all():
        bound = "above 0, such as [0.1, 1]" if positive else "of at least 0"
        raise ValueError(f"{name}={values!r} is not a list of candidates; pass one or more finite numbers {bound}.")
    return array.tolist()


class Plan:
    """Candidates as points of one or more grids, and the order in which they are tried.

    Parameters
    ----------
    grids : sequence of dict
        The values of each parameter; the first parameter is the path parameter.
    own : mapping, optional
        The estimator's own parameters, which are tried first if the grid contains them.

    Examples
    --------
    The score is best at a = 7. The steps from a = 4 become shorter; the ends of the coarse grid come last:

    >>> plan = Plan([{"a": list(range(10))}], {"a": 4})
    >>> tried = []
    >>> for point in plan.iter_best_first(lambda: min(tried, key=lambda p: abs(p[1] - 7))):
    ...     tried.append(point)
    >>> [plan.params(point)["a"] for point in tried]
    [4, 2, 6, 8, 5, 7, 0]
    """

    def __init__(self, grids: Sequence[Axes], own: Mapping[str, Any] | None = None) -> None:
        self.grids, self.own = list(grids), own or {}

    def __len__(self) -> int:
        return sum(1 for _ in self.iter_in_order())

    def params(self, point: Point) -> dict[str, Any]:
        """Return the parameters of a point."""
        axes = self.grids[point[0]]
        return {name: values[i] for (name, values), i in zip(axes.items(), point[1:], strict=True)}

    def iter_in_order(self, *, backwards: bool = False) -> Iterator[Point]:
        """Yield every point, path after path, each from its first value to its last, or backwards."""
        for number, axes in enumerate(self.grids):
            first, *others = [range(len(values)) for values in axes.values()] or [range(1)]
            for tail in product(*others):
                path = reversed(first) if backwards else first
                yield from ((number, i, *tail) if axes else (number,) for i in path)

    def iter_best_first(self, best: Callable[[], Point], *, exhaustive: bool = False) -> Iterator[Point]:
        """Yield the most promising points first.

        After the start come the neighbours of the best point so far, first distant ones, until the nearest ones are
        no better. Then come the other points of a coarse grid along each path, and the neighbours of the best point
        again if it is a new one. ``best`` returns the best of the points that were yielded. All other points follow
        only if ``exhaustive``.
        """
        seen: set[Point] = set()
        starts = ((number, *self._get_start(axes)) for number, axes in enumerate(self.grids))
        for point in chain(starts, self._iter_promising(best), self.iter_in_order() if exhaustive else ()):
            if point not in seen:
                seen.add(point)
                yield point

    def _iter_promising(self, best: Callable[[], Point]) -> Iterator[Point]:
        yield from self._iter_around_best(best)
        before = best()
        yield from self._iter_coarse_paths()
        if best() != before:
            yield from self._iter_around_best(best)

    def _iter_coarse_paths(self) -> Iterator[Point]:
        """Yield the points of a coarse grid along the path of each grid, from the start outwards."""
        for number, axes in enumerate(self.grids):
            middle, *others = self._get_start(axes) or (0,)
            path = next(iter(axes.values()), [None])
            indices = range(middle % compute_stride(path), len(path), compute_stride(path))
            for index in sorted(indices, key=lambda i: (abs(i - middle), i)):
                yield (number, index, *others) if axes else (number,)

    def _iter_around_best(self, best: Callable[[], Point]) -> Iterator[Point]:
        """Yield the neighbours of the best point on each axis, at smaller and smaller distances."""
        stride = max((compute_stride(values) for axes in self.grids for values in axes.values()), default=1)
        while True:
            before = best()
            for axis in range(1, len(before)):
                yield from self._iter_neighbours(best(), axis, stride)
            if best() == before:
                if stride == 1:
                    return
                stride //= 2

    def _iter_neighbours(self, point: Point, axis: int, max_stride: int) -> Iterator[Point]:
        """Yield the two neighbours of a point on an axis of numbers, or all points of another axis."""
        if axis >= len(point):  # the new best point is of a grid with fewer axes
            return
        values = list(self.grids[point[0]].values())[axis - 1]
        stride = min(max_stride, compute_stride(values))
        indices = (point[axis] - stride, point[axis] + stride) if are_numbers(values) else range(len(values))
        for index in indices:
            if 0 <= index < len(values):
                yield (*point[:axis], index, *point[axis + 1 :])

    def _get_start(self, axes: Axes) -> Point:
        """Return the index of the estimator's own value on each axis, or of the middle."""
        return tuple(
            next(
                (i for i, value in enumerate(values) if name in self.own and np.array_equal(value, self.own[name])),
                (len(values) - 1) // 2,
            )
            for name, values in axes.items()
        )


def compute_stride(axis: Sequence[Any]) -> int:
    """Return the stride of a coarse grid: the largest power of two that divides an axis into about four steps.

    >>> [compute_stride(range(n)) for n in (1, 5, 10, 19, 40)]
    [1, 1, 2, 4, 8]
    """
    stride = 1
    while 2 * stride * N_COARSE_STEPS < len(axis):
        stride *= 2
    return stride


def compute_distance(a: Point, b: Point) -> float:
    """Return the number of steps between two points; infinity for points of two grids.

    >>> compute_distance((0, 1, 5), (0, 2, 3)), compute_distance((0, 1), (1, 1))
    (3, inf)
    """
    return sum(abs(i - j) for i, j in zip(a, b, strict=True)) if a[0] == b[0] else float("inf")


@dataclass
class Walk:
    """A walk to the largest score on a grid that does not visit every point.

    ``score(point, neighbour)`` is called once for each point. ``neighbour`` is a point next to it that was visited
    before, so that a fit can start from there; it is None for the first point.

    >>> walk = Walk([5, 5], lambda point, near: -((point[0] - 4) ** 2) - (point[1] - 1) ** 2)
    >>> walk.coordinate_ascent((2, 2)), len(walk.scores)
    ((4, 1), 7)
    """

    sizes: Sequence[int]
    score: Callable[[Point, Point | None], float]
    scores: dict[Point, float] = field(default_factory=dict)

    def coordinate_ascent(self, start: Point, near: Point | None = None, axes: Sequence[int] | None = None) -> Point:
        """Move along each axis in turn while the score rises; return the point that has no better neighbour."""
        self._visit(start, near)
        point, before = start, None
        while point != before:
            before = point
            for axis in range(len(self.sizes)) if axes is None else axes:
                for step in (-1, 1):
                    point = self._ascend(point, axis, step)
        return point

    def follow_ridge(self, start: Point, patience: int = 2) -> Point:
        """Move along the first axis with coordinate ascent along the others at each step; return the best point.

        If the best value of one parameter depends on another one, no single axis leads along the ridge. Each
        direction ends after ``patience`` steps in a row without a better score.

        >>> ridge = Walk([9, 9], lambda p, near: p[0] - 3 * (p[0] - p[1]) ** 2)
        >>> ridge.coordinate_ascent((1, 1)), Walk(ridge.sizes, ridge.score).follow_ridge((1, 1))
        ((1, 1), (8, 8))
        """
        others = range(1, len(self.sizes))
        first = self.coordinate_ascent(start, axes=others)
        for step in (-1, 1):
            point, top, n_worse = first, self.scores[first], 0
            while n_worse < patience and (neighbour := self._move(point, 0, step)) is not None:
                point = self.coordinate_ascent(neighbour, point, others)
                n_worse = 0 if self.scores[point] > top else n_worse + 1
                top = max(top, self.scores[point])
        return max(self.scores, key=self.scores.__getitem__)

    def follow_coarse_ridge(self, start: Point, scanned: int | None = None) -> Point:
        """Follow the ridge on a coarse grid around the start, then ascend on the whole grid; return the best point.

        With ``scanned``, the ridge starts from the best of all values on that axis of the coarse grid.

        >>> walk = Walk([20, 30], lambda p, near: -((p[0] - 11) ** 2) - (p[1] - 13) ** 2)
        >>> walk.follow_coarse_ridge((3, 3)), len(walk.scores) < 30
        ((11, 13), True)
        >>> level = Walk([20, 30], lambda p, near: max(p[1], 9) - (p[0] - 11) ** 2)
        >>> level.follow_coarse_ridge((3, 3)), level.follow_coarse_ridge((3, 3), scanned=1)
        ((11, 3), (11, 29))
        """
        axes = [range(i % compute_stride(range(n)), n, compute_stride(range(n))) for i, n in zip(start, self.sizes)]

        def refine(point: Point) -> Point:
            return tuple(axis[i] for axis, i in zip(axes, point, strict=True))

        def visit(point: Point, near: Point | None) -> float:
            return self._visit(refine(point), None if near is None else refine(near))

        coarse = Walk([*map(len, axes)], visit)
        first = tuple(axis.index(i) for axis, i in zip(axes, start, strict=True))
        if scanned is not None:
            first = coarse._scan(first, scanned)
        coarse.follow_ridge(first, patience=1)
        return self.coordinate_ascent(max(self.scores, key=self.scores.__getitem__))

    def find_tops(self, count: int) -> list[Point]:
        """Return the best visited points of different values on the first axis, best first.

        >>> Walk([2, 2], lambda point, near: 0.0, {(0, 0): 1.0, (0, 1): 3.0, (1, 1): 2.0}).find_tops(2)
        [(0, 1), (1, 1)]
        """
        tops: dict[int, Point] = {}
        for point in sorted(self.scores, key=self.scores.__getitem__, reverse=True):
            tops.setdefault(point[0], point)
        return list(tops.values())[:count]

    def _scan(self, point: Point, axis: int) -> Point:
        """Visit all points on a line along an axis, last one first; return the best of them."""
        line = [(*point[:axis], i, *point[axis + 1 :]) for i in reversed(range(self.sizes[axis]))]
        for near, place in zip([None, *line], line):
            self._visit(place, near)
        return max(line, key=self.scores.__getitem__)

    def _visit(self, point: Point, near: Point | None) -> float:
        if point not in self.scores:
            self.scores[point] = self.score(point, near)
        return self.scores[point]

    def _move(self, point: Point, axis: int, step: int) -> Point | None:
        """Return the next point on an axis, or None at the border of the grid."""
        index = point[axis] + step
        return (*point[:axis], index, *point[axis + 1 :]) if 0 <= index < self.sizes[axis] else None

    def _ascend(self, point: Point, axis: int, step: int) -> Point:
        """Move along an axis while the score rises; return the last point with a better score."""
        while (neighbour := self._move(point, axis, step)) is not None:
            if self._visit(neighbour, point) <= self.scores[point]:
                break
            point = neighbour
        return point
