"""Fits that begin where that of a neighbour ended."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any

import numpy as np
from sklearn.base import clone

from labelgap.model_selection.spaces import numbers

KEPT = 6  # candidates whose factors are kept for their neighbours to start from


class Starts:
    """Makes the candidates of a search; along the path parameter each starts from the next weaker one fitted before.

    A strong penalty brings whole columns of both factors to 0, where W Hᵀ is stationary: alternation from there stops
    far above what it reaches from nothing. So factors are a start for stronger penalties and not for weaker ones.
    Only for factors found by alternation is a start just a start; everything else is fitted from nothing.

    Parameters
    ----------
    estimator : estimator
        What candidates are clones of.
    path : (str, bool), optional
        The parameter of the path and whether it falls from strong to weak.
    """

    def __init__(self, estimator: Any, path: tuple[str, bool] | None = None) -> None:
        self.estimator = estimator
        self.path = path if hasattr(estimator, "_previous") else None
        self._fitted: list[tuple[dict[str, Any], int, Any]] = []

    def candidate(self, params: Mapping[str, Any], fold: int) -> tuple[Any, bool]:
        """Return an estimator with these parameters to fit on a fold, and whether it has a start."""
        near = self._nearest(params, fold)
        if near is None:
            return clone(self.estimator).set_params(**clone(dict(params), safe=False)), False
        return copy(near).set_params(**params, warm_start=True), True

    def keep(self, params: Mapping[str, Any], fold: int, fitted: Any) -> None:
        """Keep a fitted candidate for others to start from, and forget the oldest."""
        if self._on_path(params):
            self._fitted.append((dict(params), fold, fitted))
            mine = [entry for entry in self._fitted if entry[1] == fold]
            if len(mine) > KEPT:
                self._fitted.remove(mine[0])

    def _on_path(self, params: Mapping[str, Any]) -> bool:
        """Tell whether a candidate has a place on the path; one whose penalty is an array has none."""
        return self.path is not None and numbers([params.get(self.path[0])])

    def _nearest(self, params: Mapping[str, Any], fold: int) -> Any:
        """Return the candidate next to this one on its path whose penalty is weaker."""
        if self.path is None or not self._on_path(params):
            return None
        name, falling = self.path
        sign = 1 if falling else -1
        weaker = [
            (sign * other[name], model)
            for other, number, model in self._fitted
            if number == fold and sign * other[name] <= sign * params[name] and _differ_only_in(name, other, params)
        ]
        return max(weaker, key=lambda found: found[0])[1] if weaker else None


def _differ_only_in(name: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[other], b[other]) for other in a if other != name)
