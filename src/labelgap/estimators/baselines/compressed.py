"""Multi-label prediction by compressed sensing: random projections of the labels, and sparse recovery."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from labelgap.estimators.about import About
from labelgap.estimators.base import MultiLabelEstimator, Outcome
from labelgap.estimators.baselines import pursuit
from labelgap.estimators.baselines.projections import PROJECTIONS, project_seen
from labelgap.estimators.baselines.reduced import (
    THRESHOLD,
    CodeRegression,
    LabelMatrix,
    check_code_length,
    check_reduction,
    half_squared_error,
    number_of_codes,
)
from labelgap.estimators.low_rank import embed_rows
from labelgap.estimators.parameters import check_choice, check_number
from labelgap.estimators.scores import BlockScores, row_blocks
from labelgap.objectives.features import numbers_in_range
from labelgap.observations import Labels
from labelgap.runtime import in_ranges

OFTEN = 4  # times the labels of a mean row: how many labels are recovered by default
ROWS_PER_TASK = 64


class CompressedSensing(MultiLabelEstimator):
    """Random projections of the labels, and sparse recovery (Hsu, Kakade, Langford and Zhang 2009).

    The codes of a row are A y, A a random k×L matrix and y its labels; ridge regression predicts them as z. The
    decision values are the sparse y with A y near z, less ½: a label that is not recovered has −½.

    Parameters
    ----------
    n_components : int, optional
        The number k of codes, at most that of the labels. By default 100, or the number of labels where it is less.
    alpha : float, default=1.0
        The penalty α ≥ 0 of the regression.
    projection : {"orthogonal", "gaussian", "sign", "hadamard"}, default="orthogonal"
        A: orthogonal rows in random directions, independent normal numbers or signs, or rows and columns drawn from a
        Hadamard matrix.
    recovery : {"omp", "cosamp", "lasso"}, default="omp"
        Orthogonal matching pursuit; compressive sampling matching pursuit; or the minimum of
        ½ ‖z − A y‖² + l1 ‖y‖₁.
    n_nonzero : int, optional
        The most labels that a pursuit recovers; at most k. By default four times the labels of a mean row.
    l1 : float, default=0.1
        The penalty of the lasso; the columns of A have lengths of about 1.
    max_iter : int, default=100
        The most rounds of CoSaMP, or sweeps of the lasso.
    tol : float, default=1e-4
        The lasso ends when no step of a sweep is longer than this share of its first correlation.
    fit_intercept : bool, default=True
        Append a constant 1 to the features, penalised like the rest.
    random_state : int, RandomState or None
        Draws A.
    absent, n_jobs, dtype
        As in :class:`~labelgap.LEML`.
    device : str, default="auto"
        Deprecated; has no effect.

    Attributes
    ----------
    projection_ : ndarray of shape (k, L)
        A; 0 for labels without a positive.
    n_nonzero_ : int
        The most labels that a pursuit recovers.
    feature_factors_, intercept_factors_, status_
        As in :class:`~labelgap.PLST`.
    objective_ : list of one float
        ½ ‖Y Aᵀ − [X, 1] W‖² + (α/2) ‖W‖² on the training rows.

    Examples
    --------
    >>> import numpy as np
    >>> from labelgap import CompressedSensing
    >>> Y = np.kron(np.eye(4, dtype=int), np.ones((5, 1), int))
    >>> model = CompressedSensing(n_components=3, alpha=0.1, random_state=0).fit(Y, Y)
    >>> model.predict(np.eye(4))
    array([[1, 0, 0, 0],
           [0, 1, 0, 0],
           [0, 0, 1, 0],
           [0, 0, 0, 1]])
    """

    about = About(
        "Ridge regression of random projections of the labels; a few labels are recovered for each row.",
        "Hsu, Kakade, Langford and Zhang 2009",
        fit="z d + d³ + (d² + y) k",
        predict="(z/n + L) k + L s², s labels recovered",
    )

    feature_factors_: NDArray
    intercept_factors_: NDArray
    projection_: NDArray
    n_nonzero_: int
    objective_: list[float]
    status_: str

    def __init__(
        self,
        n_components: int | None = None,
        *,
        alpha: float = 1.0,
        projection: Literal["orthogonal", "gaussian", "sign", "hadamard"] = "orthogonal",
        recovery: Literal["omp", "cosamp", "lasso"] = "omp",
        n_nonzero: int | None = None,
        l1: float = 0.1,
        max_iter: int = 100,
        tol: float = 1e-4,
        fit_intercept: bool = True,
        absent: Literal["negative", "unknown"] = "negative",
        random_state: Any = None,
        n_jobs: int | None = None,
        device: str = "auto",
        dtype: Any = "float32",
    ) -> None:
        self.n_components = n_components
        self.alpha = alpha
        self.projection = projection
        self.recovery = recovery
        self.n_nonzero = n_nonzero
        self.l1 = l1
        self.max_iter = max_iter
        self.tol = tol
        self.fit_intercept = fit_intercept
        self.absent = absent
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device
        self.dtype = dtype

    def _check_parameters(self) -> None:
        self._check_common()
        check_reduction(self.n_components, self.alpha)
        check_choice("projection", self.projection, tuple(PROJECTIONS))
        check_choice("recovery", self.recovery, ("omp", "cosamp", "lasso"))
        check_number("n_nonzero", self.n_nonzero, Integral, least=1, optional=True)
        check_number("l1", self.l1, Real, least=0)
        check_number("max_iter", self.max_iter, Integral, least=1)
        check_number("tol", self.tol, Real, least=0)

    def _learn(self, X: Any, labels: Labels) -> Outcome:
        rng, kernels = check_random_state(self.random_state), self._kernels()
        with numbers_in_range(self.dtype):
            regression = CodeRegression(X, self.alpha, constant=self.fit_intercept, kernels=kernels, dtype=self.dtype)
            codes = self._encode(labels, rng)
            found = regression.fit(codes)
            self.objective_ = [half_squared_error(codes, found.fitted) + found.penalty]
        self.feature_factors_, self.intercept_factors_ = found.features, found.intercept
        self.status_ = found.status
        return regression.outcome(type(self).__name__, found)

    def _encode(self, labels: Labels, rng: np.random.RandomState) -> NDArray:
        """Draw A, and return the codes Y Aᵀ of the labels."""
        dtype = np.dtype(self.dtype).type
        A = project_seen(self.projection, labels, number_of_codes(self.n_components, labels.shape[1]), rng)
        self.projection_, self.n_nonzero_ = A.astype(dtype), self._sparsity(labels, len(A))
        return LabelMatrix(labels, self._kernels(), dtype, centred=False).times(self.projection_.T)

    def _sparsity(self, labels: Labels, k: int) -> int:
        often = int(np.ceil(OFTEN * labels.positives.nnz / len(labels)))
        return max(1, min(k, often if self.n_nonzero is None else self.n_nonzero))

    def _scores(self, X: Any) -> BlockScores:
        return BlockScores(lambda: self._blocks(X), self._kernels())

    def _blocks(self, X: Any) -> Iterator[NDArray]:
        A, kernels = self.projection_, self._kernels()
        gram = A.T.astype(float) @ A.astype(float)
        for rows in row_blocks(X, self.n_labels_, arrays=2):
            codes = embed_rows(rows, self.feature_factors_, self.intercept_factors_, kernels, self.dtype)
            products = kernels.matmul(codes, A).astype(float)
            yield self._recover(gram, products) - A.dtype.type(THRESHOLD)

    def _recover(self, gram: NDArray, products: NDArray) -> NDArray:
        """Return the sparse label vectors of rows whose codes have these products with the columns of A."""
        found = np.zeros(products.shape, self.projection_.dtype)
        settings = {
            "omp": (pursuit.omp, (self.n_nonzero_,)),
            "cosamp": (pursuit.cosamp, (self.n_nonzero_, len(self.projection_), self.max_iter)),
            "lasso": (pursuit.lasso, (float(self.l1), self.max_iter, float(self.tol))),
        }
        loop, arguments = settings[self.recovery]
        bounds = [*range(0, len(found), ROWS_PER_TASK), len(found)]
        in_ranges(lambda start, stop: loop(gram, products, *arguments, found, start, stop), bounds)
        return found

    def _check_loaded(self) -> None:
        k = check_code_length(self.feature_factors_, self.intercept_factors_, self.n_features_in_)
        if self.projection_.shape != (k, self.n_labels_) or not 1 <= self.n_nonzero_ <= k:
            raise ValueError(f"a projection of shape {self.projection_.shape} for {self.n_labels_} labels")
