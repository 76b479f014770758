"""Binary relevance, also called one-vs-all: a linear model for each label, on the rows where that label is known."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from labelgap.estimators.about import About
from labelgap.estimators.base import MultiLabelEstimator, Outcome
from labelgap.estimators.baselines.label_models import Settings, fit_labels
from labelgap.estimators.linear import LinearScores, by_feature, check_coefficients
from labelgap.estimators.parameters import check_number
from labelgap.losses import Loss, get_loss
from labelgap.observations import Labels


class BinaryRelevance(MultiLabelEstimator):
    """A linear model for each label, fitted on the rows where the label is known (one-vs-all).

    Label j minimises over w and b

        F(w, b) = Σ over known (i, j) of ℓ(Y_ij, w·x_i + b) + (α/2) (‖w‖² + b²) + l1 ‖w‖₁.

    A label whose known cells are all of one class has the constant that suits it best, and one without a known cell
    has no score at all. Small weights may be cut, which makes large models small (DiSMEC, Babbar and Schölkopf 2017).

    Parameters
    ----------
    alpha : float, default=1.0
        The penalty α ≥ 0. LIBLINEAR's C is 1/α.
    loss : {"squared_hinge", "logistic", "squared"} or Loss, default="squared_hinge"
        The loss of a cell. The squared loss with every label known is one linear system for all labels.
    l1 : float, default=0.0
        The weight of ‖w‖₁, which makes weights zero; with ``alpha=0`` it stands alone.
    threshold : float, default=0.0
        Weights below it in magnitude are cut to 0 after the fit.
    fit_intercept : bool, default=True
        Learn b.
    max_iter : int, default=1000
        The most Newton steps of a label.
    tol : float, default=1e-2
        A label ends when its gradient is shorter than this share of that at 0, times the share of its rarer class.
        With the squared hinge and up to 256 dense features it goes on to its minimum, which costs less.
    absent, n_jobs, verbose
        As in :class:`~labelgap.LEML`. The result does not depend on ``n_jobs``.
    device : str, default="auto"
        Deprecated; has no effect.
    dtype : {"float32", "float64"}, default="float32"
        The precision of the coefficients and of the solver; F is summed in float64 either way.

    Attributes
    ----------
    coef_ : ndarray or csr_array of shape (L, d)
        w of each label; sparse with an ``l1`` or a ``threshold``.
    intercept_ : ndarray of shape (L,)
        b of each label, less ½ for squared loss: decisions are ``coef_`` · x + ``intercept_``.
    n_iter_ : int
        The most Newton steps that a label took.
    status_ : str
        "converged", or "max_iter" where some label did not.

    Examples
    --------
    >>> import numpy as np
    >>> from labelgap import BinaryRelevance
    >>> X = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    >>> Y = np.array([[1, 0, np.nan], [1, 0, 1], [0, 1, 0], [0, np.nan, 0]])
    >>> BinaryRelevance(alpha=0.1).fit(X, Y).predict([[1.0, 0.05]])
    array([[1., 0., 1.]])
    """

    about = About(
        "A linear model for each label, whole or with its small weights cut.",
        "Boutell, Luo, Shen and Brown 2004; Babbar and Schölkopf 2017",
        missing_labels=True,
        fit="z L a step",
        predict="z/n L",
    )

    coef_: NDArray | sp.csr_array
    intercept_: NDArray
    n_iter_: int
    status_: str

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        loss: str | Loss = "squared_hinge",
        l1: float = 0.0,
        threshold: float = 0.0,
        fit_intercept: bool = True,
        max_iter: int = 1000,
        tol: float = 1e-2,
        absent: Literal["negative", "unknown"] = "negative",
        n_jobs: int | None = None,
        device: str = "auto",
        dtype: Any = "float32",
        verbose: int = 0,
    ) -> None:
        self.alpha = alpha
        self.loss = loss
        self.l1 = l1
        self.threshold = threshold
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.absent = absent
        self.n_jobs = n_jobs
        self.device = device
        self.dtype = dtype
        self.verbose = verbose

    def _check_parameters(self) -> None:
        self._check_common()
        get_loss(self.loss)
        for name in ("alpha", "l1", "threshold", "tol"):
            check_number(name, getattr(self, name), Real, least=0)
        check_number("max_iter", self.max_iter, Integral, least=1)
        check_number("verbose", self.verbose, Integral, least=0)

    def _learn(self, X: Any, labels: Labels) -> Outcome:
        settings = Settings(
            loss=get_loss(self.loss),
            alpha=float(self.alpha),
            l1=float(self.l1),
            threshold=float(self.threshold),
            constant=bool(self.fit_intercept),
            max_iter=int(self.max_iter),
            tol=float(self.tol),
            dtype=np.dtype(self.dtype).type,
            verbose=int(self.verbose),
        )
        found = fit_labels(X, labels, settings, self._kernels())
        self.coef_ = by_feature(found.weights)
        self.intercept_ = (found.constants - settings.loss.threshold).astype(settings.dtype)
        self.n_iter_, self.status_ = found.n_iter, "converged" if found.converged else "max_iter"
        if found.converged:
            return Outcome()
        return Outcome(
            f"BinaryRelevance stopped after max_iter={self.max_iter} steps for some labels, before their "
            f"gradients came down to tol={self.tol:g}; raise max_iter, tol or alpha, or scale the features."
        )

    def _scores(self, X: Any) -> LinearScores:
        return LinearScores(X, self.coef_, self.intercept_, self._kernels())

    def _check_loaded(self) -> None:
        check_coefficients(self.coef_, self.intercept_, self.n_labels_, self.n_features_in_)
