"""A study makes each fit once, however many tables ask for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from sklearn.preprocessing import normalize

from labelgap.datasets import Dataset, load_dataset
from labelgap.metrics import HammingLoss, InstanceAUC, Metric, PrecisionAtK, evaluate
from labelgap.model_selection import score_batches
from labelgap.observations import Labels, as_labels, hide_cells
from labelgap.reproduce.methods import METHODS, Task
from labelgap.reproduce.records import Measurement, Options, Row, Setting
from labelgap.reproduce.registry import Published

METRICS: dict[str, Metric] = {
    "P@1": PrecisionAtK(1),
    "P@3": PrecisionAtK(3),
    "P@5": PrecisionAtK(5),
    "Hamming": HammingLoss(),
    "AUC": InstanceAUC(),
}


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
    _datasets: dict[str, Dataset] = field(default_factory=dict)
    _measured: dict[tuple[Setting, int], Measurement] = field(default_factory=dict)

    def dataset(self, name: str) -> Dataset | None:
        """Return a dataset with rows of length one, or ``None`` where it cannot be had; the reason is kept."""
        if name not in self._datasets and name not in self.unavailable:
            try:
                self._datasets[name] = _with_unit_rows(load_dataset(name))
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
        found = [self.measure(setting, seed) for seed in range(self.options.seeds)]
        values = tuple(m.fit_seconds if number.metric == "seconds" else m.metrics[number.metric] for m in found)
        return replace(
            row, values=values, params=tuple(m.params for m in found), seconds=sum(m.seconds for m in found)
        )

    def measure(self, setting: Setting, seed: int) -> Measurement:
        """Fit a setting and measure it on the test rows, or return what an earlier call found."""
        if not METHODS[setting.method].ranked:
            setting = replace(setting, k=None, k_ratio=None)
        key = (setting, seed)
        if key not in self._measured:
            self.tell(f"{setting}, seed {seed} …")
            found = self._measured[key] = self._measure(setting, seed)
            chosen = ", ".join(f"{name} = {value:g}" for name, value in found.params.items())
            self.tell(f"    {chosen} chosen; {found.fit_seconds:.1f} s, with validation {found.seconds:.1f} s")
        return self._measured[key]

    def _measure(self, setting: Setting, seed: int) -> Measurement:
        data = self.dataset(setting.dataset)
        assert data is not None
        start = time.perf_counter()
        rank = setting.rank(data.n_features, data.n_labels)
        labels = known_labels(data, setting, seed)
        task = Task(data.X_train, labels, rank, setting.loss, seed, setting.iterations, setting.criteria)
        fitted = METHODS[setting.method].fit(task)
        metrics = evaluate(METRICS, score_batches(fitted.estimator, data.X_test, as_labels(data.Y_test)))
        metrics = {name: 100 * value if "@" in name else value for name, value in metrics.items()}
        return Measurement(metrics, fitted.params, fitted.seconds, time.perf_counter() - start)


def known_labels(data: Dataset, setting: Setting, seed: int) -> Labels:
    """Return the training labels with the gaps of the setting; the seed draws them."""
    if setting.observed == 1:
        return as_labels(data.Y_train)
    return hide_cells(data.Y_train, setting.observed, random_state=seed)


def _with_unit_rows(data: Dataset) -> Dataset:
    if data.X_test is None:
        raise ValueError(f"The data set {data.name!r} was fetched without its split; tables need its own files.")
    features: dict[str, Any] = {"X_train": normalize(data.X_train), "X_test": normalize(data.X_test)}
    return replace(data, **features)
