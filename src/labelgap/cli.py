"""The command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Multi-label learning when labels have gaps.", rich_markup_mode=None)
data = typer.Typer(no_args_is_help=True, help="Look at and fetch datasets.")
app.add_typer(data, name="data")


def _fail(error: Exception) -> None:
    typer.echo(f"labelgap: {error}", err=True)
    raise typer.Exit(1)


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
    from labelgap.datasets import load_dataset, write

    try:
        dataset = load_dataset(name)
        if output is not None:
            write(output, dataset.X_train, dataset.Y_train)
    except (ValueError, OSError) as error:
        _fail(error)
    for part, X, Y in (("train", dataset.X_train, dataset.Y_train), ("test", dataset.X_test, dataset.Y_test)):
        if X is not None:
            typer.echo(f"{part}: {X.shape[0]:,} rows, {X.shape[1]:,} features, {Y.shape[1]:,} labels, {Y.nnz:,} tags")


@app.command()
def demo(output: Annotated[Path, typer.Option(help="Folder for the plot and the model.")] = Path("demo")) -> None:
    """Train on generated data whose labels have gaps, and compare with taking missing for negative."""
    from labelgap.demo import run

    run(output)


@app.command()
def version() -> None:
    """Print the version."""
    from labelgap import __version__

    typer.echo(__version__)


def main() -> None:
    """Run the command line."""
    app()
