"""Reading and writing by format: one table, which the file's ending chooses from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from labelgap.datasets.arff import read_arff, write_arff
from labelgap.datasets.files import PathLike, uncompressed_name
from labelgap.datasets.npz import read_npz, write_npz
from labelgap.datasets.records import Table
from labelgap.datasets.text import read_svmlight, read_xmc, write_svmlight, write_xmc

READERS: dict[str, Callable[..., Any]] = {
    "xmc": read_xmc,
    "svmlight": read_svmlight,
    "arff": read_arff,
    "npz": read_npz,
}
WRITERS: dict[str, Callable[..., None]] = {
    "xmc": write_xmc,
    "svmlight": write_svmlight,
    "arff": write_arff,
    "npz": write_npz,
}
_WITH_NAMES = ("arff", "npz")
# The first ending that fits decides, so the longer ones come first.
_ENDINGS = {
    ".svm.txt": "svmlight",
    ".svm": "svmlight",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
    ".arff": "arff",
    ".npz": "npz",
    ".xmc": "xmc",
    ".txt": "xmc",
}


def guess_format(path: PathLike) -> str:
    """Return the format that a file's ending stands for, compression aside.

    >>> guess_format("yeast_train.svm.txt.gz"), guess_format("eurlex_train.txt.xz")
    ('svmlight', 'xmc')
    """
    name = uncompressed_name(path)
    for ending, format in _ENDINGS.items():
        if name.endswith(ending):
            return format
    raise ValueError(
        f"{path}: the ending says no format; use one of {', '.join(_ENDINGS)}, "
        f"or pass format= as one of {list(READERS)}."
    )


def read(path: PathLike, format: str | None = None, **options: Any) -> Table:
    """Read a file in any known format; ``options`` go to its reader.

    >>> import numpy as np, pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(pathlib.Path(folder) / "tiny.svm.gz", np.eye(2), np.eye(2))
    ...     X, Y, feature_names, label_names = read(pathlib.Path(folder) / "tiny.svm.gz")
    >>> X.shape
    (2, 2)
    """
    return Table(*_of(READERS, path, format)(path, **options))


def write(
    path: PathLike,
    X: Any,
    Y: Any,
    format: str | None = None,
    *,
    feature_names: Sequence[str] | None = None,
    label_names: Sequence[str] | None = None,
    **options: Any,
) -> None:
    """Write a file in any known format; ``options`` go to its writer, and names where it has a place for them."""
    writer = _of(WRITERS, path, format)
    if (format or guess_format(path)) in _WITH_NAMES:
        options = {"feature_names": feature_names, "label_names": label_names} | options
    writer(path, X, Y, **options)


def _of(table: dict[str, Callable[..., Any]], path: PathLike, format: str | None) -> Callable[..., Any]:
    chosen = guess_format(path) if format is None else format
    if chosen not in table:
        raise ValueError(f"format={format!r} is not known; use one of {list(table)}.")
    return table[chosen]
