"""Logistic regression with an L1 penalty: Newton steps, each found by coordinate descent on a quadratic model.

    min over w   α ‖w‖₁ + Σ_i c_i log(1 + exp(−δ_i x_i·w)),   δ_i = ±1

Rows are given by columns: feature j has the values ``values[starts[j]:starts[j + 1]]`` in the rows ``rows[…]``.
Yuan, Ho and Lin 2012 (JMLR 13, 1999–2030) describe the method, which stops models early while w is far off.
Few features that fill their rows have their model's Hessian made first (Friedman, Hastie and Tibshirani 2010,
JSS 33): passes over it cost little beside passes over rows, and nearly collinear features need hundreds.
"""

from __future__ import annotations

import numpy as np

from labelgap.kernels.loops import compiled

DESCENT = 0.01  # of what the model promises, which a step must keep
HALVINGS = 30
MOST_PASSES = 200
MOST_CHEAP_PASSES = 2000  # over products of features, which take no look at the rows
MODEL_TOL = 0.1  # of the violation, to which they bring that of a model
FEW_FEATURES = 500
FULL = 0.5  # of the cells of rows and features, from which on these count as dense
ROWS_AT_ONCE = 1024  # of a product, so that they stay in the cache
FLAT = 1e-12  # added to a curvature, so that a model has a minimum


@compiled
def minimize(starts, rows, values, signs, costs, alpha, tol, max_iter, w, margins):
    """Moves w and its margins x·w to the minimum; returns the steps it took and whether they came to ``tol``.

    The violation is the L1 norm of the smallest subgradient; ``tol`` is a share of what it is at the start.
    """
    slopes, bends = np.empty(margins.shape[0]), np.empty(margins.shape[0])
    gradient, curvature = np.zeros(w.shape[0]), np.zeros(w.shape[0])
    active = np.arange(w.shape[0])
    count, first, slack, share = w.shape[0], 0.0, 0.0, 1.0
    for iteration in range(max_iter):
        _differentiate(margins, signs, costs, slopes, bends)
        whole = count == w.shape[0]
        count, violation, worst = _collect(
            starts, rows, values, slopes, bends, alpha, slack, w, gradient, curvature, active, count
        )
        slack = worst / margins.shape[0]
        if iteration == 0:
            first = violation
        if violation <= tol * first:
            if whole:
                return iteration, True
            active[:] = np.arange(w.shape[0])  # those that were left out may be wanted by now
            count, slack = w.shape[0], 0.0
            continue
        chosen = active[:count]
        if _meet_often(starts, chosen, margins.shape[0]):
            products = _products(starts, rows, values, bends, chosen)
            step = _descend_by_products(products, gradient, alpha, MODEL_TOL * violation, w, chosen)
            change = _change(starts, rows, values, chosen, step, margins.shape[0])
        else:
            step, change, passes = _descend(
                starts, rows, values, bends, gradient, curvature, alpha, share * first, w, chosen, margins.shape[0]
            )
            if passes == 1:
                share /= 4
        if not _move(signs, costs, alpha, gradient, w, margins, chosen, step, change):
            return iteration + 1, False
    return max_iter, False


@compiled
def _differentiate(margins, signs, costs, slopes, bends):
    """The first and second derivatives of each row's loss in its margin."""
    for i in range(margins.shape[0]):
        p = 1 / (1 + np.exp(signs[i] * margins[i]))
        slopes[i] = -costs[i] * signs[i] * p
        bends[i] = costs[i] * p * (1 - p)


@compiled
def _collect(starts, rows, values, slopes, bends, alpha, slack, w, gradient, curvature, active, count):
    """The derivatives of the listed features; leaves those listed that are at 0 and are to stay there.

    Returns how many are left, the violation, and its largest part.
    """
    kept, violation, worst = 0, 0.0, 0.0
    for place in range(count):
        j = active[place]
        g, h = 0.0, FLAT
        for p in range(starts[j], starts[j + 1]):
            v, i = values[p], rows[p]
            g += slopes[i] * v
            h += bends[i] * v * v
        gradient[j], curvature[j] = g, h
        if w[j] == 0 and abs(g) < alpha - slack:
            continue
        active[kept] = j
        kept += 1
        part = _violation(g, w[j], alpha)
        violation += part
        worst = max(worst, part)
    return kept, violation, worst


@compiled
def _descend(starts, rows, values, bends, gradient, curvature, alpha, enough, w, chosen, n):
    """Minimises the quadratic model in the chosen features; returns the step, x·step and the passes it took."""
    step, change, passes = np.zeros(chosen.shape[0]), np.zeros(n), 0
    while passes < MOST_PASSES:
        passes, violation = passes + 1, 0.0
        for c in range(chosen.shape[0]):
            j = chosen[c]
            g = gradient[j] + FLAT * step[c]
            for p in range(starts[j], starts[j + 1]):
                i = rows[p]
                g += bends[i] * values[p] * change[i]
            u, h = w[j] + step[c], curvature[j]
            violation += _violation(g, u, alpha)
            d = _shrunk(h * u - g, alpha) / h - u
            if d != 0:
                step[c] += d
                for p in range(starts[j], starts[j + 1]):
                    change[rows[p]] += d * values[p]
        if violation <= enough:
            break
    return step, change, passes


@compiled
def _meet_often(starts, chosen, n):
    """Tells whether features are few and fill their rows, so that their products cost less than many passes."""
    count = 0
    for j in chosen:
        count += starts[j + 1] - starts[j]
    return chosen.shape[0] <= FEW_FEATURES and count >= FULL * n * chosen.shape[0]


@compiled
def _products(starts, rows, values, bends, chosen):
    """The Hessian of the chosen features: their products over all rows, each weighted by its bend."""
    count, n = chosen.shape[0], bends.shape[0]
    products, places = np.zeros((count, count)), starts[chosen]
    for start in range(0, n, ROWS_AT_ONCE):
        stop = min(n, start + ROWS_AT_ONCE)
        block = np.zeros((count, stop - start))
        for c in range(count):
            end, p = starts[chosen[c] + 1], places[c]
            while p < end and rows[p] < stop:
                block[c, rows[p] - start] = values[p] * np.sqrt(bends[rows[p]])
                p += 1
            places[c] = p
        products += np.dot(block, block.T)
    for c in range(count):
        products[c, c] += FLAT
    return products


@compiled
def _descend_by_products(products, gradient, alpha, enough, w, chosen):
    """Minimises the quadratic model in the chosen features, whose Hessian is given; returns the step."""
    step, slopes = np.zeros(chosen.shape[0]), gradient[chosen]
    for _ in range(MOST_CHEAP_PASSES):
        violation = 0.0
        for c in range(chosen.shape[0]):
            u, g, h = w[chosen[c]] + step[c], slopes[c], products[c, c]
            violation += _violation(g, u, alpha)
            d = _shrunk(h * u - g, alpha) / h - u
            if d != 0:
                step[c] += d
                for other in range(chosen.shape[0]):
                    slopes[other] += d * products[c, other]
        if violation <= enough:
            break
    return step


@compiled
def _change(starts, rows, values, chosen, step, n):
    """x·step."""
    change = np.zeros(n)
    for c in range(chosen.shape[0]):
        if step[c] != 0:
            j = chosen[c]
            for p in range(starts[j], starts[j + 1]):
                change[rows[p]] += step[c] * values[p]
    return change


@compiled
def _violation(g, u, alpha):
    """The size of the smallest subgradient of a weight u, where the loss has the slope g."""
    return max(0.0, abs(g) - alpha) if u == 0 else abs(g + alpha * np.sign(u))


@compiled
def _shrunk(x, most):
    """x, nearer to 0 by ``most``."""
    return max(x - most, 0.0) + min(x + most, 0.0)


@compiled
def _move(signs, costs, alpha, gradient, w, margins, chosen, step, change):
    """Takes the step, or a part of it that lowers the objective; tells whether there is one."""
    promised, size = 0.0, 0.0
    for c in range(chosen.shape[0]):
        j = chosen[c]
        promised += gradient[j] * step[c] + alpha * (abs(w[j] + step[c]) - abs(w[j]))
        size += abs(w[j])
    length = 1.0
    for _ in range(HALVINGS):
        grown = -alpha * size
        for c in range(chosen.shape[0]):
            grown += alpha * abs(w[chosen[c]] + length * step[c])
        for i in range(margins.shape[0]):
            z = signs[i] * margins[i]
            grown += costs[i] * (log1pexp(-z - length * signs[i] * change[i]) - log1pexp(-z))
        if grown <= DESCENT * length * promised:
            for c in range(chosen.shape[0]):
                w[chosen[c]] += length * step[c]
            for i in range(margins.shape[0]):
                margins[i] += length * change[i]
            return True
        length /= 2
    return False


@compiled
def log1pexp(x):
    """log(1 + exp(x)), for any x."""
    return max(x, 0.0) + np.log1p(np.exp(-abs(x)))
