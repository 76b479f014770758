"""The command line: options of all commands.

Each command imports the code that does its work when it runs, so that ``labelgap --help`` is quick.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from labelgap import __version__
from labelgap.commands.options import (
    METHOD_OPTIONS,
    Aim,
    Budget,
    Calibrate,
    Checkpoint,
    Complete,
    Dask,
    DataFile,
    Delimiter,
    Encoding,
    FixedSeed,
    Folds,
    IdColumn,
    Jobs,
    Json,
    JsonLines,
    LabelColumns,
    Memory,
    Method,
    MinCount,
    ModelFile,
    ModelLabelColumns,
    ModelTags,
    ModelText,
    Quiet,
    RowsFile,
    Seed,
    Separator,
    Tags,
    Text,
    check_data,
    check_finite,
    check_model,
)
from labelgap.commands.terminal import (
    CommandGroup,
    exit_on_error,
    format_json,
    print_entries,
    print_note,
    print_table,
    print_values,
    show_progress,
    use_machines,
)

app = typer.Typer(
    pretty_exceptions_enable=False,  # they would print local variables, a token among them
    pretty_exceptions_show_locals=False,
    cls=CommandGroup,
    no_args_is_help=True,
    help="Multi-label learning when labels have gaps.",
    rich_markup_mode=None,
)
data = typer.Typer(
    no_args_is_help=True,
    help="List and download datasets.",
)
app.add_typer(data, name="data")

NO_TAGS = "–"
COST_SYMBOLS = (
    "n rows, d features, z non-zero feature values, L labels, y positive label values, k dimensions, T learners."
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def run(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Multi-label learning when labels have gaps."""


@app.command(context_settings=METHOD_OPTIONS)
def fit(
    context: typer.Context,
    data: DataFile,
    output: Annotated[Path, typer.Option(help="File for the model.")],
    text: Text = "",
    tags: Tags = "",
    labels: LabelColumns = "",
    separator: Separator = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    id_column: IdColumn = "",
    method: Method = "",
    complete: Complete = False,
    calibrate: Calibrate = True,
    aim: Aim = "f1",
    vectors: Annotated[
        str, typer.Option(help="Column of ready vectors (JSON lists of numbers), instead of texts.")
    ] = "",
    test_size: Annotated[
        float | None,
        typer.Option(
            callback=check_finite,
            min=0.0,
            max=0.9,
            help="Share of rows to leave out of the fit and to test the model on; none by default.",
        ),
    ] = None,
    min_count: MinCount = 1,
    seed: Seed = None,
    jobs: Jobs = None,
    checkpoint: Checkpoint = None,
    dask: Dask = "",
    memory: Memory = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Learn from a file and write a model. Further options are parameters of the method, such as --alpha 0.5.

    labelgap fit posts.csv --text title,content --tags tags --output model
    """
    with (
        exit_on_error(checkpoint),
        show_progress("Learning …", quiet or json),
        use_machines(dask, memory),
    ):
        from labelgap.commands import training
        from labelgap.inputs import TableColumns

        columns = TableColumns(text, tags, labels, separator, delimiter, encoding, id_column)
        names = _option_names(context)
        options = training.MethodOptions(
            *(method, context.args, min_count, seed, jobs, names, complete, calibrate, aim, test_size or 0.0, vectors)
        )
        values = training.fit(data, columns, output, options, checkpoint=checkpoint)
    print_values(values, json)
    if values.get("rows without tags"):
        print_note(training.explain_untagged(values["rows without tags"], complete))


def _option_names(context: typer.Context) -> list[str]:
    return [name for parameter in context.command.params for name in parameter.opts]


@app.command(context_settings=METHOD_OPTIONS)
def tune(
    context: typer.Context,
    data: DataFile,
    output: Annotated[Path | None, typer.Option(help="File for the model with the best parameters.")] = None,
    table: Annotated[
        Path | None, typer.Option(help="File for a table of the candidates: .csv, .tsv, .jsonl or .parquet.")
    ] = None,
    text: Text = "",
    tags: Tags = "",
    labels: LabelColumns = "",
    separator: Separator = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    id_column: IdColumn = "",
    method: Method = "BinaryRelevance",
    grid: Annotated[
        str, typer.Option(help='JSON such as {"alpha": [0.1, 1]} (default: the search space of the method).')
    ] = "",
    complete: Complete = False,
    calibrate: Calibrate = True,
    aim: Aim = "f1",
    budget: Budget = None,
    metric: Annotated[str, typer.Option(help="P@k, nDCG@k, recall@k, AUC, F1, Hamming or loss.")] = "P@1",
    hold_out: Annotated[str, typer.Option(help="What to hold out: rows, cells or positives.")] = "auto",
    share: Annotated[float, typer.Option(callback=check_finite, help="Share to hold out.")] = 0.2,
    folds: Annotated[int, typer.Option(min=1, help="Number of random splits; scores are averaged over them.")] = 1,
    max_rows: Annotated[
        int | None, typer.Option(min=2, help="Maximum number of rows for the search; the last fit uses all rows.")
    ] = None,
    min_count: MinCount = 1,
    seed: Seed = None,
    jobs: Jobs = None,
    dask: Dask = "",
    memory: Memory = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Choose parameters of a method on held-out data. Further options are values to try, such as --alpha 0.1,1,10.

    labelgap tune posts.csv --text title,content --tags tags --method LEML --budget 120 --output model
    """
    with exit_on_error():
        from labelgap.commands import training
        from labelgap.inputs import TableColumns
        from labelgap.model_selection.selection import format_value

        with show_progress("Tuning …", quiet or json), use_machines(dask, memory):
            columns = TableColumns(text, tags, labels, separator, delimiter, encoding, id_column)
            names = _option_names(context)
            options = training.MethodOptions(
                *(method, context.args, min_count, seed, jobs, names, complete, calibrate, aim)
            )
            search = {"budget": budget, "hold_out": hold_out, "share": share, "n_folds": folds, "max_rows": max_rows}
            tuning = training.tune(data, columns, output, table, options, grid=grid, metric=metric, **search)
        summary = training.summarize_tuning(tuning, output)
        if json:
            summary["table"] = training.list_candidates(tuning)
        else:
            names, rows = training.tabulate_candidates(tuning)
            print_table(names, (list(map(format_value, row)) for row in rows))
        print_values(summary, json)
        if tuning.status == "interrupted":
            typer.echo("labelgap: stopped; no model was written.", err=True)
            raise typer.Exit(130)


@app.command()
def predict(
    model: ModelFile,
    data: RowsFile = None,
    document: Annotated[
        list[str] | None, typer.Option(help="Text to predict instead of a file; may be repeated.")
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of tags for each row, those of the largest scores, most probable first (default: all above "
            "their thresholds).",
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Smallest probability of a predicted tag (default: the model's thresholds)."),
    ] = None,
    true: Annotated[
        bool, typer.Option("--true", help="Add the probability that a tag is true, with its 95 % interval.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            help="File for the predictions: a table of your columns, tags and scores; or features with labels."
        ),
    ] = None,
    text: ModelText = "",
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    id_column: IdColumn = "",
    dask: Dask = "",
    memory: Memory = None,
    json: JsonLines = False,
) -> None:
    """Predict the tags (labels) of new rows.

    labelgap predict new.csv --model model --top 5 --output tags.csv

    labelgap predict --model model --document "Which knife is best for bread?"
    """
    with exit_on_error(), use_machines(dask, memory):
        from labelgap.commands import prediction
        from labelgap.commands.outputs import check_output
        from labelgap.inputs import TableColumns, open_model

        columns = TableColumns(text, delimiter=delimiter, encoding=encoding, id=id_column)
        check_output("--output", output, *([data] if data else []), model)
        estimator = open_model(model)
        rows = prediction.load_rows(estimator, data, document or [], columns, sys.stdin)
        predictions = prediction.predict(estimator, rows, top=top, threshold=threshold, true=true)
        if output is not None:
            print_values(prediction.write_predictions(output, predictions, estimator, rows), json)
        elif json:
            for row in predictions:
                typer.echo(format_json(row))
        else:
            name, kind = "row" if rows.ids is None else "id", prediction.name_values(estimator)
            listed = list(predictions)
            shown = [[row[name], _format_tags(row)] for row in listed]
            print_table([name, f"tags ({kind})"], shown)
            print_note(" ".join(prediction.VALUE_NOTES[key] for key in (kind, *(["true"] if true else []))))
            n_bare = sum(tags == NO_TAGS for _, tags in shown)
            if n_bare:
                print_note(
                    f"Rows without a tag over its threshold: {n_bare:,} of {len(shown):,}; --top 1 gives the best."
                )
            n_unknown = prediction.count_unknown(listed)
            if n_unknown:
                print_note(
                    f"Rows without a word that the model knows: {n_unknown:,} of {len(shown):,}; what --top gives "
                    "for them does not come from their texts."
                )


def _format_tags(row: dict[str, Any]) -> str:
    if "true_low" in row:
        columns = ("probabilities", "true_probabilities", "true_low", "true_high")
        numbers = zip(*(row[name] for name in columns), strict=True)
        values = [f"{p:.0%}; true {true:.0%}, {low:.0%} to {high:.0%}" for p, true, low, high in numbers]
    elif "probabilities" in row:
        values = [f"{value:.0%}" for value in row["probabilities"]]
    else:
        values = [f"{value:.2f}" for value in row["scores"]]
    return ", ".join(f"{tag} ({value})" for tag, value in zip(row["tags"], values, strict=True)) or NO_TAGS


@app.command()
def evaluate(
    data: DataFile,
    model: ModelFile,
    text: ModelText = "",
    tags: ModelTags = "",
    labels: ModelLabelColumns = "",
    separator: Separator = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    written_share: Annotated[
        str,
        typer.Option(
            help="Share of the true tags that the file has, such as 0.7, 0.6,0.8 (between these), or model (its "
            "estimate): also estimate P@k, nDCG@k, recall@k and F1 of the true tags."
        ),
    ] = "",
    probe: Annotated[
        int | None,
        typer.Option(
            min=1, help="Instead of evaluating, draw about so many cells at random for review: see --output."
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Table of the drawn cells, whose verdicts you fill in.")] = None,
    verdicts: Annotated[
        Path | None,
        typer.Option(
            help="The table of --probe with verdicts (accept or reject): also estimate P@k, recall@k over all true "
            "tags and F1 of the true tags, without any assumption about which tags are missing or wrong."
        ),
    ] = None,
    seed: FixedSeed = 0,
    dask: Dask = "",
    memory: Memory = None,
    json: Json = False,
) -> None:
    """Compare predictions with the tags (labels) of a file. Prints P@k, nDCG@k, Hamming loss, AUC and F1.

    labelgap evaluate test.csv --model model

    labelgap evaluate test.csv --model model --probe 200 --output probe.csv
    """
    with exit_on_error(), show_progress("Evaluating …", json), use_machines(dask, memory):
        from labelgap.commands import prediction
        from labelgap.commands.outputs import check_output
        from labelgap.inputs import TableColumns, WrongOption, check_tags, count_tags, load_data_for, open_model

        if probe is not None:
            if output is None:
                raise WrongOption("--probe needs --output FILE, the table of the drawn cells.")
            check_output("--output", output, data, model, table=True)
        estimator = open_model(model)
        columns = TableColumns(text, tags, labels, separator, delimiter, encoding)
        test = load_data_for(estimator, data, columns, labels=True)
        check_tags(test, data)
        if probe is not None and output is not None:
            values = prediction.draw_probe(estimator, test, probe, output, seed)
        else:
            values = prediction.evaluate(estimator, test, written_share, verdicts) | count_tags(test)
        if prediction.is_training_file(estimator, data):
            print_note(f"The model was fitted on {data}: these figures say little about new rows.")
    print_values(values, json)


@app.command()
def audit(
    data: DataFile,
    model: ModelFile,
    output: Annotated[
        Path | None,
        typer.Option(help="File for a table of the suggestions; after each model, of the rows scored so far."),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Number of suggestions to print, the most probable first.")] = 20,
    min_probability: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            callback=check_finite,
            help="List all suggestions of at least this probability (default: as many as are probably missing or "
            "wrong).",
        ),
    ] = None,
    verdicts: Annotated[
        Path | None,
        typer.Option(
            help="Table with the columns row, label and verdict (accept or reject), such as the log of a review: "
            "learn from these verdicts, and list the other suggestions."
        ),
    ] = None,
    groups: Annotated[
        str, typer.Option(help="Column, such as the author: rows with the same value are scored by the same model.")
    ] = "",
    folds: Folds = 5,
    text: ModelText = "",
    tags: ModelTags = "",
    labels: ModelLabelColumns = "",
    separator: Separator = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    id_column: IdColumn = "",
    seed: FixedSeed = 0,
    checkpoint: Checkpoint = None,
    dask: Dask = "",
    memory: Memory = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Find tags (labels) that are probably missing or wrong.

    labelgap audit posts.csv --model model --output audit.csv
    """
    with exit_on_error(checkpoint):
        from labelgap.commands import gap_commands
        from labelgap.inputs import TableColumns

        columns = TableColumns(text, tags, labels, separator, delimiter, encoding, id_column)
        options: dict[str, Any] = {"folds": folds, "seed": seed, "checkpoint": checkpoint, "groups": groups}
        options |= {"verdicts": verdicts, "min_probability": min_probability}
        with show_progress(f"Fitting {folds} models …", quiet or json), use_machines(dask, memory):
            report = gap_commands.audit(data, model, columns, output, **options)
        if not json:
            print_table(report.columns, report.rows(top), fit_last=True)
        print_values(report.summarize(500), json)
        if not json and report.explain_order():
            print_note(report.explain_order())


@app.command()
def complete(
    data: DataFile,
    model: ModelFile,
    output: Annotated[Path, typer.Option(help="File for the table with a probability in every unknown cell.")],
    folds: Folds = 3,
    text: ModelText = "",
    labels: Annotated[str, typer.Option(help="Label columns; blank cells are unknown.")] = "",
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    seed: FixedSeed = 0,
    checkpoint: Checkpoint = None,
    dask: Dask = "",
    memory: Memory = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Fill unknown label cells with calibrated probabilities.

    labelgap complete posts.csv --model model --output filled.csv
    """
    with exit_on_error(checkpoint):
        from labelgap.commands import gap_commands
        from labelgap.inputs import TableColumns

        columns = TableColumns(text, labels=labels, delimiter=delimiter, encoding=encoding)
        with show_progress(f"Fitting {folds + 1} models …", quiet or json), use_machines(dask, memory):
            values = gap_commands.complete(
                data, model, columns, output, folds=folds, seed=seed, checkpoint=checkpoint
            )
        print_values(values, json)


@app.command()
def explain(
    data: DataFile,
    model: ModelFile,
    row: Annotated[int, typer.Option(min=0, help="Number of the row, counted from 0.")],
    label: Annotated[str, typer.Option(help="Name or number of the label.")],
    top: Annotated[int, typer.Option(min=1, help="Number of features and labels to print.")] = 10,
    text: ModelText = "",
    tags: ModelTags = "",
    labels: ModelLabelColumns = "",
    separator: Separator = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    json: Json = False,
) -> None:
    """Show which features and labels of a row support a label.

    labelgap explain posts.csv --model model --row 7 --label cookies
    """
    with exit_on_error():
        from labelgap.commands import gap_commands
        from labelgap.inputs import TableColumns

        columns = TableColumns(text, tags, labels, separator, delimiter, encoding)
        explanation = gap_commands.explain(data, model, columns, row, label, top)
        decision, features, known, probability = explanation
        if json:
            arguments = {"features": [list(a) for a in features], "labels": [list(a) for a in known]}
            typer.echo(format_json({"decision": decision, "probability": probability} | arguments))
            return
        chance = "" if probability is None else f"; a person writes it with probability {probability:.3f}"
        typer.echo(f"decision {decision:+.3f}: {'yes' if decision > 0 else 'no'}{chance}")
        for kind, arguments_of_kind in (("feature", features), ("known label", known)):
            if arguments_of_kind:
                print_table([kind, "weight"], ([name, f"{weight:+.4f}"] for name, weight in arguments_of_kind))


@app.command()
def inspect(
    path: Annotated[Path, typer.Argument(callback=check_model, help="Model file.")], json: Json = False
) -> None:
    """Describe a model file."""
    with exit_on_error():
        from labelgap.commands import prediction

        values = prediction.inspect(path)
        print_values(values if json else values | {"label names": prediction.abbreviate(values["label names"])}, json)


@app.command()
def export(
    path: Annotated[Path, typer.Argument(callback=check_model, help="Model file of texts.")],
    folder: Annotated[Path, typer.Argument(help="Folder to write tagger.py and tagger.npz to.")],
) -> None:
    """Write a tagger that runs with Python and NumPy alone."""
    with exit_on_error():
        from labelgap.estimators import export as export_model
        from labelgap.inputs import open_model

        export_model(open_model(path), folder)
        print(f"Wrote {folder / 'tagger.py'} and {folder / 'tagger.npz'}.")


@app.command()
def convert(
    source: Annotated[
        Path,
        typer.Argument(
            callback=check_data,
            help="File of features and labels, or a folder of such files; with --shards also a table.",
        ),
    ],
    target: Annotated[
        Path, typer.Argument(help="File to write, in the format of its ending; with --shards a folder.")
    ],
    shards: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Write a folder of so many row shards, which fit, predict, evaluate and audit read without loading "
            "it; of a folder, each file becomes a shard. Of a table, write a folder of tables.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Convert features and labels to another file format. Formats are XMC text, svmlight, ARFF, npz and shards.

    labelgap convert train.arff train.txt.gz

    labelgap convert train.txt train-shards --shards 16
    """
    with exit_on_error():
        from labelgap.commands import prediction

        print_values(prediction.convert(source, target, shards), json)


@app.command()
def serve(
    models: Annotated[list[str], typer.Argument(metavar="MODEL", help="Model files, or NAME=FILE; at least one.")],
    host: Annotated[
        str, typer.Option(help="Address to listen on; the default accepts requests from this machine only.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 chooses a free one.")] = 8000,
    workers: Annotated[int, typer.Option(min=1, help="Number of processes; they share the models' memory.")] = 1,
    token: Annotated[
        str | None, typer.Option(envvar="LABELGAP_TOKEN", help="Token that every request must carry.")
    ] = None,
    named_token: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=TOKEN", help="Token of a person; reviews are stored under the name. Repeatable."),
    ] = None,
    allow_host: Annotated[list[str] | None, typer.Option(help="Additional host name of the server.")] = None,
    data: Annotated[Path | None, typer.Option(help="Table of texts to review on the page at /.")] = None,
    reviews: Annotated[
        Path | None, typer.Option(help="SQLite file for the reviews (default: NAME.reviews.sqlite next to --data).")
    ] = None,
    max_body: Annotated[int, typer.Option(min=1, help="Maximum number of bytes in a request.")] = 8 << 20,
    max_texts: Annotated[int, typer.Option(min=1, help="Maximum number of rows in a request.")] = 1000,
    max_length: Annotated[int, typer.Option(min=1, help="Maximum number of characters in a text.")] = 100_000,
    max_top: Annotated[int, typer.Option(min=1, help="Maximum number of labels for a row.")] = 1000,
    timeout: Annotated[float, typer.Option(min=0.01, help="Maximum number of seconds for an answer.")] = 30.0,
    batch_ms: Annotated[
        float,
        typer.Option(min=0, help="Milliseconds to wait for more requests, to predict them in one batch."),
    ] = 0.0,
    batch_size: Annotated[int, typer.Option(min=1, help="Maximum number of rows to predict at once.")] = 256,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of threads for a prediction (default: all cores, for few rows all but one)."
        ),
    ] = None,
    device: Annotated[
        str, typer.Option(help="Device that predicts 64 rows or more: auto (a GPU if there is one), cpu or cuda.")
    ] = "auto",
    insecure: Annotated[bool, typer.Option("--insecure", help="Accept other machines without a token.")] = False,
    json: Json = False,
) -> None:
    """Serve models over HTTP, with a page to review labels. Runs until it is stopped.

    labelgap serve model --port 8000
    """
    with exit_on_error():
        for source in models:
            if not any(Path(path).exists() for path in (source, source.partition("=")[2]) if path):
                raise FileNotFoundError(f"There is no model {source}; check the path.")
        from labelgap.serve import Settings
        from labelgap.serve.server import ServerOptions, run_server

        settings = Settings(
            host=host,
            token=token,
            hosts=tuple(allow_host or ()),
            tokens=tuple(map(_split_named_token, named_token or ())),
            max_body=max_body,
            max_texts=max_texts,
            max_length=max_length,
            max_top=max_top,
            timeout=timeout,
            batch_ms=batch_ms,
            batch_size=batch_size,
            n_threads=threads,
        )
        reviews_path, data_path = (None if path is None else str(path) for path in (reviews, data))
        options = ServerOptions(models, settings, port, workers, reviews_path, data_path, device)
        run_server(options, insecure=insecure, announce=lambda address: _announce(address, json))


def _split_named_token(text: str) -> tuple[str, str]:
    name, equals, token = text.partition("=")
    if not equals:
        raise ValueError("--named-token needs a name and a token, such as --named-token Anna=SECRET.")
    return name, token


def _announce(address: dict[str, Any], json: bool) -> None:
    """Print the URL of a server that has started, and the file of its reviews."""
    message = f"Serving {', '.join(address['models'])} at {address['url']}; Ctrl-C stops it."
    if "reviews" in address:
        file, n_verdicts, is_new = address["reviews"].values()
        verdicts = "1 verdict" if n_verdicts == 1 else f"{n_verdicts} verdicts"
        message += f"\nReviews: {file} ({'new, without verdicts' if is_new else verdicts})"
    typer.echo(format_json(address) if json else message)
    sys.stdout.flush()


@app.command()
def methods(
    handles: Annotated[
        str | None, typer.Option(help="List only methods that accept this: missing labels, positives only, …")
    ] = None,
    json: Json = False,
) -> None:
    """List the methods, what they accept and what they cost."""
    from labelgap.methods import list_methods

    with exit_on_error():
        facts = list_methods(handles=handles)
    if json:
        entries = {name: about._asdict() for name, about in facts.items()}
        typer.echo(format_json({name: {"what": entry.pop("summary")} | entry for name, entry in entries.items()}, 1))
        return
    print_entries(
        (
            f"{name} ({about.paper})",
            [
                about.summary,
                f"Takes {', '.join(about.handles) or 'complete labels only'}. "
                f"Time to fit: {about.fit}; to score a row: {about.predict}.",
            ],
        )
        for name, about in facts.items()
    )
    typer.echo(f"Times are in {COST_SYMBOLS}")


@app.command()
def demo(output: Annotated[Path, typer.Option(help="Folder for the plot and the model.")] = Path("demo")) -> None:
    """Show what gaps cost: compare methods on generated data."""
    from labelgap.demo import run

    with exit_on_error():
        run(output)


@app.command()
def reproduce(
    names: Annotated[list[str] | None, typer.Argument(help="Experiments, such as leml/table-5.")] = None,
    show_list: Annotated[bool, typer.Option("--list", help="List the experiments and exit.")] = False,
    datasets: Annotated[str, typer.Option(help="Only these, separated by commas.")] = "",
    losses: Annotated[str, typer.Option(help="Only these: squared, logistic, squared_hinge.")] = "",
    methods: Annotated[str, typer.Option(help="Only these, such as LEML.")] = "",
    ratios: Annotated[str, typer.Option(help="Only these k/L, such as 0.2,0.4.")] = "",
    observed: Annotated[str, typer.Option(help="Only these shares of known cells, such as 0.1,0.2.")] = "",
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Number of seeds to average over (default: 1, or 10 for mc/*).")
    ] = None,
    random_splits: Annotated[
        bool, typer.Option("--random-splits", help="Each seed draws another split of the same sizes.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Bibtex, one seed, the middle settings; for mc/*, 3 seeds.")
    ] = False,
    json: Annotated[Path | None, typer.Option(help="File for all rows, as JSON.")] = None,
    plot: Annotated[Path | None, typer.Option(help="File for a plot of all rows (needs matplotlib).")] = None,
    summary: Annotated[
        Path | None, typer.Option(help="Only write a page that summarises the results in this folder.")
    ] = None,
    run_all: Annotated[
        bool,
        typer.Option("--all", help="Make all fits that --folder does not have, cheapest per number first."),
    ] = False,
    folder: Annotated[Path, typer.Option(help="Folder of --all; it keeps each fit as soon as it ends.")] = Path(
        "docs/results"
    ),
    budget: Budget = None,
) -> None:
    """Repeat published experiments and compare the numbers."""
    from labelgap_papers import reproduce_command

    filters = {"datasets": datasets, "losses": losses, "methods": methods, "ratios": ratios, "observed": observed}
    with exit_on_error():
        if summary is not None:
            typer.echo(reproduce_command.summarize_folder(summary, plot))
            return
        names = names or []
        if show_list or not (names or run_all):
            reproduce_command.print_experiments()
            raise typer.Exit(0 if show_list else 2)
        if run_all:
            interrupted = reproduce_command.reproduce_all(
                names, filters, folder=folder, seeds=seeds, budget=budget, random_splits=random_splits
            )
        else:
            interrupted = reproduce_command.reproduce(
                names, filters, seeds=seeds, quick=quick, json=json, plot=plot, random_splits=random_splits
            )
    if interrupted:
        raise typer.Exit(130)


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


@data.command("list")
def list_data() -> None:
    """List the datasets and their sources."""
    from labelgap.datasets import list_datasets

    entries = []
    for info in list_datasets():
        counts = {"training rows": info.n_train, "test rows": info.n_test, "features": info.n_features}
        sizes = [f"{count:,} {name}" for name, count in (counts | {"labels": info.n_labels}).items() if count]
        entries.append((f"{info.name} [{info.where}]", [info.description, ", ".join(sizes)]))
    print_entries(entries)
    typer.echo(
        "[folder] and [cache]: on this machine. [OpenML]: `labelgap data get` downloads it. [not available]: put its "
        "files into the folder that the environment variable LABELGAP_DATA names; `labelgap data get` says which."
    )


@data.command("get")
def get_data(
    name: Annotated[str, typer.Argument(help="Name of a dataset, as `labelgap data list` shows it.")],
    output: Annotated[
        Path | None, typer.Option(help="File for the training part, in the format of its ending.")
    ] = None,
) -> None:
    """Download a dataset to the cache and print its size."""
    from labelgap.commands.outputs import check_output
    from labelgap.datasets import load_dataset, write

    with exit_on_error():
        check_output("--output", output)
        dataset = load_dataset(name)
        if output is not None:
            write(output, dataset.X_train, dataset.Y_train)
    for part, X, Y in (("train", dataset.X_train, dataset.Y_train), ("test", dataset.X_test, dataset.Y_test)):
        if X is not None and Y is not None:
            sizes = f"{X.shape[0]:,} rows, {X.shape[1]:,} features, {Y.shape[1]:,} labels"
            typer.echo(f"{part}: {sizes}, {int(Y.sum()):,} tags")


def main() -> None:
    """Run the command line."""
    app()
