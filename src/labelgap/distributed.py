"""The same models on a Dask cluster: :func:`connect` gives the work of a block to its workers.

LEML and OneClassMF keep a shard of the rows on each worker (``kernels/dask_backend.py``). Other work of independent
pieces sends each piece to a worker: the learners and clusters of SLEEC and LocalLEML, blocks of labels of one-vs-all,
trees, candidates of a search, folds of an audit, blocks of rows to predict.
"""

from __future__ import annotations

import io
import pickle
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from labelgap import __version__
from labelgap.kernels.dask_backend import MAX_TASK_BYTES, Cluster
from labelgap.runtime import get_memory_limit, import_optional, limit_memory, offload, threads

CONNECT_SECONDS = 5.0
MAX_ATTEMPTS = 10  # of a task whose workers die

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
    >>> with Client(n_workers=1, processes=False, dashboard_address=":0") as client, connect(client) as runner:
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
        return distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ConnectionError(
            f"No Dask scheduler answers at {address} ({type(error).__name__}); check the address, which looks like "
            "tcp://HOST:8786."
        ) from None


@contextmanager
def _use(client: Any) -> Iterator[DaskRunner]:
    check_versions(client)
    runner = DaskRunner(client)
    with client.as_current(), offload(runner), _explain_lost_scheduler(client):
        yield runner


@contextmanager
def _explain_lost_scheduler(client: Any) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if client.status == "running":
            raise
        raise ConnectionError(
            f"The Dask scheduler is gone ({type(error).__name__}: {error}); start it and its workers again. The same "
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

    versions = {f"the worker {worker}": version for worker, version in client.run(get_version).items()}
    if not versions:
        raise ConnectionError(f"The Dask cluster at {client.scheduler.address} has no workers; start at least one.")
    versions["the scheduler"] = client.run_on_scheduler(get_version)
    for name, version in versions.items():
        if version != __version__:
            has = "no labelgap" if version is None else f"labelgap {version}"
            raise ValueError(f"{name[0].upper()}{name[1:]} has {has}, and this process {__version__}; install that.")


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
        self._n_retries = 0
        self._sent: dict[int, tuple[Any, Any]] = {}
        self._lock = threading.RLock()

    def call(self, task: Callable[[], Any]) -> Any:
        """Return the result of a task on one of the workers; one whose data were lost with a worker runs again."""
        distributed = import_optional("distributed", "dask")
        lost = (distributed.client.FutureCancelledError, distributed.scheduler.KilledWorker)
        for attempt in range(MAX_ATTEMPTS):
            payload, futures = self._pack(task)
            try:
                return self.client.submit(run_packed, payload, futures, get_memory_limit(), pure=False).result()
            except lost:
                if attempt == MAX_ATTEMPTS - 1 or self.client.status != "running":
                    raise
                with self._lock:
                    self._n_retries += 1
                    self._sent.clear()
        raise AssertionError

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
            future = self.client.scatter(array, hash=False)
            self._sent[key] = weakref.ref(array, lambda _: self._sent.pop(key, None)), future
        return self._sent[key][1]

    def summarize(self) -> dict[str, Any]:
        """Return the numbers of workers, of workers lost, of tasks that ran again, and the megabytes spilled."""
        info = self.client.scheduler_info(n_workers=-1)["workers"]
        spilled = sum(worker["metrics"].get("spilled_bytes", {}).get("disk", 0) for worker in info.values())
        return {
            "workers": len(info),
            "workers lost": len(self._workers - info.keys()),
            "tasks repeated": self._n_retries,
            "megabytes spilled": round(spilled / 1e6, 3),
        }


def run_packed(payload: bytes, arrays: list[Any], memory: int) -> Any:
    """Run a task of :class:`DaskRunner` on a worker, on one thread."""

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, number: int) -> Any:
            return arrays[number]

    task = Unpickler(io.BytesIO(payload)).load()
    with limit_memory(memory), threads(1), offload(None):
        return task()
