"""Threads of this library and of BLAS, and work that is split among them."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import cache, partial
from itertools import pairwise, starmap
from numbers import Integral
from operator import itemgetter
from typing import Any, Protocol

from labelgap.runtime.progress import scope, set_variable

MAX_CELLS_PER_BLOCK = 1 << 22  # 32 MiB of float64
MEMORY_PER_CELL = 128  # a block and the arrays that are computed from it must be a small part of the memory

_n_threads: ContextVar[int | None] = ContextVar("labelgap_threads", default=None)
_memory_limit: ContextVar[int | None] = ContextVar("labelgap_memory", default=None)


class TaskRunner(Protocol):
    """Machines that run tasks: how many at a time, and the ``device`` that shares arrays among them."""

    size: int
    device: str

    def call(self, task: Callable[[], Any]) -> Any:
        """Return the result of a task that runs on one of the machines."""


_runner: ContextVar[TaskRunner | None] = ContextVar("labelgap_runner", default=None)


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def n_threads(n_jobs: int | None = None) -> int:
    """Return the number of threads for ``n_jobs``.

    None means that of the enclosing :func:`threads` block, or all cores outside of one; −1 means all cores, −2 all
    but one.

    >>> n_threads(3)
    3
    """
    if n_jobs is None:
        return _n_threads.get() or available_cores()
    if not isinstance(n_jobs, Integral) or n_jobs == 0:
        raise ValueError(f"n_jobs={n_jobs!r} has no meaning; pass a positive integer, or -1 for all cores.")
    return int(n_jobs) if n_jobs > 0 else max(1, available_cores() + 1 + n_jobs)


def get_memory_limit() -> int:
    """Return the bytes that large intermediate results may take: those of :func:`limit_memory`, or all there is."""
    return _memory_limit.get() or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def has_memory_limit() -> bool:
    """Return whether a block of :func:`limit_memory` limits the memory.

    >>> has_memory_limit()
    False
    """
    return _memory_limit.get() is not None


@contextmanager
def limit_memory(n_bytes: int | None) -> Iterator[None]:
    """Size blocks and intermediate results in the block for so many bytes; None sets no limit.

    >>> with limit_memory(1 << 30):
    ...     get_memory_limit()
    1073741824
    """
    with set_variable(_memory_limit, n_bytes):
        yield


# --- BLAS -----------------------------------------------------------------------------------------------------------


class _BlasLimit:
    """The number of BLAS threads, shared by overlapping blocks of several threads: the last block entered decides.

    No block gets more BLAS threads than there were before the first block: the user, or a pool of workers, chose that
    number. Setting a number takes longer than predicting a row, so it is not set again where it holds; some libraries
    have one for each thread.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all blocks and create an open lock."""
        self._lock = threading.Lock()
        self._requests: dict[object, int] = {}
        self._original: Any = None
        self._original_threads = 0
        self._current = 0
        self._in_thread = threading.local()

    def enter(self, n: int) -> object:
        token = object()
        with self._lock:
            if self._requests:
                self._set(n)
            else:
                self._original_threads = max(map(itemgetter("num_threads"), _blas_controller().info()), default=1)
                self._original = self._set(n, again=True)
            self._requests[token] = n
        return token

    def _set(self, n: int, *, again: bool = False) -> Any:
        limit = min(n, self._original_threads)
        if not again and limit == self._current == getattr(self._in_thread, "current", 0):
            return None
        self._current = self._in_thread.current = limit
        return _blas_controller().limit(limits=limit)

    def leave(self, token: object) -> None:
        with self._lock:
            del self._requests[token]
            if self._requests:
                self._set(list(self._requests.values())[-1])
            else:
                self._original.restore_original_limits()
                self._current = self._in_thread.current = 0


@cache
def _blas_controller() -> Any:
    """Return a controller of BLAS alone: OpenMP loops of other libraries keep their threads."""
    import scipy.linalg  # noqa: F401, a controller covers the libraries that are loaded when it is created
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


def prepare_threads() -> None:
    """Create the controller of BLAS threads; call it before the process starts threads that compute.

    The controller walks over all loaded libraries. A thread that does so while another one loads a library can wait
    for it forever.
    """
    _blas_controller()


_blas_limit = _BlasLimit()


@contextmanager
def threads(n_jobs: int | None) -> Iterator[int]:
    """Run the block with ``n_jobs`` threads, each of which calls BLAS on its own part of a product.

    BLAS itself gets one thread: its own threads wait for work in a busy loop and take the cores from ours.

    >>> with threads(1):
    ...     n_threads()
    1
    """
    count = n_threads(n_jobs)
    with set_variable(_n_threads, count), _limit_blas(1):
        yield count


@contextmanager
def multithreaded_blas() -> Iterator[None]:
    """Let BLAS use the current threads, for a large decomposition; at most as many as it had originally."""
    with _limit_blas(n_threads()):
        yield


@contextmanager
def _limit_blas(n: int) -> Iterator[None]:
    token = _blas_limit.enter(n)
    try:
        yield
    finally:
        _blas_limit.leave(token)


# --- work on several threads ----------------------------------------------------------------------------------------


def row_bounds(n_rows: int, cells_per_row: int, max_cells: int | None = None) -> list[int]:
    """Return the bounds of row blocks that have at most ``max_cells`` cells each, or one row.

    :func:`map_ranges` takes such bounds. The default of ``max_cells`` is :data:`MAX_CELLS_PER_BLOCK`; a memory limit
    makes blocks smaller.

    >>> row_bounds(5, 100, max_cells=200)
    [0, 2, 4, 5]
    """
    cells = min(max_cells or MAX_CELLS_PER_BLOCK, get_memory_limit() // MEMORY_PER_CELL)
    rows_per_block = cells // max(1, cells_per_row)
    return [*range(0, n_rows, max(1, rows_per_block)), n_rows]


def row_blocks(n_rows: int, cells_per_row: int, max_cells: int | None = None) -> Iterator[slice]:
    """Yield slices of rows that have at most ``max_cells`` cells each, or one row; see :func:`row_bounds`.

    >>> list(row_blocks(5, 100, max_cells=200))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return starmap(slice, pairwise(row_bounds(n_rows, cells_per_row, max_cells)))


@cache
def _pool(size: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(size, thread_name_prefix="labelgap")


if hasattr(os, "register_at_fork"):
    # A forked child inherits the executor without its threads, and perhaps a locked lock that nobody unlocks.
    os.register_at_fork(after_in_child=_pool.cache_clear)
    os.register_at_fork(after_in_child=_blas_limit.reset)


def map_ranges(work: Callable[[int, int], Any], bounds: Sequence[int]) -> list[Any]:
    """Call ``work(start, stop)`` for consecutive pairs of ``bounds`` on the current threads; return results in order.

    The calling thread works too, and waits only for ranges that other threads have begun, so that little work costs
    little more than on one thread. After an error no further range is begun.

    >>> map_ranges(lambda start, stop: stop - start, [0, 3, 5])
    [3, 2]
    """
    pairs = list(pairwise(bounds))
    n_helpers = min(n_threads(), len(pairs)) - 1
    if n_helpers < 1:
        return list(starmap(work, pairs))
    queue, results = deque(enumerate(pairs)), [None] * len(pairs)

    def work_off_queue() -> None:
        try:
            while True:
                try:
                    number, pair = queue.popleft()
                except IndexError:
                    return
                results[number] = work(*pair)
        except BaseException:
            queue.clear()
            raise

    pool = _pool(max(n_helpers, available_cores() - 1))  # shared by all concurrent calls
    helpers = [pool.submit(copy_context().run, work_off_queue) for _ in range(n_helpers)]
    try:
        work_off_queue()
    finally:
        begun = [helper for helper in helpers if not helper.cancel()]
        wait(begun)
    for helper in begun:
        helper.result()
    return results


@contextmanager
def offload(runner: TaskRunner | None) -> Iterator[None]:
    """Let :func:`call_elsewhere` in the block run its tasks on other machines."""
    with set_variable(_runner, runner):
        yield


def get_runner() -> TaskRunner | None:
    """Return the machines of the enclosing :func:`offload` block; None outside of one."""
    return _runner.get()


def call_elsewhere(task: Callable[[], Any]) -> Any:
    """Return the result of a large task, from a machine of :func:`offload`; outside of such a block, from this one.

    >>> call_elsewhere(lambda: 3)
    3
    """
    runner = get_runner()
    return task() if runner is None else runner.call(task)


def run_parallel(tasks: Sequence[Callable[[], Any]], at_once: int | None = None) -> Iterator[Any]:
    """Run large independent tasks, as many at a time as there are threads, and yield their results in order.

    Each task gets its share of the threads for its own loops, and its own :func:`~labelgap.runtime.scope`. A task
    that draws random numbers must have its own generator, so that results do not depend on the number of threads.
    After an error no further task is begun, nor while several results wait to be taken. ``at_once`` limits the tasks
    that run at a time on this machine, if each takes much memory. In a block of :func:`offload` there are as many at
    a time as other machines can run.

    >>> list(run_parallel([lambda: 1, lambda: 2]))
    [1, 2]
    """
    runner = get_runner()
    most = min(n_threads(), at_once or n_threads()) if runner is None else runner.size
    n_workers = max(1, min(most, len(tasks)))
    share = max(1, n_threads() // n_workers)

    def run(number: int, task: Callable[[], Any]) -> Any:
        with threads(share), scope(f"task {number}"):
            return task()

    if n_workers == 1:
        for number, task in enumerate(tasks):
            yield run(number, task)
        return
    calls = [partial(copy_context().run, run, number, task) for number, task in enumerate(tasks)]
    waiting: deque[Future] = deque()  # few, since results may be large and their consumer slow
    # Leaving the pool waits for the tasks that have begun: after an error none of them may still limit BLAS.
    with ThreadPoolExecutor(n_workers, thread_name_prefix="labelgap-task") as pool:
        try:
            for call in calls:
                waiting.append(pool.submit(call))
                if len(waiting) == 2 * n_workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
