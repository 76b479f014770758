"""Probabilities and thresholds of every estimator: monotone, calibrated, saved, and chosen for what was asked."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score

import labelgap
from labelgap import LEML, BinaryRelevance, OneClassMF, OneClassMFCV, Tagger, get_scorer, hide_cells, hide_positives
from labelgap.calibration import Calibration, NotCalibrated, calibration_error, parse_aim
from labelgap.calibration.decisions import choose_threshold
from labelgap.datasets import make_low_rank
from test_estimator_contract import MAKERS

AIMS = ("f1", "expected", "precision>=0.8", "k=1.5")


@pytest.fixture(scope="module")
def data():
    """Rows whose labels are a noisy low-rank function of their features; the second half is for tests."""
    rng = np.random.RandomState(0)
    X = rng.standard_normal((3000, 10))
    scores = X @ rng.standard_normal((10, 3)) @ rng.standard_normal((3, 8)) / 2 - 1.0
    return X, (rng.rand(*scores.shape) < 1 / (1 + np.exp(-scores))).astype(int)


# --- every estimator -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_every_estimator_has_probabilities(name, planted, tmp_path):
    X, Y, _ = planted()
    make = MAKERS[name]
    plain, model = make().fit(X, Y), make().fit(X, Y, calibrate=True)
    p, decisions = model.predict_proba(X), model.decision_function(X)
    assert p.shape == Y.shape
    assert ((p > 0) & (p < 1)).all()
    assert (model.predict_proba(X, meaning="true") >= p - 1e-12).all()
    np.testing.assert_array_equal(model.predict(X) == 1, decisions > 0)
    indices, values = model.predict_topk(X, 3)
    np.testing.assert_array_equal(indices, plain.predict_topk(X, 3)[0])
    np.testing.assert_allclose(values, np.take_along_axis(decisions, indices, 1), rtol=1e-6, atol=1e-6)
    again, probabilities = model.predict_topk(X, 3, proba=True)
    np.testing.assert_array_equal(again, indices)
    np.testing.assert_allclose(probabilities, np.take_along_axis(p, indices, 1), rtol=1e-3, atol=1e-6)
    model.save(tmp_path / "model")
    loaded = labelgap.load(tmp_path / "model")
    np.testing.assert_allclose(loaded.predict_proba(X), p, rtol=1e-9)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded.calibration_.quality == model.calibration_.quality
    with pytest.raises(NotCalibrated, match="was not calibrated; pass calibrate=True to fit, or call calibrate"):
        plain.predict_proba(X)
    assert not hasattr(model.fit(X, Y), "calibration_")


def test_a_probability_rises_with_the_score():
    rng = np.random.RandomState(0)
    scores, labels = rng.standard_normal(4000), rng.randint(0, 4, 4000)
    yes = rng.rand(4000) < 1 / (1 + np.exp(-(labels - 1.5) * scores))  # a label may even fall with its score
    calibration = Calibration(4, own=3.0).fit(scores, labels, yes)
    grid = np.linspace(-6, 6, 300)
    for label in range(4):
        p = calibration.predict(grid, np.full(300, label))
        inside = (p[1:] < 1 - 2e-6) & (p[:-1] > 2e-6)
        assert (np.diff(p) >= 0).all()
        assert (np.diff(p)[inside] > 0).all()
    for probability in (0.05, 0.4, 0.9):
        thresholds = calibration.find_scores(probability)
        inside = np.abs(thresholds) < 6
        p = calibration.predict(thresholds, np.arange(4))
        np.testing.assert_allclose(p[inside], probability, atol=0.02)


def test_scores_that_differ_by_rounding_count_as_equal():
    rng = np.random.default_rng(0)
    scores = np.repeat([-0.04, -0.01, -0.02], 50) + rng.integers(-2, 3, 150) * 2.0**-59
    calibration = Calibration(1).fit(scores, np.zeros(150, int), rng.random(150) < 0.4)
    assert np.isfinite(calibration.predict(scores, np.zeros(150, int))).all()


def test_the_probability_of_a_written_label_is_its_share(data):
    X, Y = data
    model = LEML(3, alpha=1.0, random_state=0).fit(X[:2000], Y[:2000], calibrate=True)
    p = model.predict_proba(X[2000:])
    assert calibration_error(p.ravel(), Y[2000:].ravel()) < 0.03
    after = LEML(3, alpha=1.0, random_state=0).fit(X[:1000], Y[:1000]).calibrate(X[1000:2000], Y[1000:2000])
    assert calibration_error(after.predict_proba(X[2000:]).ravel(), Y[2000:].ravel()) < 0.03
    assert model.calibration_.quality["calibration_error"] < 0.03
    np.testing.assert_array_equal(model.predict_proba(X, meaning="true"), model.predict_proba(X))


def test_the_probability_of_a_true_label_undoes_the_omissions():
    truth = make_low_rank(3000, 20, 10, rank=4, random_state=0)
    Y = hide_positives(truth.Y, 0.5, random_state=0)
    model = OneClassMF(4, weight_unlabelled=0.5, alpha=0.1, random_state=0).fit(
        truth.X[:2000], Y[:2000], calibrate=True
    )
    share = model.calibration_.written
    assert share.low <= 0.55
    assert share.high >= 0.45
    X, held_out = truth.X[2000:], truth.Y[2000:].toarray()
    true, written = (model.predict_proba(X, meaning=meaning) for meaning in ("true", "written"))
    assert calibration_error(written.ravel(), Y[2000:].toarray().ravel()) < 0.03
    assert calibration_error(true.ravel(), held_out.ravel()) < 0.08
    assert calibration_error(written.ravel(), held_out.ravel()) > 2 * calibration_error(
        true.ravel(), held_out.ravel()
    )


# --- thresholds ----------------------------------------------------------------------------------------------------


def brute_force(p, aim, n_rows):
    """The number of best cells that an aim wants, by trying every number."""
    sorted_p = np.sort(p)[::-1]
    sizes = np.arange(1, len(p) + 1)
    hits = np.cumsum(sorted_p)
    if aim.name == "f1":
        return int(sizes[np.argmax(2 * hits / (sizes + p.sum()))])
    if aim.name == "precision":
        return int(max((size for size in sizes if hits[size - 1] / size >= aim.value), default=0))
    return int(aim.value * n_rows) if aim.name == "k" else round(p.sum())


@pytest.mark.parametrize("aim", AIMS)
def test_a_threshold_is_the_best_of_all(aim):
    rng = np.random.RandomState(1)
    for _ in range(20):
        p = rng.beta(0.3, 2.0, 400)
        size = brute_force(p, parse_aim(aim), 100)
        assert (p > choose_threshold(p, np.ones(400), parse_aim(aim), 100)).sum() == size


def test_thresholds_reach_their_aim_on_new_rows(data):
    X, Y = data
    precisions = {}
    for aim in AIMS:
        model = BinaryRelevance(loss="squared").fit(X[:2000], Y[:2000], calibrate=aim)
        predicted = model.predict(X[2000:]) == 1
        precisions[aim] = Y[2000:][predicted].mean()
        if aim == "k=1.5":
            assert abs(predicted.sum(axis=1).mean() - 1.5) < 0.15
        if aim == "expected":
            assert abs(predicted.sum() / model.predict_proba(X[2000:]).sum() - 1) < 0.1
        assert model.calibration_.aim == aim
    assert 0.75 < precisions["precision>=0.8"] < 0.9


def test_f1_of_chosen_thresholds_beats_a_score_of_zero(data):
    X, Y = data

    def f1(model):
        predicted = model.predict(X[2000:]) == 1
        return 2 * (predicted & (Y[2000:] == 1)).sum() / (predicted.sum() + Y[2000:].sum())

    plain = BinaryRelevance(loss="squared").fit(X[:2000], Y[:2000])
    assert f1(clone(plain).fit(X[:2000], Y[:2000], calibrate=True)) > f1(plain) + 0.02


@pytest.mark.parametrize("aim", ["magic", "precision>=2", "precision>=", "k=", "k=0"])
def test_an_unknown_aim(aim, planted):
    X, Y, _ = planted()
    with pytest.raises(ValueError, match=r"aim=.* is not known; use one of f1, expected"):
        LEML(2).fit(X, Y, calibrate=aim)


def test_what_cannot_be_held_out(planted):
    X, Y, _ = planted()
    with pytest.raises(ValueError, match="X has 5 rows, too few to hold some out for a calibration"):
        LEML(2).fit(X[:5], Y[:5], calibrate=True)
    with pytest.raises(ValueError, match="excludes graphs, label features and row weights"):
        OneClassMF(2).fit(X, Y, row_weights=np.ones(len(X)), calibrate=True)
    with pytest.raises(ValueError, match="needs features of rows"):
        OneClassMF(2).fit(None, Y, calibrate=True)
    model = LEML(2).fit(X, Y, calibrate=True)
    with pytest.raises(ValueError, match="meaning='maybe' is not known"):
        model.predict_proba(X, meaning="maybe")


# --- scikit-learn --------------------------------------------------------------------------------------------------


def test_scikit_learn_predicts_in_folds(data):
    X, Y = data[0][:300], data[1][:300]
    model = LEML(3, random_state=0)
    decisions = cross_val_predict(model, X, Y, method="decision_function")
    assert decisions.shape == Y.shape
    p = cross_val_predict(model, X, Y, method="predict_proba", params={"calibrate": True})
    assert calibration_error(p.ravel(), Y.ravel()) < 0.1


def test_scorers_ignore_unknown_cells(data):
    X, Y = data[0][:300], hide_cells(data[1][:300], 0.7, random_state=0)
    model = LEML(3, random_state=0)
    for name, low, high in (("P@1", 0.5, 1.0), ("F1", 0.3, 1.0), ("Hamming", -0.4, -0.05)):
        assert low < cross_val_score(model, X, Y, scoring=get_scorer(name)).mean() < high
    search = GridSearchCV(model, {"alpha": [0.1, 1e4]}, scoring=get_scorer("P@1"), cv=2).fit(X, Y)
    assert search.best_params_ == {"alpha": 0.1}


# --- Tagger --------------------------------------------------------------------------------------------------------


def forgotten_tags(n=400, share=0.5, seed=0):
    """Texts with the tags that their words tell, of which a share is written."""
    rng = np.random.RandomState(seed)
    words = {"baking": ["cake", "oven", "flour"], "meat": ["bacon", "ham", "grill"], "tea": ["cup", "leaf", "pot"]}
    texts, tags, written = [], [], []
    for _ in range(n):
        chosen = [name for name in words if rng.rand() < 0.5] or ["tea"]
        texts.append(" ".join(rng.choice(words[name]) for name in chosen for _ in range(3)) + " the how")
        tags.append(chosen)
        written.append([name for name in chosen if rng.rand() < share])
    return texts, tags, written


def test_lists_of_tags_are_positives_only():
    texts, tags, written = forgotten_tags()
    model = Tagger().fit(texts[:300], written[:300])
    assert (type(model.model_), model.model_.loss) == (BinaryRelevance, "squared")
    assert model.positives_only_
    assert model.score(texts[300:], tags[300:]) > 0.95
    predicted = model.predict_tags(texts[300:])
    assert all(predicted)
    assert np.mean([set(a) == set(b) for a, b in zip(predicted, tags[300:], strict=True)]) > 0.7
    assert model.predict_proba(texts[:3], meaning="true").max() > model.predict_proba(texts[:3]).max()
    complete = Tagger(complete=True).fit(texts[:300], written[:300])
    assert not complete.positives_only_
    assert complete.calibration_.written.overall == 1.0
    matrix = sp.csr_array(np.array([[name in row for name in ("baking", "meat", "tea")] for row in tags], np.int8))
    assert not Tagger().fit(texts, matrix).positives_only_


def test_a_tagger_learns_on_and_saves(tmp_path):
    texts, _, written = forgotten_tags()
    search = OneClassMFCV(3, weights=[0.5], alphas=[0.1, 1.0], max_iter=3, n_splits=1, random_state=0)
    model = Tagger(search).fit(texts[:300], written[:300], calibrate=True)
    assert model.positives_only_
    model.partial_fit(texts[300:], written[300:])
    model.save(tmp_path / "model")
    again = labelgap.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(texts[:5]), model.predict_proba(texts[:5]))
    chosen = again.chosen()
    assert isinstance(chosen.estimator, OneClassMF)
    assert not hasattr(chosen.fit(texts[:100], written[:100]), "calibration_")
    with pytest.raises(TypeError, match="NaiveBayes has no partial_fit; fit again with all texts"):
        Tagger(labelgap.NaiveBayes()).fit(texts, written).partial_fit(texts, written)
