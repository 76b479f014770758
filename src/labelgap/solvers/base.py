"""What a solver asks of an objective, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Protocol

from labelgap.kernels import namespace

Array = Any
Scalar = Any  # a float, or a 0-d float64 array that is still on the device


class Spectrum(Protocol):
    """AᵀA = V diag(values) Vᵀ, thin: V spans the row space of A."""

    @property
    def values(self) -> Array:
        """The eigenvalues, of shape (r, 1), or a number where all of them are the same."""

    @property
    def complete(self) -> bool:
        """Whether V spans everything."""

    def rotate(self, R: Array) -> Array:
        """Vᵀ R."""

    def restore(self, Z: Array) -> Array:
        """V Z."""


class LinearMap(Protocol):
    """A matrix A that is known by its products."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""

    @property
    def is_identity(self) -> bool:
        """Whether A = I."""

    def times(self, W: Array) -> Array:
        """A W."""

    def t_times(self, B: Array) -> Array:
        """Aᵀ B."""

    def spectrum(self) -> Spectrum | None:
        """The eigenvectors of AᵀA, or None where they would cost more than they save."""

    def column_squares(self) -> Array:
        """The squared norm of each column of A, shape (d, 1)."""


@dataclass
class Kronecker:
    """A Hessian of the form W ↦ Aᵀ diag(weights) A W M + ridge · W, W d×k and M k×k; exact, or near the true one.

    ``weights`` and ``ridge`` are numbers, or arrays of shape (rows, 1) where A is the identity. A term without data
    has only the ridge.
    """

    ridge: Array | float = 0.0
    features: LinearMap | None = None
    M: Array = None
    weights: Array = 1.0
    exact: bool = True


class Model(NamedTuple):
    """The second-order model of an objective at one point: f, ∇f, v ↦ ∇²f v, and the Hessian's Kronecker form."""

    value: Scalar
    gradient: Array
    hessp: Callable[[Array], Array]
    kronecker: Kronecker | None = None


class Objective(Protocol):
    """A smooth function of one matrix."""

    @property
    def separable(self) -> bool:
        """Whether the Hessian has a block for each row and nothing between them."""

    def value(self, W: Array) -> Scalar:
        """f(W)."""

    def model(self, W: Array) -> Model:
        """f, ∇f and the Hessian product at W."""

    def along(self, W: Array, S: Array) -> Callable[[float], Scalar]:
        """t ↦ f(W + t S), as cheap for each further t as the objective allows."""


class Status(Enum):
    """How a solve ended."""

    CONVERGED = "converged"
    MAX_ITER = "max_iter"
    STALLED = "stalled"
    STOPPED = "stopped"


@dataclass
class Solution:
    """Where a solve ended and what it took."""

    x: Array
    value: float
    status: Status
    n_iter: int
    n_products: int


class Solver(Protocol):
    """Minimises an objective from a start."""

    def minimize(self, objective: Objective, start: Array) -> Solution:
        """Return the minimiser found."""

    def with_few_products(self, steps: int, products: int) -> Solver:
        """Return the same solver with at most so many steps, and so many products in each."""


def inner(a: Array, b: Array) -> Scalar:
    """⟨a, b⟩, summed in float64 so that long float32 arrays keep their digits.

    It stays on the device of the arrays; ``float`` reads it where a decision needs it.

    >>> import numpy as np
    >>> float(inner(np.ones((2, 3)), np.full((2, 3), 2.0)))
    12.0
    """
    xp = namespace(a)
    return xp.sum(a * b, dtype=xp.float64)


def norm(a: Array) -> float:
    """‖a‖, read from the device.

    >>> import numpy as np
    >>> norm(np.array([[3.0, 4.0]]))
    5.0
    """
    return float(inner(a, a)) ** 0.5
