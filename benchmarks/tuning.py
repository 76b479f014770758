"""Tuning LEML on Bibtex: what the chosen penalty gains over the default one, and what starts from neighbours save.

Run as ``python -m benchmarks.tuning [--dataset NAME] [--components K] [--budget SECONDS] [--rows N] [--cpu]``. The
first table follows one path of penalties twice on the first N rows, with a fifth of the dimensions, with every fit
from nothing and with starts, for labels that are all known and for labels with gaps; its last column is the time with
starts over that without. The second one compares the default parameters with what ``labelgap.tune`` chose within the
budget, on the test rows. With ``--cpu`` seconds, the budget's too, are those of the processor, for a machine that has
other work.
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
KNOWN = 0.3  # the share of cells that are known where labels have gaps


def precisions(model: Any, X: Any, test: Any) -> list[float]:
    """Return P@1, P@3 and P@5 in percent."""
    values = evaluate(standard_metrics((1, 3, 5)), [(test, model.predict_topk(X, 5))])
    return [100 * values[f"P@{k}"] for k in (1, 3, 5)]


def chosen_and_default(estimator: LEML, data: tuple[Any, Any, Any, Any], budget: float) -> Iterator[list[Any]]:
    """Yield a row of the default parameters and one of those chosen; print what was tried."""
    X, Y, X_new, test = data
    start = engine.clock()
    estimator.fit(X, Y)
    seconds = engine.clock() - start
    yield ["default", estimator.alpha, *precisions(estimator, X_new, test), 1, "", round(seconds, 1)]
    found = tune(estimator, X, Y, budget=budget, random_state=0)
    print(found)
    row = [f"tune, {budget:g} s ({found.status})", found.params["alpha"], *precisions(found.estimator, X_new, test)]
    yield [*row, len(found.table), sum(entry["warm"] for entry in found.table), round(found.seconds, 1)]


def starts(estimator: LEML, X: Any, Y: Any, name: str) -> list[Any]:
    """Return a row: seconds of a path from nothing and with starts, what each chose and how far scores differ."""
    grid, options = {"alpha": PATH}, {"metric": "P@1", "random_state": 0, "refit": False}
    cold, warm = select(estimator, grid, X, Y, **options), tune(estimator, X, Y, grid=grid, **options)
    seconds = [sum(entry["seconds"] for entry in one.table) for one in (cold, warm)]
    scores = [{entry["params"]["alpha"]: entry["score"] for entry in one.table} for one in (cold, warm)]
    apart = max(abs(scores[0][alpha] - scores[1][alpha]) for alpha in PATH)
    regret = cold.score - scores[0][warm.params["alpha"]]
    return [name, cold.params["alpha"], warm.params["alpha"], apart, regret, *seconds, seconds[1] / seconds[0]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="bibtex")
    parser.add_argument("--components", type=int, default=100)
    parser.add_argument("--budget", type=float, default=60.0)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--cpu", action="store_true")
    given = parser.parse_args()
    if given.cpu:
        engine.clock = time.process_time
    warnings.simplefilter("ignore", ConvergenceWarning)
    dataset, X, X_new = normalised(given.dataset)
    Y, estimator = dataset.Y_train, LEML(n_components=given.components, random_state=0)
    few, n = LEML(n_components=max(2, given.components // 5), random_state=0), given.rows
    gaps = hide_cells(Y[:n], KNOWN, random_state=0)
    for labels in (Y[:n], gaps):  # loops are compiled before anything is timed
        select(few, {"alpha": [1.0]}, X[:n], labels)
    compared = [starts(few, X[:n], Y[:n], "all known"), starts(few, X[:n], gaps, f"{KNOWN:.0%} known")]
    header = ("labels", "cold choice", "warm choice", "scores apart", "loss by it", "cold, s", "warm, s", "ratio")
    show(f"{given.dataset}, {n} rows: a path of {len(PATH)} penalties", header, compared)
    header = ("parameters", "alpha", "P@1", "P@3", "P@5", "fits", "with a start", "seconds")
    rows = list(chosen_and_default(estimator, (X, Y, X_new, as_labels(dataset.Y_test)), given.budget))
    show(f"{given.dataset}: LEML with {given.components} dimensions, test rows", header, rows)


if __name__ == "__main__":
    main()
