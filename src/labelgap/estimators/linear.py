"""Estimators with a linear model for each label: decisions are coef · x + intercept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import gen_batches

from labelgap.estimators.base import MultiLabelEstimator, known_pattern
from labelgap.estimators.factors import CELLS_PER_BLOCK
from labelgap.observations import Labels


class LinearEstimator(MultiLabelEstimator):
    """s = X coefᵀ + intercept, with coefficients that are dense, or sparse where most of them are 0."""

    coef_: NDArray | sp.csr_array
    intercept_: NDArray

    def _decision_blocks(self, X: Any) -> Iterator[NDArray]:
        times = self._product_with(X)
        for rows in gen_batches(X.shape[0], max(1, CELLS_PER_BLOCK // self.n_labels_)):
            yield times(X[rows]) + self.intercept_

    def _product_with(self, X: Any) -> Any:
        """Return the function that multiplies rows, dense or sparse as those of X, with the coefficients."""
        kernels, coef, dtype = self._kernels(), self.coef_, self.intercept_.dtype
        if sp.issparse(X) and sp.issparse(coef):
            return lambda rows: (rows @ coef.T).toarray()
        if sp.issparse(coef):
            prepared = kernels.prepare(coef, dtype)
            return lambda rows: kernels.spmm(prepared, rows.T).T
        columns = np.ascontiguousarray(coef.T)  # no copy of what lies by feature
        if sp.issparse(X):
            return lambda rows: kernels.spmm(kernels.prepare(rows, dtype), columns)
        return lambda rows: kernels.matmul(rows, columns)

    def _topk(self, X: Any, k: int) -> tuple[NDArray, NDArray]:
        kernels, dtype = self._kernels(), self.intercept_.dtype
        if sp.issparse(X) and sp.issparse(self.coef_):
            rows, labels = _with_column(X, np.ones(X.shape[0])), _with_column(self.coef_, self.intercept_)
            return kernels.product_topk(kernels.prepare(rows, dtype), kernels.prepare(labels, dtype), k)
        return super()._topk(X, k)

    def _known_scores(self, X: Any, labels: Labels) -> sp.csr_array:
        if sp.issparse(X) or sp.issparse(self.coef_):
            return super()._known_scores(X, labels)
        pattern, kernels, coef = known_pattern(labels), self._kernels(), np.ascontiguousarray(self.coef_)
        scores = kernels.sddmm(kernels.prepare(pattern, X.dtype), X, coef) + self.intercept_[pattern.indices]
        return sp.csr_array((scores, pattern.indices, pattern.indptr), shape=pattern.shape)

    def _check_loaded(self) -> None:
        shapes = (self.coef_.shape, self.intercept_.shape)
        if shapes != ((self.n_labels_, self.n_features_in_), (self.n_labels_,)):
            raise ValueError(f"coefficients of shapes {shapes} for {self.n_labels_} labels")


def by_feature(coef: Any) -> Any:
    """Return coefficients that lie feature by feature, if they are dense: a sparse row needs those of its features.

    >>> by_feature(np.ones((3, 2))).T.flags.c_contiguous
    True
    """
    return coef if sp.issparse(coef) else np.asfortranarray(coef)


def _with_column(A: Any, column: NDArray) -> sp.csr_array:
    return sp.csr_array(sp.hstack([A, sp.csr_array(column[:, None])], format="csr"))
