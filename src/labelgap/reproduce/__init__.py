"""Published tables and figures, run again: what the papers report beside what this library reaches.

One module for each paper (``leml.py``), beside a file of its published numbers with the same name
(``published/leml.json``). A module lists its :class:`Experiment` s in ``EXPERIMENTS``; nothing else names it.
"""

from labelgap.reproduce.records import Experiment, Options, Report, Row, Setting
from labelgap.reproduce.registry import find_experiments, list_experiments
from labelgap.reproduce.runner import run

__all__ = ["Experiment", "Options", "Report", "Row", "Setting", "find_experiments", "list_experiments", "run"]
