"""How far long work is, for whoever looks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from itertools import count
from typing import Any

from labelgap.runtime.workers import set_within

Display = Callable[[int | None, str, int], AbstractContextManager[Callable[[str], None]]]

_display: ContextVar[Display | None] = ContextVar("labelgap_display", default=None)


@contextmanager
def progress(total: int | None, title: str, verbose: int, done: int = 0) -> Iterator[Callable[[str], None]]:
    """Show how far a long task is: nothing at 0, a bar at 1, a line for each step from 2 on.

    >>> with progress(2, "Work", verbose=2) as advance:
    ...     advance("first")
    ...     advance("second")
    Work 1/2: first
    Work 2/2: second

    ``total`` is None where nobody knows how many steps there will be; ``done`` are behind us already. Who called
    :func:`reporting` is told in any case.
    """
    watcher = _display.get()
    displays: list[Display] = [] if watcher is None else [watcher]
    if verbose > 1:
        displays.append(_lines)
    elif verbose == 1 and watcher is None:
        displays.append(_bar)
    with ExitStack() as opened:
        shown = [opened.enter_context(display(total, title, done)) for display in displays]

        def advance(message: str) -> None:
            for show in shown:
                show(message)

        yield advance


@contextmanager
def reporting(display: Display) -> Iterator[None]:
    """Tell a display of every :func:`progress` in the block, whatever its ``verbose`` is."""
    with set_within(_display, display):
        yield


@contextmanager
def _lines(total: int | None, title: str, done: int) -> Iterator[Callable[[str], None]]:
    counter, of = count(done + 1), "" if total is None else f"/{total}"
    yield lambda message: print(f"{title} {next(counter)}{of}: {message}")


@contextmanager
def _bar(total: int | None, title: str, done: int) -> Iterator[Callable[[str], None]]:
    with bars() as display, display(total, title, done) as advance:
        yield advance


@contextmanager
def bars(**options: Any) -> Iterator[Display]:
    """Give a display that has a bar for each task under way; ``options`` are those of rich's Progress."""
    from rich.progress import Progress, TextColumn

    columns = TextColumn("{task.description}", markup=False), *Progress.get_default_columns()[1:]
    with Progress(*columns, transient=True, **options) as shown:

        @contextmanager
        def bar(total: int | None, title: str, done: int) -> Iterator[Callable[[str], None]]:
            task = shown.add_task(title, total=total, completed=done)
            try:
                yield lambda message: shown.update(task, advance=1, description=f"{title}: {message}")
            finally:
                shown.refresh()  # so that quick work is seen too
                shown.remove_task(task)

        yield bar
