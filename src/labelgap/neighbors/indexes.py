"""Indexes of rows: exact search by comparing all rows, approximate search by a graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from numbers import Integral
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_array

from labelgap.datasets.records import to_canonical_csr
from labelgap.kernels import Backend, get_backend
from labelgap.observations import check_sparse_indices
from labelgap.observations.labels import find_rows
from labelgap.runtime import import_optional, map_ranges, row_blocks, row_bounds, threads

METRICS = ("cosine", "dot", "euclidean")
MAX_DIFFERENCES = 1 << 20  # differences between queries and rows in a block
QUERIES_PER_TASK = 64

IndicesAndSimilarities = tuple[NDArray[np.int64], NDArray]


def make_neighbors(algorithm: str = "exact", metric: str = "cosine") -> Neighbors:
    """Return an index that is not fitted.

    >>> make_neighbors("exact", "dot").fit([[1.0], [2.0]]).search([[3.0]], k=1)
    (array([[1]]), array([[6.]]))
    """
    classes = {"exact": ExactNeighbors, "approximate": ApproximateNeighbors}
    if algorithm not in classes:
        raise ValueError(f"algorithm={algorithm!r} is not known; choose from {list(classes)}.")
    return classes[algorithm](metric)


class Neighbors(ABC):
    """An index of rows that finds the nearest rows of a query."""

    def __init__(self, metric: str = "cosine") -> None:
        if metric not in METRICS:
            raise ValueError(f"metric={metric!r} is not known; choose from {list(METRICS)}.")
        self.metric = metric

    def fit(self, rows: Any) -> Self:
        """Store the rows, an m×d dense or sparse matrix; float32 stays float32, other types become float64."""
        self.rows_ = self._check_vectors(rows, "rows", [np.float64, np.float32], 1)
        self.__dict__.pop("_structure", None)
        return self

    def search(self, queries: Any, k: int, kernels: Backend | None = None) -> IndicesAndSimilarities:
        """Return the indices of the k nearest rows of each query, n×k, nearest first, and their similarities.

        Rows of equal similarity are sorted by index. An exact search of dense rows runs on the device of ``kernels``.
        """
        if not hasattr(self, "rows_"):
            raise NotFittedError(f"This {type(self).__name__} has no rows yet; call fit first.")
        queries = self._check_vectors(queries, "queries", self.rows_.dtype, 0)
        self._check_search(queries, k)
        with threads(None):
            return self._search(queries, int(k), kernels or get_backend())

    @abstractmethod
    def _search(self, queries: Any, k: int, kernels: Backend) -> IndicesAndSimilarities:
        """Return the nearest rows of validated queries."""

    def _check_vectors(self, vectors: Any, name: str, dtype: Any, min_rows: int) -> Any:
        vectors = check_array(
            check_sparse_indices(name, vectors),
            accept_sparse="csr",
            dtype=dtype,
            order="C",
            ensure_min_samples=min_rows,
            input_name=name,
        )
        vectors = to_canonical_csr(vectors) if sp.issparse(vectors) else vectors
        return scale_to_unit_length(vectors) if self.metric == "cosine" else vectors

    def _check_search(self, queries: Any, k: Any) -> None:
        m, d = self.rows_.shape
        if queries.shape[1] != d:
            raise ValueError(f"queries has {queries.shape[1]} columns; the rows of the index have {d}.")
        if sp.issparse(queries) != sp.issparse(self.rows_):
            kinds, conversion = ("dense", "sparse"), "scipy.sparse.csr_array(queries)"
            if sp.issparse(queries):
                kinds, conversion = ("sparse", "dense"), "queries.toarray()"
            raise ValueError(f"queries is {kinds[0]} and the rows of the index are {kinds[1]}; pass {conversion}.")
        if not isinstance(k, Integral) or not 1 <= int(k) <= m:
            raise ValueError(f"k={k!r} is out of range; the index has {m} rows, so pass an integer from 1 to {m}.")

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_structure"}


class ExactNeighbors(Neighbors):
    """Exact search that compares each query with all rows, in blocks; no m×n matrix is formed.

    Parameters
    ----------
    metric : {"cosine", "dot", "euclidean"}, default="cosine"
        The similarity of a query q and a row x: "dot" is q·x; "cosine" is q·x of both scaled to unit length, where
        a row of zeros stays zero; "euclidean" is −‖q − x‖². The last ranks by q·x − ½‖x‖² in float64.

    Attributes
    ----------
    rows_ : ndarray or csr_array of shape (m, d)
        The rows; scaled to unit length for "cosine".

    Examples
    --------
    >>> index = ExactNeighbors("euclidean").fit([[0.0, 0.0], [3.0, 4.0], [1.0, 0.0]])
    >>> index.search([[0.0, 0.0]], k=3)
    (array([[0, 2, 1]]), array([[  0.,  -1., -25.]]))
    """

    @cached_property
    def _structure(self) -> Any:
        """The rows as the kernels take them; with a column −½‖x‖² for "euclidean"."""
        rows = self.rows_
        if self.metric == "euclidean":
            rows = _append_column(rows, -compute_squared_norms(rows) / 2)
        return get_backend().prepare(rows, rows.dtype) if sp.issparse(rows) else rows

    def _search(self, queries: Any, k: int, kernels: Backend) -> IndicesAndSimilarities:
        extended = queries
        if self.metric == "euclidean":
            extended = _append_column(queries, np.ones(queries.shape[0]))
        if not sp.issparse(queries):
            left, right = (kernels.array(part, extended.dtype) for part in (extended, self._structure))
            indices = kernels.to_numpy(kernels.topk(left, right, k)[0])
            return sort_by_similarity(self.metric, queries, self.rows_, indices)
        kernels = get_backend()
        indices, similarities = kernels.product_topk(kernels.prepare(extended, extended.dtype), self._structure, k)
        if self.metric == "euclidean":
            return sort_by_similarity(self.metric, queries, self.rows_, indices)
        return indices, similarities


class ApproximateNeighbors(Neighbors):
    """Approximate search of many dense rows by a graph of near rows (HNSW, by faiss).

    The graph is built in one thread, row after row, so that the same rows give the same graph; queries run on the
    current threads. Similarities are those of :class:`ExactNeighbors`; only the set of rows is approximate. Where the
    graph yields fewer than k rows, the query is searched exactly.

    Parameters
    ----------
    metric : {"cosine", "dot", "euclidean"}, default="cosine"
        As in :class:`ExactNeighbors`.
    links : int, default=16
        The number of edges of a row in the graph. More edges raise recall in many dimensions and take memory.
    build_width : int, default=128
        The number of candidates while the graph is built.
    search_width : int, default=64
        The number of candidates while a query is searched; at least 2 k are used. More raise recall and take time.

    Examples
    --------
    >>> rows = np.random.default_rng(0).standard_normal((500, 8))
    >>> indices, _ = ApproximateNeighbors().fit(rows).search(3 * rows[[7, 2]], k=1)
    >>> indices.ravel().tolist()
    [7, 2]
    """

    def __init__(
        self, metric: str = "cosine", *, links: int = 16, build_width: int = 128, search_width: int = 64
    ) -> None:
        super().__init__(metric)
        for name, value, least in (
            ("links", links, 2),
            ("build_width", build_width, 1),
            ("search_width", search_width, 1),
        ):
            if not isinstance(value, Integral) or value < least:
                raise ValueError(f"{name}={value!r} is out of range; pass an integer of at least {least}.")
        self.links, self.build_width, self.search_width = links, build_width, search_width

    def fit(self, rows: Any) -> Self:
        """Store the rows, an m×d dense matrix; float32 stays float32, other types become float64."""
        import_optional("faiss", "ann")
        if sp.issparse(rows):
            raise ValueError("rows is sparse, and approximate search takes dense rows; use ExactNeighbors.")
        return super().fit(rows)

    @cached_property
    def _structure(self) -> Any:
        """The graph, and the origin and scale of its points; squared distances in it rank as the metric does.

        For inner products x is the point (x, √(max‖x‖² − ‖x‖²)) and q the point (q, 0); for distances the mean of the
        rows is subtracted from both.
        """
        faiss, (m, d) = import_optional("faiss", "ann"), self.rows_.shape
        by_distance = self.metric == "euclidean"
        origin = self.rows_.mean(axis=0, dtype=np.float64) if by_distance else np.zeros(d)
        scale = max(float(np.abs(self.rows_[block] - origin).max()) for block in row_blocks(m, d)) or 1.0
        points = _to_points(self.rows_, origin, scale, d if by_distance else d + 1)
        if not by_distance:
            norms = compute_squared_norms(points)
            points[:, d] = np.sqrt(norms.max() - norms)
        graph = faiss.IndexHNSWFlat(points.shape[1], int(self.links))
        graph.hnsw.efConstruction = int(self.build_width)
        with _single_openmp_thread(faiss):
            graph.add(points)
        return graph, origin, scale

    def _search(self, queries: NDArray, k: int, kernels: Backend) -> IndicesAndSimilarities:
        indices = self._search_graph(queries, k)
        incomplete = np.flatnonzero((indices < 0).any(axis=1))
        if incomplete.size:
            indices[incomplete] = ExactNeighbors(self.metric).fit(self.rows_).search(queries[incomplete], k)[0]
        return sort_by_similarity(self.metric, queries, self.rows_, indices)

    def _search_graph(self, queries: NDArray, k: int) -> NDArray[np.int64]:
        """Return up to k rows of each query, then −1."""
        faiss, (graph, origin, scale) = import_optional("faiss", "ann"), self._structure
        if self.metric == "euclidean":
            points = _to_points(queries, origin, scale, graph.d)
        else:  # the length of a query does not change the order of its inner products
            points = _to_points(scale_to_unit_length(queries), 0.0, 1.0, graph.d)
        settings = faiss.SearchParametersHNSW(efSearch=max(int(self.search_width), 2 * k))
        indices = np.empty((len(queries), k), np.int64)

        def search_range(start: int, stop: int) -> None:
            with _single_openmp_thread(faiss):
                indices[start:stop] = graph.search(points[start:stop], k, params=settings)[1]

        map_ranges(search_range, row_bounds(len(queries), 1, QUERIES_PER_TASK))
        return indices


@contextmanager
def _single_openmp_thread(faiss: Any) -> Iterator[None]:
    """Run faiss in the calling thread: its own threads would not survive a fork, and link rows in random order."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def _to_points(vectors: NDArray, origin: Any, scale: float, width: int) -> NDArray[np.float32]:
    """Return (x − origin) / scale of each row x, padded with zeros to ``width``; copies in float64 are small."""
    points = np.zeros((len(vectors), width), np.float32)
    with np.errstate(over="ignore"):  # a query beyond float32 gets no row from the graph, and is searched exactly
        for block in row_blocks(*vectors.shape):
            points[block, : vectors.shape[1]] = (vectors[block] - origin) / scale
    return points


def sort_by_similarity(metric: str, queries: Any, rows: Any, indices: NDArray[np.int64]) -> IndicesAndSimilarities:
    """Return the indices and their similarities, best first, ties to the lower index.

    A similarity is computed from its query and row alone, so that it does not depend on other queries.
    """
    compute = _negative_squared_distances if metric == "euclidean" else _inner_products
    similarities = compute(queries, rows, indices)
    order = np.lexsort((indices, -similarities))
    return np.take_along_axis(indices, order, axis=1), np.take_along_axis(similarities, order, axis=1)


def _inner_products(queries: NDArray, rows: NDArray, indices: NDArray[np.int64]) -> NDArray:
    """Return q_i · x_j for each j in row i of the indices."""
    (n, k), kernels = indices.shape, get_backend()
    pairs = sp.csr_array(
        (np.empty(indices.size, rows.dtype), indices.ravel(), np.arange(0, n * k + 1, k)), shape=(n, rows.shape[0])
    )
    return kernels.sddmm(kernels.prepare(pairs, rows.dtype), queries, rows).reshape(n, k)


def _negative_squared_distances(queries: Any, rows: Any, indices: NDArray[np.int64]) -> NDArray:
    """Return −‖q_i − x_j‖² for each j in row i of the indices, from the differences."""
    (n, k), distances = indices.shape, np.empty(indices.shape, rows.dtype)

    def compute_range(start: int, stop: int) -> None:
        of_pair = np.repeat(np.arange(start, stop), k)
        differences = queries[of_pair].astype(np.float64) - rows[indices[start:stop].ravel()]
        distances[start:stop] = 0 - compute_squared_norms(differences).reshape(-1, k)

    map_ranges(compute_range, row_bounds(n, k * rows.shape[1], MAX_DIFFERENCES))
    return distances


# --- lengths of dense and CSR rows ----------------------------------------------------------------------------------


def scale_to_unit_length(rows: Any) -> Any:
    """Return dense or CSR rows scaled to unit length; a row of zeros stays zero.

    >>> scale_to_unit_length(np.array([[3.0, 4.0], [0.0, 0.0], [0.0, 1e200]]))
    array([[0.6, 0.8],
           [0. , 0. ],
           [0. , 1. ]])
    """
    # Division by the largest value first: squares then neither overflow nor underflow.
    if sp.issparse(rows):
        largest = np.zeros(rows.shape[0], rows.dtype)
        np.maximum.at(largest, find_rows(rows), np.abs(rows.data))
    else:
        largest = np.abs(rows).max(axis=1, initial=0)
    rows = _divide_rows(rows, largest)
    return _divide_rows(rows, np.sqrt(compute_squared_norms(rows)))


def compute_squared_norms(rows: Any) -> NDArray[np.float64]:
    """Return ‖x‖² of each dense or CSR row x, in float64.

    >>> compute_squared_norms(sp.csr_array([[3.0, 4.0], [0.0, 0.0]]))
    array([25.,  0.])
    """
    if not sp.issparse(rows):
        return np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
    norms = np.zeros(rows.shape[0])
    np.add.at(norms, find_rows(rows), rows.data.astype(np.float64) ** 2)
    return norms


def _divide_rows(rows: Any, divisors: NDArray) -> Any:
    """Return each row divided by its divisor, in the precision of the rows; rows with divisor 0 stay as they are."""
    divisors = np.where(divisors > 0, divisors, 1).astype(rows.dtype)
    if not sp.issparse(rows):
        return rows / divisors[:, None]
    return sp.csr_array((rows.data / divisors[find_rows(rows)], rows.indices, rows.indptr), shape=rows.shape)


def _append_column(rows: Any, column: NDArray) -> Any:
    """Return the rows in float64 with one more column: sums of squares that nearly cancel need that precision."""
    if not sp.issparse(rows):
        return np.column_stack([rows.astype(np.float64), column])
    return sp.csr_array(sp.hstack([rows.astype(np.float64), sp.csr_array(column[:, None])], format="csr"))
