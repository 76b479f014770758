"""LEML: low-rank empirical risk minimisation for multi-label learning, with missing labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.metrics.pairwise import rbf_kernel

from labelgap.estimators.about import About
from labelgap.estimators.base import Outcome
from labelgap.estimators.growing import GrowingEstimator, Rows
from labelgap.estimators.low_rank import Iteration
from labelgap.estimators.parameters import check_choice, check_number
from labelgap.losses import Loss, get_loss
from labelgap.objectives import LowRank, label_cells, make_features
from labelgap.objectives.cells import AllCellsSquared, Cells
from labelgap.observations import Labels
from labelgap.solvers import TRON, Alternation, Direct, NewtonCG, Solver


class LEML(GrowingEstimator):
    """A linear multi-label model of low rank, learned from the known labels only.

    Minimises over W (d×k) and H (L×k)

        F(W, H) = Σ over known (i, j) of ℓ(Y_ij, x_iᵀ W h_j) + (α/2) ‖W‖² + (α_H/2) ‖H‖²

    by alternating between the two (Yu, Jain, Kar and Dhillon 2014, eq. 5). With squared loss and every label known
    no step depends on n·L: each half step is exact after one eigendecomposition of XᵀX, up to 6,000 features or rows,
    and takes a dozen products of O((nnz(X) + nnz(Y)) k + (n + L) k²) beyond that.

    Parameters
    ----------
    n_components : int, optional
        The rank k, at most min(features, labels). By default 100, or that minimum where it is smaller.
    alpha : float, default=1.0
        The penalty α ≥ 0 of W, and of H unless ``alpha_labels`` is given.
    alpha_labels : float, optional
        The penalty of H.
    loss : {"squared", "logistic", "squared_hinge"} or Loss, default="squared"
        The loss of a cell.
    fit_intercept : bool, default=True
        Append a constant 1 to the features, penalised like the rest.
    init : {"svd", "random"}, default="svd"
        Start H from the leading singular directions that features and labels share, or at random.
    solver : {"auto", "direct", "cg", "tron"}, default="auto"
        How a half step is solved. "direct" is for squared loss with every label known; "cg" is Newton's method with
        conjugate gradients and backtracking; "tron" keeps it in a trust region instead. "auto" is direct where it
        applies, else cg.
    kernel : {"linear", "rbf", "precomputed"} or callable, default="linear"
        Replace the rows of X by their kernel values with the training rows (the paper's kernel extension). A callable
        gets the rows and the training rows and returns the matrix of kernel values, one row for each row. With
        "precomputed" X is that matrix, n×n in fit.
    gamma : float, optional
        The parameter of the rbf kernel; 1 / features by default.
    max_iter : int, default=30
        The most alternations.
    tol : float, default=1e-3
        Stop when an alternation lowers F by less than this share of it.
    warm_start : bool, default=False
        Start from the factors of the previous fit.
    absent : {"negative", "unknown"}, default="negative"
        What a cell that a sparse Y does not store means.
    random_state : int, RandomState or None
        Seeds the start.
    n_jobs : int, optional
        Threads; all cores by default.
    device : {"auto", "cpu"}, default="auto"
        Where to compute.
    dtype : {"float32", "float64"}, default="float32"
        The precision of the factors. Objectives are summed in float64 either way.
    verbose : int, default=0
        1 shows a progress bar, 2 a line for each alternation.
    callbacks : sequence of callables, optional
        Each is called with an :class:`Iteration` after each alternation; True ends the fit.

    Attributes
    ----------
    feature_factors_ : ndarray of shape (d, k)
        W; with a kernel its rows belong to the training rows.
    intercept_factors_ : ndarray of shape (k,)
        The row of W that belongs to the constant feature, 0 without one.
    label_factors_ : ndarray of shape (L, k)
        H.
    memory_ : dict of arrays
        What :meth:`partial_fit` needs of rows that are gone.
    objective_ : list of float
        F after each alternation.
    n_iter_ : int
        The number of alternations.
    status_ : str
        "converged", "max_iter", "stalled" (rounding outweighs progress) or "stopped" (by a callback or Ctrl-C).

    Examples
    --------
    A third label is unknown for the first row, and the model learns from the rest:

    >>> import numpy as np
    >>> from labelgap import LEML
    >>> X = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    >>> Y = np.array([[1, 0, np.nan], [1, 0, 1], [0, 1, 0], [0, np.nan, 0]])
    >>> model = LEML(n_components=2, alpha=0.01, random_state=0).fit(X, Y)
    >>> model.predict([[1.0, 0.05]])
    array([[1., 0., 1.]])
    """

    about = About(
        "A low-rank linear model of all labels, learned from the known cells with one of three losses.",
        "Yu, Jain, Kar and Dhillon 2014",
        missing_labels=True,
        fit="(z + y) k an alternation",
        predict="(z/n + L) k",
    )

    _uses_device = True

    def __init__(
        self,
        n_components: int | None = None,
        *,
        alpha: float = 1.0,
        alpha_labels: float | None = None,
        loss: str | Loss = "squared",
        fit_intercept: bool = True,
        init: Literal["svd", "random"] = "svd",
        solver: Literal["auto", "direct", "cg", "tron"] = "auto",
        kernel: str | Callable = "linear",
        gamma: float | None = None,
        max_iter: int = 30,
        tol: float = 1e-3,
        warm_start: bool = False,
        absent: Literal["negative", "unknown"] = "negative",
        random_state: Any = None,
        n_jobs: int | None = None,
        device: str = "auto",
        dtype: Any = "float32",
        verbose: int = 0,
        callbacks: Sequence[Callable[[Iteration], Any]] | None = None,
    ) -> None:
        self.n_components = n_components
        self.alpha = alpha
        self.alpha_labels = alpha_labels
        self.loss = loss
        self.fit_intercept = fit_intercept
        self.init = init
        self.solver = solver
        self.kernel = kernel
        self.gamma = gamma
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.absent = absent
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device
        self.dtype = dtype
        self.verbose = verbose
        self.callbacks = callbacks

    def _learn(self, X: Any, labels: Labels) -> Outcome:
        basis = self._training_basis(X)
        problem = self._problem(basis, labels)
        state = self._start(problem, self._rank(basis.shape[1], labels.shape[1]))
        interrupt = self._run(problem, state, self._choose_solver(problem))
        self._store_history(state)
        self._store_all(problem, state, labels)
        self._remember(problem, self._blank_cells(len(labels)), state)
        return self._outcome(state, interrupt)

    def _store_all(self, problem: LowRank, state: Alternation, labels: Labels, **side: Any) -> None:
        self._store_features(state.W)
        self.label_factors_, self.threshold_ = state.H, get_loss(self.loss).threshold

    def _check_parameters(self) -> None:
        self._check_shared()
        check_number("alpha", self.alpha, Real, least=0)
        check_number("alpha_labels", self.alpha_labels, Real, least=0, optional=True)
        check_choice("solver", self.solver, ("auto", "direct", "cg", "tron"))
        check_number("gamma", self.gamma, Real, least=0, optional=True)
        if not callable(self.kernel):
            check_choice("kernel", self.kernel, ("linear", "rbf", "precomputed"))

    def _training_basis(self, X: Any) -> Any:
        """Return what stands left of W in fit, and keep the training rows where a kernel will ask for them."""
        if self.kernel == "precomputed" and X.shape[0] != X.shape[1]:
            raise ValueError(
                f"kernel='precomputed' takes the n×n kernel matrix of the training rows, and X has shape {X.shape}."
            )
        self.__dict__.pop("training_rows_", None)
        if self.kernel not in ("linear", "precomputed"):
            self.training_rows_ = X
        return self._expand(X)

    def _expand(self, X: Any) -> Any:
        """Return what stands left of W: the features themselves, or their kernel with the training rows."""
        if self.kernel in ("linear", "precomputed"):
            return X
        rows = self.training_rows_
        values = self.kernel(X, rows) if callable(self.kernel) else rbf_kernel(X, rows, gamma=self.gamma)
        if np.shape(values) != (X.shape[0], rows.shape[0]):
            raise ValueError(
                f"kernel={self.kernel!r} returned shape {np.shape(values)} for {X.shape[0]} rows and {rows.shape[0]} "
                "training rows; return an array with one value for each pair of them."
            )
        return np.asarray(values, self.dtype)

    def _problem(self, basis: Any, labels: Labels) -> LowRank:
        kernels, dtype = self._kernels(), np.dtype(self.dtype).type
        return LowRank(
            label_cells(labels, get_loss(self.loss), kernels, dtype),
            make_features(basis, kernels, dtype, constant=self.fit_intercept),
            alpha_left=float(self.alpha),
            alpha_right=None if self.alpha_labels is None else float(self.alpha_labels),
        )

    def _problem_with(self, rows: Rows, **side: Any) -> tuple[LowRank, Cells | None]:
        return self._problem(self._expand(rows.X), rows.labels), self._blank_cells(len(rows.labels))

    def _blank_cells(self, rows: int) -> Cells | None:
        """Return the cells of a label that none of so many rows has; None where an absent label is unknown."""
        if self.absent == "unknown":
            return None
        nothing = Labels.of_patterns(sp.csr_array((rows, 1), dtype=bool))
        return label_cells(nothing, get_loss(self.loss), self._kernels(), np.dtype(self.dtype).type)

    def _choose_solver(self, problem: LowRank) -> Solver:
        name = self.solver
        if name == "auto":
            name = "direct" if isinstance(problem.cells, AllCellsSquared) else "cg"
        solvers: dict[str, Solver] = {"direct": Direct(), "cg": NewtonCG(), "tron": TRON()}
        return solvers[name]

    def _check_loaded(self) -> None:
        self._check_memory()
        rows = self.training_rows_.shape[0] if hasattr(self, "training_rows_") else self.n_features_in_
        k = len(self.intercept_factors_)
        shapes = (self.feature_factors_.shape, self.label_factors_.shape)
        if shapes != ((rows, k), (self.n_labels_, k)):
            raise ValueError(f"factors of shapes {shapes} for {rows} features, {self.n_labels_} labels and rank {k}")

    def _previous_factors(self) -> tuple[NDArray, NDArray]:
        return self._stacked_factors(), self.label_factors_

    def _embed(self, X: Any) -> NDArray:
        return self._embed_features(self._expand(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags
