"""Model files of scikit-learn pipelines that end with an estimator of labelgap."""

from __future__ import annotations

import importlib
import os
from typing import Any, NamedTuple

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from labelgap import __version__
from labelgap.estimators.base import (
    MultiLabelEstimator,
    pack_model,
    pack_parameter,
)
from labelgap.estimators.model_files import restore_model
from labelgap.persistence import ModelFileError, read_model, write_model

PIPELINE = "Pipeline"
# Transformers whose fitted state is numbers and words, so that a file without code can hold it.
TRANSFORMERS = {
    "CountVectorizer": "sklearn.feature_extraction.text",
    "HashingVectorizer": "sklearn.feature_extraction.text",
    "MaxAbsScaler": "sklearn.preprocessing",
    "MinMaxScaler": "sklearn.preprocessing",
    "Normalizer": "sklearn.preprocessing",
    "StandardScaler": "sklearn.preprocessing",
    "TfidfTransformer": "sklearn.feature_extraction.text",
    "TfidfVectorizer": "sklearn.feature_extraction.text",
    "TruncatedSVD": "sklearn.decomposition",
}


class PackedStep(NamedTuple):
    """A step of a pipeline as JSON (name, class, parameters) and as fitted values."""

    note: dict[str, Any]
    values: dict[str, Any]


def save(model: Any, path: str | os.PathLike, *, folder: bool = False) -> None:
    """Write a fitted estimator, or a scikit-learn pipeline that ends with one, to a file without pickle.

    A pipeline may hold these transformers of scikit-learn, with parameters that are no functions: CountVectorizer,
    HashingVectorizer, MaxAbsScaler, MinMaxScaler, Normalizer, StandardScaler, TfidfTransformer, TfidfVectorizer and
    TruncatedSVD. Any other step raises TypeError with its name, and nothing is written.

    Parameters
    ----------
    model : estimator or Pipeline
        Fitted.
    path : str or path
        The file, or with ``folder`` the folder.
    folder : bool, default=False
        Write a folder of files instead of a zip archive.

    Examples
    --------
    >>> import os, tempfile
    >>> from sklearn.feature_extraction.text import TfidfVectorizer
    >>> from sklearn.pipeline import make_pipeline
    >>> import labelgap
    >>> texts = ["crisp cookies", "smoked bacon"]
    >>> model = make_pipeline(TfidfVectorizer(), labelgap.LEML(1)).fit(texts, [[1, 0], [0, 1]])
    >>> with tempfile.TemporaryDirectory() as place:
    ...     labelgap.save(model, os.path.join(place, "model"))
    ...     again = labelgap.load(os.path.join(place, "model"))
    >>> bool((again.predict(texts) == model.predict(texts)).all())
    True
    """
    if isinstance(model, MultiLabelEstimator):
        model.save(path, folder=folder)
        return
    if not isinstance(model, Pipeline) or not isinstance(model[-1], MultiLabelEstimator):
        raise TypeError(
            f"{type(model).__name__} cannot be saved: pass an estimator of labelgap, or a scikit-learn pipeline "
            "that ends with one."
        )
    check_is_fitted(model[-1])
    steps = [pack_step(name, step) for name, step in model.steps]
    header = {"version": __version__, "estimator": PIPELINE, "steps": [step.note for step in steps]}
    write_model(path, header, {"steps_": [step.values for step in steps]}, folder=folder)


def load(path: str | os.PathLike, *, mmap: bool = False, check: bool = True, features: Any = None) -> Any:
    """Read an estimator that :meth:`MultiLabelEstimator.save` wrote, or a pipeline that :func:`labelgap.save` wrote.

    Parameters
    ----------
    path : str or path
        A model file or folder.
    mmap : bool, default=False
        Map arrays into memory and read them on first use; processes that load the same model share the memory.
    check : bool, default=True
        Verify checksums, which reads every byte once.
    features : transformer or encoder, optional
        The fitted ``features`` of a :class:`~labelgap.Tagger`, if its file could not hold them without pickle.

    Examples
    --------
    >>> import numpy as np, tempfile, os, labelgap
    >>> model = labelgap.LEML(n_components=1).fit(np.eye(3), np.array([[1, 0], [1, 0], [0, 1]]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(os.path.join(folder, "model"))
    ...     again = labelgap.load(os.path.join(folder, "model"))
    >>> bool((again.decision_function(np.eye(3)) == model.decision_function(np.eye(3))).all())
    True
    """
    header, values = read_model(path, mmap=mmap, check=check)
    if header.get("estimator") != PIPELINE:
        return _pass_features(path, restore_model(path, header, values), features)
    try:
        notes, parts = header["steps"], values["steps_"]
        return Pipeline([(n["name"], unpack_step(path, n, v)) for n, v in zip(notes, parts, strict=True)])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, ModelFileError):
            raise
        raise ModelFileError(f"{path} holds no complete pipeline ({error}); save the model again.") from error


def _pass_features(path: Any, model: Any, features: Any) -> Any:
    """Return a loaded model with the features that its file does not hold, which must be passed."""
    needs = getattr(model, "needs_features", False)
    if needs and features is None:
        raise ModelFileError(f"{path} holds a model without its features; {model.needs_features}")
    if features is not None and not needs:
        raise ValueError(f"features is passed, and the model of {path} needs none; leave it out.")
    return model.set_features(features) if needs else model


def pack_step(name: str, step: Any) -> PackedStep:
    """Return a step as JSON and values; raise TypeError if it can be neither."""
    if isinstance(step, MultiLabelEstimator):
        return PackedStep({"name": name, "class": "labelgap"}, pack_model(step))
    if step is None or step == "passthrough":
        return PackedStep({"name": name, "class": "passthrough"}, {})
    kind = type(step).__name__
    if kind not in TRANSFORMERS or not type(step).__module__.startswith("sklearn."):
        raise TypeError(
            f"The step {name!r} is a {kind}, which cannot be saved without pickle; a pipeline may hold "
            f"{', '.join(TRANSFORMERS)} before an estimator of labelgap. Save the last step alone, and apply the "
            "others yourself."
        )
    parameters = {key: pack_parameter(key, value) for key, value in step.get_params(deep=False).items()}
    values = {key: value for key, value in vars(step).items() if key.endswith("_")}
    if "vocabulary_" in values:  # a dict word → column; its words in the order of the columns hold the same
        values["vocabulary_"] = np.array(sorted(step.vocabulary_, key=step.vocabulary_.__getitem__), dtype=object)
    if hasattr(step, "_tfidf"):
        values["idf_"] = step._tfidf.idf_ if step.use_idf else None
    return PackedStep({"name": name, "class": kind, "parameters": parameters}, values)


def unpack_step(path: Any, note: dict[str, Any], values: dict[str, Any]) -> Any:
    """Return a fitted step from its JSON and values; ``path`` is named in errors."""
    kind = note["class"]
    if kind == "labelgap":
        return restore_model(path, values["header"], values["values"])
    if kind == "passthrough":
        return kind
    if kind not in TRANSFORMERS:
        raise ModelFileError(f"{path} holds a {kind}, which this version of labelgap cannot read; upgrade labelgap.")
    cls = _get_class(kind)
    defaults = cls().get_params(deep=False)
    step = cls(**{key: _like(defaults[key], value) for key, value in note["parameters"].items()})
    if "vocabulary_" in values:
        values["vocabulary_"] = {word: j for j, word in enumerate(values["vocabulary_"])}
    if kind == "TfidfVectorizer":
        idf, transformer = values.pop("idf_"), _get_class("TfidfTransformer")
        step._tfidf = transformer(
            norm=step.norm, use_idf=step.use_idf, smooth_idf=step.smooth_idf, sublinear_tf=step.sublinear_tf
        )
        step._tfidf.n_features_in_ = len(values["vocabulary_"])
        if idf is not None:
            step._tfidf.idf_ = idf
    vars(step).update(values)
    return step


def _get_class(kind: str) -> Any:
    return getattr(importlib.import_module(TRANSFORMERS[kind]), kind)


def _like(default: Any, value: Any) -> Any:
    """Return a JSON value in the type of the default, where JSON has no such type."""
    if isinstance(default, tuple):
        return tuple(value)
    return np.dtype(value).type if isinstance(default, type) else value
