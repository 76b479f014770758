"""Estimators of this library and of scikit-learn's kind, fitted and asked in one way."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from labelgap.model_selection.criteria import last_step
from labelgap.observations import Labels


def fitted(estimator: Any, X: Any, labels: Labels) -> Any:
    """Return a clone that is fitted; one that knows nothing of gaps gets labels without gaps as 0 and 1.

    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> fitted(KNeighborsClassifier(1), [[0.0], [1.0]], Labels([[1, 0], [0, 1]])).predict([[0.9]])
    array([[0, 1]], dtype=int8)
    """
    learner = last_step(estimator)
    if hasattr(learner, "absent"):
        return clone(estimator).fit(X, labels)
    if not labels.complete:
        name = type(learner).__name__
        raise ValueError(f"Y has unknown cells, and {name} does not take them; pass an estimator of labelgap.")
    return clone(estimator).fit(X, labels.positives.toarray().astype(np.int8))


def scores_of(model: Any, X: Any) -> NDArray[np.float64]:
    """Return a score of each row and label, the larger the likelier: decision values, or else probabilities.

    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> scores_of(KNeighborsClassifier(2).fit([[0.0], [1.0]], np.array([[1, 0], [1, 1]])), [[0.9]])
    array([[1. , 0.5]])
    """
    if hasattr(model, "decision_function"):
        found = model.decision_function(X)
    elif hasattr(model, "predict_proba"):
        found = model.predict_proba(X)
        if isinstance(found, list):  # for each label that of its classes, of which 1 need not be one
            found = np.column_stack([_of_yes(*pair) for pair in zip(found, last_step(model).classes_, strict=True)])
    else:
        name = type(last_step(model)).__name__
        raise ValueError(f"{name} has neither decision_function nor predict_proba; pass an estimator that scores.")
    scores = np.asarray(found, np.float64)
    return scores[:, None] if scores.ndim == 1 else scores


def _of_yes(probabilities: NDArray, classes: NDArray) -> NDArray:
    return probabilities[:, np.asarray(classes) == 1].sum(axis=1)
