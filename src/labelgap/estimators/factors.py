"""Estimators whose decision values are inner products of a row's factors and a label's."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.estimators.base import MultiLabelEstimator, known_pattern
from labelgap.observations import Labels

CELLS_PER_BLOCK = 1 << 24


class FactorEstimator(MultiLabelEstimator):
    """s = B Hᵀ less the threshold of the loss: a subclass says how rows are embedded as B."""

    label_factors_: NDArray
    threshold_: float

    @abstractmethod
    def _embed(self, X: Any) -> NDArray:
        """Return the factors of validated rows, n×k."""

    def _decision_blocks(self, X: Any) -> Iterator[NDArray]:
        factors, H, kernels = self._embed(X), self.label_factors_, self._kernels()
        rows = max(1, CELLS_PER_BLOCK // len(H))
        for start in range(0, len(factors), rows):
            scores = kernels.matmul(factors[start : start + rows], H.T)
            scores -= scores.dtype.type(self.threshold_)
            yield scores

    def _topk(self, X: Any, k: int) -> tuple[NDArray, NDArray]:
        indices, scores = self._kernels().topk(self._embed(X), self.label_factors_, k)
        return indices, scores - scores.dtype.type(self.threshold_)

    def _known_scores(self, X: Any, labels: Labels) -> sp.csr_array:
        pattern, factors, kernels = known_pattern(labels), self._embed(X), self._kernels()
        scores = kernels.sddmm(kernels.prepare(pattern, factors.dtype), factors, self.label_factors_)
        scores -= scores.dtype.type(self.threshold_)
        return sp.csr_array((scores, pattern.indices, pattern.indptr), shape=pattern.shape)
