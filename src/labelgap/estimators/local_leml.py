"""LEML in each cluster, and an ensemble of clusterings: the comparison that SLEEC's paper draws."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from labelgap.estimators.about import About
from labelgap.estimators.base import MultiLabelEstimator, Outcome
from labelgap.estimators.leml import LEML
from labelgap.estimators.local import Fitted, Part, are_places, check_ensemble, check_parts, learn_parts, route
from labelgap.estimators.low_rank import fit_bound
from labelgap.estimators.scores import BlockScores, row_blocks
from labelgap.kernels import get_backend
from labelgap.losses import Loss, get_loss
from labelgap.objectives import Features
from labelgap.observations import Labels

ADVICE = {
    "max_iter": ("raise max_iter or tol",),
    "stalled": ("scale the features or pass dtype='float64', since rounding made F rise",),
}


class LocalLEML(MultiLabelEstimator):
    """A :class:`~labelgap.LEML` for each cluster of the rows; the scores of several clusterings are averaged.

    A label that no row of a cluster has is a "no" there.

    Parameters
    ----------
    n_components : int, optional
        The rank in each cluster; where a cluster has fewer labels or features, that many.
    n_clusters : int, optional
        The number of clusters of a learner; max(1, ⌊n / 6000⌋) by default.
    n_learners : int, default=5
        The number of clusterings that are averaged.
    alpha, alpha_labels, loss, fit_intercept, init, solver, max_iter, tol
        As in :class:`~labelgap.LEML`.
    absent, random_state, n_jobs, device, dtype, verbose
        As in :class:`~labelgap.LEML`.

    Attributes
    ----------
    parts_ : list of list of dict
        For each learner and cluster: "rows" (indices of training rows), "labels" (indices of the labels that it
        knows), "features" (W), "intercept" and "factors" (H).
    objective_ : list of list of float
        F of each part after each alternation.
    status_ : str
        "converged", or "max_iter" where a part was not.

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
        random_state: Any = None,
        n_jobs: int | None = None,
        device: str = "auto",
        dtype: Any = "float32",
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
        self._local()._check_parameters()

    def _learn(self, X: Any, labels: Labels) -> Outcome:
        found = learn_parts(self, X, labels, self._fit_part)
        self.centers_, self.parts_ = found.centers, found.parts
        self.objective_, self.n_iter_, self.status_ = found.objective, found.n_iter, found.status
        self.threshold_ = get_loss(self.loss).threshold
        return found.outcome

    def _local(self) -> LEML:
        shared = LEML._get_param_names()
        given = {name: value for name, value in self.get_params(deep=False).items() if name in shared}
        return LEML(**given | {"n_jobs": None, "verbose": 0})

    def _fit_part(self, X: Any, labels: Labels, rng: np.random.RandomState) -> Fitted:
        counts = np.bincount(labels.positives.indices, minlength=labels.shape[1])
        present = np.flatnonzero(counts)
        if not len(present):
            return Fitted(self._empty(X.shape[1]), [], 1)
        local = self._local().set_params(random_state=rng)
        if self.n_components is not None:
            local.set_params(n_components=min(self.n_components, X.shape[1], len(present)))
        ended = fit_bound(local, local._bind(X, labels.T[present].T), lasting=False)
        if ended.interrupt is not None:
            raise ended.interrupt
        part = {
            "labels": present,
            "features": local.feature_factors_,
            "intercept": local.intercept_factors_,
            "factors": local.label_factors_,
        }
        return Fitted(part, local.objective_, local.n_iter_, ADVICE.get(local.status_, ()))

    def _empty(self, n_features: int) -> Part:
        """Return a part that knows no label."""
        shapes = {"features": (n_features, 1), "intercept": (1,), "factors": (0, 1)}
        return {"labels": np.arange(0), **{name: np.zeros(shape, self.dtype) for name, shape in shapes.items()}}

    def _scores(self, X: Any) -> BlockScores:
        return BlockScores(lambda: self._blocks(X), get_backend())

    def _blocks(self, X: Any) -> Iterator[NDArray]:
        kernels, dtype = get_backend(), np.dtype(self.dtype).type
        low = dtype(get_loss(self.loss).negative)
        for block in row_blocks(X, self.n_labels_, arrays=2):
            scores = np.zeros((block.shape[0], self.n_labels_), dtype)
            for part, rows in route(block, self.centers_, self.parts_):
                B = Features(block[rows], kernels, dtype).times(part["features"]) + part["intercept"]
                local = np.full((len(rows), self.n_labels_), low, dtype)
                local[:, part["labels"]] = kernels.matmul(B, part["factors"].T)
                scores[rows] += local
            scores /= dtype(len(self.parts_))
            yield scores - dtype(self.threshold_)

    def _check_loaded(self) -> None:
        check_parts(self.centers_, self.parts_, self.n_features_in_, self._check_part)

    def _check_part(self, part: Part) -> None:
        labels, k = part["labels"], len(part["intercept"])
        if part["features"].shape != (self.n_features_in_, k) or part["factors"].shape != (len(labels), k):
            raise ValueError("a part has factors that do not go together")
        if not are_places(labels, self.n_labels_):
            raise ValueError("a part has labels that the model does not have")
