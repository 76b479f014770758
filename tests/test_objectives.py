"""Objectives against a dense brute force and finite differences, from both sides, on every form of cells."""

import numpy as np
import pytest
import scipy.sparse as sp

from labelgap.kernels import cpu
from labelgap.losses import LOSSES
from labelgap.objectives import Features, Problem, bind_label_cells, start
from labelgap.objectives.base import Composition, Ridge, Sum
from labelgap.objectives.cells import AllCellsSquared, Weights
from labelgap.objectives.features import Identity
from labelgap.objectives.problem import balance_factors
from labelgap.observations import Labels, hide_cells
from labelgap.solvers.base import inner

N, D, L, K = 23, 9, 14, 4
LOSS = [cls() for cls in LOSSES.values()]


def data(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, D)) * (rng.random((N, D)) < 0.6)
    Y = (rng.random((N, L)) < 0.3).astype(float)
    Y[3] = 0  # a row without labels
    Y[:, 2] = 0  # a label without positives
    return X, Y, rng.standard_normal((D + 1, K)), rng.standard_normal((L, K))


def known(Y, gaps):
    labels = hide_cells(Y, 0.4, random_state=1) if gaps else Labels(Y)
    if not gaps:
        return labels
    dense = labels.toarray()
    dense[:, 5] = np.nan  # a label without a known cell
    dense[7] = np.nan
    return Labels(dense)


def brute_force(X, labels, loss, W, H, alpha, alpha_labels):
    dense = labels.toarray()
    targets = np.where(dense == 1, loss.positive, loss.negative)
    scores = np.hstack([X, np.ones((len(X), 1))]) @ W @ H.T
    cells = loss.functions(np).value(targets, scores)
    return cells[~np.isnan(dense)].sum() + 0.5 * alpha * (W**2).sum() + 0.5 * alpha_labels * (H**2).sum()


@pytest.fixture(params=["dense", "sparse"])
def build(request):
    def make(X, labels, loss, alpha=0.3, alpha_labels=0.8, dtype=np.float64):
        features = sp.csr_array(X) if request.param == "sparse" else X
        return Problem.of(
            bind_label_cells(labels, loss, cpu, dtype),
            Features(features, cpu, dtype, constant=True),
            alpha=alpha,
            alpha_labels=alpha_labels,
        )

    return make


@pytest.mark.parametrize("gaps", [False, True], ids=["complete", "gaps"])
@pytest.mark.parametrize("loss", LOSS, ids=repr)
def test_value_is_the_brute_force_from_both_sides(build, loss, gaps):
    X, Y, W, H = data()
    labels = known(Y, gaps)
    problem = build(X, labels, loss)
    expected = brute_force(X, labels, loss, W, H, 0.3, 0.8)
    assert problem.value(W, H) == pytest.approx(expected, rel=1e-12)
    assert problem.objective_in_left(H).value(W) == pytest.approx(expected, rel=1e-12)
    assert problem.objective_in_right(W).model(H).value == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("gaps", [False, True], ids=["complete", "gaps"])
@pytest.mark.parametrize("loss", LOSS, ids=repr)
@pytest.mark.parametrize("side", ["left", "right"])
def test_gradient_and_hessian_product_match_finite_differences(build, loss, gaps, side):
    X, Y, W, H = data(3)
    problem = build(X, known(Y, gaps), loss)
    objective, point = (problem.objective_in_left(H), W) if side == "left" else (problem.objective_in_right(W), H)
    model = objective.model(point)
    rng = np.random.default_rng(4)
    h = 1e-6
    for _ in range(4):
        S = rng.standard_normal(point.shape)
        slope = (objective.value(point + h * S) - objective.value(point - h * S)) / (2 * h)
        assert inner(model.gradient, S) == pytest.approx(slope, rel=1e-5)
        change = (objective.model(point + h * S).gradient - objective.model(point - h * S).gradient) / (2 * h)
        scale = np.abs(change).max()
        np.testing.assert_allclose(model.hessp(S), change, rtol=1e-5, atol=1e-5 * scale)


@pytest.mark.parametrize("side", ["left", "right"])
def test_squared_loss_has_its_exact_kronecker_form(build, side):
    X, Y, W, H = data(5)
    problem = build(X, Labels(Y), LOSSES["squared"]())
    objective, point = (problem.objective_in_left(H), W) if side == "left" else (problem.objective_in_right(W), H)
    model = objective.model(point)
    K = model.kronecker
    S = np.random.default_rng(6).standard_normal(point.shape)
    assert K.exact
    form = K.features.t_times(K.features.times(S)) @ K.M + K.ridge * S
    np.testing.assert_allclose(form, model.hessp(S), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("loss", LOSS, ids=repr)
def test_the_near_kronecker_form_is_exact_on_constant_curvature(build, loss):
    """Where every cell has the same curvature, the preconditioner is the Hessian."""
    X, Y, W, H = data(7)
    problem = build(X, Labels(np.ones_like(Y)), loss)
    small = 1e-9 * W  # one target and scores near 0: the curvature is the same everywhere
    model = problem.objective_in_left(H).model(small)
    K = model.kronecker
    S = np.random.default_rng(8).standard_normal(W.shape)
    form = K.weights * (K.features.t_times(K.features.times(S)) @ K.M) + K.ridge * S
    np.testing.assert_allclose(form, model.hessp(S), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("alphas", [(0.5, 0.5), (0.1, 2.0)])
def test_balancing_keeps_the_scores_and_reaches_the_nuclear_norm(build, alphas):
    X, Y, W, H = data(9)
    problem = build(X, Labels(Y), LOSSES["logistic"](), *alphas)
    new_W, new_H, gain = problem.balance(W, H)
    np.testing.assert_allclose(new_W @ new_H.T, W @ H.T, atol=1e-10)
    assert gain > 0
    assert problem.value(new_W, new_H) == pytest.approx(problem.value(W, H) - gain, rel=1e-10)
    nuclear = np.linalg.svd(W @ H.T, compute_uv=False).sum()
    penalty = 0.5 * alphas[0] * inner(new_W, new_W) + 0.5 * alphas[1] * inner(new_H, new_H)
    assert penalty == pytest.approx(np.sqrt(alphas[0] * alphas[1]) * nuclear, rel=1e-10)


def test_balancing_without_a_penalty_changes_nothing(build):
    X, Y, W, H = data(9)
    new_W, new_H, gain = build(X, Labels(Y), LOSSES["squared"](), 0.0, 0.0).balance(W, H)
    assert new_W is W
    assert new_H is H
    assert gain == 0


@pytest.mark.parametrize("loss", LOSS, ids=repr)
@pytest.mark.parametrize("gaps", [False, True])
def test_the_start_spans_what_features_and_labels_share(build, loss, gaps):
    X, Y, _, _ = data(10)
    labels = known(Y, gaps)
    dense = labels.toarray()
    targets = np.where(np.isnan(dense), 0, np.where(dense == 1, loss.positive, loss.negative))
    shared = np.hstack([X, np.ones((N, 1))]).T @ targets
    V = start(build(X, labels, loss), 3, init="svd", random_state=np.random.RandomState(0), dtype=float).H
    expected = np.linalg.svd(shared)[2][:3].T
    np.testing.assert_allclose(V @ V.T, expected @ expected.T, atol=1e-6)


def test_shards_of_rows_add_up_to_the_whole(build):
    X, Y, W, H = data(11)
    loss = LOSSES["logistic"]()
    labels = known(Y, True)
    whole = build(X, labels, loss, 0.0, 0.0).objective_in_left(H)
    parts = [slice(0, 8), slice(8, 9), slice(9, N)]
    shards = Sum([build(X[rows], labels[rows], loss, 0.0, 0.0).objective_in_left(H) for rows in parts])
    assert shards.value(W) == pytest.approx(whole.value(W))
    np.testing.assert_allclose(shards.model(W).gradient, whole.model(W).gradient, atol=1e-10)
    S = np.ones_like(W)
    np.testing.assert_allclose(shards.model(W).hessp(S), whole.model(W).hessp(S), atol=1e-10)


@pytest.mark.parametrize("form", ["sparse", "dense"])
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("shape", [(12, 5), (5, 12)])
def test_features_and_their_spectrum(form, constant, shape):
    rng = np.random.default_rng(12)
    X = rng.standard_normal(shape)
    features = Features(sp.csr_array(X) if form == "sparse" else X, cpu, np.float64, constant=constant)
    A = np.hstack([X, np.ones((shape[0], 1))]) if constant else X
    W, B = rng.standard_normal((A.shape[1], 3)), rng.standard_normal((shape[0], 3))
    np.testing.assert_allclose(features.times(W), A @ W, atol=1e-12)
    np.testing.assert_allclose(features.t_times(B), A.T @ B, atol=1e-12)
    np.testing.assert_allclose(features.column_squares().ravel(), (A**2).sum(0))
    spectrum = features.spectrum()
    np.testing.assert_allclose((spectrum.vectors * spectrum.values.T) @ spectrum.vectors.T, A.T @ A, atol=1e-9)
    np.testing.assert_allclose(spectrum.restore(spectrum.rotate(A.T @ B)), A.T @ B, atol=1e-9)


def test_a_large_matrix_has_no_spectrum(monkeypatch):
    monkeypatch.setattr("labelgap.objectives.features.MAX_EIGEN_ORDER", 4)
    assert Features(np.ones((6, 5)), cpu, float).spectrum() is None
    assert Features(np.ones((3, 5)), cpu, float).spectrum() is not None


def test_identity_changes_nothing():
    W = np.arange(6.0).reshape(3, 2)
    identity = Identity(3)
    assert Composition(identity, Ridge(2.0)).value(W) == Ridge(2.0).value(W)
    np.testing.assert_array_equal(identity.spectrum().restore(identity.spectrum().rotate(W)), W)
    assert identity.column_squares() == 1


@pytest.mark.parametrize("shapes", [(30, 20, 4), (3, 20, 5)], ids=str)
@pytest.mark.parametrize("rank", [4, 2])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_balanced_factors_have_the_same_product_and_its_nuclear_norm(shapes, rank, dtype):
    n, L, k = shapes
    rng = np.random.default_rng(5)
    W, H = rng.standard_normal((n, rank)) @ rng.standard_normal((rank, k)), 7 * rng.standard_normal((L, k))
    W, H = W.astype(dtype), H.astype(dtype)
    new_W, new_H = balance_factors(W, H, 1.0)
    tolerance = 1e-9 if dtype is np.float64 else 1e-4
    assert new_W.dtype == new_H.dtype == dtype
    np.testing.assert_allclose(new_W @ new_H.T, W @ H.T, atol=tolerance * np.abs(W @ H.T).max())
    norm = np.linalg.svd(W.astype(float) @ H.T, compute_uv=False).sum()
    assert 0.5 * (np.sum(new_W**2) + np.sum(new_H**2)) == pytest.approx(norm, rel=max(1e-6, tolerance))
    off = new_H.T @ new_H - np.diag(np.sum(new_H**2, axis=0))
    assert np.abs(off).max() <= max(1e-6, tolerance) * norm


def test_factors_of_zero_stay():
    W, H = np.zeros((4, 2)), np.ones((3, 2))
    new_W, new_H = balance_factors(W, H, 1.0)
    assert new_W is W
    assert new_H is H


@pytest.mark.parametrize("levels", [(0.0, 1.0), (-1.0, -1.0), (-1.0, 1.0)])
@pytest.mark.parametrize("weights", [Weights(), Weights(1.0, 0.3), Weights(np.arange(1.0, 1 + N)[:, None], 1.0)])
@pytest.mark.parametrize("orthogonal", [True, False])
def test_a_model_without_its_value_has_the_same_gradient(levels, weights, orthogonal):
    _, Y, _, H = data()
    H = np.linalg.qr(H)[0] * np.arange(1.0, K + 1) if orthogonal else H
    positives = cpu.prepare(sp.csr_array(Y if levels[0] != levels[1] else 0 * Y), np.float64)
    objective = AllCellsSquared(cpu, LOSS[0], positives, levels, weights).objective_in_left(H)
    B = np.random.default_rng(2).standard_normal((N, K))
    before = B.copy()
    model, lean = objective.model(B), objective.expand(B)
    np.testing.assert_allclose(lean.gradient, model.gradient, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(B, before)
