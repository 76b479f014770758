"""One linear model per label: BinaryRelevance, and LabelwiseSVM, which chooses C for each label."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC
from sklearn.utils import check_random_state

from labelgap.estimators.base import About, MultiLabelEstimator, Outcome
from labelgap.estimators.label_models import (
    LabelFits,
    LabelSettings,
    count_cells,
    fit_blocks,
    fit_labels,
    minimize_squared_hinge,
    score_held_out,
    share_ridge,
)
from labelgap.estimators.parameters import check_choice, check_number, check_weights
from labelgap.estimators.scores import (
    BlockScores,
    FoldScorer,
    LinearScores,
    check_coefficients,
    store_by_feature,
)
from labelgap.losses import Loss, get_loss
from labelgap.observations import Labels
from labelgap.observations.labels import make_csr

DEFAULT_CS = tuple(10.0**power for power in range(-8, 9))
MAX_NEWTON_FEATURES = 500  # a Newton step takes time cubic in the number of features


class BinaryRelevance(MultiLabelEstimator):
    """One linear model per label, fitted on the rows in which the label is known (one-vs-all).

    The model of label j minimises over w and b

        F(w, b) = Σ over known (i, j) of ℓ(Y_ij, w·x_i + b) + (α/2) (‖w‖² + b²) + l1 ‖w‖₁.

    A label whose known cells are all of one class gets w = 0 and the best constant b; a label without known cells
    gets the decision value of w = 0, b = 0. Setting small weights to 0 makes large models small (DiSMEC, Babbar and
    Schölkopf 2017).

    Parameters
    ----------
    alpha : float, default=1.0
        The penalty α ≥ 0. LIBLINEAR's C is 1/α.
    loss : {"squared_hinge", "logistic", "squared"} or Loss, default="squared_hinge"
        The loss ℓ of a cell. Squared loss with every label known is solved as one linear system for all labels.
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
    device : str, default="auto"
        Deprecated; has no effect.
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

    coef_: NDArray | sp.csr_array
    intercept_: NDArray
    n_iter_: int
    status_: str

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        loss: str | Loss = "squared_hinge",
        l1: float = 0.0,
        threshold: float = 0.0,
        fit_intercept: bool = True,
        max_iter: int = 1000,
        tol: float = 1e-2,
        absent: Literal["negative", "unknown"] = "negative",
        n_jobs: int | None = None,
        device: str = "auto",
        dtype: Any = "float32",
        verbose: int = 0,
    ) -> None:
        self.alpha = alpha
        self.loss = loss
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

    def _check_parameters(self) -> None:
        self._check_common()
        get_loss(self.loss)
        for name in ("alpha", "l1", "threshold", "tol"):
            check_number(name, getattr(self, name), Real, least=0)
        check_number("max_iter", self.max_iter, Integral, least=1)
        check_number("verbose", self.verbose, Integral, least=0)

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
        )

    def _learn(self, X: Any, labels: Labels) -> Outcome:
        settings = self._settings()
        fits = fit_labels(X, labels, settings, self._kernels(), verbose=int(self.verbose))
        self.coef_ = store_by_feature(fits.weights)
        self.intercept_ = (fits.constants - settings.loss.threshold).astype(settings.dtype)
        self.n_iter_, self.status_ = fits.n_iter, "converged" if fits.converged else "max_iter"
        if fits.converged:
            return Outcome()
        return Outcome(
            f"BinaryRelevance stopped after max_iter={self.max_iter} steps for some labels, before their "
            f"gradients fell to tol={self.tol:g}; raise max_iter, tol or alpha, or scale the features."
        )

    def _scores(self, X: Any) -> LinearScores:
        return LinearScores(X, self.coef_, self.intercept_, self._kernels())

    def _prepare_folds(self, X: Any, labels: Labels) -> FoldScorer | None:
        """Return a function that scores the rows of a fold, if its models come from those of all rows."""
        self._check_parameters()
        X, labels = self._check_fit(X, labels, None)
        settings, kernels = self._settings(), self._kernels()
        ridge = share_ridge(X, labels, settings, kernels)
        if ridge is None:
            return None

        def score(train: NDArray, held_out: NDArray) -> BlockScores:
            return BlockScores(lambda: iter([score_held_out(ridge, labels, settings, held_out)]), kernels)

        return score

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
        random_state: Any = None,
        n_jobs: int | None = None,
        device: str = "auto",
        dtype: Any = "float64",
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
            blocks = fit_blocks(search, by_label, 1, name=type(self).__name__, verbose=self.verbose)
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
