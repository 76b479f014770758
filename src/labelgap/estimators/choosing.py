"""The chooser: the estimator that a Tagger fits if the user names none, found on held-out rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from math import ceil
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelgap.checkpoints import checkpoint_call
from labelgap.estimators.base import MultiLabelEstimator
from labelgap.estimators.binary_relevance import BinaryRelevance
from labelgap.estimators.label_models import FoldRidge, LabelSettings, count_cells, scale_by_frequency
from labelgap.estimators.leml import LEML
from labelgap.estimators.one_class import OneClassMF
from labelgap.estimators.scores import BlockScores, Scores
from labelgap.kernels import Backend
from labelgap.objectives.held_out_ridge import leave_each_out
from labelgap.observations import Labels
from labelgap.runtime import progress, scope

ALPHAS = [2.0**power for power in range(-6, 10)]
FIRST_ALPHA = 8  # position in ALPHAS, of 4
POWERS = [0.0, 0.15, 0.3, 0.45, 0.6]  # of label frequencies
PRIOR_WEIGHTS = [0.0, 0.1, 0.2, 0.4, 0.8, 1.6]
DEPTHS = (1, 3, 5)
MAX_WEIGHTS = 1 << 29  # of one-vs-all, features × labels
MIN_SEARCH_ROWS = 50  # fewer rows leave too little to hold out for a search
MAX_HELD_OUT, MAX_FOLD_SHARE = 3000, 0.2  # rows that are scored; if they are held out at once, their share of all
MAX_CALIBRATED = 10_000  # rows that are left out alone
MAX_CELLS = 5 * 10**7  # held-out rows times labels, of a search and of a calibration
BLOCK_CELLS = 1 << 22  # of a calibration, which are in memory at once
SEARCH_TOL = 0.03  # of regressions by conjugate gradients: rankings of held-out rows need no more
SEED = 0  # of the folds; a choice is the same in every run


class HeldOutPart(NamedTuple):
    """Rows of the training set, and their scores by a model that was fitted without them."""

    rows: NDArray
    scores: Scores


class Choice(NamedTuple):
    """A chosen estimator, unfitted, with the weight of the prior, and the candidates with their scores.

    ``score_held_out`` of the fitted estimator returns rows with their scores by fits without them; None if a
    calibration needs fits of its own. It also takes the factors by which the features of training rows would be
    longer if they were new.
    """

    estimator: MultiLabelEstimator
    prior_weight: float = 0.0
    report: tuple[dict[str, float], ...] = ()
    score_held_out: Callable[[BinaryRelevance, NDArray | None], list[HeldOutPart]] | None = None


class GridScores(NamedTuple):
    """The scores of all powers (rows) and prior weights (columns) for a penalty, as a checkpoint stores them."""

    scores: NDArray[np.float64]


def choose_estimator(
    X: Any,
    labels: Labels,
    *,
    prior: Any = None,
    weights: NDArray | None = None,
    n_jobs: int | None = None,
    deadline: float = float("inf"),
) -> Choice:
    """Return the estimator for validated rows and labels, and weights of rows if there are any.

    If labels are complete, or only positives are known, that is ridge regression on all cells (squared loss with the
    target 0 for an absent label, the one-class problem with weight 1). Held-out rows choose, by the geometric mean
    of P@1, P@3 and P@5: its penalty, which is stronger where more labels are missing; the power of label frequencies;
    and the weight of ``prior`` (L×d), such as the features of the names of labels. With unknown cells, it is
    one-vs-all with the default loss of :class:`BinaryRelevance`. Where the weights of all labels would take more than
    2 GB, it is a low-rank model: :class:`OneClassMF`, or :class:`LEML` with unknown cells. After ``deadline``, a time
    of ``time.perf_counter``, no further penalty is tried.

    >>> choose_estimator(np.eye(2), Labels([[1, 0], [0, 1]])).estimator
    BinaryRelevance(loss='squared')
    """
    if X.shape[1] * labels.shape[1] > MAX_WEIGHTS:
        return Choice(OneClassMF(n_jobs=n_jobs) if labels.complete else LEML(n_jobs=n_jobs))
    if not labels.complete:
        return Choice(BinaryRelevance(n_jobs=n_jobs))
    estimator = BinaryRelevance(loss="squared", n_jobs=n_jobs)
    if len(labels) < MIN_SEARCH_ROWS:
        return Choice(estimator)
    search = RidgeSearch(X, labels, prior, estimator._settings(), estimator._part_kernels(), weights)
    alpha, power, weight = search.run(deadline)
    estimator.set_params(alpha=alpha, frequency_power=power)
    return Choice(estimator, weight, tuple(search.report), search.score_held_out)


class RidgeSearch:
    """Search for the penalty, the power of label frequencies and the weight of the prior that rank best.

    The penalty rises from 4 while the score does, or else falls. For one penalty, the scores of all powers and
    weights are sums of two regressions, of labels and of the prior. With a factorisation, each held-out row is scored
    by regressions without this row alone; otherwise by one without all of them.
    """

    def __init__(
        self,
        X: Any,
        labels: Labels,
        prior: Any,
        settings: LabelSettings,
        kernels: Backend,
        weights: NDArray | None = None,
    ) -> None:
        self.labels, self.settings, self.kernels = labels, settings, kernels
        self.weights = [0.0] if prior is None else PRIOR_WEIGHTS
        first = settings._replace(alpha=ALPHAS[FIRST_ALPHA], tol=SEARCH_TOL)
        self._ridge = FoldRidge(X, labels, first, kernels, prior, weights)
        self.X, self._rows = X, self._draw_rows(1.0 if self._ridge.is_exact else MAX_FOLD_SHARE, MAX_HELD_OUT)
        self.report: list[dict[str, float]] = []
        self._scores: dict[int, NDArray] = {}

    def run(self, deadline: float = float("inf")) -> tuple[float, float, float]:
        """Return the best penalty, power and weight of those that were tried until a deadline."""
        with progress(None, "Choosing", 0) as advance:

            def best_of(position: int) -> float:
                if position not in self._scores:
                    self._scores[position] = self._score(ALPHAS[position])
                    advance(f"penalty {ALPHAS[position]:g}: {self._scores[position].max():.4f}")
                return float(self._scores[position].max())

            best = FIRST_ALPHA
            best_of(best)
            for step in (1, -1):
                while 0 <= best + step < len(ALPHAS) and time.perf_counter() < deadline:
                    if best_of(best + step) <= best_of(best):
                        break
                    best += step
                if best != FIRST_ALPHA:
                    break
        power, weight = np.unravel_index(int(self._scores[best].argmax()), self._scores[best].shape)
        return ALPHAS[best], POWERS[power], self.weights[weight]

    def _score(self, alpha: float) -> NDArray[np.float64]:
        """Return the scores of all powers and weights for a penalty."""
        with scope(f"penalty {alpha}"):
            scores = checkpoint_call("grid", partial(self._score_grid, alpha), GridScores).scores
        self.report += [
            {"alpha": alpha, "frequency_power": power, "prior_weight": weight, "score": float(scores[i, j])}
            for i, power in enumerate(POWERS)
            for j, weight in enumerate(self.weights)
        ]
        return scores

    def _score_grid(self, alpha: float) -> GridScores:
        ridge = self._ridge.with_alpha(alpha)
        parts = ridge.score_each(self._rows) if ridge.is_exact else ridge.score(self._rows)
        positive, depths = self.labels[self._rows].positives, [min(k, self.labels.shape[1]) for k in DEPTHS]
        n_rows, truth = int(np.count_nonzero(np.diff(positive.indptr))), positive.toarray()
        hits = np.array(
            [
                [self._count_hits(parts.combine(power, weight), truth, depths) for weight in self.weights]
                for power in POWERS
            ]
        )
        precisions = np.maximum(hits / (max(n_rows, 1) * np.array(depths)), 1e-6)
        return GridScores(np.exp(np.log(precisions).mean(axis=-1)))

    def score_held_out(self, model: BinaryRelevance, lengthening: NDArray | None = None) -> list[HeldOutPart]:
        """Return the scores of held-out rows by fits without each of them, from those of a fit on all rows.

        A fit on fewer rows would have smaller scores. So would a training row itself: some of its words are known
        only because it has them, and count in its length; ``lengthening`` makes up for it.
        """
        rows = self._draw_rows(1.0, MAX_CALIBRATED)  # each is left out alone
        targets = scale_by_frequency(count_cells(self.labels.T)[0], model.frequency_power)
        leverages, threshold = self._ridge.with_alpha(model.alpha).find_leverages(rows), self.settings.loss.threshold

        def score_blocks() -> Iterator[NDArray]:
            for part in np.array_split(np.arange(len(rows)), ceil(len(rows) * self.labels.shape[1] / BLOCK_CELLS)):
                block = rows[part]
                fitted = model._scores(self.X[block]).dense() + threshold
                truth = self.labels[block].positives.toarray() * targets
                scores = leave_each_out(fitted, truth, leverages[part]) - threshold
                if lengthening is not None:
                    scores += (lengthening[block, None] - 1) * (scores - model.intercept_)
                yield scores

        return [HeldOutPart(rows, BlockScores(score_blocks, self.kernels))]

    def _draw_rows(self, share: float, most: int) -> NDArray:
        """Return a share of all rows, at most ``most``, or fewer if there are many labels."""
        n, n_labels = self.labels.shape
        size = min(ceil(share * n), int(np.clip(MAX_CELLS // n_labels, MIN_SEARCH_ROWS, most)))
        return np.sort(np.random.RandomState(SEED).permutation(n)[:size])

    def _count_hits(self, scores: NDArray, truth: NDArray, depths: list[int]) -> NDArray[np.float64]:
        """Return the numbers of positives among the best labels of rows, for each depth."""
        kernels = self.kernels
        best = kernels.to_numpy(kernels.best_in_rows(kernels.array(scores, scores.dtype), max(depths))[0])
        counts = np.take_along_axis(truth, best, 1).sum(axis=0).cumsum()
        return np.array([counts[k - 1] for k in depths], float)
