"""Folders of row shards: datasets that are read through memory-mapped files, or file by file.

:func:`write_shards` makes a folder of ``shards.json`` (shapes, names, the first row of each shard) and .npy files
with the rows of all shards, one after the other. :func:`read_shards` maps them, so that neither a fit nor a
prediction needs memory for the features. A folder of files in any other format of :mod:`labelgap.datasets` has a
shard in each.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse as sp

from labelgap.datasets.file_io import PathLike
from labelgap.datasets.formats import guess_format, read
from labelgap.datasets.records import Matrix, Table, check_names, check_pair, to_canonical_csr
from labelgap.datasets.tables import guess_table_format, list_files, read_records, write_records
from labelgap.kernels.mapped import PARTS, MappedMatrix, map_array, open_matrix, split_rows_evenly

HEADER = "shards.json"
FORMAT = 1
HEADER_BYTES = 128  # of a .npy file, whatever its length turns out to be


def is_shard_folder(path: PathLike) -> bool:
    """Return whether a path is a folder of :func:`write_shards`."""
    return (Path(path) / HEADER).is_file()


def read_shards(path: PathLike) -> Table:
    """Map a folder of :func:`write_shards`, or what that function makes of the files of any other folder."""
    folder = Path(path)
    if not is_shard_folder(folder):
        with tempfile.TemporaryDirectory(dir=folder if os.access(folder, os.W_OK) else None) as temporary:
            copy = Path(temporary) / "shards"
            write_shards(copy, read_files(folder))
            table = read_shards(copy)
            for matrix in table[:2]:  # the files stay mapped, and vanish with the matrices
                if isinstance(matrix, MappedMatrix):
                    matrix.source = None
            return table
    header = read_shard_header(folder)
    X, Y = (_open(folder, name, header[name]) for name in ("X", "Y"))
    check_pair(X, Y)
    if X.shape[0] != header["rows"][-1]:
        raise ValueError(f"{folder} has {X.shape[0]} rows and {HEADER} says {header['rows'][-1]}; write it again.")
    return Table(X, Y, header["feature_names"], header["label_names"])


def store_rows(blocks: Iterable[sp.csr_array], dtype: Any) -> MappedMatrix:
    """Write blocks of rows, one in memory at a time, to temporary files; return the mapped matrix of all rows.

    >>> store_rows([sp.csr_array([[1.0, 0.0]]), sp.csr_array([[0.0, 2.0]])], np.float32).toarray()
    array([[1., 0.],
           [0., 2.]], dtype=float32)
    """
    with tempfile.TemporaryDirectory() as folder:
        writer = _MatrixWriter(Path(folder), "X", dtype)
        try:
            for block in blocks:
                writer.add(block)
            matrix = open_matrix(Path(folder), "X", writer.finish()["columns"])
        finally:
            writer.close()
        matrix.source = None  # the files stay mapped, and vanish with the matrix
        return matrix


def read_shard_header(folder: PathLike) -> dict[str, Any]:
    """Return the header of a folder of :func:`write_shards`."""
    path = Path(folder) / HEADER
    try:
        header = json.loads(path.read_text(encoding="utf-8"))
        known = header["format"] == FORMAT and {"X", "Y", "rows", "feature_names", "label_names"} <= header.keys()
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error}); write the folder again.") from error
    if not known:
        raise ValueError(f"{path} has a format that this version does not know; write the folder again.")
    return header


def _open(folder: Path, name: str, facts: dict[str, Any]) -> Matrix:
    return open_matrix(folder, name, facts["columns"]) if facts["sparse"] else map_array(folder / f"{name}.npy")


def read_files(folder: PathLike) -> Iterator[tuple[str, Table]]:
    """Yield the name and the content of each file of a folder, in the order of the names.

    Files of svmlight say nothing about the number of columns, so narrow ones are widened later.
    """
    paths = list_files(folder)
    if not paths:
        raise ValueError(f"{folder} is an empty folder; pass one with a file for each shard.")
    for path in paths:
        if not _has_format(path):
            raise ValueError(
                f"{folder} is a folder, and its file {path.name} is no shard of features and labels; pass a file in "
                "it, or a folder of shards alone."
            )
    for path in paths:
        yield path.name, read(path)


def _has_format(path: Path) -> bool:
    try:
        return bool(guess_format(path))
    except ValueError:
        return False


def split_table(table: Table, n_shards: int) -> Iterator[tuple[str, Table]]:
    """Yield ``n_shards`` ranges of rows of a table, or one for each row if there are fewer."""
    for number, (start, stop) in enumerate(split_rows_evenly(table.X.shape[0], n_shards)):
        yield f"shard {number}", table._replace(X=table.X[start:stop], Y=table.Y[start:stop])


def write_shards(path: PathLike, shards: Iterable[tuple[str, Table]]) -> dict[str, int]:
    """Write shards, one in memory at a time, to a folder that appears when it is complete; return its size.

    Parameters
    ----------
    path : path
        The folder, which must not exist.
    shards : iterable of pairs
        A name for error messages, and features with labels.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = Table(sp.csr_array(np.eye(3)), sp.csr_array(np.eye(3)))
    ...     write_shards(Path(folder) / "data", split_table(table, 2))
    ...     read_shards(Path(folder) / "data").X.shape
    {'rows': 3, 'features': 3, 'labels': 3, 'shards': 2}
    (3, 3)
    """
    with _complete_folder(Path(path)) as folder, ShardWriter(folder) as writer:
        for name, table in shards:
            writer.add(name, table)
        return writer.finish()


def write_table_shards(path: PathLike, source: PathLike, n_shards: int) -> dict[str, int]:
    """Write ranges of rows of a table to files of its format in a new folder; return its size.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "posts.csv").write_text("text,tags\\na,x\\nb,y\\n")
    ...     write_table_shards(Path(folder) / "posts", Path(folder) / "posts.csv", 2)
    {'rows': 2, 'columns': 2, 'shards': 2}
    """
    rows = read_records(source)
    if not rows:
        raise ValueError(f"{source} contains no rows to write.")
    columns, bounds = list(rows[0]), split_rows_evenly(len(rows), n_shards)
    with _complete_folder(Path(path)) as folder:
        for number, (start, stop) in enumerate(bounds):
            values = ([row[name] for name in columns] for row in rows[start:stop])
            write_records(folder / f"{number:05d}.{guess_table_format(source)}", columns, values)
    return {"rows": len(rows), "columns": len(columns), "shards": len(bounds)}


@contextmanager
def _complete_folder(path: Path) -> Iterator[Path]:
    """Give a new folder that gets its name when the block succeeds; a block that raises leaves nothing behind."""
    if path.exists():
        raise FileExistsError(f"{path} exists; choose another name, or remove it first.")
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"There is no folder {path.absolute().parent} to write {path.name} into; make it.")
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    partial.mkdir()
    try:
        yield partial
        os.rename(partial, path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


class ShardWriter:
    """Writer of the files of a folder, shard by shard."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.rows = folder, [0]
        self.matrices = {"X": _MatrixWriter(folder, "X", np.float32), "Y": _MatrixWriter(folder, "Y", None)}
        self.names: dict[str, list[str] | None] = {"feature_names": None, "label_names": None}
        self.first = ""

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, *error: object) -> None:
        for matrix in self.matrices.values():
            matrix.close()

    def add(self, name: str, table: Table) -> None:
        """Append a shard; raise ValueError if it is empty, or has other columns than the first one."""
        check_pair(table.X, table.Y)
        if not table.X.shape[0]:
            raise ValueError(f"{name} has no rows; leave it out of the folder.")
        for side, columns in (("X", "features"), ("Y", "labels")):
            matrix, width = self.matrices[side], getattr(table, side).shape[1]
            fixed = _has_width(name) and _has_width(self.first)
            if self.first and fixed and width != matrix.n_columns:
                raise ValueError(
                    f"{name} has {width} {columns} and {self.first} has {matrix.n_columns}; all shards must have the "
                    "same columns."
                )
            matrix.add(getattr(table, side))
        for kind in self.names:
            own = getattr(table, kind)
            if self.first and own != self.names[kind] and own is not None and self.names[kind] is not None:
                raise ValueError(
                    f"{name} and {self.first} have different {kind.replace('_', ' ')}; order them alike."
                )
            self.names[kind] = self.names[kind] or own
        self.first = self.first or name
        self.rows.append(self.rows[-1] + table.X.shape[0])

    def finish(self) -> dict[str, int]:
        """Write the header of the folder; return the numbers of rows, columns and shards."""
        if len(self.rows) == 1:
            raise ValueError("There are no shards to write.")
        facts: dict[str, Any] = {name: matrix.finish() for name, matrix in self.matrices.items()}
        check_names("feature_names", self.names["feature_names"], facts["X"]["columns"])
        check_names("label_names", self.names["label_names"], facts["Y"]["columns"])
        header = {"format": FORMAT, "rows": self.rows} | facts | self.names
        (self.folder / HEADER).write_text(json.dumps(header), encoding="utf-8")
        sizes = {"features": facts["X"]["columns"], "labels": facts["Y"]["columns"]}
        return {"rows": self.rows[-1]} | sizes | {"shards": len(self.rows) - 1}


def _has_width(name: str) -> bool:
    """Return whether the format of a file fixes its number of columns."""
    try:
        return guess_format(name) != "svmlight"
    except ValueError:
        return True


class _MatrixWriter:
    """Writer of the files of a matrix, which is sparse or dense as its first rows are."""

    def __init__(self, folder: Path, name: str, dtype: Any) -> None:
        self.folder, self.name, self.dtype = folder, name, dtype
        self.sparse: bool | None = None
        self.files: dict[str, _ArrayWriter] = {}
        self.n_columns = self.nnz = 0

    def add(self, matrix: Any) -> None:
        if self.sparse is None:
            self.sparse, self.dtype = sp.issparse(matrix), self.dtype or matrix.dtype
            names = [f"{self.name}.{part}.npy" for part in PARTS] if self.sparse else [f"{self.name}.npy"]
            self.files = {name: _ArrayWriter(self.folder / name) for name in names}
            if self.sparse:
                self._append("indptr", np.zeros(1, np.int64))
        self.n_columns = max(self.n_columns, matrix.shape[1])
        if not self.sparse:
            dense = matrix.toarray() if sp.issparse(matrix) else np.asarray(matrix)
            self.files[f"{self.name}.npy"].append(np.ascontiguousarray(dense, self.dtype))
            return
        csr = to_canonical_csr(matrix, self.dtype)
        self._append("data", csr.data)
        self._append("indices", csr.indices)
        self._append("indptr", csr.indptr[1:].astype(np.int64) + self.nnz)
        self.nnz += csr.nnz

    def _append(self, part: str, values: Any) -> None:
        self.files[f"{self.name}.{part}.npy"].append(values)

    def finish(self) -> dict[str, Any]:
        """Finish the files; return what the header says about them."""
        small = max(self.nnz, self.n_columns) <= np.iinfo(np.int32).max
        facts: dict[str, Any] = {"sparse": self.sparse, "columns": self.n_columns, "dtype": np.dtype(self.dtype).name}
        facts["checksums"] = {name: file.finish() for name, file in self.files.items()}
        if self.sparse:  # SciPy wants one type for both, and products are fastest with the small one
            wide = "indptr" if small else "indices"
            _convert_file(self.folder / f"{self.name}.{wide}.npy", np.int32 if small else np.int64)
        return facts

    def close(self) -> None:
        for file in self.files.values():
            file.stream.close()


class _ArrayWriter:
    """Writer of a .npy file whose number of rows is known at the end."""

    def __init__(self, path: Path) -> None:
        self.stream: IO[bytes] = open(path, "xb")  # noqa: SIM115 - closed by the writer of the matrix
        self.stream.write(bytes(HEADER_BYTES))
        self.digest = hashlib.sha256()
        self.shape: tuple[int, ...] = (0,)
        self.dtype: Any = None

    def append(self, values: Any) -> None:
        self.dtype, self.shape = values.dtype, (self.shape[0] + len(values), *values.shape[1:])
        self.digest.update(values.data)
        self.stream.write(values.data)

    def finish(self) -> str:
        """Write the header of the file; return the checksum of its values."""
        text = repr({"descr": self.dtype.str, "fortran_order": False, "shape": self.shape})
        length = HEADER_BYTES - 10
        self.stream.seek(0)
        self.stream.write(b"\x93NUMPY\x01\x00" + length.to_bytes(2, "little"))
        self.stream.write(text.encode().ljust(length - 1) + b"\n")
        self.stream.close()
        return self.digest.hexdigest()


def _convert_file(path: Path, dtype: Any) -> None:
    """Rewrite an array with another type, in blocks."""
    values = np.load(path, mmap_mode="r")
    if values.dtype == dtype:
        return
    narrow = path.with_suffix(".part")
    writer = _ArrayWriter(narrow)
    for start in range(0, len(values), 1 << 22):
        writer.append(values[start : start + (1 << 22)].astype(dtype))
    writer.finish()
    os.replace(narrow, path)
