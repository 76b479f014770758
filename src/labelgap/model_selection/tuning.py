"""Choosing parameters without a grid, within a budget of time."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import ParameterGrid, train_test_split
from sklearn.utils import check_random_state

from labelgap.estimators import BinaryRelevance, Tagger
from labelgap.estimators.completion import CompletionEstimator
from labelgap.model_selection.criteria import labels_for
from labelgap.model_selection.engine import Budget, EstimatorFolds, Search, get_criteria, is_several, with_params
from labelgap.model_selection.plan import Plan, Point, distance
from labelgap.model_selection.selection import Tuning, rows_of, undefined
from labelgap.model_selection.spaces import (
    WITHIN_TAGGER,
    Axes,
    along_path,
    learner_of,
    path_of,
    space_of,
    with_own_values,
)
from labelgap.model_selection.splits import Fold, split
from labelgap.observations import Labels
from labelgap.runtime import progress

Grid = Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]]
HoldOut = Literal["auto", "rows", "cells", "positives"]


def tune(
    estimator: Any,
    X: Any,
    Y: Any,
    *,
    grid: Grid | None = None,
    observed: Any = None,
    hold_out: HoldOut = "auto",
    metric: Any = "P@1",
    share: float = 0.2,
    budget: float | None = None,
    n_folds: int = 1,
    max_rows: int | None = None,
    refit: bool = True,
    random_state: Any = None,
    verbose: int = 0,
) -> Tuning:
    """Choose an estimator's parameters on held-out rows, cells or positives, then fit with them on everything.

    The estimator's own parameters come first where the search space holds them, then ever nearer neighbours of the
    best so far, then what is left of a coarse look along the path of its penalty. Where fits are alternations over
    factors (LEML, OneClassMF), a candidate that has but a stronger penalty than one before starts from its factors.
    The last fit always starts from nothing, so that the result does not depend on the way to it.

    Parameters
    ----------
    estimator : estimator
        Anything with ``fit`` and ``decision_function``; it is not changed. Of a :class:`~labelgap.Tagger` whose words
        are not searched, each text is read once.
    X, Y, observed
        The training data, as for the estimator's ``fit``; X may be None where the estimator allows it.
    grid : dict of sequences, or a sequence of such dicts, optional
        Candidates; all of them are tried, if the budget allows. By default the method's own space
        (``labelgap.model_selection.SPACES``), of which only the promising part is tried.
    hold_out : {"auto", "rows", "cells", "positives"}, default="auto"
        Validate on new rows, on known cells, or on positives that are ranked among all cells that are no positives to
        the candidate. "auto" is positives without X, cells for MC1 and MCb where labels have gaps, else rows.
    metric : str, Metric, callable, or a sequence of them, default="P@1"
        As for :func:`select`.
    share : float, default=0.2
        How much is held out.
    budget : float, optional
        Seconds for everything. No candidate is begun that would not leave time for the last fit, by the time that
        its nearest neighbour took; one candidate is fitted in any case.
    n_folds : int, default=1
        The number of random splits whose scores are averaged.
    max_rows : int, optional
        Search on so many rows drawn at random; the last fit has all of them. Where an objective sums over rows, few
        rows want a somewhat weaker penalty than many.
    refit : bool, default=True
        Fit the best candidate on all of the data.
    random_state : int, RandomState or None
        Seeds the splits.
    verbose : int, default=0
        1 shows a progress bar, 2 a line for each candidate.

    Returns
    -------
    Tuning
        Ctrl-C keeps what was tried: the best so far is returned with the status "interrupted" and without a last fit,
        which could take long. Only before the first candidate is done is it raised.

    Examples
    --------
    >>> from labelgap import LEML, tune
    >>> from labelgap.datasets import make_low_rank
    >>> data = make_low_rank(200, 10, 8, rank=2, random_state=0)
    >>> found = tune(LEML(n_components=2), data.X, data.Y, grid={"alpha": [1000.0, 0.1]}, random_state=0)
    >>> found.params, found.status, len(found.table)
    ({'alpha': 0.1}, 'finished', 2)
    """
    time = Budget(_checked_budget(budget))
    estimator = _with_learner(estimator)
    _, inner = learner_of(estimator)
    labels = labels_for(estimator, Y, observed)
    how = _hold_out(hold_out, inner, X, labels)
    plan = _plan(estimator, grid)
    rng = check_random_state(random_state)
    X_few, few = _few_rows(X, labels, max_rows, rng)
    folds = [split(X_few, few, how, share, rng) for _ in range(_checked_folds(n_folds))]
    fit = _folds_of(estimator, plan, folds, metric)
    search = Search(fit, fit.criteria)
    scale = len(labels) / len(folds[0].Y_train) if refit else 0.0
    status = _run(search, plan, time, scale, every=grid is not None, verbose=verbose)
    search.check(undefined(metric, folds[0]))
    table = rows_of(search, metric)
    best = table[search.best]
    found = Tuning(best["params"], best["score"], table=table, status=status, hold_out=how)
    found.metrics, found.n_candidates, found.n_rows = _names(metric), len(plan), len(few)
    if refit and status != "interrupted":
        try:
            found.estimator = with_params(estimator, found.params).fit(X, Y if observed is None else labels)
        except KeyboardInterrupt:
            found.status = "interrupted"
    found.seconds = time.spent
    return found


def _run(search: Search, plan: Plan, time: Budget, scale: float, *, every: bool, verbose: int) -> str:
    """Try candidates until none is left or the time is up; return the status."""
    tried: list[Point] = []
    if every and time.seconds is None:
        search.last_wins = search.fit.starts.path is not None  # the strongest: a start is for stronger penalties
        points = plan.in_order(backwards=search.last_wins)
    else:
        points = plan.best_first(lambda: tried[search.best], every=every)
    with progress(len(plan) if every else None, "tune", verbose) as advance, warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of a candidate; the last fit says whether it converged
        try:
            for point in points:
                if tried and not time.allows(_next_seconds(point, tried, search, scale)):
                    return "budget"
                row = search.one(plan.params(point))
                tried.append(point)
                advance(f"{row['params']}: {row['error'] or row['score']}")
        except KeyboardInterrupt:
            if not tried:
                raise
            return "interrupted"
    return "finished"


def _next_seconds(point: Point, tried: list[Point], search: Search, scale: float) -> float:
    """Return the seconds that a candidate will take and, ``scale`` times those on a fold, the last fit after it."""
    rows = list(zip(tried, search.table, strict=True))
    cold = [(other, row) for other, row in rows if not row["warm"]]
    return _seconds_near(point, rows) + scale * _seconds_near(tried[search.best], cold) / len(search.fit.folds)


def _seconds_near(point: Point, rows: list[tuple[Point, dict[str, Any]]]) -> float:
    """Return the seconds of the candidate nearest to a point, the most of those as near."""
    nearest = min(distance(point, other) for other, _ in rows)
    return max(row["seconds"] for other, row in rows if distance(point, other) == nearest)


def _plan(estimator: Any, grid: Grid | None) -> Plan:
    """Return the candidates, those of each grid along its path."""
    own = {name: value for name, value in estimator.get_params().items() if np.ndim(value) == 0}
    if grid is None:
        grids: list[Axes] = [with_own_values(space_of(estimator), own)]
    else:
        ParameterGrid(grid)  # says what is wrong with it
        path = path_of(estimator)
        grids = [along_path(axes, path) for axes in ([grid] if isinstance(grid, Mapping) else grid)]
    known = estimator.get_params()
    unknown = [name for axes in grids for name in axes if name not in known]
    if unknown:
        raise ValueError(f"grid names {unknown[0]!r}, which is no parameter of {type(estimator).__name__}.")
    return Plan(grids, own)


def _folds_of(estimator: Any, plan: Plan, folds: list[Fold], metric: Any) -> EstimatorFolds:
    """Return the folds of the estimator, or of that within a Tagger on words that each fold has read once."""
    path = path_of(estimator)
    names = [name for axes in plan.grids for name in axes]
    if not isinstance(estimator, Tagger) or not all(name.startswith(WITHIN_TAGGER) for name in names):
        return EstimatorFolds(estimator, folds, get_criteria(metric, estimator), path=path)
    inner, read = estimator.estimator, [_read_words(estimator, fold) for fold in folds]
    own = None if path is None else (path[0].removeprefix(WITHIN_TAGGER), path[1])
    return EstimatorFolds(inner, read, get_criteria(metric, inner), path=own, prefix=WITHIN_TAGGER)


def _read_words(tagger: Tagger, fold: Fold) -> Fold:
    """Return a fold with features in place of texts, of words that only the training texts were asked for."""
    words = with_params(tagger, {})
    X_train = words._check_rows(fold.X_train, reset=True)
    return fold._replace(X_train=X_train, X_valid=words._check_rows(fold.X_valid))


def _few_rows(X: Any, labels: Labels, most: int | None, rng: np.random.RandomState) -> tuple[Any, Labels]:
    """Return at most so many rows, drawn at random."""
    if most is None or most >= len(labels):
        return X, labels
    if most < 2:
        raise ValueError(f"max_rows={most!r} is out of range; pass an integer of at least 2.")
    rows, _ = train_test_split(np.arange(len(labels)), train_size=int(most), random_state=rng)
    few = [X[i] for i in rows] if isinstance(X, list) else X if X is None else _rows_of(X, rows)
    return few, labels[rows]


def _rows_of(X: Any, rows: Any) -> Any:
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def _with_learner(estimator: Any) -> Any:
    """Return a Tagger with its default estimator in place, so that its parameters have names."""
    if isinstance(estimator, Tagger) and estimator.estimator is None:
        return with_params(estimator, {"estimator": BinaryRelevance()})
    return estimator


def _hold_out(given: str, inner: Any, X: Any, labels: Labels) -> str:
    if given != "auto":
        return given
    if X is None:
        return "positives"
    return "cells" if isinstance(inner, CompletionEstimator) and not labels.complete else "rows"


def _checked_budget(budget: Any) -> float | None:
    if budget is not None and not budget > 0:
        raise ValueError(f"budget={budget!r} is no time; pass seconds above 0, or None for no limit.")
    return budget


def _checked_folds(n_folds: Any) -> int:
    if not isinstance(n_folds, int) or n_folds < 1:
        raise ValueError(f"n_folds={n_folds!r} is out of range; pass an integer of at least 1.")
    return n_folds


def _names(metric: Any) -> list[str]:
    return [
        one if isinstance(one, str) else getattr(one, "__name__", repr(one))
        for one in (metric if is_several(metric) else [metric])
    ]
