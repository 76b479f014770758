"""Linear systems: conjugate gradients, and Hessians in Kronecker form, whose columns separate after a rotation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from labelgap.kernels import copy, eigh, factorize, matmul, namespace
from labelgap.solvers.base import (
    Array,
    CellHessians,
    Kronecker,
    LinearMap,
    Objective,
    RowHessians,
    Solution,
    Status,
    inner,
)

Blocks = Literal["joint", "rows", "columns"]


class CGResult(NamedTuple):
    """The solution, its residual, the number of products, and whether every block met the tolerance."""

    x: Array
    residual: Array
    n_products: int
    converged: bool


def _make_dot(blocks: Blocks) -> Callable[[Array, Array], Array]:
    """Return a function for ⟨a, b⟩ of the matrices, of each row or of each column, in a shape that broadcasts."""
    if blocks == "joint":
        return lambda a, b: namespace(a).reshape(inner(a, b), (1, 1))
    axis = 1 if blocks == "rows" else 0
    return lambda a, b: namespace(a).sum(a * b, axis=axis, keepdims=True)


def _divide(numerator: Array, denominator: Array, where: Array) -> Array:
    """Return the ratio ``where`` the denominator is also positive, 0 elsewhere."""
    xp = namespace(numerator)
    where = where & (denominator > 0)
    return xp.where(where, numerator / xp.where(where, denominator, 1.0), 0.0)


def conjugate_gradient(
    product: Callable[[Array], Array],
    rhs: Array,
    *,
    tol: float,
    max_iter: int,
    blocks: Blocks = "joint",
    precondition: Callable[[Array], Array] | None = None,
    start: Array | None = None,
) -> CGResult:
    """Solve A x = rhs for a positive semidefinite A given by its product, until ‖residual‖ ≤ tol ‖rhs‖.

    With ``blocks="columns"`` (or ``"rows"``) A acts on each column (row) separately: each has its own step lengths
    and its own stop, and one product serves all. ``"joint"`` is the paper's Algorithm 3 (000, appendix A.1). Each
    product reads one flag from the device: whether any block continues.

    >>> import numpy as np
    >>> A = np.array([[2.0, 0], [0, 4.0]])
    >>> conjugate_gradient(lambda v: A @ v, np.array([[2.0], [4.0]]), tol=1e-12, max_iter=5).x.ravel()
    array([1., 1.])
    """
    xp, dot = namespace(rhs), _make_dot(blocks)
    goal = tol**2 * dot(rhs, rhs)
    if start is None:
        x, residual, n_products = xp.zeros_like(rhs), copy(rhs), 0
    else:
        x, residual, n_products = copy(start), rhs - product(start), 1
    active = dot(residual, residual) > goal
    z = residual if precondition is None else precondition(residual)
    direction, rz = copy(z), dot(residual, z)
    while n_products < max_iter and bool(xp.any(active)):
        image = product(direction)
        n_products += 1
        step = xp.astype(_divide(rz, dot(direction, image), active), rhs.dtype)
        x += direction * step
        residual -= image * step
        active = active & (dot(residual, residual) > goal) & (step > 0)
        z = residual if precondition is None else precondition(residual)
        previous, rz = rz, dot(residual, z)
        direction *= xp.astype(_divide(rz, previous, previous > 0), rhs.dtype)
        direction += z
    return CGResult(x, residual, n_products, bool(xp.all(dot(residual, residual) <= goal)))


EPSILON, TINY = 2.0**-52, 2.0**-1022  # of float64


class RotatedSystem:
    """K W = AᵀA W M + ridge · W with M = Q diag(m) Qᵀ: the columns of W Q are ridge problems that share AᵀA.

    (m_c AᵀA + ridge) w_c = r_c. With the eigenvectors of AᵀA each is a division; otherwise conjugate gradients solve
    all of them together, with step lengths for each column.
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
        """Return K⁻¹ R by the eigenvectors; directions in which K is 0 stay 0 (the least-norm solution)."""
        spectrum = self.features.spectrum()
        assert spectrum is not None  # else solve_columns is called
        if self._inverse is None:
            self._inverse = _invert(spectrum.values * self.weights * self.m + self.ridge, self.dtype)
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
        precondition = precondition_columns(features, m, ridge, self.dtype)
        m, coarse = namespace(m).astype(m, self.dtype), features.coarse

        def product(P: Array) -> Array:
            image = coarse.t_times(coarse.times(P)) * m  # a new array: the identity returns P itself
            image += ridge * P
            return image

        solution = conjugate_gradient(
            product,
            matmul(R, self.Q),
            tol=tol,
            max_iter=max_iter,
            blocks="columns",
            precondition=precondition,
            start=None if start is None else matmul(start, self.Q),
        )
        return solution._replace(x=matmul(solution.x, self.Q.T), residual=matmul(solution.residual, self.Q.T))


def _solve_rows(form: Kronecker, R: Array) -> Array | None:
    """Return R (w M + ridge)⁻¹ without features, by Cholesky's method; None if there are, or if it loses digits."""
    if form.features is None or not form.features.is_identity:
        return None
    xp = namespace(form.M)
    unit = xp.eye(form.M.shape[0], dtype=xp.float64, device=getattr(form.M, "device", None))
    lower = factorize(form.weights * xp.astype(form.M, xp.float64) + form.ridge * unit)
    if lower is None:
        return None
    inverse = xp.linalg.inv(lower)
    return matmul(R, xp.astype(inverse.T @ inverse, R.dtype))


def precondition_columns(features: LinearMap, m: Array, ridge: float, dtype: object) -> Callable[[Array], Array]:
    """Return R ↦ about (m_c AᵀA + ridge)⁻¹ r_c for each column, by a sketch of AᵀA or its diagonal; m is (1, k)."""
    sketch = features.sketch()
    if sketch is not None:
        return sketch.invert(m, ridge)
    inverse = _invert(m * features.column_squares() + ridge, dtype)
    return lambda R: R * inverse


def make_preconditioner(kronecker: Kronecker | None, dtype: object) -> Callable[[Array], Array] | None:
    """Return R ↦ K⁻¹ R, by eigenvectors of the features or a sketch if they have them, else by the diagonal of K."""
    if kronecker is None or kronecker.features is None:
        return None
    if kronecker.features.spectrum() is not None:
        return RotatedSystem(kronecker, dtype).solve
    if kronecker.features.sketch() is not None:
        rotated = RotatedSystem(kronecker, dtype)
        invert = precondition_columns(rotated.features, rotated.m * rotated.weights, rotated.ridge, dtype)
        return lambda R: matmul(invert(matmul(R, rotated.Q)), rotated.Q.T)
    xp = namespace(kronecker.M)
    diagonal = xp.astype(xp.linalg.diagonal(kronecker.M), xp.float64)[None, :]
    squares = kronecker.features.column_squares()
    inverse = _invert(squares * kronecker.weights * diagonal + kronecker.ridge, dtype)
    return lambda R: R * inverse


def solve_rows(hessians: RowHessians, basis: Array, R: Array, tol: float, max_iter: int) -> CGResult:
    """Solve the systems of independent rows to a relative residual ``tol`` each, preconditioned by their diagonals.

    In the eigenvectors of M, or without M in those of ``basis``, the diagonals are most of the Hessians. The CPU
    backend solves row by row, other backends take each step for all rows.
    """
    m, Q = _diagonalize(basis if hessians.M is None else hessians.M, R.dtype)
    m = 0.0 * m if hessians.M is None else m
    cells, rotated = [part._replace(H=matmul(part.H, Q)) for part in hessians.cells], matmul(R, Q)
    joined = _join_cells(cells) if isinstance(R, np.ndarray) else None
    if joined is None:
        solution = _solve_rows_together(hessians, cells, m, rotated, tol, max_iter)
    else:
        weights, ridge = (
            np.broadcast_to(np.ravel(part), len(R)).astype(R.dtype) for part in (hessians.weights, hessians.ridge)
        )
        kernels: Any = joined.kernels
        x, *outcome = kernels.solve_rows(*joined[1:], (m[0], weights, ridge), rotated, tol, max_iter)
        solution = CGResult(x, rotated, *outcome)
    return solution._replace(x=matmul(solution.x, Q.T), residual=matmul(solution.residual, Q.T))


MAX_OFF_DIAGONAL = 16  # of a matrix that counts as diagonal, in units of rounding, relative to its trace


def _diagonalize(M: Array, dtype: object) -> tuple[Array, Array]:
    """Return the eigenvalues, (1, k), and eigenvectors of M; the identity if M is diagonal already.

    Rounding alone would choose among the eigenvectors of equal eigenvalues, as those of orthonormal factors.
    """
    xp = namespace(M)
    M = xp.astype(M, xp.float64)
    m, Q = xp.linalg.diagonal(M), xp.eye(M.shape[0], dtype=xp.float64, device=getattr(M, "device", None))
    off = xp.max(xp.abs(M - Q * m[None, :]))
    if not bool(off <= MAX_OFF_DIAGONAL * xp.finfo(dtype).eps * xp.sum(m)):
        m, Q = eigh(M)
    return xp.astype(m, dtype)[None, :], xp.astype(Q, dtype)


def _join_cells(parts: list[CellHessians]) -> CellHessians | None:
    """Return the parts as one, if all of them have the same cells and their backend solves rows one by one."""
    first = parts[0]
    if not hasattr(first.kernels, "solve_rows"):
        return None
    alike = all(np.array_equal(part.cells.indices, first.cells.indices) for part in parts[1:])
    return first._replace(curvature=sum(part.curvature for part in parts)) if alike else None


def _solve_rows_together(
    hessians: RowHessians, cells: list[CellHessians], m: Array, R: Array, tol: float, max_iter: int
) -> CGResult:
    """Solve the systems of :func:`solve_rows` where M is diag(m)."""
    xp = namespace(R)
    scale = xp.astype(hessians.weights * m + hessians.ridge, R.dtype)
    diagonal = scale
    for part in cells:
        diagonal = diagonal + part.kernels.cells_diagonal(*part[1:])
    significant = diagonal > EPSILON * xp.max(diagonal, axis=1, keepdims=True)
    inverse = xp.where(significant, 1.0 / xp.where(significant, diagonal, 1.0), 0.0)

    def product(S: Array) -> Array:
        image = scale * S
        for part in cells:
            image += part.kernels.cells_hessp(part.cells, part.curvature, S, part.H)
        return image

    def precondition(Z: Array) -> Array:
        return Z * inverse

    return conjugate_gradient(product, R, tol=tol, max_iter=max_iter, blocks="rows", precondition=precondition)


def _invert(scale: Array, dtype: object) -> Array:
    """Return 1 / scale, computed in float64, and 0 where the scale is at rounding level."""
    xp = namespace(scale)
    scale = xp.astype(scale, xp.float64)
    significant = scale > EPSILON * xp.clip(xp.max(scale), TINY)
    return xp.astype(xp.where(significant, 1.0 / xp.where(significant, scale, 1.0), 0.0), dtype)


@dataclass
class Direct:
    """Solver of quadratics whose Hessian is a Kronecker product plus a ridge: one step W − K⁻¹∇f(W).

    After a rotation the columns are separate systems, solved by eigenvectors if the features have them, else by
    conjugate gradients to a relative residual ``tol`` or for ``max_iter`` products. More products are wasted while
    the other factor still changes.
    """

    tol: float = 1e-1
    max_iter: int = 12

    def minimize(self, objective: Objective, start: Array) -> Solution:
        """Return the minimiser, one step from ``start``."""
        model = objective.model(start)
        if model.kronecker is None or not model.kronecker.exact:
            raise ValueError(
                "solver='direct' solves squared loss on every cell with one weight and one penalty; use solver='cg' "
                "or 'tron' (or 'auto') for other losses, for missing labels and with graphs."
            )
        step = _solve_rows(model.kronecker, -model.gradient)
        if step is None:
            rotated = RotatedSystem(model.kronecker, start.dtype)
            if rotated.features.spectrum() is None:
                x, residual, n_products, converged = rotated.solve_columns(-model.gradient, self.tol, self.max_iter)
                value = model.value + 0.5 * inner(model.gradient, x) - 0.5 * inner(x, residual)
                status = Status.CONVERGED if converged else Status.MAX_ITER
                return Solution(start + x, float(value), status, 1, n_products)
            step = rotated.solve(-model.gradient)
        # Minimise along the step: its length is 1 up to rounding, which then cannot raise f.
        value, slope = float(model.value), float(inner(model.gradient, step))
        curvature = float(inner(step, model.hessp(step)))
        length = -slope / curvature if curvature > 0 else 0.0
        if not 0 < length < math.inf:
            return Solution(start, value, Status.CONVERGED if slope == 0 else Status.STALLED, 1, 1)
        return Solution(start + length * step, value + 0.5 * length * slope, Status.CONVERGED, 1, 1)

    def limit_products(self, steps: int, products: int) -> Direct:
        """Return a solver with at most ``products`` products in its one step."""
        return Direct(self.tol, products)
