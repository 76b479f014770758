"""What a factor model offers as a recommender: rankings of unseen labels, similar labels, factors of newcomers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.kernels import Backend
from labelgap.objectives.base import Ridge, Sum
from labelgap.objectives.cells import Weights
from labelgap.objectives.one_class import OneClass
from labelgap.observations import as_labels
from labelgap.solvers import NewtonCG


def fold_in(
    positives: sp.csr_array,
    H: NDArray,
    one_class: OneClass,
    weights: Weights,
    alpha: Any,
    kernels: Backend,
    importance: Weights | None = None,
) -> NDArray:
    """Return the factors of newcomers from their positives, while the other side's factors H are held.

        min over b of Σ over its positives of ℓ(1, b·h_j) + Σ over the rest of p q_j · ½ (ā − b·h_j)² + (α/2) ‖b‖²

    Features and graphs play no part in it: a newcomer is known by its positives alone, and the penalty is on its
    factors even where training had it on those of the features.
    """
    first = np.zeros((positives.shape[0], H.shape[1]), H.dtype)
    if not len(first):
        return first
    one_class = replace(one_class, weights=weights, importance=Weights() if importance is None else importance)
    data = one_class.cells(positives, kernels, H.dtype.type).given(H)
    return NewtonCG(tol=1e-4).minimize(Sum([data, Ridge(float(np.mean(alpha)))]), first).x


def similar(H: NDArray, ids: NDArray, k: int, kernels: Backend) -> tuple[NDArray, NDArray]:
    """Return the k rows of H most similar to each of the given ones, and the cosines.

    Factors are centred first: what all labels share, such as the low score of an unlabelled cell, says nothing about
    two of them. A label is not its own neighbour.
    """
    centred = H - H.mean(0)
    length = np.linalg.norm(centred, axis=1, keepdims=True)
    unit = centred / np.where(length > 0, length, 1)
    itself = sp.eye_array(len(H), format="csr")[ids]
    return kernels.topk(unit[ids], unit, k, kernels.prepare(itself, unit.dtype))


def kept_rows(model: Any) -> NDArray:
    """Return the factors of the training rows, or say that the model did not keep them."""
    if not hasattr(model, "row_factors_"):
        raise ValueError(
            f"This {type(model).__name__} did not keep its training rows; fit it with keep_rows=True, or pass the "
            "positives of each user as a matrix."
        )
    return model.row_factors_


def check_newcomers(name: str, positives: Any, width: int) -> sp.csr_array:
    """Return positives of newcomers as a pattern of so many columns."""
    pattern = as_labels(positives).positives
    if pattern.shape[1] != width:
        raise ValueError(f"{name} has {pattern.shape[1]} columns; pass one for each of the {width} in fit.")
    return pattern


def check_ids(name: str, values: Any, size: int) -> NDArray:
    """Return numbers of rows or labels; refuse what is no integer or was not in fit."""
    ids = np.atleast_1d(np.asarray(values))
    ids = ids.astype(np.intp) if ids.size == 0 else ids
    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
        raise ValueError(f"{name} holds values of type {ids.dtype} and shape {ids.shape}; pass a list of integers.")
    outside = ids[(ids < 0) | (ids >= size)]
    if outside.size:
        raise ValueError(f"{name} holds {outside[0]}, which fit never saw; pass numbers from 0 to {size - 1}.")
    return ids
