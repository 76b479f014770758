"""LPSR: the rows are parted, and each part ranks a few labels only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state

from labelgap.clustering import cluster
from labelgap.estimators.about import About
from labelgap.estimators.base import MultiLabelEstimator
from labelgap.estimators.baselines.binary_relevance import BinaryRelevance
from labelgap.estimators.baselines.naive_bayes import NaiveBayes
from labelgap.estimators.inner import Packed, pack, unpack
from labelgap.estimators.local import are_places, number_of_clusters
from labelgap.estimators.parameters import check_number
from labelgap.estimators.scores import Scores, row_blocks, with_pattern
from labelgap.kernels import Backend
from labelgap.kernels.loops import compiled
from labelgap.metrics.topk import RaggedRows, best_positions
from labelgap.objectives import Features
from labelgap.observations import Labels
from labelgap.observations.labels import as_pattern, rows_of
from labelgap.runtime import in_ranges

ROWS_PER_CLUSTER = 500
NAMED: dict[str, type[BinaryRelevance] | type[NaiveBayes]] = {
    "one_vs_all": BinaryRelevance,
    "naive_bayes": NaiveBayes,
}


class CandidateScores(Scores):
    """Decisions about the candidates of each row; all other labels have the decisions ``below``.

    ``asked(X)`` returns the decisions about candidates, n×L, absent for other labels; a row has at least
    ``n_candidates`` of them, and they are above those of all other labels.
    """

    def __init__(
        self, X: Any, asked: Callable[[Any], sp.csr_array], below: NDArray, n_candidates: int, kernels: Backend
    ) -> None:
        super().__init__(kernels)
        self.X, self.asked, self.below, self.n_candidates = X, asked, below, n_candidates

    def blocks(self) -> Iterator[NDArray]:
        for rows in row_blocks(self.X, len(self.below), arrays=2):
            asked = self.asked(rows)
            decisions = np.tile(self.below.astype(asked.dtype), (rows.shape[0], 1))
            decisions[rows_of(asked), asked.indices] = asked.data
            yield decisions

    def topk(self, k: int) -> tuple[NDArray, NDArray]:
        if k > self.n_candidates:
            return super().topk(k)
        asked = self.asked(self.X)
        cells = asked.indptr[:-1, None] + RaggedRows(asked.data, asked.indptr).top(k)
        return asked.indices[cells].astype(np.int64), asked.data[cells]


class LPSR(MultiLabelEstimator):
    """Label partitioning for sublinear ranking: a row asks a base estimator about the labels of its partition alone.

    The training rows are parted by K-means. A partition has the ``n_candidates`` labels that are worth most to its
    rows (Weston, Makadia and Yee 2013: the relaxed assignment),

        worth of label j  =  Σ over rows i of the partition that have j of  1 / |y_i| · 1 / R_ij ^ decay,

    where R_ij is the place of j in the base's ranking of the labels that row i knows, and |y_i| the number of its
    positives: a label counts where it is relevant and the base would find it. Of equal worth the label of the higher
    rate goes first, the rate being the share of positives among known cells. A new row goes to the nearest partitions
    and has the base's decisions about their labels. All other labels come below these, in the order of their rates:
    label number t of that order has the decision ``floor_`` − t. No decision of the base is taken to be below
    ``floor_``, the least one it made in training.

    The paper weights the rows of its K-means by how well the base ranks them; here all count alike, and no partition
    has more than twice its share of them.

    Parameters
    ----------
    estimator : {"one_vs_all", "naive_bayes"} or estimator, default="one_vs_all"
        The base: :class:`~labelgap.BinaryRelevance`, :class:`~labelgap.NaiveBayes`, or an estimator to clone.
    alpha : float, default=1.0
        The penalty or smoothing of a base that is named.
    tol : float, default=1e-2
        The tolerance of "one_vs_all".
    n_clusters : int, optional
        The number of partitions; by default one for each 500 rows.
    n_candidates : int, default=100
        The number of labels of a partition; all of them where there are fewer.
    n_nearest : int, default=1
        How many partitions a row asks.
    decay : float, default=1.0
        What a place further down the base's ranking costs; 0 counts positives alone.
    absent, random_state, n_jobs, dtype
        As in :class:`~labelgap.LEML`. The seed draws the partitions.
    device : str, default="auto"
        Deprecated; has no effect.

    Attributes
    ----------
    base_ : dict
        The fitted base.
    centers_ : ndarray of shape (C, d)
        The centres of the partitions.
    candidates_ : ndarray of shape (C, n_candidates)
        The labels of each partition, ascending.
    below_ : ndarray of shape (L,)
        The decision about each label where it is no candidate.
    floor_ : float
        The least decision about a candidate, at most 0.

    Examples
    --------
    >>> import numpy as np
    >>> from labelgap import LPSR
    >>> X = np.array([[1.0, 0.0], [1.0, 0.2], [0.0, 1.0], [0.2, 1.0]])
    >>> model = LPSR(n_clusters=2, n_candidates=1, random_state=0).fit(X, [[1, 0], [1, 0], [0, 1], [0, 1]])
    >>> model.predict([[2.0, 0.1]]), sorted(model.candidates_.ravel().tolist())
    (array([[1, 0]]), [0, 1])
    """

    about = About(
        "A base estimator that is asked about a few labels only, those of the partition of a row.",
        "Weston, Makadia and Yee 2013",
        missing_labels=True,
        fit="the base's, and n y L",
        predict="the base's of a few labels",
    )

    base_: Packed
    centers_: NDArray
    candidates_: NDArray
    below_: NDArray
    floor_: float
    _base: Any

    def __init__(
        self,
        estimator: Any = "one_vs_all",
        *,
        alpha: float = 1.0,
        tol: float = 1e-2,
        n_clusters: int | None = None,
        n_candidates: int = 100,
        n_nearest: int = 1,
        decay: float = 1.0,
        absent: Literal["negative", "unknown"] = "negative",
        random_state: Any = None,
        n_jobs: int | None = None,
        device: str = "auto",
        dtype: Any = "float32",
    ) -> None:
        self.estimator = estimator
        self.alpha = alpha
        self.tol = tol
        self.n_clusters = n_clusters
        self.n_candidates = n_candidates
        self.n_nearest = n_nearest
        self.decay = decay
        self.absent = absent
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device
        self.dtype = dtype

    def _check_parameters(self) -> None:
        self._check_common()
        if not isinstance(self.estimator, MultiLabelEstimator) and self.estimator not in NAMED:
            raise ValueError(
                f"estimator={self.estimator!r} is not known; choose from {list(NAMED)}, or pass an estimator "
                "of labelgap."
            )
        check_number("n_clusters", self.n_clusters, Integral, least=1, optional=True)
        for name in ("n_candidates", "n_nearest"):
            check_number(name, getattr(self, name), Integral, least=1)
        for name in ("alpha", "tol", "decay"):
            check_number(name, getattr(self, name), Real, least=0)

    def _learn(self, X: Any, labels: Labels) -> None:
        rng = check_random_state(self.random_state)
        self._base = self._make_base(rng).fit(X, labels)
        self.base_ = pack(self._base)
        clustering, nearest = cluster(X, self._n_clusters(X.shape[0]), rng=rng)
        self.centers_ = clustering.centers
        ranks, least = self._ranks(X, labels)
        rates = labels.rates
        worth = _worth(labels, ranks, nearest, len(self.centers_), self.decay)
        self.candidates_ = _most_worth(worth, rates, min(self.n_candidates, labels.shape[1]))
        self.floor_ = min(least, 0.0)
        self.below_ = self.floor_ - 1.0 - _order_places(rates)

    def _make_base(self, rng: np.random.RandomState) -> MultiLabelEstimator:
        """Return the base to fit; where it draws numbers and has no seed of its own, ours gives it one."""
        if isinstance(self.estimator, str):
            base: MultiLabelEstimator = NAMED[self.estimator]()
            own = base.get_params()
            given = {name: value for name, value in self.get_params(deep=False).items() if name in own}
            return base.set_params(**given | {"n_jobs": None, "device": "auto"})
        base = clone(self.estimator)
        if base.get_params().get("random_state", 0) is None:
            base.set_params(random_state=rng.randint(2**31 - 1))
        return base

    def _n_clusters(self, n_rows: int) -> int:
        return number_of_clusters(self.n_clusters, n_rows, ROWS_PER_CLUSTER)

    def _ranks(self, X: Any, labels: Labels) -> tuple[NDArray[np.int64], float]:
        """Return the place of each positive in the base's ranking of the known labels, and its least decision."""
        cells, first, least = labels.positives, 0, np.inf
        ranks = np.empty(cells.nnz, np.int64)
        for block in self._base._scores(self._base._check_rows(X)).blocks():
            least = min(least, float(block.min()))
            if labels.known is not None:
                block = np.where(labels.known[first : first + len(block)].toarray(), block, -np.inf)
            _fill_places(cells, block, ranks, first)
            first += len(block)
        return ranks, least

    def _scores(self, X: Any) -> CandidateScores:
        return CandidateScores(X, self._asked, self.below_, self.candidates_.shape[1], self._kernels())

    def _asked(self, X: Any) -> sp.csr_array:
        """Return the base's decisions about the candidates of each row, and nothing else."""
        pattern = self._pattern(X)
        nothing = sp.csr_array(pattern.shape, dtype=bool)
        scores = self._base._scores(self._base._check_rows(X)).known(Labels.of_patterns(nothing, pattern))
        return with_pattern(np.maximum(scores.data, self.floor_).astype(self.dtype), scores)

    def _pattern(self, X: Any) -> sp.csr_array:
        """Return the candidates of each row, n×L."""
        near, (C, width) = self._nearest(X), self.candidates_.shape
        starts = np.arange(0, near.size + 1, near.shape[1])
        asks = sp.csr_array((np.ones(near.size, np.int32), near.ravel(), starts), shape=(len(near), C))
        has = sp.csr_array(
            (np.ones(C * width, np.int32), self.candidates_.ravel(), np.arange(0, C * width + 1, width)),
            shape=(C, self.n_labels_),
        )
        return as_pattern(asks @ has)

    def _nearest(self, X: Any) -> NDArray[np.int64]:
        """Return the nearest partitions of each row, by ‖c‖² − 2 x·c; ties go to the lower index."""
        columns = np.ascontiguousarray(self.centers_.T, np.dtype(self.dtype).type)
        products = Features(X, self._kernels(), columns.dtype.type).times(columns)
        excess = np.einsum("jf,jf->j", self.centers_, self.centers_, dtype=float) - 2.0 * products
        return best_positions(-excess, min(self.n_nearest, len(self.centers_)))

    def _check_loaded(self) -> None:
        self._base = unpack(self, self.base_)
        counts = self._base.n_features_in_, self._base.n_labels_
        if counts != (self.n_features_in_, self.n_labels_) or self.below_.shape != (self.n_labels_,):
            raise ValueError("the base has other features or labels than the model")
        if self.centers_.shape != (len(self.candidates_), self.n_features_in_):
            raise ValueError("the centres do not belong to the candidates")
        if not are_places(self.candidates_, self.n_labels_) or (np.diff(self.candidates_, axis=1) <= 0).any():
            raise ValueError("the candidates are not labels of the model, ascending")


@compiled
def _places(indptr, indices, scores, out, first, start, stop):
    """The place of each stored cell among the scores of its row, 1 for the best; ties go to the lower column.

    ``scores`` are a block of rows, of which row r has the cells of row first + r.
    """
    for r in range(start, stop):
        row = scores[r]
        for p in range(indptr[first + r], indptr[first + r + 1]):
            column = indices[p]
            s, above = row[column], 1
            for j in range(column):
                above += row[j] >= s
            for j in range(column + 1, row.shape[0]):
                above += row[j] > s
            out[p] = above


def _fill_places(cells: sp.csr_array, block: NDArray, ranks: NDArray, first: int) -> None:
    bounds = np.linspace(0, len(block), 9).astype(int)
    in_ranges(
        lambda start, stop: _places(cells.indptr, cells.indices, block, ranks, first, start, stop),
        np.unique(bounds).tolist(),
    )


def _worth(labels: Labels, ranks: NDArray, nearest: NDArray, n_clusters: int, decay: float) -> NDArray:
    """Return what each label is worth to each partition, C×L.

    >>> _worth(Labels([[1, 1], [1, 0]]), np.array([1, 2, 4]), np.array([0, 0]), 1, 1.0)
    array([[0.75, 0.25]])
    """
    cells = labels.positives
    per_row = np.repeat(1 / np.maximum(np.diff(cells.indptr), 1), np.diff(cells.indptr))
    gains = sp.csr_array((per_row * ranks ** -float(decay), cells.indices, cells.indptr), shape=cells.shape)
    members = sp.csr_array(
        (np.ones(len(nearest)), (nearest, np.arange(len(nearest)))), shape=(n_clusters, len(nearest))
    )
    return (members @ gains).toarray()


def _most_worth(worth: NDArray, rates: NDArray, width: int) -> NDArray[np.int64]:
    """Return the labels of most worth to each partition, ascending; of equal ones those of the higher rate.

    >>> _most_worth(np.array([[0.0, 2.0, 0.0, 1.0]]), np.array([0.1, 0.1, 0.3, 0.1]), 3)
    array([[1, 2, 3]])
    """
    order = np.lexsort((np.tile(-rates, (len(worth), 1)), -worth), axis=1)
    return np.sort(order[:, :width], axis=1)


def _order_places(rates: NDArray) -> NDArray[np.int64]:
    """Return the place of each label by falling rate, from 0; ties go to the lower index.

    >>> _order_places(np.array([0.1, 0.3, 0.1]))
    array([1, 0, 2])
    """
    places = np.empty(len(rates), np.int64)
    places[np.argsort(-rates, kind="stable")] = np.arange(len(rates))
    return places
