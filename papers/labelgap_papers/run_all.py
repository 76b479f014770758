"""All experiments, cheapest fit per number first, with a journal that the next run continues and a page."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path

from labelgap_papers.experiments import Experiment, RunOptions, Setting, TableRow
from labelgap_papers.journal import Journal, Key
from labelgap_papers.study import FitPlan, Replay, Study

JOURNAL = "measurements.jsonl"


@dataclass
class Progress:
    """The fits of a run: how many were made, failed and are left, and the estimated seconds of those left."""

    made: int = 0
    failed: int = 0
    left: int = 0
    seconds_left: float = 0.0
    interrupted: bool = False

    def __str__(self) -> str:
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{self.made} fits{failed}; {self.left} left, about {format_seconds(self.seconds_left)}"


def run_all(
    experiments: Sequence[Experiment],
    options: RunOptions,
    folder: Path,
    *,
    seeds: int | None = None,
    budget: float = math.inf,
    measured: Set[Setting] = frozenset(),
    log: Callable[[str], None] = lambda line: None,
) -> Progress:
    """Make the fits that the journal of a folder does not have, in the order of expected time per published number.

    Fits without any measurement come before those whose code has changed and those of ``measured`` settings, which
    other files of the folder have; the first seed of every setting comes before the others. Fits that are not
    expected to end within the budget of seconds are left to another run, and so is everything after Ctrl-C. A fit
    that fails is reported and skipped.
    """
    journal, progress = Journal(folder / JOURNAL), Progress()
    plan = FitPlan(options, log, journal)
    _walk(experiments, plan, seeds)
    for name, reason in plan.unavailable.items():
        log(f"{name} is left out: {reason}")
    deadline, waiting = time.monotonic() + budget, plan.find_missing()
    new = {key for key in waiting if key not in journal.entries and key.setting not in measured}
    try:
        while waiting:
            waiting.sort(
                key=lambda key: (key not in new, plan.counts[key.setting] == 0, key.seed, plan.estimate_cost(key))
            )
            left = deadline - time.monotonic()
            key = next((key for key in waiting if journal.estimate(key) <= left), None)
            if key is None:
                break
            waiting.remove(key)
            _make_fit(plan, key, progress, log)
            waiting = [other for other in waiting if not _is_done(plan, other)]
            _count_left(progress, waiting, journal)
            log(f"    {progress}")
    except KeyboardInterrupt:
        progress.interrupted = True
    _count_left(progress, waiting, journal)
    return progress


def _make_fit(plan: FitPlan, key: Key, progress: Progress, log: Callable[[str], None]) -> None:
    try:
        plan.needs[key][1]()
        progress.made += 1
    except Exception as error:  # the other fits do not depend on it
        progress.failed += 1
        log(f"{key.setting}, seed {key.seed}: {type(error).__name__}: {error}")


def _is_done(plan: FitPlan, key: Key) -> bool:
    """Return whether a fit was made on the way of another, such as one whose parameters another method uses."""
    entry = plan.journal.entries.get(key)
    return entry is not None and entry.version == plan.needs[key][0]


def _count_left(progress: Progress, waiting: Iterable[Key], journal: Journal) -> None:
    estimates = [journal.estimate(key) for key in waiting]
    progress.left, progress.seconds_left = len(estimates), sum(estimates)


def replay(
    experiments: Sequence[Experiment], folder: Path, options: RunOptions | None = None, seeds: int | None = None
) -> list[TableRow]:
    """Return the rows of all measurements in the journal of a folder."""
    return _walk(experiments, Replay(options or RunOptions(), journal=Journal(folder / JOURNAL)), seeds)


def _walk(experiments: Sequence[Experiment], study: Study, seeds: int | None) -> list[TableRow]:
    """Return the rows of experiments, each with its own number of seeds unless one is given."""
    rows: list[TableRow] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # tests on rows that are not measured
        for experiment in experiments:
            count = experiment.seeds if seeds is None else seeds
            rows += experiment.run(replace(study, options=replace(study.options, seeds=count)))
    return rows


def format_seconds(seconds: float) -> str:
    """Return a time for people.

    >>> format_seconds(42), format_seconds(600), format_seconds(9000)
    ('42 s', '10 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
