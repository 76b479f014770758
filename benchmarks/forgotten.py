"""Detection of missing tags: 30 % of the tags of the Stack Exchange cooking set are removed, then searched for.

``labelgap.audit`` with linear models and cleanlab's multi-label ranking both rank the cells without a tag; cleanlab
gets out-of-fold probabilities of a logistic regression for each tag on the same features. The table shows the
precision of the first 500 suggestions, the area under the precision–recall curve over the cells without a tag, the
expected precision, and the estimated share of missing tags.

Only removed tags count as hits. Tags that were already missing in the data count as errors of both methods, and as
missing in the estimate; an audit of the original tags estimates how many these are.

    python -m benchmarks.forgotten [--set cooking] [--keep 0.7] [--least 5] [--seed 0] [--C 10] [--losses squared]
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score

from labelgap import BinaryRelevance, audit, hide_positives
from labelgap.datasets import read_documents
from labelgap.estimators.tagger import learn_words
from labelgap.runtime import run_parallel

FIRST = 500
LOSSES = {"squared_hinge": 1.0, "squared": 1.0, "logistic": 0.1}  # with the penalties of the audit's models


def documents(name: str, min_count: int) -> tuple[sp.csr_array, sp.csr_array]:
    """Return features and tags of a Stack Exchange set."""
    path = Path(os.environ["LABELGAP_DATA"]) / "stackexchange-text" / f"{name}.csv.zip"
    result = read_documents(path, ["title", "content"], tags="tags", least=min_count)
    return learn_words(result.texts, min_count=2)(result.texts, "float32"), sp.csr_array(result.Y)


def out_of_fold(X: sp.csr_array, Y: sp.csr_array, n_folds: int, seed: int, C: float) -> NDArray:
    """Return out-of-fold probabilities of a logistic regression for each tag."""
    fold = np.random.RandomState(seed).permutation(np.arange(X.shape[0]) % n_folds)
    result = np.zeros(Y.shape, np.float32)
    columns = sp.csc_array(Y)
    X = X.astype(np.float64)

    def work(number: int, label: int) -> None:
        train, held_out = fold != number, fold == number
        y = np.zeros(X.shape[0], bool)
        y[columns.indices[columns.indptr[label] : columns.indptr[label + 1]]] = True
        if not y[train].any():
            return
        model = LogisticRegression(C=C, solver="liblinear", random_state=0).fit(X[train], y[train])
        result[held_out, label] = model.predict_proba(X[held_out])[:, 1]

    tasks: list[Callable[[], None]] = [
        lambda number=number, label=label: work(number, label)  # type: ignore[misc]
        for number in range(n_folds)
        for label in range(Y.shape[1])
    ]
    for _ in run_parallel(tasks):
        pass
    return result


def by_cleanlab(Y: sp.csr_array, probabilities: NDArray) -> NDArray | None:
    """Return cleanlab's score of each cell, higher for likelier errors, or None if cleanlab is not installed."""
    try:
        from cleanlab.multilabel_classification.rank import get_label_quality_scores_per_class
    except ImportError:
        return None
    lists = [row.tolist() for row in np.split(Y.indices, Y.indptr[1:-1])]
    return 1 - get_label_quality_scores_per_class(lists, probabilities.astype(float))


def report(name: str, scores: NDArray, absent: NDArray, truth: NDArray, seconds: float, note: str = "") -> None:
    """Print the precision of the first suggestions and the area under the curve."""
    suspicion, hits = scores[absent], truth[absent]
    first = np.argsort(-suspicion, kind="stable")[:FIRST]
    area = average_precision_score(hits, suspicion)
    print(f"{name:44s} P@{FIRST} {hits[first].mean():.4f}   area {area:.4f}   {seconds:6.1f} s   {note}", flush=True)


def suggested(X: Any, Y: Any, estimator: Any, shape: tuple[int, int], seed: int) -> tuple[NDArray, str]:
    """Return the ranks of an audit as a matrix of scores, and a note with its expectations."""
    result = audit(X, Y, estimator, random_state=seed)
    scores = np.zeros(shape)
    # By rank, since many of the first suggestions have the probability 1.
    scores[result.missing.rows, result.missing.labels] = np.arange(len(result.missing), 0, -1)
    expected = result.missing.expected_precision(FIRST)
    low, high = result.share_missing_interval
    share = f"{result.share_missing:.3f} ({low:.3f} to {high:.3f})"
    return scores, f"expected precision {expected:.3f}, estimated share missing {share}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", default="cooking", dest="name")
    parser.add_argument("--keep", type=float, default=0.7)
    parser.add_argument("--least", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--C", type=float, nargs="*", default=[1.0, 10.0])
    parser.add_argument("--losses", nargs="*", choices=LOSSES, default=list(LOSSES))
    options = parser.parse_args()
    X, Y = documents(options.name, options.least)
    written = sp.csr_array(hide_positives(Y, options.keep, random_state=options.seed))
    absent, truth = written.toarray() == 0, Y.toarray() == 1
    removed = int(Y.nnz - written.nnz)
    print(f"{options.name}: {X.shape[0]} rows, {X.shape[1]} words, {Y.shape[1]} tags; {removed} of {Y.nnz} removed")
    for C in options.C:
        start = time.perf_counter()
        probabilities = out_of_fold(X, written, 5, options.seed, C)
        seconds = time.perf_counter() - start
        scores = by_cleanlab(written, probabilities)
        if scores is None:
            print("cleanlab is not installed; its rows are left out")
            break
        report(f"cleanlab, logistic regressions with C = {C:g}", scores, absent, truth, seconds)
    for loss in options.losses:
        estimator = BinaryRelevance(LOSSES[loss], loss=loss)
        start = time.perf_counter()
        scores, note = suggested(X, written, estimator, Y.shape, options.seed)
        report(f"labelgap audit, {loss}", scores, absent, truth, time.perf_counter() - start, note)
    before = audit(X, Y, BinaryRelevance(loss="squared"), random_state=options.seed).share_missing
    after = audit(X, written, BinaryRelevance(loss="squared"), random_state=options.seed).share_missing
    print(
        f"estimated share missing, squared: {before:.3f} before tags were removed, {after:.3f} after; "
        f"estimated share removed {1 - (1 - after) / (1 - before):.3f}, true share {removed / Y.nnz:.3f}"
    )


if __name__ == "__main__":
    main()
