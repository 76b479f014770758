"""How trees over rows are fitted: FastXML, and a single tree of it.

Trees, rows of a leaf and the constant feature are those that were published (50, 10 and 1). So is C_δ = 1, which was
for rows as they come; here rows have length one, and a smaller forest chooses the penalty on a fifth of the training
rows.
"""

from __future__ import annotations

from labelgap.estimators import FastXML
from labelgap.reproduce.methods import Fitted, Task, choose, fit_on_all, register_method

TREES = 50
TRIAL_TREES = 20  # with fewer, strong penalties look better than they are in the whole forest
PENALTIES = [2.0**power for power in range(2, -6, -1)]  # from strong to weak


@register_method("FastXML", ranked=False)
def fit_fastxml(task: Task) -> Fitted:
    """Fit the paper's forest of 50 trees."""
    return _fit(task, TREES)


@register_method("FastXML-1", ranked=False)
def fit_one_tree(task: Task) -> Fitted:
    """Fit the first of its trees."""
    return _fit(task, 1)


def _fit(task: Task, trees: int) -> Fitted:
    estimator = FastXML(TRIAL_TREES, random_state=task.seed)
    chosen = choose(estimator, {"alpha": PENALTIES}, task, patience=2) | {"n_estimators": trees}
    return fit_on_all(estimator.set_params(**chosen), chosen, task)
