"""Draw names and sentences of the source at random, to be read by someone who has not written them.

Run ``python -m benchmarks.words [--number 50] [--seed 0]``. Names are those that the source binds: functions,
classes, parameters, attributes, variables and modules, each counted once. Sentences come from docstrings, comments
and texts of at least four words, mostly messages and help. Every name and every sentence is equally likely.
"""

from __future__ import annotations

import argparse
import ast
import io
import random
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import labelgap

SOURCE = Path(labelgap.__file__).parent
PAPERS = SOURCE.parent.parent / "papers"
MIN_WORDS = 4


def bound_names(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield (name, line) for each name that a module binds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield (node.id if isinstance(node, ast.Name) else node.attr), node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno


def split_sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text; examples and formulas on lines of their own are left out.

    >>> list(split_sentences("Return the sum. It is exact, e.g. for integers.\\n\\n    >>> f(1)\\n"))
    ['Return the sum.', 'It is exact, e.g. for integers.']
    """
    for paragraph in re.split(r"\n\s*\n", text):
        if not re.search(r"^\s*(>>>|---+|\|)", paragraph, re.MULTILINE):
            words = re.split(r"(?<=[.!?;])\s+(?=[A-Z`])", " ".join(paragraph.split()))
            yield from (sentence for sentence in words if len(sentence.split()) >= MIN_WORDS)


def texts(source: str, tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield (text, line) for each docstring, comment and longer string."""
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (str(part.value) if isinstance(part, ast.Constant) else "{…}" for part in node.values)
            yield "".join(parts), node.lineno
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.value, node.lineno
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string.lstrip("# "), token.start[0]


def collect() -> tuple[dict[str, str], dict[str, str]]:
    """Return the places of all names and of all sentences."""
    names: dict[str, str] = {}
    sentences: dict[str, str] = {}
    for path in sorted([*SOURCE.rglob("*.py"), *PAPERS.rglob("*.py")]):
        source = path.read_text(encoding="utf-8")
        tree, file = ast.parse(source), f"{path.parent.name}/{path.name}"
        names.setdefault(path.stem, file)
        for name, line in bound_names(tree):
            names.setdefault(name, f"{file}:{line}")
        for text, line in texts(source, tree):
            for sentence in split_sentences(text):
                sentences.setdefault(sentence, f"{file}:{line}")
    return names, sentences


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--number", type=int, default=50, help="names and sentences to draw")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    for title, places in zip(("names", "sentences"), collect(), strict=True):
        print(f"{options.number} of {len(places):,} {title}, seed {options.seed}\n")
        for text in rng.sample(sorted(places), min(options.number, len(places))):
            print(f"{places[text]:45} {text}")
        print()


if __name__ == "__main__":
    main()
