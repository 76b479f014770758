"""The page about all experiments."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from labelgap.cli import app
from labelgap_papers import RunOptions, list_experiments, reports
from labelgap_papers.experiments import Report, TableRow, read_elsewhere
from labelgap_papers.reports import README_MARKS, TOTAL, place_rows, read_rows, shorten_total, summarize, write_json
from labelgap_papers.shortfalls import (
    MIN_DRAWS,
    Explainer,
    KnownReason,
    count_spreads,
    index_splits,
    is_reached,
    read_reasons,
)

REPOSITORY = list_experiments()["repository/table-1"]


def measured(better_by, *, only=lambda number: True, seeds=1):
    """Rows of the repository's table, each better than the paper's by so much."""
    return [
        TableRow(REPOSITORY.name, n.setting, n.metric, n.value, (n.value + better_by,) * seeds, ({},) * seeds)
        for n in REPOSITORY.numbers
        if only(n)
    ]


def explain(rows, random_rows=(), reasons=()):
    return Explainer(index_splits(random_rows), reasons, place_rows(rows)).find_all()


def make_page(rows, random_rows=(), reasons=()):
    return summarize(place_rows(rows), explain(rows, random_rows, reasons))


def write(rows, path, seeds=1):
    write_json(Report([REPOSITORY], RunOptions(seeds=seeds), rows), ["labelgap"], path)


def line_of(page, name):
    return next(line for line in page.splitlines() if line.startswith(f"| {name} "))


@pytest.mark.parametrize(
    ("metric", "paper", "just", "too_far"),
    [
        ("P@1", 60.0, 59.0, 58.9),
        ("nDCG@5", 60.0, 59.0, 58.9),
        ("AUC", 0.9, 0.89, 0.889),
        ("Hamming", 0.02, 0.021, 0.0211),
        ("label error", 20.0, 21.5, 21.6),
        ("imputation error", 0.6, 0.63, 0.64),
    ],
)
def test_the_tolerance_of_each_metric(metric, paper, just, too_far):
    better = 0.0 if paper > too_far and metric in ("Hamming", "label error", "imputation error") else paper
    assert is_reached(metric, paper, just)
    assert is_reached(metric, paper, better)
    assert not is_reached(metric, paper, too_far)


def test_every_experiment_with_numbers_is_listed_with_how_many():
    page = make_page([])
    for name, experiment in list_experiments().items():
        line = line_of(page, name)
        assert ("the paper prints no number" in line) == (not experiment.numbers or "not measured" not in line)
    assert "| 120 | 0 |  | not measured |" in line_of(page, REPOSITORY.name)


def test_what_is_reached_and_what_is_missed():
    of_leml = measured(0.5, only=lambda n: n.setting.method == "LEML")
    of_knn = measured(-2.0, only=lambda n: n.setting.method == "kNN")
    page = make_page(of_leml + of_knn)
    assert "| 120 | 24 |  | 12 (50%) |" in line_of(page, REPOSITORY.name)
    section = page[page.index("## repository/table-1") :]
    assert "LEML" not in section
    assert "| kNN | bibtex | 3 | 0 | up to 2 (P@5) | 3: not explained |" in section


def of_knn(better_by):
    """A row of kNN on Bibtex for each seed of ``better_by``."""
    number = next(n for n in REPOSITORY.numbers if n.setting.method == "kNN" and n.setting.dataset == "bibtex")
    values = tuple(number.value + by for by in better_by)
    return TableRow(REPOSITORY.name, number.setting, number.metric, number.value, values, ({},) * len(values))


def on_splits(row, *better_by):
    return replace(of_knn(better_by), setting=replace(row.setting, split="random"))


def test_random_splits_explain_what_they_reach():
    row = of_knn([-2.0])
    (found,) = explain([row], [on_splits(row, -0.5, -1.0)])
    assert (found.kind, found.is_explained) == ("random splits", True)
    for splits in ([-1.5, -1.0], [0.0]):  # not reached; too few
        (found,) = explain([row], [on_splits(row, *splits)])
        assert (found.kind, found.is_explained) == ("none", False)


@pytest.mark.parametrize(("middle", "kind"), [(-2.0, "spread"), (-2.3, "none")])
def test_a_shortfall_of_two_standard_deviations_of_ten_draws_is_explained(middle, kind):
    row = of_knn([middle - 1, middle + 1] * (MIN_DRAWS // 2))
    expected = -middle / (np.std(row.values, ddof=1) * np.sqrt(1.1))
    assert count_spreads(row) == pytest.approx(expected)
    (found,) = explain([row])
    assert found.kind == kind
    assert count_spreads(replace(row, values=row.values[1:])) is None
    ten_means = replace(row, experiment="mc/table-1")
    assert count_spreads(ten_means) == pytest.approx(expected * np.sqrt(1.1 / 0.2))


def test_p_at_1_that_contradicts_ndcg_at_1():
    numbers = [n for e in ("sleec/table-3", "sleec/table-6") for n in list_experiments()[e].numbers]
    of_tree = [n for n in numbers if (n.setting.dataset, n.setting.method) == ("bibtex", "FastXML-1")]
    rows = [
        TableRow("sleec/table-3" if n.metric[0] == "P" else "sleec/table-6", n.setting, n.metric, n.value, (44.4,))
        for n in of_tree
        if n.metric.endswith("@1") or n.metric == "nDCG@3"
    ]
    rows[-1] = replace(rows[-1], values=(rows[-1].paper - 2,))

    def kinds(p_at_1):
        changed = [replace(row, paper=p_at_1 if row.metric == "P@1" else row.paper) for row in rows]
        return {found.row.metric: found.kind for found in Explainer(rows=changed).find_all()}

    assert kinds(37.62) == {"nDCG@1": "inconsistent", "nDCG@3": "inconsistent"}  # more than a point apart
    assert kinds(45.2) == {"nDCG@1": "inconsistent", "nDCG@3": "none"}
    assert kinds(45.6) == dict.fromkeys(("P@1", "nDCG@1", "nDCG@3"), "none")
    assert "37.62" in explain(rows)[0].why


@pytest.mark.parametrize(("command", "kind"), [("python -m x", "experiment"), ("", "stated")])
def test_a_recorded_reason_is_an_experiment_if_it_has_a_command(command, kind):
    reasons = [
        KnownReason("repository/*", "eurlex", "*", "no"),
        KnownReason("repository/*", "*", "?NN", "it is so", "P@*", command),
    ]
    (found,) = explain([of_knn([-2.0])], reasons=reasons)
    assert (found.kind, found.is_explained) == (kind, bool(command))
    assert found.why.startswith("it is so")
    page = make_page([of_knn([-2.0])], reasons=reasons)
    assert f"| kNN | bibtex | 1 | {int(bool(command))} | up to 2 (P@1) | 1: {found.why} |" in page


def test_each_shortfall_is_written_as_a_line(tmp_path):
    write(measured(-2.0), tmp_path / "a.json")
    reason = KnownReason("*", "bibtex", "*", "it is so", "*", "python -m x")
    (tmp_path / "reasons.jsonl").write_text(json.dumps(reason._asdict()) + "\n")
    assert read_reasons(tmp_path) == [reason]
    assert summary(tmp_path).exit_code == 0
    records = [json.loads(line) for line in (tmp_path / "shortfalls.jsonl").read_text().splitlines()]
    assert len(records) == 120
    assert {r["kind"] for r in records if r["dataset"] == "bibtex"} == {"experiment"}
    assert all(r["shortfall"] == pytest.approx(2.0) for r in records)
    count = sum(r["dataset"] == "bibtex" for r in records)
    page = (tmp_path / "README.md").read_text()
    assert f"Of the other 120, an experiment explains {count}: {count} by what was tried; " in page


def test_a_file_that_holds_no_reasons(tmp_path):
    (tmp_path / "reasons.jsonl").write_text('{"experiment": "x"}\n')
    shown = summary(tmp_path)
    assert shown.exit_code == 1
    assert "is not a file of reasons" in shown.output


def test_the_page_of_results_has_no_reason_twice():
    """A later line that concerns the same numbers as an earlier one would never be shown."""
    reasons = read_reasons(Path(__file__).parents[1] / "docs/results")
    assert reasons
    assert len({reason[:3] + reason[4:5] for reason in reasons}) == len(reasons)


def is_of(method, number):
    return number.setting.dataset == "bibtex" and number.setting.method == method


@pytest.mark.parametrize(
    ("peer", "leml", "is_missed"),
    [(-0.8, -1.2, False), (-0.8, -1.25, True), (0.0, -1.2, True)],
    ids=["lead kept", "smaller lead", "our one-vs-all is weak"],
)
def test_a_published_lead_over_one_vs_all_also_reaches(monkeypatch, peer, leml, is_missed):
    base = measured(-1.2, only=partial(is_of, "1-vs-All"))
    monkeypatch.setitem(reports.PEER, "bibtex", [row.paper + peer for row in base])
    page = make_page(base + measured(leml, only=partial(is_of, "LEML")))
    assert ("| LEML | bibtex | 3 |" in page) == is_missed
    assert "| 1-vs-All | bibtex | 3 |" in page


def test_a_number_in_several_files_counts_once_with_the_most_seeds(tmp_path):
    write(measured(-5.0), tmp_path / "a.json")
    write(measured(1.0, seeds=3), tmp_path / "b.json", seeds=3)
    write(measured(-5.0, seeds=2), tmp_path / "c.json", seeds=2)
    rows = read_rows(tmp_path)
    assert len(rows) == 120
    assert all(len(row.values) == 3 and row.setting == n.setting for row, n in zip(rows, REPOSITORY.numbers))
    assert "| 120 | 120 |  | 120 (100%) |" in make_page(rows)


def test_rows_without_a_measurement_do_not_count(tmp_path):
    write([replace(row, values=(), params=()) for row in measured(0.0)], tmp_path / "a.json")
    assert read_rows(tmp_path) == []


def summary(folder):
    return CliRunner().invoke(app, ["reproduce", "--summary", str(folder)])


def test_the_command_writes_the_page(tmp_path):
    write(measured(0.0), tmp_path / "a.json")
    shown = summary(tmp_path)
    assert shown.exit_code == 0
    assert shown.output.strip().endswith("README.md")
    assert "120 (100%)" in (tmp_path / "README.md").read_text()


def test_the_page_shows_the_figures_that_the_folder_has(tmp_path):
    figures = list_experiments()["leml/figure-2c"]
    rows = [TableRow(figures.name, n.setting, n.metric, n.value, (n.value,), ({},)) for n in figures.numbers]
    write_json(Report([figures], RunOptions(), rows), ["labelgap"], tmp_path / "a.json")
    assert summary(tmp_path).exit_code == 0
    assert "figures.svg" not in (tmp_path / "README.md").read_text()
    picture = tmp_path / "figures.svg"
    for _ in range(2):
        before = picture.read_bytes() if picture.exists() else None
        assert (
            CliRunner().invoke(app, ["reproduce", "--summary", str(tmp_path), "--plot", str(picture)]).exit_code == 0
        )
    assert picture.read_bytes() == before
    assert "](figures.svg)" in (tmp_path / "README.md").read_text()


def test_no_folder(tmp_path):
    shown = summary(tmp_path / "nowhere")
    assert shown.exit_code == 1
    assert "is not a folder" in shown.output


@pytest.mark.parametrize("content", ["{", "[]", json.dumps({"rows": [{"experiment": "x"}]})])
def test_a_file_that_holds_no_results(tmp_path, content):
    (tmp_path / "bad.json").write_text(content)
    shown = summary(tmp_path)
    assert shown.exit_code == 1
    assert "bad.json is not a file of results" in shown.output
    assert not (tmp_path / "README.md").exists()


def test_numbers_of_datasets_that_cannot_be_had_are_recorded_apart():
    known = {setting.dataset for experiment in list_experiments().values() for setting in experiment.settings}
    numbers = list(read_elsewhere())
    assert not known & {dataset for _, dataset, _ in numbers}
    assert ("leml", "wiki") in {(paper, dataset) for paper, dataset, _ in numbers}
    page = make_page([])
    assert "| leml | autofood | 598 |" in page
    count = sum(value is not None for _, _, value in numbers)
    assert f"{count:,} further published numbers" in page


def test_the_readme_above_has_the_sentence_about_all_numbers(tmp_path):
    folder = tmp_path / "docs" / "results"
    folder.mkdir(parents=True)
    write(measured(0.0), folder / "a.json")
    readme = tmp_path / "README.md"
    readme.write_text("# A\n- <!-- papers -->of 1<!-- /papers -->\n")
    assert summary(folder).exit_code == 0
    line = readme.read_text().splitlines()[1]
    assert line.startswith("- <!-- papers -->of 2,")
    assert "120 of these are [reached](docs/results/README.md)" in line


def test_the_readme_agrees_with_the_page_of_results():
    root = Path(__file__).parents[1]
    (total,) = TOTAL.findall((root / "docs/results/README.md").read_text(encoding="utf-8"))
    line = README_MARKS.search((root / "README.md").read_text(encoding="utf-8"))[2]
    assert line.replace("[reached](docs/results/README.md)", "reached")[1:] == shorten_total(total)[1:]
