"""Which label vectors are near each other, and how well an embedding keeps their inner products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from labelgap.kernels import Backend
from labelgap.losses import Squared
from labelgap.objectives.cells import KnownCells
from labelgap.objectives.features import Identity
from labelgap.objectives.problem import Problem
from labelgap.solvers.base import Array


class Neighborhood:
    """½ ‖P_Ω(Y Yᵀ − Z Zᵀ)‖² over pairs of neighbours (004, eq. 4; there items are columns).

    Parameters
    ----------
    targets : csr_array of shape (n, n)
        The inner products of label vectors at Ω, symmetric; a stored 0 is a pair that should stay apart.
    """

    def __init__(self, targets: sp.csr_array, kernels: Backend, dtype: Any) -> None:
        self.kernels, self.dtype = kernels, np.dtype(dtype)
        self.targets: Any = kernels.prepare(targets, dtype)
        self.n = targets.shape[0]

    def residual(self, Z: Array) -> Array:
        """Y Yᵀ − Z Zᵀ at the pairs of Ω."""
        return self.targets.data - self.kernels.sddmm(self.targets, Z, Z)

    def product(self, R: Array) -> Callable[[Array], Array]:
        """V ↦ R V for numbers R at the pairs of Ω."""
        pairs = self.targets.matrix()
        prepared = self.kernels.prepare(sp.csr_array((R, pairs.indices, pairs.indptr), pairs.shape), self.dtype)
        return lambda V: self.kernels.spmm(prepared, V)

    def asymmetric(self, alpha: float) -> Problem:
        """½ ‖P_Ω(Y Yᵀ − Z Wᵀ)‖² + (α/2)(‖Z‖² + ‖W‖²), to be minimised over Z and W in turn."""
        cells = KnownCells(self.kernels, Squared(), self.targets)
        return Problem.of(cells, Identity(self.n), alpha=alpha)


def label_neighbors(
    vectors: sp.csr_array, count: int, kernels: Backend, random_state: np.random.RandomState
) -> sp.csr_array:
    """Return the inner products of each row of ``vectors`` with its ``count`` nearest ones, symmetric n×n.

    Nearest are those of the largest inner product, a row itself among them. Where fewer are positive, random rows of
    inner product 0 fill up, since distances to some far points are to be kept as well. (i, j) is in the pattern if
    either is a neighbour of the other. Ties are broken by chance, the same for every row; no n×n array is made.

    >>> from labelgap.kernels import get_backend
    >>> vectors = sp.csr_array(np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]))
    >>> label_neighbors(vectors, 2, get_backend("cpu"), np.random.RandomState(0)).toarray()
    array([[1., 1., 0.],
           [1., 2., 1.],
           [0., 1., 1.]])
    """
    n, count = vectors.shape[0], min(count, vectors.shape[0])
    order = random_state.permutation(n)
    prepared = kernels.prepare(vectors, np.float64), kernels.prepare(vectors[order], np.float64)
    near, products = kernels.product_topk(*prepared, count)
    positive = (products > 0).ravel()
    rows = np.repeat(np.arange(n), count)
    own = np.asarray(vectors.multiply(vectors).sum(axis=1)).ravel()
    columns = order[near].ravel()
    if count < n:
        columns[~positive] = random_state.randint(n, size=int((~positive).sum()))
    pairs = _pairs(rows[positive], columns[positive], products.ravel()[positive], n)
    pairs = pairs.maximum(_pairs(rows[~positive], columns[~positive], np.zeros(len(rows) - positive.sum()), n))
    pairs = pairs.maximum(sp.csr_array(pairs.T)).maximum(_pairs(np.arange(n), np.arange(n), own, n))
    pairs.data -= 1
    pairs.sort_indices()
    return pairs


def _pairs(rows: Array, columns: Array, products: Array, n: int) -> sp.csr_array:
    """Return products, each plus 1, as a sparse matrix: SciPy would drop a 0 when it takes a maximum.

    A pair that was drawn twice counts once.
    """
    unique = sp.csr_array((np.ones(len(rows)), (rows, columns)), shape=(n, n))
    shifted = sp.csr_array((products + 1, (rows, columns)), shape=(n, n))
    shifted.data /= unique.data
    return shifted
