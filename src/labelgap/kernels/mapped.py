"""Sparse matrices in memory-mapped files, for data that are larger than memory.

A matrix NAME is three files in a folder, NAME.data.npy, NAME.indices.npy and NAME.indptr.npy. The system reads parts
of them when a product needs them, and drops them when memory is short. The transpose of such a matrix is mapped too.
"""

from __future__ import annotations

import os
import tempfile
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.kernels import loops
from labelgap.runtime import get_memory_limit, has_memory_limit, map_ranges, row_bounds

PARTS = ("data", "indices", "indptr")
BLOCK_CELLS = 1 << 22  # of a mapped matrix that are counted at a time
LARGE_SHARE = 16  # an array of more than 1/16 of a memory limit is mapped
MAX_BANDS = 256  # of columns; each takes a pass over the matrix


class MappedRows(NamedTuple):
    """The files of a matrix, and a range of its rows."""

    folder: str
    name: str
    n_columns: int
    start: int
    stop: int

    def open(self) -> MappedMatrix:
        """Map the files."""
        return open_matrix(Path(self.folder), self.name, self.n_columns)[self.start : self.stop]


class MappedMatrix(sp.csr_array):
    """CSR matrix whose arrays are memory-mapped.

    A range of its rows shares the mapped files. A pickle of it names the files, so that another process maps them
    too. Selected rows are in a temporary file if they take a large part of a memory limit, else in memory.
    """

    source: MappedRows | None = None

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice) and key.step in (None, 1):
            start, stop, _ = key.indices(self.shape[0])
            return slice_rows(self, start, max(start, stop))
        if isinstance(key, np.ndarray) and key.ndim == 1:
            return _take_rows(self, np.flatnonzero(key) if key.dtype == bool else key)
        return sp.csr_array(self)[key]

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self.source is None:
            return sp.csr_array(self).__reduce_ex__(protocol)
        return MappedRows.open, (self.source,)


def slice_rows(matrix: sp.csr_array, start: int, stop: int) -> sp.csr_array:
    """Return a range of rows that shares the memory of the matrix, or its files."""
    first, last = int(matrix.indptr[start]), int(matrix.indptr[stop])
    part = type(matrix)((stop - start, matrix.shape[1]), dtype=matrix.dtype)
    # SciPy's constructor would copy these.
    part.indptr = matrix.indptr[start : stop + 1] - first
    part.data, part.indices = matrix.data[first:last], matrix.indices[first:last]
    source = getattr(matrix, "source", None)
    if source is not None:
        part.source = source._replace(start=source.start + start, stop=source.start + stop)
    return part


def _take_rows(matrix: MappedMatrix, rows: NDArray) -> sp.csr_array:
    """Return a copy of selected rows."""
    plain, lengths = sp.csr_array(matrix), np.diff(matrix.indptr)[rows]
    nnz, dtypes = int(lengths.sum(dtype=np.int64)), (matrix.data.dtype, matrix.indices.dtype)
    if not _is_large(nnz * sum(dtype.itemsize for dtype in dtypes)):
        return plain[rows]
    indptr = np.zeros(len(rows) + 1, matrix.indptr.dtype)
    np.cumsum(lengths, out=indptr[1:])
    data, indices = (_make_temporary(None, nnz, dtype) for dtype in dtypes)
    for start, stop in pairwise(row_bounds(len(rows), max(1, nnz // len(rows)))):
        part, cells = plain[rows[start:stop]], slice(indptr[start], indptr[stop])
        data[cells], indices[cells] = part.data, part.indices
    return MappedMatrix((data, indices, indptr), shape=(len(rows), matrix.shape[1]), copy=False)


def open_matrix(folder: Path, name: str, n_columns: int) -> MappedMatrix:
    """Map a matrix; raise ValueError if its files do not fit together."""
    data, indices, indptr = (map_array(folder / f"{name}.{part}.npy") for part in PARTS)
    if len(data) != len(indices) or not len(indptr) or indptr[0] != 0 or indptr[-1] != len(data):
        raise ValueError(f"{folder}: the files of {name} do not fit together; write the folder again.")
    matrix = MappedMatrix((data, indices, indptr), shape=(len(indptr) - 1, n_columns), copy=False)
    matrix.source = MappedRows(str(folder.absolute()), name, n_columns, 0, len(indptr) - 1)
    return matrix


def map_array(path: Path) -> NDArray:
    """Map a .npy file; pages that are written to, which kernels never do, would be private copies."""
    try:
        return np.asarray(np.load(path, mmap_mode="c", allow_pickle=False))
    except FileNotFoundError:
        raise FileNotFoundError(f"{path.parent} has no file {path.name}; write the folder again.") from None
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} is not a readable .npy file ({error}); write the folder again.") from error


def transpose_mapped(matrix: MappedMatrix) -> MappedMatrix:
    """Return the transpose of a mapped matrix, in a temporary file that vanishes with the matrix.

    It is filled in bands of columns, so that the pages being written fit into memory.
    """
    n, d = matrix.shape
    counts = np.zeros(d + 1, matrix.indptr.dtype)
    for start in range(0, matrix.nnz, BLOCK_CELLS):
        counts[1:] += np.bincount(matrix.indices[start : start + BLOCK_CELLS], minlength=d).astype(counts.dtype)
    indptr = np.cumsum(counts, dtype=counts.dtype)
    folder = None if matrix.source is None else matrix.source.folder
    data = _make_temporary(folder, matrix.nnz, matrix.dtype)
    indices = _make_temporary(folder, matrix.nnz, matrix.indices.dtype)
    source = matrix.indptr, matrix.indices, matrix.data, bool(matrix.has_sorted_indices)
    loop = partial(loops.transpose, *source, indptr[:-1].copy(), indices, data)
    n_bytes = matrix.nnz * (data.itemsize + indices.itemsize)
    n_bands = min(MAX_BANDS, max(2, 4 * n_bytes // get_memory_limit()))
    bounds = np.searchsorted(indptr, np.linspace(0, matrix.nnz, n_bands + 1)[1:-1])
    map_ranges(loop, np.unique([0, *bounds, d]).tolist())
    return MappedMatrix((data, indices, indptr), shape=(d, n), copy=False)


def _make_temporary(folder: str | None, size: int, dtype: Any) -> NDArray:
    """Return an array in a file without a name, beside the data if their folder can be written to."""
    writable = folder is not None and os.access(folder, os.W_OK)
    with tempfile.TemporaryFile(dir=folder if writable else None) as stream:
        return np.asarray(np.memmap(stream, dtype, "w+", shape=(size,))) if size else np.empty(0, dtype)


def make_empty(shape: tuple[int, int], dtype: Any) -> NDArray:
    """Return an array of any numbers; if it takes a large part of a memory limit, in a file that vanishes with it.

    >>> make_empty((2, 3), np.float32).shape
    (2, 3)
    """
    size = shape[0] * shape[1]
    if not _is_large(size * np.dtype(dtype).itemsize):
        return np.empty(shape, dtype)
    return _make_temporary(None, size, dtype).reshape(shape)


def _is_large(n_bytes: int) -> bool:
    return has_memory_limit() and LARGE_SHARE * n_bytes > get_memory_limit()


def split_rows_evenly(n: int, n_ranges: int) -> list[tuple[int, int]]:
    """Return at most ``n_ranges`` ranges of rows that are about equally long and not empty.

    >>> split_rows_evenly(5, 2)
    [(0, 2), (2, 5)]
    """
    return list(pairwise(np.unique(np.linspace(0, n, n_ranges + 1).astype(int)).tolist()))
