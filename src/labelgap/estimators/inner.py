"""A fitted estimator within another one, as the plain values and arrays that a model file holds."""

from __future__ import annotations

from typing import Any

from labelgap.estimators.base import MultiLabelEstimator, restored

Packed = dict[str, Any]


def pack(model: MultiLabelEstimator) -> Packed:
    """Return what a fitted estimator is made of."""
    return {"header": model._header(), "values": model._fitted_values()}


def unpack(owner: MultiLabelEstimator, packed: Packed) -> Any:
    """Return the fitted estimator of these values; ``owner`` is named where they do not fit."""
    return restored(f"The model within {type(owner).__name__}", packed["header"], packed["values"])
