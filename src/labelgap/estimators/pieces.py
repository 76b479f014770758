"""Work in pieces whose results a checkpoint keeps."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from labelgap.checkpoints import Arrays, slot
from labelgap.persistence.values import describe, restore
from labelgap.runtime import in_parallel, within

T = TypeVar("T")

_NOTE, _VALUES = "note", "values"


def to_arrays(values: Mapping[str, Any]) -> Arrays:
    """Return arrays that hold plain values, arrays and sparse matrices, also in dicts and lists.

    >>> from_arrays(to_arrays({"a": np.arange(2), "b": [1.5, "c"]}))
    {'a': array([0, 1]), 'b': [1.5, 'c']}
    """
    arrays: Arrays = {}
    note = json.dumps(describe(_VALUES, dict(values), arrays))
    return arrays | {_NOTE: np.frombuffer(note.encode(), np.uint8)}


def from_arrays(arrays: Arrays) -> dict[str, Any]:
    """Return what :func:`to_arrays` was given; a tuple has become a list."""
    return restore(_VALUES, json.loads(arrays[_NOTE].tobytes()), arrays.__getitem__)


def remembered(name: str, compute: Callable[[], T], kind: Callable[..., T]) -> T:
    """Return the result of ``compute``, a named tuple of ``kind``; from the current checkpoint, where it is there.

    >>> from typing import NamedTuple
    >>> class Found(NamedTuple):
    ...     number: int
    >>> remembered("a number", lambda: Found(3), Found)
    Found(number=3)
    """
    piece = slot(name)
    if not piece.active:
        return compute()
    kept = piece.recall()
    if kept is not None:
        return kind(**from_arrays(kept))
    with within(piece.name):
        found: Any = compute()
    piece.keep(to_arrays(found._asdict()))
    return found


def in_pieces(name: str, tasks: Sequence[Callable[[], T]], kind: Callable[..., T]) -> Iterator[T]:
    """Call independent tasks as :func:`labelgap.runtime.in_parallel` does; what each returns is remembered."""
    return in_parallel([partial(remembered, name, task, kind) for task in tasks])
