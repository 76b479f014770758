"""Cost of the one-class objective by the number of positives and of cells. Run as ``python -m benchmarks.one_class``.

LR-wSQ with sparse features and a row graph: the seconds of a model (value and gradient) and of a Hessian product, in
W and in H. An exponent of at most 1 in the number of positives means linear cost. An exponent near 0 in the number of
labels, with a constant number of positives, means that the cost does not depend on n·L; only the (n + L) k² of the
Gram matrices may grow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.common import best_of, exponent, show
from labelgap.datasets import make_sparse_multilabel
from labelgap.kernels import cpu
from labelgap.losses import Logistic, Squared
from labelgap.objectives import Features, Problem
from labelgap.objectives.base import Graph, GraphPenalty
from labelgap.objectives.cells import Weights
from labelgap.objectives.positive_unlabelled import PositiveUnlabelled
from labelgap.runtime import threads

ROWS, FEATURES, FEATURES_PER_ROW, COMPONENTS = 20_000, 2_000, 20, 64
BASE = {"labels": 1_000, "positives_per_row": 20}
RANGES = {"positives_per_row": (20, 40, 80, 160, 320), "labels": (1_000, 2_000, 4_000, 8_000, 16_000)}


def problem(labels: int, positives_per_row: int) -> Problem:
    """Return an LR-wSQ problem; the features, their graph and the number of positives do not depend on the labels."""
    rng = np.random.default_rng(0)
    X, _ = make_sparse_multilabel(ROWS, FEATURES, 10, FEATURES_PER_ROW, 1, random_state=0)
    columns = rng.integers(0, labels, ROWS * positives_per_row)
    rows = np.repeat(np.arange(ROWS), positives_per_row)
    positives = sp.csr_array((np.ones(len(rows), np.float32), (rows, columns)), shape=(ROWS, labels))
    positives.sum_duplicates()
    ring = sp.diags_array([1.0, 1.0], offsets=[1, -1], shape=(ROWS, ROWS), format="csr")
    return Problem.of(
        PositiveUnlabelled(Logistic(), Squared(), -1.0, Weights.of(1.0, 0.1)).bind(positives, cpu, np.float32),
        Features(X, cpu, np.float32, constant=True),
        alpha=1.0,
        left_terms=[GraphPenalty(Graph.of(ring, cpu, np.float32), 1.0)],
    )


def seconds(labels: int, positives_per_row: int) -> list[float]:
    """Return the seconds of a model and of a product in W, then in H."""
    bound, rng = problem(labels, positives_per_row), np.random.default_rng(0)
    W, H = (rng.standard_normal((size, COMPONENTS)).astype(np.float32) for size in (FEATURES + 1, labels))
    pairs = (bound.objective_in_left(H), W), (bound.objective_in_right(W), H)
    return [time for objective, at in pairs for time in _times(objective, at)]


def _times(objective: Any, at: Any) -> tuple[float, float]:
    model = objective.model(at)
    return best_of(lambda: objective.model(at), 3), best_of(lambda: model.hessp(at), 3)


@threads(None)
def main() -> None:
    for name, sizes in RANGES.items():
        times = np.array([seconds(**(BASE | {name: size})) for size in sizes])
        rows = [
            (part, *(float(1e3 * t) for t in times[:, column]), exponent(sizes, times[:, column]))
            for column, part in enumerate(("model in W", "product in W", "model in H", "product in H"))
        ]
        fixed = ", ".join(f"{key} {value:,}" for key, value in BASE.items() if key != name)
        show(
            f"LR-wSQ, {ROWS:,} rows, {fixed}: milliseconds against {name}",
            ("part", *(f"{size:,}" for size in sizes), "exponent"),
            rows,
        )


if __name__ == "__main__":
    main()
