"""What a one-class fit works on, validated and bound to kernels."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp

from labelgap.estimators.parameters import check_number, check_weights
from labelgap.objectives.cells import Weights
from labelgap.objectives.graph import check_graph
from labelgap.observations import Labels
from labelgap.solvers.base import LinearMap

ROUNDING = 1e-6  # by which the two weights of an edge may differ, as a share of the largest


@dataclass(frozen=True)
class Material:
    """Validated data bound to their kernels: what several fits of the same rows can share."""

    labels: Labels
    left: LinearMap
    right: LinearMap
    row_graph: sp.csr_array | None = None
    label_graph: sp.csr_array | None = None
    importance: Weights = field(default_factory=Weights)


def check_pair_of_weights(name: str, given: Any, shape: tuple[int | None, int | None]) -> Weights:
    """Return the weight of each row and each label, or say what is wrong with them; a size of None is not checked."""
    if not (isinstance(given, list | tuple) or np.ndim(given) > 0):
        check_number(name, given, Real, least=0)
        return Weights.of(1.0, float(given))
    if len(given) != 2:
        raise ValueError(f"{name} has {len(given)} parts; pass a number, or the pair of arrays p and q.")
    return Weights.of(*(_weight(f"{name}[{i}]", given[i], shape[i]) for i in range(2)))


def _weight(name: str, value: Any, size: int | None) -> Any:
    """Return a weight as a number or a column; refuse one that is negative, infinite or not of that length."""
    if np.ndim(value) == 0:
        check_number(name, value, Real, least=0)
        return float(value)
    return check_weights(name, value, len(value) if size is None else size)[:, None]


def check_symmetric(name: str, graph: Any, size: int) -> sp.csr_array | None:
    """Return a valid symmetric graph: that of the mean weights, and a warning, where two directions differ."""
    if graph is None:
        return None
    matrix = check_graph(name, graph, size)
    if abs(matrix - matrix.T).max() <= ROUNDING * matrix.max():
        return matrix
    warnings.warn(
        f"{name} is directed; each pair of nodes gets the mean of its two weights, (S + Sᵀ)/2.",
        UserWarning,
        stacklevel=5,
    )
    return sp.csr_array((matrix + matrix.T) / 2)
