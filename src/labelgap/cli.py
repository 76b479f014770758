"""The command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from labelgap.commands.cli import register
from labelgap.commands.terminal import one_error

app = typer.Typer(no_args_is_help=True, help="Multi-label learning when labels have gaps.", rich_markup_mode=None)
data = typer.Typer(no_args_is_help=True, help="Look at and fetch datasets.")
app.add_typer(data, name="data")
register(app)

LETTERS = (
    "n rows, d features of which z are not 0 in all rows together, L labels of which y are positive in all rows "
    "together, k dimensions, T learners."
)


@data.command("list")
def list_data() -> None:
    """List the datasets and where each would come from."""
    from rich.console import Console
    from rich.table import Table

    from labelgap.datasets import list_datasets

    table = Table("name", "train", "test", "features", "labels", "from", "description")
    for info in list_datasets():
        counts = (info.n_train, info.n_test, info.n_features, info.n_labels)
        table.add_row(info.name, *(f"{c:,}" if c else "–" for c in counts), info.where, info.description)
    Console().print(table)


@data.command("get")
def get_data(
    name: Annotated[str, typer.Argument(help="A name that `labelgap data list` shows.")],
    output: Annotated[
        Path | None, typer.Option(help="Write the training part here, in the format of the ending.")
    ] = None,
) -> None:
    """Fetch a dataset into the cache and say what is in it."""
    from labelgap.commands.outputs import check_output
    from labelgap.datasets import load_dataset, write

    with one_error():
        check_output("--output", output)
        dataset = load_dataset(name)
        if output is not None:
            write(output, dataset.X_train, dataset.Y_train)
    for part, X, Y in (("train", dataset.X_train, dataset.Y_train), ("test", dataset.X_test, dataset.Y_test)):
        if X is not None and Y is not None:
            sizes = f"{X.shape[0]:,} rows, {X.shape[1]:,} features, {Y.shape[1]:,} labels"
            typer.echo(f"{part}: {sizes}, {int(Y.sum()):,} tags")


@app.command()
def methods(
    handles: Annotated[
        str | None, typer.Option(help="Only those that take this: missing labels, positives only, …")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List the methods: whose they are, what they can take, and what they cost."""
    from labelgap.methods import find_methods

    with one_error():
        found = find_methods(handles=handles)
    if json:
        from json import dumps

        typer.echo(dumps({name: about._asdict() for name, about in found.items()}, indent=1, ensure_ascii=False))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "what it does", "paper", "takes", "time to fit", "to score a row")
    for name, about in found.items():
        table.add_row(name, about.what, about.paper, ", ".join(about.handles), about.fit, about.predict)
    console = Console()
    console.print(table)
    console.print(LETTERS, highlight=False)


@app.command()
def demo(output: Annotated[Path, typer.Option(help="Folder for the plot and the model.")] = Path("demo")) -> None:
    """Train on generated data whose labels have gaps, and compare with taking missing for negative."""
    from labelgap.demo import run

    with one_error():
        run(output)


@app.command()
def reproduce(
    names: Annotated[list[str] | None, typer.Argument(help="Experiments, such as leml/table-5.")] = None,
    show_list: Annotated[bool, typer.Option("--list", help="List the experiments and stop.")] = False,
    datasets: Annotated[str, typer.Option(help="Only these, separated by commas.")] = "",
    losses: Annotated[str, typer.Option(help="Only these: squared, logistic, squared_hinge.")] = "",
    methods: Annotated[str, typer.Option(help="Only these, such as LEML.")] = "",
    ratios: Annotated[str, typer.Option(help="Only these k/L, such as 0.2,0.4.")] = "",
    observed: Annotated[str, typer.Option(help="Only these shares of known cells, such as 0.1,0.2.")] = "",
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Report the mean over so many seeds; 1, or 10 for mc/*, by default.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Bibtex, one seed, the middle settings; for mc/*, 3 seeds.")
    ] = False,
    json: Annotated[Path | None, typer.Option(help="Write all rows to this file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw all rows into this picture (needs matplotlib).")] = None,
    summary: Annotated[
        Path | None, typer.Option(help="Run nothing: write a page about all results in this folder.")
    ] = None,
) -> None:
    """Run published tables and figures again and set our numbers beside the papers'."""
    from labelgap.reproduce import command

    filters = {"datasets": datasets, "losses": losses, "methods": methods, "ratios": ratios, "observed": observed}
    with one_error():
        if summary is not None:
            typer.echo(command.write_summary(summary))
            return
        if show_list or not names:
            command.show_list()
            raise typer.Exit(0 if show_list else 2)
        interrupted = command.reproduce(names, filters, seeds=seeds, quick=quick, json=json, plot=plot)
    if interrupted:
        raise typer.Exit(130)


@app.command()
def version() -> None:
    """Print the version."""
    from labelgap import __version__

    typer.echo(__version__)


def main() -> None:
    """Run the command line."""
    app()
