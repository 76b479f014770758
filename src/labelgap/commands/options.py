"""The options and arguments that several commands share; this module is imported before every command."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Annotated

import typer

from labelgap.commands.terminal import exit_on_error
from labelgap.runtime import check_file

MIN_MEMORY = 1 << 24
METHOD_OPTIONS = {"allow_extra_args": True, "ignore_unknown_options": True}


def check_data(path: Path) -> Path:
    """Refuse a missing file before anything slow is imported."""
    with exit_on_error():
        check_file(path, folder=True)
    return path


def check_rows(path: Path | None) -> Path | None:
    """Refuse a missing file; no file and "-", for standard input, are allowed."""
    if path is not None and " " in str(path) and not path.exists():
        with exit_on_error():
            raise FileNotFoundError(f"There is no file {path}; check the path, or pass a text with --document.")
    return path if path is None or str(path) == "-" else check_data(path)


def check_model(path: Path) -> Path:
    """Refuse a missing model before anything slow is imported."""
    with exit_on_error():
        if not path.exists():
            raise FileNotFoundError(f"There is no model {path}; check the path.")
    return path


def check_finite(context: typer.Context, parameter: typer.CallbackParam, value: float | None) -> float | None:
    """Refuse NaN and infinity, which a range lets pass."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number.")
    return value


def parse_bytes(text: str) -> int:
    """Return a number of bytes.

    >>> parse_bytes("4G"), parse_bytes("500MB")
    (4294967296, 524288000)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?", str(text).strip().lower())
    n_bytes = 0 if match is None else int(float(match[1]) * 1024 ** " kmgt".index(match[2] or " "))
    if n_bytes < MIN_MEMORY:
        raise typer.BadParameter(f"{text} is not a size of at least 16M; pass one such as 500M or 4G.")
    return n_bytes


def parse_seconds(text: str) -> float:
    """Return the seconds of a time.

    >>> parse_seconds("1.5h"), parse_seconds("20m"), parse_seconds("30")
    (5400.0, 1200.0, 30.0)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?(?:e-?\d+)?)\s*(s|m|min|h|)", str(text).strip().lower())
    if match is None:
        raise typer.BadParameter(f"{text} is not a time; pass seconds, or a number with m or h, such as 20m or 2h.")
    return float(match[1]) * {"s": 1, "m": 60, "min": 60, "h": 3600}[match[2] or "s"]


DataFile = Annotated[
    Path,
    typer.Argument(
        callback=check_data,
        help="Table (CSV, TSV, JSONL, Parquet), features with labels (XMC text, svmlight, ARFF, npz), or a folder of "
        "shards.",
    ),
]
RowsFile = Annotated[
    Path | None,
    typer.Argument(
        callback=check_rows,
        help="Table (CSV, TSV, JSONL, Parquet), features (XMC text, svmlight, ARFF, npz), or a folder of shards; "
        "- reads one text from standard input.",
    ),
]
ModelFile = Annotated[Path, typer.Option(callback=check_model, help="Model file, as `labelgap fit` writes it.")]
Text = Annotated[
    str, typer.Option(help="Text columns, such as title,content (default: columns with common names, such as title).")
]
Tags = Annotated[
    str,
    typer.Option(
        help="Column that lists the tags, which are the labels (default: a column with a common name, such as tags)."
    ),
]
LabelColumns = Annotated[
    str, typer.Option(help="Instead of --tags, one column for each label: 1, 0, or blank for unknown.")
]
Separator = Annotated[
    str | None,
    typer.Option(
        help="Separator between tags; or json for [\"a\", \"b\"], python for ['a', 'b'], <> for <a><b> "
        "(default: detected)."
    ),
]
ModelText = Annotated[str, typer.Option(help="Text columns (default: those that the model was fitted on).")]
ModelTags = Annotated[str, typer.Option(help="Column that lists the tags (default: that of the model).")]
ModelLabelColumns = Annotated[
    str, typer.Option(help="Instead of --tags, one column for each label (default: those of the model).")
]
Delimiter = Annotated[
    str | None,
    typer.Option(help="Character between the columns of a CSV file, such as ; or tab (default: detected)."),
]
Encoding = Annotated[
    str | None, typer.Option(help="Encoding of the file, such as cp1252 (default: detected, else UTF-8).")
]
IdColumn = Annotated[
    str, typer.Option("--id", help="Column that identifies a row (default: the column id, if there is one).")
]
Method = Annotated[
    str,
    typer.Option(help="Name of a method, as `labelgap methods` lists it, or auto: several are compared and blended."),
]
MinCount = Annotated[int, typer.Option(min=1, help="Ignore tags that occur in fewer rows.")]
Jobs = Annotated[int | None, typer.Option(help="Number of threads (default: all cores).")]
Dask = Annotated[
    str,
    typer.Option(metavar="ADDRESS", help="Address of a Dask scheduler whose workers do the work (default: none)."),
]
Budget = Annotated[
    float | None,
    typer.Option(
        parser=parse_seconds,
        metavar="TIME",
        help="Time limit in seconds, or with a unit, such as 20m or 2h (default: none).",
    ),
]
Complete = Annotated[
    bool, typer.Option("--complete", help="Treat a tag that is not written as a no, not as forgotten.")
]
Calibrate = Annotated[bool, typer.Option(help="Hold rows out to calibrate probabilities and to choose thresholds.")]
Aim = Annotated[str, typer.Option(help="Aim of the thresholds: f1, precision>=P, k=K (labels per row) or expected.")]
Memory = Annotated[
    int | None,
    typer.Option(
        parser=parse_bytes,
        metavar="SIZE",
        help="Memory for blocks of rows and intermediate results, beside data and model, such as 4G (default: all).",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
JsonLines = Annotated[
    bool, typer.Option("--json", help="Print JSON Lines: one object for each row; with --output, one object.")
]
Seed = Annotated[int | None, typer.Option(help="Random seed, for repeatable results.")]
FixedSeed = Annotated[int, typer.Option(help="Random seed of the folds and the models.")]
Folds = Annotated[int, typer.Option(min=2, help="Number of folds; each is scored by a model fitted on the others.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress bars.")]
Checkpoint = Annotated[
    Path | None,
    typer.Option(
        help="Folder for intermediate results. If the command is stopped or killed, the same command resumes from "
        "there. It is removed at the end. Methods without intermediate results (PLST, NaiveBayes, MC1 …) start over."
    ),
]
