"""A linear support vector machine for each label, on the rows where that label is known."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from numbers import Integral, Real
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC
from sklearn.utils import check_random_state

from labelgap.estimators import newton_svm
from labelgap.estimators.about import About
from labelgap.estimators.base import MultiLabelEstimator, Outcome
from labelgap.estimators.linear import LinearScores, check_coefficients
from labelgap.estimators.parameters import check_choice, check_number, check_weights
from labelgap.observations import Labels
from labelgap.observations.labels import csr_of
from labelgap.runtime import in_parallel, progress

GRID = tuple(10.0**power for power in range(-8, 9))
MOST_FOR_NEWTON = 500  # features: a step takes the time of their number cubed


class Machine(NamedTuple):
    """A fitted machine: decisions are coef · x + intercept; with what C, and whether the solver came to its end."""

    coef: NDArray
    intercept: float
    C: float = float("nan")
    converged: bool = True
    errors: NDArray | None = None


class LabelwiseSVM(MultiLabelEstimator):
    """One linear support vector machine for each label, fitted on the rows where the label is known.

    Label j minimises ½ (‖w‖² + b²) + C Σ over its known rows of max(0, 1 − y (w·x + b))², y = ±1: to rounding by
    Newton's method where rows are dense and have up to 500 features, else by liblinear. A label whose known cells are
    all of one class is predicted to have it; one without a known cell has the decision 0.

    Rows have no gaps here: fill X first, in a pipeline.

    Parameters
    ----------
    C : float or "cv", default=1.0
        The weight of the losses. "cv" chooses it for each label among ``Cs`` by the errors of ``n_folds``-fold
        cross-validation over the known cells of the label, which are shared out evenly class by class.
    Cs : sequence of float, optional
        What "cv" chooses from, of equally good ones the first; 1e-8, 1e-7, …, 1e8 by default, the numbers of Goldberg
        et al. (2010).
    n_folds : int, default=5
        The number of folds; fewer where a label has fewer known cells.
    tol : float, default=1e-4
        The tolerance of liblinear.
    max_iter : int, default=1000
        The most iterations of either method.
    absent, n_jobs, verbose
        As in :class:`~labelgap.LEML`. The result does not depend on ``n_jobs``.
    device : str, default="auto"
        Deprecated; has no effect.
    random_state : int, RandomState or None
        Seeds the folds; without "cv" nothing is drawn.
    dtype : {"float32", "float64"}, default="float64"
        The precision of the coefficients; the solver works in float64.

    Attributes
    ----------
    coef_ : ndarray of shape (L, d)
        w of each label.
    intercept_ : ndarray of shape (L,)
        b of each label.
    chosen_C_ : ndarray of shape (L,)
        The C of each label; NaN where no machine was fitted.
    cv_errors_ : ndarray of shape (L, number of Cs), or None
        The share of known cells that were predicted wrongly when they were held out, for each C; NaN where no machine
        was fitted.
    status_ : str
        "converged", or "max_iter" where some machine did not.

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
        "A linear support vector machine for each label, for dense rows of few features.",
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

    def _learn(self, X: Any, labels: Labels) -> Outcome:
        self._store(list(self._machines(X, labels)))
        if self.status_ == "converged":
            return Outcome()
        return Outcome(
            f"LabelwiseSVM stopped after max_iter={self.max_iter} iterations for some labels, before it came to "
            f"the minimum or to tol={self.tol:g}; scale the features, lower C, or raise max_iter or tol."
        )

    def _scores(self, X: Any) -> LinearScores:
        return LinearScores(X, self.coef_, self.intercept_, self._kernels())

    def _check_loaded(self) -> None:
        check_coefficients(self.coef_, self.intercept_, self.n_labels_, self.n_features_in_)

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

    def _machines(self, X: Any, labels: Labels) -> Iterator[Machine]:
        """Yield the machine of each label; each has a seed of its own, so that threads change nothing."""
        seeds = check_random_state(self.random_state).randint(np.iinfo(np.int32).max, size=labels.shape[1])
        X, by_label = _narrow_indices(X), labels.T
        tasks = [partial(self._fit_label, X, by_label, j, seed) for j, seed in enumerate(seeds)]
        with warnings.catch_warnings(), progress(len(tasks), type(self).__name__, self.verbose) as advance:
            warnings.simplefilter("ignore", ConvergenceWarning)  # one warning for all labels follows
            for j, machine in enumerate(in_parallel(tasks)):
                advance(f"label {j}, C = {machine.C:g}")
                yield machine

    def _fit_label(self, X: Any, by_label: Labels, j: int, seed: int) -> Machine:
        """Fit the machine of a label on its known rows."""
        label = by_label[j : j + 1]
        y = label.positives.toarray().ravel()
        if label.known is not None:
            X, y = X[label.known.indices], y[label.known.indices]
        if self.C != "cv" or y.all() or not y.any():
            return self._fit_machines(X, y, [self.C])[0]
        folds = _folds(y, self.n_folds, np.random.RandomState(seed))
        errors = np.sum([self._errors(X, y, folds == fold) for fold in range(folds.max() + 1)], axis=0) / len(y)
        return self._fit_machines(X, y, [self._grid()[int(errors.argmin())]])[0]._replace(errors=errors)

    def _grid(self) -> tuple[float, ...]:
        return GRID if self.Cs is None else tuple(map(float, self.Cs))

    def _errors(self, X: Any, y: NDArray[np.bool_], held: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return for each C how many of the rows held out a machine fitted on the others gets wrong."""
        machines = self._fit_machines(X[~held], y[~held], self._grid())
        scores = X[held] @ np.array([one.coef for one in machines]).T + [one.intercept for one in machines]
        return np.count_nonzero((scores > 0) != y[held, None], axis=0)

    def _fit_machines(self, X: Any, y: NDArray[np.bool_], Cs: Sequence[Any]) -> list[Machine]:
        """Fit a machine for each C."""
        if y.all() or not y.any():
            return [Machine(np.zeros(X.shape[1]), float(np.sign(2 * y.sum() - len(y))))] * len(Cs)
        if sp.issparse(X) or X.shape[1] > MOST_FOR_NEWTON:
            return [self._by_liblinear(X, y, float(C)) for C in Cs]
        return self._by_newton(X, y, [float(C) for C in Cs])

    def _by_newton(self, X: NDArray, y: NDArray[np.bool_], Cs: list[float]) -> list[Machine]:
        """Fit for growing C, each from the machine before."""
        V = np.column_stack([X, np.ones(len(X))]).astype(float, copy=False) * np.where(y, 1.0, -1.0)[:, None]
        w, found = np.zeros(V.shape[1]), {}
        for C in sorted(Cs):
            w, converged, _ = newton_svm.minimize(V, C, w, self.max_iter)
            found[C] = Machine(w[:-1], float(w[-1]), C, converged)
        return [found[C] for C in Cs]

    def _by_liblinear(self, X: Any, y: NDArray[np.bool_], C: float) -> Machine:
        # In the primal nothing is random, and the largest C's converge too.
        model = LinearSVC(C=C, dual=False, tol=self.tol, max_iter=self.max_iter).fit(X, y)
        return Machine(model.coef_[0], float(model.intercept_[0]), C, bool(model.n_iter_ < self.max_iter))

    def _store(self, machines: list[Machine]) -> None:
        dtype, nothing = np.dtype(self.dtype).type, np.full(len(self._grid()), np.nan)
        self.coef_ = np.array([one.coef for one in machines], dtype)
        self.intercept_ = np.array([one.intercept for one in machines], dtype)
        self.chosen_C_ = np.array([one.C for one in machines])
        tried = [nothing if one.errors is None else one.errors for one in machines]
        self.cv_errors_ = np.array(tried) if self.C == "cv" else None
        self.status_ = "converged" if all(one.converged for one in machines) else "max_iter"


def _check_positive(name: str, values: Any) -> None:
    """Refuse anything but numbers above 0."""
    if np.ndim(values) != 1 or not len(values) or not (check_weights(name, values, len(values)) > 0).all():
        raise ValueError(f"{name}={values!r} is out of range; pass numbers above 0.")


def _narrow_indices(X: Any) -> Any:
    """Return sparse rows with the 32-bit indices that liblinear wants."""
    return csr_of(X.data, X.indices, X.indptr, X.shape) if sp.issparse(X) else X


def _folds(y: NDArray[np.bool_], n_folds: int, rng: np.random.RandomState) -> NDArray[np.int64]:
    """Return the fold of each row: drawn, each class shared out evenly.

    >>> folds = _folds(np.array([True, False, True, False]), 2, np.random.RandomState(0))
    >>> sorted(folds[:3:2].tolist()), sorted(folds[1::2].tolist())
    ([0, 1], [0, 1])
    """
    order = rng.permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]
    folds = np.empty(len(y), np.int64)
    folds[order] = np.arange(len(y)) % min(n_folds, len(y))
    return folds
