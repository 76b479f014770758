"""How fast a fit descends."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from labelgap.displays.base import Display, finite_numbers, from_zero, name_of, require_matplotlib
from labelgap.metrics.base import one_of
from labelgap.model_selection.criteria import last_step

MOST_MARKERS = 40


class ObjectiveRecorder:
    """A callback that notes the objective and the time after each iteration of one fit.

    Time runs from when it was made, or from the last :meth:`start`: make it right before the fit.

    Attributes
    ----------
    objective, seconds : list of float
        After each iteration.

    Examples
    --------
    >>> from labelgap import LEML
    >>> from labelgap.datasets import make_low_rank
    >>> data = make_low_rank(100, 10, 8, rank=2, random_state=0)
    >>> record = ObjectiveRecorder()
    >>> model = LEML(2, random_state=0, callbacks=[record]).fit(data.X, data.Y)
    >>> record.objective == model.objective_, len(record.seconds) == model.n_iter_
    (True, True)
    """

    objective: list[float]
    seconds: list[float]

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Forget what was noted, and let time run from now."""
        self.objective, self.seconds = [], []
        self._began = time.perf_counter()

    def __call__(self, iteration: Any) -> None:
        if iteration.number <= len(self.objective):
            raise ValueError(
                f"This ObjectiveRecorder holds {len(self.objective)} iterations of another fit; make one for each "
                "fit, or call start() in between."
            )
        self.objective.append(float(iteration.objective))
        self.seconds.append(time.perf_counter() - self._began)

    def __repr__(self) -> str:
        return f"ObjectiveRecorder({len(self.objective)} iterations)"


class ObjectiveDisplay(Display):
    """The objective of a fit against time, or against iterations.

    Parameters
    ----------
    objective : ndarray of shape (iterations,)
        After each iteration.
    seconds : ndarray of shape (iterations,), optional
        Since the start of the fit.
    name : str, optional
        What the legend says.

    Examples
    --------
    >>> shown = ObjectiveDisplay.from_history([3.0, 2.0, 1.5], best=1.0)
    >>> shown.line_.get_xdata().tolist(), shown.line_.get_ydata().tolist()
    ([1, 2, 3], [2.0, 1.0, 0.5])
    """

    def __init__(
        self, objective: NDArray[np.float64], seconds: NDArray[np.float64] | None = None, *, name: str | None = None
    ) -> None:
        self.objective = objective
        self.seconds = seconds
        self.name = name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        Y: Any,
        *,
        against: Literal["seconds", "iterations"] = "seconds",
        best: float | None = None,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Fit a clone of an estimator that has ``callbacks``, and draw how it descends.

        The estimator itself is not changed, and its own callbacks are called too. The first fit of a process may have
        to compile kernels: fit once before where seconds matter.
        """
        require_matplotlib()
        copy, record = clone(estimator), ObjectiveRecorder()
        last = last_step(copy)
        if "callbacks" not in last.get_params(deep=False):
            raise ValueError(
                f"{type(last).__name__} has no callbacks, so its objective cannot be followed; "
                "pass what it keeps, such as objective_, to from_history."
            )
        last.set_params(callbacks=[*(last_step(estimator).callbacks or ()), record])
        record.start()
        copy.fit(X, Y)
        return cls.from_history(record, against=against, best=best, name=name_of(estimator, name), ax=ax, **kwargs)

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
        """Draw what a recorder noted, or an ``objective_`` that an estimator keeps.

        Parameters
        ----------
        history : ObjectiveRecorder, or sequence of float
            Of one fit.
        against, best
            See :meth:`plot`; a sequence has no seconds.
        name, ax, **kwargs
            See :meth:`plot`.
        """
        values = finite_numbers("history", getattr(history, "objective", history))
        seconds = getattr(history, "seconds", None)
        shown = cls(values, None if seconds is None else finite_numbers("history.seconds", seconds), name=name)
        return shown.plot(ax, against=against, best=best, **kwargs)

    def plot(
        self,
        ax: Any = None,
        *,
        name: str | None = None,
        against: Literal["seconds", "iterations"] | None = None,
        best: float | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw it.

        Parameters
        ----------
        ax, name, **kwargs
            See :meth:`Display.plot`.
        against : {"seconds", "iterations"}, optional
            What runs to the right; seconds by default where they were measured.
        best : float, optional
            The least objective known, above 0: draw (F − best) / best on a log scale, which tells fits apart that end
            near each other. Points that are not above it are left out.
        """
        across, heights, name = self._across(against), self._heights(best), self._begin(ax, name)
        x = self.seconds if across == "seconds" else np.arange(1, len(self.objective) + 1)
        marks = max(1, len(self.objective) // MOST_MARKERS)
        self._curve(x, heights, name, kwargs, markersize=4, markevery=marks)
        if best is not None:
            self.ax_.set_yscale("log")
        if across == "seconds":
            from_zero(self.ax_, "x")
        return self._finish(
            xlabel="seconds" if across == "seconds" else "iteration",
            ylabel="objective F" if best is None else "(F − best F) / best F",
        )

    def _across(self, against: str | None) -> str:
        if against is None:
            return "iterations" if self.seconds is None else "seconds"
        if one_of("against", against, ("seconds", "iterations")) == "seconds" and self.seconds is None:
            raise ValueError(
                "against='seconds' needs times, and there are none; record the fit with an ObjectiveRecorder, or use "
                "against='iterations'."
            )
        return against

    def _heights(self, best: float | None) -> NDArray[np.float64]:
        if best is None:
            return self.objective
        if not 0 < best < np.inf:
            raise ValueError(f"best={best!r} is no objective to compare with; pass a number above 0.")
        above = (self.objective - best) / best
        return np.where(above > 0, above, np.nan)
