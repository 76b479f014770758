"""ML-CSSP: a few labels stand for all."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from labelgap.estimators.about import About
from labelgap.estimators.baselines.reduced import (
    Code,
    LabelMatrix,
    LinearReduction,
    leading_eigenvectors,
    number_of_codes,
)
from labelgap.objectives.regression import NormalEquations
from labelgap.observations import Labels


class CSSP(LinearReduction):
    """Column subset selection of the labels, ML-CSSP (Bi and Kwok 2013).

    k labels C are drawn, each with a chance in proportion to its leverage Σ_c V_jc², V (L×k) the leading right
    singular vectors of Y. The codes are these labels themselves, Y_C; ridge regression predicts them, and the others
    follow by least squares: scores are [X, 1] W (Y_C⁺ Y).

    Parameters
    ----------
    n_components : int, optional
        The number k of labels to draw. By default 100; no more than there are labels with a positive are drawn.
    alpha : float, default=1.0
        The penalty α ≥ 0 of W.
    fit_intercept : bool, default=True
        Append a constant 1 to the features, penalised like the rest.
    random_state : int, RandomState or None
        Draws the labels.
    absent, n_jobs, dtype
        As in :class:`~labelgap.LEML`.
    device : str, default="auto"
        Deprecated; has no effect.

    Attributes
    ----------
    selected_labels_ : ndarray of shape (k,)
        C, in the order in which they were drawn.
    feature_factors_, intercept_factors_, objective_, status_
        As in :class:`~labelgap.PLST`.
    label_factors_ : ndarray of shape (L, k + 1)
        [(Y_C⁺ Y)ᵀ, 0].

    Examples
    --------
    The third label is on where one of the first two is:

    >>> import numpy as np
    >>> from labelgap import CSSP
    >>> Y = np.array([[1, 0, 1], [1, 0, 1], [0, 1, 1], [0, 1, 1], [0, 0, 0]])
    >>> model = CSSP(n_components=2, alpha=0.01, random_state=0).fit(np.eye(5), Y)
    >>> len(model.selected_labels_), model.predict(np.eye(5)[:3])
    (2, array([[1, 0, 1],
           [1, 0, 1],
           [0, 1, 1]]))
    """

    about = About(
        "Ridge regression of a sample of the labels; the others are linear combinations of them.",
        "Bi and Kwok 2013",
        fit="z d + d³ + L³",
        predict="(z/n + L) k",
    )

    selected_labels_: NDArray

    def _encode(self, equations: NormalEquations, labels: Labels, rng: np.random.RandomState) -> Code:
        k, dtype = number_of_codes(self.n_components, labels.shape[1]), np.dtype(self.dtype).type
        Y = LabelMatrix(labels, self._kernels(), dtype, centred=False)
        V = leading_eigenvectors(lambda P: Y.t_times(Y.times(P)), Y.shape[1], k, rng, dtype)
        self.selected_labels_ = draw_columns((V.astype(float) ** 2).sum(1), labels, k, rng)
        chosen = labels.positives[:, self.selected_labels_].astype(dtype)
        return Code(chosen.toarray(), combinations(chosen, labels.positives).T, Y.shift)

    def _check_loaded(self) -> None:
        super()._check_loaded()
        k = len(self.intercept_factors_)
        if np.shape(self.selected_labels_) != (k,):
            raise ValueError(f"{np.shape(self.selected_labels_)} selected labels for {k} codes")


def draw_columns(leverage: NDArray, labels: Labels, k: int, rng: np.random.RandomState) -> NDArray[np.int64]:
    """Draw k distinct labels that have a positive, one after the other, each in proportion to its leverage.

    >>> labels = Labels(np.array([[1, 0, 1], [1, 0, 0]]))
    >>> sorted(draw_columns(np.array([0.9, 0.0, 0.1]), labels, 3, np.random.RandomState(0)).tolist())
    [0, 2]
    """
    seen = np.unique(labels.positives.indices)
    if not len(seen):
        return np.zeros(1, np.int64)
    # A label whose leverage is lost in rounding must not be out of reach: there may be no others left.
    chances = np.maximum(leverage[seen], np.finfo(float).eps * leverage.max())
    return rng.choice(seen, min(k, len(seen)), replace=False, p=chances / chances.sum())


def combinations(chosen: Any, labels: Any) -> NDArray[np.float64]:
    """Return Y_C⁺ Y (k×L), by way of the Gram matrix of the chosen columns; both are sparse.

    >>> import scipy.sparse as sp
    >>> Y = sp.csr_array(np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]]))
    >>> combinations(Y[:, [0, 1]], Y).round(6) + 0
    array([[1., 0., 1.],
           [0., 1., 1.]])
    """
    gram = (chosen.T @ chosen).toarray().astype(float)
    return scipy.linalg.pinvh(gram) @ (chosen.T @ labels.astype(chosen.dtype)).toarray().astype(float)
