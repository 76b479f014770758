"""How many labels are written down, and how many are wrong, read off the cells that are all but certain."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelgap.gaps.calibration import CLIP
from labelgap.gaps.cells import Cells
from labelgap.observations import Labels

PLATEAU = 0.05  # of the positives: as many of the surest cells tell how many labels are written down
LEAST_PLATEAU, ENOUGH = 50, 400  # cells: fewer say too little, and more are not looked for beyond those 5 %
WIDER = 1.25  # times as many cells at each attempt to take more
FALL = 2.0  # standard errors by which the share may be below that of fewer cells
LEAST_LIKELY = 0.1  # of all cells: as many of the least likely tell how many labels are wrong
PRIOR_CELLS = 200.0


class WrittenShares(NamedTuple):
    """The share of positives that are written down, its standard error, and that of each label."""

    overall: float
    error: float
    of_label: NDArray[np.float64]


def surest_cells(cells: Cells, written: NDArray, n_positives: int) -> NDArray[np.int64]:
    """Return the cells with the largest f: as many as 5 % of the positives, and more where these are few."""
    size = min(len(written), max(LEAST_PLATEAU, round(PLATEAU * n_positives)))
    order = np.argsort(-written, kind="stable")[: max(size, ENOUGH)]
    return order[: plateau(cells.positive[order], size)]


def plateau(yes: NDArray, size: int) -> int:
    """Return how many of the first cells are taken: ``size``, and more while the share of yeses does not fall.

    It falls if it is lower than that of fewer cells by more than two standard errors (after Lepski).

    >>> plateau(np.arange(400) % 10 < 7, 50), plateau(np.arange(400) < 100, 50)
    (363, 96)
    """
    shares = np.cumsum(yes) / np.arange(1, len(yes) + 1)
    least = shares[size - 1] - FALL * standard_error(shares[size - 1], size)
    while (wider := max(size + 1, int(WIDER * size))) <= len(yes) and shares[wider - 1] >= least:
        size = wider
        least = max(least, shares[size - 1] - FALL * standard_error(shares[size - 1], size))
    return size


def standard_error(share: float, size: int) -> float:
    """Return that of a share of so many cells; it is not 0 where all say the same.

    >>> round(standard_error(0.5, 98), 6), standard_error(1.0, 98) > 0
    (0.05, True)
    """
    smoothed = (share * size + 1) / (size + 2)
    return float(np.sqrt(smoothed * (1 - smoothed) / (size + 2)))


def estimate_written(cells: Cells, written: NDArray, labels: Labels) -> WrittenShares:
    """Return c, the share of positives that are written down, of all labels and of each, by the surest cells.

    >>> none, yes = np.zeros(4, int), np.array([1, 1, 1, 0], bool)
    >>> cells = Cells(np.arange(4), none, np.zeros(4), yes, np.ones(4), none > 0)
    >>> found = estimate_written(cells, np.full(4, 0.9), Labels(np.array([[1], [1], [1], [0]])))
    >>> round(found.overall, 2), found.of_label.round(2).tolist()
    (0.75, [0.75])
    """
    surest = surest_cells(cells, written, labels.positives.nnz)
    overall = float(np.clip(cells.positive[surest].mean(), CLIP, 1 - CLIP))
    total = np.bincount(cells.labels[surest], minlength=labels.shape[1])
    yes = np.bincount(cells.labels[surest], cells.positive[surest], labels.shape[1])
    shares = np.clip((yes + PRIOR_CELLS * overall) / (total + PRIOR_CELLS), CLIP, 1 - CLIP)
    return WrittenShares(overall, standard_error(overall, len(surest)), shares)


def estimate_wrong(cells: Cells, written: NDArray, c: float) -> float:
    """Return ε, the share of written labels among the least likely tenth of the cells, of which none should be.

    If fewer cells than that are absent, as many as these are looked at: more would hold right labels in any case.
    Where the share is not below c, it is no rate of wrong labels, and 0 is returned.

    >>> none, yes = np.zeros(20, int), np.arange(20) < 5
    >>> cells = Cells(np.arange(20), none, np.zeros(20), yes, np.ones(20), none > 0)
    >>> likely = np.linspace(0.9, 0.1, 20)
    >>> likely[4] = 0.0
    >>> estimate_wrong(cells, likely, 0.8), estimate_wrong(cells, likely, 0.5)
    (0.5, 0.0)
    """
    absent = float(cells.weights[~cells.positive].sum())
    order = np.argsort(written, kind="stable")
    reached = np.cumsum(cells.weights[order])
    least = order[: np.searchsorted(reached, min(LEAST_LIKELY * reached[-1], absent)) + 1]
    share = float(np.average(cells.positive[least], weights=cells.weights[least]))
    return share if share < c else 0.0
