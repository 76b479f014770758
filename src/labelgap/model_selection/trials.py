"""The loop of every search: fit a candidate, score it on what was held out, note it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelgap.model_selection.criteria import Criterion, get_criterion, largest_regrets
from labelgap.model_selection.splits import Fold
from labelgap.model_selection.warm import Starts
from labelgap.runtime import within

CLEARLY = 0.03
clock = time.perf_counter


def is_several(metric: Any) -> bool:
    """Tell whether a metric is a sequence of them."""
    return isinstance(metric, Sequence) and not isinstance(metric, str)


def get_criteria(metric: Any, estimator: Any) -> list[Criterion]:
    """Return the criteria that one metric or several name."""
    return [get_criterion(one, estimator) for one in (metric if is_several(metric) else [metric])]


@dataclass
class Trials:
    """Candidates that were tried, and how they did.

    A candidate that cannot be fitted is noted with its error and without a score; if none can, the first error is
    raised. A warning that the user made an error is raised at once.

    Attributes
    ----------
    folds : list of Fold
        What every candidate is fitted on and judged by; scores are means over the folds.
    metric : str, Metric, callable, or a sequence of them
        What candidates are compared by.
    starts : Starts
        Makes the candidates.
    prefix : str
        What stands before the names of parameters in the table and not in those of the estimator that is fitted.
    last_wins : bool
        Of equally good candidates the last is the best in place of the first.
    table : list of dict
        See :class:`Selection`.
    """

    folds: list[Fold]
    metric: Any
    starts: Starts
    prefix: str = ""
    last_wins: bool = False
    table: list[dict[str, Any]] = field(default_factory=list)
    _errors: list[Exception] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._criteria = get_criteria(self.metric, self.starts.estimator)

    def run(self, candidates: Iterable[dict[str, Any]], patience: int | None = None) -> None:
        """Try candidates one after the other; ``patience`` is that of :func:`select`."""
        for params in candidates:
            self.one(params)
            if patience is not None and self._is_lost(patience):
                return

    def one(self, params: dict[str, Any]) -> dict[str, Any]:
        """Try a candidate and return its row of the table."""
        start, error = clock(), None
        inner = {name.removeprefix(self.prefix): value for name, value in params.items()}
        try:
            found = [self._fit_and_score(inner, number) for number in range(len(self.folds))]
            scores, warm = np.mean([scores for scores, _ in found], axis=0).tolist(), any(warm for _, warm in found)
        except Warning:
            raise
        except Exception as problem:  # whatever a candidate dies of, the others may live
            self._errors.append(problem)
            scores, warm, error = [np.nan] * len(self._criteria), False, f"{type(problem).__name__}: {problem}"
        score = scores if is_several(self.metric) else scores[0]
        self.table.append(
            {"params": params, "score": score, "seconds": clock() - start, "warm": warm, "error": error}
        )
        return self.table[-1]

    @property
    def best(self) -> int:
        """The place of the best candidate in the table."""
        regrets = self._regrets()
        return len(regrets) - 1 - int(np.argmin(regrets[::-1])) if self.last_wins else int(np.argmin(regrets))

    def check(self) -> None:
        """Raise an error if no candidate has a score."""
        if len(self._errors) == len(self.table):
            raise self._errors[0]
        if not np.isfinite(self._regrets().min()):
            raise ValueError(
                f"metric={self.metric!r} is undefined on the held-out part ({self.folds[0].Y_valid!r}): no row there "
                "has the cells that it compares. Raise share, or choose 'Hamming' or 'loss', which need any known "
                "cell."
            )

    def _fit_and_score(self, params: dict[str, Any], number: int) -> tuple[list[float], bool]:
        fold = self.folds[number]
        candidate, warm = self.starts.candidate(params, number)
        with within(f"candidate {params}, fold {number}"):
            candidate.fit(fold.X_train, fold.Y_train)
        self.starts.keep(params, number, candidate)
        return [one.of(candidate, fold.X_valid, fold.Y_valid, fold.seen) for one in self._criteria], warm

    def _regrets(self) -> NDArray[np.float64]:
        return largest_regrets(self._criteria, self.table)

    def _is_lost(self, patience: int) -> bool:
        """Tell whether the last candidates were all clearly worse than the best one."""
        regrets = self._regrets()
        return len(self.table) > patience and bool(np.all(regrets[-patience:] - regrets.min() > CLEARLY))


@dataclass
class Budget:
    """Seconds that a search may take, its last fit included.

    >>> Budget(None).allows(1e9), Budget(0.0).allows(1.0)
    (True, False)
    """

    seconds: float | None
    now: Callable[[], float] = field(default=lambda: clock())

    def __post_init__(self) -> None:
        self._start = self.now()

    @property
    def spent(self) -> float:
        """Seconds since the start."""
        return self.now() - self._start

    def allows(self, further: float) -> bool:
        """Tell whether so many further seconds are left."""
        return self.seconds is None or self.spent + further <= self.seconds
