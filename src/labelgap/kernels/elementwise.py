"""Lets compiled kernels take a :class:`~labelgap.kernels.base.Cell` as an argument and inline its functions.

Numba's own function arguments compile anew in every process. A cell is therefore a type of its own, named after the
bytecode of its functions: the same cell finds its compiled kernels in the cache on disk, and a changed one does not.
"""

from __future__ import annotations

import hashlib
from types import CellType as PythonCell
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import NativeValue, models, overload, register_model, typeof_impl, unbox

from labelgap.kernels.base import Cell


class CompiledCell:
    """A cell, ready to be passed to compiled code; one for each cell, however often it is passed."""

    type: CellType

    def __new__(cls, cell: Cell) -> CompiledCell:
        found = _COMPILED.get(cell)
        if found is None:
            found = _COMPILED[cell] = super().__new__(cls)
            found.type = CellType(cell)
        return found


_COMPILED: WeakKeyDictionary[Cell, CompiledCell] = WeakKeyDictionary()


# The cells of this process by the name of their type: the cache on disk must hold names only, since a loss may be
# defined in a script that another process cannot import.
_CELLS: dict[str, Cell] = {}


class CellType(types.Opaque):
    """The compiled type of one cell: equal for equal bytecode."""

    def __init__(self, cell: Cell) -> None:
        name = f"Cell({type(cell).__qualname__}, {_fingerprint(cell)})"
        _CELLS[name] = cell
        super().__init__(name)


def _fingerprint(cell: Cell) -> str:
    described = repr([_description(function) for function in cell.functions(np)])
    return hashlib.sha256(described.encode()).hexdigest()[:16]


def _description(function: Any) -> Any:
    """Return all that a function depends on; one that calls another depends on that one."""
    if not isinstance(function, FunctionType):
        return function
    code: Any = function.__code__
    closure = [_description(c.cell_contents) for c in function.__closure__ or ()]
    used = {name: function.__globals__[name] for name in code.co_names if name in function.__globals__}
    return code.co_code, code.co_consts, code.co_names, closure, used


def _compiled(function: Any) -> Any:
    """Compile a function and, first, the functions that it encloses."""
    if not isinstance(function, FunctionType):
        return function
    enclosed = tuple(PythonCell(_compiled(c.cell_contents)) for c in function.__closure__ or ())
    code, name = function.__code__, function.__name__
    return njit(FunctionType(code, function.__globals__, name, function.__defaults__, enclosed))


@typeof_impl.register(CompiledCell)
def _typeof(value: CompiledCell, context: Any) -> CellType:
    return value.type


register_model(CellType)(models.OpaqueModel)


@unbox(CellType)
def _unbox(cell_type: Any, value: Any, context: Any) -> NativeValue:
    return NativeValue(cgutils.get_null_value(context.context.get_value_type(cell_type)))


def cell_value(cell: CompiledCell, a: float, b: float) -> float:
    """ℓ(a, b), inside compiled code."""
    raise NotImplementedError("only compiled code calls this")


def cell_gradient(cell: CompiledCell, a: float, b: float) -> float:
    """∂ℓ/∂b, inside compiled code."""
    raise NotImplementedError("only compiled code calls this")


def cell_curvature(cell: CompiledCell, a: float, b: float) -> float:
    """∂²ℓ/∂b², inside compiled code."""
    raise NotImplementedError("only compiled code calls this")


def _register(placeholder: Any, position: int) -> None:
    @overload(placeholder, inline="always")
    def implement(cell, a, b):
        compiled = _compiled(_CELLS[cell.name].functions(np)[position])

        def implementation(cell, a, b):
            return compiled(a, b)

        return implementation


for _position, _placeholder in enumerate((cell_value, cell_gradient, cell_curvature)):
    _register(_placeholder, _position)
