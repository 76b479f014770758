"""The commands predict, evaluate, inspect and convert."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse as sp

from labelgap.calibration.written import round_count
from labelgap.commands.outputs import check_output, compute_checksum
from labelgap.datasets import read, read_records, write, write_records
from labelgap.datasets.shard_folders import read_files, split_table, write_shards, write_table_shards
from labelgap.datasets.tables import guess_table_format
from labelgap.datasets.tag_columns import NOTATIONS, join_tags, split_tags
from labelgap.estimators import Tagger
from labelgap.estimators.tagger import MIN_CALIBRATED_ROWS
from labelgap.inputs import (
    InputData,
    TableColumns,
    WrongOption,
    get_label_names,
    load_data_for,
    open_model,
    read_verdicts,
    resolve_columns,
)
from labelgap.kernels.mapped import MappedMatrix, split_rows_evenly
from labelgap.metrics import (
    F1,
    Batch,
    HammingLoss,
    InstanceAUC,
    Metric,
    PrecisionAtK,
    corrected_metrics,
    standard_metrics,
)
from labelgap.metrics.corrected import check_range, check_written
from labelgap.metrics.probed import (
    Estimate,
    ProbeCells,
    WrittenSums,
    add_probe,
    check_complete,
    draw_cells,
    foresee_cells,
)
from labelgap.observations import Labels, as_labels
from labelgap.persistence import read_header
from labelgap.portable import without_markup
from labelgap.runtime import call_elsewhere, check_file, get_runner, row_blocks, run_parallel


def load_rows(
    model: Any, path: Path | None, documents: Sequence[str], columns: TableColumns, stream: IO[str]
) -> InputData:
    """Return the rows to predict: those of a file, one text from a stream if the path is "-", or texts."""
    if (path is None) == (not documents):
        raise WrongOption("Pass either a file (or - for standard input) or --document TEXT.")
    if path is not None and str(path) != "-":
        return load_data_for(model, path, columns, labels=False)
    if not isinstance(model, Tagger):
        raise ValueError("The model takes features, not texts; pass a file.")
    texts = list(documents) if path is None else [stream.read()]
    if not all(text.strip() for text in texts):
        raise ValueError("A text is empty; pass some words on standard input, or with --document.")
    return InputData(texts, None)


PROBED_LABELS = 30  # of a row, best first, that a probe draws from by their probabilities
PREDICTED_CELLS = 1 << 20  # of a block of rows from shards
TASKS_PER_THREAD = 4  # of a cluster that evaluates rows, so that slow workers get fewer
TRUE_COLUMNS = ("true_probabilities", "true_low", "true_high")
VALUE_NOTES = {
    "probability": "A probability is that of a person writing the tag; the most probable tag comes first. Tags are "
    "those over the model's thresholds, or those that --top or --threshold select.",
    "score": "A score above 0 means that the tag is predicted. Scores are not probabilities: the model was not "
    f"calibrated (labelgap fit does that if there are {MIN_CALIBRATED_ROWS} rows or more).",
    "true": "The probability that a tag is true counts forgotten ones, if true tags are as often forgotten in any "
    "row. Its interval is that of the share of true tags that are written.",
}


def name_values(model: Any) -> str:
    """Return "probability" for a calibrated model, else "score"."""
    return "probability" if hasattr(model, "calibration_") else "score"


def predict(
    model: Any, data: InputData, *, top: int | None = None, threshold: float | None = None, true: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield the labels of each row with their scores, and with probabilities if the model is calibrated.

    They are the ``top`` best, those with a probability of at least ``threshold``, or both; by default those that the
    model predicts. The most probable label comes first; without a calibration, the one with the largest score. With
    ``true``, P(true) and its bounds follow; of texts, whether they have a word that the model knows.
    """
    calibrated = name_values(model) == "probability"
    for option, needed in (("--threshold", threshold is not None), ("--true", true)):
        if needed and not calibrated:
            raise WrongOption(
                f"{option} needs probabilities, and the model was not calibrated; fit it again on "
                f"{MIN_CALIBRATED_ROWS} rows or more, without --no-calibrate."
            )
    k = model.n_labels_ if top is None else min(top, model.n_labels_)
    names = get_label_names(model) or [str(j) for j in range(model.n_labels_)]
    has_words = isinstance(model, Tagger) and model.features is None and isinstance(data.X, list)
    empty = model.rank([""], k)[1][0] if has_words else np.empty(0)
    for row, labels, values, chances in _rank_rows(model, data.X, k, len(data)):
        selected = np.ones(k, bool) if top is not None or threshold is not None else values > 0
        if threshold is not None:
            selected &= chances >= threshold
        prediction: dict[str, Any] = {"row": row} | ({} if data.ids is None else {"id": data.ids[row]})
        prediction["tags"] = [names[j] for j in labels[selected]]
        prediction["scores"] = [round(float(value), 6) for value in values[selected]]
        if calibrated:
            lists = {"probabilities": chances[selected]}
            if true:
                bounds = model.calibration_.written.find_true(chances[selected], labels[selected])
                lists |= dict(zip(TRUE_COLUMNS, bounds, strict=True))
            prediction |= {name: [round(float(p), 6) for p in part] for name, part in lists.items()}
        if has_words:  # a text of no known word has the scores of an empty one; few others do
            prediction["known_words"] = not np.array_equal(values, empty) or model.transform([data.X[row]]).nnz > 0
        yield prediction


def _rank_rows(model: Any, X: Any, k: int, n: int) -> Iterator[tuple[int, Any, Any, Any]]:
    """Yield each row with its k best labels, their scores and probabilities; rows of shards are ranked in blocks."""
    runner, n_blocks = get_runner(), -(-n * k // PREDICTED_CELLS) if isinstance(X, MappedMatrix) else 1
    bounds = split_rows_evenly(n, max(n_blocks, 1 if runner is None else runner.size))
    tasks = [partial(call_elsewhere, partial(model.rank, X[start:stop], k)) for start, stop in bounds]
    for (start, _), (indices, scores, probabilities) in zip(bounds, run_parallel(tasks, at_once=1), strict=True):
        for i, (labels, values) in enumerate(zip(indices, scores, strict=True)):
            yield start + i, labels, values, None if probabilities is None else probabilities[i]


def write_predictions(path: Path, rows: Iterator[dict[str, Any]], model: Any, data: InputData) -> dict[str, Any]:
    """Write predictions in the format of the file's ending; return the numbers to print.

    A table has the columns of the user's table, or else the number of the row; then columns of tags, of scores and,
    if the model is calibrated, of the probabilities that a person writes the tag (and, if asked for, that it is true,
    with bounds), as lists. In CSV and TSV these are
    strings that the commands split into the same tags. Any other format has the features with the predicted labels.
    """
    predictions = list(rows)
    if guess_table_format(path) is None:
        _write_with_features(path, predictions, model, data)
    else:
        _write_with_columns(path, predictions, model, data)
    counts = [len(prediction["tags"]) for prediction in predictions]
    return {
        "output": str(path),
        "rows": len(counts),
        "tags": sum(counts),
        "rows without a tag": counts.count(0),
        "rows without a known word": count_unknown(predictions),
    }


def count_unknown(predictions: Sequence[dict[str, Any]]) -> int:
    """Return how many texts have no word that the model knows."""
    return sum(not prediction.get("known_words", True) for prediction in predictions)


def _write_with_columns(path: Path, predictions: list[dict[str, Any]], model: Any, data: InputData) -> None:
    format_tags: Callable = list
    format_scores: Callable = list
    if guess_table_format(path) in ("csv", "tsv"):
        tags = [prediction["tags"] for prediction in predictions]
        form = _choose_form(path, tags, resolve_columns(model, TableColumns()).separator)
        joint = "," if form in NOTATIONS else form
        format_tags = partial(join_tags, form=form)
        format_scores = partial(_join_values, joint=joint)
    own = list(data.records[0]) if data.records else ["row"]
    calibrated = ["probabilities"] if name_values(model) == "probability" else []
    further = [name for name in TRUE_COLUMNS if predictions and name in predictions[0]]
    lists = ["tags", "scores", *calibrated, *further]
    columns = [*own, *(f"predicted_{name}" if name in own else name for name in lists)]
    values = (
        [
            *(data.records[i].values() if data.records else [prediction["row"]]),
            format_tags(prediction["tags"]),
            *(format_scores(prediction[name]) for name in lists[1:]),
        ]
        for i, prediction in enumerate(predictions)
    )
    write_records(path, columns, values)


def _join_values(values: Sequence[Any], joint: str) -> str:
    return joint.join(map(str, values))


def _choose_form(path: Path, lists: list[list[str]], separator: str | None) -> str:
    """Return the form in which tags are written: the model's own, or JSON if the tags would be read as others."""
    form = separator or ","
    try:
        if split_tags([join_tags(tags, form) for tags in lists], separator) == lists:
            return form
    except ValueError:  # not readable as the notation
        pass
    warnings.warn(f"Some tags contain {form!r}, so tags are written to {path} as JSON lists.", stacklevel=2)
    return "json"


def _write_with_features(path: Path, predictions: list[dict[str, Any]], model: Any, data: InputData) -> None:
    if data.is_text:
        raise ValueError(f"--output {path}: texts are written to a table; use .csv, .tsv, .jsonl or .parquet.")
    names = get_label_names(model)
    column = {name: j for j, name in enumerate(names or map(str, range(model.n_labels_)))}
    indices = [sorted(column[tag] for tag in prediction["tags"]) for prediction in predictions]
    indptr = np.cumsum([0, *map(len, indices)])
    flat = np.array([j for row in indices for j in row], dtype=np.int64)
    Y = sp.csr_array((np.ones(len(flat)), flat, indptr), shape=(len(indices), model.n_labels_))
    write(path, data.X, Y, label_names=names)


def evaluate(model: Any, data: InputData, written_share: str = "", verdicts: Path | None = None) -> dict[str, Any]:
    """Return the usual metrics of a model on the known cells of labelled rows.

    With the share of true labels that are written, or with verdicts on a probe, return estimates for the true labels
    too, with intervals.
    """
    labels = as_labels(data.Y)
    if labels.shape[1] != model.n_labels_:
        raise ValueError(
            f"The data have {labels.shape[1]} labels and the model {model.n_labels_}; pass data of the same set."
        )
    ks = tuple(k for k in (1, 3, 5) if k <= model.n_labels_)
    ranking: dict[str, Metric] = standard_metrics(ks)
    ranking["AUC"] = InstanceAUC()
    deciding: dict[str, Metric] = {"Hamming": HammingLoss(), "micro F1": F1("micro"), "macro F1": F1("macro")}
    corrected = _make_corrected(model, written_share) if written_share else {}
    to_depth = [PrecisionAtK(k) for k in range(1, max(ks) + 1)] if verdicts is not None else []
    by_decision = [*deciding.values(), *(metric for metric in corrected.values() if not metric.depth)]
    # Rankings are those of scores without thresholds.
    by_score = [*ranking.values(), *to_depth, *(metric for metric in corrected.values() if metric.depth)]
    runner = get_runner()
    bounds = split_rows_evenly(labels.shape[0], 1 if runner is None else TASKS_PER_THREAD * runner.size)

    def observe(start: int, stop: int) -> list[Metric]:
        fresh = [[metric.fresh() for metric in metrics] for metrics in (by_score, by_decision)]
        return call_elsewhere(partial(_observe_rows, model, data.X[start:stop], labels[start:stop], *fresh))

    for observed in run_parallel([partial(observe, *pair) for pair in bounds]):
        for metric, part in zip([*by_score, *by_decision], observed, strict=True):
            metric.merge(part)
    values: dict[str, Any] = {name: round(float(m.compute()), 6) for name, m in (ranking | deciding).items()}
    for name, metric in corrected.items():
        values[f"{name} of true labels"] = round(metric.compute(), 6)
        values[f"{name} of true labels, 95 % interval"] = [round(bound, 6) for bound in metric.interval()]
    if verdicts is not None:
        hits, predicted, positives, _ = deciding["micro F1"]._total.sum(axis=1)  # type: ignore[union-attr]
        hits_at = np.array([metric.k * metric._total[0] for metric in to_depth])  # type: ignore[index]
        sums = WrittenSums(labels.shape[0], positives, np.diff(hits_at, prepend=0.0), predicted, hits)
        size, estimates = _evaluate_probe(model, verdicts, data.X, labels, ks, sums)
        for name, (value, low, high, _) in estimates.items():
            values[f"{name} of true labels, by the probe"] = round(value, 6)
            values[f"{name} of true labels, by the probe, 95 % interval"] = [round(low, 6), round(high, 6)]
        values |= describe_size(size, {name: estimate.cells for name, estimate in estimates.items()})
    return values


def describe_size(size: int, cells: dict[str, int | None]) -> dict[str, Any]:
    """Return the size of a probe beside the numbers of cells for intervals of ± 0.05, and what it is too small for.

    >>> describe_size(50, {"P@1": 38, "micro F1": 1234, "P@3": None})["note"]
    '50 verdicts are too few for intervals of ± 0.05 of micro F1, P@3: draw more cells with --probe.'
    """
    needed = {name: None if number is None else round_count(number) for name, number in cells.items()}
    small = [name for name, number in cells.items() if number is None or number > size]
    note = (
        f"{size:,} verdicts are too few for intervals of ± 0.05 of {', '.join(small)}: draw more cells with --probe."
    )
    return {"verdicts": size, "cells for intervals of ± 0.05": needed} | ({"note": note} if small else {})


def _observe_rows(
    model: Any, X: Any, labels: Labels, by_score: list[Metric], by_decision: list[Metric]
) -> list[Metric]:
    """Show rows to metrics of scores and of decisions, in blocks; return all of them."""
    for rows in row_blocks(*labels.shape):
        decided = model.decide(X[rows])
        for metrics, values in ((by_score, decided.scores), (by_decision, decided.decisions)):
            batch = Batch(labels[rows], values)
            for metric in metrics:
                metric.observe(batch)
    return [*by_score, *by_decision]


def _make_corrected(model: Any, written_share: str) -> dict[str, Any]:
    """Return estimators of the metrics of the true labels."""
    written, bounds = _parse_written_share(model, written_share)
    return corrected_metrics(tuple(k for k in (1, 3, 5) if k <= model.n_labels_), written, bounds)


def draw_probe(model: Any, data: InputData, size: int, output: Path, seed: int) -> dict[str, Any]:
    """Write a table of cells for review, drawn at random and in random order; return the values to print."""
    has_records = output.exists() and output.stat().st_size > 0
    if has_records and any(str(record.get("verdict") or "").strip() for record in read_records(output)):
        raise WrongOption(f"--output {output} has verdicts; pass it as --verdicts, or choose another name.")
    if name_values(model) == "score":
        raise WrongOption("--probe needs probabilities, and the model was not calibrated; fit it with --calibrate.")
    n_ranked = min(PROBED_LABELS, model.n_labels_)
    indices, probabilities = model.predict_topk(data.X, n_ranked, proba=True, meaning="true")
    probe = draw_cells(data.Y, indices, probabilities, size, seed)
    names = get_label_names(model) or [str(j) for j in range(model.n_labels_)]
    order = np.random.default_rng(seed).permutation(len(probe.rows))
    cells = zip(*(part[order].tolist() for part in probe), strict=True)
    texts = [_put_on_a_line(x) for x in data.X] if data.is_text else [""] * len(data)
    rows = ([row, names[label], "", chance, texts[row]] for row, label, chance in cells)
    write_records(output, ["row", "label", "verdict", "chance", "text"], rows)
    needed = foresee_cells(data.Y, indices, probabilities, probe)
    foreseen = (
        "many more" if needed is None else f"about {round_count(needed):,}, if the model's probabilities are right"
    )
    return {
        "cells to review": len(order),
        "cells for P@1 with an interval of ± 0.05": foreseen,
        "output": str(output),
        "note": f"Write accept (the tag is right for the text) or reject into the column verdict of {output}, from "
        f"the top, as many as you like, and keep the other rows; then pass --verdicts {output}.",
    }


def _put_on_a_line(text: str) -> str:
    return " ".join(without_markup(text).split())


def _count_others(entries: Sequence[dict[str, Any]], texts: Sequence[str]) -> int:
    """Return how many entries have the text of another row: a few may have been edited."""
    return sum(entry.get("text", "") not in ("", _put_on_a_line(texts[entry["row"]])) for entry in entries)


def _evaluate_probe(
    model: Any, path: Path, X: Any, labels: Labels, ks: Sequence[int], sums: WrittenSums
) -> tuple[int, dict[str, Estimate]]:
    """Return the number of verdicts on a probe, and estimates for the true labels from them and the labels."""
    check_complete(labels)
    entries = read_verdicts(path, get_label_names(model), "chance")
    if not entries:
        raise ValueError(f"--verdicts {path} has no verdict; write accept or reject into the column verdict.")
    rows, numbers, chances = (
        np.array([float(entry[name]) for entry in entries]) for name in ("row", "label", "chance")
    )
    chances *= len(entries) / len(read_records(path))  # the table is in random order
    probe = ProbeCells(rows.astype(np.int64), numbers.astype(np.int64), chances)
    if probe.rows.max() >= labels.shape[0] or not ((chances > 0) & (chances <= 1)).all():
        raise ValueError(
            f"--verdicts {path} has a row or a chance that is out of range; pass the table that --probe wrote for "
            "these data."
        )
    if isinstance(X, list) and _count_others(entries, X) > len(entries) / 2:
        raise ValueError(
            f"--verdicts {path} has other texts than these data; pass the table that --probe wrote for them."
        )
    present, position = np.unique(probe.rows, return_inverse=True)
    decided, places = model.decide(X[present] if not isinstance(X, list) else [X[i] for i in present]), probe.labels
    scores, decisions = (np.asarray(part)[position] for part in (decided.scores, decided.decisions))
    cells = np.arange(len(position))
    better = (scores > scores[cells, places][:, None]).sum(axis=1)
    written = labels.positives[present].toarray()[position, places]
    true = np.array([entry["accepted"] for entry in entries])
    return len(entries), add_probe(sums, ks, probe, true, written, better, decisions[cells, places] > 0)


def _parse_written_share(model: Any, text: str) -> tuple[Any, tuple[float, float] | None]:
    """Return the share of true labels that are written, and its bounds if it is uncertain."""
    if text == "model":
        if name_values(model) == "score":
            raise WrongOption("--written-share model needs a calibrated model; fit it again with --calibrate.")
        share = model.calibration_.written
        return share.of_label, (share.low, share.high)
    try:
        bounds = [float(check_written(float(part))) for part in text.split(",")]
        low, high = bounds if len(bounds) == 2 else bounds * 2
    except ValueError:
        raise WrongOption(
            f"--written-share {text} is no share; pass a number above 0 and at most 1, two of them (0.6,0.8) if it "
            "lies between them, or model."
        ) from None
    return (low + high) / 2, check_range((low, high)) if len(bounds) == 2 else None


def is_training_file(model: Any, path: Path) -> bool:
    """Return whether a model was fitted on this very file, as far as it remembers."""
    checksum = getattr(model, "columns_", {}).get("checksum")
    return bool(checksum) and compute_checksum(path) == checksum


def inspect(path: Path) -> dict[str, Any]:
    """Return the facts about a model file, without reading its arrays."""
    header = open_model(path, read_header)
    attributes = header["attributes"]
    values = {name: attributes.get(name, {}).get("value") for name in ("n_labels_", "n_features_in_", "status_")}
    size = sum(part.stat().st_size for part in path.iterdir()) if path.is_dir() else path.stat().st_size
    parameters = header.get("parameters") or {}
    calibration = attributes.get("calibration_", {}).get("items", {}).get("calibration", {}).get("items", {})
    written = calibration.get("written", {}).get("items", {})
    share, low, high = (written.get(name, {}).get("value") for name in ("overall", "low", "high"))
    return {
        "estimator": header.get("estimator"),
        "parameters": {name: value for name, value in parameters.items() if name != "label_names"},
        "thresholds for": calibration["aim"]["value"] if "aim" in calibration else "none: scores, no probabilities",
        "share of true labels written": None if share is None else f"{share:.2f} ({low:.2f} to {high:.2f})",
        "labels": values["n_labels_"],
        "features": values["n_features_in_"],
        "label names": attributes.get("label_names_in_", {}).get("values"),
        "status": values["status_"],
        "format": header["format"],
        "version": header.get("version"),
        "versions": header.get("versions"),
        "megabytes": round(size / 1e6, 3),
    }


def abbreviate(names: Sequence[str] | None, most: int = 10) -> str:
    """Return the first names, and how many more there are.

    >>> abbreviate(["a", "b", "c"], 2)
    'a, b … (1 more)'
    """
    shown = ", ".join((names or [])[:most])
    return f"{shown} … ({len(names) - most} more)" if names and len(names) > most else shown


def convert(source: Path, target: Path, shards: int | None = None) -> dict[str, int]:
    """Write features and labels in the format of the target's ending, or a folder of shards; return their sizes."""
    check_file(source, folder=True)
    if shards is not None and guess_table_format(source) is not None:
        return write_table_shards(target, source, shards)
    if shards is not None:
        return write_shards(target, split_table(read(source), shards) if source.is_file() else read_files(source))
    check_output("The target", target, source)
    X, Y, feature_names, label_names = read(source)
    write(target, X, Y, feature_names=feature_names, label_names=label_names)
    return {"rows": X.shape[0], "features": X.shape[1], "labels": Y.shape[1]}
