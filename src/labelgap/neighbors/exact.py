"""The nearest rows by looking at all of them."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from labelgap.kernels import get_backend
from labelgap.neighbors.base import Found, Index, ordered
from labelgap.neighbors.vectors import beside, squared_norms


class ExactNeighbors(Index):
    """The nearest rows by looking at all of them, in blocks; m×n similarities are never in memory at once.

    Parameters
    ----------
    metric : {"cosine", "dot", "euclidean"}, default="cosine"
        The similarity of a query q and a row x: "dot" is q·x; "cosine" the same of both scaled to unit length, where
        a row of zeros stays one; "euclidean" is −‖q − x‖². The last ranks by q·x − ½‖x‖² in float64.

    Attributes
    ----------
    rows_ : ndarray or csr_array of shape (m, d)
        The rows as they are searched: of unit length for "cosine".

    Examples
    --------
    >>> index = ExactNeighbors("euclidean").fit([[0.0, 0.0], [3.0, 4.0], [1.0, 0.0]])
    >>> index.search([[0.0, 0.0]], k=3)
    (array([[0, 2, 1]]), array([[  0.,  -1., -25.]]))
    """

    @cached_property
    def _built(self) -> Any:
        rows = self.rows_
        if self.metric == "euclidean":
            rows = beside(rows, -squared_norms(rows) / 2)
        return get_backend().prepare(rows, rows.dtype) if sp.issparse(rows) else rows

    def _search(self, queries: Any, k: int) -> Found:
        kernels, lifted = get_backend(), queries
        if self.metric == "euclidean":
            lifted = beside(queries, np.ones(queries.shape[0]))
        if not sp.issparse(queries):
            return ordered(self.metric, queries, self.rows_, kernels.topk(lifted, self._built, k)[0])
        found = kernels.product_topk(kernels.prepare(lifted, lifted.dtype), self._built, k)
        return ordered(self.metric, queries, self.rows_, found[0]) if self.metric == "euclidean" else found
