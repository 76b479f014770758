"""One page about all experiments: how much of each was measured, how much of that is reached, and why not the rest.

A published number is reached when ours is at least as good, give or take its tolerance: one point of P@k and nDCG@k,
0.01 of AUC, a twentieth of a Hamming loss, 1.5 points of label error, 0.03 of imputation error. Seconds are of other
machines and are not judged.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import fields
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from labelgap.reproduce.records import Experiment, Row, Setting
from labelgap.reproduce.registry import list_experiments
from labelgap.runtime import written_whole

LESS_IS_BETTER = ("Hamming", "label error", "imputation error")
TOLERANCES = {"AUC": 0.01, "label error": 1.5, "imputation error": 0.03}
POINTS = 1.0
HAMMING_SHARE = 0.05
ROUNDING = 1e-9
NOT_MEASURED = "not measured"
_HEADER = """# The papers' numbers and ours

`labelgap reproduce --summary {folder}` makes this page from the files beside it, each of which
`labelgap reproduce … --json` wrote; a file holds its command, seeds, versions and every number.

A number is *reached* when ours is at least as good, give or take one point of P@k and nDCG@k, 0.01 of AUC, a
twentieth of a Hamming loss, 1.5 points of label error and 0.03 of imputation error. Seconds are of other machines
and are not judged. Parameters are chosen on training data only.

| experiment | shows | numbers | measured | reached |
|---|---|---|---|---|
"""


class Reason(NamedTuple):
    """Why some numbers are not reached; the first three may hold wildcards."""

    experiment: str
    dataset: str
    method: str
    why: str


def shortfall(metric: str, paper: float, ours: float) -> float:
    """Return by how much ours is worse, 0 or less where it is not.

    >>> shortfall("P@1", 60.0, 58.5), shortfall("Hamming", 0.0125, 0.0135) > 0
    (1.5, True)
    """
    return ours - paper if metric in LESS_IS_BETTER else paper - ours


def judged(metric: str) -> bool:
    """Tell whether a metric is one to compare with other machines' numbers.

    >>> judged("P@1"), judged("seconds")
    (True, False)
    """
    return metric in (*LESS_IS_BETTER, *TOLERANCES) or metric.startswith(("P@", "nDCG@"))


def is_reached(metric: str, paper: float, ours: float) -> bool:
    """Tell whether ours is as good as the paper's, within the tolerance of the metric.

    >>> is_reached("P@1", 60.0, 59.1), is_reached("AUC", 0.90, 0.88), is_reached("label error", 20.0, 3.0)
    (True, False, True)
    """
    tolerance = HAMMING_SHARE * paper if metric == "Hamming" else TOLERANCES.get(metric, POINTS)
    return shortfall(metric, paper, ours) <= tolerance + ROUNDING


def _reached(row: Row) -> bool:
    return is_reached(row.metric, *_sides(row))


def _shortfall(row: Row) -> float:
    return shortfall(row.metric, *_sides(row))


def _sides(row: Row) -> tuple[float, float]:
    assert row.paper is not None
    assert row.ours is not None
    return row.paper, row.ours


def read_rows(folder: Path) -> list[Row]:
    """Return the rows of all result files in a folder; of one number that several hold, that of the most seeds."""
    best: dict[tuple, Row] = {}
    for path in sorted(folder.glob("*.json")):
        for row in _rows_of(path):
            key = (row.experiment, row.setting, row.metric)
            if row.values and (key not in best or len(row.values) > len(best[key].values)):
                best[key] = row
    return list(best.values())


def _rows_of(path: Path) -> list[Row]:
    try:
        return [_row(record) for record in json.loads(path.read_text(encoding="utf-8"))["rows"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} holds no results ({error!r}); pass a folder of files that --json wrote.") from error


def _row(record: dict[str, Any]) -> Row:
    own = {field.name: record[field.name] for field in fields(Setting)}
    own["criteria"] = tuple(own["criteria"])
    values, params = tuple(record["values"]), tuple(record["params"])
    return Row(record["experiment"], Setting(**own), record["metric"], record["paper"], values, params)


def summarize(rows: Iterable[Row], folder: str = "FOLDER") -> str:
    """Return the page, in Markdown."""
    judgeable = [row for row in rows if row.paper is not None and row.values and judged(row.metric)]
    by_name = {name: [row for row in judgeable if row.experiment == name] for name in list_experiments()}
    lines = [_line(experiment, by_name[name]) for name, experiment in list_experiments().items()]
    total = _counts([len(_numbers(e)) for e in list_experiments().values()], list(by_name.values()))
    sections = [_section(list_experiments()[name], found) for name, found in by_name.items() if found]
    return (
        _HEADER.format(folder=folder)
        + "\n".join([*lines, f"| **all** | | {total} |"])
        + "\n"
        + "".join(section for section in sections if section)
    )


def _numbers(experiment: Experiment) -> list[Any]:
    return [number for number in experiment.numbers if number.value is not None and judged(number.metric)]


def _line(experiment: Experiment, rows: Sequence[Row]) -> str:
    if not _numbers(experiment):
        return f"| {experiment.name} | {experiment.title} | – | – | the paper prints no number of it |"
    return f"| {experiment.name} | {experiment.title} | {_counts([len(_numbers(experiment))], [rows])} |"


def _counts(published: Sequence[int], rows: Sequence[Sequence[Row]]) -> str:
    measured = sum(map(len, rows))
    reached = sum(_reached(row) for part in rows for row in part)
    share = f"{reached} ({reached / measured:.0%})" if measured else NOT_MEASURED
    return f"{sum(published)} | {measured} | {share}"


def _section(experiment: Experiment, rows: Sequence[Row]) -> str:
    """Return what an experiment misses, method by method and set by set, with the reason; empty where it does not."""
    missed = [row for row in rows if not _reached(row)]
    if not missed:
        return ""
    missed.sort(key=_place)
    head = f"\n## {experiment.name}: what is not reached\n\n| | | numbers | worse by | why |\n|---|---|---|---|---|\n"
    return head + "".join(_miss(experiment, *place, list(group)) for place, group in groupby(missed, _place))


def _place(row: Row) -> tuple[str, str]:
    return row.setting.method, row.setting.dataset


def _miss(experiment: Experiment, method: str, dataset: str, rows: list[Row]) -> str:
    worst = max(
        rows, key=lambda row: shortfall(row.metric, row.paper or 0.0, row.ours or 0.0) / abs(row.paper or 1.0)
    )
    by = f"up to {shortfall(worst.metric, worst.paper or 0.0, worst.ours or 0.0):.4g} ({worst.metric})"
    return f"| {method} | {dataset} | {len(rows)} | {by} | {_why(experiment.name, dataset, method)} |\n"


def _why(experiment: str, dataset: str, method: str) -> str:
    for reason in _reasons():
        patterns = zip((experiment, dataset, method), reason[:3], strict=True)
        if all(fnmatchcase(value, pattern) for value, pattern in patterns):
            return reason.why
    return "not known"


@cache
def _reasons() -> tuple[Reason, ...]:
    text = (files("labelgap.reproduce") / "reasons.json").read_text(encoding="utf-8")
    return tuple(Reason(**record) for record in json.loads(text))


def write_summary(folder: Path) -> Path:
    """Write the page of a folder of results beside them, and return where."""
    if not folder.is_dir():
        raise FileNotFoundError(f"--summary {folder} is no folder; pass one that holds files of --json.")
    path = folder / "README.md"
    text = summarize(read_rows(folder), folder.as_posix())
    with written_whole(path) as stream:
        stream.write(text.encode())
    return path
