"""The records that experiments are made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from labelgap.reproduce.registry import Published
    from labelgap.reproduce.study import Study


@dataclass(frozen=True)
class Setting:
    """What is fitted and on what; equal settings are fitted once.

    Attributes
    ----------
    dataset, method, loss : str
        "bibtex", "LEML", "squared".
    observed : float
        The share of label cells that are known, |Ω| / nL.
    k_ratio : float, optional
        The rank as a share of the labels, k / L.
    k : int, optional
        The rank itself, where the paper names it.
    iterations : int, optional
        A fixed number of alternations, where the paper names it.
    cores : int, optional
        Threads, where the paper varies them.
    criteria : tuple of str
        The metrics by which validation chooses parameters: those that the table reports.
    split : {"given", "random"}
        Train and test rows as the set comes with them, or drawn from all its rows by the seed, as many of each.
    empty : {"skip", "zero"}
        What happens to a test row without labels: it is left out, or it counts as 0.
    clusters, learners : int, optional
        The number of clusters of a learner and of learners in an ensemble, where the paper varies them.
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
        """Return k = ⌊ratio · L⌋, or the k given, but no more than min(d, L): a rank beyond it changes nothing.

        >>> Setting("bibtex", "LEML", "squared", k_ratio=0.4).rank(1836, 159)
        63
        """
        # 0.29 · 100 is 28.999…: a product that misses an integer by rounding is that integer.
        k = self.k if self.k is not None else math.floor((self.k_ratio or 1.0) * n_labels + 1e-9)
        return max(1, min(k, n_features, n_labels))

    def __str__(self) -> str:
        rank = f"k = {self.k}" if self.k is not None else "" if self.k_ratio is None else f"k/L {self.k_ratio:.0%}"
        known = "" if self.observed == 1 else f"{self.observed:.0%} known"
        counts = (_count(getattr(self, f"{noun}s"), noun) for noun in ("core", "cluster", "learner"))
        return ", ".join(part for part in (self.dataset, rank, known, self.loss, self.method, *counts) if part)


@dataclass(frozen=True)
class Measurement:
    """One fit with one seed: what it reached, what validation chose, and how long the fit and all of it took."""

    metrics: dict[str, float]
    params: dict[str, Any]
    fit_seconds: float
    seconds: float


@dataclass(frozen=True)
class Row:
    """One published number beside ours.

    ``values`` has one number for each seed, and is empty where the method is not implemented; ``seconds`` is what
    the fits of this row took, validation included; ``best`` tells whether it is among the best of its setting, where
    an experiment looks for them.
    """

    experiment: str
    setting: Setting
    metric: str
    paper: float | None = None
    values: tuple[float, ...] = ()
    params: tuple[dict[str, Any], ...] = ()
    seconds: float = 0.0
    best: bool = False

    def filled(self, found: Sequence[Measurement]) -> Row:
        """Return the row with what the fits of all seeds came to."""
        values = (m.fit_seconds if self.metric == "seconds" else m.metrics[self.metric] for m in found)
        return replace(
            self, values=tuple(values), params=tuple(m.params for m in found), seconds=sum(m.seconds for m in found)
        )

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
        """Ours less the paper's."""
        return None if self.ours is None or self.paper is None else self.ours - self.paper


@dataclass(frozen=True)
class Options:
    """What the user asked for; an empty filter lets everything through.

    >>> options = Options(datasets=("bibtex",), ratios=(0.4,))
    >>> options.keeps(Setting("bibtex", "LEML", "squared", k_ratio=0.2))
    False
    """

    datasets: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    ratios: tuple[float, ...] = ()
    observed: tuple[float, ...] = ()
    seeds: int = 1

    def keeps(self, setting: Setting) -> bool:
        """Tell whether a setting passes all filters; one without a k/L passes any filter of it."""
        return (
            (not self.datasets or setting.dataset in self.datasets)
            and (not self.losses or setting.loss in self.losses)
            and (not self.methods or setting.method in self.methods)
            and (setting.k_ratio is None or _among(setting.k_ratio, self.ratios))
            and (setting.observed == 1 or _among(setting.observed, self.observed))
        )


def quick(seeds: int = 1) -> Options:
    """Return the options of a first look: Bibtex, k = 0.4 L, 20 % of the cells known where some are missing."""
    return Options(datasets=("bibtex",), ratios=(0.4,), observed=(0.2,), seeds=seeds)


@dataclass(frozen=True)
class Experiment:
    """A published table or figure that can be run again.

    Attributes
    ----------
    name : str
        Paper and number: "leml/table-5".
    paper, title : str
        What to cite, and what it shows.
    run : callable
        Takes a :class:`labelgap.reproduce.study.Study` and yields :class:`Row` s as they are finished.
    settings : callable
        Returns every setting of the experiment, so that a filter that leaves nothing is noticed before anything runs.
    x : str or tuple of str, optional
        The attribute of a setting that a figure has on its horizontal axis: lines over numbers, groups of bars over
        "dataset"; without it a plot has a bar for each row. It may also be a metric of the experiment, and the figure
        has a picture for each of several.
    notes : tuple of str
        What a reader must know to compare.
    seeds : int
        The number of seeds unless the user asks for another.
    quick : Options
        What a first look at it is.
    numbers : sequence of Published
        What the paper prints of it.
    """

    name: str
    paper: str
    title: str
    run: Callable[[Study], Iterator[Row]]
    settings: Callable[[], list[Setting]]
    x: str | tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    seeds: int = 1
    quick: Options = field(default_factory=quick)
    numbers: Sequence[Published] = ()


@dataclass
class Report:
    """What a run brought: its rows, what a reader must know about them, and whether it was cut short."""

    experiments: list[Experiment]
    options: Options
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    interrupted: bool = False


def _count(number: int | None, noun: str) -> str:
    return "" if number is None else f"{number} {noun}{'s' * (number > 1)}"


def _among(value: float, allowed: tuple[float, ...]) -> bool:
    return not allowed or any(math.isclose(value, choice) for choice in allowed)
