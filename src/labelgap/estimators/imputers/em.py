"""Missing features from a mixture of Gaussians."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from labelgap.estimators.imputers import mixture
from labelgap.estimators.imputers.base import Imputer
from labelgap.estimators.parameters import check_number
from labelgap.solvers import Status


class EMImputer(Imputer):
    """Fill missing features with their expectations under a mixture of Gaussians, learned by EM.

    The parameters of p(x) = Σ_k π_k N(x; μ_k, Σ_k) maximise

        Σ_i log p(observed cells of row i)  −  (ν/2) Σ_k (log |Σ_k D⁻¹| + tr(D Σ_k⁻¹)),

    D the diagonal of the variances of the observed cells of each feature (1 for a feature that has none). The second
    term is a prior worth ν rows, which keeps covariances from collapsing: Σ_k = (scatter_k + ν D) / (n_k + ν).
    Missing cells, the components of the rows and the parameters are found together (Ghahramani and Jordan 1994), the
    conditional covariances of the missing cells included, so that the objective never falls. A missing cell is
    filled with Σ_k p(k | observed cells) E[cell | observed cells, k].

    A row without an observed cell is filled with the mean of the mixture, a column without one with 0.

    Parameters
    ----------
    n_components : int, default=1
        The number of Gaussians; fewer where there are fewer different rows.
    prior_rows : float, default=1.0
        ν ≥ 0. 0 is maximum likelihood, which has no maximum where features are few or depend on each other.
    conditional_covariances : bool, default=True
        Whether the conditional covariances of the missing cells are part of the scatter, as EM demands. Without them
        it is iterated regression: the Σ_k come out too small, and the objective may fall. With
        ``prior_rows=0.01`` it comes near most errors that Goldberg et al. (2010) report for EM; EM's own are smaller.
    tol : float, default=1e-3
        Stop when a step changes the objective by at most this much for each row.
    max_iter : int, default=500
        The most steps.
    random_state : int, RandomState or None
        Seeds K-means on the rows with each missing cell at its feature's mean, whose centres are the start. With one
        component nothing is drawn.
    n_jobs : int, optional
        Threads; all cores by default. The result does not depend on it.

    Attributes
    ----------
    weights_ : ndarray of shape (k,)
        π.
    means_ : ndarray of shape (k, d)
        The μ_k.
    covariances_ : ndarray of shape (k, d, d)
        The Σ_k.
    location_, scale_ : ndarray of shape (d,)
        The mean and standard deviation of the observed cells of each feature; 0 and 1 where there is none to take.
    objective_ : list of float
        What is maximised, at the start and after each step.
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
        random_state: Any = None,
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
        location, scale = _standards(X)
        rows = mixture.Rows.of((X - location) / scale)
        start = mixture.start(rows, self.n_components, check_random_state(self.random_state))
        found, history, self.status_ = self._climb(rows, start)
        volume = float(np.log(scale) @ (~np.isnan(X)).sum(axis=0))  # a density is in the units of the features
        self.objective_, self.n_iter_ = [value - volume for value in history], len(history) - 1
        self.location_, self.scale_ = location, scale
        self.weights_, self.means_ = found.weights, location + scale * found.means
        self.covariances_ = found.covariances * np.outer(scale, scale)

    def _climb(self, rows: mixture.Rows, start: mixture.Mixture) -> tuple[mixture.Mixture, list[float], str]:
        history: list[float] = []
        steps = mixture.climb(rows, start, float(self.prior_rows), spread=bool(self.conditional_covariances))
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
                "depend on each other, or have too few observed cells; raise prior_rows."
            ) from error
        return step.mixture, history, Status.MAX_ITER.value

    def _expected(self, X: NDArray) -> NDArray:
        scale = self.scale_
        found = mixture.Mixture(
            self.weights_, (self.means_ - self.location_) / scale, self.covariances_ / np.outer(scale, scale)
        )
        rows = mixture.Rows.of((X - self.location_) / scale)
        return self.location_ + scale * mixture.expect(rows, found).filled


def _standards(X: NDArray) -> tuple[NDArray, NDArray]:
    """Return the mean and the standard deviation of the observed cells of each feature, 0 and 1 where there is none.

    >>> _standards(np.array([[1.0, np.nan, 5.0], [3.0, np.nan, 5.0]]))
    (array([2., 0., 5.]), array([1., 1., 1.]))
    """
    observed = ~np.isnan(X)
    counts = np.maximum(observed.sum(axis=0), 1)
    location = np.where(observed, X, 0).sum(axis=0) / counts
    scale = np.sqrt(np.square(np.where(observed, X - location, 0)).sum(axis=0) / counts)
    rounding = 1e-12 * np.abs(np.where(observed, X, 0)).max(axis=0)
    return location, np.where(scale > rounding, scale, 1.0)
