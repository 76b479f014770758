"""The set of metrics that tables of extreme classification report."""

from __future__ import annotations

from collections.abc import Iterable

from numpy.typing import ArrayLike

from labelgap.metrics.at_k import Empty, NDCGAtK, PrecisionAtK
from labelgap.metrics.base import Metric
from labelgap.metrics.propensity import PSNDCGAtK, PSPrecisionAtK


def standard_metrics(
    ks: Iterable[int] = (1, 3, 5), propensities: ArrayLike | None = None, empty: Empty = "skip"
) -> dict[str, Metric]:
    """Return P@k and nDCG@k for each k, and with propensities PSP@k and PSnDCG@k too.

    Parameters
    ----------
    ks : iterable of int
        How many labels of each row are looked at.
    propensities : array-like of shape (L,), optional
        See :func:`labelgap.observations.label_propensities`.
    empty : {"skip", "zero"}
        Rows without known positives: left out of P@k and nDCG@k, or counted as 0.

    Examples
    --------
    >>> list(standard_metrics())
    ['P@1', 'P@3', 'P@5', 'nDCG@1', 'nDCG@3', 'nDCG@5']
    """
    ks = tuple(ks)
    metrics: dict[str, Metric] = {f"P@{k}": PrecisionAtK(k, empty) for k in ks}
    metrics |= {f"nDCG@{k}": NDCGAtK(k, empty) for k in ks}
    if propensities is not None:
        metrics |= {f"PSP@{k}": PSPrecisionAtK(k, propensities) for k in ks}
        metrics |= {f"PSnDCG@{k}": PSNDCGAtK(k, propensities) for k in ks}
    return metrics
