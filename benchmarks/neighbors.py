"""Nearest rows: labelgap, scikit-learn's brute force and SciPy's product; approximate and exact search.

Run as ``python -m benchmarks.neighbors`` with LABELGAP_DATA set. Both rank the same queries, and their
similarities are compared first. SciPy's time is that of the product in blocks, without the ranking of its rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.decomposition import TruncatedSVD
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import normalize

from benchmarks.common import best_of, normalised, show
from labelgap.neighbors import ApproximateNeighbors, ExactNeighbors

QUERIES = 3_000
BLOCK = 500
WIDTHS = (16, 32, 64, 128, 256)


def sparse_cases() -> Iterator[tuple[str, Any, Any, int]]:
    """Yield name, queries, rows and k: the features of new rows, and label vectors."""
    eurlex, X, X_new = normalised("eurlex")
    yield "Eurlex, features of test rows", X_new, X, 10
    for name, labels, k in (("Eurlex", eurlex.Y_train, 100), ("Mediamill", normalised("mediamill")[0].Y_train, 300)):
        Y = normalize(sp.csr_array(labels))
        yield f"{name}, labels", Y[:QUERIES], Y, k


def compare_sparse(queries: Any, rows: Any, k: int) -> tuple[float, float, float]:
    """Return the seconds of labelgap, of scikit-learn and of SciPy's product."""
    ours = ExactNeighbors().fit(rows)
    theirs = NearestNeighbors(n_neighbors=k, algorithm="brute", metric="cosine").fit(rows)
    similarities = ours.search(queries, k)[1]
    np.testing.assert_allclose(similarities, 1 - theirs.kneighbors(queries)[0], atol=1e-5)
    right = sp.csc_array(rows.T)

    def product() -> None:
        for start in range(0, queries.shape[0], BLOCK):
            queries[start : start + BLOCK] @ right

    return (
        best_of(lambda: ExactNeighbors().fit(rows).search(queries, k), 3),
        best_of(lambda: theirs.kneighbors(queries), 1),
        best_of(product, 1),
    )


def dense_cases() -> Iterator[tuple[str, NDArray, NDArray]]:
    """Yield name, queries and rows: an embedding of real rows, and points around random centres."""
    _, X, X_new = normalised("eurlex")
    embedding = TruncatedSVD(100, random_state=0).fit(X)
    rows, queries = (normalize(embedding.transform(A)).astype(np.float32) for A in (X, X_new))
    yield "Eurlex, 100 singular directions", queries, rows
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((4_000, 100), np.float32)
    drawn = centres[rng.integers(0, len(centres), 200_000 + QUERIES)]
    points = normalize(drawn + rng.standard_normal(drawn.shape, np.float32))
    yield "points around 4,000 centres", points[200_000:], points[:200_000]


def recall(indices: NDArray, expected: NDArray) -> float:
    """Return the share of the expected indices among the returned ones."""
    return float(
        np.mean([np.isin(expected_row, row).mean() for expected_row, row in zip(expected, indices, strict=True)])
    )


def compare_dense(queries: NDArray, rows: NDArray, k: int) -> Iterator[tuple[str, float, float, float, float]]:
    """Yield method, seconds to build, milliseconds for a query, recall and how much faster a query is than exact."""
    exact = ExactNeighbors().fit(rows)
    expected, _ = exact.search(queries, k)
    slow = best_of(lambda: exact.search(queries, k), 2) / len(queries)
    yield "exact", 0.0, 1e3 * slow, 1.0, 1.0
    index = ApproximateNeighbors().fit(rows)
    building = best_of(lambda: index.search(queries[:1], k), 1)
    for index.search_width in WIDTHS:
        indices, _ = index.search(queries, k)
        fast = best_of(lambda: index.search(queries, k), 2) / len(queries)
        name = f"approximate, width {index.search_width}"
        yield name, building, 1e3 * fast, recall(indices, expected), slow / fast


def main() -> None:
    rows = []
    for name, queries, points, k in sparse_cases():
        ours, theirs, product = compare_sparse(queries, points, k)
        size = f"{queries.shape[0]:,} of {points.shape[0]:,}"
        rows.append((name, size, k, ours, theirs, product, theirs / ours, product / ours))
    header = (
        "sparse rows, cosine",
        "queries",
        "k",
        "labelgap s",
        "scikit-learn s",
        "SciPy s",
        "ratio",
        "ratio to SciPy",
    )
    show("The k nearest sparse rows", header, rows)
    for name, queries, points in dense_cases():
        title = f"{name}: 10 nearest of {points.shape[0]:,} × {points.shape[1]}, {len(queries):,} queries"
        show(
            title,
            ("search", "build s", "ms per query", "recall@10", "ratio"),
            list(compare_dense(queries, points, 10)),
        )


if __name__ == "__main__":
    main()
