"""Measurements that outlive a run: a file with a line for each finished fit, and the version of its code."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from functools import cache, partial
from pathlib import Path
from statistics import median
from types import FunctionType
from typing import Any, NamedTuple

from labelgap_papers.experiments import Measurement, Setting

OBJECT_ADDRESS = re.compile(r" at 0x\w+")
CONSTANTS = (bool, int, float, str, tuple, list, dict)
# Rows × labels in millions, for the cost of a fit that nobody has timed; other datasets are small.
SIZES = {"delicious": 13.0, "mediamill": 3.0, "eurlex": 60.0, "ml-100k": 1.5, "yeast": 0.1}
SMALL_SIZE = 0.5
SECONDS_PER_SIZE = 20.0  # of a search with a few dozen fits


class Key(NamedTuple):
    """What a measurement is of: a setting, a seed, and the kind of computation, such as "fit"."""

    setting: Setting
    seed: int
    kind: str = "fit"


@dataclass(frozen=True)
class Entry:
    """The measurements of a key and the version of the code that made them."""

    measurements: list[Measurement]
    version: str

    @property
    def seconds(self) -> float:
        """The time of the fit and its search."""
        return self.measurements[-1].seconds


class Journal:
    """Measurements in a file of JSON lines; without a path they are kept in memory.

    A line is on the disk before :meth:`add` returns. A line that a killed process has written in part is ignored, and
    of several lines of a key the last one counts.

    Parameters
    ----------
    path : Path, optional
        The file; it is created with the first line.

    Examples
    --------
    >>> journal, key = Journal(), Key(Setting("bibtex", "LEML", "squared"), 0)
    >>> journal.add(key, [Measurement({"P@1": 63.0}, {}, 1.0, 9.0)], "v1")
    >>> journal.entries[key].seconds, journal.estimate(key._replace(seed=1))
    (9.0, 9.0)
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.entries: dict[Key, Entry] = {}
        self._seconds: dict[tuple, dict[str, list[float]]] = {}
        for key, entry in _read_lines(path) if path is not None and path.exists() else ():
            self._keep(key, entry)

    def _keep(self, key: Key, entry: Entry) -> None:
        self.entries[key] = entry
        self._seconds.setdefault(_group(key), {}).setdefault(key.setting.dataset, []).append(entry.seconds)

    def add(self, key: Key, measurements: list[Measurement], version: str) -> None:
        """Append the measurements of a key."""
        self._keep(key, Entry(measurements, version))
        if self.path is None:
            return
        record = {
            **asdict(key.setting),
            "seed": key.seed,
            "kind": key.kind,
            "version": version,
            "measurements": [asdict(m) for m in measurements],
        }
        with self.path.open("ab+") as stream:
            stream.seek(0, os.SEEK_END)
            if stream.tell():
                stream.seek(-1, os.SEEK_END)
                if stream.read(1) != b"\n":  # a killed process left part of a line
                    stream.write(b"\n")
            stream.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())

    def estimate(self, key: Key) -> float:
        """Return the expected seconds of a key from fits of the same method, or from the size of its data."""
        dataset = key.setting.dataset
        timed = self._seconds.get(_group(key), {})
        if dataset in timed:
            return median(timed[dataset])
        rates = [median(seconds) / _get_size(name) for name, seconds in timed.items()]
        return (median(rates) if rates else SECONDS_PER_SIZE) * _get_size(dataset)


def _group(key: Key) -> tuple[str, str, str]:
    """Return what fits of about the same cost per size have in common."""
    return key.setting.method, key.setting.loss, key.kind


def _get_size(dataset: str) -> float:
    return SIZES.get(dataset, SMALL_SIZE)


def _read_lines(path: Path) -> Iterator[tuple[Key, Entry]]:
    names = {field.name for field in fields(Setting)}
    for line in path.read_bytes().splitlines():
        try:
            record = json.loads(line)
        except ValueError:  # written in part
            continue
        setting = {name: record[name] for name in names}
        setting["criteria"] = tuple(setting["criteria"])
        measurements = [Measurement(**values) for values in record["measurements"]]
        yield Key(Setting(**setting), record["seed"], record["kind"]), Entry(measurements, record["version"])


# --- the version of a method ----------------------------------------------------------------------------------------


@cache
def compute_version(function: Callable) -> str:
    """Return a hash of the code that a function uses: its own, and all modules of labelgap that it reaches.

    Docstrings, comments and layout do not count. Other functions of its module count only if it calls them, so a
    change to one method does not touch the version of another.

    >>> from labelgap_papers.paper_methods import METHODS
    >>> from labelgap_papers import list_experiments
    >>> _ = list_experiments()  # registers the methods
    >>> compute_version(METHODS["LEML"].fit) == compute_version(METHODS["FastXML"].fit)
    False
    """
    texts: dict[str, str] = {}
    modules: set[str] = set()
    _collect("", function, texts, modules)
    for name in _follow_imports(modules):
        texts[name] = _read_code(name)
    return hashlib.sha256(repr(sorted(texts.items())).encode()).hexdigest()[:12]


def _collect(name: str, value: Any, texts: dict[str, str], modules: set[str]) -> None:
    """Add the code and the constants of this package that a value uses, and the modules of labelgap it refers to."""
    module = getattr(value, "__module__", None) or ""
    if isinstance(value, partial):
        for number, part in enumerate((value.func, *value.args, *value.keywords.values())):
            _collect(f"{name}[{number}]", part, texts, modules)
    elif isinstance(value, CONSTANTS):
        texts[f"{name} ="] = OBJECT_ADDRESS.sub("", repr(value))
    elif isinstance(value, FunctionType) and module.startswith("labelgap_papers."):
        _collect_definition(value, texts, modules)
    elif type(value).__module__.startswith("labelgap_papers."):  # an object whose methods a function calls
        texts[f"{name} ="] = OBJECT_ADDRESS.sub("", repr(value))
        _collect_definition(type(value), texts, modules)
    elif module.startswith("labelgap.") and hasattr(value, "__qualname__"):
        modules.add(module)


def _collect_definition(value: Any, texts: dict[str, str], modules: set[str]) -> None:
    """Add the code of a function or class of this package, and what it uses."""
    name, tree = f"{value.__module__}.{value.__qualname__}", _find_definition(value)
    if tree is None or name in texts:
        return
    texts[name] = ast.unparse(tree)
    values = vars(sys.modules[value.__module__])
    if isinstance(value, FunctionType) and value.__closure__:
        cells = zip(value.__code__.co_freevars, value.__closure__, strict=True)
        values = values | {used: cell.cell_contents for used, cell in cells}
    for used in sorted({node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}):
        _collect(used, values.get(used), texts, modules)


def _find_definition(value: Any) -> ast.AST | None:
    """Return the definition of a function or class, without docstring and decorators."""
    definition: Any = _parse_module(value.__module__)
    if value.__name__ == "<lambda>" and definition is not None:
        nodes = (node for node in ast.walk(definition) if isinstance(node, ast.Lambda))
        return next((node for node in nodes if node.lineno == value.__code__.co_firstlineno), None)
    for part in value.__qualname__.replace(".<locals>", "").split("."):
        nodes = (node for node in getattr(definition, "body", ()) if getattr(node, "name", None) == part)
        definition = next(nodes, None)
    if definition is not None:
        definition.decorator_list = []
    return definition


@cache
def _find_source(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    return None if spec is None or spec.origin is None else Path(spec.origin)


@cache
def _parse_module(name: str) -> ast.Module | None:
    """Return the code of a module without docstrings."""
    path = _find_source(name)
    if path is None:
        return None
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return tree


@cache
def _read_code(name: str) -> str:
    tree = _parse_module(name)
    return "" if tree is None else ast.unparse(tree)


@cache
def _list_imports(name: str) -> frozenset[str]:
    """Return the modules of labelgap that a module imports; importing from a package reaches all its modules."""
    tree, imported = _parse_module(name), set()
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "labelgap":
            path = _find_source(node.module)
            if path is not None and path.name == "__init__.py" and node.module != "labelgap":
                imported |= {f"{node.module}.{file.stem}" for file in path.parent.glob("*.py") if file.stem[0] != "_"}
            elif node.module != "labelgap":
                imported.add(node.module)
    return frozenset(imported)


def _follow_imports(modules: set[str]) -> set[str]:
    reached, waiting = set(), list(modules)
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += _list_imports(name)
    return reached
