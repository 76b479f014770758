"""Cells scored by models that have not seen them: all positives, the best absent labels of each row, and a sample."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import check_random_state, gen_batches

from labelgap.estimators.pieces import remembered
from labelgap.gaps.learners import fitted, scores_of
from labelgap.model_selection.criteria import labels_for
from labelgap.observations import Labels
from labelgap.runtime import progress

CELLS_PER_BLOCK = 1 << 22


class Cells(NamedTuple):
    """Some cells of a label matrix, each standing for as many as its weight says.

    Attributes
    ----------
    rows, labels : ndarray of int
        Where they are.
    scores : ndarray of float
        Decision values of a model that was fitted without their rows.
    positive : ndarray of bool
        Whether the label is given.
    weights : ndarray of float
        1 for positives and for the best absent labels; as many as they stand for for those drawn from the rest.
    drawn : ndarray of bool
        Whether it was drawn, perhaps more than once.
    """

    rows: NDArray[np.int64]
    labels: NDArray[np.int64]
    scores: NDArray[np.float64]
    positive: NDArray[np.bool_]
    weights: NDArray[np.float64]
    drawn: NDArray[np.bool_]

    def where(self, kept: NDArray) -> Cells:
        """Return those of a mask or an index."""
        return Cells(*(part[kept] for part in self))

    def order(self) -> Cells:
        """Return them row by row, labels in order."""
        return self.where(np.lexsort((self.labels, self.rows)))


class Start(NamedTuple):
    """A generator before its first draw."""

    generator: dict[str, Any]


class Judged(NamedTuple):
    """The cells of one fold, and the generator after it."""

    cells: dict[str, NDArray]
    generator: dict[str, Any]


def score_out_of_fold(
    estimator: Any,
    X: Any,
    labels: Labels,
    *,
    n_folds: int,
    rng: np.random.RandomState,
    candidates: int = 30,
    sampled: int = 20,
) -> Cells:
    """Return cells of every row, scored by a clone of an estimator that was fitted on the rows of the other folds.

    Of each row there are all positives, the ``candidates`` best labels that are not given, and ``sampled`` others,
    drawn with replacement; unknown cells are left out. ``rng`` is of :func:`resumed_generator`.
    """
    fold = rng.permutation(np.arange(len(labels)) % min(n_folds, len(labels)))
    parts = []
    with progress(fold.max() + 1, "Folds", 0) as advance:
        for number in range(fold.max() + 1):
            held = fold == number
            judge = partial(_judge, estimator, X, labels, held, candidates, sampled, rng)
            found = remembered("fold", judge, Judged)
            rng.set_state(found.generator)
            parts.append(Cells(**found.cells))
            advance(f"{held.sum()} rows")
    return _joined(parts).order()


def resumed_generator(random_state: Any) -> np.random.RandomState:
    """Return the generator of a seed; within a checkpoint it begins as it did in the process before.

    What is drawn from it first, such as folds, is then the same again, also without a seed.
    """
    rng = check_random_state(random_state)
    if isinstance(random_state, Integral):  # is the same again as it is; an error in the first fold leaves no piece
        return rng
    if rng.get_state(legacy=False)["bit_generator"] != "MT19937":  # the only one that can be set
        rng = np.random.RandomState(rng.randint(1 << 32, dtype=np.uint32))
    start = remembered("generator", lambda: Start(rng.get_state(legacy=False)), Start)
    rng.set_state(start.generator)
    return rng


def _judge(
    estimator: Any,
    X: Any,
    labels: Labels,
    held: NDArray[np.bool_],
    candidates: int,
    sampled: int,
    rng: np.random.RandomState,
) -> Judged:
    """Return the cells of the rows held out, scored by a model of the others."""
    train = np.flatnonzero(~held)
    model = fitted(estimator, _take(X, train), labels[train])
    parts = []
    for rows in _blocks(np.flatnonzero(held), labels.shape[1]):
        scores = scores_of(model, _take(X, rows))
        parts.append(_pick(scores, rows, labels[rows], candidates, sampled, rng))
    return Judged(_joined(parts)._asdict(), rng.get_state(legacy=False))


def _joined(parts: list[Cells]) -> Cells:
    return Cells(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _take(X: Any, rows: NDArray) -> Any:
    """Return some rows of a matrix or of a list of texts."""
    if sp.issparse(X) or isinstance(X, np.ndarray):
        return X[rows]
    return X.iloc[rows] if hasattr(X, "iloc") else [X[i] for i in rows.tolist()]


def _blocks(rows: NDArray, n_labels: int) -> Iterator[NDArray]:
    for part in gen_batches(len(rows), max(1, CELLS_PER_BLOCK // n_labels)):
        yield rows[part]


def _pick(
    scores: NDArray, rows: NDArray, labels: Labels, candidates: int, sampled: int, rng: np.random.RandomState
) -> Cells:
    """Pick cells of a block of rows."""
    given = labels.positives.toarray()
    known = np.ones_like(given) if labels.known is None else labels.known.toarray()
    yes = _cells(scores, rows, np.nonzero(given), positive=True)
    rest = np.where(known & ~given, scores, -np.inf)
    k = min(candidates, scores.shape[1])
    best = np.argpartition(-rest, k - 1, axis=1)[:, :k]
    chosen = np.zeros_like(given)
    np.put_along_axis(chosen, best, True, axis=1)
    chosen &= np.isfinite(rest)
    top = _cells(scores, rows, np.nonzero(chosen), positive=False)
    others = known & ~given & ~chosen
    drawn, weights = _draw(others, sampled, rng)
    sample = _cells(scores, rows, drawn, positive=False, weights=weights)
    return Cells(*(np.concatenate(column) for column in zip(yes, top, sample, strict=True)))


def _cells(
    scores: NDArray, rows: NDArray, where: tuple[NDArray, ...], *, positive: bool, weights: NDArray | None = None
) -> Cells:
    i, j = where
    drawn = np.full(len(i), weights is not None)
    weights = np.ones(len(i)) if weights is None else weights
    return Cells(rows[i], j.astype(np.int64), scores[i, j], np.full(len(i), positive), weights, drawn)


def _draw(
    others: NDArray[np.bool_], sampled: int, rng: np.random.RandomState
) -> tuple[tuple[NDArray, NDArray], NDArray[np.float64]]:
    """Draw so many of the marked cells of each row, with replacement; their weights sum to how many there were."""
    counts = others.sum(axis=1)
    rows = np.repeat(np.flatnonzero(counts), sampled)
    ranks = (rng.random_sample(len(rows)) * counts[rows]).astype(np.int64)
    starts = np.cumsum(counts) - counts
    columns = np.nonzero(others)[1][starts[rows] + ranks] if len(rows) else np.empty(0, np.int64)
    return (rows, columns), counts[rows] / max(sampled, 1)


def known_labels(Y: Any, observed: Any, estimator: Any) -> Labels:
    """Return labels of any form as an estimator reads them, or say that they have no cell."""
    labels = labels_for(estimator, Y, observed)
    if 0 in labels.shape:
        raise ValueError(f"Y has shape {labels.shape}; pass at least one row and one label.")
    return labels
