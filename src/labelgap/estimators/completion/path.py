"""The solutions of a completion problem along falling μ, and the factors of the last one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from labelgap.kernels import Backend
from labelgap.objectives.completion import Completion
from labelgap.objectives.factored import Factored, PartByPart
from labelgap.regularizers import DualStep, NuclearNorm, Unpriced, leading_triplets
from labelgap.solvers import Fit, NewtonCG, alternate
from labelgap.solvers.fpc import Accelerated, FixedPoint, Penalty, Point, Stage, descending, follow

CONVEX = ("fpc", "exact", "accelerated")
NOTHING = 1e-12  # a singular value below this share of the largest is rounding
FAINT = 1e-4  # and in factors that a penalty has nearly brought to 0, below this


class Found(NamedTuple):
    """Z = W Hᵀ with balanced factors, b, and how they were found; a record of the path is a dict of plain values.

    W is n×k. H has a row for each label, each feature, and, in MC-1, the constant.
    """

    W: NDArray
    H: NDArray
    b: NDArray
    rank: int
    history: list[float]
    status: str
    path: list[dict[str, Any]]


def solve_path(
    problem: Completion,
    mus: Sequence[float] | None = None,
    *,
    constant: bool,
    solver: str = "accelerated",
    mu: float = 1e-5,
    decay: float = 0.25,
    tol: float = 1e-5,
    max_iter: int = 1000,
) -> Iterator[Stage]:
    """Yield the solution for each μ, each started from the one before.

    ``problem.matrix(stage.point)`` and ``problem.decision(stage.point)`` are A and the decision values of a solution.

    Parameters
    ----------
    problem : Completion
        The smooth part.
    mus : sequence of float, optional
        Falling μ's; by default decay · σ₁, decay² · σ₁, …, mu, for the largest singular value σ₁ of the zero-filled
        matrix.
    constant : bool
        Whether the nuclear norm is that of [Z, 1], as in MC-1.
    solver : {"fpc", "exact", "accelerated"}
        The published fixed point loop; for MC-1 the splitting that makes it exact; with momentum.
    """
    if constant and solver == "accelerated":
        problem = problem.centered()
    penalty: Penalty = NuclearNorm()
    if constant and solver != "accelerated":
        penalty = Unpriced() if solver == "fpc" else DualStep()
    start, largest = problem.start()
    method = (Accelerated if solver == "accelerated" else FixedPoint)(tol, max_iter)
    mus = descending(largest, mu, decay) if mus is None else mus
    for stage in follow(problem, penalty, mus, start, method):
        stage.rank += constant and solver == "accelerated"  # the rank of [A, 1] is what is told of MC-1
        yield stage


def solve_factored(
    problem: Completion,
    mu: float,
    k: int,
    *,
    constant: bool,
    kernels: Backend,
    random_state: Any,
    tol: float,
    max_iter: int,
    stop: Callable[[Fit], bool] | None = None,
) -> Found:
    """Minimise over factors of k columns, alternating between them, for one μ."""
    objective = Factored(problem, mu, constant=constant, kernels=kernels)
    state = Fit(*objective.start(k, check_random_state(random_state)))
    rows: Any = PartByPart(NewtonCG())
    alternate(objective, state, NewtonCG(), rows, max_iter=max_iter, tol=tol, stop=stop)
    W, H = objective.complete_factors(state.W, state.H)
    history = [value / objective.scale for value in state.history]
    rank = _rank(W, H)
    told = {"mu": mu, "objective": history[-1], "rank": rank, "n_iter": state.n_iter}
    b = np.zeros(problem.t, W.dtype) if constant else state.H[: problem.t, -1].copy()
    return Found(W, H, b, rank, history, state.status.value, [told | {"status": state.status.value}])


def _rank(W: NDArray, H: NDArray) -> int:
    """Return the number of singular values of W Hᵀ that count."""
    left, right = (scipy.linalg.qr(factor, mode="r", check_finite=False)[0] for factor in (W, H))
    values = scipy.linalg.svdvals(left[: W.shape[1]] @ right[: H.shape[1]].T, check_finite=False)
    return int((values > FAINT * values.max(initial=0)).sum())


def record(stage: Stage) -> dict[str, Any]:
    """Return what ``path_`` tells of a stage."""
    return {
        "mu": stage.mu,
        "objective": stage.value,
        "rank": stage.rank,
        "n_iter": stage.n_iter,
        "status": stage.status.value,
    }


def factors(point: Point, constant: bool) -> tuple[NDArray, NDArray]:
    """Return W = U √S and H = V √S of Z, or of [Z, 1], = U S Vᵀ."""
    Z = point.Z
    if constant:
        Z = np.concatenate([Z + point.b if len(point.b) else Z, np.ones((len(Z), 1), Z.dtype)], axis=1)
    found = leading_triplets(Z, 0.0)
    kept = found.values > NOTHING * max(found.values.max(initial=0), np.finfo(Z.dtype).tiny)
    root = np.sqrt(found.values[kept])
    return found.left[:, kept] * root, found.right[:, kept] * root
