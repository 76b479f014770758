import json
from collections import Counter
from dataclasses import replace
from functools import partial
from statistics import fmean

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import ttest_ind, ttest_rel
from typer.testing import CliRunner

from labelgap import MC1CV, LabelwiseSVM, MCbCV, hide_cells
from labelgap.cli import app
from labelgap.datasets import Dataset, make_completion
from labelgap.metrics import imputation_error, label_error
from labelgap_papers import RunOptions, find_experiments, list_experiments, mc_tables, paper_methods, run, trials
from labelgap_papers.experiments import Setting, TableRow, read_published
from labelgap_papers.mc_tables import META_AVERAGE, FilledCells, mark_best
from labelgap_papers.paper_methods import MethodFit, Task
from labelgap_papers.reproduce_command import make_options
from labelgap_papers.trials import CELL_SOURCES, CellSource, CellTrial, derive_seed, format_synthetic_name

NAMES = [*(f"mc/table-{number}" for number in range(1, 6)), "mc/optimum"]
PAPERS = ["MC-b", "MC-1", "FPC+SVM", "EM1+SVM", "Mean+SVM", "Zero+SVM"]


def printed():
    return {(n.table, n.setting.dataset, n.setting.observed, n.setting.method, n.metric): n.value for n in NUMBERS}


NUMBERS = read_published("mc")[1]

# --- what the paper prints ------------------------------------------------------------------------------------------

# Read by eye: table, dataset, known, metric, values of the first methods.
SPOTS = [
    (1, "synthetic n=100 r=2 var=0.01", 0.1, "label error", (37.8, 31.8, 34.8, 34.6, 40.5, 40.5)),
    (1, "synthetic n=400 r=2 var=0.01", 0.4, "label error", (11.7, 8.0, 7.2, 7.3, 12.2, 12.1)),
    (1, "synthetic n=100 r=4 var=0.01", 0.2, "label error", (33.2, 26.2, 26.7, 30.8, 35.5, 33.9)),
    (1, "synthetic n=400 r=2 var=0.1", 0.1, "label error", (27.6, 22.6, 27.6, 28.8, 34.5, 33.6)),
    (1, "synthetic n=400 r=4 var=0.1", 0.4, "label error", (16.0, 12.8, 13.9, 14.7, 18.3, 18.2)),
    (1, META_AVERAGE, 1.0, "label error", (25.6, 21.4, 22.6, 24.1, 28.6, 28.0)),
    (2, "synthetic n=100 r=2 var=0.01", 0.1, "imputation error", (0.84, 0.87, 0.88, 1.01, 1.06)),
    (2, "synthetic n=100 r=4 var=0.1", 0.4, "imputation error", (0.59, 0.61, 0.63, 0.80, 1.01)),
    (2, META_AVERAGE, 1.0, "imputation error", (0.66, 0.66, 0.68, 0.78, 1.02)),
    (3, "synthetic n=400 r=2 var=0.01 t=2", 0.1, "label error", (30.1, 22.9, 20.5)),
    (3, "synthetic n=400 r=2 var=0.01", 0.1, "imputation error", (0.73, 0.72, 0.76)),
    (5, "yeast", 0.4, "label error", (16.1, 16.7, 21.5, 22.0, 21.7, 21.6)),
    (5, "yeast", 0.6, "imputation error", (0.76, 0.92, 0.76, 1.04, 1.00, 1.00)),
]


@pytest.mark.parametrize("spot", SPOTS, ids=lambda spot: f"{spot[0]}-{spot[1]}-{spot[2]}")
def test_published_numbers_are_those_of_the_paper(spot):
    table, dataset, observed, metric, values = spot
    numbers = printed()
    assert tuple(numbers[table, dataset, observed, method, metric] for method in PAPERS[: len(values)]) == values


def test_emotions_and_the_oracles():
    numbers = printed()
    of = ["MC-b", "MC-1", "FPC+SVM", "EM1+SVM", "EM4+SVM", "Mean+SVM", "Zero+SVM"]
    assert [numbers[4, "emotions", 0.8, m, "label error"] for m in of] == [22.2, 19.8, 24.4, 21.2, 21.6, 22.6, 25.7]
    assert [numbers[4, "emotions", 0.4, m, "imputation error"] for m in of] == [0.69, 0.6, 0.64, 0.46, 0.49, 0.18, 1]
    for table, name, values in ((4, "emotions", [22.1, 21.3, 20.5]), (5, "yeast", [20.9, 20.4, 20.1])):
        shares = (0.4, 0.6, 0.8)
        assert [numbers[table, f"{name} with all features", s, "SVM", "label error"] for s in shares] == values


def test_published_tables_are_whole_and_average_to_what_is_printed():
    assert len(printed()) == len(NUMBERS)
    # 24 settings and an average, 6 or 5 methods; 2 by 2 by 3; 3 shares, 2 metrics, 7 or 6 methods, and the oracle.
    assert Counter(n.table for n in NUMBERS) == {1: 150, 2: 125, 3: 12, 4: 45, 5: 39}
    for table, count, accuracy in ((1, 6, 0.051), (2, 5, 0.0051)):
        for method in PAPERS[:count]:
            mine = [n for n in NUMBERS if n.table == table and n.setting.method == method]
            [average] = [n.value for n in mine if n.setting.dataset == META_AVERAGE]
            every = [n.value for n in mine if n.setting.dataset != META_AVERAGE]
            assert len(every) == 24
            assert fmean(every) == pytest.approx(average, abs=accuracy)
    numbers = printed()
    for (table, *key), value in numbers.items():
        if table == 3 and "t=2" not in key[0]:
            assert numbers[1 if key[-1] == "label error" else 2, *key] == value


def test_every_published_dataset_has_a_source_and_every_method_a_function():
    assert {n.setting.dataset for n in NUMBERS} - {META_AVERAGE} == set(CELL_SOURCES)
    asked = {setting.method for name in NAMES for setting in list_experiments()[name].settings}
    assert asked <= set(paper_methods.METHODS)


def test_experiments_and_their_settings():
    experiments = list_experiments()
    assert [name for name in experiments if name.startswith("mc/")] == NAMES
    settings = {name: set(experiments[name].settings) for name in NAMES}
    drawn = [s for s in settings["mc/table-1"] if s.dataset != META_AVERAGE]
    assert len({(s.dataset, s.observed) for s in drawn}) == 24
    assert {s.method for s in drawn} == {*PAPERS, "EM1 (whole)+SVM"}
    assert {s.method for s in settings["mc/table-2"]} == {*PAPERS[:5], "EM1 (whole)+SVM"}
    assert {s for s in settings["mc/table-3"] if "t=2" not in s.dataset} < settings["mc/table-1"]  # fitted once
    assert {s.method for s in settings["mc/optimum"]} == {"MC-b", "MC-1", "MC-b (optimum)", "MC-1 (optimum)"}
    assert {experiments[name].seeds for name in NAMES} == {10}


# --- trials ---------------------------------------------------------------------------------------------------------


def test_a_generated_trial_is_the_generators():
    setting = Setting(format_synthetic_name(100, 4, 0.1), "MC-1", "logistic", 0.2)
    trial = CELL_SOURCES[setting.dataset]().trial(0.2, 3)
    options = {"n_samples": 100, "rank": 4, "noise_variance": 0.1, "n_labels": 10}
    data = make_completion(**options, observed=0.2, random_state=derive_seed(options, 0.2, 3))
    for mine, theirs in ((trial.X, data.X), (trial.Y.toarray(), data.Y), (trial.X_true, data.X_true)):
        np.testing.assert_array_equal(mine, theirs)
    few = CELL_SOURCES[format_synthetic_name(400, 2, 0.01, 2)]().trial(0.1, 0)
    assert few.Y.shape == (400, 2)
    rng = np.random.default_rng(0)
    filled = FilledCells(rng.standard_normal(data.Y.shape), rng.standard_normal(data.X.shape))
    assert trial.measure(filled, setting) == {
        "label error": label_error(data.Y_true, filled.decision_ > 0, data.hidden_labels),
        "imputation error": imputation_error(data.X_true, filled.features_, data.hidden_features),
    }


@pytest.fixture
def tiny_emotions(monkeypatch):
    rng = np.random.default_rng(0)
    X, Y = 100 * rng.random((30, 4)), (rng.random((30, 3)) < 0.4).astype(np.float32)
    data = Dataset("emotions", sp.csr_array(X[:20]), sp.csr_array(Y[:20]), sp.csr_array(X[20:]), sp.csr_array(Y[20:]))
    monkeypatch.setattr(trials, "load_dataset", lambda name: replace(data, name=name))
    return X, Y


def test_a_real_trial_hides_cells_of_all_rows(tiny_emotions):
    X, Y = tiny_emotions
    trial, again, other = (CELL_SOURCES["emotions"]().trial(0.4, seed) for seed in (0, 0, 1))
    known = ~np.isnan(trial.X)
    assert known.sum() == pytest.approx(0.4 * X.size, abs=3)
    np.testing.assert_allclose(trial.X[known], X[known])  # as they come: nothing is scaled
    assert trial.Y.n_known == pytest.approx(0.4 * Y.size, abs=3)
    np.testing.assert_array_equal(trial.X, again.X)
    assert (np.isnan(other.X) == known).any()
    np.testing.assert_array_equal(trial.Y_true, Y)
    oracle = CELL_SOURCES["emotions with all features"]().trial(0.4, 0)
    np.testing.assert_allclose(oracle.X, X)
    np.testing.assert_array_equal(oracle.Y.toarray(), trial.Y.toarray())  # the same labels are known
    setting = Setting("emotions with all features", "SVM", "logistic", 0.4)
    assert set(oracle.measure(FilledCells(np.ones(Y.shape), X), setting)) == {"label error"}


# --- methods --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small():
    data = make_completion(30, 6, 3, rank=2, observed=0.6, random_state=0)
    return Task(data.X, hide_cells(data.Y_true, 0.6, random_state=0), 1, "logistic", 0)


def test_completion_follows_the_paper(small, monkeypatch):
    """Published loop, tolerance and candidates on generated data; λ = 1 on real ones."""
    seen = []

    class Spy(MC1CV):
        def fit(self, X, Y, observed=None):
            seen.append(self.get_params())
            return self.set_params(mu=0.05).fit_in_earnest(X, Y)

        def fit_in_earnest(self, X, Y):
            return MC1CV.fit(self, X, Y)

    monkeypatch.setitem(paper_methods.METHODS, "spy", None)
    mc_tables._register_completion("spy", Spy, **mc_tables.PUBLISHED_LOOP)
    for dataset in ("synthetic", "emotions", "yeast"):
        found = paper_methods.METHODS["spy"].fit(replace(small, dataset=dataset))
        assert set(found.params) == {"mu", "label_weight"}
        assert found.seconds > 0
    assert [options["label_weights"] for options in seen] == [None, [1.0], [1.0]]
    assert {(o["solver"], o["tol"], o["mu"], o["n_folds"], o["random_state"]) for o in seen} == {
        ("fpc", 1e-5, 1e-5, 5, 0)
    }


@pytest.mark.parametrize(("name", "search"), [("MC-1", MC1CV), ("MC-b", MCbCV)])
def test_completion_is_the_search_of_the_library(name, search, small, monkeypatch):
    monkeypatch.setitem(mc_tables.LABEL_WEIGHTS, "quick", [1.0])
    found = paper_methods.METHODS[name].fit(replace(small, dataset="quick"))
    model = search(solver="fpc", label_weights=[1.0], random_state=0).fit(small.X, small.Y)
    np.testing.assert_array_equal(found.estimator.decision_, model.decision_)
    np.testing.assert_array_equal(found.estimator.features_, model.features_)
    assert found.params == model.best_params_


def test_imputers_fill_and_a_machine_for_each_label_decides(small):
    hidden = np.isnan(small.X)
    for name in ("FPC+SVM", "EM1+SVM", "EM4+SVM", "EM1 (whole)+SVM", "Mean+SVM", "Zero+SVM"):
        found = paper_methods.METHODS[name].fit(small).estimator
        np.testing.assert_array_equal(found.features_[~hidden], small.X[~hidden])
        machines = LabelwiseSVM("cv", random_state=0).fit(found.features_, small.Y)
        np.testing.assert_array_equal(found.decision_, machines.decision_function(found.features_))
        if name == "Zero+SVM":
            assert not found.features_[hidden].any()
        if name == "Mean+SVM":
            columns = np.nonzero(hidden)[1]
            np.testing.assert_allclose(found.features_[hidden], np.nanmean(small.X, axis=0)[columns])
    whole = replace(small, X=np.nan_to_num(small.X))
    np.testing.assert_array_equal(paper_methods.METHODS["SVM"].fit(whole).estimator.features_, whole.X)


# --- marks ----------------------------------------------------------------------------------------------------------


def rows_of(**values):
    return [
        TableRow("x", Setting("s", name, "logistic"), "label error", None, found) for name, found in values.items()
    ]


def marked(**values):
    return {row.setting.method for row in mark_best(rows_of(**values)) if row.best}


def test_the_best_and_what_cannot_be_told_from_it():
    rng = np.random.default_rng(0)
    best = rng.normal(20, 3, 10)
    near, far = best + rng.normal(0.1, 1, 10), best + rng.normal(1.0, 0.3, 10)
    assert ttest_rel(best, near).pvalue > 0.05 > ttest_rel(best, far).pvalue
    values = {"best": tuple(best), "near": tuple(near), "far": tuple(far), "not there": ()}
    assert marked(**values) == {min(("best", "near"), key=lambda name: np.mean(values[name])), "best", "near"}
    # Pairs count: the same numbers in another order cannot be told apart.
    assert marked(best=tuple(best), shuffled=tuple(best + rng.permutation(far - best)[::-1] * 10)) == {"best"}


def test_marks_of_few_seeds_and_equal_values():
    assert marked(a=(1.0,), b=(2.0,), c=(1.0,)) == {"a", "c"}
    assert marked(a=(1.0, 2.0), b=(2.0, 3.0)) == {"a"}  # always by one: no chance in it
    assert marked(a=(1.0, 2.0, 3.0), b=(1.0, 2.0, 3.0)) == {"a", "b"}
    assert marked(a=(), b=()) == set()


# --- runs -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def guesses(monkeypatch):
    """Methods that take no time: each adds noise of its own to the truth, and tiny data that tell it."""
    fits, drawn = [], {}

    def source(name):
        def trial(observed, seed):
            rng = np.random.default_rng([seed, sum(map(ord, name)), int(100 * observed)])
            X, Y = rng.standard_normal((40, 5)), (rng.random((40, 4)) < 0.5).astype(float)
            shown = np.where(rng.random(X.shape) < observed, X, np.nan)
            found = CellTrial(shown, hide_cells(Y, observed, random_state=seed), X, Y)
            return drawn.setdefault(id(found.Y), found)

        return CellSource(trial)

    def guess(name, noise, task):
        fits.append(name)
        truth, rng = drawn[id(task.Y)], np.random.default_rng(task.seed)
        decision = truth.Y_true - 0.5 + noise * rng.standard_normal(truth.Y_true.shape)
        return MethodFit(FilledCells(decision, truth.X_true + noise * rng.standard_normal(truth.X.shape)), {}, 0.0)

    for name in CELL_SOURCES:
        monkeypatch.setitem(CELL_SOURCES, name, partial(source, name))
    noises = {"MC-b": 0.3, "MC-1": 0.2}
    for name in [*PAPERS, "EM1 (whole)+SVM", "EM4+SVM", "SVM"]:
        fit = partial(guess, name, noises.get(name, 0.5))
        monkeypatch.setitem(paper_methods.METHODS, name, paper_methods.PaperMethod(fit, ranked=False))
    return fits


def test_tables_1_and_2_share_their_fits_and_average(guesses):
    report = run(find_experiments(["mc/table-1", "mc/table-2"]), RunOptions(seeds=3))
    assert Counter(guesses) == dict.fromkeys([*PAPERS, "EM1 (whole)+SVM"], 24 * 3)
    rows = [row for row in report.rows if row.experiment == "mc/table-1"]
    assert len(rows) == 25 * 7
    average = next(r for r in rows if r.setting.dataset == META_AVERAGE and r.setting.method == "MC-1")
    mine = [r for r in rows if r.setting.dataset != META_AVERAGE and r.setting.method == "MC-1"]
    assert average.paper == 21.4
    assert average.values == pytest.approx([fmean(r.values[seed] for r in mine) for seed in range(3)])
    assert average.ours == pytest.approx(fmean(r.ours for r in mine))
    assert average.best
    assert not next(r for r in rows if r.setting.dataset == META_AVERAGE and r.setting.method == "Zero+SVM").best
    imputed = [r for r in report.rows if r.experiment == "mc/table-2" and r.setting.method == "MC-b"]
    assert [r.ours for r in imputed] == pytest.approx([0.3] * 25, abs=0.06)
    assert imputed[-1].paper == 0.66


def test_an_average_over_some_settings_is_beside_the_papers_of_these(guesses):
    options = RunOptions(methods=("MC-1",), observed=(0.4,), seeds=2)
    rows = run(find_experiments(["mc/table-1"]), options).rows
    assert len(rows) == 9
    assert rows[-1].setting.dataset == META_AVERAGE
    assert rows[-1].paper == pytest.approx(fmean(row.paper for row in rows[:-1]))
    named = RunOptions(datasets=(format_synthetic_name(100, 2, 0.01),), methods=("MC-1",))
    assert {r.setting.dataset for r in run(find_experiments(["mc/table-1"]), named).rows} == set(named.datasets)


def test_table_3_tests_whether_labels_help(guesses):
    rows = run(find_experiments(["mc/table-3"]), RunOptions(seeds=4)).rows
    assert len(rows) == 12 + 6
    row = next(r for r in rows if r.metric == "p, label error" and r.setting.method == "MC-b")
    few, many = (
        next(
            r.values for r in rows if (r.setting.dataset, r.setting.method, r.metric) == (name, "MC-b", "label error")
        )
        for name in (format_synthetic_name(400, 2, 0.01, 2), format_synthetic_name(400, 2, 0.01))
    )
    assert row.ours == pytest.approx(ttest_ind(few, many).pvalue)


def reproduce(*arguments):
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)], env={"COLUMNS": "160"})


def test_the_command_has_ten_trials_three_when_quick_and_as_many_as_asked(guesses, tmp_path):
    for arguments, seeds in (((), 10), (("--quick",), 3), (("--seeds", 2), 2), (("--quick", "--seeds", 4), 4)):
        target = tmp_path / "rows.json"
        result = reproduce("mc/table-4", "--observed", "0.4", *arguments, "--json", target)
        assert result.exit_code == 0, result.output
        written = json.loads(target.read_text())
        assert written["seeds"] == list(range(seeds))
        assert {len(row["values"]) for row in written["rows"]} == {seeds}
        best = {row["method"] for row in written["rows"] if row["best"] and row["dataset"] == "emotions"}
        assert "MC-1" in best
        assert ("Zero+SVM" in best) == (seeds < 3)  # two seeds tell little
    for text in ("emotions with all features", "22.10", " *", "paired t-test at 0.05", "1e-5"):
        assert text in result.output


def test_one_paper_at_a_time_when_quick():
    result = reproduce("mc/table-1", "leml/table-12", "--quick")
    assert result.exit_code == 1
    assert "--quick differs between mc/table-1, leml/table-12" in result.stderr
    usual = make_options({}, experiments=find_experiments(["mc/table-1", "leml/table-12"]))
    assert usual == RunOptions(seeds=10)
    assert make_options({}, experiments=find_experiments(["leml/table-12"])) == RunOptions()


def test_real_sets_that_are_not_there_are_named(monkeypatch):
    def missing(name):
        raise FileNotFoundError(f"The data set {name!r} is not here.")

    monkeypatch.setattr(trials, "load_dataset", missing)
    result = reproduce("mc/table-5", "--seeds", "1")
    assert result.exit_code == 1
    assert "yeast is left out: The data set 'yeast' is not here." in result.output


def test_a_setting_that_is_quick_to_fit(monkeypatch):
    """In earnest, on a set smaller than the paper's: completion beats zeros, in both errors."""
    tiny = {"n_samples": 40, "n_features": 10, "n_labels": 4, "rank": 2, "noise_variance": 0.01}
    for search in (MC1CV, MCbCV):
        monkeypatch.setitem(search.__init__.__kwdefaults__, "mu", 1e-3)
    name = format_synthetic_name(100, 2, 0.01)
    monkeypatch.setitem(CELL_SOURCES, name, lambda: CellSource(partial(trials.generate_cells, tiny)))
    monkeypatch.setitem(mc_tables.LABEL_WEIGHTS, name, [0.1])
    options = RunOptions(datasets=(name,), observed=(0.4,), methods=("MC-1", "MC-b", "FPC+SVM", "Zero+SVM"), seeds=2)
    rows = run(find_experiments(["mc/table-1", "mc/table-2"]), options).rows
    ours = {(row.setting.method, row.metric): row.ours for row in rows}
    assert ours["MC-1", "label error"] < ours["Zero+SVM", "label error"]
    assert ours["MC-1", "imputation error"] < 0.9
    assert ours["MC-b", "imputation error"] < 0.9
    assert all(set(p) == {"mu", "label_weight"} for r in rows if r.setting.method == "MC-1" for p in r.params)
