"""The same models on a local cluster of processes: equality, bytes, deaths of workers and of the scheduler.

``python -m benchmarks.cluster equal`` fits five methods on 1, 2 and 4 workers and on one machine, and prints how far
objective and top five labels differ, the seconds, and the bytes that an alternation sends: those of the formula in
docs/recipes/cluster.md and those that the loopback device counted. ``kills`` kills ten workers at random moments of
fits; ``scheduler`` kills the scheduler once and resumes the command from its checkpoint; ``scaling`` computes, on
paper and by simulation, how an alternation on larger sets scales to 64 workers; ``check`` compares this model, with
the costs of arrays and tasks as measured here, with alternations on 1, 2 and 4 workers.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.base import clone

from benchmarks.common import show
from labelgap import LEML, SLEEC, BinaryRelevance, OneClassMF, hide_cells, load
from labelgap.datasets import make_sparse_multilabel, write
from labelgap.distributed import connect
from labelgap.kernels import dask_backend
from labelgap.runtime import threads

SHAPE = (3_000, 1_200, 900)  # rows, features, labels
MAX_TIE = 1e-5  # of the range of scores
FIXED = {"max_iter": 2, "tol": 0.0, "random_state": 0}
METHODS = {
    "LEML, squared": (LEML(20, **FIXED), False),
    "LEML, logistic, gaps": (LEML(20, loss="logistic", **FIXED), True),
    "LR-wSQ": (OneClassMF(20, loss="logistic", weight_unlabelled=0.1, **FIXED), False),
    "SLEEC": (SLEEC(20, n_clusters=4, n_learners=2, random_state=0), False),
    "one-vs-all": (BinaryRelevance(loss="logistic"), False),
}


def make_data():
    """Return features, labels, and labels with gaps."""
    n, d, L = SHAPE
    X, Y = make_sparse_multilabel(n, d, L, 30, 4, random_state=0)
    return X, Y, hide_cells(Y[:, :], 0.8, random_state=0)


def start_cluster(n_workers):
    """Return a cluster of processes with one thread each."""
    import dask
    from distributed import LocalCluster

    # A cluster gives up a worker that is not back after this time, 15 s by default: too little on a busy machine.
    dask.config.set({"distributed.deploy.lost-worker-timeout": "300s"})
    return LocalCluster(n_workers=n_workers, threads_per_worker=1, processes=True, dashboard_address=None)


class Traffic:
    """What the products of a block send: arrays to all workers, sums back, their bytes by the formula, and counted.

    ``formula`` has N bytes for each byte of an array that goes to N workers, or of a sum over them. ``counted`` are
    the bytes that the workers say that they have sent to each other and to the client, and those that the client has
    sent to a worker. ``network`` is the traffic of the loopback device, with headers, tasks and their states; only a
    network namespace of its own (``unshare -n``) leaves other programs out.
    """

    def __init__(self, client):
        self.client = client

    def __enter__(self):
        self.formula, self.sent, self.arrays, self.sums = 0, 0, Counter(), Counter()
        self._network, self._outgoing = count_loopback_bytes(), self._count_outgoing()
        self._share, self._add_up = dask_backend.Cluster.share, dask_backend.RemoteArray.add_up
        self._call, self.events = dask_backend.Cluster.call, Counter()

        def share(cluster, value):
            if isinstance(value, np.ndarray) and value.nbytes > dask_backend.MAX_TASK_BYTES:
                self.arrays[value.shape] += 1
                self.sent += value.nbytes
                self.formula += len(cluster.workers) * value.nbytes
            return self._share(cluster, value)

        def add_up(first, parts):
            total = self._add_up(first, parts)
            self.events["waits"] += 1
            self.formula += len(parts) * np.asarray(total).nbytes
            if np.asarray(total).nbytes > dask_backend.MAX_TASK_BYTES:
                self.sums[total.shape] += 1
            return total

        def call(cluster, *arguments, **options):
            self.events["tasks"] += 1
            return self._call(cluster, *arguments, **options)

        dask_backend.Cluster.share, dask_backend.RemoteArray.add_up = share, add_up
        dask_backend.Cluster.call = call
        return self

    def count(self):
        """Return the numbers of arrays to all workers and of sums, by shape, and of tasks and waits for sums."""
        return self.arrays + self.sums, +self.events

    def __exit__(self, *error):
        dask_backend.Cluster.call = self._call
        dask_backend.Cluster.share, dask_backend.RemoteArray.add_up = self._share, self._add_up
        self.counted = self._count_outgoing() - self._outgoing + self.sent
        self.network = count_loopback_bytes() - self._network

    def _count_outgoing(self):
        return sum(self.client.run(lambda dask_worker: dask_worker.transfer_outgoing_bytes_total).values())


def count_loopback_bytes():
    """Return the bytes that processes of this machine have sent to each other by TCP."""
    line = next(line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("lo:"))
    return int(line.split(":")[1].split()[0])


def compare(ours, plain, X):
    """Return the relative difference of the last objectives, and the share of rows with the same top five.

    Labels whose scores differ from the fifth one by rounding alone are ties.
    """
    own, other = (np.atleast_1d(np.concatenate([np.ravel(last(m)), [0.0]])) for m in (ours, plain))
    difference = np.abs(own - other).max() / max(np.abs(other).max(), 1e-30)
    scores, found = plain.decision_function(X), ours.predict_topk(X, 5)[0]
    fifth = -np.sort(-scores, axis=1)[:, 4:5]
    slack = MAX_TIE * (scores.max() - scores.min())
    same = (np.take_along_axis(scores, found, axis=1) >= fifth - slack).all(axis=1)
    return difference, float(same.mean())


def last(model):
    """Return the last objective of a model, or of each of its parts; the coefficients if it has none."""
    objective = getattr(model, "objective_", None)
    if objective is None:
        return model.coef_
    return [part[-1] for part in objective] if isinstance(objective[0], list) else objective[-1]


def measure_equality(counts, methods):
    """Print how fits on clusters differ from those of one machine."""
    X, Y, gaps = make_data()
    test, rows, plain = X[:2000], [], {}
    for name, (estimator, has_gaps) in methods.items():
        start = time.perf_counter()
        plain[name] = clone(estimator).fit(X, gaps if has_gaps else Y)
        rows.append([name, "none", time.perf_counter() - start, *[""] * 5])
    for count in counts:
        with start_cluster(count) as cluster, connect(cluster.scheduler_address) as runner:
            for name, (estimator, has_gaps) in methods.items():
                start = time.perf_counter()
                with Traffic(runner.client) as traffic:
                    model = clone(estimator).fit(X, gaps if has_gaps else Y)
                seconds = time.perf_counter() - start
                difference, same = compare(model, plain[name], test)
                megabytes = [value / 1e6 for value in (traffic.formula, traffic.counted, traffic.network)]
                rows.append([name, count, seconds, difference, same, *megabytes])
                print(*rows[-1], dict(traffic.arrays), dict(traffic.sums), flush=True)
    header = ["method", "workers", "seconds", "difference", "same top 5", "MB, formula", "MB, counted", "MB, network"]
    show("Fits on a cluster", header, sorted(rows, key=lambda row: list(METHODS).index(row[0])))


class Killer(threading.Thread):
    """Kills a random worker after a random time, again and again, until it has killed enough of them."""

    def __init__(self, cluster, n_kills, seconds):
        super().__init__(daemon=True)
        self.cluster, self.n_kills, self.seconds = cluster, n_kills, seconds
        self.killed, self.rng, self.done = 0, np.random.default_rng(0), threading.Event()

    def run(self):
        while self.killed < self.n_kills and not self.done.wait(self.rng.uniform(0.3, 1) * self.seconds):
            connected = self.cluster.scheduler.workers
            processes = [nanny.pid for nanny in self.cluster.workers.values() if nanny.worker_address in connected]
            if len(processes) > 1:  # one that is left can compute all shards
                os.kill(self.rng.choice(processes), signal.SIGKILL)
                self.killed += 1


def measure_kills(n_kills, methods, n_workers=3):
    """Print what deaths of workers cost each method, and whether the models are the same."""
    from distributed import Client

    X, Y, gaps = make_data()
    rows = []
    for name in methods:
        estimator, has_gaps = METHODS[name]
        labels = gaps if has_gaps else Y
        with start_cluster(n_workers) as cluster, Client(cluster) as client:
            with connect(client):
                for _ in range(2):
                    start = time.perf_counter()
                    plain = clone(estimator).fit(X, labels)
                    usual = time.perf_counter() - start
            killer, n_fits, start, worst, same = (
                Killer(cluster, n_kills, usual),
                0,
                time.perf_counter(),
                0.0,
                1.0,
            )
            killer.start()
            while killer.is_alive():
                with connect(client):
                    model = clone(estimator).fit(X, labels)
                difference, share = compare(model, plain, X[:2000])
                worst, same, n_fits = max(worst, difference), min(same, share), n_fits + 1
            lost = (time.perf_counter() - start - n_fits * usual) / max(1, killer.killed)
            rows.append([name, n_workers, killer.killed, n_fits, usual, lost, worst, same])
            print(*rows[-1], flush=True)
    header = ["method", "workers", "kills", "fits", "seconds of a fit", "lost a kill", "difference", "same top 5"]
    show("Workers that die", header, rows)


def start_processes(port, n_workers, log):
    """Start a scheduler and workers as users do; return the processes, the scheduler first."""
    dask, address = [sys.executable, "-m", "distributed.cli.dask_scheduler"], f"tcp://127.0.0.1:{port}"
    options = {"stdout": log, "stderr": log}
    scheduler = subprocess.Popen([*dask, "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"], **options)
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-dashboard"]
    return [scheduler, *(subprocess.Popen(worker, **options) for _ in range(n_workers))]


def stop(processes):
    """Kill processes."""
    for process in processes:
        process.kill()
        process.wait()


def measure_scheduler():
    """Kill the scheduler in the middle of a fit; start it again and repeat the command."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as log:
        folder = Path(folder)
        X, Y, _ = make_data()
        write(folder / "data.npz", X, Y)
        fit = [
            sys.executable,
            "-m",
            "labelgap",
            "fit",
            folder / "data.npz",
            "--method",
            "LEML",
            "--n-components",
            "20",
        ]
        fit += ["--loss", "logistic", "--max-iter", "12", "--tol", "0", "--no-calibrate", "--json", "--seed", "0"]
        fit += ["--dtype", "float64"]  # in float32 the rounding of X alone changes these alternations by 2e-5
        on_cluster = ["--dask", f"tcp://127.0.0.1:{port}", "--checkpoint", folder / "pieces"]
        whole = json.loads(
            subprocess.run([*fit, "--output", folder / "plain"], capture_output=True, check=True).stdout
        )
        processes = start_processes(port, 2, log)
        time.sleep(8)
        command = list(map(str, [*fit, *on_cluster, "--output", folder / "model"]))
        first = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        while not list((folder / "pieces").glob("*.piece")):
            time.sleep(0.2)
        time.sleep(3)
        processes[0].kill()
        start = time.perf_counter()
        message = first.communicate()[1]
        seconds = time.perf_counter() - start
        stop(processes)
        processes = start_processes(port, 2, log)
        time.sleep(8)
        second = subprocess.run(command, capture_output=True, text=True)
        stop(processes)
        print(f"exit {first.returncode} after {seconds:.1f} s: {message.strip().splitlines()[-1]}")
        print(f"resumed: exit {second.returncode} {second.stderr}")
        difference, same = compare(load(folder / "model"), load(folder / "plain"), X[:2000])
        print(f"difference of the objective {difference:.1e}, same top 5 {same:.4f}")
        print(f"seconds: one machine {whole['seconds']}, resumed fit {json.loads(second.stdout)['seconds']}")


# Rows, features, labels, features and labels of a row, of the Extreme Classification Repository.
SETS = {
    "WikiLSHTC-325K": (1_778_351, 1_617_899, 325_056, 42.15, 3.19),
    "Amazon-670K": (490_449, 135_909, 670_091, 75.68, 5.45),
    "Amazon-3M": (1_717_899, 337_067, 2_812_281, 49.57, 36.04),
}


class Costs(NamedTuple):
    """What an alternation of LEML with squared loss costs, and the machines.

    ``rounds`` products with X, with Xᵀ, with Y and with Yᵀ; ``left`` arrays of the size of W that go to the workers
    or come back as sums, and ``right`` ones of the size of H. Each worker gets ``tasks`` tasks, and the client waits
    ``waits`` times for a sum, small ones included (``check`` counts them). ``rate`` are multiply-adds a second of a
    worker in sparse products, ``bandwidth`` the bytes a second of a network card, ``task`` the seconds that the
    scheduler spends on a task, ``latency`` the seconds from a result to the next task. The rate is that of the 2 M
    rows of docs/recipes/large.md, in processor time; bandwidth, task and latency are assumptions (10 Gbit/s, Dask's
    own).
    """

    rounds: int = 3
    left: int = 8
    right: int = 6
    tasks: int = 125
    waits: int = 22
    rate: float = 1.35e9
    bandwidth: float = 1.25e9
    task: float = 0.0005
    latency: float = 0.005


def predict_alternation(shape, k, n_workers, costs):
    """Return seconds of work and of communication, on paper.

    work = rounds · 2 · (nnz(X) + nnz(Y)) · k / (rate · N)
    communication = (left · d + right · L) · 4 k · depth / bandwidth + tasks · N · task + waits · depth · latency
    depth = 1 + log2 N
    """
    n, d, L, of_x, of_y = shape
    depth = 1 + math.ceil(math.log2(n_workers))
    work = costs.rounds * 2 * n * (of_x + of_y) * k / costs.rate / n_workers
    n_bytes = 4 * k * (costs.left * d + costs.right * L)
    waits = costs.tasks * n_workers * costs.task + costs.waits * depth * costs.latency
    return work, n_bytes * depth / costs.bandwidth + waits


def simulate_alternation(shape, k, n_workers, costs, rng):
    """Return the seconds of an alternation in which every transfer, task and worker has its own time.

    A worker's share of a product takes 10 % more or less at random. An array goes to the first worker, and each that
    has it sends it on, one at a time. Sums are added in pairs; a pair waits for the later of the two.
    """
    n, d, L, of_x, of_y = shape
    clock, share = 0.0, n * k / costs.rate / n_workers
    for width, cells in [(d, of_x), (L, of_y)] * costs.rounds:
        seconds, noise = 4 * k * width / costs.bandwidth, rng.lognormal(0, 0.1, (2, n_workers))
        there = _spread_out(clock, seconds, n_workers, costs) + cells * share * noise[0]
        clock = _add_pairs(there + costs.latency + cells * share * noise[1], seconds, costs)
    small = (costs.waits - 2 * costs.rounds) * (1 + math.ceil(math.log2(n_workers))) * costs.latency
    for _ in range(costs.left - 2 * costs.rounds):  # W and its last step
        clock = float(_spread_out(clock, 4 * k * d / costs.bandwidth, n_workers, costs).max())
    return small + clock


def _spread_out(clock, seconds, n_workers, costs):
    """Return when each worker has the array and its task."""
    free, arrive = [clock + seconds], [clock + seconds + costs.latency]
    while len(arrive) < n_workers:
        sender = int(np.argmin(free))
        free[sender] += seconds
        free.append(free[sender])
        arrive.append(free[sender] + costs.latency)
    of_step = costs.tasks / costs.left * costs.task
    return np.maximum(arrive, clock + of_step * np.arange(1, n_workers + 1))


def _add_pairs(done, seconds, costs):
    """Return when the sum of all workers is on the client."""
    times = list(done)
    while len(times) > 1:
        pairs = [max(a, b) + seconds + costs.latency for a, b in zip(times[::2], times[1::2])]
        times = pairs + times[len(times) // 2 * 2 :]
    return times[0] + seconds + costs.latency


def model_scaling(k=100):
    """Print the seconds of an alternation for up to 64 workers, and where communication takes over."""
    rng, rows, costs = np.random.default_rng(0), [], Costs()
    for name, shape in SETS.items():
        takes_over = next(
            (2**p for p in range(13) if np.subtract(*predict_alternation(shape, k, 2**p, costs)) < 0), 0
        )
        for n_workers in (1, 2, 4, 8, 16, 32, 64):
            work, sent = predict_alternation(shape, k, n_workers, costs)
            simulated = simulate_alternation(shape, k, n_workers, costs, rng)
            rows.append([name, n_workers, work, sent, work + sent, simulated, takes_over])
    header = ["set", "workers", "work", "communication", "paper", "simulated", "communication takes over at"]
    show("Seconds of an alternation, k = 100, 10 Gbit/s", header, rows)


CHECKED = (60_000, 30_000, 10_000, 60.0, 4.0)  # rows, features, labels, features and labels of a row


def measure_costs(client, n_workers):
    """Return what arrays, tasks and waiting cost here: none of it from a fit."""
    array, seconds = np.ones(1 << 23, np.float32), []
    for _ in range(5):
        start = time.perf_counter()
        future = client.scatter(array, broadcast=True, hash=False)
        seconds.append((time.perf_counter() - start) / (1 + math.ceil(math.log2(n_workers))))
        del future
    start = time.perf_counter()
    client.gather([client.submit(abs, i, pure=False) for i in range(500)])
    task = (time.perf_counter() - start) / 500
    start = time.perf_counter()
    for i in range(50):
        client.submit(abs, i, pure=False).result()
    latency = (time.perf_counter() - start) / 50
    return Costs(bandwidth=array.nbytes / float(np.median(seconds)), task=task, latency=latency)


def time_alternations(X, Y, k, traffic=None):
    """Return the median seconds of alternations after the first, and the numbers of arrays and events in one."""
    moments = []

    def note(_):
        moments.append((time.perf_counter(), *((Counter(), Counter()) if traffic is None else traffic.count())))

    LEML(k, init="random", max_iter=4, tol=0.0, random_state=0, callbacks=[note]).fit(X, Y)
    seconds = np.median(np.diff([moment[0] for moment in moments]))
    return float(seconds), moments[-1][1] - moments[-2][1], moments[-1][2] - moments[-2][2]


def check_scaling(counts, k=50):
    """Compare the model with the seconds of alternations here: the work is that of one machine on one thread."""
    n, d, L, of_x, of_y = CHECKED
    X, Y = make_sparse_multilabel(n, d, L, int(of_x), int(of_y), random_state=0)
    cores, rows = len(os.sched_getaffinity(0)), []
    with threads(1):
        work = time_alternations(X, Y, k)[0]
    rows.append(["none", work, 0.0, work, work, "", ""])
    for n_workers in counts:
        with start_cluster(n_workers) as cluster, connect(cluster.scheduler_address) as runner:
            costs = measure_costs(runner.client, n_workers)
            with Traffic(runner.client) as traffic:
                seconds, arrays, events = time_alternations(X, Y, k, traffic)
            n_bytes = 4 * sum(map(math.prod, arrays.elements()))
            sent, share = predict_alternation(CHECKED, k, n_workers, costs)[1], work / min(n_workers, cores)
            formula = 4 * k * n_workers * (costs.left * d + costs.right * L)
            megabytes = formula / 1e6, n_workers * n_bytes / 1e6
            rows.append([n_workers, share, sent, share + sent, seconds, *megabytes])
            print(*rows[-1], costs, dict(arrays), dict(events), flush=True)
    header = ["workers", "work", "communication", "model", "measured", "MB, formula", "MB, sent"]
    show(f"Seconds and megabytes of an alternation here, k = {k}", header, rows)


def main():
    """Run one of the measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["equal", "kills", "scheduler", "scaling", "check"])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--kills", type=int, default=10)
    options = parser.parse_args()
    if options.what == "equal":
        measure_equality(options.workers, {name: METHODS[name] for name in options.methods})
    elif options.what == "kills":
        measure_kills(options.kills, [name for name in ("LEML, squared", "SLEEC") if name in options.methods])
    elif options.what == "scaling":
        model_scaling()
    elif options.what == "check":
        check_scaling(options.workers)
    else:
        measure_scheduler()


if __name__ == "__main__":
    main()
