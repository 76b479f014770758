"""Values as JSON with arrays put aside, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

_SPARSE_PARTS = ("data", "indices", "indptr")


def describe(name: str, value: Any, arrays: dict[str, NDArray]) -> Any:
    """Put arrays aside under their name and leave a note of their kind; plain values stay as they are.

    >>> aside = {}
    >>> describe("both", {"a": np.zeros(2), "b": 3}, aside)
    {'kind': 'dict', 'items': {'a': {'kind': 'array'}, 'b': {'kind': 'json', 'value': 3}}}
    >>> list(aside)
    ['both.a']
    """
    if sp.issparse(value):
        csr = sp.csr_array(value)
        arrays.update({f"{name}.{part}": getattr(csr, part) for part in _SPARSE_PARTS})
        return {"kind": "csr", "shape": list(csr.shape)}
    if isinstance(value, np.ndarray) and value.dtype == object:
        return {"kind": "strings", "values": [str(item) for item in value]}
    if isinstance(value, np.ndarray):
        arrays[name] = value
        return {"kind": "array"}
    if isinstance(value, list) and _holds_arrays(value):
        return {"kind": "list", "items": [describe(f"{name}.{i}", item, arrays) for i, item in enumerate(value)]}
    if isinstance(value, dict) and _holds_arrays(value):
        items = {key: describe(f"{name}.{key}", item, arrays) for key, item in value.items()}
        return {"kind": "dict", "items": items}
    if isinstance(value, np.generic):
        value = value.item()
    return {"kind": "json", "value": value}


def _holds_arrays(value: Any) -> bool:
    """Tell whether JSON alone cannot hold a value, since there is an array somewhere in it."""
    if isinstance(value, list | dict):
        return any(map(_holds_arrays, value.values() if isinstance(value, dict) else value))
    return isinstance(value, np.ndarray | np.generic) or sp.issparse(value)


def restore(name: str, note: dict[str, Any], array_of: Callable[[str], NDArray]) -> Any:
    """Return the value that a note stands for; ``array_of`` gives an array by its name."""
    kind = note["kind"]
    if kind == "csr":
        parts = tuple(array_of(f"{name}.{part}") for part in _SPARSE_PARTS)
        csr = sp.csr_array(parts, shape=tuple(note["shape"]))
        csr.check_format(full_check=True)  # compiled kernels trust the indices
        return csr
    if kind == "strings":
        return np.array(note["values"], dtype=object)
    if kind == "list":
        return [restore(f"{name}.{i}", item, array_of) for i, item in enumerate(note["items"])]
    if kind == "dict":
        return {key: restore(f"{name}.{key}", item, array_of) for key, item in note["items"].items()}
    return array_of(name) if kind == "array" else note["value"]
