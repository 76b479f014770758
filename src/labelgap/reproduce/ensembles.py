"""Ensembles that grow: what the first few of an ensemble's learners reach, and how large they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from labelgap.reproduce.records import Experiment, Row, Setting

if TYPE_CHECKING:
    from labelgap.reproduce.study import Study


def growing(
    settings: Sequence[Setting],
    name: str,
    citation: str,
    title: str,
    *,
    metrics: Sequence[str],
    most: int,
    x: str | tuple[str, ...] = "learners",
    notes: tuple[str, ...] = (),
) -> Experiment:
    """Return the experiment that fits the ensemble of each setting once, and measures its first 1, 2, … learners.

    It goes on to ``most`` of them, and there are no numbers of a paper beside ours.
    """

    def run(study: Study) -> Iterator[Row]:
        for setting in settings:
            if study.options.keeps(setting) and study.dataset(setting.dataset) is not None:
                found = [study.measure_growing(setting, seed) for seed in range(study.options.seeds)]
                for count, of_seeds in enumerate(islice(zip(*found, strict=True), most), start=1):
                    part = replace(setting, learners=count)
                    yield from (Row(name, part, metric).filled(of_seeds) for metric in metrics)

    return Experiment(name, citation, title, run, lambda: list(settings), x, notes)


def first_learners(estimator: Any, count: int) -> Any:
    """Return the ensemble of the first learners of a fitted one; they share their arrays."""
    part = copy(estimator)
    part.n_learners, part.parts_, part.centers_ = count, estimator.parts_[:count], estimator.centers_[:count]
    return part


def megabytes(estimator: Any) -> float:
    """Return the size of all arrays that a fitted estimator keeps, in 10⁶ bytes.

    >>> from labelgap import LabelKNN
    >>> model = LabelKNN(n_neighbors=1).fit(np.eye(2), np.eye(2))
    >>> model.parts_[0][0]["embedded"].nbytes + model.centers_[0].nbytes < 1e6 * megabytes(model) < 200
    True
    """
    return _bytes([value for name, value in vars(estimator).items() if name.endswith("_")]) / 1e6


def _bytes(value: Any) -> int:
    if sp.issparse(value):
        return value.data.nbytes + value.indices.nbytes + value.indptr.nbytes
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return sum(map(_bytes, value))
    return value.nbytes if isinstance(value, np.ndarray) else 0
