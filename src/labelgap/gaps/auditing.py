"""The audit: labels that are probably missing, and labels that are probably wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelgap.calibration import Calibration
from labelgap.calibration.curves import MIN_PROBABILITY
from labelgap.calibration.scored_cells import ScoredCells
from labelgap.calibration.written import STANDARD_ERRORS_95, estimate_written
from labelgap.estimators.parameters import check_number
from labelgap.gaps.out_of_fold import check_labels, make_resumable_generator, score_out_of_fold

LABEL_SCALE = 0.03  # of the calibration; a curve close to a label's own written cells would not doubt them
BOTTOM_SHARE = 0.1  # of all cells: number of bottom cells from which the share of wrong labels is estimated


class Suggestions(NamedTuple):
    """Cells with the probability that the label is missing (or wrong), in descending order."""

    rows: NDArray[np.int64]
    labels: NDArray[np.int64]
    probabilities: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.rows)

    def first(self, k: int) -> Suggestions:
        """Return the k most probable suggestions."""
        return Suggestions(self.rows[:k], self.labels[:k], self.probabilities[:k])

    def of_row(self, row: int) -> Suggestions:
        """Return the suggestions for a row."""
        return self._select(self.rows == row)

    def of_label(self, label: int) -> Suggestions:
        """Return the suggestions for a label."""
        return self._select(self.labels == label)

    def expected_precision(self, k: int | None = None) -> float:
        """Return the expected share of correct suggestions among the first k, or all; NaN if there are none."""
        return float(self.probabilities[:k].mean()) if len(self.probabilities[:k]) else float("nan")

    def _select(self, mask: NDArray) -> Suggestions:
        return Suggestions(self.rows[mask], self.labels[mask], self.probabilities[mask])


@dataclass(frozen=True)
class Audit:
    """Result of an audit.

    Attributes
    ----------
    missing : Suggestions
        Labels that a row does not have and probably should have.
    doubtful : Suggestions
        Labels that a row has and probably should not have.
    written : ndarray of shape (L,)
        The estimated share of the true positives of each label that are written.
    n_missing : ndarray of shape (L,)
        The estimated number of true positives of each label that are not written.
    error : float
        The standard error of the estimated share of missing positives.
    """

    missing: Suggestions
    doubtful: Suggestions
    written: NDArray[np.float64]
    n_missing: NDArray[np.float64]
    error: float

    @property
    def share_missing(self) -> float:
        """The estimated share of all true positives that are missing."""
        n_written = float((self.n_missing * self.written / np.maximum(1 - self.written, MIN_PROBABILITY)).sum())
        total = n_written + float(self.n_missing.sum())
        return float(self.n_missing.sum()) / total if total else 0.0

    @property
    def share_missing_interval(self) -> tuple[float, float]:
        """A 95 % confidence interval of ``share_missing``, under the assumption of :func:`audit`."""
        share, half_width = self.share_missing, STANDARD_ERRORS_95 * self.error
        return max(0.0, share - half_width), min(1.0, share + half_width)

    def records(
        self, label_names: Sequence[str] | None = None, top: int | None = None
    ) -> Iterator[tuple[int, str, str, float]]:
        """Yield (row, label, "missing" or "doubtful", probability): all missing labels, then all doubtful ones.

        With ``top``, yield only the most probable suggestions of each kind.
        """
        for kind, suggestions in (("missing", self.missing), ("doubtful", self.doubtful)):
            for i, j, p in zip(*(field[:top] for field in suggestions), strict=True):
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
    """Rank the labels that are probably missing, and those that are probably wrong.

    A model that was fitted without the row scores its cells, and the scores are calibrated to
    f = P(label is written | row). The other labels of the row are not used: if every row has at least one label, a
    row without others would reveal its own. The audit assumes that a true positive of label j is written with the
    same probability c_j in every row ("missing at random per label"). Then

        P(positive | not written) = (1 − c) / c · f / (1 − f),   at most 1            (Elkan and Noto 2008).

    A written label is wrong with probability ε (1 − g) / f, where g = (f − ε) / (c − ε) is the probability of a
    positive and ε the share of negatives that are written. ε is the share of written labels among the tenth of all
    cells with the smallest f, or among as many cells as are absent if these are fewer. If that share is not below c,
    or no cell is known to be absent, ε is 0.

    c_j is the share of written labels among the cells with the largest f, nearly all of which are positives. Their
    number is 5 % of the positives; if that is less than 400, cells are added up to 400 while the share does not fall
    significantly. c_j is pulled to the share c of all labels, in proportion to the number of its cells. Probabilities
    use c, since c_j is too imprecise to change the order.

    If some of the cells with the largest f are negatives, c is too small, and too many labels seem to be missing; if
    some of those with the smallest f are positives, ε is too large, and too many labels seem to be wrong.

    Parameters
    ----------
    X : array-like, sparse matrix or list of texts, n rows
        Rows that the estimator accepts.
    Y : labels of any form, (n, L)
        A label that is not written may be missing. Unknown cells are neither suggested nor used for fitting.
    estimator : estimator
        Cloned and fitted ``n_folds`` times. If Y has no unknown cell, it may be a multi-label estimator of
        scikit-learn, such as ``OneVsRestClassifier(LogisticRegression())``.
    observed : array-like or sparse matrix, optional
        True where Y is known.
    n_folds : int, default=5
        Number of folds.
    candidates : int, default=30
        Maximum number of missing labels to suggest for a row.
    random_state : int, RandomState or None
        Seed of the folds and of the sample of cells for the calibration.

    Returns
    -------
    Audit

    Examples
    --------
    >>> from labelgap import LEML, hide_positives
    >>> from labelgap.datasets import make_low_rank
    >>> data = make_low_rank(400, 20, 10, rank=4, random_state=0)
    >>> written = hide_positives(data.Y, 0.7, random_state=0)
    >>> missing = audit(data.X, written, LEML(4, alpha=1.0, random_state=0), random_state=0).missing.first(50)
    >>> bool(data.Y.toarray()[missing.rows, missing.labels].mean() > 0.8)
    True
    """
    check_number("n_folds", n_folds, int, least=2)
    check_number("candidates", candidates, int, least=1)
    labels = check_labels(Y, observed, estimator)
    if labels.positives.nnz == 0:
        raise ValueError("Y has no positive label; an audit needs some to learn from.")
    if len(labels) < 2 or (labels.known is not None and np.count_nonzero(np.diff(labels.known.indptr)) < 2):
        raise ValueError("Y has known labels in one row only; an audit needs at least two such rows.")
    rng = make_resumable_generator(random_state)
    cells = score_out_of_fold(estimator, X, labels, n_folds=n_folds, rng=rng, candidates=candidates)
    calibration = Calibration(labels.shape[1], own=LABEL_SCALE)
    calibration.fit(cells.scores, cells.labels, cells.positive, cells.weights)
    f = calibration.predict(cells.scores, cells.labels)
    c, error, shares, _ = estimate_written(cells, f, labels)
    absent = np.flatnonzero(~cells.positive & ~cells.sampled)
    missing = _rank_cells(cells, absent, (1 - c) / c * f[absent] / (1 - f[absent]))
    written, epsilon = np.flatnonzero(cells.positive), estimate_wrong(cells, f, c)
    g = np.clip((f[written] - epsilon) / (c - epsilon), 0.0, 1.0)
    doubtful = _rank_cells(cells, written, epsilon * (1 - g) / f[written])
    counts = np.bincount(labels.positives.indices, minlength=labels.shape[1])
    return Audit(missing, doubtful, shares, counts * (1 / shares - 1), error)


def _rank_cells(cells: ScoredCells, index: NDArray, estimates: NDArray) -> Suggestions:
    """Return cells in descending order of the estimates, which are clipped to probabilities after sorting."""
    order = np.argsort(-estimates, kind="stable")
    index = index[order]
    return Suggestions(cells.rows[index], cells.labels[index], np.clip(estimates[order], 0.0, 1.0))


# --- share of wrong labels --------------------------------------------------------------------------


def estimate_wrong(cells: ScoredCells, f: NDArray, c: float) -> float:
    """Estimate ε, the share of negatives that are written, from the tenth of the cells with the smallest f.

    If fewer cells than that are absent, only so many cells are used: more would include correct labels. Return 0 if
    the share is not below c, since it is then no share of wrong labels.

    >>> column, positive = np.zeros(20, int), np.arange(20) < 5
    >>> cells = ScoredCells(np.arange(20), column, np.zeros(20), positive, np.ones(20), column > 0)
    >>> f = np.linspace(0.9, 0.1, 20)
    >>> f[4] = 0.0
    >>> estimate_wrong(cells, f, 0.8), estimate_wrong(cells, f, 0.5)
    (0.5, 0.0)
    """
    n_absent = float(cells.weights[~cells.positive].sum())
    order = np.argsort(f, kind="stable")
    cumulated = np.cumsum(cells.weights[order])
    bottom = order[: np.searchsorted(cumulated, min(BOTTOM_SHARE * cumulated[-1], n_absent)) + 1]
    share = float(np.average(cells.positive[bottom], weights=cells.weights[bottom]))
    return share if share < c else 0.0
