"""Reports of a run: tables on the terminal, a JSON file, a picture; and a page that summarises all JSON files.

:mod:`labelgap_papers.shortfalls` says which published numbers are reached, and why the others are not.
"""

from __future__ import annotations

import json
import platform
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from functools import partial
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labelgap import __version__
from labelgap.runtime import available_cores, import_optional, write_atomically
from labelgap_papers.experiments import (
    Experiment,
    PublishedNumber,
    Report,
    RunOptions,
    Setting,
    TableRow,
    list_experiments,
    read_elsewhere,
)
from labelgap_papers.journal import compute_version
from labelgap_papers.paper_methods import METHODS
from labelgap_papers.run_all import JOURNAL, format_seconds, replay
from labelgap_papers.shortfalls import (
    REASONS,
    ROUNDING,
    SHORTFALLS,
    Explainer,
    Shortfall,
    count_spreads,
    find_shortfall,
    index_splits,
    is_comparable,
    read_reasons,
    write_shortfalls,
)
from labelgap_papers.study import normalize_setting

if TYPE_CHECKING:
    from rich.console import Console

_LIBRARIES = ("numpy", "scipy", "numba", "scikit-learn")


# --- tables on the terminal -----------------------------------------------------------------------------------------


def print_report(report: Report, console: Console) -> None:
    """Print one table per experiment, then the notes."""
    from rich.table import Table

    titles = {experiment.name: f"{experiment.name}: {experiment.title}" for experiment in report.experiments}
    for name, rows in groupby(report.rows, lambda row: row.experiment):
        table = Table(title=titles[name], title_justify="left")
        table.add_column("setting", overflow="fold")
        table.add_column("metric", overflow="fold")
        for column in ("paper", "ours", "difference"):
            table.add_column(column, justify="right", no_wrap=column != "ours")
        for row in rows:
            table.add_row(str(row.setting), row.metric, *_format_numbers(row))
        console.print(table)
    seeds = report.options.seeds
    console.print(f"{len(report.rows)} rows, {seeds} seed{'s' * (seeds > 1)}, {report.seconds:.0f} s.")
    for note in report.notes:
        console.print(f"- {note}", highlight=False)


def _format_numbers(row: TableRow) -> tuple[str, str, str]:
    digits = 4 if row.metric in ("Hamming", "AUC") else 2
    paper, ours, spread, difference = (
        "–" if value is None else f"{value:.{digits}f}" for value in (row.paper, row.ours, row.spread, row.difference)
    )
    if row.ours is None:
        ours = "not implemented"
    elif row.spread is not None:
        ours += f" ± {spread}"
    sign = "+" if row.difference is not None and row.difference > 0 else ""
    return paper, ours + " *" * row.best, sign + difference


# --- the JSON file --------------------------------------------------------------------------------------------------


def report_to_dict(report: Report, command: list[str]) -> dict[str, Any]:
    """Return a report as JSON values: the command, the versions, the machine, and every row."""
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
        "rows": [_row_to_dict(row) for row in report.rows],
    }


def _row_to_dict(row: TableRow) -> dict[str, Any]:
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
        "version": _find_version(row.setting),
    }


def _find_version(setting: Setting) -> str | None:
    """Return the version of the code of a setting's method; None if it is not a registered one."""
    method = METHODS.get(setting.method)
    return None if method is None else compute_version(method.fit)


def _row_from_dict(record: dict[str, Any]) -> TableRow:
    setting = {field.name: record[field.name] for field in fields(Setting)}
    setting["criteria"] = tuple(setting["criteria"])
    row = TableRow(record["experiment"], Setting(**setting), record["metric"], record["paper"])
    values, params = tuple(record["values"]), tuple(record["params"])
    current = record.get("version") == _find_version(row.setting)
    return replace(row, values=values, params=params, seconds=record["seconds"], current=current)


def write_json(report: Report, command: list[str], path: Path) -> None:
    """Write a report as JSON; an interrupted write leaves no partial file."""
    text = json.dumps(report_to_dict(report, command), indent=1, ensure_ascii=False)
    with write_atomically(path) as stream:
        stream.write(f"{text}\n".encode())


def read_rows(folder: Path) -> list[TableRow]:
    """Return the rows of the journal and of all result files in a folder.

    Of duplicates, the row of the current code counts, and among those the one with the most seeds.
    """
    return _keep_best([*read_files(folder), *replay(list(list_experiments().values()), folder, seeds=MAX_SEEDS)])


def _keep_best(rows: Iterable[TableRow]) -> list[TableRow]:
    best: dict[tuple, TableRow] = {}
    for row in rows:
        key = (row.experiment, row.setting, row.metric)
        if row.values and (key not in best or _rank_row(row) >= _rank_row(best[key])):
            best[key] = row
    return list(best.values())


def _rank_row(row: TableRow) -> tuple[bool, int]:
    return row.current, len(row.values)


def read_files(folder: Path) -> Iterator[TableRow]:
    """Yield the rows of all files that ``--json`` wrote into a folder."""
    for path in sorted(folder.glob("*.json")):
        try:
            rows = [_row_from_dict(record) for record in json.loads(path.read_text(encoding="utf-8"))["rows"]]
        except (KeyError, TypeError, ValueError) as error:
            message = f"{path} is not a file of results ({error!r}); pass a folder of files that --json wrote."
            raise ValueError(message) from error
        yield from rows


# --- the summary of a folder of JSON files --------------------------------------------------------------------------

ONE_VS_ALL = ("1-vs-All", "OneVsAll", "BR")
# P@1, P@3 and P@5 of the one-vs-all of napkinXC with its defaults, over the test rows that have labels.
PEER = {"bibtex": (63.4, 39.2, 28.7), "delicious": (66.6, 60.0, 55.4), "mediamill": (85.8, 68.9, 54.0)}
PEER |= {"eurlex": (82.3, 68.8, 57.4)}
PEER_TOLERANCE = 0.5
SHARE_WITH_LABELS = {"mediamill": 0.958}  # of the test rows; in the other datasets close to 1
MAX_SEEDS = 10  # that count, of those that the journal has; each draws another split if splits are random
TOTAL = re.compile(r"^Of [\d,]+ published numbers .*$", re.MULTILINE)
README_MARKS = re.compile("(<!-- papers -->)(.*?)(<!-- /papers -->)", re.DOTALL)
_HEADER = """# The papers' numbers and ours

`labelgap reproduce --all --folder {folder}` makes every missing fit, cheapest per number first, and writes this page;
`--summary {folder}` only writes the page. The numbers are in `{journal}`, a line for each fit with its parameters,
seconds and version of the code, and in the JSON files that `labelgap reproduce … --json` wrote.

A number is *reached* if ours is at least as good, within a tolerance of one point of P@k and nDCG@k, 0.01 of AUC,
5 % of a Hamming loss, 1.5 points of label error and 0.03 of imputation error; or, for P@k with all labels known, if
it leads our one-vs-all by as much as the paper's leads the one-vs-all of the same table, and ours is at most 0.5
below napkinXC's. Seconds depend on the machine and are not compared. Parameters are chosen on training data only.
*Older code*: measured before the last change to the method, and not since.

A number that is not reached is *explained* if ours reaches it on the mean of random splits of the same sizes (the
papers used other splits), if it is at most two standard deviations of a difference away from ours over ten draws or
more, if the paper contradicts itself, or if an experiment of `{reasons}` says why. `{shortfalls}` has a line for
each.

{total}

| experiment | shows | numbers | measured | older code | reached | others explained | time |
|---|---|---|---|---|---|---|---|
"""

_SHORTFALLS_HEADER = """| | | numbers | explained | worse by | why |
|---|---|---|---|---|---|
"""
# The kinds of reasons from an experiment, and the others, in the words of the sentence about all numbers.
_EXPLAINED = {
    "random splits": "reached on random splits of the same sizes",
    "spread": "within two standard deviations over ten draws",
    "inconsistent": "contradicted by another number of the paper",
    "experiment": "by what was tried",
}
_UNEXPLAINED = {"stated": "with a reason that no experiment shows", "none": "not explained"}


FIGURES = "figures.svg"
_FIGURES_SECTION = """
## Figures

The papers' figures from the same numbers, ours solid and the paper's dashed or as black lines
(`labelgap reproduce --summary {folder} --plot {folder}/{figures}`):

![The figures of the papers]({figures})
"""
_ELSEWHERE_HEADER = """
## Numbers of datasets that cannot be had

{total:,} further published numbers are of datasets without a public source in the form that the papers used. They are
recorded in `published/elsewhere` of the papers' package and do not count above.

| paper | dataset | numbers |
|---|---|---|
"""


def write_summary(folder: Path) -> Path:
    """Write the summary of a folder of results to its README.md, and return the path of that file.

    A line for each number that is not reached goes to ``shortfalls.jsonl``. The README.md two folders above gets its
    sentence about all numbers, if it has marks for it.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"--summary {folder} is not a folder; pass one with files that --json wrote.")
    experiments, options = list(list_experiments().values()), RunOptions(split="random")
    splits = index_splits(replay(experiments, folder, options, seeds=MAX_SEEDS))
    rows = place_rows(read_rows(folder))
    shortfalls = Explainer(splits, read_reasons(folder), rows).find_all()
    path, text = folder / "README.md", summarize(rows, shortfalls, folder.as_posix())
    if (folder / FIGURES).is_file():
        text += _FIGURES_SECTION.format(folder=folder.as_posix(), figures=FIGURES)
    with write_atomically(path) as stream:
        stream.write(text.encode())
    write_shortfalls(shortfalls, folder)
    _update_readme(path.resolve(), text)
    return path


def shorten_total(total: str) -> str:
    """Return the sentence about all numbers without the kinds of explanations.

    >>> shorten_total("Of the other 3, an experiment explains 2: 2 reached on random splits; 1 not explained.")
    'Of the other 3, an experiment explains 2.'
    """
    head, colon, _ = total.partition(": ")
    return f"{head}." if colon else total


def _update_readme(page: Path, text: str) -> None:
    """Put the sentence about all numbers between the marks of the README above the page, if it has them."""
    readme, (total,) = page.parents[2] / "README.md", TOTAL.findall(text)
    content = readme.read_text(encoding="utf-8") if readme.is_file() else ""
    link = f"[reached]({page.relative_to(readme.parent).as_posix()})"
    sentence = total[0].lower() + shorten_total(total)[1:].replace("reached", link, 1)
    updated = README_MARKS.sub(lambda marks: f"{marks[1]}{sentence}{marks[3]}", content)
    if updated != content:
        with write_atomically(readme) as stream:
            stream.write(updated.encode())


def summarize(rows: Sequence[TableRow], shortfalls: Sequence[Shortfall], folder: str = "FOLDER") -> str:
    """Return the summary page in Markdown: counts per experiment, then the numbers that are not reached.

    ``rows`` are those of :func:`place_rows`, and ``shortfalls`` those among them that are not reached.
    """
    experiments, numbers_of = list_experiments().values(), _list_comparable()
    lines, sections = [], []
    for experiment in experiments:
        measured = [row for row in rows if row.experiment == experiment.name]
        missed = [shortfall for shortfall in shortfalls if shortfall.row.experiment == experiment.name]
        lines.append(_summarize_experiment(experiment, numbers_of[experiment.name], measured, missed))
        sections.append(_list_shortfalls(missed))
    published = sum(map(len, numbers_of.values()))
    total = format_total(published, len(rows), shortfalls)
    header = _HEADER.format(folder=folder, journal=JOURNAL, reasons=REASONS, shortfalls=SHORTFALLS, total=total)
    lines.append(f"| **all** | | {_format_counts(published, rows, shortfalls)} |")
    return header + "\n".join(lines) + "\n" + "".join(sections) + _list_elsewhere()


def _list_comparable() -> dict[str, list[PublishedNumber]]:
    """Return the numbers of each experiment that can be compared."""
    return {
        name: [n for n in experiment.numbers if n.value is not None and is_comparable(n.metric)]
        for name, experiment in list_experiments().items()
    }


def place_rows(rows: Sequence[TableRow]) -> list[TableRow]:
    """Return a measured row for each published number that can be compared, and mark those that keep their lead."""
    numbers_of = _list_comparable()
    measured = _mark_leads(_keep_best([*_share_rows(rows, numbers_of), *rows]))
    published = {(name, n.setting, n.metric) for name, numbers in numbers_of.items() for n in numbers}
    return [row for row in measured if (row.experiment, row.setting, row.metric) in published]


def _share_rows(rows: Iterable[TableRow], numbers_of: dict[str, list[PublishedNumber]]) -> Iterator[TableRow]:
    """Yield each row once more for every number of another experiment that is of the same fit and metric."""
    places: dict[tuple[Setting, str], list[tuple[str, PublishedNumber]]] = {}
    for name, numbers in numbers_of.items():
        for number in numbers:
            places.setdefault((normalize_setting(number.setting), number.metric), []).append((name, number))
    for row in rows:
        for name, number in places.get((normalize_setting(row.setting), row.metric), ()):
            if name != row.experiment:
                yield replace(row, experiment=name, setting=number.setting, paper=number.value)


def _mark_leads(rows: Sequence[TableRow]) -> Iterator[TableRow]:
    """Yield the rows; those that keep their published lead over the one-vs-all of their table are marked."""

    def place(row: TableRow) -> tuple:
        return row.experiment, row.setting.dataset, row.setting.empty, row.metric

    references = {place(row): row for row in rows if row.setting.method in ONE_VS_ALL and _is_as_good_as_peer(row)}
    for row in rows:
        base = references.get(place(row))
        if base is not None and row.setting.method not in ONE_VS_ALL and row.setting.observed == 1 and row.paper:
            lead, published = (row.ours or 0.0) - (base.ours or 0.0), row.paper - (base.paper or 0.0)
            row = replace(row, keeps_lead=base.paper is not None and lead >= published - ROUNDING)
        yield row


def _is_as_good_as_peer(row: TableRow) -> bool:
    """Return whether a row with all labels known is at most half a point below napkinXC's one-vs-all."""
    peer = dict(zip(("P@1", "P@3", "P@5"), PEER.get(row.setting.dataset, ()), strict=False))
    if row.metric not in peer or row.ours is None or row.setting.observed < 1:
        return False
    share = SHARE_WITH_LABELS.get(row.setting.dataset, 1.0) if row.setting.empty == "zero" else 1.0
    return row.ours >= share * (peer[row.metric] - PEER_TOLERANCE) - ROUNDING


def format_total(published: int, measured: int, shortfalls: Sequence[Shortfall] = ()) -> str:
    """Return one sentence about all numbers whose data are at hand, and one about those that are not reached.

    >>> format_total(4, 0)
    'Of 4 published numbers whose data are at hand, 0 were measured (0 %).'
    """
    total = f"Of {published:,} published numbers whose data are at hand, {measured:,} were measured"
    total += f" ({100 * measured / published:.0f} %)"
    if not measured:
        return total + "."
    n_reached = measured - len(shortfalls)
    total += f", and {n_reached:,} of these are reached ({100 * n_reached / measured:.0f} %)."
    if not shortfalls:
        return total
    kinds = Counter(shortfall.kind for shortfall in shortfalls)
    explained = sum(shortfall.is_explained for shortfall in shortfalls)

    def describe(texts: dict[str, str]) -> str:
        return ", ".join(f"{kinds[kind]} {text}" for kind, text in texts.items() if kinds[kind])

    parts = [f"an experiment explains {explained}: {describe(_EXPLAINED)}", describe(_UNEXPLAINED)]
    return f"{total} Of the other {len(shortfalls)}, {'; '.join(filter(None, parts))}."


def _summarize_experiment(
    experiment: Experiment,
    numbers: Sequence[PublishedNumber],
    rows: Sequence[TableRow],
    shortfalls: Sequence[Shortfall],
) -> str:
    nothing = "– | – | – | the paper prints no numbers | | "
    counts = _format_counts(len(numbers), rows, shortfalls) if numbers else nothing
    return f"| {experiment.name} | {experiment.title} | {counts} |"


def _format_counts(published: int, rows: Sequence[TableRow], shortfalls: Sequence[Shortfall]) -> str:
    n_reached, n_old = len(rows) - len(shortfalls), sum(not row.current for row in rows)
    share = f"{n_reached} ({n_reached / len(rows):.0%})" if rows else "not measured"
    n_explained = sum(shortfall.is_explained for shortfall in shortfalls)
    explained = f"{n_explained} of {len(shortfalls)}" if shortfalls else ""
    return f"{published} | {len(rows)} | {n_old or ''} | {share} | {explained} | {_sum_seconds(rows)}"


def _sum_seconds(rows: Sequence[TableRow]) -> str:
    """Return the time of all fits; the rows of a setting share theirs."""
    seconds = {row.setting: row.seconds for row in rows}
    return format_seconds(sum(seconds.values())) if any(seconds.values()) else ""


def _list_shortfalls(shortfalls: Sequence[Shortfall]) -> str:
    """Return a section with the missed numbers of an experiment by method and dataset, and why; empty if none."""

    def method_and_dataset(shortfall: Shortfall) -> tuple[str, str]:
        return shortfall.row.setting.method, shortfall.row.setting.dataset

    if not shortfalls:
        return ""
    section = f"\n## {shortfalls[0].row.experiment}: numbers not reached\n\n{_SHORTFALLS_HEADER}"
    for (method, dataset), missed in groupby(sorted(shortfalls, key=method_and_dataset), method_and_dataset):
        group = list(missed)
        worst = max((shortfall.row for shortfall in group), key=_compute_share)
        counts = f"{len(group)} | {sum(shortfall.is_explained for shortfall in group)}"
        worse = f"up to {find_shortfall(worst):.4g} ({worst.metric})"
        section += f"| {method} | {dataset} | {counts} | {worse} | {_describe_group(group)} |\n"
    return section


def _compute_share(row: TableRow) -> float:
    """Return the shortfall of a row as a share of the paper's number."""
    return find_shortfall(row) / abs(row.paper or 1.0)


def _describe_group(group: Sequence[Shortfall]) -> str:
    """Return how many numbers have which reason."""
    texts: dict[str, list[Shortfall]] = {}
    texts_of_kinds = _EXPLAINED | _UNEXPLAINED
    for shortfall in group:
        texts.setdefault(shortfall.why or texts_of_kinds[shortfall.kind], []).append(shortfall)
    parts = [f"{len(members)}: {text}{_describe_worst(members)}" for text, members in texts.items()]
    return "; ".join(parts)


def _describe_worst(shortfalls: Sequence[Shortfall]) -> str:
    """Return the worst row on random splits, or over ten draws, of a group with the same reason; empty if none."""
    drawn = [shortfall.split or shortfall.row for shortfall in shortfalls]
    drawn = [row for row in drawn if row.setting.split == "random" or count_spreads(row) is not None]
    if not drawn:
        return ""
    worst = max(drawn, key=_compute_share)
    paper, ours, _ = _format_numbers(worst)
    what = f"{len(worst.values)} {'random split' if worst.setting.split == 'random' else 'draw'}"
    spreads = count_spreads(worst)
    away = f", {spreads:.1f} standard deviations away" if spreads is not None else ""
    return f" ({what}{'s' * (len(worst.values) > 1)}: {worst.metric} {ours}, paper {paper}{away})"


def _list_elsewhere() -> str:
    """Return a section about the published numbers of datasets that cannot be had."""
    counts: dict[tuple[str, str], int] = {}
    for paper, dataset, number in read_elsewhere():
        counts[paper, dataset] = counts.get((paper, dataset), 0) + (number is not None)
    if not counts:
        return ""
    lines = [f"| {paper} | {dataset} | {count} |" for (paper, dataset), count in counts.items()]
    return _ELSEWHERE_HEADER.format(total=sum(counts.values())) + "\n".join(lines) + "\n"


# --- pictures -------------------------------------------------------------------------------------------------------

MAX_TICKS = 8
AXIS_LABELS = {
    "observed": "share of known cells",
    "k_ratio": "k / L",
    "k": "dimension k",
    "clusters": "number of clusters",
    "learners": "number of learners",
    "MB": "size of the model, MB",
}


def plot_report(report: Report, path: Path) -> None:
    """Draw the experiments of a report into one picture: lines or groups of bars for figures, bars for tables."""
    import_optional("matplotlib", "plot")
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    panels = [panel for experiment in report.experiments for panel in _make_panels(experiment, report.rows)]
    if not panels:
        raise ValueError("There are no rows to draw.")
    figure = Figure(figsize=(7, 4.5 * len(panels)), layout="constrained")
    for ax, (name, draw) in zip(figure.subplots(len(panels), squeeze=False)[:, 0], panels):
        draw(ax)
        ax.set_title(name)
    kind = path.suffix.lstrip(".") or "png"
    with write_atomically(path) as stream, rc_context({"svg.hashsalt": "labelgap"}):  # equal rows give equal files
        figure.savefig(stream, dpi=150, format=kind, metadata={"Date": None} if kind == "svg" else None)


def _make_panels(experiment: Experiment, rows: list[TableRow]) -> Iterator[tuple[str, Callable[[Any], None]]]:
    """Yield the title of each panel of an experiment and the function that draws it."""
    rows = [row for row in rows if row.experiment == experiment.name]
    axes = experiment.x if isinstance(experiment.x, tuple) else (experiment.x,)
    shown = [row for row in rows if row.metric not in axes]
    for x in axes if rows else ():
        if x is None:
            yield experiment.name, partial(_draw_bars, rows=shown)
        elif x == "dataset":
            for metric in dict.fromkeys(row.metric for row in shown):
                yield experiment.name, partial(_draw_groups, rows=[row for row in shown if row.metric == metric], x=x)
        else:
            yield experiment.name, partial(_draw_lines, rows=shown, x=x, positions=_find_positions(rows, x))


def _find_positions(rows: list[TableRow], x: str) -> dict[Setting, Any]:
    """Return the position of each setting on the axis x: one of its attributes, or a metric of the experiment."""
    if any(row.metric == x for row in rows):
        return {row.setting: row.ours for row in rows if row.metric == x}
    return {row.setting: getattr(row.setting, x) for row in rows}


def _draw_lines(ax: Any, rows: list[TableRow], x: str, positions: dict[Setting, Any]) -> None:
    """Draw one colour per dataset, loss, method and metric: solid for ours, dashed for the paper's."""
    curves: dict[tuple[str, str, str, str], list[TableRow]] = {}
    for row in rows:
        key = (row.setting.dataset, row.setting.loss, row.setting.method, row.metric)
        curves.setdefault(key, []).append(row)
    for number, (key, curve) in enumerate(curves.items()):
        for values, style, source in (
            ([row.ours for row in curve], "o-", "ours"),
            ([row.paper for row in curve], "x--", "paper"),
        ):
            if any(value is not None for value in values):
                across, heights = [positions[row.setting] for row in curve], [_nan_if_none(value) for value in values]
                ax.plot(across, heights, style, color=f"C{number}", label=f"{', '.join(key)} ({source})")
    if len(ticks := set(positions.values())) <= MAX_TICKS:
        ax.set_xticks(sorted(ticks))
    ax.set_xlabel(AXIS_LABELS.get(x, x))
    ax.set_ylabel(", ".join(dict.fromkeys(row.metric for row in rows)))
    ax.legend(fontsize="small")


def _draw_groups(ax: Any, rows: list[TableRow], x: str) -> None:
    """Draw a group of bars per position on x and a bar per method: filled for ours, a black line for the paper's."""
    values = dict.fromkeys(getattr(row.setting, x) for row in rows)
    positions = {value: number for number, value in enumerate(values)}
    methods = list(dict.fromkeys(row.setting.method for row in rows))
    width = 0.8 / len(methods)
    for number, method in enumerate(methods):
        bars = [row for row in rows if row.setting.method == method]
        middle = [positions[getattr(row.setting, x)] + (number - (len(methods) - 1) / 2) * width for row in bars]
        ax.bar(middle, [_nan_if_none(row.ours) for row in bars], 0.9 * width, color=f"C{number}", label=method)
        ax.hlines(
            [_nan_if_none(row.paper) for row in bars],
            [m - width / 2 for m in middle],
            [m + width / 2 for m in middle],
            color="black",
            label=None if number else "paper",
        )
    ax.set_xticks(range(len(positions)), list(positions), fontsize="small")
    ax.set_yscale("log" if rows[0].metric == "seconds" else "linear")
    ax.set_ylabel(rows[0].metric)
    ax.legend(fontsize="small")


def _nan_if_none(value: float | None) -> float:
    return float("nan") if value is None else value


def _draw_bars(ax: Any, rows: list[TableRow]) -> None:
    """Draw a bar per row, as a share of the paper's number, since metrics have different scales."""
    shown = [row for row in rows if row.ours is not None and row.paper]
    positions = range(len(shown))
    ax.barh(positions, [row.ours / row.paper for row in shown])  # type: ignore[operator]
    ax.axvline(1.0, color="black", linestyle="--", label="paper")
    ax.set_yticks(positions, [f"{row.setting}, {row.metric}" for row in shown], fontsize="x-small")
    ax.invert_yaxis()
    ax.set_xlabel("ours / paper")
    ax.legend(fontsize="small")
