"""MC-1 and MC-b without knowing μ and λ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from numbers import Integral
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from labelgap.estimators import MC1, MCb, MultiLabelEstimator
from labelgap.estimators.base import Outcome
from labelgap.estimators.completion import CompletionEstimator, solve_path
from labelgap.estimators.completion.rows import KnownCellsOfRows
from labelgap.estimators.completion.together import MOST_COLUMNS, solve_paths
from labelgap.estimators.parameters import check_choice, check_number
from labelgap.estimators.scores import Scores
from labelgap.losses import Loss
from labelgap.model_selection.best import chosen, of_best, save_best
from labelgap.model_selection.criteria import Criterion
from labelgap.model_selection.engine import Scored, Search
from labelgap.objectives.completion import Completion, Known
from labelgap.observations import Labels
from labelgap.runtime import progress
from labelgap.solvers.fpc import Stage, descending

LABEL_WEIGHTS = (1e-3, 1e-2, 1e-1, 1.0)
CRITERIA = ("label_error", "imputation_error")


class CellFold(NamedTuple):
    """The known cells of labels and of features that a fold trains on, and those that it holds out."""

    labels: Known
    features: Known
    held_labels: Known
    held_features: Known

    def problem(self, whole: Completion, label_weight: float) -> Completion:
        """Return the problem of the cells to train on."""
        shape, bias = (whole.n, whole.t, whole.d), whole.n_biased > 0
        return Completion(shape, self.labels, self.features, whole.loss, label_weight=label_weight, bias=bias)

    def errors(self, problem: Completion, stage: Stage) -> tuple[float, float]:
        """Return the label error in percent and the imputation error of a solution at the cells held out."""
        scores, filled = problem.decision(stage.point), problem.matrix(stage.point)[:, problem.t :]
        wrong = (scores.ravel()[self.held_labels.cells] > 0) != (self.held_labels.values == problem.loss.positive)
        cells, values = self.held_features
        size = float(np.square(values).sum())
        lost = float(np.square(filled.ravel()[cells] - values).sum())
        return 100 * float(wrong.mean()), float(np.sqrt(lost / size)) if size else float("nan")


def draw_folds(whole: Completion, n_folds: int, random_state: Any) -> list[CellFold]:
    """Share out the known cells of labels, and those of features, at random; sizes differ by one cell at most.

    >>> from labelgap.losses import Logistic
    >>> from labelgap.observations import Labels
    >>> whole = Completion.of(np.ones((3, 2)), Labels(np.eye(3)), Logistic())
    >>> [len(fold.held_labels.cells) for fold in draw_folds(whole, 2, 0)]
    [5, 4]
    """
    both = {"Y": whole.all_labels, "X": whole.features}
    for name, known in both.items():
        if len(known.cells) < n_folds:
            raise ValueError(
                f"n_folds={n_folds} is out of range; {name} has {len(known.cells)} known cells, and each fold holds "
                "out some of them. Pass more cells, or fewer folds."
            )
    rng = check_random_state(random_state)
    of_labels, of_features = (rng.permutation(np.arange(len(known.cells)) % n_folds) for known in both.values())
    return [
        CellFold(
            _some(whole.all_labels, of_labels != number),
            _some(whole.features, of_features != number),
            _some(whole.all_labels, of_labels == number),
            _some(whole.features, of_features == number),
        )
        for number in range(n_folds)
    ]


def _some(known: Known, chosen: NDArray[np.bool_]) -> Known:
    return Known(known.cells[chosen], known.values[chosen])


LESSER = Criterion(lambda labels, scores: 0.0, greater_is_better=False)  # an error


class PathFolds:
    """Follows the path of the μ's on folds of cells, for one λ after another.

    ``stages(problems)`` yields the number of a fold and a stage of its path; ``errors`` keeps, for each λ, an array
    of μ's × folds × criteria.
    """

    def __init__(self, whole: Completion, folds: list[CellFold], stages: Any, criterion: int) -> None:
        self.whole, self.folds, self.stages, self.criterion = whole, folds, stages, criterion
        self.errors: dict[float, NDArray] = {}

    def __call__(self, params: dict[str, Any]) -> list[Scored]:
        problems = [fold.problem(self.whole, params["label_weight"]) for fold in self.folds]
        found: list[list[tuple[float, float]]] = [[] for _ in self.folds]
        for number, stage in self.stages(problems):
            found[number].append(self.folds[number].errors(problems[number], stage))
        errors = np.array(found)
        self.errors[params["label_weight"]] = errors.swapaxes(0, 1)
        return [Scored(of_fold[:, [self.criterion]]) for of_fold in errors]


class CompletionCV(MultiLabelEstimator):
    """Chooses μ and λ by cross-validation over known cells, and answers as the best estimator.

    A subclass says of which estimator they are the parameters.
    """

    _of: type[CompletionEstimator]

    best_estimator_: CompletionEstimator
    best_params_: dict[str, float]
    best_score_: float
    cv_results_: dict[str, NDArray]

    def __init__(
        self,
        *,
        mu: float = 1e-5,
        label_weights: Sequence[float] | None = None,
        criterion: Literal["label_error", "imputation_error"] = "label_error",
        n_folds: int = 5,
        loss: str | Loss = "logistic",
        solver: Literal["auto", "fpc", "exact", "accelerated"] = "auto",
        decay: float = 0.25,
        max_iter: int = 1000,
        tol: float = 1e-5,
        absent: Literal["negative", "unknown"] = "negative",
        absent_features: Literal["zero", "unknown"] = "zero",
        random_state: Any = None,
        n_jobs: int | None = None,
        device: str = "auto",
        dtype: Any = "float64",
        verbose: int = 0,
    ) -> None:
        self.mu = mu
        self.label_weights = label_weights
        self.criterion = criterion
        self.n_folds = n_folds
        self.loss = loss
        self.solver = solver
        self.decay = decay
        self.max_iter = max_iter
        self.tol = tol
        self.absent = absent
        self.absent_features = absent_features
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device
        self.dtype = dtype
        self.verbose = verbose

    def fit(self, X: Any, Y: Any, observed: Any = None) -> Self:
        """Choose μ and λ on held-out cells, then complete X and Y from all of them; see :meth:`MCb.fit`."""
        return self._fit(X, Y, observed)

    def _learn(self, X: Any, labels: Labels) -> Outcome:
        best, weights = self._estimator(), _candidates(self.label_weights)
        whole = best._problem(X, labels)
        mus = descending(whole.start()[1], float(self.mu), float(self.decay))
        self._choose(mus, weights, self._search(whole, mus, weights))
        for name in ("container_", "n_labels_", "n_features_in_", "feature_names_in_", "label_names_in_"):
            if hasattr(self, name):
                setattr(best, name, getattr(self, name))
        ended = best.set_params(**self.best_params_)._learn(X, labels)
        for stage, error in zip(best.path_, self._path_errors(), strict=True):
            stage["validation_error"] = error
        self.best_estimator_ = best
        return ended

    def _scores(self, X: Any) -> Scores:
        return self.best_estimator_._scores(X)

    def save(self, path: Any, *, folder: bool = False) -> None:
        """Write the best estimator, which has the parameters that were chosen."""
        save_best(self, path, folder=folder)

    def fit_transform(self, X: Any, y: Any, observed: Any = None) -> NDArray:
        """Fit, and return the training rows completed: X where it is known, ``features_`` elsewhere."""
        self.fit(X, y, observed)
        return KnownCellsOfRows(self._check_rows(X), self.absent_features).keep_in(self.features_)

    def transform(self, X: Any) -> NDArray:
        """See :meth:`MCb.transform`."""
        check_is_fitted(self)
        return self.best_estimator_.transform(X)

    decision_ = of_best("decision_")
    labels_ = of_best("labels_")
    features_ = of_best("features_")
    rank_ = of_best("rank_")
    bias_ = of_best("bias_")
    objective_ = of_best("objective_")
    path_ = of_best("path_")
    n_iter_ = of_best("n_iter_")
    status_ = of_best("status_")

    def _estimator(self) -> CompletionEstimator:
        names = self._of().get_params().keys() & (self.get_params().keys() - {"device"})
        return self._of(**{name: getattr(self, name) for name in names})

    def _check_parameters(self) -> None:
        self._check_common()
        self._estimator()._check_parameters()
        check_choice("solver", self.solver, ("auto", "fpc", "exact", "accelerated"))
        check_choice("criterion", self.criterion, CRITERIA)
        check_number("n_folds", self.n_folds, Integral, least=2)
        _candidates(self.label_weights)

    def _search(self, whole: Completion, mus: list[float], weights: list[float]) -> Search:
        """Try every λ; the stages of a fit are the μ's of its path, judged by labels and features held out."""
        folds = draw_folds(whole, self.n_folds, self.random_state)
        path = partial(self._stages, mus=mus)
        search = Search(PathFolds(whole, folds, path, CRITERIA.index(self.criterion)), [LESSER])
        candidates = [{"label_weight": weight} for weight in weights]
        with progress(len(weights), type(self).__name__, self.verbose) as advance:
            for row in search.run_in_parallel(candidates):
                weight = row["params"]["label_weight"]
                advance(f"label_weight = {weight:g}: {self.criterion} {row['score'][0]:.4g}")
        if search.errors:
            raise search.errors[0]
        return search

    def _stages(self, problems: list[Completion], *, mus: list[float]) -> Iterator[tuple[int, Stage]]:
        options: dict[str, Any] = {"constant": self._of._constant, "tol": float(self.tol), "max_iter": self.max_iter}
        if self.solver == "fpc" and problems[0].width < MOST_COLUMNS:
            yield from solve_paths(problems, mus, **options)
            return
        solver = "accelerated" if self.solver == "auto" else self.solver
        for number, problem in enumerate(problems):
            for stage in solve_path(problem, mus, solver=solver, **options):
                yield number, stage

    def _choose(self, mus: list[float], weights: list[float], search: Search) -> None:
        """Keep the errors as a table, and the best of its rows; of equally good ones the first."""
        best = search.table[search.best]
        self.best_params_ = {"mu": mus[best["stage"]], **best["params"]}
        self.best_score_ = float(best["score"][0])
        flat = np.concatenate([search.fit.errors[weight] for weight in weights])
        self.cv_results_ = {
            "label_weight": np.repeat(weights, len(mus)),
            "mu": np.tile(mus, len(weights)),
            **{name: flat[:, :, number] for number, name in enumerate(CRITERIA)},
            **{f"mean_{name}": flat[:, :, number].mean(1) for number, name in enumerate(CRITERIA)},
        }

    def _path_errors(self) -> list[float]:
        """Return the mean error of each μ down to the best one, for the best λ."""
        table = self.cv_results_
        rows = (table["label_weight"] == self.best_params_["label_weight"]) & (table["mu"] >= self.best_params_["mu"])
        return table[f"mean_{self.criterion}"][rows].tolist()

    def __sklearn_tags__(self) -> Any:
        return self._estimator().__sklearn_tags__()


class MCbCV(CompletionCV):
    """:class:`MCb` with μ and λ chosen by cross-validation over known cells (Goldberg et al. 2010, section 4).

    The known cells of labels and those of features are shared out at random, each into ``n_folds`` parts. For each λ,
    all solutions along the falling μ's are found with one part of both left out, and judged by it; the errors are
    averaged over the parts. The last fit is on all known cells, along the same μ's down to the one chosen.

    Parameters
    ----------
    mu : float, default=1e-5
        The smallest candidate for μ; the others are those that the path goes through.
    label_weights : sequence of float, optional
        Candidates for λ; 1e-3, 1e-2, 1e-1 and 1 by default, the paper's. A single one is a fixed choice.
    criterion : {"label_error", "imputation_error"}, default="label_error"
        What is smallest at the best μ and λ: the share of held-out labels that are wrong, or the relative error of
        held-out features. Of equally good pairs the one with the smallest λ is taken, and then the largest μ.
    n_folds : int, default=5
        The number of parts.
    loss, decay, max_iter, tol, absent, absent_features, dtype, verbose
        As in :class:`MCb`.
    device : str, default="auto"
        Deprecated; has no effect.
    solver : {"auto", "fpc", "exact", "accelerated"}, default="auto"
        As in :class:`MCb`. With "fpc" and fewer than 128 columns the parts are solved side by side, which takes half
        the time.
    random_state : int, RandomState or None
        Seeds the parts.
    n_jobs : int, optional
        Threads, each with another λ; all cores by default. The result does not depend on it.

    Attributes
    ----------
    best_params_ : dict
        "mu" and "label_weight".
    best_score_ : float
        Their mean error on what was held out, in percent for labels.
    best_estimator_ : MCb
        Fitted with them on all known cells.
    cv_results_ : dict of ndarray
        A row for each λ and μ: "label_weight", "mu", "label_error" and "imputation_error" of each part, and their
        means "mean_label_error" and "mean_imputation_error".
    labels_, decision_, features_, rank_, bias_, objective_, n_iter_, status_
        Of the best estimator.
    path_ : list of dict
        Of the best estimator, with the mean error of each μ as "validation_error".

    Examples
    --------
    >>> from labelgap import MCbCV, make_completion
    >>> data = make_completion(60, 8, 3, rank=2, observed=0.7, random_state=0)
    >>> model = MCbCV(label_weights=[0.1, 1.0], mu=1e-3, n_folds=3, random_state=0).fit(data.X, data.Y)
    >>> sorted(model.best_params_), model.features_.shape
    (['label_weight', 'mu'], (60, 8))
    """

    about = chosen(MCb.about)
    _of = MCb


class MC1CV(CompletionCV):
    """:class:`MC1` with μ and λ chosen by cross-validation over known cells (Goldberg et al. 2010, section 4).

    Everything said of :class:`MCbCV` holds here too.

    Parameters
    ----------
    mu, label_weights, criterion, n_folds, loss, solver, decay, max_iter, tol
        As in :class:`MCbCV`.
    absent, absent_features, random_state, n_jobs, dtype, verbose
        As in :class:`MCbCV`.
    device : str, default="auto"
        Deprecated; has no effect.

    Attributes
    ----------
    best_params_, best_score_, best_estimator_, cv_results_, path_
        As in :class:`MCbCV`.
    labels_, decision_, features_, rank_, bias_, objective_, n_iter_, status_
        Of the best estimator.

    Examples
    --------
    >>> from labelgap import MC1CV, make_completion
    >>> from labelgap.metrics import label_error
    >>> data = make_completion(60, 8, 3, rank=2, observed=0.7, random_state=0)
    >>> model = MC1CV(label_weights=[0.1, 1.0], mu=1e-3, n_folds=3, random_state=0).fit(data.X, data.Y)
    >>> bool(label_error(data.Y_true, model.labels_, data.hidden_labels) < 30)
    True
    """

    about = chosen(MC1.about)
    _of = MC1


def _candidates(given: Any) -> list[float]:
    """Return candidates for λ in rising order, each once; refuse none at all, and what is no finite number above 0.

    >>> _candidates([1, 0.1, 1])
    [0.1, 1.0]
    """
    try:
        array = np.unique(np.asarray(LABEL_WEIGHTS if given is None else given, float))
    except (TypeError, ValueError):
        array = np.empty(0)
    if array.size == 0 or not ((array > 0) & (array < np.inf)).all():
        raise ValueError(
            f"label_weights={given!r} are no candidates; pass one or more finite numbers above 0, such as [0.1, 1]."
        )
    return array.tolist()
