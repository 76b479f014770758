"""One-vs-all on Eurlex: accuracy, training time and size beside napkinXC's, in one run on the same threads.

Run as ``python -m benchmarks.one_vs_all [--dataset NAME] [--losses LOSS …]`` by an interpreter that has napkinXC;
where it is not installed, that is said and it is left out. Its seconds over ours are the last column. Both stop at
the tolerance that is napkinXC's default.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

import scipy.sparse as sp

from benchmarks.common import normalised, show
from benchmarks.peers import CLASSIFIERS, timed
from labelgap import BinaryRelevance
from labelgap.losses import LOSSES
from labelgap.metrics import evaluate, standard_metrics
from labelgap.observations import as_labels

PEER = "napkinXC OVR"
CUT = 0.01  # DiSMEC's
TOL = 0.1  # the peer's liblinear_eps
HEADER = ("method", "P@1", "P@3", "P@5", "training, s", "ms a row", "weights", "peer's training / ours")


def ours(losses: Sequence[str], data: tuple[Any, Any, Any], test: Any) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each loss with the default α, and one with small weights cut."""
    for loss, threshold in [*((loss, 0.0) for loss in losses), (losses[0], CUT)]:
        X, Y, X_new = data
        model = BinaryRelevance(loss=loss, threshold=threshold, tol=TOL)
        _, seconds = timed(lambda: model.fit(X, Y))  # noqa: B023, called at once
        found, asked = timed(lambda: model.predict_topk(X_new, 5))  # noqa: B023, called at once
        weights = model.coef_.nnz if sp.issparse(model.coef_) else model.coef_.size
        name = f"BinaryRelevance, {loss}" + (f", weights below {threshold} cut" if threshold else "")
        yield name, *_precision(test, found), seconds, 1e3 * asked / X_new.shape[0], weights


def peer(data: tuple[Any, Any, Any], test: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the row of the peer, or nothing and say why."""
    (one,) = (candidate for candidate in CLASSIFIERS if candidate.name == PEER)
    reason = one.unavailable()
    if reason is not None:
        print(f"{PEER}: {reason}")
        return
    found = one.rank(*data, 5)
    yield f"{PEER} ({one.version()})", *_precision(test, found.scores()), found.seconds, "", ""


def _precision(test: Any, found: Any) -> list[float]:
    values = evaluate(standard_metrics((1, 3, 5)), [(test, found)])
    return [100 * values[f"P@{k}"] for k in (1, 3, 5)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="eurlex")
    parser.add_argument("--losses", nargs="+", default=["squared_hinge", "squared"], choices=sorted(LOSSES))
    given = parser.parse_args()
    dataset, X, X_new = normalised(given.dataset)
    data, test = (X, dataset.Y_train, X_new), as_labels(dataset.Y_test)
    BinaryRelevance().fit(X[:50], dataset.Y_train[:50])  # loops are compiled before anything is timed
    rows, theirs = list(ours(given.losses, data, test)), list(peer(data, test))
    ratios = [theirs[0][4] / row[4] if theirs else "" for row in rows]
    table = [(*row, ratio) for row, ratio in zip([*rows, *theirs], [*ratios, ""], strict=False)]
    show(f"{given.dataset}, every label known", HEADER, table)


if __name__ == "__main__":
    main()
