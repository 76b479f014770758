"""`labelgap fit` with nothing set: a calibrated model of positives, whose probabilities are the same everywhere."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from labelgap import Tagger, audit, explain, get_scorer, load, tune
from labelgap.calibration import MissingCount
from labelgap.datasets import read_records, write, write_records
from labelgap.estimators.exporting import export
from labelgap.portable import PortableTagger
from test_commands import as_json, labelgap
from test_probabilities import forgotten_tags

COLUMNS = ("--text", "body", "--tags", "tags")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A table of posts, half of whose tags were forgotten, and a model of it."""
    folder = tmp_path_factory.mktemp("front")
    texts, _, written = forgotten_tags(300)
    write_records(
        folder / "posts.csv",
        ["id", "body", "tags"],
        ([i, text, " ".join(tags)] for i, (text, tags) in enumerate(zip(texts, written, strict=True))),
    )
    shown = labelgap("fit", folder / "posts.csv", *COLUMNS, "--output", folder / "model")
    assert shown.exit_code == 0, shown.output
    assert "a tag that is not written may be forgotten" in shown.output
    assert "on unseen texts" in shown.output
    assert "missing labels at most " in " ".join(shown.output.replace("│", " ").split())
    return folder


def test_the_model_is_calibrated_and_gives_every_text_a_tag(place):
    model = load(place / "model")
    assert model.positives_only_
    texts, tags, _ = forgotten_tags(100, seed=1)
    predicted = model.predict_tags(texts)
    assert all(predicted)
    assert np.mean([set(a) == set(b) for a, b in zip(predicted, tags, strict=True)]) > 0.7


def test_one_probability_everywhere(place):
    """predict_proba, the table, the lines of JSON and the service show the same number."""
    pytest.importorskip("fastapi", reason="the service needs fastapi")
    from labelgap.serve import create_app
    from test_serve import LOCAL, client_of

    model = load(place / "model")
    text = read_records(place / "posts.csv")[0]["body"]
    expected = dict(zip(model.label_names_in_, model.predict_proba([text])[0], strict=True))
    labelgap("predict", place / "posts.csv", "--model", place / "model", "--top", 3, "--output", place / "tags.jsonl")
    row = read_records(place / "tags.jsonl")[0]
    shown = labelgap("predict", "--model", place / "model", "--document", text, "--top", 3, "--json")
    line = json.loads(shown.stdout.splitlines()[0])
    for tags, probabilities in ((row["predicted_tags"], row["probabilities"]), (line["tags"], line["probabilities"])):
        assert dict(zip(tags, probabilities, strict=True)) == pytest.approx(expected, abs=1e-5)
    with client_of(create_app({"posts": model}, settings=LOCAL)) as client:
        for options in ({"top": 3}, {}):
            answer = client.post("/v1/models/posts/predict", json={"texts": [text]} | options).json()
            labels = answer["predictions"][0]["labels"]
            assert {"label", "score", "probability"} == set(labels[0])
            for label in labels:
                assert label["probability"] == pytest.approx(expected[label["label"]], abs=1e-5)
    label = str(model.predict_tags([text])[0][0])
    column = list(model.label_names_in_).index(label)
    assert explain(model, text, label).decision == pytest.approx(model.decision_function([text])[0, column], abs=1e-5)


def test_thresholds_and_their_aim(place):
    as_json("fit", place / "posts.csv", *COLUMNS, "--aim", "k=1", "--output", place / "single")
    single = load(place / "single")
    assert single.calibration_.aim == "k=1"
    assert abs(single.predict(forgotten_tags(300, seed=2)[0]).sum() / 300 - 1) < 0.2
    counts = []
    for threshold in (0.0, 0.4, 1.0):
        arguments = ("--model", place / "model", "--threshold", threshold, "--output", place / "out.csv")
        counts.append(as_json("predict", place / "posts.csv", *arguments)["tags"])
    assert counts[0] > counts[1] > counts[2] == 0
    wrong = labelgap("fit", place / "posts.csv", *COLUMNS, "--aim", "magic", "--output", place / "wrong")
    assert wrong.exit_code != 0
    assert "aim='magic' is not known" in wrong.output
    assert not (place / "wrong").exists()


def test_without_calibration_there_is_a_score(place):
    values = as_json("fit", place / "posts.csv", *COLUMNS, "--no-calibrate", "--output", place / "plain")
    assert "on unseen texts" not in values
    shown = labelgap("predict", "--model", place / "plain", "--document", "cake oven")
    assert "tags (score)" in shown.output
    assert "not probabilities" in " ".join(shown.output.split())
    refused = labelgap("predict", "--model", place / "plain", "--document", "cake", "--threshold", 0.5)
    assert refused.exit_code == 2
    assert "the model was not calibrated" in " ".join(refused.output.split())


def test_complete_tags_are_a_no(place):
    values = as_json("fit", place / "posts.csv", *COLUMNS, "--complete", "--output", place / "complete")
    assert values["absent labels"] == "no"
    assert "forgotten" not in values["on unseen texts"]
    assert not load(place / "complete").positives_only_


def test_the_default_is_the_one_of_python(place):
    records = read_records(place / "posts.csv")
    model = Tagger().fit([record["body"] for record in records], [record["tags"].split() for record in records])
    texts = [record["body"] for record in records[:5]]
    np.testing.assert_allclose(model.predict_proba(texts), load(place / "model").predict_proba(texts), rtol=1e-6)


def test_rows_to_test_on(place):
    values = as_json("fit", place / "posts.csv", *COLUMNS, "--test-size", 0.2, "--output", place / "tested")
    assert (values["rows"], values["test rows"]) == (240, 60)
    assert values["on test rows"].startswith("P@1 ")
    assert values["on test rows"].endswith("0% of rows without a label")
    records = read_records(place / "posts.csv")
    order = np.random.RandomState(0).permutation(300)
    texts, tags = ([records[i][key] for i in np.sort(order[60:])] for key in ("body", "tags"))
    expected = Tagger(label_names=load(place / "tested").label_names).fit(texts, [row.split() for row in tags])
    np.testing.assert_allclose(expected.predict_proba(texts), load(place / "tested").predict_proba(texts), rtol=1e-6)


def test_a_column_of_vectors(place):
    rows = read_records(place / "posts.csv")
    words = sorted({word for row in rows for word in row["body"].split()})
    vectors = [[row["body"].split().count(word) for word in words] for row in rows]
    records = ([json.dumps(vector), row["tags"]] for vector, row in zip(vectors, rows, strict=True))
    write_records(place / "vectors.csv", ["embedding", "tags"], records)
    columns = ("--vectors", "embedding", "--tags", "tags")
    values = as_json("fit", place / "vectors.csv", *columns, "--output", place / "dense")
    assert values["features"] == len(words)
    shown = as_json("evaluate", place / "vectors.csv", "--model", place / "dense")
    assert shown["P@1"] > 0.8
    wrong = labelgap("fit", place / "posts.csv", "--vectors", "body", "--tags", "tags", "--output", place / "wrong")
    assert wrong.exit_code == 1
    assert "which is no vector" in " ".join(wrong.output.split())
    assert not (place / "wrong").exists()


def test_evaluate_ranks_by_scores_whatever_the_thresholds(place):
    """P@k of labels with gaps is the same with and without thresholds of their own for each label."""
    _, _, written = forgotten_tags(300)
    names = sorted({tag for tags in written for tag in tags})
    rng = np.random.RandomState(0)
    texts = [row["body"] for row in read_records(place / "posts.csv")]
    cells = [["" if rng.rand() < 0.2 else int(name in tags) for name in names] for tags in written]
    write_records(place / "gaps.csv", ["body", *names], ([t, *row] for t, row in zip(texts, cells, strict=True)))
    shown = {}
    for name, further in (("calibrated", ()), ("plain", ("--no-calibrate",))):
        columns = ("--text", "body", "--labels", ",".join(names))
        as_json("fit", place / "gaps.csv", *columns, *further, "--output", place / name)
        shown[name] = as_json("evaluate", place / "gaps.csv", "--model", place / name)
    for metric in ("P@1", "P@3", "nDCG@3", "AUC"):
        assert shown["calibrated"][metric] == shown["plain"][metric]
    model, Y = load(place / "calibrated"), np.array([[np.nan if c == "" else c for c in row] for row in cells])
    assert get_scorer("P@3")(model, texts, Y) == pytest.approx(shown["plain"]["P@3"], abs=1e-6)


def test_one_probability_of_training_rows(place):
    """`labelgap audit`, audit() and the page show the same number for a cell of a training row."""
    pytest.importorskip("fastapi", reason="the page needs fastapi")
    from labelgap.inputs import TableColumns
    from labelgap.serve import create_app
    from labelgap.serve.reviews import make_extension
    from labelgap.serve.reviews.review_data import ReviewData
    from labelgap.serve.reviews.session import open_session
    from test_serve import LOCAL, client_of

    as_json("audit", place / "posts.csv", "--model", place / "model", "--output", place / "audit.csv")
    listed = {(int(row["row"]), row["label"]): float(row["probability"]) for row in read_records(place / "audit.csv")}
    records, model = read_records(place / "posts.csv"), load(place / "model")
    texts, tags = [row["body"] for row in records], [row["tags"].split() for row in records]
    found = audit(texts, tags, model.chosen(), random_state=0)
    shown = {(row, label): probability for row, label, _, probability in found.records()}
    assert len(listed) > 50
    assert {cell: shown[cell] for cell in listed} == pytest.approx(listed, abs=1e-4)
    session = open_session(place / "a.sqlite", ReviewData(place / "posts.csv", model, TableColumns()))
    session.run_audit()
    session.close()
    extension = make_extension(place / "a.sqlite", place / "posts.csv", model_path=place / "model")
    with client_of(create_app({"posts": model}, settings=LOCAL, extensions=[extension])) as client:
        cards = client.get("/review/queue", params={"limit": 30}).json()["suggestions"]
    assert len(cards) == 30
    for card in cards:
        assert card["probability"] == pytest.approx(shown[card["row"], card["label"]], abs=1e-4)


def test_tune_ends_with_probabilities_too(place):
    values = as_json(
        "tune", place / "posts.csv", *COLUMNS, "--alpha", "1,4", "--budget", "5m", "--output", place / "t"
    )
    assert values["status"] == "finished"
    model = load(place / "t")
    assert model.positives_only_
    assert model.calibration_.aim == "f1"
    shown = labelgap("predict", "--model", place / "t", "--document", "cake oven")
    assert "tags (probability)" in shown.output
    further = ("--alpha", "1,4", "--complete", "--aim", "k=2")
    as_json("tune", place / "posts.csv", *COLUMNS, *further, "--output", place / "t")
    assert not load(place / "t").positives_only_
    assert load(place / "t").calibration_.aim == "k=2"
    wrong = labelgap("tune", place / "posts.csv", *COLUMNS, "--budget", "soon", "--output", place / "wrong")
    assert (wrong.exit_code, "soon is not a time" in " ".join(wrong.output.split())) == (2, True)


def test_explain_and_inspect_name_the_probability(place):
    model, text = load(place / "model"), read_records(place / "posts.csv")[0]["body"]
    label = str(model.label_names_in_[0])
    values = as_json("explain", place / "posts.csv", "--model", place / "model", "--row", 0, "--label", label)
    assert values["probability"] == pytest.approx(model.predict_proba([text])[0, 0], abs=1e-5)
    shown = labelgap("explain", place / "posts.csv", "--model", place / "model", "--row", 0, "--label", label)
    assert f"a person writes it with probability {values['probability']:.3f}" in shown.output
    facts, written = as_json("inspect", place / "model"), model.calibration_.written
    assert facts["thresholds for"] == "f1"
    expected = f"{written.overall:.2f} ({written.low:.2f} to {written.high:.2f})"
    assert facts["share of true labels written"] == expected
    labelgap("fit", place / "posts.csv", *COLUMNS, "--no-calibrate", "--output", place / "plain")
    assert "scores, no probabilities" in as_json("inspect", place / "plain")["thresholds for"]


def test_a_list_that_is_too_strict_says_so(place):
    values = as_json("audit", place / "posts.csv", "--model", place / "model", "--min-probability", 1.0)
    assert values["missing labels listed"] == 0
    assert 0 < values["most probable missing label"][0] < 1


def test_nothing_to_predict_or_to_complete(place):
    for arguments in (["-"], ["--document", ""]):  # standard input is empty here
        shown = labelgap("predict", *arguments, "--model", place / "model")
        assert (shown.exit_code, "A text is empty" in shown.output) == (1, True)
    shown = labelgap("complete", place / "posts.csv", "--model", place / "model", "--output", place / "no.csv")
    assert (shown.exit_code, "`labelgap audit` lists the tags" in " ".join(shown.output.split())) == (1, True)
    assert not (place / "no.csv").exists()


def test_a_table_called_txt_is_told_its_name(place):
    (place / "posts.txt").write_bytes((place / "posts.csv").read_bytes())
    shown = labelgap("fit", place / "posts.txt", *COLUMNS, "--output", place / "no")
    assert (shown.exit_code, "rename it to .csv or .tsv" in " ".join(shown.output.split())) == (1, True)


# --- P(true) and its interval ---------------------------------------------------------------------------------------


def test_the_probability_that_a_tag_is_true_has_an_interval(place):
    """Half of the tags were forgotten: the intervals hold the true number of tags, which P(written) halves."""
    model = load(place / "model")
    texts, tags, _ = forgotten_tags(300, seed=3)
    p, low, high = model.predict_proba(texts, meaning="true", return_interval=True)
    np.testing.assert_array_equal(p, model.predict_proba(texts, meaning="true"))
    assert (model.predict_proba(texts) <= low + 1e-12).all()
    assert ((low <= p) & (p <= high)).all()
    n_true = sum(map(len, tags))
    assert low.sum() < n_true < 1.01 * high.sum()
    assert abs(model.predict_proba(texts).sum() / n_true - 0.5) < 0.15
    with pytest.raises(ValueError, match="return_interval=True is for meaning='true'"):
        model.predict_proba(texts, return_interval=True)
    as_json("predict", place / "posts.csv", "--model", place / "model", "--true", "--output", place / "true.jsonl")
    row = read_records(place / "true.jsonl")[0]
    column = list(model.label_names_in_).index(row["predicted_tags"][0])
    expected = [part[0, column] for part in model.predict_proba([row["body"]], meaning="true", return_interval=True)]
    shown = [row[name][0] for name in ("true_probabilities", "true_low", "true_high")]
    assert shown == pytest.approx(expected, abs=1e-5)
    printed = labelgap("predict", "--model", place / "model", "--document", row["body"], "--true")
    assert f"true {expected[0]:.0%}, {expected[1]:.0%} to {expected[2]:.0%}" in " ".join(printed.output.split())


def test_complete_tags_have_no_interval():
    texts, _, written = forgotten_tags(300)
    model = Tagger(complete=True).fit(texts, written)
    p, low, high = model.predict_proba(texts[:5], meaning="true", return_interval=True)
    np.testing.assert_array_equal(low, high)
    np.testing.assert_array_equal(p, model.predict_proba(texts[:5]))


def test_a_model_file_of_an_earlier_version_has_scores(tmp_path):
    """Its numbers are called scores in a table, on the screen and by the service."""
    pytest.importorskip("fastapi", reason="the service needs fastapi")
    from labelgap.serve import create_app
    from test_serve import LOCAL, client_of

    path = Path(__file__).parent / "models" / "format-1-LEML.labelgap"
    rows = json.loads(path.with_suffix(".json").read_text())["X"][:3]
    write(tmp_path / "new.npz", np.array(rows), np.zeros((3, load(path).n_labels_)))
    shown = labelgap("predict", tmp_path / "new.npz", "--model", path, "--top", 2)
    assert "tags (score)" in shown.output
    assert "not probabilities" in " ".join(shown.output.split())
    labelgap("predict", tmp_path / "new.npz", "--model", path, "--top", 2, "--output", tmp_path / "out.jsonl")
    assert list(read_records(tmp_path / "out.jsonl")[0]) == ["row", "tags", "scores"]
    with client_of(create_app({"old": load(path)}, settings=LOCAL)) as client:
        answer = client.post("/v1/models/old/predict", json={"dense": rows, "top": 2}).json()
    assert set(answer["predictions"][0]["labels"][0]) == {"label", "score"}


# --- what a new user met --------------------------------------------------------------------------------------------


def test_few_rows_have_scores_and_say_so(place):
    records = read_records(place / "posts.csv")[:20]
    write_records(place / "few.csv", list(records[0]), [list(record.values()) for record in records])
    values = as_json("fit", place / "few.csv", *COLUMNS, "--output", place / "few")
    assert "20 rows are too few to hold some out (50 are needed)" in values["on unseen texts"]
    shown = labelgap("predict", "--model", place / "few", "--document", "unheard of")
    assert "tags (score)" in shown.output
    assert "Rows without a tag over its threshold: 1 of 1; --top 1 gives the best." in " ".join(shown.output.split())


def test_a_text_in_place_of_a_file(place):
    shown = labelgap("predict", "my cake is in the oven", "--model", place / "model")
    assert (shown.exit_code, "or pass a text with --document" in " ".join(shown.output.split())) == (1, True)


def test_the_expected_precision_of_an_aim(place):
    values = as_json("fit", place / "posts.csv", *COLUMNS, "--aim", "precision>=0.9", "--output", place / "precise")
    expected = float(values["on unseen texts"].partition("expected precision ")[2].partition(",")[0])
    assert 0.88 < expected <= 1


def test_completed_cells_are_counted_and_named(place):
    texts, _, written = forgotten_tags(200)
    cells = [
        ["" if i % 4 == j else int(name in tags) for j, name in enumerate(("baking", "meat", "tea"))]
        for i, tags in enumerate(written)
    ]
    write_records(
        place / "blank.csv",
        ["body", "baking", "meat", "tea"],
        ([t, *row] for t, row in zip(texts, cells, strict=True)),
    )
    as_json("fit", place / "blank.csv", "--output", place / "blank")
    values = as_json("complete", place / "blank.csv", "--model", place / "blank", "--output", place / "filled.csv")
    assert values["cells filled"] == 150
    assert values["filled with"] == "the probability of a yes, calibrated on known cells that were held out"


@pytest.mark.parametrize("blank", [False, True], ids=["list", "array"])
def test_lists_of_strings_of_numpy_are_tags(blank, place):
    """pandas writes a list of NumPy's strings as [np.str_('a b'), np.str_('c')]."""
    records = read_records(place / "posts.csv")
    lists = [[np.str_(tag) for tag in record["tags"].split()] for record in records]
    cells = [str(np.array(tags, object)) if blank else str(tags) for tags in lists]
    write_records(place / "numpy.csv", ["body", "tags"], zip((r["body"] for r in records), cells, strict=True))
    values = as_json("fit", place / "numpy.csv", "--output", place / "numpy")
    assert (values["labels"], values["tags separated by"]) == (3, "python")


# --- scikit-learn ---------------------------------------------------------------------------------------------------


def test_scikit_learn_takes_the_default(place):
    """cross_val_predict, CalibrationDisplay and scorers, on texts."""
    from sklearn.calibration import calibration_curve
    from sklearn.model_selection import cross_val_predict, cross_val_score

    texts, tags, written = forgotten_tags(300)
    names = sorted({tag for row in tags for tag in row})
    Y = np.array([[name in row for name in names] for row in written], float)
    model = Tagger(label_names=names, complete=False)
    p = cross_val_predict(model, texts, Y, method="predict_proba", cv=3)
    share, mean = calibration_curve(Y.ravel(), p.ravel(), n_bins=4, strategy="quantile")
    assert np.abs(share - mean).max() < 0.12
    for scoring in ("f1_micro", "roc_auc", "average_precision", get_scorer("P@1"), get_scorer("F1")):
        assert cross_val_score(model, texts, Y, scoring=scoring, cv=3).min() > 0.4  # half of the tags are written


def test_lists_of_tags_go_everywhere():
    """Into tune, scorers and cross-validation; the names are plain strings whatever strings the lists hold."""
    from sklearn.model_selection import cross_val_score

    texts, _, written = forgotten_tags(300)
    lists = [[np.str_(tag) for tag in tags] for tags in written]
    tuning = tune(Tagger(), texts, lists, grid={"estimator__alpha": [0.5, 4.0]}, calibrate="k=1", random_state=0)
    assert tuning.estimator.positives_only_
    assert tuning.estimator.calibration_.aim == "k=1"
    assert {type(tag) for tags in tuning.estimator.predict_tags(texts) for tag in tags} == {str}
    assert cross_val_score(Tagger(), texts, lists, scoring=get_scorer("P@1"), cv=3).min() > 0.5
    assert not tune(Tagger(complete=True), texts, lists, grid=[{"estimator__alpha": [1.0]}]).estimator.positives_only_
    with pytest.raises(ValueError, match="A Tagger takes a list of tags for each row"):
        Tagger().fit(texts, [",".join(tags) for tags in lists])


def test_features_of_an_encoder_are_called_features():
    class Encoder:
        def encode(self, texts):
            return np.array([[text.count(letter) for letter in "abcdefghij"] for text in texts], "float32")

    texts, _, written = forgotten_tags(100)
    model = Tagger(features=Encoder()).fit(texts, written)
    assert explain(model, texts[0], "tea").features[0].name.startswith("feature ")


@pytest.fixture(scope="module")
def uneven(place):
    """A file of a model whose labels have curves of their own: probabilities are not in the order of scores."""
    model = load(place / "model")
    maps, rng = model.calibration_.curve.maps, np.random.default_rng(0)
    model.calibration_.curve.maps = replace(maps, offsets=maps.offsets + rng.normal(0, 2, len(maps.offsets)))
    model.save(place / "uneven")
    return place / "uneven"


def test_every_list_is_in_the_order_of_its_probabilities(place, uneven):
    """Which labels are listed is up to their scores."""
    pytest.importorskip("fastapi", reason="the service needs fastapi")
    from labelgap.serve import create_app
    from test_serve import LOCAL, client_of

    model, texts = load(uneven), forgotten_tags(20, seed=2)[0]
    names, probabilities = model.label_names_in_, model.predict_proba(texts)
    best = model.predict_topk(texts, 2)[0]
    expected = [names[row[np.argsort(-p[row], kind="stable")]].tolist() for row, p in zip(best, probabilities)]
    assert expected != names[best].tolist()
    assert model.predict_tags(texts, 2) == expected
    export(model, place / "portable")
    assert PortableTagger(place / "portable" / "tagger.npz").predict_tags(texts, 2) == expected
    words = [word for text in texts for word in ("--document", text)]
    lines = labelgap("predict", "--model", uneven, *words, "--top", 2, "--json").stdout.splitlines()
    assert [json.loads(line)["tags"] for line in lines] == expected
    with client_of(create_app({"m": model}, settings=LOCAL)) as client:
        top = client.post("/v1/models/m/predict", json={"texts": texts, "top": 2}).json()["predictions"]
        all_of_them = client.post("/v1/models/m/complete", json={"texts": texts}).json()["completions"]
    assert [[label["label"] for label in row["labels"]] for row in top] == expected
    for row in all_of_them:
        assert (np.diff([label["probability"] for label in row["labels"]]) <= 0).all()


def test_a_text_without_a_known_word_has_no_tag_unless_asked_for(place):
    pytest.importorskip("fastapi", reason="the service needs fastapi")
    from labelgap.serve import create_app
    from test_serve import LOCAL, client_of

    model, texts = load(place / "model"), [forgotten_tags(1, seed=3)[0][0], "qqq zzz"]
    assert model.calibration_.always_best
    known, unknown = model.predict_tags(texts)
    assert known
    assert unknown == []
    assert len(model.predict_tags(texts, 1)[1]) == 1
    decisions = model.decision_function(texts)
    assert (decisions.max(axis=1) > 0).tolist() == [True, False]
    np.testing.assert_allclose(model.known_scores(texts, np.ones_like(decisions)).toarray(), decisions)
    export(model, place / "portable")
    portable = PortableTagger(place / "portable" / "tagger.npz")
    assert portable.predict_tags(texts) == [known, []]
    np.testing.assert_allclose(portable.decision_function(texts), decisions, atol=1e-5)
    with client_of(create_app({"m": model}, settings=LOCAL)) as client:
        rows = client.post("/v1/models/m/predict", json={"texts": texts}).json()["predictions"]
    assert [[label["label"] for label in row["labels"]] for row in rows] == [known, []]

    words = ["predict", "--model", place / "model", "--document", texts[0], "--document", texts[1]]
    note = "Rows without a word that the model knows: 1 of 2"
    assert note in labelgap(*words).stderr
    assert note in labelgap(*words, "--top", 1).stderr
    lines = [json.loads(line) for line in labelgap(*words, "--json").stdout.splitlines()]
    assert [line["known_words"] for line in lines] == [True, False]
    write_records(place / "strange.csv", ["body"], [[text] for text in texts])
    values = as_json("predict", place / "strange.csv", "--model", place / "model", "--output", place / "out.csv")
    assert (values["rows without a tag"], values["rows without a known word"]) == (1, 1)


def test_the_number_of_missing_labels_is_in_the_same_words_everywhere(place):
    facts = as_json("fit", place / "posts.csv", *COLUMNS, "--output", place / "again")
    share = load(place / "again").calibration_.written
    assert (
        facts["missing labels"] == f"{share.count_missing(facts['positives']).describe()}; labelgap audit lists them"
    )
    values = as_json("audit", place / "posts.csv", "--model", place / "model")
    n, shares = values["positives"], [values["estimated share missing"], *values["95 % interval of the share"]]
    count = MissingCount(*(n * share / (1 - share) for share in shares))
    assert values["missing labels"].partition(";")[0] == count.describe()
    assert values["expected right among these"] < values["missing labels listed"]


def test_the_order_of_suggestions_with_one_probability_is_explained(place):
    shown = labelgap("audit", place / "posts.csv", "--model", place / "model", "--output", place / "audit.csv")
    probabilities = [row["probability"] for row in read_records(place / "audit.csv")]
    assert probabilities[0] == probabilities[1]
    note = f"{float(probabilities[0]):.0%} is the largest probability that this audit can support"
    assert note in " ".join(shown.stderr.split())
