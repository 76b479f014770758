"""Files as people have them, from the outside: a file in, a file or an exit code out."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from labelgap import load
from labelgap.cli import app
from labelgap.datasets import read_records, write_records

TOPICS = {"baking": "oven flour cake", "cast iron": "pan rust seasoning", "meat": "bacon steak grill"}


def labelgap(*arguments, **options):
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "120"}, **options)


def as_json(*arguments):
    shown = labelgap(*arguments, "--json")
    assert shown.exit_code == 0, shown.output
    return json.loads(shown.stdout)


def posts(n=60, seed=0):
    """Yield (id, text, tags)."""
    rng = np.random.default_rng(seed)
    for i in range(n):
        tags = sorted(rng.choice(list(TOPICS), 1 + (rng.random() < 0.4), replace=False))
        yield (
            f"p{i}",
            " ".join(word for tag in tags for word in rng.choice(TOPICS[tag].split(), 3)),
            list(map(str, tags)),
        )


FORMS = {
    "commas": ", ".join,
    "semicolons": "; ".join,
    "bars": "|".join,
    "json": json.dumps,
    "python": repr,
    "angles": lambda tags: "".join(f"<{tag}>" for tag in tags),
}


def write_posts(path, form, delimiter=",", seed=0, columns=("Id", "Text", "Tags"), n=60):
    rows = [[name, text, FORMS[form](tags)] for name, text, tags in posts(n, seed)]
    write_records(path, columns, rows, delimiter=delimiter)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model that was fitted with nothing named but the file."""
    path = tmp_path_factory.mktemp("files")
    write_posts(path / "posts.csv", "python", ";")
    values = as_json("fit", path / "posts.csv", "--output", path / "model", "--alpha", 0.1)
    assert (values["text columns"], values["tags column"], values["labels"]) == (["Text"], "Tags", 3)
    return path


@pytest.mark.parametrize("form", FORMS)
def test_one_reading_of_tags_in_every_command(form, tmp_path):
    write_posts(tmp_path / "a.csv", form)
    write_posts(tmp_path / "b.csv", form, "\t", seed=1, columns=("id", "text", "tags"))
    values = as_json("fit", tmp_path / "a.csv", "--output", tmp_path / "model", "--alpha", 0.1)
    assert (values["labels"], values["rows without tags"]) == (3, 0)
    assert load(tmp_path / "model").label_names_in_.tolist() == list(TOPICS)
    values = as_json("evaluate", tmp_path / "b.csv", "--model", tmp_path / "model")
    assert (values["tags"], values["tags not in the model"]) == (3, 0)
    assert values["P@1"] > 0.9
    audited = as_json("audit", tmp_path / "b.csv", "--model", tmp_path / "model", "--folds", 2)
    assert audited["tags not in the model"] == 0


@pytest.mark.parametrize("form", FORMS)
def test_a_file_in_another_form_than_the_models(folder, form, tmp_path):
    write_posts(tmp_path / "b.csv", form, "|", seed=2)
    values = as_json("evaluate", tmp_path / "b.csv", "--model", folder / "model")
    assert values["tags not in the model"] == 0
    assert values["P@1"] > 0.9


def test_predictions_have_the_users_columns(folder, tmp_path):
    rows = [["x", "7", "bacon and steak"], ["y", "8", "rust on my pan"]]
    write_records(tmp_path / "new.csv", ["source", "ID", "TEXT"], rows, delimiter="|")
    values = as_json("predict", tmp_path / "new.csv", "--model", folder / "model", "--output", tmp_path / "out.csv")
    assert (values["rows"], values["rows without a tag"]) == (2, 0)
    found = read_records(tmp_path / "out.csv")
    assert list(found[0]) == ["source", "ID", "TEXT", "tags", "scores", "probabilities"]
    assert [list(row.values())[:4] for row in found] == [[*rows[0], "['meat']"], [*rows[1], "['cast iron']"]]
    shown = labelgap("predict", tmp_path / "new.csv", "--model", folder / "model", "--top", 1)
    assert "tags (probability)" in shown.output
    assert "cast iron (" in shown.output
    lines = labelgap("predict", tmp_path / "new.csv", "--model", folder / "model", "--json").stdout.splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["7", "8"]
    chosen = labelgap("predict", tmp_path / "new.csv", "--model", folder / "model", "--id", "source", "--json")
    assert json.loads(chosen.stdout.splitlines()[0])["id"] == "x"


def test_one_text(folder):
    predict = ["predict", "--model", folder / "model", "--top", 1, "--json"]
    for shown in (
        labelgap(*predict, "--document", "bacon on the grill"),
        labelgap(*predict, "-", input="bacon\non the grill\n"),
    ):
        assert shown.exit_code == 0, shown.output
        assert json.loads(shown.stdout)["tags"] == ["meat"]
    shown = labelgap(*predict, "--document", "bacon", "--document", "flour")
    assert [json.loads(line)["tags"] for line in shown.stdout.splitlines()] == [["meat"], ["baking"]]


def test_an_audit_names_rows_and_is_as_long_as_it_says(folder, tmp_path):
    rows = [[name, text, repr(tags)] for name, text, tags in posts(150, seed=3)]
    for row in rows[::5]:
        row[2] = "[]"
    write_records(tmp_path / "gaps.csv", ["id", "text", "tags"], rows)
    audit = ["audit", tmp_path / "gaps.csv", "--model", folder / "model", "--folds", 2]
    values = as_json(*audit, "--output", tmp_path / "audit.csv")
    found = read_records(tmp_path / "audit.csv")
    assert list(found[0]) == ["id", "row", "label", "kind", "probability", "text"]
    assert all(row["id"] == f"p{row['row']}" for row in found)
    assert values["rows without tags"] == 30
    missing = [row for row in found if row["kind"] == "missing"]
    share = values["estimated share missing"]
    assert len(missing) == values["missing labels listed"]
    assert len(missing) == pytest.approx(values["positives"] * share / (1 - share), abs=1.1)
    assert values["expected right among these"] == pytest.approx(
        sum(float(row["probability"]) for row in missing), abs=1
    )
    assert "95 % interval of the share" in values
    as_json(*audit, "--output", tmp_path / "sure.csv", "--min-probability", 0.5)
    assert all(float(row["probability"]) >= 0.5 for row in read_records(tmp_path / "sure.csv"))
    shown = labelgap(*audit, "--top", 3).stdout
    assert sum(" missing " in line or " doubtful " in line for line in shown.splitlines()[:7]) == 3


def test_rows_without_tags_are_told(tmp_path):
    rows = [[text, "" if i % 4 == 0 else ",".join(tags)] for i, (_, text, tags) in enumerate(posts(40))]
    write_records(tmp_path / "a.csv", ["text", "tags"], rows)
    shown = labelgap("fit", tmp_path / "a.csv", "--output", tmp_path / "model", "--complete")
    assert shown.exit_code == 0, shown.output
    assert "10 rows have no tags; each tag there counts as a no. Leave" in shown.stderr
    shown = labelgap("fit", tmp_path / "a.csv", "--output", tmp_path / "model")
    assert "10 rows have no tags; each tag there counts as not written: a no, or forgotten." in shown.stderr


def test_the_training_file_is_recognized(folder, tmp_path):
    shown = labelgap("evaluate", folder / "posts.csv", "--model", folder / "model")
    assert "The model was fitted on" in shown.stderr
    write_posts(tmp_path / "b.csv", "json", seed=5)
    assert "fitted on" not in labelgap("evaluate", tmp_path / "b.csv", "--model", folder / "model").stderr


def test_label_columns_are_guessed_and_blanks_are_unknown(tmp_path):
    rows = []
    for i, (_, text, tags) in enumerate(posts(60)):
        states = [int(tag in tags) for tag in TOPICS]
        states[i % 3] = ["", "NaN", "?", "NA"][i % 4]
        rows.append([i, text, *states])
    write_records(tmp_path / "a.csv", ["id", "Comment_Text", *TOPICS], rows, delimiter=";")
    values = as_json("fit", tmp_path / "a.csv", "--output", tmp_path / "model", "--alpha", 0.1)
    assert (values["text columns"], values["label columns"]) == (["Comment_Text"], list(TOPICS))
    assert values["unknown cells"] == 60


def test_encodings(tmp_path):
    rows = "".join(f"{text} é;{','.join(tags)}\n" for _, text, tags in posts())
    for name, encoding, options in (("a", "utf-16", []), ("b", "cp1250", ["--encoding", "cp1250"])):
        (tmp_path / f"{name}.csv").write_bytes(("text;tags\n" + rows).encode(encoding))
        values = as_json("fit", tmp_path / f"{name}.csv", "--output", tmp_path / "model", *options)
        assert (values["rows"], values["labels"]) == (60, 3)
        shown = labelgap("evaluate", tmp_path / f"{name}.csv", "--model", tmp_path / "model", *options)
        assert shown.exit_code == 0, shown.output


def test_a_bad_row_leaves_nothing(folder, tmp_path):
    rows = [["bacon", "['meat']"]] * 20 + [["bacon", "meat"]]
    write_records(tmp_path / "a.csv", ["text", "tags"], rows)
    shown = labelgap("fit", tmp_path / "a.csv", "--output", tmp_path / "model")
    assert (shown.exit_code, "row 20 (counted from 0): the tags 'meat'" in shown.stderr) == (1, True)
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


# --- output that can be read ----------------------------------------------------------------------------------------


def test_summaries_of_commands_are_whole():
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).output
    assert "..." not in shown.partition("Commands")[2]
    assert "Find tags (labels) that are probably missing or wrong." in " ".join(shown.split())


def test_lists_have_legends_and_no_tall_columns():
    legends = {"methods": "n rows, d features", "data list": "[OpenML]: `labelgap data get`"}
    for command, legend in legends.items():
        shown = CliRunner().invoke(app, command.split(), env={"COLUMNS": "80"}).output
        assert legend in " ".join(shown.split())
        assert max(map(len, shown.splitlines()[:-2])) <= 100


def test_inspect_names_labels_once(folder):
    shown = labelgap("inspect", folder / "model").stdout
    assert shown.count("cast iron") == 1
    refused = labelgap("inspect", folder / "posts.csv")
    assert (refused.exit_code, "is a table, not a model" in refused.stderr) == (1, True)


def test_an_audit_takes_one_line_for_a_row(folder):
    audit = ["audit", folder / "posts.csv", "--model", folder / "model", "--folds", 2, "--min-probability", 0]
    shown = CliRunner().invoke(app, list(map(str, audit)), env={"COLUMNS": "70"})
    lines = shown.stdout.splitlines()
    assert sum("│ missing" in line or "│ doubtful" in line for line in lines[:24]) == 20
    assert lines[23].startswith("└")
