"""The compiled loops of WARP: stochastic steps on a ranking loss whose ranks are estimated by sampling.

They run in one thread and draw from a generator of their own, so that a seed alone decides what comes out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from labelgap.kernels.loops import FAST, compiled

# A call costs about as much as what these few lines do.
inlined: Any = njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy", forceinline=True)


class Rows(NamedTuple):
    """Sparse features, n×d, as the parts of a CSR matrix."""

    indptr: NDArray
    indices: NDArray
    data: NDArray


class Cells(NamedTuple):
    """The labels of each row: the positives, ascending, and all known ones, which are not listed where all are known.

    ``known`` has a start for each row and no index at all in that case, which ``complete`` tells.
    """

    starts: NDArray
    positives: NDArray
    known_starts: NDArray
    known: NDArray
    complete: bool


class Factors(NamedTuple):
    """Vectors, one in each row, and the sum of the mean squares of the gradients that each has seen (AdaGrad)."""

    vectors: NDArray
    squares: NDArray


class Sampler(NamedTuple):
    """The state of the generator, one 64-bit number; Φ(0), Φ(1), …; the scores of one row that are known already.

    A score is one of row i, the row at work, where ``fresh`` says i.
    """

    state: NDArray
    weights: NDArray
    scores: NDArray
    fresh: NDArray


def make_sampler(seed: int, n_labels: int, dtype: Any) -> Sampler:
    """Return a sampler of that many labels, with Φ(r) = 1 + 1/2 + … + 1/r.

    >>> make_sampler(0, 3, float).weights
    array([0.        , 1.        , 1.5       , 1.83333333])
    """
    weights = np.concatenate(([0.0], np.cumsum(1 / np.arange(1, n_labels + 1))))
    return Sampler(np.array([seed], np.uint64), weights, np.zeros(n_labels, dtype), np.full(n_labels, -1))


@inlined
def draw(state, n):
    """A number from 0 to n − 1, for n below 2³² (splitmix64: Steele, Lea and Flood 2014)."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.int64((z >> np.uint64(32)) * np.uint64(n) >> np.uint64(32))


@inlined
def _holds(ascending, value):
    low, high = 0, ascending.shape[0]
    while low < high:
        middle = (low + high) // 2
        if ascending[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low < ascending.shape[0] and ascending[low] == value


@inlined
def _dot(x, y):
    total = x[0] * y[0]
    for c in range(1, x.shape[0]):
        total += x[c] * y[c]
    return total


@inlined
def _negative(state, positives, known, complete, bar, others):
    """A known label that is no positive, or the bar where it is among the ``others``; all are equally likely."""
    n_known = bar if complete else known.shape[0]
    while True:
        place = draw(state, n_known + others)
        label = bar if place == n_known else place if complete else known[place]
        if label == bar or not _holds(positives, label):
            return label


@inlined
def _score(sampler, i, b, H, label):
    """b · h, computed once for each row and label as long as h stays."""
    if sampler.fresh[label] != i:
        sampler.scores[label] = _dot(b, H[label])
        sampler.fresh[label] = i
    return sampler.scores[label]


@inlined
def violator(sampler, i, b, H, wanted, positives, known, complete):
    """A label that is not a unit below the wanted one, its rank as the trials tell, and by how much it is too high.

    The bar, the last row of H, is a negative of every positive, and every negative is one of the bar. As many are
    tried as there are negatives; if none violates, the label is −1.
    """
    bar = H.shape[0] - 1
    others = 0 if wanted == bar else 1
    negatives = (bar if complete else known.shape[0]) - positives.shape[0] + others
    least = _score(sampler, i, b, H, wanted) - 1
    for trial in range(1, negatives + 1):
        label = _negative(sampler.state, positives, known, complete, bar, others)
        excess = _score(sampler, i, b, H, label) - least
        if excess > 0:
            return label, negatives // trial, np.float64(excess)
    return -1, 0, 0.0


@inlined
def _mean_square(x):
    total = 0.0
    for c in range(x.shape[0]):
        total += np.float64(x[c]) * np.float64(x[c])
    return total / x.shape[0]


@inlined
def _move(factors, row, gradient, square, scale, step, alpha):
    """An AdaGrad step against scale · gradient, one length for the whole vector, then the prox of (α/2) ‖·‖².

    ``square`` is the mean square of the gradient, above 0.
    """
    vector = factors.vectors[row]
    factors.squares[row] += scale * scale * square
    length = step / np.sqrt(factors.squares[row])
    kept = vector.dtype.type(1 / (1 + length * alpha))
    share = vector.dtype.type(length * scale / (1 + length * alpha))
    for c in range(vector.shape[0]):
        vector[c] = kept * vector[c] - share * gradient[c]


@compiled
def _row(i, cells, b, labels, sampler, step, alpha, gradient):
    """Steps of the labels of row i; writes the gradient in b and returns the loss met, NaN after an overflow."""
    H, bar = labels.vectors, labels.vectors.shape[0] - 1
    positives = cells.positives[cells.starts[i] : cells.starts[i + 1]]
    known = cells.known[cells.known_starts[i] : cells.known_starts[i + 1]]
    gradient[:] = 0
    loss, square = 0.0, _mean_square(b)
    if not square < np.inf:
        return np.nan
    for place in range(positives.shape[0] + 1):
        wanted = positives[place] if place < positives.shape[0] else bar
        label, rank, excess = violator(sampler, i, b, H, wanted, positives, known, cells.complete)
        if label < 0:
            continue
        weight = sampler.weights[rank]
        loss += weight * excess
        scale, high, low = H.dtype.type(weight), H[label], H[wanted]
        for c in range(b.shape[0]):
            gradient[c] += scale * (high[c] - low[c])
        if square > 0:
            _move(labels, wanted, b, square, -weight, step, alpha)
            _move(labels, label, b, square, weight, step, alpha)
        sampler.fresh[wanted] = sampler.fresh[label] = -1
    return loss


@compiled
def epoch(order, rows, cells, features, labels, sampler, step, alpha):
    """Goes through the rows in that order; returns the sum of Φ(rank) · max(0, 1 − s_wanted + s_violator) met.

    A row embeds as b = Σ x_f w_f. Its labels step one after the other, its features at the end, once.
    """
    W = features.vectors
    b, gradient = np.empty(W.shape[1], W.dtype), np.empty(W.shape[1], W.dtype)
    total = 0.0
    sampler.fresh[:] = -1
    for i in order:
        b[:] = 0
        for p in range(rows.indptr[i], rows.indptr[i + 1]):
            w, x = W[rows.indices[p]], rows.data[p]
            for c in range(b.shape[0]):
                b[c] += x * w[c]
        loss = _row(i, cells, b, labels, sampler, step, alpha, gradient)
        total += loss
        square = _mean_square(gradient)
        if square > 0:
            for p in range(rows.indptr[i], rows.indptr[i + 1]):
                _move(features, rows.indices[p], gradient, square, np.float64(rows.data[p]), step, alpha)
    return total
