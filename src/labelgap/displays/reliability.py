"""A display of the reliability of probabilities."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from labelgap.calibration import NotCalibrated
from labelgap.displays.base import REFERENCE_LABEL, Display, get_display_name, require_matplotlib
from labelgap.estimators import as_labels_for, get_final_estimator
from labelgap.gaps import Completed, calibration_error, reliability
from labelgap.losses import Logistic, get_loss
from labelgap.metrics import Batch
from labelgap.metrics.base import check_positive_integer
from labelgap.observations.arguments import LabelsLike, MatrixLike

N_BINS = 15  # the default of labelgap.gaps.reliability, which `complete` uses
HISTOGRAM_LABEL = "histogram"
ZERO_ON_LOG_SCALE = 1e-12  # below the visible range


@dataclass(eq=False, repr=False)
class ReliabilityDisplay(Display):
    """The share of positives among cells of similar probability, with a histogram of the probabilities above it.

    On the diagonal three of ten cells with a probability of 0.3 are positive. The expected calibration error (ECE) is
    the mean of |probability − share of positives| over all cells, bin by bin.

    Parameters
    ----------
    probabilities, rates, shares : ndarray of shape (bins,)
        For each bin with cells: the mean probability, the share of positives, and the share of all cells.
    calibration_error : float
        The ECE.
    n_bins : int, default=15
        Number of bins between 0 and 1, empty ones included.
    name : str, optional
        The name in the legend.

    Attributes
    ----------
    histogram_ax_ : matplotlib Axes
        The axes of the histogram, shared by all displays in the same axes.

    Examples
    --------
    >>> Y, probabilities = np.array([[1, 0], [0, np.nan]]), np.array([[0.9, 0.1], [0.1, 0.5]])
    >>> display = ReliabilityDisplay.from_predictions(Y, probabilities, n_bins=2)
    >>> display.rates.tolist(), round(display.calibration_error, 3)
    ([0.0, 1.0], 0.1)
    """

    probabilities: NDArray[np.float64]
    rates: NDArray[np.float64]
    shares: NDArray[np.float64]
    _: KW_ONLY
    calibration_error: float
    n_bins: int = N_BINS
    name: str | None = None

    @classmethod
    def from_predictions(
        cls,
        Y: LabelsLike,
        probabilities: MatrixLike,
        *,
        n_bins: int = N_BINS,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the display of predicted probabilities.

        Parameters
        ----------
        Y : labels of shape (n, L)
            The true labels in any form; unknown cells do not count.
        probabilities : array-like of shape (n, L), or sparse matrix that stores one value for each known cell
            Numbers from 0 to 1. They must not come from a model that was fitted on the same cells.
        n_bins : int, default=15
            Number of bins of equal width.
        name, ax, **kwargs
            See :meth:`plot`.
        """
        n_bins = check_positive_integer("n_bins", n_bins)
        batch = Batch(Y, probabilities)
        values = batch.known_scores().values.astype(np.float64)
        if not len(values) or values.min() < 0 or values.max() > 1:
            content = f"from {values.min():g} to {values.max():g}" if len(values) else "nothing"
            raise ValueError(
                f"probabilities holds {content} at the known cells of Y; pass numbers from 0 to 1 (labelgap.complete "
                "turns scores into probabilities)."
            )
        targets = batch.labels.encode(0, 1).data
        bins = np.array(reliability(values, targets, n_bins))
        error = calibration_error(values, targets, n_bins)
        return cls(*bins.T, calibration_error=error, n_bins=n_bins, name=name).plot(ax, **kwargs)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: MatrixLike,
        Y: LabelsLike,
        *,
        n_bins: int = N_BINS,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the display of a fitted estimator on test rows.

        The estimator must have ``predict_proba`` or logistic loss, whose probabilities are 1 / (1 + exp(−score)).
        Other scores are not probabilities; for them use :func:`labelgap.complete` and :meth:`from_completed`. For the
        other parameters see :meth:`from_predictions`.
        """
        require_matplotlib()
        labels, probabilities = as_labels_for(estimator, Y), get_probabilities(estimator, X)
        name = get_display_name(estimator, name)
        return cls.from_predictions(labels, probabilities, n_bins=n_bins, name=name, ax=ax, **kwargs)

    @classmethod
    def from_completed(cls, completed: Completed, *, name: str | None = None, ax: Any = None, **kwargs: Any) -> Self:
        """Draw the display of the result of :func:`labelgap.complete`, from its held-out cells."""
        bins = np.array(completed.reliability)
        return cls(*bins.T, calibration_error=completed.calibration_error, name=name).plot(ax, **kwargs)

    def plot(self, ax: Any = None, *, name: str | None = None, **kwargs: Any) -> Self:
        name = self._set_axes(ax, name)
        if not any(line.get_label() == REFERENCE_LABEL for line in self.ax_.lines):
            self.ax_.plot([0, 1], [0, 1], color="0.5", linestyle=":", linewidth=1, label=REFERENCE_LABEL)
        error = f"ECE {self.calibration_error:.3f}"
        self._draw_curve(self.probabilities, self.rates, error if name is None else f"{name} ({error})", kwargs)
        self._draw_histogram()
        return self._label_axes(
            xlabel="mean probability of a bin of known cells",
            ylabel="share of positives",
            xlim=(-0.02, 1.02),
            ylim=(-0.02, 1.02),
        )

    def _draw_histogram(self) -> None:
        """Draw the share of cells in each bin above the curve, on a log scale since most cells are near 0."""
        insets = [inset for inset in self.ax_.child_axes if inset.get_label() == HISTOGRAM_LABEL]
        self.histogram_ax_ = insets[0] if insets else self._make_histogram_axes()
        bin_indices = np.minimum((self.probabilities * self.n_bins + 1e-9).astype(int), self.n_bins - 1)
        heights = np.full(self.n_bins, ZERO_ON_LOG_SCALE)
        heights[bin_indices] = self.shares
        edges, color = np.linspace(0, 1, self.n_bins + 1), self.line_.get_color()
        for style in ({"fill": True, "alpha": 0.12}, {"linewidth": 1.2}):
            self.histogram_ax_.stairs(heights, edges, baseline=ZERO_ON_LOG_SCALE, color=color, **style)
        lowest = min(self.shares.min() / 2, self.histogram_ax_.get_ylim()[0])
        self.histogram_ax_.set_ylim(lowest, 2)

    def _make_histogram_axes(self) -> Any:
        inset = self.ax_.inset_axes((0, 1.03, 1, 0.22), sharex=self.ax_, label=HISTOGRAM_LABEL)
        inset.set(yscale="log", ylim=(0.1, 2))
        inset.set_ylabel("share of\ncells", fontsize="small")
        inset.tick_params(labelbottom=False, labelsize="small")
        inset.minorticks_off()
        inset.spines[["top", "right"]].set_visible(False)
        return inset


def get_probabilities(estimator: Any, X: Any) -> NDArray[np.float64]:
    """Return the estimator's own probabilities of positives, (n, L); raise ValueError if it has none."""
    try:
        probabilities = estimator.predict_proba(X)
    except (AttributeError, NotCalibrated):
        return _convert_scores(estimator, X)
    if isinstance(probabilities, list):  # scikit-learn's multi-output estimators return one (n, 2) array per output
        return np.column_stack([part[:, -1] for part in probabilities])
    return np.asarray(probabilities)


def _convert_scores(estimator: Any, X: Any) -> NDArray[np.float64]:
    """Return 1 / (1 + exp(−score)) for logistic loss; raise ValueError for other scores."""
    final = get_final_estimator(estimator)
    loss, about = getattr(final, "loss", None), getattr(final, "about", None)
    if loss is None or not isinstance(get_loss(loss), Logistic) or getattr(about, "positives_only", False):
        raise ValueError(
            f"{type(final).__name__} has scores and no probabilities; use labelgap.complete and from_completed, fit "
            "it with loss='logistic' if it has this parameter, or pass probabilities to from_predictions."
        )
    return expit(np.asarray(estimator.decision_function(X), np.float64))
