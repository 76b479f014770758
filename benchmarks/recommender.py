"""Recommendations on ml-100k: labelgap compared with other packages.

Run as ``python -m benchmarks.recommender`` with LABELGAP_DATA set. Positives are the ratings of 4 and 5; each of five
random splits holds out 10 % of them. A user's ranking has only items without a training positive, and the means only
users with test positives. In each split every method chooses its parameters by nDCG@5 on a fifth of the training
positives, from grids of the same size; test positives are not used. Seconds are those of training with the chosen
parameters, after a run that is not timed, so that they do not include imports and compilation.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.preprocessing import normalize

from benchmarks.common import show
from benchmarks.field import PEER_PYTHON, Peer
from benchmarks.field_methods import Ranked, Task, timed
from benchmarks.paired import Result, describe, figures, lead, values
from labelgap import OneClassMF
from labelgap.datasets import Interactions, load_interactions
from labelgap.metrics import ndcg_at_k, precision_at_k
from labelgap.observations import hold_out_positives

MEASURES = ("P@1", "P@5", "nDCG@5")
DEPTH = 5

Grid = Mapping[str, Sequence[Any]]

PEER_GRIDS: dict[str, Grid] = {
    "implicit ALS": {
        "factors": (32, 64),
        "regularization": (1.0, 3.0, 10.0, 30.0, 100.0, 300.0),
        "alpha": (1.0, 2.0, 5.0, 10.0, 20.0, 40.0),
    },
    "cmfrec CMF_implicit": {
        "factors": (32, 64),
        "lambda_": (3.0, 10.0, 30.0, 100.0),
        "alpha": (2.0, 5.0, 10.0),
        "feature_weight": (0.1, 1.0, 10.0),
    },
    "irspack iALS": {
        "n_components": (32, 64),
        "alpha0": (0.03, 0.05, 0.1, 0.2, 0.4, 0.8),
        "reg": (1e-3, 3e-3, 1e-2, 2e-2, 4e-2, 8e-2),
    },
}


class Split(NamedTuple):
    """Training and test positives, both of shape (users, items)."""

    train: sp.csr_array
    test: sp.csr_array


@dataclass(frozen=True)
class Method:
    """A recommender, called as ``recommend(Y_train, k, settings)``, and the parameters to choose from.

    It returns a ranking for each of the settings.
    """

    name: str
    recommend: Callable[[Any, int, Sequence[dict[str, Any]]], list[Ranked]]
    grid: Grid

    def points(self) -> Iterator[dict[str, Any]]:
        """Yield each combination of parameters."""
        for point in product(*self.grid.values()):
            yield dict(zip(self.grid, point, strict=True))


def evaluate(test: sp.csr_array, ranked: Ranked) -> Result:
    """Return the measures in percent, and the seconds of training."""
    scores = ranked.scores()
    figure = (precision_at_k(test, scores, 1), precision_at_k(test, scores, 5), ndcg_at_k(test, scores, 5))
    return {**dict(zip(MEASURES, (100 * part for part in figure), strict=True)), "seconds": ranked.seconds}


def choose(method: Method, train: sp.csr_array) -> dict[str, Any]:
    """Return the parameters with the best nDCG@5 on a fifth of the training positives."""
    inner = Split(*hold_out_positives(train, 0.2, random_state=0))
    points = list(method.points())
    rankings = method.recommend(inner.train, DEPTH, points)
    tried = [(evaluate(inner.test, ranked), point) for ranked, point in zip(rankings, points, strict=True)]
    result, point = max(tried, key=lambda pair: pair[0]["nDCG@5"])
    print(f"{method.name}: {point}, the best of {len(tried)}; held-out {describe(result, MEASURES)}", flush=True)
    return point


def measure(method: Method, splits: Sequence[Split]) -> list[Result]:
    """Return the results on all splits, with parameters that were chosen on the training part of each split."""
    results = []
    for split in splits:
        point = choose(method, split.train)
        results.append(evaluate(split.test, method.recommend(split.train, DEPTH, [point, point])[-1]))
        print(f"{method.name}, split {len(results) - 1}: {describe(results[-1], MEASURES)}", flush=True)
    return results


def peer_methods(data: Interactions, python: str) -> Iterator[Method]:
    """Yield the available peers; print why others are not available."""
    for name, grid in PEER_GRIDS.items():
        peer = Peer(name, python)
        reason = peer.unavailable()
        if reason is None:
            yield Method(f"{peer.name} ({peer.version()})", partial(recommend_elsewhere, peer, data), grid)
        else:
            print(f"{peer.name}: {reason}")


def recommend_elsewhere(
    peer: Peer, data: Interactions, Y: Any, k: int, settings: Sequence[dict[str, Any]]
) -> list[Ranked]:
    """Run a peer in a process of its own, with the features of users and items."""
    return peer.rank(Task(data.row_features, Y, data.label_features, k), settings)


# Grids with as many points as those of the peers.
PENALTIES = tuple(2.0 ** (halves / 2) for halves in range(2, 8))  # 2 … 11.3
OUR_GRIDS: dict[str, Grid] = {
    "SQ-wSQ": {
        "n_components": (32, 64),
        "loss": ("squared",),
        "negative_target": (0.0,),
        "weight_unlabelled": tuple(1 / alpha for alpha in (1.0, 2.0, 5.0, 10.0, 20.0, 40.0)),
        "alpha": (1.0, 2.0, 4.0, 6.0, 8.0, 12.0),
    },
    "LR-wSQ": {
        "weight_unlabelled": (2.0**-5, 2.0**-4, 2.0**-3, 2.0**-2),
        "alpha": PENALTIES,
        "evening": (0.0, 0.25, 0.5),
    },
    "LR-wSQ, user graph": {
        "weight_unlabelled": (2.0**-4, 2.0**-3),
        "alpha": PENALTIES[:4],
        "evening": (0.0, 0.25, 0.5),
        "graph_alpha": (0.02, 0.05, 0.1),
    },
    "LR-wSQ, attributes": {
        "weight_unlabelled": (2.0**-4, 2.0**-3),
        "alpha": PENALTIES[:3],
        "evening": (0.0, 0.25, 0.5),
        "attribute_alpha": (0.05, 0.1, 0.2, 0.4),
    },
}


def recommend_ours(
    Y: sp.csr_array,
    k: int,
    *,
    data: Interactions,
    evening: float = 0.0,
    graph_alpha: float = 0.0,
    attribute_alpha: float = 0.0,
    **parameters: Any,
) -> Ranked:
    """Fit and rank; a user's weight is its number of positives to the power of −``evening``.

    Attributes are used as graphs that connect users, and items, with similar attributes; the seconds include the
    construction of the graphs.
    """
    counts = np.diff(Y.indptr) + 5.0
    shared = {"n_components": 64, "tol": 5e-3, "random_state": 0, "graph_alpha": graph_alpha or attribute_alpha}
    model = OneClassMF(**(shared | parameters))

    def train() -> None:
        side = {"row_weights": (counts / counts.mean()) ** -evening} if evening else {}
        if graph_alpha:
            side["row_graph"] = data.row_graph
        if attribute_alpha:
            side |= {
                "row_graph": connect_neighbours(data.row_features),
                "label_graph": connect_neighbours(data.label_features),
            }
        model.fit(None, Y, **side)

    _, seconds = timed(train)
    return Ranked(model.recommend(np.arange(Y.shape[0]), k)[0], seconds)


def connect_neighbours(attributes: sp.csr_array, n: int = 10) -> sp.csr_array:
    """Return the symmetric graph that connects each row to the n rows with the largest cosine."""
    unit = normalize(attributes.astype(np.float32))
    cosines = (unit @ unit.T).toarray()
    np.fill_diagonal(cosines, -1)
    nearest = np.argpartition(-cosines, n, axis=1)[:, :n]
    rows = np.repeat(np.arange(len(cosines)), n)
    graph = sp.csr_array((np.ones(rows.size), (rows, nearest.ravel())), shape=cosines.shape)
    return graph.maximum(graph.T)


def our_methods(data: Interactions) -> Iterator[Method]:
    """Yield labelgap's methods: SQ-wSQ, LR-wSQ, LR-wSQ with a graph of users, and with graphs of attributes."""
    for name, grid in OUR_GRIDS.items():
        yield Method(f"labelgap {name}", partial(recommend_each, data), grid)


def recommend_each(data: Interactions, Y: Any, k: int, settings: Sequence[dict[str, Any]]) -> list[Ranked]:
    """Fit and rank with each of the settings."""
    return [recommend_ours(Y, k, data=data, **each) for each in settings]


def report(results_by_method: dict[str, list[Result]], n_splits: int) -> None:
    """Print the measures, and the leads over the other package with the best nDCG@5, or over the first method."""
    peers = [name for name in results_by_method if not name.startswith("labelgap")] or list(results_by_method)[:1]
    reference = max(peers, key=lambda name: values(results_by_method[name], "nDCG@5").mean())
    header = ["method", "train s", *MEASURES, *(f"lead, {measure}" for measure in MEASURES)]
    rows = [
        [name, f"{values(results, 'seconds').mean():.3f}", *figures(results, MEASURES)]
        + ([] if name == reference else lead(results, results_by_method[reference], MEASURES))
        for name, results in results_by_method.items()
    ]
    show(f"ml-100k, ratings of 4 and 5, mean of {n_splits} splits; leads over {reference}", header, rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument(
        "--methods", nargs="*", default=[""], help="parts of the names of the methods to run (default: all)"
    )
    parser.add_argument("--peers", default=PEER_PYTHON, help="the Python of the other packages")
    options = parser.parse_args(arguments)
    data = load_interactions("ml-100k")
    positives = data.positives(4.0)
    splits = [Split(*hold_out_positives(positives, 0.1, random_state=seed)) for seed in range(options.splits)]
    known = [*peer_methods(data, options.peers), *our_methods(data)]
    methods = [method for method in known if any(part in method.name for part in options.methods)]
    if not methods:
        raise SystemExit(
            f"None of {options.methods} can run here; available methods are {[method.name for method in known]}."
        )
    report({method.name: measure(method, splits) for method in methods}, options.splits)


if __name__ == "__main__":
    main()
