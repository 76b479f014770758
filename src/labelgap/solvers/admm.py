"""The alternating direction method of multipliers for f(V) + g(X V), f smooth and g with a simple prox."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from labelgap.solvers.base import Array, LinearMap, Status, norm

FIRST_BALANCE_ROUND = 5  # in which ρ may change first; the number of rounds doubles from change to change
MAX_RESIDUAL_RATIO, MAX_RHO_FACTOR = 3.0, 10.0

# (target, ρ, start) ↦ argmin over V of f(V) + ρ ‖X V − target‖².
SmoothStep = Callable[[Array, float, Array], Array]
# (point, ρ) ↦ argmin over A of g(A) + ρ ‖A − point‖².
Prox = Callable[[Array, float], Array]


class Residuals(NamedTuple):
    """‖X V − A‖ and ‖2ρ Xᵀ (A − A_previous)‖ after a round, as multiples of their tolerances, and its ρ."""

    primal: float
    dual: float
    rho: float

    @property
    def met(self) -> bool:
        """Whether both are within their tolerances."""
        return self.primal <= 1 and self.dual <= 1


@dataclass
class Splitting:
    """V (d×k), A ≈ X V (n×k) with the zeros of its prox, the scaled dual B, ρ, the residuals, and the status.

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
        """The number of rounds."""
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
    """Minimise f(V) + g(X V) as f(V) + g(A) subject to X V = A (004, sub-routine 4).

    A round is V = argmin f(V) + ρ‖X V − A + B‖², A = argmin g(A) + ρ‖X V − A + B‖², B += X V − A, from A = B = 0. The
    run ends when ‖X V − A‖ ≤ tol (s₁ + max(‖X V‖, ‖A‖)) and ‖2ρ Xᵀ(A − A_previous)‖ ≤ tol (s₂ + ‖2ρ XᵀB‖): the
    criteria of Boyd et al. (2011), section 3.3.1, whose ρ is twice ours; ``scales`` = (s₁, s₂) are the units of the
    absolute tolerances.

    With ``balance`` ρ follows the two residuals (section 3.4.1), ever more rarely, so that it settles.

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
    change_at = FIRST_BALANCE_ROUND
    for _ in range(max_iter):
        residuals = _run_round(features, smooth, prox, state, tol, scales)
        state.history.append(residuals)
        if residuals.met:
            state.status = Status.CONVERGED
            break
        if balance and state.n_iter == change_at:
            change_at *= 2
            _balance_rho(state, residuals)
    return state


def _run_round(
    features: LinearMap, smooth: SmoothStep, prox: Prox, state: Splitting, tol: float, scales: tuple[float, float]
) -> Residuals:
    """Run one round in place and return its residuals."""
    previous, number = state.A, state.A.dtype.type
    state.V = smooth(state.A - state.B, state.rho, state.V)
    image = features.times(state.V)
    state.A = prox(image + state.B, state.rho)
    gap = image - state.A
    state.B = state.B + gap
    twice = number(2 * state.rho)
    change, dual_image = features.t_times(twice * (state.A - previous)), features.t_times(twice * state.B)
    sizes = scales[0] + max(norm(image), norm(state.A)), scales[1] + norm(dual_image)
    primal, dual = norm(gap), norm(change)
    if not np.isfinite(primal + dual):
        raise FloatingPointError(f"the residuals of ADMM became {primal} and {dual}")
    return Residuals(_divide(primal, tol * sizes[0]), _divide(dual, tol * sizes[1]), state.rho)


def _balance_rho(state: Splitting, residuals: Residuals) -> None:
    """Change ρ towards equal residuals, and rescale B so that the multiplier 2ρB stays the same."""
    primal, dual = max(residuals.primal, 1e-12), max(residuals.dual, 1e-12)
    if max(primal, dual) <= MAX_RESIDUAL_RATIO * min(primal, dual):
        return
    factor = float(np.clip((primal / dual) ** 0.5, 1 / MAX_RHO_FACTOR, MAX_RHO_FACTOR))
    state.rho *= factor
    state.B = state.B / state.B.dtype.type(factor)


def _divide(size: float, tolerance: float) -> float:
    return size / tolerance if tolerance > 0 else (np.inf if size > 0 else 0.0)
