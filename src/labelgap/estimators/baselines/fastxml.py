"""FastXML: a forest of trees over rows, whose splits are learned for the ranking of labels on either side."""

from __future__ import annotations

from functools import partial
from itertools import accumulate
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from labelgap.estimators.about import About
from labelgap.estimators.base import MultiLabelEstimator
from labelgap.estimators.baselines.forest import Rows, Rules, Tree, grow, walk
from labelgap.estimators.baselines.label_splits import Gains
from labelgap.estimators.local import are_places
from labelgap.estimators.parameters import check_number, check_weights
from labelgap.estimators.pieces import in_pieces
from labelgap.estimators.votes import Ballots, VoteScores
from labelgap.metrics.at_k import ideal_dcg
from labelgap.observations import Labels, label_propensities
from labelgap.runtime import in_ranges, n_threads, progress

LARGEST_SEED = 2**31 - 1


class FastXML(MultiLabelEstimator):
    """A forest of trees that part the rows so that each side has a good ranking of its labels.

    A node shares its rows out to two sides, δ_i = ±1, each with a ranking r± of the labels, and learns a sparse
    separator w that sends new rows the same way (a constant feature included):

        min over δ, r, w   α ‖w‖₁ + Σ_i c_i log(1 + exp(−δ_i w·x_i)) − Σ_i nDCG(r of the side of i, y_i)

    From a random half on either side, rankings and sides take turns until no row gains from a change; then w is
    learned, and rows go where it sends them. c_i is 1 over the share of the rows that are on the side of row i. A
    node of few rows, of rows with the same labels, or whose rows none of four starts can part, is a leaf. The rows of
    the leaves that a new row comes to vote for it, and every tree has the same share of the votes: the score of a
    label is the mean of its frequencies in these leaves, less ½.

    An unknown cell gains nothing in a split, and a row that does not know a label votes for its mean.

    With ``propensity`` a label that is easily forgotten counts for more: its gain in nDCG and its share in leaves are
    divided by the probability that a positive of it is seen, as in PfastreXML without its second ranking.

    Parameters
    ----------
    n_estimators : int, default=50
        The number of trees. The first of them are the same however many follow.
    alpha : float, default=0.5
        The penalty α ≥ 0 of the separators, 1 over the paper's C_δ. Too strong a penalty leaves large leaves that
        nothing parts; validate it.
    max_leaf : int, default=10
        A node of so many rows is not parted any more.
    bias : float, default=1.0
        The value of the constant feature, whose weight is penalised like the others; 0 for none.
    propensity : bool or array-like of shape (L,), default=False
        Whether to weight labels by propensities: those of :func:`labelgap.label_propensities`, or the ones given.
    max_iter : int, default=1
        How often a node learns its separator. From the second time on a row also gains from the side where the last
        one puts it.
    tol : float, default=0.01
        A separator ends when the violation of its optimality is this share of that of w = 0.
    absent, n_jobs, verbose
        As in :class:`~labelgap.LEML`. The result does not depend on ``n_jobs``.
    device : str, default="auto"
        Deprecated; has no effect.
    random_state : int, RandomState or None
        Seeds the trees.
    dtype : {"float32", "float64"}, default="float32"
        The precision of features and separators; sums are of float64.

    Attributes
    ----------
    roots_ : ndarray of shape (n_estimators,)
        The root of each tree: v ≥ 0 is an inner node, v < 0 the leaf ~v.
    children_ : ndarray of shape (n_nodes, 2)
        Where rows go from each inner node, encoded alike: the first where w·x + offset ≤ 0, else the second.
    separators_ : csr_array of shape (n_nodes, d)
        w of each inner node.
    offsets_ : ndarray of shape (n_nodes,)
        The weight of the constant feature, times ``bias``.
    leaves_ : csr_array of shape (n_leaves, n)
        The training rows of each leaf; a leaf's weights sum to 1.
    objective_ : list of list of float
        The sum of the nodes' objectives, for each tree.
    n_iter_ : int
        How often a separator was learned in the node that took the most rounds.

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
        "A forest whose splits are learned for the ranking of labels on either side.",
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
        random_state: Any = None,
        n_jobs: int | None = None,
        device: str = "auto",
        dtype: Any = "float32",
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
        of_label = self._gains_of_labels(labels)
        numbers = float(self.bias), int(self.max_leaf), int(self.max_iter)
        rules = Rules(float(self.alpha), float(self.tol), np.dtype(self.dtype) == np.float32, *numbers)
        seeds = check_random_state(self.random_state).randint(LARGEST_SEED, size=self.n_estimators)
        given = sorted_rows(X), _gains(labels, of_label), rules
        tasks = [partial(grow, *given, int(seed)) for seed in seeds]
        trees: list[Tree] = []
        with progress(len(tasks), type(self).__name__, self.verbose) as advance:
            for tree in in_pieces("tree", tasks, Tree):
                trees.append(tree)
                advance(f"{len(tree.bounds) - 1} leaves")
        self._keep_trees(trees)
        self.positives_, self.known_, self.rates_ = Ballots.of(labels, np.dtype(self.dtype).type, of_label)

    def _gains_of_labels(self, labels: Labels) -> NDArray[np.float64]:
        """Return what a positive of each label counts for."""
        if isinstance(self.propensity, bool | np.bool_):
            return 1 / label_propensities(labels) if self.propensity else np.ones(labels.shape[1])
        propensities = check_weights("propensity", self.propensity, labels.shape[1])
        if not ((propensities > 0) & (propensities <= 1)).all():
            raise ValueError(
                "propensity holds what is no probability of being seen; pass numbers above 0 and up to 1, such as "
                "label_propensities(Y)."
            )
        return 1 / propensities

    def _keep_trees(self, trees: list[Tree]) -> None:
        """Number the nodes and leaves of all trees one after the other."""
        nodes, leaves = ([0, *accumulate(sizes)] for sizes in zip(*map(_size, trees), strict=True))
        moved = [_moved(tree, *first) for tree, *first in zip(trees, nodes, leaves)]
        dtype = np.dtype(self.dtype)
        self.roots_, self.children_ = (np.concatenate(parts) for parts in zip(*moved, strict=True))
        separators = [_separators(tree, self.n_features_in_) for tree in trees]
        self.separators_ = sp.csr_array(sp.vstack(separators), dtype=dtype)
        self.offsets_ = np.concatenate([tree.offsets for tree in trees], dtype=dtype)
        self.leaves_ = sp.csr_array(sp.vstack([_leaves(tree) for tree in trees]), dtype=dtype)
        self.objective_ = [[float(tree.objective)] for tree in trees]
        self.n_iter_ = max(int(tree.rounds) for tree in trees)

    def _scores(self, X: Any) -> VoteScores:
        return VoteScores(X, self._voters, self._ballots(), self._kernels())

    def _ballots(self) -> Ballots:
        return Ballots(self.positives_, self.known_, self.rates_)

    def _voters(self, X: Any) -> sp.csr_array:
        reached = self._leaves_of(X)
        n, T = reached.shape
        shares = np.full(reached.size, 1 / T, self.leaves_.dtype)
        routes = sp.csr_array((shares, reached.ravel(), np.arange(n + 1) * T), shape=(n, self.leaves_.shape[0]))
        return routes @ self.leaves_

    def _leaves_of(self, X: Any) -> NDArray[np.int64]:
        """Return the leaf that each row comes to in each tree, n×T."""
        w = self.separators_
        forest = self.roots_, self.children_, w.indptr, w.indices, w.data, self.offsets_
        reached, features = np.empty((X.shape[0], len(self.roots_)), np.int64), sorted_rows(X)
        bounds = np.unique(np.linspace(0, len(reached), 4 * n_threads() + 1).astype(int)).tolist()
        in_ranges(lambda start, stop: walk(features, *forest, reached, start, stop), bounds)
        return reached

    def _check_loaded(self) -> None:
        self._ballots().check(self.n_labels_)
        nodes, d = self.separators_.shape
        leaves, n = self.leaves_.shape
        if d != self.n_features_in_ or n != self.positives_.shape[0] or np.shape(self.offsets_) != (nodes,):
            raise ValueError("the separators or the leaves do not belong to the model")
        links = np.concatenate([self.roots_, self.children_.reshape(nodes * 2)])
        if not are_places(links[links >= 0], nodes) or not are_places(~links[links < 0], leaves):
            raise ValueError("a node has a child that the model does not have")
        # Numbered from the root down: otherwise a row might go round and round.
        if ((self.children_ >= 0) & (self.children_ <= np.arange(nodes)[:, None])).any():
            raise ValueError("the nodes are in no order")


def sorted_rows(X: Any) -> Rows:
    """Return rows as the kernels want them: sparse, columns ascending, one type of indices; X stays as it is."""
    csr = sp.csr_array(X)
    if not csr.has_canonical_format:
        csr = csr.copy()
        csr.sum_duplicates()
    return Rows(csr.indptr.astype(np.int64), csr.indices.astype(np.int32), csr.data.astype(float), X.shape[1])


def _gains(labels: Labels, of_label: NDArray[np.float64]) -> Gains:
    positives = labels.positives
    counts = np.diff(positives.indptr)
    of_row = 1 / ideal_dcg(positives.shape[1], counts)
    return Gains(positives.indptr.astype(np.int64), positives.indices.astype(np.int32), of_label, of_row)


def _size(tree: Tree) -> tuple[int, int]:
    return len(tree.children), len(tree.bounds) - 1


def _moved(tree: Tree, first_node: int, first_leaf: int) -> tuple[NDArray, NDArray]:
    """Return the root and the children by the numbers that they have in a forest."""
    root, children = (
        np.where(links >= 0, links + first_node, links - first_leaf)
        for links in (np.array([tree.root]), tree.children)
    )
    return root, children


def _separators(tree: Tree, n_features: int) -> sp.csr_array:
    return sp.csr_array((tree.data, tree.indices, tree.indptr), shape=(len(tree.children), n_features))


def _leaves(tree: Tree) -> sp.csr_array:
    """Return the rows of each leaf, their weights summing to 1."""
    sizes = np.diff(tree.bounds)
    weights = np.repeat(1 / sizes, sizes)
    return sp.csr_array((weights, tree.order, tree.bounds), shape=(len(sizes), len(tree.order)))
