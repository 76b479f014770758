"""The tables of MovieLens 100k: ratings (u.data), users (u.user) and items (u.item)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.datasets.arff_rows import Lines
from labelgap.datasets.files import PathLike
from labelgap.datasets.records import canonical

# The first ages of the bands that MovieLens 1M uses.
_AGES = (0, 18, 25, 35, 45, 50, 56)
_OLDEST = 130
_BANDS = [*(f"age:{first}-{after - 1}" for first, after in pairwise(_AGES)), f"age:{_AGES[-1]}+"]
_GENRES = [
    "genre:unknown",
    "genre:Action",
    "genre:Adventure",
    "genre:Animation",
    "genre:Children's",
    "genre:Comedy",
    "genre:Crime",
    "genre:Documentary",
    "genre:Drama",
    "genre:Fantasy",
    "genre:Film-Noir",
    "genre:Horror",
    "genre:Musical",
    "genre:Mystery",
    "genre:Romance",
    "genre:Sci-Fi",
    "genre:Thriller",
    "genre:War",
    "genre:Western",
]
_DATE = re.compile(r"\d{1,2}-[A-Za-z]{3}-(\d{3})\d")

Features = tuple[sp.csr_array, list[str]]


def read_ratings(path: PathLike, shape: tuple[int, int]) -> NDArray[np.int64]:
    """Read lines ``user item rating time``, with tabs between them; return users, items (from 0) and ratings.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "u.data"
    ...     _ = path.write_text("2\\t1\\t5\\t880000000\\n")
    ...     read_ratings(path, (2, 1)).tolist()
    [[1], [0], [5]]
    """
    lines = Lines(path)
    limits = (("a user", 1, shape[0]), ("an item", 1, shape[1]), ("a rating", 1, 5))
    rows = [[_whole(lines, text, *limit) for text, limit in zip(row, limits)] for row in _fields(lines, "\t", 4)]
    return np.array(rows, np.int64).reshape(-1, 3).T - np.array([[1], [1], [0]])


def read_users(path: PathLike, size: int) -> Features:
    """Read lines ``user|age|gender|occupation|postcode``; return 0/1 features and their names.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "u.user"
    ...     _ = path.write_text("1|24|F|writer|02138\\n")
    ...     X, names = read_users(path, 1)
    >>> [names[j] for j in X.indices]
    ['age:18-24', 'gender:F', 'occupation:writer']
    """
    lines = Lines(path)
    about = []
    for _, age, gender, occupation, _ in _numbered(lines, 5, size):
        band = int(np.searchsorted(_AGES, _whole(lines, age, "an age", 0, _OLDEST), "right")) - 1
        about.append([_BANDS[band], f"gender:{gender}", f"occupation:{occupation}"])
    return _indicators(about, _BANDS)


def read_items(path: PathLike, size: int) -> Features:
    """Read lines ``item|title|date|video date|address|`` and 19 genre flags; return 0/1 features and their names.

    The features are the genres and the decade of the date; an item without a date has no decade.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "u.item"
    ...     _ = path.write_text("1|Fargo (1996)|14-Feb-1997||address" + 8 * "|0" + "|1" + 10 * "|0")
    ...     X, names = read_items(path, 1)
    >>> [names[j] for j in X.indices]
    ['genre:Drama', 'decade:1990s']
    """
    lines = Lines(path, "latin-1")
    about = []
    for _, _, date, _, _, *flags in _numbered(lines, 5 + len(_GENRES), size):
        genres = [name for name, flag in zip(_GENRES, flags) if _whole(lines, flag, "a flag", 0, 1)]
        about.append(genres + _decade(lines, date))
    return _indicators(about, _GENRES)


def _fields(lines: Lines, separator: str, width: int) -> Iterator[list[str]]:
    for line in lines:
        fields = line.split(separator)
        if len(fields) != width:
            lines.fail(line, f"{width} fields with {separator!r} between them")
        yield fields


def _numbered(lines: Lines, width: int, size: int) -> Iterator[list[str]]:
    """Yield the fields of rows whose first one counts from 1 to ``size``."""
    count = 0
    for count, fields in enumerate(_fields(lines, "|", width), 1):
        if fields[0] != str(count) or count > size:
            lines.fail(fields[0], f"the rows 1 to {size} in order")
        yield fields
    if count < size:
        lines.fail("the end of the file", f"the rows 1 to {size}")


def _whole(lines: Lines, text: str, what: str, low: int, high: int) -> int:
    value = int(text) if text.isdecimal() else -1
    return value if low <= value <= high else lines.fail(text, f"{what} from {low} to {high}")


def _decade(lines: Lines, date: str) -> list[str]:
    if not date:
        return []
    match = _DATE.fullmatch(date)
    return lines.fail(date, "a date such as 01-Jan-1995") if match is None else [f"decade:{match.group(1)}0s"]


def _indicators(about: list[list[str]], first: list[str]) -> Features:
    """Return a 0/1 matrix with a column for each name, those of ``first`` first, and the names."""
    names = first + sorted({name for row in about for name in row} - set(first))
    column = {name: j for j, name in enumerate(names)}
    columns = [column[name] for row in about for name in row]
    rows = np.repeat(np.arange(len(about)), [len(row) for row in about])
    cells = sp.coo_array((np.ones(len(columns)), (rows, columns)), shape=(len(about), len(names)))
    return canonical(cells), names
