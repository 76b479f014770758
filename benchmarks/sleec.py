"""SLEEC: training time by n; accuracy, time and size compared with LEML and other packages.

Run as ``python -m benchmarks.sleec [growth] [compare] [learners] [sparse] [defaults] [--skip PEER …]``; packages that
are not installed are skipped.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from benchmarks.beside import measure, measure_peers, precision
from benchmarks.common import exponent, normalised, show
from benchmarks.field_methods import timed
from labelgap import LEML, SLEEC, LabelKNN, LocalLEML
from labelgap.datasets import make_sparse_multilabel
from labelgap.observations import as_labels
from labelgap_papers.study import take_first_learners

ROWS_PER_CLUSTER = 2_000
SIZES = (4_000, 8_000, 16_000, 32_000)
# The authors' published parameters; α is chosen by validation.
EURLEX = {"n_clusters": 3, "n_learners": 5, "n_neighbors_embed": 100, "n_components": 100, "n_neighbors": 8}
MEDIAMILL = {
    "alpha": 1e-3,
    "n_clusters": 5,
    "n_learners": 15,
    "n_neighbors_embed": 300,
    "n_components": 30,
    "n_neighbors": 4,
}
DELICIOUS = {"n_clusters": 1, "n_learners": 1, "n_neighbors_embed": 500, "n_components": 100, "n_neighbors": 70}
OURS: dict[str, dict[str, Callable[[], Any]]] = {
    "eurlex": {
        "SLEEC": lambda: SLEEC(random_state=0, **EURLEX),
        "SLEEC, 1 learner": lambda: SLEEC(random_state=0, **EURLEX | {"n_learners": 1}),
        "LocalLEML, 1 learner": lambda: LocalLEML(100, n_clusters=3, n_learners=1, random_state=0),
        "LEML": lambda: LEML(256, alpha=2.0, random_state=0),
        "LabelKNN": lambda: LabelKNN(n_neighbors=10),
    },
    "mediamill": {
        "SLEEC": lambda: SLEEC(random_state=0, **MEDIAMILL),
        "SLEEC, 1 learner": lambda: SLEEC(random_state=0, **MEDIAMILL | {"n_learners": 1}),
        "LocalLEML, 1 learner": lambda: LocalLEML(100, n_clusters=5, n_learners=1, random_state=0),
        "LEML": lambda: LEML(100, random_state=0),
        "LabelKNN": lambda: LabelKNN(n_neighbors=20),
    },
}


def growth() -> None:
    """Print the training time by n for a fixed number of rows per cluster."""
    seconds = []
    for n in SIZES:
        X, Y = make_sparse_multilabel(n, 4_000, 1_000, 50, 5, random_state=0)
        model = SLEEC(50, n_clusters=n // ROWS_PER_CLUSTER, n_learners=1, max_iter=20, tol=0.0, random_state=0)
        seconds.append(timed(lambda: model.fit(X, Y))[1])  # noqa: B023, called at once
    rows = [(n, n // ROWS_PER_CLUSTER, s, s / seconds[0]) for n, s in zip(SIZES, seconds, strict=True)]
    show(
        f"SLEEC, {ROWS_PER_CLUSTER} rows in a cluster: exponent {exponent(SIZES, seconds):.2f}",
        ("rows", "clusters", "seconds", "ratio"),
        rows,
    )


def compare(skip: Collection[str] = ()) -> None:
    """Print P@k, times and sizes of labelgap's methods and of other packages."""
    for name, makers in OURS.items():
        data, X, X_new = normalised(name)
        test = as_labels(data.Y_test)
        rows = [
            *(measure(key, make(), (X, data.Y_train, X_new), test) for key, make in makers.items()),
            *measure_peers((X, data.Y_train, X_new), test, skip),
        ]
        base = rows[0].seconds
        show(
            f"{name}, every label known",
            ("method", "P@1", "P@3", "P@5", "training, s", "ratio to SLEEC", "prediction, ms per row", "model, MB"),
            [(*row[:5], row.seconds / base, *row[5:]) for row in rows],
        )


def learners(most: int = 6, seeds: int = 3) -> None:
    """Print P@1 by the number of learners: mean and standard deviation over seeds."""
    for name, setting in (("eurlex", EURLEX), ("mediamill", MEDIAMILL)):
        data, X, X_new = normalised(name)
        test, precisions = as_labels(data.Y_test), np.empty((seeds, most))
        for seed in range(seeds):
            model = SLEEC(random_state=seed, **setting | {"n_learners": most}).fit(X, data.Y_train)
            for m in range(1, most + 1):
                precisions[seed, m - 1] = precision(test, take_first_learners(model, m).predict_topk(X_new, 5))[0]
        rows = [(m, precisions[:, m - 1].mean(), precisions[:, m - 1].std(ddof=1)) for m in range(1, most + 1)]
        show(f"{name}, {seeds} seeds", ("learners", "P@1", "standard deviation"), rows)


def defaults() -> None:
    """Print P@k on held-out training rows of Delicious with the defaults, and with parameters of the authors."""
    data, X, _ = normalised("delicious")
    held_out = np.random.default_rng(0).random(X.shape[0]) < 0.2
    test, rows = as_labels(data.Y_train[held_out]), []
    single = ({name: value} for name, value in DELICIOUS.items())
    for setting in ({}, *single, DELICIOUS, DELICIOUS | {"alpha": 0.1}):
        model = SLEEC(random_state=0, **setting).fit(X[~held_out], data.Y_train[~held_out])
        found = precision(test, model.predict_topk(X[held_out], 5))
        rows.append((", ".join(f"{name} = {value}" for name, value in setting.items()) or "defaults", *found))
        print(rows[-1], flush=True)
    show("Delicious, a fifth of the training rows held out", ("parameters", "P@1", "P@3", "P@5"), rows)


def sparse() -> None:
    """Print size and accuracy on Eurlex with small weights removed, and with an L1 term on the embeddings."""
    data, X, X_new = normalised("eurlex")
    test, rows = as_labels(data.Y_test), []
    settings: dict[str, dict[str, Any]] = {
        "ridge": {},
        **{f"ridge, threshold {share}": {"threshold": share} for share in (0.003, 0.01, 0.03)},
        **{f"admm, l1 {l1}": {"regressor": "admm", "l1": l1} for l1 in (0.003, 0.01, 0.03, 0.1)},
    }
    for name, setting in settings.items():
        model = SLEEC(random_state=0, **EURLEX | {"n_learners": 1} | setting)
        row = measure(name, model, (X, data.Y_train, X_new), test)
        parts = model.parts_[0]
        stored = [np.mean([_density(part[array]) for part in parts]) for array in ("regressors", "embedded")]
        rows.append((*row, *(f"{share:.0%}" for share in stored)))
    header = (
        "regressor",
        "P@1",
        "P@3",
        "P@5",
        "training, s",
        "ms per row",
        "model, MB",
        "nonzeros of V",
        "nonzeros of XV",
    )
    show("Eurlex, one learner", header, rows)


def _density(values: Any) -> float:
    return values.nnz / np.prod(values.shape) if sp.issparse(values) else float(np.mean(values != 0))


PARTS: dict[str, Callable[..., None]] = {
    "growth": growth,
    "compare": compare,
    "learners": learners,
    "sparse": sparse,
    "defaults": defaults,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="parts to run (default: all)")
    parser.add_argument("--skip", nargs="+", default=(), help="names of packages to skip, as printed")
    args = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for name in args.parts or PARTS:
            PARTS[name](*[args.skip] * (name == "compare"))


if __name__ == "__main__":
    main()
