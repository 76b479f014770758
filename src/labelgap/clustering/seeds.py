"""Where K-means starts: rows far from each other."""

from __future__ import annotations

from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelgap.clustering.centers import Centers
from labelgap.clustering.rows import Random, Rows, different_rows

SEED_ROWS = 2_000
# With half of them the sum of squares after five rounds is 1 % higher, with half as many again 0.2 % lower.
SEED_ROWS_PER_CLUSTER = 10
DRAWS = 128


def draw_seeds(rows: Rows, count: int, rng: Random) -> NDArray:
    """Draw different rows far from each other, some of them looked at where there are many; at most ``count``."""
    different = different_rows(rows.X, max(SEED_ROWS, SEED_ROWS_PER_CLUSTER * count), rng)
    return _far_apart(Rows(different), count, rng)


def _far_apart(rows: Rows, count: int, rng: Random) -> NDArray:
    """Draw rows far from each other, or return all where they are not more than that.

    k-means++: a row is drawn with a chance in proportion to its squared distance from the seeds so far, and of a few
    draws the one stays that leaves the smallest sum of these.
    """
    if rows.n <= count:
        return rows.dense(slice(None))
    between, trials = Between(rows), 2 + int(log(count))
    seeds = [int(rng.random() * rows.n)]
    closest = between.squares(seeds)[0]
    while len(seeds) < count and closest.any():
        draws = Draws(closest, min(DRAWS, trials * (count - len(seeds))), between, rng)
        while len(seeds) < count and len(valid := draws.still_valid(closest, trials)) == trials:
            closer = np.minimum(closest, draws.squares[valid])
            best = int(np.argmin(closer.sum(axis=1)))
            seeds.append(int(draws.rows[valid[best]]))
            closest = closer[best]
    return rows.dense(seeds)


class Draws:
    """Rows drawn ahead of their turn, since one wide product is much faster than many narrow ones.

    A row was drawn with a chance in proportion to its distance then. It is thrown away, when its turn comes, with the
    chance that the distance fell by since: what is left is drawn in proportion to the distance now.
    """

    def __init__(self, closest: NDArray, size: int, between: Between, rng: Random) -> None:
        total = np.cumsum(closest)
        places = np.searchsorted(total, rng.random(size) * total[-1], side="right")
        self.rows = np.minimum(places, np.flatnonzero(closest)[-1])
        self.bars = rng.random(size) * closest[self.rows]
        self.squares = between.squares(self.rows)
        self.next = 0

    def still_valid(self, closest: NDArray, most: int) -> NDArray[np.int64]:
        """Return the places of the next draws that are not thrown away, at most so many."""
        valid = self.next + np.flatnonzero(self.bars[self.next :] < closest[self.rows[self.next :]])[:most]
        self.next = int(valid[-1]) + 1 if valid.size else len(self.rows)
        return valid


class Between:
    """Squared distances between rows."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.middle = rows.means(np.zeros(rows.n, np.int64), np.array([rows.n]))[0]
        self.from_middle = Centers(self.middle[None], rows.dtype).from_middle(rows)

    def squares(self, places: Any) -> NDArray[np.float64]:
        """‖x_i − x_j‖² of some rows i and all rows j; 0 for a row and itself, whatever rounding says."""
        ready = Centers(self.rows.dense(places), self.rows.dtype, self.middle)
        squares = self.rows.times(ready.factor).T + ready.offsets[:, None] + self.from_middle
        squares[np.arange(len(squares)), places] = 0
        return np.maximum(squares, 0)
