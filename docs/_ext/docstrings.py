"""Docstrings as pages: formulas keep their lines and signs, and what other packages add to a class is left out."""

from __future__ import annotations

import re
from itertools import takewhile
from typing import Any

from sphinx.domains.python import PyObject

SEVERAL_NAMES = re.compile(r"(\w+_(?:, \w+_)+)( :.*)?")  # of fitted attributes
BAR_OUTSIDE_CODE = re.compile(r"(``.*?``)|\|")


def tidy(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Change a docstring to what reStructuredText makes no mistake about."""
    end = next((i - 1 for i, line in enumerate(lines) if line.startswith("---")), len(lines))
    lines[:] = [*literal_formulas(lines[:end]), *map(escape_bars, split_names(lines[end:]))]


def escape_bars(line: str) -> str:
    r"""Return a line whose bars are signs of a formula, not of a substitution.

    >>> escape_bars("with |y| labels, ``a | b``")
    'with \\|y\\| labels, ``a | b``'
    """
    return BAR_OUTSIDE_CODE.sub(lambda found: found[1] or r"\|", line)


def split_names(lines: list[str]) -> list[str]:
    """Return sections in which each name has an entry of its own; of several, Sphinx would take the first for types.

    >>> split_names(["Attributes", "----------", "a_, b_ : ndarray", "    As in X.", "c_ : int", "    It."])[2:]
    ['a_ : ndarray', '    As in X.', 'b_ : ndarray', '    As in X.', 'c_ : int', '    It.']
    """
    entries: list[str] = []
    for i, line in enumerate(lines):
        names = SEVERAL_NAMES.fullmatch(line)
        if names is None:
            entries.append(line)
            continue
        description = list(takewhile(lambda text: text.startswith(" "), lines[i + 1 :]))
        *others, last = (f"{name}{names[2] or ''}" for name in names[1].split(", "))
        for entry in others:
            entries += [entry, *description]
        entries.append(last)  # its description follows in any case
    return entries


def literal_formulas(lines: list[str]) -> list[str]:
    """Return a description with ``::`` before each indented paragraph.

    >>> literal_formulas(["Minimises", "", "    |a| + b", "", "over a."])
    ['Minimises', '', '::', '', '    |a| + b', '', 'over a.']
    """
    found: list[str] = []
    for i, line in enumerate(lines):
        indented = line.startswith("    ")
        if indented and i > 0 and not lines[i - 1].strip() and not inside_block(found):
            found += ["::", ""]
        found.append(line if indented else escape_bars(line))
    return found


def inside_block(lines: list[str]) -> bool:
    """Say whether the last line that is not blank is indented."""
    last = next((line for line in reversed(lines) if line.strip()), "")
    return last.startswith(" ") or last.endswith("::")


def leave_out(app: Any, what: str, name: str, thing: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what is not ours, fields of a tuple (the class describes them) and facts for `labelgap methods`."""
    foreign = not str(getattr(thing, "__module__", "labelgap")).startswith("labelgap")
    field = type(thing).__name__ == "_tuplegetter"
    return True if foreign or field or name == "about" else None


def by_short_name(app: Any, env: Any, node: Any, content: Any) -> Any:
    """Lead a full name that is documented under a shorter one, such as labelgap.estimators.LEML, to labelgap.LEML."""
    domain, last = env.get_domain("py"), node.get("reftarget", "").rsplit(".", 1)[-1]
    target = f"labelgap.{last}"
    if node.get("refdomain") != "py" or target not in domain.objects:
        return None
    return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", target, node, content)


def setup(app: Any) -> dict[str, bool]:
    """Connect to Sphinx, before napoleon reads the sections."""
    for field in PyObject.doc_field_types:
        if field.name == "variable":
            field.label, field.rolename = "Attributes", None  # plain names: several classes have the same ones
    app.connect("autodoc-process-docstring", tidy, priority=400)
    app.connect("autodoc-skip-member", leave_out)
    app.connect("missing-reference", by_short_name)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
