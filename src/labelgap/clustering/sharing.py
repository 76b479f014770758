"""Sharing rows out among centres that have room for a limited number of them."""

from __future__ import annotations

from functools import cached_property
from math import ceil

import numpy as np
from numpy.typing import NDArray

from labelgap.clustering.centers import Centers
from labelgap.clustering.rows import Rows


class Shares:
    """Which centre each row has: the nearest, until a limit turns rows away."""

    def __init__(self, rows: Rows, centers: NDArray) -> None:
        self.rows, self.ready = rows, Centers(centers, rows.dtype)
        self.labels, self.excess = self.ready.nearest(rows)

    @cached_property
    def from_middle(self) -> NDArray[np.float64]:
        """What makes a squared distance of an excess."""
        return self.ready.from_middle(self.rows)

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of rows of each centre."""
        return np.bincount(self.labels, minlength=len(self.ready.offsets))

    @property
    def empty(self) -> NDArray[np.int64]:
        """The centres without a row."""
        return np.flatnonzero(self.counts == 0)

    def fill(self, centers: NDArray) -> NDArray:
        """Return centres with the empty ones put on the rows that are farthest from their own."""
        empty = self.empty
        if empty.size:
            far = np.argsort(-(self.excess + self.from_middle), kind="stable")[: len(empty)]
            centers[empty] = self.rows.dense(far)
        return centers

    def settle_within(self, most: int) -> None:
        """Turn rows away from centres with more than so many, until none has.

        A centre keeps its closest rows, ties to the lower index. It only ever gets closer ones for them, so a row may
        pass over every centre that would turn it away now, and ends where proposals one by one would lead it.
        """
        bounds = Bounds(len(self.ready.offsets), self.rows.n)
        while (away := bounds.tighten(self.labels, self.excess, self.from_middle, most)).size:
            self._go_on(away, bounds)

    def _go_on(self, away: NDArray, bounds: Bounds) -> None:
        """Give some rows their nearest centre that would not turn them away."""
        from_middle = self.from_middle[away, None]

        def barred(excess: NDArray, part: slice) -> NDArray:
            return bounds.bar(excess + from_middle[part], away[part, None])

        self.labels[away], self.excess[away] = self.ready.nearest(self.rows.among(away), barred)


class Bounds:
    """The last row that each full centre keeps, and its squared distance: what another must be below."""

    def __init__(self, n_centers: int, n_rows: int) -> None:
        self.squares, self.rows = np.full(n_centers, np.inf), np.full(n_centers, n_rows)

    def tighten(self, labels: NDArray, excess: NDArray, from_middle: NDArray, most: int) -> NDArray[np.int64]:
        """Lower the bounds of the centres that have too many rows, and return the rows that are now outside."""
        counts = np.bincount(labels, minlength=len(self.squares))
        if counts.max() <= most:
            return np.empty(0, np.int64)
        crowded = counts > most
        rows = np.flatnonzero(crowded[labels])
        squares = excess[rows] + from_middle[rows]
        order = np.lexsort((squares, labels[rows]))
        sizes = counts[crowded]
        starts = sizes.cumsum() - sizes
        last = order[starts + most - 1]
        self.squares[crowded], self.rows[crowded] = squares[last], rows[last]
        ranks = np.arange(len(order)) - np.repeat(starts, sizes)
        return np.sort(rows[order[ranks >= most]])

    def bar(self, squares: NDArray, rows: NDArray) -> NDArray[np.bool_]:
        """Tell which centres would turn rows away, given their squared distances and indices."""
        return (squares > self.squares) | ((squares == self.squares) & (rows > self.rows))


def share_out(rows: Rows, centers: NDArray, balance: float | None) -> Shares:
    """Give each row its nearest centre that has room for it."""
    shares = Shares(rows, centers)
    most = rows.n if balance is None else ceil(balance * rows.n / len(centers))
    if shares.counts.max() > most:
        shares.settle_within(most)
    return shares
