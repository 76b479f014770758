"""Names beside points, none over another."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelgap.runtime import optional

# Where a name may stand: the offset in points from its point, and how it is aligned.
PLACES = (
    (5, 4, "left", "bottom"),
    (5, -4, "left", "top"),
    (-5, 4, "right", "bottom"),
    (-5, -4, "right", "top"),
    (0, 9, "center", "bottom"),
    (0, -9, "center", "top"),
)
POINT = 3.0  # half the width of a point that no name may cover, in points


def place_names(ax: Any, points: NDArray[np.float64], names: list[str]) -> list[Any]:
    """Write names beside their points, the first of them first.

    Those that would cover another name or one of these points, or reach out of the axes, are left out.
    """
    boxes = optional("matplotlib.transforms", "plot").Bbox
    halo = optional("matplotlib.patheffects", "plot").withStroke(linewidth=2.5, foreground="white", alpha=0.8)
    ax.figure.draw_without_rendering()  # the layout decides how large the axes are
    frame, reach = ax.get_window_extent(), POINT * ax.figure.dpi / 72
    taken = [boxes([place - reach, place + reach]) for place in ax.transData.transform(points)]
    texts: list[Any] = []
    for point, name in zip(points, names, strict=True):
        for right, up, across, along in PLACES:
            text = ax.annotate(
                name,
                point,
                (right, up),
                textcoords="offset points",
                ha=across,
                va=along,
                fontsize="small",
                path_effects=[halo],
            )
            box = text.get_window_extent()
            if _inside(box, frame) and not any(box.overlaps(other) for other in taken):
                taken.append(box)
                texts.append(text)
                break
            text.remove()
    return texts


def _inside(box: Any, frame: Any) -> bool:
    return bool(frame.x0 <= box.x0 and frame.y0 <= box.y0 and box.x1 <= frame.x1 and box.y1 <= frame.y1)
