"""The commands audit, complete and explain."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from labelgap.calibration import MissingCount
from labelgap.commands.outputs import check_output, resumable
from labelgap.datasets import write_records
from labelgap.datasets.tables import guess_table_format
from labelgap.gaps import Audit, Completed, Explanation, learn
from labelgap.gaps import audit as audit_labels
from labelgap.gaps import complete as complete_labels
from labelgap.gaps import explain as explain_label
from labelgap.inputs import (
    InputData,
    TableColumns,
    check_tags,
    clone_with_seed,
    count_tags,
    get_label_names,
    load_data_for,
    open_model,
    read_verdicts,
    resolve_columns,
)
from labelgap.observations import as_labels
from labelgap.portable import without_markup

MAX_SNIPPET_LENGTH = 80  # characters
MISSING = "missing labels"  # the number that fit, audit and the review page state in the same words


@dataclass(frozen=True)
class AuditReport:
    """An audit with the data and the label names that it refers to.

    Without ``min_probability`` it lists as many missing labels as the audit estimates, and as many doubtful ones as
    their probabilities sum to.
    """

    audit: Audit
    data: InputData
    label_names: list[str] | None
    min_probability: float | None = None

    @property
    def columns(self) -> list[str]:
        """The columns of the report's table."""
        return [*(["row"] if self.data.ids is None else ["id", "row"]), "label", "kind", "probability", "text"]

    @cached_property
    def listed(self) -> Audit:
        """The audit with the suggestions that the report lists."""
        missing, doubtful = self.audit.missing, self.audit.doubtful
        if self.min_probability is None:
            counts = [self.count_missing().number, float(doubtful.probabilities.sum())]
            n_missing, n_doubtful = (math.ceil(round(count, 6)) for count in counts)
        else:
            n_missing, n_doubtful = (
                int((part.probabilities >= self.min_probability).sum()) for part in (missing, doubtful)
            )
        return replace(self.audit, missing=missing.first(n_missing), doubtful=doubtful.first(n_doubtful))

    def count_missing(self) -> MissingCount:
        """Return how many labels are missing in the whole table."""
        n_written = int(self.audit.n_written.sum())
        return self.audit.share.count_missing(n_written, as_labels(self.data.Y).n_known - n_written)

    def rows(self, top: int | None = None) -> Iterator[list[Any]]:
        """Yield a row of the report's table for each suggestion: missing labels, then doubtful ones.

        With ``top``, yield only so many of both, the most probable first.
        """
        records: Iterable[tuple[int, str, str, float]] = self.listed.records(self.label_names)
        if top is not None:
            records = heapq.nsmallest(top, records, key=lambda record: -record[3])
        for row, label, kind, probability in records:
            text = " ".join(without_markup(self.data.X[row]).split()) if self.data.is_text else ""
            if len(text) > MAX_SNIPPET_LENGTH:
                text = f"{text[: MAX_SNIPPET_LENGTH - 1]}…"
            identity = [] if self.data.ids is None else [self.data.ids[row]]
            yield [*identity, row, label, kind, round(probability, 4), text]

    def explain_order(self) -> str:
        """Return a sentence on suggestions of one probability, if the first ones are such."""
        first = self.listed.missing.probabilities[:2]
        if len(first) < 2 or first[0] > first[1]:
            return ""
        return (
            f"Suggestions of one probability are in order too, best supported first: {first[0]:.0%} is the largest "
            "probability that this audit can support, however plain a text is."
        )

    def summarize(self, top: int) -> dict[str, Any]:
        """Return the numbers of the audit, with the expected precision of the ``top`` most probable suggestions."""
        audit, labels = self.audit, as_labels(self.data.Y)
        count, (low, high) = self.count_missing(), audit.share_missing_interval
        listed, largest = self.listed.missing.first(top), audit.missing.probabilities[:1].round(4).tolist()
        expected = {f"expected precision of the first {len(listed)}": round(listed.expected_precision(), 4)}
        return {
            "rows": len(self.data),
            "labels": labels.shape[1],
            "positives": int(labels.positives.nnz),
            MISSING: count.describe() + ("" if low > 0 else "; the data do not show whether any is missing"),
            "missing labels listed": len(self.listed.missing),
            "expected right among these": round(float(self.listed.missing.probabilities.sum())),
            "doubtful labels listed": len(self.listed.doubtful),
            "estimated share missing": round(audit.share_missing, 4),
            "95 % interval of the share": [round(low, 4), round(high, 4)],
            **(expected if len(listed) else {"most probable missing label": largest}),
            "assumption": "missing at random per label",
        } | count_tags(self.data)


def audit(
    path: Path,
    model_path: Path,
    columns: TableColumns,
    output: Path | None,
    *,
    folds: int,
    seed: int,
    checkpoint: Path | None,
    min_probability: float | None = None,
    verdicts: Path | None = None,
    groups: str = "",
) -> AuditReport:
    """Audit the labels of a file with clones of a model, and write the suggestions to ``output``.

    After each model ``output`` has those of the rows scored so far, so that a review can begin. The audit learns from
    ``verdicts`` on earlier suggestions. Rows with one value in the column ``groups`` stay in one fold.
    """
    check_output("--output", output, path, model_path, table=True)
    model = open_model(model_path)
    data = load_data_for(model, path, columns, labels=True)
    check_tags(data, path)
    files, names = {"data": path, "model": model_path}, get_label_names(model)
    judged = None if verdicts is None else read_judged(verdicts, names)

    def write(result: Audit) -> AuditReport:
        learned = result if judged is None else learn(result, *judged)
        report = AuditReport(learned, data, names, min_probability)
        if output is not None:
            write_records(output, report.columns, report.rows())
        return report

    options: dict[str, Any] = {"n_folds": folds, "random_state": seed, "callback": None if output is None else write}
    if groups:
        if not data.records or groups not in data.records[0]:
            raise ValueError(f"--groups {groups} is no column of {path}; pass one of its columns.")
        options["groups"] = [str(record[groups]) for record in data.records]
    with resumable(checkpoint, "audit", files, **asdict(columns), folds=folds, seed=seed, groups=groups):
        return write(audit_labels(data.X, data.Y, clone_with_seed(model, seed), **options))


def read_judged(path: Path, names: list[str] | None) -> tuple[list[int], list[int], list[bool]]:
    """Return rows, labels and whether the suggestion was right, from a table that :func:`read_verdicts` reads.

    The log of a review has a column "current" too, 1 for entries that no later one replaced.
    """
    records = [record for record in read_verdicts(path, names) if str(record["current"]) == "1"]
    rows, labels, right = ([record[name] for record in records] for name in ("row", "label", "accepted"))
    return rows, labels, right


def complete(
    path: Path,
    model_path: Path,
    columns: TableColumns,
    output: Path,
    *,
    folds: int,
    seed: int,
    checkpoint: Path | None,
) -> dict[str, Any]:
    """Fill the unknown cells of a file with clones of a model, and write the table with them to ``output``.

    Return the numbers to print.
    """
    check_output("--output", output, path, model_path, table=True)
    model = open_model(model_path)
    data = load_data_for(model, path, columns, labels=True)
    labels = as_labels(data.Y)
    if labels.complete:
        raise ValueError(
            f"{path} has no unknown cell to fill. `labelgap audit` lists the tags that were probably forgotten; "
            "complete needs --labels, one column for each label, blank where it is unknown."
        )
    files = {"data": path, "model": model_path}
    with resumable(checkpoint, "complete", files, **asdict(columns), folds=folds, seed=seed):
        result = complete_labels(data.X, data.Y, clone_with_seed(model, seed), n_folds=folds, random_state=seed)
        names = get_label_names(model) or [f"label {j}" for j in range(model.n_labels_)]
        _write_completed(output, result, data, names)
    return {
        "output": str(output),
        "cells filled": labels.shape[0] * labels.shape[1] - labels.n_known,
        "filled with": "the probability of a yes, calibrated on known cells that were held out",
        "calibration error": round(result.calibration_error, 5),
    }


def _write_completed(path: Path, result: Completed, data: InputData, names: list[str]) -> None:
    """Write the other columns of the table and a probability for each label, which is 0 or 1 if it is known."""
    others = [name for name in data.records[0] if name not in names] if data.records else []
    rows = (
        [*(data.records[i][name] for name in others), *values] if data.records else values
        for i, values in enumerate(np.round(result.probabilities, 6).tolist())
    )
    write_records(path, [*others, *names], rows)


def explain(path: Path, model_path: Path, columns: TableColumns, row: int, label: str, top: int) -> Explanation:
    """Explain the score of a label for a row of a file."""
    model = open_model(model_path)
    data = _load_with_known_labels(model, path, columns)
    if not 0 <= row < len(data):
        raise ValueError(f"--row {row} is out of range; {path} has rows 0 to {len(data) - 1}.")
    names = get_label_names(model) or []
    index: int | str = int(label) if label not in names and label.isdecimal() else label
    known = as_labels(data.Y)[row].positives.indices.tolist() if data.Y is not None else None
    x = data.X[row] if data.is_text else data.X[row : row + 1]
    return explain_label(model, x, index, Y=data.Y, known=known, top=top)


def _load_with_known_labels(model: Any, path: Path, columns: TableColumns) -> InputData:
    """Read a file, with labels if the user names their columns or the table has those of the model."""
    labels = bool(columns.tags or columns.labels) or guess_table_format(path) is None
    data = load_data_for(model, path, columns, labels=labels)
    if labels or not data.records:
        return data
    resolved = resolve_columns(model, columns)
    names = {resolved.tags, *resolved.label_columns} - {""}
    present = {name.strip().casefold() for name in data.records[0]}
    has_labels = bool(names) and {name.casefold() for name in names} <= present
    return load_data_for(model, path, columns, labels=True) if has_labels else data
