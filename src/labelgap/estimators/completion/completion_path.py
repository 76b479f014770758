"""Solutions of completion problems along falling μ's, their factors, and the factors of new rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from labelgap.kernels import Backend
from labelgap.objectives.factored import FactoredCompletion, RowPartsSolver
from labelgap.objectives.label_feature_matrix import Completion
from labelgap.regularizers import (
    MIN_GRAM_SHARE,
    DualStep,
    NuclearNorm,
    PublishedMC1Prox,
    append_column,
    find_leading_triplets,
    nuclear_norm,
)
from labelgap.solvers import Fit, NewtonCG, alternate
from labelgap.solvers.fpc import (
    Accelerated,
    FixedPoint,
    Penalty,
    Point,
    Stage,
    follow_batch,
    follow_path,
    make_penalty_path,
)

CONVEX_SOLVERS = ("fpc", "exact", "accelerated")
MIN_SINGULAR_SHARE = 1e-12  # of the largest singular value; smaller ones are rounding errors
MIN_FACTOR_SHARE = 1e-4  # the same for factors, some columns of which a penalty has nearly brought to 0
MAX_BATCH_COLUMNS = 128  # for wider matrices, solving several problems at once saves no time


class CompletionFit(NamedTuple):
    """A solution Z = W Hᵀ with balanced factors, its bias b, and how it was reached.

    W is n×k. H has a row for each label, each feature and, in MC-1, the constant. ``path`` holds a record for each μ.
    """

    W: NDArray
    H: NDArray
    b: NDArray
    rank: int
    history: list[float]
    status: str
    path: list[dict[str, Any]]


def solve_path(
    problem: Completion,
    mus: Sequence[float] | None = None,
    *,
    constant: bool,
    solver: str = "accelerated",
    mu: float = 1e-5,
    decay: float = 0.25,
    tol: float = 1e-5,
    max_iter: int = 1000,
) -> Iterator[Stage]:
    """Yield the solution for each μ, each started from the one before.

    ``problem.matrix(stage.point)`` and ``problem.decision(stage.point)`` are A and the decision values of a solution.

    Parameters
    ----------
    problem : Completion
        The smooth part.
    mus : sequence of float, optional
        Falling μ's; by default decay · σ₁, decay² · σ₁, …, mu, where σ₁ is the largest singular value of the
        zero-filled matrix.
    constant : bool
        Whether the nuclear norm is that of [Z, 1], as in MC-1.
    solver : {"fpc", "exact", "accelerated"}
        The published fixed point loop, the splitting that makes it exact for MC-1, or steps with momentum.
    mu, decay : float
        The last μ and the factor between two μ's, if ``mus`` is None.
    tol : float
        For each μ, stop when a step changes the objective by at most this share of it.
    max_iter : int
        Maximum number of steps for one μ.
    """
    if constant and solver == "accelerated":
        problem = problem.center()
    penalty: Penalty = NuclearNorm()
    if constant and solver != "accelerated":
        penalty = PublishedMC1Prox() if solver == "fpc" else DualStep()
    start, largest = problem.start()
    method = (Accelerated if solver == "accelerated" else FixedPoint)(tol, max_iter)
    mus = make_penalty_path(largest, mu, decay) if mus is None else mus
    for stage in follow_path(problem, penalty, mus, start, method):
        stage.rank += constant and solver == "accelerated"  # MC-1 reports the rank of [A, 1]
        yield stage


def solve_paths(
    problems: Sequence[Completion],
    mus: Sequence[float],
    *,
    constant: bool,
    tol: float = 1e-5,
    max_iter: int = 1000,
) -> Iterator[tuple[int, Stage]]:
    """Yield (number of the problem, solution) for several problems of one shape and one list of falling μ's.

    Every problem takes the steps that :func:`solve_path` takes with ``solver="fpc"``, up to rounding. A step of a
    small problem costs less than the calls that make it; here one call serves all problems.
    """
    points = [problem.start()[0] for problem in problems]
    starts = [append_column(point.Z, np.ones(len(point.Z))) if constant else point.Z for point in points]
    stack = CompletionStack(problems, points, [nuclear_norm(Z) for Z in starts], constant)
    return follow_batch(stack, mus, tol, max_iter)


class _StackedCells(NamedTuple):
    """Known cells of several problems.

    ``places`` are positions in the stacked matrices, ``targets`` the known values, ``owners`` the number of each
    cell's problem, ``weights`` the cell's weight in f, and ``steps`` the step size of Z times the weight.
    """

    places: NDArray
    targets: NDArray
    owners: NDArray
    steps: NDArray
    weights: NDArray

    @classmethod
    def of(cls, problems: Sequence[Completion], places: list, targets: list, shares: list) -> _StackedCells:
        """Join the cells of all problems."""
        owners = np.repeat(np.arange(len(problems)), [len(part) for part in places])
        weights = np.array(shares, float)
        steps = np.array([problem.steps.Z for problem in problems]) * weights
        return cls(np.concatenate(places), np.concatenate(targets), owners, steps[owners], weights[owners])

    def sums(self, values: NDArray, count: int) -> NDArray:
        """Return the weighted sum over the cells of each problem."""
        return np.bincount(self.owners, self.weights * values, count)


class CompletionStack:
    """Completion problems of one shape as a batch for :func:`~labelgap.solvers.fpc.follow_batch`.

    ``Z`` is problems×n×width. With a constant, as in MC-1, every matrix has a last column of ones.
    """

    def __init__(
        self, problems: Sequence[Completion], points: Sequence[Point], penalties: Any, constant: bool
    ) -> None:
        first = problems[0]
        self.problems, self.constant, self.loss = problems, constant, first.loss.functions(np)
        self.Z = np.ones((len(problems), first.n, first.width + constant), first.dtype)
        for matrix, point in zip(self.Z, points, strict=True):
            matrix[:, : first.width] = point.Z
        self.b = np.stack([point.b for point in points])
        self._place_cells()
        self.steps = np.array([problem.steps.Z for problem in problems])
        self.bias_steps = np.array([[problem.steps.b] for problem in problems])
        self.penalties, self.values = np.array(penalties), self._evaluate()
        self.ranks, self.errors = np.zeros(len(problems), int), np.zeros(len(problems))

    def _place_cells(self) -> None:
        _, n, width = self.Z.shape
        problems, t, d = self.problems, self.problems[0].t, self.problems[0].d
        labels, features, biases = [], [], []
        for number, problem in enumerate(problems):
            offset = number * n * width
            labels.append(offset + problem.labels.cells // max(1, t) * width + problem.label_of)
            features.append(offset + problem.features.cells // max(1, d) * width + t + problem.feature_of)
            biases.append(number * t + problem.label_of)
        self.bias_of = np.concatenate(biases)
        self.labels = _StackedCells.of(
            problems, labels, [p.targets for p in problems], [p.label_share for p in problems]
        )
        self.features = _StackedCells.of(
            problems, features, [p.values for p in problems], [p.feature_share for p in problems]
        )

    def point(self, position: int) -> Point:
        """Return a copy of the current point of a problem."""
        width = self.Z.shape[2] - self.constant
        return Point(self.Z[position, :, :width].copy(), self.b[position].copy())

    def select(self, positions: Sequence[int]) -> CompletionStack:
        """Return a stack of these problems at their current points."""
        points = [self.point(i) for i in positions]
        return CompletionStack(
            [self.problems[i] for i in positions], points, self.penalties[positions], self.constant
        )

    def step(self, mus: Sequence[float]) -> None:
        """Go along −∇f and shrink the singular values, in every problem."""
        flat, slopes = self.Z.reshape(-1), self.loss.gradient(self.labels.targets, self.scores)
        flat[self.labels.places] -= self.labels.steps * slopes
        flat[self.features.places] -= self.features.steps * self.residuals
        if self.b.size:
            gradient = np.bincount(self.bias_of, self.labels.weights * slopes, self.b.size).reshape(self.b.shape)
            self.b -= self.bias_steps * gradient
        self._shrink(self.steps * np.asarray(mus))
        self.values = self._evaluate()

    def _evaluate(self) -> NDArray:
        """Read the scores and residuals of known cells, and return f of each problem."""
        flat = self.Z.reshape(-1)
        self.scores, self.residuals = flat[self.labels.places], flat[self.features.places]
        self.residuals -= self.features.targets
        if self.b.size:
            self.scores += self.b.reshape(-1)[self.bias_of]
        losses = self.loss.value(self.labels.targets, self.scores)
        squares, count = np.square(self.residuals), len(self.Z)
        return self.labels.sums(losses, count) + 0.5 * self.features.sums(squares, count)

    def _shrink(self, thresholds: NDArray) -> None:
        """Shrink the singular values, set the constant to 1 again, and store nuclear norms and ranks.

        U max(σ − θ, 0) Vᵀ of Z = U σ Vᵀ is Z V max(1 − θ/σ, 0) Vᵀ: the left vectors are not needed.
        """
        gram = self.Z.transpose(0, 2, 1) @ self.Z
        squares, vectors = np.linalg.eigh(gram)
        rough = thresholds**2 <= MIN_GRAM_SHARE**2 * np.trace(gram, axis1=1, axis2=2)
        for i in np.flatnonzero(rough):
            squares[i], vectors[i] = _decompose_gram(self.Z[i])
        thresholds = thresholds[:, None]
        above = squares > thresholds**2
        self.ranks = above.sum(1)
        leading = slice(squares.shape[1] - int(self.ranks.max()), None)  # eigenvalues rise
        vectors, values = vectors[:, :, leading], np.sqrt(np.where(above, squares, thresholds**2)[:, leading])
        shrunk = values - thresholds
        self.Z = self.Z @ ((vectors * (shrunk / values)[:, None]) @ vectors.transpose(0, 2, 1))
        self.penalties = shrunk.sum(1)
        if self.constant:
            self.Z[:, :, -1] = 1
            inside = (gram[:, None, -1] @ vectors)[:, 0] / values
            self.penalties = _norms_with_ones(shrunk, vectors, inside, self.Z.shape[1])


def _decompose_gram(Z: NDArray) -> tuple[NDArray, NDArray]:
    """Return the eigenvalues of ZᵀZ, rising, and its eigenvectors, without the rounding errors of a Gram matrix."""
    square = np.zeros((Z.shape[1], Z.shape[1]), Z.dtype)
    R = np.linalg.qr(Z, mode="r")
    square[: len(R)] = R
    _, values, right = np.linalg.svd(square)
    return values[::-1] ** 2, right[::-1].T


def _norms_with_ones(values: NDArray, V: NDArray, inside: NDArray, n: int) -> NDArray:
    """Return ‖[A, 1]‖_* for each [A, a] = U S Vᵀ, from S, V, Uᵀ1 and n.

    In the basis of U and of the part of 1 orthogonal to U it is a small matrix: S Vᵀ with Uᵀ1 in place of its last
    column, over a row of zeros with √(n − ‖Uᵀ1‖²) at its end.

    >>> _norms_with_ones(np.array([[3.0]]), np.array([[[1.0], [0.0]]]), np.array([[0.0]]), 4)
    array([5.])
    """
    count, width, k = V.shape
    small = np.zeros((count, k + 1, width), V.dtype)
    small[:, :k] = (V * values[:, None]).transpose(0, 2, 1)
    small[:, :k, -1] = inside
    small[:, k, -1] = np.sqrt(np.maximum(n - np.square(inside).sum(1), 0))
    return np.linalg.svd(small, compute_uv=False).sum(1)


def solve_factored(
    problem: Completion,
    mu: float,
    k: int,
    *,
    constant: bool,
    kernels: Backend,
    random_state: Any,
    tol: float,
    max_iter: int,
    stop: Callable[[Fit], bool] | None = None,
) -> CompletionFit:
    """Minimise over factors of k columns for one μ, alternating between the two factors."""
    objective = FactoredCompletion(problem, mu, constant=constant, kernels=kernels)
    state = Fit(*objective.start(k, check_random_state(random_state)))
    rows: Any = RowPartsSolver(NewtonCG())
    alternate(objective, state, NewtonCG(), rows, max_iter=max_iter, tol=tol, stop=stop)
    W, H = objective.complete_factors(state.W, state.H)
    history = [value / objective.scale for value in state.history]
    left, right = (scipy.linalg.qr(factor, mode="r", check_finite=False)[0] for factor in (W, H))
    singular = scipy.linalg.svdvals(left[: W.shape[1]] @ right[: H.shape[1]].T, check_finite=False)
    rank = int((singular > MIN_FACTOR_SHARE * singular.max(initial=0)).sum())
    stage = Stage(mu, Point(W, H), 0.0, rank, history, state.status, state.n_iter)
    b = np.zeros(problem.t, W.dtype) if constant else state.H[: problem.t, -1].copy()
    return CompletionFit(W, H, b, rank, history, state.status.value, [record_stage(stage)])


def record_stage(stage: Stage) -> dict[str, Any]:
    """Return the entry of ``path_`` for a stage."""
    return {
        "mu": stage.mu,
        "objective": stage.value,
        "rank": stage.rank,
        "n_iter": stage.n_iter,
        "status": stage.status.value,
    }


def factorize(point: Point, constant: bool) -> tuple[NDArray, NDArray]:
    """Return W = U √S and H = V √S of Z = U S Vᵀ, or of [Z, 1]."""
    Z = point.Z
    if constant:
        Z = np.concatenate([Z + point.b if len(point.b) else Z, np.ones((len(Z), 1), Z.dtype)], axis=1)
    left, values, right = find_leading_triplets(Z, 0.0)
    nonzero = values > MIN_SINGULAR_SHARE * max(values.max(initial=0), np.finfo(Z.dtype).tiny)
    root = np.sqrt(values[nonzero])
    return left[:, nonzero] * root, right[:, nonzero] * root


class RowSpace:
    """The rows h_j of H for the features and, in MC-1, the row of the constant.

    The nuclear norm is the least (‖W‖² + ‖H‖²)/2 over Z = W Hᵀ, so at the optimum each row w of W minimises

        (μ/2) ‖w‖² + the loss of the row's own cells,        with w·h = 1 for the constant of MC-1,

    with H fixed. A new row has only its known features, and gets the w that minimises this for them: ridge
    regression of the features on H, which in terms of the right singular vectors weights the square of a coefficient
    by 1/σ_k.

    Parameters
    ----------
    features : ndarray of shape (d, k)
        h_j of each feature.
    ridge : float
        μ |Ω_X|.
    constant : ndarray of shape (k,), optional
        h of the constant.

    Examples
    --------
    >>> RowSpace(np.array([[1.0], [2.0]]), 0.0).embed(np.array([[3.0, np.nan], [1.0, 2.0]]), "zero")
    array([[3.],
           [1.]])
    """

    def __init__(self, features: NDArray, ridge: float, constant: NDArray | None = None) -> None:
        self.features, self.ridge, self.constant = features, ridge, constant

    def embed(self, X: Any, absent: str) -> NDArray:
        """Return w of each row of X (dense with NaN, or sparse), n×k."""
        H, cells = self.features.astype(float), KnownCellsOfRows(X, absent)
        right = np.asarray(cells.values @ H)
        W = np.empty_like(right)
        complete = cells.complete_rows
        if complete.any():
            W[complete] = self._solve(H, right[complete].T)
        for row in np.flatnonzero(~complete).tolist():
            W[row] = self._solve(H[cells.columns_of_row(row)], right[row, :, None])[0]
        return W.astype(self.features.dtype)

    def _solve(self, H: NDArray, right: NDArray) -> NDArray:
        """Solve (HᵀH + ridge) w = r for each column r, and move w along the constant's direction until w·h = 1.

        The ridge is at least the smallest one that changes HᵀH in floating point.
        """
        k = H.shape[1]
        if k == 0:
            return right.T
        sides = right if self.constant is None else np.column_stack([right, self.constant])
        gram = H.T @ H
        least = k * np.finfo(float).eps * max(float(np.trace(gram)), np.finfo(float).tiny)
        gram = gram + max(self.ridge, least) * np.eye(k)
        solutions = scipy.linalg.solve(gram, sides, assume_a="pos", check_finite=False).T
        if self.constant is None:
            return solutions
        w, along = solutions[:-1], solutions[-1]
        return w + np.outer((1 - w @ self.constant) / (along @ self.constant), along)


class KnownCellsOfRows:
    """The known cells of a feature matrix, with 0 for all others; a sparse matrix stays sparse."""

    def __init__(self, X: Any, absent: str) -> None:
        self.sparse, self.stored_only = sp.issparse(X), sp.issparse(X) and absent == "unknown"
        self.n, self.d = X.shape
        missing = np.isnan(X.data if self.sparse else X)
        if self.sparse:
            self.values = sp.csr_array((np.where(missing, 0, X.data), X.indices, X.indptr), shape=X.shape)
            self.missing = sp.csr_array((missing, X.indices, X.indptr), shape=X.shape)
        else:
            self.values, self.missing = np.where(missing, 0, X), missing

    @property
    def complete_rows(self) -> NDArray:
        """Whether all cells of a row are known."""
        if not self.sparse:
            return ~self.missing.any(1)
        if self.stored_only:
            return np.diff(self.values.indptr) - self.missing.sum(1) == self.d
        return self.missing.sum(1) == 0

    def columns_of_row(self, row: int) -> NDArray:
        """Return the known columns of a row."""
        if not self.sparse:
            return np.flatnonzero(~self.missing[row])
        part = slice(*self.values.indptr[row : row + 2])
        columns, missing = self.values.indices[part], self.missing.data[part]
        return columns[~missing] if self.stored_only else np.setdiff1d(np.arange(self.d), columns[missing])

    def copy_into(self, completed: NDArray) -> NDArray:
        """Return completed rows with the original values in the known cells."""
        if not self.stored_only:
            values, missing = (part.toarray() if self.sparse else part for part in (self.values, self.missing))
            return np.where(missing, completed, values)
        known = ~self.missing.data
        rows = np.repeat(np.arange(self.n), np.diff(self.values.indptr))[known]
        completed[rows, self.values.indices[known]] = self.values.data[known]
        return completed
