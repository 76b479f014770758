"""How a method of a paper is fitted here. A method that no function is registered for is "not implemented yet"."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sklearn.exceptions import ConvergenceWarning

from labelgap.estimators import LEML
from labelgap.model_selection import select
from labelgap.observations import Labels


@dataclass(frozen=True)
class Task:
    """Training data and what the setting fixes; everything else is chosen by validation on these data.

    ``X`` is None where rows have no features; ``given`` holds what validation chose for the method that
    :class:`Method` names. ``dataset`` is its name, for methods with published parameters.
    """

    X: Any
    Y: Labels
    n_components: int
    loss: str
    seed: int
    iterations: int | None = None
    criteria: tuple[str, ...] = ("P@3", "Hamming", "AUC")
    row_graph: Any = None
    given: dict[str, Any] = field(default_factory=dict)
    dataset: str = ""
    clusters: int | None = None
    learners: int | None = None


class Fitted(NamedTuple):
    """An estimator fitted on all training data, what validation chose, and the seconds of that last fit."""

    estimator: Any
    params: dict[str, Any]
    seconds: float


class Method(NamedTuple):
    """A function that fits, whether its result depends on the rank k, and whose chosen parameters it is given."""

    fit: Callable[[Task], Fitted]
    ranked: bool
    given: str | None = None


METHODS: dict[str, Method] = {}


def register_method(
    name: str, *, ranked: bool = True, given: str | None = None
) -> Callable[[Callable[[Task], Fitted]], Callable]:
    """Make a function the one that fits the method of that name.

    ``given`` names the method whose chosen parameters the task holds, so that they need not be searched twice.

    >>> @register_method("nothing", ranked=False)
    ... def nothing(task):
    ...     return Fitted(None, {}, 0.0)
    >>> METHODS.pop("nothing").ranked
    False
    """

    def register(fit: Callable[[Task], Fitted]) -> Callable[[Task], Fitted]:
        METHODS[name] = Method(fit, ranked, given)
        return fit

    return register


# From strong to weak: fits become dearer as the penalty falls.
ALPHAS = [2.0 ** (halves / 2) for halves in range(14, -13, -1)]


@register_method("LEML")
def fit_leml(task: Task) -> Fitted:
    """Fit LEML with α chosen on a fifth of the training rows, then once more on all of them.

    The paper's tables report a ranking at the top (P@k), Hamming loss and AUC, which pull α in different directions:
    AUC wants a strong penalty, Hamming loss a weak one. α is the one whose largest shortfall in what a table reports,
    measured on the held-out rows' known cells and relative to the best of each metric, is smallest.
    """
    estimator = LEML(n_components=task.n_components, loss=task.loss, random_state=task.seed)
    if task.iterations is not None:
        estimator.set_params(max_iter=task.iterations, tol=0.0)
    with warnings.catch_warnings():
        if task.iterations is not None:  # the paper stops there, converged or not
            warnings.simplefilter("ignore", ConvergenceWarning)
        chosen = choose(estimator, {"alpha": ALPHAS}, task, patience=3)
        return fit_on_all(estimator.set_params(**chosen), chosen, task)


def choose(estimator: Any, grid: Mapping[str, Sequence], task: Task, patience: int | None = None) -> dict[str, Any]:
    """Return the best parameters of a grid on a fifth of the training rows, by what the table reports.

    ``patience`` ends a grid that goes from strong to weak penalties, as in :func:`labelgap.model_selection.select`.
    """
    return select(
        estimator,
        grid,
        task.X,
        task.Y,
        metric=task.criteria,
        random_state=task.seed,
        refit=False,
        patience=patience,
    ).params


def fit_on_all(estimator: Any, chosen: dict[str, Any], task: Task) -> Fitted:
    """Fit an estimator that has the chosen parameters on all training rows."""
    start = time.perf_counter()
    estimator.fit(task.X, task.Y)
    return Fitted(estimator, chosen, time.perf_counter() - start)
