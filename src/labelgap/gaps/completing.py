"""Unknown cells filled with probabilities."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelgap.estimators.parameters import check_number
from labelgap.estimators.pieces import remembered
from labelgap.estimators.scores import known_pattern
from labelgap.gaps.calibration import Calibration, calibration_error, reliability
from labelgap.gaps.cells import known_labels, resumed_generator
from labelgap.gaps.learners import fitted, scores_of
from labelgap.metrics.batch import Batch
from labelgap.model_selection.splits import CellKFold
from labelgap.observations import Labels
from labelgap.runtime import progress


class Completed(NamedTuple):
    """Labels without gaps.

    Attributes
    ----------
    probabilities : ndarray of shape (n, L)
        0 or 1 where the label is known, else the probability of a yes.
    thresholds : ndarray of shape (L,)
        The probability of each label above which a yes is the better guess by F1 on held-out cells.
    reliability : list of (mean probability, share of yeses, share of cells)
        Of held-out cells, in bins of their probability.
    calibration_error : float
        The mean of |probability − share of yeses| over these bins.
    """

    probabilities: NDArray[np.float64]
    thresholds: NDArray[np.float64]
    reliability: list[tuple[float, float, float]]
    calibration_error: float


class HeldOut(NamedTuple):
    """Known cells with the scores of models that were fitted without them, and the fold of each."""

    labels: NDArray[np.int64]
    scores: NDArray[np.float64]
    yes: NDArray[np.bool_]
    folds: NDArray[np.int64]


def complete(
    X: Any, Y: Any, estimator: Any, *, observed: Any = None, n_folds: int = 3, random_state: Any = None
) -> Completed:
    """Fill the unknown cells of Y with calibrated probabilities.

    Known cells are held out, fold by fold, and scored by a model of the others; a :class:`Calibration` of these
    scores turns those of a model of all known cells into probabilities. What is reported of the calibration is of
    folds that it was not learned from.

    Parameters
    ----------
    X : array-like, sparse matrix or list of texts, n rows
        What the estimator takes.
    Y : labels of any form, (n, L)
        NaN, or what ``observed`` leaves out, is filled.
    estimator : estimator
        Must take gaps; cloned, fitted ``n_folds`` times on a part of the known cells and once on all of them.
    observed : array-like or sparse matrix, optional
        True where Y is known.
    n_folds : int, default=3
        The number of folds.
    random_state : int, RandomState or None
        Seeds the folds.

    Returns
    -------
    Completed

    Examples
    --------
    >>> from labelgap import LEML, hide_cells
    >>> from labelgap.datasets import make_low_rank
    >>> data = make_low_rank(300, 10, 8, rank=3, random_state=0)
    >>> filled = complete(data.X, hide_cells(data.Y, 0.6, random_state=0), LEML(3, random_state=0), random_state=0)
    >>> bool(((filled.probabilities > 0.5) == data.Y.toarray()).mean() > 0.9)
    True
    """
    check_number("n_folds", n_folds, int, least=2)
    labels = known_labels(Y, observed, estimator)
    held = _held_out(X, labels, estimator, n_folds, random_state)
    calibration = Calibration(labels.shape[1]).fit(held.scores, held.labels, held.yes)
    judged = _judge(held, labels.shape[1])
    scores = scores_of(fitted(estimator, X, labels), X)
    columns = np.broadcast_to(np.arange(labels.shape[1]), scores.shape)
    probabilities = calibration.predict(scores.ravel(), columns.ravel()).reshape(scores.shape)
    probabilities = np.where(known_pattern(labels).toarray(), labels.positives.toarray(), probabilities)
    error = calibration_error(judged, held.yes)
    return Completed(
        probabilities, best_thresholds(judged, held, labels.shape[1]), reliability(judged, held.yes), error
    )


def _held_out(X: Any, labels: Labels, estimator: Any, n_folds: int, random_state: Any) -> HeldOut:
    parts, rng = [], resumed_generator(random_state)
    with progress(n_folds, "Folds", 0) as advance:
        for number, (train, held) in enumerate(CellKFold(n_folds, rng).split(labels)):
            parts.append(remembered("fold", partial(_score, X, estimator, train, held, number), HeldOut))
            advance(f"{held.n_known} cells")
    return HeldOut(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _score(X: Any, estimator: Any, train: Labels, held: Labels, fold: int) -> HeldOut:
    model = fitted(estimator, X, train)
    found = model.known_scores(X, held) if hasattr(model, "known_scores") else scores_of(model, X)
    scores = Batch(held, found).known_scores().values.astype(float)
    yes = held.encode(0, 1).data == 1
    return HeldOut(known_pattern(held).indices.astype(np.int64), scores, yes, np.full(len(yes), fold))


def _judge(held: HeldOut, n_labels: int) -> NDArray[np.float64]:
    """Return the probabilities of held-out cells by calibrations of the other folds."""
    found = np.empty(len(held.yes))
    for fold in np.unique(held.folds):
        mine, others = held.folds == fold, held.folds != fold
        curve = Calibration(n_labels).fit(held.scores[others], held.labels[others], held.yes[others])
        found[mine] = curve.predict(held.scores[mine], held.labels[mine])
    return found


def best_thresholds(probabilities: NDArray, held: HeldOut, n_labels: int, prior: float = 2.0) -> NDArray[np.float64]:
    """Return for each label the threshold with the largest F1 on held-out cells, pulled to that of all labels.

    F1 of a threshold is 2 hits / (predicted + positives); ``prior`` positives are added that are like those of all.
    """
    grid = np.linspace(0.02, 0.98, 49)
    place = np.searchsorted(grid, probabilities, side="left")  # cells above grid[0 … place − 1]
    counts = np.zeros((2, n_labels, len(grid) + 1))
    for state in (0, 1):
        mine = held.yes == bool(state)
        np.add.at(counts[state], (held.labels[mine], place[mine]), 1)
    above = counts[:, :, ::-1].cumsum(axis=2)[:, :, ::-1][:, :, 1:]
    positives = counts[1].sum(axis=1)
    total = max(positives.sum(), 1.0)
    hits = above[1] + prior * above[1].sum(axis=0) / total
    predicted = above.sum(axis=0) + prior * above.sum(axis=(0, 1)) / total
    return grid[np.argmax(2 * hits / (predicted + positives[:, None] + prior), axis=1)]
