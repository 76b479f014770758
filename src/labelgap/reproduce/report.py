"""Showing a report: a table on the terminal, and a JSON file."""

from __future__ import annotations

import json
import platform
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labelgap import __version__
from labelgap.reproduce.records import Report, Row
from labelgap.runtime import available_cores, written_whole

if TYPE_CHECKING:
    from rich.console import Console

_LIBRARIES = ("numpy", "scipy", "numba", "scikit-learn")


def show(report: Report, console: Console) -> None:
    """Print one table for each experiment, then the notes."""
    from rich.table import Table

    titles = {experiment.name: f"{experiment.name}: {experiment.title}" for experiment in report.experiments}
    for name, rows in groupby(report.rows, lambda row: row.experiment):
        table = Table(title=titles[name], title_justify="left")
        table.add_column("setting", overflow="fold")
        table.add_column("metric", overflow="fold")
        for column in ("paper", "ours", "difference"):
            table.add_column(column, justify="right", no_wrap=column != "ours")
        for row in rows:
            table.add_row(str(row.setting), row.metric, *_cells(row))
        console.print(table)
    seeds = report.options.seeds
    console.print(f"{len(report.rows)} rows, {seeds} seed{'s' * (seeds > 1)}, {report.seconds:.0f} s.")
    for note in report.notes:
        console.print(f"- {note}", highlight=False)


def _cells(row: Row) -> tuple[str, str, str]:
    ours = _number(row.ours, row.metric)
    if row.ours is None:
        ours = "not implemented yet"
    elif row.spread is not None:
        ours += f" ± {_number(row.spread, row.metric)}"
    if row.best:
        ours += " *"
    sign = "+" if row.difference is not None and row.difference > 0 else ""
    return _number(row.paper, row.metric), ours, sign + _number(row.difference, row.metric)


def _number(value: float | None, metric: str) -> str:
    if value is None:
        return "–"
    return f"{value:.4f}" if metric in ("Hamming", "AUC") else f"{value:.2f}"


def as_json(report: Report, command: list[str]) -> dict[str, Any]:
    """Return a report as plain values: what was run, on what, and each row with the seconds it took."""
    return {
        "command": command,
        "seeds": list(range(report.options.seeds)),
        "interrupted": report.interrupted,
        "seconds": report.seconds,
        "versions": {
            "labelgap": __version__,
            "python": platform.python_version(),
            **{name: version(name) for name in _LIBRARIES},
        },
        "machine": {"cores": available_cores(), "processor": platform.machine(), "system": platform.system()},
        "notes": report.notes,
        "rows": [_plain(row) for row in report.rows],
    }


def _plain(row: Row) -> dict[str, Any]:
    return {
        "experiment": row.experiment,
        **vars(row.setting),
        "metric": row.metric,
        "paper": row.paper,
        "ours": row.ours,
        "difference": row.difference,
        "best": row.best,
        "values": list(row.values),
        "params": list(row.params),
        "seconds": row.seconds,
    }


def write_json(report: Report, command: list[str], path: Path) -> None:
    """Write a report as JSON; the file appears whole or not at all."""
    text = json.dumps(as_json(report, command), indent=1, ensure_ascii=False)
    with written_whole(path) as stream:
        stream.write(f"{text}\n".encode())
