"""One-class matrix factorization: positives known, everything else a weak negative, with features and graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted

from labelgap.estimators.about import About
from labelgap.estimators.base import MultiLabelEstimator, Outcome
from labelgap.estimators.incremental import ALTERNATIONS, Further, Given, Rows, check_no_past, partial_fit
from labelgap.estimators.low_rank import (
    check_alternation,
    check_pair_of_weights,
    check_penalty,
    check_symmetric,
    embed_rows,
    fit_bound,
    join_factors,
    split_factors,
)
from labelgap.estimators.parameters import check_choice, check_k, check_number, check_weights
from labelgap.estimators.recommending import check_ids, check_newcomers, fold_in, kept_rows, similar
from labelgap.estimators.scores import FactorScores
from labelgap.kernels import get_backend
from labelgap.losses import LOSSES, Loss, get_loss
from labelgap.objectives.cells import Cells, Weights
from labelgap.objectives.one_class import OneClass
from labelgap.objectives.problem import (
    BoundData,
    Iteration,
    Penalties,
    Problem,
    SideData,
    bind,
    graph_terms,
)
from labelgap.objectives.update import Memory, Previous
from labelgap.observations import Labels
from labelgap.observations.joining import stacked, widened
from labelgap.runtime import threads
from labelgap.solvers import Fit


class OneClassMF(MultiLabelEstimator):
    """Low-rank scores for positive–unlabelled data, with features and graphs of rows and labels.

    Minimises over W and H, with s = B Cᵀ, B = X W (or B = W without features) and C = Z H (or C = H)

        Σ over positives of ℓ(1, s_ij) + Σ over all other cells of p_i q_j · ½ (ā − s_ij)²
        + (α/2) ‖W‖² + (α_H/2) ‖H‖² + (γ/2) tr(BᵀL B) + (γ_H/2) tr(CᵀL_H C)

    (Yu, Huang, Dhillon and Lin 2017, eqs. 2 and 3). The cost of a step is linear in the number of positives: the sum
    over all other cells comes from Gram matrices. Anything in Y that is not a known positive is unlabelled.

    With squared loss the paper's ρ, λ and λ_w λ_g are our weight, α and γ; with other losses ours are twice those.

    Parameters
    ----------
    n_components : int, optional
        The rank k. By default 100, or less where features, rows or labels are fewer.
    loss : {"logistic", "squared", "squared_hinge"} or Loss, default="logistic"
        ℓ, on the positives.
    weight_unlabelled : float or pair of arrays, default=0.1
        The weight of a cell that is not positive: one number, or p (one for each row) and q (one for each label).
    negative_target : float, default=-1.0
        ā, the score that such a cell should have; below 0 where its loss is of margins, logistic or squared hinge.
    loss_unlabelled : {"squared", "logistic", "squared_hinge"} or Loss, default="squared"
        The loss of such a cell. Any but squared visits every cell, in blocks: exact, and for small data.
    negatives : {"all", "subsampled"}, default="all"
        Count every unlabelled cell, or ``negative_ratio`` times as many as there are positives, drawn at random.
    negative_ratio : float, default=1.0
        See ``negatives``.
    alpha : float or array, default=1.0
        The penalty of W: one number, or one for each of its rows (for each row of Y without features, for each
        feature with them; the constant feature has their mean).
    alpha_labels : float or array, optional
        The penalty of H, likewise; as ``alpha``, or its mean, by default.
    graph_alpha : float, default=1.0
        γ, the weight of ``row_graph`` in :meth:`fit`.
    label_graph_alpha : float, optional
        γ_H, the weight of ``label_graph``; as ``graph_alpha`` by default.
    fit_intercept : bool, default=True
        Append a constant 1 to the row features, penalised like the rest.
    init : {"svd", "random"}, default="svd"
        Start H from the leading singular directions that features and positives share, or at random.
    solver : {"auto", "cg", "tron", "gd", "direct"}, default="auto"
        How a half step is solved: Newton's method with preconditioned conjugate gradients, the same in a trust
        region, gradient descent with a line search that costs a pass over the positives, or exactly ("direct", for
        squared loss with weight 1, where the model is LEML's). "auto" is direct where it applies, else cg.
    precompute : bool or "auto", default="auto"
        Make the d×d matrix Xᵀ diag(p) X once; "auto" does so for few features, d² + dk < nk.
    max_iter : int, default=15
        The most alternations.
    tol : float, default=1e-3
        Stop when an alternation lowers the objective by less than this share of it.
    warm_start : bool, default=False
        Start from the factors of the previous fit.
    keep_rows : bool, default=False
        Keep the factors and positives of the training rows, for :meth:`recommend`. Without features they are the
        model and kept in any case.
    random_state : int, RandomState or None
        Seeds the start and the draw of subsampled negatives.
    n_jobs : int, optional
        Threads; all cores by default.
    device : {"auto", "cpu"}, default="auto"
        Where to compute.
    dtype : {"float32", "float64"}, default="float32"
        The precision of the factors.
    verbose : int, default=0
        1 shows a progress bar, 2 a line for each alternation.
    callbacks : sequence of callables, optional
        Each is called with an :class:`Iteration` after each alternation; True ends the fit.

    Attributes
    ----------
    label_factors_ : ndarray of shape (L, k)
        C.
    feature_factors_, intercept_factors_ : ndarray of shape (d, k) and (k,)
        W; no rows and zeros where there are no row features.
    label_feature_factors_ : ndarray
        H, where there are label features.
    row_factors_ : ndarray of shape (n, k)
        B, where ``keep_rows`` says so.
    seen_ : csr_array of shape (n, L)
        The positives of the training rows, likewise.
    row_weights_ : ndarray of shape (n,)
        The weights of the training rows, likewise, where there were any.
    unlabelled_share_ : float
        The share of the unlabelled cells that counted: 1, or less where they were subsampled.
    memory_, objective_, n_iter_, status_ :
        As in :class:`LEML`.

    Examples
    --------
    Two groups of readers; nobody said what the second dislikes:

    >>> import numpy as np
    >>> from labelgap import OneClassMF
    >>> Y = np.array([[1, 1, 0, 0], [1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 1], [0, 0, 1, 0], [0, 0, 1, 1]])
    >>> model = OneClassMF(n_components=2, alpha=0.1, random_state=0).fit(None, Y)
    >>> model.recommend([2, 4], k=1)[0].ravel()
    array([1, 3])
    """

    about = About(
        "Factors of rows and labels, from features or without, where every cell that is no yes counts a little.",
        "Yu, Huang, Dhillon and Lin 2017",
        positives_only=True,
        graph=True,
        fit="(z + y) k + (n + L) k² an alternation",
        predict="(z/n + L) k",
    )

    _uses_device = True
    _binding = ("fit_intercept", "dtype", "device")  # what bound data depend on
    feature_factors_: NDArray
    intercept_factors_: NDArray
    label_factors_: NDArray
    threshold_: float
    unlabelled_share_: float
    if TYPE_CHECKING:  # what a class declares, every model file must have; these depend on parameters
        memory_: dict[str, NDArray]
        row_factors_: NDArray
        seen_: sp.csr_array
        row_weights_: NDArray

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
        random_state: Any = None,
        n_jobs: int | None = None,
        device: str = "auto",
        dtype: Any = "float32",
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
        X: Any,
        Y: Any,
        observed: Any = None,
        *,
        row_graph: Any = None,
        label_graph: Any = None,
        label_features: Any = None,
        row_weights: Any = None,
    ) -> Self:
        """Learn from rows X, which may be None, and the positives of Y.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d), or None
            Features of the rows; None for a recommender that knows its rows by number.
        Y : array-like, sparse matrix or Labels of shape (n, L)
            Positives; what else it holds is unlabelled.
        observed : array-like or sparse matrix of shape (n, L), optional
            True where Y is known; a positive outside it is unlabelled.
        row_graph : sparse matrix of shape (n, n), optional
            Similarities ≥ 0 between rows. A directed graph is made symmetric, with a warning.
        label_graph : sparse matrix of shape (L, L), optional
            The same between labels.
        label_features : array-like or sparse matrix of shape (L, e), optional
            Features Z of the labels.
        row_weights : array of shape (n,), optional
            How much each row counts, its positives and its unlabelled cells alike (the C_ij of eq. 2).

        Returns
        -------
        self
        """
        return self._fit(X, Y, observed, SideData(row_graph, label_graph, label_features, row_weights))

    def partial_fit(
        self,
        X: Any,
        Y: Any,
        observed: Any = None,
        *,
        past: Any = None,
        alternations: int = ALTERNATIONS,
        row_graph: Any = None,
        label_graph: Any = None,
        label_features: Any = None,
        row_weights: Any = None,
    ) -> Self:
        """Learn from further rows, which may have further labels, without learning from nothing.

        As :meth:`LEML.partial_fit`. A model without features knows its rows and needs no ``past`` but to say which of
        them have a new label; the factors of new rows are found first. Whatever has a value for each row or label
        (weights, graphs, features, arrays as parameters) has one for all that this call learns from: those of
        ``past``, then the further ones. Graphs and label features need the rows of before.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d), or None
            Further rows; None where the model has no features.
        Y, observed :
            Their positives, and where they are known, as in :meth:`fit`: the labels of before first, then new ones.
        past : pair of X and Y, optional
            Rows learned from before, all or some; a label that their Y does not have is unlabelled.
        alternations : int, default=3
            The most alternations with ``past``, the first one included; ``tol`` ends them sooner.
        row_graph, label_graph, label_features, row_weights :
            As in :meth:`fit`. A model without features remembers the weights of its rows, so that ``row_weights`` may
            be those of the further rows alone, which have 1 by default.

        Returns
        -------
        self
        """
        side = SideData(row_graph, label_graph, label_features, row_weights)
        if not hasattr(self, "label_factors_"):
            check_no_past(past)
            return self._fit(X, Y, observed, side)
        check_side(self, past, side)
        partial_fit(
            self,
            Given(X, Y, observed, past, alternations),
            check_rows=self._check_further,
            prepare=lambda rows, before: self._further(rows, before, side),
            kept=None if self.n_features_in_ else Rows(None, Labels.of_patterns(self.seen_)),
        )
        return self

    def recommend(self, users: Any, k: int = 10, *, exclude_seen: bool = True) -> tuple[NDArray, NDArray]:
        """Return the indices and scores of the k best labels for each user, two (users, k) arrays, best first.

        Parameters
        ----------
        users : array of int, or a sparse or dense matrix of shape (users, L)
            Numbers of training rows, or the positives of newcomers, who are folded in.
        k : int
            How many.
        exclude_seen : bool
            Leave out the labels that a user already has. Where fewer than k are left, the last have the score −∞.
        """
        check_is_fitted(self)
        check_k(k, self.n_labels_)
        with threads(self.n_jobs):
            if sp.issparse(users) or np.ndim(users) == 2:
                seen = check_newcomers("users", users, self.n_labels_)
                factors = self.fold_in_rows(seen)
            else:
                ids = check_ids("users", users, len(kept_rows(self)))
                factors, seen = self.row_factors_[ids], self.seen_[ids]
            kernels = get_backend()
            hidden = kernels.prepare(seen, factors.dtype) if exclude_seen else None
            indices, scores = kernels.topk(factors, self.label_factors_, int(k), hidden)
        return indices, scores - scores.dtype.type(self.threshold_)

    def similar_labels(self, labels: Any, k: int = 10) -> tuple[NDArray, NDArray]:
        """Return the k labels most similar to each of the given ones, and the cosines of their centred factors.

        A label is not its own neighbour.
        """
        check_is_fitted(self)
        ids = check_ids("labels", labels, self.n_labels_)
        check_k(k, self.n_labels_ - 1)
        with threads(self.n_jobs):
            return similar(self.label_factors_, ids, int(k), get_backend())

    similar_items = similar_labels

    def fold_in_rows(self, positives: Any) -> NDArray:
        """Return the factors of new rows from their positives, shape (rows, L), without training again.

        They minimise the same objective while the labels' factors are held, with the mean of the training rows for p
        and α. Where only a share of the unlabelled cells was drawn in training, all of them count here by that
        share.
        """
        check_is_fitted(self)
        positives = check_newcomers("positives", positives, self.n_labels_)
        one_class = self._one_class((None, self.n_labels_))
        p, q = one_class.weights
        weights = Weights.of(float(np.mean(p)) * self.unlabelled_share_, q)
        with threads(self.n_jobs):
            return fold_in(positives, self.label_factors_, one_class, weights, self.alpha, get_backend())

    def fold_in_labels(self, positives: Any) -> NDArray:
        """Return the factors of new labels from the training rows that have them, shape (labels, n)."""
        check_is_fitted(self)
        rows = kept_rows(self)
        positives = check_newcomers("positives", positives, len(rows))
        one_class = self._one_class((len(rows), None))
        p, q = one_class.weights
        weights = Weights.of(float(np.mean(q)) * self.unlabelled_share_, p)
        alpha = self.alpha if self.alpha_labels is None else self.alpha_labels
        importance = Weights(1.0, self.row_weights_[:, None]) if hasattr(self, "row_weights_") else Weights()
        with threads(self.n_jobs):
            return fold_in(positives, rows, one_class, weights, alpha, get_backend(), importance)

    def _check_parameters(self) -> None:
        self._check_common()
        check_alternation(self)
        get_loss(self.loss)
        if not isinstance(self.loss_unlabelled, Loss):
            check_choice("loss_unlabelled", self.loss_unlabelled, tuple(LOSSES))
        check_choice("negatives", self.negatives, ("all", "subsampled"))
        check_number("negative_ratio", self.negative_ratio, Real, least=0)
        if not isinstance(self.negative_target, Real) or not np.isfinite(self.negative_target):
            raise ValueError(f"negative_target={self.negative_target!r} is out of range; pass a finite number.")
        if get_loss(self.loss_unlabelled).negative < 0 <= self.negative_target:
            raise ValueError(
                f"negative_target={self.negative_target!r} would draw unlabelled cells up under "
                f"loss_unlabelled={self.loss_unlabelled!r}, a loss of margins; pass a number below 0, such as -1."
            )
        check_number("graph_alpha", self.graph_alpha, Real, least=0)
        check_number("label_graph_alpha", self.label_graph_alpha, Real, least=0, optional=True)
        check_choice("solver", self.solver, ("auto", "cg", "tron", "gd", "direct"))
        check_choice("precompute", self.precompute, (True, False, "auto"))

    def _check_fit(self, X: Any, Y: Any, observed: Any) -> tuple[Any, Labels]:
        """Return validated rows, which may be None, and labels."""
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
        """Return positives alone: whatever is not a known one is unlabelled, and to keep what is known costs n·L."""
        labels = super()._check_labels(Y, observed, X, missing=missing, empty=empty)
        return Labels.of_patterns(labels.positives, None, labels.container)

    def _learn(self, X: Any, labels: Labels, side: SideData | None = None) -> Outcome:
        return fit_bound(self, self._bind(X, labels, side))

    def _bind(self, X: Any, labels: Labels, side: SideData | None = None) -> BoundData:
        kernels, dtype, side = self._kernels(), np.dtype(self.dtype).type, side or SideData()
        n, L = labels.shape
        Z, weights = side.label_features, side.row_weights
        checked = SideData(
            check_symmetric("row_graph", side.row_graph, n),
            check_symmetric("label_graph", side.label_graph, L),
            None if Z is None else check_label_features(Z, L, dtype),
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
        if np.ndim(alpha):
            alpha = (backend.rows if left.is_identity else backend.array)(alpha, dtype)
        if np.ndim(alpha_labels):
            alpha_labels = backend.array(alpha_labels, dtype)
        cells, blank = self._cells(data)
        return Problem(
            backend,
            cells,
            left,
            right,
            Penalties(alpha, alpha_labels),
            graph_terms(data.row_graph, gamma),
            graph_terms(data.label_graph, gamma if label_gamma is None else label_gamma),
            blank,
            self.precompute,
        )

    def _one_class(self, shape: tuple[int | None, int | None]) -> OneClass:
        weights = check_pair_of_weights("weight_unlabelled", self.weight_unlabelled, shape)
        return OneClass(get_loss(self.loss), get_loss(self.loss_unlabelled), float(self.negative_target), weights)

    def _cells(self, data: BoundData) -> tuple[Cells, Cells]:
        """Return the cells that count, and those of a label that none of the rows has."""
        labels, backend, dtype, n = data.labels, data.backend, data.dtype, len(data.labels)
        share = counted_share(self.negatives, self.negative_ratio, labels)
        one_class = replace(self._one_class(labels.shape), importance=data.importance)
        if share == 1:
            cells = one_class.cells(labels.positives, backend, dtype)
        else:
            rng = check_random_state(self.random_state)
            cells = one_class.sampled_cells(labels.positives, float(self.negative_ratio), rng, backend, dtype)
        p, q = one_class.weights
        blank = replace(one_class, weights=Weights(p, float(np.mean(q)) * share))
        return cells, blank.cells(sp.csr_array((n, 1), dtype=bool), backend, dtype)

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
        if not further:
            featureless = problem.left.is_identity
            constant = bool(self.fit_intercept) and not featureless
            self.feature_factors_, self.intercept_factors_ = split_factors(W[:0] if featureless else W, constant)
            self.unlabelled_share_ = counted_share(self.negatives, self.negative_ratio, data.labels)
            self.threshold_ = (get_loss(self.loss).positive + float(self.negative_target)) / 2

    def _store_rows(self, data: BoundData, problem: Problem, fit: Fit, further: bool) -> None:
        """Keep factors, positives and weights of rows where they are asked for; further rows follow the others."""
        kept = hasattr(self, "row_factors_") if further else problem.left.is_identity or self.keep_rows
        weights = None if data.importance.uniform else np.ravel(data.importance.rows).astype(float)
        rows = data.backend.to_numpy(problem.left.times(fit.W)) if kept else None
        seen = data.labels.positives
        if kept and further:
            weights = self._grown_row_weights(weights, len(seen.indptr) - 1)
            rows = np.vstack([self.row_factors_, np.asarray(rows)])
            seen = stacked(widened(Labels.of_patterns(self.seen_), seen.shape[1]), data.labels).positives
        for name in ("row_factors_", "seen_", "row_weights_"):
            self.__dict__.pop(name, None)
        if rows is not None:
            self.row_factors_, self.seen_ = rows, seen
            if weights is not None:
                self.row_weights_ = weights

    def _previous(self) -> Previous:
        features, H = self.feature_factors_, getattr(self, "label_feature_factors_", self.label_factors_)
        if len(features):
            W = join_factors(features, self.intercept_factors_, bool(self.fit_intercept))
        else:
            W = self.row_factors_
        memory = getattr(self, "memory_", None)
        return Previous(W, H, None if memory is None else Memory(**memory))

    def _check_further(self, X: Any) -> Any:
        """Return validated features of further rows, or None where the model has none."""
        if bool(self.n_features_in_) == (X is not None):
            return X if X is None else self._check_rows(X)
        name = type(self).__name__
        raise ValueError(
            f"X is None, and this {name} was fitted with features of rows; pass their features."
            if X is None
            else f"X is given, and this {name} was fitted without features of rows; pass None."
        )

    def _further(self, rows: Rows, before: Rows | None, side: SideData) -> Further:
        """Say what there is to know of further rows beside their features and positives."""
        if self.n_features_in_:
            return Further(side, alike=not side.given and isinstance(self.weight_unlabelled, Real))
        assert before is not None
        if len(before.labels) != len(self.row_factors_):
            raise ValueError(
                f"The Y of past has {len(before.labels)} rows, and this {type(self).__name__} knows its "
                f"{len(self.row_factors_)} rows by number; pass them all, in their order."
            )
        side = replace(side, row_weights=self._grown_row_weights(side.row_weights, len(rows.labels)))
        return Further(side, fold_in=partial(self._fold_in_further, rows.labels, side.row_weights))

    def _grown_row_weights(self, given: Any, further: int) -> NDArray | None:
        """Return the weights of the kept rows, then of so many further ones; None where no row has any.

        Those that are not given stay, and are 1 for further rows.
        """
        if given is None and not hasattr(self, "row_weights_"):
            return None
        n = len(self.row_factors_)
        if given is not None and np.shape(given) == (n + further,):
            return check_weights("row_weights", given, n + further)
        new = np.ones(further) if given is None else check_weights("row_weights", given, further)
        return np.append(getattr(self, "row_weights_", np.ones(n)), new)

    def _fold_in_further(self, labels: Labels, row_weights: Any, problem: Problem, H: NDArray) -> NDArray:
        """Return the factors of newcomers that have the weights and penalties of these rows, the last ones."""
        further = np.arange(-len(labels), 0)
        one_class, alpha = self._one_class(problem.cells.shape), problem.penalties.left
        p, q = one_class.weights.of_rows(further)
        importance = Weights() if row_weights is None else Weights(row_weights[further, None])
        alpha = problem.backend.to_numpy(alpha)[further] if np.ndim(alpha) else alpha
        C = problem.backend.to_numpy(problem.right.times(problem.backend.array(H, H.dtype)))
        weights = Weights(p, q * self.unlabelled_share_)
        return fold_in(labels.positives, C, one_class, weights, alpha, get_backend(), importance)

    def _check_rows(self, X: Any, *, reset: bool = False) -> Any:
        """Return features; of a model without features, the numbers of training rows, all of them for None."""
        if reset or self.n_features_in_:
            return super()._check_rows(X, reset=reset)
        return np.arange(len(self.row_factors_)) if X is None else check_ids("X", X, len(self.row_factors_))

    def _embed(self, X: Any) -> NDArray:
        if not self.n_features_in_:
            return self.row_factors_[X]
        return embed_rows(X, self.feature_factors_, self.intercept_factors_, get_backend(), self.dtype)

    def _scores(self, X: Any) -> FactorScores:
        return FactorScores(self._embed(X), self.label_factors_, self.threshold_, get_backend())

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


def check_label_features(Z: Any, L: int, dtype: Any) -> Any:
    """Return validated features of L labels."""
    Z = check_array(Z, accept_sparse="csr", dtype=dtype, input_name="label_features")
    if Z.shape[0] != L:
        raise ValueError(f"label_features has {Z.shape[0]} rows and Y has {L} labels; pass a row for each label.")
    return Z


def check_side(model: OneClassMF, past: Any, side: SideData) -> None:
    """Refuse label features that the model does not have or lacks, and graphs of rows that are gone."""
    has = hasattr(model, "label_feature_factors_")
    if has != (side.label_features is not None):
        raise ValueError(
            "label_features is missing; pass the features of all labels, new ones last."
            if has
            else f"This {type(model).__name__} was fitted without label_features; leave them out, or fit it again."
        )
    given = [name for name in side.given if name != "row_weights"]
    if given and past is None and model.n_features_in_:
        raise ValueError(f"{given[0]} needs the rows of before; pass past=(X, Y).")


def counted_share(negatives: str, ratio: float, labels: Labels) -> float:
    """Return the share of the unlabelled cells that count: 1, or less where they are subsampled."""
    positives, cells = labels.positives.nnz, labels.shape[0] * labels.shape[1]
    if negatives == "all" or positives == cells:
        return 1.0
    return min(1.0, float(ratio) * positives / (cells - positives))
