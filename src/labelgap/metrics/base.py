"""What a metric is: sums over rows that can be added up in parts, and a number made of them."""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from copy import copy
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from labelgap.metrics.batch import Batch


class Metric(ABC):
    """A number that grows from sums over rows, so that batches, shards and workers can be added up.

    A metric says with :meth:`_statistics` what it sums over the rows of a batch, and with :meth:`_value` what number
    the sums make. Public attributes are its settings; two metrics merge if their settings are equal.
    ``greater_is_better`` says which end is good.
    """

    greater_is_better: ClassVar[bool] = True
    _total: NDArray[np.float64] | None = None
    _n_labels: int | None = None

    @property
    def depth(self) -> int:
        """How many of the best labels of each row the metric looks at; 0 if it does not rank."""
        return 0

    @abstractmethod
    def _statistics(self, batch: Batch) -> NDArray[np.float64]:
        """Return sums over the rows of the batch, always of the same shape."""

    @abstractmethod
    def _value(self, total: NDArray[np.float64]) -> float:
        """Return the metric, given the sums over all rows."""

    def update(self, Y_true: Any, scores: Any) -> Self:
        """Add rows: their labels, and the scores given to them (forms: :class:`labelgap.metrics.Batch`)."""
        return self.observe(Batch(Y_true, scores))

    def observe(self, batch: Batch) -> Self:
        """Add rows of a batch that other metrics may share."""
        self._check_labels(batch.n_labels)
        self._add(self._statistics(batch), batch.n_labels)
        return self

    def merge(self, other: Metric) -> Self:
        """Add what another metric with the same settings has seen."""
        if type(other) is not type(self) or not _equal(self._settings(), other._settings()):
            raise ValueError(f"other is {other!r} and cannot be merged into {self!r}; their settings must be equal.")
        if other._total is not None and other._n_labels is not None:
            self._check_labels(other._n_labels)
            self._add(other._total, other._n_labels)
        return self

    def compute(self) -> float:
        """Return the metric over all rows so far; NaN if none of them counts."""
        if self._total is None:
            raise ValueError(f"{self!r} has seen no rows; call update(Y_true, scores) before compute().")
        return self._value(self._total)

    def fresh(self) -> Self:
        """Return a metric with the same settings that has seen nothing."""
        new = copy(self)
        new._total = new._n_labels = None
        return new

    def _add(self, statistics: NDArray[np.float64], n_labels: int) -> None:
        self._n_labels = n_labels
        self._total = statistics if self._total is None else self._total + statistics

    def _check_labels(self, n_labels: int) -> None:
        if self._n_labels not in (None, n_labels):
            raise ValueError(
                f"{self!r} has seen {self._n_labels} labels and now gets {n_labels}; "
                "all batches must have the same labels."
            )

    def _settings(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def __repr__(self) -> str:
        shown = (
            f"{name}=<{len(value)} values>" if isinstance(value, np.ndarray) else f"{name}={value!r}"
            for name, value in self._settings().items()
        )
        return f"{type(self).__name__}({', '.join(shown)})"


class Ratio(Metric):
    """A metric whose sums are a numerator and a denominator."""

    def _value(self, total: NDArray[np.float64]) -> float:
        return float(total[0] / total[1]) if total[1] > 0 else float("nan")


def evaluate(metrics: Mapping[str, Metric], batches: Iterable[tuple[Any, Any]]) -> dict[str, float]:
    """Compute several metrics over batches ``(Y_true, scores)``; each batch is checked and ranked once for all.

    The metrics given say what to compute; they are not changed.

    Examples
    --------
    >>> from labelgap.metrics import HammingLoss, PrecisionAtK
    >>> batches = [([[1, 0]], [[0.5, -0.5]]), ([[0, 1]], [[0.5, 0.1]])]
    >>> evaluate({"P@1": PrecisionAtK(1), "Hamming": HammingLoss()}, batches)
    {'P@1': 0.5, 'Hamming': 0.25}
    """
    running = {name: metric.fresh() for name, metric in metrics.items()}
    depth = max((metric.depth for metric in running.values()), default=0)
    for Y_true, scores in batches:
        batch = Batch(Y_true, scores)
        if depth:
            batch.ranking(depth)
        for metric in running.values():
            metric.observe(batch)
    return {name: metric.compute() for name, metric in running.items()}


def positive_integer(name: str, value: Any) -> int:
    """Return ``value`` if it is an integer of 1 or more.

    >>> positive_integer("k", 3)
    3
    """
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name}={value!r} is not a number of labels; pass an integer of 1 or more.")
    return int(value)


def one_of(name: str, value: Any, allowed: tuple[str, ...]) -> Any:
    """Return ``value`` if it is allowed.

    >>> one_of("empty", "skip", ("skip", "zero"))
    'skip'
    """
    if value not in allowed:
        raise ValueError(f"{name}={value!r} is not understood; use {' or '.join(map(repr, allowed))}.")
    return value


def _equal(left: dict[str, Any], right: dict[str, Any]) -> bool:
    return left.keys() == right.keys() and all(np.array_equal(left[name], right[name]) for name in left)
