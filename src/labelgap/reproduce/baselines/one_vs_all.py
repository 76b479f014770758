"""How one-vs-all is fitted: binary relevance with the loss of LEML's tables, and linear machines for the others.

The repository and SLEEC's paper name no loss for one-vs-all; here it is the squared hinge, which is DiSMEC's.
"""

from __future__ import annotations

from labelgap.estimators import BinaryRelevance
from labelgap.reproduce.methods import ALPHAS, Fitted, Task, choose, fit_on_all, register_method

MACHINE_ALPHAS = [4.0**power for power in range(2, -10, -1)]  # from strong to weak


@register_method("BR", ranked=False)
def fit_binary_relevance(task: Task) -> Fitted:
    """Fit a linear model for each label with the loss of the setting and α from a fifth of the training rows."""
    estimator = BinaryRelevance(loss=task.loss)
    chosen = choose(estimator, {"alpha": ALPHAS[::2]}, task, patience=3)
    return fit_on_all(estimator.set_params(**chosen), chosen, task)


@register_method("OneVsAll", ranked=False)
@register_method("1-vs-All", ranked=False)
def fit_one_vs_all(task: Task) -> Fitted:
    """Fit a linear machine with the squared hinge loss for each label, α from a fifth of the training rows."""
    estimator = BinaryRelevance()
    chosen = choose(estimator, {"alpha": MACHINE_ALPHAS}, task, patience=2)
    return fit_on_all(estimator.set_params(**chosen), chosen, task)
