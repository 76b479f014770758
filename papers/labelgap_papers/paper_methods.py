"""Fit functions of the papers' methods: the registry, and the methods that several papers compare.

A method without a registered function appears as "not implemented" in the tables.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from sklearn.exceptions import ConvergenceWarning

from labelgap.baselines import CPLST, CSSP, LPSR, PLST, WSABIE, BayesianCS, CompressedSensing, FastXML
from labelgap.estimators import LEML, BinaryRelevance
from labelgap.model_selection import select
from labelgap.observations import Labels
from labelgap_papers.experiments import Setting


@dataclass(frozen=True)
class Task:
    """Training data and the parameters that the setting fixes; the others are chosen by validation on these data.

    ``X`` is None if rows have no features. ``tuned_params`` are the parameters chosen for another setting, see
    :class:`PaperMethod`. ``dataset`` is its name, for methods with published parameters.
    """

    X: Any
    Y: Labels
    n_components: int
    loss: str
    seed: int
    iterations: int | None = None
    criteria: tuple[str, ...] = ("P@3", "Hamming", "AUC")
    row_graph: Any = None
    tuned_params: dict[str, Any] = field(default_factory=dict)
    dataset: str = ""
    clusters: int | None = None
    learners: int | None = None


class MethodFit(NamedTuple):
    """An estimator fitted on all training data, the chosen parameters, and the seconds of that fit."""

    estimator: Any
    params: dict[str, Any]
    seconds: float


class PaperMethod(NamedTuple):
    """A fit function, whether its result depends on the rank k, and the fit whose parameters it reuses.

    Rows have length one, unless ``scaled`` is False: then they are as in the files of the dataset. The reused
    parameters are those of the method ``params_of``, or with all labels known those of the rank ``params_ratio`` · L
    if the rank is larger: the best penalty hardly depends on the rank, and a search at a large rank takes long.
    """

    fit: Callable[[Task], MethodFit]
    ranked: bool
    params_of: str | None = None
    params_ratio: float | None = None
    scaled: bool = True

    def find_source(self, setting: Setting) -> Setting | None:
        """Return the setting whose parameters are those of another setting of this method; None if it has its own.

        >>> method = PaperMethod(lambda task: MethodFit(None, {}, 0.0), ranked=True, params_ratio=0.2)
        >>> method.find_source(Setting("bibtex", "LEML", "squared", k_ratio=0.6)).k_ratio
        0.2
        """
        if self.params_of is not None:
            return replace(setting, method=self.params_of)
        if self.params_ratio is None or setting.observed < 1 or (setting.k_ratio or 0.0) <= self.params_ratio:
            return None
        return replace(setting, k_ratio=self.params_ratio)


METHODS: dict[str, PaperMethod] = {}


def register_method(
    name: str,
    *,
    ranked: bool = True,
    params_of: str | None = None,
    params_ratio: float | None = None,
    scaled: bool = True,
) -> Callable[[Callable[[Task], MethodFit]], Callable]:
    """Register the decorated function as the fit function of a method.

    Parameters that were chosen elsewhere, by ``params_of`` or ``params_ratio``, become ``task.tuned_params``.

    >>> @register_method("nothing", ranked=False)
    ... def fit_nothing(task):
    ...     return MethodFit(None, {}, 0.0)
    >>> METHODS.pop("nothing").ranked
    False
    """

    def register(fit: Callable[[Task], MethodFit]) -> Callable[[Task], MethodFit]:
        METHODS[name] = PaperMethod(fit, ranked, params_of, params_ratio, scaled)
        return fit

    return register


def choose(estimator: Any, grid: Mapping[str, Sequence], task: Task, patience: int | None = None) -> dict[str, Any]:
    """Return the best parameters of a grid on a fifth of the training rows, by the metrics of the table.

    ``patience`` stops a grid that runs from strong to weak penalties, as in :func:`labelgap.model_selection.select`.
    """
    selection = select(
        estimator,
        grid,
        task.X,
        task.Y,
        metric=task.criteria,
        random_state=task.seed,
        refit=False,
        patience=patience,
    )
    return selection.params


def fit_on_all(estimator: Any, params: dict[str, Any], task: Task) -> MethodFit:
    """Fit an estimator with the chosen parameters on all training rows."""
    estimator.set_params(**params)
    start = time.perf_counter()
    estimator.fit(task.X, task.Y)
    return MethodFit(estimator, params, time.perf_counter() - start)


def choose_and_fit(
    estimator: Any, task: Task, *grids: Mapping[str, Sequence], patience: int | None = None
) -> MethodFit:
    """Choose the parameters of one grid after the other on a fifth of the training rows, then fit on all rows.

    Parameters that were chosen elsewhere are not chosen again.
    """
    params = dict(task.tuned_params)
    for grid in grids if not params else ():
        params |= choose(estimator.set_params(**params), grid, task, patience)
    return fit_on_all(estimator, params, task)


# --- methods that several papers compare ----------------------------------------------------------------------------

# Grids run from strong to weak penalties: fits become slower as the penalty falls.
LEML_ALPHAS = [2.0**power for power in range(7, -7, -1)]
SVM_ALPHAS = [4.0**power for power in range(2, -10, -1)]
REDUCTION_ALPHAS = [4.0**power for power in range(3, -7, -1)]
BCS_ALPHAS = [4.0, 2.0, 1.0, 0.5, 0.25]  # few: scoring a row takes longer than a whole regression
CS_SPARSITIES = [3, 5, 10, 20, 40, 80]
WSABIE_MAX_COMPONENTS = 300  # SLEEC's tables allow 0.8 L, which is 3,194 on Eurlex
WSABIE_LEARNING_RATES = [0.03, 0.1, 0.3]
WSABIE_ALPHAS = [0.0, 0.03, 0.1]
LPSR_CLUSTERS = 32
LPSR_NEAREST = 2
FASTXML_TREES = 50
FASTXML_ALPHA = 1.0


@register_method("LEML", params_ratio=0.2)
def fit_leml(task: Task) -> MethodFit:
    """Fit LEML with α chosen on a fifth of the training rows, then on all of them.

    The paper's tables report P@k, Hamming loss and AUC. AUC favours a strong penalty, Hamming loss a weak one. The
    chosen α minimises the largest shortfall in the metrics of the table, each relative to its best value on the known
    cells of the held-out rows.
    """
    estimator = LEML(n_components=task.n_components, loss=task.loss, random_state=task.seed)
    if task.iterations is not None:
        estimator.set_params(max_iter=task.iterations, tol=0.0)
    with warnings.catch_warnings():
        if task.iterations is not None:  # the paper stops there, converged or not
            warnings.simplefilter("ignore", ConvergenceWarning)
        return choose_and_fit(estimator, task, {"alpha": LEML_ALPHAS}, patience=2)


@register_method("BR", ranked=False)
def fit_binary_relevance(task: Task) -> MethodFit:
    """Fit one linear model per label with the loss of the setting."""
    return choose_and_fit(BinaryRelevance(loss=task.loss), task, {"alpha": LEML_ALPHAS}, patience=3)


@register_method("OneVsAll", ranked=False)
@register_method("1-vs-All", ranked=False)
def fit_one_vs_all(task: Task) -> MethodFit:
    """Fit one linear model per label with the squared hinge loss, as DiSMEC: the papers state no loss."""
    return choose_and_fit(BinaryRelevance(), task, {"alpha": SVM_ALPHAS}, patience=2)


def _fit_reduction(estimator_class: type, alphas: Sequence[float], task: Task) -> MethodFit:
    """Fit a label-space reduction in the dimension of the setting."""
    estimator = estimator_class(task.n_components, random_state=task.seed)
    return choose_and_fit(estimator, task, {"alpha": alphas}, patience=3)


register_method("PLST")(partial(_fit_reduction, PLST, REDUCTION_ALPHAS))
register_method("CPLST")(partial(_fit_reduction, CPLST, REDUCTION_ALPHAS))
register_method("ML-CSSP")(partial(_fit_reduction, CSSP, REDUCTION_ALPHAS))
register_method("BCS", params_ratio=0.2)(partial(_fit_reduction, BayesianCS, BCS_ALPHAS))


@register_method("CS")
def fit_cs(task: Task) -> MethodFit:
    """Fit compressed sensing with matching pursuit: choose α, then the number of labels that are recovered."""
    estimator = CompressedSensing(task.n_components, random_state=task.seed)
    params = choose(estimator, {"alpha": REDUCTION_ALPHAS}, task, patience=3)
    sparsities = [sparsity for sparsity in CS_SPARSITIES if sparsity <= task.n_components]
    if sparsities:
        params |= choose(estimator.set_params(**params), {"n_nonzero": sparsities}, task)
    return fit_on_all(estimator, params, task)


@register_method("WSABIE", params_ratio=0.4)
def fit_wsabie(task: Task) -> MethodFit:
    """Fit WSABIE: choose the learning rate, then the weight decay; its paper does not use these datasets."""
    estimator = WSABIE(min(task.n_components, WSABIE_MAX_COMPONENTS), random_state=task.seed)
    return choose_and_fit(estimator, task, {"learning_rate": WSABIE_LEARNING_RATES}, {"alpha": WSABIE_ALPHAS})


@register_method("LPSR", ranked=False, params_of="1-vs-All")
def fit_lpsr(task: Task) -> MethodFit:
    """Fit LPSR on one-vs-all with the penalty chosen for that; its paper does not use these datasets.

    There are 32 partitions of a tenth of the labels each (at least 100); a row is scored by the nearest two.
    """
    n, n_labels = task.Y.shape
    params = {
        "alpha": task.tuned_params["alpha"],
        "n_clusters": min(LPSR_CLUSTERS, n),
        "n_candidates": max(100, n_labels // 10),
        "n_nearest": LPSR_NEAREST,
    }
    return fit_on_all(LPSR(random_state=task.seed), params, task)


def _fit_forest(n_trees: int, task: Task) -> MethodFit:
    """Fit the first trees of a forest with the published parameters: C_δ = 1, 10 rows per leaf, a constant feature.

    C_δ is for rows as they are, of any length.
    """
    return fit_on_all(FastXML(n_trees, alpha=FASTXML_ALPHA, random_state=task.seed), {}, task)


register_method("FastXML", ranked=False, scaled=False)(partial(_fit_forest, FASTXML_TREES))
register_method("FastXML-1", ranked=False, scaled=False)(partial(_fit_forest, 1))
