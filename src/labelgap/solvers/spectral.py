"""Methods by singular vectors: subspace iteration, singular value projection, reduced-rank regression."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import array_api_compat
import numpy as np
import scipy.linalg

from labelgap.kernels import matmul, matmul_t, namespace, qr, svd
from labelgap.solvers.base import Array, Status, inner

OVERSAMPLING = 10  # columns of a block beyond those that are wanted


def orthonormalize(block: Array) -> Array:
    """Return orthonormal columns whose span contains that of the block."""
    return qr(block)[0]


def find_right_vectors(
    times: Callable[[Array], Array],
    t_times: Callable[[Array], Array],
    n_columns: int,
    k: int,
    *,
    random_state: np.random.RandomState,
    dtype: Any = np.float64,
    convert: Callable[[Array, Any], Array] = np.ascontiguousarray,
    draw: Callable[..., Array] | None = None,
    oversampling: int = OVERSAMPLING,
    n_iter: int = 2,
    first: Array | None = None,
) -> tuple[Array, Array]:
    """Approximate the k largest singular values of A and their right vectors (n_columns×k) by subspace iteration.

    ``first`` has the columns of the first block; without it they are random.

    ``times(V)`` is A V and ``t_times(U)`` is Aᵀ U; ``convert(array, dtype)`` returns the random start and the vectors
    on their device, in the memory order that they require; ``draw(random_state, shape, dtype)`` returns random normal
    numbers there. Halko, Martinsson and Tropp (2011), algorithms 4.4 and
    5.1.

    >>> A = np.diag([3.0, 2.0, 1.0])
    >>> values, V = find_right_vectors(A.dot, A.T.dot, 3, 2, random_state=np.random.RandomState(0))
    >>> values.round(6)
    array([3., 2.])
    """
    width = min(n_columns, k + oversampling)
    shape = (n_columns, width)
    V = first
    if V is None:
        V = draw(random_state, shape, dtype) if draw else convert(random_state.standard_normal(shape), dtype)
    for _ in range(n_iter):
        V = orthonormalize(t_times(orthonormalize(times(V))))
    image = t_times(orthonormalize(times(V))).T
    xp = namespace(image)
    if not bool(xp.all(xp.isfinite(image))):
        raise FloatingPointError("their products became infinite")
    _, values, Vt = svd(image)
    return values[:k], convert(Vt[:k, :].T, dtype)


# --- singular value projection --------------------------------------------------------------------------------------


class SymmetricCompletion(Protocol):
    """f(Z) = ½ ‖P_Ω(G − Z Zᵀ)‖² for a symmetric n×n matrix G that is known at the cells of Ω."""

    n: int
    dtype: Any

    def residual(self, Z: Array) -> Array:
        """Return G − Z Zᵀ at the cells of Ω, in any order."""

    def product(self, R: Array) -> Callable[[Array], Array]:
        """Return V ↦ R V for the n×n matrix with the numbers R at Ω and 0 elsewhere."""


@dataclass
class Embedding:
    """Z (n×k), f at Z = 0 and after each projection, and the status."""

    Z: Array
    history: list[float] = field(default_factory=list)
    status: Status = Status.MAX_ITER

    @property
    def n_iter(self) -> int:
        """The number of projections."""
        return len(self.history) - 1


def svp(
    problem: SymmetricCompletion,
    k: int,
    *,
    random_state: np.random.RandomState,
    max_iter: int = 200,
    tol: float = 1e-3,
    depth: int = 1,
    momentum: bool = True,
    convert: Callable[[Array, Any], Array] = np.ascontiguousarray,
) -> Embedding:
    """Minimise f over n×k matrices Z by projecting M + P_Ω(G − M) onto the PSD matrices of rank k (004, eq. 6).

    M̂ = M + P_Ω(G − M) is never formed: it is a product of factors plus a sparse matrix, so that a step costs
    O(n k² + |Ω| k). Its leading eigenvectors are approximated in the span of U, M̂U, …, M̂ᵈᵉᵖᵗʰU, where U spans M. No
    step raises f, however rough the approximation: f(M') ≤ ½ ‖M' − M̂‖² with equality at M, and M is in the span. If
    the span is the whole space, the eigenvectors are exact.

    With ``momentum`` a step starts from M + β (M − M₋), M₋ the previous matrix, with Nesterov's growing β; a step
    that raises f is repeated without momentum. Long runs then take a fifth of the steps.

    Stops when a step lowers f by less than ``tol`` of itself, or once ‖P_Ω(G − M)‖ ≤ ``tol`` · ‖P_Ω(G)‖.
    ``convert(array, dtype)`` returns the random start on the device of the problem.

    >>> class AllCellsKnown:
    ...     n, dtype, G = 3, np.dtype(float), np.diag([4.0, 1.0, 0.0])
    ...     def residual(self, Z):
    ...         return self.G - Z @ Z.T
    ...     def product(self, R):
    ...         return R.__matmul__
    >>> embedding = svp(AllCellsKnown(), 1, random_state=np.random.RandomState(0))
    >>> abs(embedding.Z.T).round(6) + 0, embedding.status.value
    (array([[2., 0., 0.]]), 'converged')
    """
    n, k = problem.n, min(k, problem.n)
    U = orthonormalize(convert(random_state.standard_normal((n, k)), problem.dtype))
    current = previous = _evaluate(problem, U, namespace(U).zeros_like(U))
    history, status, momentum_steps = [current.value], Status.MAX_ITER, 0
    while len(history) <= max_iter:
        # The first span starts from random directions, so it needs more depth.
        span_depth = depth if len(history) > 1 else depth + 2
        trial = _project_step(problem, current, previous, momentum_steps / (momentum_steps + 3), span_depth)
        if trial.value > current.value:
            if momentum_steps == 0:  # f is at rounding level
                status = Status.CONVERGED
                break
            previous, momentum_steps = current, 0
            continue
        previous, current, momentum_steps = current, trial, momentum_steps + momentum
        history.append(current.value)
        if history[-2] - current.value <= tol * history[-2] or current.value <= tol**2 * history[0]:
            status = Status.CONVERGED
            break
    return Embedding(current.Z, history, status)


class _Iterate(NamedTuple):
    """Orthonormal U, Z with M = Z Zᵀ in the span of U, the residual at Ω, and f."""

    U: Array
    Z: Array
    R: Array
    value: float


def _evaluate(problem: SymmetricCompletion, U: Array, Z: Array) -> _Iterate:
    R = problem.residual(Z)
    return _Iterate(U, Z, R, 0.5 * float(inner(R, R)))


def _project_step(
    problem: SymmetricCompletion, current: _Iterate, previous: _Iterate, beta: float, depth: int
) -> _Iterate:
    """Project M̂ at the point M + β (M − M₋)."""
    sparse = problem.product(current.R + beta * (current.R - previous.R) if beta else current.R)

    def image(V: Array) -> Array:
        product = sparse(V) + (1 + beta) * matmul(current.Z, matmul_t(current.Z, V))
        return product - beta * matmul(previous.Z, matmul_t(previous.Z, V)) if beta else product

    return _evaluate(problem, *_project(image, current.U, depth))


def _project(image: Callable[[Array], Array], U: Array, depth: int) -> tuple[Array, Array]:
    """Return the k leading eigenvectors of V ↦ M̂ V in the span, and the factor of the projection."""
    (n, k), xp, device = U.shape, namespace(U), array_api_compat.device(U)
    if (depth + 1) * k >= n:
        basis = xp.eye(n, dtype=U.dtype, device=device)
        images = image(basis)
    else:
        basis, images = _make_span(image, U, depth)
    # The small matrices are decomposed on the host, where threads that fit other parts do the same.
    gram, form = (np.asarray(array_api_compat.to_device(matmul_t(basis, A), "cpu")) for A in (basis, images))
    values, E = _solve_ritz(gram, form, k)
    roots, E = (xp.asarray(part, dtype=U.dtype, device=device) for part in (np.sqrt(np.maximum(values, 0)), E))
    U = matmul(basis, E)
    return U, U * roots


def _make_span(image: Callable[[Array], Array], U: Array, depth: int) -> tuple[Array, Array]:
    """Return a basis of span(U, M̂U, …) and M̂ times it, for orthonormal U.

    Each block is made orthogonal to the earlier ones and orthonormal: columns that are only scaled agree in their
    leading digits, and float32 has few more. QR replaces dependent columns by arbitrary ones; a second round makes
    these orthogonal too.
    """
    basis, images = U, [image(U)]
    for _ in range(depth):
        new = images[-1]
        for _ in range(2):
            new = orthonormalize(new - matmul(basis, matmul_t(basis, new)))
        basis = namespace(U).concat([basis, new], axis=1)
        images.append(image(new))
    return basis, namespace(U).concat(images, axis=1)


def _solve_ritz(gram: Array, form: Array, k: int) -> tuple[Array, Array]:
    """Return the k largest λ with form E = λ gram E, and E, without directions at rounding level."""
    size, directions = scipy.linalg.eigh(gram.astype(float), check_finite=False)
    significant = size > 10 * np.finfo(gram.dtype).eps * size[-1]
    whitening = directions[:, significant] / np.sqrt(size[significant])
    whitened = whitening.T @ form.astype(float) @ whitening
    values, vectors = scipy.linalg.eigh((whitened + whitened.T) / 2, check_finite=False)
    E, leading = np.zeros((len(gram), k)), np.zeros(k)
    width = min(k, len(values))
    E[:, :width], leading[:width] = whitening @ vectors[:, ::-1][:, :width], values[::-1][:width]
    return leading, E


# --- reduced-rank regression ----------------------------------------------------------------------------------------


def reduced_rank_regression(X: Array, Y: Any, k: int) -> tuple[Array, Array]:
    """Return W (d×k) and H (L×k) with W Hᵀ = argmin over rank(Z) ≤ k of ‖Y − X Z‖², H orthonormal.

    With X = U Σ Vᵀ and M_k the rank-k truncation of M = Uᵀ Y it is Z = V Σ⁻¹ M_k (000, claim 1, with the proof's V_Xᵀ
    read as V_X). Singular values of X at rounding level are ignored, which gives the least-norm solution if X is
    rank-deficient. CPLST has the same solution (claim 2). Y may be sparse.

    >>> X, Y = np.eye(3), np.diag([3.0, 2.0, 1.0])
    >>> W, H = reduced_rank_regression(X, Y, 2)
    >>> np.round(W @ H.T, 6) + 0
    array([[3., 0., 0.],
           [0., 2., 0.],
           [0., 0., 0.]])
    """
    U, sigma, Vt = scipy.linalg.svd(X, full_matrices=False)
    significant = sigma > max(X.shape) * np.finfo(sigma.dtype).eps * sigma.max(initial=0)
    M = np.asarray((Y.T @ U[:, significant]).T)
    P, S, Qt = scipy.linalg.svd(M, full_matrices=False)
    W = (Vt[significant].T / sigma[significant]) @ (P[:, :k] * S[:k])
    return W, Qt[:k].T
