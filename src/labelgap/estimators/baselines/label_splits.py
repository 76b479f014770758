"""The compiled loops that share rows out to two sides by how well a ranking of labels for each side serves them.

    max over δ, r⁺, r⁻   Σ over δ_i = 1 of (nDCG(r⁺, y_i) + z_i / 2)  +  Σ over δ_i = −1 of (nDCG(r⁻, y_i) − z_i / 2)

nDCG(r, y_i) = Σ over positives l of row i of gain_l / log2(1 + r(l)), divided by the same sum over the first ranks
with gains of 1. Given δ, the best ranking of a side is by its labels' sums of gains; given the rankings, a row
belongs where it gains more. The z_i are margins of a separator, 0 where there is none: −z_i is what the logistic loss
of δ_i = 1 is above that of δ_i = −1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelgap.kernels.ranking import in_order

MOST_EXCHANGES = 100


class Gains(NamedTuple):
    """The positives of each row, the gain of each label, and one over the DCG of a row's ideal ranking."""

    indptr: NDArray
    indices: NDArray
    of_label: NDArray
    of_row: NDArray


@in_order
def exchange(gains, rows, margins, signs, sums, discounts):
    """Moves rows to the other side while that helps; returns the nDCG of all rows on their sides.

    A row that is served alike stays where it is. ``sums`` is zero before and after; ``discounts`` are those of the
    labels that occur.
    """
    labels = _labels_of(gains, rows, sums[0])
    total = 0.0
    for _ in range(MOST_EXCHANGES):
        _rank(gains, rows, signs, labels, sums, discounts)
        total, moved = 0.0, False
        for place in range(rows.shape[0]):
            below, above = _served(gains, rows[place], discounts)
            better = above - below + margins[place]
            if better * signs[place] < 0:
                signs[place], moved = -signs[place], True
            total += above if signs[place] > 0 else below
        if not moved:
            break
    return total


@in_order
def alike(gains, rows):
    """Tells whether all rows have the same positives."""
    first = gains.indices[gains.indptr[rows[0]] : gains.indptr[rows[0] + 1]]
    for i in rows[1:]:
        start = gains.indptr[i]
        if gains.indptr[i + 1] - start != first.shape[0]:
            return False
        for p in range(first.shape[0]):
            if gains.indices[start + p] != first[p]:
                return False
    return True


@in_order
def _labels_of(gains, rows, marks):
    """The labels that occur in these rows, ascending."""
    count = 0
    for i in rows:
        count += gains.indptr[i + 1] - gains.indptr[i]
    found, kept = np.empty(count, np.int32), 0
    for i in rows:
        for p in range(gains.indptr[i], gains.indptr[i + 1]):
            label = gains.indices[p]
            if marks[label] == 0:
                marks[label] = 1
                found[kept] = label
                kept += 1
    for label in found[:kept]:
        marks[label] = 0
    return np.sort(found[:kept])


@in_order
def _rank(gains, rows, signs, labels, sums, discounts):
    """The discount of each label in the best ranking of either side; equal sums rank by index."""
    for place in range(rows.shape[0]):
        i, side = rows[place], int(signs[place] > 0)
        for p in range(gains.indptr[i], gains.indptr[i + 1]):
            label = gains.indices[p]
            sums[side, label] += gains.of_row[i] * gains.of_label[label]
    keys = np.empty(labels.shape[0])
    for side in range(2):
        for c in range(labels.shape[0]):
            keys[c], sums[side, labels[c]] = -sums[side, labels[c]], 0
        order = np.argsort(keys, kind="mergesort")
        for rank in range(order.shape[0]):
            discounts[side, labels[order[rank]]] = 1 / np.log2(2.0 + rank)


@in_order
def _served(gains, i, discounts):
    """The nDCG of a row by the rankings of the two sides."""
    below = above = 0.0
    for p in range(gains.indptr[i], gains.indptr[i + 1]):
        label = gains.indices[p]
        below += gains.of_label[label] * discounts[0, label]
        above += gains.of_label[label] * discounts[1, label]
    return below * gains.of_row[i], above * gains.of_row[i]
