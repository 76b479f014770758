"""New rows and labels: ``partial_fit`` compared with a full refit. Run as ``python -m benchmarks.incremental``.

A model is first fitted on 90 % of the training rows, in a random order, and 95 % of the labels. For the other rows
and labels it is (a) fitted again on everything, (b) updated with the past rows, (c) updated without them. In (c) the
new labels of past rows are not known and count as negative. All models are scored on the test rows and all labels.
The target for (b) is a P@1 within half a point of (a) in a fifth of its time. CPU seconds are those of all threads;
other processes change them less than the elapsed time.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from benchmarks.common import normalised, show
from labelgap import LEML, OneClassMF
from labelgap.metrics import precision_at_k

NEW_ROWS, NEW_LABELS = 0.1, 0.05
DEPTHS = (1, 3, 5)
MODELS: dict[str, Callable[[], Any]] = {
    "LEML": lambda: LEML(random_state=0),
    "LEML logistic": lambda: LEML(loss="logistic", random_state=0),
    "OneClassMF": lambda: OneClassMF(random_state=0),
}
SLOW = ("LEML logistic",)  # visits every cell: on Bibtex only


class Growth(NamedTuple):
    """Training rows and labels in their order of arrival, and the numbers of first rows and labels."""

    X: Any
    Y: Any
    X_test: Any
    Y_test: Any
    rows: int
    labels: int


def growth(name: str, seed: int = 0) -> Growth:
    """Return a dataset in which the last tenth of the rows and the last twentieth of the labels are new."""
    dataset, X, X_test = normalised(name)
    Y, Y_test = (sp.csr_array(labels) for labels in (dataset.Y_train, dataset.Y_test))
    rng = np.random.default_rng(seed)
    rows, labels = rng.permutation(X.shape[0]), rng.permutation(Y.shape[1])
    first = round((1 - NEW_ROWS) * len(rows)), round((1 - NEW_LABELS) * len(labels))
    return Growth(X[rows], Y[rows][:, labels], X_test, Y_test[:, labels], *first)


def ways(data: Growth) -> dict[str, Callable[[Any], Any]]:
    """Return three ways to update a model of the first rows and labels."""
    past, new = slice(data.rows), slice(data.rows, None)
    rows, before = (data.X[new], data.Y[new]), (data.X[past], data.Y[past])
    return {
        "(a) full refit": lambda model: model.fit(data.X, data.Y),
        "(b) with past": lambda model: model.partial_fit(*rows, past=before),
        "(c) without past": lambda model: model.partial_fit(*rows),
    }


def fastest(base: Any, work: Callable[[Any], Any], repeats: int) -> tuple[Any, float, float]:
    """Return the model of the last run, the shortest time of all runs, and the shortest CPU time."""
    seconds, result = [], None
    for _ in range(repeats):
        model = copy.deepcopy(base)
        start = time.perf_counter(), time.process_time()
        result = work(model)
        seconds.append((time.perf_counter() - start[0], time.process_time() - start[1]))
    elapsed, cpu = np.min(seconds, axis=0)
    return result, float(elapsed), float(cpu)


def precisions(model: Any, data: Growth) -> list[float]:
    """Return P@1, P@3 and P@5 on the test rows, in percent."""
    ranking = model.predict_topk(data.X_test, max(DEPTHS))
    return [100 * precision_at_k(data.Y_test, ranking, k) for k in DEPTHS]


def compare(name: str, model: str, repeats: int, seed: int) -> list[tuple[Any, ...]]:
    """Return a row of the table for each way."""
    data = growth(name, seed)
    base = MODELS[model]().fit(data.X[: data.rows], data.Y[: data.rows, : data.labels])
    results, times, table = [], [], []
    for way, work in ways(data).items():
        fitted, *seconds = fastest(base, work, 1 if model in SLOW else repeats)
        results.append(precisions(fitted, data))
        times.append(seconds)
        ratios = np.divide(seconds, times[0])
        table.append((model, way, *results[-1], results[-1][0] - results[0][0], *seconds, *map(float, ratios)))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("datasets", nargs="*", default=["bibtex", "delicious"])
    parser.add_argument("--models", nargs="*", choices=tuple(MODELS), default=list(MODELS))
    parser.add_argument("--repeats", type=int, default=3, help="number of runs; the shortest time counts")
    parser.add_argument("--seed", type=int, default=0, help="seed of the choice of new rows and labels")
    args = parser.parse_args()
    for name in args.datasets:
        models = [model for model in args.models if name == "bibtex" or model not in SLOW]
        show(
            f"{name}: 10 % new rows, 5 % new labels, seed {args.seed}",
            ("model", "way", *(f"P@{k}" for k in DEPTHS), "P@1 − (a)", "seconds", "CPU s", "of (a)", "CPU of (a)"),
            [row for model in models for row in compare(name, model, args.repeats, args.seed)],
        )


if __name__ == "__main__":
    main()
