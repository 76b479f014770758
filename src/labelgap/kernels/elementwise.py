"""Losses as arguments of compiled kernels, which inline their functions.

Numba compiles kernels with function arguments again in every process. A loss therefore has its own Numba type, named
after the bytecode of its functions: kernels of the same loss come from the cache on disk, and those of a changed loss
are compiled.
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

from labelgap.kernels.base import CellLoss


class CompiledLoss:
    """A loss as an argument of compiled code; there is one instance for each loss."""

    type: LossType

    def __new__(cls, loss: CellLoss) -> CompiledLoss:
        compiled = _COMPILED.get(loss)
        if compiled is None:
            compiled = _COMPILED[loss] = super().__new__(cls)
            compiled.type = LossType(loss)
        return compiled


_COMPILED: WeakKeyDictionary[CellLoss, CompiledLoss] = WeakKeyDictionary()


# The losses of this process by the name of their type: the cache on disk must hold names only, since a loss may be
# defined in a script that another process cannot import.
_LOSSES: dict[str, CellLoss] = {}


class LossType(types.Opaque):
    """The Numba type of a loss: equal for equal bytecode."""

    def __init__(self, loss: CellLoss) -> None:
        description = repr([_describe_function(function) for function in loss.functions(np)])
        fingerprint = hashlib.sha256(description.encode()).hexdigest()[:16]
        name = f"Loss({type(loss).__qualname__}, {fingerprint})"
        _LOSSES[name] = loss
        super().__init__(name)


def _describe_function(function: Any) -> Any:
    """Return everything that a function depends on, including the functions that it calls."""
    if not isinstance(function, FunctionType):
        return function
    code: Any = function.__code__
    closure = [_describe_function(c.cell_contents) for c in function.__closure__ or ()]
    used = {name: function.__globals__[name] for name in code.co_names if name in function.__globals__}
    return code.co_code, code.co_consts, code.co_names, closure, used


def _compile_function(function: Any) -> Any:
    """Compile a function after the functions in its closure."""
    if not isinstance(function, FunctionType):
        return function
    enclosed = tuple(PythonCell(_compile_function(c.cell_contents)) for c in function.__closure__ or ())
    code, name = function.__code__, function.__name__
    return njit(FunctionType(code, function.__globals__, name, function.__defaults__, enclosed))


@typeof_impl.register(CompiledLoss)
def _typeof(value: CompiledLoss, context: Any) -> LossType:
    return value.type


register_model(LossType)(models.OpaqueModel)


@unbox(LossType)
def _unbox(loss_type: Any, value: Any, context: Any) -> NativeValue:
    return NativeValue(cgutils.get_null_value(context.context.get_value_type(loss_type)))


def loss_value(loss: CompiledLoss, a: float, b: float) -> float:
    """Return ℓ(a, b), inside compiled code."""
    raise NotImplementedError("only compiled code calls this")


def loss_gradient(loss: CompiledLoss, a: float, b: float) -> float:
    """Return ∂ℓ/∂b, inside compiled code."""
    raise NotImplementedError("only compiled code calls this")


def loss_curvature(loss: CompiledLoss, a: float, b: float) -> float:
    """Return ∂²ℓ/∂b², inside compiled code."""
    raise NotImplementedError("only compiled code calls this")


def _register(placeholder: Any, position: int) -> None:
    @overload(placeholder, inline="always")
    def implement(loss, a, b):
        compiled = _compile_function(_LOSSES[loss.name].functions(np)[position])

        def implementation(loss, a, b):
            return compiled(a, b)

        return implementation


for _position, _placeholder in enumerate((loss_value, loss_gradient, loss_curvature)):
    _register(_placeholder, _position)
