"""How MC-1, MC-b and what their paper compares them with are fitted: imputers with a linear machine for each label.

MC-1 and MC-b choose μ and λ, and each machine its C, by 5-fold cross-validation over known cells.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer

from labelgap.estimators import EMImputer, FPCImputer, LabelwiseSVM
from labelgap.model_selection import MC1CV, MCbCV
from labelgap.reproduce.hidden_cells import REAL
from labelgap.reproduce.methods import Fitted, Task, register_method

# The paper tries all λ on generated data and has λ = 1 on real ones.
LABEL_WEIGHTS: dict[str, list[float]] = {name: [1.0] for name in REAL}
# What comes near most errors that the paper has for EM.
PUBLISHED_EM: dict[str, Any] = {"prior_rows": 0.01, "conditional_covariances": False}
PUBLISHED_LOOP: dict[str, Any] = {"solver": "fpc", "tol": 1e-5}


class Filled(NamedTuple):
    """The decision values of all label cells, and all features."""

    decision_: NDArray
    features_: NDArray


def _fit_quietly(fit: Callable[[], Any]) -> tuple[Any, float]:
    """Return what was fitted and the seconds; the paper's stop is what it is, converged or not."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = fit()
    return fitted, time.perf_counter() - start


def _register_completion(name: str, search: type, **options: Any) -> None:
    @register_method(name, ranked=False)
    def fit(task: Task) -> Fitted:
        weights = LABEL_WEIGHTS.get(task.dataset)
        model = search(label_weights=weights, random_state=task.seed, loss=task.loss, **options)
        fitted, seconds = _fit_quietly(lambda: model.fit(task.X, task.Y))
        return Fitted(Filled(fitted.decision_, fitted.features_), fitted.best_params_, seconds)


def _register_imputer(name: str, make: Callable[[int], Any]) -> None:
    @register_method(name, ranked=False)
    def fit(task: Task) -> Fitted:
        filled, of_imputer = _fit_quietly(lambda: make(task.seed).fit_transform(task.X))
        machines = LabelwiseSVM("cv", random_state=task.seed)
        fitted, of_machines = _fit_quietly(lambda: machines.fit(filled, task.Y))
        return Fitted(Filled(fitted.decision_function(filled), filled), {}, of_imputer + of_machines)


def _simple(**options: Any) -> Callable[[int], SimpleImputer]:
    return lambda seed: SimpleImputer(keep_empty_features=True, **options)


_register_completion("MC-1", MC1CV, **PUBLISHED_LOOP)
_register_completion("MC-b", MCbCV, **PUBLISHED_LOOP)
_register_completion("MC-1 (optimum)", MC1CV, solver="accelerated", tol=1e-6)
_register_completion("MC-b (optimum)", MCbCV, solver="accelerated", tol=1e-6)
_register_imputer("FPC+SVM", lambda seed: FPCImputer(solver="fpc", tol=1e-5))
_register_imputer("EM1+SVM", lambda seed: EMImputer(1, **PUBLISHED_EM))
_register_imputer("EM4+SVM", lambda seed: EMImputer(4, **PUBLISHED_EM, random_state=seed))
_register_imputer("EM1 (whole)+SVM", lambda seed: EMImputer(1))
_register_imputer("Mean+SVM", _simple())
_register_imputer("Zero+SVM", _simple(strategy="constant", fill_value=0.0))
_register_imputer("SVM", _simple())  # on rows without gaps nothing is filled
