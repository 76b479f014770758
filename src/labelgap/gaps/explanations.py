"""Explanations of a label: features and known labels that support it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from labelgap.estimators import Tagger
from labelgap.observations import Labels, as_labels
from labelgap.observations.arguments import LabelsLike

MAX_BLOCK_VALUES = 2_000_000  # of the rows that are scored together; they would grow with the square of a text
MAX_LABELS = 12_000  # of LabelCooccurrence, which inverts a matrix of labels × labels


class Argument(NamedTuple):
    """A feature or a known label by name, with its weight: positive for the label, negative against it."""

    name: str
    weight: float


class Explanation(NamedTuple):
    """The decision about a label, with its arguments in descending order of absolute weight.

    Attributes
    ----------
    decision : float
        The decision value; positive means yes.
    features : list of Argument
        The decrease of the decision value when a feature of the row is set to 0.
    labels : list of Argument
        The support from other labels of the row, by co-occurrence in the training labels; on another scale.
    probability : float, optional
        The probability that the label would be written, if the model is calibrated.
    """

    decision: float
    features: list[Argument]
    labels: list[Argument]
    probability: float | None = None


def explain(
    model: Any,
    row: Any,
    label: int | str,
    *,
    Y: LabelsLike | None = None,
    known: Any = None,
    label_names: Sequence[str] | None = None,
    top: int = 10,
) -> Explanation:
    """Explain the decision of a fitted model about a label of a row.

    The weight of a feature is s(x) − s(x without it), the change of the decision value; for a linear model it is
    the feature times its coefficient. The weight of a known label comes from a linear model of ``label`` in the other
    labels of Y (Steck 2019).

    Parameters
    ----------
    model : estimator
        Fitted; a :class:`~labelgap.Tagger` takes a text.
    row : text, or array-like or sparse matrix of one row
        The row to explain.
    label : int or str
        Number of the label, or its name.
    Y : labels, optional
        Training labels, for the weights of known labels.
    known : sequence of int or str, optional
        Known labels of the row.
    label_names : sequence of str, optional
        Names of the labels (default: those of the model).
    top : int, default=10
        Maximum number of arguments of each kind.

    Returns
    -------
    Explanation

    Examples
    --------
    >>> import numpy as np
    >>> from labelgap import LEML, explain
    >>> model = LEML(2, alpha=0.01, random_state=0).fit(np.eye(3), np.array([[1, 0], [1, 0], [0, 1]]))
    >>> explain(model, [[0.0, 1.0, 1.0]], 0).features[0].name
    'feature 1'
    """
    check_is_fitted(model)
    if label_names is None:
        label_names = getattr(model, "label_names_in_", None)
    names = [f"label {j}" for j in range(model.n_labels_)] if label_names is None else list(map(str, label_names))
    column = _find_label(label, names, model.n_labels_)
    x, inner, name_feature = _prepare_row(model, row)
    decision, decreases = _remove_features(inner, x, column)
    probability = None
    if hasattr(model, "calibration_"):  # thresholds are those of the whole model
        decided = model.decide([row] if isinstance(row, str) else row)
        decision, probability = float(decided.decisions[0, column]), float(decided.probabilities[0, column])
    strongest = np.argsort(-np.abs(decreases), kind="stable")[:top]
    features = [Argument(name_feature(int(x.indices[i])), float(decreases[i])) for i in strongest]
    labels = []
    if Y is not None and known is not None:
        cooccurrence = LabelCooccurrence(as_labels(Y))
        others = [_find_label(other, names, len(names)) for other in known]
        labels = [Argument(names[j], cooccurrence.get_weight(j, column)) for j in others if j != column]
        labels.sort(key=lambda argument: -abs(argument.weight))
    return Explanation(decision, features, labels[:top], probability)


def _find_label(label: int | str, names: list[str], n_labels: int) -> int:
    """Return the column of a label; raise ValueError with similar names if there is none."""
    if isinstance(label, str):
        if label not in names:
            similar = difflib.get_close_matches(label, names, 3)
            if similar:
                hint = f"did you mean {' or '.join(map(repr, similar))}?"
            else:
                hint = f"it has {', '.join(map(repr, names[:5]))}{' …' if len(names) > 5 else '.'}"
            raise ValueError(f"label={label!r} is none of the {n_labels} labels of the model; {hint}")
        return names.index(label)
    if not 0 <= int(label) < n_labels:
        raise ValueError(f"label={label!r} is out of range; pass a number from 0 to {n_labels - 1}.")
    return int(label)


def _prepare_row(model: Any, row: Any) -> tuple[sp.csr_array, Any, Callable[[int], str]]:
    """Return the features of a row, the estimator that takes them, and a function that names a feature."""
    if isinstance(model, Tagger):
        words = model.vocabulary_
        text = [row] if isinstance(row, str) else list(row)
        kind = "bucket" if model.features is None else "feature"
        return model.transform(text[:1]), model.model_, lambda j: f"{kind} {j}" if words is None else str(words[j])
    x = sp.csr_array(model._check_rows(row))
    if x.shape[0] != 1:
        raise ValueError(f"row has {x.shape[0]} rows; pass one, such as X[:1].")
    names = getattr(model, "feature_names_in_", None)
    return x, model, lambda j: f"feature {j}" if names is None else str(names[j])


def _remove_features(model: Any, x: sp.csr_array, column: int) -> tuple[float, NDArray]:
    """Return the decision value of a row, and its decrease without each non-zero feature."""
    size = max(1, MAX_BLOCK_VALUES // max(x.nnz, 1))
    blocks = [_score_without(model, x, column, range(i, min(i + size, x.nnz))) for i in range(0, x.nnz, size)]
    whole = _score_without(model, x, column, range(-1, 0))[0]
    return float(whole), whole - np.concatenate([*blocks, []])


def _score_without(model: Any, x: sp.csr_array, column: int, places: range) -> NDArray:
    """Return the decision values of a row without each of some stored values; the place −1 removes nothing."""
    n = len(places)
    rows = sp.csr_array((np.tile(x.data, n), np.tile(x.indices, n), np.arange(n + 1) * x.nnz), (n, x.shape[1]))
    if places.start >= 0:
        rows.data[np.arange(n) * x.nnz + np.asarray(places)] = 0
        rows.eliminate_zeros()
    cells = sp.csr_array((np.ones(n, bool), np.full(n, column), np.arange(n + 1)), (n, model.n_labels_))
    return model.known_scores(rows, Labels.of_patterns(cells, cells)).data.astype(float)


class LabelCooccurrence:
    """A linear model of each label in the other labels: ŷ_ij = Σ over the labels l ≠ j of row i of B_lj.

    B minimises ½ ‖Y − YB‖² + (α/2) ‖B‖² with a zero diagonal, which has a closed form: B_lj = −P_lj / P_jj off the
    diagonal, with P = (YᵀY + αI)⁻¹ (Steck 2019). Only the 12,000 most frequent labels take part.

    Parameters
    ----------
    labels : Labels
        Training labels.
    alpha : float, default=20.0
        The penalty α.

    Examples
    --------
    >>> Y = sp.csr_array(np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1], [1, 0, 0]]))
    >>> cooccurrence = LabelCooccurrence(Labels(Y), alpha=0.1)
    >>> cooccurrence.get_weight(1, 0) > cooccurrence.get_weight(2, 0)
    True
    """

    def __init__(self, labels: Labels, alpha: float = 20.0) -> None:
        Y = labels.positives.astype(float)
        counts = np.bincount(Y.indices, minlength=Y.shape[1])
        self.frequent = np.sort(np.argsort(-counts, kind="stable")[:MAX_LABELS])
        Y = sp.csr_array(Y[:, self.frequent])
        gram = np.asarray((Y.T @ Y).todense()) + alpha * np.eye(len(self.frequent))
        inverse = np.linalg.inv(gram)
        self.weights = -inverse / np.diag(inverse)
        np.fill_diagonal(self.weights, 0.0)
        self._position = np.full(len(counts), -1)
        self._position[self.frequent] = np.arange(len(self.frequent))

    def get_weight(self, known: int, label: int) -> float:
        """Return B_lj for the known label l and the label j; 0 if either is not frequent enough to take part."""
        positions = self._position[known], self._position[label]
        return float(self.weights[positions]) if min(positions) >= 0 else 0.0
