"""Threads: ours, those of BLAS, work that is shared among them, and the place in it."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import cache, partial
from itertools import pairwise, starmap
from numbers import Integral
from operator import itemgetter
from typing import Any

_place: ContextVar[tuple[str, ...]] = ContextVar("labelgap_place", default=())


@contextmanager
def set_within(variable: ContextVar, value: Any) -> Iterator[None]:
    """Give a variable a value for a block."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def place() -> tuple[str, ...]:
    """Return where in the work we are: the names of the blocks around, the outermost first."""
    return _place.get()


@contextmanager
def within(name: str) -> Iterator[None]:
    """Name a part of the work, so that what is kept of it is not taken for that of another.

    >>> with within("fold 3"), within("LEML"):
    ...     place()
    ('fold 3', 'LEML')
    """
    with set_within(_place, (*_place.get(), name)):
        yield


_n_threads: ContextVar[int | None] = ContextVar("labelgap_threads", default=None)


def available_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def n_threads(n_jobs: int | None = None) -> int:
    """Return the number of threads that ``n_jobs`` asks for.

    ``None`` is the enclosing :func:`threads` block, or all cores outside one; ``-1`` all cores, ``-2`` all but one.

    >>> n_threads(3)
    3
    """
    if n_jobs is None:
        return _n_threads.get() or available_cores()
    if not isinstance(n_jobs, Integral) or n_jobs == 0:
        raise ValueError(f"n_jobs={n_jobs!r} has no meaning; pass a positive integer, or -1 for all cores.")
    return int(n_jobs) if n_jobs > 0 else max(1, available_cores() + 1 + n_jobs)


class _BlasLimit:
    """The number of BLAS threads, shared by overlapping blocks of several threads: the last to enter decides.

    No block has more of them than BLAS had before the first was entered: the user, or a pool of workers, chose that.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget every block, and make a lock that nobody holds."""
        self._lock = threading.Lock()
        self._wanted: dict[object, int] = {}
        self._original: Any = None
        self._most = 0

    def enter(self, n: int) -> object:
        token = object()
        with self._lock:
            if not self._wanted:
                self._most = max(map(itemgetter("num_threads"), _controller().info()), default=1)
            limit = _controller().limit(limits=min(n, self._most))
            if not self._wanted:
                self._original = limit
            self._wanted[token] = n
        return token

    def leave(self, token: object) -> None:
        with self._lock:
            del self._wanted[token]
            if self._wanted:
                _controller().limit(limits=min(list(self._wanted.values())[-1], self._most))
            else:
                self._original.restore_original_limits()


@cache
def _controller() -> Any:
    """Return a controller of BLAS alone: loops of other libraries that run on OpenMP keep their threads."""
    import scipy.linalg  # noqa: F401, a controller knows the libraries that are loaded when it is made
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


_blas_limit = _BlasLimit()


@contextmanager
def threads(n_jobs: int | None) -> Iterator[int]:
    """Run the block with ``n_jobs`` threads of ours; each of them calls BLAS on its own part of a product.

    BLAS itself gets one thread: its own wait for work in a busy loop and would take the cores from ours.

    >>> with threads(1):
    ...     n_threads()
    1
    """
    wanted = n_threads(n_jobs)
    with set_within(_n_threads, wanted), _blas(1):
        yield wanted


@contextmanager
def wide_blas() -> Iterator[None]:
    """Let BLAS use the current threads, for one large decomposition; no more than it was found with."""
    with _blas(n_threads()):
        yield


@contextmanager
def _blas(n: int) -> Iterator[None]:
    token = _blas_limit.enter(n)
    try:
        yield
    finally:
        _blas_limit.leave(token)


@cache
def _pool(size: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(size, thread_name_prefix="labelgap")


if hasattr(os, "register_at_fork"):
    # A forked child inherits the executor but none of its threads, and perhaps a lock that nobody will open.
    os.register_at_fork(after_in_child=_pool.cache_clear)
    os.register_at_fork(after_in_child=_blas_limit.reset)


def in_ranges(work: Callable[[int, int], Any], bounds: Sequence[int]) -> list[Any]:
    """Call ``work(start, stop)`` for each consecutive pair of ``bounds`` on the current threads; results in order.

    The calling thread works too. It waits for others only where they have begun, so that small pieces of work cost
    little more than on one thread. After an error, pieces that nobody has begun are left.

    >>> in_ranges(lambda start, stop: stop - start, [0, 3, 5])
    [3, 2]
    """
    pairs = list(pairwise(bounds))
    others = min(n_threads(), len(pairs)) - 1
    if others < 1:
        return list(starmap(work, pairs))
    left, results = deque(enumerate(pairs)), [None] * len(pairs)

    def take() -> None:
        try:
            while (piece := _pop(left)) is not None:
                results[piece[0]] = work(*piece[1])
        except BaseException:
            left.clear()
            raise

    pool = _pool(max(others, available_cores() - 1))  # one for all who share work at the same time
    helpers = [pool.submit(copy_context().run, take) for _ in range(others)]
    try:
        take()
    finally:
        begun = [helper for helper in helpers if not helper.cancel()]
        wait(begun)
    for helper in begun:
        helper.result()
    return results


def _pop(left: deque[Any]) -> Any:
    """Return the first of what is left, or None: others take from it too."""
    try:
        return left.popleft()
    except IndexError:
        return None


def in_parallel(tasks: Sequence[Callable[[], Any]]) -> Iterator[Any]:
    """Call large independent tasks, as many at a time as there are threads, and yield their results in order.

    Each has its share of the threads for its own loops, and a place of its own. A task that draws random numbers
    brings its own generator, so that the results are the same for any number of threads. After an error those that
    wait are not begun.

    >>> list(in_parallel([lambda: 1, lambda: 2]))
    [1, 2]
    """
    workers = max(1, min(n_threads(), len(tasks)))
    share = n_threads() // workers

    def run(number: int, task: Callable[[], Any]) -> Any:
        with threads(share), within(f"task {number}"):
            return task()

    if workers == 1:
        for number, task in enumerate(tasks):
            yield run(number, task)
        return
    calls = [partial(copy_context().run, run, number, task) for number, task in enumerate(tasks)]
    # Left only when the tasks that were begun have ended: none may hold on to a limit of BLAS after an error.
    with ThreadPoolExecutor(workers, thread_name_prefix="labelgap-task") as pool:
        yield from pool.map(lambda call: call(), calls)
