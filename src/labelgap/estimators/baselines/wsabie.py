"""WSABIE: rows and labels embedded in one space, learned by a ranking loss on sampled labels."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from labelgap.checkpoints import slot
from labelgap.datasets.records import canonical
from labelgap.estimators.about import About
from labelgap.estimators.base import MultiLabelEstimator
from labelgap.estimators.baselines import warp
from labelgap.estimators.inner import Packed, pack, unpack
from labelgap.estimators.low_rank import embed_rows, split_factors
from labelgap.estimators.parameters import check_choice, check_number
from labelgap.estimators.pieces import from_arrays, to_arrays
from labelgap.estimators.scores import FactorScores, Scores
from labelgap.estimators.votes import THRESHOLD
from labelgap.estimators.voting import LabelKNN
from labelgap.observations import Labels
from labelgap.runtime import progress

DEFAULT_COMPONENTS = 100
FIRST_SQUARE = 1e-8  # what a vector's sum of squared gradients starts from
LARGEST_SEED = 2**31 - 1
FOUND = ("objective_", "validation_scores_", "n_iter_", "feature_factors_", "intercept_factors_", "label_factors_")


class Training:
    """Rows, labels and factors at work; the bar is the last of the label factors."""

    def __init__(self, X: Any, labels: Labels, k: int, rng: np.random.RandomState, dtype: Any) -> None:
        self._rng, self._rows, self._cells = rng, _as_rows(X, dtype), _as_cells(labels)
        self.features = _random_factors(X.shape[1], k, rng, dtype)
        self.labels = _random_factors(labels.shape[1] + 1, k, rng, dtype)
        self._sampler = warp.make_sampler(rng.randint(LARGEST_SEED), labels.shape[1] + 1, dtype)

    def epoch(self, step: float, alpha: float) -> float:
        """Go once through the rows and return the loss met, a mean over them."""
        n = len(self._rows.indptr) - 1
        order, cells = self._rng.permutation(n), self._cells
        return warp.epoch(order, self._rows, cells, self.features, self.labels, self._sampler, step, alpha) / n

    def state(self) -> dict[str, Any]:
        """Return a copy of all that epochs change."""
        return {"moving": [part.copy() for part in self._moving()], "generator": self._rng.get_state(legacy=False)}

    def go_on(self, state: dict[str, Any]) -> None:
        """Go on from the state that a run was in."""
        for part, value in zip(self._moving(), state["moving"], strict=True):
            part[...] = value
        self._rng.set_state(state["generator"])

    def _moving(self) -> list[NDArray]:
        sampler = self._sampler
        return [*self.features, *self.labels, sampler.state, sampler.scores, sampler.fresh]


class WSABIE(MultiLabelEstimator):
    """Rows and labels in one space of k dimensions, where a row's labels are nearer than all others.

    s_ij = ⟨Wᵀ x_i, h_j⟩ is learned by the WARP loss (Weston, Bengio and Usunier 2011),

        Σ over rows i and their positives j of  Φ(rank_ij) · max(0, 1 − s_ij + s_iv),     Φ(r) = 1 + 1/2 + … + 1/r,

    where v is drawn among the known negatives of the row until one violates the margin of 1; of N negatives, after t
    draws, rank_ij is taken as ⌊N / t⌋. An unknown cell is neither a positive nor a negative. A ranking has no natural
    threshold, so one more label, the bar, is learned with the others: it ranks below every positive and above every
    negative of every row (Fürnkranz, Hüllermeier, Loza Mencía and Brinker 2008). Decisions are scores less that of
    the bar: ``label_factors_`` hold h_j − h_bar, which leaves the ranking as it is.

    An epoch goes once through the rows in random order, on one thread: a seed decides the result, whatever ``n_jobs``
    is. Steps are AdaGrad's with one length for each vector, and fall linearly to 0 over ``max_iter`` epochs.

    Parameters
    ----------
    n_components : int, optional
        The dimension k; by default 100, or min(features, labels + 1) where that is smaller.
    alpha : float, default=0.01
        Weight decay: each step of length η divides the vector that it moves by 1 + η α.
    learning_rate : float, default=0.05
        The length of the first steps.
    predict_by : {"inner", "neighbors"}, default="inner"
        Score labels by s_ij, or let the nearest training rows in the space vote, as in :class:`~labelgap.LabelKNN`.
    n_neighbors : int, default=10
        How many of them vote.
    fit_intercept : bool, default=True
        Append a constant 1 to the features, decayed like the rest.
    max_iter : int, default=20
        The number of epochs.
    tol : float, default=1e-4
        Stop once the loss that an epoch meets is below this share of what the first one met.
    validation_share : float, default=0.0
        The share of the rows to hold out: precision at 1 on them is taken after each epoch, and the best factors are
        kept. 0 learns from all rows to the end.
    patience : int, default=5
        With rows held out, stop after so many epochs without a better one.
    absent, random_state, n_jobs, dtype, verbose
        As in :class:`~labelgap.LEML`; the seed also draws rows and negatives.
    device : str, default="auto"
        Deprecated; has no effect.

    Attributes
    ----------
    feature_factors_ : ndarray of shape (d, k)
        W.
    intercept_factors_ : ndarray of shape (k,)
        The row of W that belongs to the constant feature, 0 without one.
    label_factors_ : ndarray of shape (L, k)
        h_j − h_bar; 0 for a label without a known cell.
    objective_ : list of float
        The loss that each epoch met, a mean over the rows.
    validation_scores_ : list of float
        Precision at 1 on the rows held out after each epoch; empty without.
    n_iter_ : int
        The number of epochs that made the factors.
    status_ : str
        "max_iter", "converged" (by ``tol``) or "stopped" (by the rows held out).
    neighbors_ : dict or None
        The training rows as they vote, where they do.

    Examples
    --------
    >>> import numpy as np
    >>> from labelgap import WSABIE
    >>> X = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    >>> Y = np.array([[1, 0, np.nan], [1, 0, 1], [0, 1, 0], [0, np.nan, 0]])
    >>> WSABIE(2, max_iter=100, random_state=0).fit(X, Y).predict([[1.0, 0.05]])
    array([[1., 0., 1.]])
    """

    about = About(
        "Rows and labels in one space, learned by a ranking loss on sampled labels.",
        "Weston, Bengio and Usunier 2011",
        missing_labels=True,
        fit="(z + y L) k an epoch",
        predict="(z/n + L) k",
    )

    feature_factors_: NDArray
    intercept_factors_: NDArray
    label_factors_: NDArray
    threshold_: float
    objective_: list[float]
    validation_scores_: list[float]
    n_iter_: int
    status_: str
    neighbors_: Packed | None
    _voter: LabelKNN

    def __init__(
        self,
        n_components: int | None = None,
        *,
        alpha: float = 0.01,
        learning_rate: float = 0.05,
        predict_by: Literal["inner", "neighbors"] = "inner",
        n_neighbors: int = 10,
        fit_intercept: bool = True,
        max_iter: int = 20,
        tol: float = 1e-4,
        validation_share: float = 0.0,
        patience: int = 5,
        absent: Literal["negative", "unknown"] = "negative",
        random_state: Any = None,
        n_jobs: int | None = None,
        device: str = "auto",
        dtype: Any = "float32",
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.alpha = alpha
        self.learning_rate = learning_rate
        self.predict_by = predict_by
        self.n_neighbors = n_neighbors
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.validation_share = validation_share
        self.patience = patience
        self.absent = absent
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device
        self.dtype = dtype
        self.verbose = verbose

    def _check_parameters(self) -> None:
        self._check_common()
        check_number("n_components", self.n_components, Integral, least=1, optional=True)
        for name in ("alpha", "learning_rate", "tol"):
            check_number(name, getattr(self, name), Real, least=0)
        check_choice("predict_by", self.predict_by, ("inner", "neighbors"))
        for name in ("n_neighbors", "max_iter", "patience"):
            check_number(name, getattr(self, name), Integral, least=1)
        check_number("verbose", self.verbose, Integral, least=0)
        if not isinstance(self.validation_share, Real) or not 0 <= self.validation_share < 1:
            raise ValueError(
                f"validation_share={self.validation_share!r} is out of range; pass the share of the rows to hold "
                "out, at least 0 and below 1."
            )

    def _learn(self, X: Any, labels: Labels) -> None:
        rng, dtype = check_random_state(self.random_state), np.dtype(self.dtype).type
        held, learned = np.split(rng.permutation(len(labels)), [int(self.validation_share * len(labels))])
        learned.sort()
        k = self.n_components or min(DEFAULT_COMPONENTS, X.shape[1], labels.shape[1] + 1)
        training = Training(self._with_constant(X[learned]), labels[learned], k, rng, dtype)
        self.neighbors_, self.threshold_ = None, 0.0
        self._train(training, X[held], labels[held])
        self.label_factors_[_unseen(labels)] = 0
        if self.predict_by == "neighbors":
            self._let_neighbors_vote(X, labels)

    def _with_constant(self, X: Any) -> sp.csr_array:
        ones = [np.ones((X.shape[0], 1), X.dtype)] if self.fit_intercept else []
        return canonical(sp.hstack([sp.csr_array(X), *ones], format="csr"))

    def _train(self, training: Training, X: Any, labels: Labels) -> None:
        """Run epochs; keep the last factors, or those that are best on the rows held out."""
        self.objective_, self.validation_scores_, self.status_ = [], [], "max_iter"
        piece = slot(type(self).__name__)
        kept = piece.recall()
        if kept is not None:
            before = from_arrays(kept)
            training.go_on(before["training"])
            self.__dict__.update(before["found"])
        with progress(self.max_iter, type(self).__name__, self.verbose, len(self.objective_)) as advance:
            while not self._has_ended() and len(self.objective_) < self.max_iter:
                self.objective_.append(self._epoch(training, 1 - len(self.objective_) / self.max_iter))
                advance(f"loss = {self.objective_[-1]:.6g}")
                self._keep_if_best(training, X, labels)
                if piece.active:
                    found = {name: getattr(self, name) for name in FOUND}
                    piece.keep(to_arrays({"training": training.state(), "found": found}))

    def _epoch(self, training: Training, share: float) -> float:
        with np.errstate(over="ignore", invalid="ignore"):
            loss = training.epoch(self.learning_rate * share, self.alpha)
        if not np.isfinite(loss):
            raise ValueError(
                f"The numbers in X are too large for dtype={self.dtype!r}, or learning_rate={self.learning_rate} is; "
                "scale the features (sklearn.preprocessing has Normalizer and StandardScaler), pass dtype='float64', "
                "or lower learning_rate."
            )
        return loss

    def _keep_if_best(self, training: Training, X: Any, labels: Labels) -> None:
        """Store the factors of the last epoch, and measure them where rows are held out; worse ones are dropped."""
        before = {name: value for name, value in vars(self).items() if name.endswith("factors_")}
        H = training.labels.vectors
        W = training.features.vectors.copy()
        self.feature_factors_, self.intercept_factors_ = split_factors(W, self.fit_intercept)
        self.label_factors_ = H[:-1] - H[-1]
        if not len(labels):
            self.n_iter_ = len(self.objective_)
            return
        score = float(np.nan_to_num(self.score(X, labels)))  # 0 where no row held out has a positive
        if score > max(self.validation_scores_, default=-1.0):
            self.n_iter_ = len(self.objective_)
        else:
            self.__dict__.update(before)
        self.validation_scores_.append(score)

    def _has_ended(self) -> bool:
        if not self.objective_:
            return False
        if self.objective_[-1] <= self.tol * self.objective_[0]:
            self.status_ = "converged"
        elif len(self.objective_) - self.n_iter_ >= self.patience:
            self.status_ = "stopped"
        return self.status_ != "max_iter"

    def _let_neighbors_vote(self, X: Any, labels: Labels) -> None:
        voter = LabelKNN(self.n_neighbors, dtype=self.dtype, random_state=0).fit(self._embed(X), labels)
        self.neighbors_, self.threshold_ = pack(voter), THRESHOLD
        self._voter = voter

    def _embed(self, X: Any) -> NDArray:
        """Return the factors of validated rows."""
        return embed_rows(X, self.feature_factors_, self.intercept_factors_, self._kernels(), self.dtype)

    def _scores(self, X: Any) -> Scores:
        B = self._embed(X)
        if self.neighbors_ is None:
            return FactorScores(B, self.label_factors_, self.threshold_, self._kernels())
        return self._voter._scores(B)

    def _check_loaded(self) -> None:
        k, shapes = len(self.intercept_factors_), (self.feature_factors_.shape, self.label_factors_.shape)
        if shapes != ((self.n_features_in_, k), (self.n_labels_, k)):
            raise ValueError(f"factors of shapes {shapes} for {self.n_labels_} labels and {k} dimensions")
        if self.neighbors_ is not None:
            self._voter = unpack(self, self.neighbors_)


def _random_factors(n: int, k: int, rng: np.random.RandomState, dtype: Any) -> warp.Factors:
    return warp.Factors((rng.standard_normal((n, k)) / np.sqrt(k)).astype(dtype), np.full(n, FIRST_SQUARE))


def _as_rows(X: sp.csr_array, dtype: Any) -> warp.Rows:
    return warp.Rows(X.indptr, X.indices, X.data.astype(dtype, copy=False))


def _as_cells(labels: Labels) -> warp.Cells:
    """Return the cells as the loops take them; nothing is listed where every cell is known."""
    positives, known = labels.positives, labels.known
    if known is None:
        none = np.zeros(len(labels) + 1, positives.indptr.dtype)
        return warp.Cells(positives.indptr, positives.indices, none, positives.indices[:0], True)
    return warp.Cells(positives.indptr, positives.indices, known.indptr, known.indices, False)


def _unseen(labels: Labels) -> NDArray[np.bool_]:
    """Tell which labels have no known cell."""
    if labels.known is None:
        return np.zeros(labels.shape[1], bool)
    return np.bincount(labels.known.indices, minlength=labels.shape[1]) == 0
