"""Objectives that combine: penalties, compositions with features, and sums, whose Kronecker forms add up."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from labelgap.kernels import Backend, matmul, namespace
from labelgap.objectives.features import Identity
from labelgap.solvers.base import Array, Kronecker, LinearMap, Model, Objective, RowHessians, Scalar, inner

MIN_ROW_WEIGHT, MAX_ROW_WEIGHT = 1e-2, 1e2  # in a preconditioner, relative to the mean


def make_parabola(value: Scalar, slope: Scalar, curvature: Scalar) -> Callable[[float], Scalar]:
    """Return t ↦ value + t · slope + ½ t² · curvature.

    >>> make_parabola(1.0, -2.0, 4.0)(0.5)
    0.5
    """
    return lambda step: value + step * slope + 0.5 * step**2 * curvature


class Quadratic(ABC):
    """A quadratic objective: a parabola along a line, whose coefficients cost one model and one product."""

    @abstractmethod
    def value(self, W: Array) -> Scalar:
        """Return f(W)."""

    @abstractmethod
    def model(self, W: Array) -> Model:
        """Return f, ∇f, the Hessian product and the Kronecker form at W."""

    def along(self, W: Array, S: Array) -> Callable[[float], Scalar]:
        """Return t ↦ f(W + t S)."""
        model = self.model(W)
        return make_parabola(model.value, inner(model.gradient, S), inner(S, model.hessp(S)))


@dataclass(frozen=True)
class Ridge(Quadratic):
    """½ Σ_i α_i ‖w_i − a_i‖², with one α for all rows or an array of shape (rows, 1); ``center`` is a, by default 0.

    >>> float(Ridge(2.0).value(np.ones((2, 2))))
    4.0
    """

    alpha: float | Array
    center: Array | None = None
    separable = True

    def value(self, W: Array) -> Scalar:
        offset = W if self.center is None else W - self.center
        if np.ndim(self.alpha) == 0:
            return 0.5 * self.alpha * inner(offset, offset)
        return 0.5 * inner(self.alpha * offset, offset)

    def model(self, W: Array) -> Model:
        offset = W if self.center is None else W - self.center
        alpha = self.alpha if np.ndim(self.alpha) == 0 else namespace(W).astype(self.alpha, W.dtype)
        gradient = alpha * offset
        by_rows = np.shape(alpha) in ((), (W.shape[0], 1))  # others do not commute with rotations
        forms = Kronecker(self.alpha), RowHessians(self.alpha) if by_rows else None
        return Model(0.5 * inner(gradient, offset), gradient, lambda S: alpha * S, *forms)


@dataclass(frozen=True)
class Anchor(Quadratic):
    """½ Σ_j (h_j − a_j)ᵀ (w_j M + α_j) (h_j − a_j): a quadratic that replaces the data of past rows.

    The a_j minimise sums over these rows, whose Hessians are about w_j M + α_j. For squared loss the replacement is
    exact up to a constant: ridge regression continues from its last solution and the Gram matrix of the rows.

    Parameters
    ----------
    center : array of shape (L, k)
        The minimisers a_j.
    M : array of shape (k, k)
        The curvature that all rows of ``center`` share.
    weights : float, or array of shape (L, 1)
        The weights w_j of M. A single number has a Kronecker form that adds up exactly.
    ridge : float or array of shape (L, 1)
        α_j.

    Examples
    --------
    >>> float(Anchor(np.zeros((1, 2)), np.eye(2), 1.0, 1.0).value(np.ones((1, 2))))
    2.0
    """

    center: Array
    M: Array
    weights: Array | float
    ridge: float | Array
    separable = True

    def value(self, H: Array) -> Scalar:
        offset = H - self.center
        return 0.5 * inner(offset, self._multiply(offset))

    def model(self, H: Array) -> Model:
        offset = H - self.center
        image = self._multiply(offset)
        forms = self.curvature(H), RowHessians(self.ridge, self.M, self.weights)
        return Model(0.5 * inner(offset, image), image, self._multiply, *forms)

    def curvature(self, H: Array) -> Kronecker:
        """Return the Hessian, which is the same at every H."""
        return Kronecker(self.ridge, Identity(self.center.shape[0]), self.M, self.weights)

    def _multiply(self, S: Array) -> Array:
        return self.weights * matmul(S, self.M) + self.ridge * S


@dataclass(frozen=True)
class Composition:
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
        value, gradient, hessp, form, _ = self.outer.model(A.times(W))
        form = None if form is None else _compose_form(A, form, W)
        coarse = A.coarse
        return Model(value, A.t_times(gradient), lambda S: coarse.t_times(hessp(coarse.times(S))), form)


def mean(values: Any) -> Any:
    """Return the mean of a number or an array.

    >>> mean(2.0), float(mean(np.array([[1.0], [2.0]])))
    (2.0, 1.5)
    """
    return values if np.ndim(values) == 0 else namespace(values).mean(values)


def _compose_form(A: LinearMap, form: Kronecker, like: Array) -> Kronecker:
    """Compose a form with features: weights of rows become their mean, and a ridge becomes part of M."""
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

    Shards of rows are not terms of a sum: the backend adds them up, which keeps the Kronecker form exact.
    """

    terms: Sequence[Objective]
    constant: Scalar = 0.0

    @property
    def separable(self) -> bool:
        """Whether the Hessian of every term is block-diagonal, with a block for each row."""
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
        return self._add_models(self.terms[0].model(W), W)

    def expand(self, W: Array) -> Model:
        """Return the model; its value is NaN if the first term saves a pass without it."""
        first = self.terms[0]
        return self._add_models(getattr(first, "expand", first.model)(W), W)

    def _add_models(self, first: Model, W: Array) -> Model:
        value, gradient, forms, rows = self.constant + first.value, first.gradient, [first.kronecker], first.rows
        others = []
        for term in self.terms[1:]:
            model = term.model(W)
            value = value + model.value
            gradient += model.gradient
            forms.append(model.kronecker)
            rows = None if rows is None else rows + model.rows
            others.append(model)

        def hessp(S: Array) -> Array:
            image = first.hessp(S)
            for model in others:
                image += model.hessp(S)
            return image

        return Model(value, gradient, hessp, _add_forms(forms), rows)

    def curvature(self, H: Array) -> Kronecker:
        """Return the curvature at H; a label without known cells has the weight 0."""
        forms = [term.curvature(H) for term in self.terms]  # type: ignore[attr-defined]
        merged = reduce(merge_forms, forms)
        # A term may subtract what another adds. Each label's sum stays positive, but the merged weight may not.
        return merged if all(_minimum(form.weights) >= 0 for form in forms) else limit_row_weights(merged)


def _minimum(values: Any) -> float:
    return values if np.ndim(values) == 0 else float(namespace(values).min(values))


def _add_forms(parts: list[Kronecker | None]) -> Kronecker | None:
    """Add Kronecker forms: exactly if they share features and M or weights, else approximately."""
    data: list[Kronecker] = []
    ridge, exact, n_forms = 0.0, True, 0
    for part in parts:
        exact = exact and part is not None and part.exact
        if part is not None:
            ridge, n_forms = ridge + part.ridge, n_forms + 1
            if part.features is not None:
                data.append(part)
    if not data:
        return Kronecker(ridge, exact=exact) if n_forms else None
    merged = data[0]
    if len(data) > 1:
        merged, complete = _merge_same_features(data)
        exact = exact and merged.exact and complete
    assert merged.features is not None
    if np.ndim(ridge) and not merged.features.is_identity:
        ridge, exact = float(mean(ridge)), False
    return replace(merged, ridge=ridge, exact=exact)


def _merge_same_features(data: list[Kronecker]) -> tuple[Kronecker, bool]:
    """Merge the forms that have the features of the largest; return whether these are all forms."""
    merged, count = data[0], 1
    for part in data[1:]:
        if part.features == merged.features:
            merged, count = merge_forms(merged, part), count + 1
    if count < len(data):  # only now read the sizes from the device
        largest = max(data, key=_compute_size)
        same = [part for part in data if part.features == largest.features]
        merged, count = reduce(merge_forms, same), len(same)
    return merged if merged.exact or count == 1 else limit_row_weights(merged), count == len(data)


def _compute_size(part: Kronecker) -> float:
    return float(mean(part.weights) * _trace(part.M))


def _trace(M: Array) -> Array:
    xp = namespace(M)
    return xp.linalg.trace(M, dtype=xp.float64)


def merge_forms(a: Kronecker, b: Kronecker) -> Kronecker:
    """Return diag(v) ⊗ M₁ + diag(w) ⊗ M₂ as one form, which is exact if v and w are numbers.

    Otherwise it is approximated by the product of its margins: M = v̄ M₁ + w̄ M₂, and weights of mean 1 that give each
    row's block the right trace.

    >>> form = merge_forms(Kronecker(M=np.eye(2), weights=2.0), Kronecker(M=np.ones((2, 2)), weights=0.5))
    >>> form.M, form.weights
    (array([[2.5, 0.5],
           [0.5, 2.5]]), 1.0)
    """
    M = mean(a.weights) * a.M + mean(b.weights) * b.M
    exact = a.exact and b.exact and np.ndim(a.weights) == np.ndim(b.weights) == 0
    total = 0.0 if exact else _compute_size(a) + _compute_size(b)
    if total <= 0:
        return Kronecker(0.0, a.features, M, 1.0, exact)
    scalar, array = (
        (b, a) if np.ndim(a.weights) else (a, b)
    )  # an array first: its operators accept scalars of any library
    weights = (array.weights * _trace(array.M) + scalar.weights * _trace(scalar.M)) / total
    return Kronecker(0.0, a.features, M, weights, False)


def limit_row_weights(merged: Kronecker) -> Kronecker:
    """Clip the row weights of a merged form, so that each of its blocks has an inverse.

    >>> form = Kronecker(M=np.eye(2), weights=np.array([[-1.0], [0.5], [3.5]]), exact=False)
    >>> limit_row_weights(form).weights.ravel()
    array([0.01, 0.5 , 3.5 ])
    """
    if np.ndim(merged.weights) == 0:
        return replace(merged, weights=min(max(merged.weights, MIN_ROW_WEIGHT), MAX_ROW_WEIGHT))
    weights = namespace(merged.weights).clip(merged.weights, MIN_ROW_WEIGHT, MAX_ROW_WEIGHT)
    return replace(merged, weights=weights)


# --- similarity graphs ----------------------------------------------------------------------------------------------


def compute_laplacian(S: Any) -> sp.csr_array:
    """Return D − S̄ for the symmetric part S̄ = (S + Sᵀ)/2 of a similarity matrix and its row sums D.

    Self-loops cancel out; a node without neighbours has a row of zeros.

    >>> compute_laplacian(sp.csr_array([[5.0, 2.0], [0.0, 0.0]])).toarray()
    array([[ 1., -1.],
           [-1.,  1.]])
    """
    S = sp.csr_array(S, dtype=float)
    symmetric = sp.csr_array((S + S.T) / 2)
    symmetric -= sp.diags_array(symmetric.diagonal())
    symmetric.eliminate_zeros()
    return sp.csr_array(sp.diags_array(symmetric.sum(axis=1)) - symmetric)


class Graph(NamedTuple):
    """The Laplacian of a similarity matrix and its degrees (n×1), bound to a backend once for many penalties."""

    kernels: Backend
    laplacian: Any
    degrees: Array

    @classmethod
    def of(cls, similarity: Any, kernels: Backend, dtype: Any) -> Graph:
        """Bind a similarity matrix to a backend."""
        matrix = compute_laplacian(similarity)
        degrees = kernels.rows(matrix.diagonal()[:, None], np.float64)
        return cls(kernels, kernels.prepare_graph(matrix, dtype), degrees)


class GraphPenalty(Quadratic):
    """(γ/2) tr(BᵀLB) = (γ/4) Σ S̄_ij ‖b_i − b_j‖², with L the Laplacian of a similarity matrix S.

    Its Kronecker form is its diagonal, γ times the degrees.

    >>> from labelgap.kernels import get_backend
    >>> graph = Graph.of(sp.csr_array([[0.0, 1.0], [1.0, 0.0]]), get_backend("cpu"), np.float64)
    >>> float(GraphPenalty(graph, 2.0).value(np.array([[3.0], [1.0]])))
    4.0
    """

    separable = False

    def __init__(self, graph: Graph, gamma: float) -> None:
        self.graph, self.gamma = graph, gamma

    def _multiply(self, B: Array) -> Array:
        image = self.graph.kernels.spmm(self.graph.laplacian, B)
        image *= self.gamma
        return image

    def value(self, B: Array) -> Scalar:
        return 0.5 * inner(B, self._multiply(B))

    def model(self, B: Array) -> Model:
        image = self._multiply(B)
        form = Kronecker(self.gamma * self.graph.degrees, exact=False)
        return Model(0.5 * inner(B, image), image, self._multiply, form)


def check_graph(name: str, graph: Any, size: int) -> sp.csr_array:
    """Return a similarity matrix as CSR; raise ValueError if it is not a valid one.

    >>> check_graph("row_graph", np.ones((2, 3)), 2)
    Traceback (most recent call last):
        ...
    ValueError: row_graph has shape (2, 3); pass a square similarity matrix, a row for each of the 2 nodes.
    """
    try:
        if np.iscomplexobj(graph.data if sp.issparse(graph) else graph):
            raise TypeError("its weights are complex")
        matrix = sp.csr_array(graph, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} is not a similarity matrix ({error}); pass a sparse or dense square one."
        ) from error
    if matrix.shape != (size, size):
        raise ValueError(
            f"{name} has shape {matrix.shape}; pass a square similarity matrix, a row for each of the {size} nodes."
        )
    if not np.isfinite(matrix.data).all():
        raise ValueError(f"{name} holds NaN or infinity; pass finite similarities.")
    if (matrix.data < 0).any():
        raise ValueError(f"{name} holds a negative weight, {matrix.data.min():g}; pass similarities of at least 0.")
    return matrix
