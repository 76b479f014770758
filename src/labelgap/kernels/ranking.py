"""The compiled loops that rank the rows of a sparse product, which is never in memory as a whole."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

# Sums in the order that is written: equal rows have equal scores wherever they stand, and tie.
in_order: Any = njit(nogil=True, cache=True, error_model="numpy")


@in_order
def product_topk(indptr, indices, data, t_indptr, t_indices, t_data, place, full, best_indices, best, start, stop):
    """The largest entries of each row of A Bᵀ, best first; ``t_`` is Bᵀ, whose row f is also ``full[place[f]]``."""
    m = full.shape[1]
    scores, seen = np.zeros(m, data.dtype), np.zeros(m, np.bool_)
    touched, every = np.empty(m, np.int64), np.arange(m)
    pool, pooled = np.empty(4 * best.shape[1], np.int64), np.empty(4 * best.shape[1], data.dtype)
    for i in range(start, stop):
        row, values = indices[indptr[i] : indptr[i + 1]], data[indptr[i] : indptr[i + 1]]
        products = 0
        for f in row:
            products += t_indptr[f + 1] - t_indptr[f]
        if products < m:
            count = _scatter_listed(row, values, t_indptr, t_indices, t_data, scores, seen, touched)
            listed = touched[:count]
        else:
            chosen, factors = np.empty(row.shape[0], np.int64), np.empty(row.shape[0], data.dtype)
            count = _scatter_rare(row, values, t_indptr, t_indices, t_data, place, scores, chosen, factors)
            _add_full(chosen[:count], factors[:count], full, scores)
            listed = every
        _rank(scores, listed, best_indices[i], best[i], pool, pooled)
        for j in listed:
            scores[j], seen[j] = 0, False


@in_order
def _scatter_listed(row, values, t_indptr, t_indices, t_data, scores, seen, touched):
    """Adds one row of A Bᵀ to the scores, feature by feature, and lists the columns that it touches."""
    count = 0
    for p in range(row.shape[0]):
        v, f = values[p], row[p]
        for q in range(t_indptr[f], t_indptr[f + 1]):
            j = t_indices[q]
            scores[j] += v * t_data[q]
            if not seen[j]:
                seen[j] = True
                touched[count] = j
                count += 1
    return count


@in_order
def _scatter_rare(row, values, t_indptr, t_indices, t_data, place, scores, chosen, factors):
    """The same without a list, for the features that have no full row; chooses those that have one."""
    count = 0
    for p in range(row.shape[0]):
        v, f = values[p], row[p]
        if place[f] >= 0:
            chosen[count], factors[count] = place[f], v
            count += 1
            continue
        for q in range(t_indptr[f], t_indptr[f + 1]):
            scores[t_indices[q]] += v * t_data[q]
    return count


@in_order
def _add_full(chosen, factors, full, scores):
    """Adds multiples of full rows to the scores, four at a time."""
    p = 0
    while p + 4 <= chosen.shape[0]:
        v0, v1, v2, v3 = factors[p], factors[p + 1], factors[p + 2], factors[p + 3]
        b0, b1, b2, b3 = full[chosen[p]], full[chosen[p + 1]], full[chosen[p + 2]], full[chosen[p + 3]]
        for j in range(scores.shape[0]):
            scores[j] += v0 * b0[j] + v1 * b1[j] + v2 * b2[j] + v3 * b3[j]
        p += 4
    while p < chosen.shape[0]:
        v, b = factors[p], full[chosen[p]]
        for j in range(scores.shape[0]):
            scores[j] += v * b[j]
        p += 1


@in_order
def _rank(scores, listed, index, value, pool, pooled):
    """The largest scores, best first: those above 0, then zeros, then the rest. All that are not 0 are listed."""
    filled, j = 0, 0
    for positive in (True, False):
        if filled < index.shape[0]:
            filled += _select(scores, listed, positive, index[filled:], value[filled:], pool, pooled)
        while filled < index.shape[0] and j < scores.shape[0]:
            if scores[j] == 0:
                index[filled], value[filled] = j, 0
                filled += 1
            j += 1


@in_order
def _select(scores, listed, positive, index, value, pool, pooled):
    """The largest listed scores of one sign, best first; a pool of candidates is cut down to k when it is full."""
    k, count = index.shape[0], 0
    least, last = scores.dtype.type(0 if positive else -np.inf), scores.shape[0]
    for j in listed:
        s = scores[j]
        if not _worse(s, j, least, last) and (s > 0 if positive else not s >= 0):
            pool[count], pooled[count] = j, s
            count += 1
            if count == pool.shape[0]:
                _cut_down(pool, pooled, count, k)
                count, least, last = k, pooled[k - 1], pool[k - 1]
    if count > k:
        _cut_down(pool, pooled, count, k)
        count = k
    _sort(pool[:count], pooled[:count])
    for c in range(count):
        index[c], value[c] = pool[c], pooled[c]
    return count


@in_order
def _worse(s, i, t, j):
    return s < t or (s == t and i > j)


@in_order
def _cut_down(index, value, count, k):
    """Brings the k best of ``count`` pairs to the front, the worst of them to place k − 1 (Hoare's selection)."""
    low, high = 0, count - 1
    while low < high:
        s, j = value[(low + high) // 2], index[(low + high) // 2]
        left, right = low, high
        while left <= right:
            while _worse(s, j, value[left], index[left]):
                left += 1
            while _worse(value[right], index[right], s, j):
                right -= 1
            if left <= right:
                value[left], value[right] = value[right], value[left]
                index[left], index[right] = index[right], index[left]
                left += 1
                right -= 1
        if k - 1 <= right:
            high = right
        elif k - 1 >= left:
            low = left
        else:
            break


@in_order
def _sort(index, value):
    """Sorts pairs, best first, by insertion over shrinking distances (Shell)."""
    gap = index.shape[0]
    while gap > 1:
        gap = max(1, 5 * gap // 11)
        for place in range(gap, index.shape[0]):
            s, j, at = value[place], index[place], place
            while at >= gap and _worse(value[at - gap], index[at - gap], s, j):
                value[at], index[at] = value[at - gap], index[at - gap]
                at -= gap
            value[at], index[at] = s, j
