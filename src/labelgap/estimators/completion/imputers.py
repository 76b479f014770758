"""Imputers: missing features from a matrix of low rank, or from a mixture of Gaussians."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from contextlib import nullcontext
from numbers import Integral, Real
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from labelgap.estimators.completion import gaussian_mixture
from labelgap.estimators.completion.completion_path import RowSpace, factorize, record_stage, solve_path
from labelgap.estimators.parameters import check_choice, check_number
from labelgap.losses import get_loss
from labelgap.objectives.label_feature_matrix import Completion
from labelgap.observations.arguments import MatrixLike, RandomSeed
from labelgap.runtime import multithreaded_blas, threads
from labelgap.solvers import Status

# BLAS threads wait for each other in a busy loop, which costs more than it saves in smaller matrices.
MIN_CELLS_FOR_BLAS_THREADS = 1_000_000
ROW_CHECKS = {"dtype": np.float64, "ensure_all_finite": "allow-nan"}


class Imputer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator, ABC):
    """Base class of imputers: NaN is missing, observed cells keep their values, and the result is float64."""

    max_iter: int
    tol: float
    n_jobs: int | None

    n_features_in_: int
    n_iter_: int
    status_: str

    def fit(self, X: MatrixLike, y: Any = None) -> Self:
        """Learn from rows X (n×d, NaN where missing); y is ignored."""
        self._check_parameters()
        rows = check_array(X, estimator=self, input_name="X", **ROW_CHECKS)
        if np.isnan(rows).all():
            raise ValueError("No cell of X is observed: every one is NaN. Pass features, at least some of them.")
        with threads(self.n_jobs):
            self._learn(rows)
        validate_data(self, X, skip_check_array=True)  # last, so that a failed fit changes no attribute
        if self.status_ == Status.MAX_ITER.value:
            message = (
                f"{type(self).__name__} stopped after max_iter={self.max_iter} steps, before the change of the "
                f"objective fell to the limit of tol={self.tol:g}; raise max_iter or tol."
            )
            warnings.warn(message, ConvergenceWarning, stacklevel=2)
        return self

    def transform(self, X: MatrixLike) -> NDArray[np.float64]:
        """Return X with its missing cells filled."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, **ROW_CHECKS)
        missing = np.isnan(X)
        if not missing.any():
            return X.copy()
        with threads(self.n_jobs):
            return np.where(missing, self._expected(X), X)

    @abstractmethod
    def _learn(self, X: NDArray) -> None:
        """Learn from validated rows and set the fitted attributes."""

    @abstractmethod
    def _expected(self, X: NDArray) -> NDArray:
        """Return a value for each cell of validated rows, n×d."""

    def _check_parameters(self) -> None:
        check_number("max_iter", self.max_iter, Integral, least=1)
        check_number("tol", self.tol, Real, least=0)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = []
        return tags


class FPCImputer(Imputer):
    """Imputer that fits a matrix of low rank to the observed cells by fixed point continuation (FPC).

    Minimises over Z (n×d)

        μ ‖Z‖_* + (1/|Ω|) Σ over Ω of ½ (Z_ij − X_ij)²,

    where Ω are the observed cells, along a path of falling μ's (Ma, Goldfarb and Chen 2011; the baseline FPC of
    Goldberg et al. 2010). The method is transductive: a training row is filled from its row of Z. Any other row is
    completed in the learned row space, by the ridge regression that each row of Z solves at the minimum (of its
    observed features on V √S, for Z = U S Vᵀ).

    A row or column without an observed cell is filled with 0, the value that the nuclear norm prefers. Features are
    not centred, and μ has the units of their squares: scale features of different sizes first.

    Parameters
    ----------
    mu : float, default=1e-5
        The weight μ > 0 of the nuclear norm: the last and smallest value of the path.
    decay : float, default=0.25
        The path starts at μ = decay · σ₁, where σ₁ is the largest singular value of X with 0 in missing cells, and
        multiplies μ by this factor down to ``mu``.
    tol : float, default=1e-5
        For each μ, stop when a step changes the objective by at most this share of it.
    max_iter : int, default=1000
        Maximum number of steps for one μ.
    solver : {"accelerated", "fpc"}, default="accelerated"
        Steps with momentum, or the published plain steps; both lead to the minimum.
    n_jobs : int, optional
        Number of threads; all cores by default.

    Attributes
    ----------
    features_ : ndarray of shape (n, d)
        Z: completed where X is missing, smoothed where it is observed.
    feature_factors_ : ndarray of shape (d, k)
        V √S, the row space.
    rank_ : int
        The rank k of Z.
    ridge_ : float
        μ |Ω|, the penalty of the regression that completes new rows.
    objective_ : list of float
        The objective after each step at the last μ.
    path_ : list of dict
        For each μ: "mu", "objective", "rank", "n_iter" and "status".
    n_iter_ : int
        The number of steps, summed over all μ's.
    status_ : str
        "converged" or "max_iter", at the last μ.

    Examples
    --------
    The rows have rank 1 and one cell is missing; then a new row:

    >>> import numpy as np
    >>> from labelgap import FPCImputer
    >>> X = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [3.0, np.nan, 9.0]])
    >>> imputer = FPCImputer().fit(X)
    >>> imputer.transform(X)[2].round(1), imputer.transform([[np.nan, 1.0, np.nan]]).round(1)
    (array([3., 6., 9.]), array([[0.5, 1. , 1.5]]))
    """

    features_: NDArray
    feature_factors_: NDArray
    rank_: int
    ridge_: float
    objective_: list[float]
    path_: list[dict[str, Any]]

    def __init__(
        self,
        *,
        mu: float = 1e-5,
        decay: float = 0.25,
        tol: float = 1e-5,
        max_iter: int = 1000,
        solver: Literal["accelerated", "fpc"] = "accelerated",
        n_jobs: int | None = None,
    ) -> None:
        self.mu = mu
        self.decay = decay
        self.tol = tol
        self.max_iter = max_iter
        self.solver = solver
        self.n_jobs = n_jobs

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice("solver", self.solver, ("accelerated", "fpc"))
        if not isinstance(self.mu, Real) or not 0 < self.mu < np.inf:
            raise ValueError(f"mu={self.mu!r} is out of range; pass a number above 0.")
        if not isinstance(self.decay, Real) or not 0 < self.decay < 1:
            raise ValueError(f"decay={self.decay!r} is out of range; pass a number between 0 and 1.")

    def _learn(self, X: NDArray) -> None:
        problem = Completion.of(X, None, get_loss("squared"))
        with multithreaded_blas() if X.size >= MIN_CELLS_FOR_BLAS_THREADS else nullcontext():
            stages = list(
                solve_path(
                    problem,
                    constant=False,
                    solver=self.solver,
                    mu=float(self.mu),
                    decay=float(self.decay),
                    tol=float(self.tol),
                    max_iter=self.max_iter,
                )
            )
            last = stages[-1]
            _, self.feature_factors_ = factorize(last.point, False)
        self.features_, self.rank_ = last.point.Z, self.feature_factors_.shape[1]
        self.ridge_ = float(self.mu / problem.feature_share)
        self.path_ = [record_stage(stage) for stage in stages]
        self.objective_, self.status_ = last.history, last.status.value
        self.n_iter_ = sum(stage.n_iter for stage in stages)
        self._row_numbers = {key: i for i, key in reversed(list(enumerate(_row_keys(X))))}

    def _expected(self, X: NDArray) -> NDArray:
        space = RowSpace(self.feature_factors_, self.ridge_)
        if self.rank_ == 0:
            return np.zeros_like(X)
        numbers = np.array([self._row_numbers.get(key, -1) for key in _row_keys(X)])
        expected = space.embed(X, "zero") @ self.feature_factors_.T
        expected[numbers >= 0] = self.features_[numbers[numbers >= 0]]
        return expected


def _row_keys(X: NDArray) -> list[bytes]:
    """Return a key for each row; rows with equal cells have equal keys."""
    X = np.where(np.isnan(X), np.nan, X + 0.0)  # a single bit pattern for NaN, and no −0
    return [row.tobytes() for row in X]


class EMImputer(Imputer):
    """Imputer that fills in expectations under a mixture of Gaussians, learned by EM.

    The parameters of p(x) = Σ_k π_k N(x; μ_k, Σ_k) maximise

        Σ_i log p(observed cells of row i)  −  (ν/2) Σ_k (log |Σ_k D⁻¹| + tr(D Σ_k⁻¹)),

    where D is the diagonal matrix of the variances of each feature's observed cells (1 for a feature without any).
    The second term is a prior with the weight of ν rows, which keeps covariances from collapsing:
    Σ_k = (scatter_k + ν D) / (n_k + ν). EM treats the missing cells and the components of the rows as hidden
    variables (Ghahramani and Jordan 1994) and includes the conditional covariances of the missing cells, so that the
    objective never falls. A missing cell is filled with Σ_k p(k | observed cells) E[cell | observed cells, k].

    A row without an observed cell is filled with the mean of the mixture, a column without one with 0.

    Parameters
    ----------
    n_components : int, default=1
        Number of Gaussians; fewer if there are fewer distinct rows.
    prior_rows : float, default=1.0
        ν ≥ 0. With 0 the fit is maximum likelihood, which has no maximum if rows are few or features depend linearly
        on each other.
    conditional_covariances : bool, default=True
        Whether the scatter includes the conditional covariances of the missing cells, as in EM. Without them the
        method is iterated regression: the Σ_k are too small, and the objective may fall. With ``prior_rows=0.01``
        iterated regression comes close to most errors that Goldberg et al. (2010) report for EM; those of true EM
        are smaller.
    tol : float, default=1e-3
        Stop when a step changes the objective by at most this amount per row.
    max_iter : int, default=500
        Maximum number of steps.
    random_state : int, RandomState or None
        Seed of K-means, whose centres are the start; there, missing cells are at their feature's mean. With one
        component the fit is deterministic.
    n_jobs : int, optional
        Number of threads; all cores by default. The result does not depend on it.

    Attributes
    ----------
    weights_ : ndarray of shape (k,)
        π.
    means_ : ndarray of shape (k, d)
        The μ_k.
    covariances_ : ndarray of shape (k, d, d)
        The Σ_k.
    location_, scale_ : ndarray of shape (d,)
        The mean and standard deviation of the observed cells of each feature; 0 and 1 for a feature without any.
    objective_ : list of float
        The objective at the start and after each step.
    n_iter_ : int
        The number of steps.
    status_ : str
        "converged" or "max_iter".

    Examples
    --------
    >>> import numpy as np
    >>> from labelgap import EMImputer
    >>> X = np.array([[1.0, 2.0], [2.0, 4.1], [3.0, 5.9], [4.0, np.nan]])
    >>> EMImputer(prior_rows=0.01).fit_transform(X)[3].round(1)
    array([4. , 7.9])
    """

    weights_: NDArray
    means_: NDArray
    covariances_: NDArray
    location_: NDArray
    scale_: NDArray
    objective_: list[float]

    def __init__(
        self,
        n_components: int = 1,
        *,
        prior_rows: float = 1.0,
        conditional_covariances: bool = True,
        tol: float = 1e-3,
        max_iter: int = 500,
        random_state: RandomSeed = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.prior_rows = prior_rows
        self.conditional_covariances = conditional_covariances
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_number("n_components", self.n_components, Integral, least=1)
        check_number("prior_rows", self.prior_rows, Real, least=0)

    def _learn(self, X: NDArray) -> None:
        if self.n_components > len(X):
            raise ValueError(
                f"n_components={self.n_components} is above the number of rows, {len(X)}; pass at most {len(X)}."
            )
        location, scale = _locate_and_scale(X)
        rows = gaussian_mixture.PatternRows.of((X - location) / scale)
        start = gaussian_mixture.start(rows, self.n_components, check_random_state(self.random_state))
        mixture, history, self.status_ = self._run_em(rows, start)
        volume = float(np.log(scale) @ (~np.isnan(X)).sum(axis=0))  # the density in the units of the features
        self.objective_, self.n_iter_ = [value - volume for value in history], len(history) - 1
        self.location_, self.scale_ = location, scale
        self.weights_, self.means_ = mixture.weights, location + scale * mixture.means
        self.covariances_ = mixture.covariances * np.outer(scale, scale)

    def _run_em(
        self, rows: gaussian_mixture.PatternRows, start: gaussian_mixture.Mixture
    ) -> tuple[gaussian_mixture.Mixture, list[float], str]:
        history: list[float] = []
        spread = bool(self.conditional_covariances)
        steps = gaussian_mixture.iterate_em(rows, start, float(self.prior_rows), spread=spread)
        try:
            for step in steps:
                history.append(step.objective)
                if len(history) > 1 and abs(history[-1] - history[-2]) <= self.tol * rows.shape[0]:
                    return step.mixture, history, Status.CONVERGED.value
                if len(history) > self.max_iter:
                    break
        except np.linalg.LinAlgError as error:
            raise ValueError(
                f"A covariance became singular with prior_rows={self.prior_rows!r} ({error}): features are constant, "
                "depend linearly on each other, or have too few observed cells; raise prior_rows."
            ) from error
        return step.mixture, history, Status.MAX_ITER.value

    def _expected(self, X: NDArray) -> NDArray:
        scale = self.scale_
        mixture = gaussian_mixture.Mixture(
            self.weights_, (self.means_ - self.location_) / scale, self.covariances_ / np.outer(scale, scale)
        )
        rows = gaussian_mixture.PatternRows.of((X - self.location_) / scale)
        return self.location_ + scale * gaussian_mixture.expect(rows, mixture).filled


def _locate_and_scale(X: NDArray) -> tuple[NDArray, NDArray]:
    """Return the mean and standard deviation of the observed cells of each feature; 0 and 1 for one without any.

    >>> _locate_and_scale(np.array([[1.0, np.nan, 5.0], [3.0, np.nan, 5.0]]))
    (array([2., 0., 5.]), array([1., 1., 1.]))
    """
    observed = ~np.isnan(X)
    counts = np.maximum(observed.sum(axis=0), 1)
    location = np.where(observed, X, 0).sum(axis=0) / counts
    scale = np.sqrt(np.square(np.where(observed, X - location, 0)).sum(axis=0) / counts)
    rounding = 1e-12 * np.abs(np.where(observed, X, 0)).max(axis=0)
    return location, np.where(scale > rounding, scale, 1.0)
