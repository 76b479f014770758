"""Data whose features and labels are both known in some cells only, and how well the others are filled."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.datasets import load_dataset, make_completion
from labelgap.metrics import imputation_error, label_error
from labelgap.observations import Labels, as_labels, hide_cells
from labelgap.reproduce.records import Setting

N_LABELS = 10


class CellTrial(NamedTuple):
    """The data of one seed: what is known, and what is true.

    What was fitted is measured at the hidden cells of the rows that it was fitted with: it has ``decision_`` and
    ``features_``.
    """

    X: NDArray
    Y: Labels
    X_true: NDArray
    Y_true: NDArray
    row_graph: Any = None

    @property
    def n_features(self) -> int:
        """The number of features."""
        return self.X.shape[1]

    def measure(self, fitted: Any, setting: Setting) -> dict[str, float]:
        """Return the label error in percent, and the imputation error where features are hidden."""
        hidden, metrics = np.isnan(self.X), {}
        if hidden.any():
            metrics["imputation error"] = imputation_error(self.X_true, fitted.features_, hidden)
        return metrics | {"label error": label_error(self.Y_true, fitted.decision_, np.isnan(self.Y.toarray()))}


class Source(NamedTuple):
    """Takes the share of cells that are known, and a seed."""

    trial: Callable[[float, int], CellTrial]


def synthetic_name(n: int, rank: int, variance: float, n_labels: int = N_LABELS) -> str:
    """Return the name of a set of section 4.1.

    >>> synthetic_name(100, 2, 0.01)
    'synthetic n=100 r=2 var=0.01'
    """
    return f"synthetic n={n} r={rank} var={variance:g}" + (f" t={n_labels}" if n_labels != N_LABELS else "")


def own_seed(options: dict[str, Any], observed: float, seed: int) -> int:
    """Return a seed that no other setting has: with a common one all settings would have easy trials together.

    >>> own_seed({"rank": 2}, 0.1, 0) == own_seed({"rank": 2}, 0.2, 0)
    False
    """
    return crc32(f"{sorted(options.items())} {observed} {seed}".encode())


def _generated(options: dict[str, Any], observed: float, seed: int) -> CellTrial:
    data = make_completion(**options, observed=observed, random_state=own_seed(options, observed, seed))
    return CellTrial(data.X, as_labels(data.Y), data.X_true, data.Y_true)


def _synthetic(n: int, rank: int, variance: float, n_labels: int = N_LABELS) -> tuple[str, Callable[[], Source]]:
    options = {"n_samples": n, "rank": rank, "noise_variance": variance, "n_labels": n_labels}
    return synthetic_name(n, rank, variance, n_labels), lambda: Source(partial(_generated, options))


def _real(name: str, all_features: bool = False) -> Source:
    """All rows of a set, its features as they come."""
    data = load_dataset(name)
    parts = [(data.X_train, data.Y_train), (data.X_test, data.Y_test)]
    X, Y = (np.concatenate([_dense(part) for part in side if part is not None]) for side in zip(*parts, strict=True))

    def trial(observed: float, seed: int) -> CellTrial:
        shown = hide_cells(np.ones(X.shape), 1.0 if all_features else observed, random_state=2 * seed + 1)
        return CellTrial(X * shown.toarray(), hide_cells(Y, observed, random_state=2 * seed), X, Y)

    return Source(trial)


def _dense(part: Any) -> NDArray[np.float64]:
    return np.asarray(part.toarray() if sp.issparse(part) else part, float)


REAL = ("emotions", "yeast")
SOURCES: dict[str, Callable[[], Source]] = dict(
    [_synthetic(n, rank, variance) for variance in (0.01, 0.1) for rank in (2, 4) for n in (100, 400)]
    + [_synthetic(400, 2, 0.01, n_labels=2)]
    + [(name, partial(_real, name)) for name in REAL]
    + [(f"{name} with all features", partial(_real, name, all_features=True)) for name in REAL]
)
