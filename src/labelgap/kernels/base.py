"""The interface of a backend, and the choice of one."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple, Protocol

import array_api_compat
import numpy as np
import scipy.linalg

from labelgap.runtime import get_runner

EPSILON = float(np.finfo(np.float64).eps)
MAX_LOSSES = 5  # of arrays on a cluster in one piece of work; a task outlives three deaths of its worker before
Targets = tuple[float, float]
Weights = tuple[Any, Any]


class CellLoss(Protocol):
    """Elementwise function ℓ(a, b) of a target a and a score b, with its first two derivatives in b.

    ``functions(xp)`` returns them as (value, gradient, curvature), written with the ``exp`` and ``log1p`` of ``xp``.
    """

    def functions(self, xp: Any) -> tuple[Callable, Callable, Callable]:
        """Return value, gradient and curvature."""


class Sparse(Protocol):
    """Sparse matrix that a backend has prepared for products from both sides."""

    shape: tuple[int, int]
    nnz: int

    def with_data(self, data: Any) -> Sparse:
        """Return the matrix with these numbers in the stored cells."""


class CellModel(NamedTuple):
    """A sum over cells at one point."""

    value: float
    gradient: Any  # in the left factor, n×k
    row_curvature: Any  # Σ_j ℓ''_ij / L for each row, n×1
    cell_curvature: Any  # ℓ''_ij of each stored cell


class LostArrays(RuntimeError):
    """Arrays were lost with a worker, and Dask cannot compute them again; the work that made them can run again."""


def repeat_when_lost(work: Callable[[], Any], count_done: Callable[[], int] = lambda: 0) -> Any:
    """Return ``work()``, which runs again when a worker has died with its arrays.

    After :data:`MAX_LOSSES` losses between which ``count_done()`` does not grow the error is raised.

    >>> repeat_when_lost(lambda: 3)
    3
    """
    n_losses, n_done = 0, count_done()
    while True:
        try:
            return work()
        except LostArrays:
            n_losses = 1 if count_done() > n_done else n_losses + 1
            n_done = count_done()
            if n_losses == MAX_LOSSES:
                raise


class Backend(Protocol):
    """The functions of a device. A is sparse n×d or n×L, B is n×k or d×k, H is L×k.

    Dense arrays are those of any library that follows the Python array API standard; dense arithmetic uses
    :func:`namespace`. This interface has the functions without a standard: sparse products, sums over cells,
    rankings. Sums over cells are float64 for any type of the arrays. Ties in a ranking go to the lower index.
    """

    predicts: bool  # whether predictions of many rows run on it
    loses_arrays: bool  # whether arrays over rows can be lost with the machine that has them

    def array(self, values: Any, dtype: Any) -> Any:
        """Copy a dense array to the device."""

    def rows(self, values: Any, dtype: Any) -> Any:
        """Copy a dense array with a row for each row of the data, which a backend may split into shards."""

    def zeros(self, A: Sparse, k: int, dtype: Any) -> Any:
        """Return zeros with a row for each row of A and k columns."""

    def normal(self, random_state: np.random.RandomState, shape: tuple[int, int], dtype: Any) -> Any:
        """Return random normal numbers on the device; a device may draw a large array itself, from the same seed."""

    def coarse(self, B: Any) -> Any:
        """Return B, or a copy with fewer digits, for a product with a sparse matrix inside conjugate gradients.

        The product has the type of B. A solver that uses it computes its residuals from B itself.
        """

    def compact(self, B: Any) -> Any:
        """Return B, or a copy that takes less memory, for arithmetic that needs few digits."""

    def settle(self, array: Any) -> Any:
        """Return the array, or a copy that can be computed again without all that made it, if arrays can be lost."""

    def to_numpy(self, array: Any) -> Any:
        """Return an array as a NumPy array."""

    def prepare(self, matrix: Any, dtype: Any) -> Sparse:
        """Copy a sparse matrix with a row for each row of the data to the device."""

    def prepare_graph(self, matrix: Any, dtype: Any) -> Sparse:
        """Copy a sparse matrix with a row and a column for each row of the data to the device."""

    def eigh(self, A: Any) -> tuple[Any, Any]:
        """Return the eigenvalues, ascending, and eigenvectors of a symmetric float64 matrix; may overwrite it."""

    def transpose(self, A: Sparse) -> Sparse:
        """Return Aᵀ, prepared; the backend computes it once for each A."""

    def column_sums(self, A: Sparse, values: Any) -> Any:
        """Return Σ_i values_ij for each column, float64, d×1; the values are those of the stored cells of A."""

    def column_squares(self, A: Sparse) -> Any:
        """Return Σ_i A_ij² for each column, float64, d×1."""

    def spmm(self, A: Sparse, B: Any) -> Any:
        """Return A B."""

    def spmm_t(self, A: Sparse, B: Any) -> Any:
        """Return Aᵀ B."""

    def matmul(self, A: Any, B: Any) -> Any:
        """Return A B of dense matrices."""

    def matmul_t(self, A: Any, B: Any) -> Any:
        """Return Aᵀ B of dense matrices."""

    def gram(self, B: Any) -> Any:
        """Return the dense BᵀB of a dense or a prepared sparse matrix; float64 for a sparse one."""

    def sddmm(self, A: Sparse, B: Any, H: Any) -> Any:
        """Return (B Hᵀ)_ij at the stored cells of A, in their order."""

    def cells_value(self, loss: CellLoss, A: Sparse, B: Any, H: Any) -> float:
        """Return Σ over stored (i, j) of ℓ(A_ij, b_i·h_j)."""

    def cells_model(self, loss: CellLoss, A: Sparse, B: Any, H: Any) -> CellModel:
        """Return the same sum with its gradient D H, D_ij = ℓ'(A_ij, b_i·h_j), and the curvature of each cell."""

    def cells_hessp(self, A: Sparse, curvature: Any, S: Any, H: Any) -> Any:
        """Return U H with U_ij = ℓ''_ij (s_i·h_j) at the stored cells of A."""

    def cells_diagonal(self, A: Sparse, curvature: Any, H: Any) -> Any:
        """Return Σ_j ℓ''_ij h_j∘h_j over the stored cells of each row, n×k."""

    def cells_sum(self, loss: CellLoss, A: Sparse, scores: Any, changes: Any, step: float) -> float:
        """Return Σ over stored (i, j) of ℓ(A_ij, scores + step · changes); both are arrays over the stored cells."""

    def all_value(self, loss: CellLoss, A: Sparse, targets: Targets, weights: Weights, B: Any, H: Any) -> float:
        """Return Σ over all (i, j) of p_i q_j ℓ.

        The target is ``targets[1]`` at A's stored cells, else ``targets[0]``. ``weights`` are the n numbers p and
        the L numbers q, float64.
        """

    def all_model(self, loss: CellLoss, A: Sparse, targets: Targets, weights: Weights, B: Any, H: Any) -> CellModel:
        """Return the same sum with its gradient D H, without the n×L curvatures."""

    def all_hessp(self, loss: CellLoss, A: Sparse, targets: Targets, weights: Weights, B: Any, S: Any, H: Any) -> Any:
        """Return U H with U_ij = p_i q_j ℓ''_ij (s_i·h_j) over all cells; computes the curvature at B again."""

    def topk(self, B: Any, H: Any, k: int, exclude: Sparse | None = None) -> tuple[Any, Any]:
        """Return the k best labels of each row of B Hᵀ and their scores, best first, in row blocks.

        The stored cells of ``exclude`` have the score −∞.
        """

    def best_in_rows(self, scores: Any, k: int) -> tuple[Any, Any]:
        """Return the columns of the k largest dense scores of each row, and the scores, best first."""

    def product_topk(self, A: Sparse, B: Sparse, k: int) -> tuple[Any, Any]:
        """Return the columns of the k largest entries of each row of A Bᵀ, n×k, and the entries, best first; k ≤ m.

        A is n×d, B is m×d, both sparse and of one precision, which is that of the sums. The order of a sum depends
        on the row of A alone. An absent entry is 0 and ranks above a negative one. Never allocates n×m numbers.
        """


def _cpu() -> Backend:
    backend: Any = importlib.import_module("labelgap.kernels.cpu")
    return backend


@cache
def _make_gpu_backend() -> Backend:
    return importlib.import_module("labelgap.kernels.gpu").TorchBackend("cuda")


def _cuda() -> Backend:
    if not _has_gpu():
        raise ValueError(
            "device='cuda' needs an NVIDIA GPU and a PyTorch with CUDA (pip install labelgap[gpu]), and "
            f"{_describe_gpu()}; pass device='cpu', or 'auto' to use a GPU only where there is one."
        )
    return _make_gpu_backend()


def _dask() -> Backend:
    if "distributed" in sys.modules and _is_in_task():
        return _cpu()  # the worker has all rows of its task, and waiting for others could block them
    return importlib.import_module("labelgap.kernels.dask_backend").DaskBackend()


def _is_in_task() -> bool:
    """Return whether this thread runs a task of a Dask worker."""
    try:
        sys.modules["distributed"].get_worker()
    except ValueError:
        return False
    return True


def _auto() -> Backend:
    runner = get_runner()
    if runner is not None:
        return BACKENDS[runner.device]()
    return _make_gpu_backend() if _has_gpu() else _cpu()


@cache
def _has_gpu() -> bool:
    """Return whether PyTorch finds a GPU; without a driver PyTorch is not imported, because that takes seconds."""
    driver = "torch" in sys.modules or os.path.exists("/dev/nvidiactl") or sys.platform == "win32"
    return driver and importlib.util.find_spec("torch") is not None and _import_torch().cuda.is_available()


def _describe_gpu() -> str:
    if importlib.util.find_spec("torch") is None:
        return "PyTorch is not installed"
    return "PyTorch finds no GPU"


def _import_torch() -> Any:
    return importlib.import_module("torch")


# Device name to a function that returns its backend. The function is called each time and imports its packages.
BACKENDS: dict[str, Callable[[], Backend]] = {"auto": _auto, "cpu": _cpu, "cuda": _cuda, "dask": _dask}


@contextmanager
def explain_out_of_memory(lower: Sequence[str] = (), others: Sequence[str] = ()) -> Iterator[None]:
    """Turn an error of a full GPU into a MemoryError that names what to lower and to pass, and free the memory.

    >>> class OutOfMemoryError(RuntimeError):
    ...     pass
    >>> with explain_out_of_memory(["n_components"], ["fewer rows"]):
    ...     raise OutOfMemoryError("full")
    Traceback (most recent call last):
        ...
    MemoryError: The GPU has too little memory (full); lower n_components, or pass fewer rows or device='cpu'.
    """
    try:
        yield
    except RuntimeError as error:
        if type(error).__name__ != "OutOfMemoryError":
            raise
        traceback.clear_frames(error.__traceback__)  # their variables hold the arrays
        if "torch" in sys.modules:
            _import_torch().cuda.empty_cache()
        reason, advice = str(error).split(". GPU")[0], "".join(f"lower {name}, or " for name in lower)
        alternatives = " or ".join([*others, "device='cpu'"])
        raise MemoryError(f"The GPU has too little memory ({reason}); {advice}pass {alternatives}.") from None


def get_backend(device: str = "cpu") -> Backend:
    """Return the backend of a device; by default that of NumPy arrays.

    >>> get_backend("cpu").__name__
    'labelgap.kernels.cpu'
    """
    if device not in BACKENDS:
        names = " or ".join(repr(name) for name in BACKENDS)
        raise ValueError(f"device={device!r} is not available; use {names}.")
    return BACKENDS[device]()


def get_label_backend(backend: Backend) -> Backend:
    """Return the backend for arrays over labels: the inner one of a sharded backend, else the same."""
    return getattr(backend, "inner", backend)


def namespace(array: Any) -> Any:
    """Return the array API namespace of an array.

    >>> import numpy as np
    >>> float(namespace(np.ones(3)).sum(np.ones(3)))
    3.0
    """
    return array_api_compat.array_namespace(array)


def matmul(A: Any, B: Any) -> Any:
    """Return A B of dense matrices of any library; NumPy arrays use the threads of the CPU backend."""
    return get_backend("cpu").matmul(A, B) if isinstance(A, np.ndarray) else A @ B


def matmul_t(A: Any, B: Any) -> Any:
    """Return Aᵀ B of dense matrices of any library."""
    return get_backend("cpu").matmul_t(A, B) if isinstance(A, np.ndarray) else A.T @ B


GRAM_BLOCK_ROWS = 1 << 16  # of a tensor that are converted at a time


def exact_gram(A: Any, weights: Any = 1.0) -> Any:
    """Return Aᵀ diag(weights) A in float64; weights are a number or a column. Large arrays are converted in blocks.

    >>> exact_gram(np.ones((2, 1), np.float32), 3.0)
    array([[6.]])
    """
    if isinstance(A, np.ndarray):
        return get_backend("cpu").exact_gram(A, weights)  # type: ignore[attr-defined]
    xp, rows = namespace(A), A.shape[0]
    if hasattr(A, "blocks"):  # shards, one by one
        flat = A.map(lambda *block: namespace(block[0]).reshape(exact_gram(*block), (1, -1)), weights)
        return xp.reshape(xp.sum(flat, axis=0), (A.shape[1], A.shape[1]))
    if array_api_compat.is_torch_array(A) and rows > GRAM_BLOCK_ROWS:
        blocks = [slice(start, start + GRAM_BLOCK_ROWS) for start in range(0, rows, GRAM_BLOCK_ROWS)]
        return sum(exact_gram(A[block], weights[block] if np.ndim(weights) else weights) for block in blocks)
    exact = xp.astype(A, xp.float64)
    return matmul_t(exact, weights * exact) if np.ndim(weights) else weights * matmul_t(exact, exact)


def inner(A: Any, B: Any) -> Any:
    """Return ⟨A, B⟩, summed in float64 so that long float32 arrays keep their digits.

    The result stays on the device of the arrays; ``float`` copies it to the host.

    >>> float(inner(np.ones((2, 3)), np.full((2, 3), 2.0)))
    12.0
    """
    if isinstance(A, np.ndarray) and isinstance(B, np.ndarray):
        return get_backend("cpu").dot(A, B)  # type: ignore[attr-defined]
    xp = namespace(A)
    if hasattr(A, "blocks"):  # shards, one by one
        return xp.sum(A.map(lambda *blocks: namespace(blocks[0]).reshape(inner(*blocks), (1, 1)), B))
    return xp.sum(A * B, dtype=xp.float64)


def column_grams(*arrays: Any) -> Any:
    """Return ⟨a_c, b_c⟩ of each column c for all pairs of arrays: rows of float64 arrays of shape (1, k).

    >>> column_grams(np.ones((2, 1)), np.full((2, 1), 3.0))[0][1]
    array([[6.]])
    """
    if isinstance(arrays[0], np.ndarray):
        return get_backend("cpu").column_grams(arrays)  # type: ignore[attr-defined]
    xp = namespace(arrays[0])
    rows: list[list[Any]] = []
    for a, A in enumerate(arrays):  # each pair once
        own = [xp.sum(A * B, axis=0, keepdims=True, dtype=xp.float64) for B in arrays[a:]]
        rows.append([row[a] for row in rows] + own)
    return rows


def column_totals(A: Any) -> Any:
    """Return the sum of each column, float64, (1, k).

    >>> column_totals(np.ones((2, 1), np.float32))
    array([[2.]])
    """
    if isinstance(A, np.ndarray):
        return get_backend("cpu").column_totals(A)  # type: ignore[attr-defined]
    xp = namespace(A)
    return xp.sum(A, axis=0, keepdims=True, dtype=xp.float64)


def read(array: Any) -> np.ndarray:
    """Return a small array of any library as a NumPy array, for decisions on the host.

    >>> read(np.ones(2))
    array([1., 1.])
    """
    return np.asarray(array_api_compat.to_device(array, "cpu"))


class CellWeights(NamedTuple):
    """The weight of cell (i, j): ``rows`` (n), times ``positives`` (m) if its target is above ``negative``."""

    rows: Any
    negative: float
    positives: Any


def column_losses(loss: CellLoss, targets: Any, scores: Any, weights: CellWeights) -> np.ndarray:
    """Return Σ_i ℓ(targets_ij, scores_ij) with weights for each column, float64; a NaN is an unknown target."""
    if isinstance(scores, np.ndarray):
        return get_backend("cpu").column_losses(loss, targets, scores, weights)  # type: ignore[attr-defined]
    xp, (known, units) = namespace(scores), _weigh_cells(targets, weights)
    losses = loss.functions(xp)[0](known, xp.astype(scores, xp.float64))
    return read(xp.sum(units * losses, axis=0))


def column_slopes(loss: CellLoss, targets: Any, scores: Any, weights: CellWeights) -> tuple[Any, Any]:
    """Return ℓ' and ℓ'' of each cell times its weight, 0 for an unknown target."""
    if isinstance(scores, np.ndarray):
        return get_backend("cpu").column_slopes(loss, targets, scores, weights)  # type: ignore[attr-defined]
    xp, (known, units) = namespace(scores), _weigh_cells(targets, weights)
    functions, exact = loss.functions(xp)[1:], xp.astype(scores, xp.float64)
    slopes, curvature = (xp.astype(units * function(known, exact), scores.dtype) for function in functions)
    return slopes, curvature


def _weigh_cells(targets: Any, weights: CellWeights) -> tuple[Any, Any]:
    """Return targets, 0 where they are unknown, and the weights of cells, both float64."""
    xp = namespace(targets)
    known, exact = ~xp.isnan(targets), xp.astype(targets, xp.float64)
    exact = xp.where(known, exact, 0 * weights.rows[:, None])
    units = xp.where(exact > weights.negative, weights.positives[None, :], 1.0) * weights.rows[:, None]
    return exact, units * xp.astype(known, xp.float64)


def combine(A: Any, a: Any, B: Any, b: Any, weights: Any = 1.0) -> Any:
    """Return a∘A + b∘(weights∘B), which may overwrite A.

    a and b are numbers or of shape (1, k), the weights a number or of shape (rows, 1).

    >>> combine(np.ones((2, 1)), 2.0, np.ones((2, 1)), 3.0, np.array([[1.0], [0.0]])).ravel()
    array([5., 2.])
    """
    if hasattr(A, "blocks"):  # shards, one by one
        return A.map(combine, a, B, b, weights)
    a, b, weights = (namespace(v).astype(v, A.dtype) if np.ndim(v) else v for v in (a, b, weights))
    if np.ndim(weights) == 0:
        b = b * weights
    if isinstance(A, np.ndarray):
        return get_backend("cpu").combine(A, a, B, b, weights)  # type: ignore[attr-defined]
    change = B * b
    if np.ndim(weights):
        change *= weights
    if np.ndim(a) or a != 1:
        A *= a
    A += change
    return A


def mix(A: Any, T: Any) -> Any:
    """Return A T for a square T, in the type of A, which it may overwrite.

    >>> mix(np.ones((1, 2), np.float32), np.diag([2.0, 3.0]))
    array([[2., 3.]], dtype=float32)
    """
    T = namespace(T).astype(T, A.dtype)
    return get_backend("cpu").mix(A, T) if isinstance(A, np.ndarray) else A @ T  # type: ignore[attr-defined]


def copy(A: Any) -> Any:
    """Return a copy of an array of any library; ``positive`` of some libraries returns the array itself."""
    return namespace(A).asarray(A, copy=True)


MIN_GRAM_NUMBERS = 1 << 16  # of a tensor that is decomposed by its Gram matrix: Householder's method is slow on GPUs
MIN_GRAM_CELLS = 1 << 20  # the same of a NumPy array, whose Gram matrix several threads compute
# Smaller pivots of Cholesky's method, relative, would cost Q its orthogonality; the second where QR is fast.
MIN_PIVOT, MIN_CPU_PIVOT = 1e-5, 1e-3


def qr(A: Any) -> tuple[Any, Any]:
    """Return Q and R with A = Q R of a tall matrix of any library, Q orthonormal; R need not be triangular.

    A large matrix is decomposed by its Gram matrix; then columns of Q may be 0 if those of a tensor are dependent.
    """
    is_numpy = isinstance(A, np.ndarray)
    if not (is_numpy and A.size >= MIN_GRAM_CELLS and A.shape[0] > A.shape[1]) and not _has_large_gram(A):
        # NumPy's own function would convert A to float64.
        return scipy.linalg.qr(A, mode="economic", check_finite=False) if is_numpy else namespace(A).linalg.qr(A)
    xp, gram = namespace(A), exact_gram(A)
    lower = factorize(gram)
    if lower is not None:
        return matmul(A, xp.astype(xp.linalg.inv(lower).T, A.dtype)), xp.astype(lower.T, A.dtype)
    if is_numpy:
        return scipy.linalg.qr(A, mode="economic", check_finite=False)
    values, V = _decompose_gram(gram, A.dtype)
    roots = xp.sqrt(values)
    return A @ (V * _reciprocal(roots, A.dtype)), xp.astype((V * roots).T, A.dtype)


def factorize(gram: Any) -> Any:
    """Return Cholesky's lower factor of a float64 matrix; None if it loses digits or the library has no method.

    >>> factorize(np.array([[4.0]])), factorize(np.zeros((1, 1)))
    (array([[2.]]), None)
    """
    xp = namespace(gram)
    if isinstance(gram, np.ndarray):
        (lower, failed), least = scipy.linalg.lapack.dpotrf(gram, lower=1), MIN_CPU_PIVOT
    elif array_api_compat.is_torch_array(gram):
        (lower, failed), least = _import_torch().linalg.cholesky_ex(gram), MIN_PIVOT
    else:
        return None
    scale = xp.linalg.diagonal(lower)
    return lower if not bool(failed) and bool(xp.min(scale) > least * xp.max(scale)) else None


def cholesky(A: Any) -> Any:
    """Return Cholesky's factor L of a positive definite matrix, which may be overwritten.

    That is SciPy's pair of an array and a flag, or a tensor; the functions below take either.
    """
    if isinstance(A, np.ndarray):
        return scipy.linalg.cho_factor(A, lower=True, overwrite_a=True, check_finite=False)
    return namespace(A).linalg.cholesky(A)


def substitute(factor: Any, R: Any) -> Any:
    """Return (L Lᵀ)⁻¹ R, computed in the precision of L, in the type of R.

    >>> substitute(cholesky(np.array([[4.0]])), np.array([[2.0]]))
    array([[0.5]])
    """
    if not isinstance(R, np.ndarray):
        return _import_torch().cholesky_solve(R.to(factor.dtype), factor).to(R.dtype)
    solved = scipy.linalg.cho_solve(factor, R.astype(factor[0].dtype), overwrite_b=True, check_finite=False)
    return np.ascontiguousarray(solved, R.dtype)


def substitute_once(factor: Any, R: Any) -> Any:
    """Return L⁻¹ R of a float64 R, which may be overwritten.

    >>> substitute_once(cholesky(np.array([[4.0]])), np.array([[2.0]]))
    array([[1.]])
    """
    if not isinstance(R, np.ndarray):
        return _import_torch().linalg.solve_triangular(factor, R, upper=False)
    return scipy.linalg.solve_triangular(factor[0], R, lower=factor[1], overwrite_b=True, check_finite=False)


def invert(factor: Any) -> Any:
    """Return the lower triangle of (L Lᵀ)⁻¹; the rest is arbitrary.

    >>> invert(cholesky(np.array([[4.0]])))
    array([[0.25]])
    """
    if not isinstance(factor, tuple):
        return _import_torch().cholesky_inverse(factor)
    return scipy.linalg.lapack.dpotri(factor[0], lower=factor[1])[0]


def add_to_diagonal(A: Any, value: float) -> None:
    """Add a number to the diagonal of an array or a tensor, in place."""
    diagonal = np.einsum("ii->i", A) if isinstance(A, np.ndarray) else A.diagonal()
    diagonal += value


def svd(A: Any) -> tuple[Any, Any, Any]:
    """Return the thin U, the singular values and Vᵀ of a matrix of any library, a large tensor as in :func:`qr`."""
    if isinstance(A, np.ndarray):
        return scipy.linalg.svd(A, full_matrices=False, check_finite=False)
    if not _has_large_gram(A):
        return namespace(A).linalg.svd(A, full_matrices=False)
    if A.shape[0] < A.shape[1]:
        V, S, Ut = svd(A.T)
        return Ut.T, S, V.T
    xp = namespace(A)
    values, V = _decompose_gram(exact_gram(A), A.dtype)
    values, V = xp.flip(values, axis=0), xp.flip(V, axis=1)
    roots = xp.sqrt(values)
    return A @ (V * _reciprocal(roots, A.dtype)), xp.astype(roots, A.dtype), xp.astype(V, A.dtype).T


def _has_large_gram(A: Any) -> bool:
    return array_api_compat.is_torch_array(A) and A.shape[0] * A.shape[1] >= MIN_GRAM_NUMBERS


def _decompose_gram(gram: Any, dtype: Any) -> tuple[Any, Any]:
    """Return the eigenvalues of AᵀA, float64, those at rounding level as 0, and the eigenvectors in A's type."""
    xp = namespace(gram)
    values, V = xp.linalg.eigh(gram)
    least = values[-1] * (gram.shape[0] * EPSILON)
    return xp.where(values > least, values, 0.0), xp.astype(V, dtype)


def _reciprocal(roots: Any, dtype: Any) -> Any:
    xp = namespace(roots)
    return xp.astype(xp.where(roots > 0, 1 / xp.where(roots > 0, roots, 1.0), 0.0), dtype)


def eigh(A: Any) -> tuple[Any, Any]:
    """Return the eigenvalues, ascending, and eigenvectors of a small symmetric matrix of any library."""
    if not isinstance(A, np.ndarray):
        return namespace(A).linalg.eigh(check_finite(A))
    return scipy.linalg.eigh(check_finite(A), check_finite=False)


def check_finite(A: Any) -> Any:
    """Return a matrix of sums of products; raise FloatingPointError if one of them overflowed.

    >>> check_finite(np.array([[np.inf]]))
    Traceback (most recent call last):
        ...
    FloatingPointError: sums of products overflow
    """
    xp = namespace(A)
    if not bool(xp.all(xp.isfinite(A))):
        raise FloatingPointError("sums of products overflow")
    return A
