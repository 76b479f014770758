"""Criteria by which candidates are compared; only known cells count."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.estimators import as_labels_for, get_final_estimator
from labelgap.losses import Loss, Squared, get_loss
from labelgap.metrics import F1, Batch, HammingLoss, InstanceAUC, Metric, NDCGAtK, PrecisionAtK, RecallAtK
from labelgap.metrics.base import Ratio
from labelgap.observations import Labels
from labelgap.observations.arguments import Array, MatrixLike
from labelgap.runtime import row_blocks

MAX_SCORES_PER_BLOCK = 1 << 24


class MeanLoss(Ratio):
    """The mean loss of known cells, Σ ℓ(Y_ij, s_ij) / |Ω|, with s the decision value plus the loss's threshold.

    Parameters
    ----------
    loss : str or Loss
        The loss, see :func:`labelgap.losses.get_loss`.

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
        positive_scores = known.positive_scores.astype(np.float64) + loss.threshold
        # The loss of all cells as negatives, then the correction for the positives.
        total = value(loss.negative, scores).sum()
        total += (value(loss.positive, positive_scores) - value(loss.negative, positive_scores)).sum()
        return np.array([total, scores.size], np.float64)


@dataclass(frozen=True)
class Criterion:
    """A measure by which candidates are compared.

    Attributes
    ----------
    measure : Metric or callable
        A metric, or a function of (labels, scores).
    greater_is_better : bool or None
        Whether a greater value is better; None if the value is recorded and does not decide.
    """

    measure: Metric | Callable[[Labels, Any], float]
    greater_is_better: bool | None = True

    def score(self, estimator: Any, X: MatrixLike, labels: Labels, seen: sp.csr_array | None = None) -> float:
        """Return the measure of a fitted estimator on known cells, without the cells stored in ``seen``."""
        if not isinstance(self.measure, Metric):
            labels = _hide_seen(labels, seen)
            return float(self.measure(labels, _score_cells(estimator, X, labels)))
        metric = self.measure.fresh()
        for part, scores in score_batches(estimator, X, labels, metric.depth, seen):
            metric.update(part, scores)
        return metric.compute()


_AT_K: dict[str, Callable[[int], Metric]] = {"P": PrecisionAtK, "nDCG": NDCGAtK, "recall": RecallAtK}
_NAMED: dict[str, Callable[[], Metric]] = {
    "AUC": InstanceAUC,
    "F1": F1,
    "Hamming": HammingLoss,
    "squared error": lambda: MeanLoss(Squared()),
}


def get_criterion(metric: Any, estimator: Any = None) -> Criterion:
    """Return the criterion for a metric.

    Parameters
    ----------
    metric : str, Metric or callable
        The name of a metric: "P@k", "nDCG@k" or "recall@k" with a number for k, "AUC", "F1", "Hamming", "squared
        error" (of 0/1 targets), or "loss", the mean of the estimator's own loss. A callable takes (labels, scores)
        and returns a number; greater is better.
    estimator : estimator, optional
        The estimator, or a pipeline that ends with it, whose loss is used for "loss".

    Returns
    -------
    Criterion

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
        return get_criterion(MeanLoss(_get_loss_of(estimator)))
    if metric not in _NAMED:
        names = [f"{name}@k" for name in _AT_K] + [*_NAMED, "loss"]
        raise ValueError(f"metric={metric!r} is not known; use one of {', '.join(names)}, a Metric or a callable.")
    return get_criterion(_NAMED[metric]())


@dataclass(frozen=True)
class Scorer:
    """A scorer for ``scoring=`` of scikit-learn that ignores unknown cells; greater is better."""

    criterion: Criterion

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        """Return the score of a fitted estimator on rows X with labels y of any form."""
        value = self.criterion.score(estimator, X, as_labels_for(estimator, y))
        return value if self.criterion.greater_is_better else -value


def get_scorer(metric: Any) -> Scorer:
    """Return a scorer for ``scoring=`` of scikit-learn's searches and cross-validation.

    Unknown cells do not count. Like scikit-learn's scorers, it returns negative values for losses.

    Parameters
    ----------
    metric : str, Metric or callable
        As in :func:`labelgap.tune`: "P@k", "nDCG@k", "recall@k", "AUC", "F1", "Hamming" …

    Examples
    --------
    >>> from sklearn.model_selection import cross_val_score
    >>> from labelgap import LEML, hide_cells
    >>> from labelgap.datasets import make_low_rank
    >>> data = make_low_rank(200, 10, 8, rank=3, random_state=0)
    >>> Y = hide_cells(data.Y, 0.5, random_state=0)
    >>> bool(cross_val_score(LEML(3, random_state=0), data.X, Y, scoring=get_scorer("P@1")).mean() > 0.8)
    True
    """
    return Scorer(get_criterion(metric))


def is_metric_sequence(metric: Any) -> bool:
    """Return whether a parameter ``metric`` holds a sequence of metrics."""
    return isinstance(metric, Sequence) and not isinstance(metric, str)


def get_criteria(metric: Any, estimator: Any = None) -> list[Criterion]:
    """Return the criteria for one metric or for a sequence of metrics."""
    return [get_criterion(each, estimator) for each in (metric if is_metric_sequence(metric) else [metric])]


def name_metrics(metric: Any) -> list[str]:
    """Return the names of one metric or of a sequence of metrics."""
    metrics = metric if is_metric_sequence(metric) else [metric]
    return [each if isinstance(each, str) else getattr(each, "__name__", repr(each)) for each in metrics]


def _get_loss_of(estimator: Any) -> Loss:
    last = get_final_estimator(estimator)
    loss = getattr(last, "loss", None)
    if loss is None:
        raise ValueError(f"metric='loss' needs an estimator with a loss, and {type(last).__name__} has none.")
    return get_loss(loss)


def _score_cells(estimator: Any, X: Any, labels: Labels, *, ranked: bool = False) -> Any:
    """Return decision values: those of the known cells only if the estimator supports it, else all.

    With ``ranked`` they are scores, so that rankings do not depend on thresholds.
    """
    if not labels.complete and hasattr(estimator, "known_scores"):
        return estimator.known_scores(X, labels, ranked=ranked)
    return estimator.decision_function(X)


def score_batches(
    estimator: Any, X: Array, labels: Labels, depth: int = 0, seen: sp.csr_array | None = None
) -> Iterator[tuple[Labels, Any]]:
    """Yield batches of labels and scores of a fitted estimator without the n×L scores in memory.

    Parameters
    ----------
    estimator : fitted estimator
        Any estimator with ``decision_function``.
    X, labels : rows and Labels
        The rows and their true labels.
    depth : int, default=0
        Number of top labels of each row that are needed; 0 for the scores of all known cells.
    seen : sparse array of shape (n, L), optional
        Cells that are neither ranked nor counted: those stored here.
    """
    n, L = labels.shape
    if labels.complete and depth > 0 and hasattr(estimator, "predict_topk"):
        yield labels, _rank_unseen(estimator, X, min(depth, L), seen)
        return
    for rows in row_blocks(n, L, MAX_SCORES_PER_BLOCK):
        part = _hide_seen(labels[rows], None if seen is None else seen[rows])
        yield part, _score_cells(estimator, X[rows], part, ranked=depth > 0)


def _rank_unseen(estimator: Any, X: Any, k: int, seen: sp.csr_array | None) -> tuple[NDArray, NDArray]:
    """Return the k best labels of each row that are not seen, and their scores; −1 where fewer are left."""
    if seen is None:
        indices, scores = estimator.predict_topk(X, k)
        # Labels are in the order of their scores; less a threshold for each label, values need not fall.
        return indices, np.minimum.accumulate(scores, axis=1)
    depth = min(k + int(np.diff(seen.indptr).max(initial=0)), seen.shape[1])
    indices, scores = estimator.predict_topk(X, depth)
    scores = np.minimum.accumulate(scores, axis=1)
    is_seen = Batch(Labels.of_patterns(seen), (indices, scores)).ranking(depth).hits
    unseen_first = np.argsort(is_seen, axis=1, kind="stable")[:, :k]
    indices, scores, is_seen = (np.take_along_axis(array, unseen_first, 1) for array in (indices, scores, is_seen))
    return np.where(is_seen, -1, indices), scores


def _hide_seen(labels: Labels, seen: sp.csr_array | None) -> Labels:
    """Return labels in which the cells stored in ``seen`` are unknown."""
    if seen is None:
        return labels
    known = np.ones(labels.shape, bool) if labels.known is None else labels.known.toarray()
    known[seen.nonzero()] = False
    return Labels.of_patterns(labels.positives, sp.csr_array(known), labels.container)
