"""SLEEC's objectives: embeddings that preserve inner products of neighbours, and their regression on features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from array_api_compat import is_torch_array

from labelgap.kernels import Backend, CellLoss, add_to_diagonal, cholesky, factorize, namespace, substitute
from labelgap.losses import CellFunctions, Squared
from labelgap.objectives.base import Composition, Ridge, Sum
from labelgap.objectives.cells import KnownCells
from labelgap.objectives.features import Identity, WithoutConstant
from labelgap.objectives.problem import Problem
from labelgap.runtime import threads
from labelgap.solvers import NewtonCG, alternate_directions, soft_threshold
from labelgap.solvers.base import Array, LinearMap, Model, Status, norm
from labelgap.solvers.linear_systems import conjugate_gradient

# The order up to which a Gram matrix is factorised: 5 s of processor time at 5,000, where conjugate gradients take 7
# to 9 s to three digits; far less for smaller orders.
MAX_FACTOR_ORDER = 6_000
ROUGH_TOL = 0.05  # of a start, for which a factor in float32 is good enough
ROUGH_RIDGE = 16  # least ridge for it, in roundings of the largest number on the diagonal
CG_TOL, MAX_CG_STEPS = 1e-4, 500
# Relative to ‖∇f‖ at the start. A round of ADMM starts from the last one, so that earlier errors vanish.
NEWTON_TOL, ROUND_TOL, MAX_NEWTON_STEPS = 1e-3, 1e-2, 50

RegressionMethod = Literal["ridge", "admm", "svr"]


class Neighborhood:
    """½ ‖P_Ω(Y Yᵀ − Z Zᵀ)‖² over pairs of neighbours (004, eq. 4, where items are columns).

    Parameters
    ----------
    targets : csr_array of shape (n, n)
        The inner products of label vectors at Ω, symmetric; a stored 0 is a pair that should stay orthogonal.
    """

    def __init__(self, targets: sp.csr_array, kernels: Backend, dtype: Any) -> None:
        self.kernels, self.dtype = kernels, np.dtype(dtype)
        self.targets: Any = kernels.prepare(targets, dtype)
        self.n = targets.shape[0]

    def residual(self, Z: Array) -> Array:
        """Return Y Yᵀ − Z Zᵀ at the pairs of Ω."""
        return self.targets.data - self.kernels.sddmm(self.targets, Z, Z)

    def product(self, R: Array) -> Callable[[Array], Array]:
        """Return V ↦ R V for numbers R at the pairs of Ω."""
        prepared = self.targets.with_data(R)
        return lambda V: self.kernels.spmm(prepared, V)

    def make_asymmetric_problem(self, alpha: float) -> Problem:
        """Return ½ ‖P_Ω(Y Yᵀ − Z Wᵀ)‖² + (α/2)(‖Z‖² + ‖W‖²), to be minimised over Z and W in turn."""
        cells = KnownCells(self.kernels, Squared(), self.targets)
        return Problem.of(cells, Identity(self.n), alpha=alpha, backend=self.kernels)


def find_label_neighbors(
    vectors: sp.csr_array, count: int, kernels: Backend, random_state: np.random.RandomState
) -> sp.csr_array:
    """Return the inner products of each row of ``vectors`` with its ``count`` nearest rows, sparse and symmetric n×n.

    The nearest rows have the largest inner products, and include the row itself. If fewer are positive, random rows
    of inner product 0 are added, since some large distances should be preserved too. (i, j) is in the pattern if
    either is a neighbour of the other. Ties are broken at random, equally for all rows. No n×n array is allocated.

    >>> from labelgap.kernels import get_backend
    >>> vectors = sp.csr_array(np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]))
    >>> find_label_neighbors(vectors, 2, get_backend("cpu"), np.random.RandomState(0)).toarray()
    array([[1., 1., 0.],
           [1., 2., 1.],
           [0., 1., 1.]])
    """
    n, count = vectors.shape[0], min(count, vectors.shape[0])
    order = random_state.permutation(n)
    prepared = kernels.prepare(vectors, np.float64), kernels.prepare(vectors[order], np.float64)
    neighbors, products = map(kernels.to_numpy, kernels.product_topk(*prepared, count))
    positive = (products > 0).ravel()
    rows = np.repeat(np.arange(n), count)
    squares = np.asarray(vectors.multiply(vectors).sum(axis=1)).ravel()
    columns = order[neighbors].ravel()
    if count < n:
        columns[~positive] = random_state.randint(n, size=int((~positive).sum()))
    pairs = _make_pairs(rows[positive], columns[positive], products.ravel()[positive], n)
    pairs = pairs.maximum(_make_pairs(rows[~positive], columns[~positive], np.zeros(len(rows) - positive.sum()), n))
    pairs = pairs.maximum(sp.csr_array(pairs.T)).maximum(_make_pairs(np.arange(n), np.arange(n), squares, n))
    pairs.data -= 1
    pairs.sort_indices()
    return pairs


def _make_pairs(rows: Array, columns: Array, products: Array, n: int) -> sp.csr_array:
    """Return the products plus 1 as a sparse matrix, since SciPy's maximum drops zeros; merge repeated pairs."""
    unique = sp.csr_array((np.ones(len(rows)), (rows, columns)), shape=(n, n))
    shifted = sp.csr_array((products + 1, (rows, columns)), shape=(n, n))
    shifted.data /= unique.data
    return shifted


# --- regression -----------------------------------------------------------------------------------------------------


class Regression(NamedTuple):
    """V (d×k), the embedding X V of the training rows (n×k), the number of rounds, and the status."""

    V: Array
    embedded: Array
    n_iter: int
    status: Status


class NormalEquations:
    """Solver of (weight · XᵀX + ridge · I) V = Xᵀ R for V (d×k) and many R.

    It uses the Cholesky factor of the smaller of XᵀX and XXᵀ, and reuses it while weight and ridge stay the same.
    Above ``MAX_FACTOR_ORDER``, and for singular systems, it uses column-wise conjugate gradients from a start, to
    residuals of at most ``tol`` times the right side; a constant feature is eliminated first.
    """

    def __init__(self, features: LinearMap, *, tol: float = CG_TOL) -> None:
        self.features, self.tol = features, tol
        self.gram: Array = None
        self._factor: tuple[tuple[float, float], Any] | None = None

    def solve(self, R: Array, weight: float, ridge: float, start: Array | None = None) -> tuple[Array, bool]:
        """Return V, and whether it meets the tolerance."""
        factor, (n, d) = self.find_factor(weight, ridge), self.features.shape
        if factor is not None and d > n:
            return self.features.t_times(substitute(factor, R)), True
        return self.solve_right(self.features.t_times(R), weight, ridge, start)

    def solve_right(
        self, right: Array, weight: float, ridge: float, start: Array | None = None
    ) -> tuple[Array, bool]:
        """Return V from the right side XᵀR, and whether it meets the tolerance."""
        factor, (n, d) = self.find_factor(weight, ridge), self.features.shape
        if factor is None:
            return self._iterate(right, weight, ridge, start)
        if d <= n:
            return substitute(factor, right), True
        # (XᵀX + ρI)⁻¹ = (I − Xᵀ (XXᵀ + ρI)⁻¹ X) / ρ
        inner = substitute(factor, self.features.times(right) * float(weight))
        return (right - self.features.t_times(inner)) / float(ridge), True

    def find_factor(self, weight: float, ridge: float) -> Any:
        """Return the factor of weight · Gram + ridge · I; None if it does not exist or costs too much."""
        if min(self.features.shape) > MAX_FACTOR_ORDER or not hasattr(self.features, "gram"):
            return None
        if self._factor is None or self._factor[0] != (weight, ridge):
            self._factor = (weight, ridge), self._decompose(weight, ridge)
        return self._factor[1]

    def _decompose(self, weight: float, ridge: float) -> Any:
        if self.gram is None:
            n, d = self.features.shape
            self.gram = self.features.gram() if d <= n else self.features.outer_gram()  # type: ignore[attr-defined]
        system = weight * self.gram
        if not isinstance(system, np.ndarray):
            add_to_diagonal(system, ridge)
            return factorize(system)
        # A ridge below the rounding error of the Gram matrix makes the factor meaningless.
        largest = system.diagonal().max(initial=0)
        if ridge <= len(system) * np.finfo(float).eps * largest:
            return None
        if self.tol >= ROUGH_TOL and ridge > ROUGH_RIDGE * np.finfo(np.float32).eps * largest:
            system = system.astype(np.float32)  # half the time
        add_to_diagonal(system, ridge)
        try:  # the transpose has the memory order that LAPACK can overwrite
            return cholesky(system.T)
        except scipy.linalg.LinAlgError:  # the ridge may be below the rounding of float32 features
            return None

    def _iterate(self, right: Array, weight: float, ridge: float, start: Array | None) -> tuple[Array, bool]:
        if not getattr(self.features, "constant", False):
            return self._iterate_on(self.features, right, weight, ridge, start)
        reduced = WithoutConstant(self.features, ridge / weight)
        start = None if start is None else start[:-1, :]
        V, converged = self._iterate_on(reduced, reduced.reduce(right), weight, ridge, start)
        return reduced.restore(V, right[-1:, :] / weight), converged

    def _iterate_on(
        self, features: LinearMap, right: Array, weight: float, ridge: float, start: Array | None
    ) -> tuple[Array, bool]:
        xp = namespace(right)
        tiny = float(xp.finfo(right.dtype).smallest_normal)
        scale = weight * features.column_squares() + ridge
        inverse = 1 / max(scale, tiny) if np.ndim(scale) == 0 else xp.astype(1 / xp.clip(scale, tiny), right.dtype)

        def product(P: Array) -> Array:
            image = features.t_times(features.times(P)) * float(weight)  # the identity returns P itself
            image += float(ridge) * P
            return image

        solution = conjugate_gradient(
            product,
            right,
            tol=self.tol,
            max_iter=MAX_CG_STEPS,
            blocks="columns",
            precondition=lambda residual: residual * inverse,
            start=start,
        )
        return solution.x, solution.converged


class SquaredInsensitive:
    """ℓ(a, b) = max(0, |a − b| − ε)², the loss of L2-loss support vector regression, with curvature 0 at its kinks.

    >>> SquaredInsensitive(0.5).functions().value(2.0, 0.5)
    1.0
    """

    def __init__(self, epsilon: float) -> None:
        self.epsilon = epsilon

    def functions(self, xp: Any = np) -> CellFunctions:
        epsilon = self.epsilon

        def value(a, b):
            over = abs(a - b) - epsilon
            return over * over * (over > 0)

        def gradient(a, b):
            over = abs(a - b) - epsilon
            return 2.0 * ((over * (b > a) - over * (b < a)) * (over > 0))

        def curvature(a, b):
            return (0.0 * b + 2.0) * (abs(a - b) > epsilon)

        return CellFunctions(value, gradient, curvature)


class DenseLoss:
    """weight · Σ ℓ(T_ij, B_ij) as an objective in B, for dense targets T of the same shape."""

    separable = True

    def __init__(self, loss: CellLoss, targets: Array, weight: float = 1.0) -> None:
        self.functions, self.targets, self.weight = CellFunctions(*loss.functions(np)), targets, weight

    def value(self, B: Array) -> float:
        return self.weight * float(self.functions.value(self.targets, B).sum(dtype=float))

    def along(self, B: Array, S: Array) -> Callable[[float], float]:
        return lambda step: self.value(B + B.dtype.type(step) * S)

    def model(self, B: Array) -> Model:
        weight = B.dtype.type(self.weight)
        curvature = weight * self.functions.curvature(self.targets, B)
        gradient = weight * self.functions.gradient(self.targets, B)
        return Model(self.value(B), gradient, lambda S: curvature * S)


class SquaredStep:
    """Step that minimises ‖Z − X V‖² + α‖V‖² + ρ‖X V − target‖²: ((1 + ρ) XᵀX + αI) V = Xᵀ(Z + ρ · target)."""

    def __init__(self, features: LinearMap, Z: Array, alpha: float, tol: float = CG_TOL) -> None:
        self.Z, self.alpha, self.converged = Z, alpha, True
        self._equations = NormalEquations(features, tol=tol)

    def __call__(self, target: Array, rho: float, start: Array) -> Array:
        """Return the minimiser."""
        R = self.Z + float(rho) * target
        V, self.converged = self._equations.solve(R, 1 + rho, self.alpha, start)
        return V


class InsensitiveStep:
    """Step that minimises Σ max(0, |Z_ij − (X V)_ij| − ε)² + α‖V‖² + ρ‖X V − target‖² by Newton's method."""

    def __init__(self, features: LinearMap, Z: Array, alpha: float, epsilon: float, tol: float = NEWTON_TOL) -> None:
        self.features, self.converged = features, True
        self._loss, self._penalty = DenseLoss(SquaredInsensitive(epsilon), Z), Ridge(2 * alpha)
        self._newton = NewtonCG(tol=tol, max_iter=MAX_NEWTON_STEPS, cg_iter=MAX_CG_STEPS)

    def __call__(self, target: Array, rho: float, start: Array) -> Array:
        """Return the minimiser, from a start."""
        fit = Sum([self._loss, DenseLoss(Squared(), target, 2 * rho)])
        solution = self._newton.minimize(Sum([Composition(self.features, fit), self._penalty]), start)
        self.converged = solution.status is not Status.MAX_ITER
        return solution.x


def fit_ridge(features: LinearMap, Z: Any, alpha: float) -> Regression:
    """Return V = argmin ‖Z − X V‖² + α‖V‖², that is (XᵀX + αI)⁻¹ XᵀZ, and X V.

    >>> from labelgap.kernels import get_backend
    >>> from labelgap.objectives.features import Features
    >>> X = Features(np.diag([1.0, 2.0]), get_backend(), float)
    >>> fit_ridge(X, np.array([[2.0], [5.0]]), alpha=1.0).V
    array([[1.],
           [2.]])
    """
    return regress(features, Z, method="ridge", alpha=alpha)


def regress(
    features: LinearMap,
    Z: Any,
    *,
    method: RegressionMethod = "ridge",
    alpha: float = 1.0,
    l1: float = 0.0,
    rho: float = 1.0,
    epsilon: float = 0.0,
    max_iter: int = 200,
    tol: float = 1e-3,
) -> Regression:
    """Minimise Σ ℓ(Z_ij, (X V)_ij) + α‖V‖² + l1 · ‖X V‖₁ over V (d×k), for X n×d and Z n×k (004, eq. 5).

    Parameters
    ----------
    features : LinearMap
        X.
    Z : array of shape (n, k)
        The targets, converted to the type of the features; tensors with features of the same device for "ridge".
    method : "ridge", "admm" or "svr"
        The loss: (a − b)² without l1; (a − b)² with l1; max(0, \\|a − b\\| − ε)² with or without l1. LIBLINEAR's C
        for "svr" is 1 / (2α); in its form ½‖v‖² + C Σ ℓ the weight of ‖X V‖₁ is C · l1.
    alpha, l1 : float
        λ and μ of the paper.
    rho : float
        The first penalty ρ of ADMM, which affects its speed and not its limit.
    epsilon : float
        ε of "svr".
    max_iter, tol : int, float
        The maximum number of rounds of ADMM, and its final residuals relative to Z and XᵀZ. The authors' program
        makes two rounds with rho=0.001 and l1=0.01, which is close to no l1.

    Returns
    -------
    Regression
        ``embedded`` is X V; with l1 it has exact zeros once the primal residual meets its tolerance.

    >>> from labelgap.kernels import get_backend
    >>> from labelgap.objectives.features import Features
    >>> X = Features(np.eye(2), get_backend(), float)
    >>> regress(X, np.array([[5.0], [0.3]]), method="admm", alpha=1.0, l1=2.0, tol=1e-9).embedded.round(6)
    array([[2.],
           [0.]])
    """
    _check_parameters(method, alpha=alpha, l1=l1, rho=rho, epsilon=epsilon, max_iter=max_iter, tol=tol)
    Z = _check_targets(features, Z)
    start = namespace(Z).zeros((features.shape[1], Z.shape[1]), dtype=Z.dtype, device=getattr(Z, "device", None))
    with threads(None):  # one BLAS thread, so that rounding does not depend on the number of threads
        if method == "svr":
            newton_tol = min(NEWTON_TOL, tol) if l1 == 0 else ROUND_TOL
            step: Any = InsensitiveStep(features, Z, alpha, epsilon, newton_tol)
        else:
            step = SquaredStep(features, Z, alpha, CG_TOL if l1 == 0 else min(CG_TOL, 0.1 * tol))
        if l1 == 0:
            return _minimize_smooth(features, step, Z, start)
        return _run_admm(features, step, Z, start, l1=l1, rho=rho, max_iter=max_iter, tol=tol)


def _minimize_smooth(features: LinearMap, step: Any, Z: Array, start: Array) -> Regression:
    """Minimise the smooth part, which is everything without l1."""
    V = step(namespace(Z).zeros_like(Z), 0.0, start)
    return Regression(V, features.times(V), 1, Status.CONVERGED if step.converged else Status.MAX_ITER)


def _run_admm(
    features: LinearMap, step: Any, Z: Array, start: Array, *, l1: float, rho: float, max_iter: int, tol: float
) -> Regression:
    splitting = alternate_directions(
        features,
        step,
        lambda point, weight: soft_threshold(point, l1 / (2 * weight)),
        start,
        rho=rho,
        max_iter=max_iter,
        tol=tol,
        scales=(norm(Z), 2 * norm(features.t_times(Z))),
    )
    # While A and X V still differ, A may be all zeros.
    embedded = splitting.A if splitting.history[-1].primal <= 1 else features.times(splitting.V)
    status = splitting.status if step.converged else Status.MAX_ITER
    return Regression(splitting.V, embedded, splitting.n_iter, status)


def _check_targets(features: LinearMap, Z: Any) -> Array:
    """Return Z as an array of the features' type; raise ValueError if it does not fit them."""
    if is_torch_array(Z):
        return Z
    Z = np.asarray(Z)
    Z = np.ascontiguousarray(Z, getattr(features, "dtype", Z.dtype))
    if Z.ndim != 2 or len(Z) != features.shape[0]:
        raise ValueError(
            f"Z has the shape {Z.shape} and the features {features.shape}; pass one row of Z for each row of X."
        )
    if not np.isfinite(Z).all():
        raise ValueError("Z holds NaN or infinity; pass finite numbers.")
    return Z


def _check_parameters(method: str, *, l1: float, **numbers: float) -> None:
    if method not in get_args(RegressionMethod):
        raise ValueError(f"method={method!r} is not known; choose from {sorted(get_args(RegressionMethod))}.")
    if method == "ridge" and l1:
        raise ValueError(f"l1={l1!r} is not part of method='ridge'; use method='admm', or l1=0.")
    for name, value in {"l1": l1, **numbers}.items():
        bound = "above 0" if name in ("rho", "max_iter", "tol") else "0 or more"
        if not (np.isfinite(value) and (value > 0 or (value == 0 and bound == "0 or more"))):
            raise ValueError(f"{name}={value!r} has no meaning; pass a number {bound}.")
