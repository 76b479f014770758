"""MC-1 and MC-b (Goldberg, Zhu, Recht, Xu and Nowak 2010): tables 1 to 5.

Protocol: each seed draws which cells of the features and of the labels are known, and the data if they are generated;
errors are measured at the hidden cells. MC-1 and MC-b run the published loop to a relative change of 1e-5 and choose
μ and λ by 5-fold cross-validation over known cells, by label error; λ is 1 on emotions and yeast. They are compared
with imputers followed by one SVM per label, whose C is chosen from 1e-8, …, 1e8 by 5-fold cross-validation.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from statistics import fmean, stdev
from typing import Any, NamedTuple

from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer

from labelgap.estimators import EMImputer, FPCImputer, LabelwiseSVM
from labelgap.model_selection import MC1CV, MCbCV
from labelgap_papers.experiments import Experiment, PublishedNumber, RunOptions, TableRow, read_published
from labelgap_papers.paper_methods import MethodFit, Task, register_method
from labelgap_papers.study import Study
from labelgap_papers.trials import REAL_DATASETS

_CITATION, _NUMBERS = read_published("mc")

META_AVERAGE = "meta-average"
N_TRIALS, N_QUICK_TRIALS = 10, 3
SIGNIFICANCE_LEVEL = 0.05
ROUNDING = 1e-9  # a standard deviation below this share of the mean is rounding
WHOLE_EM = "EM1 (whole)+SVM"
# The paper searches λ on generated data and uses λ = 1 on real data.
LABEL_WEIGHTS: dict[str, list[float]] = {name: [1.0] for name in REAL_DATASETS}
# These parameters come closest to most errors that the paper prints for EM.
PUBLISHED_EM: dict[str, Any] = {"prior_rows": 0.01, "conditional_covariances": False}
PUBLISHED_LOOP: dict[str, Any] = {"solver": "fpc", "tol": 1e-5}

_BEST = "* marks the smallest error of a setting, and errors that do not differ from it (paired t-test at 0.05)."
_LOOP = (
    "MC-1 and MC-b are the published fixed-point loops, stopped at a relative change of 1e-5. MC-1's loop does not "
    "end at the minimum of its problem; mc/optimum has the minimum."
)
_EM = (
    "EM1 and EM4 leave out the conditional covariances of missing cells, which comes close to the paper's errors; "
    f"{WHOLE_EM} is the full EM algorithm."
)
_ROOT = "The paper's imputation errors are the square roots of its formula; so are ours."
_ORACLE = "“With all features” is the paper's oracle: the SVMs see every feature. Its numbers are in the text."
_RAW = "Features are not scaled; the paper does not state its scaling."
_T_TEST = "p is the p-value of a two-sample t-test between the errors with 2 and with 10 labels."


# --- methods --------------------------------------------------------------------------------------------------------


class FilledCells(NamedTuple):
    """The decision values of all label cells, and all features."""

    decision_: NDArray
    features_: NDArray


def _time_fit(fit: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of a fit and its seconds, without a warning if the paper's stop comes before convergence."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        result = fit()
    return result, time.perf_counter() - start


def _register_completion(name: str, search: type, **options: Any) -> None:
    @register_method(name, ranked=False)
    def fit(task: Task) -> MethodFit:
        weights = LABEL_WEIGHTS.get(task.dataset)
        model = search(label_weights=weights, random_state=task.seed, loss=task.loss, **options)
        _, seconds = _time_fit(lambda: model.fit(task.X, task.Y))
        return MethodFit(FilledCells(model.decision_, model.features_), model.best_params_, seconds)


def _register_imputer(name: str, make_imputer: Callable[[int], Any]) -> None:
    @register_method(name, ranked=False)
    def fit(task: Task) -> MethodFit:
        features, impute_seconds = _time_fit(lambda: make_imputer(task.seed).fit_transform(task.X))
        svms = LabelwiseSVM("cv", random_state=task.seed)
        _, svm_seconds = _time_fit(lambda: svms.fit(features, task.Y))
        return MethodFit(FilledCells(svms.decision_function(features), features), {}, impute_seconds + svm_seconds)


def _impute_simply(**options: Any) -> Callable[[int], SimpleImputer]:
    return lambda seed: SimpleImputer(keep_empty_features=True, **options)


_register_completion("MC-1", MC1CV, **PUBLISHED_LOOP)
_register_completion("MC-b", MCbCV, **PUBLISHED_LOOP)
_register_completion("MC-1 (optimum)", MC1CV, solver="accelerated", tol=1e-6)
_register_completion("MC-b (optimum)", MCbCV, solver="accelerated", tol=1e-6)
_register_imputer("FPC+SVM", lambda seed: FPCImputer(solver="fpc", tol=1e-5))
_register_imputer("EM1+SVM", lambda seed: EMImputer(1, **PUBLISHED_EM))
_register_imputer("EM4+SVM", lambda seed: EMImputer(4, **PUBLISHED_EM, random_state=seed))
_register_imputer(WHOLE_EM, lambda seed: EMImputer(1))
_register_imputer("Mean+SVM", _impute_simply())
_register_imputer("Zero+SVM", _impute_simply(strategy="constant", fill_value=0.0))
_register_imputer("SVM", _impute_simply())  # for rows without gaps: nothing is imputed


# --- rows -----------------------------------------------------------------------------------------------------------


def mark_best(rows: Sequence[TableRow]) -> list[TableRow]:
    """Mark the smallest error among the rows of one setting and metric, and those that do not differ from it.

    Errors differ if a two-tailed t-test, paired by seed, is significant at 0.05.

    >>> from labelgap_papers import Setting
    >>> values = {"a": (1.0, 2.0, 3.0), "b": (1.1, 1.9, 3.2), "c": (2.0, 3.1, 4.0)}
    >>> rows = [TableRow("x", Setting("s", name, "logistic"), "label error", None, v) for name, v in values.items()]
    >>> [row.best for row in mark_best(rows)]
    [True, True, False]
    """
    best = min((row for row in rows if row.ours is not None), key=lambda row: row.ours or 0.0, default=None)
    return [row if best is None else replace(row, best=_is_as_good(row.values, best.values)) for row in rows]


def _is_as_good(values: tuple[float, ...], best: tuple[float, ...]) -> bool:
    if not values or values == best:
        return bool(values)
    differences = [a - b for a, b in zip(values, best)]  # a run that is not finished has fewer seeds of some methods
    mean, count = fmean(differences), len(differences)
    deviation = stdev(differences) if count > 1 else 0.0
    if deviation <= ROUNDING * abs(mean):
        return mean == 0
    from scipy.stats import t

    statistic = abs(mean) * count**0.5 / deviation
    return bool(2 * t.sf(statistic, count - 1) >= SIGNIFICANCE_LEVEL)


def compute_meta_average(
    number: PublishedNumber, rows: Sequence[TableRow], numbers: Sequence[PublishedNumber]
) -> TableRow | None:
    """Return the average of a method over all settings, trial by trial.

    If only some settings were run, the paper's side is the average of its numbers for these.
    """
    method = number.setting.method
    of_method = [row for row in rows if row.setting.method == method and row.metric == number.metric]
    if not of_method:
        return None
    settings = [n for n in numbers if n.setting.method == method and n.setting.dataset != META_AVERAGE]
    paper = number.value
    if len(of_method) < len(settings):
        known = [row.paper for row in of_method if row.paper is not None]
        paper = fmean(known) if known else None
    values = tuple(fmean(of_seed) for of_seed in zip(*(row.values for row in of_method)))
    seconds = sum(row.seconds for row in of_method)
    current = all(row.current for row in of_method)
    experiment = of_method[0].experiment
    return TableRow(experiment, number.setting, number.metric, paper, values, (), seconds, current=current)


# --- experiments ----------------------------------------------------------------------------------------------------


def _make_experiment(name: str, title: str, numbers: Sequence[PublishedNumber], *notes: str) -> Experiment:
    """Return the experiment that fits all methods of a setting and marks the best, setting by setting."""

    def run(study: Study) -> Iterator[TableRow]:
        rows: list[TableRow] = []
        selected = [n for n in numbers if study.options.accepts(n.setting)]
        single = [n for n in selected if n.setting.dataset != META_AVERAGE]
        for _, group in groupby(single, lambda n: (n.setting.dataset, n.setting.observed, n.metric)):
            marked = mark_best([row for number in group if (row := study.compare(name, number)) is not None])
            rows += marked
            yield from marked
        averages = (compute_meta_average(n, rows, numbers) for n in selected if n.setting.dataset == META_AVERAGE)
        yield from mark_best([row for row in averages if row is not None])

    settings = list(dict.fromkeys(number.setting for number in numbers))
    quick = RunOptions(seeds=N_QUICK_TRIALS)
    return Experiment(name, _CITATION, title, run, settings, None, (_BEST, *notes), N_TRIALS, quick, numbers)


def _test_more_labels(table: Experiment) -> Experiment:
    """Add to table 3 the p-values of the difference between 2 and 10 labels."""

    def run(study: Study) -> Iterator[TableRow]:
        from scipy.stats import ttest_ind

        rows = list(table.run(study))
        yield from rows
        for few in rows:
            for many in rows:
                same_data = few.setting.dataset == f"{many.setting.dataset} t=2"
                same_method = few.setting.method == many.setting.method and few.metric == many.metric
                if same_data and same_method and len(few.values) > 1:
                    p = float(ttest_ind(few.values, many.values).pvalue)
                    yield replace(many, metric=f"p, {many.metric}", paper=None, values=(p,), best=False)

    return replace(table, run=run, notes=(*table.notes, _T_TEST))


def _add_method(numbers: Sequence[PublishedNumber], after: str, method: str) -> list[PublishedNumber]:
    """Insert a method that the paper does not have after each number of another method."""
    extended = []
    for number in numbers:
        extended.append(number)
        if number.setting.method == after:
            extended.append(replace(number, setting=replace(number.setting, method=method), value=None))
    return extended


def _select_optimum_numbers() -> list[PublishedNumber]:
    """Return the settings of tables 1 and 2 for MC-1 and MC-b, as published and at the minimum."""
    numbers = [n for table in (1, 2) for n in _TABLES[table] if n.setting.method in ("MC-b", "MC-1")]
    for method in ("MC-b", "MC-1"):
        numbers = _add_method(numbers, method, f"{method} (optimum)")
    return sorted(numbers, key=lambda number: number.setting.dataset == META_AVERAGE)


_TABLES = {
    table: _add_method([n for n in _NUMBERS if n.table == table], "EM1+SVM", WHOLE_EM) for table in (1, 2, 4, 5)
}
_TABLE_3 = [number for number in _NUMBERS if number.table == 3]
_REAL_NOTES = (_LOOP, _EM, _ROOT, _ORACLE, _RAW)

EXPERIMENTS = [
    _make_experiment("mc/table-1", "Label error on generated data", _TABLES[1], _LOOP, _EM),
    _make_experiment("mc/table-2", "Imputation error on generated data", _TABLES[2], _LOOP, _EM, _ROOT),
    _test_more_labels(_make_experiment("mc/table-3", "More labels help matrix completion", _TABLE_3, _LOOP)),
    _make_experiment("mc/table-4", "Emotions", _TABLES[4], *_REAL_NOTES),
    _make_experiment("mc/table-5", "Yeast", _TABLES[5], *_REAL_NOTES),
    _make_experiment(
        "mc/optimum", "Tables 1 and 2 at the minimum of MC-1 and MC-b", _select_optimum_numbers(), _LOOP
    ),
]
