"""Whether probabilities mean what they say."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from labelgap.displays.base import REFERENCE, Display, name_of, require_matplotlib
from labelgap.gaps import Completed, calibration_error, reliability
from labelgap.losses import Logistic, get_loss
from labelgap.metrics import Batch
from labelgap.metrics.base import positive_integer
from labelgap.model_selection.criteria import labels_for, last_step

BINS = 15  # of labelgap.gaps.reliability, which `complete` uses
HISTOGRAM = "histogram"
NOTHING = 1e-12  # stands for 0 on a log scale, below what is shown


class ReliabilityDisplay(Display):
    """The share of yeses among cells of about the same probability, and above it how many such cells there are.

    On the diagonal a probability of 0.3 is right in three of ten cells. The expected calibration error (ECE) is the
    mean of |probability − share of yeses| over all cells, bin by bin.

    Parameters
    ----------
    probabilities, rates, shares : ndarray of shape (bins,)
        Of each bin of probabilities that has cells: their mean, the share of yeses, the share of all cells.
    calibration_error : float
        The ECE.
    n_bins : int
        How many bins there are between 0 and 1, empty ones too.
    name : str, optional
        What the legend says.

    Attributes
    ----------
    histogram_ax_ : matplotlib Axes
        Above the curve, shared by all displays that are drawn into the same axes.

    Examples
    --------
    >>> Y, probabilities = np.array([[1, 0], [0, np.nan]]), np.array([[0.9, 0.1], [0.1, 0.5]])
    >>> shown = ReliabilityDisplay.from_predictions(Y, probabilities, n_bins=2)
    >>> shown.rates.tolist(), round(shown.calibration_error, 3)
    ([0.0, 1.0], 0.1)
    """

    histogram_ax_: Any

    def __init__(
        self,
        probabilities: NDArray[np.float64],
        rates: NDArray[np.float64],
        shares: NDArray[np.float64],
        *,
        calibration_error: float,
        n_bins: int = BINS,
        name: str | None = None,
    ) -> None:
        self.probabilities = probabilities
        self.rates = rates
        self.shares = shares
        self.calibration_error = calibration_error
        self.n_bins = n_bins
        self.name = name

    @classmethod
    def from_predictions(
        cls,
        Y: Any,
        probabilities: Any,
        *,
        n_bins: int = BINS,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Draw it for probabilities of the known cells of Y.

        Parameters
        ----------
        Y : labels of any form, (n, L)
            Unknown cells do not count.
        probabilities : array-like of shape (n, L), or sparse matrix that stores one for each known cell
            From 0 to 1. They must not come from a model that was fitted on the same cells.
        n_bins : int, default=15
            Bins of equal width.
        name, ax, **kwargs
            See :meth:`plot`.
        """
        n_bins = positive_integer("n_bins", n_bins)
        batch = Batch(Y, probabilities)
        found = batch.known_scores().values.astype(np.float64)
        if not len(found) or found.min() < 0 or found.max() > 1:
            what = f"from {found.min():g} to {found.max():g}" if len(found) else "nothing"
            raise ValueError(
                f"probabilities holds {what} at the known cells of Y; pass numbers from 0 to 1 (labelgap.complete "
                "turns scores into probabilities)."
            )
        yes = batch.labels.encode(0, 1).data
        bins = np.array(reliability(found, yes, n_bins))
        error = calibration_error(found, yes, n_bins)
        return cls(*bins.T, calibration_error=error, n_bins=n_bins, name=name).plot(ax, **kwargs)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        Y: Any,
        *,
        n_bins: int = BINS,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Draw it for a fitted estimator and test rows.

        The estimator must have probabilities: ``predict_proba``, or logistic loss, of which 1 / (1 + exp(−score)) is
        the model's own. Other scores are no probabilities; for them use :func:`labelgap.complete` and
        :meth:`from_completed`.
        """
        require_matplotlib()
        labels = labels_for(estimator, Y)
        found = probabilities_of(estimator, X)
        return cls.from_predictions(labels, found, n_bins=n_bins, name=name_of(estimator, name), ax=ax, **kwargs)

    @classmethod
    def from_completed(cls, completed: Completed, *, name: str | None = None, ax: Any = None, **kwargs: Any) -> Self:
        """Draw it for what :func:`labelgap.complete` returned: of held-out cells that no calibration had seen."""
        bins = np.array(completed.reliability)
        shown = cls(*bins.T, calibration_error=completed.calibration_error, name=name)
        return shown.plot(ax, **kwargs)

    def plot(self, ax: Any = None, *, name: str | None = None, **kwargs: Any) -> Self:
        name = self._begin(ax, name)
        if not any(line.get_label() == REFERENCE for line in self.ax_.lines):
            self.ax_.plot([0, 1], [0, 1], color="0.5", linestyle=":", linewidth=1, label=REFERENCE)
        error = f"ECE {self.calibration_error:.3f}"
        self._curve(self.probabilities, self.rates, error if name is None else f"{name} ({error})", kwargs)
        self._draw_histogram()
        return self._finish(
            xlabel="mean probability of a bin of known cells",
            ylabel="share of yeses",
            xlim=(-0.02, 1.02),
            ylim=(-0.02, 1.02),
        )

    def _draw_histogram(self) -> None:
        """Draw the share of cells in each bin above the curve, on a log scale: most cells are near 0."""
        above = [inset for inset in self.ax_.child_axes if inset.get_label() == HISTOGRAM]
        self.histogram_ax_ = above[0] if above else self._new_histogram()
        place = np.minimum((self.probabilities * self.n_bins + 1e-9).astype(int), self.n_bins - 1)
        heights = np.full(self.n_bins, NOTHING)
        heights[place] = self.shares
        edges, color = np.linspace(0, 1, self.n_bins + 1), self.line_.get_color()
        self.histogram_ax_.stairs(heights, edges, baseline=NOTHING, fill=True, alpha=0.12, color=color)
        self.histogram_ax_.stairs(heights, edges, baseline=NOTHING, color=color, linewidth=1.2)
        low = min(self.shares.min() / 2, self.histogram_ax_.get_ylim()[0])
        self.histogram_ax_.set_ylim(low, 2)

    def _new_histogram(self) -> Any:
        inset = self.ax_.inset_axes((0, 1.03, 1, 0.22), sharex=self.ax_, label=HISTOGRAM)
        inset.set(yscale="log", ylim=(0.1, 2))
        inset.set_ylabel("share of\ncells", fontsize="small")
        inset.tick_params(labelbottom=False, labelsize="small")
        inset.minorticks_off()
        inset.spines[["top", "right"]].set_visible(False)
        return inset


def probabilities_of(estimator: Any, X: Any) -> NDArray[np.float64]:
    """Return the estimator's own probabilities of a yes, (n, L), or say that it has none."""
    if hasattr(estimator, "predict_proba"):
        found = estimator.predict_proba(X)
        # scikit-learn's estimators of several outputs give a list, one (n, 2) array for each.
        return np.column_stack([part[:, -1] for part in found]) if isinstance(found, list) else np.asarray(found)
    last = last_step(estimator)
    loss, about = getattr(last, "loss", None), getattr(last, "about", None)
    if loss is None or not isinstance(get_loss(loss), Logistic) or getattr(about, "positives_only", False):
        raise ValueError(
            f"{type(last).__name__} has scores and no probabilities; use labelgap.complete and from_completed, fit "
            "it with loss='logistic' where it has that, or pass probabilities to from_predictions."
        )
    return expit(np.asarray(estimator.decision_function(X), np.float64))
