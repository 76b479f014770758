"""MC-1 and MC-b (Goldberg, Zhu, Recht, Xu and Nowak 2010): tables 1 to 5.

Protocol: each seed draws which cells of the features and of the labels are known, and on generated data the data too;
errors are of the cells that were hidden. MC-1 and MC-b run the published loop to a relative change of 1e-5 and choose
μ and λ by 5-fold cross-validation over known cells, by label error; λ is 1 on emotions and yeast. Machines choose C
among 1e-8, …, 1e8.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from statistics import fmean

from labelgap.reproduce import mc_methods  # noqa: F401, registers the methods
from labelgap.reproduce.records import Experiment, Options, Row, Setting
from labelgap.reproduce.registry import Published, published
from labelgap.reproduce.study import Study
from labelgap.reproduce.winners import NOTE, mark_best

_CITATION, _NUMBERS = published("mc")

META = "meta-average"
TRIALS, QUICK_TRIALS = 10, 3
WHOLE_EM = "EM1 (whole)+SVM"

_LOOP = (
    "MC-1 and MC-b are the published fixed point loops, stopped at a relative change of 1e-5. MC-1's does not end at "
    "the minimum of its problem; mc/optimum has the minimum."
)
_EM = (
    "EM1 and EM4 leave out the conditional covariances of missing cells, which comes near the paper's errors; "
    f"{WHOLE_EM} is EM as it is derived."
)
_ROOT = "The paper's imputation errors are the roots of what its formula says; so are ours."
_ORACLE = "“With all features” is the paper's oracle: the machines see every feature. Its text has the numbers."
_RAW = "Features are not scaled; the paper does not say."
_T_TEST = "p is that of a two-sample t-test between the errors with 2 and with 10 labels."


def _key(number: Published) -> tuple[str, float, str]:
    return number.setting.dataset, number.setting.observed, number.metric


def _numbers(table: int) -> list[Published]:
    return [number for number in _NUMBERS if number.table == table]


def _with_method(numbers: Sequence[Published], like: str, method: str) -> list[Published]:
    """Return numbers, and after each of one method the same setting of another that the paper does not have."""
    found = []
    for number in numbers:
        found.append(number)
        if number.setting.method == like:
            found.append(replace(number, setting=replace(number.setting, method=method), value=None))
    return found


def _experiment(name: str, title: str, numbers: Sequence[Published], *notes: str) -> Experiment:
    """Return the experiment that fits all methods of a setting, marks the best, and goes on to the next."""

    def run(study: Study) -> Iterator[Row]:
        rows: list[Row] = []
        for _, group in groupby((n for n in numbers if n.setting.dataset != META), _key):
            asked = [number for number in group if study.options.keeps(number.setting)]
            marked = mark_best([row for number in asked if (row := study.compare(name, number)) is not None])
            rows += marked
            yield from marked
        averages = [n for n in numbers if n.setting.dataset == META and study.options.keeps(n.setting)]
        yield from mark_best([row for number in averages if (row := meta_average(number, rows, numbers)) is not None])

    settings = list(dict.fromkeys(number.setting for number in numbers))
    quick = Options(seeds=QUICK_TRIALS)
    return Experiment(name, _CITATION, title, run, lambda: settings, None, (NOTE, *notes), TRIALS, quick, numbers)


def meta_average(number: Published, rows: Sequence[Row], numbers: Sequence[Published]) -> Row | None:
    """Return the average over all settings, trial by trial; of some, beside that of the paper's numbers for these."""
    mine = [row for row in rows if row.setting.method == number.setting.method and row.metric == number.metric]
    if not mine:
        return None
    every = [n for n in numbers if n.setting.method == number.setting.method and n.setting.dataset != META]
    paper = number.value
    if len(mine) < len(every):
        known = [row.paper for row in mine if row.paper is not None]
        paper = fmean(known) if known else None
    values = tuple(fmean(of_seed) for of_seed in zip(*(row.values for row in mine), strict=True))
    return Row(mine[0].experiment, number.setting, number.metric, paper, values, (), sum(row.seconds for row in mine))


def _more_labels(table: Experiment) -> Experiment:
    """Add to table 3 how sure it is that more labels help."""

    def run(study: Study) -> Iterator[Row]:
        rows = list(table.run(study))
        yield from rows
        for few in rows:
            for many in rows:
                if _same_but_labels(few.setting, many.setting) and few.metric == many.metric and len(few.values) > 1:
                    yield replace(many, metric=f"p, {many.metric}", paper=None, values=(_p(few, many),), best=False)

    return replace(table, run=run, notes=(*table.notes, _T_TEST))


def _same_but_labels(few: Setting, many: Setting) -> bool:
    return few.dataset == f"{many.dataset} t=2" and few.method == many.method


def _p(first: Row, second: Row) -> float:
    from scipy.stats import ttest_ind

    return float(ttest_ind(first.values, second.values).pvalue)


_TABLE_1, _TABLE_2 = (_with_method(_numbers(table), "EM1+SVM", WHOLE_EM) for table in (1, 2))


def _at_the_optimum() -> list[Published]:
    """Return the settings of tables 1 and 2 for MC-1 and MC-b, as published and at the minimum."""
    found = [n for n in (*_TABLE_1, *_TABLE_2) if n.setting.method in ("MC-b", "MC-1")]
    for method in ("MC-b", "MC-1"):
        found = _with_method(found, method, f"{method} (optimum)")
    return sorted(found, key=lambda number: number.setting.dataset == META)


EXPERIMENTS = [
    _experiment("mc/table-1", "Label error on generated data", _TABLE_1, _LOOP, _EM),
    _experiment("mc/table-2", "Imputation error on generated data", _TABLE_2, _LOOP, _EM, _ROOT),
    _more_labels(_experiment("mc/table-3", "More labels help matrix completion", _numbers(3), _LOOP)),
    _experiment(
        "mc/table-4", "Emotions", _with_method(_numbers(4), "EM1+SVM", WHOLE_EM), _LOOP, _EM, _ROOT, _ORACLE, _RAW
    ),
    _experiment(
        "mc/table-5", "Yeast", _with_method(_numbers(5), "EM1+SVM", WHOLE_EM), _LOOP, _EM, _ROOT, _ORACLE, _RAW
    ),
    _experiment("mc/optimum", "Tables 1 and 2 at the minimum of MC-1 and MC-b", _at_the_optimum(), _LOOP),
]
