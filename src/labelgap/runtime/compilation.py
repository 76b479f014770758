"""Compiled functions: cached across processes, and announced while they compile."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from labelgap.runtime.progress import is_reporting, progress

TITLE = "Compiling (once; the result is cached)"


def compile_loops(**options: Any) -> Callable[[Any], Any]:
    """Return a decorator that compiles a function with Numba when it is first called, without the GIL.

    Machine code is cached next to the source or, if that folder cannot be written, in the user's cache folder
    (``NUMBA_CACHE_DIR`` names another one). Where neither can be written each process compiles for itself.

    >>> double = compile_loops()(lambda x: 2 * x)
    >>> double(4)
    8
    """
    from numba import njit

    _announce_compilation()

    def decorate(function: Any) -> Any:
        try:
            return njit(nogil=True, cache=True, **options)(function)
        except RuntimeError:  # there is no folder for the cache
            return njit(nogil=True, **options)(function)

    return decorate


class _Announcements(threading.local):
    """The compilations under way in a thread; one may cause others, and only the outermost is announced."""

    depth = 0
    task: AbstractContextManager[Any] | None = None

    def begin(self) -> None:
        """Announce a compilation."""
        self.depth += 1
        if self.depth > 1:
            return
        if is_reporting():
            self.task = progress(None, TITLE, 0)
            self.task.__enter__()
        elif sys.stderr is not None and sys.stderr.isatty():
            print(f"labelgap: {TITLE[0].lower()}{TITLE[1:]} …", file=sys.stderr)

    def end(self) -> None:
        """Take the announcement back."""
        self.depth -= 1
        if self.depth == 0 and self.task is not None:
            task, self.task = self.task, None
            task.__exit__(None, None, None)


_announcements = _Announcements()


@cache
def _announce_compilation() -> None:
    """Let Numba tell when it compiles; loading from the cache is no compilation."""
    from numba.core import event

    class CompilationListener(event.Listener):
        """Passes the beginning and the end of compilations on."""

        def on_start(self, event: Any) -> None:
            _announcements.begin()

        def on_end(self, event: Any) -> None:
            _announcements.end()

    event.register("numba:compile", CompilationListener())
