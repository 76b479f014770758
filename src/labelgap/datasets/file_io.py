"""Files as bytes, text and lines: compression by the ending of the name, and writing without partial files."""

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
from typing import IO, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from labelgap.runtime import write_atomically

PathLike = str | os.PathLike[str]

MIN_BOMB_BYTES = 64 << 20  # smaller files may be compressed as much as they like
MAX_COMPRESSION = 100
COMPRESSIONS = (".gz", ".xz", ".zip")


def uncompressed_name(path: PathLike) -> str:
    """Return the name of a file in lower case, without the ending of its compression.

    >>> uncompressed_name("folder/Train.TXT.gz")
    'train.txt'
    """
    name = Path(path).name.lower()
    return name.rpartition(".")[0] if name.endswith(COMPRESSIONS) else name


def read_bytes(path: PathLike) -> NDArray[np.uint8]:
    """Return the content of a file, decompressed by its ending (.gz, .xz, or .zip with a single file).

    An uncompressed file is memory-mapped, not copied.
    """
    path = Path(path)
    ending = path.suffix.lower()
    if ending not in COMPRESSIONS and path.stat().st_size:  # an empty file cannot be mapped
        return np.memmap(path, np.uint8, "r").view(np.ndarray)
    opener: Any = {".gz": gzip.open, ".xz": lzma.open, ".zip": _open_only_member}.get(ending, open)
    try:
        with opener(path, "rb") as stream:
            return np.frombuffer(_read_bounded(path, stream), np.uint8)
    except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{path}: the compressed data are cut off or damaged ({error}); get the file again."
        ) from error


def _read_bounded(path: Path, stream: IO[bytes]) -> bytes:
    """Return the rest of a stream; raise ValueError if it is far longer than data can be that were compressed."""
    limit = max(MIN_BOMB_BYTES, MAX_COMPRESSION * path.stat().st_size)
    content = stream.read(limit + 1)
    if len(content) > limit:
        raise ValueError(
            f"{path} is compressed more than {MAX_COMPRESSION} times, as no table is; decompress it yourself if you "
            "trust it."
        )
    return content


@contextmanager
def _open_only_member(path: PathLike, mode: str) -> Iterator[IO[bytes]]:
    with zipfile.ZipFile(path) as archive:
        names = [info.filename for info in archive.infolist() if not info.is_dir()]
        if len(names) != 1:
            raise ValueError(f"{path} contains {len(names)} files; unpack it and pass one of them.")
        with archive.open(names[0]) as stream:
            yield stream


def read_text(path: PathLike, encoding: str | None = None) -> str:
    """Return the text of a file.

    By default a byte order mark decides on the encoding. A file without one is UTF-16 if every second byte is 0,
    else UTF-8, or Windows-1252, with a warning, if it is not valid UTF-8.
    """
    content = read_bytes(path).tobytes()
    wide = encoding or _find_wide_encoding(content)
    try:
        return content.decode(wide or "utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        place = f"byte 0x{error.object[error.start]:02X} in line {line}"
        if wide is not None:
            raise ValueError(
                f"{path} is not {wide} ({place}); name its encoding (for a table: --encoding)."
            ) from error
        fallback = next(name for name in ("Windows-1252", "Latin-1") if _can_decode(content, name))
        warnings.warn(
            f"{path} is not UTF-8 ({place}); the whole file is read as {fallback} (for a table, see --encoding).",
            stacklevel=2,
        )
        return content.decode(fallback)


def _find_wide_encoding(content: bytes) -> str | None:
    """Return the encoding of text with two or four bytes for a character; None for other text.

    >>> _find_wide_encoding("id,text".encode("utf-16")), _find_wide_encoding("id,text".encode("utf-16-be"))
    ('utf-16', 'utf-16-be')
    """
    if content.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32"
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    sample = content[:4096]
    zeros = [sample[start::2].count(0) / max(len(sample) // 2, 1) for start in (0, 1)]
    if max(zeros) > 0.5 and min(zeros) < 0.1:
        return "utf-16-be" if zeros[0] > zeros[1] else "utf-16-le"
    return None


def _can_decode(content: bytes, encoding: str) -> bool:
    try:
        content.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


class LineReader:
    """Iterator over the lines of a file without empty lines and comments; ``number`` is that of the latest line."""

    def __init__(self, path: PathLike, encoding: str | None = None) -> None:
        self.path = path
        self.number = 0
        self._lines = read_text(path, encoding).split("\n")

    def __iter__(self) -> Iterator[str]:
        while self.number < len(self._lines):
            line = self._lines[self.number].strip()
            self.number += 1
            if line and not line.startswith("%"):
                yield line

    def fail(self, actual: str, expected: str, number: int | None = None) -> NoReturn:
        """Raise the error of a line, by default the latest."""
        line = self.number if number is None else number
        raise ValueError(f"{self.path}, line {line}: found {actual[:60]!r}, expected {expected}.") from None


@contextmanager
def write_compressed(path: PathLike) -> Iterator[IO[bytes]]:
    """Open a binary file for writing, compressed by its ending; it appears only if the block succeeds.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with write_compressed(Path(folder) / "a.gz") as stream:
    ...         _ = stream.write(b"text")
    ...     read_bytes(Path(folder) / "a.gz").tobytes()
    b'text'
    """
    ending = Path(path).suffix.lower()
    if ending == ".zip":
        raise ValueError(f"{path}: cannot write .zip files; use .gz or .xz.")
    with write_atomically(path) as raw:
        if ending == ".gz":
            # Without a name and a time in the header, equal content gives equal bytes.
            with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as stream:
                yield stream  # type: ignore[misc]
        elif ending == ".xz":
            with lzma.LZMAFile(raw, "wb") as stream:
                yield stream
        else:
            yield raw
