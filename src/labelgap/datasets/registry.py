"""Data sets by name: from a folder, from the cache, or from OpenML, in this order.

The folder is that of the environment variable ``LABELGAP_DATA``; it holds one folder for each set. The cache is
``LABELGAP_CACHE``, or ``~/.cache/labelgap``; it may hold the same folders, holds what was fetched from OpenML, and
keeps each parsed set as .npz, so that it is parsed only once.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import scipy.sparse as sp

from labelgap.datasets import openml
from labelgap.datasets.arff import read_label_names
from labelgap.datasets.catalogue import ENTRIES, INTERACTIONS, Entry, Files, Ratings
from labelgap.datasets.formats import guess_format, read
from labelgap.datasets.npz import load_arrays, pack, pack_names, save_arrays, unpack, unpack_names
from labelgap.datasets.records import Dataset, Table

Where = Literal["folder", "cache", "OpenML", "not available"]
_Known = TypeVar("_Known")

_PARSED_FORMAT = 1
_MATRICES = ("X_train", "Y_train", "X_test", "Y_test")
_NAMES = ("feature_names", "label_names")


@dataclass(frozen=True)
class DatasetInfo:
    """What :func:`list_datasets` says about a set.

    ``where`` is "folder", "cache", "OpenML" (it will be fetched) or "not available"; ``n_test`` is 0 where that
    source has no split. ``kind`` is "labels" for a set of :func:`load_dataset` and "ratings" for one of
    :func:`labelgap.datasets.load_interactions`: its rows are users, its labels items, and its split is one of cells.
    """

    name: str
    description: str
    n_train: int
    n_test: int
    n_features: int
    n_labels: int
    where: Where
    kind: Literal["labels", "ratings"] = "labels"


@dataclass(frozen=True)
class _Source:
    """Files on this machine, and how to read them."""

    where: Where
    paths: tuple[Path, ...]
    parse: Callable[[], Dataset]
    sizes: tuple[int, int]

    @property
    def exists(self) -> bool:
        return all(path.is_file() for path in self.paths)


def list_datasets() -> list[DatasetInfo]:
    """Return all known data sets and where each would come from; nothing is read or fetched.

    >>> [info.name for info in list_datasets()][:3]
    ['bibtex', 'birds', 'delicious']
    """
    return [*map(_info, ENTRIES.values()), *map(_info_of_ratings, INTERACTIONS.values())]


def load_dataset(name: str) -> Dataset:
    """Return a data set by name.

    Raises
    ------
    ValueError
        When no set has this name, or its file is damaged.
    FileNotFoundError
        When it lies in neither folder and OpenML does not have it.
    ConnectionError
        When OpenML has it and cannot be reached.

    Examples
    --------
    >>> load_dataset("bibtext")
    Traceback (most recent call last):
    ...
    ValueError: name='bibtext' is no known data set; use one of bibtex, birds, delicious, ...
    """
    entry = entry_of(name, ENTRIES, INTERACTIONS, "load_interactions")
    for source in _sources(entry):
        if source.exists:
            return _parsed_once(entry, source)
    if entry.openml is None:
        raise FileNotFoundError(f"The data set {name!r} is not on this machine and not on OpenML. {_remedy(entry)}")
    try:
        openml.fetch(_cache() / "openml", name, entry.openml.data_id)
    except ConnectionError as error:
        raise ConnectionError(f"{error}. {_remedy(entry)}") from error
    except PermissionError as error:
        raise PermissionError(
            f"The cache {_cache()} cannot be written ({error}); set LABELGAP_CACHE to a folder that can."
        ) from error
    return _parsed_once(entry, _fetched(entry))


def entry_of(name: str, entries: Mapping[str, _Known], others: Mapping[str, Any], loader: str) -> _Known:
    """Return the entry of a name; refuse an unknown one, and one of the ``others`` that ``loader`` loads."""
    if name in others:
        raise ValueError(f"name={name!r} is a set of another kind; call {loader}({name!r}).")
    if name not in entries:
        raise ValueError(f"name={name!r} is no known data set; use one of {', '.join(entries)}.")
    return entries[name]


def find_folder(name: str, files: tuple[str, ...]) -> tuple[Where, Path] | None:
    """Return the best folder whose folder ``name`` holds all the files, and which kind of folder it is."""
    for where, folder in _folders():
        if all((folder / name / file).is_file() for file in files):
            return where, folder
    return None


def remedy(name: str, files: tuple[str, ...]) -> str:
    """Return the sentence that says which files to put where."""
    return (
        f"Put {', '.join(files)} into the folder {name!r} under the folder that the environment "
        f"variable LABELGAP_DATA names, or under the cache {_cache()} (LABELGAP_CACHE moves it)."
    )


def _folders() -> list[tuple[Where, Path]]:
    """Return the folders that may hold sets, best first."""
    chosen = os.environ.get("LABELGAP_DATA")
    cache: tuple[Where, Path] = ("cache", _cache())
    return [("folder", Path(chosen)), cache] if chosen else [cache]


def _cache() -> Path:
    chosen = os.environ.get("LABELGAP_CACHE")
    return Path(chosen) if chosen else Path.home() / ".cache" / "labelgap"


def _sources(entry: Entry) -> list[_Source]:
    """Return where the set may lie on this machine, best first."""
    sources = []
    if entry.files is not None:
        sources += [_in_folder(entry, entry.files, folder, where) for where, folder in _folders()]
    if entry.openml is not None:
        sources.append(_fetched(entry))
    return sources


def _in_folder(entry: Entry, files: Files, folder: Path, where: Where) -> _Source:
    paths = tuple(folder / entry.name / name for name in files.all)
    return _Source(where, paths, lambda: _parse(entry, files, folder / entry.name), (files.n_train, files.n_test))


def _fetched(entry: Entry) -> _Source:
    assert entry.openml is not None
    folder, data_id = _cache() / "openml", entry.openml.data_id
    return _Source(
        "cache",
        openml.paths(folder, entry.name, data_id),
        lambda: _dataset(entry.name, openml.read(folder, entry.name, data_id), None),
        (entry.openml.n_rows, 0),
    )


def _info(entry: Entry) -> DatasetInfo:
    found = next((source for source in _sources(entry) if source.exists), None)
    where: Where = "not available"
    sizes = (entry.files.n_train, entry.files.n_test) if entry.files else (0, 0)
    if found is not None:
        where, sizes = found.where, found.sizes
    elif entry.openml is not None:
        where, sizes = "OpenML", (entry.openml.n_rows, 0)
    return DatasetInfo(entry.name, entry.description, *sizes, entry.n_features, entry.n_labels, where)


def _info_of_ratings(ratings: Ratings) -> DatasetInfo:
    found = find_folder(ratings.name, ratings.all)
    where: Where = "not available" if found is None else found[0]
    sizes = (ratings.n_users, 0, ratings.n_features, ratings.n_items)
    return DatasetInfo(ratings.name, ratings.description, *sizes, where, "ratings")


def _remedy(entry: Entry) -> str:
    if entry.files is None:
        return (
            f"Copy the cache {_cache()} from a machine that has the set (LABELGAP_CACHE says where it lies), "
            "or choose a set from the folder that LABELGAP_DATA names."
        )
    return remedy(entry.name, entry.files.all)


def _parse(entry: Entry, files: Files, folder: Path) -> Dataset:
    labels = None if files.labels is None else folder / files.labels
    options: dict[str, Any] = {"labels": labels} if guess_format(files.train) == "arff" else {}
    train, test = (read(folder / name, **options) for name in (files.train, files.test))
    if not options and labels is not None:
        train = train._replace(label_names=read_label_names(labels))
    return _dataset(entry.name, train, test, dense=files.dense)


def _dataset(name: str, train: Table, test: Table | None, *, dense: bool = False) -> Dataset:
    def features(table: Table) -> Any:
        X: Any = table.X
        return X.toarray() if dense and sp.issparse(X) else X

    X_test, Y_test = (None, None) if test is None else (features(test), test.Y)
    return Dataset(name, features(train), train.Y, X_test, Y_test, train.feature_names, train.label_names)


def _parsed_once(entry: Entry, source: _Source) -> Dataset:
    """Parse a source, or take what an earlier call parsed from the same files."""
    stored = _cache() / "parsed" / f"{entry.name}-{_key(source)}.npz"
    if stored.is_file():
        with suppress(ValueError, KeyError, OSError):
            return _unpack(entry.name, load_arrays(stored))
    dataset = source.parse()
    with suppress(OSError):  # a cache that cannot be written only costs time
        stored.parent.mkdir(parents=True, exist_ok=True)
        save_arrays(stored, _pack(dataset), compress=False)
    return dataset


def _key(source: _Source) -> str:
    stamps = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in source.paths]
    return hashlib.sha256(repr((_PARSED_FORMAT, stamps)).encode()).hexdigest()[:16]


def _pack(dataset: Dataset) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    for name in _MATRICES:
        if getattr(dataset, name) is not None:
            arrays |= pack(name, getattr(dataset, name))
    for name in _NAMES:
        arrays |= pack_names(name, getattr(dataset, name))
    return arrays


def _unpack(name: str, arrays: dict[str, np.ndarray]) -> Dataset:
    stored = {key for key in _MATRICES if key in arrays or f"{key}_data" in arrays}
    matrices: dict[str, Any] = {key: unpack(arrays, key) for key in stored | {"X_train", "Y_train"}}
    return Dataset(name, **matrices, **{key: unpack_names(arrays, key) for key in _NAMES})
