"""Logistic regression with an L1 penalty: Newton steps, each computed by coordinate descent on a quadratic model.

    min over w   α ‖w‖₁ + Σ_i c_i log(1 + exp(−δ_i x_i·w)),   δ_i = ±1

X is stored by columns: feature j has the values ``values[starts[j]:starts[j + 1]]`` in the rows ``rows[…]``. The
method is that of Yuan, Ho and Lin 2012 (JMLR 13, 1999–2030), which solves models inexactly while w is far from the
minimum. For few features with few zeros the Hessian of the model is formed first (Friedman, Hastie and Tibshirani
2010, JSS 33): passes over it are much cheaper than passes over rows, and nearly collinear features need hundreds of
passes.
"""

from __future__ import annotations

import numpy as np

from labelgap.kernels.loops import compiled

MIN_DECREASE_SHARE = 0.01  # a step must achieve this share of the decrease that the model predicts
MAX_HALVINGS = 30
MAX_PASSES = 200
MAX_HESSIAN_PASSES = 2000  # these do not touch the rows
MODEL_TOL = 0.1  # of the violation, for models with a Hessian
MAX_HESSIAN_FEATURES = 500
MIN_HESSIAN_DENSITY = 0.5
ROWS_PER_BLOCK = 1024  # blocks of a product fit in the cache
MIN_CURVATURE = 1e-12  # added to each curvature, so that the model has a minimum


@compiled
def minimize_l1_logistic(starts, rows, values, signs, costs, alpha, tol, max_iter, w, margins):
    """Move w and its margins x·w to the minimum; return the number of steps, and whether ``tol`` was reached.

    The violation is the L1 norm of the smallest subgradient; ``tol`` is a share of its initial value.
    """
    slopes, curvatures = np.empty(margins.shape[0]), np.empty(margins.shape[0])
    gradient, diagonal = np.zeros(w.shape[0]), np.zeros(w.shape[0])
    active = np.arange(w.shape[0])
    count, initial, slack, share = w.shape[0], 0.0, 0.0, 1.0
    for iteration in range(max_iter):
        _differentiate(margins, signs, costs, slopes, curvatures)
        all_active = count == w.shape[0]
        count, violation, largest = _update_active(
            starts, rows, values, slopes, curvatures, alpha, slack, w, gradient, diagonal, active, count
        )
        slack = largest / margins.shape[0]
        if iteration == 0:
            initial = violation
        if violation <= tol * initial:
            if all_active:
                return iteration, True
            active[:] = np.arange(w.shape[0])  # check the inactive features again
            count, slack = w.shape[0], 0.0
            continue
        selected = active[:count]
        if is_nearly_dense(starts, selected, margins.shape[0]):
            hessian = compute_hessian(starts, rows, values, curvatures, selected)
            step = descend_by_hessian(hessian, gradient, alpha, MODEL_TOL * violation, w, selected)
            change = _compute_change(starts, rows, values, selected, step, margins.shape[0])
        else:
            max_violation = share * initial
            step, change, passes = descend_by_rows(
                starts,
                rows,
                values,
                curvatures,
                gradient,
                diagonal,
                alpha,
                max_violation,
                w,
                selected,
                margins.shape[0],
            )
            if passes == 1:
                share /= 4
        if not _search_line(signs, costs, alpha, gradient, w, margins, selected, step, change):
            return iteration + 1, False
    return max_iter, False


@compiled
def _differentiate(margins, signs, costs, slopes, curvatures):
    """Write the first and second derivatives of each row's loss in its margin."""
    for i in range(margins.shape[0]):
        p = 1 / (1 + np.exp(signs[i] * margins[i]))
        slopes[i] = -costs[i] * signs[i] * p
        curvatures[i] = costs[i] * p * (1 - p)


@compiled
def _update_active(starts, rows, values, slopes, curvatures, alpha, slack, w, gradient, diagonal, active, count):
    """Compute derivatives of the active features; drop features that are 0 and stay 0.

    Returns the number of active features, the violation, and its largest term.
    """
    n_active, violation, largest = 0, 0.0, 0.0
    for a in range(count):
        j = active[a]
        g, h = 0.0, MIN_CURVATURE
        for p in range(starts[j], starts[j + 1]):
            v, i = values[p], rows[p]
            g += slopes[i] * v
            h += curvatures[i] * v * v
        gradient[j], diagonal[j] = g, h
        if w[j] == 0 and abs(g) < alpha - slack:
            continue
        active[n_active] = j
        n_active += 1
        term = _compute_violation(g, w[j], alpha)
        violation += term
        largest = max(largest, term)
    return n_active, violation, largest


@compiled
def descend_by_rows(starts, rows, values, curvatures, gradient, diagonal, alpha, max_violation, w, selected, n):
    """Minimise the quadratic model in the selected features; return the step, x·step and the number of passes."""
    step, change, passes = np.zeros(selected.shape[0]), np.zeros(n), 0
    while passes < MAX_PASSES:
        passes, violation = passes + 1, 0.0
        for c in range(selected.shape[0]):
            j = selected[c]
            g = gradient[j] + MIN_CURVATURE * step[c]
            for p in range(starts[j], starts[j + 1]):
                i = rows[p]
                g += curvatures[i] * values[p] * change[i]
            u, h = w[j] + step[c], diagonal[j]
            violation += _compute_violation(g, u, alpha)
            d = _soft_threshold(h * u - g, alpha) / h - u
            if d != 0:
                step[c] += d
                for p in range(starts[j], starts[j + 1]):
                    change[rows[p]] += d * values[p]
        if violation <= max_violation:
            break
    return step, change, passes


@compiled
def is_nearly_dense(starts, selected, n):
    """Return whether the features are few and nearly dense, so that a Hessian costs less than many passes."""
    count = 0
    for j in selected:
        count += starts[j + 1] - starts[j]
    return selected.shape[0] <= MAX_HESSIAN_FEATURES and count >= MIN_HESSIAN_DENSITY * n * selected.shape[0]


@compiled
def compute_hessian(starts, rows, values, curvatures, selected):
    """Return the Hessian of the selected features: Σ_i curvature_i x_i x_iᵀ."""
    count, n = selected.shape[0], curvatures.shape[0]
    hessian, places = np.zeros((count, count)), starts[selected]
    for start in range(0, n, ROWS_PER_BLOCK):
        stop = min(n, start + ROWS_PER_BLOCK)
        block = np.zeros((count, stop - start))
        for c in range(count):
            end, p = starts[selected[c] + 1], places[c]
            while p < end and rows[p] < stop:
                block[c, rows[p] - start] = values[p] * np.sqrt(curvatures[rows[p]])
                p += 1
            places[c] = p
        hessian += np.dot(block, block.T)
    for c in range(count):
        hessian[c, c] += MIN_CURVATURE
    return hessian


@compiled
def descend_by_hessian(hessian, gradient, alpha, max_violation, w, selected):
    """Minimise the quadratic model with this Hessian in the selected features; return the step."""
    step, slopes = np.zeros(selected.shape[0]), gradient[selected]
    for _ in range(MAX_HESSIAN_PASSES):
        violation = 0.0
        for c in range(selected.shape[0]):
            u, g, h = w[selected[c]] + step[c], slopes[c], hessian[c, c]
            violation += _compute_violation(g, u, alpha)
            d = _soft_threshold(h * u - g, alpha) / h - u
            if d != 0:
                step[c] += d
                for other in range(selected.shape[0]):
                    slopes[other] += d * hessian[c, other]
        if violation <= max_violation:
            break
    return step


@compiled
def _compute_change(starts, rows, values, selected, step, n):
    """Return x·step of each row."""
    change = np.zeros(n)
    for c in range(selected.shape[0]):
        if step[c] != 0:
            j = selected[c]
            for p in range(starts[j], starts[j + 1]):
                change[rows[p]] += step[c] * values[p]
    return change


@compiled
def _compute_violation(g, u, alpha):
    """Return the absolute value of the smallest subgradient of a weight u, where the loss has the slope g."""
    return max(0.0, abs(g) - alpha) if u == 0 else abs(g + alpha * np.sign(u))


@compiled
def _soft_threshold(x, alpha):
    return max(x - alpha, 0.0) + min(x + alpha, 0.0)


@compiled
def _search_line(signs, costs, alpha, gradient, w, margins, selected, step, change):
    """Take the step, or a share of it that lowers the objective enough; return whether there is one."""
    predicted, size = 0.0, 0.0
    for c in range(selected.shape[0]):
        j = selected[c]
        predicted += gradient[j] * step[c] + alpha * (abs(w[j] + step[c]) - abs(w[j]))
        size += abs(w[j])
    length = 1.0
    for _ in range(MAX_HALVINGS):
        difference = -alpha * size
        for c in range(selected.shape[0]):
            difference += alpha * abs(w[selected[c]] + length * step[c])
        for i in range(margins.shape[0]):
            z = signs[i] * margins[i]
            difference += costs[i] * (log1pexp(-z - length * signs[i] * change[i]) - log1pexp(-z))
        if difference <= MIN_DECREASE_SHARE * length * predicted:
            for c in range(selected.shape[0]):
                w[selected[c]] += length * step[c]
            for i in range(margins.shape[0]):
                margins[i] += length * change[i]
            return True
        length /= 2
    return False


@compiled
def log1pexp(x):
    """Return log(1 + exp(x)) without overflow."""
    return max(x, 0.0) + np.log1p(np.exp(-abs(x)))
