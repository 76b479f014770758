"""The gallery: each example runs, and its plot shows what its text claims."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

mpl.use("Agg")
FOLDER = Path(__file__).parents[1] / "docs" / "gallery"


def load_builder():
    spec = importlib.util.spec_from_file_location("gallery_build", FOLDER / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


gallery = load_builder()
run = cache(gallery.run_example)  # each example once, for its claims and for its page


@pytest.fixture(autouse=True)
def _without_data(monkeypatch):
    monkeypatch.delenv("LABELGAP_DATA", raising=False)


def test_every_script_is_an_example():
    assert sorted(gallery.EXAMPLES) == sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "build")


def test_gaps_read_as_no_cost_precision():
    precision = {name: np.array(values) for name, values in run("gaps_or_negatives")["precision"].items()}
    gain = precision["gaps unknown"] - precision["gaps read as no"]
    assert (gain > -0.005).all()
    assert gain[:2].min() > 0.05
    assert gain[-1] < 0.02


def test_neighbours_find_more_of_the_rare_labels():
    found = run("label_frequency")
    rare = (found["leml"].edges[:-1] >= 2) & (found["leml"].edges[1:] <= 13)
    assert found["leml"].n_labels[rare].sum() > 100
    assert (found["sleec"].values[rare] > found["leml"].values[rare]).all()
    assert found["leml"].values[-1] > found["sleec"].values[-1]


def test_an_audit_is_right_far_above_chance():
    found = run("audit_precision")
    head = found["lengths"] <= found["n_forgotten"] / 2
    assert found["precision"][head].min() > 0.75
    assert found["precision"][found["lengths"] <= found["n_forgotten"]].min() > 0.5
    assert found["by_chance"] == pytest.approx(1 / 18, rel=0.05)
    assert found["precision"][-1] < found["precision"][head].min()
    assert np.abs(found["precision"] - found["expected"]).max() < 0.2


def test_completed_probabilities_are_calibrated():
    found = run("reliability")
    assert found["calibrated"].calibration_error < 0.04
    assert found["believed"].calibration_error > 2 * found["calibrated"].calibration_error
    middle = (found["believed"].probabilities > 0.1) & (found["believed"].probabilities < 0.9)
    assert (found["believed"].rates > found["believed"].probabilities)[middle].all()


def test_completing_together_is_better():
    together, apart = run("missing_features")["errors"].values()
    assert (together < apart - 1).all()
    assert (np.diff(together) < 0).all()


def test_fits_descend():
    records = run("objective_by_solver")["records"]
    for record in records.values():
        assert (np.diff(record.objective) <= 1e-5 * record.objective[0]).all()
        assert (np.diff(record.seconds) > 0).all()
    cg, trust, at_random = (record.objective for record in records.values())
    assert cg[-1] == pytest.approx(trust[-1], rel=5e-3)
    assert at_random[0] > 1.5 * cg[0]


def test_fewer_cells_want_a_smaller_penalty():
    paths = run("regularization_path")["paths"]
    assert 0 < paths[0.3].best < paths[1.0].best < len(paths[1.0].values) - 1


def test_tags_of_a_theme_are_near_each_other():
    found = run("embeddings")
    points, theme_of = found["display"].points, found["theme_of"]
    apart = np.linalg.norm(points[:, None] - points[None], axis=2)
    np.fill_diagonal(apart, np.inf)
    assert (theme_of[apart.argmin(axis=1)] == theme_of).mean() > 0.9
    assert len(found["display"].texts_) > 20


def test_pages_are_built(tmp_path, monkeypatch):
    monkeypatch.setattr(gallery, "run_example", run)
    pages = gallery.build(tmp_path / "new" / "gallery")
    assert [page.stem for page in pages] == ["index", *gallery.EXAMPLES]
    contents = {page.stem: page.read_text(encoding="utf-8") for page in pages}
    for name in gallery.EXAMPLES:
        example = gallery.read_example(name)
        assert isinstance(run(name)["figure"], Figure)
        assert (pages[0].parent / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert contents[name].startswith(f"# {example.title}\n\n{example.text}\n")
        assert f"]({name}.png)" in contents[name]
        assert f"```python\n{example.code}\n```" in contents[name]
        assert '"""' not in example.code.splitlines()[0]
        assert contents["index"].count(f"[![]({name}.png)\n  {example.title}]({name}.md)") == 1
        assert f"\n{name}\n" in contents["index"]
        assert len(example.text) > 150
    if "matplotlib.pyplot" in sys.modules:
        assert sys.modules["matplotlib.pyplot"].get_fignums() == []
