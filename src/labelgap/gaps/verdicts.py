"""What verdicts on suggestions teach: better probabilities, how many labels are missing, and when to stop.

People review the most probable suggestions first, so verdicts are no random sample of all cells. Two uses stay right
all the same. Given the stated probability, a verdict does not depend on why the cell was chosen: verdicts recalibrate
the probabilities (:func:`recalibrate`). And a random probe, a few cells drawn from a queue with known probabilities
of being drawn, estimates how many labels are missing without any assumption (:func:`estimate_from_probe`). If labels
are missing at random, a probe of the best cells alone tells it more precisely (:func:`estimate_missing`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelgap.calibration.written import STANDARD_ERRORS_95
from labelgap.gaps.auditing import Audit, Suggestions

PRIOR_VERDICTS = 10.0  # weight of the stated probabilities beside verdicts
MIN_SLOPE = 1e-3  # of the logits: the order of suggestions stays
MIN_VARIANCE = 0.01  # of a verdict; stated probabilities near 0 or 1 may be wrong
BEST_DEPTH = 0.25  # of the written cells, for a probe of the best cells


class Probe(NamedTuple):
    """Positions of suggestions drawn at random for review, and the probability of each to be drawn."""

    positions: NDArray[np.int64]
    chances: NDArray[np.float64]


class Remaining(NamedTuple):
    """The estimated number of right suggestions in a list, with a 95 % interval."""

    number: float
    low: float
    high: float


def recalibrate(probabilities: NDArray, reviewed: NDArray, right: NDArray) -> NDArray[np.float64]:
    """Return probabilities that agree with verdicts: the logit becomes a + b · logit, with b > 0.

    a and b maximise the likelihood of the verdicts; a prior of ten verdicts keeps them near 0 and 1. The order of the
    suggestions does not change.

    Parameters
    ----------
    probabilities : ndarray of shape (m,)
        The stated probabilities of suggestions of one kind.
    reviewed : ndarray of int
        Positions of the reviewed suggestions.
    right : ndarray of bool
        Whether the reviewer found them right.

    Examples
    --------
    Suggestions of 0.9, of which a third turned out right:

    >>> p = recalibrate(np.full(400, 0.9), np.arange(300), np.arange(300) % 3 == 0)
    >>> bool(abs(p[399] - 1 / 3) < 0.1)
    True
    """
    probabilities, reviewed = np.asarray(probabilities, np.float64), np.asarray(reviewed, np.int64)
    if not len(reviewed):
        return probabilities
    z = _logit(probabilities)
    scale = max(float(np.abs(z[reviewed]).mean()), 1.0)
    design = np.column_stack([np.ones(len(reviewed)), z[reviewed] / scale])
    start = np.array([0.0, scale])
    yes, ridge = np.asarray(right, np.float64), PRIOR_VERDICTS / 4

    def loss(theta: NDArray) -> float:
        logits = design @ theta
        return float((np.logaddexp(0, logits) - yes * logits).sum() + ridge / 2 * ((theta - start) ** 2).sum())

    from scipy.optimize import minimize  # late: `import labelgap` stays fast

    theta = minimize(loss, start, method="L-BFGS-B", bounds=[(None, None), (MIN_SLOPE, None)]).x
    return _sigmoid(theta[0] + theta[1] * z / scale)


def draw_probe(suggestions: Suggestions, size: int, random_state: int | None = None) -> Probe:
    """Draw suggestions for a random probe, in proportion to √(p (1 − p)): where verdicts are least certain.

    Cells are drawn independently (Poisson sampling), ``size`` of them on average.

    >>> zeros = np.zeros(100, int)
    >>> probe = draw_probe(Suggestions(np.arange(100), zeros, np.linspace(0.9, 0.1, 100)), 20, 0)
    >>> 10 <= len(probe.positions) <= 30
    True
    """
    p = suggestions.probabilities
    spread = np.sqrt(np.maximum(p * (1 - p), MIN_VARIANCE))
    low, high = 0.0, 1e6
    for _ in range(100):  # the factor at which ``size`` cells are drawn on average
        middle = (low + high) / 2
        low, high = (middle, high) if np.minimum(middle * spread, 1.0).sum() < size else (low, middle)
    chances = np.minimum(high * spread, 1.0)
    drawn = np.flatnonzero(np.random.default_rng(random_state).random(len(p)) < chances)
    return Probe(drawn, chances[drawn])


def estimate_from_probe(probabilities: NDArray, probe: Probe, right: NDArray, error_rate: float = 0.0) -> Remaining:
    """Estimate the number of right suggestions of a list from the verdicts on a random probe.

    The estimate is Σ p + Σ over the probe of (verdict − p) / chance, which has no bias whatever p is; p only makes it
    more precise. Verdicts that are wrong with a known ``error_rate`` e are corrected: (verdict − e) / (1 − 2e).

    Parameters
    ----------
    probabilities : ndarray of shape (m,)
        The probabilities of all suggestions of the list.
    probe : Probe
        The drawn suggestions, see :func:`draw_probe`.
    right : ndarray of bool
        The verdicts on them.
    error_rate : float, default=0.0
        Share of the verdicts that are wrong.

    Examples
    --------
    >>> estimate_from_probe(np.full(4, 0.5), Probe(np.arange(4), np.ones(4)), np.array([1, 1, 1, 0]))
    Remaining(number=3.0, low=3.0, high=3.0)
    """
    if not 0 <= error_rate < 0.5:
        raise ValueError(f"error_rate={error_rate!r} is out of range; pass a share of at least 0 and below 0.5.")
    verdicts = (np.asarray(right, np.float64) - error_rate) / (1 - 2 * error_rate)
    residuals = verdicts - probabilities[probe.positions]
    number = float(probabilities.sum() + (residuals / probe.chances).sum())
    noise = error_rate * (1 - error_rate) / (1 - 2 * error_rate) ** 2
    variance = ((1 - probe.chances) * residuals**2 / probe.chances**2 + noise / probe.chances).sum()
    half_width = STANDARD_ERRORS_95 * float(np.sqrt(variance))
    low, high = max(number - half_width, 0.0), min(number + half_width, float(len(probabilities)))
    return Remaining(float(np.clip(number, 0.0, len(probabilities))), low, max(low, high))


def draw_best(audit: Audit, size: int, random_state: int | None = None) -> NDArray[np.int64]:
    """Draw missing labels at random among those above three quarters of the written cells; return positions."""
    best = np.flatnonzero(audit.places < BEST_DEPTH)
    return np.sort(np.random.default_rng(random_state).permutation(best)[:size])


def estimate_missing(audit: Audit, drawn: NDArray, right: NDArray, error_rate: float = 0.0) -> Remaining:
    """Estimate the number of missing labels from verdicts on cells of :func:`draw_best`.

    A quarter of the missing labels are above three quarters of the written cells, as of the written ones, if labels
    are missing at random. So their number is 4 · (absent cells there) · (share of the verdicts that are right).
    """
    n_best = int((audit.places < BEST_DEPTH).sum())
    if not len(drawn) or n_best == 0:
        return Remaining(0.0, 0.0, float(len(audit.missing)))
    n, n_written = len(drawn), float(audit.n_written.sum())
    share = float((np.mean(right) - error_rate) / (1 - 2 * error_rate))
    smoothed = (np.sum(right) + 1) / (n + 2)
    share_error = np.sqrt(smoothed * (1 - smoothed) / n * max(1 - n / n_best, 0.0) + 1 / n**2) / (1 - 2 * error_rate)
    number = n_best * max(share, 0.0) / BEST_DEPTH
    odds = number / max(n_written, 1.0)
    count_error = n_written * np.sqrt(odds * (1 + odds) / max(BEST_DEPTH * n_written, 1.0))
    half_width = STANDARD_ERRORS_95 * float(np.hypot(n_best * share_error / BEST_DEPTH, count_error))
    return Remaining(number, max(number - half_width, 0.0), number + half_width)


def expect_next(probabilities: NDArray, reviewed: NDArray, n: int = 100) -> float:
    """Return how many of the next n open suggestions are expected to be right: stop when it is too few.

    >>> expect_next(np.array([0.9, 0.8, 0.5, 0.1]), np.array([0]), n=2)
    1.3
    """
    still_open = np.ones(len(probabilities), bool)
    still_open[np.asarray(reviewed, np.int64)] = False
    return float(np.sort(probabilities[still_open])[::-1][:n].sum())


def _logit(p: NDArray) -> NDArray[np.float64]:
    p = np.clip(p, 1e-6, 1 - 1e-6)
    return np.log(p / (1 - p))


def _sigmoid(z: NDArray) -> NDArray[np.float64]:
    return 1 / (1 + np.exp(-np.clip(z, -50, 50)))
