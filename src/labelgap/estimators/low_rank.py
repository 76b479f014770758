"""Functions that LEML and OneClassMF share: fits by alternation, partial_fit, and checks of parameters."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from numbers import Integral, Real
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from labelgap.estimators.base import Outcome
from labelgap.estimators.parameters import (
    check_choice,
    check_number,
    check_propensity,
    check_weights,
    weigh_positives,
)
from labelgap.kernels import Backend
from labelgap.kernels.base import repeat_when_lost
from labelgap.objectives.base import check_graph
from labelgap.objectives.cells import Weights
from labelgap.objectives.features import Features, explain_overflow
from labelgap.objectives.problem import BoundData, Iteration, Options, Problem, SideData, is_nonzero, solve, start
from labelgap.objectives.update import Memory, PreviousFit, make_memory, update, update_with_past
from labelgap.observations import Labels
from labelgap.observations.labels import append_labels, match_columns, select_labels, stack_rows
from labelgap.solvers import Fit, Status

DEFAULT_COMPONENTS = 100
MAX_ASYMMETRY = 1e-6  # difference of the two weights of an edge, as a share of the largest weight
MAX_UPDATE_ALTERNATIONS = 3


class LowRankModel(Protocol):
    """An estimator of two factors: the parameters and methods that the functions below use."""

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
        """Return the problem that the parameters define on bound data."""

    def _previous(self) -> PreviousFit:
        """Return the factors of the last fit in the form of the problem, and the summary of its rows."""

    def _store(self, data: BoundData, problem: Problem, fit: Fit, memory: Memory | None) -> None:
        """Set the fitted attributes."""


def check_alternation(model: LowRankModel) -> None:
    """Raise ValueError for invalid parameters of an alternation."""
    check_number("n_components", model.n_components, Integral, least=1, optional=True)
    check_number("tol", model.tol, Real, least=0)
    check_number("max_iter", model.max_iter, Integral, least=1)
    check_choice("init", model.init, ("svd", "random"))
    check_number("verbose", model.verbose, Integral, least=0)
    callbacks = model.callbacks
    if callbacks is not None and not (isinstance(callbacks, list | tuple) and all(map(callable, callbacks))):
        raise ValueError(f"callbacks={callbacks!r} is not a sequence of callables; pass a list, such as [print].")


def start_factors(model: LowRankModel, problem: Problem) -> Fit:
    """Return the first factors: those of the last fit, or from the data, or at random."""
    left, right, dtype = problem.left, problem.right, np.dtype(model.dtype)
    rows, labels = "rows" if left.is_identity else "features", "labels" if right.is_identity else "label features"
    n_features, n_labels = left.shape[1] - (not left.is_identity and bool(model.fit_intercept)), right.shape[1]
    most = min(n_features, n_labels)
    k = min(DEFAULT_COMPONENTS, most) if model.n_components is None else model.n_components
    if k > most:
        raise ValueError(
            f"n_components={k} is above min({rows}, {labels}) = min({n_features}, {n_labels}) = {most}; a larger "
            f"rank changes nothing. Pass at most {most}."
        )
    if model.warm_start and hasattr(model, "label_factors_"):
        previous = model._previous()
        W, H = previous.W, previous.H
        shapes = (left.shape[1], k), (right.shape[1], k)
        if (W.shape, H.shape) != shapes:
            raise ValueError(
                f"warm_start=True, but the previous fit has factors of shapes {W.shape} and {H.shape} "
                f"and this one needs {shapes[0]} and {shapes[1]}; clone the estimator for a new start."
            )
        if is_nonzero(W, H):
            return problem.make_fit(W, H, dtype)
    return start(problem, k, init=model.init, random_state=check_random_state(model.random_state), dtype=dtype)


def solver_options(model: LowRankModel, problem: Problem, max_iter: int | None = None) -> Options:
    """Return the solver options that the parameters define for a problem."""
    return Options(
        problem.make_solver(model.solver),
        model.max_iter if max_iter is None else max_iter,
        model.tol,
        model.dtype,
        type(model).__name__,
        model.verbose,
        tuple(model.callbacks or ()),
    )


def store_outcome(model: Any, fit: Fit) -> Outcome:
    """Store the history and status of a fit, and return its outcome."""
    model.objective_, model.n_iter_, model.status_ = fit.history, fit.n_iter, fit.status.value
    name = type(model).__name__
    if fit.status is Status.MAX_ITER and model.tol > 0:  # tol=0 asks for exactly max_iter alternations
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
        """Return the factors of a model in the form of its problem."""
        previous = model._previous()
        return cls(previous.W, previous.H)


def fit_bound(
    model: LowRankModel,
    data: BoundData,
    factors: Factors | None = None,
    *,
    lasting: bool = True,
    make_start: Callable[[LowRankModel, Problem], Fit] = start_factors,
) -> Outcome:
    """Solve the problem of bound data and store the result.

    ``factors``, those of another fit, are the start if they are not 0; else ``make_start`` returns it. A model that
    is not ``lasting``, such as a candidate of a search, does not store the summary of its rows that
    :func:`partial_fit` needs.
    """
    problem = model._problem(data)
    if factors is not None and is_nonzero(*factors):
        fit = problem.make_fit(*factors, np.dtype(model.dtype))
    else:
        fit = repeat_when_lost(partial(make_start, model, problem))
    solve(problem, fit, solver_options(model, problem))

    def store() -> None:
        model._store(data, problem, fit, make_memory(problem, fit) if lasting else None)

    repeat_when_lost(store)
    return store_outcome(model, fit)


def check_pair_of_weights(name: str, value: Any, shape: tuple[int | None, int | None]) -> Weights:
    """Return validated weights of rows and labels; a size of None is not checked."""
    if not (isinstance(value, list | tuple) or np.ndim(value) > 0):
        check_number(name, value, Real, least=0)
        return Weights.of(1.0, float(value))
    if len(value) != 2:
        raise ValueError(f"{name} has {len(value)} parts; pass a number, or the pair of arrays p and q.")
    return Weights.of(*(_check_weight(f"{name}[{i}]", value[i], shape[i]) for i in range(2)))


def _check_weight(name: str, value: Any, size: int | None) -> Any:
    """Return a validated weight as a number or a column."""
    if np.ndim(value) == 0:
        check_number(name, value, Real, least=0)
        return float(value)
    return check_weights(name, value, len(value) if size is None else size)[:, None]


def check_penalty(name: str, value: Any, size: int, *, constant: bool, dtype: Any) -> Any:
    """Return a validated penalty as a number or a column of ``size``; a constant feature gets the mean penalty."""
    if np.ndim(value) == 0:
        check_number(name, value, Real, least=0)
        return float(value)
    column = check_weights(name, value, size - constant)
    if constant:
        column = np.append(column, column.mean())
    return column[:, None].astype(dtype)


def check_symmetric(name: str, graph: Any, size: int) -> sp.csr_array | None:
    """Return a validated symmetric graph; for a directed graph, warn and average the two directions."""
    if graph is None:
        return None
    matrix = check_graph(name, graph, size)
    if abs(matrix - matrix.T).max() <= MAX_ASYMMETRY * matrix.max():
        return matrix
    warnings.warn(
        f"{name} is directed; each pair of nodes gets the mean of its two weights, (S + Sᵀ)/2.",
        UserWarning,
        stacklevel=7,
    )
    return sp.csr_array((matrix + matrix.T) / 2)


def split_factors(W: NDArray, constant: bool) -> tuple[NDArray, NDArray]:
    """Return the rows of W of the features, and the row of the constant feature, which is 0 without a constant.

    >>> split_factors(np.array([[1.0], [2.0], [3.0]]), True)
    (array([[1.],
           [2.]]), array([3.]))
    """
    return (W[:-1], W[-1]) if constant else (W, np.zeros(W.shape[1], W.dtype))


def join_factors(features: NDArray, intercept: NDArray, constant: bool) -> NDArray:
    """Return the W that :func:`split_factors` has split."""
    return np.vstack([features, intercept]) if constant else features


def embed_rows(X: Any, features: NDArray, intercept: NDArray, kernels: Backend, dtype: Any) -> Any:
    """Return the factors [X, 1] W of rows, n×k, on the device of the kernels."""
    dtype = np.dtype(dtype).type
    B = Features(X, kernels, dtype).times(kernels.array(features, dtype))
    B += kernels.array(intercept, dtype)
    return B


class LabelledRows(NamedTuple):
    """Validated rows and their labels; X is None if the rows have no features."""

    X: Any
    labels: Labels


class UpdateContext(NamedTuple):
    """Properties of the rows of a :func:`partial_fit` besides features and labels.

    Attributes
    ----------
    side : SideData
        Side data of all rows that are learned from.
    alike : bool
        Whether rows differ in features and labels only, so that the further rows represent the others.
    fold_in : callable, optional
        (problem of all rows, H) ↦ the factors of the further rows, for a model without features.
    """

    side: SideData = SideData()
    alike: bool = True
    fold_in: Callable[[Problem, NDArray], NDArray] | None = None


def partial_fit(
    model: Any,
    X: Any,
    Y: Any,
    observed: Any,
    past: Any,
    alternations: int,
    *,
    check_rows: Callable[[Any], Any],
    make_context: Callable[[LabelledRows, LabelledRows | None], UpdateContext] = lambda rows, before: UpdateContext(),
    stored_rows: LabelledRows | None = None,
) -> None:
    """Update a fitted model with further rows; the model is unchanged after an error.

    ``check_rows`` validates features, ``make_context(further, before)`` describes the rows, and ``stored_rows`` are
    the earlier rows if the model stores them.
    """
    model._check_parameters()
    check_number("alternations", alternations, Integral, least=1)
    if not model.fit_intercept and model.intercept_factors_.any():
        raise ValueError("fit_intercept=False, and the model has a constant feature from its fit; set it to True.")
    interrupt = None
    with model._restore_on_error(), model._compute(), explain_overflow(model.dtype):
        names = getattr(model, "label_names_in_", None)
        rows, names = check_further(model, check_rows(X), Y, observed, names)
        before = stored_rows
        if past is not None:
            before = check_past(model, past, check_rows, rows.labels.shape[1], names)
        context = make_context(rows, before)
        if before is None:
            _update_label_factors(model, rows, context)
        else:
            interrupt = _update_all_factors(model, before, rows, context, int(alternations))
        if model.n_labels_ != rows.labels.shape[1]:
            model._drop_calibration("partial_fit has added labels")
        model.n_labels_ = rows.labels.shape[1]
        if names is not None:
            model.label_names_in_ = names
    if interrupt is not None:
        raise interrupt


def check_no_past(past: Any) -> None:
    """Raise ValueError if earlier rows are passed to a model that is not fitted."""
    if past is not None:
        raise ValueError("past= needs a fitted model, and this one is not fitted; call fit with all rows.")


def check_no_propensity(model: Any) -> None:
    """Raise ValueError if positives have weights, which an update could not tell from those of the fit."""
    if model.propensity is not None:
        raise ValueError(f"partial_fit excludes propensity; fit this {type(model).__name__} again with all rows.")


def weigh_labels(propensity: Any, labels: Labels) -> Weights:
    """Return the weights of the positives of each label, 2/p − 1; 1 without propensities."""
    weights = weigh_positives(check_propensity(propensity, labels))
    return Weights() if weights is None else Weights(1.0, weights[:, None])


def check_further(
    model: Any, X: Any, Y: Any, observed: Any, names: NDArray | None, argument: str = "Y"
) -> tuple[LabelledRows, NDArray | None]:
    """Return rows with labels in the order of the model, and the names of all labels if they have names."""
    labels = model._check_labels(
        Y,
        observed,
        X,
        missing=f"{argument} is None; pass the labels of the rows, those of the model first.",
        empty=f"{argument} has shape {{shape}}; pass at least one row and the labels of the model.",
    )
    new_names = model.__dict__.pop("label_names_in_", None)
    if names is not None and new_names is not None:
        order = match_columns(argument, names, new_names)
        labels, new_names = select_labels(labels, order), new_names[order]
    L, n_known, name = labels.shape[1], model.n_labels_, type(model).__name__
    if n_known > L:
        raise ValueError(
            f"{argument} has {L} labels and this {name} has {n_known}; pass a column for each label of the model, in "
            "the same order, then the new ones."
        )
    if names is not None and new_names is None and len(names) < L:
        raise ValueError(
            f"{argument} has {L - len(names)} labels without a name, and the labels of this {name} have names; "
            "pass a data frame."
        )
    return LabelledRows(X, labels), names if new_names is None else new_names


def check_past(
    model: Any, past: Any, check_rows: Callable[[Any], Any], n_labels: int, names: NDArray | None
) -> LabelledRows:
    """Return the validated earlier rows."""
    if not isinstance(past, tuple | list) or len(past) != 2:
        raise ValueError("past is not a pair; pass past=(X, Y), the rows learned from before and their labels.")
    X, Y = past
    old_names = None if names is None else names[: model.n_labels_]
    rows, past_names = check_further(model, check_rows(X), Y, None, old_names, "the Y of past")
    L = rows.labels.shape[1]
    renamed = old_names is not None and list(past_names) != list(names[:L])  # type: ignore
    if L not in (model.n_labels_, n_labels) or renamed:
        raise ValueError(
            f"The Y of past has {L} labels; pass the {model.n_labels_} of the model, or the {n_labels} of Y in the "
            "same order."
        )
    return rows


def _update_label_factors(model: Any, rows: LabelledRows, context: UpdateContext) -> None:
    """Update H from further rows and the summary of the earlier ones; W is fixed."""
    previous = model._previous()
    if previous.memory is None:
        raise ValueError(
            f"This {type(model).__name__} has no summary of its training rows (it has label features, or its file is "
            "older than partial_fit); pass past=(X, Y), or fit it again."
        )
    data = model._bind(*rows, context.side)
    problem = model._problem(data)
    fit, memory = update(previous, problem, dtype=model.dtype)
    store_outcome(model, fit)
    model._store(data, problem, fit, memory, further=True)


def _update_all_factors(
    model: Any, before: LabelledRows, rows: LabelledRows, context: UpdateContext, alternations: int
) -> KeyboardInterrupt | None:
    """Alternate over all rows from the current factors; return an interrupt after the result is stored."""
    labels = stack_rows(append_labels(before.labels, rows.labels.shape[1], model.absent), rows.labels)
    X = before.X
    if X is not None and (sp.issparse(X) or sp.issparse(rows.X)):
        X = sp.csr_array(sp.vstack([X, rows.X]))
    elif X is not None:
        X = np.vstack([X, rows.X])
    data = model._bind(X, labels, context.side)
    problem = model._problem(data)
    fold_in, further = context.fold_in, None
    if fold_in is None and context.alike:
        further = model._problem(model._bind(*rows))
    fit, memory = update_with_past(
        model._previous(),
        problem,
        solver_options(model, problem, alternations),
        further=further,
        fold_in=None if fold_in is None else lambda H: fold_in(problem, H),
        init=model.init,
        random_state=check_random_state(model.random_state),
    )
    outcome = store_outcome(model, fit)
    model._store(data, problem, fit, memory)
    return outcome.interrupt
