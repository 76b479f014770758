"""Ridge regressions without some of their rows, from one factorisation of all rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.kernels import (
    Backend,
    add_to_diagonal,
    cholesky,
    invert,
    matmul_t,
    namespace,
    read,
    substitute,
    substitute_once,
)
from labelgap.objectives.embeddings import NormalEquations
from labelgap.objectives.features import Features
from labelgap.runtime import multithreaded_blas
from labelgap.solvers.base import Array

TARGETS_PER_BLOCK = 256
MIN_RIDGE_SHARE = 1e-10  # of the trace of XᵀX; I − H has eigenvalues of about this share
MAX_PROBE_CELLS = 1 << 24  # of rows or features times probes at once
N_PROBES, PROBE_TOL, PROBE_SEED = 256, 0.03, 0  # of leverages without a factor; their error is about 2 h (1 − h) / 16


class HeldOutRidge:
    """Predictions of ridge regressions for held-out rows F, as if they were fitted without these rows.

    All fits share the minimiser W of ½ ‖Y − XW‖² + (α/2) ‖W‖² and a Cholesky factor. With H = X (XᵀX + αI)⁻¹ Xᵀ and
    the residuals E = Y_F − X_F W of the fit on all rows,

        residuals without F = (I − H_FF)⁻¹ E,

    which is (y − ŷ) / (1 − h) for a single row (Allen 1974). Where F has more rows than X has columns, the fit itself
    is W − (XᵀX − X_FᵀX_F + αI)⁻¹ X_FᵀE.

    Parameters
    ----------
    X : sparse matrix or array of shape (n, d)
        All rows.
    Y : csr_array of shape (n, L)
        The targets, 0 where nothing is stored.
    alpha : float
        The penalty.
    kernels : Backend
        The backend of the products.
    dtype : type
        The precision of products and predictions; systems are solved in float64.
    constant : bool
        Whether X has a further column 1, penalised like the others.
    equations : NormalEquations, optional
        Those of another penalty on the same rows, whose Gram matrix is used again.

    Examples
    --------
    >>> from labelgap.kernels import get_backend
    >>> X, Y = np.array([[1.0], [2.0]]), sp.csr_array([[1.0], [0.0]])
    >>> ridge = HeldOutRidge(X, Y, 1.0, get_backend(), float, constant=False)
    >>> ridge.predict(np.array([1])).round(6).tolist()  # w = 1 / (1 + 1) from the first row
    [[1.0]]
    """

    def __init__(
        self,
        X: Any,
        Y: sp.csr_array,
        alpha: float,
        kernels: Backend,
        dtype: Any,
        *,
        constant: bool,
        equations: NormalEquations | None = None,
    ) -> None:
        self.X, self.Y, self.alpha, self.kernels, self.dtype, self.constant = X, Y, alpha, kernels, dtype, constant
        self.equations = NormalEquations(self._bind(X)) if equations is None else equations
        self.features: Any = self.equations.features
        self._factor = self.equations.find_factor(1.0, alpha)

    @property
    def is_exact(self) -> bool:
        """Whether there is a factor, as predictions need, and a ridge that is large enough beside rounding."""
        return self._factor is not None and self.alpha > MIN_RIDGE_SHARE * self._trace()

    def _trace(self) -> float:
        gram = self.equations.gram
        return float(namespace(gram).linalg.trace(gram))

    @cached_property
    def W(self) -> list[Array]:
        """The minimiser, (d + constant)×L, in blocks of columns."""
        return [self.equations.solve(targets, 1.0, self.alpha)[0] for _, targets in self._target_blocks(slice(None))]

    def _target_blocks(self, rows: Any) -> Iterator[tuple[slice, Array]]:
        """Yield blocks of labels, and the targets of some rows for them, dense."""
        for columns in _column_blocks(self.Y.shape[1]):
            yield columns, self.kernels.array(self.Y[rows][:, columns].toarray(), self.dtype)

    def predict(self, rows: NDArray) -> NDArray:
        """Return the predictions for some rows of regressions that were fitted without them, shape (rows, L)."""
        held_out, predictions = self._bind(self.X[rows]), np.empty((len(rows), self.Y.shape[1]), self.dtype)
        with multithreaded_blas():
            predict = self._refit(held_out) if self.features.shape[1] <= len(rows) else self._correct(rows)
            for W, (columns, targets) in zip(self.W, self._target_blocks(rows)):
                block = predict(W, targets, targets - held_out.times(W))
                predictions[:, columns] = self.kernels.to_numpy(block)
        return predictions

    def predict_each(self, rows: NDArray) -> NDArray:
        """Return the predictions for some rows, each of a regression without this row alone, shape (rows, L)."""
        held_out, leverages = self._bind(self.X[rows]), self.find_leverages(rows)
        predictions = np.empty((len(rows), self.Y.shape[1]), self.dtype)
        for W, columns in zip(self.W, _column_blocks(self.Y.shape[1])):
            fitted = self.kernels.to_numpy(held_out.times(W))
            predictions[:, columns] = leave_each_out(fitted, self.Y[rows][:, columns].toarray(), leverages)
        return predictions

    def find_leverages(self, rows: NDArray) -> NDArray[np.float64]:
        """Return h_i = x_i·(XᵀX + αI)⁻¹x_i of some rows; without a factor, estimates of it (:meth:`_probe`)."""
        n, d = self.features.shape
        if self._factor is None:
            return self._probe(rows)
        if d > n:
            return 1 - self.alpha * read(namespace(self._inverse).linalg.diagonal(self._inverse))[rows]
        parts = []
        for block in np.array_split(rows, -(-len(rows) // TARGETS_PER_BLOCK)):
            half = substitute_once(self._factor, self._dense_rows(block).T)
            xp = namespace(half)
            parts.append(read(xp.sum(half * half, axis=0, dtype=xp.float64)))
        return np.concatenate(parts)

    def _probe(self, rows: NDArray) -> NDArray[np.float64]:
        """Return estimates of leverages from regressions on noise.

        With standard normal targets (g, g′) of the rows of X and of √α I, x_i·w is normal with the variance h_i, and
        the residual g_i − x_i·w independent with 1 − h_i. So h_i is about a / (a + b), where a and b are the sums of
        their squares over 256 regressions; its standard error is about 2 h (1 − h) / √256.
        """
        rng, (n, d) = np.random.default_rng(PROBE_SEED), self.features.shape
        width = int(np.clip(MAX_PROBE_CELLS // max(n, d), 1, N_PROBES))
        held_out, equations = self._bind(self.X[rows]), NormalEquations(self.features, tol=PROBE_TOL)
        own, rest = np.zeros(len(rows)), np.zeros(len(rows))
        for start in range(0, N_PROBES, width):
            noise = rng.standard_normal((n, min(width, N_PROBES - start)), np.float32)
            ridge_noise = rng.standard_normal((d, noise.shape[1]), np.float32) * float(np.sqrt(self.alpha))
            right = self.features.t_times(self.kernels.array(noise, self.dtype))
            right = right + self.kernels.array(ridge_noise, self.dtype)
            W, _ = equations.solve_right(right, 1.0, self.alpha)
            fitted = self.kernels.to_numpy(held_out.times(W))
            own += np.square(fitted, dtype=float).sum(axis=1)
            rest += np.square(noise[rows] - fitted, dtype=float).sum(axis=1)
        return own / (own + rest)

    @cached_property
    def _inverse(self) -> Array:
        """The lower triangle of (XXᵀ + αI)⁻¹, which all folds share."""
        return invert(self._factor)

    def _dense_rows(self, rows: NDArray) -> Array:
        """Return rows of X with the constant, dense and float64."""
        X = self.X[rows]
        X = X.toarray() if sp.issparse(X) else np.asarray(X)
        X = np.column_stack([X, np.ones(len(X))]) if self.constant else X
        return self.kernels.array(X, np.float64)

    def _bind(self, X: Any) -> Features:
        return Features(X, self.kernels, self.dtype, constant=self.constant)

    def _refit(self, held_out: Features) -> Any:
        """Return a function of W, Y_F and E that refits by the d×d system without F."""
        system = self.equations.gram - held_out.gram()
        add_to_diagonal(system, self.alpha)
        factor = cholesky(system)
        return lambda W, targets, residuals: held_out.times(W - substitute(factor, held_out.t_times(residuals)))

    def _correct(self, rows: NDArray) -> Any:
        """Return a function of W, Y_F and E that solves with I − H_FF."""
        n, d = self.features.shape
        if d <= n:
            half = substitute_once(self._factor, self._dense_rows(rows).T)
            system = -matmul_t(half, half)
            add_to_diagonal(system, 1.0)
        else:  # I − H = α (XXᵀ + αI)⁻¹
            system = self.alpha * self._inverse[np.maximum.outer(rows, rows), np.minimum.outer(rows, rows)]
        factor = cholesky(system)
        return lambda W, targets, residuals: targets - substitute(factor, residuals)


def leave_each_out(fitted: NDArray, targets: NDArray, leverages: NDArray) -> NDArray:
    """Return the predictions of rows by ridge regressions without each row, (ŷ − h y) / (1 − h), from those with it.

    >>> leave_each_out(np.array([[0.5]]), np.array([[1.0]]), np.array([0.25])).round(3).tolist()
    [[0.333]]
    """
    h = leverages[:, None].astype(fitted.dtype)
    return (fitted - h * targets) / (1 - h)


def _column_blocks(n_columns: int) -> Iterator[slice]:
    """Yield slices of columns: wide enough for fast products, small enough for float64 copies."""
    for start in range(0, n_columns, TARGETS_PER_BLOCK):
        yield slice(start, start + TARGETS_PER_BLOCK)
