"""Experiments as values: settings, published numbers, rows of a table, and the list of all experiments."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from labelgap_papers.study import Study

_PUBLISHED_FOLDER = files("labelgap_papers") / "published"
_SHARED_FIELDS = ("criteria", "split", "empty")  # fields of a setting that a file states once for all its numbers


@dataclass(frozen=True)
class Setting:
    """A method and the data that it is fitted on; equal settings are fitted once.

    Attributes
    ----------
    dataset, method, loss : str
        Such as "bibtex", "LEML" and "squared".
    observed : float
        Share of label cells that are known, |Ω| / nL.
    k_ratio : float, optional
        Rank as a share of the number of labels, k / L.
    k : int, optional
        Rank, if the paper states it directly.
    iterations : int, optional
        Number of alternations, if the paper fixes it.
    cores : int, optional
        Number of threads, if the paper varies it.
    criteria : tuple of str
        Metrics by which validation chooses parameters: those that the table reports.
    split : {"given", "random"}
        "given": the split that comes with the dataset. "random": a split of the same sizes, drawn by the seed.
    empty : {"skip", "zero"}
        Treatment of test rows without labels: they are left out, or they count as 0.
    clusters, learners : int, optional
        Number of clusters per learner and of learners in an ensemble, if the paper varies them.
    """

    dataset: str
    method: str
    loss: str
    observed: float = 1.0
    k_ratio: float | None = None
    k: int | None = None
    iterations: int | None = None
    cores: int | None = None
    criteria: tuple[str, ...] = ("P@3", "Hamming", "AUC")
    split: Literal["given", "random"] = "given"
    empty: Literal["skip", "zero"] = "skip"
    clusters: int | None = None
    learners: int | None = None

    def rank(self, n_features: int, n_labels: int) -> int:
        """Return ``k`` or ⌊k_ratio · L⌋, at most min(d, L): a larger rank changes nothing.

        >>> Setting("bibtex", "LEML", "squared", k_ratio=0.4).rank(1836, 159)
        63
        """
        # 0.29 · 100 is 28.999…: a product that misses an integer by rounding is that integer.
        k = self.k if self.k is not None else math.floor((self.k_ratio or 1.0) * n_labels + 1e-9)
        return max(1, min(k, n_features, n_labels))

    def __str__(self) -> str:
        rank = f"k = {self.k}" if self.k is not None else "" if self.k_ratio is None else f"k/L {self.k_ratio:.0%}"
        known = "" if self.observed == 1 else f"{self.observed:.0%} known"
        counts = [(getattr(self, f"{noun}s"), noun) for noun in ("core", "cluster", "learner")]
        words = [f"{count} {noun}{'s' * (count > 1)}" for count, noun in counts if count is not None]
        return ", ".join(part for part in (self.dataset, rank, known, self.loss, self.method, *words) if part)


@dataclass(frozen=True)
class PublishedNumber:
    """A number that a paper prints: P@k and nDCG@k in percent, Hamming loss and AUC as shares.

    ``value`` is None if the paper has no number for the setting.
    """

    table: int | str
    setting: Setting
    metric: str
    value: float | None


@dataclass(frozen=True)
class Measurement:
    """The result of one fit with one seed: metrics, chosen parameters, and seconds without and with validation.

    ``current`` is False if the code of the method has changed since.
    """

    metrics: dict[str, float]
    params: dict[str, Any]
    fit_seconds: float
    seconds: float
    current: bool = True


@dataclass(frozen=True)
class TableRow:
    """A published number next to ours.

    ``values`` has one number per seed and is empty if the method is not implemented. ``seconds`` is the time of all
    fits of this row, including validation. ``best`` marks the best rows of a setting, in experiments that mark them.
    ``current`` is False if the code of the method has changed since it was measured. ``keeps_lead`` is True if the
    row is found to lead one-vs-all by as much as the paper's.
    """

    experiment: str
    setting: Setting
    metric: str
    paper: float | None = None
    values: tuple[float, ...] = ()
    params: tuple[dict[str, Any], ...] = ()
    seconds: float = 0.0
    best: bool = False
    current: bool = True
    keeps_lead: bool = False

    def with_measurements(self, measurements: Sequence[Measurement]) -> TableRow:
        """Return the row with the measurements of all seeds."""
        values = (m.fit_seconds if self.metric == "seconds" else m.metrics[self.metric] for m in measurements)
        params, seconds = tuple(m.params for m in measurements), sum(m.seconds for m in measurements)
        current = all(m.current for m in measurements)
        return replace(self, values=tuple(values), params=params, seconds=seconds, current=current)

    @property
    def ours(self) -> float | None:
        """The mean over seeds."""
        return fmean(self.values) if self.values else None

    @property
    def spread(self) -> float | None:
        """The standard deviation over seeds."""
        return pstdev(self.values) if len(self.values) > 1 else None

    @property
    def difference(self) -> float | None:
        """Our number minus the paper's."""
        return None if self.ours is None or self.paper is None else self.ours - self.paper


@dataclass(frozen=True)
class RunOptions:
    """Filters of settings and the number of seeds; an empty filter accepts every setting.

    With ``split="random"``, datasets with a split of their own are split at random, by each seed anew.

    >>> options = RunOptions(datasets=("bibtex",), ratios=(0.4,))
    >>> options.accepts(Setting("bibtex", "LEML", "squared", k_ratio=0.2))
    False
    """

    datasets: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    ratios: tuple[float, ...] = ()
    observed: tuple[float, ...] = ()
    seeds: int = 1
    split: Literal["given", "random"] = "given"

    def accepts(self, setting: Setting) -> bool:
        """Return whether a setting passes all filters; a setting without k/L passes every filter of k/L."""

        def is_among(value: float, choices: tuple[float, ...]) -> bool:
            return not choices or any(math.isclose(value, choice) for choice in choices)

        return (
            (not self.datasets or setting.dataset in self.datasets)
            and (not self.losses or setting.loss in self.losses)
            and (not self.methods or setting.method in self.methods)
            and (setting.k_ratio is None or is_among(setting.k_ratio, self.ratios))
            and (setting.observed == 1 or is_among(setting.observed, self.observed))
        )


QUICK_OPTIONS = RunOptions(datasets=("bibtex",), ratios=(0.4,), observed=(0.2,))


@dataclass(frozen=True)
class Experiment:
    """A published table or figure that can be run again.

    Attributes
    ----------
    name : str
        Paper and number, such as "leml/table-5".
    paper, title : str
        The citation, and what the table shows.
    run : callable
        Takes a :class:`labelgap_papers.study.Study` and yields each :class:`TableRow` when it is finished.
    settings : sequence of Setting
        All settings of the experiment; filters are checked against them before anything runs.
    x : str or tuple of str, optional
        Horizontal axis of the figure: an attribute of a setting or a metric of the experiment. Numbers are drawn as
        lines, "dataset" as groups of bars, several axes as several panels. Default: one bar per row.
    notes : tuple of str
        Remarks that a reader needs to compare the numbers.
    seeds : int
        Default number of seeds.
    quick : RunOptions
        Options of ``--quick``.
    numbers : sequence of PublishedNumber
        The paper's numbers.
    """

    name: str
    paper: str
    title: str
    run: Callable[[Study], Iterator[TableRow]]
    settings: Sequence[Setting]
    x: str | tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    seeds: int = 1
    quick: RunOptions = QUICK_OPTIONS
    numbers: Sequence[PublishedNumber] = ()


@dataclass
class Report:
    """The rows of a run, notes about them, and whether the run was interrupted."""

    experiments: list[Experiment]
    options: RunOptions
    rows: list[TableRow] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    interrupted: bool = False


# --- the files of published numbers and the modules that belong to them ---------------------------------------------


@cache
def read_published(paper: str) -> tuple[str, tuple[PublishedNumber, ...]]:
    """Return the citation and all numbers of a paper.

    >>> citation, numbers = read_published("leml")
    >>> numbers[0].setting.dataset, numbers[0].metric, numbers[0].value
    ('bibtex', 'P@3', 34.16)
    """
    content = json.loads((_PUBLISHED_FOLDER / f"{paper}.json").read_text(encoding="utf-8"))
    shared = {name: content[name] for name in _SHARED_FIELDS if name in content}
    if "criteria" in shared:
        shared["criteria"] = tuple(shared["criteria"])

    def parse_number(record: dict[str, Any]) -> PublishedNumber:
        own = {name: record.pop(name) for name in ("table", "metric", "value")}
        return PublishedNumber(setting=Setting(**record, **shared), **own)

    return content["paper"], tuple(map(parse_number, content["records"]))


def read_elsewhere() -> Iterator[tuple[str, str, float | None]]:
    """Yield paper, dataset and value of each published number whose dataset cannot be had.

    A file of the folder "elsewhere" has the tables of a paper as the paper prints them: rows of a table are records
    with its number, dataset, method, metric and value, and whatever else tells them apart.
    """
    folder = _PUBLISHED_FOLDER / "elsewhere"
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name) if folder.is_dir() else ():
        for record in json.loads(entry.read_text(encoding="utf-8"))["records"]:
            yield entry.name.removesuffix(".json"), record["dataset"], record["value"]


@cache
def list_experiments() -> dict[str, Experiment]:
    """Return all experiments by name.

    >>> list_experiments()["leml/table-5"].title
    'Missing labels: 20 % of the cells known, k = 0.4 L, squared loss'
    """
    names = sorted(entry.name for entry in _PUBLISHED_FOLDER.iterdir())
    papers = [name.removesuffix(".json") for name in names if name.endswith(".json")]
    modules = [importlib.import_module(f"labelgap_papers.{paper}_tables") for paper in papers]
    return {experiment.name: experiment for module in modules for experiment in module.EXPERIMENTS}


def find_experiments(names: list[str]) -> list[Experiment]:
    """Return the experiments with these names, without duplicates.

    >>> find_experiments(["leml/table-99"])
    Traceback (most recent call last):
    ...
    ValueError: Unknown experiment 'leml/table-99'; choose from `labelgap reproduce --list`: leml/table-3, ...
    """
    experiments = list_experiments()
    for name in names:
        if name not in experiments:
            choices = ", ".join(experiments)
            raise ValueError(f"Unknown experiment {name!r}; choose from `labelgap reproduce --list`: {choices}.")
    return [experiments[name] for name in dict.fromkeys(names)]
