"""The exact solution of AᵀA W M + ridge · W = R, by rotating it into independent columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from labelgap.solvers.base import Array, LinearMap, NormalEquations, Objective, Solution, Spectrum, Status
from labelgap.solvers.cg import conjugate_gradient


@dataclass
class Direct:
    """Solves a quadratic objective whose Hessian is a Kronecker product plus a ridge.

    With M = Q diag(m) Qᵀ the columns of W Q are independent ridge problems (m_c AᵀA + ridge) w_c = (R Q)_c that share
    AᵀA. Where its eigenvectors are at hand each is a division; otherwise all are solved together by conjugate
    gradients in which every column has its own step lengths, preconditioned by the diagonal, to a relative residual
    ``tol``.
    """

    tol: float = 1e-2
    max_iter: int = 200

    def minimize(self, objective: Objective, start: Array) -> Solution:
        """Return the minimiser; ``start`` is where the iterative form begins."""
        equations = objective.normal_equations()
        if equations is None or equations.features is None:
            raise ValueError(
                "solver='direct' solves squared loss with every label observed; "
                "use solver='cg' or 'tron' (or 'auto') for other losses and for missing labels."
            )
        m, Q = scipy.linalg.eigh(np.asarray(equations.M, float))
        m, Q = np.maximum(m, 0), Q.astype(start.dtype)
        spectrum = equations.features.spectrum()
        if spectrum is not None:
            W = _divide(spectrum, m, equations, Q) @ Q.T
            return Solution(W, objective.value(W), Status.CONVERGED, 1, 0)
        found, products, converged = self._columns(equations.features, equations, m, Q, start)
        status = Status.CONVERGED if converged else Status.MAX_ITER
        return Solution(found, objective.value(found), status, 1, products)

    def _columns(
        self, features: LinearMap, equations: NormalEquations, m: Array, Q: Array, start: Array
    ) -> tuple[Array, int, bool]:
        dtype = start.dtype
        weights = m.astype(dtype)[None, :]
        ridge = dtype.type(equations.ridge)
        diagonal = weights * features.column_squares() + ridge
        diagonal[diagonal <= 0] = 1

        def product(P: Array) -> Array:
            image = features.t_times(features.times(P))
            image *= weights
            image += ridge * P
            return image

        found = conjugate_gradient(
            product,
            equations.R @ Q,
            tol=self.tol,
            max_iter=self.max_iter,
            blocks="columns",
            precondition=lambda r: r / diagonal,
            start=start @ Q,
        )
        return found.x @ Q.T, found.n_products, found.converged


def _divide(spectrum: Spectrum, m: Array, equations: NormalEquations, Q: Array) -> Array:
    """W Q = V (Vᵀ R Q) / (σ² m + ridge); directions that neither term sees stay 0 (the least-norm solution)."""
    scale = spectrum.values[:, None] * m[None, :] + equations.ridge
    floor = np.finfo(Q.dtype).eps * max(scale.max(initial=0), np.finfo(Q.dtype).tiny)
    inverse = np.where(scale > floor, 1 / np.where(scale > floor, scale, 1), 0).astype(Q.dtype)
    return spectrum.restore(inverse * spectrum.rotate(equations.R @ Q))
