"""The compiled Newton method for one label on some rows of a sparse matrix."""

from __future__ import annotations

import numpy as np

from labelgap.kernels.elementwise import cell_curvature, cell_gradient, cell_value
from labelgap.kernels.loops import compiled

CG_TOL = 0.1
CG_ITER = 200
LITTLE = 0.5  # a further product is not worth it where it brings less than this share of the mean of those before
DESCENT = 1e-4
LEAST_STEP = 1e-6
SCALE_STEPS, SCALED, TINY = 20, 1e-3, 1e-12


@compiled
def row_scores(indptr, indices, data, rows, w, scores):
    """Writes x_i·w for the rows i that are listed."""
    for q in range(rows.shape[0]):
        total = w.dtype.type(0)
        for p in range(indptr[rows[q]], indptr[rows[q] + 1]):
            total += data[p] * w[indices[p]]
        scores[q] = total


@compiled
def add_rows(indptr, indices, data, rows, factors, out):
    """Adds Σ_q factors_q x_q over the rows that are listed; a factor of 0 costs nothing."""
    for q in range(rows.shape[0]):
        v = factors[q]
        if v != 0:
            for p in range(indptr[rows[q]], indptr[rows[q] + 1]):
                out[indices[p]] += v * data[p]


@compiled
def _diagonal(indptr, indices, data, rows, bends, out):
    for q in range(rows.shape[0]):
        v = bends[q]
        if v != 0:
            for p in range(indptr[rows[q]], indptr[rows[q] + 1]):
                out[indices[p]] += v * data[p] * data[p]


@compiled
def _dot(x, y):
    total = 0.0
    for k in range(x.shape[0]):
        total += x[k] * y[k]
    return total


@compiled
def _value(cell, targets, scores, change, length):
    """Σ ℓ along a step."""
    total = 0.0
    for q in range(targets.shape[0]):
        total += cell_value(cell, np.float64(targets[q]), np.float64(scores[q]) + length * np.float64(change[q]))
    return total


@compiled
def _newton_direction(indptr, indices, data, rows, bends, alpha, gradient):
    """Conjugate gradients on (Σ_q bends_q x_q x_qᵀ + αI) s = −gradient, preconditioned by its diagonal.

    They end when the quadratic falls slower than it did on the way (Nash and Sofer 1990), or by their residual.
    """
    inverse = np.full_like(gradient, alpha)
    _diagonal(indptr, indices, data, rows, bends, inverse)
    inverse = gradient.dtype.type(1) / np.maximum(inverse, gradient.dtype.type(1e-30))
    step, residual = np.zeros_like(gradient), -gradient
    direction = inverse * residual
    image, change = np.empty_like(gradient), np.empty_like(bends)
    rz, goal, brought = _dot(residual, direction), CG_TOL**2 * _dot(residual, residual), 0.0
    for taken in range(1, CG_ITER + 1):
        row_scores(indptr, indices, data, rows, direction, change)
        change *= bends
        image[:] = alpha * direction
        add_rows(indptr, indices, data, rows, change, image)
        curvature = _dot(direction, image)
        if curvature <= 0:
            break
        length = gradient.dtype.type(rz / curvature)
        step += length * direction
        residual -= length * image
        gain = 0.5 * length * rz
        brought += gain
        if taken * gain <= LITTLE * brought or _dot(residual, residual) <= goal:
            break
        z = inverse * residual
        previous, rz = rz, _dot(residual, z)
        direction = z + gradient.dtype.type(rz / previous) * direction
    return step


@compiled
def _length(cell, targets, scores, change, alpha, w, step, slope):
    """Halves a step until it leads down; 0 where it does not."""
    ww, ws, ss = _dot(w, w), _dot(w, step), _dot(step, step)
    value, length = _value(cell, targets, scores, change, 0.0) + 0.5 * alpha * ww, 1.0
    while length >= LEAST_STEP:
        there = _value(cell, targets, scores, change, length)
        there += 0.5 * alpha * (ww + 2 * length * ws + length * length * ss)
        if there <= value + DESCENT * length * slope:
            return length, value
        length /= 2
    return 0.0, value


@compiled
def minimize_label(cell, indptr, indices, data, rows, targets, alpha, w, goal, share, max_steps, rounding):
    """Minimises Σ over the listed rows of ℓ(targets_q, x_q·w) + (α/2) ‖w‖² in place, and returns the steps taken.

    Until its gradient is no longer than ``goal``, or than a share of what it was, or until a step promises less than
    the rounding of the objective, which is relative.
    """
    scores, change = np.empty(rows.shape[0], w.dtype), np.empty(rows.shape[0], w.dtype)
    slopes, bends, one = np.empty_like(scores), np.empty_like(scores), w.dtype.type(1)
    row_scores(indptr, indices, data, rows, w, scores)
    for taken in range(max_steps):
        for q in range(rows.shape[0]):
            a, b = np.float64(targets[q]), np.float64(scores[q])
            slopes[q], bends[q] = one * cell_gradient(cell, a, b), one * cell_curvature(cell, a, b)
        gradient = one * alpha * w
        add_rows(indptr, indices, data, rows, slopes, gradient)
        norm = np.sqrt(_dot(gradient, gradient))
        if taken == 0:
            goal = max(goal, share * norm)
        if norm <= goal:
            return taken
        active = np.flatnonzero(bends)
        step = _newton_direction(indptr, indices, data, rows[active], bends[active], one * alpha, gradient)
        row_scores(indptr, indices, data, rows, step, change)
        slope = _dot(gradient, step)
        length, value = _length(cell, targets, scores, change, alpha, w, step, slope)
        if length == 0 or -slope <= rounding * value:
            return taken
        w += one * length * step
        scores += one * length * change
    return max_steps


@compiled
def scale_and_shift(cell, targets, scores, alpha, square, shifted):
    """Returns t and c near the minimum of Σ ℓ(targets_i, t · scores_i + c) + (α/2)(t² ‖w‖² + c²); NaN is unknown.

    ``square`` is ‖w‖²; c stays 0 unless it may be ``shifted``. A start for what follows, so that steps are few and
    whole.
    """
    t, c = 1.0, 0.0
    for _ in range(SCALE_STEPS):
        g0, g1, h00, h01, h11 = alpha * square * t, alpha * c, alpha * square + TINY, 0.0, alpha + TINY
        for i in range(targets.shape[0]):
            a, s = np.float64(targets[i]), np.float64(scores[i])
            if not np.isnan(a):
                slope, bend = cell_gradient(cell, a, t * s + c), cell_curvature(cell, a, t * s + c)
                g0, g1 = g0 + slope * s, g1 + slope
                h00, h01, h11 = h00 + bend * s * s, h01 + bend * s, h11 + bend
        if not shifted:
            g1, h01 = 0.0, 0.0
        determinant = h00 * h11 - h01 * h01
        if determinant <= 0:
            break
        d0, d1 = (h01 * g1 - h11 * g0) / determinant, (h01 * g0 - h00 * g1) / determinant
        t, c = t + d0, c + d1
        if abs(d0) + abs(d1) <= SCALED * (abs(t) + abs(c)):
            break
    return t, c
