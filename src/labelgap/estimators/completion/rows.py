"""Rows that come later, completed against the learned row space."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray


class RowSpace:
    """The rows h_j of H for the features and, in MC-1, that of the constant.

    The nuclear norm is the least (‖W‖² + ‖H‖²)/2 over Z = W Hᵀ, so at the optimum each row w of W minimises

        (μ/2) ‖w‖² + the loss of the row's own cells,        with w·h = 1 for the constant of MC-1,

    while H is held. A new row has only its known features, and gets the w that minimises this for them: ridge
    regression of the features on H, which in terms of the right singular vectors weights the square of a coefficient
    by 1/σ_k.

    Parameters
    ----------
    features : ndarray of shape (d, k)
        h_j of each feature.
    ridge : float
        μ |Ω_X|.
    constant : ndarray of shape (k,), optional
        h of the constant.

    Examples
    --------
    >>> RowSpace(np.array([[1.0], [2.0]]), 0.0).embed(np.array([[3.0, np.nan], [1.0, 2.0]]), "zero")
    array([[3.],
           [1.]])
    """

    def __init__(self, features: NDArray, ridge: float, constant: NDArray | None = None) -> None:
        self.features, self.ridge, self.constant = features, ridge, constant

    def embed(self, X: Any, absent: str) -> NDArray:
        """Return w of each row of X (dense with NaN, or sparse), n×k."""
        H, cells = self.features.astype(float), KnownCellsOfRows(X, absent)
        right = np.asarray(cells.values @ H)
        W = np.empty_like(right)
        whole = cells.complete_rows
        if whole.any():
            W[whole] = self._solve(H, right[whole].T)
        for row in np.flatnonzero(~whole).tolist():
            W[row] = self._solve(H[cells.of_row(row)], right[row, :, None])[0]
        return W.astype(self.features.dtype)

    def _solve(self, H: NDArray, right: NDArray) -> NDArray:
        """Solve (HᵀH + ridge) w = r for each column r, and move w along the constant's direction until w·h = 1."""
        k = H.shape[1]
        if k == 0:
            return right.T
        sides = right if self.constant is None else np.column_stack([right, self.constant])
        found = _solve_positive(H.T @ H, self.ridge, sides).T
        if self.constant is None:
            return found
        w, along = found[:-1], found[-1]
        return w + np.outer((1 - w @ self.constant) / (along @ self.constant), along)


def _solve_positive(gram: NDArray, ridge: float, right: NDArray) -> NDArray:
    """Solve with gram + ridge, or with the least ridge that rounding can tell from none where that is more."""
    k = len(gram)
    least = k * np.finfo(float).eps * max(float(np.trace(gram)), np.finfo(float).tiny)
    return scipy.linalg.solve(gram + max(ridge, least) * np.eye(k), right, assume_a="pos", check_finite=False)


class KnownCellsOfRows:
    """The known cells of a feature matrix, with 0 for all others; a sparse one stays sparse."""

    def __init__(self, X: Any, absent: str) -> None:
        self.sparse, self.listed = sp.issparse(X), sp.issparse(X) and absent == "unknown"
        self.n, self.d = X.shape
        missing = np.isnan(X.data if self.sparse else X)
        if self.sparse:
            self.values = sp.csr_array((np.where(missing, 0, X.data), X.indices, X.indptr), shape=X.shape)
            self.missing = sp.csr_array((missing, X.indices, X.indptr), shape=X.shape)
        else:
            self.values, self.missing = np.where(missing, 0, X), missing

    @property
    def complete_rows(self) -> NDArray:
        """Whether all cells of a row are known."""
        if not self.sparse:
            return ~self.missing.any(1)
        if self.listed:
            return np.diff(self.values.indptr) - self.missing.sum(1) == self.d
        return self.missing.sum(1) == 0

    def of_row(self, row: int) -> NDArray:
        """Return the known columns of a row."""
        if not self.sparse:
            return np.flatnonzero(~self.missing[row])
        part = slice(*self.values.indptr[row : row + 2])
        columns, missing = self.values.indices[part], self.missing.data[part]
        return columns[~missing] if self.listed else np.setdiff1d(np.arange(self.d), columns[missing])

    def keep_in(self, completed: NDArray) -> NDArray:
        """Return completed rows with the known cells as they are."""
        if not self.listed:
            values, missing = (part.toarray() if self.sparse else part for part in (self.values, self.missing))
            return np.where(missing, completed, values)
        kept = ~self.missing.data
        rows = np.repeat(np.arange(self.n), np.diff(self.values.indptr))[kept]
        completed[rows, self.values.indices[kept]] = self.values.data[kept]
        return completed
