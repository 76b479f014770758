"""Forms of rows: maps of rows that are learned from the training rows, without labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.preprocessing import normalize

from labelgap.estimators import KMeansNystroem
from labelgap.runtime import multithreaded_blas, row_blocks

MAX_DENSITY = 0.5  # of rows of words
SMOOTHING = 0.4  # the power of the eigenvalues
MIN_EIGENVALUE_SHARE = 1e-6  # of the largest one
MAX_SMOOTH_FEATURES, MAX_SMOOTH_VALUES = 3000, 10**8  # an eigendecomposition, and dense rows
MAX_KERNEL_ROWS, MAX_KERNEL_FEATURES = 50_000, 500


class RowForm(Protocol):
    """A map of rows of d features; its fields are arrays and numbers, as a model file holds them."""

    keeps_priors: bool  # whether the rows of a prior (L×d) can take this form, too

    def transform(self, X: Any) -> Any:
        """Return the rows in this form."""
        ...

    def check(self, d: int) -> int:
        """Return the number of features of the form; raise ValueError if its arrays do not fit d features."""
        ...


@dataclass(frozen=True)
class IdfRows:
    """Sparse rows with columns weighted by log((1 + n) / (1 + n_w)) + 1, where n_w rows have feature w, of length 1.

    >>> learn_idf(sp.csr_array([[1.0, 2.0], [0.0, 3.0]])).weights.round(2).tolist()
    [1.41, 1.0]
    """

    weights: NDArray
    keeps_priors = True

    def transform(self, X: Any) -> sp.csr_array:
        """Return weighted rows."""
        rows = sp.csr_array(X, copy=True)
        rows.data *= np.asarray(self.weights, rows.dtype)[rows.indices]
        return sp.csr_array(normalize(rows, copy=False))

    def check(self, d: int) -> int:
        """Return d."""
        if self.weights.shape != (d,):
            raise ValueError(f"weights of shape {self.weights.shape} for {d} features")
        return d


@dataclass(frozen=True)
class SmoothRows:
    """Rows with idf weights times S = (XᵀX)^0.4, of length 1, so that words that occur together count for each other.

    A ridge penalty on weights v of such rows is one of wᵀ (XᵀX)^−0.8 w on the weights w = S v of words: it is weak in
    the directions in which rows differ most. All training rows show these, also those that have lost their labels.

    >>> rows = sp.csr_array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> form = learn_smoothing(rows)
    >>> form.transform(sp.csr_array([[1.0, 0.0, 0.0]])).round(1).tolist()  # the second word goes with the first
    [[0.7, 0.7, 0.0]]
    """

    weights: NDArray
    smoothing: NDArray
    keeps_priors = False

    def transform(self, X: Any) -> NDArray:
        """Return dense rows."""
        rows = IdfRows(self.weights).transform(X)
        smoothing, smooth = self.smoothing.astype(rows.dtype), np.empty(rows.shape, rows.dtype)
        for block in row_blocks(*rows.shape):
            smooth[block] = normalize(np.asarray(rows[block] @ smoothing))
        return smooth

    def check(self, d: int) -> int:
        """Return d."""
        if self.smoothing.shape != (d, d):
            raise ValueError(f"a smoothing of shape {self.smoothing.shape} for {d} features")
        return IdfRows(self.weights).check(d)


@dataclass(frozen=True)
class KernelRows:
    """Rows followed by features of a Gaussian kernel (:class:`~labelgap.KMeansNystroem`), dense.

    >>> learn_kernel(np.eye(2)).transform(np.eye(2)).shape
    (2, 4)
    """

    landmarks: NDArray
    whitening: NDArray
    gamma: float
    keeps_priors = False

    def transform(self, X: Any) -> NDArray:
        """Return dense rows with their kernel features."""
        nystroem = KMeansNystroem()
        nystroem.landmarks_, nystroem.whitening_, nystroem.gamma_ = self.landmarks, self.whitening, self.gamma
        nystroem.n_features_in_ = X.shape[1]
        features: NDArray = nystroem.transform(X.toarray() if sp.issparse(X) else X)
        return features

    def check(self, d: int) -> int:
        """Return d plus the number of landmarks."""
        size = len(self.landmarks)
        if (self.landmarks.shape, self.whitening.shape) != ((size, d), (size, size)):
            raise ValueError(f"a kernel of {size} landmarks with other shapes")
        return d + size


def has_words(X: Any) -> bool:
    """Return whether rows look like counts of words: sparse, ≥ 0, and most of them 0.

    >>> X = sp.csr_array(np.eye(3))
    >>> has_words(X), has_words(-X), has_words(X.toarray()), has_words(sp.csr_array(np.ones((3, 3))))
    (True, False, False, False)
    """
    return bool(sp.issparse(X) and 0 < X.nnz < MAX_DENSITY * X.shape[0] * X.shape[1] and X.data.min() >= 0)


def learn_idf(X: Any, seed: int = 0) -> IdfRows:
    """Return the weights of words; raise ValueError unless rows are sparse and ≥ 0."""
    if not sp.issparse(X) or X.data.min(initial=0) < 0:
        raise ValueError("Rows with idf weights, smooth or not, need sparse X without negative values; use raw rows.")
    return IdfRows(np.log((1 + X.shape[0]) / (1 + np.bincount(X.indices, minlength=X.shape[1]))) + 1)


def learn_smoothing(X: Any, seed: int = 0) -> SmoothRows:
    """Return the weights and the smoothing of words."""
    idf = learn_idf(X)
    rows = idf.transform(X)
    with multithreaded_blas():
        values, vectors = scipy.linalg.eigh((rows.T @ rows).toarray().astype(np.float64))
        powers = np.maximum(values / values[-1], MIN_EIGENVALUE_SHARE) ** SMOOTHING
        smoothing = (vectors * powers) @ vectors.T
    return SmoothRows(idf.weights, smoothing.astype(np.float32))


def learn_kernel(X: Any, seed: int = 0) -> KernelRows:
    """Return landmarks and their kernel."""
    nystroem = KMeansNystroem(random_state=seed).fit(X.toarray() if sp.issparse(X) else X)
    return KernelRows(nystroem.landmarks_, nystroem.whitening_, nystroem.gamma_)


class FormKind(NamedTuple):
    """A class of forms, the function that learns one, which rows it is for, and whether its rows are dense."""

    form: type
    learn: Callable[[Any, int], RowForm]
    suits: Callable[[Any], bool]
    dense: bool = True


FORMS = {
    "idf": FormKind(IdfRows, learn_idf, has_words, dense=False),
    "smooth": FormKind(
        SmoothRows,
        learn_smoothing,
        lambda X: has_words(X) and X.shape[1] <= MAX_SMOOTH_FEATURES and X.shape[0] * X.shape[1] <= MAX_SMOOTH_VALUES,
    ),
    "kernel": FormKind(
        KernelRows, learn_kernel, lambda X: X.shape[0] <= MAX_KERNEL_ROWS and X.shape[1] <= MAX_KERNEL_FEATURES
    ),
}
