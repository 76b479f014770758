"""SLEEC: local embeddings that preserve neighbours among label vectors, and votes of neighbours."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray
from sklearn.preprocessing import normalize

from labelgap.estimators.base import About
from labelgap.estimators.local import Part, PartFit
from labelgap.estimators.parameters import check_choice, check_number
from labelgap.estimators.voting import VotingEstimator
from labelgap.kernels import get_backend
from labelgap.objectives import Features, start
from labelgap.objectives.embeddings import Neighborhood, find_label_neighbors, regress
from labelgap.observations import Labels
from labelgap.observations.arguments import RandomSeed
from labelgap.solvers import NewtonCG, Status, alternate
from labelgap.solvers.base import inner
from labelgap.solvers.spectral import Embedding, svp

ALS_PENALTY = 1e-3  # makes the problem of a row with fewer neighbours than dimensions solvable


class SLEEC(VotingEstimator):
    """Sparse local embeddings for extreme classification (Bhatia et al. 2015): nearest neighbours in learned spaces.

    In each cluster of the training rows, with label vectors y_i of length 1:

    1. Ω holds the pairs of each row and its ``n_neighbors_embed`` nearest label vectors by inner product.
    2. Z = argmin ‖P_Ω(Y Yᵀ − Z Zᵀ)‖², n×k (eq. 4).
    3. V = argmin ‖Z − X V‖² + α ‖V‖² + l1 ‖X V‖₁, d×k (eq. 5).
    4. A new row x is assigned to the nearest cluster, and the ``n_neighbors`` training rows whose embeddings X V are
       nearest to xᵀ V vote with their labels.

    The votes of several learners with different random clusterings are averaged.

    Parameters
    ----------
    n_components : int, default=100
        The dimension k of the embeddings, at most the number of rows in a cluster.
    n_clusters : int, optional
        Number of clusters of a learner. Default: max(1, ⌊n / 6000⌋).
    n_learners : int, default=5
        Number of clusterings to average.
    n_neighbors_embed : int, default=100
        Number of nearest label vectors whose inner products an embedding preserves.
    n_neighbors : int, default=10
        Number of training rows that vote. Rows with many labels each want more: 70 on Delicious, 4 on Mediamill.
    alpha : float, default=1.0
        The penalty α of V, without a factor ½.
    l1 : float, default=0.0
        The penalty of ‖X V‖₁, for the regressors "admm" and "svr".
    embedding : {"svp", "als"}, default="svp"
        Singular value projection (the paper), or alternating minimisation of ‖P_Ω(Y Yᵀ − Z Wᵀ)‖² (the authors'
        program).
    regressor : {"ridge", "admm", "svr"}, default="ridge"
        Eq. 5 without the l1 term; with it, by ADMM; or with the squared ε-insensitive loss in place of the squared
        loss (the authors' program: l1=0.01, alpha=1 / (2 C), two rounds).
    epsilon : float, default=0.1
        The insensitivity ε of "svr".
    rho : float, default=1.0
        The weight of ADMM's augmented term.
    threshold : float, default=0.0
        Set weights of V below this share of the largest to 0 and store V as a sparse matrix, for a smaller model.
    label_norm : {"l2", None}, default="l2"
        Scale label vectors to length 1 (the authors' program), or do not scale them (the paper).
    metric, weights, algorithm
        As in :class:`~labelgap.LabelKNN`.
    max_iter : int, default=200
        Maximum number of steps of the embedding.
    tol : float, default=0.05
        Stop an embedding when a step lowers its objective by less than this share of it, or when the norm of the
        residual is at most this share of the norm of the inner products.
    regressor_max_iter : int, default=100
        Maximum number of rounds of ADMM.
    absent, random_state, n_jobs, dtype, verbose
        As in :class:`~labelgap.LEML`. Learners and clusters are fitted in parallel; the result does not depend on
        the number of threads.
    device : {"auto", "cpu", "cuda"}, default="auto"
        As in :class:`~labelgap.LEML`. Neighbours of label vectors, embeddings, regressors "ridge" and the search for
        neighbours run there; clusters, votes and the other regressors on the CPU.

    Attributes
    ----------
    parts_ : list of list of dict
        For each learner and cluster: "rows" (indices of training rows), "embedded" (their X V) and "regressors" (V).
    centers_ : list of ndarray
        The cluster centres of each learner.
    objective_ : list of list of float
        ½ ‖P_Ω(Y Yᵀ − Z Zᵀ)‖² at 0 and after each step, for the embedding of each part. With "als" it has Z Wᵀ in
        place of Z Zᵀ, plus a small penalty.
    status_ : str
        "converged", or "max_iter" if some part did not converge.
    positives_ : csr_array
        The known positives of the training rows, with which neighbours vote.

    Examples
    --------
    >>> import numpy as np
    >>> from labelgap import SLEEC
    >>> X = np.array([[1.0, 0.0], [1.0, 0.2], [0.0, 1.0], [0.1, 1.0]])
    >>> Y = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 0, 1]])
    >>> SLEEC(n_components=2, n_neighbors=2, alpha=0.01, random_state=0).fit(X, Y).predict([[0.0, 2.0]])
    array([[0, 0, 1]])
    """

    about = About(
        "Votes of the nearest rows in local embeddings that preserve neighbours among label vectors.",
        "Bhatia, Jain, Kar, Varma and Jain 2015",
        missing_labels=True,
        fit="T (n + z) k a step",
        predict="T n k / clusters",
    )

    _uses_device = True

    def __init__(
        self,
        n_components: int = 100,
        *,
        n_clusters: int | None = None,
        n_learners: int = 5,
        n_neighbors_embed: int = 100,
        n_neighbors: int = 10,
        alpha: float = 1.0,
        l1: float = 0.0,
        embedding: Literal["svp", "als"] = "svp",
        regressor: Literal["ridge", "admm", "svr"] = "ridge",
        epsilon: float = 0.1,
        rho: float = 1.0,
        threshold: float = 0.0,
        label_norm: Literal["l2"] | None = "l2",
        metric: Literal["cosine", "euclidean"] = "cosine",
        weights: Literal["similarity", "uniform"] = "similarity",
        algorithm: Literal["exact", "approximate"] = "exact",
        max_iter: int = 200,
        tol: float = 0.05,
        regressor_max_iter: int = 100,
        absent: Literal["negative", "unknown"] = "negative",
        random_state: RandomSeed = None,
        n_jobs: int | None = None,
        device: str = "auto",
        dtype: DTypeLike = "float32",
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.n_clusters = n_clusters
        self.n_learners = n_learners
        self.n_neighbors_embed = n_neighbors_embed
        self.n_neighbors = n_neighbors
        self.alpha = alpha
        self.l1 = l1
        self.embedding = embedding
        self.regressor = regressor
        self.epsilon = epsilon
        self.rho = rho
        self.threshold = threshold
        self.label_norm = label_norm
        self.metric = metric
        self.weights = weights
        self.algorithm = algorithm
        self.max_iter = max_iter
        self.tol = tol
        self.regressor_max_iter = regressor_max_iter
        self.absent = absent
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device
        self.dtype = dtype
        self.verbose = verbose

    def _check_parameters(self) -> None:
        super()._check_parameters()
        for name in ("n_components", "n_neighbors_embed", "max_iter", "regressor_max_iter"):
            check_number(name, getattr(self, name), Integral, least=1)
        for name in ("alpha", "l1", "epsilon", "rho", "threshold", "tol"):
            check_number(name, getattr(self, name), Real, least=0)
        if self.rho == 0:
            raise ValueError(f"rho={self.rho!r} is out of range; pass a number above 0.")
        if self.threshold > 1:
            raise ValueError(f"threshold={self.threshold!r} is out of range; pass a share from 0 to 1.")
        check_choice("embedding", self.embedding, ("svp", "als"))
        check_choice("regressor", self.regressor, ("ridge", "admm", "svr"))
        check_choice("label_norm", self.label_norm, ("l2", None))
        if self.l1 and self.regressor == "ridge":
            raise ValueError(f"l1={self.l1} has no effect with regressor='ridge'; pass regressor='admm' or l1=0.")

    def _fit_part(self, X: Any, labels: Labels, rng: np.random.RandomState) -> PartFit:
        kernels, dtype = self._part_kernels(), np.dtype(self.dtype).type
        vectors = labels.positives.astype(np.float64)
        if self.label_norm is not None:
            vectors = sp.csr_array(normalize(vectors, norm=self.label_norm))
        targets = find_label_neighbors(vectors, self.n_neighbors_embed, kernels, rng)
        # The systems of "als" are nearly singular: float32 would decide a part of its embedding by rounding.
        exact_dtype = np.float64 if self.embedding == "als" else dtype
        embedding = self._fit_embedding(Neighborhood(targets, kernels, exact_dtype), rng)
        exact = self.regressor == "ridge"  # the others run on the CPU
        regression = regress(
            Features(X, kernels if exact else get_backend(), dtype),
            kernels.array(embedding.Z, dtype) if exact else kernels.to_numpy(embedding.Z),
            method=self.regressor,
            alpha=self.alpha,
            l1=self.l1,
            rho=self.rho,
            epsilon=self.epsilon,
            max_iter=self.regressor_max_iter,
        )
        V = kernels.to_numpy(regression.V)
        part = {"regressors": V, "embedded": kernels.to_numpy(regression.embedded)}
        if self.threshold:
            large = np.abs(V) >= self.threshold * np.abs(V).max(initial=0)
            part["regressors"] = sp.csr_array(np.where(large, V, 0))
            part["embedded"] = self._embed_part(part, X)
        limits = {
            "raise max_iter or tol": embedding.status,
            "raise alpha" if self.regressor == "ridge" else "raise alpha or regressor_max_iter": regression.status,
        }
        advice = tuple(text for text, status in limits.items() if status is Status.MAX_ITER)
        return PartFit(part, embedding.history, embedding.n_iter, advice)

    def _fit_embedding(self, problem: Neighborhood, rng: np.random.RandomState) -> Embedding:
        k = min(self.n_components, problem.n)
        if self.embedding == "svp":
            convert = problem.kernels.array
            return svp(problem, k, random_state=rng, max_iter=self.max_iter, tol=self.tol, convert=convert)
        low_rank = problem.make_asymmetric_problem(ALS_PENALTY)
        fit = start(low_rank, k, init="svd", random_state=rng, dtype=problem.dtype)
        residual = problem.residual(fit.W)
        alternate(low_rank, fit, NewtonCG(), NewtonCG(), max_iter=self.max_iter, tol=self.tol)
        return Embedding(fit.W, [0.5 * float(inner(residual, residual)), *fit.history], fit.status)

    def _embed_part(self, part: Part, X: Any) -> NDArray:
        V = part["regressors"]
        if sp.issparse(V):
            product = X @ V
            return product.toarray() if sp.issparse(product) else np.asarray(product)
        return Features(X, get_backend(), V.dtype).times(V)  # copying V to a device would take longer

    def _check_part(self, part: Part) -> None:
        super()._check_part(part)
        if part["regressors"].shape != (self.n_features_in_, part["embedded"].shape[1]):
            raise ValueError("a part has regressors that do not match its embeddings")
