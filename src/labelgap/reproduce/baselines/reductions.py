"""How label-space reductions are fitted: the rank is the table's, the rest is from a fifth of the training rows."""

from __future__ import annotations

from typing import Any

from labelgap.estimators import CPLST, CSSP, PLST, BayesianCS, CompressedSensing
from labelgap.reproduce.methods import Fitted, Task, choose, fit_on_all, register_method

PENALTIES = [4.0**power for power in range(3, -7, -1)]  # from strong to weak
FEW_PENALTIES = [4.0, 2.0, 1.0, 0.5, 0.25]  # where scoring a row takes longer than all of a regression
SPARSITIES = [3, 5, 10, 20, 40, 80]


@register_method("PLST")
def fit_plst(task: Task) -> Fitted:
    """Fit PLST with α from validation."""
    return _with_penalty(PLST(task.n_components, random_state=task.seed), PENALTIES, task)


@register_method("CPLST")
def fit_cplst(task: Task) -> Fitted:
    """Fit CPLST with α from validation."""
    return _with_penalty(CPLST(task.n_components, random_state=task.seed), PENALTIES, task)


@register_method("ML-CSSP")
def fit_cssp(task: Task) -> Fitted:
    """Fit ML-CSSP with α from validation; the seed draws the columns."""
    return _with_penalty(CSSP(task.n_components, random_state=task.seed), PENALTIES, task)


@register_method("CS")
def fit_cs(task: Task) -> Fitted:
    """Fit compressed sensing with matching pursuit: α from validation, then how many labels are recovered."""
    estimator = CompressedSensing(task.n_components, random_state=task.seed)
    chosen = choose(estimator, {"alpha": PENALTIES}, task, patience=3)
    sparsities = {"n_nonzero": [s for s in SPARSITIES if s <= task.n_components]}
    chosen |= choose(estimator.set_params(**chosen), sparsities, task) if sparsities["n_nonzero"] else {}
    return fit_on_all(estimator.set_params(**chosen), chosen, task)


@register_method("BCS")
def fit_bcs(task: Task) -> Fitted:
    """Fit Bayesian compressed sensing with α from validation."""
    return _with_penalty(BayesianCS(task.n_components, random_state=task.seed), FEW_PENALTIES, task)


def _with_penalty(estimator: Any, penalties: list[float], task: Task) -> Fitted:
    chosen = choose(estimator, {"alpha": penalties}, task, patience=3)
    return fit_on_all(estimator.set_params(**chosen), chosen, task)
