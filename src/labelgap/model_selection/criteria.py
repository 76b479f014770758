"""What candidates are compared by, over known cells only."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.losses import Loss, Squared, get_loss
from labelgap.metrics import F1, Batch, HammingLoss, InstanceAUC, Metric, NDCGAtK, PrecisionAtK, RecallAtK
from labelgap.metrics.base import Ratio
from labelgap.observations import Labels, as_labels

BLOCK_CELLS = 1 << 24


class MeanLoss(Ratio):
    """The mean loss of known cells, Σ ℓ(Y_ij, s_ij) / |Ω|, with s the decision value plus the loss's threshold.

    Parameters
    ----------
    loss : str or Loss
        See :func:`labelgap.losses.get_loss`.

    Examples
    --------
    A decision value of 0.1 is a squared-loss score of 0.6: ½ 0.4² for a positive.

    >>> round(MeanLoss("squared").update([[1, np.nan]], [[0.1, 0.0]]).compute(), 4)
    0.08
    """

    greater_is_better = False

    def __init__(self, loss: str | Loss) -> None:
        self.loss = get_loss(loss)

    def _statistics(self, batch: Batch) -> NDArray[np.float64]:
        known, loss, value = batch.known_scores(), self.loss, self.loss.functions().value
        scores = known.values.astype(np.float64) + loss.threshold
        of_positives = known.of_positives.astype(np.float64) + loss.threshold
        # As if every cell were negative, then the positives put right.
        total = value(loss.negative, scores).sum()
        total += (value(loss.positive, of_positives) - value(loss.negative, of_positives)).sum()
        return np.array([total, scores.size], np.float64)


@dataclass(frozen=True)
class Criterion:
    """What candidates are compared by: a metric or a function of (labels, scores), and which end is good."""

    measure: Metric | Callable[[Labels, Any], float]
    greater_is_better: bool = True

    def of(self, estimator: Any, X: Any, labels: Labels, seen: sp.csr_array | None = None) -> float:
        """Measure a fitted estimator on known cells; those that it has ``seen`` as positives do not count."""
        if not isinstance(self.measure, Metric):
            labels = _unseen(labels, seen)
            return float(self.measure(labels, _cell_scores(estimator, X, labels)))
        metric = self.measure.fresh()
        for part, scores in score_batches(estimator, X, labels, metric.depth, seen):
            metric.update(part, scores)
        return metric.compute()

    def regrets(self, scores: Sequence[float] | NDArray) -> NDArray[np.float64]:
        """Return how far each score falls short of the best, as a share of the best; infinity for NaN.

        >>> get_criterion("Hamming").regrets([0.25, 0.2, np.nan])
        array([0.25, 0.  ,  inf])
        """
        signed = np.array(scores, float) * (1 if self.greater_is_better else -1)
        best = np.nanmax(signed, initial=-np.inf)
        scale = abs(best) if np.isfinite(best) and best != 0 else 1.0
        return np.where(np.isnan(signed), np.inf, (best - signed) / scale)


_AT_K: dict[str, Callable[[int], Metric]] = {"P": PrecisionAtK, "nDCG": NDCGAtK, "recall": RecallAtK}
_NAMED: dict[str, Callable[[], Metric]] = {
    "AUC": InstanceAUC,
    "F1": F1,
    "Hamming": HammingLoss,
    "squared error": lambda: MeanLoss(Squared()),
}


def get_criterion(metric: Any, estimator: Any = None) -> Criterion:
    """Return the criterion that ``metric`` names.

    Parameters
    ----------
    metric : str, Metric or callable
        "P@k", "nDCG@k" or "recall@k" with a number for k, "AUC", "F1", "Hamming", "squared error" (of 0/1 targets),
        or "loss": the mean of the estimator's own loss. A callable takes (labels, scores); more is better.
    estimator : estimator, optional
        Whose loss "loss" is; in a pipeline that of the last step.

    Examples
    --------
    >>> get_criterion("P@3")
    Criterion(measure=PrecisionAtK(k=3, empty='skip'), greater_is_better=True)
    >>> get_criterion("Hamming").greater_is_better
    False
    """
    if isinstance(metric, Criterion):
        return metric
    if isinstance(metric, Metric):
        return Criterion(metric, metric.greater_is_better)
    if callable(metric):
        return Criterion(metric)
    at_k = re.fullmatch(r"(\w+)@(\d+)", str(metric))
    if at_k and at_k[1] in _AT_K:
        return get_criterion(_AT_K[at_k[1]](int(at_k[2])))
    if metric == "loss":
        return get_criterion(MeanLoss(_loss_of(estimator)))
    if metric not in _NAMED:
        names = [f"{name}@k" for name in _AT_K] + [*_NAMED, "loss"]
        raise ValueError(f"metric={metric!r} is not known; use one of {', '.join(names)}, a Metric or a callable.")
    return get_criterion(_NAMED[metric]())


def largest_regrets(criteria: Sequence[Criterion], scores: Any) -> NDArray[np.float64]:
    """Return each candidate's largest regret, from an array of scores with a row for each.

    A metric that is undefined for all of them has no say.
    """
    scores = np.array(scores, float).reshape(-1, len(criteria))
    defined = [c for c in range(len(criteria)) if not np.isnan(scores[:, c]).all()]
    if not defined:
        return np.full(len(scores), np.inf)
    return np.max([criteria[c].regrets(scores[:, c]) for c in defined], axis=0)


def last_step(estimator: Any) -> Any:
    """Return the estimator itself, or the last step of a pipeline, which may be one too: what meets the labels."""
    while hasattr(estimator, "steps"):
        estimator = estimator[-1]
    return estimator


def labels_for(estimator: Any, Y: Any, observed: Any = None) -> Labels:
    """Return labels of any form as an estimator reads them; a Tagger does so itself, whatever is within it."""
    return as_labels(Y, observed, getattr(last_step(estimator), "absent", "negative"))


def _loss_of(estimator: Any) -> Loss:
    last = last_step(estimator)
    loss = getattr(last, "loss", None)
    if loss is None:
        raise ValueError(f"metric='loss' needs an estimator with a loss, and {type(last).__name__} has none.")
    return get_loss(loss)


def _cell_scores(estimator: Any, X: Any, labels: Labels) -> Any:
    """Return decision values at the known cells where the estimator can give only these, else all."""
    if not labels.complete and hasattr(estimator, "known_scores"):
        return estimator.known_scores(X, labels)
    return estimator.decision_function(X)


def score_batches(
    estimator: Any, X: Any, labels: Labels, depth: int = 0, seen: sp.csr_array | None = None
) -> Iterator[tuple[Labels, Any]]:
    """Yield labels and scores, as little of the n×L scores at a time as the metric's depth allows.

    Cells that are stored in ``seen`` are neither ranked nor counted.
    """
    n, L = labels.shape
    if labels.complete and depth > 0 and hasattr(estimator, "predict_topk"):
        yield labels, _best_unseen(estimator, X, min(depth, L), seen)
        return
    rows = max(1, BLOCK_CELLS // max(1, L))
    for start in range(0, n, rows):
        part = _unseen(labels[start : start + rows], None if seen is None else seen[start : start + rows])
        yield part, _cell_scores(estimator, X[start : start + rows], part)


def _best_unseen(estimator: Any, X: Any, k: int, seen: sp.csr_array | None) -> tuple[NDArray, NDArray]:
    """Return the k best labels of each row and their scores, less those seen; −1 where fewer are left."""
    if seen is None:
        return estimator.predict_topk(X, k)
    deep = min(k + int(np.diff(seen.indptr).max(initial=0)), seen.shape[1])
    indices, scores = estimator.predict_topk(X, deep)
    old = Batch(Labels.of_patterns(seen), (indices, scores)).ranking(deep).hits
    new_first = np.argsort(old, axis=1, kind="stable")[:, :k]
    indices, scores, old = (np.take_along_axis(array, new_first, 1) for array in (indices, scores, old))
    return np.where(old, -1, indices), scores


def _unseen(labels: Labels, seen: sp.csr_array | None) -> Labels:
    """Return labels in which the cells seen are unknown."""
    if seen is None:
        return labels
    known = np.ones(labels.shape, bool) if labels.known is None else labels.known.toarray()
    known[seen.nonzero()] = False
    return Labels.of_patterns(labels.positives, sp.csr_array(known), labels.container)
