"""MC-1 and MC-b in factored form: no array is larger than the known cells and the factors.

μ ‖Z‖_* is the least (μ/2)(‖W‖² + ‖H‖²) over Z = W Hᵀ. With W of n×k, and h_j and b_j for each label and feature,

    F(W, H) = (λ/|Ω_Y|) Σ ℓ(Y_ij, w_i·h_j + b_j)  +  (1/|Ω_X|) Σ ½ (w_i·h_{t+j} + b_{t+j} − X_ij)²
              + (μ/2)(‖W‖² + ‖H‖²)  +  the price of b.

In MC-b labels have a bias without a price, and features have none. In MC-1 every column has one, at the price
μ √n √(1 + ‖b‖²) (:class:`~labelgap.objectives.label_feature_matrix.CenteredCompletion`), which is the least
(μ/2)(n/c² + c² + c²‖b‖²) over c: a ridge on b for a fixed c. F is multiplied by |Ω_X|, so that feature cells have the
weight 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from labelgap.kernels import Backend
from labelgap.losses import CellFunctions, Loss, Squared
from labelgap.objectives.base import Ridge, Sum
from labelgap.objectives.cells import KnownCells
from labelgap.objectives.label_feature_matrix import Completion, KnownValues
from labelgap.objectives.problem import balance_factors
from labelgap.observations.labels import make_csr
from labelgap.solvers.base import Array, Kronecker, Model, Objective, Solution, Solver, Status
from labelgap.solvers.spectral import find_right_vectors


class SignedLoss:
    """|v| ℓ(a, b): the weight is |v|, and the sign of v selects the positive or the negative target a."""

    def __init__(self, loss: Loss) -> None:
        self.loss = loss

    def functions(self, xp: Any = np) -> CellFunctions:
        """Return value, gradient and curvature in b."""
        low, rise = float(self.loss.negative), float(self.loss.positive - self.loss.negative)
        return CellFunctions(*(_weight_by_sign(function, low, rise) for function in self.loss.functions(xp)))


def _weight_by_sign(function: Any, low: float, rise: float) -> Any:
    def signed(v, b):
        return abs(v) * function(low + rise * (v > 0), b)

    return signed


class BiasedObjective:
    """f([W, 1]) as an objective in W: the last column of the other factor is a bias."""

    def __init__(self, inner: Objective) -> None:
        self.inner, self.separable = inner, inner.separable

    def value(self, W: Array) -> float:
        return self.inner.value(append_constant(W, 1.0))

    def along(self, W: Array, S: Array) -> Callable[[float], float]:
        return self.inner.along(append_constant(W, 1.0), append_constant(S, 0.0))

    def model(self, W: Array) -> Model:
        value, gradient, hessp, form, _ = self.inner.model(append_constant(W, 1.0))
        if form is not None and form.M is not None:
            form = Kronecker(form.ridge, form.features, form.M[:-1, :-1], form.weights, form.exact)
        return Model(
            value,
            np.ascontiguousarray(gradient[:, :-1]),
            lambda S: np.ascontiguousarray(hessp(append_constant(S, 0.0))[:, :-1]),
            form,
        )


def append_constant(W: Array, value: float) -> Array:
    """Return [W, value].

    >>> append_constant(np.zeros((2, 1)), 1.0)
    array([[0., 1.],
           [0., 1.]])
    """
    return np.concatenate([W, np.full((len(W), 1), value, W.dtype)], axis=1)


class RowPart(NamedTuple):
    """Rows of H, the number of their columns that are used, and the objective in these."""

    rows: slice
    width: int
    objective: Objective

    def select(self, H: Array) -> Array:
        """Return the block of H that the part uses."""
        return np.ascontiguousarray(H[self.rows, : self.width])


class RowPartsObjective:
    """Σ over parts of f(H[rows, :width]) + constant: the rows of labels and of features are independent."""

    separable = True

    def __init__(self, parts: list[RowPart], constant: float) -> None:
        self.parts, self.constant = parts, constant

    def value(self, H: Array) -> float:
        return sum((part.objective.value(part.select(H)) for part in self.parts), self.constant)

    def along(self, H: Array, S: Array) -> Callable[[float], float]:
        return lambda step: self.value(H + H.dtype.type(step) * S)

    def model(self, H: Array) -> Model:
        raise NotImplementedError("RowPartsSolver solves each part separately")


class RowPartsSolver:
    """Solver that minimises each part of a :class:`RowPartsObjective` separately."""

    def __init__(self, solver: Solver) -> None:
        self.solver = solver

    def minimize(self, objective: RowPartsObjective, start: Array) -> Solution:
        """Return the minimisers of all parts."""
        x, value, products = start.copy(), objective.constant, 0
        for part in objective.parts:
            solution = self.solver.minimize(part.objective, part.select(start))
            x[part.rows, : part.width] = solution.x
            value, products = value + solution.value, products + solution.n_products
        return Solution(x, value, Status.CONVERGED, 1, products)


class FactoredCompletion:
    """F(W, H) times |Ω_X|, for W of n×k and H of (t+d)×(k+1), whose last column is b.

    Parameters
    ----------
    problem : Completion
        The data, the loss and λ.
    mu : float
        μ.
    constant : bool
        Whether to use MC-1 instead of MC-b.
    kernels : Backend
        The backend.
    """

    def __init__(self, problem: Completion, mu: float, *, constant: bool, kernels: Backend) -> None:
        self.n, self.t, self.d, self.constant = problem.n, problem.t, problem.d, constant
        self.scale = 1 / float(problem.feature_share)
        self.alpha = mu * self.scale
        weight = problem.dtype.type(problem.label_share * self.scale)
        signed = np.where(problem.targets == problem.loss.positive, weight, -weight)
        labels = _make_csr(KnownValues(problem.labels.cells, signed), (self.n, self.t))
        self.labels = KnownCells(kernels, SignedLoss(problem.loss), kernels.prepare(labels, problem.dtype))
        features = _make_csr(problem.features, (self.n, self.d))
        self.features = KnownCells(kernels, Squared(), kernels.prepare(features, problem.dtype))
        self.dtype, self.c = problem.dtype, self.n**0.25

    def start(self, k: int, random_state: np.random.RandomState) -> tuple[Array, Array]:
        """Return W = 0, and H from the leading right singular vectors of the zero-filled matrix."""
        parts = (self.labels, self.features)
        _, V = find_right_vectors(
            lambda P: self.labels.multiply_targets(P[: self.t]) + self.features.multiply_targets(P[self.t :]),
            lambda P: np.concatenate([part.T.multiply_targets(P) for part in parts]),
            self.t + self.d,
            k,
            random_state=random_state,
            dtype=self.dtype,
        )
        return np.zeros((self.n, V.shape[1]), self.dtype), append_constant(V.astype(self.dtype), 0.0)

    def objective_in_left(self, H: Array) -> Objective:
        """Return F(·, H)."""
        labels, features = np.ascontiguousarray(H[: self.t]), np.ascontiguousarray(H[self.t :])
        data = [
            BiasedObjective(self.labels.objective_in_left(labels)),
            BiasedObjective(self.features.objective_in_left(features)),
        ]
        return Sum([*data, Ridge(self.alpha)], self._penalty_right(H))

    def objective_in_right(self, W: Array) -> RowPartsObjective:
        """Return F(W, ·)."""
        k, with_ones = W.shape[1], append_constant(W, 1.0)
        bias_ridge = self.alpha * self.c**2 if self.constant else 0.0
        labels = Sum([self.labels.T.objective_in_left(with_ones), self._make_ridge(k, bias_ridge)])
        parts = [RowPart(slice(0, self.t), k + 1, labels)]
        if self.constant:
            biased = Sum([self.features.T.objective_in_left(with_ones), self._make_ridge(k, bias_ridge)])
            parts.append(RowPart(slice(self.t, None), k + 1, biased))
        else:
            parts.append(
                RowPart(slice(self.t, None), k, Sum([self.features.T.objective_in_left(W), Ridge(self.alpha)]))
            )
        return RowPartsObjective(parts, 0.5 * self.alpha * (float((W * W).sum(dtype=float)) + self._price_of_c()))

    def balance(self, W: Array, H: Array) -> tuple[Array, Array, float]:
        """Return factors with the same product and the least penalty, and the decrease of F; update c."""
        before = 0.5 * self.alpha * float((W * W).sum(dtype=float)) + self._penalty_right(H)
        W, unbiased = balance_factors(W, H[:, :-1], 1.0)
        H = np.concatenate([unbiased, H[:, -1:]], axis=1)
        self.c = (self.n / (1 + float((H[:, -1] ** 2).sum(dtype=float)))) ** 0.25
        after = 0.5 * self.alpha * float((W * W).sum(dtype=float)) + self._penalty_right(H)
        return W, H, before - after

    def _make_ridge(self, k: int, bias_ridge: float) -> Ridge:
        return Ridge(np.append(np.full(k, self.alpha), bias_ridge)[None])

    def _price_of_c(self) -> float:
        return self.n / self.c**2 + self.c**2 if self.constant else 0.0

    def _penalty_right(self, H: Array) -> float:
        square = float((H[:, :-1] ** 2).sum(dtype=float)) + self._price_of_c()
        if self.constant:
            square += self.c**2 * float((H[:, -1] ** 2).sum(dtype=float))
        return 0.5 * self.alpha * square

    def complete_factors(self, W: Array, H: Array) -> tuple[Array, Array]:
        """Return factors of Z, or of [A, 1] in MC-1, where 1bᵀ is one more component, 1/c times c b."""
        if not self.constant:
            return W, np.ascontiguousarray(H[:, :-1])
        rows = np.concatenate([H[:, :-1], self.c * H[:, -1:]], axis=1)
        last = np.zeros((1, rows.shape[1]), rows.dtype)
        last[0, -1] = self.c
        return append_constant(W, 1 / self.c), np.concatenate([rows, last])


def _make_csr(known: KnownValues, shape: tuple[int, int]) -> sp.csr_array:
    rows, columns = np.divmod(known.cells, max(1, shape[1]))
    counts = np.bincount(rows, minlength=shape[0])
    return make_csr(known.values, columns, np.concatenate([[0], np.cumsum(counts)]), shape)
