"""Times to the same objective of two source trees, and where the time goes.

Run as ``python -m benchmarks.solver_speed --against OLD_SRC``, with the ``src`` folder of an older checkout. Each fit
runs in its own process. The older tree runs for some alternations; the time of this tree is that to the same F, or to
F ≤ 26,476 on Eurlex. ``--only`` selects tables:

eurlex      LEML, k = 256, α = 1, rows of unit length, alone and beside a busy process
generated   LEML and LR-wSQ, 100 non-zeros a row, and peak memory above that of the data (``--rows``, ``--features``)
exponents   the seconds of an alternation by rows and by non-zeros a row
where       shares of products, dense algebra, ranking and Python
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

GOAL = 26_476.0
GENERATED = {"labels": 20_000, "nonzeros": 100, "k": 128}
SIZES = {"small": (1_000, 500, 100), "medium": (4_000, 2_000, 400), "large": (16_000, 8_000, 1_600)}
METHODS = ("LEML", "LR-wSQ", "one-vs-all", "SLEEC", "MC-1")
KINDS = ("products", "dense algebra", "ranking", "Python")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", metavar="OLD_SRC", help="the src folder of the older tree")
    parser.add_argument("--only", nargs="+", default=["eurlex", "generated", "exponents", "where"], choices=TABLES)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--features", type=int, nargs="+", default=[50_000, 200_000])
    parser.add_argument("--alternations", type=int, default=3, help="of the older tree on generated data")
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    args = parser.parse_args()
    trees = {"this tree": str(Path(__file__).parents[1] / "src")}
    if args.against:
        trees = {"older tree": args.against, **trees}
    for name in args.only:
        TABLES[name](trees, args)


def run(source: str, **task: Any) -> dict[str, Any]:
    """Run a task of this file in a process that imports labelgap from ``source``."""
    environment = os.environ | {"PYTHONPATH": source}
    command = [sys.executable, __file__, json.dumps(task)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    found = json.loads(done.stdout.splitlines()[-1])
    print(source, task, found, file=sys.stderr)
    return found


def show(title: str, header: tuple[str, ...], rows: list[tuple]) -> None:
    from benchmarks.common import show as show_table

    show_table(title, header, rows)


def compare_eurlex(trees: dict[str, str], _: argparse.Namespace) -> None:
    rows, alone = [], {}
    for load in ("alone", "beside a busy process"):
        busy = None if load == "alone" else subprocess.Popen([sys.executable, "-c", "while True: pass"])
        try:
            for tree, source in trees.items():
                found = run(source, kind="trace", method="LEML", data="eurlex", k=256, goal=GOAL, alternations=40)
                value, seconds, cpu = found["trace"][-1]
                alone.setdefault(tree, seconds)
                oldest = next(iter(alone.values()))
                rows.append((load, tree, value, seconds, cpu, seconds / alone[tree], seconds / oldest))
        finally:
            if busy is not None:
                busy.kill()
                busy.wait()
    header = ("load", "tree", "F", "seconds", "CPU seconds", "against alone", "against the first row")
    show(f"LEML on Eurlex, k = 256, α = 1: time to F ≤ {GOAL:,.0f}", header, rows)


def compare_generated(trees: dict[str, str], args: argparse.Namespace) -> None:
    rows = []
    for method in sorted({"LEML", "LR-wSQ"} & set(args.methods)):
        for features in args.features:
            setting = {**GENERATED, "rows": args.rows, "features": features}
            first, goal = None, None
            for tree, source in trees.items():
                found = run(
                    source,
                    kind="trace",
                    method=method,
                    data=setting,
                    k=GENERATED["k"],
                    goal=goal,
                    alternations=args.alternations if goal is None else 40,
                )
                value, seconds, cpu = found["trace"][-1]
                first, goal = first or seconds, value if goal is None else goal
                rows.append((method, features, tree, value, seconds, cpu, seconds / first, *found["memory"]))
    header = ("method", "features", "tree", "F", "seconds", "CPU s", "ratio", "peak MB", "inputs, factors, sketch MB")
    show(f"{args.rows:,} rows, {GENERATED}: time to the same F", header, rows)


def measure_exponents(trees: dict[str, str], args: argparse.Namespace) -> None:
    from benchmarks.common import exponent

    base, rows = {"rows": 20_000, "features": 20_000, "labels": 4_000, "nonzeros": 50}, []
    for method in ("LEML", "LR-wSQ"):
        for name in ("rows", "nonzeros"):
            sizes = [base[name] * factor for factor in (1, 2, 4)]
            seconds = []
            for size in sizes:
                task = {"kind": "trace", "method": method, "data": {**base, name: size}, "k": 64, "alternations": 4}
                trace = run(trees["this tree"], **task, goal=None)["trace"]
                seconds.append((trace[-1][2] - trace[0][2]) / 3)
            rows.append((method, name, str(sizes), exponent(sizes, seconds), seconds[-1]))
    show("CPU seconds of an alternation", ("method", "varied", "sizes", "exponent", "seconds of the largest"), rows)


def show_shares(trees: dict[str, str], args: argparse.Namespace) -> None:
    rows = []
    for method in args.methods:
        for size in SIZES:
            for tree, source in trees.items():
                found = run(source, kind="shares", method=method, size=size)
                rows.append((method, size, tree, found["seconds"], *(f"{found[kind]:.0%}" for kind in KINDS)))
    show("Where the time of a fit and of a ranking goes", ("method", "size", "tree", "seconds", *KINDS), rows)


TABLES = {
    "eurlex": compare_eurlex,
    "generated": compare_generated,
    "exponents": measure_exponents,
    "where": show_shares,
}


# --- tasks in a process of their own, by names that both trees have ------------------------------------------------


def make_model(method: str, **options: Any) -> Any:
    from labelgap import LEML, MC1, SLEEC, BinaryRelevance, OneClassMF

    if method == "LEML":
        return LEML(alpha=1.0, random_state=0, **options)
    if method == "LR-wSQ":
        return OneClassMF(random_state=0, **options)
    if method == "SLEEC":
        return SLEEC(n_clusters=1, n_learners=1, random_state=0)
    return MC1() if method == "MC-1" else BinaryRelevance()


def load(data: Any) -> tuple[Any, Any]:
    from sklearn.preprocessing import normalize

    from labelgap.datasets import load_dataset, make_sparse_multilabel

    if data == "eurlex":
        dataset = load_dataset("eurlex")
        return normalize(dataset.X_train), dataset.Y_train
    return make_sparse_multilabel(data["rows"], data["features"], data["labels"], data["nonzeros"], 5, random_state=0)


def trace(task: dict[str, Any]) -> dict[str, Any]:
    """Return F, seconds and CPU seconds after each alternation, and the peak memory above that before the fit."""
    X, Y = load(task["data"])
    few = slice(0, 10_000)  # enough for the kernels of large arrays
    make_model(task["method"], n_components=task["k"], max_iter=1).fit(X[few], Y[few])  # compiles
    before, points = read_status("VmRSS"), []
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    start, cpu = time.perf_counter(), time.process_time()

    def record(done: Any) -> bool:
        points.append((done.objective, time.perf_counter() - start, time.process_time() - cpu))
        return task["goal"] is not None and done.objective <= task["goal"]

    make_model(
        task["method"], n_components=task["k"], max_iter=task["alternations"], tol=0.0, callbacks=[record]
    ).fit(X, Y)
    factors = 4 * task["k"] * (X.shape[1] + Y.shape[1])
    inputs = sum(8 * matrix.nnz + 4 * matrix.shape[0] for matrix in (X, Y))
    sketch = 4 * X.shape[1] * min(500, X.nnz // X.shape[1])
    return {"trace": points, "memory": (read_status("VmHWM") - before, (inputs + factors + sketch) / 1e6)}


def read_status(name: str) -> float:
    """Return a number of the process's memory in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1e3


def measure_shares(task: dict[str, Any]) -> dict[str, float]:
    """Return the seconds of the calling thread, and the share of each kind of work."""
    import cProfile
    import pstats

    rows, features, labels = SIZES[task["size"]]
    X, Y = load({"rows": rows, "features": features, "labels": labels, "nonzeros": 50})
    if task["method"] == "MC-1":
        X, Y = X[: rows // 10, : features // 10].toarray(), Y[: rows // 10, : labels // 10]
    options = {"n_components": 64} if task["method"] in ("LEML", "LR-wSQ") else {}
    small = slice(0, 200)
    make_model(task["method"], **options).fit(X[small], Y[small]).predict_topk(X[small], 5)  # compiles
    profile = cProfile.Profile()
    profile.enable()
    make_model(task["method"], **options).fit(X, Y).predict_topk(X, 5)
    profile.disable()
    stats = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    seconds = dict.fromkeys(KINDS, 0.0)
    for (path, _, name), (_, _, own, _, _) in stats.items():
        seconds[find_kind(path, name)] += own
    total = sum(seconds.values())
    return {"seconds": total, **{kind: own / total for kind, own in seconds.items()}}


def find_kind(path: str, name: str) -> str:
    """Return the kind of work of a function.

    >>> find_kind("labelgap/kernels/loops.py", "spmm"), find_kind("scipy/linalg/_decomp.py", "eigh")
    ('products', 'dense algebra')
    """
    if any(word in name for word in ("topk", "best_in_rows", "partition", "sort")):
        return "ranking"
    if "labelgap" in path and "loops" in path:
        return "products"
    dense = ("linalg", "labelgap/kernels", "_sparsetools")
    numeric = ("reduce", "astype", "matmul", "dot", "einsum", "copy", "acquire", "_methods", "sparsetools")
    if any(part in path for part in dense) or any(part in name for part in numeric):
        return "dense algebra"
    return "Python"


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1].startswith("{"):
        given = json.loads(sys.argv[1])
        print(json.dumps({"trace": trace, "shares": measure_shares}[given["kind"]](given)))
    else:
        main()
