"""Sources of features that a user passes to Tagger: scikit-learn transformers, encoders of texts, ready vectors."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import clone

from labelgap.estimators.pipelines import TRANSFORMERS, pack_step, unpack_step

VECTORS = "vectors"


@dataclass(frozen=True)
class FeatureSource:
    """A fitted transformer, an encoder or "vectors", as a function from rows of any form to features."""

    source: Any
    takes_texts: bool

    def __call__(self, X: Any) -> Any:
        """Return the features of rows, sparse or dense."""
        if isinstance(self.source, str):
            return _read_vectors(X)
        if hasattr(self.source, "encode"):
            return np.asarray(self.source.encode(list(X)))
        return self.source.transform(X)

    def get_names(self) -> NDArray | None:
        """Return the names of the features, if the source has them."""
        try:
            return np.asarray(self.source.get_feature_names_out(), dtype=object)
        except (AttributeError, ValueError):  # no such method, or one step of a pipeline has none
            return None


def check_source(source: Any) -> None:
    """Raise ValueError for what is neither a transformer, nor an encoder, nor "vectors"."""
    is_object = not isinstance(source, str | type) and (hasattr(source, "transform") or hasattr(source, "encode"))
    if source is None or is_object or is_missing(source) or (isinstance(source, str) and source == VECTORS):
        return
    raise ValueError(
        f"features={source!r} is no source of features; pass a transformer of scikit-learn, an object with "
        f"encode(texts), {VECTORS!r} if X holds vectors, or None for the words of texts."
    )


def fit_source(source: Any, X: Any) -> tuple[FeatureSource, Any]:
    """Return a source that was fitted to rows, and their features; a transformer is cloned first."""
    if is_missing(source):
        raise ValueError(f"The features of the model are not in its file; {explain_source(source)}")
    fitted = use_source(source, X)
    if isinstance(source, str) or hasattr(source, "encode"):
        return fitted, fitted(X)
    transformer = clone(source)
    rows = transformer.fit_transform(X)
    return FeatureSource(transformer, fitted.takes_texts), rows


def use_source(source: Any, X: Any = None) -> FeatureSource:
    """Return a source as it is; it takes texts if it encodes them or if X holds texts."""
    if isinstance(source, str):
        return FeatureSource(source, takes_texts=False)
    is_text = X is not None and len(X) > 0 and isinstance(next(iter(X)), str) and not hasattr(X, "columns")
    return FeatureSource(source, takes_texts=hasattr(source, "encode") or is_text)


def _read_vectors(X: Any) -> Any:
    """Return rows of numbers; each may be a list of numbers as JSON."""
    if sp.issparse(X) or len(getattr(X, "shape", ())) == 2:
        return X
    rows = [_read_vector(row, position) for position, row in enumerate(X)]
    lengths = {len(row) for row in rows}
    if len(lengths) > 1:
        raise ValueError(f"X holds vectors of {min(lengths)} to {max(lengths)} numbers; pass vectors of one length.")
    return np.array(rows)


def _read_vector(row: Any, position: int) -> NDArray:
    try:
        vector = np.asarray(json.loads(row) if isinstance(row, str) else row, float)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"X holds {str(row)[:40]!r} at position {position}, which is no vector of numbers."
        ) from error
    if vector.ndim != 1:
        raise ValueError(
            f"X holds a value of shape {vector.shape} at position {position}; pass a vector for each row."
        )
    return vector


# --- model files ----------------------------------------------------------------------------------------------------


def describe_source(source: Any) -> Any:
    """Return what a model file says about a source: "vectors", or the class that must be passed to load.

    >>> from sklearn.decomposition import NMF
    >>> describe_source(NMF())
    {'class': 'sklearn.decomposition._nmf.NMF'}
    """
    if source is None or isinstance(source, str | dict):
        return source
    return {"class": f"{type(source).__module__}.{type(source).__qualname__}"}


def is_missing(source: Any) -> bool:
    """Whether a source is only described: the file of the model could not hold it."""
    return isinstance(source, dict) and "class" in source


def explain_source(source: Any) -> str:
    """Return a sentence that asks for the source of a model file."""
    name = str(describe_source(source)["class"]).rpartition(".")
    return (
        f"it needs a fitted {name[2]} ({name[0]}), which cannot be saved without pickle: save it yourself, and pass "
        "it to labelgap.load(path, features=…)."
    )


def pack_source(source: FeatureSource) -> dict[str, Any] | None:
    """Return a fitted source as values of a model file, or None if a file without code cannot hold it."""
    if isinstance(source.source, str):
        return {"vectors": True}
    if type(source.source).__name__ not in TRANSFORMERS or not type(source.source).__module__.startswith("sklearn."):
        return None
    try:
        step = pack_step("features", source.source)
    except TypeError:  # a parameter is a function
        return None
    return {"note": json.dumps(step.note), "values": step.values, "takes_texts": source.takes_texts}


def unpack_source(packed: dict[str, Any]) -> FeatureSource:
    """Return the source of :func:`pack_source`."""
    if "vectors" in packed:
        return FeatureSource(VECTORS, takes_texts=False)
    step = unpack_step("The model", json.loads(packed["note"]), packed["values"])
    return FeatureSource(step, bool(packed["takes_texts"]))
