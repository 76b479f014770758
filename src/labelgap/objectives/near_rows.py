"""The labels of a block, one after the other, each on the rows that lack margin.

A loss that is 0 from a margin on leaves most rows of a rare label without a say: of 15,000 rows of text a label with
16 positives has some 150 that count at its minimum. The scores of all rows, which tell which ones they are, cost a
product for the whole block at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelgap.kernels import Backend
from labelgap.kernels.elementwise import CompiledCell
from labelgap.losses import CellFunctions, Loss
from labelgap.objectives.single_label import add_rows, minimize_label, scale_and_shift
from labelgap.solvers.columns import ColumnSolution

FEWEST_NEW = 100  # rows that may join at once; as many as there are, where there are more
SHARE = (
    0.1  # of the gradient over all rows, to which that over the rows at work is brought before they are looked over
)


@dataclass
class _Work:
    """A label at work: its rows, its weights, how long its gradient may be and is, the steps so far."""

    targets: NDArray
    rows: NDArray
    w: NDArray
    goal: float
    norm: float = np.inf
    steps: int = 0
    converged: bool = False


class NearRows:
    """F_j(w) = Σ over known (i, j) of ℓ(a_ij, x_i·w) + (α/2) ‖w‖², for a loss with a margin and sparse rows.

    ``features`` are prepared rows; the last of them is the constant where ``constant`` says so. ``targets`` (n×m)
    holds a_ij, NaN where a cell is unknown.
    """

    def __init__(
        self, kernels: Backend, features: Any, loss: Loss, targets: NDArray, alpha: float, constant: bool
    ) -> None:
        assert loss.margin is not None
        self.kernels, self.features, self.margin, self.alpha = kernels, features, loss.margin, alpha
        self.targets, self.constant = targets, constant
        self._cell, self._functions = CompiledCell(loss), CellFunctions(*loss.functions())

    def minimize(self, start: NDArray, goals: NDArray, max_iter: int) -> ColumnSolution:
        """Return the minimisers, d×m, from a start whose scale does not matter."""
        work = self._begin(start, goals)
        live = work
        while live:
            for label in live:
                label.steps += self._step(label, max_iter)
            live = self._look_over(live, max_iter)
        return ColumnSolution(
            np.column_stack([label.w for label in work]),
            np.array([label.steps for label in work]),
            np.array([label.converged for label in work]),
        )

    def _begin(self, start: NDArray, goals: NDArray) -> list[_Work]:
        """Scale and shift the start of each label, and find the rows that lack margin then."""
        scores, work = self.kernels.spmm(self.features, start), []
        for j, goal in enumerate(goals):
            w, targets, s = (np.ascontiguousarray(A[:, j]) for A in (start, self.targets, scores))
            t, c = scale_and_shift(self._cell, targets, s, self.alpha, float(w @ w), self.constant)
            w *= w.dtype.type(t)
            if self.constant:
                w[-1] += c
            work.append(_Work(targets, np.flatnonzero(self._lack(targets, t * s + c) > 0), w, float(goal)))
        return work

    def _lack(self, targets: NDArray, scores: NDArray) -> NDArray:
        """How much of the margin each row lacks; rows with nothing known lack nothing (NaN is above no number)."""
        return self.margin - targets * scores

    def _step(self, label: _Work, max_iter: int) -> int:
        """Bring the gradient over the rows at work down; return the Newton steps it took."""
        whole = np.isfinite(label.norm)
        return minimize_label(
            self._cell,
            *self.features.arrays,
            label.rows,
            label.targets[label.rows],
            self.alpha,
            label.w,
            max(0.5 * label.goal, SHARE * label.norm if whole else 0.0),
            0.0 if whole else SHARE,
            max_iter - label.steps,
            float(np.finfo(label.w.dtype).eps),
        )

    def _look_over(self, live: list[_Work], max_iter: int) -> list[_Work]:
        """Return the labels that are not at their minimum, with rows that lack margin added."""
        scores = self.kernels.spmm(self.features, np.column_stack([label.w for label in live]))
        return [label for label, s in zip(live, scores.T, strict=True) if self._goes_on(label, s, max_iter)]

    def _goes_on(self, label: _Work, scores: NDArray, max_iter: int) -> bool:
        lack, before = self._lack(label.targets, scores), label.norm
        short = np.flatnonzero(lack > 0)
        gradient = label.w.dtype.type(self.alpha) * label.w
        slopes = self._functions.gradient(label.targets[short], scores[short]).astype(gradient.dtype)
        add_rows(*self.features.arrays, short, slopes, gradient)
        label.norm = float(np.sqrt((gradient * gradient).sum(dtype=float)))
        new = np.setdiff1d(short, label.rows, assume_unique=True)
        # Where no row is new and the norm stays, rounding hides what is left.
        label.converged = label.norm <= label.goal or (len(new) == 0 and label.norm >= before)
        if label.converged or label.steps >= max_iter:
            return False
        most = max(FEWEST_NEW, len(label.rows))
        if len(new) > most:
            new = new[np.argpartition(-lack[new], most)[:most]]
        label.rows = np.concatenate([label.rows, new])
        return True
