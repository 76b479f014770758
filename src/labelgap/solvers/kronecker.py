"""Solving with a Kronecker Hessian: rotated, it falls apart into columns."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import scipy.linalg

from labelgap.kernels import of
from labelgap.solvers.base import Array, Kronecker, LinearMap, Spectrum
from labelgap.solvers.cg import CGResult, conjugate_gradient


class Rotated:
    """K W = AᵀA W M + ridge · W with M = Q diag(m) Qᵀ: the columns of W Q are ridge problems that share AᵀA.

    (m_c AᵀA + ridge) w_c = r_c. Where the eigenvectors of AᵀA are at hand each is a division; otherwise all of them
    are solved together by conjugate gradients in which every column has its own step lengths.
    """

    def __init__(self, kronecker: Kronecker, dtype: np.dtype) -> None:
        if kronecker.features is None:
            raise ValueError("A Hessian without data has nothing to rotate.")
        self.features: LinearMap = kronecker.features
        m, Q = scipy.linalg.eigh(np.asarray(kronecker.M, float))
        self.m, self.Q = np.maximum(m, 0), Q.astype(dtype)
        self.weights, self.ridge, self.dtype = kronecker.weights, kronecker.ridge, dtype

    @cached_property
    def spectrum(self) -> Spectrum | None:
        """The eigenvectors of AᵀA, once they are asked for: conjugate gradients need none."""
        return self.features.spectrum()

    def solve(self, R: Array) -> Array:
        """Return K⁻¹ R by the eigenvectors; directions that neither term sees stay 0 (the least-norm solution)."""
        assert self.spectrum is not None
        R = of(R).matmul(R, self.Q)
        along = self.spectrum.rotate(R)
        solved = self.spectrum.restore(self._inverse * along)
        if len(self.spectrum.values) < len(R) and self.ridge > 0:
            # Outside the row space of A only the ridge acts.
            solved += (R - self.spectrum.restore(along)) / self.dtype.type(self.ridge)
        return of(R).matmul(solved, self.Q.T)

    @cached_property
    def _inverse(self) -> Array:
        assert self.spectrum is not None
        values = np.asarray(self.spectrum.values, float)[:, None] * self.weights
        return _reciprocal(values * self.m[None, :] + self.ridge, self.dtype)

    def solve_columns(self, R: Array, tol: float, max_iter: int, start: Array | None = None) -> CGResult:
        """Return K⁻¹ R to a relative residual ``tol`` in each column, from a start or from 0."""
        inverse = _reciprocal(
            self.m[None, :] * self.weights * self.features.column_squares() + self.ridge, self.dtype
        )
        m = (self.m[None, :] * self.weights).astype(self.dtype)
        ridge = self.dtype.type(self.ridge)

        def product(P: Array) -> Array:
            image = self.features.t_times(self.features.times(P)) * m  # a new array: the identity hands P back
            image += ridge * P
            return image

        found = conjugate_gradient(
            product,
            of(R).matmul(R, self.Q),
            tol=tol,
            max_iter=max_iter,
            blocks="columns",
            precondition=lambda r: r * inverse,
            start=None if start is None else of(R).matmul(start, self.Q),
        )
        back = of(R).matmul
        return found._replace(x=back(found.x, self.Q.T), residual=back(found.residual, self.Q.T))


def preconditioner(kronecker: Kronecker | None, dtype: np.dtype) -> Callable[[Array], Array] | None:
    """Return R ↦ K⁻¹ R, exactly where eigenvectors are at hand and by the diagonal of K where they are not."""
    if kronecker is None or kronecker.features is None:
        return None
    if kronecker.features.spectrum() is not None:
        return Rotated(kronecker, dtype).solve
    diagonal = kronecker.features.column_squares() * kronecker.weights * np.diag(kronecker.M)[None, :]
    inverse = _reciprocal(diagonal + kronecker.ridge, dtype)
    return lambda R: R * inverse


def _reciprocal(scale: Array, dtype: np.dtype) -> Array:
    """1 / scale in float64, and 0 where the scale is nothing but rounding."""
    scale = np.asarray(scale, float)
    floor = np.finfo(float).eps * max(scale.max(initial=0), np.finfo(float).tiny)
    return np.where(scale > floor, 1 / np.where(scale > floor, scale, 1), 0).astype(dtype)
