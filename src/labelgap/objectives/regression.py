"""Regression of embeddings on features, from the rows of X to those of Z, with the penalties of SLEEC's eq. (5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import scipy.linalg

from labelgap.kernels import Cell
from labelgap.losses import CellFunctions, Squared
from labelgap.objectives.base import Composed, Ridge, Sum
from labelgap.runtime import threads
from labelgap.solvers.admm import alternate_directions, soft_threshold
from labelgap.solvers.base import Array, Kronecker, LinearMap, Model, Status, norm
from labelgap.solvers.kronecker import Rotated
from labelgap.solvers.newton import NewtonCG

# The order of a Gram matrix up to which it is made and factorised: 5 s of processor time at 5,000, where conjugate
# gradients take 7 to 9 s to three digits, and far less below.
DIRECT_LIMIT = 6_000
CG_TOL, CG_ITER = 1e-4, 500
# Of ‖∇f‖ at the start. A round of a splitting starts where the last one ended, so that its errors die out with it.
NEWTON_TOL, ROUND_TOL, NEWTON_ITER = 1e-3, 1e-2, 50

Method = Literal["ridge", "admm", "svr"]


class Regression(NamedTuple):
    """V (d×k), what it makes of the rows it was found on (n×k), the rounds it took, and how it ended."""

    V: Array
    embedded: Array
    n_iter: int
    status: Status


class NormalEquations:
    """Solves (weight · XᵀX + ridge · I) V = Xᵀ R for V (d×k), over and over for the same X.

    By the Cholesky factor of XᵀX, or of XXᵀ where that is smaller, which is kept while weight and ridge stay; above
    ``DIRECT_LIMIT``, and for systems that are singular, by conjugate gradients column by column, from a start.
    """

    def __init__(self, features: LinearMap, *, tol: float = CG_TOL) -> None:
        self.features, self.tol = features, tol
        self._gram: Array = None
        self._factor: tuple[tuple[float, float], Any] | None = None

    def solve(self, R: Array, weight: float, ridge: float, start: Array | None = None) -> tuple[Array, bool]:
        """Return V, and whether it was found to the tolerance."""
        factor = self._factor_of(weight, ridge)
        if factor is None:
            return self._iterate(R, weight, ridge, start)
        n, d = self.features.shape
        if d <= n:
            return _substitute(factor, self.features.t_times(R)), True
        return self.features.t_times(_substitute(factor, R)), True

    def _factor_of(self, weight: float, ridge: float) -> Any:
        """Return the factor of weight · Gram + ridge · I, or None where there is none or it costs too much."""
        if min(self.features.shape) > DIRECT_LIMIT or not hasattr(self.features, "gram"):
            return None
        if self._factor is None or self._factor[0] != (weight, ridge):
            self._factor = (weight, ridge), self._decompose(weight, ridge)
        return self._factor[1]

    def _decompose(self, weight: float, ridge: float) -> Any:
        if self._gram is None:
            n, d = self.features.shape
            self._gram = self.features.gram() if d <= n else self.features.outer_gram()  # type: ignore[attr-defined]
        system = weight * self._gram
        # The ridge must stand out from the rounding of what it is added to, or the factor is noise.
        if ridge <= len(system) * np.finfo(float).eps * system.diagonal().max(initial=0):
            return None
        system.flat[:: len(system) + 1] += ridge
        try:  # transposed, it is in the order that LAPACK overwrites
            return scipy.linalg.cho_factor(system.T, lower=True, overwrite_a=True, check_finite=False)
        except scipy.linalg.LinAlgError:  # it may be less than the rounding of float32 features
            return None

    def _iterate(self, R: Array, weight: float, ridge: float, start: Array | None) -> tuple[Array, bool]:
        form = Kronecker(ridge, self.features, weight * np.eye(R.shape[1]))
        found = Rotated(form, R.dtype).solve_columns(self.features.t_times(R), self.tol, CG_ITER, start)
        return found.x, found.converged


def _substitute(factor: Any, R: Array) -> Array:
    """Solve with a Cholesky factor in float64, and return what has the type of R."""
    solved = scipy.linalg.cho_solve(factor, R.astype(float), overwrite_b=True, check_finite=False)
    return np.ascontiguousarray(solved, R.dtype)


class SquaredInsensitive:
    """ℓ(a, b) = max(0, |a − b| − ε)², the loss of L2-loss support vector regression; at its kinks the curvature is 0.

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


class Cellwise:
    """weight · Σ ℓ(T_ij, B_ij) as an objective in B, for dense targets T of the same shape."""

    separable = True

    def __init__(self, cell: Cell, targets: Array, weight: float = 1.0) -> None:
        self.functions, self.targets, self.weight = CellFunctions(*cell.functions(np)), targets, weight

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
    """Minimises ‖Z − X V‖² + α‖V‖² + ρ‖X V − target‖², that is ((1 + ρ) XᵀX + αI) V = Xᵀ(Z + ρ · target)."""

    def __init__(self, features: LinearMap, Z: Array, alpha: float, tol: float = CG_TOL) -> None:
        self.Z, self.alpha, self.converged = Z, alpha, True
        self._equations = NormalEquations(features, tol=tol)

    def __call__(self, target: Array, rho: float, start: Array) -> Array:
        """Return the minimiser."""
        R = self.Z + self.Z.dtype.type(rho) * target
        V, self.converged = self._equations.solve(R, 1 + rho, self.alpha, start)
        return V


class InsensitiveStep:
    """Minimises Σ max(0, |Z_ij − (X V)_ij| − ε)² + α‖V‖² + ρ‖X V − target‖² by Newton's method."""

    def __init__(self, features: LinearMap, Z: Array, alpha: float, epsilon: float, tol: float = NEWTON_TOL) -> None:
        self.features, self.converged = features, True
        self._loss, self._penalty = Cellwise(SquaredInsensitive(epsilon), Z), Ridge(2 * alpha)
        self._newton = NewtonCG(tol=tol, max_iter=NEWTON_ITER, cg_iter=CG_ITER)

    def __call__(self, target: Array, rho: float, start: Array) -> Array:
        """Return the minimiser found from a start."""
        fit = Sum([self._loss, Cellwise(Squared(), target, 2 * rho)])
        found = self._newton.minimize(Sum([Composed(self.features, fit), self._penalty]), start)
        self.converged = found.status is not Status.MAX_ITER
        return found.x


def ridge(features: LinearMap, Z: Any, alpha: float) -> Regression:
    """Return V = argmin ‖Z − X V‖² + α‖V‖², that is (XᵀX + αI)⁻¹ XᵀZ, and X V.

    >>> from labelgap.kernels import get_backend
    >>> from labelgap.objectives.features import Features
    >>> X = Features(np.diag([1.0, 2.0]), get_backend(), float)
    >>> ridge(X, np.array([[2.0], [5.0]]), alpha=1.0).V
    array([[1.],
           [2.]])
    """
    return regress(features, Z, method="ridge", alpha=alpha)


def regress(
    features: LinearMap,
    Z: Any,
    *,
    method: Method = "ridge",
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
        What to find from the features; it takes their type.
    method : "ridge", "admm" or "svr"
        ℓ(a, b) = (a − b)² without l1, the same with it, or max(0, \\|a − b\\| − ε)² with or without. LIBLINEAR's C of
        the last is 1 / (2α), in whose unit, ½‖v‖² + C Σ ℓ, the weight of ‖X V‖₁ is C · l1.
    alpha, l1 : float
        λ and μ of the paper.
    rho : float
        The first weight of the splitting. It changes how fast, not where it ends.
    epsilon : float
        ε of "svr".
    max_iter, tol : int, float
        Rounds of the splitting, and the residuals at which it ends, relative to Z and XᵀZ. The authors' program makes
        two rounds with rho=0.001 and l1=0.01, which is hardly more than no l1 at all.

    Returns
    -------
    Regression
        ``embedded`` is X V, and where l1 is at work with its zeros exact, once the splitting is that far.

    >>> from labelgap.kernels import get_backend
    >>> from labelgap.objectives.features import Features
    >>> X = Features(np.eye(2), get_backend(), float)
    >>> regress(X, np.array([[5.0], [0.3]]), method="admm", alpha=1.0, l1=2.0, tol=1e-9).embedded.round(6)
    array([[2.],
           [0.]])
    """
    _check(method, alpha=alpha, l1=l1, rho=rho, epsilon=epsilon, max_iter=max_iter, tol=tol)
    Z = _targets(features, Z)
    start = np.zeros((features.shape[1], Z.shape[1]), Z.dtype)
    with threads(None):  # one thread of BLAS: then the rounding of a factor is the same for any number of ours
        if method == "svr":
            newton_tol = min(NEWTON_TOL, tol) if l1 == 0 else ROUND_TOL
            step: Any = InsensitiveStep(features, Z, alpha, epsilon, newton_tol)
        else:
            step = SquaredStep(features, Z, alpha, CG_TOL if l1 == 0 else min(CG_TOL, 0.1 * tol))
        if l1 == 0:
            return _once(features, step, Z, start)
        return _split(features, step, Z, start, l1=l1, rho=rho, max_iter=max_iter, tol=tol)


def _once(features: LinearMap, step: Any, Z: Array, start: Array) -> Regression:
    """Without l1 the smooth part is all there is."""
    V = step(np.zeros_like(Z), 0.0, start)
    return Regression(V, features.times(V), 1, Status.CONVERGED if step.converged else Status.MAX_ITER)


def _split(
    features: LinearMap, step: Any, Z: Array, start: Array, *, l1: float, rho: float, max_iter: int, tol: float
) -> Regression:
    pull = features.t_times(Z)
    scales = norm(Z), 2 * norm(pull)
    found = alternate_directions(
        features,
        step,
        lambda point, weight: soft_threshold(point, l1 / (2 * weight)),
        start,
        rho=rho,
        max_iter=max_iter,
        tol=tol,
        scales=scales,
    )
    # Before the two agree, A may still be all zeros.
    embedded = found.A if found.history[-1].primal <= 1 else features.times(found.V)
    return Regression(found.V, embedded, found.n_iter, found.status if step.converged else Status.MAX_ITER)


def _targets(features: LinearMap, Z: Any) -> Array:
    """Return Z as an array of the features' type, one row for each of theirs."""
    Z = np.asarray(Z)
    Z = np.ascontiguousarray(Z, getattr(features, "dtype", Z.dtype))
    if Z.ndim != 2 or len(Z) != features.shape[0]:
        raise ValueError(
            f"Z has the shape {Z.shape} and the features {features.shape}; pass one row of Z for each row of X."
        )
    if not np.isfinite(Z).all():
        raise ValueError("Z holds NaN or infinity; pass finite numbers.")
    return Z


def _check(method: str, *, l1: float, **numbers: float) -> None:
    if method not in get_args(Method):
        raise ValueError(f"method={method!r} is not known; choose from {sorted(get_args(Method))}.")
    if method == "ridge" and l1:
        raise ValueError(f"l1={l1!r} is not part of method='ridge'; use method='admm', or l1=0.")
    for name, value in {"l1": l1, **numbers}.items():
        least = "above 0" if name in ("rho", "max_iter", "tol") else "0 or more"
        if not (np.isfinite(value) and (value > 0 or (value == 0 and least == "0 or more"))):
            raise ValueError(f"{name}={value!r} has no meaning; pass a number {least}.")
