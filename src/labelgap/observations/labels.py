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

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Absent = Literal["negative", "unknown"]
_BINARIZER = "sklearn.preprocessing.MultiLabelBinarizer turns sets of tags into 0/1."


@dataclass(frozen=True)
class Container:
    """How the user wrote labels, so that predictions can be given back the same way.

    Attributes
    ----------
    sparse : bool
        True for a sparse matrix.
    dtype : str
        The type of its values.
    negative : float
        What stands for "no": 0, or −1 in a dense −1/+1 matrix.
    """

    sparse: bool = False
    dtype: str = "int64"
    negative: float = 0.0

    def pack(self, positives: sp.csr_array) -> sp.csr_array | NDArray:
        """Write a pattern of positives the way the user wrote labels.

        >>> Container(negative=-1.0).pack(sp.csr_array(np.array([[1, 0]])))
        array([[ 1, -1]])
        """
        if self.sparse:
            return sp.csr_array(positives, dtype=self.dtype)
        dense = positives.toarray().astype(self.dtype)
        return dense if self.negative == 0 else np.where(dense != 0, dense, dense.dtype.type(self.negative))


class Reading(NamedTuple):
    """The known positives, the known cells (None when all are), and how they were written."""

    positives: sp.csr_array
    known: sp.csr_array | None
    container: Container


def read_mask(observed: Any, shape: tuple[int, int]) -> sp.csr_array | None:
    """Return the cells that a mask says are known, or None if it says so of all."""
    mask = observed if sp.issparse(observed) else np.asarray(observed)
    if tuple(mask.shape) != tuple(shape):
        raise ValueError(
            f"observed has shape {tuple(mask.shape)} and Y has {tuple(shape)}; pass one flag for each cell of Y."
        )
    if mask.dtype.kind not in "biuf" or np.isnan(sp.csr_array(mask).data if sp.issparse(mask) else mask).any():
        raise ValueError(
            f"observed holds {mask.dtype} values that are no flags; pass booleans, True where the label is known."
        )
    return unless_full(as_pattern(mask))


def read_dense(Y: Any, observed: Any) -> Reading:
    """Read a dense matrix, in which NaN is unknown."""
    dense = _numeric(_array(Y))
    _check_two_dimensional(dense)
    signed = dense.astype(np.int8) if dense.dtype == bool else dense
    missing = np.isnan(signed) if signed.dtype.kind == "f" else np.zeros(signed.shape, bool)
    if observed is None:
        known, given = unless_full(as_pattern(~missing)) if missing.any() else None, ~missing
    else:
        known = read_mask(observed, dense.shape)
        given = np.ones(dense.shape, bool) if known is None else known.toarray()
        _check_given(missing & given)
    cells = np.flatnonzero(given)
    negative = _check_values(signed.ravel()[cells], lambda c: np.unravel_index(cells[c], dense.shape))
    return Reading(as_pattern((signed == 1) & given), known, Container(False, dense.dtype.name, negative))


def read_sparse(Y: Any, observed: Any, absent: Absent) -> Reading:
    """Read a sparse matrix, in which a cell that is not stored is what ``absent`` says.

    With ``observed`` the mask alone says what is known, and a known cell that is not stored is negative.
    """
    _check_two_dimensional(Y)
    stored_are_known = absent == "unknown" and observed is None
    if stored_are_known and Y.format in ("bsr", "dia"):
        raise ValueError(
            f"Y is a {Y.format} matrix, which stores zeros that fill its blocks, so absent='unknown' cannot tell "
            "them from known negatives; pass a CSR or COO matrix that stores the known cells."
        )
    csr = sp.csr_array(Y, copy=True)
    csr.sum_duplicates()
    csr.data = _numeric(csr.data)
    if csr.data.dtype == bool:
        csr.data = csr.data.astype(np.int8)
    known = None if observed is None else read_mask(observed, csr.shape)
    if known is not None:
        csr = restrict(csr, known)
    if stored_are_known:
        csr = keep(csr, ~np.isnan(csr.data))
        known = unless_full(csr_of(np.ones(csr.nnz, bool), csr.indices, csr.indptr, csr.shape))
    _check_stored(csr, csr.shape[0] * csr.shape[1] if known is None else known.nnz)
    return Reading(as_pattern(keep(csr, csr.data == 1)), known, Container(True, Y.dtype.name))


def _array(Y: Any) -> NDArray:
    try:
        return np.asarray(Y)
    except ValueError as error:
        raise ValueError(f"Y is no matrix: its rows differ in length. {_BINARIZER}") from error


def _numeric(values: NDArray) -> NDArray:
    """Return numbers as they are and objects as numbers (None is NaN); refuse everything else."""
    if values.dtype.kind in "biuf":
        return values
    try:
        if values.dtype.kind != "O" or any(isinstance(value, str | bytes) for value in values.ravel()):
            raise ValueError("text or dates")
        return values.astype(float)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"Y holds {values.dtype} values that are not numbers ({error}); labels must be 0/1, bool or −1/+1. "
            f"{_BINARIZER}"
        ) from error


def _check_two_dimensional(Y: Any) -> None:
    if Y.ndim != 2:
        raise ValueError(
            f"Y must have two dimensions, rows × labels, and has {Y.ndim}; for a single label pass y.reshape(-1, 1)."
        )


def _check_given(wrong: NDArray[np.bool_]) -> None:
    if wrong.any():
        row, label = np.argwhere(wrong)[0]
        raise ValueError(
            f"observed says that row {row}, label {label} is known, but Y is NaN there; "
            "clear the flag or fill the value."
        )


def _check_stored(csr: sp.csr_array, n_known: int) -> None:
    """Refuse stored values that are no labels, and −1 beside known cells that are not stored."""
    if csr.data.dtype.kind == "f" and np.isnan(csr.data).any():
        raise ValueError(
            "Y is sparse and stores NaN in a known cell; leave unknown cells out and pass absent='unknown', "
            "or name the known ones with observed=."
        )
    rows = rows_of(csr)
    if _check_values(csr.data, lambda c: (rows[c], csr.indices[c])) == -1 and csr.nnz < n_known:
        raise ValueError(
            "Y is sparse, stores −1 and leaves known cells out: if those are unknown, pass absent='unknown' and no "
            "observed=; if they are negative, store only the positives."
        )


def _check_values(values: NDArray, where: Callable[[int], Any]) -> float:
    """Refuse anything that is not 0/1 or −1/+1, and return what stands for "no" (0 or −1)."""
    wrong = (values != 0) & (values != 1) & (values != -1)
    if wrong.any():
        first = int(np.argmax(wrong))
        row, label = where(first)
        raise ValueError(
            f"Y holds {values[first].item()!r} at row {row}, label {label}; labels must be 0/1, bool or −1/+1, "
            "with NaN (or observed=) for unknown ones. "
            f"Unknown label type: a class index or a number is not a set of labels; {_BINARIZER}"
        )
    has_minus, has_zero = bool((values == -1).any()), bool((values == 0).any())
    if has_minus and has_zero:
        raise ValueError(
            "Y mixes 0 and −1, so it is unclear which of them means negative and which unknown; "
            "write negatives one way, and unknown cells as NaN or with observed=."
        )
    return -1.0 if has_minus else 0.0


def csr_of(data: NDArray, indices: NDArray, indptr: NDArray, shape: tuple[int, int]) -> sp.csr_array:
    """Return a CSR matrix with 32-bit indices where they fit: half the memory, and one kernel to compile.

    >>> csr_of(np.ones(1), np.array([1]), np.array([0, 1]), (1, 2)).indices.dtype
    dtype('int32')
    """
    kind = np.int32 if max(*shape, len(indices)) <= np.iinfo(np.int32).max else np.int64
    return sp.csr_array((data, indices.astype(kind, copy=False), indptr.astype(kind, copy=False)), shape=shape)


def as_pattern(matrix: Any) -> sp.csr_array:
    """Return the non-zero cells of a matrix, which stays as it is.

    >>> as_pattern(np.array([[0, 3]])).toarray()
    array([[False,  True]])
    """
    csr = sp.csr_array(matrix, copy=True)
    csr.sum_duplicates()
    csr.eliminate_zeros()
    return csr_of(np.ones(csr.nnz, bool), csr.indices, csr.indptr, csr.shape)


def unless_full(pattern: sp.csr_array) -> sp.csr_array | None:
    """Return the pattern, or None if it holds every cell."""
    return None if pattern.nnz == pattern.shape[0] * pattern.shape[1] else pattern


def rows_of(pattern: sp.csr_array) -> NDArray[np.int64]:
    """Return the row of each stored cell."""
    return np.repeat(np.arange(pattern.shape[0], dtype=np.int64), np.diff(pattern.indptr))


def cell_keys(pattern: sp.csr_array) -> NDArray[np.int64]:
    """Number the cells row by row and return the numbers of the stored ones, ascending."""
    return rows_of(pattern) * pattern.shape[1] + pattern.indices


def member(cells: sp.csr_array, subset: sp.csr_array) -> NDArray[np.bool_]:
    """Tell for each stored cell of a canonical pattern whether it is in ``subset``, itself a part of it."""
    flags = np.zeros(cells.nnz, bool)
    flags[np.searchsorted(cell_keys(cells), cell_keys(subset))] = True
    return flags


def keep(csr: sp.csr_array, flags: NDArray[np.bool_]) -> sp.csr_array:
    """Return the stored cells with a flag, zeros among them too."""
    counts = np.concatenate([[0], np.cumsum(flags)])
    return csr_of(csr.data[flags], csr.indices[flags], counts[csr.indptr], csr.shape)


def restrict(csr: sp.csr_array, known: sp.csr_array) -> sp.csr_array:
    """Return the stored cells that are in ``known``, zeros among them too."""
    return keep(csr, np.isin(cell_keys(csr), cell_keys(known), assume_unique=True))


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
