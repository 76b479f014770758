"""Functions that the benchmarks share: data, timing, printing."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
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
