"""The CPU backend: compiled loops over row ranges, and BLAS where the work is dense.

A compiled loop takes a range of rows and releases the GIL; :func:`labelgap.runtime.in_ranges` spreads the ranges
over the threads, with about the same number of non-zeros in each. No loop writes outside its rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, partial
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.kernels import loops, ranking
from labelgap.kernels.base import Cell, CellModel, Targets, Weights
from labelgap.kernels.elementwise import CompiledCell
from labelgap.runtime import in_ranges, wide_blas

SMALL = 1 << 20  # multiply-adds below which a second thread costs more than it saves
FEW = 1 << 16  # cells of which the same is true
PARTS = 128  # the most into which rows are cut, so that many threads have work and a slow one can be made up for
LARGE = 1 << 22  # multiply-adds of a dense product from which our threads share it
TALL = 1 << 10  # rows of a result that are worth sharing
CHUNKS = 32
BLOCK_BYTES = 1 << 25  # a block of scores stays near the last-level cache


class CSR:
    """A CSR matrix and, once asked for, its transpose."""

    def __init__(self, matrix: sp.csr_array, data: NDArray) -> None:
        self.shape: tuple[int, int] = matrix.shape
        self.nnz = int(matrix.nnz)
        self.indptr, self.indices, self.data = matrix.indptr, matrix.indices, data
        self.arrays = self.indptr, self.indices, self.data
        self._cuts: dict[int, list[int]] = {}

    @cached_property
    def T(self) -> CSR:
        """The transpose, in CSR."""
        transposed = sp.csr_array(self.matrix().T)
        return CSR(transposed, transposed.data)

    def ranges(self, width: int) -> list[int]:
        """Where to cut the rows into ranges of about equal work, which is a row's non-zeros times ``width``."""
        parts = min(PARTS, (self.nnz + self.shape[0]) * width // SMALL)
        if parts <= 1:
            return [0, self.shape[0]]
        if parts not in self._cuts:
            work = self.indptr[1:].astype(np.int64) + np.arange(1, self.shape[0] + 1)
            self._cuts[parts] = _cut(work, parts)
        return self._cuts[parts]

    @cached_property
    def full_rows(self) -> tuple[NDArray, NDArray]:
        """Rows of which an eighth or more is stored, dense, and the place there of each row, −1 of the others.

        Adding a whole row is then faster than adding its stored cells one by one.
        """
        often = np.flatnonzero(8 * np.diff(self.indptr).astype(np.int64) > self.shape[1])
        place = np.full(self.shape[0], -1)
        place[often] = np.arange(len(often))
        return place, self.matrix()[often].toarray()

    def matrix(self) -> sp.csr_array:
        """The same matrix for SciPy, sharing memory."""
        return sp.csr_array((self.data, self.indices, self.indptr), shape=self.shape)


def array(values: Any, dtype: Any) -> NDArray:
    """Return a contiguous NumPy array."""
    return np.ascontiguousarray(values, dtype)


rows = array


def zeros(A: CSR, k: int, dtype: Any) -> NDArray:
    """Zeros with a row for each row of A."""
    return np.zeros((A.shape[0], k), dtype)


def to_numpy(array: NDArray) -> NDArray:
    """The array itself."""
    return array


def prepare(matrix: Any, dtype: Any) -> CSR:
    """Return a CSR matrix whose data are of that type; stored zeros are kept."""
    csr = matrix if isinstance(matrix, sp.csr_array) else sp.csr_array(matrix)
    return CSR(csr, csr.data.astype(dtype, copy=False))


prepare_graph = prepare


def eigh(A: NDArray) -> tuple[NDArray, NDArray]:
    """Eigenvalues and eigenvectors, with all threads of BLAS where that pays."""
    with wide_blas():
        return scipy.linalg.eigh(A, driver="evd", overwrite_a=True)


def transpose(A: CSR) -> CSR:
    """Aᵀ, kept with A."""
    return A.T


def column_sums(A: CSR, values: NDArray) -> NDArray:
    """Σ_i values_ij for each column, float64, d×1; the values belong to the stored cells."""
    return np.bincount(A.indices, weights=values, minlength=A.shape[1])[:, None]


def column_squares(A: CSR) -> NDArray:
    """Σ_i A_ij² for each column, float64, d×1."""
    return column_sums(A, A.data.astype(float) ** 2)


def _parts(work: int, least: int) -> int:
    """Return into how many parts to cut some work: as many for any number of threads, or sums would depend on it."""
    return max(1, min(PARTS, work // least))


def _cut(work: NDArray, parts: int) -> list[int]:
    """Cut rows at equal parts of their running work."""
    n = len(work)
    cuts = np.searchsorted(work, np.linspace(0, work[-1], parts + 1)[1:-1], side="right")
    return [0, *np.unique(cuts[(cuts > 0) & (cuts < n)]).tolist(), n]


def _even(n: int, width: int) -> list[int]:
    """Cut n rows of so many cells evenly."""
    return np.unique(np.linspace(0, n, _parts(n * width, FEW) + 1).astype(int)).tolist()


def _agree(A: CSR, left: NDArray | None, right: NDArray) -> None:
    """Refuse factors that do not belong to A: compiled loops would read outside them."""
    if len(right) != A.shape[1] or (left is not None and left.shape != (A.shape[0], right.shape[1])):
        shapes = right.shape if left is None else (left.shape, right.shape)
        raise ValueError(f"A sparse matrix of shape {A.shape} does not go with factors of shape {shapes}.")


def spmm(A: CSR, B: NDArray) -> NDArray:
    """A B."""
    B = np.ascontiguousarray(B)
    _agree(A, None, B)
    out = np.empty((A.shape[0], B.shape[1]), B.dtype)
    in_ranges(partial(loops.spmm, *A.arrays, B, out), A.ranges(B.shape[1]))
    return out


def spmm_t(A: CSR, B: NDArray) -> NDArray:
    """Aᵀ B, by the transpose kept with A: rows then never collide."""
    return spmm(A.T, B)


def matmul(A: NDArray, B: NDArray) -> NDArray:
    """A B, some rows after the other on our own threads.

    Threads of BLAS wait for their next call in a busy loop, and take the cores from our compiled loops meanwhile.
    """
    work = A.shape[0] * A.shape[1] * B.shape[1]
    if work < LARGE:
        return A @ B
    out = np.empty((A.shape[0], B.shape[1]), np.result_type(A, B))
    in_ranges(lambda start, stop: np.matmul(A[start:stop], B, out=out[start:stop]), _chunks(len(A), work))
    return out


def matmul_t(A: NDArray, B: NDArray) -> NDArray:
    """Aᵀ B: rows of the result where it has many, else sums over parts of the rows of A and B."""
    work = A.shape[0] * A.shape[1] * B.shape[1]
    if work < LARGE:
        return A.T @ B
    if A.shape[1] >= TALL:
        return matmul(A.T, B)
    parts = in_ranges(lambda start, stop: A[start:stop].T @ B[start:stop], _chunks(len(A), work))
    return sum(parts[1:], parts[0])


def _chunks(n: int, work: int) -> list[int]:
    """Cut n rows evenly, in as many parts for any number of threads, so that rounding does not depend on it."""
    parts = min(CHUNKS, max(2, work // LARGE))
    return np.unique(np.linspace(0, n, parts + 1).astype(int)).tolist()


def gram(B: NDArray | CSR) -> NDArray:
    """BᵀB, dense; float64 where B is sparse."""
    if not isinstance(B, CSR):
        return matmul_t(B, B)
    out = np.zeros((B.shape[1], B.shape[1]))
    mean_row = max(1, B.nnz // max(1, B.shape[0]))
    in_ranges(partial(loops.gram_rows, *B.T.arrays, *B.arrays, out), B.T.ranges(mean_row))
    return out


def sddmm(A: CSR, B: NDArray, H: NDArray) -> NDArray:
    """(B Hᵀ)_ij at the stored cells of A, in their order."""
    _agree(A, B, H)
    out = np.empty(A.nnz, B.dtype)
    in_ranges(partial(loops.sddmm, A.indptr, A.indices, B, H, out), A.ranges(B.shape[1]))
    return out


def cells_value(cell: Cell, A: CSR, B: NDArray, H: NDArray) -> float:
    """Σ over stored (i, j) of ℓ(A_ij, b_i·h_j)."""
    _agree(A, B, H)
    compiled = CompiledCell(cell)
    parts = in_ranges(partial(loops.cells_value, compiled, *A.arrays, B, H), A.ranges(B.shape[1]))
    return float(sum(parts))


def cells_sum(cell: Cell, A: CSR, scores: NDArray, changes: NDArray, step: float) -> float:
    """Σ over stored (i, j) of ℓ(A_ij, scores + step · changes), both given at the stored cells."""
    compiled = CompiledCell(cell)
    return float(
        sum(in_ranges(lambda i, j: loops.cells_sum(compiled, A.data, scores, changes, step, i, j), _even(A.nnz, 8)))
    )


def cells_model(cell: Cell, A: CSR, B: NDArray, H: NDArray) -> CellModel:
    """Value, D H and the curvature of each stored cell, in one pass."""
    _agree(A, B, H)
    compiled, gradient, curvature = CompiledCell(cell), np.empty_like(B), np.empty(A.nnz, B.dtype)
    weights = np.empty((len(B), 1), B.dtype)
    loop = partial(loops.cells_model, compiled, *A.arrays, B, H, gradient, weights, curvature)
    parts = in_ranges(loop, A.ranges(2 * B.shape[1]))
    return CellModel(float(sum(parts)), gradient, weights, curvature)


def cells_hessp(A: CSR, curvature: NDArray, S: NDArray, H: NDArray) -> NDArray:
    """U H with U_ij = ℓ''_ij (s_i·h_j) at the stored cells of A, in one pass."""
    _agree(A, S, H)
    out = np.empty_like(S)
    in_ranges(partial(loops.cells_hessp, A.indptr, A.indices, curvature, S, H, out), A.ranges(2 * S.shape[1]))
    return out


def _blocks(n: int, width: int, itemsize: int) -> Iterator[tuple[int, int]]:
    rows = max(16, BLOCK_BYTES // max(1, width * itemsize))
    for start in range(0, n, rows):
        yield start, min(n, start + rows)


def _rows_of_block(loop: Any, *arguments: Any) -> float:
    """Run a loop over a block of scores, its last argument but one, and add up what it returns."""
    height, width = arguments[-2].shape
    return sum(part or 0.0 for part in in_ranges(lambda i, j: loop(*arguments, i, j), _even(height, width)))


def all_value(cell: Cell, A: CSR, targets: Targets, weights: Weights, B: NDArray, H: NDArray) -> float:
    """Σ over all (i, j) of p_i q_j ℓ, in row blocks."""
    fixed, total = (CompiledCell(cell), A.indptr, A.indices, *targets, *weights), 0.0
    for first, last in _blocks(*A.shape, B.itemsize):
        total += _rows_of_block(loops.all_value, *fixed, matmul(B[first:last], H.T), first)
    return float(total)


def all_model(cell: Cell, A: CSR, targets: Targets, weights: Weights, B: NDArray, H: NDArray) -> CellModel:
    """Value and D H over all cells, in row blocks."""
    fixed, total = (CompiledCell(cell), A.indptr, A.indices, *targets, *weights), 0.0
    gradient, bends = np.empty_like(B), np.empty((len(B), 1), B.dtype)
    for first, last in _blocks(*A.shape, B.itemsize):
        scores = matmul(B[first:last], H.T)
        total += _rows_of_block(loops.all_gradient, *fixed, bends, scores, first)
        gradient[first:last] = matmul(scores, H)
    return CellModel(float(total), gradient, bends, None)


def all_hessp(cell: Cell, A: CSR, targets: Targets, weights: Weights, B: NDArray, S: NDArray, H: NDArray) -> NDArray:
    """U H over all cells, in row blocks, the curvature computed anew at B."""
    fixed, out = (CompiledCell(cell), A.indptr, A.indices, *targets, *weights), np.empty_like(S)
    for first, last in _blocks(*A.shape, 2 * B.itemsize):
        scores, change = matmul(B[first:last], H.T), matmul(S[first:last], H.T)
        _rows_of_block(loops.all_hessp, *fixed, scores, change, first)
        out[first:last] = matmul(change, H)
    return out


def topk(B: NDArray, H: NDArray, k: int, exclude: CSR | None = None) -> tuple[NDArray, NDArray]:
    """The k best labels of each row of B Hᵀ and their scores, best first, in row blocks; −∞ for an excluded one."""
    n, L = B.shape[0], H.shape[0]
    indices, best = np.empty((n, k), np.int64), np.empty((n, k), B.dtype)
    for first, last in _blocks(n, L, B.itemsize):
        scores = matmul(B[first:last], H.T)
        if exclude is not None:
            _rows_of_block(loops.hide, exclude.indptr, exclude.indices, scores, first)
        indices[first:last], best[first:last] = best_in_rows(scores, k)
    return indices, best


def best_in_rows(scores: NDArray, k: int) -> tuple[NDArray, NDArray]:
    """The columns of the k largest of each row, n×k, and the scores, best first."""
    scores = np.ascontiguousarray(scores)
    indices, best = np.empty((len(scores), k), np.int64), np.empty((len(scores), k), scores.dtype)
    _rows_of_block(loops.topk, indices, best, scores, 0)
    return indices, best


def product_topk(A: CSR, B: CSR, k: int) -> tuple[NDArray, NDArray]:
    """The k largest entries of each row of A Bᵀ, best first; a row of Bᵀ lists those of B that have a feature."""
    (n, d), m = A.shape, B.shape[0]
    if B.shape[1] != d or not 1 <= k <= m or A.data.dtype != B.data.dtype:
        kinds = f"{A.shape} of {A.data.dtype} and {B.shape} of {B.data.dtype}"
        raise ValueError(f"Matrices of shape {kinds} have no product with k={k} entries in a row.")
    indices, best = np.empty((n, k), np.int64), np.empty((n, k), A.data.dtype)
    lengths = np.diff(B.T.indptr).astype(np.int64)
    work = np.concatenate(([0], np.cumsum(lengths[A.indices])))[A.indptr[1:]] + k * np.arange(1, n + 1)
    bounds = _cut(work, _parts(int(work[-1]), SMALL)) if n else [0, 0]
    index = (*A.arrays, *B.T.arrays, *B.T.full_rows)
    in_ranges(lambda start, stop: ranking.product_topk(*index, indices, best, start, stop), bounds)
    return indices, best
