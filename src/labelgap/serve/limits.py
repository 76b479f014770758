"""What stands before the application: who may ask, how much, and for how long."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

from labelgap.serve.errors import ApiError
from labelgap.serve.metrics import Metrics
from labelgap.serve.settings import Settings

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Any, Receive, Send], Awaitable[None]]

LOG = logging.getLogger("labelgap.serve")
WATCH_AFTER = 0.05  # seconds after which it is worth looking whether the client is still there
SECURITY = [
    (b"content-security-policy", b"default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]
DRAINED = 4  # times the largest body that is still taken from a client who sends more
DRAIN_SECONDS = 1.0
METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
CLOSE = {"Connection": "close"}


class Gone(Exception):
    """The client has hung up."""


class Guard:
    """An ASGI application around another one.

    It refuses other hosts' names, a wrong token, bodies that are too large, too slow or no JSON, and answers that
    take too long; it counts what was answered and adds headers that make browsers careful. A body is read as a whole
    before the application is asked, whether or not its length was announced. When the client goes away, the
    application's task is cancelled.

    Parameters
    ----------
    app : ASGI application
        What answers.
    settings : Settings
        The limits.
    metrics : Metrics
        Told of each request.
    open_paths : set of str
        What may be read without a token; an entry that ends in a slash stands for all that begins with it.
    """

    def __init__(self, app: App, settings: Settings, metrics: Metrics, open_paths: set[str]) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics
        self._open_paths, self._hosts = open_paths, settings.allowed_hosts
        self._token = None if settings.token is None else settings.token.encode()

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.perf_counter(), 0

        async def send_marked(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *SECURITY]
            await send(message)

        try:
            await self._answer(scope, receive, send_marked)
        except Gone:
            pass
        except Exception as error:
            if not isinstance(error, ApiError):
                LOG.exception("%s %s failed", scope["method"], scope["path"])
                error = ApiError(500, "internal", "Something went wrong here; the server's log says what.")
            if status == 0:
                await error.response()(scope, receive, send_marked)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if scope["method"] in METHODS else "other"  # clients can make up more of them
            self._metrics.answered(method, route, status, time.perf_counter() - start)

    async def _answer(self, scope: Any, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        self._check_caller(scope, headers)
        watch = Watch(receive, self._settings.timeout, self._settings.body_timeout)
        try:
            body = b""
            if b"content-length" in headers or b"transfer-encoding" in headers:
                watch.begin_body()
                body = await self._body(headers, receive)
            watch.begin_answer()
            await self._app(scope, _replay(body, receive), send)
        except asyncio.CancelledError:
            watch.explain()
            raise
        finally:
            watch.end()

    def _check_caller(self, scope: Any, headers: dict[bytes, bytes]) -> None:
        if self._hosts is not None and _host(headers) not in self._hosts:
            raise ApiError(
                421, "wrong_host", "This server does not answer to that name; call it as localhost.", CLOSE
            )
        if self._token is not None and not self._is_open(scope["path"]):
            scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
            if not (scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token)):
                wanted = {"WWW-Authenticate": "Bearer", **CLOSE}
                raise ApiError(401, "unauthorized", "Send the server's token as Authorization: Bearer TOKEN.", wanted)

    def _is_open(self, path: str) -> bool:
        return path in self._open_paths or any(
            len(one) > 1 and one.endswith("/") and path.startswith(one) for one in self._open_paths
        )

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        """Return the body, or refuse one that is too large, too slow or no JSON."""
        most = self._settings.max_body
        announced = headers.get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > most:
            await _drain(receive, most)
            raise _too_large(most)
        body = await _read(receive, most)
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if body and kind != b"application/json":
            # A page of another site can send other types without asking first.
            raise ApiError(415, "not_json", "Send JSON, with the header Content-Type: application/json.")
        return body


class Watch:
    """Cancels the task that answers a request when it takes too long, or when nobody waits for it any more.

    A quick request costs a timer or two; only for one that takes longer is there a task that waits for the client to
    hang up.
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
        """Give the body its time to come in."""
        self._timer = self._loop.call_later(self._body_timeout, self._give_up)

    def begin_answer(self) -> None:
        """Give the application its time."""
        self.end()
        self._timer = self._loop.call_later(min(WATCH_AFTER, self._timeout), self._start)

    def end(self) -> None:
        """Watch no longer."""
        if self._timer is not None:
            self._timer.cancel()
        if self._watching is not None:
            self._watching.cancel()

    def explain(self) -> None:
        """Raise what a cancellation was for, if it was ours."""
        if self._reason is not None and self._task.uncancel() == 0:
            raise self._reason from None

    def _give_up(self) -> None:
        seconds = self._body_timeout
        self._cancel(ApiError(408, "slow_request", f"The request did not come in within {seconds:g} s.", CLOSE))

    def _start(self) -> None:
        self._watching = self._loop.create_task(self._watch())

    async def _watch(self) -> None:
        try:
            async with asyncio.timeout(max(0.0, self._timeout - WATCH_AFTER)):
                while (await self._receive())["type"] != "http.disconnect":
                    pass
        except TimeoutError:
            self._cancel(ApiError(504, "timeout", f"There was no answer within {self._timeout:g} s."))
        else:
            self._cancel(Gone())

    def _cancel(self, reason: Exception) -> None:
        self._reason = reason
        self._task.cancel()


def _host(headers: dict[bytes, bytes]) -> str:
    """Return the name in the Host header, without the port.

    >>> _host({b"host": b"LOCALHOST:8000"}), _host({b"host": b"[::1]:80"})
    ('localhost', '[::1]')
    """
    host = headers.get(b"host", b"").decode("latin-1").lower()
    return host[: host.find("]") + 1] if host.startswith("[") else host.partition(":")[0]


async def _read(receive: Receive, most: int) -> bytes:
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            await _drain(receive, most)
            raise _too_large(most)
        if not message.get("more_body"):
            return b"".join(parts)


async def _drain(receive: Receive, most: int) -> None:
    """Throw away what still comes, for a moment: a client that cannot send to the end does not read the answer."""
    left = DRAINED * most
    with suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            while left > 0:
                message = await receive()
                if not message.get("more_body"):
                    return
                left -= len(message["body"])


def _too_large(most: int) -> ApiError:
    return ApiError(413, "too_large", f"The body is too large; send at most {most} bytes.", CLOSE)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a receive that gives the body that was read, and then what else there is."""
    told = False

    async def again() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
