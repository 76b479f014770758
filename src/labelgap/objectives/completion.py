"""Labels and features side by side as one matrix that is known in some cells: the smooth part of MC-1 and MC-b.

    f(Z, b) = (λ/|Ω_Y|) Σ over Ω_Y of ℓ(Y_ij, A_ij)  +  (1/|Ω_X|) Σ over Ω_X of ½ (A_{i,t+j} − X_ij)²,   A = Z + 1bᵀ

for Z of n×(t+d), its label columns first (003, eqs. 2 and 3). b has an entry for no column (A = Z), for the labels
(MC-b), or for every column (:class:`Centered`, a form of MC-1).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from labelgap.losses import Loss
from labelgap.observations import Labels
from labelgap.regularizers import largest_triplet
from labelgap.solvers.base import Array
from labelgap.solvers.fpc import Point, Slope, Smooth, Steps

PUBLISHED_SHARE = 0.95  # of the step that the curvature of a label cell allows
SHARE_OF_Z = 0.8  # the rest of an accelerated step is b's


class Known(NamedTuple):
    """Cells of a matrix, by their number row by row, and what they hold."""

    cells: Array
    values: Array


class Completion:
    """f(Z, b) bound to data.

    Parameters
    ----------
    shape : tuple of int
        Rows, labels and features: n, t, d.
    labels, features : Known
        The known cells of the n×t targets and of the n×d features.
    loss : Loss
        ℓ.
    label_weight : float
        λ.
    bias : bool
        Whether the labels have a bias, as in MC-b.

    >>> from labelgap.losses import Squared
    >>> f = Completion.of([[2.0, np.nan]], Labels([[1]]), Squared(), bias=False)
    >>> f.model(Point(np.zeros((1, 3)), np.zeros(0)))
    Slope(value=2.5, Z=array([[-1., -2.,  0.]]), b=array([], dtype=float64))
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        labels: Known,
        features: Known,
        loss: Loss,
        *,
        label_weight: float = 1.0,
        bias: bool = True,
    ) -> None:
        self.n, self.t, self.d = shape
        self.all_labels, self.features, self.loss, self.label_weight = labels, features, loss, label_weight
        self.dtype = features.values.dtype
        self.n_biased = self.t if bias else 0
        self.label_share = self.dtype.type(label_weight / max(1, len(labels.values)))
        self.labels = self._unsettled(labels) if bias else labels
        self.targets, self.values = self.labels.values, features.values
        rows, self.label_of = np.divmod(self.labels.cells, max(1, self.t))
        self._label_places = rows * self.width + self.label_of
        rows, self.feature_of = np.divmod(features.cells, max(1, self.d))
        self._feature_places = rows * self.width + self.t + self.feature_of
        self.feature_share = self.dtype.type(1 / max(1, len(self.values)))
        self._cell = loss.functions(np)

    @classmethod
    def of(
        cls,
        X: Any,
        labels: Labels | None,
        loss: Loss,
        *,
        label_weight: float = 1.0,
        bias: bool = True,
        dtype: Any = np.float64,
        absent_features: str = "zero",
    ) -> Completion:
        """Bind features (dense with NaN, or sparse) and labels; without labels it completes the features alone."""
        features = known_features(X, absent_features, dtype)
        n, d = X.shape if sp.issparse(X) else np.shape(X)
        if labels is None:
            nothing = Known(np.zeros(0, np.int64), np.zeros(0, dtype))
            return cls((n, 0, d), nothing, features, loss, label_weight=label_weight, bias=False)
        targets = labels.encode(loss.negative, loss.positive, dtype)
        known = Known(_cell_numbers(targets), targets.data)
        return cls((n, labels.shape[1], d), known, features, loss, label_weight=label_weight, bias=bias)

    @property
    def width(self) -> int:
        """t + d."""
        return self.t + self.d

    def at(self, mu: float) -> Smooth:
        """Return f: it does not depend on μ."""
        return self

    def zero_filled(self) -> Array:
        """Return the known cells in their places, 0 elsewhere: n×(t+d)."""
        Z = np.zeros((self.n, self.width), self.dtype)
        Z.ravel()[self._label_places], Z.ravel()[self._feature_places] = self.targets, self.values
        return Z

    def start(self) -> tuple[Point, float]:
        """Return the rank-1 approximation of the zero-filled matrix with b = 0, and its singular value."""
        largest = largest_triplet(self.zero_filled())
        return Point(largest.product, np.zeros(self.n_biased, self.dtype)), float(largest.values[0])

    def matrix(self, point: Point) -> Array:
        """Return A = Z + 1bᵀ, n×(t+d)."""
        A = point.Z.copy()
        A[:, : len(point.b)] += point.b
        return A

    def decision(self, point: Point) -> Array:
        """Return the decision values, n×t: A in the label columns, less the threshold of the loss.

        A label of one class has its target in all rows.
        """
        scores = point.Z[:, : self.t] + point.b[: self.t] if len(point.b) else point.Z[:, : self.t].copy()
        for label, target in self.settled:
            scores[:, label] = target
        return scores - self.dtype.type(self.loss.threshold)

    @cached_property
    def settled(self) -> list[tuple[int, float]]:
        """Each label that has one class in its known cells, with the target of that class."""
        label_of = self.all_labels.cells % max(1, self.t)
        known = np.bincount(label_of, minlength=self.t)
        positive = np.bincount(label_of, self.all_labels.values == self.loss.positive, self.t)
        alone = np.flatnonzero((known > 0) & ((positive == 0) | (positive == known)))
        return [(int(j), self.loss.positive if positive[j] else self.loss.negative) for j in alone]

    def _unsettled(self, labels: Known) -> Known:
        """Return the label cells that count beside a free bias: it fits a label of one class alone, at no loss.

        Where that takes an infinite one, as with the logistic loss, leaving the cells out has the same infimum.
        """
        counted = ~np.isin(labels.cells % max(1, self.t), [label for label, _ in self.settled])
        return Known(labels.cells[counted], labels.values[counted])

    def _scores(self, point: Point) -> tuple[Array, Array]:
        """Return A at the label cells, and A − X at the feature cells."""
        Z, b = point.Z.ravel(), point.b
        scores, residual = Z[self._label_places], Z[self._feature_places] - self.values
        if len(b):
            scores += b[self.label_of]
        if len(b) > self.t:
            residual += b[self.t + self.feature_of]
        return scores, residual

    def _value(self, scores: Array, residual: Array) -> float:
        loss = self._cell.value(self.targets, scores).sum(dtype=float)
        return float(self.label_share * loss + self.feature_share * 0.5 * np.square(residual).sum(dtype=float))

    def value(self, point: Point) -> float:
        """Return f."""
        return self._value(*self._scores(point))

    def model(self, point: Point) -> Slope:
        """Return f and its gradient."""
        scores, residual = self._scores(point)
        value, pull = self._value(scores, residual), self.label_share * self._cell.gradient(self.targets, scores)
        residual *= self.feature_share
        Z = np.zeros((self.n, self.width), self.dtype)
        Z.ravel()[self._label_places], Z.ravel()[self._feature_places] = pull, residual
        return Slope(value, Z, Z[:, : len(point.b)].sum(0))

    @cached_property
    def steps(self) -> Steps:
        """τ_Z = min(0.95 |Ω_Y| / (λ c), |Ω_X|) and τ_b = 0.95 |Ω_Y| / (λ n c), c = sup ℓ'': as published, any loss.

        In the norm that the steps weight, f has a curvature below 2, so that no fixed point step raises the
        objective.
        """
        label, feature = self._cell_steps
        bias = PUBLISHED_SHARE * label / self.n if self.n_biased and np.isfinite(label) else 0.0
        return Steps(min(PUBLISHED_SHARE * label, feature), bias)

    @cached_property
    def short_steps(self) -> Steps:
        """Steps in whose norm f has a curvature of at most 1, as acceleration asks.

        A column with n_j known cells of curvature 1/τ has that if τ_Z + n_j τ_b ≤ τ.
        """
        label, feature = self._cell_steps
        if not self.n_biased or (self.n_biased == self.t and not np.isfinite(label)):
            return Steps(min(label, feature), 0.0)
        known = np.bincount(self.label_of, minlength=1).max()
        if self.n_biased == self.t:
            Z = min(SHARE_OF_Z * label, feature)
            return Steps(Z, (label - Z) / known)
        Z = SHARE_OF_Z * min(label, feature)
        of_features = np.bincount(self.feature_of, minlength=1).max()
        return Steps(Z, min((label - Z) / max(1, known), (feature - Z) / max(1, of_features)))

    @property
    def _cell_steps(self) -> tuple[float, float]:
        """1 / the largest curvature of a label cell, and of a feature cell."""
        bend = float(self.label_share) * self.loss.max_curvature if len(self.targets) else 0.0
        feature = 1 / float(self.feature_share) if len(self.values) or not bend else np.inf
        return 1 / bend if bend else np.inf, feature

    def centered(self) -> Centered:
        """Return the same data in the form of MC-1 without a constraint."""
        shape = (self.n, self.t, self.d)
        return Centered(shape, self.all_labels, self.features, self.loss, label_weight=self.label_weight, bias=False)


class Centered(Completion):
    """MC-1 without its constraint: every column has a bias, and the biases have a price.

        ‖[A, 1]‖_* = min over b of ‖A − 1bᵀ‖_* + √n √(1 + ‖b‖²)

    The nuclear norm is the least (‖W‖² + ‖H‖²)/2 over factors W Hᵀ = [A, 1]. Turn these until the constant's row of H
    is (c, 0, …, 0); then W has the column 1/c, whose part of the product is 1bᵀ for a b of our choice, at the price
    (n/c² + c² + c²‖b‖²)/2, and the least of that over c is the second term. So μ ‖Z‖_* + f(Z, b) + μ √n √(1 + ‖b‖²)
    has the minimum of MC-1, and its last term is smooth.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.n_biased = self.width

    def at(self, mu: float) -> Smooth:
        """Return f with the price of the biases."""
        return _Priced(self, mu * self.n**0.5)


class _Priced:
    """f(Z, b) + price · √(1 + ‖b‖²)."""

    def __init__(self, smooth: Centered, price: float) -> None:
        self.smooth, self.price = smooth, price
        self.steps = self.short_steps = self._steps()

    def _steps(self) -> Steps:
        """Add the curvature of the price to that of b, which is at most ``price``."""
        Z, b = self.smooth.short_steps
        return Steps(Z, 1 / (1 / b + self.price))

    def at(self, mu: float) -> Smooth:
        """Return this."""
        return self

    def value(self, point: Point) -> float:
        """Return f and the price."""
        return self.smooth.value(point) + self.price * _height(point.b)

    def model(self, point: Point) -> Slope:
        """Return f and the price with their gradient."""
        slope, height = self.smooth.model(point), _height(point.b)
        pull = point.b.dtype.type(self.price / height) * point.b
        return Slope(slope.value + self.price * height, slope.Z, slope.b + pull)


def _height(b: Array) -> float:
    return float(np.sqrt(1 + np.square(b, dtype=float).sum()))


def known_features(X: Any, absent: str, dtype: Any) -> Known:
    """Return the known cells of a feature matrix: those that are not NaN, and of a sparse one, as ``absent`` says.

    >>> known_features(np.array([[1.0, np.nan], [0.0, 3.0]]), "zero", float)
    Known(cells=array([0, 2, 3]), values=array([1., 0., 3.]))
    """
    if sp.issparse(X) and absent == "unknown":
        csr = sp.csr_array(X, copy=True)
        csr.sum_duplicates()
        kept = ~np.isnan(csr.data)
        return Known(_cell_numbers(csr)[kept], csr.data[kept].astype(dtype))
    dense = X.toarray() if sp.issparse(X) else np.asarray(X)
    cells = np.flatnonzero(~np.isnan(dense))
    return Known(cells, dense.ravel()[cells].astype(dtype))


def _cell_numbers(csr: sp.csr_array) -> Array:
    rows = np.repeat(np.arange(csr.shape[0], dtype=np.int64), np.diff(csr.indptr))
    return rows * csr.shape[1] + csr.indices
