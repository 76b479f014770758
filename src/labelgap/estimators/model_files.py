"""Fitted estimators from the header and values of a model file."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from labelgap.calibration import RowCalibration
from labelgap.estimators.base import CALIBRATION, NESTED, MultiLabelEstimator, PackedModel
from labelgap.observations import Container
from labelgap.persistence import ModelFileError


def restore_model(path: Any, header: dict[str, Any], values: dict[str, Any]) -> MultiLabelEstimator:
    """Return a fitted estimator from the header and values of a model file; ``path`` is named in errors."""
    model = _make_estimator(path, header)
    values = type(model)._upgrade_values(values)
    missing = _fitted_names(type(model)) - values.keys()
    if missing:
        raise ModelFileError(f"{path} lacks {', '.join(sorted(missing))}; save the model again.")
    try:
        container = Container(**values["container_"])
    except (KeyError, TypeError) as error:
        raise _header_error(path, header, error) from error
    values = {name: _unpack_nested(model, value) for name, value in values.items()}
    model.__dict__.update(values, container_=container)
    try:
        model._check_loaded()
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ModelFileError(f"{path} is inconsistent ({error}); save the model again.") from error
    return model


def _make_estimator(path: Any, header: dict[str, Any]) -> MultiLabelEstimator:
    """Return an unfitted estimator with the parameters of a header; some parameters may be estimators."""
    name = str(header.get("estimator"))
    exports = importlib.import_module("labelgap")
    if name in exports.__all__:
        getattr(exports, name)  # imports the class's module, so that the class is among the subclasses
    classes = {cls.__name__: cls for cls in _all_subclasses(MultiLabelEstimator)}
    if name not in classes:
        raise ModelFileError(
            f"{path} holds an estimator {name!r}, which this version of labelgap does not have; upgrade labelgap."
        )
    try:
        parameters = {
            key: _make_estimator(path, value) if isinstance(value, dict) and "estimator" in value else value
            for key, value in header["parameters"].items()
        }
        return classes[name](**parameters)
    except (AttributeError, KeyError, TypeError) as error:
        raise _header_error(path, header, error) from error


def _header_error(path: Any, header: dict[str, Any], error: Exception) -> ModelFileError:
    name = header.get("estimator")
    return ModelFileError(f"{path} has a header that does not fit {name} ({error}); save the model again.")


def _fitted_names(cls: type) -> set[str]:
    """Return the names of the fitted attributes that a class and its bases declare."""
    declared = (name for base in cls.__mro__ for name in vars(base).get("__annotations__", ()))
    return {name for name in declared if name.endswith("_") and not name.startswith("_")}


def _all_subclasses(cls: type) -> Iterator[type]:
    subclass: type
    for subclass in cls.__subclasses__():
        yield subclass
        yield from _all_subclasses(subclass)


def unpack_model(owner: MultiLabelEstimator, packed: PackedModel) -> Any:
    """Return the fitted estimator from these values; ``owner`` is named in errors."""
    return restore_model(f"The model within {type(owner).__name__}", packed["header"], packed["values"])


def _unpack_nested(owner: MultiLabelEstimator, value: Any) -> Any:
    if isinstance(value, list):
        return [_unpack_nested(owner, part) for part in value]
    if not isinstance(value, dict) or len(value) != 1:
        return value
    if CALIBRATION in value:
        try:
            return RowCalibration.from_values(value[CALIBRATION])
        except (KeyError, TypeError, ValueError) as error:
            raise ModelFileError(f"The calibration of {type(owner).__name__} is inconsistent ({error}).") from error
    return unpack_model(owner, value[NESTED]) if NESTED in value else value
