"""One-vs-all on Eurlex: accuracy, training time and size of labelgap and of other packages, with the same threads.

Run as ``python -m benchmarks.one_vs_all [--dataset NAME] [--losses LOSS …] [--peers NAME …]`` in an environment with
omikuji and napkinXC; a package that is not installed is left out. The last columns are the training time and the CPU
time of training, of all threads, divided by those of the first peer. labelgap and napkinXC stop at napkinXC's default
tolerance.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

import scipy.sparse as sp

from benchmarks.common import normalised, show
from benchmarks.field import PEERS as FIELD
from benchmarks.field_methods import Task, timed, train
from labelgap import BinaryRelevance
from labelgap.losses import LOSSES
from labelgap.metrics import evaluate, standard_metrics
from labelgap.observations import as_labels

PEERS = ("omikuji Parabel", "napkinXC OVR")
CUT = 0.01  # DiSMEC's
TOL = 0.1  # the peer's liblinear_eps
HEADER = (
    "method",
    "P@1",
    "P@3",
    "P@5",
    "training, s",
    "CPU s",
    "ms per row",
    "weights",
    "time, relative",
    "CPU, relative",
)


def ours(losses: Sequence[str], data: tuple[Any, Any, Any], test: Any) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each loss with the default α, and a row with small weights removed."""
    for loss, threshold in [*((loss, 0.0) for loss in losses), (losses[0], CUT)]:
        X, Y, X_new = data
        model = BinaryRelevance(loss=loss, threshold=threshold, tol=TOL)
        costs = train(lambda: model.fit(X, Y))[1]  # noqa: B023, called at once
        ranking, ranking_seconds = timed(lambda: model.predict_topk(X_new, 5))  # noqa: B023, called at once
        weights = model.coef_.nnz if sp.issparse(model.coef_) else model.coef_.size
        name = f"BinaryRelevance, {loss}" + (f", weights below {threshold} removed" if threshold else "")
        yield name, *_precision(test, ranking), *costs[:2], 1e3 * ranking_seconds / X_new.shape[0], weights


def peers(names: Sequence[str], data: tuple[Any, Any, Any], test: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the row of each peer that is installed, and print why the others are left out."""
    for candidate in FIELD:
        if candidate.name not in names:
            continue
        reason = candidate.unavailable()
        if reason is not None:
            print(f"{candidate.name}: {reason}")
            continue
        ranked = candidate.rank(Task(*data, 5))[0]
        costs = ranked.seconds, ranked.cpu_seconds
        yield f"{candidate.name} ({candidate.version()})", *_precision(test, ranked.scores()), *costs, "", ""


def _precision(test: Any, ranking: Any) -> list[float]:
    values = evaluate(standard_metrics((1, 3, 5)), [(test, ranking)])
    return [100 * values[f"P@{k}"] for k in (1, 3, 5)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="eurlex")
    parser.add_argument("--losses", nargs="+", default=["squared_hinge", "squared"], choices=sorted(LOSSES))
    parser.add_argument("--peers", nargs="*", default=PEERS, choices=[peer.name for peer in FIELD])
    args = parser.parse_args()
    dataset, X, X_new = normalised(args.dataset)
    data, test = (X, dataset.Y_train, X_new), as_labels(dataset.Y_test)
    BinaryRelevance().fit(X[:50], dataset.Y_train[:50])  # compiles the kernels before anything is timed
    theirs, rows = list(peers(args.peers, data, test)), list(ours(args.losses, data, test))
    table = [(*row, *(row[i] / theirs[0][i] if theirs else "" for i in (4, 5))) for row in [*theirs, *rows]]
    show(f"{args.dataset}, every label known", HEADER, table)


if __name__ == "__main__":
    main()
