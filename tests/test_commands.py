"""The command line as a user meets it: from a table of texts to tags, to forgotten ones, and to errors that help."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

from labelgap import LEML, Tagger, load
from labelgap.cli import app
from labelgap.commands.training import find_class, list_parameters, parse_options
from labelgap.datasets import make_low_rank, read, read_records, write, write_records
from labelgap.datasets.tag_columns import split_tags
from labelgap.inputs import TableColumns, load_data_for
from labelgap.observations import as_labels

WORDS = {"baking": "oven flour cookies cake", "meat": "bacon steak roast grill", "soup": "broth stock ladle bowl"}
NAMES = sorted(WORDS)


def labelgap(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "160"})


def as_json(*arguments):
    shown = labelgap(*arguments, "--json")
    assert shown.exit_code == 0, shown.output
    return json.loads(shown.stdout)


def posts(n=150, seed=0):
    rng = np.random.default_rng(seed)
    for i in range(n):
        topics = sorted(rng.choice(NAMES, 1 + (rng.random() < 0.3), replace=False))
        words = [word for topic in topics for word in rng.choice(WORDS[topic].split(), 3)]
        yield [i, f"<b>{words[0]}</b>", " ".join(words[1:]), " ".join(topics)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table of posts and a model of it."""
    path = tmp_path_factory.mktemp("posts")
    write_records(path / "posts.csv", ["id", "title", "body", "tags"], posts())
    shown = labelgap(
        "fit",
        path / "posts.csv",
        "--text",
        "title,body",
        "--tags",
        "tags",
        "--output",
        path / "model",
        "--alpha",
        0.1,
    )
    assert shown.exit_code == 0, shown.output
    write_records(path / "bare.csv", ["a", "b", "c"], [["x y", "y", "z"], ["y x", "x", "z"]])
    return path


# --- options from signatures ---------------------------------------------------------------------------------------


def test_options_are_those_of_the_signature():
    given = parse_options(
        LEML, ["--n-components", "3", "--fit-intercept", "false", "--loss", "logistic", "--alpha=2"]
    )
    assert given == {"n_components": 3, "fit_intercept": False, "loss": "logistic", "alpha": 2}
    assert parse_options(LEML, ["--warm-start"]) == {"warm_start": True}
    assert "callbacks" not in list_parameters(LEML)
    assert find_class("oneclassmf").__name__ == "OneClassMF"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--alfa", "1"], "--alfa is not an option of LEML; did you mean --alpha"),
        (["alpha", "1"], "alpha is not an option of LEML"),
        (["--callbacks", "1"], "--callbacks is not an option of LEML"),
    ],
)
def test_options_that_are_none(words, message):
    with pytest.raises(ValueError, match=message):
        parse_options(LEML, words)


# --- from a table to tags ------------------------------------------------------------------------------------------


def test_fit_says_what_it_did(folder):
    arguments = ["fit", folder / "posts.csv", "--text", "title,body", "--tags", "tags", "--output", folder / "again"]
    found = as_json(*arguments, "--method", "leml", "--n-components", 2, "--seed", 3)
    assert (found["rows"], found["labels"], found["unknown cells"]) == (150, 3, 0)
    assert (found["text columns"], found["tags column"], found["rows without tags"]) == (["title", "body"], "tags", 0)
    model = load(folder / "again")
    assert isinstance(model, Tagger)
    assert (model.estimator.n_components, model.estimator.random_state) == (2, 3)
    assert model.label_names_in_.tolist() == NAMES


def test_fit_with_auto_blends_and_propensities_are_options(folder):
    arguments = ["fit", folder / "posts.csv", "--text", "title,body", "--tags", "tags", "--output", folder / "auto"]
    as_json(*arguments, "--method", "auto", "--budget", 20, "--seed", 0, "--no-calibrate")
    model = load(folder / "auto")
    assert type(model.estimator).__name__ == "AutoLabeler"
    assert (model.estimator.budget, model.estimator.random_state) == (20, 0)
    assert model.model_.members_
    as_json(*arguments, "--method", "OneClassMF", "--n-components", 2, "--propensity", "counts")
    assert load(folder / "auto").estimator.propensity == "counts"


def test_predict_takes_raw_text(folder):
    write_records(folder / "new.csv", ["title", "body"], [["Bacon", "on the grill"], ["A cake", "flour, oven"]])
    shown = labelgap("predict", folder / "new.csv", "--model", folder / "model", "--top", 1, "--json")
    lines = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [line["tags"] for line in lines] == [["meat"], ["baking"]]
    assert "meat (" in labelgap("predict", folder / "new.csv", "--model", folder / "model").output


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl"])
def test_predictions_as_a_table(folder, ending):
    output = folder / f"tags.{ending}"
    shown = labelgap("predict", folder / "posts.csv", "--model", folder / "model", "--top", 2, "--output", output)
    assert shown.exit_code == 0, shown.output
    rows = read_records(output)
    model = load(folder / "model")
    texts = [f"{row['title']}\n{row['body']}" for row in read_records(folder / "posts.csv")]
    for row, tags in zip(rows, model.predict_tags(texts, 2), strict=True):
        predicted = row["predicted_tags"]
        assert (predicted if ending == "jsonl" else predicted.split(" ")) == tags


@pytest.mark.filterwarnings("default::UserWarning")
@pytest.mark.parametrize(
    ("tags", "separator", "mark"),
    [
        (["red wine", "cheese"], None, ","),
        (["red, dry", "cheese"], ";", ";"),
        (["red, dry", "cheese; blue"], None, None),
        (["red wine", "sour cream"], None, ","),
    ],
)
def test_predicted_tags_are_read_as_they_were(tags, separator, mark, tmp_path):
    lists = [tags[:1], tags[1:], tags] * 8
    texts = [f"{'oven' * (tags[0] in one)} {'flour' * (tags[1] in one)}" for one in lists]
    cells = list(map(json.dumps, lists)) if mark is None else [mark.join(one) for one in lists]
    write_records(tmp_path / "a.csv", ["text", "tags"], zip(texts, cells, strict=True))
    where = ["--text", "text", "--tags", "tags", *(["--separator", separator] if separator else [])]
    assert labelgap("fit", tmp_path / "a.csv", *where, "--output", tmp_path / "model").exit_code == 0
    shown = labelgap("predict", tmp_path / "a.csv", "--model", tmp_path / "model", "--output", tmp_path / "b.csv")
    assert "as JSON lists" not in shown.stderr
    found = read_records(tmp_path / "b.csv")
    again = [{"text": text, "tags": row["predicted_tags"]} for text, row in zip(texts, found, strict=True)]
    write_records(tmp_path / "c.csv", ["text", "tags"], [list(row.values()) for row in again])
    for given in (TableColumns(), TableColumns("text", "tags", separator=separator)):
        data = load_data_for(load(tmp_path / "model"), tmp_path / "c.csv", given, labels=True)
        assert data.label_names == sorted(tags)
        assert data.Y.toarray().tolist() == [[tag in one for tag in sorted(tags)] for one in lists]
        assert not data.unknown_tags


@pytest.mark.filterwarnings("default::UserWarning")
def test_single_tags_with_blanks_are_not_cut(tmp_path):
    write_records(tmp_path / "a.jsonl", ["text", "tags"], [["oven", ["red wine"]], ["flour", ["sour cream"]]] * 8)
    fit = ["fit", tmp_path / "a.jsonl", "--text", "text", "--tags", "tags", "--output", tmp_path / "model"]
    assert labelgap(*fit).exit_code == 0
    assert load(tmp_path / "model").columns_["separator"] == ""
    predict = ["predict", tmp_path / "a.jsonl", "--model", tmp_path / "model", "--top", 1]
    assert labelgap(*predict, "--output", tmp_path / "b.csv").exit_code == 0
    tags = [row["predicted_tags"] for row in read_records(tmp_path / "b.csv")]
    assert split_tags(tags) == [["red wine"], ["sour cream"]] * 8


def test_a_model_remembers_what_stands_between_tags(tmp_path):
    rows = [["oven cake", "red, dry;wine"], ["flour", "wine"], ["cake", "red, dry"], ["oven", "wine"]] * 5
    write_records(tmp_path / "a.csv", ["text", "tags"], rows)
    columns = ["--text", "text", "--tags", "tags", "--separator", ";", "--output", tmp_path / "model"]
    assert labelgap("fit", tmp_path / "a.csv", *columns).exit_code == 0
    model = load(tmp_path / "model")
    data = load_data_for(model, tmp_path / "a.csv", TableColumns(), labels=True)
    assert as_labels(data.Y).positives.nnz == 25
    write_records(tmp_path / "one.csv", ["text", "tags"], [["oven", "red, dry"]])
    assert as_labels(load_data_for(model, tmp_path / "one.csv", TableColumns(), labels=True).Y).positives.nnz == 1


def test_evaluate(folder):
    write_records(folder / "test.csv", ["id", "title", "body", "tags"], posts(60, seed=1))
    found = as_json("evaluate", folder / "test.csv", "--model", folder / "model")
    assert found["P@1"] > 0.95
    assert found["micro F1"] > 0.9
    assert {"P@3", "nDCG@3", "Hamming", "AUC"} <= found.keys()


def test_evaluate_estimates_the_figures_of_the_true_tags(folder):
    """Of the tags of test posts some are removed: the plain figures fall, their estimates do not."""
    rows, rng = list(posts(200, seed=1)), np.random.default_rng(0)
    write_records(folder / "whole.csv", ["id", "title", "body", "tags"], rows)
    thinned = [[*row[:3], " ".join(tag for tag in row[3].split() if rng.random() < 0.6)] for row in rows]
    write_records(folder / "thinned.csv", ["id", "title", "body", "tags"], thinned)
    evaluate = ["evaluate", folder / "thinned.csv", "--model", folder / "model", "--written-share"]
    whole = as_json("evaluate", folder / "whole.csv", "--model", folder / "model")
    found, wide = as_json(*evaluate, 0.6), as_json(*evaluate, "0.55,0.65")
    low, high = found["P@1 of true labels, 95 % interval"]
    assert low <= whole["P@1"] <= high
    assert found["micro F1 of true labels"] == pytest.approx(whole["micro F1"], abs=0.1)
    assert found["micro F1"] < found["micro F1 of true labels"]
    low, high = wide["P@1 of true labels, 95 % interval"]
    assert low < found["P@1 of true labels, 95 % interval"][0]
    refused = labelgap(*evaluate, 0.05)
    assert refused.exit_code == 1
    assert "the given share of written labels is too small" in refused.output


def test_evaluate_learns_the_figures_of_the_true_tags_from_a_probe(folder):
    rows = list(posts(200, seed=1))
    write_records(folder / "cut.csv", ["id", "title", "body", "tags"], [[*r[:3], r[3].split()[0]] for r in rows])
    write_records(folder / "whole.csv", ["id", "title", "body", "tags"], rows)
    command = ["evaluate", folder / "cut.csv", "--model", folder / "model"]
    whole = as_json("evaluate", folder / "whole.csv", "--model", folder / "model")
    drawn = as_json(*command, "--probe", 150, "--output", folder / "probe.csv")
    cells = read_records(folder / "probe.csv")
    assert len(cells) == drawn["cells to review"]
    for cell in cells[: len(cells) * 3 // 4]:  # not all of them are reviewed
        cell["verdict"] = "accept" if cell["label"] in rows[int(cell["row"])][3].split() else "reject"
    write_records(folder / "probe.csv", list(cells[0]), [list(cell.values()) for cell in cells])
    found = as_json(*command, "--verdicts", folder / "probe.csv")
    whole["micro recall@1"] = whole["P@1"] * len(rows) / sum(len(row[3].split()) for row in rows)
    for name in ("P@1", "micro F1", "micro recall@1"):
        low, high = found[f"{name} of true labels, by the probe, 95 % interval"]
        assert low <= whole[name] <= high
        assert high - low < 0.4
    needed = found["cells for intervals of ± 0.05"]
    assert needed["micro F1"] > found["verdicts"] == len(cells) * 3 // 4
    assert "micro F1" in found["note"]
    assert drawn["cells for P@1 with an interval of ± 0.05"].startswith("about ")
    for words, message in [
        (["--probe", 150], "--probe needs --output"),
        (["--probe", 150, "--output", folder / "probe.csv"], "has verdicts; pass it as --verdicts"),
    ]:
        refused = labelgap(*command, *words)
        assert refused.exit_code != 0
        assert message in " ".join(refused.output.split())
    write_records(folder / "other.csv", ["id", "title", "body", "tags"], list(posts(200, seed=2)))
    others = ["evaluate", folder / "other.csv", *command[2:], "--verdicts", folder / "probe.csv"]
    assert "has other texts than these data" in labelgap(*others).output
    capitals = [[*cell.values()] for cell in cells]
    for record in capitals:
        record[2] = f" {record[2]} ".title()
    write_records(folder / "probe.csv", list(cells[0]), capitals)
    assert as_json(*command, "--verdicts", folder / "probe.csv") == found
    cells[3]["verdict"] = "acept"
    write_records(folder / "probe.csv", list(cells[0]), [list(cell.values()) for cell in cells])
    refused = labelgap(*command, "--verdicts", folder / "probe.csv")
    assert "record 4: the verdict 'acept' is neither accept nor reject" in " ".join(refused.output.split())
    write_records(
        folder / "probe.csv", ["row", "label", "verdict", "chance"], [[999, cells[0]["label"], "accept", 0.5]]
    )
    refused = labelgap(*command, "--verdicts", folder / "probe.csv")
    assert "out of range" in refused.output


def test_a_column_of_blank_tags_is_one_clear_error(folder):
    write_records(folder / "blank.csv", ["title", "tags"], [["a text", ""], ["another", " "]])
    refused = labelgap("fit", folder / "blank.csv", "--output", folder / "none")
    assert "has no tag in the column 'tags'" in " ".join(refused.output.split())


def test_a_budget_has_units():
    assert parse_options(find_class("AutoLabeler"), ["--budget", "2m"]) == {"budget": 120.0}


@pytest.mark.filterwarnings("default::UserWarning")
def test_labels_that_the_model_does_not_know_are_left_out(folder):
    write_records(folder / "odd.csv", ["title", "body", "tags"], [["bacon", "steak", "meat unheard-of"]])
    found = as_json("evaluate", folder / "odd.csv", "--model", folder / "model")
    assert (found["P@1"], found["tags"], found["tags not in the model"]) == (1.0, 2, 1)
    shown = labelgap("evaluate", folder / "odd.csv", "--model", folder / "model")
    assert "1 of 2 tags of" in shown.stderr
    assert "'unheard-of'" in shown.stderr


@pytest.mark.parametrize("command", ["evaluate", "audit"])
def test_a_file_of_other_tags_is_refused(folder, command):
    write_records(folder / "foreign.csv", ["title", "body", "tags"], [["bacon", "steak", "x y"], ["oven", "", "z"]])
    shown = labelgap(command, folder / "foreign.csv", "--model", folder / "model")
    assert shown.exit_code == 1
    assert "has none of the 3 tags" in shown.stderr


def test_unknown_tags_of_an_audit(folder):
    rows = [[*row[:3], f"{row[3]} odd"] for row in posts(40, seed=5)]
    write_records(folder / "more.csv", ["id", "title", "body", "tags"], rows)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        found = as_json("audit", folder / "more.csv", "--model", folder / "model", "--folds", 2)
    assert (found["tags"], found["tags not in the model"]) == (4, 1)


def test_json_has_null_for_no_number(folder):
    write_records(folder / "untagged.csv", ["title", "body", "tags"], [["bacon", "steak", ""]])
    shown = labelgap("evaluate", folder / "untagged.csv", "--model", folder / "model", "--json")
    found = json.loads(shown.stdout, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert None in found.values()
    assert found["rows without tags"] == 1


# --- gaps ----------------------------------------------------------------------------------------------------------


def test_audit_finds_what_was_removed(folder):
    rows = list(posts(400, seed=2))
    removed = set()
    for row in rows[::8]:
        tags = row[3].split()
        removed.add((row[0], tags[0]))
        row[3] = " ".join(tags[1:])
    write_records(folder / "gaps.csv", ["id", "title", "body", "tags"], rows)
    output = folder / "audit.csv"
    audit = ["audit", folder / "gaps.csv", "--model", folder / "model", "--folds", 3]
    shown = labelgap(*audit, "--output", output, "--min-probability", 0)
    assert shown.exit_code == 0, shown.output
    assert "estimated share missing" in shown.output
    found = [row for row in read_records(output) if row["kind"] == "missing"][: len(removed)]
    hits = {(int(row["row"]), row["label"]) for row in found} & removed
    assert len(hits) / len(removed) > 0.9
    assert "<b>" not in found[0]["text"]
    numbers = as_json("audit", folder / "gaps.csv", "--model", folder / "model", "--folds", 2)
    assert numbers["estimated share missing"] == pytest.approx(
        len(removed) / (len(removed) + numbers["positives"]), abs=0.06
    )


def test_an_audit_learns_from_verdicts(folder):
    rows = [
        [*row[:3], row[3].partition(" ")[2] if i % 8 == 0 else row[3]] for i, row in enumerate(posts(400, seed=2))
    ]
    write_records(folder / "lost.csv", ["id", "title", "body", "tags"], rows)
    rest = ["--model", folder / "model", "--folds", 2, "--min-probability", 0]
    before, after = folder / "before.csv", folder / "after.csv"
    assert labelgap("audit", folder / "lost.csv", *rest, "--output", before).exit_code == 0
    found = [row for row in read_records(before) if row["kind"] == "missing"]
    reviewed = [[row["row"], row["label"], "reject"] for row in found[:20]] + [[found[20]["row"], "soup", "skip"]]
    write_records(folder / "verdicts.csv", ["row", "label", "verdict"], reviewed)
    again = labelgap("audit", folder / "lost.csv", *rest, "--output", after, "--verdicts", folder / "verdicts.csv")
    assert again.exit_code == 0, again.output
    learned = [row for row in read_records(after) if row["kind"] == "missing"]
    assert len(learned) == len(found) - 20
    cell = {(row["row"], row["label"]): float(row["probability"]) for row in found}
    assert sum(float(row["probability"]) - cell[row["row"], row["label"]] for row in learned) < 0
    write_records(folder / "verdicts.csv", ["row", "label", "verdict"], [["0", "unheard", "accept"]])
    refused = labelgap("audit", folder / "lost.csv", *rest, "--verdicts", folder / "verdicts.csv")
    assert refused.exit_code == 1
    assert "names row '0' and label 'unheard'" in refused.stderr
    refused = labelgap("audit", folder / "lost.csv", *rest, "--verdicts", before)
    assert "has no column verdict" in refused.stderr


def test_groups_of_an_audit_are_a_column(folder, monkeypatch):
    passed = {}

    def audit(*inputs, **options):
        passed.update(options)
        raise ValueError("enough")

    monkeypatch.setattr("labelgap.commands.gap_commands.audit_labels", audit)
    rest = ["audit", folder / "posts.csv", "--model", folder / "model"]
    assert "enough" in labelgap(*rest, "--groups", "title").stderr
    assert passed["groups"] == [row["title"] for row in read_records(folder / "posts.csv")]
    assert "--groups author is no column" in labelgap(*rest, "--groups", "author").stderr


def test_an_audit_writes_what_it_has_after_each_model(folder, monkeypatch):
    lengths = []

    def write(path, columns, rows):
        write_records(path, columns, rows)
        lengths.append(len({row["row"] for row in read_records(path)}))

    monkeypatch.setattr("labelgap.commands.gap_commands.write_records", write)
    rest = ["--model", folder / "model", "--folds", 3, "--min-probability", 0]
    assert labelgap("audit", folder / "posts.csv", *rest, "--output", folder / "early.csv").exit_code == 0
    assert len(lengths) == 3
    assert 0 < lengths[0] < lengths[1] < lengths[2]


def test_complete_fills_blanks(folder):
    rng = np.random.default_rng(0)
    rows, truth = [], []
    for post in posts(200, seed=3):
        states = [int(name in post[3].split()) for name in NAMES]
        truth.append(states)
        rows.append([*post[1:3], *(state if rng.random() < 0.7 else "" for state in states)])
    write_records(folder / "blanks.csv", ["title", "body", *NAMES], rows)
    columns = ["--text", "title,body", "--labels", ",".join(NAMES)]
    assert (
        labelgap("fit", folder / "blanks.csv", *columns, "--output", folder / "gappy", "--alpha", 0.1).exit_code == 0
    )
    found = as_json("complete", folder / "blanks.csv", "--model", folder / "gappy", "--output", folder / "full.csv")
    assert found["calibration error"] < 0.1
    filled = np.array([[float(row[name]) for name in NAMES] for row in read_records(folder / "full.csv")])
    assert ((filled > 0.5) == np.array(truth)).mean() > 0.95
    with open(folder / "full.csv", newline="") as stream:
        assert next(csv.reader(stream)) == ["title", "body", *NAMES]
    refused = labelgap("complete", folder / "posts.csv", "--model", folder / "model", "--output", folder / "x.csv")
    assert refused.exit_code == 1
    assert "`labelgap audit` lists the tags" in refused.output


@pytest.fixture(scope="module")
def gappy(tmp_path_factory):
    """A table with a column for each label, blanks in it, and a model of it."""
    path, rng = tmp_path_factory.mktemp("gappy"), np.random.default_rng(0)
    rows = [
        [*post[1:3], *(int(name in post[3].split()) if rng.random() < 0.8 else "" for name in NAMES)]
        for post in posts(60, seed=4)
    ]
    write_records(path / "a.csv", ["title", "body", *NAMES], rows)
    columns = ["--text", "title,body", "--labels", ",".join(NAMES)]
    assert labelgap("fit", path / "a.csv", *columns, "--output", path / "model", "--alpha", 0.1).exit_code == 0
    return path


def test_columns_of_labels_go_by_name(gappy):
    other = ["--labels", ",".join(reversed(NAMES))]
    files = [gappy / "a.csv", "--model", gappy / "model"]
    assert as_json("evaluate", *files, *other) == as_json("evaluate", *files)
    assert labelgap("complete", *files, *other, "--output", gappy / "full.csv").exit_code == 0
    for given, filled in zip(read_records(gappy / "a.csv"), read_records(gappy / "full.csv"), strict=True):
        assert all(float(filled[name]) == float(given[name]) for name in NAMES if given[name])


@pytest.mark.parametrize(
    ("labels", "code", "message"),
    [
        ("baking,meat", 1, "it lacks 'soup'"),
        ("baking,meat,soup,title", 1, "cannot read"),
        ("baking,meat,soup,extra", 1, "it also has 'extra'"),
        ("baking,baking", 2, "--labels names 'baking' 2 times"),
    ],
)
def test_other_columns_of_labels_are_refused(gappy, labels, code, message):
    rows = [[*row.values(), 1] for row in read_records(gappy / "a.csv")]
    write_records(gappy / "extra.csv", ["title", "body", *NAMES, "extra"], rows)
    shown = labelgap("evaluate", gappy / "extra.csv", "--model", gappy / "model", "--labels", labels)
    assert (shown.exit_code, message in shown.stderr) == (code, True), shown.stderr


def test_labels_beside_features_go_by_name(tmp_path):
    data = make_low_rank(60, 6, 3, rank=2, labels_per_row=1.2, random_state=0)
    write(tmp_path / "a.npz", data.X, data.Y, label_names=list("XYZ"))
    write(tmp_path / "b.npz", data.X, sp.csr_array(data.Y)[:, [2, 0, 1]], label_names=list("ZXY"))
    labelgap("fit", tmp_path / "a.npz", "--output", tmp_path / "model")
    found = [as_json("evaluate", tmp_path / name, "--model", tmp_path / "model") for name in ("a.npz", "b.npz")]
    assert found[0] == found[1]


def test_explain_with_columns_of_labels(gappy):
    rows = [["bacon", "with cake", 1, "", 0]]
    write_records(gappy / "one.csv", ["title", "body", *NAMES], rows)
    write_records(gappy / "new.csv", ["title", "body"], [rows[0][:2]])
    known = as_json("explain", gappy / "one.csv", "--model", gappy / "model", "--row", 0, "--label", "meat")
    assert [name for name, _ in known["labels"]] == ["baking"]
    new = as_json("explain", gappy / "new.csv", "--model", gappy / "model", "--row", 0, "--label", "meat")
    assert (new["decision"], new["labels"]) == (known["decision"], [])


def test_explain(folder):
    write_records(folder / "one.csv", ["title", "body", "tags"], [["bacon", "with cake", "baking"]])
    found = as_json("explain", folder / "one.csv", "--model", folder / "model", "--row", 0, "--label", "meat")
    assert found["features"][0][0] == "bacon"
    assert [name for name, _ in found["labels"]] == ["baking"]
    shown = labelgap("explain", folder / "one.csv", "--model", folder / "model", "--row", 0, "--label", "meat")
    assert "bacon" in shown.output


# --- files ---------------------------------------------------------------------------------------------------------


def test_inspect(folder):
    found = as_json("inspect", folder / "model")
    assert (found["estimator"], found["labels"], found["label names"]) == ("Tagger", 3, NAMES)
    assert found["parameters"]["estimator"]["parameters"]["alpha"] == 0.1
    assert found["versions"]["numpy"] == np.__version__


@pytest.fixture
def matrix(tmp_path):
    data = make_low_rank(80, 6, 4, rank=2, random_state=0)
    path = tmp_path / "train.npz"
    write(path, data.X, data.Y, feature_names=list("abcdef"), label_names=list("WXYZ"))
    return path


@pytest.mark.parametrize("ending", ["arff", "txt", "svm", "txt.gz"])
def test_convert(matrix, ending, tmp_path):
    target = tmp_path / f"other.{ending}"
    assert as_json("convert", matrix, target) == {"rows": 80, "features": 6, "labels": 4}
    X, Y, _, names = read(target)
    dense = [M.toarray() if sp.issparse(M) else M for M in (X, Y, *read(matrix)[:2])]
    np.testing.assert_allclose(dense[0], dense[2], rtol=1e-6)
    np.testing.assert_array_equal(dense[1], dense[3])
    assert names == (list("WXYZ") if ending == "arff" else None)


@pytest.mark.parametrize("ending", ["npz", "arff", "txt", "svm.gz"])
def test_predictions_beside_the_features(matrix, ending, tmp_path):
    labelgap("fit", matrix, "--output", tmp_path / "model", "--method", "LEML", "--n-components", 2)
    output = tmp_path / f"found.{ending}"
    values = as_json("predict", matrix, "--model", tmp_path / "model", "--output", output)
    X, Y = read(output)[:2]
    assert (values["output"], values["rows"], values["tags"]) == (str(output), 80, Y.sum())
    given = read(matrix)[0]
    np.testing.assert_allclose(X.toarray() if sp.issparse(X) else X, given, rtol=1e-6)
    expected = load(tmp_path / "model").decision_function(given) > 0
    np.testing.assert_array_equal(Y.toarray(), expected)


def test_texts_do_not_go_with_features(folder):
    shown = labelgap("predict", folder / "posts.csv", "--model", folder / "model", "--output", folder / "found.npz")
    assert shown.exit_code == 1
    assert "texts are written to a table; use .csv" in shown.output
    assert not (folder / "found.npz").exists()


def test_features_instead_of_texts(matrix, tmp_path):
    found = as_json("fit", matrix, "--output", tmp_path / "model", "--method", "LEML", "--n-components", 2)
    assert (found["features"], found["labels"]) == (6, 4)
    assert as_json("evaluate", matrix, "--model", tmp_path / "model")["P@1"] > 0.8
    shown = labelgap("predict", matrix, "--model", tmp_path / "model", "--top", 1)
    assert shown.exit_code == 0
    assert labelgap("audit", matrix, "--model", tmp_path / "model", "--folds", 2, "--top", 3).exit_code == 0


# --- what is wrong -------------------------------------------------------------------------------------------------

FIT = ["fit", "posts.csv", "--output", "m", "--text", "title", "--tags", "tags"]
WRONG = [
    (
        [*FIT[:4], "--text", "headline", "--tags", "tags"],
        "has no column 'headline'; it has 'id', 'title', 'body', 'tags'",
    ),
    (["fit", "bare.csv", *FIT[2:4], "--tags", "c"], "say which columns hold the text: --text title,content. It has"),
    (["fit", "bare.csv", *FIT[2:4], "--text", "a"], "say where its labels are: --tags"),
    ([*FIT[:4], "--text", "titel", "--tags", "tags"], "no column 'titel'; did you mean 'title'? It has"),
    ([*FIT, "--alpha", "minus"], "alpha='minus' is out of range"),
    (["fit", "nowhere.csv", *FIT[2:]], "There is no file nowhere.csv; check the path"),
    (["fit", "posts.csv", "--output", "no/where/m", *FIT[4:]], "is in a folder that does not exist"),
    (["predict", "posts.csv", "--model", "nowhere"], "There is no model nowhere; check the path"),
    (["predict", "posts.csv", "--model", "posts.csv"], "posts.csv is a table, not a model"),
    (["predict", "posts.csv", "--model", "model", "--text", "head"], "has no column 'head'"),
    (
        ["explain", "posts.csv", "--model", "model", "--row", "0", "--label", "cheese"],
        "'cheese' is none of the 3 labels",
    ),
    (["explain", "posts.csv", "--model", "model", "--row", "999", "--label", "meat"], "has rows 0 to 149"),
    (["evaluate", "model", "--model", "model"], "the format of this ending is not known"),
    (["inspect", "posts.csv"], "posts.csv is a table, not a model"),
    (["convert", "posts.csv", "x.npz"], "the format of this ending is not known"),
    ([*FIT, "--min-count", "1000"], "has no tag in the column 'tags'"),
    (["fit", "posts.csv", "--output", ".", *FIT[4:]], "--output . is a folder; name a file in it"),
    (["fit", "posts.csv", "--output", "posts.csv", *FIT[4:]], "--output posts.csv is a file that this command reads"),
    (["tune", "posts.csv", "--output", ".", *FIT[4:]], "--output . is a folder; name a file in it"),
    (["audit", "posts.csv", "--model", "model", "--output", "x.doc"], "--output x.doc is not a table"),
    (["audit", "posts.csv", "--model", "model", "--output", "x.csv.zip"], ".zip files can be read but not written"),
    (["complete", "posts.csv", "--model", "model", "--output", "posts.csv"], "is a file that this command reads"),
    (["predict", "posts.csv", "--model", "model", "--output", "model"], "is a file that this command reads"),
    (["convert", "posts.csv", "posts.csv"], "The target posts.csv is a file that this command reads"),
    (["fit", ".", *FIT[2:]], "is no shard of features and labels; pass a file in it"),
    (["convert", ".", "x.npz"], "is no shard of features and labels; pass a file in it"),
    (["predict", "posts.csv", "--model", "."], ". is a folder and no model"),
    (["inspect", "."], ". is a folder and no model"),
    (["explain", "posts.csv", "--model", "model", "--row", "0", "--label", "²"], "'²' is none of the 3 labels"),
]
WRONG_OPTIONS = [
    ([*FIT, "--method", "LEMLL"], "--method LEMLL is not known; did you mean"),
    (
        [*FIT, "--method", "tagger"],
        "--method tagger is what texts are learned with in any case; name",
    ),
    ([*FIT, "--alpah", "1"], "--alpah is not an option of BinaryRelevance; did you mean --alpha"),
    ([*FIT, "--text", "content"], "--text occurs 2 times; pass it once"),
    (["fit", "posts.csv", "--out", "model.labelgap"], "--out is not an option; did you mean --output?"),
    ([*FIT, "--separator", ""], "--separator is empty; pass the characters between tags"),
    (["tune", *FIT[1:], "--metric", "foo"], "--metric foo cannot be used"),
    (["fit", *FIT[1:6], "--labels", "title,title"], "--labels names 'title' 2 times"),
    ([*FIT, "--labels", "title"], "--tags and --labels are two ways"),
    ([*FIT, "--vectors", "title"], "--vectors and --text are two ways"),
    ([*FIT, "--test-size", "1.5"], "1.5"),
    ([*FIT, "--seperator", ";"], "--seperator is not an option of BinaryRelevance; did you mean --separator"),
    ([*FIT, "--delimiter", "ab"], "--delimiter 'ab' is not a character"),
    ([*FIT, "--encoding", "utf-88"], "--encoding utf-88 is not known"),
    (["predict", "--model", "model"], "Pass either a file (or - for standard input) or --document TEXT"),
    (["predict", "posts.csv", "--model", "model", "--document", "x"], "Pass either a file"),
    (["predict", "posts.csv", "--model", "model", "--top", "two"], "'two'"),
    (
        ["predict", "posts.csv", "--model", "model", "--tpo", "2"],
        "--tpo (Possible options: --output, --top",
    ),
    (["audit", "posts.csv", "--model", "model", "--min-probability", "nan"], "nan"),
    (["evaluate", "posts.csv", "--model", "model", "--written-share", "2"], "--written-share 2 is no share"),
    (["audit", "posts.csv", "--model", "model", "--min-probability", "2"], "'--min-probability'"),
    (["tune", *FIT[1:], "--share", "nan"], "nan is not a finite number"),
    (["predct"], "No such command 'predct'. Did you mean 'predict'"),
]
CODES = [(*one, 1) for one in WRONG] + [(*one, 2) for one in WRONG_OPTIONS]


@pytest.mark.parametrize(("arguments", "message", "code"), CODES, ids=lambda value: None)
def test_errors_help(arguments, message, code, folder, monkeypatch):
    monkeypatch.chdir(folder)
    before = sorted(path.name for path in folder.iterdir())
    shown = labelgap(*arguments)
    assert shown.exit_code == code
    assert message in " ".join(shown.output.split())
    assert "Traceback" not in shown.output
    assert shown.stderr.count("\n") == 1
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.skipif(
    os.name != "posix" or os.geteuid() == 0, reason="whoever may write everywhere meets no such folder"
)
def test_a_folder_that_cannot_be_written_into(folder, tmp_path):
    tmp_path.chmod(0o500)
    shown = labelgap("audit", folder / "posts.csv", "--model", folder / "model", "--output", tmp_path / "a.csv")
    assert shown.exit_code == 1
    assert "is not writable" in shown.stderr


def test_a_reader_that_stops_early_is_no_error(folder):
    rows = [["bacon", "steak"]] * 5000
    write_records(folder / "many.csv", ["title", "body"], rows)
    command = [sys.executable, "-c", "from labelgap.cli import main; main()", "predict", folder / "many.csv"]
    with subprocess.Popen(
        [*command, "--model", folder / "model", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert json.loads(process.stdout.readline())["row"] == 0
        process.stdout.close()
        assert process.stderr.read() == b""


@pytest.mark.filterwarnings("default::UserWarning")
def test_a_bad_byte_is_told_once(folder):
    (folder / "latin.csv").write_bytes("title,body,tags\nbacon,steak,meat\ncafé,oven,baking\n".encode("latin-1"))
    shown = labelgap("explain", folder / "latin.csv", "--model", folder / "model", "--row", 0, "--label", "meat")
    assert shown.exit_code == 0
    assert shown.stderr.count("is not UTF-8 (byte 0xE9 in line 3)") == 1


def test_the_help_has_examples():
    for command in ("fit", "predict", "evaluate", "audit", "complete", "explain", "convert"):
        assert f"labelgap {command} " in labelgap(command, "--help").output
