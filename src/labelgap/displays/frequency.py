"""A display of P@k by the frequency of the labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelgap.displays.base import Display, get_display_name, require_matplotlib, start_at_zero
from labelgap.estimators import as_labels_for
from labelgap.metrics import Batch
from labelgap.metrics.base import check_option, check_positive_integer
from labelgap.model_selection import score_batches
from labelgap.observations import as_labels
from labelgap.observations.arguments import LabelsLike, MatrixLike, ScoresLike

Measure = Literal["contribution", "recall", "precision"]
MAX_MEDIUM_TICKS = 7  # more bins need a smaller font
MEASURES: dict[str, str] = {
    "contribution": "contribution to P@{k}",
    "recall": "recall@{k} of the labels",
    "precision": "precision@{k} of the labels",
}


class LabelCounts(NamedTuple):
    """Counts of each label over the rows with a known positive, and the number of these rows."""

    hits: NDArray[np.int64]
    predicted: NDArray[np.int64]
    positives: NDArray[np.int64]
    n_rows: int


@dataclass(eq=False, repr=False)
class FrequencyDisplay(Display):
    """P@k, split by the number of training positives of the labels.

    For a bin b of labels, over the test rows with a known positive,

        contribution  Σ over j ∈ b of hits_j / (k · rows); the sum over all bins is P@k;
        recall        Σ over j ∈ b of hits_j / Σ over j ∈ b of positives_j;
        precision     Σ over j ∈ b of hits_j / Σ over j ∈ b of predicted_j,

    where a label is predicted in a row if it is one of the k best of the row's known cells, and a hit if it is also
    positive.

    Parameters
    ----------
    edges : ndarray of shape (bins + 1,)
        Bin b contains the labels with edges[b] ≤ training positives < edges[b + 1].
    values : ndarray of shape (bins,)
        The values of the measure; NaN where it is undefined.
    n_labels : ndarray of shape (bins,)
        Number of labels in each bin; bins without labels are not drawn.
    k : int
        Number of top labels of each row.
    measure : {"contribution", "recall", "precision"}, default="contribution"
        The measure.
    precision_at_k : float, optional
        P@k over all labels, for the legend.
    name : str, optional
        The name in the legend.

    Examples
    --------
    >>> Y, scores = np.array([[1, 0, 1], [0, 1, 0]]), np.array([[0.9, 0.8, 0.1], [0.2, 0.9, 0.5]])
    >>> display = FrequencyDisplay.from_predictions(Y, scores, frequencies=[9, 40, 2], k=1, bins=[1, 10, 100])
    >>> display.values.tolist(), display.n_labels.tolist()
    ([0.5, 0.5], [2, 1])
    """

    edges: NDArray[np.int64]
    values: NDArray[np.float64]
    n_labels: NDArray[np.int64]
    _: KW_ONLY
    k: int
    measure: Measure = "contribution"
    precision_at_k: float | None = None
    name: str | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: MatrixLike,
        Y: LabelsLike,
        *,
        frequencies: ArrayLike | None = None,
        Y_train: LabelsLike | None = None,
        k: int = 5,
        measure: Measure = "contribution",
        bins: int | Sequence[int] = 6,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the display of a fitted estimator on test rows.

        Parameters
        ----------
        estimator : fitted estimator
            Any estimator with ``decision_function``.
        X, Y : test data
            Y in any form that the estimator takes; unknown cells do not count.
        frequencies : array-like of shape (L,), optional
            Number of training positives of each label. Pass either ``frequencies`` or ``Y_train``.
        Y_train : labels, optional
            Training labels, whose positives are counted.
        k : int, default=5
            Number of top labels of each row.
        measure : {"contribution", "recall", "precision"}, default="contribution"
            The measure, see the class.
        bins : int or sequence of int, default=6
            Maximum number of bins, equally wide on a log scale, or their edges. Labels without training positives
            have a bin of their own.
        name, ax, **kwargs
            See :meth:`plot`; the default name is that of the estimator's class.
        """
        require_matplotlib()
        k = check_positive_integer("k", k)
        labels = as_labels_for(estimator, Y)
        training_positives = count_training_positives(frequencies, Y_train, labels.shape[1])
        counts = count_predictions((Batch(*part) for part in score_batches(estimator, X, labels, k)), k)
        name = get_display_name(estimator, name)
        return cls._from_counts(counts, training_positives, k, measure, bins, name).plot(ax, **kwargs)

    @classmethod
    def from_predictions(
        cls,
        Y: LabelsLike,
        scores: ScoresLike,
        *,
        frequencies: ArrayLike | None = None,
        Y_train: LabelsLike | None = None,
        k: int = 5,
        measure: Measure = "contribution",
        bins: int | Sequence[int] = 6,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the display of predictions.

        ``scores`` has any form that :class:`labelgap.metrics.Batch` takes: dense or sparse scores, or a tuple
        (indices, scores) as ``predict_topk`` returns it. For the other parameters see :meth:`from_estimator`.
        """
        k, batch = check_positive_integer("k", k), Batch(Y, scores)
        training_positives = count_training_positives(frequencies, Y_train, batch.n_labels)
        counts = count_predictions([batch], k)
        return cls._from_counts(counts, training_positives, k, measure, bins, name).plot(ax, **kwargs)

    @classmethod
    def _from_counts(
        cls,
        counts: LabelCounts,
        training_positives: NDArray,
        k: int,
        measure: Measure,
        bins: int | Sequence[int],
        name: str | None,
    ) -> Self:
        edges, bin_of_label = assign_bins(training_positives, bins)
        n_bins = len(edges) - 1
        totals = {part: np.bincount(bin_of_label, getattr(counts, part), n_bins) for part in LabelCounts._fields[:3]}
        divisors = {
            "contribution": np.full(n_bins, float(k * counts.n_rows)),
            "recall": totals["positives"],
            "precision": totals["predicted"],
        }[check_option("measure", measure, tuple(MEASURES))]
        values = np.divide(totals["hits"], divisors, out=np.full(n_bins, np.nan), where=divisors > 0)
        precision = counts.hits.sum() / (k * counts.n_rows) if counts.n_rows else float("nan")
        n_labels = np.bincount(bin_of_label, minlength=n_bins)
        return cls(edges, values, n_labels, k=k, measure=measure, precision_at_k=float(precision), name=name)

    def plot(self, ax: Any = None, *, name: str | None = None, **kwargs: Any) -> Self:
        name = self._set_axes(ax, name)
        if name is not None and self.precision_at_k is not None:
            name = f"{name} (P@{self.k} = {self.precision_at_k:.3f})"
        drawn = np.flatnonzero(self.n_labels)
        ticks = [f"{self._format_bin(b)}\n({self.n_labels[b]:,})" for b in drawn]
        self._check_bins(ticks)
        self._draw_curve(np.arange(len(drawn)), self.values[drawn], name, kwargs)
        start_at_zero(self.ax_, "y")
        self.ax_.set_xticks(
            range(len(ticks)), ticks, fontsize="medium" if len(ticks) <= MAX_MEDIUM_TICKS else "x-small"
        )
        return self._label_axes(
            xlabel="training positives of a label (number of such labels)",
            ylabel=MEASURES[self.measure].format(k=self.k),
        )

    def _format_bin(self, b: Any) -> str:
        low, high = int(self.edges[b]), int(self.edges[b + 1]) - 1
        return f"{low:,}" if low == high else f"{low:,}–{high:,}"

    def _check_bins(self, ticks: list[str]) -> None:
        present = [tick.get_text() for tick in self.ax_.get_xticklabels()]
        if self.ax_.lines and present != ticks:
            raise ValueError(
                f"ax shows bins {present} and this display has {ticks}; draw displays of the same training positives "
                "and bins into one plot."
            )


def count_training_positives(frequencies: ArrayLike | None, Y_train: Any, n_labels: int) -> NDArray[np.int64]:
    """Return the number of training positives of each label: ``frequencies``, or the counts in ``Y_train``."""
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


def count_predictions(batches: Iterable[Batch], k: int) -> LabelCounts:
    """Count the hits, predictions and positives of each label among the k best known cells of the rows."""
    parts = [_count_batch(batch, k) for batch in batches]
    return LabelCounts(*(sum(column) for column in zip(*parts, strict=True)))


def _count_batch(batch: Batch, k: int) -> LabelCounts:
    has_positives = batch.n_positives > 0
    indices, hits = (part[has_positives] for part in batch.ranking(k))
    cells = indices[hits], indices[indices >= 0], batch.labels.positives.indices
    n_hits, n_predicted, n_positives = (np.bincount(labels, minlength=batch.n_labels) for labels in cells)
    return LabelCounts(n_hits, n_predicted, n_positives, int(has_positives.sum()))


def assign_bins(counts: NDArray[np.int64], bins: int | Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the edges of the bins and the bin of each label.

    >>> edges, bin_of_label = assign_bins(np.array([0, 1, 3, 20, 99]), 2)
    >>> edges.tolist(), bin_of_label.tolist()
    ([0, 1, 10, 100], [0, 1, 1, 2, 2])
    """
    if isinstance(bins, int | np.integer):
        edges = _compute_log_edges(counts, check_positive_integer("bins", bins))
    else:
        edges = np.asarray(bins)
        if edges.ndim != 1 or len(edges) < 2 or edges.dtype.kind not in "iu" or (np.diff(edges) <= 0).any():
            raise ValueError(f"bins={bins!r} is neither an integer nor a rising sequence of integers.")
        if edges[0] > counts.min() or edges[-1] <= counts.max():
            raise ValueError(
                f"bins runs from {edges[0]} to below {edges[-1]} and labels have {counts.min()} to {counts.max()} "
                "training positives; widen it so that every label has a bin."
            )
    return edges.astype(np.int64), np.searchsorted(edges, counts, side="right") - 1


def _compute_log_edges(counts: NDArray[np.int64], n_bins: int) -> NDArray[np.int64]:
    positive = counts[counts > 0]
    if not len(positive):
        return np.array([0, 1])
    edges = np.geomspace(positive.min(), positive.max() + 1, n_bins + 1).round().astype(np.int64)
    return np.unique(edges if len(positive) == len(counts) else [0, 1, *edges])
