"""What the README shows works as it is printed, in a folder that holds only the example table."""

from __future__ import annotations

import csv
import re
import runpy
import shutil
from pathlib import Path

import pytest

from docs_runner import Shell, find_blocks, run_python

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
MAX_PICTURE = 200_000  # bytes


@pytest.fixture
def _folder(tmp_path, monkeypatch):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LABELGAP_DATA", raising=False)


@pytest.mark.usefixtures("_folder")
def test_python_blocks_run():
    names: dict = {}
    for block in (block for block in find_blocks(README) if block.language == "python"):
        run_python(README, block, names)
    assert names["tagger"].predict_tags(["How long do I simmer stock?"]) == [["soup"]]
    assert names["model"].predict([[1.0, 0.05]]).tolist() == [[1, 0, 1]]
    assert len(names["suggestions"].missing.first(3)) == 3
    assert Path("model.labelgap").exists()


@pytest.mark.usefixtures("_folder")
def test_commands_run():
    with Shell() as shell:
        for block in (block for block in find_blocks(README) if block.language == "sh"):
            shell.run(block.text)
    with open("audit.csv", newline="", encoding="utf-8") as file:
        kinds = {row["kind"] for row in csv.DictReader(file)}
    assert "missing" in kinds


def test_the_example_table_is_the_one_that_the_pictures_show():
    make_table = runpy.run_path(str(ROOT / "docs" / "pictures" / "table.py"))["make_table"]
    assert (ROOT / "examples" / "posts.csv").read_text(encoding="utf-8") == make_table()


def test_it_is_short_and_what_it_names_is_there():
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert "://" in target or (ROOT / target).exists(), target


def test_pictures_are_small():
    pictures = [path for path in (ROOT / "docs" / "pictures").rglob("*") if path.suffix in {".png", ".svg"}]
    assert len(pictures) > 20
    assert {path.name for path in pictures if path.stat().st_size > MAX_PICTURE} == set()
