"""Background jobs with progress and cancellation, and the audit jobs of the API."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from labelgap.gaps import Audit, Suggestions, audit
from labelgap.inputs import clone_with_seed
from labelgap.runtime import prepare_threads, report_progress, threads
from labelgap.serve.schemas import ApiError, AuditRequest, invalid_input
from labelgap.serve.scoring import RequestRows, check_length
from labelgap.serve.served_models import ServedModel, to_model_input
from labelgap.serve.settings import Settings

MAX_FINISHED_AUDITS = 16  # older results are dropped
RETRY_SECONDS = 10


class JobStopped(Exception):
    """The job was asked to stop."""


class JobProgress(NamedTuple):
    """State of a job ("idle", "running", "done", "stopped" or "failed"), finished and all steps, and a message."""

    state: str
    done: int
    total: int
    message: str


class Job:
    """Work in a thread of its own, whose progress can be read and which can be stopped.

    The work reports its progress through :func:`labelgap.runtime.progress`. The outermost task with a known number of
    steps is counted; the message names all tasks that are under way.

    >>> from labelgap.runtime import progress
    >>> def work():
    ...     with progress(2, "Steps", verbose=0) as advance:
    ...         for name in ("first", "second"):
    ...             advance(name)
    >>> job = Job("example")
    >>> job.start(work)
    True
    >>> job.wait()
    JobProgress(state='done', done=2, total=2, message='')
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.result: Any = None
        self._lock = threading.Lock()
        self._stop_requested = threading.Event()
        self._thread: threading.Thread | None = None
        self._tasks: list[RunningTask] = []
        self._progress = JobProgress("idle", 0, 0, "")

    @property
    def progress(self) -> JobProgress:
        """The current progress."""
        return self._progress

    @property
    def is_running(self) -> bool:
        """Whether the work has started and not ended."""
        return self._progress.state == "running"

    def start(self, work: Callable[[], Any]) -> bool:
        """Start ``work()``, whose value becomes ``result``; return False if the job is running already."""
        prepare_threads()
        with self._lock:
            if self.is_running:
                return False
            self._stop_requested.clear()
            self._tasks, self.result = [], None
            self._progress = JobProgress("running", 0, 0, "")
            self._thread = threading.Thread(target=self._run, args=(work,), name=f"labelgap-{self.name}", daemon=True)
            self._thread.start()
        return True

    def stop(self) -> None:
        """Ask the work to stop at its next progress report."""
        self._stop_requested.set()

    def publish(self, result: Any) -> None:
        """Set the result of the finished part of the work, for those who read it while the work goes on."""
        self.result = result

    def wait(self, seconds: float | None = None) -> JobProgress:
        """Wait until the work ends, and return its progress."""
        if self._thread is not None:
            self._thread.join(seconds)
        return self._progress

    def _run(self, work: Callable[[], Any]) -> None:
        try:
            with report_progress(self._report):
                self.result = work()
            self._progress = self._progress._replace(state="done", done=self._progress.total, message="")
        except JobStopped:
            self._progress = self._progress._replace(state="stopped", message="Stopped.")
        except Exception as error:  # any error must reach the person who started the job
            self._progress = self._progress._replace(state="failed", message=str(error) or type(error).__name__)

    @contextmanager
    def _report(self, total: int | None, title: str, done: int) -> Iterator[Callable[[str], None]]:
        """Store the progress of a task, and stop the work if asked to; the display of ``runtime.report_progress``."""
        task = RunningTask(title, None if total is None else int(total), done)

        def advance(message: str) -> None:
            task.done += 1
            self._update()

        self._tasks.append(task)
        try:
            self._update()
            yield advance
        finally:
            self._tasks.remove(task)

    def _update(self) -> None:
        if self._stop_requested.is_set():
            raise JobStopped
        tasks = list(self._tasks)
        message = " · ".join(map(str, tasks))
        counted = next((task for task in tasks if task.total is not None), None)
        done, total = self._progress[1:3] if counted is None else (counted.done, counted.total or 0)
        self._progress = JobProgress("running", done, total, message)


@dataclass(eq=False)
class RunningTask:
    """A task under way: its title, the number of its steps if known, and the finished ones."""

    title: str
    total: int | None
    done: int

    def __str__(self) -> str:
        if self.total is None:
            return self.title
        return f"{self.title}: {min(self.done + 1, self.total)} of {self.total}"


# --- audits ---------------------------------------------------------------------------------------------------------


class AuditJob(NamedTuple):
    """An audit of the rows of a request, its random id, and the model that it is of."""

    id: str
    served: ServedModel
    job: Job

    def to_json(self, offset: int, limit: int) -> dict[str, Any]:
        """Return the fields of an :class:`~labelgap.serve.schemas.AuditJobAnswer`."""
        progress, result = self.job.progress, None
        result_so_far = self.job.result if progress.state in ("running", "done") else None
        if result_so_far is not None:
            result = _audit_json(result_so_far, self.served.label_names, slice(offset, offset + limit))
        return {"id": self.id, "model": self.served.name, **progress._asdict(), "result": result}


class AuditJobs:
    """Audits that run in the background, as many at once as the settings allow, and the latest finished ones.

    An audit is that of ``labelgap audit``: clones of the served model, with the same parameters, are fitted on the
    rows of the request, and each scores the rows that it was not fitted on.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._jobs: dict[str, AuditJob] = {}
        self._deleted: list[Job] = []  # they run until their next progress report

    def start(self, served: ServedModel, request: RequestRows, body: AuditRequest) -> AuditJob:
        """Start an audit; raise a 4xx if the rows do not fit the model or too many audits run."""
        if not self._settings.max_audit_jobs:
            raise ApiError(
                501,
                "no_audit_jobs",
                "This server runs no audit jobs, since only a single process can keep them; start it without "
                "--workers, or use the command labelgap audit.",
            )
        work = _prepare_audit(served, request, body, self._settings.n_threads)
        with self._lock:
            self._deleted = [job for job in self._deleted if job.is_running]
            running = [entry for entry in self._jobs.values() if entry.job.is_running]
            if len(running) + len(self._deleted) >= self._settings.max_audit_jobs:
                raise ApiError(
                    429,
                    "too_many_audits",
                    f"The server runs at most {self._settings.max_audit_jobs} audits at once; "
                    "wait for one to end, or delete one.",
                    {"Retry-After": str(RETRY_SECONDS)},
                )
            finished = [entry.id for entry in self._jobs.values() if not entry.job.is_running]
            for old in finished[: max(0, len(finished) - MAX_FINISHED_AUDITS + 1)]:
                del self._jobs[old]
            entry = AuditJob(secrets.token_hex(8), served, Job("audit"))
            self._jobs[entry.id] = entry
            entry.job.start(partial(work, entry.job.publish))
        return entry

    def find(self, name: str, job_id: str) -> AuditJob:
        """Return the audit job of a model by its id; raise a 404 if there is none."""
        entry = self._jobs.get(job_id)
        if entry is None or entry.served.name != name:
            raise ApiError(
                404, "no_such_job", f"The model {name} has no audit job {job_id[:80]!r}; it may be deleted."
            )
        return entry

    def delete(self, name: str, job_id: str) -> None:
        """Stop an audit job at its next progress report, and drop its result."""
        entry = self.find(name, job_id)
        entry.job.stop()
        with self._lock:
            self._jobs.pop(entry.id, None)
            self._deleted.append(entry.job)

    def close(self) -> None:
        """Stop all jobs at their next progress report."""
        for entry in list(self._jobs.values()):
            entry.job.stop()


def _prepare_audit(
    served: ServedModel, request: RequestRows, body: AuditRequest, n_threads: int | None
) -> Callable[[Callable[[Audit], None]], Audit]:
    """Return the function that runs an audit, which hands the audits of its first folds to a callback.

    Raise a 422 if the rows, labels or model do not allow one.
    """
    check_length("labels", body.labels, request)
    X = to_model_input(request.form, request.rows, served.features)
    numbers = [sorted({served.label_number(label) for label in row}) for row in body.labels]
    starts = np.cumsum([0, *map(len, numbers)])
    cells = np.concatenate([np.array(row, np.int64) for row in numbers])
    Y = sp.csr_array((np.ones(len(cells), np.int8), cells, starts), (len(numbers), len(served.label_names)))
    try:
        estimator = clone_with_seed(served.model, body.seed)
    except (TypeError, ValueError, RuntimeError) as error:
        raise invalid_input(f"The model {served.name} cannot be fitted again, so it cannot audit: {error}") from error

    def run(callback: Callable[[Audit], None]) -> Audit:
        with threads(n_threads):
            return audit(X, Y, estimator, n_folds=body.folds, random_state=body.seed, callback=callback)

    return run


def _audit_json(result: Audit, label_names: list[str], page: slice) -> dict[str, Any]:
    def to_json(suggestions: Suggestions) -> list[dict[str, Any]]:
        columns = (column[page].tolist() for column in suggestions)
        return [{"row": i, "label": label_names[j], "probability": p} for i, j, p in zip(*columns, strict=True)]

    return {
        "share_missing": float(result.share_missing),
        "share_missing_interval": [float(end) for end in result.share_missing_interval],
        "n_missing": len(result.missing),
        "n_doubtful": len(result.doubtful),
        "missing": to_json(result.missing),
        "doubtful": to_json(result.doubtful),
    }
