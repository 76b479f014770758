"""Reading and writing by format, which the ending of the file name decides; and the .npz format."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.datasets.arff import read_arff, write_arff
from labelgap.datasets.file_io import PathLike, uncompressed_name, write_compressed
from labelgap.datasets.records import Matrix, Table, check_names, check_pair, to_canonical_csr
from labelgap.datasets.xmc import read_svmlight, read_xmc, write_svmlight, write_xmc
from labelgap.observations.arguments import Array

# svmlight comes first, because .svm.txt also ends with .txt.
_ENDINGS = {
    "svmlight": (".svm.txt", ".svm", ".svmlight", ".libsvm"),
    "arff": (".arff",),
    "npz": (".npz",),
    "xmc": (".xmc", ".txt"),
}


def guess_format(path: PathLike) -> str:
    """Return the format of a file by its ending, without that of its compression; a folder is one of shards.

    >>> guess_format("yeast_train.svm.txt.gz"), guess_format("eurlex_train.txt.xz")
    ('svmlight', 'xmc')
    """
    if Path(path).is_dir():
        return "shards"
    name = uncompressed_name(path)
    for format, endings in _ENDINGS.items():
        if name.endswith(endings):
            return format
    raise ValueError(
        f"{path}: the format of this ending is not known. Features with labels end in "
        f"{', '.join(sum(_ENDINGS.values(), ()))}, or pass format= as one of {list(FORMATS)}. Tables of texts end in "
        ".csv, .tsv, .jsonl or .parquet, and read_documents and the commands read them; save a spreadsheet as .csv."
    )


def read(path: PathLike, format: str | None = None, **options: Any) -> Table:
    """Read a file in any known format; ``options`` are passed to its reader.

    >>> import numpy as np, pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(pathlib.Path(folder) / "tiny.svm.gz", np.eye(2), np.eye(2))
    ...     X, Y, feature_names, label_names = read(pathlib.Path(folder) / "tiny.svm.gz")
    >>> X.shape
    (2, 2)
    """
    reader, _ = FORMATS[_choose_format(path, format)]
    return Table(*reader(path, **options))


def write(
    path: PathLike,
    X: Array,
    Y: Array,
    format: str | None = None,
    *,
    feature_names: Sequence[str] | None = None,
    label_names: Sequence[str] | None = None,
    **options: Any,
) -> None:
    """Write a file in any known format; ``options`` are passed to its writer, names only if the format has them."""
    format = _choose_format(path, format)
    if format in ("arff", "npz", "shards"):
        options = {"feature_names": feature_names, "label_names": label_names} | options
    _, writer = FORMATS[format]
    writer(path, X, Y, **options)


def _choose_format(path: PathLike, format: str | None) -> str:
    if format is not None and format not in FORMATS:
        raise ValueError(f"format={format!r} is not known; choose from {list(FORMATS)}.")
    return guess_format(path) if format is None else format


# --- .npz: NumPy arrays without pickles -----------------------------------------------------------------------------

_CSR_PARTS = ("data", "indices", "indptr", "shape")


def write_npz(
    path: PathLike,
    X: Array,
    Y: Array,
    feature_names: Sequence[str] | None = None,
    label_names: Sequence[str] | None = None,
) -> None:
    """Write features, labels and names to a .npz file; sparse matrices as the arrays of their CSR form.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "tiny.npz"
    ...     write_npz(path, np.eye(2), sp.csr_array(np.eye(2)), label_names=["a", "b"])
    ...     read_npz(path).label_names
    ['a', 'b']
    """
    check_pair(X, Y)
    check_names("feature_names", feature_names, X.shape[1])
    check_names("label_names", label_names, Y.shape[1])
    names = pack_names(feature_names=feature_names, label_names=label_names)
    save_arrays(path, pack_matrices(X=X, Y=Y) | names, compress=True)


def read_npz(path: PathLike) -> Table:
    """Read a file of :func:`write_npz`: ``(X, Y, feature_names, label_names)``."""
    arrays = load_arrays(path)
    try:
        X, Y = unpack_matrix(arrays, "X"), unpack_matrix(arrays, "Y")
        check_pair(X, Y)
    except (KeyError, ValueError) as error:
        raise ValueError(
            f"{path}: found the arrays {sorted(arrays)[:10]}, expected a file of write_npz ({error})."
        ) from error
    return Table(X, Y, unpack_names(arrays, "feature_names"), unpack_names(arrays, "label_names"))


def pack_matrices(**matrices: Any) -> dict[str, NDArray[Any]]:
    """Return the arrays that store matrices under their names, without those that are None."""
    arrays: dict[str, NDArray[Any]] = {}
    for name, matrix in matrices.items():
        if sp.issparse(matrix):
            csr = to_canonical_csr(matrix)
            parts = (csr.data, csr.indices, csr.indptr, np.array(csr.shape, np.int64))
            arrays |= {f"{name}_{part}": array for part, array in zip(_CSR_PARTS, parts)}
        elif matrix is not None:
            arrays[name] = np.asarray(matrix)
    return arrays


def unpack_matrix(arrays: dict[str, NDArray[Any]], name: str) -> Matrix:
    """Return a matrix of :func:`pack_matrices`; raise ValueError if the parts are not a CSR matrix."""
    if name in arrays:
        return arrays[name]
    data, indices, indptr, shape = (arrays[f"{name}_{part}"] for part in _CSR_PARTS)
    matrix = sp.csr_array((data, indices, indptr), shape=tuple(int(size) for size in shape))
    # With an index out of range, later products would read memory outside the arrays.
    matrix.check_format(full_check=True)
    matrix.sum_duplicates()
    return matrix


def pack_names(**names: Sequence[str] | None) -> dict[str, NDArray[Any]]:
    """Return the arrays that store lists of names, without those that are None."""
    return {key: np.array(list(values), np.str_) for key, values in names.items() if values is not None}


def unpack_names(arrays: dict[str, NDArray[Any]], key: str) -> list[str] | None:
    """Return a list of names of :func:`pack_names`, or None."""
    return [str(name) for name in arrays[key]] if key in arrays else None


def save_arrays(path: PathLike, arrays: dict[str, NDArray[Any]], *, compress: bool) -> None:
    """Write named arrays to a .npz file; a failure leaves no partial file."""
    objects = [name for name, array in arrays.items() if array.dtype.hasobject]
    if objects:
        raise ValueError(f"{objects[0]} contains Python objects; only numbers and text can be stored.")
    with write_compressed(path) as stream:
        (np.savez_compressed if compress else np.savez)(stream, **arrays)  # type: ignore[arg-type]


def load_arrays(path: PathLike) -> dict[str, NDArray[Any]]:
    """Return all arrays of a .npz file; pickled objects are rejected."""
    try:
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as archive:
            return dict(archive)
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not a readable .npz file ({error}); it may be cut off or damaged.") from error


def _read_shards(path: PathLike) -> Table:
    from labelgap.datasets.shard_folders import read_shards  # it reads files of all formats

    return read_shards(path)


def _write_shards(
    path: PathLike,
    X: Any,
    Y: Any,
    feature_names: Sequence[str] | None = None,
    label_names: Sequence[str] | None = None,
    n_shards: int = 16,
) -> None:
    from labelgap.datasets.shard_folders import split_table, write_shards

    names = (None if values is None else list(values) for values in (feature_names, label_names))
    write_shards(path, split_table(Table(X, Y, *names), n_shards))


FORMATS: dict[str, tuple[Callable[..., Any], Callable[..., None]]] = {
    "xmc": (read_xmc, write_xmc),
    "svmlight": (read_svmlight, write_svmlight),
    "arff": (read_arff, write_arff),
    "npz": (read_npz, write_npz),
    "shards": (_read_shards, _write_shards),
}
