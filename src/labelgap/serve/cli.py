"""The command as a user types it. What does the work is imported when it runs."""

from __future__ import annotations

import json as json_format
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from labelgap.commands.terminal import Json, one_error


def serve(
    models: Annotated[list[str], typer.Argument(metavar="MODEL", help="Model files, or NAME=FILE; one or more.")],
    host: Annotated[str, typer.Option(help="Where to listen; by default only this machine gets in.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    workers: Annotated[int, typer.Option(min=1, help="Processes; they share the models' memory.")] = 1,
    token: Annotated[str | None, typer.Option(envvar="LABELGAP_TOKEN", help="What every request must carry.")] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A further name by which the server is called.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="A table of texts to review on the page at /.")] = None,
    reviews: Annotated[Path | None, typer.Option(help="The SQLite file of the reviews; beside --data else.")] = None,
    max_body: Annotated[int, typer.Option(min=1, help="The most bytes of a request.")] = 8 << 20,
    max_texts: Annotated[int, typer.Option(min=1, help="The most rows of a request.")] = 1000,
    max_length: Annotated[int, typer.Option(min=1, help="The most characters of a text.")] = 100_000,
    max_top: Annotated[int, typer.Option(min=1, help="The most labels of a row.")] = 1000,
    timeout: Annotated[float, typer.Option(min=0.01, help="Seconds within which an answer must be there.")] = 30.0,
    batch_ms: Annotated[
        float,
        typer.Option(min=0, help="How long a request waits for others to join it, when none is predicted."),
    ] = 0.0,
    batch_size: Annotated[int, typer.Option(min=1, help="The most rows that are predicted at once.")] = 256,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of a prediction; all by default.")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Let other machines in without a token.")] = False,
    json: Json = False,
) -> None:
    """Answer predict, explain, complete and audit over HTTP until stopped.

    labelgap serve model --port 8000
    """
    with one_error():
        from labelgap.serve import Settings
        from labelgap.serve import command as server

        settings = Settings(
            host=host,
            token=token,
            hosts=tuple(allow_host or ()),
            max_body=max_body,
            max_texts=max_texts,
            max_length=max_length,
            max_top=max_top,
            timeout=timeout,
            batch_ms=batch_ms,
            batch_size=batch_size,
            n_threads=threads,
        )
        plan = server.Plan(models, settings, port, workers, _text(reviews), _text(data))
        server.serve(plan, insecure=insecure, announce=lambda found: announce(found, json))


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def announce(found: dict[str, Any], as_json: bool) -> None:
    """Say where the server is."""
    if as_json:
        typer.echo(json_format.dumps(found))
    else:
        typer.echo(f"Serving {', '.join(found['models'])} at {found['url']}; Ctrl-C stops it.")
    sys.stdout.flush()
