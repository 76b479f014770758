"""Which published numbers are reached, and why the others are not.

A published number is *reached* if ours is at least as good, within a tolerance: one point of P@k and nDCG@k, 0.01 of
AUC, 5 % of a Hamming loss, 1.5 points of label error, 0.03 of imputation error. A P@k is also reached by its
published lead over one-vs-all in the same table, if our one-vs-all is at most half a point below that of napkinXC.
Seconds depend on the machine and are not compared.

A number that is not reached is *explained by an experiment* by the first of these that holds:

- "random splits": the mean over random splits of the same sizes reaches it; the papers used other splits than ours.
- "spread": it is at most two standard deviations from our mean over ten draws or more, see :func:`count_spreads`.
- "inconsistent": the paper prints two values for one quantity, P@1 and nDCG@1, and ours reaches one of them, or they
  are more than a point apart, so that its numbers for this method and dataset are of more than one run.
- "experiment": ``reasons.jsonl`` in the folder of results has a line about it, with the command of the experiment.

A line without a command is "stated" only, and everything else has the kind "none".
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import stdev
from typing import Any, NamedTuple

from labelgap.runtime import write_atomically
from labelgap_papers.experiments import TableRow
from labelgap_papers.study import normalize_setting

REASONS = "reasons.jsonl"
SHORTFALLS = "shortfalls.jsonl"

SMALLER_IS_BETTER = ("Hamming", "label error", "imputation error")
TOLERANCES = {"AUC": 0.01, "label error": 1.5, "imputation error": 0.03}
POINT = 1.0  # tolerance of P@k and nDCG@k
HAMMING_TOLERANCE_SHARE = 0.05
ROUNDING = 1e-9

MIN_SPLITS = 2
MIN_DRAWS = 10
MAX_SPREADS = 2.0
PAPER_DRAWS = {"mc": 10}  # over which a paper's numbers are means; the others are of one split


def compute_shortfall(metric: str, paper: float, ours: float) -> float:
    """Return by how much our number is worse than the paper's; 0 or negative if it is not worse.

    >>> compute_shortfall("P@1", 60.0, 58.5), compute_shortfall("Hamming", 0.0125, 0.0135) > 0
    (1.5, True)
    """
    return ours - paper if metric in SMALLER_IS_BETTER else paper - ours


def is_comparable(metric: str) -> bool:
    """Return whether a metric can be compared between machines.

    >>> is_comparable("P@1"), is_comparable("seconds")
    (True, False)
    """
    return metric in (*SMALLER_IS_BETTER, *TOLERANCES) or metric.startswith(("P@", "nDCG@"))


def is_reached(metric: str, paper: float, ours: float) -> bool:
    """Return whether our number is as good as the paper's, within the tolerance of the metric.

    >>> is_reached("P@1", 60.0, 59.1), is_reached("AUC", 0.90, 0.88), is_reached("label error", 20.0, 3.0)
    (True, False, True)
    """
    tolerance = HAMMING_TOLERANCE_SHARE * paper if metric == "Hamming" else TOLERANCES.get(metric, POINT)
    return compute_shortfall(metric, paper, ours) <= tolerance + ROUNDING


def is_row_reached(row: TableRow) -> bool:
    """Return whether a measured row reaches the paper's number, by itself or by its lead over one-vs-all."""
    assert row.paper is not None
    assert row.ours is not None
    return row.keeps_lead or is_reached(row.metric, row.paper, row.ours)


def find_shortfall(row: TableRow) -> float:
    """Return by how much a measured row is worse than the paper's number."""
    return compute_shortfall(row.metric, row.paper or 0.0, row.ours or 0.0)


def count_spreads(row: TableRow) -> float | None:
    """Return the shortfall of a row in standard deviations; None for fewer than ten draws.

    The difference of a mean of n draws and a mean of m, which the paper's number is, has a standard deviation of
    √(1/n + 1/m) times that of one draw.
    """
    n, m = len(row.values), PAPER_DRAWS.get(row.experiment.split("/")[0], 1)
    if n < MIN_DRAWS or not (spread := stdev(row.values)):
        return None
    return find_shortfall(row) / (spread * math.sqrt(1 / n + 1 / m))


class KnownReason(NamedTuple):
    """What an experiment found about some numbers; experiment, dataset, method and metric may hold wildcards.

    Without a command the reason is stated, and not an experiment.
    """

    experiment: str
    dataset: str
    method: str
    why: str
    metric: str = "*"
    command: str = ""

    def concerns(self, row: TableRow) -> bool:
        """Return whether this is the reason for a row."""
        values = row.experiment, row.setting.dataset, row.setting.method, row.metric
        patterns = self.experiment, self.dataset, self.method, self.metric
        return all(map(fnmatchcase, values, patterns))


class Shortfall(NamedTuple):
    """A number that is not reached, the row on random splits if there is one, and the kind and text of the reason."""

    row: TableRow
    split: TableRow | None
    kind: str
    why: str

    @property
    def is_explained(self) -> bool:
        """Whether an experiment explains it."""
        return self.kind not in ("stated", "none")

    def to_dict(self) -> dict[str, Any]:
        """Return the number as JSON values."""
        row = self.row
        of_splits = None if self.split is None else _describe_draws(self.split)
        return {
            "experiment": row.experiment,
            **{name: value for name, value in vars(row.setting).items() if name != "criteria"},
            "metric": row.metric,
            "paper": row.paper,
            "ours": row.ours,
            "shortfall": find_shortfall(row),
            "given split": _describe_draws(row),
            "random splits": of_splits,
            "kind": self.kind,
            "why": self.why,
        }


def _describe_draws(row: TableRow) -> dict[str, Any]:
    spread = stdev(row.values) if len(row.values) > 1 else None
    return {"draws": len(row.values), "mean": row.ours, "spread": spread, "spreads away": count_spreads(row)}


@dataclass(frozen=True)
class Explainer:
    """Finds the reasons of shortfalls.

    Parameters
    ----------
    splits : mapping
        Rows on random splits by experiment, setting and metric, see :func:`index_splits`.
    reasons : sequence of KnownReason
        Of several that concern a row, the first counts.
    rows : sequence of TableRow
        All measured rows.
    """

    splits: Mapping[tuple, TableRow] = field(default_factory=dict)
    reasons: Sequence[KnownReason] = ()
    rows: Sequence[TableRow] = ()

    def find_all(self) -> list[Shortfall]:
        """Return the shortfalls among the rows."""
        of_place = {_place(row, row.metric): row for row in self.rows}
        return [self._explain(row, of_place) for row in self.rows if not is_row_reached(row)]

    def _explain(self, row: TableRow, of_place: Mapping[tuple, TableRow]) -> Shortfall:
        split = self.splits.get(_key(replace(row, setting=replace(row.setting, split="random"))))
        if split is not None and len(split.values) >= MIN_SPLITS and is_row_reached(split):
            return Shortfall(row, split, "random splits", "")
        for drawn in filter(None, (split, row)):
            spreads = count_spreads(drawn)
            if spreads is not None and spreads <= MAX_SPREADS:
                return Shortfall(row, split, "spread", "")
        contradiction = _find_contradiction(row, of_place)
        if contradiction:
            return Shortfall(row, split, "inconsistent", contradiction)
        reason = next((reason for reason in self.reasons if reason.concerns(row)), None)
        if reason is None:
            return Shortfall(row, split, "none", "")
        command = f" (`{reason.command}`)" if reason.command else ""
        return Shortfall(row, split, "experiment" if command else "stated", reason.why + command)


def _key(row: TableRow) -> tuple:
    return row.experiment, normalize_setting(row.setting), row.metric


def _place(row: TableRow, metric: str) -> tuple:
    """Return what two rows of a paper have in common if they are of the same quantity."""
    setting = normalize_setting(replace(row.setting, criteria=()))
    return row.experiment.split("/")[0], setting, metric


def _find_contradiction(row: TableRow, of_place: Mapping[tuple, TableRow]) -> str:
    """Return how the paper contradicts itself about a row; empty if it does not."""
    first, other = (of_place.get(_place(row, metric)) for metric in ("P@1", "nDCG@1"))
    if first is None or other is None or first.paper is None or other.paper is None or first.paper == other.paper:
        return ""
    is_of_two_runs = abs(first.paper - other.paper) > POINT
    is_other_reached = row in (first, other) and (is_row_reached(first) or is_row_reached(other))
    if not is_of_two_runs and not is_other_reached:
        return ""
    text = f"the paper prints {first.paper:g} as P@1 and {other.paper:g} as nDCG@1, which are equal by definition"
    return f"{text}; ours is {first.ours:.2f}"


def index_splits(rows: Iterable[TableRow]) -> dict[tuple, TableRow]:
    """Return measured rows on random splits by what they are of."""
    return {_key(row): row for row in rows if row.values and row.paper is not None}


def read_reasons(folder: Path) -> list[KnownReason]:
    """Return the reasons that a folder of results holds; none if it has no file of them."""
    path = folder / REASONS
    if not path.is_file():
        return []
    try:
        return [KnownReason(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
    except (TypeError, ValueError) as error:
        fields = ", ".join(KnownReason._fields)
        raise ValueError(f"{path} is not a file of reasons ({error}); each line is an object of {fields}.") from error


def write_shortfalls(shortfalls: Sequence[Shortfall], folder: Path) -> None:
    """Write a line for each number that is not reached, with our draws, the kind of reason and its text."""
    lines = [json.dumps(shortfall.to_dict(), ensure_ascii=False) for shortfall in shortfalls]
    with write_atomically(folder / SHORTFALLS) as stream:
        stream.write("".join(f"{line}\n" for line in lines).encode())
