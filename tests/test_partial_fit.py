"""Further rows and labels: exact where it says so, near a full fit elsewhere, and nothing changed by an error."""

from __future__ import annotations

import copy
import tracemalloc

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from labelgap import LEML, Labels, OneClassMF, load
from labelgap.datasets import make_low_rank
from labelgap.kernels import get_backend
from labelgap.losses import get_loss
from labelgap.objectives.base import MIN_ROW_WEIGHT, Anchor, Ridge, Sum
from labelgap.objectives.cells import CellsSum, KnownCells, Weights
from labelgap.objectives.positive_unlabelled import PositiveUnlabelled, WeightedLoss

TIGHT = {"tol": 1e-12, "max_iter": 2000, "dtype": "float64", "random_state": 0}
MAKERS = {
    "LEML": lambda **given: LEML(3, alpha=0.5, **TIGHT | given),
    "LEML logistic": lambda **given: LEML(3, alpha=0.5, loss="logistic", **TIGHT | {"tol": 1e-9} | given),
    "OneClassMF": lambda **given: OneClassMF(3, alpha=0.5, **TIGHT | {"tol": 1e-9} | given),
    "OneClassMF subsampled": lambda **given: OneClassMF(
        3, alpha=0.5, negatives="subsampled", **TIGHT | {"tol": 1e-7} | given
    ),
}
every = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
OLD, KNOWN = 90, 6


@pytest.fixture
def data(planted):
    """Planted rows of which the last are new, and labels of which the last two are."""
    return planted(n=120, d=8, L=8, k=3)


def first(make, data, Y=None, **given):
    """A model of the old rows and labels."""
    Y = data.Y if Y is None else Y
    return make(**given).fit(data.X[:OLD], Y[:OLD, :KNOWN])


def with_constant(X):
    """The features that stand left of W."""
    return np.hstack([X, np.ones((len(X), 1))])


def ridge_given(model, X, Y, alpha):
    """The labels' factors that minimise ½ ‖Y − B Hᵀ‖² + (α/2) ‖H‖² for the W of a model, by normal equations."""
    B = with_constant(X) @ np.vstack([model.feature_factors_, model.intercept_factors_])
    return np.linalg.solve(B.T @ B + alpha * np.eye(B.shape[1]), B.T @ Y).T


class TestWithoutPast:
    """W is held, and H learns from further rows and what is remembered of the others."""

    def test_squared_loss_is_ridge_regression_on_all_rows(self, data):
        model = first(MAKERS["LEML"], data)
        W = model.feature_factors_.copy()
        model.partial_fit(data.X[OLD:], data.Y[OLD:])
        Y = data.Y.astype(float)
        Y[:OLD, KNOWN:] = 0  # nobody said that an old row has a new label
        np.testing.assert_allclose(model.label_factors_, ridge_given(model, data.X, Y, 0.5), atol=1e-5)
        np.testing.assert_array_equal(model.feature_factors_, W)

    def test_two_batches_are_one(self, data):
        model = first(MAKERS["LEML"], data)
        at_once = copy.deepcopy(model).partial_fit(data.X[OLD:], data.Y[OLD:])
        middle = OLD + 11
        model.partial_fit(data.X[OLD:middle], data.Y[OLD:middle]).partial_fit(data.X[middle:], data.Y[middle:])
        np.testing.assert_allclose(model.label_factors_, at_once.label_factors_, atol=1e-10)
        np.testing.assert_allclose(model.memory_["curvature"], at_once.memory_["curvature"], atol=1e-10)

    def test_unknown_old_rows_say_nothing_of_new_labels(self, data):
        Y = sp.coo_array(np.ones_like(data.Y))
        Y.data = data.Y[Y.coords].astype(float)
        Y = sp.csr_array(Y)
        model = first(lambda **_: LEML(3, alpha=0.5, absent="unknown", **TIGHT), data, Y)
        model.partial_fit(data.X[OLD:], Y[OLD:])
        alone = ridge_given(model, data.X[OLD:], data.Y[OLD:], 0.5)
        np.testing.assert_allclose(model.label_factors_[KNOWN:], alone[KNOWN:], atol=2e-3)

    def test_a_label_that_no_row_knew_stays_one_of_which_they_say_nothing(self, data):
        """Batches without a cell of it leave no trace, and the first rows that know it decide alone."""
        last, middle = KNOWN - 1, OLD + 15
        observed = np.ones((len(data.Y), KNOWN), bool)
        observed[:middle, last] = False
        known = Labels(data.Y[:, :KNOWN], observed)
        model = LEML(3, alpha=0.5, absent="unknown", **TIGHT).fit(data.X[:OLD], known[:OLD])
        for start in range(OLD, middle, 5):
            model.partial_fit(data.X[start : start + 5], known[start : start + 5])
            assert model.memory_["weights"][last] == 0
            assert (model.memory_["weights"][:last] > 0).all()
        model.partial_fit(data.X[middle:], known[middle:])
        alone = ridge_given(model, data.X[middle:], data.Y[middle:], 0.5)
        np.testing.assert_allclose(model.label_factors_[last], alone[last], atol=2e-3)
        assert model.memory_["weights"][last] > 0

    def test_the_gradient_vanishes_with_gaps_and_other_losses(self, data):
        """Σ over new rows of ℓ'(Y_ij, b_i·h) b_i + (w_j M + α)(h − h_j) = 0, from loops over cells."""
        model = first(MAKERS["LEML logistic"], data)
        before = copy.deepcopy(model)
        Y = np.where(data.observed, data.Y, np.nan)[OLD:]
        model.partial_fit(data.X[OLD:], Y)
        B = with_constant(data.X[OLD:]) @ np.vstack([model.feature_factors_, model.intercept_factors_])
        memory, slope = before.memory_, get_loss("logistic").functions().gradient
        for j, h in enumerate(model.label_factors_):
            known = ~np.isnan(Y[:, j])
            old = j < KNOWN
            start = before.label_factors_[j] if old else memory["blank"]
            weight = memory["weights"][j] if old else memory["blank_weight"]
            gradient = sum(slope(2 * Y[i, j] - 1, B[i] @ h) * B[i] for i in np.flatnonzero(known))
            gradient = gradient + (weight * memory["curvature"] + 0.5 * np.eye(3)) @ (h - start)
            assert np.abs(gradient).max() < 0.05

    def test_a_label_that_no_row_had_starts_where_a_fit_would_put_it(self, data):
        Y = np.hstack([data.Y[:OLD, :KNOWN], np.zeros((OLD, 1), int)])
        model = MAKERS["OneClassMF"]().fit(data.X[:OLD], Y)
        np.testing.assert_allclose(model.memory_["blank"], model.label_factors_[-1], atol=1e-3)

    @every
    def test_scores_come_near_those_of_a_fit(self, make, data):
        Y = data.Y.copy()
        Y[:OLD, KNOWN:] = 0
        full, model = make().fit(data.X, Y), first(make, data).partial_fit(data.X[OLD:], data.Y[OLD:])
        assert np.corrcoef(*(m.decision_function(data.X).ravel() for m in (full, model)))[0, 1] > 0.9
        assert (model.n_iter_, model.objective_, model.status_) == (0, [], "converged")


class TestWithPast:
    """A few alternations over all rows from the factors at hand."""

    @pytest.mark.parametrize("name", ["LEML", "LEML logistic", "OneClassMF"])
    def test_enough_alternations_reach_the_objective_of_a_fit(self, name, data):
        make = MAKERS[name]
        full, model = make().fit(data.X, data.Y), first(make, data)
        model.partial_fit(data.X[OLD:], data.Y[OLD:], past=(data.X[:OLD], data.Y[:OLD]), alternations=2000)
        assert model.objective_[-1] == pytest.approx(full.objective_[-1], rel=1e-4)
        assert model.n_iter_ == len(model.objective_)
        assert model.status_ == "converged"
        np.testing.assert_allclose(model.decision_function(data.X), full.decision_function(data.X), atol=0.05)

    @every
    def test_few_alternations_lower_the_objective(self, make, data):
        model = first(make, data)
        model.partial_fit(data.X[OLD:], data.Y[OLD:], past=(data.X[:OLD], data.Y[:OLD]), alternations=4)
        assert model.n_iter_ <= 4
        assert (np.diff(model.objective_) <= 1e-9).all()

    def test_the_labels_of_before_will_do(self, data):
        """A new label that the past does not have is one that its rows have not."""
        Y = data.Y.copy()
        Y[:OLD, KNOWN:] = 0
        short, whole = (
            first(MAKERS["LEML"], data).partial_fit(data.X[OLD:], data.Y[OLD:], past=(data.X[:OLD], past))
            for past in (Y[:OLD, :KNOWN], Y[:OLD])
        )
        np.testing.assert_array_equal(short.label_factors_, whole.label_factors_)

    def test_gaps_in_either(self, data):
        gaps = Labels(data.Y, data.observed)
        model = LEML(3, alpha=0.5, **TIGHT).fit(data.X[:OLD], gaps[:OLD])
        full = LEML(3, alpha=0.5, **TIGHT).fit(data.X, gaps)
        model.partial_fit(data.X[OLD:], gaps[OLD:], past=(data.X[:OLD], gaps[:OLD]), alternations=2000)
        assert model.objective_[-1] == pytest.approx(full.objective_[-1], rel=1e-4)

    def test_settled_factors_stay_after_the_first_alternation(self, data):
        model = first(MAKERS["LEML"], data, tol=0.5)
        model.partial_fit(data.X[OLD:], data.Y[OLD:, :KNOWN], past=(data.X[:OLD], data.Y[:OLD, :KNOWN]))
        assert (model.n_iter_, model.status_) == (1, "converged")

    def test_kernels_keep_their_rows(self, data):
        model = first(lambda **_: LEML(3, kernel="rbf", alpha=0.1, **TIGHT | {"tol": 1e-6}), data)
        kept = model.training_rows_.copy()
        for past in (None, (data.X[:OLD], data.Y[:OLD])):
            grown = copy.deepcopy(model).partial_fit(data.X[OLD:], data.Y[OLD:], past=past)
            np.testing.assert_array_equal(grown.training_rows_, kept)
            assert grown.predict(data.X).shape == data.Y.shape


class TestRecommenders:
    """Rows without features, and what belongs to rows and labels beside the positives."""

    def test_rows_without_features_are_kept_by_the_model(self, data):
        model = OneClassMF(3, alpha=0.5, **TIGHT | {"tol": 1e-8}).fit(None, data.Y[:OLD, :KNOWN])
        full = OneClassMF(3, alpha=0.5, **TIGHT | {"tol": 1e-8}).fit(None, data.Y)
        model.partial_fit(None, data.Y[OLD:], past=(None, data.Y[:OLD]), alternations=1000)
        assert model.objective_[-1] == pytest.approx(full.objective_[-1], rel=1e-4)
        assert model.row_factors_.shape == (len(data.Y), 3)
        np.testing.assert_array_equal(model.seen_.toarray(), data.Y)
        short = OneClassMF(3, alpha=0.5, **TIGHT).fit(None, data.Y[:OLD]).partial_fit(None, data.Y[OLD:])
        np.testing.assert_array_equal(short.seen_.toarray(), data.Y)
        assert short.recommend([len(data.Y) - 1], k=2)[0].shape == (1, 2)

    def test_new_rows_are_found_first(self, data):
        """Given the labels' factors of before, they are those of newcomers with these positives."""
        model = OneClassMF(3, alpha=0.5, **TIGHT | {"tol": 1e-8}).fit(None, data.Y[:OLD])
        newcomers = model.fold_in_rows(data.Y[OLD:])
        model.partial_fit(None, data.Y[OLD:], alternations=1)
        assert model.n_iter_ == 1
        np.testing.assert_allclose(model.row_factors_[OLD:], newcomers, atol=1e-2)

    @pytest.mark.parametrize("own", ["weights", "unlabelled", "penalties", "graph", "subsampled", "label features"])
    def test_one_alternation_comes_near_a_fit_whatever_rows_have_of_their_own(self, own, data):
        n, L = data.Y.shape
        each = np.random.default_rng(0).uniform(0.5, 2.0, n)
        ring = sp.csr_array(np.roll(np.eye(n), 1, 0) + np.roll(np.eye(n), -1, 0))

        def given(rows):
            """What the model is told of the first rows."""
            parameters = {
                "unlabelled": {"weight_unlabelled": (each[:rows], np.full(L, 0.1))},
                "penalties": {"alpha": each[:rows]},
                "subsampled": {"negatives": "subsampled", "negative_ratio": 0.5},
            }
            side = {
                "weights": {"row_weights": each[:rows]},
                "graph": {"row_graph": ring[:rows, :rows]},
                "label features": {"label_features": np.eye(L)},
            }
            return parameters.get(own, {}), side.get(own, {})

        (before, known), (after, side) = given(OLD), given(n)
        full = OneClassMF(3, **TIGHT | {"tol": 1e-6} | after).fit(None, data.Y, **side)
        model = OneClassMF(3, **TIGHT | {"tol": 1e-6} | before).fit(None, data.Y[:OLD], **known)
        model.set_params(**after).partial_fit(None, data.Y[OLD:], alternations=1, **side)
        assert model.objective_[-1] == pytest.approx(full.objective_[-1], rel=0.02)

    @pytest.mark.parametrize("with_past", [False, True])
    @pytest.mark.parametrize("given", ["none", "further", "all"])
    def test_rows_without_features_keep_their_weights(self, given, with_past, data):
        weights = np.random.default_rng(0).uniform(0.2, 5.0, len(data.Y))
        if given == "none":
            weights[OLD:] = 1
        passed = {"none": None, "further": weights[OLD:], "all": weights}[given]
        make = MAKERS["OneClassMF"]
        full = make().fit(None, data.Y, row_weights=weights)
        model = make().fit(None, data.Y[:OLD], row_weights=weights[:OLD])
        past = (None, data.Y[:OLD]) if with_past else None
        model.partial_fit(None, data.Y[OLD:], past=past, row_weights=passed, alternations=1000)
        np.testing.assert_array_equal(model.row_weights_, weights)
        assert model.objective_[-1] == pytest.approx(full.objective_[-1], rel=1e-4)

    @pytest.mark.parametrize("features", [False, True])
    def test_what_is_known_costs_no_array_of_all_cells(self, features):
        """Only positives count, so one row with a mask does not make a mask of all rows."""
        n, L = 3000, 2000
        rng = np.random.default_rng(0)
        Y = sp.csr_array((np.ones(2 * n), (np.repeat(np.arange(n), 2), rng.integers(0, L, 2 * n))), (n, L)) > 0
        X = rng.standard_normal((n, 3)) if features else None
        model = OneClassMF(2, max_iter=2, tol=1.0, keep_rows=True, random_state=0)
        model.fit(None if X is None else X[1:], Y[1:])
        observed = np.ones((1, L), bool)
        hidden = Y[:1].indices[0]
        observed[0, hidden] = False
        tracemalloc.start()
        model.partial_fit(None if X is None else X[:1], Y[:1].toarray(), observed, alternations=1)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < n * L / 2
        assert not model.seen_[n - 1, hidden]
        assert model.seen_.nnz == Y.nnz - 1

    def test_kept_rows_grow(self, data):
        model = first(MAKERS["OneClassMF"], data, keep_rows=True)
        kept = copy.deepcopy(model).partial_fit(data.X[OLD:], data.Y[OLD:], row_weights=np.full(30, 2.0))
        np.testing.assert_array_equal(kept.row_weights_, [1.0] * OLD + [2.0] * 30)
        np.testing.assert_allclose(kept.row_factors_, kept._embed(data.X), atol=1e-10)
        assert kept.seen_.shape == data.Y.shape
        assert not kept.seen_[:OLD, KNOWN:].nnz
        assert kept.fold_in_labels(np.ones((1, len(data.Y)))).shape == (1, 3)
        past = data.X[:OLD], data.Y[:OLD]
        whole = model.partial_fit(data.X[OLD:], data.Y[OLD:], past=past, row_weights=np.full(len(data.Y), 2.0))
        np.testing.assert_array_equal(whole.seen_.toarray(), data.Y)
        np.testing.assert_array_equal(whole.row_weights_, np.full(len(data.Y), 2.0))

    def test_graphs_and_label_features_go_with_the_past(self, data):
        Z = np.random.default_rng(0).standard_normal((data.Y.shape[1], 4))
        ring = sp.csr_array(np.roll(np.eye(len(data.X)), 1, 0) + np.roll(np.eye(len(data.X)), -1, 0))
        full = MAKERS["OneClassMF"]().fit(data.X, data.Y, row_graph=ring, label_features=Z)
        model = MAKERS["OneClassMF"]().fit(
            data.X[:OLD], data.Y[:OLD, :KNOWN], row_graph=ring[:OLD, :OLD], label_features=Z[:KNOWN]
        )
        model.partial_fit(
            data.X[OLD:],
            data.Y[OLD:],
            past=(data.X[:OLD], data.Y[:OLD]),
            row_graph=ring,
            label_features=Z,
            alternations=1000,
        )
        assert model.objective_[-1] == pytest.approx(full.objective_[-1], rel=1e-4)
        assert model.label_feature_factors_.shape == (4, 3)
        assert model.label_factors_.shape == (len(Z), 3)


@every
def test_first_call_is_a_fit(make, data):
    fitted, grown = make().fit(data.X, data.Y), make().partial_fit(data.X, data.Y)
    np.testing.assert_array_equal(fitted.label_factors_, grown.label_factors_)
    assert fitted.objective_ == grown.objective_


@every
@pytest.mark.parametrize("with_past", [False, True])
def test_grown_models_are_whole(make, with_past, data, tmp_path):
    """Predictions keep their container, and a file brings everything back, to grow further."""
    past = (data.X[:OLD], data.Y[:OLD]) if with_past else None
    model = first(make, data).partial_fit(sp.csr_array(data.X[OLD:]), sp.csr_array(data.Y[OLD:]), past=past)
    assert model.n_labels_ == data.Y.shape[1]
    assert model.n_features_in_ == data.X.shape[1]
    assert isinstance(model.predict(data.X), np.ndarray)
    assert model.predict(data.X).dtype == data.Y.dtype
    model.save(tmp_path / "model")
    again = load(tmp_path / "model", mmap=True)
    np.testing.assert_array_equal(again.decision_function(data.X), model.decision_function(data.X))
    for one in (again, model):
        one.partial_fit(data.X[:10], data.Y[:10])
    np.testing.assert_array_equal(again.label_factors_, model.label_factors_)


def test_names_of_labels_are_matched(data):
    names = [f"l{j}" for j in range(data.Y.shape[1])]
    frame = pd.DataFrame(data.Y, columns=names)
    plain = first(MAKERS["LEML"], data).partial_fit(data.X[OLD:], data.Y[OLD:], past=(data.X[:OLD], data.Y[:OLD]))
    model = LEML(3, alpha=0.5, **TIGHT).fit(data.X[:OLD], frame.iloc[:OLD, :KNOWN])
    mixed = frame[[*names[KNOWN:], *names[:KNOWN][::-1]]]
    with pytest.raises(ValueError, match="no column 'l2'"):
        model.partial_fit(data.X[OLD:], mixed.iloc[OLD:].drop(columns="l2"))
    with pytest.raises(ValueError, match=r"2 labels without a name.*pass a data frame"):
        model.partial_fit(data.X[OLD:], data.Y[OLD:])
    model.partial_fit(data.X[OLD:], mixed.iloc[OLD:], past=(data.X[:OLD], mixed.iloc[:OLD]))
    np.testing.assert_array_equal(model.label_names_in_, names)
    np.testing.assert_array_equal(model.label_factors_, plain.label_factors_)


def test_labels_of_one_name_are_refused(data):
    """Which of them is meant, nobody could say."""
    frame = pd.DataFrame(data.Y[:, :3], columns=["a", "a", "b"])
    with pytest.raises(ValueError, match="Y has two labels named 'a'"):
        LEML(2).fit(data.X, frame)
    model = LEML(2, random_state=0).fit(data.X, frame.iloc[:, 1:])
    for given in ((data.X, frame), (data.X, frame.iloc[:, 1:], (data.X, frame))):
        with pytest.raises(ValueError, match="two labels named 'a'"):
            model.partial_fit(*given[:2], past=given[2] if len(given) > 2 else None)
    assert model.label_names_in_.tolist() == ["a", "b"]
    older = LEML(2, random_state=0).fit(data.X, data.Y[:, :3])
    older.label_names_in_ = np.array(["a", "a", "b"], object)
    with pytest.raises(ValueError, match="two labels named 'a'"):
        older.partial_fit(data.X, pd.DataFrame(data.Y[:, :3], columns=["a", "b", "c"]))


WRONG = {
    "fewer labels": (lambda d: ((d.X[OLD:], d.Y[OLD:, :3]), {}), "Y has 3 labels and .* has 6"),
    "no labels": (lambda d: ((d.X[OLD:], None), {}), "Y is None"),
    "other features": (lambda d: ((d.X[OLD:, :3], d.Y[OLD:]), {}), "X has 3 features"),
    "other rows": (lambda d: ((d.X[OLD:], d.Y[:3]), {}), "30 rows and Y has 3"),
    "no pair": (lambda d: ((d.X[OLD:], d.Y[OLD:]), {"past": d.X}), "pass past=\\(X, Y\\)"),
    "labels of past": (
        lambda d: ((d.X[OLD:], d.Y[OLD:]), {"past": (d.X[:OLD], d.Y[:OLD, :7])}),
        "past has 7 labels; pass the 6 of the model, or the 8",
    ),
    "alternations": (lambda d: ((d.X[OLD:], d.Y[OLD:]), {"alternations": 0}), "alternations=0"),
    "numbers": (lambda d: ((d.X[OLD:] * 1e200, d.Y[OLD:]), {"past": (d.X[:OLD], d.Y[:OLD])}), "too large"),
}


@pytest.mark.parametrize("name", ["LEML", "OneClassMF"])
@pytest.mark.parametrize(("call", "message"), WRONG.values(), ids=WRONG)
def test_errors_change_nothing(call, message, name, data):
    model = first(MAKERS[name], data)
    before = copy.deepcopy(vars(model))
    given, options = call(data)
    with pytest.raises(ValueError, match=message):
        model.partial_fit(*given, **options)
    assert vars(model).keys() == before.keys()
    np.testing.assert_equal(vars(model), before)


def test_errors_of_recommenders(data):
    Z = np.eye(KNOWN)
    with pytest.raises(ValueError, match="needs a fitted model"):
        OneClassMF().partial_fit(data.X, data.Y, past=(data.X, data.Y))
    model = first(MAKERS["OneClassMF"], data)
    with pytest.raises(ValueError, match=r"X is None, .* with features .* pass their features"):
        model.partial_fit(None, data.Y)
    with pytest.raises(ValueError, match="row_graph needs the earlier rows"):
        model.partial_fit(data.X[OLD:], data.Y[OLD:], row_graph=np.eye(30))
    with pytest.raises(ValueError, match="fitted without label_features"):
        model.partial_fit(data.X[OLD:], data.Y[OLD:], label_features=np.eye(8))
    with pytest.raises(ValueError, match=r"X has features, .* without features .* pass None"):
        MAKERS["OneClassMF"]().fit(None, data.Y).partial_fit(data.X, data.Y)
    with pytest.raises(ValueError, match=r"row_weights has an array of shape \(3,\).* an array of 5"):
        MAKERS["OneClassMF"]().fit(None, data.Y).partial_fit(None, data.Y[:5], row_weights=np.ones(3))
    with pytest.raises(ValueError, match=r"past has 3 rows, .* has 120 training rows"):
        MAKERS["OneClassMF"]().fit(None, data.Y).partial_fit(None, data.Y, past=(None, data.Y[:3]))
    model = MAKERS["OneClassMF"]().fit(data.X[:OLD], data.Y[:OLD, :KNOWN], label_features=Z)
    with pytest.raises(ValueError, match="label_features is missing"):
        model.partial_fit(data.X[OLD:], data.Y[OLD:])
    model = first(MAKERS["LEML"], data)
    del model.memory_
    with pytest.raises(ValueError, match=r"has no summary .* pass past"):
        model.partial_fit(data.X[OLD:], data.Y[OLD:])


def test_an_interrupt_keeps_the_last_whole_alternation(data):
    class Stop:
        def __call__(self, told):
            raise KeyboardInterrupt

    model = first(MAKERS["LEML"], data).set_params(callbacks=[Stop()])
    with pytest.raises(KeyboardInterrupt):
        model.partial_fit(data.X[OLD:], data.Y[OLD:], past=(data.X[:OLD], data.Y[:OLD]))
    assert model.status_ == "stopped"
    assert model.n_labels_ == data.Y.shape[1]
    assert model.predict(data.X).shape == data.Y.shape


@pytest.mark.parametrize("weights", [np.ones((4, 1)), np.arange(1.0, 5.0)[:, None]])
def test_anchor_is_its_quadratic(weights):
    rng = np.random.default_rng(0)
    at, H, S = rng.standard_normal((3, 4, 2))
    half = rng.standard_normal((2, 2))
    anchor = Anchor(at, half @ half.T, weights, 0.3)
    blocks = [w * half @ half.T + 0.3 * np.eye(2) for w in weights.ravel()]
    away = H - at
    assert anchor.value(H) == pytest.approx(0.5 * sum(a @ K @ a for a, K in zip(away, blocks)))
    model = anchor.model(H)
    np.testing.assert_allclose(model.gradient, [K @ a for a, K in zip(away, blocks)])
    np.testing.assert_allclose(model.hessp(S), [K @ s for s, K in zip(S, blocks)])
    ridge = Ridge(0.3, center=at)
    assert ridge.value(H) == pytest.approx(0.15 * (away**2).sum())
    np.testing.assert_allclose(ridge.model(H).gradient, 0.3 * away)


def cells_of(patterns):
    """Sums of squares over the cells of each pattern, weighted by what it stores."""
    kernels = get_backend()
    loss = WeightedLoss(get_loss("squared"), 1.0)
    return CellsSum([KnownCells(kernels, loss, kernels.prepare(sp.csr_array(part), float)) for part in patterns])


def test_remembered_curvature_has_no_least_weight():
    """The blocks of labels add up to those of the sum; one without a cell has none, and may be preconditioned."""
    rng = np.random.default_rng(0)
    patterns = rng.random((2, 40, 6)) * (rng.random((2, 40, 6)) < 0.5)
    patterns[:, :, 2] = 0
    B, H = rng.standard_normal((40, 3)), rng.standard_normal((6, 3))
    data = cells_of(patterns).T.objective_in_left(B)
    form = data.curvature(H)
    total = sum(np.einsum("ij,ia,ib->ab", part, B, B) for part in patterns)
    weights = np.ravel(form.weights)
    np.testing.assert_allclose(weights.sum() * form.M, total, rtol=1e-10)
    assert weights[2] == 0
    assert (np.delete(weights, 2) > MIN_ROW_WEIGHT).all()
    assert isinstance(data, Sum)
    assert np.ravel(data.model(H).kronecker.weights)[2] == MIN_ROW_WEIGHT


def test_remembered_curvature_stays_positive_where_a_term_takes_back():
    """Positives that are settled take back most of what they count among all cells."""
    rng = np.random.default_rng(0)
    positives = sp.csr_array(rng.random((40, 6)) < 0.9)
    B, H = np.abs(rng.standard_normal((40, 3))), np.abs(rng.standard_normal((6, 3))) * 5
    logistic = PositiveUnlabelled(get_loss("logistic"), get_loss("squared"), -1.0, Weights.of(1.0, 0.1))
    form = logistic.bind(positives, get_backend(), float).T.objective_in_left(B).curvature(H)
    assert (np.ravel(form.weights) >= MIN_ROW_WEIGHT).all()


def test_the_constant_feature_is_not_dropped():
    data = make_low_rank(60, 6, 5, rank=2, random_state=0)
    for model in (LEML(2, random_state=0), OneClassMF(2, random_state=0)):
        model.fit(data.X, data.Y)
        with pytest.raises(ValueError, match="fit_intercept=False"):
            model.set_params(fit_intercept=False).partial_fit(data.X, data.Y)
