"""The application: routes, their documentation, and what to do about errors."""

from __future__ import annotations

import typing
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cache, cached_property
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from labelgap import __version__
from labelgap.runtime import threads
from labelgap.serve import Extension, schemas
from labelgap.serve.errors import ApiError, of_status
from labelgap.serve.limits import Guard
from labelgap.serve.metrics import Metrics
from labelgap.serve.models import Models
from labelgap.serve.service import Service
from labelgap.serve.settings import Settings

MODEL = "/v1/models/{name}"
FAILURES = {
    400: "No JSON.",
    401: "The token is missing or wrong.",
    404: "There is no such model.",
    408: "The request came in too slowly.",
    413: "The request is larger than the server allows.",
    415: "The body is of another type than JSON.",
    421: "The Host header has another server's name.",
    422: "The request makes no sense to the model.",
    503: "The server has too much to do.",
    504: "The answer took too long.",
}


def build(models: Models, settings: Settings, extensions: Sequence[Extension]) -> Any:
    """Return the application of some models."""
    metrics, open_paths = Metrics(), {"/health"}
    service = Service(models, settings, metrics)

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        # Some BLAS heed a limit of their threads only where the main thread sets it, which is the one that runs this.
        with threads(settings.n_threads):
            yield
            service.close()

    # The pages of documentation that FastAPI has load scripts from elsewhere.
    app = classes().Application(
        title="labelgap",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        dependencies=_token_documented() if settings.token is not None else [],
    )
    app.state.open_paths, app.state.model_names = open_paths, list(models)
    _add_routes(app, service)
    _add_error_handlers(app)
    for extension in extensions:
        extension(app, models, settings)
    app.guard = Guard(app.through, settings, metrics, open_paths)
    return app


def _token_documented() -> list[Any]:
    """Return what makes the documentation say that there is a token; the guard is who looks at it."""
    from fastapi import Depends
    from fastapi.security import HTTPBearer

    return [Depends(HTTPBearer(auto_error=False))]


def _add_routes(app: Any, service: Service) -> None:
    posts = [
        ("predict", service.predict, schemas.Predictions),
        ("complete", service.complete, schemas.Completion),
        ("audit", service.audit, schemas.Audits),
        ("explain", service.explain, schemas.Explained),
    ]
    for path, endpoint, model in posts:
        options = _documented(model, FAILURES)
        app.router.add_api_route(
            f"{MODEL}/{path}", endpoint, methods=["POST"], route_class_override=classes().JsonRoute, **options
        )
    anyone = (408, 413, 415, 421, 504)
    few = (401, *anyone)
    gets: list[tuple[str, Any, type | None, tuple[int, ...]]] = [
        ("/health", service.health, schemas.Health, anyone),
        ("/metrics", service.show_metrics, None, few),
        ("/v1/models", service.list_models, schemas.ModelList, few),
        (MODEL, service.describe, schemas.ModelInfo, (*few, 404)),
        (f"{MODEL}/labels", service.labels, schemas.LabelList, (*few, 404, 422)),
    ]
    for path, endpoint, shown, failures in gets:
        app.add_api_route(path, endpoint, methods=["GET"], **_documented(shown, failures))


def _documented(model: type | None, failures: Any) -> dict[str, Any]:
    """Return what the documentation says of a route's answers."""
    content = {"text/plain": {"schema": {"type": "string"}}}
    found: dict[int, Any] = {200: {"model": model} if model is not None else {"content": content}}
    for status in failures:
        found[status] = {"model": schemas.Failure, "description": FAILURES[status]}
    return {"responses": found, "response_model": None, "response_class": Response}


class Classes(NamedTuple):
    """Classes that are made where FastAPI is there."""

    Application: type
    JsonRoute: type


@cache
def classes() -> Classes:
    """Return the classes of our application and of its routes that take JSON."""
    from fastapi import FastAPI
    from fastapi.routing import APIRoute

    class JsonRoute(APIRoute):
        """A route with the parameters ``name`` and ``body``, which is parsed and checked in one step."""

        def get_route_handler(self) -> Any:
            self.adapter = TypeAdapter(typing.get_type_hints(self.endpoint)["body"])

            async def handle(request: Request) -> Response:
                found = await self.answer(request.path_params["name"], await request.body())
                return Response(found, media_type="application/json")

            return handle

        async def answer(self, name: str, body: bytes) -> bytes:
            return await self.endpoint(name, _checked(self.adapter, body))

    class Application(FastAPI):
        """FastAPI behind our guard, with a short way to the routes that take JSON."""

        guard: Any = None

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await self.guard(scope, receive, send)

        async def through(self, scope: Any, receive: Any, send: Any) -> None:
            """Answer what the guard lets in; what FastAPI does beside calling an endpoint takes longer than ours."""
            route = self._json_routes.get(scope["path"]) if scope.get("method") == "POST" else None
            if route is None:
                await super().__call__(scope, receive, send)
                return
            scope["route"] = route
            found = await route.answer(scope["path"].split("/")[3], (await receive())["body"])
            headers = [(b"content-length", str(len(found)).encode()), (b"content-type", b"application/json")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": found})

        @cached_property
        def _json_routes(self) -> dict[str, Any]:
            """The routes that take JSON, by their whole path for each model."""
            routes = [route for route in self.routes if isinstance(route, JsonRoute)]
            return {route.path.format(name=name): route for route in routes for name in self.state.model_names}

    return Classes(Application, JsonRoute)


def _checked(adapter: TypeAdapter, body: bytes) -> Any:
    try:
        return adapter.validate_json(body)
    except ValidationError as error:
        raise _invalid(error.errors(include_url=False, include_input=False, include_context=False)) from None


def _invalid(errors: Sequence[Any]) -> ApiError:
    """Return the first of some errors of validation as ours."""
    first = errors[0]
    if first["type"] == "json_invalid":
        return ApiError(400, "no_json", f"The body is no JSON: {first['msg']}.")
    where = ".".join(str(part)[:40] for part in first["loc"])
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return ApiError(422, "invalid", f"{where or 'The body'}: {first['msg']}{more}.")


def _add_error_handlers(app: Any) -> None:
    from fastapi.exceptions import RequestValidationError

    async def ours(request: Request, error: Any) -> Response:
        return error.response()

    async def plain(request: Request, error: Any) -> Response:
        return of_status(error.status_code, str(error.detail), error.headers).response()

    async def invalid(request: Request, error: Any) -> Response:
        return _invalid(error.errors()).response()

    app.add_exception_handler(ApiError, ours)
    app.add_exception_handler(HTTPException, plain)
    app.add_exception_handler(RequestValidationError, invalid)
