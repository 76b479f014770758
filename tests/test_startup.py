"""What an import and a short command load, and what a compilation shows."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager

import pytest

from labelgap import __version__
from labelgap.runtime import compile_loops, report_progress

MODULES_OF_LEML = """
import json, sys
import sklearn.base
before = set(sys.modules)
from labelgap import LEML
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_an_estimator_loads_little_more_than_scikit_learn_does():
    done = subprocess.run([sys.executable, "-c", MODULES_OF_LEML], capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout)
    heavy = {
        "numba",
        "llvmlite",
        "pandas",
        "sklearn.svm",
        "sklearn.metrics",
        "labelgap.datasets",
        "labelgap.estimators.tagger",
    }
    assert heavy.isdisjoint(loaded)
    assert len(loaded) < 125


COMMAND = """
import json, sys
from labelgap.cli import main
sys.argv = ["labelgap", *sys.argv[1:]]
try:
    main()
except SystemExit as stop:
    code = stop.code
heavy = {"numpy", "scipy", "sklearn", "numba", "pandas", "fastapi"} & set(sys.modules)
print(json.dumps([code, sorted(heavy)]))
"""


@pytest.mark.parametrize(
    ("words", "code", "shown"),
    [
        (["--help"], 0, "predict"),
        (["--version"], 0, __version__),
        (["version"], 0, __version__),
        (["fit", "nowhere.csv", "--output", "m"], 1, "There is no file nowhere.csv"),
        (["predict", __file__, "--model", "nowhere"], 1, "There is no model nowhere"),
        (["predict", __file__, "--modle", "nowhere"], 2, "--modle"),
        (["serve", "nowhere"], 1, "There is no model nowhere"),
        (["sevre", "nowhere"], 2, "sevre"),
    ],
)
def test_a_short_answer_loads_nothing_large(words, code, shown):
    done = subprocess.run([sys.executable, "-c", COMMAND, *words], capture_output=True, text=True, check=True)
    assert shown in done.stdout + done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [code, []]


def test_a_compilation_is_announced_and_needs_no_cache():
    """A function without a file cannot be cached: it is compiled all the same, and says so once."""
    namespace: dict = {}
    exec(compile("def add_one(x):\n    return x + 1", "<nowhere>", "exec"), namespace)
    titles = []

    @contextmanager
    def display(total, title, done):
        titles.append(title)
        yield lambda message: None

    function = compile_loops()(namespace["add_one"])
    with report_progress(display):
        assert [function(1), function(2)] == [2, 3]
    assert len(titles) == 1
    assert "ompiling" in titles[0]
