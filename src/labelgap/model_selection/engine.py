"""The one search: candidates are fitted on folds, scored on what was held out, and noted.

:func:`select`, :func:`tune` and the CV classes are faces of it. They differ in the order in which candidates come (a
plan), in what is held out (a split), in what candidates are compared by (a criterion) and in the time they have (a
budget); :class:`Search` tries candidates, and whoever fits them on the folds (:class:`EstimatorFolds`, or the folds
of a CV class) shares between them what depends on the rows alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from labelgap.estimators.low_rank import Factors, fit_bound
from labelgap.model_selection.criteria import Criterion, get_criterion, largest_regrets
from labelgap.model_selection.spaces import numbers
from labelgap.model_selection.splits import Fold
from labelgap.runtime import in_parallel, threads, within

CLEARLY = 0.03
KEPT = 6  # candidates whose factors are kept for their neighbours to start from
WAY_OF_A_FIT = ("fit", "_fit", "_check_fit", "_check_rows", "_check_labels", "_bind", "_learn")
clock = time.perf_counter


class Scored(NamedTuple):
    """What one fold says of a candidate.

    Attributes
    ----------
    scores : array of shape (stages, criteria)
        The scores after each stage of the fit, such as an alternation or a step of a path; most fits have one.
    warm : bool
        Whether the fit started from that of another candidate.
    """

    scores: NDArray
    warm: bool = False


@dataclass
class Search:
    """Candidates that were tried, and how they did.

    A candidate that cannot be fitted is noted with its error and without a score; if none can, the first error is
    raised. A warning that the user made an error is raised at once.

    Attributes
    ----------
    fit : callable
        Fits a candidate on every fold, given its parameters, and returns a :class:`Scored` for each.
    criteria : sequence of Criterion
        What candidates are compared by. Of several no one decides: the best has the smallest largest shortfall.
    last_wins : bool
        Of equally good candidates the last is the best in place of the first.
    table : list of dict
        For each candidate "params", "score" (a list, one for each criterion: the mean over the folds at the best
        stage), "stage" (which that is, from 0), "stages" (the mean of each), "seconds", "warm" and "error".
    """

    fit: Any  # a callable; whoever made it knows what else it has
    criteria: Sequence[Criterion]
    last_wins: bool = False
    table: list[dict[str, Any]] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)

    def run(self, candidates: Iterable[dict[str, Any]], patience: int | None = None) -> None:
        """Try candidates one after the other; ``patience`` is that of :func:`select`."""
        for params in candidates:
            self.one(params)
            if patience is not None and self._is_lost(patience):
                return

    def run_in_parallel(self, candidates: Sequence[dict[str, Any]]) -> Iterable[dict[str, Any]]:
        """Try candidates on as many threads as there are; yield their rows of the table in order."""
        for row, error in in_parallel([partial(self._try, params) for params in candidates]):
            yield self._note(row, error)

    def one(self, params: dict[str, Any], **how: Any) -> dict[str, Any]:
        """Try a candidate and return its row of the table; ``how`` is handed on to ``fit``."""
        return self._note(*self._try(params, **how))

    def _try(self, params: dict[str, Any], **how: Any) -> tuple[dict[str, Any], Exception | None]:
        start, failure = clock(), None
        stages, warm = np.full((1, len(self.criteria)), np.nan), False
        try:
            found = self.fit(params, **how)
            stages, warm = mean_stages([each.scores for each in found]), any(each.warm for each in found)
        except Warning:
            raise
        except Exception as problem:  # whatever a candidate dies of, the others may live
            failure = problem
        best = int(np.argmin(largest_regrets(self.criteria, stages)))
        row = {"params": params, "score": stages[best].tolist(), "stage": best, "stages": stages}
        error = None if failure is None else f"{type(failure).__name__}: {failure}"
        return row | {"seconds": clock() - start, "warm": warm, "error": error}, failure

    def _note(self, row: dict[str, Any], failure: Exception | None) -> dict[str, Any]:
        self.table.append(row)
        if failure is not None:
            self.errors.append(failure)
        return row

    @property
    def best(self) -> int:
        """The place of the best candidate in the table."""
        regrets = self._regrets()
        return len(regrets) - 1 - int(np.argmin(regrets[::-1])) if self.last_wins else int(np.argmin(regrets))

    def check(self, undefined: str) -> None:
        """Raise an error if no candidate has a score; ``undefined`` says why where each of them could be fitted."""
        if not self.table:
            raise ValueError("grid has no candidates; pass one value or more for a parameter.")
        if len(self.errors) == len(self.table):
            raise self.errors[0]
        if not np.isfinite(self._regrets().min()):
            raise ValueError(undefined)

    def _regrets(self) -> NDArray[np.float64]:
        return largest_regrets(self.criteria, [row["score"] for row in self.table])

    def _is_lost(self, patience: int) -> bool:
        """Tell whether the last candidates were all clearly worse than the best one."""
        regrets = self._regrets()
        return len(self.table) > patience and bool(np.all(regrets[-patience:] - regrets.min() > CLEARLY))


def mean_stages(curves: Sequence[NDArray]) -> NDArray:
    """Return the mean of the scores over folds; a fold that ended sooner stays at its last stage.

    >>> mean_stages([np.array([[1.0], [2.0]]), np.array([[3.0]])]).ravel()
    array([2. , 2.5])
    """
    longest = max(len(curve) for curve in curves)
    return np.mean([np.pad(curve, ((0, longest - len(curve)), (0, 0)), mode="edge") for curve in curves], axis=0)


def is_several(metric: Any) -> bool:
    """Tell whether a metric is a sequence of them."""
    return isinstance(metric, Sequence) and not isinstance(metric, str)


def get_criteria(metric: Any, estimator: Any) -> list[Criterion]:
    """Return the criteria that one metric or several name."""
    return [get_criterion(one, estimator) for one in (metric if is_several(metric) else [metric])]


class EstimatorFolds:
    """Fits clones of an estimator on folds and scores them on what was held out.

    Candidates on a fold share its rows as the estimator binds them: for LEML and OneClassMF the eigenvectors of XᵀX,
    the transposes and the kernel matrices are computed once. Along a path parameter each candidate starts from the
    factors of the next weaker one.

    Parameters
    ----------
    estimator : estimator
        What candidates are clones of.
    folds : sequence of Fold
        What they are fitted on and judged by.
    criteria : sequence of Criterion
        What is measured.
    path : (str, bool), optional
        The parameter of the path and whether it falls from strong to weak.
    prefix : str
        What stands before the names of parameters that candidates are given.
    """

    def __init__(
        self,
        estimator: Any,
        folds: Sequence[Fold],
        criteria: Sequence[Criterion],
        *,
        path: tuple[str, bool] | None = None,
        prefix: str = "",
    ) -> None:
        self.estimator, self.folds, self.criteria, self.prefix = estimator, list(folds), criteria, prefix
        self.starts = Starts(path if binds(estimator) else None)
        self._bound: dict[int, tuple[list[Any], dict[str, Any], Any]] = {}

    def __call__(self, params: Mapping[str, Any]) -> list[Scored]:
        own = {name.removeprefix(self.prefix): value for name, value in params.items()}
        return [self._fit_and_score(own, number) for number in range(len(self.folds))]

    def _fit_and_score(self, params: dict[str, Any], number: int) -> Scored:
        fold = self.folds[number]
        candidate = with_params(self.estimator, params)
        near = self.starts.nearest(params, number)
        with within(f"candidate {params}, fold {number}"):
            if binds(candidate):
                self._fit_bound(candidate, number, near)
                self.starts.keep(params, number, candidate)
            else:
                candidate.fit(fold.X_train, fold.Y_train)
        scores = [one.of(candidate, fold.X_valid, fold.Y_valid, fold.seen) for one in self.criteria]
        return Scored(np.array([scores], float), near is not None)

    def _fit_bound(self, candidate: Any, number: int, near: Any) -> None:
        """Fit on the bound rows of a fold, from the factors of another candidate where there is one."""
        candidate._check_parameters()
        with threads(candidate.n_jobs):
            fitted, data = self._bind(candidate, number)
            vars(candidate).update(fitted)
            ended = fit_bound(candidate, data, None if near is None else Factors.of(near), lasting=False)
        ended.report()

    def _bind(self, candidate: Any, number: int) -> tuple[dict[str, Any], Any]:
        """Return what validation sets, and the rows of a fold bound as this candidate wants them, once for all alike.

        The rows of another way to bind are let go: parameters that change it are rare in a search.
        """
        wanted = [getattr(candidate, name) for name in candidate._binding]
        if number not in self._bound or self._bound[number][0] != wanted:
            fold, checked = self.folds[number], clone(candidate)
            X, labels = checked._check_fit(fold.X_train, fold.Y_train, None)
            checked.container_, checked.n_labels_ = labels.container, labels.shape[1]
            data = checked._bind(X, labels)
            fitted = {name: value for name, value in vars(checked).items() if name.endswith("_")}
            self._bound[number] = wanted, fitted, data
        return self._bound[number][1:]


def binds(estimator: Any) -> bool:
    """Tell whether an estimator can be fitted on rows that are bound once for several candidates.

    A subclass that validates, binds or learns in its own way is fitted through its ``fit``.
    """
    owner = next((cls for cls in type(estimator).__mro__ if "_binding" in vars(cls)), None)
    return owner is not None and all(getattr(type(estimator), name) is getattr(owner, name) for name in WAY_OF_A_FIT)


def with_params(estimator: Any, params: Mapping[str, Any]) -> Any:
    """Return a clone with other parameters."""
    return clone(estimator).set_params(**clone(dict(params), safe=False))


class Starts:
    """Fitted candidates for others to start from: along the path parameter, the next weaker one.

    A strong penalty brings whole columns of both factors to 0, where W Hᵀ is stationary: alternation from there stops
    far above what it reaches from nothing. So factors are a start for stronger penalties and not for weaker ones.
    Only for factors found by alternation is a start just a start; everything else is fitted from nothing.

    Parameters
    ----------
    path : (str, bool), optional
        The parameter of the path and whether it falls from strong to weak; without one there are no starts.
    """

    def __init__(self, path: tuple[str, bool] | None = None) -> None:
        self.path = path
        self._fitted: list[tuple[dict[str, Any], int, Any]] = []

    def keep(self, params: Mapping[str, Any], fold: int, fitted: Any) -> None:
        """Keep a fitted candidate for others to start from, and forget the oldest."""
        if self._on_path(params):
            self._fitted.append((dict(params), fold, fitted))
            mine = [entry for entry in self._fitted if entry[1] == fold]
            if len(mine) > KEPT:
                self._fitted.remove(mine[0])

    def nearest(self, params: Mapping[str, Any], fold: int) -> Any:
        """Return the fitted candidate next to this one on its path whose penalty is weaker; None without one."""
        if self.path is None or not self._on_path(params):
            return None
        name, falling = self.path
        sign = 1 if falling else -1
        weaker = [
            (sign * other[name], model)
            for other, number, model in self._fitted
            if number == fold and sign * other[name] <= sign * params[name] and _differ_only_in(name, other, params)
        ]
        return max(weaker, key=lambda found: found[0])[1] if weaker else None

    def _on_path(self, params: Mapping[str, Any]) -> bool:
        """Tell whether a candidate has a place on the path; one whose penalty is an array has none."""
        return self.path is not None and numbers([params.get(self.path[0])])


def _differ_only_in(name: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[other], b[other]) for other in a if other != name)


@dataclass
class Budget:
    """Seconds that a search may take, its last fit included.

    >>> Budget(None).allows(1e9), Budget(0.0).allows(1.0)
    (True, False)
    """

    seconds: float | None
    now: Callable[[], float] = field(default=lambda: clock())

    def __post_init__(self) -> None:
        self._start = self.now()

    @property
    def spent(self) -> float:
        """Seconds since the start."""
        return self.now() - self._start

    def allows(self, further: float) -> bool:
        """Tell whether so many further seconds are left."""
        return self.seconds is None or self.spent + further <= self.seconds
