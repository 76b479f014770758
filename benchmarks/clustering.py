"""K-means of labelgap and scikit-learn from the same seeds, and the cost of a limit on the size of clusters.

Run as ``python -m benchmarks.clustering`` with LABELGAP_DATA set. Both run the same number of rounds from the same
seeds, in turn, and their sums of squares are compared. Seeds are drawn from the same number of rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans, kmeans_plusplus
from sklearn.exceptions import ConvergenceWarning

from benchmarks.common import best_of, normalised, show
from labelgap.clustering import Clustering, cluster, draw_distinct_rows
from labelgap.clustering.kmeans import MIN_SEED_SAMPLE, SEED_SAMPLE_PER_CLUSTER, RowMatrix, draw_seeds

ROUNDS = 5
CASES = (("eurlex", (3, 50, 300, 1000)), ("mediamill", (5, 50, 500)))


def sum_of_squares(X: Any, clustering: Clustering, labels: NDArray) -> float:
    """Return Σ ‖x_i − c_{l(i)}‖² from the means of the clusters."""
    rows, counts = RowMatrix(X), np.bincount(labels, minlength=len(clustering.centers))
    means = rows.compute_means(labels, counts)
    inside = rows.squares.sum() - counts @ (means**2).sum(axis=1)
    return float(inside + counts @ ((means - clustering.centers) ** 2).sum(axis=1))


def lloyd_of_scikit_learn(X: Any, seeds: NDArray) -> KMeans:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return KMeans(len(seeds), init=seeds, n_init=1, max_iter=ROUNDS, tol=0).fit(X)


def compare(X: Any, n_clusters: int) -> tuple[float, float, float, float]:
    """Return the seconds of scikit-learn's and our seeds, and of scikit-learn's and our rounds."""
    rows, size = RowMatrix(X), max(MIN_SEED_SAMPLE, SEED_SAMPLE_PER_CLUSTER * n_clusters)
    sample = draw_distinct_rows(X, size, np.random.RandomState(0))
    seeds = draw_seeds(rows, n_clusters, np.random.RandomState(0))

    theirs: list[KMeans] = []
    ours: list[tuple[Clustering, NDArray]] = []

    def rounds() -> None:
        rng = np.random.RandomState(0)
        ours.append(cluster(X, n_clusters, rng=rng, seeds=seeds, balance=None, max_iter=ROUNDS, tol=0))

    rounds()  # compiles
    seconds = (
        *in_turn(
            lambda: kmeans_plusplus(sample, n_clusters, random_state=0),
            lambda: draw_seeds(rows, n_clusters, np.random.RandomState(0)),
        ),
        *in_turn(lambda: theirs.append(lloyd_of_scikit_learn(X, seeds)), rounds),
    )
    np.testing.assert_allclose(sum_of_squares(X, *ours[0]), theirs[0].inertia_, rtol=1e-3)
    return seconds


def in_turn(first: Callable[[], Any], second: Callable[[], Any]) -> tuple[float, float]:
    """Return the seconds of two functions, for each the better of two runs."""
    seconds = [(best_of(first, 1), best_of(second, 1)) for _ in range(2)]
    return min(pair[0] for pair in seconds), min(pair[1] for pair in seconds)


def limits(X: Any, n_clusters: int) -> Iterator[tuple[Any, ...]]:
    """Yield a table row for each limit on the size of clusters."""
    for balance in (None, 2.0, 1.1):
        results: list[tuple[Clustering, NDArray]] = []

        def work(results: list = results, balance: float | None = balance) -> None:
            results.append(cluster(X, n_clusters, rng=np.random.RandomState(0), balance=balance))

        seconds = best_of(work, 1)
        clustering, labels = results[0]
        nearest = float(np.mean(clustering.assign(X) == labels))
        yield n_clusters, balance, np.bincount(labels).max(), sum_of_squares(X, clustering, labels), nearest, seconds


def main() -> None:
    for name, numbers in CASES:
        X = normalised(name)[1]
        rows = []
        for n_clusters in numbers:
            plus, seeds, slow, fast = compare(X, n_clusters)
            rows.append((n_clusters, plus, seeds, plus / seeds, slow, fast, slow / fast))
        show(
            f"{name}, {X.shape[0]} × {X.shape[1]}: k-means++ and {ROUNDS} rounds of Lloyd",
            ("clusters", "sklearn seeds s", "labelgap s", "ratio", "sklearn rounds s", "labelgap s", "ratio"),
            rows,
        )
    X = normalised("eurlex")[1]
    show(
        "eurlex: clusters of at most balance · n / C rows",
        ("clusters", "balance", "largest", "sum of squares", "share at nearest centre", "s"),
        [row for n_clusters in (3, 50, 300) for row in limits(X, n_clusters)],
    )


if __name__ == "__main__":
    main()
