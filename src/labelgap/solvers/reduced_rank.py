"""The closed form of low-rank least squares without a penalty."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg

from labelgap.solvers.base import Array


def reduced_rank_regression(X: Array, Y: Any, k: int) -> tuple[Array, Array]:
    """Return W (d×k) and H (L×k) with W Hᵀ = argmin over rank(Z) ≤ k of ‖Y − X Z‖², H orthonormal.

    With X = U Σ Vᵀ and M_k the rank-k truncation of M = Uᵀ Y it is Z = V Σ⁻¹ M_k (000, claim 1, with the proof's V_Xᵀ
    read as V_X). Singular values of X at rounding level are left out, which gives the least-norm solution where X is
    rank-deficient. This is also what CPLST finds (claim 2). Y may be sparse.

    >>> X, Y = np.eye(3), np.diag([3.0, 2.0, 1.0])
    >>> W, H = reduced_rank_regression(X, Y, 2)
    >>> np.round(W @ H.T, 6) + 0
    array([[3., 0., 0.],
           [0., 2., 0.],
           [0., 0., 0.]])
    """
    U, sigma, Vt = scipy.linalg.svd(X, full_matrices=False)
    kept = sigma > max(X.shape) * np.finfo(sigma.dtype).eps * sigma.max(initial=0)
    M = np.asarray((Y.T @ U[:, kept]).T)
    P, S, Qt = scipy.linalg.svd(M, full_matrices=False)
    W = (Vt[kept].T / sigma[kept]) @ (P[:, :k] * S[:k])
    return W, Qt[:k].T
