"""The one problem, as a value, and the plain functions on it: start, solve.

    F(W, H) = Σ over cells of ℓ(Y_ij, x_iᵀ W Hᵀ z_j) + (α_W/2) ‖W‖² + (α_H/2) ‖H‖²
              + (γ/2) tr(BᵀL B) + (γ_H/2) tr(CᵀL_H C),            B = X W,  C = Z H

An estimator validates, binds its data, makes a problem, solves it and stores the factors. Where the data live (which
device, how many shards) is decided by the backend that they are bound to, and nowhere after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.checkpoints import slot
from labelgap.kernels import Backend, get_backend, matmul, namespace, qr, svd, whole
from labelgap.objectives.base import Composed, Ridge, Sum
from labelgap.objectives.cells import Cells, Weights
from labelgap.objectives.features import Features, Identity, Undecomposed, numbers_in_range
from labelgap.objectives.graph import Graph, GraphPenalty
from labelgap.observations import Labels
from labelgap.runtime import progress
from labelgap.solvers import TRON, Direct, Fit, GradientDescent, NewtonCG, Solver, Status, alternate
from labelgap.solvers.base import Array, LinearMap, Objective, Scalar
from labelgap.solvers.subspace import leading_right_vectors

SOLVERS: dict[str, Callable[[], Solver]] = {"direct": Direct, "cg": NewtonCG, "tron": TRON, "gd": GradientDescent}


@dataclass(frozen=True)
class SideData:
    """What is given of rows and labels beside features and cells; None where it is not.

    Attributes
    ----------
    row_graph : sparse matrix of shape (n, n)
        Similarities of rows.
    label_graph : sparse matrix of shape (L, L)
        Similarities of labels.
    label_features : matrix of shape (L, e)
        Features Z of labels.
    row_weights : array of shape (n,)
        How much each row counts.
    """

    row_graph: Any = None
    label_graph: Any = None
    label_features: Any = None
    row_weights: Any = None

    def of_rows(self, rows: Any) -> SideData:
        """Return what belongs to some of the rows, and to all labels."""
        graph, weights = self.row_graph, self.row_weights
        if graph is not None:
            graph = sp.csr_array(graph)[rows][:, rows]
        return replace(self, row_graph=graph, row_weights=None if weights is None else np.asarray(weights)[rows])

    @property
    def given(self) -> list[str]:
        """The names of what is given."""
        return [name for name, value in vars(self).items() if value is not None]


@dataclass(frozen=True)
class BoundData:
    """Validated rows, labels and side data, bound to a backend: what all problems on the same rows share.

    Eigenvectors, transposes and Laplacians are kept with it, so that they are computed once for any number of
    problems.
    """

    backend: Backend
    labels: Labels
    left: LinearMap
    right: LinearMap
    dtype: Any
    row_graph: Graph | None = None
    label_graph: Graph | None = None
    importance: Weights = field(default_factory=Weights)
    side: SideData = field(default_factory=SideData)


def bind(
    X: Any, labels: Labels, backend: Backend, dtype: Any, *, constant: bool, side: SideData | None = None
) -> BoundData:
    """Bind validated data; X is None for rows without features."""
    (n, L), side = labels.shape, side or SideData()
    Z, rows, weights = side.label_features, side.row_graph, side.row_weights
    return BoundData(
        backend,
        labels,
        Identity(n) if X is None else Features(X, backend, dtype, constant=constant),
        Identity(L) if Z is None else Features(Z, whole(backend), dtype),
        dtype,
        None if rows is None else Graph.of(rows, backend, dtype),
        None if side.label_graph is None else Graph.of(side.label_graph, whole(backend), dtype),
        Weights() if weights is None else Weights(np.asarray(weights, float)[:, None]),
        side,
    )


class Penalties(NamedTuple):
    """α of W and of H: numbers, or columns with one for each row of the factor."""

    left: float | Array
    right: float | Array


@dataclass(frozen=True)
class Problem:
    """What is minimised.

    H given W is the same problem seen from the other side, so there is one construction for both factors.

    Attributes
    ----------
    backend : Backend
        Where the arrays live.
    cells : Cells
        The label cells that count.
    left, right : LinearMap
        Features of the rows (X) and of the labels (Z).
    penalties : Penalties
        α_W and α_H.
    left_terms, right_terms : sequence of Objective
        Further terms in B and in C, such as a graph's.
    blank_cells : Cells or None
        The cells of one label that none of the rows has; None where they would not be known.
    precompute : bool or "auto"
        Make the d×d matrix Xᵀ diag(p) X of a squared term over all cells beforehand; "auto" does so where that saves
        work, d² + dk < nk (002, eq. 1.5).
    """

    backend: Backend
    cells: Cells
    left: LinearMap
    right: LinearMap
    penalties: Penalties
    left_terms: Sequence[Objective] = ()
    right_terms: Sequence[Objective] = ()
    blank_cells: Cells | None = None
    precompute: bool | Literal["auto"] = False

    @classmethod
    def of(
        cls,
        cells: Cells,
        left: LinearMap,
        right: LinearMap | None = None,
        *,
        alpha: float | Array,
        alpha_labels: float | Array | None = None,
        backend: Backend | None = None,
        **others: Any,
    ) -> Problem:
        """Return the problem of bound cells and features, with labels that have no features unless they are given."""
        right = Identity(cells.shape[1]) if right is None else right
        penalties = Penalties(alpha, alpha if alpha_labels is None else alpha_labels)
        return cls(get_backend() if backend is None else backend, cells, left, right, penalties, **others)

    def given_right(self, H: Array) -> Objective:
        """F(·, H), an objective in W."""
        C = self.right.times(H)
        data = self._composed(self.left, self.cells.given(C), self.left_terms, H.shape[1])
        others = Ridge(self.penalties.right).value(H)
        if self.right_terms:
            others = others + Sum(self.right_terms).value(C)
        return Sum([data, Ridge(self.penalties.left)], others)

    def given_left(self, W: Array) -> Objective:
        """F(W, ·), an objective in H."""
        B = self.left.times(W)
        data = self._composed(self.right, self.cells.T.given(B), self.right_terms, W.shape[1])
        others = Ridge(self.penalties.left).value(W)
        if self.left_terms:
            others = others + Sum(self.left_terms).value(B)
        return Sum([data, Ridge(self.penalties.right)], others)

    def _composed(self, features: LinearMap, data: Objective, terms: Sequence[Objective], k: int) -> Objective:
        """Compose with features; the identity would only hide that the rows are independent."""
        objective = Sum([data, *terms]) if terms else data
        if features.is_identity:
            return objective
        n, d = features.shape
        precompute = d * d + d * k < n * k if self.precompute == "auto" else self.precompute
        return _precomputed(features, objective) if precompute else Composed(features, objective)

    def value(self, W: Array, H: Array) -> Scalar:
        """F(W, H)."""
        return self.given_left(W).value(H)

    @property
    def exact(self) -> bool:
        """Whether each half step is a quadratic with a Kronecker Hessian, which :class:`Direct` solves."""
        one_penalty = np.ndim(self.penalties.left) == np.ndim(self.penalties.right) == 0
        return self.cells.quadratic and one_penalty and not self.left_terms and not self.right_terms

    def solver(self, name: str) -> Solver:
        """Return the solver of a name; "auto" is direct where it applies, else cg."""
        if name == "auto":
            name = "direct" if self.exact else "cg"
        return SOLVERS[name]()

    def for_few_steps(self) -> Problem:
        """Return the problem without XᵀX and its eigenvectors, which cost more than a few steps."""
        left, right = (side if side.is_identity else Undecomposed(side) for side in (self.left, self.right))
        return replace(self, left=left, right=right, precompute=False)

    def factors(self, W: Any, H: Any, dtype: Any) -> Fit:
        """Return factors that are NumPy arrays as a start on the device."""
        left = self.backend.rows if self.left.is_identity else self.backend.array
        return Fit(left(W, dtype), self.backend.array(H, dtype))

    def balance(self, W: Array, H: Array) -> tuple[Array, Array, float]:
        """Rewrite W Hᵀ = U S Vᵀ as factors with the least penalty: √S on each side, weighted by the α's.

        The scores stay, and (‖W‖² + ‖H‖²)/2 becomes the nuclear norm of the product, its least value. Further terms
        need not be indifferent to it, so the factors are taken only where F falls by it.
        """
        a, b = self.penalties
        if np.ndim(a) or np.ndim(b) or a <= 0 or b <= 0:
            return W, H, 0.0
        new_W, new_H = balanced(W, H, (b / a) ** 0.25)
        gain = float(self._penalty(W, H) - self._penalty(new_W, new_H))
        return (new_W, new_H, gain) if gain > 0 else (W, H, 0.0)

    def _penalty(self, W: Array, H: Array) -> Scalar:
        """All of F but the cells."""
        penalty = Ridge(self.penalties.left).value(W) + Ridge(self.penalties.right).value(H)
        if self.left_terms:
            penalty = penalty + Sum(self.left_terms).value(self.left.times(W))
        if self.right_terms:
            penalty = penalty + Sum(self.right_terms).value(self.right.times(H))
        return penalty


def _precomputed(features: LinearMap, objective: Objective) -> Objective:
    """Compose with features, each term by itself, so that those that can make their d×d matrix beforehand."""
    if isinstance(objective, Sum):
        return Sum([_precomputed(features, term) for term in objective.terms], objective.constant)
    composed = getattr(objective, "composed", None)
    return composed(features) if composed is not None else Composed(features, objective)


def balanced(W: Array, H: Array, ratio: float) -> tuple[Array, Array]:
    """Return U √S · ratio and V √S / ratio for W Hᵀ = U S Vᵀ, by way of k×k matrices."""
    (QW, RW), (QH, RH) = qr(W), qr(H)
    U, S, Vt = svd(RW @ RH.T)
    root = namespace(S).sqrt(S)
    width, missing = S.shape[0], W.shape[1] - S.shape[0]
    new_W, new_H = matmul(QW, U[:, :width] * (root * ratio)), matmul(QH, Vt.T[:, :width] * (root / ratio))
    return (_padded(new_W, missing), _padded(new_H, missing)) if missing else (new_W, new_H)


def _padded(factor: Array, columns: int) -> Array:
    """Append columns of zeros: a product of less than full rank needs fewer than there are."""
    xp = namespace(factor)
    return xp.concat([factor] + [0 * factor[:, :1]] * columns, axis=1)


class Iteration(NamedTuple):
    """What a callback is told after each alternation; returning True from it ends the fit."""

    number: int
    objective: float
    feature_factors: NDArray
    label_factors: NDArray


@dataclass(frozen=True)
class Options:
    """How a problem is solved.

    Attributes
    ----------
    solver : Solver
        What solves a half step.
    max_iter, tol
        The most alternations, and the share of F by which one must lower it for more to follow.
    dtype : str or type
        The precision of the factors.
    title : str
        What progress and checkpoints are called.
    verbose : int
        See :func:`labelgap.runtime.progress`.
    callbacks : sequence of callables
        Each is called with an :class:`Iteration`; True ends the fit.
    """

    solver: Solver
    max_iter: int
    tol: float
    dtype: Any = "float64"
    title: str = "solve"
    verbose: int = 0
    callbacks: Sequence[Callable[[Iteration], Any]] = ()


def start(problem: Problem, k: int, *, init: str, random_state: np.random.RandomState, dtype: Any) -> Fit:
    """Return W = 0 and an H of k columns to start from.

    With init="svd" they are the leading right singular vectors of Xᵀ T Z, T the targets: what features and labels
    share. With "random" they are drawn.
    """
    left, right, cells, backend = problem.left, problem.right, problem.cells, problem.backend
    if init == "svd":
        with numbers_in_range(dtype):
            _, H = leading_right_vectors(
                lambda P: left.t_times(cells.targets_times(right.times(P))),
                lambda P: right.t_times(cells.T.targets_times(left.times(P))),
                right.shape[1],
                k,
                random_state=random_state,
                dtype=np.dtype(dtype),
                bring=backend.array,
            )
    else:
        H = random_state.standard_normal((right.shape[1], k)) / np.sqrt(k)
    return problem.factors(np.zeros((left.shape[1], k), dtype), H, np.dtype(dtype))


def solve(problem: Problem, fit: Fit, options: Options) -> Fit:
    """Alternate from the factors of ``fit`` until F settles; ``fit`` is updated in place and returned.

    After Ctrl-C it holds the last whole alternation and the interrupt, which the caller raises again once the factors
    are stored; before the first alternation the interrupt is raised at once.
    """
    kept, backend = slot(options.title), problem.backend
    resumed = kept.checkpoint is not None and not options.callbacks  # which would not be told of what was done
    before = kept.recall() if resumed else None
    if before is not None:
        done = problem.factors(before["W"], before["H"], np.dtype(options.dtype))
        fit.W, fit.H, fit.history = done.W, done.H, before["history"].tolist()
    with progress(options.max_iter, options.title, options.verbose, fit.n_iter) as advance:

        def after(fit: Fit) -> bool:
            advance(f"F = {fit.history[-1]:.6g}")
            if resumed:
                kept.keep({"W": backend.to_numpy(fit.W), "H": backend.to_numpy(fit.H), "history": fit.history})
            if not options.callbacks:
                return False
            told = Iteration(fit.n_iter, fit.history[-1], backend.to_numpy(fit.W), backend.to_numpy(fit.H))
            answers = [callback(told) for callback in options.callbacks]  # each is told, whatever others answer
            return any(answers)

        try:
            with numbers_in_range(options.dtype):
                solver = options.solver
                alternate(problem, fit, solver, solver, max_iter=options.max_iter, tol=options.tol, stop=after)
        except KeyboardInterrupt as interrupt:
            if not fit.history:
                raise
            fit.status, fit.interrupt = Status.STOPPED, interrupt
    return fit


def is_nonzero(W: Any, H: Any) -> bool:
    """Tell whether factors can be a start: those that a strong penalty has brought to 0 are stationary.

    >>> is_nonzero(np.zeros((2, 1)), np.ones((3, 1)))
    False
    """
    return bool(np.abs(W).max() * np.abs(H).max() > np.finfo(W.dtype).eps)


def graph_terms(graph: Graph | None, gamma: float) -> list[Objective]:
    """Return the penalty of a graph as a list of terms, which is empty where there is none."""
    return [] if graph is None or not gamma else [GraphPenalty(graph, float(gamma))]
