"""What a client did wrong, as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.responses import Response


class ApiError(Exception):
    """An answer that is no success: its status, a code for machines, and what to do about it."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = dict(headers or {})

    def response(self) -> Response:
        """Return it as a response."""
        return json_response({"error": {"code": self.code, "message": self.message}}, self.status, self.headers)


def unusable(message: str) -> ApiError:
    """Return the error of a body that is JSON of the right form and makes no sense to the model."""
    return ApiError(422, "unusable", message)


def busy() -> ApiError:
    """Return the error of a server that has too much to do."""
    return ApiError(503, "busy", "Too many requests wait already; try again in a second.", {"Retry-After": "1"})


def of_status(status: int, message: str, headers: Mapping[str, str] | None = None) -> ApiError:
    """Return the error of a status, with the code that its name makes.

    >>> of_status(404, "There is no page 3.").code
    'not_found'
    """
    return ApiError(status, HTTPStatus(status).phrase.lower().replace(" ", "_"), message, headers)


def json_response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response of plain ASCII JSON."""
    return Response(as_json(content), status, headers=dict(headers or {}), media_type="application/json")


def as_json(content: Any) -> bytes:
    r"""Return JSON in which no character could end a script that it is put into.

    >>> as_json("</script>é")
    b'"\\u003c/script\\u003e\\u00e9"'
    """
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").encode()
