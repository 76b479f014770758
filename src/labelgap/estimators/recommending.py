"""What a factor model offers as a recommender: rankings of unseen labels, similar labels, newcomers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from labelgap.estimators.factors import FactorEstimator
from labelgap.estimators.parameters import check_k
from labelgap.objectives.base import Ridge, Sum
from labelgap.objectives.cells import Weights
from labelgap.objectives.one_class import OneClass
from labelgap.observations import as_labels
from labelgap.runtime import threads
from labelgap.solvers import NewtonCG


class Recommender(FactorEstimator, ABC):
    """Recommends to the training rows, which are known by number, and to newcomers, known by their positives.

    A newcomer's factors minimise the same objective while the other side is held:

        min over b of Σ over its positives of ℓ(1, b·h_j) + Σ over the rest of p q_j · ½ (ā − b·h_j)² + (α/2) ‖b‖²

    with the mean of the training rows for p and α. Where only a share of the unlabelled cells was drawn in training,
    all of them count here, by that share. Features and graphs play no part in it: a newcomer is known by its
    positives alone, and the penalty is on its factors even where training had it on those of the features.
    """

    if TYPE_CHECKING:  # what a class declares, every model file must have; these depend on keep_rows
        row_factors_: NDArray
        seen_: sp.csr_array
        row_weights_: NDArray
    unlabelled_share_: float
    alpha: Any
    alpha_labels: Any

    @abstractmethod
    def _one_class(self, shape: tuple[int | None, int | None]) -> OneClass:
        """Return losses and weights for rows and labels of these numbers; one of None is not checked."""

    def recommend(self, users: Any, k: int = 10, *, exclude_seen: bool = True) -> tuple[NDArray, NDArray]:
        """Return the indices and scores of the k best labels for each user, two (users, k) arrays, best first.

        Parameters
        ----------
        users : array of int, or a sparse or dense matrix of shape (users, L)
            Numbers of training rows, or the positives of newcomers, who are folded in.
        k : int
            How many.
        exclude_seen : bool
            Leave out the labels that a user already has. Where fewer than k are left, the last have the score −∞.
        """
        check_is_fitted(self)
        check_k(k, self.n_labels_)
        with threads(self.n_jobs):
            factors, seen = self._users(users)
            kernels = self._kernels()
            hidden = kernels.prepare(seen, factors.dtype) if exclude_seen else None
            indices, scores = kernels.topk(factors, self.label_factors_, int(k), hidden)
        return indices, scores - scores.dtype.type(self.threshold_)

    def _users(self, users: Any) -> tuple[NDArray, sp.csr_array]:
        if sp.issparse(users) or np.ndim(users) == 2:
            positives = self._check_newcomers("users", users, self.n_labels_)
            return self.fold_in_rows(positives), positives
        ids = self._check_ids("users", users, len(self._kept_rows()))
        return self.row_factors_[ids], self.seen_[ids]

    def similar_labels(self, labels: Any, k: int = 10) -> tuple[NDArray, NDArray]:
        """Return the k labels most similar to each of the given ones, and the cosines of their factors.

        Factors are centred first: what all labels share, such as the low score of an unlabelled cell, says nothing
        about two of them. A label is not its own neighbour.
        """
        check_is_fitted(self)
        ids = self._check_ids("labels", labels, self.n_labels_)
        check_k(k, self.n_labels_ - 1)
        with threads(self.n_jobs):
            centred = self.label_factors_ - self.label_factors_.mean(0)
            length = np.linalg.norm(centred, axis=1, keepdims=True)
            unit = centred / np.where(length > 0, length, 1)
            kernels, itself = self._kernels(), sp.eye_array(self.n_labels_, format="csr")[ids]
            return kernels.topk(unit[ids], unit, int(k), kernels.prepare(itself, unit.dtype))

    similar_items = similar_labels

    def fold_in_rows(self, positives: Any) -> NDArray:
        """Return the factors of new rows from their positives, shape (rows, L), without training again."""
        check_is_fitted(self)
        positives = self._check_newcomers("positives", positives, self.n_labels_)
        p, q = self._one_class((None, self.n_labels_)).weights
        weights = Weights.of(float(np.mean(p)) * self.unlabelled_share_, q)
        return self._fold_in(positives, self.label_factors_, weights, Weights(), self.alpha)

    def fold_in_labels(self, positives: Any) -> NDArray:
        """Return the factors of new labels from the training rows that have them, shape (labels, n)."""
        check_is_fitted(self)
        rows = self._kept_rows()
        positives = self._check_newcomers("positives", positives, len(rows))
        p, q = self._one_class((len(rows), None)).weights
        weights = Weights.of(float(np.mean(q)) * self.unlabelled_share_, p)
        alpha = self.alpha if self.alpha_labels is None else self.alpha_labels
        importance = Weights(1.0, self.row_weights_[:, None]) if hasattr(self, "row_weights_") else Weights()
        return self._fold_in(positives, rows, weights, importance, alpha)

    def _fold_in(
        self, positives: sp.csr_array, H: NDArray, weights: Weights, importance: Weights, alpha: Any
    ) -> NDArray:
        start = np.zeros((positives.shape[0], H.shape[1]), H.dtype)
        if not len(start):
            return start
        one_class = replace(self._one_class((None, None)), weights=weights, importance=importance)
        with threads(self.n_jobs):
            data = one_class.cells(positives, self._kernels(), H.dtype.type).given(H)
            return NewtonCG(tol=1e-4).minimize(Sum([data, Ridge(float(np.mean(alpha)))]), start).x

    def _kept_rows(self) -> NDArray:
        if not hasattr(self, "row_factors_"):
            raise ValueError(
                f"This {type(self).__name__} did not keep its training rows; fit it with keep_rows=True, or pass the "
                "positives of each user as a matrix."
            )
        return self.row_factors_

    @staticmethod
    def _check_newcomers(name: str, positives: Any, width: int) -> sp.csr_array:
        pattern = as_labels(positives).positives
        if pattern.shape[1] != width:
            raise ValueError(f"{name} has {pattern.shape[1]} columns; pass one for each of the {width} in fit.")
        return pattern

    @staticmethod
    def _check_ids(name: str, values: Any, size: int) -> NDArray:
        """Return numbers of rows or labels; refuse what is no integer or was not in fit."""
        ids = np.atleast_1d(np.asarray(values))
        ids = ids.astype(np.intp) if ids.size == 0 else ids
        if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
            raise ValueError(
                f"{name} holds values of type {ids.dtype} and shape {ids.shape}; pass a list of integers."
            )
        outside = ids[(ids < 0) | (ids >= size)]
        if outside.size:
            raise ValueError(f"{name} holds {outside[0]}, which fit never saw; pass numbers from 0 to {size - 1}.")
        return ids
