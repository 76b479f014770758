"""K-means with clusters of limited size, for sparse or dense rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from itertools import count, pairwise
from math import ceil, log
from numbers import Integral
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.datasets.records import to_canonical_csr
from labelgap.kernels import get_backend, matmul
from labelgap.runtime import MAX_CELLS_PER_BLOCK, map_ranges, row_blocks, row_bounds, threads

Random: TypeAlias = "np.random.RandomState | np.random.Generator"

MAX_RESEEDS = 10  # each attempt leaves fewer empty clusters, unless rows differ by rounding only
MIN_SEED_SAMPLE = 2_000  # rows from which seeds are drawn
# Half of it raises the sum of squares after five rounds by 1 %; 1.5 times as many lower it by 0.2 %.
SEED_SAMPLE_PER_CLUSTER = 10
MAX_PROPOSALS = 128
MAX_CELLS_PER_RANGE = 1 << 16  # cells that a thread turns from products into distances; they fit in its cache
MIN_STORED_PER_PART = 1 << 19  # stored values of a float64 copy of sparse rows
MIDDLE_BITS = 12


@dataclass(frozen=True, eq=False)
class Clustering:
    """Centres of clusters, C×d.

    >>> clustering = Clustering(np.array([[0.0, 0.0], [4.0, 0.0]]))
    >>> clustering.assign(np.array([[1.0, 1.0], [3.0, 0.0], [2.0, 5.0]]))
    array([0, 1, 0])
    """

    centers: NDArray

    def assign(self, X: Any) -> NDArray[np.int64]:
        """Return the index of the centre nearest to each row; ties go to the lower index."""
        if X.shape[1] != self.centers.shape[1]:
            raise ValueError(f"X has {X.shape[1]} features and the centres have {self.centers.shape[1]}.")
        with threads(None):
            rows = RowMatrix(X)
            return ShiftedCenters(self.centers, rows.dtype).find_nearest(rows)[0]


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

    Minimises Σ_i ‖x_i − c_{l(i)}‖² (Lloyd 1982; Arthur and Vassilvitskii 2007); no cluster may have more than
    ⌈balance · n / C⌉ rows. Rows are assigned as in Gale and Shapley (1962): each row proposes to its nearest centre,
    a full centre keeps its closest rows, and rejected rows propose to their next nearest centre. The assignment is
    stable: no row and centre prefer each other to what they have. Without a limit, or where no cluster reaches it,
    each row has its nearest centre.

    Parameters
    ----------
    X : ndarray or sparse of shape (n, d)
        The rows. Products are float32 if X is, else float64.
    n_clusters : int
        C, at most n. Fewer clusters are returned if X has fewer distinct rows, or rows that differ by rounding only.
    rng : RandomState or Generator
        Draws the seeds. Nothing else is random; the result does not depend on the number of threads.
    seeds : ndarray of shape (C, d), optional
        Centres to start from, in place of drawn rows.
    balance : float, optional
        At least 1, or None for no limit. C in the limit is the number of clusters that are returned.
    max_iter : int
        Maximum number of rounds of Lloyd's algorithm.
    tol : float
        Stop when a round changes the sum of squares by at most this share of it.

    Returns
    -------
    clustering : Clustering
        The centres, in the precision of the products.
    labels : ndarray of shape (n,)
        The cluster of each row. No cluster is empty.

    Examples
    --------
    >>> X = np.array([[0.0], [1.0], [10.0], [11.0]])
    >>> clustering, labels = cluster(X, 2, rng=np.random.default_rng(0))
    >>> sorted(clustering.centers.ravel().tolist())
    [0.5, 10.5]
    >>> bool(labels[0] == labels[1] != labels[2] == labels[3])
    True
    """
    _check_arguments(X, n_clusters, seeds, balance)
    with threads(None):
        rows = RowMatrix(X)
        if not np.isfinite(rows.squares.sum()):
            raise ValueError("X holds NaN, infinity or values whose squares overflow; clean or scale the features.")
        if n_clusters == 1:
            labels = np.zeros(rows.n, np.int64)
            return Clustering(rows.compute_means(labels, np.array([rows.n])).astype(rows.dtype)), labels
        centers = draw_seeds(rows, n_clusters, rng) if seeds is None else np.array(seeds, float)
        centers = _run_lloyd(rows, centers, balance, max_iter, tol)
        centers, labels = _remove_empty(rows, centers.astype(rows.dtype), balance)
    return Clustering(centers), labels


def draw_distinct_rows(X: Any, max_rows: int, rng: Random) -> Any:
    """Return up to ``max_rows`` distinct rows of X, drawn at random.

    >>> draw_distinct_rows(np.array([[2.0, 2.0], [2.0, 2.0]]), 10, np.random.default_rng(0))
    array([[2., 2.]])
    """
    order = rng.permutation(X.shape[0])
    first_row_of_key: dict[bytes, int] = {}
    for start in range(0, len(order), max_rows):
        sample = order[start : start + max_rows]
        for row, key in zip(sample, _row_keys(X[sample])):
            first_row_of_key.setdefault(key, row)
        if len(first_row_of_key) >= max_rows:
            break
    return X[list(first_row_of_key.values())[:max_rows]]


def _row_keys(X: Any) -> Iterator[bytes]:
    if sp.issparse(X):
        X = to_canonical_csr(X)
        X.eliminate_zeros()
        for start, stop in pairwise(X.indptr):
            yield X.indices[start:stop].tobytes() + X.data[start:stop].tobytes()
    else:
        for row in X + 0.0:  # −0 becomes 0
            yield row.tobytes()


def _check_arguments(X: Any, n_clusters: int, seeds: NDArray | None, balance: float | None) -> None:
    if not isinstance(n_clusters, Integral) or not 1 <= n_clusters <= X.shape[0]:
        raise ValueError(
            f"n_clusters={n_clusters!r} is out of range; there are {X.shape[0]} rows, so pass an integer "
            f"from 1 to {X.shape[0]}."
        )
    if seeds is not None and np.shape(seeds) != (n_clusters, X.shape[1]):
        raise ValueError(f"seeds has shape {np.shape(seeds)}; pass an array of shape {(n_clusters, X.shape[1])}.")
    if balance is not None and not 1 <= balance < np.inf:
        raise ValueError(
            f"balance={balance!r} is out of range; clusters of at most balance · n / n_clusters rows hold all rows "
            "only if balance is at least 1. Pass such a number, or None for no limit."
        )


def _run_lloyd(rows: RowMatrix, centers: NDArray, balance: float | None, max_iter: int, tol: float) -> NDArray:
    """Move each centre to the mean of its rows until the sum of squares hardly changes."""
    value, total = np.inf, rows.squares.sum()
    for _ in range(max_iter):
        assignment = assign_rows(rows, centers, balance)
        means = rows.compute_means(assignment.labels, assignment.counts)
        before, value = value, total - assignment.counts @ np.einsum("jf,jf->j", means, means)
        centers = assignment.reseed_empty(means)
        if abs(before - value) <= tol * max(value, 0):
            break
    return centers


def _remove_empty(rows: RowMatrix, centers: NDArray, balance: float | None) -> tuple[NDArray, NDArray[np.int64]]:
    """Move empty centres to rows, or delete those that stay empty; return the centres and the cluster of each row."""
    for attempt in count():
        assignment = assign_rows(rows, centers, balance)
        if not assignment.empty.size:
            break
        if attempt < MAX_RESEEDS:
            centers = assignment.reseed_empty(centers)
        else:
            centers = np.delete(centers, assignment.empty, axis=0)
    return centers, assignment.labels


# --- seeds ----------------------------------------------------------------------------------------------------------


def draw_seeds(rows: RowMatrix, n_seeds: int, rng: Random) -> NDArray:
    """Draw at most ``n_seeds`` distinct rows that are far from each other, from a sample of the rows (k-means++).

    A row is drawn with probability proportional to its squared distance from the seeds so far. Of a few such draws,
    the row that leaves the smallest sum of these distances becomes a seed.
    """
    sample_size = max(MIN_SEED_SAMPLE, SEED_SAMPLE_PER_CLUSTER * n_seeds)
    sample = RowMatrix(draw_distinct_rows(rows.X, sample_size, rng))
    if sample.n <= n_seeds:
        return sample.to_dense(slice(None))
    distances, n_trials = RowDistances(sample), 2 + int(log(n_seeds))
    seeds = [int(rng.random() * sample.n)]
    closest = distances.from_rows(seeds)[0]
    while len(seeds) < n_seeds and closest.any():
        proposals = SeedProposals(closest, min(MAX_PROPOSALS, n_trials * (n_seeds - len(seeds))), distances, rng)
        while len(seeds) < n_seeds and len(valid := proposals.take_valid(closest, n_trials)) == n_trials:
            closer = np.minimum(closest, proposals.squares[valid])
            best = int(np.argmin(closer.sum(axis=1)))
            seeds.append(int(proposals.rows[valid[best]]))
            closest = closer[best]
    return sample.to_dense(seeds)


class SeedProposals:
    """Rows drawn ahead of their turn, since one product with many columns is much faster than many with few.

    A row is drawn with probability proportional to its distance from the seeds at that time. In its turn it is
    rejected with the probability by which that distance has fallen, so that accepted rows follow the current
    distances.
    """

    def __init__(self, closest: NDArray, size: int, distances: RowDistances, rng: Random) -> None:
        total = np.cumsum(closest)
        drawn = np.searchsorted(total, rng.random(size) * total[-1], side="right")
        self.rows = np.minimum(drawn, np.flatnonzero(closest)[-1])
        self.bars = rng.random(size) * closest[self.rows]
        self.squares = distances.from_rows(self.rows)
        self.next = 0

    def take_valid(self, closest: NDArray, max_proposals: int) -> NDArray[np.int64]:
        """Return the indices of the next proposals that are not rejected, at most ``max_proposals``."""
        valid = self.next + np.flatnonzero(self.bars[self.next :] < closest[self.rows[self.next :]])[:max_proposals]
        self.next = int(valid[-1]) + 1 if valid.size else len(self.rows)
        return valid


class RowDistances:
    """Squared distances between rows."""

    def __init__(self, rows: RowMatrix) -> None:
        self.rows = rows
        self.middle = rows.compute_means(np.zeros(rows.n, np.int64), np.array([rows.n]))[0]
        self.from_middle = ShiftedCenters(self.middle[None], rows.dtype).squares_from_middle(rows)

    def from_rows(self, indices: Any) -> NDArray[np.float64]:
        """Return ‖x_i − x_j‖² of these rows i and all rows j; exactly 0 for i = j."""
        shifted = ShiftedCenters(self.rows.to_dense(indices), self.rows.dtype, self.middle)
        squares = self.rows.times(shifted.factor).T + shifted.offsets[:, None] + self.from_middle
        squares[np.arange(len(squares)), indices] = 0
        return np.maximum(squares, 0)


# --- assignment of rows to centres ----------------------------------------------------------------------------------


def assign_rows(rows: RowMatrix, centers: NDArray, balance: float | None) -> Assignment:
    """Assign each row to its nearest centre that has room for it."""
    assignment = Assignment(rows, centers)
    max_rows = rows.n if balance is None else ceil(balance * rows.n / len(centers))
    if assignment.counts.max() > max_rows:
        assignment.enforce_limit(max_rows)
    return assignment


class Assignment:
    """The centre of each row: the nearest, until :meth:`enforce_limit` moves rows to others."""

    def __init__(self, rows: RowMatrix, centers: NDArray) -> None:
        self.rows, self.centers = rows, ShiftedCenters(centers, rows.dtype)
        self.labels, self.excess = self.centers.find_nearest(rows)

    @cached_property
    def from_middle(self) -> NDArray[np.float64]:
        """‖x_i − m‖², which makes a squared distance of an excess."""
        return self.centers.squares_from_middle(self.rows)

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of rows of each centre."""
        return np.bincount(self.labels, minlength=len(self.centers.offsets))

    @property
    def empty(self) -> NDArray[np.int64]:
        """The centres without a row."""
        return np.flatnonzero(self.counts == 0)

    def reseed_empty(self, centers: NDArray) -> NDArray:
        """Move the empty centres to the rows that are farthest from their own centre."""
        empty = self.empty
        if empty.size:
            farthest = np.argsort(-(self.excess + self.from_middle), kind="stable")[: len(empty)]
            centers[empty] = self.rows.to_dense(farthest)
        return centers

    def enforce_limit(self, max_rows: int) -> None:
        """Reassign rows until no centre has more than ``max_rows``.

        A centre keeps its closest rows, ties to the lower index. Its rows only ever get closer. A row can therefore
        skip every centre that would reject it now, and ends where single proposals would lead.
        """
        bounds = AcceptanceBounds(len(self.centers.offsets), self.rows.n)
        while (rejected := bounds.tighten(self.labels, self.excess, self.from_middle, max_rows)).size:
            self._reassign(rejected, bounds)

    def _reassign(self, rejected: NDArray, bounds: AcceptanceBounds) -> None:
        """Assign rows to their nearest centre that does not reject them."""
        from_middle = self.from_middle[rejected, None]

        def is_barred(excess: NDArray, part: slice) -> NDArray:
            return bounds.rejects(excess + from_middle[part], rejected[part, None])

        selected = RowMatrix(self.rows.X[rejected])
        self.labels[rejected], self.excess[rejected] = self.centers.find_nearest(selected, is_barred)


class AcceptanceBounds:
    """The last row that each full centre accepts, and its squared distance."""

    def __init__(self, n_centers: int, n_rows: int) -> None:
        self.squares, self.rows = np.full(n_centers, np.inf), np.full(n_centers, n_rows)

    def tighten(self, labels: NDArray, excess: NDArray, from_middle: NDArray, max_rows: int) -> NDArray[np.int64]:
        """Lower the bounds of the centres with more than ``max_rows`` rows; return the rows that they reject."""
        counts = np.bincount(labels, minlength=len(self.squares))
        if counts.max() <= max_rows:
            return np.empty(0, np.int64)
        crowded = counts > max_rows
        rows = np.flatnonzero(crowded[labels])
        squares = excess[rows] + from_middle[rows]
        order = np.lexsort((squares, labels[rows]))
        sizes = counts[crowded]
        starts = sizes.cumsum() - sizes
        last = order[starts + max_rows - 1]
        self.squares[crowded], self.rows[crowded] = squares[last], rows[last]
        ranks = np.arange(len(order)) - np.repeat(starts, sizes)
        return np.sort(rows[order[ranks >= max_rows]])

    def rejects(self, squares: NDArray, rows: NDArray) -> NDArray[np.bool_]:
        """Return which centres reject rows that have these squared distances and indices."""
        return (squares > self.squares) | ((squares == self.squares) & (rows > self.rows))


# --- distances ------------------------------------------------------------------------------------------------------


class ShiftedCenters:
    """Centres c_j, prepared for computing ‖x_i − c_j‖² in float64.

    With a point m between the centres it is ‖x_i − m‖² + ‖c_j − m‖² + 2 m·(c_j − m) − 2 x_i·(c_j − m). Only the last
    product has the precision of the rows; far from the origin c_j − m is small although c_j is not. The *excess* is
    this sum without its first term, which is enough to rank the centres of a row.
    """

    def __init__(self, centers: NDArray, dtype: Any, middle: NDArray | None = None) -> None:
        self.middle = _round_coarsely(centers.mean(axis=0, dtype=float) if middle is None else middle)
        shifted = centers - self.middle
        self.offsets = np.einsum("jf,jf->j", shifted, shifted) + 2 * (shifted @ self.middle)
        self.factor = np.ascontiguousarray(-2 * shifted.T, dtype)

    def squares_from_middle(self, rows: RowMatrix) -> NDArray[np.float64]:
        """Return ‖x_i − m‖²."""
        return rows.squares - 2 * rows.times(self.middle[:, None])[:, 0] + self.middle @ self.middle

    def find_nearest(
        self, rows: RowMatrix, is_barred: Callable[[NDArray, slice], NDArray] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the nearest centre of each row and its excess; ties go to the lower index.

        ``is_barred(excess, part)`` returns which centres are not available to a range of the rows.
        """
        labels, least = np.empty(rows.n, np.int64), np.empty(rows.n)

        def choose(products: NDArray, first: int, start: int, stop: int) -> None:
            part = slice(first + start, first + stop)
            excess = products[start:stop] + self.offsets
            if is_barred is not None:
                excess[is_barred(excess, part)] = np.inf
            labels[part] = np.argmin(excess, axis=1)
            least[part] = excess[np.arange(len(excess)), labels[part]]

        for block in row_blocks(rows.n, len(self.offsets)):
            products = rows.times(self.factor, block)
            bounds = row_bounds(len(products), products.shape[1], MAX_CELLS_PER_RANGE)
            map_ranges(partial(choose, products, block.start), bounds)
        return labels, least


def _round_coarsely(point: NDArray) -> NDArray[np.float64]:
    """Round to multiples of a power of 2: differences from small integers are then exact, and ties stay ties.

    >>> _round_coarsely(np.array([1 / 3])) * 8192
    array([2731.])
    """
    _, exponent = np.frexp(np.abs(point).max(initial=0))
    step = np.ldexp(1.0, max(int(exponent) - MIDDLE_BITS, -1000))
    return np.round(point / step) * step


class RowMatrix:
    """Rows x_i, sparse or dense: products in their own precision, squares and means in float64."""

    def __init__(self, X: Any) -> None:
        self.dtype = np.float32 if X.dtype == np.float32 else np.float64
        if sp.issparse(X):
            self.X: Any = sp.csr_array(X, dtype=self.dtype)
            if not self.X.has_canonical_format:
                self.X = to_canonical_csr(self.X)
        else:
            self.X = np.ascontiguousarray(X, self.dtype)
        self.n, self.d = self.X.shape

    def to_dense(self, indices: Any) -> NDArray:
        """Return these rows as a dense array."""
        return self.X[indices].toarray() if sp.issparse(self.X) else self.X[indices]

    def times(self, B: NDArray, part: slice = slice(None)) -> NDArray:
        """Return X B, of all rows or of a range."""
        if not sp.issparse(self.X):
            return matmul(self.X[part], B)
        return get_backend().spmm(get_backend().prepare(self._slice(part), self.dtype), B)

    def _slice(self, part: slice) -> sp.csr_array:
        """Return a range of sparse rows that shares memory with X."""
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

        def compute_squares(start: int, stop: int) -> NDArray[np.float64]:
            rows = self._slice(slice(start, stop))
            rows.data = rows.data.astype(float) ** 2
            return rows @ np.ones(self.d)

        return np.concatenate(map_ranges(compute_squares, self._part_bounds(MIN_STORED_PER_PART)))

    def compute_means(self, labels: NDArray, counts: NDArray) -> NDArray[np.float64]:
        """Return the mean of the rows of each cluster, C×d; 0 for an empty cluster."""
        sums = (self._sum_sparse if sp.issparse(self.X) else self._sum_dense)(labels, counts)
        sums /= np.maximum(counts, 1)[:, None]
        return sums

    def _sum_sparse(self, labels: NDArray, counts: NDArray) -> NDArray[np.float64]:
        """Add up parts of the rows, each with many more stored values than the sums have."""
        shape = (len(counts), self.d)

        def sum_part(start: int, stop: int) -> NDArray[np.float64]:
            rows = self._slice(slice(start, stop))
            clusters = np.repeat(labels[start:stop].astype(rows.indices.dtype), np.diff(rows.indptr))
            cells = sp.coo_array((rows.data.astype(float), (clusters, rows.indices)), shape)
            return cells.toarray()  # adds up duplicates

        bounds = self._part_bounds(max(MIN_STORED_PER_PART, 2 * shape[0] * shape[1]))
        return reduce(np.add, map_ranges(sum_part, bounds))

    def _part_bounds(self, size: int) -> list[int]:
        """Cut sparse rows into parts of about ``size`` stored values, whatever the number of threads."""
        cuts = np.searchsorted(self.X.indptr, np.arange(size, self.X.nnz, size))
        return np.unique([0, *cuts, self.n]).tolist()

    def _sum_dense(self, labels: NDArray, counts: NDArray) -> NDArray[np.float64]:
        """Add up blocks of columns, so that their float64 copies stay small."""
        pointers, members = np.append(0, counts.cumsum()), np.argsort(labels, kind="stable")
        sums, kernels = np.empty((len(counts), self.d)), get_backend()
        membership = kernels.prepare(sp.csr_array((np.ones(self.n), members, pointers), (len(counts), self.n)), float)
        width = max(16, MAX_CELLS_PER_BLOCK // self.n)
        for start in range(0, self.d, width):
            columns = slice(start, start + width)
            sums[:, columns] = kernels.spmm(membership, self.X[:, columns].astype(float))
        return sums
