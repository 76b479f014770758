"""A backend for the arrays of any library: the library does dense work, the CPU backend does sparse work on the host.

It is correct for every library and optimised for none. A backend for a device derives from it and replaces the
functions that must be fast there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from array_api_compat import is_array_api_obj

from labelgap.kernels import cpu
from labelgap.kernels.base import CellModel, check_finite


def _on_host(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that calls a function of the CPU backend with arrays of the device, and copies its result."""

    def method(self: ArrayBackend, *arguments: Any) -> Any:
        return self._to_device(function(*(self._to_host(argument) for argument in arguments)))

    method.__doc__ = function.__doc__
    return method


class ArrayBackend:
    """The functions of :class:`~labelgap.kernels.base.Backend` for the arrays of a namespace.

    Parameters
    ----------
    xp : array API namespace
        For example ``array_api_strict``.
    device : optional
        The device of the arrays; None is the namespace's default device.
    host : optional
        A device of the namespace from which NumPy can read, if it cannot read from ``device`` itself.

    Examples
    --------
    >>> import array_api_compat.numpy as xp
    >>> import scipy.sparse as sp
    >>> backend = ArrayBackend(xp)
    >>> backend.spmm(backend.prepare(sp.csr_array([[0.0, 2.0]]), "float64"), xp.ones((2, 1)))
    array([[2.]])
    """

    predicts, loses_arrays = False, False

    def __init__(self, xp: Any, device: Any = None, host: Any = None) -> None:
        self.xp, self.device, self.host = xp, device, host

    def array(self, values: Any, dtype: Any) -> Any:
        if not isinstance(values, np.ndarray | np.generic) and is_array_api_obj(values):
            return self.xp.asarray(values, dtype=self._dtype(dtype), device=self.device)
        return self.xp.asarray(np.ascontiguousarray(values, dtype=np.dtype(_dtype_name(dtype))), device=self.device)

    def rows(self, values: Any, dtype: Any) -> Any:
        return self.array(values, dtype)

    def zeros(self, A: Any, k: int, dtype: Any) -> Any:
        return self.xp.zeros((A.shape[0], k), dtype=self._dtype(dtype), device=self.device)

    def normal(self, random_state: np.random.RandomState, shape: tuple[int, int], dtype: Any) -> Any:
        return self.array(random_state.standard_normal(shape), dtype)

    def coarse(self, B: Any) -> Any:
        return B

    compact = settle = coarse

    def to_numpy(self, array: Any) -> Any:
        if isinstance(array, np.ndarray | np.generic) or not is_array_api_obj(array):
            return array
        return np.asarray(array if self.host is None else self.xp.asarray(array, device=self.host))

    def prepare(self, matrix: Any, dtype: Any) -> cpu.CSR:
        return cpu.prepare(matrix, _dtype_name(dtype))

    def prepare_graph(self, matrix: Any, dtype: Any) -> cpu.CSR:
        return self.prepare(matrix, dtype)

    def transpose(self, A: Any) -> cpu.CSR:
        return A.T

    def eigh(self, A: Any) -> tuple[Any, Any]:
        return self.xp.linalg.eigh(check_finite(A))

    def matmul(self, A: Any, B: Any) -> Any:
        # NumPy promotes the types itself; other libraries refuse to mix them.
        dtype = self.xp.result_type(A, B)
        return self.xp.astype(A, dtype, copy=False) @ self.xp.astype(B, dtype, copy=False)

    def matmul_t(self, A: Any, B: Any) -> Any:
        return self.matmul(A.T, B)

    def gram(self, B: Any) -> Any:
        return self._to_device(cpu.gram(B)) if isinstance(B, cpu.CSR) else B.T @ B

    column_sums = _on_host(cpu.column_sums)
    column_squares = _on_host(cpu.column_squares)
    spmm = _on_host(cpu.spmm)
    spmm_t = _on_host(cpu.spmm_t)
    sddmm = _on_host(cpu.sddmm)
    cells_value = _on_host(cpu.cells_value)
    cells_model = _on_host(cpu.cells_model)
    cells_hessp = _on_host(cpu.cells_hessp)
    cells_diagonal = _on_host(cpu.cells_diagonal)
    cells_sum = _on_host(cpu.cells_sum)
    all_value = _on_host(cpu.all_value)
    all_model = _on_host(cpu.all_model)
    all_hessp = _on_host(cpu.all_hessp)
    topk = _on_host(cpu.topk)
    best_in_rows = _on_host(cpu.best_in_rows)
    product_topk = _on_host(cpu.product_topk)

    def _dtype(self, dtype: Any) -> Any:
        return getattr(self.xp, _dtype_name(dtype))

    def _to_host(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(self._to_host(part) for part in value)
        array = self.to_numpy(value)
        return np.ascontiguousarray(array) if isinstance(array, np.ndarray) else array

    def _to_device(self, value: Any) -> Any:
        if isinstance(value, CellModel):
            return CellModel(*map(self._to_device, value))
        if isinstance(value, tuple):
            return tuple(map(self._to_device, value))
        return self.xp.asarray(value, device=self.device) if isinstance(value, np.ndarray) else value


def _dtype_name(dtype: Any) -> str:
    """Return the name of a type of NumPy or of another library.

    >>> _dtype_name(float), _dtype_name("float32")
    ('float64', 'float32')
    """
    try:
        return np.dtype(dtype).name
    except TypeError:
        return str(dtype).rsplit(".", 1)[-1]
