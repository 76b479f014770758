"""A Dask cluster as a backend: the same models as on one machine."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from typer.testing import CliRunner

from labelgap import (
    LEML,
    SLEEC,
    BinaryRelevance,
    LocalLEML,
    OneClassMF,
    OneClassMFCV,
    Tagger,
    audit,
    load,
    tune,
)
from labelgap.cli import app
from labelgap.datasets import make_sparse_multilabel, write
from labelgap.distributed import DaskRunner, connect, find_stragglers
from labelgap.kernels import dask_backend, get_backend
from labelgap.kernels.base import MAX_LOSSES, LostArrays, repeat_when_lost
from labelgap.kernels.dask_backend import Cluster, SharedArray
from labelgap.kernels.row_shards import make_key
from labelgap.runtime import call_elsewhere, run_parallel

distributed = pytest.importorskip("distributed", reason="Dask is not installed")

CASES = {
    "squared": (LEML, {"alpha": 0.1}, "complete"),
    "squared, dense features": (LEML, {"alpha": 0.1}, "dense"),
    "logistic with gaps": (LEML, {"loss": "logistic", "alpha": 0.1}, "gaps"),
    "logistic, all cells": (LEML, {"loss": "logistic", "solver": "tron"}, "complete"),
    "one-class": (OneClassMF, {"weight_unlabelled": 0.1, "loss": "logistic"}, "complete"),
    "one-class without features": (OneClassMF, {"weight_unlabelled": 0.1}, "no features"),
    "one-class with a graph": (OneClassMF, {"graph_alpha": 0.5}, "graph"),
}


@pytest.fixture(scope="module")
def client():
    """A client of a cluster in this process, whose shards have different sizes."""
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        yield client


def run(*words):
    return CliRunner().invoke(app, list(map(str, words)))


def fit(case, planted, device):
    estimator, parameters, form = CASES[case]
    data = planted(n=37)
    X, Y, side = sp.csr_array(np.where(abs(data.X) > 0.5, data.X, 0)), data.Y, {}
    if form == "gaps":
        Y = data.gaps
    elif form == "dense":
        X = data.X
    elif form == "no features":
        X = None
    elif form == "graph":
        side = {"row_graph": sp.csr_array(data.X @ data.X.T > 3)}
    fixed = {"max_iter": 1, "tol": 0.0, "dtype": "float64", "random_state": 0, "device": device}
    return estimator(2, **fixed, **parameters).fit(X, Y, **side)


@pytest.mark.parametrize("case", CASES)
def test_a_fit_equals_that_of_one_machine(case, planted, client):
    ours, plain = fit(case, planted, "dask"), fit(case, planted, "cpu")
    np.testing.assert_allclose(ours.objective_, plain.objective_, rtol=1e-9)
    np.testing.assert_allclose(abs(ours.label_factors_), abs(plain.label_factors_), rtol=1e-6, atol=1e-9)


def test_a_search_runs_its_candidates_on_the_cluster(planted, client):
    data, options = planted(n=60), {"max_iter": 1, "random_state": 0, "dtype": "float64"}
    grid = {"alphas": [0.1], "weights": [0.5], "n_splits": 1}
    ours, plain = (OneClassMFCV(2, **grid, **options, device=d).fit(data.X, data.Y) for d in ("dask", "cpu"))
    assert ours.best_params_ == plain.best_params_
    np.testing.assert_allclose(ours.decision_function(data.X), plain.decision_function(data.X), rtol=1e-6, atol=1e-8)


def test_a_tagger_that_was_fitted_on_a_cluster_is_used_without_one(client, tmp_path):
    texts = ["cake oven", "cake flour", "steak grill", "grill bacon"] * 5
    tags = [["baking"], ["baking"], ["meat"], ["meat"]] * 5
    Tagger(LEML(2, max_iter=1, tol=0.0, random_state=0, device="dask")).fit(texts, tags).save(tmp_path / "model")
    assert load(tmp_path / "model").predict_tags(["a grill"], 1) == [["meat"]]


def test_local_models_are_fitted_on_the_cluster(planted, client):
    data, options = planted(n=60), {"n_clusters": 2, "n_learners": 1, "tol": 0.5, "dtype": "float64"}
    ours, plain = (
        LocalLEML(2, random_state=0, device=device, **options).fit(data.X, data.Y) for device in ("dask", "cpu")
    )
    np.testing.assert_allclose(ours.decision_function(data.X), plain.decision_function(data.X), rtol=1e-6, atol=1e-8)


def test_rows_stay_on_the_workers(planted, client):
    """A product with all rows brings only the sum over the shards to the client."""
    backend = get_backend("dask")
    matrix = sp.csr_array(planted(n=37).X)
    A = backend.prepare(matrix, "float64")
    product = backend.spmm(A, np.eye(6))
    assert all(type(block).__name__ == "RemoteArray" for block in product.blocks)
    assert len(product.blocks) == len(client.scheduler_info(n_workers=-1)["workers"])
    total = backend.spmm_t(A, product)
    assert isinstance(total, np.ndarray)
    np.testing.assert_allclose(total, (matrix.T @ matrix).toarray(), atol=1e-12)


@pytest.mark.parametrize("case", ["squared", "logistic with gaps", "one-class without features"])
def test_labels_that_do_not_fit_into_a_worker_arrive_in_pieces(case, planted, client, monkeypatch):
    """No worker gets the factors of all labels at a time."""
    sent, share = [], Cluster.share
    monkeypatch.setattr(Cluster, "share", lambda self, value: sent.append(value) or share(self, value))
    monkeypatch.setattr(Cluster, "piece_bytes", 3 * 2 * 8)
    ours = fit(case, planted, "dask")
    assert (5, 2) not in [value.shape for value in sent if isinstance(value, np.ndarray)]
    plain = fit(case, planted, "cpu")
    np.testing.assert_allclose(ours.objective_, plain.objective_, rtol=1e-9)


NO_CLIENT = """
from labelgap import LEML
try:
    LEML(1, device="dask").fit([[1.0], [2.0]], [[1], [0]])
except ValueError as error:
    print(error)
"""


def test_no_client_is_one_clear_error():
    shown = subprocess.run([sys.executable, "-c", NO_CLIENT], capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("device='dask' needs a Dask client; make one first")


def test_a_worker_that_dies_is_computed_again(planted):
    data = planted(n=100)
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:

        def close_one(iteration):  # without a word to the others: what it held is lost
            if iteration.number == 1:
                cluster.sync(cluster.workers[0].close)

        fixed = {"loss": "logistic", "max_iter": 2, "tol": 0.0, "dtype": "float64", "random_state": 0}
        ours = LEML(2, **fixed, device="dask", callbacks=[close_one]).fit(data.X, data.gaps)
        assert len(client.scheduler_info(n_workers=-1)["workers"]) == 1
    plain = LEML(2, **fixed, device="cpu").fit(data.X, data.gaps)
    np.testing.assert_allclose(ours.objective_, plain.objective_, rtol=1e-9)


@pytest.mark.parametrize("form", ["features", "rounds", "no features"])
def test_arrays_that_die_with_a_worker_are_made_again(form, planted, monkeypatch):
    """The worker dies in the middle of an alternation, and what the client has sent to all is gone."""
    data = planted(n=400)
    monkeypatch.setattr(dask_backend, "MAX_TASK_BYTES", 0)
    if form == "rounds":  # as with more features
        monkeypatch.setattr("labelgap.objectives.features.MAX_EIGEN_ORDER", 0)
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    fixed = {"max_iter": 3, "tol": 0.0, "dtype": "float64", "random_state": 0, "weight_unlabelled": 0.1}
    X = None if form == "no features" else data.X
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        n_shared, share, lost = [0], Cluster.share, []

        def share_until_it_dies(self, value):
            n_shared[0] += 1
            shared = share(self, value)
            if n_shared[0] in (3, 20, 40) and isinstance(shared, SharedArray):
                client.cancel([shared.future])
                lost.append(n_shared[0])
            return shared

        monkeypatch.setattr(Cluster, "share", share_until_it_dies)
        with connect(client) as runner:
            ours = OneClassMF(2, **fixed).fit(X, data.Y)
        assert lost
        assert runner.summarize()["tasks repeated"] >= len(lost)
    plain = OneClassMF(2, **fixed, device="cpu").fit(X, data.Y)
    np.testing.assert_allclose(ours.objective_, plain.objective_, rtol=1e-9)


def test_arrays_that_are_lost_again_and_again_are_an_error():
    calls = []

    def lose():
        calls.append(1)
        raise LostArrays("A worker has died.")

    with pytest.raises(LostArrays):
        repeat_when_lost(lose)
    assert len(calls) == MAX_LOSSES


TASKS = {
    "SLEEC": SLEEC(2, n_clusters=2, n_learners=2, random_state=0),
    "one-vs-all": BinaryRelevance(loss="logistic"),
    "a tagger's default": BinaryRelevance(loss="squared"),
    "LEML without a device": LEML(2, max_iter=1, tol=0.0, dtype="float64", random_state=0),
    "local models with a device": LocalLEML(2, n_clusters=2, n_learners=1, tol=0.5, device="dask", random_state=0),
}


@pytest.mark.parametrize("name", TASKS)
def test_the_workers_of_a_block_fit_the_same_model(name, planted, client):
    data, estimator = planted(n=60), TASKS[name]
    with connect(client):
        ours = clone(estimator).fit(data.X, data.Y)
    plain = clone(estimator).set_params(device="auto").fit(data.X, data.Y)
    np.testing.assert_allclose(ours.decision_function(data.X), plain.decision_function(data.X), rtol=1e-5, atol=1e-6)


def test_candidates_and_folds_are_tasks(planted, client, monkeypatch):
    data, calls = planted(n=60), []
    call = DaskRunner.call
    monkeypatch.setattr(DaskRunner, "call", lambda self, task: calls.append(task) or call(self, task))
    search, estimator = (
        {"grid": {"alpha": [0.1, 1.0]}, "random_state": 0},
        LEML(2, max_iter=2, tol=0.0, random_state=0),
    )
    with connect(client):
        tuned = tune(estimator, data.X, data.Y, **search)
        assert len(calls) == 2
        audited = audit(data.X, data.Y, estimator, n_folds=2, random_state=0)
        assert len(calls) == 4
    plain = tune(estimator, data.X, data.Y, **search)
    assert tuned.params == plain.params
    expected = audit(data.X, data.Y, estimator, n_folds=2, random_state=0)
    np.testing.assert_allclose(audited.missing.probabilities, expected.missing.probabilities, rtol=1e-5)


def test_the_summary_counts_tasks_and_finds_slow_workers(client):
    names = iter(sorted(client.scheduler_info(n_workers=-1)["workers"]))
    slow = next(names)

    def work():
        if distributed.get_worker().address == slow:
            time.sleep(0.2)

    with connect(client) as runner:
        list(run_parallel([partial(call_elsewhere, work)] * 6))
        futures = [client.submit(work, workers=[slow], key=make_key("work")) for _ in range(2)]
        client.gather(futures)
        summary = runner.summarize()
    assert (summary["tasks"], summary["tasks repeated"], summary["workers lost"]) == (8, 0, 0)
    assert summary == runner.summarize()  # also after the block
    assert find_stragglers({"work": {"a": [1.0, 4], "b": [1.2, 4], "c": [4.0, 4]}}) == {"c": 3.33}


def test_large_arrays_are_sent_once_and_again_when_they_are_lost(client):
    array = np.ones(1 << 15)
    with connect(client) as runner:
        first = runner._pack(partial(np.sum, array))
        second = runner._pack(partial(np.max, array))
        assert first[1][0] is second[1][0]
        assert len(first[0]) < 1000
        client.cancel(first[1])
        assert runner.call(partial(np.sum, array)) == len(array)


def test_the_commands_work_on_a_cluster(client, tmp_path):
    X, Y = make_sparse_multilabel(60, 30, 8, 6, 2, random_state=0)
    write(tmp_path / "data.npz", X, Y)
    shown, notes = {}, {}
    for name, words in (("dask", ("--dask", client.scheduler.address)), ("plain", ("--memory", "1G"))):
        model = tmp_path / name
        common = (tmp_path / "data.npz", "--json", *words)
        fitted = run("fit", *common, "--output", model, "--method", "BinaryRelevance", "--alpha", 1)
        assert fitted.exit_code == 0, fitted.output
        results = [fitted, run("predict", *common, "--model", model, "--top", 2)]
        results.append(run("audit", *common, "--model", model, "--folds", 2))
        results.append(run("evaluate", *common, "--model", model))
        assert [result.exit_code for result in results] == [0, 0, 0, 0], [result.output for result in results]
        shown[name] = [result.stdout for result in results]
        notes[name] = [result.stderr for result in results]
    assert all("labelgap: Dask cluster: workers 2, workers lost 0, " in note for note in notes["dask"])
    assert shown["dask"][1:] == shown["plain"][1:]


def test_an_address_without_a_scheduler_is_one_clear_error(tmp_path, monkeypatch):
    monkeypatch.setattr("labelgap.distributed.CONNECT_SECONDS", 0.5)
    (tmp_path / "posts.csv").write_text("text,tags\na,b\n")
    silent = socket.create_server(("127.0.0.1", 0))  # accepts connections and says nothing
    for address in ("tcp://127.0.0.1:1", "nowhere", f"tcp://127.0.0.1:{silent.getsockname()[1]}"):
        start = time.perf_counter()
        shown = run("fit", tmp_path / "posts.csv", "--output", tmp_path / "model", "--dask", address)
        assert time.perf_counter() - start < 10
        assert shown.exit_code == 1
        assert shown.stderr.startswith(f"labelgap: No Dask scheduler answers at {address}")
        assert len(shown.stderr.strip().splitlines()) == 1
    silent.close()
    assert [path.name for path in tmp_path.iterdir()] == ["posts.csv"]


def test_the_death_of_the_scheduler_is_one_clear_error(planted):
    data, options = planted(n=60), {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": ":0"}
    cluster = distributed.LocalCluster(**options, processes=False)
    client = distributed.Client(cluster, timeout=1)

    def close(iteration):
        client.sync(cluster.scheduler.close)

    fixed = {"max_iter": 3, "tol": 0.0, "random_state": 0, "callbacks": [close]}
    start = time.perf_counter()
    with pytest.raises(ConnectionError, match=r"The Dask scheduler is gone .* resumes") as caught, connect(client):
        LEML(2, **fixed).fit(data.X, data.Y)
    assert time.perf_counter() - start < 10
    assert "\n" not in str(caught.value)
    client.close(timeout=1)
    with suppress(TimeoutError):
        cluster.close(timeout=1)
    cluster.status = distributed.core.Status.closed  # which a cluster without scheduler never becomes


def test_another_version_on_a_worker_is_one_clear_error(client, monkeypatch):
    monkeypatch.setattr("labelgap.distributed.__version__", "9.9")
    with (
        pytest.raises(ValueError, match=r"The worker .* has labelgap .*, and this process 9.9; install that"),
        connect(client),
    ):
        pass
    monkeypatch.setattr(client, "run", lambda function, on_error: {"tcp://a:1": None, "tcp://b:1": OSError()})
    with pytest.raises(ValueError, match="The worker tcp://a:1 has no labelgap"), connect(client):
        pass


WORKERS = {
    "sys.modules['labelgap'] = None": "no labelgap",
    "import labelgap; labelgap.__version__ = '0.0'": "labelgap 0.0",
}


@pytest.mark.parametrize("spoil", WORKERS)
def test_a_worker_process_of_another_installation_is_one_clear_error(spoil, tmp_path):
    write(tmp_path / "data.npz", *make_sparse_multilabel(20, 10, 5, 4, 2, random_state=0))
    start = "from distributed.cli.dask_worker import main; main()"
    options = {"n_workers": 0, "processes": False, "protocol": "tcp", "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster, set_as_default=False) as client:
        command = [sys.executable, "-c", f"import sys; {spoil}; {start}", cluster.scheduler_address]
        worker = subprocess.Popen([*command, "--no-nanny", "--no-dashboard"], stderr=subprocess.DEVNULL)
        try:
            client.wait_for_workers(1, timeout=60)
            began = time.perf_counter()
            common = (tmp_path / "data.npz", "--dask", cluster.scheduler_address, "--json")
            shown = run("fit", *common, "--method", "LEML", "--output", tmp_path / "model")
            assert time.perf_counter() - began < 30  # on a busy machine
        finally:
            worker.kill()
            worker.wait()
    assert shown.exit_code == 1
    assert f"has {WORKERS[spoil]}, and this process" in shown.stderr
    assert len(shown.stderr.strip().splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["data.npz"]


@pytest.mark.parametrize("fault", ["width", "empty"])
def test_wrong_shards_of_a_folder_are_one_clear_error_on_a_cluster(fault, client, tmp_path):
    (X, Y), folder = make_sparse_multilabel(20, 10, 5, 4, 2, random_state=0), tmp_path / "data"
    folder.mkdir()
    write(folder / "0.npz", X, Y)
    wrong = {"width": (X[:, :6], Y), "empty": (X[:0], Y[:0])}[fault]
    write(folder / "1.npz", *wrong)
    for words in (("fit", "--output", tmp_path / "model"), ("tune",), ("convert", tmp_path / "out", "--shards", 2)):
        cluster = () if words[0] == "convert" else ("--dask", client.scheduler.address)
        start = time.perf_counter()
        shown = run(words[0], folder, *words[1:], *cluster)
        assert time.perf_counter() - start < 30  # on a busy machine
        assert shown.exit_code == 1
        message = {"width": "1.npz has 6 features and 0.npz has 10", "empty": "1.npz has no rows"}[fault]
        assert message in shown.stderr
        assert len(shown.stderr.strip().splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def make_blocks(client, form, X):
    """Return rows in uneven blocks that the client does not hold."""
    import dask
    import dask.array

    bounds = [(0, 7), (7, 30), (30, X.shape[0])]
    parts = [X[a:b] for a, b in bounds]
    if form == "array":
        return dask.array.from_array(X.toarray(), chunks=((7, 23, X.shape[0] - 30), (3, X.shape[1] - 3)))
    if form == "futures":
        return [client.submit(lambda part: part, part) for part in parts]
    return [dask.delayed(part) for part in parts]


@pytest.mark.parametrize("form", ["array", "futures", "delayed"])
def test_rows_on_the_cluster_stay_there(form, planted, client, monkeypatch):
    data = planted(n=60)
    X = sp.csr_array(np.where(abs(data.X) > 0.5, data.X, 0))
    fixed = {"loss": "logistic", "max_iter": 1, "tol": 0.0, "dtype": "float64", "random_state": 0}
    blocks, targets = make_blocks(client, form, X), make_blocks(client, "delayed", sp.csr_array(data.Y))
    with connect(client):
        with monkeypatch.context() as patch:
            patch.setattr("labelgap.kernels.row_shards.RowShards.gather", lambda self: pytest.fail("X came here"))
            ours = LEML(2, **fixed).fit(blocks, targets)
            found = ours.predict_topk(blocks, 2)
        expected = ours.predict_topk(X, 2)
        np.testing.assert_allclose(ours.decision_function(blocks), ours.decision_function(X), rtol=1e-9)
    plain = LEML(2, **fixed).fit(X, data.Y)
    np.testing.assert_allclose(ours.objective_, plain.objective_, rtol=1e-9)
    np.testing.assert_array_equal(found[0], expected[0])
    assert ours.n_features_in_ == X.shape[1]


@pytest.mark.parametrize("when", ["on its way", "there"])
def test_predictions_are_made_again_when_the_model_is_lost_with_a_worker(when, planted, client, monkeypatch):
    data, calls, scatter = planted(n=60), [], client.scatter
    blocks = make_blocks(client, "delayed", sp.csr_array(data.X))

    def lose_first(value, **options):
        calls.append(1)
        if len(calls) == 1 and when == "on its way":
            raise OSError("Timed out trying to connect")
        future = scatter(value, **options)
        if len(calls) == 1:
            client.cancel([future])
        return future

    model = LEML(2, max_iter=1, tol=0.0, random_state=0).fit(data.X, data.Y)
    monkeypatch.setattr(client, "scatter", lose_first)
    np.testing.assert_allclose(model.decision_function(blocks), model.decision_function(data.X), rtol=1e-4, atol=1e-5)
    assert len(calls) == 2


def test_methods_without_shards_gather_the_rows(planted, client):
    data = planted(n=60)
    blocks = make_blocks(client, "delayed", sp.csr_array(data.X))
    with connect(client):
        ours = BinaryRelevance(loss="logistic").fit(blocks, data.Y)
    plain = BinaryRelevance(loss="logistic").fit(sp.csr_array(data.X), data.Y)
    np.testing.assert_allclose(ours.coef_, plain.coef_, rtol=1e-5, atol=1e-6)


WRONG_BLOCKS = {
    "width": (lambda X: [X[:30], X[30:, :3]], "Shard 1 has 3 features and shard 0 has 6"),
    "empty": (lambda X: [X[:30], X[:0], X[30:]], "Shard 1 has no rows; leave it out"),
    "infinite": (lambda X: [X[:30], X[30:] * np.inf], "Shard 1 contains"),
    "mixed": (lambda X: [X[:30], X[30:].toarray()], "Shard 1 and shard 0 are not both sparse"),
    "rows": (lambda X: [X[:30]], "X has 30 rows and Y has 60"),
}


@pytest.mark.parametrize("fault", WRONG_BLOCKS)
def test_wrong_blocks_are_one_clear_error(fault, planted, client):
    import dask

    data, (spoil, message) = planted(n=60), WRONG_BLOCKS[fault]
    blocks = [dask.delayed(part) for part in spoil(sp.csr_array(data.X))]
    model = LEML(2, device="dask")
    with pytest.raises(ValueError, match=message):
        model.fit(blocks, data.Y)
    assert not hasattr(model, "n_labels_")


def test_texts_are_vectorized_where_they_are(client, tmp_path, monkeypatch):
    import dask

    texts = ["cake oven", "cake flour", "steak grill", "grill bacon"] * 5
    tags = [["baking"], ["baking"], ["meat"], ["meat"]] * 5
    fixed = {"max_iter": 1, "tol": 0.0, "random_state": 0}
    plain = Tagger(LEML(2, **fixed)).fit(texts, tags)
    blocks = [dask.delayed(texts[:7]), dask.delayed(texts[7:])]
    monkeypatch.setattr("labelgap.kernels.row_shards.RowShards.gather", lambda self: pytest.fail("X came here"))
    (tmp_path / "posts").mkdir()
    for number in range(2):
        lines = ["text,tags", *(f"{text},{tag[0]}" for text, tag in zip(texts, tags))]
        half = [lines[0], *lines[1 + 10 * number : 11 + 10 * number]]
        (tmp_path / "posts" / f"{number}.csv").write_text("\n".join(half))
    with connect(client):
        ours = Tagger(LEML(2, **fixed)).fit(blocks, tags)
        found = ours.predict_topk(blocks, 1)[0]
    np.testing.assert_allclose(ours.decision_function(texts), plain.decision_function(texts), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(found, plain.predict_topk(texts, 1)[0])
    words = ("--method", "LEML", "--n-components", 2, "--max-iter", 1, "--tol", 0, "--seed", 0)
    command = ("fit", tmp_path / "posts", "--output", tmp_path / "model", *words)
    shown = run(*command, "--dask", client.scheduler.address, "--no-calibrate")
    assert shown.exit_code == 0, shown.output
    np.testing.assert_allclose(load(tmp_path / "model").idf_, plain.idf_, rtol=1e-12)


def test_the_size_of_pieces_is_known_while_all_workers_are_away(client, monkeypatch):
    cluster = Cluster(client)
    size = cluster.piece_bytes
    monkeypatch.setattr(client, "scheduler_info", lambda **_: {"workers": {}})
    assert cluster.piece_bytes == size > 0
    with pytest.raises(ValueError, match="no workers"):
        Cluster(client)
