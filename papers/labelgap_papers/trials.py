"""The training and test data of one seed of a setting: rows of a split, held-out positives, or hidden cells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.datasets import Dataset, Interactions, load_dataset, make_completion
from labelgap.metrics import (
    HammingLoss,
    InstanceAUC,
    Metric,
    evaluate,
    imputation_error,
    label_error,
    standard_metrics,
)
from labelgap.model_selection import score_batches
from labelgap.observations import Labels, as_labels, hide_cells, hold_out_positives
from labelgap_papers.experiments import Setting

TEST_SHARE = 0.1
ALL_SCORES_METRICS: dict[str, Metric] = {"Hamming": HammingLoss(), "AUC": InstanceAUC()}


class Trial(NamedTuple):
    """The training data of one seed, and a function that pairs test labels with the scores of an estimator.

    ``batches(estimator, depth)`` yields test labels and scores; ``depth`` is the number of best labels of each row
    that are needed, 0 for all scores.
    """

    X: Any
    Y: Labels
    row_graph: Any
    batches: Callable[[Any, int], Iterable[tuple[Labels, Any]]]

    @property
    def n_features(self) -> int:
        """The number of rows of W; rows without features have one feature each."""
        return len(self.Y) if self.X is None else self.X.shape[1]

    def measure(self, estimator: Any, setting: Setting) -> dict[str, float]:
        """Return the metrics of a fitted estimator on the test part, P@k and nDCG@k in percent."""
        metrics = standard_metrics(range(1, 6), empty=setting.empty)
        # If all criteria concern the best labels, so does the table: it does not need all n×L scores.
        only_best = all(name in metrics for name in setting.criteria)
        if not only_best:
            metrics |= ALL_SCORES_METRICS
        values = evaluate(metrics, self.batches(estimator, 5 * only_best))
        return {name: 100 * value if "@" in name else value for name, value in values.items()}


class CellTrial(NamedTuple):
    """The data of one seed with hidden cells, in the features and in the labels, and their true values.

    Methods are measured at the hidden cells of the rows that they were fitted on: results of a fit have ``decision_``
    and ``features_``.
    """

    X: NDArray
    Y: Labels
    X_true: NDArray
    Y_true: NDArray
    row_graph: Any = None

    @property
    def n_features(self) -> int:
        """The number of features."""
        return self.X.shape[1]

    def measure(self, filled: Any, setting: Setting) -> dict[str, float]:
        """Return the label error in percent, and the imputation error if features are hidden."""
        hidden, metrics = np.isnan(self.X), {}
        if hidden.any():
            metrics["imputation error"] = imputation_error(self.X_true, filled.features_, hidden)
        return metrics | {"label error": label_error(self.Y_true, filled.decision_, np.isnan(self.Y.toarray()))}


class CellSource(NamedTuple):
    """A dataset with hidden cells: ``trial(observed, seed)`` draws which cells are known."""

    trial: Callable[[float, int], CellTrial]


def make_trial(data: Dataset | Interactions | CellSource, setting: Setting, seed: int) -> Trial | CellTrial:
    """Return the data of one seed of a setting."""
    if isinstance(data, CellSource):
        return data.trial(setting.observed, seed)
    if isinstance(data, Interactions):
        return _hold_out_ratings(data, seed)
    if setting.split == "random":
        data = draw_split(data, seed)
    X_test, test = data.X_test, as_labels(data.Y_test)
    labels = hide_training_labels(data, setting, seed)
    return Trial(data.X_train, labels, None, lambda model, depth: score_batches(model, X_test, test, depth))


def draw_split(data: Dataset, seed: int) -> Dataset:
    """Return the dataset with its rows shuffled between the training and the test part, whose sizes stay.

    >>> data = Dataset("tiny", np.array([[1.0], [2.0]]), np.eye(2), np.array([[3.0]]), np.ones((1, 2)))
    >>> shuffled = draw_split(data, seed=0)
    >>> shuffled.X_train.ravel(), shuffled.X_test.ravel()
    (array([3., 2.]), array([1.]))
    """

    def stack(upper: Any, lower: Any) -> Any:
        return sp.vstack([upper, lower], format="csr") if sp.issparse(upper) else np.concatenate([upper, lower])

    X, Y = stack(data.X_train, data.X_test), stack(data.Y_train, data.Y_test)
    order = np.random.RandomState(seed).permutation(X.shape[0])
    train, test = np.split(order, [data.X_train.shape[0]])
    return replace(data, X_train=X[train], Y_train=Y[train], X_test=X[test], Y_test=Y[test])


def hide_training_labels(data: Dataset, setting: Setting, seed: int) -> Labels:
    """Return the training labels with the share of known cells of the setting; the seed draws which."""
    if setting.observed == 1:
        return as_labels(data.Y_train)
    return hide_cells(data.Y_train, setting.observed, random_state=seed)


def _hold_out_ratings(data: Interactions, seed: int) -> Trial:
    """Hold out a tenth of the ratings of 4 or more; items that a user likes in training are not recommended again."""
    train, test = hold_out_positives(data.positives(), TEST_SHARE, random_state=seed)
    users = np.flatnonzero(np.diff(test.indptr))

    def recommend(model: Any, depth: int) -> Iterator[tuple[Labels, Any]]:
        yield as_labels(test[users]), model.recommend(users, min(depth, test.shape[1]), exclude_seen=True)

    return Trial(None, as_labels(train), data.row_graph, recommend)


# --- hidden cells ---------------------------------------------------------------------------------------------------

N_LABELS = 10
REAL_DATASETS = ("emotions", "yeast")


def format_synthetic_name(n: int, rank: int, variance: float, n_labels: int = N_LABELS) -> str:
    """Return the name of a generated dataset of section 4.1 of the MC paper.

    >>> format_synthetic_name(100, 2, 0.01)
    'synthetic n=100 r=2 var=0.01'
    """
    return f"synthetic n={n} r={rank} var={variance:g}" + (f" t={n_labels}" if n_labels != N_LABELS else "")


def derive_seed(options: dict[str, Any], observed: float, seed: int) -> int:
    """Return a seed that differs between settings: with a common one all settings would have easy trials together.

    >>> derive_seed({"rank": 2}, 0.1, 0) == derive_seed({"rank": 2}, 0.2, 0)
    False
    """
    return crc32(f"{sorted(options.items())} {observed} {seed}".encode())


def generate_cells(options: dict[str, Any], observed: float, seed: int) -> CellTrial:
    """Generate data with hidden cells by :func:`labelgap.datasets.make_completion`."""
    data = make_completion(**options, observed=observed, random_state=derive_seed(options, observed, seed))
    return CellTrial(data.X, as_labels(data.Y), data.X_true, data.Y_true)


def _synthetic_entry(
    n: int, rank: int, variance: float, n_labels: int = N_LABELS
) -> tuple[str, Callable[[], CellSource]]:
    options = {"n_samples": n, "rank": rank, "noise_variance": variance, "n_labels": n_labels}
    source = CellSource(partial(generate_cells, options))
    return format_synthetic_name(n, rank, variance, n_labels), lambda: source


def _load_cell_source(name: str, all_features: bool = False) -> CellSource:
    """Return all rows of a dataset, with its features unscaled."""
    data = load_dataset(name)
    parts = [(data.X_train, data.Y_train), (data.X_test, data.Y_test)]
    X, Y = (np.concatenate([_to_dense(p) for p in side if p is not None]) for side in zip(*parts, strict=True))

    def trial(observed: float, seed: int) -> CellTrial:
        shown = hide_cells(np.ones(X.shape), 1.0 if all_features else observed, random_state=2 * seed + 1)
        return CellTrial(X * shown.toarray(), hide_cells(Y, observed, random_state=2 * seed), X, Y)

    return CellSource(trial)


def _to_dense(part: Any) -> NDArray[np.float64]:
    return np.asarray(part.toarray() if sp.issparse(part) else part, float)


CELL_SOURCES: dict[str, Callable[[], CellSource]] = dict(
    [_synthetic_entry(n, rank, variance) for variance in (0.01, 0.1) for rank in (2, 4) for n in (100, 400)]
    + [_synthetic_entry(400, 2, 0.01, n_labels=2)]
    + [(name, partial(_load_cell_source, name)) for name in REAL_DATASETS]
    + [(f"{name} with all features", partial(_load_cell_source, name, all_features=True)) for name in REAL_DATASETS]
)
