"""What LEML and OneClassMF share: parameters of an alternation, its start, its options and how it ended."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from labelgap.estimators.base import Outcome
from labelgap.estimators.parameters import check_callbacks, check_choice, check_number, check_weights
from labelgap.kernels import Backend
from labelgap.objectives.cells import Weights
from labelgap.objectives.features import Features
from labelgap.objectives.graph import check_graph
from labelgap.objectives.problem import BoundData, Iteration, Options, Problem, SideData, is_nonzero, solve, start
from labelgap.objectives.update import Memory, Previous, remember
from labelgap.observations import Labels
from labelgap.solvers import Fit, Status

DEFAULT_COMPONENTS = 100
ROUNDING = 1e-6  # by which the two weights of an edge may differ, as a share of the largest


class LowRankModel(Protocol):
    """An estimator of two factors, with the parameters and the steps that these functions use."""

    n_components: int | None
    fit_intercept: bool
    init: str
    solver: str
    max_iter: int
    tol: float
    warm_start: bool
    random_state: Any
    dtype: Any
    verbose: int
    callbacks: Sequence[Callable[[Iteration], Any]] | None

    def _bind(self, X: Any, labels: Labels, side: SideData | None = None) -> BoundData:
        """Bind validated data to the backend."""

    def _problem(self, data: BoundData) -> Problem:
        """Return the problem that the parameters make of bound data."""

    def _previous(self) -> Previous:
        """Return the factors of the last fit, as the problem has them, and what is remembered of its rows."""

    def _store(self, data: BoundData, problem: Problem, fit: Fit, memory: Memory | None) -> None:
        """Set the fitted attributes."""


def check_alternation(model: LowRankModel) -> None:
    """Refuse parameters of an alternation that are out of range."""
    check_number("n_components", model.n_components, Integral, least=1, optional=True)
    check_number("tol", model.tol, Real, least=0)
    check_number("max_iter", model.max_iter, Integral, least=1)
    check_choice("init", model.init, ("svd", "random"))
    check_number("verbose", model.verbose, Integral, least=0)
    check_callbacks(model.callbacks)


def rank(model: LowRankModel, problem: Problem) -> int:
    """Return the rank that the parameters ask for, or say what is the most that has an effect."""
    left, right = problem.left, problem.right
    rows, labels = "rows" if left.is_identity else "features", "labels" if right.is_identity else "label features"
    n_features, n_labels = left.shape[1] - (not left.is_identity and bool(model.fit_intercept)), right.shape[1]
    most = min(n_features, n_labels)
    if model.n_components is None:
        return min(DEFAULT_COMPONENTS, most)
    if model.n_components > most:
        raise ValueError(
            f"n_components={model.n_components} is above min({rows}, {labels}) = "
            f"min({n_features}, {n_labels}) = {most}; a rank beyond it changes nothing. Pass at most {most}."
        )
    return model.n_components


def first_factors(model: LowRankModel, problem: Problem) -> Fit:
    """Return where to start: at the factors of the last fit, from the data, or at random."""
    k, dtype = rank(model, problem), np.dtype(model.dtype)
    if model.warm_start and hasattr(model, "label_factors_"):
        previous = model._previous()
        W, H = previous.W, previous.H
        shapes = (problem.left.shape[1], k), (problem.right.shape[1], k)
        if (W.shape, H.shape) != shapes:
            raise ValueError(
                f"warm_start=True, but the previous fit has factors of shapes {W.shape} and {H.shape} "
                f"and this one needs {shapes[0]} and {shapes[1]}; clone the estimator to start anew."
            )
        if is_nonzero(W, H):
            return problem.factors(W, H, dtype)
    return start(problem, k, init=model.init, random_state=check_random_state(model.random_state), dtype=dtype)


def options_of(model: LowRankModel, problem: Problem, max_iter: int | None = None) -> Options:
    """Return how the parameters say that a problem is to be solved."""
    return Options(
        problem.solver(model.solver),
        model.max_iter if max_iter is None else max_iter,
        model.tol,
        model.dtype,
        type(model).__name__,
        model.verbose,
        tuple(model.callbacks or ()),
    )


def outcome(model: Any, fit: Fit) -> Outcome:
    """Store how a fit went, and return what to tell of it."""
    model.objective_, model.n_iter_, model.status_ = fit.history, fit.n_iter, fit.status.value
    name = type(model).__name__
    if fit.status is Status.MAX_ITER:
        return Outcome(
            f"{name} stopped after max_iter={model.max_iter} alternations while F still fell by more than "
            f"tol={model.tol:g} of itself; raise max_iter or tol."
        )
    if fit.status is Status.STALLED:
        return Outcome(
            f"{name} stopped after {fit.n_iter} alternations because rounding made F rise; scale the features "
            "or pass dtype='float64'."
        )
    return Outcome(interrupt=fit.interrupt)


class Factors(NamedTuple):
    """W and H of a fitted model, as NumPy arrays."""

    W: NDArray
    H: NDArray

    @classmethod
    def of(cls, model: LowRankModel) -> Factors:
        """Return those of a model as its problem has them."""
        previous = model._previous()
        return cls(previous.W, previous.H)


def fit_bound(
    model: LowRankModel, data: BoundData, factors: Factors | None = None, *, lasting: bool = True
) -> Outcome:
    """Solve the problem of bound data, from the factors of another fit where they are given, and store the result.

    A model that is not ``lasting`` is a candidate of a search: it will not learn from further rows.
    """
    problem = model._problem(data)
    if factors is not None and is_nonzero(*factors):
        fit = problem.factors(*factors, np.dtype(model.dtype))
    else:
        fit = first_factors(model, problem)
    solve(problem, fit, options_of(model, problem))
    model._store(data, problem, fit, remember(problem, fit) if lasting else None)
    return outcome(model, fit)


def check_pair_of_weights(name: str, given: Any, shape: tuple[int | None, int | None]) -> Weights:
    """Return the weight of each row and each label, or say what is wrong with them; a size of None is not checked."""
    if not (isinstance(given, list | tuple) or np.ndim(given) > 0):
        check_number(name, given, Real, least=0)
        return Weights.of(1.0, float(given))
    if len(given) != 2:
        raise ValueError(f"{name} has {len(given)} parts; pass a number, or the pair of arrays p and q.")
    return Weights.of(*(_weight(f"{name}[{i}]", given[i], shape[i]) for i in range(2)))


def _weight(name: str, value: Any, size: int | None) -> Any:
    """Return a weight as a number or a column; refuse one that is negative, infinite or not of that length."""
    if np.ndim(value) == 0:
        check_number(name, value, Real, least=0)
        return float(value)
    return check_weights(name, value, len(value) if size is None else size)[:, None]


def check_penalty(name: str, value: Any, size: int, *, constant: bool, dtype: Any) -> Any:
    """Return a penalty as a number or a column of so many, with that of the constant feature where there is one."""
    if np.ndim(value) == 0:
        check_number(name, value, Real, least=0)
        return float(value)
    column = check_weights(name, value, size - constant)
    if constant:
        column = np.append(column, column.mean())
    return column[:, None].astype(dtype)


def check_symmetric(name: str, graph: Any, size: int) -> sp.csr_array | None:
    """Return a valid symmetric graph: that of the mean weights, and a warning, where two directions differ."""
    if graph is None:
        return None
    matrix = check_graph(name, graph, size)
    if abs(matrix - matrix.T).max() <= ROUNDING * matrix.max():
        return matrix
    warnings.warn(
        f"{name} is directed; each pair of nodes gets the mean of its two weights, (S + Sᵀ)/2.",
        UserWarning,
        stacklevel=6,
    )
    return sp.csr_array((matrix + matrix.T) / 2)


def split_factors(W: NDArray, constant: bool) -> tuple[NDArray, NDArray]:
    """Return the rows of W that belong to features, and the one of the constant feature, 0 without one.

    >>> split_factors(np.array([[1.0], [2.0], [3.0]]), True)
    (array([[1.],
           [2.]]), array([3.]))
    """
    return (W[:-1], W[-1]) if constant else (W, np.zeros(W.shape[1], W.dtype))


def join_factors(features: NDArray, intercept: NDArray, constant: bool) -> NDArray:
    """Return the W that :func:`split_factors` was given."""
    return np.vstack([features, intercept]) if constant else features


def embed_rows(X: Any, features: NDArray, intercept: NDArray, kernels: Backend, dtype: Any) -> NDArray:
    """Return the factors [X, 1] W of rows, n×k."""
    dtype = np.dtype(dtype).type
    B = Features(X, kernels, dtype).times(features.astype(dtype, copy=False))
    B += intercept
    return B
