"""Why a label: which features and which known labels argue for it."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from labelgap.estimators import Tagger
from labelgap.gaps.companions import Companions
from labelgap.observations import Labels, as_labels


class Argument(NamedTuple):
    """A feature or a known label by name, and how much it says for the label (against it where negative)."""

    name: str
    weight: float


class Explanation(NamedTuple):
    """The decision about a label, and what argues for it, the strongest first.

    Attributes
    ----------
    decision : float
        The decision value: above 0 is a yes.
    features : list of Argument
        By how much the decision falls when a feature of the row is set to 0.
    labels : list of Argument
        What the labels that the row has say, by their company in the training labels; of another scale.
    """

    decision: float
    features: list[Argument]
    labels: list[Argument]


def explain(
    model: Any,
    row: Any,
    label: int | str,
    *,
    Y: Any = None,
    known: Any = None,
    label_names: Sequence[str] | None = None,
    top: int = 10,
) -> Explanation:
    """Say why a fitted model gives a label to a row.

    The weight of a feature is s(x) − s(x without it), the change of the decision value; for a linear model it is
    the feature times its coefficient. The weight of a known label is that of :class:`Companions` of Y.

    Parameters
    ----------
    model : estimator
        Fitted; a :class:`~labelgap.Tagger` takes a text.
    row : text, or array-like or sparse matrix of one row
        What to explain.
    label : int or str
        The number of the label, or its name where the model has names.
    Y : labels, optional
        The training labels, to learn from which labels go together.
    known : sequence of int or str, optional
        The labels that the row is known to have.
    label_names : sequence of str, optional
        The names of labels where the model has none.
    top : int, default=10
        The most arguments of either kind.

    Examples
    --------
    >>> import numpy as np
    >>> from labelgap import LEML, explain
    >>> model = LEML(2, alpha=0.01, random_state=0).fit(np.eye(3), np.array([[1, 0], [1, 0], [0, 1]]))
    >>> explain(model, [[0.0, 1.0, 1.0]], 0).features[0].name
    'feature 1'
    """
    check_is_fitted(model)
    names = _names(model, label_names)
    column = _place(label, names, model.n_labels_)
    features, x, inner = _features(model, row)
    decision, falls = _falls(inner, x, column)
    strongest = np.argsort(-np.abs(falls), kind="stable")[:top]
    argued = [Argument(features(int(x.indices[i])), float(falls[i])) for i in strongest]
    return Explanation(decision, argued, _companions(Y, known, column, names, top))


def _names(model: Any, label_names: Sequence[str] | None) -> list[str]:
    names = getattr(model, "label_names_in_", None) if label_names is None else label_names
    return [f"label {j}" for j in range(model.n_labels_)] if names is None else [str(name) for name in names]


def _place(label: int | str, names: list[str], n_labels: int) -> int:
    """Return the number of a label, or say which ones there are."""
    if isinstance(label, str):
        if label not in names:
            near = difflib.get_close_matches(label, names, 3)
            some = ("did you mean " if near else "there are ") + " or ".join(map(repr, near or names[:5]))
            raise ValueError(
                f"label={label!r} is none of the {n_labels} labels of the model; {some}{'?' if near else ' …'}"
            )
        return names.index(label)
    if not 0 <= int(label) < n_labels:
        raise ValueError(f"label={label!r} is out of range; pass a number from 0 to {n_labels - 1}.")
    return int(label)


def _features(model: Any, row: Any) -> tuple[Any, sp.csr_array, Any]:
    """Return what features are called, the row as a sparse one, and the estimator that takes it."""
    if isinstance(model, Tagger):
        words = model.vocabulary_
        text = [row] if isinstance(row, str) else list(row)
        return (lambda j: f"bucket {j}" if words is None else str(words[j])), model.transform(text[:1]), model.model_
    x = sp.csr_array(model._check_rows(row))
    if x.shape[0] != 1:
        raise ValueError(f"row has {x.shape[0]} rows; pass one, such as X[:1].")
    names = getattr(model, "feature_names_in_", None)
    return (lambda j: f"feature {j}" if names is None else str(names[j])), x, model


def _falls(model: Any, x: sp.csr_array, column: int) -> tuple[float, NDArray]:
    """Return the decision of a row, and by how much it falls without each of its features."""
    count = x.nnz
    rows = sp.csr_array(sp.vstack([x, *[x] * count])) if count else x
    rows = sp.csr_array(rows, copy=True)
    rows.data[count + np.arange(count) * (count + 1)] = 0
    rows.eliminate_zeros()
    cells = sp.csr_array((np.ones(count + 1, bool), np.full(count + 1, column), np.arange(count + 2)))
    cells.resize((count + 1, model.n_labels_))
    scores = model.known_scores(rows, Labels.of_patterns(cells, cells)).data.astype(float)
    return float(scores[0]), scores[0] - scores[1:]


def _companions(Y: Any, known: Any, column: int, names: list[str], top: int) -> list[Argument]:
    if Y is None or known is None:
        return []
    found = Companions(as_labels(Y))
    places = [_place(one, names, len(names)) for one in known]
    arguments = [Argument(names[j], found.between(j, column)) for j in places if j != column]
    return sorted(arguments, key=lambda argument: -abs(argument.weight))[:top]
