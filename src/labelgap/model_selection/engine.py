"""The search engine behind :func:`select`, :func:`tune` and the CV classes.

:class:`Search` fits candidates on folds, scores them on held-out data and records the scores in a table. The callers
choose the order of the candidates (``candidates.py``), what is held out (``splits.py``), what is compared
(``criteria.py``), how long it may take (:class:`Budget`), and a :class:`FoldFitter`, which fits a candidate on all
folds. Of many rows a sub-sample comes first (:func:`draw_first_round`): a :class:`Search` of its own tries all
candidates on it, and only its :meth:`~Search.list_promising` ones are fitted on all rows.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from labelgap.estimators import MultiLabelEstimator
from labelgap.estimators.base import About
from labelgap.estimators.low_rank import Factors, fit_bound, start_factors
from labelgap.estimators.scores import Scores
from labelgap.model_selection.candidates import PathParameter, are_numbers
from labelgap.model_selection.criteria import Criterion
from labelgap.model_selection.splits import Fold
from labelgap.objectives.problem import Problem
from labelgap.runtime import call_elsewhere, run_parallel, scope
from labelgap.solvers import Fit

MIN_CLEAR_REGRET = 0.03
MAX_STARTS_PER_FOLD = 6
FIT_METHODS = ("fit", "_fit", "_check_fit", "_check_rows", "_check_labels", "_bind", "_learn")
INPUT_ATTRIBUTES = ("container_", "n_labels_", "n_features_in_", "feature_names_in_", "label_names_in_")
PENALTIES = {"alpha", "alpha_labels", "graph_alpha", "label_graph_alpha"}  # which do not change the first factors
# A first round on a sub-sample of less than half of the rows; with fewer than 5,000 the order of candidates is noise.
MIN_FIRST_ROUND_ROWS, FIRST_ROUND_SHARE = 5_000, 0.125
clock = time.perf_counter
Estimator = TypeVar("Estimator")


class FoldScores(NamedTuple):
    """The scores of a candidate on one fold.

    Attributes
    ----------
    scores : array of shape (stages, criteria)
        The scores after each stage of the fit, such as an alternation or a step of a path; most fits have one stage.
    warm : bool
        Whether the fit started from the fit of another candidate.
    """

    scores: NDArray
    warm: bool = False


class FoldFitter(Protocol):
    """A callable that fits a candidate on one fold after the other and scores it on what each fold holds out."""

    def __call__(self, params: dict[str, Any], *args: Any, **kwargs: Any) -> Iterable[FoldScores]:
        """Return the scores on each fold; an iterator fits a fold only when its scores are needed."""


@dataclass
class Search:
    """A search that tries candidates and records their scores.

    A candidate that cannot be fitted gets an error and no score. Warnings that the user turned into errors are
    raised.

    Attributes
    ----------
    fit : FoldFitter
        Fits and scores a candidate on all folds.
    directions : sequence of bool or None
        For each criterion, whether a greater score is better; None if the criterion does not decide. The best
        candidate has the smallest largest regret over all criteria, see :func:`compute_largest_regrets`.
    last_wins : bool
        Whether the last of equally good candidates is the best, and not the first.
    margin : float or None
        A candidate that is worse than the best one by more than this share of a criterion, on the folds that it was
        fitted on, is not fitted on the other folds. None: every candidate is fitted on all folds.
    stage_margin : float
        The best stage of a candidate is the first one whose score is worse than the best one's by at most this share.
    table : list of dict
        For each candidate "params", "score" (a list with the mean over the folds of each criterion at the best
        stage), "stage" (the index of the best stage), "stages" (the means of all stages), "folds" (the number of
        folds that it was fitted on), "seconds", "warm" and "error". The scores of a candidate that was not fitted on
        all folds are its differences to the best candidate on the same folds, plus the best one's scores on all.
    errors : list of Exception
        The errors of the candidates that could not be fitted.
    """

    fit: FoldFitter
    directions: Sequence[bool | None]
    last_wins: bool = False
    margin: float | None = MIN_CLEAR_REGRET
    stage_margin: float = 0.0
    table: list[dict[str, Any]] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    _curves: list[list[NDArray]] = field(default_factory=list)

    def try_candidate(self, params: dict[str, Any], **options: Any) -> dict[str, Any]:
        """Try a candidate and return its row of the table; ``options`` are passed to ``fit``."""
        return self._record(*self._fit(params, self.rival, **options))

    def try_in_parallel(self, candidates: Sequence[dict[str, Any]]) -> Iterable[dict[str, Any]]:
        """Try candidates on the current threads or machines; yield their rows of the table in the same order.

        Each is fitted on all folds: which of them ends first must not matter.
        """
        fit = replace(self, table=[], errors=[], _curves=[])._fit  # without what it has recorded
        tasks = [partial(call_elsewhere, partial(fit, params, None)) for params in candidates]
        for row, curves, error in run_parallel(tasks):
            yield self._record(row, curves, error)

    @property
    def rival(self) -> list[NDArray] | None:
        """The scores of the best candidate on each fold, of shape (stages, criteria); None if there is none yet."""
        if not self._curves or len(curves := self._curves[self.best_index]) < max(map(len, self._curves)):
            return None
        return curves or None

    def _fit(
        self, params: dict[str, Any], rival: list[NDArray] | None, **options: Any
    ) -> tuple[dict[str, Any], list[NDArray], Exception | None]:
        start, error, curves, warm = clock(), None, [], False
        stages = np.full((1, len(self.directions)), np.nan)
        try:
            for fold in self.fit(params, **options):
                curves.append(fold.scores)
                warm = warm or fold.warm
                if rival is not None and self._is_beaten(curves, rival):
                    break
            stages = average_stages(curves)
            if rival is not None and len(curves) < len(rival):
                stages = stages + self._best_mean(rival) - self._best_mean(rival[: len(curves)])
        except Warning:
            raise
        except Exception as raised:  # any error of a candidate: the other candidates may succeed
            error, curves = raised, []
        best = self._find_best_stage(stages)
        row = {"params": params, "score": stages[best].tolist(), "stage": best, "stages": stages}
        message = None if error is None else f"{type(error).__name__}: {error}"
        facts = {"folds": len(curves), "seconds": clock() - start, "warm": warm, "error": message}
        return row | facts, curves, error

    def _is_beaten(self, curves: list[NDArray], rival: list[NDArray]) -> bool:
        """Return whether a candidate is clearly worse than its rival on the folds that it was fitted on."""
        if self.margin is None:
            return False
        scores = [self._best_mean(curves), self._best_mean(rival[: len(curves)])]
        own, other = compute_largest_regrets(self.directions, scores)
        return bool(own > other + self.margin)

    def _best_mean(self, curves: list[NDArray]) -> NDArray:
        """Return the mean over folds of the scores at the best stage."""
        stages = average_stages(curves)
        return stages[self._find_best_stage(stages)]

    def _find_best_stage(self, stages: NDArray) -> int:
        regrets = compute_largest_regrets(self.directions, stages)
        return int(np.argmax(regrets <= regrets.min() + self.stage_margin))

    def _record(self, row: dict[str, Any], curves: list[NDArray], error: Exception | None) -> dict[str, Any]:
        self.table.append(row)
        self._curves.append(curves)
        if error is not None:
            self.errors.append(error)
        return row

    @property
    def best_index(self) -> int:
        """Index of the best candidate in the table."""
        regrets = self._regrets()
        return len(regrets) - 1 - int(np.argmin(regrets[::-1])) if self.last_wins else int(np.argmin(regrets))

    def check_scores(self, message: str) -> None:
        """Raise an error if no candidate has a score.

        The error is the first one of the candidates if none could be fitted, else a ValueError with ``message``.
        """
        if not self.table:
            raise ValueError("grid has no candidates; pass one value or more for a parameter.")
        if len(self.errors) == len(self.table):
            raise self.errors[0]
        if not np.isfinite(self._regrets().min()):
            raise ValueError(message)

    def list_promising(self) -> list[int]:
        """Return the places in the table of the candidates that could win on more rows, best first.

        Those are the candidates that are not clearly worse than the best one, and those without a score. On Mediamill
        and Delicious the best candidate on all rows is at most 1.4 % behind on 2,500 or 5,000 of them.
        """
        regrets = self._regrets()
        hopeless = np.isfinite(regrets) & (regrets > regrets.min() + MIN_CLEAR_REGRET)
        return [place for place in np.argsort(regrets, kind="stable").tolist() if not hopeless[place]]

    def add_dropped(self, first: Search) -> None:
        """Record the candidates that only a first round has tried.

        Their scores are the differences to the best candidate of the first round, plus its score in this search.
        """
        tried = [row["params"] for row in self.table]
        best = first.table[first.best_index]
        if best["params"] not in tried:
            return
        own = self.table[tried.index(best["params"])]
        for place in sorted(set(range(len(first.table))) - set(first.list_promising())):
            row = first.table[place]
            score = np.add(row["score"], np.subtract(own["score"], best["score"])).tolist()
            self._record(row | {"score": score, "folds": 0}, [], None)

    def is_declining(self, patience: int) -> bool:
        """Return whether the last ``patience`` candidates were all clearly worse than the best one.

        A decline from the first candidate on may be a dip before the best one, and has to be twice as long.
        """
        regrets = self._regrets()
        patience *= 2 if self.best_index == 0 else 1
        return len(self.table) > patience and bool(np.all(regrets[-patience:] - regrets.min() > MIN_CLEAR_REGRET))

    def _regrets(self) -> NDArray[np.float64]:
        return compute_largest_regrets(self.directions, [row["score"] for row in self.table])


def is_behind(curve: Sequence[float], rival: Sequence[float] | None, margin: float = MIN_CLEAR_REGRET) -> bool:
    """Return whether a fit cannot become the best one, from its scores after each stage and those of its rival.

    It is behind if its best score is below the rival's, and if either its scores fall or the last one is below the
    rival's at the same stage by more than a share ``margin`` of it. Greater scores are better.

    >>> is_behind([0.2], [0.3, 0.4]), is_behind([0.31, 0.39], [0.3, 0.4]), is_behind([0.31, 0.30], [0.3, 0.4])
    (True, False, True)
    """
    if rival is None or max(curve) > max(rival):
        return False
    falls = len(curve) > 1 and curve[-1] < curve[-2]
    return falls or curve[-1] < (1 - margin) * rival[min(len(curve), len(rival)) - 1]


def average_stages(curves: Sequence[NDArray]) -> NDArray:
    """Return the mean of the scores over folds; a fold with fewer stages keeps the scores of its last stage.

    >>> average_stages([np.array([[1.0], [2.0]]), np.array([[3.0]])]).ravel()
    array([2. , 2.5])
    """
    longest = max(len(curve) for curve in curves)
    return np.mean([np.pad(curve, ((0, longest - len(curve)), (0, 0)), mode="edge") for curve in curves], axis=0)


def compute_largest_regrets(directions: Sequence[bool | None], scores: Any) -> NDArray[np.float64]:
    """Return the largest regret of each candidate over all criteria, from scores of shape (candidates, criteria).

    A regret is the difference of a score to the best one, relative to the best one; infinity for NaN, and 0 for a
    criterion without a direction. A criterion that is undefined for all candidates is left out.

    >>> compute_largest_regrets([False], [[0.25], [0.2], [np.nan]])
    array([0.25, 0.  ,  inf])
    """
    scores = np.array(scores, float).reshape(-1, len(directions))
    regrets = []
    for column, greater_is_better in zip(scores.T, directions, strict=True):
        if np.isnan(column).all():
            continue
        if greater_is_better is None:
            regrets.append(np.zeros(len(column)))
            continue
        signed = column * (1 if greater_is_better else -1)
        best = np.nanmax(signed, initial=-np.inf)
        scale = abs(best) if np.isfinite(best) and best != 0 else 1.0
        regrets.append(np.where(np.isnan(signed), np.inf, (best - signed) / scale))
    return np.max(regrets, axis=0) if regrets else np.full(len(scores), np.inf)


class EstimatorFoldFitter:
    """A :class:`FoldFitter` of any estimator.

    Candidates share the rows of a fold as the estimator binds them: for LEML and OneClassMF the eigenvectors of XᵀX,
    the transposes and the kernel matrices are computed once. Along a path parameter each candidate starts from the
    factors of the candidate with the next weaker penalty.

    Parameters
    ----------
    estimator : estimator
        Candidates are clones of it.
    folds : sequence of Fold
        The training and the validation data.
    criteria : sequence of Criterion
        The criteria to score.
    path : PathParameter, optional
        The parameter along which candidates start from each other.
    prefix : str, default=""
        A prefix of the names of the candidates' parameters, which is removed.
    """

    def __init__(
        self,
        estimator: Any,
        folds: Sequence[Fold],
        criteria: Sequence[Criterion],
        *,
        path: PathParameter | None = None,
        prefix: str = "",
    ) -> None:
        self.estimator, self.folds, self.criteria, self.prefix = estimator, list(folds), criteria, prefix
        self.starts, self.first = WarmStarts(path if can_share_rows(estimator) else None), SharedStarts()
        self._bound: dict[int, tuple[list[Any], dict[str, Any], Any]] = {}

    @property
    def directions(self) -> list[bool | None]:
        """For each criterion, whether a greater score is better."""
        return [criterion.greater_is_better for criterion in self.criteria]

    def __call__(self, params: dict[str, Any]) -> Iterator[FoldScores]:
        """Fit and score a candidate on one fold after the other."""
        own = {name.removeprefix(self.prefix): value for name, value in params.items()}
        return (self._fit_and_score(own, number) for number in range(len(self.folds)))

    def sample(self, rng: np.random.RandomState) -> EstimatorFoldFitter | None:
        """Return a fitter for a first round, on a sub-sample of the first fold; None if that has too few rows."""
        fold = self.folds[0]
        rows = draw_first_round(len(fold.Y_train), rng)
        if rows is None:
            return None
        valid = rows if fold.same_rows else np.sort(rng.permutation(len(fold.Y_valid))[: len(rows)])
        path, small = self.starts.path, fold.take(rows, valid)
        return EstimatorFoldFitter(self.estimator, [small], self.criteria, path=path, prefix=self.prefix)

    def _fit_and_score(self, params: dict[str, Any], number: int) -> FoldScores:
        fold = self.folds[number]
        candidate = clone_with(self.estimator, params)
        start = self.starts.find_weaker(params, number)
        with scope(f"candidate {params}, fold {number}"):
            if can_share_rows(candidate):
                self._fit_bound(candidate, params, number, start)
                if self.starts.has_place(params):
                    self.starts.store(params, number, Factors.of(candidate))
            else:
                candidate.fit(fold.X_train, fold.Y_train)
        scores = [criterion.score(candidate, fold.X_valid, fold.Y_valid, fold.seen) for criterion in self.criteria]
        return FoldScores(np.array([scores], float), start is not None)

    def _fit_bound(self, candidate: Any, params: Mapping[str, Any], number: int, start: Factors | None) -> None:
        """Fit on the bound rows of a fold, from the factors of another candidate if given."""
        candidate._check_parameters()
        with candidate._compute():
            fitted, data = self._bind(candidate, number)
            vars(candidate).update(fitted)
            others = repr([(name, params[name]) for name in sorted(params.keys() - PENALTIES)])
            first = self.first.share(number, others)
            outcome = fit_bound(candidate, data, start, lasting=False, make_start=first)
        outcome.report()

    def _bind(self, candidate: Any, number: int) -> tuple[dict[str, Any], Any]:
        """Return the attributes that validation sets, and the rows of a fold as this candidate binds them.

        Only the rows of the last binding are stored: parameters that change the binding are rare in a search.
        """
        binding = [getattr(candidate, name) for name in candidate._binding]
        if number not in self._bound or self._bound[number][0] != binding:
            fold, checked = self.folds[number], clone(candidate)
            X, labels = checked._check_fit(fold.X_train, fold.Y_train, None)
            checked.container_, checked.n_labels_ = labels.container, labels.shape[1]
            data = checked._bind(X, labels)
            fitted = {name: value for name, value in vars(checked).items() if name.endswith("_")}
            self._bound[number] = binding, fitted, data
        return self._bound[number][1:]


def can_share_rows(estimator: Any) -> bool:
    """Return whether several candidates can be fitted on rows that are bound once.

    Subclasses that override validation, binding or learning are fitted by their own ``fit``.
    """
    owner = next((cls for cls in type(estimator).__mro__ if "_binding" in vars(cls)), None)
    return owner is not None and all(getattr(type(estimator), name) is getattr(owner, name) for name in FIT_METHODS)


def draw_first_round(n: int, rng: np.random.RandomState) -> NDArray[np.int64] | None:
    """Return the rows of a first round on a sub-sample of ``n`` training rows, in order; None if these are few.

    >>> rng = np.random.RandomState(0)
    >>> draw_first_round(9_000, rng), len(draw_first_round(20_000, rng)), len(draw_first_round(100_000, rng))
    (None, 5000, 12500)
    """
    size = max(MIN_FIRST_ROUND_ROWS, round(FIRST_ROUND_SHARE * n))
    return None if 2 * size > n else np.sort(rng.permutation(n)[:size])


def clone_with(estimator: Any, params: Mapping[str, Any]) -> Any:
    """Return a clone with other parameters."""
    return clone(estimator).set_params(**clone(dict(params), safe=False))


class WarmStarts:
    """The latest fits of each fold, from which other candidates can start.

    A strong penalty brings whole columns of both factors to 0, where W Hᵀ is stationary: alternation from there stops
    far above the objective that it reaches from a fresh start. Thus factors are a start for stronger penalties only.

    Parameters
    ----------
    path : PathParameter, optional
        The parameter along which candidates start from each other.
    max_per_fold : int, default=6
        Number of fits to keep for each fold.
    """

    def __init__(self, path: PathParameter | None = None, max_per_fold: int = MAX_STARTS_PER_FOLD) -> None:
        self.path = path
        self._stored: dict[int, deque[tuple[dict[str, Any], Any]]] = defaultdict(lambda: deque(maxlen=max_per_fold))

    def store(self, params: Mapping[str, Any], fold: int, fit: Any) -> None:
        """Store the fit of a candidate on a fold; it replaces the oldest one if there are too many."""
        self._stored[fold].append((dict(params), fit))

    def get(self, params: Mapping[str, Any] | None, fold: int) -> Any:
        """Return the stored fit with exactly these parameters, or None."""
        return next((fit for other, fit in self._stored[fold] if other == params), None)

    def find_weaker(self, params: Mapping[str, Any], fold: int) -> Any:
        """Return the fit with the next weaker penalty on the path and equal other parameters, or None."""
        if self.path is None or not self.has_place(params):
            return None
        name, sign = self.path.name, 1 if self.path.descending else -1
        weaker = [
            (sign * other[name], fit)
            for other, fit in self._stored[fold]
            if sign * other[name] <= sign * params[name] and _differ_only_in(name, other, params)
        ]
        return max(weaker, key=lambda entry: entry[0])[1] if weaker else None

    def has_place(self, params: Mapping[str, Any]) -> bool:
        """Return whether a candidate is on the path: its penalty must be a number, not an array."""
        return self.path is not None and are_numbers([params.get(self.path.name)])


def _differ_only_in(name: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[other], b[other]) for other in a if other != name)


class SharedStarts:
    """First factors that candidates share: they are computed from the labels of a fold, whatever the penalties are.

    Penalties do not change the leading singular vectors of XᵀT, for the targets T of the cells.
    """

    def __init__(self) -> None:
        self._label_factors: dict[Any, NDArray] = {}

    def share(self, *key: Any, n_components: int | None = None) -> Callable[[Any, Problem], Fit]:
        """Return a function of a model and its problem that returns the start; it is computed once for each key.

        With ``n_components``, the largest number in the search, models with fewer get the first columns: those with
        the largest singular values.
        """

        def make_start(model: Any, problem: Problem) -> Fit:
            k = model.n_components
            if key not in self._label_factors:
                widest = model if n_components is None else copy(model).set_params(n_components=n_components)
                self._label_factors[key] = problem.backend.to_numpy(start_factors(widest, problem).H)
            H = self._label_factors[key][:, :k]
            return problem.make_fit(np.zeros((problem.left.shape[1], H.shape[1])), H, np.dtype(model.dtype))

        return make_start


class Budget:
    """The time that a search may take, its last fit included; it starts now.

    >>> Budget(None).allows(1e9), Budget(0.0).allows(1.0)
    (True, False)
    """

    def __init__(self, seconds: float | None) -> None:
        self.seconds, self._start = seconds, clock()

    @property
    def spent(self) -> float:
        """Seconds since the start."""
        return clock() - self._start

    def allows(self, seconds: float) -> bool:
        """Return whether this many further seconds are left."""
        return self.seconds is None or self.spent + seconds <= self.seconds


def delegate(method: Callable[..., Any]) -> Any:
    """Return a method that calls the method of the same name of ``best_estimator_``."""

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        check_is_fitted(self)
        return getattr(self.best_estimator_, method.__name__)(*args, **kwargs)

    return call


def delegate_attribute(name: str) -> Any:
    """Return a property with the value of an attribute of ``best_estimator_``."""
    return property(lambda self: getattr(self.best_estimator_, name), doc=f"``{name}`` of the best estimator.")


class DelegatingSearch(MultiLabelEstimator):
    """An estimator that searches for the best parameters in ``fit`` and then predicts with the best estimator."""

    best_estimator_: Any

    def chosen(self) -> MultiLabelEstimator:
        """Return an unfitted estimator with the chosen parameters."""
        return clone(self.best_estimator_)

    def _scores(self, X: Any) -> Scores:
        return self.best_estimator_._scores(X)

    def _check_rows(self, X: Any, *, reset: bool = False) -> Any:
        return self.best_estimator_._check_rows(X)


def copy_input_attributes(source: Any, target: Any) -> None:
    """Copy what validation sets in ``fit``: the numbers and names of features and labels, and the form of Y."""
    for name in INPUT_ATTRIBUTES:
        vars(target).pop(name, None)
        if hasattr(source, name):
            setattr(target, name, getattr(source, name))


def make_estimator(cls: Callable[..., Estimator], search: Any, ignored: Iterable[str] = ()) -> Estimator:
    """Return an estimator with all parameters that it shares with a search."""
    names = cls().get_params().keys() & (search.get_params().keys() - set(ignored))  # type: ignore[attr-defined]
    return cls(**{name: getattr(search, name) for name in names})


def describe_search(about: About) -> About:
    """Return the facts about a search for the best parameters of a method.

    >>> describe_search(About("Votes.", "Cover and Hart 1967")).summary
    'Votes; its parameters are chosen on held-out data.'
    """
    return about._replace(summary=f"{about.summary.removesuffix('.')}; its parameters are chosen on held-out data.")
