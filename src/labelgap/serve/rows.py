"""Rows of requests as a model takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.serve.errors import ApiError, unusable
from labelgap.serve.settings import Settings

FORMS = ("texts", "rows", "dense")


class Features(NamedTuple):
    """What the rows of a model look like.

    Attributes
    ----------
    texts : bool
        Whether they are texts.
    n : int
        The number of features.
    places : mapping of str to int
        The number of each feature by the key that it has in a sparse row.
    keys : str
        What such keys are, in words.
    largest : float
        The largest number that there is room for.
    """

    texts: bool
    n: int
    places: Mapping[str, int]
    keys: str
    largest: float


def given_form(body: Any, settings: Settings) -> tuple[str, list[Any]]:
    """Return the one form that the rows of a request have, and the rows, or say what is wrong with their number."""
    given = [(name, rows) for name in FORMS if (rows := getattr(body, name)) is not None]
    if len(given) != 1:
        raise unusable(f"Pass exactly one of texts, rows and dense; there are {len(given)}.")
    name, rows = given[0]
    if not rows:
        raise unusable(f"{name} is empty; pass at least one.")
    if len(rows) > settings.max_texts:
        raise ApiError(413, "too_many", f"{name} has {len(rows)} rows; pass at most {settings.max_texts} at a time.")
    if name == "texts":
        _check_lengths(rows, settings.max_length)
    return name, rows


def _check_lengths(texts: Sequence[str], most: int) -> None:
    longest = max(range(len(texts)), key=lambda i: len(texts[i]))
    if len(texts[longest]) > most:
        raise ApiError(
            413, "too_long", f"texts[{longest}] has {len(texts[longest])} characters; pass at most {most}."
        )


def as_input(form: str, rows: list[Any], features: Features) -> Any:
    """Return rows of one form as a model takes them, or say what is wrong with them."""
    if (form == "texts") != features.texts:
        raise unusable(f"The model takes {'texts' if features.texts else 'rows or dense'}, and {form} are given.")
    if form == "texts":
        return rows
    return _sparse(rows, features) if form == "rows" else _dense(rows, features)


def _sparse(rows: list[dict[str, float]], features: Features) -> sp.csr_array:
    starts = np.cumsum([0, *map(len, rows)])
    try:
        places = np.fromiter(map(features.places.__getitem__, chain.from_iterable(rows)), np.int64, starts[-1])
    except KeyError as error:
        key = str(error.args[0])[:80]
        row = next(i for i, one in enumerate(rows) if error.args[0] in one)
        raise unusable(f"rows[{row}] has the key {key!r}; the model's keys are {features.keys}.") from None
    values = np.fromiter(chain.from_iterable(map(dict.values, rows)), np.float64, starts[-1])
    _check_size(values, features)
    X = sp.csr_array((values, places, starts), shape=(len(rows), features.n))
    X.sort_indices()
    return X


def _dense(rows: list[list[float | None]], features: Features) -> NDArray[np.float64]:
    for i, row in enumerate(rows):
        if len(row) != features.n:
            raise unusable(f"dense[{i}] has {len(row)} numbers and the model {features.n} features.")
    found = np.array(rows, float)
    _check_size(found, features)
    return found


def _check_size(values: NDArray[np.float64], features: Features) -> None:
    """Refuse numbers that the model's type has no room for."""
    wrong = values[np.abs(values) > features.largest]
    if wrong.size:
        raise unusable(f"The rows hold {wrong.flat[0]:g}; the model takes numbers up to {features.largest:g}.")


class Numbers(Mapping[str, int]):
    """The numbers from 0 to n − 1 by how they are written, without a table of them.

    >>> Numbers(5)["3"], "05" in Numbers(5), "5" in Numbers(5)
    (3, False, False)
    """

    def __init__(self, n: int) -> None:
        self._n = n

    def __getitem__(self, key: str) -> int:
        number = int(key) if key.isdecimal() and len(key) < 20 else -1
        if str(number) != key or number >= self._n:
            raise KeyError(key)
        return number

    def __iter__(self) -> Any:
        return map(str, range(self._n))

    def __len__(self) -> int:
        return self._n
