"""The PyTorch backend, on PyTorch's CPU device; with a GPU, its Triton kernels too."""

from __future__ import annotations

import copy
import importlib.util
import re

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from typer.testing import CliRunner

import reference_kernels as reference
from labelgap import (
    LEML,
    MC1,
    SLEEC,
    BinaryRelevance,
    FastXML,
    Labels,
    LocalLEML,
    MCb,
    OneClassMF,
    OneClassMFCV,
    Tagger,
    audit,
    hide_cells,
    load,
    tune,
)
from labelgap.cli import app
from labelgap.commands.training import list_parameters
from labelgap.datasets import make_low_rank
from labelgap.estimators.label_models import FoldRidge
from labelgap.kernels import BACKENDS, exact_gram, explain_out_of_memory, get_backend, qr, svd
from labelgap.kernels import base as kernels_base
from labelgap.kernels.gpu_streams import StreamedBackend
from labelgap.kernels.shards import ShardedBackend
from labelgap.losses import LOSSES
from labelgap.objectives.positive_unlabelled import CorrectedLoss

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is not installed: pip install labelgap[gpu]"
)

N, D, L, K = 90, 7, 8, 3
DATA = make_low_rank(N, D, L, rank=K, random_state=0)
GAPS = hide_cells(DATA.Y, 0.4, random_state=0)
X = sp.csr_array(np.where(abs(DATA.X) > 0.3, DATA.X, 0))
TEXTS = [" ".join(f"w{j}" for j in row.nonzero()[0]) for row in DATA.X > 0]


def make_backend(**options):
    from labelgap.kernels.gpu import TorchBackend

    return TorchBackend("cpu", **options)


def devices():
    import torch

    return ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


@pytest.fixture(autouse=True)
def torch_devices(monkeypatch):
    import torch

    torch.set_num_threads(1)  # the arrays are small, and waiting threads take the cores from other tests
    monkeypatch.setitem(BACKENDS, "torch", make_backend)
    monkeypatch.setitem(BACKENDS, "torch coarse", lambda: make_backend(coarse=True))
    monkeypatch.setitem(BACKENDS, "torch shards", lambda: ShardedBackend(make_backend(), 3))
    monkeypatch.setitem(BACKENDS, "torch streams", lambda: StreamedBackend(make_backend(), 3))


def graph(size, seed):
    S = sp.random_array((size, size), density=0.1, random_state=seed)
    return sp.csr_array(S + S.T)


def assert_agree(make, *data, device="torch", **side):
    ours, theirs = (make(device=name).fit(*data, **side) for name in ("cpu", device))
    np.testing.assert_allclose(theirs.objective_, ours.objective_, rtol=1e-9)
    assert theirs.status_ == ours.status_
    assert type(theirs.feature_factors_) is type(theirs.label_factors_) is np.ndarray
    np.testing.assert_allclose(
        theirs.feature_factors_ @ theirs.label_factors_.T, ours.feature_factors_ @ ours.label_factors_.T, atol=1e-7
    )


@pytest.mark.parametrize("form", [DATA.X, X], ids=["dense", "sparse"])
@pytest.mark.parametrize("gaps", [False, True], ids=["complete", "gaps"])
@pytest.mark.parametrize("solver", ["auto", "tron"])
@pytest.mark.parametrize("loss", LOSSES)
def test_leml(loss, solver, gaps, form):
    def make(device):
        return LEML(K, loss=loss, solver=solver, dtype="float64", random_state=0, tol=0.05, device=device)

    assert_agree(make, form, GAPS if gaps else DATA.Y)


@pytest.mark.parametrize("gaps", [False, True], ids=["complete", "gaps"])
@pytest.mark.parametrize("loss", LOSSES)
def test_rounds(loss, gaps, monkeypatch):
    monkeypatch.setattr("labelgap.objectives.features.MAX_EIGEN_ORDER", 0)
    monkeypatch.setattr("labelgap.objectives.features.MIN_SKETCH_RANK", 2)
    monkeypatch.setattr("labelgap.objectives.features.MAX_SKETCH_RANK", 2)

    def make(device):
        return LEML(K, loss=loss, dtype="float64", random_state=0, tol=0.05, device=device)

    assert_agree(make, X, GAPS if gaps else DATA.Y)


@pytest.mark.parametrize("cls", [LEML, OneClassMF])
@pytest.mark.parametrize("loss", LOSSES)
def test_coarse_rounds_end_at_the_same_objective(cls, loss, monkeypatch):
    """Both products of a round and, with squared loss, its last step are rounded to bfloat16."""
    monkeypatch.setattr("labelgap.objectives.features.MAX_EIGEN_ORDER", 0)
    rng = np.random.default_rng(0)
    rows = sp.random_array((120, 60), density=0.2, random_state=0, format="csr", dtype=np.float32)
    Y = (rows @ rng.standard_normal((60, 12)) > 0.5).astype(float)
    settings = {"loss": loss, "random_state": 0, "max_iter": 60, "tol": 1e-5}
    ours, theirs = (cls(K, device=name, **settings).fit(rows, Y) for name in ("torch", "torch coarse"))
    np.testing.assert_allclose(theirs.objective_[-1], ours.objective_[-1], rtol=1e-3)


SIDES = {
    "plain": {},
    "all": {"row_graph": graph(N, 0), "label_graph": graph(L, 1), "row_weights": np.linspace(0.5, 2, N)},
    "label features": {"label_features": np.random.default_rng(0).random((L, 4))},
}


@pytest.mark.parametrize("features", [True, False], ids=["features", "no features"])
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("loss", LOSSES)
def test_one_class(loss, side, features):
    def make(device):
        return OneClassMF(K, loss=loss, dtype="float64", random_state=0, tol=0.05, device=device)

    assert_agree(make, X if features else None, DATA.Y, **SIDES[side])


@pytest.mark.parametrize(
    "options",
    [{"loss_unlabelled": "logistic"}, {"negatives": "subsampled"}, {"precompute": True}, {"solver": "tron"}],
    ids=lambda options: next(iter(options)),
)
def test_options_of_one_class(options):
    def make(device):
        return OneClassMF(K, dtype="float64", random_state=0, tol=0.05, device=device, **options)

    assert_agree(make, X, DATA.Y)


@pytest.mark.parametrize("features", [True, False], ids=["features", "no features"])
@pytest.mark.parametrize("device", ["torch shards", "torch streams"])
def test_shards_on_a_device(device, features):
    def make(device):
        return OneClassMF(K, dtype="float64", random_state=0, tol=0.05, device=device)

    assert_agree(make, X if features else None, DATA.Y, device=device, **SIDES["all"])


@pytest.mark.parametrize("gaps", [False, True], ids=["complete", "gaps"])
@pytest.mark.parametrize("loss", LOSSES)
def test_data_larger_than_the_memory_of_the_device(loss, gaps, monkeypatch):
    """They are streamed in blocks; the fit is the same, and the blocks stay in the memory of the host."""
    backend, used = make_backend(), []
    monkeypatch.setattr(backend, "_count_free_bytes", lambda: 2 * 40 * X.nnz)
    monkeypatch.setattr("labelgap.kernels.gpu.STREAMED_CELLS", 100)
    monkeypatch.setitem(BACKENDS, "torch", lambda: backend)
    split = backend.split
    monkeypatch.setattr(backend, "split", lambda n_cells: used.append(split(n_cells)) or used[-1])

    def make(device):
        return LEML(K, loss=loss, dtype="float64", random_state=0, tol=0.05, device=device)

    assert_agree(make, X, GAPS if gaps else DATA.Y)
    assert type(used[0]) is StreamedBackend
    assert used[0].count > 3
    assert backend.split(1) is backend


@pytest.mark.parametrize("cls", [LEML, OneClassMF])
@pytest.mark.parametrize("loss", LOSSES)
def test_coarse_products_end_at_the_same_objective(cls, loss):
    """bfloat16 inside conjugate gradients only: gradients and objectives are float32."""
    rng = np.random.default_rng(0)
    rows = sp.random_array((120, 60), density=0.2, random_state=0, format="csr", dtype=np.float32)
    Y = (rows @ rng.standard_normal((60, 12)) > 0.5).astype(float)
    settings = {"loss": loss, "random_state": 0, "max_iter": 200, "tol": 1e-5}
    ours, theirs = (cls(K, device=name, **settings).fit(rows, Y) for name in ("torch", "torch coarse"))
    np.testing.assert_allclose(theirs.objective_[-1], ours.objective_[-1], rtol=2e-4)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("embedding", ["svp", "als"])
def test_sleec(embedding, dtype):
    """Products of embedded rows agree: the embedding itself may be rotated."""
    settings = {"n_components": 5, "n_clusters": 2, "n_learners": 2, "n_neighbors_embed": 10, "random_state": 0}
    ours, theirs = (
        SLEEC(device=device, embedding=embedding, dtype=dtype, **settings).fit(DATA.X, DATA.Y)
        for device in ("cpu", "torch")
    )
    tolerance = 1e-3 if embedding == "als" else {"float64": 1e-9, "float32": 1e-4}[dtype]
    for mine, other in zip(ours.parts_, theirs.parts_, strict=True):
        for a, b in zip(mine, other, strict=True):
            np.testing.assert_array_equal(b["rows"], a["rows"])
            products = a["embedded"] @ a["embedded"].T
            np.testing.assert_allclose(b["embedded"] @ b["embedded"].T, products, atol=tolerance * products.max())
    np.testing.assert_allclose(
        [history[-1] for history in theirs.objective_], [history[-1] for history in ours.objective_], rtol=1e-4
    )


@pytest.mark.parametrize("tracked", [False, True], ids=["all vectors", "tracked"])
@pytest.mark.parametrize("solver", ["fpc", "exact", "accelerated", "factored"])
@pytest.mark.parametrize("cls", [MC1, MCb])
def test_matrix_completion(cls, solver, tracked, monkeypatch):
    monkeypatch.setattr("labelgap.regularizers.MIN_TRACKED_ORDER", 1 if tracked else 800)
    monkeypatch.setattr("labelgap.regularizers.MAX_BLOCK_SHARE", 1.0)
    rows = np.where(np.random.default_rng(0).random((N, D)) < 0.1, np.nan, DATA.X)
    settings = {"solver": solver, "mu": 1e-3, "tol": 1e-7, "random_state": 0}
    ours, theirs = (cls(device=device, **settings).fit(rows, GAPS) for device in ("cpu", "torch"))
    assert theirs.rank_ == ours.rank_
    np.testing.assert_allclose(theirs.objective_[-1], ours.objective_[-1], rtol=1e-9)
    np.testing.assert_allclose(theirs.decision_, ours.decision_, atol=1e-5)
    np.testing.assert_allclose(theirs.features_, ours.features_, atol=1e-5)
    np.testing.assert_allclose(theirs.decision_function(rows), ours.decision_function(rows), atol=1e-5)


LINEAR = {
    "plain": {},
    "l1": {"l1": 0.5},
    "propensity": {"propensity": "counts"},
    "no intercept": {"fit_intercept": False},
    "threshold": {"threshold": 0.05},
}


@pytest.mark.parametrize("form", [DATA.X, X], ids=["dense", "sparse"])
@pytest.mark.parametrize("gaps", [False, True], ids=["complete", "gaps"])
@pytest.mark.parametrize("options", LINEAR)
@pytest.mark.parametrize("loss", LOSSES)
def test_linear_models(loss, options, gaps, form):
    """The CPU solves some of these problems by other methods, so that they agree in the minimum."""
    settings = {"loss": loss, "dtype": "float64", "tol": 1e-9, "alpha": 0.5, **LINEAR[options]}
    sides = {"sample_weight": np.linspace(0.5, 2, N)} if options == "plain" else {}
    data = form, GAPS if gaps else DATA.Y
    ours, theirs = (BinaryRelevance(device=device, **settings).fit(*data, **sides) for device in ("cpu", "torch"))
    assert theirs.status_ == ours.status_
    np.testing.assert_allclose(theirs.decision_function(form), ours.decision_function(form), atol=1e-6)
    np.testing.assert_array_equal(theirs.predict_topk(form, 3)[0], ours.predict_topk(form, 3)[0])


def test_a_prior_and_further_rows_of_linear_models():
    prior = np.random.default_rng(0).standard_normal((L, D))
    models = []
    for device in ("cpu", "torch"):
        model = BinaryRelevance(loss="squared", dtype="float64", tol=1e-9, device=device)
        models.append(model.fit(X[:60], DATA.Y[:60], prior=prior).partial_fit(X[60:], DATA.Y[60:]))
    np.testing.assert_allclose(models[1].coef_, models[0].coef_, atol=1e-9)


@pytest.mark.parametrize("weights", [None, np.linspace(0.5, 2, N)], ids=["", "weights"])
@pytest.mark.parametrize("form", ["few features", "many features", "no factor"])
def test_ridge_regressions_without_held_out_rows(form, weights, monkeypatch):
    rows = np.random.default_rng(0).standard_normal((N, 200)) if form == "many features" else X
    if form == "no factor":
        monkeypatch.setattr("labelgap.objectives.embeddings.MAX_FACTOR_ORDER", 1)
    settings = BinaryRelevance(loss="squared", dtype="float64", tol=1e-9)._settings()
    prior = np.random.default_rng(1).standard_normal((L, rows.shape[1]))
    ours, theirs = (
        FoldRidge(rows, Labels(DATA.Y), settings, BACKENDS[device](), prior, weights) for device in ("cpu", "torch")
    )
    assert ours.is_exact == theirs.is_exact == (form != "no factor")
    for held_out in (np.arange(0, N, 3), np.arange(5)):
        pairs = [(ridge.score(held_out), ridge.find_leverages(held_out)) for ridge in (ours, theirs)]
        if ours.is_exact:
            pairs = [(*pair, ridge.score_each(held_out)) for pair, ridge in zip(pairs, (ours, theirs), strict=True)]
        for a, b in zip(*pairs, strict=True):
            assert type(b) is type(a)
            tolerance = 1e-9 if ours.is_exact else 0.02
            for mine, other in zip(a, b, strict=True):
                np.testing.assert_allclose(other, mine, atol=tolerance)


@pytest.mark.parametrize("make", [lambda d: BinaryRelevance(loss="squared", device=d), lambda d: LEML(K, device=d)])
def test_an_audit_on_the_device(make):
    """Folds are fitted and scored there; the same cells are listed."""
    settings = {"n_folds": 3, "random_state": 0}
    models = (make(device).set_params(dtype="float64") for device in ("cpu", "torch"))
    ours, theirs = (audit(X, DATA.Y, model, **settings) for model in models)
    np.testing.assert_array_equal(theirs.missing.labels, ours.missing.labels)
    np.testing.assert_allclose(theirs.missing.probabilities, ours.missing.probabilities, atol=1e-6)


@pytest.mark.parametrize("past", [False, True])
def test_partial_fit(past):
    models = []
    for device in ("cpu", "torch"):
        model = LEML(K, dtype="float64", random_state=0, tol=0.01, device=device).fit(DATA.X[:60], DATA.Y[:60])
        before = (DATA.X[:60], DATA.Y[:60]) if past else None
        models.append(model.partial_fit(DATA.X[60:], DATA.Y[60:], past=before))
    np.testing.assert_allclose(models[1].decision_function(DATA.X), models[0].decision_function(DATA.X), atol=1e-7)


def test_the_seams_of_a_device(tmp_path):
    """What is fitted on a device is searched, saved and used like any other model."""
    search = tune(
        LEML(K, dtype="float64", random_state=0, device="torch"),
        DATA.X,
        DATA.Y,
        grid={"alpha": [0.1, 1.0]},
        random_state=0,
    )
    assert all(row["error"] is None for row in search.table)
    search.estimator.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert (search.estimator.device, again.device) == ("torch", "auto")
    scores = search.estimator.decision_function(DATA.X)
    np.testing.assert_allclose(again.decision_function(DATA.X), scores, atol=1e-12)  # the CPU adds in another order
    local = LocalLEML(2, n_clusters=2, n_learners=1, random_state=0, device="torch").fit(DATA.X, DATA.Y)
    assert local.predict(DATA.X).shape == (N, L)
    tagger = Tagger(LEML(2, random_state=0, device="torch")).fit(TEXTS, DATA.Y)
    assert tagger.predict_topk(TEXTS, 2)[0].shape == (N, 2)


def test_a_served_model_is_copied_to_its_device_once(tmp_path, monkeypatch):
    open_models = pytest.importorskip("labelgap.serve.served_models").open_models
    backend, copied = make_backend(), []
    monkeypatch.setitem(BACKENDS, "torch", lambda: backend)
    copy = backend.rows
    monkeypatch.setattr(backend, "rows", lambda values, dtype: copied.append(np.shape(values)) or copy(values, dtype))
    Tagger(LEML(K, random_state=0)).fit(TEXTS, DATA.Y).save(tmp_path / "model")
    models = open_models([str(tmp_path / "model")], device="torch")
    model = models["model"]
    first = model.predict_topk(TEXTS, 3)
    n_first = copied.count((L, K))
    np.testing.assert_array_equal(model.predict_topk(TEXTS, 3)[0], first[0])
    assert n_first == copied.count((L, K)) == 1
    np.testing.assert_allclose(load(tmp_path / "model").predict_topk(TEXTS, 3)[1], first[1], atol=1e-5)
    other, array = make_backend(), np.ones(3)
    other.keep(array)
    del array
    assert not other._kept
    with pytest.raises(ValueError, match="device='tpu' is not available"):
        open_models([str(tmp_path / "model")], device="tpu")


@pytest.mark.parametrize("cls", [LEML, OneClassMF, LocalLEML, BinaryRelevance])
def test_predictions_run_on_the_device(cls, monkeypatch, tmp_path, recwarn):
    factors = {"n_components": K, "random_state": 0}
    settings = {BinaryRelevance: {}, LocalLEML: {**factors, "n_clusters": 2, "n_learners": 1}}.get(cls, factors)
    ours = cls(dtype="float64", device="cpu", **settings).fit(X, DATA.Y)
    ours.save(tmp_path / "model")
    theirs = load(tmp_path / "model").set_params(device="torch")  # its arrays may be read-only
    backend, used = make_backend(), []
    monkeypatch.setattr(backend, "array", lambda values, dtype: used.append(dtype) or TorchArray(values, dtype))
    monkeypatch.setitem(BACKENDS, "torch", lambda: backend)
    TorchArray = make_backend().array
    for name, options in {"decision_function": (), "predict_topk": (3,), "known_scores": (GAPS,)}.items():
        used.clear()
        mine, other = (getattr(model, name)(X, *options) for model in (ours, theirs))
        assert used, name
        for a, b in zip(*((part if isinstance(part, tuple) else (part,)) for part in (mine, other)), strict=True):
            a, b = (part.toarray() if sp.issparse(part) else part for part in (a, b))
            assert type(b) is np.ndarray
            np.testing.assert_allclose(b, a, atol=1e-9)
    used.clear()
    np.testing.assert_allclose(theirs.decision_function(X[:5]), ours.decision_function(X[:5]), atol=1e-9)
    assert not used  # few rows are scored on the CPU
    assert not [warning for warning in recwarn if "writable" in str(warning.message)]


def test_recommendations_on_the_device():
    Y = np.tile(DATA.Y.toarray(), (1, 9))  # as many labels as a prediction on a device needs
    ours = OneClassMF(K, dtype="float64", random_state=0, device="cpu").fit(None, Y)
    calls = [("recommend", np.arange(N), 4), ("similar_labels", np.arange(70), 3), ("predict_topk", None, 3)]
    expected = [getattr(ours, name)(ids, k) for name, ids, k in calls]
    ours.set_params(device="torch")
    for (name, ids, k), (_, values) in zip(calls, expected, strict=True):
        indices, scores = getattr(ours, name)(ids, k)
        assert type(indices) is type(scores) is np.ndarray
        np.testing.assert_allclose(scores, values, atol=1e-9)


def test_a_gpu_that_is_full_in_a_prediction(monkeypatch):
    import torch

    def fail(*arguments):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")

    backend = make_backend()
    monkeypatch.setattr(backend, "topk", fail)
    monkeypatch.setitem(BACKENDS, "torch", lambda: backend)
    model = LEML(2, device="torch", random_state=0).fit(DATA.X, DATA.Y)
    with pytest.raises(MemoryError, match="fewer rows"):
        model.predict_topk(DATA.X, 2)
    assert model.set_params(device="cpu").predict_topk(DATA.X, 2)[0].shape == (N, 2)


def test_the_command_line_sets_the_device(tmp_path, monkeypatch):
    monkeypatch.setattr(kernels_base, "_has_gpu", lambda: False)
    assert "device" in list_parameters(LEML)
    assert "device" not in list_parameters(FastXML)
    file = tmp_path / "posts.csv"
    file.write_text("text,tags\n" + "red apple,fruit\ngreen pear,fruit\nblue car,vehicle\n" * 4)
    command = ["fit", str(file), "--text", "text", "--tags", "tags", "--method", "LEML", "--n-components", "1"]
    run = CliRunner().invoke(app, [*command, "--device", "cuda", "--output", str(tmp_path / "model")])
    assert run.exit_code == 1
    assert "needs an NVIDIA GPU" in " ".join(run.output.split())
    run = CliRunner().invoke(app, [*command, "--device", "torch", "--output", str(tmp_path / "model")])
    assert run.exit_code == 0, run.output
    assert load(tmp_path / "model").predict(["a red apple"]).shape == (1, 2)


class FullBackend:
    """A backend whose GPU is full from a given call on; without one it counts calls."""

    def __init__(self):
        self._inner, self.calls, self.last = make_backend(), 0, float("inf")

    def __getattr__(self, name):
        value = getattr(self._inner, name)
        return self._limit(value) if callable(value) and name != "torch" else value

    def _limit(self, function):
        def limited(*arguments, **options):
            import torch

            self.calls += 1
            if self.calls > self.last:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has ...")
            return function(*arguments, **options)

        return limited


def write_posts(path):
    path.write_text("text,tags\n" + "red apple,fruit\ngreen pear,fruit\nblue car,vehicle\n" * 30)
    return str(path)


@pytest.fixture
def saved(tmp_path):
    """A saved tagger, and its posts; more rows than are predicted without a GPU."""
    posts = write_posts(tmp_path / "posts.csv")
    Tagger(LEML(1, random_state=0, device="cpu")).fit(
        ["red apple", "green pear", "blue car"] * 30, [[1, 0], [1, 0], [0, 1]] * 30
    ).save(tmp_path / "model")
    return str(tmp_path / "model"), posts


COMMANDS = {
    "fit": lambda model, posts, new: ["fit", posts, "--text", "text", "--tags", "tags", "--output", new],
    "fit a method": lambda *paths: [*COMMANDS["fit"](*paths), "--method", "LEML", "--n-components", "1"],
    "predict": lambda model, posts, new: ["predict", posts, "--model", model, "--output", new],
    "audit": lambda model, posts, new: ["audit", posts, "--model", model, "--folds", "2", "--output", new],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_gpu_is_one_line_of_a_command(command, saved, tmp_path, monkeypatch):
    backend = FullBackend()
    monkeypatch.setitem(BACKENDS, "auto", lambda: backend)
    new = tmp_path / ("new.csv" if command in ("predict", "audit") else "new")
    arguments = COMMANDS[command](*saved, str(new))
    backend.last = 0
    run = CliRunner().invoke(app, arguments)
    assert (run.exit_code, backend.calls > 0) == (1, True), run.output
    (line,) = (line for line in run.output.splitlines() if "memory" in line)
    assert line.startswith("labelgap: ")
    assert "pass fewer rows or device='cpu'" in " ".join(run.output.split())
    assert not new.exists()
    backend.last = float("inf")
    run = CliRunner().invoke(app, arguments)
    assert run.exit_code == 0, run.output
    assert new.exists()


@pytest.mark.parametrize("command", ["fit", "serve"])
def test_commands_without_a_gpu(command, saved, tmp_path, monkeypatch):
    monkeypatch.setattr(kernels_base, "_has_gpu", lambda: False)
    model, posts = saved
    arguments = {"serve": ["serve", model, "--device", "cuda"]}.get(command)
    arguments = arguments or [*COMMANDS["fit a method"](model, posts, str(tmp_path / "new")), "--device", "cuda"]
    run = CliRunner().invoke(app, arguments)
    assert run.exit_code == 1
    assert "device='cuda' needs an NVIDIA GPU" in " ".join(run.output.split())
    assert "Traceback" not in run.output


def test_a_service_answers_after_a_full_gpu(saved, monkeypatch):
    """The answer to a request that is too large says so, and the next request gets its predictions."""
    serve = pytest.importorskip("test_serve")
    backend = FullBackend()
    monkeypatch.setitem(BACKENDS, "torch", lambda: backend)
    models = serve.open_models([saved[0]], device="torch")
    with serve.client_of(serve.create_app(models, settings=serve.LOCAL)) as client:
        backend.last = backend.calls
        for route, body in (("predict", {}), ("complete", {"known": [{}] * 90})):
            message = serve.problem(serve.post(client, f"model/{route}", texts=["red apple"] * 90, **body), 503)
            assert "pass fewer rows" in message
        backend.last = float("inf")
        assert len(serve.ok(client, "model/predict", texts=["red apple"] * 90)["predictions"]) == 90


# --- functions of the backend ---------------------------------------------------------------------------------------


@pytest.fixture(params=["float64", "float32"])
def dtype(request):
    return request.param


@pytest.fixture(params=["cpu", "cuda"])
def backend(request):
    if request.param not in devices():
        pytest.skip("PyTorch finds no GPU")
    return make_backend() if request.param == "cpu" else get_backend("cuda")


def test_wide_products_are_made_in_parts(backend, monkeypatch):
    monkeypatch.setattr("labelgap.kernels.gpu.MAX_WIDTH", 64)
    rng = np.random.default_rng(0)
    A, B = sp.random_array((5, 30), density=0.5, random_state=0, format="csr"), rng.standard_normal((30, 150))
    product = backend.spmm(backend.prepare(A, float), backend.array(B, float))
    np.testing.assert_allclose(backend.to_numpy(product), A @ B)


@pytest.mark.parametrize("k", [1, 3, 70])
@pytest.mark.parametrize("n", [9, 3000], ids=["short rows", "long rows"])
def test_the_backend_equals_its_plain_twin(backend, dtype, n, k, monkeypatch):
    monkeypatch.setattr(backend, "rounds", False)
    rng = np.random.default_rng(0)
    A = sp.random_array((5, n), density=0.5, random_state=0, format="csr", dtype=dtype)
    A.data[::3] = -1  # signs for losses with targets of −1 and +1
    B, S, H = (rng.standard_normal((rows, k)).astype(dtype) for rows in (5, 5, n))
    P, b, s, h = backend.prepare(A, dtype), *(backend.array(part, dtype) for part in (B, S, H))
    tolerance = {"rtol": 1e-9, "atol": 1e-9} if dtype == "float64" else {"rtol": 1e-3, "atol": 1e-3}
    cell, weights = LOSSES["logistic"](), (np.linspace(0.5, 1, 5), np.linspace(1, 2, n))
    on_device = tuple(backend.array(part, float) for part in weights)
    model, plain = backend.cells_model(cell, P, b, h), reference.cells_model(cell, A, B, H)
    fixed, twin = (cell, P, (-1.0, 1.0), on_device), (cell, A, (-1.0, 1.0), weights)
    everywhere, plain_everywhere = backend.all_model(*fixed, b, h), reference.all_model(*twin, B, H)
    pairs = [
        (backend.spmm(P, h), reference.spmm(A, H)),
        (backend.spmm_t(P, b), reference.spmm_t(A, B)),
        (backend.gram(P), reference.gram(A.astype(float))),
        (backend.column_squares(P), reference.column_squares(A)),
        (backend.column_sums(P, P.data), reference.column_sums(A, A.data)),
        (backend.sddmm(P, b, h), reference.sddmm(A, B, H)),
        (model.value, plain.value),
        (model.gradient, plain.gradient),
        (model.row_curvature, plain.row_curvature),
        (model.cell_curvature, plain.cell_curvature),
        (backend.cells_value(cell, P, b, h), plain.value),
        (backend.cells_hessp(P, model.cell_curvature, s, h), reference.cells_hessp(A, plain.cell_curvature, S, H)),
        (backend.cells_diagonal(P, model.cell_curvature, h), reference.cells_diagonal(A, plain.cell_curvature, H)),
        (backend.all_value(*fixed, b, h), plain_everywhere.value),
        (everywhere.gradient, plain_everywhere.gradient),
        (everywhere.row_curvature, plain_everywhere.row_curvature),
        (backend.all_hessp(*fixed, b, s, h), reference.all_hessp(*twin, B, S, H)),
    ]
    for theirs, ours in pairs:
        theirs = np.asarray(backend.to_numpy(theirs))
        scale = np.abs(ours).max()
        np.testing.assert_allclose(theirs / scale, ours / scale, **tolerance)


def test_dense_products_of_mixed_types_are_promoted(backend):
    A, B = np.random.default_rng(0).random((4, 3)).astype("float32"), np.random.default_rng(1).random((3, 2))
    a, b = backend.array(A, "float32"), backend.array(B, "float64")
    for product, twin in ((backend.matmul(a, b), A @ B), (backend.matmul_t(b, backend.array(B, "float32")), B.T @ B)):
        assert product.dtype is backend.torch.float64
        np.testing.assert_allclose(backend.to_numpy(product), twin, rtol=1e-7)


def test_coarse_products_round_their_argument_alone(backend, monkeypatch):
    rng = np.random.default_rng(0)
    A = sp.random_array((40, 30), density=0.5, random_state=0, format="csr", dtype=np.float32)
    B = rng.standard_normal((30, 10)).astype("float32")
    monkeypatch.setattr(backend, "rounds", True)
    monkeypatch.setattr(backend, "min_coarse_numbers", 0)
    coarse = backend.coarse(backend.array(B, "float32"))
    product = backend.to_numpy(backend.spmm(backend.prepare(A, "float32"), coarse))
    np.testing.assert_allclose(product, A @ backend.to_numpy(coarse.float()), rtol=1e-5, atol=1e-6)
    assert 1e-5 < np.linalg.norm(product - A @ B) / np.linalg.norm(A @ B) < 5e-3
    assert backend.coarse(backend.array(B, "float64")).dtype is backend.torch.float64


def test_corrected_losses_run_on_tensors(backend):
    loss = CorrectedLoss(LOSSES["logistic"](), LOSSES["squared"](), 0.0)
    A = sp.random_array((9, 5), density=0.4, random_state=0, format="csr")
    B, H = np.random.default_rng(0).standard_normal((2, 9, 3))
    ours = reference.cells_model(loss, A, B, H[:5]).gradient
    b, h = backend.array(B, float), backend.array(H[:5], float)
    theirs = backend.cells_model(loss, backend.prepare(A, float), b, h)
    np.testing.assert_allclose(backend.to_numpy(theirs.gradient), ours)


def test_empty_rows_and_matrices(backend):
    A = sp.csr_array(([2.0], ([1], [0])), shape=(3, 2))
    B = backend.array(np.ones((2, 4)), float)
    np.testing.assert_array_equal(backend.to_numpy(backend.spmm(backend.prepare(A, float), B))[:, 0], [0, 2, 0])
    empty = backend.prepare(sp.csr_array((3, 2)), float)
    assert not backend.to_numpy(backend.spmm(empty, B)).any()
    assert backend.sddmm(empty, backend.array(np.ones((3, 4)), float), B).shape == (0,)
    assert float(backend.cells_value(LOSSES["squared"](), empty, backend.array(np.ones((3, 4)), float), B)) == 0


@pytest.mark.parametrize("k", [1, 3, 8])
def test_ties_go_to_the_lower_index(backend, k):
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 3, (50, 8)).astype(float)
    columns, values = backend.best_in_rows(backend.array(scores, float), k)
    ours = reference.best_in_rows(scores, k)
    np.testing.assert_array_equal(backend.to_numpy(columns), ours[0])
    np.testing.assert_array_equal(backend.to_numpy(values), ours[1])


def test_topk_in_blocks_without_excluded_cells(backend, monkeypatch):
    monkeypatch.setattr(backend, "block_numbers", 20)
    rng = np.random.default_rng(0)
    B, H = rng.standard_normal((30, 3)), rng.standard_normal((8, 3))
    H[5] = H[2]
    hidden = sp.csr_array(rng.random((30, 8)) < 0.2)
    columns, _ = backend.topk(backend.array(B, float), backend.array(H, float), 3, backend.prepare(hidden, float))
    np.testing.assert_array_equal(backend.to_numpy(columns), reference.topk(B, H, 3, hidden)[0])


def test_decompositions_by_gram_matrices(monkeypatch):
    import torch

    monkeypatch.setattr(kernels_base, "MIN_GRAM_NUMBERS", 1)
    rng = np.random.default_rng(0)
    A = torch.asarray(rng.standard_normal((50, 6)))
    Q, R = qr(A)
    np.testing.assert_allclose(Q @ R, A, atol=1e-12)
    np.testing.assert_allclose(Q.T @ Q, np.eye(6), atol=1e-10)
    for matrix in (A, A.T):
        U, S, Vt = svd(matrix)
        np.testing.assert_allclose(S, np.linalg.svd(matrix.numpy())[1], rtol=1e-10)
        np.testing.assert_allclose((U * S) @ Vt, matrix, atol=1e-10)
    dependent = torch.cat([A, A[:, :2]], dim=1)
    Q, R = qr(dependent)
    np.testing.assert_allclose(Q @ R, dependent, atol=1e-7)


def test_exact_gram_in_blocks(monkeypatch):
    import torch

    monkeypatch.setattr(kernels_base, "GRAM_BLOCK_ROWS", 7)
    A, weights = np.random.default_rng(0).random((30, 4)), np.linspace(1, 2, 30)[:, None]
    for w in (1.0, weights):
        ours = (w * A).T @ A
        theirs = exact_gram(torch.asarray(A), w if np.ndim(w) == 0 else torch.asarray(w))
        np.testing.assert_allclose(exact_gram(A, w), ours)
        np.testing.assert_allclose(theirs, ours)


def test_large_starts_are_drawn_on_the_device(monkeypatch):
    import labelgap.kernels.gpu as gpu

    backend, shape = make_backend(), (40, 5)
    small = backend.normal(np.random.RandomState(0), shape, "float64")
    np.testing.assert_array_equal(small, np.random.RandomState(0).standard_normal(shape))
    monkeypatch.setattr(gpu, "MAX_HOST_NUMBERS", 1)
    first, second = (backend.normal(np.random.RandomState(1), shape, "float32") for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert abs(float(first.mean())) < 0.3


# --- without a GPU, and with a full one -----------------------------------------------------------------------------


def test_without_a_gpu(monkeypatch):
    monkeypatch.setattr(kernels_base, "_has_gpu", lambda: False)
    with pytest.raises(ValueError, match=r"device='cuda' needs an NVIDIA GPU .* finds no GPU; pass device='cpu'"):
        LEML(2, device="cuda").fit(DATA.X, DATA.Y)
    assert get_backend("auto") is get_backend("cpu")


DEVICE_METHODS = {
    "LEML": LEML(2),
    "LEML kernel": LEML(2, kernel="rbf"),
    "OneClassMF": OneClassMF(2, keep_rows=True),
    "OneClassMFCV": OneClassMFCV(2, keep_rows=True, alphas=[0.1], weights=[0.1, 0.2], n_splits=1),
    "LocalLEML": LocalLEML(2, n_clusters=2, n_learners=1),
    "SLEEC": SLEEC(3, n_clusters=2, n_learners=1, n_neighbors_embed=5),
    "BinaryRelevance": BinaryRelevance(),
    "BinaryRelevance squared": BinaryRelevance(loss="squared"),
    "MC1": MC1(mu=0.1, tol=0.1),
    "MCb": MCb(mu=0.1, tol=0.1),
    "Tagger": Tagger(),
    "Tagger LEML": Tagger(LEML(2)),
}


@pytest.mark.parametrize("name", DEVICE_METHODS)
def test_no_estimator_needs_a_gpu(name, monkeypatch):
    monkeypatch.setattr(kernels_base, "_has_gpu", lambda: False)
    model = clone(DEVICE_METHODS[name])
    part = getattr(model, "estimator", None) or model
    X, Y = get_data(model)
    part.set_params(device="cuda")
    with pytest.raises(ValueError, match=r"device='cuda' needs an NVIDIA GPU .* finds no GPU; pass device='cpu'"):
        model.fit(X, Y)
    part.set_params(device="auto")
    assert model.fit(X, Y).predict_topk(X, 2)[0].shape == (N, 2)


USES = {
    "fit": lambda model: model.fit(*get_data(model)),
    "partial_fit": lambda model: model.partial_fit(*get_data(model)),
    "decision_function": lambda model: model.decision_function(get_data(model)[0]),
    "predict": lambda model: model.predict(get_data(model)[0]),
    "predict_topk": lambda model: model.predict_topk(get_data(model)[0], 2),
    "known_scores": lambda model: model.known_scores(*get_data(model)),
    "score": lambda model: model.score(*get_data(model)),
    "calibrate": lambda model: model.calibrate(*get_data(model)),
    "recommend": lambda model: model.recommend(np.arange(N), 2),
    "audit": lambda model: audit(*get_data(model), clone(model), n_folds=2, random_state=0),
    "tune": lambda model: tune(clone(model), *get_data(model), grid={"n_components": [1]}, random_state=0),
}


def get_data(model):
    return (TEXTS, DATA.Y) if isinstance(model, Tagger) else (DATA.X, DATA.Y)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", DEVICE_METHODS)
def test_a_full_gpu_is_one_clear_error(name, use, monkeypatch):
    """Wherever in a call the memory ends, the error names what to lower, and the next call works."""
    backend = FullBackend()
    monkeypatch.setitem(BACKENDS, "auto", lambda: backend)
    model = clone(DEVICE_METHODS[name])
    for part in (model, getattr(model, "estimator", None)):
        if "random_state" in getattr(part, "get_params", dict)():
            part.set_params(random_state=0)
    if use in ("partial_fit", "recommend") and not hasattr(model, use):
        pytest.skip(f"{name} has no {use}")
    if use == "tune" and "n_components" not in model.get_params():
        pytest.skip(f"{name} has no n_components")
    model.fit(*get_data(model))
    backend.calls = 0
    expected = USES[use](copy.deepcopy(model))
    count = backend.calls
    if not count:
        pytest.skip(f"{use} of {name} does not use the GPU")
    for last in {0, count // 2, count - 1}:
        own = copy.deepcopy(model)
        before = vars(own).copy()
        backend.calls, backend.last = 0, last
        with pytest.raises(
            MemoryError, match=r"The GPU has too little memory \(CUDA out of memory.*pass .*fewer rows"
        ) as e:
            USES[use](own)
        named, settings = set(re.findall(r"lower (\w+)", str(e.value))), {"n_components", "max_features"}
        assert named <= settings & {parameter.rpartition("__")[2] for parameter in model.get_params()}
        assert named or isinstance(model, BinaryRelevance | MC1 | MCb | Tagger)
        assert vars(own).keys() == before.keys()
        backend.last = float("inf")
        again = USES[use](own)
        if isinstance(expected, np.ndarray):
            np.testing.assert_array_equal(again, expected)


def test_other_errors_are_raised_as_they_are():
    with pytest.raises(RuntimeError, match="other"), explain_out_of_memory():
        raise RuntimeError("other")
