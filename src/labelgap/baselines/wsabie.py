"""WSABIE: rows and labels in one space, learned by a ranking loss on sampled labels (WARP)."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray
from sklearn.utils import check_random_state

from labelgap.baselines.forest import SEED_LIMIT, SparseRows, draw_bits
from labelgap.checkpoints import pack_values, slot, unpack_values
from labelgap.datasets.records import to_canonical_csr
from labelgap.estimators.base import About, MultiLabelEstimator, PackedModel, pack_model
from labelgap.estimators.low_rank import embed_rows, split_factors
from labelgap.estimators.model_files import unpack_model
from labelgap.estimators.parameters import check_choice, check_number
from labelgap.estimators.scores import FactorScores, Scores
from labelgap.estimators.voting import THRESHOLD, LabelKNN
from labelgap.kernels.loops import FAST, compiled
from labelgap.observations import Labels
from labelgap.observations.arguments import RandomSeed
from labelgap.runtime import compile_loops, progress

DEFAULT_COMPONENTS = 100
INITIAL_SQUARE = 1e-8  # the initial sum of squared gradients of a vector
STATE = ("objective_", "validation_scores_", "n_iter_", "feature_factors_", "intercept_factors_", "label_factors_")

# The bodies are so short that a call would take as long.
inlined: Any = compile_loops(fastmath=FAST, error_model="numpy", forceinline=True)


class WSABIE(MultiLabelEstimator):
    """Embedding of rows and labels in one space of k dimensions, in which the labels of a row rank first.

    s_ij = ⟨Wᵀ x_i, h_j⟩ is learned by the WARP loss (Weston, Bengio and Usunier 2011),

        Σ over rows i and their positives j of  Φ(rank_ij) · max(0, 1 − s_ij + s_iv),     Φ(r) = 1 + 1/2 + … + 1/r,

    where v is drawn from the known negatives of the row until one violates the margin of 1. After t draws from N
    negatives, rank_ij is estimated as ⌊N / t⌋. An unknown cell is neither a positive nor a negative. A ranking has no
    natural threshold, so one more label, the bar, is learned with the others: it ranks below every positive and above
    every negative of every row (Fürnkranz, Hüllermeier, Loza Mencía and Brinker 2008). Decision values are scores
    minus the score of the bar: ``label_factors_`` has h_j − h_bar, which gives the same ranking.

    An epoch visits the rows once in random order, on one thread: the seed decides the result, whatever ``n_jobs`` is.
    Steps are AdaGrad's with one length per vector, and decrease linearly to 0 over ``max_iter`` epochs.

    Parameters
    ----------
    n_components : int, optional
        The dimension k. Default: 100, or min(features, labels + 1) if that is less.
    alpha : float, default=0.01
        Weight decay: each step of length η divides the vector by 1 + η α.
    learning_rate : float, default=0.05
        The length of the first steps.
    predict_by : {"inner", "neighbors"}, default="inner"
        Score labels by s_ij, or by a vote of the nearest training rows in the space, as in
        :class:`~labelgap.LabelKNN`.
    n_neighbors : int, default=10
        The number of rows that vote.
    fit_intercept : bool, default=True
        Append a constant feature 1, with the same decay as the other features.
    max_iter : int, default=20
        Maximum number of epochs.
    tol : float, default=1e-4
        Stop when the loss of an epoch is below this share of the loss of the first.
    validation_share : float, default=0.0
        The share of the rows to hold out. After each epoch, precision at 1 is computed on them, and the best factors
        are returned. 0 learns from all rows and returns the last factors.
    patience : int, default=5
        With held-out rows, stop after this many epochs without improvement.
    absent, random_state, n_jobs, dtype, verbose
        As in :class:`~labelgap.LEML`. The seed also draws rows and negatives.
    device : str, default="auto"
        Deprecated; has no effect.

    Attributes
    ----------
    feature_factors_ : ndarray of shape (d, k)
        W.
    intercept_factors_ : ndarray of shape (k,)
        The row of W for the constant feature; 0 without an intercept.
    label_factors_ : ndarray of shape (L, k)
        h_j − h_bar; 0 for a label without a known cell.
    objective_ : list of float
        The loss of each epoch, a mean over the rows.
    validation_scores_ : list of float
        Precision at 1 on the held-out rows after each epoch; empty if no rows are held out.
    n_iter_ : int
        The number of epochs behind the factors.
    status_ : str
        "max_iter", "converged" (by ``tol``) or "stopped" (by ``patience``).
    neighbors_ : dict or None
        The fitted :class:`~labelgap.LabelKNN` for ``predict_by="neighbors"``.

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
    neighbors_: PackedModel | None
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
        random_state: RandomSeed = None,
        n_jobs: int | None = None,
        device: str = "auto",
        dtype: DTypeLike = "float32",
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
        held_out, train = np.split(rng.permutation(len(labels)), [int(self.validation_share * len(labels))])
        train.sort()
        k = self.n_components or min(DEFAULT_COMPONENTS, X.shape[1], labels.shape[1] + 1)
        ones = [np.ones((len(train), 1), X.dtype)] if self.fit_intercept else []
        rows = to_canonical_csr(sp.hstack([sp.csr_array(X[train]), *ones], format="csr"))
        self.neighbors_, self.threshold_ = None, 0.0
        self._train(Training(rows, labels[train], k, rng, dtype), X[held_out], labels[held_out])
        if labels.known is not None:
            n_known = np.bincount(labels.known.indices, minlength=labels.shape[1])
            self.label_factors_[n_known == 0] = 0
        if self.predict_by == "neighbors":
            self._voter = LabelKNN(self.n_neighbors, dtype=self.dtype, random_state=0).fit(self._embed(X), labels)
            self.neighbors_, self.threshold_ = pack_model(self._voter), THRESHOLD

    def _train(self, training: Training, X: Any, labels: Labels) -> None:
        """Run epochs; store the last factors, or those that are best on the held-out rows."""
        self.objective_, self.validation_scores_, self.status_ = [], [], "max_iter"
        checkpoint = slot(type(self).__name__)
        arrays = checkpoint.recall()
        if arrays is not None:
            state = unpack_values(arrays)
            training.set_state(state["training"])
            self.__dict__.update(state["found"])
        with progress(self.max_iter, type(self).__name__, self.verbose, len(self.objective_)) as advance:
            while not self._has_ended() and len(self.objective_) < self.max_iter:
                self.objective_.append(self._run_epoch(training, 1 - len(self.objective_) / self.max_iter))
                advance(f"loss = {self.objective_[-1]:.6g}")
                self._store_if_best(training, X, labels)
                if checkpoint.active:
                    attributes = {name: getattr(self, name) for name in STATE}
                    checkpoint.keep(pack_values({"training": training.get_state(), "found": attributes}))

    def _run_epoch(self, training: Training, share: float) -> float:
        with np.errstate(over="ignore", invalid="ignore"):
            loss = training.run_epoch(self.learning_rate * share, self.alpha)
        if not np.isfinite(loss):
            raise ValueError(
                f"The numbers in X are too large for dtype={self.dtype!r}, or learning_rate={self.learning_rate} is; "
                "scale the features (sklearn.preprocessing has Normalizer and StandardScaler), pass dtype='float64', "
                "or lower learning_rate."
            )
        return loss

    def _store_if_best(self, training: Training, X: Any, labels: Labels) -> None:
        """Store the factors of the last epoch, unless they are worse on the held-out rows."""
        before = {name: value for name, value in vars(self).items() if name.endswith("factors_")}
        H = training.labels.vectors
        W = training.features.vectors.copy()
        self.feature_factors_, self.intercept_factors_ = split_factors(W, self.fit_intercept)
        self.label_factors_ = H[:-1] - H[-1]
        if not len(labels):
            self.n_iter_ = len(self.objective_)
            return
        score = float(np.nan_to_num(self.score(X, labels)))  # 0 if no held-out row has a positive
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
            self._voter = unpack_model(self, self.neighbors_)


class Training:
    """Rows, labels and factors during the epochs; the last label vector is the bar."""

    def __init__(self, X: sp.csr_array, labels: Labels, k: int, rng: np.random.RandomState, dtype: Any) -> None:
        self._rng, self._cells = rng, to_label_cells(labels)
        self._rows = SparseRows(X.indptr, X.indices, X.data.astype(dtype, copy=False), X.shape[1])
        self.features = _draw_factors(X.shape[1], k, rng, dtype)
        self.labels = _draw_factors(labels.shape[1] + 1, k, rng, dtype)
        self._sampler = make_sampler(rng.randint(SEED_LIMIT), labels.shape[1] + 1, dtype)

    def run_epoch(self, step: float, alpha: float) -> float:
        """Visit each row once and return the mean loss."""
        n = len(self._rows.indptr) - 1
        order, cells = self._rng.permutation(n), self._cells
        return run_epoch(order, self._rows, cells, self.features, self.labels, self._sampler, step, alpha) / n

    def get_state(self) -> dict[str, Any]:
        """Return a copy of everything that epochs change."""
        return {"moving": [array.copy() for array in self._arrays()], "generator": self._rng.get_state(legacy=False)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from the state of an earlier run."""
        for array, value in zip(self._arrays(), state["moving"], strict=True):
            array[...] = value
        self._rng.set_state(state["generator"])

    def _arrays(self) -> list[NDArray]:
        sampler = self._sampler
        return [*self.features, *self.labels, sampler.state, sampler.scores, sampler.fresh]


# --- compiled loops: one thread, and a generator of their own, so that the seed alone decides the result ------------


class LabelCells(NamedTuple):
    """The positives of each row, ascending, and its known labels; ``known`` is empty if ``complete``."""

    starts: NDArray
    positives: NDArray
    known_starts: NDArray
    known: NDArray
    complete: bool


class AdaGradFactors(NamedTuple):
    """Vectors, one per row, and for each vector the sum of the mean squares of its gradients."""

    vectors: NDArray
    squares: NDArray


class NegativeSampler(NamedTuple):
    """The state of the generator; Φ(0), Φ(1), …; and computed scores, which are of row ``fresh[label]``."""

    state: NDArray
    weights: NDArray
    scores: NDArray
    fresh: NDArray


def to_label_cells(labels: Labels) -> LabelCells:
    """Return the cells as the loops take them."""
    positives, known = labels.positives, labels.known
    if known is None:
        starts = np.zeros(len(labels) + 1, positives.indptr.dtype)
        return LabelCells(positives.indptr, positives.indices, starts, positives.indices[:0], True)
    return LabelCells(positives.indptr, positives.indices, known.indptr, known.indices, False)


def _draw_factors(n: int, k: int, rng: np.random.RandomState, dtype: Any) -> AdaGradFactors:
    return AdaGradFactors((rng.standard_normal((n, k)) / np.sqrt(k)).astype(dtype), np.full(n, INITIAL_SQUARE))


def make_sampler(seed: int, n_labels: int, dtype: Any) -> NegativeSampler:
    """Return a sampler of this number of labels, with Φ(r) = 1 + 1/2 + … + 1/r.

    >>> make_sampler(0, 3, float).weights
    array([0.        , 1.        , 1.5       , 1.83333333])
    """
    weights = np.concatenate(([0.0], np.cumsum(1 / np.arange(1, n_labels + 1))))
    return NegativeSampler(np.array([seed], np.uint64), weights, np.zeros(n_labels, dtype), np.full(n_labels, -1))


@compiled
def run_epoch(order, rows, cells, features, labels, sampler, step, alpha):
    """Visit the rows in this order; return the sum of Φ(rank) · max(0, 1 − s_positive + s_violator).

    A row embeds as b = Σ x_f w_f. Its labels are updated one after the other, then its features once.
    """
    W = features.vectors
    b, gradient = np.empty(W.shape[1], W.dtype), np.empty(W.shape[1], W.dtype)
    total = 0.0
    sampler.fresh[:] = -1
    for i in order:
        b[:] = 0
        for p in range(rows.indptr[i], rows.indptr[i + 1]):
            w, x = W[rows.indices[p]], rows.data[p]
            for c in range(b.shape[0]):
                b[c] += x * w[c]
        loss = _update_labels(i, cells, b, labels, sampler, step, alpha, gradient)
        total += loss
        square = _mean_square(gradient)
        if square > 0:
            for p in range(rows.indptr[i], rows.indptr[i + 1]):
                _take_step(features, rows.indices[p], gradient, square, np.float64(rows.data[p]), step, alpha)
    return total


@compiled
def _update_labels(i, cells, b, labels, sampler, step, alpha, gradient):
    """Update the labels of row i; write the gradient in b and return the loss, NaN after an overflow."""
    H, bar = labels.vectors, labels.vectors.shape[0] - 1
    positives = cells.positives[cells.starts[i] : cells.starts[i + 1]]
    known = cells.known[cells.known_starts[i] : cells.known_starts[i + 1]]
    gradient[:] = 0
    loss, square = 0.0, _mean_square(b)
    if not square < np.inf:
        return np.nan
    for p in range(positives.shape[0] + 1):
        positive = positives[p] if p < positives.shape[0] else bar
        label, rank, excess = find_violator(sampler, i, b, H, positive, positives, known, cells.complete)
        if label < 0:
            continue
        weight = sampler.weights[rank]
        loss += weight * excess
        scale, high, low = H.dtype.type(weight), H[label], H[positive]
        for c in range(b.shape[0]):
            gradient[c] += scale * (high[c] - low[c])
        if square > 0:
            _take_step(labels, positive, b, square, -weight, step, alpha)
            _take_step(labels, label, b, square, weight, step, alpha)
        sampler.fresh[positive] = sampler.fresh[label] = -1
    return loss


@inlined
def find_violator(sampler, i, b, H, positive, positives, known, complete):
    """Return a negative that scores above the positive minus 1, its estimated rank, and by how much it does.

    The bar, the last row of H, is a negative of every positive, and every negative is one of the bar. The number of
    draws is at most that of the negatives; if none of them violates the margin, the label is −1.
    """
    bar = H.shape[0] - 1
    n_bars = 0 if positive == bar else 1
    n_negatives = (bar if complete else known.shape[0]) - positives.shape[0] + n_bars
    least = _compute_score(sampler, i, b, H, positive) - 1
    for trial in range(1, n_negatives + 1):
        label = _draw_negative(sampler.state, positives, known, complete, bar, n_bars)
        excess = _compute_score(sampler, i, b, H, label) - least
        if excess > 0:
            return label, n_negatives // trial, np.float64(excess)
    return -1, 0, 0.0


@inlined
def _draw_negative(state, positives, known, complete, bar, n_bars):
    """Draw a known label that is not a positive, or the bar if ``n_bars`` is 1, with equal probabilities."""
    n_known = bar if complete else known.shape[0]
    while True:
        # 32 random bits times n, divided by 2³²: an index from 0 to n − 1.
        index = np.int64((draw_bits(state) >> np.uint64(32)) * np.uint64(n_known + n_bars) >> np.uint64(32))
        label = bar if index == n_known else index if complete else known[index]
        if label == bar or not _contains(positives, label):
            return label


@inlined
def _contains(ascending, value):
    low, high = 0, ascending.shape[0]
    while low < high:
        middle = (low + high) // 2
        if ascending[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low < ascending.shape[0] and ascending[low] == value


@inlined
def _compute_score(sampler, i, b, H, label):
    """Return b · h, which is computed once per row and label until h changes."""
    if sampler.fresh[label] != i:
        h = H[label]
        total = b[0] * h[0]
        for c in range(1, b.shape[0]):
            total += b[c] * h[c]
        sampler.scores[label] = total
        sampler.fresh[label] = i
    return sampler.scores[label]


@inlined
def _mean_square(x):
    total = 0.0
    for c in range(x.shape[0]):
        total += np.float64(x[c]) * np.float64(x[c])
    return total / x.shape[0]


@inlined
def _take_step(factors, row, gradient, square, scale, step, alpha):
    """Take an AdaGrad step against scale · gradient, one length for the vector, then the prox of (α/2) ‖·‖².

    ``square`` is the mean square of the gradient, above 0.
    """
    vector = factors.vectors[row]
    factors.squares[row] += scale * scale * square
    length = step / np.sqrt(factors.squares[row])
    decay = vector.dtype.type(1 / (1 + length * alpha))
    share = vector.dtype.type(length * scale / (1 + length * alpha))
    for c in range(vector.shape[0]):
        vector[c] = decay * vector[c] - share * gradient[c]
