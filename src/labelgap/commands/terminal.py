"""Output to a terminal: values, tables, progress, and errors of one line."""

from __future__ import annotations

import json as json_module
import math
import shutil
import sys
import textwrap
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

MIN_LAST_WIDTH = 10  # characters
_UsageError: Any = typer.BadParameter.__base__  # typer exports only its subclasses


class CommandGroup(TyperGroup):
    """A group of commands whose summaries are not cut and whose errors of usage are one line."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Parse the options before the name of the command."""
        with _one_line_errors():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        with _one_line_errors():
            return super().invoke(ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the arguments name; an option that it would read only once may occur once."""
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None and not ctx.resilient_parsing:
            context = command.context_class(command, parent=ctx, info_name=name, **command.context_settings)
            _, words, order = command.make_parser(context).parse_args(list(rest))
            options: Counter[Any] = Counter(each for each in order if each.param_type_name == "option")
            for option, count in options.items():
                if count > 1 and not (option.multiple or option.is_flag):
                    context.fail(f"{option.opts[-1]} occurs {count} times; pass it once, with commas between values")
            for option in command.params:  # a method's parameters are options too, so an unknown one is no error yet
                if option.required and option not in options:
                    _suggest_option(context, option, words)
        return name, command, rest

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write each command with the first sentence of its help."""
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [
            (name, (command.help or "").strip().partition("\n\n")[0].partition(". ")[0].rstrip(".") + ".")
            for name, command in commands
            if command is not None and not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@contextmanager
def _one_line_errors() -> Iterator[None]:
    try:
        yield
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            raise
        context = error.ctx
        command = "labelgap" if context is None else context.command_path
        message = error.format_message().rstrip(".") + _quote_input(error)
        end = "" if message.endswith("?") else "."
        typer.echo(f"labelgap: {message}{end} Try `{command} --help`.", err=True)
        raise typer.Exit(2) from error


def _suggest_option(context: Any, option: Any, words: list[str]) -> None:
    """Raise an error if an unknown option looks like one that is missing."""
    for word in words:
        name = word.partition("=")[0]
        if name.startswith("--") and get_close_matches(name, option.opts):
            context.fail(f"{name} is not an option; did you mean {option.opts[-1]}?")


def _quote_input(error: Exception) -> str:
    """Return the value that an option cannot have, where typer does not name it."""
    try:
        value = error.__cause__.errors()[0]["input"]  # type: ignore[union-attr]
    except (AttributeError, IndexError, KeyError, TypeError):
        return ""
    return f" (found {value!r})"


@contextmanager
def exit_on_error(checkpoint: Path | None = None) -> Iterator[None]:
    """Print warnings and errors that the user can correct as one line each.

    The exit code after an error is 1, or the error's own ``exit_code``; after Ctrl-C it is 130.
    """

    def print_warning(message: Warning | str, *_: Any) -> None:
        typer.echo(f"labelgap: {message}", err=True)

    try:
        with warnings.catch_warnings():
            warnings.showwarning = print_warning  # type: ignore[assignment]
            yield
    except BrokenPipeError:  # the reader of the output has closed it; typer exits quietly
        raise
    except (MemoryError, OverflowError, RecursionError) as error:
        typer.echo(f"labelgap: the data are too large for this computer ({error or type(error).__name__}).", err=True)
        raise typer.Exit(1) from error
    except (ValueError, OSError, ImportError, TypeError) as error:
        typer.echo(f"labelgap: {error}", err=True)
        raise typer.Exit(getattr(error, "exit_code", 1)) from error
    except KeyboardInterrupt:
        can_resume = checkpoint is not None and checkpoint.is_dir()
        outcome = f"the same command resumes from {checkpoint}" if can_resume else "nothing was written"
        typer.echo(f"labelgap: stopped; {outcome}.", err=True)
        raise typer.Exit(130) from None


@contextmanager
def use_machines(address: str, memory: int | None) -> Iterator[None]:
    """Do the work of the block on a Dask cluster, if there is an address, and within a memory limit.

    A remark at the end says what happened on the cluster.
    """
    from labelgap.runtime import limit_memory

    with limit_memory(memory), ExitStack() as stack:
        if not address:
            yield
            return
        from labelgap.distributed import connect

        runner = stack.enter_context(connect(address))
        yield
        print_note(f"Dask cluster: {_describe_cluster(runner.summarize())}.")


def _describe_cluster(summary: dict[str, Any]) -> str:
    """Return the numbers of a cluster's summary as a line.

    >>> _describe_cluster({"workers": 2, "tasks": 9, "stragglers": {"tcp://a:1": 2.5}})
    'workers 2, tasks 9, slow: tcp://a:1 (2.5 times the median)'
    """
    numbers = [f"{name} {value:,}" for name, value in summary.items() if name != "stragglers"]
    slow = [f"{worker} ({ratio} times the median)" for worker, ratio in summary.get("stragglers", {}).items()]
    return ", ".join([*numbers, *(["slow: " + ", ".join(slow)] if slow else [])])


@contextmanager
def show_progress(title: str, quiet: bool) -> Iterator[None]:
    """Show progress bars if the standard error stream is a terminal."""
    from labelgap.runtime import hide_progress, progress, progress_bars, report_progress

    if quiet or not sys.stderr.isatty():
        with report_progress(hide_progress):
            yield
        return
    from rich.console import Console

    with progress_bars(console=Console(stderr=True)) as display, report_progress(display), progress(None, title, 0):
        yield


def format_json(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON, with null for NaN and infinity.

    >>> format_json({"P@1": float("nan"), "tags": ["é", 0.5]})
    '{"P@1": null, "tags": ["é", 0.5]}'
    """
    return json_module.dumps(_replace_nonfinite(value), ensure_ascii=False, indent=indent, allow_nan=False)


def _replace_nonfinite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _replace_nonfinite(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_nonfinite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_note(text: str) -> None:
    """Print a remark on the standard error stream."""
    typer.echo(f"labelgap: {text}", err=True)


def print_values(values: dict[str, Any], json: bool) -> None:
    """Print names and values as a table or as JSON."""
    if json:
        typer.echo(format_json(values, 1))
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(show_header=False)
    for name, value in values.items():
        table.add_row(name, escape(_format_value(value)))
    Console().print(table)


def _format_value(value: Any) -> str:
    """Return a value in words; an estimator of a model file as in Python.

    >>> _format_value({"estimator": "LEML", "parameters": {"alpha": 1.0}}), _format_value([1, "a"])
    ('LEML(alpha=1.0)', '1, a')
    >>> _format_value({"buckets": 262144, "ngrams": [1, 1]}), _format_value(262144), _format_value(2 / 3)
    ('buckets=262144, ngrams=[1, 1]', '262,144', '0.666667')
    """
    if isinstance(value, dict) and "parameters" in value:
        return f"{value['estimator']}({_format_value(value['parameters'])})"
    if isinstance(value, dict):  # commas separate its entries
        entries = {name: _format_value(part) if isinstance(part, dict) else part for name, part in value.items()}
        return ", ".join(f"{name}={part}" for name, part in entries.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def print_table(columns: list[str], rows: Iterable[list[Any]], *, fit_last: bool = False) -> None:
    """Print rows as a table; with ``fit_last``, the last column is cut so that each row takes one line."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console, cells = Console(), [[str(value) for value in row] for row in rows]
    if fit_last:
        others = sum(max(map(len, column)) + 3 for column in list(zip(columns, *cells, strict=True))[:-1])
        width = max(console.width - others - 4, MIN_LAST_WIDTH)
        cells = [[*row[:-1], row[-1] if len(row[-1]) <= width else f"{row[-1][: width - 1]}…"] for row in cells]
    table = Table(*columns)
    for row in cells:
        table.add_row(*map(escape, row))
    console.print(table)


def print_entries(entries: Iterable[tuple[str, list[str]]]) -> None:
    """Print entries as a heading with indented lines below, wrapped to the width of the terminal."""
    width = max(shutil.get_terminal_size().columns, 4 * MIN_LAST_WIDTH)
    for heading, lines in entries:
        typer.echo(heading)
        for line in lines:
            typer.echo(textwrap.fill(line, width, initial_indent="    ", subsequent_indent="    "))
