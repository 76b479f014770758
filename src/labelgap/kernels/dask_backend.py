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
from functools import cached_property, partial
from typing import Any

import array_api_compat.numpy as np_api
import numpy as np

from labelgap.kernels import base, cpu
from labelgap.kernels.base import CellModel, LostArrays
from labelgap.kernels.mapped import LARGE_SHARE, make_empty, slice_rows, split_rows_evenly
from labelgap.kernels.row_shards import RowShards, get_client, make_key, watch_losses
from labelgap.kernels.shards import ShardedArray, ShardedBackend, ShardedGraph, ShardedMatrix
from labelgap.runtime import get_runner, import_optional

MAX_TASK_BYTES = 1 << 16  # larger arguments travel from worker to worker instead of through the scheduler
GATHERING = ("concat", "stack")  # functions of arrays on several workers, whose results are small


class Cluster:
    """The workers of a Dask client, by number, and how calls and arrays get there."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.workers = sorted(client.scheduler_info(n_workers=-1)["workers"])
        if not self.workers:
            raise ValueError("The Dask cluster has no workers; start at least one.")

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
            return SharedArray(self.client.scatter(value, broadcast=True, hash=False), value)

    @cached_property
    def piece_bytes(self) -> int:
        """The most bytes of an array that workers hold beside their rows: longer ones reach them in pieces."""
        workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        return min((worker["memory_limit"] or sys.maxsize) for worker in workers) // LARGE_SHARE

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
        """Return A B; an array over features or labels that is too large for a worker travels in pieces."""
        if not isinstance(A, ShardedMatrix):
            return super().spmm(A, B)
        width, itemsize = B.shape[1], np.dtype(B.dtype).itemsize
        length = A.shape[0] if A.transposed else A.shape[1]
        n_pieces = -(-length * width * itemsize // self.cluster.piece_bytes)
        if n_pieces <= 1:
            return super().spmm(A, B)
        bounds = split_rows_evenly(length, n_pieces)
        if A.transposed:
            out = make_empty((length, width), B.dtype)
            for start, stop in bounds:
                pairs = zip(A.blocks, B.blocks)
                parts = [part.call(_multiply_piece_t, block.array, part, start, stop) for block, part in pairs]
                out[start:stop] = parts[0].add_up(parts)
            return out
        sums: list[Any] = [None] * len(A.blocks)
        for start, stop in bounds:
            piece = self.cluster.share(np.ascontiguousarray(B[start:stop]))
            pairs = zip(A.blocks, sums)
            sums = [block.array.call(_add_piece, block, piece, start, total) for block, total in pairs]
            import_optional("distributed", "dask").wait([part.future for part in sums])  # the piece can go
        return ShardedArray(sums)

    def _adopt(self, shards: RowShards, dtype: Any) -> list[Any]:
        """Return rows that are on workers as they are; all further rows are split and placed like them."""
        self._row_bounds = shards.bounds
        return self.on_shards.adopt(shards, dtype)

    def _bounds(self, n: int) -> list[tuple[int, int]]:
        known = self._row_bounds
        return known if known and known[-1][1] == n else super()._bounds(n)

    def _spread(self, A: ShardedMatrix, value: Any) -> list[Any]:
        return super()._spread(A, self.cluster.share(value))


def _add_piece(A: Any, B: Any, start: int, total: Any) -> Any:
    """Return total + A[:, start : start + len(B)] B, on a worker."""
    product = cpu.spmm(cpu.prepare(A.matrix()[:, start : start + len(B)], B.dtype), B)
    return product if total is None else total + product


def _multiply_piece_t(A: Any, B: Any, start: int, stop: int) -> Any:
    """Return rows of Aᵀ B, on a worker."""
    return cpu.spmm(cpu.prepare(slice_rows(A.T.matrix(), start, stop), B.dtype), B)
