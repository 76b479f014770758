"""Centres, and the nearest of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelgap.clustering.rows import VALUES_PER_BLOCK, Rows
from labelgap.runtime import in_ranges

# Tells of some rows, by their excesses and places, which centres are barred to them.
Barred = Callable[[NDArray, slice], NDArray]

BITS = 12
VALUES_PER_RANGE = 1 << 16  # what a thread turns from products into distances stays in its cache


class Centers:
    """Centres made ready for ‖x_i − c_j‖² in float64.

    With a point m between them it is ‖x_i − m‖² + ‖c_j − m‖² + 2 m·(c_j − m) − 2 x_i·(c_j − m). Only the last product
    has the precision of the rows, and far from the origin c_j − m is small where c_j is not. What is left without the
    first summand ranks the centres of a row: the excess.
    """

    def __init__(self, centers: NDArray, dtype: Any, middle: NDArray | None = None) -> None:
        self.middle = _coarse(centers.mean(axis=0, dtype=float) if middle is None else middle)
        apart = centers - self.middle
        self.offsets = np.einsum("jf,jf->j", apart, apart) + 2 * (apart @ self.middle)
        self.factor = np.ascontiguousarray(-2 * apart.T, dtype)

    def from_middle(self, rows: Rows) -> NDArray[np.float64]:
        """‖x_i − m‖²."""
        return rows.squares - 2 * rows.times(self.middle[:, None])[:, 0] + self.middle @ self.middle

    def nearest(self, rows: Rows, barred: Barred | None = None) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The nearest centre of each row that is not barred to it, and its excess; ties go to the lower index."""
        labels, least = np.empty(rows.n, np.int64), np.empty(rows.n)

        def choose(products: NDArray, part: slice) -> None:
            excess = products + self.offsets
            if barred is not None:
                excess[barred(excess, part)] = np.inf
            labels[part] = np.argmin(excess, axis=1)
            least[part] = excess[np.arange(len(excess)), labels[part]]

        size = max(1, VALUES_PER_BLOCK // len(self.offsets))
        for first in range(0, rows.n, size):
            _in_parts(choose, rows.times(self.factor, slice(first, first + size)), first)
        return labels, least


def _coarse(point: NDArray) -> NDArray[np.float64]:
    """Round to multiples of a power of 2, so that small whole numbers less the point are exact, and ties stay ties.

    >>> _coarse(np.array([1 / 3])) * 8192
    array([2731.])
    """
    _, exponent = np.frexp(np.abs(point).max(initial=0))
    step = np.ldexp(1.0, max(int(exponent) - BITS, -1000))
    return np.round(point / step) * step


def _in_parts(work: Callable[[NDArray, slice], None], products: NDArray, first: int) -> None:
    """Call ``work`` for some rows of a block after the other, on the current threads, with their places among all."""
    step = max(1, VALUES_PER_RANGE // products.shape[1])
    in_ranges(
        lambda start, stop: work(products[start:stop], slice(first + start, first + stop)),
        [*range(0, len(products), step), len(products)],
    )
