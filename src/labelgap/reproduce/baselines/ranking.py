"""How rankers are fitted: WSABIE in the dimension of the setting, and LPSR over one-vs-all.

Neither paper has these sets. WSABIE's steps and its weight decay are chosen on a fifth of the training rows. LPSR has
the penalty that was chosen for one-vs-all, and 32 partitions, of which a row asks two; a partition has a tenth of the
labels, or 100 where that is more.
"""

from __future__ import annotations

from labelgap.estimators import LPSR, WSABIE
from labelgap.reproduce.methods import Fitted, Task, choose, fit_on_all, register_method

MOST_COMPONENTS = 300  # SLEEC's tables allow 0.8 L, which is 3,194 on Eurlex
STEPS = [0.03, 0.1, 0.3]
DECAYS = [0.0, 0.03, 0.1]
PARTITIONS = 32
ASKED = 2


@register_method("WSABIE")
def fit_wsabie(task: Task) -> Fitted:
    """Fit WSABIE with the length of steps, then the decay, from a fifth of the training rows."""
    estimator = WSABIE(min(task.n_components, MOST_COMPONENTS), random_state=task.seed)
    chosen = choose(estimator, {"learning_rate": STEPS}, task)
    chosen |= choose(estimator.set_params(**chosen), {"alpha": DECAYS}, task)
    return fit_on_all(estimator.set_params(**chosen), chosen, task)


@register_method("LPSR", ranked=False, given="1-vs-All")
def fit_lpsr(task: Task) -> Fitted:
    """Fit LPSR over one-vs-all, with the penalty that was chosen for that."""
    n, n_labels = task.Y.shape
    chosen = {
        "alpha": task.given["alpha"],
        "n_clusters": min(PARTITIONS, n),
        "n_candidates": max(100, n_labels // 10),
        "n_nearest": ASKED,
    }
    return fit_on_all(LPSR(**chosen, random_state=task.seed), chosen, task)
