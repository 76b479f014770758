"""Answers by the fitted model alone: predict, complete, check labels and explain, and the batching of predictions."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from itertools import accumulate, chain
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.estimators.base import Decided
from labelgap.gaps import explain
from labelgap.runtime import available_cores, row_blocks, threads
from labelgap.serve.schemas import (
    ApiError,
    CheckLabelsRequest,
    CompleteRequest,
    ExplainRequest,
    invalid_input,
    server_busy,
    to_json,
)
from labelgap.serve.served_models import ServedModel, to_model_input
from labelgap.serve.settings import Settings

MAX_SMALL_BATCH = 64  # rows; a larger batch gains more from another core than the event loop loses


class RequestRows(NamedTuple):
    """Rows of a request in the form in which they came, and the number of labels to return for each."""

    form: str
    rows: list[Any]
    top: int | None


# --- predict --------------------------------------------------------------------------------------------------------


class Predictor:
    """Answers many requests with one prediction.

    A request with invalid rows gets its own error; the other requests of the batch are answered.
    """

    def __init__(self, served: ServedModel, settings: Settings) -> None:
        self._served, self._settings = served, settings

    def __call__(self, requests: Sequence[RequestRows]) -> list[bytes | Exception]:
        """Return the body of the answer to each request, or its error."""
        answers: list[Any] = [None] * len(requests)
        groups: dict[tuple[str, int | None], list[int]] = defaultdict(list)
        for place, request in enumerate(requests):
            groups[request.form, request.top].append(place)
        with threads(self._settings.n_threads or self._choose_threads(requests)):
            for (form, top), places in groups.items():
                group = self._answer_group(form, top, [requests[place].rows for place in places])
                for place, answer in zip(places, group, strict=True):
                    answers[place] = answer
        return answers

    def _choose_threads(self, requests: Sequence[RequestRows]) -> int | None:
        """Return all cores but one for small batches, beside which the event loop is busy; None means all cores."""
        n_rows = sum(len(request.rows) for request in requests)
        return max(1, available_cores() - 1) if n_rows <= MAX_SMALL_BATCH else None

    def _answer_group(self, form: str, top: int | None, parts: Sequence[list[Any]]) -> list[Any]:
        try:
            X = to_model_input(form, list(chain.from_iterable(parts)), self._served.features)
            predictions = self._predict(X, top)
        except Exception as error:
            if len(parts) > 1:
                # Bisect instead of repeating one by one, so that a wrong request does not slow down the others.
                half = len(parts) // 2
                return self._answer_group(form, top, parts[:half]) + self._answer_group(form, top, parts[half:])
            # Estimators raise ValueError or TypeError for rows that they cannot take.
            return [invalid_input(str(error)) if isinstance(error, ValueError | TypeError) else error]
        ends = accumulate(map(len, parts))
        return [
            rows_json(self._served, "predictions", predictions[end - len(part) : end])
            for part, end in zip(parts, ends, strict=True)
        ]

    def _predict(self, X: Any, top: int | None) -> list[dict[str, Any]]:
        if top is None:
            return positives_json(self._served, X, self._settings)
        indices, scores, probabilities = self._served.model.rank(X, min(top, len(self._served.label_names)))
        rows = zip(indices, scores, [None] * len(indices) if probabilities is None else probabilities, strict=True)
        return [{"labels": labels_json(self._served, *row)} for row in rows]


class QueuedRequest(NamedTuple):
    """A request, its number of rows, and the future of its answer."""

    request: Any
    n_rows: int
    answer: asyncio.Future[Any]


class Batcher:
    """A queue in front of a function that answers many requests at once.

    Requests that arrive while a batch runs make up the next batch; if none runs, the first request may wait for
    others. Requests that nobody waits for any more (a timeout, a closed connection) are dropped before the work
    begins. Everything except ``work`` runs on the event loop, so no locks are needed.

    Parameters
    ----------
    work : callable
        Takes a list of requests and returns an answer for each, in order. An answer that is an exception is raised
        where its request was submitted.
    executor : Executor
        Runs ``work``.
    size : int
        Maximum number of rows in a batch; a larger request is a batch of its own.
    wait : float
        Seconds that the first request waits.
    queue : int
        Maximum number of rows that wait.
    on_batch, on_queue : callable, optional
        Called with the number of rows of each batch, and of the queue after each change.
    """

    def __init__(
        self,
        work: Callable[[Sequence[Any]], Sequence[Any]],
        executor: Executor,
        *,
        size: int,
        wait: float,
        queue: int,
        on_batch: Callable[[int], None] = lambda n_rows: None,
        on_queue: Callable[[int], None] = lambda n_rows: None,
    ) -> None:
        self._work, self._executor, self._on_batch, self._on_queue = work, executor, on_batch, on_queue
        self._size, self._wait, self._max_waiting = size, wait, queue
        self._queue: deque[QueuedRequest] = deque()
        self._running = False
        self._timer: asyncio.TimerHandle | None = None
        self.n_waiting = 0

    async def submit(self, request: Any, n_rows: int) -> Any:
        """Return the answer to a request."""
        if self.n_waiting and self.n_waiting + n_rows > self._max_waiting:
            raise server_busy()
        loop = asyncio.get_running_loop()
        queued = QueuedRequest(request, n_rows, loop.create_future())
        self._queue.append(queued)
        self.n_waiting += n_rows
        if not self._running:
            if self.n_waiting >= self._size:
                self._start_batch()
            elif self._timer is None:
                self._timer = loop.call_later(self._wait, self._start_batch)
        self._on_queue(self.n_waiting)
        return await queued.answer

    def _start_batch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch = self._take_batch()
        self._on_queue(self.n_waiting)
        self._running = bool(batch)
        if not batch:
            return
        self._on_batch(sum(queued.n_rows for queued in batch))
        loop = asyncio.get_running_loop()
        future = self._executor.submit(self._work, [queued.request for queued in batch])
        future.add_done_callback(lambda done: loop.call_soon_threadsafe(self._finish_batch, batch, done))

    def _take_batch(self) -> list[QueuedRequest]:
        """Take requests off the queue up to the size of a batch, without those that nobody waits for."""
        batch: list[QueuedRequest] = []
        n_rows = 0
        while self._queue and (not batch or n_rows + self._queue[0].n_rows <= self._size):
            queued = self._queue.popleft()
            self.n_waiting -= queued.n_rows
            if not queued.answer.done():
                batch.append(queued)
                n_rows += queued.n_rows
        return batch

    def _finish_batch(self, batch: list[QueuedRequest], done: Future[Any]) -> None:
        error = done.exception()
        answers = [error] * len(batch) if error is not None else done.result()
        for queued, answer in zip(batch, answers, strict=True):
            if queued.answer.done():
                continue
            if isinstance(answer, BaseException):
                queued.answer.set_exception(answer)
            else:
                queued.answer.set_result(answer)
        self._start_batch()


# --- complete, check labels, explain --------------------------------------------------------------------------------


def answer_complete(served: ServedModel, request: RequestRows, body: CompleteRequest, settings: Settings) -> bytes:
    """Return the scores of the unknown labels of each row, most probable first."""
    known = [
        [served.label_number(label) for label, value in cells.items() if value is not None]
        for cells in body.known or [{}] * len(request.rows)
    ]
    check_length("known", known, request)
    n_labels = len(served.label_names)
    if len(request.rows) * min(request.top or n_labels, n_labels) > settings.max_cells:
        raise too_many_cells(len(request.rows), settings)
    parts = []
    for row, known_places in zip(_decision_rows(served, request, settings), known, strict=True):
        unknown = np.ones(n_labels, bool)
        unknown[known_places] = False
        parts.append({"labels": ranked_json(served, row, unknown, request.top)})
    return rows_json(served, "completions", parts)


def answer_check_labels(
    served: ServedModel, request: RequestRows, body: CheckLabelsRequest, settings: Settings
) -> bytes:
    """Return the labels that each row does not have and that score high, and those that it has and that score low."""
    labels = [[served.label_number(label) for label in row] for row in body.labels]
    check_length("labels", labels, request)
    limit = request.top or settings.max_top
    parts = []
    for row, places in zip(_decision_rows(served, request, settings), labels, strict=True):
        present = np.zeros(len(served.label_names), bool)
        present[places] = True
        missing = ~present if request.top else ~present & (row.decisions > 0)
        doubtful = present & (row.decisions <= 0)
        parts.append(
            {
                "missing": ranked_json(served, row, missing, limit),
                "doubtful": ranked_json(served, row, doubtful, limit, lowest_first=True),
            }
        )
    return rows_json(served, "audits", parts)


def answer_explain(served: ServedModel, request: RequestRows, body: ExplainRequest, settings: Settings) -> bytes:
    """Return the features and known labels that support a label, with their weights."""
    label = served.label_number(body.label)
    known = [number for number in map(served.label_number, body.known) if number != label]
    row = to_model_input(request.form, request.rows, served.features)
    features = served.model.transform(row) if served.features.texts else sp.csr_array(row)
    if features.nnz > settings.max_arguments:  # the model is evaluated once without each feature
        raise ApiError(
            413,
            "too_long",
            f"The row has {features.nnz} features; explain accepts at most {settings.max_arguments}.",
        )
    with threads(settings.n_threads):
        explanation = explain(served.model, row, label, top=body.top)
    labels = []
    if known and served.cooccurrence is not None:
        labels = [(served.label_names[other], served.cooccurrence.get_weight(other, label)) for other in known]
        labels.sort(key=lambda pair: -abs(pair[1]))
    return to_json(
        {
            "model": served.name,
            "label": served.label_names[label],
            "decision": float(explanation.decision),
            "features": [
                {"name": _feature_name(served, name), "weight": float(weight)}
                for name, weight in explanation.features
            ],
            "labels": [{"name": name, "weight": float(weight)} for name, weight in labels[: body.top]],
        }
    )


def too_many_cells(n_rows: int, settings: Settings) -> ApiError:
    """Return the error for an answer with more scores than the settings allow."""
    return ApiError(
        413,
        "too_many",
        f"{n_rows} rows get more than {settings.max_cells} scores; pass fewer rows, or a smaller top.",
    )


def check_length(name: str, values: Sequence[Any], request: RequestRows) -> None:
    """Raise a 422 unless there is one value for each row."""
    if len(values) != len(request.rows):
        raise invalid_input(f"{name} has {len(values)} entries for {len(request.rows)} rows; pass one for each.")


def _decision_rows(served: ServedModel, request: RequestRows, settings: Settings) -> Iterator[Decided]:
    """Yield the decision values of each row; only one block of rows is in memory."""
    X = to_model_input(request.form, request.rows, served.features)
    with threads(settings.n_threads):
        yield from _split_rows(served, X)


def _feature_name(served: ServedModel, name: str) -> str:
    """Return the name of a feature that the explanation of a model without names calls "feature 7"."""
    if served.feature_names is None:
        return name
    return str(served.feature_names[int(name.rpartition(" ")[2])])


# --- labels and scores as JSON values -------------------------------------------------------------------------------


def rows_json(served: ServedModel, kind: str, parts: Iterable[dict[str, Any]]) -> bytes:
    """Return the body of an answer with a part for each row."""
    return to_json({"model": served.name, kind: list(parts)})


def positives_json(served: ServedModel, X: Any, settings: Settings) -> list[dict[str, Any]]:
    """Return the labels with a score above 0 of each row, most probable first."""
    parts, n_cells = [], 0
    for row in _split_rows(served, X):
        labels = ranked_json(served, row, row.decisions > 0, settings.max_top)
        n_cells += len(labels)
        if n_cells > settings.max_cells:
            raise too_many_cells(len(X) if isinstance(X, list) else X.shape[0], settings)
        parts.append({"labels": labels})
    return parts


def _split_rows(served: ServedModel, X: Any) -> Iterator[Decided]:
    """Yield the decisions about each row; blocks of rows bound the memory for many labels."""
    n = len(X) if isinstance(X, list) else X.shape[0]
    for block in row_blocks(n, len(served.label_names)):
        scores, decisions, probabilities = served.model.decide(X[block])
        for i in range(len(scores)):
            yield Decided(scores[i], decisions[i], None if probabilities is None else probabilities[i])


def ranked_json(
    served: ServedModel, row: Decided, mask: NDArray, limit: int | None, *, lowest_first: bool = False
) -> list[dict[str, Any]]:
    """Return the masked labels of a row with the largest scores, or the smallest, in the order of probabilities.

    Without probabilities the order is that of the scores; ties are ordered by label number.
    """
    places, sign = np.flatnonzero(mask), 1 if lowest_first else -1
    places = places[np.argsort(sign * row.scores[places], kind="stable")[:limit]]
    if row.probabilities is None:
        return labels_json(served, places, row.decisions[places], None)
    places = places[np.argsort(sign * row.probabilities[places], kind="stable")]
    return labels_json(served, places, row.decisions[places], row.probabilities[places])


def labels_json(
    served: ServedModel, indices: NDArray, scores: NDArray, probabilities: NDArray | None
) -> list[dict[str, Any]]:
    """Return label names with their scores, and with P(written) if the model is calibrated."""
    names = served.label_names
    labels = [{"label": names[j], "score": score} for j, score in zip(indices.tolist(), scores.tolist(), strict=True)]
    if probabilities is None:
        return labels
    return [label | {"probability": p} for label, p in zip(labels, probabilities.tolist(), strict=True)]
