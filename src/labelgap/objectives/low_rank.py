"""The one problem: a low-rank score matrix X W Hᵀ against label cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import scipy.linalg

from labelgap.kernels import of
from labelgap.objectives.base import Ridge, Sum, Through
from labelgap.objectives.cells import Cells
from labelgap.objectives.features import Identity
from labelgap.solvers.base import Array, LinearMap, Objective
from labelgap.solvers.subspace import leading_right_vectors


class LowRank:
    """F(W, H) = Σ over cells of ℓ(Y_ij, x_iᵀ W Hᵀ z_j) + (α_W/2) ‖W‖² + (α_H/2) ‖H‖² (000, eq. 5).

    H given W is the same problem seen from the other side, so there is one construction for both factors.

    Parameters
    ----------
    cells : Cells
        The label cells that count.
    left, right : LinearMap
        Features of the rows (X) and of the labels; the labels have none by default.
    alpha_left, alpha_right : float or array
        The penalties of W and H; an array has one for each row of the factor, as a column.
    left_terms, right_terms : sequence of Objective
        Further terms in X W and in the embedded labels, such as a graph's.
    precompute : bool or "auto"
        Make the d×d matrix Xᵀ diag(p) X of a squared term over all cells beforehand; "auto" does so where that saves
        work, d² + dk < nk (002, eq. 1.5).
    """

    def __init__(
        self,
        cells: Cells,
        left: LinearMap,
        right: LinearMap | None = None,
        *,
        alpha_left: float | Array,
        alpha_right: float | Array | None = None,
        left_terms: Sequence[Objective] = (),
        right_terms: Sequence[Objective] = (),
        precompute: bool | Literal["auto"] = False,
    ) -> None:
        self.cells = cells
        self.left = left
        self.right = right if right is not None else Identity(cells.shape[1])
        self.penalty_left = Ridge(alpha_left)
        self.penalty_right = Ridge(alpha_left if alpha_right is None else alpha_right)
        self.left_terms, self.right_terms = list(left_terms), list(right_terms)
        self.precompute = precompute

    def given_right(self, H: Array) -> Objective:
        """F(·, H), an objective in W."""
        C = self.right.times(H)
        data = self._through(self.left, self.cells.given(C), self.left_terms, H.shape[1])
        return Sum([data, self.penalty_left], _total(self.right_terms, C) + self.penalty_right.value(H))

    def given_left(self, W: Array) -> Objective:
        """F(W, ·), an objective in H."""
        B = self.left.times(W)
        data = self._through(self.right, self.cells.T.given(B), self.right_terms, W.shape[1])
        return Sum([data, self.penalty_right], _total(self.left_terms, B) + self.penalty_left.value(W))

    def _through(self, features: LinearMap, data: Objective, terms: list[Objective], k: int) -> Objective:
        """Compose with features; the identity would only hide that the rows are independent."""
        objective = Sum([data, *terms]) if terms else data
        if isinstance(features, Identity):
            return objective
        n, d = features.shape
        precompute = d * d + d * k < n * k if self.precompute == "auto" else self.precompute
        return _absorbed(features, objective) if precompute else Through(features, objective)

    def for_few_steps(self) -> None:
        """Take products as they come: for a few of them XᵀX and its eigenvectors cost more than they save."""
        self.precompute = False
        for features in (self.left, self.right):
            if not isinstance(features, Identity):
                features.decomposed = False  # type: ignore[attr-defined]

    def value(self, W: Array, H: Array) -> float:
        """F(W, H)."""
        return self.given_left(W).value(H)

    @property
    def plain(self) -> bool:
        """Whether the factors have one penalty each and no further terms."""
        return np.ndim(self.penalty_left.alpha) == np.ndim(self.penalty_right.alpha) == 0 and not (
            self.left_terms or self.right_terms
        )

    def balance(self, W: Array, H: Array) -> tuple[Array, Array, float]:
        """Rewrite W Hᵀ = U S Vᵀ as factors with the least penalty: √S on each side, weighted by the α's.

        The scores stay, and (‖W‖² + ‖H‖²)/2 becomes the nuclear norm of the product, its least value. Further terms
        need not be indifferent to it, so the factors are taken only where F falls by it.
        """
        a, b = self.penalty_left.alpha, self.penalty_right.alpha
        if np.ndim(a) or np.ndim(b) or a <= 0 or b <= 0:
            return W, H, 0.0
        new_W, new_H = balanced(W, H, (b / a) ** 0.25)
        gain = float(self._penalty(W, H) - self._penalty(new_W, new_H))
        return (new_W, new_H, gain) if gain > 0 else (W, H, 0.0)

    def _penalty(self, W: Array, H: Array) -> float:
        """All of F but the cells."""
        penalty = self.penalty_left.value(W) + self.penalty_right.value(H)
        if self.left_terms:
            penalty += _total(self.left_terms, self.left.times(W))
        if self.right_terms:
            penalty += _total(self.right_terms, self.right.times(H))
        return penalty

    def svd_start(self, k: int, random_state: np.random.RandomState, dtype: Any) -> Array:
        """Return the k leading right singular vectors of Xᵀ T, T the targets: what features and labels share."""
        left, right, cells = self.left, self.right, self.cells
        _, V = leading_right_vectors(
            lambda P: left.t_times(cells.targets_times(right.times(P))),
            lambda P: right.t_times(cells.T.targets_times(left.times(P))),
            right.shape[1],
            k,
            random_state=random_state,
            dtype=dtype,
        )
        return V.astype(dtype, copy=False)


def _total(terms: list[Objective], B: Array) -> float:
    return sum((term.value(B) for term in terms), 0.0)


def _absorbed(features: LinearMap, objective: Objective) -> Objective:
    """Compose with features, each term by itself, so that those that can make their d×d matrix beforehand."""
    if isinstance(objective, Sum):
        return Sum([_absorbed(features, term) for term in objective.terms], objective.constant)
    through = getattr(objective, "through", None)
    return through(features) if through is not None else Through(features, objective)


def balanced(W: Array, H: Array, ratio: float) -> tuple[Array, Array]:
    """Return U √S · ratio and V √S / ratio for W Hᵀ = U S Vᵀ, by way of k×k matrices."""
    QW, RW = scipy.linalg.qr(W, mode="economic", check_finite=False)
    QH, RH = scipy.linalg.qr(H, mode="economic", check_finite=False)
    U, S, Vt = scipy.linalg.svd(RW @ RH.T, check_finite=False)
    root = np.sqrt(S)
    width = len(S)
    new_W, new_H = np.zeros_like(W), np.zeros_like(H)
    times = of(W).matmul
    new_W[:, :width] = times(QW, U[:, :width] * (root * W.dtype.type(ratio)))
    new_H[:, :width] = times(QH, Vt.T[:, :width] * (root / H.dtype.type(ratio)))
    return new_W, new_H
