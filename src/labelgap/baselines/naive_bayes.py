"""Naive Bayes for each label, on the rows where that label is known."""

from __future__ import annotations

from numbers import Real
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray

from labelgap.datasets.records import to_canonical_csr
from labelgap.estimators.base import About, MultiLabelEstimator
from labelgap.estimators.parameters import check_choice, check_number
from labelgap.estimators.scores import LinearScores, check_coefficients, store_by_feature
from labelgap.observations import Labels

MODELS = ("multinomial", "bernoulli")


class NaiveBayes(MultiLabelEstimator):
    """A naive Bayes classifier for each label, fitted on the rows where the label is known.

    The decision value log p(y = 1 | x) − log p(y = 0 | x) is linear in x (multinomial) or in [x > 0] (Bernoulli):

        log p(x | y)  =  Σ_f x_f log θ_yf,                                       θ_yf = (N_yf + α) / (Σ_f N_yf + α d)
        log p(x | y)  =  Σ_f [x_f > 0] log θ_yf + [x_f ≤ 0] log (1 − θ_yf),      θ_yf = (N_yf + α) / (n_y + 2 α)

    where N_yf is the sum of feature f, or the number of rows that have it, over the known rows of class y, n_y is the
    number of these rows, and p(y) = n_y / (n_0 + n_1). If all known cells of a label have the same class, x is
    ignored and the odds are (n_1 + 1) / (n_0 + 1); a label without a known cell has the decision value 0.

    Parameters
    ----------
    alpha : float, default=1.0
        The smoothing α > 0; 1 is Laplace smoothing.
    model : {"multinomial", "bernoulli"}, default="multinomial"
        "multinomial" takes nonnegative counts or shares; "bernoulli" uses only whether features are positive.
    absent, n_jobs, dtype
        As in :class:`~labelgap.LEML`.
    device : str, default="auto"
        Deprecated; has no effect.

    Attributes
    ----------
    coef_ : ndarray of shape (L, d)
        The weight of each feature in the decision value.
    intercept_ : ndarray of shape (L,)
        The decision value of a row of zeros.

    Examples
    --------
    >>> import numpy as np
    >>> from labelgap import NaiveBayes
    >>> X = np.array([[2.0, 0.0], [3.0, 1.0], [0.0, 2.0], [1.0, 4.0]])
    >>> NaiveBayes().fit(X, [[1, 0], [1, np.nan], [0, 1], [0, 1]]).predict([[4.0, 1.0]])
    array([[1., 0.]])
    """

    about = About(
        "A naive Bayes classifier for each label.",
        "Maron 1961; McCallum and Nigam 1998",
        missing_labels=True,
        fit="z y",
        predict="z/n L",
    )

    coef_: NDArray
    intercept_: NDArray

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        model: Literal["multinomial", "bernoulli"] = "multinomial",
        absent: Literal["negative", "unknown"] = "negative",
        n_jobs: int | None = None,
        device: str = "auto",
        dtype: DTypeLike = "float32",
    ) -> None:
        self.alpha = alpha
        self.model = model
        self.absent = absent
        self.n_jobs = n_jobs
        self.device = device
        self.dtype = dtype

    def _check_parameters(self) -> None:
        self._check_common()
        check_number("alpha", self.alpha, Real, least=0)
        if not self.alpha > 0:
            raise ValueError(f"alpha={self.alpha!r} is out of range; pass a number above 0, such as 1.0.")
        check_choice("model", self.model, MODELS)

    def _learn(self, X: Any, labels: Labels) -> None:
        X = self._convert_features(X)
        sums, n_known = _sum_rows(X, labels, labels.known)
        positive_sums, n_positive = _sum_rows(X, labels, labels.positives)
        n_negative = n_known - n_positive
        positive_weights, positive_offsets = self._compute_likelihood(positive_sums, n_positive)
        negative_weights, negative_offsets = self._compute_likelihood(sums - positive_sums, n_negative)
        both = (n_positive > 0) & (n_negative > 0)
        smoothing = np.where(both, 0, 1)  # of the prior, for a class without rows
        prior = np.log(n_positive + smoothing) - np.log(n_negative + smoothing)
        dtype = np.dtype(self.dtype).type
        self.coef_ = store_by_feature((both[:, None] * (positive_weights - negative_weights)).astype(dtype))
        self.intercept_ = (both * (positive_offsets - negative_offsets) + prior).astype(dtype)

    def _convert_features(self, X: Any) -> Any:
        """Return the features of the model; raise ValueError for negative values in the multinomial model."""
        if self.model == "bernoulli":
            # A copy: a comparison would sort the caller's matrix.
            return ((to_canonical_csr(X) if sp.issparse(X) else X) > 0).astype(X.dtype)
        values = X.data if sp.issparse(X) else X
        if values.size and values.min() < 0:
            raise ValueError(
                f"Negative values in data passed to X: it has {values.min():g}, and the multinomial model takes "
                "nonnegative values; pass model='bernoulli' to use only whether values are positive."
            )
        return X

    def _compute_likelihood(self, sums: NDArray, n_rows: NDArray) -> tuple[NDArray, NDArray]:
        """Return the weights of the features in log p(x | y), L×d, and its value at x = 0."""
        alpha, d = float(self.alpha), sums.shape[1]
        if self.model == "multinomial":
            totals = sums.sum(axis=1, keepdims=True) + alpha * d
            return np.log(sums + alpha) - np.log(totals), np.zeros(len(n_rows))
        totals = n_rows[:, None] + 2 * alpha
        absent = np.log(totals - sums - alpha) - np.log(totals)
        return np.log(sums + alpha) - np.log(totals) - absent, absent.sum(axis=1)

    def _scores(self, X: Any) -> LinearScores:
        return LinearScores(self._convert_features(X), self.coef_, self.intercept_, self._kernels())

    def _check_loaded(self) -> None:
        check_coefficients(self.coef_, self.intercept_, self.n_labels_, self.n_features_in_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = self.model == "multinomial"
        return tags


def _sum_rows(X: Any, labels: Labels, cells: sp.csr_array | None) -> tuple[NDArray, NDArray]:
    """Return the sum of the rows with a cell of each label, L×d in float64, and their number; None is all cells."""
    if cells is None:
        total = np.asarray(X.sum(axis=0, dtype=float)).reshape(1, -1)
        return np.repeat(total, labels.shape[1], axis=0), np.full(labels.shape[1], float(len(labels)))
    sums = sp.csr_array(cells.T, dtype=float) @ X
    counts = np.bincount(cells.indices, minlength=labels.shape[1]).astype(float)
    return (sums.toarray() if sp.issparse(sums) else np.asarray(sums)), counts
