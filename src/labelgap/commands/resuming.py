"""Commands that can be killed and go on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from labelgap import __version__
from labelgap.checkpoints import checkpointing
from labelgap.commands.inputs import Columns, check_file


@contextmanager
def resumable(
    folder: Path | None, command: str, files: Mapping[str, Path], columns: Columns, **options: Any
) -> Iterator[None]:
    """Keep the pieces of a command's work in a folder, where one is given, for the same files and options."""
    if folder is None:
        yield
        return
    contents = {name: checksum_of(path) for name, path in files.items()}
    given = {f"--{name.replace('_', '-')}": value for name, value in (asdict(columns) | options).items()}
    with checkpointing(folder, {"command": command, "labelgap's version": __version__} | contents | given):
        yield


def checksum_of(path: Path) -> str:
    """Return the SHA-256 of a file, or of the files of a folder."""
    if path.is_dir():
        parts = {part.name: checksum_of(part) for part in sorted(path.iterdir())}
        return hashlib.sha256(repr(parts).encode()).hexdigest()
    check_file(path)
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
