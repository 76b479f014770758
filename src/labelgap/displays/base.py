"""The base class of displays, and the figures, colours and checks that they share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from io import BytesIO
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from labelgap.estimators import get_final_estimator
from labelgap.runtime import import_optional

# Okabe and Ito's colours, distinct for colour-blind readers, without yellow, which is too light on white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
FIGURE_SIZE = (6.4, 4.4)
REFERENCE_LABEL = "_reference"  # of lines that show no data; legends leave out labels with an underscore


def new_figure(n_columns: int = 1) -> tuple[Any, list[Any]]:
    """Return a new figure, which pyplot does not register, and its axes in one row.

    >>> figure, (left, right) = new_figure(2)
    >>> left.figure is figure
    True
    """
    matplotlib_figure = import_optional("matplotlib.figure", "plot")
    width = FIGURE_SIZE[0] if n_columns == 1 else 0.8 * FIGURE_SIZE[0] * n_columns
    figure = matplotlib_figure.Figure(figsize=(width, FIGURE_SIZE[1]), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.1)
    axes = list(figure.subplots(1, n_columns, squeeze=False)[0])
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.3, linewidth=0.6)
        ax.set_axisbelow(True)
        ax.set_prop_cycle(color=PALETTE)
    return figure, axes


class Display(ABC):
    """The data of a plot and a method that draws it.

    Without ``ax``, :meth:`plot` makes a new figure, which pyplot does not register: save it with ``figure_.savefig``;
    a notebook shows it. To draw several displays into one plot, pass ``ax=first.ax_`` or your own axes. Colours and
    markers change with the number of lines in the axes. Additional keyword arguments are passed to matplotlib.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        The axes and the figure of the last plot.
    line_ : matplotlib Line2D
        The curve, if the display draws one.
    """

    name: str | None = None
    ax_: Any
    figure_: Any
    line_: Any

    @abstractmethod
    def plot(self, ax: Any = None, *, name: str | None = None, **kwargs: Any) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            The axes to draw into; by default those of a new figure.
        name : str, optional
            The name in the legend; by default the display's own name.
        **kwargs
            Passed to matplotlib, such as ``color`` or ``linestyle``.
        """

    def _set_axes(self, ax: Any, name: str | None) -> str | None:
        """Set ``ax_`` and ``figure_``; return the name for the legend."""
        if ax is not None and not hasattr(ax, "plot"):
            raise TypeError(f"ax is a {type(ax).__name__}; pass one matplotlib Axes, or None for a new figure.")
        self.ax_ = new_figure()[1][0] if ax is None else ax
        self.figure_ = self.ax_.figure
        return self.name if name is None else name

    def _draw_curve(self, x: Any, y: Any, label: str | None, kwargs: dict[str, Any], **defaults: Any) -> None:
        """Draw a line with the next colour and the next marker of the axes."""
        number = sum(line.get_label() != REFERENCE_LABEL for line in self.ax_.lines)
        style: dict[str, Any] = {
            "color": PALETTE[number % len(PALETTE)],
            "marker": MARKERS[number % len(MARKERS)],
            "markersize": 5,
            "label": label,
        }
        (self.line_,) = self.ax_.plot(x, y, **(style | defaults | normalize_style(kwargs)))

    def _label_axes(self, *, legend_above: bool = False, **settings: Any) -> Self:
        """Set properties of the axes, and add a legend if there are labels: inside the axes, or above them."""
        self.ax_.set(**settings)
        position = {"loc": "lower left", "bbox_to_anchor": (0, 1)} if legend_above else {"loc": "best"}
        if self.ax_.get_legend_handles_labels()[0]:
            self.ax_.legend(fontsize="small", framealpha=0.9, edgecolor="none", **position)
        return self

    def _repr_png_(self) -> bytes | None:
        """Return the picture that a notebook shows."""
        if not hasattr(self, "figure_"):
            return None
        stream = BytesIO()
        self.figure_.savefig(stream, format="png")
        return stream.getvalue()


def start_at_zero(ax: Any, axis: str) -> None:
    """Set the limits of an axis to 0 and to just above the largest value of all lines."""
    data = [np.asarray(getattr(line, f"get_{axis}data")(), float) for line in ax.lines]
    largest = max(float(np.nanmax(values, initial=0.0)) for values in data)
    getattr(ax, f"set_{axis}lim")(0, 1.05 * largest if largest > 0 else 1)


def normalize_style(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a line by their full names, so that ``c`` overrides ``color``.

    >>> normalize_style({"c": "red", "lw": 2})
    {'color': 'red', 'linewidth': 2}
    """
    cbook, lines = import_optional("matplotlib.cbook", "plot"), import_optional("matplotlib.lines", "plot")
    return cbook.normalize_kwargs(kwargs, lines.Line2D)


def get_display_name(estimator: Any, name: str | None) -> str:
    """Return ``name``, or by default the class name of the estimator or of the last step of a pipeline."""
    return type(get_final_estimator(estimator)).__name__ if name is None else name


def require_matplotlib() -> None:
    """Raise ImportError if matplotlib is missing; call this before any long work."""
    import_optional("matplotlib", "plot")


def check_finite_numbers(name: str, values: Any) -> NDArray[np.float64]:
    """Return a non-empty sequence of finite numbers as an array; raise ValueError for anything else."""
    try:
        numbers = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        numbers = np.array(np.nan)
    if numbers.ndim != 1 or not len(numbers) or not np.isfinite(numbers).all():
        raise ValueError(f"{name}={values!r} is not a sequence of finite numbers; pass at least one number.")
    return numbers
