"""Fixed point continuation: its operators, its smooth part, and the optimum that it ends at."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
from scipy.optimize import check_grad, minimize

from labelgap import Labels, regularizers
from labelgap.losses import LOSSES, get_loss
from labelgap.objectives.label_feature_matrix import Completion
from labelgap.regularizers import (
    Decomposer,
    DualStep,
    NuclearNorm,
    PublishedMC1Prox,
    Tracker,
    find_leading_triplets,
    nuclear_norm,
)
from labelgap.runtime import threads
from labelgap.solvers import Status
from labelgap.solvers.fpc import Accelerated, FixedPoint, Point, Stage, follow_path, make_penalty_path


@pytest.fixture(autouse=True)
def one_thread():
    """As within an estimator: on small matrices the threads of BLAS would only wait for each other."""
    with threads(1):
        yield


def low_rank(n, m, k, rng, noise=0.0):
    return rng.standard_normal((n, k)) @ rng.standard_normal((k, m)) + noise * rng.standard_normal((n, m))


def with_ones(A):
    return np.column_stack([A, np.ones(len(A))])


def make_problem(bias=True, loss="logistic", n=24, d=7, t=4, seed=0, label_weight=1.0, share=0.6):
    rng = np.random.default_rng(seed)
    X = low_rank(n, d, 2, rng, 0.1)
    Y = (X @ rng.standard_normal((d, t)) + rng.standard_normal(t) > 0).astype(float)
    X[rng.random(X.shape) > share] = np.nan
    Y[rng.random(Y.shape) > share] = np.nan
    return Completion.of(X, Labels(Y), get_loss(loss), label_weight=label_weight, bias=bias)


def subgradient_residual(Z, S):
    """By how much S is no subgradient of the nuclear norm at Z: U Vᵀ on its range, of norm at most 1 outside."""
    U, values, Vt = np.linalg.svd(Z, full_matrices=False)
    kept = values > 1e-9 * values[0] if values[0] else values > 0
    U, V = U[:, kept], Vt[kept].T
    outside = S - U @ (U.T @ S)
    outside = outside - (outside @ V) @ V.T
    left, right = np.abs(U.T @ S - V.T).max(initial=0), np.abs(S @ V - U).max(initial=0)
    return max(left, right, np.linalg.norm(outside, 2) - 1)


def multiplier(Z, S):
    """The last column of a subgradient at Z whose other columns are S: from S V = U, where it must hold."""
    U, values, Vt = np.linalg.svd(Z, full_matrices=False)
    kept = values > 1e-9 * values[0]
    U, V = U[:, kept], Vt[kept].T
    return (U - S @ V[:-1]) @ V[-1] / (V[-1] @ V[-1])


def residual_of_mcb(problem, point, mu):
    """The residuals of (2): in units of μ for Z, and the gradient of b."""
    slope = problem.model(point)
    return max(subgradient_residual(point.Z, -slope.Z / mu), np.abs(slope.b).max() / mu)


def residual_of_mc1(problem, A, mu):
    """The residual of (3), in units of μ, with a free multiplier on the constant column."""
    S = -problem.model(Point(A, np.zeros(0))).Z / mu
    return subgradient_residual(with_ones(A), np.column_stack([S, multiplier(with_ones(A), S)]))


def objective(problem, point, mu, *, constant):
    A = problem.matrix(point)
    if constant:
        return problem.value(Point(A, np.zeros(0))) + mu * nuclear_norm(with_ones(A))
    return problem.value(point) + mu * nuclear_norm(point.Z)


def run(problem, penalty, mu, method):
    """Come to μ by way of 4 μ, and return the last stage."""
    start, _ = problem.start()
    return list(follow_path(problem, penalty, [4 * mu, mu], start, method))[-1]


TIGHT = {"tol": 3e-16, "max_iter": 30_000}


# --- singular values ------------------------------------------------------------------------------------------------

SHAPES = [(30, 8), (8, 30), (12, 12), (200, 140), (140, 200), (1, 6), (6, 1)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("share", [1e-9, 1e-3, 0.3, 2.0])
@pytest.mark.parametrize("wider", [False, True], ids=["alone", "with a column"])
def test_triplets_are_those_of_lapack(shape, share, wider):
    """Through either Gram matrix, and from the matrix itself where the threshold is small."""
    rng = np.random.default_rng(0)
    A, w = low_rank(*shape, 3, rng, 0.1), rng.standard_normal(shape[0])
    whole = np.column_stack([A, w]) if wider else A
    U, values, Vt = np.linalg.svd(whole, full_matrices=False)
    threshold = share * values[0]
    found = Decomposer(A).triplets(threshold, w if wider else None)
    kept = values > threshold
    np.testing.assert_allclose(found.values, values[kept], rtol=1e-8, atol=1e-12 * values[0])
    np.testing.assert_allclose(found.product, (U[:, kept] * values[kept]) @ Vt[kept], atol=1e-9 * values[0])
    np.testing.assert_allclose(found.left.T @ found.left, np.eye(kept.sum()), atol=1e-6)


@pytest.mark.parametrize("wider", [False, True], ids=["alone", "with a column"])
@pytest.mark.parametrize("shape", [(40, 9), (9, 40)], ids=str)
def test_small_singular_values_beside_large_ones(shape, wider):
    """A Gram matrix would have lost them: it knows σ² to the rounding of the largest."""
    rng = np.random.default_rng(3)
    Q, R = (scipy.linalg.qr(rng.standard_normal((size, 9)), mode="economic")[0] for size in shape)
    values = 10.0 ** -np.arange(9)
    found = Decomposer((Q * values) @ R.T).triplets(3e-8, np.zeros(shape[0]) if wider else None)
    np.testing.assert_allclose(found.values, values[:8], rtol=1e-6)


def test_no_singular_value_is_above_the_threshold_of_nothing():
    assert len(find_leading_triplets(np.zeros((4, 3)), 0.1).values) == 0
    assert len(find_leading_triplets(np.zeros((4, 3)), 0.0).values) == 0
    assert NuclearNorm().prox(np.zeros((3, 5)), 1.0).x.shape == (3, 5)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("threshold", [1e-6, 0.5, 5.0, 1e4])
def test_the_proximal_operator_is_a_minimiser(shape, threshold):
    """½ ‖x − v‖² + κ ‖x‖_* has its minimum where (v − x) / κ is a subgradient."""
    v = low_rank(*shape, 2, np.random.default_rng(1), 0.05)
    shrunk = NuclearNorm().prox(v, threshold)
    assert subgradient_residual(shrunk.x, (v - shrunk.x) / threshold) < 1e-6
    assert shrunk.value == pytest.approx(nuclear_norm(shrunk.x), rel=1e-9, abs=1e-12)
    assert shrunk.rank == np.linalg.matrix_rank(shrunk.x, tol=1e-9)


def test_single_precision():
    v = low_rank(40, 10, 3, np.random.default_rng(2), 0.1)
    single, double = (NuclearNorm().prox(v.astype(dtype), 1.0).x for dtype in (np.float32, np.float64))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, double, atol=1e-5)


# --- following singular vectors -------------------------------------------------------------------------------------


@pytest.fixture
def small_orders(monkeypatch):
    """Let small matrices be followed too, and count how often that is done."""
    monkeypatch.setattr(regularizers, "MIN_TRACKED_ORDER", 20)
    monkeypatch.setattr(regularizers, "MAX_BLOCK_SHARE", 0.5)
    found = []
    iterate = Tracker._iterate

    def counted(self, *arguments):
        found.append(iterate(self, *arguments))
        return found[-1]

    monkeypatch.setattr(Tracker, "_iterate", counted)
    return found


@pytest.mark.parametrize("shape", [(120, 60), (60, 120)], ids=str)
@pytest.mark.parametrize("wider", [False, True], ids=["alone", "with a column"])
def test_followed_triplets_are_the_exact_ones(shape, wider, small_orders):
    rng, tracker = np.random.default_rng(0), Tracker()
    A, w = low_rank(*shape, 4, rng, 0.05), rng.standard_normal(shape[0])
    for _ in range(5):
        A = A + 0.01 * low_rank(*shape, 4, rng)
        exact = Decomposer(A).triplets(4.0, w if wider else None)
        found = Decomposer(A, tracker).triplets(4.0, w if wider else None)
        np.testing.assert_allclose(found.values, exact.values, rtol=1e-10)
        np.testing.assert_allclose(found.product, exact.product, atol=1e-6)
    assert sum(one is not None for one in small_orders) == 4  # the first had nothing to follow


def test_a_new_direction_is_not_missed(small_orders):
    """It is at right angles to everything that was followed, and comes out of nothing."""
    rng, tracker = np.random.default_rng(1), Tracker()
    Q, R = (scipy.linalg.qr(rng.standard_normal((size, 6)), mode="economic")[0] for size in (100, 60))
    values = np.array([9.0, 8.0, 7.0, 6.0, 0.0, 0.0])
    for large in (0.0, 0.0, 5.0, 5.0):
        values[5] = large
        found = Decomposer((Q * values) @ R.T, tracker).triplets(2.0)
        np.testing.assert_allclose(found.values, values[values > 2], rtol=1e-10)
    assert any(one is not None for one in small_orders)


def test_a_rank_that_is_not_low_is_not_followed(small_orders):
    rng, tracker = np.random.default_rng(2), Tracker()
    for _ in range(6):
        A = rng.standard_normal((60, 40))
        np.testing.assert_allclose(
            Decomposer(A, tracker).triplets(5.0).values, Decomposer(A).triplets(5.0).values, rtol=1e-10
        )
    assert not any(one is not None for one in small_orders)
    assert len(small_orders) < 5  # and after a while it is not tried each time


def test_following_changes_no_solution(small_orders):
    problem = make_problem(n=60, d=40, t=8, share=0.7)
    followed = run(problem, NuclearNorm(), 5e-3, Accelerated(1e-10, 3000))
    assert any(one is not None for one in small_orders)
    assert residual_of_mcb(problem, followed.point, 5e-3) < 1e-3
    small_orders.clear()
    regularizers.MIN_TRACKED_ORDER = 10**9
    alone = run(problem, NuclearNorm(), 5e-3, Accelerated(1e-10, 3000))
    assert not small_orders
    assert followed.value == pytest.approx(alone.value, rel=1e-8)


# --- the smooth part ------------------------------------------------------------------------------------------------

FORMS = {
    "none": lambda **options: make_problem(bias=False, **options),
    "labels": make_problem,
    "every column": lambda **options: make_problem(**options).center().at(0.3),
}


def n_biases(name):
    return {"none": 0, "labels": 4, "every column": 11}[name]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("form", FORMS)
def test_gradients_by_finite_differences(loss, form):
    f, rng = FORMS[form](loss=loss, label_weight=0.7), np.random.default_rng(3)
    cells = 24 * 11

    def point(x):
        return Point(x[:cells].reshape(24, 11), x[cells:])

    def gradient(x):
        slope = f.model(point(x))
        return np.concatenate([slope.Z.ravel(), slope.b])

    x = rng.standard_normal(cells + n_biases(form))
    assert f.model(point(x)).value == f.value(point(x))
    assert check_grad(lambda x: f.value(point(x)), gradient, x) < 2e-6


def test_the_value_by_hand():
    """Two labels and one feature; one cell of each kind is missing."""
    X, Y = np.array([[2.0], [np.nan], [1.0]]), np.array([[1, np.nan], [0, 1], [1, 0]])
    f = Completion.of(X, Labels(Y), get_loss("logistic"), label_weight=3.0)
    Z, b = np.array([[0.5, 9.0, 1.0], [-1.0, 2.0, 7.0], [0.0, 0.0, 1.5]]), np.array([0.25, -0.5])
    labels = np.log1p(np.exp([-(0.5 + 0.25), -1.0 + 0.25, -(2.0 - 0.5), -0.25, -0.5]))
    assert f.value(Point(Z, b)) == pytest.approx(3.0 / 5 * labels.sum() + (1.0**2 + 0.5**2) / 2 / 2)
    slope = f.model(Point(Z, b))
    np.testing.assert_allclose(slope.Z[:, 2], [-0.5, 0.0, 0.25])
    assert slope.Z[0, 1] == 0
    np.testing.assert_array_equal(f.fill_with_zeros(), [[1, 0, 2], [-1, 1, 0], [1, -1, 1]])
    np.testing.assert_allclose(f.decision(Point(Z, b)), Z[:, :2] + b)
    np.testing.assert_allclose(f.matrix(Point(Z, b)), Z + np.array([0.25, -0.5, 0]))


def test_a_label_of_one_class_is_left_to_its_bias():
    """MC-b has no finite minimum in such a bias, and the same infimum without the label's cells."""
    Y = np.array([[1, 1, 0], [np.nan, 0, 0], [1, 1, 0]])
    f = Completion.of(np.ones((3, 1)), Labels(Y), get_loss("logistic"))
    assert f.constant_labels == [(0, 1.0), (2, -1.0)]
    point = Point(np.zeros((3, 4)), np.zeros(3))
    assert f.value(point) == pytest.approx(3 / 8 * np.log(2) + 1 / 2)
    np.testing.assert_array_equal(f.decision(point), np.tile([1, 0, -1], (3, 1)))
    far = Completion.of(np.ones((3, 1)), Labels(Y), get_loss("logistic"), bias=False)
    b = np.array([40.0, 0.0, -40.0])
    assert far.value(Point(point.Z, b)) == pytest.approx(f.value(point))


@pytest.mark.parametrize(("loss", "bend"), [("logistic", 0.25), ("squared", 1.0), ("squared_hinge", 2.0)])
@pytest.mark.parametrize("label_weight", [0.1, 10.0])
def test_steps_are_the_published_ones_for_any_loss(loss, bend, label_weight):
    f = make_problem(loss=loss, label_weight=label_weight)
    omega_x, omega_y = len(f.values), len(f.targets)
    expected = min(0.95 * omega_y / (label_weight * bend), omega_x), 0.95 * omega_y / (label_weight * 24 * bend)
    np.testing.assert_allclose(f.steps, expected)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("form", FORMS)
def test_the_curvature_that_steps_allow(loss, form):
    """In the norm that they weight: below 2 for the published ones, at most 1 for those of acceleration."""
    rng = np.random.default_rng(0)
    for weight in (0.05, 1.0, 20.0):
        f = FORMS[form](loss=loss, label_weight=weight)
        for steps, most in ((f.steps, 2.0), (f.short_steps, 1.0)):
            Z, b = np.zeros((24, 11)), np.zeros(n_biases(form))
            for _ in range(60):  # power iteration on the largest curvature, at the point where ℓ'' is largest
                dZ, db = rng.standard_normal(Z.shape), rng.standard_normal(b.shape)
                at = Point(rng.standard_normal(Z.shape), rng.standard_normal(b.shape))
                h = 1e-6
                up, down = f.model(Point(at.Z + h * dZ, at.b + h * db)), f.model(Point(at.Z - h * dZ, at.b - h * db))
                bend = ((up.Z - down.Z) * dZ).sum() + ((up.b - down.b) * db).sum()
                norm = (dZ**2).sum() / steps.Z + ((db**2).sum() / steps.b if len(db) else 0.0)
                assert bend / (2 * h) <= most * norm * (1 + 1e-6)


# --- the optimum ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("mu", [0.05, 0.005])
def test_mcb_by_fixed_points_ends_at_the_optimum(loss, mu):
    problem = make_problem(loss=loss)
    stage = run(problem, NuclearNorm(), mu, FixedPoint(-1.0, 2500))  # a tolerance that nothing meets
    assert residual_of_mcb(problem, stage.point, mu) < 1e-6
    assert stage.value == pytest.approx(objective(problem, stage.point, mu, constant=False), rel=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("mu", [0.05, 0.005])
def test_mc1_by_splitting_ends_at_the_optimum(loss, mu):
    problem, penalty = make_problem(bias=False, loss=loss), DualStep()
    stage = run(problem, penalty, mu, FixedPoint(**TIGHT))
    assert stage.status is Status.CONVERGED
    assert residual_of_mc1(problem, stage.point.Z, mu) < 1e-6
    S = -problem.model(stage.point).Z / mu
    assert subgradient_residual(with_ones(stage.point.Z), np.column_stack([S, penalty.price])) < 1e-6
    assert stage.value == pytest.approx(objective(problem, stage.point, mu, constant=True), rel=1e-12)


@pytest.mark.parametrize("constant", [False, True], ids=["MC-b", "MC-1"])
@pytest.mark.parametrize("loss", LOSSES)
def test_acceleration_comes_to_the_same_optimum_sooner(constant, loss):
    mu = 0.005
    problem = make_problem(bias=not constant, loss=loss)
    plain = run(problem, DualStep() if constant else NuclearNorm(), mu, FixedPoint(**TIGHT))
    form = problem.center() if constant else problem
    fast = run(form, NuclearNorm(), mu, Accelerated(1e-14, 60_000))
    assert objective(problem, fast.point, mu, constant=constant) == pytest.approx(plain.value, rel=1e-8)
    assert fast.value == pytest.approx(plain.value, rel=1e-8)
    goal = plain.value * (1 + 1e-5)
    first = [next(i for i, value in enumerate(stage.history) if value <= goal) for stage in (plain, fast)]
    assert first[1] < 0.6 * first[0]
    A = problem.matrix(fast.point)
    np.testing.assert_allclose(A, problem.matrix(plain.point), atol=2e-3)
    residual = residual_of_mc1(problem, A, mu) if constant else residual_of_mcb(problem, fast.point, mu)
    assert residual < 1e-3


@pytest.mark.parametrize("constant", [False, True], ids=["MC-b", "MC-1"])
@pytest.mark.parametrize("loss", LOSSES)
def test_an_independent_solver_finds_the_same_optimum(constant, loss):
    """L-BFGS over factors of full width, which have no minimum but the global one."""
    mu, problem = 0.01, make_problem(bias=not constant, loss=loss, n=14, d=4, t=2, seed=1)
    stage = run(problem, DualStep() if constant else NuclearNorm(), mu, FixedPoint(**TIGHT))
    value = (constrained if constant else unconstrained)(problem, mu)
    assert stage.value == pytest.approx(value, rel=1e-6)


def factored_value(problem, mu, x, k, extra, pull):
    """F(W Hᵀ, b) + (μ/2)(‖W‖² + ‖H‖²) + pull(the last column), and its gradient; H has ``extra`` more rows."""
    n, m, t = problem.n, problem.width, problem.n_biased
    W, H, b = x[: n * k].reshape(n, k), x[n * k : x.size - t].reshape(m + extra, k), x[x.size - t :]
    Z = W @ H.T
    slope = problem.model(Point(np.ascontiguousarray(Z[:, :m]), b))
    G, value = slope.Z, slope.value + mu / 2 * ((W**2).sum() + (H**2).sum())
    if extra:
        more, column = pull(Z[:, -1])
        value, G = value + more, np.column_stack([G, column])
    return value, np.concatenate([(G @ H + mu * W).ravel(), (G.T @ W + mu * H).ravel(), slope.b])


def lbfgs(function, x):
    options = {"maxiter": 50_000, "maxfun": 200_000, "ftol": 1e-16, "gtol": 1e-10}
    return minimize(function, x, jac=True, method="L-BFGS-B", options=options)


def unconstrained(problem, mu):
    k = min(problem.n, problem.width)
    x = np.random.default_rng(0).standard_normal((problem.n + problem.width) * k + problem.t)
    return lbfgs(lambda x: factored_value(problem, mu, x, k, 0, None), x).fun


def constrained(problem, mu):
    """The constant column by an augmented Lagrangian."""
    k, rho, y = min(problem.n, problem.width + 1), 1.0, np.zeros(problem.n)
    x = np.random.default_rng(0).standard_normal((problem.n + problem.width + 1) * k)
    for _ in range(40):

        def pull(a, y=y):
            return y @ (a - 1) + rho / 2 * ((a - 1) ** 2).sum(), y + rho * (a - 1)

        x = lbfgs(lambda x, pull=pull: factored_value(problem, mu, x, k, 1, pull), x).x
        lack = x[: problem.n * k].reshape(-1, k) @ x[-k:] - 1
        y = y + rho * lack
        if np.abs(lack).max() < 1e-9:
            break
    A = x[: problem.n * k].reshape(-1, k) @ x[problem.n * k :].reshape(-1, k).T
    return objective(problem, Point(np.ascontiguousarray(A[:, :-1]), np.zeros(0)), mu, constant=True)


def test_a_constant_column_is_a_bias_with_a_price():
    """‖[A, 1]‖_* = min over b of ‖A − 1bᵀ‖_* + √n √(1 + ‖b‖²)."""
    rng = np.random.default_rng(4)
    for shape in ((9, 2), (4, 2), (2, 2), (1, 2)):
        A = low_rank(*shape, 2, rng) + rng.standard_normal(2)

        def total(b, A=A):
            return nuclear_norm(A - b) + np.sqrt(len(A)) * np.sqrt(1 + b @ b)

        expected = nuclear_norm(with_ones(A))
        assert all(total(b) >= expected - 1e-9 for b in rng.standard_normal((50, 2)))
        found = minimize(total, A.mean(0), method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-13})
        assert found.fun == pytest.approx(expected, rel=1e-7)


# --- the published loop of MC-1 -------------------------------------------------------------------------------------


def gap_of_the_published_loop(mu, seed):
    problem = make_problem(bias=False, seed=seed)
    published = run(problem, PublishedMC1Prox(), mu, FixedPoint(1e-13, 20_000))
    best = run(problem.center(), NuclearNorm(), mu, Accelerated(1e-13, 20_000))
    return published.value / best.value - 1


@pytest.mark.parametrize("seed", [0, 1])
def test_the_published_loop_misses_the_minimum_by_less_for_smaller_mu(seed):
    gaps = [gap_of_the_published_loop(mu, seed) for mu in (0.1, 0.01, 0.001)]
    assert 1e-4 < gaps[0] < 5e-2
    assert gaps[1] < gaps[0] / 3
    assert gaps[2] < gaps[1] / 3


def test_the_published_loop_minimises_with_a_penalty_for_the_constraint():
    """It ends at the minimum of μ ‖[A, a]‖_* + f(A) + ‖a − 1‖² / 2τ: the loop does converge."""
    mu, problem = 0.1, make_problem(bias=False)
    stage = run(problem, PublishedMC1Prox(), mu, FixedPoint(**TIGHT))
    A, tau = stage.point.Z, problem.steps.Z
    whole = NuclearNorm().prox(with_ones(A - tau * problem.model(stage.point).Z), tau * mu).x
    np.testing.assert_allclose(whole[:, :-1], A, atol=1e-8)
    a = whole[:, -1]
    assert np.abs(a - 1).max() > 0.1
    S = np.column_stack([-problem.model(stage.point).Z / mu, (1 - a) / (tau * mu)])
    assert subgradient_residual(whole, S) < 1e-6


def test_what_the_operators_say_of_their_value():
    rng = np.random.default_rng(5)
    V = low_rank(20, 6, 2, rng, 0.1)
    for penalty in (PublishedMC1Prox(), DualStep()):
        for threshold in (0.1, 1.0, 30.0):
            shrunk = penalty.prox(V, threshold)
            assert shrunk.value == pytest.approx(nuclear_norm(with_ones(shrunk.x)), rel=1e-10)
    assert PublishedMC1Prox().prox(V, 1.0).error == 0
    exact = DualStep()
    errors = [exact.prox(V, 1.0).error for _ in range(200)]
    assert errors[-1] < 1e-8 < errors[0]


# --- how a run goes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("label_weight", [0.05, 1.0, 20.0])
def test_the_objective_of_mcb_never_rises(loss, label_weight):
    problem = make_problem(loss=loss, label_weight=label_weight)
    start, largest = problem.start()
    mus = make_penalty_path(largest, 1e-3, 0.25)
    for method in (FixedPoint(1e-5, 500), Accelerated(1e-6, 500)):
        for stage in follow_path(problem, NuclearNorm(), mus, start, method):
            assert (np.diff(stage.history) <= 1e-12 * stage.history[0]).all()


def test_each_stage_starts_where_the_last_one_ended():
    problem = make_problem()
    start, _ = problem.start()
    stages = list(follow_path(problem, NuclearNorm(), [1.0, 0.1, 0.01], start, FixedPoint(1e-5)))
    assert [stage.mu for stage in stages] == [1.0, 0.1, 0.01]
    again = FixedPoint(1e-5).minimize(
        problem, NuclearNorm(), Stage(0.01, stages[1].point, nuclear_norm(stages[1].point.Z))
    )
    np.testing.assert_allclose(again.history, stages[2].history, rtol=1e-10)
    assert stages[2].penalty == pytest.approx(nuclear_norm(stages[2].point.Z))
    ranks = [stage.rank for stage in stages]
    assert ranks == sorted(ranks)
    assert ranks[-1] == np.linalg.matrix_rank(stages[-1].point.Z, tol=1e-8)


@pytest.mark.parametrize("method", [FixedPoint, Accelerated])
def test_the_number_of_steps_is_limited(method):
    problem = make_problem()
    start, _ = problem.start()
    (stage,) = follow_path(problem, NuclearNorm(), [1e-4], start, method(0.0, 7))
    assert (stage.n_iter, stage.status) == (7, Status.MAX_ITER)
    assert 1 <= len(stage.history) <= 7
    (stage,) = follow_path(problem, NuclearNorm(), [1e-4], start, method(1e-3, 500))
    assert stage.status is Status.CONVERGED
    assert stage.n_iter < 500


def test_the_start_is_the_rank_1_approximation():
    problem = make_problem()
    start, largest = problem.start()
    U, values, Vt = np.linalg.svd(problem.fill_with_zeros())
    assert largest == pytest.approx(values[0])
    np.testing.assert_allclose(start.Z, values[0] * np.outer(U[:, 0], Vt[0]))
    assert not start.b.any()


def test_falling_mus():
    np.testing.assert_allclose(make_penalty_path(8.0, 0.1, 0.25), [2.0, 0.5, 0.125, 0.1])
    assert make_penalty_path(8.0, 2.0, 0.25) == [2.0]
    assert make_penalty_path(8.0, 5.0, 0.25) == [5.0]
