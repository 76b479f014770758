"""The same models on a Dask cluster: :func:`connect` gives the work of a block to its workers.

LEML and OneClassMF keep a shard of the rows on each worker (``kernels/dask_backend.py``). Other work of independent
pieces sends each piece to a worker: the learners and clusters of SLEEC and LocalLEML, blocks of labels of one-vs-all,
trees, candidates of a search, folds of an audit, blocks of rows to predict.
"""

from __future__ import annotations

import asyncio
import io
import pickle
import socket
import statistics
import threading
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import numpy as np

from labelgap import __version__
from labelgap.kernels.base import LostArrays, repeat_when_lost
from labelgap.kernels.dask_backend import MAX_TASK_BYTES, Cluster
from labelgap.kernels.row_shards import KEY_PREFIX, make_key, scatter, watch_losses
from labelgap.runtime import get_memory_limit, has_memory_limit, import_optional, limit_memory, offload, threads

CONNECT_SECONDS = 5.0
REACH_SECONDS = 1.0
STRAGGLER_RATIO = 2.0  # of a worker's seconds to those that its tasks take on the median worker

__all__ = ["DaskRunner", "connect"]


@contextmanager
def connect(client: Any) -> Iterator[DaskRunner]:
    """Let the workers of a Dask cluster do the work of the block; the results are those of one machine.

    Parameters
    ----------
    client : str or dask.distributed.Client
        The address of a scheduler, such as "tcp://10.0.0.1:8786", or a client.

    Yields
    ------
    runner : DaskRunner
        Its ``summarize`` tells what happened on the cluster.

    Raises
    ------
    ConnectionError
        If nothing answers at the address, or the cluster has no workers.
    ValueError
        If the scheduler or a worker has no labelgap, or another version of it.

    Examples
    --------
    >>> import labelgap
    >>> from dask.distributed import Client
    >>> options = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    >>> with Client(**options) as client, connect(client) as runner:
    ...     model = labelgap.BinaryRelevance().fit([[1.0], [0.0]], [[1], [0]])
    ...     runner.size
    1
    """
    if not isinstance(client, str):
        with _use(client) as runner:
            yield runner
        return
    with _open_client(client) as opened, _use(opened) as runner:
        yield runner


def _open_client(address: str) -> Any:
    distributed = import_optional("distributed", "dask")
    try:
        if urlsplit(address).scheme in ("", "tcp"):
            with ThreadPoolExecutor(1) as thread:  # the caller may run in an event loop
                thread.submit(asyncio.run, _shake_hands(address)).result()
        client = distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
        client.direct_to_workers = all(map(_can_reach, client.scheduler_info(n_workers=-1)["workers"]))
        return client
    except (OSError, TypeError, ValueError, OverflowError, MemoryError) as error:
        raise ConnectionError(
            f"No Dask scheduler answers at {address} ({type(error).__name__}); check the address, which looks like "
            "tcp://HOST:8786."
        ) from None


async def _shake_hands(address: str) -> None:
    """Connect to a scheduler; raise an error if it does not answer, for which a client would wait forever."""
    connecting = import_optional("distributed", "dask").comm.connect(address, timeout=CONNECT_SECONDS)
    (await asyncio.wait_for(connecting, CONNECT_SECONDS)).abort()


def _can_reach(worker: str) -> bool:
    """Return whether this process can connect to a worker; if not, arrays travel through the scheduler."""
    host, port = urlsplit(worker).hostname, urlsplit(worker).port
    try:
        with socket.create_connection((host or "", port or 0), timeout=REACH_SECONDS):
            return True
    except OSError:
        return False


@contextmanager
def _use(client: Any) -> Iterator[DaskRunner]:
    check_versions(client)
    runner = DaskRunner(client)
    with client.as_current(), runner.watch(), offload(runner), _explain_lost_scheduler(client):
        yield runner


@contextmanager
def _explain_lost_scheduler(client: Any) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if client.status == "running":
            raise
        cause = " ".join(str(error).split())
        raise ConnectionError(
            f"The Dask scheduler is gone ({type(error).__name__}: {cause}); start it and its workers again. The same "
            "command with --checkpoint resumes from the last finished piece."
        ) from error


def check_versions(client: Any) -> None:
    """Raise an error if the cluster has no workers, or one of its processes has another labelgap or none."""

    def get_version() -> str | None:  # sent as code, for processes that may not have this module
        try:
            from labelgap import __version__ as version
        except ImportError:
            return None
        return version

    answers = client.run(get_version, on_error="return").items()  # a worker that is just dying returns an error
    versions = {f"the worker {worker}": answer for worker, answer in answers if not isinstance(answer, OSError)}
    if not versions:
        raise ConnectionError(f"The Dask cluster at {client.scheduler.address} has no workers; start at least one.")
    versions["the scheduler"] = client.run_on_scheduler(get_version)
    for name, version in versions.items():
        if version != __version__:
            has = "no labelgap" if version is None else f"labelgap {version}"
            raise ValueError(f"{name[0].upper()}{name[1:]} has {has}, and this process {__version__}; install that.")


def make_watcher() -> Any:
    """Return a plugin of the scheduler that counts our tasks, their seconds on each worker, and repetitions."""
    distributed = import_optional("distributed", "dask")

    class Watcher(distributed.diagnostics.plugin.SchedulerPlugin):  # type: ignore[name-defined]
        name = f"labelgap-{uuid4().hex}"

        def __init__(self) -> None:
            self.done: Counter[str] = Counter()
            self.seconds: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(lambda: [0.0, 0]))

        def transition(self, key: Any, start: str, finish: str, *_: Any, **facts: Any) -> None:
            if finish != "memory" or not str(key).startswith(KEY_PREFIX) or "startstops" not in facts:
                return
            self.done[key] += 1
            times = [part for part in facts["startstops"] or () if part["action"] == "compute"]
            total = self.seconds[str(key).split("-")[0]][facts["worker"]]
            total[0] += sum(part["stop"] - part["start"] for part in times)
            total[1] += 1

    return Watcher()


def find_stragglers(seconds: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, float]:
    """Return the workers that are much slower than the median worker, and how many times.

    ``seconds`` holds the seconds and the number of tasks of each kind on each worker. A worker's tasks would take the
    median worker the sum over kinds of their number times the median of the mean seconds.

    >>> find_stragglers({"spmm": {"a": [1.0, 2], "b": [1.1, 2], "c": [6.0, 2]}})
    {'c': 5.45}
    """
    spent: Counter[str] = Counter()
    usual: Counter[str] = Counter()
    for workers in seconds.values():
        median = statistics.median(total / count for total, count in workers.values())
        for worker, (total, count) in workers.items():
            spent[worker] += total  # type: ignore[assignment]
            usual[worker] += median * count  # type: ignore[assignment]
    ratios = {worker: round(total / max(usual[worker], 1e-9), 2) for worker, total in spent.items()}
    return {worker: ratio for worker, ratio in ratios.items() if ratio > STRAGGLER_RATIO}


class DaskRunner:
    """The threads of all workers, each of which runs a task at a time.

    Large arrays of tasks are sent once and travel between workers, whatever the number of tasks that use them.
    """

    device = "dask"

    def __init__(self, client: Any) -> None:
        self.client = client
        info = client.scheduler_info(n_workers=-1)["workers"]
        self.size = sum(worker["nthreads"] for worker in info.values())
        self._workers = set(Cluster(client).workers)
        self.n_repeated = 0  # tasks and alternations that ran again because their arrays were lost
        self._last: dict[str, Any] = {}
        self._sent: dict[int, tuple[Any, Any]] = {}
        self._lock = threading.RLock()
        self._watcher: str | None = None

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Count what happens on the cluster in the block, if its scheduler takes plugins."""
        watcher = make_watcher()
        with suppress(ValueError, TypeError):  # a scheduler that refuses pickled code
            self.client.register_plugin(watcher, name=watcher.name)
            self._watcher = watcher.name
        try:
            yield
        finally:
            if self._watcher is not None and self.client.status == "running":
                self._last = self.summarize()
                self.client.unregister_scheduler_plugin(self._watcher)
            self._watcher = None

    def call(self, task: Callable[[], Any]) -> Any:
        """Return the result of a task on one of the workers; one whose data were lost with a worker runs again."""
        name, limit = _name_task(task), get_memory_limit() if has_memory_limit() else None

        def run() -> Any:
            try:
                packed = *self._pack(task), limit
                with watch_losses(self.client):
                    return self.client.submit(run_packed, *packed, key=make_key(name)).result()
            except LostArrays:
                with self._lock:
                    self.n_repeated += 1
                    self._sent.clear()
                raise

        return repeat_when_lost(run)

    def _pack(self, task: Callable[[], Any]) -> tuple[bytes, list[Any]]:
        """Return the bytes of a task and its large arrays as futures."""
        cloudpickle, futures = import_optional("cloudpickle", "dask"), []

        class Pickler(cloudpickle.Pickler):  # type: ignore[name-defined]
            def persistent_id(own, value: Any) -> int | None:
                if type(value) is not np.ndarray or value.nbytes <= MAX_TASK_BYTES or value.dtype.hasobject:
                    return None
                futures.append(self._send(value))
                return len(futures) - 1

        stream = io.BytesIO()
        with self._lock:
            Pickler(stream, protocol=pickle.HIGHEST_PROTOCOL).dump(task)
        return stream.getvalue(), futures

    def _send(self, array: np.ndarray) -> Any:
        """Send an array to a worker, unless one has it; other workers fetch it from there."""
        key = id(array)
        if key not in self._sent:
            future = scatter(self.client, array)
            self._sent[key] = weakref.ref(array, lambda _: self._sent.pop(key, None)), future
        return self._sent[key][1]

    def summarize(self) -> dict[str, Any]:
        """Return the numbers of workers, of workers lost, of tasks and those that ran again, the megabytes spilled,
        and the workers that were much slower than the median one, with the ratio.
        """
        if self._watcher is None and self._last:  # the block is over
            return self._last
        info = self.client.scheduler_info(n_workers=-1)["workers"]
        spilled = sum(worker["metrics"].get("spilled_bytes", {}).get("disk", 0) for worker in info.values())
        summary = {
            "workers": len(info),
            "workers lost": len(self._workers - info.keys()),
            "tasks repeated": self.n_repeated,
            "megabytes spilled": round(spilled / 1e6, 3),
        }
        if self._watcher is not None:
            done, seconds = self.client.run_on_scheduler(partial(read_watcher, name=self._watcher))
            summary["tasks"] = len(done)
            summary["tasks repeated"] += sum(done.values()) - len(done)
            summary["stragglers"] = find_stragglers(seconds)
        return summary


def read_watcher(dask_scheduler: Any, *, name: str) -> tuple[dict, dict]:
    """Return the counts and seconds of a watcher, on the scheduler."""
    watcher = dask_scheduler.plugins[name]
    return dict(watcher.done), {kind: dict(workers) for kind, workers in watcher.seconds.items()}


def _name_task(task: Any) -> str:
    """Return the name of a function, for Dask's dashboard."""
    while isinstance(task, partial):
        task = task.func
    return getattr(task, "__name__", type(task).__name__).strip("_<>")


def run_packed(payload: bytes, arrays: list[Any], memory: int | None) -> Any:
    """Run a task of :class:`DaskRunner` on a worker, on one thread."""

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, number: int) -> Any:
            return arrays[number]

    task = Unpickler(io.BytesIO(payload)).load()
    with limit_memory(memory), threads(1), offload(None):
        return task()
