"""What the displays share: figures of their own, colours, and one way to draw a curve."""

from __future__ import annotations

from abc import ABC, abstractmethod
from io import BytesIO
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from labelgap.model_selection.criteria import last_step
from labelgap.runtime import optional

# Okabe and Ito's colours less the yellow one, which is faint on white: told apart with any kind of colour vision.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
SIZE = (6.4, 4.4)
REFERENCE = "_reference"  # a label that legends leave out, of lines that show no data


def new_figure(n_columns: int = 1) -> tuple[Any, list[Any]]:
    """Return a figure that pyplot does not keep, and its axes, side by side.

    >>> figure, (left, right) = new_figure(2)
    >>> left.figure is figure
    True
    """
    pyplot = optional("matplotlib.figure", "plot")
    width = SIZE[0] if n_columns == 1 else 0.8 * SIZE[0] * n_columns
    figure = pyplot.Figure(figsize=(width, SIZE[1]), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.1)
    axes = list(figure.subplots(1, n_columns, squeeze=False)[0])
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.3, linewidth=0.6)
        ax.set_axisbelow(True)
        ax.set_prop_cycle(color=PALETTE)
    return figure, axes


class Display(ABC):
    """Holds the data of a plot and draws it.

    Without ``ax`` a figure of its own is made, which pyplot does not keep: ``figure_.savefig`` writes it, and a
    notebook shows it. To draw several into one plot pass ``ax=first.ax_``, or axes of yours. Colours and markers
    follow the number of lines that the axes have; keyword arguments that a display does not know go to matplotlib.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        Where it was drawn last.
    line_ : matplotlib Line2D
        Its curve, where it draws one.
    """

    name: str | None = None
    ax_: Any
    figure_: Any
    line_: Any

    @abstractmethod
    def plot(self, ax: Any = None, *, name: str | None = None, **kwargs: Any) -> Self:
        """Draw it.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to; a new figure by default.
        name : str, optional
            What the legend says; the display's own name by default.
        **kwargs
            For matplotlib, such as ``color`` or ``linestyle``.
        """

    def _begin(self, ax: Any, name: str | None) -> str | None:
        """Take the axes, or make some; return the name to show."""
        if ax is not None and not hasattr(ax, "plot"):
            raise TypeError(f"ax is a {type(ax).__name__}; pass one matplotlib Axes, or None for a new figure.")
        self.ax_ = new_figure()[1][0] if ax is None else ax
        self.figure_ = self.ax_.figure
        return self.name if name is None else name

    def _curve(self, x: Any, y: Any, label: str | None, kwargs: dict[str, Any], **defaults: Any) -> None:
        """Draw a line in the next colour and with the next marker of the axes."""
        number = sum(line.get_label() != REFERENCE for line in self.ax_.lines)
        style: dict[str, Any] = {
            "color": PALETTE[number % len(PALETTE)],
            "marker": MARKERS[number % len(MARKERS)],
            "markersize": 5,
            "label": label,
        }
        (self.line_,) = self.ax_.plot(x, y, **(style | defaults | plain_style(kwargs)))

    def _finish(self, *, legend_above: bool = False, **settings: Any) -> Self:
        """Name the axes, and show a legend if there is something to tell apart: where it covers little, or above."""
        self.ax_.set(**settings)
        place = {"loc": "lower left", "bbox_to_anchor": (0, 1)} if legend_above else {"loc": "best"}
        if self.ax_.get_legend_handles_labels()[0]:
            self.ax_.legend(fontsize="small", framealpha=0.9, edgecolor="none", **place)
        return self

    def _repr_png_(self) -> bytes | None:
        """Return the picture, which a notebook shows."""
        if not hasattr(self, "figure_"):
            return None
        stream = BytesIO()
        self.figure_.savefig(stream, format="png")
        return stream.getvalue()


def from_zero(ax: Any, axis: str) -> None:
    """Let an axis begin at 0 and end above all lines, those that were drawn before too."""
    data = [np.asarray(getattr(line, f"get_{axis}data")(), float) for line in ax.lines]
    most = max(float(np.nanmax(values, initial=0.0)) for values in data)
    getattr(ax, f"set_{axis}lim")(0, 1.05 * most if most > 0 else 1)


def plain_style(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a line by their full names, so that ``c`` takes the place of ``color``.

    >>> plain_style({"c": "red", "lw": 2})
    {'color': 'red', 'linewidth': 2}
    """
    cbook, lines = optional("matplotlib.cbook", "plot"), optional("matplotlib.lines", "plot")
    return cbook.normalize_kwargs(kwargs, lines.Line2D)


def name_of(estimator: Any, name: str | None) -> str:
    """Return the name given, or that of the estimator (in a pipeline of its last step)."""
    return type(last_step(estimator)).__name__ if name is None else name


def require_matplotlib() -> None:
    """Say that matplotlib is not there before any long work is done."""
    optional("matplotlib", "plot")


def finite_numbers(name: str, values: Any) -> NDArray[np.float64]:
    """Return a sequence of finite numbers as an array, or say what it is."""
    try:
        numbers = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        numbers = np.array(np.nan)
    if numbers.ndim != 1 or not len(numbers) or not np.isfinite(numbers).all():
        raise ValueError(f"{name}={values!r} is no sequence of finite numbers; pass at least one number.")
    return numbers
