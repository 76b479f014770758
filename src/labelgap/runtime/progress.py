"""Long work: its named scopes, its progress, and files that are complete or absent."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from functools import partial
from itertools import count
from pathlib import Path
from typing import IO, Any

# Takes the total number of steps, a title and the number of steps done; gives a function that reports one more step.
Display = Callable[[int | None, str, int], AbstractContextManager[Callable[[str], None]]]

_scope: ContextVar[tuple[str, ...]] = ContextVar("labelgap_scope", default=())
_display: ContextVar[Display | None] = ContextVar("labelgap_display", default=None)
_partial_mark: ContextVar[str | None] = ContextVar("labelgap_partial_mark", default=None)


@contextmanager
def set_variable(variable: ContextVar, value: Any) -> Iterator[None]:
    """Set a context variable for a block."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


# --- scopes ---------------------------------------------------------------------------------------------------------


def current_scope() -> tuple[str, ...]:
    """Return the names of the enclosing :func:`scope` blocks, the outermost first."""
    return _scope.get()


@contextmanager
def scope(name: str) -> Iterator[None]:
    """Name a part of the work, so that checkpoints of different parts do not collide.

    >>> with scope("fold 3"), scope("LEML"):
    ...     current_scope()
    ('fold 3', 'LEML')
    """
    with set_variable(_scope, (*_scope.get(), name)):
        yield


# --- progress -------------------------------------------------------------------------------------------------------


@contextmanager
def progress(total: int | None, title: str, verbose: int, done: int = 0) -> Iterator[Callable[[str], None]]:
    """Show the progress of a long task: nothing for ``verbose=0``, a bar for 1, a line for each step from 2 on.

    ``total`` is the number of steps, None if it is unknown; ``done`` of them are complete already. The display of
    :func:`report_progress` is updated for any ``verbose``.

    >>> with progress(2, "Work", verbose=2) as advance:
    ...     advance("first")
    ...     advance("second")
    Work 1/2: first
    Work 2/2: second
    """
    reported = _display.get()
    displays: list[Display] = [] if reported is None else [reported]
    if verbose > 1:
        displays.append(_print_lines)
    elif verbose == 1 and reported is None:
        displays.append(_show_bar)
    with _show_all(displays, total, title, done) as advance:
        yield advance


@contextmanager
def _show_all(displays: list[Display], total: int | None, title: str, done: int) -> Iterator[Callable[[str], None]]:
    with ExitStack() as stack:
        updates = [stack.enter_context(display(total, title, done)) for display in displays]

        def advance(message: str) -> None:
            for update in updates:
                update(message)

        yield advance


def is_reporting() -> bool:
    """Return whether a display of :func:`report_progress` exists."""
    return _display.get() is not None


@contextmanager
def report_progress(display: Display, *, also: bool = False) -> Iterator[None]:
    """Report every :func:`progress` of the block to a display, whatever its ``verbose`` is.

    With ``also`` the display of the enclosing block is kept beside it.
    """
    outer = _display.get() if also else None
    with set_variable(_display, display if outer is None else partial(_show_all, [outer, display])):
        yield


@contextmanager
def hide_progress(total: int | None, title: str, done: int) -> Iterator[Callable[[str], None]]:
    """Show nothing; a display for :func:`report_progress`."""
    yield lambda message: None


@contextmanager
def _print_lines(total: int | None, title: str, done: int) -> Iterator[Callable[[str], None]]:
    numbers, suffix = count(done + 1), "" if total is None else f"/{total}"
    yield lambda message: print(f"{title} {next(numbers)}{suffix}: {message}")


@contextmanager
def _show_bar(total: int | None, title: str, done: int) -> Iterator[Callable[[str], None]]:
    with progress_bars() as display, display(total, title, done) as advance:
        yield advance


@contextmanager
def progress_bars(**options: Any) -> Iterator[Display]:
    """Give a display with a bar for each running task; ``options`` are those of rich's Progress."""
    from rich.progress import Progress, TextColumn

    columns = TextColumn("{task.description}", markup=False), *Progress.get_default_columns()[1:]
    with Progress(*columns, transient=True, **options) as bars:

        @contextmanager
        def show_bar(total: int | None, title: str, done: int) -> Iterator[Callable[[str], None]]:
            task = bars.add_task(title, total=total, completed=done)
            try:
                yield lambda message: bars.update(task, advance=1, description=f"{title}: {message}")
            finally:
                bars.refresh()  # also shows tasks that end before the next refresh
                bars.remove_task(task)

        yield show_bar


# --- files ----------------------------------------------------------------------------------------------------------


def check_file(path: Path, *, folder: bool = False) -> None:
    """Raise FileNotFoundError or IsADirectoryError if the path is not a file, or a folder if these are allowed."""
    if folder and path.is_dir():
        return
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; pass a file in it.")
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}; check the path.")


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk, where the system can do that."""
    if os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def write_atomically(path: str | os.PathLike) -> Iterator[IO[bytes]]:
    """Open a binary file for writing that appears under its name only when the block succeeds.

    A block that raises leaves nothing behind.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with write_atomically(Path(folder) / "a") as stream:
    ...         _ = stream.write(b"text")
    ...     (Path(folder) / "a").read_text()
    'text'
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {path.parent} to write {path.name} into; create it first.")
    partial = path.with_name(f".{path.name}.{_partial_mark.get() or uuid.uuid4().hex}.part")
    try:
        with open(partial, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())  # else the name could reach the disk before the contents
        os.replace(partial, path)
        sync_folder(path.parent)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def mark_partial_files(mark: str) -> Iterator[None]:
    """Put ``mark`` into the names of the block's partial files.

    A killed process leaves its partial file behind; the next process with the same mark overwrites it.
    """
    with set_variable(_partial_mark, mark):
        yield
