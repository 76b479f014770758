"""What imputers share: NaN is missing, and what is there stays."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted, validate_data

from labelgap.estimators.parameters import check_number
from labelgap.runtime import threads
from labelgap.solvers import Status

ROWS = {"dtype": np.float64, "ensure_all_finite": "allow-nan"}


class Imputer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator, ABC):
    """NaN is missing, what is there stays as it is, and the result is float64; a subclass says what is filled in."""

    max_iter: int
    tol: float
    n_jobs: int | None

    n_features_in_: int
    n_iter_: int
    status_: str

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from rows X (n×d, NaN where missing); y is ignored."""
        self._check_parameters()
        rows = check_array(X, estimator=self, input_name="X", **ROWS)
        if np.isnan(rows).all():
            raise ValueError("No cell of X is observed: every one is NaN. Pass features, at least some of them.")
        with threads(self.n_jobs):
            self._learn(rows)
        validate_data(self, X, skip_check_array=True)  # only now, so that a fit that fails leaves all as it was
        if self.status_ == Status.MAX_ITER.value:
            message = (
                f"{type(self).__name__} stopped after max_iter={self.max_iter} steps, before a step changed the "
                f"objective by no more than tol={self.tol:g} asks for; raise max_iter or tol."
            )
            warnings.warn(message, ConvergenceWarning, stacklevel=2)
        return self

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Return X with its missing cells filled."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, **ROWS)
        missing = np.isnan(X)
        if not missing.any():
            return X.copy()
        with threads(self.n_jobs):
            return np.where(missing, self._expected(X), X)

    @abstractmethod
    def _learn(self, X: NDArray) -> None:
        """Store what is learned from validated rows."""

    @abstractmethod
    def _expected(self, X: NDArray) -> NDArray:
        """Return a value for each cell of validated rows, n×d."""

    def _check_parameters(self) -> None:
        check_number("max_iter", self.max_iter, Integral, least=1)
        check_number("tol", self.tol, Real, least=0)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = []
        return tags
