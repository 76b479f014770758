"""Checks of parameters, each of which raises ValueError with a clear message."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelgap.observations import Labels, label_propensities


def check_number(name: str, value: Any, kind: type, *, least: float, optional: bool = False) -> None:
    """Raise ValueError unless a parameter is a finite number of the type ``kind`` and at least ``least``.

    >>> check_number("alpha", -1.0, float, least=0)
    Traceback (most recent call last):
        ...
    ValueError: alpha=-1.0 is out of range; pass a finite number of at least 0.
    """
    if optional and value is None:
        return
    if not isinstance(value, kind) or isinstance(value, bool) or not least <= value < np.inf:  # type: ignore[operator]
        noun = "an integer" if kind is Integral else "a finite number"
        raise ValueError(f"{name}={value!r} is out of range; pass {noun} of at least {least}.")


def check_k(k: Any, most: int, reason: str = "") -> None:
    """Raise ValueError unless ``k`` is an integer from 1 to ``most``; ``reason`` explains the range.

    >>> check_k(7, 5, "there are 5 labels, so ")
    Traceback (most recent call last):
        ...
    ValueError: k=7 is out of range; there are 5 labels, so pass an integer from 1 to 5.
    """
    if not isinstance(k, Integral) or not 1 <= int(k) <= most:
        raise ValueError(f"k={k!r} is out of range; {reason}pass an integer from 1 to {most}.")


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Raise ValueError unless a parameter is one of the choices.

    >>> check_choice("init", "magic", ("svd", "random"))
    Traceback (most recent call last):
        ...
    ValueError: init='magic' is not known; choose from ['svd', 'random'].
    """
    if value not in choices:
        raise ValueError(f"{name}={value!r} is not known; choose from {list(choices)}.")


def choose_weights(row_weights: Any, sample_weight: Any) -> Any:
    """Return the weights of rows, which scikit-learn calls ``sample_weight``; raise ValueError for both."""
    if row_weights is not None and sample_weight is not None:
        raise ValueError("row_weights and sample_weight are two names of the same weights; pass only one.")
    weights = sample_weight if row_weights is None else row_weights
    if weights is not None and not np.any(np.asarray(weights)):
        raise ValueError("The weights of all rows are zero; pass a positive weight for some row.")
    return weights


def check_sample_weight(sample_weight: Any, n: int) -> NDArray[np.float64]:
    """Return the validated weights of n rows, 1 by default.

    >>> check_sample_weight(None, 2)
    array([1., 1.])
    """
    weights = choose_weights(None, sample_weight)
    return np.ones(n) if weights is None else check_weights("sample_weight", weights, n)


def check_weights(name: str, values: Any, size: int) -> NDArray[np.float64]:
    """Return an array of ``size`` finite numbers of at least 0.

    >>> check_weights("alpha", [1.0, -2.0], 2)
    Traceback (most recent call last):
        ...
    ValueError: alpha holds -2.0; pass finite numbers of at least 0.
    """
    try:
        array = np.asarray(values, float)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} holds a value that is not a number ({error}); pass a number, or an array of {size}."
        ) from error
    if array.shape != (size,):
        raise ValueError(f"{name} has an array of shape {array.shape}; pass a number, or an array of {size}.")
    invalid = array[~((array >= 0) & (array < np.inf))]
    if invalid.size:
        raise ValueError(f"{name} holds {invalid[0]}; pass finite numbers of at least 0.")
    return array


def check_dtype(dtype: Any) -> None:
    """Raise ValueError unless the dtype is float32 or float64.

    >>> check_dtype("int32")
    Traceback (most recent call last):
        ...
    ValueError: dtype='int32' is not supported; use 'float32' or 'float64'.
    """
    try:
        supported = dtype is not None and np.dtype(dtype) in (np.dtype("float32"), np.dtype("float64"))
    except TypeError:
        supported = False
    if not supported:
        raise ValueError(f"dtype={dtype!r} is not supported; use 'float32' or 'float64'.")


def check_propensity(propensity: Any, labels: Labels) -> NDArray[np.float64] | None:
    """Return the propensity of each label, given or estimated from its positives, or None.

    >>> check_propensity([0.5, 1.0], Labels([[1, 0]]))
    array([0.5, 1. ])
    """
    if propensity is None:
        return None
    if isinstance(propensity, str):
        if propensity != "counts":
            raise ValueError(f"propensity={propensity!r} is not known; pass 'counts' or one probability a label.")
        return np.asarray(label_propensities(labels.positives), float)
    values = np.asarray(propensity, float)
    if values.shape != labels.shape[1:] or not ((values > 0) & (values <= 1)).all():
        raise ValueError(
            f"propensity has shape {values.shape} and {labels.shape[1]} labels need one probability above 0 each."
        )
    return values


def weigh_positives(propensity: NDArray | None) -> NDArray[np.float64] | None:
    """Return 2/p − 1, the weights of positives with which a convex loss makes up for missing ones, or None.

    >>> weigh_positives(np.array([0.5, 1.0]))
    array([3., 1.])
    """
    return None if propensity is None else 2 / propensity - 1
