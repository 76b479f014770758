"""The application: its routes with their documentation, the endpoints, and the handling of errors."""

from __future__ import annotations

import asyncio
import sqlite3
import typing
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import cache, cached_property
from typing import Annotated, Any, NamedTuple

from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from labelgap import __version__
from labelgap.runtime import n_threads, threads
from labelgap.serve import Extension, schemas, scoring
from labelgap.serve.bodies import MAX_BODY_PARSED_AT_ONCE, parse_body
from labelgap.serve.jobs import AuditJobs
from labelgap.serve.middleware import LOG, Guard, Metrics
from labelgap.serve.schemas import ApiError, JsonBytes, error_of_status, invalid_input, json_response, server_busy
from labelgap.serve.scoring import Batcher, Predictor, RequestRows
from labelgap.serve.served_models import Models, ServedModel, rows_of_request
from labelgap.serve.settings import Settings

MODEL_PATH = "/v1/models/{name}"
MAX_WAITING_REQUESTS = 64  # of all routes except predict, which has queues of its own
MAX_LABELS_LISTED = 1000
MAX_SUGGESTIONS_LISTED = 1000
_PARSING = ThreadPoolExecutor(1, thread_name_prefix="parse")  # one at a time, since parsed bodies are large
FAILURES = {
    400: "The body is not valid JSON.",
    401: "The token is missing or wrong.",
    404: "There is no such model or job.",
    408: "The request body arrived too slowly.",
    413: "The request is larger than the server allows.",
    415: "The body is not of the type application/json.",
    421: "The Host header names another server.",
    422: "The request does not fit the model.",
    429: "Too many audit jobs are running.",
    501: "The server runs no audit jobs.",
    503: "The server has too many requests.",
    504: "The answer took too long.",
}
FAILURES_OF_ANY = (408, 413, 415, 421, 503, 504)
FAILURES_OF_GET = (401, *FAILURES_OF_ANY)
FAILURES_OF_POST = (400, *FAILURES_OF_GET, 404, 422)


def build_app(models: Models, settings: Settings, extensions: Sequence[Extension]) -> Any:
    """Return the application that serves some models."""
    metrics, open_paths, logged_paths = Metrics(), {"/health"}, set[str]()
    endpoints = Endpoints(models, settings, metrics)

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        # Some BLAS libraries accept a limit of their threads only from the main thread, which runs this.
        with threads(settings.n_threads):
            yield
            endpoints.close()

    app = make_classes().Application(
        title="labelgap",
        version=__version__,
        docs_url=None,  # FastAPI's pages load scripts from another host
        redoc_url=None,
        lifespan=lifespan,
        dependencies=_document_token() if settings.token is not None else [],
    )
    app.state.open_paths, app.state.logged_paths = open_paths, logged_paths
    app.state.model_names = list(models)
    _add_routes(app, endpoints)
    _add_error_handlers(app)
    for extension in extensions:
        extension(app, models, settings)
    app.guard = Guard(app.dispatch, settings, metrics, open_paths, logged_paths)
    return app


def _document_token() -> list[Any]:
    """Return a dependency that documents the token; the middleware checks it."""
    from fastapi import Depends
    from fastapi.security import HTTPBearer

    return [Depends(HTTPBearer(auto_error=False))]


# --- routes ---------------------------------------------------------------------------------------------------------


def _add_routes(app: Any, endpoints: Endpoints) -> None:
    def add(
        method: str,
        path: str,
        endpoint: Callable[..., Any],
        shape: type | None,
        failures: Sequence[int],
        status: int = 200,
        **options: Any,
    ) -> None:
        documentation = _document(shape, failures, status)
        app.router.add_api_route(path, endpoint, methods=[method], **documentation, **options)

    json_route: dict[str, Any] = {"route_class_override": make_classes().JsonRoute}
    jobs = f"{MODEL_PATH}/audit-jobs"
    checked = schemas.CheckLabelsAnswer
    post, get = FAILURES_OF_POST, FAILURES_OF_GET
    add("POST", f"{MODEL_PATH}/predict", endpoints.predict, schemas.PredictAnswer, post, **json_route)
    add("POST", f"{MODEL_PATH}/complete", endpoints.complete, schemas.CompleteAnswer, post, **json_route)
    add("POST", f"{MODEL_PATH}/check-labels", endpoints.check_labels, checked, post, **json_route)
    add("POST", f"{MODEL_PATH}/audit", endpoints.audit, checked, post, **json_route, deprecated=True)
    add("POST", f"{MODEL_PATH}/explain", endpoints.explain, schemas.ExplainAnswer, post, **json_route)
    add("POST", jobs, endpoints.start_audit, schemas.AuditJobAnswer, (*post, 429, 501), 202, **json_route)
    add("GET", f"{jobs}/{{job_id}}", endpoints.show_audit, schemas.AuditJobAnswer, (*get, 404, 422))
    add("DELETE", f"{jobs}/{{job_id}}", endpoints.delete_audit, None, (*get, 404), 204)
    add("GET", "/health", endpoints.health, schemas.Health, FAILURES_OF_ANY)
    add("GET", "/metrics", endpoints.show_metrics, None, get)
    add("GET", "/v1/models", endpoints.list_models, schemas.ModelList, get)
    add("GET", MODEL_PATH, endpoints.describe, schemas.ModelInfo, (*get, 404))
    add("GET", f"{MODEL_PATH}/labels", endpoints.labels, schemas.LabelList, (*get, 404, 422))


def _document(shape: type | None, failures: Sequence[int], status: int = 200) -> dict[str, Any]:
    """Return the options of a route that document its answers; an answer without a shape is text, or empty if 204."""
    text: dict[str, Any] = {"content": {"text/plain": {"schema": {"type": "string"}}}}
    success = {"model": shape} if shape is not None else {"description": "Deleted."} if status == 204 else text
    responses: dict[int, Any] = {status: success}
    for failure in failures:
        responses[failure] = {"model": schemas.ErrorAnswer, "description": FAILURES[failure]}
    return {"responses": responses, "response_model": None, "response_class": Response, "status_code": status}


class AppClasses(NamedTuple):
    """Subclasses of FastAPI's classes, which exist only if FastAPI is installed."""

    Application: type
    JsonRoute: type


@cache
def make_classes() -> AppClasses:
    """Return the classes of the application and of its routes that take JSON."""
    from fastapi import FastAPI
    from fastapi.routing import APIRoute

    class JsonRoute(APIRoute):
        """A route with the parameters ``name`` and ``body``; the body is parsed and checked in one step."""

        def get_route_handler(self) -> Any:
            self.body_class = typing.get_type_hints(self.endpoint)["body"]

            async def handle(request: Request) -> Response:
                return await self.answer(request.path_params["name"], await request.body())

            return handle

        async def answer(self, name: str, body: bytes) -> Response:
            if len(body) <= MAX_BODY_PARSED_AT_ONCE:
                return await self.endpoint(name, parse_body(self.body_class, body))
            loop = asyncio.get_running_loop()
            return await self.endpoint(name, await loop.run_in_executor(_PARSING, parse_body, self.body_class, body))

    class Application(FastAPI):
        """FastAPI behind the middleware, with a short path to the routes that take JSON."""

        guard: Any = None

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await self.guard(scope, receive, send)

        async def dispatch(self, scope: Any, receive: Any, send: Any) -> None:
            """Answer a request that passed the middleware.

            A request for one row takes 0.86 times as long as through FastAPI's own routing and middleware
            (``python -m benchmarks.serving json``).
            """
            route = self._json_routes.get(scope["path"]) if scope.get("method") == "POST" else None
            if route is None:
                await super().__call__(scope, receive, send)
                return
            scope["route"] = route
            response = await route.answer(scope["path"].split("/", 4)[3], (await receive())["body"])
            await response(scope, receive, send)

        @cached_property
        def _json_routes(self) -> dict[str, Any]:
            """The routes that take JSON by their whole path, for each model."""
            routes = [route for route in self.routes if isinstance(route, JsonRoute)]
            return {route.path.format(name=name): route for route in routes for name in self.state.model_names}

    return AppClasses(Application, JsonRoute)


# --- endpoints ------------------------------------------------------------------------------------------------------


class Endpoints:
    """The endpoints, one method each, with the models, their queues and the threads that do the work."""

    def __init__(self, models: Models, settings: Settings, metrics: Metrics) -> None:
        self.models, self.settings, self.metrics = models, settings, metrics
        self._prediction_threads = ThreadPoolExecutor(min(len(models), n_threads()), thread_name_prefix="predict")
        self._scoring_thread = ThreadPoolExecutor(1, thread_name_prefix="score")
        self._n_waiting = 0
        self._audits = AuditJobs(settings)
        self._batchers = {
            name: Batcher(
                Predictor(served, settings),
                self._prediction_threads,
                size=settings.batch_size,
                wait=settings.batch_ms / 1000,
                queue=settings.queue,
                **metrics.model_hooks(name),
            )
            for name, served in models.served.items()
        }

    def close(self) -> None:
        """Stop audits, finish running requests, and start no further ones."""
        self._audits.close()
        for pool in (self._prediction_threads, self._scoring_thread):
            pool.shutdown(wait=True, cancel_futures=True)

    async def health(self) -> Response:
        """Report that the server answers."""
        return json_response({"status": "ok", "version": __version__, "models": len(self.models)})

    async def show_metrics(self) -> Response:
        """Return counts and times of requests, summed over all workers, in the text format of Prometheus."""
        return Response(self.metrics.to_text(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def list_models(self) -> Response:
        """List the models."""
        return json_response({"models": [served.describe() for served in self.models.served.values()]})

    async def describe(self, name: str) -> Response:
        """Describe a model."""
        return json_response(self.models.find(name).describe())

    async def labels(
        self,
        name: str,
        query: Annotated[str, Field(max_length=200, description="Part of the label name, in any case.")] = "",
        offset: Annotated[int, Field(ge=0)] = 0,
        limit: Annotated[int, Field(ge=1, le=MAX_LABELS_LISTED)] = 100,
    ) -> Response:
        """List the labels whose names contain a query."""
        names, lowered = self.models.find(name).label_names, query.lower()

        def search() -> dict[str, Any]:
            matches = [(j, label) for j, label in enumerate(names) if lowered in label.lower()]
            page = [{"index": j, "label": label} for j, label in matches[offset : offset + limit]]
            return {"model": name, "total": len(matches), "labels": page}

        return json_response(await self._run(search))

    async def predict(self, name: str, body: schemas.PredictRequest) -> Response:
        """Predict the labels of rows."""
        served, request = self.models.find(name), self._read_rows(body, body.top)
        self._check_work(served, request)
        return JsonBytes(await self._batchers[served.name].submit(request, len(request.rows)))

    async def complete(self, name: str, body: schemas.CompleteRequest) -> Response:
        """Score the unknown labels of rows.

        Scores are decision values of the fitted model, not probabilities, and do not depend on the known labels.
        """
        served, request = self.models.find(name), self._read_rows(body, body.top)
        self._check_work(served, request)
        return JsonBytes(await self._run(scoring.answer_complete, served, request, body, self.settings))

    async def check_labels(self, name: str, body: schemas.CheckLabelsRequest) -> Response:
        """Score the labels of rows: which are missing, and which are doubtful, according to the fitted model.

        Scores are decision values of the fitted model, which may have been fitted on these rows. For probabilities by
        models that have not seen a row, start an audit job.
        """
        served, request = self.models.find(name), self._read_rows(body, body.top)
        self._check_work(served, request)
        return JsonBytes(await self._run(scoring.answer_check_labels, served, request, body, self.settings))

    async def audit(self, name: str, body: schemas.CheckLabelsRequest) -> Response:
        """Score the labels of rows; the former name of check-labels, which replaces it."""
        response = await self.check_labels(name, body)
        response.headers["Deprecation"] = "true"
        response.headers["Link"] = f'</v1/models/{name}/check-labels>; rel="successor-version"'
        return response

    async def explain(self, name: str, body: schemas.ExplainRequest) -> Response:
        """Explain a label of a row: the weights of its features and known labels."""
        served = self.models.find(name)
        rows = schemas.RowsRequest(
            texts=None if body.text is None else [body.text],
            rows=None if body.row is None else [body.row],
            dense=None if body.dense is None else [body.dense],
        )
        self._check_top(body.top)
        request = self._read_rows(rows, None)
        return JsonBytes(await self._run(scoring.answer_explain, served, request, body, self.settings))

    async def start_audit(self, name: str, body: schemas.AuditRequest) -> Response:
        """Start an audit of rows in the background: which labels are missing or doubtful, with probabilities.

        The audit is that of the command `labelgap audit`: models like this one are fitted on the rows of the request,
        and each scores the rows that it was not fitted on. The Location header has the address of the job.
        """
        served, request = self.models.find(name), self._read_rows(body, None)
        self._check_work(served, request, self.settings.max_work // 2)  # fitting takes memory too
        entry = await self._run(self._audits.start, served, request, body)
        location = {"Location": f"/v1/models/{name}/audit-jobs/{entry.id}"}
        return json_response(entry.to_json(0, 0), 202, location)

    async def show_audit(
        self,
        name: str,
        job_id: str,
        offset: Annotated[int, Field(ge=0, le=2**53, description="Rank of the first suggestion in each list.")] = 0,
        limit: Annotated[int, Field(ge=1, le=MAX_SUGGESTIONS_LISTED, description="Length of each list.")] = 100,
    ) -> Response:
        """Show the state and progress of an audit job and, once it is done, its result."""
        return json_response(self._audits.find(self.models.find(name).name, job_id).to_json(offset, limit))

    async def delete_audit(self, name: str, job_id: str) -> Response:
        """Cancel an audit job, or delete its result. A running job stops at its next progress report."""
        self._audits.delete(self.models.find(name).name, job_id)
        return Response(status_code=204)

    def _read_rows(self, body: Any, top: int | None) -> RequestRows:
        self._check_top(top)
        return RequestRows(*rows_of_request(body, self.settings), top)

    def _check_work(self, served: ServedModel, request: RequestRows, max_work: int | None = None) -> None:
        """Raise a 413 for more scores than the server computes, or returns, for one request."""
        n_rows, n_labels = len(request.rows), len(served.label_names)
        max_work = max_work or self.settings.max_work
        if n_rows > 1 and n_rows * n_labels > max_work:
            most = max(1, max_work // n_labels)
            raise ApiError(413, "too_many", f"{n_rows} rows have too many scores together; pass at most {most} rows.")
        if request.top is not None and n_rows * min(request.top, n_labels) > self.settings.max_cells:
            raise scoring.too_many_cells(n_rows, self.settings)

    def _check_top(self, top: int | None) -> None:
        if top is not None and top > self.settings.max_top:
            raise invalid_input(f"top is {top}; pass at most {self.settings.max_top}.")

    async def _run(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Run slower work in a thread of its own, so that predictions do not wait for it."""
        if self._n_waiting >= MAX_WAITING_REQUESTS:
            raise server_busy()
        self._n_waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._scoring_thread, work, *arguments)
        except ApiError:
            raise
        except (ValueError, TypeError) as error:  # estimators raise these for rows that they cannot take
            raise invalid_input(str(error)) from error
        finally:
            self._n_waiting -= 1


# --- errors ---------------------------------------------------------------------------------------------------------


def _validation_error(errors: Sequence[Any]) -> ApiError:
    """Return the answer for errors of validation; it describes the first one."""
    first = errors[0]
    if first["type"] == "json_invalid":
        return ApiError(400, "no_json", f"The body is not valid JSON: {first['msg']}.")
    where = ".".join(str(part)[:40] for part in first["loc"])
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return ApiError(422, "invalid", f"{where or 'The body'}: {first['msg']}{more}.")


def _storage_error(error: sqlite3.Error) -> ApiError:
    """Return the answer for an error of SQLite: busy, not writable, or damaged."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return ApiError(
            503, "storage_busy", "Another program uses the file; nothing was stored.", {"Retry-After": "2"}
        )
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN):
        return ApiError(507, "storage_full", f"The file cannot be written ({error}); nothing was stored.")
    return ApiError(500, "storage", "The file of reviews cannot be used; the server's log says why.")


def _add_error_handlers(app: Any) -> None:
    from fastapi.exceptions import RequestValidationError

    async def answer_api_error(request: Request, error: Any) -> Response:
        return error.response()

    async def answer_http_error(request: Request, error: Any) -> Response:
        return error_of_status(error.status_code, str(error.detail), error.headers).response()

    async def answer_validation_error(request: Request, error: Any) -> Response:
        return _validation_error(error.errors()).response()

    async def answer_storage_error(request: Request, error: Any) -> Response:
        LOG.error("%s %s: %s", request.method, request.url.path, error)
        return _storage_error(error).response()

    app.add_exception_handler(ApiError, answer_api_error)
    app.add_exception_handler(sqlite3.Error, answer_storage_error)
    app.add_exception_handler(HTTPException, answer_http_error)
    app.add_exception_handler(RequestValidationError, answer_validation_error)
