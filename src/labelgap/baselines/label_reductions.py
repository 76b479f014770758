"""Label space reduction: PLST, CPLST and CSSP.

Each row of labels is encoded as k numbers, the codes. Ridge regression predicts the codes from the features, and a
matrix decodes them into scores of labels.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from sklearn.utils import check_random_state, gen_batches

from labelgap.estimators.base import About, MultiLabelEstimator, Outcome
from labelgap.estimators.low_rank import embed_rows, split_factors
from labelgap.estimators.parameters import check_number
from labelgap.estimators.scores import FactorScores
from labelgap.kernels import Backend
from labelgap.objectives import Features
from labelgap.objectives.embeddings import NormalEquations
from labelgap.objectives.features import explain_overflow
from labelgap.observations import Labels
from labelgap.runtime import multithreaded_blas
from labelgap.solvers import find_right_vectors

DEFAULT_COMPONENTS = 100
MAX_DENSE_LABELS = 6_000  # up to here all eigenvectors take less time than subspace iteration for the first k
COLUMNS_PER_BLOCK = 256
SUBSPACE_ITERATIONS = 8
SCORE_THRESHOLD = 0.5  # scores approximate 0/1 targets


class LabelCode(NamedTuple):
    """The codes T of the training rows (n×k) and their decoder: Y ≈ T Hᵀ + 1μᵀ."""

    codes: NDArray
    H: NDArray
    shift: NDArray


class LinearReduction(MultiLabelEstimator):
    """Base class of linear reductions, whose scores are [X, 1] W Hᵀ + μᵀ with H (L×k) and the threshold ½.

    ``label_factors_`` is [H, μ], L×(k+1), and ``objective_`` has ½ ‖Y − scores‖² + (α/2) ‖W‖² of the training rows.
    A subclass encodes the labels.
    """

    feature_factors_: NDArray
    intercept_factors_: NDArray
    label_factors_: NDArray
    threshold_: float
    objective_: list[float]
    status_: str

    def __init__(
        self,
        n_components: int | None = None,
        *,
        alpha: float = 1.0,
        fit_intercept: bool = True,
        absent: Literal["negative", "unknown"] = "negative",
        random_state: Any = None,
        n_jobs: int | None = None,
        device: str = "auto",
        dtype: Any = "float32",
    ) -> None:
        self.n_components = n_components
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.absent = absent
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device
        self.dtype = dtype

    @abstractmethod
    def _encode(self, equations: NormalEquations, labels: Labels, k: int, rng: np.random.RandomState) -> LabelCode:
        """Return k codes of each row of labels, and their decoder."""

    def _check_parameters(self) -> None:
        self._check_common()
        check_reduction(self.n_components, self.alpha)

    def _learn(self, X: Any, labels: Labels) -> Outcome:
        rng, kernels = check_random_state(self.random_state), self._kernels()
        with explain_overflow(self.dtype):
            regression = CodeRegression(X, self.alpha, constant=self.fit_intercept, kernels=kernels, dtype=self.dtype)
            k = resolve_n_codes(self.n_components, labels.shape[1])
            code = self._encode(regression.equations, labels, k, rng)
            result = regression.fit(code.codes)
            self.label_factors_ = np.column_stack([code.H, code.shift]).astype(np.dtype(self.dtype))
            self.objective_ = [_compute_error(labels, result.fitted, self.label_factors_) + result.penalty]
        self.feature_factors_, self.intercept_factors_ = result.features, result.intercept
        self.threshold_, self.status_ = SCORE_THRESHOLD, result.status
        return regression.get_outcome(type(self).__name__, result)

    def _embed(self, X: Any) -> NDArray:
        """Return the factors of validated rows: their codes and a constant 1."""
        codes = embed_rows(X, self.feature_factors_, self.intercept_factors_, self._kernels(), self.dtype)
        return _append_ones(codes)

    def _scores(self, X: Any) -> FactorScores:
        return FactorScores(self._embed(X), self.label_factors_, self.threshold_, self._kernels())

    def _check_loaded(self) -> None:
        k = check_code_factors(self.feature_factors_, self.intercept_factors_, self.n_features_in_)
        if self.label_factors_.shape != (self.n_labels_, k + 1):
            raise ValueError(f"label factors of shape {self.label_factors_.shape} for {self.n_labels_} labels")


class PLST(LinearReduction):
    """Principal label space transformation (Tai and Lin 2012).

    With V (L×k) the leading right singular vectors of the centred labels Ȳ = Y − 1μᵀ, the codes are Ȳ V. Ridge
    regression predicts them, W = argmin ½ ‖Ȳ V − [X, 1] W‖² + (α/2) ‖W‖², and the scores are [X, 1] W Vᵀ + μᵀ. No
    linear code of k numbers approximates Y better. Ȳ is not formed.

    Parameters
    ----------
    n_components : int, optional
        The number k of codes, at most the number of labels. Default: 100, or the number of labels if that is less.
    alpha : float, default=1.0
        The penalty α ≥ 0 of W.
    fit_intercept : bool, default=True
        Append a constant feature 1, with the same penalty as the other features.
    absent, n_jobs, dtype
        As in :class:`~labelgap.LEML`.
    device : str, default="auto"
        Deprecated; has no effect.
    random_state : int, RandomState or None
        Seed of the subspace iteration that computes V for more than 6,000 labels.

    Attributes
    ----------
    feature_factors_ : ndarray of shape (d, k)
        W.
    intercept_factors_ : ndarray of shape (k,)
        The row of W for the constant feature; 0 without an intercept.
    label_factors_ : ndarray of shape (L, k + 1)
        [V, μ].
    objective_ : list of one float
        ½ ‖Y − scores‖² + (α/2) ‖W‖² on the training rows.
    status_ : str
        "converged", or "max_iter" if an iterative least-squares solver did not converge.

    Examples
    --------
    The second label is the complement of the first, so that one code is enough:

    >>> import numpy as np
    >>> from labelgap import PLST
    >>> X = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    >>> Y = np.array([[1, 0], [1, 0], [0, 1], [0, 1]])
    >>> PLST(n_components=1, alpha=0.1).fit(X, Y).predict([[0.9, 0.2]])
    array([[1, 0]])
    """

    about = About(
        "Ridge regression of the principal components of the labels.",
        "Tai and Lin 2012",
        fit="z d + d³ + L³",
        predict="(z/n + L) k",
    )

    def _encode(self, equations: NormalEquations, labels: Labels, k: int, rng: np.random.RandomState) -> LabelCode:
        Y = LabelMatrix(labels, self._kernels(), self.dtype, centred=True)
        V = compute_leading_eigenvectors(lambda P: Y.t_times(Y.times(P)), labels.shape[1], k, rng, Y.dtype)
        return LabelCode(Y.times(V), V, Y.shift)


class CPLST(LinearReduction):
    """Conditional principal label space transformation (Chen and Lin 2012), with a ridge.

    As :class:`~labelgap.PLST`, but V (L×k) has the leading eigenvectors of Ȳᵀ H_α Ȳ, where Ȳ are the centred labels
    and H_α = X (XᵀX + αI)⁻¹ Xᵀ is the hat matrix of the ridge regression (X with its constant feature). V and W
    minimise

        ½ ‖Ȳ − X W Vᵀ‖² + (α/2) ‖W‖²  over W and V with VᵀV = I.

    Without a penalty X W Vᵀ is the least-squares fit of rank k. This is also the closed form of LEML with squared
    loss and every label known (Yu et al. 2014, claim 2).

    Parameters
    ----------
    n_components, alpha, fit_intercept, absent, random_state, n_jobs, device, dtype
        As in :class:`~labelgap.PLST`.

    Attributes
    ----------
    feature_factors_, intercept_factors_, label_factors_, objective_, status_
        As in :class:`~labelgap.PLST`.

    Examples
    --------
    The features predict the second label but not the first, although the first varies more:

    >>> import numpy as np
    >>> from labelgap import CPLST, PLST
    >>> X = np.array([[0.0], [0.0], [0.0], [0.0], [0.0], [0.0], [1.0], [1.0]])
    >>> Y = np.array([[1, 0], [0, 0], [1, 0], [0, 0], [1, 0], [0, 0], [1, 1], [0, 1]])
    >>> [method(n_components=1, alpha=0.01).fit(X, Y).predict([[1.0]])[0, 1] for method in (PLST, CPLST)]
    [np.int64(0), np.int64(1)]
    """

    about = About(
        "Ridge regression of the directions of the labels that features predict best.",
        "Chen and Lin 2012",
        fit="z d + d³ + d² L + L³",
        predict="(z/n + L) k",
    )

    def _encode(self, equations: NormalEquations, labels: Labels, k: int, rng: np.random.RandomState) -> LabelCode:
        Y = LabelMatrix(labels, self._kernels(), self.dtype, centred=True)

        def hat_times(P: NDArray) -> NDArray:
            W, _ = equations.solve(Y.times(P), 1.0, float(self.alpha))
            return Y.t_times(equations.features.times(W))

        V = compute_leading_eigenvectors(hat_times, labels.shape[1], k, rng, Y.dtype)
        return LabelCode(Y.times(V), V, Y.shift)


class CSSP(LinearReduction):
    """Column subset selection of the labels, ML-CSSP (Bi and Kwok 2013).

    k labels C are drawn with probabilities proportional to their leverages Σ_c V_jc², where V (L×k) has the leading
    right singular vectors of Y. The codes are these labels themselves, Y_C. Ridge regression predicts them, and least
    squares extend the predictions to all labels: the scores are [X, 1] W (Y_C⁺ Y).

    Parameters
    ----------
    n_components : int, optional
        The number k of labels to draw. Default: 100. Only labels with a positive are drawn.
    random_state : int, RandomState or None
        Seed of the draws.
    alpha, fit_intercept, absent, n_jobs, device, dtype
        As in :class:`~labelgap.PLST`.

    Attributes
    ----------
    selected_labels_ : ndarray of shape (k,)
        C, in the order of the draws.
    feature_factors_, intercept_factors_, objective_, status_
        As in :class:`~labelgap.PLST`.
    label_factors_ : ndarray of shape (L, k + 1)
        [(Y_C⁺ Y)ᵀ, 0].

    Examples
    --------
    The third label is positive where the first or the second is:

    >>> import numpy as np
    >>> from labelgap import CSSP
    >>> Y = np.array([[1, 0, 1], [1, 0, 1], [0, 1, 1], [0, 1, 1], [0, 0, 0]])
    >>> model = CSSP(n_components=2, alpha=0.01, random_state=0).fit(np.eye(5), Y)
    >>> len(model.selected_labels_), model.predict(np.eye(5)[:3])
    (2, array([[1, 0, 1],
           [1, 0, 1],
           [0, 1, 1]]))
    """

    about = About(
        "Ridge regression of a sample of the labels; the others are linear combinations of them.",
        "Bi and Kwok 2013",
        fit="z d + d³ + L³",
        predict="(z/n + L) k",
    )

    selected_labels_: NDArray

    def _encode(self, equations: NormalEquations, labels: Labels, k: int, rng: np.random.RandomState) -> LabelCode:
        Y = LabelMatrix(labels, self._kernels(), self.dtype, centred=False)
        V = compute_leading_eigenvectors(lambda P: Y.t_times(Y.times(P)), labels.shape[1], k, rng, Y.dtype)
        self.selected_labels_ = draw_labels_by_leverage((V.astype(float) ** 2).sum(1), labels, k, rng)
        Y_C = labels.positives[:, self.selected_labels_].astype(Y.dtype)
        return LabelCode(Y_C.toarray(), solve_combinations(Y_C, labels.positives).T, Y.shift)

    def _check_loaded(self) -> None:
        super()._check_loaded()
        k = len(self.intercept_factors_)
        if np.shape(self.selected_labels_) != (k,):
            raise ValueError(f"{np.shape(self.selected_labels_)} selected labels for {k} codes")


def draw_labels_by_leverage(
    leverage: NDArray, labels: Labels, k: int, rng: np.random.RandomState
) -> NDArray[np.int64]:
    """Draw k distinct labels that have a positive, with probabilities proportional to their leverages.

    >>> labels = Labels(np.array([[1, 0, 1], [1, 0, 0]]))
    >>> sorted(draw_labels_by_leverage(np.array([0.9, 0.0, 0.1]), labels, 3, np.random.RandomState(0)).tolist())
    [0, 2]
    """
    candidates = np.unique(labels.positives.indices)
    if not len(candidates):
        return np.zeros(1, np.int64)
    # A leverage that rounding made 0 must stay positive: there may be too few other candidates.
    weights = np.maximum(leverage[candidates], np.finfo(float).eps * leverage.max())
    return rng.choice(candidates, min(k, len(candidates)), replace=False, p=weights / weights.sum())


def solve_combinations(Y_C: Any, Y: Any) -> NDArray[np.float64]:
    """Return Y_C⁺ Y (k×L) of sparse Y_C and Y, by the Gram matrix of Y_C.

    >>> import scipy.sparse as sp
    >>> Y = sp.csr_array(np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]]))
    >>> solve_combinations(Y[:, [0, 1]], Y).round(6) + 0
    array([[1., 0., 1.],
           [0., 1., 1.]])
    """
    gram = (Y_C.T @ Y_C).toarray().astype(float)
    return scipy.linalg.pinvh(gram) @ (Y_C.T @ Y.astype(Y_C.dtype)).toarray().astype(float)


class LabelMatrix:
    """The matrix Y − 1μᵀ (n×L) of 0/1 labels, where μ are the rates of the labels or 0; it is not formed."""

    def __init__(self, labels: Labels, kernels: Backend, dtype: Any, *, centred: bool) -> None:
        self.dtype, self._kernels = np.dtype(dtype).type, kernels
        self._positives = kernels.prepare(labels.positives, self.dtype)
        self.shift = (labels.rates * centred).astype(self.dtype)

    def times(self, P: NDArray) -> NDArray:
        """Return (Y − 1μᵀ) P."""
        product: NDArray = self._kernels.spmm(self._positives, P)
        product -= self.shift @ P
        return product

    def t_times(self, B: NDArray) -> NDArray:
        """Return (Y − 1μᵀ)ᵀ B."""
        product: NDArray = self._kernels.spmm_t(self._positives, B)
        product -= np.outer(self.shift, B.sum(0, dtype=float)).astype(B.dtype)
        return product


def compute_leading_eigenvectors(
    times: Callable[[NDArray], NDArray], size: int, k: int, rng: np.random.RandomState, dtype: Any
) -> NDArray:
    """Return the k leading eigenvectors (size×k) of a positive semidefinite matrix G that ``times`` multiplies by.

    A small G is formed by blocks of columns and decomposed; a large one goes through subspace iteration.

    >>> G = np.diag([1.0, 3.0, 2.0])
    >>> abs(compute_leading_eigenvectors(G.dot, 3, 2, np.random.RandomState(0), float)).round(6)
    array([[0., 0.],
           [1., 0.],
           [0., 1.]])
    """
    if size > MAX_DENSE_LABELS:
        _, V = find_right_vectors(times, times, size, k, random_state=rng, dtype=dtype, n_iter=SUBSPACE_ITERATIONS)
        return V.astype(dtype, copy=False)
    identity = np.eye(size, dtype=dtype)
    blocks = [np.ascontiguousarray(identity[:, part]) for part in gen_batches(size, COLUMNS_PER_BLOCK)]
    G = np.hstack([times(block) for block in blocks]).astype(float)
    if not np.isfinite(G).all():
        raise FloatingPointError("the products of labels and features are not finite")
    with multithreaded_blas():
        _, vectors = scipy.linalg.eigh((G + G.T) / 2, subset_by_index=(size - k, size - 1), check_finite=False)
    return np.ascontiguousarray(vectors[:, ::-1], dtype)


# --- regression of codes --------------------------------------------------------------------------------------------


class RegressionResult(NamedTuple):
    """W as the weights of features and of the constant, the fitted codes of the training rows, and (α/2) ‖W‖²."""

    features: NDArray
    intercept: NDArray
    fitted: NDArray
    penalty: float
    status: str


class CodeRegression:
    """Ridge regression of codes T (n×k) on rows: W = argmin ½ ‖T − [X, 1] W‖² + (α/2) ‖W‖².

    All columns of W share one factorisation of XᵀX + αI, or of XXᵀ + αI if that is smaller.
    """

    def __init__(self, X: Any, alpha: float, *, constant: bool, kernels: Backend, dtype: Any) -> None:
        features = Features(X, kernels, np.dtype(dtype).type, constant=constant)
        if not np.isfinite(features.column_squares()).all():
            raise FloatingPointError("the squares of a feature have no finite sum")
        self.equations, self.alpha, self.constant = NormalEquations(features), float(alpha), constant

    def fit(self, codes: NDArray) -> RegressionResult:
        """Return W for these codes."""
        W, converged = self.equations.solve(codes, 1.0, self.alpha)
        if not np.isfinite(W).all():
            raise FloatingPointError("the least squares have no finite solution")
        penalty = 0.5 * self.alpha * float((W**2).sum(dtype=float))
        fitted = self.equations.features.times(W)
        status = "converged" if converged else "max_iter"
        return RegressionResult(*split_factors(W, self.constant), fitted, penalty, status)

    def get_outcome(self, name: str, result: RegressionResult) -> Outcome:
        """Return the outcome of a fit for the estimator of this name."""
        if result.status == "converged":
            return Outcome()
        return Outcome(
            f"{name} did not solve its least squares to the tolerance, since alpha={self.alpha:g} "
            "is small for these features; raise alpha, or scale the features."
        )


def compute_code_error(codes: NDArray, fitted: NDArray) -> float:
    """Return ½ ‖T − fitted‖²."""
    return 0.5 * float(((codes - fitted) ** 2).sum(dtype=float))


def check_reduction(n_components: Any, alpha: Any) -> None:
    """Raise ValueError if the number of codes or the penalty is out of range."""
    check_number("n_components", n_components, Integral, least=1, optional=True)
    check_number("alpha", alpha, Real, least=0)


def resolve_n_codes(n_components: int | None, n_labels: int) -> int:
    """Return the number of codes: ``n_components``, or by default 100 but at most the number of labels.

    >>> resolve_n_codes(None, 300), resolve_n_codes(2, 300)
    (100, 2)
    """
    if n_components is None:
        return min(DEFAULT_COMPONENTS, n_labels)
    if n_components > n_labels:
        raise ValueError(
            f"n_components={n_components} is above the number of labels, {n_labels}: that would be no "
            f"reduction. Pass at most {n_labels}."
        )
    return n_components


def check_code_factors(features: NDArray, intercept: NDArray, n_features: int) -> int:
    """Return the number of codes of factors from a file; raise ValueError if they do not fit the features."""
    if features.shape != (n_features, len(intercept)):
        raise ValueError(f"factors of shape {features.shape} for {n_features} features")
    return len(intercept)


def _compute_error(labels: Labels, fitted: NDArray, label_factors: NDArray) -> float:
    """Return ½ ‖Y − scores‖² of rows with these codes, without forming the scores."""
    B, H = _append_ones(fitted).astype(float), label_factors.astype(float)
    cross = float((B * (labels.positives @ H)).sum())
    return 0.5 * (labels.positives.nnz - 2 * cross + float(((B.T @ B) * (H.T @ H)).sum()))


def _append_ones(B: NDArray) -> NDArray:
    return np.column_stack([B, np.ones(len(B), B.dtype)])
