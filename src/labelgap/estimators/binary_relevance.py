"""One linear model per label: BinaryRelevance, and LabelwiseSVM, which chooses C for each label."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, DTypeLike, NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC
from sklearn.utils import check_array, check_random_state
from sklearn.utils.metaestimators import available_if

from labelgap.estimators.base import About, MultiLabelEstimator, Outcome
from labelgap.estimators.label_models import (
    FoldRidge,
    LabelFits,
    LabelProblem,
    LabelSettings,
    count_cells,
    fit_blocks,
    fit_labels,
    iterate_fits,
    join_fits,
    minimize_squared_hinge,
    update_ridge,
)
from labelgap.estimators.low_rank import check_further, check_no_past, check_past
from labelgap.estimators.parameters import (
    check_choice,
    check_number,
    check_propensity,
    check_sample_weight,
    check_weights,
    weigh_positives,
)
from labelgap.estimators.scores import (
    BlockScores,
    FoldScorer,
    LabelScores,
    LinearScores,
    check_coefficients,
    store_by_feature,
)
from labelgap.kernels import get_backend
from labelgap.losses import Loss, get_loss
from labelgap.observations import Labels
from labelgap.observations.arguments import LabelsLike, MatrixLike, RandomSeed
from labelgap.observations.labels import append_labels, make_csr, stack_rows

DEFAULT_CS = tuple(10.0**power for power in range(-8, 9))
MAX_NEWTON_FEATURES = 500  # a Newton step takes time cubic in the number of features


@dataclass(frozen=True)
class LinearSide:
    """What a fit of linear models may get beside rows and labels: a prior of the weights, and weights of rows."""

    prior: Any = None
    sample_weight: Any = None


class BinaryRelevance(MultiLabelEstimator):
    """One linear model per label, fitted on the rows in which the label is known (one-vs-all).

    The model of label j minimises over w and b

        F(w, b) = Σ over known (i, j) of ℓ(Y_ij, w·x_i + b) + (α/2) (‖w − m_j‖² + b²) + l1 ‖w‖₁.

    The prior m_j is 0 unless :meth:`fit` gets one.

    A label whose known cells are all of one class gets w = 0 and the best constant b; a label without known cells
    gets the decision value of w = 0, b = 0. Setting small weights to 0 makes large models small (DiSMEC, Babbar and
    Schölkopf 2017).

    Parameters
    ----------
    alpha : float, default=1.0
        The penalty α ≥ 0. LIBLINEAR's C is 1/α.
    loss : {"squared_hinge", "logistic", "squared"} or Loss, default="squared_hinge"
        The loss ℓ of a cell. Squared loss with every label known is solved as one linear system for all labels.
    frequency_power : float, default=0.0
        With squared loss, the target of a positive of label j is ((f_j + 1) / m)^−power instead of 1, where f_j is
        its number of positives and m the mean of f + 1 over all positives. The penalty shrinks the scores of rare
        labels most; a power of 0.2 to 0.5 undoes that, and usually improves rankings.
    propensity : "counts" or array of shape (L,), optional
        The probability p_j that a true label j is written, given or estimated from the numbers of positives
        (:func:`~labelgap.label_propensities`). The loss of a positive of label j then has the weight 2/p_j − 1
        (Qaraei, Schultheis, Gupta and Babbar 2021). Excludes ``partial_fit``.
    l1 : float, default=0.0
        The weight of ‖w‖₁, which makes weights sparse; with ``alpha=0`` it is the only penalty.
    threshold : float, default=0.0
        Weights with a smaller magnitude are set to 0 after the fit.
    fit_intercept : bool, default=True
        Whether to fit b.
    max_iter : int, default=1000
        Maximum number of Newton steps per label.
    tol : float, default=1e-2
        A label has converged when the norm of its gradient is at most this share of the norm at 0, times the share of
        the label's rarer class. With squared loss and every label known, the share of the class does not count, and
        with up to 6,000 rows or features the solution is exact. With the squared hinge and up to 256 dense features,
        each label is solved up to rounding, which is faster.
    absent, n_jobs, verbose
        As in :class:`~labelgap.LEML`. The result does not depend on ``n_jobs``.
    device : {"auto", "cpu", "cuda"}, default="auto"
        As in :class:`~labelgap.LEML`.
    dtype : {"float32", "float64"}, default="float32"
        The precision of the coefficients and of the solver. F is summed in float64.

    Attributes
    ----------
    coef_ : ndarray or csr_array of shape (L, d)
        w of each label; sparse with ``l1`` or ``threshold``.
    intercept_ : ndarray of shape (L,)
        b of each label, minus ½ for squared loss. Decision values are ``coef_`` · x + ``intercept_``.
    n_iter_ : int
        The largest number of Newton steps of a label.
    status_ : str
        "converged", or "max_iter" if some label did not converge.
    memory_ : dict of ndarray
        The sums of squares of the features and the targets of positives, for :meth:`partial_fit`; squared loss only.

    Examples
    --------
    >>> import numpy as np
    >>> from labelgap import BinaryRelevance
    >>> X = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    >>> Y = np.array([[1, 0, np.nan], [1, 0, 1], [0, 1, 0], [0, np.nan, 0]])
    >>> BinaryRelevance(alpha=0.1).fit(X, Y).predict([[1.0, 0.05]])
    array([[1., 0., 1.]])
    """

    about = About(
        "One linear model per label, optionally with sparse weights.",
        "Boutell, Luo, Shen and Brown 2004; Babbar and Schölkopf 2017",
        missing_labels=True,
        fit="z L a step",
        predict="z/n L",
    )

    _uses_device = True

    coef_: NDArray | sp.csr_array
    intercept_: NDArray
    n_iter_: int
    status_: str
    if TYPE_CHECKING:  # model files must have all declared attributes; this one is optional
        memory_: dict[str, NDArray]

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        loss: str | Loss = "squared_hinge",
        frequency_power: float = 0.0,
        propensity: Any = None,
        l1: float = 0.0,
        threshold: float = 0.0,
        fit_intercept: bool = True,
        max_iter: int = 1000,
        tol: float = 1e-2,
        absent: Literal["negative", "unknown"] = "negative",
        n_jobs: int | None = None,
        device: str = "auto",
        dtype: DTypeLike = "float32",
        verbose: int = 0,
    ) -> None:
        self.alpha = alpha
        self.loss = loss
        self.frequency_power = frequency_power
        self.propensity = propensity
        self.l1 = l1
        self.threshold = threshold
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.absent = absent
        self.n_jobs = n_jobs
        self.device = device
        self.dtype = dtype
        self.verbose = verbose

    def fit(
        self,
        X: MatrixLike,
        Y: LabelsLike,
        observed: MatrixLike | None = None,
        *,
        prior: MatrixLike | None = None,
        sample_weight: ArrayLike | None = None,
        calibrate: bool | str = False,
    ) -> Self:
        """Fit the model to rows X and labels Y.

        Parameters
        ----------
        X, Y, observed
            As in :meth:`LEML.fit`.
        prior : array-like or sparse matrix of shape (L, d), optional
            The weights m_j to which the penalty pulls those of each label, such as the features of its name. Needs
            squared loss.
        sample_weight : array of shape (n,), optional
            Weights of the rows, which multiply the losses of their cells.
        calibrate : bool or str, default=False
            As in :meth:`LEML.fit`; a prior and weights exclude it.

        Returns
        -------
        self
        """
        return self._fit(X, Y, observed, LinearSide(prior, sample_weight), calibrate=calibrate)

    def _can_update(self) -> bool:
        """Whether there is a partial_fit; scikit-learn asks ``hasattr``."""
        return get_loss(self.loss).quadratic and not (self.l1 or self.threshold) and self.propensity is None

    @available_if(_can_update)
    def partial_fit(self, X: Any, Y: Any, observed: Any = None, *, past: Any = None, prior: Any = None) -> Self:
        """Update the model with further rows, which may have new labels; for squared loss without sparse weights.

        With the earlier rows as ``past`` the model is fitted to all rows. Without them, the diagonal D of their XᵀX
        sums them up: the update minimises, over C,

            ½ ‖T − X C‖² + ½ tr((C − C₀)ᵀ (D + αI) (C − C₀)),

        where T are the targets of the further rows and C₀ the coefficients so far. It is exact if the features of the
        earlier rows are uncorrelated.

        Parameters
        ----------
        X, Y, observed
            Further rows as in :meth:`fit`; in Y the labels of the model come first, then new ones.
        past : pair of X and Y, optional
            The rows learned from before; labels that this Y does not have are negative.
        prior : array-like or sparse matrix of shape (L, d), optional
            As in :meth:`fit`, if there is a ``past``.

        Returns
        -------
        self
        """
        if not hasattr(self, "coef_"):
            check_no_past(past)
            return self.fit(X, Y, observed, prior=prior)
        self._check_parameters()
        outcome = None
        with self._restore_on_error(), self._compute():
            names, n_before = getattr(self, "label_names_in_", None), self.n_labels_
            rows, names = check_further(self, self._check_rows(X), Y, observed, names)
            if past is None:
                self._update(rows.X, rows.labels)
            else:
                before = check_past(self, past, self._check_rows, rows.labels.shape[1], names)
                labels = stack_rows(append_labels(before.labels, rows.labels.shape[1]), rows.labels)
                outcome = self._learn(stack_features(before.X, rows.X), labels, LinearSide(prior))
            self.n_labels_ = rows.labels.shape[1]
            if self.n_labels_ != n_before:
                self._drop_calibration("partial_fit has added labels")
            if names is not None:
                self.label_names_in_ = names
        if outcome is not None and any(outcome):
            outcome.report()
        return self

    def _update(self, X: Any, labels: Labels) -> None:
        """Update the coefficients with further rows, from the summary of the earlier ones."""
        if not hasattr(self, "memory_"):
            raise ValueError(
                "partial_fit without the earlier rows needs a model that was fitted to labels without unknown cells; "
                "pass past=(X, Y), the earlier rows."
            )
        if not labels.complete:
            raise ValueError(
                "Y has unknown cells, which partial_fit can use with the earlier rows only; pass past=(X, Y)."
            )
        settings = self._settings()
        constants = self.intercept_ + settings.loss.threshold
        problem = LabelProblem(X, labels.T, settings)
        fits, self.memory_ = update_ridge(LabelFits(self.coef_, constants), self.memory_, problem, get_backend())
        self.coef_ = store_by_feature(fits.weights)
        self.intercept_ = (fits.constants - settings.loss.threshold).astype(settings.dtype)

    def _check_parameters(self) -> None:
        self._check_common()
        loss = get_loss(self.loss)
        for name in ("alpha", "frequency_power", "l1", "threshold", "tol"):
            check_number(name, getattr(self, name), Real, least=0)
        check_number("max_iter", self.max_iter, Integral, least=1)
        check_number("verbose", self.verbose, Integral, least=0)
        if self.frequency_power and not loss.quadratic:
            raise ValueError(f"frequency_power={self.frequency_power} needs loss='squared'; loss={self.loss!r}.")

    def _settings(self) -> LabelSettings:
        return LabelSettings(
            loss=get_loss(self.loss),
            alpha=float(self.alpha),
            l1=float(self.l1),
            threshold=float(self.threshold),
            constant=bool(self.fit_intercept),
            max_iter=int(self.max_iter),
            tol=float(self.tol),
            dtype=np.dtype(self.dtype).type,
            frequency_power=float(self.frequency_power),
        )

    def _learn(self, X: Any, labels: Labels, side: LinearSide = LinearSide()) -> Outcome:
        problem = self._state_problem(X, labels, side)
        settings, fits = problem.settings, fit_labels(problem, self._part_kernels(), verbose=int(self.verbose))
        self.coef_ = store_by_feature(fits.weights)
        self.intercept_ = (fits.constants - settings.loss.threshold).astype(settings.dtype)
        self.n_iter_, self.status_ = fits.n_iter, "converged" if fits.converged else "max_iter"
        self.__dict__.pop("memory_", None)
        if settings.loss.quadratic and labels.complete and not settings.sparse and problem.positive_weights is None:
            self.memory_ = problem.summarize()
        return self._describe_outcome(fits.converged)

    def _state_problem(self, X: Any, labels: Labels, side: LinearSide) -> LabelProblem:
        prior = self._check_prior(side.prior, labels.shape[1], X.shape[1])
        weights = side.sample_weight
        if weights is not None:
            weights = check_sample_weight(weights, X.shape[0])
        positive = weigh_positives(check_propensity(self.propensity, labels))
        if positive is not None and prior is not None:
            raise ValueError("prior excludes propensity; leave one of them out.")
        return LabelProblem(X, labels.T, self._settings(), prior=prior, weights=weights, positive_weights=positive)

    def _describe_outcome(self, converged: bool) -> Outcome:
        if converged:
            return Outcome()
        return Outcome(
            f"BinaryRelevance stopped after max_iter={self.max_iter} steps for some labels, before their "
            f"gradients fell to tol={self.tol:g}; raise max_iter, tol or alpha, or scale the features."
        )

    def _check_prior(self, prior: Any, n_labels: int, n_features: int) -> Any:
        """Return a validated prior, a csr_array or an array of the estimator's type, or None."""
        if prior is None:
            return None
        if not get_loss(self.loss).quadratic:
            raise ValueError(f"prior needs loss='squared'; loss={self.loss!r}.")
        prior = check_array(prior, accept_sparse="csr", dtype=np.dtype(self.dtype).type)
        if prior.shape != (n_labels, n_features):
            raise ValueError(f"prior has shape {prior.shape}; pass a row of {n_features} weights for each label.")
        return sp.csr_array(prior) if sp.issparse(prior) else prior

    def _scores(self, X: Any) -> LinearScores:
        return self._score_rows(X, self.coef_, self.intercept_)

    def _score_rows(self, X: Any, coef: Any, intercept: NDArray) -> LinearScores:
        kernels = get_backend() if sp.issparse(coef) else self._prediction_kernels(X.shape[0])
        return LinearScores(X, coef, intercept, kernels)

    def _prepare_folds(self, X: Any, labels: Labels, *, prior: Any = None, sample_weight: Any = None) -> FoldScorer:
        """Return a function that scores the rows of a fold.

        Its models come from those of all rows, or are fitted and used in blocks of labels: the weights of all labels
        need as much memory as the scores of as many rows as there are features.
        """
        self._check_parameters()
        X, labels = self._check_fit(X, labels, None)
        ridge = self._share_folds(X, labels, prior, sample_weight)
        if ridge is None:
            return partial(self._fit_fold, X, labels, prior, sample_weight)
        return partial(self._correct_fold, ridge)

    def _fit_fold(
        self, X: Any, labels: Labels, prior: Any, weights: Any, train: NDArray, held_out: NDArray
    ) -> LabelScores:
        side = LinearSide(prior, None if weights is None else weights[train])
        problem = self._state_problem(X[train], labels[train], side)
        make = partial(self._score_labels, problem, X[held_out])
        return LabelScores(make, (len(held_out), labels.shape[1]), np.dtype(self.dtype), self._part_kernels())

    def _correct_fold(self, ridge: FoldRidge, train: NDArray, held_out: NDArray) -> BlockScores:
        scores = ridge.score(held_out).combine(float(self.frequency_power))
        scores -= scores.dtype.type(get_loss(self.loss).threshold)
        return BlockScores(lambda: iter([scores]), self._part_kernels())

    def _share_folds(self, X: Any, labels: Labels, prior: Any, sample_weight: Any) -> FoldRidge | None:
        """Return regressions whose folds share a factorisation, if there are any."""
        settings = self._settings()
        if not (settings.loss.quadratic and labels.complete) or settings.sparse or self.propensity is not None:
            return None
        prior = self._check_prior(prior, labels.shape[1], X.shape[1])
        ridge = FoldRidge(X, labels, settings, self._part_kernels(), prior, sample_weight)
        return ridge if ridge.is_exact else None

    def _score_labels(self, problem: LabelProblem, X: Any) -> Iterator[tuple[NDArray, NDArray]]:
        """Fit blocks of labels, and yield each with the scores of rows X."""
        constants, others = problem.constants, np.ones(len(problem.constants), bool)
        threshold, dtype, converged = problem.settings.loss.threshold, problem.settings.dtype, True
        for block, fits in join_fits(iterate_fits(problem, self._part_kernels(), verbose=int(self.verbose))):
            others[block], converged = False, converged and fits.converged
            yield block, self._score_rows(X, fits.weights, (fits.constants - threshold).astype(dtype)).dense()
        rest = np.flatnonzero(others)
        yield rest, np.tile((constants[rest] - threshold).astype(dtype), (X.shape[0], 1))
        self._describe_outcome(converged).report()

    def _check_loaded(self) -> None:
        check_coefficients(self.coef_, self.intercept_, self.n_labels_, self.n_features_in_)


class LabelwiseSVM(MultiLabelEstimator):
    """One linear support vector machine (SVM) per label, with C chosen per label by cross-validation on request.

    The SVM of label j minimises ½ (‖w‖² + b²) + C Σ over its known rows of max(0, 1 − y (w·x + b))², with y = ±1:
    the problem of :class:`~labelgap.BinaryRelevance` with alpha = 1/C. It is solved up to rounding by Newton's method
    for dense rows with up to 500 features, otherwise by liblinear. A label whose known cells are all of one class
    gets this class in all rows; a label without known cells gets the decision value 0.

    X must not have missing values: impute them first, in a pipeline.

    Parameters
    ----------
    C : float or "cv", default=1.0
        The weight of the losses. "cv" chooses it for each label from ``Cs`` by the error rate in ``n_folds``-fold
        cross-validation over the known cells of the label, stratified by class.
    Cs : sequence of float, optional
        Candidates of "cv"; the first of equally good ones is chosen. Default: 1e-8, 1e-7, …, 1e8, as in Goldberg et
        al. (2010).
    n_folds : int, default=5
        Number of folds; fewer for a label with fewer known cells.
    tol : float, default=1e-4
        The tolerance of liblinear.
    max_iter : int, default=1000
        Maximum number of iterations of either method.
    absent, n_jobs, verbose
        As in :class:`~labelgap.LEML`. The result does not depend on ``n_jobs``.
    device : str, default="auto"
        Deprecated; has no effect.
    random_state : int, RandomState or None
        Seed of the folds; without "cv" the fit is deterministic.
    dtype : {"float32", "float64"}, default="float64"
        The precision of the coefficients; the solver works in float64.

    Attributes
    ----------
    coef_ : ndarray of shape (L, d)
        w of each label.
    intercept_ : ndarray of shape (L,)
        b of each label.
    chosen_C_ : ndarray of shape (L,)
        The C of each label; NaN for a label without an SVM.
    cv_errors_ : ndarray of shape (L, number of Cs), or None
        The share of held-out known cells that were predicted wrongly, for each C; NaN for a label without an SVM.
    status_ : str
        "converged", or "max_iter" if some SVM did not converge.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.impute import SimpleImputer
    >>> from sklearn.pipeline import make_pipeline
    >>> from labelgap import LabelwiseSVM
    >>> X = np.array([[-2.0, 1.0], [-1.0, np.nan], [1.0, 1.0], [np.nan, 3.0]])
    >>> Y = np.array([[0, np.nan], [0, 1], [1, 1], [1, 1]])
    >>> make_pipeline(SimpleImputer(), LabelwiseSVM()).fit(X, Y).predict(X)
    array([[0., 1.],
           [0., 1.],
           [1., 1.],
           [1., 1.]])
    """

    about = About(
        "One linear support vector machine per label, for dense rows with few features.",
        "Goldberg, Zhu, Recht, Xu and Nowak 2010",
        missing_labels=True,
        fit="n d² L a step",
        predict="d L",
    )

    coef_: NDArray
    intercept_: NDArray
    chosen_C_: NDArray
    cv_errors_: NDArray | None
    status_: str

    def __init__(
        self,
        C: float | Literal["cv"] = 1.0,
        *,
        Cs: Sequence[float] | None = None,
        n_folds: int = 5,
        tol: float = 1e-4,
        max_iter: int = 1000,
        absent: Literal["negative", "unknown"] = "negative",
        random_state: RandomSeed = None,
        n_jobs: int | None = None,
        device: str = "auto",
        dtype: DTypeLike = "float64",
        verbose: int = 0,
    ) -> None:
        self.C = C
        self.Cs = Cs
        self.n_folds = n_folds
        self.tol = tol
        self.max_iter = max_iter
        self.absent = absent
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device
        self.dtype = dtype
        self.verbose = verbose

    def _check_parameters(self) -> None:
        self._check_common()
        if isinstance(self.C, str):
            check_choice("C", self.C, ("cv",))
        else:
            _check_positive("C", [self.C])
        if self.Cs is not None:
            _check_positive("Cs", self.Cs)
        check_number("n_folds", self.n_folds, Integral, least=2)
        check_number("tol", self.tol, Real, least=0)
        check_number("max_iter", self.max_iter, Integral, least=1)
        check_number("verbose", self.verbose, Integral, least=0)

    def _learn(self, X: Any, labels: Labels) -> Outcome:
        by_label, L = labels.T, labels.shape[1]
        search = SVMSearch(
            make_csr(X.data, X.indices, X.indptr, X.shape) if sp.issparse(X) else X,  # liblinear needs 32-bit indices
            by_label,
            (DEFAULT_CS if self.Cs is None else tuple(map(float, self.Cs))) if self.C == "cv" else (float(self.C),),
            self.n_folds if self.C == "cv" else None,
            check_random_state(self.random_state).randint(np.iinfo(np.int32).max, size=L),
            self.tol,
            self.max_iter,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # one warning for all labels follows
            blocks = list(fit_blocks(search, by_label, 1, name=type(self).__name__, verbose=self.verbose))
        positive, known = count_cells(by_label)
        dtype = np.dtype(self.dtype).type
        self.coef_, self.intercept_ = np.zeros((L, X.shape[1]), dtype), np.sign(2 * positive - known).astype(dtype)
        self.chosen_C_, cv_errors = np.full(L, np.nan), np.full((L, len(search.Cs)), np.nan)
        for block, fits in blocks:
            self.coef_[block], self.intercept_[block] = fits.weights, fits.constants
            self.chosen_C_[block], cv_errors[block] = fits.C, fits.cv_errors
        self.cv_errors_ = cv_errors if self.C == "cv" else None
        converged = all(fits.converged for _, fits in blocks)
        self.status_ = "converged" if converged else "max_iter"
        if converged:
            return Outcome()
        return Outcome(
            f"LabelwiseSVM stopped after max_iter={self.max_iter} iterations for some labels, before it reached "
            f"the minimum or tol={self.tol:g}; scale the features, lower C, or raise max_iter or tol."
        )

    def _scores(self, X: Any) -> LinearScores:
        return LinearScores(X, self.coef_, self.intercept_, self._kernels())

    def _check_loaded(self) -> None:
        check_coefficients(self.coef_, self.intercept_, self.n_labels_, self.n_features_in_)


def stack_features(first: Any, second: Any) -> Any:
    """Return the rows of both below each other.

    >>> stack_features(np.array([[1.0]]), np.array([[2.0]])).ravel()
    array([1., 2.])
    """
    if sp.issparse(first) or sp.issparse(second):
        return sp.csr_array(sp.vstack([first, second], format="csr"))
    return np.vstack([first, second])


class LinearSVM(NamedTuple):
    """A fitted SVM with decision values coef · x + intercept, and how its solver ended."""

    coef: NDArray
    intercept: float
    converged: bool = True
    n_iter: int = 0


class SVMSearch:
    """Search for the C of each label with the fewest errors in cross-validation; a single C needs no search.

    Called with a block of labels, it returns their models: a fitter for :func:`fit_blocks`. Each label has its own
    seed, so that the result does not depend on the number of threads.
    """

    def __init__(
        self,
        X: Any,
        by_label: Labels,
        Cs: tuple[float, ...],
        n_folds: int | None,
        seeds: NDArray,
        tol: float,
        max_iter: int,
    ) -> None:
        self.X, self.by_label, self.Cs, self.n_folds, self.seeds = X, by_label, Cs, n_folds, seeds
        self.tol, self.max_iter = tol, max_iter

    def __call__(self, block: NDArray) -> LabelFits:
        """Return the models of some labels."""
        svms, Cs, errors = zip(*(self._fit_label(j) for j in block.tolist()), strict=True)
        return LabelFits(
            np.array([svm.coef for svm in svms]),
            np.array([svm.intercept for svm in svms]),
            max(svm.n_iter for svm in svms),
            all(svm.converged for svm in svms),
            C=np.array(Cs),
            cv_errors=np.array(errors),
        )

    def _fit_label(self, j: int) -> tuple[LinearSVM, float, NDArray]:
        """Return the SVM of a label, its C, and the error rate of each C."""
        label = self.by_label[j : j + 1]
        X, y, errors = self.X, label.positives.toarray().ravel(), np.full(len(self.Cs), np.nan)
        if label.known is not None:
            X, y = X[label.known.indices], y[label.known.indices]
        C = self.Cs[0]
        if self.n_folds is not None:
            folds = _draw_folds(y, self.n_folds, np.random.RandomState(self.seeds[j]))
            counts = [self._count_errors(X, y, folds == fold) for fold in range(folds.max() + 1)]
            errors = np.sum(counts, axis=0) / len(y)
            C = self.Cs[int(errors.argmin())]
        return self._fit_svms(X, y, (C,))[0], C, errors

    def _count_errors(self, X: Any, y: NDArray[np.bool_], held_out: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return for each C the number of wrong predictions in the held-out rows, after a fit on the others."""
        svms = self._fit_svms(X[~held_out], y[~held_out], self.Cs)
        scores = X[held_out] @ np.array([svm.coef for svm in svms]).T + [svm.intercept for svm in svms]
        return np.count_nonzero((scores > 0) != y[held_out, None], axis=0)

    def _fit_svms(self, X: Any, y: NDArray[np.bool_], Cs: tuple[float, ...]) -> list[LinearSVM]:
        """Fit an SVM for each C; with Newton's method in the order of rising C, each from the last solution."""
        if y.all() or not y.any():
            return [LinearSVM(np.zeros(X.shape[1]), float(np.sign(2 * y.sum() - len(y))))] * len(Cs)
        if sp.issparse(X) or X.shape[1] > MAX_NEWTON_FEATURES:
            return [self._run_liblinear(X, y, C) for C in Cs]
        V = np.column_stack([X, np.ones(len(X))]).astype(float, copy=False) * np.where(y, 1.0, -1.0)[:, None]
        w, svms = np.zeros(V.shape[1]), {}
        for C in sorted(Cs):
            w, converged, n_iter = minimize_squared_hinge(V, C, w, self.max_iter)
            svms[C] = LinearSVM(w[:-1], float(w[-1]), converged, n_iter)
        return [svms[C] for C in Cs]

    def _run_liblinear(self, X: Any, y: NDArray[np.bool_], C: float) -> LinearSVM:
        # The primal solver is deterministic, and converges for the largest C too.
        model = LinearSVC(C=C, dual=False, tol=self.tol, max_iter=self.max_iter).fit(X, y)
        n_iter = int(model.n_iter_)
        return LinearSVM(model.coef_[0], float(model.intercept_[0]), n_iter < self.max_iter, n_iter)


def _check_positive(name: str, values: Any) -> None:
    """Raise ValueError unless the values are a non-empty sequence of finite numbers above 0."""
    if np.ndim(values) != 1 or not len(values) or not (check_weights(name, values, len(values)) > 0).all():
        raise ValueError(f"{name}={values!r} is out of range; pass numbers above 0.")


def _draw_folds(y: NDArray[np.bool_], n_folds: int, rng: np.random.RandomState) -> NDArray[np.int64]:
    """Return the fold of each row, at random and stratified by class.

    >>> folds = _draw_folds(np.array([True, False, True, False]), 2, np.random.RandomState(0))
    >>> sorted(folds[:3:2].tolist()), sorted(folds[1::2].tolist())
    ([0, 1], [0, 1])
    """
    order = rng.permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]
    folds = np.empty(len(y), np.int64)
    folds[order] = np.arange(len(y)) % min(n_folds, len(y))
    return folds
