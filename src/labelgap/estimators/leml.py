"""LEML: low-rank empirical risk minimisation for multi-label learning, with missing labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.metrics.pairwise import rbf_kernel

from labelgap.estimators.about import About
from labelgap.estimators.base import MultiLabelEstimator, Outcome
from labelgap.estimators.incremental import ALTERNATIONS, Given, check_no_past, partial_fit
from labelgap.estimators.low_rank import (
    check_alternation,
    embed_rows,
    fit_bound,
    join_factors,
    split_factors,
)
from labelgap.estimators.parameters import check_choice, check_number
from labelgap.estimators.scores import FactorScores
from labelgap.kernels import get_backend
from labelgap.losses import Loss, get_loss
from labelgap.objectives.cells import label_cells
from labelgap.objectives.problem import (
    BoundData,
    Iteration,
    Penalties,
    Problem,
    SideData,
    bind,
)
from labelgap.objectives.update import Memory, Previous
from labelgap.observations import Labels
from labelgap.solvers import Fit


class LEML(MultiLabelEstimator):
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
    _binding = ("fit_intercept", "kernel", "gamma", "absent", "dtype", "device")  # what bound data depend on
    feature_factors_: NDArray
    intercept_factors_: NDArray
    label_factors_: NDArray
    threshold_: float
    if TYPE_CHECKING:  # what a class declares, every model file must have; older ones have no memory
        memory_: dict[str, NDArray]

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

    def partial_fit(
        self, X: Any, Y: Any, observed: Any = None, *, past: Any = None, alternations: int = ALTERNATIONS
    ) -> Self:
        """Learn from further rows, which may have further labels, without learning from nothing.

        With the rows of before as ``past``, W first learns from the further rows, which stand for the others in what
        it costs to change it, and H from all rows. Where that lowered F by more than a few ``tol``, alternations over
        all rows follow, each half step by a few products: with enough of them the result is that of a fit.

        Without them W stays and H alone learns, from the new rows and from what is remembered of the old ones:

            min over h_j of Σ over new rows of ℓ(Y_ij, b_i·h) + ½ (h − h_j)ᵀ (w_j M + α) (h − h_j)

        With squared loss and every label known w_j M = BᵀB, the Gram matrix of all rows before, and this is the
        recursive form of ridge regression on all of them: exact for this W, as far as the H of the fit was. With
        gaps and with other losses w_j M stands for a curvature that each label has of its own. A new label starts
        as one that no old row has or, with ``absent="unknown"``, as one of which they say nothing.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Further rows.
        Y : array-like, sparse matrix or Labels of shape (n, L)
            Their labels: those of before first, then new ones. A data frame's columns are matched by name.
        observed : array-like or sparse matrix of shape (n, L), optional
            True where Y is known.
        past : pair of X and Y, optional
            Rows learned from before, all or some. Its Y has the labels of before, or the new ones as well; those it
            does not have are negative there or unknown, as ``absent`` says.
        alternations : int, default=3
            The most alternations with ``past``, the first one included; ``tol`` ends them sooner.

        Returns
        -------
        self

        Examples
        --------
        A third label comes with the third and fourth row:

        >>> from labelgap import LEML
        >>> model = LEML(n_components=2, alpha=0.01, random_state=0)
        >>> model = model.fit([[1.0, 0.0], [0.0, 1.0]], [[1, 0], [0, 1]])
        >>> model.partial_fit([[1.0, 0.1], [0.1, 1.0]], [[1, 0, 0], [0, 1, 1]]).n_labels_
        3
        """
        if not hasattr(self, "label_factors_"):
            check_no_past(past)
            return self._fit(X, Y, observed)
        partial_fit(self, Given(X, Y, observed, past, alternations), check_rows=self._check_rows)
        return self

    def _check_parameters(self) -> None:
        self._check_common()
        check_alternation(self)
        check_number("alpha", self.alpha, Real, least=0)
        check_number("alpha_labels", self.alpha_labels, Real, least=0, optional=True)
        check_choice("solver", self.solver, ("auto", "direct", "cg", "tron"))
        check_number("gamma", self.gamma, Real, least=0, optional=True)
        if not callable(self.kernel):
            check_choice("kernel", self.kernel, ("linear", "rbf", "precomputed"))

    def _check_fit(self, X: Any, Y: Any, observed: Any) -> tuple[Any, Labels]:
        X, labels = super()._check_fit(X, Y, observed)
        if self.kernel == "precomputed" and X.shape[0] != X.shape[1]:
            raise ValueError(
                f"kernel='precomputed' takes the n×n kernel matrix of the training rows, and X has shape {X.shape}."
            )
        return X, labels

    def _learn(self, X: Any, labels: Labels) -> Outcome:
        self.__dict__.pop("training_rows_", None)
        return fit_bound(self, self._bind(X, labels))

    def _bind(self, X: Any, labels: Labels, side: SideData | None = None) -> BoundData:
        kernels, dtype = self._kernels(), np.dtype(self.dtype).type
        if self.kernel not in ("linear", "precomputed"):
            self.training_rows_ = getattr(self, "training_rows_", X)
            X = self._expand(X)
        return bind(X, labels, kernels, dtype, constant=bool(self.fit_intercept))

    def _problem(self, data: BoundData) -> Problem:
        loss, alpha, n = get_loss(self.loss), float(self.alpha), len(data.labels)
        blank = None
        if self.absent != "unknown":
            blank = label_cells(Labels.of_patterns(sp.csr_array((n, 1), dtype=bool)), loss, data.backend, data.dtype)
        return Problem(
            data.backend,
            label_cells(data.labels, loss, data.backend, data.dtype),
            data.left,
            data.right,
            Penalties(alpha, alpha if self.alpha_labels is None else float(self.alpha_labels)),
            blank_cells=blank,
        )

    def _store(
        self, data: BoundData, problem: Problem, fit: Fit, memory: Memory | None, *, further: bool = False
    ) -> None:
        W, self.label_factors_ = data.backend.to_numpy(fit.W), data.backend.to_numpy(fit.H)
        self.feature_factors_, self.intercept_factors_ = split_factors(W, bool(self.fit_intercept))
        self.threshold_ = get_loss(self.loss).threshold
        self.__dict__.pop("memory_", None)
        if memory is not None:
            self.memory_ = memory._asdict()

    def _previous(self) -> Previous:
        W = join_factors(self.feature_factors_, self.intercept_factors_, bool(self.fit_intercept))
        memory = getattr(self, "memory_", None)
        return Previous(W, self.label_factors_, None if memory is None else Memory(**memory))

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

    def _embed(self, X: Any) -> NDArray:
        kernels = get_backend()
        return embed_rows(self._expand(X), self.feature_factors_, self.intercept_factors_, kernels, self.dtype)

    def _scores(self, X: Any) -> FactorScores:
        return FactorScores(self._embed(X), self.label_factors_, self.threshold_, get_backend())

    def _check_loaded(self) -> None:
        k = len(self.intercept_factors_)
        if hasattr(self, "memory_"):
            Memory(**self.memory_).check(len(self.label_factors_), k)
        rows = self.training_rows_.shape[0] if hasattr(self, "training_rows_") else self.n_features_in_
        shapes = (self.feature_factors_.shape, self.label_factors_.shape)
        if shapes != ((rows, k), (self.n_labels_, k)):
            raise ValueError(f"factors of shapes {shapes} for {rows} features, {self.n_labels_} labels and rank {k}")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags
