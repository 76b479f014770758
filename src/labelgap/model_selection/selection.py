"""Choosing parameters on held-out known cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from sklearn.model_selection import ParameterGrid

from labelgap.model_selection.criteria import labels_for
from labelgap.model_selection.engine import EstimatorFolds, Search, get_criteria, is_several, with_params
from labelgap.model_selection.splits import Fold, split


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
        For each candidate tried: ``params``, ``score`` on the held-out cells, ``seconds`` of its fit and its scoring,
        whether it had a ``warm`` start, and the ``error`` that it ended with, or None.
    """

    params: dict[str, Any]
    score: Any
    estimator: Any = None
    table: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Tuning(Selection):
    """What :func:`tune` found: a :class:`Selection` that says how it came about.

    Attributes
    ----------
    status : str
        "finished", "budget" (candidates were left when the time was up) or "interrupted" (by Ctrl-C).
    hold_out : str
        What was held out: "rows", "cells" or "positives".
    metrics : list of str
        What the scores are called.
    n_candidates : int
        The number of candidates that there are.
    n_rows : int
        The number of rows that the search took part of, before anything was held out.
    seconds : float
        The time of it all.
    """

    status: str = "finished"
    hold_out: str = "rows"
    metrics: Sequence[str] = ("score",)
    n_candidates: int = 0
    n_rows: int = 0
    seconds: float = 0.0

    def to_records(self) -> list[dict[str, Any]]:
        """Return the table with one flat dict for each candidate in the order of trial; ``best`` marks the chosen."""
        best = next(place for place, row in enumerate(self.table) if row["params"] is self.params)
        return [self._record(row, place == best) for place, row in enumerate(self.table)]

    def _record(self, row: Mapping[str, Any], best: bool) -> dict[str, Any]:
        scores = {name: None if np.isnan(s) else s for name, s in zip(self.metrics, _list(row["score"]), strict=True)}
        how = {"seconds": round(row["seconds"], 3), "warm": row["warm"], "rows": self.n_rows, "error": row["error"]}
        return {"best": best, **row["params"], **scores, **how}

    def __str__(self) -> str:
        records = self.to_records()
        names = list(dict.fromkeys(name for record in records for name in record))
        lines = [names, *([shown(record.get(name)) for name in names] for record in records)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def select(
    estimator: Any,
    grid: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]],
    X: Any,
    Y: Any,
    *,
    metric: Any = "P@3",
    hold_out: Literal["rows", "cells", "positives"] = "rows",
    share: float = 0.2,
    random_state: Any = None,
    refit: bool = True,
    patience: int | None = None,
) -> Selection:
    """Choose parameters on held-out known cells, then fit with them on everything.

    Every candidate is a clone fitted on the same training part; unknown cells are never scored. Equal scores go to
    the candidate that comes first. A candidate that cannot be fitted is noted in the table and loses. With a budget
    of time, warm starts or without a grid, see :func:`tune`.

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
    hold_out : {"rows", "cells", "positives"}
        Validate on new rows, or on cells of rows that are also trained on, or on positives of such rows, which are
        ranked among all cells that are no positives to the candidate.
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
    fold = split(X, labels_for(estimator, Y), hold_out, share, random_state)
    criteria = get_criteria(metric, estimator)
    search = Search(EstimatorFolds(estimator, [fold], criteria), criteria)
    search.run(ParameterGrid(grid), patience)
    search.check(undefined(metric, fold))
    table = rows_of(search, metric)
    found = Selection(table[search.best]["params"], table[search.best]["score"], table=table)
    if refit:
        found.estimator = with_params(estimator, found.params).fit(X, Y)
    return found


def rows_of(search: Search, metric: Any) -> list[dict[str, Any]]:
    """Return the table as users see it: one score where one metric was asked for."""
    names = ("params", "score", "seconds", "warm", "error")
    rows = [{name: row[name] for name in names} for row in search.table]
    return rows if is_several(metric) else [row | {"score": row["score"][0]} for row in rows]


def undefined(metric: Any, fold: Fold) -> str:
    """Say why no candidate has a score."""
    return (
        f"metric={metric!r} is undefined on the held-out part ({fold.Y_valid!r}): no row there has the cells that it "
        "compares. Raise share, or choose 'Hamming' or 'loss', which need any known cell."
    )


def _list(scores: Any) -> list[float]:
    return np.atleast_1d(scores).tolist()


def shown(value: Any) -> str:
    """Return a value of the table as a person reads it: a star for yes.

    >>> shown(True), shown(0.1234567), shown(None)
    ('*', '0.12346', '')
    """
    if isinstance(value, bool):
        return "*" if value else ""
    return "" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)
