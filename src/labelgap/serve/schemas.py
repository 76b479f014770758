"""Bodies of requests and answers, and errors as answers."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

Number = Annotated[float, Field(allow_inf_nan=False)]
SparseRow = Annotated[
    dict[str, Number], Field(description="A sparse row: values by feature name, or by feature number from 0.")
]
Label = Annotated[str | int, Field(description="A label: its name, or its number from 0.")]
Top = Annotated[
    int | None,
    Field(
        ge=1,
        description="Number of labels to return for each row, those with the largest scores (default: the predicted "
        "ones; a text without a word that the model knows has none).",
    ),
]


# --- requests -------------------------------------------------------------------------------------------------------


class RequestBody(BaseModel):
    """Base class of request bodies."""

    model_config = ConfigDict(extra="forbid", strict=True)


class RowsRequest(RequestBody):
    """Rows in one of three forms."""

    texts: list[str] | None = Field(None, description="Texts, for a model of texts.")
    rows: list[SparseRow] | None = Field(None, description="Sparse rows, for a model of features.")
    dense: list[list[Number | None]] | None = Field(
        None, description="Dense rows, one number for each feature; null is unknown, if the model accepts gaps."
    )


class PredictRequest(RowsRequest):
    """Rows to predict labels for."""

    top: Top = None


class CompleteRequest(RowsRequest):
    """Rows with some known labels."""

    known: list[dict[str, bool | None]] | None = Field(
        None, description="The known labels of each row, true or false; labels that are null or left out are unknown."
    )
    top: Top = None


class CheckLabelsRequest(RowsRequest):
    """Rows with the labels that they have."""

    labels: list[list[Label]] = Field(description="The labels of each row.")
    top: Top = None


class AuditRequest(RowsRequest):
    """Rows with the labels that they have, and the parameters of an audit."""

    labels: list[list[Label]] = Field(description="The labels of each row.")
    folds: int = Field(
        5, ge=2, le=20, description="Number of models; each scores the rows that it was not fitted on."
    )
    seed: int = Field(0, ge=0, lt=2**32, description="Seed of the folds and of the models.")


class ExplainRequest(RequestBody):
    """A row and the label to explain."""

    text: str | None = None
    row: SparseRow | None = None
    dense: list[Number | None] | None = None
    label: Label
    known: list[Label] = Field([], description="Labels that the row is known to have.")
    top: int = Field(10, ge=1, description="Maximum number of features, and of labels, in the explanation.")


# --- answers --------------------------------------------------------------------------------------------------------


class ScoredLabel(BaseModel):
    """A label and its decision value; the label is predicted if the value is above 0."""

    label: str
    score: float | None = Field(description="Null if it is not finite.")
    probability: float | None = Field(
        None, description="Probability that a person writes the label; absent if the model was not calibrated."
    )


class Prediction(BaseModel):
    """The labels of a row, most probable first; those of a model without probabilities by their scores."""

    labels: list[ScoredLabel]


class PredictAnswer(BaseModel):
    """The labels of each row."""

    model: str
    predictions: list[Prediction]


class CompleteAnswer(BaseModel):
    """The scores of the unknown labels of each row.

    Scores are decision values of the fitted model and do not depend on the known labels.
    ``labelgap complete`` fits models on a whole table and gives calibrated probabilities.
    """

    model: str
    completions: list[Prediction]


class CheckedRow(BaseModel):
    """The labels of a row on which the model disagrees."""

    missing: list[ScoredLabel] = Field(description="Labels that the row does not have, most probable first.")
    doubtful: list[ScoredLabel] = Field(
        description="Labels of the row with a score of 0 or less, least probable first."
    )


class CheckLabelsAnswer(BaseModel):
    """Missing and doubtful labels of each row, by the scores of the fitted model."""

    model: str
    audits: list[CheckedRow]


class AuditSuggestion(BaseModel):
    """A label of a row, and the probability that it is missing (or wrong)."""

    row: int
    label: str
    probability: float


class AuditResult(BaseModel):
    """The result of an audit: one page of both rankings, most probable first."""

    share_missing: float = Field(description="Estimated share of the true labels that are missing.")
    share_missing_interval: list[float] = Field(description="The 95 % interval of that share: low, high.")
    n_missing: int = Field(description="Length of the whole ranking of missing labels.")
    n_doubtful: int = Field(description="Length of the whole ranking of doubtful labels.")
    missing: list[AuditSuggestion]
    doubtful: list[AuditSuggestion]


class AuditJobAnswer(BaseModel):
    """State and progress of an audit job, and its result."""

    id: str
    model: str
    state: Literal["running", "done", "failed"]
    done: int = Field(description="Finished steps.")
    total: int = Field(description="All steps; 0 while their number is unknown.")
    message: str = Field(description="The current step, or why the job failed.")
    result: AuditResult | None = Field(
        description="While the job runs, the audit of the rows that are scored so far; null before there are any."
    )


class Reason(BaseModel):
    """A feature or label, and its weight for a label; a negative weight is evidence against it."""

    name: str
    weight: float | None


class ExplainAnswer(BaseModel):
    """Why a label is predicted or not."""

    model: str
    label: str
    decision: float | None = Field(description="Decision value; the label is predicted if it is above 0.")
    features: list[Reason] = Field(description="How much the decision value falls without each feature.")
    labels: list[Reason] = Field(description="Weights of the known labels; empty without training labels.")


class ModelInfo(BaseModel):
    """Description of a model."""

    name: str
    method: str
    takes: str = Field(description="texts or rows")
    labels: int
    features: int
    named_labels: bool
    named_features: bool
    threshold: float = Field(description="A label is predicted if its score is above the threshold.")
    version: str | None = Field(description="The version of labelgap that saved the model.")
    parameters: dict[str, Any]


class ModelList(BaseModel):
    """All models."""

    models: list[ModelInfo]


class LabelInfo(BaseModel):
    """A label and its number."""

    index: int
    label: str


class LabelList(BaseModel):
    """Labels of a model."""

    model: str
    total: int = Field(description="Number of labels that match the query.")
    labels: list[LabelInfo]


class Health(BaseModel):
    """State of the server."""

    status: str
    version: str
    models: int


class ErrorDetail(BaseModel):
    """A code for programs, and a message that says what to do."""

    code: str
    message: str


class ErrorAnswer(BaseModel):
    """Body of every answer that is not a success."""

    error: ErrorDetail


# --- JSON and errors ------------------------------------------------------------------------------------------------


def to_json(content: Any) -> bytes:
    r"""Return content as JSON without the characters that could end an HTML script.

    >>> to_json({"label": "</script>", "score": float("nan")})
    b'{"label":"\\u003c/script\\u003e","score":null}'
    """
    text = orjson.dumps(content)
    return text.replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")


def json_response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response."""
    return Response(to_json(content), status, headers=headers, media_type="application/json")


class ApiError(Exception):
    """An error answer: its status, a code for programs, and a message that says what to do."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = dict(headers or {})

    def response(self) -> Response:
        """Return the error as a response."""
        # The message may quote a lone surrogate from the request, which is not valid UTF-8.
        message = self.message.encode(errors="replace").decode()
        return json_response({"error": {"code": self.code, "message": message}}, self.status, self.headers)


def invalid_input(message: str) -> ApiError:
    """Return the error for a body of the right form that does not fit the model."""
    return ApiError(422, "unusable", message)


def server_busy(headers: Mapping[str, str] | None = None) -> ApiError:
    """Return the error for a request that exceeds a queue, or the memory for all requests."""
    message = "Too many requests are waiting; try again in a second."
    return ApiError(503, "busy", message, {"Retry-After": "1", **(headers or {})})


class JsonBytes(Response):
    """A response of JSON that is written already."""

    media_type = "application/json"

    def __init__(self, body: bytes) -> None:
        self.status_code, self.background, self.body = 200, None, body
        self.raw_headers = [
            (b"content-length", b"%d" % len(body)),
            (b"content-type", b"application/json"),
        ]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send the response."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body})


def error_of_status(status: int, message: str, headers: Mapping[str, str] | None = None) -> ApiError:
    """Return the error of an HTTP status, with a code made from its name.

    >>> error_of_status(404, "There is no page 3.").code
    'not_found'
    """
    return ApiError(status, HTTPStatus(status).phrase.lower().replace(" ", "_"), message, headers)
