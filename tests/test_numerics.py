"""Single precision on unkind data, overlapping threads, stale code: where things could go wrong unseen."""

import threading

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from threadpoolctl import threadpool_info, threadpool_limits

from labelgap import LEML, hide_cells
from labelgap.kernels import cpu
from labelgap.losses import CellFunctions, Loss
from labelgap.model_selection import select
from labelgap.runtime import multithreaded_blas, threads


def unkind(kind):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 20))
    Y = (X @ rng.standard_normal((20, 3)) @ rng.standard_normal((3, 12)) > 1.5).astype(int)
    if kind == "scaled":
        return X * np.geomspace(0.1, 1e4, 20), Y
    if kind == "shifted":
        return X + 1000, Y
    return np.repeat(rng.standard_normal((40, 120)) + 10, 2, axis=0), Y[:80]  # wide, with every row twice


@pytest.mark.parametrize("kind", ["scaled", "shifted", "wide"])
@pytest.mark.parametrize("solver", ["direct", "cg", "tron"])
def test_single_precision_reaches_the_minimum_of_double(kind, solver):
    X, Y = unkind(kind)
    labels = Y if solver == "direct" else hide_cells(Y, 0.5, random_state=0)
    single, double = (
        LEML(5, solver=solver, dtype=dtype, max_iter=100, random_state=0).fit(X, labels)
        for dtype in ("float32", "float64")
    )
    assert single.objective_[-1] == pytest.approx(double.objective_[-1], rel=2e-3)
    assert single.status_ == "converged"


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_numbers_beyond_the_precision_get_one_error_or_the_minimum(loss):
    X, Y = unkind("scaled")
    model = LEML(3, loss=loss, random_state=0)
    try:
        model.fit(X * 1e30, Y)
    except ValueError as error:
        assert "X" in str(error)  # noqa: PT017
        assert not hasattr(model, "label_factors_")
    else:
        assert np.isfinite(model.objective_).all()


def test_a_strong_penalty_does_not_trap_a_warm_start():
    X, Y = unkind("scaled")
    X = X / np.linalg.norm(X, axis=0)
    model = LEML(3, alpha=1e6, warm_start=True, random_state=0).fit(X, Y)
    warm = model.set_params(alpha=0.01).fit(X, Y)
    cold = LEML(3, alpha=0.01, random_state=0).fit(X, Y)
    assert warm.objective_[-1] == pytest.approx(cold.objective_[-1], rel=1e-2)


def test_an_interrupt_before_the_first_alternation_keeps_the_old_model(monkeypatch):
    X, Y = unkind("scaled")
    model = LEML(3, random_state=0).fit(X, Y)
    before = model.decision_function(X)

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("labelgap.solvers.linear_systems.Direct.minimize", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y)
    np.testing.assert_array_equal(model.decision_function(X), before)


SCALE = 1.0


class Scaled(Loss):
    """A loss that reads a module's variable."""

    def functions(self, xp=np):
        def value(a, b):
            return SCALE * (b - a)

        def slope(a, b):
            return 0 * b + 1.0

        return CellFunctions(value, slope, slope)


def test_a_changed_variable_of_a_loss_is_seen(monkeypatch):
    A, B, H = cpu.prepare(np.ones((1, 1)), float), np.full((1, 1), 5.0), np.ones((1, 1))
    assert cpu.cells_value(Scaled(), A, B, H) == 4.0
    monkeypatch.setitem(globals(), "SCALE", 5.0)
    assert cpu.cells_value(Scaled(), A, B, H) == 20.0


def test_kernels_refuse_factors_of_other_shapes():
    A = cpu.prepare(np.ones((2, 6)), float)
    with pytest.raises(ValueError, match=r"\(2, 6\) does not go with factors of shape \(2, 3\)"):
        cpu.spmm(A, np.ones((2, 3)))
    with pytest.raises(ValueError, match="does not go with"):
        cpu.sddmm(A, np.ones((2, 3)), np.ones((6, 4)))


def blas_threads():
    # Another package, such as an index of neighbours, may have brought a BLAS of its own.
    ours = [info for info in threadpool_info() if info["user_api"] == "blas" and "faiss" not in info["filepath"]]
    return {info["num_threads"] for info in ours}


def test_overlapping_blocks_give_blas_its_threads_back():
    before = blas_threads()
    first_in, second_in, first_out = threading.Event(), threading.Event(), threading.Event()

    def first():
        with threads(1):
            first_in.set()
            second_in.wait(10)
        first_out.set()

    worker = threading.Thread(target=first)
    worker.start()
    first_in.wait(10)
    with threads(2):
        second_in.set()
        first_out.wait(10)
        assert blas_threads() == {1}  # our own threads call it
        with multithreaded_blas():
            assert blas_threads() == {min(2, max(before))}  # on one core there is no second
        assert blas_threads() == {1}
    worker.join()
    assert blas_threads() == before


def test_blas_never_gets_more_threads_than_it_was_found_with():
    before = blas_threads()
    with threadpool_limits(1, user_api="blas"), threads(2), multithreaded_blas():
        assert blas_threads() == {1}
    with pytest.raises(RuntimeError), threads(2), multithreaded_blas():
        raise RuntimeError
    assert blas_threads() == before


def test_selection_in_a_pipeline_knows_what_absent_means():
    X, Y = unkind("scaled")
    stored = hide_cells(Y, 0.5, random_state=0).encode(-1, 1)
    seen = []
    found = select(
        make_pipeline(Normalizer(), LEML(2, absent="unknown", random_state=0)),
        {"leml__alpha": [1.0]},
        X,
        stored,
        metric=lambda labels, scores: seen.append(labels) or 1.0,
        random_state=0,
    )
    assert not seen[0].complete
    assert found.params == {"leml__alpha": 1.0}
