"""Time and accuracy of OneClassMFCV, compared with the code of another checkout.

    python -m benchmarks.one_class_search [bibtex delicious eurlex robotics cooking] [--against PATH/src]

Bibtex, Delicious and Eurlex have each training positive with probability ``--keep``, as in the regimes "kept" of
:mod:`benchmarks.field`, with the number of components of the one-class paper. Of the texts, robotics and cooking, a
fifth is the test set and a share ``1 - keep`` of the training tags is removed; nothing is set, and the other checkout
fits ``Tagger()``, whose estimator is BinaryRelevance there, or with ``--old-search`` its ``Tagger(OneClassMFCV())``.

Each fit runs in its own process, on each code in turn; the first fit of a process, on few rows, compiles and is not
timed. CPU seconds are those of all threads: on a busy machine they vary less than the time.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import subprocess
import sys
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.field import Trial
from labelgap import hide_positives
from labelgap.datasets import read_documents

TEXTS = ("robotics", "cooking")
DEPTHS = (1, 3, 5)
# The factors that the one-class paper uses on each set (its tables Supp-2 and Supp-3).
N_COMPONENTS = {"bibtex": 150, "delicious": 300, "mediamill": 100, "eurlex": 500}
N_SPLITS = {"eurlex": 1}  # where a fit takes a minute, parameters are chosen on one split


def load_texts(name: str, keep: float, seed: int) -> tuple[list[str], Any, list[str], Any]:
    """Return the texts and tags of a training set with removed tags, and of a complete test set."""
    path = Path(os.environ["LABELGAP_DATA"]) / "stackexchange-text" / f"{name}.csv.zip"
    documents = read_documents(path, ["title", "content"], tags="tags")
    texts, Y = documents.texts, sp.csr_array(documents.Y)
    order = np.random.RandomState(seed).permutation(len(texts))
    test, train = np.sort(order[: len(texts) // 5]), np.sort(order[len(texts) // 5 :])
    Y_train = Y[train] if keep == 1 else hide_positives(Y[train], keep, random_state=seed)
    return [texts[i] for i in train], Y_train, [texts[i] for i in test], Y[test]


def write_task(folder: Path, name: str, keep: float, seed: int) -> tuple[Path, Any]:
    """Write training data, test rows and parameters to a file; return it and the test labels."""
    options: dict[str, Any] = {"random_state": seed}
    if name in TEXTS:
        X, Y, X_test, Y_test = load_texts(name, keep, seed)
    else:
        trial = Trial.draw(name, f"kept {keep:g}", seed)
        X, Y, X_test, Y_test = trial.X, trial.gaps.Y, trial.T, trial.truth
        options |= {"n_components": N_COMPONENTS[name]}
        options |= {"n_splits": N_SPLITS[name]} if name in N_SPLITS else {}
    path = folder / f"{name}-{keep}-{seed}.pickle"
    path.write_bytes(pickle.dumps((X, Y, X_test, options)))
    return path, Y_test


# Runs on the other checkout too, so it uses only what both have.
CHILD = """
import json, pickle, sys, time, warnings
from sklearn.base import clone
from labelgap import OneClassMFCV, Tagger
warnings.simplefilter("ignore")
with open(sys.argv[1], "rb") as file:
    X, Y, X_test, options = pickle.load(file)
model = None if sys.argv[2] == "default" else OneClassMFCV(**options)
if isinstance(X, list):
    model = Tagger(model)
fixed = {"n_components": 5, "max_iter": 1, "weights": [0.1], "alphas": [1.0]}
small = OneClassMFCV(**fixed, random_state=0)
(Tagger(small if sys.argv[2] == "search" else None) if isinstance(X, list) else small).fit(X[:300], Y[:300])
start, cpu = time.perf_counter(), time.process_time()
model.fit(X, Y)
result = {"seconds": time.perf_counter() - start, "cpu": time.process_time() - cpu}
result["best"] = model.predict_topk(X_test, 5)[0].tolist()
learner = getattr(model, "model_", model)
if hasattr(learner, "best_params_"):
    result |= {"params": learner.best_params_, "candidates": len(learner.table_)}
    result["components"] = learner.best_estimator_.label_factors_.shape[1]
print(json.dumps(result))
"""


def run(source: str | None, path: Path, Y_test: Any, method: str) -> dict[str, Any]:
    """Fit in another process, on the code of ``source`` or on this one."""
    environment = dict(os.environ)
    if source is not None:
        environment["PYTHONPATH"] = source
    command = [sys.executable, "-c", CHILD, str(path), method]
    output = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    result = json.loads(output.stdout.splitlines()[-1])
    hits = np.take_along_axis(sp.csr_array(Y_test).toarray() > 0, np.array(result.pop("best")), axis=1)
    hits = hits[np.diff(sp.csr_array(Y_test).indptr) > 0]
    return result | {"P": [100 * hits[:, :k].mean() for k in DEPTHS]}


def describe(title: str, result: dict[str, Any]) -> str:
    precisions = " ".join(f"{value:5.2f}" for value in result["P"])
    facts = {name: result[name] for name in ("params", "components", "candidates") if name in result}
    return f"  {title:4} {result['seconds']:7.1f} s, {result['cpu']:7.1f} CPU s, P@1/3/5 {precisions}  {facts or ''}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--keep", type=float, nargs="+", default=[0.2])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--against", help="src folder of another checkout")
    parser.add_argument("--old-search", action="store_true")
    args = parser.parse_args()
    with TemporaryDirectory() as folder:
        for name, keep, seed in product(args.names, args.keep, range(args.seeds)):
            print(f"{name}, {keep:.0%} kept, seed {seed}", flush=True)
            path, Y_test = write_task(Path(folder), name, keep, seed)
            new = run(None, path, Y_test, "search")
            print(describe("new", new), flush=True)
            if args.against:
                old = run(
                    args.against, path, Y_test, "default" if name in TEXTS and not args.old_search else "search"
                )
                print(describe("old", old))
                ratios = new["seconds"] / old["seconds"], new["cpu"] / old["cpu"]
                differences = " ".join(f"{a - b:+.2f}" for a, b in zip(new["P"], old["P"], strict=True))
                print(f"  new/old: {ratios[0]:.2f} time, {ratios[1]:.2f} CPU; P@k {differences}", flush=True)


if __name__ == "__main__":
    main()
