"""Ratings of items by users, with graphs and features of both: data for one-class and graph-regularised methods."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from numbers import Real
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.datasets.file_io import LineReader, PathLike
from labelgap.datasets.formats import load_arrays
from labelgap.datasets.records import to_canonical_csr
from labelgap.datasets.registry import DATASETS, RATINGS, find_entry, find_folder, suggest_folder
from labelgap.observations import encode_tags


@dataclass(frozen=True)
class Interactions:
    """Ratings of L items (labels) by n users (rows), with graphs and features of both.

    Attributes
    ----------
    name : str
        Name in the registry.
    ratings : csr_array of float, shape (n, L)
        One stored cell per rating.
    test : csr_array of bool, shape (n, L), or None
        The test cells of the split in the source.
    row_graph, label_graph : csr_array of float, shapes (n, n) and (L, L), or None
        Symmetric, 1 for each edge; self-loops of the source stay.
    row_features, label_features : csr_array of float, shapes (n, d) and (L, e), or None
        0/1 indicators.
    row_feature_names, label_feature_names : list of str, or None
        The names of their columns, such as ``"occupation:writer"``.

    Examples
    --------
    >>> data = Interactions("tiny", sp.csr_array(np.array([[5.0, 0.0], [3.0, 4.0]])))
    >>> data
    Interactions('tiny', 2 users, 2 items, 3 ratings)
    >>> data.positives().toarray()
    array([[1., 0.],
           [0., 1.]])
    """

    name: str
    ratings: sp.csr_array
    test: sp.csr_array | None = None
    row_graph: sp.csr_array | None = None
    label_graph: sp.csr_array | None = None
    row_features: sp.csr_array | None = None
    label_features: sp.csr_array | None = None
    row_feature_names: list[str] | None = None
    label_feature_names: list[str] | None = None

    def positives(self, least: float = 4.0) -> sp.csr_array:
        """Return 1.0 for each rating of at least ``least``, shape (n, L): the input of one-class methods."""
        if not isinstance(least, Real) or not np.isfinite(least):
            raise ValueError(f"least={least!r} is not a rating; pass a finite number.")
        rated = to_canonical_csr(self.ratings).tocoo()
        liked = rated.data >= least
        return _make_csr(np.ones(int(liked.sum())), rated.row[liked], rated.col[liked], rated.shape)

    def __repr__(self) -> str:
        n, L = self.ratings.shape
        return f"Interactions({self.name!r}, {n} users, {L} items, {self.ratings.nnz} ratings)"


def load_interactions(name: str) -> Interactions:
    """Return a dataset of ratings by name: ``"douban"``, ``"flixster"`` or ``"ml-100k"``.

    The files are in the subfolder ``name`` of the folder that the environment variable ``LABELGAP_DATA`` names, or of
    the cache. The 3000×3000 subsets of Douban and Flixster, and the neighbour graphs of ml-100k, are those of Monti
    et al., "Geometric Matrix Completion with Recurrent Multi-Graph Neural Networks", NeurIPS 2017; the test cells
    of ml-100k are those of u1.test.

    Raises
    ------
    ValueError
        If no dataset of ratings has this name, or one of its files is damaged.
    FileNotFoundError
        If its files are in neither folder.

    Examples
    --------
    >>> load_interactions("ml-20m")
    Traceback (most recent call last):
    ...
    ValueError: name='ml-20m' is not a known dataset; choose from douban, flixster, ml-100k.
    """
    entry = find_entry(name, RATINGS, DATASETS, "load_dataset")
    match = find_folder(name, entry.paths)
    if match is None:
        raise FileNotFoundError(f"The dataset {name!r} is not on this machine. {suggest_folder(name, entry.paths)}")
    folder = match[1] / name
    data = _read_cells(name, folder / entry.cells)
    return _add_movielens_tables(data, *(folder / table for table in entry.tables)) if entry.tables else data


def _make_csr(values: NDArray[Any], rows: Any, columns: Any, shape: tuple[int, int]) -> sp.csr_array:
    return to_canonical_csr(sp.coo_array((values, (rows, columns)), shape=shape))


def _make_ratings(path: PathLike, shape: tuple[int, int], users: Any, items: Any, values: Any) -> sp.csr_array:
    """Return the rated cells; raise ValueError if a cell is rated twice, because a sparse matrix would add these."""
    ratings = _make_csr(np.asarray(values, float), users, items, shape)
    if ratings.nnz < len(values):
        raise ValueError(f"{path}: found {len(values)} ratings of {ratings.nnz} cells, expected one per cell.")
    return ratings


# --- cells, split and graphs in one .npz file -----------------------------------------------------------------------


class _CheckedArrays:
    """The arrays of a .npz file, each checked on access."""

    def __init__(self, path: PathLike) -> None:
        self.path = path
        self._arrays = load_arrays(path)

    def fail(self, actual: str, expected: str) -> NoReturn:
        raise ValueError(f"{self.path}: found {actual}, expected {expected}.")

    def vector(self, key: str, kinds: str, size: int | None = None) -> NDArray[Any]:
        """Return a one-dimensional array whose dtype is one of NumPy's ``kinds``."""
        array = self._arrays.get(key)
        if array is None:
            self.fail(f"the arrays {', '.join(sorted(self._arrays)[:12])}", f"one named {key}")
        if array.ndim != 1 or array.dtype.kind not in kinds or size not in (None, len(array)):
            noun = {"b": "flags", "iu": "integers", "iuf": "numbers"}[kinds]
            count = "a list of" if size is None else f"{size}"
            self.fail(f"{key} of type {array.dtype} and shape {array.shape}", f"{count} {noun}")
        return array

    def index(self, key: str, stop: int, size: int | None = None) -> NDArray[Any]:
        """Return an array of integers from 0 to ``stop`` − 1."""
        index = self.vector(key, "iu", size)
        wrong = index[(index < 0) | (index >= stop)]
        if wrong.size:
            self.fail(f"{wrong[0]} in {key}", f"indices from 0 to {stop - 1}")
        return index

    def shape(self) -> tuple[int, int]:
        users, items = (int(size) for size in self.vector("shape", "iu", 2))
        if min(users, items) < 1:
            self.fail(f"shape {users}, {items}", "at least one user and one item")
        return users, items

    def graph(self, side: str, size: int) -> sp.csr_array | None:
        """Return the graph of users or movies, or ``None`` if the file has none."""
        keys = (f"W_{side}_row", f"W_{side}_col")
        if not any(key in self._arrays for key in keys):
            return None
        rows = self.index(keys[0], size)
        columns = self.index(keys[1], size, len(rows))
        pattern = _make_csr(np.ones(len(rows), bool), rows, columns, (size, size))
        one_way = (pattern != pattern.T).tocoo()
        if one_way.nnz:
            edge = f"the edge {one_way.row[0]}, {one_way.col[0]} of W_{side} in one direction only"
            self.fail(edge, "both directions of each edge")
        return pattern.astype(float)


def _read_cells(name: str, path: PathLike) -> Interactions:
    arrays = _CheckedArrays(path)
    n, L = shape = arrays.shape()
    users = arrays.index("user", n)
    items = arrays.index("item", L, len(users))
    values = arrays.vector("rating", "iuf", len(users))
    if not np.isfinite(values).all():
        arrays.fail(f"the rating {values[~np.isfinite(values)][0]}", "finite numbers")
    is_test = arrays.vector("is_test", "b", len(users))
    return Interactions(
        name,
        _make_ratings(path, shape, users, items, values),
        _make_csr(np.ones(int(is_test.sum()), bool), users[is_test], items[is_test], shape),
        arrays.graph("users", n),
        arrays.graph("movies", L),
    )


# --- the tables of MovieLens 100k: ratings (u.data), users (u.user) and items (u.item) ------------------------------

# The first ages of the bands of MovieLens 1M.
_AGES = (0, 18, 25, 35, 45, 50, 56)
_MAX_AGE = 130
_AGE_BANDS = [*(f"age:{first}-{after - 1}" for first, after in pairwise(_AGES)), f"age:{_AGES[-1]}+"]
_GENRE_NAMES = (
    "unknown Action Adventure Animation Children's Comedy Crime Documentary Drama Fantasy Film-Noir Horror Musical "
    "Mystery Romance Sci-Fi Thriller War Western"
)
_GENRES = [f"genre:{name}" for name in _GENRE_NAMES.split()]
_DATE = re.compile(r"\d{1,2}-[A-Za-z]{3}-(\d{3})\d")

_NamedFeatures = tuple[sp.csr_array, list[str]]


def _add_movielens_tables(data: Interactions, ratings: Path, users: Path, items: Path) -> Interactions:
    """Add the features of MovieLens's tables, after checking that its ratings are those of ``data``."""
    n, L = shape = data.ratings.shape
    n_different = (_make_ratings(ratings, shape, *read_ratings(ratings, shape)) != data.ratings).nnz
    if n_different:
        raise ValueError(
            f"{ratings}: {n_different} ratings differ from those of the .npz file in the same folder; "
            "get the files again."
        )
    row_features, row_feature_names = read_users(users, n)
    label_features, label_feature_names = read_items(items, L)
    return replace(
        data,
        row_features=row_features,
        label_features=label_features,
        row_feature_names=row_feature_names,
        label_feature_names=label_feature_names,
    )


def read_ratings(path: PathLike, shape: tuple[int, int]) -> NDArray[np.int64]:
    """Read lines ``user item rating time``, separated by tabs; return users, items (from 0) and ratings.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "u.data"
    ...     _ = path.write_text("2\\t1\\t5\\t880000000\\n")
    ...     read_ratings(path, (2, 1)).tolist()
    [[1], [0], [5]]
    """
    lines = LineReader(path)
    limits = (("a user", 1, shape[0]), ("an item", 1, shape[1]), ("a rating", 1, 5))
    fields = _split_fields(lines, "\t", 4)
    rows = [[_parse_int(lines, text, *limit) for text, limit in zip(row, limits)] for row in fields]
    return np.array(rows, np.int64).reshape(-1, 3).T - np.array([[1], [1], [0]])


def read_users(path: PathLike, size: int) -> _NamedFeatures:
    """Read lines ``user|age|gender|occupation|postcode``; return 0/1 features and their names.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "u.user"
    ...     _ = path.write_text("1|24|F|writer|02138\\n")
    ...     X, names = read_users(path, 1)
    >>> [names[j] for j in X.indices]
    ['age:18-24', 'gender:F', 'occupation:writer']
    """
    lines = LineReader(path)
    features = []
    for _, age, gender, occupation, _ in _read_numbered(lines, 5, size):
        band = int(np.searchsorted(_AGES, _parse_int(lines, age, "an age", 0, _MAX_AGE), "right")) - 1
        features.append([_AGE_BANDS[band], f"gender:{gender}", f"occupation:{occupation}"])
    return _make_indicators(features, _AGE_BANDS)


def read_items(path: PathLike, size: int) -> _NamedFeatures:
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
    lines = LineReader(path, "latin-1")
    features = []
    for _, _, date, _, _, *flags in _read_numbered(lines, 5 + len(_GENRES), size):
        genres = [name for name, flag in zip(_GENRES, flags) if _parse_int(lines, flag, "a flag", 0, 1)]
        features.append(genres + _parse_decade(lines, date))
    return _make_indicators(features, _GENRES)


def _split_fields(lines: LineReader, separator: str, width: int) -> Iterator[list[str]]:
    for line in lines:
        fields = line.split(separator)
        if len(fields) != width:
            lines.fail(line, f"{width} fields separated by {separator!r}")
        yield fields


def _read_numbered(lines: LineReader, width: int, size: int) -> Iterator[list[str]]:
    """Yield the fields of rows whose first field counts from 1 to ``size``."""
    count = 0
    for count, fields in enumerate(_split_fields(lines, "|", width), 1):
        if fields[0] != str(count) or count > size:
            lines.fail(fields[0], f"the rows 1 to {size} in order")
        yield fields
    if count < size:
        lines.fail("the end of the file", f"the rows 1 to {size}")


def _parse_int(lines: LineReader, text: str, noun: str, low: int, high: int) -> int:
    value = int(text) if text.isdecimal() else -1
    return value if low <= value <= high else lines.fail(text, f"{noun} from {low} to {high}")


def _parse_decade(lines: LineReader, date: str) -> list[str]:
    if not date:
        return []
    match = _DATE.fullmatch(date)
    return lines.fail(date, "a date such as 01-Jan-1995") if match is None else [f"decade:{match.group(1)}0s"]


def _make_indicators(features: list[list[str]], first: list[str]) -> _NamedFeatures:
    """Return a 0/1 matrix with a column for each name, the names in ``first`` first, and all names."""
    names = first + sorted({name for row in features for name in row} - set(first))
    return to_canonical_csr(encode_tags(features, names).Y, float), names
