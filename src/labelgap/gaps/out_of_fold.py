"""Scores of cells by models that were fitted without their rows.

The cells are all positives, the best absent labels of each row, and a random sample of the other absent ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state

from labelgap.calibration.scored_cells import ScoredCells, choose_cells, concatenate_cells
from labelgap.checkpoints import checkpoint_call, checkpoint_calls
from labelgap.estimators import as_labels_for, get_final_estimator
from labelgap.estimators.scores import BlockScores, FoldScorer
from labelgap.kernels import get_backend
from labelgap.observations import Labels
from labelgap.runtime import progress, row_blocks

MAX_SAMPLED = 1 << 19  # cells of all rows: a calibration needs no more, and memory grows with them


class GeneratorState(NamedTuple):
    """State of a random generator before its first draw."""

    generator: dict[str, Any]


class FoldCells(NamedTuple):
    """Scored cells of one fold."""

    cells: dict[str, NDArray]


def score_out_of_fold(
    estimator: Any,
    X: Any,
    labels: Labels,
    *,
    n_folds: int,
    rng: np.random.RandomState,
    candidates: int = 30,
    n_sampled: int = 20,
    groups: Any = None,
    report: Callable[[ScoredCells], None] | None = None,
) -> ScoredCells:
    """Return cells of every row, scored by a clone of the estimator that was fitted on the other folds.

    Each row contributes all positives, the ``candidates`` best absent labels, and ``n_sampled`` other absent ones (of
    very many rows fewer), drawn with replacement; unknown cells are left out. ``rng`` comes from
    :func:`make_resumable_generator`. Rows of one group, and equal rows, are in one fold. ``report`` gets the cells so
    far after each fold but the last.
    """
    fold = draw_folds(find_units(X, groups, len(labels)), n_folds, rng)
    score_rows = prepare_folds(estimator, X, labels)
    compute = getattr(estimator, "_compute", nullcontext)
    seeds = rng.randint(1 << 31, size=fold.max() + 1)  # folds may run on other machines, in any order
    n_sampled = _limit_sample(n_sampled, len(labels))
    score = partial(_score_fold, score_rows, compute, labels, fold, candidates=candidates, n_sampled=n_sampled)
    tasks, parts = [partial(score, number, seed) for number, seed in enumerate(seeds)], []
    with progress(len(tasks), "Folds", 0) as advance:
        for number, scores in enumerate(checkpoint_calls("fold", tasks, FoldCells, at_once=1)):
            parts.append(ScoredCells(**scores.cells))
            advance(f"{(fold == number).sum()} rows")
            if report is not None and number < len(tasks) - 1:
                parts = [concatenate_cells(parts)]
                report(parts[0])
    cells = concatenate_cells(parts)
    return cells.select(np.lexsort((cells.labels, cells.rows)))


def choose_probable_cells(
    probabilities: Any, labels: Labels, *, rng: np.random.RandomState, candidates: int = 30, n_sampled: int = 20
) -> ScoredCells:
    """Return cells of every row with the given probabilities as scores, as :func:`score_out_of_fold` does."""
    if tuple(np.shape(probabilities)) != tuple(labels.shape):
        raise ValueError(
            f"probabilities has shape {np.shape(probabilities)} and Y {tuple(labels.shape)}; pass one for each cell."
        )
    matrix: Any = sp.csr_array(probabilities) if sp.issparse(probabilities) else np.asarray(probabilities)
    parts, n_sampled = [], _limit_sample(n_sampled, len(labels))
    for rows in row_blocks(*labels.shape):
        block = _as_scores(matrix[rows].toarray() if sp.issparse(matrix) else matrix[rows])
        if not np.isfinite(block).all():
            raise ValueError("probabilities holds NaN or infinite values; pass a number for each cell.")
        numbers = np.arange(rows.start, rows.start + len(block))
        parts.append(choose_cells(block, numbers, labels[rows], candidates, n_sampled, rng))
    return concatenate_cells(parts)


def _limit_sample(n_sampled: int, n_rows: int) -> int:
    """Return the number of absent cells to sample of each row, so that all rows have at most ``MAX_SAMPLED``.

    >>> _limit_sample(20, 1000), _limit_sample(20, 100_000)
    (20, 5)
    """
    return min(n_sampled, max(MAX_SAMPLED // n_rows, 1))


def find_units(X: Any, groups: Any, n: int) -> NDArray[np.int64]:
    """Return the number of the unit of each row; equal rows and rows of one group are in one unit.

    >>> find_units(["a", "b", "a", "c"], None, 4).tolist(), find_units(["a", "b", "a", "c"], [1, 1, 2, 3], 4).tolist()
    ([0, 1, 0, 2], [0, 0, 0, 1])
    """
    units = _number_values(_row_keys(X), n)
    if groups is None:
        return units
    if len(groups) != n:
        raise ValueError(f"groups has {len(groups)} values and Y {n} rows; pass one for each row.")
    named = _number_values(list(groups), n)
    ends = units.max() + 1
    links = sp.coo_array((np.ones(n, np.int8), (units, ends + named)), shape=(ends + named.max() + 1,) * 2)
    return sp.csgraph.connected_components(links, directed=False)[1][units].astype(np.int64)


def _row_keys(X: Any) -> list[Any]:
    """Return a value for each row that equal rows share."""
    if sp.issparse(X):
        csr = sp.csr_array(X)
        pairs = zip(csr.indptr[:-1], csr.indptr[1:], strict=True)
        return [(csr.indices[a:b].tobytes(), csr.data[a:b].tobytes()) for a, b in pairs]
    if isinstance(X, np.ndarray) and X.dtype != object:
        return [row.tobytes() for row in np.ascontiguousarray(X)]
    if hasattr(X, "iloc"):
        return [repr(row) for row in X.to_numpy().tolist()]
    return [row if isinstance(row, str) else repr(row) for row in X]


def _number_values(values: list[Any], n: int) -> NDArray[np.int64]:
    """Return numbers of values in the order of their first occurrence."""
    numbers: dict[Any, int] = {}
    return np.fromiter((numbers.setdefault(value, len(numbers)) for value in values), np.int64, n)


def draw_folds(units: NDArray[np.int64], n_folds: int, rng: np.random.RandomState) -> NDArray[np.int64]:
    """Return the fold of each row: units are dealt out at random, and rows follow their unit."""
    n_units = int(units.max(initial=0)) + 1
    return rng.permutation(np.arange(n_units) % min(n_folds, n_units))[units]


def make_resumable_generator(random_state: Any) -> np.random.RandomState:
    """Return a random generator; in a resumed process it starts from the same state, also without a seed."""
    rng = check_random_state(random_state)
    if isinstance(random_state, Integral):  # a seed reproduces the state without a checkpoint
        return rng
    if rng.get_state(legacy=False)["bit_generator"] != "MT19937":  # RandomState.set_state accepts no other
        rng = np.random.RandomState(rng.randint(1 << 32, dtype=np.uint32))
    state = checkpoint_call("generator", lambda: GeneratorState(rng.get_state(legacy=False)), GeneratorState)
    rng.set_state(state.generator)
    return rng


def check_labels(Y: Any, observed: Any, estimator: Any) -> Labels:
    """Return labels of any form as the estimator reads them; raise ValueError if they have no cell."""
    labels = as_labels_for(estimator, Y, observed)
    if 0 in labels.shape:
        raise ValueError(f"Y has shape {labels.shape}; pass at least one row and one label.")
    return labels


def fit_clone(estimator: Any, X: Any, labels: Labels) -> Any:
    """Return a fitted clone; estimators that do not accept :class:`Labels` are fitted on a matrix of 0 and 1.

    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> fit_clone(KNeighborsClassifier(1), [[0.0], [1.0]], Labels([[1, 0], [0, 1]])).predict([[0.9]])
    array([[0, 1]], dtype=int8)
    """
    final = get_final_estimator(estimator)
    if hasattr(final, "absent"):
        return clone(estimator).fit(X, labels)
    if not labels.complete:
        name = type(final).__name__
        raise ValueError(f"Y has unknown cells, and {name} does not take them; pass an estimator of labelgap.")
    return clone(estimator).fit(X, labels.positives.toarray().astype(np.int8))


def compute_scores(model: Any, X: Any) -> NDArray[np.float64]:
    """Return decision values, or probabilities if the model has no ``decision_function``, of shape (n, L).

    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> compute_scores(KNeighborsClassifier(2).fit([[0.0], [1.0]], np.array([[1, 0], [1, 1]])), [[0.9]])
    array([[1. , 0.5]])
    """
    final = get_final_estimator(model)
    if hasattr(model, "decision_function"):
        scores = model.decision_function(X)
    elif hasattr(model, "predict_proba"):
        scores = model.predict_proba(X)
        if isinstance(scores, list):  # one array per label; class 1 may be absent
            pairs = zip(scores, final.classes_, strict=True)
            scores = np.column_stack([values[:, np.asarray(classes) == 1].sum(axis=1) for values, classes in pairs])
    else:
        name = type(final).__name__
        raise ValueError(f"{name} has neither decision_function nor predict_proba; pass an estimator that scores.")
    scores = _as_scores(scores)
    return scores[:, None] if scores.ndim == 1 else scores


def _as_scores(values: Any) -> NDArray:
    """Return an array of real numbers; those of float32 stay so, and take half the memory."""
    array = np.asarray(values)
    return array.astype(np.result_type(array.dtype, np.float32), copy=False)


def prepare_folds(estimator: Any, X: Any, labels: Labels) -> FoldScorer:
    """Return a function of training rows and held-out rows that returns the scores of the latter.

    An estimator whose folds share work has a method ``_prepare_folds`` that returns such a function, or None if its
    parameters do not allow it. Otherwise a clone is fitted for each fold.

    >>> from labelgap import BinaryRelevance
    >>> X, labels = np.array([[1.0], [2.0], [3.0]]), Labels([[1], [0], [1]])
    >>> score = prepare_folds(BinaryRelevance(loss="squared"), X, labels)
    >>> score(np.array([0, 1]), np.array([2])).dense().shape
    (1, 1)
    """
    prepare = getattr(clone(estimator), "_prepare_folds", None)
    score = None
    if prepare is not None:
        with estimator._compute():
            score = prepare(X, labels)

    def fit_and_score(train: NDArray, held_out: NDArray) -> BlockScores:
        return BlockScores(partial(_fit_and_score, estimator, X, labels, train, held_out), get_backend())

    return fit_and_score if score is None else score


def _fit_and_score(estimator: Any, X: Any, labels: Labels, train: NDArray, held_out: NDArray) -> Iterator[NDArray]:
    """Fit a clone on the training rows and yield the scores of the held-out rows, block by block."""
    model = fit_clone(estimator, _take_rows(X, train), labels[train])
    final = get_final_estimator(model)
    for block in row_blocks(len(held_out), labels.shape[1]):
        rows = _take_rows(X, held_out[block])
        if hasattr(final, "score_labels"):  # beside the other labels of the row
            yield final.score_labels(rows if final is model else model[:-1].transform(rows), labels[held_out[block]])
        else:
            yield compute_scores(model, rows)


def _score_fold(
    score_rows: FoldScorer,
    compute: Callable[[], AbstractContextManager],
    labels: Labels,
    fold: NDArray[np.int64],
    number: int,
    seed: int,
    *,
    candidates: int,
    n_sampled: int,
) -> FoldCells:
    """Score cells of the rows of a fold by a model of the other rows."""
    train, test, rng = np.flatnonzero(fold != number), np.flatnonzero(fold == number), np.random.RandomState(seed)
    with compute():
        scores = score_rows(train, test)
        return FoldCells(scores.choose_cells(test, labels[test], candidates, n_sampled, rng)._asdict())


def _take_rows(X: Any, rows: NDArray) -> Any:
    """Return rows of a matrix, a data frame or a list of texts."""
    if sp.issparse(X) or isinstance(X, np.ndarray):
        return X[rows]
    return X.iloc[rows] if hasattr(X, "iloc") else [X[i] for i in rows.tolist()]
