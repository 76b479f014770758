"""Threads, row blocks, progress, compilation, atomic files, optional packages: what all packages above use.

:func:`threads` is the one setting for the number of threads. Compiled kernels release the GIL and run on row ranges
in a shared pool of threads; BLAS is limited to the same number of threads. The two alternate and never nest.
"""

import importlib
from types import ModuleType

from labelgap.runtime.compilation import compile_loops
from labelgap.runtime.progress import (
    Display,
    check_file,
    current_scope,
    hide_progress,
    mark_partial_files,
    progress,
    progress_bars,
    report_progress,
    scope,
    write_atomically,
)
from labelgap.runtime.workers import (
    MAX_CELLS_PER_BLOCK,
    TaskRunner,
    available_cores,
    call_elsewhere,
    get_memory_limit,
    get_runner,
    has_memory_limit,
    limit_memory,
    map_ranges,
    multithreaded_blas,
    n_threads,
    offload,
    prepare_threads,
    row_blocks,
    row_bounds,
    run_parallel,
    threads,
)

__all__ = [
    "MAX_CELLS_PER_BLOCK",
    "Display",
    "TaskRunner",
    "available_cores",
    "call_elsewhere",
    "check_file",
    "compile_loops",
    "current_scope",
    "get_memory_limit",
    "get_runner",
    "has_memory_limit",
    "hide_progress",
    "import_optional",
    "limit_memory",
    "map_ranges",
    "mark_partial_files",
    "multithreaded_blas",
    "n_threads",
    "offload",
    "prepare_threads",
    "progress",
    "progress_bars",
    "report_progress",
    "row_blocks",
    "row_bounds",
    "run_parallel",
    "scope",
    "threads",
    "write_atomically",
]


def import_optional(package: str, extra: str) -> ModuleType:
    """Import an optional package; if it is missing, name the extra that installs it.

    >>> import_optional("json", "dev").__name__
    'json'
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ImportError(
            f"{package} is needed here and not installed; install it with `pip install labelgap[{extra}]`."
        ) from error
