"""How the linear models of all labels are found: in one system, or block by block of labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.estimators.newton_svm import minimize
from labelgap.estimators.pieces import in_pieces
from labelgap.kernels import Backend
from labelgap.losses import Loss
from labelgap.objectives import Features
from labelgap.objectives.labelwise import Labelwise, best_constants, target_block
from labelgap.objectives.near_rows import NearRows
from labelgap.objectives.regression import NormalEquations
from labelgap.observations import Labels
from labelgap.runtime import progress
from labelgap.solvers.columns import ColumnNewton

CELLS_PER_BLOCK = 1 << 20  # of targets: enough for products at full speed, few enough to share the work out
WIDEST = 64
START_TOL = 0.1
FEW_FEATURES = 256  # dense ones, whose Hessian costs less than the many steps of conjugate gradients
FEW_ROWS = 0.8  # of all: where the labels of a block know fewer, the others are left out


class Settings(NamedTuple):
    """What all labels share; weights below ``threshold`` in magnitude are cut."""

    loss: Loss
    alpha: float
    l1: float
    threshold: float
    constant: bool
    max_iter: int
    tol: float
    dtype: Any
    verbose: int

    @property
    def sparse(self) -> bool:
        """Whether weights are kept sparse."""
        return self.l1 > 0 or self.threshold > 0

    def stored(self, weights: NDArray) -> Any:
        """Return the weights of some labels as the model keeps them."""
        if not self.sparse:
            return weights
        return sp.csr_array(np.where(np.abs(weights) < self.threshold, 0, weights))


class Found(NamedTuple):
    """The weights of some labels, m×d, and their constants; the most steps of a label, and whether all ended."""

    weights: Any
    constants: NDArray
    n_iter: int = 1
    converged: bool = True


Fitter = Callable[[NDArray], Found]


def fit_labels(X: Any, labels: Labels, settings: Settings, kernels: Backend) -> Found:
    """Return the models of all labels.

    One whose known cells are all of a class, or that has none, has no weights and the constant that suits it best.
    """
    by_label = labels.T
    positive, known = _counts(by_label)
    constants = best_constants(settings.loss, settings.alpha, positive, known - positive)
    learned = np.flatnonzero((positive > 0) & (positive < known))
    learned = learned[np.argsort(-positive[learned], kind="stable")]  # labels alike take about as many steps
    blocks = _blocks(learned, len(labels))
    fit = _choose(X, by_label, settings, kernels, constants)
    found = _run([partial(_fit_and_store, fit, block, settings) for block in blocks], settings.verbose)
    for block, part in zip(blocks, found, strict=True):
        constants[block] = part.constants
    weights = _assemble(blocks, found, (labels.shape[1], X.shape[1]), settings)
    return Found(weights, constants, max([1, *(p.n_iter for p in found)]), all(p.converged for p in found))


def _counts(by_label: Labels) -> tuple[NDArray, NDArray]:
    """Return how many positives and how many known cells each label has."""
    positive = np.diff(by_label.positives.indptr)
    known = np.full_like(positive, by_label.shape[1]) if by_label.known is None else np.diff(by_label.known.indptr)
    return positive, known


def _blocks(learned: NDArray, n: int) -> list[NDArray]:
    """Cut labels into blocks, as many for any number of threads, so that rounding does not depend on it."""
    width = int(np.clip(CELLS_PER_BLOCK // max(1, n), 8, WIDEST))
    return np.array_split(learned, -(-len(learned) // width)) if len(learned) else []


def _run(tasks: Sequence[Callable[[], Found]], verbose: int) -> list[Found]:
    found = []
    with progress(len(tasks), "BinaryRelevance", verbose) as advance:
        for part in in_pieces("labels", tasks, Found):
            advance(f"{len(part.constants)} labels, {part.n_iter} steps")
            found.append(part)
    return found


def _fit_and_store(fit: Fitter, block: NDArray, settings: Settings) -> Found:
    found = fit(block)
    return found._replace(weights=settings.stored(found.weights))


def _assemble(blocks: list[NDArray], found: list[Found], shape: tuple[int, int], settings: Settings) -> Any:
    """Return the weights of all labels, in their order; those that are in no block have none."""
    if settings.sparse:
        listed = np.concatenate([np.empty(0, int), *blocks])
        others = np.setdiff1d(np.arange(shape[0]), listed)
        nothing = sp.csr_array((len(others), shape[1]), dtype=settings.dtype)
        stacked = sp.csr_array(sp.vstack([*(part.weights for part in found), nothing], format="csr"))
        return stacked[np.argsort(np.concatenate([listed, others]))]
    weights = np.zeros(shape, settings.dtype)
    for block, part in zip(blocks, found, strict=True):
        weights[block] = part.weights
    return weights


def _choose(X: Any, by_label: Labels, settings: Settings, kernels: Backend, constants: NDArray) -> Fitter:
    """Return how to fit a block of labels."""
    if settings.loss.quadratic and by_label.complete and settings.l1 == 0:
        return _by_one_system(X, by_label, settings, kernels)
    smooth = settings.alpha > 0 and settings.l1 == 0
    if settings.loss.margin is not None and sp.issparse(X) and smooth:
        return _by_near_rows(X, by_label, settings, kernels)
    if settings.loss.squares_margin and X.shape[1] <= FEW_FEATURES and smooth:
        return _by_hessians(X, by_label, settings, constants)
    return partial(_by_newton, X, by_label, settings, kernels, constants)


def _by_one_system(X: Any, by_label: Labels, settings: Settings, kernels: Backend) -> Fitter:
    """Squared loss, every label known: (XᵀX + αI) w = Xᵀy, whose matrix all labels share."""
    features = Features(X, kernels, settings.dtype, constant=settings.constant)
    equations = NormalEquations(features, tol=min(1e-4, settings.tol))
    equations.solve(np.zeros((X.shape[0], 1), settings.dtype), 1.0, settings.alpha)  # what labels share is made once

    def fit(block: NDArray) -> Found:
        targets = target_block(by_label, block, settings.loss, settings.dtype)
        W, converged = equations.solve(targets, 1.0, settings.alpha)
        return _found(W, settings, 1, converged)

    return fit


def _by_near_rows(X: Any, by_label: Labels, settings: Settings, kernels: Backend) -> Fitter:
    """A loss with a margin, sparse rows: each label on the rows near its boundary, from its ridge regression."""
    if settings.constant:
        X = sp.csr_array(sp.hstack([X, np.ones((X.shape[0], 1), X.dtype)], format="csr"))
    features = Features(X, kernels, settings.dtype)
    equations = NormalEquations(features, tol=START_TOL)
    ridge = settings.alpha / settings.loss.max_curvature
    equations.solve(np.zeros((X.shape[0], 1), settings.dtype), 1.0, ridge)  # what all labels share is made once

    def fit(block: NDArray) -> Found:
        targets = target_block(by_label, block, settings.loss, settings.dtype)
        start, _ = equations.solve(np.nan_to_num(targets), 1.0, ridge)
        goals = Labelwise(features, settings.loss, targets, settings.alpha).goals(settings.tol)
        problem = NearRows(kernels, features.matrix, settings.loss, targets, settings.alpha, settings.constant)
        found = problem.minimize(start, goals, settings.max_iter)
        return _found(found.x, settings, int(found.n_iter.max()), bool(found.converged.all()))

    return fit


def _by_hessians(X: Any, by_label: Labels, settings: Settings, constants: NDArray) -> Fitter:
    """Squared hinge, few dense features: each label to rounding, by solving for the rows that lack margin."""
    rows = np.asarray(X, float)
    if settings.constant:
        rows = np.column_stack([rows, np.ones(len(rows))])

    def fit(block: NDArray) -> Found:
        targets = target_block(by_label, block, settings.loss, float)
        ends = []
        for j, y in zip(block, targets.T, strict=True):
            known, start = ~np.isnan(y), np.zeros(rows.shape[1])
            if settings.constant:
                start[-1] = constants[j]
            signed = rows[known] * y[known, None]
            ends.append(minimize(signed, 1 / settings.alpha, start, settings.max_iter))
        W = np.column_stack([end.w for end in ends]).astype(settings.dtype)
        return _found(W, settings, max(end.n_iter for end in ends), all(end.converged for end in ends))

    return fit


def _by_newton(
    X: Any, by_label: Labels, settings: Settings, kernels: Backend, constants: NDArray, block: NDArray
) -> Found:
    """Any loss, gaps or not: Newton's method, for all labels of a block at once."""
    targets = target_block(by_label, block, settings.loss, settings.dtype)
    X, targets = _known_rows(X, targets)
    features = Features(X, kernels, settings.dtype, constant=settings.constant)
    problem = Labelwise(features, settings.loss, targets, settings.alpha)
    start = np.zeros((features.shape[1], len(block)), settings.dtype)
    l1 = np.full((features.shape[1], 1), settings.l1, settings.dtype)
    if settings.constant:
        start[-1], l1[-1] = constants[block], 0
    found = ColumnNewton(settings.max_iter).minimize(problem, start, problem.goals(settings.tol), l1)
    return _found(found.x, settings, int(found.n_iter.max()), bool(found.converged.all()))


def _known_rows(X: Any, targets: NDArray) -> tuple[Any, NDArray]:
    """Return the rows of which some label of a block is known, where they are few."""
    rows = np.flatnonzero(~np.isnan(targets).all(axis=1))
    return (X[rows], targets[rows]) if len(rows) < FEW_ROWS * len(targets) else (X, targets)


def _found(W: NDArray, settings: Settings, n_iter: int, converged: bool) -> Found:
    """Take the constants from below the weights, d×m or (d + 1)×m."""
    if settings.constant:
        return Found(W[:-1].T, W[-1].astype(float), n_iter, converged)
    return Found(W.T, np.zeros(W.shape[1]), n_iter, converged)
