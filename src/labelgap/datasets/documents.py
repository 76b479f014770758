"""Documents of a table: texts with a column of tags or a column for each label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from labelgap.datasets.file_io import PathLike
from labelgap.datasets.records import Matrix
from labelgap.datasets.tables import Record, find_column, find_columns, read_records
from labelgap.datasets.tag_columns import split_tags
from labelgap.observations import encode_tags

_YES = {"1", "1.0", "true", "yes", "+1", "y", "t"}
_NO = {"0", "0.0", "-1", "-1.0", "false", "no", "n", "f"}
_UNKNOWN = {"", "nan", "na", "n/a", "<na>", "none", "null", "?"}


class Documents(NamedTuple):
    """Texts, their labels n×L with the names (None if there are none), and the rows of the file."""

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
    delimiter: str | None = None,
    encoding: str | None = None,
) -> Documents:
    """Read documents from a CSV, TSV, JSON lines or Parquet file.

    Columns are found in any case.

    Parameters
    ----------
    path : path
        The file; .gz, .xz and .zip are decompressed.
    text : str or sequence of str
        The columns with the text; several are joined by a line break.
    tags : str, optional
        A column with the tags of each document, in one string or as a list. Strings may be separated tags, JSON
        lists, Python lists as pandas writes them, or ``<a><b>``.
    labels : sequence of str, optional
        One column per label instead: 1 or 0, yes or no, true or false; blank and NaN are unknown.
    separator : str, optional
        The separator of tags, or "json", "python" or "<>". By default it is detected: one of these notations, the
        comma, semicolon or bar that most cells have, else blanks.
    label_names : sequence of str, optional
        The labels to use, in this order. Default: all tags that occur, sorted.
    least : int, default=1
        Drop tags of fewer documents.
    delimiter, encoding : str, optional
        As in :func:`labelgap.datasets.read_records`; detected by default.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "a.csv"
    ...     _ = path.write_text("title,tags\\nChewy cookies,baking cookies\\nCrisp bacon,bacon\\n")
    ...     documents = read_documents(path, "title", tags="tags")
    >>> documents.label_names, documents.Y.toarray().tolist()
    (['bacon', 'baking', 'cookies'], [[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]])
    """
    if tags is not None and labels is not None:
        raise ValueError("tags= and labels= are two ways to pass labels; use only one.")
    rows = read_rows(path, delimiter=delimiter, encoding=encoding)
    texts = join_texts(rows, find_columns(path, [text] if isinstance(text, str) else text, rows[0]))
    if labels is not None:
        columns = find_columns(path, labels, rows[0])
        return Documents(texts, parse_label_columns(path, rows, columns), columns, rows)
    if tags is None:
        return Documents(texts, None, None, rows)
    lists = split_tag_column(path, rows, find_column(path, tags, rows[0]), separator)
    return Documents(texts, *encode_tags(lists, label_names, min_count=least), rows)


def read_rows(path: PathLike, *, delimiter: str | None = None, encoding: str | None = None) -> list[Record]:
    """Return the rows of a table; raise ValueError if it has none."""
    rows = read_records(path, delimiter=delimiter, encoding=encoding)
    if not rows:
        raise ValueError(f"{path} contains no rows; check the file.")
    return rows


def join_texts(rows: Sequence[Record], columns: Sequence[str]) -> list[str]:
    """Return the text of each row: its text columns, joined by line breaks.

    >>> join_texts([{"title": "Salt", "body": None}], ["title", "body"])
    ['Salt\\n']
    """
    return ["\n".join("" if row[name] is None else str(row[name]) for name in columns) for row in rows]


def split_tag_column(
    path: PathLike, rows: Sequence[Record], column: str, separator: str | None = None
) -> list[list[str]]:
    """Return the tags of each row of a table."""
    try:
        return split_tags([row[column] for row in rows], separator)
    except ValueError as error:
        raise ValueError(f"{path}, column {column!r}, {error}") from error


def parse_label_columns(path: PathLike, rows: Sequence[Record], names: Sequence[str]) -> Matrix:
    """Return columns of yes and no as labels; blank cells and NaN are unknown."""
    Y = np.array([[_parse_state(path, i, name, row[name]) for name in names] for i, row in enumerate(rows)])
    return Y if np.isnan(Y).any() else sp.csr_array(Y.astype(np.float32))


def find_label_columns(rows: Sequence[Record]) -> list[str]:
    """Return the columns that hold only yes, no and blanks, and both yes and no.

    >>> find_label_columns([{"text": "x", "spam": "1", "old": ""}, {"text": "y", "spam": "0", "old": "1"}])
    ['spam']
    """
    names = []
    for name in rows[0]:
        words = {_normalize(row[name]) for row in rows}
        if words & _YES and words & _NO and words <= _YES | _NO | _UNKNOWN:
            names.append(name)
    return names


def _parse_state(path: PathLike, number: int, name: str, value: Any) -> float:
    word = _normalize(value)
    if word in _UNKNOWN:
        return np.nan
    if word not in _YES | _NO:
        raise ValueError(
            f"{path}, row {number} (counted from 0): cannot read {value!r} in the label column {name!r}; "
            "write 1, 0, or nothing for unknown. A column that lists tags is passed as tags, not as labels."
        )
    return float(word in _YES)


def _normalize(value: Any) -> str:
    return "" if value is None else str(value).strip().lower()
