"""What the README shows works as it is printed."""

from __future__ import annotations

import re
from pathlib import Path

from docs_runner import Shell, find_blocks, find_section_blocks, run_python

README = Path(__file__).parents[1] / "README.md"
WALK = README.parent / "docs" / "walk.md"


def test_python_blocks_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = [block for block in find_blocks(README) if block.language == "python"]
    assert len(shown) >= 6
    names: dict = {}
    for block in shown:
        run_python(README, block, names)
    assert names["tagger"].predict_tags(["cake in the oven"], 1) == [["baking"]]
    assert names["explain"](names["tagger"], "bacon cake", "meat").features[0].name == "bacon"


def test_commands_for_a_table_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for block in find_section_blocks(WALK, "Your table"):
        run_python(WALK, block, {})
    Path("new.csv").write_text(Path("posts.csv").read_text())
    (shown,) = (block for block in find_blocks(README) if "posts.csv" in block.text)
    with Shell() as shell:
        shell.run(shown.text)
    assert Path("audit.csv").exists()


def test_files_it_names_are_there():
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", README.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (README.parent / target).exists(), target
