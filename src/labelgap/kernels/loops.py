"""The compiled loops of the CPU backend. Each processes the rows from ``start`` to ``stop``."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from labelgap.kernels.elementwise import loss_curvature, loss_gradient, loss_value
from labelgap.runtime import compile_loops

# Sums may be reordered and products fused; NaN and infinity keep their meaning.
FAST = {"reassoc", "contract", "arcp", "nsz"}
EPSILON = 2.0**-52
MAX_SHORT_SUM = 64  # cells whose scores are computed at a time
MAX_ROW_SUM = 256  # non-zeros that are summed in the type of the factors, eight at a time
compiled: Any = compile_loops(fastmath=FAST, error_model="numpy")
# Sums in the order of the source: equal rows get equal scores wherever they are, and tie.
in_order: Any = compile_loops(error_model="numpy")


@compiled
def _dot(x, y):
    total = x[0] * y[0]
    for c in range(1, x.shape[0]):
        total += x[c] * y[c]
    return total


def _widen_number(context: Any, x: Any) -> Any:
    """Return the number of a bfloat16, whose 16 bits are the upper half of a float32's; other numbers as they are."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        bits = builder.shl(builder.zext(arguments[0], ir.IntType(32)), ir.Constant(ir.IntType(32), 16))
        return builder.bitcast(bits, ir.FloatType())

    if x == types.uint16:
        return types.float32(x), generate
    return x(x), lambda *arguments: arguments[3][0]


_widen: Any = intrinsic(_widen_number)


@compiled
def round_numbers(bits, out, start, stop):
    """Write the bfloat16 next to each float32, both as bits; ties go to the even one."""
    x, y, half = bits[start:stop], out[start:stop], np.uint32(16)
    for p in range(x.shape[0]):  # Numba widens each sum of 32 bits to 64, which would not be vectorized
        odd = np.uint32(np.uint32(x[p] >> half) & np.uint32(1))
        y[p] = np.uint16(np.uint32(np.uint32(x[p] + np.uint32(0x7FFF)) + odd) >> half)


@compiled
def spmm(indptr, indices, data, B, out, position, first, limit, start, stop):
    """Add the products with the rows of B from ``first`` to ``limit`` to ``out``, which the first call clears.

    ``position`` has the next non-zero of each row, and is moved on. Eight non-zeros are added at a time: each row of
    the result is read and written an eighth as often. Long sums are float64 sums of short ones, since float32 would
    lose digits.
    """
    m, k = B.shape
    total = np.zeros(k)
    for i in range(start, stop):
        row, p, end = out[i], position[i], indptr[i + 1]
        if first == 0:
            row[:] = 0
        if limit < m:
            end = _find_end(indices, p, end, limit)
            position[i] = end
        long = end - p > MAX_ROW_SUM
        if long:
            total[:] = row
            row[:] = 0
        while p < end:
            last = min(p + MAX_ROW_SUM, end)
            _add_rows(indices, data, B, row, p, last)
            p = last
            if long:
                for c in range(k):
                    total[c] += row[c]
                    row[c] = 0
        if long:
            row[:] = total


@compiled
def _find_end(indices, p, end, limit):
    while p < end and indices[p] < limit:
        p += 1
    return p


@compiled
def _add_rows(indices, data, B, row, p, last):
    """Add the rows of B that belong to the non-zeros from p to last."""
    k = B.shape[1]
    while p + 8 <= last:
        v0, v1, v2, v3 = data[p], data[p + 1], data[p + 2], data[p + 3]
        v4, v5, v6, v7 = data[p + 4], data[p + 5], data[p + 6], data[p + 7]
        b0, b1, b2, b3 = B[indices[p]], B[indices[p + 1]], B[indices[p + 2]], B[indices[p + 3]]
        b4, b5, b6, b7 = B[indices[p + 4]], B[indices[p + 5]], B[indices[p + 6]], B[indices[p + 7]]
        for c in range(k):
            half = v0 * _widen(b0[c]) + v1 * _widen(b1[c]) + v2 * _widen(b2[c]) + v3 * _widen(b3[c])
            rest = v4 * _widen(b4[c]) + v5 * _widen(b5[c]) + v6 * _widen(b6[c]) + v7 * _widen(b7[c])
            row[c] += half + rest
        p += 8
    while p < last:
        v, b = data[p], B[indices[p]]
        for c in range(k):
            row[c] += v * _widen(b[c])
        p += 1


@compiled
def transpose(indptr, indices, data, ordered, position, t_indices, t_data, start, stop):
    """Write the columns from ``start`` to ``stop`` to the transpose; ``position`` has the next cell of each.

    Where the columns of each row are in order, cells outside of the range are skipped.
    """
    for i in range(indptr.shape[0] - 1):
        p, end = indptr[i], indptr[i + 1]
        if ordered:
            p += np.searchsorted(indices[p:end], start)
        while p < end and not (ordered and indices[p] >= stop):
            j = indices[p]
            if start <= j < stop:
                t_indices[position[j]], t_data[position[j]] = i, data[p]
                position[j] += 1
            p += 1


@compiled
def column_grams(arrays, start, stop):
    """Return the inner products of the arrays' columns with one another, (p, p, k); the lower triangle alone."""
    p, k = len(arrays), arrays[0].shape[1]
    total = np.zeros((p, p, k))
    for i in range(start, stop):
        for a in range(p):
            x = arrays[a][i]
            for b in range(a + 1):
                y, part = arrays[b][i], total[a, b]
                for c in range(k):
                    part[c] += np.float64(x[c]) * np.float64(y[c])
    return total


@compiled
def dot(x, y, start, stop):
    """Return the float64 sum of x_i y_i."""
    total, a, b = 0.0, x[start:stop], y[start:stop]  # slices: an index that could be negative is not vectorized
    for i in range(a.shape[0]):
        total += np.float64(a[i]) * np.float64(b[i])
    return total


@compiled
def gram_rows(t_indptr, t_indices, t_data, indptr, indices, data, out, start, stop):
    """Write rows of AᵀA up to the diagonal; row f sums the rows of A that have feature f, which must be in order."""
    for f in range(start, stop):
        row = out[f]
        for p in range(t_indptr[f], t_indptr[f + 1]):
            v, i = t_data[p], t_indices[p]
            for q in range(indptr[i], indptr[i + 1]):
                if indices[q] > f:
                    break
                row[indices[q]] += v * data[q]


@compiled
def sddmm(indptr, indices, B, H, out, start, stop):
    """Write the products b_i·h_j at the stored cells."""
    for i in range(start, stop):
        _score_cells(indices, B[i], H, out, indptr[i], indptr[i + 1])


@compiled
def _score_cells(indices, b, H, out, p, last):
    """Write b·h_j of the cells from p to last, four at a time."""
    k = b.shape[0]
    while p + 4 <= last:
        h0, h1, h2, h3 = H[indices[p]], H[indices[p + 1]], H[indices[p + 2]], H[indices[p + 3]]
        s0, s1, s2, s3 = b[0] * h0[0], b[0] * h1[0], b[0] * h2[0], b[0] * h3[0]
        for c in range(1, k):
            s0 += b[c] * h0[c]
            s1 += b[c] * h1[c]
            s2 += b[c] * h2[c]
            s3 += b[c] * h3[c]
        out[p], out[p + 1], out[p + 2], out[p + 3] = s0, s1, s2, s3
        p += 4
    while p < last:
        out[p] = _dot(b, H[indices[p]])
        p += 1


@compiled
def cells_value(loss, indptr, indices, targets, B, H, start, stop):
    """Return Σ ℓ over the stored cells."""
    total, scores = 0.0, np.empty(MAX_SHORT_SUM, B.dtype)
    for i in range(start, stop):
        for first in range(indptr[i], indptr[i + 1], MAX_SHORT_SUM):
            last = min(first + MAX_SHORT_SUM, indptr[i + 1])
            _score_cells(indices[first:last], B[i], H, scores, 0, last - first)
            for p in range(first, last):
                total += loss_value(loss, np.float64(targets[p]), np.float64(scores[p - first]))
    return total


@compiled
def cells_sum(loss, targets, scores, changes, step, start, stop):
    """Return Σ ℓ over the stored cells at scores + step · changes."""
    total = 0.0
    for c in range(start, stop):
        total += loss_value(loss, np.float64(targets[c]), np.float64(scores[c]) + step * np.float64(changes[c]))
    return total


@compiled
def cells_model(loss, indptr, indices, targets, B, H, gradient, row_curvatures, curvature, start, stop):
    """Return Σ ℓ over the stored cells; write D H, Σ ℓ'' / L of each row, and ℓ''."""
    total, slopes = 0.0, np.empty(MAX_SHORT_SUM, B.dtype)
    for i in range(start, stop):
        gradient[i] = 0
        row_curvature, first, end = 0.0, indptr[i], indptr[i + 1]
        while first < end:
            last = min(first + MAX_SHORT_SUM, end)
            _score_cells(indices, B[i], H, curvature, first, last)
            for p in range(first, last):
                a, b = np.float64(targets[p]), np.float64(curvature[p])
                total += loss_value(loss, a, b)
                slopes[p - first] = loss_gradient(loss, a, b)
                curvature[p] = loss_curvature(loss, a, b)
                row_curvature += curvature[p]
            _add_rows(indices[first:last], slopes, H, gradient[i], 0, last - first)
            first = last
        row_curvatures[i, 0] = row_curvature / H.shape[0]
    return total


@compiled
def cells_hessp(indptr, indices, curvature, S, H, out, start, stop):
    """Write U H, U_ij = ℓ''_ij (s_i·h_j)."""
    for i in range(start, stop):
        out[i] = 0
        _add_curved_cells(indices, curvature, H, S[i], out[i], indptr[i], indptr[i + 1])


@compiled
def solve_rows(indptr, indices, curvature, H, m, p, ridge, R, X, tol, max_iter, start, stop):
    """Write the solutions of rows by conjugate gradients, and their residuals to R, whose rows are the right sides.

    Returns the most products of a row, and whether all residuals are at most ``tol`` of the right sides.
    """
    k, most, done = H.shape[1], 0, True
    scale, inverse = np.empty(k, H.dtype), np.empty(k, H.dtype)
    direction, image = np.empty(k, H.dtype), np.empty(k, H.dtype)
    for i in range(start, stop):
        r, x, first, last = R[i], X[i], indptr[i], indptr[i + 1]
        for c in range(k):
            scale[c] = p[i] * m[c] + ridge[i]
        _invert_diagonal(indices, curvature, H, scale, inverse, first, last)
        square, rz = _precondition(r, inverse)
        goal, products = tol * tol * square, 0
        for c in range(k):
            direction[c] = inverse[c] * r[c]
        while square > goal and products < max_iter:
            for c in range(k):
                image[c] = scale[c] * direction[c]
            _add_curved_cells(indices, curvature, H, direction, image, first, last)
            products += 1
            bend = _dot(direction, image)
            if not (bend > 0 and rz > 0):
                break
            step = rz / bend
            for c in range(k):
                x[c] += step * direction[c]
                r[c] -= step * image[c]
            previous = rz
            square, rz = _precondition(r, inverse)
            ratio = rz / previous
            for c in range(k):
                direction[c] = inverse[c] * r[c] + ratio * direction[c]
        most, done = max(most, products), done and square <= goal
    return most, done


@compiled
def _precondition(r, inverse):
    """Return Σ r² and Σ r² inverse."""
    square, rz = r[0] * r[0], r[0] * r[0] * inverse[0]
    for c in range(1, r.shape[0]):
        square += r[c] * r[c]
        rz += r[c] * r[c] * inverse[c]
    return square, rz


@compiled
def _invert_diagonal(indices, curvature, H, scale, inverse, first, last):
    """Write the inverse of scale + Σ c h∘h, 0 where that is at rounding level."""
    k = scale.shape[0]
    inverse[:] = scale
    for q in range(first, last):
        v, h = curvature[q], H[indices[q]]
        for c in range(k):
            inverse[c] += v * h[c] * h[c]
    least = inverse[0]
    for c in range(1, k):
        least = max(least, inverse[c])
    least *= EPSILON
    for c in range(k):
        inverse[c] = 1 / inverse[c] if inverse[c] > least else 0


@compiled
def _add_curved_cells(indices, curvature, H, s, out, q, last):
    """Add Σ c (s·h) h to ``out``, four cells at a time."""
    k = s.shape[0]
    while q + 4 <= last:
        h0, h1, h2, h3 = H[indices[q]], H[indices[q + 1]], H[indices[q + 2]], H[indices[q + 3]]
        u0, u1, u2, u3 = s[0] * h0[0], s[0] * h1[0], s[0] * h2[0], s[0] * h3[0]
        for c in range(1, k):
            u0 += s[c] * h0[c]
            u1 += s[c] * h1[c]
            u2 += s[c] * h2[c]
            u3 += s[c] * h3[c]
        u0, u1, u2, u3 = u0 * curvature[q], u1 * curvature[q + 1], u2 * curvature[q + 2], u3 * curvature[q + 3]
        for c in range(k):
            out[c] += (u0 * h0[c] + u1 * h1[c]) + (u2 * h2[c] + u3 * h3[c])
        q += 4
    while q < last:
        h = H[indices[q]]
        u = curvature[q] * _dot(s, h)
        for c in range(k):
            out[c] += u * h[c]
        q += 1


@compiled
def all_value(loss, indptr, indices, negative, positive, p, q, scores, first, start, stop):
    """Return Σ p_i q_j ℓ over a block of scores: all cells as negatives, then corrections at the positives."""
    total = 0.0
    for r in range(start, stop):
        row, part = scores[r], 0.0
        for j in range(row.shape[0]):
            part += q[j] * loss_value(loss, negative, np.float64(row[j]))
        for c in range(indptr[first + r], indptr[first + r + 1]):
            j = indices[c]
            b = np.float64(row[j])
            part += q[j] * (loss_value(loss, positive, b) - loss_value(loss, negative, b))
        total += p[first + r] * part
    return total


@compiled
def all_gradient(loss, indptr, indices, negative, positive, p, q, row_curvatures, scores, first, start, stop):
    """Return Σ p_i q_j ℓ over a block of scores; replace them by p_i q_j ℓ' and write each row's mean p_i q_j ℓ''."""
    total = 0.0
    unit = scores.dtype.type(1)
    for r in range(start, stop):
        row, of_row = scores[r], p[first + r]
        low, high = indptr[first + r], indptr[first + r + 1]
        slopes = np.empty(high - low, scores.dtype)
        part = row_curvature = 0.0
        for c in range(low, high):
            j = indices[c]
            b = np.float64(row[j])
            part += q[j] * (loss_value(loss, positive, b) - loss_value(loss, negative, b))
            row_curvature += q[j] * (loss_curvature(loss, positive, b) - loss_curvature(loss, negative, b))
            slopes[c - low] = unit * (of_row * q[j] * loss_gradient(loss, positive, b))
        for j in range(row.shape[0]):
            b = np.float64(row[j])
            part += q[j] * loss_value(loss, negative, b)
            row_curvature += q[j] * loss_curvature(loss, negative, b)
            row[j] = unit * (of_row * q[j] * loss_gradient(loss, negative, b))
        for c in range(low, high):
            row[indices[c]] = slopes[c - low]
        row_curvatures[first + r, 0] = of_row * row_curvature / row.shape[0]
        total += of_row * part
    return total


@compiled
def all_hessp(loss, indptr, indices, negative, positive, p, q, scores, change, first, start, stop):
    """Multiply a block of score changes by p_i q_j ℓ'' at the scores."""
    for r in range(start, stop):
        row, delta, of_row = scores[r], change[r], p[first + r]
        low, high = indptr[first + r], indptr[first + r + 1]
        products = np.empty(high - low, change.dtype)
        for c in range(low, high):
            j = indices[c]
            products[c - low] = delta[j] * of_row * q[j] * loss_curvature(loss, positive, np.float64(row[j]))
        for j in range(row.shape[0]):
            delta[j] *= of_row * q[j] * loss_curvature(loss, negative, np.float64(row[j]))
        for c in range(low, high):
            delta[indices[c]] = products[c - low]


@compiled
def hide(indptr, indices, scores, first, start, stop):
    """Set the stored cells of a block of scores to −∞."""
    for r in range(start, stop):
        for c in range(indptr[first + r], indptr[first + r + 1]):
            scores[r, indices[c]] = -np.inf


@compiled
def topk(indices, best, scores, first, start, stop):
    """Write the largest scores of each row, best first; an equal score does not displace an earlier one."""
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


# --- rankings of a sparse product -----------------------------------------------------------------------------------


@in_order
def product_topk(indptr, indices, data, t_indptr, t_indices, t_data, place, full, best_indices, best, start, stop):
    """Write the largest entries of each row of A Bᵀ, best first; the product is never in memory as a whole.

    ``t_`` is Bᵀ, whose row f is also ``full[place[f]]``.
    """
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
            count = _add_listing_columns(row, values, t_indptr, t_indices, t_data, scores, seen, touched)
            listed = touched[:count]
        else:
            chosen, factors = np.empty(row.shape[0], np.int64), np.empty(row.shape[0], data.dtype)
            count = _add_rare_features(row, values, t_indptr, t_indices, t_data, place, scores, chosen, factors)
            _add_full_rows(chosen[:count], factors[:count], full, scores)
            listed = every
        _rank_scores(scores, listed, best_indices[i], best[i], pool, pooled)
        for j in listed:
            scores[j], seen[j] = 0, False


@in_order
def _add_listing_columns(row, values, t_indptr, t_indices, t_data, scores, seen, touched):
    """Add a row of A Bᵀ to the scores, feature by feature, and list the columns that change."""
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
def _add_rare_features(row, values, t_indptr, t_indices, t_data, place, scores, chosen, factors):
    """Add the features without a full row to the scores, and list the full rows of the others."""
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
def _add_full_rows(chosen, factors, full, scores):
    """Add multiples of full rows to the scores, four at a time."""
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
def _rank_scores(scores, listed, index, value, pool, pooled):
    """Write the largest scores, best first: positives, zeros, negatives. ``listed`` has all that are not 0."""
    filled, j = 0, 0
    for positive in (True, False):
        if filled < index.shape[0]:
            filled += _rank_sign(scores, listed, positive, index[filled:], value[filled:], pool, pooled)
        while filled < index.shape[0] and j < scores.shape[0]:
            if scores[j] == 0:
                index[filled], value[filled] = j, 0
                filled += 1
            j += 1


@in_order
def _rank_sign(scores, listed, positive, index, value, pool, pooled):
    """Write the largest listed scores of one sign, best first; a full pool of candidates is reduced to the k best."""
    k, count = index.shape[0], 0
    least, last = scores.dtype.type(0 if positive else -np.inf), scores.shape[0]
    for j in listed:
        s = scores[j]
        if not _is_worse(s, j, least, last) and (s > 0 if positive else not s >= 0):
            pool[count], pooled[count] = j, s
            count += 1
            if count == pool.shape[0]:
                _select_best(pool, pooled, count, k)
                count, least, last = k, pooled[k - 1], pool[k - 1]
    if count > k:
        _select_best(pool, pooled, count, k)
        count = k
    _sort_pairs(pool[:count], pooled[:count])
    for c in range(count):
        index[c], value[c] = pool[c], pooled[c]
    return count


@in_order
def _is_worse(s, i, t, j):
    return s < t or (s == t and i > j)


@in_order
def _select_best(index, value, count, k):
    """Move the k best of ``count`` pairs to the front, the worst of these to position k − 1 (Hoare's selection)."""
    low, high = 0, count - 1
    while low < high:
        s, j = value[(low + high) // 2], index[(low + high) // 2]
        left, right = low, high
        while left <= right:
            while _is_worse(s, j, value[left], index[left]):
                left += 1
            while _is_worse(value[right], index[right], s, j):
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
def _sort_pairs(index, value):
    """Sort pairs, best first (Shell sort)."""
    gap = index.shape[0]
    while gap > 1:
        gap = max(1, 5 * gap // 11)
        for position in range(gap, index.shape[0]):
            s, j, at = value[position], index[position], position
            while at >= gap and _is_worse(value[at - gap], index[at - gap], s, j):
                value[at], index[at] = value[at - gap], index[at - gap]
                at -= gap
            value[at], index[at] = s, j


# --- dense cells by column ------------------------------------------------------------------------------------------


@compiled
def add_column_values(loss, targets, scores, weights, negative, positive_weights, values):
    """Add Σ_i weights_i ℓ(targets_ij, scores_ij) over known cells to each column's value, in float64.

    Cells with a target above ``negative`` have the further weight of their column.
    """
    for i in range(targets.shape[0]):
        for j in range(targets.shape[1]):
            a = np.float64(targets[i, j])
            if not np.isnan(a):
                unit = weights[i] * positive_weights[j] if a > negative else weights[i]
                values[j] += unit * loss_value(loss, a, np.float64(scores[i, j]))


@compiled
def write_column_model(loss, targets, scores, weights, negative, positive_weights, slopes, curvature):
    """Write ℓ' and ℓ'' of each cell times its weights (see ``add_column_values``), 0 for unknown cells."""
    for i in range(targets.shape[0]):
        for j in range(targets.shape[1]):
            a, b = np.float64(targets[i, j]), np.float64(scores[i, j])
            if np.isnan(a):
                slopes[i, j], curvature[i, j] = 0, 0
            else:
                unit = scores.dtype.type(weights[i] * positive_weights[j] if a > negative else weights[i])
                slopes[i, j] = unit * loss_gradient(loss, a, b)
                curvature[i, j] = unit * loss_curvature(loss, a, b)
