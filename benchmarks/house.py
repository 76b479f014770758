"""How large the house is that a call walks through. Run as ``python -m benchmarks.house [--json FILE] [--dense]``.

It measures the labelgap that is imported, so that ``PYTHONPATH=<tree>/src`` chooses the tree, and prints a table;
``--compare BEFORE.json AFTER.json`` prints two such measurements in one. What is counted:

- Classes of an estimator: those of labelgap in its MRO, itself included. Its methods: functions, properties, class
  methods and static methods in the bodies of these classes. One that overrides another is counted beside it, an alias
  of a method is not, and neither is what scikit-learn adds to a class.
- Files and functions of a call: the code objects of labelgap's files that are entered, by file and qualified name, in
  a second call, when everything is compiled and imported. Lambdas, comprehensions and generator expressions count as
  functions here, all those of one function that have the same name once; "named" is without any of them, and does not
  depend on the version of Python, which has inlined comprehensions since 3.12. Compiled kernels run without Python's
  notice, and methods that ``dataclass`` and ``NamedTuple`` write belong to no file: neither counts.
- Depth of a call: the most frames of labelgap that stand on each other, of the same two kinds; frames of other
  packages between them do not count.
- The toy data: sparse features and labels, every label known, one thread. ``--dense`` makes the features dense, which
  saves a function or two. In partial_fit a quarter of the rows, and two of the labels, are new.
- Long functions: those of which the lines from the first statement after the docstring to the last, blank lines and
  comments included, are more than 60.
- Classes above an estimator: as the first, itself left out, over all exported estimators.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import platform
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from types import FunctionType
from typing import Any

from sklearn.base import BaseEstimator

import labelgap
from labelgap import LEML, OneClassMF, OneClassMFCV
from labelgap.datasets import make_low_rank

SOURCE = Path(labelgap.__file__).parent
WITHIN = f"{SOURCE}{os.sep}"
ROWS, FEATURES, LABELS, RANK = 200, 30, 12, 4
FIRST_ROWS, FIRST_LABELS = 150, 10
LONG = 60
METHODS = (FunctionType, property, classmethod, staticmethod, cached_property)

# Prepares a model, and returns the call that is traced.
Call = Callable[[], Callable[[], Any]]


# --- classes --------------------------------------------------------------------------------------------------------


def our_classes(cls: type) -> list[type]:
    """Return the classes of labelgap in the MRO of a class, itself first."""
    return [base for base in cls.__mro__ if base.__module__.split(".")[0] == "labelgap"]


def own_methods(cls: type) -> int:
    """Return the number of methods in the body of a class; an alias is none."""
    return len({id(value) for value in vars(cls).values() if isinstance(value, METHODS)})


def measure_class(cls: type) -> dict[str, Any]:
    """Return the classes of an estimator, and the methods in their bodies."""
    classes = our_classes(cls)
    own = {base.__name__: own_methods(base) for base in classes}
    return {"classes": len(classes), "methods": sum(own.values()), "methods of each": own}


def estimators() -> dict[str, type]:
    """Return the exported estimators by name."""
    values = {name: getattr(labelgap, name) for name in labelgap.__all__}
    return {
        name: value for name, value in values.items() if isinstance(value, type) and issubclass(value, BaseEstimator)
    }


def most_above() -> dict[str, Any]:
    """Return the most classes of labelgap above an exported estimator, and which have so many."""
    above = {name: len(our_classes(cls)) - 1 for name, cls in estimators().items()}
    most = max(above.values())
    return {"most": most, "of": sorted(name for name, number in above.items() if number == most), "of each": above}


# --- calls ----------------------------------------------------------------------------------------------------------


class Trace:
    """What of labelgap a call enters."""

    def __init__(self) -> None:
        self.entered: set[tuple[str, str]] = set()
        self.frames, self.most = [0, 0], [0, 0]  # of all functions, and of those with a name

    def run(self, work: Callable[[], Any]) -> dict[str, int]:
        """Return the numbers of files and functions that a call enters, and its depth."""
        sys.setprofile(self._note)
        try:
            work()
        finally:
            sys.setprofile(None)
        return {
            "files": len({file for file, _ in self.entered}),
            "functions": len(self.entered),
            "depth": self.most[0],
            "named functions": sum(is_named(name) for _, name in self.entered),
            "named depth": self.most[1],
        }

    def _note(self, frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(WITHIN):
            return
        for kind, counts in enumerate((True, is_named(code.co_qualname))):
            self.frames[kind] += counts * (1 if event == "call" else -1)
            self.most[kind] = max(self.most[kind], self.frames[kind])
        self.entered.add((code.co_filename, code.co_qualname))


def is_named(qualified: str) -> bool:
    """Tell a function from a lambda, a comprehension and a generator expression.

    >>> is_named("LEML.fit"), is_named("LEML.fit.<locals>.<lambda>")
    (True, False)
    """
    return not qualified.endswith(">")


def calls(dense: bool) -> dict[str, Call]:
    """Return the calls to trace, by name."""
    data = make_low_rank(ROWS, FEATURES, LABELS, RANK, density=0.3, random_state=0)
    X, Y = data.X.toarray() if dense else data.X, data.Y  # type: ignore[union-attr]
    past, further = (X[:FIRST_ROWS], Y[:FIRST_ROWS, :FIRST_LABELS]), (X[FIRST_ROWS:], Y[FIRST_ROWS:])

    def fit(cls: type) -> Call:
        return lambda: partial(cls(RANK, random_state=0, n_jobs=1).fit, X, Y)

    def grow(cls: type, **rows: Any) -> Call:
        fitted = cls(RANK, random_state=0, n_jobs=1).fit(*past)
        return lambda: partial(copy.deepcopy(fitted).partial_fit, *further, **rows)

    found = {f"{cls.__name__}.fit": fit(cls) for cls in (LEML, OneClassMF, OneClassMFCV)}
    for cls in (LEML, OneClassMF):
        found[f"{cls.__name__}.partial_fit"] = grow(cls)
        found[f"{cls.__name__}.partial_fit, past"] = grow(cls, past=past)
    return found


def measure_call(call: Call) -> dict[str, int]:
    """Return the figures of a second call."""
    call()()
    return Trace().run(call())


# --- source ---------------------------------------------------------------------------------------------------------


def functions(
    node: ast.AST, path: tuple[str, ...] = ()
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield the functions below a node with their qualified names."""
    for child in ast.iter_child_nodes(node):
        name = getattr(child, "name", None)
        inside = (*path, name) if isinstance(name, str) and hasattr(child, "body") else path
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield ".".join(inside), child
        yield from functions(child, inside)


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the number of lines of a body, from the first statement after the docstring.

    >>> body_lines(ast.parse("def f():\\n    '''What.'''\\n\\n    a = 1\\n\\n    return a").body[0])
    3
    """
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def long_functions() -> list[tuple[str, int]]:
    """Return the functions with long bodies, as "file:name", and their lines, the longest first."""
    found = [
        (f"{path.relative_to(SOURCE).as_posix()}:{name}", body_lines(function))
        for path in sorted(SOURCE.rglob("*.py"))
        for name, function in functions(ast.parse(path.read_text(encoding="utf-8")))
    ]
    return sorted((one for one in found if one[1] > LONG), key=lambda one: -one[1])


# --- tables ---------------------------------------------------------------------------------------------------------


def measure(dense: bool) -> dict[str, Any]:
    """Return all figures of the imported labelgap."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = {name: measure_call(call) for name, call in calls(dense).items()}
    return {
        "python": platform.python_version(),
        "features": "dense" if dense else "sparse",
        "classes": {cls.__name__: measure_class(cls) for cls in (LEML, OneClassMF)},
        "calls": traced,
        "long functions": long_functions(),
        "classes above": most_above(),
    }


def rows(found: dict[str, Any]) -> dict[str, Any]:
    """Return the figures as the rows of a table."""
    table: dict[str, Any] = {}
    for name, figures in found["classes"].items():
        table |= {f"{name}: {what}": figures[what] for what in ("classes", "methods")}
    for name, figures in found["calls"].items():
        table |= {f"{name}: {what}": number for what, number in figures.items()}
    table[f"functions of more than {LONG} lines"] = len(found["long functions"])
    table["most classes above an estimator"] = found["classes above"]["most"]
    table["of which estimators"] = ", ".join(found["classes above"]["of"])
    return table


def markdown(header: Sequence[str], lines: Sequence[Sequence[Any]]) -> str:
    """Return a table.

    >>> print(markdown(["a", "b"], [[1, 2]]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    cells = [header, *lines]
    text = ["| " + " | ".join(map(str, line)) + " |" for line in cells]
    return "\n".join([text[0], "|" + "---|" * len(header), *text[1:]])


def compare(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Return a table of two measurements."""
    old, new = rows(before), rows(after)
    lines = []
    for name in [*old, *(name for name in new if name not in old)]:
        pair = old.get(name, ""), new.get(name, "")
        lines.append((name, *pair, f"{pair[1] - pair[0]:+d}" if all(isinstance(one, int) for one in pair) else ""))
    return markdown(("what", "before", "after", "change"), lines)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--json", type=Path, help="write the figures to this file")
    options.add_argument("--dense", action="store_true", help="trace the calls with dense features")
    options.add_argument("--compare", nargs=2, type=Path, metavar=("BEFORE", "AFTER"), help="files made by --json")
    given = options.parse_args()
    if given.compare:
        print(compare(*(json.loads(path.read_text(encoding="utf-8")) for path in given.compare)))
        return
    found = measure(given.dense)
    print(f"labelgap of {SOURCE}, Python {found['python']}, {found['features']} features\n")
    print(markdown(("what", "figure"), list(rows(found).items())))
    for name, lines in found["long functions"]:
        print(f"{lines} lines: {name}")
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
