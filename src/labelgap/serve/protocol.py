"""Connections that must not be idle: the next head of a request has its time, as have body and answer."""

from __future__ import annotations

from functools import cache
from typing import Any

HEAD_TIMEOUT = 15.0


@cache
def make_protocol() -> type:
    """Return uvicorn's protocol with a limit on how long a connection may take to begin its next request.

    Without one, a client that sends its head a byte at a time keeps the connection for ever.
    """
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    class Impatient(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        """Closes a connection on which no request runs and none has begun in time."""

        _deadline: Any = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._arm()

        def connection_lost(self, exc: Exception | None) -> None:
            self._deadline.cancel()
            super().connection_lost(exc)

        def on_response_complete(self) -> None:
            self._arm()
            super().on_response_complete()

        def _arm(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
            self._deadline = self.loop.call_later(HEAD_TIMEOUT, self._close_idle)

        def _close_idle(self) -> None:
            if self.cycle is None or self.cycle.response_complete:
                self.transport.close()

    return Impatient


def __getattr__(name: str) -> Any:
    """Give ``Impatient`` to who asks for it by the name of this module, as uvicorn's workers do."""
    if name == "Impatient":
        return make_protocol()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
