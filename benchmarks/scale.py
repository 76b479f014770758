"""LEML on 100,000 rows, 50,000 features and 200,000 labels. Run as ``python -m benchmarks.scale``.

It has squared loss, no unknown labels and k = 100. The table shows the seconds and the peak resident memory of
training and of the top 5 of every row.
"""

from __future__ import annotations

import resource
import time
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import normalize

from benchmarks.common import show
from labelgap import LEML
from labelgap.datasets import make_sparse_multilabel
from labelgap.metrics import precision_at_k


def peak_gib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> None:
    X, Y = make_sparse_multilabel(100_000, 50_000, 200_000, 100, 5, random_state=0)
    X = normalize(X.astype(np.float32))
    rows = [("generate", 0.0, peak_gib())]
    start = time.perf_counter()
    model = LEML(100, max_iter=10, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, Y)
    rows.append((f"fit, {model.n_iter_} alternations ({model.status_})", time.perf_counter() - start, peak_gib()))
    start = time.perf_counter()
    best = model.predict_topk(X, 5)
    rows.append(("top 5 of every row", time.perf_counter() - start, peak_gib()))
    show(f"{X.shape[0]:,} × {X.shape[1]:,} features, {Y.shape[1]:,} labels", ("step", "seconds", "peak GiB"), rows)
    popular = np.argsort(-np.bincount(Y.indices, minlength=Y.shape[1]), kind="stable")[:5]
    guess = (np.tile(popular, (X.shape[0], 1)), np.tile(-np.arange(5.0), (X.shape[0], 1)))
    learned, frequent = precision_at_k(Y, best, 1), precision_at_k(Y, guess, 1)
    print(f"P@1 on the training rows {learned:.4f}; of the most frequent label {frequent:.4f}")


if __name__ == "__main__":
    main()
