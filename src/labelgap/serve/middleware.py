"""Middleware in front of the application: access rules, limits of size and time, security headers, and metrics."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
import re
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from labelgap.serve.bodies import estimate_parsed_bytes
from labelgap.serve.schemas import ApiError, server_busy
from labelgap.serve.settings import Settings

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Any, Receive, Send], Awaitable[None]]

LOG = logging.getLogger("labelgap.serve")
SECONDS_BEFORE_WATCHING = 0.05  # quicker requests need no task that waits for the client to disconnect
SECURITY_HEADERS = [
    (b"content-security-policy", b"default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]
MAX_DRAINED_BODIES = 4  # bytes read from a client that sends too much, in multiples of the largest body
DRAIN_SECONDS = 1.0
UNLOGGED = (401, 421)  # refusals that anybody can cause, as often as they like
MAX_LOGGED = 1000  # bytes of an answer
MODEL_PREFIX = "/v1/models/"
MAX_BODY_WITHOUT_ROWS = 1 << 17  # bytes of a body for a route that takes no rows
PIECE_BYTES = 1 << 18  # of an answer that are written at once
HOST = re.compile(rb"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::[0-9]{1,5})?")
METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
CLOSE = {"Connection": "close"}


# --- metrics --------------------------------------------------------------------------------------------------------

SECONDS_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
ROWS_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # environment variable; where prometheus_client adds up worker processes


class Metrics:
    """Counts and times of requests and batches, in the text format of Prometheus.

    With several workers :mod:`labelgap.serve.server` sets ``PROMETHEUS_MULTIPROC_DIR`` before they start; each worker
    then reports the sums over all of them.
    """

    def __init__(self) -> None:
        disable_created_metrics()
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "labelgap_requests", "Answered requests.", ("method", "route", "status"), registry=registry
        )
        self._seconds = Histogram(
            "labelgap_request_seconds", "Time to answer.", ("route",), buckets=SECONDS_BUCKETS, registry=registry
        )
        self._rows = Histogram(
            "labelgap_batch_rows", "Rows predicted together.", ("model",), buckets=ROWS_BUCKETS, registry=registry
        )
        self._waiting = Gauge(
            "labelgap_rows_waiting",
            "Rows that wait for the next batch.",
            ("model",),
            multiprocess_mode="livesum",
            registry=registry,
        )

        self._children: dict[tuple[str, str, int], tuple[Any, Any]] = {}

    def count_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request; a status of 0 means that the client disconnected."""
        children = self._children.get((method, route, status))
        if children is None:  # to look them up takes longer than to count
            children = self._requests.labels(method, route, status), self._seconds.labels(route)
            self._children[method, route, status] = children
        children[0].inc()
        children[1].observe(seconds)

    def model_hooks(self, model: str) -> dict[str, Callable[[int], None]]:
        """Return the hooks of a :class:`~labelgap.serve.scoring.Batcher` that observe its batches and its queue."""
        waiting = self._waiting.labels(model)
        waiting.set(0)
        return {"on_batch": self._rows.labels(model).observe, "on_queue": waiting.set}

    def to_text(self) -> bytes:
        """Return all metrics in the text format."""
        folder = os.environ.get(METRICS_FOLDER)
        if folder is None:
            return generate_latest(self._registry)
        for path in Path(folder).glob("gauge_live*_*.db"):
            pid = int(path.stem.rpartition("_")[2])
            if not _is_alive(pid):
                mark_process_dead(pid)
        total = CollectorRegistry()
        MultiProcessCollector(total)
        return generate_latest(total)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


# --- access rules and limits ----------------------------------------------------------------------------------------


class ClientGone(Exception):
    """The client has closed the connection."""


class MemoryBudget:
    """Bytes of the bodies, of their values and of the answers of all requests that are under way.

    >>> budget = MemoryBudget(100)
    >>> budget.take(60)
    >>> budget.take(60)
    Traceback (most recent call last):
        ...
    labelgap.serve.schemas.ApiError: Too many requests are waiting; try again in a second.
    """

    def __init__(self, limit: int) -> None:
        self.limit, self.used = limit, 0

    def take(self, n_bytes: int) -> None:
        """Reserve bytes; raise a 503 if there are not so many left."""
        if self.used + n_bytes > self.limit:
            raise server_busy(CLOSE)
        self.used += n_bytes

    def give_back(self, n_bytes: int) -> None:
        """Release bytes."""
        self.used -= n_bytes


class HeldBytes:
    """The share of one request in a :class:`MemoryBudget`."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget, self.n_bytes = budget, 0

    def add(self, n_bytes: int) -> None:
        """Reserve bytes for the request."""
        self._budget.take(n_bytes)
        self.n_bytes += n_bytes

    def release(self) -> None:
        """Give everything back."""
        self._budget.give_back(self.n_bytes)
        self.n_bytes = 0


class Guard:
    """ASGI middleware that applies the settings of a server.

    It rejects unknown host names, wrong tokens, bodies that are too large, too slow or not JSON, and answers that
    take too long; it counts requests and adds security headers. It reads a body completely before it calls the
    application, whether or not the length was announced, and cancels the application when the client disconnects.

    Parameters
    ----------
    app : ASGI application
        The application to protect.
    settings : Settings
        Limits and access rules.
    metrics : Metrics
        Counts each request.
    open_paths : set of str
        Paths that need no token; an entry that ends in a slash covers all paths below it.
    logged_paths : set of str
        Paths whose refused requests are logged.
    """

    def __init__(
        self, app: App, settings: Settings, metrics: Metrics, open_paths: set[str], logged_paths: set[str]
    ) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics
        self._open_paths, self._hosts = open_paths, settings.allowed_hosts
        self._logged_paths = logged_paths
        # Digests have one length, so that the time of a comparison does not tell the length of a token.
        self._names = {_digest(secret): name for secret, name in settings.names.items()}
        self._budget = MemoryBudget(settings.max_memory)

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status, held = time.perf_counter(), 0, HeldBytes(self._budget)

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                headers = message.get("headers", ())
                if (length := _content_length(headers)) > PIECE_BYTES:
                    held.add(length)
                status = message["status"]
                message["headers"] = [*headers, *SECURITY_HEADERS]
            elif 400 <= status < 500 and scope["path"] in self._logged_paths and status not in UNLOGGED:
                text = message.get("body", b"")[:MAX_LOGGED].decode(errors="replace")
                LOG.warning("%s %s was refused with %d: %r", scope["method"], scope["path"], status, text)
            elif len(message.get("body", b"")) > PIECE_BYTES:
                await _send_in_pieces(message, send)
                return
            await send(message)

        try:
            await self._answer(scope, receive, send_with_headers, held)
        except ClientGone:
            pass
        except Exception as error:
            if isinstance(error, MemoryError):  # of a full GPU, or of this computer
                LOG.error("%s %s: %s", scope["method"], scope["path"], error)
                error = ApiError(503, "memory", "The request needs more memory than there is; pass fewer rows.")
            elif not isinstance(error, ApiError):
                LOG.exception("%s %s failed", scope["method"], scope["path"])
                error = ApiError(500, "internal", "The server failed; its log says why.")
            if status == 0:
                await error.response()(scope, receive, send_with_headers)
        finally:
            held.release()
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if scope["method"] in METHODS else "other"  # clients can invent methods
            self._metrics.count_request(method, route, status, time.perf_counter() - start)

    async def _answer(self, scope: Any, receive: Receive, send: Send, held: HeldBytes) -> None:
        headers = dict(scope["headers"])
        self._check_caller(scope, headers)
        watch = RequestWatch(receive, self._settings.timeout, self._settings.body_timeout)
        try:
            body = b""
            if b"content-length" in headers or b"transfer-encoding" in headers:
                watch.begin_body()
                body = await self._read_json_body(scope["path"], headers, receive, held)
            watch.begin_answer()
            await self._app(scope, _replay(body, receive), send)
        except asyncio.CancelledError:
            watch.raise_reason()
            raise
        finally:
            watch.end()

    def _check_caller(self, scope: Any, headers: dict[bytes, bytes]) -> None:
        if sum(name == b"host" for name, _ in scope["headers"]) > 1:
            raise ApiError(421, "wrong_host", "The request has two Host headers; send one.", CLOSE)
        if self._hosts is not None and _host_name(headers) not in self._hosts:
            raise ApiError(
                421,
                "wrong_host",
                "The server does not answer to this Host name; use localhost, or start it with --allow-host NAME.",
                CLOSE,
            )
        if self._names and not self._is_open(scope["path"]):
            name = self._find_name(headers.get(b"authorization", b""))
            scope["token_name"] = name
            if name is None:
                challenge = {"WWW-Authenticate": "Bearer", **CLOSE}
                raise ApiError(
                    401, "unauthorized", "Send the server's token as Authorization: Bearer TOKEN.", challenge
                )

    def _find_name(self, authorization: bytes) -> str | None:
        """Return the name behind a token, or None; the time does not tell how much of a token is right."""
        scheme, _, token = authorization.partition(b" ")
        digest, matching = _digest(token.strip()), None
        for other, name in self._names.items():
            if hmac.compare_digest(digest, other):
                matching = name
        return matching if scheme.lower() == b"bearer" else None

    def _is_open(self, path: str) -> bool:
        return path in self._open_paths or any(
            len(prefix) > 1 and prefix.endswith("/") and path.startswith(prefix) for prefix in self._open_paths
        )

    async def _read_json_body(
        self, path: str, headers: dict[bytes, bytes], receive: Receive, held: HeldBytes
    ) -> bytes:
        """Return the body; raise an error if it is too large or not JSON."""
        limit = self._settings.max_body if path.startswith(MODEL_PREFIX) else MAX_BODY_WITHOUT_ROWS
        announced = headers.get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > limit:
            await _drain(receive, limit)
            raise _too_large(limit)
        body = await _read_body(receive, limit, held)
        media_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if body and media_type != b"application/json":
            # Pages of other sites can send other media types without a CORS preflight.
            raise ApiError(415, "not_json", "Send JSON, with the header Content-Type: application/json.")
        held.add(estimate_parsed_bytes(body))
        return body


class RequestWatch:
    """Cancels the task that answers a request when it takes too long or when the client disconnects.

    A quick request costs one or two timers; only a slower one gets a task that waits for the client to disconnect.
    """

    def __init__(self, receive: Receive, timeout: float, body_timeout: float) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._receive = task, receive
        self._timeout, self._body_timeout = timeout, body_timeout
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._watching: asyncio.Task | None = None
        self._reason: Exception | None = None

    def begin_body(self) -> None:
        """Start the time limit of the body."""
        self._timer = self._loop.call_later(self._body_timeout, self._cancel_body)

    def begin_answer(self) -> None:
        """Start the time limit of the answer."""
        self.end()
        self._timer = self._loop.call_later(min(SECONDS_BEFORE_WATCHING, self._timeout), self._start_watching)

    def end(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()
        if self._watching is not None:
            self._watching.cancel()

    def raise_reason(self) -> None:
        """Raise the error behind a cancellation, if this object cancelled the task."""
        if self._reason is not None and self._task.uncancel() == 0:
            raise self._reason from None

    def _cancel_body(self) -> None:
        seconds = self._body_timeout
        self._cancel(ApiError(408, "slow_request", f"The request body did not arrive within {seconds:g} s.", CLOSE))

    def _start_watching(self) -> None:
        self._watching = self._loop.create_task(self._watch())

    async def _watch(self) -> None:
        try:
            async with asyncio.timeout(max(0.0, self._timeout - SECONDS_BEFORE_WATCHING)):
                while (await self._receive())["type"] != "http.disconnect":
                    pass
        except TimeoutError:
            self._cancel(ApiError(504, "timeout", f"The answer took more than {self._timeout:g} s."))
        else:
            self._cancel(ClientGone())

    def _cancel(self, reason: Exception) -> None:
        self._reason = reason
        self._task.cancel()


def _digest(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()


def _host_name(headers: dict[bytes, bytes]) -> str:
    """Return the name in the Host header without the port; nothing if the header has more than a name and a port.

    >>> _host_name({b"host": b"LOCALHOST:8000"}), _host_name({b"host": b"[::1]:80"})
    ('localhost', '[::1]')
    >>> _host_name({b"host": b"[::1].evil.com"}), _host_name({b"host": b"localhost:80@evil.com"})
    ('', '')
    """
    match = HOST.fullmatch(headers.get(b"host", b""))
    return "" if match is None else match[1].decode("ascii").lower()


def _content_length(headers: Iterable[tuple[bytes, bytes]]) -> int:
    return next((int(value) for name, value in headers if name == b"content-length"), 0)


async def _send_in_pieces(message: Message, send: Send) -> None:
    """Send a large body piece by piece: each waits until the client has read most of those before it."""
    body = memoryview(message["body"])
    for start in range(0, len(body), PIECE_BYTES):
        piece = bytes(body[start : start + PIECE_BYTES])
        more = message.get("more_body", False) or start + PIECE_BYTES < len(body)
        await send({"type": "http.response.body", "body": piece, "more_body": more})


async def _read_body(receive: Receive, limit: int, held: HeldBytes) -> bytes:
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        parts.append(message.get("body", b""))
        held.add(len(parts[-1]))
        size += len(parts[-1])
        if size > limit:
            await _drain(receive, limit)
            raise _too_large(limit)
        if not message.get("more_body"):
            return parts[0] if len(parts) == 1 else b"".join(parts)


async def _drain(receive: Receive, limit: int) -> None:
    """Discard the rest of a body for a moment: a client reads the answer only after it has sent its request."""
    left = MAX_DRAINED_BODIES * limit
    with suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            while left > 0:
                message = await receive()
                if not message.get("more_body"):
                    return
                left -= len(message["body"])


def _too_large(limit: int) -> ApiError:
    return ApiError(413, "too_large", f"The body is too large; send at most {limit} bytes.", CLOSE)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a receive function that gives a body which was read before, and then the messages that follow."""
    replayed = False

    async def receive_again() -> Message:
        nonlocal replayed
        if replayed:
            return await receive()
        replayed = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again
