"""What ``labelgap reproduce`` does: check everything that can be checked, run, show, write."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from labelgap.reproduce.records import Options
from labelgap.reproduce.records import quick as quick_options
from labelgap.reproduce.registry import find_experiments, list_experiments
from labelgap.reproduce.report import show, write_json
from labelgap.reproduce.runner import run
from labelgap.runtime import optional


def show_list() -> None:
    """Print all experiments."""
    table = Table("name", "shows")
    for experiment in list_experiments().values():
        table.add_row(experiment.name, experiment.title)
    Console().print(table)


def reproduce(
    names: list[str],
    filters: dict[str, str],
    *,
    seeds: int = 1,
    quick: bool = False,
    json: Path | None = None,
    plot: Path | None = None,
) -> bool:
    """Run experiments and show them; return whether Ctrl-C cut the run short."""
    experiments, options = find_experiments(names), make_options(filters, seeds, quick)
    for name, path in (("--json", json), ("--plot", plot)):
        if path is not None and not path.absolute().parent.is_dir():
            raise FileNotFoundError(f"{name} {path} is in no existing folder; make {path.absolute().parent} first.")
    if plot is not None:
        optional("matplotlib", "plot")
    report = run(experiments, options, lambda line: print(line, file=sys.stderr, flush=True))
    console = Console(soft_wrap=False)
    show(report, console)
    if json is not None:
        write_json(report, sys.argv, json)
    if plot is not None and report.rows:
        from labelgap.reproduce.plots import plot as draw

        draw(report, plot)
    if not report.rows and not report.interrupted:
        raise ValueError("Nothing could be run: no dataset of these experiments is available (see above).")
    return report.interrupted


def make_options(filters: dict[str, str], seeds: int = 1, quick: bool = False) -> Options:
    """Read comma-separated filters; those given win over those of ``quick``.

    >>> make_options({"datasets": "bibtex,delicious", "ratios": "0.4"}).ratios
    (0.4,)
    """
    chosen: dict[str, Any] = {**vars(quick_options() if quick else Options()), "seeds": seeds}
    for name, text in filters.items():
        if text:
            chosen[name] = _numbers(name, text) if name in ("ratios", "observed") else _words(text)
    return Options(**chosen)


def _words(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _numbers(name: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in _words(text))
    except ValueError as error:
        raise ValueError(
            f"--{name} {text} is not a list of numbers ({error}); pass shares such as 0.2,0.4."
        ) from error
