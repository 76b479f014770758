"""Tables of named columns: CSV, TSV, JSON lines and Parquet, compressed or not."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any

from labelgap.datasets.files import PathLike, read_text, replacing, uncompressed_name
from labelgap.runtime import optional

Record = dict[str, Any]


def table_format(path: PathLike) -> str | None:
    """Return "csv", "tsv", "jsonl" or "parquet" by a file's ending, None where it says none of them.

    >>> table_format("posts.csv.gz"), table_format("posts.ndjson"), table_format("posts.arff")
    ('csv', 'jsonl', None)
    """
    ending = uncompressed_name(path).rpartition(".")[2]
    return {"csv": "csv", "tsv": "tsv", "tab": "tsv", "jsonl": "jsonl", "ndjson": "jsonl", "parquet": "parquet"}.get(
        ending
    )


def read_records(path: PathLike, format: str | None = None) -> list[Record]:
    """Return the rows of a table, each a dict from column to value; a column that a JSON line lacks is None.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "a.csv"
    ...     _ = path.write_text("id,text\\n1,hello\\n")
    ...     read_records(path)
    [{'id': '1', 'text': 'hello'}]
    """
    return _of(_READERS, path, format)(path)


def write_records(path: PathLike, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write rows of values under column names, in the format of the file's ending; whole or not at all."""
    write = _of(_WRITERS, path, None)
    with replacing(path) as stream:
        write(stream, list(columns), rows)


def _of(table: dict[str, Callable], path: PathLike, format: str | None) -> Callable:
    chosen = table_format(path) if format is None else format
    if chosen not in table:
        raise ValueError(
            f"{path}: the ending says no table; use .csv, .tsv, .jsonl or .parquet (also with .gz or .xz)."
        )
    return table[chosen]


def _read_csv(path: PathLike, delimiter: str = ",") -> list[Record]:
    csv.field_size_limit(sys.maxsize)  # documents are long
    reader = csv.reader(io.StringIO(read_text(path), newline=""), delimiter=delimiter, strict=True)
    try:
        return list(_with_names(path, reader))
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}; check the quotes around that place.") from error


def _with_names(path: PathLike, reader: Any) -> Iterator[Record]:
    names = next(reader, None)
    if not names:
        raise ValueError(f"{path} is empty; the first line must name the columns.")
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"{path} names the column {min(twice)!r} twice; give each its own name.")
    for values in reader:
        if not values:  # a blank line
            continue
        if len(values) != len(names):
            raise ValueError(
                f"{path}, line {reader.line_num}: {len(values)} fields under {len(names)} columns; quote fields that "
                "hold separators."
            )
        yield dict(zip(names, values, strict=True))


def _read_jsonl(path: PathLike) -> list[Record]:
    rows = []
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{path}, line {number} is no JSON ({error}); write one object in each line.") from error
        if not isinstance(row, dict):
            raise ValueError(f"{path}, line {number} is {type(row).__name__}, not an object; write {{...}}.")
        rows.append(row)
    names = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name) for name in names} for row in rows]


def _read_parquet(path: PathLike) -> list[Record]:
    parquet = optional("pyarrow.parquet", "parquet")
    try:
        return parquet.read_table(path).to_pylist()
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as Parquet ({error}); check the file.") from error


def _write_csv(stream: IO[bytes], columns: list[str], rows: Iterable[Sequence[Any]], delimiter: str = ",") -> None:
    text = io.TextIOWrapper(stream, "utf-8", newline="", write_through=True)
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    text.detach()


def _write_jsonl(stream: IO[bytes], columns: list[str], rows: Iterable[Sequence[Any]]) -> None:
    for row in rows:
        record = dict(zip(columns, row, strict=True))
        stream.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")


def _write_parquet(stream: IO[bytes], columns: list[str], rows: Iterable[Sequence[Any]]) -> None:
    parquet, arrow = optional("pyarrow.parquet", "parquet"), optional("pyarrow", "parquet")
    values = list(zip(*rows, strict=True)) or [()] * len(columns)
    parquet.write_table(
        arrow.table({name: list(column) for name, column in zip(columns, values, strict=True)}), stream
    )


_READERS: dict[str, Callable] = {
    "csv": _read_csv,
    "tsv": lambda path: _read_csv(path, "\t"),
    "jsonl": _read_jsonl,
    "parquet": _read_parquet,
}
_WRITERS: dict[str, Callable] = {
    "csv": _write_csv,
    "tsv": lambda stream, columns, rows: _write_csv(stream, columns, rows, "\t"),
    "jsonl": _write_jsonl,
    "parquet": _write_parquet,
}
