"""Model files: a zip of JSON and .npy, with a format number and no pickle.

``model.json`` names the estimator, its parameters and its plain attributes; every array is a ``.npy`` member beside
it. Writing is atomic: the file appears whole or not at all.
"""

from __future__ import annotations

import io
import json
import os
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from labelgap.runtime import written_whole

FORMAT = 1
HEADER = "model.json"
_SPARSE_PARTS = ("data", "indices", "indptr")


class ModelFileError(ValueError):
    """The file is no model of ours, is damaged, or is of a newer format."""


def write_model(path: str | os.PathLike, header: dict[str, Any], values: dict[str, Any]) -> None:
    """Write a header of plain JSON and values that may also be arrays and sparse matrices."""
    arrays: dict[str, np.ndarray] = {}
    described = {name: _describe(name, value, arrays) for name, value in values.items()}
    text = json.dumps({"format": FORMAT, "library": "labelgap", **header, "attributes": described}, indent=1)
    with written_whole(path) as stream, zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(HEADER, text)
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _describe(name: str, value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Put arrays aside under their name and leave a note of their kind; plain values stay as they are."""
    if sp.issparse(value):
        csr = sp.csr_array(value)
        arrays.update({f"{name}.{part}": getattr(csr, part) for part in _SPARSE_PARTS})
        return {"kind": "csr", "shape": list(csr.shape)}
    if isinstance(value, np.ndarray) and value.dtype == object:
        return {"kind": "strings", "values": [str(item) for item in value]}
    if isinstance(value, np.ndarray):
        arrays[name] = value
        return {"kind": "array"}
    if isinstance(value, list) and _holds_arrays(value):
        return {"kind": "list", "items": [_describe(f"{name}.{i}", item, arrays) for i, item in enumerate(value)]}
    if isinstance(value, dict) and _holds_arrays(value):
        items = {key: _describe(f"{name}.{key}", item, arrays) for key, item in value.items()}
        return {"kind": "dict", "items": items}
    if isinstance(value, np.generic):
        value = value.item()
    return {"kind": "json", "value": value}


def _holds_arrays(value: Any) -> bool:
    """Tell whether JSON alone cannot hold a value, since there is an array somewhere in it."""
    if isinstance(value, list | dict):
        return any(map(_holds_arrays, value.values() if isinstance(value, dict) else value))
    return isinstance(value, np.ndarray | np.generic) or sp.issparse(value)


def read_model(path: str | os.PathLike) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the header and the values of a model file, or say why it cannot be read."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no model file {path}; check the path.")
    with _one_error(path), zipfile.ZipFile(path) as archive:
        header = json.loads(archive.read(HEADER))
        _check_header(path, header)
        described = header.pop("attributes")
        return header, {_attribute(name): _restore(archive, name, note) for name, note in described.items()}


@contextmanager
def _one_error(path: Path) -> Iterator[None]:
    """Turn whatever a damaged file provokes in the readers of zip, JSON and arrays into one error."""
    try:
        yield
    except (ModelFileError, MemoryError, PermissionError):
        raise
    except Exception as error:
        raise ModelFileError(
            f"{path} is not a whole labelgap model ({error}); it may have been cut short. Save the model again."
        ) from error


def _attribute(name: str) -> str:
    """Return the name if it is one that fit sets: a file must not replace methods or parameters."""
    if not re.fullmatch(r"[a-z]\w*_", name):
        raise ValueError(f"it sets {name!r}")
    return name


def _check_header(path: Path, header: Any) -> None:
    if not isinstance(header, dict) or header.get("library") != "labelgap":
        raise ModelFileError(f"{path} was not written by labelgap.")
    if not isinstance(header.get("format"), int):
        raise ModelFileError(f"{path} does not say its model format; save the model again.")
    if header["format"] > FORMAT:
        raise ModelFileError(
            f"{path} has model format {header['format']} and this version of labelgap reads up to {FORMAT}; "
            "upgrade labelgap to load it."
        )


def _load_array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    return np.lib.format.read_array(io.BytesIO(archive.read(f"{name}.npy")), allow_pickle=False)


def _restore(archive: zipfile.ZipFile, name: str, note: dict[str, Any]) -> Any:
    kind = note["kind"]
    if kind == "csr":
        parts = tuple(_load_array(archive, f"{name}.{part}") for part in _SPARSE_PARTS)
        csr = sp.csr_array(parts, shape=tuple(note["shape"]))
        csr.check_format(full_check=True)  # compiled kernels trust the indices
        return csr
    if kind == "strings":
        return np.array(note["values"], dtype=object)
    if kind == "list":
        return [_restore(archive, f"{name}.{i}", item) for i, item in enumerate(note["items"])]
    if kind == "dict":
        return {key: _restore(archive, f"{name}.{key}", item) for key, item in note["items"].items()}
    return _load_array(archive, name) if kind == "array" else note["value"]
