"""Cost of an alternation by n, nonzeros and k. Run as ``python -m benchmarks.scaling``."""

from __future__ import annotations

import numpy as np

from benchmarks.common import best_of, exponent, show
from labelgap.datasets import make_sparse_multilabel
from labelgap.kernels import cpu
from labelgap.losses import Logistic, Squared
from labelgap.objectives import Features, Problem, bind_label_cells
from labelgap.observations import as_labels, hide_cells
from labelgap.runtime import threads

BASE = {"n": 20_000, "features_per_row": 50, "k": 64, "observed": 0.02}
RANGES = {
    "n": (10_000, 20_000, 40_000, 80_000),
    "features_per_row": (25, 50, 100, 200),
    "k": (64, 128, 256, 512),
    "observed": (0.02, 0.04, 0.08, 0.16),
}
FEATURES, LABELS = 4_000, 1_000


def products(n: int, features_per_row: int, k: int, observed: float, *, gaps: bool) -> tuple[float, float]:
    """Return the seconds of one model (value and gradient) and of one Hessian product in W."""
    X, Y = make_sparse_multilabel(n, FEATURES, LABELS, features_per_row, 5, random_state=0)
    labels = hide_cells(Y, observed, random_state=0) if gaps else as_labels(Y)
    problem = Problem.of(
        bind_label_cells(labels, Logistic() if gaps else Squared(), cpu, np.float32),
        Features(X, cpu, np.float32),
        alpha=1.0,
    )
    rng = np.random.default_rng(0)
    W, S, H = (rng.standard_normal((size, k)).astype(np.float32) for size in (FEATURES, FEATURES, LABELS))
    objective = problem.objective_in_left(H)
    model = objective.model(W)
    model.hessp(S)
    return best_of(lambda: objective.model(W)), best_of(lambda: model.hessp(S))


@threads(None)
def main() -> None:
    for gaps in (False, True):
        rows = []
        for name, sizes in RANGES.items():
            if name == "observed" and not gaps:
                continue
            times = np.array([products(**(BASE | {name: size}), gaps=gaps) for size in sizes])
            model, product = exponent(sizes, times[:, 0]), exponent(sizes, times[:, 1])
            rows.append((name, " … ".join(map(str, (sizes[0], sizes[-1]))), model, product, float(times[-1].sum())))
        show(
            "Logistic loss over known cells" if gaps else "Squared loss, no unknown labels",
            (
                "varied",
                "range",
                "exponent of value and gradient",
                "exponent of a Hessian product",
                "seconds of the largest",
            ),
            rows,
        )


if __name__ == "__main__":
    main()
