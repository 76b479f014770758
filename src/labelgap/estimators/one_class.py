"""OneClassMF: one-class matrix factorization of positives, with features and graphs of rows and labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, DTypeLike, NDArray
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted

from labelgap.estimators.base import About, MultiLabelEstimator, Outcome
from labelgap.estimators.label_models import scale_by_frequency
from labelgap.estimators.low_rank import (
    MAX_UPDATE_ALTERNATIONS,
    LabelledRows,
    UpdateContext,
    check_alternation,
    check_no_past,
    check_no_propensity,
    check_pair_of_weights,
    check_penalty,
    check_symmetric,
    embed_rows,
    fit_bound,
    join_factors,
    partial_fit,
    split_factors,
    weigh_labels,
)
from labelgap.estimators.parameters import check_choice, check_k, check_number, check_weights, choose_weights
from labelgap.estimators.scores import FactorScores
from labelgap.kernels import Backend, get_backend
from labelgap.losses import LOSSES, Loss, get_loss
from labelgap.objectives.base import Ridge, Sum
from labelgap.objectives.cells import BoundCells, Weights
from labelgap.objectives.features import Features, ProductsOnly
from labelgap.objectives.positive_unlabelled import PositiveUnlabelled
from labelgap.objectives.problem import BoundData, Iteration, Penalties, Problem, SideData, bind, make_graph_terms
from labelgap.objectives.update import Memory, PreviousFit
from labelgap.observations import Labels, as_labels, check_sparse_indices
from labelgap.observations.arguments import LabelsLike, MatrixLike, RandomSeed
from labelgap.observations.labels import append_labels, stack_rows
from labelgap.solvers import Fit, NewtonCG
from labelgap.solvers.base import LinearMap

MAX_EIGENVECTOR_RATIO = 4  # of the eigenvectors' numbers to those of X, with which they save time


class OneClassMF(MultiLabelEstimator):
    """Low-rank model of positive–unlabelled data, with features and graphs of rows and labels.

    Minimises over W and H, with s = B Cᵀ, B = X W (or B = W without features) and C = Z H (or C = H)

        Σ over positives of ℓ(1, s_ij) + Σ over all other cells of p_i q_j · ½ (ā − s_ij)²
        + (α/2) ‖W‖² + (α_H/2) ‖H‖² + (γ/2) tr(BᵀL B) + (γ_H/2) tr(CᵀL_H C)

    (Yu, Huang, Dhillon and Lin 2017, eqs. 2 and 3). Every cell of Y that is not a known positive is unlabelled. The
    sum over unlabelled cells is computed from Gram matrices, so a step takes time linear in the number of positives.

    With squared loss the paper's ρ, λ and λ_w λ_g are the weight, α and γ here; with other losses these are twice
    the paper's.

    Parameters
    ----------
    n_components : int, optional
        The rank k. Default: 100, or the number of features, rows or labels if one of them is smaller.
    loss : {"logistic", "squared", "squared_hinge"} or Loss, default="logistic"
        The loss ℓ of a positive.
    weight_unlabelled : float or pair of arrays, default=0.1
        The weight of an unlabelled cell: a number, or p (for each row) and q (for each label).
    negative_target : float, default=-1.0
        ā, the target score of an unlabelled cell; below 0 for the margin losses, logistic and squared hinge.
    loss_unlabelled : {"squared", "logistic", "squared_hinge"} or Loss, default="squared"
        The loss of an unlabelled cell. All losses but "squared" visit every cell, in blocks: they are for small data.
    negatives : {"all", "subsampled"}, default="all"
        Use all unlabelled cells, or a random sample of ``negative_ratio`` times the number of positives.
    negative_ratio : float, default=1.0
        See ``negatives``.
    alpha : float or array, default=1.0
        The penalty of W: a number, or one for each row of W (for each feature, or for each row of Y without
        features). The constant feature gets the mean penalty.
    alpha_labels : float or array, optional
        The same for H. Default: ``alpha``, or its mean.
    frequency_power : float, default=0.0
        r, by which frequent labels get more weight on their unlabelled cells and stronger penalties: for a label with
        f_j positives q_j is multiplied by ((f_j + 1) / m)^r, and the penalty of its row of H by ((f_j + 1) / m)^2r,
        where m is the mean of f + 1 over all positives. The penalties of label features stay as they are.
    propensity : "counts" or array of shape (L,), optional
        The probability p_j that a true label j is written, given or estimated from the numbers of positives
        (:func:`~labelgap.label_propensities`). The loss of a positive of label j then has the weight 2/p_j − 1
        (Qaraei, Schultheis, Gupta and Babbar 2021). Excludes ``partial_fit``.
    graph_alpha : float, default=1.0
        γ, the weight of the ``row_graph`` passed to :meth:`fit`.
    label_graph_alpha : float, optional
        γ_H, the weight of the ``label_graph``. Default: ``graph_alpha``.
    fit_intercept : bool, default=True
        Append a constant 1 to the row features, penalised like the others.
    init : {"svd", "random"}, default="svd"
        Start H from the leading singular vectors of XᵀY, or at random.
    solver : {"auto", "cg", "tron", "gd", "direct"}, default="auto"
        The solver of a half step. "cg" is Newton's method with preconditioned conjugate gradients, "tron" the same in
        a trust region, "gd" gradient descent whose line search takes a pass over the positives. "direct" is exact,
        and requires squared loss with weight 1, where the model is that of LEML. "auto" is "direct" if possible, else
        "cg"; with more than 1,000 features and rows it takes a few cheap steps in W for each solution in H instead.
    precompute : bool or "auto", default="auto"
        Compute the d×d matrix Xᵀ diag(p) X once; "auto" does so for few features, d² + dk < nk.
    max_iter : int, default=15
        Maximum number of alternations.
    tol : float, default=1e-3
        Stop when an alternation lowers the objective by less than this share of it.
    warm_start : bool, default=False
        Start from the factors of the previous fit.
    keep_rows : bool, default=False
        Store the factors and positives of the training rows, for :meth:`recommend`. A model without row features
        always stores them.
    random_state : int, RandomState or None
        Seed of the start and of the sample of negatives.
    n_jobs : int, optional
        Number of threads; all cores by default.
    device : {"auto", "cpu", "cuda", "dask"}, default="auto"
        The device to fit on: "cuda" is an NVIDIA GPU, through PyTorch, and "auto" uses one if there is one; "dask" is
        the cluster of the current Dask client. Predictions are computed on the CPU.
    dtype : {"float32", "float64"}, default="float32"
        The precision of the factors.
    verbose : int, default=0
        1 shows a progress bar, 2 prints a line for each alternation.
    callbacks : sequence of callables, optional
        Functions that are called with an :class:`Iteration` after each alternation; the fit stops if one returns
        True.

    Attributes
    ----------
    label_factors_ : ndarray of shape (L, k)
        C.
    feature_factors_, intercept_factors_ : ndarray of shape (d, k) and (k,)
        W; without row features, an array without rows and zeros.
    label_feature_factors_ : ndarray
        H, if there are label features.
    row_factors_ : ndarray of shape (n, k)
        B, if training rows are stored.
    seen_ : csr_array of shape (n, L)
        The positives of the training rows, if these are stored.
    row_weights_ : ndarray of shape (n,)
        The weights of the training rows, if these are stored and have weights.
    unlabelled_share_ : float
        The share of the unlabelled cells that were used: 1, or less if they were subsampled.
    label_scales_ : ndarray of shape (L, 1)
        The factors of q with a ``frequency_power``.
    memory_, objective_, n_iter_, status_ :
        As in :class:`LEML`.

    Examples
    --------
    Two groups of readers have read different books; recommend one to a reader of each group:

    >>> import numpy as np
    >>> from labelgap import OneClassMF
    >>> Y = np.array([[1, 1, 0, 0], [1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 1], [0, 0, 1, 0], [0, 0, 1, 1]])
    >>> model = OneClassMF(n_components=2, alpha=0.1, random_state=0).fit(None, Y)
    >>> model.recommend([2, 4], k=1)[0].ravel()
    array([1, 3])
    """

    about: ClassVar[About] = About(
        "Low-rank factors of rows and labels; every cell that is not positive is a weak negative.",
        "Yu, Huang, Dhillon and Lin 2017",
        positives_only=True,
        graph=True,
        fit="(z + y) k + (n + L) k² an alternation",
        predict="(z/n + L) k",
    )

    _uses_device = True
    _takes_row_shards = True
    _binding = ("fit_intercept", "dtype", "device")  # used by _bind
    feature_factors_: NDArray
    intercept_factors_: NDArray
    label_factors_: NDArray
    threshold_: float
    unlabelled_share_: float
    if TYPE_CHECKING:  # model files must have all declared attributes; these are optional
        memory_: dict[str, NDArray]
        row_factors_: NDArray
        seen_: sp.csr_array
        row_weights_: NDArray
        label_scales_: NDArray

    def __init__(
        self,
        n_components: int | None = None,
        *,
        loss: str | Loss = "logistic",
        weight_unlabelled: Any = 0.1,
        negative_target: float = -1.0,
        loss_unlabelled: str | Loss = "squared",
        negatives: Literal["all", "subsampled"] = "all",
        negative_ratio: float = 1.0,
        alpha: Any = 1.0,
        alpha_labels: Any = None,
        frequency_power: float = 0.0,
        propensity: Any = None,
        graph_alpha: float = 1.0,
        label_graph_alpha: float | None = None,
        fit_intercept: bool = True,
        init: Literal["svd", "random"] = "svd",
        solver: Literal["auto", "cg", "tron", "gd", "direct"] = "auto",
        precompute: bool | Literal["auto"] = "auto",
        max_iter: int = 15,
        tol: float = 1e-3,
        warm_start: bool = False,
        keep_rows: bool = False,
        random_state: RandomSeed = None,
        n_jobs: int | None = None,
        device: str = "auto",
        dtype: DTypeLike = "float32",
        verbose: int = 0,
        callbacks: Sequence[Callable[[Iteration], Any]] | None = None,
    ) -> None:
        self.n_components = n_components
        self.loss = loss
        self.weight_unlabelled = weight_unlabelled
        self.negative_target = negative_target
        self.loss_unlabelled = loss_unlabelled
        self.negatives = negatives
        self.negative_ratio = negative_ratio
        self.alpha = alpha
        self.alpha_labels = alpha_labels
        self.frequency_power = frequency_power
        self.propensity = propensity
        self.graph_alpha = graph_alpha
        self.label_graph_alpha = label_graph_alpha
        self.fit_intercept = fit_intercept
        self.init = init
        self.solver = solver
        self.precompute = precompute
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.keep_rows = keep_rows
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
        row_graph: MatrixLike | None = None,
        label_graph: MatrixLike | None = None,
        label_features: MatrixLike | None = None,
        row_weights: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        calibrate: bool | str = False,
    ) -> Self:
        """Fit the model to the positives of Y, with or without features X.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d), or None
            Features of the rows. None fits a recommender that identifies rows by their number.
        Y : array-like, sparse matrix or Labels of shape (n, L)
            Positives; all other cells are unlabelled.
        observed : array-like or sparse matrix of shape (n, L), optional
            True where Y is known; a positive that is not known is unlabelled.
        row_graph : sparse matrix of shape (n, n), optional
            Similarities ≥ 0 between rows. A directed graph is made symmetric, with a warning.
        label_graph : sparse matrix of shape (L, L), optional
            Similarities ≥ 0 between labels.
        label_features : array-like or sparse matrix of shape (L, e), optional
            Features Z of the labels.
        row_weights : array of shape (n,), optional
            Weights of the rows, which multiply the losses of all their cells (the C_ij of eq. 2).
        sample_weight : array of shape (n,), optional
            scikit-learn's name of ``row_weights``.
        calibrate : bool or str, default=False
            As in :meth:`LEML.fit`; graphs, label features and row weights exclude it.

        Returns
        -------
        self
        """
        side = SideData(row_graph, label_graph, label_features, choose_weights(row_weights, sample_weight))
        return self._fit(X, Y, observed, side, calibrate=calibrate)

    def partial_fit(
        self,
        X: MatrixLike,
        Y: LabelsLike,
        observed: MatrixLike | None = None,
        *,
        past: Any = None,
        alternations: int = MAX_UPDATE_ALTERNATIONS,
        row_graph: MatrixLike | None = None,
        label_graph: MatrixLike | None = None,
        label_features: MatrixLike | None = None,
        row_weights: ArrayLike | None = None,
    ) -> Self:
        """Update the model with further rows, which may have new labels.

        The method is that of :meth:`LEML.partial_fit`. A model without features stores its rows, and needs ``past``
        only to tell which of them have a new label; it first computes the factors of the new rows. Values for each
        row or label (weights, graphs, features, array parameters) must cover all rows and labels of the update: those
        of ``past``, then the further ones. Graphs and label features require the earlier rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d), or None
            Further rows; None if the model has no features.
        Y, observed :
            Their positives, as in :meth:`fit`: the labels of the model first, then new ones.
        past : pair of X and Y, optional
            All or some of the rows learned from before; labels that this Y does not have are unlabelled.
        alternations : int, default=3
            Maximum number of alternations with ``past``, including the first; ``tol`` may end them earlier.
        row_graph, label_graph, label_features, row_weights :
            As in :meth:`fit`. A model without features stores the weights of its rows, so that ``row_weights`` may
            hold the weights of the further rows only; they default to 1.

        Returns
        -------
        self
        """
        side = SideData(row_graph, label_graph, label_features, row_weights)
        if not hasattr(self, "label_factors_"):
            check_no_past(past)
            return self._fit(X, Y, observed, side)
        check_no_propensity(self)
        check_side(self, past, side)
        partial_fit(
            self,
            X,
            Y,
            observed,
            past,
            alternations,
            check_rows=self._check_further_rows,
            make_context=lambda rows, before: self._update_context(rows, before, side),
            stored_rows=None if self.n_features_in_ else LabelledRows(None, Labels.of_patterns(self.seen_)),
        )
        return self

    def recommend(self, users: MatrixLike, k: int = 10, *, exclude_seen: bool = True) -> tuple[NDArray, NDArray]:
        """Return the indices and scores of the k best labels for each user, two (users, k) arrays, best first.

        Parameters
        ----------
        users : array of int, or a sparse or dense matrix of shape (users, L)
            Numbers of training rows, or the positives of new users, whose factors are computed first.
        k : int, default=10
            Number of labels to return.
        exclude_seen : bool, default=True
            Exclude the labels that a user already has. If fewer than k remain, the last have the score −∞.
        """
        check_is_fitted(self)
        check_k(k, self.n_labels_)
        with self._compute():
            if sp.issparse(users) or np.ndim(users) == 2:
                seen = check_new_positives("users", users, self.n_labels_)
                factors = self.fold_in_rows(seen)
            else:
                ids = check_ids("users", users, len(get_stored_rows(self)))
                factors, seen = self.row_factors_[ids], self.seen_[ids]
            indices, scores = self._rank(factors, self.label_factors_, int(k), seen if exclude_seen else None)
        return indices, scores - scores.dtype.type(self.threshold_)

    def _rank(self, B: NDArray, H: NDArray, k: int, excluded: sp.csr_array | None) -> tuple[NDArray, NDArray]:
        """Return the k best columns of each row of B Hᵀ without the excluded cells, and their values."""
        kernels = self._prediction_kernels(len(B))
        with self._compute():
            hidden = None if excluded is None else kernels.prepare(excluded, H.dtype)
            indices, values = kernels.topk(kernels.array(B, H.dtype), kernels.array(H, H.dtype), k, hidden)
            return kernels.to_numpy(indices), kernels.to_numpy(values)

    def similar_labels(self, labels: ArrayLike, k: int = 10) -> tuple[NDArray, NDArray]:
        """Return the k labels most similar to each of ``labels``, and the cosines of their centred factors.

        Factors are centred because the part that all labels share, such as the low score of unlabelled cells, does
        not distinguish them. The label itself is excluded.
        """
        check_is_fitted(self)
        ids = check_ids("labels", labels, self.n_labels_)
        check_k(k, self.n_labels_ - 1)
        H = self.label_factors_
        with self._compute():
            centred = H - H.mean(0)
            length = np.linalg.norm(centred, axis=1, keepdims=True)
            unit = centred / np.where(length > 0, length, 1)
            return self._rank(unit[ids], unit, int(k), sp.eye_array(len(H), format="csr")[ids])

    similar_items = similar_labels

    def fold_in_rows(self, positives: MatrixLike) -> NDArray:
        """Return the factors of new rows from their positives, of shape (rows, L), without a new fit.

        They minimise the objective of the model with fixed label factors, and the means of p and α over the training
        rows. If the fit used a sample of the unlabelled cells, all of them count here, with the weight of the sample.
        """
        check_is_fitted(self)
        positives = check_new_positives("positives", positives, self.n_labels_)
        one_class = self._one_class((None, self.n_labels_), self._get_scales(self.n_labels_))
        p, q = one_class.weights
        weights = Weights.of(float(np.mean(p)) * self.unlabelled_share_, q)
        with self._compute():
            return fold_in(positives, self.label_factors_, one_class, weights, self.alpha, get_backend())

    def fold_in_labels(self, positives: MatrixLike) -> NDArray:
        """Return the factors of new labels from the training rows that have them, of shape (labels, n)."""
        check_is_fitted(self)
        rows = get_stored_rows(self)
        positives = check_new_positives("positives", positives, len(rows))
        one_class = self._one_class((len(rows), None))
        p, q = one_class.weights
        weights = Weights.of(float(np.mean(q)) * self.unlabelled_share_, p)
        alpha = self.alpha if self.alpha_labels is None else self.alpha_labels
        importance = Weights(1.0, self.row_weights_[:, None]) if hasattr(self, "row_weights_") else Weights()
        with self._compute():
            return fold_in(positives, rows, one_class, weights, alpha, get_backend(), importance)

    def _check_parameters(self) -> None:
        self._check_common()
        check_alternation(self)
        get_loss(self.loss)
        if not isinstance(self.loss_unlabelled, Loss):
            check_choice("loss_unlabelled", self.loss_unlabelled, tuple(LOSSES))
        check_choice("negatives", self.negatives, ("all", "subsampled"))
        check_number("negative_ratio", self.negative_ratio, Real, least=0)
        check_number("frequency_power", self.frequency_power, Real, least=0)
        if not isinstance(self.negative_target, Real) or not np.isfinite(self.negative_target):
            raise ValueError(f"negative_target={self.negative_target!r} is out of range; pass a finite number.")
        if get_loss(self.loss_unlabelled).negative < 0 <= self.negative_target:
            raise ValueError(
                f"negative_target={self.negative_target!r} would raise the scores of unlabelled cells with "
                f"loss_unlabelled={self.loss_unlabelled!r}, a margin loss; pass a number below 0, such as -1."
            )
        check_number("graph_alpha", self.graph_alpha, Real, least=0)
        check_number("label_graph_alpha", self.label_graph_alpha, Real, least=0, optional=True)
        check_choice("solver", self.solver, ("auto", "cg", "tron", "gd", "direct"))
        check_choice("precompute", self.precompute, (True, False, "auto"))

    def _check_fit(self, X: Any, Y: Any, observed: Any) -> tuple[Any, Labels]:
        """Return validated rows, or None, and labels."""
        if X is not None:
            return super()._check_fit(X, Y, observed)
        labels = self._check_labels(
            Y,
            observed,
            missing="Y is None; pass the positives, one row for each user and one column for each label.",
            empty="Y has shape {shape}; pass at least one row and one label.",
        )
        self.n_features_in_ = 0
        self.__dict__.pop("feature_names_in_", None)
        return None, labels

    def _check_labels(self, Y: Any, observed: Any, X: Any = None, *, missing: str, empty: str) -> Labels:
        """Return the known positives alone: all other cells are unlabelled, and n·L known cells would cost memory."""
        labels = super()._check_labels(Y, observed, X, missing=missing, empty=empty)
        return Labels.of_patterns(labels.positives, None, labels.container)

    def _learn(self, X: Any, labels: Labels, side: SideData | None = None) -> Outcome:
        return fit_bound(self, self._bind(X, labels, side))

    def _bind(self, X: Any, labels: Labels, side: SideData | None = None) -> BoundData:
        kernels, dtype, side = self._kernels(), np.dtype(self.dtype).type, side or SideData()
        n, L = labels.shape
        Z, weights = side.label_features, side.row_weights
        if Z is not None:
            Z = check_array(
                check_sparse_indices("label_features", Z),
                accept_sparse="csr",
                dtype=dtype,
                input_name="label_features",
            )
            if Z.shape[0] != L:
                raise ValueError(
                    f"label_features has {Z.shape[0]} rows and Y has {L} labels; pass a row for each label."
                )
        checked = SideData(
            check_symmetric("row_graph", side.row_graph, n),
            check_symmetric("label_graph", side.label_graph, L),
            Z,
            None if weights is None else check_weights("row_weights", weights, n),
        )
        return bind(X, labels, kernels, dtype, constant=bool(self.fit_intercept), side=checked)

    def _problem(self, data: BoundData) -> Problem:
        backend, dtype, left, right = data.backend, data.dtype, data.left, data.right
        gamma, label_gamma = self.graph_alpha, self.label_graph_alpha
        constant = bool(self.fit_intercept) and not left.is_identity
        alpha = check_penalty("alpha", self.alpha, left.shape[1], constant=constant, dtype=dtype)
        alpha_labels: Any = float(np.mean(alpha))
        if self.alpha_labels is not None:
            alpha_labels = check_penalty(
                "alpha_labels", self.alpha_labels, right.shape[1], constant=False, dtype=dtype
            )
        if self.frequency_power and right.is_identity:
            alpha_labels = (self._scale_labels(data.labels) ** 2 * alpha_labels).astype(dtype)
        if np.ndim(alpha):
            alpha = (backend.rows if left.is_identity else backend.array)(alpha, dtype)
        if np.ndim(alpha_labels):
            alpha_labels = backend.array(alpha_labels, dtype)
        cells, blank = self._cells(data)
        problem = Problem(
            backend,
            cells,
            left,
            right,
            Penalties(alpha, alpha_labels),
            make_graph_terms(data.row_graph, gamma),
            make_graph_terms(data.label_graph, gamma if label_gamma is None else label_gamma),
            blank,
            self.precompute,
        )
        if self.precompute is True or problem.exact or not has_slow_eigenvectors(left):
            return problem
        return replace(problem, left=ProductsOnly(left, sketch=True), precompute=False)

    def _scale_labels(self, labels: Labels) -> Any:
        """Return the factor ((f_j + 1) / m)^r of each label, an L×1 array, or 1 without a power."""
        if not self.frequency_power:
            return 1.0
        counts = np.bincount(labels.positives.indices, minlength=labels.shape[1])
        return scale_by_frequency(counts, -float(self.frequency_power))[:, None]

    def _get_scales(self, n_labels: int) -> Any:
        """Return the stored factors of labels, 1 for new ones, or 1 if there are none."""
        scales = getattr(self, "label_scales_", None)
        return 1.0 if scales is None else np.vstack([scales, np.ones((n_labels - len(scales), 1))])

    def _one_class(self, shape: tuple[int | None, int | None], scale: Any = 1.0) -> PositiveUnlabelled:
        weights = check_pair_of_weights("weight_unlabelled", self.weight_unlabelled, shape)
        weights = Weights(weights.rows, weights.columns * scale)
        return PositiveUnlabelled(
            get_loss(self.loss), get_loss(self.loss_unlabelled), float(self.negative_target), weights
        )

    def _cells(self, data: BoundData) -> tuple[BoundCells, BoundCells]:
        """Return the cells of the objective, and those of a label without positives."""
        labels, backend, dtype, n = data.labels, data.backend, data.dtype, len(data.labels)
        share = get_unlabelled_share(self.negatives, self.negative_ratio, labels)
        one_class = replace(
            self._one_class(labels.shape, self._scale_labels(labels)),
            importance=data.importance,
            positive_weights=weigh_labels(self.propensity, labels),
        )
        if share == 1:
            cells = one_class.bind(labels.positives, backend, dtype)
        else:
            rng = check_random_state(self.random_state)
            cells = one_class.bind_sample(labels.positives, float(self.negative_ratio), rng, backend, dtype)
        p, q = one_class.weights
        blank = replace(one_class, weights=Weights(p, float(np.mean(q)) * share), positive_weights=Weights())
        return cells, blank.bind(sp.csr_array((n, 1), dtype=bool), backend, dtype)

    def _store(
        self, data: BoundData, problem: Problem, fit: Fit, memory: Memory | None, *, further: bool = False
    ) -> None:
        W, H = data.backend.to_numpy(fit.W), data.backend.to_numpy(fit.H)
        self._store_rows(data, problem, fit, further)
        for name in ("memory_", "label_feature_factors_"):
            self.__dict__.pop(name, None)
        if memory is not None:
            self.memory_ = memory._asdict()
        if not problem.right.is_identity:
            self.label_feature_factors_ = H
        self.label_factors_ = data.backend.to_numpy(problem.right.times(fit.H))
        self._store_scales(data.labels, further)
        if not further:
            featureless = problem.left.is_identity
            constant = bool(self.fit_intercept) and not featureless
            self.feature_factors_, self.intercept_factors_ = split_factors(W[:0] if featureless else W, constant)
            self.unlabelled_share_ = get_unlabelled_share(self.negatives, self.negative_ratio, data.labels)
            self.threshold_ = (get_loss(self.loss).positive + float(self.negative_target)) / 2

    def _store_scales(self, labels: Labels, further: bool) -> None:
        """Store the factors of labels by frequency, if there is a power; labels of further rows get the factor 1."""
        scales = self._get_scales(labels.shape[1]) if further else self._scale_labels(labels)
        self.__dict__.pop("label_scales_", None)
        if np.ndim(scales):
            self.label_scales_ = scales

    def _store_rows(self, data: BoundData, problem: Problem, fit: Fit, further: bool) -> None:
        """Store factors, positives and weights of rows if the model keeps rows; append those of further rows."""
        keep = hasattr(self, "row_factors_") if further else problem.left.is_identity or self.keep_rows
        weights = None if data.importance.uniform else np.ravel(data.importance.rows).astype(float)
        rows = data.backend.to_numpy(problem.left.times(fit.W)) if keep else None
        seen = data.labels.positives
        if keep and further:
            weights = self._append_row_weights(weights, len(seen.indptr) - 1)
            rows = np.vstack([self.row_factors_, np.asarray(rows)])
            seen = stack_rows(append_labels(Labels.of_patterns(self.seen_), seen.shape[1]), data.labels).positives
        for name in ("row_factors_", "seen_", "row_weights_"):
            self.__dict__.pop(name, None)
        if rows is not None:
            self.row_factors_, self.seen_ = rows, seen
            if weights is not None:
                self.row_weights_ = weights

    def _previous(self) -> PreviousFit:
        features, H = self.feature_factors_, getattr(self, "label_feature_factors_", self.label_factors_)
        if len(features):
            W = join_factors(features, self.intercept_factors_, bool(self.fit_intercept))
        else:
            W = self.row_factors_
        memory = getattr(self, "memory_", None)
        return PreviousFit(W, H, None if memory is None else Memory(**memory))

    def _check_further_rows(self, X: Any) -> Any:
        """Return validated features of further rows, or None if the model has no features."""
        if bool(self.n_features_in_) == (X is not None):
            return X if X is None else self._check_rows(X)
        name = type(self).__name__
        raise ValueError(
            f"X is None, and this {name} was fitted with features of rows; pass their features."
            if X is None
            else f"X has features, and this {name} was fitted without features of rows; pass None."
        )

    def _update_context(self, rows: LabelledRows, before: LabelledRows | None, side: SideData) -> UpdateContext:
        """Return the properties of further rows besides their features and positives."""
        if self.n_features_in_:
            return UpdateContext(side, alike=not side.names and self._weighs_alike())
        assert before is not None
        if len(before.labels) != len(self.row_factors_):
            raise ValueError(
                f"The Y of past has {len(before.labels)} rows, and this {type(self).__name__} has "
                f"{len(self.row_factors_)} training rows; pass them all, in the same order."
            )
        side = replace(side, row_weights=self._append_row_weights(side.row_weights, len(rows.labels)))
        return UpdateContext(side, fold_in=partial(self._fold_in_further, rows.labels, side.row_weights))

    def _weighs_alike(self) -> bool:
        return isinstance(self.weight_unlabelled, Real) and not self.frequency_power

    def _append_row_weights(self, weights: Any, n_further: int) -> NDArray | None:
        """Return the weights of the stored rows, then of the further ones; None if no row has a weight.

        ``weights`` are those of all rows or of the further ones, which default to 1. Stored weights remain.
        """
        if weights is None and not hasattr(self, "row_weights_"):
            return None
        n = len(self.row_factors_)
        if weights is not None and np.shape(weights) == (n + n_further,):
            return check_weights("row_weights", weights, n + n_further)
        new = np.ones(n_further) if weights is None else check_weights("row_weights", weights, n_further)
        return np.append(getattr(self, "row_weights_", np.ones(n)), new)

    def _fold_in_further(self, labels: Labels, row_weights: Any, problem: Problem, H: NDArray) -> NDArray:
        """Return the factors of the further rows, the last ones of the problem, with their weights and penalties."""
        further = np.arange(-len(labels), 0)
        one_class = self._one_class(problem.cells.shape, self._get_scales(labels.shape[1]))
        alpha = problem.penalties.left
        p, q = one_class.weights.select_rows(further)
        importance = Weights() if row_weights is None else Weights(row_weights[further, None])
        alpha = problem.backend.to_numpy(alpha)[further] if np.ndim(alpha) else alpha
        C = problem.backend.to_numpy(problem.right.times(problem.backend.array(H, H.dtype)))
        weights = Weights(p, q * self.unlabelled_share_)
        return fold_in(labels.positives, C, one_class, weights, alpha, get_backend(), importance)

    def _check_rows(self, X: Any, *, reset: bool = False) -> Any:
        """Return validated features; for a model without features, numbers of training rows (None: all of them)."""
        if reset or self.n_features_in_:
            return super()._check_rows(X, reset=reset)
        return np.arange(len(self.row_factors_)) if X is None else check_ids("X", X, len(self.row_factors_))

    def _embed(self, X: Any) -> Any:
        if not self.n_features_in_:
            return self.row_factors_[X]
        kernels = self._prediction_kernels(X.shape[0])
        return embed_rows(X, self.feature_factors_, self.intercept_factors_, kernels, self.dtype)

    def _scores(self, X: Any) -> FactorScores:
        kernels = self._prediction_kernels(X.shape[0])
        return FactorScores(self._embed(X), self.label_factors_, self.threshold_, kernels)

    def _check_loaded(self) -> None:
        k = self.label_factors_.shape[1]
        if hasattr(self, "memory_"):
            Memory(**self.memory_).check(len(self.label_factors_), k)
        shapes: dict[str, tuple[int, ...]] = {
            "label_factors_": (self.n_labels_, k),
            "feature_factors_": (self.n_features_in_, k),
            "intercept_factors_": (k,),
        }
        if not self.n_features_in_ or hasattr(self, "row_factors_"):
            shapes |= {"row_factors_": (self.seen_.shape[0], k), "seen_": (self.seen_.shape[0], self.n_labels_)}
        for name, shape in shapes.items():
            if getattr(self, name).shape != shape:
                raise ValueError(f"{name} has shape {getattr(self, name).shape}, expected {shape}")


def check_side(model: OneClassMF, past: Any, side: SideData) -> None:
    """Raise ValueError for missing or superfluous label features, and for graphs without the earlier rows."""
    has_features = hasattr(model, "label_feature_factors_")
    if has_features != (side.label_features is not None):
        raise ValueError(
            "label_features is missing; pass the features of all labels, new ones last."
            if has_features
            else f"This {type(model).__name__} was fitted without label_features; leave them out, or fit it again."
        )
    names = [name for name in side.names if name != "row_weights"]
    if names and past is None and model.n_features_in_:
        raise ValueError(f"{names[0]} needs the earlier rows; pass past=(X, Y).")


def has_slow_eigenvectors(features: LinearMap) -> bool:
    """Return whether a product with the eigenvectors of XᵀX takes longer than several products with a sparse X.

    Then conjugate gradients, preconditioned by the diagonal, take more steps and less time.

    >>> X = sp.random_array((100, 200), density=0.02, format="csr", random_state=0)
    >>> has_slow_eigenvectors(Features(X, get_backend(), float))
    True
    """
    if not isinstance(features, Features) or not features.sparse:
        return False
    return features.shape[1] * min(features.shape) > MAX_EIGENVECTOR_RATIO * features.matrix.nnz


def get_unlabelled_share(negatives: str, ratio: float, labels: Labels) -> float:
    """Return the share of the unlabelled cells that are used: 1, or less if they are subsampled."""
    positives, cells = labels.positives.nnz, labels.shape[0] * labels.shape[1]
    if negatives == "all" or positives == cells:
        return 1.0
    return min(1.0, float(ratio) * positives / (cells - positives))


def fold_in(
    positives: sp.csr_array,
    H: NDArray,
    one_class: PositiveUnlabelled,
    weights: Weights,
    alpha: Any,
    kernels: Backend,
    importance: Weights | None = None,
) -> NDArray:
    """Return the factors of new rows from their positives, with the other side's factors H fixed.

        min over b of Σ over its positives of ℓ(1, b·h_j) + Σ over all others of p q_j · ½ (ā − b·h_j)² + (α/2) ‖b‖²

    Features and graphs are not used: a new row has only its positives, and the penalty is on its factors, also if the
    fit penalises the factors of features.
    """
    start = np.zeros((positives.shape[0], H.shape[1]), H.dtype)
    if not len(start):
        return start
    one_class = replace(one_class, weights=weights, importance=Weights() if importance is None else importance)
    data = one_class.bind(positives, kernels, H.dtype.type).objective_in_left(H)
    return NewtonCG(tol=1e-4).minimize(Sum([data, Ridge(float(np.mean(alpha)))]), start).x


def get_stored_rows(model: Any) -> NDArray:
    """Return the factors of the training rows, or raise ValueError if the model does not store them."""
    if not hasattr(model, "row_factors_"):
        raise ValueError(
            f"This {type(model).__name__} does not store its training rows; fit it with keep_rows=True, or pass the "
            "positives of each user as a matrix."
        )
    return model.row_factors_


def check_new_positives(name: str, positives: Any, width: int) -> sp.csr_array:
    """Return positives of new rows or labels as a sparse matrix with ``width`` columns."""
    pattern = as_labels(positives).positives
    if pattern.shape[1] != width:
        raise ValueError(f"{name} has {pattern.shape[1]} columns; pass one for each of the {width} in fit.")
    return pattern


def check_ids(name: str, values: Any, size: int) -> NDArray:
    """Return validated numbers of rows or labels of the fit."""
    ids = np.atleast_1d(np.asarray(values))
    ids = ids.astype(np.intp) if ids.size == 0 else ids
    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
        raise ValueError(f"{name} holds values of type {ids.dtype} and shape {ids.shape}; pass a list of integers.")
    outside = ids[(ids < 0) | (ids >= size)]
    if outside.size:
        raise ValueError(f"{name} holds {outside[0]}, which was not in fit; pass numbers from 0 to {size - 1}.")
    return ids
