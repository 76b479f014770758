"""How the formulations of the one-class paper are fitted: within the bounds of its grids, in our scale.

The paper has no ½ in the squared loss, in the penalty or in the graph term. With a squared loss on the positives its
ρ, λ and λ_w λ_g are our weight, α and γ; a logistic loss on the positives has no ½ to give, so α and γ are twice the
paper's, and so is the weight of a squared loss on the unlabelled cells.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import Pipeline

from labelgap.estimators import KMeansNystroem, OneClassMF
from labelgap.model_selection import OneClassMFCV, select
from labelgap.model_selection.one_class import ALPHAS as PENALTIES
from labelgap.model_selection.one_class import GRAPH_ALPHAS as GRAPH_PENALTIES
from labelgap.model_selection.one_class import RATIOS, WEIGHTS
from labelgap.reproduce.methods import Fitted, Task, register_method

LANDMARKS = [500, 1000]
WIDTHS = ["variance", "median"]
WIDTH_FACTORS = [0.5, 1.0, 2.0]
ALTERNATIONS = 15


@dataclass(frozen=True)
class Form:
    """A loss on the positives and a loss on the unlabelled cells, all of them or a sample.

    >>> Form("logistic").weights[-1], Form("logistic", "logistic").weights[-1], Form("squared").weights[-1]
    (2.0, 1.0, 1.0)
    """

    loss: str
    loss_unlabelled: str = "squared"
    negative_target: float = -1.0
    weighted: bool = True
    subsampled: bool = False

    @property
    def scale(self) -> float:
        """Our penalties over the paper's."""
        return 1.0 if self.loss == "squared" else 2.0

    @property
    def weights(self) -> list[float]:
        """The weights of unlabelled cells to choose from."""
        scale = self.scale if self.loss_unlabelled == "squared" else 1.0
        return [scale * weight for weight in WEIGHTS] if self.weighted else [1.0]

    def params(self, task: Task) -> dict[str, Any]:
        """Return what is not searched."""
        return {
            "n_components": task.n_components,
            "loss": self.loss,
            "loss_unlabelled": self.loss_unlabelled,
            "negative_target": self.negative_target,
            "negatives": "subsampled" if self.subsampled else "all",
            "random_state": task.seed,
        }

    def search(self, task: Task, graph: bool) -> OneClassMFCV:
        """Return the search within the paper's bounds, not yet fitted."""
        return OneClassMFCV(
            **self.params(task),
            weights=self.weights,
            alphas=[self.scale * penalty for penalty in PENALTIES],
            graph_alphas=[self.scale * penalty for penalty in GRAPH_PENALTIES] if graph else None,
            ratios=RATIOS if self.subsampled else None,
            metric=task.criteria,
            max_iter=task.iterations or ALTERNATIONS,
        )


FORMS = {
    "SQ-SQ": Form("squared", negative_target=0.0, weighted=False),
    "SQ-wSQ": Form("squared"),
    "LR-wSQ": Form("logistic"),
    "LR-wLR": Form("logistic", "logistic"),
    "SQ-SQ (S)": Form("squared", negative_target=0.0, weighted=False, subsampled=True),
    "LR-LR (S)": Form("logistic", "logistic", weighted=False, subsampled=True),
}


@contextmanager
def _stopped_early() -> Iterator[None]:
    """The paper stops after 15 alternations at most, converged or not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def fit_form(form: Form, graph: bool, task: Task) -> Fitted:
    """Choose the parameters and the number of alternations on a fifth of the training data, then fit on all of it."""
    row_graph = task.row_graph if graph else None
    with _stopped_early():
        search = form.search(task, graph).fit(task.X, task.Y, row_graph=row_graph)
        estimator = clone(search.best_estimator_)
        start = time.perf_counter()
        estimator.fit(task.X, task.Y, row_graph=row_graph)
    return Fitted(estimator, search.best_params_, time.perf_counter() - start)


for _name, _form in FORMS.items():
    register_method(_name)(partial(fit_form, _form, False))
for _name in ("SQ-SQ", "SQ-wSQ", "LR-wSQ"):
    register_method(f"{_name} (graph)")(partial(fit_form, FORMS[_name], True))


@register_method("LR-wSQ-Nys", given="LR-wSQ")
def fit_with_landmarks(task: Task) -> Fitted:
    """Fit LR-wSQ on the features and their Nyström features side by side.

    As in the paper, ρ, λ and the number of alternations are those chosen without the Nyström features. On a fifth of
    the training rows the kernel's width is chosen first, around the paper's and around the median distance of rows,
    which suits rows of length one better; then the number of landmarks.
    """
    model = OneClassMF(**FORMS["LR-wSQ"].params(task), **task.given, tol=0.0)  # all alternations that were chosen
    features = KMeansNystroem(min(LANDMARKS), append=True, random_state=task.seed)
    estimator = Pipeline([("features", features), ("model", model)])
    width = {"features__gamma": WIDTHS, "features__gamma_factor": WIDTH_FACTORS}
    steps: list[dict[str, Any]] = [width, {"features__n_landmarks": LANDMARKS}]
    chosen: dict[str, Any] = {}
    with _stopped_early():
        for grid in steps:
            chosen |= select(
                estimator, grid, task.X, task.Y, metric=task.criteria, random_state=task.seed, refit=False
            ).params
            estimator.set_params(**chosen)
        start = time.perf_counter()
        estimator.fit(task.X, task.Y)
    seconds = time.perf_counter() - start
    return Fitted(estimator, task.given | {k.removeprefix("features__"): v for k, v in chosen.items()}, seconds)
