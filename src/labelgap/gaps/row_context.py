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


def adjust_to_row(cells: ScoredCells, f: NDArray[np.float64], share: NDArray) -> NDArray[np.float64]:
    """Return P(written) of absent cells given the other labels of their rows; that of written cells stays.

    ``share`` is c of each label.

    >>> rows, labels = np.divmod(np.arange(400), 2)
    >>> positive = np.arange(400) % 8 < 6  # rows have both labels, or neither
    >>> positive[rows % 4 == 3] = False
    >>> cells = ScoredCells(rows, labels, np.zeros(400), positive, np.ones(400), np.zeros(400, bool))
    >>> f = adjust_to_row(cells, np.full(400, 0.75), np.ones(2))
    >>> bool(f[~positive].max() < 0.2)
    True
    """
    n_rows = int(cells.rows.max(initial=0)) + 1
    n_written = np.minimum(np.bincount(cells.rows[cells.positive], minlength=n_rows), MAX_OTHERS + 1).astype(np.int8)
    others = np.minimum(n_written[cells.rows] - cells.positive, MAX_OTHERS)
    expected = np.bincount(cells.rows, cells.weights * f, n_rows)
    adjusted = f.copy()
    for t in range(MAX_OTHERS + 1):
        selected = np.flatnonzero(others == t)
        yes = cells.positive[selected]
        if yes.all():
            continue
        own, c = f[selected], share[cells.labels[selected]]
        design = np.ones((len(selected), 3))
        design[:, 1] = compute_logits(np.minimum(own / c, MAX_TRUE))
        design[:, 2] = np.log(np.maximum(expected[cells.rows[selected]] - own, 0.0) + EXPECTED_OFFSET)
        theta, _ = fit_logits(design, yes, cells.weights[selected], PRIOR, PRIOR_WEIGHT, ceiling=c)
        adjusted[selected] = np.where(yes, own, c * sigmoid(design @ theta))
    return adjusted
