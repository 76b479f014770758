"""Files of named members: a zip, or a folder with a file for each member; complete or absent, also when replaced.

A folder holds generations, ``g-…``, and the file ``CURRENT`` that names one of them. A new generation is written
beside the old one and becomes visible by one rename of ``CURRENT``. Readers that meet a generation which is just
removed begin again with the new one. Files from others may be hostile: members are regular, not compressed, and no
larger than the file that holds them, so that a reader never takes more memory than the file is long.
"""

from __future__ import annotations

import os
import shutil
import stat
import struct
import time
import uuid
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from labelgap.runtime.progress import sync_folder, write_atomically

ALIGNMENT_BYTES = 64  # of arrays in a zip, so that they can be memory-mapped
CURRENT = "CURRENT"
MAX_MEMBERS = 100_000
MAX_ATTEMPTS = 100  # of a reader whose generation is replaced each time
STALE_SECONDS = 3600.0  # generations that no pointer names and that are older are leftovers of a killed process
_GENERATION = "g-"
_PADDING_ID = 0xD935  # of the extra field that pads the header of a zip member, as in Android's zips
_LOCAL_HEADER_BYTES, _ZIP64_FIELD_BYTES, _EXTRA_HEADER_BYTES = 30, 20, 4

Value = TypeVar("Value")


class MemberWriter(Protocol):
    """Writer of members, one after the other."""

    def open(self, name: str) -> Any:
        """Return a context that gives a binary stream to write a member to."""


class MemberReader(Protocol):
    """Reader of members."""

    def names(self) -> list[str]:
        """Return the names of all members."""

    def size(self, name: str) -> int:
        """Return the number of bytes of a member."""

    def open(self, name: str) -> IO[bytes]:
        """Return a binary stream of a member; raise KeyError or OSError if it does not exist."""

    def map_array(self, name: str) -> NDArray:
        """Return an array that is memory-mapped from the file; writing to it does not change the file."""


# --- writing --------------------------------------------------------------------------------------------------------


class ZipWriter:
    """Writer of a zip whose members are not compressed and begin at multiples of 64 bytes."""

    def __init__(self, archive: zipfile.ZipFile, stream: IO[bytes]) -> None:
        self._archive, self._stream = archive, stream

    def open(self, name: str) -> Any:
        """Return a stream for a member."""
        info = zipfile.ZipInfo(name)
        header_bytes = _LOCAL_HEADER_BYTES + len(name.encode()) + _ZIP64_FIELD_BYTES + _EXTRA_HEADER_BYTES
        padding = -(self._stream.tell() + header_bytes) % ALIGNMENT_BYTES
        info.extra = struct.pack("<HH", _PADDING_ID, padding) + bytes(padding)
        return self._archive.open(info, "w", force_zip64=True)


class FolderWriter:
    """Writer of a folder with a file for each member; each is on the disk when it is closed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """Give a stream for a member."""
        with open(self._folder / name, "xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())


@contextmanager
def open_member_writer(path: Path, *, folder: bool, header: str) -> Iterator[MemberWriter]:
    """Give a writer of a zip or a folder whose members appear only when the block succeeds, all at once.

    ``header`` is the member that every such folder has, by which earlier versions are recognised.
    """
    if folder:
        with _add_generation(path, header) as generation:
            yield FolderWriter(generation)
        return
    if is_member_folder(path, header):
        raise IsADirectoryError(f"{path} is a model folder; pass another path, or save with folder=True.")
    with write_atomically(path) as stream, zipfile.ZipFile(stream, "w") as archive:
        yield ZipWriter(archive, stream)


def is_member_folder(path: Path, header: str) -> bool:
    """Return whether a path is a folder of generations, or one of an earlier version without them."""
    return (path / CURRENT).is_file() or (path / header).is_file()


@contextmanager
def _add_generation(path: Path, header: str) -> Iterator[Path]:
    """Give an empty folder that becomes the contents of ``path`` when the block succeeds."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {path.parent} to write {path.name} into; create it first.")
    exists = path.exists()
    if exists and not is_member_folder(path, header):
        raise FileExistsError(f"{path} exists and is not a model folder; remove it, or pass another path.")
    unique = uuid.uuid4().hex
    base = path if exists else path.with_name(f".{path.name}.{unique}.part")
    generation = base / f"{_GENERATION}{unique}"
    try:
        generation.mkdir(parents=not exists)
        yield generation
        sync_folder(generation)
        replaced = _read_pointer(path)
        with write_atomically(base / CURRENT) as stream:
            stream.write(generation.name.encode())
        if not exists:
            os.rename(base, path)
            sync_folder(path.parent)
    except BaseException:
        shutil.rmtree(generation if exists else base, ignore_errors=True)
        raise
    _remove_replaced(path, replaced, generation.name)


def _remove_replaced(path: Path, replaced: str | None, current: str) -> None:
    """Remove the generation that was replaced, files of a version without generations, and what killed writers left.

    A complete generation may belong to a writer that is about to rename its pointer; only an old one is a leftover.
    """
    for entry in path.iterdir():
        with suppress(OSError):
            if entry.name.startswith((_GENERATION, f".{CURRENT}.")) and entry.name != current:
                if entry.name == replaced or time.time() - entry.stat().st_mtime > STALE_SECONDS:
                    shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
            elif replaced is None and entry.is_file() and entry.name != CURRENT:
                entry.unlink()


def _read_pointer(path: Path) -> str | None:
    """Return the name of the current generation; None for a folder of an earlier version."""
    try:
        with _open_regular(path / CURRENT) as stream:
            name = stream.read(100).decode("ascii")
    except FileNotFoundError:
        return None
    if not name.startswith(_GENERATION) or Path(name).name != name:
        raise ValueError(f"{CURRENT} names {name!r}")
    return name


# --- reading --------------------------------------------------------------------------------------------------------


def read_members(path: Path, header: str, read: Callable[[MemberReader], Value]) -> Value:
    """Return ``read(reader)``; it is called again if the folder is replaced meanwhile."""
    if not is_member_folder(path, header):
        with _open_regular(path) as stream, zipfile.ZipFile(stream) as archive:
            return read(ZipReader(archive, stream))
    for _ in range(MAX_ATTEMPTS):
        before = _read_pointer(path)
        try:
            return read(FolderReader(path if before is None else path / before))
        except MemoryError:
            raise
        except Exception:
            if _read_pointer(path) == before:
                raise
    raise OSError("it is replaced again and again")


class ZipReader:
    """Reader of a zip whose members are not compressed and do not overlap."""

    def __init__(self, archive: zipfile.ZipFile, stream: IO[bytes]) -> None:
        self._archive, self._stream = archive, stream
        infos = archive.infolist()
        if len(infos) > MAX_MEMBERS:
            raise ValueError(f"it has {len(infos)} members")
        for info in infos:
            if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size or info.flag_bits & 1:
                raise ValueError(f"{info.filename} is compressed or encrypted")
        if sum(info.file_size for info in infos) > os.fstat(stream.fileno()).st_size:
            raise ValueError("its members overlap")

    def names(self) -> list[str]:
        """Return the names of all members."""
        return self._archive.namelist()

    def size(self, name: str) -> int:
        """Return the number of bytes of a member."""
        return self._archive.getinfo(name).file_size

    def open(self, name: str) -> IO[bytes]:
        """Return a stream of a member."""
        return self._archive.open(name)

    def map_array(self, name: str) -> NDArray:
        """Return a memory-mapped array."""
        info = self._archive.getinfo(name)
        self._stream.seek(info.header_offset)
        name_length, extra_length = struct.unpack("<26xHH", self._stream.read(_LOCAL_HEADER_BYTES))
        start = info.header_offset + _LOCAL_HEADER_BYTES + name_length + extra_length
        return _map_array(self._stream, start, info.file_size)


class FolderReader:
    """Reader of a folder of regular files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> list[str]:
        """Return the names of all members."""
        return sorted(entry.name for entry in self._folder.iterdir())

    def size(self, name: str) -> int:
        """Return the number of bytes of a member."""
        return self._member_path(name).stat().st_size

    def open(self, name: str) -> IO[bytes]:
        """Return a stream of a member."""
        return _open_regular(self._member_path(name))

    def map_array(self, name: str) -> NDArray:
        """Return a memory-mapped array."""
        path = self._member_path(name)
        with _open_regular(path) as stream:
            return _map_array(stream, 0, os.fstat(stream.fileno()).st_size)

    def _member_path(self, name: str) -> Path:
        if Path(name).name != name:
            raise ValueError(f"{name!r} is not the name of a member")
        return self._folder / name


def _open_regular(path: Path) -> IO[bytes]:
    """Open a regular file; a pipe or a device would wait or go on forever."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError(f"{path.name} is not a regular file")
    return open(descriptor, "rb")


def read_array(reader: MemberReader, name: str) -> NDArray:
    """Return an array of a member, after checking that the member has as many bytes as the array."""
    with reader.open(name) as stream:
        shape, fortran, dtype, _ = _read_array_header(stream, reader.size(name))
        flat = np.empty(int(np.prod(shape, dtype=np.int64)), dtype)
        view: Any = memoryview(flat.view(np.uint8)) if flat.nbytes else b""  # type: ignore[arg-type]
        position = 0
        while position < len(view):
            count = stream.readinto(view[position:])  # type: ignore[attr-defined]
            if not count:
                raise ValueError(f"{name} ends too early")
            position += count
    return flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)


def _read_array_header(stream: IO[bytes], size: int) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    """Return the shape, whether it is in Fortran order, the type, and the length of the header."""
    start = stream.tell()
    headers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    shape, fortran, dtype = headers[np.lib.format.read_magic(stream)](stream)
    if not dtype.isnative or not (dtype.kind in "biuU" or dtype in (np.float32, np.float64)):
        raise ValueError(f"an array has the type {dtype}")  # compiled loops take no other ones
    if any(n < 0 for n in shape):
        raise ValueError(f"an array has the shape {shape}")
    length = stream.tell() - start
    n_bytes = int(np.prod(shape, dtype=object)) * dtype.itemsize
    if length + n_bytes != size:
        raise ValueError(f"an array of {n_bytes} bytes is stored in {size}")
    return shape, fortran, dtype, length


def _map_array(stream: IO[bytes], start: int, size: int) -> NDArray:
    """Return the array whose ``.npy`` occupies ``size`` bytes of a file from ``start`` on."""
    stream.seek(start)
    shape, fortran, dtype, length = _read_array_header(stream, size)
    if length == size:
        return np.empty(shape, dtype)
    # Copy on write: compiled loops accept it like any other array, and processes share the memory.
    return np.memmap(stream, dtype, "c", start + length, shape, "F" if fortran else "C").view(np.ndarray)
