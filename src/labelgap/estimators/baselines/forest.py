"""The compiled loops of FastXML: trees grown on sparse rows, and the leaves that new rows come to.

A tree is numbered from the root down. A child v ≥ 0 is the inner node v, a child v < 0 the leaf ~v; the rows of leaf
i are ``order[bounds[i]:bounds[i + 1]]``. A row goes to child 1 of a node where offset + w·x > 0, else to child 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelgap.estimators.baselines.l1_logistic import log1pexp, minimize
from labelgap.estimators.baselines.label_splits import Gains, alike, exchange
from labelgap.kernels.ranking import in_order

NEWTON_STEPS = 50
STARTS = 4


class Rows(NamedTuple):
    """Sparse rows in float64, whatever the precision of a forest, their columns ascending, and their number."""

    indptr: NDArray
    indices: NDArray
    data: NDArray
    width: int


class Rules(NamedTuple):
    """What a forest is grown by: α and the tolerance of separators, whether their weights are rounded to float32, the
    value of the constant feature, the rows of a leaf, the rounds of a split.
    """

    alpha: float
    tol: float
    single: bool
    bias: float
    max_leaf: int
    max_iter: int


class Space(NamedTuple):
    """What the nodes of a tree work in: zeros for each side and label, zeros and −1 for each feature, a generator."""

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


def grow(features: Rows, gains: Gains, rules: Rules, seed: int) -> Tree:
    """Return a tree on all rows; every random number comes from the seed."""
    n = len(features.indptr) - 1
    tree = Tree(
        0,
        np.empty((n, 2), np.int64),
        np.zeros(n + 1, np.int64),
        np.empty(0, np.int32),
        np.empty(0),
        np.empty(n),
        np.zeros(n + 1, np.int64),
        np.arange(n),
        0.0,
        0,
    )
    labels, width = len(gains.of_label), features.width
    space = Space(
        np.zeros((2, labels)),
        np.zeros((2, labels)),
        np.zeros(width),
        np.full(width, -1, np.int64),
        np.full(1, seed, np.uint64),
    )
    root, nodes, leaves, indices, data, objective, rounds = _grow(features, gains, rules, space, tree)
    return tree._replace(
        root=root,
        children=tree.children[:nodes].copy(),
        indptr=tree.indptr[: nodes + 1].copy(),
        indices=indices[: tree.indptr[nodes]].copy(),
        data=data[: tree.indptr[nodes]].copy(),
        offsets=tree.offsets[:nodes].copy(),
        bounds=tree.bounds[: leaves + 1].copy(),
        objective=objective,
        rounds=rounds,
    )


@in_order
def _grow(features, gains, rules, space, tree):
    """Fills a tree from the root down, the first child of a node before the second."""
    n, indices, data = tree.order.shape[0], tree.indices, tree.data
    waiting = np.empty((n + 1, 4), np.int64)
    objective, rounds, root, nodes, leaves = 0.0, 1, 0, 0, 0
    left = _wait(waiting, 0, 0, n, -1, 0)
    while left:
        left -= 1
        start, stop, parent, side = waiting[left, 0], waiting[left, 1], waiting[left, 2], waiting[left, 3]
        cut, used, weights, offset, value, taken = split(features, gains, rules, tree.order[start:stop], space)
        node = nodes if cut else ~leaves
        if parent < 0:
            root = node
        else:
            tree.children[parent, side] = node
        if not cut:
            leaves += 1
            tree.bounds[leaves] = stop
            continue
        indices, data = _appended(indices, tree.indptr[nodes], used), _appended(data, tree.indptr[nodes], weights)
        tree.indptr[nodes + 1], tree.offsets[nodes] = tree.indptr[nodes] + used.shape[0], offset
        left = _wait(waiting, left, start + cut, stop, nodes, 1)
        left = _wait(waiting, left, start, start + cut, nodes, 0)
        nodes += 1
        objective, rounds = objective + value, max(rounds, taken)
    return root, nodes, leaves, indices, data, objective, rounds


@in_order
def _wait(waiting, place, start, stop, parent, side):
    """Puts a range of rows on the pile of those to look at, and returns how many there are."""
    waiting[place, 0], waiting[place, 1], waiting[place, 2], waiting[place, 3] = start, stop, parent, side
    return place + 1


@in_order
def _appended(array, filled, values):
    """The array with values after the first ``filled`` ones, or a longer one where it has no room."""
    size = filled + values.shape[0]
    if size > array.shape[0]:
        longer = np.empty(2 * size, array.dtype)
        longer[:filled] = array[:filled]
        array = longer
    array[filled:size] = values
    return array


@in_order
def split(features, gains, rules, rows, space):
    """Parts the rows of a node in two and puts them in this order; cut = 0 where they are to be a leaf.

    Both sides may have come to the same ranking, or to one that no feature follows: another start may do better.
    Returns how many rows come first, the features of the separator and their weights, the offset, the objective, and
    the rounds.
    """
    if rows.shape[0] > rules.max_leaf and not alike(gains, rows):
        used, starts, places, values = _columns(features, rows, rules.bias, space.places)
        for _ in range(STARTS):
            w, objective, rounds = _separator(gains, rules, rows, starts, places, values, space)
            w[-1] *= rules.bias
            if rules.single:
                w = w.astype(np.float32).astype(np.float64)
            kept, weights = _stored(used, w)
            cut = _part(features, rows, kept, weights, w[-1], space.weights)
            if 0 < cut < rows.shape[0]:
                return cut, kept, weights, w[-1], objective, rounds
    return 0, np.empty(0, np.int32), np.empty(0), 0.0, 0.0, 0


@in_order
def _stored(used, w):
    """The features whose weight is not 0, and their weights."""
    features, weights, count = np.empty(used.shape[0], np.int32), np.empty(used.shape[0]), 0
    for c in range(used.shape[0]):
        if w[c] != 0:
            features[count], weights[count] = used[c], w[c]
            count += 1
    return features[:count], weights[:count]


@in_order
def _separator(gains, rules, rows, starts, places, values, space):
    """Shares rows out to two sides and learns what tells these apart, some times; w = 0 where a side is empty.

    Returns the weights, the last that of the constant feature, the objective, and the rounds.
    """
    n = rows.shape[0]
    signs, margins, before = _random_halves(n, space.state), np.zeros(n), np.zeros(n)
    w, objective, rounds = np.zeros(starts.shape[0] - 1), 0.0, 0
    for _ in range(rules.max_iter):
        served = exchange(gains, rows, margins, signs, space.sums, space.discounts)
        above = _changed(signs, before)
        if not 0 < above < n:
            break
        costs, rounds = _costs(signs, above), rounds + 1
        minimize(starts, places, values, signs, costs, rules.alpha, rules.tol, NEWTON_STEPS, w, margins)
        objective = -served
        for weight in w:
            objective += rules.alpha * abs(weight)
        for i in range(n):
            objective += costs[i] * log1pexp(-signs[i] * margins[i])
    return w, objective, rounds


@in_order
def _random_halves(n, state):
    """Signs, as many of either as can be, in an order that is drawn."""
    signs = np.ones(n)
    signs[: n // 2] = -1
    for i in range(n - 1, 0, -1):
        j = np.int64(_draw(state) % np.uint64(i + 1))
        signs[i], signs[j] = signs[j], signs[i]
    return signs


@in_order
def _draw(state):
    """64 random bits (splitmix64 of Steele, Lea and Flood 2014)."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@in_order
def _changed(signs, before):
    """How many rows are on the upper side, 0 where all are where they were before; remembers where they are."""
    above, same = 0, True
    for i in range(signs.shape[0]):
        above += signs[i] > 0
        same &= signs[i] == before[i]
        before[i] = signs[i]
    return 0 if same else above


@in_order
def _costs(signs, above):
    """The cost of each row's loss: either side counts as much as the other."""
    n = signs.shape[0]
    costs = np.empty(n)
    for i in range(n):
        costs[i] = n / above if signs[i] > 0 else n / (n - above)
    return costs


@in_order
def _columns(features, rows, bias, places):
    """The rows of a node by columns: the features that occur, ascending, then a constant one."""
    count = 0
    for i in rows:
        count += features.indptr[i + 1] - features.indptr[i]
    found, kept = np.empty(min(count, features.width), np.int32), 0
    for i in rows:
        for p in range(features.indptr[i], features.indptr[i + 1]):
            j = features.indices[p]
            if places[j] < 0:
                found[kept], places[j] = j, 0
                kept += 1
            places[j] += 1
    used = np.sort(found[:kept])
    starts = np.zeros(kept + 2, np.int64)
    for c in range(kept):
        starts[c + 1] = starts[c] + places[used[c]]
        places[used[c]] = starts[c]
    starts[kept + 1] = count + rows.shape[0]
    where, values = np.empty(starts[kept + 1], np.int32), np.empty(starts[kept + 1])
    for place in range(rows.shape[0]):
        i = rows[place]
        for p in range(features.indptr[i], features.indptr[i + 1]):
            j = features.indices[p]
            where[places[j]], values[places[j]] = place, features.data[p]
            places[j] += 1
        where[count + place], values[count + place] = place, bias
    for j in used:
        places[j] = -1
    return used, starts, where, values


@in_order
def _part(features, rows, used, weights, offset, dense):
    """Puts the rows with offset + w·x ≤ 0 first, and returns how many they are."""
    for c in range(used.shape[0]):
        dense[used[c]] = weights[c]
    second, ahead, behind = np.empty(rows.shape[0], np.int64), 0, 0
    for i in rows:
        margin = offset
        for p in range(features.indptr[i], features.indptr[i + 1]):
            margin += dense[features.indices[p]] * features.data[p]
        if margin > 0:
            second[behind] = i
            behind += 1
        else:
            rows[ahead] = i
            ahead += 1
    rows[ahead:] = second[:behind]
    for j in used:
        dense[j] = 0
    return ahead


@in_order
def walk(features, roots, children, indptr, indices, data, offsets, leaves, start, stop):
    """The leaf that each row comes to in each tree. Sums run over the same products as those of growth, in order."""
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
