"""Datasets by name: from a folder, from the cache, or from OpenML, in this order.

The environment variable ``LABELGAP_DATA`` names the folder, which has one subfolder per dataset. The cache is
``LABELGAP_CACHE``, or ``~/.cache/labelgap``. It may have the same subfolders, keeps files from OpenML, and keeps each
parsed dataset as .npz, so that it is parsed only once.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import scipy.sparse as sp

from labelgap.datasets.arff import read_arff, read_label_names
from labelgap.datasets.file_io import write_compressed
from labelgap.datasets.formats import (
    guess_format,
    load_arrays,
    pack_matrices,
    pack_names,
    read,
    save_arrays,
    unpack_matrix,
    unpack_names,
)
from labelgap.datasets.records import Dataset, Table

Location = Literal["folder", "cache", "OpenML", "not available"]
_Entry = TypeVar("_Entry")

_PARSED_FORMAT = 1
_MATRICES = ("X_train", "Y_train", "X_test", "Y_test")
_NAMES = ("feature_names", "label_names")


@dataclass(frozen=True)
class DatasetInfo:
    """The description of a dataset by :func:`list_datasets`.

    ``where`` is "folder", "cache", "OpenML" (it will be downloaded) or "not available"; ``n_test`` is 0 if that
    source has no split. ``kind`` is "labels" for datasets of :func:`load_dataset` and "ratings" for those of
    :func:`labelgap.datasets.load_interactions`, whose rows are users, labels items, and whose split is one of cells.
    """

    name: str
    description: str
    n_train: int
    n_test: int
    n_features: int
    n_labels: int
    where: Location
    kind: Literal["labels", "ratings"] = "labels"


def list_datasets() -> list[DatasetInfo]:
    """Return all known datasets and the source of each; nothing is read or downloaded.

    >>> [info.name for info in list_datasets()][:3]
    ['bibtex', 'birds', 'delicious']
    """
    infos = []
    for entry in DATASETS.values():
        source = next((source for source in _local_sources(entry) if source.exists), None)
        where: Location = "not available"
        sizes = (entry.files.n_train, entry.files.n_test) if entry.files else (0, 0)
        if source is not None:
            where, sizes = source.where, source.sizes
        elif entry.openml is not None:
            where, sizes = "OpenML", (entry.openml.n_rows, 0)
        infos.append(DatasetInfo(entry.name, entry.description, *sizes, entry.n_features, entry.n_labels, where))
    for ratings in RATINGS.values():
        match = find_folder(ratings.name, ratings.paths)
        sizes = (ratings.n_users, 0)
        where = "not available" if match is None else match[0]
        infos.append(
            DatasetInfo(
                ratings.name, ratings.description, *sizes, ratings.n_features, ratings.n_items, where, "ratings"
            )
        )
    return infos


def load_dataset(name: str) -> Dataset:
    """Return a dataset by name.

    Raises
    ------
    ValueError
        If no dataset has this name, or its file is damaged.
    FileNotFoundError
        If neither folder has it and OpenML does not offer it.
    ConnectionError
        If it must be downloaded from OpenML, which cannot be reached.

    Examples
    --------
    >>> load_dataset("bibtext")
    Traceback (most recent call last):
    ...
    ValueError: name='bibtext' is not a known dataset; choose from bibtex, birds, delicious, ...
    """
    entry = find_entry(name, DATASETS, RATINGS, "load_interactions")
    for source in _local_sources(entry):
        if source.exists:
            return _parse_once(entry, source)
    if entry.openml is None:
        raise FileNotFoundError(f"The dataset {name!r} is not on this machine and not on OpenML. {_suggest(entry)}")
    try:
        download_openml(_cache_folder() / "openml", name, entry.openml.data_id)
    except ConnectionError as error:
        raise ConnectionError(f"{error}. {_suggest(entry)}") from error
    except PermissionError as error:
        raise PermissionError(
            f"Cannot write to the cache {_cache_folder()} ({error}); set LABELGAP_CACHE to a writable folder."
        ) from error
    return _parse_once(entry, _openml_source(entry))


def find_entry(name: str, entries: Mapping[str, _Entry], others: Mapping[str, Any], loader: str) -> _Entry:
    """Return the entry of a name; raise ValueError if it is unknown, or one of the ``others`` of ``loader``."""
    if name in others:
        raise ValueError(f"name={name!r} is a dataset of another kind; call {loader}({name!r}).")
    if name not in entries:
        raise ValueError(f"name={name!r} is not a known dataset; choose from {', '.join(entries)}.")
    return entries[name]


def find_folder(name: str, files: tuple[str, ...]) -> tuple[Location, Path] | None:
    """Return the first folder whose subfolder ``name`` has all the files, preceded by "folder" or "cache"."""
    for where, folder in _folders():
        if all((folder / name / file).is_file() for file in files):
            return where, folder
    return None


def suggest_folder(name: str, files: tuple[str, ...]) -> str:
    """Return a sentence that states where to put the files of a dataset."""
    return (
        f"Put {', '.join(files)} into the subfolder {name!r} of the folder that the environment "
        f"variable LABELGAP_DATA names, or of the cache {_cache_folder()} (LABELGAP_CACHE changes it)."
    )


def _suggest(entry: DatasetEntry) -> str:
    if entry.files is None:
        return (
            f"Copy the cache {_cache_folder()} from a machine that has the dataset (LABELGAP_CACHE changes it), "
            "or choose a dataset from the folder that LABELGAP_DATA names."
        )
    return suggest_folder(entry.name, entry.files.paths)


def _folders() -> list[tuple[Location, Path]]:
    """Return the folders that may have datasets, in order of preference."""
    folder = os.environ.get("LABELGAP_DATA")
    cache: tuple[Location, Path] = ("cache", _cache_folder())
    return [("folder", Path(folder)), cache] if folder else [cache]


def _cache_folder() -> Path:
    folder = os.environ.get("LABELGAP_CACHE")
    return Path(folder) if folder else Path.home() / ".cache" / "labelgap"


# --- sources on this machine ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _LocalSource:
    """Files on this machine, and the function that parses them."""

    where: Location
    paths: tuple[Path, ...]
    parse: Callable[[], Dataset]
    sizes: tuple[int, int]

    @property
    def exists(self) -> bool:
        return all(path.is_file() for path in self.paths)


def _local_sources(entry: DatasetEntry) -> list[_LocalSource]:
    """Return where the dataset may be on this machine, in order of preference."""
    sources = []
    if entry.files is not None:
        sources += [_folder_source(entry, entry.files, folder / entry.name, where) for where, folder in _folders()]
    if entry.openml is not None:
        sources.append(_openml_source(entry))
    return sources


def _folder_source(entry: DatasetEntry, files: SplitFiles, folder: Path, where: Location) -> _LocalSource:
    def parse() -> Dataset:
        labels = None if files.labels is None else folder / files.labels
        options: dict[str, Any] = {"labels": labels} if guess_format(files.train) == "arff" else {}
        train, test = (read(folder / name, **options) for name in (files.train, files.test))
        if not options and labels is not None:
            train = train._replace(label_names=read_label_names(labels))
        return _make_dataset(entry.name, train, test, dense=files.dense)

    return _LocalSource(where, tuple(folder / name for name in files.paths), parse, (files.n_train, files.n_test))


def _openml_source(entry: DatasetEntry) -> _LocalSource:
    assert entry.openml is not None
    arff, description = paths = openml_paths(_cache_folder() / "openml", entry.name, entry.openml.data_id)

    def parse() -> Dataset:
        targets = json.loads(description.read_text("utf-8"))["default_target_attribute"]
        table = read_arff(arff, [target.strip() for target in targets.split(",")])
        return _make_dataset(entry.name, table, None)

    return _LocalSource("cache", paths, parse, (entry.openml.n_rows, 0))


def _make_dataset(name: str, train: Table, test: Table | None, *, dense: bool = False) -> Dataset:
    def features(table: Table) -> Any:
        X: Any = table.X
        return X.toarray() if dense and sp.issparse(X) else X

    X_test, Y_test = (None, None) if test is None else (features(test), test.Y)
    return Dataset(name, features(train), train.Y, X_test, Y_test, train.feature_names, train.label_names)


def _parse_once(entry: DatasetEntry, source: _LocalSource) -> Dataset:
    """Parse a source, or load the parsed dataset that an earlier call stored for the same files."""
    stamps = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in source.paths]
    key = hashlib.sha256(repr((_PARSED_FORMAT, stamps)).encode()).hexdigest()[:16]
    stored = _cache_folder() / "parsed" / f"{entry.name}-{key}.npz"
    if stored.is_file():
        with suppress(ValueError, KeyError, OSError):
            return _unpack_dataset(entry.name, load_arrays(stored))
    dataset = source.parse()
    matrices, names = ({key: getattr(dataset, key) for key in keys} for keys in (_MATRICES, _NAMES))
    with suppress(OSError):  # a cache that is not writable only costs time
        stored.parent.mkdir(parents=True, exist_ok=True)
        save_arrays(stored, pack_matrices(**matrices) | pack_names(**names), compress=False)
    return dataset


def _unpack_dataset(name: str, arrays: dict[str, np.ndarray]) -> Dataset:
    stored = {key for key in _MATRICES if key in arrays or f"{key}_data" in arrays}
    matrices: dict[str, Any] = {key: unpack_matrix(arrays, key) for key in stored | {"X_train", "Y_train"}}
    return Dataset(name, **matrices, **{key: unpack_names(arrays, key) for key in _NAMES})


# --- OpenML: the description of a dataset, then its ARFF file, checked against the MD5 of the description -----------

OPENML_DESCRIPTIONS = "https://www.openml.org/api/v1/json/data"
TIMEOUT_SECONDS = 30.0
_CHUNK_BYTES = 1 << 16


def openml_paths(folder: Path, name: str, data_id: int) -> tuple[Path, Path]:
    """Return the paths of a downloaded ARFF file and of its description."""
    return folder / f"{name}-{data_id}.arff", folder / f"{name}-{data_id}.json"


def download_openml(folder: Path, name: str, data_id: int) -> None:
    """Download a dataset into ``folder``; a failure leaves no partial files.

    Raises
    ------
    ConnectionError
        If OpenML cannot be reached.
    ValueError
        If the answer is not the dataset of that name, or the file does not have the MD5 of the description.
    """
    arff, description_path = openml_paths(folder, name, data_id)
    try:
        description = _read_description(name, data_id)
        folder.mkdir(parents=True, exist_ok=True)
        _download(description["url"], arff, description["md5_checksum"])
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
        raise ConnectionError(f"Cannot download OpenML dataset {data_id} ({name}): {error}") from error
    with write_compressed(description_path) as stream:
        stream.write(json.dumps(description).encode())


def _open_url(url: str) -> Any:
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise ValueError(f"OpenML gives {url!r} as the address of the file; only http and https are allowed.")
    return urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS)


def _read_description(name: str, data_id: int) -> dict[str, str]:
    url = f"{OPENML_DESCRIPTIONS}/{data_id}"
    with _open_url(url) as answer:
        content = answer.read()
    keys = ("name", "url", "md5_checksum", "default_target_attribute")
    try:
        description = {key: json.loads(content)["data_set_description"][key] for key in keys}
        openml_name = description["name"].lower()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{url} is not the description of a multi-label dataset ({error!r}).") from error
    if openml_name != name:
        raise ValueError(f"{url}: found dataset {description['name']!r}, expected {name!r}.")
    return description


def _download(url: str, path: Path, md5: str) -> None:
    # MD5 detects damaged downloads; OpenML publishes no stronger checksum.
    digest = hashlib.md5(usedforsecurity=False)
    with _open_url(url) as answer, write_compressed(path) as stream:
        while chunk := answer.read(_CHUNK_BYTES):
            digest.update(chunk)
            stream.write(chunk)
        if digest.hexdigest() != md5.lower():
            raise ValueError(f"{url}: found MD5 {digest.hexdigest()}, expected {md5}; try again.")


# --- the known datasets ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SplitFiles:
    """A split in two files of the folder ``name``, with an optional XML file of label names."""

    train: str
    test: str
    n_train: int
    n_test: int
    labels: str | None = None
    dense: bool = False

    @property
    def paths(self) -> tuple[str, ...]:
        """The names of all files."""
        return tuple(name for name in (self.train, self.test, self.labels) if name is not None)


@dataclass(frozen=True)
class OpenMLFile:
    """A dataset on OpenML: all rows in one file, without the official split."""

    data_id: int
    n_rows: int


@dataclass(frozen=True)
class DatasetEntry:
    """A dataset and its sources."""

    name: str
    description: str
    n_features: int
    n_labels: int
    files: SplitFiles | None = None
    openml: OpenMLFile | None = None


@dataclass(frozen=True)
class RatingsEntry:
    """A dataset of ratings: a .npz file of cells, split and graphs, and optional MovieLens tables.

    ``n_features`` is the number of features of users.
    """

    name: str
    description: str
    n_users: int
    n_items: int
    cells: str
    n_features: int = 0
    tables: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """The names of all files."""
        return (self.cells, *self.tables)


def _mulan(name: str, n_train: int, n_test: int, dense: bool = False) -> SplitFiles:
    return SplitFiles(f"{name}-train.arff.gz", f"{name}-test.arff.gz", n_train, n_test, f"{name}.xml.gz", dense)


_EMOTIONS, _YEAST = _mulan("emotions", 391, 202, dense=True), _mulan("yeast", 1500, 917, dense=True)
_EURLEX = SplitFiles("eurlex_train.txt.xz", "eurlex_test.txt.xz", 15539, 3809)
_MEDIAMILL = SplitFiles("mediamill_train.txt.xz", "mediamill_test.txt.xz", 30993, 12914, "mediamill.xml.gz", True)
# The OpenML datasets are those of Probst et al., "Multilabel Classification with R Package mlr", The R Journal 9
# (2017); each is Mulan's full dataset, so X_test is None.
_DATASETS = [
    DatasetEntry("bibtex", "BibSonomy entries with their tags", 1836, 159, _mulan("bibtex", 4880, 2515)),
    DatasetEntry("birds", "recordings with the species heard", 260, 19, openml=OpenMLFile(40588, 645)),
    DatasetEntry("delicious", "web pages with their bookmarks' tags", 500, 983, _mulan("delicious", 12920, 3185)),
    DatasetEntry("emotions", "music with the emotions it evokes", 72, 6, _EMOTIONS, OpenMLFile(40589, 593)),
    DatasetEntry("enron", "e-mails with their topics", 1001, 53, _mulan("enron", 1123, 579), OpenMLFile(40590, 1702)),
    DatasetEntry("eurlex", "European law with EUROVOC descriptors (Eurlex-4K)", 5000, 3993, _EURLEX),
    DatasetEntry("mediamill", "video shots with the concepts seen", 120, 101, _MEDIAMILL),
    DatasetEntry("reuters", "news with their topics, reduced", 243, 7, openml=OpenMLFile(40594, 2000)),
    DatasetEntry("scene", "photographs with the scenes shown", 294, 6, openml=OpenMLFile(40595, 2407)),
    DatasetEntry("yeast", "genes with their functional classes", 103, 14, _YEAST, OpenMLFile(40597, 2417)),
]
DATASETS = {entry.name: entry for entry in _DATASETS}

_ML_100K_TABLES = ("u.data.gz", "u.user.gz", "u.item.gz")
_ML_100K = "film ratings, with graphs and features (MovieLens 100k)"
_RATINGS = [
    RatingsEntry("douban", "ratings, with the users' social graph", 3000, 3000, "douban.npz"),
    RatingsEntry("flixster", "film ratings, with graphs of users and films", 3000, 3000, "flixster.npz"),
    RatingsEntry("ml-100k", _ML_100K, 943, 1682, "monti_split_1.npz", 30, _ML_100K_TABLES),
]
RATINGS = {entry.name: entry for entry in _RATINGS}
