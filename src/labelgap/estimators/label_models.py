"""Linear models of all labels: the loop over blocks of labels, and the ways to solve a block."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.checkpoints import checkpoint_calls
from labelgap.kernels import Backend, get_backend
from labelgap.losses import CellFunctions, Loss
from labelgap.objectives import Features
from labelgap.objectives.embeddings import NormalEquations
from labelgap.objectives.held_out_ridge import TARGETS_PER_BLOCK, HeldOutRidge
from labelgap.objectives.labelwise import (
    ActiveRowSolver,
    LabelwiseObjectives,
    RowSums,
    compute_goals,
    find_constants,
    make_targets,
)
from labelgap.observations import Labels
from labelgap.runtime import progress
from labelgap.solvers.column_newton import ColumnNewton

LABELS_PER_PRODUCT = 128  # of their weights with held-out rows
MAX_TARGETS_PER_BLOCK = 1 << 20  # large enough for fast products, small enough to distribute over threads
MIN_LABELS_PER_BLOCK, MAX_LABELS_PER_BLOCK = 8, 64
START_TOL = 0.1
MAX_HESSIAN_FEATURES = 256  # dense features whose d×d Hessian costs less than many steps of conjugate gradients
MIN_WEIGHT_SHARE = 1e-6  # of the mean weight of rows: a row of weight 0 has this one, to be scored when held out
MAX_DEVICE_TARGETS, MAX_DEVICE_LABELS = 1 << 25, 4096  # of a block on a GPU, which needs ten arrays of its size
MAX_SUBSET_SHARE = 0.8  # of all rows: if a block knows fewer, the others are left out

# Newton's method for the squared hinge stops when a step predicts a decrease below this share of the objective. The
# loss is quadratic between its kinks, so it ends after few steps, and only rounding errors remain.
MIN_DECREASE = 1e-10
ARMIJO_SHARE = 1e-4
MIN_STEP_LENGTH = 1e-10
MIN_EIGENVALUE_SHARE = 1e-15


class LabelSettings(NamedTuple):
    """The parameters of :class:`BinaryRelevance` that all labels share."""

    loss: Loss
    alpha: float
    l1: float
    threshold: float
    constant: bool
    max_iter: int
    tol: float
    dtype: Any
    frequency_power: float = 0.0

    @property
    def sparse(self) -> bool:
        """Whether weights are stored as a sparse matrix."""
        return self.l1 > 0 or self.threshold > 0


class LabelFits(NamedTuple):
    """Linear models of some labels.

    ``weights`` is m×d and ``constants`` has length m; ``n_iter`` is the largest number of steps of a label, and
    ``converged`` whether all labels converged. A search adds the chosen ``C`` and the ``cv_errors`` of each label.
    """

    weights: Any
    constants: NDArray
    n_iter: int = 1
    converged: bool = True
    C: NDArray | None = None
    cv_errors: NDArray | None = None


BlockFitter = Callable[[NDArray], LabelFits]


def count_cells(by_label: Labels) -> tuple[NDArray, NDArray]:
    """Return the numbers of positives and of known cells of each label."""
    positive = np.diff(by_label.positives.indptr)
    known = np.full_like(positive, by_label.shape[1]) if by_label.known is None else np.diff(by_label.known.indptr)
    return positive, known


def fit_blocks(
    fit: BlockFitter, by_label: Labels, labels_per_block: int, *, name: str, verbose: int, at_once: int | None = None
) -> Iterator[tuple[NDArray, LabelFits]]:
    """Fit all labels with cells of both classes in blocks and yield the blocks with their models.

    ``at_once`` is the number of blocks at a time, by default that of threads.

    The blocks do not depend on the number of threads, so that rounding does not depend on it either. Finished blocks
    are stored in the current checkpoint.
    """
    positive, known = count_cells(by_label)
    learned = np.flatnonzero((positive > 0) & (positive < known))
    learned = learned[np.argsort(-positive[learned], kind="stable")]  # similar labels take similar numbers of steps
    blocks = np.array_split(learned, -(-len(learned) // labels_per_block)) if len(learned) else []
    tasks = [partial(fit, block) for block in blocks]
    with progress(len(tasks), name, verbose) as advance:
        for block, fits in zip(blocks, checkpoint_calls("labels", tasks, LabelFits, at_once=at_once), strict=True):
            advance(f"{len(block)} labels, {fits.n_iter} steps")
            yield block, fits


def scale_by_frequency(counts: NDArray, power: float) -> NDArray[np.float64]:
    """Return the target of a positive of each label, ((f_j + 1) / m)^−power; m is the mean of f + 1 over positives.

    A penalty shrinks the scores of rare labels most; targets above 1 make up for it.

    >>> scale_by_frequency(np.array([1, 7]), 0.5).round(3).tolist()
    [1.904, 0.952]
    """
    mean = counts @ (counts + 1) / counts.sum() if counts.any() else 1.0
    return ((counts + 1) / mean) ** -float(power)


class LabelProblem:
    """What all labels share: rows, labels, targets of positives, a prior and the weights of rows.

    ``scale`` multiplies the targets of each label (see :func:`scale_by_frequency`). The penalty pulls weights to
    those of ``prior`` (L×d): w = prior + v, and v is penalised. ``weights`` (n) multiply the losses of a row, and
    ``positive_weights`` (L) those of the positives of a label.
    """

    def __init__(
        self,
        X: Any,
        by_label: Labels,
        settings: LabelSettings,
        *,
        prior: Any = None,
        weights: NDArray | None = None,
        positive_weights: NDArray | None = None,
    ) -> None:
        self.X, self.by_label, self.settings, self.prior, self.weights = X, by_label, settings, prior, weights
        self.positive_weights = positive_weights
        positive, known = count_cells(by_label)
        self.scale = scale_by_frequency(positive, settings.frequency_power)
        if weights is not None:
            positive = by_label.positives @ weights
            known = weights.sum() if by_label.known is None else by_label.known @ weights
        weighted = positive if positive_weights is None else positive_weights * positive
        self.constants = self.scale * find_constants(settings.loss, settings.alpha, weighted, known - positive)

    def make_targets(self, block: NDArray) -> NDArray:
        """Return the targets of v for some labels, n×m, NaN for unknown cells."""
        targets = make_targets(self.by_label, block, self.settings.loss, self.settings.dtype)
        if self.settings.frequency_power:
            targets *= self.scale[block].astype(targets.dtype)
        if self.prior is not None:
            targets -= _as_array(self.X @ self.prior[block].T)
        return targets

    def summarize(self) -> dict[str, NDArray]:
        """Return what :func:`update_ridge` needs of these rows: the diagonal of XᵀX, and positives of each label."""
        rows = append_constant(self.X, self.settings.constant)
        weights = np.ones(rows.shape[0]) if self.weights is None else self.weights
        return {
            "squares": np.asarray((rows * rows).T @ weights, float).ravel(),
            "positives": count_cells(self.by_label)[0].astype(float),
            "targets": self.scale,
        }


def update_ridge(
    before: LabelFits, memory: dict[str, NDArray], problem: LabelProblem, kernels: Backend
) -> tuple[LabelFits, dict[str, NDArray]]:
    """Return ridge regressions after further rows, and their memory; ``memory`` is that of the earlier rows.

    Minimises ½ ‖T − XC‖² + ½ tr((C − C₀)ᵀ P (C − C₀)) with P = diag(squares + α): for C = C₀ + P^-½ V that is the
    ridge regression of the residuals T − X C₀ on X P^-½ with the penalty 1. A new label starts from C₀ = 0, the
    regression of its earlier targets.
    """
    settings, n_new = problem.settings, problem.by_label.shape[0] - len(before.constants)
    further = problem.summarize()
    positives = further["positives"] + np.append(memory["positives"], np.zeros(n_new))
    targets = scale_by_frequency(positives, settings.frequency_power)
    targets[: len(memory["targets"])] = memory["targets"]  # the earlier rows had these
    X = append_constant(problem.X, settings.constant)
    start = np.vstack([_as_array(before.weights).T, before.constants])[: X.shape[1]].astype(settings.dtype)
    start = np.hstack([start, np.zeros((len(start), n_new), settings.dtype)])
    roots = 1 / np.sqrt(memory["squares"] + settings.alpha).astype(settings.dtype)
    scaled = sp.csr_array(X * roots) if sp.issparse(X) else X * roots
    equations, W = NormalEquations(Features(scaled, kernels, settings.dtype)), start.copy()
    for first in range(0, W.shape[1], TARGETS_PER_BLOCK):
        block = np.arange(first, min(first + TARGETS_PER_BLOCK, W.shape[1]))
        residuals = problem.by_label[block].positives.toarray().T * targets[block].astype(settings.dtype)
        residuals -= _as_array(X @ start[:, block])
        V, _ = equations.solve(np.ascontiguousarray(residuals), 1.0, 1.0)
        W[:, block] += roots[:, None] * V
    memory = {"squares": memory["squares"] + further["squares"], "positives": positives, "targets": targets}
    return split_constants(W, settings, 1, True), memory


def fit_labels(problem: LabelProblem, kernels: Backend, *, verbose: int = 0) -> LabelFits:
    """Fit the models of all labels for :class:`BinaryRelevance`.

    A label without known cells of both classes has no weights and the constant that minimises its objective.
    """
    settings, shape = problem.settings, (problem.by_label.shape[0], problem.X.shape[1])
    constants, n_iter, converged, parts = problem.constants.copy(), 1, True, []
    weights: Any = None if settings.sparse else np.zeros(shape, settings.dtype, order="F")  # by feature, for products
    for block, fits in iterate_fits(problem, kernels, verbose=verbose):
        constants[block] = fits.constants
        n_iter, converged = max(n_iter, fits.n_iter), converged and fits.converged
        if settings.sparse:
            parts.append((block, fits.weights))
        else:
            weights[block] = fits.weights
    weights = _stack_sparse(parts, shape, settings.dtype) if settings.sparse else weights
    return LabelFits(weights, constants, n_iter, converged)


def iterate_fits(problem: LabelProblem, kernels: Backend, *, verbose: int = 0) -> Iterator[tuple[NDArray, LabelFits]]:
    """Yield blocks of the labels with known cells of both classes, and their models."""
    settings, by_label, prior = problem.settings, problem.by_label, problem.prior
    solve = _choose_solver(problem, kernels)

    def fit(block: NDArray) -> LabelFits:
        fits = solve(block)
        if prior is not None:
            fits = fits._replace(weights=fits.weights + _as_array(prior[block]))
        if not settings.sparse:
            return fits
        return fits._replace(
            weights=sp.csr_array(np.where(np.abs(fits.weights) < settings.threshold, 0, fits.weights))
        )

    n_targets, most, at_once = MAX_TARGETS_PER_BLOCK, MAX_LABELS_PER_BLOCK, None
    if kernels is not get_backend():
        n_targets, most, at_once = MAX_DEVICE_TARGETS, MAX_DEVICE_LABELS, 1
    width = int(np.clip(n_targets // max(1, by_label.shape[1]), MIN_LABELS_PER_BLOCK, most))
    yield from fit_blocks(fit, by_label, width, name="BinaryRelevance", verbose=verbose, at_once=at_once)


def join_fits(
    pairs: Iterable[tuple[NDArray, LabelFits]], n_labels: int = LABELS_PER_PRODUCT
) -> Iterator[tuple[NDArray, LabelFits]]:
    """Join blocks of labels, with their models, to blocks of at least ``n_labels`` labels but for the last.

    Dense weights are stored by feature, as products with rows need them.

    >>> pairs = [(np.array([j]), LabelFits(np.ones((1, 2)), np.zeros(1))) for j in (2, 0, 1)]
    >>> [(block.tolist(), fits.weights.shape) for block, fits in join_fits(pairs, 2)]
    [([2, 0], (2, 2)), ([1], (1, 2))]
    """
    blocks: list[NDArray] = []
    parts: list[LabelFits] = []

    def join() -> tuple[NDArray, LabelFits]:
        weights = [fits.weights for fits in parts]
        is_sparse = sp.issparse(weights[0])
        joined = sp.csr_array(sp.vstack(weights)) if is_sparse else np.hstack([part.T for part in weights]).T
        constants = np.concatenate([fits.constants for fits in parts])
        n_iter, converged = max(fits.n_iter for fits in parts), all(fits.converged for fits in parts)
        block = np.concatenate(blocks)
        blocks.clear()
        parts.clear()
        return block, LabelFits(joined, constants, n_iter, converged)

    for block, fits in pairs:
        blocks.append(block)
        parts.append(fits)
        if sum(map(len, blocks)) >= n_labels:
            yield join()
    if blocks:
        yield join()


def _as_array(matrix: Any) -> NDArray:
    return matrix.toarray() if sp.issparse(matrix) else np.asarray(matrix)


class RidgeParts(NamedTuple):
    """Scores of held-out rows by ridge regressions of other rows, in parts from which those of any targets follow.

    Regression is linear in its targets: with targets t_j for positives of label j and a prior weight β, the scores
    are t_j · ``on_labels`` + β · ``on_prior``.

    Attributes
    ----------
    on_labels : ndarray of shape (rows, L)
        Predictions by regressions of labels 0 and 1.
    on_prior : ndarray of shape (rows, L), or None
        x·m_j for the prior m_j, less its prediction by a regression.
    counts : ndarray of shape (L,)
        The numbers of positives among the other rows.
    constants : ndarray of shape (L,)
        The scores of labels of one class in the other rows; NaN for other labels.
    """

    on_labels: NDArray
    on_prior: NDArray | None
    counts: NDArray
    constants: NDArray

    def combine(self, power: float, weight: float = 1.0) -> NDArray:
        """Return the scores of targets by frequency and a weight of the prior."""
        scale = scale_by_frequency(self.counts, power)
        scores = self.on_labels * scale.astype(self.on_labels.dtype)
        if self.on_prior is not None and weight:
            scores += self.on_prior.dtype.type(weight) * self.on_prior
        one_class = np.flatnonzero(~np.isnan(self.constants))
        scores[:, one_class] = (scale * self.constants)[one_class]
        return scores


class FoldRidge:
    """Ridge regressions of labels, and of the scores of a prior, without the rows of a fold.

    With few rows or features all folds share a factorisation; otherwise each one is solved by conjugate gradients.
    Weighted rows and their targets are multiplied by the roots of the weights, and predictions divided by them.
    """

    def __init__(
        self,
        X: Any,
        labels: Labels,
        settings: LabelSettings,
        kernels: Backend,
        prior: Any = None,
        weights: NDArray | None = None,
    ) -> None:
        self.X, self.labels, self.settings, self.kernels, self.prior = X, labels, settings, kernels, prior
        self.weights, self.constant = np.ones(len(labels)), settings.constant
        self.roots: NDArray | None = None
        targets = labels.positives.astype(settings.dtype)
        if prior is not None:
            targets = sp.hstack([targets, sp.csr_array(X @ prior.T)], format="csr", dtype=settings.dtype)
        self.targets = sp.csr_array(targets)
        if weights is not None:
            self._weigh(weights)
        self._shared = self._share(None)

    def _weigh(self, weights: NDArray) -> None:
        self.weights = np.maximum(weights, MIN_WEIGHT_SHARE * weights.mean())
        self.roots = np.sqrt(self.weights)[:, None].astype(self.settings.dtype)
        rows = append_constant(self.X, self.constant) * self.roots
        self.X, self.constant = sp.csr_array(rows) if sp.issparse(rows) else rows, False
        self.targets = sp.csr_array(self.targets * self.roots)

    def _share(self, equations: NormalEquations | None) -> HeldOutRidge:
        dtype, constant, alpha = self.settings.dtype, self.constant, self.settings.alpha
        return HeldOutRidge(self.X, self.targets, alpha, self.kernels, dtype, constant=constant, equations=equations)

    def with_alpha(self, alpha: float) -> FoldRidge:
        """Return the regressions of another penalty; they share targets and the Gram matrix."""
        other = copy(self)
        other.settings = self.settings._replace(alpha=alpha)
        other._shared = other._share(self._shared.equations)
        return other

    @property
    def is_exact(self) -> bool:
        """Whether folds share a factorisation."""
        return self._shared.is_exact

    def score(self, held_out: NDArray) -> RidgeParts:
        """Return the parts of the scores of held-out rows, by regressions without all of them."""
        predictions = self._shared.predict(held_out) if self.is_exact else self._solve(held_out)
        return self._collect_parts(predictions, held_out, held_out)

    def score_each(self, rows: NDArray) -> RidgeParts:
        """Return the parts of the scores of rows, each by regressions without this row alone."""
        return self._collect_parts(self._shared.predict_each(rows), rows, rows[:0])

    def find_leverages(self, rows: NDArray) -> NDArray[np.float64]:
        """Return how much each row pulls its own prediction, between 0 and 1."""
        return self._shared.find_leverages(rows)

    def _collect_parts(self, predictions: NDArray, rows: NDArray, left_out: NDArray) -> RidgeParts:
        """Return the parts of the scores of rows by regressions that had no positives of the rows ``left_out``."""
        n_labels = self.labels.shape[1]
        positive = np.bincount(self.labels.positives.indices, minlength=n_labels)
        positive -= np.bincount(self.labels[left_out].positives.indices, minlength=n_labels)
        on_prior = None
        if self.prior is not None:
            on_prior = self.targets[rows][:, n_labels:].toarray() - predictions[:, n_labels:]
        if self.roots is not None:
            predictions = predictions / self.roots[rows]
            on_prior = None if on_prior is None else on_prior / self.roots[rows]
        negative = len(self.labels) - len(left_out) - positive
        constants = self._find_constants(left_out)
        constants[(positive > 0) & (negative > 0)] = np.nan
        return RidgeParts(predictions[:, :n_labels], on_prior, positive, constants)

    def _find_constants(self, held_out: NDArray) -> NDArray:
        """Return the constants of all labels without held-out rows."""
        weights = self.weights.copy()
        weights[held_out] = 0
        positive = self.labels.positives.T @ weights
        return find_constants(self.settings.loss, self.settings.alpha, positive, weights.sum() - positive)

    def _solve(self, held_out: NDArray) -> NDArray:
        train = np.setdiff1d(np.arange(len(self.labels)), held_out)
        rows, others = (
            Features(self.X[part], self.kernels, self.settings.dtype, constant=self.constant)
            for part in (held_out, train)
        )
        equations, targets = NormalEquations(others, tol=self.settings.tol), self.targets[train]
        width = TARGETS_PER_BLOCK
        parts = []
        for start in range(0, targets.shape[1], width):
            right = self.kernels.array(targets[:, start : start + width].toarray(), self.settings.dtype)
            solution, _ = equations.solve(right, 1.0, self.settings.alpha)
            parts.append(self.kernels.to_numpy(rows.times(solution)))
        return np.hstack(parts)


def _stack_sparse(parts: list[tuple[NDArray, Any]], shape: tuple[int, int], dtype: Any) -> sp.csr_array:
    """Return the sparse L×d weights of all labels; labels that are in no block have the weights 0."""
    learned = np.concatenate([np.empty(0, int), *(block for block, _ in parts)])
    others = np.setdiff1d(np.arange(shape[0]), learned)
    zeros = sp.csr_array((len(others), shape[1]), dtype=dtype)
    stacked = sp.csr_array(sp.vstack([*(weights for _, weights in parts), zeros], format="csr"))
    return stacked[np.argsort(np.concatenate([learned, others]))]


def _choose_solver(problem: LabelProblem, kernels: Backend) -> BlockFitter:
    """Return the fastest function that fits a block of labels."""
    X, by_label, settings = problem.X, problem.by_label, problem.settings
    if problem.positive_weights is not None:
        return partial(_solve_newton, problem, kernels)
    if settings.loss.quadratic and by_label.complete and settings.l1 == 0:
        return _solve_normal_equations(problem, kernels)
    # These two solve labels one by one, in compiled loops.
    plain = settings.alpha > 0 and settings.l1 == 0 and problem.weights is None and kernels is get_backend()
    if settings.loss.margin is not None and sp.issparse(X) and plain:
        return _solve_near_rows(X, by_label, settings, kernels)
    if settings.loss.squares_margin and X.shape[1] <= MAX_HESSIAN_FEATURES and plain:
        return _solve_hessians(X, by_label, settings, problem.constants)
    return partial(_solve_newton, problem, kernels)


def _solve_normal_equations(problem: LabelProblem, kernels: Backend) -> BlockFitter:
    """Solve (XᵀX + αI) w = Xᵀy for squared loss with every label known; all labels share the matrix.

    Weighted rows and their targets are multiplied by the roots of the weights.
    """
    X, settings = problem.X, problem.settings
    roots = None if problem.weights is None else np.sqrt(problem.weights)[:, None].astype(settings.dtype)
    if roots is None:
        features = Features(X, kernels, settings.dtype, constant=settings.constant)
    else:
        features = Features(append_constant(X, settings.constant) * roots, kernels, settings.dtype)
    equations = NormalEquations(features, tol=settings.tol)
    zeros = kernels.array(np.zeros((X.shape[0], 1)), settings.dtype)
    equations.solve(zeros, 1.0, settings.alpha)  # factorises the shared matrix

    def fit(block: NDArray) -> LabelFits:
        targets = problem.make_targets(block)
        right = kernels.array(targets if roots is None else roots * targets, settings.dtype)
        W, converged = equations.solve(right, 1.0, settings.alpha)
        return split_constants(kernels.to_numpy(W), settings, 1, converged)

    return fit


def append_constant(X: Any, constant: bool) -> Any:
    """Return rows with a further column 1, or as they are.

    >>> append_constant(np.array([[2.0]]), True)
    array([[2., 1.]])
    """
    if not constant:
        return X
    ones = np.ones((X.shape[0], 1), X.dtype)
    return sp.csr_array(sp.hstack([X, ones], format="csr")) if sp.issparse(X) else np.hstack([X, ones])


def _solve_near_rows(X: Any, by_label: Labels, settings: LabelSettings, kernels: Backend) -> BlockFitter:
    """Solve each label on the rows near its boundary, from its ridge regression; for margin losses on sparse rows."""
    X = append_constant(X, settings.constant)
    features = Features(X, kernels, settings.dtype)
    equations = NormalEquations(features, tol=START_TOL)
    ridge, loss, sums = settings.alpha / settings.loss.max_curvature, settings.loss, RowSums(X, by_label)
    slope = CellFunctions(*loss.functions()).gradient
    equations.find_factor(1.0, ridge)  # before threads share it

    def fit(block: NDArray) -> LabelFits:
        targets = make_targets(by_label, block, settings.loss, settings.dtype)
        right = sums.add_targets(block, loss.negative, loss.positive, settings.dtype)
        start, _ = equations.solve_right(right, 1.0, ridge)
        slopes = float(slope(loss.negative, 0.0)), float(slope(loss.positive, 0.0))
        gradient = sums.add_targets(block, slopes[0], slopes[1], settings.dtype)
        goals = compute_goals(gradient, targets, loss, settings.tol)
        problem = ActiveRowSolver(kernels, features.matrix, settings.loss, targets, settings.alpha, settings.constant)
        solution = problem.minimize(start, goals, settings.max_iter)
        return split_constants(solution.x, settings, int(solution.n_iter.max()), bool(solution.converged.all()))

    return fit


def _solve_hessians(X: Any, by_label: Labels, settings: LabelSettings, constants: NDArray) -> BlockFitter:
    """Solve each label up to rounding by Newton's method; for the squared hinge on few dense features."""
    rows = np.asarray(X, float)
    if settings.constant:
        rows = np.column_stack([rows, np.ones(len(rows))])

    def fit(block: NDArray) -> LabelFits:
        targets = make_targets(by_label, block, settings.loss, float)
        solutions = []
        for j, y in zip(block, targets.T, strict=True):
            known, start = ~np.isnan(y), np.zeros(rows.shape[1])
            if settings.constant:
                start[-1] = constants[j]
            signed = rows[known] * y[known, None]
            solutions.append(minimize_squared_hinge(signed, 1 / settings.alpha, start, settings.max_iter))
        W = np.column_stack([solution.w for solution in solutions]).astype(settings.dtype)
        n_iter = max(solution.n_iter for solution in solutions)
        return split_constants(W, settings, n_iter, all(solution.converged for solution in solutions))

    return fit


def _solve_newton(problem: LabelProblem, kernels: Backend, block: NDArray) -> LabelFits:
    """Solve all labels of a block at once by Newton's method; for any loss, with or without gaps."""
    X, settings, weights, targets = problem.X, problem.settings, problem.weights, problem.make_targets(block)
    rows = np.flatnonzero(~np.isnan(targets).all(axis=1))
    if len(rows) < MAX_SUBSET_SHARE * len(targets):
        X, targets, weights = X[rows], targets[rows], None if weights is None else weights[rows]
    features = Features(X, kernels, settings.dtype, constant=settings.constant)
    positive_weights = None if problem.positive_weights is None else problem.positive_weights[block]
    cells = kernels.array(targets, settings.dtype)
    objectives = LabelwiseObjectives(features, settings.loss, cells, settings.alpha, weights, positive_weights)
    start = np.zeros((features.shape[1], len(block)), settings.dtype)
    l1: Any = np.full((features.shape[1], 1), settings.l1, settings.dtype) if settings.l1 else 0.0
    if settings.constant:
        start[-1] = problem.constants[block]
    if settings.constant and settings.l1:
        l1[-1] = 0
    start, l1 = kernels.array(start, settings.dtype), kernels.array(l1, settings.dtype) if settings.l1 else l1
    solution = ColumnNewton(settings.max_iter).minimize(objectives, start, objectives.goals(settings.tol), l1)
    W, n_iter = kernels.to_numpy(solution.x), int(solution.n_iter.max())
    return split_constants(W, settings, n_iter, bool(solution.converged.all()))


def split_constants(W: NDArray, settings: LabelSettings, n_iter: int, converged: bool) -> LabelFits:
    """Return models from solutions W, d×m or with the constants below (d + 1)×m."""
    if settings.constant:
        return LabelFits(W[:-1].T, W[-1].astype(float), n_iter, converged)
    return LabelFits(W.T, np.zeros(W.shape[1]), n_iter, converged)


class HingeSolution(NamedTuple):
    """The minimiser w, whether Newton's method converged, and its number of steps."""

    w: NDArray
    converged: bool
    n_iter: int


def minimize_squared_hinge(V: NDArray, C: float, start: NDArray, max_iter: int) -> HingeSolution:
    """Minimise ½ ‖w‖² + C Σ_i max(0, 1 − v_i·w)² over w, for the rows v_i of V (Keerthi and DeCoste 2005).

    A step solves the quadratic problem of the rows with margins below 1, and is shortened if it would raise the
    objective. For two classes v = ±(x, 1).

    >>> V = np.array([[1.0, 1.0], [1.0, -1.0]])  # x = 1 is positive, x = −1 negative
    >>> minimize_squared_hinge(V, 0.5, np.zeros(2), 10)  # w = (⅔, 0) solves w₁ = 2 (1 − w₁)
    HingeSolution(w=array([0.66666667, 0.        ]), converged=True, n_iter=1)
    """
    w, ridge = start, 0.5 / C
    margins = V @ w
    for n_iter in range(max_iter):
        short = margins < 1
        A, lack = V[short], 1 - margins[short]
        gradient = ridge * w - A.T @ lack
        step = _solve_ridge(A, ridge, -gradient)
        value, slope = 0.5 * ridge * (w @ w) + 0.5 * (lack @ lack), gradient @ step
        if -slope <= MIN_DECREASE * value:
            return HingeSolution(w, True, n_iter)
        length = _search_line(ridge, w, step, margins, V @ step, value, slope)
        if length is None:
            return HingeSolution(w, True, n_iter)  # rounding hides any further progress
        w = w + length * step
        margins = V @ w
    return HingeSolution(w, False, max_iter)


def _solve_ridge(A: NDArray, ridge: float, right: NDArray) -> NDArray:
    """Solve (AᵀA + ridge I) x = right, scaled to a diagonal of 1 because features differ in size."""
    H = A.T @ A
    H[np.diag_indices_from(H)] += ridge
    scale = 1 / np.sqrt(np.diagonal(H))
    H *= np.outer(scale, scale)
    _, x, info = scipy.linalg.lapack.dposv(H, scale * right)
    if info:  # H is singular in floating point; a nearby positive definite matrix gives a descent direction
        values, vectors = scipy.linalg.eigh(H)
        x = vectors @ ((vectors.T @ (scale * right)) / np.maximum(values, MIN_EIGENVALUE_SHARE * values[-1]))
    return scale * x


def _search_line(
    ridge: float, w: NDArray, step: NDArray, margins: NDArray, change: NDArray, value: float, slope: float
) -> float | None:
    """Return a step length of sufficient decrease, found by halving, or None if there is none."""
    length = 1.0
    while length > MIN_STEP_LENGTH:
        candidate, lack = w + length * step, np.maximum(0, 1 - margins - length * change)
        if 0.5 * ridge * (candidate @ candidate) + 0.5 * (lack @ lack) <= value + ARMIJO_SHARE * length * slope:
            return length
        length /= 2
    return None
