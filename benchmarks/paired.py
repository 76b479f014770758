"""Results of several methods on the same masks or splits: means, standard errors and paired differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

# The result of a method on one mask or split: the value of each measure, the training seconds, and notes.
Result = dict[str, Any]


def values(results: Sequence[Result], measure: str) -> NDArray[np.float64]:
    """Return the values of one measure."""
    return np.array([result[measure] for result in results])


def mean_and_error(sample: NDArray[np.float64], sign: str = "", digits: int = 2) -> str:
    """Return the mean ± its standard error, as text.

    >>> mean_and_error(np.array([1.0, 2.0, 3.0]))
    '2.00 ± 0.58'
    """
    mean = format(sample.mean(), f"{sign}.{digits}f")
    return mean if len(sample) < 2 else f"{mean} ± {sample.std(ddof=1) / np.sqrt(len(sample)):.{digits}f}"


def figures(results: Sequence[Result], measures: Sequence[str]) -> list[str]:
    """Return each measure as mean ± standard error."""
    return [mean_and_error(values(results, measure)) for measure in measures]


def lead(results: Sequence[Result], over: Sequence[Result], measures: Sequence[str]) -> list[str]:
    """Return the paired differences of results to others on the same masks, as mean ± standard error.

    >>> lead([{"P@1": 3.0}, {"P@1": 6.0}], [{"P@1": 2.0}, {"P@1": 5.0}], ["P@1"])
    ['+1.00 ± 0.00']
    """
    return [mean_and_error(values(results, measure) - values(over, measure), "+") for measure in measures]


def describe(result: Result, measures: Sequence[str]) -> str:
    """Return a result as one line of text.

    >>> describe({"P@1": 50.0, "P@5": 25.0, "seconds": 1.5}, ["P@1", "P@5"])
    'P@1 50.00, P@5 25.00 in 1.50 s'
    """
    return ", ".join(f"{measure} {result[measure]:.2f}" for measure in measures) + f" in {result['seconds']:.2f} s"
