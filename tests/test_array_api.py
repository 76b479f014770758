"""LEML and OneClassMF on arrays of any library: array-api-strict, on a device that NumPy cannot read."""

from __future__ import annotations

import array_api_strict as strict
import numpy as np
import pytest
import scipy.sparse as sp

import reference_kernels as reference
from labelgap import LEML, LocalLEML, OneClassMF, OneClassMFCV, Tagger, hide_cells, tune
from labelgap.datasets import make_low_rank
from labelgap.kernels import BACKENDS, cpu, get_backend
from labelgap.kernels.array_api import ArrayBackend
from labelgap.kernels.shards import ShardedBackend
from labelgap.losses import LOSSES
from labelgap.objectives import Problem, bind_label_cells
from labelgap.objectives.features import Features
from labelgap.solvers import NewtonCG

N, D, L, K = 90, 7, 8, 3
DATA = make_low_rank(N, D, L, rank=K, random_state=0)
GAPS = hide_cells(DATA.Y, 0.4, random_state=0)
DEVICE, HOST = strict.Device("device1"), strict.Device("CPU_DEVICE")


def graph(size, seed):
    S = sp.random_array((size, size), density=0.1, random_state=seed)
    return sp.csr_array(S + S.T)


SIDES = {
    "plain": {},
    "row graph": {"row_graph": graph(N, 0)},
    "label graph": {"label_graph": graph(L, 1)},
    "label features": {"label_features": np.random.default_rng(0).random((L, 4))},
    "row weights": {"row_weights": np.linspace(0.5, 2, N)},
    "all": {"row_graph": graph(N, 0), "label_graph": graph(L, 1), "row_weights": np.linspace(0.5, 2, N)},
}
OPTIONS = {
    "default": {},
    "tron": {"solver": "tron"},
    "all cells logistic": {"loss_unlabelled": "logistic"},
    "subsampled": {"negatives": "subsampled"},
    "pairs of weights": {"weight_unlabelled": (np.linspace(0.1, 0.2, N), np.linspace(0.5, 1, L))},
    "precomputed": {"precompute": True},
}
FORMS = {"dense": DATA.X, "sparse": sp.csr_array(DATA.X)}


@pytest.fixture(autouse=True)
def devices(monkeypatch):
    monkeypatch.setitem(BACKENDS, "strict", lambda: ArrayBackend(strict, DEVICE, HOST))
    monkeypatch.setitem(BACKENDS, "strict shards", lambda: ShardedBackend(ArrayBackend(strict, DEVICE, HOST), 3))


def both(make, *data, device="strict", **side):
    """The same fit on the CPU and on another device."""
    return [make(device=name).fit(*data, **side) for name in ("cpu", device)]


def assert_agree(ours, theirs):
    np.testing.assert_allclose(theirs.objective_, ours.objective_, rtol=1e-10)
    assert theirs.status_ == ours.status_
    for name in ("feature_factors_", "label_factors_"):
        assert type(getattr(theirs, name)) is np.ndarray
    np.testing.assert_allclose(
        theirs.feature_factors_ @ theirs.label_factors_.T, ours.feature_factors_ @ ours.label_factors_.T, atol=1e-8
    )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("gaps", [False, True], ids=["complete", "gaps"])
@pytest.mark.parametrize("solver", ["auto", "tron"])
@pytest.mark.parametrize("loss", LOSSES)
def test_leml(loss, solver, gaps, form):
    def make(device):
        return LEML(K, loss=loss, solver=solver, dtype="float64", random_state=0, max_iter=50, device=device)

    assert_agree(*both(make, FORMS[form], GAPS if gaps else DATA.Y))


@pytest.mark.parametrize("gaps", [False, True], ids=["complete", "gaps"])
@pytest.mark.parametrize("loss", LOSSES)
def test_rounds(loss, gaps, monkeypatch):
    monkeypatch.setattr("labelgap.objectives.features.MAX_EIGEN_ORDER", 0)
    monkeypatch.setattr("labelgap.objectives.features.MIN_SKETCH_RANK", 2)
    monkeypatch.setattr("labelgap.objectives.features.MAX_SKETCH_RANK", 2)

    def make(device):
        return LEML(K, loss=loss, dtype="float64", random_state=0, tol=0.05, device=device)

    assert_agree(*both(make, FORMS["sparse"], GAPS if gaps else DATA.Y))


@pytest.mark.parametrize("features", [True, False], ids=["features", "no features"])
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("loss", LOSSES)
def test_one_class(loss, side, features):
    def make(device):
        return OneClassMF(K, loss=loss, dtype="float64", random_state=0, max_iter=80, device=device)

    ours, theirs = both(make, DATA.X if features else None, DATA.Y, **SIDES[side])
    assert_agree(ours, theirs)
    if not features:
        np.testing.assert_allclose(theirs.decision_function(None), ours.decision_function(None), atol=1e-8)


@pytest.mark.parametrize("options", OPTIONS)
def test_options_of_one_class(options):
    def make(device):
        return OneClassMF(K, dtype="float64", random_state=0, max_iter=80, device=device, **OPTIONS[options])

    assert_agree(*both(make, FORMS["sparse"], DATA.Y))


@pytest.mark.parametrize("side", ["plain", "all"])
@pytest.mark.parametrize("features", [True, False], ids=["features", "no features"])
def test_shards_on_a_device(side, features):
    def make(device):
        return OneClassMF(K, dtype="float64", random_state=0, max_iter=80, device=device)

    assert_agree(*both(make, DATA.X if features else None, DATA.Y, device="strict shards", **SIDES[side]))


@pytest.mark.parametrize("wide", [False, True], ids=["many rows", "few rows"])
def test_more_features_than_rows(wide):
    X, Y = (DATA.X[:5], DATA.Y[:5]) if wide else (DATA.X, DATA.Y)
    assert_agree(*both(lambda device: LEML(2, dtype="float64", random_state=0, device=device), X, Y))


@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize("cls", [LEML, OneClassMF])
def test_partial_fit(cls, past):
    models = []
    for device in ("cpu", "strict"):
        model = cls(K, dtype="float64", random_state=0, max_iter=50, device=device).fit(DATA.X[:60], DATA.Y[:60])
        before = (DATA.X[:60], DATA.Y[:60]) if past else None
        models.append(model.partial_fit(DATA.X[60:], DATA.Y[60:], past=before))
    np.testing.assert_allclose(models[1].decision_function(DATA.X), models[0].decision_function(DATA.X), atol=1e-7)


def test_the_seams_of_a_device(tmp_path):
    """What is fitted on a device is searched, saved and used like any other model."""
    make = LEML(K, dtype="float64", random_state=0, device="strict")
    found = tune(make, DATA.X, DATA.Y, grid={"alpha": [0.1, 1.0]}, random_state=0)
    assert all(row["error"] is None for row in found.table)
    found.estimator.save(tmp_path / "model")
    local = LocalLEML(2, n_clusters=2, n_learners=1, dtype="float64", random_state=0, device="strict")
    assert local.fit(DATA.X, DATA.Y).predict(DATA.X).shape == (N, L)
    search = OneClassMFCV(2, weights=[0.1], alphas=[0.5, 1.0], random_state=0, device="strict", dtype="float64")
    plain = OneClassMFCV(2, weights=[0.1], alphas=[0.5, 1.0], random_state=0, dtype="float64")
    assert search.fit(DATA.X, DATA.Y).best_params_ == plain.fit(DATA.X, DATA.Y).best_params_
    texts = [" ".join(f"w{j}" for j in row.nonzero()[0]) for row in DATA.X > 0]
    tagger = Tagger(LEML(2, random_state=0, device="strict")).fit(texts, DATA.Y)
    assert tagger.predict_topk(texts, 2)[0].shape == (N, 2)


def test_the_device_is_read_once_for_each_product(monkeypatch):
    """Steps of conjugate gradients ask the device one question: whether any system goes on."""
    reads = []
    for name in ("__float__", "__bool__", "__int__"):
        plain = getattr(type(strict.ones(1)), name)
        monkeypatch.setattr(type(strict.ones(1)), name, lambda self, plain=plain: reads.append(1) or plain(self))
    backend, loss = get_backend("strict"), LOSSES["logistic"]()
    cells = bind_label_cells(GAPS, loss, backend, float)
    problem = Problem.of(cells, Features(DATA.X, backend, float), alpha=0.01, backend=backend)
    rng = np.random.default_rng(0)
    H = backend.array(rng.standard_normal((L, K)), float)
    objective, start = problem.objective_in_left(H), backend.array(np.zeros((D, K)), float)
    counts = []
    for products in (2, 12):
        reads.clear()
        found = NewtonCG(tol=0, max_iter=1, cg_tol=0, cg_iter=products, precondition=False).minimize(objective, start)
        counts.append((found.n_products, len(reads)))
    (few, least), (many, most) = counts
    assert (few, many) == (2, 12)
    assert most - least == many - few


def test_the_backend_equals_its_plain_twin():
    backend = get_backend("strict")
    A = sp.random_array((9, 5), density=0.4, random_state=0, format="csr")
    B, H = np.random.default_rng(0).standard_normal((2, 9, 3))
    H = H[:5]
    cell = LOSSES["logistic"]()
    P, b, h = backend.prepare(A, float), backend.array(B, float), backend.array(H, float)
    pairs = [
        (backend.spmm(P, h), reference.spmm(A, H)),
        (backend.spmm_t(P, b), reference.spmm_t(A, B)),
        (backend.gram(P), reference.gram(A)),
        (backend.column_squares(P), reference.column_squares(A)),
        (backend.sddmm(P, b, h), reference.sddmm(A, B, H)),
        (backend.cells_model(cell, P, b, h).gradient, reference.cells_model(cell, A, B, H).gradient),
        (backend.topk(b, h, 2)[1], reference.topk(B, H, 2)[1]),
    ]
    for theirs, ours in pairs:
        assert theirs.device == DEVICE
        np.testing.assert_allclose(backend.to_numpy(theirs), ours)
    np.testing.assert_allclose(cpu.spmm(cpu.prepare(A, float), H), reference.spmm(A, H))


def test_callbacks_are_told_numpy_arrays():
    told = []
    LEML(2, random_state=0, device="strict", callbacks=[told.append]).fit(DATA.X, DATA.Y)
    assert all(type(each.feature_factors) is type(each.label_factors) is np.ndarray for each in told)


def test_a_device_may_be_the_default(monkeypatch):
    """Prediction stays with NumPy."""
    monkeypatch.setitem(BACKENDS, "auto", BACKENDS["strict"])
    ours, theirs = (LEML(2, random_state=0, device=name).fit(DATA.X, DATA.Y) for name in ("cpu", "auto"))
    np.testing.assert_allclose(theirs.decision_function(DATA.X), ours.decision_function(DATA.X), atol=1e-3)
    assert OneClassMF(2, random_state=0).fit(None, DATA.Y).fold_in_rows(DATA.Y[:2]).shape == (2, 2)


def test_sparse_rows_in_shards_with_more_features_than_rows():
    X = sp.random_array((30, 50), density=0.3, random_state=0, format="csr")
    make = {"dtype": "float64", "random_state": 0}
    ours, theirs = (LEML(2, device=name, **make).fit(X, DATA.Y[:30]) for name in ("cpu", "strict shards"))
    assert_agree(ours, theirs)
