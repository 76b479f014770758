"""What a command reads: a table of texts, or a file of features and labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labelgap.commands.terminal import WrongOption
from labelgap.datasets import Documents, read, read_documents
from labelgap.datasets.tabular import table_format
from labelgap.estimators import load


@dataclass(frozen=True)
class Columns:
    """Which columns of a table hold what, as the command line gives them."""

    text: str = ""
    tags: str = ""
    labels: str = ""
    separator: str | None = None

    def __post_init__(self) -> None:
        if self.separator == "":
            raise WrongOption("--separator is empty; say what stands between tags, such as ';', or leave it out.")
        name, count = max(Counter(_names(self.labels)).items(), key=lambda item: item[1], default=("", 1))
        if count > 1:
            raise WrongOption(f"--labels names {name!r} {count} times; name each column once.")

    @property
    def texts(self) -> list[str]:
        """The columns of text."""
        return _names(self.text)

    @property
    def given_labels(self) -> list[str] | None:
        """The columns of labels."""
        return _names(self.labels) or None


@dataclass(frozen=True)
class Data:
    """Rows X (texts or features), labels Y where there are any, their names, and the records of a table.

    Where a column lists tags and a model has names, ``tags`` are all of the file, ``unknown_tags`` those it lacks.
    """

    X: Any
    Y: Any
    label_names: list[str] | None = None
    records: list[dict[str, Any]] | None = None
    tags: frozenset[str] | None = None
    unknown_tags: frozenset[str] = frozenset()

    @property
    def is_text(self) -> bool:
        """Whether rows are texts."""
        return isinstance(self.X, list)

    def __len__(self) -> int:
        return len(self.X) if self.is_text else self.X.shape[0]


def check_file(path: Path) -> None:
    """Refuse a path that is no file."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; pass a file in it.")
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}; check the path.")


def open_model(path: Path, read: Callable[[Path], Any] = load) -> Any:
    """Return a model, or what ``read`` takes from one; a folder that holds none is called one."""
    try:
        return read(path)
    except FileNotFoundError as error:
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder and no model; pass what `labelgap fit` wrote.") from error
        raise


def load_data(
    path: Path, columns: Columns, *, label_names: Sequence[str] | None = None, least: int = 1, labels: bool = True
) -> Data:
    """Read a file that a user passed; ``labels`` says whether it must have some."""
    check_file(path)
    if table_format(path) is None:
        X, Y, _, names = read(path)
        return Data(X, Y, names)
    if not columns.texts:
        raise ValueError(f"{path} is a table; say which columns hold the text: --text title,content.")
    if labels and not (columns.tags or columns.labels):
        raise ValueError(f"{path} is a table; say where its labels are: --tags COLUMN, or --labels COLUMN,COLUMN.")
    found = _documents(path, columns, label_names, least)
    if labels and not found.label_names:
        raise ValueError(f"{path} has no tag in the column {columns.tags!r}; check the column and --min-count.")
    return Data(found.texts, found.Y, found.label_names, found.rows)


def _documents(path: Path, columns: Columns, label_names: Sequence[str] | None, least: int) -> Documents:
    return read_documents(
        path,
        columns.texts,
        tags=columns.tags or None,
        labels=columns.given_labels,
        separator=columns.separator,
        label_names=label_names,
        least=least,
    )


def _names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
