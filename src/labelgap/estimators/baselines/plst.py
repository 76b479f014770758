"""PLST: the principal directions of the labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
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


class PLST(LinearReduction):
    """Principal label space transformation (Tai and Lin 2012).

    With V (L×k) the leading right singular vectors of the centred labels Ȳ = Y − 1μᵀ, the codes are Ȳ V; ridge
    regression predicts them, W = argmin ½ ‖Ȳ V − [X, 1] W‖² + (α/2) ‖W‖², and scores are [X, 1] W Vᵀ + μᵀ. No linear
    code of k numbers loses less of Y. Ȳ is never made.

    Parameters
    ----------
    n_components : int, optional
        The number k of codes, at most that of the labels. By default 100, or the number of labels where it is less.
    alpha : float, default=1.0
        The penalty α ≥ 0 of W.
    fit_intercept : bool, default=True
        Append a constant 1 to the features, penalised like the rest.
    absent, n_jobs, dtype
        As in :class:`~labelgap.LEML`.
    device : str, default="auto"
        Deprecated; has no effect.
    random_state : int, RandomState or None
        Seeds the search for V where there are more than 6,000 labels.

    Attributes
    ----------
    feature_factors_ : ndarray of shape (d, k)
        W.
    intercept_factors_ : ndarray of shape (k,)
        The row of W that belongs to the constant feature, 0 without one.
    label_factors_ : ndarray of shape (L, k + 1)
        [V, μ].
    objective_ : list of one float
        ½ ‖Y − scores‖² + (α/2) ‖W‖² on the training rows.
    status_ : str
        "converged", or "max_iter" where an iterative solution of the least squares did not.

    Examples
    --------
    The second label is the contrary of the first, and one code is enough:

    >>> import numpy as np
    >>> from labelgap import PLST
    >>> X = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    >>> Y = np.array([[1, 0], [1, 0], [0, 1], [0, 1]])
    >>> PLST(n_components=1, alpha=0.1).fit(X, Y).predict([[0.9, 0.2]])
    array([[1, 0]])
    """

    about = About(
        "Ridge regression of the principal components of the labels.",
        "Tai and Lin 2012",
        fit="z d + d³ + L³",
        predict="(z/n + L) k",
    )

    def _encode(self, equations: NormalEquations, labels: Labels, rng: np.random.RandomState) -> Code:
        k, dtype = number_of_codes(self.n_components, labels.shape[1]), np.dtype(self.dtype).type
        Y = LabelMatrix(labels, self._kernels(), dtype, centred=True)
        return principal_code(Y, lambda P: Y.t_times(Y.times(P)), k, rng, dtype)


def principal_code(
    Y: LabelMatrix, gram_times: Callable[[NDArray], NDArray], k: int, rng: np.random.RandomState, dtype: Any
) -> Code:
    """Return Ȳ V for the k leading eigenvectors V of a symmetric L×L matrix that is known by its products."""
    V = leading_eigenvectors(gram_times, Y.shape[1], k, rng, dtype)
    return Code(Y.times(V), V, Y.shift)
