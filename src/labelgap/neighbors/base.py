"""What an index is, and what every index shares: the metrics, the checks, the order of what was found."""

from __future__ import annotations

from abc import ABC, abstractmethod
from numbers import Integral
from typing import Any, Protocol, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_array

from labelgap.datasets.records import canonical
from labelgap.kernels import get_backend
from labelgap.neighbors.vectors import squared_norms, unit_rows
from labelgap.runtime import in_ranges, threads

METRICS = ("cosine", "dot", "euclidean")
Found = tuple[NDArray[np.int64], NDArray]

BLOCK_CELLS = 1 << 20  # of the differences between queries and rows that are made at a time


class Neighbors(Protocol):
    """Rows among which the nearest to a query are found."""

    def fit(self, rows: Any) -> Self:
        """Take the rows, m×d."""

    def search(self, queries: Any, k: int) -> Found:
        """Return the indices of the k nearest rows of each query, n×k, nearest first, and their similarities."""


class Index(ABC):
    """What every index shares: the metric, the checks, the order of what was found."""

    def __init__(self, metric: str = "cosine") -> None:
        if metric not in METRICS:
            raise ValueError(f"metric={metric!r} is not known; choose from {list(METRICS)}.")
        self.metric = metric

    def fit(self, rows: Any) -> Self:
        """Take the rows, m×d, a dense or a sparse matrix; float32 stays, other types become float64."""
        self.rows_ = self._vectors(rows, "rows", [np.float64, np.float32], 1)
        self.__dict__.pop("_built", None)
        return self

    def search(self, queries: Any, k: int) -> Found:
        """Return the indices of the k nearest rows of each query, n×k, nearest first, and their similarities.

        Equal similarities go to the lower index.
        """
        if not hasattr(self, "rows_"):
            raise NotFittedError(f"This {type(self).__name__} has no rows yet; call fit first.")
        queries = self._vectors(queries, "queries", self.rows_.dtype, 0)
        self._check_search(queries, k)
        with threads(None):
            return self._search(queries, int(k))

    @abstractmethod
    def _search(self, queries: Any, k: int) -> Found:
        """Return the nearest rows of validated queries."""

    def _vectors(self, rows: Any, name: str, dtype: Any, least: int) -> Any:
        rows = check_array(
            rows, accept_sparse="csr", dtype=dtype, order="C", ensure_min_samples=least, input_name=name
        )
        rows = canonical(rows) if sp.issparse(rows) else rows
        return unit_rows(rows) if self.metric == "cosine" else rows

    def _check_search(self, queries: Any, k: Any) -> None:
        m, d = self.rows_.shape
        if queries.shape[1] != d:
            raise ValueError(f"queries has {queries.shape[1]} columns; the rows of the index have {d}.")
        if sp.issparse(queries) != sp.issparse(self.rows_):
            kinds, fix = ("dense", "sparse"), "scipy.sparse.csr_array(queries)"
            if sp.issparse(queries):
                kinds, fix = ("sparse", "dense"), "queries.toarray()"
            raise ValueError(f"queries is {kinds[0]} and the rows of the index are {kinds[1]}; pass {fix}.")
        if not isinstance(k, Integral) or not 1 <= int(k) <= m:
            raise ValueError(f"k={k!r} is out of range; the index has {m} rows, so pass an integer from 1 to {m}.")

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_built"}


def ordered(metric: str, queries: Any, rows: Any, indices: NDArray[np.int64]) -> Found:
    """Return the rows found and their similarities, best first, ties to the lower index.

    A similarity is computed from its own two rows, so that it does not depend on what else was asked.
    """
    measure = _minus_squared_distances if metric == "euclidean" else _dots
    similarities = measure(queries, rows, indices)
    order = np.lexsort((indices, -similarities))
    return np.take_along_axis(indices, order, axis=1), np.take_along_axis(similarities, order, axis=1)


def _dots(queries: NDArray, rows: NDArray, indices: NDArray[np.int64]) -> NDArray:
    """q_i · x_j of the pairs (i, j) with j in row i of the indices."""
    (n, k), kernels = indices.shape, get_backend()
    pairs = sp.csr_array(
        (np.empty(indices.size, rows.dtype), indices.ravel(), np.arange(0, n * k + 1, k)), shape=(n, rows.shape[0])
    )
    return kernels.sddmm(kernels.prepare(pairs, rows.dtype), queries, rows).reshape(n, k)


def _minus_squared_distances(queries: Any, rows: Any, indices: NDArray[np.int64]) -> NDArray:
    """−‖q_i − x_j‖² of the same pairs, from the differences, in blocks."""
    (n, k), out = indices.shape, np.empty(indices.shape, rows.dtype)
    step = max(1, BLOCK_CELLS // (k * rows.shape[1]))

    def work(start: int, stop: int) -> None:
        of_pair = np.repeat(np.arange(start, stop), k)
        differences = queries[of_pair].astype(np.float64) - rows[indices[start:stop].ravel()]
        out[start:stop] = 0 - squared_norms(differences).reshape(-1, k)

    in_ranges(work, [*range(0, n, step), n])
    return out
