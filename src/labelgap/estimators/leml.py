"""LEML: low-rank empirical risk minimisation for multi-label learning with missing labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, DTypeLike, NDArray

from labelgap.estimators.base import About, MultiLabelEstimator, Outcome
from labelgap.estimators.low_rank import (
    MAX_UPDATE_ALTERNATIONS,
    check_alternation,
    check_no_past,
    check_no_propensity,
    embed_rows,
    fit_bound,
    join_factors,
    partial_fit,
    split_factors,
    weigh_labels,
)
from labelgap.estimators.parameters import check_choice, check_number, check_sample_weight
from labelgap.estimators.scores import FactorScores
from labelgap.kernels.row_shards import RowShards
from labelgap.losses import Loss, get_loss
from labelgap.objectives.positive_unlabelled import bind_label_cells
from labelgap.objectives.problem import (
    BoundData,
    Iteration,
    Penalties,
    Problem,
    SideData,
    bind,
)
from labelgap.objectives.update import Memory, PreviousFit
from labelgap.observations import Labels
from labelgap.observations.arguments import LabelsLike, MatrixLike, RandomSeed
from labelgap.solvers import Fit


class LEML(MultiLabelEstimator):
    """Low-rank linear model of all labels, learned from the known cells (Yu, Jain, Kar and Dhillon 2014).

    Minimises over W (d×k) and H (L×k)

        F(W, H) = Σ over known (i, j) of ℓ(Y_ij, x_iᵀ W h_j) + (α/2) ‖W‖² + (α_H/2) ‖H‖²

    by alternating between W and H (eq. 5 of the paper). With squared loss and every label known, no step takes time
    proportional to n·L: up to 1,000 features or rows, each half step is exact after one eigendecomposition of XᵀX;
    beyond that it takes about a dozen products of O((nnz(X) + nnz(Y)) k + (n + L) k²).

    Parameters
    ----------
    n_components : int, optional
        The rank k, at most min(d, L). Default: min(d, L, 100).
    alpha : float, default=1.0
        The penalty α ≥ 0 of W, and of H unless ``alpha_labels`` is set.
    alpha_labels : float, optional
        The penalty α_H ≥ 0 of H.
    loss : {"squared", "logistic", "squared_hinge"} or Loss, default="squared"
        The loss ℓ of a cell.
    propensity : "counts" or array of shape (L,), optional
        The probability p_j that a true label j is written, given or estimated from the numbers of positives
        (:func:`~labelgap.label_propensities`). The loss of a positive of label j then has the weight 2/p_j − 1
        (Qaraei, Schultheis, Gupta and Babbar 2021). Excludes ``partial_fit``.
    fit_intercept : bool, default=True
        Append a constant feature 1, penalised like the others.
    init : {"svd", "random"}, default="svd"
        Start H from the leading singular vectors of XᵀY, or at random.
    solver : {"auto", "direct", "cg", "tron"}, default="auto"
        The solver of a half step. "direct" is exact, and requires squared loss and known labels; "cg" is Newton's
        method with conjugate gradients and backtracking; "tron" uses a trust region instead. "auto" is "direct" if
        possible, else "cg"; with more than 1,000 features and rows it takes a few cheap steps in W for each solution
        in H instead.
    kernel : {"linear", "rbf", "precomputed"} or callable, default="linear"
        Replace each row of X by its kernel values with the training rows (the paper's kernel extension). A callable
        takes rows and training rows and returns the matrix of their kernel values. With "precomputed", X is this
        matrix, n×n in :meth:`fit`.
    gamma : float, optional
        The parameter of the rbf kernel; 1 / d by default.
    max_iter : int, default=30
        Maximum number of alternations.
    tol : float, default=1e-3
        Stop when an alternation lowers F by less than this share of it.
    warm_start : bool, default=False
        Start from the factors of the previous fit.
    absent : {"negative", "unknown"}, default="negative"
        Meaning of a cell that a sparse Y does not store.
    random_state : int, RandomState or None
        Seed of the start.
    n_jobs : int, optional
        Number of threads; all cores by default.
    device : {"auto", "cpu", "cuda", "dask"}, default="auto"
        The device to fit on: "cuda" is an NVIDIA GPU, through PyTorch, and "auto" uses one if there is one; "dask" is
        the cluster of the current Dask client. Predictions are computed on the CPU.
    dtype : {"float32", "float64"}, default="float32"
        The precision of the factors. Objectives are summed in float64.
    verbose : int, default=0
        1 shows a progress bar, 2 prints a line for each alternation.
    callbacks : sequence of callables, optional
        Functions that are called with an :class:`Iteration` after each alternation; the fit stops if one returns
        True.

    Attributes
    ----------
    feature_factors_ : ndarray of shape (d, k)
        W; with a kernel it has a row for each training row.
    intercept_factors_ : ndarray of shape (k,)
        The row of W of the constant feature; 0 without one.
    label_factors_ : ndarray of shape (L, k)
        H.
    memory_ : dict of arrays
        The summary of the training rows that :meth:`partial_fit` needs.
    objective_ : list of float
        F after each alternation.
    n_iter_ : int
        The number of alternations.
    status_ : str
        "converged", "max_iter", "stalled" (rounding errors exceed the progress) or "stopped" (by a callback or
        Ctrl-C).

    Examples
    --------
    The third label of the first row is unknown; the model learns from the other cells:

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
    _takes_row_shards = True
    _binding = (
        "fit_intercept",
        "kernel",
        "gamma",
        "absent",
        "dtype",
        "device",
    )  # used by _bind
    feature_factors_: NDArray
    intercept_factors_: NDArray
    label_factors_: NDArray
    threshold_: float
    if TYPE_CHECKING:  # model files must have all declared attributes; older files have no memory_
        memory_: dict[str, NDArray]

    def __init__(
        self,
        n_components: int | None = None,
        *,
        alpha: float = 1.0,
        alpha_labels: float | None = None,
        loss: str | Loss = "squared",
        propensity: Any = None,
        fit_intercept: bool = True,
        init: Literal["svd", "random"] = "svd",
        solver: Literal["auto", "direct", "cg", "tron"] = "auto",
        kernel: str | Callable = "linear",
        gamma: float | None = None,
        max_iter: int = 30,
        tol: float = 1e-3,
        warm_start: bool = False,
        absent: Literal["negative", "unknown"] = "negative",
        random_state: RandomSeed = None,
        n_jobs: int | None = None,
        device: str = "auto",
        dtype: DTypeLike = "float32",
        verbose: int = 0,
        callbacks: Sequence[Callable[[Iteration], Any]] | None = None,
    ) -> None:
        self.n_components = n_components
        self.alpha = alpha
        self.alpha_labels = alpha_labels
        self.loss = loss
        self.propensity = propensity
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

    def fit(
        self,
        X: MatrixLike,
        Y: LabelsLike,
        observed: MatrixLike | None = None,
        *,
        sample_weight: ArrayLike | None = None,
        calibrate: bool | str = False,
    ) -> Self:
        """Fit the model to rows X and labels Y.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Features.
        Y : array-like, sparse matrix or Labels of shape (n, L)
            Labels: 0/1, bool or −1/+1; NaN is unknown.
        observed : array-like or sparse matrix of shape (n, L), optional
            True where Y is known. By default all cells are known except NaN.
        sample_weight : array of shape (n,), optional
            Weights of the rows, which multiply the losses of their cells.
        calibrate : bool or str, default=False
            Whether to calibrate scores to probabilities and to choose thresholds, on rows that are held out of
            further fits; see :meth:`calibrate`. A str is the aim of the thresholds; True means "f1". Weights exclude
            it.

        Returns
        -------
        self
        """
        return self._fit(X, Y, observed, SideData(row_weights=sample_weight), calibrate=calibrate)

    def partial_fit(
        self,
        X: MatrixLike,
        Y: LabelsLike,
        observed: MatrixLike | None = None,
        *,
        past: Any = None,
        alternations: int = MAX_UPDATE_ALTERNATIONS,
    ) -> Self:
        """Update the model with further rows, which may have new labels.

        With the earlier rows as ``past``, W is first updated from the further rows, which represent all rows in the
        curvature of F, then H from all rows. If this lowers F by more than a few ``tol``, alternations over all rows
        follow, with few products in each half step. With enough alternations the result is that of :meth:`fit`.

        Without ``past``, W is fixed, and H is updated from the new rows and a summary of the old ones:

            min over h_j of Σ over new rows of ℓ(Y_ij, b_i·h) + ½ (h − h_j)ᵀ (w_j M + α) (h − h_j)

        With squared loss and every label known, w_j M = BᵀB is the Gram matrix of all earlier rows, and the update is
        recursive ridge regression: exact for this W, if the H of the fit was exact. With gaps or other losses, w_j M
        approximates the curvature of each label. A new label is negative in all old rows, or unknown there with
        ``absent="unknown"``.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Further rows.
        Y : array-like, sparse matrix or Labels of shape (n, L)
            Their labels: those of the model first, then new ones. The columns of a data frame are matched by name.
        observed : array-like or sparse matrix of shape (n, L), optional
            True where Y is known.
        past : pair of X and Y, optional
            All or some of the rows learned from before. Y has the labels of the model, or the new labels as well;
            missing columns are negative or unknown, depending on ``absent``.
        alternations : int, default=3
            Maximum number of alternations with ``past``, including the first; ``tol`` may end them earlier.

        Returns
        -------
        self

        Examples
        --------
        The third and fourth row have a third label:

        >>> from labelgap import LEML
        >>> model = LEML(n_components=2, alpha=0.01, random_state=0)
        >>> model = model.fit([[1.0, 0.0], [0.0, 1.0]], [[1, 0], [0, 1]])
        >>> model.partial_fit([[1.0, 0.1], [0.1, 1.0]], [[1, 0, 0], [0, 1, 1]]).n_labels_
        3
        """
        if not hasattr(self, "label_factors_"):
            check_no_past(past)
            return self._fit(X, Y, observed)
        check_no_propensity(self)
        partial_fit(self, X, Y, observed, past, alternations, check_rows=self._check_rows)
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
                f"kernel='precomputed' needs the n×n kernel matrix of the training rows, and X has shape {X.shape}."
            )
        return X, labels

    def _learn(self, X: Any, labels: Labels, side: SideData | None = None) -> Outcome:
        self.__dict__.pop("training_rows_", None)
        return fit_bound(self, self._bind(X, labels, side))

    def _bind(self, X: Any, labels: Labels, side: SideData | None = None) -> BoundData:
        kernels, dtype = self._kernels(), np.dtype(self.dtype).type
        if self.kernel != "linear" and isinstance(X, RowShards):
            raise ValueError(f"kernel={self.kernel!r} needs all rows here; pass a matrix, or kernel='linear'.")
        if self.kernel not in ("linear", "precomputed"):
            self.training_rows_ = getattr(self, "training_rows_", X)
            X = self._expand(X)
        if side is not None and side.row_weights is not None:
            side = SideData(row_weights=check_sample_weight(side.row_weights, len(labels)))
        return bind(X, labels, kernels, dtype, constant=bool(self.fit_intercept), side=side)

    def _problem(self, data: BoundData) -> Problem:
        loss, alpha, n = get_loss(self.loss), float(self.alpha), len(data.labels)
        blank, positive = None, weigh_labels(self.propensity, data.labels)
        if self.absent != "unknown":
            blank = bind_label_cells(
                Labels.of_patterns(sp.csr_array((n, 1), dtype=bool)), loss, data.backend, data.dtype, data.importance
            )
        return Problem(
            data.backend,
            bind_label_cells(data.labels, loss, data.backend, data.dtype, data.importance, positive),
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

    def _previous(self) -> PreviousFit:
        W = join_factors(self.feature_factors_, self.intercept_factors_, bool(self.fit_intercept))
        memory = getattr(self, "memory_", None)
        return PreviousFit(W, self.label_factors_, None if memory is None else Memory(**memory))

    def _expand(self, X: Any) -> Any:
        """Return the factor left of W: the features, or their kernel values with the training rows."""
        if self.kernel in ("linear", "precomputed"):
            return X
        rows = self.training_rows_
        from sklearn.metrics.pairwise import rbf_kernel  # slow to import, and most models need no kernel

        values = self.kernel(X, rows) if callable(self.kernel) else rbf_kernel(X, rows, gamma=self.gamma)
        if np.shape(values) != (X.shape[0], rows.shape[0]):
            raise ValueError(
                f"kernel={self.kernel!r} returned shape {np.shape(values)} for {X.shape[0]} rows and {rows.shape[0]} "
                "training rows; return an array with one value for each pair of them."
            )
        return np.asarray(values, self.dtype)

    def _embed(self, X: Any) -> Any:
        kernels = self._prediction_kernels(X.shape[0])
        return embed_rows(self._expand(X), self.feature_factors_, self.intercept_factors_, kernels, self.dtype)

    def _scores(self, X: Any) -> FactorScores:
        kernels = self._prediction_kernels(X.shape[0])
        return FactorScores(self._embed(X), self.label_factors_, self.threshold_, kernels)

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
