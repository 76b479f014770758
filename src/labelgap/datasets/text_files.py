"""Texts of a folder of tables, which are read file by file and never all at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from labelgap.datasets.documents import join_texts, read_rows
from labelgap.datasets.file_io import PathLike
from labelgap.datasets.tables import Record, find_columns


class TextFiles:
    """The texts of tables, one block for each file.

    Parameters
    ----------
    paths : sequence of paths
        The files.
    columns : sequence of str
        Their columns of text.
    sizes : sequence of int
        Their numbers of rows.
    delimiter, encoding : str, optional
        As in :func:`labelgap.datasets.read_records`.

    Attributes
    ----------
    blocks : list of callables
        Each returns the texts of a file.
    """

    def __init__(
        self,
        paths: Sequence[PathLike],
        columns: Sequence[str],
        sizes: Sequence[int],
        *,
        delimiter: str | None = None,
        encoding: str | None = None,
    ) -> None:
        options = {"delimiter": delimiter, "encoding": encoding}
        self.blocks: list[Callable[[], list[str]]] = [
            partial(_read_texts, str(Path(path).absolute()), list(columns), **options) for path in paths
        ]
        self._n_rows = sum(sizes)

    def __len__(self) -> int:
        return self._n_rows


def _read_texts(path: str, columns: list[str], **options: str | None) -> list[str]:
    return join_texts(read_rows(path, **options), columns)


def read_columns(
    path: PathLike, columns: Sequence[str], *, delimiter: str | None = None, encoding: str | None = None
) -> list[Record]:
    """Return some columns of a table, each under the name given here; raise ValueError if it lacks one."""
    rows = read_rows(path, delimiter=delimiter, encoding=encoding)
    names = dict(zip(columns, find_columns(path, list(columns), list(rows[0])), strict=True))
    return [{column: row[name] for column, name in names.items()} for row in rows]
