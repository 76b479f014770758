"""Every method and every search saves alone and inside a Tagger; pipelines save what needs no pickle."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MaxAbsScaler, MinMaxScaler, Normalizer, StandardScaler

import labelgap
from labelgap import LEML, MC1CV, BinaryRelevance, LabelwiseSVM, MCbCV, OneClassMFCV, Tagger, tune
from labelgap.estimators import MultiLabelEstimator
from labelgap.estimators.tagger import learn_words
from labelgap.methods import list_classes
from test_estimator_contract import MAKERS

SEARCHES = {
    "MC1CV": MC1CV(mu=1e-2, label_weights=[1.0], n_folds=2, random_state=0),
    "MCbCV": MCbCV(mu=1e-2, label_weights=[0.1, 1.0], n_folds=2, random_state=0),
    "OneClassMFCV": OneClassMFCV(2, weights=[0.5], alphas=[0.1, 1.0], max_iter=3, n_splits=1, random_state=0),
    "LabelwiseSVM CV": LabelwiseSVM(C="cv", Cs=[0.1, 1.0], n_folds=2),
}
ESTIMATORS = {name: make() for name, make in MAKERS.items()} | SEARCHES


def texts_and_labels(n=40):
    """Texts whose words tell their labels, most of the time."""
    rng = np.random.default_rng(0)
    topics = (("cake", "oven", "flour"), ("bacon", "smoke", "ham"), ("tea", "milk", "cup"))
    Y = rng.random((n, 3)) < 0.5
    Y[:3] = np.eye(3)
    words = [[w for j in np.flatnonzero(row) for w in rng.choice(topics[j], 2)] + ["the", "a"] for row in Y]
    return [" ".join(part) for part in words], Y.astype(int)


def assert_same(model, again, rows):
    assert type(again) is type(model)
    # The layout of an array in memory may change the last bit of a product.
    np.testing.assert_allclose(again.decision_function(rows), model.decision_function(rows), rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(again.predict(rows), model.predict(rows))


def test_every_method_is_here():
    assert set(list_classes()) - {"Tagger"} <= {type(estimator).__name__ for estimator in ESTIMATORS.values()}


@pytest.mark.parametrize("folder", [False, True], ids=["zip", "folder"])
@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_method_comes_back(name, folder, tmp_path):
    texts, Y = texts_and_labels()
    rows = learn_words(texts)(texts, "float64").toarray()
    for estimator, X in ((ESTIMATORS[name], rows), (Tagger(ESTIMATORS[name]), texts)):
        estimator.fit(X, Y).save(tmp_path / "model", folder=folder)
        assert_same(estimator, labelgap.load(tmp_path / "model"), X[:7])


def test_the_result_of_tune_comes_back(tmp_path):
    texts, Y = texts_and_labels()
    model = tune(Tagger(LEML(2)), texts, Y, grid={"estimator__alpha": [0.1, 1.0]}, random_state=0).estimator
    model.save(tmp_path / "model")
    assert_same(model, labelgap.load(tmp_path / "model"), texts)


def test_a_search_comes_back_as_a_search(tmp_path):
    texts, Y = texts_and_labels()
    model = Tagger(SEARCHES["OneClassMFCV"]).fit(texts, Y)
    model.save(tmp_path / "model")
    again = labelgap.load(tmp_path / "model")
    assert again.model_.best_params_ == model.model_.best_params_
    assert again.get_params()["estimator__alphas"] == [0.1, 1.0]


# --- pipelines -----------------------------------------------------------------------------------------------------

PIPELINES = {
    "tfidf": [TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2)), Normalizer()],
    "no idf": [TfidfVectorizer(use_idf=False, norm="l1")],
    "counts": [CountVectorizer(min_df=2, dtype=np.float32), TfidfTransformer(), MaxAbsScaler()],
    "hashing": [HashingVectorizer(n_features=64, alternate_sign=False), TruncatedSVD(3, random_state=0)],
    "dense": [
        TfidfVectorizer(),
        TruncatedSVD(4, random_state=0),
        StandardScaler(),
        MinMaxScaler((-1, 1)),
        "passthrough",
    ],
}


@pytest.mark.parametrize("folder", [False, True], ids=["zip", "folder"])
@pytest.mark.parametrize("name", PIPELINES)
def test_a_pipeline_comes_back(name, folder, tmp_path):
    texts, Y = texts_and_labels()
    model = make_pipeline(*PIPELINES[name], LEML(2, random_state=0)).fit(texts, Y)
    labelgap.save(model, tmp_path / "model", folder=folder)
    again = labelgap.load(tmp_path / "model")
    np.testing.assert_allclose(again.decision_function(texts), model.decision_function(texts), rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(again.predict(texts), model.predict(texts))
    assert [name for name, _ in again.steps] == [name for name, _ in model.steps]
    again.fit(texts[::-1], Y[::-1])  # its parameters are whole too


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (
            [TfidfVectorizer(), FunctionTransformer()],
            "The step 'functiontransformer' is a FunctionTransformer",
        ),
        (
            [TfidfVectorizer(tokenizer=str.split, token_pattern=None)],
            "tokenizer=.* cannot be written to a model",
        ),
    ],
)
def test_what_a_pipeline_cannot_keep_is_named(steps, message, tmp_path):
    texts, Y = texts_and_labels()
    model = make_pipeline(*steps, LEML(2)).fit(texts, Y)
    with pytest.raises(TypeError, match=message):
        labelgap.save(model, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_only_estimators_are_saved(tmp_path):
    with pytest.raises(TypeError, match="TfidfVectorizer cannot be saved: pass an estimator of labelgap"):
        labelgap.save(TfidfVectorizer(), tmp_path / "model")
    texts, Y = texts_and_labels()
    labelgap.save(Tagger(BinaryRelevance()).fit(texts, Y), tmp_path / "model")
    assert isinstance(labelgap.load(tmp_path / "model"), MultiLabelEstimator)


# --- memory --------------------------------------------------------------------------------------------------------


def test_a_long_text_costs_its_own_length():
    """A list of texts never becomes an array, in which each text has the width of the longest one."""
    texts, Y = texts_and_labels()
    texts = texts * 25 + ["cake " * 200_000]
    Y = np.vstack([Y] * 25 + [Y[:1]])
    tracemalloc.start()
    Tagger(LEML(2, max_iter=1, tol=0)).fit(texts, Y).predict_topk(texts, 1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3e8  # an array of 1,001 × 1,000,000 characters has 4e9 bytes
