"""OneClassMF whose weight, penalties and number of alternations are chosen on held-out data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, DTypeLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from labelgap.estimators import OneClassMF
from labelgap.estimators.low_rank import Factors, fit_bound
from labelgap.estimators.parameters import check_choice, check_number, choose_weights
from labelgap.estimators.scores import FactorScores
from labelgap.kernels import Backend, get_backend
from labelgap.losses import Loss, get_loss
from labelgap.metrics import Metric
from labelgap.model_selection.candidates import Point, Walk, check_candidates
from labelgap.model_selection.criteria import get_criteria
from labelgap.model_selection.engine import (
    Budget,
    DelegatingSearch,
    FoldScores,
    Search,
    SharedStarts,
    WarmStarts,
    copy_input_attributes,
    delegate,
    describe_search,
    draw_first_round,
    is_behind,
    make_estimator,
)
from labelgap.model_selection.splits import check_share
from labelgap.objectives import Features, SideData
from labelgap.objectives.problem import BoundData, Iteration
from labelgap.observations import Labels, as_labels, hold_out_positives
from labelgap.observations.arguments import LabelsLike, MatrixLike, RandomSeed
from labelgap.runtime import progress
from labelgap.solvers.base import LinearMap

# The paper's grids (002, Supp-2.2) give the bounds. Every power of two within them is a candidate.
WEIGHTS = [2.0**power for power in range(-9, 1)]
ALPHAS = [2.0**power for power in range(-6, 7)]
GRAPH_ALPHAS = [2.0**power for power in range(-6, 11)]
RATIOS = [0.25, 0.5, 1.0, 2.0]

FIRST_VALUES = {"weight_unlabelled": 2.0**-5, "alpha": 0.5, "graph_alpha": 1.0, "negative_ratio": 1.0}
FIRST_VALUES |= {"frequency_power": 0.15}
MAX_WORSE_ALTERNATIONS = 1  # in a row, before a fit of the search stops
MAX_PATH_STARTS = 32  # fits that are kept for their neighbours on the path
PATH_COMPONENTS_SHARE, MIN_PATH_COMPONENTS = 0.5, 60  # of the components, for the path
STAGE_MARGIN = 0.003  # of the score, for which no further alternation is worth its time and its risk
MAX_COMPONENTS = 256  # chosen without n_components, if there are as many features and labels
N_TOPS = 3  # points of the path from which the search goes on without features
MARGIN = 0.01  # by which a candidate must be worse than the best one to be dropped before its fits are complete


@dataclass(frozen=True)
class RankingScorer:
    """A callable that scores factors by the ranking of held-out positives."""

    rows: LinearMap  # the features of the rows whose labels are ranked
    right: LinearMap  # the features of the labels
    held_out: Labels
    seen: Any  # training positives of these rows, which are not ranked
    metrics: tuple[Metric, ...]
    kernels: Backend

    def __call__(self, W: NDArray, H: NDArray) -> tuple[float, Factors]:
        """Return the geometric mean of the metrics, whose scales do not matter, and the factors of the ranking."""
        depth = min(max(metric.depth for metric in self.metrics), self.held_out.shape[1])
        kernels, dtype = self.kernels, H.dtype
        B = self.rows.times((kernels.rows if self.rows.is_identity else kernels.array)(W, dtype))
        C = self.right.times(kernels.array(H, dtype))
        best = kernels.topk(B, C, depth, self.seen)
        ranking = kernels.to_numpy(best[0]), kernels.to_numpy(best[1])
        values = [metric.fresh().update(self.held_out, ranking).compute() for metric in self.metrics]
        score = float(np.exp(np.mean(np.log(np.maximum(values, 1e-6)))))
        return score, Factors(kernels.to_numpy(B), kernels.to_numpy(C))


class HeldOut(NamedTuple):
    """Decision values of training rows by a model that was not fitted on what the split holds out.

    Attributes
    ----------
    rows : ndarray of int
        The training rows with decision values: the held-out rows, or all rows if positives are held out.
    scores : FactorScores
        Their decision values, in the order of ``rows``.
    seen : csr_array or None
        The positives of these rows that the model was fitted on, if positives are held out.
    """

    rows: NDArray[np.int64]
    scores: FactorScores
    seen: sp.csr_array | None = None


class Split(NamedTuple):
    """A split of the training data: the data to fit on, the scorer, the rows that it scores, and what these show."""

    data: BoundData
    scorer: RankingScorer
    rows: NDArray[np.int64]
    seen: sp.csr_array | None = None


@dataclass
class Recorder:
    """A callback that scores a fit after each alternation, and ends it when it cannot become the best one."""

    scorer: RankingScorer
    rival: list[float] | None
    is_first: bool  # whether this is the first split, which decides on the number of alternations
    scores: list[float] = field(default_factory=list)
    factors: list[Factors] = field(default_factory=list)

    def __call__(self, iteration: Iteration) -> bool:
        """Return whether the fit is behind its rival, or its score has not risen for some alternations."""
        score, factors = self.scorer(iteration.feature_factors, iteration.label_factors)
        self.scores.append(score)
        self.factors.append(factors)
        is_declining = len(self.scores) - int(np.argmax(self.scores)) > MAX_WORSE_ALTERNATIONS
        return (self.is_first and is_declining) or is_behind(self.scores, self.rival, MARGIN)


class OneClassFoldFitter:
    """A fitter of OneClassMF on bound splits.

    A step of the path is a fit on ``path_split``, the first split or a sub-sample of its rows, with fewer components;
    other fits are scored after each alternation, and end when they cannot win. Without features a step starts from
    the factors of another candidate, so that alternations add up along the path. With features it starts from W = 0,
    from where conjugate gradients take fewest products, and where the other fits start.

    Why a warm start is fair: the factors come from a fit on the training part of the same split, so that no label
    that the split holds out has influenced them, and the scores of the path are never compared with those of other
    fits. What is chosen was fitted on all splits from the start that the last fit has.
    """

    def __init__(self, estimator: OneClassMF, splits: list[Split], path_split: Split) -> None:
        self.estimator, self.splits, self.path_split = estimator.set_params(verbose=0), splits, path_split
        self.n_components = estimator.n_components
        self.starts, self.first = WarmStarts(max_per_fold=MAX_PATH_STARTS), SharedStarts()
        self.scored_factors: list[list[Factors]] = []  # of the last candidate, for each split and alternation

    def __call__(
        self, params: dict[str, Any], *, to_beat: list[NDArray] | None = None, **options: Any
    ) -> Iterator[FoldScores]:
        """Fit and score a candidate; ``to_beat`` are the scores of the best candidate so far on each split."""
        self.estimator.set_params(**params, **options)
        self.scored_factors = []
        for number, split in enumerate(self.splits):
            rival = None if to_beat is None else to_beat[number][:, 0].tolist()
            recorder = Recorder(split.scorer, rival, number == 0)
            self._fit(split, number, None, callbacks=[recorder])
            self.estimator.set_params(max_iter=len(recorder.scores))  # on the other splits too
            self.scored_factors.append(recorder.factors)
            yield FoldScores(np.array(recorder.scores)[:, None])

    def follow_path(
        self, params: dict[str, Any], *, start: dict[str, Any] | None, **options: Any
    ) -> Iterator[FoldScores]:
        """Fit and score a step of the path; ``start`` are the parameters of the candidate to start from."""
        self.estimator.set_params(**params, **options)
        has_features = not self.path_split.data.left.is_identity
        self._fit(self.path_split, 0, None if has_features else self.starts.get(start, 0), callbacks=None)
        factors = Factors.of(self.estimator)
        self.starts.store(params, 0, factors)
        score, _ = self.path_split.scorer(*factors)
        yield FoldScores(np.array([[score]]), True)

    def _fit(self, split: Split, number: int, start: Factors | None, callbacks: Any) -> None:
        model = self.estimator.set_params(callbacks=callbacks)
        weight = model.weight_unlabelled
        kind = number, len(split.data.labels), model.negative_ratio, weight if weight in (0, 1) else None
        first = self.first.share(*kind, n_components=self.n_components)
        outcome = fit_bound(model, split.data, start, lasting=False, make_start=first)
        # The number of alternations is chosen on purpose: a warning about convergence is dropped.
        if outcome.interrupt is not None:
            raise outcome.interrupt


def choose_components(data: BoundData, *, constant: bool) -> int:
    """Return the number of components for data: as many as features and labels allow, up to 256.

    The penalty limits the rank of W Hᵀ, so that a large number costs time and hardly accuracy.
    """
    n_features = data.left.shape[1] - (constant and not data.left.is_identity)
    return min(MAX_COMPONENTS, n_features, data.right.shape[1])


def find_first_point(axes: dict[str, list[float]]) -> Point:
    """Return the candidates that a search starts from: those nearest to ``FIRST_VALUES``, by their ratio.

    >>> find_first_point({"alpha": [0.25, 1.0, 4.0], "frequency_power": [0.0, 0.15]})
    (0, 1)
    """
    return tuple(
        min(range(len(values)), key=lambda i: abs(np.log(max(values[i], 1e-300) / FIRST_VALUES[name])))
        for name, values in axes.items()
    )


class OneClassMFCV(DelegatingSearch):
    """:class:`OneClassMF` with its weight, penalties and number of alternations chosen on held-out data.

    The search has two phases (002, Supp-2.2). First a path follows the weights, and at each weight the penalties,
    while the held-out score rises, on the first split only and with half of the components; without features
    each fit starts from the factors of its neighbour. Then the best point of the path is fitted with all components
    and scored after each alternation: the fewest alternations within 0.3 % of the best score are chosen. Its
    neighbours are fitted with this number while the score rises. Without features the best points of the three best
    weights are starts, and every fit has all alternations. A fit ends, and is not repeated on the other splits,
    when its scores are clearly below those of the best candidate. The last fit is on all data.

    With 10,000 training rows or more, the path is on an eighth of them, at least 5,000.

    Parameters
    ----------
    n_components : int, optional
        The rank k. Default: 256, or the number of features, rows or labels if one of them is smaller. All parameters
        that are not listed here are those of :class:`OneClassMF`.
    weights : sequence of float, optional
        Candidates for ``weight_unlabelled``. By default the powers of two from 2⁻⁹ to 1, the range of the paper; they
        are doubled if only the unlabelled cells have squared loss, since the paper has no ½ in its squared terms.
        Pass a single value to fix the parameter.
    alphas : sequence of float, optional
        Candidates for ``alpha``; by default the powers of two from 2⁻⁶ to 2⁶, doubled as above.
    graph_alphas : sequence of float, optional
        Candidates for ``graph_alpha`` if there is a graph; by default the powers of two from 2⁻⁶ to 2¹⁰, doubled as
        above.
    ratios : sequence of float, optional
        Candidates for ``negative_ratio`` if negatives are subsampled; by default ¼, ½, 1 and 2. The weight is then 1.
    frequency_powers : sequence of float, default=(0.0,)
        Candidates for ``frequency_power``. The path has the one nearest to 0.15; the fits after it have them all.
    metric : str, Metric or a sequence of them, default=("P@1", "P@3", "P@5")
        The metric to maximise; of several metrics their geometric mean.
    hold_out : {"auto", "rows", "positives"} or sequence of arrays of int, default="auto"
        Validate on held-out rows or on held-out positives; "auto" means rows if there are features. Arrays are the
        numbers of the rows that each split holds out, instead of random ones.
    share : float, default=0.2
        The share that is held out.
    n_splits : int, default=2
        Number of random splits; scores are averaged over them.
    budget : float, optional
        Seconds for the search and the last fit. The path may take half of them; then candidates are fitted as long as
        another one and the last fit are expected to end in time. At least one candidate is fitted.
    max_iter : int, default=15
        Maximum number of alternations of a fit.
    path_iter : int, default=1
        Maximum number of alternations of a step of the path.
    keep_rows : bool, default=False
        As in :class:`OneClassMF`.

    Attributes
    ----------
    best_params_ : dict
        The chosen parameters: weight_unlabelled, alpha, max_iter and, if they were searched, the others.
    best_score_ : float
        Their held-out score.
    best_estimator_ : OneClassMF
        The estimator fitted with them on all data, for exactly the chosen number of alternations (its ``tol`` is 0).
    table_ : list of dict
        All candidates in the order of trial: "point" and "params", "score", and whether the fit was "warm", a step of
        the path. Other fits have "max_iter", the best number of alternations, and "splits", the number of splits:
        a fit that is clearly worse than the best one on the first of them is not repeated on the others.
    held_out_ : list of HeldOut, or None
        For each split, the training rows that it held out and their decision values by the chosen candidate, from
        which probabilities can be calibrated without another fit. None if the model was loaded from a file.

    Examples
    --------
    >>> from labelgap.datasets import make_low_rank
    >>> from labelgap import OneClassMFCV, hide_positives
    >>> data = make_low_rank(300, 12, 10, rank=3, random_state=0)
    >>> model = OneClassMFCV(3, random_state=0).fit(data.X, hide_positives(data.Y, 0.5, random_state=0))
    >>> sorted(model.best_params_)
    ['alpha', 'max_iter', 'weight_unlabelled']
    """

    about = describe_search(OneClassMF.about)

    _uses_device = True

    best_estimator_: OneClassMF
    table_: list[dict[str, Any]]

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
        propensity: Any = None,
        ratios: Sequence[float] | None = None,
        frequency_powers: Sequence[float] = (0.0,),
        metric: Any = ("P@1", "P@3", "P@5"),
        hold_out: Literal["auto", "rows", "positives"] | Sequence[Any] = "auto",
        share: float = 0.2,
        n_splits: int = 2,
        budget: float | None = None,
        fit_intercept: bool = True,
        init: Literal["svd", "random"] = "svd",
        solver: Literal["auto", "cg", "tron", "gd", "direct"] = "auto",
        max_iter: int = 15,
        path_iter: int = 1,
        tol: float = 1e-3,
        keep_rows: bool = False,
        random_state: RandomSeed = None,
        n_jobs: int | None = None,
        device: str = "auto",
        dtype: DTypeLike = "float32",
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
        self.propensity = propensity
        self.ratios = ratios
        self.frequency_powers = frequency_powers
        self.metric = metric
        self.hold_out = hold_out
        self.share = share
        self.n_splits = n_splits
        self.budget = budget
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
        X: MatrixLike,
        Y: LabelsLike,
        observed: MatrixLike | None = None,
        *,
        row_graph: MatrixLike | None = None,
        label_graph: MatrixLike | None = None,
        label_features: MatrixLike | None = None,
        row_weights: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        calibrate: bool | str = False,
    ) -> Self:
        """Choose parameters on held-out data, then fit on all data; see :meth:`OneClassMF.fit` for the parameters."""
        side = SideData(row_graph, label_graph, label_features, choose_weights(row_weights, sample_weight))
        return self._fit(X, Y, observed, side, calibrate=calibrate)

    def _check_fit(self, X: Any, Y: Any, observed: Any) -> tuple[Any, Labels]:
        self.best_estimator_ = self._estimator()  # not fitted yet, but it validates the data
        return self.best_estimator_._check_fit(X, Y, observed)

    def _learn(self, X: Any, labels: Labels, side: SideData | None = None) -> None:
        time = Budget(self.budget)
        metrics, best, side = self._check_parameters(), self.best_estimator_, side or SideData()
        best.container_, best.n_labels_ = labels.container, labels.shape[1]
        axes = self._axes(graph=side.row_graph is not None or side.label_graph is not None)
        data = best._bind(X, labels, side)
        if self.n_components is None:
            best.set_params(n_components=choose_components(data, constant=bool(self.fit_intercept)))
        rng = check_random_state(self.random_state)
        splits = list(self._make_splits(data, X, metrics, rng))
        path_split = self._sample_split(splits[0], data, X, rng)
        candidate = self._estimator().set_params(n_components=best.n_components)
        chosen, factors = self._search(OneClassFoldFitter(candidate, splits, path_split), axes, time)
        self.best_params_ = chosen["params"] | {"max_iter": chosen["max_iter"]}
        self.best_score_ = chosen["score"]
        outcome = fit_bound(best.set_params(**self.best_params_, tol=0.0), data)
        if outcome.interrupt is not None:
            raise outcome.interrupt
        copy_input_attributes(best, self)
        self._held_out = [
            HeldOut(split.rows, FactorScores(*stages[-1], best.threshold_, get_backend()), split.seen)
            for split, stages in zip(splits, (stages[: chosen["max_iter"]] for stages in factors), strict=True)
        ]

    @property
    def held_out_(self) -> list[HeldOut] | None:
        """Decision values of training rows by fits without them, one for each split; None if loaded from a file."""
        check_is_fitted(self)
        return getattr(self, "_held_out", None)

    def __getstate__(self) -> dict[str, Any]:
        # Held-out scores refer to a backend, which is a module; like model files, pickles do without them.
        return {name: value for name, value in super().__getstate__().items() if name != "_held_out"}

    def _held_out_rows(self) -> list[HeldOut] | None:
        """Return the held-out rows with their scores, if rows were held out and not positives."""
        held_out = self.held_out_
        return None if held_out is None or any(part.seen is not None for part in held_out) else held_out

    def _search(
        self, fitter: OneClassFoldFitter, axes: dict[str, list[float]], time: Budget
    ) -> tuple[dict[str, Any], list[list[Factors]]]:
        """Follow the ridge of the score with warm starts, then ascend from its top or tops without them.

        Return the row of the chosen candidate, and the factors that it was scored by on each split and alternation.
        """
        path, search = Search(fitter.follow_path, [True], margin=None), Search(fitter, [True], margin=MARGIN)
        search.stage_margin = STAGE_MARGIN
        k, self.table_ = fitter.estimator.n_components, []
        path_k = min(k, max(MIN_PATH_COMPONENTS, round(PATH_COMPONENTS_SHARE * k)))
        chosen: list[Any] = [None, None]
        has_features = not fitter.splits[0].data.left.is_identity

        def get_params(point: Point) -> dict[str, Any]:
            return {name: values[i] for (name, values), i in zip(axes.items(), point)}

        def record(search: Search, point: Point, row: dict[str, Any], **facts: Any) -> float:
            if row["error"] is not None:
                raise search.errors[-1]
            score = float(row["score"][0])
            self.table_.append({"point": point, "params": row["params"], "score": score, **facts})
            advance(f"{row['params']}: {score:.4f}")
            return score

        def fit_warm(point: Point, near: Point | None) -> float:
            if path.table and not time.allows(time.spent):
                return float("-inf")
            start = None if near is None else get_params(near)
            params, options = get_params(point), {"max_iter": self.path_iter, "n_components": path_k}
            return record(path, point, path.try_candidate(params, start=start, **options), warm=True)

        def fit_cold(point: Point, near: Point | None) -> float:
            if search.table and not time.allows(2 * max(row["seconds"] for row in search.table)):
                return float("-inf")
            # The first candidate finds the number of alternations; others have as many as the best one needs. Without
            # features fits are short, and the best ones are often behind after the first alternations.
            rival = search.rival if has_features else None
            most = self.max_iter if rival is None else 1 + search.table[search.best_index]["stage"]
            options = {"max_iter": most, "n_components": k, "to_beat": rival}
            row = search.try_candidate(get_params(point), **options)
            score = record(search, point, row, warm=False, max_iter=row["stage"] + 1, splits=row["folds"])
            if search.table[search.best_index] is row:
                chosen[:] = self.table_[-1], fitter.scored_factors
            return score

        first = find_first_point(axes)
        sizes = [len(values) for values in axes.values()]
        # The path keeps the power of frequencies: weights and penalties hardly depend on it.
        n_path = len(axes) - ("frequency_power" in axes)
        rest = first[n_path:]
        with progress(None, "OneClassMFCV", self.verbose) as advance:
            path_walk = Walk(sizes[:n_path], lambda point, near: fit_warm((*point, *rest), near and (*near, *rest)))
            # Without features weak penalties overfit, and their scores are level: ascent alone would stay there.
            scanned = None if has_features else list(axes).index("alpha")
            path_walk.follow_coarse_ridge(first[:n_path], scanned)
            walk = Walk(sizes, fit_cold)
            for top in path_walk.find_tops(1 if has_features else N_TOPS):
                walk.coordinate_ascent((*top, *rest))
        return tuple(chosen)

    def _check_parameters(self) -> tuple[Metric, ...]:
        """Raise ValueError for parameters that are out of range; return the metrics."""
        self._estimator()._check_parameters()
        if isinstance(self.hold_out, str):
            check_choice("hold_out", self.hold_out, ("auto", "rows", "positives"))
        check_share(self.share)
        check_number("n_splits", self.n_splits, Integral, least=1)
        check_number("path_iter", self.path_iter, Integral, least=1)
        if self.budget is not None and not (isinstance(self.budget, Real) and self.budget > 0):
            raise ValueError(f"budget={self.budget!r} is not a duration; pass seconds above 0, or None for no limit.")
        metrics = tuple(criterion.measure for criterion in get_criteria(self.metric))
        if not metrics or not all(isinstance(metric, Metric) and metric.depth > 0 for metric in metrics):
            raise ValueError(
                f"metric={self.metric!r} is not a metric of the k best labels; use P@k, nDCG@k or recall@k."
            )
        return metrics  # type: ignore[return-value]

    def _estimator(self) -> OneClassMF:
        return make_estimator(OneClassMF, self)

    def _axes(self, graph: bool) -> dict[str, list[float]]:
        """Return the candidates for each searched parameter."""
        # The paper has no ½ in its squared terms: see OneClassMF.
        scale = 1.0 if get_loss(self.loss).quadratic else 2.0
        grids = {"weight_unlabelled": ("weights", WEIGHTS), "alpha": ("alphas", ALPHAS)}
        if graph:
            grids["graph_alpha"] = ("graph_alphas", GRAPH_ALPHAS)
        axes = {
            name: check_candidates(argument, getattr(self, argument), [scale * value for value in default])
            for name, (argument, default) in grids.items()
        }
        if not get_loss(self.loss_unlabelled).quadratic:
            axes["weight_unlabelled"] = check_candidates("weights", self.weights, WEIGHTS)
        if self.negatives == "subsampled":
            axes["weight_unlabelled"] = check_candidates("weights", self.weights, [1.0])
            axes["negative_ratio"] = check_candidates("ratios", self.ratios, RATIOS)
        if tuple(np.atleast_1d(self.frequency_powers)) != (0.0,):
            axes["frequency_power"] = check_candidates("frequency_powers", self.frequency_powers, [0.0])
        return axes

    def _make_splits(
        self, data: BoundData, X: Any, metrics: tuple[Metric, ...], rng: np.random.RandomState
    ) -> Iterator[Split]:
        """Yield the splits."""
        splits = None if isinstance(self.hold_out, str) else list(self.hold_out)
        by_rows = X is not None if self.hold_out == "auto" else splits is not None or self.hold_out == "rows"
        if by_rows and X is None:
            raise ValueError("hold_out='rows' needs the features of new rows; pass X, or hold_out='positives'.")
        rows = self._draw_rows(len(data.labels), rng) if splits is None else iter(splits)
        split_rows = (self._hold_out_rows(data, X, metrics, held_out) for held_out in rows)
        for _ in range(self.n_splits if splits is None else len(splits)):
            split = next(split_rows) if by_rows else self._hold_out_positives(data, metrics, rng)
            if split.scorer.held_out.positives.nnz == 0:
                raise ValueError(
                    f"share={self.share} of the {'rows' if by_rows else 'positives'} of Y, which has "
                    f"{data.labels.positives.nnz} positives in {len(data.labels)} rows, holds none, so there is "
                    "nothing to validate on; raise share, or pass more positives."
                )
            yield split

    def _hold_out_positives(self, data: BoundData, metrics: tuple[Metric, ...], rng: np.random.RandomState) -> Split:
        positives, held_out = hold_out_positives(data.labels, self.share, random_state=rng)
        seen = data.backend.prepare(positives, data.dtype)
        scorer = RankingScorer(data.left, data.right, as_labels(held_out), seen, metrics, data.backend)
        return Split(replace(data, labels=as_labels(positives)), scorer, np.arange(len(data.labels)), positives)

    def _draw_rows(self, n: int, rng: np.random.RandomState) -> Iterator[NDArray]:
        """Yield random rows to hold out; no row is held out twice before all are."""
        cut, order = min(max(1, round(self.share * n)), n - 1), np.empty(0, int)
        while True:
            if len(order) < cut:
                order = rng.permutation(n)
            yield np.sort(order[:cut])
            order = order[cut:]

    def _hold_out_rows(self, data: BoundData, X: Any, metrics: tuple[Metric, ...], held_out: NDArray) -> Split:
        train = np.setdiff1d(np.arange(len(data.labels)), held_out)
        return self._bind_split(data, X, metrics, train, held_out)

    def _bind_split(
        self, data: BoundData, X: Any, metrics: tuple[Metric, ...], train: NDArray, held_out: NDArray
    ) -> Split:
        bound = self._estimator()._bind(X[train], data.labels[train], data.side.select_rows(train))
        rows = Features(X[held_out], data.backend, data.dtype, constant=self.fit_intercept)
        scorer = RankingScorer(rows, data.right, data.labels[held_out], None, metrics, data.backend)
        return Split(bound, scorer, held_out)

    def _sample_split(self, split: Split, data: BoundData, X: Any, rng: np.random.RandomState) -> Split:
        """Return the split with fewer rows for the path if there are many, else the split itself."""
        scorer, n_train = split.scorer, len(split.data.labels)
        rows = draw_first_round(n_train, rng)
        if rows is None:
            return split
        if split.seen is None:
            train = np.setdiff1d(np.arange(len(data.labels)), split.rows)[rows]
            most = min(len(split.rows), len(rows))
            held_out = np.sort(rng.permutation(split.rows)[:most])
            return self._bind_split(data, X, scorer.metrics, train, held_out)
        positives, side = split.seen[rows], data.side.select_rows(rows)
        bound = self._estimator()._bind(None if X is None else X[rows], as_labels(positives), side)
        seen = data.backend.prepare(positives, data.dtype)
        held = replace(scorer, rows=bound.left, right=bound.right, held_out=scorer.held_out[rows], seen=seen)
        return Split(bound, held, rows, positives)

    recommend = delegate(OneClassMF.recommend)
    similar_labels = similar_items = delegate(OneClassMF.similar_labels)
    fold_in_rows = delegate(OneClassMF.fold_in_rows)
    fold_in_labels = delegate(OneClassMF.fold_in_labels)
