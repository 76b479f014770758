"""Most of the nearest rows, by a graph of near rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from numbers import Integral
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.neighbors.base import Found, Index, ordered
from labelgap.neighbors.exact import ExactNeighbors
from labelgap.neighbors.vectors import squared_norms, unit_rows
from labelgap.runtime import in_ranges, optional

QUERIES = 64  # that a thread takes at a time
ROWS = 1 << 12  # that are converted at a time


class ApproximateNeighbors(Index):
    """Most of the nearest rows by walking a graph of near rows (HNSW, by faiss), for many queries of many dense rows.

    The graph is built in one thread, row after row, so that the same rows give the same graph; queries are spread
    over the current threads. The similarities are those of :class:`ExactNeighbors`: only which rows are found is
    approximate. A query that the walk finds fewer than k rows for is searched exactly.

    Parameters
    ----------
    metric : {"cosine", "dot", "euclidean"}, default="cosine"
        As for :class:`ExactNeighbors`.
    links : int, default=16
        The edges of a row in the graph: more find more in many dimensions, and take memory.
    build_width : int, default=128
        The candidates kept while a row is linked.
    search_width : int, default=64
        The candidates kept while a query walks, at least 2 k: more find more, and take time.

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
        """Take the rows, m×d, a dense matrix; float32 stays, other types become float64."""
        optional("faiss", "ann")
        if sp.issparse(rows):
            raise ValueError("rows is sparse, and approximate search takes dense rows; use ExactNeighbors.")
        return super().fit(rows)

    @cached_property
    def _built(self) -> Any:
        """The graph, and what was subtracted and divided by: a squared distance in it ranks as the metric does.

        x lies at (x, √(max‖x‖² − ‖x‖²)) and q at (q, 0) for inner products; for distances both move by the mean.
        """
        faiss, (m, d) = optional("faiss", "ann"), self.rows_.shape
        by_distance = self.metric == "euclidean"
        origin = self.rows_.mean(axis=0, dtype=np.float64) if by_distance else np.zeros(d)
        scale = max(float(np.abs(self.rows_[part] - origin).max()) for part in _parts(m)) or 1.0
        placed = _moved(self.rows_, origin, scale, d if by_distance else d + 1)
        if not by_distance:
            norms = squared_norms(placed)
            placed[:, d] = np.sqrt(norms.max() - norms)
        graph = faiss.IndexHNSWFlat(placed.shape[1], int(self.links))
        graph.hnsw.efConstruction = int(self.build_width)
        with _one_openmp_thread(faiss):
            graph.add(placed)
        return graph, origin, scale

    def _search(self, queries: NDArray, k: int) -> Found:
        indices = self._walk(queries, k)
        lost = np.flatnonzero((indices < 0).any(axis=1))
        if lost.size:
            indices[lost] = ExactNeighbors(self.metric).fit(self.rows_).search(queries[lost], k)[0]
        return ordered(self.metric, queries, self.rows_, indices)

    def _walk(self, queries: NDArray, k: int) -> NDArray[np.int64]:
        """Return k candidates of each query, −1 where there were fewer."""
        faiss, (graph, origin, scale) = optional("faiss", "ann"), self._built
        if self.metric == "euclidean":
            placed = _moved(queries, origin, scale, graph.d)
        else:  # the length of a query changes its inner products, not their order
            placed = _moved(unit_rows(queries), 0.0, 1.0, graph.d)
        settings = faiss.SearchParametersHNSW(efSearch=max(int(self.search_width), 2 * k))
        indices = np.empty((len(queries), k), np.int64)

        def work(start: int, stop: int) -> None:
            with _one_openmp_thread(faiss):
                indices[start:stop] = graph.search(placed[start:stop], k, params=settings)[1]

        in_ranges(work, [*range(0, len(queries), QUERIES), len(queries)])
        return indices


@contextmanager
def _one_openmp_thread(faiss: Any) -> Iterator[None]:
    """Keep faiss to the thread that calls it: a team of its own would not survive a fork, and links at random."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def _parts(n: int) -> list[slice]:
    return [slice(start, start + ROWS) for start in range(0, n, ROWS)]


def _moved(vectors: NDArray, origin: Any, scale: float, width: int) -> NDArray[np.float32]:
    """Return (x − origin) / scale of each row x, with zeros up to ``width``; float64 only in parts."""
    out = np.zeros((len(vectors), width), np.float32)
    with np.errstate(over="ignore"):  # a query beyond float32 finds nothing, and is then searched exactly
        for part in _parts(len(vectors)):
            out[part, : vectors.shape[1]] = (vectors[part] - origin) / scale
    return out
