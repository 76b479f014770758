"""MC1 and MCb: labels and features completed as one matrix of low rank (Goldberg et al. 2010)."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import TransformerTags
from sklearn.utils.validation import check_is_fitted

from labelgap.estimators.base import About, MultiLabelEstimator, Outcome
from labelgap.estimators.completion.completion_path import (
    CONVEX_SOLVERS,
    CompletionFit,
    KnownCellsOfRows,
    RowSpace,
    factorize,
    record_stage,
    solve_factored,
    solve_path,
)
from labelgap.estimators.parameters import check_choice, check_number
from labelgap.estimators.scores import FactorScores
from labelgap.kernels import get_backend
from labelgap.losses import Loss, get_loss
from labelgap.objectives.factored import append_constant
from labelgap.objectives.label_feature_matrix import Completion
from labelgap.observations import Labels
from labelgap.observations.arguments import MatrixLike
from labelgap.runtime import progress
from labelgap.solvers import Fit, Status
from labelgap.solvers.fpc import Point

MAX_DENSE_CELLS = 50_000_000  # of Z; with more, "auto" solves for factors
DEFAULT_COMPONENTS = 100


class CompletionEstimator(MultiLabelEstimator):
    """Base class of MC1 and MCb: labels and features are one matrix Z of low rank that is known in some cells."""

    _constant: bool  # whether Z has a constant column
    _uses_device = True

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

    def fit_transform(self, X: MatrixLike, y: Any, observed: MatrixLike | None = None) -> NDArray:
        """Fit, and return the completed training rows: X where it is known, ``features_`` elsewhere."""
        features = self.fit(X, y, observed).features_
        return KnownCellsOfRows(self._check_rows(X), self.absent_features).copy_into(features)

    def transform(self, X: MatrixLike) -> NDArray:
        """Return completed rows: X where it is known, the best fit in the learned row space elsewhere."""
        check_is_fitted(self)
        X = self._check_rows(X)
        with self._compute():
            W = self._row_space().embed(X, self.absent_features)
            completed = get_backend().matmul(W, self.feature_factors_.T)
        return KnownCellsOfRows(X, self.absent_features).copy_into(completed)

    @property
    def decision_(self) -> NDArray:
        """The decision values of the training rows, n×t: above 0 where the label is predicted."""
        return self._training_scores().dense()

    @property
    def labels_(self) -> Any:
        """The predicted labels of the training rows, known cells included, in the container of Y."""
        return self.container_.pack(self._training_scores().positives())

    @property
    def features_(self) -> NDArray:
        """The feature columns of Z, n×d: completed where X is unknown, smoothed where it is known."""
        return get_backend().matmul(self.row_factors_, self.feature_factors_.T)

    def _check_parameters(self) -> None:
        self._check_common()
        get_loss(self.loss)
        check_choice("solver", self.solver, ("auto", *CONVEX_SOLVERS, "factored"))
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
        """Return the smooth part of the objective on validated data; with the factored solver, on the CPU."""
        n_cells = labels.shape[0] * (labels.shape[1] + X.shape[1])
        factored = self.solver == "factored" or (self.solver == "auto" and n_cells > MAX_DENSE_CELLS)
        return Completion.of(
            X,
            labels,
            get_loss(self.loss),
            label_weight=float(self.label_weight),
            bias=not self._constant,
            dtype=np.dtype(self.dtype).type,
            absent_features=self.absent_features,
            kernels=get_backend() if factored else self._part_kernels(),
        )

    def _solve(self, problem: Completion) -> CompletionFit:
        """Solve along falling μ's, or directly for the last μ with the factored solver."""
        solver, name = self.solver, type(self).__name__
        if solver == "auto":
            solver = "factored" if problem.n * problem.width > MAX_DENSE_CELLS else "accelerated"
        if solver == "factored":
            return self._solve_factored(problem)
        stages = solve_path(
            problem,
            constant=self._constant,
            solver=solver,
            mu=float(self.mu),
            decay=float(self.decay),
            tol=float(self.tol),
            max_iter=self.max_iter,
        )
        path, stage = [], None
        with progress(None, name, self.verbose) as advance:
            for stage in stages:
                path.append(record_stage(stage))
                advance(f"μ = {stage.mu:.3g}, F = {stage.value:.6g}, rank {stage.rank}")
        assert stage is not None
        point = Point(*map(problem.kernels.to_numpy, stage.point))
        W, H = factorize(point, self._constant)
        b = np.zeros(problem.t, W.dtype) if self._constant else point.b
        return CompletionFit(W, H, b, W.shape[1], stage.history, stage.status.value, path)

    def _solve_factored(self, problem: Completion) -> CompletionFit:
        k = DEFAULT_COMPONENTS if self.n_components is None else self.n_components
        with progress(self.max_iter, type(self).__name__, self.verbose) as advance:

            def report(state: Fit) -> bool:
                advance(f"F = {state.history[-1] * problem.feature_share:.6g}")
                return False

            return solve_factored(
                problem,
                float(self.mu),
                min(k, problem.n, problem.width),
                constant=self._constant,
                kernels=problem.kernels,
                random_state=self.random_state,
                tol=float(self.tol),
                max_iter=self.max_iter,
                stop=report,
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

    def _store(self, problem: Completion, fit: CompletionFit) -> None:
        t, d, H = problem.t, problem.d, fit.H
        self.row_factors_, self.feature_factors_ = fit.W, np.ascontiguousarray(H[t : t + d])
        self.constant_factors_ = H[t + d :].reshape(-1)
        self.label_factors_ = np.concatenate([H[:t], fit.b[:, None]], axis=1)
        for label, target in problem.constant_labels:
            self.label_factors_[label], self.label_factors_[label, -1] = 0, target
        self.bias_, self.threshold_ = self.label_factors_[:, -1].copy(), problem.loss.threshold
        self.ridge_ = float(self.mu / problem.feature_share)
        self.rank_, self.path_ = fit.rank, fit.path
        self.objective_, self.status_ = fit.history, fit.status
        self.n_iter_ = sum(stage["n_iter"] for stage in fit.path)

    def _row_space(self) -> RowSpace:
        constant = self.constant_factors_ if self._constant else None
        return RowSpace(self.feature_factors_, self.ridge_, constant)

    def _embed(self, X: Any) -> NDArray:
        """Return [w, 1] for each validated row."""
        return append_constant(self._row_space().embed(X, self.absent_features), 1.0)

    def _scores(self, X: Any) -> FactorScores:
        return FactorScores(self._embed(X), self.label_factors_, self.threshold_, get_backend())

    def _training_scores(self) -> FactorScores:
        rows = append_constant(self.row_factors_, 1.0)
        return FactorScores(rows, self.label_factors_, self.threshold_, get_backend())

    def _check_loaded(self) -> None:
        k = self.row_factors_.shape[1]
        shapes = (self.feature_factors_.shape, self.label_factors_.shape, self.constant_factors_.shape)
        if shapes != ((self.n_features_in_, k), (self.n_labels_, k + 1), (k * self._constant,)):
            raise ValueError(f"factors of shapes {shapes} for {self.n_features_in_} features and rank {k}")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags = TransformerTags(preserves_dtype=[])  # the parameter dtype decides
        return tags


class MCb(CompletionEstimator):
    """Matrix completion of labels and features with an explicit bias for each label (MC-b of Goldberg et al. 2010).

    Minimises over Z (n×(t+d), label columns first) and b (t)

        μ ‖Z‖_* + (λ/|Ω_Y|) Σ over Ω_Y of ℓ(Y_ij, Z_ij + b_j) + (1/|Ω_X|) Σ over Ω_X of ½ (Z_{i,t+j} − X_ij)²,

    where Ω_Y and Ω_X are the known cells of labels and features.

    The method is transductive: ``labels_``, ``decision_`` and ``features_`` are its results for the training rows,
    and use their features and known labels. For other rows, :meth:`predict` and :meth:`transform` keep the learned
    row space fixed and fit the row's known features in it, by the problem that each training row solves at the
    optimum. A training row passed to :meth:`predict` is treated as a new row, without its known labels.

    A label whose known cells are all of one class gets this class in all rows.

    Parameters
    ----------
    mu : float, default=1e-5
        The weight μ > 0 of the nuclear norm: the last and smallest value of the path.
    label_weight : float, default=1.0
        The weight λ of the labels' mean loss; the features' mean loss has the weight 1.
    loss : {"logistic", "squared", "squared_hinge"} or Loss, default="logistic"
        The loss ℓ of a label cell.
    solver : {"auto", "fpc", "exact", "accelerated", "factored"}, default="auto"
        "fpc" is the published fixed point iteration; for MC-b "exact" is the same. "accelerated" adds momentum and
        reaches the same optimum in a fraction of the steps. "factored" minimises over the factors of Z and never
        allocates an n×d array. "auto" is "accelerated", or "factored" if Z has more than 50 million cells.
    n_components : int, optional
        Number of columns of the factors with ``solver="factored"``, an upper bound of the rank of Z. Default:
        min(n, t + d, 100).
    decay : float, default=0.25
        The path starts at μ = decay · σ₁, where σ₁ is the largest singular value of the matrix with 0 in unknown
        cells, and multiplies μ by this factor down to ``mu``. Each solution is the start of the next.
    max_iter : int, default=1000
        Maximum number of steps for one μ.
    tol : float, default=1e-5
        Stop when a step changes the objective by at most this share of it.
    absent : {"negative", "unknown"}, default="negative"
        Meaning of a cell that a sparse Y does not store.
    absent_features : {"zero", "unknown"}, default="zero"
        Meaning of a cell that a sparse X does not store. NaN is unknown in any X.
    random_state : int, RandomState or None
        Seed of the start of "factored"; the other solvers are deterministic.
    n_jobs, verbose
        As in :class:`~labelgap.LEML`.
    device : {"auto", "cpu", "cuda"}, default="auto"
        As in :class:`~labelgap.LEML`; the solver "factored" runs on the CPU.
    dtype : {"float32", "float64"}, default="float64"
        The precision of Z.

    Attributes
    ----------
    decision_ : ndarray of shape (n, t)
        The decision values of the training rows: above 0 where the label is predicted.
    labels_ : array or sparse matrix of shape (n, t)
        ``decision_ > 0`` for every cell, known or not, in the container of Y.
    features_ : ndarray of shape (n, d)
        The feature columns of Z: completed where X is unknown, smoothed where it is known.
    rank_ : int
        The rank of Z.
    bias_ : ndarray of shape (t,)
        b; 0 in MC-1. For a label of one class it is the target of this class.
    objective_ : list of float
        The objective after each step at the last μ.
    path_ : list of dict
        For each μ: "mu", "objective", "rank", "n_iter" and "status".
    n_iter_ : int
        The number of steps, summed over all μ's.
    status_ : str
        "converged" or "max_iter", at the last μ; "stalled" if rounding stopped "factored".
    row_factors_, label_factors_, feature_factors_, constant_factors_ : ndarray
        Z = W Hᵀ: W (n×k), and the rows of H of labels (with the bias appended), features and the constant.

    Examples
    --------
    The rows have rank 1; a feature and the label of the last row are missing:

    >>> import numpy as np
    >>> from labelgap import MCb
    >>> X = np.outer([1, 2, -1, -2, 3, -3], [1.0, 2.0, -1.0, 1.5])
    >>> Y = (X[:, :1] > 0).astype(float)
    >>> X[5, 1] = Y[5] = np.nan
    >>> model = MCb(mu=1e-3).fit(X, Y)
    >>> model.labels_.ravel(), model.features_[5].round(1)
    (array([1., 1., 0., 0., 1., 0.]), array([-3. , -6. ,  3. , -4.5]))

    A new row with two known features:

    >>> row = [[np.nan, 2.0, np.nan, 1.5]]
    >>> model.predict(row), model.transform(row).round(1)
    (array([[1.]]), array([[ 1. ,  2. , -1. ,  1.5]]))
    """

    about: ClassVar[About] = About(
        "Completes labels and features as one matrix of low rank, with a bias for each label.",
        "Goldberg, Zhu, Recht, Xu and Nowak 2010",
        missing_labels=True,
        missing_features=True,
        fit="n (d + L) k a step",
        predict="d k² + L k",
    )

    _constant = False


class MC1(CompletionEstimator):
    """Matrix completion of labels and features with a constant feature as bias (MC-1 of Goldberg et al. 2010).

    Minimises over Z (n×(t+d+1)), whose last column is fixed at 1,

        μ ‖Z‖_* + (λ/|Ω_Y|) Σ over Ω_Y of ℓ(Y_ij, Z_ij) + (1/|Ω_X|) Σ over Ω_X of ½ (Z_{i,t+j} − X_ij)².

    It is used like :class:`~labelgap.MCb`; the solvers differ. The published loop, ``solver="fpc"``, shrinks Z and
    then sets its last column to 1. It converges, but to the minimum of another problem, which only penalises the
    distance of the constant from 1; the gap falls with μ. ``solver="exact"`` gives the constraint a multiplier that
    changes in each step (the three-operator splitting of Davis and Yin 2017). "accelerated" and "factored" eliminate
    the constraint: they add a bias b_j for every label and feature, with the penalty
    μ ‖Z − 1bᵀ‖_* + μ √n √(1 + ‖b‖²), which has the same minimum. All solvers but "fpc" end at the minimum.

    Parameters
    ----------
    mu, label_weight, loss, solver, n_components, decay, max_iter, tol
        As in :class:`~labelgap.MCb`.
    absent, absent_features, random_state, n_jobs, dtype, verbose
        As in :class:`~labelgap.MCb`.
    device : {"auto", "cpu", "cuda"}, default="auto"
        As in :class:`~labelgap.LEML`; the solver "factored" runs on the CPU.

    Attributes
    ----------
    decision_, labels_, features_, rank_, bias_, objective_, path_, n_iter_, status_
        As in :class:`~labelgap.MCb`.

    Examples
    --------
    >>> import numpy as np
    >>> from labelgap import MC1
    >>> X = np.outer([1, 2, -1, -2, 3, -3], [1.0, 2.0, -1.0, 1.5])
    >>> Y = (X[:, :1] > 0).astype(float)
    >>> X[5, 1] = Y[5] = np.nan
    >>> MC1(mu=1e-3).fit(X, Y).labels_.ravel()
    array([1., 1., 0., 0., 1., 0.])
    """

    about: ClassVar[About] = About(
        "Completes labels and features as one matrix of low rank, with a constant feature.",
        "Goldberg, Zhu, Recht, Xu and Nowak 2010",
        missing_labels=True,
        missing_features=True,
        fit="n (d + L) k a step",
        predict="d k² + L k",
    )

    _constant = True
