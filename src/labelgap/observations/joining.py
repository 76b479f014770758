"""Labels beside and below each other: further columns, other orders of them, further rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.observations.labels import Absent, Labels


def widened(labels: Labels, n_labels: int, absent: Absent = "negative") -> Labels:
    """Return the same rows with further labels at the end, of which no row has one, or of which nothing is known.

    >>> widened(Labels([[1, 0]]), 3).toarray()
    array([[1., 0., 0.]])
    >>> widened(Labels([[1, 0]]), 3, "unknown").toarray()
    array([[ 1.,  0., nan]])
    """
    n, L = labels.shape
    if n_labels == L:
        return labels
    known = labels.known
    if known is not None or absent == "unknown":
        further = np.full((n, n_labels - L), absent == "negative")
        known = sp.csr_array(sp.hstack([_known(labels), sp.csr_array(further)]))
    positives = sp.csr_array(
        (labels.positives.data, labels.positives.indices, labels.positives.indptr), (n, n_labels)
    )
    return Labels.of_patterns(positives, known, labels.container)


def with_columns(labels: Labels, columns: Sequence[int] | NDArray) -> Labels:
    """Return these columns, in this order.

    >>> with_columns(Labels([[1, 0, 1]]), [2, 1]).toarray()
    array([[1., 0.]])
    """
    known = None if labels.known is None else labels.known[:, columns]
    return Labels.of_patterns(labels.positives[:, columns], known, labels.container)


def stacked(first: Labels, second: Labels) -> Labels:
    """Return the rows of the first, then those of the second, in the container of the first.

    >>> stacked(Labels([[1, 0]]), Labels([[np.nan, 1]])).toarray()
    array([[ 1.,  0.],
           [nan,  1.]])
    """
    known = None
    if first.known is not None or second.known is not None:
        known = sp.csr_array(sp.vstack([_known(first), _known(second)]))
    positives = sp.csr_array(sp.vstack([first.positives, second.positives]))
    return Labels.of_patterns(positives, known, first.container)


def columns_by_name(what: str, names: Sequence[str] | NDArray, given: Sequence[str] | NDArray) -> list[int]:
    """Return where each of the names is among the given ones, then the places of the others.

    >>> columns_by_name("Y", ["a", "b"], ["new", "b", "a"])
    [2, 1, 0]
    """
    check_distinct("The model", names)
    check_distinct(what, given)
    place = {name: column for column, name in enumerate(given)}
    missing = [name for name in names if name not in place]
    if missing:
        raise ValueError(f"{what} has no column {missing[0]!r}, a label of before; pass all {len(names)} of them.")
    known = set(names)
    return [place[name] for name in names] + [column for column, name in enumerate(given) if name not in known]


def check_distinct(what: str, names: Sequence[str] | NDArray) -> None:
    """Refuse names of labels of which two are the same, since nobody could say which of them is meant.

    >>> check_distinct("Y", ["a", "b", "a"])
    Traceback (most recent call last):
        ...
    ValueError: Y has two labels named 'a'; give each label a name of its own.
    """
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{what} has two labels named {name!r}; give each label a name of its own.")
        seen.add(name)


def _known(labels: Labels) -> sp.csr_array:
    return sp.csr_array(np.ones(labels.shape, bool)) if labels.known is None else labels.known
