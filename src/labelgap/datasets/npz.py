"""Features and labels in one .npz file: numpy arrays only, nothing pickled."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.datasets.files import PathLike, replacing
from labelgap.datasets.records import Matrix, Table, canonical, check_pair

_PARTS = ("data", "indices", "indptr", "shape")
_NAMES = ("feature_names", "label_names")


def write_npz(
    path: PathLike,
    X: Any,
    Y: Any,
    feature_names: Sequence[str] | None = None,
    label_names: Sequence[str] | None = None,
) -> None:
    """Write features, labels and names to a .npz file; sparse matrices as their CSR parts.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "tiny.npz"
    ...     write_npz(path, np.eye(2), sp.csr_array(np.eye(2)), label_names=["a", "b"])
    ...     read_npz(path).label_names
    ['a', 'b']
    """
    check_pair(X, Y)
    arrays = {**pack("X", X), **pack("Y", Y)}
    for key, names, size in zip(_NAMES, (feature_names, label_names), (X.shape[1], Y.shape[1])):
        if names is not None and len(names) != size:
            raise ValueError(f"{key} has {len(names)} names, but there are {size} columns.")
        arrays |= pack_names(key, names)
    save_arrays(path, arrays, compress=True)


def read_npz(path: PathLike) -> Table:
    """Read what :func:`write_npz` wrote: ``(X, Y, feature_names, label_names)``."""
    arrays = load_arrays(path)
    try:
        X, Y = unpack(arrays, "X"), unpack(arrays, "Y")
        check_pair(X, Y)
    except (KeyError, ValueError) as error:
        raise ValueError(
            f"{path}: found the arrays {sorted(arrays)[:10]}, expected a file of write_npz ({error})."
        ) from error
    return Table(X, Y, unpack_names(arrays, "feature_names"), unpack_names(arrays, "label_names"))


def pack(name: str, matrix: Any) -> dict[str, NDArray[Any]]:
    """Return the arrays that store a matrix under a name."""
    if not sp.issparse(matrix):
        return {name: np.asarray(matrix)}
    csr = canonical(matrix)
    parts = (csr.data, csr.indices, csr.indptr, np.array(csr.shape, np.int64))
    return {f"{name}_{part}": array for part, array in zip(_PARTS, parts)}


def unpack(arrays: dict[str, NDArray[Any]], name: str) -> Matrix:
    """Return the matrix that :func:`pack` stored; refuse parts that are no CSR matrix."""
    if name in arrays:
        return arrays[name]
    data, indices, indptr, shape = (arrays[f"{name}_{part}"] for part in _PARTS)
    matrix = sp.csr_array((data, indices, indptr), shape=tuple(int(size) for size in shape))
    # An index outside the matrix would make later products read foreign memory.
    matrix.check_format(full_check=True)
    matrix.sum_duplicates()
    return matrix


def pack_names(key: str, names: Sequence[str] | None) -> dict[str, NDArray[Any]]:
    """Return the array that stores names, or nothing when there are none."""
    return {} if names is None else {key: np.array(list(names), np.str_)}


def unpack_names(arrays: dict[str, NDArray[Any]], key: str) -> list[str] | None:
    """Return stored names, or ``None``."""
    return [str(name) for name in arrays[key]] if key in arrays else None


def save_arrays(path: PathLike, arrays: dict[str, NDArray[Any]], *, compress: bool) -> None:
    """Write named arrays to a .npz file, all or nothing."""
    objects = [name for name, array in arrays.items() if array.dtype.hasobject]
    if objects:
        raise ValueError(f"{objects[0]} holds Python objects; only numbers and text can be stored.")
    with replacing(path) as stream:
        (np.savez_compressed if compress else np.savez)(stream, **arrays)  # type: ignore[arg-type]


def load_arrays(path: PathLike) -> dict[str, NDArray[Any]]:
    """Read all arrays of a .npz file without unpickling anything."""
    try:
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as archive:
            return dict(archive)
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: found no readable .npz file ({error}); it may be cut off or damaged.") from error
