"""A display of a held-out metric along a parameter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.displays.base import (
    Display,
    check_finite_numbers,
    get_display_name,
    require_matplotlib,
    start_at_zero,
)
from labelgap.estimators import get_final_estimator
from labelgap.model_selection import Criterion, Selection, select
from labelgap.model_selection.criteria import name_metrics
from labelgap.observations.arguments import LabelsLike, MatrixLike, RandomSeed

SIZES_LABEL = "sizes"
MIN_LOG_RATIO = 10.0  # of the largest to the smallest value, for a logarithmic axis
MIN_SINGULAR_RATIO = 1e-3  # to the largest singular value; smaller ones do not count in a rank


@dataclass(eq=False, repr=False)
class PathDisplay(Display):
    """A held-out metric against one parameter, such as a penalty, optionally with the sizes of the models.

    Parameters
    ----------
    values : ndarray of shape (m,)
        The values of the parameter, in rising order.
    scores : ndarray of shape (m,)
        The metric at each value.
    best : int
        The index of the best value.
    param_name, metric : str, default="alpha" and "score"
        The labels of the axes.
    sizes : ndarray of shape (m,), optional
        The size of the model at each value.
    size : str, optional
        What the sizes are: "rank" or "nonzeros".
    name : str, optional
        The name in the legend.

    Attributes
    ----------
    sizes_ax_ : matplotlib Axes or None
        The axes of the sizes, which share x with ``ax_``.

    Examples
    --------
    >>> from labelgap import LEML
    >>> from labelgap.datasets import make_low_rank
    >>> data = make_low_rank(200, 10, 8, rank=2, random_state=0)
    >>> display = PathDisplay.from_estimator(LEML(2), data.X, data.Y, values=[1000.0, 0.1], metric="AUC")
    >>> display.values.tolist(), display.best
    ([0.1, 1000.0], 0)
    """

    values: NDArray[np.float64]
    scores: NDArray[np.float64]
    _: KW_ONLY
    best: int
    param_name: str = "alpha"
    metric: str = "score"
    sizes: NDArray[np.float64] | None = None
    size: str | None = None
    name: str | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: MatrixLike,
        Y: LabelsLike,
        *,
        values: Sequence[float],
        param_name: str = "alpha",
        metric: Any = "P@3",
        size: Literal["rank", "nonzeros"] | None = None,
        hold_out: Literal["rows", "cells", "positives"] = "rows",
        share: float = 0.2,
        random_state: RandomSeed = None,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Fit a clone with each value on one part of the data, and draw its metric on the other part.

        Parameters
        ----------
        estimator : estimator
            Any estimator with ``fit`` and ``decision_function``; it is not changed.
        X, Y : training data
            Y in any form that the estimator takes, with or without gaps.
        values : sequence of float
            The values of the parameter.
        param_name : str, default="alpha"
            The name of the parameter.
        metric : str, Metric or callable, default="P@3"
            See :func:`labelgap.model_selection.get_criterion`.
        size : {"rank", "nonzeros"}, optional
            Also draw the rank of the score matrix, or the number of nonzero weights, on a second axis.
        hold_out, share, random_state
            See :func:`labelgap.model_selection.select`.
        name, ax, **kwargs
            See :meth:`plot`; the default name is that of the estimator's class.
        """
        require_matplotlib()
        check_finite_numbers("values", values)
        if size is not None and size not in SIZE_MEASURES:
            raise ValueError(f"size={size!r} is not known; use {' or '.join(map(repr, SIZE_MEASURES))}, or None.")
        metrics = [metric] if size is None else [metric, ModelSize(SIZE_MEASURES[size])]
        options: dict[str, Any] = {"hold_out": hold_out, "share": share, "random_state": random_state}
        selection = select(estimator, {param_name: values}, X, Y, metric=metrics, refit=False, **options)
        settings: dict[str, Any] = {"metric": name_metrics(metric)[0], "name": get_display_name(estimator, name)}
        return cls._from_table(selection, param_name, size=size, **settings).plot(ax, **kwargs)

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
        """Draw the candidates of :func:`labelgap.model_selection.select` or :func:`labelgap.tune`.

        If several parameters were searched, one is drawn and the others have their chosen values.

        Parameters
        ----------
        selection : Selection
            Any object with the chosen ``params`` and a ``table`` whose rows have ``params`` and ``score``.
        param_name : str, optional
            The parameter to draw; it may be omitted if there is only one.
        metric : str, optional
            The label of the axis; by default the name of the metric if the selection has it.
        column : int, default=0
            The index of the metric if there are several.
        name, ax, **kwargs
            See :meth:`plot`.
        """
        params = selection.params
        if param_name is None:
            if len(params) != 1:
                raise ValueError(
                    f"selection has {len(params)} parameters, {', '.join(params)}; pass one as param_name."
                )
            param_name = next(iter(params))
        if param_name not in params:
            raise ValueError(f"param_name={param_name!r} was not searched; use one of {', '.join(params)}.")
        if name is None and selection.estimator is not None:
            name = get_display_name(selection.estimator, None)
        metric = getattr(selection, "metrics", {column: "score"})[column] if metric is None else metric
        return cls._from_table(selection, param_name, column, metric=metric, name=name).plot(ax, **kwargs)

    @classmethod
    def _from_table(
        cls, selection: Any, param_name: str, column: int = 0, *, size: str | None = None, **settings: Any
    ) -> Self:
        """Return a display of the candidates whose other parameters have their chosen values.

        The scores are the metric with index ``column``; with ``size`` the next metric is the size.
        """
        rows = [
            row
            for row in selection.table
            if row["params"] | {param_name: None} == selection.params | {param_name: None}
        ]
        values = check_finite_numbers(param_name, [row["params"][param_name] for row in rows])
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
        name = self._set_axes(ax, name)
        value, score = self.values[self.best], self.scores[self.best]
        label = f"best {score:.3g} at {value:.3g}"
        self._draw_curve(self.values, self.scores, label if name is None else f"{name} ({label})", kwargs)
        color = self.line_.get_color()
        self.ax_.scatter([value], [score], s=130, facecolors="none", edgecolors=color, linewidths=1.5, zorder=3)
        if self.values[0] > 0 and self.values[-1] >= MIN_LOG_RATIO * self.values[0]:
            self.ax_.set_xscale("log")
        self.sizes_ax_ = None if self.sizes is None else self._draw_sizes(color)
        return self._label_axes(legend_above=True, xlabel=self.param_name, ylabel=self.metric)

    def _draw_sizes(self, color: str) -> Any:
        siblings = self.ax_.get_shared_x_axes().get_siblings(self.ax_)
        ax = next((sibling for sibling in siblings if sibling.get_label() == SIZES_LABEL), None)
        if ax is None:
            ax = self.ax_.twinx()
            ax.set_label(SIZES_LABEL)
            ax.set_ylabel(f"{SIZE_NAMES[str(self.size)]} (dashed)")
            ax.spines["top"].set_visible(False)
            ax.yaxis.get_major_locator().set_params(integer=True)
        ax.plot(self.values, self.sizes, color=color, linestyle="--", linewidth=1, alpha=0.7)
        start_at_zero(ax, "y")
        return ax


@dataclass(frozen=True)
class ModelSize(Criterion):
    """A criterion that measures the model, not its predictions; it does not decide between candidates."""

    measure: Any
    greater_is_better: bool | None = None

    def score(self, estimator: Any, X: Any, labels: Any, seen: Any = None) -> float:
        return float(self.measure(get_final_estimator(estimator)))


def compute_rank(model: Any) -> int:
    """Return ``rank_`` of the model, or the rank of W Hᵀ.

    Singular values below a thousandth of the largest one do not count.
    """
    if hasattr(model, "rank_"):
        return int(model.rank_)
    if not (hasattr(model, "feature_factors_") and hasattr(model, "label_factors_")):
        raise ValueError(f"size='rank' needs a model with factors, and {type(model).__name__} has none.")
    W, H = model.feature_factors_, model.label_factors_[:, : model.feature_factors_.shape[1]]
    left, right = (np.asarray(np.linalg.qr(factors.astype(np.float64), mode="r")) for factors in (W, H))
    singular = np.linalg.svd(left @ right.T, compute_uv=False)
    return int(np.count_nonzero(singular > MIN_SINGULAR_RATIO * singular[0])) if singular[0] > 0 else 0


def count_nonzeros(model: Any) -> int:
    """Return the number of nonzero weights."""
    if not hasattr(model, "coef_"):
        raise ValueError(f"size='nonzeros' needs a model with coef_, and {type(model).__name__} has none.")
    return int(model.coef_.count_nonzero() if sp.issparse(model.coef_) else np.count_nonzero(model.coef_))


SIZE_MEASURES: dict[str, Callable[[Any], int]] = {"rank": compute_rank, "nonzeros": count_nonzeros}
SIZE_NAMES = {"rank": "rank", "nonzeros": "nonzero weights"}
