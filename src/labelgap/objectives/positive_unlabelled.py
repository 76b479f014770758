"""The positive-unlabelled objective: positives with any loss, all other cells as weak negatives (002, eqs. 3, 6, 7).

    Σ over positives of ℓ⁺(a⁺, s_ij) + Σ over all other cells of p_i q_j ℓ⁻(ā, s_ij)

equals Σ over all cells of p_i q_j ℓ⁻(ā, s_ij), which Gram matrices give without visiting the cells if ℓ⁻ is squared,
plus a sum over the positives of ℓ⁺(a⁺, s_ij) − p_i q_j ℓ⁻(ā, s_ij). All positives have the same target, so the value
stored with a positive is its weight p_i q_j.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_random_state

from labelgap.kernels import Backend
from labelgap.kernels.base import CellLoss
from labelgap.losses import CellFunctions, Loss
from labelgap.objectives.cells import AllCells, AllCellsSquared, BoundCells, CellsSum, KnownCells, Weights
from labelgap.observations import Labels


class CorrectedLoss:
    """ℓ⁺(a⁺, b) − w ℓ⁻(ā, b), a function of the weight w and the score b; not convex."""

    def __init__(self, positive_loss: Loss, unlabelled_loss: Loss, negative_target: float) -> None:
        self.positive_loss, self.unlabelled_loss = positive_loss, unlabelled_loss
        self.negative_target = float(negative_target)
        self.quadratic = positive_loss.quadratic and unlabelled_loss.quadratic

    def functions(self, xp: Any = np) -> CellFunctions:
        """Return value, gradient and curvature in b."""
        target, negative_target = float(self.positive_loss.positive), self.negative_target
        pairs = zip(self.positive_loss.functions(xp), self.unlabelled_loss.functions(xp))
        return CellFunctions(*(_correct(plus, minus, target, negative_target) for plus, minus in pairs))


def _correct(plus: Any, minus: Any, target: float, negative_target: float) -> Any:
    def corrected(w, b):
        return plus(target, b) - w * minus(negative_target, b)

    return corrected


class WeightedLoss:
    """w ℓ(a, b) for one target a, a function of the weight w and the score b."""

    def __init__(self, loss: Loss, target: float) -> None:
        self.loss, self.target, self.quadratic = loss, float(target), loss.quadratic

    def functions(self, xp: Any = np) -> CellFunctions:
        """Return value, gradient and curvature in b."""
        return CellFunctions(*(_weight(function, self.target) for function in self.loss.functions(xp)))


def _weight(function: Any, target: float) -> Any:
    def weighted(w, b):
        return w * function(target, b)

    return weighted


@dataclass(frozen=True)
class PositiveUnlabelled:
    """The losses, targets and weights of positives and unlabelled cells.

    Attributes
    ----------
    loss : Loss
        ℓ⁺, of the positives.
    unlabelled_loss : Loss
        ℓ⁻, of all other cells.
    negative_target : float
        ā.
    weights : Weights
        p_i q_j, of the unlabelled cells.
    importance : Weights
        c_i d_j, which multiplies the loss of positives and unlabelled cells.
    positive_weights : Weights
        Further weights, of positives alone.
    """

    loss: Loss
    unlabelled_loss: Loss
    negative_target: float
    weights: Weights
    importance: Weights = field(default_factory=Weights)
    positive_weights: Weights = field(default_factory=Weights)

    def bind(self, positives: sp.csr_array, kernels: Backend, dtype: Any) -> BoundCells:
        """Bind all cells of a matrix with these positives, in the cheapest form."""
        uniform = self.importance.uniform and self.positive_weights.uniform
        if uniform and self.weights.uniform and self.loss.quadratic and self.unlabelled_loss.quadratic:
            levels = (self.negative_target, self.loss.positive)
            return AllCellsSquared(kernels, self.unlabelled_loss, kernels.prepare(positives, dtype), levels)

        def bind_stored(loss: CellLoss, values: sp.csr_array) -> BoundCells:
            return KnownCells(kernels, loss, kernels.prepare(values, dtype))

        subtracted = compute_cell_weights(positives, self._unlabelled_weights, dtype)
        all_cells = self._bind_all(positives.shape, kernels, dtype)
        if uniform:
            corrected = CorrectedLoss(self.loss, self.unlabelled_loss, self.negative_target)
            return CellsSum([all_cells, bind_stored(corrected, subtracted)])
        added = compute_cell_weights(positives, self._positive_weights, dtype)
        positive, negative = self._weighted_losses
        return CellsSum([all_cells, bind_stored(positive, added), bind_stored(negative, -subtracted)])

    def bind_sample(
        self, positives: sp.csr_array, ratio: float, random_state: Any, kernels: Backend, dtype: Any
    ) -> BoundCells:
        """Bind the positives and ``ratio`` times as many unlabelled cells, drawn at random."""
        return self.bind_stored(positives, sample_unlabelled(positives, ratio, random_state), kernels, dtype)

    def bind_stored(self, positives: sp.csr_array, others: sp.csr_array, kernels: Backend, dtype: Any) -> BoundCells:
        """Bind the positives and the stored cells of ``others`` alone."""
        pairs = (positives, self._positive_weights), (others, self._unlabelled_weights)
        values = [kernels.prepare(compute_cell_weights(cells, weights, dtype), dtype) for cells, weights in pairs]
        losses = zip(self._weighted_losses, values, strict=True)
        return CellsSum([KnownCells(kernels, loss, weights) for loss, weights in losses])

    @property
    def _weighted_losses(self) -> tuple[WeightedLoss, WeightedLoss]:
        positive = WeightedLoss(self.loss, self.loss.positive)
        return positive, WeightedLoss(self.unlabelled_loss, self.negative_target)

    @property
    def _positive_weights(self) -> Weights:
        p, q = (c * w for c, w in zip(self.importance, self.positive_weights))
        return Weights.of(p, q)

    @property
    def _unlabelled_weights(self) -> Weights:
        p, q = (c * w for c, w in zip(self.importance, self.weights))
        return Weights.of(p, q)

    def _bind_all(self, shape: tuple[int, int], kernels: Backend, dtype: Any) -> BoundCells:
        """Bind all cells as unlabelled ones."""
        form = AllCellsSquared if self.unlabelled_loss.quadratic else AllCells
        no_positives = kernels.prepare(sp.csr_array(shape, dtype=dtype), dtype)
        levels = (self.negative_target, self.negative_target)
        weights = self._unlabelled_weights.move_to(kernels, dtype)
        return form(kernels, self.unlabelled_loss, no_positives, levels, weights)


def compute_cell_weights(cells: sp.csr_array, weights: Weights, dtype: Any) -> sp.csr_array:
    """Return p_i q_j at the stored cells.

    >>> compute_cell_weights(sp.csr_array([[0, 1], [1, 1]]), Weights(np.array([[1.0], [2.0]]), 0.5), float).data
    array([0.5, 1. , 1. ])
    """
    p, q = weights.expand(cells.shape)
    data = np.repeat(p, np.diff(cells.indptr)) * q[cells.indices]
    return sp.csr_array((data.astype(dtype), cells.indices, cells.indptr), shape=cells.shape)


def sample_unlabelled(positives: sp.csr_array, ratio: float, random_state: Any) -> sp.csr_array:
    """Draw ``ratio`` times as many unlabelled cells as there are positives, without replacement.

    >>> positives = sp.csr_array(np.eye(4))
    >>> unlabelled = sample_unlabelled(positives, 2.0, 0)
    >>> unlabelled.nnz, int(positives.multiply(unlabelled).sum())
    (8, 0)
    """
    n, L = positives.shape
    taken = np.repeat(np.arange(n, dtype=np.int64), np.diff(positives.indptr)) * L + positives.indices
    count = min(round(ratio * positives.nnz), n * L - positives.nnz)
    rng, keys = check_random_state(random_state), np.empty(0, np.int64)
    if 2 * (count + positives.nnz) > n * L:  # most cells are drawn: repeated drawing would not end
        keys = rng.choice(np.setdiff1d(np.arange(n * L), taken), count, replace=False)
    while len(keys) < count:
        more = rng.randint(0, n * L, size=2 * (count - len(keys)) + 16, dtype=np.int64)
        # Positives and repeated cells are drawn again; the order must not matter.
        fresh = np.setdiff1d(more, np.concatenate([taken, keys]))
        keys = np.concatenate([keys, rng.permutation(fresh)[: count - len(keys)]])
    return sp.csr_array((np.ones(count), (keys // L, keys % L)), shape=(n, L))


def bind_label_cells(
    labels: Labels,
    loss: Loss,
    kernels: Backend,
    dtype: Any,
    weights: Weights = Weights(),  # noqa: B008 - a tuple of two numbers
    positive_weights: Weights = Weights(),  # noqa: B008
) -> BoundCells:
    """Bind labels and loss in the cheapest form; weights multiply the losses of all cells, or of positives alone."""
    both = PositiveUnlabelled(loss, loss, loss.negative, Weights(), weights, positive_weights)
    if labels.known is None and not positive_weights.uniform:
        return both.bind(labels.positives, kernels, dtype)
    if labels.known is None:
        form = AllCellsSquared if loss.quadratic else AllCells
        positives = kernels.prepare(labels.positives, dtype)
        return form(kernels, loss, positives, weights=weights.move_to(kernels, dtype))
    if weights.uniform and positive_weights.uniform:
        return KnownCells(kernels, loss, kernels.prepare(labels.encode(loss.negative, loss.positive, dtype), dtype))
    negatives = sp.csr_array(labels.known > labels.positives)
    return both.bind_stored(labels.positives, negatives, kernels, dtype)
