"""Calibration of the probabilities of ``labelgap.complete``.

In a complete label matrix 60 % of the cells stay known; ``complete`` fills the others. The expected calibration error
is printed as ``complete`` reports it (from known cells held out in folds), as it is on the filled cells, and as it is
on the filled cells with a probability above 0.05, since nearly all others are clearly negative.

    python -m benchmarks.calibrated [bibtex robotics cooking] [--known 0.6] [--seed 0] [--by LEML one-vs-all]
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from benchmarks.common import normalised, show
from benchmarks.forgotten import documents
from labelgap import LEML, BinaryRelevance, complete, hide_cells
from labelgap.gaps import calibration_error, reliability
from labelgap.observations import as_labels

MIN_LIKELY = 0.05
MODELS = {"LEML": LEML(100, random_state=0), "one-vs-all": BinaryRelevance(loss="squared")}


def load(name: str) -> tuple[Any, Any]:
    """Return features and complete labels."""
    if name in ("robotics", "cooking"):
        return documents(name, 5)
    dataset, X, _ = normalised(name)
    return X, dataset.Y_train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["bibtex", "robotics", "cooking"])
    parser.add_argument("--known", type=float, default=0.6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--by", nargs="*", choices=MODELS, default=list(MODELS))
    options = parser.parse_args()
    rows, curves = [], []
    for name in options.names:
        X, Y = load(name)
        gapped, truth = hide_cells(Y, options.known, random_state=options.seed), as_labels(Y).positives.toarray()
        hidden = ~as_labels(gapped).known.toarray()
        for title in options.by:
            estimator = MODELS[title]
            start = time.perf_counter()
            completed = complete(X, gapped, estimator, random_state=options.seed)
            seconds = time.perf_counter() - start
            p, truth_hidden = completed.probabilities[hidden], truth[hidden]
            likely = p > MIN_LIKELY
            errors = [calibration_error(p, truth_hidden), calibration_error(p[likely], truth_hidden[likely])]
            rows.append([name, title, completed.calibration_error, *errors, seconds])
            curves.append((name, title, reliability(p, truth_hidden)))
    header = ["data", "by", "error, folds", "error, filled cells", f"filled cells above {MIN_LIKELY}", "seconds"]
    show(f"Expected calibration error, {options.known:.0%} of the cells known", header, rows)
    for name, title, curve in curves:
        points = "  ".join(f"{mean:.2f}→{share:.2f}" for mean, share, _ in curve)
        print(f"{name}, {title}: probability → share of positives: {points}")


if __name__ == "__main__":
    main()
