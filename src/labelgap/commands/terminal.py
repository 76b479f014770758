"""What the commands share: options, tables, progress, and errors of one line."""

from __future__ import annotations

import json as json_module
import math
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

DataFile = Annotated[Path, typer.Argument(help="CSV, TSV, JSONL or Parquet; or XMC text, svmlight, ARFF, npz.")]
ModelFile = Annotated[Path, typer.Option(help="A model that `labelgap fit` wrote.")]
Text = Annotated[str, typer.Option(help="The columns that hold the text, such as title,content.")]
Tags = Annotated[str, typer.Option(help="The column that lists the tags.")]
LabelColumns = Annotated[str, typer.Option(help="Instead of --tags, a column for each label; blank is unknown.")]
Separator = Annotated[str | None, typer.Option(help="What stands between tags; found out by default.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Seed = Annotated[int | None, typer.Option(help="Makes it repeatable.")]
Folds = Annotated[int, typer.Option(min=2, help="How many models judge rows that they have not seen.")]
FixedSeed = Annotated[int, typer.Option(help="Decides the folds, and what the models draw.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]
Checkpoint = Annotated[
    Path | None,
    typer.Option(
        help="A folder to keep what is done: if the command is stopped or killed, the same command goes on from "
        "there. Removed at the end. Methods that do not work in pieces (PLST, NaiveBayes, MC1 …) start over."
    ),
]


class WrongOption(ValueError):
    """An option that there is not, or a value that it cannot have."""


@contextmanager
def one_error(checkpoint: Path | None = None) -> Iterator[None]:
    """Turn what a user can mend into one line and the exit code 1, 2 for a wrong option; Ctrl-C is 130."""
    try:
        with _notices():
            yield
    except BrokenPipeError:  # whoever read the output has enough of it; typer ends quietly
        raise
    except (ValueError, OSError, ImportError, TypeError) as error:
        typer.echo(f"labelgap: {error}", err=True)
        raise typer.Exit(2 if isinstance(error, WrongOption) else 1) from error
    except KeyboardInterrupt:
        kept = checkpoint is not None and checkpoint.is_dir()
        what = f"the same command goes on from {checkpoint}" if kept else "nothing was written"
        typer.echo(f"labelgap: stopped; {what}.", err=True)
        raise typer.Exit(130) from None


@contextmanager
def _notices() -> Iterator[None]:
    """Show a warning as one line, as an error is shown."""

    def tell(message: Warning | str, *_: Any) -> None:
        typer.echo(f"labelgap: {message}", err=True)

    with warnings.catch_warnings():
        warnings.showwarning = tell  # type: ignore[assignment]
        yield


def as_json(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON, null for what is no finite number.

    >>> as_json({"P@1": float("nan"), "tags": ["é", 0.5]})
    '{"P@1": null, "tags": ["é", 0.5]}'
    """
    return json_module.dumps(_finite(value), ensure_ascii=False, indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def show(found: dict[str, Any], json: bool) -> None:
    """Print names and values."""
    if json:
        typer.echo(as_json(found, 1))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(show_header=False)
    for name, value in found.items():
        table.add_row(name, f"{value:,}" if isinstance(value, int) else str(value))
    Console().print(table)


@contextmanager
def waiting(what: str, quiet: bool) -> Iterator[None]:
    """Show what goes on and how far it is, where a person looks."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    from labelgap.runtime import bars, progress, reporting

    with bars(console=Console(stderr=True)) as display, reporting(display), progress(None, what, 0):
        yield


def show_table(columns: list[str], rows: Iterator[list[str]]) -> None:
    """Print rows as a table."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(*columns)
    for row in rows:
        table.add_row(*map(escape, row))
    Console().print(table)
