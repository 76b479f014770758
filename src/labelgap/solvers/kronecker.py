"""Solving with a Kronecker Hessian: rotated, it falls apart into columns."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from labelgap.kernels import eigh, matmul, namespace
from labelgap.solvers.base import (
    Array,
    Kronecker,
    LinearMap,
    Objective,
    Solution,
    Status,
    inner,
)
from labelgap.solvers.cg import CGResult, conjugate_gradient

EPSILON, TINY = 2.0**-52, 2.0**-1022  # of float64


class Rotated:
    """K W = AᵀA W M + ridge · W with M = Q diag(m) Qᵀ: the columns of W Q are ridge problems that share AᵀA.

    (m_c AᵀA + ridge) w_c = r_c. Where the eigenvectors of AᵀA are at hand each is a division; otherwise all of them
    are solved together by conjugate gradients in which every column has its own step lengths.
    """

    def __init__(self, kronecker: Kronecker, dtype: object) -> None:
        if kronecker.features is None:
            raise ValueError("A Hessian without data has nothing to rotate.")
        self.features: LinearMap = kronecker.features
        xp = namespace(kronecker.M)
        m, Q = eigh(xp.astype(kronecker.M, xp.float64))
        self.m, self.Q = xp.where(m > 0, m, 0.0)[None, :], xp.astype(Q, dtype)
        self.weights, self.ridge, self.dtype = kronecker.weights, kronecker.ridge, dtype
        self._inverse: Array = None

    def solve(self, R: Array) -> Array:
        """Return K⁻¹ R by the eigenvectors; directions that neither term sees stay 0 (the least-norm solution)."""
        spectrum = self.features.spectrum()
        assert spectrum is not None  # those without one are solved by columns
        if self._inverse is None:
            self._inverse = _reciprocal(spectrum.values * self.weights * self.m + self.ridge, self.dtype)
        R = matmul(R, self.Q)
        along = spectrum.rotate(R)
        solved = spectrum.restore(along * self._inverse)
        if not spectrum.complete and self.ridge > 0:
            # Outside the row space of A only the ridge acts.
            solved += (R - spectrum.restore(along)) / self.ridge
        return matmul(solved, self.Q.T)

    def solve_columns(self, R: Array, tol: float, max_iter: int, start: Array | None = None) -> CGResult:
        """Return K⁻¹ R to a relative residual ``tol`` in each column, from a start or from 0."""
        m, features, ridge = self.m * self.weights, self.features, self.ridge
        inverse = _reciprocal(m * features.column_squares() + ridge, self.dtype)
        m = namespace(m).astype(m, self.dtype)

        def product(P: Array) -> Array:
            image = features.t_times(features.times(P)) * m  # a new array: the identity hands P back
            image += ridge * P
            return image

        found = conjugate_gradient(
            product,
            matmul(R, self.Q),
            tol=tol,
            max_iter=max_iter,
            blocks="columns",
            precondition=lambda r: r * inverse,
            start=None if start is None else matmul(start, self.Q),
        )
        return found._replace(x=matmul(found.x, self.Q.T), residual=matmul(found.residual, self.Q.T))


def preconditioner(kronecker: Kronecker | None, dtype: object) -> Callable[[Array], Array] | None:
    """Return R ↦ K⁻¹ R, exactly where eigenvectors are at hand and by the diagonal of K where they are not."""
    if kronecker is None or kronecker.features is None:
        return None
    if kronecker.features.spectrum() is not None:
        return Rotated(kronecker, dtype).solve
    xp = namespace(kronecker.M)
    diagonal = xp.astype(xp.linalg.diagonal(kronecker.M), xp.float64)[None, :]
    squares = kronecker.features.column_squares()
    inverse = _reciprocal(squares * kronecker.weights * diagonal + kronecker.ridge, dtype)
    return lambda R: R * inverse


def _reciprocal(scale: Array, dtype: object) -> Array:
    """1 / scale in float64, and 0 where the scale is nothing but rounding."""
    xp = namespace(scale)
    scale = xp.astype(scale, xp.float64)
    seen = scale > EPSILON * xp.clip(xp.max(scale), TINY)
    return xp.astype(xp.where(seen, 1.0 / xp.where(seen, scale, 1.0), 0.0), dtype)


@dataclass
class Direct:
    """The minimum of a quadratic whose Hessian is a Kronecker product plus a ridge: one step W − K⁻¹∇f(W).

    K is solved column by column after a rotation: by eigenvectors where the features offer them; otherwise by
    conjugate gradients in which every column has its own step lengths, to a relative residual ``tol`` or for
    ``max_iter`` products: more are wasted while the other factor still moves.
    """

    tol: float = 1e-1
    max_iter: int = 12

    def minimize(self, objective: Objective, start: Array) -> Solution:
        """Return the minimiser; ``start`` is where the step begins."""
        model = objective.model(start)
        if model.kronecker is None or not model.kronecker.exact:
            raise ValueError(
                "solver='direct' solves squared loss on every cell with one weight and one penalty; use solver='cg' "
                "or 'tron' (or 'auto') for other losses, for missing labels and with graphs."
            )
        rotated = Rotated(model.kronecker, start.dtype)
        if rotated.features.spectrum() is None:
            found = rotated.solve_columns(-model.gradient, self.tol, self.max_iter)
            value = model.value + 0.5 * inner(model.gradient, found.x) - 0.5 * inner(found.x, found.residual)
            status = Status.CONVERGED if found.converged else Status.MAX_ITER
            return Solution(start + found.x, float(value), status, 1, found.n_products)
        step = rotated.solve(-model.gradient)
        # Along the step to the minimum of the quadratic: all of it but for rounding, which then cannot raise f.
        value, slope = float(model.value), float(inner(model.gradient, step))
        curvature = float(inner(step, model.hessp(step)))
        length = -slope / curvature if curvature > 0 else 0.0
        if not 0 < length < math.inf:
            return Solution(start, value, Status.CONVERGED if slope == 0 else Status.STALLED, 1, 1)
        return Solution(start + length * step, value + 0.5 * length * slope, Status.CONVERGED, 1, 1)

    def with_few_products(self, steps: int, products: int) -> Direct:
        """Return a solver that takes at most so many products; its one step stays."""
        return Direct(self.tol, products)
