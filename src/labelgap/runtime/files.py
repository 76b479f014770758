"""Files that are whole or not there, and packages that may not be."""

from __future__ import annotations

import importlib
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import IO

from labelgap.runtime.workers import set_within

_mark: ContextVar[str | None] = ContextVar("labelgap_mark", default=None)


@contextmanager
def written_whole(path: str | os.PathLike) -> Iterator[IO[bytes]]:
    """Open a binary file to write that takes its name only when the block succeeds; a failure leaves nothing behind.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with written_whole(Path(folder) / "a") as stream:
    ...         _ = stream.write(b"text")
    ...     (Path(folder) / "a").read_text()
    'text'
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {path.parent} to write {path.name} into; create it first.")
    unfinished = path.with_name(f".{path.name}.{_mark.get() or uuid.uuid4().hex}.part")
    try:
        with open(unfinished, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())  # or the name might outlive what it stands for, if the machine stops
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def unfinished_marked(mark: str) -> Iterator[None]:
    """Name the unfinished files of the block after ``mark``.

    A killed process leaves them behind; one that goes on with its work under the same mark writes over them.
    """
    with set_within(_mark, mark):
        yield


def optional(package: str, extra: str) -> ModuleType:
    """Import an optional package, or say which extra brings it.

    >>> optional("json", "dev").__name__
    'json'
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ImportError(
            f"{package} is needed here and not installed; install it with `pip install labelgap[{extra}]`."
        ) from error
