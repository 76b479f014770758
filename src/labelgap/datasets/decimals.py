"""Decimal text to the nearest double, compiled.

m · 10^e with m < 2^53 and |e| ≤ 22 takes one correctly rounded operation (Clinger, PLDI 1990). Otherwise m and 10^e
are written as sums of two doubles, and their product p + t is accepted when p + (t − δ) and p + (t + δ) round to the
same double, where δ bounds the error of t. What is left (ties, more than 19 digits, extreme exponents) is for the
caller to convert.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numba import njit

BAD, EXACT, HARD = 0, 1, 2

_LARGEST = 270
_EXPONENTS = range(-_LARGEST, _LARGEST + 1)
_POWER = np.array([float(Fraction(10) ** e) for e in _EXPONENTS])
_POWER_REST = np.array([float(Fraction(10) ** e - Fraction(float(Fraction(10) ** e))) for e in _EXPONENTS])
_SPLITTER = 134217729.0  # 2^27 + 1 cuts a double into two halves of 26 bits (Dekker 1971)
_DOUBT = 2.0**-95
_TEN = np.uint64(10)
_EXACT_INTEGERS = np.uint64(2**53)
_HUGE = np.int64(99999)
_DIGITS = 19  # 10^19 < 2^64


@njit(cache=True, nogil=True)
def _halves(a):
    high = _SPLITTER * a
    high = high - (high - a)
    return high, a - high


@njit(cache=True, nogil=True)
def _product_error(a, b, product):
    a_high, a_low = _halves(a)
    b_high, b_low = _halves(b)
    return ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


@njit(cache=True, nogil=True)
def _scaled(mantissa, exponent):
    """Return mantissa · 10^exponent and whether it is certainly the nearest double."""
    rough = np.float64(mantissa)
    if mantissa < _EXACT_INTEGERS and -22 <= exponent <= 22:
        power = _POWER[_LARGEST + abs(exponent)]
        return (rough / power if exponent < 0 else rough * power), True
    if mantissa == 0:
        return 0.0, True
    if exponent < -_LARGEST or exponent > _LARGEST:
        return 0.0, False
    rest = np.float64(np.int64(mantissa - np.uint64(rough)))
    power = _POWER[_LARGEST + exponent]
    product = rough * power
    tail = _product_error(rough, power, product) + (rough * _POWER_REST[_LARGEST + exponent] + rest * power)
    doubt = _DOUBT * product
    value = product + (tail - doubt)
    return value, value == product + (tail + doubt)


@njit(cache=True, nogil=True)
def _digits(data, pos, stop, mantissa, used):
    """Read a run of digits; return the mantissa, its digits, those that did not fit, and where the run ends."""
    left_out = 0
    while pos < stop and 48 <= data[pos] <= 57:
        if used < _DIGITS:
            mantissa = mantissa * _TEN + np.uint64(data[pos] - 48)
            if mantissa > 0:
                used += 1
        else:
            left_out += 1
        pos += 1
    return mantissa, used, left_out, pos


@njit(cache=True, nogil=True)
def _exponent(data, pos, stop):
    """Read what follows an "e"; the end is −1 when there is no digit."""
    sign = np.int64(1)
    if pos < stop and (data[pos] == 43 or data[pos] == 45):
        sign = 44 - np.int64(data[pos])
        pos += 1
    first, exponent = pos, np.int64(0)
    while pos < stop and 48 <= data[pos] <= 57:
        exponent = min(exponent * 10 + np.int64(data[pos] - 48), _HUGE)
        pos += 1
    return sign * exponent, (pos if pos > first else -1)


@njit(cache=True, nogil=True)
def parse_number(data, pos, stop):
    """Read a decimal number at ``pos``; return its value, where it ends, and BAD, EXACT or HARD."""
    negative = pos < stop and data[pos] == 45
    if pos < stop and (data[pos] == 43 or data[pos] == 45):
        pos += 1
    first = pos
    mantissa, used, left_out, pos = _digits(data, pos, stop, np.uint64(0), 0)
    n_digits, exponent, hard = pos - first, left_out, left_out > 0
    if pos < stop and data[pos] == 46:
        first = pos + 1
        mantissa, used, left_out, pos = _digits(data, first, stop, mantissa, used)
        n_digits += pos - first
        exponent -= pos - first - left_out
        hard = hard or left_out > 0
    if n_digits == 0:
        return 0.0, pos, BAD
    if pos < stop and (data[pos] | 32) == 101:
        shift, end = _exponent(data, pos + 1, stop)
        if end < 0:
            return 0.0, pos, BAD
        exponent, pos = exponent + shift, end
    value, certain = _scaled(mantissa, exponent)
    return (-value if negative else value), pos, (EXACT if certain and not hard else HARD)
