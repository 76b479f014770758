"""What the page and the server say to each other."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from labelgap.serve.schemas import Body, Reason

Key = Field(min_length=8, max_length=64, pattern="^[A-Za-z0-9-]+$", description="The sender's name of this entry.")


class VerdictIn(Body):
    """A verdict on a suggestion; sent again with the same key it is written once."""

    key: str = Key
    row: int = Field(ge=0, le=2**53)
    label: str = Field(max_length=10_000)
    verdict: Literal["accept", "reject", "skip"]


class UndoIn(Body):
    """Take back the entry with the key ``of``, or the newest one that stands."""

    key: str = Key
    of: str | None = Field(default=None, min_length=8, max_length=64)


class JobIn(Body):
    """Begin or stop work in the background."""

    action: Literal["start", "stop"]


class NothingIn(Body):
    """Nothing more to say."""


class SuggestionOut(BaseModel):
    """A label that is probably missing, or doubtful."""

    row: int
    label: str
    kind: Literal["missing", "doubtful"]
    probability: float


class Queue(BaseModel):
    """Suggestions in order."""

    suggestions: list[SuggestionOut]


class LabelOut(BaseModel):
    """A label with how many suggestions are open, and how many of them are expected to be right."""

    label: str
    open: int
    expected: float


class ReviewOut(BaseModel):
    """An entry of the log, what holds for its cell now, and the labels that its document has."""

    id: int
    key: str
    row: int
    label: str
    kind: Literal["missing", "doubtful"]
    probability: float
    verdict: str
    undoes: int | None
    undone_key: str | None
    holds: Literal["accept", "reject", "skip"] | None = Field(description="The verdict on the cell.")
    labels: list[str]


class Part(BaseModel):
    """A column of a document's text."""

    column: str
    text: str


class DocumentSuggestion(BaseModel):
    """A suggestion for a document, and the verdict on it."""

    label: str
    kind: str
    probability: float
    verdict: str | None


class Document(BaseModel):
    """A document: its text without markup, its labels with verdicts applied, and what is suggested."""

    row: int
    parts: list[Part]
    labels: list[str]
    suggestions: list[DocumentSuggestion]


class Piece(BaseModel):
    """A piece of text and how much it argues."""

    text: str
    weight: float


class Reasons(BaseModel):
    """Why a label: words, other labels, and the text cut where words argue."""

    decision: float
    words: list[Reason]
    labels: list[Reason]
    parts: list[list[Piece]]


class JobOut(BaseModel):
    """How far work in the background is."""

    state: Literal["idle", "running", "done", "stopped", "failed"]
    done: int
    total: int
    message: str


class Open(BaseModel):
    """How many suggestions are open, and how many of them are expected to be right."""

    open: int
    expected: float


class Counts(BaseModel):
    """Verdicts that hold now, and what is open."""

    accepted: int
    rejected: int
    skipped: int
    missing: Open
    doubtful: Open


class State(BaseModel):
    """What is under review, and how far it is."""

    model: str
    data: str
    rows: int
    labels: int
    audited: bool
    audit: JobOut
    counts: Counts


class Precision(BaseModel):
    """Accepted / (accepted + rejected) with its 95 % interval, and what was expected."""

    reviewed: int
    precision: float | None
    low: float | None
    high: float | None
    expected: float | None


class CurvePoint(BaseModel):
    """Precision after so many reviews, and what was expected."""

    reviewed: int
    precision: float
    expected: float


class CalibrationBin(BaseModel):
    """Mean predicted probability, share accepted, and number of reviews in a bin."""

    predicted: float
    accepted: float
    reviewed: int


class LabelCount(BaseModel):
    """How often a label is written, was added and taken away, and is still missing by estimate."""

    label: str
    written: int
    added: int
    removed: int
    missing: float | None


class Verdicts(BaseModel):
    """Verdicts that hold now."""

    accepted: int
    rejected: int
    skipped: int


class Stats(BaseModel):
    """What the reviews say so far."""

    counts: Verdicts
    precision: Precision
    curve: list[CurvePoint]
    calibration: list[CalibrationBin]
    labels: list[LabelCount]


class ComparisonOut(BaseModel):
    """A number before and after the reviews, on held-out documents or cells."""

    name: str
    before: float | None
    after: float | None
    judged: int
    greater_is_better: bool
    better: int | None = Field(description="How many only the model of the reviewed labels has right.")
    worse: int | None = Field(description="How many only the model of the labels as written has right.")


class RetrainOut(BaseModel):
    """How far retraining is, and what it brought."""

    job: JobOut
    accepted: int | None = None
    rejected: int | None = None
    comparisons: list[ComparisonOut] = []
    can_save: bool


class Saved(BaseModel):
    """Where a model was saved."""

    path: str
