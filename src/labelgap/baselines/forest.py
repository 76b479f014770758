"""Compiled loops of FastXML: growing trees on sparse rows, and finding the leaves of new rows.

Nodes are numbered from the root down. A child v ≥ 0 is the inner node v, a child v < 0 the leaf ~v. The rows of leaf
i are ``order[bounds[i]:bounds[i + 1]]``. A row goes to child 1 of a node if offset + w·x > 0, else to child 0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelgap.baselines.l1_logistic import log1pexp, minimize_l1_logistic
from labelgap.kernels.loops import in_order
from labelgap.runtime import compile_loops

MAX_NEWTON_STEPS = 50
MAX_STARTS = 4
MAX_SIDE_ROUNDS = 100
SEED_LIMIT = 2**31 - 1

# The body is so short that a call would take as long.
inlined: Any = compile_loops(error_model="numpy", forceinline=True)


class SparseRows(NamedTuple):
    """CSR rows in float64, whatever the dtype of the forest, with ascending columns; ``width`` is their number."""

    indptr: NDArray
    indices: NDArray
    data: NDArray
    width: int


class LabelGains(NamedTuple):
    """The positives of each row, the gain of each label, and 1 / DCG of the ideal ranking of each row."""

    indptr: NDArray
    indices: NDArray
    of_label: NDArray
    of_row: NDArray


class GrowthSettings(NamedTuple):
    """Parameters of FastXML; ``single`` rounds the weights of separators to float32."""

    alpha: float
    tol: float
    single: bool
    bias: float
    max_leaf: int
    max_iter: int


class Workspace(NamedTuple):
    """Arrays that the nodes of a tree reuse, and the state of the generator.

    ``sums`` and ``discounts`` are 2×L zeros, ``weights`` zeros for each feature, ``places`` −1 for each feature.
    """

    sums: NDArray
    discounts: NDArray
    weights: NDArray
    places: NDArray
    state: NDArray


class Tree(NamedTuple):
    """A tree: root, children of inner nodes, their separators in CSR and offsets, and the rows of its leaves."""

    root: int
    children: NDArray
    indptr: NDArray
    indices: NDArray
    data: NDArray
    offsets: NDArray
    bounds: NDArray
    order: NDArray
    objective: float
    rounds: int


def grow_tree(features: SparseRows, gains: LabelGains, settings: GrowthSettings, seed: int) -> Tree:
    """Return a tree on all rows; the seed decides all random numbers."""
    n_labels, width = len(gains.of_label), features.width
    space = Workspace(
        np.zeros((2, n_labels)),
        np.zeros((2, n_labels)),
        np.zeros(width),
        np.full(width, -1, np.int64),
        np.full(1, seed, np.uint64),
    )
    return Tree(*_grow_nodes(features, gains, settings, space))


@in_order
def _grow_nodes(features, gains, settings, space):
    """Return the parts of a tree, grown from the root down, the first child of a node before the second."""
    n = features.indptr.shape[0] - 1
    children, offsets, order = np.empty((n, 2), np.int64), np.empty(n), np.arange(n)
    indptr, indices, data = np.zeros(n + 1, np.int64), np.empty(0, np.int32), np.empty(0)
    bounds = np.zeros(n + 1, np.int64)
    objective, rounds, root, nodes, leaves = 0.0, 1, 0, 0, 0
    stack = [(0, n, -1, 0)]
    while len(stack) > 0:
        start, stop, parent, side = stack.pop()
        cut, used, weights, offset, value, n_rounds = _split(features, gains, settings, order[start:stop], space)
        node = nodes if cut else ~leaves
        if parent < 0:
            root = node
        else:
            children[parent, side] = node
        if not cut:
            leaves += 1
            bounds[leaves] = stop
            continue
        indices, data = _append(indices, indptr[nodes], used), _append(data, indptr[nodes], weights)
        indptr[nodes + 1], offsets[nodes] = indptr[nodes] + used.shape[0], offset
        stack.append((start + cut, stop, nodes, 1))
        stack.append((start, start + cut, nodes, 0))
        nodes += 1
        objective, rounds = objective + value, max(rounds, n_rounds)
    n_weights = indptr[nodes]
    separators = indptr[: nodes + 1].copy(), indices[:n_weights].copy(), data[:n_weights].copy()
    bounds = bounds[: leaves + 1].copy()
    return (root, children[:nodes].copy(), *separators, offsets[:nodes].copy(), bounds, order, objective, rounds)


@in_order
def _append(array, filled, values):
    """Write values after the first ``filled`` ones; return the array, or a longer copy if it has no room."""
    size = filled + values.shape[0]
    if size > array.shape[0]:
        longer = np.empty(2 * size, array.dtype)
        longer[:filled] = array[:filled]
        array = longer
    array[filled:size] = values
    return array


# --- one node -------------------------------------------------------------------------------------------------------


@in_order
def _split(features, gains, settings, rows, space):
    """Split the rows of a node in two and reorder them; cut = 0 makes the node a leaf.

    A start fails if both sides get the same ranking, or if no feature separates them; then the next start is tried.
    Returns the number of rows of the first side, the features and weights of the separator, its offset, the objective
    and the number of rounds.
    """
    if rows.shape[0] > settings.max_leaf and not have_same_labels(gains, rows):
        used, starts, places, values = _gather_columns(features, rows, settings.bias, space.places)
        for _ in range(MAX_STARTS):
            w, objective, rounds = _learn_separator(gains, settings, rows, starts, places, values, space)
            w[-1] *= settings.bias
            if settings.single:
                w = w.astype(np.float32).astype(np.float64)
            nonzero = w[:-1] != 0
            selected, weights = used[nonzero], w[:-1][nonzero]
            cut = _partition(features, rows, selected, weights, w[-1], space.weights)
            if 0 < cut < rows.shape[0]:
                return cut, selected, weights, w[-1], objective, rounds
    return 0, np.empty(0, np.int32), np.empty(0), 0.0, 0.0, 0


@in_order
def _learn_separator(gains, settings, rows, starts, places, values, space):
    """Assign rows to two sides and learn to separate these, ``max_iter`` times; w = 0 if a side is empty.

    Returns the weights, the last for the constant feature, the objective and the number of rounds.
    """
    n = rows.shape[0]
    signs, margins, before = draw_random_halves(n, space.state), np.zeros(n), np.zeros(n)
    w, objective, rounds = np.zeros(starts.shape[0] - 1), 0.0, 0
    for _ in range(settings.max_iter):
        ndcg = assign_sides(gains, rows, margins, signs, space.sums, space.discounts)
        n_above, unchanged = 0, True
        for i in range(n):
            n_above += signs[i] > 0
            unchanged &= signs[i] == before[i]
            before[i] = signs[i]
        if unchanged or not 0 < n_above < n:
            break
        costs, rounds = np.empty(n), rounds + 1
        for i in range(n):  # both sides have the same total cost
            costs[i] = n / n_above if signs[i] > 0 else n / (n - n_above)
        minimize_l1_logistic(
            starts, places, values, signs, costs, settings.alpha, settings.tol, MAX_NEWTON_STEPS, w, margins
        )
        objective = -ndcg
        for weight in w:
            objective += settings.alpha * abs(weight)
        for i in range(n):
            objective += costs[i] * log1pexp(-signs[i] * margins[i])
    return w, objective, rounds


@in_order
def draw_random_halves(n, state):
    """Return n // 2 signs −1 and the others 1, in random order."""
    signs = np.ones(n)
    signs[: n // 2] = -1
    for i in range(n - 1, 0, -1):
        j = np.int64(draw_bits(state) % np.uint64(i + 1))
        signs[i], signs[j] = signs[j], signs[i]
    return signs


@inlined
def draw_bits(state):
    """Return 64 random bits (splitmix64, Steele, Lea and Flood 2014)."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@in_order
def _gather_columns(features, rows, bias, places):
    """Return the rows of a node by columns: the features that occur, ascending, then a constant feature."""
    count = 0
    for i in rows:
        count += features.indptr[i + 1] - features.indptr[i]
    occurring, n_used = np.empty(min(count, features.width), np.int32), 0
    for i in rows:
        for p in range(features.indptr[i], features.indptr[i + 1]):
            j = features.indices[p]
            if places[j] < 0:
                occurring[n_used], places[j] = j, 0
                n_used += 1
            places[j] += 1
    used = np.sort(occurring[:n_used])
    starts = np.zeros(n_used + 2, np.int64)
    for c in range(n_used):
        starts[c + 1] = starts[c] + places[used[c]]
        places[used[c]] = starts[c]
    starts[n_used + 1] = count + rows.shape[0]
    row_indices, values = np.empty(starts[n_used + 1], np.int32), np.empty(starts[n_used + 1])
    for r in range(rows.shape[0]):
        i = rows[r]
        for p in range(features.indptr[i], features.indptr[i + 1]):
            j = features.indices[p]
            row_indices[places[j]], values[places[j]] = r, features.data[p]
            places[j] += 1
        row_indices[count + r], values[count + r] = r, bias
    for j in used:
        places[j] = -1
    return used, starts, row_indices, values


@in_order
def _partition(features, rows, used, weights, offset, dense):
    """Move the rows with offset + w·x ≤ 0 to the front, and return their number."""
    for c in range(used.shape[0]):
        dense[used[c]] = weights[c]
    second, n_first, n_second = np.empty(rows.shape[0], np.int64), 0, 0
    for i in rows:
        margin = offset
        for p in range(features.indptr[i], features.indptr[i + 1]):
            margin += dense[features.indices[p]] * features.data[p]
        if margin > 0:
            second[n_second] = i
            n_second += 1
        else:
            rows[n_first] = i
            n_first += 1
    rows[n_first:] = second[:n_second]
    for j in used:
        dense[j] = 0
    return n_first


@in_order
def find_leaves(features, roots, children, indptr, indices, data, offsets, leaves, start, stop):
    """Write the leaf of each row in each tree to ``leaves``; margins are sums in the order of :func:`_partition`."""
    x = np.zeros(features.width)
    for i in range(start, stop):
        for p in range(features.indptr[i], features.indptr[i + 1]):
            x[features.indices[p]] = features.data[p]
        for t in range(roots.shape[0]):
            node = roots[t]
            while node >= 0:
                margin = np.float64(offsets[node])
                for p in range(indptr[node], indptr[node + 1]):
                    margin += np.float64(data[p]) * x[indices[p]]
                node = children[node, int(margin > 0)]
            leaves[i, t] = ~node
        for p in range(features.indptr[i], features.indptr[i + 1]):
            x[features.indices[p]] = 0


# --- sides and rankings ---------------------------------------------------------------------------------------------


@in_order
def assign_sides(gains, rows, margins, signs, sums, discounts):
    """Assign rows to sides δ_i = ±1 by how well a ranking of labels for each side suits them; return the total nDCG.

        max over δ, r⁺, r⁻   Σ over δ_i = 1 of (nDCG(r⁺, y_i) + z_i / 2)
                           + Σ over δ_i = −1 of (nDCG(r⁻, y_i) − z_i / 2)

    nDCG(r, y_i) = Σ over positives l of row i of gain_l / log2(1 + r(l)), divided by the same sum over the first
    ranks with gains of 1. For given δ, the best ranking of a side sorts labels by their sums of gains; for given
    rankings, a row belongs where its nDCG is higher. z_i are the margins of a separator, or 0: −z_i is the logistic
    loss of δ_i = 1 minus that of δ_i = −1. The two steps alternate until no row moves. On a tie a row stays.

    ``signs`` has δ before and after. ``sums`` is zero before and after; ``discounts`` is set for labels that occur.
    """
    labels = _list_labels(gains, rows, sums[0])
    total = 0.0
    for _ in range(MAX_SIDE_ROUNDS):
        _rank_labels(gains, rows, signs, labels, sums, discounts)
        total, moved = 0.0, False
        for r in range(rows.shape[0]):
            below, above = _compute_ndcg(gains, rows[r], discounts)
            if (above - below + margins[r]) * signs[r] < 0:
                signs[r], moved = -signs[r], True
            total += above if signs[r] > 0 else below
        if not moved:
            break
    return total


@in_order
def have_same_labels(gains, rows):
    """Return whether all rows have the same positives."""
    first = gains.indices[gains.indptr[rows[0]] : gains.indptr[rows[0] + 1]]
    for i in rows[1:]:  # noqa: SIM110, Numba compiles no generator expressions
        if not np.array_equal(gains.indices[gains.indptr[i] : gains.indptr[i + 1]], first):
            return False
    return True


@in_order
def _list_labels(gains, rows, marks):
    """Return the labels that occur in these rows, ascending; ``marks`` is zero before and after."""
    count = 0
    for i in rows:
        count += gains.indptr[i + 1] - gains.indptr[i]
    occurring, n_labels = np.empty(count, np.int32), 0
    for i in rows:
        for p in range(gains.indptr[i], gains.indptr[i + 1]):
            label = gains.indices[p]
            if marks[label] == 0:
                marks[label] = 1
                occurring[n_labels] = label
                n_labels += 1
    for label in occurring[:n_labels]:
        marks[label] = 0
    return np.sort(occurring[:n_labels])


@in_order
def _rank_labels(gains, rows, signs, labels, sums, discounts):
    """Write the discount of each label in the best ranking of each side; equal sums rank by index."""
    for r in range(rows.shape[0]):
        i, side = rows[r], int(signs[r] > 0)
        for p in range(gains.indptr[i], gains.indptr[i + 1]):
            label = gains.indices[p]
            sums[side, label] += gains.of_row[i] * gains.of_label[label]
    keys = np.empty(labels.shape[0])
    for side in range(2):
        for c in range(labels.shape[0]):
            keys[c], sums[side, labels[c]] = -sums[side, labels[c]], 0
        order = np.argsort(keys, kind="mergesort")
        for rank in range(order.shape[0]):
            discounts[side, labels[order[rank]]] = 1 / np.log2(2.0 + rank)


@in_order
def _compute_ndcg(gains, i, discounts):
    """Return the nDCG of a row by the rankings of the two sides."""
    below = above = 0.0
    for p in range(gains.indptr[i], gains.indptr[i + 1]):
        label = gains.indices[p]
        below += gains.of_label[label] * discounts[0, label]
        above += gains.of_label[label] * discounts[1, label]
    return below * gains.of_row[i], above * gains.of_row[i]
