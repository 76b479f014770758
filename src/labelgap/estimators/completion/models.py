"""The estimators MC1 and MCb."""

from __future__ import annotations

from labelgap.estimators.about import About
from labelgap.estimators.completion.estimator import CompletionEstimator


class MCb(CompletionEstimator):
    """Complete labels and features together, with an explicit bias for each label (Goldberg et al. 2010, MC-b).

    Minimises over Z (n×(t+d), label columns first) and b (t)

        μ ‖Z‖_* + (λ/|Ω_Y|) Σ over Ω_Y of ℓ(Y_ij, Z_ij + b_j) + (1/|Ω_X|) Σ over Ω_X of ½ (Z_{i,t+j} − X_ij)²,

    Ω_Y and Ω_X the known cells of labels and features.

    The method is transductive: it answers for the rows that it was fitted with, whose features and known labels all
    take part, and those answers are ``labels_``, ``decision_`` and ``features_``. For rows that come later,
    :meth:`predict` and :meth:`transform` hold the learned row space and find the place in it that fits a row's known
    features best, by the problem that each training row solves at the optimum; nothing else of the model changes. A
    training row that is passed again is such a row: its labels are not known to :meth:`predict`.

    A label whose known cells are all of one class is predicted to have it everywhere.

    Parameters
    ----------
    mu : float, default=1e-5
        The last and smallest μ > 0, the weight of the nuclear norm.
    label_weight : float, default=1.0
        λ, the weight of the labels' mean loss beside the features'.
    loss : {"logistic", "squared", "squared_hinge"} or Loss, default="logistic"
        The loss ℓ of a label cell.
    solver : {"auto", "fpc", "exact", "accelerated", "factored"}, default="auto"
        "fpc" is the published fixed point iteration, which for this problem is "exact" too. "accelerated" adds
        momentum and comes to the same optimum in a fraction of the steps. "factored" minimises over the factors of Z
        and never makes an n×d array. "auto" is accelerated, or factored where Z has more than 50 million cells.
    n_components : int, optional
        The width of the factors of ``solver="factored"``, an upper bound of the rank of Z; by default
        min(n, t + d, 100).
    decay : float, default=0.25
        μ starts at decay · σ₁, σ₁ the largest singular value of the matrix with 0 in unknown cells, and falls by this
        factor down to ``mu``; each solution is the start of the next.
    max_iter : int, default=1000
        The most steps for one μ.
    tol : float, default=1e-5
        Stop when a step changes the objective by at most this share of it.
    absent : {"negative", "unknown"}, default="negative"
        What a cell that a sparse Y does not store means.
    absent_features : {"zero", "unknown"}, default="zero"
        What a cell that a sparse X does not store means. NaN is unknown in any X.
    random_state : int, RandomState or None
        Seeds the start of "factored"; the other solvers draw nothing.
    n_jobs, verbose
        As in :class:`~labelgap.LEML`.
    device : str, default="auto"
        Deprecated; has no effect.
    dtype : {"float32", "float64"}, default="float64"
        The precision of Z.

    Attributes
    ----------
    decision_ : ndarray of shape (n, t)
        The decision values of the training rows: above 0 where the label is there.
    labels_ : array or sparse matrix of shape (n, t)
        ``decision_ > 0`` in the container that Y had: every cell, known or not, as Z has it.
    features_ : ndarray of shape (n, d)
        The features as Z has them: completed, and smoothed where they are known.
    rank_ : int
        The rank of Z.
    bias_ : ndarray of shape (t,)
        b; 0 in MC-1. A label of one class has its target here, and nothing else.
    objective_ : list of float
        The objective after each step at the last μ.
    path_ : list of dict
        For each μ: "mu", "objective", "rank", "n_iter" and "status".
    n_iter_ : int
        The number of steps at all μ's together.
    status_ : str
        "converged" or "max_iter", at the last μ; "stalled" where rounding stopped "factored".
    row_factors_, label_factors_, feature_factors_, constant_factors_ : ndarray
        Z = W Hᵀ: W (n×k), and the rows of H of labels (with the bias appended), features and the constant.

    Examples
    --------
    Rows of rank 1; a feature and the label of the last row are missing:

    >>> import numpy as np
    >>> from labelgap import MCb
    >>> X = np.outer([1, 2, -1, -2, 3, -3], [1.0, 2.0, -1.0, 1.5])
    >>> Y = (X[:, :1] > 0).astype(float)
    >>> X[5, 1] = Y[5] = np.nan
    >>> model = MCb(mu=1e-3).fit(X, Y)
    >>> model.labels_.ravel(), model.features_[5].round(1)
    (array([1., 1., 0., 0., 1., 0.]), array([-3. , -6. ,  3. , -4.5]))

    A row that comes later, with two of its features:

    >>> row = [[np.nan, 2.0, np.nan, 1.5]]
    >>> model.predict(row), model.transform(row).round(1)
    (array([[1.]]), array([[ 1. ,  2. , -1. ,  1.5]]))
    """

    about = About(
        "Labels and features completed together as one matrix of low rank, with a bias for each label.",
        "Goldberg, Zhu, Recht, Xu and Nowak 2010",
        missing_labels=True,
        missing_features=True,
        fit="n (d + L) k a step",
        predict="d k² + L k",
    )

    _constant = False


class MC1(CompletionEstimator):
    """Complete labels and features together, the bias implicit in a constant feature (Goldberg et al. 2010, MC-1).

    Minimises over Z (n×(t+d+1)), whose last column is held at 1,

        μ ‖Z‖_* + (λ/|Ω_Y|) Σ over Ω_Y of ℓ(Y_ij, Z_ij) + (1/|Ω_X|) Σ over Ω_X of ½ (Z_{i,t+j} − X_ij)².

    Everything said of :class:`~labelgap.MCb` holds here too, but for the solvers. The published loop,
    ``solver="fpc"``, shrinks Z and then sets its last column to 1. It converges, but to a matrix whose constant is
    only pulled to 1, and not to the minimum; the gap falls with μ. ``solver="exact"`` gives the constraint a
    multiplier, moved once in each step (the three-operator splitting of Davis and Yin 2017). ``"accelerated"`` and
    ``"factored"`` do without the constraint: the minimum is that of a bias b_j for every label and feature and the
    penalty μ ‖Z − 1bᵀ‖_* + μ √n √(1 + ‖b‖²). All but the first end at the minimum.

    Parameters
    ----------
    mu, label_weight, loss, solver, n_components, decay, max_iter, tol
        As in :class:`~labelgap.MCb`.
    absent, absent_features, random_state, n_jobs, dtype, verbose
        As in :class:`~labelgap.MCb`.
    device : str, default="auto"
        Deprecated; has no effect.

    Attributes
    ----------
    decision_, labels_, features_, rank_, bias_, objective_, path_, n_iter_, status_
        As in :class:`~labelgap.MCb`.

    Examples
    --------
    >>> import numpy as np
    >>> from labelgap import MC1
    >>> X = np.outer([1, 2, -1, -2, 3, -3], [1.0, 2.0, -1.0, 1.5])
    >>> Y = (X[:, :1] > 0).astype(float)
    >>> X[5, 1] = Y[5] = np.nan
    >>> MC1(mu=1e-3).fit(X, Y).labels_.ravel()
    array([1., 1., 0., 0., 1., 0.])
    """

    about = About(
        "Labels and features completed together as one matrix of low rank, with a constant feature.",
        "Goldberg, Zhu, Recht, Xu and Nowak 2010",
        missing_labels=True,
        missing_features=True,
        fit="n (d + L) k a step",
        predict="d k² + L k",
    )

    _constant = True
