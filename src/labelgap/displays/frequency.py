"""Where a method finds its hits: among frequent labels, or among rare ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelgap.displays.base import Display, from_zero, name_of, require_matplotlib
from labelgap.metrics import Batch
from labelgap.metrics.base import one_of, positive_integer
from labelgap.model_selection.criteria import labels_for, score_batches
from labelgap.observations import as_labels

Measure = Literal["contribution", "recall", "precision"]
CROWDED = 8  # bins, whose names need a smaller font
MEASURES: dict[str, str] = {
    "contribution": "contribution to P@{k}",
    "recall": "recall@{k} of the labels",
    "precision": "precision@{k} of the labels",
}


class Tally(NamedTuple):
    """Counts for each label, over the rows that have a known positive, and the number of these rows."""

    hits: NDArray[np.int64]
    predicted: NDArray[np.int64]
    positives: NDArray[np.int64]
    n_rows: int


class FrequencyDisplay(Display):
    """P@k, taken apart by how many training positives a label has.

    For a bin b of labels, over the test rows that have a known positive,

        contribution  Σ over j ∈ b of hits_j / (k · rows), and all bins together make P@k;
        recall        Σ over j ∈ b of hits_j / Σ over j ∈ b of positives_j;
        precision     Σ over j ∈ b of hits_j / Σ over j ∈ b of predicted_j,

    where a label is predicted in a row if it is among the k best of the row's known cells, and a hit if it is there.

    Parameters
    ----------
    edges : ndarray of shape (bins + 1,)
        Bin b holds the labels with edges[b] ≤ training positives < edges[b + 1].
    values : ndarray of shape (bins,)
        What is drawn; NaN where a bin has nothing to count.
    n_labels : ndarray of shape (bins,)
        The number of labels in each bin; bins without labels are not drawn.
    k : int
        How many labels of each row are looked at.
    measure : {"contribution", "recall", "precision"}
        What the values are.
    precision_at_k : float, optional
        P@k over all labels, for the legend.
    name : str, optional
        What the legend says.

    Examples
    --------
    >>> Y, scores = np.array([[1, 0, 1], [0, 1, 0]]), np.array([[0.9, 0.8, 0.1], [0.2, 0.9, 0.5]])
    >>> shown = FrequencyDisplay.from_predictions(Y, scores, frequencies=[9, 40, 2], k=1, bins=[1, 10, 100])
    >>> shown.values.tolist(), shown.n_labels.tolist()
    ([0.5, 0.5], [2, 1])
    """

    def __init__(
        self,
        edges: NDArray[np.int64],
        values: NDArray[np.float64],
        n_labels: NDArray[np.int64],
        *,
        k: int,
        measure: Measure = "contribution",
        precision_at_k: float | None = None,
        name: str | None = None,
    ) -> None:
        self.edges = edges
        self.values = values
        self.n_labels = n_labels
        self.k = k
        self.measure = measure
        self.precision_at_k = precision_at_k
        self.name = name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        Y: Any,
        *,
        frequencies: ArrayLike | None = None,
        Y_train: Any = None,
        k: int = 5,
        measure: Measure = "contribution",
        bins: int | Sequence[int] = 6,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Draw it for a fitted estimator and test rows.

        Parameters
        ----------
        estimator : fitted estimator
            Anything with ``decision_function``.
        X, Y : the test data
            Y in any form that the estimator takes; unknown cells do not count.
        frequencies : array-like of shape (L,), or Y_train : labels
            The training positives of each label, or the labels to count them in: one of the two.
        k : int, default=5
            How many labels of each row are looked at.
        measure : {"contribution", "recall", "precision"}
            See the class.
        bins : int or sequence of int, default=6
            The most bins, equally wide on a log scale, or their edges. Labels without a positive have their own.
        name, ax, **kwargs
            See :meth:`plot`.
        """
        require_matplotlib()
        k = positive_integer("k", k)
        labels = labels_for(estimator, Y)
        counts = training_counts(frequencies, Y_train, labels.shape[1])
        tally = count((Batch(*part) for part in score_batches(estimator, X, labels, k)), k)
        return cls._of(tally, counts, k, measure, bins, name_of(estimator, name)).plot(ax, **kwargs)

    @classmethod
    def from_predictions(
        cls,
        Y: Any,
        scores: Any,
        *,
        frequencies: ArrayLike | None = None,
        Y_train: Any = None,
        k: int = 5,
        measure: Measure = "contribution",
        bins: int | Sequence[int] = 6,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Draw it for scores, or for the best labels of each row.

        ``scores`` are what :class:`labelgap.metrics.Batch` takes: dense or sparse scores, or a tuple (indices,
        scores) as ``predict_topk`` returns it. For the rest see :meth:`from_estimator`.
        """
        k, batch = positive_integer("k", k), Batch(Y, scores)
        counts = training_counts(frequencies, Y_train, batch.n_labels)
        return cls._of(count([batch], k), counts, k, measure, bins, name).plot(ax, **kwargs)

    @classmethod
    def _of(
        cls, tally: Tally, counts: NDArray, k: int, measure: Measure, bins: int | Sequence[int], name: str | None
    ) -> Self:
        edges, place = place_labels(counts, bins)
        total = {part: np.bincount(place, getattr(tally, part), len(edges) - 1) for part in Tally._fields[:3]}
        whole = {
            "contribution": np.full(len(edges) - 1, float(k * tally.n_rows)),
            "recall": total["positives"],
            "precision": total["predicted"],
        }[one_of("measure", measure, tuple(MEASURES))]
        values = np.divide(total["hits"], whole, out=np.full(len(whole), np.nan), where=whole > 0)
        reached = tally.hits.sum() / (k * tally.n_rows) if tally.n_rows else float("nan")
        n_labels = np.bincount(place, minlength=len(edges) - 1)
        return cls(edges, values, n_labels, k=k, measure=measure, precision_at_k=float(reached), name=name)

    def plot(self, ax: Any = None, *, name: str | None = None, **kwargs: Any) -> Self:
        name = self._begin(ax, name)
        drawn = np.flatnonzero(self.n_labels)
        ticks = [f"{self._range(b)}\n({self.n_labels[b]:,})" for b in drawn]
        self._check_bins(ticks)
        self._curve(np.arange(len(drawn)), self.values[drawn], self._label(name), kwargs)
        from_zero(self.ax_, "y")
        self.ax_.set_xticks(range(len(ticks)), ticks, fontsize="medium" if len(ticks) < CROWDED else "x-small")
        return self._finish(
            xlabel="training positives of a label (number of such labels)",
            ylabel=MEASURES[self.measure].format(k=self.k),
        )

    def _range(self, b: Any) -> str:
        low, high = int(self.edges[b]), int(self.edges[b + 1]) - 1
        return f"{low:,}" if low == high else f"{low:,}–{high:,}"

    def _label(self, name: str | None) -> str | None:
        if name is None or self.precision_at_k is None:
            return name
        return f"{name} (P@{self.k} = {self.precision_at_k:.3f})"

    def _check_bins(self, ticks: list[str]) -> None:
        shown = [tick.get_text() for tick in self.ax_.get_xticklabels()]
        if self.ax_.lines and shown != ticks:
            raise ValueError(
                f"ax shows bins {shown} and this display has {ticks}; draw displays of the same training positives "
                "and bins into one plot."
            )


def training_counts(frequencies: ArrayLike | None, Y_train: Any, n_labels: int) -> NDArray[np.int64]:
    """Return the number of training positives of each label, given or counted."""
    if (frequencies is None) == (Y_train is None):
        raise ValueError(
            "Pass either frequencies (the training positives of each label) or Y_train (the labels to count them in)."
        )
    if Y_train is not None:
        labels = as_labels(Y_train)
        counts = np.bincount(labels.positives.indices, minlength=labels.shape[1])
    else:
        counts = np.asarray(frequencies)
    if counts.shape != (n_labels,) or counts.dtype.kind not in "biuf" or not (counts >= 0).all():
        raise ValueError(
            f"frequencies (or Y_train) has {counts.dtype} numbers of shape {counts.shape}; "
            f"pass a count of 0 or more for each of the {n_labels} labels."
        )
    return counts.astype(np.int64)


def count(batches: Iterable[Batch], k: int) -> Tally:
    """Count hits, predictions and positives of each label among the k best known cells of the rows."""
    parts = [_count_one(batch, k) for batch in batches]
    return Tally(*(sum(column) for column in zip(*parts, strict=True)))


def _count_one(batch: Batch, k: int) -> Tally:
    counted = batch.n_positives > 0
    indices, hits = (part[counted] for part in batch.ranking(k))
    places = indices[hits], indices[indices >= 0], batch.labels.positives.indices
    found, predicted, positives = (np.bincount(part, minlength=batch.n_labels) for part in places)
    return Tally(found, predicted, positives, int(counted.sum()))


def place_labels(counts: NDArray[np.int64], bins: int | Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the edges of the bins and the bin of each label.

    >>> edges, place = place_labels(np.array([0, 1, 3, 20, 99]), 2)
    >>> edges.tolist(), place.tolist()
    ([0, 1, 10, 100], [0, 1, 1, 2, 2])
    """
    if isinstance(bins, int | np.integer):
        edges = _log_edges(counts, positive_integer("bins", bins))
    else:
        edges = np.asarray(bins)
        if edges.ndim != 1 or len(edges) < 2 or edges.dtype.kind not in "iu" or (np.diff(edges) <= 0).any():
            raise ValueError(f"bins={bins!r} is neither a number nor a rising sequence of whole numbers.")
        if edges[0] > counts.min() or edges[-1] <= counts.max():
            raise ValueError(
                f"bins runs from {edges[0]} to below {edges[-1]} and labels have {counts.min()} to {counts.max()} "
                "training positives; widen it so that every label has a bin."
            )
    return edges.astype(np.int64), np.searchsorted(edges, counts, side="right") - 1


def _log_edges(counts: NDArray[np.int64], n_bins: int) -> NDArray[np.int64]:
    some = counts[counts > 0]
    none = [] if len(some) == len(counts) else [0]
    if not len(some):
        return np.array([0, 1])
    inner = np.geomspace(some.min(), some.max() + 1, n_bins + 1).round().astype(np.int64)
    return np.unique([*none, *([1] if none else []), *inner])
