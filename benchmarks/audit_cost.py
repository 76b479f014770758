"""Time and memory of an audit beside cleanlab's ranking, given the same out-of-fold probabilities.

A generated table with frequencies that fall as 1 / rank, five labels a row; probabilities that separate its labels
well. cleanlab ranks each cell (``get_label_quality_scores_per_class``); the audit ranks the likely ones, calibrates
them and estimates how many are missing. Processor seconds, and the memory that each adds at most to that of the
probabilities, which are float32 (cleanlab gets float64, since it would convert them).

With ``--first`` instead: time and memory of an audit with models of labelgap on words, and the time after which the
first suggestions are there, those of the rows of the first fold.

    python -m benchmarks.audit_cost [--rows 15000] [--labels 736 4000]
    python -m benchmarks.audit_cost --first --rows 100000 --labels 4000
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.preprocessing import normalize

from benchmarks.common import Cost, show
from benchmarks.forgotten import by_cleanlab
from labelgap import BinaryRelevance, audit


def make(
    n: int, n_labels: int, seed: int = 0, with_probabilities: bool = True
) -> tuple[sp.csr_array, NDArray[np.float32]]:
    """Return written labels and probabilities, which may be left out."""
    rng = np.random.default_rng(seed)
    frequency = 1 / np.arange(1, n_labels + 1)
    chance = np.minimum(5 * frequency / frequency.sum(), 0.5)
    columns = [np.flatnonzero(rng.random(n) < p) for p in chance]
    rows = np.concatenate(columns)
    labels = np.repeat(np.arange(n_labels), [len(column) for column in columns])
    P = np.zeros((0, n_labels), np.float32)
    if with_probabilities:
        P = (chance * rng.random((n, n_labels), np.float32)).astype(np.float32)
        P[rows, labels] += 0.8 * rng.random(len(rows), np.float32)
    written = rng.random(len(rows)) < 0.7
    Y = sp.csr_array((np.ones(written.sum(), np.int8), (rows[written], labels[written])), shape=(n, n_labels))
    return Y, np.clip(P, 1e-4, 1 - 1e-4)


def make_words(Y: sp.csr_array, n_words: int = 20_000, length: int = 40, seed: int = 1) -> sp.csr_array:
    """Return counts of words, half of them from ten words of each of the row's labels, the others from all words."""
    rng = np.random.default_rng(seed)
    own = rng.integers(n_words, size=(Y.shape[1], 10))
    per_label = np.maximum(length // 2 // np.maximum(np.diff(Y.indptr), 1), 1)
    rows = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
    rows, labels = (np.repeat(part, per_label[rows]) for part in (rows, Y.indices))
    words = own[labels, rng.integers(10, size=len(labels))]
    rows = np.concatenate([rows, np.repeat(np.arange(Y.shape[0]), length // 2)])
    words = np.concatenate([words, (n_words * rng.random(Y.shape[0] * (length // 2)) ** 2).astype(np.int64)])
    X = sp.csr_array((np.ones(len(rows), np.float32), (rows, words)), shape=(Y.shape[0], n_words))
    return sp.csr_array(normalize(X))


def find_first(n_rows: int, n_labels: int) -> list[object]:
    """Return a row of the table about an audit with models of labelgap."""
    Y, _ = make(n_rows, n_labels, with_probabilities=False)
    X, first = make_words(Y), []
    start = time.perf_counter()
    with Cost() as cost:
        found = audit(
            X,
            Y,
            BinaryRelevance(1.0, loss="squared"),
            random_state=0,
            callback=lambda part: first.append((time.perf_counter() - start, len(part.missing))),
        )
    inputs = sum(part.nbytes for matrix in (X, Y) for part in (matrix.data, matrix.indices, matrix.indptr))
    listed = sum(part.nbytes for kind in (found.missing, found.doubtful) for part in kind)
    seconds = time.perf_counter() - start
    return [n_labels, *first[0], seconds, len(found.missing), cost.megabytes, inputs / 1e6, listed / 1e6]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=15_000)
    parser.add_argument("--labels", type=int, nargs="*", default=[736, 4000])
    parser.add_argument("--first", action="store_true", help="audit with models; time of the first suggestions")
    options = parser.parse_args()
    if options.first:
        header = [
            "labels",
            "first after s",
            "cells then",
            "all after s",
            "cells",
            "MB added",
            "MB of inputs",
            "MB of lists",
        ]
        find_first(500, 20)  # compilation is not counted
        show(f"{options.rows:,} rows", header, [find_first(options.rows, number) for number in options.labels])
        return
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
