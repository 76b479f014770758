"""The order of review: how many forgotten tags do a hundred verdicts find?

Three in ten tags of a table are removed. A simulated person reviews the missing labels of an audit, 20 at a time, and
is wrong in 5 % of the verdicts: by the probabilities of the audit alone; by those that the audit learned from the
verdicts so far (``labelgap.gaps.learn``); or at random among as many suggestions as the audit expects to be right.
The table shows the right suggestions in each hundred verdicts, the mean of all draws.

    python -m benchmarks.review_order [generated robotics cooking] [--draws 5] [--rows 4000] [--verdicts 500]
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import show
from benchmarks.planted import generated, plant, stack_exchange
from labelgap import BinaryRelevance, audit
from labelgap.estimators.tagger import learn_words
from labelgap.gaps import learn

BATCH, WRONG_VERDICTS = 20, 0.05


def review_learning(found: Any, truth: NDArray, n: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return whether each reviewed suggestion is right, in the order that the verdicts teach."""
    rows, labels, verdicts, right = ([np.empty(0, int)] for _ in range(4))
    current = found
    while sum(map(len, rows)) < n:
        batch = current.missing.first(BATCH)
        rows.append(batch.rows)
        labels.append(batch.labels)
        right.append(truth[batch.rows, batch.labels])
        verdicts.append(right[-1] ^ (rng.random(len(batch)) < WRONG_VERDICTS))
        current = learn(found, *map(np.concatenate, (rows, labels, verdicts)), error_rate=WRONG_VERDICTS)
    return np.concatenate(right)[:n] > 0


def measure(name: str, draws: int, n_rows: int, n: int) -> list[list[Any]]:
    """Return the rows of the table."""
    found: dict[str, list[NDArray]] = {"random": [], "probability": [], "learned": []}
    for seed in range(draws):
        texts, Y = generated(n_rows, seed) if name == "generated" else stack_exchange(name, n_rows, seed)
        written = plant(Y, 0.3, 0.0, 100 + seed)
        X = learn_words(texts, min_count=2)(texts, "float32")
        suggested = audit(X, written.astype(np.int8), BinaryRelevance(1.0, loss="squared"), random_state=seed)
        truth, rng = Y & ~written, np.random.default_rng(seed)
        right = truth[suggested.missing.rows, suggested.missing.labels]
        among = max(int(suggested.n_missing.sum()), n)
        found["random"].append(right[rng.permutation(among)[:n]])
        found["probability"].append(right[:n])
        found["learned"].append(review_learning(suggested, truth, n, rng))
    by_hundred = {
        order: np.mean([part.reshape(-1, 100).sum(axis=1) for part in parts], 0) for order, parts in found.items()
    }
    return [[name, order, *map(float, numbers), float(numbers.mean())] for order, numbers in by_hundred.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["generated", "robotics", "cooking"])
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--verdicts", type=int, default=500, help="a multiple of 100")
    options = parser.parse_args()
    rows = [row for name in options.names for row in measure(name, options.draws, options.rows, options.verdicts)]
    hundreds = [f"{end}" for end in range(100, options.verdicts + 1, 100)]
    show("Right suggestions in the hundred verdicts up to", ["table", "order", *hundreds, "mean"], rows)


if __name__ == "__main__":
    main()
