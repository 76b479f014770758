"""Regression with an l1 penalty on what it predicts: optimality, twins, and closed forms."""

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
from sklearn.svm import LinearSVR

from labelgap.kernels import cpu
from labelgap.objectives import embeddings
from labelgap.objectives.embeddings import (
    DenseLoss,
    InsensitiveStep,
    NormalEquations,
    SquaredInsensitive,
    SquaredStep,
    fit_ridge,
    regress,
)
from labelgap.objectives.features import Features, Identity
from labelgap.runtime import threads
from labelgap.solvers import Splitting, Status, alternate_directions, soft_threshold
from labelgap.solvers.admm import Residuals, _balance_rho


def problem(n=30, d=6, k=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.6)
    return X, X @ rng.standard_normal((d, k)) + 0.5 * rng.standard_normal((n, k))


def bind(X, sparse=False, constant=False, dtype=np.float64):
    return Features(sp.csr_array(X) if sparse else X, cpu, dtype, constant=constant)


def split(features, step, Z, l1, *, rho=1.0, tol=1e-9, max_iter=20_000, **options):
    start = np.zeros((features.shape[1], Z.shape[1]))
    return alternate_directions(
        features,
        step,
        lambda point, weight: soft_threshold(point, l1 / (2 * weight)),
        start,
        rho=rho,
        max_iter=max_iter,
        tol=tol,
        scales=(1.0, 1.0),
        **options,
    )


def objective(X, Z, V, alpha, l1, epsilon=0.0):
    over = np.maximum(np.abs(Z - X @ V) - epsilon, 0)
    return (over**2).sum() + alpha * (V**2).sum() + l1 * np.abs(X @ V).sum()


def insensitive_slope(Z, B, epsilon):
    return 2 * np.sign(B - Z) * np.maximum(np.abs(Z - B) - epsilon, 0)


# --- the prox -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", [0.0, 0.3, 2.0])
def test_soft_threshold_is_minimal(threshold):
    values = np.array([-3.0, -0.31, -0.3, 0.0, 0.2, 1.7])
    found = soft_threshold(values, threshold)
    grid = np.linspace(-4, 4, 8001)  # in steps of 0.001, the minima among them

    def cost(a):
        return 0.5 * (a - values[:, None]) ** 2 + threshold * np.abs(a)

    best = cost(grid[None, :]).min(1)
    np.testing.assert_allclose(cost(found[:, None])[:, 0], best, atol=1e-6)
    assert (cost(found[:, None])[:, 0] <= best + 1e-15).all()
    assert ((found == 0) == (np.abs(values) <= threshold)).all()


def test_soft_threshold_keeps_the_type():
    assert soft_threshold(np.ones(2, np.float32), 0.25).dtype == np.float32


# --- ridge ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [embeddings.MAX_FACTOR_ORDER, 0], ids=["cholesky", "cg"])
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("shape", [(30, 6), (7, 20)])
def test_ridge_solves_the_normal_equations(shape, sparse, constant, limit, monkeypatch):
    monkeypatch.setattr(embeddings, "MAX_FACTOR_ORDER", limit)
    monkeypatch.setattr(embeddings, "CG_TOL", 1e-12)
    X, Z = problem(*shape)
    full = np.hstack([X, np.ones((len(X), 1))]) if constant else X
    found = fit_ridge(bind(X, sparse, constant), Z, alpha=0.7)
    expected = np.linalg.solve(full.T @ full + 0.7 * np.eye(full.shape[1]), full.T @ Z)
    np.testing.assert_allclose(found.V, expected, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(found.embedded, full @ expected, rtol=1e-9, atol=1e-10)
    assert found.status is Status.CONVERGED


def test_ridge_in_float32_stays_float32():
    X, Z = problem()
    found = fit_ridge(bind(X, sparse=True, dtype=np.float32), Z, 0.7)
    assert found.V.dtype == found.embedded.dtype == np.float32
    np.testing.assert_allclose(found.V, fit_ridge(bind(X), Z, 0.7).V, atol=1e-5)


def test_ridge_without_features_shrinks():
    Z = problem()[1]
    np.testing.assert_allclose(fit_ridge(Identity(len(Z)), Z, 3.0).V, Z / 4, rtol=1e-12)


@pytest.mark.parametrize("alpha", [0.0, 1e-20])
@pytest.mark.parametrize("seed", range(5))
def test_without_a_penalty_ridge_is_a_small_least_squares_solution(seed, alpha, monkeypatch):
    """The least in the norm of the scaled columns; rounding may let the factor of a singular matrix pass."""
    monkeypatch.setattr(embeddings, "CG_TOL", 1e-10)
    X, Z = problem(seed=seed)
    X = np.hstack([X, 0.1 * X[:, :1] + 0.3 * X[:, 1:2]])
    found = fit_ridge(bind(X), Z, alpha)
    scale = np.linalg.norm(X, axis=0)
    np.testing.assert_allclose(found.V, np.linalg.lstsq(X / scale, Z, rcond=1e-10)[0] / scale[:, None], atol=1e-7)
    np.testing.assert_allclose(X.T @ (found.embedded - Z), 0, atol=1e-6)


def test_a_ridge_that_float32_swallows_is_solved_all_the_same():
    X, Z = problem(20, 4)
    X = np.hstack([X, X / 3, X / 7])
    found = fit_ridge(bind(X, sparse=True, dtype=np.float32), Z, alpha=1e-9)
    np.testing.assert_allclose(found.embedded, X @ np.linalg.lstsq(X, Z, rcond=1e-6)[0], atol=2e-3)


def test_a_good_start_saves_products():
    X, Z = problem(200, 40, seed=3)
    features = bind(X)
    calls = []
    times = features.times
    features.times = lambda W: calls.append(1) or times(W)
    equations, right = NormalEquations(features, tol=1e-8), features.t_times(Z)
    V, found = equations._iterate(right, 1.0, 0.5, None)
    cold = len(calls)
    again, _ = equations._iterate(right, 1.0, 0.5, V)
    assert found
    assert len(calls) - cold == 1 < cold
    np.testing.assert_array_equal(again, V)


# --- ADMM -----------------------------------------------------------------------------------------------------------

SHAPES = [(30, 6), (8, 15)]


@pytest.mark.parametrize("limit", [embeddings.MAX_FACTOR_ORDER, 0], ids=["cholesky", "cg"])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rho", [0.01, 1.0, 50.0])
def test_admm_ends_at_the_optimality_conditions(rho, shape, sparse, limit, monkeypatch):
    monkeypatch.setattr(embeddings, "MAX_FACTOR_ORDER", limit)
    (X, Z), alpha, l1 = problem(*shape), 0.4, 1.5
    features = bind(X, sparse)
    found = split(features, SquaredStep(features, Z, alpha, tol=1e-12), Z, l1, rho=rho)
    S = 2 * found.rho * found.B / l1
    assert found.status is Status.CONVERGED
    np.testing.assert_allclose(2 * X.T @ (X @ found.V - Z) + 2 * alpha * found.V + l1 * X.T @ S, 0, atol=1e-6)
    np.testing.assert_allclose(X @ found.V, found.A, atol=1e-6)
    assert np.abs(S).max() <= 1 + 1e-9
    np.testing.assert_allclose(S[found.A != 0], np.sign(found.A[found.A != 0]), atol=1e-9)
    assert 0 < (found.A == 0).sum() < found.A.size


def by_scipy(X, Z, alpha, l1):
    """min ‖Z − XV‖² + α‖V‖² + l1 Σ (P + Q) with X V = P − Q, P, Q ≥ 0: the l1 term made linear by constraints."""
    (n, d), k = X.shape, Z.shape[1]
    cuts = [d * k, d * k + n * k]

    def parts(x):
        V, P, Q = np.split(x, cuts)
        return V.reshape(d, k), P.reshape(n, k), Q.reshape(n, k)

    def value(x):
        V, P, Q = parts(x)
        return ((Z - X @ V) ** 2).sum() + alpha * (V**2).sum() + l1 * (P + Q).sum()

    def slope(x):
        V, P, _ = parts(x)
        of_V = 2 * X.T @ (X @ V - Z) + 2 * alpha * V
        return np.concatenate([of_V.ravel(), np.full(2 * P.size, l1)])

    linear = np.hstack([np.kron(X, np.eye(k)), -np.eye(n * k), np.eye(n * k)])
    found = scipy.optimize.minimize(
        value,
        np.zeros(linear.shape[1]),
        jac=slope,
        method="SLSQP",
        bounds=[(None, None)] * cuts[0] + [(0, None)] * (2 * n * k),
        constraints={"type": "eq", "fun": lambda x: linear @ x, "jac": lambda x: linear},
        options={"ftol": 1e-13, "maxiter": 1000},
    )
    assert found.success, found.message
    return found.fun


@pytest.mark.parametrize("shape", [(12, 4), (5, 9)])
@pytest.mark.parametrize("l1", [0.3, 2.0])
def test_admm_finds_the_minimum_of_a_generic_convex_solver(shape, l1):
    X, Z = problem(*shape, k=2, seed=1)
    found = regress(bind(X), Z, method="admm", alpha=0.5, l1=l1, tol=1e-9, max_iter=20_000)
    assert objective(X, Z, found.V, 0.5, l1) == pytest.approx(by_scipy(X, Z, 0.5, l1), rel=1e-6)


def test_admm_is_the_textbook_loop_while_rho_stays():
    (X, Z), alpha, l1, rho = problem(), 0.4, 1.5, 0.7
    features = bind(X)
    found = split(features, SquaredStep(features, Z, alpha), Z, l1, rho=rho, max_iter=12, tol=1e-30, balance=False)
    A, B = np.zeros_like(Z), np.zeros_like(Z)
    for _ in range(12):
        V = np.linalg.inv((1 + rho) * X.T @ X + alpha * np.eye(X.shape[1])) @ X.T @ (Z + rho * (A - B))
        for i, j in np.ndindex(Z.shape):
            v = X[i] @ V[:, j] + B[i, j]
            A[i, j] = np.sign(v) * max(0, abs(v) - l1 / (2 * rho))
        B += X @ V - A
    np.testing.assert_allclose(found.V, V, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.A, A, atol=1e-12)
    np.testing.assert_allclose(found.B, B, atol=1e-12)
    assert (found.n_iter, found.status, found.rho) == (12, Status.MAX_ITER, rho)


def test_residuals_are_what_they_say():
    (X, Z), l1, tol = problem(), 1.5, 1e-2
    features = bind(X)
    step = SquaredStep(features, Z, 0.4)
    rounds = [split(features, step, Z, l1, max_iter=m, tol=tol, balance=False) for m in (2, 3)]
    before, after = rounds
    primal = np.linalg.norm(X @ after.V - after.A)
    dual = np.linalg.norm(2 * X.T @ (after.A - before.A))
    allowed = 1 + max(np.linalg.norm(X @ after.V), np.linalg.norm(after.A)), 1 + np.linalg.norm(2 * X.T @ after.B)
    assert after.history[-1].primal == pytest.approx(primal / (tol * allowed[0]))
    assert after.history[-1].dual == pytest.approx(dual / (tol * allowed[1]))
    assert after.history[:-1] == before.history


def test_balancing_saves_rounds_from_a_bad_start_and_changes_nothing_else():
    (X, Z), l1 = problem(60, 8), 2.0
    features = bind(X)
    plain, balanced = (
        split(features, SquaredStep(features, Z, 0.4), Z, l1, rho=100.0, tol=1e-8, balance=balance)
        for balance in (False, True)
    )
    assert balanced.status is plain.status is Status.CONVERGED
    assert balanced.n_iter < 0.5 * plain.n_iter
    np.testing.assert_allclose(balanced.V, plain.V, atol=1e-6)


@pytest.mark.parametrize(
    ("primal", "dual", "factor"), [(50.0, 2.0, 5.0), (2.0, 50.0, 0.2), (9e9, 0, 10.0), (2, 3, 1)]
)
def test_balancing_keeps_the_multiplier(primal, dual, factor):
    state = Splitting(np.zeros((1, 1)), np.zeros((2, 1)), np.array([[3.0], [-1.0]]), rho=0.5)
    _balance_rho(state, Residuals(primal, dual, 0.5))
    assert state.rho == pytest.approx(0.5 * factor)
    np.testing.assert_allclose(state.rho * state.B, [[1.5], [-0.5]])


def test_a_huge_l1_leaves_nothing():
    X, Z = problem()
    found = regress(bind(X), Z, method="admm", l1=1e6, tol=1e-7, max_iter=5000)
    assert found.status is Status.CONVERGED
    assert not found.embedded.any()
    np.testing.assert_allclose(found.V, 0, atol=1e-4)


@pytest.mark.parametrize("method", ["admm", "svr"])
def test_without_l1_it_is_ridge(method):
    X, Z = problem()
    found = regress(bind(X), Z, method=method, alpha=0.7, tol=1e-9)
    np.testing.assert_allclose(found.V, fit_ridge(bind(X), Z, 0.7).V, atol=1e-7)
    np.testing.assert_allclose(found.embedded, X @ found.V, atol=1e-12)


def test_embeddings_follow_V_until_the_splitting_agrees():
    """Two rounds with a small ρ leave A = 0, which is no embedding of anything."""
    X, Z = problem()
    found = regress(bind(X), Z, method="admm", l1=0.01, rho=1e-3, max_iter=2)
    assert found.status is Status.MAX_ITER
    np.testing.assert_allclose(found.embedded, X @ found.V, atol=1e-12)
    np.testing.assert_allclose(found.V, fit_ridge(bind(X), Z, 1.0).V, rtol=0.05, atol=0.02)


def test_non_finite_steps_are_an_error():
    features = bind(problem()[0])
    with pytest.raises(FloatingPointError, match="residuals of ADMM became nan"):
        split(features, lambda target, rho, start: start + np.nan, np.zeros((30, 3)), 1.0)


# --- the insensitive loss -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.0, 0.5])
def test_the_insensitive_loss_has_the_derivatives_it_says(epsilon):
    cell = SquaredInsensitive(epsilon).functions()
    a, b = np.meshgrid([-1.0, 0.0, 2.0], np.array([-3.0, -0.9, 0.1, 0.4, 2.3, 5.0]))
    assert cell.value(1.0, 3.0) == (2 - epsilon) ** 2
    assert cell.value(1.0, 1.0 + epsilon / 2) == 0
    slope = (cell.value(a, b + 1e-6) - cell.value(a, b - 1e-6)) / 2e-6
    bend = (cell.gradient(a, b + 1e-6) - cell.gradient(a, b - 1e-6)) / 2e-6
    np.testing.assert_allclose(cell.gradient(a, b), slope, atol=1e-7)
    np.testing.assert_allclose(cell.curvature(a, b), bend, atol=1e-7)


def test_a_sum_over_dense_cells_keeps_the_type_and_its_line():
    rng = np.random.default_rng(5)
    T, B, S = (rng.standard_normal((4, 3)).astype(np.float32) for _ in range(3))
    term = DenseLoss(SquaredInsensitive(0.2), T, weight=3.0)
    model = term.model(B)
    assert model.gradient.dtype == model.hessp(S).dtype == np.float32
    assert model.value == pytest.approx(3 * (np.maximum(np.abs(T - B) - 0.2, 0) ** 2).sum(), rel=1e-6)
    assert term.along(B, S)(0.5) == pytest.approx(term.value(B + np.float32(0.5) * S))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("epsilon", [0.0, 0.4])
def test_svr_is_liblinears(shape, epsilon):
    X, Z = problem(*shape)
    C = 0.8
    found = regress(bind(X, sparse=True), Z, method="svr", alpha=1 / (2 * C), epsilon=epsilon, tol=1e-10)
    model = LinearSVR(
        loss="squared_epsilon_insensitive",
        fit_intercept=False,
        C=C,
        epsilon=epsilon,
        tol=1e-10,
        max_iter=100_000,
        dual=False,
    )
    expected = np.column_stack([model.fit(X, z).coef_ for z in Z.T])
    np.testing.assert_allclose(found.V, expected, atol=1e-5)
    assert found.status is Status.CONVERGED


@pytest.mark.parametrize("shape", SHAPES)
def test_svr_with_l1_ends_at_its_optimality_conditions(shape):
    (X, Z), alpha, l1, epsilon = problem(*shape), 0.4, 1.5, 0.3
    features = bind(X)
    step = InsensitiveStep(features, Z, alpha, epsilon, tol=embeddings.ROUND_TOL)
    found = split(features, step, Z, l1)
    S = 2 * found.rho * found.B / l1
    assert found.status is Status.CONVERGED
    residual = X.T @ insensitive_slope(Z, X @ found.V, epsilon) + 2 * alpha * found.V + l1 * X.T @ S
    np.testing.assert_allclose(residual, 0, atol=1e-6)
    np.testing.assert_allclose(X @ found.V, found.A, atol=1e-6)
    assert np.abs(S).max() <= 1 + 1e-9
    np.testing.assert_allclose(S[found.A != 0], np.sign(found.A[found.A != 0]), atol=1e-9)


def test_svr_with_l1_through_the_front_door():
    X, Z = problem()
    found = regress(bind(X), Z, method="svr", alpha=0.4, l1=1.5, epsilon=0.3, tol=1e-8, max_iter=5000)
    rng = np.random.default_rng(0)
    least = objective(X, Z, found.V, 0.4, 1.5, 0.3)
    for scale in (1e-1, 1e-2, 1e-3):
        for _ in range(50):
            assert objective(X, Z, found.V + scale * rng.standard_normal(found.V.shape), 0.4, 1.5, 0.3) > least
    assert (found.embedded == 0).any()
    np.testing.assert_allclose(found.embedded, X @ found.V, atol=1e-5)


# --- threads and errors ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["ridge", "admm", "svr"])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("limit", [embeddings.MAX_FACTOR_ORDER, 0], ids=["cholesky", "cg"])
def test_the_number_of_threads_changes_no_bit(method, sparse, limit, monkeypatch):
    monkeypatch.setattr(embeddings, "MAX_FACTOR_ORDER", limit)
    X, Z = problem(1500, 250, k=20, seed=2)
    l1 = 0.0 if method == "ridge" else 0.5

    def fit():
        features = bind(X, sparse, constant=True, dtype=np.float32)
        return regress(features, Z, method=method, l1=l1, epsilon=0.1, max_iter=8)

    results = [fit()]  # with as many threads of BLAS as there are
    for n in (1, 2, 3):
        with threads(n):
            results.append(fit())
    for other in results[1:]:
        np.testing.assert_array_equal(other.V, results[0].V)
        np.testing.assert_array_equal(other.embedded, results[0].embedded)
        assert other.n_iter == results[0].n_iter


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "lasso"}, r"method='lasso' is not known; choose from \['admm', 'ridge', 'svr'\]"),
        ({"l1": 0.1}, "l1=0.1 is not part of method='ridge'"),
        ({"alpha": -1.0}, "alpha=-1.0 has no meaning; pass a number 0 or more"),
        ({"method": "admm", "rho": 0.0}, "rho=0.0 has no meaning; pass a number above 0"),
        ({"method": "svr", "epsilon": np.nan}, "epsilon=nan has no meaning"),
        ({"max_iter": 0}, "max_iter=0 has no meaning"),
    ],
)
def test_bad_parameters_are_named(options, message):
    X, Z = problem()
    with pytest.raises(ValueError, match=message):
        regress(bind(X), Z, **options)


def test_bad_targets_are_named():
    X, Z = problem()
    features = Features(X, cpu, float)
    with pytest.raises(ValueError, match=r"Z has the shape \(29, 3\) and the features \(30, 6\)"):
        regress(features, Z[1:])
    with pytest.raises(ValueError, match="Z holds NaN"):
        regress(features, np.where(Z > 0, Z, np.nan))
