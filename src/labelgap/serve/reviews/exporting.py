"""The reviewed labels in the form of the file they came from, and the log of reviews."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from labelgap.datasets import write_records
from labelgap.datasets.documents import find_separator, split_tags, unpacked
from labelgap.datasets.files import read_bytes, replacing, uncompressed_name
from labelgap.datasets.tabular import table_format
from labelgap.serve.reviews.material import Material
from labelgap.serve.reviews.store import Review

LOG_COLUMNS = [*Review._fields, "stands"]
HEAD = 1 << 20  # bytes in which the first line ends


def export_labels(material: Material, reviews: Iterable[Review]) -> tuple[str, bytes]:
    """Return a file name and the table with verdicts applied: the same columns and rows, other tags where accepted.

    Lines end as the first one of the file does. Cells are written as they are. A text that begins with "=" is a
    formula to a spreadsheet; whoever opens the export in one should import it as text.
    """
    changes: dict[int, dict[str, bool]] = {}
    for review in reviews:
        if review.verdict == "accept":
            changes.setdefault(review.row, {})[review.label] = review.kind == "missing"
    records = list(material.records)
    change = _Tags(material) if material.columns.tags else _LabelColumns(material)
    for row, wanted in changes.items():
        records[row] = change(records[row], wanted)
    columns = list(records[0])
    stem, ending = _halves(material.path.name)
    rows = ([one[name] for name in columns] for one in records)
    return _written(f"{stem}-reviewed{ending}", columns, rows, _line_end(material.path))


def export_log(reviews: Sequence[Review], present: Sequence[Review], ending: str) -> tuple[str, bytes]:
    """Return a file name and the whole log as .csv or .jsonl; "stands" says which entries hold now."""
    holding = {review.id for review in present}
    rows = ([*review, int(review.id in holding)] for review in reviews)
    return _written(f"reviews.{ending}", LOG_COLUMNS, rows)


class _Tags:
    """Changes a record whose tags are in one column: what was there stays in its order, new tags come last."""

    def __init__(self, material: Material) -> None:
        self.column = material.columns.tags
        values = [record[self.column] for record in material.records]
        texts = [value for value in values if isinstance(value, str)]
        self.has_lists = any(value is not None and not isinstance(value, str) for value in values)
        self.in_json = any(text.strip() for text in texts) and unpacked(values) is not values
        self.separator = material.columns.separator or find_separator(texts)
        mark = self.separator or " "
        self.joint = f"{mark} " if mark.strip() and any(f"{mark} " in text for text in texts) else mark

    def __call__(self, record: dict[str, Any], wanted: dict[str, bool]) -> dict[str, Any]:
        value = record[self.column]
        tags = [tag for tag in split_tags([value], self._as_read(value))[0] if wanted.get(tag, True)]
        tags += [tag for tag, there in wanted.items() if there and tag not in tags]
        return record | {self.column: self._join(tags) if self._is_text(value) else tags}

    def _is_text(self, value: Any) -> bool:
        return not self.has_lists if value is None else isinstance(value, str)

    def _as_read(self, value: Any) -> str | None:
        return self.separator if isinstance(value, str) else None

    def _join(self, tags: list[str]) -> str:
        if self.in_json:
            return json.dumps(tags, ensure_ascii=False)
        for tag in tags:
            if split_tags([tag], self.separator) != [[tag]]:
                mark = self.separator or "blank"
                raise ValueError(f"The label {tag!r} cannot be written among tags that have a {mark!r} between them.")
        return self.joint.join(tags)


class _LabelColumns:
    """Changes a record with a column for each label: yes and no are written as the column writes them elsewhere."""

    def __init__(self, material: Material) -> None:
        self.material = material

    def __call__(self, record: dict[str, Any], wanted: dict[str, bool]) -> dict[str, Any]:
        return record | {label: self._word(label, there) for label, there in wanted.items()}

    def _word(self, label: str, there: bool) -> Any:
        states = self.material.labels.toarray()[:, self.material.place[label]]
        rows = (states == there).nonzero()[0]
        return self.material.records[rows[0]][label] if len(rows) else int(there)


def _halves(name: str) -> tuple[str, str]:
    """Return the stem of a table's name and its ending; a compression that cannot be written is dropped.

    >>> _halves("a.b.CSV.gz"), _halves("a.csv.zip")
    (('a.b', '.CSV.gz'), ('a', '.csv'))
    """
    place = len(uncompressed_name(name).rpartition(".")[0])
    return name[:place], name[place:].removesuffix(".zip")


def _line_end(path: Path) -> bytes:
    """Return what ends the first line of a table of text."""
    found = None if table_format(path) == "parquet" else re.search(rb"\r?\n", read_bytes(path)[:HEAD].tobytes())
    return b"\n" if found is None else found.group()


def _written(
    name: str, columns: Sequence[str], rows: Iterator[Sequence[Any]], line_end: bytes = b"\n"
) -> tuple[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        write_records(path, columns, rows)
        if line_end != b"\n":
            lines = _with_line_ends(read_bytes(path).tobytes(), line_end, quotes=table_format(name) != "jsonl")
            with replacing(path) as stream:
                stream.write(lines)
        return name, path.read_bytes()


def _with_line_ends(content: bytes, line_end: bytes, *, quotes: bool) -> bytes:
    r"""Return a table whose lines end otherwise; a line break within quotes is part of a cell.

    >>> _with_line_ends(b'a,"b\n"\n', b"\r\n", quotes=True)
    b'a,"b\n"\r\n'
    """
    parts = content.split(b'"') if quotes else [content]
    return b'"'.join(part if i % 2 else part.replace(b"\n", line_end) for i, part in enumerate(parts))
