"""XMC text and multi-label svmlight: one grammar of rows, with and without a header.

======== ============================== =================================================================
format   header                         rows
======== ============================== =================================================================
XMC      ``n d L``                      ``l1,l2 f:v f:v``, labels and features from 0
svmlight none                           the same, features usually from 1; ``#`` starts a comment
======== ============================== =================================================================

A row without labels starts with a blank. Labels count from 0 in both.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, Literal, NoReturn

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray

from labelgap.datasets import xmc_parser as parser
from labelgap.datasets.file_io import PathLike, read_bytes, write_compressed
from labelgap.datasets.records import check_pair, to_canonical_csr, to_positives
from labelgap.observations.arguments import Array

_NEWLINE = 10
_MAX_INDEX = np.iinfo(np.int32).max
_ROWS_PER_WRITE = 1024


def read_xmc(path: PathLike, *, dtype: DTypeLike = np.float32) -> tuple[sp.csr_array, sp.csr_array]:
    """Read the text format of the Extreme Classification Repository; .gz, .xz and .zip are decompressed.

    Returns
    -------
    X : csr_array of shape (n, d)
        Features in ``dtype``, each the number nearest to the text.
    Y : csr_array of float32, shape (n, L)
        1 for each positive label.

    Raises
    ------
    ValueError
        With the file and the line of the first error: a wrong header, more or fewer rows than the header states, an
        index that is out of range or twice in a row, a value that is not a finite number.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "tiny.txt"
    ...     _ = path.write_text("2 3 2\\n0,1 0:0.5 2:1\\n 1:2\\n")
    ...     X, Y = read_xmc(path)
    >>> X.toarray()
    array([[0.5, 0. , 1. ],
           [0. , 2. , 0. ]], dtype=float32)
    >>> Y.toarray()
    array([[1., 1.],
           [0., 0.]], dtype=float32)
    """
    data = read_bytes(path)
    start, (n, d, L) = _parse_header(path, data)
    data, bounds, totals = _count_rows(path, data, start, n)
    try:
        parsed = parser.parse_rows(data, bounds, totals, False, (L, d), dtype)
    except parser.RowError as error:
        _raise_line_error(path, data, error, False, (L, d))
    return _make_matrices(parsed, (d, L))


def read_svmlight(
    path: PathLike,
    *,
    n_features: int | None = None,
    n_labels: int | None = None,
    zero_based: Literal["auto"] | bool = "auto",
    dtype: DTypeLike = np.float32,
) -> tuple[sp.csr_array, sp.csr_array]:
    """Read multi-label svmlight text: rows ``l1,l2 f:v f:v`` without a header; ``#`` starts a comment.

    Parameters
    ----------
    n_features, n_labels : int, optional
        The numbers of columns of X and Y. Default: the largest index decides, so pass them for a test set.
    zero_based : "auto" or bool
        Whether features count from 0. "auto": from 0 if index 0 occurs, else from 1.
        Labels always count from 0, as :func:`write_svmlight` writes them.

    Empty lines and comment lines are skipped; a line of blanks is a row without labels and features.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "tiny.svm"
    ...     _ = path.write_text("0,2 1:0.5  # first\\n1 2:1\\n")
    ...     X, Y = read_svmlight(path)
    >>> X.shape, Y.shape
    ((2, 2), (2, 3))
    """
    if zero_based not in ("auto", True, False):
        raise ValueError(f"zero_based={zero_based!r} is not known; choose from True, False and 'auto'.")
    data = read_bytes(path)
    bounds = parser.find_line_bounds(data, 0)
    totals = parser.count_before_bounds(data, bounds, True)
    limits = (_MAX_INDEX if n_labels is None else n_labels, _MAX_INDEX)
    try:
        parsed = parser.parse_rows(data, bounds, totals, True, limits, dtype)
        first, d = _find_features(parsed, n_features, zero_based)
    except parser.RowError as error:
        _raise_line_error(path, data, error, True, (limits[0], n_features), 0 if zero_based is True else 1)
    L = int(parsed.y_indices.max(initial=-1)) + 1 if n_labels is None else n_labels
    parsed.x_indices[...] -= first
    return _make_matrices(parsed, (d, L))


def write_xmc(path: PathLike, X: Array, Y: Array) -> None:
    """Write the text format of the Extreme Classification Repository, with the shortest exact numbers.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "tiny.txt"
    ...     write_xmc(path, np.array([[0.5, 0.0], [0.0, 2.0]]), np.array([[1, 1], [0, 0]]))
    ...     path.read_text()
    '2 2 2\\n0,1 0:0.5\\n 1:2.0\\n'
    """
    check_pair(X, Y)
    _write_rows(path, X, Y, 0, f"{X.shape[0]} {X.shape[1]} {Y.shape[1]}\n")


def write_svmlight(path: PathLike, X: Array, Y: Array, *, zero_based: bool = False) -> None:
    """Write multi-label svmlight text; features count from 1 unless ``zero_based``, labels always from 0.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "tiny.svm"
    ...     write_svmlight(path, np.array([[0.5, 0.0]]), np.array([[1, 1]]))
    ...     path.read_text()
    '0,1 1:0.5\\n'
    """
    check_pair(X, Y)
    _write_rows(path, X, Y, 0 if zero_based else 1, "")


def _make_matrices(parsed: parser.ParsedRows, shape: tuple[int, int]) -> tuple[sp.csr_array, sp.csr_array]:
    n = len(parsed.x_indptr) - 1
    ones = np.ones(len(parsed.y_indices), np.float32)
    X = sp.csr_array((parsed.values, parsed.x_indices, parsed.x_indptr), shape=(n, shape[0]))
    Y = sp.csr_array((ones, parsed.y_indices, parsed.y_indptr), shape=(n, shape[1]))
    X.has_canonical_format = Y.has_canonical_format = True
    return X, Y


def _parse_header(path: PathLike, data: NDArray[np.uint8]) -> tuple[int, tuple[int, int, int]]:
    """Return the position of the first row, and n, d, L."""
    line = data[:200].tobytes().split(b"\n")[0]
    fields = line.split()
    if len(fields) != 3 or not all(field.isdigit() for field in fields):
        header = line.strip()[:40].decode("latin-1")
        raise ValueError(
            f"{path}, line 1: found {header!r}, expected the header 'rows features labels', three numbers. "
            "A file without a header is svmlight: use read_svmlight. For a table, rename it to .csv or .tsv."
        )
    n, d, L = (int(field) for field in fields)
    return min(len(line) + 1, len(data)), (n, d, L)


def _count_rows(
    path: PathLike, data: NDArray[np.uint8], start: int, n: int
) -> tuple[NDArray[np.uint8], list[int], NDArray[np.int64]]:
    """Cut the data into ranges of lines and count their rows, without empty lines at the end."""
    bounds = parser.find_line_bounds(data, start)
    totals = parser.count_before_bounds(data, bounds, False)
    if totals[-1, 0] > n:
        data = data[: _strip_empty_lines(data, int(totals[-1, 0]) - n)]
        bounds = parser.find_line_bounds(data, start)
        totals = parser.count_before_bounds(data, bounds, False)
    n_rows = int(totals[-1, 0])
    if n_rows != n:
        line, problem = (n_rows + 1, "ends; it may be cut off") if n_rows < n else (n + 2, "goes on")
        raise ValueError(f"{path}, line {line}: found {n_rows} rows, expected {n} by the header; the file {problem}.")
    return data, bounds, totals


def _strip_empty_lines(data: NDArray[np.uint8], max_lines: int) -> int:
    """Return the end of the data without up to ``max_lines`` empty lines."""
    stop = len(data)
    for _ in range(max_lines):
        tail = data[max(0, stop - 3) : stop].tobytes()
        surplus = 1 if tail.endswith(b"\n\n") else 2 if tail.endswith(b"\n\r\n") else 0
        if not surplus:
            break
        stop -= surplus
    return stop


def _find_features(
    parsed: parser.ParsedRows, n_features: int | None, zero_based: Literal["auto"] | bool
) -> tuple[int, int]:
    """Return the number of the first feature, 0 or 1, and the number of features."""
    indices = parsed.x_indices
    starts_at_one = zero_based is not True and len(indices) > 0 and indices.min() > 0
    first = 1 if starts_at_one else 0
    needed = int(indices.max(initial=first - 1)) + 1 - first
    d = needed if n_features is None else n_features
    wrong = indices >= d + first
    if zero_based is False and not starts_at_one:
        wrong = indices == 0
    if wrong.any():
        row = int(np.searchsorted(parsed.x_indptr, int(np.argmax(wrong)), "right")) - 1
        raise parser.RowError(parser.FEATURE_RANGE, row=row)
    return first, d


def _raise_line_error(
    path: PathLike,
    data: NDArray[np.uint8],
    error: parser.RowError,
    no_header: bool,
    limits: tuple[int, int | None],
    first: int = 0,
) -> NoReturn:
    position = error.position if error.row < 0 else _find_row(data, error.row, no_header)
    line = 1 + int(np.count_nonzero(data[:position] == _NEWLINE))
    text = data[position : position + 200].tobytes().split(b"\n")[0].decode("latin-1")
    excerpt = (text.split() or ["the end of the line"])[0] if error.row < 0 else text.strip()
    last = "any" if limits[1] is None else limits[1] - 1 + first
    expected = {
        parser.LABEL: "labels: numbers from 0, separated by commas, then a blank",
        parser.LABEL_RANGE: f"a label from 0 to {limits[0] - 1}",
        parser.FEATURE: "'feature:value' with a feature number of at least 0",
        parser.FEATURE_RANGE: f"feature numbers from {first} to {last}",
        parser.COLON: "'feature:value'",
        parser.VALUE: "a finite number as value",
        parser.REPEATED: "each label and each feature at most once in a row",
    }[error.status]
    raise ValueError(f"{path}, line {line}: found {excerpt[:60]!r}, expected {expected}.") from None


def _find_row(data: NDArray[np.uint8], row: int, no_header: bool) -> int:
    """Return the position of a row by a scan of all lines; only errors need it."""
    starts = [0, *(np.flatnonzero(data == _NEWLINE) + 1).tolist()]
    if not no_header:
        return starts[row + 1]
    rows = (start for start in starts if parser.is_row(data, start, len(data), True))
    return next(islice(rows, row, None))


def _write_rows(path: PathLike, X: Any, Y: Any, first_feature: int, header: str) -> None:
    features, labels = to_canonical_csr(X), to_positives(Y)
    if not np.isfinite(features.data).all():
        raise ValueError("X contains NaN or an infinite value; this format only stores finite numbers.")
    with write_compressed(path) as stream:
        stream.write(header.encode())
        for start in range(0, features.shape[0], _ROWS_PER_WRITE):
            block = slice(start, start + _ROWS_PER_WRITE)
            stream.write("".join(_format_rows(features[block], labels[block], first_feature)).encode())


def _format_rows(X: sp.csr_array, Y: sp.csr_array, first_feature: int) -> list[str]:
    cells = [f"{j}:{v}" for j, v in zip((X.indices + first_feature).tolist(), X.data.astype(str).tolist())]
    labels = Y.indices.astype(str).tolist()
    return [
        f"{','.join(labels[Y.indptr[i] : Y.indptr[i + 1]])} {' '.join(cells[X.indptr[i] : X.indptr[i + 1]])}\n"
        for i in range(X.shape[0])
    ]
