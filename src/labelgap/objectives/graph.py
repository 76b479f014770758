"""A similarity graph as a penalty: neighbours shall have near factors."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from labelgap.kernels import Backend
from labelgap.objectives.base import Quadratic
from labelgap.solvers.base import Array, Kronecker, Model, Scalar, inner


def laplacian(S: Any) -> sp.csr_array:
    """Return D − S̄ for the symmetric part S̄ = (S + Sᵀ)/2 of a similarity matrix and its row sums D.

    Self-loops cancel; a node without neighbours has a row of zeros.

    >>> laplacian(sp.csr_array([[5.0, 2.0], [0.0, 0.0]])).toarray()
    array([[ 1., -1.],
           [-1.,  1.]])
    """
    S = sp.csr_array(S, dtype=float)
    symmetric = sp.csr_array((S + S.T) / 2)
    symmetric.setdiag(0)
    symmetric.eliminate_zeros()
    return sp.csr_array(sp.diags_array(symmetric.sum(axis=1)) - symmetric)


class Graph(NamedTuple):
    """The Laplacian of a similarity matrix and its degrees (n×1), bound to kernels once for many penalties."""

    kernels: Backend
    laplacian: Any
    degrees: Array

    @classmethod
    def of(cls, similarity: Any, kernels: Backend, dtype: Any) -> Graph:
        """Bind a similarity matrix."""
        matrix = laplacian(similarity)
        degrees = kernels.rows(matrix.diagonal()[:, None], np.float64)
        return cls(kernels, kernels.prepare_graph(matrix, dtype), degrees)


class GraphPenalty(Quadratic):
    """(γ/2) tr(BᵀLB) = (γ/4) Σ S̄_ij ‖b_i − b_j‖², with L the Laplacian of a similarity matrix S.

    For preconditioning it is its diagonal, γ times the degrees.

    >>> import numpy as np
    >>> from labelgap.kernels import get_backend
    >>> graph = Graph.of(sp.csr_array([[0.0, 1.0], [1.0, 0.0]]), get_backend("cpu"), np.float64)
    >>> float(GraphPenalty(graph, 2.0).value(np.array([[3.0], [1.0]])))
    4.0
    """

    separable = False

    def __init__(self, graph: Graph, gamma: float) -> None:
        self.graph, self.gamma = graph, gamma

    def _times(self, B: Array) -> Array:
        image = self.graph.kernels.spmm(self.graph.laplacian, B)
        image *= self.gamma
        return image

    def value(self, B: Array) -> Scalar:
        return 0.5 * inner(B, self._times(B))

    def model(self, B: Array) -> Model:
        image = self._times(B)
        form = Kronecker(self.gamma * self.graph.degrees, exact=False)
        return Model(0.5 * inner(B, image), image, self._times, form)


def check_graph(name: str, graph: Any, size: int) -> sp.csr_array:
    """Return a similarity matrix as CSR, or say what is wrong with it.

    >>> check_graph("row_graph", np.ones((2, 3)), 2)
    Traceback (most recent call last):
        ...
    ValueError: row_graph has shape (2, 3); pass a square similarity matrix, a row for each of the 2 nodes.
    """
    try:
        if np.iscomplexobj(graph.data if sp.issparse(graph) else graph):
            raise TypeError("its weights are complex")
        matrix = sp.csr_array(graph, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} is no similarity matrix ({error}); pass a sparse or dense square one.") from error
    if matrix.shape != (size, size):
        raise ValueError(
            f"{name} has shape {matrix.shape}; pass a square similarity matrix, a row for each of the {size} nodes."
        )
    if not np.isfinite(matrix.data).all():
        raise ValueError(f"{name} holds NaN or infinity; pass finite similarities.")
    if (matrix.data < 0).any():
        raise ValueError(f"{name} holds a negative weight, {matrix.data.min():g}; pass similarities of at least 0.")
    return matrix
