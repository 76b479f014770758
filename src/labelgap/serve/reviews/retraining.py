"""Retraining on the reviewed labels, and the comparison with the old labels on held-out documents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import cross_val_predict

from labelgap.inputs import clone_with_seed
from labelgap.metrics import Batch
from labelgap.observations import Labels
from labelgap.runtime import progress, row_blocks
from labelgap.serve.reviews.review_data import ReviewData
from labelgap.serve.reviews.statistics import select_decided
from labelgap.serve.reviews.store import Review

N_FOLDS = 3
MIN_CELLS_PER_CLASS = 5  # fewer confirmed or refused cells give no useful log loss or AUC


class Comparison(NamedTuple):
    """A measure of the old and the new model on held-out cells or documents; None if there are too few of them.

    ``judged`` is the number of cells or documents; ``better`` and ``worse`` count those that only the new model, or
    only the old one, gets right.
    """

    name: str
    before: float | None
    after: float | None
    judged: int
    greater_is_better: bool = True
    better: int | None = None
    worse: int | None = None


class Retrained(NamedTuple):
    """A model fitted on the reviewed labels, its comparisons with the old one, and the number of verdicts used."""

    model: Any
    comparisons: list[Comparison]
    accepted: int
    rejected: int


def retrain(data: ReviewData, reviews: Sequence[Review], seed: int = 0, n_folds: int = N_FOLDS) -> Retrained:
    """Fit on the reviewed labels, and measure the effect of the reviews by cross-validation over documents.

    In each fold two models are fitted on the other documents: one on the labels of the file, one on the labels with
    the verdicts applied. Both are evaluated on the documents of the fold, whose verdicts neither has seen, by P@1
    against the reviewed labels and on the reviewed cells. The model that is returned is fitted on all documents.
    """
    decided = select_decided(reviews)
    reviewed = data.apply_reviews(decided)
    cells = _ReviewedCells(data, decided)
    # The models of the folds are compared with each other: they neither search nor calibrate.
    estimator = data.model.chosen() if hasattr(data.model, "chosen") else clone(data.model)
    estimator = clone_with_seed(estimator, seed)
    fold = _assign_folds(len(reviewed), cells.rows, n_folds, seed)
    hits, scores = np.zeros((2, len(reviewed)), bool), np.zeros((2, len(decided)))
    with progress(2 * n_folds + 1, "Models", 0) as advance:
        for number in range(n_folds):
            train, held_out = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
            for side, (labels, name) in enumerate(((data.labels, "as written"), (reviewed, "as reviewed"))):
                title = f"fold {number + 1} of {n_folds}, labels {name}"
                with progress(None, title, 0):
                    model = clone(estimator).fit([data.texts[i] for i in train], labels[train])
                    _evaluate(model, data.texts, reviewed, held_out, cells, hits[side], scores[side])
                advance(title)
        with progress(None, "all documents", 0):
            calibration = getattr(data.model, "calibration_", None)
            options = {} if calibration is None else {"calibrate": calibration.aim}
            model = clone_with_seed(clone(data.model), seed).fit(data.texts, reviewed, **options)
        advance("all documents")
    if hasattr(data.model, "columns_"):
        model.columns_ = data.model.columns_
    accepted = sum(review.verdict == "accept" for review in decided)
    labelled = np.diff(reviewed.positives.indptr) > 0
    comparisons = _compare(hits[:, labelled], scores, cells.truth)
    return Retrained(model, comparisons, accepted, len(decided) - accepted)


def save_next_to(model: Any, path: Path) -> Path:
    """Save a model next to another under the first free name, such as model-reviewed-1; return its path."""
    number = 1
    while (target := path.with_name(f"{path.stem}-reviewed-{number}{path.suffix}")).exists():
        number += 1
    model.save(target)
    return target


class _ReviewedCells:
    """The reviewed cells: rows, label numbers, and whether the label belongs to the row according to the verdict."""

    def __init__(self, data: ReviewData, reviews: Sequence[Review]) -> None:
        self.rows = np.array([review.row for review in reviews], int)
        self.columns = np.array([data.label_numbers[review.label] for review in reviews], int)
        self.truth = np.array(
            [(review.verdict == "accept") == (review.kind == "missing") for review in reviews], bool
        )


def _assign_folds(n: int, reviewed_rows: NDArray, n_folds: int, seed: int) -> NDArray:
    """Return the fold of each document; documents with and without reviews are each spread evenly."""
    rng = np.random.RandomState(seed)
    is_reviewed = np.zeros(n, bool)
    is_reviewed[reviewed_rows] = True
    fold = np.empty(n, int)
    for part in (np.flatnonzero(is_reviewed), np.flatnonzero(~is_reviewed)):
        fold[part] = rng.permutation(np.arange(len(part)) % n_folds)
    return fold


def _evaluate(
    model: Any,
    texts: Sequence[str],
    labels: Labels,
    held_out: NDArray,
    cells: _ReviewedCells,
    hits: NDArray[np.bool_],
    scores: NDArray,
) -> None:
    """Store for held-out documents whether the best label is right, and the scores of their reviewed cells."""
    for block in row_blocks(len(held_out), labels.shape[1]):
        rows = held_out[block]
        values = np.asarray(model.decision_function([texts[i] for i in rows]), float)
        hits[rows] = Batch(labels[rows], values).ranking(1).hits[:, 0]
        here = np.flatnonzero(np.isin(cells.rows, rows))
        scores[here] = values[np.searchsorted(rows, cells.rows[here]), cells.columns[here]]


def _compare(hits: NDArray[np.bool_], scores: NDArray, truth: NDArray[np.bool_]) -> list[Comparison]:
    """Compare two models by the best label of each document and by the reviewed cells."""
    enough = min(truth.sum(), (~truth).sum()) >= MIN_CELLS_PER_CLASS
    area = [float(roc_auc_score(truth, side)) if enough else None for side in scores]
    loss = [_cross_validated_log_loss(side, truth) if enough else None for side in scores]
    return [
        _compare_shares("P@1 on held-out documents", hits),
        _compare_shares("Reviewed cells decided right", (scores > 0) == truth),
        Comparison("AUC on reviewed cells", area[0], area[1], len(truth)),
        Comparison("Log loss on reviewed cells", loss[0], loss[1], len(truth), greater_is_better=False),
    ]


def _compare_shares(name: str, right: NDArray[np.bool_]) -> Comparison:
    """Compare how often two models are right.

    >>> _compare_shares("a", np.array([[True, False, False, True], [True, True, True, False]]))[1:]
    (0.5, 0.75, 4, True, 2, 1)
    """
    n = right.shape[1]
    before, after = right.mean(axis=1).tolist() if n else (None, None)
    better, worse = int((right[1] & ~right[0]).sum()), int((right[0] & ~right[1]).sum())
    return Comparison(name, before, after, n, better=better, worse=worse)


def _cross_validated_log_loss(scores: NDArray, truth: NDArray) -> float:
    """Return the log loss of scores turned into probabilities by logistic curves fitted on other cells."""
    probabilities = cross_val_predict(
        LogisticRegression(), scores[:, None], truth, cv=MIN_CELLS_PER_CLASS, method="predict_proba"
    )
    return float(log_loss(truth, probabilities))
