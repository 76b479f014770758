"""What one seed of a setting trains and is tested on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from labelgap.datasets import Dataset, Interactions
from labelgap.metrics import HammingLoss, InstanceAUC, Metric, evaluate, standard_metrics
from labelgap.model_selection import score_batches
from labelgap.observations import Labels, as_labels, hide_cells, hold_out_positives
from labelgap.reproduce.hidden_cells import CellTrial, Source
from labelgap.reproduce.records import Setting

TEST_SHARE = 0.1
WHOLE_ROWS: dict[str, Metric] = {"Hamming": HammingLoss(), "AUC": InstanceAUC()}


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

    def measure(self, estimator: Any, setting: Setting) -> dict[str, float]:
        """Return the metrics of a fitted estimator on the test part, P@k and nDCG@k in percent."""
        metrics = standard_metrics(range(1, 6), empty=setting.empty)
        # Parameters chosen by the best labels alone are for a table of these: nothing needs all n×L scores.
        ranks = all(name in metrics for name in setting.criteria)
        if not ranks:
            metrics |= WHOLE_ROWS
        found = evaluate(metrics, self.batches(estimator, 5 * ranks))
        return {name: 100 * value if "@" in name else value for name, value in found.items()}


def make_trial(data: Dataset | Interactions | Source, setting: Setting, seed: int) -> Trial | CellTrial:
    """Return what a setting trains and is tested on: rows of a split, nine and one of ten positives, or cells."""
    if isinstance(data, Source):
        return data.trial(setting.observed, seed)
    if isinstance(data, Interactions):
        return _held_out_positives(data, seed)
    if setting.split == "random":
        data = split_again(data, seed)
    X_test, test = data.X_test, as_labels(data.Y_test)
    labels = known_labels(data, setting, seed)
    return Trial(data.X_train, labels, None, lambda model, depth: score_batches(model, X_test, test, depth))


def split_again(data: Dataset, seed: int) -> Dataset:
    """Return all rows of a set, shared out at random into a training and a test part of the sizes that it has.

    >>> data = Dataset("tiny", np.array([[1.0], [2.0]]), np.eye(2), np.array([[3.0]]), np.ones((1, 2)))
    >>> again = split_again(data, seed=0)
    >>> again.X_train.ravel(), again.X_test.ravel()
    (array([3., 2.]), array([1.]))
    """
    X, Y = _stack(data.X_train, data.X_test), _stack(data.Y_train, data.Y_test)
    order = np.random.RandomState(seed).permutation(X.shape[0])
    train, test = np.split(order, [data.X_train.shape[0]])
    return replace(data, X_train=X[train], Y_train=Y[train], X_test=X[test], Y_test=Y[test])


def _stack(upper: Any, lower: Any) -> Any:
    return sp.vstack([upper, lower], format="csr") if sp.issparse(upper) else np.concatenate([upper, lower])


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
