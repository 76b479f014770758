"""One-class matrix factorization: positives known, everything else a weak negative, with features and graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, Literal, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import check_array, check_random_state

from labelgap.estimators.about import About
from labelgap.estimators.base import Outcome
from labelgap.estimators.growing import ALTERNATIONS, GrowingEstimator, Rows
from labelgap.estimators.low_rank import Iteration, moves
from labelgap.estimators.material import Material, check_pair_of_weights, check_symmetric
from labelgap.estimators.parameters import check_choice, check_number, check_weights
from labelgap.estimators.recommending import Recommender
from labelgap.losses import LOSSES, Loss, get_loss
from labelgap.objectives import LowRank, make_features
from labelgap.objectives.cells import AllCellsSquared, Cells, Weights
from labelgap.objectives.features import Identity
from labelgap.objectives.graph import GraphPenalty
from labelgap.objectives.one_class import OneClass
from labelgap.observations import Labels
from labelgap.observations.joining import stacked, widened
from labelgap.runtime import threads
from labelgap.solvers import TRON, Alternation, Direct, GradientDescent, NewtonCG, Solver
from labelgap.solvers.base import LinearMap


class OneClassMF(Recommender, GrowingEstimator):
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
        self._check_parameters()
        with self._unchanged_on_error(), threads(self.n_jobs):
            material = self._material(X, Y, observed, row_graph, label_graph, label_features, row_weights)
            ended = self._fit_material(material)
        self._outcome(*ended).report()
        return self

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
        graphs = {"row_graph": row_graph, "label_graph": label_graph, "label_features": label_features}
        if hasattr(self, "label_factors_"):
            self._check_side(past, graphs)
        return self._grow(X, Y, observed, past, alternations, **graphs, row_weights=row_weights)

    def _check_side(self, past: Any, graphs: dict[str, Any]) -> None:
        """Refuse label features that the model does not have or lacks, and graphs of rows that are gone."""
        has = hasattr(self, "label_feature_factors_")
        if has != (graphs["label_features"] is not None):
            raise ValueError(
                "label_features is missing; pass the features of all labels, new ones last."
                if has
                else f"This {type(self).__name__} was fitted without label_features; leave them out, or fit it again."
            )
        given = [name for name, value in graphs.items() if value is not None]
        if given and past is None and self.n_features_in_:
            raise ValueError(f"{given[0]} needs the rows of before; pass past=(X, Y).")

    def _learn(self, X: Any, labels: Labels) -> Outcome:
        return self._outcome(*self._fit_material(self._bind(X, labels)))

    def _fit_material(
        self, material: Material, start: tuple[NDArray, NDArray] | None = None
    ) -> tuple[Alternation, KeyboardInterrupt | None]:
        """Solve and store; return how it ended, which is said once nothing can be lost any more."""
        problem = self._problem(material)
        near = start is not None and moves(*start)
        state = Alternation(*start) if near else self._start(problem, self._rank_of(material))  # type: ignore[misc]
        interrupt = self._run(problem, state, self._choose_solver(problem))
        self.container_, self.n_labels_ = material.labels.container, material.labels.shape[1]
        self._store_history(state)
        importance = material.importance
        self._store_all(problem, state, material.labels, row_weights=None if importance.uniform else importance.rows)
        self._remember(problem, self._blank_cells(material), state)
        return state, interrupt

    def _store_all(
        self, problem: LowRank, state: Alternation, labels: Labels, *, row_weights: Any = None, **side: Any
    ) -> None:
        self._store_factors(problem, state.W, state.H, labels)
        if hasattr(self, "row_factors_") and row_weights is not None:
            self.row_weights_ = np.ravel(row_weights).astype(float)
        self.unlabelled_share_ = self._counted_share(labels)
        self.threshold_ = (get_loss(self.loss).positive + float(self.negative_target)) / 2

    def _check_parameters(self) -> None:
        self._check_shared()
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

    def _material(
        self,
        X: Any,
        Y: Any,
        observed: Any = None,
        row_graph: Any = None,
        label_graph: Any = None,
        label_features: Any = None,
        row_weights: Any = None,
    ) -> Material:
        """Return validated data, or say what is wrong with them."""
        if X is None:
            labels = self._check_labels(
                Y,
                observed,
                missing="Y is None; pass the positives, one row for each user and one column for each label.",
                empty="Y has shape {shape}; pass at least one row and one label.",
            )
            self.n_features_in_ = 0
            self.__dict__.pop("feature_names_in_", None)
        else:
            X, labels = self._check_fit(X, Y, observed)
        return self._bind(X, labels, row_graph, label_graph, label_features, row_weights)

    def _check_labels(self, Y: Any, observed: Any, X: Any = None, *, missing: str, empty: str) -> Labels:
        """Return positives alone: whatever is not a known one is unlabelled, and to keep what is known costs n·L."""
        labels = super()._check_labels(Y, observed, X, missing=missing, empty=empty)
        return Labels.of_patterns(labels.positives, None, labels.container)

    def _bind(
        self,
        X: Any,
        labels: Labels,
        row_graph: Any = None,
        label_graph: Any = None,
        label_features: Any = None,
        row_weights: Any = None,
    ) -> Material:
        """Return validated rows, which may be None, with validated graphs and weights of theirs."""
        kernels, dtype = self._kernels(), np.dtype(self.dtype).type
        n, L = labels.shape
        right = None if label_features is None else self._check_label_features(label_features, L)
        return Material(
            labels,
            Identity(n) if X is None else make_features(X, kernels, dtype, constant=self.fit_intercept),
            Identity(L) if right is None else make_features(right, kernels, dtype),
            check_symmetric("row_graph", row_graph, n),
            check_symmetric("label_graph", label_graph, L),
            Weights() if row_weights is None else Weights(check_weights("row_weights", row_weights, n)[:, None]),
        )

    def _check_label_features(self, Z: Any, L: int) -> Any:
        Z = check_array(Z, accept_sparse="csr", dtype=np.dtype(self.dtype).type, input_name="label_features")
        if Z.shape[0] != L:
            raise ValueError(f"label_features has {Z.shape[0]} rows and Y has {L} labels; pass a row for each label.")
        return Z

    def _problem(self, material: Material) -> LowRank:
        kernels, dtype = self._kernels(), np.dtype(self.dtype).type
        gamma, label_gamma = self.graph_alpha, self.label_graph_alpha
        graphs = (material.row_graph, gamma), (material.label_graph, gamma if label_gamma is None else label_gamma)
        terms = [
            [] if graph is None or not weight else [GraphPenalty(graph, float(weight), kernels, dtype)]
            for graph, weight in graphs
        ]
        alpha = self._penalty("alpha", self.alpha, material.left, bool(self.fit_intercept))
        alpha_labels = float(np.mean(alpha))
        if self.alpha_labels is not None:
            alpha_labels = self._penalty("alpha_labels", self.alpha_labels, material.right, False)
        return LowRank(
            self._cells(material),
            material.left,
            material.right,
            alpha_left=alpha,
            alpha_right=alpha_labels,
            left_terms=terms[0],
            right_terms=terms[1],
            precompute=self.precompute,
        )

    def _penalty(self, name: str, value: Any, side: LinearMap, constant: bool) -> Any:
        """Return a penalty as a number or a column, with that of the constant feature where there is one."""
        if np.ndim(value) == 0:
            check_number(name, value, Real, least=0)
            return float(value)
        constant = constant and not isinstance(side, Identity)
        column = check_weights(name, value, side.shape[1] - constant)
        if constant:
            column = np.append(column, column.mean())
        return column[:, None].astype(self.dtype)

    def _one_class(self, shape: tuple[int | None, int | None]) -> OneClass:
        weights = check_pair_of_weights("weight_unlabelled", self.weight_unlabelled, shape)
        return OneClass(get_loss(self.loss), get_loss(self.loss_unlabelled), float(self.negative_target), weights)

    def _cells(self, material: Material) -> Cells:
        kernels, dtype, labels = self._kernels(), np.dtype(self.dtype).type, material.labels
        one_class = replace(self._one_class(labels.shape), importance=material.importance)
        if self._counted_share(labels) == 1:
            return one_class.cells(labels.positives, kernels, dtype)
        rng = check_random_state(self.random_state)
        return one_class.sampled_cells(labels.positives, float(self.negative_ratio), rng, kernels, dtype)

    def _counted_share(self, labels: Labels) -> float:
        positives, cells = labels.positives.nnz, labels.shape[0] * labels.shape[1]
        if self.negatives == "all" or positives == cells:
            return 1.0
        return min(1.0, float(self.negative_ratio) * positives / (cells - positives))

    def _rank_of(self, material: Material) -> int:
        left, right = material.left, material.right
        rows = "rows" if isinstance(left, Identity) else "features"
        labels = "labels" if isinstance(right, Identity) else "label features"
        constant = bool(self.fit_intercept) and not isinstance(left, Identity)
        return self._rank(left.shape[1] - constant, right.shape[1], f"{rows}, {labels}")

    def _check_further(self, X: Any) -> Any:
        if bool(self.n_features_in_) == (X is not None):
            return X if X is None else self._check_rows(X)
        name = type(self).__name__
        raise ValueError(
            f"X is None, and this {name} was fitted with features of rows; pass their features."
            if X is None
            else f"X is given, and this {name} was fitted without features of rows; pass None."
        )

    def _all_alike(self, **side: Any) -> bool:
        given = any(value is not None for value in side.values())
        return bool(self.n_features_in_) and not given and isinstance(self.weight_unlabelled, Real)

    def _check_past(self, past: Any, n_labels: int, names: NDArray | None) -> Rows:
        rows = super()._check_past(past, n_labels, names)
        if not self.n_features_in_ and len(rows.labels) != len(self.row_factors_):
            raise ValueError(
                f"The Y of past has {len(rows.labels)} rows, and this {type(self).__name__} knows its "
                f"{len(self.row_factors_)} rows by number; pass them all, in their order."
            )
        return rows

    def _kept_past(self) -> Rows | None:
        return None if self.n_features_in_ else Rows(None, Labels.of_patterns(self.seen_))

    def _learn_all(
        self, before: Rows, rows: Rows, alternations: int, *, row_weights: Any = None, **side: Any
    ) -> KeyboardInterrupt | None:
        if not self.n_features_in_:
            row_weights = self._grown_row_weights(row_weights, len(rows.labels))
        return super()._learn_all(before, rows, alternations, row_weights=row_weights, **side)

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

    def _fold_in_further(
        self, problem: LowRank, labels: Labels, H: NDArray, *, row_weights: Any = None, **side: Any
    ) -> NDArray:
        """Return the factors of newcomers that have the weights and penalties of these rows, the last ones."""
        further = np.arange(-len(labels), 0)
        p, q = self._one_class(problem.cells.shape).weights.of_rows(further)
        importance = Weights() if row_weights is None else Weights(row_weights[further, None])
        alpha = problem.penalty_left.alpha
        weights = Weights(p, q * self.unlabelled_share_)
        alpha = alpha[further] if np.ndim(alpha) else alpha  # type: ignore[index]
        return self._fold_in(labels.positives, problem.right.times(H), weights, importance, alpha)

    def _problem_with(self, rows: Rows, **side: Any) -> tuple[LowRank, Cells | None]:
        material = self._bind(*rows, **side)
        return self._problem(material), self._blank_cells(material)

    def _blank_cells(self, material: Material) -> Cells | None:
        """Return the cells of a label that none of the rows has."""
        n = len(material.labels)
        p, q = self._one_class((n, None)).weights
        weights = Weights(p, float(np.mean(q)) * self.unlabelled_share_)
        one_class = replace(self._one_class((None, None)), weights=weights, importance=material.importance)
        nothing = sp.csr_array((n, 1), dtype=bool)
        return one_class.cells(nothing, self._kernels(), np.dtype(self.dtype).type)

    def _store_further(self, B: NDArray, labels: Labels, *, row_weights: Any = None, **side: Any) -> None:
        if not hasattr(self, "row_factors_"):
            return
        weights = self._grown_row_weights(row_weights, len(B))
        if weights is not None:
            self.row_weights_ = weights
        self.row_factors_ = np.vstack([self.row_factors_, B])
        seen = stacked(widened(Labels.of_patterns(self.seen_), labels.shape[1]), labels)
        self.seen_ = seen.positives

    def _choose_solver(self, problem: LowRank) -> Solver:
        solvers: dict[str, Solver] = {"cg": NewtonCG(), "tron": TRON(), "gd": GradientDescent(), "direct": Direct()}
        if self.solver != "auto":
            return solvers[self.solver]
        return solvers["direct" if isinstance(problem.cells, AllCellsSquared) and problem.plain else "cg"]

    def _store_factors(self, problem: LowRank, W: NDArray, H: NDArray, labels: Labels) -> None:
        for name in ("label_feature_factors_", "row_factors_", "seen_", "row_weights_"):
            self.__dict__.pop(name, None)
        featureless = isinstance(problem.left, Identity)
        if featureless:
            self.feature_factors_, self.intercept_factors_ = W[:0], np.zeros_like(H[0])
        else:
            self._store_features(W)
        if not isinstance(problem.right, Identity):
            self.label_feature_factors_ = H
        self.label_factors_ = problem.right.times(H)
        if featureless or self.keep_rows:
            self.row_factors_, self.seen_ = problem.left.times(W), labels.positives

    def _previous_factors(self) -> tuple[NDArray, NDArray]:
        W = self._stacked_factors() if len(self.feature_factors_) else self.row_factors_
        return W, getattr(self, "label_feature_factors_", self.label_factors_)

    def _check_rows(self, X: Any, *, reset: bool = False) -> Any:
        """Return features; of a model without features, the numbers of training rows, all of them for None."""
        if reset or self.n_features_in_:
            return super()._check_rows(X, reset=reset)
        return np.arange(len(self.row_factors_)) if X is None else self._check_ids("X", X, len(self.row_factors_))

    def _embed(self, X: Any) -> NDArray:
        return self._embed_features(X) if self.n_features_in_ else self.row_factors_[X]

    def _check_loaded(self) -> None:
        self._check_memory()
        k = self.label_factors_.shape[1]
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
