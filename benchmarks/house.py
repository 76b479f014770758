"""Measure the size of the source, and how much of it a call passes through.

Run ``python -m benchmarks.house [--json FILE] [--dense]``. It measures the labelgap that Python imports, so
``PYTHONPATH=<tree>/src`` selects another tree. ``--compare BEFORE.json AFTER.json`` prints two measurements in one
table.

Source
    Files and lines below ``src/labelgap``; the median file; files under 60 lines; functions with a body over 60 lines
    (docstring excluded, blank lines and comments included); private functions that their file uses once; pairs of
    rooms of which one imports the other, and the import statements between rooms. A room is a module or a package
    directly below labelgap. The papers' package is counted apart.
Classes
    Classes of labelgap in an estimator's MRO, and the functions, properties and methods in their bodies.
Calls
    Files and functions of labelgap that a call enters, in all threads, in the second of two equal calls, when
    everything is imported and compiled. A lambda or comprehension counts once per function;
    "named" excludes them.
    Compiled kernels and the methods that ``dataclass`` and ``NamedTuple`` generate do not count. Depth is the largest
    number of labelgap frames on one stack.
    Estimators run on small sparse data with one thread (``--dense``: dense features). Commands run in this process on
    a table of 120 texts; the verdict is a POST to the review service until its answer.
"""

from __future__ import annotations

import argparse
import ast
import copy
import csv
import json
import os
import platform
import re
import statistics
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, redirect_stdout
from functools import cached_property, partial
from io import StringIO
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

import labelgap
from labelgap import LEML, OneClassMF, OneClassMFCV
from labelgap.datasets import make_low_rank

SOURCE = Path(labelgap.__file__).parent
PAPERS = SOURCE.parent.parent / "papers"
PREFIX = f"{SOURCE}{os.sep}"
ROWS, FEATURES, LABELS, RANK = 200, 30, 12, 4
FIRST_ROWS, FIRST_LABELS = 150, 10
LONG_BODY = SMALL_FILE = 60  # lines
SHORT_BODY = 4  # lines
METHODS = (FunctionType, property, classmethod, staticmethod, cached_property)

# Prepares data and returns the call to trace.
Preparation = Callable[[], Callable[[], Any]]


# --- classes --------------------------------------------------------------------------------------------------------


def our_classes(cls: type) -> list[type]:
    """Return the classes of labelgap in the MRO of a class, itself first."""
    return [base for base in cls.__mro__ if base.__module__.split(".")[0] == "labelgap"]


def count_methods(cls: type) -> int:
    """Return the number of methods in the body of a class, aliases excluded."""
    return len({id(value) for value in vars(cls).values() if isinstance(value, METHODS)})


def measure_class(cls: type) -> dict[str, Any]:
    """Return the number of classes and methods that make up an estimator."""
    methods = {base.__name__: count_methods(base) for base in our_classes(cls)}
    return {"classes": len(methods), "methods": sum(methods.values()), "methods of each": methods}


def estimators() -> dict[str, type]:
    """Return the exported estimators by name."""
    values = {name: getattr(labelgap, name) for name in labelgap.__all__}
    return {
        name: value for name, value in values.items() if isinstance(value, type) and issubclass(value, BaseEstimator)
    }


def measure_inheritance() -> dict[str, Any]:
    """Return the largest number of labelgap classes above an exported estimator, and which estimators have it."""
    above = {name: len(our_classes(cls)) - 1 for name, cls in estimators().items()}
    most = max(above.values())
    return {"most": most, "of": sorted(name for name, number in above.items() if number == most), "of each": above}


# --- calls ----------------------------------------------------------------------------------------------------------


class Trace:
    """The functions of labelgap that a call enters, in all threads."""

    def __init__(self) -> None:
        self.entered: set[tuple[str, str]] = set()
        self.local = threading.local()
        self.deepest = [0, 0]  # of all functions, of named ones

    def run(self, call: Callable[[], Any]) -> dict[str, int]:
        """Run a call and return the numbers of files and functions that it enters, and its depth."""
        PROFILER.trace = self
        sys.setprofile(PROFILER)
        try:
            call()
        finally:
            sys.setprofile(None)
            PROFILER.trace = None
        return {
            "files": len({file for file, _ in self.entered}),
            "functions": len(self.entered),
            "depth": self.deepest[0],
            "named functions": sum(is_named(name) for _, name in self.entered),
            "named depth": self.deepest[1],
        }

    def record(self, code: Any, event: str) -> None:
        """Note that a function is entered or left."""
        depth = self.local.__dict__.setdefault("depth", [0, 0])
        for kind, counts in enumerate((True, is_named(code.co_qualname))):
            depth[kind] += counts * (1 if event == "call" else -1)
            self.deepest[kind] = max(self.deepest[kind], depth[kind])
        self.entered.add((code.co_filename, code.co_qualname))


class Profiler:
    """The profile function of all threads: it passes the functions of labelgap on to a trace, if one is running.

    A service starts its threads before the traced call, so the threads need a profile function from the start.
    """

    trace: Trace | None = None

    def __call__(self, frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        if self.trace is not None and event in ("call", "return") and code.co_filename.startswith(PREFIX):
            self.trace.record(code, event)


PROFILER = Profiler()


def is_named(qualified: str) -> bool:
    """Return False for a lambda, a comprehension or a generator expression.

    >>> is_named("LEML.fit"), is_named("LEML.fit.<locals>.<lambda>")
    (True, False)
    """
    return not qualified.endswith(">")


def estimator_calls(dense: bool) -> dict[str, Preparation]:
    """Return the calls of estimators to trace, by name."""
    data = make_low_rank(ROWS, FEATURES, LABELS, RANK, density=0.3, random_state=0)
    X, Y = data.X.toarray() if dense else data.X, data.Y  # type: ignore[union-attr]
    past, further = (X[:FIRST_ROWS], Y[:FIRST_ROWS, :FIRST_LABELS]), (X[FIRST_ROWS:], Y[FIRST_ROWS:])

    def fit(cls: type) -> Preparation:
        return lambda: partial(cls(RANK, random_state=0, n_jobs=1).fit, X, Y)

    def update(cls: type, **rows: Any) -> Preparation:
        model = cls(RANK, random_state=0, n_jobs=1).fit(*past)
        return lambda: partial(copy.deepcopy(model).partial_fit, *further, **rows)

    calls = {f"{cls.__name__}.fit": fit(cls) for cls in (LEML, OneClassMF, OneClassMFCV)}
    for cls in (LEML, OneClassMF):
        calls[f"{cls.__name__}.partial_fit"] = update(cls)
        calls[f"{cls.__name__}.partial_fit, past"] = update(cls, past=past)
    return calls


def write_table(path: Path) -> None:
    """Write a table of 120 texts with tags that their words suggest, one in five of them missing."""
    rng = np.random.default_rng(0)
    topics = {
        tag: [f"{tag}{i}" for i in range(6)] for tag in ("motor", "sensor", "arduino", "camera", "drone", "ros")
    }
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "title", "content", "tags"])
        for i in range(120):
            tags = rng.choice(list(topics), 2, replace=False)
            words = [word for tag in tags for word in rng.choice(topics[tag], 3)]
            recorded = [tag for tag in tags if rng.random() < 0.8] or tags[:1]
            writer.writerow([i, " ".join(words[:3]), " ".join(words[3:]), ",".join(recorded)])


def command_calls(folder: Path) -> dict[str, Preparation]:
    """Return the commands to trace, by name."""
    from labelgap.cli import app

    table, model = folder / "posts.csv", folder / "model.lgap"
    write_table(table)
    columns = ["--text", "title,content", "--tags", "tags"]

    def run(*words: Any) -> Preparation:
        def call() -> None:
            with redirect_stdout(StringIO()):
                app([str(word) for word in words], standalone_mode=False)

        return lambda: call

    fit = ["fit", table, *columns, "--seed", "0", "--quiet"]
    run(*fit, "--output", model)()()
    leml = [*fit, "--method", "LEML", "--n-components", "3", "--output", folder / "leml.lgap"]
    return {
        "labelgap fit": run(*fit, "--output", folder / "other.lgap"),
        "labelgap fit --method LEML": run(*leml),
        "labelgap predict": run("predict", table, "--model", model, "--output", folder / "predictions.csv"),
        "labelgap audit": run("audit", table, "--model", model, "--output", folder / "audit.csv", "--quiet"),
        "labelgap audit, LEML": run(
            "audit", table, "--model", folder / "leml.lgap", "--output", folder / "audit.csv", "--quiet"
        ),
    }


def verdict_call(folder: Path, stack: ExitStack) -> Preparation:
    """Return the call that posts a verdict to a review service."""
    from starlette.testclient import TestClient

    from labelgap import load
    from labelgap.serve import create_app
    from labelgap.serve.reviews import add_page, make_extension

    model = folder / "model.lgap"
    extension = make_extension(folder / "reviews.db", folder / "posts.csv", model_path=model, folds=2)
    app = create_app({"posts": load(model)}, extensions=[extension, add_page])
    client = stack.enter_context(TestClient(app, base_url="http://127.0.0.1:8000"))
    for _ in range(600):
        if queue := client.get("/review/queue").json()["suggestions"]:
            break
        time.sleep(0.1)
    keys = iter(range(10_000, 99_999))

    def call() -> None:
        card = queue[0]
        sent = {"key": f"key-{next(keys)}", "row": card["row"], "label": card["label"], "verdict": "accept"}
        answer = client.post("/review/verdicts", json=sent)
        assert answer.status_code == 200, answer.text

    return lambda: call


def measure_call(prepare: Preparation) -> dict[str, int]:
    """Return the figures of a second call."""
    prepare()()
    return Trace().run(prepare())


def measure_calls(dense: bool) -> dict[str, dict[str, int]]:
    """Return the figures of all calls."""
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        warnings.simplefilter("ignore")
        threading.setprofile(PROFILER)
        stack.callback(threading.setprofile, None)
        calls = estimator_calls(dense) | command_calls(Path(name))
        figures = {what: measure_call(prepare) for what, prepare in calls.items()}
        return figures | {"a verdict": measure_call(verdict_call(Path(name), stack))}


# --- source ---------------------------------------------------------------------------------------------------------

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(node: ast.AST, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Function]]:
    """Yield the functions below a node with their qualified names."""
    for child in ast.iter_child_nodes(node):
        name = getattr(child, "name", None)
        inside = (*path, name) if isinstance(name, str) and hasattr(child, "body") else path
        if isinstance(child, Function):
            yield ".".join(inside), child
        yield from functions(child, inside)


def body_lines(function: Function) -> int:
    """Return the number of lines of a body, from the first statement after the docstring.

    >>> body_lines(ast.parse("def f():\\n    '''What.'''\\n\\n    a = 1\\n\\n    return a").body[0])
    3
    """
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def single_use_functions(tree: ast.Module) -> list[Function]:
    """Return the private functions of a module that the module uses once.

    >>> tree = ast.parse("def _a(): ...\\ndef _b(): _a()\\ndef c(): _b(); _b()")
    >>> [function.name for function in single_use_functions(tree)]
    ['_a']
    """
    names = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
    names += [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    uses = Counter(names)
    return [
        function
        for _, function in functions(tree)
        if re.match(r"_[^_]", function.name) and not function.decorator_list and uses[function.name] == 1
    ]


def room_imports(path: Path, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield (room, imported room) for each import statement of a module that leaves its room."""
    here = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        for name in names:
            package, _, room = name.partition(".")
            if package == "labelgap" and room.split(".")[0] not in ("", here):
                yield here, room.split(".")[0]


def measure_source() -> dict[str, Any]:
    """Return the figures of the files."""
    files = {path: path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py"))}
    lines = [text.count("\n") for text in files.values()]
    trees = {path: ast.parse(text) for path, text in files.items()}
    long_bodies = [
        (f"{path.relative_to(SOURCE).as_posix()}:{name}", body_lines(function))
        for path, tree in trees.items()
        for name, function in functions(tree)
        if body_lines(function) > LONG_BODY
    ]
    single = [function for tree in trees.values() for function in single_use_functions(tree)]
    crossings = [crossing for path, tree in trees.items() for crossing in room_imports(path, tree)]
    papers = [path.read_text(encoding="utf-8").count("\n") for path in PAPERS.rglob("*.py")]
    return {
        "figures": {
            "files": len(files),
            "lines": sum(lines),
            "median file": statistics.median(lines),
            f"files under {SMALL_FILE} lines": sum(number < SMALL_FILE for number in lines),
            "largest file": max(lines),
            "private functions used once": len(single),
            f"… with a body of at most {SHORT_BODY} lines": sum(body_lines(f) <= SHORT_BODY for f in single),
            "pairs of rooms that import": len(set(crossings)),
            "imports between rooms": len(crossings),
            f"functions of more than {LONG_BODY} lines": len(long_bodies),
            "files of the papers' package": len(papers),
            "lines of the papers' package": sum(papers),
        },
        "long functions": sorted(long_bodies, key=lambda pair: -pair[1]),
    }


# --- tables ---------------------------------------------------------------------------------------------------------


def measure(dense: bool) -> dict[str, Any]:
    """Return all figures of the imported labelgap."""
    return {
        "python": platform.python_version(),
        "features": "dense" if dense else "sparse",
        "source": measure_source(),
        "classes": {cls.__name__: measure_class(cls) for cls in (LEML, OneClassMF)},
        "calls": measure_calls(dense),
        "classes above": measure_inheritance(),
    }


def table_rows(figures: dict[str, Any]) -> dict[str, Any]:
    """Return the figures as the rows of a table."""
    table: dict[str, Any] = dict(figures["source"]["figures"])
    for name, numbers in figures["classes"].items():
        table |= {f"{name}: {what}": numbers[what] for what in ("classes", "methods")}
    for name, numbers in figures["calls"].items():
        table |= {f"{name}: {what}": number for what, number in numbers.items()}
    table["most classes above an estimator"] = figures["classes above"]["most"]
    table["… of these estimators"] = ", ".join(figures["classes above"]["of"])
    return table


def markdown(header: Sequence[str], lines: Sequence[Sequence[Any]]) -> str:
    """Return a Markdown table.

    >>> print(markdown(["a", "b"], [[1, 2]]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    text = ["| " + " | ".join(map(str, line)) + " |" for line in (header, *lines)]
    return "\n".join([text[0], "|" + "---|" * len(header), *text[1:]])


def compare(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Return a table of two measurements."""
    old, new = table_rows(before), table_rows(after)
    lines = []
    for name in [*old, *(name for name in new if name not in old)]:
        pair = old.get(name, ""), new.get(name, "")
        change = f"{pair[1] - pair[0]:+g}" if all(isinstance(value, int | float) for value in pair) else ""
        lines.append((name, *pair, change))
    return markdown(("what", "before", "after", "change"), lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--dense", action="store_true", help="trace the estimators with dense features")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("BEFORE", "AFTER"), help="files that --json wrote")
    options = parser.parse_args()
    if options.compare:
        print(compare(*(json.loads(path.read_text(encoding="utf-8")) for path in options.compare)))
        return
    figures = measure(options.dense)
    print(f"labelgap in {SOURCE}, Python {figures['python']}, {figures['features']} features\n")
    print(markdown(("what", "figure"), list(table_rows(figures).items())))
    for name, lines in figures["source"]["long functions"]:
        print(f"{lines} lines: {name}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
