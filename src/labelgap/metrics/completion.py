"""How well hidden cells of labels and of features were completed."""

from __future__ import annotations

from typing import Any

import numpy as np

from labelgap.metrics.classification import hamming_loss
from labelgap.observations import Labels, as_labels


def label_error(Y_true: Any, predicted: Any, hidden: Any = None) -> float:
    """Return the percentage of hidden labels that are predicted wrongly.

    The transductive label error of Goldberg et al. (2010); NaN where no hidden label is known to Y_true.

    Parameters
    ----------
    Y_true : array-like, sparse matrix or Labels of shape (n, L)
        The labels, in any form that ``fit`` takes.
    predicted : array-like or sparse matrix of shape (n, L)
        Predicted labels, or decision values: above 0 is a yes.
    hidden : array-like or sparse matrix of bool, shape (n, L), optional
        True where the label was not given to ``fit``; by default every known cell of Y_true counts.

    >>> label_error([[1, 0], [0, 1]], [[1, 1], [0, 1]], hidden=[[False, True], [True, False]])
    50.0
    """
    labels = as_labels(Y_true)
    return 100 * hamming_loss(labels if hidden is None else Labels(labels, observed=hidden), predicted)


def imputation_error(X_true: Any, X_filled: Any, hidden: Any, *, squared: bool = False) -> float:
    """Return √(Σ (x − x̂)² / Σ x²) over hidden cells: 0 for perfect imputation, 1 for zeros.

    This is what the tables of relative feature imputation error in Goldberg et al. (2010) hold; its text has the
    formula without the root, which is ``squared=True``. NaN where every hidden x is 0, or nothing is hidden.

    Parameters
    ----------
    X_true, X_filled : array-like of shape (n, d)
        x and x̂; only hidden cells are looked at.
    hidden : array-like of bool, shape (n, d)
        True where the feature was not given to ``fit``.
    squared : bool
        Leave the root out.

    >>> imputation_error([[3.0, 4.0]], [[0.0, 4.0]], [[True, True]])
    0.6
    """
    arrays = {"X_true": np.asarray(X_true, float), "X_filled": np.asarray(X_filled, float)}
    mask = np.asarray(hidden)
    if mask.dtype != bool:
        raise ValueError(f"hidden holds {mask.dtype} values; pass booleans, True where the feature was hidden.")
    for name, array in arrays.items():
        if array.shape != mask.shape:
            raise ValueError(f"{name} has shape {array.shape} and hidden has {mask.shape}; they must be equal.")
        if not np.isfinite(array[mask]).all():
            raise ValueError(f"{name} has a hidden cell that is not finite; pass a number for each hidden cell.")
    true, filled = (array[mask] for array in arrays.values())
    size = float(np.square(true).sum())
    ratio = float(np.square(true - filled).sum()) / size if size > 0 else float("nan")
    return ratio if squared else float(np.sqrt(ratio))
