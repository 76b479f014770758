"""What the reviews are worth: the model fitted with and without them, both judged on cells that neither has seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import cross_val_predict

from labelgap.commands.gaps import seeded_like
from labelgap.metrics import Batch
from labelgap.serve.reviews.material import Material
from labelgap.serve.reviews.statistics import decided
from labelgap.serve.reviews.store import Review

FOLDS = 3
CELLS_PER_BLOCK = 1 << 22
LEAST_OF_EACH = 5  # so many confirmed and refused cells make a log loss or an area worth showing


class Comparison(NamedTuple):
    """A number before and after, on so many held-out cells or documents; None where there are too few.

    ``better`` and ``worse`` count those that only the later model, or only the earlier one, has right.
    """

    name: str
    before: float | None
    after: float | None
    judged: int
    greater_is_better: bool = True
    better: int | None = None
    worse: int | None = None


class Retrained(NamedTuple):
    """A model fitted on the reviewed labels, and what held-out cells say about it."""

    model: Any
    comparisons: list[Comparison]
    accepted: int
    rejected: int


def retrain(
    material: Material, reviews: Sequence[Review], step: Callable[[str], None], seed: int = 0, folds: int = FOLDS
) -> Retrained:
    """Fit on the reviewed labels, and measure by cross-validation over documents what the reviews bring.

    In each fold two models are fitted on the documents of the others, one on the labels as written and one with the
    verdicts applied. Both judge the documents of this fold, whose verdicts neither has seen: P@1 against the reviewed
    labels, and the reviewed cells by themselves. The model that is returned is then fitted on everything.
    """
    kept = decided(reviews)
    after = material.reviewed(kept)
    cells = _Cells(material, kept)
    estimator = seeded_like(material.model, seed)
    fold = _folds(len(after), cells.rows, folds, seed)
    hits, scores = np.zeros((2, len(after)), bool), np.zeros((2, len(kept)))
    for number in range(folds):
        train, held = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        for side, (labels, what) in enumerate(((material.labels, "as written"), (after, "as reviewed"))):
            step(f"Fold {number + 1} of {folds}, labels {what}")
            model = clone(estimator).fit([material.texts[i] for i in train], labels[train])
            for rows in np.array_split(held, max(1, len(held) * after.shape[1] // CELLS_PER_BLOCK)):
                values = np.asarray(model.decision_function([material.texts[i] for i in rows]), float)
                hits[side, rows] = Batch(after[rows], values).ranking(1).hits[:, 0]
                mine = np.flatnonzero(np.isin(cells.rows, rows))
                scores[side, mine] = values[np.searchsorted(rows, cells.rows[mine]), cells.columns[mine]]
    step("The model of all documents")
    model = clone(estimator).fit(material.texts, after)
    if hasattr(material.model, "columns_"):
        model.columns_ = material.model.columns_
    accepted = sum(one.verdict == "accept" for one in kept)
    labelled = np.diff(after.positives.indptr) > 0
    return Retrained(model, _compare(hits[:, labelled], scores, cells.truth), accepted, len(kept) - accepted)


def steps(folds: int = FOLDS) -> int:
    """Return how many models are fitted."""
    return 2 * folds + 1


def save_beside(model: Any, path: Path) -> Path:
    """Save a model next to another under the first free name of its kind, such as model-reviewed-1."""
    number = 1
    while (target := path.with_name(f"{path.stem}-reviewed-{number}{path.suffix}")).exists():
        number += 1
    model.save(target)
    return target


class _Cells:
    """The reviewed cells: where they are, and whether the label belongs there by the verdict."""

    def __init__(self, material: Material, reviews: Sequence[Review]) -> None:
        self.rows = np.array([one.row for one in reviews], int)
        self.columns = np.array([material.place[one.label] for one in reviews], int)
        self.truth = np.array([(one.verdict == "accept") == (one.kind == "missing") for one in reviews], bool)


def _folds(n: int, reviewed: NDArray, folds: int, seed: int) -> NDArray:
    """Return the fold of each document; those with reviews are spread evenly, and so are the others."""
    rng = np.random.RandomState(seed)
    has = np.zeros(n, bool)
    has[reviewed] = True
    fold = np.empty(n, int)
    for part in (np.flatnonzero(has), np.flatnonzero(~has)):
        fold[part] = rng.permutation(np.arange(len(part)) % folds)
    return fold


def _compare(hits: NDArray[np.bool_], scores: NDArray, truth: NDArray[np.bool_]) -> list[Comparison]:
    """Compare what two models have right: the best label of each document, and the reviewed cells."""
    enough = min(truth.sum(), (~truth).sum()) >= LEAST_OF_EACH
    area = [float(roc_auc_score(truth, side)) if enough else None for side in scores]
    loss = [_log_loss(side, truth) if enough else None for side in scores]
    return [
        _shares("P@1 on held-out documents", hits),
        _shares("Reviewed cells decided right", (scores > 0) == truth),
        Comparison("AUC on reviewed cells", area[0], area[1], len(truth)),
        Comparison("Log loss on reviewed cells", loss[0], loss[1], len(truth), greater_is_better=False),
    ]


def _shares(name: str, right: NDArray[np.bool_]) -> Comparison:
    """Compare how often two models are right.

    >>> _shares("a", np.array([[True, False, False, True], [True, True, True, False]]))[1:]
    (0.5, 0.75, 4, True, 2, 1)
    """
    n = right.shape[1]
    before, after = right.mean(axis=1).tolist() if n else (None, None)
    better, worse = int((right[1] & ~right[0]).sum()), int((right[0] & ~right[1]).sum())
    return Comparison(name, before, after, n, better=better, worse=worse)


def _log_loss(scores: NDArray, truth: NDArray) -> float:
    """Return the log loss of scores made probabilities by a logistic curve that was fitted on other cells."""
    curve = cross_val_predict(LogisticRegression(), scores[:, None], truth, cv=LEAST_OF_EACH, method="predict_proba")
    return float(log_loss(truth, curve))
