"""Rows in shards: a backend whose sums over rows are sums over shards, so that solvers need no other code.

A :class:`ShardedArray` is an array of the array API that consists of row blocks; a :class:`ShardedMatrix` is a sparse
matrix of row blocks. The functions of :class:`ShardedBackend` keep products with rows in shards; Gram matrices,
right-hand sides and the margins of a curvature are sums over shards.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, reduce
from typing import Any

import numpy as np
import scipy.sparse as sp

from labelgap.kernels.base import Backend, CellLoss, CellModel, Targets, Weights, matmul, matmul_t, namespace, qr
from labelgap.kernels.mapped import slice_rows, split_rows_evenly


class ShardedArray:
    """Array of row blocks, one for each shard, with the arithmetic that objectives and solvers use.

    >>> array = ShardedArray([np.ones((2, 1)), np.zeros((1, 1))])
    >>> array.shape, (2 * array - 1).blocks[1]
    ((3, 1), array([[-1.]]))
    """

    __array_ufunc__ = None  # NumPy arrays then use our operators

    def __init__(self, blocks: Sequence[Any]) -> None:
        self.blocks = list(blocks)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of all blocks together."""
        return sum(block.shape[0] for block in self.blocks), *self.blocks[0].shape[1:]

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.blocks[0].shape)

    @property
    def dtype(self) -> Any:
        """The type of the values."""
        return self.blocks[0].dtype

    @property
    def T(self) -> _TransposedShards:
        """The transpose, for products with other arrays of the same shards."""
        return _TransposedShards(self)

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        return _ShardNamespace(self.blocks[0])

    def map(self, function: Callable[..., Any], *others: Any) -> ShardedArray:
        """Apply a function to each block and the blocks of other arrays; arguments without shards go to each call."""
        parts = [_blocks(other, len(self.blocks)) for other in (self, *others)]
        return ShardedArray([function(*blocks) for blocks in zip(*parts, strict=True)])

    def __getitem__(self, key: Any) -> ShardedArray:
        if not isinstance(key, tuple) or key[0] != slice(None):
            raise IndexError(f"a sharded array is indexed by all rows, and {key!r} selects some of them")
        return self.map(lambda block: block[key])

    def __matmul__(self, other: Any) -> ShardedArray:
        return self.map(matmul, other)

    def __neg__(self) -> ShardedArray:
        return self.map(operator.neg)


def _blocks(value: Any, count: int) -> list[Any]:
    return value.blocks if isinstance(value, ShardedArray) else [value] * count


def _add_operators() -> None:
    """Add elementwise operators, from either side and in place, to ShardedArray."""
    for name in ("add", "sub", "mul", "truediv", "gt", "lt", "ge", "le", "eq", "ne", "and"):
        plain = getattr(operator, f"__{name}__")
        setattr(ShardedArray, f"__{name}__", lambda self, other, f=plain: self.map(f, other))
    for name in ("add", "sub", "mul", "truediv"):
        plain = getattr(operator, f"__{name}__")
        setattr(ShardedArray, f"__r{name}__", lambda self, other, f=plain: self.map(lambda a, b: f(b, a), other))
    for name in ("iadd", "isub", "imul"):
        plain = getattr(operator, f"__{name}__")
        setattr(ShardedArray, f"__{name}__", lambda self, other, f=plain: self.map(f, other))


_add_operators()


class _TransposedShards:
    def __init__(self, array: ShardedArray) -> None:
        self.array = array

    def __matmul__(self, other: ShardedArray) -> Any:
        return _add_shards(self.array.map(matmul_t, other).blocks)


class _ShardNamespace:
    """The array API for sharded arrays; functions that are not defined here apply to each block."""

    def __init__(self, block: Any) -> None:
        self.base = namespace(block)
        self.linalg = _ShardLinalg()

    def __getattr__(self, name: str) -> Any:
        function = getattr(self.base, name)
        if not callable(function) or isinstance(function, type):
            return function

        def blockwise(array: Any, *others: Any, **options: Any) -> Any:
            if not any(isinstance(value, ShardedArray) for value in (array, *others)):
                return function(array, *others, **options)
            first = next(value for value in (array, *others) if isinstance(value, ShardedArray))
            return first.map(lambda _, *blocks: function(*blocks, **options), array, *others)

        return blockwise

    def sum(self, array: Any, *, axis: int | None = None, **options: Any) -> Any:
        if not isinstance(array, ShardedArray):
            return self.base.sum(array, axis=axis, **options)
        parts = [self.base.sum(block, axis=axis, **options) for block in array.blocks]
        return ShardedArray(parts) if axis == 1 else _add_shards(parts)

    def mean(self, array: Any) -> Any:
        total = self.sum(array, dtype=self.base.float64)
        return total / float(np.prod(array.shape))

    def max(self, array: Any) -> Any:
        return self._reduce_blocks("max", array)

    def min(self, array: Any) -> Any:
        return self._reduce_blocks("min", array)

    def any(self, array: Any) -> Any:
        return self._reduce_blocks("any", array)

    def all(self, array: Any) -> Any:
        return self._reduce_blocks("all", array)

    def _reduce_blocks(self, name: str, array: Any) -> Any:
        function = getattr(self.base, name)
        if not isinstance(array, ShardedArray):
            return function(array)
        return function(self.base.stack([function(block) for block in array.blocks]))

    def concat(self, arrays: Sequence[Any], *, axis: int = 0) -> Any:
        first, *others = arrays
        if not isinstance(first, ShardedArray):
            return self.base.concat(arrays, axis=axis)
        assert axis == 1  # concatenated rows would belong to no shard
        return first.map(lambda *blocks: self.base.concat(blocks, axis=1), *others)


class _ShardLinalg:
    """Decompositions of tall sharded arrays."""

    def qr(self, array: ShardedArray) -> tuple[ShardedArray, Any]:
        """Return Q and R by a decomposition of each shard, then one of the stacked triangles."""
        parts = [qr(block) for block in array.blocks]
        xp = namespace(parts[0][1])
        Q, R = qr(xp.concat([R for _, R in parts]))
        bounds = np.cumsum([0, *(R.shape[0] for _, R in parts)])
        blocks = [matmul(own, Q[a:b, :]) for (own, _), a, b in zip(parts, bounds[:-1], bounds[1:])]
        return ShardedArray(blocks), R


def _add_shards(parts: Iterable[Any]) -> Any:
    """Add the contributions of shards in order; arrays elsewhere have their own way, and the sum comes here.

    Contributions that are made one by one are not held together.
    """
    rest = iter(parts)
    first = next(rest)
    add_up = getattr(first, "add_up", None)
    return reduce(operator.add, rest, first) if add_up is None else add_up([first, *rest])


class ShardedMatrix:
    """Prepared sparse matrix of row blocks, or the transpose of one; ``rows`` is the matrix that it was made of."""

    def __init__(self, blocks: Sequence[Any], rows: Any, dtype: Any, *, transposed: bool = False) -> None:
        self.blocks, self.rows, self.dtype, self.transposed = list(blocks), rows, dtype, transposed
        self.shape = rows.shape[::-1] if transposed else rows.shape
        self.nnz = sum(block.nnz for block in self.blocks)

    @cached_property
    def shares(self) -> list[float]:
        """The fraction of the rows in each block."""
        return [block.shape[0] / max(1, self.rows.shape[0]) for block in self.blocks]


class ShardedGraph:
    """Prepared sparse matrix between sharded rows: a block for each pair of shards."""

    def __init__(self, blocks: Sequence[Sequence[Any]]) -> None:
        self.blocks = [list(row) for row in blocks]


class ShardedBackend:
    """Backend that keeps rows in shards and calls another backend for each of them.

    Parameters
    ----------
    inner : Backend
        The backend for a shard, and for arrays over labels.
    count : int
        The number of shards; if there are fewer rows, each is a shard.

    Examples
    --------
    >>> from labelgap.kernels import get_backend
    >>> backend = ShardedBackend(get_backend(), 2)
    >>> A = backend.prepare(sp.csr_array(np.eye(3)), float)
    >>> backend.spmm_t(A, backend.spmm(A, np.ones((3, 1)))).ravel()
    array([1., 1., 1.])
    """

    predicts, loses_arrays = False, False

    def __init__(self, inner: Backend, count: int) -> None:
        self.inner, self.count = inner, count
        self.on_shards = inner  # the backend of the shards, if they are elsewhere than arrays over labels

    def array(self, values: Any, dtype: Any) -> Any:
        return self.inner.array(values, dtype)

    def rows(self, values: Any, dtype: Any) -> ShardedArray:
        if isinstance(values, ShardedArray):
            return values.map(lambda block: self.on_shards.array(block, dtype))
        bounds = self._bounds(values.shape[0])
        return ShardedArray([self.on_shards.rows(values[a:b, ...], dtype) for a, b in bounds])

    def zeros(self, A: Any, k: int, dtype: Any) -> Any:
        if A.transposed:
            return self.inner.zeros(self.on_shards.transpose(A.blocks[0]), k, dtype)
        return ShardedArray([self.on_shards.zeros(block, k, dtype) for block in A.blocks])

    def normal(self, random_state: np.random.RandomState, shape: tuple[int, int], dtype: Any) -> Any:
        return self.inner.normal(random_state, shape, dtype)

    def coarse(self, B: Any) -> Any:
        return B.map(self.on_shards.coarse) if isinstance(B, ShardedArray) else self.inner.coarse(B)

    def compact(self, B: Any) -> Any:
        return B.map(self.on_shards.compact) if isinstance(B, ShardedArray) else self.inner.compact(B)

    def settle(self, array: Any) -> Any:
        return array

    def to_numpy(self, array: Any) -> Any:
        if not isinstance(array, ShardedArray):
            return self.inner.to_numpy(array)
        return np.concatenate([self.on_shards.to_numpy(block) for block in array.blocks])

    def prepare(self, matrix: Any, dtype: Any) -> ShardedMatrix:
        matrix = matrix if isinstance(matrix, sp.csr_array) else sp.csr_array(matrix)
        bounds = self._bounds(matrix.shape[0])
        blocks = [self.on_shards.prepare(slice_rows(matrix, *pair), dtype) for pair in bounds]
        return ShardedMatrix(blocks, matrix, dtype)

    def prepare_graph(self, matrix: Any, dtype: Any) -> ShardedGraph:
        matrix, bounds = sp.csr_array(matrix), self._bounds(matrix.shape[0])
        return ShardedGraph([[self.on_shards.prepare(matrix[a:b, c:d], dtype) for c, d in bounds] for a, b in bounds])

    def transpose(self, A: ShardedMatrix) -> ShardedMatrix:
        return ShardedMatrix(A.blocks, A.rows, A.dtype, transposed=not A.transposed)

    def eigh(self, A: Any) -> tuple[Any, Any]:
        return self.inner.eigh(A)

    def matmul(self, A: Any, B: Any) -> Any:
        return A @ B if isinstance(A, ShardedArray) else self.inner.matmul(A, B)

    def matmul_t(self, A: Any, B: Any) -> Any:
        return A.T @ B if isinstance(A, ShardedArray) else self.inner.matmul_t(A, B)

    def gram(self, B: Any) -> Any:
        if isinstance(B, ShardedMatrix) and B.transposed:  # between all pairs of rows: for few rows
            rows = B.rows.gather() if hasattr(B.rows, "gather") else B.rows
            return self.inner.gram(self.inner.transpose(self.inner.prepare(rows, B.dtype)))
        if isinstance(B, ShardedArray | ShardedMatrix):
            return _add_shards([self.on_shards.gram(block) for block in B.blocks])
        return self.inner.gram(B)

    def spmm(self, A: Any, B: Any) -> Any:
        if isinstance(A, ShardedGraph):
            products = [[self.on_shards.spmm(block, part) for block, part in zip(row, B.blocks)] for row in A.blocks]
            return ShardedArray([reduce(operator.add, row) for row in products])
        if A.transposed:
            return _add_shards(self.on_shards.spmm_t(block, part) for block, part in zip(A.blocks, B.blocks))
        return ShardedArray([self.on_shards.spmm(block, part) for block, part in zip(A.blocks, self._spread(A, B))])

    def spmm_t(self, A: ShardedMatrix, B: Any) -> Any:
        return self.spmm(self.transpose(A), B)

    def column_sums(self, A: ShardedMatrix, values: ShardedArray) -> Any:
        shards = zip(self._oriented_blocks(A), values.blocks)
        parts = [self.on_shards.column_sums(block, part) for block, part in shards]
        return ShardedArray(parts) if A.transposed else _add_shards(parts)

    def column_squares(self, A: ShardedMatrix) -> Any:
        return _add_shards([self.on_shards.column_squares(block) for block in A.blocks])

    def sddmm(self, A: ShardedMatrix, B: Any, H: Any) -> ShardedArray:
        return ShardedArray([self.on_shards.sddmm(*arguments) for arguments in self._shard_arguments(A, B, H)])

    def cells_value(self, loss: CellLoss, A: ShardedMatrix, B: Any, H: Any) -> Any:
        shards = self._shard_arguments(A, B, H)
        return _add_shards([self.on_shards.cells_value(loss, *arguments) for arguments in shards])

    def cells_model(self, loss: CellLoss, A: ShardedMatrix, B: Any, H: Any) -> CellModel:
        models = [self.on_shards.cells_model(loss, *arguments) for arguments in self._shard_arguments(A, B, H)]
        curvature = ShardedArray([model.cell_curvature for model in models])
        return CellModel(*self._join_models(A, models), curvature)

    def cells_hessp(self, A: ShardedMatrix, curvature: ShardedArray, S: Any, H: Any) -> Any:
        parts = [
            self.on_shards.cells_hessp(block, own, s, h)
            for (block, s, h), own in zip(self._shard_arguments(A, S, H), curvature.blocks)
        ]
        return _add_shards(parts) if A.transposed else ShardedArray(parts)

    def cells_diagonal(self, A: ShardedMatrix, curvature: ShardedArray, H: Any) -> Any:
        shards = zip(self._oriented_blocks(A), curvature.blocks, self._spread(A, H))
        parts = [self.on_shards.cells_diagonal(*arguments) for arguments in shards]
        return _add_shards(parts) if A.transposed else ShardedArray(parts)

    def cells_sum(self, loss: CellLoss, A: ShardedMatrix, scores: Any, changes: Any, step: float) -> Any:
        shards = zip(self._oriented_blocks(A), scores.blocks, changes.blocks)
        return _add_shards([self.on_shards.cells_sum(loss, *arguments, step) for arguments in shards])

    def all_value(self, loss: CellLoss, A: ShardedMatrix, targets: Targets, weights: Weights, B: Any, H: Any) -> Any:
        calls = self._all_cells(loss, A, targets, weights, B, H)
        return _add_shards([self.on_shards.all_value(*fixed, b, h) for fixed, b, h in calls])

    def all_model(
        self, loss: CellLoss, A: ShardedMatrix, targets: Targets, weights: Weights, B: Any, H: Any
    ) -> CellModel:
        calls = self._all_cells(loss, A, targets, weights, B, H)
        models = [self.on_shards.all_model(*fixed, b, h) for fixed, b, h in calls]
        return CellModel(*self._join_models(A, models), None)

    def all_hessp(
        self, loss: CellLoss, A: ShardedMatrix, targets: Targets, weights: Weights, B: Any, S: Any, H: Any
    ) -> Any:
        calls = self._all_cells(loss, A, targets, weights, B, H)
        changes = self._spread(A, S)
        parts = [self.on_shards.all_hessp(*fixed, b, s, h) for (fixed, b, h), s in zip(calls, changes)]
        return _add_shards(parts) if A.transposed else ShardedArray(parts)

    def topk(self, B: Any, H: Any, k: int, exclude: Any = None) -> tuple[Any, Any]:
        hidden = [None] * self.count if exclude is None else exclude.blocks
        blocks = B.blocks if isinstance(B, ShardedArray) else [B]
        backend = self.on_shards if isinstance(B, ShardedArray) else self.inner
        best = [backend.topk(block, H, k, hide) for block, hide in zip(blocks, hidden)]
        return tuple(np.concatenate([backend.to_numpy(part) for part in parts]) for parts in zip(*best))  # type: ignore

    def best_in_rows(self, scores: Any, k: int) -> tuple[Any, Any]:
        return self.inner.best_in_rows(scores, k)

    def product_topk(self, A: Any, B: Any, k: int) -> tuple[Any, Any]:
        return self.inner.product_topk(A, B, k)

    def _bounds(self, n: int) -> list[tuple[int, int]]:
        return split_rows_evenly(n, self.count)

    def _spread(self, A: ShardedMatrix, value: Any) -> list[Any]:
        """Return what each shard of A gets of an array: its own rows, or all of an array over labels or features."""
        if isinstance(value, ShardedArray):
            return value.blocks
        return [value] * len(A.blocks)

    def _oriented_blocks(self, A: ShardedMatrix) -> list[Any]:
        """Return the blocks, transposed if A is."""
        return [self.on_shards.transpose(block) for block in A.blocks] if A.transposed else A.blocks

    def _shard_arguments(self, A: ShardedMatrix, B: Any, H: Any) -> list[tuple[Any, Any, Any]]:
        """Return the block, the left and the right factor of each shard; the factor of the rows is sharded."""
        return list(zip(self._oriented_blocks(A), self._spread(A, B), self._spread(A, H)))

    def _all_cells(
        self, loss: CellLoss, A: ShardedMatrix, targets: Targets, weights: Weights, B: Any, H: Any
    ) -> list[tuple[tuple[Any, Any, Any, Any], Any, Any]]:
        """Return the fixed arguments of a sum over all cells and the two factors of each shard."""
        p, q = (self._spread(A, side) for side in weights)
        shards = zip(self._shard_arguments(A, B, H), p, q)
        return [((loss, block, targets, (own_p, own_q)), b, h) for (block, b, h), own_p, own_q in shards]

    def _join_models(self, A: ShardedMatrix, models: Sequence[CellModel]) -> tuple[Any, Any, Any]:
        """Return the value, the gradient and the mean curvature of each row of A."""
        value = _add_shards([model.value for model in models])
        gradients, curvatures = [model.gradient for model in models], [model.row_curvature for model in models]
        if not A.transposed:
            return value, ShardedArray(gradients), ShardedArray(curvatures)
        weighted = [share * curvature for share, curvature in zip(A.shares, curvatures)]
        return value, _add_shards(gradients), _add_shards(weighted)
