"""Compressed sensing: codes are random projections of the labels, and sparse recovery decodes predicted codes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
import scipy.linalg
from numpy.typing import DTypeLike, NDArray
from sklearn.utils import check_random_state

from labelgap.baselines import sparse_recovery
from labelgap.baselines.label_reductions import (
    SCORE_THRESHOLD,
    CodeRegression,
    LabelMatrix,
    RegressionResult,
    check_code_factors,
    check_reduction,
    compute_code_error,
    resolve_n_codes,
)
from labelgap.estimators.base import About, MultiLabelEstimator, Outcome
from labelgap.estimators.low_rank import embed_rows
from labelgap.estimators.parameters import check_choice, check_number
from labelgap.estimators.scores import BlockScores, split_rows
from labelgap.objectives.features import explain_overflow
from labelgap.observations import Labels
from labelgap.observations.arguments import RandomSeed
from labelgap.runtime import map_ranges, progress, row_bounds

LABELS_PER_MEAN_ROW = 4  # the default of n_nonzero, as a multiple of the mean number of positives
ROWS_PER_TASK = 64


class ProjectedLabels(MultiLabelEstimator):
    """Base class of estimators whose codes are A y, with A a random k×L matrix and y the labels of a row.

    A subclass recovers the labels from predicted codes.
    """

    n_components: int | None
    alpha: float
    projection: str
    max_iter: int
    tol: float
    feature_factors_: NDArray
    intercept_factors_: NDArray
    projection_: NDArray
    objective_: list[float]
    status_: str

    @abstractmethod
    def _make_decoder(self) -> Callable[[NDArray], NDArray]:
        """Return a function from codes (m×k) to label vectors (m×L)."""

    def _check_projection(self) -> None:
        self._check_common()
        check_reduction(self.n_components, self.alpha)
        check_choice("projection", self.projection, tuple(PROJECTIONS))
        check_number("max_iter", self.max_iter, Integral, least=1)
        check_number("tol", self.tol, Real, least=0)

    def _encode(self, labels: Labels, rng: np.random.RandomState) -> NDArray:
        """Draw A, and return the codes Y Aᵀ of the positives."""
        dtype, k = np.dtype(self.dtype).type, resolve_n_codes(self.n_components, labels.shape[1])
        self.projection_ = draw_projection(self.projection, labels, k, rng).astype(dtype)
        return LabelMatrix(labels, self._kernels(), dtype, centred=False).times(self.projection_.T)

    def _scores(self, X: Any) -> BlockScores:
        return BlockScores(lambda: self._compute_blocks(X), self._kernels())

    def _compute_blocks(self, X: Any) -> Iterator[NDArray]:
        decode, kernels = self._make_decoder(), self._kernels()
        for rows in split_rows(X, self.n_labels_, arrays=2):
            codes = embed_rows(rows, self.feature_factors_, self.intercept_factors_, kernels, self.dtype)
            yield decode(codes) - self.projection_.dtype.type(SCORE_THRESHOLD)

    def _check_loaded(self) -> None:
        k = check_code_factors(self.feature_factors_, self.intercept_factors_, self.n_features_in_)
        if self.projection_.shape != (k, self.n_labels_):
            raise ValueError(f"a projection of shape {self.projection_.shape} for {self.n_labels_} labels")


class CompressedSensing(ProjectedLabels):
    """Random projections of the labels, and sparse recovery (Hsu, Kakade, Langford and Zhang 2009).

    The codes of a row are A y, where A is a random k×L matrix and y its labels; ridge regression predicts them as z.
    The decision values are the sparse y with A y near z, minus ½: a label that is not recovered has −½.

    Parameters
    ----------
    projection : {"orthogonal", "gaussian", "sign", "hadamard"}, default="orthogonal"
        A: orthogonal rows in random directions, independent normal numbers or signs, or random rows and columns of a
        Hadamard matrix.
    recovery : {"omp", "cosamp", "lasso"}, default="omp"
        Orthogonal matching pursuit; compressive sampling matching pursuit; or the minimum of
        ½ ‖z − A y‖² + l1 ‖y‖₁.
    n_nonzero : int, optional
        Maximum number of labels that a pursuit recovers; at most k. Default: four times the mean number of positives
        of a row.
    l1 : float, default=0.1
        The penalty of the lasso; the columns of A have lengths of about 1.
    max_iter : int, default=100
        Maximum number of rounds of CoSaMP, or of sweeps of the lasso.
    tol : float, default=1e-4
        The lasso stops when no step of a sweep exceeds this share of its first correlation.
    random_state : int, RandomState or None
        Seed of A.
    n_components, alpha, fit_intercept, absent, n_jobs, device, dtype
        As in :class:`~labelgap.PLST`.

    Attributes
    ----------
    projection_ : ndarray of shape (k, L)
        A; 0 for labels without a positive.
    n_nonzero_ : int
        Maximum number of labels that a pursuit recovers.
    feature_factors_, intercept_factors_, status_
        As in :class:`~labelgap.PLST`.
    objective_ : list of one float
        ½ ‖Y Aᵀ − [X, 1] W‖² + (α/2) ‖W‖² on the training rows.

    Examples
    --------
    >>> import numpy as np
    >>> from labelgap import CompressedSensing
    >>> Y = np.kron(np.eye(4, dtype=int), np.ones((5, 1), int))
    >>> model = CompressedSensing(n_components=3, alpha=0.1, random_state=0).fit(Y, Y)
    >>> model.predict(np.eye(4))
    array([[1, 0, 0, 0],
           [0, 1, 0, 0],
           [0, 0, 1, 0],
           [0, 0, 0, 1]])
    """

    about = About(
        "Ridge regression of random projections of the labels; a few labels are recovered for each row.",
        "Hsu, Kakade, Langford and Zhang 2009",
        fit="z d + d³ + (d² + y) k",
        predict="(z/n + L) k + L s², s labels recovered",
    )

    n_nonzero_: int

    def __init__(
        self,
        n_components: int | None = None,
        *,
        alpha: float = 1.0,
        projection: Literal["orthogonal", "gaussian", "sign", "hadamard"] = "orthogonal",
        recovery: Literal["omp", "cosamp", "lasso"] = "omp",
        n_nonzero: int | None = None,
        l1: float = 0.1,
        max_iter: int = 100,
        tol: float = 1e-4,
        fit_intercept: bool = True,
        absent: Literal["negative", "unknown"] = "negative",
        random_state: RandomSeed = None,
        n_jobs: int | None = None,
        device: str = "auto",
        dtype: DTypeLike = "float32",
    ) -> None:
        self.n_components = n_components
        self.alpha = alpha
        self.projection = projection
        self.recovery = recovery
        self.n_nonzero = n_nonzero
        self.l1 = l1
        self.max_iter = max_iter
        self.tol = tol
        self.fit_intercept = fit_intercept
        self.absent = absent
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device
        self.dtype = dtype

    def _check_parameters(self) -> None:
        self._check_projection()
        check_choice("recovery", self.recovery, ("omp", "cosamp", "lasso"))
        check_number("n_nonzero", self.n_nonzero, Integral, least=1, optional=True)
        check_number("l1", self.l1, Real, least=0)

    def _learn(self, X: Any, labels: Labels) -> Outcome:
        rng, kernels = check_random_state(self.random_state), self._kernels()
        with explain_overflow(self.dtype):
            regression = CodeRegression(X, self.alpha, constant=self.fit_intercept, kernels=kernels, dtype=self.dtype)
            codes = self._encode(labels, rng)
            result = regression.fit(codes)
            self.objective_ = [compute_code_error(codes, result.fitted) + result.penalty]
        n_nonzero = self.n_nonzero
        if n_nonzero is None:
            n_nonzero = int(np.ceil(LABELS_PER_MEAN_ROW * labels.positives.nnz / len(labels)))
        self.n_nonzero_ = max(1, min(len(self.projection_), n_nonzero))
        self.feature_factors_, self.intercept_factors_ = result.features, result.intercept
        self.status_ = result.status
        return regression.get_outcome(type(self).__name__, result)

    def _make_decoder(self) -> Callable[[NDArray], NDArray]:
        A, kernels = self.projection_, self._kernels()
        gram = A.T.astype(float) @ A.astype(float)
        recover, settings = {
            "omp": (sparse_recovery.omp, (self.n_nonzero_,)),
            "cosamp": (sparse_recovery.cosamp, (self.n_nonzero_, len(A), self.max_iter)),
            "lasso": (sparse_recovery.lasso, (float(self.l1), self.max_iter, float(self.tol))),
        }[self.recovery]

        def decode(codes: NDArray) -> NDArray:
            products = kernels.matmul(codes, A).astype(float)
            recovered = np.zeros(products.shape, A.dtype)
            bounds = row_bounds(len(recovered), 1, ROWS_PER_TASK)
            map_ranges(lambda start, stop: recover(gram, products, *settings, recovered, start, stop), bounds)
            return recovered

        return decode

    def _check_loaded(self) -> None:
        super()._check_loaded()
        if not 1 <= self.n_nonzero_ <= len(self.projection_):
            raise ValueError(f"{self.n_nonzero_} labels to recover from {len(self.projection_)} codes")


class BayesianCS(ProjectedLabels):
    """Bayesian compressed sensing for multi-label learning (Kapoor, Viswanathan and Jain 2012), for small label sets.

    The codes A y_i of a row, with A a random k×L matrix, are N(Wᵀx_i, s² I). The entries of W are independent normal
    with variance s²/α, and the labels are y_ij ~ N(0, 1/a_ij), a_ij ~ Gamma, so that most are near 0. The paper's z_i
    between codes and features is integrated out. Known labels are evidence; unknown labels are inferred. The fit
    alternates between the posterior of W, whose mean is a ridge regression of the expected codes, and the posterior
    of the unknown labels and their precisions; each step lowers the free energy. The score of a label is its
    posterior mean given Wᵀx.

    Parameters
    ----------
    noise : float, optional
        s² > 0. Default: the mean squared residual of a first regression, of the codes of the known labels alone.
    n_updates : int, default=10
        The number of updates of the posterior of a new row's labels. A training row with gaps has one update per
        round.
    max_iter : int, default=20
        Maximum number of rounds of a fit with gaps.
    tol : float, default=1e-3
        Stop when a round lowers the free energy by less than this for each code.
    n_components, alpha, projection, fit_intercept, absent, random_state, n_jobs, device, dtype
        As in :class:`~labelgap.CompressedSensing`.
    verbose
        As in :class:`~labelgap.LEML`.

    Attributes
    ----------
    projection_, feature_factors_, intercept_factors_, status_
        As in :class:`~labelgap.CompressedSensing`.
    prior_ : ndarray of shape (L,)
        The share of positives among the known cells of each label: the initial variance of its prior.
    noise_ : float
        s².
    objective_ : list of float
        The free energy after each round, up to a constant. If all labels are known, it is
        (½ ‖Y Aᵀ − [X, 1] W‖² + (α/2) ‖W‖²) / s².
    n_iter_ : int
        The number of rounds.

    Examples
    --------
    The second label of the last row is unknown; it occurs together with the first:

    >>> import numpy as np
    >>> from labelgap import BayesianCS
    >>> X = np.repeat(np.eye(2), 5, axis=0)
    >>> Y = np.repeat([[0.0, 0.0, 1.0], [1.0, 1.0, 0.0]], 5, axis=0)
    >>> Y[-1, 1] = np.nan
    >>> BayesianCS(alpha=0.1, random_state=0).fit(X, Y).predict(X[-1:])
    array([[1., 1., 0.]])
    """

    about = About(
        "Random projections and sparse recovery of the labels in one probabilistic model; for small sets.",
        "Kapoor, Viswanathan and Jain 2012",
        missing_labels=True,
        fit="z d + d³ + n (L + k) k² a round with gaps",
        predict="(L + k) k²",
    )

    prior_: NDArray
    noise_: float
    n_iter_: int

    def __init__(
        self,
        n_components: int | None = None,
        *,
        alpha: float = 1.0,
        noise: float | None = None,
        projection: Literal["orthogonal", "gaussian", "sign", "hadamard"] = "orthogonal",
        n_updates: int = 10,
        max_iter: int = 20,
        tol: float = 1e-3,
        fit_intercept: bool = True,
        absent: Literal["negative", "unknown"] = "negative",
        random_state: RandomSeed = None,
        n_jobs: int | None = None,
        device: str = "auto",
        dtype: DTypeLike = "float32",
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.alpha = alpha
        self.noise = noise
        self.projection = projection
        self.n_updates = n_updates
        self.max_iter = max_iter
        self.tol = tol
        self.fit_intercept = fit_intercept
        self.absent = absent
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device
        self.dtype = dtype
        self.verbose = verbose

    def _check_parameters(self) -> None:
        self._check_projection()
        check_number("noise", self.noise, Real, least=np.finfo(float).tiny, optional=True)
        check_number("n_updates", self.n_updates, Integral, least=1)
        check_number("verbose", self.verbose, Integral, least=0)

    def _learn(self, X: Any, labels: Labels) -> Outcome:
        rng, kernels = check_random_state(self.random_state), self._kernels()
        with explain_overflow(self.dtype):
            regression = CodeRegression(X, self.alpha, constant=self.fit_intercept, kernels=kernels, dtype=self.dtype)
            known_codes, self.prior_ = self._encode(labels, rng), labels.rates
            result = regression.fit(known_codes)
            self.noise_ = self._estimate_noise(known_codes, result.fitted)
            history, ended = [self._compute_energy(known_codes, result)], True
            if not labels.complete:
                result, history, ended = self._alternate(regression, labels, known_codes, result)
        self.feature_factors_, self.intercept_factors_ = result.features, result.intercept
        self.objective_, self.n_iter_ = history, len(history)
        self.status_ = result.status if ended else "max_iter"
        if self.status_ == "converged":
            return Outcome()
        return Outcome(
            f"BayesianCS stopped after max_iter={self.max_iter} rounds while the free energy still fell by more "
            f"than tol={self.tol:g} a code, or its least squares did not converge; raise max_iter, tol or alpha."
        )

    def _estimate_noise(self, codes: NDArray, fitted: NDArray) -> float:
        if self.noise is not None:
            return float(self.noise)
        # At least the size of rounding errors, in case the regression is perfect.
        least = np.finfo(self.projection_.dtype).eps * max(float((codes**2).mean()), np.finfo(np.float32).tiny)
        return max(float(((codes - fitted) ** 2).mean(dtype=float)), least)

    def _alternate(
        self, regression: CodeRegression, labels: Labels, known_codes: NDArray, result: RegressionResult
    ) -> tuple[RegressionResult, list[float], bool]:
        """Alternate between inferring the unknown labels and regressing the completed codes.

        ``known_codes`` are the codes of the known labels alone. Returns the last regression, the free energy after
        each round, and whether ``tol`` ended the rounds.
        """
        assert labels.known is not None
        A, variance = self.projection_.astype(float), np.where(labels.known.toarray(), 0, self.prior_)
        history: list[float] = []
        with progress(self.max_iter, type(self).__name__, self.verbose) as advance:
            for _ in range(self.max_iter):
                residuals = (result.fitted - known_codes).astype(float)
                posterior = sparse_recovery.infer_posterior(A, residuals, variance, self.noise_)
                variance = posterior.variance
                codes = known_codes + (posterior.mean @ A.T).astype(known_codes.dtype)
                result = regression.fit(codes)
                history.append(self._compute_energy(codes, result) + float(posterior.energy.sum()))
                advance(f"free energy {history[-1]:.6g}")
                if len(history) > 1 and history[-2] - history[-1] <= self.tol * codes.size:
                    return result, history, True
        return result, history, False

    def _compute_energy(self, codes: NDArray, result: RegressionResult) -> float:
        """Return the terms of the free energy that depend on W."""
        return (compute_code_error(codes, result.fitted) + result.penalty) / self.noise_

    def _make_decoder(self) -> Callable[[NDArray], NDArray]:
        A, dtype = self.projection_.astype(float), self.projection_.dtype

        def decode(codes: NDArray) -> NDArray:
            codes = codes.astype(float)
            posterior = sparse_recovery.infer_posterior(A, codes, self.prior_, self.noise_, self.n_updates)
            return posterior.mean.astype(dtype)

        return decode

    def _check_loaded(self) -> None:
        super()._check_loaded()
        if np.shape(self.prior_) != (self.n_labels_,):
            raise ValueError(f"a prior of shape {np.shape(self.prior_)} for {self.n_labels_} labels")


# --- random projections ---------------------------------------------------------------------------------------------


def draw_projection(kind: str, labels: Labels, k: int, rng: np.random.RandomState) -> NDArray[np.float64]:
    """Return A (k×L), random for labels with a positive and 0 in the columns of the others.

    Labels without a positive cannot be learned, and recovery would confuse other labels with them. k is at most the
    number of labels with a positive. A column has length 1, on average or exactly.

    >>> labels = Labels(np.array([[1, 0, 1], [1, 0, 0]]))
    >>> A = draw_projection("orthogonal", labels, 3, np.random.RandomState(0))
    >>> A.shape, (A.T @ A).round(6) + 0
    ((2, 3), array([[1., 0., 0.],
           [0., 0., 0.],
           [0., 0., 1.]]))
    """
    occurring = np.unique(labels.positives.indices)
    A = np.zeros((max(1, min(k, len(occurring))), labels.shape[1]))
    if len(occurring):
        A[:, occurring] = PROJECTIONS[kind](len(A), len(occurring), rng)
    return A


def _draw_gaussian(k: int, n: int, rng: np.random.RandomState) -> NDArray[np.float64]:
    return rng.standard_normal((k, n)) / np.sqrt(k)


def _draw_signs(k: int, n: int, rng: np.random.RandomState) -> NDArray[np.float64]:
    return rng.choice([-1.0, 1.0], (k, n)) / np.sqrt(k)


def _draw_hadamard(k: int, n: int, rng: np.random.RandomState) -> NDArray[np.float64]:
    """Draw k rows and n columns of the smallest Hadamard matrix that is large enough."""
    order = 1 << (n - 1).bit_length()
    rows, columns = rng.permutation(order)[:k], rng.permutation(order)[:n]
    return scipy.linalg.hadamard(order)[np.ix_(rows, columns)] / np.sqrt(k)


def _draw_orthogonal(k: int, n: int, rng: np.random.RandomState) -> NDArray[np.float64]:
    """Draw orthogonal rows in random directions; with k = n they lose nothing."""
    return scipy.linalg.qr(rng.standard_normal((n, k)), mode="economic")[0].T * np.sqrt(n / k)


PROJECTIONS: dict[str, Callable[[int, int, np.random.RandomState], NDArray[np.float64]]] = {
    "orthogonal": _draw_orthogonal,
    "gaussian": _draw_gaussian,
    "sign": _draw_signs,
    "hadamard": _draw_hadamard,
}
