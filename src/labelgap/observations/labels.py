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
ordinary sparse arithmetic. Nothing here makes an n×L array unless the user brought one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

Absent = Literal["negative", "unknown"]


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


class Labels:
    """An n×L matrix of labels that may have gaps.

    Parameters
    ----------
    Y : array-like or sparse matrix of shape (n, L)
        0/1, bool or −1/+1; NaN in a dense matrix is unknown.
    observed : array-like or sparse matrix of shape (n, L), optional
        True where the label is known. Outside it ``Y`` is not looked at.
    absent : {"negative", "unknown"}
        What a cell that a sparse ``Y`` does not store means.

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
            self.positives, self.known, self.container = _read_sparse(Y, observed, absent)
        else:
            self.positives, self.known, self.container = _read_dense(Y, observed)

    @classmethod
    def of_patterns(
        cls, positives: sp.csr_array, known: sp.csr_array | None = None, container: Container | None = None
    ) -> Labels:
        """Build labels from their two index structures; positives outside ``known`` are dropped."""
        self = object.__new__(cls)
        self.positives = _pattern(positives)
        self.known = None if known is None else _pattern(known)
        if self.known is not None:
            self.positives = _pattern(self.positives.multiply(self.known))
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
    def T(self) -> Labels:
        """The same cells with rows and labels exchanged."""
        known = None if self.known is None else sp.csr_array(self.known.T)
        return Labels.of_patterns(sp.csr_array(self.positives.T), known, self.container)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Labels:
        if isinstance(rows, tuple):
            rows, *rest = rows
            if any(part is not Ellipsis and part != slice(None) for part in rest):
                raise IndexError("Labels are indexed by rows only.")
        if isinstance(rows, int | np.integer):
            rows = [rows]
        index = np.arange(len(self))[rows]
        part = object.__new__(Labels)
        part.positives = self.positives[index]
        part.known = None if self.known is None else self.known[index]
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
            dense[~self.known.toarray().astype(bool)] = np.nan
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
            return sp.csr_array((targets.ravel(), index, np.arange(n + 1) * L), shape=(n, L))
        known = self.known
        is_positive = _member(known, self.positives)
        data = np.where(is_positive, positive, negative).astype(dtype)
        return sp.csr_array((data, known.indices, known.indptr), shape=known.shape)


def as_labels(Y: Any, observed: Any = None, absent: Absent = "negative") -> Labels:
    """Turn whatever a user passed as labels into :class:`Labels`; labels pass through unchanged.

    >>> as_labels([[1, 0]])
    Labels(1 × 2, 1 positive, 1 negative, 0 unknown)
    """
    if isinstance(Y, Labels) and observed is None:
        return Y
    return Labels(Y, observed, absent=absent)


def _pattern(matrix: Any) -> sp.csr_array:
    """Return the non-zero cells as a canonical CSR of True, with 32-bit indices where they fit."""
    csr = sp.csr_array(matrix, copy=True)
    csr.sum_duplicates()
    csr.eliminate_zeros()
    csr.data = np.ones(csr.nnz, bool)
    return csr


def _keys(pattern: sp.csr_array) -> NDArray[np.int64]:
    rows = np.repeat(np.arange(pattern.shape[0], dtype=np.int64), np.diff(pattern.indptr))
    return rows * pattern.shape[1] + pattern.indices


def _member(cells: sp.csr_array, subset: sp.csr_array) -> NDArray[np.bool_]:
    """Tell for each stored cell of a canonical pattern whether it is in ``subset``, itself a part of it."""
    member = np.zeros(cells.nnz, bool)
    member[np.searchsorted(_keys(cells), _keys(subset))] = True
    return member


def _mask(observed: Any, shape: tuple[int, int]) -> sp.csr_array | None:
    mask = observed if sp.issparse(observed) else np.asarray(observed)
    if mask.ndim != 2 or tuple(mask.shape) != tuple(shape):
        raise ValueError(
            f"observed has shape {tuple(mask.shape)} and Y has {tuple(shape)}; pass one flag for each cell of Y."
        )
    if mask.dtype.kind not in "biuf":
        raise ValueError(f"observed holds {mask.dtype}; pass booleans, True where the label is known.")
    pattern = _pattern(mask)
    return None if pattern.nnz == shape[0] * shape[1] else pattern


def _narrow(labels: Labels, observed: Any) -> tuple[sp.csr_array, sp.csr_array | None, Container]:
    if observed is None:
        return labels.positives, labels.known, labels.container
    mask = _mask(observed, labels.shape)
    if mask is not None and labels.known is not None:
        mask = _pattern(mask.multiply(labels.known))
    narrowed = Labels.of_patterns(labels.positives, mask if mask is not None else labels.known)
    return narrowed.positives, narrowed.known, labels.container


def _check_values(values: NDArray, where: Any) -> float:
    """Refuse anything that is not 0/1 or −1/+1, and return what stands for "no" (0 or −1)."""
    wrong = (values != 0) & (values != 1) & (values != -1)
    if wrong.any():
        first = int(np.argmax(wrong))
        row, label = where(first)
        raise ValueError(
            f"Y holds {values[first]!r} at row {row}, label {label}; labels must be 0/1, bool or −1/+1, "
            "with NaN (or observed=) for unknown ones. "
            "Unknown label type: a class index or a number is not a set of labels; "
            "sklearn.preprocessing.MultiLabelBinarizer turns sets of tags into 0/1."
        )
    has_minus, has_zero = bool((values == -1).any()), bool((values == 0).any())
    if has_minus and has_zero:
        raise ValueError(
            "Y mixes 0 and −1, so it is unclear which of them means negative and which unknown; "
            "write negatives one way, and unknown cells as NaN or with observed=."
        )
    return -1.0 if has_minus else 0.0


def _numeric(values: NDArray) -> NDArray:
    if values.dtype.kind in "biuf":
        return values
    try:
        return values.astype(float)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"Y holds {values.dtype} values that are not numbers ({error}); labels must be 0/1, bool or −1/+1. "
            "sklearn.preprocessing.MultiLabelBinarizer turns sets of tags into 0/1."
        ) from error


def _read_dense(Y: ArrayLike, observed: Any) -> tuple[sp.csr_array, sp.csr_array | None, Container]:
    dense = _numeric(np.asarray(Y))
    if dense.ndim != 2:
        raise ValueError(
            f"Y must have two dimensions, rows × labels, and has {dense.ndim}; "
            "for a single label pass y.reshape(-1, 1)."
        )
    signed = dense.astype(np.int8) if dense.dtype == bool else dense
    missing = np.isnan(signed) if signed.dtype.kind == "f" else np.zeros(signed.shape, bool)
    known = None if observed is None else _mask(observed, dense.shape)
    if observed is None:
        given = ~missing
        known = _pattern(given) if missing.any() else None
    else:
        given = np.ones(dense.shape, bool) if known is None else known.toarray().astype(bool)
        if (missing & given).any():
            row, label = np.argwhere(missing & given)[0]
            raise ValueError(
                f"observed says that row {row}, label {label} is known, but Y is NaN there; "
                "clear the flag or fill the value."
            )
    cells = np.flatnonzero(given)
    negative = _check_values(signed.ravel()[cells], lambda c: np.unravel_index(cells[c], dense.shape))
    positives = _pattern((signed == 1) & given)
    return positives, known, Container(False, dense.dtype.name, negative)


def _read_sparse(Y: Any, observed: Any, absent: Absent) -> tuple[sp.csr_array, sp.csr_array | None, Container]:
    csr = sp.csr_array(Y, copy=True)
    csr.sum_duplicates()
    csr.data = _numeric(csr.data)
    if csr.data.dtype == bool:
        csr.data = csr.data.astype(np.int8)
    known = None if observed is None else _mask(observed, csr.shape)
    if known is not None:
        csr = _restrict(csr, known)
    missing = np.isnan(csr.data) if csr.data.dtype.kind == "f" else np.zeros(csr.nnz, bool)
    if missing.any():
        if absent == "negative" or observed is not None:
            raise ValueError(
                "Y is sparse and stores NaN; leave unknown cells out and pass absent='unknown', "
                "or name the known ones with observed=."
            )
        csr = _keep(csr, ~missing)
    rows = np.repeat(np.arange(csr.shape[0]), np.diff(csr.indptr))
    negative = _check_values(csr.data, lambda c: (rows[c], csr.indices[c]))
    full = csr.nnz == (csr.shape[0] * csr.shape[1] if known is None else known.nnz)
    if negative == -1 and absent == "negative" and not full:
        raise ValueError(
            "Y is sparse, stores −1 and leaves cells out: if those are unknown, pass absent='unknown'; "
            "if they are negative, store only the positives."
        )
    if observed is None and absent == "unknown":
        known = sp.csr_array((np.ones(csr.nnz, bool), csr.indices, csr.indptr), shape=csr.shape)
    return _pattern(_keep(csr, csr.data == 1)), known, Container(True, Y.dtype.name)


def _keep(csr: sp.csr_array, flags: NDArray[np.bool_]) -> sp.csr_array:
    counts = np.concatenate([[0], np.cumsum(flags)])
    return sp.csr_array((csr.data[flags], csr.indices[flags], counts[csr.indptr]), shape=csr.shape)


def _restrict(csr: sp.csr_array, known: sp.csr_array) -> sp.csr_array:
    return _keep(csr, np.isin(_keys(csr), _keys(known), assume_unique=True))
