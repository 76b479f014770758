"""Splits that hold out rows, cells or positives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state

from labelgap.observations import Labels, as_labels, hold_out_cells, hold_out_positives
from labelgap.observations.arguments import LabelsLike, MatrixLike, RandomSeed


def hold_out_rows(
    X: MatrixLike, Y: LabelsLike, share: float = 0.2, random_state: RandomSeed = None
) -> tuple[Any, Labels, Any, Labels]:
    """Split rows at random into a training part and a validation part.

    Parameters
    ----------
    X, Y : rows and labels
        The data; Y in any form that :func:`labelgap.observations.as_labels` takes.
    share : float, default=0.2
        The share of rows in the validation part.
    random_state : int, RandomState or None, default=None
        The seed of the split.

    Returns
    -------
    X_train, Y_train, X_valid, Y_valid
        The two parts; the labels are :class:`labelgap.Labels` with the same gaps as Y.

    Examples
    --------
    >>> X_train, Y_train, X_valid, Y_valid = hold_out_rows(np.eye(10), np.eye(10), 0.3, random_state=0)
    >>> len(X_train), len(Y_valid)
    (7, 3)
    """
    check_share(share)
    labels = as_labels(Y)
    X_train, X_valid, Y_train, Y_valid = train_test_split(X, labels, test_size=share, random_state=random_state)
    return X_train, Y_train, X_valid, Y_valid


class CellKFold:
    """Cross-validation over known cells: each cell is held out once.

    The cells of a row are in several folds, so that a model has to fill gaps, not to label new rows. To hold out
    rows, use scikit-learn's ``KFold``, which supports :class:`labelgap.Labels`.

    Parameters
    ----------
    n_splits : int, default=5
        Number of folds; their sizes differ by at most one cell.
    random_state : int, RandomState or None, default=None
        The seed of the folds.

    Examples
    --------
    >>> for train, held_out in CellKFold(2, random_state=0).split(np.array([[1, 0, np.nan], [0, 1, 1]])):
    ...     print(train.n_known, held_out.n_known)
    2 3
    3 2
    """

    def __init__(self, n_splits: int = 5, random_state: RandomSeed = None) -> None:
        self.n_splits = n_splits
        self.random_state = random_state

    def get_n_splits(self) -> int:
        """Return the number of folds."""
        return self.n_splits

    def split(self, Y: LabelsLike) -> Iterator[tuple[Labels, Labels]]:
        """Yield the training labels and the held-out labels of each fold."""
        labels = as_labels(Y)
        if not 2 <= self.n_splits <= labels.n_known:
            raise ValueError(
                f"n_splits={self.n_splits} is out of range; Y has {labels.n_known} known cells, "
                "so pass an integer from 2 to this number."
            )
        known = labels.known if labels.known is not None else sp.csr_array(np.ones(labels.shape, bool))
        fold = check_random_state(self.random_state).permutation(np.arange(known.nnz) % self.n_splits)
        for number in range(self.n_splits):
            yield _restrict(labels, known, fold != number), _restrict(labels, known, fold == number)


class Fold(NamedTuple):
    """Training and validation data; ``seen`` are the training positives of the validation rows.

    ``same_rows`` is whether the validation rows are the training rows, of which cells or positives are held out.
    """

    X_train: Any
    Y_train: Labels
    X_valid: Any
    Y_valid: Labels
    seen: sp.csr_array | None = None
    same_rows: bool = False

    def take(self, train: NDArray[np.int64], valid: NDArray[np.int64]) -> Fold:
        """Return the fold with fewer training rows and validation rows."""
        X_train = None if self.X_train is None else take_rows(self.X_train, train)
        X_valid = np.arange(len(valid)) if X_train is None else take_rows(self.X_valid, valid)
        seen = None if self.seen is None else self.seen[valid]
        return self._replace(
            X_train=X_train, Y_train=self.Y_train[train], X_valid=X_valid, Y_valid=self.Y_valid[valid], seen=seen
        )


def split_data(X: Any, labels: Labels, hold_out: str, share: float, random_state: Any) -> Fold:
    """Hold out a share of the rows, or a share of the known cells or of the positives of all rows."""
    check_share(share)
    if hold_out == "rows":
        if X is None:
            raise ValueError("hold_out='rows' needs the features of new rows; pass X, or hold_out='positives'.")
        return Fold(*hold_out_rows(X, labels, share, random_state))
    rows = np.arange(len(labels)) if X is None else X
    if hold_out == "cells":
        Y_train, Y_valid = hold_out_cells(labels, share, random_state=random_state)
        return Fold(X, Y_train, rows, Y_valid, same_rows=True)
    if hold_out == "positives":
        return _split_positives(X, rows, labels, share, random_state)
    raise ValueError(f"hold_out={hold_out!r} is not known; use 'rows', 'cells' or 'positives'.")


def _split_positives(X: Any, rows: Any, labels: Labels, share: float, random_state: Any) -> Fold:
    """Hold out positives; in the training labels they are absent, or unknown if Y has unknown cells."""
    train, held_out = hold_out_positives(labels, share, random_state=random_state)
    if held_out.nnz == 0:
        raise ValueError(
            f"share={share} of the {labels.positives.nnz} positives of Y is none, so there is nothing to validate "
            "on; raise share, or pass more positives."
        )
    known = None if labels.known is None else sp.csr_array(labels.known.astype(np.int8) - held_out.astype(np.int8))
    Y_train, Y_valid = Labels.of_patterns(train, known, labels.container), Labels.of_patterns(held_out)
    return Fold(X, Y_train, rows, Y_valid, train, same_rows=True)


def take_rows(X: Any, rows: NDArray[np.int64]) -> Any:
    """Return some rows of an array, a table or a list.

    >>> take_rows(["a", "b", "c"], np.array([0, 2]))
    ['a', 'c']
    """
    return [X[i] for i in rows] if isinstance(X, list) else X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def check_share(share: float) -> None:
    """Raise ValueError if a share leaves no training data or no validation data."""
    if not 0 < share < 1:
        raise ValueError(f"share={share} leaves one part empty; pass a number between 0 and 1, such as 0.2.")


def _restrict(labels: Labels, known: sp.csr_array, selected: NDArray[np.bool_]) -> Labels:
    cells = sp.csr_array((selected, known.indices, known.indptr), shape=known.shape)
    return Labels.of_patterns(labels.positives, cells, labels.container)
