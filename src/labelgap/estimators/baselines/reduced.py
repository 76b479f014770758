"""Label-space reduction: labels become a few numbers a row, which are regressed on the features and decoded again."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from sklearn.utils import check_random_state, gen_batches

from labelgap.estimators.base import MultiLabelEstimator, Outcome
from labelgap.estimators.low_rank import embed_rows, split_factors
from labelgap.estimators.parameters import check_number
from labelgap.estimators.scores import FactorScores
from labelgap.kernels import Backend
from labelgap.objectives import Features
from labelgap.objectives.features import numbers_in_range
from labelgap.objectives.regression import NormalEquations
from labelgap.observations import Labels
from labelgap.runtime import wide_blas
from labelgap.solvers import leading_right_vectors

DEFAULT_COMPONENTS = 100
EIGEN_LIMIT = 6_000  # labels up to which all eigenvectors cost less than the many products that approach the first
COLUMNS_PER_BLOCK = 256
SUBSPACE_STEPS = 8
THRESHOLD = 0.5  # of scores for 0/1 targets


class LabelMatrix:
    """The 0/1 labels less a number for each label, Y − 1μᵀ (n×L), known by its products and never made."""

    def __init__(self, labels: Labels, kernels: Backend, dtype: Any, *, centred: bool) -> None:
        self.shape, self._kernels = labels.shape, kernels
        self._positives = kernels.prepare(labels.positives, dtype)
        self.shift = (labels.rates * centred).astype(dtype)

    def times(self, P: NDArray) -> NDArray:
        """(Y − 1μᵀ) P."""
        product: NDArray = self._kernels.spmm(self._positives, P)
        product -= self.shift @ P
        return product

    def t_times(self, B: NDArray) -> NDArray:
        """(Y − 1μᵀ)ᵀ B."""
        product: NDArray = self._kernels.spmm_t(self._positives, B)
        product -= np.outer(self.shift, B.sum(0, dtype=float)).astype(B.dtype)
        return product


def leading_eigenvectors(
    times: Callable[[NDArray], NDArray], size: int, k: int, rng: np.random.RandomState, dtype: Any
) -> NDArray:
    """Return the k leading eigenvectors (size×k) of a symmetric matrix G ≥ 0 that is known by P ↦ G P.

    All of them are found where G is small enough to make, some columns after the other; else by subspace iteration.

    >>> G = np.diag([1.0, 3.0, 2.0])
    >>> abs(leading_eigenvectors(G.dot, 3, 2, np.random.RandomState(0), float)).round(6)
    array([[0., 0.],
           [1., 0.],
           [0., 1.]])
    """
    if size > EIGEN_LIMIT:
        found = leading_right_vectors(times, times, size, k, random_state=rng, dtype=dtype, n_iter=SUBSPACE_STEPS)
        return found[1].astype(dtype, copy=False)
    columns = np.eye(size, dtype=dtype)
    blocks = [np.ascontiguousarray(columns[:, part]) for part in gen_batches(size, COLUMNS_PER_BLOCK)]
    G = np.hstack([times(block) for block in blocks]).astype(float)
    if not np.isfinite(G).all():
        raise FloatingPointError("the products of labels and features are not finite")
    with wide_blas():
        _, vectors = scipy.linalg.eigh((G + G.T) / 2, subset_by_index=(size - k, size - 1), check_finite=False)
    return np.ascontiguousarray(vectors[:, ::-1], dtype)


class Regression(NamedTuple):
    """W in its two parts, the codes that it gives the training rows, (α/2) ‖W‖², and whether it was found exactly."""

    features: NDArray
    intercept: NDArray
    fitted: NDArray
    penalty: float
    converged: bool

    @property
    def status(self) -> str:
        """Return "converged", or "max_iter" where an iterative solution did not."""
        return "converged" if self.converged else "max_iter"


class CodeRegression:
    """Ridge regression of codes T (n×k) on rows: W = argmin ½ ‖T − [X, 1] W‖² + (α/2) ‖W‖².

    All columns of W share one factorisation of XᵀX + αI, or of XXᵀ + αI where that is smaller.
    """

    def __init__(self, X: Any, alpha: float, *, constant: bool, kernels: Backend, dtype: Any) -> None:
        features = Features(X, kernels, np.dtype(dtype).type, constant=constant)
        if not np.isfinite(features.column_squares()).all():
            raise FloatingPointError("the squares of a feature have no finite sum")
        self.equations, self.alpha, self.constant = NormalEquations(features), float(alpha), constant

    def fit(self, codes: NDArray) -> Regression:
        """Return W for these codes."""
        W, converged = self.equations.solve(codes, 1.0, self.alpha)
        if not np.isfinite(W).all():
            raise FloatingPointError("the least squares have no finite solution")
        penalty = 0.5 * self.alpha * float((W**2).sum(dtype=float))
        fitted = self.equations.features.times(W)
        return Regression(*split_factors(W, self.constant), fitted, penalty, converged)

    def outcome(self, name: str, found: Regression) -> Outcome:
        """Return how a regression ended, for the estimator of that name."""
        if found.converged:
            return Outcome()
        return Outcome(
            f"{name} did not solve its least squares to the tolerance, since alpha={self.alpha:g} "
            "is small for these features; raise alpha, or scale the features."
        )


def half_squared_error(codes: NDArray, fitted: NDArray) -> float:
    """Return ½ ‖T − fitted‖²."""
    return 0.5 * float(((codes - fitted) ** 2).sum(dtype=float))


def check_reduction(n_components: Any, alpha: Any) -> None:
    """Raise ValueError for a number of codes or a penalty that is out of range."""
    check_number("n_components", n_components, Integral, least=1, optional=True)
    check_number("alpha", alpha, Real, least=0)


def number_of_codes(n_components: int | None, n_labels: int) -> int:
    """Return how many codes to make of labels: as many as were asked for, or up to 100.

    >>> number_of_codes(None, 300), number_of_codes(2, 300)
    (100, 2)
    """
    if n_components is None:
        return min(DEFAULT_COMPONENTS, n_labels)
    if n_components > n_labels:
        raise ValueError(
            f"n_components={n_components} is above the number of labels, {n_labels}: that would be no "
            f"reduction. Pass at most {n_labels}."
        )
    return n_components


def check_code_length(features: NDArray, intercept: NDArray, n_features: int) -> int:
    """Return the number of codes that factors from a file give; raise ValueError if they do not fit the features."""
    if features.shape != (n_features, len(intercept)):
        raise ValueError(f"factors of shape {features.shape} for {n_features} features")
    return len(intercept)


class Code(NamedTuple):
    """The codes T of the training rows (n×k), and the matrix that decodes them: Y is near T Hᵀ + 1μᵀ."""

    codes: NDArray
    H: NDArray
    shift: NDArray


class LinearReduction(MultiLabelEstimator):
    """Regresses codes and decodes them by a matrix: the scores are [X, 1] W Hᵀ + μᵀ, H L×k, and ½ is the threshold.

    ``label_factors_`` is [H, μ], L×(k+1), and ``objective_`` holds ½ ‖Y − scores‖² + (α/2) ‖W‖² of the training rows.
    A subclass encodes the labels.
    """

    feature_factors_: NDArray
    intercept_factors_: NDArray
    label_factors_: NDArray
    threshold_: float
    objective_: list[float]
    status_: str

    def __init__(
        self,
        n_components: int | None = None,
        *,
        alpha: float = 1.0,
        fit_intercept: bool = True,
        absent: Literal["negative", "unknown"] = "negative",
        random_state: Any = None,
        n_jobs: int | None = None,
        device: str = "auto",
        dtype: Any = "float32",
    ) -> None:
        self.n_components = n_components
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.absent = absent
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device
        self.dtype = dtype

    @abstractmethod
    def _encode(self, equations: NormalEquations, labels: Labels, rng: np.random.RandomState) -> Code:
        """Return the codes of the labels, and how they are decoded."""

    def _check_parameters(self) -> None:
        self._check_common()
        check_reduction(self.n_components, self.alpha)

    def _learn(self, X: Any, labels: Labels) -> Outcome:
        dtype, rng = np.dtype(self.dtype).type, check_random_state(self.random_state)
        with numbers_in_range(self.dtype):
            regression = CodeRegression(
                X, self.alpha, constant=self.fit_intercept, kernels=self._kernels(), dtype=dtype
            )
            code = self._encode(regression.equations, labels, rng)
            found = regression.fit(code.codes)
            self.label_factors_ = np.column_stack([code.H, code.shift]).astype(dtype)
            self.objective_ = [_error(labels, found.fitted, self.label_factors_) + found.penalty]
        self.feature_factors_, self.intercept_factors_ = found.features, found.intercept
        self.threshold_, self.status_ = THRESHOLD, found.status
        return regression.outcome(type(self).__name__, found)

    def _embed(self, X: Any) -> NDArray:
        """Return the factors of validated rows, their codes beside a constant 1."""
        codes = embed_rows(X, self.feature_factors_, self.intercept_factors_, self._kernels(), self.dtype)
        return _beside_ones(codes)

    def _scores(self, X: Any) -> FactorScores:
        return FactorScores(self._embed(X), self.label_factors_, self.threshold_, self._kernels())

    def _check_loaded(self) -> None:
        k = check_code_length(self.feature_factors_, self.intercept_factors_, self.n_features_in_)
        if self.label_factors_.shape != (self.n_labels_, k + 1):
            raise ValueError(f"label factors of shape {self.label_factors_.shape} for {self.n_labels_} labels")


def _error(labels: Labels, fitted: NDArray, label_factors: NDArray) -> float:
    """Return ½ ‖Y − scores‖² of rows with these codes; the scores are never made."""
    B, H = _beside_ones(fitted).astype(float), label_factors.astype(float)
    shared = float((B * (labels.positives @ H)).sum())
    return 0.5 * (labels.positives.nnz - 2 * shared + float(((B.T @ B) * (H.T @ H)).sum()))


def _beside_ones(B: NDArray) -> NDArray:
    return np.column_stack([B, np.ones(len(B), B.dtype)])
