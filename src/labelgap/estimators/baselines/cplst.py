"""CPLST: the directions of the labels that the features can tell."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from labelgap.estimators.about import About
from labelgap.estimators.baselines.plst import principal_code
from labelgap.estimators.baselines.reduced import Code, LabelMatrix, LinearReduction, number_of_codes
from labelgap.objectives.regression import NormalEquations
from labelgap.observations import Labels


class CPLST(LinearReduction):
    """Conditional principal label space transformation (Chen and Lin 2012), with a ridge.

    As :class:`~labelgap.PLST`, but V (L×k) are the leading eigenvectors of Ȳᵀ H_α Ȳ, Ȳ the centred labels and
    H_α = X (XᵀX + αI)⁻¹ Xᵀ the hat matrix of the ridge regression (X with its constant feature). So V and W together
    are the minimum of

        ½ ‖Ȳ − X W Vᵀ‖² + (α/2) ‖W‖²  over W and V with VᵀV = I.

    Without a penalty X W Vᵀ is the least-squares fit of rank k, which is also the closed form of LEML's squared loss
    with every label known (Yu et al. 2014, claim 2).

    Parameters
    ----------
    n_components : int, optional
        The number k of codes, at most that of the labels. By default 100, or the number of labels where it is less.
    alpha : float, default=1.0
        The penalty α ≥ 0 of W.
    fit_intercept : bool, default=True
        Append a constant 1 to the features, penalised like the rest.
    absent, random_state, n_jobs, dtype
        As in :class:`~labelgap.PLST`.
    device : str, default="auto"
        Deprecated; has no effect.

    Attributes
    ----------
    feature_factors_, intercept_factors_, label_factors_, objective_, status_
        As in :class:`~labelgap.PLST`.

    Examples
    --------
    The features tell the second label and nothing of the first, though that one varies more:

    >>> import numpy as np
    >>> from labelgap import CPLST, PLST
    >>> X = np.array([[0.0], [0.0], [0.0], [0.0], [0.0], [0.0], [1.0], [1.0]])
    >>> Y = np.array([[1, 0], [0, 0], [1, 0], [0, 0], [1, 0], [0, 0], [1, 1], [0, 1]])
    >>> [method(n_components=1, alpha=0.01).fit(X, Y).predict([[1.0]])[0, 1] for method in (PLST, CPLST)]
    [np.int64(0), np.int64(1)]
    """

    about = About(
        "Ridge regression of the directions of the labels that features predict best.",
        "Chen and Lin 2012",
        fit="z d + d³ + d² L + L³",
        predict="(z/n + L) k",
    )

    def _encode(self, equations: NormalEquations, labels: Labels, rng: np.random.RandomState) -> Code:
        k, dtype = number_of_codes(self.n_components, labels.shape[1]), np.dtype(self.dtype).type
        Y = LabelMatrix(labels, self._kernels(), dtype, centred=True)

        def hat_times(P: NDArray) -> NDArray:
            W, _ = equations.solve(Y.times(P), 1.0, float(self.alpha))
            return Y.t_times(equations.features.times(W))

        return principal_code(Y, hat_times, k, rng, dtype)
