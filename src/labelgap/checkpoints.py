"""Checkpoints of long work: a killed process continues from the pieces in a folder, each complete or absent.

Work in pieces gets a :func:`slot` for each piece, reads the stored result, or computes and stores it;
:func:`checkpoint_call` does both. Outside of :func:`checkpointing` slots store nothing.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from labelgap.persistence import pack_value, unpack_value
from labelgap.runtime import call_elsewhere, current_scope, mark_partial_files, run_parallel, scope, write_atomically

T = TypeVar("T")

Arrays = dict[str, NDArray]

FORMAT = 1
MANIFEST = "checkpoint.json"
FILE_NAME = re.compile(rf"\.?({re.escape(MANIFEST)}|[0-9a-f]{{40}}\.piece)(\.\w+\.part)?")  # of our own files
WRITE_INTERVAL_SECONDS = 5.0
MAX_WRITE_SHARE = 0.02  # of the time
_NOTE, _VALUES = "note", "values"  # member names of packed values


class CheckpointError(ValueError):
    """Error for a folder that is not a checkpoint, or is that of another run."""


class Checkpoint:
    """The pieces of a run. Writing is limited in time; until then only the latest version of a piece waits."""

    def __init__(self, folder: Path, run: str, interval: float, share: float) -> None:
        self._folder, self._run, self._interval, self._share = folder, run, interval, share
        self._began = self._last = time.perf_counter()
        self._spent = 0.0
        self._warned = False
        self._waiting: dict[Path, Arrays] = {}
        self._claims: Counter[tuple[str, ...]] = Counter()
        self._lock = threading.RLock()

    def claim(self, name: str) -> Slot:
        """Return the next slot of a name in the current scope."""
        key = (*current_scope(), name)
        with self._lock:
            self._claims[key] += 1
            numbered = f"{name} {self._claims[key]}"
        digest = hashlib.sha256("\0".join((self._run, *current_scope(), numbered)).encode())
        return Slot(numbered, self, self._folder / f"{digest.hexdigest()[:40]}.piece")

    def recall(self, path: Path) -> Arrays | None:
        """Return the arrays of a piece; None if it is missing or damaged."""
        with self._lock:
            return self._waiting.get(path) or _read_piece(path)

    def keep(self, path: Path, arrays: Mapping[str, Any]) -> None:
        """Store a piece, now or when enough time has passed."""
        with self._lock:
            self._waiting[path] = {name: np.asarray(value) for name, value in arrays.items()}
            now = time.perf_counter()
            if self._spent <= self._share * (now - self._began) or now - self._last >= self._interval:
                self._try_to_flush()

    def _try_to_flush(self) -> None:
        """Write the waiting pieces; if that fails, warn once and let the work continue."""
        try:
            self.flush()
        except OSError as error:
            self._last = time.perf_counter()
            if not self._warned:
                warnings.warn(
                    f"{self._folder}: the checkpoint cannot be written ({error}).", RuntimeWarning, stacklevel=4
                )
            self._warned = True

    def flush(self) -> None:
        """Write the waiting pieces."""
        with self._lock:
            start = time.perf_counter()
            while self._waiting:
                path = next(iter(self._waiting))
                _write_piece(path, self._waiting[path])
                del self._waiting[path]
            self._last = time.perf_counter()
            self._spent += self._last - start

    def remove(self) -> None:
        """Remove our files, the manifest last, and the folder if it is then empty."""
        with self._lock:
            self._waiting.clear()
            for path in sorted(_list_files(self._folder), key=lambda path: path.name == MANIFEST):
                path.unlink(missing_ok=True)
            with suppress(OSError):
                self._folder.rmdir()

    @property
    def is_empty(self) -> bool:
        """Whether the folder has no piece."""
        return all(path.name.endswith(".part") or path.name == MANIFEST for path in _list_files(self._folder))


class Slot(NamedTuple):
    """The storage of one piece; stores nothing outside of a checkpoint."""

    name: str
    checkpoint: Checkpoint | None = None
    path: Path = Path()

    def recall(self) -> Arrays | None:
        """Return the arrays that this process or an earlier one stored here; None if there are none."""
        return None if self.checkpoint is None else self.checkpoint.recall(self.path)

    def keep(self, arrays: Mapping[str, Any]) -> None:
        """Store arrays, replacing earlier ones; the caller must not change them afterwards."""
        if self.checkpoint is not None:
            self.checkpoint.keep(self.path, arrays)

    @property
    def active(self) -> bool:
        """Whether the slot belongs to a checkpoint."""
        return self.checkpoint is not None


_current: ContextVar[Checkpoint | None] = ContextVar("labelgap_checkpoint", default=None)


def slot(name: str) -> Slot:
    """Return the slot of a piece with this name in the current :func:`labelgap.runtime.scope`.

    The same calls in the same order return the same slots in the next process; two calls never return the same slot.
    """
    current = _current.get()
    return Slot(name) if current is None else current.claim(name)


def checkpoint_call(name: str, compute: Callable[[], T], result_type: Callable[..., T]) -> T:
    """Return ``compute()``, or its result from the current checkpoint if a previous process has stored it.

    The result is a named tuple of ``result_type`` whose fields :func:`pack_values` accepts. Outside of
    :func:`checkpointing` this is a plain call.

    >>> class Total(NamedTuple):
    ...     number: int
    >>> checkpoint_call("a number", lambda: Total(3), Total)
    Total(number=3)
    """
    piece = slot(name)
    if not piece.active:
        return compute()
    stored = piece.recall()
    if stored is not None:
        return result_type(**unpack_values(stored))
    with scope(piece.name):
        result: Any = compute()
    piece.keep(pack_values(result._asdict()))
    return result


def checkpoint_calls(
    name: str, tasks: Sequence[Callable[[], T]], result_type: Callable[..., T], at_once: int | None = None
) -> Iterator[T]:
    """Run independent tasks like :func:`labelgap.runtime.run_parallel`, each as a :func:`checkpoint_call`.

    In a block of :func:`labelgap.runtime.offload` they run on other machines; the checkpoint stays here.
    """
    calls = [partial(checkpoint_call, name, partial(call_elsewhere, task), result_type) for task in tasks]
    return run_parallel(calls, at_once)


def pack_values(values: Mapping[str, Any]) -> Arrays:
    """Convert plain values, arrays and sparse matrices, also in dicts and lists, to a dict of arrays.

    >>> unpack_values(pack_values({"a": np.arange(2), "b": [1.5, "c"]}))
    {'a': array([0, 1]), 'b': [1.5, 'c']}
    """
    arrays: Arrays = {}
    note = json.dumps(pack_value(_VALUES, dict(values), arrays))
    return arrays | {_NOTE: np.frombuffer(note.encode(), np.uint8)}


def unpack_values(arrays: Arrays) -> dict[str, Any]:
    """Convert the arrays of :func:`pack_values` back to values; tuples come back as lists."""
    return unpack_value(_VALUES, json.loads(arrays[_NOTE].tobytes()), arrays.__getitem__)


@contextmanager
def checkpointing(
    folder: str | os.PathLike,
    fingerprint: Mapping[str, Any],
    *,
    interval: float = WRITE_INTERVAL_SECONDS,
    share: float = MAX_WRITE_SHARE,
) -> Iterator[None]:
    """Store the pieces of the block's work in a folder, and continue from the pieces that are there.

    The folder is removed when the block succeeds. It stays after an error, after Ctrl-C and when the process is
    killed; the same block then continues from it.

    Parameters
    ----------
    folder : str or path
        A folder that does not exist, is empty, or is the checkpoint of the same work.
    fingerprint : mapping of str to JSON values
        Everything that the result depends on: data, parameters, seed. Another fingerprint raises CheckpointError.
    interval, share : float
        Pieces are written if writing has taken at most ``share`` of the time, or ``interval`` seconds after the last.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as parent:
    ...     for attempt in range(2):
    ...         with suppress(KeyboardInterrupt), checkpointing(Path(parent) / "run", {"seed": 0}):
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
        with mark_partial_files(mark):
            yield
            checkpoint.remove()
    except BaseException:
        with suppress(OSError), mark_partial_files(mark):
            checkpoint.flush()
        if checkpoint.is_empty:
            checkpoint.remove()
        raise
    finally:
        _current.reset(token)


def _prepare(folder: Path, details: dict[str, Any]) -> str:
    """Create the folder or check that it belongs to the same run; return the mark of the run's partial files."""
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"{folder} is a file; a checkpoint is a folder: pass another path.")
    if not folder.absolute().parent.is_dir():
        raise FileNotFoundError(f"There is no folder {folder.parent} to make {folder.name} in; create it first.")
    folder.mkdir(exist_ok=True)
    manifest = _read_manifest(folder / MANIFEST)
    if manifest is None:
        foreign = sorted(path.name for path in folder.iterdir() if not FILE_NAME.fullmatch(path.name))
        if foreign:
            raise CheckpointError(
                f"{folder} is not a checkpoint and not empty (it holds {foreign[0]}); pass a new folder."
            )
        manifest = {"library": "labelgap", "format": FORMAT, "mark": uuid.uuid4().hex, "fingerprint": details}
        with write_atomically(folder / MANIFEST) as stream:
            stream.write(json.dumps(manifest, indent=1).encode())
    stored = manifest["fingerprint"]
    changed = sorted(name for name in stored.keys() | details.keys() if stored.get(name) != details.get(name))
    if changed:
        raise CheckpointError(
            f"{folder} is the checkpoint of another run, which differs in {', '.join(changed)}; remove that folder "
            "to start again, or pass another one."
        )
    return manifest["mark"]


def _read_manifest(path: Path) -> dict[str, Any] | None:
    """Return the manifest; None if labelgap did not write one."""
    try:
        manifest = json.loads(path.read_bytes())
        is_ours = manifest["library"] == "labelgap" and manifest["format"] == FORMAT
        has_fields = isinstance(manifest["mark"], str) and isinstance(manifest["fingerprint"], dict)
        return manifest if is_ours and has_fields else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _list_files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if FILE_NAME.fullmatch(path.name)] if folder.is_dir() else []


def _write_piece(path: Path, arrays: Arrays) -> None:
    for name, array in arrays.items():
        if array.dtype.hasobject:
            raise TypeError(f"{name} holds Python objects, which a checkpoint cannot store.")
    named: Any = {f"array.{name}": array for name, array in arrays.items()}
    with write_atomically(path) as stream:
        np.savez(stream, checksum=_compute_checksum(arrays), **named)


def _read_piece(path: Path) -> Arrays | None:
    try:
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as members:
            expected = members["checksum"]
            arrays = {name.removeprefix("array."): members[name] for name in members.files if name != "checksum"}
    except Exception:  # damaged files raise any error; the piece is computed again
        return None
    return arrays if np.array_equal(expected, _compute_checksum(arrays)) else None


def _compute_checksum(arrays: Arrays) -> NDArray[np.uint8]:
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        if array.size:
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return np.frombuffer(digest.digest(), np.uint8)
