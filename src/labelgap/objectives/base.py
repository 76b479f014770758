"""Objectives as sums of terms: a sum of objectives is an objective."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np

from labelgap.objectives.features import Identity
from labelgap.solvers.base import Array, Kronecker, LinearMap, Model, Objective, inner

LEAST_WEIGHT, MOST_WEIGHT = 1e-2, 1e2  # of a row in a form that preconditions, relative to the mean


def parabola(value: float, slope: float, curvature: float) -> Callable[[float], float]:
    """Return t ↦ value + t · slope + ½ t² · curvature.

    >>> parabola(1.0, -2.0, 4.0)(0.5)
    0.5
    """
    return lambda step: value + step * slope + 0.5 * step**2 * curvature


class Quadratic:
    """A quadratic objective: along a line it is a parabola, whose three numbers cost one model and one product."""

    def value(self, W: Array) -> float:
        raise NotImplementedError

    def model(self, W: Array) -> Model:
        raise NotImplementedError

    def along(self, W: Array, S: Array) -> Callable[[float], float]:
        """t ↦ f(W + t S)."""
        model = self.model(W)
        return parabola(model.value, inner(model.gradient, S), inner(S, model.hessp(S)))


class Ridge(Quadratic):
    """½ Σ_i α_i ‖w_i − a_i‖², with one α for all rows or an array of shape (rows, 1); a is 0 unless it is given.

    >>> import numpy as np
    >>> Ridge(2.0).value(np.ones((2, 2)))
    4.0
    """

    separable = True

    def __init__(self, alpha: float | Array, at: Array | None = None) -> None:
        self.alpha, self.at = alpha, at

    def value(self, W: Array) -> float:
        away = self._away(W)
        return 0.5 * inner(self.alpha * away, away)

    def model(self, W: Array) -> Model:
        alpha = np.asarray(self.alpha, W.dtype)
        return Model(self.value(W), alpha * self._away(W), lambda S: alpha * S, Kronecker(self.alpha))

    def _away(self, W: Array) -> Array:
        return W if self.at is None else W - self.at


class Through:
    """f(A W): an objective in B = A W becomes one in W, with gradient Aᵀ∇f(B) and Hessian product Aᵀ∇²f(B) A S."""

    def __init__(self, features: LinearMap, inner_objective: Objective) -> None:
        self.features, self.inner = features, inner_objective
        self.separable = False

    def value(self, W: Array) -> float:
        return self.inner.value(self.features.times(W))

    def along(self, W: Array, S: Array) -> Callable[[float], float]:
        return self.inner.along(self.features.times(W), self.features.times(S))

    def model(self, W: Array) -> Model:
        A = self.features
        value, gradient, hessp, kronecker = self.inner.model(A.times(W))
        near = None if kronecker is None else _through(A, kronecker, W.shape[1])
        return Model(value, A.t_times(gradient), lambda S: A.t_times(hessp(A.times(S))), near)


def _through(A: LinearMap, form: Kronecker, width: int) -> Kronecker:
    """Put features in front of a form: what stood for each row becomes a mean, and a ridge becomes data."""
    exact = form.exact and np.ndim(form.ridge) == np.ndim(form.weights) == 0
    data = 0.0 if form.M is None else float(np.mean(form.weights)) * form.M
    return Kronecker(0.0, A, data + np.mean(form.ridge) * np.eye(width), 1.0, exact)


class Sum:
    """f₁ + f₂ + … + constant, all in the same variable: data, penalty, graph, the shards of other machines."""

    def __init__(self, terms: Sequence[Objective], constant: float = 0.0) -> None:
        self.terms, self.constant = list(terms), constant
        self.separable = all(term.separable for term in terms)

    def value(self, W: Array) -> float:
        return sum((term.value(W) for term in self.terms), self.constant)

    def along(self, W: Array, S: Array) -> Callable[[float], float]:
        lines = [term.along(W, S) for term in self.terms]
        return lambda step: sum((line(step) for line in lines), self.constant)

    def model(self, W: Array) -> Model:
        models = [term.model(W) for term in self.terms]
        return Model(
            sum((m.value for m in models), self.constant),
            _total([m.gradient for m in models]),
            lambda S: _total([m.hessp(S) for m in models]),
            _total_kronecker([m.kronecker for m in models]),
        )


def _total_kronecker(parts: list[Kronecker | None]) -> Kronecker | None:
    """Add Kronecker forms: exactly while they share what allows it, else near enough to precondition."""
    known = [part for part in parts if part is not None]
    data = [part for part in known if part.features is not None]
    ridge = sum(part.ridge for part in known)
    exact = len(known) == len(parts) and all(part.exact for part in known)
    if not data:
        return Kronecker(ridge, exact=exact) if known else None
    largest = max(data, key=_size)
    alike = [part for part in data if part.features == largest.features]
    merged = alike[0] if len(alike) == 1 else limited(reduce(merge, alike))
    exact = exact and merged.exact and len(alike) == len(data)
    if np.ndim(ridge) and not isinstance(merged.features, Identity):
        ridge, exact = float(np.mean(ridge)), False
    return replace(merged, ridge=ridge, exact=exact)


def _size(part: Kronecker) -> float:
    return float(np.mean(part.weights) * np.trace(part.M))


def merge(a: Kronecker, b: Kronecker) -> Kronecker:
    """Return diag(v) ⊗ M₁ + diag(w) ⊗ M₂ as one form, exactly where v and w are numbers.

    Otherwise the product of the margins stands for it: M = v̄ M₁ + w̄ M₂, and each row has the weight that gives its
    block the right trace, 1 in the mean.

    >>> import numpy as np
    >>> form = merge(Kronecker(M=np.eye(2), weights=2.0), Kronecker(M=np.ones((2, 2)), weights=0.5))
    >>> form.M, form.weights
    (array([[2.5, 0.5],
           [0.5, 2.5]]), 1.0)
    """
    M = np.mean(a.weights) * a.M + np.mean(b.weights) * b.M
    exact = a.exact and b.exact and np.ndim(a.weights) == np.ndim(b.weights) == 0
    total = _size(a) + _size(b)
    if exact or total <= 0:
        return Kronecker(0.0, a.features, M, 1.0, exact)
    weights = (np.asarray(a.weights) * np.trace(a.M) + np.asarray(b.weights) * np.trace(b.M)) / total
    return Kronecker(0.0, a.features, M, weights, False)


def limited(merged: Kronecker) -> Kronecker:
    """Return a merged form in which no row counts for next to nothing, or for nearly all.

    Its blocks have an inverse then, whatever the product of the margins made of them.

    >>> import numpy as np
    >>> limited(Kronecker(M=np.eye(2), weights=np.array([[-1.0], [0.5], [3.5]]), exact=False)).weights.ravel()
    array([0.01, 0.5 , 3.5 ])
    """
    return replace(merged, weights=np.clip(merged.weights, LEAST_WEIGHT, MOST_WEIGHT))


def _total(arrays: list[Array]) -> Array:
    """Add arrays up in the first of them, which its term made for us."""
    total = arrays[0]
    for other in arrays[1:]:
        total += other
    return total
