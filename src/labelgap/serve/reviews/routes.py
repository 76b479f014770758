"""The addresses under /review."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from labelgap.serve.errors import ApiError, unusable
from labelgap.serve.reviews import schemas
from labelgap.serve.reviews.desk import Desk
from labelgap.serve.reviews.material import highlight
from labelgap.serve.reviews.queue import LEAST, Choice, Group, Kind, Order, Status
from labelgap.serve.reviews.store import KeyTaken, Review
from labelgap.serve.schemas import Failure

MOST_AT_ONCE = 100
FAILURES = {
    401: "The token is missing or wrong.",
    404: "There is no such document, label or suggestion.",
    408: "The request came in too slowly.",
    409: "That cannot be done now.",
    413: "The request is larger than the server allows.",
    415: "The body is of another type than JSON.",
    421: "The Host header has another server's name.",
    422: "The request makes no sense.",
    504: "The answer took too long.",
}
TAKES_JSON: Any = {"responses": {400: {"model": Failure, "description": "The body is no JSON."}}}


def make_router(desk: Desk, model_name: str) -> Any:
    """Return the router of a desk."""
    from fastapi import APIRouter

    failures = {status: {"model": Failure, "description": text} for status, text in FAILURES.items()}
    router = APIRouter(prefix="/review", tags=["review"], responses=failures)  # type: ignore[arg-type]
    _add_state(router, desk, model_name)
    _add_queue(router, desk)
    _add_documents(router, desk)
    _add_verdicts(router, desk)
    _add_statistics(router, desk)
    _add_exports(router, desk)
    _add_retraining(router, desk)
    return router


def not_found(message: str) -> ApiError:
    """Return the error of something that is not there."""
    return ApiError(404, "not_found", message)


def conflict(error: Exception | str) -> ApiError:
    """Return the error of something that cannot be done now."""
    return ApiError(409, "conflict", str(error))


def job_out(job: Any) -> schemas.JobOut:
    """Return how far a job is."""
    return schemas.JobOut(**job.progress._asdict())


def _add_state(router: Any, desk: Desk, model_name: str) -> None:
    from fastapi import Query

    @router.get("/state")
    def state(least: Annotated[float, Query(ge=0, le=1)] = LEAST) -> schemas.State:
        """Say what is under review and how far it is."""
        return schemas.State(
            model=model_name,
            data=desk.material.path.name,
            rows=len(desk.material.texts),
            labels=len(desk.material.label_names),
            audited=desk.audited,
            audit=job_out(desk.auditing),
            counts=schemas.Counts(**desk.counts(least)),
        )

    @router.post("/audit", **TAKES_JSON)
    def audit(wanted: schemas.JobIn) -> schemas.JobOut:
        """Begin an audit of the labels as they are now, or stop the one that runs before its next model."""
        if wanted.action == "stop":
            desk.auditing.stop()
        elif not desk.start_audit():
            raise conflict("An audit is running already.")
        return job_out(desk.auditing)


def _add_queue(router: Any, desk: Desk) -> None:
    from fastapi import Query

    chosen = Query(max_length=10_000)

    @router.get("/queue")
    def queue(
        kind: Kind = "missing",
        group: Group = "none",
        order: Order = "probability",
        status: Status = "open",
        label: Annotated[str | None, chosen] = None,
        row: Annotated[int | None, Query(ge=0, le=2**53)] = None,
        least: Annotated[float, Query(ge=0, le=1)] = LEAST,
        limit: Annotated[int, Query(ge=1, le=MOST_AT_ONCE)] = 20,
        after_row: Annotated[int | None, Query(ge=0, le=2**53)] = None,
        after_label: Annotated[str | None, chosen] = None,
    ) -> schemas.Queue:
        """List suggestions in order: the first ones, or those that follow the suggestion after_row, after_label."""
        if (after_row is None) != (after_label is None):
            raise unusable("after_row and after_label name one suggestion together; pass both or neither.")
        after = None if after_row is None or after_label is None else (after_row, after_label)
        choice = Choice(kind, group, order, status, label, row, least)
        found = [schemas.SuggestionOut(**one._asdict()) for one in choice.page(desk.store, limit, after)]
        return schemas.Queue(suggestions=found)

    @router.get("/labels")
    def labels(
        kind: Kind = "missing", status: Status = "open", least: Annotated[float, Query(ge=0, le=1)] = LEAST
    ) -> list[schemas.LabelOut]:
        """List the labels that have suggestions."""
        found = Choice(kind=kind, status=status, least=least).labels(desk.store)
        return [schemas.LabelOut(label=label, open=number, expected=sum_) for label, number, sum_ in found]


def _add_documents(router: Any, desk: Desk) -> None:
    from fastapi import Path, Query

    numbers = Path(ge=0, le=2**53)

    def check(row: int) -> None:
        if row >= len(desk.material.texts):
            raise not_found(f"There is no document {row}; they have the numbers 0 to {len(desk.material.texts) - 1}.")

    @router.get("/documents/{row}")
    def document(row: Annotated[int, numbers]) -> schemas.Document:
        """Show a document."""
        check(row)
        return schemas.Document(**desk.document(row))

    @router.get("/documents/{row}/reasons")
    def reasons(row: Annotated[int, numbers], label: Annotated[str, Query(max_length=10_000)]) -> schemas.Reasons:
        """Say which words and other labels of a document argue for a label."""
        check(row)
        if label not in desk.material.place:
            raise not_found(f"There is no label {label!r}.")
        found = desk.material.explain(row, label)
        parts = [
            [schemas.Piece(**piece._asdict()) for piece in highlight(text, found.features)]
            for _, text in desk.material.parts(row)
        ]
        words, others = ([schemas.Reason(**one._asdict()) for one in some] for some in (found.features, found.labels))
        return schemas.Reasons(decision=found.decision, words=words, labels=others, parts=parts)


def _add_verdicts(router: Any, desk: Desk) -> None:
    def answer(found: Review) -> schemas.ReviewOut:
        undone = desk.store.review(found.undoes).key if found.undoes is not None else None
        fields = {name: value for name, value in found._asdict().items() if name in schemas.ReviewOut.model_fields}
        holding = desk.store.holding(found.row, found.label)
        fields |= {"undone_key": undone, "holds": None if holding is None else holding.verdict}
        return schemas.ReviewOut(**fields, labels=desk.labels_now(found.row))

    def written(write: Callable[..., Review | None], *given: Any) -> schemas.ReviewOut:
        try:
            found = write(*given)
        except KeyTaken as error:
            raise conflict(error) from error
        if found is None:
            raise not_found("There is nothing to undo.")
        return answer(found)

    @router.post("/verdicts", **TAKES_JSON)
    def verdict(given: schemas.VerdictIn) -> schemas.ReviewOut:
        """Write a verdict; the answer comes when it is on the disk."""
        try:
            cell = desk.store.suggestion(given.row, given.label)
        except KeyError as error:
            raise not_found(error.args[0]) from error
        return written(desk.store.add, given.key, cell, given.verdict)

    @router.post("/undo", **TAKES_JSON)
    def undo(given: schemas.UndoIn) -> schemas.ReviewOut:
        """Take back a verdict by a further entry."""
        return written(desk.store.undo, given.key, given.of)

    @router.get("/newest")
    def newest() -> schemas.ReviewOut:
        """Show the newest verdict that stands, whoever gave it: the one that an undo without ``of`` takes back."""
        return written(desk.store.newest)


def _add_statistics(router: Any, desk: Desk) -> None:
    @router.get("/stats")
    def stats(kind: Kind = "missing") -> schemas.Stats:
        """Say what the reviews of one kind come to so far."""
        return schemas.Stats(**desk.stats(kind))


def _add_exports(router: Any, desk: Desk) -> None:
    from urllib.parse import quote

    from fastapi import Response

    def download(named: tuple[str, bytes]) -> Response:
        name, content = named
        disposition = f"attachment; filename*=UTF-8''{quote(name)}"
        return Response(content, media_type="application/octet-stream", headers={"Content-Disposition": disposition})

    @router.get("/export/labels", response_class=Response)
    def labels() -> Response:
        """Download the table with the verdicts applied, in the form of the file."""
        try:
            return download(desk.export_labels())
        except ValueError as error:
            raise conflict(error) from error

    @router.get("/export/log", response_class=Response)
    def log(format: Literal["csv", "jsonl"] = "csv") -> Response:
        """Download every entry of the log."""
        return download(desk.export_log(format))


def _add_retraining(router: Any, desk: Desk) -> None:
    def status() -> schemas.RetrainOut:
        found, job = desk.retrained, job_out(desk.retraining)
        if found is None:
            return schemas.RetrainOut(job=job, can_save=False)
        compared = [schemas.ComparisonOut(**one._asdict()) for one in found.comparisons]
        can_save = desk.model_path is not None
        return schemas.RetrainOut(
            job=job, accepted=found.accepted, rejected=found.rejected, comparisons=compared, can_save=can_save
        )

    @router.get("/retrain")
    def look() -> schemas.RetrainOut:
        """Say how far retraining is, and what it brought."""
        return status()

    @router.post("/retrain", **TAKES_JSON)
    def retrain(wanted: schemas.JobIn) -> schemas.RetrainOut:
        """Fit on the reviewed labels and compare on held-out documents, or stop that."""
        try:
            if wanted.action == "stop":
                desk.retraining.stop()
            elif not desk.start_retraining():
                raise conflict("Retraining is running already.")
        except ValueError as error:
            raise conflict(error) from error
        return status()

    @router.post("/retrain/save", **TAKES_JSON)
    def save(nothing: schemas.NothingIn) -> schemas.Saved:
        """Save the new model next to the old one; nothing is overwritten."""
        try:
            return schemas.Saved(path=desk.save_retrained().name)
        except (ValueError, OSError) as error:
            raise conflict(error) from error
