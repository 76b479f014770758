"""Label loss for experiments: cells that become unknown, and positives that look like negatives."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from labelgap.observations.arguments import LabelsLike, RandomSeed
from labelgap.observations.labels import Labels, as_labels, select_cells


def _check_share(name: str, value: float) -> float:
    if not 0 <= value <= 1:
        raise ValueError(f"{name}={value} is not a share; pass a number from 0 to 1.")
    return value


def _draw_cells(labels: Labels, share: float, rng: np.random.RandomState) -> sp.csr_array:
    """Draw each known cell with probability ``share``, row by row without an n×L array."""
    n, L = labels.shape
    if labels.known is not None:
        drawn = labels.known.copy()
        drawn.data = rng.random_sample(drawn.nnz) < share
        drawn.eliminate_zeros()
        return drawn
    columns = [np.flatnonzero(rng.random_sample(L) < share).astype(np.int32) for _ in range(n)]
    indptr = np.concatenate([[0], np.cumsum([len(c) for c in columns])])
    indices = np.concatenate(columns) if columns else np.empty(0, np.int32)
    return sp.csr_array((np.ones(len(indices), bool), indices, indptr), shape=(n, L))


def hide_cells(Y: LabelsLike, keep: float, *, random_state: RandomSeed = None) -> Labels:
    """Keep each cell, positive or negative, with probability ``keep``; the others become unknown.

    This is the setting of LEML's tables 5 and 11 to 15 (|Ω| / nL = ``keep``).

    >>> Y = np.eye(100)
    >>> hide_cells(Y, 0.2, random_state=0).n_known
    2060
    """
    labels = as_labels(Y)
    observed = _draw_cells(labels, _check_share("keep", keep), check_random_state(random_state))
    return Labels.of_patterns(labels.positives, observed, labels.container)


def hold_out_cells(Y: LabelsLike, share: float = 0.2, *, random_state: RandomSeed = None) -> tuple[Labels, Labels]:
    """Split the known cells into training cells and a random ``share`` of validation cells.

    >>> train, held_out = hold_out_cells(np.eye(10), 0.3, random_state=0)
    >>> train.n_known + held_out.n_known
    100
    """
    labels = as_labels(Y)
    held_out = _draw_cells(labels, _check_share("share", share), check_random_state(random_state))
    known = labels.known if labels.known is not None else sp.csr_array(np.ones(labels.shape, bool))
    train = sp.csr_array(known.astype(np.int8) - held_out.astype(np.int8))
    return (
        Labels.of_patterns(labels.positives, train, labels.container),
        Labels.of_patterns(labels.positives, held_out, labels.container),
    )


def hold_out_positives(
    Y: LabelsLike, share: float = 0.2, *, random_state: RandomSeed = None
) -> tuple[sp.csr_array, sp.csr_array]:
    """Split the positives into training positives and a random ``share`` of held-out positives.

    Exactly round(share · nnz) positives are held out, drawn uniformly without replacement; both parts are n×L
    matrices of ones. For a one-class model a held-out positive is an unlabelled cell like any other.

    >>> train, held_out = hold_out_positives(np.eye(10), 0.3, random_state=0)
    >>> train.nnz, held_out.nnz
    (7, 3)
    """
    positives = as_labels(Y).positives.astype(float)
    count = round(_check_share("share", share) * positives.nnz)
    held_out = np.zeros(positives.nnz, bool)
    held_out[check_random_state(random_state).choice(positives.nnz, count, replace=False)] = True
    return select_cells(positives, ~held_out), select_cells(positives, held_out)


def label_propensities(Y: LabelsLike, A: float = 0.55, B: float = 1.5) -> NDArray[np.float64]:
    """Estimate the probability that a positive of each label is observed.

    p_l = 1 / (1 + C exp(−A log(N_l + B))), C = (log N − 1)(B + 1)^A, for a label with N_l of N positives.
    A and B are those of the extreme classification literature, which has 0.5 and 0.4 for Wikipedia, 0.6 and 2.6 for
    Amazon.

    >>> p = label_propensities(np.array([[1, 0], [1, 0], [1, 1]] * 100))
    >>> bool(p[0] > p[1])
    True
    """
    labels = as_labels(Y)
    counts = np.bincount(labels.positives.indices, minlength=labels.shape[1])
    C = (np.log(max(len(labels), 3)) - 1) * (B + 1) ** A
    return 1 / (1 + C * np.exp(-A * np.log(counts + B)))


def _draw_positives(labels: Labels, chance: NDArray[np.float64], rng: np.random.RandomState) -> sp.csr_array:
    drawn = labels.positives.copy()
    drawn.data = rng.random_sample(drawn.nnz) < chance[drawn.indices]
    drawn.eliminate_zeros()
    return sp.csr_array((np.ones(drawn.nnz), drawn.indices, drawn.indptr), shape=drawn.shape)


def hide_positives(Y: LabelsLike, keep: float, *, random_state: RandomSeed = None) -> sp.csr_array:
    """Keep each positive with probability ``keep``; the others look like negatives.

    >>> hide_positives(np.ones((10, 10)), 0.2, random_state=0).nnz
    25
    """
    labels = as_labels(Y)
    chance = np.full(labels.shape[1], _check_share("keep", keep))
    return _draw_positives(labels, chance, check_random_state(random_state))


def hide_by_propensity(
    Y: LabelsLike, A: float = 0.55, B: float = 1.5, *, random_state: RandomSeed = None
) -> sp.csr_array:
    """Keep each positive with the propensity of its label, so that rare labels lose most.

    >>> Y = np.ones((50, 1))
    >>> bool(hide_by_propensity(Y, random_state=0).nnz < 50)
    True
    """
    labels = as_labels(Y)
    return _draw_positives(labels, label_propensities(labels, A, B), check_random_state(random_state))
