"""Scores to probabilities, learned from cells that the scores have not seen."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

PENALTY = 1.0
CLIP = 1e-6
BINS = 25
SLOPE = 1e-3


class Calibration:
    """P(yes | score) for each label: a monotone curve shared by all labels, bent a little by terms of its own.

    g(score) is the logit of the share of yeses at a score, a monotone broken line over all cells. The logit of a cell
    is β·(z, 1) + δ_j·(z, 1) with z the standardised g; β is shared, and δ_j is pulled to 0, so that a label with few
    cells has the curve of all. A monotone step function of all cells then takes out what is left. Where all n cells
    say the same, every probability is (yeses + ½) / (n + 1): no number of cells makes a thing certain.

    Parameters
    ----------
    n_labels : int
        The number of labels.
    own : float, default=0.3
        The scale of what a label has for itself, beside what all labels share: the smaller, the more they share.

    Examples
    --------
    >>> rng = np.random.RandomState(0)
    >>> scores = rng.randn(2000)
    >>> yes = rng.rand(2000) < 1 / (1 + np.exp(-2 * scores))
    >>> curve = Calibration(1).fit(scores, np.zeros(2000, int), yes)
    >>> bool(abs(curve.predict(np.array([0.0]), np.array([0]))[0] - 0.5) < 0.1)
    True
    """

    def __init__(self, n_labels: int, *, own: float = 0.3) -> None:
        self.n_labels = n_labels
        self.own = own

    def fit(self, scores: NDArray, labels: NDArray, yes: NDArray, weights: NDArray | None = None) -> Calibration:
        """Learn from cells: the score of each, its label, whether it is a yes, and how many it stands for."""
        weights = np.ones(len(yes)) if weights is None else weights
        self._curve = logit_curve(scores, yes, weights)
        g = self._curve(scores)
        self.center = float(np.average(g, weights=weights))
        self.scale = float(np.sqrt(np.average((g - self.center) ** 2, weights=weights))) or 1.0
        share, total = np.average(yes, weights=weights), weights.sum()
        self.rate = float((share * total + 0.5) / (total + 1.0))
        self._logistic, self._steps = None, None
        if 0 < share < 1:
            self._logistic = LogisticRegression(C=1 / PENALTY, max_iter=200, tol=1e-5)
            self._logistic.fit(self._design(scores, labels), yes, sample_weight=weights)
            self._steps = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip")
            self._steps.fit(self._logits(scores, labels), yes, sample_weight=weights)
        return self

    def predict(self, scores: NDArray, labels: NDArray) -> NDArray[np.float64]:
        """Return the probabilities of cells; within a step of the monotone function the logit decides."""
        if self._logistic is None or self._steps is None:
            return np.full(len(scores), self.rate)
        logits = self._logits(scores, labels)
        smooth = 1 / (1 + np.exp(-logits))
        return np.clip(0.98 * self._steps.predict(logits) + 0.02 * smooth, CLIP, 1 - CLIP)

    def _logits(self, scores: NDArray, labels: NDArray) -> NDArray[np.float64]:
        assert self._logistic is not None
        return self._logistic.decision_function(self._design(scores, labels))

    def _design(self, scores: NDArray, labels: NDArray) -> sp.csr_array:
        """Return z, then for each label its own slope of it and its own constant."""
        z, m = (self._curve(scores) - self.center) / self.scale, len(scores)
        data = np.column_stack([z, self.own * z, np.full(m, self.own)]).ravel()
        columns = np.column_stack([np.zeros_like(labels), 1 + 2 * labels, 2 + 2 * labels]).ravel()
        return sp.csr_array((data, columns, np.arange(m + 1) * 3), shape=(m, 1 + 2 * self.n_labels))


def logit_curve(scores: NDArray, yes: NDArray, weights: NDArray) -> Callable[[NDArray], NDArray[np.float64]]:
    """Return a monotone function from scores to logits: a broken line through the shares of yeses in bins.

    Half of the bins hold the same number of yeses each and half the same number of cells. Beyond the last bins, and
    where the shares do not rise, a slight slope keeps the order of the scores.

    >>> curve = logit_curve(np.arange(8.0), np.array([0, 0, 0, 1, 0, 1, 1, 1]), np.ones(8))
    >>> bool(np.all(np.diff(curve(np.linspace(-1, 9, 50))) > 0))
    True
    """
    yeses = yes > 0
    edges = np.union1d(_quantiles(scores, weights), _quantiles(scores[yeses], weights[yeses]))
    place = np.searchsorted(edges[1:-1], scores, side="right")
    size = max(len(edges) - 1, 1)
    total = np.bincount(place, weights, size)
    filled = total > 0
    middle = np.bincount(place, weights * scores, size)[filled] / total[filled]
    shares = (np.bincount(place, weights * yes, size)[filled] + 0.5) / (total[filled] + 1.0)
    rising = IsotonicRegression().fit_transform(middle, shares, sample_weight=total[filled])
    heights = np.log(rising / (1 - rising))
    spread = float(np.sqrt(np.cov(scores, aweights=weights, ddof=0)))
    steepness = 1.0 / spread if spread > 0 else 1.0

    def curve(found: NDArray) -> NDArray[np.float64]:
        beyond = np.maximum(found - middle[-1], 0.0) + np.minimum(found - middle[0], 0.0)
        return np.interp(found, middle, heights) + steepness * (beyond + SLOPE * found)

    return curve


def _quantiles(values: NDArray, weights: NDArray) -> NDArray[np.float64]:
    """Return values at equal steps of weight, from the least to the largest."""
    if not len(values):
        return np.empty(0)
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    places = np.searchsorted(reached, np.linspace(0, reached[-1], BINS))
    return values[order][np.minimum(places, len(values) - 1)]


def reliability(
    probabilities: NDArray, yes: NDArray, n_bins: int = 15, weights: NDArray | None = None
) -> list[tuple[float, float, float]]:
    """Return for bins of equal width the mean probability, the share of yeses, and the share of all cells in it.

    >>> reliability(np.array([0.1, 0.1, 0.9]), np.array([0, 0, 1]), n_bins=2)
    [(0.1, 0.0, 0.6666666666666666), (0.9, 1.0, 0.3333333333333333)]
    """
    weights = np.ones(len(yes)) if weights is None else weights
    place = np.minimum((probabilities * n_bins).astype(int), n_bins - 1)
    total = np.bincount(place, weights, n_bins)
    means = np.bincount(place, weights * probabilities, n_bins), np.bincount(place, weights * yes, n_bins)
    return [
        (float(means[0][b] / total[b]), float(means[1][b] / total[b]), float(total[b] / weights.sum()))
        for b in np.flatnonzero(total)
    ]


def calibration_error(
    probabilities: NDArray, yes: NDArray, n_bins: int = 15, weights: NDArray | None = None
) -> float:
    """Return the expected calibration error: the mean of |probability − share of yeses| over the bins.

    >>> calibration_error(np.array([0.25, 0.25, 0.25, 0.25]), np.array([1, 0, 0, 0]))
    0.0
    """
    bins = reliability(probabilities, yes, n_bins, weights)
    return float(sum(share * abs(mean - rate) for mean, rate, share in bins))
