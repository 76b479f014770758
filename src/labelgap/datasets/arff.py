"""Mulan's format: an ARFF file whose attributes are features and labels, and an XML file that names the labels."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.datasets.arff_rows import UNKNOWN, Lines, read_declarations, read_rows, unescaped
from labelgap.datasets.files import COMPRESSIONS, PathLike, read_text, replacing, uncompressed_name
from labelgap.datasets.records import Matrix, Table, canonical, check_pair

_NAMESPACE = "http://mulan.sourceforge.net/labels"


def read_arff(path: PathLike, labels: PathLike | Sequence[str] | int | None = None) -> Table:
    """Read a Mulan ARFF file, sparse or dense; .gz and .xz are unpacked.

    Parameters
    ----------
    path : path
        The ARFF file.
    labels : path, list of str, int, or None
        Which attributes are labels: those named in a Mulan XML file, those named in a list, or the last ``labels``
        ones. ``None`` takes the XML file of the same name beside ``path``, or that of the name without "-train" or
        "-test".

    Returns
    -------
    Table
        ``(X, Y, feature_names, label_names)``, each in the order in which the attributes are declared. X is float32,
        sparse for sparse rows; Y is a csr_array of 1 for each label, or, where a label is ``?`` (unknown), a dense
        array with NaN. ``?`` in a feature of a dense row is NaN.

    Nominal attributes whose values are all numbers are read as these numbers (0/1 words), true/false as 1/0, and any
    other by the position of the value.

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
    lines = Lines(path)
    attributes = read_declarations(lines)
    names = [attribute.name for attribute in attributes]
    is_label = _label_flags(path, names, _beside(path) if labels is None else labels)
    matrix, numbers = read_rows(lines, attributes)
    label_names = [name for name, flag in zip(names, is_label) if flag]
    X = _features(lines, matrix[:, np.flatnonzero(~is_label)], numbers)
    Y = _labels(lines, matrix[:, np.flatnonzero(is_label)], numbers, label_names)
    return Table(X, Y, [name for name, flag in zip(names, is_label) if not flag], label_names)


def read_label_names(path: PathLike) -> list[str]:
    """Return the label names in a Mulan XML file, in its order."""
    try:
        root = ElementTree.fromstring(read_text(path).encode())
    except ElementTree.ParseError as error:
        raise ValueError(f"{path}: found no XML ({error}), expected Mulan's list of labels.") from error
    names = [node.get("name") for node in root.iter() if node.tag.rpartition("}")[2] == "label"]
    if not names or None in names:
        raise ValueError(f'{path}: found {len(names)} labels, expected <label name="..."/> for each label.')
    return [str(name) for name in names]


def write_arff(
    path: PathLike,
    X: Any,
    Y: Any,
    feature_names: Sequence[str] | None = None,
    label_names: Sequence[str] | None = None,
    relation: str = "labelgap",
) -> None:
    """Write a Mulan ARFF file, sparse rows for a sparse X, and its XML file of labels beside it.

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
    features = _names("feature_names", feature_names, X.shape[1], "x")
    labels = _names("label_names", label_names, Y.shape[1], "label")
    _check_distinct(features, labels)
    cells = _cells(X, Y)
    path = Path(path)
    with ExitStack() as both:
        # Both files are complete before either takes its name.
        arff, xml = both.enter_context(replacing(path)), both.enter_context(replacing(_xml_name(path)))
        for line in _arff_lines(cells, sp.issparse(X), features, labels, relation):
            arff.write(line.encode())
        xml.write(_xml(labels).encode())


def _beside(path: PathLike) -> Path:
    own = _xml_name(Path(path))
    # Mulan has one XML file for both parts of a set: emotions.xml with emotions-train.arff.
    shared = own.with_name(re.sub(r"(.)[-_](train|test)\.xml$", r"\1.xml", own.name, flags=re.IGNORECASE))
    names = list(dict.fromkeys((own, shared)))
    for candidate in (name.with_name(name.name + ending) for name in names for ending in ("", *COMPRESSIONS)):
        if candidate.is_file():
            return candidate
    raise ValueError(
        f"{path}: no {' or '.join(name.name for name in names)} beside it says which attributes are labels; "
        "put the XML file of the data set, which names them, into the same folder (read_arff also takes labels=)."
    )


def _xml_name(path: Path) -> Path:
    return path.with_name(path.name[: len(uncompressed_name(path))]).with_suffix(".xml")


def _label_flags(path: PathLike, names: list[str], labels: PathLike | Sequence[str] | int) -> NDArray[np.bool_]:
    flags = np.zeros(len(names), bool)
    if isinstance(labels, int | np.integer):
        if not 0 < labels < len(names):
            raise ValueError(f"labels={labels}, but {path} has {len(names)} attributes, of which some are features.")
        flags[-int(labels) :] = True
        return flags
    is_path = isinstance(labels, str) or hasattr(labels, "__fspath__")
    wanted = read_label_names(labels) if is_path else list(labels)  # type: ignore[arg-type]
    positions: dict[str, list[int]] = {}
    for position, name in enumerate(names):
        positions.setdefault(name, []).append(position)
    for label in wanted:
        # Some XML files keep the escapes that the quotes of the ARFF file needed.
        found = positions.get(label) or positions.get(unescaped(label)) or []
        if len(found) != 1:
            raise ValueError(f"{path}: label {label!r} names {len(found)} attributes, expected exactly one.")
        flags[found] = True
    return flags


def _features(lines: Lines, matrix: Any, numbers: list[int]) -> Matrix:
    if not sp.issparse(matrix):
        return np.ascontiguousarray(matrix, np.float32)
    unknown = np.flatnonzero(np.isnan(matrix.data))
    if unknown.size:
        row = int(np.searchsorted(matrix.indptr, unknown[0], "right")) - 1
        lines.fail(UNKNOWN, "a number: features of sparse rows cannot be unknown", numbers[row])
    return canonical(matrix, np.float32)


def _labels(lines: Lines, matrix: Any, numbers: list[int], names: list[str]) -> Matrix:
    stored = sp.coo_array(matrix)
    unknown = np.isnan(stored.data)
    wrong = np.flatnonzero(~unknown & (stored.data != 0) & (stored.data != 1))
    if wrong.size:
        row, label = (int(part[wrong[0]]) for part in (stored.row, stored.col))
        lines.fail(f"{stored.data[wrong[0]]:g}", f"0, 1 or '?' for label {names[label]!r}", numbers[row])
    if unknown.any():
        return (stored.toarray() if sp.issparse(matrix) else matrix).astype(np.float32)
    return canonical(stored, np.float32)


def _names(argument: str, names: Sequence[str] | None, size: int, prefix: str) -> list[str]:
    if names is None:
        return [f"{prefix}{j}" for j in range(size)]
    if len(names) != size:
        raise ValueError(f"{argument} has {len(names)} names, but there are {size} columns.")
    if any("\n" in name or "\r" in name for name in names):
        raise ValueError(f"{argument}: a name holds a line break, which this format cannot store.")
    return list(names)


def _check_distinct(features: list[str], labels: list[str]) -> None:
    taken = set(features)
    for label in labels:
        if label in taken:
            raise ValueError(f"label_names: {label!r} is the name of two attributes; each label needs its own.")
        taken.add(label)


def _cells(X: Any, Y: Any) -> sp.csr_array:
    """Return the non-zero cells of [X, Y], NaN for unknown ones, after checking them."""
    features, labels = canonical(X), canonical(Y)
    if np.isinf(features.data).any() or (sp.issparse(X) and np.isnan(features.data).any()):
        raise ValueError("X holds an infinite value, or NaN in a sparse matrix; this format stores numbers only.")
    wrong = labels.data[~np.isnan(labels.data.astype(float)) & (labels.data != 0) & (labels.data != 1)]
    if wrong.size:
        raise ValueError(f"Y holds {wrong[0]}; labels are 0, 1, or NaN in a dense matrix.")
    cells = sp.csr_array(sp.hstack([features, labels], "csr"))
    cells.eliminate_zeros()
    return cells


def _text(value: Any) -> str:
    return UNKNOWN if np.isnan(value) else str(value).removesuffix(".0")


def _quoted(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _arff_lines(
    cells: sp.csr_array, sparse: bool, features: list[str], labels: list[str], relation: str
) -> Iterator[str]:
    yield f"@relation {_quoted(relation)}\n"
    yield from (f"@attribute {_quoted(name)} numeric\n" for name in features)
    yield from (f"@attribute {_quoted(name)} {{0,1}}\n" for name in labels)
    yield "@data\n"
    for start, stop in zip(cells.indptr, cells.indptr[1:]):
        columns, values = cells.indices[start:stop].tolist(), map(_text, cells.data[start:stop])
        if sparse:
            yield "{" + ",".join(f"{j} {value}" for j, value in zip(columns, values)) + "}\n"
        else:
            given = dict(zip(columns, values))
            yield ",".join(given.get(j, "0") for j in range(cells.shape[1])) + "\n"


def _xml(labels: list[str]) -> str:
    body = "".join(f"<label name={quoteattr(name)}></label>\n" for name in labels)
    return f'<?xml version="1.0" encoding="utf-8"?>\n<labels xmlns="{_NAMESPACE}">\n{body}</labels>\n'
