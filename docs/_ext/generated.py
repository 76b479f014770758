"""Parts of pages that are made from the package when the pages are built, so that they never go stale.

A page says where such a part belongs: ``<!-- generated: commands -->``, ``<!-- generated: methods -->``,
``<!-- generated: api Labels metrics.F1 -->`` with names below labelgap, and on the page of a method
``<!-- generated: facts LEML -->`` and ``<!-- generated: class LEML -->``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib import import_module
from operator import attrgetter
from typing import Any

from typer.main import get_command

from labelgap.cli import COST_SYMBOLS
from labelgap.cli import app as command_line
from labelgap.estimators import MultiLabelEstimator
from labelgap.methods import list_classes, list_methods

MARK = re.compile(r"<!-- generated: (\w+)(.*?)-->", re.DOTALL)
ENTRY = """## {name}

```{{eval-rst}}
.. {directive}:: labelgap.{name}
{options}```"""
MEMBERS = "   :members:\n   :inherited-members: BaseEstimator, tuple\n"


def table(header: list[str], rows: list[list[str]]) -> str:
    """Return a table in Markdown.

    >>> print(table(["a", "b"], [["1", "x | y"]]))
    | a | b |
    |---|---|
    | 1 | x \\| y |
    """
    lines = [header, *rows]
    cells = [[cell.replace("|", r"\|").replace("\n", " ") for cell in line] for line in lines]
    shown = [f"| {' | '.join(line)} |" for line in cells]
    return "\n".join([shown[0], "|" + "---|" * len(header), *shown[1:]])


def methods() -> str:
    """Return the table that `labelgap methods` prints."""
    rows = [
        [f"{{py:obj}}`~labelgap.{name}`", about.summary, ", ".join(about.handles), about.fit, about.predict]
        for name, about in list_methods().items()
    ]
    header = ["name", "what it does", "accepts", "time to fit", "to score a row"]
    return f"{table(header, rows)}\n\nTimes are in {COST_SYMBOLS}"


def commands() -> str:
    """Return a section for each command: what it says of itself, its arguments and its options."""
    return "\n\n".join(section(name, command) for name, command in leaves("labelgap", get_command(command_line)))


def leaves(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Yield the commands of a tree by their full names."""
    if not hasattr(command, "commands"):
        yield name, command
        return
    for word, inner in command.commands.items():
        yield from leaves(f"{name} {word}", inner)


def section(name: str, command: Any) -> str:
    """Return the heading, the help, the usage and the options of a command."""
    shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    parts = [f"## {name}", *prose(command.help or ""), f"```text\n{usage(name, shown)}\n```"]
    if shown:
        parts.append(table(["", "default", "meaning"], [option(parameter) for parameter in shown]))
    return "\n\n".join(parts)


def prose(text: str) -> list[str]:
    """Return the paragraphs of a help text; a line that is a command becomes a block."""
    paragraphs = [part.strip() for part in text.strip().split("\n\n")]
    return [f"```text\n{part}\n```" if part.startswith("labelgap ") else marked(part) for part in paragraphs]


def marked(text: str) -> str:
    """Return a text with its options marked as code.

    >>> marked("such as --alpha 0.5, not `--b`")
    'such as `--alpha` 0.5, not `--b`'
    """
    return re.sub(r"(?<![`\w-])(--[\w-]+)", r"`\1`", text)


def usage(name: str, parameters: list[Any]) -> str:
    """Return how a command is called, with what it must be given."""
    return " ".join([name, *filter(None, map(word, parameters)), "[options]"])


def word(parameter: Any) -> str:
    """Return a parameter's place in the usage; nothing where it may be left out."""
    name = parameter.name.upper()
    if is_argument(parameter):
        return name if parameter.required else f"[{name}]"
    return f"{parameter.opts[0]} {name}" if parameter.required else ""


def is_argument(parameter: Any) -> bool:
    """Say whether a parameter is given by its place."""
    return parameter.param_type_name == "argument"


def option(parameter: Any) -> list[str]:
    """Return the row of a parameter: its names, its default, its help."""
    names = [parameter.name.upper()] if is_argument(parameter) else parameter.opts
    if parameter.required:
        default = "required"
    else:
        default = "" if parameter.default in (None, "", False, ()) else f"`{parameter.default}`"
    return [" ".join(f"`{name}`" for name in names), default, marked(parameter.help or "")]


def api(*names: str) -> str:
    """Return a table of names below labelgap, then the documentation of each."""
    listed = "\n".join(f"   labelgap.{name}" for name in names)
    overview = f"```{{eval-rst}}\n.. autosummary::\n   :nosignatures:\n\n{listed}\n```"
    return "\n\n".join([overview, *map(entry, names)])


def entry(name: str) -> str:
    """Return the section of one class or function."""
    value = attrgetter(name)(import_module("labelgap"))
    is_class = isinstance(value, type)
    directive = "autoclass" if is_class else "autofunction"
    return ENTRY.format(name=name, directive=directive, options=MEMBERS if is_class else "")


def facts(name: str) -> str:
    """Return what a method does, in a line, a table and a picture."""
    about = list_methods()[name]
    values = {
        "accepts": ", ".join(about.handles) or "complete labels only",
        "time to fit": about.fit,
        "time to score a row": about.predict,
        "reference": about.paper,
    }
    rows = [[key, value] for key, value in values.items() if value]
    picture = PICTURE.format(name=name) if name != "Tagger" else TAGGER_PICTURE
    return "\n\n".join([about.summary, picture, table(["", ""], rows), f"Times are in {COST_SYMBOLS}"])


PICTURE = """```{{figure}} ../pictures/methods/{name}.png
:alt: Three matrices of rows and labels: what {name} learns from, its ranking for new rows, and the truth
```"""
TAGGER_PICTURE = """```{figure} ../pictures/gaps.svg
:alt: A table of posts with the tags that it has, and the tags that are suggested
```"""


def documented_class(name: str) -> str:
    """Return the documentation of a method: its class, and a table of what all methods share."""
    cls, base = list_classes()[name], MultiLabelEstimator
    inherited = [
        [f"{{py:obj}}`~labelgap.estimators.{base.__name__}.{member}`", summarize(getattr(base, member))]
        for member in vars(base)
        if not member.startswith("_") and callable(getattr(base, member)) and owner(cls, member) is base
    ]
    options = f"   :members:\n   :inherited-members: {base.__name__}\n"
    directive = f"```{{eval-rst}}\n.. autoclass:: labelgap.{name}\n{options}```"
    return f"{directive}\n\n{table(['shared by all methods', ''], inherited)}"


def summarize(member: Any) -> str:
    """Return the first line of a docstring, in Markdown."""
    return escape_code((member.__doc__ or "").split("\n")[0])


def owner(cls: type, member: str) -> type:
    """Return the class that defines a member of a class."""
    return next(base for base in cls.__mro__ if member in vars(base))


def escape_code(text: str) -> str:
    """Return a line of a docstring in Markdown.

    >>> escape_code("Learn from ``X``, as :func:`~labelgap.load` reads it.")
    'Learn from `X`, as `load` reads it.'
    """
    return re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", text).replace("``", "`")


PARTS: dict[str, Callable[..., str]] = {
    "api": api,
    "class": documented_class,
    "commands": commands,
    "facts": facts,
    "methods": methods,
}


def fill(app: Any, docname: str, source: list[str]) -> None:
    """Put the generated parts into a page that was just read."""
    source[0] = MARK.sub(lambda mark: PARTS[mark[1]](*mark[2].split()), source[0])


def setup(app: Any) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("source-read", fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
