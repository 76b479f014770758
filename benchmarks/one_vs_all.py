"""One-vs-all on Eurlex: accuracy, training time and size of labelgap and of other packages, with the same threads.

Run as ``python -m benchmarks.one_vs_all [--dataset NAME] [--losses LOSS …] [--peers NAME …]`` in an environment with
omikuji and napkinXC; a package that is not installed is left out. The last column is the training time divided by
that of the first peer. labelgap and napkinXC stop at napkinXC's default tolerance, 0.1. With ``--choose`` labelgap
stops at the largest of 1, 0.3 and 0.1 that loses at most 0.1 points of P@1 on a held-out tenth of the training rows.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.common import normalised, show
from benchmarks.field import PEERS as FIELD
from benchmarks.field_methods import Task, timed
from labelgap import BinaryRelevance
from labelgap.losses import LOSSES
from labelgap.metrics import evaluate, standard_metrics
from labelgap.observations import as_labels

PEERS = ("omikuji Parabel", "napkinXC OVR")
CUT = 0.01  # DiSMEC's
TOLS = (1.0, 0.3, 0.1)  # the last one is the peer's liblinear_eps
LOSS_OF_PRECISION = 0.1  # in points of P@1, on held-out training rows
HEADER = ("method", "P@1", "P@3", "P@5", "training, s", "ms per row", "weights", "training / the first peer's")


def choose_tol(X: Any, Y: Any, loss: str) -> float:
    """Return the tolerance that costs little precision on held-out training rows."""
    order = np.random.default_rng(0).permutation(X.shape[0])
    held_out, rows = np.sort(order[: len(order) // 10]), np.sort(order[len(order) // 10 :])
    precision = {}
    for tol in TOLS:
        model = BinaryRelevance(loss=loss, tol=tol)
        _, seconds = timed(lambda: model.fit(X[rows], Y[rows]))  # noqa: B023, called at once
        precision[tol] = _precision(as_labels(Y[held_out]), model.predict_topk(X[held_out], 5))[0]
        print(f"{loss}, tol={tol:g}: P@1 {precision[tol]:.2f} on held-out training rows, {seconds:.1f} s", flush=True)
    return next(tol for tol in TOLS if precision[tol] >= max(precision.values()) - LOSS_OF_PRECISION)


def ours(losses: Sequence[str], data: tuple[Any, Any, Any], test: Any, choose: bool) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each loss with the default α, and a row with small weights removed."""
    tols = {loss: choose_tol(*data[:2], loss) if choose else TOLS[-1] for loss in losses}
    for loss, threshold in [*((loss, 0.0) for loss in losses), (losses[0], CUT)]:
        X, Y, X_new = data
        model = BinaryRelevance(loss=loss, threshold=threshold, tol=tols[loss])
        _, seconds = timed(lambda: model.fit(X, Y))  # noqa: B023, called at once
        ranking, ranking_seconds = timed(lambda: model.predict_topk(X_new, 5))  # noqa: B023, called at once
        weights = model.coef_.nnz if sp.issparse(model.coef_) else model.coef_.size
        name = f"BinaryRelevance, {loss}, tol={tols[loss]:g}" + (
            f", weights below {threshold} removed" if threshold else ""
        )
        yield name, *_precision(test, ranking), seconds, 1e3 * ranking_seconds / X_new.shape[0], weights


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
        yield f"{candidate.name} ({candidate.version()})", *_precision(test, ranked.scores()), ranked.seconds, "", ""


def _precision(test: Any, ranking: Any) -> list[float]:
    values = evaluate(standard_metrics((1, 3, 5)), [(test, ranking)])
    return [100 * values[f"P@{k}"] for k in (1, 3, 5)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="eurlex")
    parser.add_argument("--losses", nargs="+", default=["squared_hinge", "squared"], choices=sorted(LOSSES))
    parser.add_argument("--peers", nargs="*", default=PEERS, choices=[peer.name for peer in FIELD])
    parser.add_argument("--choose", action="store_true", help="choose the tolerance on held-out training rows")
    args = parser.parse_args()
    dataset, X, X_new = normalised(args.dataset)
    data, test = (X, dataset.Y_train, X_new), as_labels(dataset.Y_test)
    BinaryRelevance().fit(X[:50], dataset.Y_train[:50])  # compiles the kernels before anything is timed
    theirs, rows = list(peers(args.peers, data, test)), list(ours(args.losses, data, test, args.choose))
    table = [(*row, row[4] / theirs[0][4] if theirs else "") for row in [*theirs, *rows]]
    show(f"{args.dataset}, every label known", HEADER, table)


if __name__ == "__main__":
    main()
