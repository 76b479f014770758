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
from numpy.typing import NDArray

from labelgap.datasets import rows as parser
from labelgap.datasets.files import PathLike, read_bytes, replacing
from labelgap.datasets.records import canonical, check_pair, positives

_NEWLINE = 10
_LARGEST_INDEX = np.iinfo(np.int32).max


def read_xmc(path: PathLike, *, dtype: Any = np.float32) -> tuple[sp.csr_array, sp.csr_array]:
    """Read the text format of the Extreme Classification Repository; .gz and .xz are unpacked.

    Returns
    -------
    X : csr_array of shape (n, d)
        Features in ``dtype``, each the number nearest to the text.
    Y : csr_array of float32, shape (n, L)
        1 for each label given.

    Raises
    ------
    ValueError
        With the file and the line, for anything that is not in the format: a wrong header, more or fewer rows than
        it says, an index that is out of range or twice in a row, a value that is not a finite number.

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
    start, (n, d, L) = _header(path, data)
    data, bounds, totals = _counted_rows(path, data, start, n)
    try:
        parsed = parser.parse_rows(data, bounds, totals, False, (L, d), dtype)
    except parser.Failure as failure:
        _fail(path, data, failure, False, (L, d))
    return _matrices(parsed, (d, L))


def read_svmlight(
    path: PathLike,
    *,
    n_features: int | None = None,
    n_labels: int | None = None,
    zero_based: Literal["auto"] | bool = "auto",
    dtype: Any = np.float32,
) -> tuple[sp.csr_array, sp.csr_array]:
    """Read multi-label svmlight text: rows ``l1,l2 f:v f:v`` without a header; ``#`` starts a comment.

    Parameters
    ----------
    n_features, n_labels : int, optional
        The columns of X and Y; the largest index decides otherwise, so name them for the test half of a set.
    zero_based : "auto" or bool
        Whether features count from 0. "auto" says no when index 0 never occurs.
        Labels always count from 0, as :func:`write_svmlight` writes them.

    Empty lines and lines of comment are no rows; a line that is only a blank is a row without labels and features.

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
        raise ValueError(f"zero_based={zero_based!r} is not understood; use True, False or 'auto'.")
    data = read_bytes(path)
    bounds = parser.line_bounds(data, 0)
    totals = parser.count_ranges(data, bounds, True)
    limits = (_LARGEST_INDEX if n_labels is None else n_labels, _LARGEST_INDEX)
    try:
        parsed = parser.parse_rows(data, bounds, totals, True, limits, dtype)
        shift = _shift(parsed, zero_based)
        d = _width(parsed, n_features, shift)
    except parser.Failure as failure:
        _fail(path, data, failure, True, (limits[0], n_features), 0 if zero_based is True else 1)
    L = int(parsed.y_indices.max(initial=-1)) + 1 if n_labels is None else n_labels
    parsed.x_indices[...] -= shift
    return _matrices(parsed, (d, L))


def write_xmc(path: PathLike, X: Any, Y: Any) -> None:
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


def write_svmlight(path: PathLike, X: Any, Y: Any, *, zero_based: bool = False) -> None:
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


def _matrices(parsed: parser.Rows, shape: tuple[int, int]) -> tuple[sp.csr_array, sp.csr_array]:
    n = len(parsed.x_indptr) - 1
    ones = np.ones(len(parsed.y_indices), np.float32)
    X = sp.csr_array((parsed.values, parsed.x_indices, parsed.x_indptr), shape=(n, shape[0]))
    Y = sp.csr_array((ones, parsed.y_indices, parsed.y_indptr), shape=(n, shape[1]))
    for matrix in (X, Y):
        matrix.has_canonical_format = True
    return X, Y


def _header(path: PathLike, data: NDArray[np.uint8]) -> tuple[int, tuple[int, int, int]]:
    """Return where the rows start, and n, d, L."""
    line = data[:200].tobytes().split(b"\n")[0]
    fields = line.split()
    if len(fields) != 3 or not all(field.isdigit() for field in fields):
        found = line.strip()[:40].decode("latin-1")
        raise ValueError(
            f"{path}, line 1: found {found!r}, expected the header 'rows features labels', three numbers. "
            "A file without a header is svmlight: use read_svmlight."
        )
    n, d, L = (int(field) for field in fields)
    return min(len(line) + 1, len(data)), (n, d, L)


def _counted_rows(
    path: PathLike, data: NDArray[np.uint8], start: int, n: int
) -> tuple[NDArray[np.uint8], list[int], NDArray[np.int64]]:
    """Cut and count the rows; empty lines after the last of them are left out."""
    bounds = parser.line_bounds(data, start)
    totals = parser.count_ranges(data, bounds, False)
    found = int(totals[-1, 0])
    if found > n:
        data = data[: _end_without_empty_lines(data, found - n)]
        bounds = parser.line_bounds(data, start)
        totals = parser.count_ranges(data, bounds, False)
        found = int(totals[-1, 0])
    if found != n:
        what = "ends; it may be cut off" if found < n else "goes on"
        line = found + 1 if found < n else n + 2
        raise ValueError(f"{path}, line {line}: found {found} rows, expected {n} by the header; the file {what}.")
    return data, bounds, totals


def _end_without_empty_lines(data: NDArray[np.uint8], at_most: int) -> int:
    stop = len(data)
    for _ in range(at_most):
        tail = data[max(0, stop - 3) : stop].tobytes()
        surplus = 1 if tail.endswith(b"\n\n") else 2 if tail.endswith(b"\n\r\n") else 0
        if not surplus:
            break
        stop -= surplus
    return stop


def _shift(parsed: parser.Rows, zero_based: Literal["auto"] | bool) -> int:
    """Return what to subtract from feature indices."""
    if zero_based is True or not len(parsed.x_indices):
        return 0
    if parsed.x_indices.min() > 0:
        return 1
    if zero_based is False:
        _refuse_first(parsed, parsed.x_indices == 0)
    return 0


def _width(parsed: parser.Rows, n_features: int | None, shift: int) -> int:
    needed = int(parsed.x_indices.max(initial=shift - 1)) + 1 - shift
    if n_features is not None and needed > n_features:
        _refuse_first(parsed, parsed.x_indices >= n_features + shift)
    return needed if n_features is None else n_features


def _refuse_first(parsed: parser.Rows, wrong: NDArray[np.bool_]) -> NoReturn:
    slot = int(np.argmax(wrong))
    row = int(np.searchsorted(parsed.x_indptr, slot, "right")) - 1
    raise parser.Failure(parser.FEATURE_RANGE, row=row)


def _expected(status: int, limits: tuple[int, int | None], first: int) -> str:
    last = "any" if limits[1] is None else limits[1] - 1 + first
    return {
        parser.LABEL: "labels: numbers from 0, separated by commas, then a blank",
        parser.LABEL_RANGE: f"a label from 0 to {limits[0] - 1}",
        parser.FEATURE: "'feature:value' with a feature number that is not negative",
        parser.FEATURE_RANGE: f"feature numbers from {first} to {last}",
        parser.COLON: "'feature:value'",
        parser.VALUE: "a finite number as value",
        parser.REPEATED: "each label and each feature at most once in a row",
    }[status]


def _fail(
    path: PathLike,
    data: NDArray[np.uint8],
    failure: parser.Failure,
    headless: bool,
    limits: tuple[int, int | None],
    first: int = 0,
) -> NoReturn:
    position = failure.position if failure.row < 0 else _start_of_row(data, failure.row, headless)
    line = 1 + int(np.count_nonzero(data[:position] == _NEWLINE))
    text = data[position : position + 200].tobytes().split(b"\n")[0].decode("latin-1")
    found = (text.split() or ["the end of the line"])[0] if failure.row < 0 else text.strip()
    raise ValueError(
        f"{path}, line {line}: found {found[:60]!r}, expected {_expected(failure.status, limits, first)}."
    ) from None


def _start_of_row(data: NDArray[np.uint8], row: int, headless: bool) -> int:
    """Return where a row starts by walking the lines: only errors need it."""
    starts = [0, *(np.flatnonzero(data == _NEWLINE) + 1).tolist()]
    if not headless:
        return starts[row + 1]
    rows = (start for start in starts if parser.is_row(data, start, len(data), True))
    return next(islice(rows, row, None))


def _write_rows(path: PathLike, X: Any, Y: Any, first_feature: int, header: str) -> None:
    features, labels = canonical(X), positives(Y)
    if not np.isfinite(features.data).all():
        raise ValueError("X holds NaN or an infinite value; this format stores finite numbers only.")
    with replacing(path) as stream:
        stream.write(header.encode())
        for start in range(0, features.shape[0], 1024):
            block = slice(start, start + 1024)
            stream.write("".join(_lines(features[block], labels[block], first_feature)).encode())


def _lines(X: sp.csr_array, Y: sp.csr_array, first_feature: int) -> list[str]:
    cells = [f"{j}:{v}" for j, v in zip((X.indices + first_feature).tolist(), X.data.astype(str).tolist())]
    labels = Y.indices.astype(str).tolist()
    return [
        f"{','.join(labels[Y.indptr[i] : Y.indptr[i + 1]])} {' '.join(cells[X.indptr[i] : X.indptr[i + 1]])}\n"
        for i in range(X.shape[0])
    ]
