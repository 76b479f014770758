"""Sparse recovery: the sparse y with A y near z, for each row of codes z, with A (k×L).

Compiled loops find y by pursuit or by the lasso, from the Gram matrix AᵀA and the products Aᵀz. They process the rows
from ``start`` to ``stop`` and never use a zero column of A. :func:`infer_posterior` computes a posterior of y by
variational Bayes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelgap.kernels.loops import in_order  # the choice between columns must not depend on the blocks of rows
from labelgap.runtime import map_ranges, row_bounds

MIN_PIVOT_SHARE = 1e-8  # a column is dependent if its pivot is below this share of its square
ROUNDING_SHARE = 1e-10  # products below this share of the largest product at the start are rounding errors
GAMMA_SHAPE, GAMMA_RATE = 1e-3, 1e-3  # a nearly flat prior of precisions
MAX_CELLS_PER_POSTERIOR_BLOCK = 1 << 17  # they fit in the cache


# --- pursuit and lasso ----------------------------------------------------------------------------------------------


@in_order
def omp(gram, products, n_nonzero, out, start, stop):
    """Orthogonal matching pursuit: add the column nearest to the residual, fit all columns so far, repeat."""
    L = gram.shape[0]
    support, factor = np.empty(n_nonzero, np.int64), np.empty((n_nonzero, n_nonzero))
    y, residual, scale = np.empty(n_nonzero), np.empty(L), _inverse_lengths(gram)
    for i in range(start, stop):
        size = 0
        residual[:] = products[i]
        least = ROUNDING_SHARE * _largest_cosine(residual, scale)
        while size < n_nonzero:
            j = _nearest_column(residual, scale, support[:size], least)
            if j < 0 or not _extend(factor, gram, support, size, j):
                break
            size += 1
            _solve(factor, products[i], support, size, y)
            _update_residual(gram, products[i], support, y, size, residual)
        _store(out[i], support, y, size)


@in_order
def cosamp(gram, products, n_nonzero, n_rows, max_iter, out, start, stop):
    """Compressive sampling matching pursuit: add the 2s nearest columns, fit, keep the s largest, fit again.

    Fits at most ``n_rows`` columns, the number of rows of A. Ends when the fit does not improve.
    """
    L, max_size = gram.shape[0], min(3 * n_nonzero, n_rows, gram.shape[0])
    support, factor = np.empty(max_size, np.int64), np.empty((max_size, max_size))
    y, residual, scale, best = np.empty(max_size), np.empty(L), _inverse_lengths(gram), np.empty(n_nonzero, np.int64)
    for i in range(start, stop):
        n_best, best_gain = 0, 0.0
        out[i] = 0
        residual[:] = products[i]
        least = ROUNDING_SHARE * _largest_cosine(residual, scale)
        for _ in range(max_iter):
            support[:n_best] = best[:n_best]
            size = _refactor(factor, gram, support, n_best)
            target_size = min(max_size, size + 2 * n_nonzero)
            while size < target_size:
                j = _nearest_column(residual, scale, support[:size], least)
                if j < 0 or not _extend(factor, gram, support, size, j):
                    break
                size += 1
            _solve(factor, products[i], support, size, y)
            size = _move_largest_to_front(support, y, scale, size, min(n_nonzero, size))
            size = _refactor(factor, gram, support, size)
            _solve(factor, products[i], support, size, y)
            gain = _explained_square(products[i], support, y, size)
            if gain <= best_gain * (1 + ROUNDING_SHARE):
                break
            n_best, best_gain = size, gain
            best[:n_best] = support[:n_best]
            _update_residual(gram, products[i], support, y, size, residual)
            _store(out[i], support, y, size)


@in_order
def lasso(gram, products, l1, max_iter, tol, out, start, stop):
    """½‖z − A y‖² + l1 ‖y‖₁ by coordinate descent, until no step changes A y by more than tol of the first step."""
    L = gram.shape[0]
    y, residual, scale = np.empty(L), np.empty(L), _inverse_lengths(gram)
    for i in range(start, stop):
        y[:] = 0
        residual[:] = products[i]
        max_step = tol * _largest_cosine(residual, scale)
        for _ in range(max_iter):
            largest = 0.0
            for j in range(L):
                if scale[j] == 0:
                    continue
                pull = residual[j] + gram[j, j] * y[j]
                step = np.sign(pull) * max(abs(pull) - l1, 0.0) / gram[j, j] - y[j]
                if step != 0:
                    y[j] += step
                    row = gram[j]
                    for c in range(L):
                        residual[c] -= step * row[c]
                    largest = max(largest, abs(step) / scale[j])
            if largest <= max_step:
                break
        out[i] = y


@in_order
def _inverse_lengths(gram):
    """Return 1 / ‖a_j‖ for each column, 0 for a zero column."""
    scale = np.zeros(gram.shape[0])
    for j in range(gram.shape[0]):
        if gram[j, j] > 0:
            scale[j] = 1 / np.sqrt(gram[j, j])
    return scale


@in_order
def _largest_cosine(residual, scale):
    largest = 0.0
    for j in range(residual.shape[0]):
        largest = max(largest, abs(residual[j]) * scale[j])
    return largest


@in_order
def _nearest_column(residual, scale, support, least):
    """Return the column outside the support with the largest cosine to the residual, −1 if none exceeds ``least``."""
    best, column = least, -1
    for j in range(residual.shape[0]):
        cosine = abs(residual[j]) * scale[j]
        if cosine > best:
            in_support = False
            for s in support:
                in_support |= s == j
            if not in_support:
                best, column = cosine, j
    return column


@in_order
def _extend(factor, gram, support, size, j):
    """Append column j to the support and to the Cholesky factor of its Gram matrix; False if it is dependent."""
    pivot = gram[j, j]
    for r in range(size):
        value = gram[j, support[r]]
        for c in range(r):
            value -= factor[size, c] * factor[r, c]
        factor[size, r] = value / factor[r, r]
        pivot -= factor[size, r] ** 2
    if pivot <= MIN_PIVOT_SHARE * gram[j, j]:
        return False
    factor[size, size] = np.sqrt(pivot)
    support[size] = j
    return True


@in_order
def _refactor(factor, gram, support, size):
    """Factor the first ``size`` columns of the support without dependent ones; return the number of the others."""
    n_independent = 0
    for s in range(size):
        if _extend(factor, gram, support, n_independent, support[s]):
            n_independent += 1
    return n_independent


@in_order
def _solve(factor, products, support, size, y):
    """Write the least-squares coefficients of the support to y, by substitution."""
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
def _update_residual(gram, products, support, y, size, residual):
    """Write Aᵀ (z − A y) to ``residual``."""
    residual[:] = products
    for r in range(size):
        row, v = gram[support[r]], y[r]
        for c in range(residual.shape[0]):
            residual[c] -= v * row[c]


@in_order
def _explained_square(products, support, y, size):
    """Return ‖z‖² − ‖z − A y‖² for least-squares coefficients y."""
    total = 0.0
    for r in range(size):
        total += y[r] * products[support[r]]
    return total


@in_order
def _move_largest_to_front(support, y, scale, size, count):
    """Move the ``count`` columns with the largest terms of A y to the front, unsorted; return ``count``."""
    for r in range(count):
        best = r
        for other in range(r + 1, size):
            if abs(y[other]) * scale[support[best]] > abs(y[best]) * scale[support[other]]:
                best = other
        support[r], support[best] = support[best], support[r]
        y[r], y[best] = y[best], y[r]
    return count


@in_order
def _store(row, support, y, size):
    row[:] = 0
    for r in range(size):
        row[support[r]] = y[r]


# --- variational Bayes ----------------------------------------------------------------------------------------------


class LabelPosterior(NamedTuple):
    """E[y] and the updated v of each row, n×L, and its free energy without ‖z − A E[y]‖² / 2s² and a constant, n."""

    mean: NDArray[np.float64]
    variance: NDArray[np.float64]
    energy: NDArray[np.float64]


def infer_posterior(
    A: NDArray, codes: NDArray, variance: NDArray, noise: float, n_updates: int = 1
) -> LabelPosterior:
    """Update the posterior of each row ``n_updates`` times, from one v for all rows or one for each.

    The model of a row is z ~ N(A y, s² I), y_j ~ N(0, 1/a_j), a_j ~ Gamma(GAMMA_SHAPE, GAMMA_RATE), with A (k×L) and
    the noise s² given. q is a Gaussian of y times a Gamma of each a_j, represented by v_j = 1 / E[a_j]. A label with
    v_j = 0 is known to be 0.
    """
    initial = np.broadcast_to(variance, (len(codes), A.shape[1]))

    def infer_range(start: int, stop: int) -> LabelPosterior:
        posterior = update_posterior(A, codes[start:stop], initial[start:stop], noise)
        for _ in range(n_updates - 1):
            posterior = update_posterior(A, codes[start:stop], posterior.variance, noise)
        return posterior

    bounds = row_bounds(len(codes), A.size, MAX_CELLS_PER_POSTERIOR_BLOCK)
    return LabelPosterior(*(np.concatenate(parts) for parts in zip(*map_ranges(infer_range, bounds), strict=True)))


def update_posterior(A: NDArray, codes: NDArray, variance: NDArray, noise: float) -> LabelPosterior:
    """Update q(y), then q(a), of rows with codes z (n×k) and v (n×L).

    With S = A V Aᵀ + s² I the Gaussian has mean V Aᵀ S⁻¹ z and covariance C = V − V Aᵀ S⁻¹ A V, so that no L×L matrix
    is formed. The Gamma has shape GAMMA_SHAPE + ½ and rate b_j = GAMMA_RATE + ½ E[y_j²]. The free energy has the
    terms tr(A C Aᵀ) / 2s², (GAMMA_SHAPE + ½) Σ ln b_j and −½ ln det C, the last two over labels with v_j > 0.

    >>> posterior = update_posterior(np.eye(1), np.array([[1.0]]), np.array([[1.0]]), 1.0)
    >>> posterior.mean, posterior.variance.round(3)  # E[y²] is ½² + ½
    (array([[0.5]]), array([[0.75]]))
    """
    (n, k), L = codes.shape, A.shape[1]
    S = ((A * variance[:, None, :]).reshape(-1, L) @ A.T).reshape(n, k, k)
    S[:, np.arange(k), np.arange(k)] += noise
    inverse, free = np.linalg.inv(S), variance > 0
    inverse_A = (inverse.reshape(-1, k) @ A).reshape(n, k, L)
    mean = variance * (codes[:, None, :] @ inverse_A)[:, 0]
    rates = GAMMA_RATE + 0.5 * (mean**2 + variance - variance**2 * (A * inverse_A).sum(1))
    spread = k - noise * np.trace(inverse, axis1=1, axis2=2)
    entropy = _sum_logs(variance, free) - np.linalg.slogdet(S / noise)[1]
    energy = 0.5 * (spread - entropy) + (GAMMA_SHAPE + 0.5) * _sum_logs(rates, free)
    return LabelPosterior(mean, np.where(free, rates / (GAMMA_SHAPE + 0.5), 0), energy)


def _sum_logs(values: NDArray, where: NDArray) -> NDArray:
    return np.log(np.where(where, values, 1)).sum(1)
