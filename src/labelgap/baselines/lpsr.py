"""LPSR: clusters of rows, each of which ranks a few candidate labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state

from labelgap.baselines.forest import SEED_LIMIT
from labelgap.baselines.naive_bayes import NaiveBayes
from labelgap.clustering import cluster
from labelgap.estimators.base import About, MultiLabelEstimator, PackedModel, pack_model
from labelgap.estimators.binary_relevance import BinaryRelevance
from labelgap.estimators.local import are_indices, choose_n_clusters
from labelgap.estimators.model_files import unpack_model
from labelgap.estimators.parameters import check_number
from labelgap.estimators.scores import Scores, split_rows, with_pattern
from labelgap.kernels import Backend
from labelgap.kernels.loops import compiled
from labelgap.metrics.batch import RaggedRows, best_positions
from labelgap.objectives import Features
from labelgap.observations import Labels
from labelgap.observations.arguments import RandomSeed
from labelgap.observations.labels import as_pattern, find_rows
from labelgap.runtime import map_ranges

ROWS_PER_CLUSTER = 500
BASES: dict[str, type[BinaryRelevance] | type[NaiveBayes]] = {
    "one_vs_all": BinaryRelevance,
    "naive_bayes": NaiveBayes,
}


class LPSR(MultiLabelEstimator):
    """Label partitioning for sublinear ranking: a base estimator scores only the candidate labels of a row's cluster.

    K-means partitions the training rows. A cluster has the ``n_candidates`` labels of greatest worth to its rows
    (Weston, Makadia and Yee 2013: the relaxed assignment),

        worth of label j  =  Σ over rows i of the cluster that have j of  1 / |y_i| · 1 / R_ij ^ decay,

    where R_ij is the rank of j when the base ranks the labels that row i knows, and |y_i| is the number of positives
    of the row: a label has worth where it is relevant and the base ranks it high. Labels of equal worth are sorted by
    their rate, the share of positives among known cells. A new row has the base's decision values for the candidates
    of its nearest clusters. All other labels rank below them, sorted by rate: label number t in that order has the
    decision value ``floor_`` − t. Decision values of the base are clipped at ``floor_``, the smallest one in
    training.

    The paper weights the rows in K-means by how well the base ranks them. Here all rows have the same weight, and no
    cluster has more than twice its share of them.

    Parameters
    ----------
    estimator : {"one_vs_all", "naive_bayes"} or estimator, default="one_vs_all"
        The base: :class:`~labelgap.BinaryRelevance`, :class:`~labelgap.NaiveBayes`, or an estimator to clone.
    alpha : float, default=1.0
        The penalty or smoothing of a base that is given by name.
    tol : float, default=1e-2
        The tolerance of "one_vs_all".
    n_clusters : int, optional
        The number of clusters. Default: one for each 500 rows.
    n_candidates : int, default=100
        The number of candidate labels of a cluster; all labels if there are fewer.
    n_nearest : int, default=1
        The number of nearest clusters whose candidates a row has.
    decay : float, default=1.0
        The exponent of the rank in the worth of a label; 0 counts positives alone.
    absent, random_state, n_jobs, dtype
        As in :class:`~labelgap.LEML`. The seed draws the clusters.
    device : str, default="auto"
        Deprecated; has no effect.

    Attributes
    ----------
    base_ : dict
        The fitted base.
    centers_ : ndarray of shape (C, d)
        The centres of the clusters.
    candidates_ : ndarray of shape (C, n_candidates)
        The candidates of each cluster, ascending.
    below_ : ndarray of shape (L,)
        The decision value of each label where it is not a candidate.
    floor_ : float
        The smallest decision value of a candidate, at most 0.

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
        "A base estimator that scores only a few labels for each row, those of its cluster.",
        "Weston, Makadia and Yee 2013",
        missing_labels=True,
        fit="the base's, and n y L",
        predict="the base's of a few labels",
    )

    base_: PackedModel
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
        random_state: RandomSeed = None,
        n_jobs: int | None = None,
        device: str = "auto",
        dtype: DTypeLike = "float32",
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
        if not isinstance(self.estimator, MultiLabelEstimator) and self.estimator not in BASES:
            raise ValueError(
                f"estimator={self.estimator!r} is not known; choose from {list(BASES)}, or pass an estimator "
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
        self.base_ = pack_model(self._base)
        clustering, cluster_of_row = cluster(
            X, choose_n_clusters(self.n_clusters, X.shape[0], ROWS_PER_CLUSTER), rng=rng
        )
        self.centers_ = clustering.centers
        ranks, least = self._rank_positives(X, labels)
        worth = _compute_worth(labels, ranks, cluster_of_row, len(self.centers_), self.decay)
        self.candidates_ = _select_candidates(worth, labels.rates, min(self.n_candidates, labels.shape[1]))
        self.floor_ = min(least, 0.0)
        positions = np.empty(labels.shape[1], np.int64)
        positions[np.argsort(-labels.rates, kind="stable")] = np.arange(labels.shape[1])
        self.below_ = self.floor_ - 1.0 - positions

    def _make_base(self, rng: np.random.RandomState) -> MultiLabelEstimator:
        """Return the base to fit; a base that needs a seed and has none gets one from ``rng``."""
        if isinstance(self.estimator, str):
            base: MultiLabelEstimator = BASES[self.estimator]()
            shared = self.get_params(deep=False).keys() & base.get_params().keys()
            parameters = {name: getattr(self, name) for name in shared}
            return base.set_params(**parameters | {"n_jobs": None, "device": "auto"})
        base = clone(self.estimator)
        if base.get_params().get("random_state", 0) is None:
            base.set_params(random_state=rng.randint(SEED_LIMIT))
        return base

    def _rank_positives(self, X: Any, labels: Labels) -> tuple[NDArray[np.int64], float]:
        """Return the rank of each positive among the known labels of its row, and the smallest decision value."""
        cells, first, least = labels.positives, 0, np.inf
        ranks = np.empty(cells.nnz, np.int64)
        for block in self._base._scores(self._base._check_rows(X)).blocks():
            least = min(least, float(block.min()))
            if labels.known is not None:
                block = np.where(labels.known[first : first + len(block)].toarray(), block, -np.inf)
            rank_cells(cells, block, ranks, first)
            first += len(block)
        return ranks, least

    def _scores(self, X: Any) -> CandidateScores:
        n_candidates = self.candidates_.shape[1]
        return CandidateScores(X, self._score_candidates, self.below_, n_candidates, self._kernels())

    def _score_candidates(self, X: Any) -> sp.csr_array:
        """Return the base's decision values for the candidates of each row, n×L."""
        nearest, (C, width) = self._find_nearest(X), self.candidates_.shape
        starts = np.arange(0, nearest.size + 1, nearest.shape[1])
        clusters = sp.csr_array((np.ones(nearest.size, np.int32), nearest.ravel(), starts), shape=(len(nearest), C))
        starts = np.arange(0, C * width + 1, width)
        candidates = np.ones(C * width, np.int32), self.candidates_.ravel(), starts
        pattern = as_pattern(clusters @ sp.csr_array(candidates, shape=(C, self.n_labels_)))
        no_positives = sp.csr_array(pattern.shape, dtype=bool)
        scores = self._base._scores(self._base._check_rows(X)).known(Labels.of_patterns(no_positives, pattern))
        return with_pattern(np.maximum(scores.data, self.floor_).astype(self.dtype), scores)

    def _find_nearest(self, X: Any) -> NDArray[np.int64]:
        """Return the nearest clusters of each row, by ‖c‖² − 2 x·c; ties go to the lower index."""
        columns = np.ascontiguousarray(self.centers_.T, np.dtype(self.dtype).type)
        products = Features(X, self._kernels(), columns.dtype.type).times(columns)
        excess = np.einsum("jf,jf->j", self.centers_, self.centers_, dtype=float) - 2.0 * products
        return best_positions(-excess, min(self.n_nearest, len(self.centers_)))

    def _check_loaded(self) -> None:
        self._base = unpack_model(self, self.base_)
        sizes = self._base.n_features_in_, self._base.n_labels_
        if sizes != (self.n_features_in_, self.n_labels_) or self.below_.shape != (self.n_labels_,):
            raise ValueError("the base has other features or labels than the model")
        if self.centers_.shape != (len(self.candidates_), self.n_features_in_):
            raise ValueError("the centres do not belong to the candidates")
        if not are_indices(self.candidates_, self.n_labels_) or (np.diff(self.candidates_, axis=1) <= 0).any():
            raise ValueError("the candidates are not labels of the model, ascending")


class CandidateScores(Scores):
    """Decision values of the candidates of each row; all other labels have the decision values ``below``.

    ``score(X)`` returns the decision values of candidates, n×L; other labels are not stored. A row has at least
    ``n_candidates`` of them, and they are above those of all other labels.
    """

    def __init__(
        self, X: Any, score: Callable[[Any], sp.csr_array], below: NDArray, n_candidates: int, kernels: Backend
    ) -> None:
        super().__init__(kernels)
        self.X, self.score, self.below, self.n_candidates = X, score, below, n_candidates

    def blocks(self) -> Iterator[NDArray]:
        for rows in split_rows(self.X, len(self.below), arrays=2):
            scores = self.score(rows)
            decisions = np.tile(self.below.astype(scores.dtype), (rows.shape[0], 1))
            decisions[find_rows(scores), scores.indices] = scores.data
            yield decisions

    def topk(self, k: int) -> tuple[NDArray, NDArray]:
        if k > self.n_candidates:
            return super().topk(k)
        scores = self.score(self.X)
        cells = scores.indptr[:-1, None] + RaggedRows(scores.data, scores.indptr).top(k)
        return scores.indices[cells].astype(np.int64), scores.data[cells]


def rank_cells(cells: sp.csr_array, scores: NDArray, ranks: NDArray, first: int) -> None:
    """Write the rank of each stored cell among the scores of its row; ``scores`` are the rows from ``first`` on."""
    bounds = np.unique(np.linspace(0, len(scores), 9).astype(int)).tolist()
    map_ranges(
        lambda start, stop: _rank_cells(cells.indptr, cells.indices, scores, ranks, first, start, stop), bounds
    )


@compiled
def _rank_cells(indptr, indices, scores, ranks, first, start, stop):
    """Rank cells from 1 for the best; ties go to the lower column."""
    for r in range(start, stop):
        row = scores[r]
        for p in range(indptr[first + r], indptr[first + r + 1]):
            column = indices[p]
            s, rank = row[column], 1
            for j in range(column):
                rank += row[j] >= s
            for j in range(column + 1, row.shape[0]):
                rank += row[j] > s
            ranks[p] = rank


def _compute_worth(labels: Labels, ranks: NDArray, cluster_of_row: NDArray, n_clusters: int, decay: float) -> NDArray:
    """Return the worth of each label to each cluster, C×L.

    >>> _compute_worth(Labels([[1, 1], [1, 0]]), np.array([1, 2, 4]), np.array([0, 0]), 1, 1.0)
    array([[0.75, 0.25]])
    """
    cells, n = labels.positives, len(cluster_of_row)
    per_row = np.repeat(1 / np.maximum(np.diff(cells.indptr), 1), np.diff(cells.indptr))
    gains = sp.csr_array((per_row * ranks ** -float(decay), cells.indices, cells.indptr), shape=cells.shape)
    members = sp.csr_array((np.ones(n), (cluster_of_row, np.arange(n))), shape=(n_clusters, n))
    return (members @ gains).toarray()


def _select_candidates(worth: NDArray, rates: NDArray, width: int) -> NDArray[np.int64]:
    """Return the labels of greatest worth to each cluster, ascending; of equal worth, those of the higher rate.

    >>> _select_candidates(np.array([[0.0, 2.0, 0.0, 1.0]]), np.array([0.1, 0.1, 0.3, 0.1]), 3)
    array([[1, 2, 3]])
    """
    order = np.lexsort((np.tile(-rates, (len(worth), 1)), -worth), axis=1)
    return np.sort(order[:, :width], axis=1)
