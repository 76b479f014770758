"""Solvers on problems whose minima are known."""

import numpy as np
import pytest
import scipy.linalg

from labelgap.kernels import cpu
from labelgap.objectives.base import Ridge, Sum
from labelgap.objectives.features import Features, Sketch
from labelgap.solvers import (
    TRON,
    Direct,
    NewtonCG,
    Status,
    alternate,
    backtrack,
    conjugate_gradient,
    find_right_vectors,
)
from labelgap.solvers.base import Fit, Kronecker, Model, inner
from labelgap.solvers.linear_systems import RotatedSystem, make_preconditioner


def positive_definite(n, seed, condition=1e3):
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    return (Q * np.geomspace(1, condition, n)) @ Q.T


class Quadratic:
    """½ ⟨W, A W⟩ − ⟨R, W⟩."""

    separable = False

    def __init__(self, A, R):
        self.A, self.R = A, R

    def value(self, W):
        return 0.5 * inner(W, self.A @ W) - inner(self.R, W)

    def model(self, W):
        return Model(self.value(W), self.A @ W - self.R, lambda S: self.A @ S)


class Soft:
    """Σ log cosh of a linear map plus a little ridge: convex, far from quadratic away from its minimum."""

    separable = False

    def __init__(self, A, shift):
        self.A, self.shift = A, shift

    def value(self, W):
        z = self.A @ W - self.shift
        return float(np.sum(np.abs(z) + np.log1p(np.exp(-2 * np.abs(z))))) + 0.005 * inner(W, W)

    def along(self, W, S):
        return lambda step: self.value(W + step * S)

    def model(self, W):
        t = np.tanh(self.A @ W - self.shift)
        return Model(
            self.value(W), self.A.T @ t + 0.01 * W, lambda S: self.A.T @ ((1 - t * t) * (self.A @ S)) + 0.01 * S
        )


def test_conjugate_gradient_solves_one_system_in_n_steps():
    A = positive_definite(12, 0, condition=50)
    rhs = np.random.default_rng(1).standard_normal((12, 1))
    found = conjugate_gradient(lambda v: A @ v, rhs, tol=1e-10, max_iter=40)
    np.testing.assert_allclose(found.x, np.linalg.solve(A, rhs), rtol=1e-8)
    np.testing.assert_allclose(found.residual, rhs - A @ found.x, atol=1e-9)
    assert found.converged
    assert found.n_products <= 16


@pytest.mark.parametrize("blocks", ["columns", "rows"])
def test_independent_systems_have_their_own_steps(blocks):
    rng = np.random.default_rng(2)
    systems = [positive_definite(8, seed, condition=10.0**seed) for seed in range(5)]
    rhs = rng.standard_normal((8, 5)) * np.array([1, 10, 0, 1e-3, 1])  # one of them is 0
    apply = lambda V: np.stack([A @ V[:, c] for c, A in enumerate(systems)], axis=1)  # noqa: E731
    expected = np.stack([np.linalg.solve(A, rhs[:, c]) for c, A in enumerate(systems)], axis=1)
    if blocks == "rows":
        found = conjugate_gradient(lambda V: apply(V.T).T, rhs.T, tol=1e-11, max_iter=60, blocks="rows").x.T
    else:
        found = conjugate_gradient(apply, rhs, tol=1e-11, max_iter=60, blocks="columns").x
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-12)


def test_a_good_preconditioner_and_a_good_start_save_products():
    A = positive_definite(60, 3, condition=1e5)
    rhs = np.ones((60, 1))
    plain = conjugate_gradient(lambda v: A @ v, rhs, tol=1e-8, max_iter=500)
    inverse = np.linalg.inv(A + 0.01 * np.eye(60))
    better = conjugate_gradient(lambda v: A @ v, rhs, tol=1e-8, max_iter=500, precondition=lambda r: inverse @ r)
    again = conjugate_gradient(lambda v: A @ v, rhs, tol=1e-8, max_iter=500, start=better.x)
    assert better.n_products < plain.n_products / 4
    assert again.n_products <= 2
    np.testing.assert_allclose(A @ better.x, rhs, atol=1e-6)


def test_backtracking_meets_its_condition_or_says_no():
    step, value = backtrack(lambda t: np.cosh(10 * t - 1), np.cosh(1), -10 * np.sinh(1))
    assert value == np.cosh(10 * step - 1)
    assert value <= np.cosh(1) - 1e-4 * step * 10 * np.sinh(1)
    assert backtrack(lambda t: 1.0 + t, 1.0, -1.0) == (0.0, 1.0)


@pytest.mark.parametrize("solver", [NewtonCG(tol=1e-10, cg_tol=1e-10, cg_iter=200), TRON(tol=1e-10, cg_iter=200)])
def test_newton_methods_on_a_quadratic(solver):
    A, R = positive_definite(15, 4), np.random.default_rng(5).standard_normal((15, 3))
    found = solver.minimize(Quadratic(A, R), np.zeros((15, 3)))
    assert found.status is Status.CONVERGED
    np.testing.assert_allclose(found.x, np.linalg.solve(A, R), rtol=1e-6, atol=1e-9)
    assert found.value == pytest.approx(-0.5 * inner(R, np.linalg.solve(A, R)), rel=1e-10)


@pytest.mark.parametrize("solver", [NewtonCG(tol=1e-9, max_iter=100), TRON(tol=1e-9, max_iter=200)])
def test_newton_methods_from_far_away(solver):
    rng = np.random.default_rng(6)
    objective = Soft(3 * rng.standard_normal((40, 10)), 20 * rng.standard_normal((40, 2)))
    found = solver.minimize(objective, 30 * rng.standard_normal((10, 2)))
    assert found.status is Status.CONVERGED
    model = objective.model(found.x)
    assert np.abs(model.gradient).max() < 1e-5
    other = objective.value(found.x + 1e-3 * rng.standard_normal((10, 2)))
    assert model.value < other


def test_tron_keeps_to_its_budget_and_says_so():
    rng = np.random.default_rng(7)
    objective = Soft(rng.standard_normal((40, 10)), 20 * rng.standard_normal((40, 1)))
    found = TRON(tol=1e-12, max_iter=2).minimize(objective, np.zeros((10, 1)))
    assert found.status is Status.MAX_ITER
    assert found.value < objective.value(np.zeros((10, 1)))


class Sandwich:
    """½ ‖T − A W Mᵗ‖² in the form that has an exact Kronecker Hessian AᵀA ⊗ M."""

    separable = False

    def __init__(self, features, A, M, R):
        self.features, self.A, self.M, self.R = features, A, M, R

    def value(self, W):
        return 0.5 * inner(self.A.T @ (self.A @ W), W @ self.M) - inner(self.R, W)

    def model(self, W):
        G = self.A.T @ self.A
        return Model(
            self.value(W),
            G @ W @ self.M - self.R,
            lambda S: G @ S @ self.M,
            Kronecker(0.0, self.features, self.M),
        )


def sandwich(n, d, k, seed):
    rng = np.random.default_rng(seed)
    A, M = rng.standard_normal((n, d)), positive_definite(k, seed, condition=30)
    R = A.T @ rng.standard_normal((n, k))
    features = Features(A, cpu, np.float64)
    return Sum([Sandwich(features, A, M, R), Ridge(0.7)], constant=3.0), A, M, R


@pytest.mark.parametrize("shape", [(30, 8, 4), (8, 30, 4), (9, 9, 1)], ids=str)
@pytest.mark.parametrize("by_eigenvectors", [True, False])
def test_direct_solves_the_sylvester_equation(shape, by_eigenvectors, monkeypatch):
    if not by_eigenvectors:
        monkeypatch.setattr("labelgap.objectives.features.MAX_EIGEN_ORDER", 0)
    objective, A, M, R = sandwich(*shape, seed=8)
    d, k = R.shape
    found = Direct(tol=1e-11, max_iter=500).minimize(objective, np.random.default_rng(0).standard_normal((d, k)))
    vec = np.linalg.solve(np.kron(M, A.T @ A) + 0.7 * np.eye(d * k), R.ravel(order="F"))
    np.testing.assert_allclose(found.x, vec.reshape(d, k, order="F"), rtol=1e-6, atol=1e-8)
    assert found.value == pytest.approx(objective.value(found.x), rel=1e-8)
    assert found.status is Status.CONVERGED


def test_direct_refuses_what_it_cannot_solve():
    with pytest.raises(ValueError, match=r"solver='direct'.*squared loss"):
        Direct().minimize(Quadratic(np.eye(2), np.ones((2, 1))), np.zeros((2, 1)))


def test_rotation_without_data_is_refused():
    with pytest.raises(ValueError, match="nothing to rotate"):
        RotatedSystem(Kronecker(1.0), np.dtype(float))
    assert make_preconditioner(Kronecker(1.0), np.dtype(float)) is None
    assert make_preconditioner(None, np.dtype(float)) is None


def test_the_diagonal_serves_where_eigenvectors_do_not(monkeypatch):
    monkeypatch.setattr("labelgap.objectives.features.MAX_EIGEN_ORDER", 0)
    objective, A, M, _ = sandwich(20, 6, 3, seed=9)
    apply = make_preconditioner(objective.model(np.zeros((6, 3))).kronecker, np.dtype(float))
    diagonal = np.outer((A**2).sum(0), np.diag(M)) + 0.7
    np.testing.assert_allclose(apply(np.ones((6, 3))), 1 / diagonal)


def decaying(n, d, seed):
    """A matrix with few strong directions and columns of very unequal norms, as texts have."""
    rng = np.random.default_rng(seed)
    low = rng.standard_normal((n, 6)) @ rng.standard_normal((6, d))
    return (low + 0.1 * rng.standard_normal((n, d))) * np.geomspace(1, 0.01, d)


def test_a_sketch_inverts_the_matrix_that_it_stands_for():
    A = decaying(60, 40, seed=20)
    sketch = Sketch.of(Features(A, cpu, np.float64), 8)
    D = np.sqrt(sketch.weights).ravel()
    U = sketch.directions / D[:, None]
    np.testing.assert_allclose(U.T @ U, np.eye(8), atol=1e-8)
    exact = D[:, None] * (A.T @ A) * D
    eigenvalues = np.linalg.eigvalsh(exact)[-8:]
    assert np.all(sketch.values.ravel() <= eigenvalues * (1 + 1e-9))  # as of every Nyström approximation
    np.testing.assert_allclose(sketch.values[-6:].ravel(), eigenvalues[-6:], rtol=0.02)
    m, ridge, R = np.array([[0.5, 3.0]]), 0.7, np.random.default_rng(1).standard_normal((40, 2))
    found = sketch.invert(m, ridge)(R)
    for column, weight in enumerate(m.ravel()):
        along = weight * sketch.values + ridge * sketch.squares
        rest = weight * sketch.tail + ridge * sketch.tail_square
        inner_matrix = (U * (along - rest).ravel()) @ U.T + rest * np.eye(40)
        expected = np.linalg.solve(inner_matrix / D[:, None] / D, R[:, column])
        np.testing.assert_allclose(found[:, column], expected, rtol=1e-7)


def test_a_sketch_needs_fewer_steps_than_the_diagonal(monkeypatch):
    monkeypatch.setattr("labelgap.objectives.features.MAX_EIGEN_ORDER", 0)
    A = decaying(300, 200, seed=21)
    M = positive_definite(3, 22, condition=30)
    R = A.T @ np.random.default_rng(2).standard_normal((300, 3))
    products = {}
    for name, rank in (("sketch", 20), ("diagonal", 1000)):
        monkeypatch.setattr("labelgap.objectives.features.MIN_SKETCH_RANK", rank)
        monkeypatch.setattr("labelgap.objectives.features.MAX_SKETCH_RANK", rank)
        system = RotatedSystem(Kronecker(1.0, Features(A, cpu, np.float64), M), np.dtype(float))
        solved = system.solve_columns(R, 1e-6, 500)
        np.testing.assert_allclose(A.T @ (A @ solved.x) @ M + solved.x, R, atol=1e-4 * np.abs(R).max())
        products[name] = solved.n_products
    assert products["sketch"] < 0.6 * products["diagonal"]


def test_the_sketch_is_the_preconditioner_of_other_losses(monkeypatch):
    monkeypatch.setattr("labelgap.objectives.features.MAX_EIGEN_ORDER", 0)
    monkeypatch.setattr("labelgap.objectives.features.MIN_SKETCH_RANK", 8)
    monkeypatch.setattr("labelgap.objectives.features.MAX_SKETCH_RANK", 8)
    A, M = decaying(60, 40, seed=23), positive_definite(3, 24)
    features = Features(A, cpu, np.float64)
    apply = make_preconditioner(Kronecker(0.5, features, M), np.dtype(float))
    R = np.random.default_rng(3).standard_normal((40, 3))
    m, Q = np.linalg.eigh(M)
    np.testing.assert_allclose(apply(R), features.sketch().invert(m[None], 0.5)(R @ Q) @ Q.T, rtol=1e-8)


def test_subspace_iteration_finds_the_leading_directions():
    rng = np.random.default_rng(10)
    A = rng.standard_normal((80, 8)) @ np.diag([9, 7, 5, 3, 1, 0.5, 0.1, 0.01]) @ rng.standard_normal((8, 50))
    values, V = find_right_vectors(A.dot, A.T.dot, 50, 3, random_state=np.random.RandomState(0))
    _, expected_values, Vt = scipy.linalg.svd(A)
    np.testing.assert_allclose(values, expected_values[:3], rtol=1e-8)
    np.testing.assert_allclose(np.abs(np.sum(V.T * Vt[:3], axis=1)), 1, rtol=1e-8)


class Scalars:
    """F(w, h) = ½ (2 − w h)² + ½ (w² + h²)/2, minimal at w = h = √(3/2)."""

    def objective_in_left(self, H):
        return Sum([Quadratic(H.T @ H, 2 * H.T), Ridge(0.5)], constant=2.0 + 0.25 * inner(H, H))

    def objective_in_right(self, W):
        return self.objective_in_left(W)

    def balance(self, W, H):
        return W, H, 0.0


def test_alternation_descends_to_the_minimum_and_reports_it():
    state = Fit(np.zeros((1, 1)), np.full((1, 1), 3.0))
    solver = NewtonCG(tol=1e-12, cg_tol=1e-12)
    alternate(Scalars(), state, solver, solver, max_iter=300, tol=1e-15)
    assert state.status is Status.CONVERGED
    assert np.all(np.diff(state.history) <= 1e-14)
    np.testing.assert_allclose([state.W.item(), state.H.item()], np.sqrt(1.5), rtol=1e-6)
    assert state.history[-1] == pytest.approx(0.5 * (2 - 1.5) ** 2 + 0.25 * 3)
    assert state.n_iter == len(state.history)


def test_alternation_can_be_stopped():
    state = Fit(np.zeros((1, 1)), np.ones((1, 1)))
    alternate(Scalars(), state, NewtonCG(), NewtonCG(), max_iter=50, tol=0, stop=lambda s: s.n_iter == 3)
    assert state.status is Status.STOPPED
    assert state.n_iter == 3
