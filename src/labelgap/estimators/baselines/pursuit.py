"""Compiled loops that find sparse y with A y near z, row by row, from the Gram matrix AᵀA and the products Aᵀz.

Each works on the rows from ``start`` to ``stop``; a column of A that is 0 is never used.
"""

from __future__ import annotations

import numpy as np

from labelgap.kernels.ranking import in_order  # a choice between columns must not depend on how rows were cut

DEPENDENT = 1e-8  # the share of a column's square that must be new to the columns before it
NOTHING = 1e-10  # of the largest product at the start: what is left of z by rounding


@in_order
def omp(gram, products, n_nonzero, out, start, stop):
    """Orthogonal matching pursuit: add the column nearest to what is left of z, fit all so far, again."""
    L = gram.shape[0]
    support, factor = np.empty(n_nonzero, np.int64), np.empty((n_nonzero, n_nonzero))
    y, left, scale = np.empty(n_nonzero), np.empty(L), _scales(gram)
    for i in range(start, stop):
        size = 0
        left[:] = products[i]
        least = NOTHING * _largest(left, scale)
        while size < n_nonzero:
            j = _nearest(left, scale, support[:size], least)
            if j < 0 or not _extend(factor, gram, support, size, j):
                break
            size += 1
            _solve(factor, products[i], support, size, y)
            _what_is_left(gram, products[i], support, y, size, left)
        _put(out[i], support, y, size)


@in_order
def cosamp(gram, products, n_nonzero, n_rows, max_iter, out, start, stop):
    """Compressive sampling matching pursuit: add the 2s nearest columns, fit, keep the s largest, fit again.

    At most ``n_rows`` columns are fitted at once: A has no more rows. Ends when the fit gets no better.
    """
    L, most = gram.shape[0], min(3 * n_nonzero, n_rows, gram.shape[0])
    support, factor = np.empty(most, np.int64), np.empty((most, most))
    y, left, scale, kept = np.empty(most), np.empty(L), _scales(gram), np.empty(n_nonzero, np.int64)
    for i in range(start, stop):
        n_kept, gained = 0, 0.0
        out[i] = 0
        left[:] = products[i]
        least = NOTHING * _largest(left, scale)
        for _ in range(max_iter):
            support[:n_kept] = kept[:n_kept]
            size = _refactor(factor, gram, support, n_kept)
            wanted = min(most, size + 2 * n_nonzero)
            while size < wanted:
                j = _nearest(left, scale, support[:size], least)
                if j < 0 or not _extend(factor, gram, support, size, j):
                    break
                size += 1
            _solve(factor, products[i], support, size, y)
            size = _keep_largest(support, y, scale, size, min(n_nonzero, size))
            size = _refactor(factor, gram, support, size)
            _solve(factor, products[i], support, size, y)
            gain = _gain(products[i], support, y, size)
            if gain <= gained * (1 + NOTHING):
                break
            n_kept, gained = size, gain
            kept[:n_kept] = support[:n_kept]
            _what_is_left(gram, products[i], support, y, size, left)
            _put(out[i], support, y, size)


@in_order
def lasso(gram, products, l1, max_iter, tol, out, start, stop):
    """½‖z − A y‖² + l1 ‖y‖₁ by coordinate descent, until no step changes A y by more than tol of the first step."""
    L = gram.shape[0]
    y, left, scale = np.empty(L), np.empty(L), _scales(gram)
    for i in range(start, stop):
        y[:] = 0
        left[:] = products[i]
        enough = tol * _largest(left, scale)
        for _ in range(max_iter):
            largest = 0.0
            for j in range(L):
                if scale[j] == 0:
                    continue
                pull = left[j] + gram[j, j] * y[j]
                step = np.sign(pull) * max(abs(pull) - l1, 0.0) / gram[j, j] - y[j]
                if step != 0:
                    y[j] += step
                    row = gram[j]
                    for c in range(L):
                        left[c] -= step * row[c]
                    largest = max(largest, abs(step) / scale[j])
            if largest <= enough:
                break
        out[i] = y


@in_order
def _scales(gram):
    """1 / ‖a_j‖ for each column, 0 for one that is 0."""
    scale = np.zeros(gram.shape[0])
    for j in range(gram.shape[0]):
        if gram[j, j] > 0:
            scale[j] = 1 / np.sqrt(gram[j, j])
    return scale


@in_order
def _largest(left, scale):
    largest = 0.0
    for j in range(left.shape[0]):
        largest = max(largest, abs(left[j]) * scale[j])
    return largest


@in_order
def _nearest(left, scale, support, least):
    """The column outside the support with the largest cosine to what is left, −1 where all are below ``least``."""
    best, where = least, -1
    for j in range(left.shape[0]):
        near = abs(left[j]) * scale[j]
        if near > best and not _among(j, support):
            best, where = near, j
    return where


@in_order
def _among(j, support):
    found = False
    for s in support:
        found |= s == j
    return found


@in_order
def _extend(factor, gram, support, size, j):
    """Adds column j to the support and a row to the Cholesky factor of its Gram matrix, unless it is dependent."""
    pivot = gram[j, j]
    for r in range(size):
        value = gram[j, support[r]]
        for c in range(r):
            value -= factor[size, c] * factor[r, c]
        factor[size, r] = value / factor[r, r]
        pivot -= factor[size, r] ** 2
    if pivot <= DEPENDENT * gram[j, j]:
        return False
    factor[size, size] = np.sqrt(pivot)
    support[size] = j
    return True


@in_order
def _refactor(factor, gram, support, size):
    """The factor of the first ``size`` columns of the support, without dependent ones; returns how many stay."""
    kept = 0
    for place in range(size):
        if _extend(factor, gram, support, kept, support[place]):
            kept += 1
    return kept


@in_order
def _solve(factor, products, support, size, y):
    """The least-squares coefficients of the support, by substitution."""
    for r in range(size):
        value = products[support[r]]
        for c in range(r):
            value -= factor[r, c] * y[c]
        y[r] = value / factor[r, r]
    for r in range(size - 1, -1, -1):
        value = y[r]
        for c in range(r + 1, size):
            value -= factor[c, r] * y[c]
        y[r] = value / factor[r, r]


@in_order
def _what_is_left(gram, products, support, y, size, left):
    """Aᵀ (z − A y)."""
    left[:] = products
    for r in range(size):
        row, v = gram[support[r]], y[r]
        for c in range(left.shape[0]):
            left[c] -= v * row[c]


@in_order
def _gain(products, support, y, size):
    """‖z‖² − ‖z − A y‖² of least-squares coefficients."""
    total = 0.0
    for r in range(size):
        total += y[r] * products[support[r]]
    return total


@in_order
def _keep_largest(support, y, scale, size, count):
    """Brings the ``count`` columns with the largest parts of A y to the front, in no order; returns ``count``."""
    for place in range(count):
        best = place
        for other in range(place + 1, size):
            if abs(y[other]) * scale[support[best]] > abs(y[best]) * scale[support[other]]:
                best = other
        support[place], support[best] = support[best], support[place]
        y[place], y[best] = y[best], y[place]
    return count


@in_order
def _put(row, support, y, size):
    row[:] = 0
    for r in range(size):
        row[support[r]] = y[r]
