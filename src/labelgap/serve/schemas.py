"""The bodies of requests and answers."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Number = Annotated[float, Field(allow_inf_nan=False)]
Row = Annotated[
    dict[str, Number], Field(description="A sparse row: values by the names of features, or by their numbers from 0.")
]
Label = Annotated[str | int, Field(description="A label by name, or by its number from 0.")]
Top = Annotated[
    int | None, Field(ge=1, description="So many labels of each row, the best first; without it those with a yes.")
]


class Body(BaseModel):
    """A request."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Rows(Body):
    """Rows in one of three forms."""

    texts: list[str] | None = Field(None, description="For a model of texts.")
    rows: list[Row] | None = Field(None, description="Sparse rows, for a model of features.")
    dense: list[list[Number | None]] | None = Field(
        None, description="A number for each feature; null is unknown, for models that take gaps in features."
    )


class PredictRequest(Rows):
    """Rows that want labels."""

    top: Top = None


class CompleteRequest(Rows):
    """Rows of which some labels are known."""

    known: list[dict[str, bool | None]] | None = Field(
        None, description="For each row the labels that are known, true or false; null and those left out are not."
    )
    top: Top = None


class AuditRequest(Rows):
    """Rows with the labels that they have."""

    labels: list[list[Label]]
    top: Top = None


class ExplainRequest(Body):
    """A row and a label that wants reasons."""

    text: str | None = None
    row: Row | None = None
    dense: list[Number | None] | None = None
    label: Label
    known: list[Label] = Field([], description="The labels that the row is known to have.")
    top: int = Field(10, ge=1, description="The most arguments of either kind.")


class Scored(BaseModel):
    """A label and its decision value: above 0 is a yes."""

    label: str
    score: float | None = Field(description="Null where it is no finite number.")


class Prediction(BaseModel):
    """The labels of a row, the best first."""

    labels: list[Scored]


class Predictions(BaseModel):
    """The labels of each row."""

    model: str
    predictions: list[Prediction]


class Completion(BaseModel):
    """The unknown cells of each row.

    The scores are decision values of the fitted model, not probabilities, and what is known of a row does not change
    them: to calibrate them, ``labelgap complete`` fits models on a table.
    """

    model: str
    completions: list[Prediction]


class Audited(BaseModel):
    """The labels that a row lacks and those it has, as far as the model disagrees."""

    missing: list[Scored] = Field(description="Labels that are not given, the highest score first.")
    doubtful: list[Scored] = Field(description="Given labels that the model says no to, the lowest score first.")


class Audits(BaseModel):
    """Forgotten and doubtful labels of each row, by the scores of the fitted model."""

    model: str
    audits: list[Audited]


class Reason(BaseModel):
    """What argues for a label, and how much; against it where negative."""

    name: str
    weight: float | None


class Explained(BaseModel):
    """Why a label is given or not."""

    model: str
    label: str
    decision: float | None = Field(description="Above 0 is a yes.")
    features: list[Reason] = Field(description="By how much the decision falls without each feature.")
    labels: list[Reason] = Field(description="What the known labels say, where the server knows training labels.")


class ModelInfo(BaseModel):
    """What a model is."""

    name: str
    method: str
    takes: str = Field(description="texts or rows")
    labels: int
    features: int
    named_labels: bool
    named_features: bool
    threshold: float = Field(description="A score above it is a yes.")
    version: str | None = Field(description="Of the labelgap that wrote it.")
    parameters: dict[str, Any]


class ModelList(BaseModel):
    """All models."""

    models: list[ModelInfo]


class LabelInfo(BaseModel):
    """A label and its number."""

    index: int
    label: str


class LabelList(BaseModel):
    """Some labels of a model."""

    model: str
    total: int = Field(description="How many match the query.")
    labels: list[LabelInfo]


class Health(BaseModel):
    """The server answers."""

    status: str
    version: str
    models: int


class Problem(BaseModel):
    """A code for machines, and what to do."""

    code: str
    message: str


class Failure(BaseModel):
    """Every answer that is no success."""

    error: Problem
