"""``labelgap fit`` with nothing set, beside an older version of labelgap, on texts whose training tags are thinned.

Each table is split into four fifths for training and one fifth for tests; a share of the training tags is removed at
random. The command line of each version fits in a process of its own. Tests compare with the untouched tags;
P(written) is compared with test tags that are thinned like those of the training. ``--old`` names the ``src`` folder
of the older version, whose threshold is a score of 0. biology and Reuters are for one final measurement.

    python -m benchmarks.front_door [robotics cooking] [--removed 0 0.3 0.7] [--old FOLDER]
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.common import show
from labelgap import load
from labelgap.calibration import calibration_error
from labelgap.datasets import read_documents, write_records
from labelgap.datasets.tag_columns import split_tags
from labelgap.observations import encode_tags

MIN_LIKELY = 0.05
PREDICT = """
import sys, numpy as np, labelgap
from labelgap.datasets import read_records
model = labelgap.load(sys.argv[1])
texts = [row["text"] for row in read_records(sys.argv[2])]
indices, _ = model.predict_topk(texts, 5)
np.savez(sys.argv[3], best=indices, yes=model.decision_function(texts) > 0, names=model.label_names_in_.astype(str))
"""


def run(source: str, *arguments: str) -> tuple[float, float]:
    """Run Python on a version of labelgap; return the seconds and the peak memory in MB of this or a larger child."""
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": source},
        check=True,
        stdout=subprocess.DEVNULL,
    )
    seconds = time.perf_counter() - start
    return seconds, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def compute_f1(predicted: Any, truth: Any) -> tuple[float, float]:
    """Return micro-F1, and macro-F1 over labels with a positive in the test set."""
    hits, total = (predicted & truth).sum(axis=0), predicted.sum(axis=0) + truth.sum(axis=0)
    own = truth.any(axis=0)
    return 2 * hits.sum() / max(total.sum(), 1), float((2 * hits[own] / total[own]).mean())


def measure(source: str, folder: Path, lists: list[list[str]]) -> tuple[list[float], Any]:
    """Fit and predict with a version of labelgap; return the figures and the label names."""
    model, table = str(folder / "model"), str(folder / "train.csv")
    command = ["-m", "labelgap", "fit", table, "--text", "text", "--tags", "tags", "--output", model, "--quiet"]
    seconds, megabytes = run(source, *command)
    run(source, "-c", PREDICT, model, str(folder / "test.csv"), str(folder / "out.npz"))
    with np.load(folder / "out.npz") as out:
        best, yes, names = out["best"], out["yes"], out["names"]
    truth = encode_tags(lists, list(names)).Y.toarray() > 0
    rows = truth.any(axis=1)
    hits = np.take_along_axis(truth, best, 1)[rows]
    at_k = [100 * float(hits[:, :k].mean()) for k in (1, 3, 5)]
    return [*at_k, *compute_f1(yes, truth), float(yes.any(axis=1).mean()), seconds, megabytes], names


def check_probabilities(folder: Path, thinned: list[list[str]], truth: list[list[str]]) -> list[float]:
    """Return the errors of P(written) against thinned tags, overall and above 0.05, and of P(true), above 0.05."""
    model, texts = load(folder / "model"), read_documents(folder / "test.csv", ["text"]).texts
    errors = []
    for meaning, lists in (("written", thinned), ("true", truth)):
        p, yes = model.predict_proba(texts, meaning=meaning), encode_tags(lists, list(model.label_names_in_)).Y
        dense, likely = yes.toarray() > 0, p > MIN_LIKELY
        errors += [calibration_error(p.ravel(), dense.ravel()), calibration_error(p[likely], dense[likely])]
    return [*errors[:2], errors[3]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["robotics", "cooking"])
    parser.add_argument("--removed", type=float, nargs="*", default=[0.0, 0.3, 0.7])
    parser.add_argument("--old", help="the src folder of an older version")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rows, errors = [], []
    present = str(Path(load.__globals__["__file__"]).parents[2])
    for name in options.names:
        path = Path(os.environ["LABELGAP_DATA"]) / "stackexchange-text" / f"{name}.csv.zip"
        documents = read_documents(path, ["title", "content"], tags="tags")
        tags = split_tags([record["tags"] for record in documents.rows], " ")
        for removed in options.removed:
            rng = np.random.RandomState(options.seed)
            order = rng.permutation(len(tags))
            test, train = np.sort(order[: len(tags) // 5]), np.sort(order[len(tags) // 5 :])
            thinned = [[tag for tag in row if rng.rand() >= removed] for row in tags]
            with TemporaryDirectory() as place:
                folder = Path(place)
                for part, index, lists in (("train", train, thinned), ("test", test, tags)):
                    records = ([documents.texts[i], " ".join(lists[i])] for i in index)
                    write_records(folder / f"{part}.csv", ["text", "tags"], records)
                truth = [tags[i] for i in test]
                if options.old:
                    rows.append([name, f"{removed:.0%}", "older", *measure(options.old, folder, truth)[0]])
                rows.append([name, f"{removed:.0%}", "present", *measure(present, folder, truth)[0]])
                errors.append(
                    [name, f"{removed:.0%}", *check_probabilities(folder, [thinned[i] for i in test], truth)]
                )
    header = ["table", "removed", "version", "P@1", "P@3", "P@5", "micro F1", "macro F1", "tagged", "s", "MB"]
    show("labelgap fit, nothing set", header, rows)
    columns = ["table", "removed", "P(written)", f"P(written) > {MIN_LIKELY}", f"P(true) > {MIN_LIKELY}"]
    show("Expected calibration errors", columns, errors)


if __name__ == "__main__":
    main()
