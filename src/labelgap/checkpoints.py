"""Long work that goes on where a killed process left it: its pieces lie in a folder, each of them whole or not there.

What works in pieces asks for a :func:`slot` for each, takes what it finds there, and keeps what it has done. Outside
of :func:`checkpointing` slots are empty and keep nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import time
import uuid
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelgap.runtime import place, unfinished_marked, written_whole

Arrays = dict[str, NDArray]

FORMAT = 1
MANIFEST = "checkpoint.json"
OWN = re.compile(rf"\.?({re.escape(MANIFEST)}|[0-9a-f]{{40}}\.piece)(\.\w+\.part)?")  # names of the files we write
INTERVAL = 5.0
SHARE = 0.02


class CheckpointError(ValueError):
    """The folder is of another run, or is no checkpoint at all."""


class Checkpoint:
    """The pieces of one run. Those that may not be written yet wait; the newest of each is enough."""

    def __init__(self, folder: Path, run: str, interval: float, share: float) -> None:
        self._folder, self._run, self._interval, self._share = folder, run, interval, share
        self._began = self._last = time.perf_counter()
        self._spent = 0.0
        self._warned = False
        self._waiting: dict[Path, Arrays] = {}
        self._asked: Counter[tuple[str, ...]] = Counter()
        self._lock = threading.RLock()

    def claim(self, name: str) -> Slot:
        """Return the slot of a name at this place of the work; who asks again gets the next one."""
        key = (*place(), name)
        with self._lock:
            self._asked[key] += 1
            own = f"{name} {self._asked[key]}"
        digest = hashlib.sha256("\0".join((self._run, *place(), own)).encode())
        return Slot(own, self, self._folder / f"{digest.hexdigest()[:40]}.piece")

    def recall(self, path: Path) -> Arrays | None:
        """Return what a piece holds, None where there is none or a damaged one."""
        with self._lock:
            return self._waiting.get(path) or _read_piece(path)

    def keep(self, path: Path, arrays: Mapping[str, Any]) -> None:
        """Write a piece, now or when enough time has passed."""
        with self._lock:
            self._waiting[path] = {name: np.asarray(value) for name, value in arrays.items()}
            now = time.perf_counter()
            if self._spent <= self._share * (now - self._began) or now - self._last >= self._interval:
                self._try_to_flush()

    def _try_to_flush(self) -> None:
        """Write all that waits; work goes on where that fails, though it could not be taken up later."""
        try:
            self.flush()
        except OSError as error:
            self._last = time.perf_counter()
            if not self._warned:
                warnings.warn(f"{self._folder}: what is done cannot be kept ({error}).", RuntimeWarning, stacklevel=4)
            self._warned = True

    def flush(self) -> None:
        """Write all that waits."""
        with self._lock:
            start = time.perf_counter()
            while self._waiting:
                path = next(iter(self._waiting))
                _write_piece(path, self._waiting[path])
                del self._waiting[path]
            self._last = time.perf_counter()
            self._spent += self._last - start

    def remove(self) -> None:
        """Remove our files, the manifest last, and the folder where nothing else is in it."""
        with self._lock:
            self._waiting.clear()
            for path in sorted(_own_files(self._folder), key=lambda path: path.name == MANIFEST):
                path.unlink(missing_ok=True)
            with suppress(OSError):
                self._folder.rmdir()

    @property
    def empty(self) -> bool:
        """Whether no piece was written."""
        return all(path.name.endswith(".part") or path.name == MANIFEST for path in _own_files(self._folder))


class Slot(NamedTuple):
    """Where one piece is kept; nowhere outside of a checkpoint."""

    name: str
    checkpoint: Checkpoint | None = None
    path: Path = Path()

    def recall(self) -> Arrays | None:
        """Return the arrays that were kept here, by this process or the one before; None where there are none."""
        return None if self.checkpoint is None else self.checkpoint.recall(self.path)

    def keep(self, arrays: Mapping[str, Any]) -> None:
        """Keep arrays in place of those that were here; they must not be changed afterwards."""
        if self.checkpoint is not None:
            self.checkpoint.keep(self.path, arrays)

    @property
    def active(self) -> bool:
        """Whether anything is kept at all."""
        return self.checkpoint is not None


_current: ContextVar[Checkpoint | None] = ContextVar("labelgap_checkpoint", default=None)


def slot(name: str) -> Slot:
    """Return the slot of a piece of this name at this place of the work (:func:`labelgap.runtime.within`).

    The same calls in the same order give the same slots in the next process; two calls never give the same one.
    """
    current = _current.get()
    return Slot(name) if current is None else current.claim(name)


@contextmanager
def checkpointing(
    folder: str | os.PathLike, fingerprint: Mapping[str, Any], *, interval: float = INTERVAL, share: float = SHARE
) -> Iterator[None]:
    """Keep the pieces of the block's work in a folder, and begin with those that are there.

    When the block ends well the folder is removed; after an error or Ctrl-C it stays, and so it does when the process
    is killed. The same block then goes on from there.

    Parameters
    ----------
    folder : str or path
        A folder that is not there, is empty, or is the checkpoint of the same work.
    fingerprint : mapping of str to what JSON can hold
        All that decides the result: the data, the parameters, the seed. Other values are another run, and an error.
    interval, share : float
        Pieces are written while that has taken at most this share of the time, or after so many seconds without.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as parent:
    ...     for attempt in range(2):
    ...         with suppress(KeyboardInterrupt), checkpointing(Path(parent) / "kept", {"seed": 0}):
    ...             piece = slot("sum")
    ...             print(piece.recall())
    ...             piece.keep({"total": 3})
    ...             if attempt == 0:
    ...                 raise KeyboardInterrupt
    None
    {'total': array(3)}
    """
    folder = Path(folder)
    details = json.loads(json.dumps(dict(fingerprint), default=str))
    mark = _prepare(folder, details)
    run = hashlib.sha256(json.dumps(details, sort_keys=True).encode()).hexdigest()
    checkpoint = Checkpoint(folder, run, interval, share)
    token = _current.set(checkpoint)
    try:
        with unfinished_marked(mark):
            yield
            checkpoint.remove()
    except BaseException:
        with suppress(OSError), unfinished_marked(mark):
            checkpoint.flush()
        if checkpoint.empty:
            checkpoint.remove()
        raise
    finally:
        _current.reset(token)


def _prepare(folder: Path, details: dict[str, Any]) -> str:
    """Make the folder, or see to it that it is of the same run; return the mark of the run's unfinished files."""
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"{folder} is a file; a checkpoint is a folder: pass another path.")
    if not folder.absolute().parent.is_dir():
        raise FileNotFoundError(f"There is no folder {folder.parent} to make {folder.name} in; create it first.")
    folder.mkdir(exist_ok=True)
    manifest = _read_manifest(folder / MANIFEST)
    if manifest is None:
        foreign = sorted(path.name for path in folder.iterdir() if not OWN.fullmatch(path.name))
        if foreign:
            raise CheckpointError(
                f"{folder} is no checkpoint and not empty (it holds {foreign[0]}); pass a folder that is not there."
            )
        manifest = {"library": "labelgap", "format": FORMAT, "mark": uuid.uuid4().hex, "fingerprint": details}
        with written_whole(folder / MANIFEST) as stream:
            stream.write(json.dumps(manifest, indent=1).encode())
    kept = manifest["fingerprint"]
    changed = sorted(name for name in kept.keys() | details.keys() if kept.get(name) != details.get(name))
    if changed:
        raise CheckpointError(
            f"{folder} is the checkpoint of another run, which differs in {', '.join(changed)}; remove that folder "
            "to start anew, or pass another one."
        )
    return manifest["mark"]


def _read_manifest(path: Path) -> dict[str, Any] | None:
    """Return the manifest; None where there is none that we wrote."""
    try:
        found = json.loads(path.read_bytes())
        ours = found["library"] == "labelgap" and found["format"] == FORMAT and isinstance(found["mark"], str)
        return found if ours and isinstance(found["fingerprint"], dict) else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _own_files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if OWN.fullmatch(path.name)] if folder.is_dir() else []


def _write_piece(path: Path, arrays: Arrays) -> None:
    for name, array in arrays.items():
        if array.dtype.hasobject:
            raise TypeError(f"{name} holds objects of Python, which no checkpoint keeps.")
    named: Any = {f"array.{name}": array for name, array in arrays.items()}
    with written_whole(path) as stream:
        np.savez(stream, checksum=_checksum(arrays), **named)


def _read_piece(path: Path) -> Arrays | None:
    try:
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as kept:
            expected = kept["checksum"]
            arrays = {name.removeprefix("array."): kept[name] for name in kept.files if name != "checksum"}
    except Exception:  # a damaged file provokes anything, and what was lost is computed again
        return None
    return arrays if np.array_equal(expected, _checksum(arrays)) else None


def _checksum(arrays: Arrays) -> NDArray[np.uint8]:
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        if array.size:
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return np.frombuffer(digest.digest(), np.uint8)
