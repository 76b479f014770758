"""Labels with three states: positive, negative, unknown.

================================================  =============================================================
the user passes                                   meaning
================================================  =============================================================
sparse or dense 0/1, bool, or −1/+1               everything observed: absent is negative
dense with NaN                                    NaN is unknown
``Labels(Y, observed=mask)``                      cells outside the mask are unknown, whatever ``Y`` holds there
sparse and ``absent="unknown"``                   stored cells are observed (0 or −1 negative), all others unknown
anything, to a one-class estimator                positives known, all others unlabelled
================================================  =============================================================

Inside there are two index structures, the positives and the known cells, because a stored zero does not survive
ordinary sparse arithmetic. No n×L array is made here unless the user brought one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.observations.reading import (
    Absent,
    Container,
    as_pattern,
    csr_of,
    member,
    read_dense,
    read_mask,
    read_sparse,
    unless_full,
)


class Labels:
    """An n×L matrix of labels that may have gaps.

    Parameters
    ----------
    Y : array-like or sparse matrix of shape (n, L)
        0/1, bool or −1/+1; NaN in a dense matrix is unknown.
    observed : array-like or sparse matrix of shape (n, L), optional
        True where the label is known. Outside it ``Y`` is not looked at.
    absent : {"negative", "unknown"}
        What a cell that a sparse ``Y`` does not store means; with ``observed`` the mask alone decides.

    Attributes
    ----------
    positives : csr_array of bool
        The known positives.
    known : csr_array of bool, or None
        The known cells; ``None`` when all of them are, which costs nothing.
    container : Container
        How ``Y`` was written.

    Examples
    --------
    >>> import numpy as np
    >>> labels = Labels(np.array([[1, 0, np.nan], [0, 1, 1]]))
    >>> labels
    Labels(2 × 3, 3 positive, 2 negative, 1 unknown)
    >>> labels[1:].toarray()
    array([[0., 1., 1.]])
    >>> Labels([[1, 0], [0, 1]], observed=[[True, True], [False, True]]).toarray()
    array([[ 1.,  0.],
           [nan,  1.]])
    """

    positives: sp.csr_array
    known: sp.csr_array | None
    container: Container

    def __init__(self, Y: Any, observed: Any = None, *, absent: Absent = "negative") -> None:
        if absent not in ("negative", "unknown"):
            raise ValueError(f"absent={absent!r} is not understood; use 'negative' or 'unknown'.")
        if isinstance(Y, Labels):
            self.positives, self.known, self.container = _narrow(Y, observed)
        elif sp.issparse(Y):
            self.positives, self.known, self.container = read_sparse(Y, observed, absent)
        else:
            self.positives, self.known, self.container = read_dense(Y, observed)

    @classmethod
    def of_patterns(
        cls, positives: sp.csr_array, known: sp.csr_array | None = None, container: Container | None = None
    ) -> Labels:
        """Build labels from their two index structures; positives outside ``known`` are dropped."""
        self = object.__new__(cls)
        self.positives = as_pattern(positives)
        self.known = None if known is None else unless_full(as_pattern(known))
        if self.known is not None:
            self.positives = as_pattern(self.positives.multiply(self.known))
        self.container = container or Container(sparse=True)
        return self

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and labels."""
        return self.positives.shape

    @property
    def ndim(self) -> int:
        """Always 2."""
        return 2

    @property
    def complete(self) -> bool:
        """True when every cell is known."""
        return self.known is None

    @property
    def n_known(self) -> int:
        """The number of known cells."""
        return self.shape[0] * self.shape[1] if self.known is None else self.known.nnz

    @property
    def rates(self) -> NDArray[np.float64]:
        """The share of positives among the known cells of each label; 0 where none is known.

        >>> Labels(np.array([[1.0, 0.0], [np.nan, 1.0]])).rates
        array([1. , 0.5])
        """
        known = len(self) if self.known is None else np.bincount(self.known.indices, minlength=self.shape[1])
        return np.bincount(self.positives.indices, minlength=self.shape[1]) / np.maximum(known, 1)

    @property
    def T(self) -> Labels:
        """The same cells with rows and labels exchanged."""
        known = None if self.known is None else sp.csr_array(self.known.T)
        return Labels.of_patterns(sp.csr_array(self.positives.T), known, self.container)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Labels:
        if isinstance(rows, tuple) and rows:
            rows, *rest = rows
            if not all(part is Ellipsis or (isinstance(part, slice) and part == slice(None)) for part in rest):
                raise IndexError("Labels are indexed by rows only; write labels[rows].")
        index = np.atleast_1d(np.arange(len(self))[rows])
        if index.ndim != 1:
            raise IndexError(f"Labels are indexed by rows only, and the index has {index.ndim} dimensions.")
        part = object.__new__(Labels)
        part.positives = self.positives[index]
        part.known = None if self.known is None else unless_full(self.known[index])
        part.container = self.container
        return part

    def __repr__(self) -> str:
        n, L = self.shape
        negative = self.n_known - self.positives.nnz
        return (
            f"Labels({n} × {L}, {self.positives.nnz} positive, {negative} negative, {n * L - self.n_known} unknown)"
        )

    def toarray(self) -> NDArray[np.float64]:
        """Return a dense n×L array of 0, 1 and NaN: for small data and for looking."""
        dense = self.positives.toarray().astype(float)
        if self.known is not None:
            dense[~self.known.toarray()] = np.nan
        return dense

    def encode(self, negative: float, positive: float, dtype: Any = np.float64) -> sp.csr_array:
        """Return the known cells as a sparse matrix whose stored values are the targets that a loss wants.

        Stored zeros are kept: the pattern is Ω, not the non-zeros. With every cell known that is n×L values, so
        callers treat complete labels by other means.

        >>> Labels(np.array([[1, np.nan], [0, 1]])).encode(-1, 1).data
        array([ 1., -1.,  1.])
        """
        if self.known is None:
            n, L = self.shape
            targets = np.full((n, L), negative, dtype)
            targets[self.positives.nonzero()] = positive
            index = np.tile(np.arange(L, dtype=np.int32), n)
            return csr_of(targets.ravel(), index, np.arange(n + 1) * L, (n, L))
        known = self.known
        is_positive = member(known, self.positives)
        data = np.where(is_positive, positive, negative).astype(dtype)
        return csr_of(data, known.indices, known.indptr, known.shape)


def as_labels(Y: Any, observed: Any = None, absent: Absent = "negative") -> Labels:
    """Turn whatever a user passed as labels into :class:`Labels`; labels pass through unchanged.

    >>> as_labels([[1, 0]])
    Labels(1 × 2, 1 positive, 1 negative, 0 unknown)
    """
    if isinstance(Y, Labels) and observed is None:
        return Y
    return Labels(Y, observed, absent=absent)


def _narrow(labels: Labels, observed: Any) -> tuple[sp.csr_array, sp.csr_array | None, Container]:
    if observed is None:
        return labels.positives, labels.known, labels.container
    mask = read_mask(observed, labels.shape)
    if mask is not None and labels.known is not None:
        mask = as_pattern(mask.multiply(labels.known))
    narrowed = Labels.of_patterns(labels.positives, mask if mask is not None else labels.known)
    return narrowed.positives, narrowed.known, labels.container
