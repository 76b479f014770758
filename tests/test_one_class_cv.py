"""Choosing the weight, the penalties and the number of alternations on held-out positives."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from labelgap import LEML, OneClassMF, OneClassMFCV, hide_positives, hold_out_positives, load
from labelgap.datasets import make_low_rank
from labelgap.estimators.low_rank import start_factors
from labelgap.metrics import NDCGAtK, precision_at_k
from labelgap.model_selection import engine
from labelgap.model_selection import one_class_cv as module
from labelgap.model_selection.candidates import Walk
from labelgap.model_selection.engine import SharedStarts

# --- the walk -------------------------------------------------------------------------------------------------------


def hill(rng, size):
    """A sequence that rises strictly to one top and falls strictly after it."""
    top = rng.integers(size)
    steps = rng.uniform(0.1, 2, size)
    return np.array([-steps[min(i, top) : max(i, top)].sum() for i in range(size)])


@pytest.mark.parametrize("seed", range(30))
def test_a_walk_finds_the_top_of_a_hill(seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 9, size=rng.integers(1, 4)).tolist()
    axes = [hill(rng, size) for size in sizes]
    asked = []

    def score(point, near):
        asked.append((point, near))
        return sum(axis[i] for axis, i in zip(axes, point))

    walk = Walk(sizes, score)
    start = tuple(int(rng.integers(size)) for size in sizes)
    assert walk.coordinate_ascent(start) == tuple(int(axis.argmax()) for axis in axes)
    points = [point for point, _ in asked]
    assert len(set(points)) == len(points) == len(walk.scores)
    assert asked[0] == (start, None)
    for number, (point, near) in enumerate(asked[1:], 1):
        assert near in points[:number]
        assert sum(abs(a - b) for a, b in zip(point, near)) == 1
        assert all(0 <= i < size for i, size in zip(point, sizes))


@pytest.mark.parametrize("seed", range(20))
def test_a_walk_ends_where_no_axis_leads_on(seed):
    rng = np.random.default_rng(seed)
    heights = rng.random((5, 4, 6))
    walk = Walk(heights.shape, lambda point, near: heights[point])
    best = walk.coordinate_ascent((2, 2, 2))
    assert heights[best] == max(walk.scores.values()) >= heights[2, 2, 2]
    for axis, size in enumerate(heights.shape):
        for i in {best[axis] - 1, best[axis] + 1} & {*range(size)}:
            beside = (*best[:axis], i, *best[axis + 1 :])
            assert walk.scores[beside] <= heights[best]


def test_a_walk_is_shorter_than_the_grid():
    walk = Walk([10, 13, 17], lambda point, near: -sum((i - 5) ** 2 for i in point))
    assert walk.coordinate_ascent((4, 6, 8)) == (5, 5, 5)
    assert len(walk.scores) < 20


def test_patience_crosses_a_dip_and_a_tie_goes_to_the_first():
    heights = [0.0, 1.0, 0.5, 2.0, 2.0]
    assert Walk([5], lambda point, near: heights[point[0]]).coordinate_ascent((0,)) == (1,)
    assert Walk([5], lambda point, near: heights[point[0]]).follow_ridge((0,)) == (3,)
    assert Walk([3, 3], lambda point, near: 1.0).coordinate_ascent((2, 0)) == (2, 0)


@pytest.mark.parametrize("seed", range(20))
def test_a_scan_crosses_a_plain(seed):
    rng = np.random.default_rng(seed)
    tops, start = rng.integers(1, 13, size=2), (int(rng.integers(13)), int(rng.integers(13)))
    plain = rng.uniform(-300, -299, size=(13, 13))  # below the slopes, without a direction

    def score(point, near):
        slope = -np.square(point - tops).sum() if abs(point[1] - tops[1]) <= 3 else plain[point]
        return max(slope, plain[point])

    walk = Walk([13, 13], score)
    assert walk.follow_coarse_ridge(start, scanned=1) == tuple(tops)
    assert len(walk.scores) < 60


def test_a_walk_of_one_point_asks_once():
    walk = Walk([1, 1], lambda point, near: 7.0)
    assert walk.coordinate_ascent((0, 0)) == (0, 0)
    assert walk.scores == {(0, 0): 7.0}


# --- what is chosen -------------------------------------------------------------------------------------------------

N, D, L = 120, 8, 12
WEIGHTS, ALPHAS, GRAPH_ALPHAS, RATIOS = [0.02, 0.1, 0.5], [0.1, 1.0, 10.0], [0.1, 1.0], [0.5, 1.0, 2.0]
GRIDS = {"weights": WEIGHTS, "alphas": ALPHAS}


@pytest.fixture(scope="module")
def data():
    truth = make_low_rank(N, D, L, 3, labels_per_row=4, noise=0.2, random_state=0)
    rng = np.random.default_rng(0)
    S = np.triu(rng.random((N, N)) < 0.05, 1).astype(float)
    return truth.X.astype(float), hide_positives(truth.Y, 0.7, random_state=0), S + S.T


def make(**options):
    return OneClassMFCV(
        **{
            "n_components": 3,
            "dtype": "float64",
            "random_state": 0,
            "n_jobs": 1,
            "n_splits": 1,
            "max_iter": 6,
            **GRIDS,
            **options,
        }
    )


VARIANTS = {
    "rows": ({}, "X"),
    "positives": ({}, ""),
    "positives of rows with features": ({"hold_out": "positives"}, "X"),
    "rows and graph": ({"graph_alphas": GRAPH_ALPHAS}, "XS"),
    "positives and graph": ({"graph_alphas": GRAPH_ALPHAS}, "S"),
    "label features and graph": ({"graph_alphas": GRAPH_ALPHAS}, "XZG"),
    "subsampled": ({"negatives": "subsampled", "weights": None, "ratios": RATIOS}, "X"),
    "two splits": ({"n_splits": 2, "metric": "nDCG@3"}, ""),
    "squared": ({"loss": "squared", "metric": NDCGAtK(3)}, "X"),
}


def fitted(model, data, given):
    """Fit with the side information whose letters are given: X, row graph S, label features Z, label graph G."""
    X, Y, S = data
    side = {"row_graph": S, "label_features": S[:L, :5], "label_graph": S[:L, :L]}
    chosen = {name: value for (name, value), letter in zip(side.items(), "SZG") if letter in given}
    return model.fit(X if "X" in given else None, Y, **chosen)


@pytest.fixture(scope="module")
def searches(data):
    """Each variant, fitted once."""
    return {name: fitted(make(**options), data, given) for name, (options, given) in VARIANTS.items()}


every_variant = pytest.mark.parametrize("name", VARIANTS)


def candidates(model, name):
    grids = {"weight_unlabelled": WEIGHTS, "alpha": ALPHAS, "graph_alpha": GRAPH_ALPHAS, "negative_ratio": RATIOS}
    if model.negatives == "subsampled":
        grids["weight_unlabelled"] = [1.0]
    return grids[name]


@every_variant
def test_only_candidates_are_chosen(name, searches):
    model, (_, given) = searches[name], VARIANTS[name]
    expected = {"weight_unlabelled", "alpha", "max_iter"}
    expected |= {"graph_alpha"} if {*given} & {*"SG"} else set()
    expected |= {"negative_ratio"} if model.negatives == "subsampled" else set()
    assert model.best_params_.keys() == expected
    assert 1 <= model.best_params_["max_iter"] <= 6
    for parameter in expected - {"max_iter"}:
        assert model.best_params_[parameter] in candidates(model, parameter)


@every_variant
def test_the_table_holds_every_candidate_visited(name, searches):
    model = searches[name]
    searched = model.best_params_.keys() - {"max_iter"}
    sizes = [len(candidates(model, parameter)) for parameter in searched]
    for warm in (True, False):
        rows = [row for row in model.table_ if row["warm"] is warm]
        points = [row["point"] for row in rows]
        assert 1 <= len(points) == len(set(points)) <= math.prod(sizes)
        for row in rows:
            assert row["params"].keys() == searched
            assert 0 <= row["score"] <= 1
            for parameter, i in zip(row["params"], row["point"]):
                assert row["params"][parameter] == candidates(model, parameter)[i]
    assert [row["warm"] for row in model.table_] == sorted((row["warm"] for row in model.table_), reverse=True)
    best = max((row for row in model.table_ if not row["warm"]), key=lambda row: row["score"])
    assert model.best_score_ == best["score"]
    assert model.best_params_ == best["params"] | {"max_iter": best["max_iter"]}
    # Where the path ended, the fits from the start begin.
    path = max((row for row in model.table_ if row["warm"]), key=lambda row: row["score"])
    assert next(row for row in model.table_ if not row["warm"])["point"] == path["point"]


@every_variant
def test_the_last_fit_is_on_everything(name, searches, data):
    model, (_, given) = searches[name], VARIANTS[name]
    best = model.best_estimator_
    assert type(best) is OneClassMF
    assert best.n_iter_ == model.best_params_["max_iter"]
    shared = {key: getattr(model, key) for key in ("n_components", "loss", "negatives", "dtype", "random_state")}
    alone = OneClassMF(tol=0.0, n_jobs=1, callbacks=[lambda told: told.number == best.n_iter_], **shared)
    alone.set_params(**model.best_params_)
    fitted(alone, data, given)
    np.testing.assert_array_equal(best.label_factors_, alone.label_factors_)


def curve(train, X_train, held, X_held, seen, weight, alpha):
    """The geometric mean of P@1, P@3 and P@5 after each alternation, on dense scores."""
    scores = []

    def note(told):
        rows = np.eye(len(seen)) if X_held is None else np.hstack([X_held, np.ones((len(seen), 1))])
        dense = rows @ told.feature_factors @ told.label_factors.T
        dense[seen == 1] = -np.inf
        hits = [precision_at_k(held, dense, k) for k in (1, 3, 5)]
        scores.append(np.prod(hits) ** (1 / 3))
        return told.number == 6

    shared = {"dtype": "float64", "random_state": 0, "n_jobs": 1, "max_iter": 6, "tol": 0.0}
    model = OneClassMF(3, weight_unlabelled=weight, alpha=alpha, callbacks=[note], **shared)
    model.fit(X_train, train)
    return scores


def until_two_were_no_better(scores):
    for end in range(len(scores)):
        if end - int(np.argmax(scores[: end + 1])) == 2:
            return scores[: end + 1]
    return scores


@pytest.mark.parametrize("weight", WEIGHTS)
def test_the_number_of_alternations_is_where_held_out_positives_are_ranked_best(weight, data):
    X, Y, _ = data
    fixed = make(weights=[weight], alphas=[0.3], tol=0.0)
    train, held = hold_out_positives(Y, 0.2, random_state=np.random.RandomState(0))
    by_positives = curve(train, None, held, None, train.toarray(), weight, 0.3)
    order = np.random.RandomState(0).permutation(N)
    cut, rest = np.sort(order[:24]), np.sort(order[24:])
    by_rows = curve(Y[rest], X[rest], Y[cut], X[cut], np.zeros((24, L)), weight, 0.3)
    for expected, rows in ((by_positives, None), (by_rows, X)):
        expected = until_two_were_no_better(expected)
        model = fixed.fit(rows, Y)
        assert model.best_score_ == pytest.approx(max(expected), rel=1e-9)
        assert expected[model.best_params_["max_iter"] - 1] == pytest.approx(max(expected), rel=1e-9)
        assert model.best_params_ | {"max_iter": 0} == {"weight_unlabelled": weight, "alpha": 0.3, "max_iter": 0}
        assert [row["warm"] for row in model.table_] == [True, False]


def test_splits_are_averaged(data):
    _, Y, _ = data
    rng, curves = np.random.RandomState(0), []
    for _ in range(2):
        train, held = hold_out_positives(Y, 0.2, random_state=rng)
        curves.append(curve(train, None, held, None, train.toarray(), 0.1, 0.3))
    mean = np.mean(curves, axis=0)
    model = make(weights=[0.1], alphas=[0.3], tol=0.0, n_splits=2).fit(None, Y)
    assert model.best_score_ == pytest.approx(mean.max(), rel=1e-9)
    assert model.best_params_["max_iter"] == int(mean.argmax()) + 1


def test_a_seed_makes_it_repeatable(searches, data):
    X, Y, _ = data
    again = make().fit(X, Y)
    assert again.table_ == searches["rows"].table_
    assert again.best_params_ == searches["rows"].best_params_
    np.testing.assert_array_equal(again.decision_function(X), searches["rows"].decision_function(X))
    other = make(random_state=1).fit(X, Y)
    assert [row["score"] for row in other.table_] != [row["score"] for row in again.table_]


@pytest.mark.parametrize(("loss", "scale"), [("squared", 1.0), ("logistic", 2.0)])
def test_the_paper_s_grids_are_the_bounds(loss, scale, data):
    """Weights 2⁻⁹ … 1 and penalties 2⁻⁶ … 2⁶ on the paper's scale, half of ours unless the loss is squared."""
    bounds = {"weight_unlabelled": (-9, 0), "alpha": (-6, 6), "graph_alpha": (-6, 10)}
    model = make(loss=loss, weights=None, alphas=None)
    for name, values in model._axes(True).items():
        assert np.log2(np.array(values)[[0, -1]] / scale) == pytest.approx(bounds[name])
        assert {scale * 2.0**i for i in range(bounds[name][0], bounds[name][1] + 1)} <= set(values)
    model.fit(None, data[1])
    for row in model.table_:
        assert row["params"] == {name: model._axes(False)[name][i] for name, i in zip(row["params"], row["point"])}


def test_candidates_come_in_any_order_and_once(data):
    _, Y, _ = data
    plain = make().fit(None, Y)
    mixed = make(weights=WEIGHTS[::-1] * 2, alphas=np.array(ALPHAS[::-1])).fit(None, Y)
    assert mixed.table_ == plain.table_
    assert make(weights=0.1, alphas=(1.0,)).fit(None, Y).best_params_["weight_unlabelled"] == 0.1


def test_chosen_parameters_rank_better_than_taking_gaps_for_a_no():
    truth = make_low_rank(500, 15, 25, 3, labels_per_row=5, noise=0.3, random_state=0)
    X, Y = truth.X[:300], hide_positives(truth.Y[:300], 0.4, random_state=0)

    def precision(model):
        return precision_at_k(truth.Y[300:], model.fit(X, Y).decision_function(truth.X[300:]), 3)

    blind = max(precision(LEML(3, alpha=alpha, random_state=0)) for alpha in (0.1, 1.0, 10.0))
    assert precision(OneClassMFCV(4, random_state=0)) > blind + 0.03


# --- what training may see ------------------------------------------------------------------------------------------


@pytest.fixture
def recorded(monkeypatch):
    """What every fit was given, and the judges."""
    fits, judges = [], []
    plain, judge = module.fit_bound, module.RankingScorer

    def fit(model, data, factors=None, **options):
        fits.append((data, factors, model.max_iter))
        return plain(model, data, factors, **options)

    monkeypatch.setattr(module, "fit_bound", fit)
    monkeypatch.setattr(module, "RankingScorer", lambda *parts: judges.append(judge(*parts)) or judges[-1])
    return fits, judges


def dense(pattern):
    return pattern.toarray().astype(int)


def test_held_out_positives_are_never_trained_on(recorded, data):
    X, Y, S = data
    fits, judges = recorded
    make(n_splits=2, hold_out="positives").fit(X, Y, row_graph=S)
    *searched, (last, _, _) = fits
    shown = [dense(judge.seen.matrix()) for judge in judges]
    assert len(shown) == 2
    splits = []
    for material, _, _ in searched:
        splits.append([np.array_equal(pattern, dense(material.labels.positives)) for pattern in shown].index(True))
        held = dense(judges[splits[-1]].held_out.positives)
        np.testing.assert_array_equal(shown[splits[-1]] + held, Y.toarray())
        assert held.sum() == round(0.2 * Y.nnz)
    assert set(splits) == {0, 1}
    np.testing.assert_array_equal(dense(last.labels.positives), Y.toarray())


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array, sp.coo_array, np.ndarray.tolist])
def test_held_out_rows_are_never_trained_on(recorded, data, wrap):
    X, Y, S = data
    fits, judges = recorded
    make(share=0.25).fit(wrap(X), Y, row_graph=S)
    *searched, (last, _, _) = fits
    judge = judges[0]
    constant = np.eye(D + 1)
    held = judge.rows.times(constant)[:, :-1]
    where = [int(np.flatnonzero((row == X).all(1))[0]) for row in held]
    kept = np.setdiff1d(np.arange(N), where)
    assert len(where) == 30
    np.testing.assert_array_equal(dense(judge.held_out.positives), Y[where].toarray())
    for material, _, _ in searched:
        np.testing.assert_array_equal(material.left.times(constant)[:, :-1], X[kept])
        np.testing.assert_array_equal(dense(material.labels.positives), Y[kept].toarray())
        np.testing.assert_array_equal(material.side.row_graph.toarray(), S[np.ix_(kept, kept)])
    np.testing.assert_array_equal(last.left.times(constant)[:, :-1], X)
    np.testing.assert_array_equal(last.side.row_graph.toarray(), S)


@pytest.mark.parametrize(("hold_out", "given"), [("rows", "XS"), ("positives", "XS"), ("positives", "")])
def test_of_many_rows_the_path_has_a_sub_sample(recorded, data, monkeypatch, hold_out, given):
    monkeypatch.setattr(engine, "MIN_FIRST_ROUND_ROWS", 30)
    fits, judges = recorded
    model = fitted(make(hold_out=hold_out), data, given)
    first, small = judges if hold_out == "rows" else (judges[0], None)
    *searched, _ = fits
    steps = sum(row["warm"] for row in model.table_)
    n_train = 96 if hold_out == "rows" else N
    assert {len(material.labels) for material, _, _ in searched[:steps]} == {30}
    assert {len(material.labels) for material, _, _ in searched[steps:]} == {n_train}
    path, full = searched[0][0], searched[-1][0]
    if "X" in given:  # the rows of the path are training rows of the first split, with their labels
        constant = np.eye(D + 1)
        rows, all_rows = path.left.times(constant)[:, :-1], full.left.times(constant)[:, :-1]
        where = [int(np.flatnonzero((row == all_rows).all(1))[0]) for row in rows]
        np.testing.assert_array_equal(dense(path.labels.positives), dense(full.labels.positives)[where])
        graph = full.side.row_graph.toarray()
        np.testing.assert_array_equal(path.side.row_graph.toarray(), graph[np.ix_(where, where)])
    if small is not None:
        held, all_held = (judge.rows.times(np.eye(D + 1))[:, :-1] for judge in (small, first))
        assert all((row == all_held).all(1).any() for row in held)
        assert small.held_out.shape[0] == 24
    assert set(model.best_params_) >= {"weight_unlabelled", "alpha"}
    assert model.best_params_["alpha"] in ALPHAS


def test_the_path_starts_from_neighbours_and_the_end_from_the_start(recorded, data):
    fits, _ = recorded
    model = make(path_iter=2).fit(None, data[1])
    steps = sum(row["warm"] for row in model.table_)
    assert [start is None for _, start, _ in fits] == [True] + [False] * (steps - 1) + [True] * (len(fits) - steps)
    assert [most for _, _, most in fits[:steps]] == [2] * steps
    assert fits[steps][2] == 6  # the first candidate finds the number of alternations
    assert {most for _, _, most in fits[steps + 1 :]} <= set(range(1, 7))
    points = [row["point"] for row in model.table_ if row["warm"]]
    assert all(any(np.abs(np.subtract(a, b)).sum() == 1 for b in points[:i]) for i, a in enumerate(points) if i)


def test_with_features_every_fit_begins_at_the_start(recorded, data):
    make(path_iter=2).fit(*data[:2])
    assert all(start is None for _, start, _ in recorded[0])


def test_a_step_of_the_path_begins_where_the_neighbour_ended(data):
    Y = data[1]
    model = OneClassMF(3, dtype="float64", random_state=0, max_iter=200, tol=1e-6).fit(None, Y)
    material = model._bind(*model._check_fit(None, Y, None))
    end, first = model.objective_[-1], model.objective_[0]
    module.fit_bound(model.set_params(max_iter=1), material, module.Factors.of(model))
    assert model.objective_ == [pytest.approx(end, rel=1e-5)]
    module.fit_bound(model, material)
    assert model.objective_ == [pytest.approx(first)]
    assert first > end * 1.01


def test_nan_and_a_mask_are_unlabelled(searches, data):
    X, Y, _ = data
    unknown = np.where(Y.toarray() == 1, 1.0, np.nan)
    assert make().fit(X, unknown).table_ == searches["rows"].table_
    assert make().fit(X, np.ones((N, L)), Y.toarray() == 1).table_ == searches["rows"].table_


# --- as an estimator ------------------------------------------------------------------------------------------------


def test_it_answers_like_its_best_estimator(searches, data):
    X, Y, _ = data
    model = searches["rows"]
    best = model.best_estimator_
    np.testing.assert_array_equal(model.decision_function(X), best.decision_function(X))
    np.testing.assert_array_equal(model.predict(X).toarray(), best.predict(X).toarray())
    for found, expected in zip(model.predict_topk(X, 3), best.predict_topk(X, 3)):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(model.known_scores(X, Y).toarray(), best.known_scores(X, Y).toarray())
    assert model.score(X, Y) == best.score(X, Y)
    assert (model.n_features_in_, model.n_labels_) == (D, L)
    newcomers = Y[:3]
    for users, other in (([0, 5], searches["positives"]), (newcomers, model)):
        np.testing.assert_array_equal(other.recommend(users, 3)[0], other.best_estimator_.recommend(users, 3)[0])
    np.testing.assert_allclose(
        searches["positives"].decision_function([4]), searches["positives"].decision_function(None)[[4]], rtol=1e-12
    )


def test_a_saved_search_keeps_its_results(searches, data, tmp_path):
    X, _, _ = data
    for name, rows in (("rows", X), ("positives", None)):
        model = searches[name]
        model.save(tmp_path / "model")
        again = load(tmp_path / "model")
        assert type(again.best_estimator_) is OneClassMF
        np.testing.assert_array_equal(again.decision_function(rows), model.decision_function(rows))
        assert again.best_params_ == model.best_params_
        assert again.best_score_ == model.best_score_
        assert [row["score"] for row in again.table_] == [row["score"] for row in model.table_]


def test_parameters_come_and_go(searches):
    model = searches["rows"]
    twin = clone(model)
    assert twin.get_params() == model.get_params()
    assert twin.get_params()["alphas"] == ALPHAS
    with pytest.raises(NotFittedError):
        twin.predict(np.ones((1, D)))
    for method in ("recommend", "save"):
        with pytest.raises(NotFittedError):
            getattr(twin, method)([0])


def test_in_a_pipeline_and_a_cross_validation(data):
    X, Y, _ = data
    pipeline = make_pipeline(Normalizer(), make(alphas=[1.0])).fit(X, Y)
    alone = make(alphas=[1.0]).fit(Normalizer().transform(X), Y)
    np.testing.assert_array_equal(pipeline.decision_function(X), alone.decision_function(Normalizer().transform(X)))
    scores = cross_val_score(make(alphas=[1.0], weights=[0.1]), X, Y.toarray(), cv=2)
    assert (scores > 0.2).all()


def test_feature_names(data):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    X, Y, _ = data
    model = make(alphas=[1.0]).fit(pandas.DataFrame(X, columns=list("abcdefgh")), Y)
    assert model.feature_names_in_.tolist() == list("abcdefgh")
    with pytest.raises(ValueError, match="feature names"):
        model.predict(pandas.DataFrame(X, columns=list("hgfedcba")))
    assert not hasattr(model.fit(X, Y), "feature_names_in_")


def test_verbose_2_prints_a_line_for_each_candidate(data, capsys):
    model = make(verbose=2).fit(None, data[1])
    lines = capsys.readouterr().out.splitlines()
    steps = len(model.table_)
    assert len(lines) == steps + model.best_estimator_.n_iter_  # the last fit has a line for each alternation
    for row, line in zip(model.table_, lines):
        assert line.startswith("OneClassMFCV ")
        assert line.endswith(f"{row['score']:.4f}")
    assert all(line.startswith("OneClassMF ") for line in lines[steps:])


def test_verbose_1_shows_a_bar(data, capsys, monkeypatch):
    monkeypatch.setattr("rich._console", None)  # it keeps the first standard output that it sees
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "200"}.items():
        monkeypatch.setenv(name, value)
    make(verbose=1, alphas=[1.0], weights=[0.1]).fit(None, data[1])
    assert "OneClassMFCV" in capsys.readouterr().out


def test_an_interrupt_leaves_nothing_behind(data, monkeypatch):
    calls, plain = [], module.fit_bound

    def interrupted(*arguments, **options):
        ended = plain(*arguments, **options)
        calls.append(1)
        return ended._replace(interrupt=KeyboardInterrupt()) if len(calls) == 3 else ended

    monkeypatch.setattr(module, "fit_bound", interrupted)
    model = make()
    with pytest.raises(KeyboardInterrupt):
        model.fit(None, data[1])
    assert len(calls) == 3
    with pytest.raises(NotFittedError):
        model.predict(None)


def test_a_directed_graph_is_said_once(data):
    X, Y, S = data
    single = {"n_splits": 2, "graph_alphas": [0.5], "weights": [0.1], "alphas": [1.0]}
    for rows in (None, X):
        with pytest.warns(UserWarning, match="row_graph is directed") as caught:
            model = make(**single).fit(rows, Y, row_graph=np.triu(S))
        assert len(caught) == 1
        assert caught[0].filename == __file__
        assert model.table_ == make(**single).fit(rows, Y, row_graph=S / 2).table_


ROWS, LABELS = np.ones((10, 2)), np.eye(10)
BAD = [
    (
        {"hold_out": "cells"},
        (ROWS, LABELS),
        r"hold_out='cells' is not known; choose from \['auto', 'rows'",
    ),
    ({"hold_out": "rows"}, (None, LABELS), r"hold_out='rows' needs the features .*; pass X, or hold_out='positives'"),
    ({"share": 0.0}, (ROWS, LABELS), r"share=0\.0 leaves one part empty"),
    ({"n_splits": 0}, (ROWS, LABELS), r"n_splits=0 is out of range; pass an integer of at least 1"),
    ({"path_iter": 0}, (ROWS, LABELS), r"path_iter=0 is out of range; pass an integer of at least 1"),
    ({"max_iter": 0}, (ROWS, LABELS), r"max_iter=0 is out of range"),
    ({"loss": "hinge"}, (ROWS, LABELS), r"loss='hinge' is not known"),
    (
        {"metric": "Hamming"},
        (ROWS, LABELS),
        r"metric='Hamming' is not a metric of the k best labels; use P@k, nDCG@k or re",
    ),
    ({"metric": ("P@1", "AUC")}, (ROWS, LABELS), r"metric=\('P@1', 'AUC'\) is not a metric of the k best labels"),
    ({"metric": ()}, (ROWS, LABELS), r"metric=\(\) is not a metric of the k best labels"),
    ({"metric": "best"}, (ROWS, LABELS), r"metric='best' is not known"),
    (
        {"weights": []},
        (ROWS, LABELS),
        r"weights=\[\] is not a list of candidates; pass one or more finite numbers",
    ),
    ({"weights": [-1.0]}, (ROWS, LABELS), r"weights=\[-1\.0\] is not a list of candidates"),
    ({"alphas": ["a"]}, (ROWS, LABELS), r"alphas=\['a'\] is not a list of candidates"),
    ({"alphas": [np.nan]}, (ROWS, LABELS), r"alphas=\[nan\] is not a list of candidates"),
    ({"negatives": "subsampled", "ratios": [np.inf]}, (ROWS, LABELS), r"ratios=\[inf\] is not a list of candidates"),
    ({}, (ROWS, 0 * LABELS), r"share=0\.2 of the rows of Y, which has 0 positives"),
    ({}, (None, 0 * LABELS), r"share=0\.2 of the positives of Y, which has 0 positives"),
    ({}, (ROWS[:8], LABELS), r"X has 8 rows and Y has 10; pass one row of labels for each row of X"),
    ({}, (ROWS, None), r"requires y to be passed"),
    ({}, (ROWS * np.nan, LABELS), r"Input X contains NaN"),
    ({"n_components": 3}, (ROWS, LABELS), r"n_components=3 is above min\(features, labels\)"),
]


@pytest.mark.parametrize(("options", "arguments", "message"), BAD, ids=[case[2][:40] for case in BAD])
def test_bad_input_gets_one_clear_error(options, arguments, message):
    model = make(**{"n_components": 1, **options})
    with pytest.raises(ValueError, match=message):
        model.fit(*arguments)
    with pytest.raises(NotFittedError):
        model.predict(ROWS)


def test_a_bad_graph_is_an_error_before_rows_are_held_out():
    for graph, message in ((np.ones((10, 9)), "shape"), (np.ones((9, 9)), "shape"), (-np.ones((10, 10)), "negative")):
        with pytest.raises(ValueError, match=rf"row_graph .*{message}"):
            make(n_components=1, graph_alphas=[1.0]).fit(ROWS, LABELS, row_graph=graph)
    with pytest.raises(ValueError, match=r"graph_alphas=\[-1\] is not a list of candidates"):
        make(n_components=1, graph_alphas=[-1]).fit(ROWS, LABELS, row_graph=np.ones((10, 10)))


def test_a_fitted_search_survives_a_bad_fit(data):
    X, Y, _ = data
    model = make(alphas=[1.0]).fit(X, Y)
    before, table = model.decision_function(X), model.table_
    with pytest.raises(ValueError, match="X has"):
        model.fit(X[1:], Y)
    np.testing.assert_array_equal(model.decision_function(X), before)
    assert model.table_ is table


def test_it_answers_as_its_best_estimator(data):
    _, Y, _ = data
    model = make().fit(None, Y)
    best = model.best_estimator_
    np.testing.assert_array_equal(model.similar_items([1], k=2)[0], best.similar_items([1], k=2)[0])
    np.testing.assert_array_equal(model.fold_in_rows(Y[:2]), best.fold_in_rows(Y[:2]))
    np.testing.assert_array_equal(model.fold_in_labels(Y.T[:2]), best.fold_in_labels(Y.T[:2]))


# --- what makes it fast ---------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("given", ["X", ""])
def test_held_out_scores_are_those_of_a_model_without_the_held_out_cells(given, data):
    X, Y, _ = data
    X = X if given else None
    model = make(n_splits=3, weights=[0.1], alphas=[0.3]).fit(X, Y)
    assert len(model.held_out_) == 3
    for rows, scores, seen in model.held_out_:
        train = np.setdiff1d(np.arange(N), rows)
        alone = OneClassMF(3, tol=0.0, dtype="float64", random_state=0, n_jobs=1).set_params(**model.best_params_)
        if given:
            assert seen is None
            alone.fit(X[train], Y[train])
        else:
            assert rows.tolist() == list(range(N))
            assert (seen.toarray() <= Y.toarray()).all()
            alone.fit(None, seen)
        expected = alone.decision_function(X[rows] if given else None)
        np.testing.assert_allclose(scores.dense(), expected, rtol=1e-6, atol=1e-9)
    if given:
        held_out = np.concatenate([part.rows for part in model.held_out_])
        assert len(set(held_out)) == len(held_out) == 3 * round(0.2 * N)


def test_a_candidate_that_is_clearly_worse_is_not_fitted_on_every_split(data):
    X, Y, _ = data
    model = make(n_splits=3, weights=[0.1], alphas=[1.0, 1000.0], max_iter=3).fit(X, Y)
    worst, best = sorted((row for row in model.table_ if not row["warm"]), key=lambda row: row["score"])
    assert (best["splits"], worst["splits"]) == (3, 1)
    assert worst["score"] < model.best_score_ == best["score"]


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_penalties_do_not_change_the_first_factors(loss, data):
    X, Y, _ = data
    model = OneClassMF(3, loss=loss, dtype="float64", random_state=0)
    material = model._bind(*model._check_fit(X, Y, None))
    starts = [start_factors(model.set_params(alpha=alpha), model._problem(material)) for alpha in (1.0, 8.0)]
    share = SharedStarts().share("one key")
    for start in [*starts[1:], *(share(model, model._problem(material)) for _ in range(2))]:
        np.testing.assert_allclose(np.abs(start.H), np.abs(starts[0].H), rtol=1e-6, atol=1e-9)
        assert not start.W.any()


def test_fewer_components_start_from_the_first_of_many(data):
    X, Y, _ = data
    model = OneClassMF(2, dtype="float64", random_state=0)
    problem = model._problem(model._bind(*model._check_fit(X, Y, None)))
    narrow = SharedStarts().share("one key", n_components=4)(model, problem)
    wide = start_factors(model.set_params(n_components=4), problem)
    np.testing.assert_array_equal(narrow.H, wide.H[:, :2])
    assert narrow.W.shape == (X.shape[1] + 1, 2)


def test_without_parameters_it_chooses_the_number_of_components(data):
    X, Y, _ = data
    model = OneClassMFCV(random_state=0, n_splits=1, max_iter=2, alphas=[1.0], weights=[0.1]).fit(X, Y)
    assert model.best_estimator_.label_factors_.shape == (L, D)


def test_probabilities_of_a_search_need_no_further_fit(data, monkeypatch):
    X, Y, _ = data
    monkeypatch.setattr("labelgap.estimators.calibrating.calibrate_in_folds", None)
    model = make(weights=[0.1], alphas=[1.0], n_splits=2).fit(X, Y, calibrate=True)
    probabilities = model.predict_proba(X)
    assert ((probabilities >= 0) & (probabilities <= 1)).all()
    assert np.corrcoef(probabilities.ravel(), model.best_estimator_.decision_function(X).ravel())[0, 1] > 0.5


def test_powers_of_frequencies_are_candidates_after_the_path(data):
    X, Y, _ = data
    model = make(frequency_powers=[0.0, 0.15, 0.3]).fit(X, Y)
    path = {row["params"]["frequency_power"] for row in model.table_ if row["warm"]}
    tried = {row["params"]["frequency_power"] for row in model.table_ if not row["warm"]}
    assert path == {0.15}
    assert {0.0, 0.15, 0.3} >= tried > {0.15}
    best = max((row for row in model.table_ if not row["warm"]), key=lambda row: row["score"])
    assert model.best_estimator_.frequency_power == best["params"]["frequency_power"]
    scales = getattr(model.best_estimator_, "label_scales_", np.ones((L, 1)))
    counts = Y.sum(axis=0)
    expected = ((counts + 1) / (counts @ (counts + 1) / counts.sum())) ** model.best_params_["frequency_power"]
    np.testing.assert_allclose(scales.ravel(), expected)


def test_a_spent_budget_leaves_one_candidate(data):
    X, Y, _ = data
    model = make(budget=1e-9).fit(X, Y)
    assert [row["warm"] for row in model.table_] == [True, False]
    assert len(make(budget=1e9).fit(X, Y).table_) == len(make().fit(X, Y).table_) > 2
    with pytest.raises(ValueError, match="budget=0 is not a duration"):
        make(budget=0).fit(X, Y)


def test_given_rows_are_held_out(data):
    X, Y, _ = data
    parts = [np.arange(20), np.arange(20, 45)]
    model = make(hold_out=parts, weights=[0.1], alphas=[0.3], tol=0.0).fit(X, Y)
    assert [part.rows.tolist() for part in model.held_out_] == [part.tolist() for part in parts]
    alone = OneClassMF(3, dtype="float64", random_state=0, n_jobs=1, tol=0.0).set_params(**model.best_params_)
    for part in parts:
        rest = np.setdiff1d(np.arange(N), part)
        scores = alone.fit(X[rest], Y[rest]).decision_function(X[part])
        np.testing.assert_allclose(
            next(it for it in model.held_out_ if it.rows[0] == part[0]).scores.dense(), scores, atol=1e-8
        )
