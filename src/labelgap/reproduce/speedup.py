"""How much faster a gradient and a Hessian product become with more cores (LEML, figure 3)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from labelgap.datasets import Dataset
from labelgap.kernels import get_backend
from labelgap.losses import get_loss
from labelgap.objectives import Features, Problem, label_cells
from labelgap.reproduce.records import Row, Setting
from labelgap.reproduce.study import Study
from labelgap.reproduce.trials import known_labels
from labelgap.runtime import available_cores, threads

REPEATS = 5


def speedups(experiment: str, study: Study) -> Iterator[Row]:
    """Yield the time with one core over the time with 1, 2, … cores, for the W step of each dataset."""
    for name in ("bibtex", "delicious"):
        setting = Setting(name, "LEML", "squared", observed=0.2, k_ratio=0.4)
        data = study.dataset(name) if study.options.keeps(setting) else None
        if isinstance(data, Dataset):
            study.tell(f"{setting}: timing on 1 to {available_cores()} cores …")
            yield from _of_dataset(experiment, setting, data)


def _of_dataset(experiment: str, setting: Setting, data: Dataset) -> Iterator[Row]:
    steps = _steps(setting, data)
    alone: dict[str, float] = {}
    for cores in range(1, available_cores() + 1):
        for name, step in steps.items():
            with threads(cores):
                seconds = _best_time(step)
            alone.setdefault(name, seconds)
            yield Row(
                experiment,
                replace(setting, cores=cores),
                f"{name} speed-up",
                values=(alone[name] / seconds,),
                seconds=seconds,
            )


def _steps(setting: Setting, data: Dataset) -> dict[str, Callable[[], Any]]:
    kernels, dtype, rng = get_backend("cpu"), np.float32, np.random.RandomState(0)
    cells = label_cells(known_labels(data, setting, 0), get_loss(setting.loss), kernels, dtype)
    problem = Problem.of(cells, Features(data.X_train, kernels, dtype, constant=True), alpha=1.0)
    k = setting.rank(data.n_features, data.n_labels)
    W, S = (rng.standard_normal((data.n_features + 1, k)).astype(dtype) for _ in range(2))
    objective = problem.given_right(rng.standard_normal((data.n_labels, k)).astype(dtype))
    hessp = objective.model(W).hessp
    return {"gradient": lambda: objective.model(W), "Hessian product": lambda: hessp(S)}


def _best_time(step: Callable[[], Any]) -> float:
    """Return the least of several times: what else runs on the machine can only add to it."""
    step()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return min(times)
