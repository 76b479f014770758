"""Checks of the files that a command writes, and checkpoints of its work."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from labelgap import __version__
from labelgap.checkpoints import checkpointing
from labelgap.datasets.shard_folders import HEADER, is_shard_folder
from labelgap.datasets.tables import guess_table_format


def check_output(option: str, path: Path | None, *inputs: Path, table: bool = False) -> None:
    """Raise an error, before any work, if a file cannot be written or is one of the inputs.

    >>> check_output("--output", Path("tags.doc"), table=True)
    Traceback (most recent call last):
        ...
    ValueError: --output tags.doc is not a table; use the ending .csv, .tsv, .jsonl or .parquet.
    """
    if path is None:
        return
    folder = path.absolute().parent
    if not folder.is_dir():
        raise FileNotFoundError(f"{option} {path} is in a folder that does not exist; make {folder} first.")
    if path.is_dir():
        raise IsADirectoryError(f"{option} {path} is a folder; name a file in it.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"{option} {path}: the folder {folder} is not writable; choose another folder.")
    if path.exists() and any(source.exists() and path.samefile(source) for source in inputs):
        raise ValueError(f"{option} {path} is a file that this command reads; choose another name.")
    if table and guess_table_format(path) is None:
        raise ValueError(f"{option} {path} is not a table; use the ending .csv, .tsv, .jsonl or .parquet.")
    if table and path.suffix.lower() == ".zip":
        raise ValueError(f"{option} {path}: .zip files can be read but not written; use .gz or .xz.")


@contextmanager
def resumable(folder: Path | None, command: str, files: Mapping[str, Path], **options: Any) -> Iterator[None]:
    """Save the intermediate results of a command in a folder, for the same files and options; do nothing for None."""
    if folder is None:
        yield
        return
    checksums = {name: compute_checksum(path) for name, path in files.items()}
    names = {f"--{name.replace('_', '-')}": value for name, value in options.items()}
    with checkpointing(folder, {"command": command, "labelgap's version": __version__} | checksums | names):
        yield


def compute_checksum(path: Path) -> str:
    """Return the SHA-256 of a file, or of the files in a folder."""
    if is_shard_folder(path):
        path = path / HEADER  # it has the checksums of the other files
    if path.is_dir():
        checksums = {part.name: compute_checksum(part) for part in sorted(path.iterdir())}
        return hashlib.sha256(repr(checksums).encode()).hexdigest()
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
