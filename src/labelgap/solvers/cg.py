"""Conjugate gradients for one system, or for many at once that share their products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from labelgap.kernels import namespace
from labelgap.solvers.base import Array, inner

Blocks = Literal["joint", "rows", "columns"]


class CGResult(NamedTuple):
    """The solution, the residual left, the number of products, and whether every block met the tolerance."""

    x: Array
    residual: Array
    n_products: int
    converged: bool


def _products(blocks: Blocks) -> Callable[[Array, Array], Array]:
    """⟨a, b⟩ of the whole, of each row or of each column, shaped so that it multiplies back."""
    if blocks == "joint":
        return lambda a, b: namespace(a).reshape(inner(a, b), (1, 1))
    axis = 1 if blocks == "rows" else 0
    return lambda a, b: namespace(a).sum(a * b, axis=axis, keepdims=True)


def _ratio(over: Array, under: Array, where: Array) -> Array:
    """over / under where that is asked for and ``under`` is positive, 0 elsewhere."""
    xp = namespace(over)
    where = where & (under > 0)
    return xp.where(where, over / xp.where(where, under, 1.0), 0.0)


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

    With ``blocks="columns"`` (or ``"rows"``) A acts on each column (row) by itself: every one of them has its own
    step lengths and stops by its own residual, while the product is taken once for all. ``"joint"`` is the paper's
    Algorithm 3 (000, appendix A.1). The device is read once for each product: whether any block goes on.

    >>> import numpy as np
    >>> A = np.array([[2.0, 0], [0, 4.0]])
    >>> conjugate_gradient(lambda v: A @ v, np.array([[2.0], [4.0]]), tol=1e-12, max_iter=5).x.ravel()
    array([1., 1.])
    """
    xp, dot = namespace(rhs), _products(blocks)
    goal = tol**2 * dot(rhs, rhs)
    if start is None:
        x, residual, taken = xp.zeros_like(rhs), xp.positive(rhs), 0
    else:
        x, residual, taken = xp.positive(start), rhs - product(start), 1
    active = dot(residual, residual) > goal
    z = residual if precondition is None else precondition(residual)
    direction, rz = xp.positive(z), dot(residual, z)
    while taken < max_iter and bool(xp.any(active)):
        image = product(direction)
        taken += 1
        step = xp.astype(_ratio(rz, dot(direction, image), active), rhs.dtype)
        x += direction * step
        residual -= image * step
        active = active & (dot(residual, residual) > goal) & (step > 0)
        z = residual if precondition is None else precondition(residual)
        previous, rz = rz, dot(residual, z)
        direction *= xp.astype(_ratio(rz, previous, previous > 0), rhs.dtype)
        direction += z
    return CGResult(x, residual, taken, bool(xp.all(dot(residual, residual) <= goal)))
