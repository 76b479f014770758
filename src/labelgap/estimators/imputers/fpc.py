"""Missing features from a matrix of low rank."""

from __future__ import annotations

from contextlib import nullcontext
from numbers import Real
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from labelgap.estimators.completion.path import factors, record, solve_path
from labelgap.estimators.completion.rows import RowSpace
from labelgap.estimators.imputers.base import Imputer
from labelgap.estimators.parameters import check_choice
from labelgap.losses import get_loss
from labelgap.objectives.completion import Completion
from labelgap.runtime import wide_blas

# Threads of BLAS wait for each other in a busy loop: for smaller matrices that costs more than they save.
CELLS_FOR_WIDE_BLAS = 1_000_000


class FPCImputer(Imputer):
    """Fill missing features from the matrix of low rank that fits the observed ones, by fixed point continuation.

    Minimises over Z (n×d)

        μ ‖Z‖_* + (1/|Ω|) Σ over Ω of ½ (Z_ij − X_ij)²,       Ω the observed cells,

    for μ's that fall to the last one (Ma, Goldfarb and Chen 2011; the baseline FPC of Goldberg et al. 2010). It is
    transductive: a row that was there in :meth:`fit` is filled from its row of Z. Any other row is completed against
    the learned row space, by the ridge regression that each row of Z solves at the minimum (the regression of its
    observed features on V √S, Z = U S Vᵀ).

    A row or a column without an observed cell is filled with 0, the value that the nuclear norm gives it. Features
    are not centred, and μ is in the units of their squares: scale them first where they differ much.

    Parameters
    ----------
    mu : float, default=1e-5
        The last and smallest μ > 0.
    decay : float, default=0.25
        μ starts at decay · σ₁, σ₁ the largest singular value of X with 0 in missing cells, and falls by this factor.
    tol : float, default=1e-5
        For each μ, stop when a step changes the objective by at most this share of it.
    max_iter : int, default=1000
        The most steps for one μ.
    solver : {"accelerated", "fpc"}, default="accelerated"
        Steps with momentum, or the plain steps that were published; both lead to the minimum.
    n_jobs : int, optional
        Threads; all cores by default.

    Attributes
    ----------
    features_ : ndarray of shape (n, d)
        Z: completed where X is missing and smoothed where it is there.
    feature_factors_ : ndarray of shape (d, k)
        V √S, the row space.
    rank_ : int
        The rank k of Z.
    ridge_ : float
        μ |Ω|, the penalty of the regression that places new rows.
    objective_ : list of float
        The objective after each step at the last μ.
    path_ : list of dict
        For each μ: "mu", "objective", "rank", "n_iter" and "status".
    n_iter_ : int
        The number of steps at all μ's together.
    status_ : str
        "converged" or "max_iter", at the last μ.

    Examples
    --------
    Rows of rank 1 with one cell missing, and a new row:

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
        with wide_blas() if X.size >= CELLS_FOR_WIDE_BLAS else nullcontext():
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
            _, self.feature_factors_ = factors(last.point, False)
        self.features_, self.rank_ = last.point.Z, self.feature_factors_.shape[1]
        self.ridge_ = float(self.mu / problem.feature_share)
        self.path_, self.objective_, self.status_ = [record(one) for one in stages], last.history, last.status.value
        self.n_iter_ = sum(stage.n_iter for stage in stages)
        self._places = {key: i for i, key in reversed(list(enumerate(_keys(X))))}

    def _expected(self, X: NDArray) -> NDArray:
        space = RowSpace(self.feature_factors_, self.ridge_)
        if self.rank_ == 0:
            return np.zeros_like(X)
        places = np.array([self._places.get(key, -1) for key in _keys(X)])
        expected = space.embed(X, "zero") @ self.feature_factors_.T
        expected[places >= 0] = self.features_[places[places >= 0]]
        return expected


def _keys(X: NDArray) -> list[bytes]:
    """Return for each row what rows with the same cells share."""
    X = np.where(np.isnan(X), np.nan, X + 0.0)  # one NaN, and no −0
    return [row.tobytes() for row in X]
