"""P(label is written | score), a monotone curve that is slightly adjusted for each label, and its reliability."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.portable import compute_probabilities, interpolate_logits

LOGISTIC_PENALTY = 1.0
MIN_LABEL_SLOPE = 0.05  # of the slope of all labels: probabilities rise with the score for every label
N_QUANTILES = 25  # of the scores of all cells, and of the yeses
MIN_KNOT_DISTANCE = 1e-6  # in units of the standard deviation of the scores
BISECTIONS = 60
FAR_SCORE = 1e6


class LogitCurve(NamedTuple):
    """A monotone function from scores to logits: linear between its knots, with ``slope`` added beyond them."""

    scores: NDArray[np.float64]
    logits: NDArray[np.float64]
    slope: float

    def __call__(self, values: NDArray) -> NDArray[np.float64]:
        """Return the logits of scores."""
        return interpolate_logits(values, *self)


class Calibration:
    """P(yes | score) for each label: a monotone curve of all labels, slightly adjusted for each label.

    g(score) is the logit of the share of yeses at a score, a monotone piecewise linear function fitted on all cells.
    The logit of a cell is β·(z, 1) + δ_j·(z, 1), where z is the standardised g. β is common to all labels, and δ_j is
    shrunk to 0, so that a label with few cells has nearly the common curve. A monotone step function, fitted on all
    cells, corrects the remaining error. If all n cells are yeses, or none is, every probability is
    (yeses + ½) / (n + 1).

    Parameters
    ----------
    n_labels : int
        Number of labels.
    own : float, default=0.3
        Scale of the terms δ_j of each label; a smaller scale shrinks them more.

    Examples
    --------
    >>> rng = np.random.RandomState(0)
    >>> scores = rng.randn(2000)
    >>> yes = rng.rand(2000) < 1 / (1 + np.exp(-2 * scores))
    >>> calibration = Calibration(1).fit(scores, np.zeros(2000, int), yes)
    >>> bool(abs(calibration.predict(np.array([0.0]), np.array([0]))[0] - 0.5) < 0.1)
    True
    """

    def __init__(self, n_labels: int, *, own: float = 0.3) -> None:
        self.n_labels = n_labels
        self.own = own

    def fit(self, scores: NDArray, labels: NDArray, yes: NDArray, weights: NDArray | None = None) -> Calibration:
        """Fit on cells: their scores, labels, whether they are yeses, and how many cells each represents."""
        weights = np.ones(len(yes)) if weights is None else weights
        scores = np.asarray(scores, np.float64)
        share, total = np.average(yes, weights=weights), weights.sum()
        self.rate = float((share * total + 0.5) / (total + 1.0))
        self.maps: LabelMaps | None = None
        if 0 < share < 1:
            curve = fit_logit_curve(scores, yes, weights)
            g = curve(scores)
            center = float(np.average(g, weights=weights))
            scale = float(np.sqrt(np.average((g - center) ** 2, weights=weights))) or 1.0
            z = (g - center) / scale
            slopes, offsets = self._fit_lines(z, labels, yes, weights)
            logits = slopes[labels] * z + offsets[labels]
            from sklearn.isotonic import IsotonicRegression  # late: every estimator imports this module

            steps = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip")
            steps.fit(logits, yes, sample_weight=weights)
            knots = steps.X_thresholds_, steps.y_thresholds_
            self.maps = LabelMaps(*curve, center, scale, slopes, offsets, *(np.asarray(k, np.float64) for k in knots))
        return self

    def _fit_lines(
        self, z: NDArray, labels: NDArray, yes: NDArray, weights: NDArray
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the slope and the constant of the logit in z for each label, by logistic regression."""
        m, own = len(z), self.own
        data = np.column_stack([z, own * z, np.full(m, own)]).ravel()
        columns = np.column_stack([np.zeros_like(labels), 1 + 2 * labels, 2 + 2 * labels]).ravel()
        design = sp.csr_array((data, columns, np.arange(m + 1) * 3), shape=(m, 1 + 2 * self.n_labels))
        from sklearn.linear_model import LogisticRegression  # late: every estimator imports this module

        logistic = LogisticRegression(C=1 / LOGISTIC_PENALTY, max_iter=200, tol=1e-5)
        coef = logistic.fit(design, yes, sample_weight=weights).coef_[0]
        common = max(float(coef[0]), MIN_LABEL_SLOPE)
        slopes = np.maximum(common + own * coef[1::2], MIN_LABEL_SLOPE * common)
        return slopes, float(logistic.intercept_[0]) + own * coef[2::2]

    def predict(self, scores: NDArray, labels: NDArray) -> NDArray[np.float64]:
        """Return the probabilities of cells with these scores and labels, arrays of one shape.

        For each label they increase with the score, also within a step.
        """
        scores = np.asarray(scores, np.float64)
        return np.full(scores.shape, self.rate) if self.maps is None else self.maps.compute(scores, labels)

    def predict_rows(self, scores: NDArray) -> NDArray[np.float64]:
        """Return the probabilities of all labels of rows, an array of the shape (rows, L) of the scores."""
        return self.predict(scores, np.arange(self.n_labels))

    def find_scores(self, probability: float) -> NDArray[np.float64]:
        """Return for each label the score at which its probability crosses ``probability``.

        If it does not, the score is far below or above those of the fit.

        >>> calibration = Calibration(1).fit(np.arange(8.0), np.zeros(8, int), np.arange(8) > 3)
        >>> bool(3 < calibration.find_scores(0.5)[0] < 4)
        True
        """
        if self.maps is None:
            return np.full(self.n_labels, -FAR_SCORE if self.rate > probability else FAR_SCORE)
        knots, columns = self.maps.knot_scores, np.arange(self.n_labels)
        span = max(float(knots[-1] - knots[0]), 1.0)
        low = np.full(self.n_labels, knots[0] - span)
        high = np.full(self.n_labels, knots[-1] + span)
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            yes = self.predict(middle, columns) > probability
            low, high = np.where(yes, low, middle), np.where(yes, middle, high)
        return low

    def to_values(self) -> dict[str, Any]:
        """Return the calibration as values of a model file."""
        maps = None if self.maps is None else asdict(self.maps)
        return {"n_labels": self.n_labels, "own": self.own, "rate": self.rate, "maps": maps}

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> Calibration:
        """Return the calibration of :meth:`to_values`."""
        calibration = cls(values["n_labels"], own=values["own"])
        calibration.rate = values["rate"]
        calibration.maps = None if values["maps"] is None else LabelMaps(**values["maps"])
        return calibration


@dataclass(frozen=True)
class LabelMaps:
    """The numbers of a fitted :class:`Calibration`."""

    knot_scores: NDArray[np.float64]
    knot_logits: NDArray[np.float64]
    beyond_slope: float
    center: float
    scale: float
    slopes: NDArray[np.float64]
    offsets: NDArray[np.float64]
    step_logits: NDArray[np.float64]
    step_shares: NDArray[np.float64]

    def compute(self, scores: NDArray, labels: NDArray) -> NDArray[np.float64]:
        """Return the probabilities of cells."""
        return compute_probabilities(scores, labels, self)


def fit_logit_curve(scores: NDArray, yes: NDArray, weights: NDArray) -> LogitCurve:
    """Return a monotone function from scores to logits: piecewise linear through the shares of yeses in bins.

    The edges of the bins are quantiles of the scores of all cells and of the yeses. A slight slope keeps the order of
    the scores beyond the outer bins and where the shares do not rise.

    >>> curve = fit_logit_curve(np.arange(8.0), np.array([0, 0, 0, 1, 0, 1, 1, 1]), np.ones(8))
    >>> bool(np.all(np.diff(curve(np.linspace(-1, 9, 50))) > 0))
    True
    """
    yeses = yes > 0
    edges = np.union1d(_compute_quantiles(scores, weights), _compute_quantiles(scores[yeses], weights[yeses]))
    bins = np.searchsorted(edges[1:-1], scores, side="right")
    size = max(len(edges) - 1, 1)
    total = np.bincount(bins, weights, size)
    filled = total > 0
    middle = np.bincount(bins, weights * scores, size)[filled] / total[filled]
    shares = (np.bincount(bins, weights * yes, size)[filled] + 0.5) / (total[filled] + 1.0)
    from sklearn.isotonic import isotonic_regression  # late: every estimator imports this module

    rising = isotonic_regression(shares, sample_weight=total[filled])
    spread = float(np.sqrt(np.cov(scores, aweights=weights, ddof=0)))
    # Between knots that differ by rounding only, interpolation would divide by almost 0.
    apart = np.diff(middle, prepend=-np.inf) > MIN_KNOT_DISTANCE * spread
    logits = np.log(rising / (1 - rising))
    return LogitCurve(middle[apart], logits[apart], 1.0 / spread if spread > 0 else 1.0)


def _compute_quantiles(values: NDArray, weights: NDArray) -> NDArray[np.float64]:
    """Return values at equal steps of cumulated weight, from the smallest to the largest."""
    if not len(values):
        return np.empty(0)
    order = np.argsort(values, kind="stable")
    cumulated = np.cumsum(weights[order])
    index = np.searchsorted(cumulated, np.linspace(0, cumulated[-1], N_QUANTILES))
    return values[order][np.minimum(index, len(values) - 1)]


def reliability(
    probabilities: NDArray, yes: NDArray, n_bins: int = 15, weights: NDArray | None = None
) -> list[tuple[float, float, float]]:
    """Return for each bin of equal width the mean probability, the share of yeses, and its share of all cells.

    >>> reliability(np.array([0.1, 0.1, 0.9]), np.array([0, 0, 1]), n_bins=2)
    [(0.1, 0.0, 0.6666666666666666), (0.9, 1.0, 0.3333333333333333)]
    """
    weights = np.ones(len(yes)) if weights is None else weights
    bins = np.minimum((probabilities * n_bins).astype(int), n_bins - 1)
    total = np.bincount(bins, weights, n_bins)
    sums, yeses = np.bincount(bins, weights * probabilities, n_bins), np.bincount(bins, weights * yes, n_bins)
    return [
        (float(sums[b] / total[b]), float(yeses[b] / total[b]), float(total[b] / weights.sum()))
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
