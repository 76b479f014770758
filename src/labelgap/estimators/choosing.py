"""The estimator that a Tagger fits if the user names none."""

from __future__ import annotations

from typing import Any

import numpy as np

from labelgap.estimators.base import MultiLabelEstimator
from labelgap.estimators.binary_relevance import BinaryRelevance
from labelgap.metrics import PrecisionAtK
from labelgap.observations import Labels
from labelgap.runtime import progress, scope

ALPHAS = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0]
FIRST_ALPHA = 2  # position in ALPHAS
DEPTHS = (1, 3, 5)
MIN_SEARCH_ROWS = 50  # fewer rows leave too little to hold out for a search
HELD_OUT_SHARE, MAX_HELD_OUT = 0.2, 3000  # rows for the choice of the penalty
SEED = 0  # of the held-out rows; a choice is the same in every run


def choose_estimator(
    X: Any, labels: Labels, *, positives_only: bool, n_jobs: int | None = None
) -> MultiLabelEstimator:
    """Return an unfitted estimator for validated rows and labels.

    If only positives are known, that is ridge regression on all cells (squared loss with the target 0 for an absent
    label, the one-class problem with weight 1): its ranking suffers little when labels are missing, and its penalty
    is chosen on held-out rows, stronger where more is missing. Otherwise it is one-vs-all with the default loss of
    :class:`BinaryRelevance`.

    >>> choose_estimator(np.eye(2), Labels([[1, 0], [0, 1]]), positives_only=False)
    BinaryRelevance()
    """
    if not positives_only:
        return BinaryRelevance(n_jobs=n_jobs)
    estimator = BinaryRelevance(loss="squared", n_jobs=n_jobs)
    if not labels.complete or len(labels) < MIN_SEARCH_ROWS:
        return estimator
    return estimator.set_params(alpha=choose_alpha(estimator, X, labels))


def choose_alpha(estimator: Any, X: Any, labels: Labels) -> float:
    """Return the penalty of ``ALPHAS`` that ranks held-out rows best, by the geometric mean of P@1, P@3 and P@5.

    The penalty rises from 1 while the score does, or else falls.
    """
    order = np.random.RandomState(SEED).permutation(len(labels))
    size = min(round(HELD_OUT_SHARE * len(labels)), MAX_HELD_OUT)
    held_out, train = np.sort(order[:size]), np.sort(order[size:])
    scores: dict[int, float] = {}

    def score(position: int) -> float:
        if position not in scores:
            model = BinaryRelevance(**estimator.get_params()).set_params(alpha=ALPHAS[position])
            with scope(f"penalty {ALPHAS[position]}"):
                model.fit(X[train], labels[train])
            scores[position] = _rank_quality(model, X[held_out], labels[held_out])
            advance(f"{ALPHAS[position]:g}: {scores[position]:.4f}")
        return scores[position]

    with progress(None, "Penalty", 0) as advance:
        best = FIRST_ALPHA
        for step in (1, -1):
            while 0 <= best + step < len(ALPHAS) and score(best + step) > score(best):
                best += step
            if best != FIRST_ALPHA:
                break
    return ALPHAS[best]


def _rank_quality(model: MultiLabelEstimator, X: Any, labels: Labels) -> float:
    """Return the geometric mean of P@1, P@3 and P@5."""
    depths = [k for k in DEPTHS if k <= labels.shape[1]]
    ranking = model.predict_topk(X, max(depths))
    values = [PrecisionAtK(k).update(labels, ranking).compute() for k in depths]
    return float(np.exp(np.mean(np.log(np.maximum(np.nan_to_num(values), 1e-6)))))
