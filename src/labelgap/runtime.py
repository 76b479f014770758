"""Threads, progress, whole files, optional packages: what every room above needs and none of them owns.

One setting decides how many threads work: :func:`threads`. Our compiled kernels release the GIL and run in
row ranges on a shared pool; BLAS is limited to the same number. The two alternate, they never nest.
"""

from __future__ import annotations

import importlib
import os
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from itertools import count, pairwise
from numbers import Integral
from pathlib import Path
from types import ModuleType
from typing import IO, Any

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
                self._most = max((lib["num_threads"] for lib in _controller().info()), default=1)
            limit = _limit(min(n, self._most))
            if not self._wanted:
                self._original = limit
            self._wanted[token] = n
        return token

    def leave(self, token: object) -> None:
        with self._lock:
            del self._wanted[token]
            if self._wanted:
                _limit(min(list(self._wanted.values())[-1], self._most))
            else:
                self._original.restore_original_limits()


def _limit(n: int) -> Any:
    return _controller().limit(limits=n)


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
    token = _n_threads.set(wanted)
    try:
        with _blas(1):
            yield wanted
    finally:
        _n_threads.reset(token)


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

    >>> in_ranges(lambda start, stop: stop - start, [0, 3, 5])
    [3, 2]
    """
    pairs = list(pairwise(bounds))
    size = n_threads()
    if size == 1 or len(pairs) == 1:
        return [work(start, stop) for start, stop in pairs]
    return list(_pool(size).map(lambda pair: work(*pair), pairs))


def in_parallel(tasks: Sequence[Callable[[], Any]]) -> Iterator[Any]:
    """Call large independent tasks, as many at a time as there are threads, and yield their results in order.

    Each has its share of the threads for its own loops. A task that draws random numbers brings its own generator, so
    that the results are the same for any number of threads. After an error those that wait are not begun.

    >>> list(in_parallel([lambda: 1, lambda: 2]))
    [1, 2]
    """
    workers = max(1, min(n_threads(), len(tasks)))
    share = n_threads() // workers

    def run(task: Callable[[], Any]) -> Any:
        with threads(share):
            return task()

    if workers == 1:
        yield from map(run, tasks)
        return
    # Left only when the tasks that were begun have ended: none may hold on to a limit of BLAS after an error.
    with ThreadPoolExecutor(workers, thread_name_prefix="labelgap-task") as pool:
        yield from pool.map(run, tasks)


@contextmanager
def written_whole(path: str | os.PathLike) -> Iterator[IO[bytes]]:
    """Open a binary file to write that takes its name only when the block succeeds; a failure leaves nothing behind.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with written_whole(Path(folder) / "a") as stream:
    ...         _ = stream.write(b"text")
    ...     (Path(folder) / "a").read_text()
    'text'
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {path.parent} to write {path.name} into; create it first.")
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        with open(partial, "xb") as stream:
            yield stream
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def optional(package: str, extra: str) -> ModuleType:
    """Import an optional package, or say which extra brings it.

    >>> optional("json", "dev").__name__
    'json'
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ImportError(
            f"{package} is needed here and not installed; install it with `pip install labelgap[{extra}]`."
        ) from error


@contextmanager
def progress(total: int | None, title: str, verbose: int) -> Iterator[Callable[[str], None]]:
    """Show how far a long task is: nothing at 0, a bar at 1, a line for each step from 2 on.

    >>> with progress(2, "Work", verbose=2) as advance:
    ...     advance("first")
    ...     advance("second")
    Work 1/2: first
    Work 2/2: second

    ``total`` is None where nobody knows how many steps there will be.
    """
    if verbose <= 0:
        yield lambda message: None
        return
    if verbose > 1:
        counter, of = count(1), "" if total is None else f"/{total}"
        yield lambda message: print(f"{title} {next(counter)}{of}: {message}")
        return
    from rich.progress import Progress

    with Progress(transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda message: bar.update(task, advance=1, description=f"{title}: {message}")
