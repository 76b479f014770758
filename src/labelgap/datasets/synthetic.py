"""Generated data with a known truth: planted low rank, hidden cells, and large sparse datasets for tests of scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.utils import check_random_state

from labelgap.observations.arguments import RandomSeed


@dataclass(frozen=True)
class PlantedData:
    """Data of :func:`make_low_rank`, with the true factors.

    Attributes
    ----------
    X : ndarray or csr_array of float32, shape (n, d)
    Y : csr_array of float32, shape (n, L)
    W : ndarray of shape (d, rank)
    H : ndarray of shape (L, rank)
    threshold : float
        Y is 1 if and only if X W Hᵀ + noise exceeds it.
    """

    X: sp.csr_array | NDArray[np.float32]
    Y: sp.csr_array
    W: NDArray[np.float64]
    H: NDArray[np.float64]
    threshold: float

    def scores(self) -> NDArray[np.float64]:
        """Return X W Hᵀ without noise, a dense n×L array."""
        return (self.X @ self.W) @ self.H.T


def make_low_rank(
    n_samples: int,
    n_features: int,
    n_labels: int,
    rank: int,
    *,
    labels_per_row: float = 3.0,
    density: float | None = None,
    noise: float = 0.0,
    random_state: RandomSeed = None,
) -> PlantedData:
    """Make labels from planted low-rank scores, S = X W Hᵀ + noise · std(X W Hᵀ) · N(0, 1).

    X, W and H are standard normal; ``density`` is the share of non-zero cells of X. One threshold for all cells makes
    the round(n · ``labels_per_row``) largest scores positive: ``labels_per_row`` is the mean, and single rows vary.
    Memory: an n×L array.

    >>> data = make_low_rank(50, 8, 10, rank=2, random_state=0)
    >>> data.Y.nnz
    150
    >>> bool(((data.scores() > data.threshold) == data.Y.toarray()).all())
    True
    """
    _check_sizes(n_samples=n_samples, n_features=n_features, n_labels=n_labels, rank=rank)
    n_positives = round(n_samples * labels_per_row)
    if not 0 < n_positives < n_samples * n_labels:
        raise ValueError(f"labels_per_row={labels_per_row} must be above 0 and below n_labels={n_labels}.")
    rng = check_random_state(random_state)
    X = _draw_features(n_samples, n_features, density, rng)
    W, H = rng.standard_normal((n_features, rank)), rng.standard_normal((n_labels, rank))
    scores = (X @ W) @ H.T
    if noise:
        scores += noise * scores.std() * rng.standard_normal(scores.shape)
    order = np.partition(scores.ravel(), [-n_positives - 1, -n_positives])
    threshold = float((order[-n_positives - 1] + order[-n_positives]) / 2)
    return PlantedData(X, sp.csr_array((scores > threshold).astype(np.float32)), W, H, threshold)


@dataclass(frozen=True)
class CompletionData:
    """Data of :func:`make_completion`: the observed cells, and the true values.

    Attributes
    ----------
    X, Y : ndarray of shape (n, d) and (n, L)
        Features, and labels 0/1, with NaN in hidden cells.
    X_true, Y_true : ndarray of shape (n, d) and (n, L)
        The same without hidden cells.
    X0 : ndarray of shape (n, d)
        The features without noise, a matrix of low rank.
    W, b : ndarray of shape (d, L) and (L,)
        P(Y_ij = 1) = 1 / (1 + exp(−s_ij)), s = X0 W + b.
    """

    X: NDArray[np.float64]
    Y: NDArray[np.float64]
    X_true: NDArray[np.float64]
    Y_true: NDArray[np.float64]
    X0: NDArray[np.float64]
    W: NDArray[np.float64]
    b: NDArray[np.float64]

    @property
    def hidden_features(self) -> NDArray[np.bool_]:
        """Mask of the hidden cells of X."""
        return np.isnan(self.X)

    @property
    def hidden_labels(self) -> NDArray[np.bool_]:
        """Mask of the hidden cells of Y."""
        return np.isnan(self.Y)


def make_completion(
    n_samples: int,
    n_features: int = 20,
    n_labels: int = 10,
    *,
    rank: int = 2,
    noise_variance: float = 0.01,
    observed: float = 0.2,
    random_state: RandomSeed = None,
) -> CompletionData:
    """Make features of low rank and labels of a linear model, and hide cells of both (Goldberg et al. 2010, 4.1).

    X0 = L R, with n×r and r×d standard normal factors, scaled so that its entries have variance 1. Features are
    X0 + N(0, σ²). Labels are 1 with probability 1 / (1 + exp(−s)), s = X0 W + b, the entries of W and b drawn from
    N(0, 10), where 10 is the variance. The share ω of the cells of X and of the cells of Y is observed, drawn
    separately: round(ω n d) and round(ω n L) cells, at least one.

    Parameters
    ----------
    n_samples, n_features, n_labels : int
        n, d and L; the paper has 100 or 400, 20, and 10.
    rank : int
        r, the rank of X0; the paper has 2 and 4.
    noise_variance : float
        σ²; the paper has 0.01 and 0.1.
    observed : float
        ω, above 0 and up to 1; the paper has 0.1, 0.2 and 0.4.
    random_state : int, RandomState or None
        Seed of all random draws.

    >>> data = make_completion(100, rank=2, observed=0.2, random_state=0)
    >>> data.X.shape, data.Y.shape, int((~data.hidden_features).sum()), int((~data.hidden_labels).sum())
    ((100, 20), (100, 10), 400, 200)
    >>> float(data.X0.var().round(6)), int(np.linalg.matrix_rank(data.X0))
    (1.0, 2)
    """
    _check_sizes(n_samples=n_samples, n_features=n_features, n_labels=n_labels, rank=rank)
    if not 0 <= noise_variance < np.inf:
        raise ValueError(f"noise_variance={noise_variance} is not a variance; pass a number of at least 0.")
    if not 0 < observed <= 1:
        raise ValueError(f"observed={observed} is not a share; pass a number above 0 and up to 1.")
    rng = check_random_state(random_state)
    X0 = rng.standard_normal((n_samples, rank)) @ rng.standard_normal((rank, n_features))
    X0 /= X0.std() if X0.size > 1 else 1.0
    X = X0 + np.sqrt(noise_variance) * rng.standard_normal(X0.shape)
    W, b = np.sqrt(10) * rng.standard_normal((n_features, n_labels)), np.sqrt(10) * rng.standard_normal(n_labels)
    Y = (rng.random_sample((n_samples, n_labels)) < expit(X0 @ W + b)).astype(float)
    return CompletionData(_hide(X, observed, rng), _hide(Y, observed, rng), X, Y, X0, W, b)


def _hide(values: NDArray, observed: float, rng: np.random.RandomState) -> NDArray[np.float64]:
    """Set all but a random share of the cells to NaN."""
    cells = rng.permutation(values.size)[: max(1, round(observed * values.size))]
    shown = np.full(values.shape, np.nan)
    shown.ravel()[cells] = values.ravel()[cells]
    return shown


def make_sparse_multilabel(
    n_samples: int,
    n_features: int,
    n_labels: int,
    features_per_row: int,
    labels_per_row: int,
    random_state: RandomSeed = None,
) -> tuple[sp.csr_array, sp.csr_array]:
    """Make a large sparse dataset with labels from latent topics, in time and memory proportional to its non-zeros.

    Each row has one of about √L topics. A topic has a narrow window of features and its own labels, the first of
    which are the most frequent; a fifth of the features and a tenth of the labels are noise from the whole range.
    Duplicate draws count once, so rows have at most ``features_per_row`` features and ``labels_per_row`` labels.

    Returns
    -------
    X : csr_array of float32, shape (n, d)
        Rows of length one.
    Y : csr_array of float32, shape (n, L)

    >>> X, Y = make_sparse_multilabel(100, 1000, 400, 20, 3, random_state=0)
    >>> X.shape, Y.shape, int(np.diff(Y.indptr).max())
    ((100, 1000), (100, 400), 3)
    """
    _check_sizes(n_samples=n_samples, n_features=n_features, n_labels=n_labels)
    _check_sizes(features_per_row=features_per_row, labels_per_row=labels_per_row)
    if features_per_row > n_features or labels_per_row > n_labels:
        raise ValueError(
            f"features_per_row={features_per_row} and labels_per_row={labels_per_row} must not exceed "
            f"n_features={n_features} and n_labels={n_labels}."
        )
    rng = check_random_state(random_state)
    n_topics = max(1, int(np.sqrt(n_labels)))
    topics = rng.randint(n_topics, size=n_samples)
    window = min(n_features, 4 * features_per_row)
    starts = rng.randint(n_features, size=n_topics)
    offsets = _draw_skewed((n_samples, features_per_row), window, 2, rng)
    features = _add_noise((starts[topics][:, None] + offsets) % n_features, n_features, 0.2, rng)
    ranks = _draw_skewed((n_samples, labels_per_row), max(1, n_labels // n_topics), 3, rng)
    labels = _add_noise(topics[:, None] + n_topics * ranks, n_labels, 0.1, rng)
    X, Y = _make_binary_rows(features, n_features), _make_binary_rows(labels, n_labels)
    X.data = (rng.random_sample(X.nnz) + 0.5).astype(np.float32)
    norms = np.sqrt(np.add.reduceat(X.data.astype(float) ** 2, X.indptr[:-1]))
    X.data /= np.repeat(norms, np.diff(X.indptr)).astype(np.float32)
    return X, Y


def _check_sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name}={size} is too small; pass at least 1.")


def _draw_features(n: int, d: int, density: float | None, rng: np.random.RandomState) -> Any:
    if density is None:
        return rng.standard_normal((n, d)).astype(np.float32)
    if not 0 < density <= 1:
        raise ValueError(f"density={density} is not a share; pass a number above 0 and up to 1, or None for dense X.")
    X = rng.standard_normal((n, d)) * (rng.random_sample((n, d)) < density)
    return sp.csr_array(X.astype(np.float32))


def _draw_skewed(shape: tuple[int, int], size: int, power: int, rng: np.random.RandomState) -> NDArray[np.int64]:
    """Draw from range(size), small numbers more often: ⌊size · u^power⌋."""
    return (size * rng.random_sample(shape) ** power).astype(np.int64)


def _add_noise(index: NDArray[np.int64], size: int, share: float, rng: np.random.RandomState) -> NDArray[np.int64]:
    noisy = rng.random_sample(index.shape) < share
    index[noisy] = rng.randint(size, size=int(noisy.sum()))
    return index


def _make_binary_rows(index: NDArray[np.int64], width: int) -> sp.csr_array:
    """Return a 0/1 matrix from the columns drawn for each row, without duplicates."""
    index = np.sort(index.astype(np.int32 if width <= np.iinfo(np.int32).max else np.int64), axis=1)
    is_new = np.ones(index.shape, bool)
    is_new[:, 1:] = index[:, 1:] != index[:, :-1]
    indices = index[is_new]
    indptr = np.concatenate([[0], np.cumsum(is_new.sum(axis=1))]).astype(
        index.dtype if len(indices) <= np.iinfo(np.int32).max else np.int64
    )
    return sp.csr_array((np.ones(len(indices), np.float32), indices, indptr), shape=(len(index), width))
