"""Functions that the benchmarks share: data, timing, printing."""

from __future__ import annotations

import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.preprocessing import normalize

from labelgap.datasets import Dataset, load_dataset
from labelgap.runtime import n_threads


def best_of(work: Callable[[], Any], repeats: int = 5) -> float:
    """Return the seconds of the fastest of several runs."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


class Cost:
    """Processor seconds, and the memory that a piece of work adds at most, in MB, sampled every 20 ms.

    >>> with Cost() as cost:
    ...     numbers = np.ones(4_000_000)
    >>> 0 <= cost.megabytes < 1000
    True
    """

    seconds: float
    megabytes: float

    def __enter__(self) -> Cost:
        self._done, self._largest = threading.Event(), 0.0
        self._memory, self._start = _used_megabytes(), time.process_time()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.process_time() - self._start
        self._done.set()
        self._thread.join()
        self.megabytes = self._largest - self._memory

    def _watch(self) -> None:
        while True:
            self._largest = max(self._largest, _used_megabytes())
            if self._done.wait(0.02):
                return


def _used_megabytes() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def normalised(name: str) -> tuple[Dataset, Any, Any]:
    """Return a dataset, and its training and test rows scaled to unit length."""
    if "LABELGAP_DATA" not in os.environ:
        sys.exit("This benchmark needs real data: set LABELGAP_DATA to the folder that contains the data sets.")
    dataset = load_dataset(name)
    return dataset, normalize(dataset.X_train), normalize(dataset.X_test)


def show(title: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table, and the threads and versions it was measured with."""
    table = Table(*header, title=title)
    for row in rows:
        table.add_row(*(f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row))
    console = Console(width=120)
    console.print(table)
    console.print(f"{n_threads()} threads, Python {platform.python_version()}, NumPy {np.__version__}\n")


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Return the slope of log(seconds) against log(size): 1 is linear."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
