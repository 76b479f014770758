"""Label-space reduction: labels become a few numbers a row, which are regressed on the features and decoded again."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state, gen_batches

from labelgap.estimators.factors import FactorEstimator, FeatureFactors
from labelgap.estimators.parameters import check_number
from labelgap.kernels import Backend
from labelgap.objectives import make_features
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


class ReducedEstimator(FeatureFactors):
    """Codes T (n×k) for the labels of each row, and W = argmin ½ ‖T − [X, 1] W‖² + (α/2) ‖W‖².

    All columns of W share one factorisation of XᵀX + αI, or of XXᵀ + αI where that is smaller. A subclass encodes
    labels, and decodes the code [x, 1] W of a new row.
    """

    n_components: int | None
    alpha: float
    random_state: Any

    objective_: list[float]
    status_: str

    @abstractmethod
    def _encode(self, equations: NormalEquations, labels: Labels, rng: np.random.RandomState) -> NDArray:
        """Return the codes of the labels, n×k, and keep what decoding will need."""

    def _check_parameters(self) -> None:
        self._check_common()
        check_number("n_components", self.n_components, Integral, least=1, optional=True)
        check_number("alpha", self.alpha, Real, least=0)

    def _learn(self, X: Any, labels: Labels) -> Callable[[], None]:
        features = make_features(X, self._kernels(), np.dtype(self.dtype).type, constant=self.fit_intercept)
        with self._numbers_in_range():
            if not np.isfinite(features.column_squares()).all():
                raise FloatingPointError("the squares of a feature have no finite sum")
            equations = NormalEquations(features)
            codes = self._encode(equations, labels, check_random_state(self.random_state))
            self._fit_codes(equations, labels, codes)
        return self._conclude

    def _fit_codes(self, equations: NormalEquations, labels: Labels, codes: NDArray) -> None:
        """Learn what predicts the codes."""
        fitted = self._regress(equations, codes)
        self.objective_ = [self._error(labels, codes, fitted) + self._penalty()]

    def _regress(self, equations: NormalEquations, codes: NDArray) -> NDArray:
        """Find W, store it, and return what it makes of the rows it was found on."""
        W, converged = equations.solve(codes, 1.0, float(self.alpha))
        if not np.isfinite(W).all():
            raise FloatingPointError("the least squares have no finite solution")
        self._store_features(W)
        self.status_ = "converged" if converged else "max_iter"
        return equations.features.times(W)

    def _error(self, labels: Labels, codes: NDArray, fitted: NDArray) -> float:
        """Half the squared error on the training rows."""
        return 0.5 * float(((codes - fitted) ** 2).sum(dtype=float))

    def _penalty(self) -> float:
        return 0.5 * float(self.alpha) * float((self._stacked_factors() ** 2).sum(dtype=float))

    def _n_codes(self, n_labels: int) -> int:
        if self.n_components is None:
            return min(DEFAULT_COMPONENTS, n_labels)
        if self.n_components > n_labels:
            raise ValueError(
                f"n_components={self.n_components} is above the number of labels, {n_labels}: that would be no "
                f"reduction. Pass at most {n_labels}."
            )
        return self.n_components

    def _conclude(self) -> None:
        if self.status_ == "max_iter":
            message = (
                f"{type(self).__name__} did not solve its least squares to the tolerance, since alpha={self.alpha:g} "
                "is small for these features; raise alpha, or scale the features."
            )
            warnings.warn(message, ConvergenceWarning, stacklevel=3)

    def _check_loaded(self) -> None:
        k = len(self.intercept_factors_)
        if self.feature_factors_.shape != (self.n_features_in_, k):
            raise ValueError(f"factors of shape {self.feature_factors_.shape} for {self.n_features_in_} features")
        self._check_decoder(k)

    @abstractmethod
    def _check_decoder(self, k: int) -> None:
        """Raise ValueError if what came from a file does not decode k numbers to the labels."""


class LinearReduction(ReducedEstimator, FactorEstimator):
    """Decodes by a matrix: the scores are [X, 1] W Hᵀ + μᵀ, H L×k, and ½ is the threshold.

    ``label_factors_`` is [H, μ], L×(k+1), and ``objective_`` holds ½ ‖Y − scores‖² + (α/2) ‖W‖² of the training rows.
    """

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

    def _store_decoder(self, H: NDArray, shift: NDArray) -> None:
        self.label_factors_ = np.column_stack([H, shift]).astype(np.dtype(self.dtype).type)
        self.threshold_ = THRESHOLD

    def _error(self, labels: Labels, codes: NDArray, fitted: NDArray) -> float:
        B, H = _beside_ones(fitted).astype(float), self.label_factors_.astype(float)
        shared = float((B * (labels.positives @ H)).sum())
        return 0.5 * (labels.positives.nnz - 2 * shared + float(((B.T @ B) * (H.T @ H)).sum()))

    def _embed(self, X: Any) -> NDArray:
        return _beside_ones(self._embed_features(X))

    def _check_decoder(self, k: int) -> None:
        if self.label_factors_.shape != (self.n_labels_, k + 1):
            raise ValueError(f"label factors of shape {self.label_factors_.shape} for {self.n_labels_} labels")


def _beside_ones(B: NDArray) -> NDArray:
    return np.column_stack([B, np.ones(len(B), B.dtype)])
