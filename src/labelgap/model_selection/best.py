"""What searches share that are estimators themselves: they answer as the best estimator that they found."""

from __future__ import annotations

from typing import Any

from sklearn.utils.validation import check_is_fitted

from labelgap.estimators import MultiLabelEstimator
from labelgap.estimators.about import About
from labelgap.estimators.scores import Scores


def chosen(about: About) -> About:
    """Return the facts about a search for the best parameters of a method.

    >>> chosen(About("Votes.", "Cover and Hart 1967")).what
    'Votes; its parameters are chosen on held-out data.'
    """
    return about._replace(what=f"{about.what.removesuffix('.')}; its parameters are chosen on held-out data.")


def save_best(search: Any, path: Any, *, folder: bool) -> None:
    """Write the best estimator of a fitted search."""
    check_is_fitted(search)
    search.best_estimator_.save(path, folder=folder)


class BestEstimator(MultiLabelEstimator):
    """Chooses an estimator in ``fit`` and hands everything else on to it."""

    best_estimator_: Any

    def _adopt(self, best: MultiLabelEstimator) -> None:
        """Make a fitted estimator the one that answers."""
        self.best_estimator_ = best
        for name in ("container_", "n_labels_", "n_features_in_", "feature_names_in_", "label_names_in_"):
            self.__dict__.pop(name, None)
            if hasattr(best, name):
                setattr(self, name, getattr(best, name))

    def _scores(self, X: Any) -> Scores:
        return self.best_estimator_._scores(X)

    def _check_rows(self, X: Any, *, reset: bool = False) -> Any:
        return self.best_estimator_._check_rows(X)

    def save(self, path: Any, *, folder: bool = False) -> None:
        """Write the best estimator, which has the parameters that were chosen."""
        save_best(self, path, folder=folder)


def of_best(name: str) -> Any:
    """Return a property that is the attribute of that name of the best estimator."""
    return property(lambda self: getattr(self.best_estimator_, name), doc=f"``{name}`` of the best estimator.")
