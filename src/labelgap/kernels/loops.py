"""The compiled loops of the CPU backend. Each works on the rows from ``start`` to ``stop``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from labelgap.kernels.elementwise import cell_curvature, cell_gradient, cell_value

# Sums may be reordered and products fused; NaN and infinity keep their meaning.
FAST = {"reassoc", "contract", "arcp", "nsz"}
PART = 64  # non-zeros that are summed in the type of the factors
compiled: Any = njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")


@compiled
def _dot(x, y):
    total = x[0] * y[0]
    for c in range(1, x.shape[0]):
        total += x[c] * y[c]
    return total


@compiled
def spmm(indptr, indices, data, B, out, start, stop):
    """out = A B; four non-zeros at a time, so that a row of the result is read and written a quarter as often.

    Sums of many non-zeros are float64 between short parts: float32 would lose their digits.
    """
    k = B.shape[1]
    total = np.zeros(k)
    for i in range(start, stop):
        row = out[i]
        row[:] = 0
        p, end = indptr[i], indptr[i + 1]
        long = end - p > PART
        if long:
            total[:] = 0
        while p < end:
            last = min(p + PART, end)
            while p + 4 <= last:
                v0, v1, v2, v3 = data[p], data[p + 1], data[p + 2], data[p + 3]
                b0, b1, b2, b3 = B[indices[p]], B[indices[p + 1]], B[indices[p + 2]], B[indices[p + 3]]
                for c in range(k):
                    row[c] += v0 * b0[c] + v1 * b1[c] + v2 * b2[c] + v3 * b3[c]
                p += 4
            while p < last:
                v, b = data[p], B[indices[p]]
                for c in range(k):
                    row[c] += v * b[c]
                p += 1
            if long:
                for c in range(k):
                    total[c] += row[c]
                    row[c] = 0
        if long:
            row[:] = total


@compiled
def gram_rows(t_indptr, t_indices, t_data, indptr, indices, data, out, start, stop):
    """Rows of AᵀA: feature f meets every feature of every row that has f."""
    for f in range(start, stop):
        row = out[f]
        for p in range(t_indptr[f], t_indptr[f + 1]):
            v, i = t_data[p], t_indices[p]
            for q in range(indptr[i], indptr[i + 1]):
                row[indices[q]] += v * data[q]


@compiled
def sddmm(indptr, indices, B, H, out, start, stop):
    """The products b_i·h_j at the stored cells."""
    for i in range(start, stop):
        for p in range(indptr[i], indptr[i + 1]):
            out[p] = _dot(B[i], H[indices[p]])


@compiled
def cells_value(cell, indptr, indices, targets, B, H, start, stop):
    """Σ ℓ over the stored cells."""
    total = 0.0
    for i in range(start, stop):
        for p in range(indptr[i], indptr[i + 1]):
            total += cell_value(cell, np.float64(targets[p]), np.float64(_dot(B[i], H[indices[p]])))
    return total


@compiled
def cells_sum(cell, targets, scores, changes, step, start, stop):
    """Σ ℓ of the stored cells at scores + step · changes."""
    total = 0.0
    for c in range(start, stop):
        total += cell_value(cell, np.float64(targets[c]), np.float64(scores[c]) + step * np.float64(changes[c]))
    return total


@compiled
def cells_model(cell, indptr, indices, targets, B, H, gradient, weights, curvature, start, stop):
    """Σ ℓ over the stored cells; writes D H, the rows' Σ ℓ'' / L, and ℓ''."""
    total = 0.0
    k = B.shape[1]
    for i in range(start, stop):
        row = gradient[i]
        row[:] = 0
        bend = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            h = H[indices[p]]
            a, b = np.float64(targets[p]), np.float64(_dot(B[i], h))
            total += cell_value(cell, a, b)
            curvature[p] = cell_curvature(cell, a, b)
            bend += curvature[p]
            slope = B.dtype.type(cell_gradient(cell, a, b))
            for c in range(k):
                row[c] += slope * h[c]
        weights[i, 0] = bend / H.shape[0]
    return total


@compiled
def cells_hessp(indptr, indices, curvature, S, H, out, start, stop):
    """Writes U H, U_ij = ℓ''_ij (s_i·h_j)."""
    k = S.shape[1]
    for i in range(start, stop):
        row = out[i]
        row[:] = 0
        for p in range(indptr[i], indptr[i + 1]):
            if curvature[p] != 0:
                h = H[indices[p]]
                u = curvature[p] * _dot(S[i], h)
                for c in range(k):
                    row[c] += u * h[c]


@compiled
def all_value(cell, indptr, indices, negative, positive, p, q, scores, first, start, stop):
    """Σ p_i q_j ℓ over a block of scores: as if all targets were negative, then the positives put right."""
    total = 0.0
    for r in range(start, stop):
        row, part = scores[r], 0.0
        for j in range(row.shape[0]):
            part += q[j] * cell_value(cell, negative, np.float64(row[j]))
        for c in range(indptr[first + r], indptr[first + r + 1]):
            j = indices[c]
            b = np.float64(row[j])
            part += q[j] * (cell_value(cell, positive, b) - cell_value(cell, negative, b))
        total += p[first + r] * part
    return total


@compiled
def all_gradient(cell, indptr, indices, negative, positive, p, q, weights, scores, first, start, stop):
    """Σ p_i q_j ℓ over a block of scores, which are replaced by p_i q_j ℓ'; writes the rows' mean p_i q_j ℓ''."""
    total = 0.0
    one = scores.dtype.type(1)
    for r in range(start, stop):
        row, of_row = scores[r], p[first + r]
        low, high = indptr[first + r], indptr[first + r + 1]
        slopes = np.empty(high - low, scores.dtype)
        part = bend = 0.0
        for c in range(low, high):
            j = indices[c]
            b = np.float64(row[j])
            part += q[j] * (cell_value(cell, positive, b) - cell_value(cell, negative, b))
            bend += q[j] * (cell_curvature(cell, positive, b) - cell_curvature(cell, negative, b))
            slopes[c - low] = one * (of_row * q[j] * cell_gradient(cell, positive, b))
        for j in range(row.shape[0]):
            b = np.float64(row[j])
            part += q[j] * cell_value(cell, negative, b)
            bend += q[j] * cell_curvature(cell, negative, b)
            row[j] = one * (of_row * q[j] * cell_gradient(cell, negative, b))
        for c in range(low, high):
            row[indices[c]] = slopes[c - low]
        weights[first + r, 0] = of_row * bend / row.shape[0]
        total += of_row * part
    return total


@compiled
def all_hessp(cell, indptr, indices, negative, positive, p, q, scores, change, first, start, stop):
    """Multiplies a block of score changes by p_i q_j ℓ'' at the scores."""
    for r in range(start, stop):
        row, delta, of_row = scores[r], change[r], p[first + r]
        low, high = indptr[first + r], indptr[first + r + 1]
        kept = np.empty(high - low, change.dtype)
        for c in range(low, high):
            j = indices[c]
            kept[c - low] = delta[j] * of_row * q[j] * cell_curvature(cell, positive, np.float64(row[j]))
        for j in range(row.shape[0]):
            delta[j] *= of_row * q[j] * cell_curvature(cell, negative, np.float64(row[j]))
        for c in range(low, high):
            delta[indices[c]] = kept[c - low]


@compiled
def hide(indptr, indices, scores, first, start, stop):
    """Puts the stored cells of a block of scores below all others."""
    for r in range(start, stop):
        for c in range(indptr[first + r], indptr[first + r + 1]):
            scores[r, indices[c]] = -np.inf


@compiled
def topk(indices, best, scores, first, start, stop):
    """The largest scores of each row, best first; an equal score does not displace an earlier one."""
    k = indices.shape[1]
    for r in range(start, stop):
        row, index, value = scores[r], indices[r], best[r]
        filled = 0
        for j in range(row.shape[0]):
            s = row[j]
            if filled == k and s <= value[k - 1]:
                continue
            at = min(filled, k - 1)
            while at > 0 and value[at - 1] < s:
                value[at], index[at] = value[at - 1], index[at - 1]
                at -= 1
            value[at], index[at] = s, j
            if filled < k:
                filled += 1
