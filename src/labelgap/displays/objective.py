"""A display of the objective during a fit."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from labelgap.displays.base import (
    Display,
    check_finite_numbers,
    get_display_name,
    require_matplotlib,
    start_at_zero,
)
from labelgap.estimators import get_final_estimator
from labelgap.metrics.base import check_option
from labelgap.observations.arguments import LabelsLike, MatrixLike

MAX_MARKERS = 40


class ObjectiveRecorder:
    """A callback that records the objective and the time after each iteration of a fit.

    The time starts when the recorder is created or :meth:`start` is called, so create it right before the fit.

    Attributes
    ----------
    objective, seconds : list of float
        The objective and the time after each iteration.

    Examples
    --------
    >>> from labelgap import LEML
    >>> from labelgap.datasets import make_low_rank
    >>> data = make_low_rank(100, 10, 8, rank=2, random_state=0)
    >>> recorder = ObjectiveRecorder()
    >>> model = LEML(2, random_state=0, callbacks=[recorder]).fit(data.X, data.Y)
    >>> recorder.objective == model.objective_, len(recorder.seconds) == model.n_iter_
    (True, True)
    """

    objective: list[float]
    seconds: list[float]

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Remove all records and restart the time."""
        self.objective, self.seconds = [], []
        self._start_time = time.perf_counter()

    def __call__(self, iteration: Any) -> None:
        if iteration.number <= len(self.objective):
            raise ValueError(
                f"This ObjectiveRecorder holds {len(self.objective)} iterations of another fit; make one for each "
                "fit, or call start() before the next fit."
            )
        self.objective.append(float(iteration.objective))
        self.seconds.append(time.perf_counter() - self._start_time)

    def __repr__(self) -> str:
        return f"ObjectiveRecorder({len(self.objective)} iterations)"


@dataclass(eq=False, repr=False)
class ObjectiveDisplay(Display):
    """The objective of a fit against time or iterations.

    Parameters
    ----------
    objective : ndarray of shape (iterations,)
        The objective after each iteration.
    seconds : ndarray of shape (iterations,), optional
        The time of each iteration since the start of the fit.
    name : str, optional
        The name in the legend.

    Examples
    --------
    >>> display = ObjectiveDisplay.from_history([3.0, 2.0, 1.5], best=1.0)
    >>> display.line_.get_xdata().tolist(), display.line_.get_ydata().tolist()
    ([1, 2, 3], [2.0, 1.0, 0.5])
    """

    objective: NDArray[np.float64]
    seconds: NDArray[np.float64] | None = None
    _: KW_ONLY
    name: str | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: MatrixLike,
        Y: LabelsLike,
        *,
        against: Literal["seconds", "iterations"] = "seconds",
        best: float | None = None,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Fit a clone of an estimator with ``callbacks``, and draw its objective.

        The estimator is not changed, and its own callbacks are called too. The first fit of a process may have to
        compile kernels: fit once before if seconds matter.

        Parameters
        ----------
        estimator : estimator
            An estimator with the parameter ``callbacks``, or a pipeline that ends with it.
        X, Y : training data
            As for the estimator's ``fit``.
        against : {"seconds", "iterations"}, default="seconds"
            The horizontal axis.
        best, name, ax, **kwargs
            See :meth:`plot`; the default name is that of the estimator's class.
        """
        require_matplotlib()
        copy, recorder = clone(estimator), ObjectiveRecorder()
        final = get_final_estimator(copy)
        if "callbacks" not in final.get_params(deep=False):
            raise ValueError(
                f"{type(final).__name__} has no callbacks, so its objective cannot be recorded; "
                "pass a sequence that it stores, such as objective_, to from_history."
            )
        final.set_params(callbacks=[*(get_final_estimator(estimator).callbacks or ()), recorder])
        recorder.start()
        copy.fit(X, Y)
        name = get_display_name(estimator, name)
        return cls.from_history(recorder, against=against, best=best, name=name, ax=ax, **kwargs)

    @classmethod
    def from_history(
        cls,
        history: ObjectiveRecorder | Sequence[float],
        *,
        against: Literal["seconds", "iterations"] | None = None,
        best: float | None = None,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the records of a recorder, or the ``objective_`` of an estimator.

        Parameters
        ----------
        history : ObjectiveRecorder, or sequence of float
            The objective during one fit; a sequence has no seconds.
        against, best, name, ax, **kwargs
            See :meth:`plot`.
        """
        objective = check_finite_numbers("history", getattr(history, "objective", history))
        seconds = getattr(history, "seconds", None)
        seconds = None if seconds is None else check_finite_numbers("history.seconds", seconds)
        return cls(objective, seconds, name=name).plot(ax, against=against, best=best, **kwargs)

    def plot(
        self,
        ax: Any = None,
        *,
        name: str | None = None,
        against: Literal["seconds", "iterations"] | None = None,
        best: float | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax, name, **kwargs
            See :meth:`Display.plot`.
        against : {"seconds", "iterations"}, optional
            The horizontal axis; by default seconds if they were recorded.
        best : float, optional
            The smallest known objective, above 0. If given, (F − best) / best is drawn on a log scale, which
            separates fits with similar final objectives. Points that are not above it are left out.
        """
        x_name, heights, name = self._choose_x(against), self._compute_heights(best), self._set_axes(ax, name)
        x = self.seconds if x_name == "seconds" else np.arange(1, len(self.objective) + 1)
        marker_step = max(1, len(self.objective) // MAX_MARKERS)
        self._draw_curve(x, heights, name, kwargs, markersize=4, markevery=marker_step)
        if best is not None:
            self.ax_.set_yscale("log")
        if x_name == "seconds":
            start_at_zero(self.ax_, "x")
        return self._label_axes(
            xlabel="seconds" if x_name == "seconds" else "iteration",
            ylabel="objective F" if best is None else "(F − best F) / best F",
        )

    def _choose_x(self, against: str | None) -> str:
        if against is None:
            return "iterations" if self.seconds is None else "seconds"
        if check_option("against", against, ("seconds", "iterations")) == "seconds" and self.seconds is None:
            raise ValueError(
                "against='seconds' needs times, and there are none; record the fit with an ObjectiveRecorder, or use "
                "against='iterations'."
            )
        return against

    def _compute_heights(self, best: float | None) -> NDArray[np.float64]:
        if best is None:
            return self.objective
        if not 0 < best < np.inf:
            raise ValueError(f"best={best!r} is not an objective to compare with; pass a number above 0.")
        excess = (self.objective - best) / best
        return np.where(excess > 0, excess, np.nan)
