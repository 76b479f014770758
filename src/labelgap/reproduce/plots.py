"""Drawing a report: lines or groups of bars for figures, bars for tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from labelgap.reproduce.records import Experiment, Report, Row, Setting
from labelgap.runtime import optional, written_whole

MOST_TICKS = 8
AXES = {
    "observed": "share of known cells",
    "k_ratio": "k / L",
    "k": "dimension k",
    "clusters": "number of clusters",
    "learners": "number of learners",
    "MB": "size of the model, MB",
}


def plot(report: Report, path: Path) -> None:
    """Draw each experiment of a report into one picture, groups of bars metric by metric; matplotlib is needed."""
    optional("matplotlib", "plot")
    from matplotlib.figure import Figure

    panels = [panel for experiment in report.experiments for panel in _panels(experiment, report.rows)]
    if not panels:
        raise ValueError("There are no rows to draw.")
    figure = Figure(figsize=(7, 4.5 * len(panels)), layout="constrained")
    for ax, (name, draw) in zip(figure.subplots(len(panels), squeeze=False)[:, 0], panels):
        draw(ax)
        ax.set_title(name)
    with written_whole(path) as stream:
        figure.savefig(stream, dpi=150, format=path.suffix.lstrip(".") or "png")


def _panels(experiment: Experiment, rows: list[Row]) -> Iterator[tuple[str, Callable[[Any], None]]]:
    """Yield the title of each panel of an experiment, and what draws it."""
    rows = [row for row in rows if row.experiment == experiment.name]
    axes = experiment.x if isinstance(experiment.x, tuple) else (experiment.x,)
    shown = [row for row in rows if row.metric not in axes]
    for x in axes if rows else ():
        if x is None:
            yield experiment.name, partial(_bars, rows=shown)
        elif x == "dataset":
            for metric in dict.fromkeys(row.metric for row in shown):
                yield experiment.name, partial(_groups, rows=[row for row in shown if row.metric == metric], x=x)
        else:
            yield experiment.name, partial(_lines, rows=shown, x=x, places=_places(rows, x))


def _places(rows: list[Row], x: str) -> dict[Setting, Any]:
    """Return where a setting lies on x: one of its attributes, or what was measured of it."""
    if any(row.metric == x for row in rows):
        return {row.setting: row.ours for row in rows if row.metric == x}
    return {row.setting: getattr(row.setting, x) for row in rows}


def _lines(ax: Any, rows: list[Row], x: str, places: dict[Setting, Any]) -> None:
    """One colour for each dataset, loss, method and metric: solid for ours, dashed for the paper's."""
    curves: dict[tuple[str, str, str, str], list[Row]] = {}
    for row in rows:
        key = (row.setting.dataset, row.setting.loss, row.setting.method, row.metric)
        curves.setdefault(key, []).append(row)
    for number, (key, curve) in enumerate(curves.items()):
        for values, style, who in (
            ([row.ours for row in curve], "o-", "ours"),
            ([row.paper for row in curve], "x--", "paper"),
        ):
            if any(value is not None for value in values):
                across, heights = [places[row.setting] for row in curve], [_height(value) for value in values]
                ax.plot(across, heights, style, color=f"C{number}", label=f"{', '.join(key)} ({who})")
    if len(ticks := set(places.values())) <= MOST_TICKS:
        ax.set_xticks(sorted(ticks))
    ax.set_xlabel(AXES.get(x, x))
    ax.set_ylabel(", ".join(dict.fromkeys(row.metric for row in rows)))
    ax.legend(fontsize="small")


def _groups(ax: Any, rows: list[Row], x: str) -> None:
    """A group of bars for each place on x, one bar for each method: filled for ours, a black line for the paper's."""
    places = {place: number for number, place in enumerate(dict.fromkeys(getattr(row.setting, x) for row in rows))}
    methods = list(dict.fromkeys(row.setting.method for row in rows))
    width = 0.8 / len(methods)
    for number, method in enumerate(methods):
        mine = [row for row in rows if row.setting.method == method]
        middle = [places[getattr(row.setting, x)] + (number - (len(methods) - 1) / 2) * width for row in mine]
        ax.bar(middle, [_height(row.ours) for row in mine], 0.9 * width, color=f"C{number}", label=method)
        ax.hlines(
            [_height(row.paper) for row in mine],
            [m - width / 2 for m in middle],
            [m + width / 2 for m in middle],
            color="black",
            label=None if number else "paper",
        )
    ax.set_xticks(range(len(places)), list(places), fontsize="small")
    ax.set_yscale("log" if rows[0].metric == "seconds" else "linear")
    ax.set_ylabel(rows[0].metric)
    ax.legend(fontsize="small")


def _height(value: float | None) -> float:
    return float("nan") if value is None else value


def _bars(ax: Any, rows: list[Row]) -> None:
    """A bar for each row, as a share of the paper's number, since metrics have different scales."""
    shown = [row for row in rows if row.ours is not None and row.paper]
    places = range(len(shown))
    ax.barh(places, [row.ours / row.paper for row in shown])  # type: ignore[operator]
    ax.axvline(1.0, color="black", linestyle="--", label="paper")
    ax.set_yticks(places, [f"{row.setting}, {row.metric}" for row in shown], fontsize="x-small")
    ax.invert_yaxis()
    ax.set_xlabel("ours / paper")
    ax.legend(fontsize="small")
