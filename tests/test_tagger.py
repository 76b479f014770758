"""Texts to tags."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline

from labelgap import LEML, SLEEC, BinaryRelevance, Labels, OneClassMF, Tagger, export, load
from labelgap.estimators import choosing
from labelgap.estimators.tagger import learn_words
from labelgap.persistence import ModelFileError
from labelgap.portable import plain_text

WORDS = {"baking": "oven flour cookies cake", "meat": "bacon steak roast grill", "soup": "broth stock ladle bowl"}
NAMES = list(WORDS)


def corpus(n=120, seed=0):
    """Texts with words of one or two topics, and a few that say nothing."""
    rng = np.random.default_rng(seed)
    Y = np.zeros((n, 3), int)
    Y[np.arange(n), rng.integers(0, 3, n)] = 1
    Y[rng.random(n) < 0.3, 0] = 1
    texts = []
    for row in Y:
        topics = [w for j in np.flatnonzero(row) for w in rng.choice(WORDS[NAMES[j]].split(), 3)]
        texts.append(" ".join([*topics, *rng.choice(["the", "and", "how"], 4)]))
    return texts, Y


@pytest.fixture(params=["tfidf", "hashing"])
def fitted(request):
    texts, Y = corpus()
    return Tagger(BinaryRelevance(0.1), words=request.param, buckets=512, label_names=NAMES).fit(texts, Y)


# --- export ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", [None, LEML(2, random_state=0), OneClassMF(2, random_state=0)], ids=str)
def test_an_exported_tagger_agrees(estimator, tmp_path):
    texts, Y = corpus()
    tags = [[NAMES[j] for j in np.flatnonzero(row)] for row in Y]
    tagger = Tagger(estimator, ngrams=(1, 2)).fit(texts, tags, calibrate=True)
    export(tagger, tmp_path / "out")
    code = "import json, sys, tagger; t = tagger.PortableTagger('tagger.npz'); x = json.load(sys.stdin);"
    code += "print(json.dumps([t.predict_tags(x), t.predict_proba(x).tolist(), 'labelgap' in sys.modules]))"
    others = [*corpus(40, seed=1)[0], "<b>Oven</b> &amp; nothing known", ""]
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, input=json.dumps(others), cwd=tmp_path / "out", capture_output=True, text=True)
    tags, probabilities, imported = json.loads(done.stdout)
    assert tags == tagger.predict_tags(others)
    np.testing.assert_allclose(probabilities, tagger.predict_proba(others), atol=1e-5)
    assert not imported


def test_what_cannot_be_exported(tmp_path):
    texts, Y = corpus()
    for tagger, message in ((Tagger(words="hashing"), "tfidf"), (Tagger(SLEEC(n_learners=1)), "not linear")):
        with pytest.raises(ValueError, match=message):
            export(tagger.fit(texts, Y), tmp_path / "out")
    assert not (tmp_path / "out").exists()


# --- words ---------------------------------------------------------------------------------------------------------


def test_rows_are_those_of_scikit_learn():
    texts, _ = corpus()
    ours = learn_words(texts, ngrams=(1, 2), min_count=3)
    theirs = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), min_df=3, token_pattern=r"\w+").fit(texts)
    assert ours.vocabulary.tolist() == theirs.get_feature_names_out().tolist()
    np.testing.assert_allclose(ours(texts, "float64").toarray(), theirs.transform(texts).toarray(), atol=1e-12)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<p>Use <b>C++</b>, not c#!</p>", ["c", "c#", "c++", "not", "use"]),
        ("can't cooking-time node.js end.", ["can't", "cooking-time", "end", "node.js"]),
        ("1 < 2 &amp; 3 > 2", ["1", "2", "3"]),
        ("Übergröße", ["übergröße"]),
        ('<a href="x">link</a><!-- no -->', ["link"]),
    ],
)
def test_words_of_a_text(text, expected):
    found = learn_words([text, "c"] if "c" in expected else [text]).vocabulary.tolist()
    assert found == expected


def test_markup_is_a_space():
    assert plain_text("a<br/>B") == "a b"


def test_an_unknown_text_is_zero():
    words = learn_words(["a b", "b c"])
    assert words(["zzz", ""], "float32").nnz == 0


def test_the_most_frequent_words():
    assert learn_words(["a b", "a c", "a"], max_features=1).vocabulary.tolist() == ["a"]


# --- learning ------------------------------------------------------------------------------------------------------


def test_tags_are_learned(fitted):
    texts, Y = corpus(seed=1)
    assert (fitted.predict(texts) == Y).mean() > 0.97
    assert fitted.score(texts, Y) > 0.97
    assert fitted.predict_tags(["roast bacon on the grill"], 1) == [["meat"]]
    assert fitted.predict_tags(["how and the"], 3)[0] != []


def test_it_is_its_estimator_on_the_features():
    texts, Y = corpus()
    model = Tagger(LEML(2, random_state=0, n_jobs=1)).fit(texts, Y)
    inner = LEML(2, random_state=0, n_jobs=1).fit(model.transform(texts), Y)
    np.testing.assert_array_equal(model.decision_function(texts), inner.decision_function(model.transform(texts)))
    for mine, other in zip(model.predict_topk(texts, 2), inner.predict_topk(model.transform(texts), 2)):
        np.testing.assert_array_equal(mine, other)
    assert model.model_.n_components == 2


def test_tags_above_the_threshold_come_best_first(fitted):
    texts, _ = corpus(seed=2)
    scores = fitted.decision_function(texts)
    for tags, row in zip(fitted.predict_tags(texts), scores):
        assert tags == [NAMES[j] for j in np.argsort(-row, kind="stable") if row[j] > 0]


def test_gaps_and_sparse_labels():
    texts, Y = corpus()
    rng = np.random.default_rng(0)
    observed = rng.random(Y.shape) < 0.7
    model = Tagger(BinaryRelevance(0.1)).fit(texts, Labels(Y, observed=observed))
    assert (model.predict(texts) == Y)[~observed].mean() > 0.9
    assert sp.issparse(Tagger().fit(texts, sp.csr_array(Y)).predict(texts))
    assert Tagger(OneClassMF(2, random_state=0)).fit(texts, sp.csr_array(Y)).score(texts, Y) > 0.9


def test_names_of_a_data_frame():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    texts, Y = corpus()
    model = Tagger().fit(pandas.Series(texts), pandas.DataFrame(Y, columns=NAMES))
    assert model.label_names_in_.tolist() == NAMES
    assert model.predict_tags(["cake and cookies from the oven"], 1) == [["baking"]]
    assert Tagger().fit(texts, Y).predict_tags(["cake oven flour"], 1) == [["0"]]


def test_clone_and_pipeline(fitted):
    texts, Y = corpus()
    again = clone(fitted).fit(texts, Y)
    np.testing.assert_array_equal(again.decision_function(texts), fitted.decision_function(texts))
    assert make_pipeline(clone(fitted)).fit(texts, Y).score(texts, Y) == fitted.score(texts, Y)


# --- files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mmap", [False, True])
def test_a_loaded_model_takes_texts(fitted, mmap, tmp_path):
    texts, _ = corpus(seed=3)
    fitted.save(tmp_path / "model")
    again = load(tmp_path / "model", mmap=mmap)
    np.testing.assert_array_equal(again.decision_function(texts), fitted.decision_function(texts))
    assert again.predict_tags(texts, 2) == fitted.predict_tags(texts, 2)
    assert again.get_params(deep=False)["words"] == fitted.words
    again.save(tmp_path / "again")
    assert load(tmp_path / "again").predict_tags(texts, 2) == fitted.predict_tags(texts, 2)


def test_parts_that_do_not_belong_together(fitted, tmp_path):
    fitted.idf_ = fitted.idf_[:-1]
    fitted.save(tmp_path / "model")
    with pytest.raises(ModelFileError, match="is inconsistent"):
        load(tmp_path / "model")


# --- what is wrong -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ("one text", r"X is one text; pass a list of texts"),
        ([["a"], ["b"]], r"X holds \['a'\] at position 0, which is not a text"),
        (np.eye(2), r"X has shape \(2, 2\)"),
        (["a b", None], "X holds None at position 1, which is not a text"),
        (["", " "], "X has no words to learn from: none is in min_count=2 texts"),
        (["a", "b"], "X has no words to learn from: none is in min_count=2 texts"),
        ([], "X has no texts"),
    ],
)
def test_what_is_no_text(X, message):
    with pytest.raises(ValueError, match=message):
        Tagger().fit(X, np.eye(2, dtype=int))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"words": "magic"}, "words='magic' is not known"),
        ({"ngrams": (2, 1)}, r"ngrams=\(2, 1\) is not a range"),
        ({"min_count": 0}, "min_count=0 is out of range"),
        ({"label_names": ["a"]}, "label_names has 1 names for 3 labels"),
        ({"estimator": BinaryRelevance(-1.0)}, "alpha=-1.0 is out of range"),
    ],
)
def test_parameters_that_mean_nothing(parameters, message):
    texts, Y = corpus(20)
    with pytest.raises(ValueError, match=message):
        Tagger(**parameters).fit(texts, Y)


# --- features of one's own -----------------------------------------------------------------------------------------


class Encoder:
    """Dense vectors of texts, as sentence-transformers makes them: counts of letters."""

    def encode(self, texts):
        return np.array([[text.count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts], float)


def test_an_encoder_makes_the_features(tmp_path):
    texts, Y = corpus()
    encoder = Encoder()
    model = Tagger(features=encoder, label_names=NAMES).fit(texts, Y)
    assert clone(model).features is encoder
    np.testing.assert_allclose(model.transform(texts).toarray(), encoder.encode(texts))
    assert model.score(texts, Y) > 0.9
    model.save(tmp_path / "model")
    with pytest.raises(ModelFileError, match=r"it needs a fitted Encoder .* pass it to labelgap\.load"):
        load(tmp_path / "model")
    with pytest.raises(ValueError, match="needs a fitted Encoder"):
        load(tmp_path / "model", features=TfidfVectorizer())
    loaded = load(tmp_path / "model", features=Encoder())
    np.testing.assert_array_equal(loaded.predict_proba(texts), model.predict_proba(texts))
    loaded.save(tmp_path / "again")


def test_a_transformer_makes_the_features_and_is_saved(tmp_path):
    texts, Y = corpus()
    model = Tagger(features=TfidfVectorizer(ngram_range=(1, 2)), label_names=NAMES).fit(texts, Y)
    assert "bacon steak" in model.get_feature_names_out()
    np.testing.assert_allclose(
        model.transform(texts).toarray(),
        TfidfVectorizer(ngram_range=(1, 2)).fit_transform(texts).toarray(),
        rtol=1e-6,
    )
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(texts), model.predict(texts))
    with pytest.raises(ValueError, match="needs none"):
        load(tmp_path / "model", features=TfidfVectorizer())


def test_sparse_and_dense_columns_together():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    texts, Y = corpus()
    length = np.array([len(text) for text in texts], float)
    frame = pandas.DataFrame({"body": texts, "length": length / length.max()})
    columns = ColumnTransformer([("words", TfidfVectorizer(), "body"), ("length", "passthrough", ["length"])])
    model = Tagger(features=columns, label_names=NAMES).fit(frame, Y)
    assert model.transform(frame).shape[1] == len(TfidfVectorizer().fit(texts).vocabulary_) + 1
    assert (model.predict(frame) == Y).mean() > 0.95
    assert [len(tags) for tags in model.predict_tags(frame[:3], 1)] == [1, 1, 1]


def test_ready_vectors(tmp_path):
    texts, Y = corpus()
    vectors = Encoder().encode(texts)
    model = Tagger(features="vectors", label_names=NAMES).fit(vectors, Y)
    as_json = [str(row.tolist()) for row in vectors]
    np.testing.assert_array_equal(model.predict(as_json), model.predict(vectors))
    np.testing.assert_array_equal(model.predict(list(vectors)), model.predict(vectors))
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict(vectors), model.predict(vectors))
    with pytest.raises(ValueError, match="'bacon' at position 0, which is no vector"):
        model.predict(["bacon"])
    with pytest.raises(ValueError, match="vectors of 1 to 2 numbers"):
        model.predict(["[1]", "[1, 2]"])


def test_wrong_features():
    with pytest.raises(ValueError, match="features='words' is no source of features"):
        Tagger(features="words").fit(*corpus())
    with pytest.raises(ValueError, match=r"name_weight=0\.5 needs BinaryRelevance"):
        Tagger(LEML(2), name_weight=0.5).fit(*corpus())


# --- the default estimator -----------------------------------------------------------------------------------------


def rare_topics(n, seed=0):
    """Texts of forty topics of different frequency, with many words that say nothing; most contain a topic's name."""
    rng = np.random.default_rng(seed)
    names = [f"topic-name{j}" for j in range(40)]
    shares = 1 / np.arange(1, 41)
    topics = rng.choice(40, n, p=shares / shares.sum())
    texts = []
    for topic in topics:
        words = [f"noise{i}" for i in rng.integers(0, 150, 12)] + [f"w{topic}x{i}" for i in rng.integers(0, 20, 1)]
        texts.append(" ".join([*words, f"name{topic if rng.random() < 0.8 else rng.integers(40)}"]))
    return texts, topics, names


def test_the_default_uses_the_names_of_labels():
    texts, topics, names = rare_topics(400)
    rng = np.random.default_rng(1)
    tags = [[names[topic]] if rng.random() < 0.5 else [] for topic in topics]
    new, truth, _ = rare_topics(400, seed=2)
    model = Tagger().fit(texts, tags)
    assert model.name_weight_ > 0
    assert {"alpha", "frequency_power", "prior_weight", "score"} == set(model.report_[0])
    best = max(model.report_, key=lambda row: row["score"])
    assert model.model_.alpha == best["alpha"]
    share = np.mean([tag[0] == names[topic] for tag, topic in zip(model.predict_tags(new, 1), truth, strict=True)])
    without = Tagger(name_weight=0).fit(texts, tags)
    other = np.mean([tag[0] == names[topic] for tag, topic in zip(without.predict_tags(new, 1), truth, strict=True)])
    assert share > other + 0.03
    again = model.chosen().fit(texts, tags)
    np.testing.assert_allclose(
        again.decision_function(new) + 0.5, model._scores(model._check_rows(new)).dense() + 0.5
    )


def test_the_default_can_be_updated(tmp_path):
    texts, topics, names = rare_topics(800)
    tags = [[names[topic]] for topic in topics]
    model = Tagger(label_names=names, name_weight=0.0).fit(texts[:200], tags[:200])
    model.save(tmp_path / "model")
    new, truth, _ = rare_topics(400, seed=2)
    expected = [[names[topic]] for topic in truth]
    updated = load(tmp_path / "model").partial_fit(texts[200:], tags[200:])
    whole = load(tmp_path / "model").partial_fit(texts[200:], tags[200:], past=(texts[:200], tags[:200]))
    assert updated.score(new, expected) > model.score(new, expected) + 0.05
    assert updated.score(new, expected) > whole.score(new, expected) - 0.02
    assert updated.calibration_.quality == model.calibration_.quality
    assert not hasattr(model, "_choice")


def test_a_search_over_the_default_estimator():
    texts, Y = corpus()
    search = GridSearchCV(Tagger(), {"estimator__alpha": [0.1, 1.0]}, cv=2).fit(texts, Y)
    assert search.best_estimator_.model_.loss == "squared"
    scores = cross_val_predict(Tagger(), texts, Y, cv=2, method="decision_function")
    assert scores.shape == Y.shape
    assert ((scores > 0) == Y).mean() > 0.9


def test_the_default_is_a_low_rank_model_where_the_weights_of_all_labels_would_not_fit(monkeypatch):
    monkeypatch.setattr(choosing, "MAX_WEIGHTS", 1)
    texts = ["cake oven", "cake flour", "steak grill", "grill bacon"] * 20
    tags = [["baking"], ["baking"], ["meat"], ["meat"]] * 20
    model = Tagger().fit(texts, tags)
    assert type(model.model_) is OneClassMF
    assert model.predict_tags(["a grill"], 1) == [["meat"]]
    gaps = np.array([[1, 0], [1, np.nan], [0, 1], [np.nan, 1]] * 20)
    assert type(Tagger().fit(texts, gaps).model_) is LEML


# --- weights of texts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("estimator", "atol"),
    [(BinaryRelevance(loss="squared", dtype="float64"), 1e-8), (LEML(2, random_state=0), 2e-3)],
    ids=["BinaryRelevance", "LEML"],
)
def test_a_weight_repeats_a_text(estimator, atol):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((80, 6)), np.eye(3)[rng.integers(0, 3, 80)]
    counts = rng.integers(1, 3, 80)
    repeated = np.repeat(np.arange(80), counts)
    model = Tagger(estimator, features="vectors", dtype="float64")
    weighted = clone(model).fit(list(X), Y, sample_weight=counts).decision_function(list(X))
    plain = clone(model).fit(list(X[repeated]), Y[repeated]).decision_function(list(X))
    np.testing.assert_allclose(weighted, plain, rtol=0, atol=atol)
    assert np.abs(weighted - clone(model).fit(list(X), Y).decision_function(list(X))).max() > 4e-3


def test_the_default_takes_weights():
    """Half of the texts have wrong tags and the weight 0."""
    texts, Y = corpus(240)
    wrong = np.where(np.arange(240)[:, None] < 120, Y[:, [1, 2, 0]], Y)
    weights = np.repeat([0.0, 1.0], 120)
    model = Tagger(label_names=NAMES).fit(texts, wrong, sample_weight=weights)
    assert not {"_weights", "_choice"} & set(vars(model))
    new, truth = corpus(100, seed=1)
    assert model.score(new, truth) > 0.95 > Tagger(label_names=NAMES).fit(texts, wrong).score(new, truth) + 0.1
    ones = Tagger(label_names=NAMES).fit(texts, Y, sample_weight=np.full(240, 1.0))
    np.testing.assert_allclose(
        ones.decision_function(new), Tagger(label_names=NAMES).fit(texts, Y).decision_function(new), atol=1e-4
    )
    calibrated = Tagger(LEML(2, random_state=0)).fit(texts, Y, sample_weight=weights, calibrate=True)
    assert calibrated.predict_proba(new).shape == truth.shape


def test_weights_that_mean_nothing():
    texts, Y = corpus()
    with pytest.raises(ValueError, match="sample_weight: the fit of SLEEC takes no weights"):
        Tagger(SLEEC(2)).fit(texts, Y, sample_weight=np.ones(120))
    with pytest.raises(ValueError, match="sample_weight"):
        Tagger().fit(texts, Y, sample_weight=np.ones(7))


def test_rows_are_left_out_alone_in_blocks(monkeypatch):
    """Scores for a calibration do not depend on the number of rows that are in memory at once."""
    rng = np.random.default_rng(0)
    X, labels = rng.standard_normal((80, 6)).astype("float32"), Labels((rng.random((80, 5)) < 0.3).astype(int))
    choice = choosing.choose_estimator(X, labels)
    model = choice.estimator.fit(X, labels)
    monkeypatch.setattr(choosing, "MAX_CALIBRATED", 60)
    blocks = {}
    for cells in (1 << 22, 50):
        monkeypatch.setattr(choosing, "BLOCK_CELLS", cells)
        (part,) = choice.score_held_out(model, np.linspace(1, 1.2, 80))
        blocks[cells] = list(part.scores.blocks())
        assert len(part.rows) == 60
    assert (len(blocks[1 << 22]), len(blocks[50])) == (1, 6)
    np.testing.assert_allclose(np.concatenate(blocks[50]), blocks[1 << 22][0], rtol=1e-5, atol=1e-6)
