"""The data under review, documents, labels and model, and its export with the verdicts applied."""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from labelgap.datasets import write_records
from labelgap.datasets.file_io import read_bytes, uncompressed_name, write_compressed
from labelgap.datasets.tables import find_delimiter, guess_table_format
from labelgap.datasets.tag_columns import NOTATIONS, join_tags, split_tags
from labelgap.gaps import Argument, Explanation, LabelCooccurrence, explain
from labelgap.inputs import TableColumns, get_label_names, load_data_for, resolve_columns
from labelgap.observations import Labels, as_labels
from labelgap.portable import TOKEN, without_markup
from labelgap.serve.reviews.store import Review

LOG_COLUMNS = ["key" if name == "entry_id" else name for name in Review._fields] + ["current"]
MAX_LABEL_LENGTH = 10_000
MAX_HEADER_BYTES = 1 << 20  # the first line of a table ends within these
_BLANK_LINES = re.compile(r"\s*\n\s*\n\s*")
_BLANKS = re.compile(r"[^\S\n]+")


class ReviewData:
    """A table of texts with labels, and a model fitted on these labels.

    Parameters
    ----------
    path : path
        CSV, TSV, JSON lines or Parquet.
    model : Tagger
        A fitted model; it has the names of its columns if ``labelgap fit`` saved it.
    columns : TableColumns
        The columns of the table; empty ones are those of the model.
    """

    def __init__(self, path: Path, model: Any, columns: TableColumns) -> None:
        self.path, self.model = path, model
        self._named_columns = resolve_columns(model, columns)
        data = load_data_for(model, path, columns, labels=True)
        self.columns = data.columns
        if data.records is None:
            raise ValueError(f"--data {path} has no texts to show; pass a table: .csv, .tsv, .jsonl or .parquet.")
        self.texts: list[str] = data.X
        self.records = data.records
        self.labels = as_labels(data.Y)
        self.label_names = get_label_names(model) or list(map(str, data.label_names or ()))
        if len(self.label_names) != self.labels.shape[1]:
            raise ValueError(
                f"{path} has {self.labels.shape[1]} labels and the model {len(self.label_names)}; "
                "pass the data that the model was fitted on."
            )
        longest = max(self.label_names, key=len, default="")
        if len(longest) > MAX_LABEL_LENGTH:
            raise ValueError(
                f"The label {longest[:40]!r}… has {len(longest)} characters; labels under review have at most "
                f"{MAX_LABEL_LENGTH}."
            )
        self.label_numbers = {name: j for j, name in enumerate(self.label_names)}
        self.line_end = _find_line_end(path)  # now: the file may be gone when the table is exported
        self.delimiter = self.columns.delimiter or _find_delimiter(path)

    @cached_property
    def identity(self) -> dict[str, str]:
        """Fingerprints of the file, the columns and the label names, which reviews depend on."""
        named = self._named_columns
        columns = (named.text, named.tags, named.labels, named.separator or "")
        return {
            "data file": hashlib.sha256(read_bytes(self.path).data).hexdigest(),
            "choice of columns": _fingerprint(columns),
            "set of labels": _fingerprint(self.label_names),
        }

    @cached_property
    def data_id(self) -> str:
        """One short fingerprint of :attr:`identity`; a verdict names it, so that it is not stored for other data."""
        return _fingerprint(list(self.identity.values()))[:16]

    @cached_property
    def cooccurrence(self) -> LabelCooccurrence:
        """Co-occurrence of labels."""
        return LabelCooccurrence(self.labels)

    def labels_of(self, row: int) -> list[str]:
        """Return the labels that a document has in the file."""
        return [self.label_names[j] for j in self.labels.positives[[row]].indices]

    def current_labels(self, row: int, reviews: Iterable[Review]) -> list[str]:
        """Return the labels of a document with the current reviews of its row applied."""
        changes = {review.label: review.kind == "missing" for review in reviews if review.verdict == "accept"}
        labels = [label for label in self.labels_of(row) if changes.get(label, True)]
        return labels + [label for label, added in changes.items() if added and label not in labels]

    def apply_reviews(self, reviews: Iterable[Review]) -> Labels:
        """Return the labels with accepted reviews applied: missing ones added, doubtful ones removed."""
        accepted = [review for review in reviews if review.verdict == "accept"]
        cells = [(review.row, self.label_numbers[review.label], review.kind == "missing") for review in accepted]
        if not cells:
            return self.labels
        rows, columns, values = (np.array(part) for part in zip(*cells, strict=True))
        positives = sp.lil_array(self.labels.positives)
        positives[rows, columns] = values
        return Labels.of_patterns(sp.csr_array(positives), self.labels.known)

    def text_parts(self, row: int) -> list[tuple[str, str]]:
        """Return the text columns of a document: names, and texts without markup and superfluous whitespace."""
        record = self.records[row]
        return [
            (name, clean_text("" if record[name] is None else str(record[name])))
            for name in self.columns.text_columns
        ]

    def explain(self, row: int, label: str, top: int = 8) -> Explanation:
        """Return the words and other labels of a document that speak for or against a label."""
        explanation = explain(self.model, self.texts[row], label, top=top)
        column = self.label_numbers[label]
        labels = [
            Argument(other, self.cooccurrence.get_weight(self.label_numbers[other], column))
            for other in self.labels_of(row)
            if other != label
        ]
        labels.sort(key=lambda argument: -abs(argument.weight))
        features = [argument for argument in explanation.features if argument.weight]
        return explanation._replace(features=features, labels=labels[:top])


def clean_text(text: str) -> str:
    """Return a text without markup, with single spaces and at most one empty line in a row.

    >>> clean_text("<p>Salt  &amp; <b>pepper</b></p>\\n \\n\\n<p>x</p>")
    'Salt & pepper\\n\\nx'
    """
    plain = _BLANKS.sub(" ", without_markup(text))
    return _BLANK_LINES.sub("\n\n", plain).strip()


class TextSegment(NamedTuple):
    """A piece of text and its weight for a label; 0 if it has none."""

    text: str
    weight: float


def split_by_weight(text: str, arguments: Sequence[Argument]) -> list[TextSegment]:
    """Split a text into segments with the weights of their words; a feature may be several words in a row.

    >>> split_by_weight("Salt the oven.", [Argument("oven", 0.5), Argument("salt", -0.1)])
    [TextSegment(text='Salt', weight=-0.1), TextSegment(text=' the ', weight=0.0), \
TextSegment(text='oven', weight=0.5), TextSegment(text='.', weight=0.0)]
    """
    weights = {tuple(argument.name.split(" ")): argument.weight for argument in arguments}
    matches = list(re.finditer(TOKEN, text))  # the tokens of a Tagger
    words = [match.group().lower() for match in matches]
    longest = max(map(len, weights), default=0)
    segments, end, i = [], 0, 0
    while i < len(words):
        size = next((n for n in range(longest, 0, -1) if tuple(words[i : i + n]) in weights), 0)
        if size:
            start, stop = matches[i].start(), matches[min(i + size, len(words)) - 1].end()
            weight = weights[tuple(words[i : i + size])]
            segments += [TextSegment(text[end:start], 0.0), TextSegment(text[start:stop], weight)]
            end = stop
        i += size or 1
    return [segment for segment in [*segments, TextSegment(text[end:], 0.0)] if segment.text]


def _fingerprint(words: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()


# --- export ---------------------------------------------------------------------------------------------------------


def export_labels(data: ReviewData, reviews: Iterable[Review]) -> tuple[str, bytes]:
    """Return a file name and the table with verdicts applied: the same columns and rows, with the accepted changes.

    Lines end as the first line of the file does. Cells are not escaped for spreadsheets: a text that begins with "="
    is a formula there unless it is imported as text.
    """
    changes: dict[int, dict[str, bool]] = {}
    for review in reviews:
        if review.verdict == "accept":
            changes.setdefault(review.row, {})[review.label] = review.kind == "missing"
    records = list(data.records)
    change = _TagColumn(data) if data.columns.tags else _LabelColumns(data)
    for row, labels in changes.items():
        records[row] = change(records[row], labels)
    columns = list(records[0])
    stem, ending = _split_ending(data.path.name)
    rows = ([record[name] for name in columns] for record in records)
    return _write_table(f"{stem}-reviewed{ending}", columns, rows, data.line_end, data.delimiter)


def export_log(reviews: Sequence[Review], current: Sequence[Review], ending: str) -> tuple[str, bytes]:
    """Return a file name and the whole log as .csv or .jsonl; the column "current" marks the current verdicts."""
    current_ids = {review.id for review in current}
    rows = ([*review, int(review.id in current_ids)] for review in reviews)
    return _write_table(f"reviews.{ending}", LOG_COLUMNS, rows)


class _TagColumn:
    """Changes records with a column of tags: the remaining tags stay in order, new ones come last."""

    def __init__(self, data: ReviewData) -> None:
        self.column = data.columns.tags
        values = [record[self.column] for record in data.records]
        texts = [value for value in values if isinstance(value, str)]
        self.has_lists = any(value is not None and not isinstance(value, str) for value in values)
        self.form = data.columns.separator or " "
        spaced = f"{self.form} "
        self.joint = spaced if self.form != " " and any(spaced in text for text in texts) else self.form

    def __call__(self, record: dict[str, Any], changes: dict[str, bool]) -> dict[str, Any]:
        value = record[self.column]
        tags = [tag for tag in split_tags([value], self.form)[0] if changes.get(tag, True)]
        tags += [tag for tag, added in changes.items() if added and tag not in tags]
        is_text = not self.has_lists if value is None else isinstance(value, str)
        return record | {self.column: self._join(tags) if is_text else tags}

    def _join(self, tags: list[str]) -> str:
        for tag in tags:
            if split_tags([join_tags([tag], self.form)], self.form) != [[tag]]:
                mark = "blank" if self.form == " " else self.form
                raise ValueError(
                    f"The label {tag!r} cannot be written to the column {self.column}, whose tags are separated by "
                    f"{mark!r}; use lists of tags, such as JSON lines."
                )
        return join_tags(tags, self.form, None if self.form in NOTATIONS else self.joint)


class _LabelColumns:
    """Changes records with a column for each label; yes and no are written as in other rows of the column."""

    def __init__(self, data: ReviewData) -> None:
        self.data = data

    def __call__(self, record: dict[str, Any], changes: dict[str, bool]) -> dict[str, Any]:
        return record | {label: self._cell_value(label, added) for label, added in changes.items()}

    def _cell_value(self, label: str, added: bool) -> Any:
        states = self.data.labels.toarray()[:, self.data.label_numbers[label]]
        rows = (states == added).nonzero()[0]
        return self.data.records[rows[0]][label] if len(rows) else int(added)


def _split_ending(name: str) -> tuple[str, str]:
    """Return the stem and the ending of a table's name, without a compression that cannot be written.

    >>> _split_ending("a.b.CSV.gz"), _split_ending("a.csv.zip")
    (('a.b', '.CSV.gz'), ('a', '.csv'))
    """
    place = len(uncompressed_name(name).rpartition(".")[0])
    return name[:place], name[place:].removesuffix(".zip")


def _find_line_end(path: Path) -> bytes:
    """Return the line end of the first line of a table."""
    if guess_table_format(path) == "parquet":
        return b"\n"
    match = re.search(rb"\r?\n", read_bytes(path)[:MAX_HEADER_BYTES].tobytes())
    return b"\n" if match is None else match.group()


def _find_delimiter(path: Path) -> str | None:
    """Return the character between the column names of a CSV or TSV file; None for other tables."""
    default = {"csv": ",", "tsv": "\t"}.get(guess_table_format(path) or "")
    if default is None:
        return None
    line = read_bytes(path)[:MAX_HEADER_BYTES].tobytes().partition(b"\n")[0]
    return find_delimiter(line.decode("latin-1"), default)


def _write_table(
    name: str,
    columns: Sequence[str],
    rows: Iterator[Sequence[Any]],
    line_end: bytes = b"\n",
    delimiter: str | None = None,
) -> tuple[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        write_records(path, columns, rows, delimiter=delimiter)
        if line_end != b"\n":
            lines = _set_line_ends(read_bytes(path).tobytes(), line_end, quotes=guess_table_format(name) != "jsonl")
            with write_compressed(path) as stream:
                stream.write(lines)
        return name, path.read_bytes()


def _set_line_ends(content: bytes, line_end: bytes, *, quotes: bool) -> bytes:
    r"""Return a table with other line ends; a line break within quotes is part of a cell.

    >>> _set_line_ends(b'a,"b\n"\n', b"\r\n", quotes=True)
    b'a,"b\n"\r\n'
    """
    parts = content.split(b'"') if quotes else [content]
    return b'"'.join(part if i % 2 else part.replace(b"\n", line_end) for i, part in enumerate(parts))
