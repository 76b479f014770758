"""Rows, sparse or dense: their products, squares and means, and which of them differ."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, reduce
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.datasets.records import canonical
from labelgap.kernels import get_backend, matmul
from labelgap.runtime import in_ranges

Random: TypeAlias = "np.random.RandomState | np.random.Generator"

VALUES_PER_BLOCK = 1 << 22  # of products, or of float64 copies of dense rows
VALUES_PER_PART = 1 << 19  # of float64 copies of sparse rows


class Rows:
    """The rows x_i: their products, squares and sums, in float64 where they are sums over many."""

    def __init__(self, X: Any) -> None:
        dtype = np.float32 if X.dtype == np.float32 else np.float64
        self.X: Any = _csr(X, dtype) if sp.issparse(X) else np.ascontiguousarray(X, dtype)
        self.dtype = dtype
        self.n, self.d = self.X.shape

    def dense(self, places: Any) -> NDArray:
        """Some rows as a dense array."""
        return self.X[places].toarray() if sp.issparse(self.X) else self.X[places]

    def among(self, places: Any) -> Rows:
        """Some rows."""
        return Rows(self.X[places])

    def times(self, B: NDArray, part: slice = slice(None)) -> NDArray:
        """X B, of a range of rows."""
        if not sp.issparse(self.X):
            return matmul(self.X[part], B)
        return get_backend().spmm(get_backend().prepare(self._range(part), self.dtype), B)

    def _range(self, part: slice) -> sp.csr_array:
        """The rows of a range, sharing memory with all of them."""
        start, stop, _ = part.indices(self.n)
        pointers = self.X.indptr[start : stop + 1]
        stored = slice(pointers[0], pointers[-1])
        arrays = self.X.data[stored], self.X.indices[stored], pointers - pointers[0]
        return sp.csr_array(arrays, shape=(stop - start, self.d))

    @cached_property
    def squares(self) -> NDArray[np.float64]:
        """‖x_i‖²."""
        if not sp.issparse(self.X):
            return np.einsum("ij,ij->i", self.X, self.X, dtype=float)

        def squares(start: int, stop: int) -> NDArray[np.float64]:
            rows = self._range(slice(start, stop))
            rows.data = rows.data.astype(float) ** 2
            return rows @ np.ones(self.d)

        return np.concatenate(in_ranges(squares, self._parts(VALUES_PER_PART)))

    def means(self, labels: NDArray, counts: NDArray) -> NDArray[np.float64]:
        """The mean of the rows of each cluster, C×d; 0 for an empty one."""
        sums = (self._sparse_sums if sp.issparse(self.X) else self._dense_sums)(labels, counts)
        sums /= np.maximum(counts, 1)[:, None]
        return sums

    def _sparse_sums(self, labels: NDArray, counts: NDArray) -> NDArray[np.float64]:
        """Parts of the rows, each with many more values than its sums have."""
        shape = (len(counts), self.d)

        def sums(start: int, stop: int) -> NDArray[np.float64]:
            rows = self._range(slice(start, stop))
            clusters = np.repeat(labels[start:stop].astype(rows.indices.dtype), np.diff(rows.indptr))
            cells = sp.coo_array((rows.data.astype(float), (clusters, rows.indices)), shape)
            return cells.toarray()  # which adds up what falls on one cell

        return reduce(np.add, in_ranges(sums, self._parts(max(VALUES_PER_PART, 2 * shape[0] * shape[1]))))

    def _parts(self, size: int) -> list[int]:
        """Cut sparse rows into parts of about so many values, whatever the number of threads."""
        cuts = np.searchsorted(self.X.indptr, np.arange(size, self.X.nnz, size))
        return np.unique([0, *cuts, self.n]).tolist()

    def _dense_sums(self, labels: NDArray, counts: NDArray) -> NDArray[np.float64]:
        """Some columns after the other, so that float64 copies stay small."""
        pointers, members = np.append(0, counts.cumsum()), np.argsort(labels, kind="stable")
        sums, kernels = np.empty((len(counts), self.d)), get_backend()
        chosen = kernels.prepare(sp.csr_array((np.ones(self.n), members, pointers), (len(counts), self.n)), float)
        width = max(16, VALUES_PER_BLOCK // self.n)
        for start in range(0, self.d, width):
            columns = slice(start, start + width)
            sums[:, columns] = kernels.spmm(chosen, self.X[:, columns].astype(float))
        return sums


def _csr(X: Any, dtype: Any) -> sp.csr_array:
    """Return CSR with each cell stored once."""
    rows = sp.csr_array(X, dtype=dtype)
    return rows if rows.has_canonical_format else canonical(rows)


def different_rows(X: Any, most: int, rng: Random) -> Any:
    """Return rows of X that differ from each other, drawn at random, ``most`` of them or all.

    >>> different_rows(np.array([[2.0, 2.0], [2.0, 2.0]]), 10, np.random.default_rng(0))
    array([[2., 2.]])
    """
    order = rng.permutation(X.shape[0])
    found: dict[bytes, int] = {}
    for start in range(0, len(order), most):
        part = order[start : start + most]
        for place, key in zip(part, _row_keys(X[part])):
            found.setdefault(key, place)
        if len(found) >= most:
            break
    return X[list(found.values())[:most]]


def _row_keys(X: Any) -> Iterator[bytes]:
    if sp.issparse(X):
        X = canonical(X)
        X.eliminate_zeros()
        for start, stop in pairwise(X.indptr):
            yield X.indices[start:stop].tobytes() + X.data[start:stop].tobytes()
    else:
        for row in X + 0.0:  # −0 becomes 0
            yield row.tobytes()
