"""Files as bytes: compression by ending, reading without copies, and writing that never leaves half a file."""

from __future__ import annotations

import codecs
import gzip
import lzma
import os
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from labelgap.runtime import written_whole

PathLike = str | os.PathLike[str]

COMPRESSIONS = (".gz", ".xz", ".zip")


def uncompressed_name(path: PathLike) -> str:
    """Return the file's name in lower case without the ending of a compression.

    >>> uncompressed_name("folder/Train.TXT.gz")
    'train.txt'
    """
    name = Path(path).name.lower()
    return name.rpartition(".")[0] if name.endswith(COMPRESSIONS) else name


def read_bytes(path: PathLike) -> NDArray[np.uint8]:
    """Return a file's bytes, decompressed by its ending (.gz, .xz, or .zip with one file in it).

    An uncompressed file is mapped, not copied.
    """
    path = Path(path)
    ending = path.suffix.lower()
    if ending not in COMPRESSIONS:
        # An empty file cannot be mapped.
        return np.memmap(path, np.uint8, "r").view(np.ndarray) if path.stat().st_size else _frozen(b"")
    opener: Any = {".gz": gzip.open, ".xz": lzma.open, ".zip": _open_only_member}[ending]
    try:
        with opener(path, "rb") as stream:
            return _frozen(stream.read())
    except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{path}: the compressed data are cut off or damaged ({error}); get the file again."
        ) from error


@contextmanager
def _open_only_member(path: PathLike, mode: str) -> Iterator[IO[bytes]]:
    with zipfile.ZipFile(path) as archive:
        names = [info.filename for info in archive.infolist() if not info.is_dir()]
        if len(names) != 1:
            raise ValueError(f"{path} holds {len(names)} files; unpack it and pass one of them.")
        with archive.open(names[0]) as stream:
            yield stream


def _frozen(content: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(content, np.uint8)


def read_text(path: PathLike, encoding: str | None = None) -> str:
    """Return a file's text, by default UTF-8, or Latin-1 with a warning where it is not valid UTF-8."""
    content = read_bytes(path).tobytes()
    if encoding is not None:
        return content.decode(encoding)
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ValueError(f"{path} is UTF-16 text; save it as UTF-8.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        found = f"line {line} has the byte 0x{error.object[error.start]:02X}"
        warnings.warn(f"{path} is not UTF-8 ({found}), so all of it is read as Latin-1.", stacklevel=2)
        return content.decode("latin-1")


@contextmanager
def replacing(path: PathLike) -> Iterator[IO[bytes]]:
    """Open a binary file to write, compressed by its ending, that takes its name only when the block succeeds.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder) / "a.gz") as stream:
    ...         _ = stream.write(b"text")
    ...     read_bytes(Path(folder) / "a.gz").tobytes()
    b'text'
    """
    ending = Path(path).suffix.lower()
    if ending == ".zip":
        raise ValueError(f"{path}: a .zip can be read but not written; use .gz or .xz.")
    with written_whole(path) as raw, _compressing(raw, ending) as stream:
        yield stream


@contextmanager
def _compressing(raw: IO[bytes], ending: str) -> Iterator[IO[bytes]]:
    if ending == ".gz":
        # Equal content gives equal bytes: no name and no time in the header.
        with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as stream:
            yield stream  # type: ignore[misc]
    elif ending == ".xz":
        with lzma.LZMAFile(raw, "wb") as stream:
            yield stream
    else:
        yield raw
