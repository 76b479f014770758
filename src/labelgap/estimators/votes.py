"""Estimators that let training rows vote: scores are a product of the votes' weights and the training labels."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.estimators.base import MultiLabelEstimator
from labelgap.estimators.local import row_blocks
from labelgap.observations import Labels

THRESHOLD = 0.5  # of the votes


class RowVotes(MultiLabelEstimator):
    """s_ij is the share of the votes of training rows that row i gets for label j, less ½.

    The rate of a label is the share of the positives among its known cells. It is a row's vote for an unknown cell,
    and the score of a row that no training row votes for. A subclass says who votes.
    """

    positives_: sp.csr_array
    known_: sp.csr_array | None
    rates_: NDArray

    @abstractmethod
    def _voters(self, X: Any) -> sp.csr_array:
        """Return the weight of each training row's vote for each row of X, n×n_train.

        A row's weights sum to 1, or to 0 where nobody votes for it.
        """

    def _keep_labels(self, labels: Labels, gains: NDArray | None = None) -> None:
        """Keep the labels that the rows vote with; a yes counts as much as the gain of its label, or 1."""
        dtype, rates = np.dtype(self.dtype).type, labels.rates
        self.positives_, self.known_ = labels.positives.astype(dtype), labels.known
        if gains is not None:
            self.positives_.data = gains[self.positives_.indices].astype(dtype)
            rates = rates * gains
        self.rates_ = rates.astype(dtype)

    def _shares(self, X: Any) -> sp.csr_array:
        """Return the share of the votes for each label, n×L, absent where there is none; every cell is known."""
        voters = self._voters(X)
        alone = sp.csr_array((voters.sum(axis=1) == 0).astype(voters.dtype)[:, None])
        return voters @ self.positives_ + alone @ sp.csr_array(self.rates_[None])

    def _shares_with_gaps(self, X: Any) -> NDArray:
        voters = self._voters(X)
        known = (voters @ self.known_.astype(voters.dtype)).toarray()  # type: ignore[union-attr]
        return (voters @ self.positives_).toarray() + self.rates_ * (1 - known)

    def _decision_blocks(self, X: Any) -> Iterator[NDArray]:
        for block in row_blocks(X, self.n_labels_):
            shares = self._shares(block).toarray() if self.known_ is None else self._shares_with_gaps(block)
            yield shares - shares.dtype.type(THRESHOLD)

    def _topk(self, X: Any, k: int) -> tuple[NDArray, NDArray]:
        if self.known_ is not None:
            return super()._topk(X, k)
        kernels, dtype = self._kernels(), self.positives_.dtype
        # Times the identity: the numbers that the decisions are made of, so that equal ones tie in both.
        labels = kernels.prepare(sp.identity(self.n_labels_), dtype)
        found = [
            kernels.product_topk(kernels.prepare(self._shares(block), dtype), labels, k)
            for block in row_blocks(X, self.n_labels_)
        ]
        indices, shares = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return indices, shares - shares.dtype.type(THRESHOLD)

    def _check_loaded(self) -> None:
        n, L = self.positives_.shape
        if self.n_labels_ != L or np.shape(self.rates_) != (L,):
            raise ValueError("the labels have another number of columns than the model")
        if self.known_ is not None and self.known_.shape != (n, L):
            raise ValueError("the known cells do not belong to the labels")
        super()._check_loaded()
