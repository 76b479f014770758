"""Lengths of dense and of CSR rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray


def unit_rows(rows: Any) -> Any:
    """Return dense or CSR rows scaled to unit length; a row of zeros stays one.

    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0], [0.0, 1e200]]))
    array([[0.6, 0.8],
           [0. , 0. ],
           [0. , 1. ]])
    """
    # By the largest value first: squares neither overflow nor vanish then.
    rows = _divided(rows, _largest(rows))
    return _divided(rows, np.sqrt(squared_norms(rows)))


def squared_norms(rows: Any) -> NDArray[np.float64]:
    """Return ‖x‖² of each dense or CSR row x, in float64.

    >>> squared_norms(sp.csr_array([[3.0, 4.0], [0.0, 0.0]]))
    array([25.,  0.])
    """
    if not sp.issparse(rows):
        return np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
    norms = np.zeros(rows.shape[0])
    np.add.at(norms, _row_of_cells(rows), rows.data.astype(np.float64) ** 2)
    return norms


def _row_of_cells(rows: sp.csr_array) -> NDArray[np.int64]:
    return np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))


def _largest(rows: Any) -> NDArray:
    if not sp.issparse(rows):
        return np.abs(rows).max(axis=1, initial=0)
    largest = np.zeros(rows.shape[0], rows.dtype)
    np.maximum.at(largest, _row_of_cells(rows), np.abs(rows.data))
    return largest


def _divided(rows: Any, by: NDArray) -> Any:
    """Return the rows divided by one number each, in their precision; rows whose number is 0 as they are."""
    by = np.where(by > 0, by, 1).astype(rows.dtype)
    if not sp.issparse(rows):
        return rows / by[:, None]
    return sp.csr_array((rows.data / by[_row_of_cells(rows)], rows.indices, rows.indptr), shape=rows.shape)


def beside(rows: Any, column: NDArray) -> Any:
    """Return the rows in float64 with one more column: sums of squares that nearly cancel need the digits."""
    if not sp.issparse(rows):
        return np.column_stack([rows.astype(np.float64), column])
    return sp.csr_array(sp.hstack([rows.astype(np.float64), sp.csr_array(column[:, None])], format="csr"))
