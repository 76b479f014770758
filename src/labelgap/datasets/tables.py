"""Tables of named columns: CSV, TSV, JSON lines and Parquet."""

from __future__ import annotations

import csv
import difflib
import io
import json
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any

from labelgap.datasets.file_io import PathLike, read_text, uncompressed_name, write_compressed
from labelgap.runtime import import_optional

Record = dict[str, Any]

DELIMITERS = (",", ";", "\t", "|")
SAMPLE_CHARACTERS, SAMPLE_ROWS = 1 << 18, 50  # from which the delimiter is found
MAX_LISTED, MAX_COMPARED = 50, 5_000  # columns in a message, and those among which a similar name is looked for


def guess_table_format(path: PathLike) -> str | None:
    """Return "csv", "tsv", "jsonl" or "parquet" by the ending of a file, None for other endings.

    The format of a folder is that of its files, if they have the same.

    >>> guess_table_format("posts.csv.gz"), guess_table_format("posts.ndjson"), guess_table_format("posts.arff")
    ('csv', 'jsonl', None)
    """
    if Path(path).is_dir():
        formats = {guess_table_format(part) for part in list_files(path)}
        return formats.pop() if len(formats) == 1 else None
    ending = uncompressed_name(path).rpartition(".")[2]
    format = {"tab": "tsv", "ndjson": "jsonl"}.get(ending, ending)
    return format if format in _TABLE_FORMATS else None


def list_files(folder: PathLike) -> list[Path]:
    """Return the files of a folder that are not hidden, by name."""
    return sorted(path for path in Path(folder).iterdir() if path.is_file() and not path.name.startswith("."))


def read_records(
    path: PathLike, format: str | None = None, *, delimiter: str | None = None, encoding: str | None = None
) -> list[Record]:
    """Return the rows of a table as dicts from column to value; a column that a JSON line lacks is None.

    Parameters
    ----------
    path : path
        The file; .gz, .xz and .zip are decompressed. Or a folder of such files, whose rows follow each other.
    format : {"csv", "tsv", "jsonl", "parquet"}, optional
        Default: by the ending of the file.
    delimiter : str, optional
        The character between the fields of CSV and TSV. By default it is detected: comma, semicolon, tab or bar.
    encoding : str, optional
        The encoding of CSV, TSV and JSON lines. By default a byte order mark decides; else it is UTF-8, or
        Windows-1252, with a warning, if the file is not valid UTF-8.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "a.csv"
    ...     _ = path.write_text("id;text\\n1;hello\\n")
    ...     read_records(path)
    [{'id': '1', 'text': 'hello'}]
    """
    if Path(path).is_dir():
        return _join_tables(
            {part: read_records(part, format, delimiter=delimiter, encoding=encoding) for part in list_files(path)}
        )
    reader, _ = _find_table_format(path, format)
    return reader(path, delimiter, encoding)


def _join_tables(tables: dict[Path, list[Record]]) -> list[Record]:
    """Return the rows of all tables of a folder; raise ValueError for an empty one and for other columns."""
    first, columns = next(iter(tables)), None
    for path, rows in tables.items():
        if not rows:
            raise ValueError(f"{path} contains no rows; leave it out of the folder.")
        columns = columns or list(rows[0])
        if list(rows[0]) != columns:
            raise ValueError(f"{path} has the columns {list(rows[0])} and {first} has {columns}; make them alike.")
    return [row for rows in tables.values() for row in rows]


def write_records(
    path: PathLike, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, delimiter: str | None = None
) -> None:
    """Write rows of values under column names, in the format of the ending; a failure leaves no partial file.

    ``delimiter`` is that of CSV and TSV; by default a comma or a tab.
    """
    _, writer = _find_table_format(path)
    with write_compressed(path) as stream:
        writer(stream, list(columns), rows, delimiter)


def find_column(path: PathLike, name: str, columns: Collection[str]) -> str:
    """Return the column of a name, in any case; raise ValueError with a similar name if there is none.

    >>> find_column("a.csv", "title", ["Id", "Title"])
    'Title'
    >>> find_column("a.csv", "titel", ["Id", "Title"])
    Traceback (most recent call last):
        ...
    ValueError: a.csv has no column 'titel'; did you mean 'Title'? It has 'Id', 'Title'.
    """
    return find_columns(path, [name], columns)[0]


def find_columns(path: PathLike, names: Iterable[str], columns: Collection[str]) -> list[str]:
    """Return the columns of some names as :func:`find_column` does, in linear time."""
    exact = set(columns)
    folded: dict[str, list[str]] = {}

    def find(name: str) -> str:
        if name in exact:
            return name
        if not folded:
            for column in columns:
                folded.setdefault(column.strip().casefold(), []).append(column)
        matches = folded.get(name.strip().casefold(), [])
        if len(matches) == 1:
            return matches[0]
        compared = islice(folded, MAX_COMPARED)
        similar = matches or [folded[key][0] for key in difflib.get_close_matches(name.casefold(), compared, 1)]
        hint = f"did you mean {' or '.join(map(repr, similar))}? It" if similar else "it"
        raise ValueError(f"{path} has no column {name!r}; {hint} has {list_columns(columns)}.")

    return [find(name) for name in names]


def list_columns(columns: Collection[str]) -> str:
    """Return the names of columns for an error message; of many the first.

    >>> list_columns(["id", "text"]), list_columns([str(i) for i in range(1000)])[-23:]
    ("'id', 'text'", "'48', '49' and 950 more")
    """
    more = f" and {len(columns) - MAX_LISTED} more" if len(columns) > MAX_LISTED else ""
    return ", ".join(map(repr, islice(columns, MAX_LISTED))) + more


def find_delimiter(text: str, default: str = ",") -> str:
    r"""Return the character that separates the fields of a table.

    It is one that the first line contains and that gives all of the first rows as many fields: the default if it
    does, else the one with the most fields.

    >>> find_delimiter("id;text\n1;hello, world\n"), find_delimiter("text\na;b\n")
    (';', ',')
    """
    sample = text[:SAMPLE_CHARACTERS]
    n_fields, regular = {}, []
    for mark in DELIMITERS:
        try:
            rows = list(islice(csv.reader(io.StringIO(sample, newline=""), delimiter=mark), SAMPLE_ROWS))
        except csv.Error:
            continue
        rows = [row for row in (rows[:-1] if len(sample) < len(text) and len(rows) > 1 else rows) if row]
        n_fields[mark] = len(rows[0]) if rows else 0
        if rows and n_fields[mark] > 1 and all(len(row) == n_fields[mark] for row in rows):
            regular.append(mark)
    choices = regular or [mark for mark, count in n_fields.items() if count > 1]
    return default if default in choices or not choices else max(choices, key=lambda mark: n_fields[mark])


def _find_table_format(path: PathLike, format: str | None = None) -> tuple[Callable, Callable]:
    format = format or guess_table_format(path)
    if format not in _TABLE_FORMATS:
        raise ValueError(
            f"{path} is not a table by its ending; use .csv, .tsv, .jsonl or .parquet (or with .gz or .xz)."
        )
    return _TABLE_FORMATS[format]


def _read_csv(path: PathLike, delimiter: str | None, encoding: str | None, default: str = ",") -> list[Record]:
    csv.field_size_limit(sys.maxsize)  # documents are long
    text = read_text(path, encoding)
    delimiter = delimiter or find_delimiter(text, default)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        return list(_name_fields(path, reader, delimiter))
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}; check the quotes around this line.") from error


def _name_fields(path: PathLike, reader: Any, delimiter: str) -> Iterator[Record]:
    names = next(reader, None)
    if not names:
        raise ValueError(f"{path} is empty; its first line must name the columns.")
    duplicates = [name for name, count in Counter(names).items() if count > 1]
    if duplicates:
        raise ValueError(f"{path} names the column {min(duplicates)!r} twice; give each its own name.")
    for values in reader:
        if not values:  # a blank line
            continue
        if len(values) != len(names):
            raise ValueError(
                f"{path}, line {reader.line_num}: found {len(values)} fields, expected {len(names)} separated by "
                f"{delimiter!r}; put fields that contain it in quotes, or pass another --delimiter."
            )
        yield dict(zip(names, values, strict=True))


def _read_jsonl(path: PathLike, delimiter: str | None, encoding: str | None) -> list[Record]:
    rows = []
    for number, line in enumerate(read_text(path, encoding).split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if "\\ud" in line.lower():
                json.dumps(
                    row, ensure_ascii=False
                ).encode()  # raises for half a surrogate pair, which no file can hold
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}, line {number} is not JSON ({error}); write one object per line.") from error
        if not isinstance(row, dict):
            raise ValueError(f"{path}, line {number} is {type(row).__name__}, not an object; write {{...}}.")
        rows.append(row)
    names = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name) for name in names} for row in rows]


def _read_parquet(path: PathLike, delimiter: str | None, encoding: str | None) -> list[Record]:
    parquet = import_optional("pyarrow.parquet", "parquet")
    try:
        return parquet.read_table(path).to_pylist()
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as Parquet ({error}); check the file.") from error


def _write_csv(
    stream: IO[bytes], columns: list[str], rows: Iterable[Sequence[Any]], delimiter: str | None, default: str = ","
) -> None:
    text = io.TextIOWrapper(stream, "utf-8", newline="", write_through=True)
    writer = csv.writer(text, delimiter=delimiter or default, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    text.detach()


def _write_jsonl(stream: IO[bytes], columns: list[str], rows: Iterable[Sequence[Any]], delimiter: str | None) -> None:
    for row in rows:
        record = dict(zip(columns, row, strict=True))
        stream.write(json.dumps(record, ensure_ascii=False, default=str).encode() + b"\n")


def _write_parquet(
    stream: IO[bytes], columns: list[str], rows: Iterable[Sequence[Any]], delimiter: str | None
) -> None:
    parquet, arrow = import_optional("pyarrow.parquet", "parquet"), import_optional("pyarrow", "parquet")
    values = list(zip(*rows, strict=True)) or [()] * len(columns)
    table = {name: list(column) for name, column in zip(columns, values, strict=True)}
    parquet.write_table(arrow.table(table), stream)


_TABLE_FORMATS: dict[str, tuple[Callable, Callable]] = {
    "csv": (_read_csv, _write_csv),
    "tsv": (partial(_read_csv, default="\t"), partial(_write_csv, default="\t")),
    "jsonl": (_read_jsonl, _write_jsonl),
    "parquet": (_read_parquet, _write_parquet),
}
