"""Where the members of a model lie: in a zip, or in a folder. Both are written whole or not at all."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import struct
import uuid
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from labelgap.runtime import written_whole

ALIGNMENT = 64  # of arrays in a zip, so that they can be used where they lie
_PADDING_ID = 0xD935  # of the extra field that makes room in front of a member, as in Android's zips
_LOCAL_HEADER, _ZIP64_FIELD, _EXTRA_HEADER = 30, 20, 4
_PIECE = 1 << 20


class ModelFileError(ValueError):
    """The file is no model of ours, is damaged, or is of a newer format."""


class Writer(Protocol):
    """Takes members one after the other."""

    def open(self, name: str) -> Any:
        """Return a context that gives a binary stream to write a member to."""


class Reader(Protocol):
    """Gives members back."""

    def names(self) -> list[str]:
        """Return the names of all members."""

    def open(self, name: str) -> IO[bytes]:
        """Return a stream of a member; KeyError or OSError where there is none."""

    def mapped(self, name: str) -> NDArray:
        """Return an array that lies in the file and is read as it is used; writing to it does not change the file."""


class Digesting(io.RawIOBase):
    """Passes bytes on to a stream, and knows their SHA-256."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._digest = stream, hashlib.sha256()

    def writable(self) -> bool:
        """Tell that it can be written to."""
        return True

    def write(self, data: Any) -> int:
        """Write bytes."""
        self._digest.update(data)
        self._stream.write(data)
        return len(data)

    @property
    def checksum(self) -> str:
        """The SHA-256 of what was written, in hexadecimal."""
        return self._digest.hexdigest()


def checksum(stream: IO[bytes]) -> str:
    """Return the SHA-256 of what is left of a stream.

    >>> checksum(io.BytesIO(b""))[:8]
    'e3b0c442'
    """
    digest = hashlib.sha256()
    while piece := stream.read(_PIECE):
        digest.update(piece)
    return digest.hexdigest()


class ZipWriter:
    """Members of a zip, not compressed, each beginning at a multiple of 64 bytes."""

    def __init__(self, archive: zipfile.ZipFile, stream: IO[bytes]) -> None:
        self._archive, self._stream = archive, stream

    def open(self, name: str) -> Any:
        """Return a stream for a member."""
        info = zipfile.ZipInfo(name)
        start = self._stream.tell() + _LOCAL_HEADER + len(name.encode()) + _ZIP64_FIELD + _EXTRA_HEADER
        padding = -start % ALIGNMENT
        info.extra = struct.pack("<HH", _PADDING_ID, padding) + bytes(padding)
        return self._archive.open(info, "w", force_zip64=True)


class FolderWriter:
    """Members as files of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self, name: str) -> Any:
        """Return a stream for a member."""
        return open(self._folder / name, "xb")


@contextmanager
def writing(path: str | os.PathLike, *, folder: bool) -> Iterator[Writer]:
    """Give a writer of a zip or a folder that takes its name only when the block succeeds."""
    if folder:
        with _folder_written_whole(Path(path)) as place:
            yield FolderWriter(place)
        return
    with written_whole(path) as stream, zipfile.ZipFile(stream, "w") as archive:
        yield ZipWriter(archive, stream)


@contextmanager
def _folder_written_whole(path: Path) -> Iterator[Path]:
    if not path.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {path.parent} to write {path.name} into; create it first.")
    if path.exists() and not _is_model_folder(path):
        raise FileExistsError(f"{path} is there and is no model folder; remove it, or pass another path.")
    unique = uuid.uuid4().hex
    partial, replaced = (path.with_name(f".{path.name}.{unique}.{end}") for end in ("part", "old"))
    try:
        partial.mkdir()
        yield partial
        if path.exists():
            os.replace(path, replaced)
        os.replace(partial, path)
    except BaseException:
        if replaced.exists() and not path.exists():
            os.replace(replaced, path)
        raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(replaced, ignore_errors=True)


def _is_model_folder(path: Path) -> bool:
    return (path / "model.json").is_file()


class ZipReader:
    """Reads a zip."""

    def __init__(self, archive: zipfile.ZipFile, path: Path) -> None:
        self._archive, self._path = archive, path

    def names(self) -> list[str]:
        """Return the names of all members."""
        return self._archive.namelist()

    def open(self, name: str) -> IO[bytes]:
        """Return a stream of a member."""
        return self._archive.open(name)

    def mapped(self, name: str) -> NDArray:
        """Return an array that lies in the file."""
        info = self._archive.getinfo(name)
        if info.compress_type != zipfile.ZIP_STORED:
            raise ValueError(f"{name} is compressed")
        with open(self._path, "rb") as stream:
            stream.seek(info.header_offset)
            name_length, extra_length = struct.unpack("<26xHH", stream.read(_LOCAL_HEADER))
            start = info.header_offset + _LOCAL_HEADER + name_length + extra_length
            return _map_array(self._path, stream, start, info.file_size)


class FolderReader:
    """Reads a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> list[str]:
        """Return the names of all members."""
        return sorted(entry.name for entry in self._folder.iterdir())

    def open(self, name: str) -> IO[bytes]:
        """Return a stream of a member."""
        return open(self._member(name), "rb")

    def mapped(self, name: str) -> NDArray:
        """Return an array that lies in a file."""
        path = self._member(name)
        with open(path, "rb") as stream:
            return _map_array(path, stream, 0, path.stat().st_size)

    def _member(self, name: str) -> Path:
        if Path(name).name != name:
            raise ValueError(f"{name!r} is no name of a member")
        return self._folder / name


def _map_array(path: Path, stream: IO[bytes], start: int, size: int) -> NDArray:
    """Return the array whose .npy lies at a place of a file."""
    stream.seek(start)
    read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    shape, fortran, dtype = read_header[np.lib.format.read_magic(stream)](stream)
    offset = stream.tell()
    if dtype.hasobject:
        raise ValueError("it holds objects")
    length = int(np.prod(shape, dtype=object)) * dtype.itemsize
    if offset - start + length != size:
        raise ValueError(f"an array of {length} bytes lies in {size}")
    if length == 0:
        return np.empty(shape, dtype)
    # Copy on write: to compiled loops it is an array like any other, and workers share it all the same.
    return np.memmap(path, dtype, "c", offset, shape, "F" if fortran else "C").view(np.ndarray)


@contextmanager
def reading(path: str | os.PathLike) -> Iterator[Reader]:
    """Give a reader of a zip or a folder; whatever a damaged one provokes is one error."""
    path = Path(path)
    if _is_model_folder(path):
        with _one_error(path):
            yield FolderReader(path)
        return
    if not path.is_file():
        raise FileNotFoundError(f"There is no model {path}; check the path.")
    with _one_error(path), zipfile.ZipFile(path) as archive:
        yield ZipReader(archive, path)


@contextmanager
def _one_error(path: Path) -> Iterator[None]:
    try:
        yield
    except (ModelFileError, MemoryError, PermissionError):
        raise
    except Exception as error:
        raise ModelFileError(
            f"{path} is not a whole labelgap model ({error}); it may have been cut short. Save the model again."
        ) from error
