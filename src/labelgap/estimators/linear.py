"""Scores of linear models, one for each label: decisions are coef · x + intercept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.estimators.scores import Scores, known_pattern, row_blocks, with_pattern
from labelgap.kernels import Backend
from labelgap.observations import Labels


class LinearScores(Scores):
    """s = X coefᵀ + intercept, with coefficients that are dense, or sparse where most of them are 0."""

    def __init__(self, X: Any, coef: NDArray | sp.csr_array, intercept: NDArray, kernels: Backend) -> None:
        super().__init__(kernels)
        self.X, self.coef, self.intercept = X, coef, intercept

    def blocks(self) -> Iterator[NDArray]:
        times = self._product()
        for rows in row_blocks(self.X, len(self.intercept)):
            yield times(rows) + self.intercept

    def _product(self) -> Any:
        """Return the function that multiplies rows, dense or sparse as those of X, with the coefficients."""
        kernels, coef, dtype = self.kernels, self.coef, self.intercept.dtype
        if sp.issparse(self.X) and sp.issparse(coef):
            return lambda rows: (rows @ coef.T).toarray()
        if sp.issparse(coef):
            prepared = kernels.prepare(coef, dtype)
            return lambda rows: kernels.spmm(prepared, rows.T).T
        columns = np.ascontiguousarray(coef.T)  # no copy of what lies by feature
        if sp.issparse(self.X):
            return lambda rows: kernels.spmm(kernels.prepare(rows, dtype), columns)
        return lambda rows: kernels.matmul(rows, columns)

    def topk(self, k: int) -> tuple[NDArray, NDArray]:
        kernels, dtype = self.kernels, self.intercept.dtype
        if sp.issparse(self.X) and sp.issparse(self.coef):
            rows, labels = _with_column(self.X, np.ones(self.X.shape[0])), _with_column(self.coef, self.intercept)
            return kernels.product_topk(kernels.prepare(rows, dtype), kernels.prepare(labels, dtype), k)
        return super().topk(k)

    def known(self, labels: Labels) -> sp.csr_array:
        if sp.issparse(self.X) or sp.issparse(self.coef):
            return super().known(labels)
        pattern, coef = known_pattern(labels), np.ascontiguousarray(self.coef)
        values = self.kernels.sddmm(self.kernels.prepare(pattern, self.X.dtype), self.X, coef)
        return with_pattern(values + self.intercept[pattern.indices], pattern)


def by_feature(coef: Any) -> Any:
    """Return coefficients that lie feature by feature, if they are dense: a sparse row needs those of its features.

    >>> by_feature(np.ones((3, 2))).T.flags.c_contiguous
    True
    """
    return coef if sp.issparse(coef) else np.asfortranarray(coef)


def check_coefficients(coef: Any, intercept: Any, n_labels: int, n_features: int) -> None:
    """Raise ValueError if coefficients that came from a file have other shapes than the model needs.

    >>> check_coefficients(np.ones((2, 3)), np.ones(2), 2, 4)
    Traceback (most recent call last):
        ...
    ValueError: coefficients of shapes ((2, 3), (2,)) for 2 labels
    """
    shapes = (coef.shape, intercept.shape)
    if shapes != ((n_labels, n_features), (n_labels,)):
        raise ValueError(f"coefficients of shapes {shapes} for {n_labels} labels")


def _with_column(A: Any, column: NDArray) -> sp.csr_array:
    return sp.csr_array(sp.hstack([A, sp.csr_array(column[:, None])], format="csr"))
