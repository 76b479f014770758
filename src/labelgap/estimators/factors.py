"""Factors of rows and labels: W in two parts, rows embedded by it, and numbers that must stay in range."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelgap.estimators.base import MultiLabelEstimator
from labelgap.estimators.scores import FactorScores
from labelgap.kernels import Backend
from labelgap.objectives import make_features


@contextmanager
def numbers_in_range(dtype: Any) -> Iterator[None]:
    """Turn products of features that overflow or vanish into a ValueError that says what to do."""
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows shows in what it makes
            yield
    except (FloatingPointError, np.linalg.LinAlgError) as error:
        raise ValueError(
            f"The numbers in X are too large or too small for dtype={dtype!r} ({error}); "
            "scale the features (sklearn.preprocessing has Normalizer and StandardScaler) or pass "
            "dtype='float64'."
        ) from error


def split_factors(W: NDArray, constant: bool) -> tuple[NDArray, NDArray]:
    """Return the rows of W that belong to features, and the one of the constant feature, 0 without one.

    >>> split_factors(np.array([[1.0], [2.0], [3.0]]), True)
    (array([[1.],
           [2.]]), array([3.]))
    """
    return (W[:-1], W[-1]) if constant else (W, np.zeros(W.shape[1], W.dtype))


def join_factors(features: NDArray, intercept: NDArray, constant: bool) -> NDArray:
    """Return the W that :func:`split_factors` was given."""
    return np.vstack([features, intercept]) if constant else features


def embed_rows(X: Any, features: NDArray, intercept: NDArray, kernels: Backend, dtype: Any) -> NDArray:
    """Return the factors [X, 1] W of rows, n×k."""
    dtype = np.dtype(dtype).type
    B = make_features(X, kernels, dtype).times(features.astype(dtype, copy=False))
    B += intercept
    return B


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

    def _numbers_in_range(self) -> AbstractContextManager[None]:
        return numbers_in_range(self.dtype)

    def _store_features(self, W: NDArray) -> None:
        self.feature_factors_, self.intercept_factors_ = split_factors(W, self.fit_intercept)

    def _stacked_factors(self) -> NDArray:
        return join_factors(self.feature_factors_, self.intercept_factors_, self.fit_intercept)

    def _embed_features(self, X: Any) -> NDArray:
        return embed_rows(X, self.feature_factors_, self.intercept_factors_, self._kernels(), self.dtype)
