"""Ensembles of local parts: rows are clustered, and each cluster has a part that new rows near it are routed to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from numbers import Integral
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from labelgap.clustering import Clustering, cluster
from labelgap.estimators.base import Outcome
from labelgap.estimators.parameters import check_number
from labelgap.estimators.pieces import in_pieces
from labelgap.observations import Labels
from labelgap.runtime import progress

ROWS_PER_CLUSTER = 6_000
LARGEST_SEED = 2**31 - 1

Part = dict[str, Any]


class Fitted(NamedTuple):
    """A part that was learned, its objective from step to step, and what to do where it did not converge."""

    part: Part
    objective: list[float]
    n_iter: int
    advice: tuple[str, ...] = ()


FitPart = Callable[[Any, Labels, np.random.RandomState], Fitted]


class Clustered(NamedTuple):
    """The clusters of a learner: their centres, that of each row, and a seed for each of the parts."""

    centers: NDArray
    nearest: NDArray
    seeds: NDArray


class Ensemble(NamedTuple):
    """The clusters and parts of each learner, and how learning them went: ``status`` is "converged" or "max_iter"."""

    centers: list[NDArray]
    parts: list[list[Part]]
    objective: list[list[float]]
    n_iter: int
    status: str
    outcome: Outcome


class EnsembleParameters(Protocol):
    """The parameters of an estimator that is an ensemble of local parts."""

    n_learners: int
    n_clusters: int | None
    random_state: Any
    verbose: int


def check_ensemble(owner: EnsembleParameters) -> None:
    """Raise ValueError for parameters of an ensemble that are out of range."""
    check_number("n_clusters", owner.n_clusters, Integral, least=1, optional=True)
    check_number("n_learners", owner.n_learners, Integral, least=1)
    check_number("verbose", owner.verbose, Integral, least=0)


def learn_parts(owner: EnsembleParameters, X: Any, labels: Labels, fit_part: FitPart) -> Ensemble:
    """Cluster the rows for each learner, then learn all parts of all learners, on as many threads as there are.

    Every learner and every part has a generator of its own: the result is the same for any number of threads, and
    the first learners are the same however many follow. ``owner`` is the estimator; ``fit_part`` learns from the rows
    of a cluster.
    """
    name, learners = type(owner).__name__, _spawn(check_random_state(owner.random_state), owner.n_learners)
    n_clusters = number_of_clusters(owner.n_clusters, X.shape[0], ROWS_PER_CLUSTER)
    clusterings = _clusterings([partial(_cluster_rows, X, n_clusters, rng) for rng in learners], name)
    tasks = [
        partial(_fit_rows, fit_part, X, labels, rows, np.random.RandomState(seed))
        for found in clusterings
        for rows, seed in zip(_members(found), found.seeds, strict=True)
    ]
    fitted: list[Fitted] = []
    with progress(len(tasks), name, owner.verbose) as advance:
        for one in in_pieces("part", tasks, Fitted):
            fitted.append(one)
            advance(f"cluster of {len(one.part['rows'])} rows")
    centers = [found.centers for found in clusterings]
    bounds = np.cumsum([0, *map(len, centers)])
    advice = sorted({text for one in fitted for text in one.advice})
    warning = f"{name} stopped some parts before they converged; {', and '.join(advice)}." if advice else None
    return Ensemble(
        centers,
        [[one.part for one in fitted[start:stop]] for start, stop in pairwise(bounds)],
        [one.objective for one in fitted],
        max(one.n_iter for one in fitted),
        "max_iter" if advice else "converged",
        Outcome(warning),
    )


def route(X: Any, centers: list[NDArray], parts: list[list[Part]]) -> Iterator[tuple[Part, NDArray]]:
    """Yield each part of each learner with the rows of X that are nearest to its cluster, where there are any."""
    for of_learner, its_parts in zip(centers, parts, strict=True):
        nearest = Clustering(of_learner).assign(X)
        for c, part in enumerate(its_parts):
            rows = np.flatnonzero(nearest == c)
            if len(rows):
                yield part, rows


def check_parts(
    centers: list[NDArray], parts: list[list[Part]], n_features: int, check_part: Callable[[Part], None]
) -> None:
    """Raise ValueError if parts and clusters that came from a file do not belong together.

    ``check_part`` raises ValueError, KeyError or the like for a part that does not fit the model.
    """
    if not parts:
        raise ValueError("it has no learner")
    try:
        for of_learner, its_parts in zip(centers, parts, strict=True):
            if of_learner.shape != (len(its_parts), n_features):
                raise ValueError("the clusters do not belong to the parts")
            for part in its_parts:
                check_part(part)
    except (IndexError, KeyError, TypeError) as error:
        raise ValueError(f"a part is not whole: {error!r}") from error


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


def are_places(values: Any, most: int) -> bool:
    """Tell whether something is an array of indices below ``most``."""
    return isinstance(values, np.ndarray) and values.dtype.kind in "iu" and bool(np.isin(values, range(most)).all())


def _spawn(rng: np.random.RandomState, count: int) -> list[np.random.RandomState]:
    return [np.random.RandomState(seed) for seed in rng.randint(LARGEST_SEED, size=count)]


def _cluster_rows(X: Any, n_clusters: int, rng: np.random.RandomState) -> Clustered:
    clustering, nearest = cluster(X, n_clusters, rng=rng)
    return Clustered(clustering.centers, nearest, rng.randint(LARGEST_SEED, size=len(clustering.centers)))


def _members(found: Clustered) -> list[NDArray]:
    return [np.flatnonzero(found.nearest == c) for c in range(len(found.centers))]


def _clusterings(tasks: list[Callable[[], Clustered]], name: str) -> list[Clustered]:
    found = []
    with progress(len(tasks), f"{name}: clusters", 0) as advance:
        for one in in_pieces("clusters", tasks, Clustered):
            found.append(one)
            advance(f"{len(one.centers)} of them")
    return found


def _fit_rows(fit_part: FitPart, X: Any, labels: Labels, rows: NDArray, rng: np.random.RandomState) -> Fitted:
    found = fit_part(X[rows], labels[rows], rng)
    return found._replace(part={"rows": rows, **found.part})
