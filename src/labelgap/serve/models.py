"""The models that are served, by name."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from labelgap.estimators import MultiLabelEstimator, Tagger, load
from labelgap.gaps.companions import Companions
from labelgap.observations import Labels
from labelgap.persistence import read_header
from labelgap.serve.errors import ApiError, as_json, unusable
from labelgap.serve.rows import Features, Numbers

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
MOST_KEYS = 200_000  # features beyond which there is no table of their numbers
MOST_COMPARED = 20_000  # labels, and characters of a name, beyond which nobody looks for near ones


class Served:
    """A fitted model with what requests need to know of it.

    Parameters
    ----------
    name : str
        By which requests call it.
    model : estimator
        Fitted on rows of features, or a Tagger.
    version : str, optional
        Of the labelgap that wrote it.
    """

    def __init__(self, name: str, model: MultiLabelEstimator, version: str | None = None) -> None:
        if not NAME.fullmatch(name):
            raise ValueError(f"The model name {name!r} must be of letters, digits, dots, dashes and underscores.")
        if not model.n_features_in_:
            raise ValueError(f"The model {name} has no features, so that new rows cannot be given to it.")
        self.name, self.model, self.version = name, nameless(model), version
        self.feature_names = getattr(model, "feature_names_in_", None)
        self.training_labels: Labels | None = None
        names = getattr(model, "label_names_in_", None)
        self.named_labels = names is not None
        self.label_names = [str(one) for one in (range(model.n_labels_) if names is None else names)]
        # What stands before the score of each label in an answer; a browser must not take a name for markup.
        self.beginnings = [f'{{"label":{as_json(one).decode()},"score":' for one in self.label_names]

    @cached_property
    def features(self) -> Features:
        """What its rows look like."""
        n, texts = int(self.model.n_features_in_), isinstance(self.model, Tagger)
        largest = float(np.finfo(self.model.dtype).max)
        if self.feature_names is not None:
            places = {str(one): j for j, one in enumerate(self.feature_names)}
            return Features(texts, n, places, "names of features", largest)
        numbers = Numbers(n) if n > MOST_KEYS or texts else dict(Numbers(n))  # a table is quicker
        return Features(texts, n, numbers, f"numbers from 0 to {n - 1}", largest)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: j for j, name in reversed(list(enumerate(self.label_names)))}

    @cached_property
    def companions(self) -> Companions | None:
        """Which labels go together, where training labels are known."""
        return None if self.training_labels is None else Companions(self.training_labels)

    def place(self, label: str | int) -> int:
        """Return the number of a label, or say which ones are near it."""
        if isinstance(label, str):
            found = self._places.get(label)
            if found is None:
                raise unusable(f"{label[:80]!r} is no label of the model {self.name}{self._near(label)}.")
            return found
        if not 0 <= label < len(self.label_names):
            raise unusable(f"There is no label {str(label)[:80]}; numbers go from 0 to {len(self.label_names) - 1}.")
        return label

    def _near(self, label: str) -> str:
        if len(label) > 100 or len(self.label_names) > MOST_COMPARED:
            return ""
        near = difflib.get_close_matches(label, self.label_names, 3, 0.5)
        return f"; near it are {', '.join(repr(one) for one in near)}" if near else ""

    def info(self) -> dict[str, Any]:
        """Return what the model is."""
        model = self.model
        inner = model.model_ if isinstance(model, Tagger) else model
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
    """Fitted models by name; nothing else can be asked for, so that a name in a request never is a path."""

    def __init__(self, served: Sequence[Served]) -> None:
        self.served = {one.name: one for one in served}
        if len(self.served) < len(served):
            names = sorted(one.name for one in served)
            raise ValueError(f"Two models have one name ({', '.join(names)}); pass them as NAME=PATH.")
        if not served:
            raise ValueError("There is no model to serve; pass at least one.")

    def __getitem__(self, name: str) -> MultiLabelEstimator:
        return self.served[name].model

    def __iter__(self) -> Iterator[str]:
        return iter(self.served)

    def __len__(self) -> int:
        return len(self.served)

    def find(self, name: str) -> Served:
        """Return a model with what requests need to know of it, or say which ones there are."""
        found = self.served.get(name)
        if found is None:
            there = ", ".join(list(self.served)[:20])
            raise ApiError(404, "no_such_model", f"There is no model {name[:80]!r}; there are {there}.")
        return found


def open_models(given: Sequence[str], *, check: bool = True) -> Models:
    """Load models from paths, or from NAME=PATH; their arrays stay in the files and are shared by all processes."""
    return Models([_open(*named(one), check) for one in given])


def named(given: str) -> tuple[str, Path]:
    """Return the name and the path of what a user gave.

    >>> named("models/posts.labelgap")[0], named("mine=models/posts")[0]
    ('posts', 'mine')
    """
    before, equals, after = given.partition("=")
    if equals and after and not Path(given).exists():
        name, path = before, Path(after)
    else:
        path = Path(given)
        name = path.name.removesuffix(".labelgap")
    if not NAME.fullmatch(name):
        raise ValueError(
            f"A model cannot be called {name!r}; pass NAME=PATH with a name of letters, digits, . _ and -."
        )
    return name, path


def _open(name: str, path: Path, check: bool) -> Served:
    return Served(name, load(path, mmap=True, check=check), read_header(path).get("version"))


def nameless(model: MultiLabelEstimator) -> MultiLabelEstimator:
    """Return a model that does not warn of rows without the names of features: those of requests have none left."""
    if not hasattr(model, "feature_names_in_"):
        return model
    model = copy(model)
    del model.feature_names_in_
    return model


def _is_plain(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, str | int)
