"""Who rated what, with graphs and features of both sides: data for one-class and graph-regularised methods."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.datasets import movielens
from labelgap.datasets.catalogue import ENTRIES, INTERACTIONS
from labelgap.datasets.files import PathLike
from labelgap.datasets.npz import load_arrays
from labelgap.datasets.records import canonical
from labelgap.datasets.registry import entry_of, find_folder, remedy


@dataclass(frozen=True)
class Interactions:
    """Ratings of n users for L items, and what is known about users (rows) and items (labels).

    Attributes
    ----------
    name : str
        Its name in the registry.
    ratings : csr_array of float, shape (n, L)
        A stored cell for each rating.
    test : csr_array of bool, shape (n, L), or None
        The rated cells that the source's own split holds out.
    row_graph, label_graph : csr_array of float, shapes (n, n) and (L, L), or None
        Symmetric, 1 for each edge; self-loops stay as the source has them.
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
        """Return 1.0 for each rating of at least ``least``, shape (n, L): all that one-class methods are told."""
        if not isinstance(least, Real) or not np.isfinite(least):
            raise ValueError(f"least={least!r} is no rating; pass a finite number.")
        rated = canonical(self.ratings).tocoo()
        liked = rated.data >= least
        return _cells(np.ones(int(liked.sum())), rated.row[liked], rated.col[liked], rated.shape)

    def __repr__(self) -> str:
        n, L = self.ratings.shape
        return f"Interactions({self.name!r}, {n} users, {L} items, {self.ratings.nnz} ratings)"


def load_interactions(name: str) -> Interactions:
    """Return a set of ratings by name: ``"douban"``, ``"flixster"`` or ``"ml-100k"``.

    The files lie in the folder ``name`` under the folder that the environment variable ``LABELGAP_DATA`` names, or
    under the cache. Douban and Flixster are the 3000×3000 parts, and ml-100k's graphs the neighbour graphs, of Monti
    et al., "Geometric Matrix Completion with Recurrent Multi-Graph Neural Networks", NeurIPS 2017; the test cells
    of ml-100k are those of u1.test.

    Raises
    ------
    ValueError
        When no set of ratings has this name, or one of its files is damaged.
    FileNotFoundError
        When its files lie in neither folder.

    Examples
    --------
    >>> load_interactions("ml-20m")
    Traceback (most recent call last):
    ...
    ValueError: name='ml-20m' is no known data set; use one of douban, flixster, ml-100k.
    """
    entry = entry_of(name, INTERACTIONS, ENTRIES, "load_dataset")
    found = find_folder(name, entry.all)
    if found is None:
        raise FileNotFoundError(f"The data set {name!r} is not on this machine. {remedy(name, entry.all)}")
    folder = found[1] / name
    data = _read_cells(name, folder / entry.cells)
    return _with_tables(data, *(folder / table for table in entry.tables)) if entry.tables else data


def _cells(values: NDArray[Any], rows: Any, columns: Any, shape: tuple[int, int]) -> sp.csr_array:
    return canonical(sp.coo_array((values, (rows, columns)), shape=shape))


def _ratings(path: PathLike, shape: tuple[int, int], users: Any, items: Any, values: Any) -> sp.csr_array:
    """Return the rated cells; refuse a cell that is rated twice, which a sparse matrix would add up."""
    ratings = _cells(np.asarray(values, float), users, items, shape)
    if ratings.nnz < len(values):
        raise ValueError(f"{path}: found {len(values)} ratings of {ratings.nnz} cells, expected one for each cell.")
    return ratings


# --- cells, split and graphs in one .npz file -----------------------------------------------------------------------


class _Arrays:
    """The arrays of a .npz file, each checked when it is taken."""

    def __init__(self, path: PathLike) -> None:
        self.path = path
        self._arrays = load_arrays(path)

    def fail(self, found: str, expected: str) -> NoReturn:
        raise ValueError(f"{self.path}: found {found}, expected {expected}.")

    def vector(self, key: str, kinds: str, size: int | None = None) -> NDArray[Any]:
        """Return an array of one dimension whose type is among NumPy's ``kinds``."""
        array = self._arrays.get(key)
        if array is None:
            self.fail(f"the arrays {', '.join(sorted(self._arrays)[:12])}", f"one named {key}")
        if array.ndim != 1 or array.dtype.kind not in kinds or size not in (None, len(array)):
            what = {"b": "flags", "iu": "integers", "iuf": "numbers"}[kinds]
            count = "a list of" if size is None else f"{size}"
            self.fail(f"{key} of type {array.dtype} and shape {array.shape}", f"{count} {what}")
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
        """Return the graph of one side, or ``None`` where the file has none."""
        keys = (f"W_{side}_row", f"W_{side}_col")
        if not any(key in self._arrays for key in keys):
            return None
        rows = self.index(keys[0], size)
        columns = self.index(keys[1], size, len(rows))
        pattern = _cells(np.ones(len(rows), bool), rows, columns, (size, size))
        lone = (pattern != pattern.T).tocoo()
        if lone.nnz:
            edge = f"the edge {lone.row[0]}, {lone.col[0]} of W_{side} in one direction only"
            self.fail(edge, "both directions of each edge")
        return pattern.astype(float)


def _read_cells(name: str, path: PathLike) -> Interactions:
    arrays = _Arrays(path)
    n, L = shape = arrays.shape()
    users = arrays.index("user", n)
    items = arrays.index("item", L, len(users))
    values = arrays.vector("rating", "iuf", len(users))
    if not np.isfinite(values).all():
        arrays.fail(f"the rating {values[~np.isfinite(values)][0]}", "finite numbers")
    held = arrays.vector("is_test", "b", len(users))
    return Interactions(
        name,
        _ratings(path, shape, users, items, values),
        _cells(np.ones(int(held.sum()), bool), users[held], items[held], shape),
        arrays.graph("users", n),
        arrays.graph("movies", L),
    )


# --- tables beside it -----------------------------------------------------------------------------------------------


def _with_tables(data: Interactions, ratings: Path, users: Path, items: Path) -> Interactions:
    """Add the features of MovieLens's tables, after checking that its ratings are those of ``data``."""
    n, L = shape = data.ratings.shape
    differing = (_ratings(ratings, shape, *movielens.read_ratings(ratings, shape)) != data.ratings).nnz
    if differing:
        raise ValueError(
            f"{ratings}: found {differing} cells whose rating is another one than in the .npz file beside it, "
            "expected the same ratings in both; get the files again."
        )
    row_features, row_feature_names = movielens.read_users(users, n)
    label_features, label_feature_names = movielens.read_items(items, L)
    return replace(
        data,
        row_features=row_features,
        label_features=label_features,
        row_feature_names=row_feature_names,
        label_feature_names=label_feature_names,
    )
