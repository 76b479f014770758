"""HTTP connections with limits: the size and the time of a request head, and clients that do not read."""

from __future__ import annotations

from collections import deque
from functools import cache
from typing import Any

from labelgap.serve.schemas import ApiError

HEADER_TIMEOUT_SECONDS = 15.0
MAX_HEAD_BYTES = 1 << 16  # of a request line with its headers, and of trailers
CLOSE_SECONDS = 1.0  # for an answer to a client that is cut off


class ConnectionLimits:
    """A mixin of uvicorn's protocol that refuses long heads, and ends connections that stay idle or unread for 15 s.

    Without the limits a client that sends its head byte by byte would keep the connection forever, one that sends an
    endless head would take all memory, and one that does not read would keep its answer in memory: closing a
    connection waits until everything is sent, so such a client is cut off instead.
    """

    transport: Any
    loop: Any
    cycle: Any
    _deadline: Any = None
    _unread = 0  # bytes that the client had not read at the last deadline
    _head_bytes = 0  # received since the last part of a body
    _brought_body = False
    _refused = False

    def connection_made(self, transport: Any) -> None:
        self._unanswered: deque[Any] = deque()  # cycles of requests, in the order in which they came
        super().connection_made(transport)  # type: ignore[misc]
        self._set_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        self._disconnect()
        super().connection_lost(exc)  # type: ignore[misc]

    def _disconnect(self) -> None:
        """Let all requests know that nobody reads their answers; uvicorn tells only the one that came last."""
        for cycle in self._unanswered:
            cycle.disconnected = True
            cycle.message_event.set()

    # --- heads ------------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._brought_body = False
        super().data_received(data)  # type: ignore[misc]
        if self._brought_body:
            self._head_bytes = 0
            return
        self._head_bytes += len(data)
        if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._refuse_head()

    def on_headers_complete(self) -> None:
        self._brought_body = True
        super().on_headers_complete()  # type: ignore[misc]
        self._unanswered.append(self.cycle)

    def on_body(self, body: bytes) -> None:
        self._brought_body = True
        super().on_body(body)  # type: ignore[misc]

    def on_message_complete(self) -> None:
        self._brought_body = True
        super().on_message_complete()  # type: ignore[misc]

    def _refuse_head(self) -> None:
        """Answer with a 431, unless an answer is under way, and end the connection."""
        self._refused = True
        self.transport.pause_reading()
        if self.cycle is None or self.cycle.response_complete:
            error = ApiError(431, "long_head", f"The head of the request is longer than {MAX_HEAD_BYTES} bytes.")
            body = error.response().body
            head = (
                "HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            self.transport.write(head.encode() + bytes(body))
        self.transport.close()
        self.loop.call_later(CLOSE_SECONDS, self.transport.abort)

    # --- idle connections and clients that do not read --------------------------------------------------------------

    def on_response_complete(self) -> None:
        self._unanswered.popleft()
        self._set_deadline()
        super().on_response_complete()  # type: ignore[misc]

    def _set_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._unread = self.transport.get_write_buffer_size()
        self._deadline = self.loop.call_later(HEADER_TIMEOUT_SECONDS, self._end_if_idle)

    def _end_if_idle(self) -> None:
        unread = self.transport.get_write_buffer_size()
        if unread:
            if unread >= self._unread > 0:
                self._disconnect()
                self.transport.abort()
                return
        elif self.cycle is None or self.cycle.response_complete:
            self.transport.close()
        self._set_deadline()


@cache
def make_protocol() -> type:
    """Return uvicorn's protocol with the limits; processes find it as ``labelgap.serve.protocol:LimitedProtocol``."""
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    return type("LimitedProtocol", (ConnectionLimits, HttpToolsProtocol), {"__module__": __name__})


def __getattr__(name: str) -> Any:
    if name == "LimitedProtocol":
        return make_protocol()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
