"""The interface of a backend, and the choice of one."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

Targets = tuple[float, float]
Weights = tuple[Any, Any]


class Cell(Protocol):
    """An elementwise function of a target a and a score b, with its first two derivatives in b.

    ``functions(xp)`` returns them as (value, gradient, curvature), written with the ``exp`` and ``log1p`` of ``xp``.
    """

    def functions(self, xp: Any) -> tuple[Callable, Callable, Callable]:
        """Return value, gradient and curvature."""


class Sparse(Protocol):
    """A sparse matrix that a backend has prepared for products from both sides."""

    shape: tuple[int, int]
    nnz: int


class CellModel(NamedTuple):
    """A sum over cells at one point.

    Its value; its gradient in the left factor, n×k; Σ_j ℓ''_ij / L for each row, n×1; the curvature of each cell.
    """

    value: float
    gradient: Any
    weights: Any
    curvature: Any


class Backend(Protocol):
    """What every device must do. A is sparse n×d or n×L, B is n×k or d×k, H is L×k.

    Sums are float64 whatever the arrays are. Ties in a ranking go to the lower index.
    """

    def array(self, values: Any, dtype: Any) -> Any:
        """Bring a dense array to the device."""

    def prepare(self, matrix: Any, dtype: Any) -> Sparse:
        """Bring a sparse matrix to the device."""

    def transpose(self, A: Sparse) -> Sparse:
        """Aᵀ, prepared; kept with A, so that it is made once."""

    def column_sums(self, A: Sparse, values: Any) -> Any:
        """Σ_i values_ij for each column, float64, d×1; the values belong to the stored cells of A."""

    def column_squares(self, A: Sparse) -> Any:
        """Σ_i A_ij² for each column, float64, d×1."""

    def spmm(self, A: Sparse, B: Any) -> Any:
        """A B."""

    def spmm_t(self, A: Sparse, B: Any) -> Any:
        """Aᵀ B."""

    def matmul(self, A: Any, B: Any) -> Any:
        """A B of dense matrices."""

    def matmul_t(self, A: Any, B: Any) -> Any:
        """Aᵀ B of dense matrices."""

    def gram(self, B: Any) -> Any:
        """BᵀB of a dense or a prepared sparse matrix, dense; float64 of a sparse one."""

    def sddmm(self, A: Sparse, B: Any, H: Any) -> Any:
        """(B Hᵀ)_ij at the stored cells of A, in their order."""

    def cells_value(self, cell: Cell, A: Sparse, B: Any, H: Any) -> float:
        """Σ over stored (i, j) of ℓ(A_ij, b_i·h_j)."""

    def cells_model(self, cell: Cell, A: Sparse, B: Any, H: Any) -> CellModel:
        """The same with D H, D_ij = ℓ'(A_ij, b_i·h_j), and the curvature at each stored cell."""

    def cells_hessp(self, A: Sparse, curvature: Any, S: Any, H: Any) -> Any:
        """U H with U_ij = ℓ''_ij (s_i·h_j) at the stored cells of A."""

    def cells_sum(self, cell: Cell, A: Sparse, scores: Any, changes: Any, step: float) -> float:
        """Σ over stored (i, j) of ℓ(A_ij, scores + step · changes), both given at the stored cells."""

    def all_value(self, cell: Cell, A: Sparse, targets: Targets, weights: Weights, B: Any, H: Any) -> float:
        """Σ over all (i, j) of p_i q_j ℓ, with ``targets[1]`` at A's stored cells and ``targets[0]`` elsewhere.

        The weights are p, of n numbers, and q, of L, in float64.
        """

    def all_model(self, cell: Cell, A: Sparse, targets: Targets, weights: Weights, B: Any, H: Any) -> CellModel:
        """The same with D H; the curvature is not kept (it has n×L values)."""

    def all_hessp(self, cell: Cell, A: Sparse, targets: Targets, weights: Weights, B: Any, S: Any, H: Any) -> Any:
        """U H with U_ij = p_i q_j ℓ''_ij (s_i·h_j) over all cells, the curvature computed anew at B."""

    def topk(self, B: Any, H: Any, k: int, exclude: Sparse | None = None) -> tuple[Any, Any]:
        """The k best labels of each row of B Hᵀ and their scores, best first, in row blocks.

        The stored cells of ``exclude`` have the score −∞.
        """

    def best_in_rows(self, scores: Any, k: int) -> tuple[Any, Any]:
        """The columns of the k largest of each row of dense scores, and the scores, best first."""

    def product_topk(self, A: Sparse, B: Sparse, k: int) -> tuple[Any, Any]:
        """The columns of the k largest entries of each row of A Bᵀ, n×k, and the entries, best first; k ≤ m.

        A is n×d, B is m×d, both sparse and of one precision, which is that of the sums; their order depends on
        the row of A alone. An absent entry is 0, and ranks above a negative one. Never makes n×m numbers.
        """


def get_backend(device: str = "auto") -> Backend:
    """Return the backend of a device name.

    >>> get_backend("cpu").__name__
    'labelgap.kernels.cpu'
    """
    if device not in ("auto", "cpu"):
        raise ValueError(f"device={device!r} is not available; use 'auto' or 'cpu'.")
    return importlib.import_module("labelgap.kernels.cpu")


def of(array: Any) -> Backend:
    """Return the backend that an array lives on.

    >>> import numpy as np
    >>> of(np.zeros(3)).__name__
    'labelgap.kernels.cpu'
    """
    return get_backend("cpu")
