"""OneClassMF without knowing its weight, penalty or number of alternations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from numbers import Integral
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from labelgap.estimators import OneClassMF
from labelgap.estimators.low_rank import Factors, fit_bound
from labelgap.estimators.parameters import check_choice, check_number
from labelgap.kernels import Backend, get_backend
from labelgap.losses import Loss, get_loss
from labelgap.metrics import Metric
from labelgap.model_selection.best import BestEstimator, chosen
from labelgap.model_selection.criteria import Criterion, get_criterion
from labelgap.model_selection.engine import Scored, Search
from labelgap.model_selection.plan import Point, Walk
from labelgap.model_selection.splits import check_share
from labelgap.objectives import Features, SideData
from labelgap.objectives.problem import BoundData, Iteration
from labelgap.observations import Labels, as_labels, hold_out_positives
from labelgap.runtime import progress
from labelgap.solvers.base import LinearMap

# The paper's grids (002, Supp-2.2) are the bounds; every power of two within them is a candidate, and for α, which
# the score depends on most, every power of √2.
WEIGHTS = [2.0**power for power in range(-9, 1)]
ALPHAS = [2.0 ** (halves / 2) for halves in range(-12, 13)]
GRAPH_ALPHAS = [2.0**power for power in range(-6, 11)]
RATIOS = [0.25, 0.5, 1.0, 2.0]

Fold = tuple[BoundData, LinearMap, Labels, Any]  # to train on; rows to rank labels for; their positives; seen ones


STARTS = {"weight_unlabelled": 2.0**-5, "alpha": 0.5, "graph_alpha": 1.0, "negative_ratio": 1.0}
PATIENCE = 2  # alternations without a better score after which a fit from the start is given up
KEPT = 8  # candidates whose factors are kept for their neighbours to start from


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
        kernels, dtype = self.kernels, H.dtype
        B = self.rows.times((kernels.rows if self.rows.is_identity else kernels.array)(W, dtype))
        best = kernels.topk(B, self.right.times(kernels.array(H, dtype)), depth, self.seen)
        ranking = kernels.to_numpy(best[0]), kernels.to_numpy(best[1])
        values = [metric.fresh().update(self.held_out, ranking).compute() for metric in self.metrics]
        return float(np.exp(np.mean(np.log(np.maximum(values, 1e-6)))))


GREATER = Criterion(lambda labels, scores: 0.0)  # what a judge returns: more is better


class AlternationFolds:
    """Fits OneClassMF on bound folds: from the factors of another candidate, or judged after each alternation."""

    def __init__(self, estimator: OneClassMF, folds: list[tuple[BoundData, Judge]]) -> None:
        self.estimator, self.folds = estimator.set_params(verbose=0), folds
        self._fitted: dict[str, list[Factors]] = {}

    def __call__(
        self, params: dict[str, Any], *, max_iter: int, start: dict[str, Any] | None = None, each: bool = False
    ) -> list[Scored]:
        self.estimator.set_params(**params, max_iter=max_iter)
        starts: Sequence[Factors | None] = self._fitted.get(repr(start), [])
        scored: list[Scored] = []
        fitted: list[Factors] = []
        for (data, judge), near in zip_longest(self.folds, starts):
            curve = self._fit(data, judge, near, each)
            fitted.append(Factors.of(self.estimator))
            scored.append(Scored(np.array(curve or [judge(*fitted[-1])])[:, None], not each))
        if not each:
            self._fitted[repr(params)] = fitted
            if len(self._fitted) > KEPT:
                del self._fitted[next(iter(self._fitted))]
        return scored

    def _fit(self, data: BoundData, judge: Judge, near: Factors | None, each: bool) -> list[float]:
        """Fit, and return the scores after each alternation where they are asked for."""
        scores: list[float] = []

        def note(told: Iteration) -> bool:
            scores.append(judge(told.feature_factors, told.label_factors))
            return len(scores) - int(np.argmax(scores)) > PATIENCE

        self.estimator.set_params(callbacks=[note] if each else None)
        # That it stopped after a number of alternations chosen on purpose is no cause for a warning.
        ended = fit_bound(self.estimator, data, near, lasting=False)
        if ended.interrupt is not None:
            raise ended.interrupt
        return scores


class OneClassMFCV(BestEstimator):
    """:class:`OneClassMF` with its weight, penalties and number of alternations chosen on held-out data.

    A path goes through the weights, and at each of them along the penalties while the held-out score rises, each fit
    starting from the factors of its neighbour. Around the best point of the path, fits from the start are judged
    after each alternation, and the best number of alternations is a parameter like the others (002, Supp-2.2). The
    last fit is on everything.

    Parameters
    ----------
    n_components : int, optional
        As in :class:`OneClassMF`, and so are all parameters that are not listed here.
    weights : sequence of float, optional
        Candidates for ``weight_unlabelled``. By default the powers of two from 2⁻⁹ to 1, the paper's range, times two
        where only the unlabelled cells have squared loss, which makes them the paper's own. A single one is a fixed
        choice.
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
    n_splits : int, default=2
        The number of random splits whose scores are averaged.
    max_iter : int, default=15
        The most alternations of a fit.
    path_iter : int, default=1
        The most alternations of a step of the path.
    keep_rows : bool, default=False
        As in :class:`OneClassMF`.

    Attributes
    ----------
    best_params_ : dict
        What was chosen: weight_unlabelled, alpha, max_iter and, where they were searched, the others.
    best_score_ : float
        Its score on what was held out.
    best_estimator_ : OneClassMF
        Fitted with it on everything, for exactly the number of alternations chosen (its ``tol`` is 0).
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

    about = chosen(OneClassMF.about)

    _uses_device = True

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
        label_graph_alpha: float | None = None,
        alpha_labels: Any = None,
        ratios: Sequence[float] | None = None,
        metric: Any = ("P@1", "P@3", "P@5"),
        hold_out: Literal["auto", "rows", "positives"] = "auto",
        share: float = 0.2,
        n_splits: int = 2,
        fit_intercept: bool = True,
        init: Literal["svd", "random"] = "svd",
        solver: Literal["auto", "cg", "tron", "gd", "direct"] = "auto",
        max_iter: int = 15,
        path_iter: int = 1,
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
        self.label_graph_alpha = label_graph_alpha
        self.alpha_labels = alpha_labels
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
        row_weights: Any = None,
    ) -> Self:
        """Choose parameters on held-out positives, then learn from everything; see :meth:`OneClassMF.fit`."""
        return self._fit(X, Y, observed, SideData(row_graph, label_graph, label_features, row_weights))

    def _check_fit(self, X: Any, Y: Any, observed: Any) -> tuple[Any, Labels]:
        self.best_estimator_ = self._estimator()  # not fitted yet: it knows what to check
        return self.best_estimator_._check_fit(X, Y, observed)

    def _learn(self, X: Any, labels: Labels, side: SideData | None = None) -> None:
        metrics, best, side = self._check_parameters(), self.best_estimator_, side or SideData()
        best.container_, best.n_labels_ = labels.container, labels.shape[1]
        axes = self._axes(graph=side.row_graph is not None or side.label_graph is not None)
        whole = best._bind(X, labels, side)
        folds = AlternationFolds(self._estimator(), list(self._folds(whole, X, metrics)))
        search = Search(folds, [GREATER])
        table = self._walk(search, axes)
        chosen = max((row for row in table if not row["warm"]), key=lambda row: row["score"])
        self.best_params_ = chosen["params"] | {"max_iter": chosen["max_iter"]}
        self.best_score_, self.table_ = chosen["score"], table
        ended = fit_bound(best.set_params(**self.best_params_, tol=0.0), whole)
        if ended.interrupt is not None:
            raise ended.interrupt
        self._adopt(best)

    def _walk(self, search: Search, axes: dict[str, list[float]]) -> list[dict[str, Any]]:
        """Follow the ridge of the score with warm starts, then climb from its top with fits from the start."""
        table: list[dict[str, Any]] = []

        def params(point: Point) -> dict[str, Any]:
            return {name: values[i] for (name, values), i in zip(axes.items(), point)}

        def note(point: Point, row: dict[str, Any], **more: Any) -> float:
            if row["error"] is not None:
                raise search.errors[-1]
            score = float(row["score"][0])
            table.append({"point": point, "params": row["params"], "score": score, **more})
            advance(f"{row['params']}: {score:.4f}")
            return score

        def warm(point: Point, near: Point | None) -> float:
            start = None if near is None else params(near)
            return note(point, search.one(params(point), max_iter=self.path_iter, start=start), warm=True)

        def cold(point: Point, near: Point | None) -> float:
            row = search.one(params(point), max_iter=self.max_iter, each=True)
            return note(point, row, warm=False, max_iter=row["stage"] + 1)

        first = tuple(
            min(range(len(values)), key=lambda i: abs(np.log(max(values[i], 1e-300) / STARTS[name])))
            for name, values in axes.items()
        )
        sizes = [len(values) for values in axes.values()]
        with progress(None, "OneClassMFCV", self.verbose) as advance:
            Walk(sizes, cold).climb(Walk(sizes, warm).follow_ridge(first))
        return table

    def _check_parameters(self) -> tuple[Metric, ...]:
        """Return the metrics, once every parameter means something."""
        self._estimator()._check_parameters()
        check_choice("hold_out", self.hold_out, ("auto", "rows", "positives"))
        check_share(self.share)
        check_number("n_splits", self.n_splits, Integral, least=1)
        check_number("path_iter", self.path_iter, Integral, least=1)
        several = isinstance(self.metric, Sequence) and not isinstance(self.metric, str)
        metrics = tuple(get_criterion(one).measure for one in (self.metric if several else [self.metric]))
        if not metrics or not all(isinstance(metric, Metric) and metric.depth > 0 for metric in metrics):
            raise ValueError(f"metric={self.metric!r} is no ranking at the top; use P@k, nDCG@k or recall@k.")
        return metrics  # type: ignore[return-value]

    def _estimator(self) -> OneClassMF:
        names = OneClassMF().get_params().keys() & self.get_params().keys()
        return OneClassMF(**{name: getattr(self, name) for name in names})

    def _axes(self, graph: bool) -> dict[str, list[float]]:
        # The paper has no ½ in its squared terms: see OneClassMF.
        scale = 1.0 if get_loss(self.loss).quadratic else 2.0
        grids = {"weight_unlabelled": ("weights", WEIGHTS), "alpha": ("alphas", ALPHAS)}
        if graph:
            grids["graph_alpha"] = ("graph_alphas", GRAPH_ALPHAS)
        axes = {
            name: _candidates(argument, getattr(self, argument), [scale * value for value in default])
            for name, (argument, default) in grids.items()
        }
        if not get_loss(self.loss_unlabelled).quadratic:
            axes["weight_unlabelled"] = _candidates("weights", self.weights, WEIGHTS)
        if self.negatives == "subsampled":
            axes["weight_unlabelled"] = _candidates("weights", self.weights, [1.0])
            axes["negative_ratio"] = _candidates("ratios", self.ratios, RATIOS)
        return axes

    def _folds(self, whole: BoundData, X: Any, metrics: tuple[Metric, ...]) -> Iterator[tuple[BoundData, Judge]]:
        """Yield what to train on and what to judge by, for each split."""
        by_rows = X is not None if self.hold_out == "auto" else self.hold_out == "rows"
        if by_rows and X is None:
            raise ValueError("hold_out='rows' needs features to know new rows by; pass X, or hold_out='positives'.")
        rng = check_random_state(self.random_state)
        for _ in range(self.n_splits):
            train, rows, held_out, seen = (
                self._held_rows(whole, X, rng) if by_rows else self._held_positives(whole, rng)
            )
            if held_out.positives.nnz == 0:
                raise ValueError(
                    f"share={self.share} of the {'rows' if by_rows else 'positives'} of Y, which has "
                    f"{whole.labels.positives.nnz} positives in {len(whole.labels)} rows, holds none, so that "
                    "nothing can be judged by it; raise share, or pass more positives."
                )
            yield train, Judge(rows, whole.right, held_out, seen, metrics, get_backend(self.device))

    def _held_rows(self, whole: BoundData, X: Any, rng: np.random.RandomState) -> Fold:
        n, kernels, dtype = len(whole.labels), get_backend(self.device), np.dtype(self.dtype).type
        order, cut = rng.permutation(n), min(max(1, round(self.share * n)), n - 1)
        held, kept = np.sort(order[:cut]), np.sort(order[cut:])
        train = self._estimator()._bind(X[kept], whole.labels[kept], whole.side.of_rows(kept))
        rows = Features(X[held], kernels, dtype, constant=self.fit_intercept)
        return train, rows, whole.labels[held], None

    def _held_positives(self, whole: BoundData, rng: np.random.RandomState) -> Fold:
        train, held = hold_out_positives(whole.labels, self.share, random_state=rng)
        seen = get_backend(self.device).prepare(train, np.dtype(self.dtype).type)
        return replace(whole, labels=as_labels(train)), whole.left, as_labels(held), seen

    def recommend(self, users: Any, k: int = 10, *, exclude_seen: bool = True) -> tuple[NDArray, NDArray]:
        """See :meth:`OneClassMF.recommend`."""
        check_is_fitted(self)
        return self.best_estimator_.recommend(users, k, exclude_seen=exclude_seen)

    def similar_labels(self, labels: Any, k: int = 10) -> tuple[NDArray, NDArray]:
        """See :meth:`OneClassMF.similar_labels`."""
        check_is_fitted(self)
        return self.best_estimator_.similar_labels(labels, k)

    similar_items = similar_labels

    def fold_in_rows(self, positives: Any) -> NDArray:
        """See :meth:`OneClassMF.fold_in_rows`."""
        check_is_fitted(self)
        return self.best_estimator_.fold_in_rows(positives)

    def fold_in_labels(self, positives: Any) -> NDArray:
        """See :meth:`OneClassMF.fold_in_labels`."""
        check_is_fitted(self)
        return self.best_estimator_.fold_in_labels(positives)


def _candidates(name: str, given: Any, default: list[float]) -> list[float]:
    """Return candidates in order, each once; refuse none at all, and what is no finite number of at least 0.

    >>> _candidates("alphas", [1, 0.5, 1], [])
    [0.5, 1.0]
    """
    if given is None:
        return default
    try:
        array = np.unique(np.asarray(given, float))
    except (TypeError, ValueError):
        array = np.empty(0)
    if array.size == 0 or not ((array >= 0) & (array < np.inf)).all():
        raise ValueError(f"{name}={given!r} are no candidates; pass one or more finite numbers of at least 0.")
    return array.tolist()
