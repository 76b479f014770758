"""audit, complete and explain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from labelgap.commands.inputs import Columns, Data
from labelgap.commands.learning import check_tags, columns_of, data_for, names_of, tag_counts
from labelgap.datasets import write_records
from labelgap.datasets.tabular import table_format
from labelgap.estimators.text.vectorizers import without_markup
from labelgap.gaps import Audit, Completed, Explanation
from labelgap.gaps import audit as run_audit
from labelgap.gaps import complete as run_complete
from labelgap.gaps import explain as run_explain
from labelgap.observations import as_labels

SNIPPET = 80


def audit(model: Any, path: Path, given: Columns, *, folds: int, seed: int) -> tuple[Audit, Data]:
    """Audit the labels of a file by models like this one."""
    data = data_for(model, path, given, labels=True)
    check_tags(data, path)
    found = run_audit(data.X, data.Y, seeded_like(model, seed), n_folds=folds, random_state=seed)
    return found, data


def seeded_like(model: Any, seed: int) -> Any:
    """Return an estimator like a model to fit; the seed decides its random numbers where it has none of its own."""
    estimator = clone(model)
    own = {name: value for name, value in estimator.get_params().items() if name.endswith("random_state")}
    return estimator.set_params(**{name: seed for name, value in own.items() if value is None})


def audit_rows(found: Audit, data: Data, names: Sequence[str] | None, top: int | None) -> Iterator[list[Any]]:
    """Yield a row of the audit's table for each suggestion."""
    for row, label, kind, probability in found.records(names, top):
        yield [row, label, kind, round(probability, 4), snippet(data, row)]


AUDIT_COLUMNS = ["row", "label", "kind", "probability", "text"]


def snippet(data: Data, row: int) -> str:
    """Return the beginning of a row's text, or nothing."""
    if not data.is_text:
        return ""
    text = " ".join(without_markup(data.X[row]).split())
    return text if len(text) <= SNIPPET else f"{text[: SNIPPET - 1]}…"


def audit_summary(found: Audit, data: Data, top: int) -> dict[str, Any]:
    """Return what an audit comes to, in numbers."""
    labels = as_labels(data.Y)
    return {
        "rows": len(data),
        "labels": labels.shape[1],
        "positives": int(labels.positives.nnz),
        "suggestions": len(found.missing),
        "estimated share missing": round(found.share_missing, 4),
        "between, with 95 %": [round(end, 4) for end in found.share_missing_interval],
        "estimated number missing": round(float(found.n_missing.sum()), 1),
        f"expected precision of the first {min(top, len(found.missing))}": round(
            found.missing.expected_precision(top), 4
        ),
        "assumption": "missing at random per label",
    } | tag_counts(data)


def complete(model: Any, path: Path, given: Columns, *, folds: int, seed: int) -> tuple[Completed, Data]:
    """Fill the unknown cells of a file by models like this one."""
    data = data_for(model, path, given, labels=True)
    if as_labels(data.Y).complete:
        raise ValueError(
            f"{path} has no unknown cell: in a column of tags, what is not there is a no. Use `labelgap audit` to "
            "look for forgotten ones, or pass --labels: a column for each label, with blanks for unknown."
        )
    return run_complete(data.X, data.Y, seeded_like(model, seed), n_folds=folds, random_state=seed), data


def write_completed(path: Path, found: Completed, data: Data, names: Sequence[str]) -> None:
    """Write the table again with a number in every cell of a label; what was known is 0 or 1."""
    columns = list(data.records[0]) if data.records else []
    kept = [name for name in columns if name not in names]
    probabilities = np.round(found.probabilities, 6)
    rows = (
        [*(data.records[i][name] for name in kept), *values] if data.records else values
        for i, values in enumerate(probabilities.tolist())
    )
    write_records(path, [*kept, *names], rows)


def explain(model: Any, path: Path, given: Columns, row: int, label: str, top: int) -> Explanation:
    """Say why a label is given to a row of a file."""
    data = _with_known_labels(model, path, given)
    if not 0 <= row < len(data):
        raise ValueError(f"--row {row} is out of range; {path} has rows 0 to {len(data) - 1}.")
    names = names_of(model)
    place: int | str = label if names is not None and label in names else _number(label)
    known = as_labels(data.Y)[row].positives.indices.tolist() if data.Y is not None else None
    x = data.X[row] if data.is_text else data.X[row : row + 1]
    return run_explain(model, x, place, Y=data.Y, known=known, top=top)


def _with_known_labels(model: Any, path: Path, given: Columns) -> Data:
    """Return a file's rows, with labels where the user says or where the model's own columns are there."""
    if given.tags or given.labels or table_format(path) is None:
        return data_for(model, path, given, labels=True)
    data = data_for(model, path, given, labels=False)
    columns = columns_of(model, given)
    kept = {columns.tags, *(columns.given_labels or ())} - {""}
    if not kept or data.records is None or not kept <= data.records[0].keys():
        return data
    return data_for(model, path, given, labels=True)


def _number(label: str) -> int | str:
    return int(label) if label.isdecimal() else label
