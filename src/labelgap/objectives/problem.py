"""The problem that LEML and OneClassMF minimise, and the functions on it: bind, start, solve.

    F(W, H) = Σ over cells of ℓ(Y_ij, x_iᵀ W Hᵀ z_j) + (α_W/2) ‖W‖² + (α_H/2) ‖H‖²
              + (γ/2) tr(BᵀL B) + (γ_H/2) tr(CᵀL_H C),            B = X W,  C = Z H

An estimator validates its data, binds them, makes a problem, solves it and stores the factors. The backend of the
bound data alone decides where they are: on which device, in how many shards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.checkpoints import slot
from labelgap.kernels import Backend, eigh, exact_gram, factorize, get_backend, get_label_backend, matmul, namespace
from labelgap.kernels.base import repeat_when_lost
from labelgap.objectives.base import Composition, Graph, GraphPenalty, Ridge, Sum
from labelgap.objectives.cells import BoundCells, Weights
from labelgap.objectives.features import Features, Identity, ProductsOnly, explain_overflow
from labelgap.observations import Labels
from labelgap.runtime import progress
from labelgap.solvers import TRON, Direct, Fit, GradientDescent, NewtonCG, Solver, Status, alternate
from labelgap.solvers.base import Array, LinearMap, Objective, Scalar
from labelgap.solvers.rounds import Rounds
from labelgap.solvers.spectral import OVERSAMPLING, find_right_vectors, orthonormalize

LABEL_ITERATIONS = 2  # of the start, without features
SOLVERS: dict[str, Callable[[], Solver]] = {"direct": Direct, "cg": NewtonCG, "tron": TRON, "gd": GradientDescent}


@dataclass(frozen=True)
class SideData:
    """Optional data about rows and labels besides features and cells; None if absent.

    Attributes
    ----------
    row_graph : sparse matrix of shape (n, n)
        Similarities between rows.
    label_graph : sparse matrix of shape (L, L)
        Similarities between labels.
    label_features : matrix of shape (L, e)
        Features Z of labels.
    row_weights : array of shape (n,)
        The weight of each row.
    """

    row_graph: Any = None
    label_graph: Any = None
    label_features: Any = None
    row_weights: Any = None

    def select_rows(self, rows: Any) -> SideData:
        """Return the data of some rows, and of all labels."""
        graph, weights = self.row_graph, self.row_weights
        if graph is not None:
            graph = sp.csr_array(graph)[rows][:, rows]
        return replace(self, row_graph=graph, row_weights=None if weights is None else np.asarray(weights)[rows])

    @property
    def names(self) -> list[str]:
        """The names of the data that are present."""
        return [name for name, value in vars(self).items() if value is not None]


@dataclass(frozen=True)
class BoundData:
    """Validated rows, labels and side data, bound to a backend, for any number of problems on the same rows.

    Its features, cells and graphs cache eigenvectors, transposes and Laplacians, which are computed once.
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
    """Bind validated data to a backend; X is None for rows without features.

    A backend may have a method ``split``, which returns the one for data of a size.
    """
    (n, L), side = labels.shape, side or SideData()
    if hasattr(backend, "split"):
        known = labels.positives if labels.known is None else labels.known
        backend = backend.split(known.nnz + (X.nnz if sp.issparse(X) else 0))
    Z, rows, weights = side.label_features, side.row_graph, side.row_weights
    return BoundData(
        backend,
        labels,
        Identity(n) if X is None else Features(X, backend, dtype, constant=constant),
        Identity(L) if Z is None else Features(Z, get_label_backend(backend), dtype),
        dtype,
        None if rows is None else Graph.of(rows, backend, dtype),
        None if side.label_graph is None else Graph.of(side.label_graph, get_label_backend(backend), dtype),
        Weights() if weights is None else Weights(np.asarray(weights, float)[:, None]),
        side,
    )


class Penalties(NamedTuple):
    """α of W and of H: a number, or a column with one for each row of the factor."""

    left: float | Array
    right: float | Array


@dataclass(frozen=True)
class Problem:
    """The problem as a value. Transposed cells give the objective in H, so both factors share one construction.

    Attributes
    ----------
    backend : Backend
        The backend of the arrays.
    cells : BoundCells
        The label cells in the sum.
    left, right : LinearMap
        Features of the rows (X) and of the labels (Z).
    penalties : Penalties
        α_W and α_H.
    left_terms, right_terms : sequence of Objective
        Further terms in B and in C, such as a graph penalty.
    blank_cells : BoundCells or None
        The cells of a label without positives; None if they would be unknown.
    precompute : bool or "auto"
        Whether to precompute the d×d matrix Xᵀ diag(p) X of a squared term over all cells; "auto" does so if that
        saves work, d² + dk < nk (002, eq. 1.5).
    """

    backend: Backend
    cells: BoundCells
    left: LinearMap
    right: LinearMap
    penalties: Penalties
    left_terms: Sequence[Objective] = ()
    right_terms: Sequence[Objective] = ()
    blank_cells: BoundCells | None = None
    precompute: bool | Literal["auto"] = False

    @classmethod
    def of(
        cls,
        cells: BoundCells,
        left: LinearMap,
        right: LinearMap | None = None,
        *,
        alpha: float | Array,
        alpha_labels: float | Array | None = None,
        backend: Backend | None = None,
        **others: Any,
    ) -> Problem:
        """Return the problem of bound cells and features; without ``right`` the labels have no features."""
        right = Identity(cells.shape[1]) if right is None else right
        penalties = Penalties(alpha, alpha if alpha_labels is None else alpha_labels)
        return cls(get_backend() if backend is None else backend, cells, left, right, penalties, **others)

    def objective_in_left(self, H: Array) -> Objective:
        """Return F(·, H), an objective in W."""
        C = self.right.times(H)
        data = self._compose(self.left, self.cells.objective_in_left(C), self.left_terms, H.shape[1])
        return Sum([data, self.left_penalty()], self._right_penalty(H, C))

    def objective_in_image(self, H: Array) -> Objective:
        """Return F(·, H) without the penalty of W, an objective in B = X W."""
        C = self.right.times(H)
        return Sum([self.cells.objective_in_left(C), *self.left_terms], self._right_penalty(H, C))

    def zero_image(self, W: Array) -> Array:
        """Return X W for a W of 0."""
        return self.cells.zeros(W.shape[1], W.dtype)

    def left_penalty(self) -> Ridge:
        """Return the penalty of W."""
        return Ridge(self.penalties.left)

    def _right_penalty(self, H: Array, C: Array) -> Scalar:
        penalty = Ridge(self.penalties.right).value(H)
        return penalty + Sum(self.right_terms).value(C) if self.right_terms else penalty

    def objective_in_right(self, W: Array, B: Array | None = None) -> Objective:
        """Return F(W, ·), an objective in H; B is X W, if it is known."""
        B = self.left.times(W) if B is None else B
        data = self._compose(self.right, self.cells.T.objective_in_left(B), self.right_terms, W.shape[1])
        constant = Ridge(self.penalties.left).value(W)
        if self.left_terms:
            constant = constant + Sum(self.left_terms).value(B)
        return Sum([data, Ridge(self.penalties.right)], constant)

    def _compose(self, features: LinearMap, data: Objective, terms: Sequence[Objective], k: int) -> Objective:
        """Compose with features, except with the identity, which would hide that the rows are independent."""
        objective = Sum([data, *terms]) if terms else data
        if features.is_identity:
            return objective
        n, d = features.shape
        precompute = d * d + d * k < n * k if self.precompute == "auto" else self.precompute
        return _compose_terms(features, objective) if precompute else Composition(features, objective)

    def value(self, W: Array, H: Array) -> Scalar:
        """Return F(W, H)."""
        return self.objective_in_right(W).value(H)

    @property
    def exact(self) -> bool:
        """Whether each half step is a quadratic with a Kronecker Hessian, as :class:`Direct` requires."""
        one_penalty = np.ndim(self.penalties.left) == np.ndim(self.penalties.right) == 0
        return self.cells.quadratic and one_penalty and not self.left_terms and not self.right_terms

    def make_solver(self, name: str) -> Solver:
        """Return the solver of a name; "auto" is direct if it applies, else cg, in rounds without eigenvectors."""
        return Rounds(Direct() if self.exact else NewtonCG()) if name == "auto" else SOLVERS[name]()

    def without_eigenvectors(self) -> Problem:
        """Return the problem without XᵀX and its eigenvectors, which cost more than a few steps."""
        left, right = (side if side.is_identity else ProductsOnly(side) for side in (self.left, self.right))
        return replace(self, left=left, right=right, precompute=False)

    def make_fit(self, W: Any, H: Any, dtype: Any) -> Fit:
        """Copy NumPy factors to the device, as a start."""
        left = self.backend.rows if self.left.is_identity else self.backend.array
        return Fit(left(W, dtype), self.backend.array(H, dtype))

    def balance(self, W: Array, H: Array) -> tuple[Array, Array, float]:
        """Rewrite W Hᵀ = U S Vᵀ as factors with the least penalty: √S on each side, weighted by the α's.

        Scores do not change, and (‖W‖² + ‖H‖²)/2 becomes the nuclear norm of the product, its least value. Further
        terms may rise, so the new factors are returned only if F falls. The last result is the decrease of F.
        """
        balance = self.find_balance(W, H)
        return (W, H, 0.0) if balance is None else (_mix(W, balance[0]), _mix(H, balance[1]), balance[2])

    def find_balance(self, W: Array, H: Array) -> tuple[Array, Array, float] | None:
        """Return the k×k matrices of :meth:`balance` and the decrease of F; None if there is none."""
        a, b = self.penalties
        if np.ndim(a) or np.ndim(b) or a <= 0 or b <= 0:
            return None
        left, right = exact_gram(W), exact_gram(H)
        matrices = balance_grams(left, right, (b / a) ** 0.25)
        if matrices is None:
            return None
        T, U = matrices
        if self.left_terms or self.right_terms:
            gain = float(self._penalty(W, H) - self._penalty(_mix(W, T), _mix(H, U)))
        else:
            gain = 0.5 * float(
                a * (_trace(left) - _trace(T.T @ left @ T)) + b * (_trace(right) - _trace(U.T @ right @ U))
            )
        return (T, U, gain) if gain > 0 else None

    def _penalty(self, W: Array, H: Array) -> Scalar:
        """Return F without the sum over cells."""
        penalty = Ridge(self.penalties.left).value(W) + Ridge(self.penalties.right).value(H)
        if self.left_terms:
            penalty = penalty + Sum(self.left_terms).value(self.left.times(W))
        if self.right_terms:
            penalty = penalty + Sum(self.right_terms).value(self.right.times(H))
        return penalty


def _compose_terms(features: LinearMap, objective: Objective) -> Objective:
    """Compose each term of a sum with features; terms that can precompute their d×d matrix do so."""
    if isinstance(objective, Sum):
        return Sum([_compose_terms(features, term) for term in objective.terms], objective.constant)
    precompute = getattr(objective, "precompute", None)
    return precompute(features) if precompute is not None else Composition(features, objective)


def balance_factors(W: Array, H: Array, ratio: float) -> tuple[Array, Array]:
    """Return U √S · ratio and V √S / ratio for W Hᵀ = U S Vᵀ."""
    matrices = balance_grams(exact_gram(W), exact_gram(H), ratio)
    return (W, H) if matrices is None else (_mix(W, matrices[0]), _mix(H, matrices[1]))


MIN_EIGENVALUE = 1e-15  # of a Gram matrix, relative


def balance_grams(left: Array, right: Array, ratio: float) -> tuple[Array, Array] | None:
    """Return the k×k matrices T and U with W T = U_s √S · ratio and H U = V_s √S / ratio for W Hᵀ = U_s S V_sᵀ.

    ``left`` = WᵀW = RRᵀ and ``right`` = HᵀH are float64. With RᵀHᵀHR = QDQᵀ, T = R⁻ᵀQD^¼ and U = RQD^-¼. R is
    Cholesky's factor, or VΛ^½ of the eigenvectors if some eigenvalues are small; these are rounded up. T Uᵀ = I, so
    the product does not change. The sign of each column is that of its largest number in T. None if a factor is 0 or
    infinite.

    >>> T, U = balance_grams(np.array([[16.0]]), np.array([[1.0]]), 1.0)
    >>> T, U
    (array([[0.5]]), array([[2.]]))
    """
    xp = namespace(left)
    if not (0 < float(_trace(left)) < np.inf and 0 < float(_trace(right)) < np.inf):
        return None
    root, inverse = _find_root(left)
    form = root.T @ right @ root
    squares, Q = eigh((form + form.T) / 2)
    squares, Q = xp.flip(squares, axis=0), xp.flip(Q, axis=1)
    fourth = xp.clip(squares, MIN_EIGENVALUE * squares[0]) ** 0.25 * ratio
    T, U = inverse @ Q * fourth, root @ Q / fourth
    signs = 2 * xp.astype(xp.max(T, axis=0) >= -xp.min(T, axis=0), xp.float64) - 1
    return T * signs, U * signs


def _find_root(gram: Array) -> tuple[Array, Array]:
    """Return R with R Rᵀ = gram, and R⁻ᵀ."""
    xp, lower = namespace(gram), factorize(gram)
    if lower is not None:
        return lower, xp.linalg.inv(lower).T
    values, V = eigh(gram)
    roots = xp.sqrt(xp.clip(values, MIN_EIGENVALUE * values[-1]))
    return V * roots, V / roots


def _trace(M: Array) -> Scalar:
    return namespace(M).linalg.trace(M)


def _mix(factor: Array, T: Array) -> Array:
    """Return the factor times a float64 k×k matrix, in the precision of the factor."""
    return matmul(factor, namespace(T).astype(T, factor.dtype))


class Iteration(NamedTuple):
    """The argument of callbacks after each alternation; a callback that returns True ends the fit."""

    number: int
    objective: float
    feature_factors: NDArray
    label_factors: NDArray


@dataclass(frozen=True)
class Options:
    """The settings of :func:`solve`.

    Attributes
    ----------
    solver : Solver
        The solver of each half step.
    max_iter, tol
        The maximum number of alternations, and the relative decrease of F below which they stop.
    dtype : str or type
        The precision of the factors.
    title : str
        The name in progress reports and checkpoints.
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

    With init="svd" the columns are about the leading right singular vectors of Xᵀ T Z, T the targets; with "random"
    they are random normal numbers. Where X has no cheap eigenvectors, its products are the main cost: iterations with
    T alone then leave one with X.
    """
    left, right, cells, backend = problem.left, problem.right, problem.cells, problem.backend
    if init != "svd":
        H = backend.normal(random_state, (right.shape[1], k), dtype) / k**0.5
        return Fit(_make_zeros(problem, H), H)

    with explain_overflow(dtype):
        block = None
        if left.spectrum() is None and k <= left.shape[0]:
            width = min(right.shape[1], k + OVERSAMPLING)
            block = backend.normal(random_state, (right.shape[1], width), dtype)
            for _ in range(LABEL_ITERATIONS):
                image = cells.T.multiply_targets(cells.multiply_targets(right.times(block)))
                block = orthonormalize(right.t_times(image))
        _, H = find_right_vectors(
            lambda P: left.coarse.t_times(cells.multiply_targets(right.times(P))),
            lambda P: right.t_times(cells.T.multiply_targets(left.coarse.times(P))),
            right.shape[1],
            k,
            random_state=random_state,
            dtype=np.dtype(dtype),
            convert=backend.array,
            draw=backend.normal,
            n_iter=2 if block is None else 0,
            first=block,
        )
    return Fit(_make_zeros(problem, H), H)


def _make_zeros(problem: Problem, H: Array) -> Array:
    """Return W = 0 on the device, with as many columns as H."""
    if problem.left.is_identity:
        return problem.cells.zeros(H.shape[1], H.dtype)
    xp = namespace(H)
    return xp.zeros((problem.left.shape[1], H.shape[1]), dtype=H.dtype, device=getattr(H, "device", None))


def solve(problem: Problem, fit: Fit, options: Options) -> Fit:
    """Alternate from the factors of ``fit`` until F converges; ``fit`` is updated in place and returned.

    After Ctrl-C it has the factors of the last complete alternation and the interrupt, which the caller raises again
    after storing the factors. Before the first complete alternation the interrupt is raised at once.
    """
    piece, backend = slot(options.title), problem.backend
    resumable = piece.checkpoint is not None and not options.callbacks  # these would miss earlier alternations
    stored = piece.recall() if resumable else None
    if stored is not None:
        earlier = problem.make_fit(stored["W"], stored["H"], np.dtype(options.dtype))
        fit.W, fit.H, fit.history = earlier.W, earlier.H, stored["history"].tolist()
        if "step" in stored:
            step = problem.make_fit(stored["step"], stored["H"], np.dtype(options.dtype)).W
            fit.step = step, float(stored["length"])
    with progress(options.max_iter, options.title, options.verbose, fit.n_iter) as advance:

        def report(fit: Fit) -> bool:
            advance(f"F = {fit.history[-1]:.6g}")
            fit.W = backend.settle(fit.W)
            if resumable:
                arrays = {"W": backend.to_numpy(fit.W), "H": backend.to_numpy(fit.H), "history": fit.history}
                if fit.step is not None:  # the next alternation overwrites it
                    arrays |= {"step": np.array(backend.to_numpy(fit.step[0])), "length": fit.step[1]}
                piece.keep(arrays)
            if not options.callbacks:
                return False
            iteration = Iteration(fit.n_iter, fit.history[-1], backend.to_numpy(fit.W), backend.to_numpy(fit.H))
            stops = [callback(iteration) for callback in options.callbacks]  # call all of them
            return any(stops)

        try:
            with explain_overflow(options.dtype):
                solvers = options.solver, options.solver
                repeat_when_lost(
                    partial(
                        alternate, problem, fit, *solvers, max_iter=options.max_iter, tol=options.tol, stop=report
                    ),
                    lambda: fit.n_iter,
                )
        except KeyboardInterrupt as interrupt:
            if not fit.history:
                raise
            fit.status, fit.interrupt = Status.STOPPED, interrupt
    return fit


def is_nonzero(W: Any, H: Any) -> bool:
    """Return whether factors can be a start: factors that a strong penalty has reduced to 0 are stationary.

    >>> is_nonzero(np.zeros((2, 1)), np.ones((3, 1)))
    False
    """
    return bool(np.abs(W).max() * np.abs(H).max() > np.finfo(W.dtype).eps)


def make_graph_terms(graph: Graph | None, gamma: float) -> list[Objective]:
    """Return the penalty of a graph in a list, which is empty without a graph or γ."""
    return [] if graph is None or not gamma else [GraphPenalty(graph, float(gamma))]
