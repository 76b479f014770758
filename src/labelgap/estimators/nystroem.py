"""KMeansNystroem: Nyström features of the Gaussian kernel, which make linear models non-linear."""

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
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from labelgap.clustering import cluster, draw_distinct_rows
from labelgap.estimators.parameters import check_choice, check_number
from labelgap.kernels import matmul
from labelgap.observations import check_sparse_indices
from labelgap.observations.arguments import MatrixLike, RandomSeed
from labelgap.runtime import multithreaded_blas, row_blocks, threads

# From k-means++ seeds, five rounds reach 1.01 times the error at convergence, with the same Nyström error.
KMEANS_ROUNDS = 5
MAX_MEDIAN_ROWS = 1_000
# A share of the largest eigenvalue: it is above the rounding errors of eigh, and its root above those of the kernel.
MIN_EIGENVALUE_SHARE = 1e-10
MAX_VALUE = 1e100
ROW_CHECKS = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "accept_large_sparse": True}


class KMeansNystroem(TransformerMixin, BaseEstimator):
    """Transformer that appends features z to a row x, whose inner products approximate the Gaussian kernel.

    With landmarks c_1 … c_D, the centres of K-means on the rows,

        z = K^{−1/2} z̄,   z̄_t = exp(−γ ‖c_t − x‖²),   K_ts = exp(−γ ‖c_t − c_s‖²),

    so that zᵀz' = z̄ᵀ K⁻¹ z̄' ≈ exp(−γ ‖x − x'‖²): Yu, Huang, Dhillon and Lin 2017, section 4.3, after Zhang, Tsang and
    Kwok 2008. Eigenvalues of K below 1e-10 times the largest are raised to this value, so that equal or nearly equal
    landmarks do no harm. Everything is computed in float64, and z has the precision of X.

    Parameters
    ----------
    n_landmarks : int, default=500
        The number D of landmarks. If the rows have at most D distinct values, these are the landmarks, and the kernel
        is exact on them.
    gamma : {"median", "variance"} or float, default="median"
        γ, before it is multiplied by ``gamma_factor``. "median" is 1 / the median squared distance between distinct
        training rows. "variance" is the paper's 1 / σ², where σ² is the variance of all values of the training
        matrix, including the zeros of a sparse one. With d features and rows of length 1, σ² is about 1 / d, and γ
        near d gives kernel values of 0 for all but the closest rows. If all rows or values are equal, γ is 1.
    gamma_factor : float, default=1.0
        Factor of γ; the paper's grid is 0.5, 1 and 2 with ``gamma="variance"``.
    append : bool, default=True
        Return [X, z], sparse if X is sparse; if False, return z alone, dense.
    max_fit_rows : int, optional, default=20000
        Number of random rows used for the landmarks and the median; None uses all rows.
    random_state : int, RandomState or None
        Seed of the sample and of K-means.
    n_jobs : int, optional
        Number of threads; all cores by default.

    Attributes
    ----------
    landmarks_ : ndarray of shape (D, d)
        The landmarks.
    gamma_ : float
        γ, including ``gamma_factor``.
    whitening_ : ndarray of shape (D, D)
        K^{−1/2}.

    Examples
    --------
    Every row is a landmark here, so the inner products are equal to the kernel:

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
        random_state: RandomSeed = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_landmarks = n_landmarks
        self.gamma = gamma
        self.gamma_factor = gamma_factor
        self.append = append
        self.max_fit_rows = max_fit_rows
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: MatrixLike, y: Any = None) -> Self:
        """Compute the landmarks and the width of the kernel from rows X; y is ignored."""
        self._check_parameters()
        rows = _check_values(check_array(check_sparse_indices("X", X), estimator=self, input_name="X", **ROW_CHECKS))
        rng = check_random_state(self.random_state)
        with threads(self.n_jobs):
            sample = _draw_rows(rows, self.max_fit_rows, rng)
            distinct = draw_distinct_rows(sample, max(MAX_MEDIAN_ROWS, self.n_landmarks + 1), rng)
            gamma = self._choose_gamma(rows, distinct)
            landmarks = _choose_landmarks(sample, distinct, self.n_landmarks, rng)
            with multithreaded_blas():
                whitening = _inverse_root(_compute_kernel(landmarks, None, gamma))
        validate_data(self, X, skip_check_array=True)  # last, so that a failed fit changes no attribute
        self.landmarks_, self.gamma_, self.whitening_ = landmarks, gamma, whitening
        return self

    def transform(self, X: MatrixLike) -> Any:
        """Return the features of rows X in the dtype of X: n×(d + D), or n×D without ``append``."""
        check_is_fitted(self)
        X = _check_values(validate_data(self, check_sparse_indices("X", X), reset=False, **ROW_CHECKS))
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
        """Return the names of the features: those of X with ``append``, then one for each landmark."""
        check_is_fitted(self)
        input_names = OneToOneFeatureMixin.get_feature_names_out(self, input_features)
        names = [f"kmeansnystroem{t}" for t in range(len(self.landmarks_))]
        return np.array([*input_names, *names] if self.append else names, dtype=object)

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
                "for each landmark; raise max_fit_rows or lower n_landmarks."
            )

    def _choose_gamma(self, X: Any, distinct: Any) -> float:
        """Return γ from all rows or from distinct ones, depending on the parameter."""
        if self.gamma == "variance":
            gamma = _inverse(_variance(X))
        elif self.gamma == "median":
            gamma = _inverse(_median_distance(distinct[:MAX_MEDIAN_ROWS]))
        else:
            gamma = float(self.gamma)
        gamma *= float(self.gamma_factor)
        check_number("gamma times gamma_factor", gamma, Real, least=0)
        return gamma

    def _blocks(self, X: Any) -> Iterator[tuple[slice, NDArray]]:
        """Yield blocks of rows with their z, in the precision of X."""
        width = len(self.landmarks_) if sp.issparse(X) else max(self.landmarks_.shape)
        for rows in row_blocks(X.shape[0], width):
            values = _compute_kernel(X[rows].astype(np.float64), self.landmarks_, self.gamma_)
            yield rows, matmul(values, self.whitening_).astype(X.dtype, copy=False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _check_values(X: Any) -> Any:
    """Return X without duplicate entries, or raise ValueError if squared distances of its rows could overflow."""
    if sp.issparse(X) and not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    values = X.data if sp.issparse(X) else X
    largest = float(max(values.max(initial=0), -values.min(initial=0)))
    if largest > MAX_VALUE:
        raise ValueError(
            f"X holds values up to {largest:.3g}, whose squares overflow in distances; scale the features "
            "(sklearn.preprocessing has Normalizer and StandardScaler)."
        )
    return X


def _compute_kernel(X: Any, landmarks: NDArray | None, gamma: float) -> NDArray:
    with np.errstate(over="ignore"):  # an exponent of −∞ correctly gives 0
        return rbf_kernel(X, landmarks, gamma=gamma)


def _draw_rows(X: Any, max_rows: int | None, rng: np.random.RandomState) -> Any:
    """Return at most ``max_rows`` random rows, or all of them for None, as float64."""
    rows = X if max_rows is None or max_rows >= X.shape[0] else X[rng.permutation(X.shape[0])[:max_rows]]
    return rows.astype(np.float64)


def _choose_landmarks(sample: Any, distinct: Any, count: int, rng: np.random.RandomState) -> NDArray:
    """Return the centres of K-means, or the distinct rows if there are at most ``count``."""
    if distinct.shape[0] <= count:
        return distinct.toarray() if sp.issparse(distinct) else distinct
    return cluster(sample, count, rng=rng, balance=None, max_iter=KMEANS_ROUNDS, tol=0)[0].centers


def _inverse_root(K: NDArray) -> NDArray:
    """Return K^{−1/2} of a positive semidefinite matrix, with small eigenvalues raised to a minimum.

    >>> _inverse_root(np.diag([4.0, 1.0])).round(6)
    array([[0.5, 0. ],
           [0. , 1. ]])
    """
    values, vectors = scipy.linalg.eigh(K)
    return (vectors / np.sqrt(np.maximum(values, MIN_EIGENVALUE_SHARE * values[-1]))) @ vectors.T


def _inverse(spread: float) -> float:
    return 1.0 / spread if spread > np.finfo(float).tiny else 1.0


def _median_distance(rows: Any) -> float:
    """Return the median squared distance between two of the rows, 0 for a single row."""
    pairs = np.triu_indices(rows.shape[0], 1)
    return float(np.median(euclidean_distances(rows, squared=True)[pairs])) if pairs[0].size else 0.0


def _variance(X: Any) -> float:
    """Return the variance of all values of a matrix, including the zeros of a sparse one.

    >>> _variance(sp.csr_array([[4.0, 0.0], [0.0, 0.0]]))
    3.0
    """
    if not sp.issparse(X):
        return float(X.var(dtype=np.float64))
    size, values = X.shape[0] * X.shape[1], X.data.astype(np.float64)
    mean = values.sum() / size
    return float((((values - mean) ** 2).sum() + (size - len(values)) * mean**2) / size)
