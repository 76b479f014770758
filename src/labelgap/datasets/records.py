"""What readers return, and the form that matrices have in files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Matrix: TypeAlias = "sp.csr_array | NDArray[Any]"


class Table(NamedTuple):
    """The content of a file: features n×d, labels n×L, and their names if the format has them."""

    X: Matrix
    Y: Matrix
    feature_names: list[str] | None = None
    label_names: list[str] | None = None


@dataclass(frozen=True)
class Dataset:
    """A named multi-label dataset with its split.

    Attributes
    ----------
    name : str
        Name in the registry.
    X_train, X_test : csr_array or ndarray of float32, shape (n, d)
        Sparse for sparse datasets, dense for dense ones; ``X_test`` is ``None`` if the source has no split.
    Y_train, Y_test : csr_array of float32, shape (n, L)
        1 for each positive label; a dense array with NaN if the source marks labels as unknown.
    feature_names, label_names : list of str, or None
        The names in the source.

    Examples
    --------
    >>> Dataset("tiny", np.eye(3), sp.csr_array(np.ones((3, 2))))
    Dataset('tiny', 3 train, no test, 3 features, 2 labels)
    """

    name: str
    X_train: Matrix
    Y_train: Matrix
    X_test: Matrix | None = None
    Y_test: Matrix | None = None
    feature_names: list[str] | None = None
    label_names: list[str] | None = None

    @property
    def n_features(self) -> int:
        """The number of columns of X."""
        return int(self.X_train.shape[1])

    @property
    def n_labels(self) -> int:
        """The number of columns of Y."""
        return int(self.Y_train.shape[1])

    def __repr__(self) -> str:
        test = "no" if self.X_test is None else self.X_test.shape[0]
        return (
            f"Dataset({self.name!r}, {self.X_train.shape[0]} train, {test} test, "
            f"{self.n_features} features, {self.n_labels} labels)"
        )


def to_canonical_csr(matrix: Any, dtype: Any = None) -> sp.csr_array:
    """Return a CSR copy with sorted indices, 32-bit if they fit, and no duplicates; stored zeros stay.

    >>> to_canonical_csr(sp.coo_array(([1.0, 2.0], ([0, 0], [1, 0])))).indices
    array([0, 1], dtype=int32)
    """
    csr = sp.csr_array(matrix, dtype=dtype, copy=True)
    csr.sum_duplicates()
    if max(csr.nnz, csr.shape[1]) <= np.iinfo(np.int32).max:
        csr.indices, csr.indptr = csr.indices.astype(np.int32), csr.indptr.astype(np.int32)
    return csr


def check_pair(X: Any, Y: Any) -> None:
    """Raise ValueError unless X and Y are matrices with the same number of rows."""
    for name, matrix in (("X", X), ("Y", Y)):
        if len(np.shape(matrix)) != 2:
            raise ValueError(f"{name} has shape {np.shape(matrix)}; pass a matrix with one row per sample.")
    if X.shape[0] != Y.shape[0]:
        raise ValueError(f"X has {X.shape[0]} rows and Y has {Y.shape[0]}; pass the same samples in both.")


def check_names(argument: str, names: Any, n_columns: int) -> None:
    """Raise ValueError if there are names, but not one per column."""
    if names is not None and len(names) != n_columns:
        raise ValueError(f"{argument} has {len(names)} names, but there are {n_columns} columns.")


def to_positives(Y: Any) -> sp.csr_array:
    """Return the pattern of ones of a complete 0/1 label matrix; raise ValueError for other values.

    >>> to_positives(np.array([[0, 1], [0, 0]])).nnz
    1
    """
    csr = to_canonical_csr(Y)
    csr.eliminate_zeros()
    wrong = csr.data[csr.data != 1]
    if wrong.size:
        raise ValueError(f"Y contains {wrong[0]}; this format only stores complete 0/1 labels.")
    return sp.csr_array((np.ones(csr.nnz, np.float32), csr.indices, csr.indptr), shape=csr.shape)
