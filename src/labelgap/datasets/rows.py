"""The compiled parser of rows ``l1,l2 f:v f:v``: XMC text after its header, and multi-label svmlight.

The file is cut at line ends into ranges. One pass counts rows, labels and features of each range; the second fills
arrays of exactly that size, all ranges at once on the threads of :mod:`labelgap.runtime`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from labelgap.datasets.decimals import BAD, HARD, parse_number
from labelgap.runtime import in_ranges, n_threads

OK, LABEL, LABEL_RANGE, FEATURE, FEATURE_RANGE, COLON, VALUE, REPEATED = range(8)

_NEWLINE, _COMMA, _COLON, _HASH, _MINUS = 10, 44, 58, 35, 45
_TOO_LARGE = np.int64(1 << 40)


@njit(cache=True, nogil=True)
def _is_blank(byte):
    return byte == 32 or byte == 9 or byte == 13


@njit(cache=True, nogil=True)
def _next_line(data, pos, stop):
    while pos < stop and data[pos] != _NEWLINE:
        pos += 1
    return min(pos + 1, stop)


@njit(cache=True, nogil=True)
def _ends(data, pos, stop, headless):
    return pos >= stop or data[pos] == _NEWLINE or (headless and data[pos] == _HASH)


@njit(cache=True, nogil=True)
def is_row(data, pos, stop, headless):
    """Tell whether a line is a row: without a header, empty lines and lines of comment are not."""
    if not headless:
        return True
    first = pos
    while pos < stop and _is_blank(data[pos]):
        pos += 1
    if pos >= stop or data[pos] == _NEWLINE:
        return pos > first and data[first] != 13
    return data[pos] != _HASH


@njit(cache=True, nogil=True)
def _count_line(data, pos, stop, headless):
    """Return how many labels and features a line has room for, and where it ends."""
    first, commas, colons = pos, 0, 0
    while not (_ends(data, pos, stop, headless) or _is_blank(data[pos])):
        commas += data[pos] == _COMMA
        colons += data[pos] == _COLON
        pos += 1
    labels = commas + 1 if pos > first and colons == 0 else 0
    end_of_row = _HASH if headless else _NEWLINE
    while pos < stop and data[pos] != _NEWLINE and data[pos] != end_of_row:
        colons += data[pos] == _COLON
        pos += 1
    return labels, colons, _next_line(data, pos, stop)


@njit(cache=True, nogil=True)
def count_rows(data, start, stop, headless):
    """Return the rows, labels and features in a range of whole lines."""
    rows, labels, features, pos = 0, 0, 0, start
    while pos < stop:
        if is_row(data, pos, stop, headless):
            more_labels, more_features, pos = _count_line(data, pos, stop, headless)
            rows, labels, features = rows + 1, labels + more_labels, features + more_features
        else:
            pos = _next_line(data, pos, stop)
    return rows, labels, features


@njit(cache=True, nogil=True)
def _index(data, pos, stop):
    """Read digits; the value is −1 when there is none."""
    first, value = pos, np.int64(0)
    while pos < stop and 48 <= data[pos] <= 57:
        value = min(value * 10 + np.int64(data[pos] - 48), _TOO_LARGE)
        pos += 1
    return (value if pos > first else -1), pos


@njit(cache=True, nogil=True)
def _fill_labels(data, pos, stop, headless, n_labels, indices, at, room):
    """Read the label field at the start of a line; return a status, the position, the next slot, and if sorted."""
    previous, is_sorted = -1, True
    if _ends(data, pos, stop, headless) or _is_blank(data[pos]):
        return OK, pos, at, is_sorted
    label, after = _index(data, pos, stop)
    if label >= 0 and after < stop and data[after] == _COLON:
        return OK, pos, at, is_sorted
    while True:
        label, after = _index(data, pos, stop)
        ended = _ends(data, after, stop, headless) or _is_blank(data[after])
        if label < 0 or at >= room or not (ended or data[after] == _COMMA):
            return LABEL, pos, at, is_sorted
        if label >= n_labels:
            return LABEL_RANGE, pos, at, is_sorted
        indices[at] = label
        is_sorted = is_sorted and label > previous
        previous, at = label, at + 1
        if ended:
            return OK, after, at, is_sorted
        pos = after + 1


@njit(cache=True, nogil=True)
def _fill_features(data, pos, stop, headless, n_features, indices, values, at, room, hard, n_hard):
    """Read the features of a line; like ``_fill_labels``, and collect the numbers that need an exact conversion."""
    previous, is_sorted = -1, True
    while True:
        while pos < stop and _is_blank(data[pos]):
            pos += 1
        if _ends(data, pos, stop, headless):
            return OK, pos, at, is_sorted, n_hard
        feature, after = _index(data, pos, stop)
        if feature < 0:
            return FEATURE, pos, at, is_sorted, n_hard
        if after >= stop or data[after] != _COLON or at >= room:
            return COLON, pos, at, is_sorted, n_hard
        if feature >= n_features:
            return FEATURE_RANGE, pos, at, is_sorted, n_hard
        value, end, kind = parse_number(data, after + 1, stop)
        if kind == BAD or not (_ends(data, end, stop, headless) or _is_blank(data[end])):
            return VALUE, after + 1, at, is_sorted, n_hard
        indices[at] = feature
        values[at] = value
        if kind == HARD:
            if n_hard < len(hard):
                hard[n_hard, 0], hard[n_hard, 1], hard[n_hard, 2] = at, after + 1, end
            n_hard += 1
        elif np.isinf(values[at]):
            return VALUE, after + 1, at, is_sorted, n_hard
        is_sorted = is_sorted and feature > previous
        previous, at, pos = feature, at + 1, end


@njit(cache=True, nogil=True)
def fill_rows(
    data, start, stop, headless, limits, first, last, y_indptr, y_indices, x_indptr, x_indices, values, hard
):
    """Parse a range of whole lines into its part of the arrays: rows, labels, features from ``first`` to ``last``."""
    row, y_at, x_at = first
    pos, n_hard, y_sorted, x_sorted = start, 0, True, True
    while pos < stop:
        if not is_row(data, pos, stop, headless):
            pos = _next_line(data, pos, stop)
            continue
        status, pos, y_at, line_sorted = _fill_labels(data, pos, stop, headless, limits[0], y_indices, y_at, last[1])
        y_sorted = y_sorted and line_sorted
        if status != OK:
            return status, pos, n_hard, y_sorted, x_sorted
        status, pos, x_at, line_sorted, n_hard = _fill_features(
            data, pos, stop, headless, limits[1], x_indices, values, x_at, last[2], hard, n_hard
        )
        x_sorted = x_sorted and line_sorted
        if status != OK:
            return status, pos, n_hard, y_sorted, x_sorted
        row += 1
        y_indptr[row], x_indptr[row] = y_at, x_at
        pos = _next_line(data, pos, stop)
    return OK, pos, n_hard, y_sorted, x_sorted


@njit(cache=True, nogil=True)
def sort_rows(indptr, indices, values):
    """Sort each row's indices in place, with their values; return the first row that repeats an index, or −1."""
    for row in range(len(indptr) - 1):
        part = indices[indptr[row] : indptr[row + 1]]
        order = np.argsort(part)
        part[:] = part[order]
        values[indptr[row] : indptr[row + 1]] = values[indptr[row] : indptr[row + 1]][order]
        for k in range(1, len(part)):
            if part[k] == part[k - 1]:
                return row
    return -1


@dataclass(eq=False)
class Failure(Exception):
    """Why parsing stopped: a status, and the byte or the row where."""

    status: int
    position: int = -1
    row: int = -1


@dataclass(frozen=True)
class Rows:
    """Parsed rows: two CSR structures, with the labels' ones not stored."""

    y_indptr: NDArray[Any]
    y_indices: NDArray[Any]
    x_indptr: NDArray[Any]
    x_indices: NDArray[Any]
    values: NDArray[Any]


def line_bounds(data: NDArray[np.uint8], start: int) -> list[int]:
    """Cut the bytes from ``start`` on at line ends, into a few ranges for each thread.

    >>> line_bounds(np.frombuffer(b"head\\n1 2:3\\n", np.uint8), 5)
    [5, 11]
    """
    size = len(data)
    pieces = 1 if size - start < 1 << 16 else 4 * n_threads()
    cuts = np.linspace(start, size, pieces + 1).astype(int)[1:-1]
    inner = {int(_next_line(data, cut, size)) for cut in cuts}
    return sorted({start, size} | inner) if size > start else [start]


def count_ranges(data: NDArray[np.uint8], bounds: list[int], headless: bool) -> NDArray[np.int64]:
    """Return rows, labels and features before each bound, so that the last line holds the totals."""
    counts = in_ranges(lambda start, stop: count_rows(data, start, stop, headless), bounds)
    return np.cumsum(np.array([(0, 0, 0), *counts], np.int64), axis=0)


def parse_rows(
    data: NDArray[np.uint8],
    bounds: list[int],
    totals: NDArray[np.int64],
    headless: bool,
    limits: tuple[int, int],
    dtype: Any,
) -> Rows:
    """Parse counted ranges; ``limits`` are what label and feature indices must stay below.

    Raises
    ------
    Failure
        For the first line that is not a row.
    """
    n_rows, n_labels, n_features = (int(total) for total in totals[-1])
    index_type = np.int32 if max(n_labels, n_features, *limits) <= np.iinfo(np.int32).max else np.int64
    y_indptr, x_indptr = np.zeros((2, n_rows + 1), index_type)
    y_indices, x_indices = np.empty(n_labels, index_type), np.empty(n_features, index_type)
    values = np.empty(n_features, dtype)
    starts = {start: k for k, start in enumerate(bounds)}

    def work(start: int, stop: int) -> Any:
        k = starts[start]
        first, last = tuple(totals[k]), tuple(totals[k + 1])
        hard = np.empty((0, 3), np.int64)
        while True:
            result = fill_rows(
                data, start, stop, headless, limits, first, last,
                y_indptr, y_indices, x_indptr, x_indices, values, hard,
            )  # fmt: skip
            if result[2] <= len(hard):
                return result, hard[: result[2]]
            hard = np.empty((result[2], 3), np.int64)

    results = in_ranges(work, bounds)
    for (status, position, *_), hard in results:
        _convert_hard(data, values, hard)
        if status != OK:
            raise Failure(status, position)
    if not all(result[3] for result, _ in results):
        _sort(y_indptr, y_indices, np.empty(n_labels, np.int8))
    if not all(result[4] for result, _ in results):
        _sort(x_indptr, x_indices, values)
    return Rows(y_indptr, y_indices, x_indptr, x_indices, values)


def _convert_hard(data: NDArray[np.uint8], values: NDArray[Any], hard: NDArray[np.int64]) -> None:
    for slot, start, stop in hard.tolist():
        with np.errstate(over="ignore"):
            values[slot] = float(data[start:stop].tobytes())
        if np.isinf(values[slot]):
            raise Failure(VALUE, start)


def _sort(indptr: NDArray[Any], indices: NDArray[Any], values: NDArray[Any]) -> None:
    row = sort_rows(indptr, indices, values)
    if row >= 0:
        raise Failure(REPEATED, row=int(row))
