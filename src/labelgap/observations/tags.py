"""Lists of tags, one for each row, as a label matrix with names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp


class EncodedTags(NamedTuple):
    """A 0/1 matrix n×L of tags, and the names of its columns."""

    Y: sp.csr_array
    names: list[str]


def holds_tags(Y: Any) -> bool:
    """Return whether Y is a collection of lists, tuples or sets of str, one for each row, rather than a matrix.

    None and an empty list stand for a row without tags; at least one row must have some.

    >>> holds_tags([["salt", "pepper"], [], None]), holds_tags([[1, 0], [0, 1]]), holds_tags(["salt", "pepper"])
    (True, False, False)
    """
    if isinstance(Y, str | bytes | dict) or sp.issparse(Y) or getattr(Y, "ndim", 1) != 1 or not _is_collection(Y):
        return False
    has_tags = False
    for row in Y:
        if row is None or isinstance(row, float):  # pandas writes NaN for a row without a list
            continue
        if isinstance(row, str | bytes) or not (
            isinstance(row, Sequence | AbstractSet | np.ndarray) or hasattr(row, "to_list")  # a list of polars
        ):
            return False
        for tag in row:
            if not isinstance(tag, str):
                return False
            has_tags = True
    return has_tags


def encode_tags(
    lists: Iterable[Iterable[str] | None], names: Sequence[str] | None = None, *, min_count: int = 1
) -> EncodedTags:
    """Return lists of tags as a 0/1 matrix, with a column for each name.

    Parameters
    ----------
    lists : iterable of iterables of str
        The tags of each row; None is a row without tags, and a tag that is listed twice counts once.
    names : sequence of str, optional
        The columns; other tags are left out. Default: all tags, sorted.
    min_count : int, default=1
        Without ``names``, leave out tags of fewer rows.

    Examples
    --------
    >>> Y, names = encode_tags([["salt", "pepper"], ["salt"], None])
    >>> names, Y.toarray().tolist()
    (['pepper', 'salt'], [[1.0, 1.0], [0.0, 1.0], [0.0, 0.0]])
    """
    sets = [frozenset() if _is_blank(tags) else frozenset(tags) for tags in lists]  # type: ignore[arg-type]
    if names is None:
        counts = Counter(tag for tags in sets for tag in tags)
        names = sorted(tag for tag, count in counts.items() if count >= min_count)
    columns = {name: j for j, name in enumerate(names)}
    rows = [sorted(columns[tag] for tag in tags if tag in columns) for tags in sets]
    indptr = np.cumsum([0, *map(len, rows)])
    indices = np.array([j for row in rows for j in row], np.int32)
    shape = (len(sets), len(names))
    plain = [name.item() if isinstance(name, np.generic) else name for name in names]
    return EncodedTags(sp.csr_array((np.ones(len(indices), np.float32), indices, indptr), shape=shape), plain)


def _is_collection(Y: Any) -> bool:
    return hasattr(Y, "__len__") and hasattr(Y, "__iter__")


def _is_blank(tags: Any) -> bool:
    return tags is None or isinstance(tags, float)
