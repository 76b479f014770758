"""Every method through every command and the service: one model file, the same answers from all doors."""

from __future__ import annotations

import json

import numpy as np
import pytest

from labelgap import load
from labelgap.datasets import read_records, write_records
from labelgap.methods import list_classes
from test_commands import NAMES, as_json, labelgap, posts

METHODS = sorted(set(list_classes()) - {"Tagger"})
LINEAR = {"BinaryRelevance", "LEML", "OneClassMF", "OneClassMFCV", "PLST", "CPLST", "CSSP", "NaiveBayes", "WSABIE"}
TEXT = "oven cake flour"


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "posts.csv"
    write_records(path, ["id", "title", "body", "tags"], posts(60))
    return path


@pytest.fixture(scope="module", params=METHODS)
def fitted(request, table):
    """A file of a model of each method; its stem is the name of the method."""
    path = table.parent / f"{request.param}.labelgap"
    options = ["--text", "title,body", "--tags", "tags", "--method", request.param, "--seed", 0]
    facts = as_json("fit", table, "--output", path, *options)
    assert (facts["rows"], facts["labels"]) == (60, 3)
    return path


def test_predict_and_the_service_agree_with_the_model(fitted, table):
    pytest.importorskip("fastapi", reason="fastapi is not installed; install labelgap[serve]")
    from labelgap.serve import create_app
    from test_serve import LOCAL, client_of

    labels, scores, probabilities = load(fitted).rank([TEXT], 3)
    assert probabilities is None or (np.diff(probabilities) <= 0).all()
    shown = json.loads(labelgap("predict", "--model", fitted, "--document", TEXT, "--top", 3, "--json").stdout)
    assert shown["tags"] == [NAMES[j] for j in labels[0]]
    with client_of(create_app({"m": load(fitted)}, settings=LOCAL)) as client:
        answer = client.post("/v1/models/m/predict", json={"texts": [TEXT], "top": 3}).json()["predictions"][0]
    assert [label["label"] for label in answer["labels"]] == shown["tags"]
    np.testing.assert_allclose([label["score"] for label in answer["labels"]], scores[0], rtol=1e-5, atol=1e-6)


def test_evaluate(fitted, table):
    figures = as_json("evaluate", table, "--model", fitted)
    best = load(fitted).predict_topk([f"{row['title']} {row['body']}" for row in read_records(table)], 1)[0][:, 0]
    hits = [NAMES[j] in row["tags"].split() for j, row in zip(best, read_records(table), strict=True)]
    assert figures["P@1"] == pytest.approx(np.mean(hits), abs=0.05)


def test_audit(fitted, table, tmp_path):
    shown = labelgap("audit", table, "--model", fitted, "--output", tmp_path / "a.csv", "--min-probability", 0)
    assert shown.exit_code == 0, shown.output
    tags = [row["tags"].split() for row in read_records(table)]
    suggestions = read_records(tmp_path / "a.csv")
    assert suggestions
    for one in suggestions:
        assert (one["label"] in tags[int(one["row"])]) == (one["kind"] == "doubtful")
        assert 0 <= float(one["probability"]) <= 1


def test_explain_and_inspect(fitted, table):
    shown = as_json("explain", table, "--model", fitted, "--row", 0, "--label", "baking")
    decision = load(fitted).decision_function([f"{row['title']} {row['body']}" for row in read_records(table)[:1]])
    assert shown["decision"] == pytest.approx(decision[0, NAMES.index("baking")], rel=1e-4, abs=1e-5)
    assert as_json("inspect", fitted)["labels"] == 3


def test_export(fitted, tmp_path):
    name = fitted.stem
    shown = labelgap("export", fitted, tmp_path / "portable")
    if shown.exit_code:
        assert name not in LINEAR
        assert f"{name} cannot be exported: its scores are not linear in the words" in shown.stderr
    else:
        assert (tmp_path / "portable").exists()
