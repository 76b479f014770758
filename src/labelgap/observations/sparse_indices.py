"""Range checks of the indices of sparse matrices that users pass: compiled code does not check them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def check_sparse_indices(name: str, matrix: Any) -> Any:
    """Return a matrix unchanged; raise ValueError if it is sparse and has an index outside of its shape.

    SciPy checks only the lengths of the arrays of a CSR or CSC matrix that is made from them. One pass over the
    indices costs less than any product with the matrix.

    >>> import scipy.sparse as sp
    >>> check_sparse_indices("X", sp.csr_array((np.ones(1), np.array([7]), np.array([0, 1])), shape=(1, 3)))
    Traceback (most recent call last):
        ...
    ValueError: X has the column index 7 and only 3 columns; its indices must be from 0 to 2.
    """
    form = getattr(matrix, "format", None)
    if form not in ("csr", "csc", "bsr", "coo") or getattr(matrix, "ndim", 2) != 2:
        return matrix
    n_rows, n_columns = matrix.shape
    if form == "coo":
        _check_range(name, matrix.row, n_rows, "row")
        _check_range(name, matrix.col, n_columns, "column")
        return matrix
    block_rows, block_columns = matrix.blocksize if form == "bsr" else (1, 1)
    n_rows, n_columns = n_rows // block_rows, n_columns // block_columns
    major, minor, kind = (n_rows, n_columns, "column") if form != "csc" else (n_columns, n_rows, "row")
    _check_pointers(name, matrix, major)
    _check_range(name, matrix.indices[: int(matrix.indptr[-1])], minor, kind)
    return matrix


def _check_range(name: str, indices: NDArray, stop: int, kind: str) -> None:
    if not len(indices):
        return
    low, high = int(indices.min()), int(indices.max())
    if low < 0 or high >= stop:
        raise ValueError(
            f"{name} has the {kind} index {low if low < 0 else high} and only {stop} {kind}s; its indices must be "
            f"from 0 to {stop - 1}."
        )


def _check_pointers(name: str, matrix: Any, n: int) -> None:
    """Raise ValueError unless the row pointers begin at 0, never fall, and end within the arrays."""
    pointers, stored = matrix.indptr, min(len(matrix.indices), len(matrix.data))
    if len(pointers) != n + 1 or pointers[0] != 0 or pointers[-1] > stored or (np.diff(pointers) < 0).any():
        raise ValueError(
            f"{name} has an indptr that does not ascend from 0 to at most its {stored} stored values; "
            "make the matrix with scipy.sparse.csr_array((data, (rows, columns)))."
        )
