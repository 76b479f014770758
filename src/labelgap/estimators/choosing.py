"""The chooser: the estimator that a Tagger fits if the user names none, found on held-out rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelgap.checkpoints import checkpoint_call
from labelgap.estimators.base import MultiLabelEstimator
from labelgap.estimators.binary_relevance import BinaryRelevance
from labelgap.estimators.label_models import FoldRidge, LabelSettings, RidgeParts
from labelgap.estimators.leml import LEML
from labelgap.estimators.one_class import OneClassMF
from labelgap.estimators.scores import BlockScores, Scores
from labelgap.kernels import Backend
from labelgap.observations import Labels
from labelgap.runtime import progress, scope

ALPHAS = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
FIRST_ALPHA = 4  # position in ALPHAS
POWERS = [0.0, 0.15, 0.3, 0.45, 0.6]  # of label frequencies
PRIOR_WEIGHTS = [0.0, 0.1, 0.2, 0.4, 0.8, 1.6]
DEPTHS = (1, 3, 5)
MAX_WEIGHTS = 1 << 29  # of one-vs-all, features × labels
MIN_SEARCH_ROWS = 50  # fewer rows leave too little to hold out for a search
N_FOLDS, MAX_HELD_OUT = 5, 3000  # folds are held out until this number of rows is scored
MAX_CELLS = 5 * 10**7  # held-out rows times labels, which are in memory
SEARCH_TOL = 0.03  # of regressions by conjugate gradients: rankings of held-out rows need no more
SEED = 0  # of the folds; a choice is the same in every run


class HeldOutPart(NamedTuple):
    """Rows of the training set, and their scores by a model that was fitted without them."""

    rows: NDArray
    scores: Scores


class Choice(NamedTuple):
    """A chosen estimator, unfitted, with the weight of the prior, and the candidates with their scores.

    ``score_held_out`` returns the parts of held-out rows with their scores by the chosen one; None if a calibration
    needs fits of its own.
    """

    estimator: MultiLabelEstimator
    prior_weight: float = 0.0
    report: tuple[dict[str, float], ...] = ()
    score_held_out: Callable[[], list[HeldOutPart]] | None = None


class GridScores(NamedTuple):
    """The scores of all powers (rows) and prior weights (columns) for a penalty, as a checkpoint stores them."""

    scores: NDArray[np.float64]


def choose_estimator(
    X: Any, labels: Labels, *, prior: Any = None, weights: NDArray | None = None, n_jobs: int | None = None
) -> Choice:
    """Return the estimator for validated rows and labels, and weights of rows if there are any.

    If labels are complete, or only positives are known, that is ridge regression on all cells (squared loss with the
    target 0 for an absent label, the one-class problem with weight 1). Held-out rows choose, by the geometric mean
    of P@1, P@3 and P@5: its penalty, which is stronger where more labels are missing; the power of label frequencies;
    and the weight of ``prior`` (L×d), such as the features of the names of labels. With unknown cells, it is
    one-vs-all with the default loss of :class:`BinaryRelevance`. Where the weights of all labels would take more than
    2 GB, it is a low-rank model: :class:`OneClassMF`, or :class:`LEML` with unknown cells.

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
    search = RidgeSearch(X, labels, prior, estimator._settings(), estimator._kernels(), weights)
    alpha, power, weight = search.run()
    estimator.set_params(alpha=alpha, frequency_power=power)
    # One fold of rough solutions is enough for a choice, and too little for a calibration.
    score_held_out = partial(search.score_held_out, alpha, power, weight) if search.is_exact else None
    return Choice(estimator, weight, tuple(search.report), score_held_out)


class RidgeSearch:
    """Search for the penalty, the power of label frequencies and the weight of the prior that rank best.

    The penalty rises from 4 while the score does, or else falls. For one penalty, the scores of all powers and
    weights are sums of two regressions, of labels and of the prior.
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
        self.is_exact = self._ridge.is_exact
        self._folds = self._split()
        self._parts: dict[float, list[RidgeParts]] = {}  # of the best penalty so far
        self.report: list[dict[str, float]] = []
        self._scores: dict[int, NDArray] = {}

    def run(self) -> tuple[float, float, float]:
        """Return the best penalty, power and weight."""
        with progress(None, "Choosing", 0) as advance:

            def best_of(position: int) -> float:
                if position not in self._scores:
                    self._scores[position] = self._score(ALPHAS[position])
                    advance(f"penalty {ALPHAS[position]:g}: {self._scores[position].max():.4f}")
                return float(self._scores[position].max())

            best = FIRST_ALPHA
            for step in (1, -1):
                while 0 <= best + step < len(ALPHAS) and best_of(best + step) > best_of(best):
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
        shape, depths = (len(POWERS), len(self.weights)), [min(k, self.labels.shape[1]) for k in DEPTHS]
        hits, n_rows, scored = np.zeros((*shape, len(DEPTHS))), 0, []
        for held_out, parts in zip(self._folds, self._score_folds(alpha), strict=True):
            positive = self.labels[held_out].positives
            n_rows, truth = n_rows + int(np.count_nonzero(np.diff(positive.indptr))), positive.toarray()
            for place in np.ndindex(shape):
                hits[place] += self._count_hits(parts, truth, place, depths)
            scored.append(parts)
        precisions = np.maximum(hits / (max(n_rows, 1) * np.array(depths)), 1e-6)
        scores = np.exp(np.log(precisions).mean(axis=-1))
        if scores.max() >= max((stored.max() for stored in self._scores.values()), default=0.0):
            self._parts = {alpha: scored}
        return GridScores(scores)

    def _score_folds(self, alpha: float) -> Iterator[RidgeParts]:
        ridge = self._ridge.with_alpha(alpha)
        yield from map(ridge.score, self._folds)

    def score_held_out(self, alpha: float, power: float, weight: float) -> list[HeldOutPart]:
        """Return the scores of held-out rows by regressions without them."""
        parts = self._parts[alpha] if alpha in self._parts else self._score_folds(alpha)
        threshold = self.settings.dtype(self.settings.loss.threshold)
        scores = [part.combine(power, weight) - threshold for part in parts]
        return [
            HeldOutPart(rows, BlockScores(partial(iter, [block]), self.kernels))
            for rows, block in zip(self._folds, scores, strict=True)
        ]

    def _split(self) -> list[NDArray]:
        """Return the rows of up to five folds, which hold about 3,000 rows, or fewer if there are many labels.

        Without a factorisation that folds share there is only one.
        """
        n, n_labels = self.labels.shape
        limit = int(np.clip(MAX_CELLS // n_labels, MIN_SEARCH_ROWS, MAX_HELD_OUT))
        size = min(-(-n // N_FOLDS), limit)
        n_folds = min(-(-limit // size), N_FOLDS) if self.is_exact else 1
        order = np.random.RandomState(SEED).permutation(n)
        return [np.sort(order[start : start + size]) for start in range(0, min(n_folds * size, n), size)]

    def _count_hits(
        self, parts: RidgeParts, truth: NDArray, place: tuple[int, ...], depths: list[int]
    ) -> NDArray[np.float64]:
        """Return the numbers of positives among the best labels of rows, for each depth."""
        scores = parts.combine(POWERS[place[0]], self.weights[place[1]])
        best, _ = self.kernels.best_in_rows(scores, max(depths))
        counts = np.take_along_axis(truth, best, 1).sum(axis=0).cumsum()
        return np.array([counts[k - 1] for k in depths], float)
