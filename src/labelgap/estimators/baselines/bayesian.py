"""Bayesian compressed sensing: random projections, sparse recovery and missing labels in one probabilistic model."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from labelgap.estimators.about import About
from labelgap.estimators.base import MultiLabelEstimator, Outcome
from labelgap.estimators.baselines.projections import PROJECTIONS, project_seen
from labelgap.estimators.baselines.reduced import (
    THRESHOLD,
    CodeRegression,
    LabelMatrix,
    Regression,
    check_code_length,
    check_reduction,
    half_squared_error,
    number_of_codes,
)
from labelgap.estimators.baselines.sparse_posterior import infer
from labelgap.estimators.low_rank import embed_rows
from labelgap.estimators.parameters import check_choice, check_number
from labelgap.estimators.scores import BlockScores, row_blocks
from labelgap.objectives.features import numbers_in_range
from labelgap.observations import Labels
from labelgap.runtime import progress


class BayesianCS(MultiLabelEstimator):
    """Bayesian compressed sensing for multi-label learning (Kapoor, Viswanathan and Jain 2012), for small label sets.

    The codes A y_i of a row, A a random k×L matrix, are N(Wᵀx_i, s² I), where W has independent normal entries of
    variance s²/α and the labels are y_ij ~ N(0, 1/a_ij), a_ij ~ Gamma: most are near 0. The paper's z_i between codes
    and features is integrated out. Known labels are evidence. The unknown ones are inferred: fit alternates between
    the posterior of W, whose mean is a ridge regression of the expected codes, and that of the unknown labels and
    their precisions, and each step lowers the free energy. The score of a label is its posterior mean given Wᵀx.

    Parameters
    ----------
    n_components : int, optional
        The number k of codes, at most that of the labels. By default 100, or the number of labels where it is less.
    alpha : float, default=1.0
        The penalty α ≥ 0 of the regression.
    noise : float, optional
        s² > 0. By default the mean squared residual of a first regression, of the codes of the known labels alone.
    projection : {"orthogonal", "gaussian", "sign", "hadamard"}, default="orthogonal"
        As in :class:`~labelgap.CompressedSensing`.
    n_updates : int, default=10
        How often the posterior of a new row's labels is updated. That of a training row with gaps is updated once in
        each round.
    max_iter : int, default=20
        The most rounds of a fit with gaps.
    tol : float, default=1e-3
        Stop when a round lowers the free energy by less than this for each code.
    fit_intercept : bool, default=True
        Append a constant 1 to the features, penalised like the rest.
    random_state : int, RandomState or None
        Draws A.
    absent, n_jobs, dtype, verbose
        As in :class:`~labelgap.LEML`.
    device : str, default="auto"
        Deprecated; has no effect.

    Attributes
    ----------
    projection_ : ndarray of shape (k, L)
        A; 0 for labels without a positive.
    prior_ : ndarray of shape (L,)
        The share of positives among the known cells of each label, and the variance that its prior starts from.
    noise_ : float
        s².
    objective_ : list of float
        The free energy after each round, but for a constant; where all labels are known, that is
        (½ ‖Y Aᵀ − [X, 1] W‖² + (α/2) ‖W‖²) / s².
    n_iter_ : int
        The number of rounds.
    feature_factors_, intercept_factors_, status_
        As in :class:`~labelgap.PLST`.

    Examples
    --------
    The last row lacks its second label, which goes with the first:

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

    feature_factors_: NDArray
    intercept_factors_: NDArray
    projection_: NDArray
    prior_: NDArray
    noise_: float
    objective_: list[float]
    n_iter_: int
    status_: str

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
        random_state: Any = None,
        n_jobs: int | None = None,
        device: str = "auto",
        dtype: Any = "float32",
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
        self._check_common()
        check_reduction(self.n_components, self.alpha)
        check_number("noise", self.noise, Real, least=np.finfo(float).tiny, optional=True)
        check_choice("projection", self.projection, tuple(PROJECTIONS))
        check_number("n_updates", self.n_updates, Integral, least=1)
        check_number("max_iter", self.max_iter, Integral, least=1)
        check_number("tol", self.tol, Real, least=0)
        check_number("verbose", self.verbose, Integral, least=0)

    def _learn(self, X: Any, labels: Labels) -> Outcome:
        dtype, rng, kernels = np.dtype(self.dtype).type, check_random_state(self.random_state), self._kernels()
        with numbers_in_range(self.dtype):
            regression = CodeRegression(X, self.alpha, constant=self.fit_intercept, kernels=kernels, dtype=dtype)
            k = number_of_codes(self.n_components, labels.shape[1])
            self.projection_ = project_seen(self.projection, labels, k, rng).astype(dtype)
            self.prior_ = labels.rates
            known = LabelMatrix(labels, kernels, dtype, centred=False).times(self.projection_.T)
            found = regression.fit(known)
            self.noise_ = self._estimate_noise(known, found.fitted)
            history, ended = [self._energy(known, found)], True
            if not labels.complete:
                found, history, ended = self._alternate(regression, labels, known, found)
        self.feature_factors_, self.intercept_factors_ = found.features, found.intercept
        self.objective_, self.n_iter_ = history, len(history)
        self.status_ = found.status if ended else "max_iter"
        return self._outcome()

    def _outcome(self) -> Outcome:
        if self.status_ == "converged":
            return Outcome()
        return Outcome(
            f"BayesianCS stopped after max_iter={self.max_iter} rounds while the free energy still fell by more "
            f"than tol={self.tol:g} a code, or its least squares did not converge; raise max_iter, tol or alpha."
        )

    def _estimate_noise(self, codes: NDArray, fitted: NDArray) -> float:
        if self.noise is not None:
            return float(self.noise)
        # Where the regression is perfect, as much as would pass for rounding.
        least = np.finfo(self.projection_.dtype).eps * max(float((codes**2).mean()), np.finfo(np.float32).tiny)
        return max(float(((codes - fitted) ** 2).mean(dtype=float)), least)

    def _alternate(
        self, regression: CodeRegression, labels: Labels, known: NDArray, found: Regression
    ) -> tuple[Regression, list[float], bool]:
        """Infer the unknown labels from the regression, then regress the codes that they complete, in turn.

        ``known`` is the part of the codes that the known labels make. Returns the last regression, the free energy
        after each round, and whether the rounds ended by ``tol``.
        """
        assert labels.known is not None
        A, variance = self.projection_.astype(float), np.where(labels.known.toarray(), 0, self.prior_)
        history: list[float] = []
        with progress(self.max_iter, type(self).__name__, self.verbose) as advance:
            for _ in range(self.max_iter):
                posterior = infer(A, (found.fitted - known).astype(float), variance, self.noise_)
                variance = posterior.variance
                codes = known + (posterior.mean @ A.T).astype(known.dtype)
                found = regression.fit(codes)
                history.append(self._energy(codes, found) + float(posterior.energy.sum()))
                advance(f"free energy {history[-1]:.6g}")
                if len(history) > 1 and history[-2] - history[-1] <= self.tol * codes.size:
                    return found, history, True
        return found, history, False

    def _energy(self, codes: NDArray, found: Regression) -> float:
        """Return the part of the free energy that W has."""
        return (half_squared_error(codes, found.fitted) + found.penalty) / self.noise_

    def _scores(self, X: Any) -> BlockScores:
        return BlockScores(lambda: self._blocks(X), self._kernels())

    def _blocks(self, X: Any) -> Iterator[NDArray]:
        A, dtype, kernels = self.projection_.astype(float), self.projection_.dtype.type, self._kernels()
        for rows in row_blocks(X, self.n_labels_, arrays=2):
            codes = embed_rows(rows, self.feature_factors_, self.intercept_factors_, kernels, self.dtype)
            found = infer(A, codes.astype(float), self.prior_, self.noise_, self.n_updates)
            yield found.mean.astype(dtype) - dtype(THRESHOLD)

    def _check_loaded(self) -> None:
        k = check_code_length(self.feature_factors_, self.intercept_factors_, self.n_features_in_)
        if self.projection_.shape != (k, self.n_labels_) or np.shape(self.prior_) != (self.n_labels_,):
            raise ValueError(f"a projection of shape {self.projection_.shape} for {self.n_labels_} labels")
