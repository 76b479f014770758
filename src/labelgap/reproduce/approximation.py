"""How much of a label matrix is lost in k dimensions (SLEEC, figure 1a)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from labelgap.datasets import Dataset
from labelgap.estimators import SLEEC, LabelKNN
from labelgap.observations import as_labels
from labelgap.reproduce.records import Row, Setting
from labelgap.reproduce.sleec_methods import RELEASED
from labelgap.reproduce.study import Study
from labelgap.runtime import wide_blas

STEPS = 50


def relative_errors(experiment: str, settings: Sequence[Setting], study: Study) -> Iterator[Row]:
    """Yield the error of each setting in percent; settings that differ in k alone follow each other."""
    for (name, method), group in groupby(settings, lambda setting: (setting.dataset, setting.method)):
        curve = [setting for setting in group if study.options.keeps(setting)]
        data = study.dataset(name) if curve else None
        if isinstance(data, Dataset):
            study.tell(f"{name}, {method}: the errors of {len(curve)} dimensions …")
            found = [CURVES[method](data, curve, seed) for seed in range(study.options.seeds)]
            for setting, values in zip(curve, zip(*found, strict=True), strict=True):
                yield Row(experiment, setting, "error, %", values=tuple(100 * float(value) for value in values))


def svd_errors(Y: Any, parts: Sequence[NDArray], ranks: Sequence[int]) -> NDArray[np.float64]:
    """Return Σ_c ‖Y_c − Y_c,k‖² / ‖Y‖² for each rank k, with Y_c,k the SVD of the rows of part c, cut off at k.

    >>> Y = sp.csr_array(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))
    >>> svd_errors(Y, [np.arange(3)], [1, 2]).round(6)
    array([0.333333, 0.      ])
    >>> svd_errors(Y, [np.array([0, 1]), np.array([2])], [1])
    array([0.])
    """
    lost = np.zeros(len(ranks))
    for rows in parts:
        squares = _squared_singular_values(Y[rows])
        kept = np.concatenate([[0.0], np.cumsum(squares)])
        lost += kept[-1] - kept[np.minimum(ranks, len(squares))]
    return np.maximum(lost, 0) / Y.multiply(Y).sum()


def _squared_singular_values(Y: sp.csr_array) -> NDArray[np.float64]:
    """Return all σ² in falling order, from the smaller of Y Yᵀ and Yᵀ Y; absent labels add only zeros."""
    Y = Y[:, np.unique(Y.indices)]
    gram = (Y @ Y.T if Y.shape[0] < Y.shape[1] else Y.T @ Y).toarray()
    with wide_blas():
        return np.maximum(np.linalg.eigvalsh(gram)[::-1], 0)


def _global_svd(data: Dataset, curve: list[Setting], seed: int) -> NDArray[np.float64]:
    return svd_errors(_matrix(data), [np.arange(data.X_train.shape[0])], _dimensions(curve))


def _local_svd(data: Dataset, curve: list[Setting], seed: int) -> NDArray[np.float64]:
    """Clusters depend on the rows and the seed alone: those of a kNN are those of SLEEC."""
    learner = LabelKNN(n_clusters=curve[0].clusters, random_state=seed).fit(data.X_train, data.Y_train)
    return svd_errors(_matrix(data), [part["rows"] for part in learner.parts_[0]], _dimensions(curve))


def _sleec(data: Dataset, curve: list[Setting], seed: int) -> NDArray[np.float64]:
    """Return ‖P_Ω(Y Yᵀ − Z Zᵀ)‖² / ‖P_Ω(Y Yᵀ)‖² over all clusters, where the fits stop; Y is 0/1, as in the SVDs."""
    kept = RELEASED[curve[0].dataset]["n_neighbors_embed"]
    model = SLEEC(n_clusters=curve[0].clusters, n_learners=1, n_neighbors_embed=kept, label_norm=None, max_iter=STEPS)
    errors = []
    for k in _dimensions(curve):
        with warnings.catch_warnings():
            # Where the dimensions suffice, the error falls by a constant factor, and no step is the last one.
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.set_params(n_components=k, random_state=seed).fit(data.X_train, data.Y_train)
        first, last = (sum(steps[place] for steps in model.objective_) for place in (0, -1))
        errors.append(last / first)
    return np.array(errors)


def _dimensions(curve: list[Setting]) -> list[int]:
    return [setting.k for setting in curve if setting.k is not None]


def _matrix(data: Dataset) -> sp.csr_array:
    return as_labels(data.Y_train).positives.astype(np.float64)


CURVES: dict[str, Callable[[Dataset, list[Setting], int], NDArray[np.float64]]] = {
    "global SVD": _global_svd,
    "local SVD": _local_svd,
    "SLEEC": _sleec,
}
