"""P(label is written) given the row's other labels: how many are written, and how many its features promise.

A row with no written label, whose features promise one, has probably lost it; a row with its usual number of labels
has probably lost none. The other labels t of a cell are counted without the cell itself, so that

    f(cell | t) = c · σ(a_t + b_t · logit(f / c) + e_t · log(expected others + 0.3)),

fitted for each t on all cells, uses nothing of the cell's own label. c is the share of true labels that are written:
other labels say whether a label is true, and no true label is written with a probability above c. If only rows with a
written label were collected, an absent cell has t ≥ 1, and the curves of t ≥ 1 do not notice the selection.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from labelgap.calibration.logits import compute_logits, fit_logits, sigmoid
from labelgap.calibration.scored_cells import ScoredCells

MAX_OTHERS = 5  # written labels; more count as so many
EXPECTED_OFFSET = 0.3
PRIOR = np.array([0.0, 1.0, 0.0])  # a, b, e: the other labels say nothing
PRIOR_WEIGHT = 10.0
MAX_TRUE = 0.999  # f / c; estimates of c may be below f


def adjust_to_row(cells: ScoredCells, f: NDArray[np.float64], share: float | NDArray = 1.0) -> NDArray[np.float64]:
    """Return P(written) of absent cells given the other labels of their rows; that of written cells stays.

    ``share`` is c, of all cells or of each.

    >>> rows, labels = np.divmod(np.arange(400), 2)
    >>> positive = np.arange(400) % 8 < 6  # rows have both labels, or neither
    >>> positive[rows % 4 == 3] = False
    >>> cells = ScoredCells(rows, labels, np.zeros(400), positive, np.ones(400), np.zeros(400, bool))
    >>> f = adjust_to_row(cells, np.full(400, 0.75))
    >>> bool(f[~positive].max() < 0.2)
    True
    """
    n_rows = int(cells.rows.max(initial=0)) + 1
    n_written = np.bincount(cells.rows[cells.positive], minlength=n_rows)
    others = np.minimum(n_written[cells.rows] - cells.positive, MAX_OTHERS)
    expected = np.bincount(cells.rows, cells.weights * f, n_rows)[cells.rows] - f
    true, share = np.minimum(f / share, MAX_TRUE), np.broadcast_to(share, f.shape)
    design = np.column_stack(
        [np.ones(len(f)), compute_logits(true), np.log(np.maximum(expected, 0.0) + EXPECTED_OFFSET)]
    )
    adjusted = f.copy()
    for t in range(MAX_OTHERS + 1):
        selected = np.flatnonzero(others == t)
        absent = selected[~cells.positive[selected]]
        if len(absent):
            features, yes, weights = design[selected], cells.positive[selected], cells.weights[selected]
            theta, _ = fit_logits(features, yes, weights, PRIOR, PRIOR_WEIGHT, ceiling=share[selected])
            adjusted[absent] = share[absent] * sigmoid(design[absent] @ theta)
    return adjusted
