"""Calibration of an estimator on rows that were held out of its fit."""

from __future__ import annotations

from functools import partial
from math import ceil
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from labelgap.calibration import RowCalibration, ScoredCells, fit_row_calibration
from labelgap.calibration.scored_cells import concatenate_cells
from labelgap.checkpoints import checkpoint_call
from labelgap.estimators.scores import Scores
from labelgap.observations import Labels
from labelgap.runtime import progress, scope

N_FOLDS = 5
MAX_ROWS = 3000  # held-out rows from which on no further fold is fitted
MIN_ROWS = 10  # fewer rows say nothing about probabilities
CANDIDATES, N_SAMPLED = 30, 20  # absent labels of each row: the best ones, and a sample of the others
SEED = 0  # of the folds and samples; a calibration is the same in every run


class CellFields(NamedTuple):
    """The fields of scored cells, as a checkpoint stores them."""

    cells: dict[str, NDArray]


def calibrate_rows(scores: Any, labels: Labels, *, aim: str = "f1", positives_only: bool = False) -> RowCalibration:
    """Return the calibration of the scores of held-out rows; ``scores`` is a :class:`Scores`."""
    cells = collect_cells(scores, np.arange(len(labels)), labels)
    return _fit(cells, labels, aim, positives_only)


def calibrate_in_folds(
    estimator: Any,
    X: Any,
    labels: Labels,
    *,
    aim: str = "f1",
    positives_only: bool = False,
    options: dict[str, Any] | None = None,
) -> RowCalibration:
    """Return the calibration of an estimator on validated rows, from clones fitted without the rows they score.

    The rows are split into five folds. Folds are held out one after the other until 3,000 rows are scored.
    """
    rng = np.random.RandomState(SEED)
    n = len(labels)
    if n < MIN_ROWS:
        raise ValueError(
            f"X has {n} rows, too few to hold some out for a calibration; pass at least {MIN_ROWS}, or "
            "calibrate=False."
        )
    fold = rng.permutation(np.arange(n) % N_FOLDS)
    score, parts, n_scored = make_fold_scorer(estimator, X, labels, options), [], 0
    with progress(None, "Calibration", 0) as advance:
        for number in range(N_FOLDS):
            train, held_out = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
            with scope(f"calibration, fold {number}"):
                fields = checkpoint_call("cells", partial(_score_fold, score, labels, train, held_out), CellFields)
            parts.append(ScoredCells(**fields.cells))
            n_scored += len(held_out)
            advance(f"{n_scored} rows")
            if n_scored >= MAX_ROWS:
                break
    cells = concatenate_cells(parts)
    return _fit(cells, labels[np.unique(cells.rows)], aim, positives_only)


def calibrate_fitted(
    model: Any,
    X: Any,
    labels: Labels,
    *,
    aim: str = "f1",
    positives_only: bool = False,
    options: dict[str, Any] | None = None,
    held_out: Any = None,
) -> RowCalibration:
    """Return the calibration of a model on its validated training rows.

    A search has scored rows by fits without them (``held_out``, or ``_held_out_rows`` of the model). Other models are
    fitted again in folds, with the ``options`` of :func:`make_fold_scorer`.
    """
    held_out = model._held_out_rows() if held_out is None else held_out
    if held_out is None or len(labels) < MIN_ROWS:
        chosen = model.chosen()
        return calibrate_in_folds(chosen, X, labels, aim=aim, positives_only=positives_only, options=options)
    parts = [collect_cells(part.scores, part.rows, labels[part.rows]) for part in held_out]
    cells = concatenate_cells(parts)
    return _fit(cells, labels[np.unique(cells.rows)], aim, positives_only)


def count_folds(n: int) -> int:
    """Return how many folds of n rows a calibration holds out.

    >>> count_folds(100), count_folds(10_000)
    (5, 2)
    """
    return min(N_FOLDS, ceil(MAX_ROWS * N_FOLDS / n))


def make_fold_scorer(estimator: Any, X: Any, labels: Labels, options: dict[str, Any] | None = None) -> Any:
    """Return a function of training rows and held-out rows that returns the scores of the latter.

    An estimator whose folds share work has a method ``_prepare_folds`` that returns it, or None. ``options`` of its
    fit are the same for all rows, such as a prior, or an array ``sample_weight`` with a weight for each row.
    """
    options = options or {}
    weights = options.get("sample_weight")
    prepare = getattr(clone(estimator), "_prepare_folds", None)
    prepared = None if prepare is None else prepare(X, labels, **options)

    def fit_and_score(train: NDArray, held_out: NDArray) -> Any:
        own = options if weights is None else options | {"sample_weight": weights[train]}
        model = clone(estimator).fit(X[train], labels[train], **own)
        return model._scores(model._check_rows(X[held_out]))

    return fit_and_score if prepared is None else prepared


def _score_fold(score: Any, labels: Labels, train: NDArray, held_out: NDArray) -> CellFields:
    return CellFields(collect_cells(score(train, held_out), held_out, labels[held_out])._asdict())


def collect_cells(scores: Scores, rows: NDArray, labels: Labels) -> ScoredCells:
    """Return cells of held-out rows with their scores."""
    return scores.choose_cells(rows, labels, CANDIDATES, N_SAMPLED, np.random.RandomState(SEED))


def _fit(cells: ScoredCells, labels: Labels, aim: str, positives_only: bool) -> RowCalibration:
    with progress(None, "Calibration: probabilities", 0):
        return fit_row_calibration(cells, labels, aim=aim, positives_only=positives_only)
