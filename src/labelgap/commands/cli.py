"""The commands as a user types them. What does the work is imported when a command runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from labelgap.commands.terminal import (
    Checkpoint,
    DataFile,
    FixedSeed,
    Folds,
    Json,
    LabelColumns,
    ModelFile,
    Quiet,
    Seed,
    Separator,
    Tags,
    Text,
    as_json,
    one_error,
    show,
    show_table,
    waiting,
)

EXTRA = {"allow_extra_args": True, "ignore_unknown_options": True}


def fit(
    context: typer.Context,
    data: DataFile,
    output: Annotated[Path, typer.Option(help="Where to write the model.")],
    text: Text = "",
    tags: Tags = "",
    labels: LabelColumns = "",
    separator: Separator = None,
    method: Annotated[str, typer.Option(help="A name that `labelgap methods` shows.")] = "BinaryRelevance",
    min_count: Annotated[int, typer.Option(min=1, help="Leave out tags that fewer rows have.")] = 1,
    seed: Seed = None,
    jobs: Annotated[int | None, typer.Option(help="Threads; all by default.")] = None,
    checkpoint: Checkpoint = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Learn from a file and write a model. Further options are parameters of the method, such as --alpha 0.5.

    labelgap fit posts.csv --text title,content --tags tags --output model
    """
    with one_error(checkpoint), waiting("Learning …", quiet or json):
        from labelgap.commands.inputs import Columns
        from labelgap.commands.learning import fit as run

        columns = Columns(text, tags, labels, separator)
        options = {"method": method, "words": context.args, "least": min_count, "seed": seed, "jobs": jobs}
        found = run(data, columns, output, checkpoint=checkpoint, **options)  # type: ignore[arg-type]
    show(found, json)


def tune(
    context: typer.Context,
    data: DataFile,
    output: Annotated[Path | None, typer.Option(help="Where to write the model of the best parameters.")] = None,
    table: Annotated[Path | None, typer.Option(help="Write what was tried: .csv, .tsv, .jsonl or .parquet.")] = None,
    text: Text = "",
    tags: Tags = "",
    labels: LabelColumns = "",
    separator: Separator = None,
    method: Annotated[str, typer.Option(help="A name that `labelgap methods` shows.")] = "BinaryRelevance",
    grid: Annotated[str, typer.Option(help='JSON such as {"alpha": [0.1, 1]}; else the method\'s own space.')] = "",
    budget: Annotated[float | None, typer.Option(help="Seconds for all of it, the last fit included.")] = None,
    metric: Annotated[str, typer.Option(help="P@k, nDCG@k, recall@k, AUC, F1, Hamming or loss.")] = "P@1",
    hold_out: Annotated[str, typer.Option(help="rows, cells or positives.")] = "auto",
    share: Annotated[float, typer.Option(help="How much is held out.")] = 0.2,
    folds: Annotated[int, typer.Option(min=1, help="Random splits whose scores are averaged.")] = 1,
    max_rows: Annotated[int | None, typer.Option(min=2, help="Search on so many rows; the model has all.")] = None,
    min_count: Annotated[int, typer.Option(min=1, help="Leave out tags that fewer rows have.")] = 1,
    seed: Seed = None,
    jobs: Annotated[int | None, typer.Option(help="Threads; all by default.")] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Find a method's parameters on held-out data. Further options are its parameters: --alpha 0.1,1,10 is searched.

    labelgap tune posts.csv --text title,content --tags tags --method LEML --budget 120 --output model
    """
    with one_error():
        from labelgap.commands import tuning
        from labelgap.commands.inputs import Columns

        what: dict[str, Any] = {"method": method, "words": context.args, "grid": grid, "least": min_count}
        what |= {"budget": budget, "metric": metric, "hold_out": hold_out, "share": share, "n_folds": folds}
        with waiting("Tuning …", quiet or json):
            columns = Columns(text, tags, labels, separator)
            found = tuning.tune(data, columns, output, table, **what, max_rows=max_rows, seed=seed, jobs=jobs)
        told = tuning.summary(found, output)
        if json:
            show(told | {"table": tuning.records(found)}, json)
        else:
            names, rows = tuning.columns_and_rows(found)
            show_table(names, (list(map(tuning.shown, row)) for row in rows))
            show(told, json)
        if found.status == "interrupted":
            typer.echo("labelgap: stopped; no model was written.", err=True)
            raise typer.Exit(130)


def predict(
    data: DataFile,
    model: ModelFile,
    top: Annotated[
        int | None, typer.Option(min=1, help="So many labels of each row; by default those with a yes.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="A table, or features with labels, by its ending.")] = None,
    text: Text = "",
    json: Json = False,
) -> None:
    """Give labels to the rows of a file.

    labelgap predict new.csv --model model --top 5 --output tags.csv
    """
    with one_error():
        from labelgap.commands import learning
        from labelgap.commands.inputs import Columns, open_model
        from labelgap.commands.outputs import check_output

        check_output("--output", output, data, model)
        fitted = open_model(model)
        given = learning.data_for(fitted, data, Columns(text), labels=False)
        rows = learning.predict(fitted, given, top=top)
        if output is not None:
            learning.write_predictions(output, rows, fitted, given)
            show({"output": str(output)}, json)
        elif json:
            for row in rows:
                typer.echo(as_json(row))
        else:
            show_table(["row", "tags"], ([str(row["row"]), _with_scores(row)] for row in rows))


def _with_scores(row: dict[str, Any]) -> str:
    return ", ".join(f"{tag} ({score:.2f})" for tag, score in zip(row["tags"], row["scores"], strict=True))


def evaluate(
    data: DataFile,
    model: ModelFile,
    text: Text = "",
    tags: Tags = "",
    labels: LabelColumns = "",
    separator: Separator = None,
    json: Json = False,
) -> None:
    """Compare a model's answers with the labels of a file: P@k, nDCG@k, Hamming loss, AUC, F1.

    labelgap evaluate test.csv --model model
    """
    with one_error(), waiting("Judging …", json):
        from labelgap.commands import learning
        from labelgap.commands.inputs import Columns, open_model

        fitted = open_model(model)
        given = learning.data_for(fitted, data, Columns(text, tags, labels, separator), labels=True)
        learning.check_tags(given, data)
        found = learning.evaluate(fitted, given) | learning.tag_counts(given)
    show(found, json)


def audit(
    data: DataFile,
    model: ModelFile,
    output: Annotated[Path | None, typer.Option(help="Write all suggestions as a table.")] = None,
    top: Annotated[int, typer.Option(min=1, help="Show so many of the likeliest.")] = 20,
    folds: Folds = 5,
    text: Text = "",
    tags: Tags = "",
    labels: LabelColumns = "",
    separator: Separator = None,
    seed: FixedSeed = 0,
    checkpoint: Checkpoint = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Rank the labels that were probably forgotten, and those that are probably wrong.

    labelgap audit posts.csv --model model --output audit.csv
    """
    with one_error(checkpoint):
        from labelgap.commands import gaps, learning
        from labelgap.commands.inputs import Columns, open_model
        from labelgap.commands.outputs import check_output
        from labelgap.commands.resuming import resumable
        from labelgap.datasets import write_records

        check_output("--output", output, data, model, table=True)
        fitted, columns = open_model(model), Columns(text, tags, labels, separator)
        names, files = learning.names_of(fitted), {"data": data, "model": model}
        with (
            waiting(f"Fitting {folds} models …", quiet or json),
            resumable(checkpoint, "audit", files, columns, folds=folds, seed=seed),
        ):
            found, rows = gaps.audit(fitted, data, columns, folds=folds, seed=seed)
            if output is not None:
                write_records(output, gaps.AUDIT_COLUMNS, gaps.audit_rows(found, rows, names, None))
        if not json:
            shown = (list(map(str, row)) for row in gaps.audit_rows(found, rows, names, top))
            show_table(gaps.AUDIT_COLUMNS, shown)
        show(gaps.audit_summary(found, rows, 500), json)


def complete(
    data: DataFile,
    model: ModelFile,
    output: Annotated[Path, typer.Option(help="Write the table with a probability in every unknown cell.")],
    folds: Folds = 3,
    text: Text = "",
    labels: LabelColumns = "",
    seed: FixedSeed = 0,
    checkpoint: Checkpoint = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Fill the unknown cells of label columns with calibrated probabilities.

    labelgap complete posts.csv --model model --output filled.csv
    """
    with one_error(checkpoint):
        from labelgap.commands import gaps, learning
        from labelgap.commands.inputs import Columns, open_model
        from labelgap.commands.outputs import check_output
        from labelgap.commands.resuming import resumable

        check_output("--output", output, data, model, table=True)
        fitted, columns = open_model(model), Columns(text, labels=labels)
        names = learning.names_of(fitted) or [f"label {j}" for j in range(fitted.n_labels_)]
        with (
            waiting(f"Fitting {folds + 1} models …", quiet or json),
            resumable(checkpoint, "complete", {"data": data, "model": model}, columns, folds=folds, seed=seed),
        ):
            found, rows = gaps.complete(fitted, data, columns, folds=folds, seed=seed)
            gaps.write_completed(output, found, rows, names)
        show({"output": str(output), "calibration error": round(found.calibration_error, 5)}, json)


def explain(
    data: DataFile,
    model: ModelFile,
    row: Annotated[int, typer.Option(min=0, help="The row, counted from 0.")],
    label: Annotated[str, typer.Option(help="The label, by name or number.")],
    top: Annotated[int, typer.Option(min=1, help="So many features and labels.")] = 10,
    text: Text = "",
    tags: Tags = "",
    labels: LabelColumns = "",
    separator: Separator = None,
    json: Json = False,
) -> None:
    """Say which features and which known labels of a row argue for a label.

    labelgap explain posts.csv --model model --row 7 --label cookies
    """
    with one_error():
        from labelgap.commands import gaps
        from labelgap.commands.inputs import Columns, open_model

        columns = Columns(text, tags, labels, separator)
        found = gaps.explain(open_model(model), data, columns, row, label, top)
        if json:
            parts = {"features": [list(a) for a in found.features], "labels": [list(a) for a in found.labels]}
            typer.echo(as_json({"decision": found.decision} | parts))
            return
        typer.echo(f"decision {found.decision:+.3f}: {'yes' if found.decision > 0 else 'no'}")
        for kind, arguments in (("feature", found.features), ("known label", found.labels)):
            if arguments:
                show_table([kind, "weight"], ([name, f"{weight:+.4f}"] for name, weight in arguments))


def inspect(path: Annotated[Path, typer.Argument(help="A model.")], json: Json = False) -> None:
    """Say what a model file holds."""
    with one_error():
        from labelgap.commands.files import inspect as run

        show(run(path), json)


def convert(
    source: Annotated[Path, typer.Argument(help="A file of features and labels.")],
    target: Annotated[Path, typer.Argument(help="Where to write it, in the format of the ending.")],
    json: Json = False,
) -> None:
    """Write features and labels in another format: XMC text, svmlight, ARFF, npz.

    labelgap convert train.arff train.txt.gz
    """
    with one_error():
        from labelgap.commands.files import convert as run

        show(run(source, target), json)


def register(app: typer.Typer) -> None:
    """Make these commands of an application."""
    from labelgap.serve.cli import serve

    app.command(context_settings=EXTRA)(fit)
    app.command(context_settings=EXTRA)(tune)
    commands: list[Callable] = [predict, evaluate, audit, complete, explain, inspect, convert, serve]
    for command in commands:
        app.command()(command)
