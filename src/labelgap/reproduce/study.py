"""A study makes each fit once, however many tables ask for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.preprocessing import normalize

from labelgap.datasets import Dataset, Interactions, load_dataset, load_interactions
from labelgap.metrics import HammingLoss, InstanceAUC, Metric, evaluate, standard_metrics
from labelgap.model_selection import score_batches
from labelgap.observations import Labels, as_labels, hide_cells, hold_out_positives
from labelgap.reproduce.methods import METHODS, Task
from labelgap.reproduce.records import Measurement, Options, Row, Setting
from labelgap.reproduce.registry import Published

RANKING: dict[str, Metric] = standard_metrics(range(1, 6))
METRICS: dict[str, Metric] = {**RANKING, "Hamming": HammingLoss(), "AUC": InstanceAUC()}

# Sets of ratings, by the name that tables give them: a part of a set must not pass for the set.
INTERACTIONS = {"ml-100k": "ml-100k", "flixster-3000": "flixster", "douban-3000": "douban"}
TEST_SHARE = 0.1


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
    _datasets: dict[str, Dataset | Interactions] = field(default_factory=dict)
    _measured: dict[tuple[Setting, int], Measurement] = field(default_factory=dict)

    def dataset(self, name: str) -> Dataset | Interactions | None:
        """Return a dataset with rows of length one, or ratings; ``None`` where there is none; the reason is kept."""
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
        found = [self.measure(setting, seed) for seed in range(self.options.seeds)]
        values = tuple(m.fit_seconds if number.metric == "seconds" else m.metrics[number.metric] for m in found)
        return replace(
            row, values=values, params=tuple(m.params for m in found), seconds=sum(m.seconds for m in found)
        )

    def measure(self, setting: Setting, seed: int) -> Measurement:
        """Fit a setting and measure it on the test part, or return what an earlier call found."""
        if not METHODS[setting.method].ranked:
            setting = replace(setting, k=None, k_ratio=None)
        key = (setting, seed)
        if key not in self._measured:
            given = METHODS[setting.method].given
            known = {} if given is None else self.measure(replace(setting, method=given), seed).params
            self.tell(f"{setting}, seed {seed} …")
            found = self._measured[key] = self._measure(setting, seed, known)
            chosen = ", ".join(f"{name} = {_shown(value)}" for name, value in found.params.items())
            self.tell(f"    {chosen} chosen; {found.fit_seconds:.1f} s, with validation {found.seconds:.1f} s")
        return self._measured[key]

    def _measure(self, setting: Setting, seed: int, given: dict[str, Any]) -> Measurement:
        data = self.dataset(setting.dataset)
        assert data is not None
        start = time.perf_counter()
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
        )
        fitted = METHODS[setting.method].fit(task)
        # Parameters chosen by the best labels alone are for a table of these: nothing needs all n×L scores.
        ranks = all(name in RANKING for name in setting.criteria)
        metrics = evaluate(RANKING if ranks else METRICS, trial.batches(fitted.estimator, 5 * ranks))
        metrics = {name: 100 * value if "@" in name else value for name, value in metrics.items()}
        return Measurement(metrics, fitted.params, fitted.seconds, time.perf_counter() - start)


class Trial(NamedTuple):
    """The data of one seed: what to train on, and the test labels beside the scores that an estimator gives them.

    ``batches`` takes an estimator and how many of the best labels of each row count, 0 for all of them.
    """

    X: Any
    Y: Labels
    row_graph: Any
    batches: Callable[[Any, int], Iterable[tuple[Labels, Any]]]

    @property
    def n_features(self) -> int:
        """The number of columns left of W; rows without features have one each."""
        return len(self.Y) if self.X is None else self.X.shape[1]


def make_trial(data: Dataset | Interactions, setting: Setting, seed: int) -> Trial:
    """Return what a setting trains and is tested on: the rows of a split, or nine and one of ten positives."""
    if isinstance(data, Interactions):
        return _held_out_positives(data, seed)
    test = as_labels(data.Y_test)
    labels = known_labels(data, setting, seed)
    return Trial(data.X_train, labels, None, lambda model, depth: score_batches(model, data.X_test, test, depth))


def _held_out_positives(data: Interactions, seed: int) -> Trial:
    """Hold out a tenth of the ratings of 4 or more; items that a user likes in training are not recommended again."""
    train, test = hold_out_positives(data.positives(), TEST_SHARE, random_state=seed)
    users = np.flatnonzero(np.diff(test.indptr))

    def recommended(model: Any, depth: int) -> Iterator[tuple[Labels, Any]]:
        yield as_labels(test[users]), model.recommend(users, min(depth, test.shape[1]), exclude_seen=True)

    return Trial(None, as_labels(train), data.row_graph, recommended)


def known_labels(data: Dataset, setting: Setting, seed: int) -> Labels:
    """Return the training labels with the gaps of the setting; the seed draws them."""
    if setting.observed == 1:
        return as_labels(data.Y_train)
    return hide_cells(data.Y_train, setting.observed, random_state=seed)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _load(name: str) -> Dataset | Interactions:
    return load_interactions(INTERACTIONS[name]) if name in INTERACTIONS else _with_unit_rows(load_dataset(name))


def _with_unit_rows(data: Dataset) -> Dataset:
    if data.X_test is None:
        raise ValueError(f"The data set {data.name!r} was fetched without its split; tables need its own files.")
    features: dict[str, Any] = {"X_train": normalize(data.X_train), "X_test": normalize(data.X_test)}
    return replace(data, **features)
