"""Which labels were forgotten, and which are wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelgap.estimators.parameters import check_number
from labelgap.gaps.calibration import CLIP, Calibration
from labelgap.gaps.cells import Cells, known_labels, resumed_generator, score_out_of_fold
from labelgap.gaps.shares import estimate_written, estimate_wrong
from labelgap.observations import Labels

INTERVAL = 1.96  # standard errors to either side, for 95 %
OWN = 0.03  # nearly nothing: a curve that follows a label's own written cells would believe them


class Suggestions(NamedTuple):
    """Cells with the probability that a label is missing (or wrong), the likeliest first."""

    rows: NDArray[np.int64]
    labels: NDArray[np.int64]
    probabilities: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.rows)

    def first(self, k: int) -> Suggestions:
        """Return the k likeliest."""
        return Suggestions(self.rows[:k], self.labels[:k], self.probabilities[:k])

    def of_row(self, row: int) -> Suggestions:
        """Return those of one row."""
        return self._where(self.rows == row)

    def of_label(self, label: int) -> Suggestions:
        """Return those of one label."""
        return self._where(self.labels == label)

    def expected_precision(self, k: int | None = None) -> float:
        """Return how many of the first k are expected to be right, as a share; NaN where there is none."""
        return float(self.probabilities[:k].mean()) if len(self.probabilities[:k]) else float("nan")

    def _where(self, kept: NDArray) -> Suggestions:
        return Suggestions(self.rows[kept], self.labels[kept], self.probabilities[kept])


@dataclass(frozen=True)
class Audit:
    """What an audit found.

    Attributes
    ----------
    missing : Suggestions
        Labels that a row does not have and probably should.
    doubtful : Suggestions
        Labels that a row has and probably should not.
    written : ndarray of shape (L,)
        The estimated share of a label's true positives that are written down.
    n_missing : ndarray of shape (L,)
        The estimated number of positives that are not.
    error : float
        The standard error of the share that is missing, by chance in which of the surest cells are written down.
    """

    missing: Suggestions
    doubtful: Suggestions
    written: NDArray[np.float64]
    n_missing: NDArray[np.float64]
    error: float

    @property
    def share_missing(self) -> float:
        """The estimated share of all true positives that are missing."""
        there = float((self.n_missing * self.written / np.maximum(1 - self.written, CLIP)).sum())
        total = there + float(self.n_missing.sum())
        return float(self.n_missing.sum()) / total if total else 0.0

    @property
    def share_missing_interval(self) -> tuple[float, float]:
        """Where that share lies with 95 %, if the assumption holds."""
        share, wide = self.share_missing, INTERVAL * self.error
        return max(0.0, share - wide), min(1.0, share + wide)

    def records(
        self, label_names: Sequence[str] | None = None, top: int | None = None
    ) -> Iterator[tuple[int, str, str, float]]:
        """Yield (row, label, "missing" or "doubtful", probability), both lists one after the other."""
        for kind, found in (("missing", self.missing), ("doubtful", self.doubtful)):
            for i, j, p in zip(*found.first(len(found) if top is None else top), strict=True):
                yield int(i), str(j) if label_names is None else str(label_names[j]), kind, float(p)


def audit(
    X: Any,
    Y: Any,
    estimator: Any,
    *,
    observed: Any = None,
    n_folds: int = 5,
    candidates: int = 30,
    random_state: Any = None,
) -> Audit:
    """Rank the labels that were probably forgotten, and those that are probably wrong.

    Each row is scored by a model that was fitted without it, and the scores are calibrated to
    f = P(label is written | row). What other labels the row has does not enter: where every row has one at least, a
    row without others would give its own label away. Under the assumption that a positive of label j is written down
    with the same probability c_j in every row ("missing at random per label"),

        P(positive | not written) = (1 − c) / c · f / (1 − f),   at most 1            (Elkan and Noto 2008).

    A label that is there is wrong with the probability ε (1 − g) / f, where g = (f − ε) / (c − ε) is that of a
    positive and ε the share of the negatives that are written down, read off the least likely tenth of all cells, or
    as many as there are absent cells, if these are fewer. Where that share is not below c, the scores tell nothing
    about wrong labels, and ε is 0; so it is where no cell is known to be absent.

    c_j is the share of written labels among the surest cells, where a positive is all but certain: it is read off the
    cells with the largest f, as many as 5 % of the positives, for each label as far as it has such cells and else for
    all. Where that is less than 400 cells, more are taken up to 400 while the share stays the same, but for chance.
    Probabilities take the share c of all labels, since that of one is too rough to change an order. If even the
    surest cells are not all positive, c is too small and too many labels seem to be missing; if even the least likely
    are not all negative, ε is too large and too many seem to be wrong.

    Parameters
    ----------
    X : array-like, sparse matrix or list of texts, n rows
        What the estimator takes.
    Y : labels of any form, (n, L)
        A label that is not there may be missing; an unknown cell is neither suggested nor learned from.
    estimator : estimator
        Cloned and fitted ``n_folds`` times; where Y has no unknown cell, it may be one of scikit-learn's for several
        labels, such as ``OneVsRestClassifier(LogisticRegression())``.
    observed : array-like or sparse matrix, optional
        True where Y is known.
    n_folds : int, default=5
        The number of models.
    candidates : int, default=30
        The most suggestions for one row.
    random_state : int, RandomState or None
        Seeds the folds and the sample of cells for the calibration.

    Returns
    -------
    Audit

    Examples
    --------
    >>> from labelgap import LEML, hide_positives
    >>> from labelgap.datasets import make_low_rank
    >>> data = make_low_rank(400, 20, 10, rank=4, random_state=0)
    >>> written = hide_positives(data.Y, 0.7, random_state=0)
    >>> found = audit(data.X, written, LEML(4, alpha=1.0, random_state=0), random_state=0).missing.first(50)
    >>> bool(data.Y.toarray()[found.rows, found.labels].mean() > 0.8)
    True
    """
    check_number("n_folds", n_folds, int, least=2)
    check_number("candidates", candidates, int, least=1)
    labels = known_labels(Y, observed, estimator)
    _check_enough(labels)
    rng = resumed_generator(random_state)
    cells = score_out_of_fold(estimator, X, labels, n_folds=n_folds, rng=rng, candidates=candidates)
    written = probability_written(cells, labels)
    overall, error, shares = estimate_written(cells, written, labels)
    counts = np.bincount(labels.positives.indices, minlength=labels.shape[1])
    missing, doubtful = _missing(cells, written, overall), _doubtful(cells, written, overall)
    return Audit(missing, doubtful, shares, counts * (1 / shares - 1), error)


def _check_enough(labels: Labels) -> None:
    """Refuse labels that no model could be learned from and judge the rest."""
    if labels.positives.nnz == 0:
        raise ValueError("Y has no positive label; an audit needs some to learn from.")
    if len(labels) < 2 or (labels.known is not None and np.count_nonzero(np.diff(labels.known.indptr)) < 2):
        raise ValueError(
            "Y has known labels in one row only; an audit learns from some rows to judge others: pass at least two."
        )


def probability_written(cells: Cells, labels: Labels) -> NDArray[np.float64]:
    """Return f, the calibrated probability of each cell that its label is written down."""
    calibration = Calibration(labels.shape[1], own=OWN)
    calibration.fit(cells.scores, cells.labels, cells.positive, cells.weights)
    return calibration.predict(cells.scores, cells.labels)


def _missing(cells: Cells, written: NDArray, c: float) -> Suggestions:
    absent = np.flatnonzero(~cells.positive & ~cells.drawn)
    f = written[absent]
    return _ranked(cells.where(absent), (1 - c) / c * f / (1 - f))


def _doubtful(cells: Cells, written: NDArray, c: float) -> Suggestions:
    there, noise = np.flatnonzero(cells.positive), estimate_wrong(cells, written, c)
    f = written[there]
    positive = np.clip((f - noise) / (c - noise), 0.0, 1.0)
    return _ranked(cells.where(there), noise * (1 - positive) / f)


def _ranked(cells: Cells, estimates: NDArray) -> Suggestions:
    """Return cells in the order of what the formula says, which noise may take beyond 0 and 1, as probabilities."""
    order = np.argsort(-estimates, kind="stable")
    return Suggestions(cells.rows[order], cells.labels[order], np.clip(estimates[order], 0.0, 1.0))
