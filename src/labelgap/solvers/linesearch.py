"""Backtracking along a descent direction."""

from __future__ import annotations

from collections.abc import Callable

DECREASE = 1e-4
SHRINK = 0.5


def enough(trial: float, value: float, slope: float, step: float, slack: float = 0.0) -> bool:
    """Tell whether f(step) ≤ f(0) + 10⁻⁴ · step · slope + slack."""
    return trial <= value + DECREASE * step * slope + slack


def backtrack(
    value_along: Callable[[float], float],
    value: float,
    slope: float,
    *,
    step: float = 1.0,
    max_halvings: int = 30,
    slack: float = 0.0,
) -> tuple[float, float]:
    """Return the first of ``step``, and its halves, with f(step) ≤ f(0) + 10⁻⁴ · step · slope + slack, and its value.

    ``slope`` is the directional derivative at 0 and must be negative; ``slack`` is the rounding error of f. A step of
    0 means that none was found.

    >>> backtrack(lambda t: (1 - 4 * t) ** 2, value=1.0, slope=-8.0)
    (0.25, 0.0)
    """
    for _ in range(max_halvings):
        trial = value_along(step)
        if enough(trial, value, slope, step, slack):
            return step, trial
        step *= SHRINK
    return 0.0, value
