"""How many labels are missing, and how many are wrong: bounds and estimates from the ranks of cells.

Missing labels are a random sample of the true labels, as written ones are. Take labels of similar frequency, of which
the same share c is written, and let u be the share of their written cells with a higher score than a cell. Then
written cells and missing labels are both uniform in u, whatever the scores mean, and the density of absent cells,
relative to that of written ones, is

    a(u) = λ + s(u),       λ = missing / written = (1 − c) / c,       s(u) ≥ 0 that of true negatives.

So λ is at most a(u) for every u. It is known if s vanishes where scores are largest. Data cannot tell whether it
does: a level a(u) may be that of missing labels or of negatives that look like positives. But s rises with u, and if
it is known how fast, a at two places gives λ. Wrong labels are the same problem from the other side: they are a
sample of the negatives, so in the share of absent cells below a cell both are uniform.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelgap.calibration.scored_cells import ScoredCells
from labelgap.portable import MIN_PROBABILITY
from labelgap.runtime import row_blocks

STANDARD_ERRORS_95 = 1.96  # half the width of a 95 % interval
LEAST_ERRORS = 3.0  # instead, for the least of several bounds
MIN_REFERENCES = 10  # written cells, and absent ones, that an estimate needs
MIN_NEAR, MIN_SEARCHED = 50, 20  # references of the near window, and searched cells
WINDOWS = ((0.1, (0.2, 0.35)), (0.2, (0.3, 0.5)), (0.3, (0.45, 0.7)))  # of u: near 0 and far from it
DEPTHS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0)  # of u, for the upper bound
MIN_AREA, NO_AREA = 0.9, 0.6  # under the ROC curve: for a lower bound above 0; at which half of the estimate is left
MAX_RISE = 0.8  # s(near) / s(far) that the estimate assumes at most
CELLS_AT_ONCE = 1 << 18  # small beside all cells
GROUP_SIZE, MAX_GROUPS = 1000, 4  # written cells of a group of labels, and number of groups of several labels


class Odds(NamedTuple):
    """Searched cells per reference cell: an estimate, its 95 % interval, and its standard error."""

    estimate: float
    low: float
    high: float
    error: float


class TrueProbabilities(NamedTuple):
    """P(true) of cells, and a 95 % interval that holds the uncertainty of the share c of written labels only."""

    probabilities: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


class MissingCount(NamedTuple):
    """The estimated number of missing labels, with a 95 % interval."""

    number: float
    low: float
    high: float

    def describe(self) -> str:
        """Return the number in words, rounded to two digits: the upper bound if it may be none.

        >>> MissingCount(281.2, 150.3, 322.9).describe(), MissingCount(523.0, 0.0, 1810.0).describe()
        ('about 280 (150 to 320)', 'at most 1,800')
        """
        number, low, high = (f"{round_count(part):,}" for part in self)
        return f"about {number} ({low} to {high})" if self.low > 0 else f"at most {high}"


def round_count(number: float) -> int:
    """Return a number rounded to two digits.

    >>> round_count(7063.2), round_count(3.6), round_count(0.0)
    (7100, 4, 0)
    """
    digits = max(len(str(int(number))) - 2, 0)
    return int(round(number, -digits))


@dataclass(frozen=True)
class WrittenShare:
    """The share c of true labels that are written.

    Attributes
    ----------
    overall : float
        The share of all labels; 1 if labels are complete.
    low, high : float
        A 95 % interval.
    of_label : ndarray of shape (L,)
        The share of each label; labels of similar frequency have the same share.
    identified : bool
        Whether the data rule out that no label is missing. Otherwise ``high`` is 1: at most 1 − ``low`` is missing.
    low_of_label, high_of_label : ndarray of shape (L,)
        The 95 % intervals of ``of_label``; by default as wide, relative to the share, as that of all labels.
    """

    overall: float
    low: float
    high: float
    of_label: NDArray[np.float64]
    identified: bool = True
    low_of_label: NDArray[np.float64] | None = None
    high_of_label: NDArray[np.float64] | None = None

    def count_missing(self, n_written: float, n_absent: float = np.inf) -> MissingCount:
        """Return how many labels are missing, n (1 / c − 1) of n written ones, and no more than are absent.

        >>> WrittenShare(0.8, 0.5, 1.0, np.array([0.8])).count_missing(80, 70)
        MissingCount(number=20.0, low=0.0, high=70.0)
        """
        shares = (max(c, MIN_PROBABILITY) for c in (self.overall, self.high, self.low))
        return MissingCount(*(float(min(n_written / c - n_written, n_absent)) for c in shares))

    def find_true(self, written: NDArray, labels: NDArray) -> TrueProbabilities:
        """Return P(true) = P(written) / c_j of cells and the interval that follows from that of c_j.

        >>> share = WrittenShare(0.5, 0.4, 0.8, np.array([0.5]))
        >>> [round(float(p[0]), 2) for p in share.find_true(np.array([0.2]), np.array([0]))]
        [0.4, 0.25, 0.5]
        """
        of_label = self.of_label
        low = of_label * self.low / self.overall if self.low_of_label is None else self.low_of_label
        high = of_label * self.high / self.overall if self.high_of_label is None else self.high_of_label
        shares = (of_label, np.minimum(high, 1.0), np.maximum(low, MIN_PROBABILITY))
        return TrueProbabilities(*(np.minimum(written / part[labels], 1 - MIN_PROBABILITY) for part in shares))


def estimate_written(cells: ScoredCells, n_labels: int) -> WrittenShare:
    """Estimate the share of true labels that are written, of all labels and of each label.

    >>> rng = np.random.RandomState(0)
    >>> true = np.arange(4000) < 1000
    >>> scores, written = rng.randn(4000) + 6 * true, true & (rng.rand(4000) < 0.7)
    >>> zeros = np.zeros(4000, int)
    >>> cells = ScoredCells(np.arange(4000), zeros, scores, written, np.ones(4000), zeros > 0)
    >>> share = estimate_written(cells, 1)
    >>> bool(abs(share.overall - 0.7) < 0.05), share.low < 0.7 < share.high, share.identified
    (True, True, True)
    """
    counts = np.bincount(cells.labels[cells.positive], minlength=n_labels)
    group = group_labels(counts)
    return combine_odds(
        estimate_odds(count_before(cells, group, cells.positive, descending=True), cells), counts, group
    )


def combine_odds(parts: list[Odds], counts: NDArray, group: NDArray) -> WrittenShare:
    """Return the share of true labels that are written, from the odds of missing labels of each group.

    >>> combine_odds([Odds(1.0, 0.0, 3.0, 0.1)], np.array([20]), np.array([0])).overall
    0.5
    """
    sizes = np.bincount(group, counts)
    if counts.sum() < MIN_REFERENCES:
        return WrittenShare(1.0, MIN_PROBABILITY, 1.0, np.ones(len(counts)), False)
    totals = [float(sizes @ [part[i] for part in parts] / sizes.sum()) for i in range(3)]
    overall, high, low = (max(1 / (1 + odds), MIN_PROBABILITY) for odds in totals)
    of_label, most, least = (
        np.maximum(1 / (1 + np.array([part[i] for part in parts])), MIN_PROBABILITY)[group] for i in range(3)
    )
    return WrittenShare(overall, low, high, of_label, high < 1, least, most)


def group_labels(counts: NDArray) -> NDArray[np.int64]:
    """Return the group of each label, given its number of written cells.

    A label with 1,000 cells is a group; the others are put into at most four groups of similar frequency, with about
    as many cells in each.

    >>> group_labels(np.array([5, 2000, 900, 300, 900])).tolist()
    [0, 2, 0, 0, 1]
    """
    group = np.zeros(len(counts), np.int64)
    large = counts >= GROUP_SIZE
    others = np.flatnonzero(~large)
    order = others[np.argsort(counts[others], kind="stable")]
    total = counts[order].sum()
    n_groups = int(np.clip(total // GROUP_SIZE, 1, MAX_GROUPS))
    middle = np.cumsum(counts[order]) - counts[order] / 2
    group[order] = np.minimum(middle * n_groups // max(total, 1), n_groups - 1)
    group[large] = n_groups + np.arange(large.sum())
    return np.unique(group, return_inverse=True)[1]


class Places(NamedTuple):
    """Where the searched cells of each group of labels are among the references of the group.

    Attributes
    ----------
    cells : ndarray of int
        The searched cells, all but the references, sorted by group.
    ends : ndarray of shape (groups,)
        The end of each group in ``cells``.
    before : ndarray
        The weight of the references before each of these cells, in the order of scores, and ½.
    totals : ndarray of shape (groups,)
        The weight of the references of each group.
    """

    cells: NDArray[np.int64]
    ends: NDArray[np.int64]
    before: NDArray[np.float64]
    totals: NDArray[np.float64]

    def find_shares(self) -> NDArray[np.float64]:
        """Return u of each searched cell, the share of references before it."""
        return self.before / np.repeat(self.totals + 1, np.diff(self.ends, prepend=0))


def estimate_odds(places: Places, cells: ScoredCells) -> list[Odds]:
    """Return for each group of labels the odds of searched cells that belong to the references."""
    u, weights = (np.split(part, places.ends[:-1]) for part in (places.find_shares(), cells.weights[places.cells]))
    return [bound_odds(*part) for part in zip(u, weights, places.totals.tolist(), strict=True)]


def count_before(cells: ScoredCells, group: NDArray, reference: NDArray[np.bool_], *, descending: bool) -> Places:
    """Count, for each cell that is no reference, the references of its group before it in the order of scores.

    ``group`` is that of each label. For a cell between two references half of one is added, so that these numbers are
    centred; of references with the same score, half are before the cell.

    >>> cells = ScoredCells(*(np.zeros(4, int),) * 2, np.array([3.0, 2.0, 1.0, 1.0]), np.array([1, 0, 1, 0]) > 0,
    ...     np.ones(4), np.zeros(4, bool))
    >>> count_before(cells, np.array([0]), cells.positive, descending=True).before.tolist()
    [1.5, 2.0]
    """
    groups, n_groups = group.astype(np.int32)[cells.labels], int(group.max(initial=0)) + 1
    sides = []
    for mask in (~reference, reference):
        index = np.flatnonzero(mask)
        index = index[np.argsort(groups[index], kind="stable")]
        sides.append((index, np.cumsum(np.bincount(groups[mask], minlength=n_groups))))
    (searched, ends), (references, reference_ends) = sides
    sign, before, totals = -1 if descending else 1, np.full(len(searched), 0.5), np.zeros(n_groups)
    for number in np.flatnonzero(np.diff(reference_ends, prepend=0)):
        own = references[reference_ends[number - 1] if number else 0 : reference_ends[number]]
        own = own[np.argsort(sign * cells.scores[own])]
        scores = sign * cells.scores[own]
        cumulated = np.append(0.0, np.cumsum(cells.weights[own], dtype=np.float64))
        totals[number] = cumulated[-1]
        first = int(ends[number - 1]) if number else 0
        for part in row_blocks(int(ends[number]) - first, 1, CELLS_AT_ONCE):
            part = slice(first + part.start, first + part.stop)
            values = sign * cells.scores[searched[part]]
            both = cumulated[np.searchsorted(scores, values)] + cumulated[np.searchsorted(scores, values, "right")]
            before[part] += both / 2
    return Places(searched, ends, before, totals)


def bound_odds(u: NDArray, weights: NDArray, n_references: float) -> Odds:
    """Return the odds λ from the places u of searched cells, among references that are uniform in u.

    The upper bound is the least of a(0 to u) over u, plus its error. The number of searched cells before the r-th
    reference has the variance r λ (1 + λ). For the estimate, scores of both classes are normal with equal variance
    and means d apart, which the area under the ROC curve tells: then s(u) ∝ exp(d Φ⁻¹(u)). The lower bound assumes
    that s falls half as fast towards the first cells; it is 0 if the area is below 0.9, where the cells with the
    largest scores may well be a mixture. The estimate then shrinks towards half of itself.

    >>> u = np.concatenate([np.linspace(0, 1, 300), np.full(9000, 0.999)])
    >>> odds = bound_odds(u, np.ones(9300), 1000.0)
    >>> round(odds.estimate, 2), odds.low < 0.3 < odds.high
    (0.3, True)
    """
    if min(n_references, weights.sum()) < MIN_REFERENCES:
        return Odds(0.0, 0.0, 0.0, 0.0)
    from scipy.special import ndtri  # late: every estimator imports this module

    depths = np.array(DEPTHS)
    values, errors = _measure_density(u, weights, n_references, 0.0, depths)
    usable = (depths * n_references >= MIN_NEAR) | (depths == 1)
    high = float((values + LEAST_ERRORS * errors)[usable].min())
    near, far = next(
        (
            (near, far)
            for near, far in WINDOWS
            if weights[u < near].sum() >= MIN_SEARCHED and near * n_references >= MIN_NEAR
        ),
        WINDOWS[-1],
    )
    (first,), (first_error,) = _measure_density(u, weights, n_references, 0.0, np.array([near]))
    (second,), (second_error,) = _measure_density(u, weights, n_references, far[0], np.array([far[1]]))
    area = float(np.clip(np.average(u, weights=weights), 0.5, 1 - MIN_PROBABILITY))
    fall = np.sqrt(2) * ndtri(area) * (ndtri(sum(far) / 2) - ndtri(near / 2))

    def extrapolate(exponent: float) -> tuple[float, float]:
        rise = min(float(np.exp(-exponent)), MAX_RISE)
        error = np.hypot(first_error, rise * second_error) / (1 - rise)
        return float((first - rise * second) / (1 - rise)), float(error)

    lowest, error = extrapolate(fall / 2)
    low = float(np.clip(lowest - STANDARD_ERRORS_95 * error, 0.0, high)) if area >= MIN_AREA else 0.0
    estimate, error = extrapolate(fall)
    trust = (1 + min(max(area - NO_AREA, 0.0) / (MIN_AREA - NO_AREA), 1.0)) / 2
    return Odds(trust * float(np.clip(estimate, low, high)), low, high, error)


def _measure_density(
    u: NDArray, weights: NDArray, n_references: float, low: float, highs: NDArray
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a in intervals from ``low`` to each of ``highs``, with standard errors."""
    counts = np.array([weights[(u >= low) & (u < high)].sum(dtype=np.float64) for high in highs])
    sizes = (highs - low) * n_references
    smoothed = (counts + 0.5) / sizes
    return counts / sizes, np.sqrt(smoothed * (1 + smoothed) / sizes)
