"""The backend of a Dask cluster: shards of rows on the workers, arrays over features and labels on the client.

Every function of a shard is a task that calls the CPU backend on the worker that holds the shard. A product with all
rows sends one array over features or labels to each worker, and a tree of sums over the workers brings one back.
Tasks are deterministic and know their inputs, so Dask computes again what a dead worker held. Arrays that the client
has sent to all workers are gone with their last copy: then :class:`LostArrays` asks for the alternation again.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial, reduce
from typing import Any, NamedTuple

import array_api_compat.numpy as np_api
import numpy as np

from labelgap.kernels import base, cpu
from labelgap.kernels.base import CellLoss, CellModel, LostArrays
from labelgap.kernels.mapped import LARGE_SHARE, slice_rows, split_rows_evenly
from labelgap.kernels.row_shards import RowShards, get_client, make_key, scatter, watch_losses
from labelgap.kernels.shards import ShardedArray, ShardedBackend, ShardedGraph, ShardedMatrix
from labelgap.runtime import get_runner, import_optional

MAX_TASK_BYTES = 1 << 16  # larger arguments travel from worker to worker instead of through the scheduler
GATHERING = ("concat", "stack")  # functions of arrays on several workers, whose results are small


class Cluster:
    """The workers of a Dask client, by number, and how calls and arrays get there."""

    def __init__(self, client: Any) -> None:
        self.client, self.width = client, 1  # the most columns of an array over features or labels
        workers = client.scheduler_info(n_workers=-1)["workers"]
        if not workers:
            raise ValueError("The Dask cluster has no workers; start at least one.")
        self.workers = sorted(workers)
        # Now, because all workers may be gone for a moment later.
        self._memory = min(info["memory_limit"] or sys.maxsize for info in workers.values())

    def call(self, place: int, function: Callable, *arguments: Any, **options: Any) -> RemoteArray:
        """Call a function on the worker of a shard; arguments on workers are passed as they are there."""
        values = [_get_future(argument) for argument in arguments]
        named = {name: _get_future(value) for name, value in options.items()}
        worker = self.workers[place % len(self.workers)]
        with self.watch_losses():
            future = self.client.submit(
                partial(function, **named) if named else function,
                *values,
                workers=[worker],
                allow_other_workers=True,  # if it dies
                key=make_key(getattr(function, "__name__", type(function).__name__).strip("_")),
            )
        return RemoteArray(self, place, future)

    def share(self, value: Any) -> Any:
        """Send an array to all workers, once for all tasks that use it."""
        if not isinstance(value, np.ndarray) or value.nbytes <= MAX_TASK_BYTES:
            return value
        with self.watch_losses():
            return SharedArray(scatter(self.client, value), value)

    @property
    def piece_bytes(self) -> int:
        """The most bytes of an array that workers hold beside their rows: longer ones reach them in pieces."""
        return self._memory // LARGE_SHARE

    @contextmanager
    def watch_losses(self) -> Iterator[None]:
        """Raise LostArrays for an error that a dead worker explains; new workers take the place of dead ones."""
        try:
            with watch_losses(self.client):
                yield
        except LostArrays:
            alive = set(self.client.scheduler_info(n_workers=-1)["workers"])
            new = sorted(alive.difference(self.workers))
            self.workers = [name if name in alive or not new else new.pop() for name in self.workers]
            runner: Any = get_runner()
            if hasattr(runner, "n_repeated"):
                runner.n_repeated += 1
            raise


def _get_future(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return type(value)(map(_get_future, value))
    return value.future if isinstance(value, RemoteArray | RemoteMatrix | SharedArray) else value


class SharedArray:
    """An array of the client that all workers have."""

    def __init__(self, future: Any, value: Any) -> None:
        self.future, self.shape, self.dtype = future, value.shape, value.dtype


class RemoteMatrix:
    """A sparse matrix that the CPU backend of a worker has prepared."""

    def __init__(self, array: RemoteArray, shape: tuple[int, int], nnz: int) -> None:
        self.array, self.future, self.shape, self.nnz = array, array.future, shape, nnz

    @cached_property
    def T(self) -> RemoteMatrix:
        """The transpose, computed once."""
        array = self.array
        return RemoteMatrix(array.cluster.call(array.place, cpu.transpose, array), self.shape[::-1], self.nnz)


class RemoteArray:
    """A NumPy array on a worker; arithmetic with it happens there."""

    __array_ufunc__ = None  # NumPy arrays then use our operators

    def __init__(self, cluster: Cluster, place: int, future: Any) -> None:
        self.cluster, self.place, self.future = cluster, place, future

    def call(self, function: Callable, *arguments: Any, **options: Any) -> RemoteArray:
        """Call a function on the worker of this array."""
        return self.cluster.call(self.place, function, *arguments, **options)

    def part(self, number: int) -> RemoteArray:
        """Return one of several results of a task."""
        return self.call(operator.itemgetter(number), self)

    @cached_property
    def _form(self) -> tuple[tuple[int, ...], Any]:
        return self.call(_describe, self).result()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape, once the array is computed."""
        return self._form[0]

    @property
    def dtype(self) -> Any:
        """The type of the values, once the array is computed."""
        return self._form[1]

    @property
    def T(self) -> _RemoteTranspose:
        """The transpose, for products on the worker."""
        return _RemoteTranspose(self)

    def result(self) -> Any:
        """Return the array on the client."""
        with self.cluster.watch_losses():
            return self.future.result()

    def add_up(self, parts: Sequence[RemoteArray]) -> Any:
        """Return the sum of arrays on the client; pairs of them are added on the workers first."""
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2])
            parts = [a.call(operator.add, a, b) for a, b in pairs] + list(parts[len(parts) // 2 * 2 :])
        return parts[0].result()

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        return _RemoteNamespace()

    def __matmul__(self, other: Any) -> RemoteArray:
        return self.call(base.matmul, self, other)

    def __neg__(self) -> RemoteArray:
        return self.call(operator.neg, self)


def _describe(array: Any) -> tuple[tuple[int, ...], Any]:
    return np.shape(array), np.asarray(array).dtype


def _reverse(function: Callable, a: Any, b: Any) -> Any:
    return function(b, a)


def _add_operators() -> None:
    names = ("add", "sub", "mul", "truediv", "gt", "lt", "ge", "le", "eq", "ne", "and_", "getitem")
    for name in names:
        plain = getattr(operator, name)
        setattr(RemoteArray, f"__{name.rstrip('_')}__", lambda self, other, f=plain: self.call(f, self, other))
    for name in ("add", "sub", "mul", "truediv"):
        plain = partial(_reverse, getattr(operator, name))
        setattr(RemoteArray, f"__r{name}__", lambda self, other, f=plain: self.call(f, self, other))
    setattr(RemoteArray, "__hash__", object.__hash__)  # noqa: B010 - a class with __eq__ has none


_add_operators()


class _RemoteTranspose:
    def __init__(self, array: RemoteArray) -> None:
        self.array = array

    def __matmul__(self, other: Any) -> RemoteArray:
        return self.array.call(base.matmul_t, self.array, other)


class _RemoteNamespace:
    """The array API for arrays on workers; functions of NumPy arrays alone run here."""

    def __init__(self, functions: Any = np_api) -> None:
        self.functions = functions

    @property
    def linalg(self) -> _RemoteLinalg:
        return _RemoteLinalg()

    def __getattr__(self, name: str) -> Any:
        function = getattr(self.functions, name)
        if not callable(function) or isinstance(function, type):
            return function

        def call(*arguments: Any, **options: Any) -> Any:
            first = next((value for value in arguments if isinstance(value, RemoteArray)), None)
            if first is not None:
                return first.call(function, *arguments, **options)
            if name in GATHERING and isinstance(arguments[0][0], RemoteArray):
                return _join(function, arguments[0], options)
            return function(*arguments, **options)

        return call


def _join(function: Callable, arrays: Sequence[Any], options: dict[str, Any]) -> Any:
    """Join columns on one worker, and small arrays of several workers on the client."""
    places = {array.place for array in arrays if isinstance(array, RemoteArray)}
    first = arrays[0]
    if len(places) == 1 and options.get("axis") == 1:
        return first.call(_call_with_list, function, options, *arrays)
    return function([array.result() if isinstance(array, RemoteArray) else array for array in arrays], **options)


def _call_with_list(function: Callable, options: dict[str, Any], *arrays: Any) -> Any:
    return function(list(arrays), **options)


class _RemoteLinalg:
    def qr(self, array: RemoteArray) -> tuple[RemoteArray, RemoteArray]:
        """Return Q and R of an array on a worker."""
        both = array.call(base.qr, array)
        return both.part(0), both.part(1)


class WorkerBackend:
    """The functions of a backend for shards on workers: each call is a task where its first array is."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.places: Sequence[int] = range(len(cluster.workers))
        self._next_place = 0

    def __getattr__(self, name: str) -> Any:
        function = getattr(cpu, name)
        return lambda *arguments: self._call(function, *arguments)

    def _call(self, function: Callable, *arguments: Any) -> RemoteArray:
        arrays = [getattr(value, "array", value) for value in arguments]
        place = next(value.place for value in arrays if isinstance(value, RemoteArray))
        return self.cluster.call(place, function, *arguments)

    def place_shards(self) -> None:
        """Start with the first worker again: the shards of each matrix are placed in the same order."""
        self._next_place = 0

    def _place(self, function: Callable, *arguments: Any) -> RemoteArray:
        place, self._next_place = self.places[self._next_place % len(self.places)], self._next_place + 1
        # The scheduler keeps the rows that it sends, to give them to another worker if this one dies.
        with import_optional("dask", "dask").config.set({"distributed.admin.large-graph-warning-threshold": "1TiB"}):
            return self.cluster.call(place, function, *arguments)

    def adopt(self, shards: RowShards, dtype: Any) -> list[Any]:
        """Return the blocks of rows, prepared on the workers that have them, where all shards are placed from now."""
        numbers = {worker: number for number, worker in enumerate(self.cluster.workers)}
        self.places = [numbers.get(name, i) for i, name in enumerate(shards.find_workers())]
        self.place_shards()
        if not shards.sparse:
            return [self._place(cpu.array, block, dtype) for block in shards.blocks]
        prepared = [self._place(cpu.prepare, block, dtype) for block in shards.blocks]
        return [RemoteMatrix(array, fact.shape, fact.nnz) for array, fact in zip(prepared, shards.facts)]

    def rows(self, values: Any, dtype: Any) -> RemoteArray:
        return self._place(cpu.array, values, dtype)

    def prepare(self, matrix: Any, dtype: Any) -> RemoteMatrix:
        return RemoteMatrix(self._place(cpu.prepare, matrix, dtype), matrix.shape, matrix.nnz)

    def array(self, values: Any, dtype: Any) -> Any:
        return self._call(cpu.array, values, dtype)

    def transpose(self, A: RemoteMatrix) -> RemoteMatrix:
        return A.T

    def coarse(self, B: Any) -> Any:
        return B

    compact = coarse

    def to_numpy(self, array: Any) -> Any:
        return array.result() if isinstance(array, RemoteArray) else array

    def cells_model(self, *arguments: Any) -> CellModel:
        return self._split_model(self._call(cpu.cells_model, *arguments))

    def all_model(self, *arguments: Any) -> CellModel:
        return self._split_model(self._call(cpu.all_model, *arguments))

    def _split_model(self, model: RemoteArray) -> CellModel:
        value, *arrays = (model.part(number) for number in range(4))
        return CellModel(value, *arrays)  # type: ignore[arg-type]  # add_up brings the value to the client

    def topk(self, B: RemoteArray, H: Any, k: int, exclude: Any = None) -> tuple[RemoteArray, RemoteArray]:
        both = self._call(cpu.topk, B, H, k, exclude)
        return both.part(0), both.part(1)


class DaskBackend(ShardedBackend):
    """Backend that keeps a shard of the rows on each worker of a Dask cluster.

    Parameters
    ----------
    client : dask.distributed.Client, optional
        The client; by default the current one.
    """

    loses_arrays = True

    def __init__(self, client: Any = None) -> None:
        self.cluster = Cluster(get_client("device='dask' needs a Dask client") if client is None else client)
        self._row_bounds: list[tuple[int, int]] = []
        super().__init__(base.get_backend("cpu"), len(self.cluster.workers))
        self.on_shards: Any = WorkerBackend(self.cluster)

    def rows(self, values: Any, dtype: Any) -> ShardedArray:
        if isinstance(values, RowShards):
            return ShardedArray(self._adopt(values, dtype))
        self.on_shards.place_shards()
        return super().rows(values, dtype)

    def prepare(self, matrix: Any, dtype: Any) -> ShardedMatrix:
        if isinstance(matrix, RowShards):
            return ShardedMatrix(self._adopt(matrix, dtype), matrix, dtype)
        self.on_shards.place_shards()
        return super().prepare(matrix, dtype)

    def settle(self, array: Any) -> Any:
        """Return rows that the client has sent, so that Dask can compute what follows without all that made them."""
        if not isinstance(array, ShardedArray):
            return array
        values = self.to_numpy(array)
        return self.rows(values, values.dtype)

    def prepare_graph(self, matrix: Any, dtype: Any) -> ShardedGraph:
        self.on_shards.place_shards()  # each block where the rows are that it multiplies
        return super().prepare_graph(matrix, dtype)

    def matmul(self, A: Any, B: Any) -> Any:
        """Return A B; B reaches all workers at once."""
        return super().matmul(A, self.cluster.share(B) if isinstance(A, ShardedArray) else B)

    def spmm(self, A: Any, B: Any) -> Any:
        if not isinstance(A, ShardedMatrix):
            return super().spmm(A, B)
        return _join_rows(A, self._in_pieces(A, super().spmm, B))

    def sddmm(self, A: ShardedMatrix, B: Any, H: Any) -> Any:
        return CellPieces(self._in_pieces(A, super().sddmm, B, H))

    def cells_value(self, loss: CellLoss, A: ShardedMatrix, B: Any, H: Any) -> Any:
        return sum(self._in_pieces(A, partial(super().cells_value, loss), B, H))

    def cells_sum(self, loss: CellLoss, A: ShardedMatrix, scores: Any, changes: Any, step: float) -> Any:
        add_up = super().cells_sum
        return sum(self._in_pieces(A, lambda part, own, by: add_up(loss, part, own, by, step), scores, changes))

    def cells_model(self, loss: CellLoss, A: ShardedMatrix, B: Any, H: Any) -> CellModel:
        values, gradients, means, cells = zip(*self._in_pieces(A, partial(super().cells_model, loss), B, H))
        if not A.transposed and len(means) > 1:
            means = tuple(share * mean for share, mean in zip(_get_shares(A.shape[1], len(means)), means))
        return CellModel(sum(values), _join_rows(A, gradients), _join_rows(A, means), CellPieces(cells))

    def cells_hessp(self, A: ShardedMatrix, curvature: Any, S: Any, H: Any) -> Any:
        return _join_rows(A, self._in_pieces(A, super().cells_hessp, curvature, S, H))

    def cells_diagonal(self, A: ShardedMatrix, curvature: Any, H: Any) -> Any:
        return _join_rows(A, self._in_pieces(A, super().cells_diagonal, curvature, H))

    def column_sums(self, A: ShardedMatrix, values: Any) -> Any:
        parts = self._in_pieces(A, super().column_sums, values)
        return reduce(operator.add, parts) if A.transposed else _concatenate(parts)

    def _in_pieces(self, A: ShardedMatrix, work: Callable[..., Any], *arrays: Any) -> list[Any]:
        """Return ``work(part of A, *parts of arrays)`` for ranges of features or labels, one after the other.

        Arrays over rows are not cut. There is one range unless an array over features or labels takes too much of a
        worker's memory; numbers of cells have the ranges that they were computed in.
        """
        length = A.shape[0] if A.transposed else A.shape[1]
        n_ranges = self._count_ranges(length, np.dtype(A.dtype).itemsize, arrays)
        if n_ranges == 1:
            return [work(A, *(array.parts[0] if isinstance(array, CellPieces) else array for array in arrays))]
        results = []
        for number, (start, stop) in enumerate(split_rows_evenly(length, n_ranges)):
            cut = [_cut_array(array, number, slice(start, stop)) for array in arrays]
            results.append(work(_cut_columns(A, start, stop), *cut))
            import_optional("distributed", "dask").wait(_find_futures(results[-1]))  # the part of an array can go
        return results

    def _count_ranges(self, length: int, itemsize: int, arrays: Sequence[Any]) -> int:
        if isinstance(arrays[0], CellPieces):
            return len(arrays[0].parts)
        tall = [array.shape[1] for array in arrays if isinstance(array, np.ndarray)]
        # Products of rows have as many columns as the arrays that were sent.
        self.cluster.width = max([self.cluster.width, *tall])
        return max(1, min(length, -(-length * self.cluster.width * itemsize // self.cluster.piece_bytes)))

    def _adopt(self, shards: RowShards, dtype: Any) -> list[Any]:
        """Return rows that are on workers as they are; all further rows are split and placed like them."""
        self._row_bounds = shards.bounds
        return self.on_shards.adopt(shards, dtype)

    def _bounds(self, n: int) -> list[tuple[int, int]]:
        known = self._row_bounds
        return known if known and known[-1][1] == n else super()._bounds(n)

    def _spread(self, A: ShardedMatrix, value: Any) -> list[Any]:
        return super()._spread(A, self.cluster.share(value))


class CellPieces:
    """Numbers of the stored cells, for each range of columns."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = list(parts)


def _cut_array(array: Any, number: int, rows: slice) -> Any:
    """Return the part of an array over features or labels, or of numbers of cells; rows as they are."""
    if isinstance(array, CellPieces):
        return array.parts[number]
    return np.ascontiguousarray(array[rows]) if isinstance(array, np.ndarray) else array


def _join_rows(A: ShardedMatrix, parts: Sequence[Any]) -> Any:
    """Return arrays over A's rows as one: they are ranges of them if A is transposed, else their sum is."""
    return _concatenate(parts) if A.transposed else reduce(operator.add, parts)


def _concatenate(parts: Sequence[Any]) -> Any:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _get_shares(length: int, n_ranges: int) -> list[float]:
    return [(stop - start) / length for start, stop in split_rows_evenly(length, n_ranges)]


def _find_futures(result: Any) -> list[Any]:
    if isinstance(result, tuple):
        return [future for part in result for future in _find_futures(part)]
    return [block.future for block in result.blocks] if isinstance(result, ShardedArray) else []


class _Shape(NamedTuple):
    shape: tuple[int, int]


def _cut_columns(A: ShardedMatrix, start: int, stop: int) -> ShardedMatrix:
    """Return a range of columns of sharded rows, in A's orientation."""
    n, blocks = A.rows.shape[0], []
    for block in A.blocks:
        cut = block.array.call(_cut_block, block.array, start, stop)
        blocks.append(RemoteMatrix(cut, (block.shape[0], stop - start), block.nnz))
    return ShardedMatrix(blocks, _Shape((n, stop - start)), A.dtype, transposed=A.transposed)


def _cut_block(A: Any, start: int, stop: int) -> Any:
    """Return a range of columns, on a worker; its transpose shares the memory of A's."""
    rows = cpu.prepare(slice_rows(A.T.matrix(), start, stop), A.data.dtype)
    cut = cpu.prepare(rows.T.matrix(), A.data.dtype)
    cut.__dict__["T"] = rows
    return cut
