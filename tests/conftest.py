"""Small data that several tests share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest


class Planted(NamedTuple):
    """Rows, labels of a low-rank truth, and a mask of the cells that are known."""

    X: np.ndarray
    Y: np.ndarray
    observed: np.ndarray

    @property
    def gaps(self) -> np.ndarray:
        """The labels with NaN where they are unknown."""
        return np.where(self.observed, self.Y, np.nan)


@pytest.fixture
def planted():
    """Return a maker of planted data: Y = [X W Hᵀ > ½], about half of its cells known."""

    def make(n: int = 40, d: int = 6, L: int = 5, k: int = 2, seed: int = 0, share: float = 0.6) -> Planted:
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((n, d))
        scores = X @ rng.standard_normal((d, k)) @ rng.standard_normal((k, L))
        return Planted(X, (scores > 0.5).astype(int), rng.random((n, L)) < share)

    return make
