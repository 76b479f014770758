"""The list of methods, with the facts about each."""

from __future__ import annotations

from typing import Any

from labelgap import baselines, estimators, model_selection
from labelgap.estimators.base import About, MultiLabelEstimator


def list_classes() -> dict[str, type[MultiLabelEstimator]]:
    """Return every multi-label estimator by name.

    >>> list_classes()["LEML"].__name__
    'LEML'
    """
    rooms = (estimators, baselines, model_selection)
    values: list[Any] = [getattr(room, name) for room in rooms for name in room.__all__]
    classes = [value for value in values if isinstance(value, type) and issubclass(value, MultiLabelEstimator)]
    described = sorted((cls for cls in classes if hasattr(cls, "about")), key=lambda cls: cls.__name__.casefold())
    return {cls.__name__: cls for cls in described}


def list_methods(*, handles: str | None = None) -> dict[str, About]:
    """Return the facts about every multi-label estimator by name, or about those that accept ``handles``.

    ``handles`` is "missing labels", "positives only", "missing features" or "graph".

    >>> list_methods()["LEML"].handles
    ['missing labels']
    >>> "MC1" in list_methods(handles="missing features")
    True
    >>> list_methods(handles="magic")
    Traceback (most recent call last):
        ...
    ValueError: handles='magic' is not a property of methods; choose from missing labels, positives only, ...
    """
    properties = About("", "", True, True, True, True).handles
    if handles is not None and handles not in properties:
        raise ValueError(f"handles={handles!r} is not a property of methods; choose from {', '.join(properties)}.")
    facts = {name: cls.about for name, cls in list_classes().items()}
    return {name: about for name, about in facts.items() if handles is None or handles in about.handles}
