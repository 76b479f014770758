"""Drawing a report: lines for figures, bars for tables."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

from labelgap.reproduce.records import Report, Row
from labelgap.runtime import optional, written_whole


def plot(report: Report, path: Path) -> None:
    """Draw each experiment of a report into one picture; matplotlib is needed."""
    optional("matplotlib", "plot")
    from matplotlib.figure import Figure

    groups = [(name, list(rows)) for name, rows in groupby(report.rows, lambda row: row.experiment)]
    if not groups:
        raise ValueError("There are no rows to draw.")
    axes_of = {experiment.name: experiment.x for experiment in report.experiments}
    figure = Figure(figsize=(7, 4.5 * len(groups)), layout="constrained")
    for ax, (name, rows) in zip(figure.subplots(len(groups), squeeze=False)[:, 0], groups):
        x = axes_of[name]
        _bars(ax, rows) if x is None else _lines(ax, rows, x)
        ax.set_title(name)
    with written_whole(path) as stream:
        figure.savefig(stream, dpi=150, format=path.suffix.lstrip(".") or "png")


def _lines(ax: Any, rows: list[Row], x: str) -> None:
    """One colour for each dataset, loss, method and metric: solid for ours, dashed for the paper's."""
    curves: dict[tuple[str, str, str, str], list[Row]] = {}
    for row in rows:
        key = (row.setting.dataset, row.setting.loss, row.setting.method, row.metric)
        curves.setdefault(key, []).append(row)
    for number, (key, curve) in enumerate(curves.items()):
        places = [getattr(row.setting, x) for row in curve]
        for values, style, who in (
            ([row.ours for row in curve], "o-", "ours"),
            ([row.paper for row in curve], "x--", "paper"),
        ):
            if any(value is not None for value in values):
                heights = [float("nan") if value is None else value for value in values]
                ax.plot(places, heights, style, color=f"C{number}", label=f"{', '.join(key)} ({who})")
    ax.set_xticks(sorted({getattr(row.setting, x) for row in rows}))
    ax.set_xlabel({"observed": "share of known cells", "k_ratio": "k / L"}.get(x, x))
    ax.set_ylabel(", ".join(dict.fromkeys(row.metric for row in rows)))
    ax.legend(fontsize="small")


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
