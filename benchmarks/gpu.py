"""Training on one GPU at the shapes of large data sets. Run as ``python -m benchmarks.gpu all``.

Each part prints times, the share of the ceiling that this GPU reaches in a copy, and the ratio to the CPU of the same
machine. The bytes of a product are indices, values and output once, and a dense row for each non-zero, less those of
the most frequent columns that fit in the cache.

``all`` runs the parts of ``PLAN`` one after the other, each in a process of its own with a limit of time. Every table
is printed as soon as it is known, and appended to ``gpu.jsonl`` in the folder that ``$OUT`` names.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.common import normalised, show
from benchmarks.shapes import SHAPES, make_shape
from labelgap import LEML, MC1, SLEEC, BinaryRelevance, OneClassMF
from labelgap.kernels import cpu, get_backend, gpu
from labelgap.objectives import SideData
from labelgap.objectives import start as start_from
from labelgap.observations import as_labels
from labelgap.runtime import threads
from labelgap.solvers import Direct, Fit, alternate

BEGIN = time.perf_counter()
REFERENCE_STEPS = 40
N_AMAZON_TEST = 153_025

# The parts of ``all``, the most important ones first: their options and seconds.
PLAN = {
    "leml": (["--steps", "5"], 80),
    "one-class": (["--limit", "20", "--tight", "18"], 60),
    "products": ([], 20),
    "ml-20m": ([], 20),
    "streamed": ([], 30),
    "steps": ([], 20),
    "tests": ([], 60),
    "sleec-topk": ([], 90),
}
# Tests that run on the GPU, in parallel: files and the names that select tests.
GPU_TESTS = [
    ("test_gpu.py", "cuda"),
    *(
        ("test_estimator_contract.py", name)
        for name in ("LEML", "OneClassMF", "BinaryRelevance", "SLEEC", "MC1", "MCb")
    ),
]


def report(title: str, header: list[str], rows: list[list[Any]]) -> None:
    """Print a table, and append it to ``gpu.jsonl`` in the folder of ``$OUT``."""
    show(title, header, rows)
    sys.stdout.flush()
    if "OUT" in os.environ:
        with Path(os.environ["OUT"], "gpu.jsonl").open("a") as file:
            file.write(
                json.dumps({"title": title, "rows": [dict(zip(header, row)) for row in rows]}, default=str) + "\n"
            )


def seconds_of(work: Callable[[], Any], repeats: int = 5) -> float:
    """Return the median seconds of several runs on the GPU, after one that compiles."""
    work()
    times = []
    for _ in range(repeats):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        work()
        last.record()
        torch.cuda.synchronize()
        times.append(first.elapsed_time(last) / 1e3)
    return float(np.median(times))


def measure_ceilings() -> tuple[float, float]:
    """Return the bytes per second of a copy and the operations per second of a float32 product."""
    source = torch.randn(1 << 29, device="cuda")
    target = torch.empty_like(source)
    rate = 2 * source.nbytes / seconds_of(lambda: target.copy_(source))
    square = torch.randn(8192, 8192, device="cuda")
    return rate, 2 * 8192**3 / seconds_of(lambda: square @ square)


def count_bytes(A: Any, k: int, size: int) -> float:
    """Return the bytes that the product of A with k columns of ``size`` bytes per number moves."""
    cached = torch.cuda.get_device_properties(0).L2_cache_size // (k * size)
    counts = torch.sort(torch.bincount(A.indices, minlength=A.shape[1]), descending=True).values
    gathered = float(counts[cached:].sum())
    return A.nnz * 8.0 + A.shape[0] * k * 4.0 + gathered * k * size


def run_products(X: sp.csr_array, k: int, *, beside_cpu: bool) -> None:
    """Time the sparse products in both directions and precisions."""
    backend, (ceiling, operations) = get_backend("cuda"), measure_ceilings()
    torch.cuda.empty_cache()
    header = ["GPU", "copy TB/s", "float32 product T/s"]
    report("Ceilings", header, [[torch.cuda.get_device_name(), ceiling / 1e12, operations / 1e12]])
    A = backend.prepare(X, "float32")
    rng, rows = torch.Generator("cuda").manual_seed(0), []
    dense = {side: torch.randn((side, k), generator=rng, device="cuda") for side in A.shape}
    exact, host = {}, {}
    for label, matrix in (("X W", A), ("Xᵀ B", A.T)):
        B = dense[matrix.shape[1]]
        if beside_cpu:
            plain = cpu.prepare(X if label == "X W" else sp.csr_array(X.T), np.float32)
            argument = B.cpu().numpy()
            start = time.perf_counter()
            product = cpu.spmm(plain, argument)
            host[label] = time.perf_counter() - start
            exact[label] = backend.array(product, "float32")
        for kind, argument in (("float32", B), ("bfloat16", backend.coarse(B))):
            elapsed = seconds_of(lambda m=matrix, a=argument: backend.spmm(m, a))
            result = backend.spmm(matrix, argument)
            truth = exact.setdefault(label, result)
            error = float(torch.linalg.norm(result - truth) / torch.linalg.norm(truth))
            moved = count_bytes(matrix, k, argument.element_size())
            share = moved / elapsed / ceiling
            ratio = host[label] / elapsed if host else float("nan")
            rows.append([label, kind, elapsed * 1e3, moved / 1e9, 100 * share, error, ratio])
    header = ["product", "dense side", "ms", "GB", "% of copy", "error", "× CPU"]
    report(f"Products, k = {k}", header, rows)


@dataclass
class Trace:
    """The seconds and objectives of a fit, alternation by alternation."""

    fit: Fit
    seconds: list[float]
    peak: float

    def without_factors(self) -> Trace:
        """Free the memory of the factors."""
        self.fit.W = self.fit.H = None
        return self

    def reach(self, goal: float) -> float:
        """Return the seconds after which the objective is at most ``goal``."""
        return next((s for s, F in zip(self.seconds, self.fit.history) if goal >= F), float("nan"))


def trace(problem: Any, fit: Fit, solver: Any, max_iter: int, limit: float = 1e9) -> Trace:
    """Alternate from a copy of a start; ``limit`` ends it after so many seconds."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    seconds, begin = [], time.perf_counter()

    def report(fit: Fit) -> bool:
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
        return seconds[-1] > limit

    own = Fit(fit.W.clone(), fit.H.clone())
    alternate(problem, own, solver, solver, max_iter=max_iter, tol=0, stop=report)
    return Trace(own, seconds, torch.cuda.max_memory_allocated() / 2**30)


def bind_timed(model: Any, X: Any, Y: Any) -> tuple[Any, Fit]:
    """Move the data to the GPU, make the start, and print the time of both."""
    labels = as_labels(Y)
    begin = time.perf_counter()
    data = model._bind(X, labels, SideData())
    problem = model._problem(data)
    torch.cuda.synchronize()
    moved = time.perf_counter()
    fit = start_from(problem, model.n_components, init="svd", random_state=np.random.RandomState(0), dtype="float32")
    torch.cuda.synchronize()
    print(f"bind and transfer {moved - begin:.2f} s, start {time.perf_counter() - moved:.2f} s", flush=True)
    return problem, fit


def run_leml(X: Any, Y: Any, k: int, reference_steps: int, steps: list[int]) -> None:
    """Five alternations of LEML with few steps of conjugate gradients, compared with many in float32."""
    problem, fit = bind_timed(LEML(k, device="cuda"), X, Y)
    backend = get_backend("cuda")
    trace(problem, fit, Direct(0.0, 1), 1)  # compiles, and makes the transposes
    runs: list[tuple[Any, str, Trace]] = []

    def measure(count: Any, solver: Any) -> None:
        kind = "bfloat16" if backend.rounds else "float32"
        runs.append((count, kind, trace(problem, fit, solver, 5).without_factors()))
        print(*runs[-1][:2], *(f"{s:.3f} s {F:.7g}" for s, F in zip(runs[-1][2].seconds, runs[-1][2].fit.history)))
        sys.stdout.flush()

    measure("default", problem.make_solver("auto"))
    backend.rounds = False
    if reference_steps:
        measure(reference_steps, Direct(0.0, reference_steps))
    backend.rounds = True
    best = runs[-1][2].fit.history[-1]
    for count in steps:
        measure(count, Direct(0.0, count))
    table = [
        [count, kind, run.seconds[-1], run.fit.history[-1], 100 * (run.fit.history[-1] / best - 1), run.peak]
        for count, kind, run in runs
    ]
    report(f"LEML, k = {k}, 5 alternations", ["CG steps", "products", "s", "F", "% above", "GiB"], table)


class Steps(TorchDispatchMode):
    """Counts the bytes and operations of a block by the kind of step, and times them.

    Bytes are those of all arguments and results; those of sparse products are counted as by :func:`count_bytes`.
    """

    def __init__(self, backend: Any) -> None:
        super().__init__()
        self.counts: dict[str, dict[str, float]] = {}
        self._events: list[tuple[str, Any, Any]] = []
        self._backend, self._multiply, self._inside = backend, backend._multiply, False

    def __enter__(self) -> Any:
        self._backend._multiply = self._multiply_and_count
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        del self._backend._multiply

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = function.overloadpacket.__name__, kwargs or {}
        if self._inside or function.is_view:
            return function(*args, **kwargs)
        dense = name in ("mm", "addmm")
        kind = "dense products" if dense else "decompositions" if "linalg" in name else "elementwise, sums"
        result = self._measure(kind, lambda: function(*args, **kwargs))
        tensors = [part for part in tree_leaves((args, kwargs, result)) if isinstance(part, torch.Tensor)]
        self.counts[kind]["bytes"] += sum(part.nbytes for part in tensors)
        if dense:
            self.counts[kind]["operations"] += 2.0 * result.numel() * args[-1].shape[0]
        return result

    def _multiply_and_count(self, A: Any, data: Any, B: Any) -> Any:
        kind = f"sparse products, {str(B.dtype).removeprefix('torch.')}"
        self._inside = True
        result = self._measure(kind, lambda: self._multiply(A, data, B))
        self.counts[kind]["bytes"] += count_bytes(A, B.shape[1], B.element_size())
        self.counts[kind]["operations"] += 2.0 * A.nnz * B.shape[1]
        self._inside = False
        return result

    def _measure(self, kind: str, work: Callable[[], Any]) -> Any:
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        result = work()
        last.record()
        self._events.append((kind, first, last))
        row = self.counts.setdefault(kind, dict.fromkeys(("calls", "bytes", "operations"), 0.0))
        row["calls"] += 1
        return result

    def table(self, rate: float, speed: float) -> list[list[Any]]:
        """Return a row for each kind: calls, ms, GB, billions of operations, and the share of the nearer ceiling."""
        torch.cuda.synchronize()
        rows = []
        for kind, row in self.counts.items():
            seconds = sum(first.elapsed_time(last) for own, first, last in self._events if own == kind) / 1e3
            least = max(row["bytes"] / rate, row["operations"] / speed)
            share = 100 * least / seconds
            rows.append([kind, int(row["calls"]), seconds * 1e3, row["bytes"] / 1e9, row["operations"] / 1e9, share])
        return rows


def run_steps(X: Any, Y: Any, k: int) -> None:
    """The kinds of steps of an alternation of LEML, after one that compiles."""
    rate, speed = measure_ceilings()
    torch.cuda.empty_cache()
    problem, fit = bind_timed(LEML(k, device="cuda"), X, Y)
    trace(problem, fit, problem.make_solver("auto"), 1)
    with Steps(get_backend("cuda")) as steps:
        whole = trace(problem, fit, problem.make_solver("auto"), 1).seconds[-1]
    header = ["step", "calls", "ms", "GB", "10⁹ operations", "% of a ceiling"]
    report(f"LEML, k = {k}, one alternation, {1e3 * whole:.0f} ms with the events", header, steps.table(rate, speed))


def find_tight(X: Any, Y: Any, fit: Fit, loss: str, limit: float) -> float:
    """Continue a fit in float64 until a time limit, and return the lowest objective."""
    model = OneClassMF(fit.W.shape[1], loss=loss, device="cuda", dtype="float64")
    problem = model._problem(model._bind(X, as_labels(Y), SideData()))
    run = trace(problem, Fit(fit.W.double(), fit.H.double()), problem.make_solver("auto"), 1_000, limit)
    print("float64", [f"{F:.7g}" for F in run.fit.history], f"{run.seconds[-1]:.0f} s")
    return min(run.fit.history)


def run_one_class(X: Any, Y: Any, k: int, loss: str, limit: float, max_iter: int = 200, tight: float = 0.0) -> None:
    """OneClassMF until a time limit: the time to 0.1 % above the lowest objective, in float64 if ``tight``."""
    model = OneClassMF(k, loss=loss, device="cuda")
    problem, fit = bind_timed(model, X, Y)
    trace(problem, fit, problem.make_solver("auto"), 1)
    run = trace(problem, fit, problem.make_solver("auto"), max_iter, limit)
    print("F and seconds", [(f"{F:.6g}", round(s, 2)) for F, s in zip(run.fit.history, run.seconds)][:40], flush=True)
    best = min(run.fit.history)
    if tight:
        problem = None
        torch.cuda.empty_cache()
        best = min(best, find_tight(X, Y, run.fit, loss, tight))
    steps = np.diff([0.0, *run.seconds])
    row = [loss, len(steps), float(np.median(steps)), run.reach(1.001 * best), run.reach(1.01 * best), best, run.peak]
    header = ["loss", "alternations", "s each", "s to 0.1 %", "s to 1 %", "F", "GiB"]
    report(f"OneClassMF, k = {k}", header, [row])


def run_agreement(name: str, k: int) -> None:
    """The same fit on the CPU and on the GPU: objectives, and the overlap of the five best labels."""
    dataset, train, test = normalised(name)
    rows = []
    for make in (LEML, OneClassMF):
        models, seconds = [], []
        for device in ("cpu", "cuda", "cpu", "cuda"):
            begin = time.perf_counter()
            models.append(make(k, alpha=0.1, random_state=0, device=device, max_iter=100).fit(train, dataset.Y_train))
            seconds.append(time.perf_counter() - begin)
        (ours, _), (theirs, _) = (model.predict_topk(test, 5) for model in models[2:])
        overlap = np.mean([len(set(a) & set(b)) for a, b in zip(ours.tolist(), theirs.tolist())]) / 5
        F, G = (model.objective_[-1] for model in models[2:])
        iterations = f"{models[2].n_iter_}, {models[3].n_iter_}"
        rows.append([make.__name__, iterations, seconds[2], seconds[3], F, G / F - 1, 100 * float(overlap)])
    report(f"{name}, k = {k}", ["", "alternations", "CPU s", "GPU s", "F", "relative difference", "% overlap"], rows)


def run_linear(name: str) -> None:
    """One-vs-all on the CPU and on the GPU: seconds, difference of scores, and overlap of the five best labels."""
    dataset, train, test = normalised(name)
    rows = []
    for loss in ("squared", "squared_hinge"):
        models, seconds = {}, {}
        for device in ("cuda", "cpu", "cuda"):  # the first compiles, and loads libraries
            begin = time.perf_counter()
            models[device] = BinaryRelevance(0.1, loss=loss, device=device).fit(train, dataset.Y_train)
            seconds[device] = time.perf_counter() - begin
        (ours, _), (theirs, _) = (models[device].predict_topk(test, 5) for device in ("cpu", "cuda"))
        overlap = np.mean([len(set(a) & set(b)) for a, b in zip(ours.tolist(), theirs.tolist())]) / 5
        scores, others = (models[device].decision_function(test) for device in ("cpu", "cuda"))
        difference = float(np.linalg.norm(others - scores) / np.linalg.norm(scores))
        rows.append([loss, seconds["cpu"], seconds["cuda"], difference, 100 * float(overlap)])
        print(rows[-1], flush=True)
    report(f"{name}, one-vs-all", ["loss", "CPU s", "GPU s", "relative difference", "% overlap"], rows)


def run_completion(n: int = 10_000, d: int = 1_800, t: int = 200, rank: int = 20) -> None:
    """MC1 on a generated matrix of low rank with 30 % of its cells unknown, on the CPU and on the GPU."""
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((n, rank)) @ rng.standard_normal((rank, t + d)) / rank**0.5
    Z += 0.3 * rng.standard_normal(Z.shape)
    Z[:, :t] = Z[:, :t] > 0.5
    Z[rng.random(Z.shape) < 0.3] = np.nan
    settings = {"mu": 2e-5, "decay": 0.1, "tol": 1e-4, "max_iter": 30}
    rows = []
    for device in ("cuda", "cpu", "cuda"):
        begin = time.perf_counter()
        model = MC1(device=device, **settings).fit(Z[:, t:], Z[:, :t])
        rows.append([device, time.perf_counter() - begin, model.n_iter_, model.rank_, model.objective_[-1]])
        print(rows[-1], flush=True)
    report(f"MC1, {n} × ({t} + {d})", ["device", "s", "steps", "rank", "F"], rows)


def run_streamed(X: Any, Y: Any, k: int, n_cells: int = 1 << 24) -> None:
    """Five alternations of LEML with the matrices on the GPU, and streamed from pinned memory."""
    backend: Any = get_backend("cuda")
    rows = []
    for streamed in (False, True):
        if streamed:
            backend._count_free_bytes, gpu.STREAMED_CELLS = (lambda: 0), n_cells
        problem, fit = bind_timed(LEML(k, device="cuda"), X, Y)
        trace(problem, fit, problem.make_solver("auto"), 1)
        run = trace(problem, fit, problem.make_solver("auto"), 5)
        rows.append(["streamed" if streamed else "on the GPU", run.seconds[-1], run.fit.history[-1], run.peak])
        print(rows[-1], flush=True)
        problem = fit = run = None
        torch.cuda.empty_cache()
    del backend._count_free_bytes
    report(f"LEML, k = {k}, 5 alternations", ["matrices", "s", "F", "GiB"], rows)


def run_sleec(learners: int) -> None:
    """SLEEC at the shape of Amazon-670K: times of a fit and of the five best labels of 153,025 rows."""
    for scale in (0.03, 1.0):  # the first compiles
        (X, Y), (other, _) = (make_shape("amazon-670k", seed, scale=scale) for seed in (0, 1))
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        begin = time.perf_counter()
        model = SLEEC(n_learners=learners, device="cuda", random_state=0, verbose=1).fit(X, Y)
        fitted = time.perf_counter()
        print(f"{X.shape[0]} rows, {learners} learners: {fitted - begin:.1f} s", flush=True)
        queries = other[: int(scale * N_AMAZON_TEST)]
        model.predict_topk(queries, 5)
        row = [learners, len(model.parts_[0]), fitted - begin, queries.shape[0], time.perf_counter() - fitted]
        peak = torch.cuda.max_memory_allocated() / 2**30
        report(
            f"SLEEC, {X.shape[0]} rows", ["learners", "clusters", "fit s", "rows", "top-5 s", "GiB"], [[*row, peak]]
        )


def compile_sleec() -> None:
    """Fit a small model and predict on the CPU, which compiles its loops."""
    rng = np.random.default_rng(0)
    X, Y = (sp.csr_array((rng.random((300, width)) < 0.1).astype(np.float32)) for width in (40, 30))
    SLEEC(5, n_clusters=2, n_learners=1, device="cpu", random_state=0).fit(X, Y).predict_topk(X, 5)


def run_sleec_topk(learners: int) -> None:
    """The five best labels of 153,025 rows: one learner is fitted and repeated with its rows renumbered."""
    (X, Y), (other, _) = (make_shape("amazon-670k", seed) for seed in (0, 1))
    torch.cuda.empty_cache()
    begin = time.perf_counter()
    model = SLEEC(n_learners=1, device="cuda", random_state=0, verbose=1).fit(X, Y)
    seconds = time.perf_counter() - begin
    n, parts = X.shape[0], model.parts_[0]
    model.centers_ = learners * model.centers_
    model.parts_ = [
        [{**part, "rows": (part["rows"] + shift * n // learners) % n} for part in parts] for shift in range(learners)
    ]
    model.n_learners, queries = learners, other[:N_AMAZON_TEST]
    torch.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    model.predict_topk(queries, 5)
    row = [learners, seconds, len(parts), queries.shape[0], time.perf_counter() - begin]
    header = ["learners", "fit of one s", "clusters", "rows", "top-5 s", "GiB"]
    report("SLEEC, predictions", header, [[*row, torch.cuda.max_memory_allocated() / 2**30]])


def run_tests() -> None:
    """The tests of the backend, and the contract suite with ``device="auto"`` on the GPU; files run in parallel."""
    if importlib.util.find_spec("pytest") is None:
        raise SystemExit("pytest is not installed")
    options = ["-q", "--quick", "--torch", "--torch-device=cuda", "-p", "no:cacheprovider", "--tb=line"]
    runs = {}
    for file, name in GPU_TESTS:
        own = options if "contract" in file else ["-q", "-p", "no:cacheprovider", "--tb=line"]
        command = [sys.executable, "-m", "pytest", *own, f"tests/{file}", "-k", name]
        runs[file, name] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    rows, failed = [], []
    for (file, name), run in runs.items():
        lines = run.communicate()[0].strip().splitlines()
        rows.append([file, name, lines[-1] if lines else ""])
        failed += [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    print(*failed, sep="\n", flush=True)
    report("Tests on the GPU", ["file", "selected", "result"], rows)
    if any(run.returncode for run in runs.values()):
        raise SystemExit("some tests failed")


def run_plan(names: list[str], budget: float) -> None:
    """Run the parts of ``PLAN`` or those that are named; their processes start together and wait for their turn."""
    begin = time.perf_counter()
    commands = {name: [sys.executable, "-m", "benchmarks.gpu", name, *PLAN[name][0], "--wait"] for name in names}
    runs = {name: subprocess.Popen(command, stdin=subprocess.PIPE) for name, command in commands.items()}
    ended = {}
    try:
        for name, run in runs.items():
            left = budget - (time.perf_counter() - begin)
            start, limit = time.perf_counter(), min(PLAN[name][1], left)
            if left <= 0:
                ended[name] = "no time was left"
                continue
            print(f"--- {name}, at most {limit:.0f} s", flush=True)
            try:
                run.communicate(b"\n", timeout=limit)
                ended[name] = "done" if run.returncode == 0 else f"failed with {run.returncode}"
            except subprocess.TimeoutExpired:
                ended[name] = "stopped at its limit"
                run.kill()
                run.wait()
            print(f"--- {name}: {ended[name]}, {time.perf_counter() - start:.1f} s", flush=True)
    finally:
        for run in runs.values():
            run.kill()
    report(f"All, {time.perf_counter() - begin:.0f} s", ["part", "result"], [list(pair) for pair in ended.items()])
    if any(end != "done" for end in ended.values()):
        raise SystemExit(1)


def make_parts(options: argparse.Namespace) -> dict[str, Callable[[], None]]:
    """Return the parts by name, in the order in which they run."""
    k = options.k

    @cache
    def make_large() -> tuple[Any, Any]:
        begin = time.perf_counter()
        X, Y = make_shape(options.shape)
        torch.cuda.empty_cache()
        print(f"{options.shape} generated in {time.perf_counter() - begin:.1f} s", flush=True)
        return X, Y

    return {
        "products": lambda: run_products(make_large()[0], k, beside_cpu=options.cpu),
        "leml": lambda: run_leml(*make_large(), k, options.reference, options.steps),
        "steps": lambda: run_steps(*make_large(), k),
        "ml-20m": lambda: run_one_class(*make_shape("ml-20m"), 256, "squared", 20.0, 30),
        "bibtex": lambda: run_agreement("bibtex", 100),
        "eurlex": lambda: run_agreement("eurlex", 100),
        "one-vs-all": lambda: run_linear("eurlex"),
        "completion": run_completion,
        "streamed": lambda: run_streamed(*make_large(), k),
        "sleec": lambda: run_sleec(options.learners),
        "sleec-topk": lambda: run_sleec_topk(options.learners),
        "tests": run_tests,
        "one-class": lambda: run_one_class(*make_large(), k, "logistic", options.limit, tight=options.tight),
    }


def main() -> None:
    """Run the chosen parts; if one fails, the others still run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="+", help="names as in make_parts; after all, those of PLAN")
    parser.add_argument("--shape", choices=sorted(SHAPES), default="wikipedia")
    parser.add_argument("-k", type=int, default=500)
    parser.add_argument("--steps", type=int, nargs="*", default=[3, 5, 8])
    parser.add_argument("--reference", type=int, default=REFERENCE_STEPS)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds of OneClassMF on the large shape")
    parser.add_argument("--learners", type=int, default=5, help="of SLEEC")
    parser.add_argument("--tight", type=float, default=0.0, help="seconds of OneClassMF in float64")
    parser.add_argument("--cpu", action="store_true", help="also time products on the CPU")
    parser.add_argument("--budget", type=float, default=300.0, help="seconds of all parts")
    parser.add_argument("--wait", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.parts[0] == "all":
        run_plan(options.parts[1:] or list(PLAN), options.budget)
        return
    parts = make_parts(options)
    unknown = set(options.parts) - set(parts)
    if unknown:
        parser.error(f"unknown parts: {', '.join(sorted(unknown))}; choose from all, {', '.join(parts)}")
    if "sleec-topk" in options.parts:
        compile_sleec()
    if options.wait:  # everything is imported, and the GPU knows this process
        torch.zeros(1, device="cuda")
        if not sys.stdin.readline():
            return
        print(f"ready {time.perf_counter() - BEGIN:.1f} s after its start", flush=True)
    failed = []
    with threads(None):
        for name in options.parts:
            try:
                parts[name]()
            except Exception:
                traceback.print_exc()
                failed.append(name)
            torch.cuda.empty_cache()
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
