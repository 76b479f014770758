"""The grammar of ARFF: attributes, then dense rows ``v,v,...`` or sparse rows ``{index value,...}``."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.datasets.files import PathLike, read_text

UNKNOWN = "?"
_QUOTED = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_ATTRIBUTE = re.compile(rf"@attribute\s+({_QUOTED}|[^\s'\"{{][^\s{{]*)(?:\s+|(?={{))(.+)", re.IGNORECASE)
_TOKEN = re.compile(rf"\s*({_QUOTED}|[^,'\"]*?)\s*(?:,|$)")
_ITEM = re.compile(rf"\s*([^\s,'\"]+)\s+({_QUOTED}|[^,'\"]*?)\s*(?:,|$)")
_LARGEST = float(np.finfo(np.float32).max)
_NUMERIC = {"numeric", "real", "integer"}

_Row = tuple[list[int], list[float]]


@dataclass(frozen=True)
class Attribute:
    """A declared column; ``codes`` are the numbers of a nominal attribute's values, ``None`` for a numeric one."""

    name: str
    codes: dict[str, float] | None


class Lines:
    """The lines of a file that are not empty and no comment; ``number`` is that of the latest."""

    def __init__(self, path: PathLike, encoding: str | None = None) -> None:
        self.path = path
        self.number = 0
        self._lines = read_text(path, encoding).split("\n")

    def __iter__(self) -> Iterator[str]:
        while self.number < len(self._lines):
            line = self._lines[self.number].strip()
            self.number += 1
            if line and not line.startswith("%"):
                yield line

    def fail(self, found: str, expected: str, number: int | None = None) -> NoReturn:
        """Raise the error of a line, the latest unless ``number`` says which."""
        line = self.number if number is None else number
        raise ValueError(f"{self.path}, line {line}: found {found[:60]!r}, expected {expected}.") from None


def unescaped(text: str) -> str:
    r"""Drop the backslashes that protect characters.

    >>> print(unescaped(r"it\'s"))
    it's
    """
    return re.sub(r"\\(.)", r"\1", text)


def _unquoted(text: str) -> str:
    return unescaped(text[1:-1]) if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def _has_quotes(line: str) -> bool:
    return "'" in line or '"' in line


def _matches(pattern: re.Pattern[str], line: str) -> Iterator[re.Match[str]]:
    """Match a pattern again and again to the end of the line; ValueError where it does not fit."""
    pos = 0
    while pos < len(line):
        match = pattern.match(line, pos)
        if match is None:
            raise ValueError(line[pos:])
        yield match
        pos = match.end()


def _tokens(line: str) -> list[str]:
    """Split at commas, but not inside quotes."""
    if not _has_quotes(line):
        return [token.strip() for token in line.split(",")]
    return [_unquoted(match.group(1)) for match in _matches(_TOKEN, line)]


def _items(line: str) -> list[list[str]]:
    """Split the inside of a sparse row into pairs of index and value."""
    if not line.strip():
        return []
    if not _has_quotes(line):
        return [item.split() for item in line.split(",")]
    return [[match.group(1), _unquoted(match.group(2))] for match in _matches(_ITEM, line)]


def read_declarations(lines: Lines) -> list[Attribute]:
    """Read the attributes up to the line ``@data``."""
    attributes: list[Attribute] = []
    for line in lines:
        keyword = line.split(None, 1)[0].lower()
        if keyword == "@attribute":
            attributes.append(_attribute(lines, line))
        elif keyword == "@data":
            return attributes
        elif keyword != "@relation":
            lines.fail(line, "@relation, @attribute or @data")
    lines.fail("the end of the file", "@data")


def _attribute(lines: Lines, line: str) -> Attribute:
    match = _ATTRIBUTE.fullmatch(line)
    if match is None:
        lines.fail(line, "'@attribute name type'")
    name, kind = _unquoted(match.group(1)), match.group(2).strip()
    if kind.lower() in _NUMERIC:
        return Attribute(name, None)
    if not (kind.startswith("{") and kind.endswith("}")):
        lines.fail(kind, f"numeric or {{values}} as the type of attribute {name!r}")
    try:
        return Attribute(name, _codes(_tokens(kind[1:-1].strip())))
    except ValueError:
        lines.fail(kind, "values separated by commas, with closed quotes")


def _codes(values: list[str]) -> dict[str, float]:
    if {value.lower() for value in values} <= {"true", "false"}:
        return {value: float(value.lower() == "true") for value in values}
    try:
        return {value: _number(value) for value in values}
    except ValueError:
        return {value: float(position) for position, value in enumerate(values)}


def _number(text: str) -> float:
    value = float(text)
    if not abs(value) <= _LARGEST:  # false for NaN too
        raise ValueError(text)
    return value


def _converter(attribute: Attribute) -> Callable[[str], float]:
    convert: Callable[[str], float] = _number if attribute.codes is None else attribute.codes.__getitem__
    return lambda text: math.nan if text == UNKNOWN else convert(text)


def read_rows(lines: Lines, attributes: list[Attribute]) -> tuple[sp.csr_array | NDArray[Any], list[int]]:
    """Read the rows after ``@data``: all attributes as one matrix with NaN for ``?``, and the line of each row.

    The matrix is sparse when the first row is, and then so must all be.
    """
    converters = [_converter(attribute) for attribute in attributes]
    rows: list[_Row] = []
    numbers, sparse = [], False
    for line in lines:
        braces = line.startswith("{")
        if not rows:
            sparse = braces
            if sparse:
                _check_omitted(lines, attributes)
        if braces != sparse:
            lines.fail(line, "sparse rows {...} only" if sparse else "dense rows only")
        rows.append((_sparse_row if sparse else _dense_row)(lines, line, attributes, converters))
        numbers.append(lines.number)
    if sparse:
        return _stack(rows, len(attributes)), numbers
    return np.array([values for _, values in rows]).reshape(len(rows), len(attributes)), numbers


def _check_omitted(lines: Lines, attributes: list[Attribute]) -> None:
    """Refuse nominal attributes whose first value, which sparse rows leave out, is not 0."""
    for attribute in attributes:
        if attribute.codes and next(iter(attribute.codes.values())) != 0:
            first = next(iter(attribute.codes))
            lines.fail(
                f"sparse rows and attribute {attribute.name!r}, whose first value is {first!r}",
                "0 as the first value, which is the one that sparse rows leave out",
            )


def _dense_row(lines: Lines, line: str, attributes: list[Attribute], converters: list[Any]) -> _Row:
    try:
        tokens = _tokens(line)
    except ValueError as error:
        lines.fail(str(error), "values separated by commas, with closed quotes")
    if len(tokens) != len(attributes):
        lines.fail(f"{len(tokens)} values", f"{len(attributes)}, one for each attribute")
    values = []
    for position, (convert, token) in enumerate(zip(converters, tokens)):
        try:
            values.append(convert(token))
        except (ValueError, KeyError):
            _fail_value(lines, attributes[position], token)
    return [], values


def _sparse_row(lines: Lines, line: str, attributes: list[Attribute], converters: list[Any]) -> _Row:
    if not line.endswith("}"):
        lines.fail(line[-40:], "a sparse row {index value,...}; the file may be cut off")
    try:
        items = _items(line[1:-1])
    except ValueError as error:
        lines.fail(str(error), "'index value'")
    indices, values = [], []
    for item in items:
        if len(item) != 2 or not item[0].isdecimal():
            lines.fail(" ".join(item), "'index value'")
        index = int(item[0])
        if index >= len(attributes):
            lines.fail(item[0], f"an index from 0 to {len(attributes) - 1}")
        try:
            values.append(converters[index](item[1]))
        except (ValueError, KeyError):
            _fail_value(lines, attributes[index], item[1])
        indices.append(index)
    if len(set(indices)) != len(indices):
        lines.fail(line, "each index at most once in a row")
    return indices, values


def _fail_value(lines: Lines, attribute: Attribute, token: str) -> NoReturn:
    kind = "a finite number" if attribute.codes is None else f"one of {list(attribute.codes)[:5]}"
    lines.fail(token, f"{kind} for attribute {attribute.name!r}, or '?'")


def _stack(rows: list[_Row], width: int) -> sp.csr_array:
    indptr = np.cumsum([0, *(len(indices) for indices, _ in rows)])
    indices = np.fromiter((j for row, _ in rows for j in row), np.int32, indptr[-1])
    values = np.fromiter((v for _, row in rows for v in row), float, indptr[-1])
    matrix = sp.csr_array((values, indices, indptr), shape=(len(rows), width))
    matrix.sort_indices()
    matrix.eliminate_zeros()
    return matrix
