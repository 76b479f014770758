"""The commands fit and tune, whose further options are the parameters of a method."""

from __future__ import annotations

import difflib
import inspect
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from labelgap.commands.gap_commands import MISSING
from labelgap.commands.options import parse_seconds
from labelgap.commands.outputs import check_output, compute_checksum, resumable
from labelgap.commands.prediction import evaluate
from labelgap.datasets import write_records
from labelgap.estimators import MultiLabelEstimator, Tagger
from labelgap.estimators.tagger import MIN_CALIBRATED_ROWS
from labelgap.inputs import InputData, TableColumns, WrongOption, load_data, store_names
from labelgap.methods import list_classes
from labelgap.model_selection import Tuning, get_criterion
from labelgap.model_selection import tune as tune_estimator
from labelgap.model_selection.candidates import TAGGER_PREFIX, get_space
from labelgap.observations import Labels, as_labels
from labelgap.runtime import progress

NOT_OPTIONS = ("callbacks", "estimator", "label_names")  # parameters that a command cannot set

Grids = list[dict[str, list[Any]]]


class MethodOptions(NamedTuple):
    """Options that fit and tune share.

    ``words`` are the further options, which are parameters of the method; ``names`` are the options of the command,
    as suggestions for misspelt ones. ``complete`` says that absent tags are a "no"; ``calibrate`` and ``aim`` ask
    for probabilities and thresholds. ``test_size`` is the share of rows to test on, ``vectors`` a column of features.
    """

    method: str
    words: Sequence[str] = ()
    min_count: int = 1
    seed: int | None = None
    jobs: int | None = None
    names: Sequence[str] = ()
    complete: bool = False
    calibrate: bool = True
    aim: str = "f1"
    test_size: float = 0.0
    vectors: str = ""


AUTO = "auto"  # the short name of AutoLabeler


def fit(
    path: Path, columns: TableColumns, output: Path, options: MethodOptions, *, checkpoint: Path | None = None
) -> dict[str, Any]:
    """Fit a method on a file and write the model; return the numbers to print.

    With a ``checkpoint`` the default seed is 0: a resumed fit must draw the same random numbers.
    """
    check_output("--output", output, path)
    if checkpoint is not None and options.seed is None:
        options = options._replace(seed=0)
    if options.vectors:
        if columns.text:
            raise WrongOption("--vectors and --text are two ways to name the features; use only one.")
        columns = replace(columns, text=options.vectors)
    estimator, parameters = _make_named_estimator(options)
    with progress(None, f"Reading {path.name}", 0):
        by_file = not options.test_size and not options.vectors
        data, test = hold_out_rows(load_data(path, columns, min_count=options.min_count, by_file=by_file), options)
    model = _prepare_model(estimator, data, options)
    # Words are parsed into parameters, and the number of jobs does not change the result.
    settings = options._asdict() | parameters
    for name in ("words", "names", "jobs"):
        settings.pop(name, None)
    start = time.perf_counter()
    with resumable(checkpoint, "fit", {"data": path}, **asdict(columns), **settings):
        model.fit(data.X, data.Y, calibrate=_choose_aim(data, options))
        seconds = time.perf_counter() - start
        store_names(model, data, compute_checksum(path))
        model.save(output)
    labels = as_labels(data.Y)
    return {
        "model": str(output),
        "method": type(getattr(model, "model_", model)).__name__,
        "rows": len(data),
        **describe_columns(data),
        "absent labels": describe_absent(model, labels),
        "features": int(model.n_features_in_),
        "labels": labels.shape[1],
        "positives": int(labels.positives.nnz),
        "unknown cells": labels.shape[0] * labels.shape[1] - labels.n_known,
        "seconds": round(seconds, 3),
        "megabytes": round(output.stat().st_size / 1e6, 3),
        **describe_quality(model, labels, calibrated=options.calibrate),
        **({} if test is None else describe_test(model, test)),
    }


def hold_out_rows(data: InputData, options: MethodOptions) -> tuple[InputData, InputData | None]:
    """Return the rows to learn from, and those to test on, drawn at random; None without --test-size."""
    n_test = round(options.test_size * len(data))
    if not n_test:
        return data, None
    order = np.random.RandomState(options.seed or 0).permutation(len(data))
    return data.select(np.sort(order[n_test:])), data.select(np.sort(order[:n_test]))


def describe_test(model: Any, test: InputData) -> dict[str, Any]:
    """Return the number of rows that were left out of the fit, and a line on the quality of their labels."""
    values = evaluate(model, test)
    tagged = np.mean([len(row) > 0 for row in model.predict_tags(test.X)]) if isinstance(model, Tagger) else None
    line = ", ".join(f"{name} {values[name]:.3f}" for name in ("P@1", "P@3", "P@5", "micro F1") if name in values)
    if tagged is not None:
        line += f", {1 - tagged:.0%} of rows without a label"
    return {"test rows": len(test), "on test rows": line}


def _make_named_estimator(options: MethodOptions) -> tuple[MultiLabelEstimator | None, dict[str, Any]]:
    """Return the estimator that --method names, or None without one, and the parameters from further options."""
    if not options.method and not options.words:
        return None, {}
    # Without --method, further options are those of one-vs-all.
    cls = find_class(options.method or "BinaryRelevance")
    parameters = parse_options(cls, options.words, options.names)
    return make_estimator(cls, parameters, options), parameters


def _prepare_model(estimator: MultiLabelEstimator | None, data: InputData, options: MethodOptions) -> Any:
    """Return the model to fit: a Tagger for texts, the estimator for features."""
    if not data.is_text:
        return estimator or make_estimator(find_class("BinaryRelevance"), {}, options)
    # A column of tags lists positives; columns of labels say what every cell is.
    complete = True if options.complete else False if data.columns.tags else None
    features = "vectors" if options.vectors else None
    names = data.label_names
    return Tagger(estimator, features=features, label_names=names, complete=complete, n_jobs=options.jobs)


def _choose_aim(data: InputData, options: MethodOptions) -> str | bool:
    return options.aim if options.calibrate and len(data) >= MIN_CALIBRATED_ROWS else False


def describe_absent(model: Any, labels: Labels) -> str:
    """Return what the fit took an absent label for."""
    if getattr(model, "positives_only_", model.about.positives_only):
        return "unlabelled: a tag that is not written may be forgotten (--complete: it is a no)"
    return "no" if labels.complete else "no; blank cells are unknown"


def describe_quality(model: Any, labels: Labels, *, calibrated: bool = True) -> dict[str, str]:
    """Return a line on the quality for unseen rows, and the number of missing labels if some may be forgotten.

    Without a calibration it says why, if ``calibrated`` says that the fit should have one.
    """
    calibration = getattr(model, "calibration_", None)
    rows = "texts" if isinstance(model, Tagger) else "rows"
    if calibration is None:
        too_few = f"not known: {len(labels)} rows are too few to hold some out ({MIN_CALIBRATED_ROWS} are needed)"
        return {f"on unseen {rows}": f"{too_few}, so the model has scores, no probabilities"} if calibrated else {}
    quality, written = calibration.quality, calibration.written
    line = f"P@1 {quality['precision_at_1']:.3f}, F1 {quality['f1']:.3f}"
    if calibration.aim.startswith("precision"):
        line += f", expected precision {quality['expected_precision']:.3f}"
    line += (
        f", {quality['labels_per_row']:.1f} labels a row, {1 - quality['rows_with_label']:.0%} of rows without one"
    )
    described = {f"on unseen {rows}": line}
    if written.overall < 1:
        n_written = int(labels.positives.nnz)
        count = written.count_missing(n_written, labels.n_known - n_written)
        described[MISSING] = f"{count.describe()}; labelgap audit lists them"
    return described


def describe_columns(data: InputData) -> dict[str, Any]:
    """Return the columns of a table that were read, and what its rows without tags are taken for."""
    if data.records is None:
        return {}
    columns = {"text columns": data.columns.text_columns}
    if data.n_untagged is None:
        return columns | {"label columns": data.columns.label_columns}
    form = {" ": "blanks", "": "lists"}.get(data.columns.separator or "", data.columns.separator)
    return columns | {
        "tags column": data.columns.tags,
        "tags separated by": form,
        "rows without tags": data.n_untagged,
    }


def explain_untagged(count: int, complete: bool) -> str:
    """Return a sentence on what rows without tags are taken for."""
    rows = "1 row has" if count == 1 else f"{count:,} rows have"
    meaning = "a no" if complete else "not written: a no, or forgotten"
    return f"{rows} no tags; each tag there counts as {meaning}. Leave out rows that nobody has tagged yet."


def tune(
    path: Path,
    columns: TableColumns,
    output: Path | None,
    table: Path | None,
    options: MethodOptions,
    *,
    grid: str = "",
    metric: str = "P@1",
    **search: Any,
) -> Tuning:
    """Tune a method on a file; write the candidates to ``table`` and the best model to ``output``.

    ``search`` are further parameters of :func:`labelgap.tune`.
    """
    check_output("--output", output, path)
    check_output("--table", table, path, table=True)
    cls = find_class(options.method)
    fixed, grids = split_parameters(cls, options.words, grid, options.names)
    model: Any = make_estimator(cls, fixed, options)
    try:
        get_criterion(metric, model)
    except ValueError as error:
        raise WrongOption(f"--metric {metric} cannot be used: {error}") from error
    if not grids and fixed.keys() & get_space(model).keys():
        grids = [_free_axes(model, fixed)]
    with progress(None, f"Reading {path.name}", 0):
        data = load_data(path, columns, min_count=options.min_count)
    if data.is_text:
        names = {name: f"{TAGGER_PREFIX}{name}" for name in list_parameters(cls)}
        grids = [{names.get(name, name): values for name, values in axes.items()} for axes in grids]
        model = _prepare_model(model, data, options)
    search |= {"grid": grids or None, "metric": metric, "refit": output is not None, "random_state": options.seed}
    search["calibrate"] = _choose_aim(data, options)
    tuning = tune_estimator(model, data.X, data.Y, **search)
    if table is not None:
        write_records(table, *tabulate_candidates(tuning))
    if output is not None and tuning.estimator is not None:
        store_names(tuning.estimator, data, compute_checksum(path))
        tuning.estimator.save(output)
    return tuning


# --- results of a search --------------------------------------------------------------------------------------------


def summarize_tuning(tuning: Tuning, output: Path | None) -> dict[str, Any]:
    """Return the best parameters, their score, and the numbers of the search."""
    return {
        "best": {name.removeprefix(TAGGER_PREFIX): value for name, value in tuning.params.items()},
        "score": tuning.score,
        "metric": ", ".join(tuning.metrics),
        "held out": tuning.hold_out,
        "status": tuning.status,
        "tried": len(tuning.table),
        "candidates": tuning.n_candidates,
        "failed": sum(row["error"] is not None for row in tuning.table),
        "rows": tuning.n_rows,
        "seconds": round(tuning.seconds, 3),
        "model": str(output) if tuning.estimator is not None else None,
    }


def list_candidates(tuning: Tuning) -> list[dict[str, Any]]:
    """Return the candidates of a search with their scores, under the method's own parameter names."""
    return [
        {name.removeprefix(TAGGER_PREFIX): value for name, value in record.items()} for record in tuning.to_records()
    ]


def tabulate_candidates(tuning: Tuning) -> tuple[list[str], list[list[Any]]]:
    """Return the column names and the rows of a table of the candidates."""
    candidates = list_candidates(tuning)
    names = list(dict.fromkeys(name for record in candidates for name in record))
    return names, [[record.get(name) for name in names] for record in candidates]


# --- options that are parameters of a method ------------------------------------------------------------------------


def find_class(name: str) -> type[MultiLabelEstimator]:
    """Return the estimator class of a name, in any case; raise WrongOption with similar names if there is none.

    >>> find_class("leml").__name__
    'LEML'
    >>> find_class("LEMN")
    Traceback (most recent call last):
        ...
    labelgap.inputs.WrongOption: --method LEMN is not known; did you mean LEML? ...
    """
    classes = {known.lower(): cls for known, cls in list_classes().items()}
    classes[AUTO] = classes["autolabeler"]
    if name.lower() not in classes:
        similar = difflib.get_close_matches(name.lower(), classes, 3)
        hint = f"did you mean {' or '.join(classes[known].__name__ for known in similar)}? " if similar else ""
        raise WrongOption(f"--method {name} is not known; {hint}`labelgap methods` lists all methods.")
    if classes[name.lower()] is Tagger:
        raise WrongOption(
            f"--method {name} is what texts are learned with in any case; name the method in it, such as LEML, or "
            "leave --method out."
        )
    return classes[name.lower()]


def list_parameters(cls: type) -> list[str]:
    """Return the names of the parameters that the command line can set.

    >>> list_parameters(find_class("BinaryRelevance"))[:2]
    ['alpha', 'loss']
    """
    names = list(inspect.signature(cls.__init__).parameters)  # type: ignore[misc]
    without = NOT_OPTIONS if getattr(cls, "_uses_device", False) else (*NOT_OPTIONS, "device")
    return [name for name in names if name != "self" and name not in without]


def parse_options(cls: type, words: Sequence[str], names: Sequence[str] = ()) -> dict[str, Any]:
    """Return ``--name value`` pairs as parameters of an estimator; ``names`` are further options to suggest.

    Values are JSON if they can be parsed as such, else text; a flag without a value is true. ``--name=value`` works
    too.

    >>> parse_options(find_class("LEML"), ["--alpha", "0.5", "--loss=logistic", "--n-components", "20"])
    {'alpha': 0.5, 'loss': 'logistic', 'n_components': 20}
    >>> parse_options(find_class("LEML"), ["--alhpa", "1"])
    Traceback (most recent call last):
        ...
    labelgap.inputs.WrongOption: --alhpa is not an option of LEML; did you mean --alpha? Options: ...
    """
    options = {f"--{name.replace('_', '-')}": name for name in list_parameters(cls)}
    parameters: dict[str, Any] = {}
    queue = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]
    while queue:
        word = queue.pop(0)
        option = f"--{word.removeprefix('--').replace('_', '-')}"
        if not word.startswith("--") or option not in options:
            similar = difflib.get_close_matches(word, [*options, *names], 1)
            hint = f" did you mean {similar[0]}?" if similar else ""
            raise WrongOption(f"{word} is not an option of {cls.__name__};{hint} Options: {', '.join(options)}.")
        has_value = bool(queue) and not queue[0].startswith("--")
        parse = parse_seconds if option == "--budget" else _parse_value
        parameters[options[option]] = parse(queue.pop(0)) if has_value else True
    return parameters


def _parse_value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return {"true": True, "false": False, "none": None}.get(text.lower(), text)


def make_estimator(
    cls: type[MultiLabelEstimator], parameters: Mapping[str, Any], options: MethodOptions
) -> MultiLabelEstimator:
    """Return an estimator with the parameters, and with the seed and the jobs of the options if it accepts them."""
    common = {"random_state": options.seed, "n_jobs": options.jobs}
    accepted = list_parameters(cls)
    defaults = {name: value for name, value in common.items() if value is not None and name in accepted}
    return cls(**(defaults | dict(parameters)))


def split_parameters(
    cls: type, words: Sequence[str], grid: str, names: Sequence[str] = ()
) -> tuple[dict[str, Any], Grids]:
    """Return the parameters that options fix, and the grids from ``grid`` and options with several values.

    >>> split_parameters(find_class("LEML"), ["--n-components", "5", "--alpha", "1,0.1"], "")
    ({'n_components': 5}, [{'alpha': [1, 0.1]}])
    >>> split_parameters(find_class("LEML"), ["--loss", "logistic"], '{"alpha": [2, 4]}')
    ({'loss': 'logistic'}, [{'alpha': [2, 4]}])
    """
    fixed: dict[str, Any] = {}
    axes: dict[str, list[Any]] = {}
    for name, value in parse_options(cls, words, names).items():
        values = _split_values(value) if isinstance(value, str) and "," in value else value
        (axes if isinstance(values, list) else fixed)[name] = values
    grids = [part | axes for part in _parse_grid(grid)]
    accepted = {*list_parameters(cls), *list_parameters(Tagger)}
    for name in {name for part in grids for name in part} - accepted:
        raise WrongOption(f"--grid names {name!r}, which is not a parameter of {cls.__name__}.")
    return fixed, [part for part in grids if part]


def _split_values(text: str) -> list[Any]:
    """Return the comma-separated values of a text, parsed as JSON if they can be."""
    values: list[Any] = [part.strip() for part in text.split(",") if part.strip()]
    for i, value in enumerate(values):
        try:
            values[i] = json.loads(value)
        except ValueError:
            continue
    return values


def _parse_grid(text: str) -> Grids:
    """Return the grids of --grid; without the option, one grid without axes."""
    try:
        grid = json.loads(text) if text else {}
    except ValueError as error:
        raise WrongOption(f'--grid is not JSON ({error}); write it like {{"alpha": [0.1, 1, 10]}}.') from error
    parts = grid if isinstance(grid, list) else [grid]
    if not all(isinstance(part, dict) and all(isinstance(v, list) and v for v in part.values()) for part in parts):
        raise WrongOption(
            f'--grid {text} needs a list of values for each parameter; write {{"alpha": [0.1, 1, 10]}}.'
        )
    return parts


def _free_axes(model: Any, fixed: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the axes of the method's own search space that no option fixes."""
    axes = {name: values for name, values in get_space(model).items() if name not in fixed}
    if not axes:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in fixed)
        raise WrongOption(f"{names} leave nothing to tune; pass several values, such as --alpha 0.1,1,10.")
    return axes
