"""Estimators made of local parts: one for each cluster of the rows, averaged over several clusterings."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state, gen_batches

from labelgap.clustering import Clustering, cluster
from labelgap.estimators.base import MultiLabelEstimator
from labelgap.estimators.parameters import check_number
from labelgap.estimators.pieces import in_pieces
from labelgap.observations import Labels
from labelgap.runtime import progress

ROWS_PER_CLUSTER = 6_000
CELLS_PER_BLOCK = 1 << 23
LARGEST_SEED = 2**31 - 1

Part = dict[str, Any]


class Fitted(NamedTuple):
    """A part that was learned, its objective from step to step, and what to do where it did not converge."""

    part: Part
    objective: list[float]
    n_iter: int
    advice: tuple[str, ...] = ()


class Clustered(NamedTuple):
    """The clusters of a learner: their centres, that of each row, and a seed for each of the parts."""

    centers: NDArray
    nearest: NDArray
    seeds: NDArray


class LocalEstimator(MultiLabelEstimator):
    """An ensemble of ``n_learners`` learners; each clusters the rows at random and has a part for each cluster.

    A subclass learns a part from the rows of a cluster, and says what a part thinks of new ones.
    """

    n_clusters: int | None
    n_learners: int
    random_state: Any
    verbose: int

    centers_: list[NDArray]
    parts_: list[list[Part]]
    objective_: list[list[float]]
    n_iter_: int
    status_: str

    @abstractmethod
    def _fit_part(self, X: Any, labels: Labels, rng: np.random.RandomState) -> Fitted:
        """Learn from the rows of one cluster and their labels; the part is a dict of arrays."""

    @abstractmethod
    def _check_part(self, part: Part) -> None:
        """Raise ValueError, KeyError or the like if a part that came from a file does not fit the model."""

    def _check_ensemble(self) -> None:
        self._check_common()
        check_number("n_clusters", self.n_clusters, Integral, least=1, optional=True)
        check_number("n_learners", self.n_learners, Integral, least=1)
        check_number("verbose", self.verbose, Integral, least=0)

    def _fit_parts(self, X: Any, labels: Labels) -> set[str]:
        """Cluster the rows for each learner, then learn all parts of all learners, on as many threads as there are.

        Every learner and every part has a generator of its own: the result is the same for any number of threads, and
        the first learners are the same however many follow. Returns what to do where parts did not converge.
        """
        learners = _spawn(check_random_state(self.random_state), self.n_learners)
        n_clusters = self._n_clusters(X.shape[0])
        clusterings = self._clusterings([partial(_cluster_rows, X, n_clusters, rng) for rng in learners])
        members = [rows for found in clusterings for rows in _members(found.nearest, len(found.centers))]
        generators = [np.random.RandomState(seed) for found in clusterings for seed in found.seeds]
        tasks = [partial(self._fit_rows, X, labels, *each) for each in zip(members, generators, strict=True)]
        fitted: list[Fitted] = []
        with progress(len(tasks), type(self).__name__, self.verbose) as advance:
            for found in in_pieces("part", tasks, Fitted):
                fitted.append(found)
                advance(f"cluster of {len(found.part['rows'])} rows")
        self.centers_ = [found.centers for found in clusterings]
        bounds = np.cumsum([0, *map(len, self.centers_)])
        self.parts_ = [[one.part for one in fitted[start:stop]] for start, stop in pairwise(bounds)]
        self.objective_ = [one.objective for one in fitted]
        self.n_iter_ = max(one.n_iter for one in fitted)
        advice = {text for one in fitted for text in one.advice}
        self.status_ = "max_iter" if advice else "converged"
        return advice

    def _clusterings(self, tasks: list[Callable[[], Clustered]]) -> list[Clustered]:
        found = []
        with progress(len(tasks), f"{type(self).__name__}: clusters", 0) as advance:
            for one in in_pieces("clusters", tasks, Clustered):
                found.append(one)
                advance(f"{len(one.centers)} of them")
        return found

    def _fit_rows(self, X: Any, labels: Labels, rows: NDArray, rng: np.random.RandomState) -> Fitted:
        found = self._fit_part(X[rows], labels[rows], rng)
        return found._replace(part={"rows": rows, **found.part})

    def _n_clusters(self, n_rows: int) -> int:
        return number_of_clusters(self.n_clusters, n_rows, ROWS_PER_CLUSTER)

    def _route(self, X: Any) -> Iterator[tuple[Part, NDArray]]:
        """Yield each part of each learner with the rows of X that are nearest to its cluster, where there are any."""
        for centers, parts in zip(self.centers_, self.parts_, strict=True):
            nearest = Clustering(centers).assign(X)
            for c, part in enumerate(parts):
                rows = np.flatnonzero(nearest == c)
                if len(rows):
                    yield part, rows

    def _check_loaded(self) -> None:
        """Refuse parts and clusters that came from a file and do not belong together."""
        if not self.parts_:
            raise ValueError("it has no learner")
        try:
            for centers, parts in zip(self.centers_, self.parts_, strict=True):
                if centers.shape != (len(parts), self.n_features_in_):
                    raise ValueError("the clusters do not belong to the parts")
                for part in parts:
                    self._check_part(part)
        except (IndexError, KeyError, TypeError) as error:
            raise ValueError(f"a part is not whole: {error!r}") from error

    def _conclude(self, advice: set[str]) -> None:
        if advice:
            message = (
                f"{type(self).__name__} stopped some parts before they converged; {', and '.join(sorted(advice))}."
            )
            warnings.warn(message, ConvergenceWarning, stacklevel=3)


def number_of_clusters(asked: int | None, n_rows: int, size: int) -> int:
    """Return how many clusters to make of rows: as many as were asked for, or one in ``size`` rows.

    >>> number_of_clusters(None, 13_000, 6_000), number_of_clusters(3, 10, 6_000)
    (2, 3)
    """
    if asked is None:
        return max(1, n_rows // size)
    if asked > n_rows:
        raise ValueError(
            f"n_clusters={asked} is above the number of rows, {n_rows}; pass at most {n_rows}, or None for one "
            f"cluster in {size} rows."
        )
    return asked


def row_blocks(X: Any, n_labels: int) -> Iterator[Any]:
    """Yield some rows after the other, so that their scores of every label fit in memory."""
    for rows in gen_batches(X.shape[0], max(1, CELLS_PER_BLOCK // n_labels)):
        yield X[rows]


def are_places(values: Any, most: int) -> bool:
    """Tell whether something is an array of indices below ``most``."""
    return isinstance(values, np.ndarray) and values.dtype.kind in "iu" and bool(np.isin(values, range(most)).all())


def _spawn(rng: np.random.RandomState, count: int) -> list[np.random.RandomState]:
    return [np.random.RandomState(seed) for seed in rng.randint(LARGEST_SEED, size=count)]


def _cluster_rows(X: Any, n_clusters: int, rng: np.random.RandomState) -> Clustered:
    clustering, nearest = cluster(X, n_clusters, rng=rng)
    return Clustered(clustering.centers, nearest, rng.randint(LARGEST_SEED, size=len(clustering.centers)))


def _members(nearest: NDArray, n_clusters: int) -> list[NDArray]:
    return [np.flatnonzero(nearest == c) for c in range(n_clusters)]
