"""Rows in shards: arrays and a backend in which sums over rows add up, so that a problem takes the same path.

A :class:`ShardedArray` is an array of the array API whose rows lie in blocks; a :class:`ShardedMatrix` is a sparse
matrix of row blocks. :class:`ShardedBackend` has the functions of a backend on them: products with rows stay in
shards; Gram matrices, right-hand sides and the margins of a curvature are sums over shards. Nothing above knows.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import cached_property, reduce
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from labelgap.kernels.base import Backend, Cell, CellModel, Targets, Weights, matmul, matmul_t, namespace, qr


class ShardedArray:
    """An array whose rows lie in blocks, one for each shard, with the arithmetic that objectives and solvers use.

    >>> array = ShardedArray([np.ones((2, 1)), np.zeros((1, 1))])
    >>> array.shape, (2 * array - 1).blocks[1]
    ((3, 1), array([[-1.]]))
    """

    __array_ufunc__ = None  # NumPy's arrays leave operators with these to us

    def __init__(self, blocks: Sequence[Any]) -> None:
        self.blocks = list(blocks)

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the whole array."""
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
    def T(self) -> _Transposed:
        """The transpose, for products with other arrays of the same shards."""
        return _Transposed(self)

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        return _Namespace(self.blocks[0])

    def map(self, function: Callable[..., Any], *others: Any) -> ShardedArray:
        """Apply a function to each block, and to those of other arrays; what has no shards goes to each of them."""
        parts = [_blocks(other, len(self.blocks)) for other in (self, *others)]
        return ShardedArray([function(*blocks) for blocks in zip(*parts, strict=True)])

    def __getitem__(self, key: Any) -> ShardedArray:
        if not isinstance(key, tuple) or key[0] != slice(None):
            raise IndexError(f"the rows lie in shards, and {key!r} does not take all of them")
        return self.map(lambda block: block[key])

    def __matmul__(self, other: Any) -> ShardedArray:
        return self.map(matmul, other)

    def __neg__(self) -> ShardedArray:
        return self.map(operator.neg)


def _blocks(value: Any, count: int) -> list[Any]:
    return value.blocks if isinstance(value, ShardedArray) else [value] * count


def _add_operators() -> None:
    """Give sharded arrays the operators that work element by element, from either side and in place."""
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


class _Transposed:
    def __init__(self, array: ShardedArray) -> None:
        self.array = array

    def __matmul__(self, other: ShardedArray) -> Any:
        return _total(self.array.map(matmul_t, other).blocks)


class _Namespace:
    """The functions of the array API that are used on sharded arrays; others are those of the blocks' library."""

    def __init__(self, block: Any) -> None:
        self.base = namespace(block)
        self.linalg = _Linalg()

    def __getattr__(self, name: str) -> Any:
        function = getattr(self.base, name)
        if not callable(function) or isinstance(function, type):
            return function

        def blockwise(array: Any, *others: Any, **options: Any) -> Any:
            if not any(isinstance(each, ShardedArray) for each in (array, *others)):
                return function(array, *others, **options)
            first = next(each for each in (array, *others) if isinstance(each, ShardedArray))
            return first.map(lambda _, *blocks: function(*blocks, **options), array, *others)

        return blockwise

    def sum(self, array: Any, *, axis: int | None = None, **options: Any) -> Any:
        if not isinstance(array, ShardedArray):
            return self.base.sum(array, axis=axis, **options)
        parts = [self.base.sum(block, axis=axis, **options) for block in array.blocks]
        return ShardedArray(parts) if axis == 1 else _total(parts)

    def mean(self, array: Any) -> Any:
        total = self.sum(array, dtype=self.base.float64)
        return total / float(np.prod(array.shape))

    def max(self, array: Any) -> Any:
        return self._reduced("max", array)

    def min(self, array: Any) -> Any:
        return self._reduced("min", array)

    def any(self, array: Any) -> Any:
        return self._reduced("any", array)

    def all(self, array: Any) -> Any:
        return self._reduced("all", array)

    def _reduced(self, name: str, array: Any) -> Any:
        function = getattr(self.base, name)
        if not isinstance(array, ShardedArray):
            return function(array)
        return function(self.base.stack([function(block) for block in array.blocks]))

    def concat(self, arrays: Sequence[Any], *, axis: int = 0) -> Any:
        first, *others = arrays
        if not isinstance(first, ShardedArray):
            return self.base.concat(arrays, axis=axis)
        assert axis == 1  # rows of one shard do not follow those of another
        return first.map(lambda *blocks: self.base.concat(blocks, axis=1), *others)


class _Linalg:
    """Decompositions of tall arrays in shards."""

    def qr(self, array: ShardedArray) -> tuple[ShardedArray, Any]:
        """Q and R by a decomposition of each shard, then one of the triangles on top of each other."""
        parts = [qr(block) for block in array.blocks]
        xp = namespace(parts[0][1])
        Q, R = qr(xp.concat([R for _, R in parts]))
        places = np.cumsum([0, *(R.shape[0] for _, R in parts)])
        blocks = [matmul(own, Q[a:b, :]) for (own, _), a, b in zip(parts, places[:-1], places[1:])]
        return ShardedArray(blocks), R


def _total(parts: Sequence[Any]) -> Any:
    """Add the contributions of shards, in their order."""
    return reduce(operator.add, parts)


def _rows(matrix: sp.csr_array, start: int, stop: int) -> sp.csr_array:
    """Return a range of rows that shares the memory of all of them."""
    first, last = matrix.indptr[start], matrix.indptr[stop]
    part = sp.csr_array((stop - start, matrix.shape[1]), dtype=matrix.dtype)
    part.indptr = matrix.indptr[start : stop + 1] - first
    part.data, part.indices = matrix.data[first:last], matrix.indices[first:last]  # SciPy's constructor would copy
    return part


class ShardedMatrix:
    """A prepared sparse matrix of row blocks; transposed, the same seen from its columns.

    ``rows`` is the SciPy matrix that was cut.
    """

    def __init__(self, blocks: Sequence[Any], rows: sp.csr_array, dtype: Any, *, transposed: bool = False) -> None:
        self.blocks, self.rows, self.dtype, self.transposed = list(blocks), rows, dtype, transposed
        self.shape = rows.shape[::-1] if transposed else rows.shape
        self.nnz = sum(block.nnz for block in self.blocks)

    @cached_property
    def shares(self) -> list[float]:
        """The share of the rows that each block has."""
        return [block.shape[0] / max(1, self.rows.shape[0]) for block in self.blocks]


class ShardedGraph:
    """A prepared sparse matrix between rows that lie in shards: a block for each pair of shards."""

    def __init__(self, blocks: Sequence[Sequence[Any]]) -> None:
        self.blocks = [list(row) for row in blocks]


class ShardedBackend:
    """A backend that keeps rows in shards and gives each to another backend.

    Parameters
    ----------
    whole : Backend
        What computes on a shard, and on what belongs to labels.
    count : int
        Into how many shards rows are cut; of fewer rows each is a shard.

    Examples
    --------
    >>> from labelgap.kernels import get_backend
    >>> backend = ShardedBackend(get_backend(), 2)
    >>> A = backend.prepare(sp.csr_array(np.eye(3)), float)
    >>> backend.spmm_t(A, backend.spmm(A, np.ones((3, 1)))).ravel()
    array([1., 1., 1.])
    """

    def __init__(self, whole: Backend, count: int) -> None:
        self.whole, self.count = whole, count

    def array(self, values: Any, dtype: Any) -> Any:
        return self.whole.array(values, dtype)

    def rows(self, values: Any, dtype: Any) -> ShardedArray:
        if isinstance(values, ShardedArray):
            return values.map(lambda block: self.whole.array(block, dtype))
        return ShardedArray([self.whole.array(values[a:b, ...], dtype) for a, b in self._cuts(values.shape[0])])

    def zeros(self, A: Any, k: int, dtype: Any) -> Any:
        if A.transposed:
            return self.whole.zeros(self.whole.transpose(A.blocks[0]), k, dtype)
        return ShardedArray([self.whole.zeros(block, k, dtype) for block in A.blocks])

    def to_numpy(self, array: Any) -> Any:
        if not isinstance(array, ShardedArray):
            return self.whole.to_numpy(array)
        return np.concatenate([self.whole.to_numpy(block) for block in array.blocks])

    def prepare(self, matrix: Any, dtype: Any) -> ShardedMatrix:
        matrix = sp.csr_array(matrix)
        blocks = [self.whole.prepare(_rows(matrix, *cut), dtype) for cut in self._cuts(matrix.shape[0])]
        return ShardedMatrix(blocks, matrix, dtype)

    def prepare_graph(self, matrix: Any, dtype: Any) -> ShardedGraph:
        matrix, cuts = sp.csr_array(matrix), self._cuts(matrix.shape[0])
        return ShardedGraph([[self.whole.prepare(matrix[a:b, c:d], dtype) for c, d in cuts] for a, b in cuts])

    def transpose(self, A: ShardedMatrix) -> ShardedMatrix:
        return ShardedMatrix(A.blocks, A.rows, A.dtype, transposed=not A.transposed)

    def eigh(self, A: Any) -> tuple[Any, Any]:
        return self.whole.eigh(A)

    def matmul(self, A: Any, B: Any) -> Any:
        return A @ B if isinstance(A, ShardedArray) else self.whole.matmul(A, B)

    def matmul_t(self, A: Any, B: Any) -> Any:
        return A.T @ B if isinstance(A, ShardedArray) else self.whole.matmul_t(A, B)

    def gram(self, B: Any) -> Any:
        if isinstance(B, ShardedMatrix) and B.transposed:  # of all pairs of rows: only for few
            return self.whole.gram(self.whole.transpose(self.whole.prepare(B.rows, B.dtype)))
        if isinstance(B, ShardedArray | ShardedMatrix):
            return _total([self.whole.gram(block) for block in B.blocks])
        return self.whole.gram(B)

    def spmm(self, A: Any, B: Any) -> Any:
        if isinstance(A, ShardedGraph):
            products = [[self.whole.spmm(block, part) for block, part in zip(row, B.blocks)] for row in A.blocks]
            return ShardedArray([_total(row) for row in products])
        if A.transposed:
            return _total([self.whole.spmm_t(block, part) for block, part in zip(A.blocks, B.blocks)])
        return ShardedArray([self.whole.spmm(block, B) for block in A.blocks])

    def spmm_t(self, A: ShardedMatrix, B: Any) -> Any:
        return self.spmm(self.transpose(A), B)

    def column_sums(self, A: ShardedMatrix, values: ShardedArray) -> Any:
        parts = [self.whole.column_sums(block, part) for block, part in zip(self._sides(A), values.blocks)]
        return ShardedArray(parts) if A.transposed else _total(parts)

    def column_squares(self, A: ShardedMatrix) -> Any:
        return _total([self.whole.column_squares(block) for block in A.blocks])

    def sddmm(self, A: ShardedMatrix, B: Any, H: Any) -> ShardedArray:
        return ShardedArray([self.whole.sddmm(*each) for each in self._each(A, B, H)])

    def cells_value(self, cell: Cell, A: ShardedMatrix, B: Any, H: Any) -> Any:
        return _total([self.whole.cells_value(cell, *each) for each in self._each(A, B, H)])

    def cells_model(self, cell: Cell, A: ShardedMatrix, B: Any, H: Any) -> CellModel:
        models = [self.whole.cells_model(cell, *each) for each in self._each(A, B, H)]
        value, gradient, weights = self._joined(A, models)
        return CellModel(value, gradient, weights, ShardedArray([model.curvature for model in models]))

    def cells_hessp(self, A: ShardedMatrix, curvature: ShardedArray, S: Any, H: Any) -> Any:
        parts = [
            self.whole.cells_hessp(block, own, s, h)
            for (block, s, h), own in zip(self._each(A, S, H), curvature.blocks)
        ]
        return _total(parts) if A.transposed else ShardedArray(parts)

    def cells_sum(self, cell: Cell, A: ShardedMatrix, scores: Any, changes: Any, step: float) -> Any:
        parts = zip(self._sides(A), scores.blocks, changes.blocks)
        return _total([self.whole.cells_sum(cell, *each, step) for each in parts])

    def all_value(self, cell: Cell, A: ShardedMatrix, targets: Targets, weights: Weights, B: Any, H: Any) -> Any:
        calls = self._all(cell, A, targets, weights, B, H)
        return _total([self.whole.all_value(*fixed, b, h) for fixed, b, h in calls])

    def all_model(
        self, cell: Cell, A: ShardedMatrix, targets: Targets, weights: Weights, B: Any, H: Any
    ) -> CellModel:
        calls = self._all(cell, A, targets, weights, B, H)
        return CellModel(*self._joined(A, [self.whole.all_model(*fixed, b, h) for fixed, b, h in calls]), None)

    def all_hessp(
        self, cell: Cell, A: ShardedMatrix, targets: Targets, weights: Weights, B: Any, S: Any, H: Any
    ) -> Any:
        calls = self._all(cell, A, targets, weights, B, H)
        changes = _blocks(S, len(A.blocks))
        parts = [self.whole.all_hessp(*fixed, b, s, h) for (fixed, b, h), s in zip(calls, changes)]
        return _total(parts) if A.transposed else ShardedArray(parts)

    def topk(self, B: Any, H: Any, k: int, exclude: Any = None) -> tuple[Any, Any]:
        hidden = [None] * self.count if exclude is None else exclude.blocks
        blocks = B.blocks if isinstance(B, ShardedArray) else [B]
        best = [self.whole.topk(block, H, k, hide) for block, hide in zip(blocks, hidden)]
        return tuple(np.concatenate([self.whole.to_numpy(part) for part in parts]) for parts in zip(*best))  # type: ignore

    def best_in_rows(self, scores: Any, k: int) -> tuple[Any, Any]:
        return self.whole.best_in_rows(scores, k)

    def product_topk(self, A: Any, B: Any, k: int) -> tuple[Any, Any]:
        return self.whole.product_topk(A, B, k)

    def _cuts(self, n: int) -> list[tuple[int, int]]:
        bounds = np.unique(np.linspace(0, n, self.count + 1).astype(int)).tolist()
        return list(pairwise(bounds))

    def _sides(self, A: ShardedMatrix) -> list[Any]:
        """Return the blocks, transposed where A is."""
        return [self.whole.transpose(block) for block in A.blocks] if A.transposed else A.blocks

    def _each(self, A: ShardedMatrix, B: Any, H: Any) -> list[tuple[Any, Any, Any]]:
        """Return the block, the left and the right factor of each shard; the side of the rows lies in shards."""
        count = len(A.blocks)
        return list(zip(self._sides(A), _blocks(B, count), _blocks(H, count)))

    def _all(
        self, cell: Cell, A: ShardedMatrix, targets: Targets, weights: Weights, B: Any, H: Any
    ) -> list[tuple[tuple[Any, Any, Any, Any], Any, Any]]:
        """Return, for each shard, the fixed arguments of a sum over all cells and the two factors."""
        p, q = (_blocks(side, len(A.blocks)) for side in weights)
        each = zip(self._each(A, B, H), p, q)
        return [((cell, block, targets, (own_p, own_q)), b, h) for (block, b, h), own_p, own_q in each]

    def _joined(self, A: ShardedMatrix, models: Sequence[CellModel]) -> tuple[Any, Any, Any]:
        """Return the value, the gradient and the mean curvature of each row of A, from those of the shards."""
        value = _total([model.value for model in models])
        gradients, weights = [model.gradient for model in models], [model.weights for model in models]
        if not A.transposed:
            return value, ShardedArray(gradients), ShardedArray(weights)
        return value, _total(gradients), _total([share * each for share, each in zip(A.shares, weights)])
