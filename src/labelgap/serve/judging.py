"""complete, audit and explain for the rows of a request, by the fitted model alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.gaps import explain
from labelgap.runtime import threads
from labelgap.serve.answers import Rows, answer, decision_blocks, listed
from labelgap.serve.errors import ApiError, as_json, unusable
from labelgap.serve.models import Served
from labelgap.serve.rows import as_input
from labelgap.serve.schemas import AuditRequest, CompleteRequest, ExplainRequest
from labelgap.serve.settings import Settings


def complete(served: Served, given: Rows, body: CompleteRequest, settings: Settings) -> bytes:
    """Return the scores of the cells of each row that are not known, the highest first."""
    known = [_cells(served, one) for one in body.known or [{}] * len(given.rows)]
    _check_number("known", known, given)
    n_labels = len(served.label_names)
    if len(given.rows) * min(given.top or n_labels, n_labels) > settings.max_cells:
        raise ApiError(
            413,
            "too_many",
            f"{len(given.rows)} rows have more than {settings.max_cells} unknown cells; pass fewer rows, or top.",
        )
    parts = []
    for scores, cells in zip(_scores(served, given, settings), known, strict=True):
        unknown = np.ones(n_labels, bool)
        unknown[cells] = False
        parts.append(f'{{"labels":[{listed(served, scores, unknown, given.top)}]}}')
    return answer(served, "completions", parts)


def _cells(served: Served, known: dict[str, bool | None]) -> list[int]:
    return [served.place(label) for label, value in known.items() if value is not None]


def audit(served: Served, given: Rows, body: AuditRequest, settings: Settings) -> bytes:
    """Return the labels of each row that are not given and score high, and those that are given and score low."""
    labels = [[served.place(label) for label in row] for row in body.labels]
    _check_number("labels", labels, given)
    most = given.top or settings.max_top
    parts = []
    for scores, there in zip(_scores(served, given, settings), labels, strict=True):
        has = np.zeros(len(served.label_names), bool)
        has[there] = True
        missing = listed(served, scores, ~has if given.top else ~has & (scores > 0), most)
        doubtful = listed(served, scores, has & (scores <= 0), most, lowest=True)
        parts.append(f'{{"missing":[{missing}],"doubtful":[{doubtful}]}}')
    return answer(served, "audits", parts)


def _check_number(name: str, found: Sequence[Any], given: Rows) -> None:
    if len(found) != len(given.rows):
        raise unusable(f"{name} has {len(found)} entries for {len(given.rows)} rows; pass one for each.")


def _scores(served: Served, given: Rows, settings: Settings) -> Iterator[NDArray]:
    """Yield the decision values of each row, of which only a block is held at a time."""
    X = as_input(given.form, given.rows, served.features)
    with threads(settings.n_threads):
        for block in decision_blocks(served, X):
            yield from block


def explained(served: Served, given: Rows, body: ExplainRequest, settings: Settings) -> bytes:
    """Return which features, and which known labels, argue for a label."""
    label = served.place(body.label)
    known = [place for place in map(served.place, body.known) if place != label]
    row = as_input(given.form, given.rows, served.features)
    _check_features(served, row, settings.max_arguments)
    with threads(settings.n_threads):
        found = explain(served.model, row, label, top=body.top)
    return as_json(
        {
            "model": served.name,
            "label": served.label_names[label],
            "decision": _finite(found.decision),
            "features": [_reason(_feature_name(served, name), weight) for name, weight in found.features],
            "labels": _companions(served, known, label, body.top),
        }
    )


def _feature_name(served: Served, name: str) -> str:
    """Return the name of what the explanation of a model without names calls feature 7."""
    if served.feature_names is None:
        return name
    return str(served.feature_names[int(name.rpartition(" ")[2])])


def _check_features(served: Served, row: Any, most: int) -> None:
    """Refuse a row whose features, each left out once, would take too long."""
    features = served.model.transform(row) if served.features.texts else sp.csr_array(row)
    if features.nnz > most:
        raise ApiError(413, "too_long", f"The row has {features.nnz} features; explain takes at most {most}.")


def _companions(served: Served, known: Sequence[int], label: int, top: int) -> list[dict[str, Any]]:
    companions = served.companions if known else None
    if companions is None:
        return []
    found = [(served.label_names[one], companions.between(one, label)) for one in known]
    return [_reason(*one) for one in sorted(found, key=lambda pair: -abs(pair[1]))[:top]]


def _reason(name: str, weight: float) -> dict[str, Any]:
    return {"name": name, "weight": _finite(weight)}


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
