"""Published tables and figures, run again: the numbers that papers print next to those that labelgap reaches.

Each paper has one module (``leml_tables.py``) and one file of published numbers (``published/leml.json``). The module
lists its :class:`Experiment` objects in ``EXPERIMENTS`` and registers the methods that its tables compare.
"""

from labelgap_papers.experiments import (
    Experiment,
    Report,
    RunOptions,
    Setting,
    TableRow,
    find_experiments,
    list_experiments,
)
from labelgap_papers.reproduce_command import run

__all__ = [
    "Experiment",
    "Report",
    "RunOptions",
    "Setting",
    "TableRow",
    "find_experiments",
    "list_experiments",
    "run",
]
