"""Model files: a zip or a folder with ``model.json``, an ``.npy`` for each array, and ``checksums.json``; no pickle.

``model.json`` names the estimator, its parameters and its plain attributes, and the libraries that wrote it.
``checksums.json`` has the SHA-256 of every other member; format 1 did not have it. Since format 3 a model may hold a
calibration and further models.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import re
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.runtime.members import (
    MemberReader,
    MemberWriter,
    is_member_folder,
    open_member_writer,
    read_array,
    read_members,
)

FORMAT = 3
FIRST_FORMAT_WITH_CHECKSUMS = 2
HEADER = "model.json"
CHECKSUMS = "checksums.json"
MAX_HEADER_BYTES = 128 << 20
MAX_HEADER_ITEMS = 8_000_000  # values of the header, which take far more memory than their text
_LIBRARIES = ("numpy", "scipy", "scikit-learn")
_SPARSE_PARTS = ("data", "indices", "indptr")
_READ_BYTES = 1 << 20

Value = TypeVar("Value")


class ModelFileError(ValueError):
    """Error for a file that is not a labelgap model, is damaged, or has a newer format."""


# --- models ---------------------------------------------------------------------------------------------------------


def write_model(
    path: str | os.PathLike, header: dict[str, Any], values: dict[str, Any], *, folder: bool = False
) -> None:
    """Write a header of plain JSON, and values that may also be arrays and sparse matrices."""
    arrays: dict[str, NDArray] = {}
    notes = {name: pack_value(name, value, arrays) for name, value in values.items()}
    versions = {"python": platform.python_version(), **{name: version(name) for name in _LIBRARIES}}
    contents = {"format": FORMAT, "library": "labelgap", **header, "versions": versions, "attributes": notes}
    text = json.dumps(contents, indent=1)
    with open_member_writer(Path(path), folder=folder, header=HEADER) as writer:
        checksums = {HEADER: _write_text(writer, HEADER, text)}
        for name, array in arrays.items():
            checksums[f"{name}.npy"] = _write_array(writer, f"{name}.npy", array)
        _write_text(writer, CHECKSUMS, json.dumps(checksums, indent=1))


def _write_text(writer: MemberWriter, name: str, text: str) -> str:
    with writer.open(name) as member:
        stream = HashingStream(member)
        stream.write(text.encode())
    return stream.checksum


def _write_array(writer: MemberWriter, name: str, array: NDArray) -> str:
    with writer.open(name) as member:
        stream = HashingStream(member)
        np.lib.format.write_array(stream, array, allow_pickle=False)
    return stream.checksum


def read_model(
    path: str | os.PathLike, *, mmap: bool = False, check: bool = True
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the header and the values of a model; raise ModelFileError if the file is not a complete model.

    With ``mmap`` arrays stay in the file and are read when they are used. ``check`` compares the checksums, which
    reads the whole file.
    """

    def read(reader: MemberReader) -> tuple[dict[str, Any], dict[str, Any]]:
        header = _read_header(path, reader)
        if check and header["format"] >= FIRST_FORMAT_WITH_CHECKSUMS:
            _check_members(path, reader)
        notes = header.pop("attributes")

        def read_part(name: str) -> NDArray:
            return reader.map_array(f"{name}.npy") if mmap else read_array(reader, f"{name}.npy")

        return header, {_check_attribute(name): unpack_value(name, note, read_part) for name, note in notes.items()}

    return _read(path, read)


def read_header(path: str | os.PathLike) -> dict[str, Any]:
    """Return the header of a model with the notes of its attributes, without reading arrays."""

    def read(reader: MemberReader) -> dict[str, Any]:
        header = _read_header(path, reader)
        if not isinstance(header["attributes"], dict):
            raise ValueError("its attributes have no names")
        return header

    return _read(path, read)


def _read(path: str | os.PathLike, read: Callable[[MemberReader], Value]) -> Value:
    """Return what is read from a model; turn every error that a damaged file causes into a ModelFileError."""
    path = Path(path)
    if not is_member_folder(path, HEADER) and not path.is_file():
        raise FileNotFoundError(f"There is no model {path}; check the path.")
    try:
        return read_members(path, HEADER, read)
    except (ModelFileError, MemoryError, PermissionError):
        raise
    except Exception as error:
        raise ModelFileError(
            f"{path} is not a complete labelgap model ({error}); it may be truncated. Save the model again."
        ) from error


def _read_json(reader: MemberReader, name: str) -> Any:
    """Return a member of JSON, after checking that its values cannot take much memory."""
    if reader.size(name) > MAX_HEADER_BYTES:
        raise ValueError(f"{name} has {reader.size(name)} bytes")
    with reader.open(name) as stream:
        text = stream.read()
    if sum(map(text.count, (b",", b"[", b"{"))) > MAX_HEADER_ITEMS:
        raise ValueError(f"{name} has more than {MAX_HEADER_ITEMS} values")
    return json.loads(text)


def _read_header(path: str | os.PathLike, reader: MemberReader) -> dict[str, Any]:
    header = _read_json(reader, HEADER)
    if not isinstance(header, dict) or header.get("library") != "labelgap":
        raise ModelFileError(f"{path} was not written by labelgap.")
    if not isinstance(header.get("format"), int):
        raise ModelFileError(f"{path} does not say its model format; save the model again.")
    if header["format"] > FORMAT:
        raise ModelFileError(
            f"{path} has model format {header['format']} and this version of labelgap reads up to {FORMAT}; "
            "upgrade labelgap to load it."
        )
    return header


def _check_attribute(name: str) -> str:
    """Return the name if it is that of a fitted attribute: a file must not replace methods or parameters."""
    if not re.fullmatch(r"[a-z]\w*_", name):
        raise ValueError(f"it sets {name!r}")
    return name


def _check_members(path: str | os.PathLike, reader: MemberReader) -> None:
    """Raise ModelFileError if members were changed or added."""
    expected = _read_json(reader, CHECKSUMS)
    for name, checksum in expected.items():
        with reader.open(name) as stream:
            if compute_checksum(stream) != checksum:
                raise ModelFileError(
                    f"{path} was changed after it was written: {name} has another checksum. Save the model again."
                )
    added = set(reader.names()) - set(expected) - {CHECKSUMS}
    if added:
        raise ModelFileError(f"{path} holds {', '.join(sorted(added))}, which labelgap did not write there.")


# --- values ---------------------------------------------------------------------------------------------------------


def pack_value(name: str, value: Any, arrays: dict[str, NDArray]) -> Any:
    """Return a JSON note of a value, and put its arrays into ``arrays`` under names that begin with ``name``.

    >>> arrays = {}
    >>> pack_value("both", {"a": np.zeros(2), "b": 3}, arrays)
    {'kind': 'dict', 'items': {'a': {'kind': 'array'}, 'b': {'kind': 'json', 'value': 3}}}
    >>> list(arrays)
    ['both.a']
    """
    if sp.issparse(value):
        csr = sp.csr_array(value)
        arrays.update({f"{name}.{part}": getattr(csr, part) for part in _SPARSE_PARTS})
        return {"kind": "csr", "shape": list(csr.shape)}
    if isinstance(value, np.ndarray) and value.dtype == object:
        return {"kind": "strings", "values": [str(item) for item in value]}
    if isinstance(value, np.ndarray):
        arrays[name] = value
        return {"kind": "array"}
    if isinstance(value, list) and _contains_arrays(value):
        return {"kind": "list", "items": [pack_value(f"{name}.{i}", item, arrays) for i, item in enumerate(value)]}
    if isinstance(value, dict) and _contains_arrays(value):
        items = {key: pack_value(f"{name}.{key}", item, arrays) for key, item in value.items()}
        return {"kind": "dict", "items": items}
    if isinstance(value, np.generic):
        value = value.item()
    return {"kind": "json", "value": value}


def _contains_arrays(value: Any) -> bool:
    if isinstance(value, list | dict):
        return any(map(_contains_arrays, value.values() if isinstance(value, dict) else value))
    return isinstance(value, np.ndarray | np.generic) or sp.issparse(value)


def unpack_value(name: str, note: dict[str, Any], read_array: Callable[[str], NDArray]) -> Any:
    """Return the value that :func:`pack_value` made a note of; ``read_array`` returns an array by its name."""
    kind = note["kind"]
    if kind == "csr":
        parts = tuple(read_array(f"{name}.{part}") for part in _SPARSE_PARTS)
        csr = sp.csr_array(parts, shape=tuple(note["shape"]))
        csr.check_format(full_check=True)  # compiled kernels do not check the indices
        return csr
    if kind == "strings":
        return np.array(note["values"], dtype=object)
    if kind == "list":
        return [unpack_value(f"{name}.{i}", item, read_array) for i, item in enumerate(note["items"])]
    if kind == "dict":
        return {key: unpack_value(f"{name}.{key}", item, read_array) for key, item in note["items"].items()}
    return read_array(name) if kind == "array" else note["value"]


# --- storage --------------------------------------------------------------------------------------------------------


class HashingStream(io.RawIOBase):
    """Stream that passes bytes on to another one and computes their SHA-256."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._digest = stream, hashlib.sha256()

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any) -> int:
        """Write bytes."""
        self._digest.update(data)
        self._stream.write(data)
        return len(data)

    @property
    def checksum(self) -> str:
        """The SHA-256 of the bytes written so far, in hexadecimal."""
        return self._digest.hexdigest()


def compute_checksum(stream: IO[bytes]) -> str:
    """Return the SHA-256 of the rest of a stream, in hexadecimal.

    >>> compute_checksum(io.BytesIO(b""))[:8]
    'e3b0c442'
    """
    digest = hashlib.sha256()
    while data := stream.read(_READ_BYTES):
        digest.update(data)
    return digest.hexdigest()
