"""Cost of a search over eight penalties, relative to one fit: candidates share eigenvectors and have warm starts.

    python -m benchmarks.search [--data eurlex] [--components 256]
    python -m benchmarks.search first-round [--data mediamill generated]

``first-round`` compares searches with and without the first round on a sub-sample of the rows: CPU seconds of both,
the last fit included, what they choose, and P@1 and P@5 of the chosen models on test rows. The generated set has
100,000 rows.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any
from unittest import mock

from sklearn.exceptions import ConvergenceWarning

from benchmarks.common import normalised, show
from labelgap import LEML, LabelKNN, tune
from labelgap.datasets import make_low_rank
from labelgap.metrics import evaluate, standard_metrics
from labelgap.model_selection import engine
from labelgap.observations import as_labels

PENALTIES = [2.0**power for power in range(4, -4, -1)]
WIDE = [4.0**power for power in range(8, -7, -1)]
N_GENERATED, N_TEST = 100_000, 5_000
SEARCHES: dict[str, tuple[Any, dict[str, Any]]] = {
    "LEML, alpha": (LEML(100, random_state=0), {"alpha": WIDE}),
    "LEML, alpha and rank": (LEML(random_state=0), {"alpha": WIDE[::2], "n_components": [5, 20, 80]}),
    "LabelKNN, neighbours": (LabelKNN(random_state=0), {"n_neighbors": [1, 3, 10, 30, 100, 300]}),
}


def load_split(name: str) -> tuple[Any, Any, Any, Any]:
    """Return training rows, their labels, test rows and their labels."""
    if name != "generated":
        dataset, X, X_test = normalised(name)
        return X, dataset.Y_train, X_test, dataset.Y_test
    data = make_low_rank(N_GENERATED + N_TEST, 200, 100, rank=20, labels_per_row=4, noise=1.0, random_state=0)
    return data.X[N_TEST:], data.Y[N_TEST:], data.X[:N_TEST], data.Y[:N_TEST]


def compare_first_rounds(names: list[str]) -> None:
    """Print the table of searches with and without a first round."""
    rows = []
    for name in names:
        X, Y, X_test, Y_test = load_split(name)
        for title, (estimator, grid) in SEARCHES.items():
            fitted: dict[str, tuple[Any, float]] = {}
            for rounds, size in (("one", 10**9), ("two", engine.MIN_FIRST_ROUND_ROWS)):
                with mock.patch.object(engine, "MIN_FIRST_ROUND_ROWS", size):
                    start = time.process_time()
                    result = tune(estimator, X, Y, grid=grid, metric=["P@1", "P@5"], random_state=0)
                    fitted[rounds] = result, time.process_time() - start
            for rounds, (result, seconds) in fitted.items():
                precision = evaluate(
                    standard_metrics((1, 5)), [(as_labels(Y_test), result.estimator.predict_topk(X_test, 5))]
                )
                values = [100 * precision[f"P@{k}"] for k in (1, 5)]
                ratio = seconds / fitted["one"][1]
                rows.append((name, title, rounds, str(result.params), *values, seconds, ratio))
    show("Rounds", ("data", "search", "rounds", "chosen", "P@1", "P@5", "CPU s", "ratio"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["penalties", "first-round"], default="penalties")
    parser.add_argument("--data", nargs="+")
    parser.add_argument("--components", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    if args.what == "first-round":
        compare_first_rounds(args.data or ["mediamill", "generated"])
        return
    dataset, X, _ = normalised((args.data or ["eurlex"])[0])
    estimator = LEML(args.components, random_state=0)
    estimator.fit(X[:500], dataset.Y_train[:500])  # compiles
    ratios = []
    for _ in range(args.repeats):
        start = time.perf_counter()
        estimator.fit(X, dataset.Y_train)
        fit = time.perf_counter() - start
        start = time.perf_counter()
        result = tune(estimator, X, dataset.Y_train, grid={"alpha": PENALTIES}, random_state=0)
        search = time.perf_counter() - start
        ratios.append(search / fit)
        seconds = ", ".join(f"{row['seconds']:.1f}" for row in result.table)
        print(f"fit {fit:.1f} s; search {search:.1f} s ({seconds}, last fit): {ratios[-1]:.2f}; {result.params}")
    print(f"median: {sorted(ratios)[len(ratios) // 2]:.2f} fits")


if __name__ == "__main__":
    main()
