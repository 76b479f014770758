"""Labels with three states: positive, negative, unknown.

================================================  =============================================================
the user passes                                   meaning
================================================  =============================================================
sparse or dense 0/1, bool, or −1/+1               everything observed: absent is negative
dense with NaN                                    NaN is unknown
data frame with NaN, ``<NA>`` or null             these cells are unknown
``Labels(Y, observed=mask)``                      cells outside the mask are unknown, whatever ``Y`` holds there
sparse and ``absent="unknown"``                   stored cells are observed (0 or −1 negative), all others unknown
anything, to a one-class estimator                positives known, all others unlabelled
================================================  =============================================================

:class:`Labels` has two index structures, the positives and the known cells, because sparse arithmetic drops stored
zeros. Nothing here allocates an n×L array unless the user passed one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray

from labelgap.observations.frames import FramePackage, get_frame_package, make_frame, read_array, read_frame
from labelgap.observations.sparse_indices import check_sparse_indices

if TYPE_CHECKING:
    from labelgap.observations.arguments import LabelsLike, MatrixLike

Absent = Literal["negative", "unknown"]
_BINARIZER = "A Tagger takes a list of tags for each row; sklearn's MultiLabelBinarizer turns such lists into 0/1."


@dataclass(frozen=True)
class Container:
    """The format of the user's labels, which is also the format of predictions.

    Attributes
    ----------
    sparse : bool
        True for a sparse matrix.
    dtype : str
        The type of its values.
    negative : float
        The value of a negative label: 0, or −1 in a dense −1/+1 matrix.
    frame : {"", "pandas", "polars"}
        The package of a data frame.
    """

    sparse: bool = False
    dtype: str = "int64"
    negative: float = 0.0
    frame: FramePackage = ""

    def pack(self, positives: sp.csr_array, names: Any = None, index: Any = None) -> Any:
        """Return a pattern of positives in the user's format; a data frame has these column names and row index.

        >>> Container(negative=-1.0).pack(sp.csr_array(np.array([[1, 0]])))
        array([[ 1, -1]])
        """
        if self.sparse:
            return sp.csr_array(positives, dtype=self.dtype)
        dense = positives.toarray().astype(self.dtype)
        if self.negative != 0:
            dense = np.where(dense != 0, dense, dense.dtype.type(self.negative))
        return make_frame(self.frame, dense, names, index)


class Labels:
    """An n×L matrix of labels, some of which may be unknown.

    Parameters
    ----------
    Y : array-like or sparse matrix of shape (n, L)
        0/1, bool or −1/+1; NaN in a dense matrix is unknown.
    observed : array-like or sparse matrix of shape (n, L), optional
        True where the label is known. Other cells of ``Y`` are ignored.
    absent : {"negative", "unknown"}
        The meaning of cells that a sparse ``Y`` does not store; with ``observed`` the mask alone decides.

    Attributes
    ----------
    positives : csr_array of bool
        The known positives.
    known : csr_array of bool, or None
        The known cells; ``None`` if all cells are known.
    container : Container
        The format of ``Y``.

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

    def __init__(self, Y: LabelsLike, observed: MatrixLike | None = None, *, absent: Absent = "negative") -> None:
        if absent not in ("negative", "unknown"):
            raise ValueError(f"absent={absent!r} is not understood; use 'negative' or 'unknown'.")
        if isinstance(Y, Labels):
            self.positives, self.known, self.container = _restrict_labels(Y, observed)
        elif sp.issparse(Y):
            self.positives, self.known, self.container = read_sparse_labels(Y, observed, absent)
        else:
            self.positives, self.known, self.container = read_dense_labels(Y, observed)

    @classmethod
    def of_patterns(
        cls, positives: sp.csr_array, known: sp.csr_array | None = None, container: Container | None = None
    ) -> Labels:
        """Return labels with these positives and known cells; positives outside of ``known`` are dropped."""
        self = object.__new__(cls)
        self.positives = as_pattern(positives)
        self.known = None if known is None else none_if_full(as_pattern(known))
        if self.known is not None:
            self.positives = as_pattern(self.positives.multiply(self.known))
        self.container = container or Container(sparse=True)
        return self

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows and of labels."""
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
        """The share of positives among the known cells of each label; 0 if it has none.

        >>> Labels(np.array([[1.0, 0.0], [np.nan, 1.0]])).rates
        array([1. , 0.5])
        """
        known = len(self) if self.known is None else np.bincount(self.known.indices, minlength=self.shape[1])
        return np.bincount(self.positives.indices, minlength=self.shape[1]) / np.maximum(known, 1)

    @property
    def T(self) -> Labels:
        """The transpose: a row for each label."""
        known = None if self.known is None else sp.csr_array(self.known.T)
        return Labels.of_patterns(sp.csr_array(self.positives.T), known, self.container)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Labels:
        if isinstance(rows, tuple) and rows:
            rows, *others = rows
            if not all(part is Ellipsis or (isinstance(part, slice) and part == slice(None)) for part in others):
                raise IndexError("Labels are indexed by rows only; write labels[rows].")
        index = np.atleast_1d(np.arange(len(self))[rows])
        if index.ndim != 1:
            raise IndexError(f"Labels are indexed by rows only, and the index has {index.ndim} dimensions.")
        part = object.__new__(Labels)
        part.positives = self.positives[index]
        part.known = None if self.known is None else none_if_full(self.known[index])
        part.container = self.container
        return part

    def __repr__(self) -> str:
        n, L = self.shape
        negative = self.n_known - self.positives.nnz
        return (
            f"Labels({n} × {L}, {self.positives.nnz} positive, {negative} negative, {n * L - self.n_known} unknown)"
        )

    def toarray(self) -> NDArray[np.float64]:
        """Return a dense n×L array of 0, 1 and NaN; meant for small data."""
        dense = self.positives.toarray().astype(float)
        if self.known is not None:
            dense[~self.known.toarray()] = np.nan
        return dense

    def encode(self, negative: float, positive: float, dtype: DTypeLike = np.float64) -> sp.csr_array:
        """Return a sparse matrix that stores a loss's target, ``negative`` or ``positive``, at each known cell.

        The pattern is Ω, the known cells: a target of 0 is stored too. If every cell is known that takes n×L values,
        so callers treat complete labels separately.

        >>> Labels(np.array([[1, np.nan], [0, 1]])).encode(-1, 1).data
        array([ 1., -1.,  1.])
        """
        if self.known is None:
            n, L = self.shape
            targets = np.full((n, L), negative, dtype)
            targets[self.positives.nonzero()] = positive
            index = np.tile(np.arange(L, dtype=np.int32), n)
            return make_csr(targets.ravel(), index, np.arange(n + 1) * L, (n, L))
        known = self.known
        is_positive = find_in_subset(known, self.positives)
        data = np.where(is_positive, positive, negative).astype(dtype)
        return make_csr(data, known.indices, known.indptr, known.shape)


def as_labels(Y: LabelsLike, observed: MatrixLike | None = None, absent: Absent = "negative") -> Labels:
    """Convert the labels that a user passed to :class:`Labels`; return Labels unchanged.

    >>> as_labels([[1, 0]])
    Labels(1 × 2, 1 positive, 1 negative, 0 unknown)
    """
    if isinstance(Y, Labels) and observed is None:
        return Y
    return Labels(Y, observed, absent=absent)


def _restrict_labels(labels: Labels, observed: Any) -> tuple[sp.csr_array, sp.csr_array | None, Container]:
    if observed is None:
        return labels.positives, labels.known, labels.container
    mask = read_mask(observed, labels.shape)
    if mask is not None and labels.known is not None:
        mask = as_pattern(mask.multiply(labels.known))
    narrowed = Labels.of_patterns(labels.positives, mask if mask is not None else labels.known)
    return narrowed.positives, narrowed.known, labels.container


# --- reading what users pass ----------------------------------------------------------------------------------------


class LabelPatterns(NamedTuple):
    """The known positives, the known cells (None if all are known), and the format of the labels."""

    positives: sp.csr_array
    known: sp.csr_array | None
    container: Container


def read_mask(observed: Any, shape: tuple[int, int]) -> sp.csr_array | None:
    """Return the known cells of a mask, or None if all cells are known."""
    mask = check_sparse_indices("observed", observed) if sp.issparse(observed) else np.asarray(read_array(observed))
    if tuple(mask.shape) != tuple(shape):
        raise ValueError(
            f"observed has shape {tuple(mask.shape)} and Y has {tuple(shape)}; pass one flag for each cell of Y."
        )
    if mask.dtype.kind not in "biuf" or np.isnan(sp.csr_array(mask).data if sp.issparse(mask) else mask).any():
        raise ValueError(
            f"observed holds {mask.dtype} values that are not flags; pass booleans, True where the label is known."
        )
    return none_if_full(as_pattern(mask))


def read_dense_labels(Y: Any, observed: Any) -> LabelPatterns:
    """Read a dense matrix or a data frame, whose NaN cells are unknown."""
    frame = get_frame_package(Y)
    values, dtype = read_frame(Y) if frame else (_convert_to_array(Y), "")
    dense = _convert_to_numbers(values)
    _check_two_dimensional(dense)
    signed = dense.astype(np.int8) if dense.dtype == bool else dense
    missing = np.isnan(signed) if signed.dtype.kind == "f" else np.zeros(signed.shape, bool)
    if observed is None:
        known, is_known = none_if_full(as_pattern(~missing)) if missing.any() else None, ~missing
    else:
        known = read_mask(observed, dense.shape)
        is_known = np.ones(dense.shape, bool) if known is None else known.toarray()
        _check_observed_values(missing & is_known)
    cells = np.flatnonzero(is_known)
    negative = _check_values(signed.ravel()[cells], lambda c: np.unravel_index(cells[c], dense.shape))
    container = Container(False, dtype or dense.dtype.name, negative, frame)
    return LabelPatterns(as_pattern((signed == 1) & is_known), known, container)


def read_sparse_labels(Y: Any, observed: Any, absent: Absent) -> LabelPatterns:
    """Read a sparse matrix; ``absent`` is the meaning of cells that are not stored.

    With ``observed`` the mask alone decides what is known, and known cells that are not stored are negative.
    """
    _check_two_dimensional(Y)
    stored_are_known = absent == "unknown" and observed is None
    if stored_are_known and Y.format in ("bsr", "dia"):
        raise ValueError(
            f"Y is a {Y.format} matrix, which stores zeros that fill its blocks, so absent='unknown' cannot tell "
            "them from known negatives; pass a CSR or COO matrix that stores the known cells."
        )
    csr = sp.csr_array(check_sparse_indices("Y", Y), copy=True)
    csr.sum_duplicates()
    csr.data = _convert_to_numbers(csr.data)
    if csr.data.dtype == bool:
        csr.data = csr.data.astype(np.int8)
    known = None if observed is None else read_mask(observed, csr.shape)
    if known is not None:
        csr = restrict_cells(csr, known)
    if stored_are_known:
        csr = select_cells(csr, ~np.isnan(csr.data))
        known = none_if_full(make_csr(np.ones(csr.nnz, bool), csr.indices, csr.indptr, csr.shape))
    _check_stored(csr, csr.shape[0] * csr.shape[1] if known is None else known.nnz)
    return LabelPatterns(as_pattern(select_cells(csr, csr.data == 1)), known, Container(True, Y.dtype.name))


def _convert_to_array(Y: Any) -> NDArray:
    try:
        return np.asarray(read_array(Y))
    except ValueError as error:
        raise ValueError(f"Y is not a matrix: its rows differ in length. {_BINARIZER}") from error


def _convert_to_numbers(values: NDArray) -> NDArray:
    """Return numeric arrays as they are, and objects as floats (None and <NA> are NaN).

    Raise ValueError for other types.
    """
    if values.dtype.kind in "biuf":
        return values
    try:
        if values.dtype.kind != "O" or any(isinstance(value, str | bytes) for value in values.ravel()):
            raise ValueError("text or dates")
        return np.where(np.vectorize(_is_missing, otypes=[bool])(values), np.nan, values).astype(float)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"Y holds {values.dtype} values that are not numbers ({error}); labels must be 0/1, bool or −1/+1. "
            f"{_BINARIZER}"
        ) from error


def _is_missing(value: Any) -> bool:
    return value is None or type(value).__name__ == "NAType"  # the latter is pandas' <NA>


def _check_two_dimensional(Y: Any) -> None:
    if Y.ndim != 2:
        raise ValueError(
            f"Y must have two dimensions, rows × labels, and has {Y.ndim}; for a single label pass y.reshape(-1, 1)."
        )


def _check_observed_values(wrong: NDArray[np.bool_]) -> None:
    if wrong.any():
        row, label = np.argwhere(wrong)[0]
        raise ValueError(
            f"observed says that row {row}, label {label} is known, but Y is NaN there; "
            "clear the flag or fill the value."
        )


def _check_stored(csr: sp.csr_array, n_known: int) -> None:
    """Raise ValueError if stored values are not labels, or if −1 is stored and some known cells are not."""
    if csr.data.dtype.kind == "f" and np.isnan(csr.data).any():
        raise ValueError(
            "Y is sparse and stores NaN in a known cell; leave unknown cells out and pass absent='unknown', "
            "or name the known ones with observed=."
        )
    rows = find_rows(csr)
    if _check_values(csr.data, lambda c: (rows[c], csr.indices[c])) == -1 and csr.nnz < n_known:
        raise ValueError(
            "Y is sparse, stores −1 and leaves known cells out: if those are unknown, pass absent='unknown' and no "
            "observed=; if they are negative, store only the positives."
        )


def _check_values(values: NDArray, where: Callable[[int], Any]) -> float:
    """Return the value of negative labels, 0 or −1; raise ValueError unless all values are 0/1 or −1/+1."""
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


# --- patterns of cells ----------------------------------------------------------------------------------------------


def make_csr(data: NDArray, indices: NDArray, indptr: NDArray, shape: tuple[int, int]) -> sp.csr_array:
    """Return a CSR matrix with 32-bit indices if they fit: half the memory, and one kernel to compile.

    >>> make_csr(np.ones(1), np.array([1]), np.array([0, 1]), (1, 2)).indices.dtype
    dtype('int32')
    """
    kind = np.int32 if max(*shape, len(indices)) <= np.iinfo(np.int32).max else np.int64
    return sp.csr_array((data, indices.astype(kind, copy=False), indptr.astype(kind, copy=False)), shape=shape)


def as_pattern(matrix: Any) -> sp.csr_array:
    """Return the pattern of the non-zero cells of a matrix, as a new matrix.

    >>> as_pattern(np.array([[0, 3]])).toarray()
    array([[False,  True]])
    """
    csr = sp.csr_array(matrix, copy=True)
    csr.sum_duplicates()
    csr.eliminate_zeros()
    return make_csr(np.ones(csr.nnz, bool), csr.indices, csr.indptr, csr.shape)


def none_if_full(pattern: sp.csr_array) -> sp.csr_array | None:
    """Return the pattern, or None if it has every cell."""
    return None if pattern.nnz == pattern.shape[0] * pattern.shape[1] else pattern


def find_rows(pattern: sp.csr_array) -> NDArray[np.int64]:
    """Return the row of each stored cell."""
    return np.repeat(np.arange(pattern.shape[0], dtype=np.int64), np.diff(pattern.indptr))


def number_cells(pattern: sp.csr_array) -> NDArray[np.int64]:
    """Return the numbers of the stored cells, counted row by row over all cells; ascending."""
    return find_rows(pattern) * pattern.shape[1] + pattern.indices


def find_in_subset(cells: sp.csr_array, subset: sp.csr_array) -> NDArray[np.bool_]:
    """Return a flag for each stored cell of a canonical pattern: whether ``subset``, a part of it, has the cell."""
    flags = np.zeros(cells.nnz, bool)
    flags[np.searchsorted(number_cells(cells), number_cells(subset))] = True
    return flags


def select_cells(csr: sp.csr_array, flags: NDArray[np.bool_]) -> sp.csr_array:
    """Return the stored cells that have a flag, including stored zeros."""
    counts = np.concatenate([[0], np.cumsum(flags)])
    return make_csr(csr.data[flags], csr.indices[flags], counts[csr.indptr], csr.shape)


def restrict_cells(csr: sp.csr_array, known: sp.csr_array) -> sp.csr_array:
    """Return the stored cells that are in ``known``, including stored zeros."""
    return select_cells(csr, np.isin(number_cells(csr), number_cells(known), assume_unique=True))


# --- further columns and rows ---------------------------------------------------------------------------------------


def append_labels(labels: Labels, n_labels: int, absent: Absent = "negative") -> Labels:
    """Return labels with columns appended up to ``n_labels``, all negative or all unknown as ``absent`` says.

    >>> append_labels(Labels([[1, 0]]), 3).toarray()
    array([[1., 0., 0.]])
    >>> append_labels(Labels([[1, 0]]), 3, "unknown").toarray()
    array([[ 1.,  0., nan]])
    """
    n, L = labels.shape
    if n_labels == L:
        return labels
    known = labels.known
    if known is not None or absent == "unknown":
        further = np.full((n, n_labels - L), absent == "negative")
        known = sp.csr_array(sp.hstack([_known_pattern(labels), sp.csr_array(further)]))
    positives = sp.csr_array(
        (labels.positives.data, labels.positives.indices, labels.positives.indptr), (n, n_labels)
    )
    return Labels.of_patterns(positives, known, labels.container)


def select_labels(labels: Labels, columns: Sequence[int] | NDArray) -> Labels:
    """Return the labels of some columns, in their order.

    >>> select_labels(Labels([[1, 0, 1]]), [2, 1]).toarray()
    array([[1., 0.]])
    """
    known = None if labels.known is None else labels.known[:, columns]
    return Labels.of_patterns(labels.positives[:, columns], known, labels.container)


def stack_rows(first: Labels, *others: Labels) -> Labels:
    """Return the rows of all labels below each other, in the format of the first.

    >>> stack_rows(Labels([[1, 0]]), Labels([[np.nan, 1]])).toarray()
    array([[ 1.,  0.],
           [nan,  1.]])
    """
    known, parts = None, [first, *others]
    if any(part.known is not None for part in parts):
        known = sp.csr_array(sp.vstack(list(map(_known_pattern, parts))))
    positives = sp.csr_array(sp.vstack([part.positives for part in parts]))
    return Labels.of_patterns(positives, known, first.container)


def match_columns(source: str, names: Sequence[str] | NDArray, columns: Sequence[str] | NDArray) -> list[int]:
    """Return the position of each name among ``columns``, then the positions of the other columns.

    ``source`` names the columns' matrix in error messages.

    >>> match_columns("Y", ["a", "b"], ["new", "b", "a"])
    [2, 1, 0]
    """
    check_distinct_names("The model", names)
    check_distinct_names(source, columns)
    position = {name: column for column, name in enumerate(columns)}
    missing = [name for name in names if name not in position]
    if missing:
        raise ValueError(
            f"{source} has no column {missing[0]!r}, a label of the earlier fit; pass all {len(names)} of them."
        )
    known = set(names)
    new = [column for column, name in enumerate(columns) if name not in known]
    return [position[name] for name in names] + new


def check_distinct_names(source: str, names: Sequence[str] | NDArray) -> None:
    """Raise ValueError if two labels have the same name.

    >>> check_distinct_names("Y", ["a", "b", "a"])
    Traceback (most recent call last):
        ...
    ValueError: Y has two labels named 'a'; give each label a name of its own.
    """
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{source} has two labels named {name!r}; give each label a name of its own.")
        seen.add(name)


def _known_pattern(labels: Labels) -> sp.csr_array:
    return sp.csr_array(np.ones(labels.shape, bool)) if labels.known is None else labels.known
