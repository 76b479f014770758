"""A backend for the arrays of any library: dense work is the library's own, sparse work is done on the host.

It is right everywhere and fast nowhere. A backend for a device derives from it and replaces what must be fast there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from array_api_compat import is_array_api_obj

from labelgap.kernels import reference
from labelgap.kernels.base import Cell, CellModel, Targets, Weights


class ArrayBackend:
    """The functions of :class:`~labelgap.kernels.base.Backend` for the arrays of a namespace.

    Parameters
    ----------
    xp : array API namespace
        Such as ``array_api_strict``.
    device : optional
        Where the namespace puts its arrays; its default device where it is None.
    host : optional
        A device of the namespace from which NumPy can read, where it cannot read from ``device`` itself.

    Examples
    --------
    >>> import array_api_compat.numpy as xp
    >>> backend = ArrayBackend(xp)
    >>> backend.spmm(backend.prepare(sp.csr_array([[0.0, 2.0]]), "float64"), xp.ones((2, 1)))
    array([[2.]])
    """

    def __init__(self, xp: Any, device: Any = None, host: Any = None) -> None:
        self.xp, self.device, self.host = xp, device, host

    def array(self, values: Any, dtype: Any) -> Any:
        kind = self._type(dtype)
        if not _of_numpy(values) and is_array_api_obj(values):
            return self.xp.asarray(values, dtype=kind, device=self.device)
        return self.xp.asarray(np.ascontiguousarray(values, dtype=np.dtype(_name(dtype))), device=self.device)

    def rows(self, values: Any, dtype: Any) -> Any:
        return self.array(values, dtype)

    def zeros(self, A: Any, k: int, dtype: Any) -> Any:
        return self.xp.zeros((A.shape[0], k), dtype=self._type(dtype), device=self.device)

    def to_numpy(self, array: Any) -> Any:
        if _of_numpy(array) or not is_array_api_obj(array):
            return array
        return np.asarray(array if self.host is None else self.xp.asarray(array, device=self.host))

    def prepare(self, matrix: Any, dtype: Any) -> sp.csr_array:
        return reference.prepare(matrix, dtype)

    def prepare_graph(self, matrix: Any, dtype: Any) -> sp.csr_array:
        return reference.prepare(matrix, dtype)

    def transpose(self, A: Any) -> sp.csr_array:
        return reference.transpose(A)

    def eigh(self, A: Any) -> tuple[Any, Any]:
        return self.xp.linalg.eigh(A)

    def matmul(self, A: Any, B: Any) -> Any:
        return A @ B

    def matmul_t(self, A: Any, B: Any) -> Any:
        return A.T @ B

    def gram(self, B: Any) -> Any:
        return self._on_host(reference.gram, B.astype(float)) if sp.issparse(B) else B.T @ B

    def column_sums(self, A: Any, values: Any) -> Any:
        return self._on_host(reference.column_sums, A, values)

    def column_squares(self, A: Any) -> Any:
        return self._on_host(reference.column_squares, A)

    def spmm(self, A: Any, B: Any) -> Any:
        return self._on_host(reference.spmm, A, B)

    def spmm_t(self, A: Any, B: Any) -> Any:
        return self._on_host(reference.spmm_t, A, B)

    def sddmm(self, A: Any, B: Any, H: Any) -> Any:
        return self._on_host(reference.sddmm, A, B, H)

    def cells_value(self, cell: Cell, A: Any, B: Any, H: Any) -> float:
        return self._on_host(reference.cells_value, cell, A, B, H)

    def cells_model(self, cell: Cell, A: Any, B: Any, H: Any) -> CellModel:
        return CellModel(*self._on_host(reference.cells_model, cell, A, B, H))

    def cells_hessp(self, A: Any, curvature: Any, S: Any, H: Any) -> Any:
        return self._on_host(reference.cells_hessp, A, curvature, S, H)

    def cells_sum(self, cell: Cell, A: Any, scores: Any, changes: Any, step: float) -> float:
        return self._on_host(reference.cells_sum, cell, A, scores, changes, step)

    def all_value(self, cell: Cell, A: Any, targets: Targets, weights: Weights, B: Any, H: Any) -> float:
        return self._on_host(reference.all_value, cell, A, targets, weights, B, H)

    def all_model(self, cell: Cell, A: Any, targets: Targets, weights: Weights, B: Any, H: Any) -> CellModel:
        return CellModel(*self._on_host(reference.all_model, cell, A, targets, weights, B, H))

    def all_hessp(self, cell: Cell, A: Any, targets: Targets, weights: Weights, B: Any, S: Any, H: Any) -> Any:
        return self._on_host(reference.all_hessp, cell, A, targets, weights, B, S, H)

    def topk(self, B: Any, H: Any, k: int, exclude: Any = None) -> tuple[Any, Any]:
        return self._on_host(reference.topk, B, H, k, exclude)

    def best_in_rows(self, scores: Any, k: int) -> tuple[Any, Any]:
        return self._on_host(reference.best_in_rows, scores, k)

    def product_topk(self, A: Any, B: Any, k: int) -> tuple[Any, Any]:
        return self._on_host(reference.product_topk, A, B, k)

    def _type(self, dtype: Any) -> Any:
        return getattr(self.xp, _name(dtype))

    def _on_host(self, function: Any, *arguments: Any) -> Any:
        """Call a function of NumPy arrays with arrays of the device, and bring what it returns there."""
        result = function(*(self._to_host(argument) for argument in arguments))
        return self._from_host(result)

    def _to_host(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(self._to_host(part) for part in value)
        return self.to_numpy(value)

    def _from_host(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(self._from_host(part) for part in value)
        return self.xp.asarray(value, device=self.device) if isinstance(value, np.ndarray) else value


def _of_numpy(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic)


def _name(dtype: Any) -> str:
    """Return the name of a type of NumPy or of another library.

    >>> _name(float), _name("float32")
    ('float64', 'float32')
    """
    try:
        return np.dtype(dtype).name
    except TypeError:
        return str(dtype).rsplit(".", 1)[-1]
