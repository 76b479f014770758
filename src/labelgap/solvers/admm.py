"""The alternating direction method of multipliers for f(V) + g(X V), f smooth and g with a simple prox."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from labelgap.solvers.base import Array, LinearMap, Status, norm

FIRST_BALANCE = 5  # rounds before ρ is first changed; the next change waits twice as long, and so on
UNBALANCED, MOST_BALANCE = 3.0, 10.0

# (target, ρ, start) ↦ argmin over V of f(V) + ρ ‖X V − target‖².
SmoothStep = Callable[[Array, float, Array], Array]
# (point, ρ) ↦ argmin over A of g(A) + ρ ‖A − point‖².
Prox = Callable[[Array, float], Array]


class Residuals(NamedTuple):
    """‖X V − A‖ and ‖2ρ Xᵀ (A − A_previous)‖ after a round, each as a multiple of what is tolerated, and its ρ."""

    primal: float
    dual: float
    rho: float

    @property
    def met(self) -> bool:
        """Whether both are within their tolerance."""
        return self.primal <= 1 and self.dual <= 1


@dataclass
class Splitting:
    """V (d×k), A ≈ X V (n×k) with the zeros of its prox, the scaled dual B, ρ, the residuals, and how it ended.

    The multiplier of X V = A is 2ρB: a subgradient of g at A, and −Xᵀ(2ρB) is the gradient of f at V.
    """

    V: Array
    A: Array
    B: Array
    rho: float
    history: list[Residuals] = field(default_factory=list)
    status: Status = Status.MAX_ITER

    @property
    def n_iter(self) -> int:
        """The number of rounds made."""
        return len(self.history)


def soft_threshold(values: Array, threshold: float) -> Array:
    """Return argmin over a of ½ (a − v)² + threshold · |a|, for each v: sign(v) · max(0, |v| − threshold).

    >>> soft_threshold(np.array([-3.0, 0.5, 2.0]), 1.0) + 0.0
    array([-2.,  0.,  1.])
    """
    return np.sign(values) * np.maximum(np.abs(values) - values.dtype.type(threshold), 0)


def alternate_directions(
    features: LinearMap,
    smooth: SmoothStep,
    prox: Prox,
    start: Array,
    *,
    rho: float,
    max_iter: int,
    tol: float,
    scales: tuple[float, float] = (0.0, 0.0),
    balance: bool = True,
) -> Splitting:
    """Minimise f(V) + g(X V) by way of min f(V) + g(A) subject to X V = A (004, sub-routine 4).

    A round is V = argmin f(V) + ρ‖X V − A + B‖², A = argmin g(A) + ρ‖X V − A + B‖², B += X V − A, from A = B = 0. It
    ends where ‖X V − A‖ ≤ tol (s₁ + max(‖X V‖, ‖A‖)) and ‖2ρ Xᵀ(A − A_previous)‖ ≤ tol (s₂ + ‖2ρ XᵀB‖): the criteria
    of Boyd et al. (2011), section 3.3.1, whose ρ is twice ours, with absolute tolerances that ``scales`` = (s₁, s₂)
    give a unit.

    ``balance`` lets ρ follow the two residuals (section 3.4.1), ever more rarely, so that it comes to rest.

    >>> from labelgap.objectives.features import Identity
    >>> z = np.array([[3.0], [0.2]])
    >>> def smooth(target, rho, start):
    ...     return (z + rho * target) / (1 + rho)  # f(v) = ‖v − z‖²
    >>> def prox(point, rho):
    ...     return soft_threshold(point, 1 / (2 * rho))  # g(a) = ‖a‖₁
    >>> alternate_directions(Identity(2), smooth, prox, np.zeros((2, 1)), rho=1.0, max_iter=99, tol=1e-9).A.round(6)
    array([[2.5],
           [0. ]])
    """
    A = np.zeros((features.shape[0], start.shape[1]), start.dtype)
    state = Splitting(start, A, A.copy(), rho)
    change_at = FIRST_BALANCE
    for _ in range(max_iter):
        residuals = _round(features, smooth, prox, state, tol, scales)
        state.history.append(residuals)
        if residuals.met:
            state.status = Status.CONVERGED
            break
        if balance and state.n_iter == change_at:
            change_at *= 2
            _balance(state, residuals)
    return state


def _round(
    features: LinearMap, smooth: SmoothStep, prox: Prox, state: Splitting, tol: float, scales: tuple[float, float]
) -> Residuals:
    """Make one round in place and return its residuals."""
    previous, number = state.A, state.A.dtype.type
    state.V = smooth(state.A - state.B, state.rho, state.V)
    image = features.times(state.V)
    state.A = prox(image + state.B, state.rho)
    gap = image - state.A
    state.B = state.B + gap
    twice = number(2 * state.rho)
    moved, pull = features.t_times(twice * (state.A - previous)), features.t_times(twice * state.B)
    allowed = scales[0] + max(norm(image), norm(state.A)), scales[1] + norm(pull)
    primal, dual = norm(gap), norm(moved)
    if not np.isfinite(primal + dual):
        raise FloatingPointError(f"the residuals of ADMM became {primal} and {dual}")
    return Residuals(_multiple(primal, tol * allowed[0]), _multiple(dual, tol * allowed[1]), state.rho)


def _balance(state: Splitting, residuals: Residuals) -> None:
    """Move ρ towards equal residuals, and rescale B so that the multiplier 2ρB stays."""
    primal, dual = max(residuals.primal, 1e-12), max(residuals.dual, 1e-12)
    if max(primal, dual) <= UNBALANCED * min(primal, dual):
        return
    factor = float(np.clip((primal / dual) ** 0.5, 1 / MOST_BALANCE, MOST_BALANCE))
    state.rho *= factor
    state.B = state.B / state.B.dtype.type(factor)


def _multiple(size: float, allowed: float) -> float:
    return size / allowed if allowed > 0 else (np.inf if size > 0 else 0.0)
