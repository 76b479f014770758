"""Data frames of pandas and polars as arrays, and back; arrays of other libraries.

Neither package is imported before the user passes one of its frames.
"""

from __future__ import annotations

import importlib
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

FramePackage = Literal["", "pandas", "polars"]


class FrameValues(NamedTuple):
    """The values of a data frame, with NaN in unknown cells, and the type that its columns have without these."""

    values: NDArray
    dtype: str


def get_frame_package(value: Any) -> FramePackage:
    """Return the package of a data frame; "" for anything else.

    >>> get_frame_package([[1, 0]])
    ''
    """
    if not hasattr(value, "columns") or not hasattr(value, "to_numpy"):
        return ""
    package = type(value).__module__.partition(".")[0]
    return "polars" if package == "polars" else "pandas" if hasattr(value, "iloc") else ""


def read_array(values: Any) -> Any:
    """Return an array of another library of the array API as a NumPy array, and anything else unchanged.

    It is read through DLPack, since some libraries have no ``__array__``.

    >>> import array_api_strict
    >>> read_array(array_api_strict.ones(2))
    array([1., 1.])
    """
    if (
        isinstance(values, np.ndarray)
        or not hasattr(values, "__array_namespace__")
        or not hasattr(values, "__dlpack__")
    ):
        return values
    return np.from_dlpack(values)


def read_frame(frame: Any) -> FrameValues:
    """Return the values of a frame; ``<NA>`` and null are NaN.

    >>> import pandas as pd
    >>> read_frame(pd.DataFrame({"a": pd.array([1, None], dtype="Int64")}))
    FrameValues(values=array([[ 1.],
           [nan]]), dtype='int64')
    """
    if get_frame_package(frame) == "polars":
        values = frame.to_numpy()
        types = {str(dtype) for dtype in frame.dtypes}
        kind = "bool" if types == {"Boolean"} else "int64" if all("Int" in name for name in types) else ""
        return FrameValues(values, kind or _name_type(values))
    types = set(frame.dtypes)
    if all(isinstance(dtype, np.dtype) for dtype in types):
        values = np.asarray(frame)
        return FrameValues(values, _name_type(values))
    kinds = {getattr(dtype, "kind", "O") for dtype in types}
    if not kinds <= set("biuf"):
        return FrameValues(np.asarray(frame), "float64")  # read cell by cell, or refused
    return FrameValues(
        frame.to_numpy(dtype=float, na_value=np.nan),
        "bool" if kinds == {"b"} else "int64" if kinds <= set("biu") else "float64",
    )


def make_frame(package: FramePackage, values: NDArray, columns: Any = None, index: Any = None) -> Any:
    """Return an array as a data frame of the package, or unchanged if the package is "" or not installed.

    ``index`` is used by pandas only.
    """
    if not package:
        return values
    try:
        library = importlib.import_module(package)
    except ImportError:  # a model file may be used where it is missing
        return values
    if package == "polars":
        names = list(map(str, range(values.shape[1]) if columns is None else columns))
        return library.DataFrame(values, schema=names)
    return library.DataFrame(values, columns=columns, index=index)


def _name_type(values: NDArray) -> str:
    return "float64" if values.dtype.kind == "O" else values.dtype.name
