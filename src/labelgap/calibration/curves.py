"""P(label is written | score), a monotone curve that is slightly adjusted for each label, and its reliability."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelgap.portable import compute_probabilities, interpolate_logits
from labelgap.runtime import row_blocks

LOGISTIC_PENALTY = 1.0
MIN_LABEL_SLOPE = 0.05  # of the slope of all labels: probabilities rise with the score for every label
N_QUANTILES = 25  # of the scores of all cells, and of the yeses
CELLS_AT_ONCE = 1 << 18  # small enough that what is computed from them is small beside all cells
# As in scikit-learn's LogisticRegression(max_iter=200, tol=1e-5).
LOGISTIC_OPTIONS = {"maxiter": 200, "gtol": 1e-5, "ftol": 64 * np.finfo(float).eps, "maxls": 50}
MIN_KNOT_DISTANCE = 1e-6  # in units of the standard deviation of the scores
RESOLUTION = 1e-15  # of logits
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
        yes, weights = np.asarray(yes) > 0, np.ones(len(yes)) if weights is None else weights
        total, n_yes = (float(part.sum(dtype=np.float64)) for part in (weights, weights[yes]))
        self.rate = (n_yes + 0.5) / (total + 1.0)
        self.maps: LabelMaps | None = None
        if 0 < n_yes < total:
            curve = fit_logit_curve(scores, yes, weights)
            z = np.empty(len(scores))
            for part in row_blocks(len(z), 1, CELLS_AT_ONCE):
                z[part] = curve(np.asarray(scores[part], np.float64))
            z -= (center := float(np.einsum("i,i->", weights, z)) / total)
            z /= (scale := float(np.sqrt(np.einsum("i,i,i->", weights, z, z) / total)) or 1.0)
            slopes, offsets = self._fit_lines(z, labels, yes, weights)
            for part in row_blocks(len(z), 1, CELLS_AT_ONCE):
                z[part] = slopes[labels[part]] * z[part] + offsets[labels[part]]
            self.maps = LabelMaps(*curve, center, scale, slopes, offsets, *fit_steps(z, yes, weights))
        return self

    def _fit_lines(
        self, z: NDArray, labels: NDArray, yes: NDArray, weights: NDArray
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the slope and the constant of the logit in z for each label, by logistic regression.

        Minimises, over β = (b, c) and δ, the mean of the logistic losses and 1/2 (b² + ‖δ‖²) / Σ weights. Cells are
        taken in blocks: a sparse matrix of their 1 + 2 L features would need twice their memory.
        """
        from scipy.optimize import minimize  # late: every estimator imports this module

        own, n_labels, total = self.own, self.n_labels, float(weights.sum(dtype=np.float64))

        def split(theta: NDArray) -> tuple[NDArray, NDArray]:
            return theta[0] + own * theta[1:-1:2], theta[-1] + own * theta[2:-1:2]

        def evaluate(theta: NDArray) -> tuple[float, NDArray]:
            (slopes, offsets), value, sums = split(theta), 0.0, np.zeros((n_labels, 2))
            for part in row_blocks(len(z), 1, CELLS_AT_ONCE):
                j, x, y, w = labels[part], z[part], yes[part], weights[part]
                logits = slopes[j] * x + offsets[j]
                small = np.exp(-np.abs(logits))
                value += float(w @ (np.maximum(logits, 0.0) - y * logits + np.log1p(small)))
                residuals = w * (np.where(logits >= 0, 1.0, small) / (1 + small) - y)
                sums[:, 0] += np.bincount(j, residuals * x, n_labels)
                sums[:, 1] += np.bincount(j, residuals, n_labels)
            penalised = np.append(theta[:-1], 0.0) * LOGISTIC_PENALTY
            common = sums.sum(axis=0)
            gradient = np.concatenate([common[:1], own * sums.ravel(), common[1:]]) + penalised
            return (value + 0.5 * float(penalised @ theta)) / total, gradient / total

        start = np.zeros(2 + 2 * n_labels)
        theta = minimize(evaluate, start, jac=True, method="L-BFGS-B", options=LOGISTIC_OPTIONS).x
        common = max(float(theta[0]), MIN_LABEL_SLOPE)
        return np.maximum(common + own * theta[1:-1:2], MIN_LABEL_SLOPE * common), split(theta)[1]

    def predict(self, scores: NDArray, labels: NDArray) -> NDArray[np.float64]:
        """Return the probabilities of cells with these scores and labels, arrays of one shape.

        For each label they increase with the score, also within a step.
        """
        scores = np.asarray(scores)
        probabilities, labels = np.full(np.shape(scores), self.rate), np.broadcast_to(labels, np.shape(scores))
        if self.maps is not None:
            for part in row_blocks(len(scores), max(1, scores[:1].size), CELLS_AT_ONCE):
                probabilities[part] = self.maps.compute(np.asarray(scores[part], np.float64), labels[part])
        return probabilities

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
    size = max(len(edges) - 1, 1)
    sums = np.zeros((4, size))  # of weights, and weighted sums of scores, their squares and yeses
    shift = edges[len(edges) // 2]  # keeps digits of the squares
    for part in row_blocks(len(scores), 1, CELLS_AT_ONCE):
        bins, w = np.searchsorted(edges[1:-1], scores[part], side="right"), weights[part]
        s = scores[part].astype(np.float64) - shift
        sums += [np.bincount(bins, values, size) for values in (w, w * s, w * s * s, w * yes[part])]
    total, sum_scores, sum_squares, sum_yes = sums[:, sums[0] > 0]
    middle, shares = shift + sum_scores / total, (sum_yes + 0.5) / (total + 1.0)
    from sklearn.isotonic import isotonic_regression  # late: every estimator imports this module

    rising = isotonic_regression(shares, sample_weight=total)
    n = total.sum()
    spread = float(np.sqrt(max(sum_squares.sum() / n - (sum_scores.sum() / n) ** 2, 0.0)))
    # Between knots that differ by rounding only, interpolation would divide by almost 0.
    apart = np.diff(middle, prepend=-np.inf) > MIN_KNOT_DISTANCE * spread
    logits = np.log(rising / (1 - rising))
    return LogitCurve(middle[apart], logits[apart], 1.0 / spread if spread > 0 else 1.0)


def _compute_quantiles(values: NDArray, weights: NDArray) -> NDArray[np.float64]:
    """Return values at equal steps of cumulated weight, from the smallest to the largest."""
    if not len(values):
        return np.empty(0)
    order = np.argsort(values, kind="stable")
    cumulated = np.cumsum(weights[order], dtype=np.float64)
    index = np.searchsorted(cumulated, np.linspace(0, cumulated[-1], N_QUANTILES))
    return values[order[np.minimum(index, len(values) - 1)]].astype(np.float64)


def fit_steps(
    logits: NDArray, yes: NDArray[np.bool_], weights: NDArray
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the ends of the steps of the share of yeses that rises with the logit (isotonic regression), and shares.

    Cells without a yes join the step of the cells before them; so only places at which a yes begins are regressed.

    >>> [part.tolist() for part in fit_steps(np.arange(5.0), np.array([0, 1, 0, 1, 1]) > 0, np.ones(5))]
    [[0.0, 1.0, 2.0, 3.0, 4.0], [0.0, 0.5, 0.5, 1.0, 1.0]]
    """
    from scipy.optimize import isotonic_regression  # late: every estimator imports this module

    order = np.argsort(logits)
    logits, yes, weights = logits[order], yes[order], weights[order]
    del order
    starts = np.unique(np.append(0, np.searchsorted(logits, logits[yes] - RESOLUTION)))
    totals, sums = (np.add.reduceat(part, starts, dtype=np.float64) for part in (weights, weights * yes))
    steps = isotonic_regression(sums / totals, weights=totals)
    edges = np.append(starts, len(logits))[steps.blocks]
    ends = np.column_stack([logits[edges[:-1]], logits[edges[1:] - 1]]).ravel()
    shares = np.repeat(steps.x[steps.blocks[:-1]], 2)
    distinct = np.append(True, np.diff(ends) > 0)
    return ends[distinct], shares[distinct]


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
