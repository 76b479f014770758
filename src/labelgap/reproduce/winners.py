"""Which methods are the best of a setting: the one with the least error, and those that cannot be told from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, stdev

from labelgap.reproduce.records import Row

LEVEL = 0.05
ROUNDING = 1e-9  # a deviation below this share of the mean is none
NOTE = "* marks the least error of a setting, and those that a two-tailed paired t-test at 0.05 cannot tell from it."


def mark_best(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of one setting and metric, the best marked; their values are paired by seed.

    >>> from labelgap.reproduce.records import Setting
    >>> values = {"a": (1.0, 2.0, 3.0), "b": (1.1, 1.9, 3.2), "c": (2.0, 3.1, 4.0)}
    >>> rows = [Row("x", Setting("s", name, "logistic"), "label error", None, v) for name, v in values.items()]
    >>> [row.best for row in mark_best(rows)]
    [True, True, False]
    """
    best = min((row for row in rows if row.ours is not None), key=lambda row: row.ours or 0.0, default=None)
    return [row if best is None else replace(row, best=_alike(row.values, best.values)) for row in rows]


def _alike(values: tuple[float, ...], best: tuple[float, ...]) -> bool:
    """Tell whether paired values differ no more than by chance; equal ones do not, and one pair tells nothing."""
    if not values or values == best:
        return bool(values)
    differences = [a - b for a, b in zip(values, best, strict=True)]
    mean = fmean(differences)
    deviation = stdev(differences) if len(values) > 1 else 0.0
    if deviation <= ROUNDING * abs(mean):
        return mean == 0
    from scipy.stats import t

    statistic = abs(mean) * len(values) ** 0.5 / deviation
    return bool(2 * t.sf(statistic, len(values) - 1) >= LEVEL)
