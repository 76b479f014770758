"""Long work behind the page: one thing at a time, with progress, and a way to stop it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from sklearn.base import clone

from labelgap.model_selection.criteria import last_step


class Stopped(Exception):
    """Somebody asked a job to stop."""


class Progress(NamedTuple):
    """How far a job is: "idle", "running", "done", "stopped" or "failed"; steps done of how many; what it says."""

    state: str
    done: int
    total: int
    message: str


class Job:
    """Work in a thread of its own that counts its steps.

    >>> job = Job("count")
    >>> job.start(lambda step: [step("one"), step("two")], total=2)
    True
    >>> job.wait()
    Progress(state='done', done=2, total=2, message='')
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._lock = threading.Lock()
        self._asked_to_stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._progress = Progress("idle", 0, 0, "")

    @property
    def progress(self) -> Progress:
        """How far it is."""
        return self._progress

    def start(self, work: Callable[[Callable[[str], None]], Any], total: int) -> bool:
        """Begin ``work(step)``, which calls ``step(message)`` before each step; False where it is running already."""
        with self._lock:
            if self._progress.state == "running":
                return False
            self._asked_to_stop.clear()
            self._progress = Progress("running", 0, total, "")
            self._thread = threading.Thread(target=self._run, args=(work,), name=f"labelgap-{self.name}", daemon=True)
            self._thread.start()
        return True

    def stop(self) -> None:
        """Ask it to stop before its next step."""
        self._asked_to_stop.set()

    def wait(self, seconds: float | None = None) -> Progress:
        """Wait for its end and return how it ended."""
        if self._thread is not None:
            self._thread.join(seconds)
        return self._progress

    def _run(self, work: Callable) -> None:
        started = 0

        def step(message: str) -> None:
            nonlocal started
            if self._asked_to_stop.is_set():
                raise Stopped
            self._progress = self._progress._replace(done=started, message=message)
            started += 1

        try:
            work(step)
            self._progress = self._progress._replace(state="done", done=self._progress.total, message="")
        except Stopped:
            self._progress = self._progress._replace(state="stopped", message="Stopped.")
        except Exception as error:  # whatever it is, the page must be able to say it
            self._progress = self._progress._replace(state="failed", message=str(error) or type(error).__name__)


class Watched:
    """An estimator whose clones call ``step`` before they are fitted, so that a loop over clones can be watched."""

    def __init__(self, estimator: Any, step: Callable[[], None]) -> None:
        self.estimator, self.step = estimator, step

    @property
    def absent(self) -> str:
        """What a cell that is not stored means to the estimator."""
        return getattr(last_step(self.estimator), "absent", "negative")

    def fit(self, X: Any, Y: Any) -> Any:
        """Say so, then fit; what is returned is the estimator itself."""
        self.step()
        return self.estimator.fit(X, Y)

    def __sklearn_clone__(self) -> Watched:
        return Watched(clone(self.estimator), self.step)
