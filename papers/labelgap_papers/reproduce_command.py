"""The command ``labelgap reproduce``: check the options, run the experiments, print and write the results."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from labelgap.runtime import import_optional
from labelgap_papers.experiments import (
    QUICK_OPTIONS,
    Experiment,
    Report,
    RunOptions,
    find_experiments,
    list_experiments,
)
from labelgap_papers.reports import plot_report, print_report, read_files, read_rows, write_json, write_summary
from labelgap_papers.run_all import run_all
from labelgap_papers.study import Study, normalize_setting

__all__ = [
    "format_command",
    "make_options",
    "print_experiments",
    "reproduce",
    "reproduce_all",
    "run",
    "summarize_folder",
]


def print_experiments() -> None:
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
    random_splits: bool = False,
) -> bool:
    """Run experiments and print their tables; return whether Ctrl-C interrupted the run."""
    experiments = find_experiments(names)
    options = make_options(filters, seeds, quick, experiments, random_splits=random_splits)
    for name, path in (("--json", json), ("--plot", plot)):
        if path is not None and not path.absolute().parent.is_dir():
            folder = path.absolute().parent
            raise FileNotFoundError(f"Cannot write {name} {path}: create the folder {folder} first.")
    if plot is not None:
        import_optional("matplotlib", "plot")
    report = run(experiments, options, lambda line: print(line, file=sys.stderr, flush=True))
    print_report(report, Console(soft_wrap=False))
    if json is not None:
        write_json(report, format_command(names, options), json)
    if plot is not None and report.rows:
        plot_report(report, plot)
    if not report.rows and not report.interrupted:
        raise ValueError("Nothing was run: no dataset of these experiments is available (see the notes above).")
    return report.interrupted


def reproduce_all(
    names: list[str],
    filters: dict[str, str],
    *,
    folder: Path,
    seeds: int | None = None,
    budget: float | None = None,
    random_splits: bool = False,
) -> bool:
    """Make the fits that a folder of results does not have, and write its page; return whether Ctrl-C interrupted."""
    if not folder.is_dir():
        raise FileNotFoundError(f"--folder {folder} is not a folder; create it first.")
    experiments = find_experiments(names) if names else list(list_experiments().values())
    options = make_options(filters, random_splits=random_splits)
    measured = {normalize_setting(row.setting) for row in read_files(folder) if row.values}
    progress = run_all(
        experiments,
        options,
        folder,
        seeds=seeds,
        budget=math.inf if budget is None else budget,
        measured=measured,
        log=lambda line: print(line, file=sys.stderr, flush=True),
    )
    print(f"{progress}. Page: {write_summary(folder)}")
    return progress.interrupted


def summarize_folder(folder: Path, plot: Path | None = None) -> Path:
    """Write the page about a folder of results, and a plot of its figures; return the path of the page."""
    if plot is not None and folder.is_dir():
        figures = [experiment for experiment in list_experiments().values() if experiment.x is not None]
        plot_report(Report(figures, RunOptions(), read_rows(folder)), plot)
    return write_summary(folder)


def run(experiments: list[Experiment], options: RunOptions, log: Callable[[str], None] = lambda line: None) -> Report:
    """Run experiments with one study, which makes a fit that several of them need only once.

    Ctrl-C ends the run and keeps the finished rows.

    Parameters
    ----------
    experiments : list of Experiment
        See :func:`labelgap_papers.find_experiments`.
    options : RunOptions
        Filters and number of seeds.
    log : callable, optional
        Receives a line of text about each fit.

    Raises
    ------
    ValueError
        If the filters exclude every setting of an experiment.
    """
    if options.seeds < 1:
        raise ValueError(f"seeds={options.seeds} is too small; pass at least 1.")
    for experiment in experiments:
        _check_filters(experiment, options)
    study, report = Study(options, log), Report(experiments, options)
    start = time.perf_counter()
    try:
        for experiment in experiments:
            for row in experiment.run(study):
                report.rows.append(row)
    except KeyboardInterrupt:
        report.interrupted = True
    report.seconds = time.perf_counter() - start
    report.notes = [f"{name} is left out: {reason}" for name, reason in study.unavailable.items()]
    if report.interrupted:
        report.notes.append(f"Interrupted: only the {len(report.rows)} rows above are finished.")
    report.notes += dict.fromkeys(note for experiment in experiments for note in experiment.notes)
    return report


def _check_filters(experiment: Experiment, options: RunOptions) -> None:
    settings = experiment.settings
    if any(options.accepts(setting) for setting in settings):
        return
    choices = {
        "datasets": sorted({setting.dataset for setting in settings}),
        "losses": sorted({setting.loss for setting in settings}),
        "methods": sorted({setting.method for setting in settings}),
        "ratios": sorted({f"{s.k_ratio:g}" for s in settings if s.k_ratio is not None}),
        "observed": sorted({f"{s.observed:g}" for s in settings if s.observed != 1}),
    }
    parts = "; ".join(f"{name} {', '.join(values)}" for name, values in choices.items() if values)
    raise ValueError(f"The filters exclude every setting of {experiment.name}, which has: {parts}. Relax a filter.")


def format_command(names: Sequence[str], options: RunOptions) -> list[str]:
    """Return the command that gives the same numbers again.

    >>> " ".join(format_command(["leml/table-5"], RunOptions(datasets=("bibtex",), ratios=(0.4,), seeds=3)))
    'labelgap reproduce leml/table-5 --datasets bibtex --ratios 0.4 --seeds 3'
    """
    filters = {name: value for name, value in vars(options).items() if isinstance(value, tuple) and value}
    words = [word for name, values in filters.items() for word in (f"--{name}", ",".join(map(str, values)))]
    words += ["--random-splits"] * (options.split == "random")
    return ["labelgap", "reproduce", *names, *words, "--seeds", str(options.seeds)]


def make_options(
    filters: dict[str, str],
    seeds: int | None = None,
    quick: bool = False,
    experiments: Sequence[Experiment] = (),
    random_splits: bool = False,
) -> RunOptions:
    """Return the options of the command line; filters and seeds of the user override those of ``quick``.

    The default number of seeds is the largest default of the experiments.

    >>> make_options({"datasets": "bibtex,delicious", "ratios": "0.4"}).ratios
    (0.4,)
    """
    defaults = RunOptions(seeds=max((experiment.seeds for experiment in experiments), default=1))
    chosen: dict[str, Any] = {**vars(_shared_quick_options(experiments) if quick else defaults)}
    if seeds is not None:
        chosen["seeds"] = seeds
    if random_splits:
        chosen["split"] = "random"
    for name, text in filters.items():
        if text:
            words = tuple(part.strip() for part in text.split(",") if part.strip())
            chosen[name] = _parse_numbers(name, words) if name in ("ratios", "observed") else words
    return RunOptions(**chosen)


def _shared_quick_options(experiments: Sequence[Experiment]) -> RunOptions:
    options = {experiment.quick for experiment in experiments} or {QUICK_OPTIONS}
    if len(options) > 1:
        names = ", ".join(experiment.name for experiment in experiments)
        raise ValueError(f"--quick differs between {names}; run the experiments of one paper at a time.")
    return options.pop()


def _parse_numbers(name: str, words: tuple[str, ...]) -> tuple[float, ...]:
    try:
        return tuple(map(float, words))
    except ValueError as error:
        raise ValueError(f"--{name} {','.join(words)} is not a list of numbers ({error}).") from error
