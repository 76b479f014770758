"""K-means with clusters that cannot grow beyond a limit."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelgap.clustering.centers import Centers
from labelgap.clustering.rows import Random, Rows
from labelgap.clustering.seeds import draw_seeds
from labelgap.clustering.sharing import share_out
from labelgap.runtime import threads

RESEEDS = 10  # attempts to fill empty clusters; each leaves fewer of them unless rows cannot be told apart


@dataclass(frozen=True, eq=False)
class Clustering:
    """Centres, C×d, and the rows that are nearest to each.

    >>> found = Clustering(np.array([[0.0, 0.0], [4.0, 0.0]]))
    >>> found.assign(np.array([[1.0, 1.0], [3.0, 0.0], [2.0, 5.0]]))
    array([0, 1, 0])
    """

    centers: NDArray

    def assign(self, X: Any) -> NDArray[np.int64]:
        """Return the index of the centre nearest to each row, in blocks of rows; ties go to the lower index."""
        if X.shape[1] != self.centers.shape[1]:
            raise ValueError(f"X has {X.shape[1]} features and the centres have {self.centers.shape[1]}.")
        with threads(None):
            rows = Rows(X)
            return Centers(self.centers, rows.dtype).nearest(rows)[0]


def cluster(
    X: Any,
    n_clusters: int,
    *,
    rng: Random,
    seeds: NDArray | None = None,
    balance: float | None = 2.0,
    max_iter: int = 50,
    tol: float = 1e-4,
) -> tuple[Clustering, NDArray[np.int64]]:
    """Find C centres by Lloyd's algorithm from k-means++ seeds, and the cluster of each row.

    It lowers Σ_i ‖x_i − c_{l(i)}‖² (Lloyd 1982; Arthur and Vassilvitskii 2007) under the limit that no cluster has
    more than ⌈balance · n / C⌉ rows. Rows are shared out as in Gale and Shapley (1962): each goes to its nearest
    centre, a full centre keeps its closest rows, and the others go on to their next nearest. In the end no row and
    centre prefer each other to what they have. Without a limit, or where none is reached, that is the nearest centre.

    Parameters
    ----------
    X : ndarray or sparse of shape (n, d)
        The rows: float32 products where they are float32, else float64.
    n_clusters : int
        C, at most n. Fewer come back where X has fewer different rows, or rows that differ by rounding only.
    rng : RandomState or Generator
        Draws the seeds; nothing else is random, and the number of threads changes nothing.
    seeds : ndarray of shape (C, d), optional
        Centres to start from, instead of rows that are drawn.
    balance : float, optional
        At least 1; None is no limit. C is the number of clusters that come back.
    max_iter : int
        The most rounds of Lloyd's algorithm.
    tol : float
        Stop once a round changes the sum of squares by no more than this share of it.

    Returns
    -------
    clustering : Clustering
        The centres, in the precision of the products.
    labels : ndarray of shape (n,)
        The cluster of each row. No cluster is empty.

    Examples
    --------
    >>> X = np.array([[0.0], [1.0], [10.0], [11.0]])
    >>> found, labels = cluster(X, 2, rng=np.random.default_rng(0))
    >>> sorted(found.centers.ravel().tolist())
    [0.5, 10.5]
    >>> bool(labels[0] == labels[1] != labels[2] == labels[3])
    True
    """
    _check(X, n_clusters, seeds, balance)
    with threads(None):
        rows = Rows(X)
        _check_finite(rows)
        if n_clusters == 1:
            labels = np.zeros(rows.n, np.int64)
            return Clustering(rows.means(labels, np.array([rows.n])).astype(rows.dtype)), labels
        centers = draw_seeds(rows, n_clusters, rng) if seeds is None else np.array(seeds, float)
        centers = _lloyd(rows, centers, balance, max_iter, tol)
        centers, labels = _settle(rows, centers.astype(rows.dtype), balance)
    return Clustering(centers), labels


def _check(X: Any, n_clusters: int, seeds: NDArray | None, balance: float | None) -> None:
    if not isinstance(n_clusters, Integral) or not 1 <= n_clusters <= X.shape[0]:
        raise ValueError(
            f"n_clusters={n_clusters!r} is out of range; there are {X.shape[0]} rows, so pass an integer "
            f"from 1 to {X.shape[0]}."
        )
    if seeds is not None and np.shape(seeds) != (n_clusters, X.shape[1]):
        raise ValueError(f"seeds has shape {np.shape(seeds)}; pass an array of shape {(n_clusters, X.shape[1])}.")
    if balance is not None and not 1 <= balance < np.inf:
        raise ValueError(
            f"balance={balance!r} is out of range; a limit of balance · n / n_clusters rows in a cluster leaves "
            "room for all of them from 1 on, and None is no limit."
        )


def _check_finite(rows: Rows) -> None:
    if not np.isfinite(rows.squares.sum()):
        raise ValueError("X holds NaN, infinity or values whose squares overflow; clean or scale the features.")


def _lloyd(rows: Rows, centers: NDArray, balance: float | None, max_iter: int, tol: float) -> NDArray:
    """Move each centre to the mean of its rows, again and again."""
    value, total = np.inf, rows.squares.sum()
    for _ in range(max_iter):
        shares = share_out(rows, centers, balance)
        means = rows.means(shares.labels, shares.counts)
        before, value = value, total - shares.counts @ np.einsum("jf,jf->j", means, means)
        centers = shares.fill(means)
        if abs(before - value) <= tol * max(value, 0):
            break
    return centers


def _settle(rows: Rows, centers: NDArray, balance: float | None) -> tuple[NDArray, NDArray[np.int64]]:
    """Return centres and the rows of each, after empty ones were put elsewhere or, where that fails, left out."""
    for attempt in count():
        shares = share_out(rows, centers, balance)
        if not shares.empty.size:
            break
        centers = shares.fill(centers) if attempt < RESEEDS else np.delete(centers, shares.empty, axis=0)
    return centers, shares.labels
