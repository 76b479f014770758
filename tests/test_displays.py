"""Displays: the numbers that are drawn, by brute force; whose axes they are drawn into; what they refuse."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from labelgap import (
    LEML,
    SLEEC,
    BinaryRelevance,
    EmbeddingDisplay,
    FrequencyDisplay,
    Labels,
    ObjectiveDisplay,
    ObjectiveRecorder,
    OneClassMF,
    PathDisplay,
    ReliabilityDisplay,
    Tagger,
    complete,
    hide_cells,
)
from labelgap.datasets import make_low_rank
from labelgap.displays import PALETTE, base, new_figure
from labelgap.metrics import precision_at_k
from labelgap.model_selection import hold_out_rows, select, tune

mpl.use("Agg")


@pytest.fixture(autouse=True)
def _no_pyplot_figures():
    """No display leaves a figure with pyplot."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        assert sys.modules["matplotlib.pyplot"].get_fignums() == []


@pytest.fixture(scope="module")
def data():
    return make_low_rank(200, 12, 10, rank=3, noise=0.3, random_state=0)


@pytest.fixture(scope="module")
def leml(data):
    return LEML(3, random_state=0, n_jobs=1).fit(data.X, data.Y)


def drawn(display):
    return np.asarray(display.line_.get_xdata()), np.asarray(display.line_.get_ydata())


def ticks(display):
    return [tick.get_text() for tick in display.ax_.get_xticklabels()]


def legend(display):
    return [text.get_text() for text in display.ax_.get_legend().get_texts()]


# --- P@k by label frequency -----------------------------------------------------------------------------------------


def brute_force_bins(Y, scores, frequencies, edges, k):
    """Count cell by cell: Y has NaN where it is unknown; return each measure for each bin."""
    counts = {b: np.zeros(3) for b in range(len(edges) - 1)}  # hits, predicted, positives
    n_rows = 0
    for y, s in zip(Y, scores):
        known = [j for j in range(len(y)) if not np.isnan(y[j])]
        if not any(y[j] == 1 for j in known):
            continue
        n_rows += 1
        best = sorted(known, key=lambda j: (-s[j], j))[:k]
        for j in known:
            b = next(b for b in counts if edges[b] <= frequencies[j] < edges[b + 1])
            counts[b] += [j in best and y[j] == 1, j in best, y[j] == 1]
    table = np.array(list(counts.values()))
    return {
        "contribution": table[:, 0] / (k * n_rows),
        "precision": table[:, 0] / table[:, 1],
        "recall": table[:, 0] / table[:, 2],
    }


@pytest.mark.parametrize("measure", ["contribution", "recall", "precision"])
@pytest.mark.parametrize("gaps", [False, True])
def test_bins_hold_what_counting_gives(measure, gaps):
    rng = np.random.default_rng(1)
    Y = (rng.random((60, 12)) < 0.3).astype(float)
    if gaps:
        Y[rng.random(Y.shape) < 0.3] = np.nan
    scores, frequencies = rng.standard_normal(Y.shape).round(1), rng.integers(0, 200, 12)
    edges = [0, 20, 60, 120, 200]
    shown = FrequencyDisplay.from_predictions(
        Y, scores, frequencies=frequencies, k=3, measure=measure, bins=edges, name="random"
    )
    expected = brute_force_bins(Y, scores, frequencies, edges, 3)[measure]
    np.testing.assert_allclose(shown.values, expected)
    x, y = drawn(shown)
    np.testing.assert_array_equal(x, np.arange(4))
    np.testing.assert_allclose(y, expected)
    assert shown.n_labels.tolist() == np.histogram(frequencies, edges)[0].tolist()
    assert legend(shown) == [f"random (P@3 = {precision_at_k(Y, scores, 3):.3f})"]
    if measure == "contribution":
        assert shown.values.sum() == pytest.approx(precision_at_k(Y, scores, 3))


def test_scores_may_be_dense_sparse_or_the_best_of_each_row(data, leml):
    X, Y = data.X[:50], data.Y[:50]
    options = {"Y_train": data.Y, "k": 3, "bins": 3}
    by_model = FrequencyDisplay.from_estimator(leml, X, Y, **options)
    by_scores = FrequencyDisplay.from_predictions(Y, leml.decision_function(X), **options)
    by_best = FrequencyDisplay.from_predictions(Y.toarray(), leml.predict_topk(X, 3), **options)
    assert by_model.name == "LEML"
    np.testing.assert_array_equal(by_model.values, by_scores.values)
    np.testing.assert_array_equal(by_model.values, by_best.values)
    gaps = hide_cells(Y, 0.5, random_state=0)
    by_known = FrequencyDisplay.from_estimator(leml, X, gaps, **options)
    np.testing.assert_array_equal(
        by_known.values, FrequencyDisplay.from_predictions(gaps, leml.known_scores(X, gaps), **options).values
    )
    assert by_known.precision_at_k == pytest.approx(precision_at_k(gaps, leml.decision_function(X), 3))


def test_bins_are_logarithmic_and_labels_without_positives_have_their_own():
    frequencies = [0, 0, 1, 4, 30, 99]
    Y = np.eye(6)
    shown = FrequencyDisplay.from_predictions(Y, Y, frequencies=frequencies, k=1, bins=2, measure="recall")
    assert shown.edges.tolist() == [0, 1, 10, 100]
    assert ticks(shown) == ["0\n(2)", "1–9\n(2)", "10–99\n(2)"]
    assert drawn(shown)[1].tolist() == [1, 1, 1]
    # An empty bin is left out of the plot, and one without test positives has no recall.
    gone = FrequencyDisplay.from_predictions(
        Y * [1, 1, 1, 1, 1, 0], Y, frequencies=frequencies, k=1, bins=[0, 1, 50, 80, 100], measure="recall"
    )
    assert ticks(gone) == ["0\n(2)", "1–49\n(3)", "80–99\n(1)"]
    assert np.isnan(drawn(gone)[1]).tolist() == [False, False, True]
    none = FrequencyDisplay.from_predictions(Y, Y, frequencies=np.zeros(6), k=1)
    assert ticks(none) == ["0\n(6)"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "either frequencies"),
        ({"frequencies": [1, 2], "Y_train": np.eye(2)}, "either frequencies"),
        ({"frequencies": [1, 2, 3]}, "each of the 2 labels"),
        ({"frequencies": [1, -2]}, "0 or more"),
        ({"frequencies": [1, 2], "k": 0}, "k=0"),
        ({"frequencies": [1, 2], "measure": "recal"}, "measure='recal'"),
        ({"frequencies": [1, 2], "bins": [2, 3]}, "so that every label has a bin"),
        ({"frequencies": [1, 2], "bins": [3, 1]}, "rising sequence"),
        ({"frequencies": [1, 2], "bins": 0}, "bins=0"),
    ],
)
def test_a_frequency_display_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        FrequencyDisplay.from_predictions(np.eye(2), np.eye(2), **({"k": 1} | options))


def test_other_bins_do_not_go_into_the_same_plot():
    first = FrequencyDisplay.from_predictions(np.eye(2), np.eye(2), frequencies=[1, 50], k=1, bins=2)
    with pytest.raises(ValueError, match="same training positives"):
        FrequencyDisplay.from_predictions(np.eye(2), np.eye(2), frequencies=[1, 90], k=1, bins=2, ax=first.ax_)


# --- reliability ----------------------------------------------------------------------------------------------------


def brute_force_reliability(Y, probabilities, n_bins):
    cells = [(p, y) for p, y in zip(probabilities.ravel(), Y.ravel()) if not np.isnan(y)]
    found, error = [], 0.0
    for b in range(n_bins):
        inside = [(p, y) for p, y in cells if b / n_bins <= p < (b + 1) / n_bins or (p == 1 and b == n_bins - 1)]
        if inside:
            p, y = np.mean(inside, axis=0)
            found.append((p, y, len(inside) / len(cells)))
            error += len(inside) / len(cells) * abs(p - y)
    return np.array(found), error


def test_the_reliability_curve_is_what_counting_gives():
    rng = np.random.default_rng(0)
    probabilities = np.concatenate([rng.random((40, 5)) ** 3, np.ones((1, 5)), np.zeros((1, 5))])
    Y = (rng.random(probabilities.shape) < probabilities).astype(float)
    Y[rng.random(Y.shape) < 0.3] = np.nan
    shown = ReliabilityDisplay.from_predictions(Y, probabilities, n_bins=7, name="mine")
    expected, error = brute_force_reliability(Y, probabilities, 7)
    np.testing.assert_allclose(np.column_stack(drawn(shown)), expected[:, :2])
    np.testing.assert_allclose(shown.shares, expected[:, 2])
    assert shown.calibration_error == pytest.approx(error)
    assert legend(shown) == [f"mine (ECE {error:.3f})"]
    heights = shown.histogram_ax_.patches[-1].get_data().values
    np.testing.assert_allclose(heights[heights > 1e-9], expected[:, 2])
    assert shown.histogram_ax_.patches[-1].get_data().edges.tolist() == np.linspace(0, 1, 8).tolist()
    # A sparse matrix of the known cells says the same.
    labels = Labels(Y)
    known = labels.known.toarray()
    stored = sp.csr_array((probabilities[known], labels.known.indices, labels.known.indptr), shape=Y.shape)
    again = ReliabilityDisplay.from_predictions(labels, stored, n_bins=7, ax=shown.ax_)
    np.testing.assert_array_equal(again.rates, shown.rates)
    assert again.histogram_ax_ is shown.histogram_ax_
    assert len(shown.ax_.lines) == 3  # one diagonal and two curves


def test_only_probabilities_are_drawn():
    data = make_low_rank(60, 5, 3, rank=2, labels_per_row=1, noise=0.3, random_state=0)
    leml = LEML(2, random_state=0).fit(data.X, data.Y)
    logistic = BinaryRelevance(loss="logistic", n_jobs=1).fit(data.X, data.Y)
    own = ReliabilityDisplay.from_estimator(logistic, data.X, data.Y)
    by_hand = 1 / (1 + np.exp(-logistic.decision_function(data.X).astype(float)))
    np.testing.assert_allclose(own.rates, ReliabilityDisplay.from_predictions(data.Y, by_hand).rates)
    peer = OneVsRestClassifier(LogisticRegression()).fit(data.X, data.Y.toarray())
    many = MultiOutputClassifier(LogisticRegression()).fit(data.X, data.Y.toarray())
    one, other = (ReliabilityDisplay.from_estimator(model, data.X, data.Y) for model in (peer, many))
    np.testing.assert_allclose(one.probabilities, other.probabilities)
    with pytest.raises(ValueError, match="LEML has scores and no probabilities"):
        ReliabilityDisplay.from_estimator(leml, data.X, data.Y)
    one_class = OneClassMF(2, loss="logistic", random_state=0).fit(data.X, data.Y)
    with pytest.raises(ValueError, match="OneClassMF has scores"):
        ReliabilityDisplay.from_estimator(one_class, data.X, data.Y)
    with pytest.raises(ValueError, match=r"from -0\.5 to 1 at the known cells"):
        ReliabilityDisplay.from_predictions([[1, 0]], [[1.0, -0.5]])
    with pytest.raises(ValueError, match="n_bins=0"):
        ReliabilityDisplay.from_predictions([[1, 0]], [[1.0, 0.5]], n_bins=0)


def test_what_complete_reports_is_drawn(data):
    filled = complete(data.X, hide_cells(data.Y, 0.6, random_state=0), LEML(3, random_state=0), random_state=0)
    shown = ReliabilityDisplay.from_completed(filled, name="complete")
    np.testing.assert_array_equal(np.column_stack([*drawn(shown), shown.shares]), filled.reliability)
    assert legend(shown) == [f"complete (ECE {filled.calibration_error:.3f})"]


# --- objective ------------------------------------------------------------------------------------------------------


def test_a_fit_is_followed(data):
    told = []
    model = LEML(3, random_state=0, n_jobs=1, callbacks=[lambda it: told.append(it.objective) and None])
    gaps = hide_cells(data.Y, 0.7, random_state=0)
    shown = ObjectiveDisplay.from_estimator(model, data.X, gaps)
    expected = LEML(3, random_state=0, n_jobs=1).fit(data.X, gaps).objective_
    assert not hasattr(model, "objective_")
    assert len(model.callbacks) == 1
    assert told == expected
    seconds, objective = drawn(shown)
    assert objective.tolist() == expected
    assert (np.diff([0, *seconds]) > 0).all()
    assert shown.ax_.get_xlim()[0] == 0
    assert (shown.ax_.get_xlabel(), legend(shown)) == ("seconds", ["LEML"])
    again = shown.plot(against="iterations", name="other")
    assert again.line_.get_xdata().tolist() == list(range(1, len(expected) + 1))
    assert again.ax_.get_xlabel() == "iteration"


def test_a_pipeline_is_followed(data):
    model = make_pipeline(StandardScaler(), LEML(2, random_state=0))
    shown = ObjectiveDisplay.from_estimator(model, data.X, data.Y, against="iterations")
    assert shown.name == "LEML"
    assert model[-1].callbacks is None
    assert shown.objective[-1] <= shown.objective[0]


def test_objectives_relative_to_the_best():
    shown = ObjectiveDisplay.from_history([4.0, 3.0, 2.0], best=2.0, name="a")
    assert shown.ax_.get_yscale() == "log"
    np.testing.assert_array_equal(drawn(shown)[1], [1.0, 0.5, np.nan])
    with pytest.raises(ValueError, match="best=0"):
        shown.plot(best=0)


def test_a_recorder_is_of_one_fit(data):
    record = ObjectiveRecorder()
    model = LEML(2, random_state=0, callbacks=[record])
    model.fit(data.X, data.Y)
    assert repr(record) == f"ObjectiveRecorder({model.n_iter_} iterations)"
    with pytest.raises(ValueError, match="another fit; make one for each"):
        model.fit(data.X, data.Y)
    record.start()
    model.fit(data.X, data.Y)
    assert record.objective == model.objective_


def test_an_objective_display_refuses(data):
    with pytest.raises(ValueError, match="SLEEC has no callbacks"):
        ObjectiveDisplay.from_estimator(SLEEC(2), data.X, data.Y)
    for wrong in ([], [1.0, np.nan], [[1.0]], "fast"):
        with pytest.raises(ValueError, match="not a sequence of finite numbers"):
            ObjectiveDisplay.from_history(wrong)
    with pytest.raises(ValueError, match="needs times"):
        ObjectiveDisplay.from_history([1.0], against="seconds")
    with pytest.raises(ValueError, match="against='hours'"):
        ObjectiveDisplay.from_history([1.0], against="hours")


# --- regularization path --------------------------------------------------------------------------------------------


def test_a_path_is_what_fits_by_hand_give(data):
    values, gaps = [100.0, 0.1, 5.0], hide_cells(data.Y, 0.7, random_state=0)
    shown = PathDisplay.from_estimator(
        LEML(3, random_state=0), data.X, gaps, values=values, metric="P@1", size="rank", random_state=3
    )
    X_train, Y_train, X_valid, Y_valid = hold_out_rows(data.X, gaps, 0.2, random_state=3)
    scores, ranks = [], []
    for alpha in sorted(values):
        model = LEML(3, alpha=alpha, random_state=0).fit(X_train, Y_train)
        scores.append(precision_at_k(Y_valid, model.decision_function(X_valid)))
        singular = np.linalg.svd(model.feature_factors_ @ model.label_factors_.T, compute_uv=False)
        ranks.append(int((singular > 1e-3 * singular[0]).sum()) if singular[0] > 1e-9 else 0)
    x, y = drawn(shown)
    assert x.tolist() == sorted(values)
    assert y.tolist() == scores
    assert shown.sizes.tolist() == ranks
    assert shown.sizes_ax_.lines[0].get_ydata().tolist() == ranks
    assert shown.best == int(np.argmax(scores))
    assert shown.ax_.get_xscale() == "log"
    assert (shown.ax_.get_xlabel(), shown.ax_.get_ylabel()) == ("alpha", "P@1")
    ring = shown.ax_.collections[-1].get_offsets()[0]
    assert ring.tolist() == [x[shown.best], y[shown.best]]


def test_a_path_of_sparse_weights(data):
    shown = PathDisplay.from_estimator(
        BinaryRelevance(alpha=0, n_jobs=1),
        data.X,
        data.Y,
        param_name="l1",
        values=[1.0, 8.0, 30.0],
        metric="Hamming",
        size="nonzeros",
        random_state=0,
    )
    assert (np.diff(shown.sizes) < 0).all()
    assert shown.best == int(np.argmin(shown.scores))  # less is better
    again = PathDisplay(shown.values, shown.scores, best=0, sizes=shown.sizes, size="nonzeros", name="again")
    again.plot(shown.ax_)
    assert again.sizes_ax_ is shown.sizes_ax_
    assert again.line_.get_color() != shown.line_.get_color()


def test_a_selection_is_drawn_along_one_parameter(data):
    grid = {"alpha": [0.1, 1.0, 50.0], "n_components": [1, 3]}
    found = select(LEML(random_state=0), grid, data.X, data.Y, metric=["P@1", "Hamming"], random_state=0)
    shown = PathDisplay.from_selection(found, param_name="alpha", metric="Hamming loss", column=1)
    rows = [row for row in found.table if row["params"]["n_components"] == found.params["n_components"]]
    expected = {row["params"]["alpha"]: row["score"][1] for row in rows}
    assert dict(zip(*drawn(shown))) == expected
    assert shown.values[shown.best] == found.params["alpha"]
    assert shown.ax_.get_ylabel() == "Hamming loss"
    with pytest.raises(ValueError, match="2 parameters, alpha, n_components; pass one"):
        PathDisplay.from_selection(found)
    with pytest.raises(ValueError, match="param_name='beta' was not searched"):
        PathDisplay.from_selection(found, param_name="beta")
    one = SimpleNamespace(
        params={"alpha": 2.0}, estimator=None, table=[{"params": {"alpha": a}, "score": a / 4} for a in (2.0, 1.0)]
    )
    tuned = tune(LEML(2, random_state=0), data.X, data.Y, grid={"alpha": [0.1, 5.0]}, metric="nDCG@3", random_state=0)
    assert PathDisplay.from_selection(tuned).ax_.get_ylabel() == "nDCG@3"
    only = PathDisplay.from_selection(one)
    assert drawn(only)[1].tolist() == [0.25, 0.5]
    assert only.ax_.get_xscale() == "linear"


def test_a_path_display_refuses(data):
    options = {"values": [1.0], "random_state": 0}
    with pytest.raises(ValueError, match="size='rnk'"):
        PathDisplay.from_estimator(LEML(2), data.X, data.Y, size="rnk", **options)
    with pytest.raises(ValueError, match="values="):
        PathDisplay.from_estimator(LEML(2), data.X, data.Y, values=["low", "high"])
    with pytest.raises(ValueError, match="size='rank' needs a model with factors, and BinaryRelevance"):
        PathDisplay.from_estimator(BinaryRelevance(), data.X, data.Y, size="rank", **options)
    with pytest.raises(ValueError, match="size='nonzeros' needs a model with coef_, and LEML"):
        PathDisplay.from_estimator(LEML(2), data.X, data.Y, size="nonzeros", **options)
    nothing = np.zeros((200, 2))
    with pytest.raises(ValueError, match="undefined for every value"):
        PathDisplay.from_estimator(LEML(2, random_state=0), data.X, nothing, size="rank", **options)


# --- embeddings -----------------------------------------------------------------------------------------------------


def distances(points):
    return np.linalg.norm(points[:, None] - points[None], axis=2)


def test_factors_of_rank_two_keep_their_distances():
    rng = np.random.default_rng(0)
    factors = rng.standard_normal((20, 2)) @ rng.standard_normal((2, 5)) + 3
    shown = EmbeddingDisplay.from_factors(factors)
    np.testing.assert_allclose(distances(np.asarray(shown.points_.get_offsets())), distances(factors), atol=1e-10)
    assert shown.explained.sum() == pytest.approx(1)
    variances = shown.points.var(axis=0)
    np.testing.assert_allclose(variances / factors.var(axis=0).sum(), shown.explained)
    line = EmbeddingDisplay.from_factors([[1.0], [2.0], [4.0]])
    np.testing.assert_allclose(line.points, [[-4 / 3, 0], [-1 / 3, 0], [5 / 3, 0]])


def test_labels_and_rows_of_an_estimator(data, leml):
    of_labels = EmbeddingDisplay.from_estimator(leml, Y=data.Y)
    H = leml.label_factors_.astype(float)
    np.testing.assert_allclose(of_labels.points, EmbeddingDisplay.from_factors(H).points, atol=1e-6)
    np.testing.assert_array_equal(of_labels.frequencies, data.Y.toarray().sum(axis=0))
    areas = of_labels.points_.get_sizes()
    assert np.argmax(areas) == np.argmax(of_labels.frequencies)
    of_rows = EmbeddingDisplay.from_estimator(leml, data.X[:30], Y=data.Y[:30])
    B = data.X[:30] @ leml.feature_factors_ + leml.intercept_factors_
    np.testing.assert_allclose(
        distances(of_rows.points), distances(EmbeddingDisplay.from_factors(B).points), atol=1e-4
    )
    np.testing.assert_array_equal(of_rows.frequencies, data.Y[:30].toarray().sum(axis=1))
    scaled = make_pipeline(StandardScaler(), LEML(3, random_state=0)).fit(data.X, data.Y)
    assert EmbeddingDisplay.from_estimator(scaled, data.X[:7]).points.shape == (7, 2)


def test_the_most_frequent_labels_have_names_that_do_not_overlap():
    rng = np.random.default_rng(0)
    names = [f"label number {j}" for j in range(80)]
    frequencies = rng.permutation(80)
    factors = rng.standard_normal((80, 3))
    shown = EmbeddingDisplay.from_factors(factors, frequencies=frequencies, names=names, n_names=40)
    shown.figure_.draw_without_rendering()
    boxes = [text.get_window_extent() for text in shown.texts_]
    assert 10 < len(boxes) < 40
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    rank = {names[j]: 79 - frequencies[j] for j in range(80)}
    written = [rank[text.get_text()] for text in shown.texts_]
    assert written == sorted(written)
    assert written[0] == 0
    assert max(written) < 40
    assert EmbeddingDisplay.from_factors(np.eye(3), names=["a", "b", "c"], n_names=0).texts_ == []


def test_a_tagger_brings_its_names():
    texts = ["chewy cookies", "crisp cookies", "smoked bacon", "crisp bacon", "bacon cookies"] * 4
    tags = [[1, 0, 0], [1, 0, 1], [0, 1, 0], [0, 1, 1], [1, 1, 0]] * 4
    tagger = Tagger(LEML(2, random_state=0), label_names=["baking", "meat", "crisp"]).fit(texts, tags)
    shown = EmbeddingDisplay.from_estimator(tagger)
    assert {text.get_text() for text in shown.texts_} == {"baking", "meat", "crisp"}
    assert EmbeddingDisplay.from_estimator(tagger, texts[:5]).points.shape == (5, 2)


def test_tsne_keeps_who_is_near():
    rng = np.random.default_rng(0)
    group = np.repeat([0, 1, 2], 12)
    factors = np.eye(3)[group] * rng.uniform(1, 5, (36, 1)) + 0.05 * rng.standard_normal((36, 3))
    factors[0] = 0  # a label that the penalty has emptied has no angle
    shown = EmbeddingDisplay.from_factors(factors, method="tsne")
    apart = distances(shown.points)
    np.fill_diagonal(apart, np.inf)
    nearest = group[apart.argmin(axis=1)]
    assert (nearest == group)[1:].all()
    assert shown.explained is None
    assert shown.ax_.get_xlabel() == "t-SNE axis 1"


def test_an_embedding_display_refuses(data):
    with pytest.raises(ValueError, match="SLEEC has no label_factors_"):
        EmbeddingDisplay.from_estimator(SLEEC(2, random_state=0, n_neighbors=3).fit(data.X, data.Y))
    for wrong in (np.zeros(3), np.zeros((1, 2)), [[np.nan, 1.0], [0.0, 0.0]]):
        with pytest.raises(ValueError, match="factors has shape"):
            EmbeddingDisplay.from_factors(wrong)
    with pytest.raises(ValueError, match="each of the 2 points"):
        EmbeddingDisplay.from_factors(np.eye(2), frequencies=[1, 2, 3])
    with pytest.raises(ValueError, match="1 names for 2 points"):
        EmbeddingDisplay.from_factors(np.eye(2), names=["one"])
    with pytest.raises(ValueError, match="method='umap'"):
        EmbeddingDisplay.from_factors(np.eye(2), method="umap")


# --- what all share -------------------------------------------------------------------------------------------------

DISPLAYS = [
    lambda **kw: FrequencyDisplay.from_predictions(np.eye(2), np.eye(2), frequencies=[1, 50], k=1, **kw),
    lambda **kw: ReliabilityDisplay.from_predictions([[1, 0], [0, 1]], [[0.9, 0.2], [0.4, 0.6]], **kw),
    lambda **kw: ObjectiveDisplay.from_history([3.0, 2.0], **kw),
    lambda **kw: PathDisplay(np.array([1.0, 2.0]), np.array([0.1, 0.2]), best=1).plot(**kw),
]


@pytest.mark.parametrize("make", DISPLAYS)
def test_axes_of_the_user_and_matplotlib_options(make):
    figure, (left, right) = new_figure(2)
    shown = make(ax=right, c="red", lw=3)
    assert shown.ax_ is right
    assert shown.figure_ is figure
    assert not left.lines
    assert (shown.line_.get_color(), shown.line_.get_linewidth()) == ("red", 3)
    second, third = make(ax=left), make(ax=left)
    assert [second.line_.get_color(), third.line_.get_color()] == list(PALETTE[:2])
    assert second.line_.get_marker() != third.line_.get_marker()
    own = make()
    assert own.figure_ is not figure
    assert own._repr_png_().startswith(b"\x89PNG")


@pytest.mark.parametrize("make", DISPLAYS)
def test_a_grid_of_axes_is_no_axes(make):
    with pytest.raises(TypeError, match="ax is a list; pass one matplotlib Axes"):
        make(ax=new_figure(2)[1])


def test_a_later_and_larger_curve_is_not_cut_off():
    small, large = (SimpleNamespace(objective=[2.0, 1.0], seconds=[1.0, last]) for last in (2.0, 30.0))
    first = ObjectiveDisplay.from_history(small)
    ObjectiveDisplay.from_history(large, ax=first.ax_)
    assert first.ax_.get_xlim()[0] == 0
    assert first.ax_.get_xlim()[1] > 30
    options = {"frequencies": [1, 1], "k": 1, "measure": "recall"}
    half = FrequencyDisplay.from_predictions(np.eye(2), [[1.0, 0.0], [1.0, 0.0]], **options)
    FrequencyDisplay.from_predictions(np.eye(2), np.eye(2), ax=half.ax_, **options)
    assert half.ax_.get_ylim()[0] == 0
    assert half.ax_.get_ylim()[1] > 1


def test_colours_go_round_and_stay_apart():
    ax = new_figure()[1][0]
    colours = [ObjectiveDisplay.from_history([2.0, 1.0], ax=ax).line_.get_color() for _ in range(len(PALETTE) + 1)]
    assert colours == [*PALETTE, PALETTE[0]]
    assert ObjectiveDisplay(np.ones(1))._repr_png_() is None


def test_a_missing_matplotlib_is_said_before_the_work(data, monkeypatch):
    def gone(package, extra):
        raise ImportError(f"{package}: pip install labelgap[{extra}]")

    monkeypatch.setattr(base, "import_optional", gone)
    model = LEML(2)
    model.fit = None  # never reached
    with pytest.raises(ImportError, match=r"labelgap\[plot\]"):
        ObjectiveDisplay.from_estimator(model, data.X, data.Y)
