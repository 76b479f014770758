"""Choosing μ and λ of MC-1 and MC-b over held-out cells, and solving folds side by side."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from labelgap import MC1, MC1CV, Labels, MCb, MCbCV, load, make_completion
from labelgap.estimators.completion import completion_path, solve_path, solve_paths
from labelgap.losses import get_loss
from labelgap.metrics import imputation_error, label_error
from labelgap.model_selection import engine
from labelgap.model_selection.completion_cv import LABEL_WEIGHTS
from labelgap.objectives.label_feature_matrix import Completion

PAIRS = [(MC1CV, MC1), (MCbCV, MCb)]
SMALL = {"label_weights": [0.1, 1.0], "mu": 5e-3, "n_folds": 3, "random_state": 0, "n_jobs": 1}


@pytest.fixture(scope="module")
def data():
    return make_completion(40, 6, 3, rank=2, noise_variance=0.05, observed=0.7, random_state=0)


# --- several problems at once ---------------------------------------------------------------------------------------


def problems(n, d, t, *, constant, loss="logistic", label_weight=0.5, seeds=range(3)):
    found = []
    for seed in seeds:
        drawn = make_completion(n, d, t, rank=2, observed=0.6, random_state=seed)
        found.append(
            Completion.of(drawn.X, Labels(drawn.Y), get_loss(loss), label_weight=label_weight, bias=not constant)
        )
    return found


def both(given, mus, *, constant, **options):
    """The stages of each problem, found together and found alone."""
    together = [[] for _ in given]
    for number, stage in solve_paths(given, mus, constant=constant, **options):
        together[number].append(stage)
    alone = [list(solve_path(one, mus, constant=constant, solver="fpc", **options)) for one in given]
    return together, alone


def assert_same(together, alone):
    for first, second in zip(together, alone, strict=True):
        for one, other in zip(first, second, strict=True):
            assert (one.mu, one.n_iter, one.rank, one.status) == (other.mu, other.n_iter, other.rank, other.status)
            assert len(one.history) == one.n_iter
            np.testing.assert_allclose(one.history, other.history, rtol=1e-8)
            np.testing.assert_allclose(one.point.Z, other.point.Z, atol=1e-8)
            np.testing.assert_allclose(one.point.b, other.point.b, atol=1e-8)
            assert one.penalty == pytest.approx(other.penalty, rel=1e-7, abs=1e-9)


MUS = [3.0, 0.3, 0.03, 0.003]


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("loss", ["logistic", "squared", "squared_hinge"])
@pytest.mark.parametrize("shape", [(30, 6, 3), (5, 9, 4)], ids=["tall", "wide"])
def test_problems_do_not_touch_each_other(constant, loss, shape):
    given = problems(*shape, constant=constant, loss=loss)
    together, alone = both(given, MUS, constant=constant)
    assert_same(together, alone)
    assert len({tuple(stage.n_iter for stage in path) for path in together}) > 1  # they end at different times
    assert max(stage.rank for path in together for stage in path) > 1


@pytest.mark.parametrize("constant", [True, False])
def test_a_problem_stops_at_max_iter(constant):
    together, alone = both(problems(20, 5, 3, constant=constant), MUS[2:], constant=constant, tol=0.0, max_iter=7)
    assert_same(together, alone)
    assert {(stage.n_iter, stage.status.value) for path in together for stage in path} == {(7, "max_iter")}


@pytest.mark.parametrize("constant", [True, False])
def test_where_a_gram_matrix_is_too_rough(constant, monkeypatch):
    """Thresholds below its rounding take the matrix itself; here all of them do."""
    calls, real = [], completion_path._decompose_gram
    monkeypatch.setattr(completion_path, "MIN_GRAM_SHARE", 1e3)
    monkeypatch.setattr(completion_path, "_decompose_gram", lambda Z: calls.append(1) or real(Z))
    for shape in ((30, 6, 3), (5, 9, 4)):
        together, alone = both(problems(*shape, constant=constant), MUS, constant=constant)
        assert len(calls) >= sum(stage.n_iter for path in together for stage in path)
        assert_same(together, alone)


@pytest.mark.parametrize("constant", [True, False])
def test_problems_with_labels_of_one_class(constant):
    """With a bias they do not count; where no label is left, features are completed alone."""
    X = np.random.default_rng(0).standard_normal((12, 4))
    Y = np.array([[1, 1, 0]] * 12, float)
    mixed = Y.copy()
    mixed[::2, 0] = 0
    given = [
        Completion.of(X, Labels(labels), get_loss("logistic"), bias=not constant) for labels in (Y, mixed, 1 - mixed)
    ]
    assert len(given[0].targets) == (36 if constant else 0)
    assert_same(*both(given, MUS, constant=constant))


# --- what is chosen -------------------------------------------------------------------------------------------------


def held_out(model, data):
    """For each fold X and Y to train on, and the masks of what is held out; drawn anew with the model's seed."""
    rng, folds = np.random.RandomState(model.random_state), []
    parts = [np.full(cells.shape, -1) for cells in (data.Y, data.X)]
    for part, cells in zip(parts, (data.Y, data.X), strict=True):
        known = ~np.isnan(cells)
        part[known] = rng.permutation(np.arange(known.sum()) % model.n_folds)
    labels, features = parts
    for number in range(model.n_folds):
        of_labels, of_features = labels == number, features == number
        X, Y = np.where(of_features, np.nan, data.X), np.where(of_labels, np.nan, data.Y)
        folds.append((X, Y, of_features, of_labels))
    return folds


@pytest.mark.parametrize(("search", "estimator"), PAIRS)
def test_errors_are_those_of_fits_without_the_cells(search, estimator, data):
    """Each row of the table again, by fits that see NaN in place of a part, to the optimum."""
    tight = {"solver": "accelerated", "tol": 1e-11, "max_iter": 20_000}
    model = search(**SMALL | {"mu": 0.01}, **tight).fit(data.X, data.Y)
    table, folds = model.cv_results_, held_out(model, data)
    assert table["label_error"].shape == (len(table["mu"]), 3)
    for row in range(0, len(table["mu"]), 2):
        own = estimator(mu=table["mu"][row], label_weight=table["label_weight"][row], n_jobs=1, **tight)
        for number, (X, Y, of_features, of_labels) in enumerate(folds):
            own.fit(X, Y)
            assert table["label_error"][row, number] == pytest.approx(
                label_error(data.Y_true, own.labels_, of_labels)
            )
            expected = imputation_error(data.X_true, own.features_, of_features)
            assert table["imputation_error"][row, number] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("solver", ["fpc", "accelerated", "exact"])
@pytest.mark.parametrize(("search", "estimator"), PAIRS)
def test_the_best_row_is_chosen_and_fitted_on_everything(search, estimator, solver, data):
    model = search(solver=solver, **SMALL).fit(data.X, data.Y)
    table = model.cv_results_
    np.testing.assert_allclose(table["mean_label_error"], table["label_error"].mean(axis=1))
    best = np.flatnonzero(table["mean_label_error"] == table["mean_label_error"].min())[0]
    assert model.best_score_ == table["mean_label_error"][best] < table["mean_label_error"].max()
    assert model.best_params_ == {"mu": table["mu"][best], "label_weight": table["label_weight"][best]}
    alone = estimator(solver=solver, n_jobs=1, **model.best_params_).fit(data.X, data.Y)
    for name in ("decision_", "labels_", "features_", "bias_", "objective_", "rank_", "n_iter_", "status_"):
        np.testing.assert_array_equal(getattr(model, name), getattr(alone, name))
    assert [stage["mu"] for stage in model.path_] == table["mu"][: len(model.path_)].tolist()
    assert model.path_[-1]["validation_error"] == model.best_score_
    assert [{k: v for k, v in stage.items() if k != "validation_error"} for stage in model.path_] == alone.path_


def test_of_many_rows_weights_that_are_clearly_worse_are_tried_on_few(monkeypatch):
    drawn = make_completion(120, 6, 3, rank=2, noise_variance=0.05, observed=0.7, random_state=0)
    options = SMALL | {"label_weights": [1e-6, 0.1, 1.0]}
    alone = MCbCV(**options).fit(drawn.X, drawn.Y)
    monkeypatch.setattr(engine, "MIN_FIRST_ROUND_ROWS", 50)
    model = MCbCV(**options).fit(drawn.X, drawn.Y)
    table, tried = model.cv_results_, np.isfinite(model.cv_results_["mean_label_error"])
    assert not tried[table["label_weight"] == 1e-6].any()
    for name in table:
        np.testing.assert_array_equal(table[name][tried], alone.cv_results_[name][tried])
    assert (model.best_params_, model.best_score_) == (alone.best_params_, alone.best_score_)


def test_the_grid_is_the_papers():
    model = MC1CV()
    assert (LABEL_WEIGHTS, model.n_folds, model.decay, model.mu) == ((1e-3, 1e-2, 1e-1, 1.0), 5, 0.25, 1e-5)
    data = make_completion(20, 4, 2, observed=0.8, random_state=1)
    table = MCbCV(mu=0.05, random_state=0).fit(data.X, data.Y).cv_results_
    mus = table["mu"].reshape(4, -1)
    assert (mus == mus[0]).all()
    filled = np.concatenate([np.nan_to_num(2 * data.Y - 1), np.nan_to_num(data.X)], axis=1)
    assert mus[0, 0] == pytest.approx(0.25 * np.linalg.norm(filled, 2))
    np.testing.assert_allclose(mus[0, 1:-1] / mus[0, :-2], 0.25)
    assert mus[0, -1] == 0.05
    assert table["label_weight"].reshape(4, -1)[:, 0].tolist() == [1e-3, 1e-2, 1e-1, 1.0]


def test_of_equal_errors_the_first_counts():
    """Labels that are all alike are never wrong: the smallest λ and the largest μ."""
    data = make_completion(20, 4, 2, observed=0.8, random_state=1)
    model = MC1CV(**SMALL).fit(data.X, np.where(np.isnan(data.Y), np.nan, 1.0))
    assert model.best_score_ == 0
    assert model.best_params_ == {"mu": model.cv_results_["mu"].max(), "label_weight": 0.1}
    assert (model.labels_ == 1).all()


@pytest.mark.parametrize("search", [MC1CV, MCbCV])
def test_features_may_decide(search, data):
    model = search(criterion="imputation_error", **SMALL).fit(data.X, data.Y)
    table = model.cv_results_
    assert model.best_score_ == table["mean_imputation_error"].min()
    by_labels = search(**SMALL).fit(data.X, data.Y)
    for name, values in by_labels.cv_results_.items():
        np.testing.assert_array_equal(values, table[name])
    errors = [imputation_error(data.X_true, m.features_, data.hidden_features) for m in (model, by_labels)]
    assert errors[0] <= errors[1] + 1e-12
    assert errors[0] < 0.7


@pytest.mark.parametrize("solver", ["fpc", "accelerated"])
@pytest.mark.parametrize("search", [MC1CV, MCbCV])
def test_the_number_of_threads_changes_nothing(search, solver, data):
    one, two = (search(solver=solver, **SMALL | {"n_jobs": jobs}).fit(data.X, data.Y) for jobs in (1, 2))
    for name, values in one.cv_results_.items():
        np.testing.assert_array_equal(values, two.cv_results_[name])
    np.testing.assert_array_equal(one.decision_, two.decision_)
    other = search(solver=solver, **SMALL | {"random_state": 1}).fit(data.X, data.Y)
    assert (one.cv_results_["label_error"] != other.cv_results_["label_error"]).any()


@pytest.mark.parametrize("search", [MC1CV, MCbCV])
def test_wide_matrices_are_solved_one_by_one(search, data, monkeypatch):
    side_by_side = search(solver="fpc", **SMALL).fit(data.X, data.Y)
    monkeypatch.setattr("labelgap.model_selection.completion_cv.MAX_BATCH_COLUMNS", 0)
    one_by_one = search(solver="fpc", **SMALL).fit(data.X, data.Y)
    np.testing.assert_array_equal(side_by_side.cv_results_["label_error"], one_by_one.cv_results_["label_error"])
    np.testing.assert_allclose(
        side_by_side.cv_results_["imputation_error"], one_by_one.cv_results_["imputation_error"], atol=1e-8
    )


@pytest.mark.parametrize("search", [MC1CV, MCbCV])
def test_hidden_labels_are_found(search):
    """Labels of a low rank truth are found more often than by the more frequent class of each label."""
    data = make_completion(120, 12, 6, rank=2, observed=0.5, random_state=0)
    model = search(random_state=0, mu=1e-3).fit(data.X, data.Y)
    found = label_error(data.Y_true, model.labels_, data.hidden_labels)
    frequent = np.broadcast_to(np.nanmean(data.Y, axis=0) > 0.5, data.Y.shape)
    assert found < 0.6 * label_error(data.Y_true, frequent, data.hidden_labels)
    assert abs(found - model.best_score_) < 8
    assert imputation_error(data.X_true, model.features_, data.hidden_features) < 0.5


# --- an estimator like the others -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("search", "estimator"), PAIRS)
def test_it_answers_as_its_best_estimator(search, estimator, data, tmp_path):
    model = search(**SMALL).fit(data.X, data.Y)
    best = model.best_estimator_
    assert type(best) is estimator
    assert (model.n_features_in_, model.n_labels_) == (6, 3)
    new = data.X[:5]
    for name in ("predict", "decision_function", "transform"):
        np.testing.assert_array_equal(getattr(model, name)(new), getattr(best, name)(new))
    np.testing.assert_array_equal(model.predict_topk(new, 2)[0], best.predict_topk(new, 2)[0])
    assert model.score(data.X, data.Y) == best.score(data.X, data.Y)
    known = model.known_scores(data.X, data.Y)
    assert known.nnz == (~data.hidden_labels).sum()
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict(new), best.predict(new))


@pytest.mark.parametrize("search", [MC1CV, MCbCV])
def test_the_training_rows_completed(search, data):
    model = clone(search(**SMALL))
    completed = model.fit_transform(data.X, data.Y)
    hidden = data.hidden_features
    np.testing.assert_array_equal(completed[~hidden], data.X[~hidden])
    np.testing.assert_array_equal(completed[hidden], model.features_[hidden])


def test_containers(data):
    """A mask, −1/+1 and sparse matrices mean the same cells."""
    plain = MC1CV(**SMALL).fit(data.X, data.Y)
    masked = MC1CV(**SMALL).fit(data.X, np.where(data.hidden_labels, 0, data.Y), observed=~data.hidden_labels)
    signed = MC1CV(**SMALL).fit(data.X, 2 * data.Y - 1)
    rows, columns = np.nonzero(~data.hidden_features)
    stored = sp.csr_array((data.X[rows, columns], (rows, columns)), shape=data.X.shape)
    sparse = MC1CV(absent_features="unknown", **SMALL).fit(stored, data.Y)
    for other in (masked, signed, sparse):
        np.testing.assert_array_equal(other.cv_results_["label_error"], plain.cv_results_["label_error"])
        np.testing.assert_allclose(other.decision_, plain.decision_, atol=1e-12)
    np.testing.assert_array_equal(signed.labels_, 2 * plain.labels_ - 1)


def test_clone_and_not_fitted():
    model = MC1CV(label_weights=(0.5,), criterion="imputation_error")
    assert clone(model).get_params() == model.get_params()
    assert model.__sklearn_tags__().input_tags.allow_nan
    with pytest.raises(NotFittedError):
        model.predict(np.ones((1, 2)))
    with pytest.raises(NotFittedError):
        model.transform(np.ones((1, 2)))
    with pytest.raises(NotFittedError):
        model.save("nowhere")
    assert not hasattr(model, "labels_")


def test_verbose_prints_a_line_for_each_weight(data, capsys):
    MCbCV(**SMALL, verbose=2).fit(data.X, data.Y)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("MCbCV ")]
    assert [line.split(": ")[1] for line in lines] == ["label_weight = 0.1", "label_weight = 1"]


ROWS, LABELS = np.random.default_rng(0).standard_normal((10, 2)), np.eye(10)[:, :3]
BAD = [
    ({"solver": "factored"}, (ROWS, LABELS), r"solver='factored' is not known; choose from \['auto', 'fpc'"),
    ({"criterion": "AUC"}, (ROWS, LABELS), r"criterion='AUC' is not known; choose from \['label_error'"),
    ({"n_folds": 1}, (ROWS, LABELS), r"n_folds=1 is out of range; pass an integer of at least 2"),
    ({"n_folds": 31}, (ROWS, LABELS), r"n_folds=31 is out of range; Y has 30 known cells"),
    ({"n_folds": 25}, (ROWS, LABELS), r"n_folds=25 is out of range; X has 20 known cells"),
    (
        {"label_weights": []},
        (ROWS, LABELS),
        r"label_weights=\[\] is not a list of candidates; pass one or more finite",
    ),
    ({"label_weights": [0.0]}, (ROWS, LABELS), r"label_weights=\[0\.0\] is not a list of candidates"),
    ({"label_weights": ["a"]}, (ROWS, LABELS), r"label_weights=\['a'\] is not a list of candidates"),
    ({"mu": 0}, (ROWS, LABELS), r"mu=0 is out of range"),
    ({"decay": 1.0}, (ROWS, LABELS), r"decay=1\.0 is out of range"),
    ({}, (ROWS, None), r"MC1CV requires y to be passed"),
    ({}, (ROWS[:8], LABELS), r"X has 8 rows and Y has 10; pass one row of labels for each row of X"),
    ({}, (ROWS, np.nan * LABELS), r"No cell of Y is known"),
    ({}, (np.abs(ROWS) * np.inf, LABELS), r"infinity"),
]


@pytest.mark.parametrize(("options", "arguments", "message"), BAD, ids=[case[2][:40] for case in BAD])
def test_bad_input_gets_one_clear_error(options, arguments, message):
    model = MC1CV(**options)
    with pytest.raises(ValueError, match=message):
        model.fit(*arguments)
    with pytest.raises(NotFittedError):
        model.predict(ROWS)


def test_a_fitted_search_survives_a_bad_fit(data):
    model = MC1CV(**SMALL).fit(data.X, data.Y)
    before, table = model.decision_, model.cv_results_
    with pytest.raises(ValueError, match="X has"):
        model.fit(data.X[1:], data.Y)
    np.testing.assert_array_equal(model.decision_, before)
    assert model.cv_results_ is table


def test_names_of_features_and_labels_are_kept(tmp_path):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    X, Y = pandas.DataFrame(ROWS, columns=["a", "b"]), pandas.DataFrame({"yes": ROWS[:, 0] > 0})
    model = MC1CV(mu=1e-1, label_weights=[1.0], n_folds=2, random_state=0).fit(X, Y)
    model.save(tmp_path / "model")
    for one in (model, load(tmp_path / "model")):
        assert (one.feature_names_in_.tolist(), one.label_names_in_.tolist()) == (["a", "b"], ["yes"])
        with pytest.raises(ValueError, match="feature names"):
            one.predict(X[["b", "a"]])
