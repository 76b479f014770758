"""How far the probabilities of ``labelgap.complete`` can be trusted.

Of a whole label matrix 60 % of the cells stay known; ``complete`` fills the rest. Its expected calibration error is
printed as ``complete`` reports it (known cells held out in folds) and as it is on the cells that it filled, whose
truth it never saw; also for the cells with a probability above 0.05 alone, since nearly all others are surely a no.

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

LIKELY = 0.05
MODELS = {"LEML": LEML(100, random_state=0), "one-vs-all": BinaryRelevance(loss="squared")}


def load(name: str) -> tuple[Any, Any]:
    """Return features and whole labels."""
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
            found = complete(X, gapped, estimator, random_state=options.seed)
            seconds = time.perf_counter() - start
            p, yes = found.probabilities[hidden], truth[hidden]
            likely = p > LIKELY
            errors = [calibration_error(p, yes), calibration_error(p[likely], yes[likely])]
            rows.append([name, title, found.calibration_error, *errors, seconds])
            curves.append((name, title, reliability(p, yes)))
    header = ["data", "by", "error, folds", "error, filled cells", f"those above {LIKELY}", "seconds"]
    show(f"Expected calibration error, {options.known:.0%} of the cells known", header, rows)
    for name, title, curve in curves:
        points = "  ".join(f"{mean:.2f}→{share:.2f}" for mean, share, _ in curve)
        print(f"{name}, {title}: probability → share of yeses: {points}")


if __name__ == "__main__":
    main()
