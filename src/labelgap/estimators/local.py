"""Ensembles of local models, one for each cluster of rows, and LocalLEML."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from numbers import Integral
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray
from sklearn.utils import check_random_state

from labelgap.checkpoints import checkpoint_calls
from labelgap.clustering import Clustering, cluster
from labelgap.estimators.base import About, MultiLabelEstimator, Outcome
from labelgap.estimators.leml import LEML
from labelgap.estimators.low_rank import embed_rows, fit_bound
from labelgap.estimators.parameters import check_number
from labelgap.estimators.scores import BlockScores, split_rows
from labelgap.kernels import get_backend
from labelgap.losses import Loss, get_loss
from labelgap.observations import Labels
from labelgap.observations.arguments import RandomSeed
from labelgap.runtime import progress

ROWS_PER_CLUSTER = 6_000
LARGEST_SEED = 2**31 - 1

Part = dict[str, Any]


class PartFit(NamedTuple):
    """A local model, its objective after each step, and advice if it did not converge."""

    part: Part
    objective: list[float]
    n_iter: int
    advice: tuple[str, ...] = ()


FitPart = Callable[[Any, Labels, np.random.RandomState], PartFit]


class RowClusters(NamedTuple):
    """The clusters of a learner: their centres, the nearest cluster of each row, and a seed for each part."""

    centers: NDArray
    nearest: NDArray
    seeds: NDArray


class Ensemble(NamedTuple):
    """The clusters and parts of all learners, and how the fits ended: ``status`` is "converged" or "max_iter"."""

    centers: list[NDArray]
    parts: list[list[Part]]
    objective: list[list[float]]
    n_iter: int
    status: str
    outcome: Outcome


class EnsembleParameters(Protocol):
    """The parameters of an ensemble of local models."""

    n_learners: int
    n_clusters: int | None
    random_state: Any
    verbose: int


def check_ensemble(owner: EnsembleParameters) -> None:
    """Raise ValueError for invalid parameters of an ensemble."""
    check_number("n_clusters", owner.n_clusters, Integral, least=1, optional=True)
    check_number("n_learners", owner.n_learners, Integral, least=1)
    check_number("verbose", owner.verbose, Integral, least=0)


def fit_parts(owner: EnsembleParameters, X: Any, labels: Labels, fit_part: FitPart) -> Ensemble:
    """Cluster the rows for each learner, then fit all parts of all learners in parallel.

    Every learner and every part has its own random generator: the result does not depend on the number of threads,
    and the first learners do not depend on the number of learners. ``owner`` is the estimator; ``fit_part`` fits a
    model to the rows of a cluster.
    """
    name, rng = type(owner).__name__, check_random_state(owner.random_state)
    seeds = rng.randint(LARGEST_SEED, size=owner.n_learners)
    n_clusters = choose_n_clusters(owner.n_clusters, X.shape[0], ROWS_PER_CLUSTER)
    cluster_tasks = [partial(_cluster_rows, X, n_clusters, np.random.RandomState(seed)) for seed in seeds]
    clusterings: list[RowClusters] = []
    with progress(len(cluster_tasks), f"{name}: clusters", 0) as advance:
        for clusters in checkpoint_calls("clusters", cluster_tasks, RowClusters):
            clusterings.append(clusters)
            advance(f"{len(clusters.centers)} clusters")
    tasks = [
        partial(_fit_rows, fit_part, X, labels, np.flatnonzero(clusters.nearest == c), np.random.RandomState(seed))
        for clusters in clusterings
        for c, seed in enumerate(clusters.seeds)
    ]
    fits: list[PartFit] = []
    with progress(len(tasks), name, owner.verbose) as advance:
        for fit in checkpoint_calls("part", tasks, PartFit):
            fits.append(fit)
            advance(f"cluster of {len(fit.part['rows'])} rows")
    centers = [clusters.centers for clusters in clusterings]
    bounds = np.cumsum([0, *map(len, centers)])
    advice = sorted({text for fit in fits for text in fit.advice})
    warning = f"{name} stopped some parts before they converged; {', and '.join(advice)}." if advice else None
    return Ensemble(
        centers,
        [[fit.part for fit in fits[start:stop]] for start, stop in pairwise(bounds)],
        [fit.objective for fit in fits],
        max(fit.n_iter for fit in fits),
        "max_iter" if advice else "converged",
        Outcome(warning),
    )


def _cluster_rows(X: Any, n_clusters: int, rng: np.random.RandomState) -> RowClusters:
    clustering, nearest = cluster(X, n_clusters, rng=rng)
    return RowClusters(clustering.centers, nearest, rng.randint(LARGEST_SEED, size=len(clustering.centers)))


def _fit_rows(fit_part: FitPart, X: Any, labels: Labels, rows: NDArray, rng: np.random.RandomState) -> PartFit:
    fit = fit_part(X[rows], labels[rows], rng)
    return fit._replace(part={"rows": rows, **fit.part})


def route_rows(X: Any, centers: list[NDArray], parts: list[list[Part]]) -> Iterator[tuple[Part, NDArray]]:
    """Yield each part of each learner with the rows of X nearest to its cluster, unless there are none."""
    for learner_centers, learner_parts in zip(centers, parts, strict=True):
        nearest = Clustering(learner_centers).assign(X)
        for c, part in enumerate(learner_parts):
            rows = np.flatnonzero(nearest == c)
            if len(rows):
                yield part, rows


def check_parts(
    centers: list[NDArray], parts: list[list[Part]], n_features: int, check_part: Callable[[Part], None]
) -> None:
    """Raise ValueError if parts and clusters read from a file do not match.

    ``check_part`` raises an error for a part that does not match the model.
    """
    if not parts:
        raise ValueError("there is no learner")
    try:
        for learner_centers, learner_parts in zip(centers, parts, strict=True):
            if learner_centers.shape != (len(learner_parts), n_features):
                raise ValueError("the clusters do not match the parts")
            for part in learner_parts:
                check_part(part)
    except (IndexError, KeyError, TypeError) as error:
        raise ValueError(f"a part is incomplete: {error!r}") from error


def choose_n_clusters(n_clusters: int | None, n_rows: int, size: int) -> int:
    """Return the number of clusters: ``n_clusters``, or one for each ``size`` rows if it is None.

    >>> choose_n_clusters(None, 13_000, 6_000), choose_n_clusters(3, 10, 6_000)
    (2, 3)
    """
    if n_clusters is None:
        return max(1, n_rows // size)
    if n_clusters > n_rows:
        raise ValueError(
            f"n_clusters={n_clusters} is above the number of rows, {n_rows}; pass at most {n_rows}, or None for one "
            f"cluster for each {size} rows."
        )
    return n_clusters


def are_indices(values: Any, size: int) -> bool:
    """Return whether the values are an array of indices below ``size``."""
    return isinstance(values, np.ndarray) and values.dtype.kind in "iu" and bool(np.isin(values, range(size)).all())


ADVICE = {
    "max_iter": ("raise max_iter or tol",),
    "stalled": ("scale the features or pass dtype='float64', since rounding made F rise",),
}


class LocalLEML(MultiLabelEstimator):
    """Ensemble of :class:`~labelgap.LEML` models for clusters of the rows, averaged over several clusterings.

    A label without positives in a cluster is negative there. Bhatia et al. (2015) compare SLEEC with this method.

    Parameters
    ----------
    n_components : int, optional
        The rank in each cluster, at most the number of labels and features there.
    n_clusters : int, optional
        Number of clusters of a learner. Default: max(1, ⌊n / 6000⌋).
    n_learners : int, default=5
        Number of clusterings to average.
    alpha, alpha_labels, loss, fit_intercept, init, solver, max_iter, tol
        As in :class:`~labelgap.LEML`.
    absent, random_state, n_jobs, device, dtype, verbose
        As in :class:`~labelgap.LEML`.

    Attributes
    ----------
    parts_ : list of list of dict
        For each learner and cluster: "rows" (indices of training rows), "labels" (indices of labels with positives),
        "features" (W), "intercept" and "factors" (H).
    objective_ : list of list of float
        F of each part after each alternation.
    status_ : str
        "converged", or "max_iter" if some part did not converge.

    Examples
    --------
    >>> import numpy as np
    >>> from labelgap import LocalLEML
    >>> X = np.array([[1.0, 0.0], [1.0, 0.2], [0.0, 1.0], [0.1, 1.0]])
    >>> Y = np.array([[1, 0], [1, 0], [0, 1], [0, 1]])
    >>> LocalLEML(1, n_clusters=2, alpha=0.01, random_state=0).fit(X, Y).predict([[0.0, 1.0]])
    array([[0, 1]])
    """

    about = About(
        "LEML in each cluster of the rows.",
        "Bhatia, Jain, Kar, Varma and Jain 2015",
        missing_labels=True,
        fit="T (z + y) k an alternation",
        predict="T (z/n + L) k",
    )

    _uses_device = True

    centers_: list[NDArray]
    parts_: list[list[Part]]
    objective_: list[list[float]]
    n_iter_: int
    status_: str
    threshold_: float

    def __init__(
        self,
        n_components: int | None = None,
        *,
        n_clusters: int | None = None,
        n_learners: int = 5,
        alpha: float = 1.0,
        alpha_labels: float | None = None,
        loss: str | Loss = "squared",
        fit_intercept: bool = True,
        init: Literal["svd", "random"] = "svd",
        solver: Literal["auto", "direct", "cg", "tron"] = "auto",
        max_iter: int = 30,
        tol: float = 1e-3,
        absent: Literal["negative", "unknown"] = "negative",
        random_state: RandomSeed = None,
        n_jobs: int | None = None,
        device: str = "auto",
        dtype: DTypeLike = "float32",
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.n_clusters = n_clusters
        self.n_learners = n_learners
        self.alpha = alpha
        self.alpha_labels = alpha_labels
        self.loss = loss
        self.fit_intercept = fit_intercept
        self.init = init
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.absent = absent
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device
        self.dtype = dtype
        self.verbose = verbose

    def _check_parameters(self) -> None:
        self._check_common()
        check_ensemble(self)
        self._make_leml()._check_parameters()

    def _learn(self, X: Any, labels: Labels) -> Outcome:
        ensemble = fit_parts(self, X, labels, self._fit_part)
        self.centers_, self.parts_ = ensemble.centers, ensemble.parts
        self.objective_, self.n_iter_, self.status_ = ensemble.objective, ensemble.n_iter, ensemble.status
        self.threshold_ = get_loss(self.loss).threshold
        return ensemble.outcome

    def _make_leml(self) -> LEML:
        names = LEML._get_param_names()
        parameters = {name: value for name, value in self.get_params(deep=False).items() if name in names}
        return LEML(**parameters | {"n_jobs": None, "verbose": 0})

    def _fit_part(self, X: Any, labels: Labels, rng: np.random.RandomState) -> PartFit:
        counts = np.bincount(labels.positives.indices, minlength=labels.shape[1])
        present = np.flatnonzero(counts)
        if not len(present):
            shapes = {"features": (X.shape[1], 1), "intercept": (1,), "factors": (0, 1)}
            empty = {name: np.zeros(shape, self.dtype) for name, shape in shapes.items()}
            return PartFit({"labels": np.arange(0), **empty}, [], 1)
        leml = self._make_leml().set_params(random_state=rng)
        if self.n_components is not None:
            leml.set_params(n_components=min(self.n_components, X.shape[1], len(present)))
        outcome = fit_bound(leml, leml._bind(X, labels.T[present].T), lasting=False)
        if outcome.interrupt is not None:
            raise outcome.interrupt
        part = {
            "labels": present,
            "features": leml.feature_factors_,
            "intercept": leml.intercept_factors_,
            "factors": leml.label_factors_,
        }
        return PartFit(part, leml.objective_, leml.n_iter_, ADVICE.get(leml.status_, ()))

    def _scores(self, X: Any) -> BlockScores:
        return BlockScores(lambda: self._blocks(X), get_backend())

    def _blocks(self, X: Any) -> Iterator[NDArray]:
        kernels, dtype = self._prediction_kernels(X.shape[0]), np.dtype(self.dtype).type
        low = dtype(get_loss(self.loss).negative)
        for block in split_rows(X, self.n_labels_, arrays=2):
            scores = np.zeros((block.shape[0], self.n_labels_), dtype)
            for part, rows in route_rows(block, self.centers_, self.parts_):
                B = embed_rows(block[rows], part["features"], part["intercept"], kernels, dtype)
                values = kernels.matmul(B, kernels.array(part["factors"], dtype).T)
                local = np.full((len(rows), self.n_labels_), low, dtype)
                local[:, part["labels"]] = kernels.to_numpy(values)
                scores[rows] += local
            scores /= dtype(len(self.parts_))
            yield scores - dtype(self.threshold_)

    def _check_loaded(self) -> None:
        check_parts(self.centers_, self.parts_, self.n_features_in_, self._check_part)

    def _check_part(self, part: Part) -> None:
        labels, k = part["labels"], len(part["intercept"])
        if part["features"].shape != (self.n_features_in_, k) or part["factors"].shape != (len(labels), k):
            raise ValueError("a part has factors of different ranks")
        if not are_indices(labels, self.n_labels_):
            raise ValueError("a part has labels that the model does not have")
