"""Learning from further rows: what is kept of the rows before, and the functions on it: remember, update."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from labelgap.objectives.base import Anchor, Composed, Ridge, Sum, mean, merge
from labelgap.objectives.cells import Cells
from labelgap.objectives.problem import Options, Problem, is_nonzero, solve, start
from labelgap.solvers import Direct, Fit, NewtonCG, Solver, Status
from labelgap.solvers.base import Array, Kronecker, inner

ACCURATE_NEWTON = NewtonCG(tol=1e-3, max_iter=10)
PRODUCTS = 4  # of a half step: the factors are near where they will be
STEPS = 3
MIN_GAIN_FACTOR = 3.0  # times tol: by how much further rows must have lowered F for more to be left to gain


class Memory(NamedTuple):
    """What rows that are gone say about labels, as NumPy arrays.

    For each label a quadratic around its factors h_j with the Hessian w_j M, and the factors of a label that no row
    had, which is where a new label starts.

    Attributes
    ----------
    curvature : array of shape (k, k)
        M.
    weights : array of shape (L,)
        w_j.
    blank : array of shape (k,)
        The factors of a label without positives.
    blank_weight : array of shape ()
        Its weight.
    """

    curvature: Any
    weights: Any
    blank: Any
    blank_weight: Any

    def check(self, L: int, k: int) -> None:
        """Raise ValueError if parts that came from a file do not fit L labels and rank k."""
        wanted = {"curvature": (k, k), "weights": (L,), "blank": (k,), "blank_weight": ()}
        shapes = {name: np.shape(part) for name, part in self._asdict().items()}
        if shapes != wanted:
            raise ValueError(f"memory_ has parts of shapes {shapes}, expected {wanted}")

    def anchor(self, H: Any, ridge: Any, problem: Problem) -> Anchor:
        """Return the quadratic around H, whose last rows may be of labels that the memory does not have."""
        extra = len(H) - len(self.weights)
        weights = np.append(self.weights, np.repeat(self.blank_weight, extra))
        return _anchor(problem, H, self.curvature, weights, ridge)


def _anchor(problem: Problem, at: Any, M: Any, weights: Any, ridge: Any) -> Anchor:
    """Bring an anchor of NumPy arrays to the device; one weight for all goes into M, so that it adds up exactly."""
    array = problem.backend.array
    if (weights == weights[0]).all():
        return Anchor(array(at, at.dtype), array(weights[0] * M, at.dtype), 1.0, ridge)
    return Anchor(array(at, at.dtype), array(M, at.dtype), array(weights[:, None], at.dtype), ridge)


def remember(problem: Problem, fit: Fit) -> Memory | None:
    """Return what further rows will need to know of these; None where they cannot do without them.

    A model without features knows its rows, and one with label features has no factors of its own for a label.
    """
    if problem.left.is_identity or not problem.right.is_identity:
        return None
    B, (L, k) = problem.left.times(fit.W), fit.H.shape
    nothing = np.zeros((1, k), problem.backend.to_numpy(fit.H[:1, :]).dtype)
    before = _anchor(problem, nothing, np.zeros((k, k)), np.ones(1), mean(problem.penalties.right))
    data = problem.cells.T.given(B)
    return _memory(problem, L, data.curvature(fit.H), _blank_label(problem.blank_cells, B, before))


def _blank_label(cells: Cells | None, B: Array, before: Anchor) -> Anchor:
    """Return what rows with factors B, and those before, say of a label that none of them has."""
    if cells is None:
        return before
    data, at = cells.T.given(B), before.at
    solver = Direct() if cells.quadratic else ACCURATE_NEWTON
    at = solver.minimize(Sum([data, before]), at).x
    form = merge(before.curvature(at), data.curvature(at))
    return Anchor(at, form.M, mean(form.weights), before.ridge)


def _memory(problem: Problem, L: int, form: Kronecker, blank: Anchor) -> Memory:
    host = problem.backend.to_numpy
    M, weights = host(form.M), host(form.weights)
    size = np.trace(M)
    return Memory(
        np.asarray(M),
        np.array(np.broadcast_to(np.ravel(weights), L), float),
        host(blank.at)[0],
        np.asarray(float(blank.weights) * np.trace(host(blank.M)) / size if size > 0 else 0.0),
    )


@dataclass(frozen=True)
class Previous:
    """The NumPy factors of a fitted model, and what it remembers of its rows."""

    W: Any
    H: Any
    memory: Memory | None

    def for_labels(self, count: int) -> Any:
        """Return H with a row for each further label: that of a label without positives."""
        blank = np.zeros(self.H.shape[1]) if self.memory is None else self.memory.blank
        return np.vstack([self.H, np.tile(blank.astype(self.H.dtype), (count - len(self.H), 1))])


def update(previous: Previous, further: Problem, *, dtype: Any) -> tuple[Fit, Memory]:
    """Learn from further rows alone: W is held, and H is drawn to where it is as strongly as older rows do.

        min over h_j of Σ over new rows of ℓ(Y_ij, b_i·h) + ½ (h − h_j)ᵀ (w_j M + α) (h − h_j)

    ``further`` is the problem of the further rows, whose labels are those of before and then new ones.
    """
    memory = previous.memory
    assert memory is not None
    L, ridge = further.cells.shape[1], further.penalties.right
    H = previous.for_labels(L)
    fit = further.factors(previous.W, H, np.dtype(dtype))
    B = _in_range(further.left.times(fit.W))
    anchor = memory.anchor(H, ridge, further)
    data = further.cells.T.given(B)
    fit.H = ACCURATE_NEWTON.minimize(Sum([data, anchor]), fit.H).x
    fit.status = Status.CONVERGED
    at = memory.blank[None].astype(H.dtype)
    blank = _anchor(further, at, memory.curvature, np.reshape(memory.blank_weight, 1), mean(ridge))
    form = merge(anchor.curvature(fit.H), data.curvature(fit.H))
    return fit, _memory(further, L, form, _blank_label(further.blank_cells, B, blank))


def update_with_past(
    previous: Previous,
    whole: Problem,
    options: Options,
    *,
    further: Problem | None = None,
    fold_in: Callable[[Array], Any] | None = None,
    init: str = "svd",
    random_state: Any = None,
) -> tuple[Fit, Memory | None]:
    """Alternate over all rows from the factors at hand, each half step by a few products.

    Parameters
    ----------
    previous : Previous
        The factors so far.
    whole : Problem
        That of all rows, the further ones last.
    options : Options
        ``max_iter`` counts the first alternation too.
    further : Problem, optional
        That of the further rows, from which alone the first W then learns: they stand for the others.
    fold_in : callable, optional
        Returns the factors of the further rows, given H: for a model without features.
    init, random_state
        How to start anew where a strong penalty has brought the factors to 0.
    """
    whole = whole.for_few_steps()
    options = replace(options, solver=_few_products(options.solver, whole.cells))
    fit, gain = _first_alternation(previous, whole, options, further, fold_in, (init, random_state))
    if gain <= MIN_GAIN_FACTOR * options.tol * abs(fit.history[0]):
        fit.status, options = Status.CONVERGED, replace(options, max_iter=1)
    solve(whole, fit, options)
    return fit, remember(whole, fit)


def _first_alternation(
    previous: Previous,
    whole: Problem,
    options: Options,
    further: Problem | None,
    fold_in: Callable[[Array], Any] | None,
    start_by: tuple[str, Any],
) -> tuple[Fit, float]:
    """Return the first alternation, and by how much W lowered the objective of the further rows.

    W learns from them alone, which costs next to nothing, and H from all rows. Without features W has rows of its own
    for them, which are found first, and learns from all rows as well.
    """
    dtype, solver = np.dtype(options.dtype), options.solver
    W, H = previous.W.astype(dtype), previous.H.astype(dtype)
    if whole.right.is_identity:
        H = previous.for_labels(whole.cells.shape[1]).astype(dtype)
    anew, gain = not is_nonzero(W, H), np.inf
    if anew:
        fit = start(whole, H.shape[1], init=start_by[0], random_state=start_by[1], dtype=dtype)
    else:
        if fold_in is not None:
            W = np.vstack([W, fold_in(H)])
        fit = whole.factors(W, H, dtype)
    if anew or fold_in is not None:
        fit.W = solver.minimize(whole.given_right(fit.H), fit.W).x
    elif further is not None:
        fit.W, gain = _learn_left(further, fit, whole.cells.shape[0] - further.cells.shape[0])
    found = solver.minimize(whole.given_left(fit.W), fit.H)
    return Fit(fit.W, found.x, [found.value]), gain


def _learn_left(further: Problem, fit: Fit, before: int) -> tuple[Array, float]:
    """Return W after a step by the further rows alone, and by how much that lowered their objective.

    The rows before were at a minimum in W, and their features are taken to be like those of the further rows: where W
    moves the scores of these, it moves the scores of the others as well, at the same cost for each row.
    """
    problem = further.for_few_steps()
    B, data = _in_range(problem.left.times(fit.W)), problem.cells.given(fit.H)
    form, n = data.curvature(B), problem.cells.shape[0]
    others = Anchor(B, form.M, float(before / n * mean(form.weights)), 0.0)
    objective = Sum([Composed(problem.left, Sum([data, others])), Ridge(problem.penalties.left, at=fit.W)])
    found = _few_products(NewtonCG(), problem.cells).minimize(objective, fit.W)
    return found.x, float(data.value(B)) - found.value  # the other terms are 0 at W


def _few_products(solver: Solver, cells: Cells) -> Solver:
    """Return a solver of which a half step takes but a few products.

    Where all cells have squares, which may outnumber others by far, one Newton step leads most of the way.
    """
    return solver.with_few_products(1 if cells.has_squares else STEPS, PRODUCTS)


def _in_range(B: Array) -> Array:
    if not np.isfinite(float(inner(B, B))):
        raise FloatingPointError("the squares of the rows' factors became infinite")
    return B
