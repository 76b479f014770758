"""Choice of parameters on held-out data: :func:`select` from a grid, :func:`tune` also without a grid."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import ParameterGrid, train_test_split
from sklearn.utils import check_random_state

from labelgap.estimators import BinaryRelevance, Tagger, as_labels_for
from labelgap.estimators.calibrating import count_folds
from labelgap.estimators.completion import CompletionEstimator
from labelgap.estimators.tagger import name_tags
from labelgap.model_selection.candidates import (
    TAGGER_PREFIX,
    Axes,
    Plan,
    Point,
    add_own_values,
    compute_distance,
    find_learner,
    get_path_parameter,
    get_space,
    order_axes,
)
from labelgap.model_selection.criteria import get_criteria, is_metric_sequence, name_metrics
from labelgap.model_selection.engine import Budget, EstimatorFoldFitter, Search, clone_with
from labelgap.model_selection.splits import Fold, split_data, take_rows
from labelgap.observations import Labels, holds_tags
from labelgap.observations.arguments import LabelsLike, MatrixLike, RandomSeed
from labelgap.runtime import get_runner, progress

FIRST_ROUND_BUDGET = 0.5  # the share of the time for a first round on a sub-sample

Grid = Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]]


@dataclass
class Selection:
    """The result of :func:`select`.

    Attributes
    ----------
    params : dict
        The best parameters.
    score : float or list of float
        Their validation score; a list if there are several metrics.
    estimator : estimator or None
        The estimator fitted with the best parameters on all data; ``None`` without ``refit``.
    table : list of dict
        For each candidate: ``params``, the validation ``score``, the ``seconds`` of its fit and its scoring, whether
        it had a ``warm`` start, and its ``error`` or None.
    """

    params: dict[str, Any]
    score: Any
    estimator: Any = None
    table: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Tuning(Selection):
    """The result of :func:`tune`: a :class:`Selection` with further facts about the search.

    Attributes
    ----------
    params, score, estimator, table
        As in :class:`Selection`.
    status : str
        "finished", "budget" (the time was up before all candidates were tried) or "interrupted" (by Ctrl-C).
    hold_out : str
        What was held out: "rows", "cells" or "positives".
    metrics : list of str
        The names of the metrics.
    n_candidates : int
        Number of candidates in the search space.
    n_rows : int
        Number of rows of the search, held-out rows included.
    seconds : float
        Time of the search and the last fit.
    """

    status: str = "finished"
    hold_out: str = "rows"
    metrics: Sequence[str] = ("score",)
    n_candidates: int = 0
    n_rows: int = 0
    seconds: float = 0.0

    def to_records(self) -> list[dict[str, Any]]:
        """Return one flat dict for each candidate, in the order of trial; "best" is True for the chosen one."""
        best = next(number for number, row in enumerate(self.table) if row["params"] is self.params)
        return [self._make_record(row, number == best) for number, row in enumerate(self.table)]

    def _make_record(self, row: Mapping[str, Any], best: bool) -> dict[str, Any]:
        values = np.atleast_1d(row["score"]).tolist()
        scores = {name: None if np.isnan(value) else value for name, value in zip(self.metrics, values, strict=True)}
        facts = {"seconds": round(row["seconds"], 3), "warm": row["warm"], "rows": self.n_rows, "error": row["error"]}
        return {"best": best, **row["params"], **scores, **facts}

    def __str__(self) -> str:
        records = self.to_records()
        names = list(dict.fromkeys(name for record in records for name in record))
        lines = [names, *([format_value(record.get(name)) for name in names] for record in records)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def select(
    estimator: Any,
    grid: Grid,
    X: MatrixLike,
    Y: LabelsLike,
    *,
    metric: Any = "P@3",
    hold_out: Literal["rows", "cells", "positives"] = "rows",
    share: float = 0.2,
    random_state: RandomSeed = None,
    refit: bool = True,
    patience: int | None = None,
) -> Selection:
    """Choose parameters from a grid on held-out known cells, then fit with them on all data.

    Every candidate is a clone that is fitted on the same training part; unknown cells are never scored. The first of
    equally good candidates is chosen. A candidate whose fit fails is recorded in the table and is never chosen. For a
    search with a time budget, with warm starts or without a grid, see :func:`tune`.

    With 10,000 training rows or more, all candidates are first fitted on an eighth of them, at least 5,000. Those
    whose scores are then worse than the best one's by more than 3 % are not fitted on all rows; their scores in the
    table are the differences there, added to the best one's score.

    Parameters
    ----------
    estimator : estimator
        Any estimator with ``fit`` and ``decision_function``; it is not changed.
    grid : dict of sequences, or a sequence of such dicts
        The candidates, as for scikit-learn's ``ParameterGrid``.
    X, Y : training data
        As for the estimator's ``fit``; Y may have gaps.
    metric : str, Metric, callable, or a sequence of them, default="P@3"
        What is compared, see :func:`get_criterion`. With several metrics, the candidate with the smallest largest
        regret is chosen; the regret of a metric is the difference to its best value, relative to the best value. With
        few known cells in each row P@k is noisy, since few rows have a known positive and even fewer have k known
        cells; "Hamming" and "loss" use every known cell.
    hold_out : {"rows", "cells", "positives"}, default="rows"
        Validate on new rows, on known cells of the training rows, or on positives of the training rows, which are
        ranked among all cells that are not training positives.
    share : float, default=0.2
        The share that is held out.
    random_state : int, RandomState or None, default=None
        The seed of the split.
    refit : bool, default=True
        Whether to fit the best candidate on all data.
    patience : int, optional
        Stop after this many candidates in a row that are worse than the best one by more than 3 % of a metric. This
        is for grids whose fits become slower, such as a falling penalty. Candidates that are about equally good do
        not stop the search, and after the first candidate it takes twice as many worse ones.

    Returns
    -------
    Selection

    Examples
    --------
    >>> from labelgap import LEML
    >>> from labelgap.datasets import make_low_rank
    >>> data = make_low_rank(200, 10, 8, rank=2, random_state=0)
    >>> result = select(LEML(n_components=2), {"alpha": [0.1, 1000.0]}, data.X, data.Y, metric="AUC", random_state=0)
    >>> result.params
    {'alpha': 0.1}
    >>> result.estimator.alpha, len(result.table)
    (0.1, 2)
    """
    rng, candidates = check_random_state(random_state), list(ParameterGrid(grid))
    fold = split_data(X, as_labels_for(estimator, Y), hold_out, share, rng)
    fitter = EstimatorFoldFitter(estimator, [fold], get_criteria(metric, estimator))
    search = Search(fitter, fitter.directions)
    if len(candidates) > 1 and (sample := fitter.sample(rng)) is not None:
        first = Search(sample, fitter.directions)
        _try_grid(first, candidates, patience)
        promising = [first.table[place]["params"] for place in first.list_promising()]
        _try_grid(search, [params for params in candidates if params in promising], patience)
        search.add_dropped(first)
    else:
        _try_grid(search, candidates, patience)
    best, table = _summarize(search, metric, fold)
    fitted = clone_with(estimator, best["params"]).fit(X, Y) if refit else None
    return Selection(best["params"], best["score"], fitted, table)


def _try_grid(search: Search, candidates: Sequence[dict[str, Any]], patience: int | None) -> None:
    """Try candidates in order, until the last ``patience`` ones were all clearly worse than the best one."""
    for params in candidates:
        search.try_candidate(params)
        if patience is not None and search.is_declining(patience):
            return


def tune(
    estimator: Any,
    X: MatrixLike,
    Y: LabelsLike,
    *,
    grid: Grid | None = None,
    observed: MatrixLike | None = None,
    hold_out: Literal["auto", "rows", "cells", "positives"] = "auto",
    metric: Any = "P@1",
    share: float = 0.2,
    budget: float | None = None,
    n_folds: int = 1,
    max_rows: int | None = None,
    refit: bool = True,
    calibrate: bool | str = False,
    random_state: RandomSeed = None,
    verbose: int = 0,
) -> Tuning:
    """Choose an estimator's parameters on held-out rows, cells or positives, then fit with them on all data.

    The search begins with the estimator's own parameters if they are in the search space, continues with neighbours
    of the best candidate so far at smaller and smaller distances, and ends with a coarse grid along the path of the
    penalty. For LEML and OneClassMF a candidate starts from the factors of an earlier one that differs only by a
    weaker penalty. The last fit never has a warm start, so that the result does not depend on the order of the
    search.

    With many training rows the search runs on a sub-sample first, as in :func:`select`, in half of the budget; the
    candidates that it leaves are then fitted on all rows.

    Parameters
    ----------
    estimator : estimator
        Any estimator with ``fit`` and ``decision_function``; it is not changed. A :class:`~labelgap.Tagger` whose
        text parameters are not searched reads each text once.
    X, Y, observed : training data
        Y may hold lists of tags if the estimator is a :class:`~labelgap.Tagger`.
        As for the estimator's ``fit``; X may be None if the estimator allows it.
    grid : dict of sequences, or a sequence of such dicts, optional
        The candidates, all of which are tried if the budget allows. By default the promising part of the method's own
        search space (``labelgap.model_selection.SPACES``) is tried.
    hold_out : {"auto", "rows", "cells", "positives"}, default="auto"
        Validate on new rows, on known cells, or on positives, which are ranked among all cells that are not training
        positives. "auto" means positives if X is None, cells for MC1 and MCb if labels have gaps, else rows.
    metric : str, Metric, callable, or a sequence of them, default="P@1"
        What is compared, as for :func:`select`.
    share : float, default=0.2
        The share that is held out.
    budget : float, optional
        Seconds for the search and the last fit. A candidate is tried only if the time of its nearest neighbour leaves
        enough time for the last fit. At least one candidate is always fitted.
    n_folds : int, default=1
        Number of random splits; scores are averaged over them.
    max_rows : int, optional
        Number of rows, drawn at random, to use in the search; the last fit uses all rows. If the objective is a sum
        over rows, fewer rows need a slightly weaker penalty.
    refit : bool, default=True
        Whether to fit the best candidate on all data.
    calibrate : bool or str, default=False
        Whether the last fit calibrates probabilities and chooses thresholds; a str is the aim of the thresholds.
    random_state : int, RandomState or None, default=None
        The seed of the splits.
    verbose : int, default=0
        1 shows a progress bar, 2 prints a line for each candidate.

    Returns
    -------
    Tuning
        After Ctrl-C it has the best candidate so far, the status "interrupted" and no fitted estimator. Ctrl-C before
        the end of the first candidate raises KeyboardInterrupt.

    Examples
    --------
    >>> from labelgap import LEML, tune
    >>> from labelgap.datasets import make_low_rank
    >>> data = make_low_rank(200, 10, 8, rank=2, random_state=0)
    >>> result = tune(LEML(n_components=2), data.X, data.Y, grid={"alpha": [1000.0, 0.1]}, random_state=0)
    >>> result.params, result.status, len(result.table)
    ({'alpha': 0.1}, 'finished', 2)
    """
    if budget is not None and not budget > 0:
        raise ValueError(f"budget={budget!r} is not a duration; pass seconds above 0, or None for no limit.")
    if not isinstance(n_folds, int) or n_folds < 1:
        raise ValueError(f"n_folds={n_folds!r} is out of range; pass an integer of at least 1.")
    time = Budget(budget)
    if isinstance(estimator, Tagger) and estimator.estimator is None:
        estimator = clone_with(estimator, {"estimator": BinaryRelevance()})  # so that its parameters have names
    if Y is not None and isinstance(estimator, Tagger) and holds_tags(Y):
        estimator, Y = name_tags(estimator, Y)
    labels = as_labels_for(estimator, Y, observed)
    hold_out = _choose_hold_out(estimator, X, labels) if hold_out == "auto" else hold_out
    plan = _make_plan(estimator, grid)
    rng = check_random_state(random_state)
    X_search, labels_search = _sample_rows(X, labels, max_rows, rng)
    folds = [split_data(X_search, labels_search, hold_out, share, rng) for _ in range(n_folds)]
    run = _TuningRun(_make_fitter(estimator, plan, folds, metric), plan, time, exhaustive=grid is not None)
    run.refit_scale = len(labels) / len(folds[0].Y_train) if refit else 0.0
    run.refit_scale *= 1 + count_folds(len(labels)) if calibrate else 1
    run, status = _try_rounds(run.sample(rng), run, verbose)
    best, table = _summarize(run.search, metric, folds[0])
    result = Tuning(best["params"], best["score"], table=table, status=status, hold_out=hold_out)
    result.metrics, result.n_candidates, result.n_rows = name_metrics(metric), len(plan), len(labels_search)
    if refit and status != "interrupted":
        try:
            options, Y = {"calibrate": calibrate} if calibrate else {}, Y if observed is None else labels
            result.estimator = clone_with(estimator, result.params).fit(X, Y, **options)
        except KeyboardInterrupt:
            result.status = "interrupted"
    result.seconds = time.spent
    return result


def _try_rounds(first: _TuningRun | None, run: _TuningRun, verbose: int) -> tuple[_TuningRun, str]:
    """Try candidates in a first round, if there is one, and then the promising ones; return the run and its status.

    If the user ends it before a promising candidate was fitted on all rows, the run is the first round.
    """
    if first is None:
        return run, run.try_candidates(verbose)
    before = first.try_candidates(verbose)
    if before == "interrupted":
        return first, before
    run.promising = [first.tried[place] for place in first.search.list_promising()]
    try:
        status = run.try_candidates(verbose)
    except KeyboardInterrupt:
        return first, "interrupted"
    run.search.add_dropped(first.search)
    return run, before if status == "finished" else status


class _TuningRun:
    """The candidates of :func:`tune`, tried until none or no time is left.

    ``promising`` are the points that a first round has left, best first; None for all points.
    """

    refit_scale = 0.0  # the expected time of the last fit, relative to a fit on one fold

    def __init__(self, fitter: EstimatorFoldFitter, plan: Plan, time: Budget, *, exhaustive: bool) -> None:
        self.fitter, self.plan, self.time, self.exhaustive = fitter, plan, time, exhaustive
        self.search = Search(fitter, fitter.directions)
        self.tried: list[Point] = []
        self.promising: list[Point] | None = None

    def sample(self, rng: np.random.RandomState) -> _TuningRun | None:
        """Return the run of a first round, on fewer rows and in half of the time; None if these would be too few."""
        fitter = self.fitter.sample(rng)
        if fitter is None or (self.exhaustive and len(self.plan) == 1):
            return None
        time = Budget(None if self.time.seconds is None else FIRST_ROUND_BUDGET * self.time.seconds)
        first = _TuningRun(fitter, self.plan, time, exhaustive=self.exhaustive)
        first.refit_scale = 0.0
        return first

    def try_candidates(self, verbose: int) -> str:
        """Try candidates and return the status."""
        n_candidates = len(self.plan) if self.exhaustive else None
        with progress(n_candidates, "tune", verbose) as advance, warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the last fit warns if it has not converged
            try:
                for row in self._try_points(self._order()):
                    if row is None:
                        return "budget"
                    advance(f"{row['params']}: {row['error'] or row['score']}")
            except KeyboardInterrupt:
                if not self.tried:
                    raise
                return "interrupted"
        return "finished"

    def _try_points(self, points: Iterable[Point]) -> Iterator[dict[str, Any] | None]:
        """Yield the row of each candidate; None when the time is over. Other machines try all of a grid at a time."""
        if get_runner() is not None and self.exhaustive and self.time.seconds is None:
            self.tried = list(points)
            yield from self.search.try_in_parallel([self.plan.params(point) for point in self.tried])
            return
        for point in points:
            if self.tried and not self.time.allows(self._estimate_seconds(point)):
                yield None
            row = self.search.try_candidate(self.plan.params(point))
            self.tried.append(point)
            yield row

    def _order(self) -> Any:
        """Return an iterator over the points; without a time limit, paths run so that candidates have warm starts."""
        if self.exhaustive and self.time.seconds is None:
            # From weak to strong, since a start is for stronger penalties; of equally good ones the strongest wins.
            self.search.last_wins = self.fitter.starts.path is not None
            points = self.plan.iter_in_order(backwards=self.search.last_wins)
            return points if self.promising is None else filter(set(self.promising).__contains__, points)
        if self.promising is not None:
            return iter(self.promising)
        return self.plan.iter_best_first(lambda: self.tried[self.search.best_index], exhaustive=self.exhaustive)

    def _estimate_seconds(self, point: Point) -> float:
        """Return the expected seconds of a candidate and of the last fit."""
        rows = list(zip(self.tried, self.search.table, strict=True))
        cold = [(other, row) for other, row in rows if not row["warm"]]
        refit = self.refit_scale * _get_nearest_seconds(self.tried[self.search.best_index], cold)
        return _get_nearest_seconds(point, rows) + refit / len(self.fitter.folds)


def _get_nearest_seconds(point: Point, rows: list[tuple[Point, dict[str, Any]]]) -> float:
    """Return the seconds of the candidate nearest to a point, and the largest number among equally near ones."""
    nearest = min(compute_distance(point, other) for other, _ in rows)
    return max(row["seconds"] for other, row in rows if compute_distance(point, other) == nearest)


def _summarize(search: Search, metric: Any, fold: Fold) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the best row and the table of a search, with a single score in each row if there is a single metric."""
    search.check_scores(
        f"metric={metric!r} is undefined on the held-out part ({fold.Y_valid!r}): no row has the cells that it "
        "compares. Raise share, or choose 'Hamming' or 'loss', which need any known cell."
    )
    names = ("params", "score", "seconds", "warm", "error")
    table = [{name: row[name] for name in names} for row in search.table]
    if not is_metric_sequence(metric):
        table = [row | {"score": row["score"][0]} for row in table]
    return table[search.best_index], table


def _make_plan(estimator: Any, grid: Grid | None) -> Plan:
    """Return the candidates of the grid, or of the default search space and the estimator's own values."""
    params = estimator.get_params()
    own = {name: value for name, value in params.items() if np.ndim(value) == 0}
    if grid is None:
        grids: list[Axes] = [add_own_values(get_space(estimator), own)]
    else:
        ParameterGrid(grid)  # validates the grid
        path = get_path_parameter(estimator)
        grids = [order_axes(axes, path) for axes in ([grid] if isinstance(grid, Mapping) else grid)]
    unknown = [name for axes in grids for name in axes if name not in params]
    if unknown:
        raise ValueError(f"grid names {unknown[0]!r}, which is not a parameter of {type(estimator).__name__}.")
    return Plan(grids, own)


def _make_fitter(estimator: Any, plan: Plan, folds: list[Fold], metric: Any) -> EstimatorFoldFitter:
    """Return a fitter of the estimator, or of the estimator within a Tagger if no text parameter is searched."""
    path = get_path_parameter(estimator)
    names = [name for axes in plan.grids for name in axes]
    if not isinstance(estimator, Tagger) or not all(name.startswith(TAGGER_PREFIX) for name in names):
        return EstimatorFoldFitter(estimator, folds, get_criteria(metric, estimator), path=path)
    learner, vectorized = estimator.estimator, [_vectorize(estimator, fold) for fold in folds]
    if path is not None:
        path = path._replace(name=path.name.removeprefix(TAGGER_PREFIX))
    criteria = get_criteria(metric, learner)
    return EstimatorFoldFitter(learner, vectorized, criteria, path=path, prefix=TAGGER_PREFIX)


def _vectorize(tagger: Tagger, fold: Fold) -> Fold:
    """Return a fold with features in place of texts; the vocabulary is that of the training texts."""
    vectorizer = clone_with(tagger, {})
    X_train = vectorizer._learn_words(fold.X_train)
    return fold._replace(X_train=X_train, X_valid=vectorizer.transform(fold.X_valid))


def _sample_rows(X: Any, labels: Labels, max_rows: int | None, rng: np.random.RandomState) -> tuple[Any, Labels]:
    """Return at most ``max_rows`` rows, drawn at random."""
    if max_rows is None or max_rows >= len(labels):
        return X, labels
    if max_rows < 2:
        raise ValueError(f"max_rows={max_rows!r} is out of range; pass an integer of at least 2.")
    rows, _ = train_test_split(np.arange(len(labels)), train_size=int(max_rows), random_state=rng)
    return None if X is None else take_rows(X, rows), labels[rows]


def _choose_hold_out(estimator: Any, X: Any, labels: Labels) -> Literal["rows", "cells", "positives"]:
    if X is None:
        return "positives"
    _, learner = find_learner(estimator)
    return "cells" if isinstance(learner, CompletionEstimator) and not labels.complete else "rows"


def format_value(value: Any) -> str:
    """Return a value of the table as text: a star for True, nothing for False and None.

    >>> format_value(True), format_value(0.1234567), format_value(None)
    ('*', '0.12346', '')
    """
    if isinstance(value, bool):
        return "*" if value else ""
    return "" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)
