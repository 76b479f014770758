"""Sparse products of labelgap and SciPy, and the ceilings of the machine. Run as ``python -m benchmarks.products``.

A product reads a row of the dense factor for each non-zero. From memory it could reach the copy rate's two operations
for each four bytes; from the caches more, up to the rate of a dense product. "share" is that of the dense product.
"""

from __future__ import annotations

import numpy as np

from benchmarks.common import best_of, show
from labelgap.datasets import make_sparse_multilabel
from labelgap.kernels import cpu
from labelgap.runtime import map_ranges


def main() -> None:
    X, _ = make_sparse_multilabel(17_413, 5_000, 100, 236, 5, random_state=0)
    X = X.astype(np.float32)
    A = cpu.prepare(X, np.float32)
    transposed = X.T.tocsr()
    rng, rows = np.random.default_rng(0), []
    copy, dense = measure_ceilings()
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
            rows.append((name, k, work / slow, work / fast, slow / fast, f"{work / fast / dense:.0%}"))
    show(
        f"{X.shape[0]} × {X.shape[1]}, {X.nnz:,} non-zeros, float32; copy {copy:.0f} GB/s, which is "
        f"{copy / 4:.0f} GFLOP/s from memory; dense product {dense:.0f} GFLOP/s",
        ("product", "k", "SciPy GFLOP/s", "labelgap GFLOP/s", "ratio", "share"),
        rows,
    )


def measure_ceilings() -> tuple[float, float]:
    """Return the GB/s (read and written) of a copy, and the GFLOP/s of a dense product, on all threads."""
    source, square = np.ones(1 << 26, np.float32), np.ones((2048, 2048), np.float32)
    target, bounds = np.empty_like(source), np.linspace(0, len(source), 17).astype(int).tolist()

    def copy_range(start: int, stop: int) -> None:
        target[start:stop] = source[start:stop]

    copied = best_of(lambda: map_ranges(copy_range, bounds))
    return 2e-9 * source.nbytes / copied, 2e-9 * 2048**3 / best_of(lambda: cpu.matmul(square, square))


if __name__ == "__main__":
    main()
