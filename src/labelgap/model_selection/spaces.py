"""Where to look for the parameters of each method: the one place that says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

from labelgap.estimators import Tagger

Axes = dict[str, list[Any]]
WITHIN_TAGGER = "estimator__"  # before the names of parameters of the estimator of a Tagger


def powers(base: float, first: int, last: int) -> list[float]:
    """Return powers of a base from one exponent to another, both included.

    >>> powers(2, 1, -1)
    [2.0, 1.0, 0.5]
    """
    step = 1 if last >= first else -1
    return [float(base) ** power for power in range(first, last + step, step)]


# Parameters and their values, the one that makes a path first: from the strongest to the weakest, the order in which
# fits become dear. Ranks, trees and learners are not among them: more are better and cost more, which is for the user
# to weigh.
SPACES: dict[str, Axes] = {
    "BayesianCS": {"alpha": powers(4, 3, -6)},
    "BinaryRelevance": {"alpha": powers(4, 4, -9)},
    "CompressedSensing": {"alpha": powers(4, 3, -6)},
    "CPLST": {"alpha": powers(4, 3, -6)},
    "CSSP": {"alpha": powers(4, 3, -6)},
    "FastXML": {"alpha": powers(2, 2, -5), "max_leaf": [40, 20, 10, 5]},
    "LabelKNN": {"n_neighbors": [80, 40, 20, 10, 5], "weights": ["similarity", "uniform"]},
    "LabelwiseSVM": {"C": powers(4, -5, 5)},
    "LEML": {"alpha": powers(2, 10, -8)},
    "LocalLEML": {"alpha": powers(2, 8, -8)},
    "LPSR": {"alpha": powers(4, 2, -9), "n_candidates": [200, 100, 50]},
    "MC1": {"mu": powers(10, 0, -6), "label_weight": powers(10, 0, -3)},
    "MCb": {"mu": powers(10, 0, -6), "label_weight": powers(10, 0, -3)},
    "NaiveBayes": {"alpha": powers(10, 1, -4), "model": ["multinomial", "bernoulli"]},
    "OneClassMF": {"alpha": powers(2, 6, -6), "weight_unlabelled": powers(2, 0, -9)},
    "PLST": {"alpha": powers(4, 3, -6)},
    "SLEEC": {"alpha": powers(10, 1, -4), "n_neighbors": [80, 40, 20, 10, 5]},
    "WSABIE": {"alpha": [0.1, 0.03, 0.01, 0.003, 0.0], "learning_rate": [0.3, 0.1, 0.05, 0.03]},
}

# Methods that have no space of their own, and why.
WITHOUT: dict[str, str] = {
    "MC1CV": "it chooses mu and label_weight itself; tune MC1, or just fit it",
    "MCbCV": "it chooses mu and label_weight itself; tune MCb, or just fit it",
    "OneClassMFCV": "it chooses its weight, penalties and alternations itself; tune OneClassMF, or just fit it",
    "Tagger": "its space is that of its estimator",
}


def space_of(estimator: Any) -> Axes:
    """Return the default search space of an estimator; of a pipeline or a Tagger that of what learns within it.

    >>> from labelgap import LEML, Tagger
    >>> list(space_of(LEML())), list(space_of(Tagger(LEML())))
    (['alpha'], ['estimator__alpha'])
    """
    prefix, inner = learner_of(estimator)
    names = [cls.__name__ for cls in type(inner).__mro__]
    for name in names:
        if name in SPACES:
            return {f"{prefix}{parameter}": list(values) for parameter, values in SPACES[name].items()}
        if name in WITHOUT:
            raise ValueError(f"grid is None, and {name} has no search space: {WITHOUT[name]}.")
    raise ValueError(f"grid is None, and {names[0]} has no search space of its own; pass grid={{parameter: values}}.")


def learner_of(estimator: Any) -> tuple[str, Any]:
    """Return what meets the labels within pipelines and Taggers, and what its parameters are called from outside."""
    prefix, inner = "", estimator
    while True:
        if hasattr(inner, "steps"):
            prefix, inner = f"{prefix}{inner.steps[-1][0]}__", inner[-1]
        elif isinstance(inner, Tagger) and inner.estimator is not None:
            prefix, inner = f"{prefix}{WITHIN_TAGGER}", inner.estimator
        else:
            return prefix, inner


def path_of(estimator: Any) -> tuple[str, bool] | None:
    """Return the parameter that a path goes along, and whether it falls from strong to weak; None without one.

    >>> from labelgap import LabelwiseSVM, LEML
    >>> path_of(LEML()), path_of(LabelwiseSVM())
    (('alpha', True), ('C', False))
    """
    try:
        name, values = next(iter(space_of(estimator).items()))
    except ValueError:
        return None
    return name, values[0] > values[-1]


def with_own_values(axes: Axes, params: Mapping[str, Any]) -> Axes:
    """Return axes that hold the values an estimator has already, each at its place among the numbers.

    >>> with_own_values({"alpha": [4.0, 1.0]}, {"alpha": 2.0})
    {'alpha': [4.0, 2.0, 1.0]}
    """
    return {name: _with(values, params.get(name)) for name, values in axes.items()}


def along_path(axes: Mapping[str, Sequence[Any]], path: tuple[str, bool] | None) -> Axes:
    """Return axes with that of the path first and from strong to weak, where it is one of numbers.

    >>> along_path({"loss": ["squared"], "alpha": [1, 4, 2]}, ("alpha", True))
    {'alpha': [4, 2, 1], 'loss': ['squared']}
    """
    found = {name: list(values) for name, values in axes.items()}
    if path is None or path[0] not in found or not numbers(found[path[0]]):
        return found
    return {path[0]: sorted(found.pop(path[0]), reverse=path[1]), **found}


def numbers(values: Sequence[Any]) -> bool:
    """Tell whether values can be brought in order."""
    return all(isinstance(value, Real) and not isinstance(value, bool) for value in values)


def _with(values: list[Any], own: Any) -> list[Any]:
    if not numbers([*values, own]) or own in values:
        return values
    return sorted([*values, own], reverse=values[0] > values[-1])
