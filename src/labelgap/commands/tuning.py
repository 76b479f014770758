"""tune."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from labelgap.commands.inputs import Columns, load_data
from labelgap.commands.learning import remember
from labelgap.commands.options import find_class, make_estimator, parameters_of, parse_options
from labelgap.commands.outputs import check_output
from labelgap.commands.terminal import WrongOption
from labelgap.datasets import write_records
from labelgap.estimators import Tagger
from labelgap.model_selection import Tuning
from labelgap.model_selection import tune as run_tune
from labelgap.model_selection.criteria import get_criterion
from labelgap.model_selection.selection import shown
from labelgap.model_selection.spaces import WITHIN_TAGGER, space_of
from labelgap.runtime import progress

__all__ = ["columns_and_rows", "records", "shown", "summary", "tune"]

Grids = list[dict[str, list[Any]]]


def tune(
    path: Path,
    columns: Columns,
    output: Path | None,
    table: Path | None,
    *,
    method: str,
    words: Sequence[str] = (),
    grid: str = "",
    least: int = 1,
    seed: int | None = None,
    jobs: int | None = None,
    **options: Any,
) -> Tuning:
    """Tune a method on a file, write what was tried and the model of the best; ``options`` are those of tune."""
    check_output("--output", output, path)
    check_output("--table", table, path, table=True)
    fixed, grids = fixed_and_searched(method, words, grid)
    model: Any = make_estimator(method, (), seed, jobs).set_params(**fixed)
    _check_metric(options.get("metric", "P@1"), model)
    if not grids and fixed.keys() & space_of(model).keys():
        grids = [_rest_of_space(model, fixed)]
    with progress(None, f"Reading {path.name}", 0):
        data = load_data(path, columns, least=least)
    if data.is_text:
        grids = [_within_tagger(find_class(method), axes) for axes in grids]
        model = Tagger(model, label_names=data.label_names, n_jobs=jobs)
    found = run_tune(
        model, data.X, data.Y, grid=grids or None, refit=output is not None, random_state=seed, **options
    )
    if table is not None:
        write_records(table, *columns_and_rows(found))
    if output is not None and found.estimator is not None:
        remember(found.estimator, columns, data)
        found.estimator.save(output)
    return found


def fixed_and_searched(method: str, words: Sequence[str], grid: str) -> tuple[dict[str, Any], Grids]:
    """Return the parameters that options fix, and the grids that options with several values and ``grid`` give.

    >>> fixed_and_searched("LEML", ["--n-components", "5", "--alpha", "1,0.1"], "")
    ({'n_components': 5}, [{'alpha': [1, 0.1]}])
    >>> fixed_and_searched("LEML", ["--loss", "logistic"], '{"alpha": [2, 4]}')
    ({'loss': 'logistic'}, [{'alpha': [2, 4]}])
    """
    cls = find_class(method)
    given = {name: _several(value) for name, value in parse_options(cls, words).items()}
    axes = {name: value for name, value in given.items() if isinstance(value, list)}
    fixed = {name: value for name, value in given.items() if name not in axes}
    grids = [part | axes for part in _read_grid(grid)]
    for name in {name for part in grids for name in part} - parameters_of(cls).keys() - parameters_of(Tagger).keys():
        raise WrongOption(f"--grid names {name!r}, which is no parameter of {cls.__name__}.")
    return fixed, [part for part in grids if part]


def summary(found: Tuning, output: Path | None) -> dict[str, Any]:
    """Return what a search came to."""
    return {
        "best": {_of_method(name): value for name, value in found.params.items()},
        "score": found.score,
        "metric": ", ".join(found.metrics),
        "held out": found.hold_out,
        "status": found.status,
        "tried": len(found.table),
        "candidates": found.n_candidates,
        "failed": sum(row["error"] is not None for row in found.table),
        "rows": found.n_rows,
        "seconds": round(found.seconds, 3),
        "model": str(output) if found.estimator is not None else None,
    }


def records(found: Tuning) -> list[dict[str, Any]]:
    """Return what was tried; the names of parameters are those of the method."""
    return [{_of_method(name): value for name, value in record.items()} for record in found.to_records()]


def columns_and_rows(found: Tuning) -> tuple[list[str], list[list[Any]]]:
    """Return what was tried as a table."""
    tried = records(found)
    names = list(dict.fromkeys(name for record in tried for name in record))
    return names, [[record.get(name) for name in names] for record in tried]


def _of_method(name: str) -> str:
    return name.removeprefix(WITHIN_TAGGER)


def _check_metric(metric: str, model: Any) -> None:
    try:
        get_criterion(metric, model)
    except ValueError as error:
        raise WrongOption(f"--metric {metric} cannot be used: {error}") from error


def _several(value: Any) -> Any:
    """Return the values of a text with commas as a list."""
    if isinstance(value, str) and "," in value:
        return [_plain(part.strip()) for part in value.split(",") if part.strip()]
    return value


def _plain(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _read_grid(text: str) -> Grids:
    """Return the grids of --grid, one without axes where there is none."""
    try:
        found = json.loads(text) if text else {}
    except ValueError as error:
        raise WrongOption(f'--grid is no JSON ({error}); write it like {{"alpha": [0.1, 1, 10]}}.') from error
    parts = found if isinstance(found, list) else [found]
    if not all(isinstance(part, dict) and all(isinstance(v, list) and v for v in part.values()) for part in parts):
        raise WrongOption(f'--grid {text} has no list of values for each parameter; write {{"alpha": [0.1, 1, 10]}}.')
    return parts


def _rest_of_space(model: Any, fixed: Mapping[str, Any]) -> dict[str, list[Any]]:
    rest = {name: values for name, values in space_of(model).items() if name not in fixed}
    if not rest:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in fixed)
        raise WrongOption(f"{names} leave nothing to tune; give several values, such as --alpha 0.1,1,10.")
    return rest


def _within_tagger(cls: type, axes: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """Return axes under the names that they have in a Tagger; its own parameters keep theirs."""
    own = parameters_of(cls)
    return {f"{WITHIN_TAGGER}{name}" if name in own else name: values for name, values in axes.items()}
