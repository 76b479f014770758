"""fit, predict and evaluate."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from labelgap.commands.inputs import Columns, Data, load_data
from labelgap.commands.options import find_class, make_estimator, parse_options
from labelgap.commands.outputs import check_output
from labelgap.commands.resuming import resumable
from labelgap.datasets import write, write_records
from labelgap.datasets.documents import find_separator, split_tags, unpacked
from labelgap.datasets.tabular import table_format
from labelgap.estimators import MultiLabelEstimator, Tagger
from labelgap.metrics import F1, HammingLoss, InstanceAUC, Metric, standard_metrics
from labelgap.metrics import evaluate as measure
from labelgap.observations import as_labels
from labelgap.runtime import progress

CELLS_PER_BLOCK = 1 << 23


def fit(
    path: Path,
    columns: Columns,
    output: Path,
    *,
    method: str,
    words: Sequence[str] = (),
    least: int = 1,
    seed: int | None = None,
    jobs: int | None = None,
    checkpoint: Path | None = None,
) -> dict[str, Any]:
    """Learn from a file and write the model; return what was done.

    With a ``checkpoint`` the seed is 0 where none is given: what goes on must draw the same numbers.
    """
    check_output("--output", output, path)
    if checkpoint is not None and seed is None:
        seed = 0
    with progress(None, f"Reading {path.name}", 0):
        data = load_data(path, columns, least=least)
    cls, model = find_class(method), make_estimator(method, words, seed, jobs)
    options = {"method": cls.__name__, "min_count": least, "seed": seed} | parse_options(cls, words)
    if data.is_text:
        model = Tagger(model, label_names=data.label_names, n_jobs=jobs)
    start = time.perf_counter()
    with resumable(checkpoint, "fit", {"data": path}, columns, **options):
        model.fit(data.X, data.Y)
        seconds = time.perf_counter() - start
        remember(model, columns, data)
        model.save(output)
    labels = as_labels(data.Y)
    return {
        "model": str(output),
        "method": method,
        "rows": len(data),
        "features": int(model.n_features_in_),
        "labels": labels.shape[1],
        "positives": int(labels.positives.nnz),
        "unknown": labels.shape[0] * labels.shape[1] - labels.n_known,
        "seconds": round(seconds, 3),
        "megabytes": round(output.stat().st_size / 1e6, 3),
    }


def remember(model: MultiLabelEstimator, columns: Columns, data: Data) -> None:
    """Keep what the next commands need: the columns, and the names of labels."""
    if data.is_text:
        named = {"text": columns.text, "tags": columns.tags, "labels": columns.labels}
        model.columns_ = named | {"separator": _separator(columns, data)}
    elif data.label_names is not None:
        model.label_names_in_ = np.asarray(data.label_names, dtype=object)


def _separator(columns: Columns, data: Data) -> str:
    """Return what stands between tags, so that the next file is read as this one was."""
    if columns.separator or not columns.tags or data.records is None:
        return columns.separator or ""
    values = unpacked([record[columns.tags] for record in data.records])
    return find_separator(values) or (" " if any(isinstance(value, str) for value in values) else "")


def columns_of(model: Any, given: Columns) -> Columns:
    """Return the columns that a user gave, or those that the model was fitted with."""
    kept = getattr(model, "columns_", {})
    chosen = {name: getattr(given, name) or kept.get(name, "") for name in ("text", "tags", "labels")}
    if given.tags:
        chosen["labels"] = ""
    if given.labels:
        chosen["tags"] = ""
    return Columns(**chosen, separator=given.separator or kept.get("separator") or None)


def data_for(model: Any, path: Path, given: Columns, *, labels: bool) -> Data:
    """Return the data of a file as a model takes them, its labels in the order of the model's."""
    columns = columns_of(model, given)
    if not labels:
        columns = Columns(text=columns.text)
    names = names_of(model)
    with progress(None, f"Reading {path.name}", 0):
        data = load_data(path, columns, label_names=names if columns.tags else None, labels=labels)
    if isinstance(model, Tagger) != data.is_text:
        wants = "texts: pass a table and --text" if isinstance(model, Tagger) else "features, not texts"
        raise ValueError(f"The model takes {wants}.")
    if not labels or names is None:
        return data
    return _with_tags(data, columns, names) if columns.tags else _in_order(data, names, path)


def _with_tags(data: Data, columns: Columns, names: Sequence[str]) -> Data:
    """Return data that know the tags of their file."""
    if data.records is None:
        return data
    lists = split_tags([record[columns.tags] for record in data.records], columns.separator)
    tags = frozenset(tag for one in lists for tag in one)
    return replace(data, tags=tags, unknown_tags=tags - set(names))


def _in_order(data: Data, names: list[str], path: Path) -> Data:
    """Return data whose columns of labels are a model's, in its order."""
    if data.label_names is None or data.label_names == names:
        return data
    for one, others, what in ((names, data.label_names, "lacks"), (data.label_names, names, "has besides them")):
        odd = [name for name in one if name not in set(others)]
        if odd:
            raise ValueError(f"{path} must have the labels of the model, in any order; it {what} {_some(odd)}.")
    place = {name: j for j, name in enumerate(data.label_names)}
    return replace(data, Y=data.Y[:, [place[name] for name in names]], label_names=names)


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:3])) + (" …" if len(names) > 3 else "")


def names_of(model: Any) -> list[str] | None:
    """Return the names of a model's labels, where it has any."""
    names = getattr(model, "label_names_in_", None)
    return None if names is None else [str(name) for name in names]


def predict(model: Any, data: Data, *, top: int | None) -> Iterator[dict[str, Any]]:
    """Yield for each row its labels by name with their scores: the best, or those with a yes."""
    k = model.n_labels_ if top is None else min(top, model.n_labels_)
    indices, scores = model.predict_topk(data.X, k)
    names = names_of(model) or [str(j) for j in range(model.n_labels_)]
    for row, (labels, values) in enumerate(zip(indices, scores, strict=True)):
        kept = np.ones(k, bool) if top is not None else values > 0
        found = [(names[j], float(value)) for j, value in zip(labels[kept], values[kept], strict=True)]
        yield {"row": row, "tags": [name for name, _ in found], "scores": [round(value, 6) for _, value in found]}


def write_predictions(path: Path, rows: Iterator[dict[str, Any]], model: Any, data: Data) -> None:
    """Write predictions in the format of a file's ending.

    A table has tags and scores in one column each, as lists, or in CSV and TSV as texts that the commands read as the
    same tags; any other format has the features with the predicted labels.
    """
    if table_format(path) is None:
        _write_with_features(path, rows, model, data)
        return
    found = list(rows)
    cell: Callable = list
    if table_format(path) in ("csv", "tsv"):
        cell = _as_text(path, [row["tags"] for row in found], columns_of(model, Columns()).separator)
    values = ([row["row"], cell(row["tags"]), cell(row["scores"])] for row in found)
    write_records(path, ["row", "tags", "scores"], values)


def _as_text(path: Path, lists: list[list[str]], separator: str | None) -> Callable[[list], str]:
    """Return how lists of tags become texts that read as the same lists: with the model's separator, or as JSON."""
    mark = separator or ","
    if split_tags([mark.join(tags) for tags in lists], separator) == lists:
        return lambda values: mark.join(map(str, values))
    warnings.warn(
        f"Tags with {mark!r} between them could not be told apart, so {path} has them as JSON lists.", stacklevel=2
    )
    return lambda values: json.dumps(values, ensure_ascii=False)


def _write_with_features(path: Path, rows: Iterator[dict[str, Any]], model: Any, data: Data) -> None:
    if data.is_text:
        raise ValueError(f"--output {path}: texts go with a table; use an ending such as .csv, .jsonl or .parquet.")
    names = names_of(model)
    places = {name: j for j, name in enumerate(names or map(str, range(model.n_labels_)))}
    found = [sorted(places[tag] for tag in row["tags"]) for row in rows]
    ends = np.cumsum([0, *map(len, found)])
    columns = np.array([j for row in found for j in row], dtype=np.int64)
    Y = sp.csr_array((np.ones(len(columns)), columns, ends), shape=(len(found), model.n_labels_))
    write(path, data.X, Y, label_names=names)


def evaluate(model: Any, data: Data) -> dict[str, float]:
    """Return the usual metrics of a model on labelled rows, of known cells, in blocks of rows."""
    labels = as_labels(data.Y)
    _check_labels(model, labels.shape[1])
    metrics: dict[str, Metric] = standard_metrics(_depths(model.n_labels_))
    metrics |= {"Hamming": HammingLoss(), "AUC": InstanceAUC(), "micro F1": F1("micro"), "macro F1": F1("macro")}
    rows = max(1, CELLS_PER_BLOCK // model.n_labels_)
    blocks = (
        (labels[start : start + rows], model.decision_function(data.X[start : start + rows]))
        for start in range(0, len(labels), rows)
    )
    return {name: round(float(value), 6) for name, value in measure(metrics, blocks).items()}


def check_tags(data: Data, path: Path) -> None:
    """Warn of the tags of a file that a model does not know, and refuse a file all of whose tags it does not."""
    if not data.tags or not data.unknown_tags:
        return
    some = _some(sorted(data.unknown_tags))
    if data.tags == data.unknown_tags:
        raise ValueError(f"The model knows none of the {len(data.tags)} tags of {path} ({some}); check both files.")
    found = f"{len(data.unknown_tags)} of {len(data.tags)}"
    warnings.warn(f"unknown tags: {found} in {path} are not in the model and left out ({some}).", stacklevel=2)


def tag_counts(data: Data) -> dict[str, int]:
    """Return how many tags a file has, and how many of them the model does not know; nothing without tags."""
    return {} if data.tags is None else {"tags": len(data.tags), "unknown tags": len(data.unknown_tags)}


def _depths(n_labels: int) -> tuple[int, ...]:
    return tuple(k for k in (1, 3, 5) if k <= n_labels)


def _check_labels(model: Any, n_labels: int) -> None:
    if n_labels != model.n_labels_:
        raise ValueError(
            f"The data have {n_labels} labels and the model {model.n_labels_}; pass data of the same set."
        )
