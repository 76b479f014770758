"""Cost of a search over eight penalties, relative to one fit: candidates share eigenvectors and have warm starts.

python -m benchmarks.search [--data eurlex] [--components 256]
"""

from __future__ import annotations

import argparse
import time
import warnings

from sklearn.exceptions import ConvergenceWarning

from benchmarks.common import normalised
from labelgap import LEML, tune

PENALTIES = [2.0**power for power in range(4, -4, -1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="eurlex")
    parser.add_argument("--components", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    dataset, X, _ = normalised(args.data)
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
