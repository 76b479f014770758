"""The share of true positives that are written, estimated from the cells with the largest probabilities."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelgap.calibration.curves import MIN_PROBABILITY
from labelgap.calibration.scored_cells import ScoredCells
from labelgap.observations import Labels

STANDARD_ERRORS_95 = 1.96  # half the width of a 95 % interval
TOP_SHARE = 0.05  # of the positives: number of top cells from which the written share is estimated
MIN_TOP_CELLS, MAX_EXTENDED_CELLS = 50, 400
EXTENSION_FACTOR = 1.25  # of the number of top cells in each step
MAX_RISE = 1.0  # standard errors by which the share may rise towards the largest probabilities
MAX_DROP = 2.0  # standard errors by which the written share may fall in a step
PRIOR_CELLS = 200.0  # weight of the overall share in the share of each label


class WrittenShares(NamedTuple):
    """The share of positives that are written, its standard error, the share of each label, and if it is level.

    If the share of written labels still rises towards the largest probabilities, some of the cells are negatives:
    the share of positives that are written is then larger than the estimate, and ``identified`` is False.
    """

    overall: float
    error: float
    of_label: NDArray[np.float64]
    identified: bool = True


def estimate_written(cells: ScoredCells, f: NDArray, labels: Labels) -> WrittenShares:
    """Estimate c, the share of positives that are written, from the cells with the largest f.

    >>> column, positive = np.zeros(4, int), np.array([1, 1, 1, 0], bool)
    >>> cells = ScoredCells(np.arange(4), column, np.zeros(4), positive, np.ones(4), column > 0)
    >>> shares = estimate_written(cells, np.full(4, 0.9), Labels(np.array([[1], [1], [1], [0]])))
    >>> round(shares.overall, 2), shares.of_label.round(2).tolist()
    (0.75, [0.75])
    """
    size = min(len(f), max(MIN_TOP_CELLS, round(TOP_SHARE * labels.positives.nnz)))
    order = np.argsort(-f, kind="stable")[: max(size, MAX_EXTENDED_CELLS)]
    top = order[: extend_plateau(cells.positive[order], size)]
    overall = float(np.clip(cells.positive[top].mean(), MIN_PROBABILITY, 1 - MIN_PROBABILITY))
    total = np.bincount(cells.labels[top], minlength=labels.shape[1])
    written = np.bincount(cells.labels[top], cells.positive[top], labels.shape[1])
    shares = (written + PRIOR_CELLS * overall) / (total + PRIOR_CELLS)
    shares = np.clip(shares, MIN_PROBABILITY, 1 - MIN_PROBABILITY)
    identified = is_level(cells.positive[top])
    return WrittenShares(overall, standard_error(overall, len(top)), shares, identified)


def is_level(yes: NDArray) -> bool:
    """Return whether the share of yeses in the first half is not significantly above that in the second half.

    >>> is_level(np.arange(200) % 4 > 0), is_level(np.arange(200) < 100)
    (True, False)
    """
    half = len(yes) // 2
    if half == 0:
        return False
    first, second = float(yes[:half].mean()), float(yes[half:].mean())
    error = np.hypot(standard_error(first, half), standard_error(second, len(yes) - half))
    return bool(first - second <= MAX_RISE * error)


def extend_plateau(yes: NDArray, size: int) -> int:
    """Return the number of first cells to use: ``size``, or more while the share of yeses does not fall.

    It falls if it is more than two standard errors below the share of fewer cells (Lepski's method).

    >>> extend_plateau(np.arange(400) % 10 < 7, 50), extend_plateau(np.arange(400) < 100, 50)
    (363, 96)
    """
    shares = np.cumsum(yes) / np.arange(1, len(yes) + 1)
    least = shares[size - 1] - MAX_DROP * standard_error(shares[size - 1], size)
    while (larger := max(size + 1, int(EXTENSION_FACTOR * size))) <= len(yes) and shares[larger - 1] >= least:
        size = larger
        least = max(least, shares[size - 1] - MAX_DROP * standard_error(shares[size - 1], size))
    return size


def standard_error(share: float, size: int) -> float:
    """Return the standard error of a share of ``size`` cells; it is positive even for a share of 0 or 1.

    >>> round(standard_error(0.5, 98), 6), standard_error(1.0, 98) > 0
    (0.05, True)
    """
    smoothed = (share * size + 1) / (size + 2)
    return float(np.sqrt(smoothed * (1 - smoothed) / (size + 2)))
