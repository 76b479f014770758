"""Objectives as sums of terms: a sum of objectives is an objective."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from labelgap.kernels import matmul, namespace
from labelgap.objectives.features import Identity
from labelgap.solvers.base import Array, Kronecker, LinearMap, Model, Objective, Scalar, inner

LEAST_WEIGHT, MOST_WEIGHT = 1e-2, 1e2  # of a row in a form that preconditions, relative to the mean


def parabola(value: Scalar, slope: Scalar, curvature: Scalar) -> Callable[[float], Scalar]:
    """Return t ↦ value + t · slope + ½ t² · curvature.

    >>> parabola(1.0, -2.0, 4.0)(0.5)
    0.5
    """
    return lambda step: value + step * slope + 0.5 * step**2 * curvature


class Quadratic(ABC):
    """A quadratic objective: along a line it is a parabola, whose three numbers cost one model and one product."""

    @abstractmethod
    def value(self, W: Array) -> Scalar:
        """f(W)."""

    @abstractmethod
    def model(self, W: Array) -> Model:
        """f, ∇f, the Hessian product and the Kronecker form at W."""

    def along(self, W: Array, S: Array) -> Callable[[float], Scalar]:
        """t ↦ f(W + t S)."""
        model = self.model(W)
        return parabola(model.value, inner(model.gradient, S), inner(S, model.hessp(S)))


@dataclass(frozen=True)
class Ridge(Quadratic):
    """½ Σ_i α_i ‖w_i − a_i‖², with one α for all rows or an array of shape (rows, 1); a is 0 unless it is given.

    >>> float(Ridge(2.0).value(np.ones((2, 2))))
    4.0
    """

    alpha: float | Array
    at: Array | None = None
    separable = True

    def value(self, W: Array) -> Scalar:
        away = W if self.at is None else W - self.at
        return 0.5 * inner(self.alpha * away, away)

    def model(self, W: Array) -> Model:
        away = W if self.at is None else W - self.at
        alpha = self.alpha if np.ndim(self.alpha) == 0 else namespace(W).astype(self.alpha, W.dtype)
        gradient = alpha * away
        return Model(0.5 * inner(gradient, away), gradient, lambda S: alpha * S, Kronecker(self.alpha))


@dataclass(frozen=True)
class Anchor(Quadratic):
    """½ Σ_j (h_j − a_j)ᵀ (w_j M + α_j) (h_j − a_j): what rows that are gone say about a factor.

    The a_j are the minimisers of sums with about these Hessians. It is such a sum, but for a constant, where the sum
    is of squares: ridge regression learns on from its last solution and the Gram matrix of the rows.

    Parameters
    ----------
    at : array of shape (L, k)
        The minimisers a_j.
    M : array of shape (k, k)
        The curvature that all rows of ``at`` share.
    weights : float, or array of shape (L, 1)
        w_j, by which it counts in each. One number leaves a Kronecker form that adds up exactly.
    ridge : float or array of shape (L, 1)
        α_j.

    Examples
    --------
    >>> float(Anchor(np.zeros((1, 2)), np.eye(2), 1.0, 1.0).value(np.ones((1, 2))))
    2.0
    """

    at: Array
    M: Array
    weights: Array | float
    ridge: float | Array
    separable = True

    def value(self, H: Array) -> Scalar:
        away = H - self.at
        return 0.5 * inner(away, self._image(away))

    def model(self, H: Array) -> Model:
        away = H - self.at
        image = self._image(away)
        return Model(0.5 * inner(away, image), image, self._image, self.curvature(H))

    def curvature(self, H: Array) -> Kronecker:
        """The Hessian, which is the same at every H."""
        return Kronecker(self.ridge, Identity(self.at.shape[0]), self.M, self.weights)

    def _image(self, S: Array) -> Array:
        return self.weights * matmul(S, self.M) + self.ridge * S


@dataclass(frozen=True)
class Composed:
    """f(A W): an objective in B = A W becomes one in W, with gradient Aᵀ∇f(B) and Hessian product Aᵀ∇²f(B) A S."""

    features: LinearMap
    outer: Objective
    separable = False

    def value(self, W: Array) -> Scalar:
        return self.outer.value(self.features.times(W))

    def along(self, W: Array, S: Array) -> Callable[[float], Scalar]:
        return self.outer.along(self.features.times(W), self.features.times(S))

    def model(self, W: Array) -> Model:
        A = self.features
        value, gradient, hessp, form = self.outer.model(A.times(W))
        form = None if form is None else _compose_form(A, form, W)
        return Model(value, A.t_times(gradient), lambda S: A.t_times(hessp(A.times(S))), form)


def mean(values: Any) -> Any:
    """Return the mean of a number or an array.

    >>> mean(2.0), float(mean(np.array([[1.0], [2.0]])))
    (2.0, 1.5)
    """
    return values if np.ndim(values) == 0 else namespace(values).mean(values)


def _compose_form(A: LinearMap, form: Kronecker, like: Array) -> Kronecker:
    """Put features in front of a form: what stood for each row becomes a mean, and a ridge becomes data."""
    exact = form.exact and np.ndim(form.ridge) == np.ndim(form.weights) == 0
    if form.M is not None and isinstance(form.ridge, float) and form.ridge == 0:
        return Kronecker(0.0, A, mean(form.weights) * form.M, 1.0, exact)
    xp = namespace(like)
    unit = xp.eye(like.shape[1], dtype=xp.float64, device=getattr(like, "device", None))
    data = mean(form.ridge) * unit
    return Kronecker(0.0, A, data if form.M is None else mean(form.weights) * form.M + data, 1.0, exact)


@dataclass(frozen=True)
class Sum:
    """f₁ + f₂ + … + constant, all in the same variable: data, penalty, graph.

    Shards of rows are not terms of a sum: they add up below, in the backend, which keeps the Kronecker form exact.
    """

    terms: Sequence[Objective]
    constant: Scalar = 0.0

    @property
    def separable(self) -> bool:
        """Whether every term has a Hessian with a block for each row and nothing between them."""
        return all(term.separable for term in self.terms)

    def value(self, W: Array) -> Scalar:
        total = self.constant
        for term in self.terms:
            total = total + term.value(W)
        return total

    def along(self, W: Array, S: Array) -> Callable[[float], Scalar]:
        lines = [term.along(W, S) for term in self.terms]
        return lambda step: sum((line(step) for line in lines), self.constant)

    def model(self, W: Array) -> Model:
        first = self.terms[0].model(W)
        value, gradient, forms = self.constant + first.value, first.gradient, [first.kronecker]
        others = []
        for term in self.terms[1:]:
            model = term.model(W)
            value = value + model.value
            gradient += model.gradient
            forms.append(model.kronecker)
            others.append(model)

        def hessp(S: Array) -> Array:
            image = first.hessp(S)
            for model in others:
                image += model.hessp(S)
            return image

        return Model(value, gradient, hessp, _add_forms(forms))

    def curvature(self, H: Array) -> Kronecker:
        """The curvature around H, as evidence: a label of which no cell counts has the weight 0."""
        parts = [term.curvature(H) for term in self.terms]  # type: ignore[attr-defined]
        whole = reduce(merge, parts)
        # A term may subtract what another counts. Each label's sum stays positive, but the merged weight may not.
        return whole if all(_least(part.weights) >= 0 for part in parts) else limited(whole)


def _least(values: Any) -> float:
    return values if np.ndim(values) == 0 else float(namespace(values).min(values))


def _add_forms(parts: list[Kronecker | None]) -> Kronecker | None:
    """Add Kronecker forms: exactly while they share what allows it, else near enough to precondition."""
    data: list[Kronecker] = []
    ridge, exact, known = 0.0, True, 0
    for part in parts:
        exact = exact and part is not None and part.exact
        if part is not None:
            ridge, known = ridge + part.ridge, known + 1
            if part.features is not None:
                data.append(part)
    if not data:
        return Kronecker(ridge, exact=exact) if known else None
    merged = data[0]
    if len(data) > 1:
        merged, together = _merge_alike(data)
        exact = exact and merged.exact and together
    assert merged.features is not None
    if np.ndim(ridge) and not merged.features.is_identity:
        ridge, exact = float(mean(ridge)), False
    return replace(merged, ridge=ridge, exact=exact)


def _merge_alike(data: list[Kronecker]) -> tuple[Kronecker, bool]:
    """Merge the forms with the features of the largest, and say whether these are all of them."""
    merged, count = data[0], 1
    for part in data[1:]:
        if part.features == merged.features:
            merged, count = merge(merged, part), count + 1
    if count < len(data):  # which of them is largest is only then worth reading from the device
        largest = max(data, key=_size)
        alike = [part for part in data if part.features == largest.features]
        merged, count = reduce(merge, alike), len(alike)
    return merged if merged.exact or count == 1 else limited(merged), count == len(data)


def _size(part: Kronecker) -> float:
    return float(mean(part.weights) * _trace(part.M))


def _trace(M: Array) -> Array:
    xp = namespace(M)
    return xp.linalg.trace(M, dtype=xp.float64)


def merge(a: Kronecker, b: Kronecker) -> Kronecker:
    """Return diag(v) ⊗ M₁ + diag(w) ⊗ M₂ as one form, exactly where v and w are numbers.

    Otherwise the product of the margins stands for it: M = v̄ M₁ + w̄ M₂, and each row has the weight that gives its
    block the right trace, 1 in the mean.

    >>> form = merge(Kronecker(M=np.eye(2), weights=2.0), Kronecker(M=np.ones((2, 2)), weights=0.5))
    >>> form.M, form.weights
    (array([[2.5, 0.5],
           [0.5, 2.5]]), 1.0)
    """
    M = mean(a.weights) * a.M + mean(b.weights) * b.M
    exact = a.exact and b.exact and np.ndim(a.weights) == np.ndim(b.weights) == 0
    total = 0.0 if exact else _size(a) + _size(b)
    if total <= 0:
        return Kronecker(0.0, a.features, M, 1.0, exact)
    few, many = (b, a) if np.ndim(a.weights) else (a, b)  # an array comes first: it takes numbers of any library
    weights = (many.weights * _trace(many.M) + few.weights * _trace(few.M)) / total
    return Kronecker(0.0, a.features, M, weights, False)


def limited(merged: Kronecker) -> Kronecker:
    """Return a merged form in which no row counts for next to nothing, or for nearly all.

    Its blocks have an inverse then, whatever the product of the margins made of them.

    >>> limited(Kronecker(M=np.eye(2), weights=np.array([[-1.0], [0.5], [3.5]]), exact=False)).weights.ravel()
    array([0.01, 0.5 , 3.5 ])
    """
    if np.ndim(merged.weights) == 0:
        return replace(merged, weights=min(max(merged.weights, LEAST_WEIGHT), MOST_WEIGHT))
    weights = namespace(merged.weights).clip(merged.weights, LEAST_WEIGHT, MOST_WEIGHT)
    return replace(merged, weights=weights)
