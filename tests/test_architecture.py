"""The rooms of the house: who may import whom, what is exported, and what an import costs."""

from __future__ import annotations

import ast
import importlib
import json
import os
import pkgutil
import subprocess
import sys
import tomllib
from abc import ABCMeta
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

import labelgap
import labelgap_papers
from labelgap.estimators import MultiLabelEstimator

ROOT = Path(__file__).parents[1]
SOURCE = Path(labelgap.__file__).parent
PAPERS = Path(labelgap_papers.__file__).parent
# The floor of each room: a module imports from lower floors or from its own room.
FLOORS = {
    "runtime": 0,
    "portable": 0,
    "persistence": 1,
    "kernels": 1,
    "observations": 1,
    "datasets": 2,
    "losses": 2,
    "regularizers": 2,
    "solvers": 2,
    "metrics": 2,
    "checkpoints": 2,
    "clustering": 3,
    "neighbors": 3,
    "calibration": 3,
    "objectives": 3,
    "estimators": 4,
    "baselines": 5,
    "model_selection": 6,
    "distributed": 6,
    "gaps": 7,
    "methods": 7,
    "demo": 8,
    "displays": 8,
    "inputs": 8,
    "labelgap_papers": 9,  # a package of its own: it imports labelgap, which runs without it
    "serve": 9,
    "commands": 10,
    "cli": 11,
    "__main__": 12,
}
OPTIONAL = {"torch", "dask", "distributed", "faiss", "matplotlib", "fastapi", "uvicorn"}
MODULES = sorted(path for root in (SOURCE, PAPERS) for path in root.rglob("*.py"))


def relative_name(path):
    """The path of a module below the folder of its package, such as ``solvers/cg.py``."""
    return str(path.relative_to(SOURCE if path.is_relative_to(SOURCE) else PAPERS.parent))


relative = [relative_name(path) for path in MODULES]


def room_of(path):
    """The first part of a module's name below labelgap; None for the package itself."""
    first = Path(relative_name(path)).parts[0]
    return None if first == "__init__.py" else first.removesuffix(".py")


def absolute_names(node, path):
    """Full names that an import statement may load: ``from a import b`` is a, and a.b where that is a module."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = node.module or ""
    if node.level:
        package = path.relative_to(SOURCE if path.is_relative_to(SOURCE) else PAPERS).parts[: -node.level]
        package = ("labelgap" if path.is_relative_to(SOURCE) else "labelgap_papers", *package)
        base = ".".join([*package, base]).rstrip(".")
    return [f"{base}.{alias.name}" for alias in node.names]


def imports(path, tree=None):
    """Every name that a module imports, at its head or inside its functions."""
    tree = tree or ast.parse(path.read_text(encoding="utf-8"))
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))
    return [name for node in nodes for name in absolute_names(node, path)]


def breaches(path, names):
    """Imports of labelgap that lead up, or across to another room of the same floor."""
    here = room_of(path)
    for name in names:
        parts = name.split(".")
        if parts[0] not in ("labelgap", "labelgap_papers") or name == "labelgap.__version__":
            continue
        inside = parts[1] if len(parts) > 1 else None
        there = "labelgap_papers" if parts[0] == "labelgap_papers" else inside
        if there not in FLOORS:
            yield f"{name} is no room"
        elif there != here and FLOORS[there] >= FLOORS[here]:
            yield f"{here} (floor {FLOORS[here]}) imports {name} (floor {FLOORS[there]})"


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_imports_lead_down(path):
    here = room_of(path)
    if here is None:
        assert [name for name in imports(path) if name.startswith("labelgap")] == []
        return
    assert here in FLOORS, f"give {here} a floor in FLOORS"
    assert list(breaches(path, imports(path))) == []


@pytest.mark.parametrize(
    ("module", "line", "wrong"),
    [
        ("solvers/x.py", "from labelgap.losses import Loss", True),
        ("solvers/x.py", "import labelgap.estimators", True),
        ("solvers/x.py", "def f():\n    from labelgap import metrics", True),
        ("solvers/x.py", "from ..objectives import LowRank", True),
        ("solvers/x.py", "from .base import inner", False),
        ("solvers/x.py", "from labelgap.solvers.base import inner", False),
        ("solvers/x.py", "from labelgap.runtime import threads", False),
        ("kernels/x.py", "from labelgap.observations import Labels", True),
        ("losses.py", "from labelgap import __version__", False),
        ("losses.py", "from labelgap import LEML", True),
        ("estimators/x.py", "from labelgap.persistence import read_model", False),
        ("cli.py", "from labelgap.demo import run", False),
        ("cli.py", "def f():\n    from labelgap_papers import command", False),
        ("demo.py", "def f():\n    from labelgap_papers import command", True),
        ("labelgap_papers/x.py", "from labelgap.demo import run", False),
        ("serve/x.py", "from labelgap.commands import terminal", True),
        ("displays/x.py", "from labelgap.inputs import TableColumns", True),
    ],
)
def test_the_walk_finds_a_breach(module, line, wrong):
    path = (PAPERS.parent if module.startswith("labelgap_papers") else SOURCE) / module
    assert bool(list(breaches(path, imports(path, ast.parse(line))))) == wrong


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_optional_packages_are_imported_late(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    early = (
        node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom) and id(node) not in inside
    )
    roots = {name.split(".")[0] for node in early for name in absolute_names(node, path)}
    assert not roots & (OPTIONAL if path.is_relative_to(PAPERS) else OPTIONAL | {"labelgap_papers"})


# --- exported names -------------------------------------------------------------------------------------------------


def test_every_file_states_the_same_version():
    with open(ROOT / "pyproject.toml", "rb") as file:
        assert tomllib.load(file)["project"]["version"] == labelgap.__version__
    assert f"\nversion: {labelgap.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_every_exported_name_is_there_and_documented():
    assert labelgap.__version__.count(".") == 2
    assert len(labelgap.__all__) == len(set(labelgap.__all__))
    for name in labelgap.__all__:
        value = getattr(labelgap, name)
        assert name in dir(labelgap)
        if name != "__version__":
            assert callable(value)
            assert value.__doc__, f"{name} has no docstring"
            assert value.__module__.startswith("labelgap.")


def test_only_public_names_are_listed_and_unknown_ones_are_refused():
    assert dir(labelgap) == sorted(labelgap.__all__)
    for name in ("baselines", "datasets", "estimators", "gaps", "metrics", "model_selection", "observations"):
        room = importlib.import_module(f"labelgap.{name}")
        private = {name for name in dir(room) if name.startswith("_") or isinstance(getattr(room, name), ModuleType)}
        assert set(dir(room)) - private <= set(room.__all__)
    with pytest.raises(AttributeError, match="module 'labelgap' has no attribute 'magic'"):
        _ = labelgap.magic


def sorting(name):
    """CONSTANTS, then Classes, then functions, each in alphabetical order."""
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2
    return kind, name


def packages():
    return sorted(path.parent for path in SOURCE.rglob("__init__.py") if path.parent != SOURCE)


@pytest.mark.parametrize("folder", packages(), ids=lambda folder: folder.name)
def test_the_names_of_a_package(folder):
    module = importlib.import_module("labelgap." + ".".join(folder.relative_to(SOURCE).parts))
    assert module.__doc__
    names = getattr(module, "__all__", [])
    assert names == sorted(names, key=sorting)
    assert len(names) == len(set(names))
    for name in names:
        assert hasattr(module, name), f"{name} is exported and not there"


def test_every_module_has_a_docstring():
    found = [info.name for info in pkgutil.walk_packages([str(SOURCE)], "labelgap.")]
    assert len(found) > 20
    for path in MODULES:
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), path.name


# --- classes and functions ------------------------------------------------------------------------------------------

MOST_CLASSES_ABOVE = 2

LONGEST_BODY = 60  # lines, docstring left out


def exported_estimators():
    values = {name: getattr(labelgap, name) for name in labelgap.__all__}
    return {name: value for name, value in values.items() if isinstance(value, type) and hasattr(value, "fit")}


@pytest.mark.parametrize("name", sorted(exported_estimators()))
def test_an_estimator_stands_on_few_classes(name):
    above = exported_estimators()[name].__mro__[1:]
    ours = [cls.__name__ for cls in above if cls.__module__.startswith("labelgap.")]
    assert len(ours) <= MOST_CLASSES_ABOVE, f"{name} inherits from {ours}: hold or call what is shared"


def test_an_estimator_has_three_methods_of_its_own():
    methods = ("_check_parameters", "_learn", "_scores")
    bodies = dict.fromkeys(methods, lambda self, *given: None)
    assert MultiLabelEstimator.__abstractmethods__ == set(methods)
    type("Whole", (MultiLabelEstimator,), bodies)()
    for missing in methods:
        rest = {name: body for name, body in bodies.items() if name != missing}
        with pytest.raises(TypeError, match=f"abstract method '?{missing}"):
            type("Partial", (MultiLabelEstimator,), rest)()


def test_promised_methods_are_enforced():
    """A class with an abstract method cannot be made without it."""
    classes = set()
    for info in pkgutil.walk_packages([str(SOURCE)], "labelgap."):
        if "." in info.name and not info.name.endswith("__main__"):
            module = importlib.import_module(info.name)
            classes |= {value for value in vars(module).values() if isinstance(value, type)}
    ours = {
        cls for cls in classes if cls.__module__.startswith("labelgap.") and not getattr(cls, "_is_protocol", False)
    }
    promising = {cls for cls in ours if any(getattr(v, "__isabstractmethod__", False) for v in vars(cls).values())}
    assert len(promising) > 5
    for cls in promising:
        assert isinstance(cls, ABCMeta), f"{cls.__name__} has abstract methods and is no ABC"


def body_length(function):
    """The lines of a function's body, without its docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_functions_are_short(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    assert [one.name for one in functions if body_length(one) > LONGEST_BODY] == []


# --- names ----------------------------------------------------------------------------------------------------------

VAGUE = {"asked", "found", "given", "kept", "mine", "one", "stuff", "thing", "things", "told"}


def bound_names(tree):
    """Every name that a module binds: variables, parameters, attributes, functions, classes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_names_say_what_they_hold(path):
    assert sorted(VAGUE & set(bound_names(ast.parse(path.read_text(encoding="utf-8"))))) == []


def test_a_class_name_has_one_meaning():
    names = Counter(
        node.name.removeprefix("_")
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, number in names.items() if number > 1] == []


def test_a_module_name_has_one_meaning():
    names = Counter(path.stem for path in MODULES if path.stem not in ("__init__", "base"))
    assert [name for name, number in names.items() if number > 1] == []


# --- what an import costs -------------------------------------------------------------------------------------------


def run(code, **environment):
    """Run code in a fresh interpreter and return the JSON that it prints last."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


IMPORT = """
import json, sys, time
start = time.process_time()
import labelgap
print(json.dumps({"seconds": time.process_time() - start, "loaded": sorted(sys.modules)}))
"""


def test_import_is_quick_and_loads_nothing_large():
    found = run(IMPORT)
    assert found["seconds"] < 1
    heavy = {"torch", "dask", "matplotlib", "numba", "sklearn", "scipy", "numpy", "fastapi", "typer", "rich"}
    assert heavy.isdisjoint(found["loaded"])


def test_the_estimators_load_no_optional_package():
    code = "import json, sys; from labelgap.estimators import *; print(json.dumps(sorted(sys.modules)))"
    assert OPTIONAL.isdisjoint(run(code))


FIT = """
import json
import numpy as np
from labelgap import LEML
from labelgap.kernels import loops
X = np.random.RandomState(0).standard_normal((8, 3))
Y = np.array([[1, 0], [0, 1], [1, np.nan], [np.nan, 0]] * 2)
LEML(1, n_jobs=1, random_state=0).fit(X, Y)
names = ("cells_model", "cells_hessp", "cells_value", "spmm")
stats = {name: getattr(loops, name).stats for name in names}
count = lambda which: {name: sum(getattr(stats[name], which).values()) for name in names}
print(json.dumps({"hits": count("cache_hits"), "misses": count("cache_misses")}))
"""


def test_kernels_are_compiled_once(tmp_path):
    """A second process finds what the first compiled, and compiles nothing."""
    first = run(FIT, NUMBA_CACHE_DIR=str(tmp_path))
    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nb*")}
    assert first["misses"]["cells_model"] == 1
    assert any(path.suffix == ".nbi" for path in files)
    second = run(FIT, NUMBA_CACHE_DIR=str(tmp_path))
    assert second["hits"] == first["misses"]
    assert not any(second["misses"].values())
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nb*")} == files
