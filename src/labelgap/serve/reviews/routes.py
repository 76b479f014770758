"""The routes under /review, with the bodies of their requests and answers."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal
from urllib.parse import quote

from pydantic import BaseModel, Field
from starlette.requests import Request

from labelgap.serve.jobs import Job
from labelgap.serve.reviews.review_data import MAX_LABEL_LENGTH, split_by_weight
from labelgap.serve.reviews.session import ReviewSession
from labelgap.serve.reviews.store import (
    MIN_PROBABILITY,
    EntryConflict,
    Group,
    Kind,
    Order,
    OtherReviewer,
    Status,
    StoreUnavailable,
    SuggestionQuery,
)
from labelgap.serve.schemas import ApiError, ErrorAnswer, Reason, RequestBody, invalid_input

MAX_SUGGESTIONS_PER_PAGE = 100
MAX_ROW = 2**53  # the largest integer that JavaScript represents exactly
FAILURES = {
    401: "The token is missing or wrong.",
    404: "There is no such document, label or suggestion.",
    408: "The request body arrived too slowly.",
    409: "This is not possible in the current state.",
    413: "The request is larger than the server allows.",
    415: "The body is not of the type application/json.",
    421: "The Host header names another server.",
    422: "The request is invalid.",
    500: "The file of reviews is damaged.",
    503: "The server is busy, or the file of reviews is not available; nothing was stored.",
    504: "The answer took too long.",
    507: "The disk is full, or the file of reviews cannot be written; nothing was stored.",
}
TAKES_JSON: Any = {"responses": {400: {"model": ErrorAnswer, "description": "The body is not valid JSON."}}}


def make_router(session: ReviewSession, model_name: str) -> Any:
    """Return the router of a review session."""
    from fastapi import APIRouter

    failures: dict[Any, Any] = {
        status: {"model": ErrorAnswer, "description": text} for status, text in FAILURES.items()
    }
    router = APIRouter(prefix="/review", tags=["review"], responses=failures)
    _add_verdicts(router, session)
    _add_state(router, session, model_name)
    _add_queue(router, session)
    _add_documents(router, session)
    _add_statistics(router, session)
    _add_exports(router, session)
    _add_retraining(router, session)
    return router


def not_found(message: str, code: str = "not_found") -> ApiError:
    """Return the error for something that does not exist."""
    return ApiError(404, code, message)


def conflict(error: Exception | str, code: str = "conflict") -> ApiError:
    """Return the error for something that is not possible in the current state."""
    return ApiError(409, code, str(error))


def nothing_to_undo(message: str = "There is nothing to undo.") -> ApiError:
    """Return the error for an undo without a verdict; its code tells it from a path that does not exist."""
    return not_found(message, "nothing_to_undo")


# --- verdicts -------------------------------------------------------------------------------------------------------

EntryId = Field(
    alias="key",
    min_length=8,
    max_length=64,
    pattern="^[A-Za-z0-9-]+$",
    description="A random id chosen by the sender.",
)
Reviewer = Field(
    default="", max_length=100, description="The name of the person; a server with tokens uses the token's name."
)


class VerdictIn(RequestBody):
    """A verdict on a suggestion; sending it again with the same key stores it once."""

    entry_id: str = EntryId
    row: int = Field(ge=0, le=MAX_ROW)
    label: str = Field(max_length=MAX_LABEL_LENGTH)
    verdict: Literal["accept", "reject", "skip"]
    data_id: str | None = Field(
        default=None,
        max_length=64,
        description="The data_id of the document that was judged; if the server has other data, it answers 409.",
    )
    reviewer: str = Reviewer
    settle: bool = Field(default=False, description="Whether it replaces the verdicts of everybody on the cell.")


class UndoIn(RequestBody):
    """An undo of the verdict with the key ``of``, or of the person's newest one."""

    entry_id: str = EntryId
    of: str | None = Field(default=None, min_length=8, max_length=64)
    reviewer: str = Reviewer


class Opinion(BaseModel):
    """The verdict of a person on a cell."""

    reviewer: str = Field(description="The name; empty without one.")
    verdict: Literal["accept", "reject", "skip"]
    made_at: str


class ReviewOut(BaseModel):
    """An entry of the log, the current verdict on its cell, and the current labels of its document."""

    id: int
    entry_id: str = Field(serialization_alias="key")
    row: int
    label: str
    kind: Kind
    probability: float
    verdict: str
    undoes: int | None
    undone_entry_id: str | None = Field(serialization_alias="undone_key")
    reviewer: str
    made_at: str
    settles: bool
    current: Literal["accept", "reject", "skip", "conflict"] | None = Field(
        description="The current verdict on the cell; conflict if people disagree, and then no verdict is applied."
    )
    opinions: list[Opinion] = Field(description="The verdict of each person on the cell.")
    labels: list[str]
    learned: int = Field(
        description="The newest entry of the log that the queue has learned from; if it changes, so does the order."
    )


@contextmanager
def entry_errors() -> Iterator[None]:
    """Turn the errors of storing an entry into answers."""
    try:
        yield
    except (EntryConflict, OtherReviewer) as error:
        raise conflict(error) from error
    except StoreUnavailable as error:
        raise ApiError(503, "reviews_unavailable", str(error)) from error


def name_of(request: Request, name: str) -> str:
    """Return the name behind the request's token; without tokens, the one that the request has."""
    token_name = request.scope.get("token_name")
    return " ".join(name.split()) if token_name is None else token_name


def _add_verdicts(router: Any, session: ReviewSession) -> None:
    from fastapi import Query

    store, data = session.store, session.data

    @router.post("/verdicts", **TAKES_JSON)
    def add_verdict(body: VerdictIn, request: Request) -> ReviewOut:
        """Store a verdict; the answer is sent after the verdict is on the disk.

        A verdict that differs from another person's is stored too. The cell is then in conflict, and neither is
        applied until a verdict with ``settle`` decides.
        """
        if body.data_id not in (None, data.data_id):
            raise conflict(
                f"The verdict on {body.label!r} of row {body.row} is about other data than {data.path.name}, which "
                "the server reviews now; start it with the former data to store this verdict.",
                "other_data",
            )
        try:
            suggestion = store.suggestion(body.row, body.label)
        except KeyError as error:
            raise not_found(error.args[0], "no_suggestion") from error
        with entry_errors():
            reviewer = name_of(request, body.reviewer)
            review = store.add(body.entry_id, suggestion, body.verdict, reviewer, settle=body.settle)
        session.learn_in_background()
        return ReviewOut(**session.review_answer(review))

    @router.post("/undo", **TAKES_JSON)
    def undo(body: UndoIn, request: Request) -> ReviewOut:
        """Revoke a verdict of one's own by a further entry."""
        with entry_errors():
            review = store.undo(body.entry_id, body.of, name_of(request, body.reviewer))
        if review is None:
            named = "There is no such verdict, or it was undone already; nothing was undone."
            raise nothing_to_undo() if body.of is None else nothing_to_undo(named)
        session.learn_in_background()
        return ReviewOut(**session.review_answer(review))

    @router.get("/newest")
    def newest(request: Request, reviewer: Annotated[str, Query(max_length=100)] = "") -> ReviewOut:
        """Show the person's newest verdict: the one that an undo without ``of`` revokes."""
        review = store.newest(reviewer=name_of(request, reviewer))
        if review is None:
            raise nothing_to_undo()
        return ReviewOut(**session.review_answer(review))


# --- state and audit ------------------------------------------------------------------------------------------------


class JobIn(RequestBody):
    """Start or stop a background job."""

    action: Literal["start", "stop"]


class JobOut(BaseModel):
    """State and progress of a background job."""

    state: Literal["idle", "running", "done", "stopped", "failed"]
    done: int
    total: int
    message: str


class OpenCount(BaseModel):
    """The number of open suggestions, and how many of them and of the hundred most probable ones should be right."""

    open: int
    expected: float
    next_hundred: float


class VerdictCounts(BaseModel):
    """The number of current verdicts."""

    accepted: int
    rejected: int
    skipped: int
    conflicts: int


class ReviewCounts(VerdictCounts):
    """The number of current verdicts and of open suggestions."""

    missing: OpenCount
    doubtful: OpenCount


class StateOut(BaseModel):
    """What is under review, and the progress of the review."""

    model: str
    data: str
    data_id: str = Field(description="Fingerprint of the data, its columns and its labels.")
    reviews: str = Field(description="Name of the file that holds the verdicts.")
    rows: int
    labels: int
    reviewer: str | None = Field(description="The name of the token; null if the person may choose a name.")
    audited: bool
    learned: int = Field(description="The newest entry of the log that the queue has learned from; 0 for none.")
    audit: JobOut
    counts: ReviewCounts


def job_out(job: Job) -> JobOut:
    """Return the progress of a job as an answer."""
    return JobOut(**job.progress._asdict())


def _add_state(router: Any, session: ReviewSession, model_name: str) -> None:
    from fastapi import Query

    @router.get("/state")
    def show_state(request: Request, least: Annotated[float, Query(ge=0, le=1)] = MIN_PROBABILITY) -> StateOut:
        """Show what is under review, and the progress of the review."""
        return StateOut(
            model=model_name,
            data=session.data.path.name,
            data_id=session.data.data_id,
            reviews=session.store.path.name,
            rows=len(session.data.texts),
            labels=len(session.data.label_names),
            reviewer=request.scope.get("token_name"),
            audited=session.audited,
            learned=session.learned,
            audit=job_out(session.audit_job),
            counts=ReviewCounts(**session.counts(least)),
        )

    @router.post("/audit", **TAKES_JSON)
    def control_audit(body: JobIn) -> JobOut:
        """Start an audit of the current labels, or stop the running one at its next progress report."""
        if body.action == "stop":
            session.audit_job.stop()
        elif not session.start_audit():
            raise conflict("An audit is running already.")
        return job_out(session.audit_job)


# --- queue ----------------------------------------------------------------------------------------------------------


class SuggestionOut(BaseModel):
    """A label that is probably missing or doubtful."""

    row: int
    label: str
    kind: Kind
    probability: float


class QueueOut(BaseModel):
    """Suggestions in order."""

    suggestions: list[SuggestionOut]


class LabelOut(BaseModel):
    """A label, the number of its open suggestions, and how many of them are expected to be right."""

    label: str
    open: int
    expected: float


def _add_queue(router: Any, session: ReviewSession) -> None:
    from fastapi import Query

    label_query = Query(max_length=MAX_LABEL_LENGTH)

    @router.get("/queue")
    def list_suggestions(
        kind: Kind = "missing",
        group: Group = "none",
        order: Order = "probability",
        status: Status = "open",
        label: Annotated[str | None, label_query] = None,
        row: Annotated[int | None, Query(ge=0, le=MAX_ROW)] = None,
        least: Annotated[float, Query(ge=0, le=1)] = MIN_PROBABILITY,
        limit: Annotated[int, Query(ge=1, le=MAX_SUGGESTIONS_PER_PAGE)] = 20,
        after_row: Annotated[int | None, Query(ge=0, le=MAX_ROW)] = None,
        after_label: Annotated[str | None, label_query] = None,
    ) -> QueueOut:
        """List suggestions in order: the first ones, or those that follow the suggestion after_row, after_label."""
        if (after_row is None) != (after_label is None):
            raise invalid_input("after_row and after_label name one suggestion together; pass both or neither.")
        after = None if after_row is None or after_label is None else (after_row, after_label)
        query = SuggestionQuery(kind, group, order, status, label, row, least)
        page = query.page(session.store, limit, after)
        return QueueOut(suggestions=[SuggestionOut(**suggestion._asdict()) for suggestion in page])

    @router.get("/labels")
    def list_labels(
        kind: Kind = "missing",
        status: Status = "open",
        least: Annotated[float, Query(ge=0, le=1)] = MIN_PROBABILITY,
    ) -> list[LabelOut]:
        """List the labels that have suggestions."""
        counts = SuggestionQuery(kind=kind, status=status, least=least).labels(session.store)
        return [LabelOut(label=label, open=number, expected=expected) for label, number, expected in counts]


# --- documents ------------------------------------------------------------------------------------------------------


class DocumentPart(BaseModel):
    """A text column of a document."""

    column: str
    text: str


class DocumentSuggestion(BaseModel):
    """A suggestion for a document, and the verdict on it."""

    label: str
    kind: str
    probability: float
    verdict: str | None
    opinions: list[Opinion] = Field(description="The verdict of each person, if they disagree.")


class DocumentOut(BaseModel):
    """A document: its text without markup, its labels with verdicts applied, and its suggestions."""

    row: int
    data_id: str
    parts: list[DocumentPart]
    labels: list[str]
    suggestions: list[DocumentSuggestion]


class WeightedText(BaseModel):
    """A segment of a text and its weight."""

    text: str
    weight: float


class ReasonsOut(BaseModel):
    """Reasons for a label: weights of words and of other labels, and the text in weighted segments."""

    decision: float
    words: list[Reason]
    labels: list[Reason]
    parts: list[list[WeightedText]]


def _add_documents(router: Any, session: ReviewSession) -> None:
    from fastapi import Path, Query

    row_path = Path(ge=0, le=MAX_ROW)
    data = session.data

    def check_row(row: int) -> None:
        if row >= len(data.texts):
            raise not_found(f"There is no document {row}; documents have the numbers 0 to {len(data.texts) - 1}.")

    @router.get("/documents/{row}")
    def show_document(row: Annotated[int, row_path]) -> DocumentOut:
        """Show a document."""
        check_row(row)
        return DocumentOut(**session.document(row))

    @router.get("/documents/{row}/reasons")
    def show_reasons(
        row: Annotated[int, row_path], label: Annotated[str, Query(max_length=MAX_LABEL_LENGTH)]
    ) -> ReasonsOut:
        """Show which words and other labels of a document speak for or against a label."""
        check_row(row)
        if label not in data.label_numbers:
            raise not_found(f"There is no label {label!r}.")
        explanation = data.explain(row, label)
        words, labels = (
            [Reason(**argument._asdict()) for argument in arguments]
            for arguments in (explanation.features, explanation.labels)
        )
        parts = [
            [WeightedText(**segment._asdict()) for segment in split_by_weight(text, explanation.features)]
            for _, text in data.text_parts(row)
        ]
        return ReasonsOut(decision=explanation.decision, words=words, labels=labels, parts=parts)


# --- statistics and exports -----------------------------------------------------------------------------------------


class PrecisionOut(BaseModel):
    """Accepted / (accepted + rejected) with its 95 % interval, and the expected precision."""

    reviewed: int
    precision: float | None
    low: float | None
    high: float | None
    expected: float | None


class CurvePoint(BaseModel):
    """Precision and expected precision after a number of reviews."""

    reviewed: int
    precision: float
    expected: float


class CalibrationBin(BaseModel):
    """Mean predicted probability, share accepted, and number of reviews in a bin."""

    predicted: float
    accepted: float
    reviewed: int


class LabelCount(BaseModel):
    """How often a label is in the file, was added and removed, and is probably still missing."""

    label: str
    written: int
    added: int
    removed: int
    missing: float | None


class RightOut(BaseModel):
    """How many of all suggestions of at least 10 % are right, with a 95 % interval, from a random sample of them."""

    number: float
    low: float
    high: float
    sampled: int


class StillMissing(BaseModel):
    """How many labels are still missing, also in words, and their share of the true labels, with 95 % intervals."""

    number: float
    low: float
    high: float
    share: float
    share_low: float
    share_high: float
    text: str


class StatsOut(BaseModel):
    """Statistics of the reviews."""

    counts: VerdictCounts
    precision: PrecisionOut
    curve: list[CurvePoint]
    calibration: list[CalibrationBin]
    next_hundred: float = Field(description="How many of the next hundred suggestions should be right.")
    right: RightOut | None = Field(description="Null until 20 suggestions of a random sample are decided.")
    still_missing: StillMissing | None = Field(description="Null until the audit is complete.")
    labels: list[LabelCount]


def _add_statistics(router: Any, session: ReviewSession) -> None:
    @router.get("/stats")
    def show_stats(kind: Kind = "missing") -> StatsOut:
        """Show the statistics of the reviews of one kind."""
        return StatsOut(**session.stats(kind))


def _add_exports(router: Any, session: ReviewSession) -> None:
    from fastapi import Response

    def download(name: str, content: bytes) -> Response:
        disposition = f"attachment; filename*=UTF-8''{quote(name)}"
        return Response(content, media_type="application/octet-stream", headers={"Content-Disposition": disposition})

    @router.get("/export/labels", response_class=Response)
    def export_labels() -> Response:
        """Download the table with verdicts applied, in the format of the file."""
        try:
            return download(*session.export_labels())
        except ValueError as error:
            raise conflict(error) from error

    @router.get("/export/log", response_class=Response)
    def export_log(format: Literal["csv", "jsonl"] = "csv") -> Response:
        """Download all entries of the log."""
        return download(*session.export_log(format))


# --- retraining -----------------------------------------------------------------------------------------------------


class ComparisonOut(BaseModel):
    """A measure on held-out documents or cells, with the labels as written and as reviewed."""

    name: str
    before: float | None
    after: float | None
    judged: int
    greater_is_better: bool
    better: int | None = Field(description="Number that only the model of the reviewed labels gets right.")
    worse: int | None = Field(description="Number that only the model of the labels as written gets right.")


class RetrainOut(BaseModel):
    """Progress of retraining, and its result once it is done."""

    job: JobOut
    accepted: int | None = None
    rejected: int | None = None
    comparisons: list[ComparisonOut] = []
    can_save: bool


class EmptyIn(RequestBody):
    """An empty body."""


class SavedOut(BaseModel):
    """The file name of a saved model."""

    path: str


def _add_retraining(router: Any, session: ReviewSession) -> None:
    @router.get("/retrain")
    def show_retraining() -> RetrainOut:
        """Show the progress of retraining and, once it is done, the comparison with the old model."""
        job, result = job_out(session.retrain_job), session.retrained
        if result is None:
            return RetrainOut(job=job, can_save=False)
        return RetrainOut(
            job=job,
            accepted=result.accepted,
            rejected=result.rejected,
            comparisons=[ComparisonOut(**comparison._asdict()) for comparison in result.comparisons],
            can_save=session.model_path is not None,
        )

    @router.post("/retrain", **TAKES_JSON)
    def control_retraining(body: JobIn) -> RetrainOut:
        """Start retraining on the reviewed labels, with a comparison on held-out documents, or stop it."""
        try:
            if body.action == "stop":
                session.retrain_job.stop()
            elif not session.start_retraining():
                raise conflict("Retraining is running already.")
        except ValueError as error:
            raise conflict(error) from error
        return show_retraining()

    @router.post("/retrain/save", **TAKES_JSON)
    def save_retrained(body: EmptyIn) -> SavedOut:
        """Save the retrained model next to the old one; no file is overwritten."""
        try:
            return SavedOut(path=session.save_retrained().name)
        except (ValueError, OSError) as error:
            raise conflict(error) from error
