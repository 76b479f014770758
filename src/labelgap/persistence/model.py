"""What a model consists of: ``model.json``, an ``.npy`` for each array, and ``checksums.json``.

``model.json`` names the estimator, its parameters and its plain attributes, and the libraries that wrote it.
``checksums.json`` has the SHA-256 of every other member: format 1 did not have it.
"""

from __future__ import annotations

import json
import os
import platform
import re
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelgap.persistence.storage import Digesting, ModelFileError, Reader, Writer, checksum, reading, writing
from labelgap.persistence.values import describe, restore

FORMAT = 2
FIRST_WITH_CHECKSUMS = 2
HEADER = "model.json"
CHECKSUMS = "checksums.json"
_LIBRARIES = ("numpy", "scipy", "scikit-learn")


def write_model(
    path: str | os.PathLike, header: dict[str, Any], values: dict[str, Any], *, folder: bool = False
) -> None:
    """Write a header of plain JSON and values that may also be arrays and sparse matrices."""
    arrays: dict[str, NDArray] = {}
    described = {name: describe(name, value, arrays) for name, value in values.items()}
    versions = {"python": platform.python_version(), **{name: version(name) for name in _LIBRARIES}}
    whole = {"format": FORMAT, "library": "labelgap", **header, "versions": versions, "attributes": described}
    text = json.dumps(whole, indent=1)
    with writing(path, folder=folder) as writer:
        checksums = {HEADER: _write_text(writer, HEADER, text)}
        for name, array in arrays.items():
            checksums[f"{name}.npy"] = _write_array(writer, f"{name}.npy", array)
        _write_text(writer, CHECKSUMS, json.dumps(checksums, indent=1))


def _write_text(writer: Writer, name: str, text: str) -> str:
    with writer.open(name) as member:
        stream = Digesting(member)
        stream.write(text.encode())
    return stream.checksum


def _write_array(writer: Writer, name: str, array: NDArray) -> str:
    with writer.open(name) as member:
        stream = Digesting(member)
        np.lib.format.write_array(stream, array, allow_pickle=False)
    return stream.checksum


def read_model(
    path: str | os.PathLike, *, mmap: bool = False, check: bool = True
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the header and the values of a model, or say why it cannot be read.

    With ``mmap`` arrays stay where they are and are read as they are used; without ``check`` checksums are not
    compared, which would read all of them.
    """
    with reading(path) as reader:
        header = _header(path, reader)
        if check and header["format"] >= FIRST_WITH_CHECKSUMS:
            _check_members(path, reader)
        described = header.pop("attributes")

        def array_of(name: str) -> NDArray:
            return reader.mapped(f"{name}.npy") if mmap else _load_array(reader, f"{name}.npy")

        return header, {_attribute(name): restore(name, note, array_of) for name, note in described.items()}


def read_header(path: str | os.PathLike) -> dict[str, Any]:
    """Return the header of a model with the notes of its attributes, without reading arrays."""
    with reading(path) as reader:
        header = _header(path, reader)
        if not isinstance(header["attributes"], dict):
            raise ValueError("its attributes are no names")
        return header


def _header(path: str | os.PathLike, reader: Reader) -> dict[str, Any]:
    with reader.open(HEADER) as stream:
        header = json.loads(stream.read())
    _check_header(path, header)
    return header


def _load_array(reader: Reader, name: str) -> NDArray:
    with reader.open(name) as stream:
        return np.lib.format.read_array(stream, allow_pickle=False)


def _attribute(name: str) -> str:
    """Return the name if it is one that fit sets: a file must not replace methods or parameters."""
    if not re.fullmatch(r"[a-z]\w*_", name):
        raise ValueError(f"it sets {name!r}")
    return name


def _check_header(path: str | os.PathLike, header: Any) -> None:
    if not isinstance(header, dict) or header.get("library") != "labelgap":
        raise ModelFileError(f"{path} was not written by labelgap.")
    if not isinstance(header.get("format"), int):
        raise ModelFileError(f"{path} does not say its model format; save the model again.")
    if header["format"] > FORMAT:
        raise ModelFileError(
            f"{path} has model format {header['format']} and this version of labelgap reads up to {FORMAT}; "
            "upgrade labelgap to load it."
        )


def _check_members(path: str | os.PathLike, reader: Reader) -> None:
    """Refuse members that are not those that were written."""
    with reader.open(CHECKSUMS) as stream:
        expected = json.loads(stream.read())
    for name, known in expected.items():
        with reader.open(name) as stream:
            if checksum(stream) != known:
                raise ModelFileError(
                    f"{path} was changed after it was written: {name} is not what it was. Save the model again."
                )
    more = set(reader.names()) - set(expected) - {CHECKSUMS}
    if more:
        raise ModelFileError(f"{path} holds {', '.join(sorted(more))}, which labelgap did not write there.")
