"""Sets of cells as canonical CSR matrices of True: sorted, without duplicates, 32-bit indices where they fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray


def csr_of(data: NDArray, indices: NDArray, indptr: NDArray, shape: tuple[int, int]) -> sp.csr_array:
    """Return a CSR matrix with 32-bit indices where they fit: half the memory, and one kernel to compile.

    >>> csr_of(np.ones(1), np.array([1]), np.array([0, 1]), (1, 2)).indices.dtype
    dtype('int32')
    """
    kind = np.int32 if max(*shape, len(indices)) <= np.iinfo(np.int32).max else np.int64
    return sp.csr_array((data, indices.astype(kind, copy=False), indptr.astype(kind, copy=False)), shape=shape)


def as_pattern(matrix: Any) -> sp.csr_array:
    """Return the non-zero cells of a matrix, which stays as it is.

    >>> as_pattern(np.array([[0, 3]])).toarray()
    array([[False,  True]])
    """
    csr = sp.csr_array(matrix, copy=True)
    csr.sum_duplicates()
    csr.eliminate_zeros()
    return csr_of(np.ones(csr.nnz, bool), csr.indices, csr.indptr, csr.shape)


def unless_full(pattern: sp.csr_array) -> sp.csr_array | None:
    """Return the pattern, or None if it holds every cell."""
    return None if pattern.nnz == pattern.shape[0] * pattern.shape[1] else pattern


def rows_of(pattern: sp.csr_array) -> NDArray[np.int64]:
    """Return the row of each stored cell."""
    return np.repeat(np.arange(pattern.shape[0], dtype=np.int64), np.diff(pattern.indptr))


def cell_keys(pattern: sp.csr_array) -> NDArray[np.int64]:
    """Number the cells row by row and return the numbers of the stored ones, ascending."""
    return rows_of(pattern) * pattern.shape[1] + pattern.indices


def member(cells: sp.csr_array, subset: sp.csr_array) -> NDArray[np.bool_]:
    """Tell for each stored cell of a canonical pattern whether it is in ``subset``, itself a part of it."""
    flags = np.zeros(cells.nnz, bool)
    flags[np.searchsorted(cell_keys(cells), cell_keys(subset))] = True
    return flags


def keep(csr: sp.csr_array, flags: NDArray[np.bool_]) -> sp.csr_array:
    """Return the stored cells with a flag, zeros among them too."""
    counts = np.concatenate([[0], np.cumsum(flags)])
    return csr_of(csr.data[flags], csr.indices[flags], counts[csr.indptr], csr.shape)


def restrict(csr: sp.csr_array, known: sp.csr_array) -> sp.csr_array:
    """Return the stored cells that are in ``known``, zeros among them too."""
    return keep(csr, np.isin(cell_keys(csr), cell_keys(known), assume_unique=True))
