"""JSON bodies of requests, parsed and checked against their Pydantic classes up to the first error.

Pydantic itself collects every error before it returns: a million wrong items in a body of a few megabytes take
gigabytes and a minute. Here lists and objects of plain values are checked by the types of all their items at once,
and nothing is copied.
"""

from __future__ import annotations

import operator
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, TypeVar

import numpy as np
import orjson
from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel

from labelgap.serve.schemas import ApiError

MAX_CONTAINERS = 200_000  # lists and objects in a body; each takes twenty times as much memory as its text
MAX_VALUES = 500_000  # of a body; more are not parsed, since nothing else runs while Python builds them
MAX_PAIRS = 250_000  # of keys and values, which take longer
MAX_SMALL_BODY = 1 << 14  # bytes; the values of so small a body are not counted
MAX_BODY_PARSED_AT_ONCE = 1 << 16  # bytes; a larger one is parsed in a thread, so that others are answered meanwhile
# The bytes of a pair, a value, a list and an object, and how many there can be.
PARSED = {b":": (160, MAX_PAIRS), b",": (40, MAX_VALUES), b"[": (100, MAX_CONTAINERS), b"{": (100, MAX_CONTAINERS)}
NoneType = type(None)
_PLAIN = {float: (float, int), int: (int,), str: (str,), bool: (bool,), NoneType: (NoneType,)}
_KINDS = {float: "a number", int: "an integer", str: "a string", bool: "true or false", NoneType: "null"}

Body = TypeVar("Body", bound=BaseModel)
Checker = Callable[[Any, str], None]


def parse_body(cls: type[Body], body: bytes) -> Body:
    """Return the body of a request; raise a 400, 413 or 422 that describes the first error."""
    _check_structure(body)
    try:
        values = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ApiError(400, "no_json", f"The body is not valid JSON: {str(error)[:200]}.") from None
    if not isinstance(values, dict):
        raise _invalid("The body", "pass an object, such as {…}")
    checkers, required = _checkers_of(cls)
    for name, value in values.items():
        if name not in checkers:
            raise _invalid(name[:40], "there is no such field")
        checkers[name](value, name)
    for name in required:
        if name not in values:
            raise _invalid(name, "the field is required")
    return cls.model_construct(_fields_set=set(values), **values)


def estimate_parsed_bytes(body: bytes) -> int:
    """Return about how much memory the values of a body take; nothing for a small one.

    >>> estimate_parsed_bytes(b'{"dense":[[' + b"0.5," * 100_000 + b"0.5]]}")
    4000460
    """
    if len(body) <= MAX_SMALL_BODY:
        return 0
    return sum(n_bytes * min(body.count(mark), most) for mark, (n_bytes, most) in PARSED.items())


def _invalid(where: str, message: str) -> ApiError:
    return ApiError(422, "invalid", f"{where}: {message}.")


def _check_structure(body: bytes) -> None:
    """Raise a 413 for a body with too many values, keys, lists and objects, before memory is taken for them."""
    if len(body) <= MAX_CONTAINERS or _is_small(*map(body.count, (b"[", b"{", b",", b":"))):
        return
    marks = np.bincount(_bytes_outside_strings(body), minlength=256)
    if not _is_small(*(marks[ord(mark)] for mark in "[{,:")):
        raise ApiError(
            413,
            "too_many",
            f"The body has over {MAX_VALUES} values, {MAX_PAIRS} keys or {MAX_CONTAINERS} lists; send fewer rows.",
        )


def _is_small(n_lists: int, n_objects: int, n_commas: int, n_colons: int) -> bool:
    return n_lists + n_objects <= MAX_CONTAINERS and n_commas <= MAX_VALUES and n_colons <= MAX_PAIRS


def _bytes_outside_strings(body: bytes) -> Any:
    """Return the bytes of JSON that are not within its strings, as an array; NumPy lets other threads run.

    >>> bytes(_bytes_outside_strings(b'["a,", "[b"]'))
    b'[", "]'
    """
    text = np.frombuffer(body.replace(b"\\\\", b"").replace(b'\\"', b""), np.uint8)
    inside = np.cumsum(text == ord('"'), dtype=np.uint8) & 1  # an odd number of quotes so far
    return text[inside == 0]


# --- checkers -------------------------------------------------------------------------------------------------------


@cache
def _checkers_of(cls: type[BaseModel]) -> tuple[Mapping[str, Checker], list[str]]:
    """Return the checker of each field, and the names of the required ones."""
    hints, fields = typing.get_type_hints(cls, include_extras=True), cls.model_fields
    checkers = {name: _with_bounds(make_checker(hints[name]), field.metadata) for name, field in fields.items()}
    return checkers, [name for name, field in fields.items() if field.is_required()]


@cache
def make_checker(annotation: Any) -> Checker:
    """Return a function that raises a 422 unless a value is of a type: plain values, lists, objects and unions.

    >>> make_checker(list[int | None])([1, None, 2], "numbers")
    >>> make_checker(list[int | None])([1, "2"], "numbers")
    Traceback (most recent call last):
        ...
    labelgap.serve.schemas.ApiError: numbers.1: pass an integer or null.
    """
    plain = _plain_types(annotation)
    if plain is not None:
        return _check_plain(plain)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        bounds = [entry for part in arguments[1:] for entry in getattr(part, "metadata", [part])]
        return _with_bounds(make_checker(arguments[0]), bounds)
    if origin is list:
        return _check_list(arguments[0])
    if origin is dict:
        return _check_object(arguments[1])
    if origin in (typing.Union, types.UnionType):
        (inner,) = [part for part in arguments if part is not NoneType]
        return _or_null(make_checker(inner))
    raise TypeError(f"bodies cannot have the type {annotation}")


def _plain_types(annotation: Any) -> tuple[type, ...] | None:
    """Return the members of a plain type or a union of plain types without bounds, or None."""
    if annotation in _PLAIN:
        return (annotation,)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated and not any(_bounds_of(part) for part in arguments[1:]):
        return _plain_types(arguments[0])
    if origin in (typing.Union, types.UnionType):
        parts = [_plain_types(part) for part in arguments]
        return None if None in parts else tuple(member for part in parts if part for member in part)
    return None


def _bounds_of(part: Any) -> list[Any]:
    return [entry for entry in getattr(part, "metadata", [part]) if isinstance(entry, Ge | Gt | Le | Lt)]


def _check_plain(members: tuple[type, ...]) -> Checker:
    accepted = {accepted for member in members for accepted in _PLAIN[member]}

    def check(value: Any, where: str) -> None:
        if type(value) not in accepted:
            raise _invalid(where, _expected(members))

    return check


def _expected(members: tuple[type, ...]) -> str:
    return f"pass {' or '.join(_KINDS[member] for member in members)}"


def _check_list(item: Any) -> Checker:
    plain, check_item = _plain_types(item), make_checker(item)
    accepted = frozenset(accepted for member in plain or () for accepted in _PLAIN[member])

    def check(value: Any, where: str) -> None:
        if type(value) is not list:
            raise _invalid(where, "pass a list")
        if plain is not None and accepted.issuperset(set(map(type, value))):
            return
        for number, entry in enumerate(value):
            check_item(entry, f"{where}.{number}")

    return check


def _check_object(item: Any) -> Checker:
    plain, check_item = _plain_types(item), make_checker(item)
    accepted = frozenset(accepted for member in plain or () for accepted in _PLAIN[member])

    def check(value: Any, where: str) -> None:
        if type(value) is not dict:
            raise _invalid(where, "pass an object")
        if plain is not None and accepted.issuperset(set(map(type, value.values()))):
            return
        for name, entry in value.items():
            check_item(entry, f"{where}.{name[:40]}")

    return check


def _or_null(check: Checker) -> Checker:
    def check_unless_null(value: Any, where: str) -> None:
        if value is not None:
            check(value, where)

    return check_unless_null


def _with_bounds(check: Checker, metadata: Any) -> Checker:
    """Return a checker that also checks bounds of a number; other metadata are documentation."""
    comparisons = {"ge": operator.ge, "gt": operator.gt, "le": operator.le, "lt": operator.lt}
    entries = [entry for part in metadata for entry in _bounds_of(part)]
    bounds = [(name, getattr(entry, name)) for entry in entries for name in comparisons if hasattr(entry, name)]
    if not bounds:
        return check
    texts = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}

    def check_bounds(value: Any, where: str) -> None:
        check(value, where)
        if value is None:
            return
        for name, limit in bounds:
            if not comparisons[name](value, limit):
                raise _invalid(where, f"pass a number that is {texts[name]} {limit}")

    return check_bounds
