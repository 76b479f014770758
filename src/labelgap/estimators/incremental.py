"""partial_fit: low-rank models take up further rows and further labels without learning from nothing."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from labelgap.estimators.low_rank import options_of, outcome
from labelgap.estimators.parameters import check_number
from labelgap.objectives.features import numbers_in_range
from labelgap.objectives.problem import Problem, SideData
from labelgap.objectives.update import update, update_with_past
from labelgap.observations import Labels
from labelgap.observations.joining import columns_by_name, stacked, widened, with_columns
from labelgap.runtime import threads

ALTERNATIONS = 3


class Rows(NamedTuple):
    """Validated rows, None where they have no features, and their labels."""

    X: Any
    labels: Labels


class Further(NamedTuple):
    """What a model says about further rows.

    Attributes
    ----------
    side : SideData
        That of all rows which are learned from.
    alike : bool
        Rows differ in nothing but features and labels, so that the further ones can stand for others.
    fold_in : callable, optional
        (problem of all rows, H) ↦ the factors of the further rows, for a model without features.
    """

    side: SideData = SideData()
    alike: bool = True
    fold_in: Callable[[Problem, NDArray], NDArray] | None = None


class Given(NamedTuple):
    """The arguments of ``partial_fit``."""

    X: Any
    Y: Any
    observed: Any
    past: Any
    alternations: int


def partial_fit(
    model: Any,
    given: Given,
    *,
    check_rows: Callable[[Any], Any],
    prepare: Callable[[Rows, Rows | None], Further] = lambda rows, before: Further(),
    kept: Rows | None = None,
) -> None:
    """Let a fitted model learn from further rows; it is unchanged where anything fails.

    ``check_rows`` validates features; ``prepare(further, before)`` says what else there is to know of the rows;
    ``kept`` are the rows of before where the model itself knows them.
    """
    model._check_parameters()
    check_number("alternations", given.alternations, Integral, least=1)
    if not model.fit_intercept and model.intercept_factors_.any():
        raise ValueError("fit_intercept=False, and the model has a constant feature from its fit; set it to True.")
    interrupt = None
    with model._unchanged_on_error(), threads(model.n_jobs), numbers_in_range(model.dtype):
        names = getattr(model, "label_names_in_", None)
        rows, names = _check_more(model, Rows(check_rows(given.X), given.Y), given.observed, names)
        before = kept
        if given.past is not None:
            before = _check_past(model, given.past, check_rows, rows.labels.shape[1], names)
        further = prepare(rows, before)
        if before is None:
            _learn_on(model, rows, further)
        else:
            interrupt = _learn_all(model, before, rows, further, int(given.alternations))
        model.n_labels_ = rows.labels.shape[1]
        if names is not None:
            model.label_names_in_ = names
    if interrupt is not None:
        raise interrupt


def check_no_past(past: Any) -> None:
    """Refuse rows of before for a model that has not learned from any."""
    if past is not None:
        raise ValueError("past= goes with a fitted model, and this one is not; call fit with all rows.")


def _check_more(
    model: Any, rows: Rows, observed: Any, names: NDArray | None, what: str = "Y"
) -> tuple[Rows, NDArray | None]:
    """Return rows with labels in the order of the model, and the names of all labels if they have any."""
    labels = model._check_labels(
        rows.labels,
        observed,
        rows.X,
        missing=f"{what} is None; pass the labels of the rows, those of before first.",
        empty=f"{what} has shape {{shape}}; pass at least one row and the labels of before.",
    )
    own = model.__dict__.pop("label_names_in_", None)
    if names is not None and own is not None:
        order = columns_by_name(what, names, own)
        labels, own = with_columns(labels, order), own[order]
    L, known, name = labels.shape[1], model.n_labels_, type(model).__name__
    if known > L:
        raise ValueError(
            f"{what} has {L} labels and {name} knows {known}; pass a column for each of them, in "
            "their order, then the new ones."
        )
    if names is not None and own is None and len(names) < L:
        raise ValueError(
            f"{what} has {L - len(names)} labels without a name, and {name} knows its labels by "
            "name; pass a data frame."
        )
    return Rows(rows.X, labels), names if own is None else own


def _check_past(
    model: Any, past: Any, check_rows: Callable[[Any], Any], n_labels: int, names: NDArray | None
) -> Rows:
    """Return the rows of before, or say what is wrong with them."""
    if not isinstance(past, tuple | list) or len(past) != 2:
        raise ValueError("past is no pair; pass past=(X, Y), the rows learned from before and their labels.")
    own = None if names is None else names[: model.n_labels_]
    X, Y = past
    rows, found = _check_more(model, Rows(check_rows(X), Y), None, own, "the Y of past")
    L = rows.labels.shape[1]
    if L not in (model.n_labels_, n_labels) or (own is not None and list(found) != list(names[:L])):  # type: ignore
        raise ValueError(
            f"The Y of past has {L} labels; pass the {model.n_labels_} of before, or the {n_labels} of Y in the "
            "same order."
        )
    return rows


def _learn_on(model: Any, rows: Rows, further: Further) -> None:
    """Learn from further rows alone."""
    previous = model._previous()
    if previous.memory is None:
        raise ValueError(
            f"This {type(model).__name__} remembers nothing of the rows it learned from (it has label features, "
            "or its file is older than partial_fit); pass past=(X, Y), or fit it again."
        )
    data = model._bind(*rows, further.side)
    problem = model._problem(data)
    fit, memory = update(previous, problem, dtype=model.dtype)
    outcome(model, fit)
    model._store(data, problem, fit, memory, further=True)


def _learn_all(model: Any, before: Rows, rows: Rows, further: Further, alternations: int) -> KeyboardInterrupt | None:
    """Alternate over all rows from the factors at hand; an interrupt is handed back once these are stored."""
    labels = stacked(widened(before.labels, rows.labels.shape[1], model.absent), rows.labels)
    data = model._bind(_below(before.X, rows.X), labels, further.side)
    problem = model._problem(data)
    fold_in, alone = further.fold_in, None
    if fold_in is None and further.alike:
        alone = model._problem(model._bind(*rows))
    fit, memory = update_with_past(
        model._previous(),
        problem,
        options_of(model, problem, alternations),
        further=alone,
        fold_in=None if fold_in is None else lambda H: fold_in(problem, H),
        init=model.init,
        random_state=check_random_state(model.random_state),
    )
    ended = outcome(model, fit)
    model._store(data, problem, fit, memory)
    return ended.interrupt


def _below(first: Any, second: Any) -> Any:
    """Return the rows of the first, then those of the second; None where they have no features."""
    if first is None:
        return None
    if sp.issparse(first) or sp.issparse(second):
        return sp.csr_array(sp.vstack([first, second]))
    return np.vstack([first, second])
