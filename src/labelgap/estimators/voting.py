"""Estimators that let the nearest training rows vote."""

from __future__ import annotations

from abc import abstractmethod
from numbers import Integral
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.estimators.about import About
from labelgap.estimators.base import MultiLabelEstimator, Outcome
from labelgap.estimators.local import Fitted, Part, are_places, check_ensemble, check_parts, learn_parts, route
from labelgap.estimators.parameters import check_choice, check_number
from labelgap.estimators.votes import Ballots, VoteScores
from labelgap.neighbors import Neighbors, make_neighbors
from labelgap.observations import Labels


class Indexes:
    """An index of each part that was asked for; a copy or a file of an estimator starts without."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, str, str], tuple[Part, Neighbors]] = {}

    def of(self, part: Part, algorithm: str, metric: str) -> Neighbors:
        """Return the index of a part, made when it is first asked for."""
        key = id(part), algorithm, metric
        if key not in self._made:  # with the part, so that no other can come to have its id
            self._made[key] = part, make_neighbors(algorithm, metric).fit(part["embedded"])
        return self._made[key][1]

    def __reduce__(self) -> tuple[type[Indexes], tuple[()]]:
        return Indexes, ()


class VotingEstimator(MultiLabelEstimator):
    """The neighbours of a row vote, averaged over the learners; a learner has a part for each cluster of the rows.

    A row that is orthogonal to all training rows, such as one of zeros, has no neighbour that votes. A subclass
    learns the parts, and says where a row lies: its part's rows and new rows are embedded alike.
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
    def _fit_part(self, X: Any, labels: Labels, rng: np.random.RandomState) -> Fitted:
        """Learn from the rows of one cluster and their labels; the part is a dict of arrays."""

    @abstractmethod
    def _embed_part(self, part: Part, X: Any) -> Any:
        """Return where rows lie in the space of a part."""

    def _learn(self, X: Any, labels: Labels) -> Outcome:
        found = learn_parts(self, X, labels, self._fit_part)
        self.centers_, self.parts_ = found.centers, found.parts
        self.objective_, self.n_iter_, self.status_ = found.objective, found.n_iter, found.status
        self.positives_, self.known_, self.rates_ = Ballots.of(labels, np.dtype(self.dtype).type)
        self._indexes = Indexes()
        return found.outcome

    def _check_parameters(self) -> None:
        self._check_common()
        check_ensemble(self)
        check_number("n_neighbors", self.n_neighbors, Integral, least=1)
        check_choice("metric", self.metric, ("cosine", "euclidean"))
        check_choice("weights", self.weights, ("similarity", "uniform"))
        check_choice("algorithm", self.algorithm, ("exact", "approximate"))

    def _scores(self, X: Any) -> VoteScores:
        return VoteScores(X, self._voters, self._ballots(), self._kernels())

    def _ballots(self) -> Ballots:
        return Ballots(self.positives_, self.known_, self.rates_)

    def _voters(self, X: Any) -> sp.csr_array:
        """Return the weights of the votes; every learner has the same share, unless none of its neighbours votes."""
        shape, dtype = (X.shape[0], self.positives_.shape[0]), self.positives_.dtype
        total = sp.csr_array(shape, dtype=dtype)
        for part, rows in route(X, self.centers_, self.parts_):
            index = self._indexes.of(part, self.algorithm, self.metric)
            near, similarities = index.search(
                self._embed_part(part, X[rows]), min(self.n_neighbors, len(part["rows"]))
            )
            votes, columns = self._vote_weights(similarities), part["rows"][near]
            total += sp.csr_array((votes.ravel(), (np.repeat(rows, near.shape[1]), columns.ravel())), shape=shape)
        learners = np.maximum(np.rint(total.sum(axis=1)), 1).astype(dtype)
        total.data /= np.repeat(learners, np.diff(total.indptr))
        return total

    def _vote_weights(self, similarities: NDArray) -> NDArray:
        """Scale to a sum of 1 in each row.

        Neighbours none of which is similar vote alike; where all are orthogonal, which of them were found is
        arbitrary, and none votes.
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
        self._indexes = Indexes()
        self._ballots().check(self.n_labels_)
        check_parts(self.centers_, self.parts_, self.n_features_in_, self._check_part)

    def _check_part(self, part: Part) -> None:
        """Raise ValueError or KeyError if a part that came from a file does not fit the model."""
        rows, n = part["rows"], self.positives_.shape[0]
        if not are_places(rows, n) or not 0 < len(rows) == part["embedded"].shape[0]:
            raise ValueError("a part has rows that the model does not have")


class LabelKNN(VotingEstimator):
    """The nearest training rows vote with their labels.

    Where labels are unknown, the neighbours that know them vote; the others stand for the label's mean, and so does
    every vote for a row that is orthogonal to all training rows. With clusters a row asks the training rows of its
    cluster alone, and several clusterings are averaged.

    Parameters
    ----------
    n_neighbors : int, default=10
        How many training rows vote; all of a cluster's where it has fewer.
    metric : {"cosine", "euclidean"}, default="cosine"
        What near means.
    weights : {"similarity", "uniform"}, default="similarity"
        A vote counts as much as its row is near (the cosine, or 1 / (1 + distance)), or as much as any other.
    algorithm : {"exact", "approximate"}, default="exact"
        Look at every training row, or at those that an index finds (dense rows; the extra "ann").
    n_clusters : int, optional, default=1
        The number of clusters; None is one for each 6,000 rows.
    n_learners : int, default=1
        The number of clusterings that are averaged.
    absent, random_state, n_jobs, dtype, verbose
        As in :class:`~labelgap.LEML`.
    device : str, default="auto"
        Deprecated; has no effect.

    Attributes
    ----------
    parts_ : list of list of dict
        For each learner and cluster the indices of the training rows ("rows") and the rows themselves ("embedded").

    Examples
    --------
    >>> import numpy as np
    >>> from labelgap import LabelKNN
    >>> X = np.array([[1.0, 0.0], [1.0, 0.2], [0.0, 1.0]])
    >>> LabelKNN(n_neighbors=2).fit(X, [[1, 0], [1, 1], [0, 1]]).predict([[2.0, 0.1]])
    array([[1, 0]])
    """

    about = About(
        "The labels of the nearest rows.",
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
        random_state: Any = None,
        n_jobs: int | None = None,
        device: str = "auto",
        dtype: Any = "float32",
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

    def _fit_part(self, X: Any, labels: Labels, rng: np.random.RandomState) -> Fitted:
        return Fitted({"embedded": X}, [], 1)

    def _embed_part(self, part: Part, X: Any) -> Any:
        if sp.issparse(part["embedded"]):
            return sp.csr_array(X)
        return X.toarray() if sp.issparse(X) else X

    def _check_part(self, part: Part) -> None:
        super()._check_part(part)
        if part["embedded"].shape[1] != self.n_features_in_:
            raise ValueError("a part has rows of another number of features than the model")
