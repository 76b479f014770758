"""A study makes every fit once, however many tables need it; and the experiments that most papers consist of."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import islice
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from sklearn.preprocessing import normalize

from labelgap.datasets import Dataset, Interactions, load_dataset, load_interactions
from labelgap_papers.experiments import (
    Experiment,
    Measurement,
    PublishedNumber,
    RunOptions,
    Setting,
    TableRow,
    list_experiments,
)
from labelgap_papers.journal import Journal, Key, compute_version
from labelgap_papers.paper_methods import METHODS, MethodFit, Task
from labelgap_papers.trials import CELL_SOURCES, CellSource, CellTrial, Trial, make_trial

# Fields that a task takes from its setting.
_TASK_FIELDS = ("loss", "iterations", "criteria", "dataset", "clusters", "learners")
# Rating datasets by their names in the tables; a subset must not carry the name of the full dataset.
INTERACTIONS = {"ml-100k": "ml-100k", "flixster-3000": "flixster", "douban-3000": "douban"}


@dataclass
class Study:
    """Datasets and measurements that the experiments of one run share.

    Parameters
    ----------
    options : RunOptions
        Filters and number of seeds.
    log : callable
        Receives a line of text about each fit.
    journal : Journal
        Where measurements are kept; one with a path survives the run.

    Attributes
    ----------
    unavailable : dict
        Why a dataset could not be loaded, by its name.
    """

    options: RunOptions
    log: Callable[[str], None] = lambda line: None
    journal: Journal = field(default_factory=Journal)
    unavailable: dict[str, str] = field(default_factory=dict)
    _datasets: dict[tuple[str, bool], Dataset | Interactions | CellSource] = field(default_factory=dict)

    def dataset(self, name: str, scaled: bool = True) -> Dataset | Interactions | CellSource | None:
        """Return a dataset, ratings, or a source of hidden cells; None if unavailable.

        The rows of a dataset have length one if ``scaled``.
        """
        if (name, scaled) not in self._datasets and name not in self.unavailable:
            try:
                self._datasets[name, scaled] = _load(name, scaled)
            except (OSError, ValueError) as error:
                self.unavailable[name] = str(error)
        return self._datasets.get((name, scaled))

    def compare(self, experiment: str, number: PublishedNumber) -> TableRow | None:
        """Return a published number next to ours; None if the dataset is unavailable."""
        setting = self.choose_split(number).setting
        row = TableRow(experiment, setting, number.metric, number.value)
        if setting.method not in METHODS:
            return row
        if self.dataset(setting.dataset) is None:
            return None
        measurements = self.measure_seeds(lambda seed: [self.measure(setting, seed)])
        return row.with_measurements([first for (first,) in measurements]) if measurements else None

    def choose_split(self, number: PublishedNumber) -> PublishedNumber:
        """Return the number with the split of the options, if its dataset can be split."""
        if self.options.split == "given" or number.setting.dataset in {*CELL_SOURCES, *INTERACTIONS}:
            return number
        return replace(number, setting=replace(number.setting, split="random"))

    def measure_seeds(self, measure: Callable[[int], list[Measurement]]) -> list[list[Measurement]]:
        """Return the measurements of each seed."""
        return [measure(seed) for seed in range(self.options.seeds)]

    def measure(self, setting: Setting, seed: int) -> Measurement:
        """Fit a setting and measure it on the test part; a setting that was measured before is not fitted again."""
        setting = normalize_setting(setting)
        method = METHODS[setting.method].fit
        return self.record(Key(setting, seed), method, partial(self._measure, setting, seed))[0]

    def measure_growth(self, setting: Setting, seed: int) -> list[Measurement]:
        """Fit an ensemble of ``setting.learners``, and measure the ensembles of its first 1, 2, … learners.

        Each measurement has the size of the model in "MB" in addition to the metrics of :meth:`measure`.
        """
        setting = normalize_setting(setting)
        compute = partial(self._measure, setting, seed, growing=True)
        return self.record(Key(setting, seed, "growth"), METHODS[setting.method].fit, compute, setting.learners or 1)

    def record(
        self, key: Key, method: Callable, compute: Callable[[], list[Measurement]], count: int = 1
    ) -> list[Measurement]:
        """Return the ``count`` measurements of a key, computed unless the journal has those of the current code.

        ``method`` is the function whose code decides the version of the measurements.
        """
        version = compute_version(method)
        entry = self.journal.entries.get(key)
        if entry is None or entry.version != version:
            self.journal.add(key, compute(), version)
        return self.journal.entries[key].measurements

    def _measure(self, setting: Setting, seed: int, growing: bool = False) -> list[Measurement]:
        """Fit a setting and return its measurements; those of settings that need the same fit are recorded."""
        method = METHODS[setting.method]
        source = method.find_source(setting)
        tuned_params = {} if source is None else self.measure(source, seed).params
        start = time.perf_counter()
        trial, result = self._fit(setting, seed, tuned_params)

        def measure(model: Any, of: Setting) -> Measurement:
            metrics = trial.measure(model, of) | ({"MB": compute_megabytes(model)} if growing else {})
            return Measurement(metrics, result.params, result.seconds, time.perf_counter() - start)

        if growing:
            counts = range(1, result.estimator.n_learners + 1)
            measurements = [measure(take_first_learners(result.estimator, count), setting) for count in counts]
        else:
            measurements = [measure(result.estimator, setting)]
            for twin in list_twins(setting):
                self.journal.add(Key(twin, seed), [measure(result.estimator, twin)], compute_version(method.fit))
        self._log_measurement(measurements[-1])
        return measurements

    def _fit(self, setting: Setting, seed: int, tuned_params: dict[str, Any]) -> tuple[Trial | CellTrial, MethodFit]:
        data = self.dataset(setting.dataset, METHODS[setting.method].scaled)
        assert data is not None
        self.log(f"{setting}, seed {seed} …")
        trial = make_trial(data, setting, seed)
        rank = setting.rank(trial.n_features, trial.Y.shape[1])
        shared = {name: getattr(setting, name) for name in _TASK_FIELDS}
        task = Task(trial.X, trial.Y, rank, seed=seed, row_graph=trial.row_graph, tuned_params=tuned_params, **shared)
        return trial, METHODS[setting.method].fit(task)

    def _log_measurement(self, measurement: Measurement) -> None:
        values = {k: v if isinstance(v, str) else f"{v:g}" for k, v in measurement.params.items()}
        chosen = ", ".join(f"{name} = {value}" for name, value in values.items())
        seconds = f"fit {measurement.fit_seconds:.1f} s, with validation {measurement.seconds:.1f} s"
        self.log(f"    chosen: {chosen}; {seconds}" if chosen else f"    {seconds}")


class _UnknownMetrics(dict):
    """Metrics of a fit that was not made: each is 1, with which any statistic of a table can be computed."""

    def __missing__(self, name: str) -> float:
        return 1.0


@dataclass
class FitPlan(Study):
    """A study that notes which fits its experiments need and makes them one by one, in any order.

    Attributes
    ----------
    needs : dict
        For each key the version of its method and a function that computes its measurements into the journal.
    counts : Counter
        How many published numbers need the fits of a setting.
    """

    needs: dict[Key, tuple[str, Callable[[], Any]]] = field(default_factory=dict)
    counts: Counter[Setting] = field(default_factory=Counter)
    noting: bool = True

    def compare(self, experiment: str, number: PublishedNumber) -> TableRow | None:
        """Count the number, unless it is a time or none is printed, and return a row that means nothing."""
        setting = normalize_setting(self.choose_split(number).setting)
        self.counts[setting] += number.value is not None and number.metric != "seconds"
        return super().compare(experiment, number)

    def estimate_cost(self, key: Key) -> float:
        """Return the expected seconds of a fit for each published number that needs it."""
        return self.journal.estimate(key) / max(self.counts[key.setting], 1)

    def record(
        self, key: Key, method: Callable, compute: Callable[[], list[Measurement]], count: int = 1
    ) -> list[Measurement]:
        """Note the key and return measurements that mean nothing; inside a computation, record like any study."""
        if not self.noting:
            return super().record(key, method, compute, count)
        self.needs[key] = compute_version(method), partial(self._record_now, key, method, compute)
        return [Measurement(_UnknownMetrics(), {}, 0.0, 0.0)] * count

    def _record_now(self, *arguments: Any) -> None:
        self.noting = False
        try:
            self.record(*arguments)
        finally:
            self.noting = True

    def find_missing(self) -> list[Key]:
        """Return the keys without measurements of the current code."""
        entries = self.journal.entries
        return [
            key for key, (version, _) in self.needs.items() if key not in entries or entries[key].version != version
        ]


@dataclass
class Replay(Study):
    """A study that fits nothing: its rows have the seeds that the journal holds, of any version of the code.

    It needs no datasets.
    """

    def dataset(self, name: str, scaled: bool = True) -> Dataset | Interactions | CellSource | None:
        """Return a source that is never drawn from."""
        return CellSource(lambda observed, seed: _raise_no_data(name))

    def record(
        self, key: Key, method: Callable, compute: Callable[[], list[Measurement]], count: int = 1
    ) -> list[Measurement]:
        """Return the measurements in the journal, or an empty list."""
        entry = self.journal.entries.get(key)
        if entry is None:
            return []
        current = entry.version == compute_version(method)
        return [replace(measurement, current=current) for measurement in entry.measurements]

    def measure(self, setting: Setting, seed: int) -> Measurement:
        """Return the measurement in the journal; raise LookupError if there is none."""
        try:
            return super().measure(setting, seed)
        except IndexError:
            raise LookupError(f"{setting}, seed {seed} is not measured") from None

    def measure_seeds(self, measure: Callable[[int], list[Measurement]]) -> list[list[Measurement]]:
        """Return the measurements of the seeds that are known."""
        known = []
        for seed in range(self.options.seeds):
            with suppress(LookupError):
                known.append(measure(seed))
        return [measurements for measurements in known if measurements]


def _raise_no_data(name: str) -> Any:
    raise ValueError(f"A replay does not load {name!r}.")


def normalize_setting(setting: Setting) -> Setting:
    """Return the setting whose fit several settings share.

    It has no rank if the method does not use it, and the first of the names of the method.

    >>> from labelgap_papers import list_experiments
    >>> _ = list_experiments()  # registers the methods
    >>> normalize_setting(Setting("bibtex", "OneVsAll", "squared", k=100))
    Setting(dataset='bibtex', method='1-vs-All', loss='squared', ...k=None, ...)
    """
    method = METHODS.get(setting.method)
    if method is None:
        return setting
    name = next(name for name, other in METHODS.items() if other.fit is method.fit)
    setting = replace(setting, method=name)
    return setting if method.ranked else replace(setting, k=None, k_ratio=None)


def list_twins(setting: Setting) -> list[Setting]:
    """Return the published settings that differ from a setting only in the treatment of test rows without labels."""
    other: Literal["skip", "zero"] = "zero" if setting.empty == "skip" else "skip"
    twin = replace(setting, empty=other)
    return [twin] if twin in _list_published_settings() else []


@cache
def _list_published_settings() -> frozenset[Setting]:
    numbers = (number for experiment in list_experiments().values() for number in experiment.numbers)
    return frozenset(normalize_setting(number.setting) for number in numbers)


def _load(name: str, scaled: bool) -> Dataset | Interactions | CellSource:
    if name in CELL_SOURCES:
        return CELL_SOURCES[name]()
    if name in INTERACTIONS:
        return load_interactions(INTERACTIONS[name])
    data = load_dataset(name)
    if data.X_test is None:
        raise ValueError(f"The dataset {data.name!r} was loaded without its split; the tables need its own files.")
    if not scaled:
        return data
    features: dict[str, Any] = {"X_train": normalize(data.X_train), "X_test": normalize(data.X_test)}
    return replace(data, **features)


# --- published numbers next to ours ---------------------------------------------------------------------------------


def make_comparison(
    numbers: Sequence[PublishedNumber],
    name: str,
    citation: str,
    title: str,
    *,
    x: str | tuple[str, ...] | None = None,
    notes: tuple[str, ...] = (),
    baseline: Callable[[PublishedNumber], PublishedNumber] | None = None,
) -> Experiment:
    """Return the experiment that fits the setting of each published number and shows both numbers.

    With ``baseline``, which maps a number to that of the method it is compared with, both are gains in percent.
    """

    def compare(study: Study, number: PublishedNumber) -> TableRow | None:
        row = study.compare(name, number)
        if baseline is None or row is None:
            return row
        base = study.compare(name, baseline(number))
        return None if base is None else compute_gain(row, base)

    def run(study: Study) -> Iterator[TableRow]:
        for number in numbers:
            if study.options.accepts(number.setting) and (row := compare(study, number)) is not None:
                yield row

    return Experiment(name, citation, title, run, [n.setting for n in numbers], x, notes, numbers=numbers)


def compute_gain(row: TableRow, base: TableRow) -> TableRow:
    """Return by how many percent a row exceeds another, seed by seed.

    >>> gain = compute_gain(
    ...     TableRow("x", Setting("a", "LR-wSQ", "logistic"), "P@5", 33.0, (44.0,)),
    ...     TableRow("x", Setting("a", "SQ-SQ", "squared"), "P@5", 30.0, (40.0,)),
    ... )
    >>> gain.metric, round(gain.paper, 9), round(gain.ours, 9)
    ('gain in P@5, %', 10.0, 10.0)
    """

    def percent(value: float, base_value: float) -> float:
        return 100 * (value / base_value - 1)

    return replace(
        row,
        metric=f"gain in {row.metric}, %",
        paper=None if row.paper is None or base.paper is None else percent(row.paper, base.paper),
        values=tuple(map(percent, row.values, base.values)),
        seconds=row.seconds + base.seconds,
        current=row.current and base.current,
    )


# --- ensembles of growing size --------------------------------------------------------------------------------------


def make_growth_experiment(
    settings: Sequence[Setting],
    name: str,
    citation: str,
    title: str,
    *,
    metrics: Sequence[str],
    max_learners: int,
    x: str | tuple[str, ...] = "learners",
    notes: tuple[str, ...] = (),
) -> Experiment:
    """Return the experiment that fits each ensemble once and measures its first 1, 2, …, ``max_learners`` learners.

    The rows have no published numbers.
    """

    def run(study: Study) -> Iterator[TableRow]:
        for setting in settings:
            if study.options.accepts(setting) and study.dataset(setting.dataset) is not None:
                growth = study.measure_seeds(partial(study.measure_growth, setting))
                for count, measurements in enumerate(islice(zip(*growth, strict=True), max_learners), start=1):
                    row_setting = replace(setting, learners=count)
                    for metric in metrics:
                        yield TableRow(name, row_setting, metric).with_measurements(measurements)

    return Experiment(name, citation, title, run, settings, x, notes)


def take_first_learners(estimator: Any, count: int) -> Any:
    """Return a fitted ensemble of the first learners of another; both share their arrays."""
    part = copy(estimator)
    part.n_learners, part.parts_, part.centers_ = count, estimator.parts_[:count], estimator.centers_[:count]
    return part


def compute_megabytes(estimator: Any) -> float:
    """Return the size of all arrays of a fitted estimator in 10⁶ bytes.

    >>> from labelgap import LabelKNN
    >>> model = LabelKNN(n_neighbors=1).fit(np.eye(2), np.eye(2))
    >>> model.parts_[0][0]["embedded"].nbytes + model.centers_[0].nbytes < 1e6 * compute_megabytes(model) < 200
    True
    """

    def count_bytes(value: Any) -> int:
        if sp.issparse(value):
            return value.data.nbytes + value.indices.nbytes + value.indptr.nbytes
        if isinstance(value, dict | list):
            return sum(map(count_bytes, value.values() if isinstance(value, dict) else value))
        return value.nbytes if isinstance(value, np.ndarray) else 0

    return count_bytes({name: value for name, value in vars(estimator).items() if name.endswith("_")}) / 1e6
