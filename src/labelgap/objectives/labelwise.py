"""Linear models of single labels: the objectives of a block of labels, and a solver for losses with a margin."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.kernels import Backend, CellWeights, column_losses, column_slopes, namespace, read
from labelgap.kernels.elementwise import CompiledLoss, loss_curvature, loss_gradient, loss_value
from labelgap.kernels.loops import compiled
from labelgap.losses import CellFunctions, Loss
from labelgap.objectives.features import Features
from labelgap.observations import Labels
from labelgap.solvers.base import Array
from labelgap.solvers.column_newton import ColumnModel, ColumnSolution

MIN_RIDGE = 1e-6  # without a ridge, the logistic loss of one class has no minimum
N_CONSTANT_STEPS = 50


class LabelwiseObjectives:
    """F_j(w) = Σ over known (i, j) of c_i ℓ(a_ij, x_i·w) + (α/2) ‖w‖² for the labels j of a block.

    ``targets`` (n×m) are the a_ij, NaN for unknown cells, on the device of the features; ``weights`` (n) are the
    c_i, by default 1. ``positive_weights`` (m) also multiply the losses of positives.
    """

    def __init__(
        self,
        features: Features,
        loss: Loss,
        targets: Array,
        alpha: float,
        weights: Array | None = None,
        positive_weights: Array | None = None,
    ) -> None:
        self.features, self.loss, self.targets, self.alpha = features, loss, targets, alpha
        n, m = targets.shape
        self.weights = np.ones(n) if weights is None else weights
        self.positive_weights = np.ones(m) if positive_weights is None else positive_weights
        rows, positives = (features.kernels.array(part, np.float64) for part in (self.weights, self.positive_weights))
        self._cells = loss, targets
        self._cell_weights = CellWeights(rows, float(loss.negative), positives)

    def scores(self, W: Array) -> Array:
        """Return X W."""
        return self.features.times(W)

    def values(self, W: Array, scores: Array) -> Array:
        """Return F of each label, on the host."""
        xp = namespace(W)
        penalties = 0.5 * self.alpha * read(xp.sum(W * W, axis=0, dtype=xp.float64))
        return penalties + column_losses(*self._cells, scores, self._cell_weights)

    def model(self, W: Array, scores: Array) -> ColumnModel:
        """Return ∇F, products with ∇²F, and its diagonal for the mean curvature of a label's rows."""
        xp, ridge = namespace(W), float(self.alpha)
        slopes, curvature = column_slopes(*self._cells, scores, self._cell_weights)
        means = xp.sum(curvature, axis=0, keepdims=True, dtype=xp.float64) / float(scores.shape[0])
        diagonal = self.features.column_squares() * means + ridge

        def hessp(V: Array) -> Array:
            return self.features.t_times(curvature * self.features.times(V)) + ridge * V

        return ColumnModel(self.features.t_times(slopes) + ridge * W, hessp, xp.astype(diagonal, W.dtype))

    def select(self, columns: Array) -> LabelwiseObjectives:
        """Return the objectives of some columns."""
        return LabelwiseObjectives(
            self.features,
            self.loss,
            self.features.kernels.array(self.targets[:, columns], self.targets.dtype),
            self.alpha,
            self.weights,
            self.positive_weights[columns],
        )

    def goals(self, tol: float) -> NDArray[np.float64]:
        """Return the length of each final gradient: ``tol`` of that at w = 0, times the share of the rarer class.

        The many negatives of a label with few positives make its gradient at 0 long, and a constant reduces it; the
        part of the positives is shorter by that share (Lin, Weng and Keerthi 2008).
        """
        shape = self.features.shape[1], self.targets.shape[1]
        zero = self.features.kernels.array(np.zeros(shape), self.targets.dtype)
        gradient = self.model(zero, namespace(zero).zeros_like(self.targets)).gradient
        return compute_goals(gradient, self.targets, self.loss, tol)


def compute_goals(gradient: Array, targets: Array, loss: Loss, tol: float) -> NDArray[np.float64]:
    """Return the length of each final gradient from the gradients at w = 0, d×m; see :class:`LabelwiseObjectives`."""
    xp = namespace(targets)
    known = read(xp.sum(xp.astype(~xp.isnan(targets), xp.int64), axis=0))
    positive = read(xp.sum(xp.astype(targets == loss.positive, xp.int64), axis=0))
    rarer_share = np.maximum(np.minimum(positive, known - positive), 1) / np.maximum(known, 1)
    return tol * rarer_share * np.sqrt(read(xp.sum(gradient * gradient, axis=0, dtype=xp.float64)))


class RowSums:
    """Xᵀt for targets t with one value at positives and another at negatives, at the cost of the positives.

    >>> sums = RowSums(sp.csr_array([[1.0, 2.0], [0.0, 3.0]]), Labels([[1, 0], [0, 1]]).T)
    >>> sums.add_targets(np.array([0]), -1.0, 1.0, float).ravel()
    array([ 1., -1.])
    """

    def __init__(self, X: sp.csr_array, by_label: Labels) -> None:
        self.X, self.by_label = X, by_label

    @cached_property
    def _total(self) -> NDArray:
        return np.asarray(self.X.sum(axis=0, dtype=float)).ravel()

    def add_targets(self, block: NDArray, negative: float, positive: float, dtype: Any) -> NDArray:
        """Return Xᵀt for some labels, d×m; unknown cells do not count."""
        part = self.by_label[block]
        sums = (positive - negative) * self._add_rows(part.positives)
        sums += negative * (self._total if part.known is None else self._add_rows(part.known))
        return np.ascontiguousarray(sums.T, dtype)

    def _add_rows(self, pattern: sp.csr_array) -> NDArray:
        """Return the sums of the rows of X that each row of a pattern lists, dense."""
        return (pattern.astype(self.X.dtype) @ self.X).toarray().astype(float)


def make_targets(by_label: Labels, block: NDArray, loss: Loss, dtype: Any) -> NDArray:
    """Return the targets of some labels, n×m, NaN for unknown cells; ``by_label`` has a row for each label.

    >>> from labelgap.losses import Squared
    >>> make_targets(Labels([[1, 0], [np.nan, 1]]).T, np.array([1, 0]), Squared(), float)
    array([[ 0.,  1.],
           [ 1., nan]])
    """
    part = by_label[block]
    positive = part.positives.toarray().T
    targets = np.where(positive, loss.positive, loss.negative).astype(dtype)
    if part.known is not None:
        targets[~part.known.toarray().T] = np.nan
    return np.ascontiguousarray(targets)


def find_constants(loss: Loss, alpha: float, positive: NDArray, negative: NDArray) -> NDArray[np.float64]:
    """Return the b of each label that minimises Σ over its known cells of ℓ(a, b) + (α/2) b²; 0 without cells.

    >>> from labelgap.losses import SquaredHinge
    >>> find_constants(SquaredHinge(), 2.0, np.array([1, 0, 0]), np.array([0, 3, 0])).round(6)
    array([ 0.5 , -0.75,  0.  ])
    """
    functions, ridge = CellFunctions(*loss.functions()), max(alpha, MIN_RIDGE)
    b = np.zeros(len(positive))
    for _ in range(N_CONSTANT_STEPS):
        slope, curvature = ridge * b, np.full(len(b), ridge)
        for count, target in ((positive, loss.positive), (negative, loss.negative)):
            slope = slope + count * functions.gradient(target, b)
            curvature = curvature + count * functions.curvature(target, b)
        b = b - slope / curvature
    return b


# --- labels one by one, on their active rows ------------------------------------------------------------------------

MAX_NEW_ROWS = 100  # that become active at once; or as many as are active, if these are more
GRADIENT_SHARE = 0.1  # of the gradient over all rows, to which that over the active rows is reduced


@dataclass
class _ActiveLabel:
    """A label, its active rows, its weights, the final and the current length of its gradient, and its steps."""

    targets: NDArray
    rows: NDArray
    w: NDArray
    goal: float
    norm: float = np.inf
    steps: int = 0
    converged: bool = False


class ActiveRowSolver:
    """Solver of Σ over known (i, j) of ℓ(a_ij, x_i·w) + (α/2) ‖w‖², for a loss with a margin and sparse rows.

    A loss that is 0 beyond a margin depends on few rows of a rare label: of 15,000 rows of text a label with 16
    positives has about 150 active ones at its minimum. Labels are solved one after the other on their active rows;
    one product for the whole block gives the scores of all rows, which decide the active ones.

    ``features`` are prepared rows; with ``constant`` their last column is the constant. ``targets`` (n×m) are the
    a_ij, NaN for unknown cells.
    """

    def __init__(
        self, kernels: Backend, features: Any, loss: Loss, targets: NDArray, alpha: float, constant: bool
    ) -> None:
        assert loss.margin is not None
        self.kernels, self.features, self.margin, self.alpha = kernels, features, loss.margin, alpha
        self.targets, self.constant = targets, constant
        self._compiled_loss = CompiledLoss(loss)

    def minimize(self, start: NDArray, goals: NDArray, max_iter: int) -> ColumnSolution:
        """Return the minimisers, d×m, from a start of any scale."""
        labels = self._begin(start, goals)
        unfinished = labels
        while unfinished:
            for label in unfinished:
                label.steps += self._step(label, max_iter)
            unfinished = self._update_rows(unfinished, max_iter)
        return ColumnSolution(
            np.column_stack([label.w for label in labels]),
            np.array([label.steps for label in labels]),
            np.array([label.converged for label in labels]),
        )

    def _begin(self, start: NDArray, goals: NDArray) -> list[_ActiveLabel]:
        """Scale and shift the start of each label, and find its active rows."""
        scores, labels = self.kernels.spmm(self.features, start), []
        for j, goal in enumerate(goals):
            w, targets, s = (np.ascontiguousarray(A[:, j]) for A in (start, self.targets, scores))
            t, c = scale_and_shift(self._compiled_loss, targets, s, self.alpha, float(w @ w), self.constant)
            w *= w.dtype.type(t)
            if self.constant:
                w[-1] += c
            active = np.flatnonzero(targets * (t * s + c) < self.margin)  # NaN, unknown, compares as false
            labels.append(_ActiveLabel(targets, active, w, float(goal)))
        return labels

    def _step(self, label: _ActiveLabel, max_iter: int) -> int:
        """Reduce the gradient over the active rows; return the number of Newton steps."""
        is_started = np.isfinite(label.norm)
        return minimize_label(
            self._compiled_loss,
            *self.features.arrays,
            label.rows,
            label.targets[label.rows],
            self.alpha,
            label.w,
            max(0.5 * label.goal, GRADIENT_SHARE * label.norm if is_started else 0.0),
            0.0 if is_started else GRADIENT_SHARE,
            max_iter - label.steps,
            float(np.finfo(label.w.dtype).eps),
        )

    def _update_rows(self, labels: list[_ActiveLabel], max_iter: int) -> list[_ActiveLabel]:
        """Add active rows, and return the labels that are not at their minimum."""
        scores = self.kernels.spmm(self.features, np.column_stack([label.w for label in labels]))
        return [label for label, s in zip(labels, scores.T, strict=True) if self._continues(label, s, max_iter)]

    def _continues(self, label: _ActiveLabel, scores: NDArray, max_iter: int) -> bool:
        gradient, previous_norm = label.w.dtype.type(self.alpha) * label.w, label.norm
        scores = np.ascontiguousarray(scores)
        cells = self._compiled_loss, self.margin, label.targets, scores
        new, gaps = find_new_rows(*cells, *self.features.arrays, label.rows, gradient)
        label.norm = float(np.sqrt((gradient * gradient).sum(dtype=float)))
        # Without new rows, a norm that does not fall is at rounding level.
        label.converged = label.norm <= label.goal or (len(new) == 0 and label.norm >= previous_norm)
        if label.converged or label.steps >= max_iter:
            return False
        limit = max(MAX_NEW_ROWS, len(label.rows))
        if len(new) > limit:
            new = new[np.argpartition(-gaps, limit)[:limit]]
        label.rows = np.concatenate([label.rows, new])
        return True


# --- the compiled Newton method of one label ------------------------------------------------------------------------

CG_TOL, MAX_CG_STEPS = 0.1, 200
MIN_GAIN_SHARE = 0.5  # of the mean gain of the products so far, for a further product
MIN_DECREASE_SHARE, MIN_STEP = 1e-4, 1e-6
MAX_SCALE_STEPS, SCALE_TOL, TINY_RIDGE = 20, 1e-3, 1e-12


# The loops read slices at unsigned indices: the compiler can then vectorise them, which takes a third of the time.


@compiled
def write_row_scores(indptr, indices, data, rows, w, scores):
    """Write x_i·w for the listed rows i."""
    for q in range(rows.shape[0]):
        start, stop = indptr[rows[q]], indptr[rows[q] + 1]
        features, values = indices[start:stop], data[start:stop]
        total = w.dtype.type(0)
        for p in range(features.shape[0]):
            total += values[p] * w[np.uint64(features[p])]
        scores[q] = total


@compiled
def add_rows(indptr, indices, data, rows, factors, out):
    """Add Σ_q factors_q x_q over the listed rows to ``out``."""
    for q in range(rows.shape[0]):
        v = factors[q]
        if v != 0:
            start, stop = indptr[rows[q]], indptr[rows[q] + 1]
            features, values = indices[start:stop], data[start:stop]
            for p in range(features.shape[0]):
                out[np.uint64(features[p])] += v * values[p]


@compiled
def find_new_rows(loss, margin, targets, scores, indptr, indices, data, listed, gradient):
    """Add Σ_i ℓ'_i x_i to the gradient; return the active rows that are not listed, and their gaps to the margin.

    A row is active if a_i s_i is below the margin; unknown targets are NaN, which compares as false.
    """
    is_listed, unit = np.zeros(targets.shape[0], np.bool_), gradient.dtype.type(1)
    for q in range(listed.shape[0]):
        is_listed[listed[q]] = True
    new, gaps, count = np.empty(targets.shape[0], np.int64), np.empty_like(scores), 0
    for i in range(targets.shape[0]):
        gap = margin - targets[i] * scores[i]
        if gap > 0:
            slope = unit * loss_gradient(loss, np.float64(targets[i]), np.float64(scores[i]))
            features, values = indices[indptr[i] : indptr[i + 1]], data[indptr[i] : indptr[i + 1]]
            for p in range(features.shape[0]):
                gradient[np.uint64(features[p])] += slope * values[p]
            if not is_listed[i]:
                new[count], gaps[count] = i, gap
                count += 1
    return new[:count].copy(), gaps[:count].copy()


@compiled
def _add_diagonal(indptr, indices, data, rows, curvatures, out):
    for q in range(rows.shape[0]):
        v = curvatures[q]
        if v != 0:
            start, stop = indptr[rows[q]], indptr[rows[q] + 1]
            features, values = indices[start:stop], data[start:stop]
            for p in range(features.shape[0]):
                out[np.uint64(features[p])] += v * values[p] * values[p]


@compiled
def _dot64(x, y):
    total = 0.0
    for k in range(x.shape[0]):
        total += x[k] * y[k]
    return total


@compiled
def _sum_losses(loss, targets, scores, change, length):
    """Return Σ ℓ at scores + length · change."""
    total = 0.0
    for q in range(targets.shape[0]):
        total += loss_value(loss, np.float64(targets[q]), np.float64(scores[q]) + length * np.float64(change[q]))
    return total


@compiled
def _newton_direction(indptr, indices, data, rows, curvatures, alpha, gradient):
    """Solve (Σ_q curvatures_q x_q x_qᵀ + αI) s = −gradient by conjugate gradients, preconditioned by its diagonal.

    Stops when the quadratic falls slower than on average (Nash and Sofer 1990), or when the residual is small.
    """
    inverse = np.full_like(gradient, alpha)
    _add_diagonal(indptr, indices, data, rows, curvatures, inverse)
    inverse = gradient.dtype.type(1) / np.maximum(inverse, gradient.dtype.type(1e-30))
    step, residual = np.zeros_like(gradient), -gradient
    direction = inverse * residual
    image, change = np.empty_like(gradient), np.empty_like(curvatures)
    rz, goal, total_gain = _dot64(residual, direction), CG_TOL**2 * _dot64(residual, residual), 0.0
    for taken in range(1, MAX_CG_STEPS + 1):
        write_row_scores(indptr, indices, data, rows, direction, change)
        change *= curvatures
        image[:] = alpha * direction
        add_rows(indptr, indices, data, rows, change, image)
        curvature = _dot64(direction, image)
        if curvature <= 0:
            break
        length = gradient.dtype.type(rz / curvature)
        step += length * direction
        residual -= length * image
        gain = 0.5 * length * rz
        total_gain += gain
        if taken * gain <= MIN_GAIN_SHARE * total_gain or _dot64(residual, residual) <= goal:
            break
        z = inverse * residual
        previous, rz = rz, _dot64(residual, z)
        direction = z + gradient.dtype.type(rz / previous) * direction
    return step


@compiled
def _backtrack_label(loss, targets, scores, change, alpha, w, step, slope):
    """Halve a step until it decreases the objective; return its length, or 0 if none does, and the objective."""
    ww, ws, ss = _dot64(w, w), _dot64(w, step), _dot64(step, step)
    value, length = _sum_losses(loss, targets, scores, change, 0.0) + 0.5 * alpha * ww, 1.0
    while length >= MIN_STEP:
        trial = _sum_losses(loss, targets, scores, change, length)
        trial += 0.5 * alpha * (ww + 2 * length * ws + length * length * ss)
        if trial <= value + MIN_DECREASE_SHARE * length * slope:
            return length, value
        length /= 2
    return 0.0, value


@compiled
def minimize_label(loss, indptr, indices, data, rows, targets, alpha, w, goal, share, max_steps, rounding):
    """Minimise Σ over the listed rows of ℓ(targets_q, x_q·w) + (α/2) ‖w‖² in w, in place; return the number of steps.

    Stops when the length of the gradient is at most ``goal`` or ``share`` of its first length, or when a step's
    predicted decrease is below the relative ``rounding`` of the objective.
    """
    scores, change = np.empty(rows.shape[0], w.dtype), np.empty(rows.shape[0], w.dtype)
    slopes, curvatures, unit = np.empty_like(scores), np.empty_like(scores), w.dtype.type(1)
    write_row_scores(indptr, indices, data, rows, w, scores)
    for taken in range(max_steps):
        for q in range(rows.shape[0]):
            a, b = np.float64(targets[q]), np.float64(scores[q])
            slopes[q], curvatures[q] = unit * loss_gradient(loss, a, b), unit * loss_curvature(loss, a, b)
        gradient = unit * alpha * w
        add_rows(indptr, indices, data, rows, slopes, gradient)
        norm = np.sqrt(_dot64(gradient, gradient))
        if taken == 0:
            goal = max(goal, share * norm)
        if norm <= goal:
            return taken
        active = np.flatnonzero(curvatures)
        step = _newton_direction(indptr, indices, data, rows[active], curvatures[active], unit * alpha, gradient)
        write_row_scores(indptr, indices, data, rows, step, change)
        slope = _dot64(gradient, step)
        length, value = _backtrack_label(loss, targets, scores, change, alpha, w, step, slope)
        if length == 0 or -slope <= rounding * value:
            return taken
        w += unit * length * step
        scores += unit * length * change
    return max_steps


@compiled
def scale_and_shift(loss, targets, scores, alpha, square, shifted):
    """Return t and c near the minimum of Σ ℓ(targets_i, t · scores_i + c) + (α/2)(t² ‖w‖² + c²); NaN is unknown.

    ``square`` is ‖w‖²; c is 0 unless ``shifted``. From this start Newton's method takes few, full steps.
    """
    t, c = 1.0, 0.0
    for _ in range(MAX_SCALE_STEPS):
        g0, g1, h00, h01, h11 = alpha * square * t, alpha * c, alpha * square + TINY_RIDGE, 0.0, alpha + TINY_RIDGE
        for i in range(targets.shape[0]):
            a, s = np.float64(targets[i]), np.float64(scores[i])
            if not np.isnan(a):
                slope, curvature = loss_gradient(loss, a, t * s + c), loss_curvature(loss, a, t * s + c)
                g0, g1 = g0 + slope * s, g1 + slope
                h00, h01, h11 = h00 + curvature * s * s, h01 + curvature * s, h11 + curvature
        if not shifted:
            g1, h01 = 0.0, 0.0
        determinant = h00 * h11 - h01 * h01
        if determinant <= 0:
            break
        d0, d1 = (h01 * g1 - h11 * g0) / determinant, (h01 * g0 - h00 * g1) / determinant
        t, c = t + d0, c + d1
        if abs(d0) + abs(d1) <= SCALE_TOL * (abs(t) + abs(c)):
            break
    return t, c
