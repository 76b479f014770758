"""Requests that come together are answered together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple

from labelgap.serve.errors import busy

Work = Callable[[Sequence[Any]], Sequence[Any]]


class Waiting(NamedTuple):
    """A job, how many rows it has, and where its answer goes."""

    job: Any
    n_rows: int
    answer: asyncio.Future[Any]


class Batcher:
    """A queue in front of one function that takes many jobs at once.

    While a batch runs, those that come make up the next one; when none runs, the first may wait a moment for others.
    Whoever no longer waits (a timeout, a client that went away) is dropped before the work begins. ``work`` returns
    an answer for each job, in order; an answer that is an exception is raised where its job was submitted.

    Everything but ``work`` runs on the event loop, so that there is nothing to lock.

    Parameters
    ----------
    work : callable
        Takes a list of jobs on a thread of ``executor``.
    executor : Executor
        Where the work is done.
    size : int
        The most rows of a batch; a job with more is a batch of its own.
    wait : float
        Seconds that the first job waits.
    queue : int
        The most rows that wait.
    observe : callable, optional
        Told the number of rows of each batch.
    """

    def __init__(
        self,
        work: Work,
        executor: Executor,
        *,
        size: int,
        wait: float,
        queue: int,
        observe: Callable[[int], None] = lambda n_rows: None,
    ) -> None:
        self._work, self._executor, self.observe = work, executor, observe
        self._size, self._wait, self._most = size, wait, queue
        self._queue: deque[Waiting] = deque()
        self._running = False
        self._alarm: asyncio.TimerHandle | None = None
        self.n_waiting = 0

    async def submit(self, job: Any, n_rows: int) -> Any:
        """Return the answer to a job."""
        if self.n_waiting and self.n_waiting + n_rows > self._most:
            raise busy()
        loop = asyncio.get_running_loop()
        waiting = Waiting(job, n_rows, loop.create_future())
        self._queue.append(waiting)
        self.n_waiting += n_rows
        if not self._running:
            if self.n_waiting >= self._size:
                self._start()
            elif self._alarm is None:
                self._alarm = loop.call_later(self._wait, self._start)
        return await waiting.answer

    def _start(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        batch = self._next()
        self._running = bool(batch)
        if not batch:
            return
        self.observe(sum(one.n_rows for one in batch))
        loop = asyncio.get_running_loop()
        done = self._executor.submit(self._work, [one.job for one in batch])
        done.add_done_callback(lambda found: loop.call_soon_threadsafe(self._finish, batch, found))

    def _next(self) -> list[Waiting]:
        """Take jobs off the queue up to the size of a batch, without those that nobody waits for."""
        batch: list[Waiting] = []
        rows = 0
        while self._queue and (not batch or rows + self._queue[0].n_rows <= self._size):
            one = self._queue.popleft()
            self.n_waiting -= one.n_rows
            if not one.answer.done():
                batch.append(one)
                rows += one.n_rows
        return batch

    def _finish(self, batch: list[Waiting], found: Any) -> None:
        error = found.exception()
        answers = [error] * len(batch) if error is not None else found.result()
        for one, answer in zip(batch, answers, strict=True):
            if one.answer.done():
                continue
            if isinstance(answer, BaseException):
                one.answer.set_exception(answer)
            else:
                one.answer.set_result(answer)
        self._start()
