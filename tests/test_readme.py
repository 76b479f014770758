"""What the README shows works as it is printed."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_python_blocks_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 6
    names: dict = {}
    for number, block in enumerate(blocks):
        exec(compile(block, f"README block {number}", "exec"), names)
    assert names["tagger"].predict_tags(["cake in the oven"], 1) == [["baking"]]
    assert names["explain"](names["tagger"], "bacon cake", "meat").features[0].name == "bacon"


def test_files_it_names_are_there():
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (README.parent / target).exists(), target
