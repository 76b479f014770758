"""Running experiments, and keeping what is finished when a run is cut short."""

from __future__ import annotations

import time
from collections.abc import Callable

from labelgap.reproduce.records import Experiment, Options, Report
from labelgap.reproduce.study import Study


def run(experiments: list[Experiment], options: Options, tell: Callable[[str], None] | None = None) -> Report:
    """Run experiments in one study, so that a fit which several need is made once; Ctrl-C keeps finished rows.

    Parameters
    ----------
    experiments : list of Experiment
        See :func:`labelgap.reproduce.find_experiments`.
    options : Options
        Filters and seeds.
    tell : callable, optional
        Is given a line of text about each fit.

    Raises
    ------
    ValueError
        When the filters leave nothing of an experiment.
    """
    if options.seeds < 1:
        raise ValueError(f"seeds={options.seeds} is too small; pass at least 1.")
    for experiment in experiments:
        _check_filters(experiment, options)
    study, report = Study(options, tell or (lambda line: None)), Report(experiments, options)
    start = time.perf_counter()
    try:
        for experiment in experiments:
            for row in experiment.run(study):
                report.rows.append(row)
    except KeyboardInterrupt:
        report.interrupted = True
    report.seconds = time.perf_counter() - start
    report.notes = _notes(report, study)
    return report


def _notes(report: Report, study: Study) -> list[str]:
    notes = [f"{name} is left out: {reason}" for name, reason in study.unavailable.items()]
    if report.interrupted:
        notes.append(f"Stopped early: only the {len(report.rows)} rows above were finished.")
    return notes + list(dict.fromkeys(note for experiment in report.experiments for note in experiment.notes))


def _check_filters(experiment: Experiment, options: Options) -> None:
    settings = experiment.settings()
    if any(options.keeps(setting) for setting in settings):
        return
    has = {
        "datasets": sorted({setting.dataset for setting in settings}),
        "losses": sorted({setting.loss for setting in settings}),
        "methods": sorted({setting.method for setting in settings}),
        "ratios": sorted({f"{s.k_ratio:g}" for s in settings if s.k_ratio is not None}),
        "observed": sorted({f"{s.observed:g}" for s in settings if s.observed != 1}),
    }
    parts = "; ".join(f"{name} {', '.join(values)}" for name, values in has.items() if values)
    raise ValueError(f"The filters leave nothing of {experiment.name}, which has: {parts}. Relax one of them.")
