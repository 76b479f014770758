"""How a method of a paper is fitted here. A method that no function is registered for is "not implemented yet"."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from sklearn.exceptions import ConvergenceWarning

from labelgap.estimators import LEML
from labelgap.model_selection import select
from labelgap.observations import Labels


@dataclass(frozen=True)
class Task:
    """Training data and what the setting fixes; everything else is chosen by validation on these data."""

    X: Any
    Y: Labels
    n_components: int
    loss: str
    seed: int
    iterations: int | None = None


class Fitted(NamedTuple):
    """An estimator fitted on all training data, what validation chose, and the seconds of that last fit."""

    estimator: Any
    params: dict[str, Any]
    seconds: float


class Method(NamedTuple):
    """A function that fits, and whether its result depends on the rank k."""

    fit: Callable[[Task], Fitted]
    ranked: bool


METHODS: dict[str, Method] = {}


def register_method(name: str, *, ranked: bool = True) -> Callable[[Callable[[Task], Fitted]], Callable]:
    """Make a function the one that fits the method of that name.

    >>> @register_method("nothing", ranked=False)
    ... def nothing(task):
    ...     return Fitted(None, {}, 0.0)
    >>> METHODS.pop("nothing").ranked
    False
    """

    def register(fit: Callable[[Task], Fitted]) -> Callable[[Task], Fitted]:
        METHODS[name] = Method(fit, ranked)
        return fit

    return register


COMPLETE_LABELS, MISSING_LABELS = "P@3", "loss"  # what validation looks at

# From strong to weak: fits become dearer as the penalty falls.
ALPHAS = [2.0**power for power in range(4, -5, -1)]


@register_method("LEML")
def fit_leml(task: Task) -> Fitted:
    """Fit LEML with α chosen on a fifth of the training rows, then once more on all of them.

    With every label known, α is the one with the best P@3: those rows have enough positives. With gaps it is the
    one with the least loss on their known cells. On Bibtex with 20 % of the cells (squared loss, k = 63, masks 0, 1
    and 2, α in ½, 1, 2, 4, 8) the criteria chose

    ============  =============  ==============
    criterion     held-out rows  held-out cells
    ============  =============  ==============
    loss          2, 2, 2        2, 2, 2
    P@3           2, 2, 2        4, 4, 4
    AUC           2, 4, 2        4, 2, 4
    Hamming loss  1, 1, ½        1, 1, 1
    ============  =============  ==============

    and the test rows then give top-3 / Hamming / AUC of 28.4 / 0.0133 / 0.828 at α = ½, 30.7 / 0.0133 / 0.857 at 1
    and 30.9 / 0.0135 / 0.880 at 2 (the paper: 28.5 / 0.0136 / 0.833). Hamming loss cannot tell ½ from 1: over five
    folds of the cells of mask 0 it counts 1997 and 1996 errors, and two of the folds prefer ½. The loss uses every
    known cell, says the same on rows and on cells of each mask, and its choice is better than the paper in all three
    figures.
    """
    estimator = LEML(n_components=task.n_components, loss=task.loss, random_state=task.seed)
    if task.iterations is not None:
        estimator.set_params(max_iter=task.iterations, tol=0.0)
    metric = COMPLETE_LABELS if task.Y.complete else MISSING_LABELS
    with warnings.catch_warnings():
        if task.iterations is not None:  # the paper stops there, converged or not
            warnings.simplefilter("ignore", ConvergenceWarning)
        found = select(
            estimator,
            {"alpha": ALPHAS},
            task.X,
            task.Y,
            metric=metric,
            hold_out="rows",
            random_state=task.seed,
            refit=False,
            patience=2,
        )
        estimator.set_params(**found.params)
        start = time.perf_counter()
        estimator.fit(task.X, task.Y)
    return Fitted(estimator, found.params, time.perf_counter() - start)
