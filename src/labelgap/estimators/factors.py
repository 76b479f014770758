"""Estimators whose decision values are inner products of a row's factors and a label's."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelgap.estimators.base import MultiLabelEstimator
from labelgap.estimators.scores import CELLS_PER_BLOCK, FactorScores
from labelgap.objectives import make_features


class FactorEstimator(MultiLabelEstimator):
    """s = B Hᵀ less the threshold of the loss: a subclass says how rows are embedded as B."""

    label_factors_: NDArray
    threshold_: float

    @abstractmethod
    def _embed(self, X: Any) -> NDArray:
        """Return the factors of validated rows, n×k."""

    def _scores(self, X: Any) -> FactorScores:
        return FactorScores(self._embed(X), self.label_factors_, self.threshold_, self._kernels())


class FeatureFactors(MultiLabelEstimator):
    """B = [X, 1] W: keeps W as the factors of the features and, apart from them, that of the constant feature."""

    fit_intercept: bool

    feature_factors_: NDArray
    intercept_factors_: NDArray

    @contextmanager
    def _numbers_in_range(self) -> Iterator[None]:
        """Say what to do about features whose products overflow, or vanish."""
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # what overflows shows in what it makes
                yield
        except (FloatingPointError, np.linalg.LinAlgError) as error:
            raise ValueError(
                f"The numbers in X are too large or too small for dtype={self.dtype!r} ({error}); "
                "scale the features (sklearn.preprocessing has Normalizer and StandardScaler) or pass "
                "dtype='float64'."
            ) from error

    def _store_features(self, W: NDArray) -> None:
        self.feature_factors_ = W[:-1] if self.fit_intercept else W
        self.intercept_factors_ = W[-1] if self.fit_intercept else np.zeros(W.shape[1], W.dtype)

    def _stacked_factors(self) -> NDArray:
        if not self.fit_intercept:
            return self.feature_factors_
        return np.vstack([self.feature_factors_, self.intercept_factors_])

    def _embed_features(self, X: Any) -> NDArray:
        kernels, dtype = self._kernels(), np.dtype(self.dtype).type
        factors = make_features(X, kernels, dtype).times(self.feature_factors_.astype(dtype, copy=False))
        factors += self.intercept_factors_
        return factors
