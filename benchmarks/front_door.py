"""``labelgap fit`` with nothing set, beside an older version and other packages, on texts whose tags are thinned.

Each table is split into four fifths for training and one fifth for tests; a share of the tags is removed at random.
Each fit runs in a process of its own. P@k and F1 compare with the untouched tags of the test rows; probabilities,
with test tags that are thinned like those of the training; *perfect* is the error above 0.05 that perfect
probabilities would have by chance, on as many rows. P(true), in cells where it is above 0.05, is shown beside
its 95 % interval, as means over these cells, and the share of untouched tags among them. Other packages get the
features of labelgap's words and their own defaults; a label is predicted above the score that maximises F1 on a fifth
of the training rows, for which they are fitted once more without it. Results go to a JSON file, and a run continues
where the last one stopped.
biology and Reuters are for one final measurement.

    python -m benchmarks.front_door [robotics cooking] [--removed 0 0.3 0.7] [--methods labelgap older omikuji]
        [--old OLDER/src] [--peers PEERS/bin/python] [--json FILE]
    python -m benchmarks.front_door robotics reuters --times 2 --old OLDER/src
"""

from __future__ import annotations

import argparse
import gzip
import html
import json
import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from benchmarks.common import show
from benchmarks.front_door_peers import PEERS
from labelgap import load
from labelgap.calibration import calibration_error
from labelgap.datasets import read_documents, write_records
from labelgap.datasets.tag_columns import split_tags
from labelgap.estimators.tagger import learn_words
from labelgap.observations import encode_tags
from labelgap.runtime import write_atomically

MIN_LIKELY = 0.05
PEER_LIMIT = 900  # seconds of one fit of another package; beyond, its figures are blank
FIGURES = (
    *("P@1", "P@3", "P@5", "micro F1", "macro F1", "tagged", "error", f"error > {MIN_LIKELY}", "perfect"),
    *("true: error", "mean", "low", "high", "untouched"),
    *("s", "CPU s", "MB"),
)
# The memory and CPU time of a fit are those of a small process that has no other child.
FIT = """
import json, resource, subprocess, sys
subprocess.run([sys.executable, *sys.argv[1:]], check=True, stdout=subprocess.DEVNULL)
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024]))
"""
PREDICT = """
import sys, numpy as np, labelgap
from labelgap.datasets import read_records
model = labelgap.load(sys.argv[1])
texts = [row["text"] for row in read_records(sys.argv[2])]
indices, _ = model.predict_topk(texts, 5)
out = {"best": indices, "yes": model.decision_function(texts) > 0, "names": model.label_names_in_.astype(str)}
if hasattr(model, "calibration_"):
    out["written"] = model.predict_proba(texts)
    bounds = model.predict_proba(texts, meaning="true", return_interval=True)
    out |= dict(zip(("true", "low", "high"), bounds))
np.savez(sys.argv[3], **out)
"""


def read_reuters() -> tuple[list[str], list[list[str]]]:
    """Return the texts and topics of the news of Reuters-21578 that have a topic."""
    texts, tags = [], []
    for path in sorted((Path(os.environ["LABELGAP_DATA"]) / "reuters21578").glob("reut2-*.sgm.gz")):
        for part in gzip.decompress(path.read_bytes()).decode("latin-1").split("<REUTERS ")[1:]:
            topics = re.findall(r"<D>(.*?)</D>", re.findall(r"<TOPICS>(.*?)</TOPICS>", part)[0])
            title = re.findall(r"<TITLE>(.*?)</TITLE>", part, re.DOTALL)
            body = re.findall(r"<BODY>(.*?)</BODY>", part, re.DOTALL)
            if topics and (title or body):
                texts.append(html.unescape(" ".join([*title, *body])).replace("\x03", " "))
                tags.append(topics)
    return texts, tags


def read_table(name: str) -> tuple[list[str], list[list[str]]]:
    """Return the texts and tags of a table."""
    if name == "reuters":
        return read_reuters()
    path = Path(os.environ["LABELGAP_DATA"]) / "stackexchange-text" / f"{name}.csv.zip"
    documents = read_documents(path, ["title", "content"], tags="tags")
    return documents.texts, split_tags([record["tags"] for record in documents.rows], " ")


def make_split(name: str, removed: float, seed: int) -> dict[str, list]:
    """Return texts and tags for training, and texts, tags and thinned tags for tests."""
    texts, tags = read_table(name)
    rng = np.random.RandomState(seed)
    order = rng.permutation(len(tags))
    test, train = np.sort(order[: len(tags) // 5]), np.sort(order[len(tags) // 5 :])
    thinned = [[tag for tag in row if rng.rand() >= removed] for row in tags]
    parts = {"train": (texts, train), "test": (texts, test), "tags": (thinned, train), "truth": (tags, test)}
    return {key: [values[i] for i in rows] for key, (values, rows) in (parts | {"thinned": (thinned, test)}).items()}


def compute_f1(predicted: Any, truth: Any) -> tuple[float, float]:
    """Return micro-F1, and macro-F1 over labels with a positive in the test set."""
    hits, total = (predicted & truth).sum(axis=0), predicted.sum(axis=0) + truth.sum(axis=0)
    own = truth.any(axis=0)
    return 2 * hits.sum() / max(total.sum(), 1), float((2 * hits[own] / total[own]).mean())


def compute_errors(p: NDArray, yes: NDArray) -> list[float]:
    """Return the calibration errors of all cells, and of those above 0.05."""
    likely = p > MIN_LIKELY
    return [calibration_error(p.ravel(), yes.ravel()), calibration_error(p[likely], yes[likely])]


def compute_least_error(p: NDArray) -> float:
    """Return the error of cells above 0.05 that perfect probabilities would have by chance, as mean of ten draws."""
    rng, likely = np.random.RandomState(0), p[p > MIN_LIKELY]
    return float(np.mean([calibration_error(likely, rng.rand(len(likely)) < likely) for _ in range(10)]))


def evaluate(out: Any, names: list[str], split: dict[str, list]) -> list[float]:
    """Return the figures of a ranking, decisions and probabilities: all but time and memory."""
    truth, thinned = (encode_tags(split[key], names).Y.toarray() > 0 for key in ("truth", "thinned"))
    hits = np.take_along_axis(truth, out["best"], 1)[truth.any(axis=1)]
    figures = [100 * float(hits[:, :k].mean()) for k in (1, 3, 5)]
    figures += [*compute_f1(out["yes"], truth), float(out["yes"].any(axis=1).mean())]
    if "written" not in out:
        return [*figures, *[np.nan] * 8]
    figures += [*compute_errors(out["written"], thinned), compute_least_error(out["written"])]
    if "true" not in out:
        return [*figures, *[np.nan] * 5]
    likely = out["true"] > MIN_LIKELY
    means = [float(part[likely].mean()) for part in (out["true"], out["low"], out["high"], truth)]
    return [*figures, compute_errors(out["true"], truth)[1], *means]


def write_split(folder: Path, split: dict[str, list]) -> None:
    """Write the tables train.csv and test.csv."""
    for part, lists in (("train", split["tags"]), ("test", split["truth"])):
        records = ([text, " ".join(tags)] for text, tags in zip(split[part], lists, strict=True))
        write_records(folder / f"{part}.csv", ["text", "tags"], records)


def fit_version(source: str, folder: Path) -> list[float]:
    """Run `labelgap fit` of a version on train.csv; return its seconds, CPU seconds and megabytes."""
    command = ["-m", "labelgap", "fit", folder / "train.csv", "--text", "text", "--tags", "tags"]
    fit = [sys.executable, "-c", FIT, *map(str, command), "--output", str(folder / "model"), "--quiet"]
    start = time.perf_counter()
    shown = subprocess.run(fit, env=os.environ | {"PYTHONPATH": source}, check=True, capture_output=True).stdout
    return [time.perf_counter() - start, *json.loads(shown)]


def measure_version(source: str, folder: Path, split: dict[str, list]) -> list[float]:
    """Fit and predict with a version of labelgap; return the figures."""
    write_split(folder, split)
    used = fit_version(source, folder)
    predict = [sys.executable, "-c", PREDICT, *(str(folder / name) for name in ("model", "test.csv", "out.npz"))]
    subprocess.run(predict, env=os.environ | {"PYTHONPATH": source}, check=True)
    with np.load(folder / "out.npz") as out:
        return [*evaluate(out, list(out["names"]), split), *used]


def time_versions(sources: dict[str, str], folder: Path, split: dict[str, list], repeats: int) -> list[float]:
    """Fit with this version and the older one in turn; return their least times and memory, and the ratios."""
    write_split(folder, split)
    runs = [[fit_version(sources[name], folder) for name in ("older", "labelgap")] for _ in range(repeats)]
    older, new = np.array(runs).min(axis=0)  # the first run may compile kernels
    return [*older, *new, *(new / older)]


def score_by_peer(python: str, name: str, folder: Path, X: Any, Y: Any, T: Any) -> dict[str, NDArray]:
    """Fit another package on X and Y in its own environment; return the scores of T, and time and memory."""
    arrays = {}
    for key, matrix in (("X", X), ("Y", Y), ("T", T)):
        csr = sp.csr_array(matrix)
        arrays |= {f"{key}_{part}": getattr(csr, part) for part in ("data", "indices", "indptr", "shape")}
    np.savez(folder / "data.npz", **arrays)
    script = str(Path(__file__).with_name("front_door_peers.py"))
    command = [python, script, name, str(folder / "data.npz"), str(folder / "out.npz")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=PEER_LIMIT)
    with np.load(folder / "out.npz") as out:
        return dict(out)


def find_threshold(scores: NDArray, truth: NDArray) -> float:
    """Return the score above which predictions have the largest micro-F1."""
    order = np.argsort(-scores, axis=None)
    hits = np.cumsum(truth.ravel()[order])
    best = int(np.argmax(2 * hits / (np.arange(1, len(hits) + 1) + truth.sum())))
    return float(scores.ravel()[order[best]])


def measure_peer(python: str, name: str, folder: Path, split: dict[str, list]) -> list[float]:
    """Fit another package and predict; return the figures, or NaNs if a fit takes too long."""
    try:
        return evaluate_peer(python, name, folder, split)
    except subprocess.TimeoutExpired:
        return [np.nan] * (len(FIGURES) - 3) + [float(PEER_LIMIT), np.nan, np.nan]


def evaluate_peer(python: str, name: str, folder: Path, split: dict[str, list]) -> list[float]:
    """Fit another package without a fifth of the rows and with it, and predict; return the figures."""
    words, encoded = learn_words(split["train"], min_count=2), encode_tags(split["tags"])
    X, T, Y = words(split["train"], "float32"), words(split["test"], "float32"), sp.csr_array(encoded.Y, dtype=float)
    order = np.random.RandomState(0).permutation(X.shape[0])
    held_out, rest = order[: len(order) // 5], order[len(order) // 5 :]
    validation = score_by_peer(python, name, folder, X[rest], Y[rest], X[held_out])["scores"]
    threshold = find_threshold(validation, Y[held_out].toarray() > 0)
    start = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    out = score_by_peer(python, name, folder, X, Y, T)
    used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - start
    scores = out["scores"]
    best = np.argsort(-scores, axis=1, kind="stable")[:, :5]
    values = {"best": best, "yes": scores >= threshold, "written": np.clip(scores.astype(float), 0, 1)}
    return [*evaluate(values, list(encoded.names), split), float(out["seconds"]), used, float(out["megabytes"])]


def show_times(options: argparse.Namespace, sources: dict[str, str]) -> None:
    """Print the times and memory of fits of the older version and of this one, in turn."""
    for name in options.names:
        for removed in options.removed:
            with TemporaryDirectory() as folder:
                row = time_versions(sources, Path(folder), make_split(name, removed, options.seed), options.times)
            columns = [f"{which} {unit}" for which in ("older", "new", "ratio") for unit in ("s", "CPU s", "MB")]
            show("labelgap fit, nothing set: times", ["table", "removed", *columns], [[name, f"{removed:.0%}", *row]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["robotics", "cooking"])
    parser.add_argument("--removed", type=float, nargs="*", default=[0.0, 0.3, 0.7])
    parser.add_argument("--methods", nargs="*", default=["labelgap"])
    parser.add_argument("--old", help="the src folder of an older version")
    parser.add_argument("--peers", default=sys.executable, help="a Python that has the other packages")
    parser.add_argument("--json", type=Path, default=Path("front_door.json"), help="results so far")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--times", type=int, metavar="N", help="only time N fits of the older version and of this one"
    )
    options = parser.parse_args()
    sources = {"labelgap": str(Path(load.__globals__["__file__"]).parents[2]), "older": options.old}
    if options.times:
        show_times(options, sources)
        return
    results = json.loads(options.json.read_text()) if options.json.exists() else {}
    for name in options.names:
        for removed in options.removed:
            for method in options.methods:
                key = f"{name} {removed:.0%} {method}"
                if key in results:
                    continue
                split = make_split(name, removed, options.seed)
                with TemporaryDirectory() as folder:
                    if method in PEERS:
                        results[key] = measure_peer(options.peers, method, Path(folder), split)
                    else:
                        results[key] = measure_version(sources[method], Path(folder), split)
                with write_atomically(options.json) as stream:
                    stream.write(json.dumps(results, indent=1).encode())
    rows = [[*key.split(" ", 2), *figures] for key, figures in sorted(results.items())]
    show("labelgap fit, nothing set, and others", ["table", "removed", "method", *FIGURES], rows)


if __name__ == "__main__":
    main()
