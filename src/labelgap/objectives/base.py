"""Objectives as sums of terms: a sum of objectives is an objective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from labelgap.solvers.base import Array, Kronecker, LinearMap, Model, Objective, inner


class Ridge:
    """(α/2) ‖W‖².

    >>> import numpy as np
    >>> Ridge(2.0).value(np.ones((2, 2)))
    4.0
    """

    separable = True

    def __init__(self, alpha: float) -> None:
        self.alpha = alpha

    def value(self, W: Array) -> float:
        return 0.5 * self.alpha * inner(W, W)

    def model(self, W: Array) -> Model:
        alpha = W.dtype.type(self.alpha)
        return Model(self.value(W), alpha * W, lambda S: alpha * S, Kronecker(self.alpha))


class Through:
    """f(A W): an objective in B = A W becomes one in W, with gradient Aᵀ∇f(B) and Hessian product Aᵀ∇²f(B) A S."""

    def __init__(self, features: LinearMap, inner_objective: Objective) -> None:
        self.features, self.inner = features, inner_objective
        self.separable = False

    def value(self, W: Array) -> float:
        return self.inner.value(self.features.times(W))

    def model(self, W: Array) -> Model:
        A = self.features
        value, gradient, hessp, kronecker = self.inner.model(A.times(W))
        if kronecker is not None:
            weights = np.asarray(kronecker.weights)
            kronecker = replace(
                kronecker, features=A, weights=weights.mean(), exact=kronecker.exact and weights.ndim == 0
            )
        return Model(value, A.t_times(gradient), lambda S: A.t_times(hessp(A.times(S))), kronecker)


class Sum:
    """f₁ + f₂ + … + constant, all in the same variable: data, penalty, graph, the shards of other machines."""

    def __init__(self, terms: Sequence[Objective], constant: float = 0.0) -> None:
        self.terms, self.constant = list(terms), constant
        self.separable = all(term.separable for term in terms)

    def value(self, W: Array) -> float:
        return sum((term.value(W) for term in self.terms), self.constant)

    def model(self, W: Array) -> Model:
        models = [term.model(W) for term in self.terms]
        return Model(
            sum((m.value for m in models), self.constant),
            _total([m.gradient for m in models]),
            lambda S: _total([m.hessp(S) for m in models]),
            _total_kronecker([m.kronecker for m in models]),
        )


def _total_kronecker(parts: list[Kronecker | None]) -> Kronecker | None:
    """Add Kronecker forms: exactly while a single term has data, else by the largest of them, as a preconditioner."""
    known = [part for part in parts if part is not None]
    data = [part for part in known if part.features is not None]
    if not data:
        return None
    largest = max(data, key=lambda part: np.mean(part.weights) * np.trace(part.M))
    exact = largest.exact and len(known) == len(parts) and len(data) == 1
    return replace(largest, ridge=sum(part.ridge for part in known), exact=exact)


def _total(arrays: list[Array]) -> Array:
    """Add arrays up in the first of them, which its term made for us."""
    total = arrays[0]
    for other in arrays[1:]:
        total += other
    return total
