"""The served models by name, and rows of requests in the form that a model takes."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.estimators import MultiLabelEstimator, Tagger, load, set_device
from labelgap.gaps import LabelCooccurrence
from labelgap.observations import Labels
from labelgap.persistence import read_header
from labelgap.serve.schemas import ApiError, invalid_input
from labelgap.serve.settings import Settings

MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
MAX_FEATURES_IN_TABLE = 200_000  # a model with more unnamed features converts their keys one by one
MAX_LABELS_COMPARED = 5_000  # a model with more labels makes no suggestions for misspelt names
MAX_NAME_LENGTH_COMPARED = 100
ROW_FORMS = ("texts", "rows", "dense")


# --- models ---------------------------------------------------------------------------------------------------------


class ServedModel:
    """A fitted model, its name, and its label and feature names.

    Parameters
    ----------
    name : str
        The name of the model in request paths.
    model : estimator
        A fitted Tagger, or an estimator fitted on rows of features.
    version : str, optional
        The version of labelgap that saved the model.
    """

    def __init__(self, name: str, model: MultiLabelEstimator, version: str | None = None) -> None:
        if not MODEL_NAME.fullmatch(name):
            raise ValueError(
                f"The model name {name!r} is invalid; use letters, digits, dots, dashes and underscores."
            )
        if not model.n_features_in_:
            raise ValueError(f"The model {name} has no features, so it cannot score new rows; serve another model.")
        self.name, self.model, self.version = name, without_feature_names(model), version
        self.feature_names = getattr(model, "feature_names_in_", None)
        self.training_labels: Labels | None = None
        names = getattr(model, "label_names_in_", None)
        self.named_labels = names is not None
        self.label_names = [str(label) for label in (range(model.n_labels_) if names is None else names)]

    @cached_property
    def features(self) -> FeatureSpace:
        """The form of the model's rows."""
        n, texts = int(self.model.n_features_in_), isinstance(self.model, Tagger)
        dtype = np.dtype(self.model.dtype)
        if self.feature_names is not None:
            places = {str(feature): j for j, feature in enumerate(self.feature_names)}
            return FeatureSpace(texts, n, places, "feature names", dtype)
        numbers = DecimalKeys(n)
        table = numbers if n > MAX_FEATURES_IN_TABLE or texts else dict(numbers)  # a dict is faster
        return FeatureSpace(texts, n, table, f"feature numbers from 0 to {n - 1}", dtype)

    @cached_property
    def _label_numbers(self) -> dict[str, int]:
        return {name: j for j, name in reversed(list(enumerate(self.label_names)))}

    @cached_property
    def cooccurrence(self) -> LabelCooccurrence | None:
        """Co-occurrence of labels; None without training labels."""
        return None if self.training_labels is None else LabelCooccurrence(self.training_labels)

    def label_number(self, label: str | int) -> int:
        """Return the number of a label; the error for an unknown label names similar ones."""
        if isinstance(label, str):
            number = self._label_numbers.get(label)
            if number is None:
                raise invalid_input(
                    f"{label[:80]!r} is not a label of the model {self.name}{self._suggest_labels(label)}."
                )
            return number
        if not 0 <= label < len(self.label_names):
            raise invalid_input(
                f"There is no label {str(label)[:80]}; labels have the numbers 0 to {len(self.label_names) - 1}."
            )
        return label

    def _suggest_labels(self, label: str) -> str:
        if len(label) > MAX_NAME_LENGTH_COMPARED or len(self.label_names) > MAX_LABELS_COMPARED:
            return ""
        similar = difflib.get_close_matches(label, self.label_names, 3, 0.5)
        return f"; similar labels: {', '.join(map(repr, similar))}" if similar else ""

    def describe(self) -> dict[str, Any]:
        """Return the fields of :class:`~labelgap.serve.schemas.ModelInfo`."""
        inner = self.model.model_ if isinstance(self.model, Tagger) else self.model
        return {
            "name": self.name,
            "method": type(inner).__name__,
            "takes": "texts" if self.features.texts else "rows",
            "labels": len(self.label_names),
            "features": self.features.n,
            "named_labels": self.named_labels,
            "named_features": self.feature_names is not None,
            "threshold": 0.0,
            "version": self.version,
            "parameters": {key: value for key, value in inner.get_params(deep=False).items() if _is_plain(value)},
        }


class Models(Mapping[str, MultiLabelEstimator]):
    """Fitted models by name. Requests can name only these, so that a name is never used as a path."""

    def __init__(self, served: Sequence[ServedModel]) -> None:
        self.served = {model.name: model for model in served}
        if len(self.served) < len(served):
            names = ", ".join(sorted(model.name for model in served))
            raise ValueError(f"Two models have the same name ({names}); pass them as NAME=PATH.")
        if not served:
            raise ValueError("There is no model to serve; pass at least one.")

    def __getitem__(self, name: str) -> MultiLabelEstimator:
        return self.served[name].model

    def __iter__(self) -> Iterator[str]:
        return iter(self.served)

    def __len__(self) -> int:
        return len(self.served)

    def find(self, name: str) -> ServedModel:
        """Return the served model of a name; the error for an unknown name lists the models."""
        served = self.served.get(name)
        if served is None:
            names = ", ".join(list(self.served)[:20])
            raise ApiError(404, "no_such_model", f"There is no model {name[:80]!r}; the models are {names}.")
        return served


def open_models(sources: Sequence[str], *, check: bool = True, device: str = "auto") -> Models:
    """Load models from PATH or NAME=PATH; their arrays stay memory-mapped, so that processes share them."""
    served = []
    for name, path in map(split_model_source, sources):
        model = load(path, mmap=True, check=check)
        set_device(model, device)
        served.append(ServedModel(name, model, read_header(path).get("version")))
    return Models(served)


def split_model_source(source: str) -> tuple[str, Path]:
    """Return the name and the path of a model passed as PATH or NAME=PATH.

    >>> split_model_source("models/posts.labelgap")[0], split_model_source("mine=models/posts")[0]
    ('posts', 'mine')
    """
    before, equals, after = source.partition("=")
    if equals and after and not Path(source).exists():
        name, path = before, Path(after)
    else:
        path = Path(source)
        name = path.name.removesuffix(".labelgap")
    if not MODEL_NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is not a valid model name; pass NAME=PATH with a name of letters, digits, '.', '_' and '-'."
        )
    return name, path


def without_feature_names(model: MultiLabelEstimator) -> MultiLabelEstimator:
    """Return a copy of a model that does not warn about rows without feature names, as request rows are."""
    if not hasattr(model, "feature_names_in_"):
        return model
    model = copy(model)
    del model.feature_names_in_
    return model


def _is_plain(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, str | int)


# --- rows -----------------------------------------------------------------------------------------------------------


class FeatureSpace(NamedTuple):
    """The form of a model's rows.

    Attributes
    ----------
    texts : bool
        Whether rows are texts.
    n : int
        Number of features.
    places : mapping of str to int
        The number of each feature by its key in a sparse row.
    keys : str
        Description of these keys for error messages.
    dtype : dtype
        The model's data type.
    """

    texts: bool
    n: int
    places: Mapping[str, int]
    keys: str
    dtype: np.dtype


def rows_of_request(body: Any, settings: Settings) -> tuple[str, list[Any]]:
    """Return the form of a request's rows and the rows, after checking their number and length."""
    present = [(name, rows) for name in ROW_FORMS if (rows := getattr(body, name)) is not None]
    if len(present) != 1:
        raise invalid_input(f"Pass exactly one of texts, rows and dense; the request has {len(present)}.")
    name, rows = present[0]
    if not rows:
        raise invalid_input(f"{name} is empty; pass at least one row.")
    if len(rows) > settings.max_texts:
        raise ApiError(413, "too_many", f"{name} has {len(rows)} rows; pass at most {settings.max_texts} at a time.")
    if name == "texts":
        longest = max(range(len(rows)), key=lambda i: len(rows[i]))
        if len(rows[longest]) > settings.max_length:
            length = len(rows[longest])
            raise ApiError(
                413, "too_long", f"texts[{longest}] has {length} characters; pass at most {settings.max_length}."
            )
    return name, rows


def to_model_input(form: str, rows: list[Any], features: FeatureSpace) -> Any:
    """Return rows as a list of texts, a sparse matrix or an array; raise a 422 if they do not fit the model."""
    if (form == "texts") != features.texts:
        raise invalid_input(
            f"The model takes {'texts' if features.texts else 'rows or dense'}; the request has {form}."
        )
    if form == "texts":
        return rows
    return _to_sparse(rows, features) if form == "rows" else _to_dense(rows, features)


def _to_sparse(rows: list[dict[str, float]], features: FeatureSpace) -> sp.csr_array:
    starts = np.cumsum([0, *map(len, rows)])
    try:
        places = np.fromiter(map(features.places.__getitem__, chain.from_iterable(rows)), np.int64, starts[-1])
    except KeyError as error:
        key = str(error.args[0])[:80]
        number = next(i for i, row in enumerate(rows) if error.args[0] in row)
        raise invalid_input(f"rows[{number}] has the key {key!r}; the model's keys are {features.keys}.") from None
    values = np.fromiter(chain.from_iterable(map(dict.values, rows)), np.float64, starts[-1])
    X = sp.csr_array((_convert(values, features), places, starts), shape=(len(rows), features.n))
    X.sort_indices()
    return X


def _to_dense(rows: list[list[float | None]], features: FeatureSpace) -> NDArray:
    for i, row in enumerate(rows):
        if len(row) != features.n:
            raise invalid_input(f"dense[{i}] has {len(row)} numbers; the model has {features.n} features.")
    return _convert(np.array(rows, float), features)


def _convert(values: NDArray[np.float64], features: FeatureSpace) -> NDArray:
    """Return numbers in the model's data type; raise a 422 if it cannot hold one."""
    largest = float(np.finfo(features.dtype).max)
    wrong = values[np.abs(values) > largest]
    if wrong.size:
        raise invalid_input(f"The rows contain {wrong.flat[0]:g}; the largest accepted number is {largest:g}.")
    return values.astype(features.dtype)


class DecimalKeys(Mapping[str, int]):
    """A mapping of the decimal strings "0" to str(n − 1) to their numbers, without a table.

    >>> DecimalKeys(5)["3"], "05" in DecimalKeys(5), "5" in DecimalKeys(5)
    (3, False, False)
    """

    def __init__(self, n: int) -> None:
        self._n = n

    def __getitem__(self, key: str) -> int:
        number = int(key) if key.isdecimal() and len(key) < 20 else -1
        if str(number) != key or number >= self._n:
            raise KeyError(key)
        return number

    def __iter__(self) -> Any:
        return map(str, range(self._n))

    def __len__(self) -> int:
        return self._n
