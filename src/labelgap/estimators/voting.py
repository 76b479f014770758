"""Votes of the nearest training rows: the base class of LabelKNN and SLEEC, LabelKNN, and the scores."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from numbers import Integral
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray

from labelgap.estimators.base import About, MultiLabelEstimator, Outcome
from labelgap.estimators.local import Part, PartFit, are_indices, check_ensemble, check_parts, fit_parts, route_rows
from labelgap.estimators.parameters import check_choice, check_number
from labelgap.estimators.scores import Scores, split_rows
from labelgap.kernels import Backend, get_backend
from labelgap.neighbors import Neighbors, make_neighbors
from labelgap.observations import Labels
from labelgap.observations.arguments import RandomSeed


class IndexCache:
    """Neighbour indexes of parts, built on first use; copies and files of an estimator start with an empty cache."""

    def __init__(self) -> None:
        self._indexes: dict[tuple[int, str, str], tuple[Part, Neighbors]] = {}

    def get(self, part: Part, algorithm: str, metric: str) -> Neighbors:
        """Return the index of a part."""
        key = id(part), algorithm, metric
        if key not in self._indexes:  # stores the part too, so that no other part can get its id
            self._indexes[key] = part, make_neighbors(algorithm, metric).fit(part["embedded"])
        return self._indexes[key][1]

    def __reduce__(self) -> tuple[type[IndexCache], tuple[()]]:
        return IndexCache, ()


class VotingEstimator(MultiLabelEstimator):
    """Base class of estimators in which the neighbours of a row vote, averaged over several learners.

    A learner has a part for each cluster of the rows. A row that is orthogonal to all training rows, such as a row of
    zeros, has no voting neighbours. A subclass fits the parts and embeds rows in the space of a part.
    """

    n_neighbors: int
    metric: str
    weights: str
    algorithm: str
    n_clusters: int | None
    n_learners: int
    random_state: Any
    verbose: int

    centers_: list[NDArray]
    parts_: list[list[Part]]
    objective_: list[list[float]]
    n_iter_: int
    status_: str
    positives_: sp.csr_array
    known_: sp.csr_array | None
    rates_: NDArray

    @abstractmethod
    def _fit_part(self, X: Any, labels: Labels, rng: np.random.RandomState) -> PartFit:
        """Fit the part of a cluster, a dict of arrays, to its rows and labels."""

    @abstractmethod
    def _embed_part(self, part: Part, X: Any) -> Any:
        """Return the embeddings of rows in the space of a part."""

    def _learn(self, X: Any, labels: Labels) -> Outcome:
        ensemble = fit_parts(self, X, labels, self._fit_part)
        self.centers_, self.parts_ = ensemble.centers, ensemble.parts
        self.objective_, self.n_iter_, self.status_ = ensemble.objective, ensemble.n_iter, ensemble.status
        self.positives_, self.known_, self.rates_ = Ballots.of(labels, np.dtype(self.dtype).type)
        self._indexes = IndexCache()
        return ensemble.outcome

    def _check_parameters(self) -> None:
        self._check_common()
        check_ensemble(self)
        check_number("n_neighbors", self.n_neighbors, Integral, least=1)
        check_choice("metric", self.metric, ("cosine", "euclidean"))
        check_choice("weights", self.weights, ("similarity", "uniform"))
        check_choice("algorithm", self.algorithm, ("exact", "approximate"))

    def _scores(self, X: Any) -> VoteScores:
        return VoteScores(X, self._weigh_votes, self._ballots(), get_backend())

    def _ballots(self) -> Ballots:
        return Ballots(self.positives_, self.known_, self.rates_)

    def _weigh_votes(self, X: Any) -> sp.csr_array:
        """Return the vote weights, n×n_train; every learner with voting neighbours has the same share."""
        shape, dtype = (X.shape[0], self.positives_.shape[0]), self.positives_.dtype
        kernels = self._prediction_kernels(X.shape[0])
        cells = [(np.empty(0, dtype), np.arange(0), np.arange(0))]
        for part, rows in route_rows(X, self.centers_, self.parts_):
            index = self._indexes.get(part, self.algorithm, self.metric)
            count = min(self.n_neighbors, len(part["rows"]))
            nearest, similarities = index.search(self._embed_part(part, X[rows]), count, kernels)
            weights = self._scale_weights(similarities)
            cells.append((weights.ravel(), np.repeat(rows, count), part["rows"][nearest].ravel()))
        weights, rows, columns = map(np.concatenate, zip(*cells, strict=True))
        total = sp.csr_array((weights, (rows, columns)), shape=shape, dtype=dtype)
        learners = np.maximum(np.rint(total.sum(axis=1)), 1).astype(dtype)
        total.data /= np.repeat(learners, np.diff(total.indptr))
        return total

    def _scale_weights(self, similarities: NDArray) -> NDArray:
        """Return vote weights with the sum 1 in each row.

        Neighbours have equal weights if none is similar, and the weight 0 if all are orthogonal to the row, because
        then the choice of neighbours is arbitrary.
        """
        weights = np.ones_like(similarities)
        if self.weights == "similarity" and self.metric == "euclidean":
            weights /= 1 + np.sqrt(np.maximum(-similarities, 0))
        elif self.weights == "similarity":
            similar = (similarities > 0).any(axis=1)
            weights[similar] = np.maximum(similarities[similar], 0)
        weights /= weights.sum(axis=1, keepdims=True)
        if self.metric == "cosine":
            weights[~similarities.any(axis=1)] = 0
        return weights

    def _check_loaded(self) -> None:
        self._indexes = IndexCache()
        self._ballots().check(self.n_labels_)
        check_parts(self.centers_, self.parts_, self.n_features_in_, self._check_part)

    def _check_part(self, part: Part) -> None:
        """Raise an error if a part read from a file does not match the model."""
        rows, n = part["rows"], self.positives_.shape[0]
        if not are_indices(rows, n) or not 0 < len(rows) == part["embedded"].shape[0]:
            raise ValueError("a part has rows that the model does not have")


class LabelKNN(VotingEstimator):
    """Nearest neighbours: the nearest training rows vote with their labels.

    The vote of a neighbour for an unknown label is the mean of this label. So is every vote for a row that is
    orthogonal to all training rows. With clusters, only the training rows of a row's cluster vote, and several
    clusterings are averaged.

    Parameters
    ----------
    n_neighbors : int, default=10
        Number of training rows that vote; at most the number of rows in the cluster.
    metric : {"cosine", "euclidean"}, default="cosine"
        The similarity or distance that defines the neighbours.
    weights : {"similarity", "uniform"}, default="similarity"
        The weight of a vote: the similarity of the row (the cosine, or 1 / (1 + distance)), or the same for all.
    algorithm : {"exact", "approximate"}, default="exact"
        Compare with every training row, or use an approximate index (dense rows; requires the extra "ann").
    n_clusters : int, optional, default=1
        Number of clusters; None is one for each 6,000 rows.
    n_learners : int, default=1
        Number of clusterings to average.
    absent, random_state, n_jobs, dtype, verbose
        As in :class:`~labelgap.LEML`.
    device : str, default="auto"
        Deprecated; has no effect.

    Attributes
    ----------
    parts_ : list of list of dict
        For each learner and cluster: "rows" (indices of training rows) and "embedded" (the rows themselves).

    Examples
    --------
    >>> import numpy as np
    >>> from labelgap import LabelKNN
    >>> X = np.array([[1.0, 0.0], [1.0, 0.2], [0.0, 1.0]])
    >>> LabelKNN(n_neighbors=2).fit(X, [[1, 0], [1, 1], [0, 1]]).predict([[2.0, 0.1]])
    array([[1, 0]])
    """

    about = About(
        "Votes of the nearest rows.",
        "Cover and Hart 1967",
        missing_labels=True,
        fit="z",
        predict="z",
    )

    def __init__(
        self,
        n_neighbors: int = 10,
        *,
        metric: Literal["cosine", "euclidean"] = "cosine",
        weights: Literal["similarity", "uniform"] = "similarity",
        algorithm: Literal["exact", "approximate"] = "exact",
        n_clusters: int | None = 1,
        n_learners: int = 1,
        absent: Literal["negative", "unknown"] = "negative",
        random_state: RandomSeed = None,
        n_jobs: int | None = None,
        device: str = "auto",
        dtype: DTypeLike = "float32",
        verbose: int = 0,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.weights = weights
        self.algorithm = algorithm
        self.n_clusters = n_clusters
        self.n_learners = n_learners
        self.absent = absent
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device
        self.dtype = dtype
        self.verbose = verbose

    def _fit_part(self, X: Any, labels: Labels, rng: np.random.RandomState) -> PartFit:
        return PartFit({"embedded": X}, [], 1)

    def _embed_part(self, part: Part, X: Any) -> Any:
        if sp.issparse(part["embedded"]):
            return sp.csr_array(X)
        return X.toarray() if sp.issparse(X) else X

    def _check_part(self, part: Part) -> None:
        super()._check_part(part)
        if part["embedded"].shape[1] != self.n_features_in_:
            raise ValueError("the rows of a part and the model differ in the number of features")


MAX_VOTED_LABELS = 256  # in a row, for the size of blocks; more than voters have
THRESHOLD = 0.5  # share of the votes above which a label is predicted


class Ballots(NamedTuple):
    """The votes of training rows.

    ``positives`` holds the votes for labels, and ``known`` the known cells, or None if all cells are known. The rate
    of a label is the share of positives among its known cells.
    """

    positives: sp.csr_array
    known: sp.csr_array | None
    rates: NDArray

    @classmethod
    def of(cls, labels: Labels, dtype: Any, gains: NDArray | None = None) -> Ballots:
        """Return the votes of training labels; a positive counts as the gain of its label, or 1."""
        positives, rates = labels.positives.astype(dtype), labels.rates
        if gains is not None:
            positives.data = gains[positives.indices].astype(dtype)
            rates = rates * gains
        return cls(positives, labels.known, rates.astype(dtype))

    def check(self, n_labels: int) -> None:
        """Raise ValueError if ballots read from a file are inconsistent."""
        n, L = self.positives.shape
        if n_labels != L or np.shape(self.rates) != (L,):
            raise ValueError("the votes and the model differ in the number of labels")
        if self.known is not None and self.known.shape != (n, L):
            raise ValueError("the known cells and the votes have different shapes")


class VoteScores(Scores):
    """Scores by votes: s_ij is the weighted share of the votes of training rows for label j in row i, minus ½.

    The vote of a training row for an unknown cell is the rate of the label, and so is the score of a row without
    voters. ``weigh_votes(X)`` returns the weights of the training rows' votes for each row of X, n×n_train; the
    weights of a row sum to 1, or to 0 if it has no voters.
    """

    def __init__(
        self, X: Any, weigh_votes: Callable[[Any], sp.csr_array], ballots: Ballots, kernels: Backend
    ) -> None:
        super().__init__(kernels)
        self.X, self.weigh_votes, self.ballots = X, weigh_votes, ballots
        self.n_labels = ballots.positives.shape[1]

    def blocks(self) -> Iterator[NDArray]:
        for rows in split_rows(self.X, self.n_labels, arrays=2):
            shares = self._shares(rows).toarray() if self.ballots.known is None else self._shares_with_gaps(rows)
            yield shares - shares.dtype.type(THRESHOLD)

    def topk(self, k: int) -> tuple[NDArray, NDArray]:
        if self.ballots.known is not None:
            return super().topk(k)
        kernels, dtype = self.kernels, self.ballots.positives.dtype
        # The product with the identity has exactly the values of the decisions, so that ties agree.
        labels = kernels.prepare(sp.identity(self.n_labels), dtype)
        best = [
            kernels.product_topk(kernels.prepare(self._shares(rows), dtype), labels, k)
            for rows in split_rows(self.X, min(self.n_labels, MAX_VOTED_LABELS), arrays=2)
        ]
        indices, shares = (np.concatenate(parts) for parts in zip(*best, strict=True))
        return indices, shares - shares.dtype.type(THRESHOLD)

    def _shares(self, X: Any) -> sp.csr_array:
        """Return the shares of the votes for each label, n×L sparse, if every cell is known."""
        weights = self.weigh_votes(X)
        without_voters = sp.csr_array((weights.sum(axis=1) == 0).astype(weights.dtype)[:, None])
        return weights @ self.ballots.positives + without_voters @ sp.csr_array(self.ballots.rates[None])

    def _shares_with_gaps(self, X: Any) -> NDArray:
        """Return the shares of the votes for each label, n×L dense."""
        weights = self.weigh_votes(X)
        known = (weights @ self.ballots.known.astype(weights.dtype)).toarray()  # type: ignore[union-attr]
        return (weights @ self.ballots.positives).toarray() + self.ballots.rates * (1 - known)
