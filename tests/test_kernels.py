"""The CPU backend against its plain twin: empty rows, int64 indices, both precisions, any number of threads."""

import numpy as np
import pytest
import scipy.sparse as sp

import reference_kernels as reference
from labelgap.kernels import cpu, exact_gram, get_backend
from labelgap.losses import LOSSES, CellFunctions, Loss
from labelgap.runtime import threads

LOSS = [cls() for cls in LOSSES.values()]
PRECISION = [np.float32, np.float64]


def sparse(n, m, seed, *, density=0.2, wide=False):
    rng = np.random.default_rng(seed)
    A = sp.csr_array(sp.random(n, m, density, format="csr", random_state=seed))
    A.data = rng.choice([-1.0, 1.0, 0.5], A.nnz)
    keep = np.ones(n)
    keep[: n // 5] = 0  # rows without a cell
    A = sp.csr_array(sp.diags_array(keep) @ A)
    A.eliminate_zeros()
    if wide:
        A.indptr, A.indices = A.indptr.astype(np.int64), A.indices.astype(np.int64)
    return A


@pytest.fixture(params=[(40, 30, 5, False), (700, 90, 24, True), (33, 500, 1, False)], ids=str)
def problem(request):
    n, L, k, wide = request.param
    rng = np.random.default_rng(k)
    return sparse(n, L, k, wide=wide), *(rng.standard_normal(shape) for shape in ((n, k), (L, k), (n, k)))


def close(found, expected, dtype):
    scale = max(1.0, np.abs(expected).max(initial=0))
    np.testing.assert_allclose(found, expected, rtol=0, atol=scale * (2e-5 if dtype == np.float32 else 1e-12))


@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("n_jobs", [1, 2, 5])
def test_products(problem, dtype, n_jobs):
    A, B, H, _ = problem
    P, R = cpu.prepare(A, dtype), reference.prepare(A, dtype)
    B, H = B.astype(dtype), H.astype(dtype)
    with threads(n_jobs):
        close(cpu.spmm(P, H), reference.spmm(R, H), dtype)
        close(cpu.spmm_t(P, B), reference.spmm_t(R, B), dtype)
        close(cpu.sddmm(P, B, H), reference.sddmm(R, B, H), dtype)
        close(cpu.gram(P), reference.gram(R), dtype)
        close(cpu.gram(B), reference.gram(B), dtype)
        close(cpu.spmm(cpu.transpose(P), B), reference.spmm(reference.transpose(R), B), dtype)
        close(cpu.column_squares(P), reference.column_squares(R), np.float64)


@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("order", ["sorted", "shuffled"])
def test_products_that_meet_the_factor_in_parts(order, dtype, monkeypatch):
    monkeypatch.setattr(cpu, "CACHED_BYTES", 1 << 10)
    monkeypatch.setattr(cpu, "MIN_CELLS_PER_BLOCK", 1)
    A = sparse(300, 900, 7, density=0.5)  # rows are longer than a short sum
    if order == "shuffled":
        for start, stop in zip(A.indptr[:-1], A.indptr[1:]):
            A.indices[start:stop], A.data[start:stop] = A.indices[start:stop][::-1], A.data[start:stop][::-1]
        A.has_sorted_indices = False
    P, R = cpu.prepare(A, dtype), reference.prepare(A, dtype)
    rng = np.random.default_rng(0)
    H, B = rng.standard_normal((900, 9)).astype(dtype), rng.standard_normal((300, 9)).astype(dtype)
    assert cpu._choose_width(P, H) < 300
    before = P.indptr.copy()
    close(cpu.spmm(P, H), reference.spmm(R, H), dtype)
    close(cpu.spmm_t(P, B), reference.spmm_t(R, B), dtype)
    close(cpu.gram(P), reference.gram(R), dtype)
    np.testing.assert_array_equal(P.indptr, before)


@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("shape", [(3000, 60, 40), (1100, 1500, 8), (20, 60, 900), (7, 5, 3), (0, 4, 4)], ids=str)
def test_dense_products(shape, dtype, monkeypatch):
    monkeypatch.setattr(cpu, "MIN_SHARED_PRODUCT", 1 << 10)
    n, m, k = shape
    rng = np.random.default_rng(0)
    A, B, C = (rng.standard_normal(size).astype(dtype) for size in ((n, m), (m, k), (n, k)))
    results = []
    for n_jobs in (1, 2):
        with threads(n_jobs):
            results.append((cpu.matmul(A, B), cpu.matmul_t(A, C), cpu.matmul(A.T, C), cpu.gram(C)))
    close(results[0][0], reference.matmul(A, B), dtype)
    close(results[0][1], reference.matmul_t(A, C), dtype)
    close(results[0][2], reference.matmul_t(A, C), dtype)
    close(results[0][3], reference.gram(C), dtype)
    for alone, together in zip(*results):
        np.testing.assert_array_equal(alone, together)


@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("shape", [(5000, 40), (30, 4), (7, 1)], ids=str)
def test_sums_and_updates_of_columns(shape, dtype, monkeypatch):
    monkeypatch.setattr(cpu, "ROWS_BYTES", 1 << 12)  # several blocks of rows
    monkeypatch.setattr(cpu, "MIN_LOOP_CELLS", 1 << 6)
    rng = np.random.default_rng(0)
    A, B, C = rng.standard_normal((3, *shape)).astype(dtype)
    plain = np.einsum("aic,bic->abc", *2 * [np.array([A, B, C], float)])[:, :, None, :]
    close(cpu.column_grams((A, B, C)), plain, np.float64)
    close(cpu.column_totals(A), A.sum(axis=0, keepdims=True, dtype=float), np.float64)
    close(cpu.dot(A, B), (A.astype(float) * B).sum(), np.float64 if dtype == np.float64 else dtype)
    a, b = rng.standard_normal((2, 1, shape[1])).astype(dtype)
    weights = rng.random((shape[0], 1)).astype(dtype)
    for scale, change, w in ((a, B, weights), (1.0, B, 1.0), (a, B[:1], 1.0)):
        found = A.copy()
        assert cpu.combine(found, scale, change, b, w) is found
        close(found, scale * A + b * (w * change), dtype)
    T, found = rng.standard_normal(2 * shape[1:]).astype(dtype), A.copy()
    assert cpu.mix(found, T) is found
    close(found, A @ T, dtype)


@pytest.mark.parametrize("dtype", PRECISION)
def test_transpose(problem, dtype):
    A = problem[0]
    found, expected = cpu.transpose(cpu.prepare(A, dtype)).matrix(), reference.transpose(A.astype(dtype))
    expected.sort_indices()
    assert found.shape == expected.shape
    for name in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("loss", LOSS, ids=repr)
def test_passes_over_known_cells(problem, dtype, loss):
    A, B, H, S = problem
    P, R = cpu.prepare(A, dtype), reference.prepare(A, dtype)
    B, H, S = (M.astype(dtype) for M in (B, H, S))
    found, expected = cpu.cells_model(loss, P, B, H), reference.cells_model(loss, R, B, H)
    tight = 1e-5 if dtype == np.float32 else 1e-12
    assert found.value == pytest.approx(expected.value, rel=tight)
    assert cpu.cells_value(loss, P, B, H) == pytest.approx(expected.value, rel=tight)
    close(found.gradient, expected.gradient, dtype)
    close(found.row_curvature, expected.row_curvature, dtype)
    close(found.cell_curvature, expected.cell_curvature, dtype)
    close(
        cpu.cells_hessp(P, found.cell_curvature, S, H),
        reference.cells_hessp(R, expected.cell_curvature, S, H),
        dtype,
    )
    close(
        cpu.cells_diagonal(P, found.cell_curvature, H),
        reference.cells_diagonal(R, expected.cell_curvature, H),
        dtype,
    )


@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("n_jobs", [1, 3])
def test_systems_of_rows(problem, dtype, n_jobs):
    A, B, H, _ = problem
    P, rng = cpu.prepare(A, dtype), np.random.default_rng(3)
    curvature, m, p, ridge = (rng.uniform(0.5, 1, size) for size in (A.nnz, H.shape[1], len(B), len(B)))
    R, tol = B.astype(dtype), 1e-3 if dtype == np.float32 else 1e-9
    diagonals = tuple(part.astype(dtype) for part in (m, p, ridge))
    with threads(n_jobs):
        X, products, done = cpu.solve_rows(P, curvature.astype(dtype), H.astype(dtype), diagonals, R, tol, 200)
    expected = reference.solve_rows(A, curvature, H, (m, p, ridge), B)
    assert done
    assert 0 < products <= 200
    assert (np.linalg.norm(R, axis=1) <= 1.01 * tol * np.linalg.norm(B, axis=1)).all()
    np.testing.assert_allclose(X, expected, rtol=0, atol=10 * tol * np.abs(B).max())
    stopped = cpu.solve_rows(P, curvature.astype(dtype), H.astype(dtype), diagonals, B.astype(dtype), tol, 0)
    assert not stopped[0].any()
    assert stopped[1:] == (0, False)


@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("loss", LOSS, ids=repr)
def test_passes_over_all_cells(problem, dtype, loss, monkeypatch):
    monkeypatch.setattr(cpu, "MAX_BLOCK_BYTES", 1 << 13)  # several blocks even here
    A, B, H, S = problem
    P, R = cpu.prepare(A, dtype), reference.prepare(A, dtype)
    B, H, S = (M.astype(dtype) for M in (B, H, S))
    rng = np.random.default_rng(1)
    fixed = ((loss.negative, loss.positive), (rng.uniform(0, 2, len(B)), rng.uniform(0, 2, len(H))))
    found, expected = cpu.all_model(loss, P, *fixed, B, H), reference.all_model(loss, R, *fixed, B, H)
    tight = 1e-5 if dtype == np.float32 else 1e-12
    assert found.value == pytest.approx(expected.value, rel=tight)
    assert cpu.all_value(loss, P, *fixed, B, H) == pytest.approx(expected.value, rel=tight)
    close(found.gradient, expected.gradient, dtype)
    close(found.row_curvature, expected.row_curvature, dtype)
    close(cpu.all_hessp(loss, P, *fixed, B, S, H), reference.all_hessp(loss, R, *fixed, B, S, H), dtype)


@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("loss", LOSS, ids=repr)
def test_sums_along_a_line(problem, dtype, loss):
    A, B, H, S = problem
    P, R = cpu.prepare(A, dtype), reference.prepare(A, dtype)
    scores, changes = reference.sddmm(R, B, H).astype(dtype), reference.sddmm(R, S, H).astype(dtype)
    expected = reference.cells_sum(loss, R, scores.astype(float), changes.astype(float), 0.3)
    assert cpu.cells_sum(loss, P, scores, changes, 0.3) == pytest.approx(expected, rel=1e-12)
    tight = 1e-4 if dtype == np.float32 else 1e-12
    assert expected == pytest.approx(reference.cells_value(loss, R, B + 0.3 * S, H), rel=tight)
    close(cpu.column_sums(P, scores), reference.column_sums(R, scores), dtype)


@pytest.mark.parametrize("k", [1, 3, 30])
@pytest.mark.parametrize("hidden", [False, True])
def test_topk_and_its_ties(problem, k, hidden, monkeypatch):
    monkeypatch.setattr(cpu, "MAX_BLOCK_BYTES", 1 << 13)
    A, B, H, _ = problem
    B, H = np.round(B), np.round(H)  # many equal scores
    indices, scores = cpu.topk(B, H, k, cpu.prepare(A, float) if hidden else None)
    expected_indices, expected_scores = reference.topk(B, H, k, A if hidden else None)
    np.testing.assert_array_equal(indices, expected_indices)
    np.testing.assert_array_equal(scores, expected_scores)


def test_stored_zeros_are_cells():
    A = sp.csr_array((np.array([0.0, 1.0]), np.array([0, 1]), np.array([0, 2])), shape=(1, 2))
    B, H = np.ones((1, 1)), np.ones((2, 1))
    squared = LOSSES["squared"]()
    assert cpu.cells_value(squared, cpu.prepare(A, float), B, H) == pytest.approx(0.5)


class Shifted(Loss):
    """A loss with a parameter: two values of it must not share compiled code."""

    def __init__(self, shift):
        self.shift = shift

    def functions(self, xp=np):
        shift = self.shift

        def value(a, b):
            return b - a + shift

        def gradient(a, b):
            return 0 * b + 1.0

        def curvature(a, b):
            return 0 * b

        return CellFunctions(value, gradient, curvature)


def test_a_loss_defined_elsewhere_compiles_with_its_parameters():
    A, B, H = cpu.prepare(np.ones((1, 1)), float), np.ones((1, 1)), np.ones((1, 1))
    assert cpu.cells_value(Shifted(2.0), A, B, H) == 2.0
    assert cpu.cells_value(Shifted(3.5), A, B, H) == 3.5


@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("shape", [(5000, 40), (30, 4), (0, 3)], ids=str)
def test_gram_matrices_in_float64(shape, dtype):
    rng = np.random.default_rng(1)
    A, weights = rng.standard_normal(shape).astype(dtype), rng.random((shape[0], 1))
    exact = A.astype(float)
    np.testing.assert_allclose(exact_gram(A, 0.5), 0.5 * exact.T @ exact, rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(exact_gram(A, weights), exact.T @ (weights * exact), rtol=1e-12, atol=1e-9)


def test_results_do_not_depend_on_threads():
    A = cpu.prepare(sparse(3000, 200, 3), np.float32)
    H = np.random.default_rng(0).standard_normal((200, 40)).astype(np.float32)
    with threads(1):
        alone = cpu.spmm(A, H)
    with threads(2):
        together = cpu.spmm(A, H)
    np.testing.assert_array_equal(alone, together)


def test_choice_of_backend():
    assert get_backend("auto") is cpu
    with pytest.raises(ValueError, match="device='tpu'"):
        get_backend("tpu")


def test_coarse_arrays_are_the_nearest_bfloat16(monkeypatch):
    monkeypatch.setattr(cpu, "MIN_COARSE_NUMBERS", 0)
    exact = np.array([[1.0, -2.0, 0.0, np.inf, -np.inf, 1 + 2.0**-8, 1 + 3 * 2.0**-8, np.pi]], np.float32)
    nearest = (cpu.coarse(exact).astype(np.uint32) << 16).view(np.float32)
    expected = [[1.0, -2.0, 0.0, np.inf, -np.inf, 1.0, 1 + 2.0**-6, 3.140625]]  # ties go to the even number
    np.testing.assert_array_equal(nearest, expected)
    B = np.random.default_rng(0).standard_normal((500, 7)).astype(np.float32)
    rounded = (cpu.coarse(B).astype(np.uint32) << 16).view(np.float32)
    assert np.abs(rounded / B - 1).max() <= 2.0**-8
    assert cpu.coarse(B.astype(float)).dtype == float


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_coarse_products_round_their_argument_alone(problem, n_jobs, monkeypatch):
    monkeypatch.setattr(cpu, "MIN_COARSE_NUMBERS", 0)
    A, B, H, _ = problem
    P = cpu.prepare(A, np.float32)
    for product, matrix, factor in ((cpu.spmm, A, H), (cpu.spmm_t, A.T, B)):
        coarse = cpu.coarse(factor.astype(np.float32))
        with threads(n_jobs):
            found = product(P, coarse)
        assert found.dtype == np.float32
        close(found, matrix @ (coarse.astype(np.uint32) << 16).view(np.float32), np.float32)


def test_many_random_numbers_are_normal_and_repeat():
    one, again = (cpu.normal(np.random.RandomState(3), (1100, 1000), np.float32) for _ in range(2))
    np.testing.assert_array_equal(one, again)
    np.testing.assert_allclose((one.mean(), one.std()), (0, 1), atol=0.005)
