"""Choosing parameters on held-out known cells."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid

from labelgap.model_selection.criteria import get_criterion, largest_regrets, last_step
from labelgap.model_selection.splits import split
from labelgap.observations import as_labels

CLEARLY = 0.03


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
        Stop after so many candidates in a row that are clearly worse than the best so far, by more than 3 % of a
        metric: for grids in the order in which fits become dear, such as a falling penalty. A plateau, where all
        candidates are alike, does not end the search.

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
    labels = as_labels(Y, absent=getattr(last_step(estimator), "absent", "negative"))
    X_train, Y_train, X_valid, Y_valid = split(X, labels, hold_out, share, random_state)
    table: list[dict[str, Any]] = []
    for params in ParameterGrid(grid):
        start = time.perf_counter()
        candidate = clone(estimator).set_params(**clone(params, safe=False)).fit(X_train, Y_train)
        seconds = time.perf_counter() - start
        scores = [criterion.of(candidate, X_valid, Y_valid) for criterion in criteria]
        table.append({"params": params, "score": scores if several else scores[0], "seconds": seconds})
        regrets = largest_regrets(criteria, table)
        chosen = int(np.argmin(regrets))
        if patience is not None and np.all(regrets[-patience:] - regrets[chosen] > CLEARLY) and len(table) > patience:
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
