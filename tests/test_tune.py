"""Tuning: what is held out is not seen, time is kept, starts change nothing, and the table tells it all."""

from __future__ import annotations

import inspect
import json

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from typer.testing import CliRunner

import labelgap
from labelgap import LEML, MC1, BinaryRelevance, Labels, OneClassMF, Tagger, hide_cells, tune
from labelgap.cli import app
from labelgap.datasets import make_low_rank, read_records, write_records
from labelgap.methods import list_classes
from labelgap.metrics import PrecisionAtK
from labelgap.model_selection import SPACES, engine, get_criterion, select
from labelgap.model_selection.candidates import (
    REASONS_WITHOUT_SPACE,
    PathParameter,
    Plan,
    compute_stride,
    get_space,
)
from labelgap.model_selection.engine import WarmStarts, can_share_rows
from labelgap.model_selection.splits import split_data
from labelgap.observations import as_labels


@pytest.fixture(scope="module")
def data():
    return make_low_rank(240, 12, 9, rank=3, labels_per_row=3, random_state=0)


class Timed(BaseEstimator):
    """Takes a second of a clock that only it moves, and is better the nearer its parameter is to 6."""

    now = 0.0
    fits: list = []  # noqa: RUF012

    def __init__(self, a=3, seconds=1.0, bad=(), stop=None):
        self.a, self.seconds, self.bad, self.stop = a, seconds, bad, stop

    def fit(self, X, Y):
        Timed.fits.append((X, Y))
        Timed.now += self.seconds
        if self.a == self.stop:
            raise KeyboardInterrupt
        if self.a in self.bad:
            raise FloatingPointError(f"no fit with a={self.a}")
        self.n_labels = Y.shape[1]
        return self

    def decision_function(self, X):
        return np.full((len(X), self.n_labels), -abs(self.a - 6.0))


@pytest.fixture
def timed(monkeypatch):
    Timed.now, Timed.fits = 0.0, []
    monkeypatch.setattr(engine, "clock", lambda: Timed.now)
    return {"grid": {"a": list(range(10))}, "metric": lambda labels, scores: scores[0, 0], "random_state": 0}


def tried(found):
    return [row["params"]["a"] for row in found.table]


# --- time ----------------------------------------------------------------------------------------------------------


def test_the_budget_keeps_time_for_the_last_fit(data, timed):
    found = tune(Timed(), data.X, data.Y, budget=6.5, **timed)
    # The last fit has 1/0.8 times the rows: after five seconds, a sixth candidate and 1.25 s would be too much.
    assert (found.status, len(found.table)) == ("budget", 5)
    assert Timed.now == found.seconds == 6.0
    assert found.seconds <= 6.5


def test_all_the_time_is_for_candidates_without_a_last_fit(data, timed):
    found = tune(Timed(), data.X, data.Y, budget=6.5, refit=False, **timed)
    assert (found.status, len(found.table), found.estimator) == ("budget", 6, None)


def test_one_candidate_is_fitted_whatever_the_budget(data, timed):
    found = tune(Timed(a=4), data.X, data.Y, budget=1e-9, **timed)
    assert (found.status, found.params, tried(found)) == ("budget", {"a": 4}, [4])
    assert found.estimator.a == 4


def test_without_a_budget_every_candidate_of_a_grid_is_tried_iter_in_order(data, timed):
    found = tune(Timed(), data.X, data.Y, **timed)
    assert tried(found) == list(range(10))
    assert (found.status, found.params, found.n_candidates) == ("finished", {"a": 6}, 10)


def test_with_a_budget_the_promising_come_first_and_the_rest_later(data, timed):
    found = tune(Timed(), data.X, data.Y, budget=1e6, **timed)
    assert sorted(tried(found)) == list(range(10))
    assert tried(found)[0] == 3  # the estimator's own
    assert tried(found).index(6) < 7 < len(tried(found))


def test_folds_share_the_seconds(data, timed):
    found = tune(Timed(), data.X, data.Y, n_folds=3, budget=10.0, **timed)
    # The second candidate is clearly worse on its first fold. A fourth would end at 10, the fit at 11.25.
    assert [row["seconds"] for row in found.table] == [3.0, 1.0, 3.0]
    assert Timed.now == 8.0


# --- what is tried -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("top", range(0, 24, 3))
@pytest.mark.parametrize("own", [0, 7, 23])
def test_a_hill_is_climbed_in_a_few_steps(top, own):
    plan, seen = Plan([{"a": list(range(24))}], {"a": own}), []
    for point in plan.iter_best_first(lambda: min(seen, key=lambda p: abs(p[1] - top))):
        seen.append(point)
    assert (0, top) in seen
    assert seen[0] == (0, own)
    assert len(seen) == len(set(seen)) <= 14


def test_a_hill_in_two_dimensions_with_a_choice():
    plan, seen = Plan([{"a": list(range(12)), "b": list("pqr"), "c": [1, 2, 4]}]), []

    def height(point):
        return -abs(point[1] - 9) - 2 * (point[2] != 2) - abs(point[3] - 0)

    for point in plan.iter_best_first(lambda: max(seen, key=height)):
        seen.append(point)
    assert (0, 9, 2, 0) in seen
    assert len(seen) < len(plan) / 3
    assert plan.params((0, 9, 2, 0)) == {"a": 9, "b": "r", "c": 1}


def test_several_grids_and_every_point_once():
    plan, seen = Plan([{"a": [1, 2]}, {"b": [1, 2, 3], "c": ["x", "y"]}, {}]), []
    for point in plan.iter_best_first(lambda: seen[-1], exhaustive=True):
        seen.append(point)
    assert len(seen) == len(set(seen)) == len(plan) == 9
    assert sorted(seen) == sorted(plan.iter_in_order())


def test_the_stride_leaves_a_few_steps():
    for n in range(1, 200):
        assert 1 <= len(range(0, n, compute_stride(range(n)))) <= 9


# --- nothing leaks -------------------------------------------------------------------------------------------------


def cells(labels):
    pattern = sp.csr_array(np.ones(labels.shape)) if labels.known is None else labels.known
    return set(zip(*(part.tolist() for part in pattern.nonzero()), strict=True))


def positives(labels):
    return set(zip(*(part.tolist() for part in labels.positives.nonzero()), strict=True))


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("hold_out", ["rows", "cells", "positives"])
def test_candidates_never_see_what_they_are_judged_by(data, timed, hold_out, gaps):
    Y = hide_cells(data.Y, 0.6, random_state=0) if gaps else Labels(data.Y)
    judged = []
    timed |= {"metric": lambda labels, scores: judged.append(labels) or 0.0, "grid": {"a": [1, 2]}}
    found = tune(Timed(), data.X, Y, hold_out=hold_out, n_folds=2, **timed)
    assert found.hold_out == hold_out
    for number in range(4):
        (X, train), held = Timed.fits[number], judged[number]
        if hold_out == "rows":
            assert len(X) == len(train)
            assert len(train) + len(held) == len(Y)
        elif hold_out == "cells":
            assert not cells(train) & cells(held)
            assert cells(train) | cells(held) == cells(Y)
        else:
            assert not positives(train) & positives(held)
            assert positives(train) | positives(held) == positives(Y)
            assert not positives(train) & cells(held)  # not even as a cell to rank
            assert not gaps or not cells(train) & positives(held)  # unknown, where labels can be
    assert positives(judged[0]) != positives(judged[1])  # folds differ
    assert positives(judged[0]) == positives(judged[2])  # candidates do not
    X, labels = Timed.fits[-1]
    assert (len(X), labels.n_known) == (len(data.X), Y.n_known)


def test_held_out_rows_are_not_trained_on(data, timed):
    X = np.arange(len(data.X))[:, None]
    rows = []
    timed |= {"metric": lambda labels, scores: rows.append(len(labels)) or 0.0, "grid": {"a": [1]}}
    tune(Timed(), X, data.Y, hold_out="rows", share=0.25, **timed)
    trained = Timed.fits[0][0].ravel()
    assert (len(set(trained)), rows) == (180, [60])
    np.testing.assert_array_equal(Timed.fits[0][1].toarray(), data.Y.toarray()[trained])


@pytest.mark.parametrize("metric", ["P@1", "P@3", "recall@2", "AUC"])
def test_held_out_positives_are_ranked_among_cells_that_are_no_known_positives(data, metric):
    fold = split_data(None, Labels(data.Y), "positives", 0.3, 0)
    model = OneClassMF(3, random_state=0).fit(None, fold.Y_train)
    scores = model.decision_function(None)
    truth = fold.Y_valid.toarray()
    truth[fold.Y_train.toarray() == 1] = np.nan
    expected = get_criterion(metric).measure.fresh().update(truth, scores).compute()
    assert get_criterion(metric).score(model, fold.X_valid, fold.Y_valid, fold.seen) == pytest.approx(expected)


def test_a_row_whose_labels_are_all_seen():
    """Of three labels two are trained on: the third is the only one left to rank, and it is a hit."""
    seen = sp.csr_array(np.array([[1.0, 1.0, 0.0]]))

    class Fixed:
        def predict_topk(self, X, k):
            return np.array([[0, 1, 2]])[:, :k], np.array([[3.0, 2.0, 1.0]])[:, :k]

    assert get_criterion(PrecisionAtK(1)).score(Fixed(), [[0]], Labels([[0, 0, 1]]), seen) == 1.0
    assert get_criterion(PrecisionAtK(2)).score(Fixed(), [[0]], Labels([[0, 0, 1]]), seen) == 0.5


@pytest.mark.parametrize(
    ("estimator", "X", "gaps", "expected"),
    [
        (LEML(2), True, True, "rows"),
        (OneClassMF(2), True, False, "rows"),
        (OneClassMF(2), False, False, "positives"),
        (MC1(mu=0.1), True, True, "cells"),
        (MC1(mu=0.1), True, False, "rows"),
    ],
)
def test_what_is_held_out_by_default(data, estimator, X, gaps, expected):
    Y = hide_cells(data.Y, 0.7, random_state=0) if gaps else data.Y
    grid = {name: [getattr(estimator, name)] for name in list(get_space(estimator))[:1]}
    found = tune(estimator, data.X if X else None, Y, grid=grid, refit=False, random_state=0)
    assert found.hold_out == expected
    assert np.isfinite(found.score)


# --- starts --------------------------------------------------------------------------------------------------------


CASES = [
    (LEML(n_components=4, random_state=0, max_iter=300, tol=1e-4), True, 0.6),
    (LEML(n_components=4, loss="logistic", random_state=0, max_iter=300, tol=1e-4), True, None),
    (OneClassMF(n_components=4, random_state=0, max_iter=300, tol=1e-4), True, None),
    (OneClassMF(n_components=4, random_state=0, max_iter=300, tol=1e-4), False, None),
]


@pytest.mark.parametrize(("estimator", "X", "keep"), CASES)
def test_a_path_of_starts_chooses_what_fits_from_nothing_choose(estimator, X, keep):
    data = make_low_rank(400, 15, 12, rank=3, labels_per_row=3, noise=0.3, random_state=1)
    Y = data.Y if keep is None else hide_cells(data.Y, keep, random_state=0)
    options = {"metric": "AUC", "random_state": 0, "hold_out": "rows" if X else "positives"}
    grid = {"alpha": [2.0**power for power in range(3, -6, -1)]}
    rows = data.X if X else None
    warm = tune(estimator, rows, Y, grid=grid, **options)
    cold = select(estimator, grid, rows, Y, **options)
    assert [row["warm"] for row in warm.table] == [False] + [True] * 8
    assert not any(row["warm"] for row in cold.table)
    gaps = [a["score"] - b["score"] for a, b in zip(reversed(warm.table), cold.table, strict=True)]
    assert max(map(abs, gaps)) < 0.02
    by_cold = {row["params"]["alpha"]: row["score"] for row in cold.table}
    assert by_cold[warm.params["alpha"]] > cold.score - 0.005


def test_the_last_fit_starts_from_nothing(data):
    estimator = LEML(n_components=3, loss="logistic", random_state=0)
    found = tune(estimator, data.X, data.Y, grid={"alpha": [4.0, 1.0, 0.5]}, random_state=0)
    assert [row["warm"] for row in found.table][1:] == [True, True]
    alone = clone(estimator).set_params(**found.params).fit(data.X, data.Y)
    np.testing.assert_array_equal(found.estimator.label_factors_, alone.label_factors_)
    assert found.estimator.warm_start is False


def test_factors_are_a_start_for_stronger_penalties_only(data):
    """Directions that a strong penalty took away are hard to find again."""
    starts = WarmStarts(PathParameter("alpha", True))
    fitted = {alpha: LEML(n_components=3, alpha=alpha, random_state=0).fit(data.X, data.Y) for alpha in (400.0, 1.0)}
    starts.store({"alpha": 400.0}, 0, fitted[400.0])
    assert starts.find_weaker({"alpha": 0.1}, 0) is None
    starts.store({"alpha": 1.0}, 0, fitted[1.0])
    for alpha, near in ((2.0, 1.0), (399.0, 1.0), (500.0, 400.0)):
        assert starts.find_weaker({"alpha": alpha}, 0) is fitted[near]


@pytest.mark.parametrize("budget", [None, 5])
def test_penalties_that_are_arrays_have_no_path(budget):
    found = make_low_rank(60, 20, 8, 3, random_state=0)
    penalties = [np.full(20, alpha) for alpha in (0.1, 1.0, 10.0)]
    estimator = OneClassMF(3, loss="squared", alpha=penalties[0], max_iter=50)
    search = tune(estimator, found.X, found.Y, grid={"alpha": penalties}, budget=budget, random_state=0)
    assert len(search.table) == 3
    assert not any(row["error"] or row["warm"] for row in search.table)


@pytest.mark.parametrize("budget", [None, 1e6])
def test_of_equals_the_strongest_penalty_or_the_own_one_is_chosen(data, budget):
    options = {"metric": lambda labels, scores: 0.5, "budget": budget, "refit": False, "random_state": 0}
    found = tune(LEML(2, alpha=2.0), data.X, data.Y, grid={"alpha": [1.0, 4.0, 2.0]}, **options)
    assert found.params == {"alpha": 4.0 if budget is None else 2.0}


def test_starts_are_of_the_same_fold_and_the_same_other_parameters(data):
    starts = WarmStarts(PathParameter("alpha", True))
    fitted = LEML(n_components=3, alpha=1.0).fit(data.X, data.Y)
    starts.store({"alpha": 1.0, "n_components": 3}, 0, fitted)
    assert starts.find_weaker({"alpha": 1.0, "n_components": 3}, 0) is fitted
    assert starts.find_weaker({"alpha": 2.0, "n_components": 2}, 0) is None
    assert starts.find_weaker({"alpha": 2.0, "n_components": 3}, 1) is None
    assert not can_share_rows(BinaryRelevance())


# --- the first round on a sub-sample --------------------------------------------------------------------------------

N_SAMPLED, N_TRAIN, N = 40, 192, 240


@pytest.fixture
def sampled(monkeypatch, timed):
    monkeypatch.setattr(engine, "MIN_FIRST_ROUND_ROWS", N_SAMPLED)
    return timed


def fitted_sizes():
    return [Y.shape[0] for _, Y in Timed.fits]


@pytest.mark.parametrize("budget", [None, 1e6])
def test_of_many_rows_only_promising_candidates_are_fitted_on_all(data, sampled, budget):
    found = tune(Timed(), data.X, data.Y, budget=budget, **sampled)
    assert fitted_sizes() == 10 * [N_SAMPLED] + [N_TRAIN, N]
    assert (found.status, found.params, found.score) == ("finished", {"a": 6}, 0.0)
    assert sorted(tried(found)) == list(range(10))
    assert {row["params"]["a"]: row["score"] for row in found.table} == {a: -abs(a - 6) for a in range(10)}


def test_close_candidates_have_a_second_round_in_which_one_of_them_wins(data, sampled, monkeypatch):
    def better_with_many_rows(labels, scores):
        a = 6 + scores[0, 0]  # up to 6
        return {4: 0.985, 5: 0.975 + 0.1 * (fitted_sizes()[-1] == N_TRAIN), 6: 1.0}.get(a, 0.1)

    grid = {"a": [2, 4, 5, 6]}
    found = tune(Timed(), data.X, data.Y, **{**sampled, "grid": grid, "metric": better_with_many_rows})
    assert fitted_sizes() == 4 * [N_SAMPLED] + 3 * [N_TRAIN] + [N]
    assert (found.params, found.score) == ({"a": 5}, pytest.approx(1.075))
    assert [row["params"]["a"] for row in found.table] == [4, 5, 6, 2]


def test_a_budget_is_shared_by_the_rounds(data, sampled):
    found = tune(Timed(), data.X, data.Y, budget=7.0, **sampled)
    # Half of the time is for the sub-sample: three candidates. Only the best one of them is fitted on all rows.
    assert (found.status, found.params) == ("budget", {"a": 5})
    assert fitted_sizes() == 3 * [N_SAMPLED] + [N_TRAIN, N]


def test_a_failure_on_the_sub_sample_is_no_reason_to_be_left_out(data, sampled):
    found = tune(Timed(bad=(6, 7)), data.X, data.Y, **sampled)
    assert fitted_sizes() == 10 * [N_SAMPLED] + 3 * [N_TRAIN] + [N]
    assert found.params == {"a": 5}
    assert sum(row["error"] is not None for row in found.table) == 2


def test_ctrl_c_in_the_first_round_keeps_what_was_tried(data, sampled):
    found = tune(Timed(stop=6), data.X, data.Y, **sampled)
    assert (found.status, found.params, found.estimator) == ("interrupted", {"a": 5}, None)
    assert fitted_sizes() == 7 * [N_SAMPLED]


def test_a_selection_has_a_first_round_too(data, sampled):
    found = select(Timed(), sampled["grid"], data.X, data.Y, metric=sampled["metric"], random_state=0)
    assert fitted_sizes() == 10 * [N_SAMPLED] + [N_TRAIN, N]
    assert (found.params, len(found.table)) == ({"a": 6}, 10)
    Timed.fits.clear()
    select(Timed(), {"a": [3]}, data.X, data.Y, metric=sampled["metric"], random_state=0)
    assert fitted_sizes() == [N_TRAIN, N]  # a single candidate needs no rounds


@pytest.mark.parametrize("hold_out", ["rows", "cells", "positives"])
def test_what_is_held_out_is_held_out_of_the_sub_sample(data, hold_out):
    fold = split_data(data.X, as_labels(data.Y), hold_out, 0.2, 0)
    rows = np.arange(3, 60, 2)
    small = fold.take(rows, rows if fold.same_rows else np.arange(5))
    np.testing.assert_array_equal(small.X_train, fold.X_train[rows])
    assert (len(small.Y_train), len(small.X_valid)) == (len(rows), len(small.Y_valid))
    assert fold.same_rows == (hold_out != "rows")
    if fold.same_rows:
        np.testing.assert_array_equal(small.X_valid, small.X_train)
        assert small.Y_train.positives.multiply(small.Y_valid.positives).nnz == 0


def test_rows_without_features_are_numbered_anew():
    fold = split_data(None, as_labels(np.eye(9)[:, :4] + np.eye(9)[:, 4:8]), "positives", 0.5, 0)
    small = fold.take(np.array([1, 4]), np.array([1, 4]))
    assert small.X_train is None
    np.testing.assert_array_equal(small.X_valid, [0, 1])


# --- failures ------------------------------------------------------------------------------------------------------


def test_a_candidate_that_fails_is_noted_and_loses(data, timed):
    found = tune(Timed(bad=(6, 7)), data.X, data.Y, **timed)
    assert found.params == {"a": 5}
    failed = [row for row in found.table if row["error"]]
    assert [row["error"] for row in failed] == [f"FloatingPointError: no fit with a={a}" for a in (6, 7)]
    assert all(np.isnan(row["score"]) for row in failed)
    assert [record["error"] is None for record in found.to_records()].count(False) == 2


def test_if_all_fail_the_first_error_is_raised(data, timed):
    with pytest.raises(FloatingPointError, match="no fit with a=0"):
        tune(Timed(bad=tuple(range(10))), data.X, data.Y, **timed)


def test_ctrl_c_keeps_what_was_tried(data, timed):
    found = tune(Timed(stop=6), data.X, data.Y, **timed)
    assert (found.status, found.params, found.estimator) == ("interrupted", {"a": 5}, None)
    assert tried(found) == [0, 1, 2, 3, 4, 5]


def test_ctrl_c_before_anything_was_tried(data, timed):
    with pytest.raises(KeyboardInterrupt):
        tune(Timed(stop=6), data.X, data.Y, **{**timed, "grid": {"a": [6]}})


def test_ctrl_c_ends_a_selection_at_once(data, timed):
    with pytest.raises(KeyboardInterrupt):
        select(Timed(stop=6), timed["grid"], data.X, data.Y, metric=timed["metric"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": 0}, "budget=0 is not a duration"),
        ({"n_folds": 0}, "n_folds=0"),
        ({"max_rows": 1}, "max_rows=1"),
        ({"hold_out": "columns"}, "hold_out='columns' is not known; use 'rows', 'cells' or 'positives'"),
        ({"grid": {"alhpa": [1]}}, "grid names 'alhpa', which is not a parameter of LEML"),
        ({"grid": {"alpha": []}}, "'alpha' need to be a non-empty sequence"),
        ({"share": 2}, "share=2"),
        ({"metric": "magic"}, "metric='magic' is not known"),
    ],
)
def test_bad_options_are_named(data, options, message):
    with pytest.raises(ValueError, match=message):
        tune(LEML(2), data.X, data.Y, **options)


def test_rows_cannot_be_held_out_without_features(data):
    with pytest.raises(ValueError, match="hold_out='rows' needs the features"):
        tune(OneClassMF(2), None, data.Y, hold_out="rows")
    with pytest.raises(ValueError, match=r"share=0\.1 of the 2 positives of Y is none"):
        tune(OneClassMF(2), None, np.eye(2), share=0.1)


# --- tables, texts, rows -------------------------------------------------------------------------------------------


def test_the_table_is_flat_and_marks_the_best(data):
    found = tune(LEML(3), data.X, data.Y, grid={"alpha": [1e5, 0.1]}, metric=["P@1", "Hamming"], random_state=0)
    records = found.to_records()
    assert [list(record) for record in records] == [
        ["best", "alpha", "P@1", "Hamming", "seconds", "warm", "rows", "error"]
    ] * 2
    assert [(record["alpha"], record["best"], record["rows"]) for record in records] == [
        (0.1, True, 240),
        (1e5, False, 240),
    ]
    assert records[0]["P@1"] == found.score[0]
    lines = str(found).splitlines()
    assert lines[0].split() == list(records[0])
    assert [line.startswith("*") for line in lines] == [False, True, False]
    json.dumps(records, allow_nan=False)


def test_rows_of_the_search_and_of_the_last_fit(data, timed):
    found = tune(Timed(), data.X, data.Y, max_rows=100, **{**timed, "grid": {"a": [1, 2]}})
    assert [len(X) for X, _ in Timed.fits] == [80, 80, 240]
    assert {record["rows"] for record in found.to_records()} == {100}


WORDS = {"baking": "oven flour cookies cake", "meat": "bacon steak roast grill", "soup": "broth stock ladle bowl"}
NAMES = sorted(WORDS)


def posts(n=150, seed=0):
    rng = np.random.default_rng(seed)
    for i in range(n):
        topics = sorted(rng.choice(NAMES, 1 + (rng.random() < 0.3), replace=False))
        words = [word for topic in topics for word in rng.choice(WORDS[topic].split(), 3)]
        yield [i, " ".join(words), " ".join(topics)]


@pytest.mark.parametrize("hold_out", ["rows", "cells"])
def test_texts_are_read_once_and_scores_are_those_of_a_tagger(hold_out):
    rows = list(posts())
    texts, Y = [row[1] for row in rows], np.array([[name in row[2] for name in NAMES] for row in rows], float)
    tagger = Tagger(BinaryRelevance(), label_names=NAMES)
    options = {"hold_out": hold_out, "metric": "squared error", "random_state": 0}
    quick = tune(tagger, texts, Y, grid={"estimator__alpha": [10.0, 0.1]}, **options)
    slow = tune(tagger, texts, Y, grid={"estimator__alpha": [10.0, 0.1], "min_count": [2]}, **options)
    assert [row["score"] for row in quick.table] == pytest.approx([row["score"] for row in slow.table])
    assert isinstance(quick.estimator, Tagger)
    assert quick.estimator.label_names_in_.tolist() == NAMES
    assert quick.estimator.predict_tags(["cake in the oven"], 1) == [["baking"]]


def test_a_tagger_without_an_estimator_and_a_pipeline(data):
    texts, Y = [row[1] for row in posts()], [[name in row[2] for name in NAMES] for row in posts()]
    found = tune(Tagger(), texts, np.array(Y), budget=1e-9, random_state=0)
    assert list(found.params) == ["estimator__alpha"]
    found = tune(make_pipeline(Normalizer(), LEML(2, random_state=0)), data.X, data.Y, budget=1e-9, random_state=0)
    assert found.params == {"leml__alpha": 1.0}


def test_labels_keep_their_names(data):
    pd = pytest.importorskip("pandas")
    Y = pd.DataFrame(data.Y.toarray(), columns=[f"l{j}" for j in range(data.Y.shape[1])])
    found = tune(LEML(2, random_state=0), data.X, Y, grid={"alpha": [1.0]}, random_state=0)
    assert found.estimator.label_names_in_.tolist() == list(Y.columns)


def test_observed_is_honoured(data):
    observed = np.random.default_rng(0).random(data.Y.shape) < 0.6
    one = tune(LEML(2, random_state=0), data.X, data.Y, observed=observed, grid={"alpha": [1.0]}, random_state=0)
    labels = Labels(data.Y, observed)
    two = tune(LEML(2, random_state=0), data.X, labels, grid={"alpha": [1.0]}, random_state=0)
    assert one.score == two.score
    np.testing.assert_array_equal(one.estimator.label_factors_, two.estimator.label_factors_)


# --- spaces --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list_classes())
def test_every_method_has_a_space_or_a_reason(name):
    cls = list_classes()[name]
    assert (name in SPACES) != (name in REASONS_WITHOUT_SPACE)
    if name in REASONS_WITHOUT_SPACE:
        assert name == "Tagger" or "tune" in REASONS_WITHOUT_SPACE[name]
        with pytest.raises(ValueError, match=f"{name} has no search space"):
            get_space(cls())
        return
    signature = inspect.signature(cls).parameters
    for parameter, values in SPACES[name].items():
        assert parameter in signature
        assert len(values) == len(set(values)) >= 2
        for value in values:
            cls(**{parameter: value})._check_parameters()


def test_only_methods_are_listed():
    assert {*SPACES, *REASONS_WITHOUT_SPACE} == set(list_classes())


@pytest.mark.parametrize("name", sorted(SPACES))
def test_the_ends_of_a_space_can_be_fitted(data, name):
    estimator = list_classes()[name]()
    few = {
        k: v
        for k, v in {"n_components": 3, "n_estimators": 2, "n_learners": 1}.items()
        if k in estimator.get_params()
    }
    estimator.set_params(**few)
    grid = [{parameter: [values[0], values[-1]]} for parameter, values in get_space(estimator).items()]
    found = tune(estimator, np.abs(data.X[:60]), data.Y[:60], grid=grid, refit=False, random_state=0)
    assert [row["error"] for row in found.table] == [None] * len(found.table)


def test_it_is_exported():
    assert labelgap.tune is tune


# --- the command ---------------------------------------------------------------------------------------------------


def command(*arguments):
    return CliRunner().invoke(app, ["tune", *map(str, arguments)], env={"COLUMNS": "160"})


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("tune") / "posts.csv"
    write_records(path, ["id", "text", "tags"], posts())
    return path


def test_a_command_tunes_and_writes_a_model_and_a_table(table):
    model, out = table.parent / "model", table.parent / "tried.csv"
    common = [table, "--text", "text", "--tags", "tags", "--method", "leml", "--n-components", 3, "--seed", 0]
    shown = command(*common, "--alpha", "1000,0.1", "--output", model, "--table", out, "--json")
    assert shown.exit_code == 0, shown.output
    found = json.loads(shown.stdout)
    assert found["best"] == {"alpha": 0.1}
    assert (found["status"], found["tried"], found["model"]) == ("finished", 2, str(model))
    rows = read_records(out)
    assert [(row["alpha"], row["best"]) for row in rows] == [("0.1", "True"), ("1000", "False")]
    loaded = labelgap.load(model)
    assert (loaded.estimator.alpha, loaded.estimator.n_components, loaded.estimator.random_state) == (0.1, 3, 0)
    assert loaded.columns_["text"] == "text"
    assert loaded.predict_tags(["bacon on the grill"], 1) == [["meat"]]


def test_a_command_shows_what_was_tried(table):
    shown = command(
        table, "--text", "text", "--tags", "tags", "--budget", 1e-6, "--grid", '{"alpha": [4, 1, 0.5]}', "--seed", 0
    )
    assert shown.exit_code == 0, shown.output
    for word in ("alpha", "P@1", "seconds", "*", "budget"):
        assert word in shown.output


def test_a_fixed_option_is_not_searched(table):
    common = [table, "--text", "text", "--tags", "tags", "--seed", 0, "--json"]
    shown = command(*common, "--method", "NaiveBayes", "--alpha", 0.5)
    assert {row["model"] for row in json.loads(shown.stdout)["table"]} == {"multinomial", "bernoulli"}
    assert "alpha" not in json.loads(shown.stdout)["best"]


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (["--alpha", "1"], "--alpha leave nothing to tune", 2),
        (["--alhpa", "1,2"], "did you mean --alpha", 2),
        (["--grid", "{"], "--grid is not JSON", 2),
        (["--grid", '{"alpha": 1}'], "needs a list of values for each parameter", 2),
        (["--grid", '{"beta": [1]}'], "--grid names 'beta'", 2),
        (["--output", "nowhere/model"], "--output nowhere/model is in a folder that does not exist", 1),
        (["--table", "tried.doc"], "tried.doc is not a table", 1),
        (["--method", "MC1CV"], "MC1CV has no search space", 1),
        (["--hold-out", "columns"], "hold_out='columns'", 1),
    ],
)
def test_errors_are_one_line_and_leave_nothing(table, arguments, message, code):
    before = sorted(table.parent.iterdir())
    shown = command(table, "--text", "text", "--tags", "tags", *arguments)
    assert shown.exit_code == code
    assert message in shown.output
    assert sorted(table.parent.iterdir()) == before


def test_a_stopped_command_keeps_the_table(table, monkeypatch):
    problem = LEML._problem

    def stopping(self, data):
        if self.alpha == 0.5:
            raise KeyboardInterrupt
        return problem(self, data)

    monkeypatch.setattr(LEML, "_problem", stopping)
    model, out = table.parent / "stopped", table.parent / "stopped.jsonl"
    words = ["--method", "LEML", "--n-components", 2, "--alpha", "2,1,0.5,0.1", "--output", model, "--table", out]
    shown = command(table, "--text", "text", "--tags", "tags", "--seed", 0, *words)
    assert shown.exit_code == 130, shown.output
    assert "no model was written" in shown.output
    assert [row["alpha"] for row in read_records(out)] == [0.1]
    assert not model.exists()
