"""Documents with tags: a table that has columns of text, and a column of tags or a column for each label."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from labelgap.datasets.files import PathLike
from labelgap.datasets.records import Matrix
from labelgap.datasets.tabular import Record, read_records

SEPARATORS = (",", ";", "|")
_YES = {"1", "1.0", "true", "yes", "+1"}
_NO = {"0", "0.0", "-1", "-1.0", "false", "no"}
_UNKNOWN = {"", "nan", "na", "none", "null", "?"}


class Documents(NamedTuple):
    """Texts, their labels n×L with the names (None where the file has none), and the rows of the file."""

    texts: list[str]
    Y: Matrix | None
    label_names: list[str] | None
    rows: list[Record]


def read_documents(
    path: PathLike,
    text: str | Sequence[str],
    *,
    tags: str | None = None,
    labels: Sequence[str] | None = None,
    separator: str | None = None,
    label_names: Sequence[str] | None = None,
    least: int = 1,
) -> Documents:
    """Read a CSV, TSV, JSON lines or Parquet file of documents.

    Parameters
    ----------
    path : path
        The file; .gz, .xz and .zip are unpacked.
    text : str or sequence of str
        The columns that hold the text; several are joined by a line break.
    tags : str, optional
        A column that lists the tags of a document, in one string or as a list. Where every string is a JSON list of
        strings, it is read as one.
    labels : sequence of str, optional
        A column for each label instead: 1 or 0, yes or no, true or false; blank is unknown.
    separator : str, optional
        What stands between tags: by default a comma, semicolon or bar where one occurs in the column, else blanks.
    label_names : sequence of str, optional
        The labels to look for, in this order; by default all that occur, sorted.
    least : int, default=1
        Leave out tags that fewer documents have.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "a.csv"
    ...     _ = path.write_text("title,tags\\nChewy cookies,baking cookies\\nCrisp bacon,bacon\\n")
    ...     found = read_documents(path, "title", tags="tags")
    >>> found.label_names, found.Y.toarray().tolist()
    (['bacon', 'baking', 'cookies'], [[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]])
    """
    if tags is not None and labels is not None:
        raise ValueError("tags= and labels= are two ways to give labels; pass one of them.")
    rows = read_records(path)
    if not rows:
        raise ValueError(f"{path} holds no rows; check the file.")
    columns = [text] if isinstance(text, str) else list(text)
    _check_columns(path, rows, [*columns, *([tags] if tags else []), *(labels or [])])
    texts = ["\n".join(_as_text(row[name]) for name in columns) for row in rows]
    if labels is not None:
        return Documents(texts, _label_columns(path, rows, list(labels)), list(labels), rows)
    if tags is None:
        return Documents(texts, None, None, rows)
    lists = split_tags([row[tags] for row in rows], separator)
    names = list(label_names) if label_names is not None else _names(lists, least)
    return Documents(texts, tag_matrix(lists, names), names, rows)


def split_tags(values: Sequence[Any], separator: str | None = None) -> list[list[str]]:
    """Return the tags of each document, each once.

    >>> split_tags(["a b", "b", None])
    [['a', 'b'], ['b'], []]
    >>> split_tags(["red wine, cheese", ["a b"]])
    [['red wine', 'cheese'], ['a b']]
    >>> split_tags(['["red, dry", "wine"]', "[]", ""])
    [['red, dry', 'wine'], [], []]
    """
    values = unpacked(values)
    mark = find_separator(values) if separator is None else separator
    return [_split(value, mark) for value in values]


def find_separator(values: Sequence[Any]) -> str | None:
    """Return what stands between the tags of a column; None is blanks.

    >>> find_separator(["red wine, cheese", None]), find_separator(["a b"])
    (',', None)
    """
    texts = [value for value in unpacked(values) if isinstance(value, str)]
    return next((mark for mark in SEPARATORS if any(mark in text for text in texts)), None)


def unpacked(values: Sequence[Any]) -> Sequence[Any]:
    """Return a column of tags with lists for its strings, if each that is not blank is a JSON list of strings.

    >>> unpacked(['["a b"]', ""]), unpacked(['["a b"]', "c"])
    ([['a b'], None], ['["a b"]', 'c'])
    """
    found = []
    for value in values:
        one = _json_list(value) if isinstance(value, str) and value.strip() else value
        if isinstance(one, str) and one.strip():
            return values
        found.append(None if isinstance(one, str) else one)
    return found


def _json_list(text: str) -> Any:
    """Return the list of strings that a text is in JSON, or else the text."""
    if not text.lstrip().startswith("["):
        return text
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):  # the latter where brackets are nested without end
        return text
    return found if all(isinstance(part, str) for part in found) else text


def _split(value: Any, separator: str | None) -> list[str]:
    if value is None:
        return []
    parts = value.split(separator) if isinstance(value, str) else [str(part) for part in value]
    return list(dict.fromkeys(part.strip() for part in parts if part.strip()))


def tag_matrix(lists: Sequence[Sequence[str]], names: Sequence[str]) -> sp.csr_array:
    """Return lists of tags as a 0/1 matrix with a column for each name; tags without a column are left out."""
    place = {name: j for j, name in enumerate(names)}
    found = [sorted(place[tag] for tag in tags if tag in place) for tags in lists]
    indptr = np.cumsum([0, *map(len, found)])
    indices = np.array([j for row in found for j in row], np.int32)
    return sp.csr_array((np.ones(len(indices), np.float32), indices, indptr), shape=(len(lists), len(names)))


def _names(lists: Sequence[Sequence[str]], least: int) -> list[str]:
    counts = Counter(tag for tags in lists for tag in tags)
    return sorted(tag for tag, count in counts.items() if count >= least)


def _check_columns(path: PathLike, rows: Sequence[Record], wanted: Sequence[str]) -> None:
    for name in wanted:
        if name not in rows[0]:
            raise ValueError(f"{path} has no column {name!r}; it has {', '.join(map(repr, rows[0]))}.")


def _as_text(value: Any) -> str:
    return "" if value is None else str(value)


def _label_columns(path: PathLike, rows: Sequence[Record], names: Sequence[str]) -> Matrix:
    Y = np.array([[_state(path, number, name, row[name]) for name in names] for number, row in enumerate(rows, 1)])
    return Y if np.isnan(Y).any() else sp.csr_array(Y.astype(np.float32))


def _state(path: PathLike, number: int, name: str, value: Any) -> float:
    """Return 1, 0 or NaN."""
    word = _as_text(value).strip().lower()
    if word in _UNKNOWN:
        return np.nan
    if word not in _YES | _NO:
        raise ValueError(
            f"{path}, row {number}: {value!r} in the column {name!r} is no label; write 1, 0, or nothing for unknown."
        )
    return float(word in _YES)
