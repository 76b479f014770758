"""Singular value projection: a symmetric matrix of low rank from some of its cells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.linalg

from labelgap.kernels import matmul, matmul_t
from labelgap.solvers.base import Array, Status, inner
from labelgap.solvers.subspace import orthonormal


class Completion(Protocol):
    """f(Z) = ½ ‖P_Ω(G − Z Zᵀ)‖² for a symmetric n×n matrix G that is known at the cells of Ω."""

    n: int
    dtype: Any

    def residual(self, Z: Array) -> Array:
        """G − Z Zᵀ at the cells of Ω, an array of numbers in any order."""

    def product(self, R: Array) -> Callable[[Array], Array]:
        """V ↦ R V for the n×n matrix with such numbers at Ω and 0 elsewhere."""


@dataclass
class Embedding:
    """Z (n×k); f at Z = 0 and after each projection; how it ended."""

    Z: Array
    history: list[float] = field(default_factory=list)
    status: Status = Status.MAX_ITER

    @property
    def n_iter(self) -> int:
        """The number of projections made."""
        return len(self.history) - 1


def svp(
    problem: Completion,
    k: int,
    *,
    random_state: np.random.RandomState,
    max_iter: int = 200,
    tol: float = 1e-3,
    depth: int = 1,
    momentum: bool = True,
) -> Embedding:
    """Minimise f over n×k matrices Z by projecting M + P_Ω(G − M) onto the PSD matrices of rank k (004, eq. 6).

    M̂ = M + P_Ω(G − M) is never formed: it is a product of factors plus a sparse matrix, so that a step costs
    O(n k² + |Ω| k). Its leading eigenvectors are sought in the span of U, M̂U, …, M̂ᵈᵉᵖᵗʰU, where U spans M. That
    suffices: f(M') ≤ ½ ‖M' − M̂‖² with equality at M, and M itself lies in the span, so no step raises f, however
    rough the eigenvectors. Where the span is the whole space, they are exact.

    With ``momentum`` a step starts from M + β (M − M₋), M₋ the matrix before, with Nesterov's growing β; one that
    raises f is taken back and made without it. It needs a fifth of the steps where many are needed.

    Stops when a step lowers f by less than ``tol`` of itself, or once ‖P_Ω(G − M)‖ ≤ ``tol`` · ‖P_Ω(G)‖.

    >>> class Whole:
    ...     n, dtype, G = 3, np.dtype(float), np.diag([4.0, 1.0, 0.0])
    ...     def residual(self, Z):
    ...         return self.G - Z @ Z.T
    ...     def product(self, R):
    ...         return R.__matmul__
    >>> found = svp(Whole(), 1, random_state=np.random.RandomState(0))
    >>> abs(found.Z.T).round(6) + 0, found.status.value
    (array([[2., 0., 0.]]), 'converged')
    """
    n, k = problem.n, min(k, problem.n)
    U = orthonormal(random_state.standard_normal((n, k)).astype(problem.dtype))
    now = before = _iterate(problem, U, np.zeros((n, k), problem.dtype))
    history, status, pace = [now.value], Status.MAX_ITER, 0
    while len(history) <= max_iter:
        # The first span starts from random directions and has further to go.
        reach = depth if len(history) > 1 else depth + 2
        following = _step(problem, now, before, pace / (pace + 3), reach)
        if following.value > now.value:
            if pace == 0:  # nothing but rounding is left
                status = Status.CONVERGED
                break
            before, pace = now, 0
            continue
        before, now, pace = now, following, pace + momentum
        history.append(now.value)
        if history[-2] - now.value <= tol * history[-2] or now.value <= tol**2 * history[0]:
            status = Status.CONVERGED
            break
    return Embedding(now.Z, history, status)


class _Iterate(NamedTuple):
    """Orthonormal U and Z with M = Z Zᵀ in its span; what M leaves at Ω, and f."""

    U: Array
    Z: Array
    R: Array
    value: float


def _iterate(problem: Completion, U: Array, Z: Array) -> _Iterate:
    R = problem.residual(Z)
    return _Iterate(U, Z, R, 0.5 * float(inner(R, R)))


def _step(problem: Completion, now: _Iterate, before: _Iterate, beta: float, depth: int) -> _Iterate:
    """Project M̂ of the point M + β (M − M₋)."""
    b = now.Z.dtype.type(beta)
    sparse = problem.product(now.R + b * (now.R - before.R) if beta else now.R)

    def image(V: Array) -> Array:
        product = sparse(V) + (1 + b) * matmul(now.Z, matmul_t(now.Z, V))
        return product - b * matmul(before.Z, matmul_t(before.Z, V)) if beta else product

    return _iterate(problem, *_project(image, now.U, depth))


def _project(image: Callable[[Array], Array], U: Array, depth: int) -> tuple[Array, Array]:
    """Return the k leading eigenvectors of V ↦ M̂ V within the span, and the factor of the projection."""
    n, k = U.shape
    if (depth + 1) * k >= n:
        basis = np.eye(n, dtype=U.dtype)
        images = image(basis)
    else:
        basis, images = _span(image, U, depth)
    values, E = _ritz(matmul_t(basis, basis), matmul_t(basis, images), k)
    U = matmul(basis, E.astype(U.dtype))
    return U, U * np.sqrt(np.maximum(values, 0)).astype(U.dtype)


def _span(image: Callable[[Array], Array], U: Array, depth: int) -> tuple[Array, Array]:
    """Return a basis of span(U, M̂U, …) and M̂ times it, for orthonormal U.

    Each block is cleared of what was there before and made orthonormal: columns that are only scaled agree in their
    leading digits, and float32 has few more. In place of columns that are lost so, QR makes up some; a second round
    clears these.
    """
    basis, images = U, [image(U)]
    for _ in range(depth):
        new = images[-1]
        for _ in range(2):
            new = orthonormal(new - matmul(basis, matmul_t(basis, new)))
        basis = np.concatenate([basis, new], axis=1)
        images.append(image(new))
    return basis, np.concatenate(images, axis=1)


def _ritz(gram: Array, form: Array, k: int) -> tuple[Array, Array]:
    """Return the k largest λ with form E = λ gram E, and E, after leaving out directions at rounding level."""
    size, directions = scipy.linalg.eigh(gram.astype(float), check_finite=False)
    kept = size > 10 * np.finfo(gram.dtype).eps * size[-1]
    whiten = directions[:, kept] / np.sqrt(size[kept])
    inner = whiten.T @ form.astype(float) @ whiten
    values, vectors = scipy.linalg.eigh((inner + inner.T) / 2, check_finite=False)
    E = np.zeros((len(gram), k))
    found = np.zeros(k)
    width = min(k, len(values))
    E[:, :width], found[:width] = whiten @ vectors[:, ::-1][:, :width], values[::-1][:width]
    return found, E
