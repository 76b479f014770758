"""Which experiments there are: one module for each file of published numbers."""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from labelgap.reproduce.records import Experiment, Setting

_PUBLISHED = files("labelgap.reproduce") / "published"
_SHARED = ("criteria", "split", "empty")  # what a file says once, for the settings of all its numbers


@dataclass(frozen=True)
class Published:
    """One number that a paper prints: P@k and nDCG@k in percent, Hamming loss and AUC as shares.

    ``value`` is None where the paper has no number for the data at hand.
    """

    table: int | str
    setting: Setting
    metric: str
    value: float | None


@cache
def published(paper: str) -> tuple[str, tuple[Published, ...]]:
    """Return what to cite and every number of a paper's file.

    >>> citation, numbers = published("leml")
    >>> numbers[0].setting.dataset, numbers[0].metric, numbers[0].value
    ('bibtex', 'P@3', 34.16)
    """
    content = json.loads((_PUBLISHED / f"{paper}.json").read_text(encoding="utf-8"))
    shared = {name: content[name] for name in _SHARED if name in content}
    if "criteria" in shared:
        shared["criteria"] = tuple(shared["criteria"])
    return content["paper"], tuple(_number(record, shared) for record in content["records"])


def _number(record: dict[str, Any], shared: dict[str, Any]) -> Published:
    own = {name: record[name] for name in ("table", "metric", "value")}
    return Published(setting=Setting(**{k: v for k, v in record.items() if k not in own}, **shared), **own)


@cache
def list_experiments() -> dict[str, Experiment]:
    """Return all experiments by name.

    >>> list_experiments()["leml/table-5"].title
    'Missing labels: 20 % of the cells known, k = 0.4 L, squared loss'
    """
    names = sorted(entry.name for entry in _PUBLISHED.iterdir())
    papers = [name.removesuffix(".json") for name in names if name.endswith(".json")]
    importlib.import_module("labelgap.reproduce.baselines")  # registers the methods that several papers compare with
    modules = [importlib.import_module(f"labelgap.reproduce.{paper}") for paper in papers]
    return {experiment.name: experiment for module in modules for experiment in module.EXPERIMENTS}


def find_experiments(names: list[str]) -> list[Experiment]:
    """Return experiments by name, each once.

    >>> find_experiments(["leml/table-99"])
    Traceback (most recent call last):
    ...
    ValueError: 'leml/table-99' is no known experiment; `labelgap reproduce --list` shows them: leml/table-3, ...
    """
    known = list_experiments()
    for name in names:
        if name not in known:
            raise ValueError(
                f"{name!r} is no known experiment; `labelgap reproduce --list` shows them: {', '.join(known)}."
            )
    return [known[name] for name in dict.fromkeys(names)]
