"""What MC1 and MCb share: validate, follow the path, store factors, complete new rows."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import TransformerTags
from sklearn.utils.validation import check_is_fitted

from labelgap.estimators.base import MultiLabelEstimator, Outcome
from labelgap.estimators.completion.path import CONVEX, Found, factors, record, solve_factored, solve_path
from labelgap.estimators.completion.rows import KnownCellsOfRows, RowSpace
from labelgap.estimators.parameters import check_choice, check_number
from labelgap.estimators.scores import FactorScores
from labelgap.losses import Loss, get_loss
from labelgap.objectives.completion import Completion
from labelgap.objectives.factored import with_column
from labelgap.observations import Labels
from labelgap.runtime import progress, threads
from labelgap.solvers import Fit, Status

MOST_CELLS = 50_000_000  # of a dense Z
DEFAULT_COMPONENTS = 100
Judge = Callable[[NDArray], float]


class CompletionEstimator(MultiLabelEstimator):
    """Labels and features as one matrix Z of low rank, known in some cells; a subclass says how it has a bias."""

    _constant: bool  # whether Z has a constant column

    row_factors_: NDArray
    label_factors_: NDArray
    feature_factors_: NDArray
    constant_factors_: NDArray
    bias_: NDArray
    threshold_: float
    ridge_: float
    rank_: int
    objective_: list[float]
    path_: list[dict[str, Any]]
    n_iter_: int
    status_: str

    def __init__(
        self,
        *,
        mu: float = 1e-5,
        label_weight: float = 1.0,
        loss: str | Loss = "logistic",
        solver: Literal["auto", "fpc", "exact", "accelerated", "factored"] = "auto",
        n_components: int | None = None,
        decay: float = 0.25,
        max_iter: int = 1000,
        tol: float = 1e-5,
        absent: Literal["negative", "unknown"] = "negative",
        absent_features: Literal["zero", "unknown"] = "zero",
        random_state: Any = None,
        n_jobs: int | None = None,
        device: str = "auto",
        dtype: Any = "float64",
        verbose: int = 0,
    ) -> None:
        self.mu = mu
        self.label_weight = label_weight
        self.loss = loss
        self.solver = solver
        self.n_components = n_components
        self.decay = decay
        self.max_iter = max_iter
        self.tol = tol
        self.absent = absent
        self.absent_features = absent_features
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device
        self.dtype = dtype
        self.verbose = verbose

    def fit_transform(self, X: Any, y: Any, observed: Any = None) -> NDArray:
        """Fit, and return the training rows completed: X where it is known, ``features_`` elsewhere."""
        features = self.fit(X, y, observed).features_
        return KnownCellsOfRows(self._check_rows(X), self.absent_features).keep_in(features)

    def transform(self, X: Any) -> NDArray:
        """Return new rows completed: X where it is known, their place in the row space elsewhere."""
        check_is_fitted(self)
        X = self._check_rows(X)
        with threads(self.n_jobs):
            W = self._row_space().embed(X, self.absent_features)
            completed = self._kernels().matmul(W, self.feature_factors_.T)
        return KnownCellsOfRows(X, self.absent_features).keep_in(completed)

    @property
    def decision_(self) -> NDArray:
        """The decision values of the training rows, n×t: above 0 where the label is there."""
        return self._training_scores().dense()

    @property
    def labels_(self) -> Any:
        """The labels of the training rows, all cells, in the container that Y had."""
        return self.container_.pack(self._training_scores().positives())

    @property
    def features_(self) -> NDArray:
        """The feature part of Z, n×d: completed where X is unknown and smoothed where it is known."""
        return self._kernels().matmul(self.row_factors_, self.feature_factors_.T)

    def _check_parameters(self) -> None:
        self._check_common()
        get_loss(self.loss)
        check_choice("solver", self.solver, ("auto", *CONVEX, "factored"))
        check_choice("absent_features", self.absent_features, ("zero", "unknown"))
        check_number("n_components", self.n_components, Integral, least=1, optional=True)
        check_number("max_iter", self.max_iter, Integral, least=1)
        check_number("tol", self.tol, Real, least=0)
        check_number("label_weight", self.label_weight, Real, least=0)
        check_number("verbose", self.verbose, Integral, least=0)
        for name, most, range_ in (("mu", np.inf, "above 0"), ("decay", 1, "between 0 and 1")):
            check_number(name, getattr(self, name), Real, least=0)
            if not 0 < getattr(self, name) < most:
                raise ValueError(f"{name}={getattr(self, name)!r} is out of range; pass a number {range_}.")

    def _problem(self, X: Any, labels: Labels) -> Completion:
        """Bind validated data; the label loss, its weight and the bias are the estimator's."""
        return Completion.of(
            X,
            labels,
            get_loss(self.loss),
            label_weight=float(self.label_weight),
            bias=not self._constant,
            dtype=np.dtype(self.dtype).type,
            absent_features=self.absent_features,
        )

    def _solve(self, problem: Completion, judge: Judge | None = None) -> Found:
        """Follow the μ's to the last, or go there at once over factors.

        ``judge`` of each decision matrix of the path is recorded as its validation error.
        """
        solver = self.solver
        if solver == "auto":
            solver = "factored" if problem.n * problem.width > MOST_CELLS else "accelerated"
        if solver == "factored":
            return self._solve_factored(problem)
        path, stage = [], None
        with progress(None, type(self).__name__, self.verbose) as advance:
            for stage in self._stages(problem, solver):
                path.append(record(stage))
                if judge is not None:
                    path[-1]["validation_error"] = judge(problem.decision(stage.point))
                advance(f"μ = {stage.mu:.3g}, F = {stage.value:.6g}, rank {stage.rank}")
        assert stage is not None
        W, H = factors(stage.point, self._constant)
        b = np.zeros(problem.t, W.dtype) if self._constant else stage.point.b
        return Found(W, H, b, W.shape[1], stage.history, stage.status.value, path)

    def _solve_factored(self, problem: Completion) -> Found:
        most = min(problem.n, problem.width)
        k = min(DEFAULT_COMPONENTS, most) if self.n_components is None else min(self.n_components, most)
        with progress(self.max_iter, type(self).__name__, self.verbose) as advance:

            def after(state: Fit) -> bool:
                advance(f"F = {state.history[-1] * problem.feature_share:.6g}")
                return False

            return solve_factored(
                problem,
                float(self.mu),
                k,
                constant=self._constant,
                kernels=self._kernels(),
                random_state=self.random_state,
                tol=float(self.tol),
                max_iter=self.max_iter,
                stop=after,
            )

    def _stages(self, problem: Completion, solver: str) -> Any:
        return solve_path(
            problem,
            constant=self._constant,
            solver=solver,
            mu=float(self.mu),
            decay=float(self.decay),
            tol=float(self.tol),
            max_iter=self.max_iter,
        )

    def _learn(self, X: Any, labels: Labels) -> Outcome:
        problem = self._problem(X, labels)
        self._store(problem, self._solve(problem))
        if self.status_ != Status.MAX_ITER.value:
            return Outcome()
        return Outcome(
            f"{type(self).__name__} stopped after max_iter={self.max_iter} steps at mu={self.mu:g} while the "
            f"objective still changed by more than tol={self.tol:g} of itself; raise max_iter or tol."
        )

    def _store(self, problem: Completion, found: Found) -> None:
        t, d, H = problem.t, problem.d, found.H
        self.row_factors_, self.feature_factors_ = found.W, np.ascontiguousarray(H[t : t + d])
        self.constant_factors_ = H[t + d :].reshape(-1)
        self.label_factors_ = np.concatenate([H[:t], found.b[:, None]], axis=1)
        for label, target in problem.settled:
            self.label_factors_[label], self.label_factors_[label, -1] = 0, target
        self.bias_, self.threshold_ = self.label_factors_[:, -1].copy(), problem.loss.threshold
        self.ridge_ = float(self.mu / problem.feature_share)
        self.rank_, self.path_ = found.rank, found.path
        self.objective_, self.status_ = found.history, found.status
        self.n_iter_ = sum(stage["n_iter"] for stage in found.path)

    def _row_space(self) -> RowSpace:
        constant = self.constant_factors_ if self._constant else None
        return RowSpace(self.feature_factors_, self.ridge_, constant)

    def _embed(self, X: Any) -> NDArray:
        """Return the factors of validated rows: w, beside a constant 1."""
        return with_column(self._row_space().embed(X, self.absent_features), 1.0)

    def _scores(self, X: Any) -> FactorScores:
        return self._factor_scores(self._embed(X))

    def _training_scores(self) -> FactorScores:
        return self._factor_scores(with_column(self.row_factors_, 1.0))

    def _factor_scores(self, B: NDArray) -> FactorScores:
        return FactorScores(B, self.label_factors_, self.threshold_, self._kernels())

    def _check_loaded(self) -> None:
        k = self.row_factors_.shape[1]
        shapes = (self.feature_factors_.shape, self.label_factors_.shape, self.constant_factors_.shape)
        if shapes != ((self.n_features_in_, k), (self.n_labels_, k + 1), (k * self._constant,)):
            raise ValueError(f"factors of shapes {shapes} for {self.n_features_in_} features and rank {k}")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags = TransformerTags(preserves_dtype=[])  # the parameter dtype decides
        return tags
