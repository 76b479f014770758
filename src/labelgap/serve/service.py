"""What the routes do: each method is an endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

from pydantic import Field
from starlette.responses import Response

from labelgap import __version__
from labelgap.runtime import n_threads
from labelgap.serve import judging, schemas
from labelgap.serve.answers import Predictor, Rows
from labelgap.serve.batching import Batcher
from labelgap.serve.errors import ApiError, busy, json_response, unusable
from labelgap.serve.metrics import CONTENT_TYPE, Metrics
from labelgap.serve.models import Models, Served
from labelgap.serve.rows import given_form
from labelgap.serve.settings import Settings

MOST_JUDGING = 64  # requests of complete, audit and explain that may wait
MOST_LABELS = 1000  # labels of a listing


class Service:
    """Models, the queues before them, and the threads behind."""

    def __init__(self, models: Models, settings: Settings, metrics: Metrics) -> None:
        self.models, self.settings, self.metrics = models, settings, metrics
        self._predicting = ThreadPoolExecutor(min(len(models), n_threads()), thread_name_prefix="predict")
        self._judging = ThreadPoolExecutor(1, thread_name_prefix="judge")
        self._n_judging = 0
        self._batchers = {name: self._batcher(served) for name, served in models.served.items()}

    def _batcher(self, served: Served) -> Batcher:
        batcher = Batcher(
            Predictor(served, self.settings),
            self._predicting,
            size=self.settings.batch_size,
            wait=self.settings.batch_ms / 1000,
            queue=self.settings.queue,
        )
        batcher.observe = self.metrics.watch(served.name, lambda: batcher.n_waiting)
        return batcher

    def close(self) -> None:
        """Let what runs end, and begin nothing more."""
        for pool in (self._predicting, self._judging):
            pool.shutdown(wait=True, cancel_futures=True)

    async def health(self) -> Response:
        """Tell that the server answers."""
        return json_response({"status": "ok", "version": __version__, "models": len(self.models)})

    async def show_metrics(self) -> Response:
        """Return counts and times of this process in Prometheus' text format."""
        return Response(self.metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    async def list_models(self) -> Response:
        """List the models."""
        return json_response({"models": [served.info() for served in self.models.served.values()]})

    async def describe(self, name: str) -> Response:
        """Say what a model is."""
        return json_response(self.models.find(name).info())

    async def labels(
        self,
        name: str,
        query: Annotated[str, Field(max_length=200, description="Part of the name, in any case.")] = "",
        offset: Annotated[int, Field(ge=0)] = 0,
        limit: Annotated[int, Field(ge=1, le=MOST_LABELS)] = 100,
    ) -> Response:
        """List labels whose names hold a query."""
        served, wanted = self.models.find(name), query.lower()
        found = [(j, label) for j, label in enumerate(served.label_names) if wanted in label.lower()]
        shown = [{"index": j, "label": label} for j, label in found[offset : offset + limit]]
        return json_response({"model": name, "total": len(found), "labels": shown})

    async def predict(self, name: str, body: schemas.PredictRequest) -> bytes:
        """Give labels to rows."""
        served, rows = self.models.find(name), self._rows(body)
        return await self._batchers[served.name].submit(rows, len(rows.rows))

    async def complete(self, name: str, body: schemas.CompleteRequest) -> bytes:
        """Score the labels of rows that are not known.

        The scores are decision values of the fitted model, not probabilities; what is known does not change them.
        """
        served, rows = self.models.find(name), self._rows(body)
        return await self._judge(judging.complete, served, rows, body)

    async def audit(self, name: str, body: schemas.AuditRequest) -> bytes:
        """Find labels that rows lack and probably should have, and those that they have and should not.

        The scores are decision values of the fitted model, which may have seen the rows; `labelgap audit` judges the
        rows of a table by models that have not, and gives probabilities.
        """
        served, rows = self.models.find(name), self._rows(body)
        return await self._judge(judging.audit, served, rows, body)

    async def explain(self, name: str, body: schemas.ExplainRequest) -> bytes:
        """Say which features, and which known labels, argue for a label of a row."""
        served = self.models.find(name)
        self._check_top(body.top)
        whole = schemas.Rows(
            texts=None if body.text is None else [body.text],
            rows=None if body.row is None else [body.row],
            dense=None if body.dense is None else [body.dense],
        )
        rows = Rows(*given_form(whole, self.settings), None)
        return await self._judge(judging.explained, served, rows, body)

    def _rows(self, body: Any) -> Rows:
        self._check_top(body.top)
        return Rows(*given_form(body, self.settings), body.top)

    def _check_top(self, top: int | None) -> None:
        if top is not None and top > self.settings.max_top:
            raise unusable(f"top is {top}; pass at most {self.settings.max_top}.")

    async def _judge(self, work: Callable[..., Any], served: Served, rows: Rows, body: Any) -> Any:
        """Run what may take longer on a thread of its own, so that predictions do not wait for it."""
        if self._n_judging >= MOST_JUDGING:
            raise busy()
        self._n_judging += 1
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._judging, work, served, rows, body, self.settings)
        except ApiError:
            raise
        except (ValueError, TypeError) as error:  # scikit-learn's words for rows that a model cannot take
            raise unusable(str(error)) from error
        finally:
            self._n_judging -= 1
