"""AutoLabeler: what it chooses, how it blends, and that a choice can be used again."""

from __future__ import annotations

import time

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.linalg import fractional_matrix_power

from labelgap import AutoLabeler, BinaryRelevance, Tagger, hide_positives, load
from labelgap.datasets import make_low_rank
from labelgap.estimators.choosing import HeldOutPart
from labelgap.kernels import get_backend
from labelgap.metrics import precision_at_k
from labelgap.model_selection.auto import (
    Candidate,
    Judge,
    MemberSearch,
    Scored,
    TrainingData,
    check_propensity,
)
from labelgap.model_selection.row_forms import learn_idf, learn_smoothing
from labelgap.observations import Labels

TWO = [
    {
        "method": "BinaryRelevance",
        "parameters": {"loss": "squared", "alpha": 1.0},
        "rows": "raw",
        "labelled": False,
        "prior": 0.0,
        "weight": 1.0,
    },
    {
        "method": "LabelKNN",
        "parameters": {"n_neighbors": 5},
        "rows": "idf",
        "labelled": True,
        "prior": 0.0,
        "weight": 0.3,
    },
]


@pytest.fixture(scope="module")
def data():
    return make_low_rank(240, 12, 10, rank=3, random_state=0)


@pytest.fixture(scope="module")
def fitted(data):
    return AutoLabeler(random_state=0).fit(data.X, hide_positives(data.Y, 0.5, random_state=0), calibrate=True)


def words(n=80):
    rng = np.random.default_rng(0)
    X = sp.csr_array(rng.random((n, 15)) * (rng.random((n, 15)) < 0.3))
    return X, (X.toarray()[:, :4] > 0.5).astype(int)


def test_the_report_names_candidates_readings_and_weights(fitted):
    assert {row["absent"] for row in fitted.report_} == {"no", "unlabelled"}
    members = [row for row in fitted.report_ if row["weight"]]
    assert [member["weight"] for member in fitted.members_].count(1.0) >= 1
    assert len(members) == len(fitted.members_) == len(fitted.models_)
    assert max(row["score"] for row in members) >= max(row["score"] for row in fitted.report_) / 1.006


def test_the_choice_is_used_again_without_a_search(fitted, data, monkeypatch):
    def fail(self):
        raise AssertionError("a search")

    monkeypatch.setattr(MemberSearch, "run", fail)
    again = fitted.chosen().fit(data.X, hide_positives(data.Y, 0.5, random_state=0))
    np.testing.assert_allclose(again.decision_function(data.X), fitted._scores(data.X).dense(), rtol=1e-4, atol=1e-4)


def test_saved_alone_and_in_a_tagger(fitted, data, tmp_path):
    fitted.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict_proba(data.X), fitted.predict_proba(data.X))
    texts = [f"{'salt' if i % 2 else 'sugar'} word{i % 7}" for i in range(60)]
    tags = [["meat"] if i % 2 else ["baking"] for i in range(60)]
    tagger = Tagger(AutoLabeler(random_state=0)).fit(texts, tags, calibrate=True)
    tagger.save(tmp_path / "tagger")
    assert load(tmp_path / "tagger").predict_tags(["salt", "sugar"], 1) == [["meat"], ["baking"]]


def test_scores_are_the_weighted_sum_of_the_members():
    X, Y = words()
    model = AutoLabeler(members=TWO, random_state=0).fit(X, Y)
    first, second = (
        part.decision_function(rows) for part, rows in zip(model.models_, (X, learn_idf(X).transform(X)), strict=True)
    )
    np.testing.assert_allclose(model.decision_function(X), first + 0.3 * second, atol=1e-6)


def test_rarity_adds_what_is_missing():
    X, Y = words()
    p = np.array([0.1, 0.5, 0.9, 1.0])
    plain = AutoLabeler(members=TWO).fit(X, Y).decision_function(X)
    rare = AutoLabeler(members=TWO, propensity=p, rarity=0.2).fit(X, Y).decision_function(X)
    np.testing.assert_allclose(rare - plain, np.tile(-0.2 * np.log(p), (len(plain), 1)), atol=1e-6)


def test_frequent_labels_are_raised_if_held_out_rows_have_one_label_each():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    one = np.eye(6)[rng.choice(6, 400, p=[0.4, 0.3, 0.15, 0.1, 0.04, 0.01])]
    search = MemberSearch(TrainingData(X, Labels(one)), 0.0, {}, get_backend("cpu"))
    search.judge = Judge(Labels(one), [np.arange(400)], None, search.kernels)
    noise = rng.normal(size=one.shape).astype(np.float32)
    before = search.judge.score(noise)
    rarity = search._choose_rarity(noise, 1.0, before)
    assert rarity < 0
    assert search.judge.score(noise - np.float32(rarity) * search.log_p.astype(np.float32)) > before
    assert search._choose_rarity(noise, 1.0, np.inf) == 0
    model = AutoLabeler(members=TWO[:1], rarity=-0.5).fit(X, one)
    np.testing.assert_allclose(
        model.decision_function(X) - AutoLabeler(members=TWO[:1]).fit(X, one).decision_function(X),
        np.tile(0.5 * search.log_p, (400, 1)),
        atol=1e-5,
    )


def test_gaps_do_not_count_in_the_choice(data):
    gaps = np.where(
        np.random.RandomState(0).random_sample(data.Y.shape) < 0.5,
        np.asarray(data.Y.todense() if sp.issparse(data.Y) else data.Y),
        np.nan,
    )
    model = AutoLabeler(random_state=0).fit(data.X, gaps)
    assert model.score(data.X, gaps) > 0.8


@pytest.mark.parametrize("unknown", [np.s_[3, 1], np.s_[:5, 2], np.s_[:, 2], np.s_[4]])
def test_few_unknown_cells(unknown):
    X, Y = words()
    gaps = Y.astype(float)
    gaps[unknown] = np.nan
    model = AutoLabeler(budget=5, random_state=0).fit(X, gaps)
    assert model.score(X, gaps) > 0.8


def test_the_judge_is_the_geometric_mean_of_precisions():
    rng = np.random.RandomState(0)
    Y, scores = rng.randint(0, 2, (30, 7)), rng.random_sample((30, 7)).astype(np.float32)
    Y[:, 0] = 1
    rows = [np.arange(10), np.arange(10, 30)]
    judge = Judge(Labels(Y), rows, None, get_backend("cpu"))
    expected = np.prod([precision_at_k(Y, scores, k) for k in (1, 3, 5)]) ** (1 / 3)
    assert judge.score(scores) == pytest.approx(expected)
    weighted = Judge(Labels(Y), rows, np.full(7, 0.5), get_backend("cpu"))
    assert weighted.score(scores) == pytest.approx(2 * expected)
    gaps = np.where(scores > 0.8, np.nan, Y)
    known = Judge(Labels(gaps), rows, None, get_backend("cpu")).score(scores)
    assert known == pytest.approx(
        Judge(Labels(gaps), rows, None, get_backend("cpu")).score(np.where(np.isnan(gaps), -9, scores))
    )


def test_the_judge_of_single_labels_counts_the_labels_ahead():
    rng = np.random.RandomState(0)
    Y, scores = np.eye(7)[rng.randint(0, 7, 30)], rng.randint(0, 5, (30, 7)).astype(np.float32)
    ahead = [
        np.mean([(row[j] > row[k]) + (row[j] == row[k]) / 2 for j in range(7) if j != k])
        for row, k in zip(scores, Y.argmax(axis=1), strict=True)
    ]
    loss, reciprocal = np.mean(ahead), np.mean(1 / (1 + 6 * np.array(ahead)))
    judge = Judge(Labels(Y), [np.arange(30)], None, get_backend("cpu"))
    assert judge.score(scores) == pytest.approx(reciprocal * (1 - loss) / loss)


def test_the_first_candidate_is_what_a_tagger_fits_by_default(monkeypatch):
    monkeypatch.setattr(MemberSearch, "_list_candidates", lambda *_: iter(()))
    rng = np.random.default_rng(1)
    Y = rng.random((200, 3)) < 0.4
    texts = [
        " ".join(f"word{w}" for w in rng.integers(0, 20, 5)) + " salt" * int(row[0]) + " sugar" * int(row[1])
        for row in Y
    ]
    tagger = Tagger(n_jobs=1).fit(texts, Y.astype(int))
    model = AutoLabeler(random_state=0).fit(tagger.transform(texts), Y.astype(int))
    parameters = model.report_[0]["parameters"]
    assert parameters == {name: getattr(tagger.model_, name) for name in parameters}
    assert {"alpha", "frequency_power"} & set(parameters)


@pytest.mark.parametrize("form", ["idf", "smooth", "kernel"])
def test_forms_of_the_rows_are_saved_with_the_model(form, tmp_path):
    X, Y = words()
    model = AutoLabeler(members=[TWO[0] | {"rows": form}], random_state=0).fit(X, Y)
    assert set(model.forms_) == {form}
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").decision_function(X), model.decision_function(X))
    assert AutoLabeler(members=[TWO[0]], random_state=0).fit(X, Y).forms_ == {}


def test_older_files_have_an_attribute_for_each_form():
    values = AutoLabeler._upgrade_values({"idf_": np.ones(3), "kernel_": None, "rarity_": 0.0})
    assert values["forms_"].keys() == {"idf"}
    assert "idf_" not in values
    assert values["learned_"] is None


def test_labels_without_a_positive_are_the_last_of_each_row(tmp_path):
    X, Y = words()
    wide = np.zeros((len(Y), 9), int)
    wide[:, [1, 3, 4, 8]] = Y
    narrow = AutoLabeler(members=TWO, rarity=-0.1, random_state=0).fit(X, Y)
    model = AutoLabeler(members=TWO, rarity=-0.1, random_state=0).fit(X, wide, calibrate=True)
    expected = narrow._scores(X).dense()
    scores = model._scores(X).dense()
    np.testing.assert_array_equal(scores[:, [1, 3, 4, 8]], expected)
    np.testing.assert_array_equal(
        scores[:, [0, 2, 5, 6, 7]], np.tile(np.minimum(expected.min(axis=1), -0.5)[:, None], 5)
    )
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict_proba(X), model.predict_proba(X))
    searched = AutoLabeler(budget=5, random_state=0).fit(X, wide, calibrate=True)
    assert {part.n_labels_ for part in searched.models_} == {4}
    assert searched.predict_proba(X).shape == wide.shape


def test_a_form_that_does_not_suit_the_rows(data):
    with pytest.raises(ValueError, match="need sparse X without negative values"):
        AutoLabeler(members=[TWO[0] | {"rows": "smooth"}]).fit(np.asarray(data.X) - 1.0, data.Y)


def test_smooth_rows_are_rows_times_a_power_of_their_gram_matrix():
    X = words()[0]
    rows = learn_idf(X).transform(X).toarray()
    expected = rows @ fractional_matrix_power(rows.T @ rows, 0.4).real
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(learn_smoothing(X).transform(X), expected, atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_smoothing_learns_from_rows_that_have_lost_their_labels(seed):
    rng = np.random.default_rng(seed)
    topics = rng.integers(0, 5, 600)  # a row has 6 of the 40 words of its topic
    X = sp.csr_array(
        (rng.random((600, 200)) < np.where(np.arange(200) % 5 == topics[:, None], 0.15, 0.01)).astype(float)
    )
    Y, written = np.eye(5)[topics], np.zeros((600, 5))
    written[:20] = Y[:20]
    words, smooth = (
        BinaryRelevance(1.0, loss="squared")
        .fit(form.transform(X), written)
        .decision_function(form.transform(X[300:]))
        for form in (learn_idf(X), learn_smoothing(X))
    )
    assert precision_at_k(Y[300:], smooth, 1) > precision_at_k(Y[300:], words, 1) + 0.03


def test_the_names_of_labels_are_a_prior(monkeypatch):
    monkeypatch.setattr(MemberSearch, "_list_candidates", lambda *_: iter(()))
    rng = np.random.default_rng(2)
    words = [f"word{w}" for w in range(60)]
    draws = [rng.choice(words, 6, replace=False) for _ in range(200)]
    texts = [" ".join(row) for row in draws]
    few = [[word for word in row if word in words[:30] and rng.random() < 0.2] for row in draws]
    model = Tagger(AutoLabeler(random_state=0), min_count=1).fit(texts, few)
    assert model.name_weight_ == 1.0
    assert max(member["prior"] for member in model.model_.members_) > 0
    again = model.chosen().fit(texts, few)
    np.testing.assert_allclose(again.decision_function(texts), model.decision_function(texts), rtol=1e-3, atol=1e-4)
    with pytest.raises(ValueError, match="prior has shape"):
        AutoLabeler().fit(np.eye(60), np.eye(60)[:, :2], prior=np.eye(3))


def test_neighbours_and_trees_learn_from_labelled_rows_only():
    X, Y = words()
    Y[::2] = 0
    member = TWO[1] | {"weight": 1.0}
    model = AutoLabeler(members=[member], random_state=0).fit(X, Y)
    assert model.models_[0].positives_.shape[0] == np.count_nonzero(Y.any(axis=1)) < len(Y)
    everything = AutoLabeler(members=[member | {"labelled": False}], random_state=0).fit(X, Y)
    assert everything.models_[0].positives_.shape[0] == len(Y)


def test_the_blend_adds_a_member_that_helps_and_no_other():
    rng = np.random.RandomState(0)
    Y = (rng.random_sample((400, 8)) < 0.3).astype(int)
    signal = [Y + rng.normal(0, 1.0, Y.shape) for _ in range(2)] + [rng.normal(size=Y.shape)]
    data = TrainingData(sp.csr_array(np.eye(400)[:, :3]), Labels(Y))
    search = MemberSearch(data, 0.0, {}, get_backend("cpu"))
    search.folds = [np.arange(400)]
    search.judge = Judge(Labels(Y), search.folds, None, search.kernels)
    for number, scores in enumerate(signal):
        search.scored.append(Scored(Candidate(str(number), AutoLabeler()), scores.astype(np.float32)))
        search.report.append({"score": search.judge.score(search.scored[-1].scores), "weight": 0.0, "note": ""})
    blend = search._blend()
    assert [bool(row["weight"]) for row in blend.report] == [True, True, False]
    assert isinstance(blend.held_out[0], HeldOutPart)


@pytest.mark.parametrize(("n_labels", "folds"), [(150, [800] * 5), (20_000, [800] * 4), (400_000, [125])])
def test_held_out_rows_are_fewer_if_their_scores_would_fill_the_memory(n_labels, folds):
    data = TrainingData(sp.csr_array((4000, 3)), Labels(sp.csr_array((4000, n_labels))))
    assert [len(rows) for rows in MemberSearch(data, 0.0, {}, get_backend("cpu"))._split()] == folds


def test_candidates_are_on_the_best_form_that_suits_them():
    X, Y = words()
    rng, truth = np.random.default_rng(0), Y.astype(np.float32)
    search = MemberSearch(TrainingData(X, Labels(Y)), 0.0, {"n_jobs": 1, "dtype": "float32", "random_state": 0}, None)
    search.judge = Judge(Labels(Y), [np.arange(len(Y))], None, get_backend("cpu"))
    for form, noise in {"raw": 2.0, "idf": 1.0, "smooth": 0.1, "kernel": 0.5}.items():
        scores = truth + rng.normal(0, noise, Y.shape).astype(np.float32)
        search.rows[form] = X
        search.scored.append(Scored(Candidate(f"one-vs-all, chosen, {form}", BinaryRelevance(), form), scores))
    forms = search._rank_forms()
    rows = {candidate.name.rpartition(", ")[0]: candidate.rows for candidate in search._list_candidates(forms[:1])}
    assert (rows["one-class"], rows["one-vs-all, squared hinge"], rows["trees"]) == ("smooth", "kernel", "idf")


def test_a_short_budget_leaves_one_member(data):
    start = time.perf_counter()
    model = AutoLabeler(budget=1e-3, random_state=0).fit(data.X, data.Y)
    assert time.perf_counter() - start < 5
    assert sum("budget" in row["note"] for row in model.report_) >= 3
    assert len(model.members_) == 1


def test_no_search_begins_shortly_before_the_deadline(data):
    now = time.perf_counter()
    search = MemberSearch(TrainingData(data.X, Labels(data.Y)), now + 10, {}, get_backend("cpu"))
    search.began = now - 90
    assert "budget" in search._search_one_class(Candidate("one-class, raw", AutoLabeler()))


def test_other_forms_of_the_rows_are_left_out_if_the_first_one_took_the_budget():
    X, Y = words()
    report = AutoLabeler(budget=1e-3, random_state=0).fit(X, Y).report_
    notes = {row["candidate"]: row["note"] for row in report}
    assert notes["one-vs-all, chosen, raw"] == ""
    assert "budget" in notes["one-vs-all, chosen, idf"]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"budget": 0}, "budget=0 is not a positive number of seconds"),
        ({"propensity": "magic"}, "propensity='magic' is not known"),
        ({"propensity": [0.5]}, "propensity has shape"),
        ({"members": [{"method": "magic"}]}, "members holds"),
        ({"rarity": float("nan")}, "rarity"),
    ],
)
def test_wrong_parameters(parameters, message, data):
    with pytest.raises(ValueError, match=message):
        AutoLabeler(**parameters).fit(data.X, data.Y)


def test_propensities_from_counts(data):
    p = check_propensity("counts", Labels(data.Y))
    assert ((p > 0) & (p < 1)).all()
