"""The gallery: runs each example and writes a page with its plot, what it shows, and its code.

``python docs/gallery/build.py FOLDER`` does it from the command line; the documentation calls :func:`build`.
"""

from __future__ import annotations

import ast
import runpy
import sys
from pathlib import Path
from typing import Any, NamedTuple

from labelgap.runtime import write_atomically

HERE = Path(__file__).parent
EXAMPLES = (
    "gaps_or_negatives",
    "label_frequency",
    "audit_precision",
    "reliability",
    "missing_features",
    "objective_by_solver",
    "regularization_path",
    "embeddings",
)
DPI = 120


class Example(NamedTuple):
    """A script in three parts: the first line of its docstring, the rest of it, and the code."""

    name: str
    title: str
    text: str
    code: str


def read_example(name: str) -> Example:
    """Return the parts of a script."""
    source = (HERE / f"{name}.py").read_text(encoding="utf-8")
    tree = ast.parse(source)
    title, _, text = (ast.get_docstring(tree) or "").partition("\n")
    code = "\n".join(source.splitlines()[tree.body[0].end_lineno :])
    return Example(name, title.strip(), text.strip(), code.strip())


def run_example(name: str) -> dict[str, Any]:
    """Run a script and return its variables; the plot is ``figure``."""
    return runpy.run_path(str(HERE / f"{name}.py"))


def page(example: Example) -> str:
    """Return the Markdown of an example's page."""
    return (
        f"# {example.title}\n\n{example.text}\n\n![{example.title}]({example.name}.png)\n\n"
        f"```python\n{example.code}\n```\n"
    )


def index(examples: list[Example]) -> str:
    """Return the Markdown of the page that leads to all others: a thumbnail and a title for each."""
    entries = "\n".join(example.name for example in examples)
    cards = "\n".join(f"- [![]({example.name}.png)\n  {example.title}]({example.name}.md)" for example in examples)
    return (
        "# Gallery\n\nEach example makes data, runs a method and draws one picture. `make docs` runs them all.\n\n"
        f"```{{container}} thumbnails\n{cards}\n```\n\n```{{toctree}}\n:hidden:\n\n{entries}\n```\n"
    )


def build(output_folder: str | Path) -> list[Path]:
    """Run every example and write its page and its picture, and ``index.md``, into a folder; return the pages.

    The folder is made where it is not there. Each file is written whole or not at all.
    """
    folder = Path(output_folder)
    folder.mkdir(parents=True, exist_ok=True)
    examples = [read_example(name) for name in EXAMPLES]
    for example in examples:
        figure = run_example(example.name)["figure"]
        with write_atomically(folder / f"{example.name}.png") as stream:
            figure.savefig(stream, format="png", dpi=DPI)
    texts = {"index": index(examples)} | {example.name: page(example) for example in examples}
    return [_write(folder / f"{name}.md", text) for name, text in texts.items()]


def _write(path: Path, text: str) -> Path:
    with write_atomically(path) as stream:
        stream.write(text.encode())
    return path


if __name__ == "__main__":
    for written in build(sys.argv[1]):
        print(written)
