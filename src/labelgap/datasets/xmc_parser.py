"""Compiled parser of rows ``l1,l2 f:v f:v``: XMC text after its header, and multi-label svmlight.

The file is cut at line ends into ranges. A first pass counts rows, labels and features of each range; a second fills
arrays of exactly that size. Ranges are parsed in parallel on the threads of :mod:`labelgap.runtime`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelgap.runtime import compile_loops, map_ranges, n_threads

compiled: Any = compile_loops()

OK, LABEL, LABEL_RANGE, FEATURE, FEATURE_RANGE, COLON, VALUE, REPEATED = range(8)

_NEWLINE, _COMMA, _COLON, _HASH = 10, 44, 58, 35
_INDEX_CAP = np.int64(1 << 40)


@dataclass(eq=False)
class RowError(Exception):
    """The status of a parse that failed, and the byte or the row of the failure."""

    status: int
    position: int = -1
    row: int = -1


@dataclass(frozen=True)
class ParsedRows:
    """Two CSR structures, of the labels and of the features; the ones of the labels are not stored."""

    y_indptr: NDArray[Any]
    y_indices: NDArray[Any]
    x_indptr: NDArray[Any]
    x_indices: NDArray[Any]
    values: NDArray[Any]


def find_line_bounds(data: NDArray[np.uint8], start: int) -> list[int]:
    """Cut the bytes after ``start`` at line ends into a few ranges per thread; return the bounds.

    >>> find_line_bounds(np.frombuffer(b"head\\n1 2:3\\n", np.uint8), 5)
    [5, 11]
    """
    size = len(data)
    pieces = 1 if size - start < 1 << 16 else 4 * n_threads()
    cuts = np.linspace(start, size, pieces + 1).astype(int)[1:-1]
    inner = {int(_next_line(data, cut, size)) for cut in cuts}
    return sorted({start, size} | inner) if size > start else [start]


def count_before_bounds(data: NDArray[np.uint8], bounds: list[int], no_header: bool) -> NDArray[np.int64]:
    """Return the numbers of rows, labels and features before each bound, so the totals are in the last row."""
    counts = map_ranges(lambda start, stop: count_rows(data, start, stop, no_header), bounds)
    return np.cumsum(np.array([(0, 0, 0), *counts], np.int64), axis=0)


def parse_rows(
    data: NDArray[np.uint8],
    bounds: list[int],
    totals: NDArray[np.int64],
    no_header: bool,
    limits: tuple[int, int],
    dtype: Any,
) -> ParsedRows:
    """Parse counted ranges; label and feature indices must be below ``limits``.

    Raises
    ------
    RowError
        At the first line that is not a valid row.
    """
    n_rows, n_labels, n_features = (int(total) for total in totals[-1])
    index_type = np.int32 if max(n_labels, n_features, *limits) <= np.iinfo(np.int32).max else np.int64
    y_indptr, x_indptr = np.zeros((2, n_rows + 1), index_type)
    y_indices, x_indices = np.empty(n_labels, index_type), np.empty(n_features, index_type)
    values = np.empty(n_features, dtype)
    starts = {start: k for k, start in enumerate(bounds)}

    def parse_range(start: int, stop: int) -> Any:
        k = starts[start]
        first, last = tuple(totals[k]), tuple(totals[k + 1])
        hard = np.empty((0, 3), np.int64)
        while True:
            result = fill_rows(
                data, start, stop, no_header, limits, first, last,
                y_indptr, y_indices, x_indptr, x_indices, values, hard,
            )  # fmt: skip
            if result[2] <= len(hard):
                return result, hard[: result[2]]
            hard = np.empty((result[2], 3), np.int64)

    results = map_ranges(parse_range, bounds)
    for (status, position, *_), hard in results:
        for slot, start, stop in hard.tolist():
            with np.errstate(over="ignore"):
                values[slot] = float(data[start:stop].tobytes())
            if np.isinf(values[slot]):
                raise RowError(VALUE, start)
        if status != OK:
            raise RowError(status, position)
    row = -1
    if not all(result[3] for result, _ in results):
        row = sort_rows(y_indptr, y_indices, np.empty(n_labels, np.int8))
    if row < 0 and not all(result[4] for result, _ in results):
        row = sort_rows(x_indptr, x_indices, values)
    if row >= 0:
        raise RowError(REPEATED, row=int(row))
    return ParsedRows(y_indptr, y_indices, x_indptr, x_indices, values)


# --- rows -----------------------------------------------------------------------------------------------------------


@compiled
def _is_blank(byte):
    return byte == 32 or byte == 9 or byte == 13


@compiled
def _next_line(data, pos, stop):
    while pos < stop and data[pos] != _NEWLINE:
        pos += 1
    return min(pos + 1, stop)


@compiled
def _is_row_end(data, pos, stop, no_header):
    return pos >= stop or data[pos] == _NEWLINE or (no_header and data[pos] == _HASH)


@compiled
def is_row(data, pos, stop, no_header):
    """Return whether a line is a row; in files without a header, empty lines and comments are not."""
    if not no_header:
        return True
    first = pos
    while pos < stop and _is_blank(data[pos]):
        pos += 1
    if pos >= stop or data[pos] == _NEWLINE:
        return pos > first and data[first] != 13
    return data[pos] != _HASH


@compiled
def _count_line(data, pos, stop, no_header):
    """Return upper bounds of the numbers of labels and features of a line, and the start of the next line."""
    first, commas, colons = pos, 0, 0
    while not (_is_row_end(data, pos, stop, no_header) or _is_blank(data[pos])):
        commas += data[pos] == _COMMA
        colons += data[pos] == _COLON
        pos += 1
    labels = commas + 1 if pos > first and colons == 0 else 0
    end_of_row = _HASH if no_header else _NEWLINE
    while pos < stop and data[pos] != _NEWLINE and data[pos] != end_of_row:
        colons += data[pos] == _COLON
        pos += 1
    return labels, colons, _next_line(data, pos, stop)


@compiled
def count_rows(data, start, stop, no_header):
    """Return the numbers of rows, labels and features in a range of whole lines."""
    rows, labels, features, pos = 0, 0, 0, start
    while pos < stop:
        if is_row(data, pos, stop, no_header):
            more_labels, more_features, pos = _count_line(data, pos, stop, no_header)
            rows, labels, features = rows + 1, labels + more_labels, features + more_features
        else:
            pos = _next_line(data, pos, stop)
    return rows, labels, features


@compiled
def _parse_index(data, pos, stop):
    """Parse digits; the value is −1 if there are none."""
    first, value = pos, np.int64(0)
    while pos < stop and 48 <= data[pos] <= 57:
        value = min(value * 10 + np.int64(data[pos] - 48), _INDEX_CAP)
        pos += 1
    return (value if pos > first else -1), pos


@compiled
def _fill_labels(data, pos, stop, no_header, n_labels, indices, at, room):
    """Parse the labels at the start of a line; return status, position, next slot, and whether they are sorted."""
    previous, is_sorted = -1, True
    if _is_row_end(data, pos, stop, no_header) or _is_blank(data[pos]):
        return OK, pos, at, is_sorted
    label, after = _parse_index(data, pos, stop)
    if label >= 0 and after < stop and data[after] == _COLON:
        return OK, pos, at, is_sorted
    while True:
        label, after = _parse_index(data, pos, stop)
        ended = _is_row_end(data, after, stop, no_header) or _is_blank(data[after])
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


@compiled
def _fill_features(data, pos, stop, no_header, n_features, indices, values, at, room, hard, n_hard):
    """Parse the features of a line as ``_fill_labels`` does, and collect the numbers that need exact conversion."""
    previous, is_sorted = -1, True
    while True:
        while pos < stop and _is_blank(data[pos]):
            pos += 1
        if _is_row_end(data, pos, stop, no_header):
            return OK, pos, at, is_sorted, n_hard
        feature, after = _parse_index(data, pos, stop)
        if feature < 0:
            return FEATURE, pos, at, is_sorted, n_hard
        if after >= stop or data[after] != _COLON or at >= room:
            return COLON, pos, at, is_sorted, n_hard
        if feature >= n_features:
            return FEATURE_RANGE, pos, at, is_sorted, n_hard
        value, end, kind = parse_number(data, after + 1, stop)
        if kind == BAD or not (_is_row_end(data, end, stop, no_header) or _is_blank(data[end])):
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


@compiled
def fill_rows(
    data, start, stop, no_header, limits, first, last, y_indptr, y_indices, x_indptr, x_indices, values, hard
):
    """Parse a range of whole lines into its slots of the arrays; these run from ``first`` to ``last``."""
    row, y_at, x_at = first
    pos, n_hard, y_sorted, x_sorted = start, 0, True, True
    while pos < stop:
        if not is_row(data, pos, stop, no_header):
            pos = _next_line(data, pos, stop)
            continue
        status, pos, y_at, line_sorted = _fill_labels(data, pos, stop, no_header, limits[0], y_indices, y_at, last[1])
        y_sorted = y_sorted and line_sorted
        if status != OK:
            return status, pos, n_hard, y_sorted, x_sorted
        status, pos, x_at, line_sorted, n_hard = _fill_features(
            data, pos, stop, no_header, limits[1], x_indices, values, x_at, last[2], hard, n_hard
        )
        x_sorted = x_sorted and line_sorted
        if status != OK:
            return status, pos, n_hard, y_sorted, x_sorted
        row += 1
        y_indptr[row], x_indptr[row] = y_at, x_at
        pos = _next_line(data, pos, stop)
    return OK, pos, n_hard, y_sorted, x_sorted


@compiled
def sort_rows(indptr, indices, values):
    """Sort the indices and values of each row in place; return the first row that repeats an index, or −1."""
    for row in range(len(indptr) - 1):
        part = indices[indptr[row] : indptr[row + 1]]
        order = np.argsort(part)
        part[:] = part[order]
        values[indptr[row] : indptr[row + 1]] = values[indptr[row] : indptr[row + 1]][order]
        for k in range(1, len(part)):
            if part[k] == part[k - 1]:
                return row
    return -1


# --- numbers --------------------------------------------------------------------------------------------------------
#
# Decimal text to the nearest double. m · 10^e with m < 2^53 and |e| ≤ 22 takes one correctly rounded operation
# (Clinger, PLDI 1990). Otherwise m and 10^e are written as sums of two doubles, and their product p + t is accepted
# if p + (t − δ) and p + (t + δ) round to the same double, where δ bounds the error of t. The caller converts the
# others (ties, more than 19 digits, extreme exponents).

BAD, EXACT, HARD = 0, 1, 2

_MAX_EXPONENT = 270
_EXPONENTS = range(-_MAX_EXPONENT, _MAX_EXPONENT + 1)
_POWERS = np.array([float(Fraction(10) ** e) for e in _EXPONENTS])
_POWER_REMAINDERS = np.array([float(Fraction(10) ** e - Fraction(float(Fraction(10) ** e))) for e in _EXPONENTS])
_SPLITTER = 134217729.0  # 2^27 + 1 splits a double into two halves of 26 bits (Dekker 1971)
_RELATIVE_DOUBT = 2.0**-95
_TEN = np.uint64(10)
_MAX_EXACT_INTEGER = np.uint64(2**53)
_EXPONENT_CAP = np.int64(99999)
_MAX_DIGITS = 19  # 10^19 < 2^64


@compiled
def _split_double(a):
    high = _SPLITTER * a
    high = high - (high - a)
    return high, a - high


@compiled
def _compute_product_error(a, b, product):
    a_high, a_low = _split_double(a)
    b_high, b_low = _split_double(b)
    return ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


@compiled
def _scale(mantissa, exponent):
    """Return mantissa · 10^exponent, and whether this is certainly the nearest double."""
    rough = np.float64(mantissa)
    if mantissa < _MAX_EXACT_INTEGER and -22 <= exponent <= 22:
        power = _POWERS[_MAX_EXPONENT + abs(exponent)]
        return (rough / power if exponent < 0 else rough * power), True
    if mantissa == 0:
        return 0.0, True
    if exponent < -_MAX_EXPONENT or exponent > _MAX_EXPONENT:
        return 0.0, False
    low = np.float64(np.int64(mantissa - np.uint64(rough)))
    power, remainder = _POWERS[_MAX_EXPONENT + exponent], _POWER_REMAINDERS[_MAX_EXPONENT + exponent]
    product = rough * power
    tail = _compute_product_error(rough, power, product) + (rough * remainder + low * power)
    doubt = _RELATIVE_DOUBT * product
    value = product + (tail - doubt)
    return value, value == product + (tail + doubt)


@compiled
def _parse_digits(data, pos, stop, mantissa, used):
    """Parse digits; return the mantissa, its number of digits, the number that did not fit, and the end position."""
    left_out = 0
    while pos < stop and 48 <= data[pos] <= 57:
        if used < _MAX_DIGITS:
            mantissa = mantissa * _TEN + np.uint64(data[pos] - 48)
            if mantissa > 0:
                used += 1
        else:
            left_out += 1
        pos += 1
    return mantissa, used, left_out, pos


@compiled
def _parse_exponent(data, pos, stop):
    """Parse the exponent after an "e"; the end position is −1 if it has no digits."""
    sign = np.int64(1)
    if pos < stop and (data[pos] == 43 or data[pos] == 45):
        sign = 44 - np.int64(data[pos])
        pos += 1
    first, exponent = pos, np.int64(0)
    while pos < stop and 48 <= data[pos] <= 57:
        exponent = min(exponent * 10 + np.int64(data[pos] - 48), _EXPONENT_CAP)
        pos += 1
    return sign * exponent, (pos if pos > first else -1)


@compiled
def parse_number(data, pos, stop):
    """Parse a decimal number at ``pos``; return its value, the end position, and BAD, EXACT or HARD."""
    negative = pos < stop and data[pos] == 45
    if pos < stop and (data[pos] == 43 or data[pos] == 45):
        pos += 1
    first = pos
    mantissa, used, left_out, pos = _parse_digits(data, pos, stop, np.uint64(0), 0)
    n_digits, exponent, hard = pos - first, left_out, left_out > 0
    if pos < stop and data[pos] == 46:
        first = pos + 1
        mantissa, used, left_out, pos = _parse_digits(data, first, stop, mantissa, used)
        n_digits += pos - first
        exponent -= pos - first - left_out
        hard = hard or left_out > 0
    if n_digits == 0:
        return 0.0, pos, BAD
    if pos < stop and (data[pos] | 32) == 101:
        shift, end = _parse_exponent(data, pos + 1, stop)
        if end < 0:
            return 0.0, pos, BAD
        exponent, pos = exponent + shift, end
    value, certain = _scale(mantissa, exponent)
    return (-value if negative else value), pos, (EXACT if certain and not hard else HARD)
