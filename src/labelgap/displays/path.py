"""A metric along a penalty."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.displays.base import Display, finite_numbers, from_zero, name_of, require_matplotlib
from labelgap.model_selection import Criterion, Selection, select
from labelgap.model_selection.criteria import last_step

SIZES_AXES = "sizes"
LOG_FROM = 10.0  # from this ratio of the largest to the least value on, the axis is logarithmic
LEAST_SINGULAR = 1e-3  # of the largest: what is smaller adds nothing to a rank


class PathDisplay(Display):
    """A held-out metric against one parameter, such as a penalty, and if asked how large the models are.

    Parameters
    ----------
    values : ndarray of shape (m,)
        Of the parameter, in rising order.
    scores : ndarray of shape (m,)
        The metric at each.
    best : int
        The place of the best of them.
    param_name, metric : str
        What the axes say.
    sizes : ndarray of shape (m,), optional
        The size of the model at each.
    size : str, optional
        What it is: "rank" or "nonzeros".
    name : str, optional
        What the legend says.

    Attributes
    ----------
    sizes_ax_ : matplotlib Axes or None
        The axes of the sizes, which share x with ``ax_``.

    Examples
    --------
    >>> from labelgap import LEML
    >>> from labelgap.datasets import make_low_rank
    >>> data = make_low_rank(200, 10, 8, rank=2, random_state=0)
    >>> shown = PathDisplay.from_estimator(LEML(2), data.X, data.Y, values=[1000.0, 0.1], metric="AUC")
    >>> shown.values.tolist(), shown.best
    ([0.1, 1000.0], 0)
    """

    sizes_ax_: Any

    def __init__(
        self,
        values: NDArray[np.float64],
        scores: NDArray[np.float64],
        *,
        best: int,
        param_name: str = "alpha",
        metric: str = "score",
        sizes: NDArray[np.float64] | None = None,
        size: str | None = None,
        name: str | None = None,
    ) -> None:
        self.values = values
        self.scores = scores
        self.best = best
        self.param_name = param_name
        self.metric = metric
        self.sizes = sizes
        self.size = size
        self.name = name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        Y: Any,
        *,
        values: Sequence[float],
        param_name: str = "alpha",
        metric: Any = "P@3",
        size: Literal["rank", "nonzeros"] | None = None,
        hold_out: Literal["rows", "cells", "positives"] = "rows",
        share: float = 0.2,
        random_state: Any = None,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Fit a clone with each value on a part of the data, and draw what it is worth on the other.

        Parameters
        ----------
        estimator : estimator
            It is not changed.
        X, Y : the training data
            Y in any form that the estimator takes, gaps included.
        values : sequence of float
            Of the parameter ``param_name``.
        metric : str, Metric or callable
            See :func:`labelgap.model_selection.get_criterion`.
        size : {"rank", "nonzeros"}, optional
            Draw the rank of the scores' factors, or the number of weights that are not 0, on an axis of its own.
        hold_out, share, random_state
            See :func:`labelgap.model_selection.select`.
        name, ax, **kwargs
            See :meth:`plot`.
        """
        require_matplotlib()
        finite_numbers("values", values)
        if size is not None and size not in SIZES:
            raise ValueError(f"size={size!r} is not known; use {' or '.join(map(repr, SIZES))}, or None.")
        metrics = [metric] if size is None else [metric, _Size(SIZES[size])]
        options: dict[str, Any] = {"hold_out": hold_out, "share": share, "random_state": random_state}
        found = select(estimator, {param_name: values}, X, Y, metric=metrics, refit=False, **options)
        settings: dict[str, Any] = {"metric": _metric_name(metric), "name": name_of(estimator, name)}
        return cls._along(found, param_name, size=size, **settings).plot(ax, **kwargs)

    @classmethod
    def from_selection(
        cls,
        selection: Selection,
        *,
        param_name: str | None = None,
        metric: str | None = None,
        column: int = 0,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the candidates that :func:`labelgap.model_selection.select` or :func:`labelgap.tune` tried.

        Of several parameters one is drawn, and the others are held at what was chosen.

        Parameters
        ----------
        selection : Selection
            Anything with ``params``, those chosen, and ``table``, whose rows have ``params`` and ``score``.
        param_name : str, optional
            Which parameter; may be left out where there is only one.
        metric : str, optional
            What the axis says; the metric's own name where the selection knows it.
        column : int, default=0
            Which of several metrics.
        name, ax, **kwargs
            See :meth:`plot`.
        """
        param_name = _only(selection.params) if param_name is None else param_name
        if param_name not in selection.params:
            raise ValueError(f"param_name={param_name!r} was not searched; use one of {', '.join(selection.params)}.")
        name = name if name is not None or selection.estimator is None else name_of(selection.estimator, None)
        metric = getattr(selection, "metrics", {column: "score"})[column] if metric is None else metric
        return cls._along(selection, param_name, column, metric=metric, name=name).plot(ax, **kwargs)

    @classmethod
    def _along(
        cls, selection: Any, param_name: str, column: int = 0, *, size: str | None = None, **settings: Any
    ) -> Self:
        """Return a display of the candidates that have the other parameters as chosen; a size is the next column."""
        held = _others(selection.params, param_name)
        rows = [row for row in selection.table if _others(row["params"], param_name) == held]
        values = finite_numbers(param_name, [row["params"][param_name] for row in rows])
        order = np.argsort(values, kind="stable")
        columns = np.array([np.atleast_1d(row["score"]) for row in rows], float)[order].T
        if np.isnan(columns[column]).all():
            raise ValueError("The metric is undefined for every value: no held-out row has the cells it compares.")
        best = int(np.flatnonzero(values[order] == selection.params[param_name])[0])
        sizes = None if size is None else columns[column + 1]
        return cls(
            values[order], columns[column], best=best, sizes=sizes, size=size, param_name=param_name, **settings
        )

    def plot(self, ax: Any = None, *, name: str | None = None, **kwargs: Any) -> Self:
        name = self._begin(ax, name)
        at, reached = self.values[self.best], self.scores[self.best]
        note = f"best {reached:.3g} at {at:.3g}"
        self._curve(self.values, self.scores, note if name is None else f"{name} ({note})", kwargs)
        color = self.line_.get_color()
        self.ax_.scatter([at], [reached], s=130, facecolors="none", edgecolors=color, linewidths=1.5, zorder=3)
        if self.values[0] > 0 and self.values[-1] >= LOG_FROM * self.values[0]:
            self.ax_.set_xscale("log")
        self.sizes_ax_ = None if self.sizes is None else self._draw_sizes(color)
        return self._finish(legend_above=True, xlabel=self.param_name, ylabel=self.metric)

    def _draw_sizes(self, color: str) -> Any:
        others = self.ax_.get_shared_x_axes().get_siblings(self.ax_)
        ax = next((other for other in others if other.get_label() == SIZES_AXES), None)
        if ax is None:
            ax = self.ax_.twinx()
            ax.set_label(SIZES_AXES)
            ax.set_ylabel(f"{_SIZE_NAMES[str(self.size)]} (dashed)")
            ax.spines["top"].set_visible(False)
            ax.yaxis.get_major_locator().set_params(integer=True)
        ax.plot(self.values, self.sizes, color=color, linestyle="--", linewidth=1, alpha=0.7)
        from_zero(ax, "y")
        return ax


@dataclass(frozen=True)
class _Size(Criterion):
    """Measures a model and not its predictions; no candidate is better for it."""

    measure: Any

    def of(self, estimator: Any, X: Any, labels: Any, seen: Any = None) -> float:
        return float(self.measure(last_step(estimator)))

    def regrets(self, scores: Any) -> NDArray[np.float64]:
        return np.zeros(len(scores))


def rank_of(model: Any) -> int:
    """Return the rank of the matrix that scores are made of: of W Hᵀ, or what the model says of itself.

    Singular values below a thousandth of the largest do not count.
    """
    if hasattr(model, "rank_"):
        return int(model.rank_)
    if not (hasattr(model, "feature_factors_") and hasattr(model, "label_factors_")):
        raise ValueError(f"size='rank' needs a model with factors, and {type(model).__name__} has none.")
    W, H = model.feature_factors_, model.label_factors_[:, : model.feature_factors_.shape[1]]
    left, right = (np.asarray(np.linalg.qr(factors.astype(np.float64), mode="r")) for factors in (W, H))
    singular = np.linalg.svd(left @ right.T, compute_uv=False)
    return int(np.count_nonzero(singular > LEAST_SINGULAR * singular[0])) if singular[0] > 0 else 0


def nonzeros_of(model: Any) -> int:
    """Return the number of weights that are not 0."""
    if not hasattr(model, "coef_"):
        raise ValueError(f"size='nonzeros' needs a model with coef_, and {type(model).__name__} has none.")
    return int(model.coef_.count_nonzero() if sp.issparse(model.coef_) else np.count_nonzero(model.coef_))


SIZES: dict[str, Callable[[Any], int]] = {"rank": rank_of, "nonzeros": nonzeros_of}
_SIZE_NAMES = {"rank": "rank", "nonzeros": "weights that are not 0"}


def _metric_name(metric: Any) -> str:
    return metric if isinstance(metric, str) else getattr(metric, "__name__", repr(metric))


def _only(params: dict[str, Any]) -> str:
    if len(params) != 1:
        raise ValueError(f"selection has {len(params)} parameters, {', '.join(params)}; pass one as param_name.")
    return next(iter(params))


def _others(params: dict[str, Any], param_name: str) -> dict[str, Any]:
    return {key: value for key, value in params.items() if key != param_name}
