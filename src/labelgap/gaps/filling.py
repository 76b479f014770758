"""Filling of unknown cells with calibrated probabilities."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelgap.calibration import Calibration, calibration_error, reliability
from labelgap.checkpoints import checkpoint_calls
from labelgap.estimators.parameters import check_number
from labelgap.estimators.scores import known_pattern
from labelgap.gaps.out_of_fold import check_labels, compute_scores, fit_clone, make_resumable_generator
from labelgap.metrics import Batch
from labelgap.model_selection import CellKFold
from labelgap.observations import Labels
from labelgap.observations.arguments import LabelsLike, MatrixLike, RandomSeed
from labelgap.runtime import progress


class Completed(NamedTuple):
    """Labels with all unknown cells filled.

    Attributes
    ----------
    probabilities : ndarray of shape (n, L)
        0 or 1 if the label is known, else the probability of a yes.
    thresholds : ndarray of shape (L,)
        For each label, the probability threshold with the largest F1 on held-out cells.
    reliability : list of (mean probability, share of yeses, share of cells)
        Reliability of held-out cells, in bins of their probability.
    calibration_error : float
        The mean of |probability − share of yeses| over these bins.
    """

    probabilities: NDArray[np.float64]
    thresholds: NDArray[np.float64]
    reliability: list[tuple[float, float, float]]
    calibration_error: float


def complete(
    X: MatrixLike,
    Y: LabelsLike,
    estimator: Any,
    *,
    observed: MatrixLike | None = None,
    n_folds: int = 3,
    random_state: RandomSeed = None,
) -> Completed:
    """Fill the unknown cells of Y with calibrated probabilities.

    Known cells are held out, fold by fold, and scored by a model of the others. A :class:`Calibration` of these
    scores converts the scores of a model of all known cells to probabilities. The reported reliability is
    cross-fitted: each fold uses a calibration of the other folds.

    Parameters
    ----------
    X : array-like, sparse matrix or list of texts, n rows
        Rows that the estimator accepts.
    Y : labels of any form, (n, L)
        Cells that are NaN or not ``observed`` are filled.
    estimator : estimator
        Must accept unknown cells. Cloned, fitted ``n_folds`` times on a part of the known cells and once on all.
    observed : array-like or sparse matrix, optional
        True where Y is known.
    n_folds : int, default=3
        Number of folds.
    random_state : int, RandomState or None
        Seed of the folds.

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
    labels = check_labels(Y, observed, estimator)
    n_labels = labels.shape[1]
    cells = score_held_out(X, labels, estimator, n_folds, random_state)
    calibration = Calibration(n_labels).fit(cells.scores, cells.labels, cells.yes)
    held_out = np.empty(len(cells.yes))
    for fold in np.unique(cells.folds):
        test, train = cells.folds == fold, cells.folds != fold
        curve = Calibration(n_labels).fit(cells.scores[train], cells.labels[train], cells.yes[train])
        held_out[test] = curve.predict(cells.scores[test], cells.labels[test])
    scores = compute_scores(fit_clone(estimator, X, labels), X)
    columns = np.broadcast_to(np.arange(n_labels), scores.shape)
    probabilities = calibration.predict(scores.ravel(), columns.ravel()).reshape(scores.shape)
    return Completed(
        np.where(known_pattern(labels).toarray(), labels.positives.toarray(), probabilities),
        choose_thresholds(held_out, cells, n_labels),
        reliability(held_out, cells.yes),
        calibration_error(held_out, cells.yes),
    )


class HeldOutCells(NamedTuple):
    """Known cells with the scores of models that were fitted without them, and the fold of each."""

    labels: NDArray[np.int64]
    scores: NDArray[np.float64]
    yes: NDArray[np.bool_]
    folds: NDArray[np.int64]


def score_held_out(X: Any, labels: Labels, estimator: Any, n_folds: int, random_state: Any) -> HeldOutCells:
    """Return all known cells, scored by clones of the estimator that were fitted on the other folds."""
    parts, folds = [], CellKFold(n_folds, make_resumable_generator(random_state)).split(labels)
    tasks = [partial(_score_fold_cells, X, estimator, *fold, number) for number, fold in enumerate(folds)]
    with progress(n_folds, "Folds", 0) as advance:
        for cells in checkpoint_calls("fold", tasks, HeldOutCells, at_once=1):
            parts.append(cells)
            advance(f"{len(cells.yes)} cells")
    return HeldOutCells(*map(np.concatenate, zip(*parts, strict=True)))


def _score_fold_cells(X: Any, estimator: Any, train: Labels, test: Labels, fold: int) -> HeldOutCells:
    model = fit_clone(estimator, X, train)
    predictions = model.known_scores(X, test) if hasattr(model, "known_scores") else compute_scores(model, X)
    scores = Batch(test, predictions).known_scores().values.astype(float)
    yes = test.encode(0, 1).data == 1
    return HeldOutCells(known_pattern(test).indices.astype(np.int64), scores, yes, np.full(len(yes), fold))


def choose_thresholds(
    probabilities: NDArray, cells: HeldOutCells, n_labels: int, prior: float = 2.0
) -> NDArray[np.float64]:
    """Return for each label the threshold with the largest F1 on held-out cells, pulled to that of all labels.

    F1 of a threshold is 2 hits / (predicted + positives). ``prior`` positives with the distribution of all labels are
    added to those of each label.
    """
    grid = np.linspace(0.02, 0.98, 49)
    n_below = np.searchsorted(grid, probabilities, side="left")  # number of thresholds below each probability
    counts = np.zeros((2, n_labels, len(grid) + 1))
    for state in (0, 1):
        selected = cells.yes == bool(state)
        np.add.at(counts[state], (cells.labels[selected], n_below[selected]), 1)
    above = counts[:, :, ::-1].cumsum(axis=2)[:, :, ::-1][:, :, 1:]
    positives = counts[1].sum(axis=1)
    total = max(positives.sum(), 1.0)
    hits = above[1] + prior * above[1].sum(axis=0) / total
    predicted = above.sum(axis=0) + prior * above.sum(axis=(0, 1)) / total
    return grid[np.argmax(2 * hits / (predicted + positives[:, None] + prior), axis=1)]
