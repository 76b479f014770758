"""The base class of metrics, and the evaluation of several metrics on the same batches."""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from copy import copy
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from labelgap.metrics.batch import Batch
from labelgap.observations.arguments import LabelsLike, ScoresLike


class Metric(ABC):
    """A number computed from sums over rows, so that batches, shards and workers can be added up.

    A subclass defines :meth:`_statistics`, the sums over the rows of a batch, and :meth:`_value`, the number that
    follows from the sums over all rows. Public attributes are settings; metrics with equal settings can be merged.

    Attributes
    ----------
    greater_is_better : bool
        Whether a larger value is better.
    """

    greater_is_better: ClassVar[bool] = True
    _total: NDArray[np.float64] | None = None
    _n_labels: int | None = None

    @property
    def depth(self) -> int:
        """Number of top labels of each row that the metric needs; 0 if it does not rank."""
        return 0

    @abstractmethod
    def _statistics(self, batch: Batch) -> NDArray[np.float64]:
        """Return sums over the rows of the batch, always of the same shape."""

    @abstractmethod
    def _value(self, total: NDArray[np.float64]) -> float:
        """Return the metric from the sums over all rows."""

    def update(self, Y_true: LabelsLike, scores: ScoresLike) -> Self:
        """Add the labels and the scores of further rows, in any form that :class:`labelgap.metrics.Batch` takes."""
        return self.observe(Batch(Y_true, scores))

    def observe(self, batch: Batch) -> Self:
        """Add the rows of a batch, which several metrics can share."""
        self._check_labels(batch.n_labels)
        self._add(self._statistics(batch), batch.n_labels)
        return self

    def merge(self, other: Metric) -> Self:
        """Add all rows of another metric with the same settings."""
        own, others = self._settings(), other._settings()
        equal = own.keys() == others.keys() and all(np.array_equal(own[name], others[name]) for name in own)
        if type(other) is not type(self) or not equal:
            raise ValueError(f"other is {other!r} and cannot be merged into {self!r}; their settings must be equal.")
        if other._total is not None and other._n_labels is not None:
            self._check_labels(other._n_labels)
            self._add(other._total, other._n_labels)
        return self

    def compute(self) -> float:
        """Return the metric over all rows so far; NaN if it is undefined for each of them."""
        if self._total is None:
            raise ValueError(f"{self!r} has seen no rows; call update(Y_true, scores) before compute().")
        return self._value(self._total)

    def fresh(self) -> Self:
        """Return a metric with the same settings and without any rows."""
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
        settings = (
            f"{name}=<{len(value)} values>" if isinstance(value, np.ndarray) else f"{name}={value!r}"
            for name, value in self._settings().items()
        )
        return f"{type(self).__name__}({', '.join(settings)})"


class Ratio(Metric):
    """A metric whose sums are a numerator and a denominator."""

    def _value(self, total: NDArray[np.float64]) -> float:
        return float(total[0] / total[1]) if total[1] > 0 else float("nan")


def evaluate(metrics: Mapping[str, Metric], batches: Iterable[tuple[Any, Any]]) -> dict[str, float]:
    """Compute several metrics over batches of rows; each batch is validated and ranked once.

    Parameters
    ----------
    metrics : dict of Metric
        The metrics by name; they are not changed.
    batches : iterable of tuples (Y_true, scores)
        The labels and scores of each batch, in any form that :class:`labelgap.metrics.Batch` takes.

    Returns
    -------
    dict of float
        The value of each metric by name.

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


def check_positive_integer(name: str, value: Any) -> int:
    """Return ``value`` as int; raise ValueError if it is not an integer of 1 or more.

    >>> check_positive_integer("k", 3)
    3
    """
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name}={value!r} is not a number of labels; pass an integer of 1 or more.")
    return int(value)


def check_option(name: str, value: Any, options: tuple[str, ...]) -> Any:
    """Return ``value``; raise ValueError if it is not one of the options.

    >>> check_option("empty", "skip", ("skip", "zero"))
    'skip'
    """
    if value not in options:
        raise ValueError(f"{name}={value!r} is not understood; use {' or '.join(map(repr, options))}.")
    return value
