"""Checks of parameters: one clear error for each."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray


def check_number(name: str, value: Any, kind: type, *, least: float, optional: bool = False) -> None:
    """Refuse a parameter that is not a finite number of that kind and at least ``least``.

    >>> check_number("alpha", -1.0, float, least=0)
    Traceback (most recent call last):
        ...
    ValueError: alpha=-1.0 is out of range; pass a finite number of at least 0.
    """
    if optional and value is None:
        return
    if not isinstance(value, kind) or isinstance(value, bool) or not least <= value < np.inf:  # type: ignore[operator]
        what = "an integer" if kind is Integral else "a finite number"
        raise ValueError(f"{name}={value!r} is out of range; pass {what} of at least {least}.")


def check_k(k: Any, most: int, why: str = "") -> None:
    """Refuse a number of labels to return that is not an integer from 1 to ``most``; ``why`` leads up to that range.

    >>> check_k(7, 5, "there are 5 labels, so ")
    Traceback (most recent call last):
        ...
    ValueError: k=7 is out of range; there are 5 labels, so pass an integer from 1 to 5.
    """
    if not isinstance(k, Integral) or not 1 <= int(k) <= most:
        raise ValueError(f"k={k!r} is out of range; {why}pass an integer from 1 to {most}.")


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Refuse a parameter that is none of the choices.

    >>> check_choice("init", "magic", ("svd", "random"))
    Traceback (most recent call last):
        ...
    ValueError: init='magic' is not known; choose from ['svd', 'random'].
    """
    if value not in choices:
        raise ValueError(f"{name}={value!r} is not known; choose from {list(choices)}.")


def check_weights(name: str, values: Any, size: int) -> NDArray[np.float64]:
    """Return an array of that many finite numbers of at least 0, or say what is wrong.

    >>> check_weights("alpha", [1.0, -2.0], 2)
    Traceback (most recent call last):
        ...
    ValueError: alpha holds -2.0; pass finite numbers of at least 0.
    """
    try:
        array = np.asarray(values, float)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} holds what is no number ({error}); pass a number, or an array of {size}."
        ) from error
    if array.shape != (size,):
        raise ValueError(f"{name} has an array of shape {array.shape}; pass a number, or an array of {size}.")
    wrong = array[~((array >= 0) & (array < np.inf))]
    if wrong.size:
        raise ValueError(f"{name} holds {wrong[0]}; pass finite numbers of at least 0.")
    return array


def check_callbacks(callbacks: Any) -> None:
    """Refuse callbacks that are not a sequence of callables.

    >>> check_callbacks(print)
    Traceback (most recent call last):
        ...
    ValueError: callbacks=<built-in function print> is no sequence of callables; pass a list, such as [print].
    """
    if callbacks is None:
        return
    if not isinstance(callbacks, list | tuple) or not all(callable(one) for one in callbacks):
        raise ValueError(f"callbacks={callbacks!r} is no sequence of callables; pass a list, such as [print].")


def is_float_type(dtype: Any) -> bool:
    """Tell whether something names float32 or float64.

    >>> is_float_type("float32"), is_float_type(np.int32), is_float_type("quick")
    (True, False, False)
    """
    try:
        return dtype is not None and np.dtype(dtype) in (np.dtype("float32"), np.dtype("float64"))
    except TypeError:
        return False
