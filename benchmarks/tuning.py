"""Tuning LEML on Bibtex: the gain of the chosen penalty over the default one, and the time that warm starts save.

Run as ``python -m benchmarks.tuning [--dataset NAME] [--components K] [--budget SECONDS] [--rows N] [--cpu]``. The
first table is for a path of penalties on the first N rows, with a fifth of the components, without and with warm
starts, for complete labels and for labels with gaps; its last column is the ratio of the times with and without warm
starts. The second table compares the default parameters with the choice of ``labelgap.tune`` within the budget, on
the test rows. With ``--cpu`` all seconds, also those of the budget, are CPU seconds, for a machine with other load.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from benchmarks.common import normalised, show
from labelgap import LEML, hide_cells, tune
from labelgap.metrics import evaluate, standard_metrics
from labelgap.model_selection import engine, select
from labelgap.observations import as_labels

PATH = [2.0**power for power in range(5, -6, -2)]
KNOWN = 0.3  # share of known cells in labels with gaps


def precisions(model: Any, X: Any, test: Any) -> list[float]:
    """Return P@1, P@3 and P@5 in percent."""
    values = evaluate(standard_metrics((1, 3, 5)), [(test, model.predict_topk(X, 5))])
    return [100 * values[f"P@{k}"] for k in (1, 3, 5)]


def chosen_and_default(estimator: LEML, data: tuple[Any, Any, Any, Any], budget: float) -> Iterator[list[Any]]:
    """Yield a row for the default parameters and one for the chosen ones; print all candidates."""
    X, Y, X_new, test = data
    start = engine.clock()
    estimator.fit(X, Y)
    seconds = engine.clock() - start
    yield ["default", estimator.alpha, *precisions(estimator, X_new, test), 1, "", round(seconds, 1)]
    tuning = tune(estimator, X, Y, budget=budget, random_state=0)
    print(tuning)
    row = [
        f"tune, {budget:g} s ({tuning.status})",
        tuning.params["alpha"],
        *precisions(tuning.estimator, X_new, test),
    ]
    yield [*row, len(tuning.table), sum(entry["warm"] for entry in tuning.table), round(tuning.seconds, 1)]


def starts(estimator: LEML, X: Any, Y: Any, name: str) -> list[Any]:
    """Return a row: the choices without and with warm starts, the difference of scores, and the seconds."""
    grid, options = {"alpha": PATH}, {"metric": "P@1", "random_state": 0, "refit": False}
    cold, warm = select(estimator, grid, X, Y, **options), tune(estimator, X, Y, grid=grid, **options)
    seconds = [sum(entry["seconds"] for entry in result.table) for result in (cold, warm)]
    scores = [{entry["params"]["alpha"]: entry["score"] for entry in result.table} for result in (cold, warm)]
    difference = max(abs(scores[0][alpha] - scores[1][alpha]) for alpha in PATH)
    regret = cold.score - scores[0][warm.params["alpha"]]
    return [name, cold.params["alpha"], warm.params["alpha"], difference, regret, *seconds, seconds[1] / seconds[0]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="bibtex")
    parser.add_argument("--components", type=int, default=100)
    parser.add_argument("--budget", type=float, default=60.0)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--cpu", action="store_true")
    args = parser.parse_args()
    if args.cpu:
        engine.clock = time.process_time
    warnings.simplefilter("ignore", ConvergenceWarning)
    dataset, X, X_new = normalised(args.dataset)
    Y, estimator = dataset.Y_train, LEML(n_components=args.components, random_state=0)
    few, n = LEML(n_components=max(2, args.components // 5), random_state=0), args.rows
    gaps = hide_cells(Y[:n], KNOWN, random_state=0)
    for labels in (Y[:n], gaps):  # compiles the kernels before anything is timed
        select(few, {"alpha": [1.0]}, X[:n], labels)
    compared = [starts(few, X[:n], Y[:n], "all known"), starts(few, X[:n], gaps, f"{KNOWN:.0%} known")]
    header = (
        "labels",
        "cold choice",
        "warm choice",
        "max. score difference",
        "regret",
        "cold, s",
        "warm, s",
        "ratio",
    )
    show(f"{args.dataset}, {n} rows: a path of {len(PATH)} penalties", header, compared)
    header = ("parameters", "alpha", "P@1", "P@3", "P@5", "fits", "warm starts", "seconds")
    rows = list(chosen_and_default(estimator, (X, Y, X_new, as_labels(dataset.Y_test)), args.budget))
    show(f"{args.dataset}: LEML with {args.components} dimensions, test rows", header, rows)


if __name__ == "__main__":
    main()
