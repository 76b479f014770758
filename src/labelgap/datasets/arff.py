"""Mulan's format: an ARFF file whose attributes are features and labels, and an XML file that names the labels.

Rows are dense, ``v,v,...``, or sparse, ``{index value,...}``.
"""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from xml.sax.saxutils import quoteattr

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.datasets.file_io import (
    COMPRESSIONS,
    LineReader,
    PathLike,
    read_text,
    uncompressed_name,
    write_compressed,
)
from labelgap.datasets.records import Matrix, Table, check_names, check_pair, to_canonical_csr
from labelgap.observations.arguments import Array

UNKNOWN = "?"
_NAMESPACE = "http://mulan.sourceforge.net/labels"


def read_arff(path: PathLike, labels: PathLike | Sequence[str] | int | None = None) -> Table:
    """Read a Mulan ARFF file with sparse or dense rows; .gz, .xz and .zip are decompressed.

    Parameters
    ----------
    path : path
        The ARFF file.
    labels : path, list of str, int, or None
        The attributes that are labels: those named in a Mulan XML file, those named in a list, or the last ``labels``
        ones. ``None`` uses the XML file of the same name in the same folder, or that of the name without "-train" or
        "-test".

    Returns
    -------
    Table
        ``(X, Y, feature_names, label_names)``, each in the order of the declared attributes. X is float32, and sparse
        for sparse rows. Y is a csr_array with 1 for each positive label, or a dense array with NaN if some labels are
        ``?`` (unknown). ``?`` in a feature of a dense row is NaN.

    Nominal attributes whose values are all numbers are read as these numbers, true/false as 1/0, and others by the
    position of the value.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "tiny.arff"
    ...     _ = path.write_text("@attribute 'a b' numeric\\n@attribute tag {0,1}\\n@data\\n0.5,1\\n2,?\\n")
    ...     X, Y, features, tags = read_arff(path, ["tag"])
    >>> features, tags
    (['a b'], ['tag'])
    >>> Y
    array([[ 1.],
           [nan]], dtype=float32)
    """
    lines = LineReader(path)
    attributes = _read_declarations(lines)
    names = [attribute.name for attribute in attributes]
    is_label = _find_labels(path, names, _find_xml(path) if labels is None else labels)
    matrix, line_numbers = _read_rows(lines, attributes)
    label_names = [name for name, flag in zip(names, is_label) if flag]
    X = _check_features(lines, matrix[:, np.flatnonzero(~is_label)], line_numbers)
    Y = _check_labels(lines, matrix[:, np.flatnonzero(is_label)], line_numbers, label_names)
    return Table(X, Y, [name for name, flag in zip(names, is_label) if not flag], label_names)


def read_label_names(path: PathLike) -> list[str]:
    """Return the label names of a Mulan XML file, in its order."""
    try:
        root = ElementTree.fromstring(read_text(path).encode())
    except ElementTree.ParseError as error:
        raise ValueError(f"{path} is not XML ({error}); pass Mulan's XML file of label names.") from error
    names = [node.get("name") for node in root.iter() if node.tag.rpartition("}")[2] == "label"]
    if not names or None in names:
        raise ValueError(f'{path}: found {len(names)} labels, expected <label name="..."/> for each label.')
    return [str(name) for name in names]


def write_arff(
    path: PathLike,
    X: Array,
    Y: Array,
    feature_names: Sequence[str] | None = None,
    label_names: Sequence[str] | None = None,
    relation: str = "labelgap",
) -> None:
    """Write a Mulan ARFF file, with sparse rows for a sparse X, and its XML file of labels to the same folder.

    NaN in a dense Y or a dense X is written as ``?``, unknown.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "tiny.arff"
    ...     write_arff(path, sp.csr_array([[0.5, 0.0]]), np.array([[1, 0]]), ["a b", "c"], ["t", "u"])
    ...     print(path.read_text())
    ...     read_arff(path).label_names
    @relation 'labelgap'
    @attribute 'a b' numeric
    @attribute 'c' numeric
    @attribute 't' {0,1}
    @attribute 'u' {0,1}
    @data
    {0 0.5,2 1}
    <BLANKLINE>
    ['t', 'u']
    """
    check_pair(X, Y)
    features = _check_names("feature_names", feature_names, X.shape[1], "x")
    labels = _check_names("label_names", label_names, Y.shape[1], "label")
    taken = set(features)
    for label in labels:
        if label in taken:
            raise ValueError(f"label_names: {label!r} is the name of two attributes; give each its own name.")
        taken.add(label)
    cells = _stack_cells(X, Y)
    path = Path(path)
    with ExitStack() as both_files:
        # Neither file appears before both are complete.
        arff = both_files.enter_context(write_compressed(path))
        xml = both_files.enter_context(write_compressed(_xml_path(path)))
        for line in _format_lines(cells, sp.issparse(X), features, labels, relation):
            arff.write(line.encode())
        body = "".join(f"<label name={quoteattr(name)}></label>\n" for name in labels)
        head = f'<?xml version="1.0" encoding="utf-8"?>\n<labels xmlns="{_NAMESPACE}">\n'
        xml.write(f"{head}{body}</labels>\n".encode())


# --- which attributes are labels ------------------------------------------------------------------------------------


def _find_xml(path: PathLike) -> Path:
    own = _xml_path(Path(path))
    # Mulan has one XML file for both parts of a dataset: emotions.xml for emotions-train.arff.
    shared = own.with_name(re.sub(r"(.)[-_](train|test)\.xml$", r"\1.xml", own.name, flags=re.IGNORECASE))
    candidates = list(dict.fromkeys((own, shared)))
    for xml in (xml.with_name(xml.name + ending) for xml in candidates for ending in ("", *COMPRESSIONS)):
        if xml.is_file():
            return xml
    raise ValueError(
        f"{path}: cannot tell which attributes are labels: no {' or '.join(xml.name for xml in candidates)} in the "
        "same folder. Put the XML file of the dataset, which names them, there (read_arff also takes labels=)."
    )


def _xml_path(path: Path) -> Path:
    return path.with_name(path.name[: len(uncompressed_name(path))]).with_suffix(".xml")


def _find_labels(path: PathLike, names: list[str], labels: PathLike | Sequence[str] | int) -> NDArray[np.bool_]:
    is_label = np.zeros(len(names), bool)
    if isinstance(labels, int | np.integer):
        if not 0 < labels < len(names):
            raise ValueError(f"labels={labels}, but {path} has {len(names)} attributes; pass 1 to {len(names) - 1}.")
        is_label[-int(labels) :] = True
        return is_label
    is_path = isinstance(labels, str) or hasattr(labels, "__fspath__")
    label_names = read_label_names(labels) if is_path else list(labels)  # type: ignore[arg-type]
    positions: dict[str, list[int]] = {}
    for position, name in enumerate(names):
        positions.setdefault(name, []).append(position)
    for label in label_names:
        # Some XML files keep the escapes that the quotes of the ARFF file need.
        matches = positions.get(label) or positions.get(_unescape(label)) or []
        if len(matches) != 1:
            raise ValueError(f"{path}: {len(matches)} attributes are named {label!r}, expected exactly one.")
        is_label[matches] = True
    return is_label


def _check_features(lines: LineReader, matrix: Any, line_numbers: list[int]) -> Matrix:
    if not sp.issparse(matrix):
        return np.ascontiguousarray(matrix, np.float32)
    unknown = np.flatnonzero(np.isnan(matrix.data))
    if unknown.size:
        row = int(np.searchsorted(matrix.indptr, unknown[0], "right")) - 1
        lines.fail(UNKNOWN, "a number: features of sparse rows cannot be unknown", line_numbers[row])
    return to_canonical_csr(matrix, np.float32)


def _check_labels(lines: LineReader, matrix: Any, line_numbers: list[int], names: list[str]) -> Matrix:
    stored = sp.coo_array(matrix)
    unknown = np.isnan(stored.data)
    wrong = np.flatnonzero(~unknown & (stored.data != 0) & (stored.data != 1))
    if wrong.size:
        row, label = (int(part[wrong[0]]) for part in (stored.row, stored.col))
        lines.fail(f"{stored.data[wrong[0]]:g}", f"0, 1 or '?' for label {names[label]!r}", line_numbers[row])
    if unknown.any():
        return (stored.toarray() if sp.issparse(matrix) else matrix).astype(np.float32)
    return to_canonical_csr(stored, np.float32)


# --- the grammar ----------------------------------------------------------------------------------------------------
#
# Parsed by hand: scipy.io.arff rejects sparse rows, and liac-arff would be a further dependency. On generated files
# this reader is 1.7 times as fast as either on dense rows and 1.5 times as fast as liac-arff on sparse rows
# (benchmarks/reader.py).

_QUOTED = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_ATTRIBUTE = re.compile(rf"@attribute\s+({_QUOTED}|[^\s'\"{{][^\s{{]*)(?:\s+|(?={{))(.+)", re.IGNORECASE)
# The quantifiers give nothing back: otherwise a quote after many blanks takes cubic time to refuse.
_WORDS = r"[^\s,'\"]*+(?:\s++[^\s,'\"]++)*+"
_TOKEN = re.compile(rf"\s*+({_QUOTED}|{_WORDS})\s*+(?:,|$)")
_ITEM = re.compile(rf"\s*+([^\s,'\"]++)\s++({_QUOTED}|{_WORDS})\s*+(?:,|$)")
_MAX_FLOAT32 = float(np.finfo(np.float32).max)
_MAX_CACHED_LENGTH = 4

_Tables = list[dict[str, float]]  # from the text of a value to its number, for each attribute
_ArffRow = tuple[list[int], list[float]]  # indices, empty for dense rows, and values


@dataclass(frozen=True)
class Attribute:
    """A declared column; ``codes`` maps the values of a nominal attribute to numbers, None for a numeric one."""

    name: str
    codes: dict[str, float] | None


class _NumberCache(dict[str, float]):
    """A cache from text to number, NaN for ``?``; it stores short texts, which occur many times in a file."""

    def __missing__(self, text: str) -> float:
        value = math.nan if text == UNKNOWN else _parse_number(text)
        if len(text) <= _MAX_CACHED_LENGTH:
            self[text] = value
        return value


def _read_declarations(lines: LineReader) -> list[Attribute]:
    """Read the attributes up to the line ``@data``."""
    attributes: list[Attribute] = []
    for line in lines:
        keyword = line.split(None, 1)[0].lower()
        if keyword == "@attribute":
            attributes.append(_parse_attribute(lines, line))
        elif keyword == "@data":
            return attributes
        elif keyword != "@relation":
            lines.fail(line, "@relation, @attribute or @data")
    lines.fail("the end of the file", "@data")


def _parse_attribute(lines: LineReader, line: str) -> Attribute:
    match = _ATTRIBUTE.fullmatch(line)
    if match is None:
        lines.fail(line, "'@attribute name type'")
    name, kind = _unquote(match.group(1)), match.group(2).strip()
    if kind.lower() in ("numeric", "real", "integer"):
        return Attribute(name, None)
    if not (kind.startswith("{") and kind.endswith("}")):
        lines.fail(kind, f"numeric or {{values}} as the type of attribute {name!r}")
    try:
        return Attribute(name, _encode_values(_split_values(kind[1:-1].strip())))
    except ValueError:
        lines.fail(kind, "values separated by commas, with closed quotes")


def _encode_values(values: list[str]) -> dict[str, float]:
    if {value.lower() for value in values} <= {"true", "false"}:
        return {value: float(value.lower() == "true") for value in values}
    try:
        return {value: _parse_number(value) for value in values}
    except ValueError:
        return {value: float(position) for position, value in enumerate(values)}


def _parse_number(text: str) -> float:
    value = float(text)
    if not abs(value) <= _MAX_FLOAT32:  # also raises for NaN
        raise ValueError(text)
    return value


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _unquote(text: str) -> str:
    return _unescape(text[1:-1]) if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def _has_quotes(line: str) -> bool:
    return "'" in line or '"' in line


def _match_repeatedly(pattern: re.Pattern[str], line: str) -> Iterator[re.Match[str]]:
    """Match a pattern from the start to the end of a line; raise ValueError if a part does not match."""
    pos = 0
    while pos < len(line):
        match = pattern.match(line, pos)
        if match is None:
            raise ValueError(line[pos:])
        yield match
        pos = match.end()


def _split_values(line: str) -> list[str]:
    """Split at commas outside quotes."""
    if not _has_quotes(line):
        return [token.strip() for token in line.split(",")]
    return [_unquote(match.group(1)) for match in _match_repeatedly(_TOKEN, line)]


def _split_items(line: str) -> list[list[str]]:
    """Split the inside of a sparse row into pairs of index and value."""
    if not line.strip():
        return []
    if not _has_quotes(line):
        return [item.split() for item in line.split(",")]
    return [[match.group(1), _unquote(match.group(2))] for match in _match_repeatedly(_ITEM, line)]


def _read_rows(lines: LineReader, attributes: list[Attribute]) -> tuple[sp.csr_array | NDArray[Any], list[int]]:
    """Read the rows after ``@data``: all attributes as one matrix with NaN for ``?``, and the line of each row.

    The first row decides whether all rows must be sparse or dense.
    """
    numbers = _NumberCache()
    tables = [
        numbers if attribute.codes is None else attribute.codes | {UNKNOWN: math.nan} for attribute in attributes
    ]
    rows: list[_ArffRow] = []
    line_numbers, sparse = [], False
    for line in lines:
        if not rows:
            sparse = line.startswith("{")
            if sparse:
                _check_omitted_values(lines, attributes)
        if line.startswith("{") != sparse:
            lines.fail(line, "sparse rows {...} only" if sparse else "dense rows only")
        rows.append((_parse_sparse_row if sparse else _parse_dense_row)(lines, line, attributes, tables))
        line_numbers.append(lines.number)
    if not sparse:
        return np.array([values for _, values in rows]).reshape(len(rows), len(attributes)), line_numbers
    indptr = np.cumsum([0, *(len(indices) for indices, _ in rows)])
    indices = np.fromiter((j for row, _ in rows for j in row), np.int32, indptr[-1])
    values = np.fromiter((v for _, row in rows for v in row), float, indptr[-1])
    matrix = sp.csr_array((values, indices, indptr), shape=(len(rows), len(attributes)))
    matrix.sort_indices()
    matrix.eliminate_zeros()
    return matrix, line_numbers


def _check_omitted_values(lines: LineReader, attributes: list[Attribute]) -> None:
    """Raise ValueError if the first value of a nominal attribute, which sparse rows omit, is not 0."""
    for attribute in attributes:
        if attribute.codes and next(iter(attribute.codes.values())) != 0:
            first = next(iter(attribute.codes))
            lines.fail(
                f"sparse rows and attribute {attribute.name!r}, whose first value is {first!r}",
                "0 as the first value, because sparse rows omit it",
            )


def _parse_dense_row(lines: LineReader, line: str, attributes: list[Attribute], tables: _Tables) -> _ArffRow:
    try:
        tokens = _split_values(line)
    except ValueError as error:
        lines.fail(str(error), "values separated by commas, with closed quotes")
    if len(tokens) != len(attributes):
        lines.fail(f"{len(tokens)} values", f"{len(attributes)}, one for each attribute")
    values: list[float] = []
    try:
        for table, token in zip(tables, tokens):
            values.append(table[token])
    except (ValueError, KeyError):
        _fail_value(lines, attributes[len(values)], tokens[len(values)])
    return [], values


def _parse_sparse_row(lines: LineReader, line: str, attributes: list[Attribute], tables: _Tables) -> _ArffRow:
    if not line.endswith("}"):
        lines.fail(line[-40:], "a sparse row {index value,...}; the file may be cut off")
    try:
        items = _split_items(line[1:-1])
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
            values.append(tables[index][item[1]])
        except (ValueError, KeyError):
            _fail_value(lines, attributes[index], item[1])
        indices.append(index)
    if len(set(indices)) != len(indices):
        lines.fail(line, "each index at most once in a row")
    return indices, values


def _fail_value(lines: LineReader, attribute: Attribute, token: str) -> NoReturn:
    kind = "a finite number" if attribute.codes is None else f"one of {list(attribute.codes)[:5]}"
    lines.fail(token, f"{kind} for attribute {attribute.name!r}, or '?'")


# --- writing --------------------------------------------------------------------------------------------------------


def _check_names(argument: str, names: Sequence[str] | None, n_columns: int, prefix: str) -> list[str]:
    if names is None:
        return [f"{prefix}{j}" for j in range(n_columns)]
    check_names(argument, names, n_columns)
    if any("\n" in name or "\r" in name for name in names):
        raise ValueError(f"{argument}: a name contains a line break, which this format cannot store.")
    return list(names)


def _stack_cells(X: Any, Y: Any) -> sp.csr_array:
    """Return the non-zero cells of [X, Y], NaN for unknown ones, after checking them."""
    features, labels = to_canonical_csr(X), to_canonical_csr(Y)
    if np.isinf(features.data).any() or (sp.issparse(X) and np.isnan(features.data).any()):
        raise ValueError("X contains an infinite value, or NaN in a sparse matrix; this format only stores numbers.")
    wrong = labels.data[~np.isnan(labels.data.astype(float)) & (labels.data != 0) & (labels.data != 1)]
    if wrong.size:
        raise ValueError(f"Y contains {wrong[0]}; labels are 0, 1, or NaN in a dense matrix.")
    cells = sp.csr_array(sp.hstack([features, labels], "csr"))
    cells.eliminate_zeros()
    return cells


def _format_lines(
    cells: sp.csr_array, sparse: bool, features: list[str], labels: list[str], relation: str
) -> Iterator[str]:
    def quote(name: str) -> str:
        escaped = name.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"

    yield f"@relation {quote(relation)}\n"
    yield from (f"@attribute {quote(name)} numeric\n" for name in features)
    yield from (f"@attribute {quote(name)} {{0,1}}\n" for name in labels)
    yield "@data\n"
    for start, stop in zip(cells.indptr, cells.indptr[1:]):
        values = (UNKNOWN if np.isnan(v) else str(v).removesuffix(".0") for v in cells.data[start:stop])
        row = dict(zip(cells.indices[start:stop].tolist(), values))
        if sparse:
            yield "{" + ",".join(f"{j} {value}" for j, value in row.items()) + "}\n"
        else:
            yield ",".join(row.get(j, "0") for j in range(cells.shape[1])) + "\n"
