import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import config_context
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from labelgap import LEML, Labels, OneClassMF, get_scorer, hide_cells
from labelgap.datasets import make_low_rank
from labelgap.metrics import HammingLoss, InstanceAUC, PrecisionAtK, precision_at_k
from labelgap.model_selection import CellKFold, Criterion, MeanLoss, get_criterion, hold_out_rows, select
from labelgap.model_selection.engine import FoldScores, Search


@pytest.fixture(scope="module")
def data():
    """Noiseless planted labels, so that a huge penalty is plainly worse than a small one."""
    return make_low_rank(240, 12, 9, rank=3, labels_per_row=3, random_state=0)


def keys(labels):
    cells = labels.known.tocoo()
    return set(zip(cells.row.tolist(), cells.col.tolist()))


class Spy(LEML):
    """Remembers what each fit was given."""

    fits: list = []  # noqa: RUF012

    def fit(self, X, Y, observed=None):
        Spy.fits.append((X, Y, self.alpha))
        return super().fit(X, Y, observed)


@pytest.fixture(autouse=True)
def _forget():
    Spy.fits.clear()


def test_hold_out_rows_is_a_partition_that_keeps_rows_and_gaps_together():
    Y = np.where(np.random.default_rng(0).random((20, 4)) < 0.5, np.nan, np.arange(20)[:, None] % 2)
    X = np.arange(20.0)[:, None]
    X_train, Y_train, X_valid, Y_valid = hold_out_rows(X, Y, 0.25, random_state=3)
    assert len(Y_valid) == 5
    assert sorted(np.vstack([X_train, X_valid]).ravel()) == list(range(20))
    for part, labels in ((X_train, Y_train), (X_valid, Y_valid)):
        assert isinstance(labels, Labels)
        np.testing.assert_array_equal(labels.toarray(), Y[part.ravel().astype(int)])


def test_hold_out_rows_takes_sparse_features_and_repeats_with_a_seed():
    X, Y = sp.csr_array(np.eye(8)), sp.csr_array(np.eye(8))
    first, second = (hold_out_rows(X, Y, 0.5, random_state=1)[2].toarray() for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("share", [0, 1, -0.1, 1.5])
def test_a_share_that_leaves_a_part_empty_is_refused(share):
    with pytest.raises(ValueError, match="share="):
        hold_out_rows(np.eye(4), np.eye(4), share)


@pytest.mark.parametrize("complete", [True, False])
def test_cell_folds_cover_every_known_cell_once(complete):
    Y = Labels(np.eye(7)) if complete else hide_cells(np.eye(7), 0.6, random_state=0)
    every = {(i, j) for i in range(7) for j in range(7)} if complete else keys(Y)
    held = []
    for train, held_out in CellKFold(4, random_state=0).split(Y):
        assert keys(train) | keys(held_out) == every
        assert not keys(train) & keys(held_out)
        np.testing.assert_array_equal(held_out.positives.toarray() == 1, held_out.toarray() == 1)
        held += keys(held_out)
    assert sorted(held) == sorted(every)


def test_cell_folds_refuse_more_folds_than_cells():
    with pytest.raises(ValueError, match="n_splits=5"):
        list(CellKFold(5).split(np.array([[1.0, np.nan], [0.0, np.nan]])))


@pytest.mark.parametrize("form", ["labels", "nan"])
def test_scikit_learn_splitters_and_searches_take_labels_with_gaps(data, form):
    labels = hide_cells(data.Y, 0.7, random_state=0)
    Y = labels if form == "labels" else labels.toarray()
    scores = cross_val_score(LEML(n_components=3, alpha=0.1), data.X, Y, cv=KFold(3))
    assert scores.min() > 0.7
    search = GridSearchCV(LEML(n_components=3), {"alpha": [1e4, 0.1]}, cv=KFold(3)).fit(data.X, Y)
    assert search.best_params_ == {"alpha": 0.1}


@pytest.mark.parametrize("hold_out", ["rows", "cells"])
@pytest.mark.parametrize("metric", ["P@1", "nDCG@3", "recall@2", "AUC", "F1", "Hamming", "squared error", "loss"])
@pytest.mark.parametrize("complete", [True, False])
def test_select_finds_the_planted_best(data, complete, metric, hold_out):
    Y = data.Y if complete else hide_cells(data.Y, 0.6, random_state=0)
    found = select(
        LEML(n_components=3, random_state=0),
        {"alpha": [1e5, 0.1, 1e4]},
        data.X,
        Y,
        metric=metric,
        hold_out=hold_out,
        random_state=0,
    )
    assert found.params == {"alpha": 0.1}
    assert [row["params"]["alpha"] for row in found.table] == [1e5, 0.1, 1e4]
    assert found.score == found.table[1]["score"]
    whole = LEML(n_components=3, alpha=0.1, random_state=0).fit(data.X, Y)
    np.testing.assert_allclose(found.estimator.decision_function(data.X), whole.decision_function(data.X), rtol=1e-4)


@pytest.mark.parametrize("hold_out", ["rows", "cells"])
def test_candidates_never_see_what_they_are_judged_by(data, hold_out):
    Y = hide_cells(data.Y, 0.5, random_state=0)
    judged = []
    select(
        Spy(n_components=2),
        {"alpha": [0.1, 1.0]},
        data.X,
        Y,
        metric=lambda labels, scores: judged.append((labels, scores)) or len(judged),
        hold_out=hold_out,
        random_state=0,
    )
    assert [alpha for _, _, alpha in Spy.fits] == [0.1, 1.0, 1.0]  # the last is the refit, on everything
    assert Spy.fits[-1][1].n_known == Y.n_known
    train, (held_out, scores) = Spy.fits[0][1], judged[0]
    assert train.n_known + held_out.n_known == Y.n_known
    assert scores.nnz == held_out.n_known
    if hold_out == "cells":
        assert not keys(train) & keys(held_out)
    else:
        rows = {row.tobytes() for row in Spy.fits[0][0]}
        assert len(rows) + len(held_out) == len(data.X)


def test_select_leaves_the_estimator_alone_and_may_skip_the_refit(data):
    estimator = Spy(n_components=2, alpha=7.0)
    found = select(estimator, {"alpha": [0.5]}, data.X, data.Y, refit=False, random_state=0)
    assert estimator.alpha == 7.0
    assert not hasattr(estimator, "label_factors_")
    assert found.estimator is None
    assert len(Spy.fits) == 1
    assert found.table[0]["seconds"] > 0


@pytest.mark.parametrize(
    ("scores", "tried", "best"),
    [
        ([0.2, 0.5, 0.5, 0.1, 0.3, 0.9], 5, 8.0),  # equal scores go to the first; two clearly worse ones end it
        ([0.2, 0.2, 0.199, 0.2, 0.5, 0.9], 6, 0.5),  # a plateau does not
        ([0.3, 0.1, 0.1, 0.1, 0.5, 0.9], 6, 0.5),  # nor does a dip after the first
        ([0.3, 0.1, 0.1, 0.1, 0.1, 0.9], 5, 16.0),  # but four do
    ],
)
def test_patience_ends_a_search_that_gets_worse(data, scores, tried, best):
    scores = iter(scores)
    found = select(
        Spy(n_components=2),
        {"alpha": [16.0, 8.0, 4.0, 2.0, 1.0, 0.5]},
        data.X,
        data.Y,
        metric=lambda labels, _: next(scores),
        patience=2,
        refit=False,
    )
    assert found.params == {"alpha": best}
    assert len(found.table) == tried


def test_an_undefined_score_never_wins(data):
    scores = iter([np.nan, 0.1, np.nan])
    grid = {"alpha": [1.0, 2.0, 3.0]}
    found = select(LEML(n_components=2), grid, data.X, data.Y, metric=lambda *_: next(scores), refit=False)
    assert found.params == {"alpha": 2.0}
    with pytest.raises(ValueError, match="undefined on the held-out part"):
        select(LEML(n_components=2), grid, data.X, data.Y, metric=lambda *_: np.nan)


def test_select_works_through_a_pipeline(data):
    pipeline = make_pipeline(Normalizer(), LEML(n_components=3))
    grid = {"leml__alpha": [1e4, 0.1]}
    for metric in ("loss", "P@1"):
        found = select(pipeline, grid, data.X, hide_cells(data.Y, 0.8, random_state=0), metric=metric, random_state=0)
        assert found.params == {"leml__alpha": 0.1}


def test_absent_unknown_is_honoured(data):
    labels = hide_cells(data.Y, 0.5, random_state=0)
    stored = labels.encode(-1.0, 1.0)
    grid = {"alpha": [0.1, 1.0]}
    one = select(LEML(n_components=2, absent="unknown"), grid, data.X, stored, metric="loss", random_state=0)
    two = select(LEML(n_components=2), grid, data.X, labels, metric="loss", random_state=0)
    assert one.table[0]["score"] == pytest.approx(two.table[0]["score"], rel=1e-5)


def test_blocks_of_rows_change_nothing(data, monkeypatch):
    model = LEML(n_components=3).fit(data.X, data.Y)
    whole = [Criterion(metric).score(model, data.X, Labels(data.Y)) for metric in (InstanceAUC(), HammingLoss())]
    monkeypatch.setattr("labelgap.model_selection.criteria.MAX_SCORES_PER_BLOCK", 50)
    parts = [Criterion(metric).score(model, data.X, Labels(data.Y)) for metric in (InstanceAUC(), HammingLoss())]
    assert parts == pytest.approx(whole)


def test_mean_loss_by_hand():
    Y = np.array([[1, 0, np.nan], [0, np.nan, 1]])
    decisions = np.array([[0.5, -0.5, 9.0], [1.5, 9.0, -0.5]])
    # Squared: scores 1, 0 | 2, 0 against 1, 0 | 0, 1 cost ½ · (0 + 0 + 4 + 1).
    assert MeanLoss("squared").update(Y, decisions).compute() == pytest.approx(2.5 / 4)
    # Squared hinge: margins 0.5, 0.5 | −1.5, −0.5 cost 0.25 + 0.25 + 6.25 + 2.25.
    assert MeanLoss("squared_hinge").update(Y, decisions).compute() == pytest.approx(9.0 / 4)
    assert MeanLoss("logistic").update(Y, decisions).compute() == pytest.approx(
        np.log1p(np.exp([-0.5, -0.5, 1.5, 0.5])).mean()
    )


@pytest.mark.parametrize(
    ("metric", "greater"),
    [("P@3", True), (PrecisionAtK(2), True), (HammingLoss(), False), ("Hamming", False), (precision_at_k, True)],
)
def test_a_criterion_knows_which_end_is_good(metric, greater):
    assert get_criterion(metric).greater_is_better is greater


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "P@0"}, "k=0"),
        ({"metric": "accuracy"}, "metric='accuracy' is not known"),
        ({"hold_out": "columns"}, "hold_out='columns'"),
        ({"share": 1.0}, "share=1.0"),
    ],
)
def test_bad_options_are_named(data, options, message):
    with pytest.raises(ValueError, match=message):
        select(LEML(), {"alpha": [1.0]}, data.X, data.Y, **options)


def test_a_loss_criterion_needs_a_loss():
    with pytest.raises(ValueError, match="Normalizer has none"):
        get_criterion("loss", Normalizer())


def test_of_several_metrics_the_least_shortfall_decides():
    """A wins on the first metric by far and B on the second by little: C, near the best of both, is taken."""
    quality = {"A": (1.0, 0.5), "B": (0.5, 1.0), "C": (0.9, 0.9)}

    class Fixed(BaseEstimator):
        def __init__(self, name="A"):
            self.name = name

        def fit(self, X, Y):
            return self

        def decision_function(self, X):
            return np.full((len(X), 3), ord(self.name))

    measures = [lambda labels, scores, c=c: quality[chr(int(scores[0, 0]))][c] for c in (0, 1)]
    X, Y = np.ones((10, 2)), np.eye(10, 3)
    found = select(Fixed(), {"name": list("ABC")}, X, Y, metric=measures, random_state=0, refit=False)
    assert found.params == {"name": "C"}
    assert found.score == [0.9, 0.9]
    undefined = [*measures, lambda labels, scores: np.nan]
    again = select(Fixed(), {"name": list("ABC")}, X, Y, metric=undefined, random_state=0, refit=False)
    assert again.params == {"name": "C"}


# --- rows that candidates share -------------------------------------------------------------------------------------


class Scaled(LEML):
    """Validates rows in its own way, by a parameter of its own."""

    def __init__(self, n_components=None, *, alpha=1.0, scale=1.0, random_state=None):
        super().__init__(n_components, alpha=alpha, random_state=random_state)
        self.scale = scale

    def _check_rows(self, X, *, reset=False):
        return super()._check_rows(X, reset=reset) * self.scale


class Kernel:
    """A kernel that compares equal to others of its kind, and so has no hash."""

    def __call__(self, X, rows):
        return X @ rows.T

    def __eq__(self, other):
        return type(other) is Kernel


def test_a_subclass_with_its_own_validation_shares_nothing(data):
    options = {"metric": "squared error", "random_state": 0, "refit": False}
    both = select(Scaled(2, random_state=0), {"scale": [1.0, 1e-3]}, data.X, data.Y, **options)
    alone = select(Scaled(2, scale=1e-3, random_state=0), {"alpha": [1.0]}, data.X, data.Y, **options)
    assert both.table[1]["score"] == alone.table[0]["score"] != both.table[0]["score"]


@pytest.mark.parametrize("axis", ["fit_intercept", "gamma", "dtype"])
def test_parameters_that_change_what_is_bound(data, axis):
    values = {"fit_intercept": [True, False], "gamma": [0.1, 5.0], "dtype": ["float32", "float64"]}[axis]
    estimator = LEML(2, kernel="rbf" if axis == "gamma" else "linear", random_state=0)
    options = {"metric": "squared error", "random_state": 0, "refit": False}
    together = select(estimator, {axis: values}, data.X, data.Y, **options)
    alone = [select(estimator, {axis: [value]}, data.X, data.Y, **options).score for value in values]
    assert [row["score"] for row in together.table] == alone


def test_a_kernel_of_training_rows_must_be_square_in_a_search_too(data):
    with pytest.raises(ValueError, match="n×n kernel matrix"):
        select(LEML(2, kernel="precomputed"), {"alpha": [0.1]}, data.X @ data.X.T, data.Y, random_state=0)


def test_a_kernel_without_a_hash_is_searched(data):
    found = select(LEML(2, kernel=Kernel(), random_state=0), {"alpha": [0.1, 1.0]}, data.X, data.Y, random_state=0)
    assert [row["error"] for row in found.table] == [None, None]


def test_an_empty_grid_is_refused(data):
    with pytest.raises(ValueError, match="grid has no candidates"):
        select(LEML(2), [], data.X, data.Y)


# --- candidates that cannot win -------------------------------------------------------------------------------------


def make_race(scores, **options):
    """A search whose candidates have these scores on each fold, and the folds that were fitted."""
    fitted = []

    def fit(params):
        for number, score in enumerate(scores[params["a"]]):
            fitted.append((params["a"], number))
            yield FoldScores(np.array([[score]]))

    return Search(fit, [True], **options), fitted


def test_a_candidate_that_is_clearly_worse_on_the_first_folds_is_dropped():
    search, fitted = make_race([[0.5, 0.7, 0.6], [0.4, 0.9, 0.9], [0.5, 0.6, 0.9], [0.49, 0.7, 0.7]], margin=0.05)
    for a in range(4):
        search.try_candidate({"a": a})
    assert fitted == [(0, 0), (0, 1), (0, 2), (1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)]
    assert [row["folds"] for row in search.table] == [3, 1, 2, 3]
    # Differences on the same folds, plus the best one's mean over all folds.
    assert [row["score"][0] for row in search.table] == pytest.approx([0.6, 0.5, 0.55, 0.63])
    assert search.best_index == 3


def test_without_a_margin_and_in_parallel_every_fold_is_fitted():
    search, fitted = make_race([[0.5, 0.5], [0.1, 0.1]], margin=None)
    for a in range(2):
        search.try_candidate({"a": a})
    assert len(fitted) == 4
    search, fitted = make_race([[0.5, 0.5], [0.1, 0.1]])
    assert len(list(search.try_in_parallel([{"a": 0}, {"a": 1}]))) == 2
    assert len(fitted) == 4


def test_the_first_of_about_equally_good_stages_is_chosen():
    curve = np.array([[0.3], [0.499], [0.5], [0.2]])
    for margin, stage in ((0.0, 2), (0.01, 1)):
        search = Search(lambda params: [FoldScores(curve)], [True], stage_margin=margin)
        assert search.try_candidate({})["stage"] == stage


# --- scikit-learn's metadata routing --------------------------------------------------------------------------------


@pytest.fixture
def routed():
    data = make_low_rank(60, 6, 5, rank=2, random_state=0)
    observed = np.random.RandomState(0).rand(*data.Y.shape) < 0.6
    with config_context(enable_metadata_routing=True):
        yield data.X, data.Y.toarray(), observed


def test_a_mask_is_routed_through_a_pipeline(routed):
    X, Y, observed = routed
    model = LEML(2, random_state=0).set_fit_request(observed=True)
    pipeline = make_pipeline(Normalizer(), model).fit(X, Y, observed=observed)
    rows = Normalizer().fit_transform(X)
    direct = clone(model).fit(rows, Y, observed=observed).decision_function(rows)
    np.testing.assert_array_equal(pipeline.decision_function(X), direct)
    assert np.abs(direct - clone(model).fit(rows, Y).decision_function(rows)).max() > 0.01


def test_a_search_splits_a_mask_with_the_rows(routed):
    X, Y, observed = routed
    model = LEML(2, random_state=0).set_fit_request(observed=True).set_score_request(observed=True)
    routed_search = GridSearchCV(model, {"alpha": [0.1, 1.0]}, cv=2).fit(X, Y, observed=observed)
    with_gaps = np.where(observed, Y, np.nan)
    plain_search = GridSearchCV(LEML(2, random_state=0), {"alpha": [0.1, 1.0]}, cv=2).fit(X, with_gaps)
    np.testing.assert_array_equal(
        routed_search.cv_results_["mean_test_score"], plain_search.cv_results_["mean_test_score"]
    )


def test_a_search_over_a_pipeline_routes_a_mask_and_scores_known_cells(routed):
    X, Y, observed = routed
    pipeline = make_pipeline(Normalizer(), LEML(2, random_state=0).set_fit_request(observed=True))
    search = GridSearchCV(pipeline, {"leml__alpha": [0.1, 1.0]}, cv=2, scoring=get_scorer("AUC"))
    search.fit(X, np.where(observed, Y, np.nan), observed=observed)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@pytest.mark.parametrize("name", ["row_graph", "sample_weight"])
def test_graphs_and_weights_are_routed_through_a_pipeline(routed, name):
    X, Y, _ = routed
    value = {"row_graph": np.eye(60)[::-1], "sample_weight": np.linspace(0.1, 3, 60)}[name]
    model = OneClassMF(2, random_state=0).set_fit_request(**{name: True})
    pipeline = make_pipeline(Normalizer(), model).fit(X, Y, **{name: value})
    rows = Normalizer().fit_transform(X)
    direct = clone(model).fit(rows, Y, **{name: value}).decision_function(rows)
    np.testing.assert_array_equal(pipeline.decision_function(X), direct)
    assert np.abs(direct - clone(model).fit(rows, Y).decision_function(rows)).max() > 1e-3


def test_weights_are_split_with_the_rows_and_a_label_graph_is_not(routed):
    X, Y, _ = routed
    sides = {"sample_weight": np.linspace(0.1, 3, 60), "label_graph": np.ones((5, 5)) - np.eye(5)}
    model = OneClassMF(2, random_state=0).set_fit_request(sample_weight=True, label_graph=True)
    model.set_score_request(sample_weight=True)
    folds = cross_validate(model, X, Y, params=sides, cv=2, return_estimator=True, return_indices=True)
    for fitted, train in zip(folds["estimator"], folds["indices"]["train"], strict=True):
        weights, graph = sides["sample_weight"][train], sides["label_graph"]
        again = clone(model).fit(X[train], Y[train], sample_weight=weights, label_graph=graph)
        np.testing.assert_array_equal(fitted.decision_function(X), again.decision_function(X))
