"""How SLEEC and what its paper compares it with are fitted: kNN on the features, and LEML in each cluster.

SLEEC's numbers for a set are those that its authors released; for another they are chosen as in the paper, by a
little validation of the two numbers of neighbours. The penalty of its regressors is of another loss than theirs, and
comes from validation.
"""

from __future__ import annotations

from typing import Any

from labelgap.estimators import SLEEC, LabelKNN, LocalLEML
from labelgap.reproduce.methods import ALPHAS, Fitted, Task, choose, fit_on_all, register_method


def _released(learners: int, clusters: int, kept: int, dimension: int, voting: int) -> dict[str, int]:
    return {
        "n_learners": learners,
        "n_clusters": clusters,
        "n_neighbors_embed": kept,
        "n_components": dimension,
        "n_neighbors": voting,
    }


RELEASED = {
    "bibtex": _released(1, 1, 250, 100, 25),
    "delicious": _released(1, 1, 500, 100, 70),
    "eurlex": _released(5, 3, 100, 100, 8),
    "mediamill": _released(15, 5, 300, 30, 4),
}
RELEASED_NOTE = "SLEEC has the numbers that its authors released for each set, whatever the rank; α is validated."
PENALTIES = [10.0**power for power in range(1, -5, -1)]  # from strong to weak
NEIGHBORS = {"n_neighbors_embed": [50, 100, 250], "n_neighbors": [5, 10, 20, 40]}
VOTERS = [5, 10, 20, 40, 80]
LOCAL_ALPHAS = ALPHAS[::2]  # every power of two: a candidate is a fit for each cluster


@register_method("SLEEC", ranked=False)
def fit_sleec(task: Task) -> Fitted:
    """Fit SLEEC with its released numbers, or numbers of neighbours from a fifth of the training rows; so with α."""
    estimator = SLEEC(**_ensemble(task), random_state=task.seed)
    chosen = RELEASED.get(task.dataset) or _choose_alone(estimator, NEIGHBORS, task)
    chosen = chosen | _varied(task)
    chosen |= _choose_alone(estimator.set_params(**chosen), {"alpha": PENALTIES}, task, patience=2)
    return fit_on_all(estimator.set_params(**chosen), chosen, task)


@register_method("KNN", ranked=False)
@register_method("kNN", ranked=False)
def fit_knn(task: Task) -> Fitted:
    """Let the nearest rows by cosine vote by similarity, as many as were best on a fifth of the training rows."""
    estimator = LabelKNN(random_state=task.seed)
    chosen = _choose_alone(estimator, {"n_neighbors": VOTERS}, task)
    return fit_on_all(estimator.set_params(**chosen), chosen, task)


@register_method("LocalLEML", ranked=False)
def fit_local_leml(task: Task) -> Fitted:
    """Fit LEML in the clusters that SLEEC has, in as many dimensions; one learner chooses α for all."""
    estimator = LocalLEML(**_ensemble(task), loss=task.loss, random_state=task.seed)
    chosen = _choose_alone(estimator, {"alpha": LOCAL_ALPHAS}, task, patience=3)
    return fit_on_all(estimator.set_params(**chosen), chosen, task)


def _ensemble(task: Task) -> dict[str, Any]:
    """Return the dimension, the clusters and the learners of a set, but those that the setting varies."""
    released = RELEASED.get(task.dataset, {"n_components": SLEEC().n_components})
    shape = {name: released[name] for name in ("n_components", "n_clusters", "n_learners") if name in released}
    return shape | _varied(task)


def _varied(task: Task) -> dict[str, int]:
    given = {"n_clusters": task.clusters, "n_learners": task.learners}
    return {name: value for name, value in given.items() if value is not None}


def _choose_alone(estimator: Any, grid: dict[str, list], task: Task, patience: int | None = None) -> dict[str, Any]:
    """Return the best parameters for one learner."""
    found = choose(estimator, {"n_learners": [1], **grid}, task, patience)
    return {name: value for name, value in found.items() if name in grid}
