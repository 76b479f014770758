"""The backend of one GPU: PyTorch for dense work, Triton kernels over non-zeros.

The same code runs on PyTorch's CPU device, where gathers and sums of PyTorch replace the Triton kernels.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import cached_property
from threading import Lock
from typing import Any
from weakref import finalize

import array_api_compat
import numpy as np
import scipy.sparse as sp

from labelgap.kernels import cpu
from labelgap.kernels.array_api import ArrayBackend
from labelgap.kernels.base import CellLoss, CellModel, Targets, Weights
from labelgap.runtime import import_optional, row_blocks

MAX_BLOCK_NUMBERS = {"cuda": 1 << 28, "cpu": 1 << 22}  # of a block of scores, or of gathered rows
MIN_GRAM_CELLS = 50  # of a sparse matrix for each non-zero, with which its Gram matrix is a sparse product
MAX_HOST_NUMBERS = 1 << 22  # random numbers that are drawn as on the CPU; more would take longer than the start
MIN_COARSE_NUMBERS = 1 << 22  # of an array that is read in bfloat16; a smaller one fits in the cache
BYTES_PER_CELL = 40  # of a sparse matrix, while its transpose is made
RESIDENT_SHARE = 0.5  # of the free memory for sparse matrices; with more they are streamed
STREAMED_CELLS = 1 << 27  # of a block that is streamed
MAX_WIDTH = 1024  # columns of a product; more are multiplied in parts
MAX_PADDED_NUMBERS = 1 << 26  # of an array whose columns are padded
COARSE_MULTIPLE = 64  # columns of a bfloat16 copy, so that each row starts at a 128-byte line


class TorchCSR:
    """CSR matrix of tensors that computes its transpose and its pieces when they are first used.

    Parameters
    ----------
    indptr, indices, data : tensors
        int64, int32 and floating.
    shape : pair of int
        The number of rows and of columns.
    """

    def __init__(self, indptr: Any, indices: Any, data: Any, shape: tuple[int, int]) -> None:
        self.indptr, self.indices, self.data, self.shape = indptr, indices, data, shape
        self.nnz = int(indices.shape[0])

    @property
    def torch(self) -> Any:
        """The module of the tensors."""
        return import_optional("torch", "gpu")

    @cached_property
    def bounds(self) -> np.ndarray:
        """The bounds of the rows on the host."""
        return self.indptr.cpu().numpy()

    @property
    def row_indices(self) -> Any:
        """The row of each non-zero, int32."""
        return self.find_rows(0, self.nnz)

    def find_rows(self, start: int, stop: int) -> Any:
        """Return the rows of the non-zeros in a range."""
        cells = self.torch.arange(start, stop, device=self.indices.device)
        return self.torch.searchsorted(self.indptr, cells, right=True, out_int32=True) - 1

    @cached_property
    def T(self) -> TorchCSR:
        """The transpose, in CSR."""
        order = self._find_column_order()
        return TorchCSR(self.column_bounds, self.row_indices[order], self.data[order], (self.shape[1], self.shape[0]))

    @cached_property
    def column_order(self) -> Any:
        """The non-zeros by column, then by row."""
        return self._find_column_order()

    def _find_column_order(self) -> Any:
        return self.torch.argsort(self.indices, stable=True)

    @cached_property
    def column_bounds(self) -> Any:
        """The bounds of the columns in :attr:`column_order`."""
        counts = self.torch.bincount(self.indices, minlength=self.shape[1])
        return _prepend_zero(self.torch.cumsum(counts, 0))

    @cached_property
    def pieces(self) -> Pieces:
        """The pieces of the rows."""
        return Pieces(self.indptr)

    def with_data(self, data: Any) -> TorchCSR:
        """Return the matrix with these numbers in the stored cells."""
        other = TorchCSR(self.indptr, self.indices, data, self.shape)
        other.__dict__["pieces"] = self.pieces
        return other

    def sum_rows(self, values: Any) -> Any:
        """Return the sum of the values of the non-zeros of each row, float64; the order of the sum is fixed."""
        sums = _prepend_zero(self.torch.cumsum(values, 0, dtype=self.torch.float64))
        return sums[self.indptr[1:]] - sums[self.indptr[:-1]]

    def to_host(self) -> cpu.CSR:
        """Return the matrix of the CPU backend."""
        data = self.data.cpu().numpy()
        matrix = sp.csr_array((data, self.indices.cpu().numpy(), self.bounds), shape=self.shape)
        return cpu.CSR(matrix, data)


def _prepend_zero(sums: Any) -> Any:
    torch = import_optional("torch", "gpu")
    return torch.cat([sums.new_zeros(1), sums])


def find_width(k: int) -> int:
    """Return the number of columns with which k columns are multiplied: kernels are compiled for few numbers.

    >>> find_width(5), find_width(100), find_width(200)
    (16, 112, 256)
    """
    multiple = 16 if k <= 128 else 64
    return -(-k // multiple) * multiple


class Pieces:
    """Ranges of at most PIECE_SIZE non-zeros of one row, and the rows that have several."""

    def __init__(self, indptr: Any) -> None:
        from labelgap.kernels.gpu_loops import PIECE_SIZE

        torch = import_optional("torch", "gpu")
        counts = torch.clamp((torch.diff(indptr) + PIECE_SIZE - 1) // PIECE_SIZE, min=1)
        rows = torch.repeat_interleave(counts)
        first = torch.cumsum(counts, 0) - counts
        starts = indptr[rows] + (torch.arange(rows.shape[0], device=rows.device) - first[rows]) * PIECE_SIZE
        stops = torch.minimum(starts + PIECE_SIZE, indptr[rows + 1])
        several = counts > 1
        slots = torch.where(several[rows], torch.cumsum(several[rows], 0) - 1, -1)
        self.table = torch.stack([rows, starts, stops, slots], dim=1).contiguous()
        self.long_rows = torch.nonzero(several)[:, 0]
        self.long_bounds = _prepend_zero(torch.cumsum(counts[self.long_rows], 0))
        self.n_slots = int(self.long_bounds[-1])


class TorchBackend(ArrayBackend):
    """The functions of :class:`~labelgap.kernels.base.Backend` for tensors of one device.

    Parameters
    ----------
    device : str
        "cuda", or "cpu" to test.
    coarse : bool, optional
        Whether products inside conjugate gradients read float32 arrays as bfloat16; by default large ones on a GPU.
    """

    predicts = True

    def __init__(self, device: str = "cuda", coarse: bool | None = None) -> None:
        self.torch = import_optional("torch", "gpu")
        xp = array_api_compat.array_namespace(self.torch.zeros(0))
        super().__init__(xp, self.torch.device(device), self.torch.device("cpu"))
        self.on_gpu = self.device.type != "cpu"
        self.rounds = self.on_gpu if coarse is None else coarse
        self.min_coarse_numbers = MIN_COARSE_NUMBERS if coarse is None else 0
        self._kept: dict[int, dict[Any, Any]] = {}
        self.block_numbers = MAX_BLOCK_NUMBERS["cuda" if self.on_gpu else "cpu"]

    # --- arrays -------------------------------------------------------------------------------------------------

    def array(self, values: Any, dtype: Any) -> Any:
        if isinstance(values, self.torch.Tensor):
            return values.to(self.device, self._dtype(dtype)).contiguous()
        copies, dtype = self._kept.get(id(values)), self._dtype(dtype)
        if copies is None:
            return self.rows(values, dtype)
        if dtype not in copies:
            copies[dtype] = self.rows(values, dtype)
        return copies[dtype]

    def keep(self, values: np.ndarray) -> None:
        """Keep the copy of an array that will not change, once there is one, while the array lives."""
        if id(values) not in self._kept:
            self._kept[id(values)] = {}
            finalize(values, self._kept.pop, id(values), None)

    def rows(self, values: Any, dtype: Any) -> Any:
        if isinstance(values, self.torch.Tensor):
            return self.array(values, dtype)
        # PyTorch warns of arrays that cannot be written, such as those of a model file.
        return super().array(np.require(values, requirements="W"), dtype)

    def split(self, n_cells: int) -> Any:
        """Return the backend for sparse matrices of so many cells: one that streams them if memory is too small."""
        if n_cells * BYTES_PER_CELL <= RESIDENT_SHARE * self._count_free_bytes():
            return self
        streams = importlib.import_module("labelgap.kernels.gpu_streams")  # it imports this module
        return streams.StreamedBackend(self, max(2, -(-n_cells // STREAMED_CELLS)))

    def _count_free_bytes(self) -> float:
        if not self.on_gpu:
            return float("inf")
        cuda = self.torch.cuda
        unused = cuda.memory_reserved(self.device) - cuda.memory_allocated(self.device)
        return cuda.mem_get_info(self.device)[0] + unused

    def to_numpy(self, array: Any) -> Any:
        return array.cpu().numpy() if isinstance(array, self.torch.Tensor) else array

    def normal(self, random_state: np.random.RandomState, shape: tuple[int, int], dtype: Any) -> Any:
        if shape[0] * shape[1] <= MAX_HOST_NUMBERS:
            return super().normal(random_state, shape, dtype)
        generator = self.torch.Generator(self.device).manual_seed(int(random_state.randint(2**31 - 1)))
        return self.torch.randn(shape, generator=generator, dtype=self._dtype(dtype), device=self.device)

    def coarse(self, B: Any) -> Any:
        """Return B in bfloat16, its rows aligned to lines of the cache; float64 and small arrays stay."""
        if not self.rounds or B.dtype != self.torch.float32 or B.numel() < self.min_coarse_numbers:
            return B
        n, k = B.shape
        width = -(-k // COARSE_MULTIPLE) * COARSE_MULTIPLE
        padded = self.torch.empty((n, width), dtype=self.torch.bfloat16, device=B.device)
        padded[:, k:] = 0
        padded[:, :k] = B
        return padded[:, :k]

    compact = coarse

    def prepare(self, matrix: Any, dtype: Any) -> TorchCSR:  # type: ignore[override]
        if isinstance(matrix, TorchCSR):
            return TorchCSR(matrix.indptr, matrix.indices, matrix.data.to(self._dtype(dtype)), matrix.shape)
        csr = matrix if isinstance(matrix, sp.csr_array) else sp.csr_array(matrix)
        arrays = (csr.indptr.astype(np.int64), csr.indices.astype(np.int32, copy=False))
        indptr, indices = (self._copy(array) for array in arrays)
        return TorchCSR(indptr, indices, self._copy(csr.data).to(self._dtype(dtype)), csr.shape)

    def _copy(self, array: np.ndarray) -> Any:
        return self.torch.asarray(np.array(array)) if not self.on_gpu else self.torch.as_tensor(array).to(self.device)

    def transpose(self, A: TorchCSR) -> TorchCSR:  # type: ignore[override]
        return A.T

    # --- products -----------------------------------------------------------------------------------------------

    def column_sums(self, A: TorchCSR, values: Any) -> Any:
        ordered = TorchCSR(A.column_bounds, A.indices, None, A.shape)
        return ordered.sum_rows(values[A.column_order])[:, None]

    def column_squares(self, A: TorchCSR) -> Any:
        return A.T.sum_rows(A.T.data.to(self.torch.float64) ** 2)[:, None]

    def spmm(self, A: TorchCSR, B: Any) -> Any:
        return self._multiply(A, A.data, B)

    def spmm_t(self, A: TorchCSR, B: Any) -> Any:
        return self._multiply(A.T, A.T.data, B)

    def gram(self, B: Any) -> Any:
        if not isinstance(B, TorchCSR):
            return B.T @ B
        (n, d), exact = B.shape, self.torch.float64
        if MIN_GRAM_CELLS * B.nnz < n * d:  # columns of BᵀB are sparse products with columns of B
            wide = B.T.with_data(B.T.data.to(exact))
            blocks = self._row_blocks(d, n + d)
            return self.torch.cat([self.spmm(wide, self._fill(wide, c, wide.data, 0.0, exact).T) for c in blocks], 1)
        out = self.torch.zeros((d, d), dtype=exact, device=self.device)
        for rows in self._row_blocks(n, d):
            dense = self._fill(B, rows, B.data, 0.0, exact)
            out.addmm_(dense.T, dense)
        return out

    def sddmm(self, A: TorchCSR, B: Any, H: Any) -> Any:
        cpu.check_factors(A, B, H)
        scores = self.torch.empty(A.nnz, dtype=B.dtype, device=self.device)
        if self.on_gpu and A.nnz and B.shape[1] <= _max_columns():
            B, H = _align_rows(B), _align_rows(H)
            _launch("score_cells", A.pieces, (A.indices, B, H, scores, B.stride(0), H.stride(0)), B, H)
            return scores
        for start, stop in self._cell_blocks(A.nnz, B.shape[1]):
            left = B[A.find_rows(start, stop)]
            scores[start:stop] = (left * H[A.indices[start:stop]]).sum(1)
        return scores

    def _multiply(self, A: TorchCSR, data: Any, B: Any) -> Any:
        """Return the product of the matrix with A's cells and these data with B."""
        cpu.check_factors(A, None, B)
        dtype = self.torch.float32 if B.dtype == self.torch.bfloat16 else B.dtype
        k = B.shape[1]
        if k > MAX_WIDTH:
            parts = (self._multiply(A, data, part.contiguous()) for part in self.torch.split(B, MAX_WIDTH, dim=1))
            return self.torch.cat(list(parts), dim=1)
        width = find_width(k)
        if width > k and dtype is B.dtype and B.shape[0] * width <= MAX_PADDED_NUMBERS:
            padded = self.torch.zeros((B.shape[0], width), dtype=dtype, device=self.device)
            padded[:, :k] = B
            return self._multiply(A, data, padded)[:, :k].contiguous()
        if self.on_gpu and A.shape[0] and k:
            B, out = _align_rows(B), self.torch.empty((A.shape[0], k), dtype=dtype, device=self.device)
            partial = self.torch.empty((max(1, A.pieces.n_slots), k), dtype=dtype, device=self.device)
            _launch("multiply", A.pieces, (A.indices, data, B, out, partial, B.stride(0), k), out, B)
            return _finish(A.pieces, partial, out)
        out = self.torch.zeros((A.shape[0], k), dtype=self.torch.float64, device=self.device)
        for start, stop in self._cell_blocks(A.nnz, k):
            products = data[start:stop, None].to(dtype) * B[A.indices[start:stop]].to(dtype)
            out.index_add_(0, A.find_rows(start, stop), products.to(out.dtype))
        return out.to(dtype)

    # --- stored cells -------------------------------------------------------------------------------------------

    def cells_value(self, loss: CellLoss, A: TorchCSR, B: Any, H: Any) -> Any:
        return self._sum(self._functions(loss)[0](A.data, self.sddmm(A, B, H)))

    def cells_sum(self, loss: CellLoss, A: TorchCSR, scores: Any, changes: Any, step: float) -> Any:
        return self._sum(self._functions(loss)[0](A.data, scores + step * changes))

    def cells_model(self, loss: CellLoss, A: TorchCSR, B: Any, H: Any) -> CellModel:
        value, gradient, curvature = self._functions(loss)
        scores = self.sddmm(A, B, H)
        curvatures = curvature(A.data, scores)
        rows = (A.sum_rows(curvatures) / A.shape[1]).to(B.dtype)[:, None]
        slopes = gradient(A.data, scores)
        return CellModel(self._sum(value(A.data, scores)), self._multiply(A, slopes, H), rows, curvatures)

    def cells_hessp(self, A: TorchCSR, curvature: Any, S: Any, H: Any) -> Any:
        if not self.on_gpu or not A.nnz or S.shape[1] > _max_columns():
            return self._multiply(A, curvature * self.sddmm(A, S, H), H)
        cpu.check_factors(A, S, H)
        S, H, k = _align_rows(S), _align_rows(self.coarse(H)), S.shape[1]
        out = self.torch.empty((S.shape[0], k), dtype=S.dtype, device=self.device)
        partial = self.torch.empty((max(1, A.pieces.n_slots), k), dtype=S.dtype, device=self.device)
        strides = (S.stride(0), H.stride(0), k)
        _launch("curve_cells", A.pieces, (A.indices, curvature, S, H, out, partial, *strides), S, H)
        return _finish(A.pieces, partial, out)

    def cells_diagonal(self, A: TorchCSR, curvature: Any, H: Any) -> Any:
        return self._multiply(A, curvature, H * H)

    # --- all cells ----------------------------------------------------------------------------------------------

    def all_value(self, loss: CellLoss, A: TorchCSR, targets: Targets, weights: Weights, B: Any, H: Any) -> Any:
        value, total = self._functions(loss)[0], self.torch.zeros((), dtype=self.torch.float64, device=self.device)
        for rows, p, q in self._weighted_blocks(A, weights, B.dtype):
            losses = value(self._goals(A, rows, targets, B.dtype), B[rows] @ H.T)
            total += self._sum((losses * q).sum(1, dtype=self.torch.float64) * p)
        return total

    def all_model(self, loss: CellLoss, A: TorchCSR, targets: Targets, weights: Weights, B: Any, H: Any) -> CellModel:
        value, gradient, curvature = self._functions(loss)
        total = self.torch.zeros((), dtype=self.torch.float64, device=self.device)
        out, row_curvature = self.torch.empty_like(B), self.torch.empty_like(B[:, :1])
        for rows, p, q in self._weighted_blocks(A, weights, B.dtype):
            goals, scores, own = self._goals(A, rows, targets, B.dtype), B[rows] @ H.T, p[:, None].to(B.dtype)
            total += self._sum((value(goals, scores) * q).sum(1, dtype=self.torch.float64) * p)
            row_curvature[rows] = own * (curvature(goals, scores) * q).sum(1, keepdim=True) / A.shape[1]
            out[rows] = own * ((gradient(goals, scores) * q) @ H)
        return CellModel(total, out, row_curvature, None)

    def all_hessp(
        self, loss: CellLoss, A: TorchCSR, targets: Targets, weights: Weights, B: Any, S: Any, H: Any
    ) -> Any:
        curvature, out = self._functions(loss)[2], self.torch.empty_like(S)
        for rows, p, q in self._weighted_blocks(A, weights, B.dtype):
            curvatures = curvature(self._goals(A, rows, targets, B.dtype), B[rows] @ H.T)
            out[rows] = p[:, None].to(B.dtype) * ((curvatures * (S[rows] @ H.T) * q) @ H)
        return out

    # --- rankings -----------------------------------------------------------------------------------------------

    def topk(self, B: Any, H: Any, k: int, exclude: TorchCSR | None = None) -> tuple[Any, Any]:
        best = []
        for rows in self._row_blocks(B.shape[0], H.shape[0]):
            scores = B[rows] @ H.T
            if exclude is not None:
                cells = slice(int(exclude.bounds[rows.start]), int(exclude.bounds[rows.stop]))
                own = exclude.find_rows(cells.start, cells.stop) - rows.start
                scores[own, exclude.indices[cells]] = -self.torch.inf
            best.append(self.best_in_rows(scores, k))
        if not best:
            return self.best_in_rows(B @ H.T, k)
        return self.torch.cat([each[0] for each in best]), self.torch.cat([each[1] for each in best])

    def best_in_rows(self, scores: Any, k: int) -> tuple[Any, Any]:
        """PyTorch breaks ties arbitrarily: a row in which they matter is ranked again, by score and then by index."""
        torch, L = self.torch, scores.shape[1]
        values, columns = torch.topk(scores, min(k + 1, L), dim=1)
        tied = torch.nonzero(values[:, k - 1] == values[:, k])[:, 0] if k < L else values.new_zeros(0).long()
        columns = columns[:, :k]
        for rows in torch.split(tied, max(1, self.block_numbers // max(1, L))):
            own, least = scores[rows], values[rows, k - 1 : k]
            backwards = torch.arange(L, 0, -1, device=scores.device)
            keys = torch.where(own > least, L + 1, torch.where(own == least, backwards, 0))
            columns[rows] = torch.topk(keys, k, dim=1).indices
        columns = torch.sort(columns, dim=1).values
        order = torch.argsort(torch.gather(scores, 1, columns), dim=1, descending=True, stable=True)
        columns = torch.gather(columns, 1, order)
        return columns, torch.gather(scores, 1, columns)

    def product_topk(self, A: TorchCSR, B: TorchCSR, k: int) -> tuple[Any, Any]:
        """The columns that occur are few if the rows are those of a cluster; only these are dense."""
        torch = self.torch
        names, columns = torch.unique(torch.cat([A.indices, B.indices]), return_inverse=True)
        columns, width = columns.to(torch.int32), max(1, len(names))
        left = TorchCSR(A.indptr, columns[: A.nnz], A.data, (A.shape[0], width))
        right = TorchCSR(B.indptr, columns[A.nnz :], B.data, (B.shape[0], width))
        best = []
        for rows in self._row_blocks(A.shape[0], width + B.shape[0]):
            dense = self._fill(left, rows, left.data, 0.0, A.data.dtype)
            best.append(self.best_in_rows(self.spmm(right, dense.T).T, k))
        return torch.cat([each[0] for each in best]), torch.cat([each[1] for each in best])

    # --- blocks -------------------------------------------------------------------------------------------------

    def _functions(self, loss: CellLoss) -> Any:
        return loss.functions(self.torch)

    def _sum(self, values: Any) -> Any:
        return self.torch.sum(values, dtype=self.torch.float64)

    def _row_blocks(self, n: int, width: int) -> Iterator[slice]:
        return row_blocks(n, 1, max(1, self.block_numbers // max(1, width)))

    def _cell_blocks(self, nnz: int, width: int) -> list[tuple[int, int]]:
        size = max(1, self.block_numbers // max(1, width))
        return [(start, min(start + size, nnz)) for start in range(0, nnz, size)]

    def _weighted_blocks(self, A: TorchCSR, weights: Weights, dtype: Any) -> Iterator[tuple[slice, Any, Any]]:
        """Yield blocks of rows, their weights p, and the weights q of the columns."""
        p, q = weights
        for rows in self._row_blocks(*A.shape):
            yield rows, p[rows], q.to(dtype)

    def _goals(self, A: TorchCSR, rows: slice, targets: Targets, dtype: Any) -> Any:
        return self._fill(A, rows, targets[1], targets[0], dtype)

    def _fill(self, A: TorchCSR, rows: slice, stored: Any, other: float, dtype: Any) -> Any:
        """Return rows of A, dense: ``stored`` at their cells, a number or the values of all cells, else ``other``."""
        dense = self.torch.full((rows.stop - rows.start, A.shape[1]), other, dtype=dtype, device=self.device)
        start, stop = int(A.bounds[rows.start]), int(A.bounds[rows.stop])
        own = A.find_rows(start, stop) - rows.start
        values = stored[start:stop].to(dtype) if isinstance(stored, self.torch.Tensor) else stored
        dense[own, A.indices[start:stop]] = values
        return dense

    def _to_host(self, value: Any) -> Any:
        return value.to_host() if isinstance(value, TorchCSR) else super()._to_host(value)


# --- Triton ---------------------------------------------------------------------------------------------------------


# Threads that fit parts of a model share compiled kernels; they wait for each other at the first call alone.
_compiling, _compiled = Lock(), set[Any]()


def _max_columns() -> int:
    from labelgap.kernels.gpu_loops import MAX_COLUMNS

    return MAX_COLUMNS


def _align_rows(B: Any) -> Any:
    """Return B with adjacent columns; the distance of its rows is free."""
    return B if B.stride(1) == 1 or B.shape[1] == 1 else B.contiguous()


def _launch(name: str, pieces: Pieces, arguments: tuple[Any, ...], like: Any, gathered: Any) -> None:
    """Run a kernel for each piece, with sums of the type of ``like``, over the rows of ``gathered``."""
    from labelgap.kernels import gpu_loops

    torch, k, size = import_optional("torch", "gpu"), like.shape[1], gathered.element_size()
    coarse, sums = gathered.dtype == torch.bfloat16, _get_sum_type(like)
    # Only coarse arrays are bfloat16, and zeros pad their rows.
    constants = {"K": k, "READ": min(gathered.stride(0), _round_up(k)) if coarse else k, "SUM": sums}
    if name == "multiply":
        block, rows, warps = gpu_loops.TILES[size]
        small = gathered.shape[0] * gathered.stride(0) < 1 << 31
        constants |= {"ROWS": rows, "CHUNK": gpu_loops.CHUNK, "num_warps": warps}
        # Coarse arrays do not have the digits that float64 sums would keep.
        constants |= {"TOTAL": sums if coarse else gpu_loops.tl.float64}
        constants |= {"OFFSET": gpu_loops.tl.int32 if small else gpu_loops.tl.int64}
    else:
        block = gpu_loops.MAX_COLUMNS
        constants |= {"UNROLL": gpu_loops.UNROLL[size], "num_warps": 1}
    constants["BLOCK"] = block = min(_round_up(k), block)
    kernel, grid = getattr(gpu_loops, name), (pieces.table.shape[0], -(-k // block))
    _run(kernel, grid, (pieces.table, *arguments), constants)


def _run(kernel: Any, grid: tuple[int, int], arguments: tuple[Any, ...], constants: dict[str, Any]) -> None:
    """Run a Triton kernel on the device of its first argument."""
    torch = import_optional("torch", "gpu")
    kinds = tuple(value.dtype if isinstance(value, torch.Tensor) else value for value in arguments)
    key = kernel, arguments[0].device, kinds, *constants.values()
    with torch.cuda.device(arguments[0].device):
        if key in _compiled:
            kernel[grid](*arguments, **constants)
            return
        with _compiling:
            kernel[grid](*arguments, **constants)
        _compiled.add(key)


def _get_sum_type(array: Any) -> Any:
    from labelgap.kernels import gpu_loops

    torch = import_optional("torch", "gpu")
    return gpu_loops.tl.float64 if array.dtype == torch.float64 else gpu_loops.tl.float32


def _finish(pieces: Pieces, partial: Any, out: Any) -> Any:
    """Add up the partial sums of long rows."""
    if pieces.n_slots:
        from labelgap.kernels import gpu_loops

        k, total = out.shape[1], gpu_loops.tl.float64
        block = min(_round_up(k), 256)
        fixed = (pieces.long_rows, pieces.long_bounds, partial, out, k)
        grid = pieces.long_rows.shape[0], -(-k // block)
        _run(gpu_loops.add_pieces, grid, fixed, {"K": k, "BLOCK": block, "SUM": total})
    return out


def _round_up(k: int) -> int:
    """Return the least power of 2 that is at least k, and at least 16.

    >>> _round_up(5), _round_up(500)
    (16, 512)
    """
    return max(16, 1 << (k - 1).bit_length())
