"""Scores by votes of training rows: a product of the votes' weights and the training labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.estimators.scores import Scores, row_blocks
from labelgap.kernels import Backend
from labelgap.observations import Labels

THRESHOLD = 0.5  # of the votes


class Ballots(NamedTuple):
    """The labels that training rows vote with.

    ``positives`` holds what a yes counts for; ``known`` the known cells, or None where all are known. The rate of a
    label is the share of the positives among its known cells.
    """

    positives: sp.csr_array
    known: sp.csr_array | None
    rates: NDArray

    @classmethod
    def of(cls, labels: Labels, dtype: Any, gains: NDArray | None = None) -> Ballots:
        """Return the ballots of labels; a yes counts as much as the gain of its label, or 1."""
        positives, rates = labels.positives.astype(dtype), labels.rates
        if gains is not None:
            positives.data = gains[positives.indices].astype(dtype)
            rates = rates * gains
        return cls(positives, labels.known, rates.astype(dtype))

    def check(self, n_labels: int) -> None:
        """Raise ValueError if ballots that came from a file do not fit each other."""
        n, L = self.positives.shape
        if n_labels != L or np.shape(self.rates) != (L,):
            raise ValueError("the labels have another number of columns than the model")
        if self.known is not None and self.known.shape != (n, L):
            raise ValueError("the known cells do not belong to the labels")


class VoteScores(Scores):
    """s_ij is the share of the votes of training rows that row i gets for label j, less ½.

    The rate of a label is a training row's vote for an unknown cell, and the score of a row that no training row
    votes for. ``voters(X)`` returns the weight of each training row's vote for each row of X, n×n_train; the weights
    of a row sum to 1, or to 0 where no training row votes for it.
    """

    def __init__(self, X: Any, voters: Callable[[Any], sp.csr_array], ballots: Ballots, kernels: Backend) -> None:
        super().__init__(kernels)
        self.X, self.voters, self.ballots = X, voters, ballots
        self.n_labels = ballots.positives.shape[1]

    def blocks(self) -> Iterator[NDArray]:
        for rows in self._row_blocks():
            shares = self._shares(rows).toarray() if self.ballots.known is None else self._shares_with_gaps(rows)
            yield shares - shares.dtype.type(THRESHOLD)

    def topk(self, k: int) -> tuple[NDArray, NDArray]:
        if self.ballots.known is not None:
            return super().topk(k)
        kernels, dtype = self.kernels, self.ballots.positives.dtype
        # Times the identity: the numbers that the decisions are made of, so that equal ones tie in both.
        labels = kernels.prepare(sp.identity(self.n_labels), dtype)
        found = [
            kernels.product_topk(kernels.prepare(self._shares(rows), dtype), labels, k) for rows in self._row_blocks()
        ]
        indices, shares = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return indices, shares - shares.dtype.type(THRESHOLD)

    def _row_blocks(self) -> Iterator[Any]:
        return row_blocks(self.X, self.n_labels, arrays=2)

    def _shares(self, X: Any) -> sp.csr_array:
        """Return the share of the votes for each label, n×L, absent where there is none; every cell is known."""
        voters = self.voters(X)
        alone = sp.csr_array((voters.sum(axis=1) == 0).astype(voters.dtype)[:, None])
        return voters @ self.ballots.positives + alone @ sp.csr_array(self.ballots.rates[None])

    def _shares_with_gaps(self, X: Any) -> NDArray:
        voters = self.voters(X)
        known = (voters @ self.ballots.known.astype(voters.dtype)).toarray()  # type: ignore[union-attr]
        return (voters @ self.ballots.positives).toarray() + self.ballots.rates * (1 - known)
