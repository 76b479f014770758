"""MC-1 and MC-b over factors: no array is larger than the known cells and the factors.

μ ‖Z‖_* is the least (μ/2)(‖W‖² + ‖H‖²) over Z = W Hᵀ. With W of n×k, and h_j and b_j for each label and feature,

    F(W, H) = (λ/|Ω_Y|) Σ ℓ(Y_ij, w_i·h_j + b_j)  +  (1/|Ω_X|) Σ ½ (w_i·h_{t+j} + b_{t+j} − X_ij)²
              + (μ/2)(‖W‖² + ‖H‖²)  +  the price of b.

In MC-b the labels have a bias that costs nothing and the features have none. In MC-1 every column has one, at the
price μ √n √(1 + ‖b‖²) (:class:`~labelgap.objectives.completion.Centered`), which is the least
(μ/2)(n/c² + c² + c²‖b‖²) over c: a ridge on b while c is held. Everything is multiplied by |Ω_X|, so that feature
cells have the weight 1.
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
from labelgap.objectives.completion import Completion, Known
from labelgap.objectives.problem import balanced
from labelgap.observations.labels import csr_of
from labelgap.solvers.base import Array, Kronecker, Model, Objective, Solution, Solver, Status
from labelgap.solvers.subspace import leading_right_vectors


class Signed:
    """|v| ℓ(a, b): the target a is the positive one for v > 0 and the negative one for v < 0, and |v| is a weight."""

    def __init__(self, loss: Loss) -> None:
        self.loss = loss

    def functions(self, xp: Any = np) -> CellFunctions:
        """Return value, gradient and curvature in b."""
        low, rise = float(self.loss.negative), float(self.loss.positive - self.loss.negative)
        return CellFunctions(*(_signed(function, low, rise) for function in self.loss.functions(xp)))


def _signed(function: Any, low: float, rise: float) -> Any:
    def signed(v, b):
        return abs(v) * function(low + rise * (v > 0), b)

    return signed


class Lifted:
    """f([W, 1]) as an objective in W: the last column of the other factor is a bias."""

    def __init__(self, inner: Objective) -> None:
        self.inner, self.separable = inner, inner.separable

    def value(self, W: Array) -> float:
        return self.inner.value(with_column(W, 1.0))

    def along(self, W: Array, S: Array) -> Callable[[float], float]:
        return self.inner.along(with_column(W, 1.0), with_column(S, 0.0))

    def model(self, W: Array) -> Model:
        value, gradient, hessp, near = self.inner.model(with_column(W, 1.0))
        if near is not None and near.M is not None:
            near = Kronecker(near.ridge, near.features, near.M[:-1, :-1], near.weights, near.exact)
        return Model(
            value,
            np.ascontiguousarray(gradient[:, :-1]),
            lambda S: np.ascontiguousarray(hessp(with_column(S, 0.0))[:, :-1]),
            near,
        )


def with_column(W: Array, value: float) -> Array:
    """Return [W, value].

    >>> with_column(np.zeros((2, 1)), 1.0)
    array([[0., 1.],
           [0., 1.]])
    """
    return np.concatenate([W, np.full((len(W), 1), value, W.dtype)], axis=1)


class Part(NamedTuple):
    """Rows of H, the number of their columns that count, and the objective in these."""

    rows: slice
    width: int
    objective: Objective

    def of(self, H: Array) -> Array:
        """Return the part's own block of H."""
        return np.ascontiguousarray(H[self.rows, : self.width])


class Parts:
    """Σ over parts of f(H[rows, :width]) + constant: the rows of labels and of features are independent."""

    separable = True

    def __init__(self, parts: list[Part], constant: float) -> None:
        self.parts, self.constant = parts, constant

    def value(self, H: Array) -> float:
        return sum((part.objective.value(part.of(H)) for part in self.parts), self.constant)

    def along(self, H: Array, S: Array) -> Callable[[float], float]:
        return lambda step: self.value(H + H.dtype.type(step) * S)

    def model(self, H: Array) -> Model:
        raise NotImplementedError("each part is solved by itself")


class PartByPart:
    """Solves each part of :class:`Parts` by itself."""

    def __init__(self, solver: Solver) -> None:
        self.solver = solver

    def minimize(self, objective: Parts, start: Array) -> Solution:
        """Return all parts at their minimisers."""
        x, value, products = start.copy(), objective.constant, 0
        for part in objective.parts:
            found = self.solver.minimize(part.objective, part.of(start))
            x[part.rows, : part.width] = found.x
            value, products = value + found.value, products + found.n_products
        return Solution(x, value, Status.CONVERGED, 1, products)


class Factored:
    """F(W, H) times |Ω_X|, for W of n×k and H of (t+d)×(k+1), whose last column is b.

    Parameters
    ----------
    problem : Completion
        The data, the loss and λ.
    mu : float
        μ.
    constant : bool
        MC-1 rather than MC-b.
    kernels : Backend
        Where to compute.
    """

    def __init__(self, problem: Completion, mu: float, *, constant: bool, kernels: Backend) -> None:
        self.n, self.t, self.d, self.constant = problem.n, problem.t, problem.d, constant
        self.scale = 1 / float(problem.feature_share)
        self.alpha = mu * self.scale
        weight = problem.dtype.type(problem.label_share * self.scale)
        signed = np.where(problem.targets == problem.loss.positive, weight, -weight)
        labels = _csr(Known(problem.labels.cells, signed), (self.n, self.t))
        self.labels = KnownCells(kernels, Signed(problem.loss), kernels.prepare(labels, problem.dtype))
        features = _csr(problem.features, (self.n, self.d))
        self.features = KnownCells(kernels, Squared(), kernels.prepare(features, problem.dtype))
        self.dtype, self.c = problem.dtype, self.n**0.25

    def start(self, k: int, random_state: np.random.RandomState) -> tuple[Array, Array]:
        """Return W = 0, and H from the leading right singular vectors of the zero-filled matrix."""
        parts = (self.labels, self.features)
        _, V = leading_right_vectors(
            lambda P: self.labels.targets_times(P[: self.t]) + self.features.targets_times(P[self.t :]),
            lambda P: np.concatenate([part.T.targets_times(P) for part in parts]),
            self.t + self.d,
            k,
            random_state=random_state,
            dtype=self.dtype,
        )
        return np.zeros((self.n, V.shape[1]), self.dtype), with_column(V.astype(self.dtype), 0.0)

    def given_right(self, H: Array) -> Objective:
        """F(·, H)."""
        labels, features = np.ascontiguousarray(H[: self.t]), np.ascontiguousarray(H[self.t :])
        data = [Lifted(self.labels.given(labels)), Lifted(self.features.given(features))]
        return Sum([*data, Ridge(self.alpha)], self._penalty_right(H))

    def given_left(self, W: Array) -> Parts:
        """F(W, ·)."""
        k, lifted = W.shape[1], with_column(W, 1.0)
        labels = Sum([self.labels.T.given(lifted), self._ridge(k, self.alpha * self.c**2 if self.constant else 0.0)])
        parts = [Part(slice(0, self.t), k + 1, labels)]
        if self.constant:
            biased = Sum([self.features.T.given(lifted), self._ridge(k, self.alpha * self.c**2)])
            parts.append(Part(slice(self.t, None), k + 1, biased))
        else:
            parts.append(Part(slice(self.t, None), k, Sum([self.features.T.given(W), Ridge(self.alpha)])))
        return Parts(parts, 0.5 * self.alpha * (float((W * W).sum(dtype=float)) + self._price_of_c()))

    def balance(self, W: Array, H: Array) -> tuple[Array, Array, float]:
        """Give the product the factors of the least penalty, and c its best value; return how much F falls."""
        before = 0.5 * self.alpha * float((W * W).sum(dtype=float)) + self._penalty_right(H)
        W, left = balanced(W, H[:, :-1], 1.0)
        H = np.concatenate([left, H[:, -1:]], axis=1)
        self.c = (self.n / (1 + float((H[:, -1] ** 2).sum(dtype=float)))) ** 0.25
        after = 0.5 * self.alpha * float((W * W).sum(dtype=float)) + self._penalty_right(H)
        return W, H, before - after

    def _ridge(self, k: int, of_bias: float) -> Ridge:
        return Ridge(np.append(np.full(k, self.alpha), of_bias)[None])

    def _price_of_c(self) -> float:
        return self.n / self.c**2 + self.c**2 if self.constant else 0.0

    def _penalty_right(self, H: Array) -> float:
        square = float((H[:, :-1] ** 2).sum(dtype=float)) + self._price_of_c()
        if self.constant:
            square += self.c**2 * float((H[:, -1] ** 2).sum(dtype=float))
        return 0.5 * self.alpha * square

    def complete_factors(self, W: Array, H: Array) -> tuple[Array, Array]:
        """Return factors of Z, or of [A, 1] in MC-1: then 1bᵀ is one more component, 1/c times c b."""
        if not self.constant:
            return W, np.ascontiguousarray(H[:, :-1])
        rows = np.concatenate([H[:, :-1], self.c * H[:, -1:]], axis=1)
        last = np.zeros((1, rows.shape[1]), rows.dtype)
        last[0, -1] = self.c
        return with_column(W, 1 / self.c), np.concatenate([rows, last])


def _csr(known: Known, shape: tuple[int, int]) -> sp.csr_array:
    rows, columns = np.divmod(known.cells, max(1, shape[1]))
    counts = np.bincount(rows, minlength=shape[0])
    return csr_of(known.values, columns, np.concatenate([[0], np.cumsum(counts)]), shape)
