import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from labelgap.cli import app
from labelgap.datasets import Dataset, make_low_rank
from labelgap.metrics import hamming_loss, instance_auc, precision_at_k
from labelgap_papers import (
    RunOptions,
    Setting,
    find_experiments,
    list_experiments,
    mc_tables,
    one_class_tables,
    paper_methods,
    run,
    study,
)
from labelgap_papers.experiments import TableRow, read_published
from labelgap_papers.journal import Journal, compute_version
from labelgap_papers.run_all import run_all

TABLES = ["leml/table-12", "leml/table-14", "leml/table-15"]


@pytest.fixture(scope="module")
def tiny():
    data = make_low_rank(160, 12, 10, rank=3, random_state=0)
    X, Y = data.X, data.Y
    return Dataset("bibtex", X[:120], Y[:120], X[120:], Y[120:])


@pytest.fixture
def only_bibtex(monkeypatch, tiny):
    """A machine that has nothing but a tiny Bibtex, no method but LEML, and a validation grid of two."""

    def load(name):
        if name != "bibtex":
            raise FileNotFoundError(f"The data set {name!r} is not here. Put it there.")
        return tiny

    list_experiments()  # registers every method
    for name in reversed([name for name in paper_methods.METHODS if name != "LEML"]):
        monkeypatch.delitem(paper_methods.METHODS, name)  # the last one is restored first: their order stays
    monkeypatch.setattr(study, "load_dataset", load)
    monkeypatch.setattr(paper_methods, "LEML_ALPHAS", [100.0, 0.1])


@pytest.fixture
def counted(monkeypatch, only_bibtex):
    """The settings that were fitted, in order."""
    fitted, real = [], paper_methods.METHODS["LEML"]

    def fit(task):
        fitted.append((task.loss, task.n_components, task.Y.n_known, task.seed))
        return real.fit(task)

    monkeypatch.setitem(paper_methods.METHODS, "LEML", real._replace(fit=fit))
    return fitted


def reproduce(*arguments):
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)], env={"COLUMNS": "160"})


# What the paper prints, read by eye: table, dataset, k/L or k, known, method, loss, metric, value.
SPOTS = [
    (3, "bibtex", 0.2, 1.0, "LEML", "squared", "P@3", 34.16),
    (3, "delicious", 0.6, 1.0, "WSABIE", "weighted_rank", "AUC", 0.8523),
    (4, "eurlex", 250, 1.0, "LEML", "squared", "P@1", 51.99),
    (4, "eurlex", 500, 1.0, "WSABIE", "weighted_rank", "seconds", 777),
    (4, "eurlex", 500, 1.0, "LEML", "squared", "AUC", 0.9456),
    (5, "bibtex", 0.4, 0.2, "LEML", "squared", "P@3", 28.50),
    (5, "bibtex", 0.4, 0.2, "BCS", "squared", "Hamming", 0.2496),
    (5, "bibtex", 0.4, 0.2, "BR", "squared", "AUC", 0.8087),
    (6, "bibtex", 1.0, 1.0, "CPLST", "squared", "P@1", 63.02),
    (7, "delicious", 0.4, 1.0, "LEML", "squared_hinge", "P@3", 52.95),
    (8, "delicious", 1.0, 1.0, "WSABIE", "weighted_rank", "P@5", 38.41),
    (9, "bibtex", 0.6, 1.0, "LEML", "logistic", "Hamming", 0.0233),
    (9, "delicious", 0.2, 1.0, "CPLST", "squared", "Hamming", 0.0182),
    (10, "bibtex", 0.8, 1.0, "BCS", "squared", "AUC", 0.8560),
    (11, "bibtex", 0.2, 0.05, "LEML", "squared", "P@1", 30.30),
    (12, "bibtex", 0.4, 0.2, "LEML", "logistic", "P@3", 25.79),
    (13, "bibtex", 0.6, 0.4, "BR", "squared_hinge", "P@5", 23.30),
    (14, "bibtex", 0.4, 0.2, "LEML", "squared_hinge", "Hamming", 0.0226),
    (15, "bibtex", 0.6, 0.4, "LEML", "logistic", "AUC", 0.8716),
]


@pytest.mark.parametrize("spot", SPOTS, ids=lambda spot: f"{spot[0]}-{spot[4]}-{spot[6]}")
def test_published_numbers_are_those_of_the_paper(spot):
    table, dataset, rank, observed, method, loss, metric, value = spot
    given = {"k": rank} if rank > 1 else {"k_ratio": rank}
    setting = Setting(dataset, method, loss, observed, **given)
    found = [n.value for n in read_published("leml")[1] if (n.table, n.setting, n.metric) == (table, setting, metric)]
    assert found == [value]


def test_published_tables_are_whole_and_agree_with_each_other():
    numbers = read_published("leml")[1]
    counts = {table: sum(n.table == table for n in numbers) for table in range(3, 16)}
    # Bibtex and Delicious, 5 ranks, 6 columns (5 without WSABIE); Bibtex, 3 ranks, 4 shares, 7 columns.
    assert counts == {3: 48, 4: 16, 5: 9, 6: 60, 7: 60, 8: 60, 9: 50, 10: 60, **dict.fromkeys(range(11, 16), 84)}
    assert len({(n.table, n.setting, n.metric) for n in numbers}) == len(numbers)
    value = {(n.table, n.setting, n.metric): n.value for n in numbers}
    appendix = {(3, "P@3"): 7, (3, "AUC"): 10, (5, "P@3"): 12, (5, "Hamming"): 14, (5, "AUC"): 15}
    repeated = [n for n in numbers if n.table in (3, 5)]
    other = [(n, value[appendix[n.table, n.metric], n.setting, n.metric]) for n in repeated]
    # The paper contradicts itself once: two digits of BCS's AUC change places between tables 5 and 15.
    assert [(n.setting.method, n.value, v) for n, v in other if n.value != v] == [("BCS", 0.7871, 0.7817)]
    for n in numbers:
        low, high = {"Hamming": (0, 1), "AUC": (0.5, 1), "seconds": (1, 1e5)}.get(n.metric, (1, 100))
        assert low < n.value < high


def test_every_experiment_has_its_paper_and_settings():
    experiments = list_experiments()
    expected = [f"leml/table-{n}" for n in range(3, 16)] + [f"leml/figure-{n}" for n in ("1", "2b", "2c", "3")]
    assert [name for name in experiments if name.startswith("leml/")] == expected
    for experiment in experiments.values():
        assert experiment.settings
        assert experiment.paper == read_published(experiment.name.split("/")[0])[0]
    assert {s.criteria for s in experiments["repository/table-1"].settings} == {("P@1", "P@3", "P@5")}
    lines = {(s.method, s.k_ratio) for s in experiments["leml/figure-1"].settings if s.dataset == "bibtex"}
    assert lines == {(m, k) for m in ("LEML", "CPLST", "BCS", "BR") for k in (0.2, 0.4, 0.6, 0.8, 1.0)}
    assert {s.observed for s in experiments["leml/figure-2b"].settings} == {0.05, 0.1, 0.2, 0.4}
    assert {s.k_ratio for s in experiments["leml/figure-2c"].settings} == {0.2, 0.4, 0.6}
    assert {s.iterations for s in experiments["leml/table-4"].settings} == {5}


@pytest.mark.parametrize(
    ("setting", "shape", "rank"),
    [
        ({"k_ratio": 0.4}, (1836, 159), 63),
        ({"k_ratio": 1.0}, (500, 983), 500),
        ({"k_ratio": 0.29}, (500, 100), 29),
        ({"k": 250}, (5000, 3993), 250),
    ],
)
def test_rank_is_rounded_down_and_within_the_matrix(setting, shape, rank):
    assert Setting("a", "LEML", "squared", **setting).rank(*shape) == rank


def test_each_fit_is_made_once_for_all_tables(counted):
    options = RunOptions(
        methods=("LEML",), ratios=(0.4,), observed=(0.2, 0.4), losses=("squared", "logistic"), seeds=2
    )
    report = run(find_experiments([*TABLES, "leml/table-5", "leml/figure-2b", "leml/table-12"]), options)
    assert len(counted) == len(set(counted)) == 2 * 2 * 2  # shares, losses, seeds
    assert {k for _, k, _, _ in counted} == {4}
    by_experiment = {name: sum(row.experiment == name for row in report.rows) for name in list_experiments()}
    assert {name: n for name, n in by_experiment.items() if n} == {
        **dict.fromkeys(TABLES, 4),
        "leml/table-5": 3,
        "leml/figure-2b": 2,
    }
    assert all(len(row.values) == 2 and row.seconds > 0 for row in report.rows)


def test_ours_is_measured_on_the_test_rows(monkeypatch, tiny, only_bibtex):
    kept = []
    real = paper_methods.METHODS["LEML"]
    spy = real._replace(fit=lambda task: kept.append(real.fit(task)) or kept[-1])
    monkeypatch.setitem(paper_methods.METHODS, "LEML", spy)
    options = RunOptions(methods=("LEML",), losses=("squared",), ratios=(0.4,), observed=(0.2,))
    report = run(find_experiments(TABLES), options)
    X = tiny.X_test / np.linalg.norm(tiny.X_test, axis=1, keepdims=True)
    scores = kept[0].estimator.decision_function(X)
    expected = [
        100 * precision_at_k(tiny.Y_test, scores, 3),
        hamming_loss(tiny.Y_test, scores),
        instance_auc(tiny.Y_test, scores),
    ]
    assert [row.ours for row in report.rows] == pytest.approx(expected)
    assert [row.paper for row in report.rows] == [28.50, 0.0136, 0.8332]
    assert report.rows[0].difference == pytest.approx(expected[0] - 28.50)


def test_a_method_fills_its_rows_once_it_is_registered(monkeypatch, counted):
    options = RunOptions(losses=("squared",), observed=(0.2,))
    [experiment] = find_experiments(["leml/table-12"])
    before = {row.setting.method: row.ours for row in run([experiment], options).rows}
    assert before["BR"] is None
    assert before["LEML"] is not None
    fits = []

    def fit_br(task):
        fits.append(task)
        return paper_methods.METHODS["LEML"].fit(replace(task, n_components=10))

    monkeypatch.setitem(paper_methods.METHODS, "BR", paper_methods.PaperMethod(fit_br, ranked=False))
    rows = [row for row in run([experiment], options).rows if row.setting.method == "BR"]
    assert len(rows) == 3  # one for each k/L that the table prints
    assert len(fits) == 1  # though its result depends on none of them
    assert len({row.ours for row in rows}) == 1


def test_filters_keep_what_they_name(counted):
    options = RunOptions(losses=("logistic",), ratios=(0.2, 0.6), observed=(0.1,))
    rows = run(find_experiments(["leml/table-11"]), options).rows
    assert {(r.setting.loss, r.setting.k_ratio, r.setting.observed) for r in rows} == {
        ("logistic", 0.2, 0.1),
        ("logistic", 0.6, 0.1),
    }
    assert {r.setting.method for r in rows} == {"LEML", "BR"}


def test_ctrl_c_keeps_what_is_finished(monkeypatch, only_bibtex):
    real, calls = paper_methods.METHODS["LEML"], []

    def fit(task):
        calls.append(task)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real.fit(task)

    monkeypatch.setitem(paper_methods.METHODS, "LEML", real._replace(fit=fit))
    result = reproduce("leml/table-12", "--ratios", "0.4", "--losses", "squared", "--methods", "LEML")
    assert result.exit_code == 130
    assert "18.73" in result.output  # the paper's first two rows
    assert "22.49" in result.output
    assert "28.50" not in result.output
    assert "Interrupted: only the 2 rows above are finished." in result.output


def test_five_alternations_are_five(monkeypatch, only_bibtex, tiny):
    monkeypatch.setattr(study, "load_dataset", lambda name: replace(tiny, name=name))
    numbers = []
    real = paper_methods.METHODS["LEML"]
    spy = real._replace(fit=lambda task: numbers.append(real.fit(task)) or numbers[-1])
    monkeypatch.setitem(paper_methods.METHODS, "LEML", spy)
    rows = run(find_experiments(["leml/table-4"]), RunOptions(methods=("LEML",))).rows
    assert [(fitted.estimator.max_iter, fitted.estimator.tol) for fitted in numbers] == [(5, 0.0)] * 2
    assert [row.metric for row in rows] == ["seconds", "P@1", "P@3", "AUC"] * 2
    assert rows[0].ours == numbers[0].seconds


@pytest.mark.parametrize("scaled", [True, False])
def test_a_method_gets_rows_of_length_one_or_as_they_are(monkeypatch, only_bibtex, tiny, scaled):
    data, found = replace(tiny, X_train=3 * tiny.X_train, name="bibtex"), []
    monkeypatch.setattr(study, "load_dataset", lambda name: data)
    real = paper_methods.METHODS["LEML"]
    spy = real._replace(fit=lambda task: found.append(task.X) or real.fit(task), scaled=scaled)
    monkeypatch.setitem(paper_methods.METHODS, "LEML", spy)
    study.Study(RunOptions()).measure(Setting("bibtex", "LEML", "squared", k=2), 0)
    lengths, expected = (np.linalg.norm(X, axis=1) for X in (found[0], data.X_train))
    np.testing.assert_allclose(lengths, np.sign(expected) if scaled else expected, rtol=1e-6)


def test_command_prints_and_writes(tmp_path, only_bibtex):
    target, picture = tmp_path / "rows.json", tmp_path / "rows.png"
    result = reproduce(
        "leml/table-12", "leml/figure-2c", "--losses", "squared", "--observed", "0.2", "--seeds", "2",
        "--json", target, "--plot", picture,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    for text in ("setting", "paper", "difference", "28.50", "not implemented", "split differently", "nus-wide"):
        assert text in result.output
    assert "seed 1 …" in result.stderr
    written = json.loads(target.read_text())
    assert written["seeds"] == [0, 1]
    assert written["machine"]["cores"] >= 1
    assert set(written["versions"]) == {"labelgap", "python", "numpy", "scipy", "numba", "scikit-learn"}
    row = next(r for r in written["rows"] if r["method"] == "LEML" and r["k_ratio"] == 0.4)
    assert row["paper"] == 28.5
    assert row["ours"] == pytest.approx(np.mean(row["values"]))
    assert row["difference"] == pytest.approx(row["ours"] - 28.5)
    assert [p["alpha"] in (100.0, 0.1) for p in row["params"]] == [True, True]
    assert row["seconds"] > 0
    missing = next(r for r in written["rows"] if r["method"] == "BCS")
    assert missing["ours"] is None
    assert picture.read_bytes()[1:4] == b"PNG"
    assert {path.name for path in tmp_path.iterdir()} == {"rows.json", "rows.png"}


def test_speed_up_starts_at_one(only_bibtex):
    rows = run(find_experiments(["leml/figure-3"]), RunOptions(datasets=("bibtex",))).rows
    alone = [row for row in rows if row.setting.cores == 1]
    assert [(row.metric, row.ours) for row in alone] == [
        ("gradient speed-up", 1.0),
        ("Hessian product speed-up", 1.0),
    ]


def test_a_missing_dataset_is_named_and_the_rest_still_runs(only_bibtex):
    result = reproduce("leml/table-3", "--losses", "squared", "--ratios", "0.2", "--methods", "LEML")
    assert result.exit_code == 0
    assert "delicious is left out: The data set 'delicious' is not here. Put it there." in result.output
    assert "34.16" in result.output
    alone = reproduce("leml/table-4", "--methods", "LEML")
    assert alone.exit_code == 1
    assert "eurlex is left out" in alone.output
    assert "no dataset of these experiments is available" in alone.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["leml/table-1"], "Unknown experiment 'leml/table-1'"),
        (
            ["leml/table-5", "--datasets", "autofood"],
            "exclude every setting of leml/table-5, which has: datasets bibtex",
        ),
        (["leml/table-5", "--ratios", "half"], "--ratios half is not a list of numbers"),
        (["leml/table-5", "--json", "nowhere/rows.json"], "Cannot write --json nowhere/rows.json: create the folder"),
        (["leml/table-4", "--quick"], "exclude every setting of leml/table-4"),
    ],
)
def test_bad_requests_are_answered_in_one_line(only_bibtex, arguments, message):
    result = reproduce(*arguments)
    assert result.exit_code == 1
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_quick_is_bibtex_in_the_middle_and_a_given_filter_wins(counted):
    assert reproduce("leml/table-12", "--quick").exit_code == 0
    assert {loss for loss, *_ in counted} == {"squared", "logistic", "squared_hinge"}
    assert {k for _, k, _, _ in counted} == {4}
    assert len(counted) == 3
    counted.clear()
    assert reproduce("leml/table-12", "--quick", "--ratios", "0.6", "--losses", "squared").exit_code == 0
    assert [k for _, k, _, _ in counted] == [6]


def test_list_shows_all_without_running(counted):
    result = reproduce("--list")
    assert result.exit_code == 0
    assert all(name in result.output for name in list_experiments())
    assert not counted


class Killed(BaseException):
    """Ends a run as a kill does: nothing catches it."""


ALL = ("leml/table-12", "leml/table-14", "--methods", "LEML", "--losses", "squared", "--ratios", "0.4", "--all")


def test_all_goes_on_with_the_next_fit_after_a_kill(tmp_path, monkeypatch, counted):
    real = paper_methods.METHODS["LEML"]

    def fit(task):
        if len(counted) == 2:
            raise Killed
        return real.fit(task)

    monkeypatch.setitem(paper_methods.METHODS, "LEML", real._replace(fit=fit))
    options = RunOptions(methods=("LEML",), losses=("squared",), ratios=(0.4,))
    with pytest.raises(Killed):
        run_all(find_experiments(list(ALL[:2])), options, tmp_path)
    journal = tmp_path / "measurements.jsonl"
    assert len(journal.read_text().splitlines()) == 2
    with journal.open("a") as stream:
        stream.write('{"dataset": "bib')  # a line that the killed process did not finish
    first = list(counted)
    monkeypatch.setitem(paper_methods.METHODS, "LEML", real._replace(fit=lambda task: real.fit(task)))
    monkeypatch.setattr(study, "compute_version", lambda method: VERSION)
    progress = run_all(find_experiments(list(ALL[:2])), options, tmp_path)
    assert (progress.made, progress.left) == (4, 0)  # the version of the first two is another one
    counted.clear()
    assert run_all(find_experiments(list(ALL[:2])), options, tmp_path).made == 0
    assert len(first) == 2
    assert not counted


VERSION = "0123456789ab"


def test_penalties_of_larger_ranks_are_those_of_the_smallest(monkeypatch, tiny, only_bibtex):
    searched, real = [], paper_methods.choose
    monkeypatch.setattr(paper_methods, "choose", lambda model, *rest: searched.append(model) or real(model, *rest))
    run_study = study.Study(RunOptions())
    ranks = [Setting("bibtex", "LEML", "squared", k_ratio=ratio) for ratio in (0.6, 0.4, 0.2)]
    chosen = [run_study.measure(setting, 0).params for setting in ranks]
    assert len(searched) == 1
    assert searched[0].n_components == ranks[2].rank(10**6, tiny.n_labels)
    assert chosen[0] == chosen[1] == chosen[2]


def test_settings_that_count_empty_rows_otherwise_share_a_fit(monkeypatch, counted):
    setting = Setting("bibtex", "LEML", "squared", k_ratio=0.2)
    twin = replace(setting, empty="zero")
    monkeypatch.setattr(study, "_list_published_settings", lambda: {setting, twin})
    run_study = study.Study(RunOptions())
    both = [run_study.measure(one, 0).metrics for one in (setting, twin)]
    assert len(counted) == 1
    assert all(both[0][name] >= both[1][name] for name in both[0])


def test_numbers_that_are_missed_are_shown_on_random_splits(tmp_path, counted):
    arguments = (*ALL, "--folder", tmp_path)
    assert reproduce(*arguments).exit_code == 0
    assert "2 random splits:" not in (tmp_path / "README.md").read_text()
    assert reproduce(*arguments, "--random-splits", "--seeds", 2).exit_code == 0
    assert len(counted) == 4 + 2 * 4
    lines = [line for line in (tmp_path / "README.md").read_text().splitlines() if "| leml/table-12 |" in line]
    assert "| 84 | 4 |  | " in lines[0]
    assert " (2 random splits: " in (tmp_path / "README.md").read_text()


def test_fits_of_older_code_count_and_are_marked(tmp_path, monkeypatch, counted):
    result = reproduce(*ALL, "--folder", tmp_path)
    assert result.exit_code == 0, result.output
    assert "4 fits; 0 left" in result.output
    [new] = [line for line in (tmp_path / "README.md").read_text().splitlines() if "| leml/table-12 |" in line]
    assert "| 84 | 4 |  | " in new
    monkeypatch.setattr(study, "compute_version", lambda method: VERSION)
    assert reproduce("--summary", tmp_path).exit_code == 0
    [old] = [line for line in (tmp_path / "README.md").read_text().splitlines() if "| leml/table-12 |" in line]
    assert "| 84 | 4 | 4 | " in old
    assert len(counted) == 4
    assert reproduce(*ALL, "--folder", tmp_path).exit_code == 0
    assert len(counted) == 8


def test_a_budget_leaves_fits_to_another_run(tmp_path, counted):
    result = reproduce(*ALL, "--folder", tmp_path, "--budget", "1s")
    assert "0 fits; 4 left, about 40 s" in result.output  # as long as nothing is known: from the size of the data
    assert not counted
    assert "is not a time" in reproduce(*ALL, "--folder", tmp_path, "--budget", "soon").output
    assert "is not a folder" in reproduce(*ALL, "--folder", tmp_path / "nowhere").output


def test_a_fit_that_exceeds_the_budget_does_not_hold_up_shorter_ones(tmp_path, monkeypatch, counted):
    monkeypatch.setattr(Journal, "estimate", lambda journal, key: 1e6 if key.setting.observed == 0.1 else 0.1)
    result = reproduce(*ALL, "--folder", tmp_path, "--budget", "10m")
    assert "3 fits; 1 left" in result.output
    assert len(counted) == 3


def test_a_fit_that_fails_does_not_end_the_run(tmp_path, monkeypatch, counted):
    real = paper_methods.METHODS["LEML"]

    def fit(task):
        if task.Y.n_known < 0.15 * task.Y.shape[0] * task.Y.shape[1]:
            raise ValueError("too few cells")
        return real.fit(task)

    monkeypatch.setitem(paper_methods.METHODS, "LEML", real._replace(fit=fit))
    result = reproduce(*ALL, "--folder", tmp_path)
    assert "2 fits, 2 failed; 0 left" in result.output
    assert "ValueError: too few cells" in result.output


@pytest.mark.parametrize(
    ("method", "other", "module", "constant"),
    [
        ("LEML", "FastXML", paper_methods, "LEML_ALPHAS"),
        ("SQ-SQ", "LR-wSQ-Nys", one_class_tables, "RECOMMENDER_SPLITS"),  # a method of an argument has it
        ("EM1+SVM", "Mean+SVM", mc_tables, "PUBLISHED_EM"),  # a lambda of a closure has it
    ],
)
def test_the_version_of_a_method_follows_its_code(method, other, module, constant, monkeypatch):
    list_experiments()
    fits = [paper_methods.METHODS[name].fit for name in (method, other)]
    compute_version.cache_clear()
    before, others = map(compute_version, fits)
    monkeypatch.setattr(module, constant, [1.0])
    compute_version.cache_clear()
    assert compute_version(fits[0]) != before
    assert compute_version(fits[1]) == others
    compute_version.cache_clear()


def test_forms_of_one_class_factorization_have_their_own_versions():
    list_experiments()
    names = ["SQ-SQ", "SQ-wSQ", "LR-wSQ", "LR-wLR", "SQ-SQ (S)", "LR-LR (S)", "SQ-SQ (graph)"]
    assert len({compute_version(paper_methods.METHODS[name].fit) for name in names}) == len(names)


def test_a_row_over_seeds():
    row = TableRow("x", Setting("a", "LEML", "squared"), "P@1", 40.0, (41.0, 43.0))
    assert (row.ours, row.spread, row.difference) == (42.0, 1.0, 2.0)
    assert TableRow("x", Setting("a", "BR", "squared"), "P@1", 40.0).difference is None


def test_the_command_line_stays_light():
    code = "import sys, labelgap.cli; sys.exit(bool({'numba', 'sklearn', 'scipy', 'matplotlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
