"""Values of a block of the program, and of what it calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_place: ContextVar[tuple[str, ...]] = ContextVar("labelgap_place", default=())


@contextmanager
def set_within(variable: ContextVar, value: Any) -> Iterator[None]:
    """Give a variable a value for a block."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def place() -> tuple[str, ...]:
    """Return where in the work we are: the names of the blocks around, the outermost first."""
    return _place.get()


@contextmanager
def within(name: str) -> Iterator[None]:
    """Name a part of the work, so that what is kept of it is not taken for that of another.

    >>> with within("fold 3"), within("LEML"):
    ...     place()
    ('fold 3', 'LEML')
    """
    with set_within(_place, (*_place.get(), name)):
        yield
