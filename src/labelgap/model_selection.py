"""Splits that hold out rows or cells, and tuning that never looks outside the known cells."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid, train_test_split
from sklearn.utils import check_random_state

from labelgap.losses import Loss, Squared, get_loss
from labelgap.metrics import F1, Batch, HammingLoss, InstanceAUC, Metric, NDCGAtK, PrecisionAtK, RecallAtK
from labelgap.metrics.base import Ratio
from labelgap.observations import Labels, as_labels, hold_out_cells

BLOCK_CELLS = 1 << 24


def hold_out_rows(X: Any, Y: Any, share: float = 0.2, random_state: Any = None) -> tuple[Any, Labels, Any, Labels]:
    """Split rows in two at random: those to train on, and a ``share`` of them to validate on.

    Returns
    -------
    X_train, Y_train, X_valid, Y_valid
        The labels as :class:`labelgap.Labels`, with the gaps they had.

    Examples
    --------
    >>> X_train, Y_train, X_valid, Y_valid = hold_out_rows(np.eye(10), np.eye(10), 0.3, random_state=0)
    >>> len(X_train), len(Y_valid)
    (7, 3)
    """
    _check_share(share)
    labels = as_labels(Y)
    X_train, X_valid, Y_train, Y_valid = train_test_split(X, labels, test_size=share, random_state=random_state)
    return X_train, Y_train, X_valid, Y_valid


class CellKFold:
    """Folds of known cells: each is held out once while the others are trained on.

    Rows stay whole only by chance: a row has cells in several folds, so a model is asked to fill gaps rather than to
    label new rows. For the latter scikit-learn's ``KFold`` works with :class:`labelgap.Labels` as it is.

    Parameters
    ----------
    n_splits : int
        The number of folds; their sizes differ by one cell at most.
    random_state : int, RandomState or None
        Seeds the draw.

    Examples
    --------
    >>> for train, held_out in CellKFold(2, random_state=0).split(np.array([[1, 0, np.nan], [0, 1, 1]])):
    ...     print(train.n_known, held_out.n_known)
    2 3
    3 2
    """

    def __init__(self, n_splits: int = 5, random_state: Any = None) -> None:
        self.n_splits = n_splits
        self.random_state = random_state

    def get_n_splits(self) -> int:
        """Return the number of folds."""
        return self.n_splits

    def split(self, Y: Any) -> Iterator[tuple[Labels, Labels]]:
        """Yield the labels to train on and the labels held out, for each fold."""
        labels = as_labels(Y)
        if not 2 <= self.n_splits <= labels.n_known:
            raise ValueError(
                f"n_splits={self.n_splits} is out of range; Y has {labels.n_known} known cells, "
                "so pass from 2 up to that many folds."
            )
        known = labels.known if labels.known is not None else sp.csr_array(np.ones(labels.shape, bool))
        fold = check_random_state(self.random_state).permutation(np.arange(known.nnz) % self.n_splits)
        for number in range(self.n_splits):
            yield _restrict(labels, known, fold != number), _restrict(labels, known, fold == number)


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

    def of(self, estimator: Any, X: Any, labels: Labels) -> float:
        """Measure a fitted estimator on known cells."""
        if not isinstance(self.measure, Metric):
            return float(self.measure(labels, _cell_scores(estimator, X, labels)))
        metric = self.measure.fresh()
        for part, scores in score_batches(estimator, X, labels, metric.depth):
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
_NAMED: dict[str, Callable[[], Criterion]] = {
    "AUC": lambda: Criterion(InstanceAUC()),
    "F1": lambda: Criterion(F1()),
    "Hamming": lambda: Criterion(HammingLoss(), greater_is_better=False),
    "squared error": lambda: Criterion(MeanLoss(Squared()), greater_is_better=False),
}
_LOSSES = (HammingLoss, MeanLoss)


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
        return Criterion(metric, not isinstance(metric, _LOSSES))
    if callable(metric):
        return Criterion(metric)
    at_k = re.fullmatch(r"(\w+)@(\d+)", str(metric))
    if at_k and at_k[1] in _AT_K:
        return Criterion(_AT_K[at_k[1]](int(at_k[2])))
    if metric == "loss":
        return Criterion(MeanLoss(_loss_of(estimator)), greater_is_better=False)
    if metric not in _NAMED:
        names = [f"{name}@k" for name in _AT_K] + [*_NAMED, "loss"]
        raise ValueError(f"metric={metric!r} is not known; use one of {', '.join(names)}, a Metric or a callable.")
    return _NAMED[metric]()


@dataclass
class Selection:
    """What :func:`select` found.

    Attributes
    ----------
    params : dict
        The best parameters.
    score : float or list of float
        Their validation score, one for each metric where several were given.
    estimator : estimator or None
        Fitted with them on all of the data; ``None`` without ``refit``.
    table : list of dict
        For each candidate tried: ``params``, ``score`` on the held-out cells and ``seconds`` of its fit.
    """

    params: dict[str, Any]
    score: Any
    estimator: Any = None
    table: list[dict[str, Any]] = field(default_factory=list)


def select(
    estimator: Any,
    grid: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]],
    X: Any,
    Y: Any,
    *,
    metric: Any = "P@3",
    hold_out: Literal["rows", "cells"] = "rows",
    share: float = 0.2,
    random_state: Any = None,
    refit: bool = True,
    patience: int | None = None,
) -> Selection:
    """Choose parameters on held-out known cells, then fit with them on everything.

    Every candidate is a clone fitted on the same training part; unknown cells are never scored. Equal scores go to
    the candidate that comes first.

    Parameters
    ----------
    estimator : estimator
        Anything with ``fit`` and ``decision_function``; it is not changed.
    grid : dict of sequences, or a sequence of such dicts
        As for scikit-learn's ``ParameterGrid``.
    X, Y : the training data
        Y in any form that the estimator takes, gaps included.
    metric : str, Metric, callable, or a sequence of them
        See :func:`get_criterion`. Of several metrics no one decides: the candidate is taken whose largest shortfall,
        relative to the best value of each metric, is smallest. With few known cells in each row P@k is noisy, since
        few rows hold a known positive and fewer still hold k known ones; "Hamming" and "loss" use every known cell.
    hold_out : {"rows", "cells"}
        Validate on new rows, or on cells of rows that are also trained on.
    share : float
        How much is held out.
    random_state : int, RandomState or None
        Seeds the split.
    refit : bool
        Fit the best candidate on all of the data.
    patience : int, optional
        Stop after so many candidates in a row that are no better than the best so far: for grids in the order in
        which fits become dear, such as a falling penalty.

    Returns
    -------
    Selection

    Examples
    --------
    >>> from labelgap import LEML
    >>> from labelgap.datasets import make_low_rank
    >>> data = make_low_rank(200, 10, 8, rank=2, random_state=0)
    >>> found = select(LEML(n_components=2), {"alpha": [0.1, 1000.0]}, data.X, data.Y, metric="AUC", random_state=0)
    >>> found.params
    {'alpha': 0.1}
    >>> found.estimator.alpha, len(found.table)
    (0.1, 2)
    """
    several = isinstance(metric, Sequence) and not isinstance(metric, str)
    criteria = [get_criterion(one, estimator) for one in (metric if several else [metric])]
    labels = as_labels(Y, absent=getattr(_last_step(estimator), "absent", "negative"))
    X_train, Y_train, X_valid, Y_valid = _split(X, labels, hold_out, share, random_state)
    table: list[dict[str, Any]] = []
    for params in ParameterGrid(grid):
        start = time.perf_counter()
        candidate = clone(estimator).set_params(**clone(params, safe=False)).fit(X_train, Y_train)
        seconds = time.perf_counter() - start
        scores = [criterion.of(candidate, X_valid, Y_valid) for criterion in criteria]
        table.append({"params": params, "score": scores if several else scores[0], "seconds": seconds})
        regrets = _largest_regrets(criteria, table)
        chosen = int(np.argmin(regrets))
        if patience is not None and len(table) - 1 - chosen >= patience:
            break
    if not np.isfinite(regrets[chosen]):
        raise ValueError(
            f"metric={metric!r} is undefined on the held-out part ({Y_valid!r}): no row there has the cells that it "
            "compares. Raise share, or choose 'Hamming' or 'loss', which need any known cell."
        )
    best = Selection(table[chosen]["params"], table[chosen]["score"], table=table)
    if refit:
        best.estimator = clone(estimator).set_params(**clone(best.params, safe=False)).fit(X, labels)
    return best


def _largest_regrets(criteria: Sequence[Criterion], table: Sequence[dict[str, Any]]) -> NDArray[np.float64]:
    """Return each candidate's largest regret; a metric that is undefined for all of them has no say."""
    scores = np.array([row["score"] for row in table], float).reshape(len(table), len(criteria))
    defined = [c for c in range(len(criteria)) if not np.isnan(scores[:, c]).all()]
    if not defined:
        return np.full(len(table), np.inf)
    return np.max([criteria[c].regrets(scores[:, c]) for c in defined], axis=0)


def _split(X: Any, labels: Labels, hold_out: str, share: float, random_state: Any) -> tuple[Any, Labels, Any, Labels]:
    _check_share(share)
    if hold_out == "rows":
        return hold_out_rows(X, labels, share, random_state)
    if hold_out == "cells":
        Y_train, Y_valid = hold_out_cells(labels, share, random_state=random_state)
        return X, Y_train, X, Y_valid
    raise ValueError(f"hold_out={hold_out!r} is not known; use 'rows' or 'cells'.")


def _check_share(share: float) -> None:
    if not 0 < share < 1:
        raise ValueError(f"share={share} leaves a part empty; pass a number between 0 and 1, such as 0.2.")


def _restrict(labels: Labels, known: sp.csr_array, kept: NDArray[np.bool_]) -> Labels:
    cells = sp.csr_array((kept, known.indices, known.indptr), shape=known.shape)
    return Labels.of_patterns(labels.positives, cells, labels.container)


def _last_step(estimator: Any) -> Any:
    """Return the estimator itself, or the last step of a pipeline: the one that meets the labels."""
    return estimator[-1] if hasattr(estimator, "steps") else estimator


def _loss_of(estimator: Any) -> Loss:
    last = _last_step(estimator)
    loss = getattr(last, "loss", None)
    if loss is None:
        raise ValueError(f"metric='loss' needs an estimator with a loss, and {type(last).__name__} has none.")
    return get_loss(loss)


def _cell_scores(estimator: Any, X: Any, labels: Labels) -> Any:
    """Return decision values at the known cells where the estimator can give only these, else all."""
    if not labels.complete and hasattr(estimator, "known_scores"):
        return estimator.known_scores(X, labels)
    return estimator.decision_function(X)


def score_batches(estimator: Any, X: Any, labels: Labels, depth: int = 0) -> Iterator[tuple[Labels, Any]]:
    """Yield labels and scores, as little of the n×L scores at a time as the metric's depth allows."""
    n, L = labels.shape
    if labels.complete and depth > 0 and hasattr(estimator, "predict_topk"):
        yield labels, estimator.predict_topk(X, min(depth, L))
        return
    rows = max(1, BLOCK_CELLS // max(1, L))
    for start in range(0, n, rows):
        part = labels[start : start + rows]
        yield part, _cell_scores(estimator, X[start : start + rows], part)
