"""Which methods there are, and what each can take."""

from __future__ import annotations

from typing import Any

from labelgap import estimators, model_selection
from labelgap.estimators.about import About
from labelgap.estimators.base import MultiLabelEstimator


def list_methods() -> dict[str, About]:
    """Return the facts about every estimator of labels, by name.

    >>> list_methods()["LEML"].handles
    ['missing labels']
    """
    return {name: cls.about for name, cls in list_classes().items()}


def list_classes() -> dict[str, type[MultiLabelEstimator]]:
    """Return every estimator of labels, by name.

    >>> list_classes()["LEML"].__name__
    'LEML'
    """
    values: list[Any] = [getattr(room, name) for room in (estimators, model_selection) for name in room.__all__]
    classes = [value for value in values if isinstance(value, type) and issubclass(value, MultiLabelEstimator)]
    listed = sorted((cls for cls in classes if hasattr(cls, "about")), key=lambda cls: cls.__name__.casefold())
    return {cls.__name__: cls for cls in listed}


def find_methods(*, handles: str | None = None) -> dict[str, About]:
    """Return the methods that can take something: "missing labels", "positives only", "missing features", "graph".

    >>> "MC1" in find_methods(handles="missing features")
    True
    >>> find_methods(handles="magic")
    Traceback (most recent call last):
        ...
    ValueError: handles='magic' is nothing that methods differ in; choose from missing labels, positives only, ...
    """
    marks = About("", "", True, True, True, True).handles
    if handles is not None and handles not in marks:
        raise ValueError(f"handles={handles!r} is nothing that methods differ in; choose from {', '.join(marks)}.")
    return {name: about for name, about in list_methods().items() if handles is None or handles in about.handles}
