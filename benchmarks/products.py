"""Sparse products of labelgap and SciPy. Run as ``python -m benchmarks.products``."""

from __future__ import annotations

import numpy as np

from benchmarks.common import best_of, show
from labelgap.datasets import make_sparse_multilabel
from labelgap.kernels import cpu


def main() -> None:
    X, _ = make_sparse_multilabel(17_413, 5_000, 100, 236, 5, random_state=0)
    X = X.astype(np.float32)
    A = cpu.prepare(X, np.float32)
    transposed = X.T.tocsr()
    rng, rows = np.random.default_rng(0), []
    for k in (64, 256, 512):
        W = rng.standard_normal((X.shape[1], k)).astype(np.float32)
        B = rng.standard_normal((X.shape[0], k)).astype(np.float32)
        for name, ours, theirs in (
            ("X W", lambda W=W: cpu.spmm(A, W), lambda W=W: X @ W),
            ("Xᵀ B", lambda B=B: cpu.spmm_t(A, B), lambda B=B: transposed @ B),
        ):
            np.testing.assert_allclose(ours(), theirs(), rtol=1e-3, atol=1e-3)
            fast, slow = best_of(ours), best_of(theirs)
            work = 2e-9 * X.nnz * k
            rows.append((name, k, work / slow, work / fast, slow / fast))
    show(
        f"{X.shape[0]} × {X.shape[1]}, {X.nnz:,} non-zeros, float32",
        ("product", "k", "SciPy GFLOP/s", "labelgap GFLOP/s", "ratio"),
        rows,
    )


if __name__ == "__main__":
    main()
