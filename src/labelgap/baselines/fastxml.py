"""FastXML: a forest of trees whose splits are learned for the ranking of labels on both sides."""

from __future__ import annotations

from functools import partial
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, DTypeLike, NDArray
from sklearn.utils import check_random_state

from labelgap.baselines.forest import SEED_LIMIT, GrowthSettings, LabelGains, SparseRows, Tree, find_leaves, grow_tree
from labelgap.checkpoints import checkpoint_calls
from labelgap.estimators.base import About, MultiLabelEstimator
from labelgap.estimators.local import are_indices
from labelgap.estimators.parameters import check_number, check_weights
from labelgap.estimators.voting import Ballots, VoteScores
from labelgap.metrics.at_k import ideal_dcg
from labelgap.observations import Labels, label_propensities
from labelgap.observations.arguments import RandomSeed
from labelgap.runtime import map_ranges, n_threads, progress


class FastXML(MultiLabelEstimator):
    """A forest of trees whose splits give each side a good ranking of its labels.

    A node assigns its rows to two sides, δ_i = ±1, each with a ranking r± of the labels, and learns a sparse
    separator w that sends new rows to the same sides (with a constant feature):

        min over δ, r, w   α ‖w‖₁ + Σ_i c_i log(1 + exp(−δ_i w·x_i)) − Σ_i nDCG(r of the side of i, y_i)

    From random halves, rankings and sides are updated in turn until no row changes its side. Then w is learned, and
    the rows go where it sends them. c_i is 1 over the share of the rows on the side of row i. A node is a leaf if it
    has few rows, if its rows have the same labels, or if none of four starts separates them. The training rows of the
    leaves that a new row reaches vote for it, with equal weight for each tree: the score of a label is the mean of
    its frequencies in these leaves, minus ½.

    An unknown cell has no gain in a split, and in a leaf it votes for the mean of its label.

    With ``propensity``, labels that are often missing count more: their gain in nDCG and their share in leaves are
    divided by the probability that a positive is observed, as in PfastreXML without its second ranking.

    Parameters
    ----------
    n_estimators : int, default=50
        The number of trees. The first trees do not depend on this number.
    alpha : float, default=0.5
        The penalty α ≥ 0 of the separators, 1 over the paper's C_δ. If it is too large, leaves stay large; choose it
        on held-out rows.
    max_leaf : int, default=10
        A node with at most this many rows is a leaf.
    bias : float, default=1.0
        The value of the constant feature, whose weight has the same penalty as the others; 0 for none.
    propensity : bool or array-like of shape (L,), default=False
        Weight labels by propensities: True for those of :func:`labelgap.label_propensities`, or an array.
    max_iter : int, default=1
        The number of times that a node learns its separator. From the second time on, the margins of the last
        separator count in the choice of sides.
    tol : float, default=0.01
        Stop a separator when its violation of optimality is this share of that of w = 0.
    absent, n_jobs, verbose
        As in :class:`~labelgap.LEML`. The result does not depend on ``n_jobs``.
    device : str, default="auto"
        Deprecated; has no effect.
    random_state : int, RandomState or None
        Seed of the trees.
    dtype : {"float32", "float64"}, default="float32"
        The precision of features and separators; sums are float64.

    Attributes
    ----------
    roots_ : ndarray of shape (n_estimators,)
        The root of each tree: v ≥ 0 is an inner node, v < 0 the leaf ~v.
    children_ : ndarray of shape (n_nodes, 2)
        The children of each inner node, in the same encoding: the first if w·x + offset ≤ 0, else the second.
    separators_ : csr_array of shape (n_nodes, d)
        w of each inner node.
    offsets_ : ndarray of shape (n_nodes,)
        The weight of the constant feature, times ``bias``.
    leaves_ : csr_array of shape (n_leaves, n)
        The training rows of each leaf, with weights that sum to 1.
    objective_ : list of list of float
        The sum of the nodes' objectives, for each tree.
    n_iter_ : int
        The largest number of rounds of a node.

    References
    ----------
    Prabhu and Varma 2014, "FastXML: a fast, accurate and stable tree-classifier for extreme multi-label learning";
    Jain, Prabhu and Varma 2016, "Extreme multi-label loss functions for recommendation, tagging, ranking and other
    missing label applications".

    Examples
    --------
    >>> import numpy as np
    >>> from labelgap import FastXML
    >>> X = np.repeat([[1.0, 0.0], [0.0, 1.0]], 20, axis=0)
    >>> Y = np.repeat([[1, 0, 1], [0, 1, 0]], 20, axis=0)
    >>> FastXML(n_estimators=5, random_state=0).fit(X, Y).predict([[2.0, 0.1], [0.3, 0.9]])
    array([[1, 0, 1],
           [0, 1, 0]])
    """

    about = About(
        "A forest whose splits are learned for the ranking of labels on both sides.",
        "Prabhu and Varma 2014",
        missing_labels=True,
        fit="T z log n",
        predict="T d log n",
    )

    roots_: NDArray
    children_: NDArray
    separators_: sp.csr_array
    offsets_: NDArray
    leaves_: sp.csr_array
    objective_: list[list[float]]
    n_iter_: int
    positives_: sp.csr_array
    known_: sp.csr_array | None
    rates_: NDArray

    def __init__(
        self,
        n_estimators: int = 50,
        *,
        alpha: float = 0.5,
        max_leaf: int = 10,
        bias: float = 1.0,
        propensity: bool | ArrayLike = False,
        max_iter: int = 1,
        tol: float = 0.01,
        absent: Literal["negative", "unknown"] = "negative",
        random_state: RandomSeed = None,
        n_jobs: int | None = None,
        device: str = "auto",
        dtype: DTypeLike = "float32",
        verbose: int = 0,
    ) -> None:
        self.n_estimators = n_estimators
        self.alpha = alpha
        self.max_leaf = max_leaf
        self.bias = bias
        self.propensity = propensity
        self.max_iter = max_iter
        self.tol = tol
        self.absent = absent
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device
        self.dtype = dtype
        self.verbose = verbose

    def _check_parameters(self) -> None:
        self._check_common()
        for name in ("n_estimators", "max_leaf", "max_iter"):
            check_number(name, getattr(self, name), Integral, least=1)
        for name in ("alpha", "bias", "tol"):
            check_number(name, getattr(self, name), Real, least=0)
        check_number("verbose", self.verbose, Integral, least=0)

    def _learn(self, X: Any, labels: Labels) -> None:
        gains, dtype = self._compute_label_gains(labels), np.dtype(self.dtype)
        settings = GrowthSettings(
            float(self.alpha),
            float(self.tol),
            dtype == np.float32,
            float(self.bias),
            int(self.max_leaf),
            int(self.max_iter),
        )
        positives = labels.positives
        inverse_ideal = 1 / ideal_dcg(positives.shape[1], np.diff(positives.indptr))
        indptr, indices = positives.indptr.astype(np.int64), positives.indices.astype(np.int32)
        grow = partial(grow_tree, _to_sparse_rows(X), LabelGains(indptr, indices, gains, inverse_ideal), settings)
        seeds = check_random_state(self.random_state).randint(SEED_LIMIT, size=self.n_estimators)
        trees: list[Tree] = []
        with progress(len(seeds), type(self).__name__, self.verbose) as advance:
            for tree in checkpoint_calls("tree", [partial(grow, int(seed)) for seed in seeds], Tree):
                trees.append(tree)
                advance(f"{len(tree.bounds) - 1} leaves")
        self._store_trees(trees)
        self.positives_, self.known_, self.rates_ = Ballots.of(labels, dtype.type, gains)

    def _compute_label_gains(self, labels: Labels) -> NDArray[np.float64]:
        """Return the gain of a positive of each label."""
        if isinstance(self.propensity, bool | np.bool_):
            return 1 / label_propensities(labels) if self.propensity else np.ones(labels.shape[1])
        propensities = check_weights("propensity", self.propensity, labels.shape[1])
        if not ((propensities > 0) & (propensities <= 1)).all():
            raise ValueError(
                "propensity has values that are not probabilities; pass numbers above 0 and up to 1, such as "
                "label_propensities(Y)."
            )
        return 1 / propensities

    def _store_trees(self, trees: list[Tree]) -> None:
        """Number the nodes and leaves of all trees consecutively."""
        dtype, d = np.dtype(self.dtype), self.n_features_in_
        roots, children, separators, leaves, n_nodes, n_leaves = [], [], [], [], 0, 0
        for tree in trees:
            links = np.vstack([[tree.root, 0], tree.children])
            links = np.where(links >= 0, links + n_nodes, links - n_leaves)
            roots.append(links[0, :1])
            children.append(links[1:])
            separators.append(sp.csr_array((tree.data, tree.indices, tree.indptr), shape=(len(tree.children), d)))
            sizes = np.diff(tree.bounds)
            weights = np.repeat(1 / sizes, sizes)
            leaves.append(sp.csr_array((weights, tree.order, tree.bounds), shape=(len(sizes), len(tree.order))))
            n_nodes, n_leaves = n_nodes + len(tree.children), n_leaves + len(sizes)
        self.roots_, self.children_ = np.concatenate(roots), np.concatenate(children)
        self.separators_ = sp.csr_array(sp.vstack(separators), dtype=dtype)
        self.offsets_ = np.concatenate([tree.offsets for tree in trees], dtype=dtype)
        self.leaves_ = sp.csr_array(sp.vstack(leaves), dtype=dtype)
        self.objective_ = [[float(tree.objective)] for tree in trees]
        self.n_iter_ = max(int(tree.rounds) for tree in trees)

    def _scores(self, X: Any) -> VoteScores:
        return VoteScores(X, self._compute_voters, self._ballots(), self._kernels())

    def _ballots(self) -> Ballots:
        return Ballots(self.positives_, self.known_, self.rates_)

    def _compute_voters(self, X: Any) -> sp.csr_array:
        """Return the weights of the training rows in the vote for each row, n×n_train."""
        leaves = self._find_leaves(X)
        n, T = leaves.shape
        shares = np.full(leaves.size, 1 / T, self.leaves_.dtype)
        membership = sp.csr_array((shares, leaves.ravel(), np.arange(n + 1) * T), shape=(n, self.leaves_.shape[0]))
        return membership @ self.leaves_

    def _find_leaves(self, X: Any) -> NDArray[np.int64]:
        """Return the leaf of each row in each tree, n×T."""
        w = self.separators_
        forest = self.roots_, self.children_, w.indptr, w.indices, w.data, self.offsets_
        leaves, rows = np.empty((X.shape[0], len(self.roots_)), np.int64), _to_sparse_rows(X)
        bounds = np.unique(np.linspace(0, len(leaves), 4 * n_threads() + 1).astype(int)).tolist()
        map_ranges(lambda start, stop: find_leaves(rows, *forest, leaves, start, stop), bounds)
        return leaves

    def _check_loaded(self) -> None:
        self._ballots().check(self.n_labels_)
        nodes, d = self.separators_.shape
        leaves, n = self.leaves_.shape
        if d != self.n_features_in_ or n != self.positives_.shape[0] or np.shape(self.offsets_) != (nodes,):
            raise ValueError("the separators or the leaves do not belong to the model")
        links = np.concatenate([self.roots_, self.children_.reshape(nodes * 2)])
        if not are_indices(links[links >= 0], nodes) or not are_indices(~links[links < 0], leaves):
            raise ValueError("a node has a child that the model does not have")
        # Children have higher numbers than their parents: otherwise a search for a leaf might not end.
        if ((self.children_ >= 0) & (self.children_ <= np.arange(nodes)[:, None])).any():
            raise ValueError("a node has a child with a lower number")


def _to_sparse_rows(X: Any) -> SparseRows:
    """Return a CSR copy of the rows with ascending columns and fixed index types; X does not change."""
    csr = sp.csr_array(X)
    if not csr.has_canonical_format:
        csr = csr.copy()
        csr.sum_duplicates()
    return SparseRows(csr.indptr.astype(np.int64), csr.indices.astype(np.int32), csr.data.astype(float), X.shape[1])
