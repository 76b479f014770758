"""The search of :class:`OneClassMFCV`: a warm-started ridge, then fits from the start around its top."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelgap.estimators import OneClassMF
from labelgap.estimators.low_rank import fit_bound
from labelgap.kernels import Backend
from labelgap.metrics import Metric
from labelgap.model_selection.walk import Point, Walk
from labelgap.objectives.problem import BoundData, Iteration, is_nonzero
from labelgap.observations import Labels
from labelgap.runtime import progress
from labelgap.solvers.base import LinearMap

STARTS = {"weight_unlabelled": 2.0**-5, "alpha": 0.5, "graph_alpha": 1.0, "negative_ratio": 1.0}
PATIENCE = 2  # alternations without a better score after which a fit from the start is given up
KEPT = 8  # points whose factors are kept for their neighbours to start from


@dataclass(frozen=True)
class Judge:
    """Ranks held-out rows, or the training rows less what they were trained on, by their held-out positives."""

    rows: LinearMap
    right: LinearMap
    held_out: Labels
    seen: Any
    metrics: tuple[Metric, ...]
    kernels: Backend

    def __call__(self, W: NDArray, H: NDArray) -> float:
        """Return the geometric mean of the metrics, in which each has the same say whatever its scale."""
        depth = min(max(metric.depth for metric in self.metrics), self.held_out.shape[1])
        ranking = self.kernels.topk(self.rows.times(W), self.right.times(H), depth, self.seen)
        values = [metric.fresh().update(self.held_out, ranking).compute() for metric in self.metrics]
        return float(np.exp(np.mean(np.log(np.maximum(values, 1e-6)))))


def fit_quietly(
    estimator: OneClassMF, material: BoundData, start: tuple[NDArray, NDArray] | None = None
) -> tuple[NDArray, NDArray]:
    """Fit and return the factors; a number of alternations that was chosen on purpose is no cause for a warning."""
    fit = None
    if start is not None and is_nonzero(*start):
        fit = estimator._problem(material).factors(*start, np.dtype(estimator.dtype))
    ended = fit_bound(estimator, material, fit)
    if ended.interrupt is not None:
        raise ended.interrupt
    previous = estimator._previous()
    return previous.W, previous.H


class Search:
    """The walk over the candidates, then the number of alternations."""

    def __init__(
        self,
        estimator: OneClassMF,
        axes: dict[str, list[float]],
        folds: Iterable[tuple[BoundData, Judge]],
        path_iter: int,
        verbose: int = 0,
    ) -> None:
        self.estimator, self.axes, self.folds = estimator.set_params(verbose=0), axes, list(folds)
        self.path_iter, self.max_iter, self.verbose = path_iter, estimator.max_iter, verbose
        self.table: list[dict[str, Any]] = []
        self._factors: dict[Point | None, list[tuple[NDArray, NDArray]]] = {}

    def run(self) -> None:
        """Find the parameters and their score."""
        start = tuple(
            min(range(len(values)), key=lambda i: abs(np.log(max(values[i], 1e-300) / STARTS[name])))
            for name, values in self.axes.items()
        )
        sizes = [len(values) for values in self.axes.values()]
        with progress(None, "OneClassMFCV", self.verbose) as self._advance:
            near = Walk(sizes, self._warm_score).follow_ridge(start)
            Walk(sizes, self._cold_score).climb(near)
        best = max((row for row in self.table if not row["warm"]), key=lambda row: row["score"])
        self.params, self.score = best["params"] | {"max_iter": best["max_iter"]}, best["score"]

    def _params(self, point: Point) -> dict[str, Any]:
        return {name: values[i] for (name, values), i in zip(self.axes.items(), point)}

    def _warm_score(self, point: Point, near: Point | None) -> float:
        """Fit from the neighbour's factors and return the mean score over the splits."""
        found, scores, starts = [], [], self._factors.get(near)
        self.estimator.set_params(**self._params(point), max_iter=self.path_iter)
        for number, (material, judge) in enumerate(self.folds):
            found.append(fit_quietly(self.estimator, material, None if starts is None else starts[number]))
            scores.append(judge(*found[-1]))
        self._factors[point] = found
        if len(self._factors) > KEPT:
            del self._factors[next(iter(self._factors))]
        return self._note(point, float(np.mean(scores)), warm=True)

    def _cold_score(self, point: Point, near: Point | None) -> float:
        """Fit from the start, judge after each alternation, and return the best mean score over the splits."""
        self.estimator.set_params(**self._params(point), max_iter=self.max_iter)
        curves = [self._curve(material, judge) for material, judge in self.folds]
        longest = max(len(curve) for curve in curves)
        mean = np.mean([curve + curve[-1:] * (longest - len(curve)) for curve in curves], axis=0)
        return self._note(point, float(mean.max()), warm=False, max_iter=int(np.argmax(mean)) + 1)

    def _note(self, point: Point, score: float, **more: Any) -> float:
        params = self._params(point)
        self.table.append({"point": point, "params": params, "score": score, **more})
        self._advance(f"{params}: {score:.4f}")
        return score

    def _curve(self, material: BoundData, judge: Judge) -> list[float]:
        scores: list[float] = []

        def note(told: Iteration) -> bool:
            scores.append(judge(told.feature_factors, told.label_factors))
            return len(scores) - int(np.argmax(scores)) > PATIENCE

        self.estimator.set_params(callbacks=[note])
        fit_quietly(self.estimator, material)
        self.estimator.set_params(callbacks=None)
        return scores
