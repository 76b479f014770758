"""Threads, places, progress, whole files, optional packages: what every room above needs and none of them owns.

One setting decides how many threads work: :func:`threads`. Our compiled kernels release the GIL and run in
row ranges on a shared pool; BLAS is limited to the same number. The two alternate, they never nest.
"""

from labelgap.runtime.files import optional, unfinished_marked, written_whole
from labelgap.runtime.reports import Display, bars, progress, reporting
from labelgap.runtime.workers import (
    available_cores,
    in_parallel,
    in_ranges,
    n_threads,
    place,
    threads,
    wide_blas,
    within,
)

__all__ = [
    "Display",
    "available_cores",
    "bars",
    "in_parallel",
    "in_ranges",
    "n_threads",
    "optional",
    "place",
    "progress",
    "reporting",
    "threads",
    "unfinished_marked",
    "wide_blas",
    "within",
    "written_whole",
]
