"""Nyström features of the Gaussian kernel: what makes a linear model non-linear at a linear model's cost."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any, Literal, Self

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.metrics.pairwise import euclidean_distances, rbf_kernel
from sklearn.utils import check_array, check_random_state, gen_batches
from sklearn.utils.validation import check_is_fitted, validate_data

from labelgap.clustering import cluster, different_rows
from labelgap.estimators.parameters import check_choice, check_number
from labelgap.kernels import matmul
from labelgap.runtime import threads, wide_blas

# From k-means++ seeds five rounds come within 1 % of the error at convergence, and the Nyström error is the same.
ROUNDS = 5
MEDIAN_ROWS = 1_000
# A share of the largest eigenvalue: above the rounding of eigh, and √floor above that of the kernel values.
EIGENVALUE_FLOOR = 1e-10
LARGEST_VALUE = 1e100
VALUES_PER_BLOCK = 1 << 22
ROWS = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "accept_large_sparse": True}


class KMeansNystroem(TransformerMixin, BaseEstimator):
    """Features z of a row x whose inner products approximate the Gaussian kernel, appended to x.

    With landmarks c_1 … c_D, the centres that K-means finds among the rows,

        z = K^{−1/2} z̄,   z̄_t = exp(−γ ‖c_t − x‖²),   K_ts = exp(−γ ‖c_t − c_s‖²),

    so that zᵀz' = z̄ᵀ K⁻¹ z̄' ≈ exp(−γ ‖x − x'‖²): Yu, Huang, Dhillon and Lin 2017, section 4.3, after Zhang, Tsang and
    Kwok 2008. Eigenvalues of K below 1e-10 of the largest are raised to that, so that landmarks which coincide, or
    nearly so, do no harm. Everything is computed in float64, and z comes in the precision of X.

    Parameters
    ----------
    n_landmarks : int, default=500
        The number D of landmarks. Where the rows looked at have no more than D different ones among them, these are
        the landmarks, and z is exact on them.
    gamma : {"median", "variance"} or float, default="median"
        γ, before ``gamma_factor`` multiplies it. "median" is 1 / the median squared distance between different
        training rows. "variance" is the paper's 1 / σ², σ² the variance of all values of the training matrix, zeros
        of a sparse one included; for d features and rows of unit length σ² is near 1 / d, and γ near d leaves kernel
        values of 0 between all but the closest rows. Where there is no spread to divide by, γ is 1.
    gamma_factor : float, default=1.0
        Multiplies γ: the grid of the paper is 0.5, 1 and 2 with ``gamma="variance"``.
    append : bool, default=True
        Return X and z side by side, sparse where X is sparse; else z alone, dense.
    max_fit_rows : int, optional, default=20000
        Look for landmarks (and the median) among a random sample of this many rows; None is all of them.
    random_state : int, RandomState or None
        Seeds the sample and K-means.
    n_jobs : int, optional
        Threads; all cores by default.

    Attributes
    ----------
    landmarks_ : ndarray of shape (D, d)
        The centres.
    gamma_ : float
        γ, all factors included.
    whitening_ : ndarray of shape (D, D)
        K^{−1/2}.

    Examples
    --------
    Every row is a landmark here, so the inner products are the kernel itself:

    >>> import numpy as np
    >>> from labelgap import KMeansNystroem
    >>> X = np.array([[0.0], [1.0], [3.0]])
    >>> z = KMeansNystroem(gamma=0.5, append=False, random_state=0).fit_transform(X)
    >>> np.allclose(z @ z.T, np.exp(-0.5 * (X - X.T) ** 2))
    True
    >>> KMeansNystroem(2, random_state=0).fit(X).get_feature_names_out()
    array(['x0', 'kmeansnystroem0', 'kmeansnystroem1'], dtype=object)
    """

    landmarks_: NDArray
    gamma_: float
    whitening_: NDArray
    n_features_in_: int

    def __init__(
        self,
        n_landmarks: int = 500,
        *,
        gamma: float | Literal["median", "variance"] = "median",
        gamma_factor: float = 1.0,
        append: bool = True,
        max_fit_rows: int | None = 20_000,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_landmarks = n_landmarks
        self.gamma = gamma
        self.gamma_factor = gamma_factor
        self.append = append
        self.max_fit_rows = max_fit_rows
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find the landmarks and the width of the kernel in rows X; y is ignored."""
        self._check_parameters()
        rows = _door(check_array(X, estimator=self, input_name="X", **ROWS))
        rng = check_random_state(self.random_state)
        with threads(self.n_jobs):
            sample = _sample(rows, self.max_fit_rows, rng)
            different = different_rows(sample, max(MEDIAN_ROWS, self.n_landmarks + 1), rng)
            gamma = self._width(rows, different)
            landmarks = _landmarks(sample, different, self.n_landmarks, rng)
            with wide_blas():
                whitening = _inverse_root(_kernel(landmarks, None, gamma))
        validate_data(self, X, skip_check_array=True)  # only now, so that a fit that fails leaves all as it was
        self.landmarks_, self.gamma_, self.whitening_ = landmarks, gamma, whitening
        return self

    def transform(self, X: Any) -> Any:
        """Return the features of rows X, in their dtype: n×(d + D), or n×D without ``append``."""
        check_is_fitted(self)
        X = _door(validate_data(self, X, reset=False, **ROWS))
        with threads(self.n_jobs):
            if self.append and sp.issparse(X):
                parts = [sp.hstack([X[rows], type(X)(z)]) for rows, z in self._blocks(X)]
                return sp.vstack(parts, format="csr")
            width = X.shape[1] if self.append else 0
            features = np.empty((X.shape[0], width + len(self.landmarks_)), X.dtype)
            if self.append:
                features[:, :width] = X
            for rows, z in self._blocks(X):
                features[rows, width:] = z
        return features

    def get_feature_names_out(self, input_features: Any = None) -> NDArray:
        """Return the names of the features: those of X where they are kept, then one for each landmark."""
        check_is_fitted(self)
        kept = OneToOneFeatureMixin.get_feature_names_out(self, input_features)
        found = [f"kmeansnystroem{t}" for t in range(len(self.landmarks_))]
        return np.array([*kept, *found] if self.append else found, dtype=object)

    def _check_parameters(self) -> None:
        check_number("n_landmarks", self.n_landmarks, Integral, least=1)
        check_number("gamma_factor", self.gamma_factor, Real, least=0)
        check_number("max_fit_rows", self.max_fit_rows, Integral, least=1, optional=True)
        if isinstance(self.gamma, str):
            check_choice("gamma", self.gamma, ("median", "variance"))
        else:
            check_number("gamma", self.gamma, Real, least=0)
        if self.max_fit_rows is not None and self.max_fit_rows < self.n_landmarks:
            raise ValueError(
                f"max_fit_rows={self.max_fit_rows} is below n_landmarks={self.n_landmarks}, and K-means needs a row "
                "for each landmark; raise the one or lower the other."
            )

    def _width(self, X: Any, different: Any) -> float:
        """Return γ from all rows or from different ones, as the parameter says."""
        if self.gamma == "variance":
            gamma = _inverse(_variance(X))
        elif self.gamma == "median":
            gamma = _inverse(_median_distance(different[:MEDIAN_ROWS]))
        else:
            gamma = float(self.gamma)
        gamma *= float(self.gamma_factor)
        check_number("gamma times gamma_factor", gamma, Real, least=0)
        return gamma

    def _blocks(self, X: Any) -> Iterator[tuple[slice, NDArray]]:
        """Yield z some rows after the other, in the precision of X."""
        width = len(self.landmarks_) if sp.issparse(X) else max(self.landmarks_.shape)
        size = max(1, VALUES_PER_BLOCK // width)
        for rows in gen_batches(X.shape[0], size):
            near = _kernel(X[rows].astype(np.float64), self.landmarks_, self.gamma_)
            yield rows, matmul(near, self.whitening_).astype(X.dtype, copy=False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _door(X: Any) -> Any:
    """Return X with each cell of a sparse one stored once, unless squared distances of its rows could overflow."""
    if sp.issparse(X) and not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    values = X.data if sp.issparse(X) else X
    largest = float(max(values.max(initial=0), -values.min(initial=0)))
    if largest > LARGEST_VALUE:
        raise ValueError(
            f"X holds values up to {largest:.3g}, whose squares overflow in distances; scale the features "
            "(sklearn.preprocessing has Normalizer and StandardScaler)."
        )
    return X


def _kernel(X: Any, landmarks: NDArray | None, gamma: float) -> NDArray:
    with np.errstate(over="ignore"):  # an exponent of −∞ gives the 0 that it should
        return rbf_kernel(X, landmarks, gamma=gamma)


def _sample(X: Any, most: int | None, rng: np.random.RandomState) -> Any:
    """Return rows as float64, ``most`` of them at random or all."""
    rows = X if most is None or most >= X.shape[0] else X[rng.permutation(X.shape[0])[:most]]
    return rows.astype(np.float64)


def _landmarks(sample: Any, different: Any, count: int, rng: np.random.RandomState) -> NDArray:
    """Return the centres of K-means, or all the different rows where they are not more."""
    if different.shape[0] <= count:
        return _dense(different)
    return cluster(sample, count, rng=rng, balance=None, max_iter=ROUNDS, tol=0)[0].centers


def _dense(X: Any) -> NDArray:
    return X.toarray() if sp.issparse(X) else X


def _inverse_root(K: NDArray) -> NDArray:
    """K^{−1/2} of a positive semidefinite matrix, with small eigenvalues raised to the floor.

    >>> _inverse_root(np.diag([4.0, 1.0])).round(6)
    array([[0.5, 0. ],
           [0. , 1. ]])
    """
    values, vectors = scipy.linalg.eigh(K)
    return (vectors / np.sqrt(np.maximum(values, EIGENVALUE_FLOOR * values[-1]))) @ vectors.T


def _inverse(spread: float) -> float:
    return 1.0 / spread if spread > np.finfo(float).tiny else 1.0


def _median_distance(rows: Any) -> float:
    """The median squared distance between two of the rows, 0 where there are no two."""
    pairs = np.triu_indices(rows.shape[0], 1)
    return float(np.median(euclidean_distances(rows, squared=True)[pairs])) if pairs[0].size else 0.0


def _variance(X: Any) -> float:
    """The variance of all values of a matrix, those that a sparse one does not store included.

    >>> _variance(sp.csr_array([[4.0, 0.0], [0.0, 0.0]]))
    3.0
    """
    if not sp.issparse(X):
        return float(X.var(dtype=np.float64))
    size, values = X.shape[0] * X.shape[1], X.data.astype(np.float64)
    mean = values.sum() / size
    return float((((values - mean) ** 2).sum() + (size - len(values)) * mean**2) / size)
