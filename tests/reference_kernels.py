"""The same interface in plain NumPy and SciPy, dense where that is simplest: what every other backend must equal."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from labelgap.kernels.base import CellLoss, CellModel


def array(values: Any, dtype: Any) -> Any:
    """Return a contiguous NumPy array."""
    return np.ascontiguousarray(values, dtype)


def prepare(matrix: Any, dtype: Any) -> sp.csr_array:
    """Return a CSR matrix."""
    return sp.csr_array(matrix, dtype=dtype)


def transpose(A: Any) -> sp.csr_array:
    """Aᵀ."""
    return sp.csr_array(A.T)


def column_sums(A: Any, values: Any) -> Any:
    """Σ_i values_ij for each column."""
    return _sparse(A, values).astype(float).sum(axis=0)[:, None]


def column_squares(A: Any) -> Any:
    """Σ_i A_ij² for each column."""
    return A.astype(float).power(2).sum(axis=0)[:, None]


def spmm(A: Any, B: Any) -> Any:
    """A B."""
    return A @ B


def spmm_t(A: Any, B: Any) -> Any:
    """Aᵀ B."""
    return A.T @ B


def matmul(A: Any, B: Any) -> Any:
    """A B."""
    return A @ B


def matmul_t(A: Any, B: Any) -> Any:
    """Aᵀ B."""
    return A.T @ B


def gram(B: Any) -> Any:
    """BᵀB."""
    product = B.T @ B
    return product.toarray() if sp.issparse(product) else product


def _rows(A: Any) -> Any:
    return np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))


def sddmm(A: Any, B: Any, H: Any) -> Any:
    """(B Hᵀ)_ij at the stored cells."""
    return (B[_rows(A)] * H[A.indices]).sum(axis=1)


def _sparse(A: Any, data: Any) -> sp.csr_array:
    return sp.csr_array((data, A.indices, A.indptr), shape=A.shape)


def cells_value(loss: CellLoss, A: Any, B: Any, H: Any) -> float:
    """Σ ℓ over the stored cells."""
    return float(loss.functions(np)[0](A.data, sddmm(A, B, H)).sum(dtype=float))


def cells_model(loss: CellLoss, A: Any, B: Any, H: Any) -> CellModel:
    """Value, D H and curvature over the stored cells."""
    value, gradient, curvature = loss.functions(np)
    scores = sddmm(A, B, H)
    D, bend = _sparse(A, gradient(A.data, scores)), curvature(A.data, scores)
    weights = _sparse(A, bend).sum(axis=1)[:, None] / A.shape[1]
    return CellModel(float(value(A.data, scores).sum(dtype=float)), D @ H, weights, bend)


def cells_hessp(A: Any, curvature: Any, S: Any, H: Any) -> Any:
    """U H over the stored cells."""
    return _sparse(A, curvature * sddmm(A, S, H)) @ H


def cells_diagonal(A: Any, curvature: Any, H: Any) -> Any:
    """Σ c h∘h over the stored cells of each row."""
    return _sparse(A, curvature) @ (H * H)


def solve_rows(A: Any, curvature: Any, H: Any, diagonals: Any, R: Any) -> Any:
    """The exact solutions of (diag(p_i m + r_i) + Σ c h hᵀ) x_i = R_i."""
    C, (m, p, ridge), X = _sparse(A, curvature).toarray(), diagonals, np.empty_like(R)
    for i in range(len(R)):
        X[i] = np.linalg.solve(np.diag(p[i] * m + ridge[i]) + (C[i][:, None] * H).T @ H, R[i])
    return X


def _targets(A: Any, targets: tuple[float, float], dtype: Any) -> Any:
    dense = np.full(A.shape, targets[0], dtype)
    dense[_rows(A), A.indices] = targets[1]
    return dense


def _cell_weights(weights: Any) -> Any:
    return np.multiply.outer(*weights)


def cells_sum(loss: CellLoss, A: Any, scores: Any, changes: Any, step: float) -> float:
    """Σ ℓ over the stored cells, at scores that are given there."""
    return float(loss.functions(np)[0](A.data, scores + step * changes).sum(dtype=float))


def all_value(loss: CellLoss, A: Any, targets: tuple[float, float], weights: Any, B: Any, H: Any) -> float:
    """Σ p_i q_j ℓ over all cells."""
    losses = loss.functions(np)[0](_targets(A, targets, B.dtype), B @ H.T)
    return float((_cell_weights(weights) * losses).sum(dtype=float))


def all_model(loss: CellLoss, A: Any, targets: tuple[float, float], weights: Any, B: Any, H: Any) -> CellModel:
    """Value and D H over all cells."""
    value, gradient, curvature = loss.functions(np)
    goals, scores, w = _targets(A, targets, B.dtype), B @ H.T, _cell_weights(weights)
    bends = (w * curvature(goals, scores)).mean(axis=1, keepdims=True)
    total = float((w * value(goals, scores)).sum(dtype=float))
    return CellModel(total, (w * gradient(goals, scores)) @ H, bends, None)


def all_hessp(loss: CellLoss, A: Any, targets: tuple[float, float], weights: Any, B: Any, S: Any, H: Any) -> Any:
    """U H over all cells."""
    curvature = loss.functions(np)[2](_targets(A, targets, B.dtype), B @ H.T)
    return (_cell_weights(weights) * curvature * (S @ H.T)) @ H


def topk(B: Any, H: Any, k: int, exclude: Any = None) -> tuple[Any, Any]:
    """The k best of each row, best first, ties to the lower index."""
    scores = B @ H.T
    if exclude is not None:
        scores[_rows(exclude), exclude.indices] = -np.inf
    return best_in_rows(scores, k)


def product_topk(A: Any, B: Any, k: int) -> tuple[Any, Any]:
    """The k largest entries of each row of A Bᵀ, best first, ties to the lower index."""
    return best_in_rows((A @ B.T).toarray(), k)


def best_in_rows(scores: Any, k: int) -> tuple[Any, Any]:
    """The k largest of each row, best first, ties to the lower index."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(scores, order, axis=1)
