"""The interface of a backend, and the choice of one."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import array_api_compat
import numpy as np
import scipy.linalg

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

    Dense arrays are of any library that follows the Python array API standard, and dense arithmetic is written with
    :func:`namespace`; what has no such standard (sparse products, sums over cells, rankings) is here. Sums are
    float64 whatever the arrays are. Ties in a ranking go to the lower index.
    """

    def array(self, values: Any, dtype: Any) -> Any:
        """Bring a dense array to the device."""

    def rows(self, values: Any, dtype: Any) -> Any:
        """Bring a dense array that has a row for each row of the data; these may lie in shards."""

    def zeros(self, A: Sparse, k: int, dtype: Any) -> Any:
        """Zeros with a row for each row of A and k columns."""

    def to_numpy(self, array: Any) -> Any:
        """Bring an array back as a NumPy array."""

    def prepare(self, matrix: Any, dtype: Any) -> Sparse:
        """Bring a sparse matrix, with a row for each row of the data, to the device."""

    def prepare_graph(self, matrix: Any, dtype: Any) -> Sparse:
        """Bring a sparse matrix with a row and a column for each row of the data to the device."""

    def eigh(self, A: Any) -> tuple[Any, Any]:
        """The eigenvalues, ascending, and eigenvectors of a symmetric float64 matrix, which may be overwritten."""

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


def _cpu() -> Backend:
    backend: Any = importlib.import_module("labelgap.kernels.cpu")
    return backend


# A function for each device that returns its backend, called each time it is asked for. Packages are imported in it.
BACKENDS: dict[str, Callable[[], Backend]] = {"auto": _cpu, "cpu": _cpu}


def get_backend(device: str = "cpu") -> Backend:
    """Return the backend of a device name; by default that of NumPy arrays.

    >>> get_backend("cpu").__name__
    'labelgap.kernels.cpu'
    """
    if device not in BACKENDS:
        names = " or ".join(repr(name) for name in BACKENDS)
        raise ValueError(f"device={device!r} is not available; use {names}.")
    return BACKENDS[device]()


def whole(backend: Backend) -> Backend:
    """Return the backend of what belongs to labels: that within one that keeps rows in shards, else the same."""
    return getattr(backend, "whole", backend)


def namespace(array: Any) -> Any:
    """Return the array API namespace of an array.

    >>> import numpy as np
    >>> float(namespace(np.ones(3)).sum(np.ones(3)))
    3.0
    """
    return array_api_compat.array_namespace(array)


def matmul(A: Any, B: Any) -> Any:
    """A B of dense matrices of any library; NumPy's on the threads of the CPU backend."""
    return get_backend("cpu").matmul(A, B) if isinstance(A, np.ndarray) else A @ B


def matmul_t(A: Any, B: Any) -> Any:
    """Aᵀ B of dense matrices of any library."""
    return get_backend("cpu").matmul_t(A, B) if isinstance(A, np.ndarray) else A.T @ B


def qr(A: Any) -> tuple[Any, Any]:
    """Q and R of a tall matrix of any library; NumPy's own function works in float64 whatever A is."""
    if isinstance(A, np.ndarray):
        return scipy.linalg.qr(A, mode="economic", check_finite=False)
    return namespace(A).linalg.qr(A)


def svd(A: Any) -> tuple[Any, Any, Any]:
    """U, the singular values and Vᵀ, thin, of a matrix of any library."""
    if isinstance(A, np.ndarray):
        return scipy.linalg.svd(A, full_matrices=False, check_finite=False)
    return namespace(A).linalg.svd(A, full_matrices=False)


def eigh(A: Any) -> tuple[Any, Any]:
    """Eigenvalues, ascending, and eigenvectors of a small symmetric matrix of any library."""
    return scipy.linalg.eigh(A) if isinstance(A, np.ndarray) else namespace(A).linalg.eigh(A)
