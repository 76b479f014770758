"""The leading singular triplets of one matrix after another, each near the one before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

Array = Any

LEAST_ORDER = 800  # below it the eigenvectors of a Gram matrix cost less
MOST_SHARE = 0.125  # of the smaller side that a block may be wide
EXTRA = 8  # vectors below the threshold that are followed too, since the next ones to rise above it are among them
PROBES = 2
MOST_BLOCKS = 5
ACCURACY = 1e-8  # of the residuals, relative to the threshold
LONGEST_PAUSE = 64


class Operator(NamedTuple):
    """A matrix by its shape and its products A V and AᵀU."""

    shape: tuple[int, int]
    times: Callable[[Array], Array]
    t_times: Callable[[Array], Array]


class Tracker:
    """Block Lanczos iteration from the right singular vectors of the last matrix.

    The first block is the vectors found last, some below the threshold among them, and a few random ones; each
    further one is the residuals AᵀU − V diag(values) of the triplets that the blocks so far give. Those are taken
    when every one above the threshold has a small residual and what they leave of the matrix, judged by power
    iteration from random vectors, has no singular value above it. Where that takes too long, or the rank is not low,
    there is no answer, and the next matrices are not tried for a while.
    """

    def __init__(self) -> None:
        self.basis: Array = None
        self.pause, self.waiting = 1, 0
        self.random = np.random.RandomState(0)

    def learn(self, right: Array) -> None:
        """Take the right singular vectors of a matrix that was decomposed otherwise."""
        self.basis = right

    def find(self, A: Operator, threshold: float, dtype: Any) -> tuple[Array, Array, Array] | None:
        """Return U, values and V above the threshold, or None."""
        if not self._worth_trying(A.shape):
            return None
        found = self._iterate(A, threshold, dtype)
        self.pause = 1 if found is not None else min(2 * self.pause, LONGEST_PAUSE)
        self.waiting = 0 if found is not None else self.pause
        return found

    def _worth_trying(self, shape: tuple[int, int]) -> bool:
        if self.waiting:
            self.waiting -= 1
            return False
        if self.basis is None or len(self.basis) != shape[1] or min(shape) < LEAST_ORDER:
            return False
        return self.basis.shape[1] + EXTRA + PROBES <= MOST_SHARE * min(shape)

    def _iterate(self, A: Operator, threshold: float, dtype: Any) -> tuple[Array, Array, Array] | None:
        width = self.basis.shape[1]
        fresh = self.random.standard_normal((A.shape[1], max(PROBES, EXTRA + PROBES - width))).astype(dtype)
        basis = _orthonormal(np.concatenate([self.basis, fresh], axis=1, dtype=dtype))
        images = A.times(basis)
        for _ in range(MOST_BLOCKS):
            U, values, Wt = scipy.linalg.svd(images, full_matrices=False, check_finite=False)
            kept = int((values > threshold).sum())
            if kept + PROBES > width + fresh.shape[1]:
                return None  # the block is too narrow to tell
            some = slice(0, kept + EXTRA)
            V, U = basis @ Wt[some].T, U[:, some]
            residuals = A.t_times(U) - V * values[some]
            small = max(ACCURACY * threshold, 10 * np.finfo(dtype).eps * values[0])
            if np.linalg.norm(residuals[:, :kept], axis=0).max(initial=0) <= small:
                if not _nothing_left(A, V, threshold, fresh):
                    return None
                self.basis = V
                return U[:, :kept], values[:kept], V[:, :kept]
            more = residuals
            for _ in range(2):  # once more, for what rounding left of the basis in small residuals
                more = _orthonormal(more - basis @ (basis.T @ more))
            basis = np.concatenate([basis, more], axis=1)
            images = np.concatenate([images, A.times(more)], axis=1)
        return None


def _nothing_left(A: Operator, V: Array, threshold: float, probes: Array) -> bool:
    """Tell whether power iteration sees no singular value above the threshold in A (I − V Vᵀ)."""
    norm = 0.0
    for _ in range(2):
        probes = _orthonormal(probes - V @ (V.T @ probes))
        image = A.times(probes - V @ (V.T @ probes))  # again, where nothing but rounding was left of them
        norm = float(scipy.linalg.svdvals(image, check_finite=False)[0])
        probes = A.t_times(image)
    return norm <= threshold


def _orthonormal(block: Array) -> Array:
    return scipy.linalg.qr(block, mode="economic", check_finite=False)[0]
