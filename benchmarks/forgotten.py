"""Detection of missing tags: 30 % of the tags of a table are removed, then searched for.

``labelgap.audit`` with linear models and cleanlab's multi-label ranking both rank the cells without a tag; cleanlab
gets out-of-fold probabilities of a logistic regression for each tag on the same features. The table shows the
precision of the first 500 suggestions, the area under the precision–recall curve over the cells without a tag, the
area for tags that are left in 1–3, 4–10, 11–100 and more rows, processor seconds, the memory added at most, the
expected precision, and the estimated share of missing tags. Time and memory are those of models and ranking.

Only removed tags count as hits. Tags that were already missing in the data count as errors of both methods, and as
missing in the estimate; an audit of the original tags estimates how many these are (``--before``). Nothing is
developed on biology and Reuters.

    python -m benchmarks.forgotten [--set cooking] [--keep 0.7] [--least 5] [--seed 0] [--draws 5] [--C 10]
        [--losses squared] [--before] [--rows N]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score

from benchmarks.common import Cost
from benchmarks.front_door import read_table
from labelgap import BinaryRelevance, audit, hide_positives
from labelgap.estimators.tagger import learn_words
from labelgap.gaps import Audit
from labelgap.observations import encode_tags
from labelgap.runtime import run_parallel

FIRST = 500
FREQUENCIES = (1, 4, 11, 101)  # written cells of a tag: lower ends of the bands
LOSSES = {"squared_hinge": 1.0, "squared": 1.0, "logistic": 0.1}  # with the penalties of the audit's models


def documents(name: str, min_count: int, n_rows: int | None = None) -> tuple[sp.csr_array, sp.csr_array]:
    """Return features of the rows of a table, and their tags, those of at least ``min_count`` rows."""
    texts, tags = (values[:n_rows] for values in read_table(name))
    Y = sp.csr_array(encode_tags(tags, min_count=min_count).Y)
    return learn_words(texts, min_count=2)(texts, "float32"), Y


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


class Figures(NamedTuple):
    """What one ranking of a draw reached: the precision of the first cells, areas of all tags and of bands, cost."""

    first: float
    areas: list[float]
    seconds: float
    megabytes: float
    expected: list[float]


def measure(
    scores: NDArray, written: sp.csr_array, truth: NDArray, cost: Cost, found: Audit | None = None
) -> Figures:
    """Return the figures of a matrix of scores."""
    absent, band = written.toarray() == 0, np.digitize(written.sum(axis=0), FREQUENCIES)
    suspicion, hits = scores[absent], truth[absent]
    first = np.argsort(-suspicion, kind="stable")[:FIRST]
    areas = [average_precision_score(hits, suspicion)]
    for number in range(1, len(FREQUENCIES) + 1):
        cells = absent & (band == number)
        areas.append(average_precision_score(truth[cells], scores[cells]) if truth[cells].any() else np.nan)
    expected = []
    if found is not None:
        expected = [found.missing.expected_precision(FIRST), found.share_missing, *found.share_missing_interval]
    return Figures(float(hits[first].mean()), areas, cost.seconds, cost.megabytes, expected)


def report(name: str, draws: list[Figures]) -> None:
    """Print the means of all draws, and the standard deviation of the first two figures."""
    first, area = np.array([draw.first for draw in draws]), np.array([draw.areas[0] for draw in draws])
    of_bands = " ".join(f"{area:.3f}" for area in np.nanmean([draw.areas[1:] for draw in draws], axis=0))
    figures = (
        f"P@{FIRST} {first.mean():.4f} ± {first.std():.3f}  area {area.mean():.4f} ± {area.std():.3f} ({of_bands})"
    )
    cost = f"{np.mean([d.seconds for d in draws]):6.1f} s  {np.mean([d.megabytes for d in draws]):5.0f} MB"
    note = ""
    if draws[0].expected:
        expected, share, low, high = np.mean([draw.expected for draw in draws], axis=0)
        note = f"  expects {expected:.3f}, share missing {share:.3f} ({low:.3f} to {high:.3f})"
    print(f"{name:28s} {len(draws)} draws: {figures}  {cost}{note}", flush=True)


def rank_suggestions(found: Audit, shape: tuple[int, int]) -> NDArray:
    """Return the ranks of the missing labels of an audit as a matrix of scores."""
    scores = np.zeros(shape)
    # By rank, since many of the first suggestions have the same probability.
    scores[found.missing.rows, found.missing.labels] = np.arange(len(found.missing), 0, -1)
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", default="cooking", dest="name")
    parser.add_argument("--keep", type=float, default=0.7)
    parser.add_argument("--least", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0, help="of the first draw")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--C", type=float, nargs="*", default=[1.0, 10.0])
    parser.add_argument("--losses", nargs="*", choices=LOSSES, default=list(LOSSES))
    parser.add_argument("--before", action="store_true", help="also audit the original tags")
    options = parser.parse_args()
    X, Y = documents(options.name, options.least, options.rows)
    truth = Y.toarray() == 1
    print(f"{options.name}: {X.shape[0]} rows, {X.shape[1]} words, {Y.shape[1]} tags, {Y.nnz} in all")
    figures: dict[str, list[Figures]] = {}
    for seed in range(options.seed, options.seed + options.draws):
        written = sp.csr_array(hide_positives(Y, options.keep, random_state=seed))
        for C in options.C:
            with Cost() as cost:
                scores = by_cleanlab(written, out_of_fold(X, written, 5, seed, C))
            if scores is None:
                raise SystemExit("cleanlab is not installed; pass --C without values to leave it out.")
            figures.setdefault(f"cleanlab, logistic, C = {C:g}", []).append(measure(scores, written, truth, cost))
        for loss in options.losses:
            with Cost() as cost:
                found = audit(X, written, BinaryRelevance(LOSSES[loss], loss=loss), random_state=seed)
            scores = rank_suggestions(found, Y.shape)
            figures.setdefault(f"labelgap audit, {loss}", []).append(measure(scores, written, truth, cost, found))
        for name, draws in figures.items():
            report(name, draws)
    if options.before:
        before, after = (
            audit(X, labels, BinaryRelevance(loss="squared"), random_state=options.seed).share_missing
            for labels in (Y, written)
        )
        print(
            f"estimated share missing, squared: {before:.3f} before tags were removed, {after:.3f} after; "
            f"estimated share removed {1 - (1 - after) / (1 - before):.3f}, true share {1 - written.nnz / Y.nnz:.3f}"
        )


if __name__ == "__main__":
    main()
