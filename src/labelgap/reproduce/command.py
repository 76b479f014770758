"""What ``labelgap reproduce`` does: check everything that can be checked, run, show, write."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from labelgap.reproduce.records import Experiment, Options
from labelgap.reproduce.records import quick as quick_options
from labelgap.reproduce.registry import find_experiments, list_experiments
from labelgap.reproduce.report import show, write_json
from labelgap.reproduce.runner import run
from labelgap.reproduce.summary import write_summary
from labelgap.runtime import optional

__all__ = ["as_command", "make_options", "reproduce", "show_list", "write_summary"]


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
    seeds: int | None = None,
    quick: bool = False,
    json: Path | None = None,
    plot: Path | None = None,
) -> bool:
    """Run experiments and show them; return whether Ctrl-C cut the run short."""
    experiments = find_experiments(names)
    options = make_options(filters, seeds, quick, experiments)
    for name, path in (("--json", json), ("--plot", plot)):
        if path is not None and not path.absolute().parent.is_dir():
            raise FileNotFoundError(f"{name} {path} is in no existing folder; make {path.absolute().parent} first.")
    if plot is not None:
        optional("matplotlib", "plot")
    report = run(experiments, options, lambda line: print(line, file=sys.stderr, flush=True))
    console = Console(soft_wrap=False)
    show(report, console)
    if json is not None:
        write_json(report, as_command(names, options), json)
    if plot is not None and report.rows:
        from labelgap.reproduce.plots import plot as draw

        draw(report, plot)
    if not report.rows and not report.interrupted:
        raise ValueError("Nothing could be run: no dataset of these experiments is available (see above).")
    return report.interrupted


def as_command(names: Sequence[str], options: Options) -> list[str]:
    """Return the command that gives the same numbers again.

    >>> " ".join(as_command(["leml/table-5"], Options(datasets=("bibtex",), ratios=(0.4,), seeds=3)))
    'labelgap reproduce leml/table-5 --datasets bibtex --ratios 0.4 --seeds 3'
    """
    filters = {name: value for name, value in vars(options).items() if isinstance(value, tuple) and value}
    given = [word for name, values in filters.items() for word in (f"--{name}", ",".join(map(str, values)))]
    return ["labelgap", "reproduce", *names, *given, "--seeds", str(options.seeds)]


def make_options(
    filters: dict[str, str],
    seeds: int | None = None,
    quick: bool = False,
    experiments: Sequence[Experiment] = (),
) -> Options:
    """Read comma-separated filters; those given win over those of ``quick``, and a number of seeds does too.

    Without a number there are as many seeds as the experiments have by themselves, the most of them.

    >>> make_options({"datasets": "bibtex,delicious", "ratios": "0.4"}).ratios
    (0.4,)
    """
    usual = Options(seeds=max((experiment.seeds for experiment in experiments), default=1))
    chosen: dict[str, Any] = {**vars(_first_look(experiments) if quick else usual)}
    if seeds is not None:
        chosen["seeds"] = seeds
    for name, text in filters.items():
        if text:
            chosen[name] = _numbers(name, text) if name in ("ratios", "observed") else _words(text)
    return Options(**chosen)


def _first_look(experiments: Sequence[Experiment]) -> Options:
    looks = {experiment.quick for experiment in experiments} or {quick_options()}
    if len(looks) > 1:
        names = ", ".join(experiment.name for experiment in experiments)
        raise ValueError(f"--quick is not the same for all of {names}; run those of one paper at a time.")
    return looks.pop()


def _words(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _numbers(name: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in _words(text))
    except ValueError as error:
        raise ValueError(
            f"--{name} {text} is not a list of numbers ({error}); pass shares such as 0.2,0.4."
        ) from error
