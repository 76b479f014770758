import json
import os
from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from matplotlib.figure import Figure
from typer.testing import CliRunner

from labelgap import SLEEC, LabelKNN, LocalLEML, load_dataset
from labelgap.cli import app
from labelgap.datasets import Dataset, make_low_rank
from labelgap.metrics import precision_at_k
from labelgap.model_selection import hold_out_rows
from labelgap.observations import as_labels
from labelgap_papers import (
    RunOptions,
    Setting,
    find_experiments,
    list_experiments,
    paper_methods,
    run,
    sleec_tables,
    study,
)
from labelgap_papers.experiments import read_published
from labelgap_papers.paper_methods import METHODS, MethodFit, Task
from labelgap_papers.reports import plot_report, report_to_dict
from labelgap_papers.study import compute_megabytes, take_first_learners
from labelgap_papers.trials import draw_split, make_trial

TABLES = ["sleec/table-1b", "sleec/table-3", "sleec/table-6"]
NAMES = [*TABLES[:2], "sleec/table-4", TABLES[2], "sleec/figure-1a", "sleec/figure-1c", "sleec/figure-2"]
SETS = ("bibtex", "delicious", "mediamill", "eurlex")
EMBEDDINGS = {"LEML", "WSABIE", "CPLST", "CS", "ML-CSSP"}


def printed():
    """The published numbers: (table, dataset, method, metric) to value."""
    return {(n.table, n.setting.dataset, n.setting.method, n.metric): n.value for n in read_published("sleec")[1]}


# --- what the paper prints ------------------------------------------------------------------------------------------

# Read by eye: table, dataset, method, P@1, P@3, P@5, or nDCG.
SPOTS = [
    ("1b", "bibtex", "SLEEC", 65.57, 40.02, 29.30),
    ("1b", "delicious", "FastXML", 69.44, 63.62, 59.10),
    ("1b", "eurlex", "OneVsAll", 74.96, 62.92, 53.42),
    ("1b", "eurlex", "WSABIE", 70.87, 56.62, 46.2),
    (3, "bibtex", "KNN", 57.00, 36.32, 28.12),
    (3, "bibtex", "ML-CSSP", 44.98, 30.42, 23.53),
    (3, "delicious", "CPLST", 65.31, 59.84, 55.31),
    (3, "delicious", "OneVsAll", 65.01, 58.90, 53.26),
    (3, "mediamill", "SLEEC", 87.09, 72.44, 58.45),
    (3, "mediamill", "FastXML-1", 61.14, 53.37, 48.39),
    (3, "eurlex", "LEML", 61.28, 48.66, 39.91),
    (3, "eurlex", "LPSR", 73.01, 60.36, 50.46),
    (6, "bibtex", "SLEEC", 64.49, 59.90, 62.29),
    (6, "bibtex", "CS", 59.60, 53.08, 53.74),
    (6, "delicious", "OneVsAll", 64.9, 60.94, 56.54),
    (6, "mediamill", "KNN", 82.59, 75.62, 72.76),
    (6, "eurlex", "SLEEC", 79.86, 67.96, 61.59),
    (6, "eurlex", "WSABIE", 68.54, 58.43, 53.02),
]


@pytest.mark.parametrize("spot", SPOTS, ids=lambda spot: "-".join(map(str, spot[:3])))
def test_published_numbers_are_those_of_the_paper(spot):
    *row, first, third, fifth = spot
    name = "nDCG" if spot[0] == 6 else "P"
    numbers = printed()
    assert [numbers[(*row, f"{name}@{k}")] for k in (1, 3, 5)] == [first, third, fifth]


def test_published_tables_are_whole_and_possible():
    numbers = printed()
    assert len(numbers) == len(read_published("sleec")[1])
    # Four sets, three places, five or eleven methods.
    assert Counter(table for table, *_ in numbers) == {"1b": 60, 3: 132, 6: 132}
    assert {(dataset, method) for table, dataset, method, _ in numbers if table == 3} == {
        (dataset, method) for table, dataset, method, _ in numbers if table == 6
    }
    assert all(numbers[(3, *cell[1:])] == value for cell, value in numbers.items() if cell[0] == "1b")
    for table, dataset, method, _ in numbers:
        if table != 6:
            precision = [numbers[table, dataset, method, f"P@{k}"] for k in (1, 3, 5)]
            assert precision == sorted(precision, reverse=True)
            assert np.all(np.diff(np.array([1, 3, 5]) * precision) > 0)  # a longer list has no fewer hits
    assert all(20 < value < 90 for value in numbers.values())


def test_other_embeddings_have_four_fifths_of_the_labels_as_dimension():
    n_labels = {"bibtex": 159, "delicious": 983, "mediamill": 101, "eurlex": 3993}
    for number in read_published("sleec")[1]:
        setting = number.setting
        expected = int(0.8 * n_labels[setting.dataset]) if setting.method in EMBEDDINGS else None
        assert setting.k == expected
        assert (setting.split, setting.empty, setting.criteria) == ("random", "zero", ("P@1", "P@3", "P@5"))


# --- what the experiments ask for -----------------------------------------------------------------------------------


def test_experiments_and_their_settings():
    experiments = list_experiments()
    assert [name for name in experiments if name.startswith("sleec/")] == NAMES
    settings = {name: set(experiments[name].settings) for name in NAMES}
    assert {s.split for name in TABLES for s in settings[name]} == {"random"}
    assert settings["sleec/table-6"] == settings["sleec/table-3"] > settings["sleec/table-1b"]  # one fit for all
    ranks = {(s.dataset, s.k) for s in settings["sleec/table-3"] if s.method == "LEML"}
    assert ranks == {("bibtex", 127), ("delicious", 786), ("mediamill", 80), ("eurlex", 256)}
    drawn = [s for name in set(NAMES) - set(TABLES) for s in settings[name]]
    assert {(s.dataset, s.split) for s in drawn} == {("eurlex", "given"), ("mediamill", "given")}
    by_clusters = {(s.method, s.clusters, s.learners) for s in settings["sleec/figure-1c"]}
    assert by_clusters == {(name, c, 1) for name in ("SLEEC", "LocalLEML") for c in (1, 2, 3, 5, 8, 12, 20)}
    # Table 4 is of the same fits as figure 2.
    assert {(s.dataset, s.clusters, s.learners) for s in settings["sleec/table-4"]} == {
        ("eurlex", 3, 15),
        ("mediamill", 5, 15),
    }
    assert settings["sleec/table-4"] == {s for s in settings["sleec/figure-2"] if s.method == "SLEEC"}
    assert "no source" in " ".join(experiments["sleec/table-4"].notes)


def test_each_paper_keeps_its_own_convention():
    found = {name: {(s.split, s.empty) for s in e.settings} for name, e in list_experiments().items()}
    assert found["repository/table-1"] == {("given", "zero")}
    assert found["one_class/table-supp-2"] == found["leml/table-5"] == {("given", "skip")}


def test_a_setting_names_clusters_and_learners():
    setting = Setting("eurlex", "SLEEC", "squared", clusters=3, learners=1)
    assert str(setting) == "eurlex, squared, SLEEC, 3 clusters, 1 learner"


# --- splits and empty rows ------------------------------------------------------------------------------------------


def numbered(n_train, n_test, container):
    """Rows that hold their own number, with labels that are a function of it."""
    number = np.arange(1, n_train + n_test + 1)
    X, Y = number[:, None].astype(float), (number[:, None] % np.array([2, 3, 5]) == 0).astype(float)
    X, Y = container(X), container(Y)
    return Dataset("numbers", X[:n_train], Y[:n_train], X[n_train:], Y[n_train:])


def dense(matrix):
    return matrix.toarray() if sp.issparse(matrix) else matrix


@pytest.mark.parametrize("container", [np.array, sp.csr_array])
def test_a_random_split_shares_out_all_rows_in_parts_of_the_same_sizes(container):
    data = numbered(30, 12, container)
    found = [draw_split(data, seed) for seed in (0, 1, 0)]
    for again in found:
        train, test = dense(again.X_train).ravel(), dense(again.X_test).ravel()
        assert (len(train), len(test)) == (30, 12)
        assert sorted([*train, *test]) == list(range(1, 43))  # each row is in one part, once
        for X, Y in ((again.X_train, again.Y_train), (again.X_test, again.Y_test)):
            assert np.array_equal(dense(Y), dense(X) % np.array([2, 3, 5]) == 0)
            assert type(X) is type(data.X_train)
    parts = [set(dense(again.X_test).ravel()) for again in found]
    assert parts[0] == parts[2]
    assert parts[0] != parts[1]
    assert 0 < len(parts[0] & set(range(1, 31))) < 12  # rows of both former parts


@pytest.mark.skipif("LABELGAP_DATA" not in os.environ, reason="needs real data: LABELGAP_DATA does not name a folder")
def test_a_random_split_of_bibtex_has_the_sizes_of_table_2():
    data = load_dataset("bibtex")
    again = draw_split(data, 3)
    assert (again.X_train.shape, again.X_test.shape) == ((4880, 1836), (2515, 1836))
    for of in ("X", "Y"):
        before, after = (
            sum(getattr(one, f"{of}_{part}").sum(axis=0) for part in ("train", "test")) for one in (data, again)
        )
        assert np.array_equal(before, after)  # counts of each 0/1 feature and of each label


class Fixed:
    """Ranks labels 0, 1, 2, … for every row."""

    def predict_topk(self, X, k):
        return np.tile(np.arange(k), (X.shape[0], 1)), np.ones((X.shape[0], k))


@pytest.fixture
def four_rows():
    """Four test rows: label 0 alone; labels 1 and 2; none; label 4."""
    Y = np.zeros((4, 6))
    Y[0, 0] = Y[1, 1] = Y[1, 2] = Y[3, 4] = 1
    return Dataset("bibtex", np.eye(6), np.eye(6), np.eye(6)[:4], Y)


def test_empty_rows_are_left_out_or_count_as_zero(four_rows):
    setting = partial(Setting, "bibtex", "KNN", "squared", criteria=("P@1", "P@3", "P@5"))
    left_out, zero = (
        make_trial(four_rows, setting(empty=empty), 0).measure(Fixed(), setting(empty=empty))
        for empty in ("skip", "zero")
    )
    # Hits at 1: row 0. At 3: row 0 has one, row 1 two. At 5: row 3's as well.
    assert [left_out[f"P@{k}"] for k in (1, 3, 5)] == pytest.approx([100 / 3, 100 * 3 / 9, 100 * 4 / 15])
    assert [zero[f"P@{k}"] for k in (1, 3, 5)] == pytest.approx([100 / 4, 100 * 3 / 12, 100 * 4 / 20])
    second = (1 / np.log2(3) + 1 / np.log2(4)) / (1 + 1 / np.log2(3))  # ranks 2 and 3 of two positives
    assert left_out["nDCG@3"] == pytest.approx(100 * (1 + second) / 3)
    assert zero["nDCG@3"] == pytest.approx(100 * (1 + second) / 4)


def test_the_repository_and_sleec_count_empty_rows(monkeypatch, four_rows):
    monkeypatch.setattr(study, "load_dataset", lambda name: four_rows)
    for name in ("kNN", "KNN"):
        stand_in = METHODS[name]._replace(fit=lambda task: MethodFit(Fixed(), {}, 1.0))
        monkeypatch.setitem(paper_methods.METHODS, name, stand_in)
    options = RunOptions(datasets=("bibtex",), methods=("kNN", "KNN"), seeds=2)
    rows = run(find_experiments(["repository/table-1", "sleec/table-3"]), options).rows
    assert [row.metric for row in rows] == ["P@1", "P@3", "P@5"] * 2
    assert rows[0].values == pytest.approx([25, 25])
    for seed, value in enumerate(rows[3].values):
        Y_test = draw_split(four_rows, seed).Y_test
        assert value == pytest.approx(100 * Y_test[:, 0].mean())


# --- the fits -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny():
    data = make_low_rank(160, 12, 10, rank=3, random_state=0)
    Y = dense(data.Y)
    Y[[3, 130]] = 0
    X = data.X / np.linalg.norm(data.X, axis=1, keepdims=True)
    return Dataset("tiny", X[:120], Y[:120], X[120:], Y[120:])


@pytest.fixture
def small(monkeypatch, tiny):
    """A machine whose sets are all tiny, without FastXML, and short grids."""
    list_experiments()  # registers every method
    monkeypatch.delitem(paper_methods.METHODS, "FastXML")
    monkeypatch.setattr(study, "load_dataset", lambda name: tiny)
    monkeypatch.setattr(sleec_tables, "LEML_ALPHAS", [10.0, 0.1])
    monkeypatch.setattr(sleec_tables, "KNN_NEIGHBORS", [1, 5])
    monkeypatch.setattr(paper_methods, "LEML_ALPHAS", [10.0, 0.1])


@pytest.fixture
def fitted(monkeypatch, small):
    """The tasks that were fitted and what came of them, by method."""
    found = []

    def fit(name, real, task):
        found.append((name, task, real(task)))
        return found[-1][2]

    for name in ("SLEEC", "LocalLEML", "LEML", "KNN"):
        spy = METHODS[name]._replace(fit=partial(fit, name, METHODS[name].fit))
        monkeypatch.setitem(paper_methods.METHODS, name, spy)
    return found


def make_task(tiny, **given):
    return Task(tiny.X_train, as_labels(tiny.Y_train), 5, "squared", 0, criteria=("P@1", "P@3"), **given)


# Learners, clusters, label neighbours kept, dimension, neighbours at test.
RELEASED = {
    "bibtex": (1, 1, 250, 100, 25),
    "delicious": (1, 1, 500, 100, 70),
    "eurlex": (5, 3, 100, 100, 8),
    "mediamill": (15, 5, 300, 30, 4),
}


@pytest.mark.parametrize("name", SETS)
def test_sleec_has_the_released_parameters(tiny, name):
    model, params, _ = sleec_tables.fit_sleec(make_task(tiny, dataset=name))
    shape = ("n_learners", "n_clusters", "n_neighbors_embed", "n_components", "n_neighbors")
    assert tuple(getattr(model, one) for one in shape) == tuple(params[one] for one in shape) == RELEASED[name]
    default, own = SLEEC(random_state=0).get_params(), {*shape, "alpha"}
    assert {k: v for k, v in model.get_params().items() if k not in own} == {
        k: v for k, v in default.items() if k not in own
    }
    assert model.alpha == params["alpha"] in sleec_tables.SLEEC_ALPHAS
    assert [len(parts) for parts in model.parts_] == [RELEASED[name][1]] * RELEASED[name][0]


def test_a_setting_may_vary_clusters_and_learners(tiny):
    for fit in (sleec_tables.fit_sleec, sleec_tables.fit_local_leml):
        model = fit(make_task(tiny, dataset="eurlex", clusters=2, learners=3)).estimator
        assert [len(parts) for parts in model.parts_] == [2, 2, 2]
        assert model.n_components == 100


def test_other_sets_have_their_neighbours_validated_by_one_learner(monkeypatch, tiny):
    monkeypatch.setattr(sleec_tables, "SLEEC_NEIGHBORS", {"n_neighbors_embed": [150], "n_neighbors": [2, 40, 90]})
    monkeypatch.setattr(sleec_tables, "SLEEC_ALPHAS", [1.0])
    task = make_task(tiny, dataset="other")
    model, params, _ = sleec_tables.fit_sleec(task)
    X, Y, X_valid, Y_valid = hold_out_rows(task.X, task.Y, 0.2, random_state=0)
    one = SLEEC(100, n_learners=1, n_neighbors_embed=150, random_state=0).fit(X, Y)
    scores = {}
    for count in (2, 40, 90):
        best = one.set_params(n_neighbors=count).predict_topk(X_valid, 3)
        scores[count] = np.array([precision_at_k(Y_valid, best, k) for k in (1, 3)])
    most = np.max(list(scores.values()), axis=0)
    regrets = {count: np.max((most - found) / most) for count, found in scores.items()}
    assert len(set(regrets.values())) == 3
    assert params == {"n_neighbors_embed": 150, "n_neighbors": min(regrets, key=regrets.get), "alpha": 1.0}
    assert (model.n_learners, model.n_clusters, model.n_neighbors) == (5, None, params["n_neighbors"])
    assert len(model.parts_) == 5


def test_knn_is_one_function_under_two_names_with_its_voters_validated():
    assert METHODS["kNN"] == METHODS["KNN"]
    assert sleec_tables.KNN_NEIGHBORS == [5, 10, 20, 40, 80]
    # A narrow bunch of 30 rows has a label of its own: five neighbours know it, eighty of 120 outvote it.
    angles = np.radians([*np.linspace(0, 2, 30), *np.linspace(10, 90, 120)])
    Y = as_labels(np.repeat([[1, 0], [0, 1]], [30, 120], axis=0))
    task = Task(np.column_stack([np.cos(angles), np.sin(angles)]), Y, 1, "squared", 0, criteria=("P@1",))
    model, params, _ = METHODS["kNN"].fit(task)
    assert params == {"n_neighbors": 5}
    assert (model.metric, model.weights, model.positives_.shape) == ("cosine", "similarity", (150, 2))
    assert np.array_equal(model.predict(task.X), Y.toarray())


def test_local_leml_has_the_clusters_of_sleec_and_a_validated_penalty(monkeypatch, tiny):
    monkeypatch.setattr(sleec_tables, "LEML_ALPHAS", [1e6, 0.1])
    task = make_task(tiny, dataset="eurlex")
    sleec, (local, params, _) = sleec_tables.fit_sleec(task).estimator, sleec_tables.fit_local_leml(task)
    assert params == {"alpha": 0.1}
    assert (local.alpha, local.n_learners, local.n_clusters) == (0.1, 5, 3)
    for ours, theirs in zip(sleec.parts_, local.parts_, strict=True):
        assert all(np.array_equal(a["rows"], b["rows"]) for a, b in zip(ours, theirs, strict=True))


def test_tables_share_their_fits_and_splits(fitted, tiny):
    options = RunOptions(datasets=("bibtex",), methods=("SLEEC", "LEML", "KNN", "FastXML"), seeds=2)
    report = run(find_experiments(TABLES), options)
    assert Counter(name for name, *_ in fitted) == {"SLEEC": 2, "LEML": 2, "KNN": 2}
    for _, task, _ in fitted:
        again = draw_split(tiny, task.seed)
        assert np.allclose(task.X, again.X_train)
        assert np.array_equal(task.Y.toarray(), again.Y_train)
        assert task.dataset == "bibtex"
    rows = {(r.experiment, r.setting.method, r.metric): r for r in report.rows}
    assert len(report.rows) == len(rows) == 3 * (3 + 4 + 4)
    assert rows["sleec/table-1b", "SLEEC", "P@1"].values == rows["sleec/table-6", "SLEEC", "nDCG@1"].values
    assert rows["sleec/table-3", "FastXML", "P@1"].ours is None
    model = next(one.estimator for name, task, one in fitted if (name, task.seed) == ("SLEEC", 1))
    test = draw_split(tiny, 1)
    first = model.predict_topk(test.X_test, 1)[0][:, 0]
    expected = 100 * test.Y_test[np.arange(40), first].mean()  # rows without labels are misses
    assert rows["sleec/table-3", "SLEEC", "P@1"].values[1] == pytest.approx(expected)
    again = run(find_experiments(TABLES[:1]), options)
    assert [r.values for r in again.rows] == [r.values for r in report.rows[: len(again.rows)]]


# --- ensembles ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        SLEEC(4, n_clusters=3, n_learners=4, n_neighbors_embed=20, n_neighbors=3, random_state=0),
        LocalLEML(3, n_clusters=3, n_learners=4, random_state=0),
    ],
    ids=["SLEEC", "LocalLEML"],
)
def test_the_first_learners_of_an_ensemble_are_an_ensemble(model, tiny):
    model.fit(tiny.X_train, tiny.Y_train)
    whole = model.decision_function(tiny.X_test)
    alone = []
    for number in range(4):
        one = take_first_learners(model, 1)
        one.parts_, one.centers_ = model.parts_[number : number + 1], model.centers_[number : number + 1]
        alone.append(one.decision_function(tiny.X_test))
    for count in range(1, 5):
        part = take_first_learners(model, count)
        expected = np.mean(alone[:count], axis=0)
        assert part.decision_function(tiny.X_test) == pytest.approx(expected, abs=1e-6)
        smaller = type(model)(**model.get_params() | {"n_learners": count}).fit(tiny.X_train, tiny.Y_train)
        assert all(np.array_equal(a, b) for a, b in zip(part.centers_, smaller.centers_, strict=True))
    assert (model.n_learners, len(model.parts_)) == (4, 4)
    assert np.array_equal(model.decision_function(tiny.X_test), whole)


def test_the_size_of_a_model_is_that_of_its_arrays(tiny):
    X, Y = tiny.X_train.astype(np.float32), tiny.Y_train
    model = LabelKNN(n_clusters=2, n_learners=3, random_state=0).fit(X, Y)
    of_learner = X.nbytes + 120 * model.parts_[0][0]["rows"].itemsize + model.centers_[0].nbytes
    of_labels = 4 * Y.sum() + 4 * Y.sum() + 4 * 121 + 4 * 10  # values, columns, row ends; rates
    sizes = [1e6 * compute_megabytes(take_first_learners(model, count)) for count in (1, 2, 3)]
    assert np.diff(sizes) == pytest.approx([of_learner] * 2)
    assert sizes[0] == pytest.approx(of_learner + of_labels)


def test_growing_ensembles_are_fitted_once(fitted, tiny):
    options = RunOptions(datasets=("eurlex",), seeds=2)
    report = run(find_experiments(["sleec/table-4", "sleec/figure-2"]), options)
    assert Counter(name for name, *_ in fitted) == {"SLEEC": 2, "LocalLEML": 2}  # two seeds
    assert {(task.learners, task.clusters, task.dataset) for _, task, _ in fitted} == {(15, 3, "eurlex")}
    rows = {(r.experiment, r.setting.dataset, r.setting.method, r.setting.learners, r.metric): r for r in report.rows}
    assert len(report.rows) == len(rows) == 10 * 3 + 2 * 15 * 2
    for (experiment, dataset, method, learners, metric), row in rows.items():
        assert len(row.values) == 2
        assert row.paper is None
        if experiment == "sleec/table-4" and metric == "P@1":
            assert row.values == rows["sleec/figure-2", dataset, method, learners, metric].values
    sizes = [rows["sleec/figure-2", "eurlex", "SLEEC", m, "MB"].ours for m in range(1, 16)]
    assert np.all(np.diff(sizes) > 0)
    spreads = [row.spread for row in rows.values() if row.metric == "P@1"]
    assert max(spreads) > 0  # clusterings differ, though the rows do not
    assert all(np.allclose(task.X, tiny.X_train) for _, task, _ in fitted)
    name, task, one = fitted[0]
    first = take_first_learners(one.estimator, 7).predict_topk(tiny.X_test, 1)[0][:, 0]
    expected = 100 * tiny.Y_test[np.arange(40), first].mean()
    assert rows["sleec/table-4", task.dataset, name, 7, "P@1"].values[task.seed] == pytest.approx(expected)


def test_precision_over_clusters(fitted):
    report = run(find_experiments(["sleec/figure-1c"]), RunOptions(datasets=("eurlex",)))
    counts = [1, 2, 3, 5, 8, 12, 20]
    assert [(r.setting.method, r.setting.clusters) for r in report.rows] == [
        (name, count) for name in ("SLEEC", "LocalLEML") for count in counts
    ]
    assert [[len(parts) for parts in one.estimator.parts_] for _, _, one in fitted] == [[c] for c in counts] * 2
    assert all(0 < row.ours <= 100 and row.paper is None for row in report.rows)


# --- what k dimensions lose -----------------------------------------------------------------------------------------


def cut_off(Y, k):
    U, s, Vt = np.linalg.svd(Y, full_matrices=False)
    return (U[:, :k] * s[:k]) @ Vt[:k]


def test_errors_of_svds_are_those_of_the_matrices(tiny):
    Y, ranks = tiny.Y_train.astype(float), [1, 3, 10, 50]
    parts = [np.arange(0, 120, 3), np.arange(1, 120, 3), np.array([2, 5, 8]), np.arange(11, 120, 3)]
    whole = sleec_tables.compute_svd_errors(sp.csr_array(Y), [np.arange(120)], ranks)
    local = sleec_tables.compute_svd_errors(sp.csr_array(Y), parts, ranks)
    assert whole == pytest.approx([((Y - cut_off(Y, k)) ** 2).sum() / Y.sum() for k in ranks], abs=1e-12)
    lost = [sum(((Y[rows] - cut_off(Y[rows], k)) ** 2).sum() for rows in parts) for k in ranks]
    assert local == pytest.approx(np.array(lost) / Y.sum(), abs=1e-12)
    assert whole[0] > local[0] > whole[2] == pytest.approx(0, abs=1e-12)


def test_the_curves_of_figure_1a(monkeypatch, tiny):
    Y = tiny.Y_train.astype(float)
    Y[:, 0] = 1  # all inner products are positive, so that every pair is a pair of neighbours
    monkeypatch.setattr(study, "load_dataset", lambda name: replace(tiny, Y_train=Y))
    report = run(find_experiments(["sleec/figure-1a"]), RunOptions(datasets=("mediamill",), seeds=2))
    curves = {}
    for row in report.rows:
        assert row.metric == "error, %"
        curves.setdefault(row.setting.method, []).append((row.setting.k, row.values))
    assert list(curves) == ["global SVD", "local SVD", "SLEEC"]
    assert all([k for k, _ in curve] == [5, 10, 20, 30, 50, 75, 100] for curve in curves.values())
    error = 100 * ((Y - cut_off(Y, 5)) ** 2).sum() / Y.sum()
    assert curves["global SVD"][0][1] == pytest.approx((error, error))
    model = SLEEC(5, n_clusters=5, n_learners=1, n_neighbors_embed=300, label_norm=None, random_state=1)
    model.fit(tiny.X_train, Y)
    clusters = [part["rows"] for part in model.parts_[0]]
    lost = sum(((Y[rows] - cut_off(Y[rows], 5)) ** 2).sum() for rows in clusters)
    assert curves["local SVD"][0][1][1] == pytest.approx(100 * lost / Y.sum())
    # With every row of a cluster kept as a neighbour, the best Z Zᵀ is the SVD of Y Yᵀ cut off at k.
    grams = [Y[rows] @ Y[rows].T for rows in clusters]
    best = sum(((G - cut_off(G, 5)) ** 2).sum() for G in grams) / sum((G**2).sum() for G in grams)
    assert curves["SLEEC"][0][1][1] == pytest.approx(100 * best, rel=0.05)
    assert curves["SLEEC"][1][1] == pytest.approx((0, 0), abs=1e-3)  # ten labels lie in ten dimensions


# --- showing it -----------------------------------------------------------------------------------------------------


def test_figures_are_drawn_over_their_axes(small, tmp_path, monkeypatch):
    drawn, real = [], Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda figure, *a, **kw: drawn.append(figure) or real(figure, *a, **kw))
    names = ["sleec/figure-1a", "sleec/figure-1c", "sleec/figure-2"]
    report = run(find_experiments(names), RunOptions(datasets=("mediamill",), methods=("SLEEC", "local SVD")))
    plot_report(report, tmp_path / "figures.png")
    panels = {ax.get_xlabel(): ax for ax in drawn[0].axes}
    assert {label: ax.get_title() for label, ax in panels.items()} == {
        "dimension k": "sleec/figure-1a",
        "number of clusters": "sleec/figure-1c",
        "number of learners": "sleec/figure-2",
        "size of the model, MB": "sleec/figure-2",
    }
    assert len(panels["dimension k"].lines) == 2
    [over_learners], [over_size] = panels["number of learners"].lines, panels["size of the model, MB"].lines
    rows = [row for row in report.rows if row.experiment == "sleec/figure-2"]
    assert list(over_learners.get_xdata()) == list(range(1, 16))
    assert list(over_size.get_xdata()) == [row.ours for row in rows if row.metric == "MB"]
    for line in (over_learners, over_size):
        assert list(line.get_ydata()) == [row.ours for row in rows if row.metric == "P@1"]
    assert panels["number of learners"].get_ylabel() == "P@1"
    assert len(json.loads(json.dumps(report_to_dict(report, [])))["rows"]) == len(report.rows)


def test_the_command_shows_errors_and_what_is_not_implemented(small):
    names = ["sleec/table-1b", "sleec/figure-1a"]
    arguments = ["reproduce", *names, "--datasets", "bibtex,mediamill", "--methods", "KNN,FastXML,global SVD"]
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    text = " ".join(result.output.split())
    assert text.count("not implemented") == 6  # three places of FastXML on each set, and nothing of the SVD
    assert "mediamill, k = 5, squared, global SVD" in text
    for note in ("means over ten random splits", "count as 0, as in the paper", "0.8 L", "for WikiLSHTC"):
        assert note in text
