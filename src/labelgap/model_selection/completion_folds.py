"""Folds of the known cells of labels and features together."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from labelgap.objectives.completion import Completion, Known
from labelgap.solvers.fpc import Stage


class Fold(NamedTuple):
    """The known cells of labels and of features that a fold trains on, and those that it holds out."""

    labels: Known
    features: Known
    held_labels: Known
    held_features: Known

    def problem(self, whole: Completion, label_weight: float) -> Completion:
        """Return the problem of the cells to train on."""
        shape, bias = (whole.n, whole.t, whole.d), whole.n_biased > 0
        return Completion(shape, self.labels, self.features, whole.loss, label_weight=label_weight, bias=bias)

    def errors(self, problem: Completion, stage: Stage) -> tuple[float, float]:
        """Return the label error in percent and the imputation error of a solution at the cells held out."""
        scores, filled = problem.decision(stage.point), problem.matrix(stage.point)[:, problem.t :]
        wrong = (scores.ravel()[self.held_labels.cells] > 0) != (self.held_labels.values == problem.loss.positive)
        cells, values = self.held_features
        size = float(np.square(values).sum())
        lost = float(np.square(filled.ravel()[cells] - values).sum())
        return 100 * float(wrong.mean()), float(np.sqrt(lost / size)) if size else float("nan")


def draw_folds(whole: Completion, n_folds: int, random_state: Any) -> list[Fold]:
    """Share out the known cells of labels, and those of features, at random; sizes differ by one cell at most.

    >>> from labelgap.losses import Logistic
    >>> from labelgap.observations import Labels
    >>> whole = Completion.of(np.ones((3, 2)), Labels(np.eye(3)), Logistic())
    >>> [len(fold.held_labels.cells) for fold in draw_folds(whole, 2, 0)]
    [5, 4]
    """
    both = {"Y": whole.all_labels, "X": whole.features}
    for name, known in both.items():
        if len(known.cells) < n_folds:
            raise ValueError(
                f"n_folds={n_folds} is out of range; {name} has {len(known.cells)} known cells, and each fold holds "
                "out some of them. Pass more cells, or fewer folds."
            )
    rng = check_random_state(random_state)
    of_labels, of_features = (rng.permutation(np.arange(len(known.cells)) % n_folds) for known in both.values())
    return [
        Fold(
            _some(whole.all_labels, of_labels != number),
            _some(whole.features, of_features != number),
            _some(whole.all_labels, of_labels == number),
            _some(whole.features, of_features == number),
        )
        for number in range(n_folds)
    ]


def _some(known: Known, chosen: NDArray[np.bool_]) -> Known:
    return Known(known.cells[chosen], known.values[chosen])
