"""OneClassMF without knowing its weight, penalty or number of alternations."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from labelgap.estimators import MultiLabelEstimator, OneClassMF
from labelgap.estimators.low_rank import Iteration
from labelgap.estimators.one_class import Material
from labelgap.kernels import Backend
from labelgap.losses import Loss, get_loss
from labelgap.metrics import Metric
from labelgap.model_selection.criteria import get_criterion
from labelgap.model_selection.splits import check_share
from labelgap.model_selection.walk import Point, Walk
from labelgap.objectives import make_features
from labelgap.observations import Labels, as_labels, hold_out_positives
from labelgap.runtime import progress, threads
from labelgap.solvers.base import LinearMap

# The paper's grids (002, Supp-2.2) are the bounds; every power of two within them is a candidate.
WEIGHTS = [2.0**power for power in range(-9, 1)]
ALPHAS = [2.0**power for power in range(-6, 7)]
GRAPH_ALPHAS = [2.0**power for power in range(-6, 11)]
RATIOS = [0.25, 0.5, 1.0, 2.0]
STARTS = {"weight_unlabelled": 2.0**-5, "alpha": 0.5, "graph_alpha": 1.0, "negative_ratio": 1.0}


@dataclass(frozen=True)
class Judge:
    """Ranks held-out rows, or the training rows less what they were trained on, by their held-out positives."""

    rows: LinearMap
    right: LinearMap
    held_out: Labels
    seen: Any
    metrics: tuple[Metric, ...]
    kernels: Backend

    def __call__(self, W: NDArray, H: NDArray) -> float:
        """Return the geometric mean of the metrics, in which each has the same say whatever its scale."""
        depth = min(max(metric.depth for metric in self.metrics), self.held_out.shape[1])
        ranking = self.kernels.topk(self.rows.times(W), self.right.times(H), depth, self.seen)
        values = [metric.fresh().update(self.held_out, ranking).compute() for metric in self.metrics]
        return float(np.exp(np.mean(np.log(np.maximum(values, 1e-6)))))


class OneClassMFCV(MultiLabelEstimator):
    """:class:`OneClassMF` with its weight, penalties and number of alternations chosen on held-out positives.

    A walk goes along one parameter after the other while the held-out score rises, each fit starting from the
    factors of its neighbour. At the point it ends in, a fit from the start is judged after each alternation, and the
    best number of alternations is a parameter like the others (002, Supp-2.2). The last fit is on everything.

    Parameters
    ----------
    n_components : int, optional
        As in :class:`OneClassMF`, and so are all parameters that are not listed here.
    weights : sequence of float, optional
        Candidates for ``weight_unlabelled``. By default the powers of two from 2⁻⁹ to 1, the paper's range, times two
        where the loss is not squared, which makes them the paper's own. A single one is a fixed choice.
    alphas : sequence of float, optional
        Candidates for ``alpha``; by default 2⁻⁶ … 2⁶, scaled likewise.
    graph_alphas : sequence of float, optional
        Candidates for ``graph_alpha``, where there is a graph; by default 2⁻⁶ … 2¹⁰, scaled likewise.
    ratios : sequence of float, optional
        Candidates for ``negative_ratio`` of subsampled negatives, whose weight is 1; by default ¼, ½, 1 and 2.
    metric : str, Metric or a sequence of them, default=("P@1", "P@3", "P@5")
        What is maximised: of several metrics their geometric mean.
    hold_out : {"auto", "rows", "positives"}, default="auto"
        Judge by rows that were held out, or by positives that were; "auto" is rows where there are features.
    share : float, default=0.2
        How much is held out.
    n_splits : int, default=1
        The number of random splits whose scores are averaged.
    max_iter : int, default=15
        The most alternations of a fit.
    path_iter : int, default=3
        The most alternations of a step of the walk.

    Attributes
    ----------
    best_params_ : dict
        What was chosen: weight_unlabelled, alpha, max_iter and, where they were searched, the others.
    best_score_ : float
        Its score on what was held out.
    best_estimator_ : OneClassMF
        Fitted with it on everything.
    table_ : list of dict
        Every candidate visited, in order, with its score.

    Examples
    --------
    >>> from labelgap.datasets import make_low_rank
    >>> from labelgap import OneClassMFCV, hide_positives
    >>> data = make_low_rank(300, 12, 10, rank=3, random_state=0)
    >>> model = OneClassMFCV(3, random_state=0).fit(data.X, hide_positives(data.Y, 0.5, random_state=0))
    >>> sorted(model.best_params_)
    ['alpha', 'max_iter', 'weight_unlabelled']
    """

    best_estimator_: OneClassMF

    def __init__(
        self,
        n_components: int | None = None,
        *,
        loss: str | Loss = "logistic",
        negative_target: float = -1.0,
        loss_unlabelled: str | Loss = "squared",
        negatives: Literal["all", "subsampled"] = "all",
        weights: Sequence[float] | None = None,
        alphas: Sequence[float] | None = None,
        graph_alphas: Sequence[float] | None = None,
        ratios: Sequence[float] | None = None,
        metric: Any = ("P@1", "P@3", "P@5"),
        hold_out: Literal["auto", "rows", "positives"] = "auto",
        share: float = 0.2,
        n_splits: int = 1,
        fit_intercept: bool = True,
        init: Literal["svd", "random"] = "svd",
        solver: Literal["auto", "cg", "tron", "gd", "direct"] = "auto",
        max_iter: int = 15,
        path_iter: int = 3,
        tol: float = 1e-3,
        keep_rows: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
        device: str = "auto",
        dtype: Any = "float32",
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.loss = loss
        self.negative_target = negative_target
        self.loss_unlabelled = loss_unlabelled
        self.negatives = negatives
        self.weights = weights
        self.alphas = alphas
        self.graph_alphas = graph_alphas
        self.ratios = ratios
        self.metric = metric
        self.hold_out = hold_out
        self.share = share
        self.n_splits = n_splits
        self.fit_intercept = fit_intercept
        self.init = init
        self.solver = solver
        self.max_iter = max_iter
        self.path_iter = path_iter
        self.tol = tol
        self.keep_rows = keep_rows
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device
        self.dtype = dtype
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        Y: Any,
        observed: Any = None,
        *,
        row_graph: Any = None,
        label_graph: Any = None,
        label_features: Any = None,
    ) -> Self:
        """Choose parameters on held-out positives, then learn from everything; see :meth:`OneClassMF.fit`."""
        estimator = self._estimator()
        estimator._check_parameters()
        check_share(self.share)
        side = {"row_graph": row_graph, "label_graph": label_graph, "label_features": label_features}
        with self._unchanged_on_error(), threads(self.n_jobs):
            axes = self._axes(any(graph is not None for graph in (row_graph, label_graph)))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                search = _Search(estimator, axes, list(self._folds(estimator, X, Y, observed, side)), self)
                search.run()
                self.best_params_, self.best_score_, self.table_ = search.params, search.score, search.table
                estimator = self._estimator().set_params(**search.params, tol=0.0)
                self.best_estimator_ = estimator.fit(X, Y, observed, **side)
            self.container_, self.n_labels_ = self.best_estimator_.container_, self.best_estimator_.n_labels_
            self.n_features_in_ = self.best_estimator_.n_features_in_
            if hasattr(self.best_estimator_, "feature_names_in_"):
                self.feature_names_in_ = self.best_estimator_.feature_names_in_
        return self

    def _estimator(self) -> OneClassMF:
        names = OneClassMF().get_params().keys() & self.get_params().keys()
        return OneClassMF(**{name: getattr(self, name) for name in names})

    def _axes(self, graph: bool) -> dict[str, list[float]]:
        scale = 1.0 if get_loss(self.loss).quadratic else 2.0
        grids = {"weight_unlabelled": (self.weights, WEIGHTS), "alpha": (self.alphas, ALPHAS)}
        if graph:
            grids["graph_alpha"] = (self.graph_alphas, GRAPH_ALPHAS)
        axes = {
            name: [scale * value for value in default] if given is None else _candidates(name, given)
            for name, (given, default) in grids.items()
        }
        if self.negatives == "subsampled":
            axes["weight_unlabelled"] = [1.0] if self.weights is None else axes["weight_unlabelled"]
            axes["negative_ratio"] = RATIOS if self.ratios is None else _candidates("ratios", self.ratios)
        return axes

    def _folds(
        self, estimator: OneClassMF, X: Any, Y: Any, observed: Any, side: dict[str, Any]
    ) -> Iterator[tuple[Material, Judge]]:
        """Yield what to train on and what to judge by, for each split."""
        labels = as_labels(Y, observed)
        by_rows = X is not None if self.hold_out == "auto" else self.hold_out == "rows"
        if by_rows and X is None:
            raise ValueError("hold_out='rows' needs features to know new rows by; pass X, or hold_out='positives'.")
        rng = check_random_state(self.random_state)
        for _ in range(self.n_splits):
            yield (self._held_rows if by_rows else self._held_positives)(estimator, X, labels, side, rng)

    def _held_rows(
        self, estimator: OneClassMF, X: Any, labels: Labels, side: dict[str, Any], rng: np.random.RandomState
    ) -> tuple[Material, Judge]:
        X = X if sp.issparse(X) else np.asarray(X)
        order = rng.permutation(len(labels))
        cut = max(1, round(self.share * len(labels)))
        held, kept = np.sort(order[:cut]), np.sort(order[cut:])
        graph = side["row_graph"]
        inner = side | {"row_graph": None if graph is None else sp.csr_array(graph)[kept][:, kept]}
        material = estimator._material(X[kept], labels[kept], None, **inner)
        features = make_features(
            X[held], estimator._kernels(), np.dtype(self.dtype).type, constant=self.fit_intercept
        )
        return material, self._judge(estimator, material, features, labels.positives[held], None)

    def _held_positives(
        self, estimator: OneClassMF, X: Any, labels: Labels, side: dict[str, Any], rng: np.random.RandomState
    ) -> tuple[Material, Judge]:
        train, held = hold_out_positives(labels, self.share, random_state=rng)
        material = estimator._material(X, train, None, **side)
        seen = estimator._kernels().prepare(train, np.dtype(self.dtype).type)
        return material, self._judge(estimator, material, material.left, held, seen)

    def _judge(self, estimator: OneClassMF, material: Material, rows: LinearMap, held_out: Any, seen: Any) -> Judge:
        several = isinstance(self.metric, Sequence) and not isinstance(self.metric, str)
        metrics = tuple(get_criterion(one).measure for one in (self.metric if several else [self.metric]))
        if not all(isinstance(metric, Metric) and metric.depth > 0 for metric in metrics):
            raise ValueError(f"metric={self.metric!r} is no ranking at the top; use P@k, nDCG@k or recall@k.")
        return Judge(rows, material.right, as_labels(held_out), seen, metrics, estimator._kernels())  # type: ignore

    def _decision_blocks(self, X: Any) -> Iterator[NDArray]:
        return self.best_estimator_._decision_blocks(X)

    def _topk(self, X: Any, k: int) -> tuple[NDArray, NDArray]:
        return self.best_estimator_._topk(X, k)

    def _known_scores(self, X: Any, labels: Labels) -> sp.csr_array:
        return self.best_estimator_._known_scores(X, labels)

    def _check_rows(self, X: Any, *, reset: bool = False) -> Any:
        return self.best_estimator_._check_rows(X)

    def recommend(self, users: Any, k: int = 10, *, exclude_seen: bool = True) -> tuple[NDArray, NDArray]:
        """See :meth:`OneClassMF.recommend`."""
        check_is_fitted(self)
        return self.best_estimator_.recommend(users, k, exclude_seen=exclude_seen)

    def save(self, path: Any) -> None:
        """Write the best estimator, which is an :class:`OneClassMF` with the parameters that were chosen."""
        check_is_fitted(self)
        self.best_estimator_.save(path)


class _Search:
    """The walk over the candidates, then the number of alternations."""

    def __init__(
        self,
        estimator: OneClassMF,
        axes: dict[str, list[float]],
        folds: list[tuple[Material, Judge]],
        options: OneClassMFCV,
    ) -> None:
        self.estimator, self.axes, self.folds, self.options = estimator, axes, folds, options
        self.table: list[dict[str, Any]] = []
        self._factors: dict[Point, list[tuple[NDArray, NDArray]]] = {}
        self._cold: dict[Point, float] = {}
        self._lengths: dict[Point, int] = {}

    def run(self) -> None:
        """Find the parameters and their score."""
        start = tuple(
            min(range(len(values)), key=lambda i: abs(np.log(max(values[i], 1e-300) / STARTS[name])))
            for name, values in self.axes.items()
        )
        sizes = [len(values) for values in self.axes.values()]
        with progress(0, "OneClassMFCV", self.options.verbose) as self._advance:
            near = Walk(sizes, self._warm_score).run(start)
            best = Walk(sizes, self._cold_score).run(near)
        self.params, self.score = self._params(best) | {"max_iter": self._lengths[best]}, self._cold[best]

    def _params(self, point: Point) -> dict[str, Any]:
        return {name: values[i] for (name, values), i in zip(self.axes.items(), point)}

    def _warm_score(self, point: Point, near: Point | None) -> float:
        """Fit from the neighbour's factors and return the mean score over the splits."""
        found, scores = [], []
        self.estimator.set_params(**self._params(point), max_iter=self.options.path_iter)
        for number, (material, judge) in enumerate(self.folds):
            self.estimator._fit_material(material, None if near is None else self._factors[near][number])
            found.append(self.estimator._previous_factors())
            scores.append(judge(*found[-1]))
        kept = {near, self._best_warm}
        self._factors = {place: pair for place, pair in self._factors.items() if place in kept} | {point: found}
        return self._note(point, float(np.mean(scores)), warm=True)

    def _cold_score(self, point: Point, near: Point | None) -> float:
        """Fit from the start, judge after each alternation, and return the best mean score over the splits."""
        self.estimator.set_params(**self._params(point), max_iter=self.options.max_iter)
        curves = [self._curve(material, judge) for material, judge in self.folds]
        longest = max(len(curve) for curve in curves)
        mean = np.mean([curve + curve[-1:] * (longest - len(curve)) for curve in curves], axis=0)
        self._lengths[point] = int(np.argmax(mean)) + 1
        self._cold[point] = float(mean.max())
        return self._note(point, self._cold[point], warm=False, max_iter=self._lengths[point])

    @property
    def _best_warm(self) -> Point | None:
        return max(self.table, key=lambda row: row["score"])["point"] if self.table else None

    def _note(self, point: Point, score: float, **more: Any) -> float:
        params = self._params(point)
        self.table.append({"point": point, "params": params, "score": score, **more})
        self._advance(f"{params}: {score:.4f}")
        return score

    def _curve(self, material: Material, judge: Judge) -> list[float]:
        scores: list[float] = []

        def note(told: Iteration) -> None:
            scores.append(judge(told.feature_factors, told.label_factors))

        self.estimator.set_params(callbacks=[note])
        self.estimator._fit_material(material)
        self.estimator.set_params(callbacks=None)
        return scores


def _candidates(name: str, values: Sequence[float]) -> list[float]:
    """Return candidates in order; refuse none at all, and what is no finite number of at least 0."""
    array = np.sort(np.atleast_1d(np.asarray(values, float)))
    if array.size == 0 or not ((array >= 0) & (array < np.inf)).all():
        raise ValueError(f"The candidates of {name} are {values!r}; pass one or more finite numbers of at least 0.")
    return array.tolist()
