"""MC-1 and MC-b whose μ and λ are chosen by cross-validation over known cells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from numbers import Integral
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state

from labelgap.estimators import MC1, MCb, MultiLabelEstimator
from labelgap.estimators.base import Outcome
from labelgap.estimators.completion import CompletionEstimator, solve_path
from labelgap.estimators.completion.completion_path import MAX_BATCH_COLUMNS, KnownCellsOfRows, solve_paths
from labelgap.estimators.parameters import check_choice, check_number
from labelgap.estimators.scores import Scores
from labelgap.losses import Loss
from labelgap.model_selection.candidates import check_candidates
from labelgap.model_selection.engine import (
    FoldScores,
    Search,
    copy_input_attributes,
    delegate,
    delegate_attribute,
    describe_search,
    draw_first_round,
    make_estimator,
)
from labelgap.objectives.label_feature_matrix import Completion, KnownValues
from labelgap.observations import Labels
from labelgap.observations.arguments import LabelsLike, MatrixLike
from labelgap.runtime import progress
from labelgap.solvers.fpc import Stage, make_penalty_path

LABEL_WEIGHTS = (1e-3, 1e-2, 1e-1, 1.0)
CRITERIA = ("label_error", "imputation_error")


class CompletionFold(NamedTuple):
    """The known cells of labels and of features in the training part of a fold, and those held out."""

    labels: KnownValues
    features: KnownValues
    held_out_labels: KnownValues
    held_out_features: KnownValues

    def make_problem(self, full: Completion, label_weight: float) -> Completion:
        """Return the problem of the training cells; ``full`` is the problem of all known cells."""
        shape, bias = (full.n, full.t, full.d), full.n_biased > 0
        return Completion(shape, self.labels, self.features, full.loss, label_weight=label_weight, bias=bias)

    def compute_errors(self, problem: Completion, stage: Stage) -> tuple[float, float]:
        """Return the label error in percent and the imputation error of a solution at the held-out cells."""
        scores, filled = problem.decision(stage.point), problem.matrix(stage.point)[:, problem.t :]
        predicted = scores.ravel()[self.held_out_labels.cells] > 0
        wrong = predicted != (self.held_out_labels.values == problem.loss.positive)
        cells, values = self.held_out_features
        norm = float(np.square(values).sum())
        error = float(np.square(filled.ravel()[cells] - values).sum())
        return 100 * float(wrong.mean()), float(np.sqrt(error / norm)) if norm else float("nan")


def draw_folds(full: Completion, n_folds: int, random_state: Any) -> list[CompletionFold]:
    """Divide the known cells of labels and those of features at random; sizes differ by at most one cell.

    >>> from labelgap.losses import Logistic
    >>> from labelgap.observations import Labels
    >>> full = Completion.of(np.ones((3, 2)), Labels(np.eye(3)), Logistic())
    >>> [len(fold.held_out_labels.cells) for fold in draw_folds(full, 2, 0)]
    [5, 4]
    """
    for name, known in (("Y", full.all_labels), ("X", full.features)):
        if len(known.cells) < n_folds:
            raise ValueError(
                f"n_folds={n_folds} is out of range; {name} has {len(known.cells)} known cells, and each fold holds "
                "out some of them. Pass more cells, or fewer folds."
            )
    rng = check_random_state(random_state)
    sides = [
        (known, rng.permutation(np.arange(len(known.cells)) % n_folds)) for known in (full.all_labels, full.features)
    ]
    return [
        CompletionFold(
            *(KnownValues(known.cells[fold != number], known.values[fold != number]) for known, fold in sides),
            *(KnownValues(known.cells[fold == number], known.values[fold == number]) for known, fold in sides),
        )
        for number in range(n_folds)
    ]


class CompletionFoldFitter:
    """A fitter that follows the path of μ on all folds for a given λ.

    ``solve`` takes the problems of all folds and yields (index of a fold, stage of its path). ``criterion`` is the
    index in ``CRITERIA`` of the error to return; ``errors`` stores, for each λ, all errors in an array of shape
    (μ's, folds, criteria).
    """

    def __init__(self, full: Completion, folds: list[CompletionFold], solve: Any, criterion: int) -> None:
        self.full, self.folds, self.solve, self.criterion = full, folds, solve, criterion
        self.errors: dict[float, NDArray] = {}

    def __call__(self, params: dict[str, Any]) -> list[FoldScores]:
        """Return the errors of each μ on all folds for the λ in ``params``."""
        problems = [fold.make_problem(self.full, params["label_weight"]) for fold in self.folds]
        paths: list[list[tuple[float, float]]] = [[] for _ in self.folds]
        for number, stage in self.solve(problems):
            paths[number].append(self.folds[number].compute_errors(problems[number], stage))
        errors = np.array(paths)
        self.errors[params["label_weight"]] = errors.swapaxes(0, 1)
        return [FoldScores(fold_errors[:, [self.criterion]]) for fold_errors in errors]


class CompletionCV(MultiLabelEstimator):
    """A search for the best μ and λ by cross-validation over known cells; subclasses name the estimator's class."""

    _estimator_class: type[CompletionEstimator]

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

    def fit(
        self, X: MatrixLike, Y: LabelsLike, observed: MatrixLike | None = None, *, calibrate: bool | str = False
    ) -> Self:
        """Choose μ and λ on held-out cells, then complete X and Y from all known cells; see :meth:`MCb.fit`."""
        return self._fit(X, Y, observed, calibrate=calibrate)

    def chosen(self) -> MultiLabelEstimator:
        """Return an unfitted estimator with the chosen parameters."""
        return clone(self.best_estimator_)

    def _learn(self, X: Any, labels: Labels) -> Outcome:
        best, weights = self._estimator(), self._label_weights()
        full = best._problem(X, labels)
        mus = self._make_path(full)
        rows = draw_first_round(full.n, check_random_state(self.random_state))
        tried = weights
        if rows is not None and len(weights) > 1:
            small = best._problem(X[rows], labels[rows])
            first = self._try_weights(small, self._make_path(small), weights)[0]
            tried = sorted(weights[place] for place in first.list_promising())
        self._search(full, mus, weights, tried)
        copy_input_attributes(self, best)
        outcome = best.set_params(**self.best_params_)._learn(X, labels)
        for stage, error in zip(best.path_, self._path_errors(), strict=True):
            stage["validation_error"] = error
        self.best_estimator_ = best
        return outcome

    def _scores(self, X: Any) -> Scores:
        return self.best_estimator_._scores(X)

    def fit_transform(self, X: MatrixLike, y: Any, observed: MatrixLike | None = None) -> NDArray:
        """Fit, and return the completed training rows: X where it is known, ``features_`` elsewhere."""
        self.fit(X, y, observed)
        return KnownCellsOfRows(self._check_rows(X), self.absent_features).copy_into(self.features_)

    transform = delegate(CompletionEstimator.transform)
    decision_ = delegate_attribute("decision_")
    labels_ = delegate_attribute("labels_")
    features_ = delegate_attribute("features_")
    rank_ = delegate_attribute("rank_")
    bias_ = delegate_attribute("bias_")
    objective_ = delegate_attribute("objective_")
    path_ = delegate_attribute("path_")
    n_iter_ = delegate_attribute("n_iter_")
    status_ = delegate_attribute("status_")

    def _estimator(self) -> CompletionEstimator:
        return make_estimator(self._estimator_class, self, ignored=["device"])

    def _label_weights(self) -> list[float]:
        return check_candidates("label_weights", self.label_weights, LABEL_WEIGHTS, positive=True)

    def _check_parameters(self) -> None:
        self._check_common()
        self._estimator()._check_parameters()
        check_choice("solver", self.solver, ("auto", "fpc", "exact", "accelerated"))
        check_choice("criterion", self.criterion, CRITERIA)
        check_number("n_folds", self.n_folds, Integral, least=2)
        self._label_weights()

    def _make_path(self, full: Completion) -> list[float]:
        return make_penalty_path(full.start()[1], float(self.mu), float(self.decay))

    def _try_weights(
        self, full: Completion, mus: list[float], weights: list[float]
    ) -> tuple[Search, CompletionFoldFitter]:
        """Try each λ along the path of μ."""
        folds, criterion = draw_folds(full, self.n_folds, self.random_state), CRITERIA.index(self.criterion)
        fitter = CompletionFoldFitter(full, folds, partial(self._solve_paths, mus=mus), criterion)
        search = Search(fitter, [False])
        with progress(len(weights), type(self).__name__, self.verbose) as advance:
            for row in search.try_in_parallel([{"label_weight": weight} for weight in weights]):
                weight = row["params"]["label_weight"]
                advance(f"label_weight = {weight:g}: {self.criterion} {row['score'][0]:.4g}")
        return search, fitter

    def _search(self, full: Completion, mus: list[float], weights: list[float], tried: list[float]) -> None:
        """Try the λs of ``tried`` along the path of μ; store the table of errors and the best μ and λ."""
        search, fitter = self._try_weights(full, mus, tried)
        if search.errors:
            raise search.errors[0]
        best = search.table[search.best_index]
        self.best_params_ = {"mu": mus[best["stage"]], **best["params"]}
        self.best_score_ = float(best["score"][0])
        untried = np.full((len(mus), self.n_folds, len(CRITERIA)), np.nan)
        errors = np.concatenate([fitter.errors.get(weight, untried) for weight in weights])
        self.cv_results_ = {
            "label_weight": np.repeat(weights, len(mus)),
            "mu": np.tile(mus, len(weights)),
            **{name: errors[:, :, number] for number, name in enumerate(CRITERIA)},
            **{f"mean_{name}": errors[:, :, number].mean(1) for number, name in enumerate(CRITERIA)},
        }

    def _solve_paths(self, problems: list[Completion], *, mus: list[float]) -> Iterator[tuple[int, Stage]]:
        """Yield the index of a fold and a stage of its path, for all folds and stages."""
        constant = self._estimator_class._constant
        options: dict[str, Any] = {"constant": constant, "tol": float(self.tol), "max_iter": self.max_iter}
        if self.solver == "fpc" and problems[0].width < MAX_BATCH_COLUMNS:
            yield from solve_paths(problems, mus, **options)
            return
        solver = "accelerated" if self.solver == "auto" else self.solver
        for number, problem in enumerate(problems):
            for stage in solve_path(problem, mus, solver=solver, **options):
                yield number, stage

    def _path_errors(self) -> list[float]:
        """Return the mean errors of the best λ along the path down to the best μ."""
        table = self.cv_results_
        rows = (table["label_weight"] == self.best_params_["label_weight"]) & (table["mu"] >= self.best_params_["mu"])
        return table[f"mean_{self.criterion}"][rows].tolist()

    def __sklearn_tags__(self) -> Any:
        return self._estimator().__sklearn_tags__()


class MCbCV(CompletionCV):
    """:class:`MCb` with μ and λ chosen by cross-validation over known cells (Goldberg et al. 2010, section 4).

    The known cells of labels and those of features are divided at random into ``n_folds`` parts. For each λ, the
    problem is solved along the path of μ without one part, and each solution is scored on this part; the errors are
    averaged over the parts. The last fit uses all known cells and the same path down to the chosen μ. With 10,000
    rows or more, each λ is tried on an eighth of them first, at least 5,000, and those that are clearly worse are not
    tried on all rows.

    Parameters
    ----------
    mu : float, default=1e-5
        The smallest candidate for μ; the other candidates are the values along the path.
    label_weights : sequence of float, optional
        Candidates for λ; by default 1e-3, 1e-2, 1e-1 and 1 as in the paper. Pass a single value to fix λ.
    criterion : {"label_error", "imputation_error"}, default="label_error"
        The error to minimise: the percentage of held-out labels that are wrong, or the relative error of held-out
        features. Of equally good pairs the one with the smallest λ and then the largest μ is chosen.
    n_folds : int, default=5
        Number of parts.
    loss, decay, max_iter, tol, absent, absent_features, dtype, verbose
        As in :class:`MCb`.
    device : str, default="auto"
        Deprecated; has no effect.
    solver : {"auto", "fpc", "exact", "accelerated"}, default="auto"
        As in :class:`MCb`. With "fpc" and fewer than 128 columns all parts are solved in one batch, which takes half
        the time.
    random_state : int, RandomState or None, default=None
        The seed of the parts.
    n_jobs : int, optional
        Number of threads, which try different values of λ; by default all cores. The result does not depend on it.

    Attributes
    ----------
    best_params_ : dict
        The chosen "mu" and "label_weight".
    best_score_ : float
        Their mean error on held-out cells, in percent for labels.
    best_estimator_ : MCb
        The estimator fitted with them on all known cells.
    cv_results_ : dict of ndarray
        A row for each λ and μ: "label_weight", "mu", the "label_error" and "imputation_error" of each part, and their
        means "mean_label_error" and "mean_imputation_error"; NaN for a λ that was only tried on fewer rows.
    labels_, decision_, features_, rank_, bias_, objective_, n_iter_, status_
        Those of the best estimator.
    path_ : list of dict
        That of the best estimator, with the mean error of each μ as "validation_error".

    Examples
    --------
    >>> from labelgap import MCbCV, make_completion
    >>> data = make_completion(60, 8, 3, rank=2, observed=0.7, random_state=0)
    >>> model = MCbCV(label_weights=[0.1, 1.0], mu=1e-3, n_folds=3, random_state=0).fit(data.X, data.Y)
    >>> sorted(model.best_params_), model.features_.shape
    (['label_weight', 'mu'], (60, 8))
    """

    about = describe_search(MCb.about)
    _estimator_class = MCb


class MC1CV(CompletionCV):
    """:class:`MC1` with μ and λ chosen by cross-validation over known cells (Goldberg et al. 2010, section 4).

    The search is the same as in :class:`MCbCV`.

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
        Those of the best estimator.

    Examples
    --------
    >>> from labelgap import MC1CV, make_completion
    >>> from labelgap.metrics import label_error
    >>> data = make_completion(60, 8, 3, rank=2, observed=0.7, random_state=0)
    >>> model = MC1CV(label_weights=[0.1, 1.0], mu=1e-3, n_folds=3, random_state=0).fit(data.X, data.Y)
    >>> bool(label_error(data.Y_true, model.labels_, data.hidden_labels) < 30)
    True
    """

    about = describe_search(MC1.about)
    _estimator_class = MC1
