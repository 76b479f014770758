"""Input files of the command line and the review page: tables of texts, or files of features and labels."""

from __future__ import annotations

import codecs
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from labelgap.datasets import read, read_records
from labelgap.datasets.documents import (
    find_label_columns,
    join_texts,
    parse_label_columns,
    read_rows,
    split_tag_column,
)
from labelgap.datasets.tables import Record, find_column, find_columns, guess_table_format, list_columns, list_files
from labelgap.datasets.tag_columns import choose_form
from labelgap.datasets.text_files import TextFiles, read_columns
from labelgap.estimators import MultiLabelEstimator, Tagger, load
from labelgap.observations import as_labels, encode_tags
from labelgap.runtime import call_elsewhere, check_file, get_memory_limit, get_runner, progress, run_parallel

# Names of columns that are read if the user names none.
TEXT_NAMES = (
    *("title", "subject", "headline", "text", "body", "content", "question", "description", "abstract", "summary"),
    *("document", "message", "post", "comment", "comment_text", "review", "sentence"),
)
TAG_NAMES = ("tags", "labels", "topics", "categories", "keywords", "genres", "tag")
ID_NAMES = ("id",)
UNDECIDED = ("", "skip", "conflict", "undo")  # verdicts of a log of reviews that neither accept nor reject


class WrongOption(ValueError):
    """Error for an unknown option or a value that an option cannot have."""

    exit_code = 2


def _split_names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


@dataclass(frozen=True)
class TableColumns:
    """Columns of a table that hold texts and labels, as the user names them, and how to read the table.

    Parameters
    ----------
    text : str
        Names of the text columns, separated by commas.
    tags : str
        Name of the column that lists the tags of each row.
    labels : str
        Names of label columns, separated by commas, as an alternative to ``tags``.
    separator : str, optional
        Separator between tags, or "json", "python" or "<>"; detected by default.
    delimiter : str, optional
        Character between the fields of a CSV file; detected by default.
    encoding : str, optional
        Encoding of the file; detected by default.
    id : str
        Name of the column that identifies a row; by default the column "id", if there is one.
    """

    text: str = ""
    tags: str = ""
    labels: str = ""
    separator: str | None = None
    delimiter: str | None = None
    encoding: str | None = None
    id: str = ""

    def __post_init__(self) -> None:
        if self.separator == "":
            raise WrongOption("--separator is empty; pass the characters between tags, such as ';', or leave it out.")
        if self.tags and self.labels:
            raise WrongOption("--tags and --labels are two ways to name the labels; use only one.")
        name, count = max(Counter(self.label_columns).items(), key=lambda item: item[1], default=("", 1))
        if count > 1:
            raise WrongOption(f"--labels names {name!r} {count} times; name each column once.")
        if self.delimiter is not None:
            mark = {"tab": "\t", "\\t": "\t"}.get(self.delimiter.lower(), self.delimiter)
            if len(mark) != 1 or mark in '"\r\n':
                raise WrongOption(
                    f"--delimiter {self.delimiter!r} is not a character; pass one, such as ';', or tab."
                )
            object.__setattr__(self, "delimiter", mark)
        if self.encoding is not None and not _is_encoding(self.encoding):
            raise WrongOption(f"--encoding {self.encoding} is not known; pass a name such as utf-8 or cp1252.")

    @property
    def text_columns(self) -> list[str]:
        """Names of the text columns."""
        return _split_names(self.text)

    @property
    def label_columns(self) -> list[str]:
        """Names of the label columns."""
        return _split_names(self.labels)


@dataclass(frozen=True)
class InputData:
    """Rows and labels of an input file.

    Parameters
    ----------
    X : list of str, or matrix
        Texts or features.
    Y : label matrix or None
        Labels, if the file has any.
    label_names : list of str, optional
        Names of the labels.
    records : list of dict, optional
        Rows of a table, by column name.
    columns : TableColumns
        The columns that were read, under their names in the table; ``separator`` is the form of the tags.
    tags : frozenset of str, optional
        All tags in the file, if a column lists tags and the model has label names.
    unknown_tags : frozenset of str
        Tags in the file that the model does not have.
    n_untagged : int, optional
        Number of rows without tags, if a column lists tags.
    """

    X: Any
    Y: Any
    label_names: list[str] | None = None
    records: list[Record] | None = None
    columns: TableColumns = TableColumns()
    tags: frozenset[str] | None = None
    unknown_tags: frozenset[str] = frozenset()
    n_untagged: int | None = None

    @property
    def is_text(self) -> bool:
        """Whether rows are texts."""
        return isinstance(self.X, list | TextFiles)

    @property
    def ids(self) -> list[Any] | None:
        """The user's identifiers of the rows; None if there is no such column."""
        if self.records is None or not self.columns.id:
            return None
        return [record[self.columns.id] for record in self.records]

    def select(self, rows: NDArray) -> InputData:
        """Return some rows."""
        X = [self.X[i] for i in rows] if self.is_text else self.X[rows]
        records = None if self.records is None else [self.records[i] for i in rows]
        Y = None if self.Y is None else self.Y[rows]
        untagged = self.n_untagged
        if untagged is not None:
            untagged = int(np.count_nonzero(np.diff(as_labels(Y).positives.indptr) == 0))
        return replace(self, X=X, Y=Y, records=records, n_untagged=untagged)

    def __len__(self) -> int:
        return len(self.X) if self.is_text else self.X.shape[0]


# --- files ----------------------------------------------------------------------------------------------------------


def open_model(path: Path, read: Callable[[Path], Any] = load) -> Any:
    """Return ``read(path)``, by default the model; raise IsADirectoryError for a folder without a model."""
    if path.is_file() and guess_table_format(path) is not None:
        raise ValueError(f"{path} is a table, not a model; pass what `labelgap fit` wrote.")
    try:
        return read(path)
    except FileNotFoundError as error:
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder and no model; pass what `labelgap fit` wrote.") from error
        raise


def load_data(
    path: Path,
    columns: TableColumns,
    *,
    label_names: Sequence[str] | None = None,
    min_count: int = 1,
    labels: bool = True,
    form: str = "",
    by_file: bool = False,
) -> InputData:
    """Read a file or a folder of shards; raise ValueError if ``labels`` is true and the table has none.

    ``label_names`` are the labels of a model, and ``form`` is the form of the tags that it was fitted on. With
    ``by_file``, texts of a large folder stay in their files, and cannot be selected.
    """
    check_file(path, folder=True)
    if guess_table_format(path) is None:
        X, Y, _, names = read(path)
        return InputData(X, Y, names)
    texts: list[str] | TextFiles
    if by_file and _is_read_by_file(path):
        rows, columns, texts = _read_by_file(path, columns)
    else:
        rows = read_rows(path, delimiter=columns.delimiter, encoding=columns.encoding)
        columns = find_table_columns(path, rows, columns, labels=labels)
        texts = join_texts(rows, columns.text_columns)
    if not labels:
        return InputData(texts, None, None, rows, columns)
    if columns.labels:
        names = columns.label_columns
        return InputData(texts, parse_label_columns(path, rows, names), names, rows, columns)
    if not columns.separator:
        values = [row[columns.tags] for row in rows]
        columns = replace(columns, separator=choose_form(values, form, label_names or ()) or None)
    lists = split_tag_column(path, rows, columns.tags, columns.separator)
    Y, names = encode_tags(lists, label_names, min_count=min_count)
    if not names:
        raise ValueError(f"{path} has no tag in the column {columns.tags!r}; check the column and --min-count.")
    data = InputData(texts, Y, names, rows, columns, n_untagged=sum(not tags for tags in lists))
    if label_names is None:
        return data
    tags = frozenset(chain.from_iterable(lists))
    return replace(data, tags=tags, unknown_tags=tags - set(names))


TEXT_MEMORY = 8  # texts and rows in memory take several times the bytes of their files


def _is_read_by_file(path: Path) -> bool:
    """Return whether a folder of tables is read file by file: on a cluster, and if it may not fit into memory."""
    files = list_files(path) if path.is_dir() else []
    n_bytes = sum(file.stat().st_size for file in files)
    return len(files) > 1 and (get_runner() is not None or TEXT_MEMORY * n_bytes > get_memory_limit())


def _read_by_file(path: Path, columns: TableColumns) -> tuple[list[Record], TableColumns, TextFiles]:
    """Return the labels of all rows of a folder of tables, its columns, and its texts, which stay in their files."""
    files, options = list_files(path), {"delimiter": columns.delimiter, "encoding": columns.encoding}
    columns = find_table_columns(path, read_rows(files[0], **options), columns, labels=True)
    names = [columns.tags] if columns.tags else columns.label_columns
    tasks = [partial(read_columns, file.absolute(), names, **options) for file in files]
    parts = list(run_parallel([partial(call_elsewhere, task) for task in tasks]))
    texts = TextFiles(files, columns.text_columns, list(map(len, parts)), **options)
    return list(chain.from_iterable(parts)), replace(columns, id=""), texts


def find_table_columns(path: Path, rows: Sequence[Record], columns: TableColumns, *, labels: bool) -> TableColumns:
    """Return the columns under their names in a table, which they may have in another case.

    Columns that the user does not name are guessed: texts, tags and the id by common names, label columns by their
    values. Raise ValueError if there is none to guess.
    """
    names = list(rows[0])
    listing = f"It has the columns {list_columns(names)}."
    id_column = find_column(path, columns.id, names) if columns.id else next(iter(_guess_names(names, ID_NAMES)), "")
    tags = find_column(path, columns.tags, names) if columns.tags else ""
    label_columns = find_columns(path, columns.label_columns, names)
    text_columns = find_columns(path, columns.text_columns, names)
    taken = {id_column, *text_columns}
    others = [name for name in names if name not in taken and "," not in name]
    if labels and not tags and not label_columns:
        tags = next(iter(_guess_names(others, TAG_NAMES)), "")
        free = set(others)
        label_columns = [] if tags else [name for name in find_label_columns(rows) if name in free]
        if not tags and not label_columns:
            raise ValueError(
                f"{path} is a table; say where its labels are: --tags COLUMN, or --labels COLUMN,COLUMN. {listing}"
            )
    if not text_columns:
        taken = {tags, *label_columns}
        others = [name for name in others if name not in taken]
        text_columns = _guess_names(others, TEXT_NAMES) or (others if len(others) == 1 else [])
        if not text_columns:
            raise ValueError(f"{path} is a table; say which columns hold the text: --text title,content. {listing}")
    return replace(
        columns,
        text=",".join(text_columns),
        tags=tags,
        labels=",".join(label_columns),
        id=id_column,
    )


def load_data_for(model: Any, path: Path, columns: TableColumns, *, labels: bool) -> InputData:
    """Read a file for a fitted model, with its labels in the order of the model's labels.

    ``columns`` override those that the model was fitted with. Tags are read in the form of the model's tags, or in
    another one if more of them are then labels of the model.
    """
    stored = getattr(model, "columns_", {})
    separator = columns.separator
    columns = replace(resolve_columns(model, columns), separator=separator)
    if not labels:
        columns = replace(columns, tags="", labels="", separator=None)
    names = get_label_names(model)
    with progress(None, f"Reading {path.name}", 0):
        data = load_data(
            path,
            columns,
            label_names=None if columns.labels else names,
            labels=labels,
            form=stored.get("separator", ""),
        )
    if isinstance(model, Tagger) != data.is_text:
        expected = "texts: pass a table and --text" if isinstance(model, Tagger) else "features, not texts"
        raise ValueError(f"The model takes {expected}.")
    if not data.columns.id and data.records and stored.get("id") in data.records[0]:
        data = replace(data, columns=replace(data.columns, id=stored["id"]))
    if not labels or names is None or data.n_untagged is not None:
        return data
    return _reorder_labels(data, names, path)


def _reorder_labels(data: InputData, names: list[str], path: Path) -> InputData:
    """Return the data with label columns in the order of ``names``; raise ValueError if the names differ."""
    if data.label_names is None or data.label_names == names:
        return data
    for names_here, others, verb in ((names, data.label_names, "lacks"), (data.label_names, names, "also has")):
        odd = [name for name in names_here if name not in set(others)]
        if odd:
            raise ValueError(
                f"{path} must have the labels of the model, in any order; it {verb} {_quote_first(odd)}."
            )
    column = {name: j for j, name in enumerate(data.label_names)}
    return replace(data, Y=data.Y[:, [column[name] for name in names]], label_names=names)


def check_tags(data: InputData, path: Path) -> None:
    """Warn about tags that the model does not have; raise ValueError if it has none of the file's tags."""
    if not data.tags or not data.unknown_tags:
        return
    examples = _quote_first(sorted(data.unknown_tags))
    if data.tags == data.unknown_tags:
        raise ValueError(f"The model has none of the {len(data.tags)} tags of {path} ({examples}); check both files.")
    share = f"{len(data.unknown_tags)} of {len(data.tags)}"
    warnings.warn(f"{share} tags of {path} are not in the model and left out ({examples}).", stacklevel=2)


def count_tags(data: InputData) -> dict[str, int]:
    """Return the number of tags in a file, of those that the model does not have, and of rows without tags.

    Empty if the file has no column of tags.
    """
    counts = {} if data.tags is None else {"tags": len(data.tags), "tags not in the model": len(data.unknown_tags)}
    return counts | ({} if data.n_untagged is None else {"rows without tags": data.n_untagged})


def _is_encoding(name: str) -> bool:
    try:
        codecs.lookup(name)
    except (LookupError, ValueError):
        return False
    return True


def _guess_names(names: Iterable[str], common: Sequence[str]) -> list[str]:
    """Return the names that are common ones, in any case."""
    return [name for name in names if name.strip().casefold() in common]


def _quote_first(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:3])) + (" …" if len(names) > 3 else "")


# --- models ---------------------------------------------------------------------------------------------------------


def store_names(model: MultiLabelEstimator, data: InputData, checksum: str = "") -> None:
    """Store in a fitted model what later commands need: the columns of the table, or the label names.

    ``checksum`` is that of the file, by which `labelgap evaluate` recognizes it.
    """
    model.columns_ = {
        "text": data.columns.text,
        "tags": data.columns.tags,
        "labels": data.columns.labels,
        "separator": data.columns.separator or "",
        "id": data.columns.id,
        "checksum": checksum,
    }
    if not isinstance(model, Tagger) and data.label_names is not None:
        model.label_names_in_ = np.asarray(data.label_names, dtype=object)


def read_verdicts(path: Path, names: list[str] | None, *columns: str) -> list[dict[str, Any]]:
    """Return the decided entries of a table with the columns row, label, verdict and others.

    A verdict is "accept" or "reject"; those of :data:`UNDECIDED` say nothing. An entry has the numbers
    of its row and label, and "accepted"; "current" is 1 where the table does not have it.
    """
    records = read_records(path)
    absent = [name for name in ("row", "label", "verdict", *columns) if not records or name not in records[0]]
    if absent:
        raise ValueError(
            f"--verdicts {path} has no column {absent[0]}; pass one with {', '.join(('row', 'label', *columns))} and "
            "verdict."
        )
    numbers = None if names is None else {name: j for j, name in enumerate(names)}
    entries = []
    for place, record in enumerate(records, 1):
        verdict = str(record["verdict"] or "").strip().lower()
        if verdict in UNDECIDED:
            continue
        if verdict not in ("accept", "reject"):
            raise ValueError(
                f"--verdicts {path}, record {place}: the verdict {record['verdict']!r} is neither accept nor reject; "
                "leave it empty if there is none."
            )
        row, label = str(record["row"]), str(record["label"])
        number = numbers.get(label) if numbers is not None else int(label) if label.isdecimal() else None
        if not row.isdecimal() or number is None:
            raise ValueError(f"--verdicts {path} names row {row!r} and label {label!r}, which the data do not have.")
        cell = {"row": int(row), "label": number, "accepted": verdict == "accept"}
        entries.append({"current": "1"} | record | cell)
    return entries


def resolve_columns(model: Any, columns: TableColumns) -> TableColumns:
    """Return the user's columns, completed by those that the model was fitted with."""
    stored = getattr(model, "columns_", {})
    return replace(
        columns,
        text=columns.text or stored.get("text", ""),
        tags=columns.tags or ("" if columns.labels else stored.get("tags", "")),
        labels=columns.labels or ("" if columns.tags else stored.get("labels", "")),
        separator=columns.separator or stored.get("separator") or None,
    )


def get_label_names(model: Any) -> list[str] | None:
    """Return the label names of a model, or None."""
    names = getattr(model, "label_names_in_", None)
    return None if names is None else list(map(str, names))


def clone_with_seed(model: Any, seed: int) -> Any:
    """Return an unfitted clone; ``seed`` replaces each ``random_state`` that is None.

    What a search, or a Tagger without an estimator, chose is not searched again.
    """
    is_fitted = isinstance(model, MultiLabelEstimator) and hasattr(model, "n_labels_")
    estimator: Any = model.chosen() if is_fitted else clone(model)
    for name, value in estimator.get_params().items():
        if name.endswith("random_state") and value is None:
            estimator.set_params(**{name: seed})
    return estimator
