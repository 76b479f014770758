"""Conjugate gradients for one system, or for many at once that share their products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

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
        return lambda a, b: np.full((1, 1), inner(a, b))
    axis = 1 if blocks == "rows" else 0
    return lambda a, b: (a * b).sum(axis, keepdims=True)


def _ratio(over: Array, under: Array) -> Array:
    positive = under > 0
    return np.where(positive, over / np.where(positive, under, 1), 0)


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
    Algorithm 3 (000, appendix A.1).

    >>> A = np.array([[2.0, 0], [0, 4.0]])
    >>> conjugate_gradient(lambda v: A @ v, np.array([[2.0], [4.0]]), tol=1e-12, max_iter=5).x.ravel()
    array([1., 1.])
    """
    dot = _products(blocks)
    apply = precondition or (lambda r: r)
    goal = tol**2 * dot(rhs, rhs)
    if start is None:
        x, residual, taken = np.zeros_like(rhs), rhs.copy(), 0
    else:
        x, residual, taken = start.copy(), rhs - product(start), 1
    active = dot(residual, residual) > goal
    z = apply(residual)
    direction, rz = z.copy(), dot(residual, z)
    while active.any() and taken < max_iter:
        image = product(direction)
        taken += 1
        step = (_ratio(rz, dot(direction, image)) * active).astype(rhs.dtype)
        x += step * direction
        residual -= step * image
        active &= (dot(residual, residual) > goal) & (step > 0)
        z = apply(residual)
        previous, rz = rz, dot(residual, z)
        direction *= (_ratio(rz, previous)).astype(rhs.dtype)
        direction += z
    return CGResult(x, residual, taken, bool((dot(residual, residual) <= goal).all()))
