"""What the labels that a row has say about the others."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from labelgap.observations import Labels

MOST_LABELS = 12_000  # an L×L matrix is inverted


class Companions:
    """A linear model of each label in the other labels: e_ij = Σ over the labels l ≠ j of row i of B_lj.

    B minimises ½ ‖Y − YB‖² + (α/2) ‖B‖² with a diagonal of 0, which has a closed form: B_lj = −P_lj / P_jj off the
    diagonal, with P = (YᵀY + αI)⁻¹ (Steck 2019): a label says nothing about itself. Rows that B was learned from are
    known to it. Beyond some thousand labels only the most frequent ones take part.

    Examples
    --------
    >>> Y = sp.csr_array(np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1], [1, 0, 0]]))
    >>> found = Companions(Labels(Y), alpha=0.1)
    >>> found.between(1, 0) > found.between(2, 0)
    True
    """

    def __init__(self, labels: Labels, alpha: float = 20.0) -> None:
        Y = labels.positives.astype(float)
        counts = np.bincount(Y.indices, minlength=Y.shape[1])
        self.kept = np.sort(np.argsort(-counts, kind="stable")[:MOST_LABELS])
        kept = sp.csr_array(Y[:, self.kept])
        gram = np.asarray((kept.T @ kept).todense()) + alpha * np.eye(len(self.kept))
        inverse = np.linalg.inv(gram)
        self.weights = -inverse / np.diag(inverse)
        np.fill_diagonal(self.weights, 0.0)
        self._place = np.full(Y.shape[1], -1)
        self._place[self.kept] = np.arange(len(self.kept))

    def between(self, known: int, label: int) -> float:
        """Return how much having one label says for another."""
        places = self._place[known], self._place[label]
        return float(self.weights[places]) if min(places) >= 0 else 0.0
