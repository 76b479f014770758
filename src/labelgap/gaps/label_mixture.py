"""Rows whose features are a mixture of what their labels bring: a model that judges each label beside the others."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from labelgap.calibration.logits import compute_logits, fit_logits
from labelgap.estimators.parameters import check_number
from labelgap.observations import as_labels
from labelgap.observations.arguments import LabelsLike, MatrixLike
from labelgap.runtime import row_blocks

MIN_VALUE = 1e-12
MIN_COUNT = 1.0  # words of each label, drawn like those of all rows
PRIOR_WEIGHT = 1.0  # of the coefficients
MAX_FITTED = 1 << 20  # cells


class LabelMixture(BaseEstimator):
    """Scores each label of a row by how well it explains the row's features beside the row's other labels.

    For counts of words and other features that are not negative. The words of a row are drawn from the mean of the
    distributions p_l of its labels, as in the labelled topic model of Ramage et al. (2009) with equal shares. A label
    l of a row with m other labels M then explains its words x by

        r = Σ_w x_w [log((q_w + p_lw) / (m + 1 + b)) − log(q_w / (m + b))],    q = Σ_{t ∈ M} p_t + b · p_0,

    where p_0 are the words of all rows and b is ``background``. The score is the log odds of the label, from r, the
    label's frequency, m and log(1 + m) by logistic regression over all cells. It needs the other labels of the row,
    so this is a model for :func:`labelgap.audit`, which compares labels that exist, and not for new rows.

    Parameters
    ----------
    background : float, default=0.3
        Share of words that no label of the row explains, as a number of labels.
    max_iter : int, default=50
        Steps of expectation–maximisation.

    Attributes
    ----------
    components_ : ndarray of shape (L, d)
        The distributions p_l.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Y = rng.random((300, 4)) < 0.5
    >>> X = rng.poisson(20 * Y @ (np.eye(4, 8) + np.eye(4, 8, 4)) / np.maximum(Y.sum(1, keepdims=True), 1))
    >>> scores = LabelMixture().fit(X, Y).score_labels(X, Y)
    >>> bool(scores[Y].mean() > scores[~Y].mean())
    True
    """

    def __init__(self, background: float = 0.3, max_iter: int = 50) -> None:
        self.background = background
        self.max_iter = max_iter

    def fit(self, X: MatrixLike, Y: LabelsLike) -> Self:
        """Fit the distributions of the labels, and the weights of the score."""
        check_number("background", self.background, Real, least=MIN_VALUE)
        check_number("max_iter", self.max_iter, Integral, least=1)
        X, S = _check_features(X), _indicate(Y)
        total = np.asarray(X.sum(axis=0), np.float64).ravel() + MIN_VALUE
        self._words = total / total.sum()
        P = np.tile(self._words, (S.shape[1], 1))
        for step in range(self.max_iter):
            P = self._count_words(X, S, None if step == 0 else P) + MIN_COUNT * self._words
            P /= P.sum(axis=1, keepdims=True)
        self.components_ = P
        self._log_odds = compute_logits((S.sum(axis=0) + 0.5) / (S.shape[0] + 1.0))
        chosen = np.arange(0, S.shape[0], max(S.shape[0] * S.shape[1] // MAX_FITTED, 1))
        X, S = X[chosen], S[chosen]
        design = np.concatenate([self._describe(X[rows], S[rows]) for rows in _blocks(X, S)])
        self._scale = np.maximum(np.abs(design).mean(axis=(0, 1)), MIN_VALUE)
        offset, yes = np.broadcast_to(self._log_odds, S.shape).ravel(), S.toarray().ravel() > 0
        design = (design / self._scale).reshape(len(yes), -1)
        prior = np.zeros(design.shape[1])
        self._weights = fit_logits(design, yes, np.ones(len(yes)), prior, PRIOR_WEIGHT, offset)[0] / self._scale
        return self

    def score_labels(self, X: MatrixLike, Y: LabelsLike) -> NDArray[np.float64]:
        """Return the log odds of each cell, given the row's features and its other labels, of shape (n, L)."""
        X, S = _check_features(X), _indicate(Y)
        blocks = [self._describe(X[rows], S[rows]) @ self._weights for rows in _blocks(X, S)]
        return self._log_odds + np.concatenate(blocks)

    def _count_words(self, X: sp.csr_array, S: sp.csr_array, P: NDArray | None) -> NDArray[np.float64]:
        """Return the words that each label brings to all rows, shape (L, d); in the first step equal shares."""
        counts = np.zeros((S.shape[1], X.shape[1]))
        for rows in _blocks(X, S):
            words, written = X[rows], S[rows]
            if P is None:
                counts += (written.T @ words).toarray()
                continue
            i = np.repeat(np.arange(words.shape[0]), np.diff(words.indptr))
            mixed = (written @ P + self.background * self._words)[i, words.indices]
            counts += P * (written.T @ sp.csr_array((words.data / mixed, words.indices, words.indptr), words.shape))
        return counts

    def _describe(self, X: sp.csr_array, S: sp.csr_array) -> NDArray[np.float64]:
        """Return 1, r, r · m, m and log(1 + m) of each cell, shape (n, L, 5)."""
        written, b = S.toarray(), self.background
        m = written.sum(axis=1, keepdims=True) - written
        i = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
        mixed = (written @ self.components_ + b * self._words)[i, X.indices]
        r = -np.log((m + 1 + b) / (m + b)) * np.asarray(X.sum(axis=1)).reshape(-1, 1)
        for label, words in enumerate(self.components_):
            brought = words[X.indices]
            others = np.maximum(mixed - written[i, label] * brought, b * self._words[X.indices])
            r[:, label] += np.bincount(i, X.data * np.log1p(brought / others), X.shape[0])
        return np.stack([np.ones_like(r), r, r * m, m, np.log1p(m)], axis=-1)


def _check_features(X: Any) -> sp.csr_array:
    X = sp.csr_array(X, dtype=np.float64)
    if X.nnz and X.data.min() < 0:
        raise ValueError(
            f"X holds {X.data.min():g}, but LabelMixture needs features that are not negative, as counts."
        )
    return X


def _blocks(X: sp.csr_array, S: sp.csr_array) -> Iterator[slice]:
    return row_blocks(X.shape[0], max(X.shape[1], S.shape[1]))


def _indicate(Y: Any) -> sp.csr_array:
    return sp.csr_array(as_labels(Y).positives, dtype=np.float64)
