"""What verdicts on suggestions teach: better probabilities, how many labels are missing, and when to stop.

People review the most probable suggestions first, so verdicts are no random sample of all cells. Two uses stay right
all the same. Given the stated probability, a verdict does not depend on why the cell was chosen: verdicts recalibrate
the probabilities (:func:`recalibrate`, and :func:`learn` for a whole audit). And a random probe, a few cells drawn
from a queue with known probabilities of being drawn, estimates how many labels are missing without any assumption
(:func:`estimate_from_probe`). If labels are missing at random, a probe of the best cells alone tells it more
precisely (:func:`estimate_missing`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelgap.calibration.logits import compute_logits, fit_logits, sigmoid
from labelgap.calibration.written import STANDARD_ERRORS_95, WrittenShare
from labelgap.gaps.auditing import Audit, Suggestions
from labelgap.metrics.probed import choose_chances
from labelgap.portable import MIN_PROBABILITY

PRIOR_VERDICTS = 10.0  # weight of the stated probabilities beside verdicts
LABEL_PRECISION, LABEL_ROUNDS = 5.0, 10  # of the normal prior of δ; rounds of a, b and δ in turn
RANGE = (0.05, 0.95)  # quantiles of the reviewed logits, between which verdicts tell a and b
MIN_SLOPE = 1e-3  # of the logits: the order of suggestions stays
MIN_SPREAD = 0.1  # of a verdict; stated probabilities near 0 or 1 may be wrong
BEST_DEPTH = 0.25  # of the written cells, for a probe of the best cells
DEPTH_ERROR = 0.1  # relative, of the number of missing labels there: they need not be as plain as written ones


class Probe(NamedTuple):
    """Positions of suggestions drawn at random for review, and the probability of each to be drawn."""

    positions: NDArray[np.int64]
    chances: NDArray[np.float64]


class Remaining(NamedTuple):
    """The estimated number of right suggestions in a list, with a 95 % interval."""

    number: float
    low: float
    high: float


def recalibrate(
    probabilities: NDArray, reviewed: NDArray, right: NDArray, labels: NDArray | None = None
) -> NDArray[np.float64]:
    """Return probabilities that agree with verdicts: the logit becomes a + b · logit + δ_label, with b > 0.

    a, b and δ maximise the likelihood of the verdicts; normal priors keep a and b near 0 and 1 as ten verdicts would,
    and δ near 0. Without ``labels`` δ is 0, and the order of the suggestions does not change.

    Parameters
    ----------
    probabilities : ndarray of shape (m,)
        The stated probabilities of suggestions of one kind.
    reviewed : ndarray of int
        Positions of the reviewed suggestions.
    right : ndarray of bool
        Whether the reviewer found them right.
    labels : ndarray of int, shape (m,), optional
        The label of each suggestion.

    Examples
    --------
    Suggestions of 0.9, of which a third turned out right:

    >>> p = recalibrate(np.full(400, 0.9), np.arange(300), np.arange(300) % 3 == 0)
    >>> bool(abs(p[399] - 1 / 3) < 0.1)
    True
    """
    return _fit_verdicts(probabilities, reviewed, right, labels)[0] if len(reviewed) else np.asarray(probabilities)


def _fit_verdicts(
    probabilities: NDArray, reviewed: NDArray, right: NDArray, labels: NDArray | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the recalibrated probabilities and, shape (m, 2), the standard errors that a and b give their logits.

    Beyond the reviewed logits the line goes on with the slope 1: verdicts on the best suggestions say little about
    the slope far below.
    """
    probabilities, reviewed = np.asarray(probabilities, np.float64), np.asarray(reviewed, np.int64)
    logits, yes, ones = compute_logits(probabilities), np.asarray(right, bool), np.ones(len(reviewed))
    number = np.zeros(len(logits), np.int64) if labels is None else np.asarray(labels, np.int64)
    z = np.clip(logits, *(np.quantile(logits[reviewed], RANGE) if len(reviewed) else (0.0, 0.0)))
    beyond, scale = logits - z, max(float(np.abs(z[reviewed]).mean()), 1.0) if len(reviewed) else 1.0
    design = np.column_stack([np.ones(len(z)), z / scale])
    own, prior = np.zeros(int(number.max(initial=0)) + 1), np.array([0.0, scale])
    for _ in range(1 if labels is None else LABEL_ROUNDS):
        offset = beyond[reviewed] + own[number[reviewed]]
        theta, hessian = fit_logits(design[reviewed], yes, ones, prior, PRIOR_VERDICTS / 4, offset)
        if theta[1] < MIN_SLOPE:  # verdicts against the stated order
            only, _ = fit_logits(design[reviewed, :1], yes, ones, prior[:1], PRIOR_VERDICTS / 4, offset)
            theta = np.append(only, MIN_SLOPE)
        if labels is not None:
            p = sigmoid(design[reviewed] @ theta + offset)
            gradient = np.bincount(number[reviewed], p - yes, len(own)) + LABEL_PRECISION * own
            own = own - gradient / (np.bincount(number[reviewed], p * (1 - p), len(own)) + LABEL_PRECISION)
    p = sigmoid(design @ theta + beyond + own[number])
    return p, design @ np.linalg.cholesky(np.linalg.inv(hessian))


def learn(audit: Audit, rows: ArrayLike, labels: ArrayLike, right: ArrayLike, error_rate: float = 0.0) -> Audit:
    """Return the audit after verdicts on some of its suggestions, however these were chosen.

    The probabilities of each list are recalibrated, also for each label, so that labels whose suggestions were right
    come earlier. Reviewed suggestions leave the lists. The number of missing labels is estimated from the best cells,
    those above three quarters of the written cells: a quarter of the missing labels are there if labels are missing
    at random. It is the number of accepted ones there and the sum of the learned probabilities of the others, four
    times; its interval is that of these numbers within the interval before.

    Parameters
    ----------
    audit : Audit
        The audit.
    rows, labels : array-like of int, shape (m,)
        The reviewed cells; those without a suggestion are ignored.
    right : array-like of bool, shape (m,)
        Whether the suggestion was right: the label is missing, or it is wrong.
    error_rate : float, default=0.0
        Share of the verdicts that are wrong.

    Examples
    --------
    >>> from labelgap import audit
    >>> rng = np.random.default_rng(0)
    >>> Y = rng.random((300, 3)) < 0.4
    >>> first_audit = audit(Y, probabilities=np.clip(0.8 * Y + 0.2 * rng.random((300, 3)), 0, 1))
    >>> first = first_audit.missing.first(20)
    >>> learned = learn(first_audit, first.rows, first.labels, np.zeros(20, bool))
    >>> len(first_audit.missing) - len(learned.missing), learned.share_missing <= first_audit.share_missing
    (20, True)
    """
    _check_error_rate(error_rate)
    cells = np.asarray(rows, np.int64) * len(audit.n_written) + np.asarray(labels, np.int64)
    verdicts = np.asarray(right, bool)
    lists, places = [], audit.places
    for kind in (audit.missing, audit.doubtful):
        positions, which = _find_cells(kind, cells, len(audit.n_written))
        p, errors = _fit_verdicts(kind.probabilities, positions, verdicts[which], kind.labels)
        p = np.clip((p - error_rate) / (1 - 2 * error_rate), MIN_PROBABILITY, 1 - MIN_PROBABILITY)
        still_open = np.ones(len(p), bool)
        still_open[positions] = False
        order = np.flatnonzero(still_open)[np.argsort(-p[still_open], kind="stable")]
        lists.append(Suggestions(kind.rows[order], kind.labels[order], p[order]))
        if kind is audit.missing:
            share, places = _learn_share(audit, p, errors, still_open), places[order]
    return replace(audit, missing=lists[0], doubtful=lists[1], share=share, places=places)


def _find_cells(kind: Suggestions, cells: NDArray, n_labels: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the positions of cells among suggestions, and which of the cells these are; the last of equal ones."""
    own = kind.rows * n_labels + kind.labels
    order = np.argsort(own, kind="stable")
    unique, last = np.unique(cells[::-1], return_index=True)
    place = np.minimum(np.searchsorted(own[order], unique), max(len(own) - 1, 0))
    there = own[order][place] == unique if len(own) else np.zeros(len(unique), bool)
    return order[place[there]], len(cells) - 1 - last[there]


def _learn_share(audit: Audit, p: NDArray, errors: NDArray, still_open: NDArray[np.bool_]) -> WrittenShare:
    """Return the share of written labels, from the learned probabilities of the missing labels.

    Verdicts are counted as their learned probabilities, since some are wrong. Cells that were not reviewed may differ
    from those that were: the interval allows for a common error of their logits, as large as the prior of a does.
    """
    best, spread = audit.places < BEST_DEPTH, p * (1 - p)
    n_written = max(float(audit.n_written.sum() - audit.doubtful.probabilities.sum()), 1.0)
    number = float(p[best].sum()) / BEST_DEPTH
    by_fit = np.linalg.norm(spread[best] @ errors[best])
    by_chance = np.sqrt(spread[best & still_open].sum() + number * BEST_DEPTH)
    by_choice = spread[best & still_open].sum() / np.sqrt(PRIOR_VERDICTS / 4)
    errors_best = [by_fit, by_chance, by_choice, DEPTH_ERROR * BEST_DEPTH * number]
    half_width = STANDARD_ERRORS_95 * float(np.linalg.norm(errors_best)) / BEST_DEPTH
    shares = [n_written / (n_written + max(number + side * half_width, 0.0)) for side in (1, 0, -1)]
    before = audit.share
    low, overall, high = np.clip(shares, before.low, before.high).tolist()
    changed = np.bincount(audit.missing.labels, p, len(audit.n_written)) + MIN_PROBABILITY
    changed /= np.bincount(audit.missing.labels, audit.missing.probabilities, len(audit.n_written)) + MIN_PROBABILITY
    return WrittenShare(overall, low, high, 1 / (1 + changed * (1 / before.of_label - 1)), high < 1)


def draw_probe(suggestions: Suggestions, size: int, random_state: int | None = None) -> Probe:
    """Draw suggestions for a random probe, in proportion to √(p (1 − p)): where verdicts are least certain.

    Cells are drawn independently (Poisson sampling), ``size`` of them on average.

    >>> zeros = np.zeros(100, int)
    >>> probe = draw_probe(Suggestions(np.arange(100), zeros, np.linspace(0.9, 0.1, 100)), 20, 0)
    >>> 10 <= len(probe.positions) <= 30
    True
    """
    p = suggestions.probabilities
    chances = choose_chances(np.sqrt(np.maximum(p * (1 - p), MIN_SPREAD**2)), size)
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
    _check_error_rate(error_rate)
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
    are missing at random. So their number is 4 · (absent cells there) · (share of the verdicts that are right). The
    interval allows for a tenth more or fewer there, as one standard error.
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
    errors = [n_best * share_error / BEST_DEPTH, count_error, DEPTH_ERROR * number]
    half_width = STANDARD_ERRORS_95 * float(np.linalg.norm(errors))
    return Remaining(number, max(number - half_width, 0.0), number + half_width)


def expect_next(probabilities: NDArray, reviewed: NDArray, n: int = 100) -> float:
    """Return how many of the next n open suggestions are expected to be right: stop when it is too few.

    >>> expect_next(np.array([0.9, 0.8, 0.5, 0.1]), np.array([0]), n=2)
    1.3
    """
    still_open = np.ones(len(probabilities), bool)
    still_open[np.asarray(reviewed, np.int64)] = False
    return float(np.sort(probabilities[still_open])[::-1][:n].sum())


def _check_error_rate(error_rate: float) -> None:
    if not 0 <= error_rate < 0.5:
        raise ValueError(f"error_rate={error_rate!r} is out of range; pass a share of at least 0 and below 0.5.")
