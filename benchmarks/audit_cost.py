"""Time and memory of an audit beside cleanlab's ranking, given the same out-of-fold probabilities.

A generated table with frequencies that fall as 1 / rank, five labels a row; probabilities that separate its labels
well. cleanlab ranks each cell (``get_label_quality_scores_per_class``); the audit ranks the likely ones, calibrates
them and estimates how many are missing. Processor seconds, and the memory that each adds at most to that of the
probabilities, which are float32 (cleanlab gets float64, since it would convert them).

    python -m benchmarks.audit_cost [--rows 15000] [--labels 736 4000]
"""

from __future__ import annotations

import argparse

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from benchmarks.common import Cost, show
from benchmarks.forgotten import by_cleanlab
from labelgap import audit


def make(n: int, n_labels: int, seed: int = 0) -> tuple[sp.csr_array, NDArray[np.float32]]:
    """Return written labels and probabilities."""
    rng = np.random.default_rng(seed)
    frequency = 1 / np.arange(1, n_labels + 1)
    chance = np.minimum(5 * frequency / frequency.sum(), 0.5)
    columns = [np.flatnonzero(rng.random(n) < p) for p in chance]
    rows = np.concatenate(columns)
    labels = np.repeat(np.arange(n_labels), [len(column) for column in columns])
    P = (chance * rng.random((n, n_labels), np.float32)).astype(np.float32)
    P[rows, labels] += 0.8 * rng.random(len(rows), np.float32)
    written = rng.random(len(rows)) < 0.7
    Y = sp.csr_array((np.ones(written.sum(), np.int8), (rows[written], labels[written])), shape=P.shape)
    return Y, np.clip(P, 1e-4, 1 - 1e-4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=15_000)
    parser.add_argument("--labels", type=int, nargs="*", default=[736, 4000])
    options = parser.parse_args()
    audit(make(50, 10)[0], probabilities=make(50, 10)[1])  # imports and compilation are not counted
    rows: list[list[object]] = []
    for n_labels in options.labels:
        Y, P = make(options.rows, n_labels)
        with Cost() as ours:
            found = audit(Y, probabilities=P, random_state=0)
        rows.append([n_labels, "audit", ours.seconds, ours.megabytes, P.nbytes / 1e6])
        del found
        with Cost() as theirs:
            scores = by_cleanlab(Y, P)
        if scores is None:
            raise SystemExit("cleanlab is not installed.")
        rows.append([n_labels, "cleanlab", theirs.seconds, theirs.megabytes, P.nbytes / 1e6])
        rows.append([n_labels, "ratio", ours.seconds / theirs.seconds, ours.megabytes / theirs.megabytes, 1.0])
    header = ["labels", "", "processor s", "MB added", "MB of probabilities"]
    show(f"{options.rows:,} rows", header, rows)


if __name__ == "__main__":
    main()
