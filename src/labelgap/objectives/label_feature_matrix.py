"""Completion of the joint label-feature matrix: the smooth part of MC-1 and MC-b.

    f(Z, b) = (λ/|Ω_Y|) Σ over Ω_Y of ℓ(Y_ij, A_ij)  +  (1/|Ω_X|) Σ over Ω_X of ½ (A_{i,t+j} − X_ij)²,   A = Z + 1bᵀ

for Z of n×(t+d), its label columns first (003, eqs. 2 and 3). b has no entries (A = Z), one for each label (MC-b),
or one for each column (:class:`CenteredCompletion`, a form of MC-1).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import array_api_compat
import numpy as np
import scipy.sparse as sp

from labelgap.kernels import Backend, copy, get_backend, inner, namespace
from labelgap.losses import Loss
from labelgap.observations import Labels
from labelgap.observations.labels import number_cells
from labelgap.regularizers import find_largest_triplet
from labelgap.solvers.base import Array
from labelgap.solvers.fpc import Point, Slope, Smooth, Steps

PUBLISHED_STEP_SHARE = 0.95  # of the step that the curvature of a label cell allows
Z_STEP_SHARE = 0.8  # of an accelerated step; b has the rest


class KnownValues(NamedTuple):
    """Known cells of a matrix, numbered row by row, and their values."""

    cells: Array
    values: Array


class Completion:
    """f(Z, b) for given data.

    Parameters
    ----------
    shape : tuple of int
        Rows, labels and features: n, t, d.
    labels, features : KnownValues
        The known cells of the n×t targets and of the n×d features.
    loss : Loss
        ℓ.
    label_weight : float
        λ.
    bias : bool
        Whether the labels have a bias, as in MC-b.
    kernels : Backend, optional
        The backend of the device of Z; by default the CPU.

    >>> from labelgap.losses import Squared
    >>> f = Completion.of([[2.0, np.nan]], Labels([[1]]), Squared(), bias=False)
    >>> f.model(Point(np.zeros((1, 3)), np.zeros(0)))
    Slope(value=2.5, Z=array([[-1., -2.,  0.]]), b=array([], dtype=float64))
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        labels: KnownValues,
        features: KnownValues,
        loss: Loss,
        *,
        label_weight: float = 1.0,
        bias: bool = True,
        kernels: Backend | None = None,
    ) -> None:
        self.kernels: Any = get_backend() if kernels is None else kernels
        self.n, self.t, self.d = shape
        self.all_labels, self.features, self.loss, self.label_weight = labels, features, loss, label_weight
        self.dtype = features.values.dtype
        self.n_biased = self.t if bias else 0
        self.label_share = self.dtype.type(label_weight / max(1, len(labels.values)))
        self.labels = self._drop_constant_labels(labels) if bias else labels
        self.targets, self.values = (self._place(known.values, self.dtype) for known in (self.labels, features))
        rows, self.label_of = np.divmod(self.labels.cells, max(1, self.t))
        self._label_positions = self._place(rows * self.width + self.label_of)
        rows, self.feature_of = np.divmod(features.cells, max(1, self.d))
        self._feature_positions = self._place(rows * self.width + self.t + self.feature_of)
        self._biases = self._place(self.label_of), self._place(self.t + self.feature_of)
        self.feature_share = self.dtype.type(1 / max(1, len(self.values)))
        self._loss_functions = loss.functions(namespace(self.targets))

    def _place(self, values: Array, dtype: Any = np.int64) -> Array:
        """Return an array on the device of Z."""
        return self.kernels.array(values, dtype)

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
        kernels: Backend | None = None,
    ) -> Completion:
        """Return f for features (dense with NaN, or sparse) and labels; without labels it completes the features."""
        features = find_known_features(X, absent_features, dtype)
        n, d = X.shape if sp.issparse(X) else np.shape(X)
        if labels is None:
            no_labels = KnownValues(np.zeros(0, np.int64), np.zeros(0, dtype))
            return cls((n, 0, d), no_labels, features, loss, label_weight=label_weight, bias=False, kernels=kernels)
        targets = labels.encode(loss.negative, loss.positive, dtype)
        known = KnownValues(number_cells(targets), targets.data)
        shape = n, labels.shape[1], d
        return cls(shape, known, features, loss, label_weight=label_weight, bias=bias, kernels=kernels)

    @property
    def width(self) -> int:
        """The number of columns, t + d."""
        return self.t + self.d

    def at(self, mu: float) -> Smooth:
        """Return f, which does not depend on μ."""
        return self

    def fill_with_zeros(self) -> Array:
        """Return the known values, 0 elsewhere, n×(t+d)."""
        return self._fill(self.targets, self.values)

    def _fill(self, at_labels: Array, at_features: Array) -> Array:
        """Return a matrix with these numbers in the known cells, 0 elsewhere."""
        xp = namespace(at_features)
        Z = xp.zeros((self.n, self.width), dtype=at_features.dtype, device=array_api_compat.device(at_features))
        flat = xp.reshape(Z, (-1,))
        flat[self._label_positions], flat[self._feature_positions] = at_labels, at_features
        return Z

    def start(self) -> tuple[Point, float]:
        """Return the rank-1 approximation of the zero-filled matrix with b = 0, and its singular value."""
        largest = find_largest_triplet(self.fill_with_zeros())
        return Point(largest.product, self._place(np.zeros(self.n_biased), self.dtype)), float(largest.values[0])

    def matrix(self, point: Point) -> Array:
        """Return A = Z + 1bᵀ, n×(t+d)."""
        A = copy(point.Z)
        A[:, : len(point.b)] += point.b
        return A

    def decision(self, point: Point) -> Array:
        """Return the decision values, n×t, of a point on the host: A in the label columns minus the loss's threshold.

        A label whose known cells have one class has its target in all rows.
        """
        scores = point.Z[:, : self.t] + point.b[: self.t] if len(point.b) else point.Z[:, : self.t].copy()
        for label, target in self.constant_labels:
            scores[:, label] = target
        return scores - self.dtype.type(self.loss.threshold)

    @cached_property
    def constant_labels(self) -> list[tuple[int, float]]:
        """The labels whose known cells have one class, with the target of that class."""
        label_of = self.all_labels.cells % max(1, self.t)
        known = np.bincount(label_of, minlength=self.t)
        positive = np.bincount(label_of, self.all_labels.values == self.loss.positive, self.t)
        constant = np.flatnonzero((known > 0) & ((positive == 0) | (positive == known)))
        return [(int(j), self.loss.positive if positive[j] else self.loss.negative) for j in constant]

    def _drop_constant_labels(self, labels: KnownValues) -> KnownValues:
        """Return the cells of labels with two classes: a free bias fits a label of one class without loss.

        If such a bias is infinite, as for the logistic loss, dropping the cells has the same infimum.
        """
        has_two_classes = ~np.isin(labels.cells % max(1, self.t), [label for label, _ in self.constant_labels])
        return KnownValues(labels.cells[has_two_classes], labels.values[has_two_classes])

    def _scores(self, point: Point) -> tuple[Array, Array]:
        """Return A at the label cells, and A − X at the feature cells."""
        Z, b = namespace(point.Z).reshape(point.Z, (-1,)), point.b
        scores, residual = Z[self._label_positions], Z[self._feature_positions] - self.values
        if len(b):
            scores += b[self._biases[0]]
        if len(b) > self.t:
            residual += b[self._biases[1]]
        return scores, residual

    def _value(self, scores: Array, residual: Array) -> float:
        xp = namespace(residual)
        loss = float(xp.sum(self._loss_functions.value(self.targets, scores), dtype=xp.float64))
        square = float(xp.sum(residual * residual, dtype=xp.float64))
        return float(self.label_share) * loss + float(self.feature_share) * 0.5 * square

    def value(self, point: Point) -> float:
        """Return f."""
        return self._value(*self._scores(point))

    def model(self, point: Point) -> Slope:
        """Return f and its gradient."""
        scores, residual = self._scores(point)
        value = self._value(scores, residual)
        label_gradient = float(self.label_share) * self._loss_functions.gradient(self.targets, scores)
        Z = self._fill(label_gradient, float(self.feature_share) * residual)
        return Slope(value, Z, namespace(Z).sum(Z[:, : len(point.b)], axis=0))

    @cached_property
    def steps(self) -> Steps:
        """τ_Z = min(0.95 |Ω_Y| / (λ c), |Ω_X|) and τ_b = 0.95 |Ω_Y| / (λ n c), c = sup ℓ'', as published.

        In the norm of the steps f has a curvature below 2, so that no fixed point step raises the objective.
        """
        label, feature = self._cell_steps
        bias = PUBLISHED_STEP_SHARE * label / self.n if self.n_biased and np.isfinite(label) else 0.0
        return Steps(min(PUBLISHED_STEP_SHARE * label, feature), bias)

    @cached_property
    def short_steps(self) -> Steps:
        """Steps in whose norm f has a curvature of at most 1, as acceleration requires.

        A column with n_j known cells of curvature 1/τ satisfies that if τ_Z + n_j τ_b ≤ τ.
        """
        label, feature = self._cell_steps
        if not self.n_biased or (self.n_biased == self.t and not np.isfinite(label)):
            return Steps(min(label, feature), 0.0)
        max_label_cells = np.bincount(self.label_of, minlength=1).max()
        if self.n_biased == self.t:
            Z = min(Z_STEP_SHARE * label, feature)
            return Steps(Z, (label - Z) / max_label_cells)
        Z = Z_STEP_SHARE * min(label, feature)
        max_feature_cells = np.bincount(self.feature_of, minlength=1).max()
        return Steps(Z, min((label - Z) / max(1, max_label_cells), (feature - Z) / max(1, max_feature_cells)))

    @property
    def _cell_steps(self) -> tuple[float, float]:
        """1 divided by the largest curvature of a label cell, and of a feature cell."""
        curvature = float(self.label_share) * self.loss.max_curvature if len(self.targets) else 0.0
        feature = 1 / float(self.feature_share) if len(self.values) or not curvature else np.inf
        return 1 / curvature if curvature else np.inf, feature

    def center(self) -> CenteredCompletion:
        """Return the same data in the unconstrained form of MC-1."""
        shape = (self.n, self.t, self.d)
        options: dict[str, Any] = {"label_weight": self.label_weight, "bias": False, "kernels": self.kernels}
        return CenteredCompletion(shape, self.all_labels, self.features, self.loss, **options)


class CenteredCompletion(Completion):
    """The unconstrained form of MC-1: every column has a bias, and the biases have a price.

        ‖[A, 1]‖_* = min over b of ‖A − 1bᵀ‖_* + √n √(1 + ‖b‖²)

    The nuclear norm is the least (‖W‖² + ‖H‖²)/2 over factors W Hᵀ = [A, 1]. Rotate these until the constant's row of
    H is (c, 0, …, 0); then W has the column 1/c, which contributes 1bᵀ to the product for a free b, at the price
    (n/c² + c² + c²‖b‖²)/2, whose minimum over c is the second term. So μ ‖Z‖_* + f(Z, b) + μ √n √(1 + ‖b‖²) has the
    minimum of MC-1, and its last term is smooth.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.n_biased = self.width

    def at(self, mu: float) -> Smooth:
        """Return f plus the price of the biases."""
        return _PricedBiases(self, mu * self.n**0.5)


class _PricedBiases:
    """f(Z, b) + price · √(1 + ‖b‖²)."""

    def __init__(self, smooth: CenteredCompletion, price: float) -> None:
        self.smooth, self.price = smooth, price
        Z, b = smooth.short_steps
        # The curvature of the price is at most ``price``.
        self.steps = self.short_steps = Steps(Z, 1 / (1 / b + price))

    def at(self, mu: float) -> Smooth:
        """Return self."""
        return self

    def value(self, point: Point) -> float:
        """Return f plus the price."""
        return self.smooth.value(point) + self.price * _length_with_one(point.b)

    def model(self, point: Point) -> Slope:
        """Return f plus the price, with the gradient."""
        slope, length = self.smooth.model(point), _length_with_one(point.b)
        gradient = float(self.price / length) * point.b
        return Slope(slope.value + self.price * length, slope.Z, slope.b + gradient)


def _length_with_one(b: Array) -> float:
    """Return √(1 + ‖b‖²)."""
    return (1 + float(inner(b, b))) ** 0.5


def find_known_features(X: Any, absent: str, dtype: Any) -> KnownValues:
    """Return the cells of a feature matrix that are not NaN; ``absent`` is the meaning of cells that are not stored.

    >>> find_known_features(np.array([[1.0, np.nan], [0.0, 3.0]]), "zero", float)
    KnownValues(cells=array([0, 2, 3]), values=array([1., 0., 3.]))
    """
    if sp.issparse(X) and absent == "unknown":
        csr = sp.csr_array(X, copy=True)
        csr.sum_duplicates()
        is_known = ~np.isnan(csr.data)
        return KnownValues(number_cells(csr)[is_known], csr.data[is_known].astype(dtype))
    dense = X.toarray() if sp.issparse(X) else np.asarray(X)
    cells = np.flatnonzero(~np.isnan(dense))
    return KnownValues(cells, dense.ravel()[cells].astype(dtype))
