"""The CPU backend: compiled loops over row ranges, and BLAS for dense products.

A compiled loop takes a range of rows and releases the GIL; :func:`labelgap.runtime.map_ranges` distributes ranges
with about the same number of non-zeros to the threads. No loop writes outside its rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, partial
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.kernels import loops
from labelgap.kernels.base import CellLoss, CellModel, CellWeights, Sparse, Targets, Weights, check_finite
from labelgap.kernels.elementwise import CompiledLoss
from labelgap.kernels.mapped import BLOCK_CELLS, MappedMatrix, make_empty, transpose_mapped
from labelgap.runtime import map_ranges, multithreaded_blas, row_blocks

# The number of ranges never depends on the number of threads, so that rounding does not either.
predicts, loses_arrays = True, False
MIN_WORK_PER_RANGE = 1 << 20  # multiply-adds; for less a second thread costs more than it saves
MIN_CELLS_PER_RANGE = 1 << 16
MIN_LOOP_CELLS = 1 << 12  # of an inner product without a temporary array
MAX_RANGES = 128  # enough for many threads, and for fast threads to take over work from slow ones
MIN_SHARED_PRODUCT = 1 << 22  # multiply-adds of a dense product that several threads compute
MIN_RESULT_ROWS = 1 << 10  # of AᵀB, to split the rows of the result instead of the sum
MAX_PRODUCT_CHUNKS = 32
GRAM_BLOCK_ROWS = 1 << 10  # that are converted to float64 at a time
ROWS_BYTES = 1 << 18  # of the rows that elementwise steps process together, in the cache of a core
MAX_BLOCK_BYTES = 1 << 25  # of a block of scores, which then stays near the last-level cache
MIN_BLOCK_ROWS = 16
CACHED_BYTES = 1 << 22  # of the rows of a dense factor that sparse rows meet at a time
MAX_LEGACY_NUMBERS = 1 << 20  # that RandomState draws itself
MIN_COARSE_NUMBERS = 1 << 20  # of an array that conjugate gradients read as bfloat16
MIN_CELLS_PER_BLOCK = 32  # non-zeros that a sparse row should have among them


class CSR:
    """CSR matrix that computes its transpose when it is first used; that of a mapped matrix is mapped."""

    def __init__(self, matrix: sp.csr_array, data: NDArray) -> None:
        self.shape: tuple[int, int] = matrix.shape
        self.nnz = int(matrix.nnz)
        self.indptr, self.indices, self.data = matrix.indptr, matrix.indices, data
        self.arrays = self.indptr, self.indices, self.data
        self._bounds: dict[int, list[int]] = {}
        self._mapped = matrix if isinstance(matrix, MappedMatrix) and data is matrix.data else None

    @cached_property
    def T(self) -> CSR:
        """The transpose, in CSR."""
        transposed = sp.csr_array(self.matrix().T) if self._mapped is None else transpose_mapped(self._mapped)
        return CSR(transposed, transposed.data)

    def ranges(self, width: int) -> list[int]:
        """Return bounds of row ranges of about equal work, which is the number of non-zeros times ``width``."""
        n_ranges = min(MAX_RANGES, (self.nnz + self.shape[0]) * width // MIN_WORK_PER_RANGE)
        if n_ranges <= 1:
            return [0, self.shape[0]]
        if n_ranges not in self._bounds:
            work = self.indptr[1:].astype(np.int64) + np.arange(1, self.shape[0] + 1)
            self._bounds[n_ranges] = _split_work(work, n_ranges)
        return self._bounds[n_ranges]

    @cached_property
    def full_rows(self) -> tuple[NDArray, NDArray]:
        """For each row its position among the full rows, or −1; and the full rows, dense.

        More than an eighth of a full row is stored: adding the dense row is then faster than adding the stored cells.
        """
        full = np.flatnonzero(8 * np.diff(self.indptr).astype(np.int64) > self.shape[1])
        position = np.full(self.shape[0], -1)
        position[full] = np.arange(len(full))
        return position, self.matrix()[full].toarray()

    def with_data(self, data: NDArray) -> CSR:
        """Return the matrix with these numbers in the stored cells."""
        return CSR(self.matrix(), data)

    def matrix(self) -> sp.csr_array:
        """Return the SciPy matrix that shares the arrays."""
        return sp.csr_array((self.data, self.indices, self.indptr), shape=self.shape)


def array(values: Any, dtype: Any) -> NDArray:
    """Return a contiguous NumPy array."""
    return np.ascontiguousarray(values, dtype)


rows = array


def zeros(A: CSR, k: int, dtype: Any) -> NDArray:
    """Return zeros with a row for each row of A."""
    out = make_empty((A.shape[0], k), dtype)
    out[...] = 0
    return out


def normal(random_state: np.random.RandomState, shape: tuple[int, int], dtype: Any) -> NDArray:
    """Return random normal numbers; many of them by a faster generator from the same seed."""
    if shape[0] * shape[1] > MAX_LEGACY_NUMBERS and dtype == np.float32:
        generator = np.random.Generator(np.random.SFC64(int(random_state.randint(2**31 - 1))))
        return generator.standard_normal(shape, np.float32)
    return array(random_state.standard_normal(shape), dtype)


def coarse(B: NDArray) -> NDArray:
    """Return a large float32 array as bfloat16, for which NumPy has no type: the upper halves of the bits, uint16."""
    if B.dtype != np.float32 or B.size < MIN_COARSE_NUMBERS:
        return B
    bits, out = np.ascontiguousarray(B).view(np.uint32), np.empty(B.shape, np.uint16)
    map_ranges(partial(loops.round_numbers, bits.reshape(-1), out.reshape(-1)), _split_cells(B.size, 1))
    return out


def compact(B: NDArray) -> NDArray:
    """Return the array itself."""
    return B


def settle(array: NDArray) -> NDArray:
    """Return the array itself."""
    return array


def to_numpy(array: NDArray) -> NDArray:
    """Return the array itself."""
    return array


def prepare(matrix: Any, dtype: Any) -> CSR:
    """Return a CSR matrix with data of the given type; stored zeros stay."""
    csr = matrix if isinstance(matrix, sp.csr_array) else sp.csr_array(matrix)
    return CSR(csr, csr.data.astype(dtype, copy=False))


prepare_graph = prepare


def eigh(A: NDArray) -> tuple[NDArray, NDArray]:
    """Return eigenvalues and eigenvectors, computed with all threads of BLAS."""
    with multithreaded_blas():
        return scipy.linalg.eigh(check_finite(A), driver="evd", overwrite_a=True, check_finite=False)


def transpose(A: CSR) -> CSR:
    """Return Aᵀ, which is computed once for each A."""
    return A.T


def column_sums(A: CSR, values: NDArray) -> NDArray:
    """Return Σ_i values_ij for each column, float64, d×1; the values are those of the stored cells."""
    # Without stored cells NumPy returns integers.
    return np.bincount(A.indices, weights=values, minlength=A.shape[1]).astype(float, copy=False)[:, None]


def column_squares(A: CSR) -> NDArray:
    """Return Σ_i A_ij² for each column, float64, d×1."""
    total, block = np.zeros((A.shape[1], 1)), max(BLOCK_CELLS, A.shape[1])
    for start in range(0, A.nnz, block):
        squares = A.data[start : start + block].astype(float) ** 2
        total[:, 0] += np.bincount(A.indices[start : start + block], squares, A.shape[1])
    return total


def _split_work(work: NDArray, n_ranges: int) -> list[int]:
    """Return bounds of row ranges with equal shares of the cumulative work."""
    n = len(work)
    bounds = np.searchsorted(work, np.linspace(0, work[-1], n_ranges + 1)[1:-1], side="right")
    return [0, *np.unique(bounds[(bounds > 0) & (bounds < n)]).tolist(), n]


def _split_evenly(n: int, n_ranges: int) -> list[int]:
    return sorted({n * i // n_ranges for i in range(n_ranges + 1)})


def _split_cells(n: int, cells_per_row: int) -> list[int]:
    return _split_evenly(n, max(1, min(MAX_RANGES, n * cells_per_row // MIN_CELLS_PER_RANGE)))


def check_factors(A: Sparse, left: Any, right: Any) -> None:
    """Raise ValueError if factors do not fit A: compiled loops would read outside of them."""
    if len(right) != A.shape[1] or (left is not None and left.shape != (A.shape[0], right.shape[1])):
        shapes = right.shape if left is None else (left.shape, right.shape)
        raise ValueError(f"A sparse matrix of shape {A.shape} does not go with factors of shape {shapes}.")


def spmm(A: CSR, B: NDArray) -> NDArray:
    """Return A B, float32 for a B of bfloat16.

    All rows of A meet some rows of B, which stay in a cache, before they meet the next ones. Columns of A that are
    not in order only reduce this gain.
    """
    B = np.ascontiguousarray(B)
    check_factors(A, None, B)
    dtype = np.float32 if B.dtype == np.uint16 else B.dtype
    out, width = make_empty((A.shape[0], B.shape[1]), dtype), _choose_width(A, B)
    position = A.indptr[:-1].copy()  # where each row has got to; the bounds themselves may be read-only
    for first in range(0, max(1, len(B)), width):
        loop = partial(loops.spmm, *A.arrays, B, out, position, first, first + width)
        map_ranges(loop, A.ranges(B.shape[1] * min(width, len(B)) // max(1, len(B))))
    return out


def _choose_width(A: CSR, B: NDArray) -> int:
    """Return the number of rows of B that rows of A meet at a time."""
    if B.nbytes <= 2 * CACHED_BYTES:
        return max(1, len(B))
    sparse = MIN_CELLS_PER_BLOCK * A.shape[0] * A.shape[1] // max(1, A.nnz)
    return max(CACHED_BYTES * len(B) // B.nbytes, sparse)


def spmm_t(A: CSR, B: NDArray) -> NDArray:
    """Return Aᵀ B; the rows of the stored transpose can be processed independently."""
    return spmm(A.T, B)


def matmul(A: NDArray, B: NDArray) -> NDArray:
    """Return A B, computed in ranges of the longer side of the result on our own threads.

    Threads of BLAS wait for their next call in a busy loop, which takes the cores from our compiled loops. In each
    range BLAS copies the factor that all ranges share; ranges of the longer side copy the smaller one.
    """
    work = A.shape[0] * A.shape[1] * B.shape[1]
    if work < MIN_SHARED_PRODUCT:
        return A @ B
    out = make_empty((A.shape[0], B.shape[1]), np.result_type(A, B))

    def multiply_rows(start: int, stop: int) -> None:
        np.matmul(A[start:stop], B, out=out[start:stop])

    def multiply_columns(start: int, stop: int) -> None:
        np.matmul(A, B[:, start:stop], out=out[:, start:stop])

    multiply = multiply_rows if out.shape[0] >= out.shape[1] else multiply_columns
    map_ranges(multiply, _product_chunks(max(out.shape), work))
    return out


def matmul_t(A: NDArray, B: NDArray) -> NDArray:
    """Return Aᵀ B, computed in row ranges of a tall result, else as a sum over row ranges of A and B."""
    work = A.shape[0] * A.shape[1] * B.shape[1]
    if work < MIN_SHARED_PRODUCT:
        return A.T @ B
    if A.shape[1] >= MIN_RESULT_ROWS:
        return matmul(A.T, B)
    parts = map_ranges(lambda start, stop: A[start:stop].T @ B[start:stop], _product_chunks(len(A), work))
    return sum(parts[1:], parts[0])


def dot(A: NDArray, B: NDArray) -> np.float64:
    """Return ⟨A, B⟩, summed in float64."""
    if A.size < MIN_LOOP_CELLS or A.shape != B.shape or not (A.flags.c_contiguous and B.flags.c_contiguous):
        return (A * B).sum(dtype=np.float64)
    return np.float64(sum(map_ranges(partial(loops.dot, A.reshape(-1), B.reshape(-1)), _split_cells(A.size, 1))))


def column_grams(arrays: tuple[NDArray, ...]) -> NDArray:
    """Return ⟨a_c, b_c⟩ for all pairs of arrays of one shape and each column c, float64, (p, p, 1, k)."""
    arrays = tuple(map(np.ascontiguousarray, arrays))
    parts = map_ranges(partial(loops.column_grams, arrays), _split_cells(*arrays[0].shape))
    lower = sum(parts[1:], parts[0])
    upper = np.triu(np.ones(lower.shape[:2], bool), 1)
    lower[upper] = lower.transpose(1, 0, 2)[upper]
    return lower[:, :, None, :]


def column_totals(A: NDArray) -> NDArray:
    """Return the sum of each column, float64, (1, k)."""
    parts = map_ranges(lambda start, stop: A[start:stop].sum(axis=0, keepdims=True, dtype=np.float64), _split_rows(A))
    return sum(parts[1:], parts[0])


def combine(A: NDArray, a: Any, B: NDArray, b: Any, weights: Any) -> NDArray:
    """Write a∘A + b∘(weights∘B) to A, in blocks of rows, and return A."""

    def combine_rows(start: int, stop: int) -> None:
        row = slice(start, stop)
        change = B[row if len(B) > 1 else slice(None)] * b
        if np.ndim(weights):
            change *= weights[row]
        if np.ndim(a) or a != 1:
            A[row] *= a
        A[row] += change

    map_ranges(combine_rows, _split_rows(A))
    return A


def mix(A: NDArray, T: NDArray) -> NDArray:
    """Write A T to A, in blocks of rows, for a square T, and return A."""

    def mix_rows(start: int, stop: int) -> None:
        A[start:stop] = A[start:stop] @ T

    map_ranges(mix_rows, _split_rows(A))
    return A


def _split_rows(A: NDArray) -> list[int]:
    """Return bounds of blocks of rows that stay in the cache of a core."""
    return _split_evenly(len(A), max(1, A.nbytes // ROWS_BYTES))


def exact_gram(A: NDArray, weights: Any) -> NDArray:
    """Return Aᵀ diag(weights) A in float64, as a sum over blocks of rows that are converted one by one."""

    def add_blocks(start: int, stop: int) -> NDArray:
        total = np.zeros((A.shape[1], A.shape[1]))
        for first in range(start, stop, GRAM_BLOCK_ROWS):
            block = slice(first, min(first + GRAM_BLOCK_ROWS, stop))
            exact = A[block].astype(np.float64, copy=False)
            total += exact.T @ (weights[block] * exact if np.ndim(weights) else exact)
        return total

    work = A.shape[0] * A.shape[1] ** 2
    bounds = [0, len(A)] if work < MIN_SHARED_PRODUCT else _product_chunks(len(A), work)
    parts = map_ranges(add_blocks, bounds)
    total = sum(parts[1:], parts[0])
    return total if np.ndim(weights) else weights * total


def _product_chunks(n: int, work: int) -> list[int]:
    return _split_evenly(n, min(MAX_PRODUCT_CHUNKS, max(2, work // MIN_SHARED_PRODUCT)))


def gram(B: NDArray | CSR) -> NDArray:
    """Return BᵀB, dense; float64 if B is sparse."""
    if not isinstance(B, CSR):
        return matmul_t(B, B)
    out = np.zeros((B.shape[1], B.shape[1]))
    mean_row = max(1, B.nnz // max(1, B.shape[0]))
    ordered = B if B.matrix().has_sorted_indices else B.T.T
    map_ranges(partial(loops.gram_rows, *B.T.arrays, *ordered.arrays, out), B.T.ranges(mean_row))
    for start in range(0, len(out), GRAM_BLOCK_ROWS):  # the other half
        block = out[start : start + GRAM_BLOCK_ROWS]
        out[:start, start : start + len(block)] = block[:, :start].T
        square = block[:, start : start + len(block)]
        square += np.tril(square, -1).T
    return out


def sddmm(A: CSR, B: NDArray, H: NDArray) -> NDArray:
    """Return (B Hᵀ)_ij at the stored cells of A, in their order."""
    check_factors(A, B, H)
    out = np.empty(A.nnz, B.dtype)
    map_ranges(partial(loops.sddmm, A.indptr, A.indices, B, H, out), A.ranges(B.shape[1]))
    return out


def cells_value(loss: CellLoss, A: CSR, B: NDArray, H: NDArray) -> float:
    """Return Σ over stored (i, j) of ℓ(A_ij, b_i·h_j)."""
    check_factors(A, B, H)
    compiled = CompiledLoss(loss)
    parts = map_ranges(partial(loops.cells_value, compiled, *A.arrays, B, H), A.ranges(B.shape[1]))
    return float(sum(parts))


def cells_sum(loss: CellLoss, A: CSR, scores: NDArray, changes: NDArray, step: float) -> float:
    """Return Σ over stored (i, j) of ℓ(A_ij, scores + step · changes); both are arrays over the stored cells."""
    compiled = CompiledLoss(loss)
    loop = partial(loops.cells_sum, compiled, A.data, scores, changes, step)
    return float(sum(map_ranges(loop, _split_cells(A.nnz, 8))))


def cells_model(loss: CellLoss, A: CSR, B: NDArray, H: NDArray) -> CellModel:
    """Return value, D H and the curvature of each stored cell, computed in one pass."""
    check_factors(A, B, H)
    compiled, gradient, curvature = CompiledLoss(loss), np.empty_like(B), np.empty(A.nnz, B.dtype)
    row_curvature = np.empty((len(B), 1), B.dtype)
    loop = partial(loops.cells_model, compiled, *A.arrays, B, H, gradient, row_curvature, curvature)
    parts = map_ranges(loop, A.ranges(2 * B.shape[1]))
    return CellModel(float(sum(parts)), gradient, row_curvature, curvature)


def cells_hessp(A: CSR, curvature: NDArray, S: NDArray, H: NDArray) -> NDArray:
    """Return U H with U_ij = ℓ''_ij (s_i·h_j) at the stored cells of A, computed in one pass."""
    check_factors(A, S, H)
    out = np.empty_like(S)
    map_ranges(partial(loops.cells_hessp, A.indptr, A.indices, curvature, S, H, out), A.ranges(2 * S.shape[1]))
    return out


def cells_diagonal(A: CSR, curvature: NDArray, H: NDArray) -> NDArray:
    """Return Σ_j ℓ''_ij h_j∘h_j over the stored cells of each row."""
    return spmm(CSR(A.matrix(), curvature), H * H)


def solve_rows(
    A: CSR, curvature: NDArray, H: NDArray, diagonals: tuple[NDArray, ...], R: NDArray, tol: float, max_iter: int
) -> tuple[NDArray, int, bool]:
    """Solve (diag(p_i m + r_i) + Σ_j ℓ''_ij h_j h_jᵀ) x_i = R_i for each row; R becomes the residual.

    A row ends its conjugate gradients, preconditioned by the diagonal, when its residual is at most ``tol`` of R_i.
    ``diagonals`` are m (k), p and r (n). Returns X, the most products of a row, and whether all rows met ``tol``.
    """
    check_factors(A, R, H)
    X = np.zeros_like(R)
    loop = partial(loops.solve_rows, A.indptr, A.indices, curvature, H, *diagonals, R, X, tol, max_iter)
    counts, done = zip(*map_ranges(loop, A.ranges(8 * R.shape[1])), strict=True)
    return X, max(counts), all(done)


def _score_blocks(n: int, n_labels: int, itemsize: int) -> Iterator[slice]:
    """Yield slices of rows whose scores fit in a block."""
    return row_blocks(n, 1, max(MIN_BLOCK_ROWS, MAX_BLOCK_BYTES // max(1, n_labels * itemsize)))


def _sum_over_block(loop: Any, *arguments: Any) -> float:
    """Run a loop over a block of scores, its last argument but one, and return the sum of its results."""
    bounds = _split_cells(*arguments[-2].shape)
    return sum(part or 0.0 for part in map_ranges(partial(loop, *arguments), bounds))


def all_value(loss: CellLoss, A: CSR, targets: Targets, weights: Weights, B: NDArray, H: NDArray) -> float:
    """Return Σ over all (i, j) of p_i q_j ℓ, computed in row blocks."""
    fixed, total = (CompiledLoss(loss), A.indptr, A.indices, *targets, *weights), 0.0
    for block in _score_blocks(*A.shape, B.itemsize):
        total += _sum_over_block(loops.all_value, *fixed, matmul(B[block], H.T), block.start)
    return float(total)


def all_model(loss: CellLoss, A: CSR, targets: Targets, weights: Weights, B: NDArray, H: NDArray) -> CellModel:
    """Return value and D H over all cells, computed in row blocks."""
    fixed, total = (CompiledLoss(loss), A.indptr, A.indices, *targets, *weights), 0.0
    gradient, row_curvature = np.empty_like(B), np.empty((len(B), 1), B.dtype)
    for block in _score_blocks(*A.shape, B.itemsize):
        scores = matmul(B[block], H.T)
        total += _sum_over_block(loops.all_gradient, *fixed, row_curvature, scores, block.start)
        gradient[block] = matmul(scores, H)
    return CellModel(float(total), gradient, row_curvature, None)


def all_hessp(
    loss: CellLoss, A: CSR, targets: Targets, weights: Weights, B: NDArray, S: NDArray, H: NDArray
) -> NDArray:
    """Return U H over all cells, computed in row blocks with the curvature at B."""
    fixed, out = (CompiledLoss(loss), A.indptr, A.indices, *targets, *weights), np.empty_like(S)
    for block in _score_blocks(*A.shape, 2 * B.itemsize):
        scores, change = matmul(B[block], H.T), matmul(S[block], H.T)
        _sum_over_block(loops.all_hessp, *fixed, scores, change, block.start)
        out[block] = matmul(change, H)
    return out


def topk(B: NDArray, H: NDArray, k: int, exclude: CSR | None = None) -> tuple[NDArray, NDArray]:
    """Return the k best labels of each row of B Hᵀ and their scores, best first; excluded cells score −∞."""
    n, L = B.shape[0], H.shape[0]
    indices, best = np.empty((n, k), np.int64), np.empty((n, k), B.dtype)
    for block in _score_blocks(n, L, B.itemsize):
        scores = matmul(B[block], H.T)
        if exclude is not None:
            _sum_over_block(loops.hide, exclude.indptr, exclude.indices, scores, block.start)
        indices[block], best[block] = best_in_rows(scores, k)
    return indices, best


def best_in_rows(scores: NDArray, k: int) -> tuple[NDArray, NDArray]:
    """Return the columns of the k largest scores of each row, n×k, and the scores, best first."""
    scores = np.ascontiguousarray(scores)
    indices, best = np.empty((len(scores), k), np.int64), np.empty((len(scores), k), scores.dtype)
    _sum_over_block(loops.topk, indices, best, scores, 0)
    return indices, best


def product_topk(A: CSR, B: CSR, k: int) -> tuple[NDArray, NDArray]:
    """Return the k largest entries of each row of A Bᵀ, best first."""
    (n, d), m = A.shape, B.shape[0]
    if B.shape[1] != d or not 1 <= k <= m or A.data.dtype != B.data.dtype:
        kinds = f"{A.shape} of {A.data.dtype} and {B.shape} of {B.data.dtype}"
        raise ValueError(f"Matrices of shape {kinds} have no product with k={k} entries in a row.")
    indices, best = np.empty((n, k), np.int64), np.empty((n, k), A.data.dtype)
    lengths = np.diff(B.T.indptr).astype(np.int64)
    work = np.concatenate(([0], np.cumsum(lengths[A.indices])))[A.indptr[1:]] + k * np.arange(1, n + 1)
    bounds = [0, 0]
    if n:
        bounds = _split_work(work, max(1, min(MAX_RANGES, int(work[-1]) // MIN_WORK_PER_RANGE)))
    map_ranges(partial(loops.product_topk, *A.arrays, *B.T.arrays, *B.T.full_rows, indices, best), bounds)
    return indices, best


# --- dense cells by column ------------------------------------------------------------------------------------------


def column_losses(loss: CellLoss, targets: NDArray, scores: NDArray, weights: CellWeights) -> NDArray:
    """Return the weighted losses of each column."""
    losses = np.zeros(scores.shape[1])
    loops.add_column_values(CompiledLoss(loss), targets, scores, *weights, losses)
    return losses


def column_slopes(loss: CellLoss, targets: NDArray, scores: NDArray, weights: CellWeights) -> tuple[NDArray, NDArray]:
    """Return the weighted ℓ' and ℓ'' of each cell."""
    slopes, curvature = np.empty_like(scores), np.empty_like(scores)
    loops.write_column_model(CompiledLoss(loss), targets, scores, *weights, slopes, curvature)
    return slopes, curvature
