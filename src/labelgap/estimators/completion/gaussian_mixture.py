"""Mixture of Gaussians for rows with missing cells: conditional expectations and the EM algorithm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack
from scipy.special import logsumexp

from labelgap.clustering import cluster
from labelgap.runtime import map_ranges

# Batches of small matrices are large enough that calls cost little, and small enough to stay in the cache.
MAX_VALUES_PER_BATCH = 1 << 18


class Mixture(NamedTuple):
    """p(x) = Σ_k weights_k N(x; means_k, covariances_k), of shapes (k,), (k, d) and (k, d, d)."""

    weights: NDArray
    means: NDArray
    covariances: NDArray


class PatternBatch(NamedTuple):
    """Patterns of observed cells, and the rows with these patterns.

    The block of a pattern consists of its observed cells if ``by_observed``, else of its missing ones. ``places`` are
    the positions of these cells, padded to the same number for all patterns; ``inside`` is False for the padding.
    The rows of pattern g are ``starts[g]`` to ``starts[g + 1]``.
    """

    values: NDArray
    observed: NDArray[np.bool_]
    by_observed: bool
    places: NDArray[np.int64]
    inside: NDArray[np.bool_]
    starts: NDArray[np.int64]

    def inverses(self, A: NDArray) -> tuple[NDArray, NDArray]:
        """Return the inverse of each pattern's block of A, 0 in the padding, and the block's log-determinant."""
        both = self.inside[:, :, None] & self.inside[:, None, :]
        blocks = np.where(both, A.ravel().take(self._cells()), np.eye(self.places.shape[1]))
        roots = np.linalg.cholesky(blocks)
        logs = 2 * np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(axis=1)
        for root in roots:  # three times as fast as np.linalg.inv
            root[:] = lapack.dpotri(root.T)[0].T
        lower = np.tril(roots, -1)
        return (roots + lower.transpose(0, 2, 1)) * both, logs

    def _cells(self) -> NDArray[np.int64]:
        """Return the row-major position in a d×d matrix of each cell of each block."""
        return self.places[:, :, None] * self.values.shape[1] + self.places[:, None, :]

    def repeat_for_rows(self, values: NDArray) -> NDArray:
        """Repeat the value of each pattern for its rows."""
        return np.repeat(values, np.diff(self.starts), axis=0)

    def times(self, inverses: NDArray, R: NDArray) -> NDArray:
        """Return each row of R times the inverse of its pattern, 0 in the cells outside the block."""
        places = self.repeat_for_rows(self.places)
        cells, out = np.take_along_axis(R, places, axis=1), np.zeros_like(R)
        for inverse, (start, stop) in zip(inverses, pairwise(self.starts), strict=True):
            cells[start:stop] = cells[start:stop] @ inverse
        np.put_along_axis(out, places, cells, axis=1)
        return out

    def total(self, inverses: NDArray, weights: NDArray) -> NDArray:
        """Return the sum over rows of weight · inverse, with each inverse at its position in a d×d matrix."""
        d = self.values.shape[1]
        pattern_weights = np.add.reduceat(weights, self.starts[:-1])
        summed = np.bincount(
            self._cells().ravel(), (inverses * pattern_weights[:, None, None]).ravel(), minlength=d * d
        )
        return summed.reshape(d, d)


class PatternRows(NamedTuple):
    """Rows with missing cells in batches, sorted by their pattern of observed cells.

    ``order`` holds the number in the original matrix of each row of the batches.
    """

    order: NDArray[np.int64]
    batches: list[PatternBatch]

    @classmethod
    def of(cls, X: NDArray) -> PatternRows:
        """Sort the rows of X, in which NaN is missing, by pattern.

        >>> rows = PatternRows.of(np.array([[1.0, 2.0], [np.nan, 3.0], [np.nan, 4.0]]))
        >>> rows.order.tolist(), [batch.values.tolist() for batch in rows.batches]
        ([1, 2, 0], [[[0.0, 3.0], [0.0, 4.0]], [[1.0, 2.0]]])
        """
        observed = ~np.isnan(X)
        patterns, pattern_of, counts = np.unique(observed, axis=0, return_inverse=True, return_counts=True)
        # Sort patterns by size, so that batches need little padding.
        by_size = np.argsort(patterns.sum(axis=1), kind="stable")
        order = np.argsort(np.argsort(by_size)[pattern_of.ravel()], kind="stable")
        starts = np.concatenate([[0], np.cumsum(counts[by_size])])
        values = np.where(observed, X, 0.0)[order]
        patterns = patterns[by_size]
        batches = [
            _make_batch(values[starts[a] : starts[b]], patterns[a:b], starts[a : b + 1] - starts[a])
            for a, b in pairwise(_batch_bounds(patterns))
        ]
        return cls(order, batches)

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows and of features."""
        return len(self.order), self.batches[0].values.shape[1]


def _are_mostly_missing(patterns: NDArray[np.bool_]) -> NDArray[np.bool_]:
    return 2 * patterns.sum(axis=1) <= patterns.shape[1]


def _batch_bounds(patterns: NDArray[np.bool_]) -> list[int]:
    """Return bounds of batches of patterns; no batch has both mostly missing and mostly observed patterns."""
    G, d = patterns.shape
    size, turn = max(1, MAX_VALUES_PER_BATCH // max(1, d * d // 4)), int(_are_mostly_missing(patterns).sum())
    return sorted({*range(0, turn, size), *range(turn, G, size), G})


def _make_batch(values: NDArray, patterns: NDArray[np.bool_], starts: NDArray[np.int64]) -> PatternBatch:
    by_observed = bool(_are_mostly_missing(patterns[:1])[0])
    block = patterns if by_observed else ~patterns
    counts = block.sum(axis=1)
    places = np.argsort(~block, axis=1, kind="stable")[:, : max(1, counts.max())]  # LAPACK needs at least one cell
    inside = np.arange(places.shape[1]) < counts[:, None]
    return PatternBatch(values, np.repeat(patterns, np.diff(starts), axis=0), by_observed, places, inside, starts)


class Posterior(NamedTuple):
    """Posterior of the cells of rows under one component, with y = x − μ.

    ``deviations`` is E[y], ``distances`` −2 log p(observed cells), and ``spread(r)`` Σ r Cov[y] for weights r.
    """

    deviations: NDArray
    distances: NDArray
    spread: Callable[[NDArray], NDArray]


class Component:
    """The Gaussian N(μ, Σ), for rows with observed cells (o) and missing cells (m).

    Let P be the inverse of Σ_oo and Q the inverse of Λ_mm, Λ = Σ⁻¹, each with zeros around it, and r = x − μ at the
    observed cells and 0 elsewhere. Then

        E[y] = Σ P r = r − Q Λ r,   Cov[y] = Σ − Σ P Σ = Q,   rᵀ P r = rᵀ Λ r − (Λ r)ᵀ Q Λ r,

    and log |Σ_oo| = log |Σ| + log |Λ_mm|, so the smaller of the two blocks is inverted.
    """

    def __init__(self, mean: NDArray, covariance: NDArray) -> None:
        self.mean, self.covariance = mean, covariance
        self.precision = np.linalg.inv(covariance)
        self.log_determinant = 2 * np.log(np.diagonal(np.linalg.cholesky(covariance))).sum()

    def posterior(self, batch: PatternBatch) -> Posterior:
        """Return the posterior of all cells, conditional on the observed ones."""
        R = np.where(batch.observed, batch.values - self.mean, 0.0)
        posterior = self._by_observed(batch, R) if batch.by_observed else self._by_missing(batch, R)
        constant = np.log(2 * np.pi) * batch.observed.sum(axis=1)
        return posterior._replace(distances=posterior.distances + constant)

    def _by_observed(self, batch: PatternBatch, R: NDArray) -> Posterior:
        S, (P, logs) = self.covariance, batch.inverses(self.covariance)
        Z = batch.times(P, R)
        return Posterior(
            Z @ S,
            (R * Z).sum(axis=1) + batch.repeat_for_rows(logs),
            lambda weights: weights.sum() * S - S @ batch.total(P, weights) @ S,
        )

    def _by_missing(self, batch: PatternBatch, R: NDArray) -> Posterior:
        Q, logs = batch.inverses(self.precision)
        G = R @ self.precision
        Z = batch.times(Q, G)
        distances = ((R - Z) * G).sum(axis=1) + batch.repeat_for_rows(logs) + self.log_determinant
        return Posterior(R - Z, distances, lambda weights: batch.total(Q, weights))


class Moments(NamedTuple):
    """Sums over rows under the posterior r_ik of the components and of the missing cells, with y = x − μ_k.

    The fields are Σ log p(observed cells), Σ r_ik, Σ r_ik E[y] and Σ r_ik E[y yᵀ].
    """

    log_likelihood: float
    counts: NDArray
    sums: NDArray
    products: NDArray


class Expected(NamedTuple):
    """The moments of rows, and the n×d expectations of their cells conditional on the observed ones."""

    moments: Moments
    filled: NDArray


def expect(rows: PatternRows, mixture: Mixture, *, spread: bool = True) -> Expected:
    """Take the expectation step batch by batch; the sums do not depend on the number of threads.

    Without ``spread``, E[y] E[y]ᵀ replaces E[y yᵀ], which leaves out Cov[y].
    """
    components = [Component(*parts) for parts in zip(mixture.means, mixture.covariances, strict=True)]
    results = map_ranges(
        lambda i, _: _expect_batch(rows.batches[i], components, mixture, spread), range(len(rows.batches) + 1)
    )
    filled = np.empty(rows.shape)
    filled[rows.order] = np.concatenate([result.filled for result in results])
    moments = zip(*(result.moments for result in results), strict=True)
    return Expected(Moments(*(sum(parts) for parts in moments)), filled)


def _expect_batch(batch: PatternBatch, components: list[Component], mixture: Mixture, spread: bool) -> Expected:
    posteriors = [component.posterior(batch) for component in components]
    with np.errstate(divide="ignore"):  # a component without rows has the weight 0
        joint = np.log(mixture.weights) - 0.5 * np.column_stack([posterior.distances for posterior in posteriors])
    log_density = logsumexp(joint, axis=1)
    shares = np.exp(joint - log_density[:, None]).T
    products = [
        (posterior.deviations.T * share) @ posterior.deviations + (posterior.spread(share) if spread else 0.0)
        for posterior, share in zip(posteriors, shares, strict=True)
    ]
    deviations = np.stack([posterior.deviations for posterior in posteriors])
    sums = np.einsum("kn,knd->kd", shares, deviations)
    filled = np.einsum("kn,knd->nd", shares, deviations) + shares.T @ mixture.means
    return Expected(Moments(float(log_density.sum()), shares.sum(axis=1), sums, np.stack(products)), filled)


def maximize(moments: Moments, mixture: Mixture, prior_rows: float) -> Mixture:
    """Take the maximisation step: Σ_k = (Σ_i r_ik E[(x − μ_k)(x − μ_k)ᵀ] + ν I) / (Σ_i r_ik + ν)."""
    counts = np.maximum(moments.counts, np.finfo(float).tiny)
    shifts = moments.sums / counts[:, None]
    scatter = moments.products - counts[:, None, None] * shifts[:, :, None] * shifts[:, None, :]
    scatter = (scatter + scatter.transpose(0, 2, 1)) / 2 + prior_rows * np.eye(shifts.shape[1])
    covariances = scatter / (counts + prior_rows)[:, None, None]
    return Mixture(moments.counts / moments.counts.sum(), mixture.means + shifts, covariances)


def log_prior(mixture: Mixture, prior_rows: float) -> float:
    """Return −(ν/2) Σ_k (log |Σ_k| + tr Σ_k⁻¹), whose maximum is at Σ_k = I."""
    if prior_rows == 0:
        return 0.0
    eigenvalues = np.linalg.eigvalsh(mixture.covariances)
    return float(-prior_rows / 2 * (np.log(eigenvalues) + 1 / eigenvalues).sum())


class EMStep(NamedTuple):
    """A mixture, and the log-likelihood of the rows plus the log-prior."""

    mixture: Mixture
    objective: float


def iterate_em(rows: PatternRows, start: Mixture, prior_rows: float, *, spread: bool = True) -> Iterator[EMStep]:
    """Yield the start and then the mixture after each EM step, without end; with spread the objective never falls."""
    mixture = start
    while True:
        moments = expect(rows, mixture, spread=spread).moments
        yield EMStep(mixture, moments.log_likelihood + log_prior(mixture, prior_rows))
        mixture = maximize(moments, mixture, prior_rows)


def start(rows: PatternRows, n_components: int, rng: np.random.RandomState) -> Mixture:
    """Return the first mixture: the means are centres of K-means on zero-filled rows, the covariances I.

    A single component has the mean 0. The mixture has fewer components if there are fewer distinct rows.
    """
    d = rows.shape[1]
    means = np.zeros((1, d))
    if n_components > 1:
        values = np.concatenate([batch.values for batch in rows.batches])
        means = cluster(values, n_components, rng=rng, balance=None)[0].centers
    k = len(means)
    return Mixture(np.full(k, 1 / k), means, np.tile(np.eye(d), (k, 1, 1)))
