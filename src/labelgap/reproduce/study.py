"""A study makes each fit once, however many tables ask for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from sklearn.preprocessing import normalize

from labelgap.datasets import Dataset, Interactions, load_dataset, load_interactions
from labelgap.reproduce.ensembles import first_learners, megabytes
from labelgap.reproduce.hidden_cells import SOURCES, CellTrial, Source
from labelgap.reproduce.methods import METHODS, Fitted, Task
from labelgap.reproduce.records import Measurement, Options, Row, Setting
from labelgap.reproduce.registry import Published
from labelgap.reproduce.trials import Trial, make_trial

# Sets of ratings, by the name that tables give them: a part of a set must not pass for the set.
INTERACTIONS = {"ml-100k": "ml-100k", "flixster-3000": "flixster", "douban-3000": "douban"}


@dataclass
class Study:
    """Datasets and measurements so far, shared by the experiments of one run.

    Parameters
    ----------
    options : Options
        What to run, and over how many seeds.
    tell : callable
        Is given a line of text about each fit.
    """

    options: Options
    tell: Callable[[str], None] = lambda line: None
    unavailable: dict[str, str] = field(default_factory=dict)
    _datasets: dict[str, Dataset | Interactions | Source] = field(default_factory=dict)
    _measured: dict[tuple[Setting, int], Measurement] = field(default_factory=dict)
    _grown: dict[tuple[Setting, int], list[Measurement]] = field(default_factory=dict)

    def dataset(self, name: str) -> Dataset | Interactions | Source | None:
        """Return a dataset with rows of length one, ratings, or a source of hidden cells.

        It is ``None`` where there is none; the reason is kept.
        """
        if name not in self._datasets and name not in self.unavailable:
            try:
                self._datasets[name] = _load(name)
            except (OSError, ValueError) as error:
                self.unavailable[name] = str(error)
        return self._datasets.get(name)

    def compare(self, experiment: str, number: Published) -> Row | None:
        """Return a published number beside ours; ``None`` where the dataset is missing."""
        setting = number.setting
        row = Row(experiment, setting, number.metric, number.value)
        if setting.method not in METHODS:
            return row
        if self.dataset(setting.dataset) is None:
            return None
        return row.filled([self.measure(setting, seed) for seed in range(self.options.seeds)])

    def measure(self, setting: Setting, seed: int) -> Measurement:
        """Fit a setting and measure it on the test part, or return what an earlier call found."""
        setting = _as_fitted(setting)
        key = (setting, seed)
        if key not in self._measured:
            given = self._given(setting, seed)
            start = time.perf_counter()
            trial, fitted = self._fit(setting, seed, given)
            metrics = trial.measure(fitted.estimator, setting)
            self._measured[key] = Measurement(metrics, fitted.params, fitted.seconds, time.perf_counter() - start)
            self._tell_of(self._measured[key])
        return self._measured[key]

    def measure_growing(self, setting: Setting, seed: int) -> list[Measurement]:
        """Fit an ensemble of ``setting.learners``, and measure the ensembles of its first 1, 2, … learners.

        Beside the metrics of :meth:`measure` each has the size of its model in "MB".
        """
        setting = _as_fitted(setting)
        key = (setting, seed)
        if key not in self._grown:
            given = self._given(setting, seed)
            start, found = time.perf_counter(), []
            trial, fitted = self._fit(setting, seed, given)
            for count in range(1, fitted.estimator.n_learners + 1):
                part = first_learners(fitted.estimator, count)
                metrics = trial.measure(part, setting) | {"MB": megabytes(part)}
                found.append(Measurement(metrics, fitted.params, fitted.seconds, time.perf_counter() - start))
            self._grown[key] = found
            self._tell_of(found[-1])
        return self._grown[key]

    def _given(self, setting: Setting, seed: int) -> dict[str, Any]:
        """Return what was chosen for the method whose parameters this one is given."""
        given = METHODS[setting.method].given
        return {} if given is None else self.measure(replace(setting, method=given), seed).params

    def _fit(self, setting: Setting, seed: int, given: dict[str, Any]) -> tuple[Trial | CellTrial, Fitted]:
        data = self.dataset(setting.dataset)
        assert data is not None
        self.tell(f"{setting}, seed {seed} …")
        trial = make_trial(data, setting, seed)
        task = Task(
            trial.X,
            trial.Y,
            setting.rank(trial.n_features, trial.Y.shape[1]),
            setting.loss,
            seed,
            setting.iterations,
            setting.criteria,
            trial.row_graph,
            given,
            setting.dataset,
            setting.clusters,
            setting.learners,
        )
        return trial, METHODS[setting.method].fit(task)

    def _tell_of(self, found: Measurement) -> None:
        chosen = ", ".join(f"{name} = {_shown(value)}" for name, value in found.params.items())
        self.tell(f"    {chosen} chosen; {found.fit_seconds:.1f} s, with validation {found.seconds:.1f} s")


def _as_fitted(setting: Setting) -> Setting:
    """Return the setting without what makes no difference to a fit."""
    return setting if METHODS[setting.method].ranked else replace(setting, k=None, k_ratio=None)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _load(name: str) -> Dataset | Interactions | Source:
    if name in SOURCES:
        return SOURCES[name]()
    return load_interactions(INTERACTIONS[name]) if name in INTERACTIONS else _with_unit_rows(load_dataset(name))


def _with_unit_rows(data: Dataset) -> Dataset:
    if data.X_test is None:
        raise ValueError(f"The data set {data.name!r} was fetched without its split; tables need its own files.")
    features: dict[str, Any] = {"X_train": normalize(data.X_train), "X_test": normalize(data.X_test)}
    return replace(data, **features)
