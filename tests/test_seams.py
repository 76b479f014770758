"""Folders of shards and a cluster with every command and several methods: what works on a file works there."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest
from typer.testing import CliRunner

from labelgap.cli import app
from labelgap.datasets import make_sparse_multilabel, read, write

FORMS = ["folder", "folder of files", "file on a cluster", "folder on a cluster"]
METHODS = {
    "LEML": ("--n-components", 3, "--max-iter", 1, "--tol", 0),
    "OneClassMF": ("--loss", "squared", "--n-components", 3, "--max-iter", 1, "--tol", 0),
    "SLEEC": ("--n-components", 3, "--n-clusters", 2, "--n-learners", 1),
    "LocalLEML": ("--n-components", 3, "--n-clusters", 2, "--n-learners", 1),
    "BinaryRelevance": ("--loss", "logistic"),
    "FastXML": ("--n-estimators", 2),
    "LabelKNN": (),
    "WSABIE": ("--n-components", 3, "--max-iter", 2),
}


@pytest.fixture(scope="module")
def address():
    """The address of a cluster in this process."""
    distributed = pytest.importorskip("distributed", reason="Dask is not installed")
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster, set_as_default=False):
        yield cluster.scheduler_address


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The same rows as a file, a folder of mapped shards and a folder of files."""
    folder, (X, Y) = tmp_path_factory.mktemp("data"), make_sparse_multilabel(60, 30, 8, 6, 2, random_state=0)
    write(folder / "file.npz", X, Y)
    write(folder / "shards", X, Y, "shards", n_shards=3)
    (folder / "files").mkdir()
    for number, (a, b) in enumerate([(0, 25), (25, 60)]):
        write(folder / "files" / f"{number}.npz", X[a:b], Y[a:b])
    return folder


def run(*words):
    return CliRunner().invoke(app, list(map(str, words)))


def work(data, form, address, method, folder):
    """Return what each command prints for a form of the data."""
    path = data / {"file": "file.npz", "folder": "shards", "folder of files": "files"}[form.split(" on ")[0]]
    common = ("--json", "--seed", 0, *(("--dask", address) if form.endswith("cluster") else ()))
    model, shown = folder / f"{method} {form}", {}
    commands = {
        "fit": (path, "--method", method, *METHODS[method], "--output", model, *common),
        "predict": (path, "--model", model, "--top", 2, *common[:1], *common[3:]),
        "evaluate": (path, "--model", model, *common[:1], *common[3:]),
        "audit": (path, "--model", model, "--folds", 2, "--top", 3, *common),
    }
    for command, words in commands.items():
        result = run(command, *words)
        assert result.exit_code == 0, (command, result.output)
        texts = result.stdout.splitlines() if command == "predict" else [result.stdout]
        shown[command] = [json.loads(text) for text in texts]
    return shown


@pytest.fixture(scope="module")
def plain(data, tmp_path_factory):
    """What the commands print for the file, for each method once."""
    return cache(lambda method: work(data, "file", None, method, tmp_path_factory.mktemp("plain")))


def assert_alike(ours, plain):
    """Compare what is printed, with numbers up to rounding."""
    if isinstance(plain, dict):
        assert ours.keys() == plain.keys()
        ours, plain = list(ours.values()), list(plain.values())
    if isinstance(plain, list):
        assert len(ours) == len(plain)
        for own, other in zip(ours, plain):
            assert_alike(own, other)
    elif isinstance(plain, float):
        assert ours == pytest.approx(plain, rel=1e-3, abs=1e-4)
    else:
        assert ours == plain


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "method", [name if name == "BinaryRelevance" else pytest.param(name, marks=pytest.mark.slow) for name in METHODS]
)
def test_commands_give_what_they_give_for_a_file(method, form, data, address, plain, tmp_path):
    ours, expected = work(data, form, address, method, tmp_path), plain(method)
    for command in ("predict", "evaluate", "audit"):
        assert_alike(ours[command], expected[command])


@pytest.mark.parametrize("form", ["folder", "folder of files"])
@pytest.mark.parametrize("ending", ["txt", "svm", "npz", "arff"])
def test_a_folder_is_converted_to_any_format(form, ending, data, tmp_path):
    path = data / {"folder": "shards", "folder of files": "files"}[form]
    converted = run("convert", path, tmp_path / f"out.{ending}", "--json")
    assert converted.exit_code == 0, converted.output
    for ours, plain in zip(read(tmp_path / f"out.{ending}")[:2], read(data / "file.npz")[:2]):
        np.testing.assert_allclose(ours.toarray(), plain.toarray(), rtol=1e-6)
