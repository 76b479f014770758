"""Learning from further rows: the memory of past rows, and the functions make_memory, update, update_with_past."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from labelgap.objectives.base import Anchor, Composition, Ridge, Sum, mean, merge_forms
from labelgap.objectives.cells import BoundCells
from labelgap.objectives.problem import Options, Problem, is_nonzero, solve, start
from labelgap.solvers import Direct, Fit, NewtonCG, Solver, Status
from labelgap.solvers.base import Array, Kronecker, inner

ACCURATE_NEWTON = NewtonCG(tol=1e-3, max_iter=10)
MAX_PRODUCTS = 4  # of a half step: the factors are near their new values
MAX_STEPS = 3
MIN_GAIN_FACTOR = 3.0  # times tol: the least relative decrease of F by the further rows for more alternations


class Memory(NamedTuple):
    """A summary of past rows for the labels' factors, as NumPy arrays.

    For each label a quadratic around its factors h_j with the Hessian w_j M, and the factors of a blank label, one
    without positives, from which a new label starts.

    Attributes
    ----------
    curvature : array of shape (k, k)
        M.
    weights : array of shape (L,)
        w_j.
    blank : array of shape (k,)
        The factors of the blank label.
    blank_weight : array of shape ()
        Its w.
    """

    curvature: Any
    weights: Any
    blank: Any
    blank_weight: Any

    def check(self, L: int, k: int) -> None:
        """Raise ValueError if parts that came from a file do not fit L labels and rank k."""
        expected = {"curvature": (k, k), "weights": (L,), "blank": (k,), "blank_weight": ()}
        shapes = {name: np.shape(part) for name, part in self._asdict().items()}
        if shapes != expected:
            raise ValueError(f"memory_ has parts of shapes {shapes}, expected {expected}")

    def make_anchor(self, H: Any, ridge: Any, problem: Problem) -> Anchor:
        """Return the quadratic around H, whose last rows may belong to new labels."""
        extra = len(H) - len(self.weights)
        weights = np.append(self.weights, np.repeat(self.blank_weight, extra))
        return _make_anchor(problem, H, self.curvature, weights, ridge)


def _make_anchor(problem: Problem, center: Any, M: Any, weights: Any, ridge: Any) -> Anchor:
    """Return an anchor on the device; a weight that all labels share multiplies M, so that forms add up exactly."""
    array = problem.backend.array
    if (weights == weights[0]).all():
        return Anchor(array(center, center.dtype), array(weights[0] * M, center.dtype), 1.0, ridge)
    dtype = center.dtype
    return Anchor(array(center, dtype), array(M, dtype), array(weights[:, None], dtype), ridge)


def make_memory(problem: Problem, fit: Fit) -> Memory | None:
    """Return the memory of the rows of a fit; None if further rows need these rows themselves.

    That is so without features, when each row has factors, and with label features, when labels have none.
    """
    if problem.left.is_identity or not problem.right.is_identity:
        return None
    B, (L, k) = problem.left.times(fit.W), fit.H.shape
    zero = np.zeros((1, k), problem.backend.to_numpy(fit.H[:1, :]).dtype)
    before = _make_anchor(problem, zero, np.zeros((k, k)), np.ones(1), mean(problem.penalties.right))
    data = problem.cells.T.objective_in_left(B)
    return _build_memory(problem, L, data.curvature(fit.H), _anchor_blank_label(problem.blank_cells, B, before))


def _anchor_blank_label(cells: BoundCells | None, B: Array, before: Anchor) -> Anchor:
    """Return the anchor of a label without positives, from rows with factors B and the anchor of earlier rows."""
    if cells is None:
        return before
    data = cells.T.objective_in_left(B)
    solver = Direct() if cells.quadratic else ACCURATE_NEWTON
    center = solver.minimize(Sum([data, before]), before.center).x
    form = merge_forms(before.curvature(center), data.curvature(center))
    return Anchor(center, form.M, mean(form.weights), before.ridge)


def _build_memory(problem: Problem, L: int, form: Kronecker, blank: Anchor) -> Memory:
    host = problem.backend.to_numpy
    M, weights = host(form.M), host(form.weights)
    size = np.trace(M)
    return Memory(
        np.asarray(M),
        np.array(np.broadcast_to(np.ravel(weights), L), float),
        host(blank.center)[0],
        np.asarray(float(blank.weights) * np.trace(host(blank.M)) / size if size > 0 else 0.0),
    )


@dataclass(frozen=True)
class PreviousFit:
    """The NumPy factors of a fitted model, and its memory."""

    W: Any
    H: Any
    memory: Memory | None

    def extend_labels(self, count: int) -> Any:
        """Return H with ``count`` rows; those of new labels are the factors of the blank label."""
        blank = np.zeros(self.H.shape[1]) if self.memory is None else self.memory.blank
        return np.vstack([self.H, np.tile(blank.astype(self.H.dtype), (count - len(self.H), 1))])


def update(previous: PreviousFit, further: Problem, *, dtype: Any) -> tuple[Fit, Memory]:
    """Learn H from further rows alone, for a fixed W; past rows enter as a quadratic around the last factors.

        min over h_j of Σ over new rows of ℓ(Y_ij, b_i·h) + ½ (h − h_j)ᵀ (w_j M + α) (h − h_j)

    ``further`` is the problem of the further rows, whose new labels come last.
    """
    memory = previous.memory
    assert memory is not None
    L, ridge = further.cells.shape[1], further.penalties.right
    H = previous.extend_labels(L)
    fit = further.make_fit(previous.W, H, np.dtype(dtype))
    B = _check_finite(further.left.times(fit.W))
    anchor = memory.make_anchor(H, ridge, further)
    data = further.cells.T.objective_in_left(B)
    fit.H = ACCURATE_NEWTON.minimize(Sum([data, anchor]), fit.H).x
    fit.status = Status.CONVERGED
    center = memory.blank[None].astype(H.dtype)
    blank = _make_anchor(further, center, memory.curvature, np.reshape(memory.blank_weight, 1), mean(ridge))
    form = merge_forms(anchor.curvature(fit.H), data.curvature(fit.H))
    return fit, _build_memory(further, L, form, _anchor_blank_label(further.blank_cells, B, blank))


def update_with_past(
    previous: PreviousFit,
    problem: Problem,
    options: Options,
    *,
    further: Problem | None = None,
    fold_in: Callable[[Array], Any] | None = None,
    init: str = "svd",
    random_state: Any = None,
) -> tuple[Fit, Memory | None]:
    """Alternate over all rows from the last factors, with few products in each half step.

    Parameters
    ----------
    previous : PreviousFit
        The last factors.
    problem : Problem
        The problem of all rows, the further ones last.
    options : Options
        ``max_iter`` includes the first alternation.
    further : Problem, optional
        The problem of the further rows, from which alone the first half step learns W.
    fold_in : callable, optional
        Function that returns the factors of the further rows for an H; for a model without features.
    init, random_state
        The start if a strong penalty has reduced the last factors to 0.
    """
    problem = problem.without_eigenvectors()
    options = replace(options, solver=_make_few_step_solver(options.solver, problem.cells))
    fit, gain = _run_first_alternation(previous, problem, options, further, fold_in, (init, random_state))
    if gain <= MIN_GAIN_FACTOR * options.tol * abs(fit.history[0]):
        fit.status, options = Status.CONVERGED, replace(options, max_iter=1)
    solve(problem, fit, options)
    return fit, make_memory(problem, fit)


def _run_first_alternation(
    previous: PreviousFit,
    problem: Problem,
    options: Options,
    further: Problem | None,
    fold_in: Callable[[Array], Any] | None,
    start_options: tuple[str, Any],
) -> tuple[Fit, float]:
    """Return the first alternation, and the decrease of the further rows' objective in W.

    W learns from the further rows alone, which is cheap, and H from all rows. Without features W has rows for the
    further rows, which are computed first; then W learns from all rows too.
    """
    dtype, solver = np.dtype(options.dtype), options.solver
    W, H = previous.W.astype(dtype), previous.H.astype(dtype)
    if problem.right.is_identity:
        H = previous.extend_labels(problem.cells.shape[1]).astype(dtype)
    restarts, gain = not is_nonzero(W, H), np.inf
    if restarts:
        fit = start(problem, H.shape[1], init=start_options[0], random_state=start_options[1], dtype=dtype)
    else:
        if fold_in is not None:
            W = np.vstack([W, fold_in(H)])
        fit = problem.make_fit(W, H, dtype)
    if restarts or fold_in is not None:
        fit.W = solver.minimize(problem.objective_in_left(fit.H), fit.W).x
    elif further is not None:
        fit.W, gain = _update_left(further, fit, problem.cells.shape[0] - further.cells.shape[0])
    solution = solver.minimize(problem.objective_in_right(fit.W), fit.H)
    return Fit(fit.W, solution.x, [solution.value]), gain


def _update_left(further: Problem, fit: Fit, n_past: int) -> tuple[Array, float]:
    """Return W after a step by the further rows alone, and the decrease of their objective.

    The past rows are at a minimum in W and are assumed to have similar features: a change of W that changes the
    scores of further rows changes those of past rows as much, with the same mean curvature.
    """
    problem = further.without_eigenvectors()
    B, data = _check_finite(problem.left.times(fit.W)), problem.cells.objective_in_left(fit.H)
    form, n = data.curvature(B), problem.cells.shape[0]
    past = Anchor(B, form.M, float(n_past / n * mean(form.weights)), 0.0)
    ridge = Ridge(problem.penalties.left, center=fit.W)
    objective = Sum([Composition(problem.left, Sum([data, past])), ridge])
    solution = _make_few_step_solver(NewtonCG(), problem.cells).minimize(objective, fit.W)
    return solution.x, float(data.value(B)) - solution.value  # the other terms are 0 at W


def _make_few_step_solver(solver: Solver, cells: BoundCells) -> Solver:
    """Limit the products of a half step.

    If all cells have squared loss, which may outnumber other terms by far, one Newton step is nearly enough.
    """
    return solver.limit_products(1 if cells.has_squares else MAX_STEPS, MAX_PRODUCTS)


def _check_finite(B: Array) -> Array:
    if not np.isfinite(float(inner(B, B))):
        raise FloatingPointError("the squares of the rows' factors became infinite")
    return B
